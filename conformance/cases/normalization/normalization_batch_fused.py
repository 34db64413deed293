"""Holds cases of training with a fused activation (cudnnBatchNormalization*Ex, cudnnNormalization*), and the sizes
of buffers."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

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
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT8, NHWC
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.layouts import LAYOUTS, laid_out
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import Chain, Step

from .normalization_batch import (
    ACTIVATION,
    DIMS,
    EPSILON,
    NORM_MODES,
    PERSIST,
    PERSISTENT,
    SPATIAL,
    STANDARD,
    both_generations,
    derived,
    given,
    in_modes,
    inference,
    statistics,
)

EX, BACKWARD_EX = "cudnnBatchNormalizationForwardTrainingEx", "cudnnBatchNormalizationBackwardEx"
NORM, BACKWARD_NORM = "cudnnNormalizationForwardTraining", "cudnnNormalizationBackward"
EX_SIZE = "cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize"
BACKWARD_EX_SIZE = "cudnnGetBatchNormalizationBackwardExWorkspaceSize"
EX_RESERVE = "cudnnGetBatchNormalizationTrainingExReserveSpaceSize"
NORM_SIZE = "cudnnGetNormalizationForwardTrainingWorkspaceSize"
BACKWARD_NORM_SIZE = "cudnnGetNormalizationBackwardWorkspaceSize"
NORM_RESERVE = "cudnnGetNormalizationTrainingReserveSpaceSize"
NAN, NO_NAN = cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN
RELU = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, NAN, 0.0)
ALONE, ACTIVATED, ADDED = range(3)
fused = pytest.mark.parametrize("ops", [ACTIVATED, ADDED], ids=["activation", "add_activation"])


def nhwc(data_type: Any = HALF, dims: tuple[int, ...] = DIMS) -> TensorSpec:
    return TensorSpec.packed(data_type, dims, NHWC)


def kept_bytes(x: TensorSpec, ops: int) -> int:
    """Return the bytes of the reserve space: one for each element with z, at least a word."""
    return max(x.count, 4) if ops == ADDED else 0


def of_generation(generation: str, ops: int, mode: cudnnBatchNormMode_t) -> tuple[Any, tuple[Any, ...]]:
    """Return (mode, ops and algorithm) for one of the two calls; the newer one has PERSIST for SPATIAL_PERSISTENT."""
    if generation == "batch":
        return mode, (cudnnBatchNormOps_t(ops),)
    algo = PERSIST if mode == PERSISTENT else STANDARD
    return NORM_MODES[SPATIAL if mode == PERSISTENT else mode], (cudnnNormOps_t(ops), algo)


def forward(x: TensorSpec | None = None, ops: int = ADDED, mode: cudnnBatchNormMode_t = SPATIAL, *, generation: str = "batch",
            y: TensorSpec | None = None, z: TensorSpec | None = None, alpha: float = 1.0, beta: float = 0.0, running: bool = True,
            saved: bool = True, activation: ActivationSpec = RELU, epsilon: float = EPSILON, described: TensorSpec | None = None,
            means: TensorSpec | None = None, workspace: int = 0) -> Any:  # fmt: skip
    x = x or nhwc()
    s = described or statistics(x, mode)
    means = means or s
    mode_, chosen = of_generation(generation, ops, mode)
    kind: Any = BatchNormalizationForwardTrainingEx if generation == "batch" else NormalizationForwardTraining
    return kind(
        mode_, alpha, beta, x, y or x, s, means, 0.25, means if running else None, epsilon, means if saved else None, workspace,
        kept_bytes(x, ops), *chosen, (z or x) if ops == ADDED else None, activation if ops else None,
    )  # fmt: skip


def backward(x: TensorSpec | None = None, ops: int = ADDED, mode: cudnnBatchNormMode_t = SPATIAL, *, generation: str = "batch",
             dy: TensorSpec | None = None, dx: TensorSpec | None = None, y: TensorSpec | None = None, dz: TensorSpec | None = None,
             data: tuple[float, float] = (1.0, 0.0), parameters: tuple[float, float] = (1.0, 0.0), saved: bool = True,
             activation: ActivationSpec = RELU, epsilon: float = EPSILON, described: TensorSpec | None = None,
             means: TensorSpec | None = None, workspace: int = 0) -> Any:  # fmt: skip
    x = x or nhwc()
    s = described or statistics(x, mode)
    means = means or s
    mode_, chosen = of_generation(generation, ops, mode)
    kind: Any = BatchNormalizationBackwardEx if generation == "batch" else NormalizationBackward
    return kind(
        mode_, *data, *parameters, x, dy or x, dx or x, s, means, epsilon, means if saved else None, workspace, kept_bytes(x, ops),
        *chosen, (y or x) if ops else None, (dz or x) if ops == ADDED else None, activation if ops else None,
    )  # fmt: skip


# --- normalization alone ---


@shows("cudnnNormAlgo_t/c05 c07 c09")
def test_persistent_algorithm(trial, cudnn, caller):
    """NaN and infinities give the results of the standard algorithm, and the query of run-time errors answers
    SUCCESS."""
    x = TensorSpec.packed(FLOAT, (2, 64, 2, 2))
    trial(forward(x, ALONE, PERSISTENT, generation="norm"), {"x": "special"})
    trial(backward(x, ALONE, PERSISTENT, generation="norm"), {"x": "special"})
    assert cudnn.cudnnQueryRuntimeError(caller.handle, 2, None) == 0


# --- with an activation ---


# --- sizes ---


def sizes(
    cudnn: Any, caller: Any, generation: str, ops: int, like: TensorSpec, mode: Any = SPATIAL, **wrong: Any
) -> tuple[Any, ...]:
    """Return the queries of forward workspace, backward workspace and reserve space, without arguments.

    wrong: replacements for the descriptors of x, y (dx), d (dy), the statistics s and others.
    """
    made = {name: caller.tensor(wrong.get(name, like)) for name in "xyd"}
    made["s"] = caller.tensor(wrong.get("s") or statistics(like, mode))
    activation = (
        None
        if ops == ALONE or wrong.get("activation", RELU) is None
        else caller.descriptor(wrong.get("activation", RELU))
    )
    optional = caller.tensor(wrong.get("optional", wrong.get("x", like))) if ops and wrong.get("z", True) else None
    z, y = optional if ops == ADDED else None, optional
    h, t, s = caller.handle, made, made["s"]
    groups = wrong.get("groups", 1)
    if generation == "batch":
        return (
            lambda: cudnn.cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
                h, mode, ops, t["x"], z, t["y"], s, activation
            ),
            lambda: cudnn.cudnnGetBatchNormalizationBackwardExWorkspaceSize(
                h, mode, ops, t["x"], y, t["d"], z, t["y"], s, activation
            ),
            lambda: cudnn.cudnnGetBatchNormalizationTrainingExReserveSpaceSize(h, mode, ops, activation, t["x"]),
        )
    newer, algo = NORM_MODES[SPATIAL if mode == PERSISTENT else mode], wrong.get("algo", int(mode == PERSISTENT))
    return (
        lambda: cudnn.cudnnGetNormalizationForwardTrainingWorkspaceSize(h, newer, ops, algo, t["x"], z, t["y"], s, activation, s, groups),
        lambda: cudnn.cudnnGetNormalizationBackwardWorkspaceSize(h, newer, ops, algo, t["x"], y, t["d"], z, t["y"], s, activation, s, groups),
        lambda: cudnn.cudnnGetNormalizationTrainingReserveSpaceSize(h, newer, ops, algo, activation, t["x"], groups),
    )  # fmt: skip


@shows("cudnnDeriveNormTensorDescriptor/c03 c04")
@in_modes
def test_derived_descriptors_serve(cudnn, chain, mode):
    """Inference, training and gradients accept the derived descriptors of statistics."""
    x, newer = nhwc(), NORM_MODES[SPATIAL if mode == PERSISTENT else mode]
    first, second = (TensorSpec(kind, dims, strides) for kind, _, dims, strides in derived(cudnn, x, newer))
    chain(inference(x, mode=mode, generation="norm", scale=first, mean=second))
    chain(*(make(x, ALONE, mode, generation="norm", described=first, means=second) for make in (forward, backward)))


QUERIES = {"batch": (EX_SIZE, BACKWARD_EX_SIZE, EX_RESERVE), "norm": (NORM_SIZE, BACKWARD_NORM_SIZE, NORM_RESERVE)}


@shows("cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize/c01-c05 c07 c08",
       "cudnnGetBatchNormalizationBackwardExWorkspaceSize/c01-c05 c07 c08", "cudnnGetBatchNormalizationTrainingExReserveSpaceSize/c01 c03-c06",
       "cudnnGetNormalizationForwardTrainingWorkspaceSize/c01 c02 c04-c07 c09 c10 c13",
       "cudnnGetNormalizationBackwardWorkspaceSize/c01 c02 c04-c07 c09 c10 c13",
       "cudnnGetNormalizationTrainingReserveSpaceSize/c01 c03 c05-c07 c09")  # fmt: skip
@pytest.mark.ours
@in_modes
@both_generations
def test_sizes(cudnn, caller, generation, mode):
    """The reserve space has a byte for each element with z, at least a word. Unneeded descriptors may be NULL."""
    for ops, x in product((ALONE, ACTIVATED, ADDED), (nhwc(), nhwc(dims=(1, 3, 1, 1)))):
        found = [query() for query in sizes(cudnn, caller, generation, ops, x, mode)]
        first, second = (make(x, ops, mode, generation=generation) for make in (forward, backward))
        assert found == [first.workspace_bytes, second.workspace_bytes, first.reserve_bytes]
        assert second.reserve_bytes == first.reserve_bytes == kept_bytes(x, ops)


@shows("cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize/c06 c07 c09-c12",
       "cudnnGetBatchNormalizationBackwardExWorkspaceSize/c06 c07 c09-c12", "cudnnGetBatchNormalizationTrainingExReserveSpaceSize/c05 c07 c08",
       "cudnnGetNormalizationForwardTrainingWorkspaceSize/c03 c08 c09 c11 c12 c14-c17",
       "cudnnGetNormalizationBackwardWorkspaceSize/c03 c08 c09 c11 c12 c14-c17",
       "cudnnGetNormalizationTrainingReserveSpaceSize/c04 c07 c08 c10 c11")  # fmt: skip
@pytest.mark.ours
def test_sizes_that_are_refused(cudnn, caller, refuses):
    x, few = nhwc(), TensorSpec.packed(HALF, (2, 3, 5))
    longer, other = nhwc(HALF, (2, 3, 5, 8)), nhwc(FLOAT)
    tanh = replace(RELU, mode=cudnnActivationMode_t.CUDNN_ACTIVATION_TANH)
    nchw = TensorSpec.packed(HALF, DIMS)
    wrong_types = [TensorSpec.packed(kind, statistics(x, SPATIAL).dims) for kind in (HALF, DOUBLE)]
    # Each mistake has a status and the clauses of three queries in both generations; None where a query accepts it.
    table: list[tuple[dict[str, Any], int, Any, tuple[Any, ...], tuple[Any, ...]]] = [
        ({"x": few}, ALONE, BAD_PARAM, ("c10", "c10", "c08"), ("c15", "c15", "c11")),
        ({"y": few}, ALONE, BAD_PARAM, ("c10", "c10", None), ("c15", "c15", None)),
        ({"optional": few}, ADDED, BAD_PARAM, (None, "c10", None), ("c15", "c15", None)),
        ({"y": longer}, ALONE, BAD_PARAM, ("c12", "c12", None), ("c17", "c17", None)),
        ({"y": other}, ALONE, BAD_PARAM, ("c12", "c12", None), ("c17", "c17", None)),
        ({"d": longer}, ALONE, BAD_PARAM, (None, "c12", None), (None, "c17", None)),
        ({"s": statistics(x, ACTIVATION)}, ALONE, BAD_PARAM, ("c11", "c11", None), ("c16", "c16", None)),
        ({"s": wrong_types[0]}, ALONE, BAD_PARAM, ("c11", "c11", None), ("c16", "c16", None)),
        ({"s": wrong_types[1]}, ALONE, BAD_PARAM, ("c11", "c11", None), ("c16", "c16", None)),
        ({"activation": None}, ACTIVATED, BAD_PARAM, ("c07", "c07", "c05"), ("c09", "c09", "c07")),
        ({"activation": None}, ADDED, BAD_PARAM, ("c07", "c07", "c05"), ("c09", "c09", "c07")),
        ({"activation": tanh}, ACTIVATED, NOT_SUPPORTED, ("c09", "c09", "c07"), ("c14", "c14", "c10")),
        ({"z": False}, ADDED, BAD_PARAM, ("c04", "c04", None), ("c06", "c06", None)),
        ({"x": nchw, "y": nchw, "d": nchw}, ACTIVATED, NOT_SUPPORTED, ("c09", "c09", "c07"), ("c03", "c03", "c04")),
        ({"x": nchw, "y": nchw, "d": nchw}, ADDED, NOT_SUPPORTED, ("c09", "c09", "c07"), ("c03", "c03", "c04")),
        ({"groups": 2}, ALONE, NOT_SUPPORTED, (None, None, None), ("c12", "c12", "c08")),
        ({"algo": 2}, ALONE, NOT_SUPPORTED, (None, None, None), ("c14", "c14", "c10")),
    ]  # fmt: skip
    for wrong, ops, status, batch, norm in [({}, ALONE, None, (), ()), *table]:
        for generation, clauses in (("batch", batch), ("norm", norm)):
            queries = sizes(cudnn, caller, generation, ops, x, SPATIAL, **wrong)
            if not wrong:
                assert [query() >= 0 for query in queries] == [True] * 3
                continue
            for function, query, clause in zip(QUERIES[generation], queries, clauses, strict=True):
                if clause is not None:
                    refuses(status, f"{function}/{clause}", query)
    small = nhwc(INT8)
    for generation, clauses in (("batch", ("c09", "c09", "c07")), ("norm", ("c14", "c14", "c10"))):
        for function, query, clause in zip(
            QUERIES[generation], sizes(cudnn, caller, generation, ALONE, small), clauses, strict=True
        ):
            refuses(NOT_SUPPORTED, f"{function}/{clause}", query)
    added = sizes(cudnn, caller, "batch", ADDED, nhwc(FLOAT))
    refuses(NOT_SUPPORTED, f"{EX_SIZE}/c09", added[0])


# --- refusals ---


MAKERS = {"forward": forward, "backward": backward}
CALLS = {
    ("forward", "batch"): EX,
    ("forward", "norm"): NORM,
    ("backward", "batch"): BACKWARD_EX,
    ("backward", "norm"): BACKWARD_NORM,
}
in_calls = pytest.mark.parametrize("call, generation", CALLS)


def cited(call: str, generation: str, **clauses: str) -> str:
    """Return the clause of a call; the names are ex, norm, backward_ex and backward_norm."""
    name = {"batch": "ex", "norm": "norm"}[generation]
    return f"{CALLS[call, generation]}/{clauses[name if call == 'forward' else f'backward_{name}']}"


@shows(f"{EX}/c45", f"{NORM}/c39", f"{BACKWARD_EX}/c44", f"{BACKWARD_NORM}/c39")
@in_calls
def test_fused_null(caller, refuses, call, generation):
    operation = MAKERS[call](generation=generation)
    clause = cited(call, generation, ex="c45", norm="c39", backward_ex="c44", backward_norm="c39")
    tensors = ("x", "y", "scale", "bias") if call == "forward" else ("x", "dy", "dx", "scale", "dScale", "dBias")
    factors = (
        ("alpha", "beta") if call == "forward" else ("alphaDataDiff", "betaDataDiff", "alphaParamDiff", "betaParamDiff")
    )
    for missing in tensors:
        memory = {**given(caller, operation), missing: None}
        refuses(BAD_PARAM, clause, caller, operation, memory, unchanged=tuple(m for m in memory.values() if m))
    for missing in factors:
        refuses(BAD_PARAM, clause, caller, replace(operation, **{missing: None}), given(caller, operation))


@pytest.mark.ours
@pytest.mark.parametrize("ops", [ALONE, ACTIVATED], ids=["alone", "activation"])
@in_calls
def test_descriptors_that_nothing_uses(cudnn, caller, call, generation, ops):
    """Calls without z, y and activations ignore the descriptors of these."""
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
                *(unused.get(n) if v is None else v for n, v in zip(names, values, strict=True))
            )

    trial = Chain(Caller(Surplus(), caller.handle)).call(Step(MAKERS[call](ops=ops, generation=generation)))
    assert trial.passed, trial.explanation()


@shows(f"{EX}/c49", f"{EX}/c50", f"{NORM}/c42", f"{NORM}/c43", f"{BACKWARD_EX}/c48", f"{BACKWARD_NORM}/c42")
@in_calls
def test_one_of_two_statistics_of_fused_calls_null(caller, refuses, call, generation):
    operation = MAKERS[call](generation=generation)
    saved = cited(call, generation, ex="c49", norm="c42", backward_ex="c48", backward_norm="c42")
    running = cited(call, generation, ex="c50", norm="c43", backward_ex="", backward_norm="")
    for missing, clause in (
        ("savedMean", saved),
        ("savedInvVariance", saved),
        ("runningMean", running),
        ("runningVariance", running),
    ):
        if missing in operation.operands:
            refuses(BAD_PARAM, clause, caller, operation, {**given(caller, operation), missing: None})


@shows("cudnnBatchNormalizationForwardTrainingEx/c15 c32 c46 c51-c53", "cudnnBatchNormalizationBackwardEx/c15 c31 c45 c49-c51",
       "cudnnNormalizationForwardTraining/c02 c29 c40 c44 c45", "cudnnNormalizationBackward/c02 c27 c40 c43 c44")  # fmt: skip
@in_calls
def test_fused_tensors_that_are_refused(refused, call, generation):
    make = MAKERS[call]
    rank = cited(call, generation, ex="c46", norm="c40", backward_ex="c45", backward_norm="c40")
    dims = cited(call, generation, ex="c52", norm="c45", backward_ex="c50", backward_norm="c44")
    types = cited(call, generation, ex="c53", norm="c45", backward_ex="c51", backward_norm="c44")
    least = cited(call, generation, ex="c51", norm="c44", backward_ex="c49", backward_norm="c43")
    for wrong in ((2, 3, 7), (2, 3, 2, 2, 2, 2)):
        refused(make(TensorSpec.packed(HALF, wrong), ALONE, generation=generation), BAD_PARAM, rank)
    for name in ("y",) if call == "forward" else ("dy", "dx"):
        refused(make(ops=ALONE, generation=generation, **{name: nhwc(HALF, (2, 3, 7, 5))}), BAD_PARAM, dims)
        refused(make(ops=ALONE, generation=generation, **{name: nhwc(FLOAT)}), BAD_PARAM, types)
    for epsilon in (-1.0, -1e-300, float("nan")):
        refused(make(ops=ALONE, generation=generation, epsilon=epsilon), BAD_PARAM, least)


@shows(f"{EX}/c47", f"{EX}/c48", f"{NORM}/c41", f"{BACKWARD_EX}/c46", f"{BACKWARD_EX}/c47", f"{BACKWARD_EX}/c27",
       f"{BACKWARD_NORM}/c23", f"{BACKWARD_NORM}/c29", f"{BACKWARD_NORM}/c41")  # fmt: skip
@in_modes
@in_calls
def test_fused_statistics_that_are_refused(refused, call, generation, mode):
    make, x = MAKERS[call], nhwc()
    right = statistics(x, mode)
    clause = cited(call, generation, ex="c47", norm="c41", backward_ex="c46", backward_norm="c41")
    if mode == ACTIVATION:
        clause = cited(call, generation, ex="c48", norm="c41", backward_ex="c47", backward_norm="c41")
    others = [statistics(x, SPATIAL if mode == ACTIVATION else ACTIVATION), TensorSpec.packed(FLOAT, (*right.dims, 1))]
    others += [TensorSpec.packed(kind, right.dims) for kind in (HALF, DOUBLE)]
    for wrong in others:
        refused(make(x, ALONE, mode, generation=generation, described=wrong), BAD_PARAM, clause)
        if generation == "norm":
            refused(make(x, ALONE, mode, generation=generation, described=right, means=wrong), BAD_PARAM, clause)


@shows(f"{EX}/c22", f"{EX}/c41", f"{EX}/c42", f"{EX}/c44", f"{NORM}/c18", f"{NORM}/c21", f"{NORM}/c38", f"{BACKWARD_EX}/c19",
       f"{BACKWARD_EX}/c43", f"{BACKWARD_NORM}/c17", f"{BACKWARD_NORM}/c21", f"{BACKWARD_NORM}/c38")  # fmt: skip
@in_calls
def test_fused_configurations_that_are_refused(caller, refused, refuses, call, generation):
    """Other layouts, activations and types are refused, and so is a missing or different z, dz or activation."""
    make, extra = MAKERS[call], "z" if call == "forward" else "dz"
    layout = cited(call, generation, ex="c44", norm="c18", backward_ex="c19", backward_norm="c17")
    unsupported = cited(call, generation, ex="c44", norm="c38", backward_ex="c43", backward_norm="c38")
    needed = cited(call, generation, ex="c22", norm="c21", backward_ex="c24", backward_norm="c21")
    for name in LAYOUTS:
        if name != "nhwc":
            refused(make(laid_out(HALF, DIMS, name), ACTIVATED, generation=generation), NOT_SUPPORTED, layout)
    for mode in cudnnActivationMode_t:
        if mode != RELU.mode:
            refused(
                make(ops=ACTIVATED, generation=generation, activation=replace(RELU, mode=mode)),
                NOT_SUPPORTED,
                unsupported,
            )
    refused(make(nhwc(INT8), ALONE, generation=generation), NOT_SUPPORTED, unsupported)
    refused(make(generation=generation, **{extra: nhwc(HALF, (2, 3, 7, 5))}), BAD_PARAM, needed)
    refused(make(generation=generation, **{extra: nhwc(FLOAT)}), BAD_PARAM, needed)
    if call == "forward" and generation == "batch":
        for data_type, clause in ((FLOAT, "c41"), (DOUBLE, "c42")):
            refused(make(nhwc(data_type)), NOT_SUPPORTED, f"{EX}/{clause}")
    operation = make(generation=generation)
    refuses(BAD_PARAM, needed, caller, operation, {**given(caller, operation), extra: None})
