"""Test C calls on a stream that is being captured into a graph: the first of its kind, and a repeated one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from dualdnn.accelerated.runtime.programs import host_compiler

DRIVER = Path(__file__).parents[1] / "accelerated" / "runtime" / "fake_driver" / "driver.cpp"
CAPTURED = """
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.accelerated.runtime import gpu
fake = ctypes.CDLL("libcuda.so.1")
fake.fake_capture.argtypes = [P]
gpu.GpuDevice._load = lambda self, source, definitions: self._load_module(Path(str(source)), b"image")
gpu.GpuFunction.check = lambda self, nbytes, shape: None
from pathlib import Path
handle = made("")
device = open_device("gpu")
stream, memory = device.new_stream(), device.allocate(2**22)
assert C.cudnnSetStream(handle, P(stream.handle)) == 0, said()
activation = made("ActivationDescriptor")
assert C.cudnnSetActivationDescriptor(activation, 1, 0, D(0)) == 0
def relu(x):
    return C.cudnnActivationForward(handle, activation, ref(F(1)), x, P(memory.address), ref(F(0)), x, P(memory.address))
def bias_gradient(dy, db):
    "A call with scratch memory of its own."
    return C.cudnnConvolutionBackwardBias(handle, ref(F(1)), dy, P(memory.address), ref(F(0)), db, P(memory.address + 2**21))
def calls():
    before = counts()["asked"], fake.fake_launches()
    statuses = relu(tensor(1, 2, 8, 8)), bias_gradient(tensor(64, 1, 64, 64), tensor(1, 1, 1, 1))
    assert statuses == (0, 0), said()
    return counts()["asked"] - before[0] > 2, fake.fake_launches() > before[1] + 1
fake.fake_capture(stream.handle)
print(*calls(), fake.fake_ended(), fake.fake_mode())
print(*calls(), fake.fake_ended(), fake.fake_mode())
"""


def test_the_first_call_on_a_capturing_stream_does_nothing_that_ends_the_capture(ran: Any, tmp_path: Path) -> None:
    """Python plans, loads modules and allocates in the first call. C repeats the calls that need no scratch memory."""
    command = [host_compiler(), "-shared", "-fPIC", "-O1", DRIVER, "-o", tmp_path / "libcuda.so.1", "-lpthread"]
    subprocess.run(command, check=True)
    printed = ran(CAPTURED, DUALDNN_BACKEND="accelerated", LD_LIBRARY_PATH=str(tmp_path))
    assert printed.splitlines() == ["True True 0 0", "False True 0 0"]
