"""Holds cases of batch normalization in training: forward with running and saved statistics, backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnBatchNormMode_t, cudnnErrQueryMode_t, cudnnStatus_t
from dualdnn.api.operations import (
    BatchNormalizationBackward,
    BatchNormalizationForwardInference,
    BatchNormalizationForwardTraining,
    TensorSpec,
)
from dualdnn.api.operations.specs import FLOAT, HALF, NCHW, NHWC
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.marks import shows
from dualdnn.conformance.solvers import by_each_solver
from dualdnn.conformance.trial import Step, prepare

from .normalization_batch import ACTIVATION, DIMS, EPSILON, PERSISTENT, SPATIAL, derived, in_modes, statistics

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.trial import Trial

FORWARD = "cudnnBatchNormalizationForwardTraining"
BACKWARD = "cudnnBatchNormalizationBackward"


def forward(x: TensorSpec | None = None, mode: cudnnBatchNormMode_t = SPATIAL, *, factor: float = 0.25, epsilon: float = EPSILON,
            running: bool = True) -> BatchNormalizationForwardTraining:  # fmt: skip
    x = x or TensorSpec.packed(FLOAT, DIMS)
    s = statistics(x, mode)
    return BatchNormalizationForwardTraining(mode, 1.0, 0.0, x, x, s, s, factor, s if running else None, epsilon, s)


def backward(x: TensorSpec, mode: cudnnBatchNormMode_t = SPATIAL, *, saved: bool = True) -> BatchNormalizationBackward:
    s = statistics(x, mode)
    return BatchNormalizationBackward(mode, 1.0, 0.0, 1.0, 0.0, x, x, x, s, s, EPSILON, s if saved else None)


# --- forward ---


@shows(f"{FORWARD}/c12-c14")
@in_modes
def test_cumulative_average(cudnn: Any, caller: Caller, mode: Any) -> None:
    """The running mean is the mean of all calls, if the call with n calls before it has the factor 1 / (1 + n)."""
    operation = forward(mode=mode)
    values = np.random.default_rng(3).standard_normal((4, *DIMS)).astype(np.float32)
    memory = {name: np.zeros(operation.nbytes(name), np.uint8) for name in operation.operands}
    buffers = {name: caller.handle.to_device(content) for name, content in memory.items()}
    for n, x in enumerate(values):
        buffers["x"] = caller.handle.to_device(x)
        caller(replace(operation, exponentialAverageFactor=1 / (1 + n)), buffers)
    exact, axes = values.astype(np.float64), (1,) if mode == ACTIVATION else (1, 3, 4)
    for name, wanted in (("runningMean", exact.mean(axes)), ("runningVariance", exact.var(axes, ddof=1))):
        found = buffers[name].to_host(np.float32, wanted[0].size)
        assert np.abs(found - wanted.mean(0).ravel()).max() < 1e-5


@shows(f"{FORWARD}/c17")
def test_one_element_has_no_unbiased_variance(cudnn: Any, caller: Caller) -> None:
    """If m = 1, y is the bias, and the running variance is NaN."""
    x = TensorSpec.packed(FLOAT, (1, 3, 1, 1))
    operation = forward(x)
    memory = {name: np.ones(3, np.float32) for name in operation.operands}
    buffers = {name: caller.handle.to_device(content) for name, content in memory.items()}
    caller(operation, buffers)
    found = {name: buffer.to_host(np.float32, 3) for name, buffer in buffers.items()}
    assert np.isnan(found["runningVariance"]).all() and (found["y"] == 1).all() and (found["runningMean"] == 1).all()


@shows(f"{FORWARD}/c01")
@pytest.mark.parametrize("offset", [1e2, 1e4])
@pytest.mark.parametrize(
    "dims", [(64, 3, 5, 7), (2, 3, 5, 7), (3, 40, 2, 2), (5, 3, 1, 1), (300, 5, 1, 1), (2, 2, 64, 64)], ids=str
)
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1)], ids=["nchw", "nhwc"])
@in_modes
def test_variance_beside_a_large_mean(
    cudnn: Any, caller: Caller, mode: Any, order: Any, dims: Any, offset: float
) -> None:
    """A variance of 1 is accurate at a mean of 10^4; a difference of squares would cancel."""
    x = TensorSpec.packed(FLOAT, dims, NCHW if order[1] == 1 else NHWC)
    operation = forward(x, mode=mode, running=False)
    values = (np.random.default_rng(5).standard_normal(x.dims) + offset).astype(np.float32)
    axes = (0,) if mode == ACTIVATION else (0, 2, 3)
    exact = values.astype(np.float64)
    wanted = 1 / np.sqrt(exact.var(axes) + EPSILON)

    def judged() -> None:
        memory = {name: np.ones(operation.nbytes(name) // 4, np.float32) for name in operation.operands}
        memory["x"] = np.ascontiguousarray(values.transpose(order))
        buffers = {name: caller.handle.to_device(content) for name, content in memory.items()}
        caller(operation, buffers)
        found = buffers["savedInvVariance"].to_host(np.float32, wanted.size)
        assert np.abs(found / wanted.ravel() - 1).max() < 3e-4
        means = buffers["savedMean"].to_host(np.float32, wanted.size)
        assert np.abs(means - exact.mean(axes).ravel()).max() < 4e-7 * offset

    by_each_solver(caller.handle, operation, judged)


@shows("cudnnBatchNormMode_t/c10 c14")
def test_persistent_is_deterministic_and_reports_no_overflow(cudnn: Any, caller: Caller) -> None:
    """Two calls give the same bits, and the query of run-time errors answers SUCCESS."""
    operation = forward(TensorSpec.packed(FLOAT, (4, 5, 17, 19)), mode=PERSISTENT, running=False)
    values = {
        name: np.random.default_rng(7).standard_normal(operation.nbytes(name) // 4).astype(np.float32)
        for name in operation.operands
    }
    found = []
    for _ in range(2):
        buffers = {name: caller.handle.to_device(content) for name, content in values.items()}
        caller(operation, buffers)
        found.append(buffers["y"].to_host(np.uint8, operation.nbytes("y")))
        answer = cudnn.cudnnQueryRuntimeError(caller.handle, cudnnErrQueryMode_t.CUDNN_ERRQUERY_BLOCKING, None)
        assert answer == cudnnStatus_t.CUDNN_STATUS_SUCCESS
    assert np.array_equal(*found)


@shows(f"{FORWARD}/c06 c09 c18", "cudnnBatchNormalizationForwardInference/c06 c13", "cudnnDeriveBNTensorDescriptor/c02")
@in_modes
def test_running_statistics_serve_inference(chain: Callable[..., Trial], caller: Caller, mode: Any) -> None:
    x, first = TensorSpec.packed(FLOAT, DIMS), forward(mode=mode, factor=0.5)
    assert derived(caller.cudnn, x, mode) == [first.scaleBias]
    inference = BatchNormalizationForwardInference(mode, 1.0, 0.0, x, x, first.scaleBias, first.scaleBias, EPSILON)
    positive = {"runningVariance": "positive"}
    names = {"mean": "runningMean", "variance": "runningVariance", "y": "y of inference"}
    chain(Step(first, inputs=positive), Step(first, inputs=positive), Step(inference, names))


# --- backward ---


@shows(f"{BACKWARD}/c03 c05 c14 c15", f"{FORWARD}/c03 c21 c23", "cudnnDeriveBNTensorDescriptor/c03")
@in_modes
def test_saved_statistics_serve_backward(chain: Callable[..., Trial], caller: Caller, mode: Any) -> None:
    for data_type in (FLOAT, HALF):
        x = TensorSpec.packed(data_type, DIMS)
        assert derived(caller.cudnn, x, mode) == [backward(x, mode=mode).scaleBias]
        chain(
            forward(x, mode=mode), backward(x, mode=mode), Step(backward(x, mode=mode, saved=False), {"dx": "dx again"})
        )


@shows(f"{FORWARD}/c01", f"{BACKWARD}/c01")
@pytest.mark.parametrize("layout", ["nchw", "nhwc", "gaps"])
def test_channels_near_the_ends_of_the_range(trial: Callable[..., Trial], layout: str) -> None:
    """Channels near the ends of the range are right, and do not affect the others.

    In one channel, squares of distances underflow, where epsilon is 0. In another, distances are so large and the
    inverse so small that a factor in the gradient underflows (docs/errata.md, D146).
    """
    x = laid_out(FLOAT, (2, 5, 3, 5), layout)
    for operation, of_channel in ((forward(x, running=False, epsilon=0.0), 1e-30), (backward(x), 1e21)):
        memory = {name: prepare(operation, "normal", 5)[name] for name in operation.reads}
        steps = [4 * step for step in x.strides]
        np.lib.stride_tricks.as_strided(memory["x"].view(np.float32), x.dims, steps)[:, 2] *= np.float32(of_channel)
        if "savedInvVariance" in operation.reads:
            memory["savedInvVariance"].view(np.float32)[2] = 1 / np.float32(of_channel)
        trial(operation, before=memory)
