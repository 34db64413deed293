"""Where NVIDIA's library and the document disagree in the gradients of convolutions, each decided in docs/errata.md under its id."""

from __future__ import annotations

from .recorded_calls import both, has, of_type
from .table import Difference, Disagreement, declare

_D, _F = "cudnnConvolutionBackwardData", "cudnnConvolutionBackwardFilter"
_G = "cudnnGetFoldedConvBackwardDataDescriptors"

declare([
    Difference(
        "V-data-gradient-half", _D, (f"{_D}/c01", f"{_D}/c11"), "Names no precision of the sums; convDesc computes in FLOAT.",
        "ALGO_0 adds what the taps contribute in the 16-bit type.", "Summed in FLOAT and rounded once.",
        cases=("convolution_backward_data/test_*_ALGO_0*HALF*", "convolution_backward_data/test_*_ALGO_0*BFLOAT16*",
               "convolution_backward_data/test_cancellation*HALF*", "convolution_backward_data/test_groups_with_dilation_in_half*"),
        subjects=("vendor-9*", "recorded-*"),
        recorded=(
            Disagreement(
                "outputs", (_D,), when=both(has("algo", "CUDNN_CONVOLUTION_BWD_DATA_ALGO_0"), of_type("HALF", "BFLOAT16")),
            ),
        ),
    ),
    Difference(
        "V-data-gradient-statuses", _D, (f"{_D}/c26", f"{_D}/c31", f"{_D}/c32"),
        "Data types that differ are BAD_PARAM; output channels that the groups do not divide are NOT_SUPPORTED.",
        "NOT_SUPPORTED; BAD_PARAM.", "The status lists.",
        cases=("convolution_backward_data/test_data_types_must_agree*", "convolution_backward_data/test_groups_must_divide*"),
        subjects=("vendor-9*",),
    ),
    Difference(
        "V-filter-gradient-half", _F, (f"{_F}/c01", f"{_F}/c14"), "Names no precision of the sums; convDesc computes in FLOAT.",
        "ALGO_0 adds partial sums in the 16-bit type.", "Summed in FLOAT and rounded once.",
        cases=("convolution_backward_filter/test_*_ALGO_0*HALF*", "convolution_backward_filter/test_*_ALGO_0*BFLOAT16*",
               "convolution_backward_filter/test_cancellation*HALF*", "convolution_backward_filter/test_groups_with_dilation_in_half*"),
        subjects=("vendor-9*", "recorded-*"),
        recorded=(
            Disagreement(
                "outputs", (_F,), when=both(has("algo", "CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0"), of_type("HALF", "BFLOAT16")),
            ),
        ),
    ),
    Difference(
        "V-filter-gradient-tables", _F, (f"{_F}/c49",), "Tables 36 to 39 are exhaustive: ALGO_1 takes no TRUE_HALF_CONFIG in NCHW.",
        "ALGO_1 computes it.", "NOT_SUPPORTED: the tables.",
        cases=("convolution_backward_filter/test_formula*_ALGO_1-TRUE_HALF*",), subjects=("vendor-9*", "recorded-*"),
        recorded=(Disagreement(functions=(_F,), ours="NOT_SUPPORTED", theirs="SUCCESS", clauses=(f"{_F}/c49",)),),
    ),
    Difference(
        "V-filter-gradient-statuses", _F, (f"{_F}/c44",), "Data types that differ are BAD_PARAM.", "NOT_SUPPORTED.", "The status list.",
        cases=("convolution_backward_filter/test_data_types_must_agree*",), subjects=("vendor-9*",),
    ),
    Difference(
        "V-folded-channels", _G, (f"{_G}/c04", f"{_G}/c05"), "Names no padding of channels.",
        "Pads the channels of dx until those that are folded are a multiple of 8; where they were not, D132 puts zeros elsewhere than"
        " unfolding expects them.", "Not padded where anything is folded (D251).",
        cases=("folded_convolution/test_what_is_described*", "folded_convolution/test_the_folded_gradient*"), subjects=("vendor-9*",),
    ),
    Difference(
        "V-folded-groups", _G, (f"{_G}/c10",), "EXECUTION_FAILED where computing the folded descriptors failed.",
        "Describes folds of groups and of dilated filters that give another gradient.", "EXECUTION_FAILED (D251).",
        cases=("folded_convolution/test_what_cannot_be_folded*",), subjects=("vendor-9*",),
    ),
])  # fmt: skip
