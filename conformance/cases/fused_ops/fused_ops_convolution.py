"""Holds cases of the sequences with a convolution: SCALE_BIAS_ACTIVATION_CONV_BNSTATS, ..._WGRAD and CONV_SCALE_BIAS_ADD_ACTIVATION."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnConvolutionMode_t,
    cudnnMathType_t,
    cudnnReorderType_t,
)
from dualdnn.api.operations import (
    ConvolutionSpec,
    ConvScaleBiasAddActivation,
    FilterSpec,
    ScaleBiasActivationConvBnstats,
    ScaleBiasActivationWgrad,
    TensorSpec,
)
from dualdnn.api.operations.specs import FLOAT, NCHW
from dualdnn.api.status import BAD_PARAM
from dualdnn.conformance.calls import sized
from dualdnn.conformance.calls.fused_ops import KINDS, const_pack, variant_pack
from dualdnn.conformance.cases.fused_ops.fused_ops_finalize import (
    ELEMENT,
    NULL,
    PACK,
    PROMISES,
    inference,
    training,
    vector,
)
from dualdnn.conformance.cases.fused_ops.fused_ops_packs import CONST_LABELS, PERSISTENT, VARIANT_LABELS, clauses_of
from dualdnn.conformance.cases.fused_ops.fused_ops_residual import RELU
from dualdnn.conformance.cases.fused_ops.fused_ops_residual import added as residual_sum
from dualdnn.conformance.cases.fused_ops.fused_ops_residual import gradient as residual_gradient
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import prepare

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject

BNSTATS = "CUDNN_FUSED_SCALE_BIAS_ACTIVATION_CONV_BNSTATS"
WGRAD = "CUDNN_FUSED_SCALE_BIAS_ACTIVATION_WGRAD"
ADD = "CUDNN_FUSED_CONV_SCALE_BIAS_ADD_ACTIVATION"
ALL = f"^({BNSTATS}|{WGRAD}|{ADD})"
PRECOMP = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
FILTER_1 = cudnnConvolutionBwdFilterAlgo_t.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1
FMA = cudnnMathType_t.CUDNN_FMA_MATH
CONVOLUTION = ConvolutionSpec(
    cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, FLOAT, (1, 1), (1, 1), (1, 1), 1, FMA, cudnnReorderType_t.CUDNN_DEFAULT_REORDER
)  # fmt: skip
X, W, Y = (
    TensorSpec.packed(FLOAT, (2, 8, 6, 5)),
    FilterSpec(FLOAT, NCHW, (32, 8, 3, 3)),
    TensorSpec.packed(FLOAT, (2, 32, 6, 5)),
)
OF_X, OF_Y = vector(8), vector(32)  # one number for each channel


def statistics(without: Any = ()) -> Any:
    operation = ScaleBiasActivationConvBnstats(CONVOLUTION, RELU, PRECOMP, 0, X, OF_X, OF_X, W, Y, OF_Y, OF_Y)
    return replace(operation, **dict.fromkeys(without))


def filter_gradient(without: Any = ()) -> Any:
    operation = ScaleBiasActivationWgrad(CONVOLUTION, RELU, FILTER_1, 0, X, OF_X, OF_X, Y, W)
    return replace(operation, **dict.fromkeys(without))


def added(activation: Any = RELU, without: Any = ()) -> Any:
    operation = ConvScaleBiasAddActivation(CONVOLUTION, activation, PRECOMP, 0, X, W, OF_Y, Y, OF_Y, OF_Y, Y)
    return replace(operation, **dict.fromkeys(without))


MAKERS = (statistics, filter_gradient, added)
makers = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)


@pytest.mark.parametrize("alone, factor", [("eqScale", 2.0), ("zEqBias", 1.0)])
def test_scale_or_bias_alone_is_applied(caller: Caller, alone: str, factor: float) -> None:
    """A scale or a bias alone is applied after the convolution; both backends might agree on skipping it."""
    operation = sized(caller, added(None, tuple({"eqScale", "z", "zEqScale", "zEqBias"} - {alone})))
    found = []
    for value in (1.0, 2.0):
        memory = prepare(operation, "normal", 0)
        memory[alone] = np.full(operation.tensor(alone).count, value, np.float32).view(np.uint8)
        buffers = {name: caller.handle.to_device(content) for name, content in memory.items()}
        executed(caller, operation, buffers)
        found.append(buffers["y"].to_host(np.float32, operation.tensor("y").count))
    first, second = found
    assert np.allclose(second, factor * first + (0 if alone == "eqScale" else 1), rtol=1e-5, atol=1e-5)
    assert np.abs(second - first).max() > 0.5


NOPS = [
    (statistics, dict(BN_EQSCALEBIAS_DESC=None), ("eqScale", "eqBias")), (filter_gradient, dict(BN_EQSCALEBIAS_DESC=None), ("eqScale", "eqBias")),
    (statistics, dict(YSTATS_DESC=None), ("ySum", "ySqSum")), (statistics, dict(YSUM_PLACEHOLDER=NULL), ("ySum", "ySqSum")),
    (statistics, dict(YSQSUM_PLACEHOLDER=NULL), ("ySum", "ySqSum")), (added, dict(ZDESC=None), ("z", "zEqScale")),
    (added, dict(BN_Z_EQSCALEBIAS_DESC=None), ("zEqScale", "zEqBias")),
]  # fmt: skip


@shows(*clauses_of(CONST_LABELS, f"{ALL}.*becomes a NOP"))
@pytest.mark.parametrize(
    "make, attributes, without", NOPS, ids=lambda value: getattr(value, "__name__", None) or str(value)
)
def test_descriptors_and_placeholders_that_are_null(caller: Caller, make: Any, attributes: Any, without: Any) -> None:
    """NULL descriptors and placeholders omit their operands, whose memory stays untouched."""
    full, fewer = sized(caller, make()), sized(caller, make(without=without))
    results = {}
    memory = {name: np.append(content, np.zeros(16, np.uint8)) for name, content in prepare(full, "normal", 0).items()}
    for operation in (full, fewer):
        buffers = {name: caller.handle.to_device(content) for name, content in memory.items()}
        given = {
            name: None if attributes.get(PLACEHOLDERS.get(name, "")) == NULL else buffer
            for name, buffer in buffers.items()
        }
        changed = attributes if operation is full else {}
        given = {name: buffer for name, buffer in given.items() if operation is full or name in fewer.operands}
        executed(caller, operation, given, **changed)
        output = operation.outputs[0]
        results[operation] = buffers[output].to_host(np.uint8, memory[output].size)
        for name in without:
            assert np.array_equal(buffers[name].to_host(np.uint8, memory[name].size), memory[name])
    assert np.array_equal(results[full], results[fewer])


PLACEHOLDERS = {"ySum": "YSUM_PLACEHOLDER", "ySqSum": "YSQSUM_PLACEHOLDER"}


PLANNED = {
    **{make.__name__: make() for make in MAKERS}, "sum": residual_sum(), "gradient": residual_gradient(),
    "training": training(), "inference": inference(),
}  # fmt: skip


@shows(*clauses_of(CONST_LABELS, f"{ALL}.*activation step becomes a NOP"), f"{CONST_LABELS}/c009 c022 c062 c075",
       f"{CONST_LABELS}/c100 c141 c193")  # fmt: skip
@pytest.mark.parametrize("name", PLANNED)
def test_identity_is_no_activation(caller: Caller, name: Any) -> None:
    """The identity gives the plan without an activation, also in the persistent mode, and no larger workspace."""
    operation, nothing = PLANNED[name], [None] if name in ("statistics", "filter_gradient", "added") else []
    identity = replace(RELU, mode=cudnnActivationMode_t.CUDNN_ACTIVATION_IDENTITY)
    given = [
        *({"ACTIVATION_DESC": spec} for spec in (*nothing, identity)),
        {"ACTIVATION_DESC": identity, "BN_MODE": PERSISTENT},
    ]
    assert len({made(caller, operation, **attributes)[1] for attributes in given}) == 1


def made(caller: Caller, operation: Any, **attributes: Any) -> Any:
    """Return (a plan of the operation with other attributes, the bytes of workspace that it asks for)."""
    new = caller.cudnn.cudnnCreateFusedOpsPlan(KINDS[type(operation)])
    return new, caller.cudnn.cudnnMakeFusedOpsPlan(caller.handle, new, const_pack(caller, operation, **attributes))


def executed(caller: Caller, operation: Any, memory: Any, scalars: Any = None, **attributes: Any) -> None:
    """Make a plan with these attributes and run it on this memory."""
    ready, needed = made(caller, operation, **attributes)
    sized_operation = replace(operation, workspace_bytes=max(needed, operation.workspace_bytes))
    variants = variant_pack(caller, sized_operation, memory)
    for label, value in (scalars or {}).items():
        caller.cudnn.cudnnSetFusedOpsVariantParamPackAttribute(variants, label, value)
    caller.cudnn.cudnnFusedOpsExecute(caller.handle, ready, variants)


PROMISED = {
    statistics: ("c023", "c024", "c025"),
    filter_gradient: ("c040", "c041", "c042"),
    added: ("c119", "c120", "c121"),
}


@shows(
    *clauses_of(CONST_LABELS, f"{ALL}: (where a|.*which alignment|.*takes (a pointer to )?an initialised)"),
    *clauses_of(VARIANT_LABELS, f"{ALL}: (where a|.*must agree)"),
)
@makers
def test_promises(subject: Subject, caller: Caller, refuses: Callable[..., bool], make: Any) -> None:
    """Memory that breaks its placeholder's promise is refused: missing, not NULL, or not aligned."""
    if not subject.survives_stray_pointers:
        pytest.skip("a fault on a GPU ends the process's work there")
    operation = sized(caller, make())
    memory = {
        name: np.append(content, np.zeros(16, np.uint8)) for name, content in prepare(operation, "normal", 0).items()
    }
    buffers = {name: caller.handle.to_device(content) for name, content in memory.items()}
    whole = {name: buffers[name].slice(0, operation.nbytes(name)) for name in buffers}
    null, element, pack = (f"{VARIANT_LABELS}/{clause}" for clause in PROMISED[make])
    call, unchanged = (executed, caller, operation), tuple(buffers.values())
    promised = {name: PROMISES[name] for name in whole if name in PROMISES}
    for name, placeholder in promised.items():
        for promise, clause in ((ELEMENT, element), (PACK, pack)):
            refuses(BAD_PARAM, clause, *call, {**whole, name: None}, unchanged=unchanged, **{placeholder: promise})
        for start, promise, clause in ((4, PACK, pack), (1, ELEMENT, "cudnnStatus_t/c05")):
            shifted = {**whole, name: buffers[name].slice(start, operation.nbytes(name))}
            refuses(BAD_PARAM, clause, *call, shifted, unchanged=unchanged, **{placeholder: promise})
    refuses(BAD_PARAM, null, *call, whole, unchanged=unchanged, BN_EQSCALE_PLACEHOLDER=NULL)
    executed(caller, operation, whole, **dict.fromkeys(promised.values(), PACK))


# These are labels of the pack.
WORKSPACE = 9
SIZE = 100
SIZED = {statistics: ("c019", "c021"), filter_gradient: ("c036", "c038"), added: ("c115", "c117")}


@shows(*clauses_of(VARIANT_LABELS, f"{ALL}: CUDNN_(PTR_WORKSPACE|SCALAR_SIZE_T)\\w* \\("), "cudnnMakeFusedOpsPlan/c02")
@makers
def test_workspaces(
    subject: Subject, caller: Caller, refuses: Callable[..., bool], monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    """The size that the plan reports is enough, and a smaller or missing workspace is refused. A plan that needs no
    workspace takes NULL. Our backends are also made to report more bytes than they use."""
    missing, small = (f"{VARIANT_LABELS}/{clause}" for clause in SIZED[make])
    for spare in (0, 256) if subject.ours else (0,):
        with monkeypatch.context() as patched:
            if spare:
                backend, needs = caller.handle.backend, caller.handle.backend.workspace_bytes
                patched.setattr(backend, "workspace_bytes", lambda o, needs=needs, spare=spare: needs(o) + spare)
            operation = sized(caller, make())
            memory = prepare(operation, "normal", 0)
            buffers = {name: caller.handle.to_device(content) for name, content in memory.items()}
            needed, unchanged = made(caller, operation)[1], tuple(buffers.values())
            if needed:
                for given in (0, needed - 1):
                    refuses(BAD_PARAM, small, executed, caller, operation, buffers, {SIZE: given}, unchanged=unchanged)
                refuses(
                    BAD_PARAM, missing, executed, caller, operation, buffers, {WORKSPACE: None}, unchanged=unchanged
                )
            else:
                executed(caller, operation, buffers, {WORKSPACE: None, SIZE: 0})
            executed(caller, operation, buffers, {SIZE: needed})
