"""Lists differences between the document and NVIDIA's library that its own calls show; docs/errata.md decides each."""

from __future__ import annotations

from .recorded_calls import either, has, null_keeps, of_type, other_images, shares_memory
from .table import Difference, Disagreement, declare

declare([
    Difference(
        "V-log-channels", "cudnnSetCallback", ("cudnnSetCallback/c06", "cudnnSetCallback/c07", "cudnnSetCallback/c08"),
        "The error and warning channels are not yet functional.",
        "8.9.7 and 9.19 report errors and warnings through them; 9.19 keeps the error bit set.", "No function, as 8.0.3 says (D107).",
        cases=("library/test_error_and_warning_channels*", "library/test_mask_has_a_bit*", "library/test_callback_state*"),
        says=("assertion *",),
    ),
    Difference(
        "V-destroy-handle", "cudnnDestroy", ("cudnnDestroy/c05",), "NULL is BAD_PARAM.", "SUCCESS.", "BAD_PARAM (D036).",
        cases=("library/test_null_handle[[]cudnnDestroy*",),
        says=("succeeded, not BAD_PARAM by cudnnDestroy/c05",),
    ),
    Difference(
        "V-statuses", "cudnnGetErrorString", ("cudnnStatus_t/c01", "cudnnGetErrorString/c01", "cudnnGetProperty/c02"),
        "The statuses of 8.0.3.", "9.x has other numbers and families: INVALID_VALUE became BAD_PARAM, ALLOC_FAILED EXECUTION_FAILED.",
        "The numbers of 8.0.3.", cases=("library/test_error_strings*", "library/test_property_type_is_checked*"),
        says=("assertion *", "cudnnGetProperty BAD_PARAM, not INVALID_VALUE"),
    ),
    Difference(
        "V-filter-int32", "cudnnSetFilter4dDescriptor", ("cudnnSetFilter4dDescriptor/c09",), "Any valid dataType.",
        "INT32 is BAD_PARAM.", "INT32 is a valid type (D113).",
        cases=("filter_descriptors/test_*INT32*", "transform/test_copy?CUDNN_DATA_INT32-*-filter?"), says=("cudnnSetFilter*Descriptor BAD_PARAM",),
        recorded=(Disagreement(functions=("cudnnSetFilter*",), ours="SUCCESS", theirs="BAD_PARAM", when=of_type("INT32")),),
    ),
    Difference(
        "V-filter-vectors", "cudnnSetFilter4dDescriptor", ("cudnnTensorFormat_t/c07", "cudnnTensorFormat_t/c08"),
        "Channels come in vectors of 4 or 32.", "Numbers of channels that are not multiples are accepted and rounded down.", "BAD_PARAM (D113).",
        cases=("filter_descriptors/test_channels_come_in_whole_vectors*",),
        recorded=(Disagreement(ours="BAD_PARAM", theirs="SUCCESS", clauses=("cudnnTensorFormat_t/c0[78]",), functions=("cudnn*Filter*",)),),
        says=("succeeded, not BAD_PARAM by cudnnTensorFormat_t/*",),
    ),
    Difference(
        "V-filter-size", "cudnnGetFilterSizeInBytes", ("cudnnGetFilterSizeInBytes/c01", "cudnnGetFilterSizeInBytes/c04"),
        "The number of bytes required to hold the filter.", "8.9.7 answers SUCCESS and the number modulo 2^64, 0 for 2^30 x 2^30 x 4 floats.",
        "BAD_PARAM: such a descriptor describes no memory (D069).", cases=("filter_descriptors/test_sizes_exceed_size_t*",),
        recorded=(Disagreement(ours="BAD_PARAM", theirs="SUCCESS", clauses=("cudnnGetFilterSizeInBytes/c04",)),),
        says=("succeeded, not BAD_PARAM by cudnnGetFilterSizeInBytes/c04",),
    ),
    Difference(
        "V-pooling-rank", "cudnnGetPoolingNdDescriptor", ("cudnnGetPoolingNdDescriptor/c11",),
        "nbDimsRequested up to CUDNN_DIM_MAX.", "NOT_SUPPORTED from CUDNN_DIM_MAX - 1 on.", "CUDNN_DIM_MAX (D073).",
        cases=("pooling/test_nd_descriptor_asked_for_dim_max*",),
        says=("cudnnGetPoolingNdDescriptor NOT_SUPPORTED",),
    ),
    Difference(
        "V-pooling-vectors", "cudnnPoolingForward", ("cudnnPoolingForward/c02",), "Every tensor format.",
        "9.19 fails with INTERNAL_ERROR for some vectorised tensors.", "Computed (D092).", cases=("pooling/test_forward_vectors*",),
        says=("cudnnPoolingForward INTERNAL_ERROR",),
    ),
    Difference(
        "V-pooling-negative-padding", "cudnnPoolingBackward", ("cudnnPoolingBackward/c01",), "The gradient of the pooling.",
        "9.19 adds to elements that no window covers when the padding is negative.", "The gradient.",
        cases=("pooling/test_backward_formula*negative-padding*",),
        says=("wrong dx: other numbers",),
    ),
    Difference(
        "V-pooling-infinite-gradient", "cudnnPoolingBackward", ("cudnnPoolingBackward/c01", "cudnnSetPooling2dDescriptor/c03"),
        "The gradient goes to the maximum of each window.", "9.19 drops it in NHWC where all elements of a window are -infinity.",
        "To the first maximum, whatever its value.", cases=("pooling/test_gradient_of_infinite_maxima*",), subjects=("vendor-9*",),
        says=("wrong dx: as before the call",),
    ),
    Difference(
        "V-transform-null", "cudnnSetTensorTransformDescriptor", ("cudnnSetTensorTransformDescriptor/c05",),
        "NULL means no padding and no folding.", "NULL keeps what an earlier call has set; of a fresh descriptor it reads 0.", "Zeros (D076).",
        cases=("transform/test_null_arrays_replace_what_was_set*",),
        recorded=(
            Disagreement(
                "result", ("cudnnGetTensorTransformDescriptor",), expects=null_keeps,
                when=either(has("padBeforeA", None), has("padAfterA", None), has("foldA", None)),
            ),
        ),
        says=("assertion *",),
    ),
    Difference(
        "V-transform-rank-2", "cudnnSetTensorTransformDescriptor", ("cudnnSetTensorTransformDescriptor/c15",),
        "nbDims of at most 2 is BAD_PARAM.", "9.19 takes 2.", "BAD_PARAM: the status list.",
        cases=("transform/test_lowest_rank_of_a_transform[[]2*",), subjects=("vendor-9*", "recorded-*"),
        recorded=(
            Disagreement(ours="BAD_PARAM", theirs="SUCCESS", clauses=("cudnnSetTensorTransformDescriptor/c15",), when=has("nbDims", 2)),
        ),
        says=("succeeded, not BAD_PARAM by cudnnSetTensorTransformDescriptor/c15",),
    ),
    Difference(
        "V-transform-direction", "cudnnSetTensorTransformDescriptor", ("cudnnSetTensorTransformDescriptor/c14",),
        "An invalid direction is BAD_PARAM.", "9.19 takes a direction above 1.", "BAD_PARAM: the status list.",
        cases=("transform/test_invalid_directions*",), subjects=("vendor-9*", "recorded-*"),
        recorded=(Disagreement(ours="BAD_PARAM", theirs="SUCCESS", clauses=("cudnnSetTensorTransformDescriptor/c14",)),),
        says=("succeeded, not BAD_PARAM by cudnnSetTensorTransformDescriptor/c14",),
    ),
    Difference(
        "V-pooling-other-images", "cudnnPoolingBackward", ("cudnnPoolingBackward/c01",),
        "y is the output of the forward call for x.", "Other numbers of images or channels in y than in x are computed, beyond the end of a tensor.",
        "BAD_PARAM: memory safety.",
        recorded=(
            Disagreement(functions=("cudnnPoolingBackward",), ours="BAD_PARAM", theirs="SUCCESS", clauses=("cudnnStatus_t/c05",), when=other_images),
        ),
    ),
    Difference(
        "V-layouts", "cudnnSoftmaxForward", ("cudnnSoftmaxForward/c02", "cudnnSoftmaxBackward/c04", "cudnnActivationBackward/c04"),
        "Every tensor format for 4 and 5 dimensions.", "9.19 answers NOT_SUPPORTED for some strided layouts.", "Every layout.",
        cases=("softmax/test_*_takes_every_layout*", "activation/test_backward_takes_every_layout*", "transform/test_copy*", "transform/test_formats*"),
        says=("cudnn* NOT_SUPPORTED",),
    ),
    Difference(
        "V-softmax-strides", "cudnnSoftmaxForward", ("cudnnSoftmaxForward/c02", "cudnnSoftmaxBackward/c04"), "Every tensor format for 4 and 5 dimensions.",
        "9.19 computes with other strides than some layouts have, and writes into gaps and beyond the end of tensors there.", "By the strides.", subjects=("vendor-9*",),
        cases=("softmax/test_forward_takes_every_layout*-CUDNN_SOFTMAX_MODE_INSTANCE-*", "softmax/test_forward_takes_every_layout*-gaps-*",
               "softmax/test_forward_takes_every_layout*-odd-*", "softmax/test_backward_takes_every_layout*"), says=("wrong y: *", "y: bytes *", "wrong dx: *", "dx: bytes *"),
    ),
    Difference(
        "V-softmax-log", "cudnnSoftmaxForward", ("cudnnSoftmaxAlgorithm_t/c03",), "x - max - log sum exp(x - max).",
        "9.19 adds the maximum and the logarithm first in CHANNEL mode: with activations of 2e38 the logarithms are 0.", "The maximum is subtracted first (D133).", subjects=("vendor-9*",),
        cases=("softmax/test_subtracting_the_maximum_avoids_overflow?CUDNN_SOFTMAX_LOG-CUDNN_SOFTMAX_MODE_CHANNEL-2e+38?",), says=("wrong y: zero",),
    ),
    Difference(
        "V-overlap", "cudnnTransformTensor", ("cudnnTransformTensor/c03", "cudnnTransformFilter/c05", "cudnnSetTensor4dDescriptorEx/c04"),
        "Source and destination may not overlap; routines refuse strides they do not handle.",
        "Overlapping memory and outputs whose strides overlap are not noticed.", "Refused (D127).",
        cases=("*/test_*overlap*", "transform/test_*in_place*", "softmax/test_in_place_needs_equal_strides*", "convolution/test_in_place*",
               "convolution_backward_data/test_in_place*", "convolution_backward_filter/test_in_place*"),
        says=("succeeded, not *", "cudnn* BAD_PARAM, not NOT_SUPPORTED", "cudnn* NOT_SUPPORTED, not BAD_PARAM"),
        recorded=(
            Disagreement(
                ours="BAD_PARAM", theirs="SUCCESS",
                clauses=("cudnnTransformTensor/c03", "cudnnTransformTensorEx/c05", "cudnnTransformFilter/c05", "cudnnSoftmaxBackward/c03"),
            ),
            Disagreement(ours="NOT_SUPPORTED", theirs="SUCCESS", clauses=("cudnnSetTensor4dDescriptorEx/c04",)),
            Disagreement(functions=("cudnnConvolution*",), ours="NOT_SUPPORTED", theirs="BAD_PARAM", clauses=("cudnnSetTensor4dDescriptorEx/c04",)),
            Disagreement(
                functions=("cudnnConvolution*",), ours="BAD_PARAM", theirs="NOT_SUPPORTED", clauses=("cudnnStatus_t/c05",), when=shares_memory,
            ),
        ),
    ),
    Difference(
        "V-double-factors", "cudnnTransformTensorEx", ("cudnnTransformTensorEx/c09", "cudnnTransformFilter/c09"),
        "alpha and beta follow the scaling rule: double beside DOUBLE.", "9.19 reads floats when the types of source and destination differ.",
        "double beside DOUBLE.", cases=("transform/test_conversion*DOUBLE*",),
        says=("wrong destData: as before the call, zero", "wrong destData: other numbers"),
    ),
    Difference(
        "V-transform-negative", "cudnnTransformTensorEx", ("cudnnSetTensorTransformDescriptor/c04", "cudnnSetTensorTransformDescriptor/c06"),
        "Padding is added before and after each dimension; negative values are not excluded.",
        "9.19 copies something else for negative padding, and for padding with folding.", "Cropping; padding before folding (D132).",
        cases=("transform/test_padding*", "transform/test_folding_and_padding*", "transform/test_strided_transform*",
               "transform/test_transforms_of_other_ranks*unfold and pad-3*"),
        says=("wrong destData: *",),
    ),
    Difference(
        "V-transform-ranks", "cudnnTransformTensorEx", ("cudnnTransformTensorEx/c01", "cudnnTransformFilter/c01"),
        "Names no limit but CUDNN_DIM_MAX.", "9.19 answers NOT_SUPPORTED for 6 dimensions.", "Computed.",
        cases=("transform/test_transforms_of_other_ranks*-6-*",), subjects=("vendor-9*",),
        says=("cudnnTransformFilter NOT_SUPPORTED", "cudnnTransformTensorEx NOT_SUPPORTED"),
    ),
    Difference(
        "V-reduce-widths", "cudnnReduceTensor", ("cudnnReduceTensor/c08", "cudnnIndicesType_t/c01"),
        "Four widths of indices, of which only 32 bits are currently supported.", "Every width is accepted, 32 bits are written.",
        "Each width holds its own integers (D095).",
        cases=("reduce_tensor/test_indices_of_every_width*", "reduce_tensor/test_indices_beyond_their_width*", "reduce_tensor/test_size_of_indices*"),
        says=("assertion *", "cudnnReduceTensor BAD_PARAM", "wrong indices: other numbers"),
    ),
    Difference(
        "V-im2col-order", "cudnnIm2Col", ("cudnnIm2Col/c02", "cudnnIm2Col/c06"),
        "A has a row for each output position and is stored HW packed: columns contiguous.",
        "Stores A transposed: rows (c, r, s), columns (n, p, q).", "The document (D252).",
        cases=("convolution_filters/test_im2col*", "every_operation/test_infinite_operands?Im2Col?"), says=("wrong colBuffer: *", "assertion *"), recorded=(Disagreement("outputs", ("cudnnIm2Col",)),),
    ),
    Difference(
        "V-im2col-checks", "cudnnIm2Col", ("cudnnIm2Col/c08", "cudnnGetConvolutionNdForwardOutputDim/c10"), "Vectors are NOT_SUPPORTED, descriptors that do not fit BAD_PARAM.",
        "9.19 answers SUCCESS.", "The status list.", subjects=("vendor-9*",),
        cases=("convolution_filters/test_im2col_refuses_what_does_not_fit*", "convolution_filters/test_im2col_of_vectors*"), says=("succeeded, not *",),
    ),
    Difference(
        "V-bias-identity", "cudnnConvolutionBiasActivationForward", ("cudnnConvolutionBiasActivationForward/c04",),
        "IDENTITY is enabled with IMPLICIT_PRECOMP_GEMM only.", "Every algorithm takes it.", "NOT_SUPPORTED: the section says must.",
        cases=("convolution_bias_activation/test_identity*",),
        recorded=(Disagreement(ours="NOT_SUPPORTED", theirs="SUCCESS", clauses=("cudnnConvolutionBiasActivationForward/c04",)),),
        says=("cudnnConvolutionBiasActivationForward BAD_PARAM, not NOT_SUPPORTED",
              "succeeded, not NOT_SUPPORTED by cudnnConvolutionBiasActivationForward/c04"),
    ),
    Difference(
        "V-bias-true-half", "cudnnConvolutionBiasActivationForward", ("cudnnConvolutionBiasActivationForward/c10",),
        "Table 16 has no HALF with HALF computation.", "Computed.", "NOT_SUPPORTED: the table.",
        cases=("convolution_bias_activation/test_true_half*",),
        recorded=(Disagreement(ours="NOT_SUPPORTED", theirs="SUCCESS", clauses=("cudnnConvolutionBiasActivationForward/c10",)),),
        says=("succeeded, not NOT_SUPPORTED by cudnnConvolutionBiasActivationForward/c10",),
    ),
    Difference(
        "V-convolution-tables", "cudnnConvolutionForward", ("cudnnConvolutionForward/c58",), "Tables 18 to 22 are exhaustive.",
        "Bias-activation takes any layout with any algorithm; INT8x4 to FLOAT takes NHWC output; PRECOMP and GEMM take dilation; INT8x32 takes"
        " IMPLICIT_GEMM and dilation; GEMM takes BFLOAT16.", "NOT_SUPPORTED: the tables (D225 to D231).",
        cases=("convolution_support/*", "convolution_bias_activation/test_statuses*", "convolution/test_formula*_GEMM-PSEUDO_BFLOAT16*"),
        recorded=(Disagreement(functions=("cudnnConvolution*Forward",), ours="NOT_SUPPORTED", theirs="SUCCESS", clauses=("cudnnConvolutionForward/c58",)),),
        says=("cudnnConvolutionBiasActivationForward NOT_SUPPORTED, not BAD_PARAM",
              "cudnnConvolutionForward BAD_PARAM, not NOT_SUPPORTED",
              "cudnnGetConvolutionForwardWorkspaceSize NOT_SUPPORTED",
              "succeeded, not NOT_SUPPORTED by cudnnConvolutionForward/c58"),
    ),
    Difference(
        "V-half-infinities", "cudnnConvolutionForward", ("cudnnConvolutionForward/c02",), "alpha and beta blend the result with the prior value.",
        "9.19 in HALF arithmetic with alpha 0.5 and beta -2: NaN in one element whose exact value is infinity; the cause is not known.", "Infinity.",
        cases=("convolution/test_few_products*TRUE_HALF-CUDNN_TENSOR_NCHW-0.5--2.0*",), subjects=("vendor-9*",),
        says=("wrong y: NaN",),
    ),
    Difference(
        "V-winograd-fused", "cudnnConvolutionForward", ("cudnnConvolutionFwdAlgo_t/c06",), "CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD is an algorithm.",
        "9.19 answers NOT_SUPPORTED on compute capability 9.0.", "Computed.",
        cases=("convolution/test_*_WINOGRAD]", "convolution/test_*_WINOGRAD-*", "convolution_bias_activation/test_*_WINOGRAD]"), subjects=("vendor-9*",),
        says=("cudnnGetConvolutionForwardWorkspaceSize NOT_SUPPORTED",),
    ),
    Difference(
        "V-workspace-size", "cudnnConvolutionForward", ("cudnnConvolutionForward/c06", "cudnnConvolutionBiasActivationForward/c09"),
        "A workspace smaller than the size that was queried is BAD_PARAM.",
        "9.19 computes with less than it asked for, by IMPLICIT_PRECOMP_GEMM.", "BAD_PARAM: the status list.",
        cases=("convolution/test_workspace?*_IMPLICIT_PRECOMP_GEMM?", "convolution_bias_activation/test_workspace?*_IMPLICIT_PRECOMP_GEMM?"), says=("succeeded, not BAD_PARAM by *",), subjects=("vendor-9*",),
    ),
    Difference(
        "V-get2d-fresh", "cudnnGetConvolution2dDescriptor", ("cudnnGetConvolution2dDescriptor/c07",), "Must be initialised as 2-D.",
        "A fresh descriptor reads as zeros.", "BAD_PARAM.", cases=("convolution_descriptors/test_get_2d_needs_a_2d_convolution*",),
        says=("succeeded, not BAD_PARAM by cudnnGetConvolution2dDescriptor/c07",),
    ),
    Difference(
        "V-convolution-statuses", "cudnnConvolutionForward",
        ("cudnnConvolutionForward/c53", "cudnnConvolutionForward/c57", "cudnnGetConvolutionForwardAlgorithm_v7/c13"),
        "The statuses of the list.",
        "9.19 answers another of BAD_PARAM and NOT_SUPPORTED, NOT_INITIALIZED for 6 dimensions, and SUCCESS for a count below 1, for channels"
        " of w that do not fit the groups, and for filters of another type in the ranking.", "The status list.",
        cases=("convolution/test_output_of_another_size*", "convolution_algorithms/test_sizes_that*", "convolution/test_data_types_must_match*",
               "convolution_algorithms/test_at_least_one_result*", "convolution_algorithms/test_the_workspace_decides*",
               "convolution_algorithms/test_descriptors_must_fit*", "convolution/test_channels_must_agree*",
               "convolution/test_other_ranks_are_not_supported*"),
        says=("assertion *", "cudnnConvolutionForward BAD_PARAM, not NOT_SUPPORTED",
              "cudnnConvolutionForward NOT_INITIALIZED, not NOT_SUPPORTED",
              "cudnnConvolutionForward NOT_SUPPORTED, not BAD_PARAM",
              "cudnnGetConvolutionForwardWorkspaceSize BAD_PARAM, not NOT_SUPPORTED",
              "cudnnGetConvolutionForwardWorkspaceSize NOT_SUPPORTED, not BAD_PARAM",
              "succeeded, not BAD_PARAM by cudnnConvolutionForward/*",
              "succeeded, not BAD_PARAM by cudnnGetConvolutionForwardAlgorithm_v7/*",
              "succeeded, not BAD_PARAM by cudnnGetConvolutionForwardWorkspaceSize/c09"),
    ),
    Difference(
        "V-bias-checks", "cudnnConvolutionBiasActivationForward",
        ("cudnnConvolutionBiasActivationForward/c30", "cudnnConvolutionBiasActivationForward/c31", "cudnnConvolutionBiasActivationForward/c33"),
        "The conditions of the list.", "Accepted, or another status for rank 3; with IMPLICIT_PRECOMP_GEMM the ReLU keeps NaN.", "The status list.",
        cases=("convolution_bias_activation/test_nan_propagation*", "convolution_bias_activation/test_bias_must_fit*", "convolution_bias_activation/test_relu_turns_nan*"),
        says=("cudnnConvolutionBiasActivationForward BAD_PARAM, not NOT_SUPPORTED",
              "succeeded, not NOT_SUPPORTED by cudnnConvolutionBiasActivationForward/*"),
    ),
    Difference(
        "V-reorder-checks", "cudnnReorderFilterAndBias", ("cudnnReorderFilterAndBias/c06",),
        "Filters of INT8x32 whose K is a multiple of 32; a reorderBias below 1 leaves the bias alone.",
        "Other K and reorder types are accepted; -1 reorders.", "Refused (D253).",
        cases=("convolution_filters/test_the_bias_is_left_alone*", "convolution_filters/test_other_filters*", "convolution_filters/test_reorder_type*"),
        says=("assertion *", "cudnnReorderFilterAndBias BAD_PARAM, not NOT_SUPPORTED",
              "succeeded, not BAD_PARAM by cudnnReorderType_t/c01",
              "succeeded, not NOT_SUPPORTED by cudnnReorderFilterAndBias/c03"),
    ),
    Difference(
        "V-reorder-bias", "cudnnReorderFilterAndBias", ("cudnnReorderFilterAndBias/c06", "cudnnReorderFilterAndBias/c08"),
        "The bias has K floats.",
        "9.19 copies K times the size of the filter's type, 32 bytes: beyond the end of the bias, an error of the CUDA runtime that the next"
        " call reports again.", "K floats.",
        cases=("convolution_filters/test_reorder[[]*", "convolution_filters/test_a_reordered_filter*"), subjects=("vendor-9*",),
        says=("cudnnReorderFilterAndBias EXECUTION_FAILED, EXECUTION_FAILED_CUDART",),
    ),
])  # fmt: skip
