"""The contract between the documented calls and the backends: specifications, operations, the backend protocol."""

from .activation import ActivationBackward, ActivationForward
from .attention import (
    MultiHeadAttnBackwardData,
    MultiHeadAttnBackwardWeights,
    MultiHeadAttnForward,
    MultiHeadAttnStep,
)
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
from .ctc import CTCLoss, CTCLoss_v8
from .dropout import DropoutBackward, DropoutForward, SetDropoutStates
from .fused_ops import (
    BnFinalizeStatisticsInference,
    BnFinalizeStatisticsTraining,
    DactivationForkDbatchnorm,
    ScaleBiasAddActivationGenBitmask,
)
from .graph import OperationGraph
from .normalization import (
    BatchNormalizationBackward,
    BatchNormalizationForwardInference,
    BatchNormalizationForwardTraining,
    DivisiveNormalizationBackward,
    DivisiveNormalizationForward,
    LRNCrossChannelBackward,
    LRNCrossChannelForward,
    NormalizationForwardInference,
)
from .operation import Operation
from .pooling import PoolingBackward, PoolingForward
from .records import parse
from .reduce_tensor import ReduceTensor
from .rnn import RNNForward
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
    "attention",
    "convolution",
    "graph",
    "fused_ops",
    "ctc",
    "dropout",
    "normalization",
    "pooling",
    "reduce_tensor",
    "rnn",
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
    "BnFinalizeStatisticsInference",
    "BnFinalizeStatisticsTraining",
    "DactivationForkDbatchnorm",
    "ScaleBiasAddActivationGenBitmask",
    "Backend",
    "BatchNormalizationBackward",
    "BatchNormalizationForwardInference",
    "BatchNormalizationForwardTraining",
    "BackendError",
    "Buffer",
    "CTCLoss",
    "CTCLossSpec",
    "CTCLoss_v8",
    "ConvolutionBackwardBias",
    "ConvolutionBackwardData",
    "ConvolutionBackwardFilter",
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
    "MultiHeadAttnBackwardData",
    "MultiHeadAttnBackwardWeights",
    "MultiHeadAttnForward",
    "MultiHeadAttnStep",
    "NormalizationForwardInference",
    "OpTensor",
    "OpTensorSpec",
    "Operand",
    "Operation",
    "OperationGraph",
    "PoolingBackward",
    "PoolingForward",
    "PoolingSpec",
    "RNNForward",
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
