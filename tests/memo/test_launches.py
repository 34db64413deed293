"""Test that C launches kernels on a GPU, for which a driver with the kernels of the emulated device stands."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .conftest import EMULATED

AS_A_GPU = """
import numpy as np
from dualdnn.accelerated.runtime.device import NativeLaunch
from dualdnn.accelerated.runtime.emulated import device as emulated, library as modules
driver, kernels = ctypes.CDLL("libcuda.so.1"), {}
driver.driver_context.restype = P
launches, maps, attributes = (ctypes.c_long.in_dll(driver, f"driver_{name}") for name in ("launches", "maps", "attributes"))
refuses, stream = Int.in_dll(driver, "driver_refuses"), ctypes.c_uint64.in_dll(driver, "driver_stream")

def native(function, shape):
    if function not in kernels:
        launch = ctypes.cast(function._library._launch, ctypes.c_void_p).value
        kernels[function] = (ctypes.c_uint64 * 3)(ctypes.addressof(function._kernel), launch, ctypes.addressof(modules._mappings))
    grid, block = ((*sizes, 1, 1)[:3] for sizes in shape[:2])
    return NativeLaunch(ctypes.addressof(kernels[function]), grid, block, shape.shared_bytes, shape.cooperative, True)

emulated.EmulatedFunction.native = native
emulated.EmulatedDevice.native_context, emulated.EmulatedDevice.knows_extents = 77, False
handle = made("")
"""
CONVOLUTION = """
def channels_last(n, c, h, w, data_type):
    found = made("TensorDescriptor")
    assert C.cudnnSetTensorNdDescriptor(found, data_type, 4, ints(n, c, h, w), ints(c * h * w, 1, w * c, c)) == 0, said()
    return found
def convolved(data_type, dtype, x, w, images=1, channels=64):
    "A convolution as PyTorch makes it: new descriptors, algorithm, workspace."
    xd, yd = (channels_last(images, channels, 8, 8, data_type) for _ in range(2))
    wd, cd = made("FilterDescriptor"), made("ConvolutionDescriptor")
    assert C.cudnnSetFilterNdDescriptor(wd, data_type, 1, 4, ints(channels, channels, 3, 3)) == 0
    assert C.cudnnSetConvolutionNdDescriptor(cd, 2, ints(1, 1), ints(1, 1), ints(1, 1), 1, 0) == 0
    assert C.cudnnSetConvolutionMathType(cd, 1) == 0
    rows, count, size = (ctypes.c_byte * (48 * 8))(), Int(), P()
    assert C.cudnnGetConvolutionForwardAlgorithm_v7(handle, xd, wd, cd, yd, 1, ref(count), rows) == 0, said()
    algo = Int.from_buffer(rows)
    assert C.cudnnGetConvolutionForwardWorkspaceSize(handle, xd, wd, cd, yd, algo, ref(size)) == 0, said()
    space, source, weights, target = device().allocate(max(size.value, 1)), placed(x), placed(w), placed(np.zeros_like(x))
    status = C.cudnnConvolutionForward(handle, ref(F(1)), xd, P(source.address), wd, P(weights.address), cd, algo, P(space.address if size.value else 0), size, ref(F(0)), yd, P(target.address))
    assert status == 0, said()
    for kind, made_before in (("Tensor", xd), ("Tensor", yd), ("Filter", wd), ("Convolution", cd)):
        assert getattr(C, f"cudnnDestroy{kind}Descriptor")(made_before) == 0
    return contents(target, dtype)
random = np.random.default_rng(1)
for data_type, dtype in ((0, np.float32), (2, np.float16)):
    x, w = (random.standard_normal(n).astype(dtype) for n in (64 * 64, 64 * 64 * 9))
    first = convolved(data_type, dtype, x, w)
    before = counts(), launches.value, maps.value
    for _ in range(2):
        assert np.array_equal(convolved(data_type, dtype, x, w), first)
    after = counts(), launches.value, maps.value
    assert after[0]["asked"] == before[0]["asked"], "no entry into Python"
    assert after[1] - before[1] >= 2 and np.abs(first.astype(np.float64)).sum() > 0
    wanted = sum(x.reshape(8, 8, 64)[3 + i, 4 + j].astype(np.float64) @ w.reshape(64, 3, 3, 64)[:, 1 + i, 1 + j].T.astype(np.float64) for i in (-1, 0, 1) for j in (-1, 0, 1))
    assert np.allclose(first.reshape(8, 8, 64)[3, 4], wanted, rtol=1e-2, atol=0.2 if data_type else 1e-3)
assert after[2] - before[2] >= 2, "half data is read through tensor maps"
assert attributes.value == launches.value and counts()["differ"] == 0
print("same")
"""
ELEMENTWISE = """
x, relu = tensor(2, 3, 4, 5), made("ActivationDescriptor")
assert C.cudnnSetActivationDescriptor(relu, 1, 0, D(0)) == 0
values = np.linspace(-1, 1, 120).astype(np.float32)
def forward():
    source, target = placed(values), placed(values)
    status = C.cudnnActivationForward(handle, relu, ref(F(1)), x, P(source.address), ref(F(0)), x, P(target.address))
    return status, np.array_equal(contents(target, np.float32), np.maximum(values, 0))
"""
CONTEXTS = """
found = []
for current in (0, 5, 77):
    driver.cuCtxSetCurrent(P(current))
    found += [forward(), driver.driver_context()]
before = launches.value
assert C.cudnnSetStream(handle, P(0x40)) == 0 and forward() == (0, True) and stream.value == 0x40
print(found, launches.value - before)
"""
REFUSED = """
assert forward() == (0, True)
refuses.value = 700
print(forward(), launches.value)  # Python launches
def fails(*_):
    raise emulated.DeviceError("launching kernel: cuLaunchKernelEx 700")
issue, emulated.EmulatedFunction.issue = emulated.EmulatedFunction.issue, fails
print(forward()[0], said())
refuses.value = 0
print(forward(), counts()["differ"])
"""
UNBUILT = """
from dualdnn.accelerated.records import Record
from dualdnn.accelerated.runtime.errors import DeviceUnavailable
of = Record.of
def fails(*_):
    raise DeviceUnavailable("there is no compiler")
Record.of = fails
print([(forward()[0], said()) for _ in range(2)][1])
Record.of = of
print(forward(), forward(), counts()["hits"] > 0)
"""
NORMALIZED = """
x, per_channel = tensor(4, 16, 6, 6), tensor(1, 16, 1, 1)
values = np.random.default_rng(2).standard_normal(4 * 16 * 36).astype(np.float32)
ones = np.ones(16, np.float32)
def normalized():
    source, target = placed(values), placed(values)
    scale, bias, mean, variance, kept_mean, kept_variance = (placed(ones * n) for n in (1, 0, 0, 1, 0, 0))
    status = C.cudnnBatchNormalizationForwardTraining(
        handle, 1, ref(F(1)), ref(F(0)), x, P(source.address), x, P(target.address), per_channel, P(scale.address), P(bias.address), D(0.5),
        P(mean.address), P(variance.address), D(1e-5), P(kept_mean.address), P(kept_variance.address))
    assert status == 0, said()
    return b"".join(contents(memory, np.uint8).tobytes() for memory in (target, mean, variance, kept_mean, kept_variance))
first = normalized()
before = counts()["asked"], launches.value
assert normalized() == first == normalized() and counts()["asked"] == before[0] and launches.value > before[1]
print("same", counts()["differ"])
"""
CAPTURED = """
dy, db, capturing = tensor(64, 1, 16, 16), tensor(1, 1, 1, 1), Int.in_dll(driver, "driver_capturing")
values = (np.arange(64 * 256) % 5).astype(np.float32)
def sums():
    source, target = placed(values), placed(np.zeros(1, np.float32))
    assert C.cudnnConvolutionBackwardBias(handle, ref(F(1)), dy, P(source.address), ref(F(0)), db, P(target.address)) == 0, said()
    assert np.array_equal(contents(target, np.float32), [values.sum()])
    return launches.value
sums()
before = sums()
capturing.value = 1
captured = sums()
capturing.value = 0
print(before > 0, captured - before, sums() > captured, counts()["differ"])
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("kernels_driver.c")
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-Wall",
        "-Werror",
        str(source),
        "-o",
        str(folder / "libcuda.so.1"),
        "-pthread",
    ]
    subprocess.run(command, check=True)
    return {**EMULATED, "LD_LIBRARY_PATH": str(folder)}


def test_convolutions(ran, driver):
    """For float and half, C's launches compute what Python's do, and no call enters Python. Tensor maps get the new addresses."""
    assert ran(AS_A_GPU + CONVOLUTION, **driver) == "same\n"


def test_several_launches_of_one_call(ran, driver):
    """C repeats the launches of batch normalization, which writes averages as well as its results."""
    assert ran(AS_A_GPU + NORMALIZED, **driver) == "same 0\n"


def test_the_thread_s_context_is_what_it_was(ran, driver):
    """C launches in the device's context on the handle's stream, and restores the thread's context, if any."""
    ok = "(0, True)"
    assert (
        ran(AS_A_GPU + ELEMENTWISE + CONTEXTS, DUALDNN_EMULATION_FOREIGN="1", **driver)
        == f"[{ok}, 0, {ok}, 5, {ok}, 77] 1\n"
    )


def test_a_kernel_that_cannot_be_built(ran, driver):
    """Each call answers the documented status and the reason, and the memo keeps nothing of it."""
    shown = ran(AS_A_GPU + ELEMENTWISE + UNBUILT, **driver).splitlines()
    assert shown[0].startswith("(8, 'cudnnActivationForward: CUDNN_STATUS_EXECUTION_FAILED: there is no compiler"), (
        shown
    )
    assert shown[1] == "(0, True) (0, True) True"


def test_a_launch_that_the_driver_refuses(ran, driver):
    """Python makes the launch or says why it fails, and the next launch succeeds all the same."""
    shown = ran(AS_A_GPU + ELEMENTWISE + REFUSED, **driver).splitlines()
    assert shown[0] == "(0, True) 1" and shown[2] == "(0, True) 0", shown
    assert shown[1].startswith(
        "8 cudnnActivationForward: CUDNN_STATUS_EXECUTION_FAILED: launching kernel: cuLaunchKernelEx 700"
    ), shown


def test_a_graph_does_not_share_scratch_memory_with_its_stream(ran, driver):
    """Python gives a capturing stream its own scratch memory, and the memo serves again afterwards."""
    assert ran(AS_A_GPU + CAPTURED, **driver) == "True 0 True 0\n"
