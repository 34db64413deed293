"""Holds cases of the weight space and of the sizes of temporary memory."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnDataType_t, cudnnForwardMode_t, cudnnRNNMode_t
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT8, SCALAR_BYTES
from dualdnn.api.status import BAD_PARAM, INVALID_VALUE, NOT_INITIALIZED, NOT_SUPPORTED
from dualdnn.conformance.cases.rnn import rnn_descriptors as rnn
from dualdnn.conformance.cases.rnn.rnn_data import descriptor as data_descriptor
from dualdnn.conformance.cases.rnn.rnn_descriptors import describe, describe_v6, fresh
from dualdnn.conformance.marks import shows

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject

__all__ = ["fresh"]
SIZE = "cudnnGetRNNWeightSpaceSize"
PARAMS = "cudnnGetRNNWeightParams"
MATRIX = "cudnnGetRNNLinLayerMatrixParams"
BIAS = "cudnnGetRNNLinLayerBiasParams"
INFERENCE, TRAINING = cudnnForwardMode_t
GATES = {rnn.RELU: 1, rnn.TANH: 1, rnn.LSTM: 4, rnn.GRU: 3}
# This network has two layers and two directions, with sizes 5, 7 and 3.
MIXED = {**rnn.GOOD, "inputMode": rnn.LINEAR, "dataType": FLOAT, "biasMode": rnn.DOUBLE_BIAS}
INPUT = 5
HIDDEN = 7
PROJECTED = 3


def shapes(values: Any, layer: Any) -> Any:
    """Return linLayerID -> (shape of the matrix, shape of the bias) of a layer; None for what it does not have."""
    gates, ways = GATES[values["cellMode"]], 1 + values["dirMode"]
    width = values["inputSize"] if layer == 0 else ways * values["projSize"]
    matrix = None if layer == 0 and values["inputMode"] == rnn.SKIP else (1, HIDDEN, width)
    recurrent = (1, HIDDEN, values["projSize"])
    bias = (1, HIDDEN, 1)
    first = bias if values["biasMode"] in (rnn.INPUT_BIAS, rnn.DOUBLE_BIAS) else None
    second = bias if values["biasMode"] in (rnn.RECURRENT_BIAS, rnn.DOUBLE_BIAS) else None
    found = {i: (matrix, first) for i in range(gates)} | {gates + i: (recurrent, second) for i in range(gates)}
    if values["cellMode"] == rnn.LSTM:
        projected = values["projSize"] < HIDDEN
        found[8] = ((1, values["projSize"], HIDDEN) if projected else None, None)
    return found


def dims(cudnn: Any, descriptor: Any) -> Any:
    found = cudnn.cudnnGetTensorNdDescriptor(descriptor, 8)
    return tuple(found[2]) if found[1] else None


CASES = [
    {**MIXED}, {**MIXED, "biasMode": rnn.NO_BIAS, "dirMode": rnn.ONE_WAY}, {**MIXED, "cellMode": rnn.GRU, "projSize": 7, "biasMode": rnn.INPUT_BIAS},
    {**MIXED, "cellMode": rnn.RELU, "projSize": 7, "inputSize": 7, "inputMode": rnn.SKIP, "biasMode": rnn.RECURRENT_BIAS, "dataType": HALF},
    {**MIXED, "cellMode": rnn.TANH, "projSize": 7, "dataType": DOUBLE, "mathPrec": DOUBLE, "dirMode": rnn.ONE_WAY},
    {**MIXED, "inputMode": rnn.SKIP, "inputSize": 7, "projSize": 7},
]  # fmt: skip


@shows("cudnnGetRNNWeightSpaceSize/c01-c03", "cudnnGetRNNWeightParams/c01-c17", "cudnnSetRNNDescriptor_v8/c02", "cudnnRNNBiasMode_t/c01")  # fmt: skip
@pytest.mark.parametrize("values", CASES, ids=lambda v: f"{v['cellMode'].name}-{v['biasMode'].name}")
def test_weight_space(cudnn: Any, handle: Any, fresh: Any, values: Any) -> None:
    """All matrices and biases have their shapes and share the space without gaps or overlaps."""
    describe(cudnn, fresh, values)
    size, step = cudnn.cudnnGetRNNWeightSpaceSize(handle, fresh), SCALAR_BYTES[values["dataType"]]
    space = handle.zeros(size) if hasattr(handle, "zeros") else handle.to_device(np.zeros(size, np.uint8))
    taken = np.zeros(size // step, int)
    matrix, bias = cudnn.cudnnCreateTensorDescriptor(), cudnn.cudnnCreateTensorDescriptor()
    ways = 1 + values["dirMode"]
    for pseudo_layer in range(2 * ways):
        for weight_id, due in shapes(values, pseudo_layer // ways).items():
            parts = cudnn.cudnnGetRNNWeightParams(handle, fresh, pseudo_layer, size, space, weight_id, matrix, bias)
            assert (dims(cudnn, matrix), dims(cudnn, bias)) == due
            for part, shape, descriptor in zip(parts, due, (matrix, bias), strict=True):
                assert (part is None) == (shape is None)
                if shape is not None:
                    assert cudnn.cudnnGetTensorNdDescriptor(descriptor, 8)[0] == values["dataType"]
                    start = (part.address - space.address) // step
                    taken[start : start + int(np.prod(shape))] += 1
    assert (taken == 1).all() and taken.size * step == size


@shows(f"{PARAMS}/c16")
def test_the_matrix_or_the_bias_alone(cudnn: Any, handle: Any, fresh: Any) -> None:
    """NULL for both outputs of the matrix, or of the bias, omits it (docs/errata.md, null-outputs)."""
    describe(cudnn, fresh, MIXED)
    size = cudnn.cudnnGetRNNWeightSpaceSize(handle, fresh)
    space = handle.to_device(np.zeros(size, np.uint8))
    matrix, bias, other = (cudnn.cudnnCreateTensorDescriptor() for _ in range(3))
    whole = cudnn.cudnnGetRNNWeightParams
    for weight_id in (0, 5):
        both = whole(handle, fresh, 1, size, space, weight_id, matrix, bias)
        for given, absent, kept in (((other, None), "bAddr", 0), ((None, other), "mAddr", 1)):
            half = whole.without(absent) if hasattr(whole, "without") else whole
            found = half(handle, fresh, 1, size, space, weight_id, *given)
            addresses = found if isinstance(found, tuple) else [found, found]
            assert addresses[kept].address == both[kept].address
            assert dims(cudnn, other) == dims(cudnn, (matrix, bias)[kept])


@shows("cudnnGetRNNWeightParams/c04 c18-c22", "cudnnGetRNNWeightSpaceSize/c04-c06")
def test_weight_space_refusals(
    subject: Subject, cudnn: Any, handle: Any, fresh: Any, refuses: Callable[..., bool]
) -> None:
    params, size_of = cudnn.cudnnGetRNNWeightParams, cudnn.cudnnGetRNNWeightSpaceSize
    matrix, bias = cudnn.cudnnCreateTensorDescriptor(), cudnn.cudnnCreateTensorDescriptor()
    describe(cudnn, fresh, MIXED)
    size = size_of(handle, fresh)
    space = handle.to_device(np.zeros(size + 8, np.uint8))

    def call(pseudo_layer: int = 0, nbytes: Any = size, memory: Any = space, weight_id: int = 0) -> Any:
        return params(handle, fresh, pseudo_layer, nbytes, memory, weight_id, matrix, bias)

    for pseudo_layer in (-1, 4, 2**31 - 1):
        refuses(BAD_PARAM, f"{PARAMS}/c18", call, pseudo_layer)
    for weight_id in (-1, 9, 2**31 - 1):
        refuses(BAD_PARAM, f"{PARAMS}/c19", call, weight_id=weight_id)
    refuses(BAD_PARAM, f"{PARAMS}/c20", call, memory=None)
    for offset in (1, 2):
        refuses(BAD_PARAM, f"{PARAMS}/c20", call, memory=space.slice(offset, size))
    for nbytes in (size - 1, 0):
        refuses(INVALID_VALUE, f"{PARAMS}/c21", call, 3, nbytes, weight_id=7)
    if subject.is_python:  # Python knows the size of memory.
        refuses(INVALID_VALUE, f"{PARAMS}/c21", call, 3, size, space.slice(0, size - 1), weight_id=7)
    assert dims(cudnn, matrix) is None and dims(cudnn, bias) is None
    call(3, size - 1, weight_id=6)
    call(3, size + 4, weight_id=7)
    # The call of C has two more outputs, for the addresses of the matrix and the bias.
    for null in (0, 1, 4) if subject.is_python else (0, 1, 4, 6, 7):
        given = [handle, fresh, 0, size, space, 0, matrix, bias]
        given[null] = None
        refuses(BAD_PARAM, f"{PARAMS}/c20" if null < 6 else "cudnnStatus_t/c05", params, *given)
    refuses(BAD_PARAM, f"{SIZE}/c04", size_of, handle, None)
    refuses(BAD_PARAM, f"{SIZE}/c04", size_of, None, fresh)
    describe_v6(cudnn, handle, fresh)
    refuses(NOT_INITIALIZED, f"{SIZE}/c06", size_of, handle, fresh)
    refuses(NOT_INITIALIZED, f"{PARAMS}/c22", call)


def step(cudnn: Any, batch: Any, width: Any = INPUT, data_type: Any = FLOAT, strides: Any = None) -> Any:
    """Return the descriptor of one step of a batch."""
    made = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensorNdDescriptor(made, data_type, 3, (batch, width, 1), strides or (width, 1, 1))
    return made


def filters(cudnn: Any, nbytes: Any, data_type: Any = FLOAT) -> Any:
    """Return the description of the weights before version 8."""
    made = cudnn.cudnnCreateFilterDescriptor()
    cudnn.cudnnSetFilterNdDescriptor(made, data_type, 0, 3, (nbytes // SCALAR_BYTES[data_type], 1, 1))
    return made


@shows("cudnnGetRNNParamsSize/c02-c05", "cudnnGetRNNLinLayerMatrixParams/c02-c05 c07-c16", "cudnnGetRNNLinLayerBiasParams/c02 c04 c06-c18",
       "cudnnSetRNNDescriptor_v6/c04 c06-c08", "cudnnSetRNNProjectionLayers/c03 c05")  # fmt: skip
@pytest.mark.parametrize("cell", cudnnRNNMode_t, ids=lambda c: c.name)
def test_weights_before_version_8(cudnn: Any, handle: Any, fresh: Any, cell: Any) -> None:
    """The space is that of version 8: every matrix and bias has the address and shape that cudnnGetRNNWeightParams returns."""
    modern = cudnn.cudnnCreateRNNDescriptor()
    matrix, bias = cudnn.cudnnCreateTensorDescriptor(), cudnn.cudnnCreateTensorDescriptor()
    found = cudnn.cudnnCreateFilterDescriptor()
    for bias_mode, input_mode, direction in (
        (rnn.DOUBLE_BIAS, rnn.LINEAR, rnn.TWO_WAYS),
        (rnn.RECURRENT_BIAS, rnn.SKIP, rnn.TWO_WAYS),
        (rnn.INPUT_BIAS, rnn.LINEAR, rnn.ONE_WAY),
        (rnn.NO_BIAS, rnn.SKIP, rnn.TWO_WAYS),
    ):
        projected = PROJECTED if cell == rnn.LSTM and bias_mode != rnn.NO_BIAS else HIDDEN
        modes = {"cellMode": cell, "biasMode": bias_mode, "dirMode": direction, "inputMode": input_mode}
        width = HIDDEN if input_mode == rnn.SKIP else INPUT
        x = step(cudnn, 2, width)
        describe(cudnn, modern, MIXED, **modes, projSize=projected, inputSize=width)
        describe_v6(cudnn, handle, fresh, mode=cell, inputMode=input_mode, direction=direction, mathPrec=FLOAT)
        cudnn.cudnnSetRNNBiasMode(fresh, bias_mode)
        if cell == rnn.LSTM:
            cudnn.cudnnSetRNNProjectionLayers(handle, fresh, projected, 0)
        size = cudnn.cudnnGetRNNParamsSize(handle, fresh, x, FLOAT)
        assert size == cudnn.cudnnGetRNNWeightSpaceSize(handle, modern)
        space, w = handle.to_device(np.zeros(size, np.uint8)), filters(cudnn, size)
        layers = range(2 * (1 + direction))
        for pseudo_layer, weight_id in product(layers, shapes({**MIXED, "cellMode": cell, "projSize": projected}, 0)):
            due = cudnn.cudnnGetRNNWeightParams(handle, modern, pseudo_layer, size, space, weight_id, matrix, bias)
            for call, place, tensor in zip((MATRIX, BIAS), due, (matrix, bias), strict=True):
                part = getattr(cudnn, call)(handle, fresh, pseudo_layer, x, w, space, weight_id, found)
                assert (part and part.address) == (place and place.address)
                data_type, layout, rank, shape = cudnn.cudnnGetFilterNdDescriptor(found, 8)
                assert (tuple(shape) if rank else None) == dims(cudnn, tensor)
                assert (data_type, layout) == ((FLOAT, 0) if rank else (0, 0))


@shows("cudnnGetRNNParamsSize/c03 c06-c10", "cudnnGetRNNLinLayerMatrixParams/c18-c22", "cudnnGetRNNLinLayerBiasParams/c20-c24")  # fmt: skip
@pytest.mark.blind("a result off by one", "larger spaces than are needed are accepted")
def test_refusals_before_version_8(
    subject: Subject, cudnn: Any, handle: Any, fresh: Any, refuses: Callable[..., bool]
) -> None:
    size_of = cudnn.cudnnGetRNNParamsSize
    x, unset = step(cudnn, 2), cudnn.cudnnCreateTensorDescriptor()
    refuses(BAD_PARAM, "cudnnGetRNNParamsSize/c06", size_of, handle, fresh, x, FLOAT)
    describe_v6(cudnn, handle, fresh, mathPrec=FLOAT, inputMode=rnn.LINEAR)
    refuses(BAD_PARAM, "cudnnGetRNNParamsSize/c06", size_of, handle, None, x, FLOAT)
    refuses(BAD_PARAM, "cudnnGetRNNParamsSize/c07", size_of, handle, fresh, unset, FLOAT)
    gaps = step(cudnn, 2, strides=(INPUT + 1, 1, 1))
    refuses(BAD_PARAM, "cudnnGetRNNParamsSize/c08", size_of, handle, fresh, gaps, FLOAT)
    refuses(BAD_PARAM, "cudnnGetRNNParamsSize/c09", size_of, handle, fresh, x, HALF)
    for kind in (DOUBLE, INT8):
        other = step(cudnn, 2, data_type=kind)
        refuses(NOT_SUPPORTED, "cudnnGetRNNParamsSize/c10", size_of, handle, fresh, other, kind)
    size = size_of(handle, fresh, x, FLOAT)
    space, w, found = (
        handle.to_device(np.zeros(size + 8, np.uint8)),
        filters(cudnn, size),
        cudnn.cudnnCreateFilterDescriptor(),
    )
    for name, (null, types, alignment, limits, outside) in {
        MATRIX: ("c18", "c19", "c20", "c21", "c22"), BIAS: ("c20", "c21", "c22", "c23", "c24"),
    }.items():  # fmt: skip
        call = getattr(cudnn, name)
        good = [handle, fresh, 0, x, w, space, 0, found]

        def refusal(
            status: Any, clause: Any, place: Any, value: Any, call: Any = call, good: Any = good, name: Any = name
        ) -> None:
            refuses(status, f"{name}/{clause}", call, *good[:place], value, *good[place + 1 :])

        for place in (0, 1, 3, 4, 5, 7):
            refusal(BAD_PARAM, null, place, None)
        refusal(BAD_PARAM, types, 3, step(cudnn, 2, data_type=HALF))
        refusal(BAD_PARAM, types, 4, filters(cudnn, size, HALF))
        refusal(BAD_PARAM, alignment, 5, space.slice(2, size))
        for place, value in product((2, 6), (-1, 99)):
            refusal(BAD_PARAM, limits, place, value)
        good[2], good[6] = 3, 7
        refusal(INVALID_VALUE, outside, 4, filters(cudnn, 64))
        if subject.is_python:
            refusal(INVALID_VALUE, outside, 5, space.slice(0, 64))
        assert cudnn.cudnnGetFilterNdDescriptor(found, 8)[2] == 0


TEMPORARY = "cudnnGetRNNTempSpaceSizes"


@shows(f"{TEMPORARY}/c01-c04 c07 c08", "cudnnRNNSetClip_v8/c04", "cudnnForwardMode_t/c01")
def test_temporary_memory(cudnn: Any, handle: Any, fresh: Any, refuses: Callable[..., bool]) -> None:
    """Sizes follow the data dimensions and the mode; clipping does not change them."""
    sizes_of = cudnn.cudnnGetRNNTempSpaceSizes
    describe(cudnn, fresh, MIXED)
    small = data_descriptor(cudnn, longest=3, batch=2, vector=INPUT, lengths=(3, 2))
    large = data_descriptor(cudnn, longest=300, batch=200, vector=INPUT, lengths=(3,) * 200)
    weights = cudnn.cudnnGetRNNWeightSpaceSize(handle, fresh)
    for x in (small, large):
        cudnn.cudnnRNNSetClip_v8(fresh, rnn.NONE, rnn.PROPAGATE, 0.0, 0.0)
        work, reserve = sizes_of(handle, fresh, TRAINING, x)
        assert reserve > 0
        assert sizes_of(handle, fresh, INFERENCE, x)[1] == 0
        cudnn.cudnnRNNSetClip_v8(fresh, rnn.MINMAX, rnn.PROPAGATE, -1.0, 1.0)
        assert tuple(sizes_of(handle, fresh, TRAINING, x)) == (work, reserve)
        assert cudnn.cudnnGetRNNWeightSpaceSize(handle, fresh) == weights
    assert tuple(sizes_of(handle, fresh, TRAINING, small)) != (work, reserve)
    refuses(BAD_PARAM, f"{TEMPORARY}/c08", sizes_of, handle, fresh, TRAINING, data_descriptor(cudnn, vector=6))
    refuses(
        BAD_PARAM, f"{TEMPORARY}/c08", sizes_of, handle, fresh, TRAINING, data_descriptor(cudnn, HALF, vector=INPUT)
    )
    for values in ((None, fresh, TRAINING, small), (handle, None, TRAINING, small), (handle, fresh, 2, small),
                   (handle, fresh, TRAINING, None), (handle, fresh, -1, small)):  # fmt: skip
        refuses(BAD_PARAM, f"{TEMPORARY}/c08", sizes_of, *values)
    describe_v6(cudnn, handle, fresh)
    refuses(NOT_INITIALIZED, "cudnnGetRNNDescriptor_v8/c11", sizes_of, handle, fresh, TRAINING, small)


WORK = "cudnnGetRNNWorkspaceSize"
RESERVE = "cudnnGetRNNTrainingReserveSize"


@pytest.mark.blind("a result off by one", "sizes are compared with each other")
@shows("cudnnGetRNNWorkspaceSize/c02 c04-c13", "cudnnGetRNNTrainingReserveSize/c02 c07-c15", "cudnnSetRNNPaddingMode/c03")  # fmt: skip
@pytest.mark.parametrize("name", [WORK, RESERVE])
def test_temporary_memory_before_version_8(
    cudnn: Any, handle: Any, fresh: Any, refuses: Callable[..., bool], name: Any, subject: Any
) -> None:
    """Batches may shrink from step to step; everything else stays."""
    size_of, clauses = getattr(cudnn, name), {WORK: range(8, 14), RESERVE: range(10, 16)}[name]
    network, steps, same, falling, gaps, types = (f"{name}/c{i:02}" for i in clauses)
    one = step(cudnn, 3)
    refuses(BAD_PARAM, network, size_of, handle, fresh, 1, [one])
    describe_v6(cudnn, handle, fresh, mathPrec=FLOAT, inputMode=rnn.LINEAR)
    cudnn.cudnnSetRNNPaddingMode(fresh, rnn.PADDED)
    falls = [one, one, step(cudnn, 1)]
    assert 0 < size_of(handle, fresh, 3, falls) <= size_of(handle, fresh, 30, [one] * 30)
    assert size_of(handle, fresh, 1, [step(cudnn, 1)]) < size_of(handle, fresh, 1, [step(cudnn, 2)])
    refuses(BAD_PARAM, falling, size_of, handle, fresh, 3, falls[::-1])
    for count in (2, 4) if subject.is_python else ():  # C does not know how long an array is.
        refuses(BAD_PARAM, "cudnnStatus_t/c05", size_of, handle, fresh, count, falls)
    refuses(BAD_PARAM, network, size_of, handle, None, 3, falls)
    refuses(BAD_PARAM, steps, size_of, handle, fresh, 2, [one, cudnn.cudnnCreateTensorDescriptor()])
    for other in (step(cudnn, 3, 6), step(cudnn, 3, data_type=HALF), step(cudnn, 3, strides=(INPUT + 1, 1, 1))):
        refuses(BAD_PARAM, same, size_of, handle, fresh, 2, [one, other])
    size_of(handle, fresh, 1, [one])
    refuses(BAD_PARAM, gaps, size_of, handle, fresh, 1, [step(cudnn, 3, strides=(INPUT + 1, 1, 1))])
    for kind in cudnnDataType_t:
        if kind in (INT8, cudnnDataType_t.CUDNN_DATA_INT32):
            refuses(NOT_SUPPORTED, types, size_of, handle, fresh, 1, [step(cudnn, 3, data_type=kind)])


@pytest.mark.ours
@pytest.mark.blind("a result off by one", "sizes are held against each other")
@shows(f"{WORK}/c02", f"{RESERVE}/c02")
@pytest.mark.parametrize("name", [WORK, RESERVE])
def test_temporary_memory_has_room_for_the_first_batch(cudnn: Any, handle: Any, fresh: Any, name: Any) -> None:
    """Shrinking batches need as much as full ones; more steps, or more sequences, need more."""
    size_of = getattr(cudnn, name)
    describe_v6(cudnn, handle, fresh, mathPrec=FLOAT, inputMode=rnn.LINEAR)
    cudnn.cudnnSetRNNPaddingMode(fresh, rnn.PADDED)
    full, fewer = [step(cudnn, 3) for _ in range(3)], [step(cudnn, batch) for batch in (3, 2, 1)]
    assert size_of(handle, fresh, 3, fewer) == size_of(handle, fresh, 3, full)
    if name == RESERVE:
        for more in ([step(cudnn, 4) for _ in range(3)], [*full, step(cudnn, 3)]):
            assert size_of(handle, fresh, len(more), more) > size_of(handle, fresh, 3, full)
