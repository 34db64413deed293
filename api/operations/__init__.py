"""The contract between the documented calls and the backends: specifications, operations, the backend protocol."""

from .activation import ActivationBackward, ActivationForward
from .backend import Backend, BackendError, Buffer, Operand
from .convolution import (
    ConvolutionBackwardBias,
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    Im2Col,
    ReorderFilter,
    ReorderFilterAndBias,
    allows_tf32,
)
from .normalization import (
    DivisiveNormalizationBackward,
    DivisiveNormalizationForward,
    LRNCrossChannelBackward,
    LRNCrossChannelForward,
)
from .operation import Operation
from .pooling import PoolingBackward, PoolingForward
from .records import parse
from .reduce_tensor import ReduceTensor
from .softmax import SoftmaxBackward, SoftmaxForward
from .specs import (
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
    TensorSpec,
    TransformSpec,
)
from .tensor_arithmetic import AddTensor, OpTensor, ScaleTensor, SetTensor
from .transform import TransformFilter, TransformTensor, TransformTensorEx

# One room on every floor for each: api/operations, api/cudnn, reference, accelerated, conformance/cases.
FAMILIES = (
    "activation",
    "convolution",
    "normalization",
    "pooling",
    "reduce_tensor",
    "softmax",
    "tensor_arithmetic",
    "transform",
)

__all__ = [
    "FAMILIES",
    "ActivationBackward",
    "ActivationForward",
    "ActivationSpec",
    "AddTensor",
    "AttnSpec",
    "Backend",
    "BackendError",
    "Buffer",
    "CTCLossSpec",
    "ConvolutionBackwardBias",
    "ConvolutionBackwardData",
    "ConvolutionBackwardFilter",
    "ConvolutionBiasActivationForward",
    "ConvolutionForward",
    "ConvolutionSpec",
    "DivisiveNormalizationBackward",
    "DivisiveNormalizationForward",
    "FilterSpec",
    "Im2Col",
    "LRNCrossChannelBackward",
    "LRNCrossChannelForward",
    "LRNSpec",
    "OpTensor",
    "OpTensorSpec",
    "Operand",
    "Operation",
    "PoolingBackward",
    "PoolingForward",
    "PoolingSpec",
    "ReduceTensor",
    "ReduceTensorSpec",
    "ReorderFilter",
    "ReorderFilterAndBias",
    "ScaleTensor",
    "SeqDataSpec",
    "SetTensor",
    "SoftmaxBackward",
    "SoftmaxForward",
    "TensorSpec",
    "TransformFilter",
    "TransformSpec",
    "TransformTensor",
    "TransformTensorEx",
    "allows_tf32",
    "parse",
]
