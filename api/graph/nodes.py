"""Finalise operation nodes: check which tensors form a convolution, a pointwise operation, statistics (9.2.10 to
9.2.14)."""

from __future__ import annotations

from ..enumerations import cudnnBackendDescriptorType_t as Kind
from ..operations.graph import (
    ConvolutionBackwardDataNode,
    ConvolutionBackwardFilterNode,
    ConvolutionForwardNode,
    GenStatsNode,
    GraphConvolution,
    GraphTensor,
    PointwiseNode,
)
from ..status import BAD_PARAM, expect
from .life_cycle import Given, finalizes

FORWARD = "CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR"
BACKWARD_DATA = "CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR"
BACKWARD_FILTER = "CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR"
# CLAUSES maps a section to its clauses on tensors with S+2 dimensions, on tensors with S+3 dimensions, and on other
# mismatches.
CLAUSES = {FORWARD: ("c22", "c27", "c28"), BACKWARD_DATA: ("c16",) * 3, BACKWARD_FILTER: ("c16",) * 3}


def _bound(section: str, convolution: GraphConvolution, x: GraphTensor, w: GraphTensor, y: GraphTensor) -> None:
    """Raise an error unless image, filter and response form this convolution."""
    image, window, response = (tensor.scalar_dims for tensor in (x, w, y))
    spatial, (flat, grouped, invalid) = convolution.rank, CLAUSES[section]
    ranks = {x.rank, w.rank, y.rank}
    text = f"image {image}, filter {window}, response {response}"
    rank_clause = f"{section}/c16" if section == FORWARD else f"{section}/c15"
    fits = len(ranks) == 1 and x.rank in (spatial + 2, spatial + 3)
    expect(fits, BAD_PARAM, rank_clause, f"{text}: all have {spatial + 2} or {spatial + 3} dimensions")
    if x.rank == spatial + 2:
        clause, channels = f"{section}/{flat}", (image[1], window[1])
        expect(
            image[1] % window[1] == 0,
            BAD_PARAM,
            clause,
            f"{text}: {channels[0]} channels, {channels[1]} in each group",
        )
        groups = image[1] // window[1]
        expect(window[0] % groups == 0, BAD_PARAM, clause, f"{text}: {window[0]} filters in {groups} groups")
        agree = image[0] == response[0] and window[0] == response[1]
    else:
        clause = f"{section}/{grouped}"
        (n, g, c), (wg, k, wc), (yn, yg, yk) = image[:3], window[:3], response[:3]
        agree = (n, g, c, k) == (yn, wg, wc, yk) and g == yg
    expect(agree, BAD_PARAM, clause, f"{text}: images, groups, channels or filters differ")
    expected = convolution.output_sizes(image[-spatial:], window[-spatial:])
    right = response[-spatial:] == expected
    expect(right, BAD_PARAM, f"{section}/{invalid}", f"{text}: the response has spatial dimensions {expected}")


@finalizes(Kind.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
def convolution_forward(given: Given) -> ConvolutionForwardNode:
    settings, x, w, y = given.record("CONV_DESC"), given.record("X"), given.record("W"), given.record("Y")
    _bound(FORWARD, settings, x, w, y)
    return ConvolutionForwardNode(settings, given.one("ALPHA"), given.one("BETA"), x, w, y)


@finalizes(Kind.CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
def convolution_backward_data(given: Given) -> ConvolutionBackwardDataNode:
    settings, dx, w, dy = given.record("CONV_DESC"), given.record("DX"), given.record("W"), given.record("DY")
    _bound(BACKWARD_DATA, settings, dx, w, dy)
    return ConvolutionBackwardDataNode(settings, given.one("ALPHA"), given.one("BETA"), w, dy, dx)


@finalizes(Kind.CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)
def convolution_backward_filter(given: Given) -> ConvolutionBackwardFilterNode:
    settings, x, dw, dy = given.record("CONV_DESC"), given.record("X"), given.record("DW"), given.record("DY")
    _bound(BACKWARD_FILTER, settings, x, dw, dy)
    return ConvolutionBackwardFilterNode(settings, given.one("ALPHA"), given.one("BETA"), x, dy, dw)


@finalizes(Kind.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
def pointwise(given: Given) -> PointwiseNode:
    section = "CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR"
    settings, x, b, y = (given.record(name) for name in ("PW_DESCRIPTOR", "XDESC", "BDESC", "YDESC"))
    mode = settings.mode.name
    if settings.has_two_inputs:
        expect(b is not None, BAD_PARAM, f"{section}/c12", f"{mode} has two inputs, the second was not set")
    else:
        expect(b is None, BAD_PARAM, f"{section}/c17", f"{mode} has one input, a second was set")
        unused = not given.is_set("ALPHA2")
        expect(unused, BAD_PARAM, f"{section}/c20", f"{mode} has one input, the factor of a second was set")
    tensors = [tensor for tensor in (x, b, y) if tensor is not None]
    text = f"dimensions {', '.join(str(tensor.scalar_dims) for tensor in tensors)} of x, b where there is one, and y"
    expect(len({tensor.rank for tensor in tensors}) == 1, BAD_PARAM, f"{section}/c21", f"{text}: their numbers differ")
    widest = tuple(max(extents) for extents in zip(*(tensor.scalar_dims for tensor in tensors[:-1]), strict=True))
    broadcast = all(
        extent in (1, wanted)
        for tensor in tensors[:-1]
        for extent, wanted in zip(tensor.scalar_dims, widest, strict=True)
    )
    expect(
        broadcast and y.scalar_dims == widest, BAD_PARAM, f"{section}/c22", f"{text}: none follows from broadcasting"
    )
    return PointwiseNode(settings, given.one("ALPHA1"), given.one("ALPHA2"), x, b, y)


@finalizes(Kind.CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR)
def statistics(given: Given) -> GenStatsNode:
    section = "CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR"
    x, sums, squares = given.record("XDESC"), given.record("SUMDESC"), given.record("SQSUMDESC")
    text = f"dimensions {x.dims} of x, {sums.dims} of the sums, {squares.dims} of the quadratic sums"
    expect(x.rank > 1, BAD_PARAM, f"{section}/c17", f"{text}: there are no channels")
    expect(x.rank == sums.rank == squares.rank, BAD_PARAM, f"{section}/c16", f"{text}: their numbers differ")
    wanted = tuple(extent if i == 1 else 1 for i, extent in enumerate(x.dims))
    expect(sums.dims == squares.dims == wanted, BAD_PARAM, f"{section}/c17", f"{text}: the outputs have {wanted}")
    return GenStatsNode(given.one("MODE"), given.one("MATH_PREC"), x, sums, squares)
