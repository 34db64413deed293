"""Serve the convolutions of a graph that no other solver serves (graph/convolution.cu)."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_longlong
from math import prod

from dualdnn.api.enumerations import cudnnConvolutionMode_t
from dualdnn.api.operations.graph import (
    ConvolutionBackwardDataNode,
    ConvolutionBackwardFilterNode,
    ConvolutionForwardNode,
    ConvolutionNode,
    GraphTensor,
)

from ..plans import Launch, arrays_of, factors, fields_of, pointers, structure
from ..primitives.geometry import blocks
from .problem import STORED, GraphProblem, padded

SOURCE = "graph/convolution.cu"
SPATIAL = 6
THREADS = 128
KERNELS = {
    ConvolutionForwardNode: "graph_convolution_forward",
    ConvolutionBackwardDataNode: "graph_convolution_backward_data",
    ConvolutionBackwardFilterNode: "graph_convolution_backward_filter",
}


class TensorStruct(ctypes.Structure):
    """Describe a tensor with separate groups, as graph/convolution.cu does."""

    _fields_ = (
        ("strides", c_longlong * 3), ("spatial", c_longlong * SPATIAL), ("extents", c_int * SPATIAL), ("type", c_int),
    )  # fmt: skip


def in_groups(
    node: ConvolutionNode, tensor: GraphTensor, strides: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the dimensions and strides as (N, G, C or K, spatial), or for a filter as (G, K, C, spatial)."""
    dims, groups = tensor.dims, node.groups
    if len(dims) == node.convolution.rank + 3:
        return dims, strides
    if tensor is node.bound[1]:
        filters = dims[0] // groups
        return (groups, filters, *dims[1:]), (filters * strides[0], *strides)
    channels = dims[1] // groups
    return (dims[0], groups, channels, *dims[2:]), (strides[0], channels * strides[1], *strides[1:])


def _struct(node: ConvolutionNode, tensor: GraphTensor, problem: GraphProblem) -> tuple[TensorStruct, tuple[int, ...]]:
    dims, strides = in_groups(node, tensor, problem.spec(tensor).strides)
    spatial = (c_longlong * SPATIAL)(*padded(strides[3:], SPATIAL, 0))
    extents = (c_int * SPATIAL)(*padded(dims[3:], SPATIAL, 1))
    return TensorStruct((c_longlong * 3)(*strides[:3]), spatial, extents, STORED[tensor.data_type]), dims


def convolution_launch(problem: GraphProblem, node: ConvolutionNode) -> Launch:
    """Return the launch of a node, with one thread per output."""
    settings, axes = node.convolution, c_int * SPATIAL
    (image, image_dims), (window, window_dims), (response, response_dims) = (
        _struct(node, tensor, problem) for tensor in node.bound
    )
    output = node.outputs[0]
    arguments = structure(
        *pointers(3),
        *factors(problem.operation, alpha=node.alpha, beta=node.beta),
        ("image", image),
        ("filter", window),
        ("response", response),
        ("padding", axes(*padded(settings.pre_padding, SPATIAL, 0))),
        *arrays_of(axes, stride=padded(settings.stride, SPATIAL, 1), dilation=padded(settings.dilation, SPATIAL, 1)),
        *fields_of(c_int, images=image_dims[0], groups=node.groups, channels=window_dims[2], filters=window_dims[1]),
        *fields_of(c_int, pixels=prod(image_dims[3:]), taps=prod(window_dims[3:]), responses=prod(response_dims[3:])),
        *fields_of(c_int, count=prod(output.dims), flipped=settings.mode == cudnnConvolutionMode_t.CUDNN_CONVOLUTION),
    )
    function = problem.device.function(SOURCE, KERNELS[type(node)], problem.definitions)
    names = (*(tensor.operand for tensor in node.inputs), output.operand)
    return Launch(function, arguments, names, blocks(prod(output.dims), THREADS), (THREADS, 1, 1))
