"""Holds cases of training with a fused activation (cudnnBatchNormalization*Ex, cudnnNormalization*), and the sizes
of buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from dualdnn.api.document import functions
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnBatchNormMode_t,
    cudnnBatchNormOps_t,
    cudnnNanPropagation_t,
    cudnnNormOps_t,
)
from dualdnn.api.operations import (
    ActivationSpec,
    BatchNormalizationBackwardEx,
    BatchNormalizationForwardTrainingEx,
    NormalizationBackward,
    NormalizationForwardTraining,
    TensorSpec,
)
from dualdnn.api.operations.specs import FLOAT, HALF, NHWC
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.calls.exceptions import SPACES
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import Chain, Step

from .normalization_batch import (
    DIMS,
    EPSILON,
    NORM_MODES,
    PERSIST,
    PERSISTENT,
    SPATIAL,
    STANDARD,
    both_generations,
    derived,
    in_modes,
    inference,
    statistics,
)

if TYPE_CHECKING:
    from dualdnn.conformance.trial import Trial

EX = "cudnnBatchNormalizationForwardTrainingEx"
BACKWARD_EX = "cudnnBatchNormalizationBackwardEx"
NORM = "cudnnNormalizationForwardTraining"
BACKWARD_NORM = "cudnnNormalizationBackward"
RELU = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN, 0.0)
ALONE, ACTIVATED, ADDED = range(3)
fused = pytest.mark.parametrize("ops", [ACTIVATED, ADDED], ids=["activation", "add_activation"])


def nhwc(dims: tuple[int, ...] = DIMS) -> TensorSpec:
    return TensorSpec.packed(HALF, dims, NHWC)


def kept_bytes(x: TensorSpec, ops: int) -> int:
    """Return the bytes of the reserve space: one for each element, but at least 4, if z is added; otherwise none."""
    return max(x.count, 4) if ops == ADDED else 0


def of_generation(generation: str, ops: int, mode: cudnnBatchNormMode_t) -> tuple[Any, tuple[Any, ...]]:
    """Return (mode, ops and algorithm) for one of the two calls; the newer one has PERSIST for SPATIAL_PERSISTENT."""
    if generation == "batch":
        return mode, (cudnnBatchNormOps_t(ops),)
    algo = PERSIST if mode == PERSISTENT else STANDARD
    return NORM_MODES[SPATIAL if mode == PERSISTENT else mode], (cudnnNormOps_t(ops), algo)


def forward(x: TensorSpec, ops: int, mode: cudnnBatchNormMode_t = SPATIAL, *, generation: str, described: TensorSpec | None = None,
            means: TensorSpec | None = None) -> Any:  # fmt: skip
    s = described or statistics(x, mode)
    mode_, chosen = of_generation(generation, ops, mode)
    kind: Any = BatchNormalizationForwardTrainingEx if generation == "batch" else NormalizationForwardTraining
    means, z, activation = means or s, x if ops == ADDED else None, RELU if ops else None
    return kind(
        mode_, 1.0, 0.0, x, x, s, means, 0.25, means, EPSILON, means, 0, kept_bytes(x, ops), *chosen, z, activation
    )


def backward(x: TensorSpec, ops: int, mode: cudnnBatchNormMode_t = SPATIAL, *, generation: str, described: TensorSpec | None = None,
             means: TensorSpec | None = None) -> Any:  # fmt: skip
    s = described or statistics(x, mode)
    mode_, chosen = of_generation(generation, ops, mode)
    kind: Any = BatchNormalizationBackwardEx if generation == "batch" else NormalizationBackward
    means, y, dz, activation = means or s, x if ops else None, x if ops == ADDED else None, RELU if ops else None
    return kind(
        mode_, 1.0, 0.0, 1.0, 0.0, x, x, x, s, means, EPSILON, means, 0, kept_bytes(x, ops), *chosen, y, dz, activation
    )


# --- normalization alone ---


@shows("cudnnNormAlgo_t/c05 c07 c09")
def test_persistent_algorithm(trial: Callable[..., Trial], cudnn: Any, caller: Caller) -> None:
    """NaN and infinities give the results of the standard algorithm, and the query of run-time errors answers
    SUCCESS."""
    x = TensorSpec.packed(FLOAT, (2, 64, 2, 2))
    trial(forward(x, ALONE, PERSISTENT, generation="norm"), {"x": "special"})
    trial(backward(x, ALONE, PERSISTENT, generation="norm"), {"x": "special"})
    assert cudnn.cudnnQueryRuntimeError(caller.handle, 2, None) == 0


# --- sizes ---


@shows("cudnnDeriveNormTensorDescriptor/c03 c04")
@in_modes
def test_derived_descriptors_serve(cudnn: Any, chain: Callable[..., Trial], mode: Any) -> None:
    """Inference, training and gradients accept the derived descriptors of statistics."""
    x, newer = nhwc(), NORM_MODES[SPATIAL if mode == PERSISTENT else mode]
    first, second = derived(cudnn, x, newer)
    chain(inference(x, mode=mode, generation="norm", scale=first, mean=second))
    chain(*(make(x, ALONE, mode, generation="norm", described=first, means=second) for make in (forward, backward)))


@shows("cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize/c01-c05 c07 c08",
       "cudnnGetBatchNormalizationBackwardExWorkspaceSize/c01-c05 c07 c08",
       "cudnnGetBatchNormalizationTrainingExReserveSpaceSize/c01 c03-c06",
       "cudnnGetNormalizationForwardTrainingWorkspaceSize/c01 c02 c04-c07 c09 c10 c13",
       "cudnnGetNormalizationBackwardWorkspaceSize/c01 c02 c04-c07 c09 c10 c13",
       "cudnnGetNormalizationTrainingReserveSpaceSize/c01 c03 c05-c07 c09")  # fmt: skip
@pytest.mark.ours
@in_modes
@both_generations
def test_sizes(cudnn: Any, caller: Caller, generation: Any, mode: Any) -> None:
    """The reserve space has a byte for each element, but at least 4, if z is added. Unneeded descriptors may be NULL."""
    for ops, x, make in product((ALONE, ACTIVATED, ADDED), (nhwc(), nhwc((1, 3, 1, 1))), (forward, backward)):
        operation = make(x, ops, mode, generation=generation)
        asked = {
            field: getattr(cudnn, query)(*caller.values(query, operation, {}))
            for field, query in SPACES[type(operation)].items()
        }
        assert asked == {field: getattr(operation, field) for field in ("workspace_bytes", "reserve_bytes")}
        assert operation.reserve_bytes == kept_bytes(x, ops)


# --- the calls ---


MAKERS = {"forward": forward, "backward": backward}
CALLS = {
    ("forward", "batch"): EX, ("forward", "norm"): NORM, ("backward", "batch"): BACKWARD_EX, ("backward", "norm"): BACKWARD_NORM,
}  # fmt: skip
in_calls = pytest.mark.parametrize("call, generation", CALLS)


@shows(f"{EX}/c10", f"{BACKWARD_EX}/c10")
@pytest.mark.ours
@pytest.mark.parametrize("ops", [ALONE, ACTIVATED], ids=["alone", "activation"])
@in_calls
def test_descriptors_that_nothing_uses(cudnn: Any, caller: Caller, call: Any, generation: Any, ops: Any) -> None:
    """Calls without z, y and activations ignore the descriptors of these, and normalise as the plain calls without a
    workspace."""
    function = CALLS[call, generation]
    names = [parameter.name for parameter in functions()[function].parameters]
    unused = {"activationDesc": caller.descriptor(replace(RELU, mode=cudnnActivationMode_t.CUDNN_ACTIVATION_TANH))}
    unused |= dict.fromkeys(("zDesc", "dzDesc", "yDesc"), caller.tensor(TensorSpec.packed(FLOAT, (3, 1, 2))))

    class Surplus:
        def __getattr__(self, name: str) -> Any:
            called = getattr(cudnn, name)
            if name != function:
                return called
            return lambda *values: called(
                *(
                    None if (n, ops) == ("workspace", ALONE) else unused.get(n) if v is None else v
                    for n, v in zip(names, values, strict=True)
                )
            )

    trial = Chain(Caller(Surplus(), caller.handle)).call(Step(MAKERS[call](nhwc(), ops, generation=generation)))
    assert trial.passed, trial.explanation()
