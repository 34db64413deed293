"""Tests the times that searches measured: kept in the kernel cache, found by other processes, shipped in wheels."""

from __future__ import annotations

import zipfile
from types import SimpleNamespace

import pytest
from dualdnn.accelerated import backend as backend_module
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.records import Record
from dualdnn.accelerated.runtime import choices
from dualdnn.accelerated.runtime.choices import Choices
from dualdnn.api.operations import ScaleTensor, TensorSpec
from dualdnn.api.operations.specs import FLOAT
from dualdnn.conformance.kernels import kernel_wheel

FIRST, SECOND = (ScaleTensor(scalar, TensorSpec.packed(FLOAT, (1, 1, 1, 1))) for scalar in (0.5, 0.25))
GPU = "NVIDIA H200, MIG 1g"


@pytest.fixture
def path(monkeypatch, tmp_path):
    """Return the path of the file that keeps the times of GPU."""
    monkeypatch.setenv("DUALDNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(choices, "package_folders", lambda: [tmp_path / "package"])
    return tmp_path / "cache/choices/NVIDIA-H200-MIG-1g.txt"


@pytest.fixture
def searched(monkeypatch, path):
    """Return a backend that keeps times, and a list that grows with each measurement."""
    found, asked = AcceleratedBackend("emulated"), []
    monkeypatch.setattr(found.device, "choices", Choices(GPU), raising=False)
    monkeypatch.setattr(found, "prepare", lambda operation: Launcher())
    clock = SimpleNamespace(seconds=lambda work: asked.append(work()) or 0.25)
    monkeypatch.setattr(backend_module, "Clock", lambda *_: clock)
    return found, asked


class Launcher:
    plan = SimpleNamespace(steps=[])

    def recorded(self, addresses):
        return Record()

    def bound(self, operands):
        return lambda stream: None, True


def test_a_measured_time_is_not_measured_again(searched, monkeypatch):
    """A device with ``measures_anew`` always measures. Other processes find the times, too (test_contexts.py)."""
    backend, asked = searched
    monkeypatch.setattr(backend.device, "measures_anew", False, raising=False)
    assert [backend.algorithm_time(FIRST, [], None) for _ in range(2)] == [250, 250] and len(asked) == 1
    assert backend.algorithm_time(SECOND, [], None) == 250 and len(asked) == 2
    monkeypatch.setattr(backend.device, "measures_anew", True, raising=False)
    assert backend.algorithm_time(FIRST, [], None) == 250 and len(asked) == 3


def test_the_newest_whole_line_of_an_operation_counts(path, tmp_path, monkeypatch):
    Choices(GPU).keep(FIRST, 1.5)
    Choices(GPU).keep(FIRST, 2.5)
    Choices(GPU).keep(SECOND, 3.5)
    assert (Choices(GPU).find(FIRST), Choices(GPU).find(SECOND), Choices("other").find(FIRST)) == (2.5, 3.5, None)
    text = path.read_text()
    (tmp_path / "package/choices").mkdir(parents=True)
    (tmp_path / "package/choices" / path.name).write_text(text)  # The package is older than the cache.
    path.write_bytes(
        f"{text[:-4]}9\nrubbish\n\n".encode() + b"\xff\xfe damaged bytes, and a line cut off by a full disk"
    )
    Choices(GPU).keep(FIRST, 4.5)
    assert (Choices(GPU).find(FIRST), Choices(GPU).find(SECOND)) == (4.5, 3.5)
    monkeypatch.setattr(choices, "__version__", "another")
    assert Choices(GPU).find(FIRST) is None


def test_the_file_is_bounded(path, monkeypatch):
    monkeypatch.setattr(choices, "MAX_LINES", 4)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff\n")
    kept = Choices(GPU)
    for milliseconds in range(1, 40):
        kept.keep(FIRST, milliseconds)
        assert path.stat().st_size <= 2 * 4 * choices.LINE_BYTES + choices.LINE_BYTES
    assert Choices(GPU).find(FIRST) == 39 and [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_folder_that_cannot_be_written_raises_no_error(path, monkeypatch):
    path.parent.parent.mkdir()
    path.parent.write_text("a file where the folder should be")
    kept = Choices(GPU)
    kept.keep(FIRST, 1.5)
    assert kept.find(FIRST) == 1.5 and Choices(GPU).find(FIRST) is None


def test_a_wheel_brings_times(path, tmp_path):
    Choices(GPU).keep(FIRST, 1.5)
    kernel_wheel.check_choices([path])
    names = []
    for target in kernel_wheel.TARGETS:
        with zipfile.ZipFile(kernel_wheel.packed(b"archive", target, tmp_path, [path])) as wheel:
            names += wheel.namelist()
            wheel.extractall(tmp_path / "site")
    assert len(names) == len({*names})  # pip removes a file with each package that has it.
    (tmp_path / "package").symlink_to(tmp_path / "site" / "dualdnn_kernels")
    kept = path.read_text()
    path.unlink()
    assert Choices(GPU).find(FIRST) == 1.5
    (empty := tmp_path / "empty.txt").write_text("nothing\n")
    with pytest.raises(ValueError, match=r"--choices .*empty.txt: no time"):
        kernel_wheel.check_choices([empty])
    (other := tmp_path / path.name).write_text(kept)
    with pytest.raises(ValueError, match="have the same name"):
        kernel_wheel.check_choices([other, other])
