"""Tests kernels of installed packages: found without a compiler, not loaded if they are damaged or foreign."""

from __future__ import annotations

import hashlib
import importlib
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import pytest
from dualdnn.accelerated.runtime import compiler, information, programs, shipped
from dualdnn.accelerated.runtime.errors import DeviceUnavailable
from dualdnn.accelerated.runtime.nvcc import FORMAT, Nvcc, ShippingNvcc
from dualdnn.accelerated.runtime.sources import Kernel, Module, flatten, module
from dualdnn.conformance.kernels import kernel_wheel

TARGET = "sm_90a"
ARCHITECTURE = "sm_90"
MODULES = [
    module("tensor_arithmetic/tensor_arithmetic.cu", (("ELEMENT", element),)) for element in ("float", "half", "double")
]
IMAGES = [bytes([65 + number]) * 3000 for number in range(len(MODULES))]


def keyed(target: str = TARGET) -> dict[str, bytes]:
    keys = [shipped.key_of(each, flatten(each.source)) for each in MODULES]
    return {key: shipped.sealed(target, key, image) for key, image in zip(keys, IMAGES, strict=True)}


def installed(folder: Path, data: bytes, target: str = TARGET) -> Path:
    """Put an archive where a wheel would install it, and return its path."""
    path = folder / shipped.PACKAGE / f"{target}.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    shipped._opened.cache_clear()
    return path


def served(architecture: str = ARCHITECTURE, flat_source: str | None = None) -> list[bytes | None]:
    found = [shipped.shipped(each, architecture, flat_source or flatten(each.source)) for each in MODULES]
    return [each and each[1] for each in found]


def _refusing(refused, opens, path, *rest):
    """Open an archive as zipfile does, and refuse one, whoever runs the test."""
    if path == refused:
        raise PermissionError(13, "Permission denied")
    return opens(path, *rest)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return an empty folder of packages, without a compiler and with an empty cache."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("DUALDNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(programs, "TOOLKIT", tmp_path)
    monkeypatch.setattr(programs, "WHEEL_TOOLKIT", "nowhere")
    monkeypatch.setattr(compiler, "GPU_COMPILERS", {"nvcc": Nvcc})
    monkeypatch.setattr(shipped, "_problems", {})
    compiler.toolchain.cache_clear()
    importlib.invalidate_caches()
    yield tmp_path
    compiler.toolchain.cache_clear()
    shipped._opened.cache_clear()


def test_modules_are_found_without_any_program(site, monkeypatch):
    installed(site, kernel_wheel.archive(keyed()))
    monkeypatch.setattr(subprocess, "run", None)
    assert [compiler.build(each, ARCHITECTURE)[1] for each in MODULES] == IMAGES
    assert all(compiler.is_built(each, ARCHITECTURE) for each in MODULES)
    assert information.facts()["shipped kernels"] == f"3 modules in {site / shipped.PACKAGE / 'sm_90a.zip'}"


def test_nothing_is_found_where_nothing_is_installed(site):
    shipped._opened.cache_clear()
    assert served() == [None] * 3
    with pytest.raises(DeviceUnavailable, match="nvcc"):
        compiler.build(MODULES[0], ARCHITECTURE)
    assert information.facts()["shipped kernels"] == "missing: pip install 'dualdnn[gpu]'"


def test_a_damaged_byte_anywhere_loses_at_most_one_module_or_all(site):
    """A flipped byte never gives a wrong module, and damage in one module does not affect the others."""
    data = kernel_wheel.archive(keyed())
    entries = {info.filename: info.header_offset for info in zipfile.ZipFile(installed(site, data)).infolist()}
    first = min(entries.values())
    # These bytes are in the first module's compressed data.
    inside = range(first + 80, sorted(entries.values())[1] - 40, 7)
    for at in (*range(0, len(data), 97), *inside):
        damaged = bytearray(data)
        damaged[at] ^= 0x20
        installed(site, bytes(damaged))
        found = served()
        assert all(each in (None, image) for each, image in zip(found, IMAGES, strict=True)), at
        if at in inside:
            assert found.count(None) == 1, at


def test_damage_is_reported_once(site, caplog):
    """The facts about the machine name damaged archives and modules, also those that no call has asked for."""
    data = kernel_wheel.archive(keyed())
    sound = installed(site, data)
    assert "cannot be read" not in information.facts()["shipped kernels"]
    at = zipfile.ZipFile(sound).infolist()[0].header_offset + 80
    damaged = installed(site, data[:at] + b"?" + data[at + 1 :])
    entry = min(keyed())
    assert [served().count(None) for _ in range(2)] == [1, 1]
    shipped._problems.clear()
    told = f"3 modules in {damaged}, {damaged / entry} cannot be read: its checksum is wrong; install its package again"
    assert information.facts()["shipped kernels"] == told
    installed(site, b"")
    assert served() == [None] * 3 and information.facts()["shipped kernels"].endswith(
        "File is not a zip file; install its package again"
    )
    assert len(caplog.messages) == 3


@pytest.mark.parametrize("damage", ["truncated", "empty", "a folder", "no permission", "a lost link"])
def test_an_unreadable_archive_leaves_those_of_other_folders(site, monkeypatch, damage):
    data = kernel_wheel.archive(keyed())
    first = installed(site / "first", data[:-100] if damage == "truncated" else b"")
    if damage == "no permission":
        monkeypatch.setattr(zipfile, "ZipFile", partial(_refusing, first, zipfile.ZipFile))
    elif damage in ("a folder", "a lost link"):
        first.unlink()
        first.mkdir() if damage == "a folder" else first.symlink_to(site / "nowhere")
    target = installed(site / "second", data)
    target.rename(site / "stored.zip")
    target.symlink_to(site / "stored.zip")  # Some installers link to files of their cache.
    for name in ("second", "first"):
        monkeypatch.syspath_prepend(str(site / name))
    importlib.invalidate_caches()
    sys.modules.pop(shipped.PACKAGE, None)
    shipped._opened.cache_clear()
    assert served() == IMAGES


def test_foreign_modules_are_not_loaded(site):
    """A module is foreign if its source was edited, or it belongs to another GPU, archive or entry name."""
    entries = keyed()
    installed(site, kernel_wheel.archive(entries))
    assert served(flat_source=flatten(MODULES[0].source) + "\n// edited") == [None] * 3
    assert served("sm_80") == served("sm_100") == served("emulated") == [None] * 3
    installed(site, kernel_wheel.archive(keyed("sm_80")))
    assert served() == [None] * 3
    first, second, third = entries
    installed(site, kernel_wheel.archive({first: entries[second], second: entries[second], third: b"no xz stream"}))
    assert served() == [None, IMAGES[1], None]


@pytest.mark.parametrize(
    "architecture, targets",
    [
        ("sm_80", ["sm_80"]),
        ("sm_86", ["sm_86", "sm_85", "sm_84", "sm_83", "sm_82", "sm_81", "sm_80"]),
        ("sm_90", ["sm_90a", "sm_90f", "sm_90"]),
        ("sm_103", ["sm_103a", "sm_103f", "sm_100f", "sm_103", "sm_102", "sm_101", "sm_100"]),
    ],
)
def test_targets_of_a_gpu(architecture, targets):
    """Binaries run on later GPUs of their generation, but a binary for a target with an "a" only on that GPU."""
    assert shipped.targets(architecture) == targets


def test_every_gpu_of_a_wheel_finds_it():
    for target, (_, gpus) in kernel_wheel.TARGETS.items():
        assert all(target in shipped.targets(gpu.architecture) for gpu in gpus)


def test_a_new_format_of_appended_variables_needs_a_new_number():
    """A module's key does not contain these variables. If they change, raise FORMAT in nvcc.py and update the hash."""
    text = Nvcc("sm_90").wrap(Module(Path("x.cu"), (("A", "1"),)), [Kernel("k", "", True, ("a", "b.c"))])
    assert (FORMAT, hashlib.sha256(text.encode()).hexdigest()[:16]) == ("1", "10ef0b01d411a950")


def test_modules_are_shipped_without_line_information():
    assert "-lineinfo" in Nvcc.options and "-lineinfo" not in ShippingNvcc.options
    assert ShippingNvcc("sm_100f").target == "-gencode=arch=compute_100f,code=sm_100f"
    assert ShippingNvcc("sm_90a").target == Nvcc("sm_90").target
    with pytest.raises(ValueError, match="target='90a'"):
        ShippingNvcc("90a")
