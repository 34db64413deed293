"""Tests NVRTC instead of nvcc: the choice of a compiler, the preprocessor in Python, and the binaries."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from dualdnn.accelerated.runtime import compiler, nvrtc, programs, sources
from dualdnn.accelerated.runtime.errors import CompileError, DeviceUnavailable
from dualdnn.accelerated.runtime.nvcc import Nvcc
from dualdnn.accelerated.runtime.nvrtc import Nvrtc, find_nvrtc
from dualdnn.accelerated.runtime.sources import KERNELS, find_kernels, flatten, module, require_preprocessor


@pytest.fixture
def without_programs(tmp_path, monkeypatch):
    """Hide nvcc and the C++ compiler, and use an empty cache."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DUALDNN_CACHE", str(tmp_path / "cache"))
    for name in ("CUDA_HOME", "CXX", "DUALDNN_COMPILER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(programs, "TOOLKIT", tmp_path)
    monkeypatch.setattr(programs, "WHEEL_TOOLKIT", "nowhere")
    compiler.toolchain.cache_clear()
    yield
    compiler.toolchain.cache_clear()


def installed():
    try:
        return find_nvrtc()
    except DeviceUnavailable as missing:
        pytest.skip(str(missing))


def test_a_module_is_compiled_without_any_program(without_programs, tmp_path):
    """The binary has the variables that the loader reads; an error in the source is a CompileError."""
    installed()
    assert isinstance(compiler.toolchain("sm_90"), Nvrtc)
    wanted = module("convolution/int8x32_reorder.cu")
    path, content = compiler.build(wanted, "sm_90")
    names = [kernel.name for kernel in find_kernels(wanted, flatten(wanted.source), [])]
    assert content.startswith(b"\x7fELF") and names
    assert all(f"{what}_{name}".encode() in content for name in names for what in ("about", "fields", "names"))
    assert compiler.build(wanted, "sm_90") == (path, content)
    wrong = tmp_path / "wrong.cu"
    wrong.write_text('struct A { float* y; };\nextern "C" __global__ void k(const A a) { *a.y = no_such_name; }\n')
    with pytest.raises(CompileError, match="no_such_name"):
        compiler.build(sources.Module(wrong), "sm_90")


def test_nvcc_serves_where_it_is_and_the_environment_may_name_either(without_programs, monkeypatch):
    def missing():
        raise DeviceUnavailable("missing")

    monkeypatch.setattr(nvrtc, "find_nvrtc", missing)
    assert type(compiler.toolchain("sm_90")) is Nvcc  # Nvcc's error names the missing program.
    monkeypatch.setattr(nvrtc, "find_nvrtc", lambda: None)
    compiler.toolchain.cache_clear()
    assert type(compiler.toolchain("sm_90")) is Nvrtc
    monkeypatch.setattr(Nvcc, "require", lambda self: None)
    for named, kind in (("", Nvcc), ("nvrtc", Nvrtc), ("nvcc", Nvcc)):
        monkeypatch.setenv("DUALDNN_COMPILER", named)
        compiler.toolchain.cache_clear()
        assert type(compiler.toolchain("sm_90")) is kind
    monkeypatch.setenv("DUALDNN_COMPILER", "clang")
    compiler.toolchain.cache_clear()
    with pytest.raises(ValueError, match="DUALDNN_COMPILER='clang': expected nvcc or nvrtc"):
        compiler.toolchain("sm_90")


def test_nvrtc_that_is_missing_is_named(without_programs, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    with pytest.raises(DeviceUnavailable, match=r"pip install 'dualdnn\[jit\]'"):
        find_nvrtc()


def test_the_preprocessor_in_python_finds_the_kernels_that_the_compiler_finds(monkeypatch):
    """One variant of every eleventh source is compared, for a GPU and for the emulated device."""
    pytest.importorskip("pcpp")
    paths = sorted(KERNELS.rglob("*.cu"))[::11]
    wanted = [sources.Module(path, (("ELEMENT", "half"), ("COMPUTE", "float"), ("TF32", "0"))) for path in paths]
    options = [[], ["-DEMULATED_CUDA=1"]]

    def found():
        kernels = []
        for each in wanted:
            for given in options:
                try:
                    kernels.append(find_kernels(each, flatten(each.source), given))
                except CompileError as error:  # No solver asks for this variant.
                    kernels.append(re.sub(r".*no kernel", "no kernel", str(error)) if "no kernel" in str(error) else [])
        return kernels

    by_compiler = found()
    monkeypatch.setattr(sources, "require_preprocessor", lambda: sources._preprocessed_by_python)
    by_python = found()
    assert by_python == by_compiler
    assert Counter(bool(each) for each in by_compiler)[True] > len(paths)


def test_errors_of_the_preprocessor_in_python_are_errors(without_programs, tmp_path):
    pytest.importorskip("pcpp")
    assert require_preprocessor() is sources._preprocessed_by_python
    with pytest.raises(CompileError, match="not this one"):
        find_kernels(sources.Module(tmp_path / "x.cu"), "#error not this one\n", [])


@pytest.mark.parametrize("python", ["a process of its own", "this process"])
def test_a_unit_is_compiled_in_a_separate_process_if_python_exists(tmp_path, monkeypatch, python):
    """Without a Python interpreter, as in C programs, this process compiles, with the same binary or error."""
    installed()
    if python == "this process":
        monkeypatch.setattr(nvrtc, "_interpreter", lambda: None)
    run, ran = nvrtc.subprocess.run, []
    monkeypatch.setattr(nvrtc.subprocess, "run", lambda command, **how: ran.append(command) or run(command, **how))
    unit, output = tmp_path / "unit.cu", tmp_path / "unit.cubin"
    for text, failed in (("__global__ void k(int* y) { *y = 1; }", 0), ("__global__ void k() { nothing; }", 1)):
        unit.write_text(text)
        done = Nvrtc("sm_90").run(unit, output)
        assert (done.returncode, "nothing" in done.stderr) == (failed, bool(failed))
        assert output.read_bytes().startswith(b"\x7fELF")
    assert len(ran) == (2 if python == "a process of its own" else 0)
