"""Holds cases of operation graphs: what they compute (5.2.3, 9.2.10 to 9.2.17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api import cudnn as api
from dualdnn.api.operations import OperationGraph
from dualdnn.api.operations import graph as parts
from dualdnn.api.operations.specs import FLOAT, HALF, SCALAR_BYTES, packed_strides
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import prepare

from .graph_descriptors import of

if TYPE_CHECKING:
    from dualdnn.conformance.trial import Trial

Mode = api.cudnnPointwiseMode_t
NO_NAN, NAN = api.cudnnNanPropagation_t


def tensor(
    uid: Any,
    dims: Any,
    data_type: Any = FLOAT,
    strides: Any = None,
    virtual: bool = False,
    order: Any = None,
    alignment: Any = None,
) -> Any:
    """Return a tensor, packed in this order of its dimensions where no strides are given."""
    strides = strides or packed_strides(dims, order or tuple(range(len(dims))))
    return parts.GraphTensor(uid, data_type, dims, strides, alignment or SCALAR_BYTES[data_type], 1, -1, virtual)


def executed(*nodes: Any, engine: int = 0, choice: int = 0) -> OperationGraph:
    """Return the graph of nodes that are given in an order in which they can run."""
    return OperationGraph(tuple(nodes), engine, choice, 0)


def settings(mode: Any, nan: Any = NO_NAN, lower: float = 0.0, upper: Any = float("inf"), compute: Any = FLOAT) -> Any:
    return parts.PointwiseSettings(mode, compute, nan, lower, upper)


def pointwise(mode: Any, x: Any, y: Any, b: Any = None, alpha1: float = 1.0, alpha2: float = 1.0, **given: Any) -> Any:
    """Return one pointwise node."""
    return parts.PointwiseNode(settings(mode, **given), alpha1, alpha2, x, b, y)


def convolution(
    pre: Any = (0, 0), post: Any = (0, 0), stride: Any = None, dilation: Any = None, mode: int = 1, compute: Any = FLOAT
) -> Any:
    ones = (1,) * len(pre)
    return parts.GraphConvolution(
        api.cudnnConvolutionMode_t(mode), compute, pre, post, stride or ones, dilation or ones
    )


def operand(mode: Any, x: Any) -> Any:
    """Return the second operand where the mode has one: broadcast along two dimensions."""
    return tensor(2, (1, *x.dims[1:-1], 1), x.data_type) if settings(mode).has_two_inputs else None


@shows("CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR/c01 c07 c09 c11 c13")
def test_infinities_beside_what_is_not_determined(trial: Callable[..., Trial]) -> None:
    """Sums and products with an infinity are infinite or NaN, even if another operand is not determined.

    A virtual tensor of HALF may hold 90000 or an infinity, and one of FLOAT 1e-45 or zero.
    """
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
    "forward": lambda c, x, w, y, alpha, beta: parts.ConvolutionForwardNode(c, alpha, beta, x, w, y),
    "data": lambda c, x, w, y, alpha, beta: parts.ConvolutionBackwardDataNode(c, alpha, beta, w, y, x),
    "filter": lambda c, x, w, y, alpha, beta: parts.ConvolutionBackwardFilterNode(c, alpha, beta, x, y, w),
}
CONVOLUTIONS = (
    *of("OPERATION_CONVOLUTION_FORWARD", "c01", "c20"), *of("OPERATION_CONVOLUTION_BACKWARD_DATA", "c01"),
    *of("OPERATION_CONVOLUTION_BACKWARD_FILTER", "c01"), *of("CONVOLUTION", "c02", "c04"),
)  # fmt: skip


@shows(*CONVOLUTIONS)
@pytest.mark.parametrize("form", ["flat", "flipped", "grouped", "line"])
@pytest.mark.parametrize("direction", NODES)
def test_special_values_of_convolutions(trial: Callable[..., Trial], direction: Any, form: str) -> None:
    """NaN and infinity may be in either operand; padding of the other counts as zeros (docs/errata.md,
    D212)."""
    x, w, y, c = FORMS[form]
    operation = executed(NODES[direction](c, tensor(1, x), tensor(2, w), tensor(3, y), 1.0, 0.0))
    for special in operation.inputs:
        before = prepare(operation, "near_one", 0)
        array = before[special].view(np.float32)
        array[[0, array.size // 2]] = np.inf, np.nan
        trial(operation, before=before)


def diamond() -> Any:
    """Return a graph with a tensor read twice, one both stored and read, virtual statistics and a node with two
    outputs."""
    dims, channels = (2, 3, 4, 5), (1, 3, 1, 1)
    x, left, right = tensor(1, dims), tensor(2, dims, virtual=True), tensor(3, dims)
    joined, y = tensor(4, dims, virtual=True), tensor(5, dims, HALF)
    sums, squares = tensor(6, channels), tensor(7, channels, virtual=True)
    return (
        pointwise(Mode.CUDNN_POINTWISE_TANH_FWD, x, left),
        pointwise(Mode.CUDNN_POINTWISE_SIGMOID_FWD, x, right, alpha1=2.0),
        pointwise(Mode.CUDNN_POINTWISE_MAX, left, joined, right),
        parts.GenStatsNode(api.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, joined, sums, squares),
        pointwise(Mode.CUDNN_POINTWISE_MUL, joined, y, squares),
    )
