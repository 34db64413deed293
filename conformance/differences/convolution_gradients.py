"""Lists where NVIDIA's library and the document disagree in the gradients of convolutions; docs/errata.md decides
each."""

from __future__ import annotations

from .recorded_calls import both, has, of_type
from .table import Difference, Disagreement, declare

_D = "cudnnConvolutionBackwardData"
_F = "cudnnConvolutionBackwardFilter"
_G = "cudnnGetFoldedConvBackwardDataDescriptors"

declare([
    Difference(
        "V-data-gradient-half", _D, (f"{_D}/c01", f"{_D}/c11"), "Names no precision of the sums; convDesc computes in FLOAT.",
        "ALGO_0 adds what the taps contribute in the 16-bit type.", "Summed in FLOAT and rounded once.",
        cases=("convolution_backward_data/test_*_ALGO_0*HALF*", "convolution_backward_data/test_*_ALGO_0*BFLOAT16*",
               "convolution_backward_data/test_cancellation*HALF*", "convolution_backward_data/test_groups_with_dilation_in_half*",
               "convolution_backward_data/test_groups?PSEUDO_HALF-*ALGO_0*", "convolution_backward_data/test_3d?CUDNN_TENSOR_NCHW-PSEUDO_*"),
        subjects=("vendor-9*", "recorded-*"),
        recorded=(
            Disagreement(
                "outputs", (_D,), when=both(has("algo", "CUDNN_CONVOLUTION_BWD_DATA_ALGO_0"), of_type("HALF", "BFLOAT16")),
            ),
        ),
        says=("wrong dx: infinite, other numbers", "wrong dx: other numbers"),
    ),
    Difference(
        "V-data-gradient-statuses", _D, (f"{_D}/c26", f"{_D}/c27", f"{_D}/c30", f"{_D}/c31", f"{_D}/c32"),
        "Data types that differ and channels that do not fit are BAD_PARAM; output channels that the groups do not divide and 6 dimensions are NOT_SUPPORTED.",
        "NOT_SUPPORTED, with two groups SUCCESS; BAD_PARAM, NOT_INITIALIZED.", "The status lists.",
        cases=tuple(f"convolution_backward_data/test_{name}*" for name in (
            "data_types_must_agree", "groups_must_divide", "other_ranks_are_not_supported?4", "channels_must_agree?4-2")),
        subjects=("vendor-9*",),
        says=("cudnnConvolutionBackwardData BAD_PARAM, not NOT_SUPPORTED",
              "cudnnConvolutionBackwardData NOT_INITIALIZED, not NOT_SUPPORTED",
              "cudnnConvolutionBackwardData NOT_SUPPORTED, not BAD_PARAM", "cudnnSetFilterNdDescriptor BAD_PARAM",
              "succeeded, not BAD_PARAM by cudnnConvolutionBackwardData/c27"),
    ),
    Difference(
        "V-filter-gradient-half", _F, (f"{_F}/c01", f"{_F}/c14"), "Names no precision of the sums; convDesc computes in FLOAT.",
        "ALGO_0 adds partial sums in the 16-bit type.", "Summed in FLOAT and rounded once.",
        cases=("convolution_backward_filter/test_*_ALGO_0*HALF*", "convolution_backward_filter/test_*_ALGO_0*BFLOAT16*",
               "convolution_backward_filter/test_cancellation*HALF*", "convolution_backward_filter/test_groups_with_dilation_in_half*",
               "convolution_backward_filter/test_3d?CUDNN_TENSOR_NCHW-PSEUDO_*"),
        subjects=("vendor-9*", "recorded-*"),
        recorded=(
            Disagreement(
                "outputs", (_F,), when=both(has("algo", "CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0"), of_type("HALF", "BFLOAT16")),
            ),
        ),
        says=("wrong dw: other numbers",),
    ),
    Difference(
        "V-filter-gradient-tables", _F, (f"{_F}/c13", f"{_F}/c49"),
        "Tables 36 to 39 are exhaustive: ALGO_1 takes no TRUE_HALF_CONFIG in NCHW; x and dw in NHWC go with any dy.",
        "ALGO_1 computes that, ALGO_3 BFLOAT16, volumes of FLOAT and DOUBLE and FFT_TILING more sizes than the tables have; dy in NCHW beside NHWC is NOT_SUPPORTED.",
        "The tables.", subjects=("vendor-9*", "recorded-*"),
        cases=tuple(f"convolution_backward_filter/test_{name}" for name in (
            "formula*_ALGO_1-TRUE_HALF*", "formula*_ALGO_3-PSEUDO_BFLOAT16*", "3d?CUDNN_TENSOR_NCHW-FLOAT?", "3d?CUDNN_TENSOR_NCHW-DOUBLE?",
            "limits_of_the_tables?tiling columns?", "layouts_of_x_and_dw*")),
        recorded=(Disagreement(functions=(_F,), ours="NOT_SUPPORTED", theirs="SUCCESS", clauses=(f"{_F}/c49",)),),
        says=("cudnnConvolutionBackwardFilter BAD_PARAM, not NOT_SUPPORTED",
              "cudnnGetConvolutionBackwardFilterWorkspaceSize NOT_SUPPORTED",
              "succeeded, not NOT_SUPPORTED by cudnnConvolutionBackwardFilter/c49"),
    ),
    Difference(
        "V-filter-gradient-statuses", _F, (f"{_F}/c44", f"{_F}/c45", f"{_F}/c48"),
        "Data types that differ and channels that do not fit are BAD_PARAM, 6 dimensions NOT_SUPPORTED.", "NOT_SUPPORTED, with two groups SUCCESS; NOT_INITIALIZED.",
        "The status list.", subjects=("vendor-9*",),
        cases=tuple(f"convolution_backward_filter/test_{name}*" for name in (
            "data_types_must_agree", "other_ranks_are_not_supported?4", "channels_must_agree?4-2")),
        says=("cudnnConvolutionBackwardFilter NOT_INITIALIZED, not NOT_SUPPORTED",
              "cudnnConvolutionBackwardFilter NOT_SUPPORTED, not BAD_PARAM",
              "cudnnSetFilterNdDescriptor BAD_PARAM",
              "succeeded, not BAD_PARAM by cudnnConvolutionBackwardFilter/c45"),
    ),
    Difference(
        "V-data-gradient-winograd", _D, (f"{_D}/c15",), "CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD is an algorithm.", "9.19 answers NOT_SUPPORTED on compute capability 9.0.", "Computed.",
        cases=("convolution_backward_data/test_*BWD_DATA_ALGO_WINOGRAD[]-]*", "convolution_backward_data/test_limits_of_the_tables?winograd *"), says=("cudnnGetConvolutionBackwardDataWorkspaceSize NOT_SUPPORTED",), subjects=("vendor-9*",),
    ),
    Difference(
        "V-data-gradient-tables", _D, (f"{_D}/c17", f"{_D}/c18", f"{_D}/c31"), "Tables 12 to 15 are exhaustive.", "9.19 takes volumes of TRUE_HALF, FLOAT and DOUBLE beyond them.",
        "NOT_SUPPORTED: the tables.", subjects=("vendor-9*",),
        cases=tuple(f"convolution_backward_data/test_3d?CUDNN_TENSOR_NCHW-{name}?" for name in ("TRUE_HALF", "FLOAT", "DOUBLE")),
        says=("cudnnConvolutionBackwardData BAD_PARAM, not NOT_SUPPORTED",
              "succeeded, not NOT_SUPPORTED by cudnnConvolutionBackwardData/c31"),
    ),
    Difference(
        "V-data-gradient-half-nhwc", _D, (f"{_D}/c01", f"{_D}/c10"), "Names no precision of the sums; convDesc computes in FLOAT.",
        "9.19 on tensor cores rounds to HALF what single taps contribute, and sums before they are blended: as many elements are wrong as a second rounding makes.",
        "Summed in FLOAT and rounded once.", says=("wrong dx: other numbers",), subjects=("vendor-9*",),
        cases=("convolution_backward_data/test_geometries_on_tensor_cores*",
               *(f"convolution_backward_data/test_{name}*-PSEUDO_HALF-CUDNN_TENSOR_NHWC?" for name in ("tensor_cores", "few_channels_on_tensor_cores"))),
        sometimes=(("convolution_backward_data/test_few_channels_on_tensor_cores*-PSEUDO_HALF-CUDNN_TENSOR_NCHW?", "suspect dx"),),
    ),
    Difference(
        "V-data-gradient-nonfinite", _D, (f"{_D}/c01",), "Zeros outside of dy are multiplied by the filter: zero times an infinity is NaN.", "9.19 leaves them out: the sum is an infinity or a number.",
        "NaN: the formula.", says=("wrong dx: infinite", "wrong dx: infinite, other numbers"), subjects=("vendor-9*",),
        cases=("every_operation/test_infinite_operands?ConvolutionBackwardData-0?", *(f"convolution_backward_data/test_cancellation_and_special_values?{name}?" for name in ("FLOAT", "DOUBLE"))),
    ),
    Difference(
        "V-gradient-winograd-5x5", _D, (f"{_D}/c16", f"{_F}/c18"), "The transform of Winograd is one way to compute the gradient.",
        "9.19 loses up to 0.1 of sums of whole numbers with filters of 5x5.", "As close to direct sums as float transforms of that size are.", says=("assertion *",), subjects=("vendor-9*",),
        cases=tuple(f"convolution_backward_{of}/test_transforms_beside_direct_sums?*WINOGRAD_NONFUSED*(6, 4, 5, 5)*" for of in ("data", "filter")),
    ),
    Difference(
        "V-folded-channels", _G, (f"{_G}/c04", f"{_G}/c05"), "Names no padding of channels.",
        "Pads the channels of dx until those that are folded are a multiple of 8; where they were not, D132 puts zeros elsewhere than"
        " unfolding expects them.", "Not padded where anything is folded (D251).",
        cases=("folded_convolution/test_what_is_described*", "folded_convolution/test_the_folded_gradient*"), subjects=("vendor-9*",),
        says=("assertion *",),
    ),
    Difference(
        "V-folded-groups", _G, (f"{_G}/c10",), "EXECUTION_FAILED where computing the folded descriptors failed.",
        "Describes folds of groups and of dilated filters that give another gradient.", "EXECUTION_FAILED (D251).",
        cases=("folded_convolution/test_what_cannot_be_folded*",), subjects=("vendor-9*",),
        says=("succeeded, not EXECUTION_FAILED by cudnnGetFoldedConvBackwardDataDescriptors/c10",),
    ),
])  # fmt: skip
