"""Tests that a call does not wait for a kernel to compile if a compiled kernel can serve it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from dualdnn.accelerated.backend import _Launcher
from dualdnn.accelerated.plans import BackgroundLaunch, Launch, pointers, structure
from dualdnn.accelerated.primitives.tma import TmaLaunch
from dualdnn.accelerated.runtime import device as device_module
from dualdnn.accelerated.runtime.emulated.device import EmulatedDevice
from dualdnn.accelerated.runtime.errors import CompileError
from dualdnn.conformance.subjects import open_subject

SOURCE = """
struct Arguments { float* y; };
extern "C" __global__ void store_three(const Arguments a) { *a.y = 3; }
"""


@pytest.fixture
def device(monkeypatch, empty_cache):
    made = EmulatedDevice()
    monkeypatch.setattr(made, "compiles_in_background", True, raising=False)
    return made


def kernel(tmp_path, text=SOURCE):
    path = tmp_path / "kernel.cu"
    path.write_text(text)
    return path


def finish(device):
    for task in device.background.tasks():
        task.join(60)


def test_a_kernel_is_returned_once_it_is_compiled(device, gate, tmp_path):
    path = kernel(tmp_path)
    assert device.function_when_ready(path, "store_three") is None
    assert device.function_when_ready(path, "store_three") is None
    gate.set()
    finish(device)
    assert device.function_when_ready(path, "store_three").name == "store_three"


def test_a_built_module_serves_at_once(device, tmp_path):
    """A module in the cache on disk serves at once, though this device has not loaded it."""
    path = kernel(tmp_path)
    type(device)().function(path, "store_three")
    assert device.function_when_ready(path, "store_three") is not None and not device.background.tasks()


def test_an_error_of_the_compiler_is_not_lost(device, tmp_path):
    path = kernel(tmp_path, SOURCE.replace("= 3", "= nothing"))
    device.function_when_ready(path, "store_three")
    finish(device)
    with pytest.raises(CompileError, match="nothing"):
        device.function_when_ready(path, "store_three")


def test_a_source_that_was_refused_is_not_compiled_again(device, tmp_path, monkeypatch):
    path, builds = kernel(tmp_path, SOURCE.replace("= 3", "= nothing")), []
    build = device_module.build
    monkeypatch.setattr(device_module, "build", lambda *of: builds.append(of) or build(*of))
    for _ in range(2):
        with pytest.raises(CompileError, match="nothing"):
            device.function(path, "store_three")
    assert len(builds) == 1


def test_a_fallback_serves_while_the_kernel_is_compiled(device, gate, tmp_path):
    served = []

    class Other(Launch):
        def record(self, record, operands):
            served.append(tuple(operand.value for operand in operands))

    path = kernel(tmp_path)
    arguments = structure(*pointers(1))
    plain = Launch(device.function_when_ready(path, "store_three"), arguments, ("y",), (1, 1, 1), (1, 1, 1))
    other = Other(None, arguments, ("y",), (1, 1, 1))
    launch = TmaLaunch(device, (path, ()), "store_three", plain, (), other)
    memory = device.allocate(4)
    launch.start([memory.address], None)
    assert served == [(memory.address,)]
    gate.set()
    finish(device)
    launch.start([memory.address], None)
    assert len(served) == 1 and device.download(memory.address, 4) == b"\x00\x00\x40\x40"


def test_wait_for_kernel_waits_for_the_compiler(device, gate, tmp_path):
    path = kernel(tmp_path)
    launch = TmaLaunch(
        device, (path, ()), "store_three", Launch(None, structure(*pointers(1)), ("y",), (1, 1, 1)), (), Launch(None, structure(), (), (1, 1, 1))
    )  # fmt: skip
    gate.set()
    launch.wait_for_kernel()
    assert launch.function.name == "store_three"


def test_the_fallback_stays_if_the_kernel_cannot_be_compiled(device, tmp_path):
    """The fallback also serves misaligned operands."""
    served = []

    class Other(Launch):
        def record(self, record, operands):
            served.append(tuple(operand.value for operand in operands))

    arguments = structure(*pointers(1))
    other = Other(None, arguments, ("y",), (1, 1, 1))
    (tmp_path / "wrong").mkdir()
    wrong, right = kernel(tmp_path / "wrong", SOURCE.replace("= 3", "= nothing")), kernel(tmp_path)
    plain = Launch(device.function_when_ready(wrong, "store_three"), arguments, ("y",), (1, 1, 1), (1, 1, 1))
    finish(device)
    memory = device.allocate(64)
    launch = BackgroundLaunch(device, (wrong, ()), "store_three", plain, other)
    for _ in range(2):
        launch.start([memory.address], None)
    assert served == [(memory.address,)] * 2
    plain = Launch(None, arguments, ("y",), (1, 1, 1), (1, 1, 1))
    launch = BackgroundLaunch(device, (right, ()), "store_three", plain, other, (32,))
    launch.wait_for_kernel()
    aligned = memory.address + -memory.address % 32
    for address in (aligned, aligned + 4):
        launch.start([address], None)
    assert served[2:] == [(aligned + 4,)] and device.download(aligned, 4) == b"\x00\x00\x40\x40"


def test_cases_judge_the_kernel_that_was_planned(monkeypatch):
    """The suite waits for the planned kernel; otherwise it would judge only the fallback."""
    monkeypatch.setattr(device_module.Device, "compiles_in_background", True)
    open_subject("accelerated:emulated")
    assert not device_module.Device.compiles_in_background


def test_a_temporary_record_is_reused():
    """Calls reuse a temporary record until another kernel has been compiled, and then plan again."""
    made = []

    class Waiting:
        def record(self, record, operands):
            record.final = compiling.finished > 1
            made.append(compiling.finished)

    compiling = SimpleNamespace(finished=0)
    backend = SimpleNamespace(device=SimpleNamespace(background=compiling), plan=lambda operation: Waiting())
    launcher = _Launcher(backend, None)
    for finished in (0, 0, 1, 1, 2, 2):
        compiling.finished = finished
        launcher([SimpleNamespace(address=256)], None)
    assert made == [0, 1, 2]
