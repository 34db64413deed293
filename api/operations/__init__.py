"""Define the contract between the documented calls and the backends: specifications, operations, the backend protocol."""

# Type checkers read the imports, and programs read HOMES.
# ruff: noqa: F401
from typing import TYPE_CHECKING

from ..lazy import lazy

if TYPE_CHECKING:
    from .activation import ActivationBackward, ActivationForward
    from .attention import (
        MultiHeadAttnBackwardData,
        MultiHeadAttnBackwardWeights,
        MultiHeadAttnForward,
        MultiHeadAttnStep,
    )
    from .backend import Backend, BackendError, Buffer, Operand, Unavailable, Unsupported
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
        ConvScaleBiasAddActivation,
        DactivationForkDbatchnorm,
        ScaleBiasActivationConvBnstats,
        ScaleBiasActivationWgrad,
        ScaleBiasAddActivationGenBitmask,
    )
    from .graph import OperationGraph
    from .normalization import (
        BatchNormalizationBackward,
        BatchNormalizationBackwardEx,
        BatchNormalizationForwardInference,
        BatchNormalizationForwardTraining,
        BatchNormalizationForwardTrainingEx,
        DivisiveNormalizationBackward,
        DivisiveNormalizationForward,
        LRNCrossChannelBackward,
        LRNCrossChannelForward,
        NormalizationBackward,
        NormalizationForwardInference,
        NormalizationForwardTraining,
    )
    from .operation import Operation
    from .pooling import PoolingBackward, PoolingForward
    from .records import parse
    from .reduce_tensor import ReduceTensor
    from .rnn import RNNBackwardData, RNNBackwardWeights, RNNForward
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

# Each family has a module or folder in api/operations, api/cudnn, reference, accelerated and conformance/cases.
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
# HOMES maps a submodule to the names that this package imports from it on first use.
HOMES = {
    module: tuple(names.split())
    for module, names in {
        "activation": "ActivationBackward ActivationForward",
        "attention": "MultiHeadAttnBackwardData MultiHeadAttnBackwardWeights MultiHeadAttnForward MultiHeadAttnStep",
        "backend": "Backend BackendError Buffer Operand Unavailable Unsupported",
        "convolution": """
            ConvolutionBackwardBias ConvolutionBackwardData ConvolutionBackwardFilter ConvolutionBiasActivationForward
            ConvolutionForward Im2Col ReorderFilter ReorderFilterAndBias allows_tf32
        """,
        "ctc": "CTCLoss CTCLoss_v8",
        "dropout": "DropoutBackward DropoutForward SetDropoutStates",
        "fused_ops": """
            BnFinalizeStatisticsInference BnFinalizeStatisticsTraining ConvScaleBiasAddActivation
            DactivationForkDbatchnorm ScaleBiasActivationConvBnstats ScaleBiasActivationWgrad
            ScaleBiasAddActivationGenBitmask
        """,
        "graph": "OperationGraph",
        "normalization": """
            BatchNormalizationBackward BatchNormalizationBackwardEx BatchNormalizationForwardInference
            BatchNormalizationForwardTraining BatchNormalizationForwardTrainingEx DivisiveNormalizationBackward
            DivisiveNormalizationForward LRNCrossChannelBackward LRNCrossChannelForward NormalizationBackward
            NormalizationForwardInference NormalizationForwardTraining
        """,
        "operation": "Operation",
        "pooling": "PoolingBackward PoolingForward",
        "records": "parse",
        "reduce_tensor": "ReduceTensor",
        "rnn": "RNNBackwardData RNNBackwardWeights RNNForward",
        "softmax": "SoftmaxBackward SoftmaxForward",
        "spatial_transformer": """
            SpatialTfGridGeneratorBackward SpatialTfGridGeneratorForward SpatialTfSamplerBackward
            SpatialTfSamplerForward
        """,
        "specs": """
            ActivationSpec AlgorithmPerformanceSpec AlgorithmSpec AttnSpec CTCLossSpec ConvolutionSpec DropoutSpec
            FilterSpec LRNSpec OpTensorSpec PoolingSpec ReduceTensorSpec SeqDataSpec SpatialTransformerSpec TensorSpec
            TransformSpec
        """,
        "tensor_arithmetic": "AddTensor OpTensor ScaleTensor SetTensor",
        "transform": "TransformFilter TransformTensor TransformTensorEx",
    }.items()
}

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, HOMES)

__all__ = ["FAMILIES", *(name for names in HOMES.values() for name in names)]
