"""Generate the C source of the library: what every export does before and after the Python function behind it."""

from __future__ import annotations

from pathlib import Path

from ..document import Function
from ..status import ALLOC_FAILED, INTERNAL_ERROR, NOT_SUPPORTED
from ..status import NOT_INITIALIZED as STATUS_NOT_INITIALIZED
from . import memo
from .c_types import border_type, code_of, destroys, result_type
from .faces import Face
from .memo.keys import KINDS, NAMING, key_of

NOT_INITIALIZED = {"int": "DUALDNN_NOT_INITIALIZED", "size_t": "0"}
# WORD maps the code of a floating-point argument to the C expression of its word.
WORD = {"f": "WORD(float, {})", "d": "WORD(double, {})"}
SUCCESS = "0 /* its objects ended with the interpreter */"
NOT_INITIALIZED_TEXT = '"CUDNN_STATUS_NOT_INITIALIZED"'

PASSING = Path(__file__).with_name("passing.c")

# cffi returns 0, which is SUCCESS, if Python cannot be started, and crashes if it has ended. The state distinguishes
# these cases.
PREAMBLE = """
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int dualdnn_state; /* 0: not started; 1: the entries are loaded; 2: there is no interpreter for us */

#if PY_VERSION_HEX < 0x030D0000
#define Py_IsFinalizing _Py_IsFinalizing
#endif

/* Returns whether the interpreter is ending, or has ended after it had loaded the entries. A C program may still call while it
   exits. Even its first call may come this late, when nothing can be loaded. Calls from Python's atexit come earlier, and are answered. */
static int dualdnn_ended(void)
{
    return dualdnn_state != 2 && (Py_IsFinalizing() || (dualdnn_state == 1 && !Py_IsInitialized()));
}

/* A process with another version of Python would hang, because both would share symbols. Extension modules such as NumPy's look for Python's functions
   among the global symbols; a program that opened this library with RTLD_LOCAL has them elsewhere. */
__attribute__((constructor)) static void dualdnn_loaded(void)
{
    const char *(*version)(void) = (const char *(*)(void))dlsym(RTLD_DEFAULT, "Py_GetVersion");
    Dl_info ours;
    if (version && strncmp(version(), PY_VERSION, strrchr(PY_VERSION, '.') - PY_VERSION + 1)) {
        fprintf(stderr, DUALDNN_LIBRARY " was built for Python %s, this process runs %s\\n", PY_VERSION, version());
        dualdnn_state = 2;
    } else if (dladdr((void *)Py_IsInitialized, &ours))
        dlopen(ours.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

/* Starts the interpreter before the first call, with the folders of Python's modules, dualdnn and cffi at build time. cffi would
   start one too, but it looks for its own module before it runs our code, and ends the process if it cannot find it. */
static void dualdnn_start(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (dualdnn_state == 0 && !Py_IsInitialized()) {
        PyConfig config;
        PyStatus status;
        PyConfig_InitPythonConfig(&config);
        config.install_signal_handlers = 0;
        config.site_import = 0; /* DUALDNN_PATHS has the packages of the virtual environment; those of its base Python are not used */
        if (!getenv("PYTHONHOME")) PyConfig_SetBytesString(&config, &config.home, DUALDNN_HOME);
        status = Py_InitializeFromConfig(&config);
        PyConfig_Clear(&config);
        if (PyStatus_Exception(status)) {
            fprintf(stderr, DUALDNN_LIBRARY ": Python cannot start: %s\\n", status.err_msg ? status.err_msg : "no reason given");
            dualdnn_state = 2;
        } else
            PyEval_SaveThread();
    }
    pthread_mutex_unlock(&lock);
    if (dualdnn_state == 2) return;
    PyGILState_STATE state = PyGILState_Ensure();
    PyRun_SimpleString("import site\\nfor path in " DUALDNN_PATHS ":\\n    site.addsitedir(path)");
    PyGILState_Release(state);
}
"""


# The interpreter does not end with a C program. This function prints final messages after the program's own atexit
# functions.
FINISH = """
__attribute__((destructor)) static void dualdnn_finished(void)
{
    if (dualdnn_state == 1 && !dualdnn_ended()) py_dualdnn_finish();
}
"""


# Without a C++ compiler, exceptions of a callback are not caught.
CALL_BACK = """
typedef void (*dualdnn_callback)(int, uintptr_t, const void *, const char *);
#ifdef DUALDNN_CATCHES
int dualdnn_caught(dualdnn_callback, int, uintptr_t, const void *, const char *);
#else
static int dualdnn_caught(dualdnn_callback function, int severity, uintptr_t udata, const void *record, const char *text)
{
    function(severity, udata, record, text);
    return 0;
}
#endif
static int dualdnn_call_back(uintptr_t function, int severity, uintptr_t udata, const void *record, const char *text)
{
    return dualdnn_caught((dualdnn_callback)function, severity, udata, record, text);
}
"""


def export(number: int, function: Function) -> str:
    """Return the C function that clients link to. number: identifies the function in keys of the memo."""
    result, parameters, name = result_type(function), function.parameters, function.name
    declared = ", ".join(f"{border_type(parameter)} a{i}" for i, parameter in enumerate(parameters))
    given = ", ".join(f"a{i}" for i in range(len(parameters)))
    types = ", ".join(map(border_type, parameters)) or "void"
    words = [WORD.get(code_of(parameter), "{}").format(f"a{i}") for i, parameter in enumerate(parameters)]
    failed = NOT_INITIALIZED.get(result, NOT_INITIALIZED_TEXT)
    ended = SUCCESS if destroys(function) else failed
    return f"""
{result} {name}({declared or "void"})
{{
    if (dualdnn_ended()) return {ended};
    if (dualdnn_state == 0) dualdnn_start();
    Thread *t = thread();
    if (dualdnn_state == 2 || !t) return {failed};
    if (passes({number})) return (({result} (*)({types}))passed_to[{number}])({given});
    Call k;
    k.keyed = 0;
    {_keyed(number, function)}
    const uint64_t words[] = {{{", ".join(words) or "0"}}};
    long long result = served(t, &k, {number}, words, "{name}");
    return dualdnn_state == 1 ? ({result})result : {failed};
}}
"""


def _keyed(number: int, function: Function) -> str:
    """Return the statements that build a call's key, or "" for a function whose results the memo does not keep."""
    key = key_of(function)
    if key is None:
        return ""
    statements = "\n        ".join(key)
    return f"""if (dualdnn_state == 1 && memo_mode()) {{
        key_begin(&k, {number});
        {statements}
        key_end(&k);
    }}
ask: __attribute__((unused));"""


def absent(name: str, face: Face) -> str:
    """Return the C function for a call of the release that this project lacks. It prints that once, and fails."""
    status = f"CUDNN_STATUS_NOT_SUPPORTED: release {face.major} has this call, this edition does not"
    return f"""
int {name}(void)
{{
    static int told;
    if (!told++) fprintf(stderr, "dualdnn: {name}: {status}\\n");
    return {face.status(NOT_SUPPORTED)};
}}
"""


def source(paths: str, home: str, face: Face) -> str:
    """Return the whole C source.

    paths: a C string literal with a Python list of the package folders. home: a C string literal with Python's folder.
    """
    return "\n".join(
        [
            f"#define DUALDNN_PATHS {paths}",
            f"#define DUALDNN_HOME {home}",
            f'#define DUALDNN_LIBRARY "{face.library}"',
            f"#define DUALDNN_NOT_INITIALIZED {face.status(STATUS_NOT_INITIALIZED)}",
            f"#define DUALDNN_ALLOC_FAILED {face.status(ALLOC_FAILED)}",
            f"#define NAMING {sum(1 << KINDS[name] for name in NAMING):#x}u",
            f"#define DUALDNN_INTERNAL_ERROR {face.status(INTERNAL_ERROR)}",
            PREAMBLE,
            "#pragma GCC push_options",
            '#pragma GCC optimize ("O2")  /* a hit takes half the time of -O1; the calls around it do not gain, and compile longer */',
            memo.source(),
            "#pragma GCC pop_options",
            f"#define FUNCTIONS {len(face.functions)}",
            PASSING.read_text(),
            "static void py_dualdnn_finish(void);",
            CALL_BACK,
            *(export(number, function) for number, function in enumerate(face.functions.values())),
            *(absent(name, face) for name in face.absent),
            *(f"size_t {name}(void)\n{{\n    return {value};\n}}" for name, value in face.sizes.items()),
            FINISH,
        ]
    )


# cffi reads these declarations: what Python calls, and the Python functions that C calls.
DEFINITIONS = f"""
static int dualdnn_state;
int dualdnn_call_back(uintptr_t, int, uintptr_t, const void *, const char *);
{memo.called_by_python(memo.source() + PASSING.read_text())}
extern "Python" {{
    void py_dualdnn_finish(void);
    {memo.CALLED_BY_C}
}}
"""
