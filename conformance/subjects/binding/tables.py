"""List what a caller through the C ABI has to know: lengths of arrays, and what the function table does not say."""

from __future__ import annotations

from dualdnn.api.document import Length, functions
from dualdnn.api.enumerations import cudnnBackendAttributeName_t as Attribute
from dualdnn.api.enumerations import cudnnBackendAttributeType_t as AttributeType
from dualdnn.api.enumerations import cudnnBackendDescriptorType_t as BackendType


def _lengths(returned: bool) -> dict[str, dict[str, Length]]:
    """Return function -> array parameter -> its length, from the function table."""
    found = {
        name: {p.name: p.length for p in function.parameters if p.length is not None and p.is_returned == returned}
        for name, function in functions().items()
    }
    return {name: lengths for name, lengths in found.items() if lengths}


OUTPUT_LENGTHS, INPUT_LENGTHS = _lengths(True), _lengths(False)

# These NULL arguments crash NVIDIA's library. They were measured one by one with every other argument valid. The
# releases are 8.9.7 without a GPU (computing calls with a stand-in handle) and 9.19 with a GPU. Host outputs are not
# listed, because the binding never passes NULL for one.
NULL_CRASHES: dict[str, tuple[str, ...]] = {
    "cudnnSetTensorNdDescriptor": ("dimA", "strideA"),
    "cudnnSetTensorNdDescriptorEx": ("dimA",),
    "cudnnSetFilterNdDescriptor": ("filterDimA",),
    "cudnnInitTransformDest": ("srcDesc",),
    "cudnnSetLRNDescriptor": ("normDesc",),
    "cudnnSetPoolingNdDescriptor": ("windowDimA", "paddingA", "strideA"),
    "cudnnLRNCrossChannelForward": ("handle", "normDesc", "alpha", "xDesc", "beta", "yDesc"),
    "cudnnLRNCrossChannelBackward": ("handle", "normDesc", "alpha", "dyDesc", "xDesc", "beta", "dxDesc"),
    "cudnnDivisiveNormalizationForward": ("handle", "normDesc", "xDesc", "yDesc"),
    "cudnnDivisiveNormalizationBackward": ("handle", "normDesc", "xDesc", "dxDesc"),
    "cudnnOpTensor": ("opTensorDesc",),
    "cudnnReduceTensor": ("reduceTensorDesc",),
    "cudnnGetReductionIndicesSize": ("reduceDesc",),
    "cudnnGetReductionWorkspaceSize": ("reduceDesc", "aDesc", "cDesc"),
    "cudnnTransformFilter": ("srcDesc", "destDesc"),
    "cudnnIm2Col": ("handle", "srcDesc", "filterDesc", "convDesc"),
    "cudnnCopyAlgorithmDescriptor": ("src", "dest"),
    "cudnnGetAlgorithmDescriptor": ("algoDesc",),
    "cudnnSetAlgorithmDescriptor": ("algorithmDesc",),
    "cudnnGetAlgorithmPerformance": ("algoPerf",),
    "cudnnSetAlgorithmPerformance": ("algoPerf",),
    "cudnnFusedOpsExecute": ("plan",),
    "cudnnGetRNNForwardInferenceAlgorithmMaxCount": ("rnnDesc",),
    "cudnnGetRNNForwardTrainingAlgorithmMaxCount": ("rnnDesc",),
    "cudnnGetRNNBackwardDataAlgorithmMaxCount": ("rnnDesc",),
    "cudnnSetConvolutionNdDescriptor": ("padA", "filterStrideA", "dilationA"),
    "cudnnSetSeqDataDescriptor": ("dimA", "axes", "seqLengthArray"),
    "cudnnCTCLoss": ("handle", "ctcLossDesc", "probsDesc", "hostLabels", "hostLabelLengths", "hostInputLengths"),
    "cudnnCTCLoss_v8": ("handle", "ctcLossDesc", "probsDesc"),
    "cudnnGetCTCLossWorkspaceSize": ("probsDesc", "labelLengths", "inputLengths"),
    "cudnnGetCTCLossWorkspaceSize_v8": ("ctcLossDesc", "probsDesc"),
    "cudnnBatchNormalizationForwardInference": ("handle", "xDesc", "yDesc", "bnScaleBiasMeanVarDesc"),
    "cudnnBatchNormalizationBackward": ("handle", "xDesc", "dyDesc", "dxDesc", "bnScaleBiasDiffDesc"),
    "cudnnBatchNormalizationBackwardEx": ("handle", "xDesc", "dyDesc", "dxDesc", "dBnScaleBiasDesc"),
    "cudnnNormalizationForwardInference": ("handle", "xDesc", "normScaleBiasDesc", "normMeanVarDesc", "yDesc"),
    "cudnnNormalizationBackward": ("handle", "xDesc", "dyDesc", "dxDesc", "dNormScaleBiasDesc", "normMeanVarDesc"),
    "cudnnDropoutForward": ("xdesc", "ydesc"),
    "cudnnDropoutBackward": ("dyDesc", "dxDesc"),
    "cudnnSpatialTfGridGeneratorForward": ("stDesc",),
    "cudnnSpatialTfGridGeneratorBackward": ("stDesc",),
    "cudnnSpatialTfSamplerForward": ("stDesc", "alpha", "xDesc", "beta", "yDesc"),
    "cudnnSpatialTfSamplerBackward": ("stDesc", "xDesc", "dxDesc", "dyDesc"),
    "cudnnDeriveBNTensorDescriptor": ("xDesc",),
    "cudnnDeriveNormTensorDescriptor": ("xDesc",),
    "cudnnMultiHeadAttnBackwardData": ("workSpace",),
    "cudnnMultiHeadAttnBackwardWeights": ("workSpace",),
}

NULL_CRASHES_BEFORE_9: dict[str, tuple[str, ...]] = {
    "cudnnGetTensorSizeInBytes": ("tensorDesc",),
    "cudnnGetLRNDescriptor": ("normDesc",),
    "cudnnGetPooling2dForwardOutputDim": ("inputDesc",),
    "cudnnGetPoolingNdForwardOutputDim": ("inputDesc",),
    "cudnnSetRNNDataDescriptor": ("seqLengthArray",),
}
NULL_CRASHES_SINCE_9: dict[str, tuple[str, ...]] = {
    f"cudnnGetConvolution{which}Algorithm_v7": ("handle",) for which in ("Forward", "BackwardData", "BackwardFilter")
}
# Release 9.19 passes these device pointers to its kernels unchecked. A call with NULL returns SUCCESS, or fails in the
# device, where a fault ends the work of the process.
NULL_FAULTS: dict[str, tuple[str, ...]] = {
    "cudnnCTCLoss": ("probs", "costs", "workspace"),
    "cudnnCTCLoss_v8": ("probs", "labels", "labelLengths", "inputLengths", "costs", "workspace"),
    "cudnnRNNForward": ("x", "y"),
    "cudnnRNNBackwardData_v8": ("y", "dy", "dx"),
    "cudnnRNNBackwardWeights_v8": ("x", "y"),
}


def vendor_null_crashes(version: int | None) -> dict[str, tuple[str, ...]]:
    """Return the NULL arguments that crash a release of NVIDIA's library."""
    if version is None or version < 90000:
        return NULL_CRASHES | NULL_CRASHES_BEFORE_9
    found = NULL_CRASHES | NULL_CRASHES_SINCE_9
    return found | {name: (*found.get(name, ()), *pointers) for name, pointers in NULL_FAULTS.items()}


# This table gives the C type of one element of a backend attribute. Booleans are one byte; other names are
# enumerations.
ATTRIBUTE_ELEMENTS: dict[int, str] = {
    AttributeType.CUDNN_TYPE_HANDLE: "cudnnHandle_t",
    AttributeType.CUDNN_TYPE_DATA_TYPE: "cudnnDataType_t",
    AttributeType.CUDNN_TYPE_BOOLEAN: "bool",
    AttributeType.CUDNN_TYPE_INT64: "int64_t",
    AttributeType.CUDNN_TYPE_FLOAT: "float",
    AttributeType.CUDNN_TYPE_DOUBLE: "double",
    AttributeType.CUDNN_TYPE_VOID_PTR: "void *",
    AttributeType.CUDNN_TYPE_CONVOLUTION_MODE: "cudnnConvolutionMode_t",
    AttributeType.CUDNN_TYPE_HEUR_MODE: "cudnnBackendHeurMode_t",
    AttributeType.CUDNN_TYPE_KNOB_TYPE: "cudnnBackendKnobType_t",
    AttributeType.CUDNN_TYPE_NAN_PROPOGATION: "cudnnNanPropagation_t",
    AttributeType.CUDNN_TYPE_NUMERICAL_NOTE: "cudnnBackendNumericalNote_t",
    AttributeType.CUDNN_TYPE_LAYOUT_TYPE: "cudnnBackendLayoutType_t",
    AttributeType.CUDNN_TYPE_ATTRIB_NAME: "cudnnBackendAttributeName_t",
    AttributeType.CUDNN_TYPE_POINTWISE_MODE: "cudnnPointwiseMode_t",
    AttributeType.CUDNN_TYPE_BACKEND_DESCRIPTOR: "cudnnBackendDescriptor_t",
    AttributeType.CUDNN_TYPE_GENSTATS_MODE: "cudnnGenStatsMode_t",
}

# Getting an attribute fills descriptors of these types, which the caller has created.
ATTRIBUTE_DESCRIPTORS: dict[int, BackendType] = {
    Attribute.CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH: BackendType.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
    Attribute.CUDNN_ATTR_ENGINEHEUR_RESULTS: BackendType.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
    Attribute.CUDNN_ATTR_ENGINECFG_ENGINE: BackendType.CUDNN_BACKEND_ENGINE_DESCRIPTOR,
    Attribute.CUDNN_ATTR_ENGINECFG_INTERMEDIATE_INFO: BackendType.CUDNN_BACKEND_INTERMEDIATE_INFO_DESCRIPTOR,
    Attribute.CUDNN_ATTR_ENGINECFG_KNOB_CHOICES: BackendType.CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
    Attribute.CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG: BackendType.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
    Attribute.CUDNN_ATTR_ENGINE_OPERATION_GRAPH: BackendType.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
    Attribute.CUDNN_ATTR_ENGINE_KNOB_INFO: BackendType.CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR,
    Attribute.CUDNN_ATTR_ENGINE_LAYOUT_INFO: BackendType.CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR,
    Attribute.CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR: BackendType.CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
    **{
        Attribute[
            f"CUDNN_ATTR_OPERATION_CONVOLUTION_{kind}_CONV_DESC"
        ]: BackendType.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR
        for kind in ("FORWARD", "BWD_DATA", "BWD_FILTER")
    },
    **{
        Attribute[f"CUDNN_ATTR_OPERATION_{name}"]: BackendType.CUDNN_BACKEND_TENSOR_DESCRIPTOR
        for name in (
            *("CONVOLUTION_FORWARD_W", "CONVOLUTION_FORWARD_X", "CONVOLUTION_FORWARD_Y"),
            *("CONVOLUTION_BWD_DATA_W", "CONVOLUTION_BWD_DATA_DX", "CONVOLUTION_BWD_DATA_DY"),
            *("CONVOLUTION_BWD_FILTER_DW", "CONVOLUTION_BWD_FILTER_X", "CONVOLUTION_BWD_FILTER_DY"),
            *("POINTWISE_XDESC", "POINTWISE_BDESC", "POINTWISE_YDESC"),
            *("GENSTATS_XDESC", "GENSTATS_SUMDESC", "GENSTATS_SQSUMDESC"),
        )
    },
}

# Operation descriptors of a graph have several types: reading them back needs the types that were set.
ATTRIBUTES_OF_SEVERAL_TYPES = (Attribute.CUDNN_ATTR_OPERATIONGRAPH_OPS,)

# Data types outside this range in a backend tensor make release 8.9.7 divide by zero when it is finalised.
BACKEND_DATA_TYPES = range(0, 15)

# These labels of a constant parameter pack hold other descriptors; every other *DESC label holds a tensor descriptor.
CONST_PARAM_DESCRIPTORS = {
    "CUDNN_PARAM_ACTIVATION_DESC": "cudnnActivationDescriptor_t",
    "CUDNN_PARAM_CONV_DESC": "cudnnConvolutionDescriptor_t",
    "CUDNN_PARAM_WDESC": "cudnnFilterDescriptor_t",
    "CUDNN_PARAM_DWDESC": "cudnnFilterDescriptor_t",
}

# These labels of a variant parameter pack hold scalars of these C types; every other label holds a device pointer.
VARIANT_PARAM_SCALARS = {
    "CUDNN_SCALAR_SIZE_T_WORKSPACE_SIZE_IN_BYTES": "size_t",
    "CUDNN_SCALAR_INT64_T_BN_ACCUMULATION_COUNT": "int64_t",
    "CUDNN_SCALAR_DOUBLE_BN_EXP_AVG_FACTOR": "double",
    "CUDNN_SCALAR_DOUBLE_BN_EPSILON": "double",
}
