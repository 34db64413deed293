"""The driver's numbers, against the header that defines them."""

from __future__ import annotations

import ctypes
import re
import subprocess
from types import SimpleNamespace

import pytest
from dualdnn.accelerated.runtime import driver
from dualdnn.accelerated.runtime.emulated.toolchain import cuda_headers
from dualdnn.accelerated.runtime.gpu import GpuFunction
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
def test_attributes(header, kind, name):
    defined = re.search(rf"CU_{kind}_ATTRIBUTE_{name} += (\d+)", header.read_text())
    assert defined and int(defined[1]) == getattr(driver, name)


def test_layout_of_a_launch(header, tmp_path):
    """The structures that the driver reads, against the compiler's layout of its header."""
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
    """As the driver reads it: three sizes each, attributes as pairs of number and 1."""
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
    """kilobytes: of shared memory of a multiprocessor, and the most of a block, which takes one more."""
    function = object.__new__(GpuFunction)
    function.device = SimpleNamespace(shared_bytes_per_block=kilobytes[1] * 1024)
    function._overlaps, function._configurations = False, {}

    def bytes_of_block(asked, cooperative):
        how = function._configure((4,), (32,), asked, 0, cooperative)
        assert function._configurations[(4,), (32,), asked, 0, cooperative] is how
        return driver._Configuration.from_address(how.address).shared_bytes

    most = kilobytes[1] * 1024
    assert (bytes_of_block(100, False), bytes_of_block(most, False), bytes_of_block(most, True)) == (100, most, most)
    assert 2 * (bytes_of_block(100, True) + 1024) > kilobytes[0] * 1024
