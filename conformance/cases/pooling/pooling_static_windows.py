"""Holds cases of pooling with the windows for which a backend may compile kernels.

They cover row lengths, channels and layouts that change how memory can be accessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.operations import PoolingBackward, PoolingForward
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import prepare
from dualdnn.reference.engine import run

from .pooling import AVERAGES, MAXIMA, Geometry, backward, forward

# Each is (window, stride, padding) along every axis.
STANDARD, PADDED, LARGE = (3, 2, 0), (3, 2, 1), (7, 7, 0)
PAIRS = (2, 2, 0)
# Rows consist of whole packs of 16 or 8 bytes, of pairs, or neither. Channels come in packs, a few at a time, or
# neither.
IMAGES = {
    "16": ((2, 3, 8, 16), "nchw"), "12": ((2, 3, 7, 12), "nchw"), "14": ((1, 2, 6, 14), "nchw"),
    "11": ((2, 3, 9, 11), "nchw"), "gaps": ((2, 3, 8, 12), "gaps"), "8-channels": ((2, 8, 7, 10), "nhwc"),
    "3-channels": ((2, 3, 6, 16), "nhwc"), "5-channels": ((2, 5, 7, 6), "nhwc"),
}  # fmt: skip
VOLUMES = {
    "3d-16": ((1, 2, 4, 8, 16), "nchw"), "3d-20": ((1, 2, 5, 9, 20), "nchw"), "3d-14": ((2, 1, 7, 6, 14), "nchw"),
    "3d-11": ((1, 2, 5, 6, 11), "nchw"), "3d-16-channels": ((1, 16, 5, 7, 6), "nhwc"),
    "3d-5-channels": ((1, 5, 4, 5, 6), "nhwc"), "3d-odd": ((1, 2, 5, 8, 16), "nchw"),
}  # fmt: skip
LARGE_IMAGES = {
    "28": ((2, 11, 14, 28), "nchw"), "16": ((1, 2, 7, 16), "nchw"), "14": ((1, 3, 21, 14), "nchw"), "11": ((1, 2, 15, 11), "nchw"),
    "8-channels": ((1, 8, 14, 15), "nhwc"),
}  # fmt: skip
MANY_WINDOWS = {
    "rows": (HALF, (8, 34, 64, 64), "nchw"), "elements": (FLOAT, (8, 8, 23, 95), "nchw"),
    "channels": (HALF, (8, 64, 47, 46), "nhwc"), "few-channels": (FLOAT, (12, 5, 23, 95), "nhwc"),
}  # fmt: skip
PARTED = {
    "packs": (HALF, (1, 2, 3, 30, 128), "nchw"), "elements": (FLOAT, (1, 1, 2, 70, 65), "nchw"),
    "rows-of-channels": (HALF, (1, 16, 3, 33, 5), "nhwc"), "columns-of-channels": (HALF, (1, 16, 3, 5, 40), "nhwc"),
    "channels": (FLOAT, (1, 8, 2, 20, 33), "nhwc"), "few-channels": (FLOAT, (1, 5, 2, 20, 16), "nhwc"),
    "rows-of-few-channels": (FLOAT, (1, 3, 2, 40, 64), "nhwc"), "columns-of-an-image": (HALF, (1, 8, 6, 129), "nhwc"),
}  # fmt: skip
SHAPES = IMAGES | VOLUMES
# One window meets every shape in two data types; the others, and other types, meet the shapes whose kernels differ for
# them.
FEW = ("16", "11", "8-channels", "3d-16", "3d-16-channels")
COMBINATIONS = [
    *((PADDED, data_type, name) for data_type in (FLOAT, HALF) for name in SHAPES),
    *((PAIRS, FLOAT, name) for name in FEW),
    *((STANDARD, HALF, name) for name in FEW),
]


# Half of the inputs are maxima in one row or one line, so that gradients without factors are not mostly zeros.
FLAT = {
    "16": ((2, 3, 1, 16), "nchw"), "14": ((2, 3, 1, 14), "nchw"), "11": ((3, 3, 1, 11), "nchw"),
    "8-channels": ((2, 8, 1, 10), "nhwc"), "5-channels": ((2, 5, 1, 12), "nhwc"), "3d-16": ((1, 6, 1, 1, 16), "nchw"),
    "3d-16-channels": ((2, 16, 1, 1, 10), "nhwc"),
}  # fmt: skip


def geometry_of(window: tuple[int, int, int], dims: tuple[int, ...]) -> Geometry:
    """Return a pooling with the same window along every axis; its outputs are the advised ones."""
    rank = len(dims) - 2
    size, stride, padding = window
    return Geometry(dims, (size,) * rank, (padding,) * rank, (stride,) * rank)


def forward_operations(
    window: tuple[int, int, int], data_type: Any, dims: Any, layout: str
) -> Iterator[PoolingForward]:
    """Return maxima with and without NaN, and averages that count the padding or do not."""
    geometry = geometry_of(window, dims)
    yield forward(MAXIMA[0], geometry, data_type, layout, layout, nan=Nan.CUDNN_PROPAGATE_NAN)
    yield forward(MAXIMA[1], geometry, data_type, layout, layout, alpha=-1.5, beta=0.5)
    yield forward(AVERAGES[0], geometry, data_type, layout, layout)
    yield forward(AVERAGES[1], geometry, data_type, layout, layout, alpha=0.5, beta=-1.0)


def backward_operations(
    window: tuple[int, int, int], data_type: Any, dims: Any, layout: str
) -> Iterator[PoolingBackward]:
    """Return gradients of the same, with beta, so that most of dx is not zero."""
    geometry = geometry_of(window, dims)
    yield backward(MAXIMA[0], geometry, data_type, layout, layout, nan=Nan.CUDNN_PROPAGATE_NAN, alpha=-1.5, beta=0.5)
    yield backward(MAXIMA[1], geometry, data_type, layout, layout, beta=1.0)
    yield backward(AVERAGES[0], geometry, data_type, layout, layout)
    yield backward(AVERAGES[1], geometry, data_type, layout, layout, alpha=0.5, beta=-1.0)


def with_ties(operation: PoolingForward | PoolingBackward, inputs: str = "ties_and_nan") -> dict[str, Any]:
    """Return memory whose x has equal maxima and whose y is the forward result.

    Unless ``inputs`` are others, x also has windows of NaN alone, and negative infinities.
    """
    memory = prepare(operation, {"x": inputs}, 0)
    if isinstance(operation, PoolingBackward):
        made = {"x": memory["x"], "y": memory["y"]}
        run(PoolingForward(operation.pooling, 1.0, 0.0, operation.x, operation.y), made)
    return memory


def named(value: Any) -> str:
    return getattr(value, "name", "") or "x".join(map(str, value)) if not isinstance(value, str) else value


@shows("cudnnPoolingForward/c01 c15", "cudnnSetPooling2dDescriptor/c03", "cudnnSetPoolingNdDescriptor/c03", "cudnnNanPropagation_t/c01")  # fmt: skip
@pytest.mark.parametrize("window, data_type, shape", COMBINATIONS, ids=named)
def test_forward_with_ties(trial, window, data_type, shape):
    for operation in forward_operations(window, data_type, *SHAPES[shape]):
        trial(operation, before=with_ties(operation))


@shows("cudnnPoolingForward/c01", "cudnnSetPooling2dDescriptor/c03", "cudnnNanPropagation_t/c01")
@pytest.mark.parametrize("shape", LARGE_IMAGES)
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
def test_forward_of_large_windows_with_ties(trial, data_type, shape):
    """Windows of 7x7 end beyond x, inside the padding, where x has 15 or 11 positions. Rows fill a block and part of
    another."""
    dims, layout = LARGE_IMAGES[shape]
    for operation in forward_operations(LARGE, data_type, dims, layout):
        trial(operation, before=with_ties(operation))


@shows("cudnnPoolingForward/c01", "cudnnSetPooling2dDescriptor/c03")
@pytest.mark.parametrize("shape", MANY_WINDOWS)
def test_forward_of_many_windows(trial, shape):
    """Threads have two rows of windows, and 16 bytes of channels, also on a large GPU."""
    for operation in islice(forward_operations(PADDED, *MANY_WINDOWS[shape]), 0, None, 3):
        trial(operation, before=with_ties(operation))


@shows("cudnnPoolingBackward/c01 c08", "cudnnSetPooling2dDescriptor/c03", "cudnnSetPoolingNdDescriptor/c03")
@pytest.mark.parametrize("window, data_type, shape", COMBINATIONS, ids=named)
def test_gradient_with_ties(trial, window, data_type, shape):
    for operation in backward_operations(window, data_type, *SHAPES[shape]):
        trial(operation, before=with_ties(operation))


@shows("cudnnPoolingForward/c01")
def test_threads_of_several_planes(trial):
    """Threads have some windows along the first axis, one after the other, because there are many volumes."""
    for operation in islice(forward_operations(PADDED, HALF, (1, 33, 9, 8, 16), "nchw"), 0, None, 3):
        trial(operation, before=with_ties(operation))


@shows("cudnnPoolingBackward/c01")
@pytest.mark.parametrize("shape", PARTED)
def test_gradient_of_planes_in_parts(trial, shape):
    """There are more rows or columns of windows than a block has. A block also finds the maxima of windows around
    its own."""
    for window in (PADDED, STANDARD) if PARTED[shape][0] == HALF else (PADDED,):
        operation = next(backward_operations(window, *PARTED[shape]))
        trial(operation, before=with_ties(operation))


@shows("cudnnPoolingBackward/c01 c07")
@pytest.mark.parametrize("shape", FLAT)
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
def test_gradient_without_factors(trial, data_type, shape):
    dims, layout = FLAT[shape]
    for nan in Nan:
        operation = backward(MAXIMA[0], geometry_of(PADDED, dims), data_type, layout, layout, nan=nan)
        trial(operation, before=with_ties(operation))


@shows("cudnnPoolingBackward/c07")
@pytest.mark.parametrize("shape", ["8-channels", "3d-16"])
@pytest.mark.parametrize("data_type", [DOUBLE, BFLOAT16], ids=lambda t: t.name)
def test_gradient_of_other_types_with_ties(trial, data_type, shape):
    for operation in backward_operations(PADDED, data_type, *SHAPES[shape]):
        trial(operation, before=with_ties(operation))


@shows("cudnnPoolingBackward/c01")
@pytest.mark.parametrize("layout", ["nchw", "nhwc", "gaps"])
@pytest.mark.parametrize("mode", MAXIMA, ids=lambda m: m.name)
def test_gradient_goes_to_the_first_of_equal_maxima_of_volumes(trial, mode, layout):
    """Windows of 5x5x5 overlap in planes, rows and columns: the gradient goes to the first maximum in row-major
    order."""
    geometry = geometry_of((5, 3, 1), (2, 4, 8, 9, 11))
    operation = backward(mode, geometry, FLOAT, layout, layout, beta=1.0)
    for inputs in ("ties", "ties_and_nan"):
        trial(operation, before=with_ties(operation, inputs))
