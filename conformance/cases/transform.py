"""Holds cases of the transform family."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnFoldingDirection_t
from dualdnn.api.operations import (
    FilterSpec,
    TensorSpec,
    TransformFilter,
    TransformSpec,
    TransformTensor,
    TransformTensorEx,
)
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT8, INT32, NCHW, NHWC
from dualdnn.api.operations.transform import destination_dims
from dualdnn.api.status import BAD_PARAM
from dualdnn.conformance.marks import by_name, shows
from dualdnn.conformance.suite.fixtures import fresh_descriptor
from dualdnn.reference.view import NUMPY_TYPES

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject

FOLD = cudnnFoldingDirection_t.CUDNN_TRANSFORM_FOLD
UNFOLD = cudnnFoldingDirection_t.CUDNN_TRANSFORM_UNFOLD
DIMS = (2, 3, 5, 7)


def moved(x: TensorSpec, y: TensorSpec) -> TransformTensor:
    return TransformTensor(1.0, 0.0, x, y)


def changing(rank: int = 4, before: tuple[int, ...] = (), after: tuple[int, ...] = (), fold: tuple[int, ...] = (),
             direction: cudnnFoldingDirection_t = FOLD, tensor_format: Any = NCHW) -> TransformSpec:  # fmt: skip
    none = (0,) * rank
    return TransformSpec(tensor_format, before or none, after or none, fold or none[2:], direction)


def applied(transform: TransformSpec, dims: tuple[int, ...], data_type: Any = FLOAT, source_format: Any = NCHW, *, filters: bool = False,
            into: Any = None, alpha: float = 1.0, beta: float = 0.0) -> TransformTensorEx | TransformFilter:  # fmt: skip
    """Return the transform of a packed tensor or filter into its result."""
    results = destination_dims(transform, dims)
    into = into if into is not None else data_type
    if filters:
        specs = FilterSpec(data_type, source_format, dims), FilterSpec(into, transform.format, results)
        return TransformFilter(transform, alpha, beta, *specs)
    tensors = TensorSpec.packed(data_type, dims, source_format), TensorSpec.packed(into, results, transform.format)
    return TransformTensorEx(transform, alpha, beta, *tensors)


# --- cudnnTransformTensor ---


@shows("cudnnTransformTensor/c01")
@pytest.mark.parametrize("values", [(2**24 + 1, -(2**31), 2**31 - 1, -(2**30) - 1)], ids=["integers_beyond_float"])
def test_data_is_moved_unchanged(caller: Caller, values: Any) -> None:
    """Integers that no float holds arrive unchanged."""
    x, y = TensorSpec.packed(INT32, (1, 4, 2, 2), NCHW), TensorSpec.packed(INT32, (1, 4, 2, 2), NHWC)
    data = np.repeat(np.array(values, np.int32), 4).reshape(1, 4, 2, 2)
    source, result = caller.handle.to_device(data), caller.handle.allocate(data.nbytes)
    caller(moved(x, y), {"x": source, "y": result})
    assert np.array_equal(result.to_host(np.int32, (1, 2, 2, 4)), data.transpose(0, 2, 3, 1))


@shows("cudnnTransformTensor/c03")
def test_partial_overlap_is_refused(caller: Caller, refuses: Callable[..., bool]) -> None:
    x, y = TensorSpec.packed(FLOAT, DIMS), TensorSpec.packed(FLOAT, DIMS, NHWC)
    memory = caller.handle.to_device(np.ones(2 * x.count, np.float32))
    operands = {"x": memory.slice(0, x.nbytes), "y": memory.slice(x.nbytes - 4, y.nbytes)}
    refuses(BAD_PARAM, "cudnnTransformTensor/c03", caller, moved(x, y), operands, unchanged=(memory,))
    caller(moved(x, y), {"x": memory.slice(0, x.nbytes), "y": memory.slice(x.nbytes, y.nbytes)})


# --- cudnnTransformTensorEx and cudnnTransformFilter, whose clauses have the same numbers ---

BOTH = pytest.mark.parametrize("filters", [False, True], ids=["tensor", "filter"])


def both(*numbers: str) -> Any:
    return shows(
        *(f"{name}/{number}" for name in ("cudnnTransformTensorEx", "cudnnTransformFilter") for number in numbers)
    )


MAX_INT = 2**31 - 1


@pytest.mark.ours
@both("c09")
@BOTH
@pytest.mark.parametrize("source, into", [(FLOAT, DOUBLE), (HALF, FLOAT)], ids=by_name)
def test_factors_beside_other_types(caller: Caller, source: Any, into: Any, filters: Any) -> None:
    """Factors are doubles for a DOUBLE destination, else floats; these factors are not exact in float."""
    operation = applied(changing(tensor_format=NHWC), DIMS, source, into=into, filters=filters, alpha=0.1, beta=0.3)
    first, second = (NUMPY_TYPES[kind].type for kind in (source, into))
    count = int(np.prod(DIMS))
    memory = {
        "srcData": caller.handle.to_device(np.ones(count, first)),
        "destData": caller.handle.to_device(np.ones(count, second)),
    }
    caller(operation, memory)
    exact = 0.1 + 0.3 if into == DOUBLE else float(np.float32(0.1)) + float(np.float32(0.3))
    found = memory["destData"].to_host(second, count).astype(np.float64)
    assert np.abs(found - exact).max() <= exact * 2.0 ** (-52 if into == DOUBLE else -24)


# --- transform descriptors ---

fresh = fresh_descriptor("TensorTransform")


@shows("cudnnCreateTensorTransformDescriptor/c01 c02 c04 c05")
def test_fresh_is_all_zeros(cudnn: Any, fresh: Any) -> None:
    assert cudnn.cudnnGetTensorTransformDescriptor(fresh, 4) == (NCHW, (0,) * 4, (0,) * 4, (0, 0), FOLD)
    assert cudnn.cudnnGetTensorTransformDescriptor(fresh, 8) == (NCHW, (0,) * 8, (0,) * 8, (0,) * 6, FOLD)


@shows("cudnnDestroyTensorTransformDescriptor/c01 c02", "cudnnTensorTransformDescriptor_t/c01")
def test_create_and_destroy(subject: Subject, cudnn: Any, refuses: Callable[..., bool]) -> None:
    first, second = (cudnn.cudnnCreateTensorTransformDescriptor() for _ in range(2))
    cudnn.cudnnSetTensorTransformDescriptor(first, 4, NHWC, (0, 0, 1, 1), None, None, UNFOLD)
    cudnn.cudnnSetTensorTransformDescriptor(second, 3, NCHW, None, None, (2,), FOLD)
    cudnn.cudnnDestroyTensorTransformDescriptor(first)
    assert cudnn.cudnnGetTensorTransformDescriptor(second, 3) == (NCHW, (0, 0, 0), (0, 0, 0), (2,), FOLD)
    if subject.survives_stray_pointers:  # Other subjects would read freed memory.
        refuses(BAD_PARAM, "cudnnGetTensorTransformDescriptor/c09", cudnn.cudnnGetTensorTransformDescriptor, first, 4)
    cudnn.cudnnDestroyTensorTransformDescriptor(second)


@shows("cudnnSetTensorTransformDescriptor/c01-c04 c06 c08 c10 c12", "cudnnCreateTensorTransformDescriptor/c03",
       "cudnnGetTensorTransformDescriptor/c01-c06 c08")  # fmt: skip
@pytest.mark.parametrize("rank", range(3, 9))
@pytest.mark.parametrize("tensor_format, direction", [(NCHW, FOLD), (NHWC, UNFOLD)], ids=["NCHW-fold", "NHWC-unfold"])
def test_set_and_get(cudnn: Any, fresh: Any, rank: int, tensor_format: Any, direction: Any) -> None:
    before, after, fold = (
        tuple(range(start, start + count)) for start, count in ((1, rank), (-3, rank), (2, rank - 2))
    )
    cudnn.cudnnSetTensorTransformDescriptor(fresh, rank, tensor_format, before, after, fold, direction)
    zeros, read = (0,) * (8 - rank), cudnn.cudnnGetTensorTransformDescriptor
    assert read(fresh, rank) == (tensor_format, before, after, fold, direction)
    assert read(fresh, 8) == (tensor_format, before + zeros, after + zeros, fold + zeros, direction)
    assert read(fresh, 3) == (tensor_format, before[:3], after[:3], fold[:1], direction)


NULL_ARRAYS = shows(*(f"cudnnSetTensorTransformDescriptor/{number}" for number in ("c05", "c07", "c09")))


@NULL_ARRAYS
def test_null_arrays_mean_none(cudnn: Any, fresh: Any) -> None:
    cudnn.cudnnSetTensorTransformDescriptor(fresh, 4, NHWC, None, None, None, UNFOLD)
    assert cudnn.cudnnGetTensorTransformDescriptor(fresh, 4) == (NHWC, (0,) * 4, (0,) * 4, (0, 0), UNFOLD)


@NULL_ARRAYS
def test_null_arrays_replace_what_was_set(cudnn: Any, fresh: Any) -> None:
    cudnn.cudnnSetTensorTransformDescriptor(fresh, 4, NCHW, (1, 1, 1, 1), (2, 2, 2, 2), (3, 3), FOLD)
    cudnn.cudnnSetTensorTransformDescriptor(fresh, 4, NHWC, None, None, None, UNFOLD)
    assert cudnn.cudnnGetTensorTransformDescriptor(fresh, 4) == (NHWC, (0,) * 4, (0,) * 4, (0, 0), UNFOLD)


@shows("cudnnFoldingDirection_t/c01")
def test_direction_values(cudnn: Any, fresh: Any) -> None:
    assert (int(FOLD), int(UNFOLD)) == (0, 1)
    for value, direction in ((0, FOLD), (1, UNFOLD)):
        cudnn.cudnnSetTensorTransformDescriptor(fresh, 4, NCHW, None, None, None, value)
        assert cudnn.cudnnGetTensorTransformDescriptor(fresh, 4).direction == direction


# --- cudnnInitTransformDest ---

DESTINATIONS = [
    (None, None, None, FOLD, (2, 3, 4, 6), (2, 3, 4, 6)), ((0, 1, 2, 3), (0, 2, 1, 0), None, FOLD, (2, 3, 4, 6), (2, 6, 7, 9)),
    ((1, 0, 0, 0), (2, 0, 0, 0), None, FOLD, (2, 3, 4, 6), (5, 3, 4, 6)), ((0, 0, -1, 0), (0, 0, 0, -2), None, FOLD, (2, 3, 4, 6), (2, 3, 3, 4)),
    (None, None, (2, 3), FOLD, (2, 3, 4, 6), (2, 18, 2, 2)), (None, None, (2, 2), FOLD, (2, 3, 5, 7), (2, 12, 3, 4)),
    (None, None, (0, 2), FOLD, (2, 3, 4, 6), (2, 6, 4, 3)), (None, None, (5, 7), FOLD, (2, 3, 4, 6), (2, 105, 1, 1)),
    (None, None, (2, 3), UNFOLD, (2, 12, 4, 6), (2, 2, 8, 18)), (None, None, (2, 2), UNFOLD, (2, 6, 5, 7), (2, 2, 10, 14)),
    ((0, 1, 1, 0), (0, 0, 1, 2), (2, 2), FOLD, (2, 3, 4, 6), (2, 16, 3, 4)),
    ((0, 1, 1, 0), (0, 0, 1, 2), (2, 2), UNFOLD, (2, 8, 4, 6), (2, 3, 10, 14)),
]  # fmt: skip


@shows("cudnnInitTransformDest/c01-c03 c05", "cudnnSetTensorTransformDescriptor/c03 c08")
@pytest.mark.parametrize(
    "data_type, nbytes", [(FLOAT, 4), (HALF, 2), (INT8, 1)], ids=lambda t: getattr(t, "name", None)
)
@pytest.mark.parametrize("tensor_format", [NCHW, NHWC], ids=by_name)
@pytest.mark.parametrize("before, after, fold, direction, dims, expected", DESTINATIONS, ids=str)
def test_destination(
    cudnn: Any,
    fresh: Any,
    before: Any,
    after: Any,
    fold: Any,
    direction: Any,
    dims: Any,
    expected: Any,
    tensor_format: Any,
    data_type: Any,
    nbytes: int,
) -> None:
    """The destination has the dimensions, packed in the format, whatever the layout of the source."""
    source, destination = cudnn.cudnnCreateTensorDescriptor(), cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensorNdDescriptor(source, data_type, 4, dims, (1000, 1, 200, 20))
    cudnn.cudnnSetTensorTransformDescriptor(fresh, 4, tensor_format, before, after, fold, direction)
    size = cudnn.cudnnInitTransformDest(fresh, source, destination)
    n, c, h, w = expected
    strides = (c * h * w, h * w, w, 1) if tensor_format == NCHW else (c * h * w, 1, w * c, c)
    assert cudnn.cudnnGetTensorNdDescriptor(destination, 4) == (data_type, 4, expected, strides)
    assert size == n * c * h * w * nbytes
