"""Implement the folding of data gradients: a strided gradient becomes one of stride 1 with more channels (5.2.30)."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ...enumerations import cudnnFoldingDirection_t
from ...functions import documented
from ...operations import FilterSpec, TensorSpec, TransformSpec
from ...operations.specs import NCHW, NHWC
from ...operations.transform import destination_dims
from ...status import BAD_PARAM, EXECUTION_FAILED, NOT_SUPPORTED, expect
from ...support.convolution import Problem
from .backward_data import check_data_problem

if TYPE_CHECKING:
    from ...descriptors import ConvolutionDescriptor, FilterDescriptor, TensorDescriptor, TensorTransformDescriptor
    from ...enumerations import cudnnTensorFormat_t
    from ...handle import Handle

_G = "cudnnGetFoldedConvBackwardDataDescriptors"
RANK = 4
CHANNELS = 8  # The channel counts are padded to multiples of this, for tensor cores.
FOLD, UNFOLD = cudnnFoldingDirection_t.CUDNN_TRANSFORM_FOLD, cudnnFoldingDirection_t.CUDNN_TRANSFORM_UNFOLD


@documented(invalid={"*": "c08", "transformFormat": ("cudnnSetTensorTransformDescriptor/c17", NOT_SUPPORTED)})
def cudnnGetFoldedConvBackwardDataDescriptors(
    handle: Handle, filterDesc: FilterDescriptor, diffDesc: TensorDescriptor, convDesc: ConvolutionDescriptor, gradDesc: TensorDescriptor, transformFormat: cudnnTensorFormat_t, foldedFilterDesc: FilterDescriptor, paddedDiffDesc: TensorDescriptor, foldedConvDesc: ConvolutionDescriptor,
    foldedGradDesc: TensorDescriptor, filterFoldTransDesc: TensorTransformDescriptor, diffPadTransDesc: TensorTransformDescriptor, gradFoldTransDesc: TensorTransformDescriptor, gradUnfoldTransDesc: TensorTransformDescriptor,
) -> None:  # fmt: skip
    """Describe a data gradient with strides u, v as one of stride 1, whose gradient and filter have C * u * v channels.

    filterFoldTransDesc transforms the filter and diffPadTransDesc transforms dy. cudnnConvolutionBackwardData on the
    folded descriptors then gives a gradient, which gradUnfoldTransDesc turns into dx. gradFoldTransDesc folds a dx that
    beta blends in.
    A spatial dimension of extent H with padding p, filter R and stride u gets the padding ceil(p / u). u * ceil(p / u)
    - p zeros precede the filter, and zeros follow it up to a multiple of u. Zeros follow dy up to the folded
    convolution's output.
    The channels of dy are padded to multiples of 8; without folding, so are the channels of dx (docs/errata.md, D251).
    filterDesc, diffDesc, convDesc, gradDesc: as for cudnnConvolutionBackwardData, with 4 dimensions. transformFormat:
    CUDNN_TENSOR_NCHW or CUDNN_TENSOR_NHWC, the format of everything folded. The call fills the other descriptors.
    Errors: BAD_PARAM for NULL (c08), other than 4 dimensions (c09), descriptors that do not fit each other;
    NOT_SUPPORTED for another transformFormat; EXECUTION_FAILED if no folding gives the same gradient (c10): strides
    above 1 with groups, with dilation in that dimension, or with CUDNN_CONVOLUTION and more than one tap in it;
    channels of groups that need padding.
    Source: 5.2.30.
    """
    problem = Problem(convDesc.spec, gradDesc.spec, filterDesc.spec, diffDesc.spec)
    expect(problem.x.rank == RANK, BAD_PARAM, f"{_G}/c09",
           f"gradDesc has {problem.x.rank} dimensions {problem.x.dims}, only {RANK} are supported")  # fmt: skip
    check_data_problem(problem)
    expect(transformFormat in (NCHW, NHWC), NOT_SUPPORTED, "cudnnSetTensorTransformDescriptor/c17",
           f"transformFormat is {transformFormat.name}, CUDNN_TENSOR_NCHW and CUDNN_TENSOR_NHWC are supported")  # fmt: skip
    convolution, grad, w, diff = problem.convolution, problem.x, problem.w, problem.y
    fold = convolution.stride
    for stride, dilation in zip(fold, convolution.dilation, strict=True):
        expect(stride == 1 or dilation == 1, EXECUTION_FAILED, f"{_G}/c10",
               f"convDesc has stride {stride} and dilation {dilation} in one dimension: folded taps would not be evenly apart")  # fmt: skip
    reordered = any(stride > 1 and taps > 1 for stride, taps in zip(fold, w.dims[2:], strict=True))
    expect(not (reordered and convolution.is_flipped), EXECUTION_FAILED, f"{_G}/c10",
           f"convDesc has mode CUDNN_CONVOLUTION and strides {fold}: the filter would fold in the other order")  # fmt: skip

    filters = -w.dims[0] % CHANNELS
    # Folding appends padding channels after all others (docs/errata.md, D132), where unfolding would not find them.
    channels = -w.dims[1] % CHANNELS if prod(fold) == 1 else 0
    grouped = convolution.group_count > 1 and (prod(fold) > 1 or filters or channels)
    expect(not grouped, EXECUTION_FAILED, f"{_G}/c10",
           f"convDesc has {convolution.group_count} groups, strides {fold} and wDesc {w.dims}: the channels of a group would not"
           " stay together")  # fmt: skip

    padding = tuple(-(-p // u) for p, u in zip(convolution.padding, fold, strict=True))
    before = tuple(u * folded - p for u, folded, p in zip(fold, padding, convolution.padding, strict=True))
    behind = tuple(-(taps + first) % u for taps, first, u in zip(w.dims[2:], before, fold, strict=True))
    of_filter = TransformSpec(transformFormat, (0, 0, *before), (filters, channels, *behind), fold, FOLD)
    folded_filter = FilterSpec(w.data_type, transformFormat, destination_dims(of_filter, w.dims))

    of_grad = TransformSpec(transformFormat, (0,) * RANK, (0, channels, 0, 0), fold, FOLD)
    folded_grad = TensorSpec.packed(grad.data_type, destination_dims(of_grad, grad.dims), transformFormat)
    folded = replace(convolution, padding=padding, stride=(1, 1))
    outputs = folded.output_dims(folded_grad.dims, folded_filter.dims)
    more = tuple(wanted - extent for wanted, extent in zip(outputs[2:], diff.dims[2:], strict=True))
    of_diff = TransformSpec(transformFormat, (0,) * RANK, (0, filters, *more), (0, 0), FOLD)

    beyond = (extent - u * size for extent, u, size in zip(grad.dims[2:], fold, folded_grad.dims[2:], strict=True))
    grad_format = NHWC if grad.strides[1] == 1 and grad.dims[1] > 1 else NCHW
    back = TransformSpec(grad_format, (0,) * RANK, (0, -channels, *beyond), fold, UNFOLD)

    foldedFilterDesc.spec, foldedGradDesc.spec = folded_filter, folded_grad
    paddedDiffDesc.spec = TensorSpec.packed(diff.data_type, destination_dims(of_diff, diff.dims), transformFormat)
    foldedConvDesc.take(folded)
    filterFoldTransDesc.spec, diffPadTransDesc.spec = of_filter, of_diff
    gradFoldTransDesc.spec, gradUnfoldTransDesc.spec = of_grad, back
