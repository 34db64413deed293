"""Test the records that describe operations and tensors, and their text."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from dualdnn.api.enumerations import ENUMERATIONS, cudnnActivationMode_t, cudnnNanPropagation_t, cudnnPoolingMode_t
from dualdnn.api.operations import (
    ActivationForward,
    ActivationSpec,
    FilterSpec,
    PoolingForward,
    PoolingSpec,
    TensorSpec,
    parse,
)
from dualdnn.api.operations.specs import FLOAT, HALF, INT8, NCHW, NCHW_VECT_C, NHWC, INT8x4, INT8x32
from dualdnn.reference.view import read, strided, write


def random_spec(generator: random.Random, **overrides) -> TensorSpec:
    rank = generator.randint(3, 8)
    dims = tuple(generator.randint(1, 4) for _ in range(rank))
    order = list(range(rank))
    generator.shuffle(order)
    strides, step = [0] * rank, generator.choice([1, 2])
    for dimension in order:
        strides[dimension] = step
        step = step * dims[dimension] + generator.choice([0, 0, 3])
    return TensorSpec(overrides.get("data_type", FLOAT), dims, tuple(strides))


def pooling(x: TensorSpec, alpha: float = 1.0) -> PoolingForward:
    spec = PoolingSpec(
        cudnnPoolingMode_t.CUDNN_POOLING_MAX, cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN, (2, 2), (-1, 0), (1, 2)
    )
    return PoolingForward(spec, alpha, -0.0, x, x)


@pytest.mark.parametrize("seed", range(50))
def test_text_parses_back(seed):
    operation = pooling(random_spec(random.Random(seed)), alpha=0.1 * seed - 2)
    again = parse(str(operation))
    assert again == operation and hash(again) == hash(operation) and str(again) == str(operation)


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e-45, -0.0, 1e308])
def test_text_keeps_every_float(value):
    again = parse(str(pooling(TensorSpec.packed(FLOAT, (1, 1, 1)), value)))
    assert math.copysign(1, again.alpha) == math.copysign(1, value) and again.alpha == value
    assert math.isnan(parse(str(pooling(TensorSpec.packed(FLOAT, (1, 1, 1)), math.nan))).alpha)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        "__import__('os')",
        "PoolingForward()",
        "open(file='x')",
        "TensorSpec(data_type=NO, dims=(1,), strides=(1,))",
        "[1]",
        "ScaleTensor(alpha=3.0, y=5)",
        "ScaleTensor(alpha=3.0, y=None)",
        "SetTensor(value=3.0, y=FilterSpec(data_type=CUDNN_DATA_FLOAT, format=CUDNN_TENSOR_NCHW, dims=(1, 1, 1)))",
    ],
)
def test_other_text_is_refused(text):
    with pytest.raises(ValueError):
        parse(text)


def test_records_are_frozen_and_differ_by_every_field():
    spec = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN, 1.0)
    x = TensorSpec.packed(HALF, (1, 2, 3, 4))
    one = ActivationForward(spec, 1.0, 0.0, x, x)
    others = [ActivationForward(spec, 2.0, 0.0, x, x), ActivationForward(spec, 1.0, 1.0, x, x),
              ActivationForward(spec, 1.0, 0.0, TensorSpec.packed(HALF, (1, 2, 3, 4), NHWC), x)]  # fmt: skip
    assert len({one, *others}) == 4
    with pytest.raises(AttributeError):
        one.alpha = 3.0


def brute_offsets(spec: TensorSpec) -> list[int]:
    """Return the storage position of every element, by the definition of strides."""
    return [sum(i * s for i, s in zip(index, spec.strides, strict=True)) for index in np.ndindex(spec.storage_dims)]


@pytest.mark.parametrize("seed", range(60))
def test_span_and_overlap_follow_from_the_offsets(seed):
    generator = random.Random(seed)
    spec = random_spec(generator)
    if seed % 3 == 0:
        strides = tuple(generator.randint(1, 6) for _ in spec.dims)
        spec = TensorSpec(FLOAT, spec.dims, strides)
    offsets = brute_offsets(spec)
    assert spec.span == max(offsets) + 1
    assert spec.nbytes == 4 * spec.span
    distinct = len(set(offsets)) == len(offsets)
    if not spec.overlaps:
        assert distinct
    if spec.is_packed:
        assert sorted(offsets) == list(range(spec.count))


@pytest.mark.parametrize(
    "tensor_format, offset",
    [
        (NCHW, lambda n, c, h, w: ((n * 3 + c) * 4 + h) * 5 + w),
        (NHWC, lambda n, c, h, w: ((n * 4 + h) * 5 + w) * 3 + c),
    ],
)
def test_packed_strides_are_the_document_s_order(tensor_format, offset):
    spec = TensorSpec.packed(FLOAT, (2, 3, 4, 5), tensor_format)
    assert brute_offsets(spec) == [offset(*index) for index in np.ndindex(2, 3, 4, 5)]


@pytest.mark.parametrize("data_type, length", [(INT8x4, 4), (INT8x32, 32)])
def test_vectorised_tensors_are_n_c_over_v_h_w_v(data_type, length):
    spec = TensorSpec.packed(data_type, (2, 64, 3, 5), NCHW_VECT_C)
    memory = np.arange(spec.nbytes, dtype=np.uint64).astype(np.uint8)
    assert spec.nbytes == 2 * 64 * 15
    values = read(spec, memory)
    for n, c, h, w in [(0, 0, 0, 0), (1, 63, 2, 4), (0, 33, 1, 2), (1, 5, 0, 3)]:
        place = ((((n * (64 // length) + c // length) * 3 + h) * 5 + w) * length) + c % length
        assert values[n, c, h, w] == np.int8(memory[place].astype(np.int8))


@pytest.mark.parametrize("seed", range(20))
def test_write_then_read_is_the_identity_and_keeps_gaps(seed):
    spec = random_spec(random.Random(seed), data_type=INT8)
    memory = np.full(spec.nbytes, 77, np.uint8)
    values = np.random.default_rng(seed).integers(-100, 100, spec.dims)
    write(spec, memory, values.astype(np.float64))
    assert (read(spec, memory) == values).all()
    gaps = sorted(set(range(spec.nbytes)) - set(brute_offsets(spec)))
    assert (memory[gaps] == 77).all()
    assert strided(spec, memory).base is not None


def test_filters_are_packed_in_their_format():
    spec = FilterSpec(FLOAT, NHWC, (4, 3, 2, 5))
    assert spec.tensor.strides == (30, 1, 15, 3)
    assert spec.nbytes == 4 * 120


def test_zeros_of_both_signs_are_different_operations():
    x = TensorSpec.packed(FLOAT, (1, 1, 1))
    assert pooling(x, 0.0) != pooling(x, -0.0) and hash(pooling(x, 0.0)) != hash(pooling(x, -0.0))
    assert pooling(x, 0.0) == pooling(x, 0.0) and pooling(x, math.nan) != pooling(x, 1.0)


def test_enumerator_names_are_unique():
    """The text of an operation omits the types of enumerators, so no two may share a name."""
    names = [member.name for enumeration in ENUMERATIONS.values() for member in enumeration]
    assert len(names) == len(set(names))
