"""Lists where cuDNN 9.19, computing on a GPU, and the document disagree; docs/errata.md decides each under its id."""

from __future__ import annotations

from .table import Difference, declare

_S = ("vendor-9*",)
_LRN = "normalization_lrn/test"
_DIVISIVE = "normalization_divisive/test"
_BATCH = "normalization_batch/test"
_TRAINING = "normalization_batch_training/test"
_FIND = "cudnnFindConvolutionForwardAlgorithmEx"

declare([
    Difference(
        "V-padding-nonfinite", "cudnnConvolutionForward", ("cudnnConvolutionForward/c01",),
        "Padding is zeros, which the filter multiplies: zero times an infinity is NaN.", "9.19 leaves them out: the sum is a number.",
        "NaN: the formula.", subjects=_S,
        cases=("convolution/test_padding_meets_filters_that_are_not_finite*", "convolution/test_an_infinity_over_the_padding*",
               "graph/test_special_values_of_convolutions?filter-*", "every_operation/test_infinite_operands?ConvolutionForward-GEMM?",
               "every_operation/test_infinite_operands?ConvolutionBackwardFilter*", "every_operation/test_infinite_operands?ScaleBiasActivationWgrad?"),
        says=("assertion *", "wrong y: *", "wrong tensor_2: other numbers", "wrong dw: infinite, other numbers"),
    ),
    Difference(
        "V-find-null-workspace", _FIND, (f"{_FIND}/c11", f"{_FIND}/c12"), "An algorithm that needs more than the workspace is ALLOC_FAILED.",
        "9.19 takes the size as it is said to be where the pointer is NULL.", "NULL means that there is no workspace.", subjects=_S,
        cases=("convolution_algorithms/test_the_workspace_decides_what_is_tried?None?",),
        says=("assertion *",),
    ),
    Difference(
        "V-gradient-searches", "cudnnGetConvolutionBackwardDataAlgorithm_v7",
        ("cudnnGetConvolutionBackwardDataAlgorithm_v7/c11", "cudnnGetConvolutionBackwardFilterAlgorithm_v7/c10", "cudnnConvolutionBackwardData/c27",
         "cudnnConvolutionBackwardFilter/c45", "cudnnConvolutionBwdDataAlgoPerf_t/c06"),
        "A count below 1 and descriptors that do not fit are BAD_PARAM; what needs more than the workspace is ALLOC_FAILED.",
        "9.19 answers SUCCESS to both, INTERNAL_ERROR or BAD_PARAM to the third; the first half algorithm sums in the 16-bit type.",
        "BAD_PARAM, ALLOC_FAILED: the status lists.", subjects=_S,
        cases=tuple(f"convolution_gradient_algorithms/test_{name}*" for name in (
            "at_least_one_result", "descriptors_must_fit", "the_workspace_decides", "order_and_entries?HALF")),
        says=("assertion *", "succeeded, not BAD_PARAM by *", "wrong dx: other numbers"),
    ),
    Difference(
        "V-pooling-ties-half", "cudnnPoolingBackward", ("cudnnPoolingBackward/c01", "cudnnPoolingBackward/c07"),
        "The gradients of all windows over an element are added; no precision is named.", "9.19 adds them in the 16-bit type.",
        "Summed in FLOAT and rounded once.", subjects=_S,
        cases=("pooling_static_windows/test_gradient_with_ties*HALF*", "pooling_static_windows/test_gradient_of_other_types_with_ties*BFLOAT16*"),
        says=("wrong dx: as before the call", "wrong dx: other numbers"),
    ),
    Difference(
        "V-bias-gradient-bfloat16", "cudnnConvolutionBackwardBias", ("cudnnConvolutionBackwardBias/c01", "cudnnConvolutionBackwardBias/c09"),
        "Names no data types; differing types are BAD_PARAM.", "9.19 answers NOT_SUPPORTED where one is BFLOAT16.",
        "Computed, as in the other gradients.", subjects=_S,
        cases=("convolution_gradients/test_bias_gradient_*BFLOAT16*", "convolution_gradients/test_db_has_another_type*BFLOAT16*"),
        says=("cudnnConvolutionBackwardBias NOT_SUPPORTED",
              "cudnnConvolutionBackwardBias NOT_SUPPORTED, not BAD_PARAM"),
    ),
    Difference(
        "V-dropout-statuses", "cudnnRestoreDropoutDescriptor",
        ("cudnnRestoreDropoutDescriptor/c04", "cudnnDropoutBackward/c07", "cudnnDropoutBackward/c11", "cudnnStatus_t/c05"),
        "Small states are INVALID_VALUE, tensors of other elements NOT_SUPPORTED, an unset descriptor and NULL BAD_PARAM.",
        "9.19: BAD_PARAM; BAD_PARAM; EXECUTION_FAILED; SUCCESS of a NULL handle.", "The status lists (D062).", subjects=_S,
        cases=tuple(f"dropout/test_{name}*" for name in (
            "descriptors_and_reserve_space?cudnnDropoutBackward", "null", "states_that_are_too_small", "tensors_that_do_not_fit")),
        says=("cudnnDropoutBackward EXECUTION_FAILED, EXECUTION_FAILED_CUDART, not BAD_PARAM",
              "cudnnDropoutForward BAD_PARAM, not NOT_SUPPORTED",
              "cudnnRestoreDropoutDescriptor BAD_PARAM, not INVALID_VALUE",
              "cudnnSetDropoutDescriptor BAD_PARAM, not INVALID_VALUE",
              "succeeded, not BAD_PARAM by cudnnStatus_t/c05"),
    ),
    Difference(
        "V-folded-statuses", "cudnnGetFoldedConvBackwardDataDescriptors",
        ("cudnnGetFoldedConvBackwardDataDescriptors/c08", "cudnnConvolutionBackwardData/c28"),
        "NULL and descriptors that do not fit are BAD_PARAM.", "9.19 answers SUCCESS.", "BAD_PARAM: the status list.", subjects=_S,
        cases=("folded_convolution/test_descriptors_must_fit*", "folded_convolution/test_null*"),
        says=("succeeded, not BAD_PARAM by cudnnConvolutionBackwardData/c28",
              "succeeded, not BAD_PARAM by cudnnGetFoldedConvBackwardDataDescriptors/c08"),
    ),
    Difference(
        "V-batch-arguments", "cudnnBatchNormalizationForwardInference",
        ("cudnnBatchNormalizationForwardInference/c24", "cudnnBatchNormalizationForwardInference/c25", "cudnnBatchNormalizationForwardTraining/c34",
         "cudnnBatchNormalizationForwardTraining/c36", "cudnnBatchNormalizationForwardTraining/c37"),
        "An epsilon that is too small, one of two statistics alone and statistics of another shape or type are BAD_PARAM.",
        "9.19 accepts NaN as epsilon, running statistics of which one is NULL, and statistics per activation of another shape.",
        "BAD_PARAM: the status lists.", subjects=_S,
        cases=(f"{_BATCH}_inference_epsilon?nan?", f"{_TRAINING}_training_epsilon?nan?", f"{_TRAINING}_one_of_two_statistics_null*",
               f"{_BATCH}_inference_statistics_of_other_shape_or_type?PER_ACTIVATION?",
               f"{_TRAINING}_training_statistics_of_other_shape_or_type?PER_ACTIVATION?"),
        says=("succeeded, not BAD_PARAM by cudnnBatchNormalizationForwardInference/*",
              "succeeded, not BAD_PARAM by cudnnBatchNormalizationForwardTraining/*"),
    ),
    Difference(
        "V-batch-layouts", "cudnnBatchNormalizationForwardInference", ("cudnnBatchNormalizationForwardInference/c12",),
        "x and y may have different layouts.", "9.19 answers BAD_PARAM.", "Computed.", subjects=_S,
        cases=(f"{_BATCH}_inference_mixed_layouts*", f"{_TRAINING}_training_mixed_layouts*", f"{_TRAINING}_backward_mixed_layouts*"),
        says=("cudnnBatchNormalizationBackward BAD_PARAM", "cudnnBatchNormalizationForwardTraining BAD_PARAM",
              "cudnnNormalizationForwardInference BAD_PARAM"),
    ),
    Difference(
        "V-batch-bfloat16-computed", "cudnnBatchNormalizationForwardTraining",
        ("cudnnBatchNormalizationForwardInference/c21", "cudnnBatchNormalizationForwardTraining/c30"),
        "The tables have no BFLOAT16.", "9.19 computes it.", "NOT_SUPPORTED: the tables (D035).", subjects=_S,
        cases=(f"{_BATCH}_inference_other_types*", f"{_TRAINING}_training_other_types?CUDNN_DATA_BFLOAT16?"),
        says=("succeeded, not NOT_SUPPORTED by cudnnBatchNormalizationForwardInference/c21",
              "succeeded, not NOT_SUPPORTED by cudnnBatchNormalizationForwardTraining/c30"),
    ),
    Difference(
        "V-batch-nonfinite", "cudnnBatchNormalizationForwardTraining", ("cudnnBatchNormalizationForwardTraining/c01",),
        "The formula; an infinity in x or scale leaves infinities where the formula has them.", "9.19 gives NaN in spatial modes.", "The formula.", subjects=_S,
        cases=(f"{_TRAINING}_training_special_values?SPATIAL*", "every_operation/test_infinite_operands?BatchNormalizationForwardTraining?",
               "normalization_batch_fused/test_fused_special_values*"), says=("wrong *",),
    ),
    Difference(
        "V-normalization-nonfinite", "cudnnLRNCrossChannelForward",
        ("cudnnLRNCrossChannelForward/c01", "cudnnLRNCrossChannelBackward/c01", "cudnnDivisiveNormalizationForward/c01", "cudnnSetLRNDescriptor/c04"),
        "The formula; windows end at the edges.", "9.19 spreads a NaN or an infinity over channels and positions outside of its windows.",
        "The formula.", subjects=_S,
        cases=("every_operation/test_infinite_operands?LRNCrossChannel*", "every_operation/test_infinite_operands?DivisiveNormalization*", f"{_LRN}_special_values*", f"{_DIVISIVE}_special_values*", f"{_LRN}_there_are_no_channels_beyond_the_edges*"),
        says=("wrong dx: *", "wrong y: *"),
    ),
    Difference(
        "V-normalization-parameters", "cudnnSetLRNDescriptor", ("cudnnSetLRNDescriptor/c03", "cudnnSetLRNDescriptor/c11", "cudnnSetLRNDescriptor/c13"),
        "alpha and k are what was set, cast to the data type.", "9.19 gives NaN with alpha -9, though the base stays positive, and computes HALF"
        " with the parameters as they were set.", "The formula.", subjects=_S,
        cases=(f"{_LRN}_parameters?*--9.0*", f"{_DIVISIVE}_parameters?*--9.0*", f"{_LRN}_parameters_are_cast_to_the_data_type*"),
        says=("wrong dx: *", "wrong y: *"),
    ),
    Difference(
        "V-normalization-power", "cudnnLRNCrossChannelBackward",
        ("cudnnLRNCrossChannelBackward/c02", "cudnnSetLRNDescriptor/c08", "cudnnDivisiveNormalizationBackward/c07"),
        "Names no precision.", "9.19 sums windows as differences and raises to powers with errors beyond those of the formula in the data's arithmetic.",
        "Within the derived bound.", subjects=_S,
        cases=(f"{_LRN}_windows*", f"{_LRN}_other_shapes?backward*", f"{_DIVISIVE}_differences_of_large_numbers*"),
        says=("wrong dx: *", "wrong y: *"),
    ),
    Difference(
        "V-lrn-arguments", "cudnnLRNCrossChannelBackward", ("cudnnLRNCrossChannelBackward/c10", "cudnnLRNCrossChannelBackward/c13"),
        "NULL is BAD_PARAM; tensors of five dimensions are packed.", "9.19 does not look at y, and takes gaps in the gradient.",
        "BAD_PARAM: the status list.", subjects=_S,
        cases=(f"{_LRN}_backward_null?y*", f"{_LRN}_five_dimensions_are_dhw_packed?backward*"),
        says=("succeeded, not BAD_PARAM by cudnnLRNCrossChannelBackward/*",
              "succeeded, not BAD_PARAM by cudnnStatus_t/c05"),
    ),
    Difference(
        "V-sampler-arguments", "cudnnSpatialTfSamplerForward",
        ("cudnnSpatialTfSamplerForward/c01", "cudnnSpatialTfSamplerForward/c09", "cudnnStatus_t/c05"),
        "Coordinates that are not numbers give NaN, and no others; tensors that do not fit are BAD_PARAM, other ranks NOT_SUPPORTED.",
        "9.19 gives 0 or NaN elsewhere, NaN where the column of a finite coordinate overflows, and SUCCESS.", "The formula; the status list.", subjects=_S,
        cases=("every_operation/test_infinite_operands?SpatialTfSamplerBackward?", *(f"spatial_transformer/test_{name}*" for name in (
            "coordinates_are_not_finite", "the_largest_coordinates*FLOAT?", "the_largest_coordinates*DOUBLE?",
            "dimensions_and_types_must_agree", "other_ranks"))),
        says=("succeeded, not BAD_PARAM by cudnnStatus_t/c05",
              "succeeded, not NOT_SUPPORTED by cudnnSpatialTfSamplerForward/c09", "wrong dgrid: *", "wrong dx: *", "wrong y: *"),
    ),
    Difference(
        "V-infinite-factors", "cudnnPoolingBackward",
        ("cudnnPoolingBackward/c01", "cudnnConvolutionForward/c02", "cudnnConvolutionBackwardData/c02", "cudnnBatchNormalizationForwardTraining/c01"),
        "dstValue = alpha * result + beta * priorDstValue, also with an infinite factor.",
        "9.19 leaves out results that are zero in scattered gradients, takes the largest finite number for an infinity after the transform of Winograd, and"
        " gives NaN where infinities meet inside of its kernels.", "IEEE 754 (D031).", subjects=_S,
        cases=tuple(f"every_operation/test_infinite_factors?*-{name}?" for name in (
            "PoolingBackward", "DivisiveNormalizationForward", "BatchNormalizationForwardTraining", "ConvolutionForward-WINOGRAD_NONFUSED",
            "ConvolutionBackwardData-0", "SpatialTfSamplerBackward")),
        says=("wrong dx: *", "wrong y: *"),
    ),
    Difference(
        "V-activation-ranks", "cudnnActivationForward", ("cudnnActivationForward/c09",), "Packed tensors of more than five dimensions are activated.",
        "9.19 answers NOT_SUPPORTED.", "Computed.", subjects=_S, cases=("activation/test_forward_beyond_five_dimensions*",),
        says=("cudnnActivationForward NOT_SUPPORTED",),
    ),
    Difference(
        "V-rnn-data-sequences", "cudnnSetRNNDataDescriptor", ("cudnnSetRNNDataDescriptor/c04", "cudnnSetRNNDataDescriptor/c14"),
        "Lengths are 0 to maxSeqLength; types other than HALF, FLOAT and DOUBLE are NOT_SUPPORTED.",
        "9.19 refuses a length of 0 and lengths that rise, in packed layouts, with BAD_PARAM, and accepts BFLOAT16.", "As it says.", subjects=_S,
        cases=("rnn_data/test_packed_and_padded*", "rnn_data/test_round_trip*PACKED?", "rnn_data/test_wrong_arguments*"),
        says=("cudnnSetRNNDataDescriptor BAD_PARAM",
              "succeeded, not NOT_SUPPORTED by cudnnSetRNNDataDescriptor/c14"),
    ),
    Difference(
        "V-rnn-combinations", "cudnnSetRNNDescriptor_v8", ("cudnnSetRNNDescriptor_v8/c34", "cudnnGetRNNWeightParams/c20"),
        "Combinations that are not supported are NOT_SUPPORTED, layers that a network does not have BAD_PARAM.", "9.19 answers SUCCESS.",
        "The status lists.", subjects=_S,
        cases=("rnn_descriptors/test_combinations*", "rnn_weights/test_weight_space_refusals*"),
        says=("succeeded, not BAD_PARAM by cudnnGetRNNWeightParams/c20",
              "succeeded, not NOT_SUPPORTED by cudnnSetRNNDescriptor_v8/c34"),
    ),
])  # fmt: skip
