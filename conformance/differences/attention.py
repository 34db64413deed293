"""Lists where NVIDIA's library and the document disagree in sequence data and attention; docs/errata.md decides
each."""

from __future__ import annotations

from itertools import combinations, product

from .table import Difference, declare

declare(
    [
        Difference(
            "V-seq-empty",
            "cudnnSetSeqDataDescriptor",
            ("cudnnSetSeqDataDescriptor/c12",),
            "Lengths are 0 to the size of TIME.",
            "8.9.7 refuses 0 with BAD_PARAM.",
            "Accepted.",
            cases=(
                "sequence_data_descriptors/test_empty_sequences*",
                "attention_backward/test_empty_sequences*",
                "attention_forward/test_layouts_of_tensor_cores?order*-0-?-?[]]",
                "attention_backward/test_layouts_of_tensor_cores?order*-0-?-?[]]",
            ),
            says=("cudnnSetSeqDataDescriptor BAD_PARAM",),
        ),
        Difference(
            "V-seq-types",
            "cudnnSetSeqDataDescriptor",
            ("cudnnSetSeqDataDescriptor/c20",),
            "HALF, FLOAT or DOUBLE.",
            "8.9.7 accepts BFLOAT16; others are INTERNAL_ERROR.",
            "NOT_SUPPORTED (D380).",
            cases=("sequence_data_descriptors/test_other_types*",),
            says=(
                "cudnnSetSeqDataDescriptor INTERNAL_ERROR, not NOT_SUPPORTED",
                "succeeded, not NOT_SUPPORTED by cudnnSetSeqDataDescriptor/c20",
            ),
        ),
        Difference(
            "V-attn-mapping",
            "cudnnSetAttnDescriptor",
            ("cudnnSetAttnDescriptor/c26", "cudnnSetAttnDescriptor/c33"),
            "Each query candidate may attend to its own keys.",
            "8.9.7 answers NOT_SUPPORTED where maxBeamSize is above 1.",
            "Accepted (D359).",
            cases=(
                "attention_descriptors/test_modes*",
                "attention_forward/test_layouts*one-to-one*",
                "attention_forward/test_query_maps*one-to-one*",
                "attention_backward/test_layouts*one-to-one*",
                "attention_forward/test_layouts_of_tensor_cores?order*-1-?-?[]]",
                "attention_backward/test_layouts_of_tensor_cores?order*-1-?-?[]]",
            ),
            says=("cudnnSetAttnDescriptor NOT_SUPPORTED",),
        ),
        Difference(
            "V-attn-dropout",
            "cudnnSetAttnDescriptor",
            ("cudnnSetAttnDescriptor/c39",),
            "Dropout in multi-head attention is unsupported; both descriptors are to be NULL.",
            "Dropout descriptors are accepted, whether they were set or not.",
            "NOT_SUPPORTED above 0 (D361).",
            cases=("dropout/test_attention_takes_no_dropout*",),
            says=("succeeded, not NOT_SUPPORTED by cudnnSetAttnDescriptor/c39",),
        ),
        Difference(
            "V-attn-nan",
            "cudnnSetAttnDescriptor",
            ("cudnnSetAttnDescriptor/c18",),
            "smScaler is zero or positive.",
            "8.9.7 accepts NaN.",
            "BAD_PARAM (D362).",
            cases=("attention_descriptors/test_nan_is_no_scaler*",),
            says=("succeeded, not BAD_PARAM by cudnnSetAttnDescriptor/c46",),
        ),
        Difference(
            "V-attn-types",
            "cudnnSetAttnDescriptor",
            ("cudnnSetAttnDescriptor/c44", "cudnnSetAttnDescriptor/c47"),
            "Table 40 lists the supported types.",
            "8.9.7 accepts more; INT8 data and BFLOAT16 precision are BAD_PARAM.",
            "NOT_SUPPORTED (D360).",
            cases=("attention_descriptors/test_what_table_40_does_not_list*",),
            says=(
                "cudnnSetAttnDescriptor BAD_PARAM, not NOT_SUPPORTED",
                "succeeded, not NOT_SUPPORTED by cudnnSetAttnDescriptor/c47",
            ),
        ),
        Difference(
            "V-attn-bias-gradients",
            "cudnnMultiHeadAttnBackwardData",
            (
                "cudnnMultiHeadAttnBackwardData/c27",
                "cudnnMultiHeadAttnBackwardWeights/c18",
                "cudnnSetAttnDescriptor/c40",
            ),
            "The gradients do not support projection biases.",
            "8.9.7 and 9.19 compute them.",
            "NOT_SUPPORTED (D612).",
            cases=("attention_backward/test_biases_have_no_gradients*",),
            says=("succeeded, not NOT_SUPPORTED by cudnnMultiHeadAttnBackwardData/c27",),
        ),
    ]
)

_FORWARD = "attention_forward/test_"
_BACKWARD = "attention_backward/test_"
_DATA = "cudnnMultiHeadAttnBackwardData"
_UNSTABLE = [
    "; ".join(f"{name}: {kinds}" for name, kinds in zip(names, each, strict=True))
    for count in (1, 2, 3)
    for names in combinations(("dqueries", "dkeys", "dvalues", "dweights"), count)
    for each in product(("other numbers", "zero, other numbers"), repeat=count)
]

declare([
    Difference(
        "V-attn-nonfinite", "cudnnMultiHeadAttnForward", ("cudnnMultiHeadAttnForward/c11", "cudnnSetSeqDataDescriptor/c09"),
        "Keys and values outside of a query's window, and padding, do not enter its output.",
        "9.19 multiplies them by zero: what is not a number there makes outputs NaN.", "They are not read.", says=("wrong out: as before the call",), subjects=("vendor-9*",),
        cases=(f"{_FORWARD}padding_is_not_read*", f"{_FORWARD}numbers_outside_of_windows*", f"{_FORWARD}tiles_of_tensor_cores*",
               f"{_BACKWARD}padding_is_not_read*", f"{_BACKWARD}tiles_of_tensor_cores*"),
    ),
    Difference(
        "V-attn-infinite-gradients", _DATA, (f"{_DATA}/c01",), "The gradients of the queries; a difference of infinities is NaN.",
        "9.19 gives numbers as some gradients of queries where dout is infinite.", "NaN: the formula (D364).", says=("wrong dqueries: other numbers",), subjects=("vendor-9*",),
        cases=(f"{_BACKWARD}infinite_gradients",),
    ),
    Difference(
        "V-attn-half", "cudnnMultiHeadAttnForward", ("cudnnSetAttnDescriptor/c36", "cudnnSetAttnDescriptor/c37"), "computePrec is the precision of the arithmetic.",
        "9.19 sums in HALF where the precision is HALF: rows of many keys, and small results, lie outside of the bound for sums in FLOAT.", "Sums in FLOAT (D364).", says=("wrong out: other numbers", "wrong dkeys: other numbers"), subjects=("vendor-9*",),
        cases=(f"{_FORWARD}long_sequences_of_tensor_cores*", f"{_FORWARD}scores_that_are_infinite?CUDNN_DATA_HALF?", f"{_FORWARD}infinite_values_that_have_no_weight?CUDNN_DATA_HALF?", f"{_BACKWARD}long_sequences_of_tensor_cores*", f"{_BACKWARD}padding_beside_full_tiles*",
               f"{_BACKWARD}last_vector_ends_within_an_access?CUDNN_DATA_HALF-10?"),
    ),
    Difference(
        "V-attn-data-type", "cudnnMultiHeadAttnForward", ("cudnnMultiHeadAttnForward/c36", f"{_DATA}/c23"), "Descriptors that are incompatible are BAD_PARAM.",
        "9.19 does not compare the data type of queries.", "BAD_PARAM: the status list.", says=("succeeded, not BAD_PARAM by *",), subjects=("vendor-9*",),
        cases=(f"{_FORWARD}what_does_not_fit?data type?", f"{_BACKWARD}what_does_not_fit?data type?"),
    ),
    Difference(
        "V-attn-unstable", _DATA, (f"{_DATA}/c01", "cudnnMultiHeadAttnBackwardWeights/c01"), "The gradients of one training step.",
        "In some runs 9.19 gives other gradients of queries and keys in some elements, for the same data: of about 40 training steps 6 to 9, each time others (D614).",
        "The gradients.", subjects=("vendor-9*",),
        sometimes=tuple(
            (_BACKWARD + case, said) for said in (*(f"wrong {said}" for said in _UNSTABLE), "suspect d*") for case in (
                "projections[[]*", "types[[]*", "layouts[[]*", "windows[[]*", "scalers[[]*", "many_tiles[[]*", "residuals_add_nothing", "weights_add_up")),
    ),
])  # fmt: skip
