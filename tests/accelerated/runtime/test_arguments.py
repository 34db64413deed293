"""Tests that argument structures of host and kernel are compared field by field, not only by size."""

from __future__ import annotations

from ctypes import Structure, c_float, c_int, c_uint

import pytest
from dualdnn.accelerated.plans import Launch, pointers, structure
from dualdnn.accelerated.runtime.arguments import paths
from dualdnn.accelerated.runtime.devices import open_device

SOURCE = """
#include "primitives/geometry.cuh"
#include "primitives/types.cuh"
struct alignas(8) Window { int first, last; };
template <class T> struct Base { const T* x; T* y; };
struct Arguments : Base<float> {
  float alpha, beta;
  unsigned short kind, flags;
  FastDivmod row;
  Window window[2];
  static constexpr int UNUSED = 3;
  __device__ float sum() const { return alpha + beta; }
};
extern "C" __global__ void scale(const Arguments a) { griddepcontrol_wait(); a.y[0] = a.x[0] * a.sum(); }
"""


class Window(Structure):
    _fields_ = (("first", c_int), ("last", c_int))


class FastDivmod(Structure):
    _fields_ = (("divisor", c_uint), ("multiplier", c_uint), ("shift", c_uint))


@pytest.fixture(scope="module")
def function(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernel") / "scale.cu"
    path.write_text(SOURCE)
    return open_device("emulated").function(path, "scale")


def arguments(scalars=("alpha", "beta"), kinds=2, window=Window):
    flags = [("kind", c_uint())] if kinds == 1 else [("kind", c_int())]
    fields = [(name, c_float()) for name in scalars] + (flags if kinds == 1 else [("kinds", (c_int * 1)())])
    return structure(*pointers(2), *fields, ("row", FastDivmod()), ("pad", c_int()), ("window", (window * 2)()))


def test_fields_are_found_in_the_source():
    assert paths(SOURCE + "struct FastDivmod { unsigned divisor, multiplier, shift; };", "Arguments") == [
        "x", "y", "alpha", "beta", "kind", "flags", "row.divisor", "row.multiplier", "row.shift",
        "window", "window[0].first", "window[0].last",
    ]  # fmt: skip


def test_a_field_of_another_size_is_refused(function):
    with pytest.raises(TypeError, match="kind: the kernel has 2 bytes at 24, the host 4 at 24"):
        Launch(function, arguments(kinds=1), ("x", "y"), (1, 1, 1))
    with pytest.raises(
        TypeError, match="kind: the kernel has 2 bytes at 24, where no field of the host begins and ends"
    ):
        Launch(function, arguments(), ("x", "y"), (1, 1, 1))


def test_fields_in_another_order_are_refused(function):
    with pytest.raises(TypeError, match="alpha: the kernel has 4 bytes at 16, the host 4 at 20"):
        Launch(function, arguments(("beta", "alpha")), ("x", "y"), (1, 1, 1))


def test_fields_have_their_offset_and_size_also_in_nested_structures(function):
    assert function.fields["window[0].last"] == (44, 4) and function.fields["beta"] == (20, 4)
