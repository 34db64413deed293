"""Holds cases of the sequences with a convolution: SCALE_BIAS_ACTIVATION_CONV_BNSTATS, ..._WGRAD and CONV_SCALE_BIAS_ADD_ACTIVATION."""

from __future__ import annotations

from dataclasses import replace

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
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, NCHW
from dualdnn.api.status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED
from dualdnn.conformance.calls import sized
from dualdnn.conformance.calls.fused_ops import KINDS, const_pack, variant_pack
from dualdnn.conformance.cases.fused_ops.fused_ops_finalize import ELEMENT, NULL, PACK, vector
from dualdnn.conformance.cases.fused_ops.fused_ops_packs import (
    CONST_LABELS,
    PER_ACTIVATION,
    PERSISTENT,
    VARIANT_LABELS,
    clauses_of,
)
from dualdnn.conformance.cases.fused_ops.fused_ops_residual import RELU
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import prepare

BNSTATS, WGRAD, ADD = (
    "CUDNN_FUSED_SCALE_BIAS_ACTIVATION_CONV_BNSTATS",
    "CUDNN_FUSED_SCALE_BIAS_ACTIVATION_WGRAD",
    "CUDNN_FUSED_CONV_SCALE_BIAS_ADD_ACTIVATION",
)
ALL = f"^({BNSTATS}|{WGRAD}|{ADD})"
UNSUPPORTED = "cudnnCreateFusedOpsPlan/c04"
PRECOMP = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
FILTER_0, FILTER_1 = (cudnnConvolutionBwdFilterAlgo_t[f"CUDNN_CONVOLUTION_BWD_FILTER_ALGO_{n}"] for n in (0, 1))
TENSOR_OP, FMA = cudnnMathType_t.CUDNN_TENSOR_OP_MATH, cudnnMathType_t.CUDNN_FMA_MATH
IMAGES, CHANNELS, FILTERS = 2, 8, 32


class Shape:
    """Describes the tensors of a convolution."""

    def __init__(
        self,
        kind=FLOAT,
        tensor_format=NCHW,
        sizes=(6, 5),
        taps=(3, 3),
        groups=1,
        channels=CHANNELS,
        math=FMA,
        **geometry,
    ):
        rank = len(sizes)
        known = {"padding": (1,) * rank, "stride": (1,) * rank, "dilation": (1,) * rank, **geometry}
        self.convolution = ConvolutionSpec(
            cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, DOUBLE if kind == DOUBLE else FLOAT, known["padding"], known["stride"],
            known["dilation"], groups, math, cudnnReorderType_t.CUDNN_DEFAULT_REORDER,
        )  # fmt: skip
        self.kind, self.numbers = kind, DOUBLE if kind == DOUBLE else FLOAT
        self.x = TensorSpec.packed(kind, (IMAGES, channels, *sizes), tensor_format)
        self.w = FilterSpec(kind, tensor_format, (FILTERS, channels // groups, *taps))
        self.y = TensorSpec.packed(kind, self.convolution.output_dims(self.x.dims, self.w.dims), tensor_format)

    def per_channel(self, count, kind=None):
        return vector(self.kind if kind is None else kind, count, rank=self.x.rank)


def statistics(activation=RELU, without=(), algo=PRECOMP, **shape):
    s = Shape(**shape)
    eq, sums = s.per_channel(s.x.dims[1]), s.per_channel(FILTERS, s.numbers)
    operation = ScaleBiasActivationConvBnstats(s.convolution, activation, algo, 0, s.x, eq, eq, s.w, s.y, sums, sums)
    return replace(operation, **dict.fromkeys(without))


def filter_gradient(activation=RELU, without=(), algo=FILTER_1, **shape):
    s = Shape(**shape)
    eq = s.per_channel(s.x.dims[1])
    operation = ScaleBiasActivationWgrad(s.convolution, activation, algo, 0, s.x, eq, eq, s.y, s.w)
    return replace(operation, **dict.fromkeys(without))


def added(activation=RELU, without=(), algo=PRECOMP, **shape):
    s = Shape(**shape)
    eq = s.per_channel(FILTERS)
    operation = ConvScaleBiasAddActivation(s.convolution, activation, algo, 0, s.x, s.w, eq, s.y, eq, eq, s.y)
    return replace(operation, **dict.fromkeys(without))


MAKERS = (statistics, filter_gradient, added)
makers = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)


@pytest.mark.parametrize("alone, factor", [("eqScale", 2.0), ("zEqBias", 1.0)])
def test_one_step_alone_is_made(caller, alone, factor):
    """A scale or a bias alone behind the convolution is computed, even if both backends could take it for nothing to
    do."""
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
def test_descriptors_and_placeholders_that_are_null(caller, make, attributes, without):
    """NULL descriptors and placeholders compute the same as without the operands; memory given for them stays
    untouched."""
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


@shows(*clauses_of(CONST_LABELS, f"{ALL}.*activation step becomes a NOP"))
@makers
def test_identity_is_no_activation(caller, make):
    """The plan with the identity is the same, and its workspace is no larger."""
    identity = replace(RELU, mode=cudnnActivationMode_t.CUDNN_ACTIVATION_IDENTITY)
    sizes = {made(caller, make(None), ACTIVATION_DESC=spec)[1] for spec in (None, identity)}
    assert len(sizes) == 1


def made(caller, operation, **attributes):
    """Return (a plan of the operation with other attributes, the bytes of workspace that it asks for)."""
    new = caller.cudnn.cudnnCreateFusedOpsPlan(KINDS[type(operation)])
    return new, caller.cudnn.cudnnMakeFusedOpsPlan(caller.handle, new, const_pack(caller, operation, **attributes))


def executed(caller, operation, memory, scalars=None, **attributes):
    """Make a plan with these attributes and run it on this memory."""
    ready, needed = made(caller, operation, **attributes)
    sized_operation = replace(operation, workspace_bytes=max(needed, operation.workspace_bytes))
    variants = variant_pack(caller, sized_operation, memory)
    for label, value in (scalars or {}).items():
        caller.cudnn.cudnnSetFusedOpsVariantParamPackAttribute(variants, label, value)
    caller.cudnn.cudnnFusedOpsExecute(caller.handle, ready, variants)


@shows(*clauses_of(CONST_LABELS, f"{ALL}: as of 7.6.0 ?.* only"))
@makers
def test_support(caller, refuses, make):
    """Other modes of the sequence, activations, data types and layouts are refused."""
    sequence = {statistics: ("c009", "c022"), filter_gradient: ("c062", "c075"), added: (None, "c193")}[make]
    if sequence[0]:
        made(caller, make(), BN_MODE=PERSISTENT)
        refuses(NOT_SUPPORTED, f"{CONST_LABELS}/{sequence[0]}", made, caller, make(), BN_MODE=PER_ACTIVATION)
    for mode in cudnnActivationMode_t:
        if not mode.name.endswith(("_RELU", "IDENTITY")) or mode.name.endswith("CLIPPED_RELU"):
            refuses(
                NOT_SUPPORTED,
                f"{CONST_LABELS}/{sequence[1]}",
                made,
                caller,
                make(),
                ACTIVATION_DESC=replace(RELU, mode=mode),
            )
    half = replace(make().convolution, compute_type=HALF)
    refuses(NOT_SUPPORTED, UNSUPPORTED, made, caller, make(kind=HALF), CONV_DESC=half)
    refuses(
        NOT_SUPPORTED,
        UNSUPPORTED,
        made,
        caller,
        make(),
        BN_EQSCALEBIAS_DESC=vector(HALF, CHANNELS if make is not added else FILTERS),
    )
    if make is statistics:
        refuses(NOT_SUPPORTED, UNSUPPORTED, made, caller, make(), YSTATS_DESC=vector(DOUBLE, FILTERS))


@shows(UNSUPPORTED)
@pytest.mark.parametrize("make, name, channels, halves", [
    (statistics, "BN_EQSCALEBIAS_DESC", CHANNELS, ("eqScale", "eqBias")), (filter_gradient, "BN_EQSCALEBIAS_DESC", CHANNELS, ("eqScale", "eqBias")),
    (added, "BN_Z_EQSCALEBIAS_DESC", FILTERS, ("zEqScale", "zEqBias"))])  # fmt: skip
def test_support_of_a_scale_or_a_bias_alone(caller, refuses, make, name, channels, halves):
    """The descriptor of both counts where only one of the two is given."""
    for left_out in halves:
        operation = make(without=(left_out,))
        made(caller, operation)
        refuses(NOT_SUPPORTED, UNSUPPORTED, made, caller, operation, **{name: vector(HALF, channels)})


@shows(*clauses_of(CONST_LABELS, f"{ALL}: (the shape in|the tensor in)"))
@pytest.mark.parametrize("make, name, clause, channels", [
    (statistics, "BN_EQSCALEBIAS_DESC", "c013", CHANNELS), (statistics, "YSTATS_DESC", "c037", FILTERS),
    (filter_gradient, "BN_EQSCALEBIAS_DESC", "c066", CHANNELS), (added, "BN_EQSCALEBIAS_DESC", "c176", FILTERS)])  # fmt: skip
def test_wrong_shapes(caller, refuses, make, name, clause, channels):
    made(caller, make(), **{name: vector(channels=channels)})
    for dims in ((1, channels + 1, 1, 1), (2, channels, 1, 1), (1, channels, 6, 5), (1, channels, 1, 1, 1)):
        wrong = TensorSpec.packed(FLOAT, dims)
        refuses(BAD_PARAM, f"{CONST_LABELS}/{clause}", made, caller, make(), **{name: wrong})


@shows(INCORRECT_PARAMETER)
@makers
def test_attributes_that_do_not_fit(caller, refuses, make):
    """Missing attributes, and tensors that do not fit the convolution, are refused."""
    of = make()
    first = "DYDESC" if make is filter_gradient else "YDESC"
    weights = "DWDESC" if make is filter_gradient else "WDESC"
    filters = of.dw if make is filter_gradient else of.w
    wrong = [
        {"XDESC": None}, {"CONV_DESC": None}, {weights: None}, {first: None}, {"XDATA_PLACEHOLDER": NULL},
        {f"{weights.removesuffix('DESC')}DATA_PLACEHOLDER": NULL}, {f"{first.removesuffix('DESC')}DATA_PLACEHOLDER": NULL},
        {weights: replace(filters, dims=(FILTERS, CHANNELS + 1, 3, 3))}, {"XDESC": TensorSpec.packed(FLOAT, (IMAGES, CHANNELS, 6, 5, 1))},
        {first: TensorSpec.packed(FLOAT, (IMAGES + 1, FILTERS, 6, 5))},
    ]  # fmt: skip
    if make is added:
        wrong.append({"ZDESC": TensorSpec.packed(FLOAT, (IMAGES, FILTERS, 5, 6))})
    for attributes in wrong:
        refuses(BAD_PARAM, INCORRECT_PARAMETER, made, caller, of, **attributes)


PROMISED = {
    statistics: ("c023", "c024", "c025"),
    filter_gradient: ("c040", "c041", "c042"),
    added: ("c119", "c120", "c121"),
}


@shows(*clauses_of(CONST_LABELS, f"{ALL}: where a"), *clauses_of(VARIANT_LABELS, f"{ALL}: where a"))
@makers
def test_promises(subject, caller, refuses, make):
    """Memory is refused that is missing, was promised to be NULL, or does not begin at 16 bytes."""
    if not subject.survives_stray_pointers:
        pytest.skip("a fault on a GPU ends the process's work there")
    operation = sized(caller, make())
    memory = {
        name: np.append(content, np.zeros(16, np.uint8)) for name, content in prepare(operation, "normal", 0).items()
    }
    buffers = {name: caller.handle.to_device(content) for name, content in memory.items()}
    whole = {name: buffers[name].slice(0, operation.nbytes(name)) for name in buffers}
    shifted = {name: buffers[name].slice(4, operation.nbytes(name)) for name in buffers}
    null, element, pack = (f"{VARIANT_LABELS}/{clause}" for clause in PROMISED[make])
    unchanged = tuple(buffers.values())
    for promise, clause in ((ELEMENT, element), (PACK, pack)):
        refuses(
            BAD_PARAM,
            clause,
            executed,
            caller,
            operation,
            {**whole, "x": None},
            unchanged=unchanged,
            XDATA_PLACEHOLDER=promise,
        )
    refuses(
        BAD_PARAM,
        pack,
        executed,
        caller,
        operation,
        {**whole, "x": shifted["x"]},
        unchanged=unchanged,
        XDATA_PLACEHOLDER=PACK,
    )
    refuses(BAD_PARAM, null, executed, caller, operation, whole, unchanged=unchanged, BN_EQSCALE_PLACEHOLDER=NULL)
    executed(caller, operation, whole, XDATA_PLACEHOLDER=PACK)


WORKSPACE, SIZE = 9, 100  # These are labels of the pack.
SIZED = {statistics: ("c019", "c021"), filter_gradient: ("c036", "c038"), added: ("c115", "c117")}


@shows(*clauses_of(VARIANT_LABELS, f"{ALL}: CUDNN_(PTR_WORKSPACE|SCALAR_SIZE_T)\\w* \\("))
@makers
def test_workspaces(caller, refuses, make):
    """As many bytes as the plan asks for are enough; too few, none, and no memory are refused. A plan that needs
    none takes NULL."""
    operation = sized(caller, make())
    buffers = {name: caller.handle.to_device(content) for name, content in prepare(operation, "normal", 0).items()}
    missing, small = (f"{VARIANT_LABELS}/{clause}" for clause in SIZED[make])
    needed, unchanged = made(caller, operation)[1], tuple(buffers.values())
    if needed:
        for given in (0, needed - 1):
            refuses(BAD_PARAM, small, executed, caller, operation, buffers, {SIZE: given}, unchanged=unchanged)
        refuses(BAD_PARAM, missing, executed, caller, operation, buffers, {WORKSPACE: None}, unchanged=unchanged)
    else:
        executed(caller, operation, buffers, {WORKSPACE: None, SIZE: 0})
    executed(caller, operation, buffers, {SIZE: needed})
