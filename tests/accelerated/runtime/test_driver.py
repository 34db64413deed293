"""Tests the constants and structures of the driver's interface against cuda.h."""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from dualdnn.accelerated.records import KernelStep, Where
from dualdnn.accelerated.runtime import driver
from dualdnn.accelerated.runtime.device import Function, LaunchShape, bytes_to_spread
from dualdnn.accelerated.runtime.emulated.toolchain import cuda_headers
from dualdnn.accelerated.runtime.errors import DeviceError
from dualdnn.accelerated.runtime.gpu import GpuDevice, GpuFunction
from dualdnn.accelerated.runtime.programs import host_compiler

FUNCTION_ATTRIBUTES = (
    "MAX_THREADS_PER_BLOCK",
    "SHARED_SIZE_BYTES",
    "MAX_DYNAMIC_SHARED_SIZE_BYTES",
    "NON_PORTABLE_CLUSTER_SIZE_ALLOWED",
)
LAUNCH_ATTRIBUTES = ("COOPERATIVE", "PROGRAMMATIC_STREAM_SERIALIZATION")


@pytest.fixture(scope="module")
def header():
    found = next((folder / "cuda.h" for folder in cuda_headers() if (folder / "cuda.h").exists()), None)
    if found is None:
        pytest.skip("the packages for Python come without cuda.h")
    return found


@pytest.mark.parametrize(
    "kind, name",
    [("FUNC", name) for name in FUNCTION_ATTRIBUTES] + [("LAUNCH", name) for name in LAUNCH_ATTRIBUTES],
)
def test_attributes_have_the_numbers_of_cuda_h(header, kind, name):
    defined = re.search(rf"CU_{kind}_ATTRIBUTE_{name} += (\d+)", header.read_text())
    assert defined and int(defined[1]) == getattr(driver, name)


def test_layout_of_a_launch(header, tmp_path):
    """Our structures have the layout that a C++ compiler gives them in cuda.h."""
    source = tmp_path / "layout.cpp"
    source.write_text(
        """
#include <cstddef>
#include <cstdio>
#include <cuda.h>
int main() {
  printf("%zu %zu %zu %zu\\n", sizeof(CUlaunchConfig), offsetof(CUlaunchConfig, hStream), offsetof(CUlaunchConfig, attrs),
         offsetof(CUlaunchConfig, numAttrs));
  printf("%zu %zu\\n", sizeof(CUlaunchAttribute), offsetof(CUlaunchAttribute, value));
}
"""
    )
    program = tmp_path / "layout"
    subprocess.run([host_compiler(), "-I", header.parent, source, "-o", program], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    launch, attribute = driver._Configuration, driver._Attribute
    ours = [ctypes.sizeof(launch), launch.stream.offset, launch.attributes.offset, launch.attribute_count.offset]
    ours += [ctypes.sizeof(attribute), attribute.value.offset]
    assert [int(number) for number in printed] == ours


def test_configuration():
    """Grid and block have three sizes, and each attribute is a pair of its number and 1."""
    how = driver.configuration((7,), (32, 2), 128, 0x1234, (driver.COOPERATIVE,))
    seen = driver._Configuration.from_address(how.address)
    assert (list(seen.grid), list(seen.block), seen.shared_bytes) == ([7, 1, 1], [32, 2, 1], 128)
    assert (seen.stream, seen.attribute_count) == (0x1234, 1)
    attribute = driver._Attribute.from_address(seen.attributes)
    assert (attribute.name, attribute.value) == (driver.COOPERATIVE, 1)
    plain = driver.configuration((1,), (1,), 0)
    assert driver._Configuration.from_address(plain.address).attributes is None


@pytest.mark.parametrize("kilobytes", [(100, 99), (164, 163), (228, 227)])
def test_a_multiprocessor_has_one_block_of_a_cooperative_launch(kilobytes):
    """Such a block asks for more than half of the shared memory. A block reserves 1 KiB beyond its own.

    kilobytes: shared memory per multiprocessor, and the maximum per block.
    """
    function = object.__new__(GpuFunction)
    function.device = SimpleNamespace(shared_bytes_per_block=kilobytes[1] * 1024, multiprocessors=6)
    function._overlaps, function._kernel = False, SimpleNamespace(handle=77)

    def bytes_of_block(asked, cooperative):
        how = function._configure(LaunchShape((4,), (32,), asked, cooperative), 0)
        return driver._Configuration.from_address(how.address).shared_bytes

    most = kilobytes[1] * 1024
    assert (bytes_of_block(100, False), bytes_of_block(most, False), bytes_of_block(most, True)) == (100, most, most)
    assert bytes_to_spread(function.device, 7) == 0
    for of_one in (bytes_of_block(100, True), bytes_to_spread(function.device, 6)):
        assert 2 * (of_one + 1024) > kilobytes[0] * 1024


@pytest.fixture
def stand_in(tmp_path):
    """Return a GPU function on a fake driver, the list of its launches, and the error code that the driver returns."""
    seen = []

    @ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
    def launch(how, kernel, parameters, _extra):
        if function.together is not None:
            function.together.wait()
        argument = ctypes.c_void_p.from_address(parameters).value
        configuration = driver._Configuration.from_address(how)
        words = (ctypes.c_uint64 * 3).from_address(argument)
        seen.append((tuple(words), configuration.stream, kernel))
        return refused[0]

    refused = [0]
    stand_in = SimpleNamespace(
        functions={"cuLaunchKernelEx": launch}, error=lambda name, code: driver.DriverError(f"{name} {code}")
    )
    function = object.__new__(GpuFunction)
    Function.__init__(function)
    function.together = None
    function.name, function.argument_bytes, function.maximum_threads, function.static_shared_bytes = "kernel", 24, 64, 0
    function.device = SimpleNamespace(shared_bytes_per_block=1024, make_current=lambda: None)
    function._overlaps = True
    function._kernel = driver.LoadedKernel(stand_in, ctypes.c_void_p(77))
    return function, seen, refused


def step(function, template, operands, *shape):
    return KernelStep(function, template, LaunchShape(*shape), [Where(i, 0, 0) for i in range(operands)])


def test_a_step_writes_addresses_into_its_arguments(stand_in):
    """A step works on any stream and never changes its template. Its constructor refuses all that launch() refuses."""
    function, seen, _ = stand_in
    template = struct.pack("3Q", 0, 0, 5)
    made = step(function, template, 2, (3,), (64,))
    made.bound((1, 2))(None)
    made.bound([8, 9])(SimpleNamespace(handle=0x40))
    function.launch(struct.pack("3Q", 1, 2, 3), (3,), (64,))
    assert seen == [((1, 2, 5), None, 77), ((8, 9, 5), 0x40, 77), ((1, 2, 3), None, 77)]
    for refused, error, *shape in (
        (template[:16], TypeError, (3,), (64,)),
        (template, ValueError, (3,), (65,)),
        (template, ValueError, (0,), (64,)),
        (template, ValueError, (3,), (64,), 1025),
    ):
        with pytest.raises(error):
            step(function, refused, 2, *shape)


def test_launches_of_several_threads_have_separate_arguments(stand_in):
    """The fake driver reads the arguments only after four threads have entered it."""
    function, seen, _ = stand_in
    function.together = threading.Barrier(4, timeout=60)
    made = step(function, bytes(24), 2, (3,), (64,))
    for _ in range(3):
        threads = [threading.Thread(target=lambda n: made.bound((n, n))(None), args=(n,)) for n in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(words[0] for words, _, _ in seen) == [n for n in range(1, 5) for _ in range(3)]


@pytest.mark.parametrize("code, error", [(driver.NOT_FOUND, KeyError), (700, DeviceError)])
def test_a_kernel_that_cannot_be_found_is_not_always_missing(monkeypatch, code, error):
    """After a fault that ended the context, the driver refuses every call."""

    def refuse(name):
        raise driver.DriverError(name, code)

    monkeypatch.setattr(GpuDevice, "entered", nullcontext)
    with pytest.raises(error, match="kernel"):
        object.__new__(GpuDevice)._find(SimpleNamespace(kernel=refuse), "kernel")


def test_a_launch_that_the_driver_refuses(stand_in):
    """After a refused launch, the next one works."""
    function, seen, refused = stand_in
    made = step(function, bytes(24), 1, (3,), (64,))
    refused[0] = 700
    with pytest.raises(DeviceError, match=r"launching kernel with grid=\(3,\).*cuLaunchKernelEx 700"):
        made.bound((1,))(None)
    refused[0] = 0
    made.bound((2,))(None)
    assert [words[0] for words, _, _ in seen] == [1, 2]
