"""Lists where NVIDIA's library and the document disagree in recurrent networks; docs/errata.md decides each."""

from __future__ import annotations

from .table import Difference, declare

declare(
    [
        Difference(
            "V-rnn-no-types",
            "cudnnSetRNNDescriptor_v8",
            ("cudnnSetRNNDescriptor_v8/c32",),
            "An invalid argument is BAD_PARAM.",
            "A dataType or mathPrec that is not an enumerator is NOT_SUPPORTED.",
            "BAD_PARAM: an invalid argument before a combination (D373).",
            cases=("rnn_descriptors/test_no_data_types*",),
            says=("cudnnSetRNNDescriptor_v8 NOT_SUPPORTED, not BAD_PARAM",),
        ),
        Difference(
            "V-rnn-clip-modes",
            "cudnnRNNSetClip_v8",
            ("cudnnRNNSetClip_v8/c01",),
            "clipMode and clipNanOpt are enumerators.",
            "Any number is accepted and comes back.",
            "BAD_PARAM (D354).",
            cases=("rnn_descriptors/test_unknown_clip_modes*",),
            says=("succeeded, not BAD_PARAM by cudnnStatus_t/c05",),
        ),
        Difference(
            "V-rnn-small-h",
            "cudnnSetRNNDescriptor_v8",
            ("cudnnSetRNNDescriptor_v8/c32",),
            "cudnnRNNAlgo_t has three values.",
            "A fourth, CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H of later releases, is accepted.",
            "BAD_PARAM: no enumerator (rnn-small-h).",
            cases=("rnn_persistent/test_algorithms_of_later_releases*",),
            says=("succeeded, not BAD_PARAM by cudnnSetRNNDescriptor_v8/c32",),
        ),
        Difference(
            "V-rnn-null-lengths",
            "cudnnRNNForward",
            ("cudnnRNNForward/c16", "cudnnRNNBackwardData_v8/c26", "cudnnRNNBackwardWeights_v8/c26"),
            "devSeqLengths must not be NULL.",
            "Since 8.9.1 it is not read, and clients pass NULL.",
            "BAD_PARAM: the sections (D339).",
            subjects=("vendor-9*",),
            cases=("rnn_forward/test_wrong_arguments*", "rnn_backward/test_wrong_arguments*"),
            says=("succeeded, not BAD_PARAM by cudnnRNN*",),
        ),
        Difference(
            "V-rnn-clip-range",
            "cudnnRNNForward",
            ("cudnnRNNSetClip_v8/c06",),
            "The state of LSTM cells is limited to lclip to rclip, which are doubles.",
            "9.19 rounds them to float, for DOUBLE data too; in 16 of 64 configurations its states lie where no placement of the limit "
            "puts them.",
            "Limited right after the update, by doubles for DOUBLE data (D351).",
            cases=(
                "rnn_forward/test_clipping*",
                "rnn_backward/test_clipping*",
                "rnn_backward/test_states_in_accesses_of_16_bytes?CUDNN_LSTM?",
            ),
            says=("wrong y: other numbers; hy: other numbers; cy: other numbers",),
        ),
        Difference(
            "V-rnn-no-plan",
            "cudnnRNNForward",
            ("cudnnRNNAlgo_t/c05",),
            "CUDNN_RNN_ALGO_PERSIST_DYNAMIC requires that a plan is prepared.",
            "9.19 computes without a plan.",
            "BAD_PARAM (D307).",
            cases=("rnn_persistent/test_calls_without_the_plan_they_need*",),
            says=("succeeded, not BAD_PARAM by cudnnRNNAlgo_t/c05",),
        ),
    ]
)

_FORWARD = "rnn_forward/test_"
_BACKWARD = "rnn_backward/test_"

declare([
    Difference(
        "V-rnn-empty", "cudnnRNNForward", ("cudnnRNNForward/c12", "cudnnSetRNNDataDescriptor/c04"), "A sequence has 0 to maxSeqLength vectors; the final states of none are the initial ones.",
        "9.19 gives the padding value of y as final states of sequences of length 0, 0 where there is none.", "The initial states.", says=("wrong hy: zero", "wrong hy: zero; cy: zero", "wrong hy: other numbers", "wrong hy: other numbers; cy: other numbers"), subjects=("vendor-9*",),
        cases=(f"{_FORWARD}layouts?*UNPACKED?", f"{_FORWARD}larger_networks*", f"{_BACKWARD}layouts?*UNPACKED?", f"{_BACKWARD}larger_networks*",
               f"{_BACKWARD}layers_that_overlap*", *(f"{_BACKWARD}states_in_accesses_of_16_bytes?CUDNN_{cell}?" for cell in ("RNN_RELU", "RNN_TANH", "GRU"))),
    ),
    Difference(
        "V-rnn-half", "cudnnRNNForward", ("cudnnSetRNNDescriptor_v8/c17",), "mathPrec is the precision of the arithmetic; rounding is named nowhere else.",
        "9.19 rounds more than states and gates to HALF: single elements lie outside of the bound for that, by up to a tenth of it in gradients and ten times it in a final state; in wide layers outside of the interval of the 2-norm, by up to 25 times.",
        "Sums in FLOAT (D582).", says=("wrong hy: other numbers*", "wrong dhx: other numbers"), subjects=("vendor-9*",),
        cases=(f"{_FORWARD}types?CUDNN_DATA_HALF-*", f"{_BACKWARD}types?CUDNN_DATA_HALF-*", *(f"{_BACKWARD}infinite_numbers_of_half?CUDNN_{cell}?" for cell in ("LSTM", "GRU", "RNN_TANH"))), sometimes=((f"{_BACKWARD}wide_layers", "suspect hy, dweightSpace"),),
    ),
    Difference(
        "V-rnn-conversion", "cudnnRNNForward", ("cudnnSetRNNDescriptor_v8/c17", "cudnnSetRNNMatrixMathType/c04"), "CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION converts the factors of products of FLOAT data.",
        "9.19 rounds results to HALF, too: a hyperbolic tangent of -0.99984 is -1.", "Factors alone (D582).", says=("wrong y: other numbers",), subjects=("vendor-9*",),
        cases=(f"{_FORWARD}types?CUDNN_DATA_FLOAT-*ALLOW_CONVERSION?",),
    ),
    Difference(
        "V-rnn-persistent", "cudnnRNNForward", ("cudnnRNNForward/c01",), "The algorithm decides no result.",
        "9.19: the persistent algorithms have functions that are less exact than the formulas in FLOAT, by up to 2.5 times the bound.", "Within the derived bound.",
        says=("wrong hy: other numbers", "wrong y: other numbers; hy: other numbers"), subjects=("vendor-9*",), cases=(f"{_FORWARD}persistent_algorithms*", f"{_BACKWARD}persistent_algorithms*"),
    ),
    Difference(
        "V-rnn-statuses", "cudnnRNNBackwardWeights_v8", ("cudnnRNNBackwardWeights_v8/c25", "cudnnGetRNNDescriptor_v8/c11"),
        "addGrad other than ADD is BAD_PARAM, a network that was not set NOT_INITIALIZED.", "9.19 answers NOT_SUPPORTED to SET; cudnnBuildRNNDynamic takes a network that was not set.",
        "The status lists.", subjects=("vendor-9*",), cases=(f"{_BACKWARD}wrong_arguments_of_weights*", "rnn_persistent/test_refused_builds*"),
        says=("cudnnRNNBackwardWeights_v8 NOT_SUPPORTED, not BAD_PARAM",
              "succeeded, not NOT_INITIALIZED by cudnnGetRNNDescriptor_v8/c11"),
    ),
    Difference(
        "V-rnn-relu-infinite", "cudnnRNNBackwardData_v8", ("cudnnRNNBackwardData_v8/c01", "cudnnRNNMode_t/c02"), "No gradient passes where the sum is negative.",
        "9.19 multiplies it by zero: an infinite one is NaN.", "None (D351).", says=("wrong dx: as before the call, other numbers; dhx: as before the call",), subjects=("vendor-9*",),
        cases=(f"{_BACKWARD}infinite_numbers_of_half?CUDNN_RNN_RELU?",),
    ),
    Difference(
        "V-rnn-relu-at-zero", "cudnnRNNBackwardWeights_v8", ("cudnnRNNBackwardWeights_v8/c01", "cudnnRNNMode_t/c02"), "The gradient of max(x, 0).",
        "9.19 passes the gradient of weights and biases where the sum is 0, and every gradient where it is NaN.", "None at 0 and NaN (D351).",
        says=("assertion *", "wrong dx: *other numbers; dhx: other numbers"), subjects=("vendor-9*",),
        cases=("rnn_dropout/test_mask_between_layers?v8?", f"{_BACKWARD}recurrent_weights_are_nan?CUDNN_RNN_RELU?", f"{_BACKWARD}states_that_short_sequences_end_with*"),
    ),
])  # fmt: skip
