"""Calls of the forward convolution family."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dualdnn.api.operations import (
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    ConvolutionSpec,
    Im2Col,
    ReorderFilter,
    ReorderFilterAndBias,
)

from .activation import activation_descriptor
from .caller import Caller, Memory, calls


def convolution_descriptor(make: Caller, spec: ConvolutionSpec) -> Any:
    """A convolution descriptor with this specification."""
    cudnn = make.cudnn
    descriptor = cudnn.cudnnCreateConvolutionDescriptor()
    cudnn.cudnnSetConvolutionNdDescriptor(
        descriptor, spec.rank, spec.padding, spec.stride, spec.dilation, spec.mode, spec.compute_type
    )
    cudnn.cudnnSetConvolutionGroupCount(descriptor, spec.group_count)
    cudnn.cudnnSetConvolutionMathType(descriptor, spec.math_type)
    cudnn.cudnnSetConvolutionReorderType(descriptor, spec.reorder_type)
    return descriptor


def described(make: Caller, o: ConvolutionForward | ConvolutionBiasActivationForward) -> tuple[Any, Any, Any, Any]:
    """Descriptors (x, w, convolution, y), in the order in which the queries take them."""
    return make.tensor(o.x), make.filter(o.w), convolution_descriptor(make, o.convolution), make.tensor(o.y)


@calls(ConvolutionForward)
def convolution_forward(make: Caller, o: ConvolutionForward, memory: Memory) -> None:
    x, w, convolution, y = described(make, o)
    make.cudnn.cudnnConvolutionForward(
        make.handle, o.alpha, x, memory["x"], w, memory["w"], convolution, o.algo, memory["workSpace"],
        o.workspace_bytes, o.beta, y, memory["y"],
    )  # fmt: skip


@calls(ConvolutionBiasActivationForward)
def convolution_bias_activation_forward(make: Caller, o: ConvolutionBiasActivationForward, memory: Memory) -> None:
    x, w, convolution, y = described(make, o)
    make.cudnn.cudnnConvolutionBiasActivationForward(
        make.handle, o.alpha1, x, memory["x"], w, memory["w"], convolution, o.algo, memory["workSpace"],
        o.workspace_bytes, o.alpha2, make.tensor(o.z), memory["z"], make.tensor(o.bias), memory["bias"],
        activation_descriptor(make, o.activation), y, memory["y"],
    )  # fmt: skip


@calls(Im2Col)
def im2col(make: Caller, o: Im2Col, memory: Memory) -> None:
    convolution = convolution_descriptor(make, o.convolution)
    make.cudnn.cudnnIm2Col(
        make.handle, make.tensor(o.srcData), memory["srcData"], make.filter(o.filter), convolution, memory["colBuffer"]
    )


@calls(ReorderFilter)
def reorder_filter(make: Caller, o: ReorderFilter, memory: Memory) -> None:
    make.cudnn.cudnnReorderFilterAndBias(
        make.handle, make.filter(o.filterData), o.reorder_type, memory["filterData"], memory["reorderedFilterData"],
        0, None, None,
    )  # fmt: skip


@calls(ReorderFilterAndBias)
def reorder_filter_and_bias(make: Caller, o: ReorderFilterAndBias, memory: Memory) -> None:
    make.cudnn.cudnnReorderFilterAndBias(
        make.handle, make.filter(o.filterData), o.reorder_type, memory["filterData"], memory["reorderedFilterData"],
        1, memory["biasData"], memory["reorderedBiasData"],
    )  # fmt: skip


def sized(make: Caller, o: Any) -> Any:
    """The operation with the workspace that the subject asks for."""
    nbytes = make.cudnn.cudnnGetConvolutionForwardWorkspaceSize(make.handle, *described(make, o), o.algo)
    return replace(o, workspace_bytes=nbytes)
