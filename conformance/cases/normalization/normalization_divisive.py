"""Cases of divisive normalization."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnDivNormMode_t, cudnnNanPropagation_t, cudnnPoolingMode_t
from dualdnn.api.operations import (
    AddTensor,
    DivisiveNormalizationBackward,
    DivisiveNormalizationForward,
    LRNSpec,
    PoolingForward,
    PoolingSpec,
    TensorSpec,
)
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.layouts import LAYOUTS, laid_out
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import Step

PRECOMPUTED = cudnnDivNormMode_t.CUDNN_DIVNORM_PRECOMPUTED_MEANS
TYPES = [FLOAT, DOUBLE, HALF]
DIMS = (2, 3, 7, 9)
DIMS_5D = (1, 2, 4, 5, 6)
BLENDS = [(1.0, 0.0), (-1.75, 0.5)]
LRN = LRNSpec(3, 2.0, 0.75, 1.5)
FORWARD, BACKWARD = "cudnnDivisiveNormalizationForward", "cudnnDivisiveNormalizationBackward"
type_name = pytest.mark.parametrize("data_type", TYPES, ids=lambda t: t.name)
with_means = pytest.mark.parametrize("means", [True, False], ids=["means", "without_means"])


def forward(x: TensorSpec | None = None, y: TensorSpec | None = None, lrn: LRNSpec = LRN, *, means: bool = True,
            alpha: float = 1.0, beta: float = 0.0) -> DivisiveNormalizationForward:  # fmt: skip
    x = x or TensorSpec.packed(FLOAT, DIMS)
    return DivisiveNormalizationForward(lrn, alpha, beta, x, x if means else None, y or x)


def backward(x: TensorSpec | None = None, dx: TensorSpec | None = None, lrn: LRNSpec = LRN, *, means: bool = True,
             wanted: bool = True, alpha: float = 1.0, beta: float = 0.0) -> DivisiveNormalizationBackward:  # fmt: skip
    x = x or TensorSpec.packed(FLOAT, DIMS)
    dx = dx or x
    return DivisiveNormalizationBackward(lrn, alpha, beta, x, x if means else None, x, dx, dx if wanted else None)


CALLS: dict[str, Any] = {"forward": forward, "backward": backward}
both_calls = pytest.mark.parametrize("call", CALLS)


@shows("cudnnDivisiveNormalizationForward/c01", "cudnnDivisiveNormalizationForward/c02", "cudnnDivisiveNormalizationForward/c09",
       "cudnnDivisiveNormalizationForward/c10", "cudnnDivisiveNormalizationForward/c11", "cudnnDivisiveNormalizationForward/c12",
       "cudnnDivisiveNormalizationForward/c13", "cudnnDivisiveNormalizationForward/c14", "cudnnDivisiveNormalizationForward/c15",
       "cudnnDivisiveNormalizationForward/c18", "cudnnDivNormMode_t/c01", "cudnnDivNormMode_t/c02", "cudnnDivNormMode_t/c03",
       "cudnnSetLRNDescriptor/c09")  # fmt: skip
@with_means
@pytest.mark.parametrize("alpha, beta", BLENDS)
@type_name
def test_forward_formula(trial, data_type, alpha, beta, means):
    trial(forward(TensorSpec.packed(data_type, DIMS), alpha=alpha, beta=beta, means=means))


@shows("cudnnDivisiveNormalizationBackward/c01", "cudnnDivisiveNormalizationBackward/c04", "cudnnDivisiveNormalizationBackward/c05",
       "cudnnDivisiveNormalizationBackward/c06", "cudnnDivisiveNormalizationBackward/c07", "cudnnDivisiveNormalizationBackward/c08",
       "cudnnDivisiveNormalizationBackward/c09", "cudnnDivisiveNormalizationBackward/c11", "cudnnDivisiveNormalizationBackward/c12",
       "cudnnDivNormMode_t/c01", "cudnnDivNormMode_t/c05", "cudnnDivNormMode_t/c06")  # fmt: skip
@with_means
@pytest.mark.parametrize("alpha, beta", BLENDS)
@type_name
def test_backward_formula(trial, data_type, alpha, beta, means):
    """The gradients of x and means are those of independent inputs; one alpha and beta blend both."""
    for wanted in (True, False):
        trial(backward(TensorSpec.packed(data_type, DIMS), alpha=alpha, beta=beta, means=means, wanted=wanted))


@shows("cudnnDivNormMode_t/c04", "cudnnDivisiveNormalizationForward/c13")
def test_without_means_is_with_zeros(caller):
    """NULL means are zeros: spatial local response normalization, bit by bit the same."""
    cudnn, handle, spec = caller.cudnn, caller.handle, TensorSpec.packed(FLOAT, DIMS)
    x = handle.to_device(np.random.default_rng(1).standard_normal(spec.count).astype(np.float32))
    zeros, temp, temp2 = (handle.to_device(np.zeros(spec.count, np.float32)) for _ in range(3))
    tensor, descriptor, found = caller.tensor(spec), caller.descriptor(LRN), []
    for means in (None, zeros):
        y = handle.to_device(np.full(spec.count, np.nan, np.float32))
        cudnn.cudnnDivisiveNormalizationForward(
            handle, descriptor, PRECOMPUTED, 1.0, tensor, x, means, temp, temp2, 0.0, tensor, y
        )
        found.append(y.to_host(np.float32, spec.count))
    assert np.isfinite(found[0]).all()
    assert np.abs(found[0] - found[1]).max() <= 1e-6


@shows("cudnnSetLRNDescriptor/c06", "cudnnSetLRNDescriptor/c09", "cudnnSetLRNDescriptor/c04")
@with_means
@pytest.mark.parametrize("dims", [DIMS, (1, 2, 20, 40), (1, 1, 1, 7), (1, 1, 7, 1)], ids=str)
@pytest.mark.parametrize("n", [1, 2, 5, 16])
@both_calls
def test_windows(trial, call, n, dims, means):
    """The same window in every spatial dimension; even ones reach one further ahead; larger than the image."""
    trial(CALLS[call](TensorSpec.packed(FLOAT, dims), lrn=LRNSpec(n, 1.5, 0.75, 1.0), means=means))


@shows("cudnnSetLRNDescriptor/c06", "cudnnSetLRNDescriptor/c09")
@with_means
@pytest.mark.parametrize("n", [1, 3, 4])
@both_calls
def test_windows_of_three_dimensions(trial, call, n, means):
    trial(CALLS[call](TensorSpec.packed(FLOAT, DIMS_5D), lrn=LRNSpec(n, 1.5, 0.75, 1.0), means=means))


@shows("cudnnSetLRNDescriptor/c11", "cudnnSetLRNDescriptor/c13")
@pytest.mark.parametrize("alpha, beta, k", [(1e-4, 0.75, 2.0), (1.0, 0.01, 1e-5), (2.0, 5.0, 1.0), (-1e-3, 0.75, 2.0), (-9.0, 1.0, 0.5)])  # fmt: skip
@both_calls
def test_parameters(trial, call, alpha, beta, k):
    trial(CALLS[call](lrn=LRNSpec(3, alpha, beta, k), means=False), inputs="near_one")


@shows("cudnnDivisiveNormalizationForward/c14", "cudnnDivisiveNormalizationBackward/c07")
@both_calls
def test_differences_of_large_numbers(trial, call):
    """x and means of equal magnitude: squares of the differences, not differences of squares."""
    kinds = {"x": "near_one", "means": "positive", "dy": "wide"}
    for data_type in (FLOAT, DOUBLE):
        trial(
            CALLS[call](TensorSpec.packed(data_type, (1, 2, 12, 33)), lrn=LRNSpec(3, 900.0, 0.75, 1e-3)), inputs=kinds
        )


@shows("cudnnDivisiveNormalizationForward/c05", "cudnnDivisiveNormalizationBackward/c02")
@pytest.mark.parametrize("rank", [4, 5])
@pytest.mark.parametrize("layout", LAYOUTS)
@both_calls
def test_layouts(trial, call, layout, rank):
    trial(CALLS[call](laid_out(HALF, DIMS if rank == 4 else DIMS_5D, layout), beta=0.5))


@shows("cudnnDivisiveNormalizationForward/c01", "cudnnDivisiveNormalizationBackward/c01")
@with_means
@type_name
@both_calls
def test_special_values(trial, call, data_type, means):
    spec = TensorSpec.packed(data_type, (1, 2, 9, 20))
    trial(CALLS[call](spec, means=means), inputs="special")
    trial(CALLS[call](spec, means=means, lrn=LRNSpec(3, -0.1, 0.75, 2.0)), inputs="special")


@shows("cudnnDivisiveNormalizationForward/c22")
@with_means
@pytest.mark.parametrize("layout", LAYOUTS)
def test_forward_in_place(trial, layout, means):
    for data_type in (FLOAT, HALF):
        trial(forward(laid_out(data_type, DIMS, layout), beta=0.25, means=means), aliases={"y": "x"})
    trial(forward(laid_out(FLOAT, (1, 2, 40, 35), layout), means=means), aliases={"y": "x"})


@shows("cudnnDivisiveNormalizationForward/c16", "cudnnDivisiveNormalizationBackward/c10")
def test_temporaries_hold_nothing_that_is_needed(chain):
    """The forward call of one x, the backward call of another: the same temp and temp2, without a word between them."""
    other = {name: f"other_{name}" for name in ("x", "means")}
    chain(forward(), Step(backward(), other), Step(backward(means=False), other))


@shows("cudnnDivisiveNormalizationForward/c03", "cudnnDivisiveNormalizationForward/c04")
def test_local_contrast_normalization(chain):
    """x - mean(x) by average pooling and cudnnAddTensor, then the division."""
    x = TensorSpec.packed(FLOAT, DIMS)
    mean = PoolingSpec(
        cudnnPoolingMode_t.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
        cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN,
        (3, 3),
        (1, 1),
        (1, 1),
    )
    pooled = PoolingForward(mean, 1.0, 0.0, x, x)
    chain(
        Step(pooled, {"y": "mean"}),
        Step(AddTensor(-1.0, 1.0, x, x), {"A": "mean", "C": "x"}),
        forward(x, means=False),
    )


# --- what is refused ---


@shows(
    "cudnnDivisiveNormalizationForward/c07",
    "cudnnDivisiveNormalizationForward/c08",
    "cudnnDivisiveNormalizationBackward/c05",
)
def test_unknown_mode_and_destroyed_descriptor(cudnn, caller, subject, refuses):
    spec = TensorSpec.packed(FLOAT, DIMS)
    x, temp, temp2, y = (caller.handle.to_device(np.ones(spec.count, np.float32)) for _ in range(4))
    tensor, descriptor = caller.tensor(spec), caller.descriptor(LRN)

    def call(normDesc: Any, mode: int) -> tuple[Any, ...]:
        return (caller.handle, normDesc, mode, 1.0, tensor, x, None, temp, temp2, 0.0, tensor, y)

    refuses(BAD_PARAM, f"{FORWARD}/c08", cudnn.cudnnDivisiveNormalizationForward, *call(descriptor, 1))
    backward = (caller.handle, descriptor, 1, 1.0, tensor, x, None, x, temp, temp2, 0.0, tensor, y, None)
    refuses(BAD_PARAM, f"{BACKWARD}/c05", cudnn.cudnnDivisiveNormalizationBackward, *backward)
    if subject.survives_stray_pointers:
        cudnn.cudnnDestroyLRNDescriptor(descriptor)
        refuses(BAD_PARAM, f"{FORWARD}/c07", cudnn.cudnnDivisiveNormalizationForward, *call(descriptor, 0))


@pytest.mark.parametrize("dims", [(3, 3, 7, 9), (2, 2, 7, 9), (2, 3, 8, 9), (2, 3, 7, 8), (2, 3, 7, 9, 1)])
def test_dimensions_must_agree(refused, dims):
    other = TensorSpec.packed(FLOAT, dims)
    refused(forward(y=other), BAD_PARAM, f"{FORWARD}/c21")
    refused(backward(dx=other), BAD_PARAM, f"{BACKWARD}/c16")


def test_strides_and_types_must_agree(refused):
    for other in (laid_out(FLOAT, DIMS, "nhwc"), TensorSpec.packed(HALF, DIMS)):
        refused(forward(y=other), NOT_SUPPORTED, f"{FORWARD}/c26")
        refused(backward(dx=other), NOT_SUPPORTED, f"{BACKWARD}/c19")


@pytest.mark.parametrize("data_type", [BFLOAT16, INT8], ids=lambda t: t.name)
def test_other_types_are_not_supported(refused, data_type):
    spec = TensorSpec.packed(data_type, DIMS)
    refused(forward(spec), NOT_SUPPORTED, f"{FORWARD}/c26")
    refused(backward(spec), NOT_SUPPORTED, f"{BACKWARD}/c19")


@shows("cudnnDivisiveNormalizationForward/c15", "cudnnDivisiveNormalizationBackward/c09")
def test_temporaries_have_the_size_of_x(subject, caller, refuses, cudnn):
    if not subject.knows_sizes:
        pytest.skip("a foreign library is not told how large memory is")
    spec = TensorSpec.packed(FLOAT, DIMS)
    x, temp, y = (caller.handle.to_device(np.ones(spec.count, np.float32)) for _ in range(3))
    tensor, small = caller.tensor(spec), caller.handle.allocate(spec.nbytes - 1)
    arguments = (
        caller.handle,
        caller.descriptor(LRN),
        PRECOMPUTED,
        1.0,
        tensor,
        x,
        None,
        temp,
        small,
        0.0,
        tensor,
        y,
    )
    refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnDivisiveNormalizationForward, *arguments)


@shows("cudnnDivisiveNormalizationForward/c13")
def test_one_call_after_the_other(chain):
    """The same arguments but for NULL: what is remembered of a call knows which memory was NULL."""
    with_both, without = forward(), replace(forward(), means=None)
    chain(without, Step(with_both), Step(without), Step(with_both))
