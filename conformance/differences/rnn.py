"""Where NVIDIA's library and the document disagree in recurrent networks, each decided in docs/errata.md under its id."""

from __future__ import annotations

from .table import Difference, declare

declare(
    [
        Difference(
            "V-rnn-no-types",
            "cudnnSetRNNDescriptor_v8",
            ("cudnnSetRNNDescriptor_v8/c32",),
            "An invalid argument is BAD_PARAM.",
            "A dataType or mathPrec that is no enumerator is NOT_SUPPORTED.",
            "BAD_PARAM: an invalid argument before a combination (D373).",
            cases=("rnn_descriptors/test_no_data_types*",),
        ),
        Difference(
            "V-rnn-clip-modes",
            "cudnnRNNSetClip_v8",
            ("cudnnRNNSetClip_v8/c01",),
            "clipMode and clipNanOpt are enumerators.",
            "Any number is accepted and comes back.",
            "BAD_PARAM (D354).",
            cases=("rnn_descriptors/test_unknown_clip_modes*",),
        ),
        Difference(
            "V-rnn-small-h",
            "cudnnSetRNNDescriptor_v8",
            ("cudnnSetRNNDescriptor_v8/c32",),
            "cudnnRNNAlgo_t has three values.",
            "A fourth, CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H of later releases, is accepted.",
            "BAD_PARAM: no enumerator (rnn-small-h).",
            cases=("rnn_persistent/test_algorithms_of_later_releases*",),
        ),
        Difference(
            "V-rnn-clip-range",
            "cudnnRNNForward",
            ("cudnnRNNSetClip_v8/c06",),
            "The state of LSTM cells is limited to lclip to rclip, which are doubles.",
            "9.19 rounds them to float, for DOUBLE data too; in 16 of 64 configurations its states lie where no placement of the limit "
            "puts them.",
            "Limited right after the update, by doubles for DOUBLE data (D351).",
            cases=("rnn_forward/test_clipping*",),
        ),
        Difference(
            "V-rnn-no-plan",
            "cudnnRNNForward",
            ("cudnnRNNAlgo_t/c05",),
            "CUDNN_RNN_ALGO_PERSIST_DYNAMIC requires that a plan is prepared.",
            "9.19 computes without a plan.",
            "BAD_PARAM (D307).",
            cases=("rnn_persistent/test_calls_without_the_plan_they_need*",),
        ),
    ]
)
