"""Lists where NVIDIA's library and the document disagree in the normalizations; docs/errata.md decides each under
its id."""

from __future__ import annotations

from .recorded_calls import has, of_type
from .table import Difference, Disagreement, declare

declare([
    Difference(
        "V-lrn-nan", "cudnnSetLRNDescriptor", ("cudnnSetLRNDescriptor/c17",), "lrnBeta and lrnK have lowest values.",
        "NaN passes.", "BAD_PARAM: NaN is in no range.",
        cases=("normalization_lrn/test_nan_is_in_no_range*",),
        recorded=(Disagreement(ours="BAD_PARAM", theirs="SUCCESS", clauses=("cudnnSetLRNDescriptor/c17",)),),
        says=("succeeded, not BAD_PARAM by cudnnSetLRNDescriptor/c17",),
    ),
    Difference(
        "V-lrn-rank", "cudnnLRNCrossChannelForward", ("cudnnLRNCrossChannelForward/c06", "cudnnLRNCrossChannelBackward/c04"),
        "Only 4 and 5 dimensions are supported.", "3 and 6 dimensions are computed.", "NOT_SUPPORTED (D080).",
        cases=("normalization_lrn/test_other_ranks*", "normalization_lrn/test_overlapping_strides*"),
        recorded=(
            Disagreement(
                ours="NOT_SUPPORTED", theirs="SUCCESS",
                clauses=("cudnnLRNCrossChannelForward/c06", "cudnnLRNCrossChannelBackward/c04"),
            ),
        ),
        says=("succeeded, not NOT_SUPPORTED by cudnnLRNCrossChannelForward/c06",),
    ),
    Difference(
        "V-lrn-statuses", "cudnnLRNCrossChannelForward",
        ("cudnnLRNCrossChannelForward/c17", "cudnnLRNCrossChannelForward/c18", "cudnnLRNCrossChannelBackward/c14", "cudnnLRNCrossChannelBackward/c15"),
        "Differing data types or dimensions are NOT_SUPPORTED.", "BAD_PARAM.", "NOT_SUPPORTED: the status list.",
        cases=("normalization_lrn/test_*_operands_must_agree*",),
        recorded=(
            Disagreement(ours="NOT_SUPPORTED", theirs="BAD_PARAM", clauses=("cudnnLRNCrossChannel*/c17", "cudnnLRNCrossChannel*/c18")),
        ),
        says=("cudnnLRNCrossChannelForward BAD_PARAM, not NOT_SUPPORTED",
              "succeeded, not NOT_SUPPORTED by cudnnLRNCrossChannelBackward/c14"),
    ),
    Difference(
        "V-lrn-int8", "cudnnLRNCrossChannelForward", ("cudnnLRNCrossChannelForward/c20",),
        "Names no data types; the parameters are cast to that of the tensors.", "INT8 is accepted.",
        "NOT_SUPPORTED: cast to an integer, lrnBeta 0.75 is 0 (D079).",
        cases=("normalization_lrn/test_other_types*",),
        recorded=(Disagreement(ours="NOT_SUPPORTED", theirs="SUCCESS", clauses=("cudnnLRNCrossChannelForward/c20",), when=of_type("INT8")),),
        says=("succeeded, not NOT_SUPPORTED by cudnnLRNCrossChannelForward/c20",),
    ),
    Difference(
        "V-normalization-mode", "cudnnLRNCrossChannelForward",
        ("cudnnLRNCrossChannelForward/c03", "cudnnLRNCrossChannelBackward/c06", "cudnnDivisiveNormalizationForward/c08", "cudnnDivisiveNormalizationBackward/c05"),
        "One mode is implemented.", "Any number is accepted.", "BAD_PARAM: no enumerator (D051, D080).",
        cases=("normalization_*/test_unknown_mode*",),
        recorded=(
            Disagreement(
                ours="BAD_PARAM", theirs="SUCCESS", clauses=("cudnnLRNCrossChannelForward/c03", "cudnnDivisiveNormalizationForward/c08"),
            ),
        ),
        says=("succeeded, not BAD_PARAM by cudnnDivisiveNormalizationForward/c08",
              "succeeded, not BAD_PARAM by cudnnLRNCrossChannelForward/c03"),
    ),
    Difference(
        "V-divisive-types", "cudnnDivisiveNormalizationForward", ("cudnnDivisiveNormalizationForward/c26", "cudnnDivisiveNormalizationBackward/c19"),
        "A configuration that is not supported is NOT_SUPPORTED; no sentence relates the data types.", "Differing data types are BAD_PARAM.",
        "NOT_SUPPORTED (D051).",
        cases=("normalization_divisive/test_strides_and_types*",),
        recorded=(Disagreement(ours="NOT_SUPPORTED", theirs="BAD_PARAM", clauses=("cudnnDivisiveNormalizationForward/c26",)),),
        says=("cudnnDivisiveNormalizationForward BAD_PARAM, not NOT_SUPPORTED",),
    ),
    Difference(
        "V-divisive-even-gradient", "cudnnDivisiveNormalizationBackward", ("cudnnDivisiveNormalizationBackward/c01",),
        "dx is the gradient; an even window reaches one further ahead.",
        "With an even window dx is summed over the window of the forward call, not over the windows that hold the element.",
        "The gradient (D168): central differences of NVIDIA's own forward call.",
        cases=("normalization_divisive/test_windows*backward*",),
        recorded=(Disagreement("outputs", ("cudnnDivisiveNormalizationBackward",), when=has("lrnN", 2, 4)),),
        says=("wrong dx: other numbers",),
    ),
    Difference(
        "V-divisive-half", "cudnnDivisiveNormalizationForward", ("cudnnDivisiveNormalizationForward/c15", "cudnnDivisiveNormalizationBackward/c09"),
        "temp and temp2 hold intermediate values.", "Intermediate values of HALF tensors are rounded to HALF, the results by it once more.",
        "Rounded once (D052).",
        cases=("normalization_divisive/test_*HALF*", "normalization_divisive/test_layouts*", "normalization_divisive/test_forward_in_place[[]*"), says=("wrong *: other numbers",),
        recorded=(
            Disagreement("outputs", ("cudnnDivisiveNormalization*",), when=of_type("HALF")),
        ),
    ),
    Difference(
        "V-divisive-in-place", "cudnnDivisiveNormalizationForward", ("cudnnDivisiveNormalizationForward/c22",), "Differing strides in place are BAD_PARAM.",
        "9.19 answers NOT_SUPPORTED.", "BAD_PARAM (D051).", subjects=("vendor-9*",),
        cases=("normalization_divisive/test_forward_in_place_needs*",), says=("*NOT_SUPPORTED, not BAD_PARAM",),
    ),
    Difference(
        "V-divisive-beta", "cudnnDivisiveNormalizationForward", ("cudnnDivisiveNormalizationForward/c10",),
        "The result is blended with beta times the prior value.", "In the recorded calls with beta -0.5 (alpha 1.5, lrnN 4) the prior value is left out.",
        "Blended: the formula; with beta 1 the library blends too.",
        recorded=(Disagreement("outputs", ("cudnnDivisiveNormalizationForward",), when=has("beta", -0.5)),),
    ),
])  # fmt: skip
