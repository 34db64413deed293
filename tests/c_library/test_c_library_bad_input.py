"""Test that the C library survives what C can pass by mistake: wrong pointers, numbers out of range, callbacks that
throw or call back in.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from dualdnn.api import cudnn
from dualdnn.api.abi.build import NAME
from dualdnn.api.abi.c_types import RESULTS
from dualdnn.api.descriptors import DESCRIPTORS
from dualdnn.api.document import functions
from dualdnn.api.enumerations import ENUMERATIONS
from test_c_library import ENVIRONMENT, compiled, run

pytest.importorskip("cffi")
if shutil.which("gcc") is None:
    pytest.skip("no C compiler", allow_module_level=True)

OPAQUE = {*DESCRIPTORS, "cudnnHandle_t"}
# kind of pointer -> C expression, which stands for every descriptor and handle of a call
STRAY = {
    "NULL": "NULL",
    "a descriptor of another kind": "other",
    "one that was destroyed": "dead",
    "memory of the program": "memory",
    "numbers": "(void *)(i % 2 ? (uintptr_t)1 : UINTPTR_MAX)",
}
# Each number and enumerator of a call takes these values, with descriptors that were never set.
NUMBERS = {"minus one": "-1", "zero": "0", "the largest": "2147483647"}


@pytest.fixture(scope="module")
def library(built_library):
    return built_library()


def argument(parameter, opaque, number):
    """Return an argument as C: ``opaque`` for objects, valid memory for other pointers, else ``number``."""
    base, ctype = parameter.base_type, parameter.ctype.replace("[]", "*").replace("const", "").strip()
    if base in OPAQUE and not ctype.endswith("*"):
        return f"({base})({opaque})"
    if ctype.endswith("*"):
        return "(void *)memory"
    if base == "cudnnAlgorithm_t":
        return "algorithm"
    if base in ("cudaStream_t", "cudnnCallback_t"):
        return "NULL"
    return f"({base})({number})" if base in ENUMERATIONS or base == "size_t" else str(number)


def program(opaque, number, made=""):
    """Return a program that calls every function with a descriptor or a handle, and prints the statuses."""
    calls = []
    for function in functions().values():
        bases = [
            p.base_type for p in function.parameters if p.base_type in OPAQUE and not p.ctype.endswith(("*", "[]"))
        ]
        if function.name in RESULTS or not hasattr(cudnn, function.name) or not bases:
            continue
        given = ", ".join(argument(p, opaque.get(p.base_type, "NULL"), number) for p in function.parameters)
        calls.append(f'  memset(memory, 0, sizeof memory); report("{function.name}", {function.name}({given}));')
    assert len(calls) > 190
    return f"""
#include <cudnn.h>
#include <stdio.h>
#include <string.h>
static char memory[1 << 16];
static int i;
static void report(const char *name, int status) {{ printf("%s %d\\n", name, status); fflush(stdout); i++; }}
int main(void) {{
  cudnnTensorDescriptor_t dead;
  cudnnPoolingDescriptor_t other;
  cudnnAlgorithm_t algorithm;
  memset(&algorithm, 0, sizeof algorithm);
  if (cudnnCreatePoolingDescriptor(&other) || cudnnCreateTensorDescriptor(&dead) || cudnnDestroyTensorDescriptor(dead)) return 1;
{made}
{chr(10).join(calls)}
  return 0;
}}
"""


def answers(library, folder, text):
    ran = run(compiled(library, folder, text, "gcc", "-w"))
    assert ran.returncode == 0, (ran.returncode, ran.stdout.splitlines()[-1:], ran.stderr[-2000:])
    return {name: int(status) for name, status in map(str.split, ran.stdout.splitlines())}


@pytest.mark.parametrize("stray", STRAY)
def test_foreign_pointers_are_refused(library, tmp_path, stray):
    """Every function refuses a wrong descriptor or handle with a documented status, and does not follow the pointer."""
    found = answers(library, tmp_path, program(dict.fromkeys(OPAQUE, STRAY[stray]), "1"))
    internal = sorted(name for name, status in found.items() if status == 4)
    assert not internal
    accepted = {name for name, status in found.items() if status == 0}
    if stray == "NULL":  # Some arguments may be NULL.
        return
    own = {name for name in accepted if "Pooling" in name} if STRAY[stray] == "other" else set()
    assert accepted <= own, sorted(accepted - own)


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_out_of_range(library, tmp_path, number):
    """Fresh descriptors of the right kinds cause a documented status and no crash."""
    creators = {name: f"cudnnCreate{name.removeprefix('cudnn').removesuffix('_t')}" for name in sorted(OPAQUE)}
    creators["cudnnHandle_t"] = "cudnnCreate"
    plain = {n: c for n, c in creators.items() if c in functions() and len(functions()[c].parameters) == 1}
    names = {name: f"fresh{index}" for index, name in enumerate(plain)}
    made = "\n".join(f"  {name} {names[name]}; if ({plain[name]}(&{names[name]})) return 2;" for name in plain)
    text = program(names, NUMBERS[number], made)
    # Calls that destroy the descriptors come last.
    lines = text.splitlines()
    destroying = [line for line in lines if "(" in line and 'report("cudnnDestroy' in line]
    rest = [line for line in lines if line not in destroying]
    text = "\n".join([*rest[:-2], *destroying, *rest[-2:]])
    found = answers(library, tmp_path, text)
    assert not sorted(name for name, status in found.items() if status == 4)
    assert found["cudnnDestroy"] == 0 and found["cudnnSetTensor4dDescriptor"] == 3


CALLBACKS = """
#include <cudnn.h>
#include <cstdio>
#include <stdexcept>
static int called;
static void throws(cudnnSeverity_t, void *, const cudnnDebug_t *, const char *) { called++; throw std::runtime_error("no"); }
static void calls_back(cudnnSeverity_t, void *data, const cudnnDebug_t *, const char *) {
  cudnnTensorDescriptor_t desc;
  if (called++ > 50) return;
  if (cudnnCreateTensorDescriptor(&desc) || cudnnDestroyTensorDescriptor(desc)) std::puts("refused");
  if (cudnnSetCallback(0, NULL, NULL)) std::puts("not taken away");
  *(int *)data = 7;
}
int main() {
  cudnnTensorDescriptor_t desc;
  int data = 0;
  if (cudnnSetCallback(CUDNN_SEV_INFO_EN, NULL, throws)) return 1;
  for (int i = 0; i < 3; i++) if (cudnnCreateTensorDescriptor(&desc)) return 2;
  if (called < 3) return 3;
  called = 0;
  if (cudnnSetCallback(CUDNN_SEV_INFO_EN, &data, calls_back)) return 4;
  if (cudnnSetTensor4dDescriptor(desc, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 1, 1)) return 5;
  if (!called || data != 7) return 6;
  return cudnnDestroyTensorDescriptor(desc);
}
"""


def test_callbacks_that_throw_or_call_back_in(library, tmp_path):
    """A C++ exception ends at the callback with one line, and calls from inside a callback are answered."""
    ran = run(compiled(library, tmp_path, CALLBACKS, "g++", "-w", "-x", "c++"))
    assert ran.returncode == 0 and ran.stdout == "", (ran.returncode, ran.stdout, ran.stderr)
    assert ran.stderr.count("log callback") >= 1, ran.stderr


def test_enumerators_in_the_log(library, tmp_path):
    """The log shows an enumerator by its name, and any other int as it is."""
    text = """#include <cudnn.h>
int main(void) {
  cudnnTensorDescriptor_t desc;
  if (cudnnCreateTensorDescriptor(&desc)) return 1;
  if (cudnnSetTensor4dDescriptor(desc, (cudnnTensorFormat_t)0, (cudnnDataType_t)2, 1, 1, 1, 1)) return 2;
  return cudnnSetTensor4dDescriptor(desc, (cudnnTensorFormat_t)77, (cudnnDataType_t)2, 1, 1, 1, 1) != CUDNN_STATUS_BAD_PARAM;
}"""
    log = tmp_path / "log"
    ran = run(compiled(library, tmp_path, text), CUDNN_LOGINFO_DBG="1", CUDNN_LOGDEST_DBG=str(log))
    assert ran.returncode == 0, ran.stderr
    said = log.read_text()
    assert "CUDNN_TENSOR_NCHW (0)" in said and "CUDNN_DATA_HALF (2)" in said and "77" in said, said


def test_the_message_fits_where_it_is_put(library, tmp_path):
    """A message fits buffers of 0, 1 and more bytes. Nothing is written after them."""
    text = """#include <cudnn.h>
#include <string.h>
void cudnnGetLastErrorString(char *, size_t);
int main(void) {
  char text[8];
  for (int size = 0; size < 7; size++) {
    memset(text, 'x', sizeof text);
    if (cudnnCreateTensorDescriptor(NULL) != CUDNN_STATUS_BAD_PARAM) return 1;
    cudnnGetLastErrorString(text, size);
    if (size && strlen(text) != size - 1) return 2;
    for (int i = size; i < 8; i++) if (text[i] != 'x') return 3;
  }
  cudnnGetLastErrorString(NULL, 100);
  return 0;
}"""
    ran = run(compiled(library, tmp_path, text, "gcc", "-Wno-sign-compare"))
    assert ran.returncode == 0, (ran.returncode, ran.stderr)


@pytest.mark.parametrize(
    "compiler, said", [("/nowhere/gcc", "compil"), ("gcc -DPy_PYTHON_H -I/nowhere", "python3-dev")]
)
def test_a_missing_compiler_or_header_is_one_line(tmp_path, compiler, said):
    command = [sys.executable, "-m", "dualdnn.conformance", "abi", "--out", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, env={**ENVIRONMENT, "CC": compiler}, timeout=120)
    assert ran.returncode == 2 and not (tmp_path / NAME).exists(), (ran.returncode, ran.stderr)
    assert said in ran.stderr.splitlines()[-1] and "Traceback" not in ran.stderr, ran.stderr
