"""Test that the C library works throughout a process's life: with threads, fork, dlclose, calls after exit, and NULL
for every output.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from dualdnn.api import cudnn
from dualdnn.api.abi.c_types import RESULTS, destroys
from dualdnn.api.document import functions
from test_c_library import compiled, run

pytest.importorskip("cffi")
if shutil.which("gcc") is None:
    pytest.skip("no C compiler", allow_module_level=True)

# compute() checks a softmax, and returns 0 if it is right.
COMPUTE = """
#include <cudnn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
static int compute(int seed) {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t desc;
  float x[8], y[8], one = 1, zero = 0, total = 0;
  int status = 0;
  for (int i = 0; i < 8; i++) x[i] = (float)((i * 7 + seed) % 5);
  if (cudnnCreate(&handle) || cudnnCreateTensorDescriptor(&desc)) return 1;
  if (cudnnSetTensor4dDescriptor(desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 8, 1, 1)) return 2;
  if (cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &one, desc, x, &zero, desc, y)) return 3;
  for (int i = 0; i < 8; i++) total += y[i];
  for (int i = 1; i < 8; i++) if (fabsf(logf(y[i] / y[0]) - (x[i] - x[0])) > 1e-4f) status = 4;
  if (fabsf(total - 1) > 1e-5f) status = 5;
  if (cudnnDestroyTensorDescriptor(desc) || cudnnDestroy(handle)) return 6;
  return status;
}
"""


@pytest.fixture(scope="module")
def library(built_library):
    return built_library(runtime=True)


def test_threads(library, tmp_path):
    """Four threads call at once, and the first call starts Python. A refused call's message belongs to its thread."""
    text = COMPUTE + """
    #include <pthread.h>
    #include <string.h>
    void cudnnGetLastErrorString(char *, size_t);
    static void *work(void *seed) {
      char why[400];
      cudnnTensorDescriptor_t desc;
      long n = (long)seed;
      for (int i = 0; i < 10; i++) if (compute((int)n + i)) return (void *)1;
      if (cudnnCreateTensorDescriptor(&desc)) return (void *)2;
      if (cudnnSetTensor4dDescriptor(desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, (int)-n - 1, 1, 1, 1) != CUDNN_STATUS_BAD_PARAM) return (void *)3;
      cudnnGetLastErrorString(why, sizeof why);
      char expected[20];
      snprintf(expected, sizeof expected, "n %ld,", -n - 1);
      return strstr(why, expected) ? 0 : (void *)4;
    }
    int main(void) {
      pthread_t thread[4];
      void *found;
      long bad = 0;
      for (long i = 0; i < 4; i++) pthread_create(&thread[i], 0, work, (void *)i);
      for (int i = 0; i < 4; i++) { pthread_join(thread[i], &found); bad |= (long)found; }
      return (int)bad;
    }
    """  # fmt: skip
    ran = run(compiled(library, tmp_path, text, "gcc", "-pthread"))
    assert ran.returncode == 0, (ran.returncode, ran.stderr)


@pytest.mark.parametrize("before", [0, 1], ids=["before_the_first_call", "after_it"])
def test_fork(library, tmp_path, before):
    """Parent and child both go on, whichever calls first."""
    text = (
        COMPUTE
        + f"""
    #include <sys/wait.h>
    #include <unistd.h>
    int main(void) {{
      int status;
      if ({before} && compute(1)) return 1;
      pid_t child = fork();
      if (child == 0) _exit(compute(2));
      if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status)) return 2;
      return compute(3);
    }}
    """
    )
    ran = run(compiled(library, tmp_path, text))
    assert ran.returncode == 0, (ran.returncode, ran.stderr)


def test_dlclose(library, tmp_path):
    """A library that was closed and opened again is the same one, and its descriptors stay valid."""
    text = """
    #include <cudnn.h>
    #include <dlfcn.h>
    int main(int count, char **names) {
      cudnnTensorDescriptor_t desc;
      for (int i = 0; i < 3; i++) {
        void *opened = dlopen(names[count - 1], RTLD_NOW | RTLD_LOCAL);
        if (!opened) return 1;
        cudnnStatus_t (*create)(cudnnTensorDescriptor_t *) = (cudnnStatus_t (*)(cudnnTensorDescriptor_t *))dlsym(opened, "cudnnCreateTensorDescriptor");
        cudnnStatus_t (*destroy)(cudnnTensorDescriptor_t) = (cudnnStatus_t (*)(cudnnTensorDescriptor_t))dlsym(opened, "cudnnDestroyTensorDescriptor");
        if (i > 0 && destroy(desc)) return 2;
        if (create(&desc)) return 3;
        dlclose(opened);
      }
      return 0;
    }
    """
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(text)
    subprocess.run(["gcc", f"-I{library.parent / 'include'}", str(source), "-o", str(program), "-ldl"], check=True)
    ran = subprocess.run([str(program), str(library)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, (ran.returncode, ran.stderr)


def test_packages_of_the_python_below_an_environment_are_not_imported(library, tmp_path):
    """An environment may have another NumPy. Files of the other installation would also run at each start."""
    text = """
    #include <cudnn.h>
    #include <dlfcn.h>
    int main(void) {
      size_t version = cudnnGetVersion();
      int (*python)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
      int (*begin)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
      begin();
      return version == 0 || python("import sys; print(chr(10).join(sys.path), flush=True)");
    }
    """
    ran = run(compiled(library, tmp_path, "#define _GNU_SOURCE" + text))
    assert ran.returncode == 0, (ran.returncode, ran.stderr)
    packages = [path for path in ran.stdout.splitlines() if path.endswith("-packages")]
    assert packages == [path for path in sys.path if path.endswith("-packages")]


def test_calls_at_exit(library, tmp_path):
    """The interpreter of a C program lives on, so that calls from atexit still compute."""
    text = COMPUTE + """
    static void last(void) { int status = compute(1); printf("at exit %d\\n", status); fflush(stdout); }
    int main(void) { atexit(last); return compute(2); }
    """  # fmt: skip
    ran = run(compiled(library, tmp_path, text))
    assert ran.returncode == 0 and ran.stdout == "at exit 0\n", (ran.returncode, ran.stdout, ran.stderr)


def test_calls_after_the_interpreter_has_ended(library, tmp_path):
    """In C++ destructors after Python's end, destructions succeed, other calls are NOT_INITIALIZED, and nothing crashes."""
    text = """
    #include <cudnn.h>
    #include <stdio.h>
    #include <stdlib.h>
    static cudnnHandle_t handle;
    static void last(void) { printf("%d %d\\n", cudnnDestroy(handle), cudnnSetStream(handle, 0)); fflush(stdout); }
    int begin(void) { atexit(last); return cudnnCreate(&handle); }
    """
    source, client = tmp_path / "client.c", tmp_path / "client.so"
    source.write_text(text)
    command = ["gcc", "-shared", "-fPIC", f"-I{library.parent / 'include'}", str(source), "-o", str(client)]
    command += [f"-L{library.parent}", "-l:libcudnn.so.8", f"-Wl,-rpath,{library.parent}"]
    subprocess.run(command, check=True)
    script = f"import ctypes; raise SystemExit(ctypes.CDLL({str(client)!r}).begin())"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and ran.stdout == "0 1\n", (ran.returncode, ran.stdout, ran.stderr)


def test_calls_from_python_s_atexit(library):
    """An atexit function that was registered before loading the library runs after its hooks, and is answered."""
    script = f"""
import atexit, ctypes
def end():
    print(library.cudnnDestroy(handle), library.cudnnDestroy(handle) != 0)
atexit.register(end)
library, handle = ctypes.CDLL({str(library)!r}), ctypes.c_void_p()
assert library.cudnnCreate(ctypes.byref(handle)) == 0
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and ran.stdout == "0 True\n", (ran.returncode, ran.stdout, ran.stderr)


def test_destructions_while_python_ends(library):
    """Some objects die after atexit, as in CuPy's modules. Every destroy function still succeeds, CUDA's too."""
    names = [name for name, function in functions().items() if destroys(function)]
    script = f"""
import ctypes, os
cudnn, cuda = ctypes.CDLL({str(library)!r}), ctypes.CDLL({str(library.parent / "libcudart.so.12")!r})
class Object:
    def __init__(self, library, create, destroy, *arguments):
        self.pointer, self.destroy, self.name, self.write = ctypes.c_void_p(), getattr(library, destroy), destroy, os.write
        assert not create or getattr(library, create)(ctypes.byref(self.pointer), *arguments) == 0, create
    def __del__(self):
        status = self.destroy(self.pointer)
        self.write(1, f"{{self.name}} {{status}}\\n".encode())
kept = [Object(cudnn, "cudnnCreate", "cudnnDestroy"), Object(cudnn, "cudnnCreateTensorDescriptor", "cudnnDestroyTensorDescriptor")]
kept += [Object(cudnn, None, name) for name in {names!r}]
kept += [Object(cuda, "cudaMalloc", "cudaFree", ctypes.c_size_t(64)), Object(cuda, "cudaStreamCreate", "cudaStreamDestroy")]
kept += [Object(cuda, "cudaEventCreate", "cudaEventDestroy"), Object(cuda, "cudaMallocHost", "cudaFreeHost", ctypes.c_size_t(8))]
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    printed = dict(line.split() for line in ran.stdout.splitlines())
    assert ran.returncode == 0 and len(printed) == len(names) + 4, (ran.stdout, ran.stderr)
    assert set(printed.values()) == {"0"}, ran.stdout


def test_the_first_call_while_python_ends(library):
    """A client that first calls the library in a destructor is answered as after Python's end."""
    script = f"""
import ctypes, os, sys
cudnn = ctypes.CDLL({str(library)!r})
class Late:
    calls, pointer, write = (cudnn.cudnnDestroy, cudnn.cudnnCreate), ctypes.byref(ctypes.c_void_p()), os.write
    def __del__(self):
        for call in self.calls:
            self.write(1, f"{{call(self.pointer)}} ".encode())
sys.late = Late()
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and ran.stdout == "0 1 ", (ran.returncode, ran.stdout, ran.stderr)


def test_null_for_every_output(library, tmp_path):
    """Every function with an output in host memory answers BAD_PARAM, unless the document lets the output be NULL."""
    calls = []
    for function in functions().values():
        if function.name in RESULTS or not hasattr(cudnn, function.name):
            continue
        for parameter in function.parameters:
            if parameter.is_returned and not parameter.nullable:
                # All arguments are zero, so that a check before the output's refuses with the same status.
                given = ", ".join("0" for _ in function.parameters)
                calls.append(
                    f'  if ({function.name}({given}) != CUDNN_STATUS_BAD_PARAM) puts("{function.name} {parameter.name}");'
                )
                break
    assert len(calls) > 50
    text = "#include <cudnn.h>\n#include <stdio.h>\nint main(void) {\n" + "\n".join(calls) + "\n  return 0;\n}\n"
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(text)
    command = ["gcc", "-w", f"-I{library.parent / 'include'}", str(source), "-o", str(program)]
    subprocess.run([*command, f"-L{library.parent}", "-l:libcudnn.so.8", f"-Wl,-rpath,{library.parent}"], check=True)
    ran = run(program)
    assert ran.returncode == 0 and ran.stdout == "", (ran.returncode, ran.stdout, ran.stderr)


@pytest.mark.long
def test_a_tenth_of_the_suite(library, tmp_path):
    """A tenth of the suite passes here, and `make abi-conformance` runs all of it."""
    command = [sys.executable, "-m", "dualdnn.conformance", "conformance", "--subject", f"library:{library}"]
    command += ["--every", "10", "--jobs", "1", "--out", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert "passed" in ran.stdout
