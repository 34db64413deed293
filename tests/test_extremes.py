"""Strides and paddings nearly as large as 32 bits count, drawn for small tensors: the emulated device agrees with the reference."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

import pytest
from dualdnn.api import cudnn
from dualdnn.api.operations import Operation, TensorSpec
from dualdnn.api.operations.specs import FLOAT, HALF, NCHW, NHWC
from dualdnn.api.operations.transform import destination_dims
from dualdnn.api.status import CudnnError
from dualdnn.conformance.calls import Caller, sized
from dualdnn.conformance.cases import every_operation, transform
from dualdnn.conformance.trial import Chain, Step

LARGE = (2**31 - 1, 2**31 - 2, 2**30, 2**30 + 1, 2**29, 2**28 + 1, 2**31 - 8)
DRAWN, TRANSFORMS = 12, 200  # operations of each kind
KINDS = [
    "ActivationForward", "ActivationBackward", "SoftmaxForward", "SoftmaxBackward", "LRNCrossChannelForward",
    "LRNCrossChannelBackward", "DivisiveNormalizationForward", "DivisiveNormalizationBackward",
    "BatchNormalizationForwardInference", "BatchNormalizationForwardTraining", "BatchNormalizationBackward",
    "AddTensor", "OpTensor", "ScaleTensor", "SetTensor", "TransformTensor", "ReduceTensor", "ReduceTensor-indices",
    "DropoutForward", "DropoutBackward",
]  # fmt: skip


def strided(rng: random.Random, data_type: Any, dims: tuple[int, ...]) -> TensorSpec:
    """Return a packed tensor, but that most dimensions of size 1 have large strides."""
    packed = TensorSpec.packed(data_type, dims, rng.choice((NCHW, NHWC)))
    pairs = zip(dims, packed.strides, strict=True)
    strides = tuple(rng.choice(LARGE) if extent == 1 and rng.random() < 0.7 else stride for extent, stride in pairs)
    return TensorSpec(data_type, dims, strides)


def operation_of(kind: str, number: int) -> Operation:
    """Return the sample of a kind with some dimensions of size 1; operands described alike stay alike."""
    rng, sample = random.Random(f"{kind} {number}"), every_operation.SAMPLES[kind]
    ones, drawn = rng.sample(range(4), rng.choice((1, 1, 2, 3))), {}
    described = {f.name: getattr(sample, f.name) for f in fields(sample) if f.name != "states"}
    tensors = {name: spec for name, spec in described.items() if isinstance(spec, TensorSpec) and spec.rank == 4}
    for spec in tensors.values():
        dims = tuple(1 if d in ones else extent for d, extent in enumerate(spec.dims))
        drawn.setdefault(spec, strided(rng, spec.data_type, dims))
    return replace(sample, **{name: drawn[spec] for name, spec in tensors.items()})


def transform_of(number: int) -> Operation:
    """Return a transform that pads; every other one pads and crops one dimension by a large number."""
    rng = random.Random(number)
    dims = tuple(rng.choice((1, 1, 2, 3, 5)) for _ in range(4))
    before, after = ([rng.choice((0, 0, 1, 2, 7)) for _ in dims] for _ in range(2))
    if number % 2:
        d, sides = rng.randrange(4), rng.sample((before, after), 2)
        sides[0][d] = rng.choice(LARGE)
        sides[1][d] = rng.randint(0, 2) - sides[0][d]
    spec = transform.changing(before=tuple(before), after=tuple(after), tensor_format=rng.choice((NCHW, NHWC)))
    source = strided(rng, rng.choice((FLOAT, HALF)), dims)
    target = TensorSpec.packed(source.data_type, destination_dims(spec, dims), spec.format)
    return replace(transform.applied(spec, dims), srcData=source, destData=target)


@pytest.fixture(scope="module")
def callers() -> list[Caller]:
    handles = (cudnn.cudnnCreate(backend="reference"), cudnn.cudnnCreate(backend="accelerated", device="emulated"))
    return [Caller(cudnn, handle) for handle in handles]


def outcome(caller: Caller, operation: Operation) -> str:
    """Return what a call says: its refusal, what is wrong with its results, or nothing."""
    try:
        return Chain(caller).call(Step(sized(caller, operation))).explanation()
    except CudnnError as error:
        return f"{error.status} {error.clause}"


def agreed(callers: list[Caller], operation: Operation) -> bool:
    """Return whether a call is served, after checking that both backends say the same of it."""
    by_reference, by_kernels = (outcome(caller, operation) for caller in callers)
    assert by_kernels == by_reference, operation
    assert by_kernels == "" or "/c" in by_kernels, operation
    return by_kernels == ""


@pytest.mark.parametrize("kind", KINDS)
def test_strides_of_dimensions_of_size_1(callers, kind):
    assert any([agreed(callers, operation_of(kind, number)) for number in range(DRAWN)])


def test_transforms_of_large_paddings(callers):
    assert all([agreed(callers, transform_of(number)) for number in range(TRANSFORMS)])
