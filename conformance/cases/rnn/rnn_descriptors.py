"""Holds cases of RNN descriptors: both generations of setters and getters, clipping."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from dualdnn.api import cudnn as api
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.api.status import BAD_PARAM, NOT_INITIALIZED, NOT_SUPPORTED
from dualdnn.conformance.marks import needs, shows
from dualdnn.conformance.suite.fixtures import fresh_descriptor

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject

STANDARD, STATIC, DYNAMIC = api.cudnnRNNAlgo_t
RELU, TANH, LSTM, GRU = api.cudnnRNNMode_t
NO_BIAS, INPUT_BIAS, DOUBLE_BIAS, RECURRENT_BIAS = api.cudnnRNNBiasMode_t
ONE_WAY, TWO_WAYS = api.cudnnDirectionMode_t
LINEAR, SKIP = api.cudnnRNNInputMode_t
NONE, MINMAX = api.cudnnRNNClipMode_t
NOT_PROPAGATE, PROPAGATE = api.cudnnNanPropagation_t
UNPADDED, PADDED = api.cudnnRNNPaddingMode_t
DEFAULT = api.CUDNN_DEFAULT_MATH
TENSOR_OP = api.CUDNN_TENSOR_OP_MATH
CONVERSION = api.CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION
SET = "cudnnSetRNNDescriptor_v8"
GET = "cudnnGetRNNDescriptor_v8"
V6 = "cudnnSetRNNDescriptor_v6"
GOOD = {
    "algo": STANDARD, "cellMode": LSTM, "biasMode": INPUT_BIAS, "dirMode": TWO_WAYS, "inputMode": SKIP, "dataType": HALF,
    "mathPrec": FLOAT, "mathType": TENSOR_OP, "inputSize": 5, "hiddenSize": 7, "projSize": 3, "numLayers": 2,
    "dropoutDesc": None, "auxFlags": PADDED,
}  # fmt: skip
PLAIN = {
    **GOOD, "cellMode": GRU, "biasMode": DOUBLE_BIAS, "dirMode": ONE_WAY, "inputMode": LINEAR, "dataType": FLOAT,
    "mathType": DEFAULT, "projSize": 7, "auxFlags": UNPADDED,
}  # fmt: skip
V6_GOOD = {
    "hiddenSize": 7, "numLayers": 2, "dropoutDesc": None, "inputMode": SKIP, "direction": TWO_WAYS, "mode": LSTM,
    "algo": STANDARD, "mathPrec": DOUBLE,
}  # fmt: skip
fresh = fresh_descriptor("RNN")


def describe(cudnn: Any, descriptor: Any, base: Any = GOOD, **changes: Any) -> None:
    cudnn.cudnnSetRNNDescriptor_v8(descriptor, *{**base, **changes}.values())


def describe_v6(cudnn: Any, handle: Any, descriptor: Any, **changes: Any) -> None:
    cudnn.cudnnSetRNNDescriptor_v6(handle, descriptor, *{**V6_GOOD, **changes}.values())


def read(cudnn: Any, descriptor: Any) -> Any:
    return dict(zip(GOOD, cudnn.cudnnGetRNNDescriptor_v8(descriptor), strict=True))


@shows("cudnnCreateRNNDescriptor/c01 c02", "cudnnDestroyRNNDescriptor/c01 c02", "cudnnRNNDescriptor_t/c01 c02")
def test_create_and_destroy(cudnn: Any) -> None:
    """Descriptors are independent of each other and live until they are destroyed."""
    first, second = cudnn.cudnnCreateRNNDescriptor(), cudnn.cudnnCreateRNNDescriptor()
    describe(cudnn, first, PLAIN)
    describe(cudnn, second)
    cudnn.cudnnDestroyRNNDescriptor(first)
    assert read(cudnn, second) == GOOD
    cudnn.cudnnDestroyRNNDescriptor(second)


@shows("cudnnSetRNNDescriptor_v8/c01 c03 c05 c10-c13 c15 c16 c18 c20 c22 c29 c31", "cudnnGetRNNDescriptor_v8/c01-c09")
@pytest.mark.parametrize("cell", api.cudnnRNNMode_t, ids=lambda c: c.name)
def test_every_value_comes_back(cudnn: Any, fresh: Any, cell: Any) -> None:
    """All enumerators come back, and the supported types with every math type that is listed for them, padding on
    and off."""
    types = [(HALF, HALF, DEFAULT), (HALF, FLOAT, TENSOR_OP), (HALF, FLOAT, CONVERSION), (FLOAT, FLOAT, DEFAULT),
             (FLOAT, FLOAT, CONVERSION), (DOUBLE, DOUBLE, DEFAULT)]  # fmt: skip
    modes = product(api.cudnnRNNBiasMode_t, api.cudnnDirectionMode_t, api.cudnnRNNInputMode_t, types)
    for i, (bias, direction, input_mode, (data_type, precision, math_type)) in enumerate(modes):
        sizes = (7, 7, 7 - 3 * (cell == LSTM), 1 + i)
        values = (STANDARD, cell, bias, direction, input_mode, data_type, precision, math_type, *sizes, None, i % 2)
        cudnn.cudnnSetRNNDescriptor_v8(fresh, *values)
        assert tuple(cudnn.cudnnGetRNNDescriptor_v8(fresh)) == values
    for algo in api.cudnnRNNAlgo_t:
        describe(cudnn, fresh, PLAIN, algo=algo)
        assert read(cudnn, fresh)["algo"] == algo


@shows("cudnnRNNSetClip_v8/c01 c02 c05 c09 c11 c12", "cudnnRNNGetClip_v8/c01-c07", "cudnnSetRNNDescriptor_v8/c01")
def test_clip(cudnn: Any, fresh: Any, refuses: Callable[..., bool]) -> None:
    """Clipping is off by default, and may be set again. Invalid ranges are refused even with clipping off."""
    assert tuple(cudnn.cudnnRNNGetClip_v8(fresh)) == (NONE, NOT_PROPAGATE, 0.0, 0.0)
    for values in (
        (MINMAX, PROPAGATE, -1.5, 2.5),
        (NONE, PROPAGATE, 1.0, 1.0),
        (MINMAX, NOT_PROPAGATE, -math.inf, math.inf),
    ):
        cudnn.cudnnRNNSetClip_v8(fresh, *values)
        assert tuple(cudnn.cudnnRNNGetClip_v8(fresh)) == values
    for mode in api.cudnnRNNClipMode_t:
        values = mode, PROPAGATE, -1.0, 1.0
        cudnn.cudnnRNNSetClip_v8(fresh, *values)
        refuses(BAD_PARAM, "cudnnRNNSetClip_v8/c11", cudnn.cudnnRNNSetClip_v8, fresh, mode, PROPAGATE, 1.0, 0.5)
        for lower, upper in ((math.nan, 1.0), (-1.0, math.nan)):
            refuses(BAD_PARAM, "cudnnRNNSetClip_v8/c12", cudnn.cudnnRNNSetClip_v8, fresh, mode, PROPAGATE, lower, upper)
    assert tuple(cudnn.cudnnRNNGetClip_v8(fresh)) == values
    describe(cudnn, fresh)
    assert tuple(cudnn.cudnnRNNGetClip_v8(fresh)) == (NONE, NOT_PROPAGATE, 0.0, 0.0)


@shows("cudnnRNNSetClip/c02 c03 c05 c09-c11", "cudnnRNNGetClip/c02-c07", "cudnnRNNClipMode_t/c01")
def test_clip_before_version_8(cudnn: Any, handle: Any, fresh: Any, refuses: Callable[..., bool]) -> None:
    """The older calls set and get the same values."""
    assert tuple(cudnn.cudnnRNNGetClip(handle, fresh)) == (NONE, NOT_PROPAGATE, 0.0, 0.0)
    for values in ((MINMAX, PROPAGATE, -1.5, 2.5), (NONE, NOT_PROPAGATE, -2.0, 2.0)):
        cudnn.cudnnRNNSetClip(handle, fresh, *values)
        assert tuple(cudnn.cudnnRNNGetClip(handle, fresh)) == values == tuple(cudnn.cudnnRNNGetClip_v8(fresh))
    set_clip = cudnn.cudnnRNNSetClip
    refuses(BAD_PARAM, "cudnnRNNSetClip/c10", set_clip, handle, fresh, MINMAX, PROPAGATE, 1.0, 0.5)
    for bounds in ((math.nan, 2.5), (-1.5, math.nan)):
        refuses(BAD_PARAM, "cudnnRNNSetClip/c11", set_clip, handle, fresh, MINMAX, PROPAGATE, *bounds)
    refuses(BAD_PARAM, "cudnnRNNGetClip/c07", cudnn.cudnnRNNGetClip, handle, None)
    refuses(BAD_PARAM, "cudnnRNNGetClip/c07", cudnn.cudnnRNNGetClip, None, fresh)
    assert tuple(cudnn.cudnnRNNGetClip(handle, fresh)) == values


@shows("cudnnSetRNNBiasMode/c02-c07", "cudnnGetRNNBiasMode/c02-c04 c06", "cudnnRNNMode_t/c09")
def test_bias_mode(cudnn: Any, fresh: Any, refuses: Callable[..., bool]) -> None:
    assert cudnn.cudnnGetRNNBiasMode(fresh) == DOUBLE_BIAS
    for mode in api.cudnnRNNBiasMode_t:
        cudnn.cudnnSetRNNBiasMode(fresh, mode)
        assert cudnn.cudnnGetRNNBiasMode(fresh) == mode
    describe(cudnn, fresh)
    cudnn.cudnnSetRNNBiasMode(fresh, RECURRENT_BIAS)
    assert read(cudnn, fresh) == {**GOOD, "biasMode": RECURRENT_BIAS}
    for value in (-1, 4):
        refuses(BAD_PARAM, "cudnnSetRNNBiasMode/c05", cudnn.cudnnSetRNNBiasMode, fresh, value)
    for algo in (STATIC, DYNAMIC):
        describe(cudnn, fresh, PLAIN, algo=algo)
        cudnn.cudnnSetRNNBiasMode(fresh, DOUBLE_BIAS)
        for mode in (NO_BIAS, INPUT_BIAS, RECURRENT_BIAS):
            refuses(NOT_SUPPORTED, "cudnnSetRNNBiasMode/c07", cudnn.cudnnSetRNNBiasMode, fresh, mode)
    assert cudnn.cudnnGetRNNBiasMode(fresh) == DOUBLE_BIAS
    refuses(BAD_PARAM, "cudnnSetRNNBiasMode/c04", cudnn.cudnnSetRNNBiasMode, None, NO_BIAS)
    refuses(BAD_PARAM, "cudnnGetRNNBiasMode/c04", cudnn.cudnnGetRNNBiasMode, None)


def is_set_alone(
    cudnn: Any,
    fresh: Any,
    refuses: Callable[..., bool],
    name: Any,
    values: Any,
    usual: Any,
    described: Any,
    wrong: Any,
    null: Any,
) -> None:
    """Check a setter of one value: it is ``usual`` in a fresh network, and ``described`` after the setter of version 8."""
    setter, getter = (getattr(cudnn, f"cudnn{verb}RNN{name}") for verb in ("Set", "Get"))
    assert getter(fresh) == usual
    for value in values:
        setter(fresh, value)
        assert getter(fresh) == value
    describe(cudnn, fresh)
    assert getter(fresh) == described
    for value in wrong:
        refuses(BAD_PARAM, f"cudnnSetRNN{name}/c07", setter, fresh, value)
    refuses(BAD_PARAM, f"cudnnSetRNN{name}/{null}", setter, None, usual)
    refuses(BAD_PARAM, f"cudnnGetRNN{name}/c04", getter, None)


@shows("cudnnSetRNNPaddingMode/c02 c04-c07", "cudnnGetRNNPaddingMode/c02-c04")
def test_padding_mode(cudnn: Any, fresh: Any, refuses: Callable[..., bool]) -> None:
    is_set_alone(cudnn, fresh, refuses, "PaddingMode", (PADDED, UNPADDED), UNPADDED, PADDED, (-1, 2), "c06")


@shows("cudnnSetRNNMatrixMathType/c02 c06 c07", "cudnnGetRNNMatrixMathType/c02-c04")
def test_math_type(cudnn: Any, fresh: Any, refuses: Callable[..., bool]) -> None:
    kinds = list(api.cudnnMathType_t)
    is_set_alone(cudnn, fresh, refuses, "MatrixMathType", kinds, DEFAULT, TENSOR_OP, (-1, 9), "c07")


@shows("cudnnSetRNNDescriptor_v6/c02 c09-c12", "cudnnGetRNNDescriptor_v6/c02-c07", "cudnnGetRNNDescriptor_v8/c11")
def test_setter_of_version_6(cudnn: Any, handle: Any, fresh: Any, refuses: Callable[..., bool]) -> None:
    """Every value comes back; values of earlier setters do not."""
    assert tuple(cudnn.cudnnGetRNNDescriptor_v6(handle, fresh)) == (0, 0, None, LINEAR, ONE_WAY, RELU, STANDARD, FLOAT)
    for values in product((1, 9), (1, 3), (None,), *map(tuple, (api.cudnnRNNInputMode_t, api.cudnnDirectionMode_t, api.cudnnRNNMode_t, api.cudnnRNNAlgo_t)), (FLOAT, HALF, DOUBLE)):  # fmt: skip
        cudnn.cudnnSetRNNDescriptor_v6(handle, fresh, *values)
        assert tuple(cudnn.cudnnGetRNNDescriptor_v6(handle, fresh)) == values
    describe(cudnn, fresh)
    assert tuple(cudnn.cudnnGetRNNDescriptor_v6(handle, fresh)) == (7, 2, None, SKIP, TWO_WAYS, LSTM, STANDARD, FLOAT)
    cudnn.cudnnRNNSetClip_v8(fresh, MINMAX, PROPAGATE, -1.0, 1.0)
    describe_v6(cudnn, handle, fresh)
    refuses(NOT_INITIALIZED, f"{GET}/c11", cudnn.cudnnGetRNNDescriptor_v8, fresh)
    assert cudnn.cudnnGetRNNBiasMode(fresh) == DOUBLE_BIAS
    assert cudnn.cudnnGetRNNPaddingMode(fresh) == UNPADDED
    assert cudnn.cudnnGetRNNMatrixMathType(fresh) == DEFAULT
    assert tuple(cudnn.cudnnGetRNNProjectionLayers(handle, fresh)) == (7, 0)
    assert tuple(cudnn.cudnnRNNGetClip_v8(fresh)) == (NONE, NOT_PROPAGATE, 0.0, 0.0)


PROJECT = "cudnnSetRNNProjectionLayers"


@shows("cudnnSetRNNProjectionLayers/c02 c07-c16", "cudnnGetRNNProjectionLayers/c02-c06")
def test_projection(cudnn: Any, handle: Any, fresh: Any, refuses: Callable[..., bool]) -> None:
    """Projection is off by default; a size of hiddenSize switches it off again for every cell."""
    project, projection = cudnn.cudnnSetRNNProjectionLayers, cudnn.cudnnGetRNNProjectionLayers
    describe_v6(cudnn, handle, fresh)
    assert tuple(projection(handle, fresh)) == (7, 0)
    for size in (3, 7, 1):
        project(handle, fresh, size, 0)
        assert tuple(projection(handle, fresh)) == (size, 0)
    for size in (0, -1):
        refuses(BAD_PARAM, f"{PROJECT}/c13", project, handle, fresh, size, 0)
    refuses(BAD_PARAM, f"{PROJECT}/c13", project, handle, fresh, 3, -1)
    refuses(NOT_SUPPORTED, f"{PROJECT}/c10", project, handle, fresh, 3, 1)
    refuses(NOT_SUPPORTED, f"{PROJECT}/c16", project, handle, fresh, 8, 0)
    refuses(BAD_PARAM, f"{PROJECT}/c12", project, handle, None, 3, 0)
    refuses(BAD_PARAM, f"{PROJECT}/c12", project, None, fresh, 3, 0)
    assert tuple(projection(handle, fresh)) == (1, 0)
    describe_v6(cudnn, handle, fresh, mode=GRU)
    project(handle, fresh, 7, 0)
    refuses(NOT_SUPPORTED, f"{PROJECT}/c15", project, handle, fresh, 3, 0)
    describe_v6(cudnn, handle, fresh, algo=STATIC)
    refuses(NOT_SUPPORTED, f"{PROJECT}/c14", project, handle, fresh, 3, 0)
    describe(cudnn, fresh)
    assert tuple(projection(handle, fresh)) == (3, 0)
    refuses(BAD_PARAM, "cudnnGetRNNProjectionLayers/c06", projection, handle, None)
    refuses(BAD_PARAM, "cudnnGetRNNProjectionLayers/c06", projection, None, fresh)


@shows(f"{GET}/c04", "cudnnStatus_t/c05")
@needs("cites_clauses", "the section has no description")
def test_algorithm_descriptor(
    subject: Subject, cudnn: Any, handle: Any, fresh: Any, refuses: Callable[..., bool]
) -> None:
    """The algorithm replaces the network's. An algorithm of another kind, or one that does not support the network, is
    refused."""
    chosen = cudnn.cudnnCreateAlgorithmDescriptor()
    choose = cudnn.cudnnSetRNNAlgorithmDescriptor
    refuses(BAD_PARAM, "cudnnStatus_t/c05", choose, handle, fresh, chosen)
    describe(cudnn, fresh, PLAIN)
    for algo in (DYNAMIC, STATIC, STANDARD):
        cudnn.cudnnSetAlgorithmDescriptor(chosen, algo)
        choose(handle, fresh, chosen)
        assert read(cudnn, fresh) == {**PLAIN, "algo": algo}
    if subject.is_python:  # In C an algorithm is a number.
        cudnn.cudnnSetAlgorithmDescriptor(chosen, api.CUDNN_CONVOLUTION_FWD_ALGO_GEMM)
        refuses(BAD_PARAM, "cudnnStatus_t/c05", choose, handle, fresh, chosen)
    cudnn.cudnnSetAlgorithmDescriptor(chosen, DYNAMIC)
    describe(cudnn, fresh)
    refuses(NOT_SUPPORTED, "cudnnSetRNNBiasMode/c07", choose, handle, fresh, chosen)
    describe(cudnn, fresh, biasMode=DOUBLE_BIAS)
    refuses(NOT_SUPPORTED, "cudnnSetRNNProjectionLayers/c14", choose, handle, fresh, chosen)
    assert read(cudnn, fresh) == {**GOOD, "biasMode": DOUBLE_BIAS}
