"""The contract between the documented calls and the backends: specifications, operations, the backend protocol."""

from .activation import ActivationBackward, ActivationForward
from .attention import MultiHeadAttnForward, MultiHeadAttnStep
from .backend import Backend, BackendError, Buffer, Operand
from .convolution import (
    ConvolutionBackwardBias,
    ConvolutionBackwardData,
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    Im2Col,
    ReorderFilter,
    ReorderFilterAndBias,
    allows_tf32,
)
from .dropout import DropoutBackward, DropoutForward, SetDropoutStates
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
    DropoutSpec,
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
    "attention",
    "convolution",
    "dropout",
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
    "ConvolutionBiasActivationForward",
    "ConvolutionForward",
    "ConvolutionSpec",
    "DivisiveNormalizationBackward",
    "DivisiveNormalizationForward",
    "DropoutBackward",
    "DropoutForward",
    "DropoutSpec",
    "FilterSpec",
    "Im2Col",
    "LRNCrossChannelBackward",
    "LRNCrossChannelForward",
    "LRNSpec",
    "MultiHeadAttnForward",
    "MultiHeadAttnStep",
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
    "SetDropoutStates",
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
