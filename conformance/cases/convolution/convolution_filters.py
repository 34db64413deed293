"""Holds cases of cudnnIm2Col and cudnnReorderFilterAndBias."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnConvolutionMode_t, cudnnReorderType_t
from dualdnn.api.operations import FilterSpec, Im2Col, TensorSpec
from dualdnn.api.operations.specs import FLOAT, NCHW, NCHW_VECT_C, INT8x32
from dualdnn.conformance.calls import sized
from dualdnn.conformance.marks import shows

from .convolution import PRECOMP, convolution

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller

I = "cudnnIm2Col"  # noqa: E741 (as in the clause ids)
R = "cudnnReorderFilterAndBias"
REORDER, COPY = cudnnReorderType_t


def im2col(
    x: tuple[int, ...] = (2, 3, 5, 4), w: tuple[int, ...] = (4, 3, 3, 2), *, data_type: Any = FLOAT, **options: Any
) -> Im2Col:
    spec = convolution(x, (w[0], x[1], *w[2:]), **options).convolution
    dims = spec.output_dims(x, w)
    matrix = TensorSpec.packed(data_type, (dims[0] * prod(dims[2:]), prod(w[1:])))
    return Im2Col(spec, FilterSpec(FLOAT, NCHW, w), TensorSpec.packed(data_type, x), matrix)


@shows(f"{I}/c01")
def test_im2col_times_filter_is_the_convolution(caller: Caller) -> None:
    """The im2col matrix times the filter equals the convolution, by two calls of the subject."""
    x = np.random.default_rng(1).integers(-4, 5, (2, 3, 5, 4)).astype(np.float32)
    w = np.random.default_rng(2).integers(-4, 5, (4, 3, 3, 2)).astype(np.float32)
    for mode in cudnnConvolutionMode_t:
        operation = im2col(mode=mode, stride=(2, 1))
        columns = caller.handle.allocate(operation.colBuffer.nbytes)
        source = caller.handle.to_device(x)
        caller(operation, {"srcData": source, "colBuffer": columns})
        matrix = columns.to_host(np.float32, operation.colBuffer.dims)
        forward = sized(caller, convolution(x.shape, w.shape, mode=mode, stride=(2, 1), algo=PRECOMP))
        y = caller.handle.allocate(forward.y.nbytes)
        workspace = caller.handle.allocate(max(1, forward.workspace_bytes))
        caller(forward, {"x": source, "w": caller.handle.to_device(w), "y": y, "workSpace": workspace})
        expected = np.moveaxis((matrix @ w.reshape(4, -1).T).reshape(2, *forward.y.dims[2:], 4), -1, 1)
        assert np.array_equal(y.to_host(np.float32, forward.y.dims), expected)


def filters(*dims: int) -> FilterSpec:
    return FilterSpec(INT8x32, NCHW_VECT_C, dims)


@shows(f"{R}/c01")
def test_a_reordered_filter_computes_the_same(caller: Caller) -> None:
    """A reordered filter with CUDNN_NO_REORDER gives the same result, whatever the permutation."""
    operation = sized(caller, convolution((1, 64, 5, 4), (64, 64, 3, 3), configuration="INT8x32", formats=NCHW_VECT_C, algo=PRECOMP, alpha=1 / 256))  # fmt: skip
    random = np.random.default_rng(11)
    handle, cudnn = caller.handle, caller.cudnn
    x, w = (handle.to_device(random.integers(-128, 128, operation.nbytes(name)).astype(np.int8)) for name in ("x", "w"))
    reordered = handle.allocate(operation.w.nbytes)
    cudnn.cudnnReorderFilterAndBias(handle, caller.filter(operation.w), REORDER, w, reordered, 0, None, None)
    results = []
    for given, reorder_type in ((w, REORDER), (reordered, COPY)):
        chosen = sized(
            caller, replace(operation, convolution=replace(operation.convolution, reorder_type=reorder_type))
        )
        y, workspace = handle.allocate(operation.y.nbytes), handle.allocate(max(1, chosen.workspace_bytes))
        caller(chosen, {"x": x, "w": given, "y": y, "workSpace": workspace})
        results.append(y.to_host(np.int8, operation.y.nbytes))
    assert np.array_equal(*results)
    assert np.count_nonzero(results[0]) > results[0].size / 2
    assert not np.array_equal(w.to_host(np.int8, operation.w.nbytes), reordered.to_host(np.int8, operation.w.nbytes))


@shows(f"{R}/c06 c07")
@pytest.mark.parametrize("asked", [0, -1, -5])
def test_the_bias_is_left_alone(caller: Caller, asked: int) -> None:
    handle, spec = caller.handle, filters(32, 32, 1, 1)
    w, reordered = handle.to_device(np.arange(1024).astype(np.int8)), handle.allocate(1024)
    given, written = handle.to_device(np.arange(32, dtype=np.float32)), handle.to_device(np.full(32, 7, np.float32))
    caller.cudnn.cudnnReorderFilterAndBias(handle, caller.filter(spec), REORDER, w, reordered, asked, given, written)
    assert np.array_equal(written.to_host(np.float32, 32), np.full(32, 7, np.float32))
    caller.cudnn.cudnnReorderFilterAndBias(handle, caller.filter(spec), REORDER, w, reordered, asked, None, None)
