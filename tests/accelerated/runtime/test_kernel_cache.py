"""Tests the kernel cache: a module is compiled once, by the first process; stale or damaged files are not used."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dualdnn.accelerated.runtime import cache, compiler, information, nvcc, programs, sources
from dualdnn.accelerated.runtime.emulated import toolchain as emulated_toolchain
from dualdnn.accelerated.runtime.emulated.device import EmulatedDevice
from dualdnn.accelerated.runtime.errors import CompileError, DeviceUnavailable

SOURCE = """
#include "scale.cuh"
struct Arguments { float* values; };
extern "C" __global__ void scale(const Arguments arguments) { arguments.values[threadIdx.x] *= SCALE + OFFSET; }
"""
HEADER = '#pragma once\n#include "deeper.cuh"\n#define SCALE deeper()\n'
DEEPER = """
#include <cuda_fp16.h>
#ifndef OFFSET
#define OFFSET 0
#endif
__device__ inline float deeper() { return 2.0f; }
"""


@pytest.fixture
def folder(tmp_path: Path, empty_cache: Path) -> Path:
    for name, text in (("scale.cu", SOURCE), ("scale.cuh", HEADER), ("deeper.cuh", DEEPER)):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[sources.Module]:
    """Return the list of modules that this process compiles."""
    compiled: list[sources.Module] = []
    original = compiler._compile

    def record(tools: Any, module: sources.Module, flat_source: str, path: Path) -> bytes:
        compiled.append(module)
        return original(tools, module, flat_source, path)

    monkeypatch.setattr(compiler, "_compile", record)
    return compiled


def scale(source: Path, definitions: sources.Definitions = ()) -> float:
    """Return the kernel's result for 1 on a new device."""
    device = EmulatedDevice()
    memory = device.allocate(4)
    device.upload(memory.address, np.ones(1, np.float32))
    device.function(source, "scale", definitions).launch(struct.pack("Q", memory.address), (1,), (1,))
    return float(np.frombuffer(device.download(memory.address, 4), np.float32)[0])


def cached_files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "cache").iterdir() if path.name not in ("headers", "compilers"))


def test_compiled_once(folder: Path, compilations: list[sources.Module]) -> None:
    source = folder / "scale.cu"
    assert scale(source) == scale(source) == 2
    assert len(compilations) == 1
    assert scale(source, (("OFFSET", "3"),)) == 5
    assert len(compilations) == 2
    assert [path.suffix for path in cached_files(folder)] == [".so", ".so"]  # No lock or temporary file remains.


def test_checkouts_share_what_is_compiled(folder: Path, compilations: list[sources.Module]) -> None:
    """The key of a module does not depend on the folder of its sources."""
    for checkout in ("one", "other"):
        room = folder / checkout / "room"
        room.mkdir(parents=True)
        for name in ("scale.cu", "scale.cuh", "deeper.cuh"):
            shutil.copy(folder / name, room)
        assert scale(room / "scale.cu") == 2
    assert len(compilations) == 1


@pytest.mark.parametrize("name, old, new", [("scale.cu", "*= SCALE", "*= 10 * SCALE"), ("deeper.cuh", "2.0f", "20.0f")])
def test_changed_source_or_header_recompiles(
    folder: Path, compilations: list[sources.Module], name: str, old: str, new: str
) -> None:
    assert scale(folder / "scale.cu") == 2
    changed = folder / name
    changed.write_text(changed.read_text().replace(old, new))
    assert scale(folder / "scale.cu") == 20
    assert len(compilations) == 2


def test_changed_options_recompile(
    folder: Path, compilations: list[sources.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    scale(folder / "scale.cu")
    tools = emulated_toolchain.EmulatedToolchain()
    tools.options.append("-O2")
    monkeypatch.setattr(compiler, "toolchain", lambda architecture: tools)
    scale(folder / "scale.cu")
    assert len(compilations) == 2


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_damaged_file_is_compiled_again(folder: Path, compilations: list[sources.Module], damage: str) -> None:
    scale(folder / "scale.cu")
    path = cached_files(folder)[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    damaged = {"truncated": content[: len(content) // 2], "flipped": content, "empty": bytearray()}
    path.unlink()  # This process has mapped the file, so it must not be overwritten.
    path.write_bytes(damaged[damage])
    assert compiler.build(sources.Module(folder / "scale.cu"), "emulated")[0] == path
    assert len(compilations) == 2
    assert cache.verified(path) is not None


def test_file_that_does_not_load_is_compiled_again(folder: Path, compilations: list[sources.Module]) -> None:
    import hashlib

    path, _ = compiler.build(sources.Module(folder / "scale.cu"), "emulated")
    foreign = b"made elsewhere, by a linker this machine does not understand"
    path.write_bytes(foreign + hashlib.sha256(foreign).digest())
    assert scale(folder / "scale.cu") == 2
    assert len(compilations) == 2


def test_several_processes_compile_once(folder: Path) -> None:
    log = folder / "compilations"
    fake = folder / "counting-g++"
    fake.write_text(f'#!/bin/sh\ncase "$*" in *-shared*) echo $$ >> {log}; sleep 0.3;; esac\nexec g++ "$@"\n')
    fake.chmod(0o755)
    program = (
        "import sys; from pathlib import Path; from dualdnn.accelerated.runtime import compiler, sources;"
        "print(compiler.build(sources.Module(Path(sys.argv[1])), 'emulated')[0])"
    )
    environment = {**os.environ, "CXX": str(fake)}
    command = [sys.executable, "-c", program, str(folder / "scale.cu")]
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    paths = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert paths == {str(path) for path in cached_files(folder)}
    assert len(log.read_text().splitlines()) == 1


def test_leftovers_of_a_killed_process_do_no_harm(folder: Path, compilations: list[sources.Module]) -> None:
    path, _ = compiler.build(sources.Module(folder / "scale.cu"), "emulated")
    path.unlink()
    path.with_suffix(".lock").touch()
    leftover = path.with_name(f"{path.stem}.4711-abcd.tmp.so")
    leftover.write_bytes(b"half a library")
    assert scale(folder / "scale.cu") == 2
    assert cached_files(folder) == [path]


def test_compile_error_has_the_message_the_file_and_the_definitions(folder: Path) -> None:
    source = folder / "scale.cu"
    source.write_text(SOURCE.replace("*= SCALE", "*= missing + SCALE"))
    with pytest.raises(CompileError, match=r"(?s)^scale.cu -DOFFSET=4: .*scale.cu:4.*missing") as caught:
        scale(source, (("OFFSET", "4"),))
    assert caught.value.source == source and caught.value.definitions == (("OFFSET", "4"),)
    source.write_text('#include "scale.cuh"\n')
    with pytest.raises(CompileError, match="no kernel"):
        scale(source)
    assert cached_files(folder) == []


@pytest.mark.parametrize("numbers, refused", [(6144, False), (6145, True)])
def test_more_static_shared_memory_than_a_gpu_compiler_allows_is_refused(
    folder: Path, numbers: int, refused: bool
) -> None:
    """All variables of a kernel count together; the limit is 48 KiB on every architecture."""
    source = folder / "shared.cu"
    source.write_text(
        f"""struct Arguments {{ float* values; }};
extern "C" __global__ void scale(const Arguments arguments) {{
  __shared__ float first[6144], second[{numbers}];
  first[0] = second[{numbers} - 1] = 3, *arguments.values = first[0];
}}"""
    )
    if not refused:
        assert scale(source) == 3
        return
    with pytest.raises(CompileError, match="scale: 49156 bytes of static shared memory, at most 49152"):
        scale(source)
    assert cached_files(folder) == []


def test_a_compiler_that_a_signal_stops_is_asked_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may stop the compiler if memory is short; the source is then compiled when it is needed again."""
    compiler_, met = folder / "compiler", folder / "met"
    stops = f'case "$*" in *-E*) test -e {met} || {{ touch {met}; kill -KILL $$; }} ;; esac'
    compiler_.write_text(f'#!/bin/sh\n{stops}\nexec g++ "$@"\n')
    compiler_.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler_))
    device = EmulatedDevice()
    with pytest.raises(DeviceUnavailable, match="a signal stopped the compiler"):
        device.function(folder / "scale.cu", "scale")
    assert device.function(folder / "scale.cu", "scale").name == "scale"


def test_compile_all(folder: Path, compilations: list[sources.Module]) -> None:
    source = folder / "scale.cu"
    modules: list[tuple[str | Path, sources.Definitions]] = [(source, (("OFFSET", str(i)),)) for i in range(3)]
    seen: list[tuple[str, int, int]] = []
    paths = compiler.compile_all(
        modules, "emulated", jobs=2, progress=lambda *step: seen.append((str(step[0]), *step[1:]))
    )
    assert sorted(paths) == cached_files(folder)
    assert [step[1:] for step in seen] == [(1, 3), (2, 3), (3, 3)]
    assert {step[0] for step in seen} == {f"scale.cu -DOFFSET={i}" for i in range(3)}
    assert scale(source, modules[1][1]) == 3 and len(compilations) == 3
    with pytest.raises(CompileError, match="oops"):
        compiler.compile_all([(source, (("OFFSET", "oops"),)), (source, (("OFFSET", "9"),))], "emulated", jobs=1)
    assert scale(source, (("OFFSET", "9"),)) == 11 and len(compilations) == 5


def test_headers_instantiate_what_a_kernel_calls_alone(empty_cache: Path) -> None:
    """Headers must not instantiate templates that the kernel does not call: each module would compile longer."""
    source, unit, functions = (empty_cache / name for name in ("nothing.cu", "unit.cu", "functions"))
    source.write_text(
        '#include "primitives/tma.cuh"\nstruct Arguments {};\nextern "C" __global__ void nothing(const Arguments) {}\n'
    )
    tools = emulated_toolchain.EmulatedToolchain()
    tools.kernel_options.append(f"-fdump-tree-original={functions}")
    wanted = sources.module(source)
    unit.write_text(tools.wrap(wanted, sources.find_kernels(wanted, sources.flatten(source), [])))
    assert tools.run(unit, empty_cache / "nothing.so").returncode == 0
    found = [line for line in functions.read_text().splitlines() if line.startswith(";; Function") and "[with " in line]
    assert len(found) < 60, "\n".join(found)


def test_an_interrupted_compilation_begins_no_other(folder: Path, compilations: list[sources.Module]) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    modules: list[tuple[str | Path, sources.Definitions]] = [
        (folder / "scale.cu", (("OFFSET", str(i)),)) for i in range(6)
    ]
    with pytest.raises(KeyboardInterrupt):
        compiler.compile_all(modules, "emulated", jobs=1, progress=interrupted)
    assert len(compilations) <= 2


def test_missing_compiler_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(DeviceUnavailable, match=r"no C\+\+ compiler: g\+\+ is not on PATH; install"):
        EmulatedDevice()
    monkeypatch.setenv("CXX", "clang-of-tomorrow")
    with pytest.raises(DeviceUnavailable, match="clang-of-tomorrow is not on PATH"):
        EmulatedDevice()
    monkeypatch.setattr(programs, "TOOLKIT", folder)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(compiler, "GPU_COMPILERS", {"nvcc": nvcc.Nvcc})  # NVRTC is then not found.
    compiler.toolchain.cache_clear()
    with pytest.raises(DeviceUnavailable, match="nvcc is missing"):
        compiler.build(sources.Module(folder / "scale.cu"), "sm_90")


@pytest.fixture
def temporary(tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of temporary files, and forget earlier cache folders. Headers come from the shared cache."""
    made, prepared = tmp_path / "temporary", emulated_toolchain.EmulatedToolchain._prepared
    made.mkdir()
    monkeypatch.setattr(
        emulated_toolchain.EmulatedToolchain, "_prepared", lambda tools, _: prepared(tools, empty_cache)
    )
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    monkeypatch.setattr(cache, "_problems", {})
    cache._examined.cache_clear()
    cache._warn.cache_clear()
    yield made
    cache._examined.cache_clear()


def no_such_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUALDNN_CACHE", str(folder / "scale.cu" / "cache"))


def no_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUALDNN_CACHE")
    monkeypatch.setattr(cache.platformdirs, "user_cache_dir", lambda *_args, **_options: "~/.cache/dualdnn")


def pretended(**facts: int) -> Callable[[Path, pytest.MonkeyPatch], None]:
    """Return a function that makes the file system of the cache report these facts."""

    def pretend(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        original = os.statvfs

        def statvfs(path: Path) -> Any:
            real = original(path)
            values = {name: getattr(real, name) for name in ("f_flag", "f_bavail", "f_frsize")}
            return SimpleNamespace(**{**values, **(facts if Path(path) == folder / "cache" else {})})

        monkeypatch.setattr(os, "statvfs", statvfs)

    return pretend


UNUSABLE = {
    "below a file": (no_such_folder, "Not a directory"),
    "no home": (no_home, "no home"),
    "noexec": (pretended(f_flag=os.ST_NOEXEC), "noexec"),
    "full": (pretended(f_bavail=1), "full"),
}


@pytest.mark.parametrize("spoil, reason", UNUSABLE.values(), ids=list(UNUSABLE))
def test_a_cache_that_cannot_be_used(
    folder: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any, reason: str
) -> None:
    spoil(folder, monkeypatch)
    private = temporary / f"dualdnn-cache-{os.getuid()}"
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert scale(folder / "scale.cu") == 2
        assert scale(folder / "scale.cu", (("OFFSET", "7"),)) == 9
    assert [reason in str(w.message) and "DUALDNN_CACHE" in str(w.message) for w in warned] == [True]
    assert len(list(private.glob("*.so"))) == 2 and private.stat().st_mode & 0o777 == 0o700
    assert reason in information.facts()["kernel cache"] and str(private) in information.facts()["kernel cache"]


def test_a_cache_that_fills_up_meanwhile(folder: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = compiler._compile

    def full(tools: Any, module: sources.Module, flat_source: str, path: Path) -> bytes:
        if path.parent == folder / "cache":
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(tools, module, flat_source, path)

    monkeypatch.setattr(compiler, "_compile", full)
    with pytest.warns(RuntimeWarning, match=r"No space left on device.*DUALDNN_CACHE"):
        assert scale(folder / "scale.cu") == 2


@pytest.mark.filterwarnings("ignore:the kernel cache")
def test_every_folder_is_full(folder: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(compiler, "_compile", full)
    with pytest.raises(DeviceUnavailable, match=r"no folder takes compiled kernels.*No space left on device"):
        scale(folder / "scale.cu")


def test_a_stranger_s_folder_is_not_trusted(folder: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_such_folder(folder, monkeypatch)
    (temporary / f"dualdnn-cache-{os.getuid()}").mkdir(mode=0o777)
    os.chmod(temporary / f"dualdnn-cache-{os.getuid()}", 0o777)
    assert temporary not in cache.private_folder().parents


def test_a_filled_cache_serves_without_a_compiler(
    folder: Path, compilations: list[sources.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scale(folder / "scale.cu") == 2
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    compiler.toolchain.cache_clear()
    try:
        assert scale(folder / "scale.cu") == 2 and len(compilations) == 1
        with pytest.raises(DeviceUnavailable, match=r"no C\+\+ compiler"):
            scale(folder / "scale.cu", (("OFFSET", "1"),))
    finally:
        compiler.toolchain.cache_clear()


def test_missing_headers_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "TOOLKIT", folder)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(sys, "path", [str(folder)])
    with pytest.raises(DeviceUnavailable, match=r"no CUDA headers.*pip install nvidia-cuda-runtime"):
        emulated_toolchain.cuda_headers()


def test_headers_of_python_packages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "TOOLKIT", folder)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(sys, "path", [str(folder)])
    include = folder / "nvidia" / "cu13" / "include"
    for name in ("cuda_fp16.h", "cuda_bf16.h", "vector_functions.h", "crt/host_defines.h", "cccl/nv/target"):
        (include / name).parent.mkdir(parents=True, exist_ok=True)
        (include / name).touch()
    assert emulated_toolchain.cuda_headers() == [include, include / "cccl"]


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(ValueError, match="architecture='gfx90'"):
        compiler.toolchain("gfx90")


TEST_KERNELS = sorted((Path(__file__).parent / "kernels").glob("*.cu"), key=lambda path: path.stat().st_size)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("count", [1, pytest.param(len(TEST_KERNELS), marks=pytest.mark.long)])
def test_nvcc_compiles_test_kernels(folder: Path, count: int) -> None:
    modules: list[tuple[str | Path, sources.Definitions]] = [(path, ()) for path in TEST_KERNELS[:count]]
    for path in compiler.compile_all(modules, "sm_90", jobs=2):
        content = cache.verified(path)
        assert content and content.startswith(b"\x7fELF") and b"about_" in content


def test_kernels_that_wait_may_be_dependent_launches() -> None:
    """A kernel may be launched before earlier ones have finished only if it begins with a wait."""
    parts = 'extern "C" __global__ void', "(const Arguments a) {", "griddepcontrol_wait();"
    names = {
        "begins": "{0} begins{1}\n  {2}\n  work(a); }}",
        "late": "{0} late{1} work(a); {2} }}",
        "never": "{0} __launch_bounds__(f(2)) never{1} }}",
        "deferred": "{0} deferred{1} griddepcontrol_wait_deferred(); work(a); }}",
        "line": "{0} __launch_bounds__(128, 2) line{1} {2} work(a); }}",
    }
    source = "\n".join(text.format(*parts) for text in names.values())
    found = sources.find_kernels(sources.Module(Path("x.cu")), source, [])
    assert {kernel.name: kernel.waits for kernel in found} == {
        "begins": True, "late": False, "never": False, "deferred": True, "line": True,
    }  # fmt: skip
    written = nvcc.Nvcc("sm_90").wrap(sources.Module(Path("x.cu")), found)
    assert "about_begins[2] = {ArgumentBytes<decltype(begins)>::value, 1};" in written
    assert "about_late[2] = {ArgumentBytes<decltype(late)>::value, 0};" in written
