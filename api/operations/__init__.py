"""The contract between the documented calls and the backends: specifications, operations, the backend protocol."""

from .activation import ActivationBackward, ActivationForward
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
from .spatial_transformer import (
    SpatialTfGridGeneratorBackward,
    SpatialTfGridGeneratorForward,
    SpatialTfSamplerBackward,
    SpatialTfSamplerForward,
)
from .specs import (
    ActivationSpec,
    AlgorithmPerformanceSpec,
    AlgorithmSpec,
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
    SpatialTransformerSpec,
    TensorSpec,
    TransformSpec,
)
from .tensor_arithmetic import AddTensor, OpTensor, ScaleTensor, SetTensor
from .transform import TransformFilter, TransformTensor, TransformTensorEx

# One room on every floor for each: api/operations, api/cudnn, reference, accelerated, conformance/cases.
FAMILIES = (
    "activation",
    "convolution",
    "dropout",
    "normalization",
    "pooling",
    "reduce_tensor",
    "softmax",
    "spatial_transformer",
    "tensor_arithmetic",
    "transform",
)

__all__ = [
    "FAMILIES",
    "ActivationBackward",
    "ActivationForward",
    "ActivationSpec",
    "AddTensor",
    "AlgorithmPerformanceSpec",
    "AlgorithmSpec",
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
    "SpatialTfGridGeneratorBackward",
    "SpatialTfGridGeneratorForward",
    "SpatialTfSamplerBackward",
    "SpatialTfSamplerForward",
    "SpatialTransformerSpec",
    "TensorSpec",
    "TransformFilter",
    "TransformSpec",
    "TransformTensor",
    "TransformTensorEx",
    "allows_tf32",
    "parse",
]
