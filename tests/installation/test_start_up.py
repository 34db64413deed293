"""Test the start-up cost of a program by counting imported modules, so that a busy machine changes nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import cache_from_source, find_spec

import pytest
from dualdnn.api import cudnn
from dualdnn.api.cudnn.homes import HOMES

START = "{}\nimport json, sys\njson.dump(sorted(sys.modules), sys.stdout)"
MAX_MODULES = 55  # modules of this project, after setting descriptors and one activation
NEEDLESS = ("scipy", "threadpoolctl", "dualdnn.accelerated", "dualdnn.conformance", "dualdnn.api.miopen")
ACTIVATION = """
import ctypes
library = ctypes.CDLL({path!r})
handle, desc, relu = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
x, one, zero = (ctypes.c_float * 4)(-1, 2, -3, 4), ctypes.c_float(1), ctypes.c_float(0)
assert not library.cudnnCreate(ctypes.byref(handle))
assert not library.cudnnCreateTensorDescriptor(ctypes.byref(desc))
assert not library.cudnnSetTensor4dDescriptor(desc, 0, 0, 1, 4, 1, 1)
assert not library.cudnnCreateActivationDescriptor(ctypes.byref(relu))
assert not library.cudnnSetActivationDescriptor(relu, 1, 1, ctypes.c_double(0))
assert not library.cudnnActivationForward(handle, relu, ctypes.byref(one), desc, x, ctypes.byref(zero), desc, x)
assert list(x) == [0, 2, 0, 4]
"""


def imported(statement):
    done = subprocess.run([sys.executable, "-c", START.format(statement)], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def families(modules, package):
    return {name.split(".")[2] for name in modules if name.startswith(f"dualdnn.{package}.")}


def test_a_call_imports_its_own_module_and_family():
    found = imported("from dualdnn.api import cudnn; cudnn.cudnnCreateTensorDescriptor()")
    calls = {name.removeprefix("dualdnn.api.cudnn.") for name in found if name.startswith("dualdnn.api.cudnn.")}
    assert calls == {"homes", "tensor_descriptors"}
    assert not any(name.startswith("dualdnn.reference") for name in found)
    assert not any(name.startswith(NEEDLESS) for name in found)


def test_the_reference_imports_the_families_that_compute():
    found = imported("from dualdnn.reference import ReferenceBackend")
    assert not {"pooling", "convolution", "rnn", "graph", "formulas"} & families(found, "reference")


def test_commands_and_probes_of_libraries_import_no_kernels():
    found = imported("from dualdnn.conformance import command_line; from dualdnn.conformance.subjects import probe")
    assert not any(name.startswith(("dualdnn.accelerated", "dualdnn.api.miopen")) for name in found)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_the_c_library_imports_few_modules_all_compiled(built_library):
    found = imported(ACTIVATION.format(path=str(built_library())))
    ours = {name for name in found if name.startswith("dualdnn.")}
    assert "dualdnn.reference.activation" in ours
    assert len(ours) <= MAX_MODULES, sorted(ours)
    assert not any(name.startswith(NEEDLESS) for name in found)
    assert not {"convolution", "rnn", "graph"} & families(ours, "reference")
    for name in ours:
        spec = find_spec(name)
        with open(cache_from_source(spec.origin), "rb") as compiled_file:
            assert int.from_bytes(compiled_file.read(12)[8:], "little") == int(
                spec.loader.path_stats(spec.origin)["mtime"]
            ), name


def test_every_function_is_in_the_module_that_the_table_names():
    where = {name: function.__module__.removeprefix("dualdnn.api.cudnn.") for name, function in cudnn.FUNCTIONS.items()}
    assert where == {name: module for module, names in HOMES.items() for name in names}


def test_every_name_of_the_package_can_be_had():
    from dualdnn.api import operations

    for package in (cudnn, operations):
        assert all(hasattr(package, name) for name in package.__all__)
    with pytest.raises(AttributeError, match="cudnnNothing is not a function or enumerator"):
        _ = cudnn.cudnnNothing
    assert "cudnnCreate" in dir(cudnn)


def test_every_module_can_be_the_first():
    """Each module can be imported first, without relying on the imports of another module."""
    script = """
import os, sys
from importlib import import_module
from dualdnn.api import operations
from dualdnn.api.cudnn.homes import HOMES
names = [f"dualdnn.api.cudnn.{name}" for name in HOMES]
names += [f"dualdnn.api.operations.{name}" for name in operations.HOMES]
names += [f"dualdnn.reference.{name}" for name in operations.FAMILIES]
bad = []
for name in names:
    child = os.fork()
    if not child:
        import_module(name)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        bad.append(name)
sys.exit(" ".join(bad) or 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
