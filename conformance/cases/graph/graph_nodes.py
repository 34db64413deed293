"""Holds cases of the checks of finalising (9.2.1, 9.2.10 to 9.2.14, 9.2.16, 9.2.17).

They concern tensors, convolutions, operation nodes and variant packs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from dualdnn.api.enumerations import CUDNN_DIM_MAX, cudnnDataType_t, cudnnPointwiseMode_t
from dualdnn.api.enumerations import cudnnBackendAttributeType_t as Type
from dualdnn.api.enumerations import cudnnBackendDescriptorType_t as Kind
from dualdnn.api.operations import graph as parts
from dualdnn.api.operations.specs import DOUBLE, INT8, UINT8, INT8x4, INT8x32, UINT8x4
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.calls.graph import attributes, kind_of
from dualdnn.conformance.marks import shows

from .graph_descriptors import ADD, RECORDS, RELU, SETTINGS, W, X, Y, of, tensor

INVALID = "cudnnBackendFinalize/c06"
INT64 = Type.CUDNN_TYPE_INT64
GROUPED = {
    "x": tensor(1, (2, 2, 3, 5, 7)), "w": tensor(2, (2, 2, 3, 3, 2)), "y": tensor(3, (2, 2, 2, 2, 3)),
}  # fmt: skip
FLAT = {"x": X, "w": W, "y": Y}
TENSORS = [
    ({"dims": (2, 0, 4, 5)}, BAD_PARAM, "c23"), ({"dims": (2, 6, -1, 5)}, BAD_PARAM, "c23"), ({"dims": (0,), "strides": (1,)}, BAD_PARAM, "c23"),
    ({"strides": (1, 1, 0, 1)}, BAD_PARAM, "c24"), ({"strides": (200, 50, -7, 1)}, BAD_PARAM, "c24"), ({"strides": (200, 50, 7)}, BAD_PARAM, INVALID),
    ({"strides": (400, 200, 50, 7, 1)}, BAD_PARAM, INVALID), ({"alignment": 2}, BAD_PARAM, "c25"), ({"alignment": 6}, BAD_PARAM, "c25"),
    ({"alignment": 0}, BAD_PARAM, "c25"), ({"alignment": -4}, BAD_PARAM, "c25"), ({"alignment": 4, "data_type": DOUBLE}, BAD_PARAM, "c25"),
    ({"data_type": INT8x4}, NOT_SUPPORTED, "c26"), ({"data_type": UINT8x4}, NOT_SUPPORTED, "c26"), ({"data_type": INT8x32}, NOT_SUPPORTED, "c26"),
    *(({"data_type": INT8, "vector_count": n, "vectorized_dimension": 1}, NOT_SUPPORTED, "c27") for n in (2, 3, 8, 16, 64)),
    ({"data_type": INT8, "vector_count": 4, "vectorized_dimension": 4}, BAD_PARAM, INVALID),
    ({"data_type": INT8, "vector_count": 4, "vectorized_dimension": -1}, BAD_PARAM, INVALID),
    ({"vector_count": 0, "vectorized_dimension": 1}, BAD_PARAM, INVALID), ({"vector_count": -4, "vectorized_dimension": 1}, BAD_PARAM, INVALID),
]  # fmt: skip


@shows("cudnnBackendFinalize/c06 c07", "CUDNN_BACKEND_TENSOR_DESCRIPTOR/c23-c27")
@pytest.mark.parametrize("change, status, clause", TENSORS, ids=lambda v: None if isinstance(v, int) else str(v))
def test_tensors(cannot_finalise: Any, change: Any, status: Any, clause: Any) -> None:
    cannot_finalise(replace(X, **change), status, clause)


@shows(*of("TENSOR", "c17"))
def test_vectors_need_their_dimension(cannot_finalise: Any) -> None:
    record = replace(X, data_type=INT8, vector_count=4, vectorized_dimension=1)
    cannot_finalise(record, BAD_PARAM, "c17", VECTORIZED_DIMENSION=None)


@shows(*of("TENSOR", "c11", "c13", "c27", "c29"))
@pytest.mark.parametrize("record", [
    tensor(1, (5,)), tensor(1, (5, 3)), tensor(1, (1, 2) * (CUDNN_DIM_MAX // 2)), tensor(0, (2, 3, 4), strides=(1, 1, 1)),
    tensor(1, (2**31, 2**20, 4), strides=(2**40, 2**20, 1)),
    *(replace(X, data_type=INT8, vector_count=n, vectorized_dimension=0 if n > 1 else -1) for n in (1, 4, 32)),
    replace(X, data_type=UINT8, vector_count=4, vectorized_dimension=3),
    *(replace(X, data_type=cudnnDataType_t[f"CUDNN_DATA_{name}"]) for name in ("DOUBLE", "HALF", "INT8", "INT32", "UINT8", "BFLOAT16")),
], ids=str)  # fmt: skip
def test_tensors_that_are_well(builder: Any, record: Any) -> None:
    """Tensors may have few or many dimensions, overlapping elements, more elements than memory, and every scalar
    type."""
    made = builder(record)
    assert builder.get(made, kind_of(record), "DIMENSIONS", INT64, 8) == record.dims


@shows(INVALID, *of("CONVOLUTION", "c17", "c18", "c19", "c20"), "cudnnBackendFinalize/c02")
@pytest.mark.parametrize("ending, clause", [
    ("DILATIONS", "c17"), ("FILTER_STRIDES", "c18"), ("PRE_PADDINGS", "c19"), ("POST_PADDINGS", "c20"),
])  # fmt: skip
@pytest.mark.parametrize("count", [1, 3])
def test_entries_for_each_spatial_dimension(cannot_finalise: Any, ending: str, clause: str, count: int) -> None:
    cannot_finalise(SETTINGS, BAD_PARAM, clause, **{ending: (INT64, (1,) * count)})


@shows(INVALID)
@pytest.mark.parametrize("ending, values", [
    ("DILATIONS", (0, 1)), ("DILATIONS", (1, -1)), ("FILTER_STRIDES", (1, 0)), ("FILTER_STRIDES", (-2, 1)),
    ("PRE_PADDINGS", (0, -1)), ("POST_PADDINGS", (-1, 0)), ("SPATIAL_DIMS", (0,)), ("SPATIAL_DIMS", (-1,)),
    ("SPATIAL_DIMS", (CUDNN_DIM_MAX - 1,)),
])  # fmt: skip
def test_invalid_convolutions(cannot_finalise: Any, ending: str, values: Any) -> None:
    cannot_finalise(SETTINGS, BAD_PARAM, INVALID, **{ending: (INT64, values)})


@shows(INVALID)
def test_clips_in_the_wrong_order(builder: Any, cannot_finalise: Any) -> None:
    builder(replace(RELU, lower_clip=6.0, upper_clip=6.0))
    cannot_finalise(replace(RELU, lower_clip=6.5), BAD_PARAM, INVALID)


NODES: dict[Any, Any] = {
    "FORWARD": (lambda x, w, y: parts.ConvolutionForwardNode(SETTINGS, 1.0, 0.0, x, w, y), "c22", "c27", "c28", "c16"),
    "BACKWARD_DATA": (lambda x, w, y: parts.ConvolutionBackwardDataNode(SETTINGS, 1.0, 0.0, w, y, x), "c16", "c16", "c16", "c15"),
    "BACKWARD_FILTER": (lambda x, w, y: parts.ConvolutionBackwardFilterNode(SETTINGS, 1.0, 0.0, x, y, w), "c16", "c16", "c16", "c15"),
}  # fmt: skip


@shows(*of("OPERATION_CONVOLUTION_FORWARD", "c15", "c16", "c17", "c18", "c19", "c20", "c21", "c23", "c24", "c25", "c26", "c30"),
       *of("OPERATION_CONVOLUTION_BACKWARD_DATA", "c15", "c18"), *of("OPERATION_CONVOLUTION_BACKWARD_FILTER", "c15", "c18"),
       *of("CONVOLUTION", "c02", "c04"),
       *(f"usecase_9.3.1_operation_graph_grouped_convolution/c{i}" for i in (12, 13, 14)))  # fmt: skip
@pytest.mark.parametrize("direction", NODES)
def test_tensors_that_make_up_a_convolution(builder: Any, direction: Any) -> None:
    """A convolution is valid in both forms: a group stride with a gap, depthwise, one spatial dimension."""
    make = NODES[direction][0]
    gaps = replace(GROUPED["x"], strides=(1000, 300, 40, 7, 1))
    for x, w, y in (
        (X, W, Y), tuple(GROUPED.values()), (gaps, GROUPED["w"], GROUPED["y"]),
        (X, tensor(2, (6, 1, 3, 2)), tensor(3, (2, 6, 2, 3))), (X, tensor(2, (1, 6, 3, 2)), tensor(3, (2, 1, 2, 3)))
    ):  # fmt: skip
        builder(make(x, w, y))
    narrow = replace(SETTINGS, pre_padding=(0,), post_padding=(3,), stride=(1,), dilation=(2,))
    many = (1,) * (CUDNN_DIM_MAX - 2)
    builder(replace(SETTINGS, pre_padding=many, post_padding=many, stride=many, dilation=many))
    node = replace(make(tensor(1, (2, 3, 4)), tensor(2, (5, 3, 2)), tensor(3, (2, 5, 5))), convolution=narrow)
    builder(node)


@shows("CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR/c15-c20 c22-c25 c27-c29",
       "CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR/c15-c17",
       "CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR/c15-c17", "usecase_9.3.1_operation_graph_grouped_convolution/c11 c15",
       "cudnnBackendFinalize/c02")  # fmt: skip
@pytest.mark.parametrize("direction", NODES)
@pytest.mark.parametrize("form, which, dims, rule", [
    ("flat", "x", (3, 6, 5, 7), 0), ("flat", "x", (2, 5, 5, 7), 0), ("flat", "x", (2, 8, 5, 7), 0), ("flat", "y", (2, 5, 2, 3), 0),
    ("flat", "w", (3, 3, 3, 2), 0), ("flat", "w", (4, 4, 3, 2), 0), ("flat", "w", (4, 12, 3, 2), 0),
    ("grouped", "x", (3, 2, 3, 5, 7), 1), ("grouped", "x", (2, 1, 3, 5, 7), 1), ("grouped", "x", (2, 2, 4, 5, 7), 1),
    ("grouped", "w", (1, 2, 3, 3, 2), 1), ("grouped", "w", (2, 3, 3, 3, 2), 1), ("grouped", "y", (2, 2, 3, 2, 3), 1),
    ("grouped", "y", (2, 4, 2, 2, 3), 1),
    ("flat", "y", (2, 4, 3, 3), 2), ("flat", "y", (2, 4, 2, 4), 2), ("flat", "x", (2, 6, 5, 9), 2), ("flat", "w", (4, 3, 9, 2), 2),
    ("grouped", "y", (2, 2, 2, 3, 3), 2),
    ("flat", "x", (2, 6, 5), 3), ("flat", "w", (4, 3, 3, 2, 1), 3), ("grouped", "y", (2, 4, 2, 3), 3), ("grouped", "x", (2, 2, 3, 1, 5, 7), 3),
    *(pytest.param(*row, marks=pytest.mark.ours) for row in (
        ("flat", "y", (3, 4, 2, 3), 0), ("grouped", "y", (3, 2, 2, 2, 3), 1), ("grouped", "w", (2, 2, 4, 3, 2), 1),
        ("grouped", "w", (2, 2, 3, 9, 2), 2), ("grouped", "x", (2, 2, 3, 5, 9), 2),
    )),
])  # fmt: skip
def test_tensors_that_do_not(cannot_finalise: Any, direction: Any, form: Any, which: Any, dims: Any, rule: Any) -> None:
    make, *clauses = NODES[direction]
    tensors = GROUPED if form == "grouped" else FLAT
    record = make(**{**tensors, which: tensor(tensors[which].uid, dims)})
    cannot_finalise(record, BAD_PARAM, clauses[rule])


POINTWISE = [
    (RELU, (2, 6, 5, 7), None, (2, 6, 5), "c21"), (RELU, (2, 6, 5, 7), None, (2, 6, 5, 1), "c22"), (RELU, (2, 6, 1, 7), None, (2, 6, 5, 7), "c22"),
    (ADD, (2, 6, 5, 7), (6, 5, 7), (2, 6, 5, 7), "c21"), (ADD, (2, 6, 5, 7), (2, 6, 5, 7), (1, 2, 6, 5, 7), "c21"),
    (ADD, (2, 6, 5, 7), (2, 3, 5, 7), (2, 6, 5, 7), "c22"), (ADD, (2, 6, 5, 7), (1, 6, 1, 1), (2, 6, 5, 1), "c22"),
    (ADD, (1, 6, 5, 7), (1, 6, 5, 7), (2, 6, 5, 7), "c22"),
]  # fmt: skip


@shows(*of("OPERATION_POINTWISE", "c06", "c21", "c22", "c23"))
@pytest.mark.parametrize("settings, x, b, y, clause", POINTWISE)
def test_dimensions_of_pointwise_operations(
    cannot_finalise: Any, settings: Any, x: Any, b: Any, y: Any, clause: Any
) -> None:
    record = parts.PointwiseNode(settings, 1.0, 1.0, tensor(1, x), tensor(2, b) if b else None, tensor(3, y))
    cannot_finalise(record, BAD_PARAM, clause)


@shows("CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR/c03-c05 c12 c17 c20")
@pytest.mark.parametrize("mode", list(cudnnPointwiseMode_t), ids=lambda m: m.name)
def test_operands_of_every_mode(builder: Any, cannot_finalise: Any, mode: Any) -> None:
    """ADD, MUL, MIN and MAX have two operands. Descriptors of the other modes must not name a second operand or its
    factor."""
    settings, two = replace(RELU, mode=mode), mode <= cudnnPointwiseMode_t.CUDNN_POINTWISE_MAX
    one_input, two_inputs = (parts.PointwiseNode(settings, 1.0, 1.0, X, b, X) for b in (None, X))
    if two:
        builder(two_inputs)
        cannot_finalise(one_input, BAD_PARAM, "c12")
        return
    builder(one_input)
    cannot_finalise(two_inputs, BAD_PARAM, "c17", ALPHA2=None)
    factor = (Type.CUDNN_TYPE_FLOAT, (2.0,))
    cannot_finalise(one_input, BAD_PARAM, "c20", ALPHA2=factor)


@shows("CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR/c02 c04 c05 c16-c18", "cudnnGenStatsMode_t/c02")
@pytest.mark.parametrize("which", ["sum", "sqsum"])
@pytest.mark.parametrize("dims, clause", [
    ((1, 6, 1), "c16"), ((6,), "c16"), ((1, 1, 6, 1, 1), "c16"),
    ((1, 5, 1, 1), "c17"), ((2, 6, 1, 1), "c17"), ((1, 6, 1, 7), "c17"), ((6, 1, 1, 1), "c17"), ((1, 1, 1, 1), "c17"), pytest.param((1, 6, 5, 1), "c17", marks=pytest.mark.ours),
])  # fmt: skip
def test_dimensions_of_statistics(cannot_finalise: Any, which: str, dims: Any, clause: Any) -> None:
    record = replace(RECORDS["statistics"], **{which: tensor(9, dims)})
    cannot_finalise(record, BAD_PARAM, clause)


@shows(*of("OPERATION_GEN_STATS", "c17"))
def test_statistics_of_a_line(cannot_finalise: Any) -> None:
    """Statistics need a dimension of channels, which a line lacks."""
    record = replace(RECORDS["statistics"], x=tensor(1, (5,)), sum=tensor(2, (1,)), sqsum=tensor(3, (1,)))
    cannot_finalise(record, BAD_PARAM, "c17")


@shows(*of("OPERATION_CONVOLUTION_FORWARD", "c17", "c18", "c19"), *of("TENSOR", "c02"))
def test_vectors_match_as_many_channels(builder: Any, cannot_finalise: Any) -> None:
    """Vectors of 4 channels in x and w match single channels of y. A filter without vectors has another number of
    channels."""
    x, w = (
        replace(t, data_type=INT8, vector_count=4, vectorized_dimension=1)
        for t in (tensor(1, (2, 2, 5, 7)), tensor(2, (3, 2, 3, 2)))
    )
    y = tensor(3, (2, 3, 2, 3))
    made = builder(parts.ConvolutionForwardNode(SETTINGS, 1.0, 0.0, x, w, y))
    read = builder.get(
        made, Kind.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, "X", Type.CUDNN_TYPE_BACKEND_DESCRIPTOR
    )
    assert builder.get(read[0], kind_of(X), "DIMENSIONS", INT64, 4) == (2, 2, 5, 7)
    wrong = parts.ConvolutionForwardNode(SETTINGS, 1.0, 0.0, x, replace(w, dims=(3, 3, 3, 2)), y)
    cannot_finalise(wrong, BAD_PARAM, "c22")


PACK = Kind.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR
POINTERS = {
    "UNIQUE_IDS": (INT64, ()), "DATA_POINTERS": (Type.CUDNN_TYPE_VOID_PTR, ()), "WORKSPACE": (Type.CUDNN_TYPE_VOID_PTR, (None,)),
}  # fmt: skip


@shows("CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR/c04-c07 c09-c11")
def test_variant_packs_need_all_three(builder: Any, unfinished: Any) -> None:
    """A pack without pointers and without a workspace is possible, if it says so."""
    for ending, clause in (("UNIQUE_IDS", "c05"), ("DATA_POINTERS", "c07"), ("WORKSPACE", "c10")):
        unfinished(PACK, {k: v for k, v in POINTERS.items() if k != ending}, BAD_PARAM, clause)
    made = builder.finalized(PACK, POINTERS)
    assert builder.get(made, PACK, "WORKSPACE", Type.CUDNN_TYPE_VOID_PTR) == (None,)
    assert builder.get(made, PACK, "UNIQUE_IDS", INT64, 4) == ()


@shows(INVALID)
@pytest.mark.parametrize("uids, pointers", [((1, 2), 1), ((1,), 2), ((), 1), ((5, 5), 2), ((1, 2, 1), 3)])
def test_ids_and_pointers_must_match(unfinished: Any, uids: Any, pointers: int) -> None:
    """Unequal counts of ids and pointers are refused, and so is an id that occurs twice."""
    given = {**POINTERS, "UNIQUE_IDS": (INT64, uids), "DATA_POINTERS": (Type.CUDNN_TYPE_VOID_PTR, (None,) * pointers)}
    unfinished(PACK, given, BAD_PARAM, INVALID)


@shows(*of("VARIANT_PACK", "c03", "c08"), "cudnnBackendSetAttribute/c08")
def test_intermediates_cannot_be_set(cannot_set: Any) -> None:
    clause = of("VARIANT_PACK", "c03")[0]
    cannot_set(PACK, "INTERMEDIATES", Type.CUDNN_TYPE_VOID_PTR, None, status=NOT_SUPPORTED, clause=clause)


FACTORS = {
    "one_input": ("ALPHA1",),
    "two_inputs": ("ALPHA1", "ALPHA2"),
    **dict.fromkeys(("forward", "backward_data", "backward_filter"), ("ALPHA", "BETA")),
}


@shows("cudnnBackendSetAttribute/c01", "cudnnBackendAttributeType_t/c01", "cudnnBackendAttributeType_t@9.1.1/c01",
       *of("OPERATION_POINTWISE", "c15", "c16"),
       *(clause for way in ("FORWARD", "BACKWARD_DATA", "BACKWARD_FILTER") for clause in of(f"OPERATION_CONVOLUTION_{way}", "c03", "c05")))  # fmt: skip
@pytest.mark.parametrize("set_as, read_as, value, wanted", [
    (Type.CUDNN_TYPE_FLOAT, Type.CUDNN_TYPE_FLOAT, 0.1, 0.10000000149011612),
    (Type.CUDNN_TYPE_DOUBLE, Type.CUDNN_TYPE_DOUBLE, 0.1, 0.1),
    (Type.CUDNN_TYPE_DOUBLE, Type.CUDNN_TYPE_FLOAT, 0.1, 0.10000000149011612),
    (Type.CUDNN_TYPE_FLOAT, Type.CUDNN_TYPE_DOUBLE, 0.1, 0.10000000149011612),
])  # fmt: skip
def test_factors_in_both_types(builder: Any, set_as: Any, read_as: Any, value: float, wanted: float) -> None:
    for record, factors in FACTORS.items():
        kind, given = kind_of(RECORDS[record]), attributes(builder, RECORDS[record])
        for factor in factors:
            made = builder.finalized(kind, {**given, factor: (set_as, (value,))})
            assert builder.get(made, kind, factor, read_as) == (wanted,)
