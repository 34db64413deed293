"""List the documented setters that make a descriptor with a given specification."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from dualdnn.api.operations.rnn import RNNDataSpec, RNNSpec
from dualdnn.api.operations.specs import (
    NCHW_VECT_C,
    ActivationSpec,
    AttnSpec,
    ConvolutionSpec,
    CTCLossSpec,
    FilterSpec,
    LRNSpec,
    OpTensorSpec,
    PoolingSpec,
    ReduceTensorSpec,
    SeqDataSpec,
    SpatialTransformerSpec,
    TensorSpec,
    TransformSpec,
)

Setting = tuple[Any, ...]  # the setter, and its arguments after the descriptor


def _tensor(s: TensorSpec) -> Iterable[Setting]:
    if s.vector_length > 1:
        yield "cudnnSetTensorNdDescriptorEx", NCHW_VECT_C, s.data_type, s.rank, s.dims
    else:
        yield "cudnnSetTensorNdDescriptor", s.data_type, s.rank, s.dims, s.strides


def _filter(s: FilterSpec) -> Iterable[Setting]:
    yield "cudnnSetFilterNdDescriptor", s.data_type, s.format, len(s.dims), s.dims


def _activation(s: ActivationSpec) -> Iterable[Setting]:
    yield "cudnnSetActivationDescriptor", s.mode, s.relu_nan, s.coefficient


def _pooling(s: PoolingSpec) -> Iterable[Setting]:
    """Yield the setting; images use the 2-D setter."""
    if len(s.window) == 2:
        yield "cudnnSetPooling2dDescriptor", s.mode, s.nan, *s.window, *s.padding, *s.stride
    else:
        yield "cudnnSetPoolingNdDescriptor", s.mode, s.nan, len(s.window), s.window, s.padding, s.stride


def _op_tensor(s: OpTensorSpec) -> Iterable[Setting]:
    yield "cudnnSetOpTensorDescriptor", s.op, s.compute_type, s.nan


def _reduce_tensor(s: ReduceTensorSpec) -> Iterable[Setting]:
    yield "cudnnSetReduceTensorDescriptor", s.op, s.compute_type, s.nan, s.indices, s.indices_type


def _transform(s: TransformSpec) -> Iterable[Setting]:
    rank = len(s.pad_before)
    yield "cudnnSetTensorTransformDescriptor", rank, s.format, s.pad_before, s.pad_after, s.fold, s.direction


def _convolution(s: ConvolutionSpec) -> Iterable[Setting]:
    """Yield the settings; images use the 2-D setter."""
    if s.rank == 2:
        yield "cudnnSetConvolution2dDescriptor", *s.padding, *s.stride, *s.dilation, s.mode, s.compute_type
    else:
        yield "cudnnSetConvolutionNdDescriptor", s.rank, s.padding, s.stride, s.dilation, s.mode, s.compute_type
    yield "cudnnSetConvolutionGroupCount", s.group_count
    yield "cudnnSetConvolutionMathType", s.math_type
    yield "cudnnSetConvolutionReorderType", s.reorder_type


def _lrn(s: LRNSpec) -> Iterable[Setting]:
    yield "cudnnSetLRNDescriptor", s.n, s.alpha, s.beta, s.k


def _spatial_transformer(s: SpatialTransformerSpec) -> Iterable[Setting]:
    yield "cudnnSetSpatialTransformerNdDescriptor", s.sampler, s.data_type, len(s.dims), s.dims


def _sequence_data(s: SeqDataSpec) -> Iterable[Setting]:
    yield "cudnnSetSeqDataDescriptor", s.data_type, len(s.dims), s.dims, s.axes, len(s.lengths), s.lengths, None


def _attention(s: AttnSpec) -> Iterable[Setting]:
    """Yield the setting without dropout."""
    values = tuple(getattr(s, field.name) for field in fields(s))
    yield "cudnnSetAttnDescriptor", *values[:6], None, None, *values[6:-1]  # No operation has dropout.


def _ctc_loss(s: CTCLossSpec) -> Iterable[Setting]:
    """Yield the setting. Labels in device memory need the third setter, the only one with a longest label length."""
    values = s.compute_type, s.normalization, s.gradient_nan
    if s.longest_label is None:
        yield "cudnnSetCTCLossDescriptorEx", *values
    else:
        yield "cudnnSetCTCLossDescriptor_v8", *values, s.longest_label


def _rnn(s: RNNSpec, dropout: Any = None) -> Iterable[Setting]:
    """Yield the settings. Without a dropout descriptor there is no dropout, whatever the specification says."""
    yield (
        "cudnnSetRNNDescriptor_v8", s.algo, s.cell, s.bias, s.direction, s.input_mode, s.data_type, s.precision, s.math_type,
        s.input_size, s.hidden, s.projected, s.layers, dropout, int(s.padded),
    )  # fmt: skip
    if s.clip != type(s.clip)():
        yield "cudnnRNNSetClip_v8", s.clip.mode, s.clip.nan, s.clip.lower, s.clip.upper


def _rnn_data(s: RNNDataSpec) -> Iterable[Setting]:
    values = s.data_type, s.layout, s.max_length, s.batch, s.vector, s.lengths, s.padding_fill
    yield "cudnnSetRNNDataDescriptor", *values


# specification -> (name in cudnnCreate...Descriptor and cudnn...Descriptor_t, its settings)
SETTINGS: dict[type, tuple[str, Callable[..., Iterable[Setting]]]] = {
    TensorSpec: ("Tensor", _tensor),
    FilterSpec: ("Filter", _filter),
    ActivationSpec: ("Activation", _activation),
    PoolingSpec: ("Pooling", _pooling),
    OpTensorSpec: ("OpTensor", _op_tensor),
    ReduceTensorSpec: ("ReduceTensor", _reduce_tensor),
    TransformSpec: ("TensorTransform", _transform),
    ConvolutionSpec: ("Convolution", _convolution),
    LRNSpec: ("LRN", _lrn),
    SpatialTransformerSpec: ("SpatialTransformer", _spatial_transformer),
    SeqDataSpec: ("SeqData", _sequence_data),
    AttnSpec: ("Attn", _attention),
    CTCLossSpec: ("CTCLoss", _ctc_loss),
    RNNSpec: ("RNN", _rnn),
    RNNDataSpec: ("RNNData", _rnn_data),
}
# type of a descriptor -> name of its specification
SPECIFICATIONS = {f"cudnn{name}Descriptor_t": spec.__name__ for spec, (name, _) in SETTINGS.items()}


def made(cudnn: Any, spec: Any, *others: Any) -> Any:
    """Return a descriptor of the subject with this specification. ``others`` are descriptors that it refers to."""
    name, settings = SETTINGS[type(spec)]
    descriptor = getattr(cudnn, f"cudnnCreate{name}Descriptor")()
    for setter, *values in settings(spec, *others):
        getattr(cudnn, setter)(descriptor, *values)
    return descriptor
