"""Map each module of this package to its documented functions, so that the module is imported on first use of one of
them."""

# tests/installation/test_start_up.py compares HOMES with what the modules define.
HOMES: dict[str, tuple[str, ...]] = {
    module: tuple(names.split())
    for module, names in {
        "activation": """
            cudnnActivationBackward cudnnActivationForward cudnnCreateActivationDescriptor
            cudnnDestroyActivationDescriptor cudnnGetActivationDescriptor cudnnSetActivationDescriptor
        """,
        "algorithm_descriptors": """
            cudnnCopyAlgorithmDescriptor cudnnCreateAlgorithmDescriptor cudnnCreateAlgorithmPerformance
            cudnnDestroyAlgorithmDescriptor cudnnDestroyAlgorithmPerformance cudnnGetAlgorithmDescriptor
            cudnnGetAlgorithmPerformance cudnnGetAlgorithmSpaceSize cudnnRestoreAlgorithm cudnnSaveAlgorithm
            cudnnSetAlgorithmDescriptor cudnnSetAlgorithmPerformance
        """,
        "attention": "cudnnMultiHeadAttnBackwardData cudnnMultiHeadAttnBackwardWeights cudnnMultiHeadAttnForward",
        "attention_descriptors": """
            cudnnCreateAttnDescriptor cudnnDestroyAttnDescriptor cudnnGetAttnDescriptor cudnnSetAttnDescriptor
        """,
        "attention_weights": "cudnnGetMultiHeadAttnBuffers cudnnGetMultiHeadAttnWeights",
        "convolution.algorithms": """
            cudnnFindConvolutionBackwardDataAlgorithm cudnnFindConvolutionBackwardDataAlgorithmEx
            cudnnFindConvolutionBackwardFilterAlgorithm cudnnFindConvolutionBackwardFilterAlgorithmEx
            cudnnFindConvolutionForwardAlgorithm cudnnFindConvolutionForwardAlgorithmEx
            cudnnGetConvolutionBackwardDataAlgorithmMaxCount cudnnGetConvolutionBackwardDataAlgorithm_v7
            cudnnGetConvolutionBackwardDataWorkspaceSize cudnnGetConvolutionBackwardFilterAlgorithmMaxCount
            cudnnGetConvolutionBackwardFilterAlgorithm_v7 cudnnGetConvolutionBackwardFilterWorkspaceSize
            cudnnGetConvolutionForwardAlgorithmMaxCount cudnnGetConvolutionForwardAlgorithm_v7
            cudnnGetConvolutionForwardWorkspaceSize
        """,
        "convolution.backward_data": "cudnnConvolutionBackwardData",
        "convolution.backward_filter": "cudnnConvolutionBackwardFilter",
        "convolution.descriptors": """
            cudnnCreateConvolutionDescriptor cudnnDestroyConvolutionDescriptor cudnnGetConvolution2dDescriptor
            cudnnGetConvolution2dForwardOutputDim cudnnGetConvolutionGroupCount cudnnGetConvolutionMathType
            cudnnGetConvolutionNdDescriptor cudnnGetConvolutionNdForwardOutputDim cudnnGetConvolutionReorderType
            cudnnSetConvolution2dDescriptor cudnnSetConvolutionGroupCount cudnnSetConvolutionMathType
            cudnnSetConvolutionNdDescriptor cudnnSetConvolutionReorderType
        """,
        "convolution.folded": "cudnnGetFoldedConvBackwardDataDescriptors",
        "convolution.forward": """
            cudnnConvolutionBiasActivationForward cudnnConvolutionForward cudnnIm2Col cudnnReorderFilterAndBias
        """,
        "convolution.gradients": "cudnnConvolutionBackwardBias",
        "ctc": "cudnnCTCLoss cudnnCTCLoss_v8 cudnnGetCTCLossWorkspaceSize cudnnGetCTCLossWorkspaceSize_v8",
        "ctc_descriptors": """
            cudnnCreateCTCLossDescriptor cudnnDestroyCTCLossDescriptor cudnnGetCTCLossDescriptor
            cudnnGetCTCLossDescriptorEx cudnnGetCTCLossDescriptor_v8 cudnnSetCTCLossDescriptor
            cudnnSetCTCLossDescriptorEx cudnnSetCTCLossDescriptor_v8
        """,
        "dropout": """
            cudnnCreateDropoutDescriptor cudnnDestroyDropoutDescriptor cudnnDropoutBackward cudnnDropoutForward
            cudnnDropoutGetReserveSpaceSize cudnnDropoutGetStatesSize cudnnGetDropoutDescriptor
            cudnnRestoreDropoutDescriptor cudnnSetDropoutDescriptor
        """,
        "filter_descriptors": """
            cudnnCreateFilterDescriptor cudnnDestroyFilterDescriptor cudnnGetFilter4dDescriptor
            cudnnGetFilterNdDescriptor cudnnGetFilterSizeInBytes cudnnSetFilter4dDescriptor cudnnSetFilterNdDescriptor
        """,
        "fused_ops.packs": """
            cudnnCreateFusedOpsConstParamPack cudnnCreateFusedOpsVariantParamPack cudnnDestroyFusedOpsConstParamPack
            cudnnDestroyFusedOpsVariantParamPack cudnnGetFusedOpsConstParamPackAttribute
            cudnnGetFusedOpsVariantParamPackAttribute cudnnSetFusedOpsConstParamPackAttribute
            cudnnSetFusedOpsVariantParamPackAttribute
        """,
        "fused_ops.plans": """
            cudnnCreateFusedOpsPlan cudnnDestroyFusedOpsPlan cudnnFusedOpsExecute cudnnMakeFusedOpsPlan
        """,
        "graph": "cudnnBackendExecute",
        "graph_descriptors": """
            cudnnBackendCreateDescriptor cudnnBackendDestroyDescriptor cudnnBackendFinalize cudnnBackendGetAttribute
            cudnnBackendInitialize cudnnBackendSetAttribute
        """,
        "library": """
            cudnnAdvInferVersionCheck cudnnAdvTrainVersionCheck cudnnCreate cudnnDestroy cudnnGetCallback
            cudnnGetCudartVersion cudnnGetErrorString cudnnGetProperty cudnnGetStream cudnnGetVersion
            cudnnOpsInferVersionCheck cudnnOpsTrainVersionCheck cudnnQueryRuntimeError cudnnSetCallback cudnnSetStream
        """,
        "normalization.batch": """
            cudnnBatchNormalizationBackward cudnnBatchNormalizationForwardInference
            cudnnBatchNormalizationForwardTraining cudnnDeriveBNTensorDescriptor
        """,
        "normalization.batch_ex": """
            cudnnBatchNormalizationBackwardEx cudnnBatchNormalizationForwardTrainingEx
            cudnnGetBatchNormalizationBackwardExWorkspaceSize cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize
            cudnnGetBatchNormalizationTrainingExReserveSpaceSize
        """,
        "normalization.divisive": "cudnnDivisiveNormalizationBackward cudnnDivisiveNormalizationForward",
        "normalization.lrn": """
            cudnnCreateLRNDescriptor cudnnDestroyLRNDescriptor cudnnGetLRNDescriptor cudnnLRNCrossChannelBackward
            cudnnLRNCrossChannelForward cudnnSetLRNDescriptor
        """,
        "normalization.norm": "cudnnDeriveNormTensorDescriptor cudnnNormalizationForwardInference",
        "normalization.norm_training": """
            cudnnGetNormalizationBackwardWorkspaceSize cudnnGetNormalizationForwardTrainingWorkspaceSize
            cudnnGetNormalizationTrainingReserveSpaceSize cudnnNormalizationBackward cudnnNormalizationForwardTraining
        """,
        "pooling": """
            cudnnCreatePoolingDescriptor cudnnDestroyPoolingDescriptor cudnnGetPooling2dDescriptor
            cudnnGetPooling2dForwardOutputDim cudnnGetPoolingNdDescriptor cudnnGetPoolingNdForwardOutputDim
            cudnnPoolingBackward cudnnPoolingForward cudnnSetPooling2dDescriptor cudnnSetPoolingNdDescriptor
        """,
        "reduce_tensor": """
            cudnnCreateReduceTensorDescriptor cudnnDestroyReduceTensorDescriptor cudnnGetReduceTensorDescriptor
            cudnnGetReductionIndicesSize cudnnGetReductionWorkspaceSize cudnnReduceTensor cudnnSetReduceTensorDescriptor
        """,
        "rnn.backward": "cudnnRNNBackwardData_v8 cudnnRNNBackwardWeights_v8",
        "rnn.clip": "cudnnRNNGetClip cudnnRNNGetClip_v8 cudnnRNNSetClip cudnnRNNSetClip_v8",
        "rnn.data": """
            cudnnCreateRNNDataDescriptor cudnnDestroyRNNDataDescriptor cudnnGetRNNDataDescriptor
            cudnnSetRNNDataDescriptor
        """,
        "rnn.descriptor": """
            cudnnCreateRNNDescriptor cudnnDestroyRNNDescriptor cudnnGetRNNDescriptor_v8 cudnnSetRNNDescriptor_v8
        """,
        "rnn.forward": "cudnnRNNForward",
        "rnn.legacy_backward": """
            cudnnRNNBackwardData cudnnRNNBackwardDataEx cudnnRNNBackwardWeights cudnnRNNBackwardWeightsEx
        """,
        "rnn.legacy_descriptor": """
            cudnnGetRNNBiasMode cudnnGetRNNDescriptor_v6 cudnnGetRNNMatrixMathType cudnnGetRNNPaddingMode
            cudnnGetRNNProjectionLayers cudnnSetRNNAlgorithmDescriptor cudnnSetRNNBiasMode cudnnSetRNNDescriptor_v6
            cudnnSetRNNMatrixMathType cudnnSetRNNPaddingMode cudnnSetRNNProjectionLayers
        """,
        "rnn.legacy_forward": """
            cudnnRNNForwardInference cudnnRNNForwardInferenceEx cudnnRNNForwardTraining cudnnRNNForwardTrainingEx
        """,
        "rnn.legacy_weights": "cudnnGetRNNLinLayerBiasParams cudnnGetRNNLinLayerMatrixParams cudnnGetRNNParamsSize",
        "rnn.persistent": """
            cudnnBuildRNNDynamic cudnnCreatePersistentRNNPlan cudnnDestroyPersistentRNNPlan cudnnSetPersistentRNNPlan
        """,
        "rnn.searches": """
            cudnnFindRNNBackwardDataAlgorithmEx cudnnFindRNNBackwardWeightsAlgorithmEx
            cudnnFindRNNForwardInferenceAlgorithmEx cudnnFindRNNForwardTrainingAlgorithmEx
            cudnnGetRNNBackwardDataAlgorithmMaxCount cudnnGetRNNForwardInferenceAlgorithmMaxCount
            cudnnGetRNNForwardTrainingAlgorithmMaxCount
        """,
        "rnn.spaces": "cudnnGetRNNTempSpaceSizes cudnnGetRNNTrainingReserveSize cudnnGetRNNWorkspaceSize",
        "rnn.weights": "cudnnGetRNNWeightParams cudnnGetRNNWeightSpaceSize",
        "sequence_data_descriptors": """
            cudnnCreateSeqDataDescriptor cudnnDestroySeqDataDescriptor cudnnGetSeqDataDescriptor
            cudnnSetSeqDataDescriptor
        """,
        "softmax": "cudnnSoftmaxBackward cudnnSoftmaxForward",
        "spatial_transformer": """
            cudnnCreateSpatialTransformerDescriptor cudnnDestroySpatialTransformerDescriptor
            cudnnSetSpatialTransformerNdDescriptor cudnnSpatialTfGridGeneratorBackward
            cudnnSpatialTfGridGeneratorForward cudnnSpatialTfSamplerBackward cudnnSpatialTfSamplerForward
        """,
        "tensor_arithmetic": """
            cudnnAddTensor cudnnCreateOpTensorDescriptor cudnnDestroyOpTensorDescriptor cudnnGetOpTensorDescriptor
            cudnnOpTensor cudnnScaleTensor cudnnSetOpTensorDescriptor cudnnSetTensor
        """,
        "tensor_descriptors": """
            cudnnCreateTensorDescriptor cudnnDestroyTensorDescriptor cudnnGetTensor4dDescriptor
            cudnnGetTensorNdDescriptor cudnnGetTensorSizeInBytes cudnnSetTensor4dDescriptor cudnnSetTensor4dDescriptorEx
            cudnnSetTensorNdDescriptor cudnnSetTensorNdDescriptorEx
        """,
        "transform": """
            cudnnCreateTensorTransformDescriptor cudnnDestroyTensorTransformDescriptor cudnnGetTensorTransformDescriptor
            cudnnInitTransformDest cudnnSetTensorTransformDescriptor cudnnTransformFilter cudnnTransformTensor
            cudnnTransformTensorEx
        """,
    }.items()
}
