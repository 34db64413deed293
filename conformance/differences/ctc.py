"""Lists where NVIDIA's library and the document disagree in the CTC loss; docs/errata.md decides each under its id."""

from __future__ import annotations

from .table import Difference, declare

declare(
    [
        Difference(
            "V-ctc-types",
            "cudnnSetCTCLossDescriptor",
            ("cudnnSetCTCLossDescriptor/c04", "cudnnSetCTCLossDescriptorEx/c07", "cudnnSetCTCLossDescriptor_v8/c08"),
            "An invalid argument is BAD_PARAM.",
            "8.9.7 answers NOT_SUPPORTED to a compType other than FLOAT and DOUBLE, no enumerator included.",
            "BAD_PARAM, which alone is listed (D402).",
            cases=("ctc_descriptors/test_compute_types*",),
            says=(
                "cudnnSetCTCLossDescriptor NOT_SUPPORTED, not BAD_PARAM",
                "cudnnSetCTCLossDescriptorEx NOT_SUPPORTED, not BAD_PARAM",
                "cudnnSetCTCLossDescriptor_v8 NOT_SUPPORTED, not BAD_PARAM",
            ),
        ),
        Difference(
            "V-ctc-modes",
            "cudnnSetCTCLossDescriptorEx",
            ("cudnnSetCTCLossDescriptorEx/c07", "cudnnSetCTCLossDescriptor_v8/c08"),
            "An invalid argument is BAD_PARAM.",
            "8.9.7 accepts modes that are not enumerators.",
            "BAD_PARAM (D402).",
            cases=("ctc_descriptors/test_unknown_modes*",),
            says=(
                "succeeded, not BAD_PARAM by cudnnSetCTCLossDescriptorEx/c07",
                "succeeded, not BAD_PARAM by cudnnSetCTCLossDescriptor_v8/c08",
            ),
        ),
        Difference(
            "V-ctc-longest",
            "cudnnSetCTCLossDescriptor_v8",
            ("cudnnSetCTCLossDescriptor_v8/c08",),
            "An invalid argument is BAD_PARAM.",
            "8.9.7 accepts a negative maxLabelLength.",
            "BAD_PARAM (D436).",
            cases=("ctc_descriptors/test_negative_lengths*",),
            says=("succeeded, not BAD_PARAM by cudnnSetCTCLossDescriptor_v8/c08",),
        ),
    ]
)

_LOSS = "cudnnCTCLoss"
_LOSS_8 = "cudnnCTCLoss_v8"
_CASE = "ctc_loss/test_"

declare([
    Difference(
        "V-ctc-tail", _LOSS, (f"{_LOSS}/c08", f"{_LOSS}/c10", f"{_LOSS_8}/c12"), "Gradients are those of the cost, which does not depend on time-steps beyond the input length.",
        "9.19 leaves the gradients there as they are.", "Zero (D630).", says=("wrong gradients: as before the call",), subjects=("vendor-9*",),
        cases=tuple(_CASE + name for name in (
            "labels_of_the_host?softmax-deterministic?", "labels_of_the_device?softmax-deterministic?", "gradients_end_with_the_input?softmax?", "layouts?nchw-softmax?",
            "costs_alone?cudnnCTCLoss-softmax?", "activations?ties?", "every_setter_serves*", "more_labels_than_time_steps*-softmax?")),
    ),
    Difference(
        "V-ctc-precision", _LOSS, (f"{_LOSS}/c04", f"{_LOSS_8}/c06"), "The algorithms decide no result.",
        "9.19 leaves the gradients beyond the input length, and errs by more than the bound elsewhere, in CUDNN_CTC_LOSS_ALGO_NON_DETERMINISTIC and with wide activations.",
        "Within the derived bound.", says=("wrong gradients: as before the call, other numbers",), subjects=("vendor-9*",),
        cases=(f"{_CASE}labels_of_the_host?softmax-other?", f"{_CASE}labels_of_the_device?softmax-other?", f"{_CASE}activations?wide?"),
    ),
    Difference(
        "V-ctc-none-gradients", _LOSS, (f"{_LOSS}/c03", f"{_LOSS_8}/c05"), "With probabilities, too, gradients are with respect to the activations.",
        "9.19: the probability minus the share, divided by the probability.", "With respect to the activations (D632).", says=("wrong gradients: *other numbers",), subjects=("vendor-9*",),
        cases=tuple(_CASE + name for name in (
            "labels_of_the_host?none-*", "labels_of_the_device?none-*", "gradients_end_with_the_input?none?", "layouts?nchw-none?", "layouts?gaps-none?",
            "costs_alone?*-none?", "few_alignments?one-none?", "few_alignments?as_many_as_times-none?", "few_alignments?repeated-none?",
            "more_labels_than_time_steps*-none?", "probabilities_of_zero*")),
    ),
    Difference(
        "V-ctc-empty", _LOSS, (f"{_LOSS}/c07", f"{_LOSS}/c09", f"{_LOSS_8}/c09"), "A sequence without labels has the one alignment of blanks, with no time-steps at the cost 0.",
        "9.19: the cost of a sequence without labels is -0, with no time-steps infinite, or that of something else.", "The formula (D631).", says=("wrong costs: *", "assertion *"), subjects=("vendor-9*",),
        cases=tuple(_CASE + name for name in (
            "few_alignments?none-*", "few_alignments?no_times-*", "one_list_after_the_other*", "all_labels_together_are_certain*",
            "costs_alone?cudnnCTCLoss_v8-softmax?")),
    ),
    Difference(
        "V-ctc-underflow", _LOSS, (f"{_LOSS}/c04", f"{_LOSS_8}/c06"), "Activations are normalised by a softmax, whose logarithms are finite.",
        "9.19 computes with the probabilities: where they underflow the cost is infinite, or no number.", "Computed by logarithms (D633).", says=("wrong costs: *",), subjects=("vendor-9*",),
        cases=(f"{_CASE}probabilities_that_underflow*", f"{_CASE}activations?special?"),
    ),
    Difference(
        "V-ctc-strides", _LOSS, (f"{_LOSS}/c05", f"{_LOSS}/c10"), "probs and gradients are described by their descriptors.",
        "9.19 takes time, sequence and class for packed in this order; in softmax mode gaps make it write beyond the end of the work space that it asked for.",
        "Any strides (D387).", says=("*wrong *",), subjects=("vendor-9*",),
        cases=tuple(f"{_CASE}layouts?{name}?" for name in ("nhwc-*", "chwn-*", "odd-*", "gaps-softmax")),
    ),
    Difference(
        "V-ctc-limits", _LOSS, (f"{_LOSS}/c17", f"{_LOSS_8}/c19", "cudnnGetCTCLossWorkspaceSize/c09", "cudnnGetCTCLossWorkspaceSize/c07"),
        "A label length above 256 and an input length that is not one of the lengths of probsDesc are BAD_PARAM.",
        "9.19 answers NOT_SUPPORTED to the first, of 256 already, and to a huge input length; it accepts others that are too large or negative.",
        "BAD_PARAM above 256: the status list.", subjects=("vendor-9*",),
        cases=tuple(_CASE + name for name in (
            "longest_labels*", "too_many_labels*", "too_large_maxima*", "input_lengths?(9, 10, 9)?", "input_lengths?(9, -1, 9)?", "input_lengths?(2147483647*")),
        says=("cudnnGetCTCLossWorkspaceSize NOT_SUPPORTED",
              "cudnnGetCTCLossWorkspaceSize NOT_SUPPORTED, not BAD_PARAM",
              "cudnnGetCTCLossWorkspaceSize_v8 NOT_SUPPORTED, not BAD_PARAM",
              "succeeded, not BAD_PARAM by cudnnCTCLoss/c15",
              "succeeded, not BAD_PARAM by cudnnGetCTCLossWorkspaceSize/c07"),
    ),
    Difference(
        "V-ctc-setter", _LOSS_8, (f"{_LOSS_8}/c03",), "ctcLossDesc was set with cudnnSetCTCLossDescriptor_v8.", "9.19 takes one of another setter.",
        "BAD_PARAM (D391).", says=("succeeded, not BAD_PARAM by cudnnCTCLoss_v8/c03",), subjects=("vendor-9*",), cases=(f"{_CASE}descriptors_without_a_maximum*",),
    ),
    Difference(
        "V-ctc-refused-late", _LOSS, (f"{_LOSS}/c19", f"{_LOSS_8}/c21"), "An unknown algorithm is NOT_SUPPORTED.", "9.19 answers so, after it has written to memory.",
        "Nothing is written.", says=("the refused call changed memory",), subjects=("vendor-9*",), cases=(f"{_CASE}unknown_algorithms*",),
    ),
])  # fmt: skip
