"""Holds cases of the convolution descriptors and of the output dimensions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from dualdnn.api.enumerations import ENUMERATIONS, cudnnConvolutionMode_t, cudnnMathType_t, cudnnReorderType_t
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT32, NCHW
from dualdnn.api.status import BAD_PARAM
from dualdnn.conformance.marks import by_name, shows
from dualdnn.conformance.suite.fixtures import fresh_descriptor

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject

CORRELATION = cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION
COMPUTE_TYPES = (FLOAT, DOUBLE, HALF, INT32)
VALUES_2D = (1, 2, 3, 4, 5, 6)
SET_2D = "cudnnSetConvolution2dDescriptor"
OUT_2D = "cudnnGetConvolution2dForwardOutputDim"
OUT_ND = "cudnnGetConvolutionNdForwardOutputDim"


convolution = fresh_descriptor("Convolution")


@pytest.fixture
def layer(cudnn: Any, convolution: Any) -> Any:
    """Return (convolution, input, filter) of these shapes, as the calls for output dimensions take them.

    Groups are set first, because setting the convolution keeps them.
    """

    def make(x: Any, w: Any, padding: Any, stride: Any, dilation: Any, groups: int = 1) -> Any:
        cudnn.cudnnSetConvolutionGroupCount(convolution, groups)
        sizes, of = (padding, stride, dilation), (CORRELATION, FLOAT)
        if len(padding) == 2:
            cudnn.cudnnSetConvolution2dDescriptor(convolution, *padding, *stride, *dilation, *of)
        else:
            cudnn.cudnnSetConvolutionNdDescriptor(convolution, len(padding), *sizes, *of)
        tensor, filters = cudnn.cudnnCreateTensorDescriptor(), cudnn.cudnnCreateFilterDescriptor()
        cudnn.cudnnSetTensorNdDescriptorEx(tensor, NCHW, FLOAT, len(x), x)
        cudnn.cudnnSetFilterNdDescriptor(filters, FLOAT, NCHW, len(w), w)
        return convolution, tensor, filters

    return make


@shows("cudnnCreateConvolutionDescriptor/c01 c02", "cudnnConvolutionDescriptor_t/c01 c02", "cudnnReorderType_t/c02")
def test_a_fresh_descriptor_has_one_group_and_the_defaults(cudnn: Any, convolution: Any) -> None:
    assert cudnn.cudnnGetConvolutionGroupCount(convolution) == 1
    assert cudnn.cudnnGetConvolutionMathType(convolution) == cudnnMathType_t.CUDNN_DEFAULT_MATH
    assert cudnn.cudnnGetConvolutionReorderType(convolution) == 0
    numbers = {member.name: int(member) for member in ENUMERATIONS["cudnnReorderType_t"]}
    assert numbers == {"CUDNN_DEFAULT_REORDER": 0, "CUDNN_NO_REORDER": 1}


@shows("cudnnDestroyConvolutionDescriptor/c01 c02")
def test_destroy(subject: Subject, cudnn: Any, refuses: Callable[..., bool]) -> None:
    descriptor = cudnn.cudnnCreateConvolutionDescriptor()
    assert cudnn.cudnnDestroyConvolutionDescriptor(descriptor) is None
    if subject.survives_stray_pointers:
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnDestroyConvolutionDescriptor, None)
        refuses(BAD_PARAM, "cudnnGetConvolutionGroupCount/c03", cudnn.cudnnGetConvolutionGroupCount, descriptor)
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnDestroyConvolutionDescriptor, descriptor)


@shows(f"{SET_2D}/c01-c03 c11", "cudnnGetConvolution2dDescriptor/c01-c06 c08", "cudnnConvolutionMode_t/c01",
       "cudnnConvolutionDescriptor_t/c03")  # fmt: skip
@pytest.mark.parametrize("mode", list(cudnnConvolutionMode_t), ids=by_name)
@pytest.mark.parametrize("compute_type", COMPUTE_TYPES, ids=by_name)
def test_set_and_get_2d(cudnn: Any, convolution: Any, mode: Any, compute_type: Any) -> None:
    for values in (VALUES_2D, (0, 0, 1, 1, 1, 1), (2**31 - 1,) * 6):
        cudnn.cudnnSetConvolution2dDescriptor(convolution, *values, mode, compute_type)
        assert tuple(cudnn.cudnnGetConvolution2dDescriptor(convolution)) == (*values, mode, compute_type)
        padding, stride, dilation = values[:2], values[2:4], values[4:]
        got = cudnn.cudnnGetConvolutionNdDescriptor(convolution, 2)
        assert tuple(got) == (2, padding, stride, dilation, mode, compute_type)


@shows("cudnnSetConvolutionNdDescriptor/c01 c02 c04-c08 c11", "cudnnConvolutionDescriptor_t/c03",
       "cudnnGetConvolutionNdDescriptor/c01-c08")  # fmt: skip
@pytest.mark.parametrize("mode", list(cudnnConvolutionMode_t), ids=by_name)
@pytest.mark.parametrize("rank", range(7))
def test_set_and_get_nd(cudnn: Any, convolution: Any, rank: int, mode: Any) -> None:
    padding, stride, dilation = (tuple(range(start, start + rank)) for start in (0, 10, 20))
    for compute_type in COMPUTE_TYPES:
        cudnn.cudnnSetConvolutionNdDescriptor(convolution, rank, padding, stride, dilation, mode, compute_type)
        for requested in (rank, 0, max(0, rank - 1)):
            got = cudnn.cudnnGetConvolutionNdDescriptor(convolution, requested)
            arrays = tuple(values[:requested] for values in (padding, stride, dilation))
            assert tuple(got) == (rank, *arrays, mode, compute_type)


OPTIONS: dict[str, Any] = {
    "MathType": list(cudnnMathType_t),
    "GroupCount": [1, 2, 7, 2**31 - 1],
    "ReorderType": list(cudnnReorderType_t),
}


@shows("cudnnSetConvolutionMathType/c01 c02", "cudnnGetConvolutionMathType/c01 c02", "cudnnSetConvolutionGroupCount/c01 c02",
       "cudnnGetConvolutionGroupCount/c01 c02", "cudnnSetConvolutionReorderType/c01 c03", "cudnnGetConvolutionReorderType/c01 c03",
       "cudnnReorderType_t/c01", "cudnnMathType_t/c01")  # fmt: skip
@pytest.mark.parametrize("option", OPTIONS)
def test_options_are_kept(cudnn: Any, convolution: Any, option: Any) -> None:
    """Options may be set before the convolution, which keeps them (docs/errata.md, D193)."""
    put, get = getattr(cudnn, f"cudnnSetConvolution{option}"), getattr(cudnn, f"cudnnGetConvolution{option}")
    for value in OPTIONS[option]:
        put(convolution, value)
        assert get(convolution) == value
        cudnn.cudnnSetConvolution2dDescriptor(convolution, *VALUES_2D, CORRELATION, FLOAT)
        assert get(convolution) == value
        cudnn.cudnnSetConvolutionNdDescriptor(convolution, 1, (0,), (1,), (1,), CORRELATION, FLOAT)
        assert get(convolution) == value


def steps(size: int, taps: int, padding: int, stride: int, dilation: int) -> int:
    """Count the positions that a window can take, one by one."""
    count, start = 0, -padding
    while start + (taps - 1) * dilation <= size + padding - 1:
        count += 1
        start += stride
    return count


@shows(f"{OUT_2D}/c01-c04 c09", f"{OUT_ND}/c01-c03 c12")
@pytest.mark.parametrize("taps, stride", list(product((1, 2, 3), (1, 2, 3))))
def test_output_dimensions(cudnn: Any, layer: Any, taps: Any, stride: Any) -> None:
    for size, padding, dilation in product((5, 6, 7), (0, 1, 2), (1, 2, 3)):
        if (taps - 1) * dilation + 1 > min(size + 2 * padding, 8):
            continue
        made = layer((2, 4, size, 8), (6, 4, taps, taps), (padding, 0), (stride, 1), (dilation, 1))
        expected = (2, 6, steps(size, taps, padding, stride, dilation), steps(8, taps, 0, 1, 1))
        assert tuple(cudnn.cudnnGetConvolution2dForwardOutputDim(*made)) == expected
        assert cudnn.cudnnGetConvolutionNdForwardOutputDim(*made, 4) == expected


@shows(f"{OUT_ND}/c01-c03")
@pytest.mark.parametrize("rank", range(1, 7))
def test_output_dimensions_nd(cudnn: Any, layer: Any, rank: int) -> None:
    sizes = (5, 6, 7, 4, 3, 3)[:rank]
    made = layer((2, 6, *sizes), (4, 3, *[2] * rank), (1,) * rank, (2,) * rank, (1,) * rank, groups=2)
    expected = (2, 4, *(steps(size, 2, 1, 2, 1) for size in sizes))
    for asked in range(rank + 3):
        assert cudnn.cudnnGetConvolutionNdForwardOutputDim(*made, asked) == expected[:asked]


@shows(f"{OUT_ND}/c10")
def test_output_of_a_filter_as_large_as_the_padded_input(cudnn: Any, refuses: Callable[..., bool], layer: Any) -> None:
    for taps, dilation in ((7, 1), (3, 3), (4, 2)):
        window = (taps - 1) * dilation + 1
        assert tuple(cudnn.cudnnGetConvolution2dForwardOutputDim(*layer((1, 1, window - 2, 9), (1, 1, taps, 1), (1, 0), (1, 1), (dilation, 1)))) == (1, 1, 1, 9)  # fmt: skip
        larger = layer((1, 1, window - 3, 9), (1, 1, taps, 1), (1, 0), (1, 1), (dilation, 1))
        refuses(BAD_PARAM, f"{OUT_ND}/c10", cudnn.cudnnGetConvolutionNdForwardOutputDim, *larger, 4)
        refuses(BAD_PARAM, f"{OUT_ND}/c10", cudnn.cudnnGetConvolution2dForwardOutputDim, *larger)


ONE = (1, 1)


@shows(f"{OUT_2D}/c02")
def test_output_dimensions_fit_an_int(subject: Subject, cudnn: Any, refuses: Callable[..., bool], layer: Any) -> None:
    two, many = cudnn.cudnnGetConvolution2dForwardOutputDim, cudnn.cudnnGetConvolutionNdForwardOutputDim
    largest = layer((1, 1, 1, 4), (1, 1, 1, 1), (2**30 - 1, 0), ONE, ONE)
    assert tuple(two(*largest)) == tuple(many(*largest, 4)) == (1, 1, 2**31 - 1, 4)
    if not subject.cites_clauses:
        return  # The document leaves open what a size beyond int gives.
    for image, padding in ((1, 2**30), (2**31 - 1, 1), (4, 2**31 - 1)):
        larger = layer((1, 1, image, 1), (1, 1, 1, 1), (padding, 0), ONE, ONE)
        refuses(BAD_PARAM, "cudnnStatus_t/c05", two, *larger)
        refuses(BAD_PARAM, "cudnnStatus_t/c05", many, *larger, 4)
