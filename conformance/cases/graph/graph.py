"""Cases of operation graphs: what they compute (5.2.3, 9.2.10 to 9.2.17)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dualdnn.api.enumerations import (
    cudnnConvolutionMode_t,
    cudnnGenStatsMode_t,
    cudnnNanPropagation_t,
    cudnnPointwiseMode_t,
)
from dualdnn.api.operations import OperationGraph
from dualdnn.api.operations.graph import (
    ConvolutionBackwardDataNode,
    ConvolutionBackwardFilterNode,
    ConvolutionForwardNode,
    GenStatsNode,
    GraphConvolution,
    GraphTensor,
    PointwiseNode,
    PointwiseSettings,
)
from dualdnn.api.operations.specs import (
    BFLOAT16,
    DOUBLE,
    FLOAT,
    HALF,
    INT8,
    INT32,
    SCALAR_BYTES,
    UINT8,
    packed_strides,
)
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import prepare

from .graph_descriptors import of

Mode = cudnnPointwiseMode_t
NO_NAN, NAN = cudnnNanPropagation_t
EVERY_MODE = [pytest.param(mode, id=mode.name.removeprefix("CUDNN_POINTWISE_")) for mode in Mode]


def tensor(uid, dims, data_type=FLOAT, strides=None, virtual=False, order=None, alignment=None):
    """A tensor, packed in this order of its dimensions where no strides are given."""
    strides = strides or packed_strides(dims, order or tuple(range(len(dims))))
    return GraphTensor(uid, data_type, dims, strides, alignment or SCALAR_BYTES[data_type], 1, -1, virtual)


def executed(*nodes, engine=0, choice=0):
    """The graph of nodes that are given in an order in which they can run."""
    return OperationGraph(tuple(nodes), engine, choice, 0)


def settings(mode, nan=NO_NAN, lower=0.0, upper=float("inf"), compute=FLOAT):
    return PointwiseSettings(mode, compute, nan, lower, upper)


def pointwise(mode, x, y, b=None, alpha1=1.0, alpha2=1.0, **given):
    """One pointwise node."""
    return PointwiseNode(settings(mode, **given), alpha1, alpha2, x, b, y)


def convolution(pre=(0, 0), post=(0, 0), stride=None, dilation=None, mode=1, compute=FLOAT):
    ones = (1,) * len(pre)
    return GraphConvolution(cudnnConvolutionMode_t(mode), compute, pre, post, stride or ones, dilation or ones)


def sample():
    """A blended convolution."""
    dims = (2, 3, 4, 4)
    return executed(
        ConvolutionForwardNode(
            convolution((1, 1), (0, 0)), 0.75, 0.5, tensor(1, dims), tensor(2, (5, 3, 2, 2)), tensor(3, (2, 5, 4, 4))
        )
    )


def operand(mode, x):
    """The second operand where the mode has one: broadcast along two dimensions."""
    return tensor(2, (1, *x.dims[1:-1], 1), x.data_type) if settings(mode).has_two_inputs else None


@shows("cudnnBackendExecute/c01", "cudnnBackendExecute/c02", "cudnnBackendExecute/c04", "cudnnBackendExecute/c06",
       "cudnnPointwiseMode_t/c01", *of("OPERATION_POINTWISE", "c01", "c02", "c03", "c04", "c05", "c06"),
       *of("VARIANT_PACK", "c01", "c02"))  # fmt: skip
@pytest.mark.parametrize("data_type", [FLOAT, DOUBLE, HALF, BFLOAT16], ids=lambda t: t.name.removeprefix("CUDNN_DATA_"))
@pytest.mark.parametrize("mode", EVERY_MODE)
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
def test_pointwise(trial, scaled, mode, data_type):
    """Factors, broadcasting in both directions, gaps, transposed strides, five dimensions."""
    x = tensor(-7, (2, 3, 1, 4, 5), data_type, (90, 1, 3, 20, 4) if data_type == FLOAT else None)
    y = tensor(2**62, (2, 3, 1, 4, 5), data_type, (60, 20, 20, 5, 1))
    b = operand(mode, x)
    first = (-0.75 if mode != Mode.CUDNN_POINTWISE_SQRT else 0.75) if scaled else 1.0
    node = pointwise(mode, x, y, b, first, 1.5 if b and scaled else 1.0, lower=-0.5, upper=0.625)
    trial(executed(node), inputs="positive" if mode == Mode.CUDNN_POINTWISE_SQRT else "normal")


@shows(*of("OPERATION_POINTWISE", "c01", "c02", "c03"), "cudnnPointwiseMode_t/c01")
@pytest.mark.parametrize("nan", [NO_NAN, NAN], ids=["numbers", "nan"])
@pytest.mark.parametrize("mode", EVERY_MODE)
def test_special_values(trial, mode, nan):
    """NaN, infinities, zeros of both signs, subnormal numbers."""
    x, y = tensor(1, (4, 4, 9)), tensor(3, (4, 4, 9))
    b = tensor(2, (4, 4, 9)) if operand(mode, x) else None
    trial(executed(pointwise(mode, x, y, b, nan=nan, lower=-1.0, upper=2.0)), inputs="special")


@shows(*of("OPERATION_POINTWISE", "c01", "c02", "c03"))
@pytest.mark.parametrize("dims", [(4, 4, 9), (8, 8, 32, 32)], ids=["small", "large"])
@pytest.mark.parametrize("alpha1, alpha2", [(0.0, 1.5), (-0.75, 0.0), (0.0, 1.0), (1.0, 0.0)])
def test_factors_of_zero(trial, alpha1, alpha2, dims):
    """They multiply as any other: zeros, and NaN of what is no finite number."""
    x, b, y, z = (tensor(i, dims, virtual=i == 3) for i in range(1, 5))
    trial(executed(
        pointwise(Mode.CUDNN_POINTWISE_ADD, x, y, b, alpha1, alpha2),
        pointwise(Mode.CUDNN_POINTWISE_MAX, y, z, x, alpha2, alpha1),
    ), inputs="special")  # fmt: skip


@shows(*of("OPERATION_POINTWISE", "c18", "c19"))
def test_mixed_types(trial):
    """Every stored type as an operand, and as a result that saturates."""
    kinds = (INT8, UINT8, INT32, HALF, BFLOAT16, FLOAT)
    for x_type, b_type, y_type in zip(kinds, kinds[1:] + kinds[:1], kinds[3:] + kinds[:3], strict=True):
        x, b, y = tensor(1, (3, 5, 7), x_type), tensor(2, (3, 1, 7), b_type), tensor(3, (3, 5, 7), y_type)
        trial(executed(pointwise(Mode.CUDNN_POINTWISE_ADD, x, y, b, alpha1=3.0)))


@pytest.mark.ours
@shows(*of("OPERATION_POINTWISE", "c18", "c19"))
@pytest.mark.parametrize("inputs", ["special", "wide"])
@pytest.mark.parametrize("kind", [INT8, UINT8, INT32], ids=lambda t: t.name.removeprefix("CUDNN_DATA_"))
def test_numbers_that_integers_do_not_hold(trial, kind, inputs):
    """NaN, which becomes 0, infinities and large numbers."""
    x, y = tensor(1, (3, 5, 7)), tensor(2, (3, 5, 7), kind)
    trial(executed(pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, x, y, lower=-3e9, upper=np.inf)), inputs=inputs)
    trial(executed(pointwise(Mode.CUDNN_POINTWISE_ADD, x, y, tensor(3, (3, 5, 7)), alpha1=3e4)), inputs=inputs)


@shows("CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR/c01")
def test_infinities_beside_what_is_not_determined(trial):
    """A virtual tensor of HALF may hold 90000 or an infinity, one of FLOAT 1e-45 or zero: sums and products with an infinity are infinite or NaN."""
    dims = (1, 4, 2, 2)
    x, added, y = (tensor(uid, dims, FLOAT) for uid in (1, 2, 4))
    for kind, mode in ((HALF, Mode.CUDNN_POINTWISE_ADD), (FLOAT, Mode.CUDNN_POINTWISE_MUL)):
        held = tensor(3, dims, kind, virtual=True)
        graph = executed(pointwise(Mode.CUDNN_POINTWISE_MUL, x, held, x), pointwise(mode, held, y, added))
        values = np.where(np.arange(16) % 4, 1.5, 300 if kind == HALF else 3e-23).astype(np.float32)
        others = np.where(np.arange(16) % 8, 2.0, -np.inf).astype(np.float32)
        trial(
            graph,
            before={name: array.view(np.uint8) for name, array in zip(graph.inputs, (values, others), strict=True)},
        )


@shows(*of("OPERATIONGRAPH", "c01"), *of("OPERATION_POINTWISE", "c01"))
@pytest.mark.parametrize("kind", [INT8, INT32], ids=lambda t: t.name.removeprefix("CUDNN_DATA_"))
def test_integers_that_the_next_node_reads(trial, kind):
    """Rounded to the nearest, as they are stored."""
    x, b, y, z = (tensor(i + 1, (3, 5, 7), kind if i == 2 else FLOAT) for i in range(4))
    trial(executed(
        pointwise(Mode.CUDNN_POINTWISE_MUL, x, y, b, alpha1=3.0), pointwise(Mode.CUDNN_POINTWISE_ADD, y, z, b)
    ))  # fmt: skip


@shows(*of("OPERATION_GEN_STATS", "c01", "c03", "c04", "c05"), "cudnnGenStatsMode_t/c02")
@pytest.mark.parametrize("data_type", [FLOAT, HALF, DOUBLE], ids=lambda t: t.name.removeprefix("CUDNN_DATA_"))
@pytest.mark.parametrize(
    "dims, order", [((3, 5, 14, 17), (0, 2, 3, 1)), ((2, 3, 97, 96), None), ((1, 1, 1), None), ((2, 7), None)]
)
def test_statistics(trial, data_type, dims, order):
    """More elements than a block sums, one element, channels innermost and both results with gaps."""
    wide = DOUBLE if data_type == DOUBLE else FLOAT
    outputs = (1, dims[1], *(1,) * (len(dims) - 2))
    apart, further = ((gap * dims[1], *(gap,) * (len(dims) - 1)) if order else None for gap in (3, 2))
    node = GenStatsNode(
        cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM,
        wide,
        tensor(1, dims, data_type, order=order),
        tensor(2, outputs, wide, apart),
        tensor(3, outputs, wide, further),
    )
    trial(executed(node))


@shows(*of("OPERATION_POINTWISE", "c01"), *of("OPERATION_GEN_STATS", "c01"))
def test_eight_dimensions(trial):
    """None of which follows another one in all tensors; some have an extent of 1 in what is added. Sums of two types."""
    dims, order = (2, 3, 2, 2, 3, 2, 2, 3), (5, 3, 1, 7, 0, 6, 4, 2)
    x, y = tensor(1, dims, HALF, order=order), tensor(3, dims, order=order[::-1])
    channels = [tensor(4 + i, (1, 3, *(1,) * 6), kind) for i, kind in enumerate((FLOAT, BFLOAT16))]
    trial(executed(
        pointwise(Mode.CUDNN_POINTWISE_ADD, x, y, tensor(2, (1, 3, 1, 2, 1, 2, 1, 3))),
        GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, y, *channels),
    ))  # fmt: skip


@shows(*of("OPERATION_GEN_STATS", "c01"))
@pytest.mark.parametrize(
    "strides",
    [(400, 130, 17, 2), (211, 1, 38, 5), (1, 2, 330, 12)],
    ids=["rows", "channels innermost", "images innermost"],
)
def test_statistics_of_gaps(trial, strides):
    """Pixels in several dimensions that cannot be merged, and some distance apart."""
    outputs = [tensor(uid, (1, 5, 1, 1)) for uid in (2, 3)]
    given = tensor(1, (2, 5, 5, 7), strides=strides)
    trial(executed(GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, given, *outputs)))


FORMS = {
    "flat": ((2, 6, 5, 7), (4, 3, 3, 2), (2, 4, 3, 3), convolution((1, 2), (1, 0), (2, 3), (1, 2))),
    "flipped": ((2, 6, 5, 7), (4, 3, 3, 2), (2, 4, 3, 3), convolution((1, 2), (1, 0), (2, 3), (1, 2), mode=0)),
    "grouped": ((2, 2, 3, 5, 7), (2, 2, 3, 3, 2), (2, 2, 2, 3, 3), convolution((1, 2), (1, 0), (2, 3), (1, 2))),
    "line": ((3, 4, 9), (5, 4, 3), (3, 5, 8), convolution((0,), (3,), (1,), (2,))),
    "box": ((1, 2, 3, 4, 5), (3, 2, 2, 2, 2), (1, 3, 3, 2, 3), convolution((0, 1, 0), (1, 0, 2), (1, 2, 2))),
    "apart": ((1, 2, 11, 11), (2, 2, 4, 3), (1, 2, 4, 3), convolution((1, 0), (1, 2), (2, 3), (2, 3))),
    "six": ((1, 2, 2, 3, 2, 2, 2, 4), (2, 2, 1, 2, 1, 2, 2, 2), (1, 2, 2, 2, 2, 1, 1, 2), convolution((0,) * 6, (0,) * 6, (1, 1, 1, 1, 1, 2))),
    "four": ((1, 2, 3, 2, 3, 2), (2, 2, 2, 1, 2, 2), (1, 2, 2, 2, 2, 1), convolution((0,) * 4, (0,) * 4)),
}  # fmt: skip
NODES = {
    "forward": lambda c, x, w, y, alpha, beta: ConvolutionForwardNode(c, alpha, beta, x, w, y),
    "data": lambda c, x, w, y, alpha, beta: ConvolutionBackwardDataNode(c, alpha, beta, w, y, x),
    "filter": lambda c, x, w, y, alpha, beta: ConvolutionBackwardFilterNode(c, alpha, beta, x, y, w),
}
CONVOLUTIONS = (
    *of("OPERATION_CONVOLUTION_FORWARD", "c01", "c20", "c26"), *of("OPERATION_CONVOLUTION_BACKWARD_DATA", "c01"),
    *of("OPERATION_CONVOLUTION_BACKWARD_FILTER", "c01"), *of("CONVOLUTION", "c02", "c04"),
)  # fmt: skip


@shows(*CONVOLUTIONS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("direction", NODES)
def test_convolutions(trial, direction, form):
    """Paddings that differ at both ends, groups, strides, dilations, one to six spatial dimensions, a blended output; steps so many and so far
    apart that the last ones are in the padding."""
    x, w, y, c = FORMS[form]
    trial(executed(NODES[direction](c, tensor(1, x), tensor(2, w), tensor(3, y), 0.75, -0.5)))


@shows(*CONVOLUTIONS)
@pytest.mark.parametrize("form", ["flat", "flipped", "grouped", "line"])
@pytest.mark.parametrize("direction", NODES)
def test_special_values_of_convolutions(trial, direction, form):
    """NaN and infinity in either operand; zeros outside of the other one are multiplied (docs/errata.md, D212)."""
    x, w, y, c = FORMS[form]
    operation = executed(NODES[direction](c, tensor(1, x), tensor(2, w), tensor(3, y), 1.0, 0.0))
    for special in operation.inputs:
        before = prepare(operation, "near_one", 0)
        array = before[special].view(np.float32)
        array[[0, array.size // 2]] = np.inf, np.nan
        trial(operation, before=before)


@shows(*CONVOLUTIONS)
@pytest.mark.parametrize(
    "types",
    [(DOUBLE,) * 3, (HALF, HALF, FLOAT), (BFLOAT16, BFLOAT16, BFLOAT16), (HALF, FLOAT, HALF)],
    ids=lambda t: "-".join(k.name[11:] for k in t),
)
@pytest.mark.parametrize("direction", NODES)
def test_types_of_convolutions(trial, direction, types):
    """Channels innermost; gaps between the groups of the image."""
    x, w, y, c = FORMS["grouped"]
    c = replace(c, compute_type=DOUBLE if DOUBLE in types else FLOAT)
    x, w, y = (
        tensor(1, x, types[0], (300, 111, 1, 21, 3)),
        tensor(2, w, types[1], order=(0, 1, 3, 4, 2)),
        tensor(3, y, types[2]),
    )
    trial(executed(NODES[direction](c, x, w, y, 1.0, 0.0)))


@shows(*of("OPERATIONGRAPH", "c01"), *of("TENSOR", "c03"))
@pytest.mark.parametrize(
    "types",
    [(FLOAT, FLOAT), (HALF, FLOAT), (HALF, HALF), (DOUBLE, DOUBLE)],
    ids=lambda t: "-".join(k.name[11:] for k in t),
)
def test_convolution_bias_activation(trial, types):
    """y = elu(conv(x) * scale + bias), virtual tensors between the operations."""
    stored, between = types
    compute = DOUBLE if stored == DOUBLE else FLOAT
    dims, channels = (2, 5, 4, 4), (1, 5, 1, 1)
    a, b, c = (tensor(10 + i, dims, between, virtual=True) for i in range(3))
    trial(executed(
        ConvolutionForwardNode(convolution((1, 1), (0, 0), compute=compute), 1.0, 0.0, tensor(1, (2, 3, 4, 4), stored), tensor(2, (5, 3, 2, 2), stored), a),
        pointwise(Mode.CUDNN_POINTWISE_MUL, a, b, tensor(3, channels, stored), compute=compute),
        pointwise(Mode.CUDNN_POINTWISE_ADD, b, c, tensor(4, channels, stored), compute=compute),
        pointwise(Mode.CUDNN_POINTWISE_ELU_FWD, c, tensor(5, dims, stored), compute=compute),
    ))  # fmt: skip


@shows(*of("OPERATIONGRAPH", "c01"), *of("TENSOR", "c03"))
@pytest.mark.parametrize("gaps", [(True, False), (False, True), (True, True)], ids=["image", "response", "both"])
def test_virtual_tensors_with_gaps(trial, gaps):
    """What a convolution between pointwise operations reads and writes lies somewhere, whatever distances are described: those of a documented
    convolution."""
    dims, apart = (2, 3, 4, 4), (150, 40, 9, 2)
    x, y = (tensor(10 + i, dims, strides=apart if has else None, virtual=True) for i, has in enumerate(gaps))
    trial(executed(
        pointwise(Mode.CUDNN_POINTWISE_MUL, tensor(1, dims), x, tensor(2, (1, 3, 1, 1))),
        ConvolutionForwardNode(convolution((1, 1), (1, 1)), 1.0, 0.0, x, tensor(3, (3, 3, 3, 3)), y),
        pointwise(Mode.CUDNN_POINTWISE_TANH_FWD, y, tensor(4, dims)),
        GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, y, *(tensor(5 + i, (1, 3, 1, 1)) for i in range(2))),
    ))  # fmt: skip


def diamond():
    """A tensor that is read twice, one that is stored and read, statistics of a virtual tensor, two outputs of a node."""
    dims, channels = (2, 3, 4, 5), (1, 3, 1, 1)
    x, left, right = tensor(1, dims), tensor(2, dims, virtual=True), tensor(3, dims)
    joined, y = tensor(4, dims, virtual=True), tensor(5, dims, HALF)
    sums, squares = tensor(6, channels), tensor(7, channels, virtual=True)
    return (
        pointwise(Mode.CUDNN_POINTWISE_TANH_FWD, x, left),
        pointwise(Mode.CUDNN_POINTWISE_SIGMOID_FWD, x, right, alpha1=2.0),
        pointwise(Mode.CUDNN_POINTWISE_MAX, left, joined, right),
        GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, joined, sums, squares),
        pointwise(Mode.CUDNN_POINTWISE_MUL, joined, y, squares),
    )


@shows(*of("OPERATIONGRAPH", "c01", "c05"), *of("TENSOR", "c03"))
def test_several_outputs(trial):
    """What lies between nodes has any number of bytes."""
    trial(executed(*diamond()))
    x, y, z = (tensor(1 + i, (3, 5, 7)) for i in range(3))
    odd, behind = tensor(4, x.dims, HALF, virtual=True), tensor(5, x.dims, virtual=True)
    trial(executed(
        pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, x, odd),
        pointwise(Mode.CUDNN_POINTWISE_SIGMOID_FWD, x, behind),
        pointwise(Mode.CUDNN_POINTWISE_ADD, odd, y, behind),
        pointwise(Mode.CUDNN_POINTWISE_MUL, behind, z, odd),
    ))  # fmt: skip


def chain(*steps, dims=(3, 5, 7, 2), order=(0, 2, 3, 1)):
    """Pointwise nodes behind each other, as (mode, data type of the result, dimensions of the second operand or None or "same" for
    the value itself); the last result has memory, and one whose type is a list of one."""
    x, nodes = tensor(1, dims, HALF, order=order), []
    for i, (mode, data_type, other) in enumerate(steps):
        stored = isinstance(data_type, list) or i == len(steps) - 1
        kind = data_type[0] if isinstance(data_type, list) else data_type
        y = tensor(2 + i, dims, kind, order=order, virtual=not stored)
        b = x if other == "same" else other and tensor(100 + i, other, FLOAT)
        alpha1, alpha2 = 0.75 if i % 2 else 1.0, 1.25 if b and i % 3 == 0 else 1.0
        nodes.append(pointwise(mode, x, y, b, alpha1=alpha1, alpha2=alpha2, lower=-0.5, upper=1.5))
        x = y
    return nodes


@shows(*of("OPERATIONGRAPH", "c01", "c05"), *of("TENSOR", "c03"))
def test_chains(trial):
    """Twelve operations behind each other with results of three types; some have memory, one is read again later, one is squared."""
    channels, everything, column = (1, 5, 1, 1), (3, 5, 7, 2), (3, 1, 7, 1)
    nodes = chain(
        (Mode.CUDNN_POINTWISE_MUL, FLOAT, channels), (Mode.CUDNN_POINTWISE_ADD, HALF, everything), (Mode.CUDNN_POINTWISE_MUL, BFLOAT16, "same"),
        (Mode.CUDNN_POINTWISE_TANH_FWD, [HALF], None), (Mode.CUDNN_POINTWISE_MIN, FLOAT, column), (Mode.CUDNN_POINTWISE_RELU_FWD, FLOAT, None),
        (Mode.CUDNN_POINTWISE_ADD, FLOAT, channels), (Mode.CUDNN_POINTWISE_IDENTITY_FWD, HALF, None), (Mode.CUDNN_POINTWISE_ELU_FWD, FLOAT, None),
        (Mode.CUDNN_POINTWISE_MAX, [FLOAT], everything), (Mode.CUDNN_POINTWISE_SIGMOID_FWD, FLOAT, None), (Mode.CUDNN_POINTWISE_ADD, FLOAT, column),
    )  # fmt: skip
    trial(
        executed(
            *nodes, pointwise(Mode.CUDNN_POINTWISE_MUL, nodes[5].y, tensor(200, everything, BFLOAT16), nodes[-1].y)
        )
    )
    trial(
        executed(
            *chain(
                (Mode.CUDNN_POINTWISE_ADD, HALF, (1, 1, 1, 1)),
                (Mode.CUDNN_POINTWISE_MUL, HALF, (1, 1, 16, 24)),
                dims=(1, 3, 16, 24),
                order=None,
            )
        )
    )


@shows(*of("OPERATIONGRAPH", "c01"), *of("TENSOR", "c03"))
def test_chains_with_many_tensors(trial):
    """Each node has an operand and a result in memory: more of them than the arguments of a kernel have room for."""
    trial(executed(*chain(*[(Mode.CUDNN_POINTWISE_ADD, [FLOAT], (1, 5, 1, 1))] * 8)))


# Chains of more than 2^18 elements, for which kernels are compiled: (dimensions, order of x and the results, steps).
LARGE = {
    "channels last": ((4, 16, 33, 128), (0, 2, 3, 1), [
        (Mode.CUDNN_POINTWISE_MUL, HALF, (1, 16, 1, 1)), (Mode.CUDNN_POINTWISE_ADD, FLOAT, (1, 1, 1, 1)), (Mode.CUDNN_POINTWISE_RELU_FWD, HALF, None)]),
    "channels first": ((4, 2, 32, 1024), None, [
        (Mode.CUDNN_POINTWISE_MUL, FLOAT, (1, 2, 1, 1)), (Mode.CUDNN_POINTWISE_ADD, [BFLOAT16], (4, 2, 32, 1024)), (Mode.CUDNN_POINTWISE_MUL, FLOAT, "same"),
        (Mode.CUDNN_POINTWISE_MIN, FLOAT, (1, 2, 1, 1)), (Mode.CUDNN_POINTWISE_TANH_FWD, HALF, None)]),
    "one row": ((262152, 1), None, [(Mode.CUDNN_POINTWISE_MAX, FLOAT, (262152, 1)), (Mode.CUDNN_POINTWISE_ELU_FWD, FLOAT, None)]),
}  # fmt: skip


@shows(*of("OPERATIONGRAPH", "c01"), *of("TENSOR", "c03"))
@pytest.mark.parametrize("which", LARGE)
def test_large_chains(trial, which):
    """Broadcast operands, a result in the middle that has memory, types that differ, a last block in part."""
    dims, order, steps = LARGE[which]
    trial(executed(*chain(*steps, dims=dims, order=order)))


@shows(*of("OPERATIONGRAPH", "c01"), *of("OPERATION_GEN_STATS", "c01"))
@pytest.mark.parametrize("summed", [False, True], ids=["alone", "summed"])
def test_large_chains_of_eight_dimensions(trial, summed):
    """None of which follows another one in all operands; with statistics of the result, and without."""
    dims, one = (2, 3, 2, 3, 4, 2, 4, 64), (1, 3, *(1,) * 6)
    x, between, y = (tensor(i, dims, HALF, virtual=i == 2) for i in (1, 2, 3))
    nodes = [
        pointwise(Mode.CUDNN_POINTWISE_ADD, x, between, tensor(4, (2, 1, 2, 1, 4, 1, 4, 1))),
        pointwise(Mode.CUDNN_POINTWISE_MUL, between, y, tensor(5, (1, 3, 1, 3, 1, 2, 1, 64), HALF)),
    ]
    sums = [tensor(6 + i, one) for i in range(2)]
    statistics = GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, y, *sums)
    trial(executed(*nodes, statistics) if summed else executed(*nodes))


@shows(*of("OPERATIONGRAPH", "c01"), *of("TENSOR", "c03"))
@pytest.mark.parametrize("virtual", [True, False])
def test_large_chains_that_read_an_earlier_result(trial, virtual):
    """Which the node before does not pass on."""
    dims = (8, 8, 32, 32)
    x, first, second, y = (tensor(i, dims, virtual=i == 3 or (virtual and i == 2)) for i in range(1, 5))
    trial(executed(
        pointwise(Mode.CUDNN_POINTWISE_TANH_FWD, x, first),
        pointwise(Mode.CUDNN_POINTWISE_SIGMOID_FWD, first, second),
        pointwise(Mode.CUDNN_POINTWISE_MUL, second, y, first),
    ))  # fmt: skip


@shows(*of("OPERATIONGRAPH", "c01"), *of("TENSOR", "c03"))
def test_images_of_a_large_chain_begin_anywhere(trial):
    """Their rows lie at whole packs from each other."""
    dims = (4, 2, 32, 1024)
    x, between = tensor(1, dims, HALF, strides=(65537, 32768, 1024, 1)), tensor(4, dims, virtual=True)
    trial(executed(
        pointwise(Mode.CUDNN_POINTWISE_ADD, x, between, tensor(2, (1, 2, 1, 1), HALF)),
        pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, between, tensor(3, dims, HALF)),
    ))  # fmt: skip


@shows(*of("OPERATIONGRAPH", "c01"), *of("OPERATION_POINTWISE", "c01"))
@pytest.mark.parametrize("step", [1, 2])
def test_factors_and_nan_of_a_large_chain(trial, step):
    """Of both operands, of which one has gaps between its elements or not; whether NaN is propagated differs between two nodes."""
    dims = (8, 8, 32, 32)
    x, between, y = tensor(1, dims), tensor(4, dims, virtual=True), tensor(5, dims)
    b = tensor(2, dims, strides=tuple(step * stride for stride in packed_strides(dims, (0, 1, 2, 3))))
    trial(executed(
        pointwise(Mode.CUDNN_POINTWISE_MAX, x, between, b, 0.5, -1.5, nan=NAN),
        pointwise(Mode.CUDNN_POINTWISE_MIN, between, y, tensor(3, (1, 8, 1, 1)), 1.0, 0.75, nan=NO_NAN),
    ), inputs="special")  # fmt: skip


@shows(*of("OPERATIONGRAPH", "c01"))
@pytest.mark.parametrize("read", [False, True], ids=["alone", "read"])
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=["float", "half"])
def test_a_fused_convolution_inside_a_graph(trial, data_type, read):
    """relu(conv(x) + bias), its statistics, and a function of it: nodes that are one documented operation among others, unless another one of
    them reads what it passes on."""
    dims, channels, last = (2, 8, 6, 5), (1, 8, 1, 1), (0, 2, 3, 1)
    a, b = (tensor(10 + i, dims, FLOAT, virtual=True, order=last) for i in range(2))
    y = tensor(5, dims, data_type, order=last)
    x, w = tensor(1, (2, 4, 6, 5), data_type, order=last), tensor(2, (8, 4, 3, 3), data_type, order=last)
    trial(executed(
        ConvolutionForwardNode(convolution((1, 1), (1, 1)), 1.0, 0.0, x, w, a),
        pointwise(Mode.CUDNN_POINTWISE_ADD, a, b, tensor(4, channels, data_type)),
        pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, b, y),
        GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, y, tensor(6, channels), tensor(7, channels)),
        pointwise(Mode.CUDNN_POINTWISE_TANH_FWD, y, tensor(8, dims, FLOAT)),
        *((pointwise(Mode.CUDNN_POINTWISE_TANH_FWD, a, tensor(9, dims, FLOAT)),) if read else ()),
    ))  # fmt: skip


@shows(*of("OPERATIONGRAPH", "c01"), *of("OPERATION_GEN_STATS", "c01"))
@pytest.mark.parametrize("which", ["channels last", "channels first"])
def test_statistics_of_large_chains(trial, which):
    """Of the last result, in several segments, which have gaps; of the one in the middle, too."""
    dims, order, steps = LARGE[which]
    nodes = chain(*steps, dims=dims, order=order)
    channels = (1, dims[1], 1, 1)
    for i, y in enumerate((nodes[-1].y, nodes[1].y)):
        outputs = [tensor(300 + 2 * i + j, channels, strides=(9 * dims[1], 3, 3, 3)) for j in range(2)]
        nodes.append(GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, y, *outputs))
    trial(executed(*nodes))


@shows(*of("OPERATIONGRAPH", "c01"), *of("OPERATION_GEN_STATS", "c01"))
@pytest.mark.parametrize(
    "dims, order",
    [
        ((1, 12, 64, 88), (0, 2, 3, 1)),
        ((8, 8, 33, 33), None),
        ((8, 16, 32, 16), (1, 2, 3, 0)),
        ((1, 24, 55, 57), (0, 2, 3, 1)),
    ],
    ids=["channels that are no packs", "planes that are no packs", "images innermost", "three packs of channels"],
)
def test_statistics_of_chains_of_other_packs(trial, dims, order):
    """Large ones, of whose result a pack holds several channels or images; channels of which the last block has fewer."""
    y, channels = tensor(3, dims, HALF, order=order), (1, dims[1], 1, 1)
    trial(executed(
        pointwise(Mode.CUDNN_POINTWISE_ADD, tensor(1, dims, HALF, order=order), y, tensor(2, dims, HALF, order=order)),
        GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, y, tensor(4, channels), tensor(5, channels)),
    ))  # fmt: skip


ON_CORES = 29  # the engine that runs node by node with convolutions on tensor cores


@shows(*of("OPERATIONGRAPH", "c01"), *of("OPERATION_GEN_STATS", "c01"))
@pytest.mark.parametrize("gaps", [(1, 1), (3, 3), (3, 1)], ids=["packed", "gaps", "other gaps"])
@pytest.mark.parametrize(
    "data_type, result, virtual",
    [(HALF, HALF, False), (BFLOAT16, BFLOAT16, True), (HALF, FLOAT, False)],
    ids=["half", "bfloat16 virtual", "half to float"],
)
def test_statistics_of_a_convolution(trial, data_type, result, virtual, gaps):
    """Of its result as it is stored; a function of it comes before them, and they may have gaps. No documented call has a half convolution
    with a float result."""
    last, dims = (0, 2, 3, 1), (3, 40, 9, 7)
    y = tensor(3, dims, result, order=last, virtual=virtual)
    trial(executed(
        ConvolutionForwardNode(convolution((1, 1), (1, 1)), 1.0, 0.0, tensor(1, (3, 32, 9, 7), data_type, order=last), tensor(2, (40, 32, 3, 3), data_type, order=last), y),
        pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, y, tensor(4, dims, data_type, order=last)),
        GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, y, *(tensor(5 + i, (1, 40, 1, 1), strides=(40 * gap, gap, gap, gap)) for i, gap in enumerate(gaps))),
        engine=ON_CORES,
    ))  # fmt: skip


@shows(*of("OPERATIONGRAPH", "c01"), *of("OPERATION_GEN_STATS", "c01"))
@pytest.mark.parametrize("alpha, beta", [(0.5, 0.0), (1.0, -0.5)])
def test_statistics_of_a_blended_convolution(trial, alpha, beta):
    """Of what is stored."""
    last, channels = (0, 2, 3, 1), (1, 40, 1, 1)
    x, y = tensor(1, (2, 32, 3, 4), HALF, order=last), tensor(3, (2, 40, 3, 4), HALF, order=last)
    trial(executed(
        ConvolutionForwardNode(convolution(), alpha, beta, x, tensor(2, (40, 32, 1, 1), HALF, order=last), y),
        GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, y, tensor(4, channels), tensor(5, channels)),
        engine=ON_CORES,
    ))  # fmt: skip


def scaled_convolution(
    added=True, rectified=True, scale=HALF, bias=HALF, factors=(1.0,) * 6, scales=(1, 40, 1, 1), read=False
):
    """y = relu(conv(x) * scale + z + bias), between channels as packs have them and fewer images than rows of a tile. factors: of the convolution,
    of both operands of the product, of what is added to, of z and of the bias. read: the convolution's result is read again at the end."""
    last, dims, channels = (0, 2, 3, 1), (3, 40, 9, 7), (1, 40, 1, 1)
    between = [tensor(10 + i, dims, FLOAT, order=last, virtual=True) for i in range(4)]
    y = tensor(3, dims, HALF, order=last)
    nodes = [
        ConvolutionForwardNode(convolution((0, 0), (0, 0)), factors[0], 0.0, tensor(1, (3, 32, 9, 7), HALF, order=last), tensor(2, (40, 32, 1, 1), HALF, order=last), between[0]),
        pointwise(Mode.CUDNN_POINTWISE_MUL, between[0], between[1], tensor(4, scales, scale), *factors[1:3]),
    ]  # fmt: skip
    if added:
        z = tensor(6, dims, HALF, order=last)
        nodes.append(pointwise(Mode.CUDNN_POINTWISE_ADD, nodes[-1].y, between[2], z, *factors[3:5]))
    to = between[3] if rectified else y
    nodes.append(pointwise(Mode.CUDNN_POINTWISE_ADD, nodes[-1].y, to, tensor(5, channels, bias), 1.0, factors[5]))
    if rectified:
        nodes.append(pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, nodes[-1].y, y))
    if read:
        nodes.append(pointwise(Mode.CUDNN_POINTWISE_ADD, between[0], tensor(7, dims, HALF, order=last), y))
    return executed(*nodes, engine=ON_CORES)


@shows(*of("OPERATIONGRAPH", "c01"))
@pytest.mark.parametrize("rectified", [True, False], ids=["relu", "identity"])
@pytest.mark.parametrize("added", [True, False], ids=["residual", "alone"])
@pytest.mark.parametrize(
    "scale, bias",
    [(HALF, HALF), (FLOAT, HALF), (HALF, FLOAT), (FLOAT, FLOAT)],
    ids=lambda kind: kind.name.rpartition("_")[2],
)
def test_a_scaled_convolution(trial, added, rectified, scale, bias):
    """What is not fused is computed in parts."""
    trial(scaled_convolution(added, rectified, scale, bias))


@shows(*of("OPERATIONGRAPH", "c01"))
@pytest.mark.parametrize("place", range(6), ids=["convolution", "product", "scale", "sum", "residual", "bias"])
def test_factors_within_a_scaled_convolution(trial, place):
    """Of each operand in turn: those that a fused operation has, and those that it has not."""
    trial(scaled_convolution(factors=tuple(0.5 if i == place else 1.0 for i in range(6))))


@shows(*of("OPERATIONGRAPH", "c01"))
@pytest.mark.parametrize(
    "options",
    [{"scales": (1, 1, 1, 1)}, {"scales": (1, 40, 1, 7)}, {"read": True}],
    ids=["one factor", "of pixels", "read"],
)
def test_convolutions_that_are_scaled_otherwise(trial, options):
    """By one number, by those of a row of pixels; what is scaled is read again."""
    trial(scaled_convolution(**options))


@shows(*of("OPERATIONGRAPH", "c01"))
@pytest.mark.parametrize("special", [1, 6], ids=["image", "residual"])
@pytest.mark.parametrize("scaled", [True, False], ids=["scaled", "plain"])
def test_operands_whose_factor_is_zero(trial, scaled, special):
    """What is no finite number is multiplied, too, and NaN then."""
    factors = (0.0 if special == 1 else 1.0, 1.0, 1.0, 1.0, 0.0 if special == 6 else 1.0, 1.0)
    graph = scaled_convolution(factors=factors, rectified=False)
    if not scaled:
        first, _, added, last = graph.nodes
        end = pointwise(Mode.CUDNN_POINTWISE_TANH_FWD, last.y, tensor(7, last.y.dims))
        graph = executed(first, replace(added, x=first.y), last, end, engine=ON_CORES)
    trial(graph, {**dict.fromkeys(graph.operands, "normal"), f"tensor_{special}": "special"})


@shows(*of("OPERATIONGRAPH", "c01"))
def test_gradients_of_a_layer(trial):
    """Both gradients of one incoming gradient, and the sums of it, in one graph."""
    x, w, y, c = FORMS["flat"]
    dy, scaled = tensor(1, y), tensor(2, y, virtual=True)
    trial(executed(
        pointwise(Mode.CUDNN_POINTWISE_MUL, dy, scaled, tensor(3, (1, 4, 1, 1))),
        ConvolutionBackwardDataNode(c, 1.0, 0.5, tensor(4, w), scaled, tensor(5, x)),
        ConvolutionBackwardFilterNode(c, 0.5, 1.0, tensor(6, x), scaled, tensor(7, w)),
        GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, scaled, tensor(8, (1, 4, 1, 1)), tensor(9, (1, 4, 1, 1))),
    ))  # fmt: skip
