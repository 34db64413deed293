"""Holds cases of the life cycle of backend descriptors (5.2.1, 5.2.2, 5.2.4 to 5.2.7, chapter 9)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from dualdnn.api import cudnn as api
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.api.enumerations import cudnnBackendAttributeName_t as Name
from dualdnn.api.enumerations import cudnnBackendAttributeType_t as Type
from dualdnn.api.enumerations import cudnnBackendDescriptorType_t as Kind
from dualdnn.api.operations import graph as parts
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT8, packed_strides
from dualdnn.api.status import BAD_PARAM, NOT_INITIALIZED, NOT_SUPPORTED
from dualdnn.conformance.calls.graph import PREFIXES, Builder, attribute_name, attributes, kind_of
from dualdnn.conformance.marks import needs, shows
from dualdnn.conformance.report import load_clauses

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject

INT64, DESCRIPTOR = Type.CUDNN_TYPE_INT64, Type.CUDNN_TYPE_BACKEND_DESCRIPTOR
SET = "cudnnBackendSetAttribute"
GET = "cudnnBackendGetAttribute"
FINALIZE = "cudnnBackendFinalize"


def tensor(
    uid: Any, dims: Any, data_type: Any = FLOAT, strides: Any = None, alignment: int = 16, virtual: bool = False
) -> Any:
    """Return a packed tensor, or one with these strides."""
    strides = strides or packed_strides(dims, tuple(range(len(dims))))
    return parts.GraphTensor(uid, data_type, dims, strides, alignment, 1, -1, virtual)


X, W, Y = tensor(ord("x"), (2, 6, 5, 7)), tensor(-(2**63), (4, 3, 3, 2)), tensor(2**63 - 1, (2, 4, 2, 3))
SETTINGS = parts.GraphConvolution(api.CUDNN_CROSS_CORRELATION, FLOAT, (1, 0), (0, 0), (2, 2), (1, 2))
RELU = parts.PointwiseSettings(api.CUDNN_POINTWISE_RELU_FWD, HALF, api.CUDNN_PROPAGATE_NAN, -1.5, 6.25)
ADD = parts.PointwiseSettings(api.CUDNN_POINTWISE_ADD, FLOAT, api.CUDNN_NOT_PROPAGATE_NAN, 0.0, 1.0)
SUMS, SQUARES = tensor(5, (1, 6, 1, 1)), tensor(6, (1, 6, 1, 1))
RECORDS = {
    "tensor": tensor(7, (2, 3, 4, 5), DOUBLE, (1, 200, 40, 8), 8, virtual=True),
    "vectors": parts.GraphTensor(-3, INT8, (2, 2, 4, 5), (40, 20, 5, 1), 4, 32, 1, False),
    "convolution": parts.GraphConvolution(api.CUDNN_CONVOLUTION, DOUBLE, (0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 1, 2)),
    "settings": RELU,
    "knob_choice": parts.KnobChoice(api.CUDNN_KNOB_TYPE_SPECFILT, -(2**40)),
    "forward": parts.ConvolutionForwardNode(SETTINGS, 0.5, -2.0, X, W, Y),
    "backward_data": parts.ConvolutionBackwardDataNode(SETTINGS, 0.25, 3.0, W, Y, X),
    "backward_filter": parts.ConvolutionBackwardFilterNode(SETTINGS, -1.0, 0.5, X, Y, W),
    "one_input": parts.PointwiseNode(RELU, 0.5, 1.0, X, None, X),
    "two_inputs": parts.PointwiseNode(ADD, 0.5, -0.75, tensor(1, (1, 6, 5, 1)), tensor(2, (2, 6, 1, 7)), X),
    "statistics": parts.GenStatsNode(api.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, X, SUMS, SQUARES),
}  # fmt: skip
# Each section has the clauses that require its attributes, by the endings of their names.
REQUIRED: dict[str, tuple[str, dict[str, str | None]]] = {
    "convolution": ("CONVOLUTION", {"COMP_TYPE": "c06", "CONV_MODE": "c08", "DILATIONS": "c10", "FILTER_STRIDES": "c12", "PRE_PADDINGS": "c14", "POST_PADDINGS": "c16", "SPATIAL_DIMS": None}),
    "settings": ("POINTWISE", {"MODE": None, "MATH_PREC": None}),
    "knob_choice": ("KNOB_CHOICE", {"KNOB_TYPE": "c03", "KNOB_VALUE": "c05"}),
    "forward": ("OPERATION_CONVOLUTION_FORWARD", {"ALPHA": "c04", "BETA": "c06", "CONV_DESC": "c08", "W": "c10", "X": "c12", "Y": "c14"}),
    "backward_data": ("OPERATION_CONVOLUTION_BACKWARD_DATA", {"ALPHA": "c04", "BETA": "c06", "CONV_DESC": "c08", "W": "c10", "DX": "c12", "DY": "c14"}),
    "backward_filter": ("OPERATION_CONVOLUTION_BACKWARD_FILTER", {"ALPHA": "c04", "BETA": "c06", "CONV_DESC": "c08", "DW": "c10", "X": "c12", "DY": "c14"}),
    "two_inputs": ("OPERATION_POINTWISE", {"PW_DESCRIPTOR": "c08", "XDESC": "c10", "BDESC": "c12", "YDESC": "c14"}),
    "statistics": ("OPERATION_GEN_STATS", {"MODE": "c07", "MATH_PREC": "c09", "XDESC": "c11", "SUMDESC": "c13", "SQSUMDESC": "c15"}),
    "tensor": ("TENSOR", {"UNIQUE_ID": "c06", "DATA_TYPE": "c08", "BYTE_ALIGNMENT": "c10", "DIMENSIONS": "c12", "STRIDES": "c14"}),
}  # fmt: skip
MISSING = [
    pytest.param(record, ending, f"CUDNN_BACKEND_{section}_DESCRIPTOR/{clause}" if clause else "usecase_9_descriptor_life_cycle/c02", id=f"{record}-{ending}")
    for record, (section, endings) in REQUIRED.items() for ending, clause in endings.items()
]  # fmt: skip


def of(section: Any, *clauses: Any) -> Any:
    """Return the ids of clauses of a descriptor's section."""
    return [f"CUDNN_BACKEND_{section}_DESCRIPTOR/{clause}" for clause in clauses]


@shows("usecase_9_descriptor_life_cycle/c01-c05", "cudnnBackendDescriptor_t/c01-c05", "cudnnBackendCreateDescriptor/c01 c03",
       "cudnnBackendDestroyDescriptor/c01 c02", "cudnnBackendSetAttribute/c01 c02", "cudnnBackendFinalize/c01-c03 c05",
       "cudnnBackendGetAttribute/c01 c02 c04 c05", "cudnnBackendAttributeName_t/c01 c02", "cudnnBackendAttributeType_t/c01",
       "cudnnBackendAttributeType_t@9.1.1/c01", "cudnnBackendDescriptorType_t/c01", "cudnnBackendKnobType_t/c03", "cudnnGenStatsMode_t/c01",
       "CUDNN_BACKEND_TENSOR_DESCRIPTOR/c01 c02 c04 c05 c07 c09 c11 c13 c15 c16 c18 c29",
       "CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR/c01 c03 c05 c07 c09 c11 c13 c15 c21", "CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR/c01 c02 c04 c06",
       "CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR/c02 c03 c05 c07 c09 c11 c13 c30",
       "CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR/c02 c03 c05 c07 c09 c11 c13 c18",
       "CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR/c02 c03 c05 c07 c09 c11 c13 c18",
       "CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR/c07 c09 c11 c13 c15 c16 c24",
       "CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR/c01 c06 c08 c10 c12 c14 c19")  # fmt: skip
@pytest.mark.parametrize("record", RECORDS)
def test_every_attribute_comes_back(cudnn: Any, builder: Any, record: Any) -> None:
    """Every attribute reads back as it was set. An inner descriptor comes back with the same attributes."""
    kind, given = kind_of(RECORDS[record]), attributes(builder, RECORDS[record])
    made = builder.finalized(kind, given)
    for ending, (type_, elements) in given.items():
        name = attribute_name(kind, ending)
        found = cudnn.cudnnBackendGetAttribute(made, name, type_, len(elements))
        assert found.elementCount == len(elements), ending
        if type_ != DESCRIPTOR:
            assert tuple(found.arrayOfElements) == tuple(elements), ending
            continue
        inner = next(
            r for r in vars(RECORDS[record]).values() if hasattr(r, "__hash__") and _is(r, ending, RECORDS[record])
        )
        for part, (part_type, values) in attributes(builder, inner).items():
            assert builder.get(found.arrayOfElements[0], kind_of(inner), part, part_type, len(values)) == tuple(values)
        cudnn.cudnnBackendDestroyDescriptor(found.arrayOfElements[0])


def _is(value: Any, ending: Any, record: Any) -> bool:
    """Return whether the value is the part of the record in the descriptor under the attribute with this ending."""
    field = {"CONV_DESC": "convolution", "PW_DESCRIPTOR": "pointwise"}.get(ending, ending.removesuffix("DESC").lower())
    return value is getattr(record, field)


@shows(f"{GET}/c02", f"{GET}/c03", "cudnnBackendGetAttribute/c05")
@pytest.mark.parametrize("requested", [0, 1, 3, 4, 5, 8])
def test_as_many_elements_as_were_asked_for(cudnn: Any, builder: Any, requested: int) -> None:
    made = builder(RECORDS["tensor"])
    found = cudnn.cudnnBackendGetAttribute(made, Name.CUDNN_ATTR_TENSOR_DIMENSIONS, INT64, requested)
    assert found.elementCount == 4 and tuple(found.arrayOfElements) == (2, 3, 4, 5)[:requested]


@shows(f"{GET}/c02", f"{GET}/c03")
@pytest.mark.parametrize("requested", [0, 2])
def test_one_element_whatever_was_asked_for(cudnn: Any, builder: Any, requested: int) -> None:
    made = builder(RECORDS["tensor"])
    found = cudnn.cudnnBackendGetAttribute(made, Name.CUDNN_ATTR_TENSOR_UNIQUE_ID, INT64, requested)
    assert found.elementCount == 1 and tuple(found.arrayOfElements) == (7,)[:requested]


@shows(*of("TENSOR", "c19", "c20", "c21"))
def test_defaults_of_a_tensor(builder: Any) -> None:
    """A vectorized dimension is ignored where there are no vectors."""
    given = {**attributes(builder, X), "VECTORIZED_DIMENSION": (INT64, (77,))}
    kind = Kind.CUDNN_BACKEND_TENSOR_DESCRIPTOR
    for attributes_ in (attributes(builder, X), given):
        made = builder.finalized(kind, attributes_)
        assert builder.get(made, kind, "VECTOR_COUNT", INT64) == (1,)
        assert builder.get(made, kind, "IS_VIRTUAL", Type.CUDNN_TYPE_BOOLEAN) == (False,)


@shows(*of("OPERATION_POINTWISE", "c18", "c19"), f"{GET}/c01")
def test_defaults_of_a_pointwise_operation(builder: Any) -> None:
    record = RECORDS["two_inputs"]
    given = {k: v for k, v in attributes(builder, record).items() if not k.startswith("ALPHA")}
    made = builder.finalized(kind_of(record), given)
    for ending in ("ALPHA1", "ALPHA2"):
        assert builder.get(made, kind_of(record), ending, Type.CUDNN_TYPE_FLOAT) == (1.0,)


@shows(f"{SET}/c01")
def test_the_last_setting_counts(builder: Any) -> None:
    kind = kind_of(X)
    made = builder.filled(kind, {**attributes(builder, X), "DIMENSIONS": (INT64, (9, 9))})
    builder.set(made, kind, "DIMENSIONS", INT64, X.dims)
    builder.cudnn.cudnnBackendFinalize(made)
    assert builder.get(made, kind, "DIMENSIONS", INT64, 8) == X.dims


@shows("usecase_9_descriptor_life_cycle/c02", f"{FINALIZE}/c02 c06", "cudnnBackendDescriptor_t/c03",
       *(str(parameter.values[2]) for parameter in MISSING))  # fmt: skip
@pytest.mark.parametrize("record, ending, clause", MISSING)
def test_required_attributes(
    cudnn: Any, builder: Any, refuses: Callable[..., bool], record: Any, ending: Any, clause: Any
) -> None:
    kind, given = kind_of(RECORDS[record]), attributes(builder, RECORDS[record])
    made = builder.filled(kind, {k: v for k, v in given.items() if k != ending})
    refuses(BAD_PARAM, clause, cudnn.cudnnBackendFinalize, made)
    builder.set(made, kind, ending, *given[ending])
    cudnn.cudnnBackendFinalize(made)


@shows(f"{SET}/c03", f"{FINALIZE}/c04")
def test_finalised_descriptors_do_not_change(cudnn: Any, builder: Any, refuses: Callable[..., bool]) -> None:
    made = builder(X)
    set_again = (made, Name.CUDNN_ATTR_TENSOR_UNIQUE_ID, INT64, 1, (9,))
    refuses(NOT_INITIALIZED, f"{SET}/c03", cudnn.cudnnBackendSetAttribute, *set_again)
    assert builder.get(made, kind_of(X), "UNIQUE_ID", INT64) == (X.uid,)


@shows(f"{FINALIZE}/c06")
def test_finalised_twice(cudnn: Any, builder: Any, refuses: Callable[..., bool]) -> None:
    refuses(BAD_PARAM, f"{FINALIZE}/c06", cudnn.cudnnBackendFinalize, builder(X))


@shows(f"{GET}/c08", f"{FINALIZE}/c05", "usecase_9_descriptor_life_cycle/c04", "cudnnBackendDescriptor_t/c04")
def test_unfinished_descriptors_are_not_read(cudnn: Any, builder: Any, refuses: Callable[..., bool]) -> None:
    """A descriptor is not read before it is finalised, or after finalising failed."""
    made = builder.filled(kind_of(X), {**attributes(builder, X), "STRIDES": (INT64, (1, 1, -1, 1))})
    asked = (cudnn.cudnnBackendGetAttribute, made, Name.CUDNN_ATTR_TENSOR_UNIQUE_ID, INT64, 1)
    refuses(NOT_INITIALIZED, f"{GET}/c08", *asked)
    refuses(BAD_PARAM, of("TENSOR", "c24")[0], cudnn.cudnnBackendFinalize, made)
    refuses(NOT_INITIALIZED, f"{GET}/c08", *asked)


@shows("usecase_9_descriptor_life_cycle/c06", f"{SET}/c04", f"{GET}/c06", "cudnnBackendAttributeName_t/c02")
@pytest.mark.parametrize("record", ["tensor", "convolution", "knob_choice", "forward", "two_inputs", "statistics"])
def test_attributes_of_other_descriptors(cudnn: Any, builder: Any, refuses: Callable[..., bool], record: str) -> None:
    """Attributes of other descriptors are refused, and so are numbers without an attribute."""
    kind = kind_of(RECORDS[record])
    own = {attribute_name(kind, ending) for ending in attributes(builder, RECORDS[record])}
    foreign = [name for name in Name if name not in own and not name.name.startswith(f"CUDNN_ATTR_{PREFIXES[kind]}_")]
    fresh, made = builder.create(kind), builder(RECORDS[record])
    assert len(foreign) > 50
    for name in [*foreign, -1, 99, 5000]:
        refuses(BAD_PARAM, f"{SET}/c04", cudnn.cudnnBackendSetAttribute, fresh, name, INT64, 1, (1,))
        refuses(BAD_PARAM, f"{GET}/c06", cudnn.cudnnBackendGetAttribute, made, name, INT64, 1)


@shows(f"{SET}/c05", f"{GET}/c07")
@pytest.mark.parametrize("record", RECORDS)
def test_wrong_types(cudnn: Any, builder: Any, refuses: Callable[..., bool], record: Any) -> None:
    """Wrong attribute types are refused, and so are numbers without a type."""
    kind, given = kind_of(RECORDS[record]), attributes(builder, RECORDS[record])
    made = builder.finalized(kind, given)
    scalars = (Type.CUDNN_TYPE_FLOAT, Type.CUDNN_TYPE_DOUBLE)
    objects = (Type.CUDNN_TYPE_HANDLE, DESCRIPTOR, Type.CUDNN_TYPE_VOID_PTR)
    for ending, (right, elements) in given.items():
        fresh, name = builder.create(kind), attribute_name(kind, ending)
        allowed = scalars if right in scalars else (right,)
        for type_ in [*(t for t in Type if t not in (*allowed, *objects)), 17, 99, -1]:
            values = (0,) * len(elements)
            refuses(BAD_PARAM, f"{SET}/c05", cudnn.cudnnBackendSetAttribute, fresh, name, type_, len(values), values)
            refuses(BAD_PARAM, f"{GET}/c07", cudnn.cudnnBackendGetAttribute, made, name, type_, len(values))


# Such a clause says what an attribute holds.
HOLDS = re.compile(
    r"(CUDNN_ATTR_\w+) (?:has attribute type|holds the descriptor|sets the math precision)[^(]*(?:\((?:one )?)?\b(CUDNN_TYPE_\w+)(?:.*element count: ([\w ]+))?"
)
# Users cannot set these attributes.
NOT_SET = re.compile(
    r"_INFO\b|_INFO_|_(?:NUMERICAL_NOTE|RESULTS|(?:GLOBAL|SUPPORTED)_COUNT|WORKSPACE_SIZE|INTERMEDIATES|COMPUTED_\w+)$"
)
# clause -> (attribute, type, number of elements), as the clauses say it
SETTABLE = {
    clause.id: (Name[found[1]], Type[found[2]], found[3] or "1")
    for clause in load_clauses().values()
    if (found := HOLDS.match(clause.text)) and clause.shown_on != "no" and not NOT_SET.search(found[1])
}


# Such a clause says which attributes a descriptor has.
OWNED = [
    clause.id for clause in load_clauses().values() if "attributes of this descriptor type are" in clause.text
]  # fmt: skip


@pytest.mark.ours
@shows(f"{SET}/c05-c07", *SETTABLE, *OWNED)
@pytest.mark.parametrize("section", sorted({clause.partition("/")[0] for clause in SETTABLE}))
def test_what_an_attribute_cannot_hold(cudnn: Any, builder: Any, refuses: Callable[..., bool], section: Any) -> None:
    """Elements of another type, descriptors of another kind, no element, two elements instead of one, and attributes
    of other descriptors are refused."""
    for name in (name for name in Name if not name.name.startswith(f"CUDNN_ATTR_{PREFIXES[Kind[section]]}_")):
        fresh = builder.create(Kind[section])
        refuses(BAD_PARAM, f"{SET}/c04", cudnn.cudnnBackendSetAttribute, fresh, name, INT64, 1, (1,))
    scalars, objects = (
        (Type.CUDNN_TYPE_FLOAT, Type.CUDNN_TYPE_DOUBLE),
        (Type.CUDNN_TYPE_HANDLE, DESCRIPTOR, Type.CUDNN_TYPE_VOID_PTR),
    )
    for name, right, count in (held for clause, held in SETTABLE.items() if clause.startswith(f"{section}/")):
        fresh = builder.create(Kind[section])
        for type_ in (t for t in Type if t not in (right, *objects, *(scalars if right in scalars else ()))):
            refuses(BAD_PARAM, f"{SET}/c05", cudnn.cudnnBackendSetAttribute, fresh, name, type_, 1, (1,))
        for number in (-1 if count.startswith("0") else 0, *((2,) if count.strip() == "1" else ())):
            refuses(BAD_PARAM, f"{SET}/c06", cudnn.cudnnBackendSetAttribute, fresh, name, right, number, (1, 1))
        if right == DESCRIPTOR:
            other = builder.create(Kind.CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR)
            refuses(BAD_PARAM, f"{SET}/c07", cudnn.cudnnBackendSetAttribute, fresh, name, right, 1, (other,))


@shows(f"{SET}/c06", *of("CONVOLUTION", "c05", "c07"), *of("TENSOR", "c05", "c07", "c09", "c15", "c16", "c18"))
@pytest.mark.parametrize("record", RECORDS)
def test_wrong_counts(cudnn: Any, builder: Any, refuses: Callable[..., bool], record: Any) -> None:
    """Counts of zero, two instead of one, and below zero are refused; the earlier value stays."""
    kind, given = kind_of(RECORDS[record]), attributes(builder, RECORDS[record])
    made = builder.filled(kind, given)
    for ending, (type_, elements) in given.items():
        name, values = attribute_name(kind, ending), (elements[0],) * 2
        several = ending in ("DIMENSIONS", "STRIDES", "DILATIONS", "FILTER_STRIDES", "PRE_PADDINGS", "POST_PADDINGS")
        for count in (0, -1) if several else (0, 2, -1):
            refuses(BAD_PARAM, f"{SET}/c06", cudnn.cudnnBackendSetAttribute, made, name, type_, count, values)
    cudnn.cudnnBackendFinalize(made)
    assert builder.get(made, kind, ending, type_, len(elements)) == tuple(elements) or type_ == DESCRIPTOR


@shows(f"{SET}/c06", *of("CONVOLUTION", "c09", "c11", "c13", "c15"), *of("TENSOR", "c11", "c13"))
@pytest.mark.parametrize(
    "ending", ["DIMENSIONS", "STRIDES", "DILATIONS", "FILTER_STRIDES", "PRE_PADDINGS", "POST_PADDINGS"]
)
def test_too_many_dimensions(cudnn: Any, builder: Any, refuses: Callable[..., bool], ending: str) -> None:
    kind = kind_of(X) if ending in ("DIMENSIONS", "STRIDES") else kind_of(SETTINGS)
    made, name = builder.create(kind), attribute_name(kind, ending)
    many = api.CUDNN_DIM_MAX + 1
    cudnn.cudnnBackendSetAttribute(made, name, INT64, many - 1, (1,) * (many - 1))
    refuses(BAD_PARAM, f"{SET}/c06", cudnn.cudnnBackendSetAttribute, made, name, INT64, many, (1,) * many)


@shows(f"{SET}/c07", *of("OPERATION_GEN_STATS", "c02"))
@pytest.mark.parametrize("record, ending, value", [
    ("tensor", "DATA_TYPE", 99), ("tensor", "DATA_TYPE", -1), ("convolution", "CONV_MODE", 2), ("settings", "MODE", 57),
    ("settings", "MATH_PREC", 99), ("settings", "NAN_PROPAGATION", 2), ("knob_choice", "KNOB_TYPE", 24),
    ("knob_choice", "KNOB_TYPE", -1), ("statistics", "MODE", 1), ("statistics", "MATH_PREC", 99),
])  # fmt: skip
def test_values_that_are_no_enumerators(builder: Any, cannot_set: Any, record: str, ending: str, value: int) -> None:
    type_ = attributes(builder, RECORDS[record])[ending][0]
    cannot_set(kind_of(RECORDS[record]), ending, type_, value, clause=f"{SET}/c07")


@shows(f"{SET}/c07")
def test_invalid_values(subject: Subject, cudnn: Any, builder: Any, refuses: Callable[..., bool]) -> None:
    """NULL, too few values, strings, fractions, other objects and numbers beyond 64 bits are refused."""
    made = builder.create(kind_of(X))
    bad = [None] if not subject.is_python else [None, (), "7", 7, (1.5,), ("7",), (None,), (2**63,), (made,)]
    for values in bad:
        wrong = (made, Name.CUDNN_ATTR_TENSOR_UNIQUE_ID, INT64, 1, values)
        refuses(BAD_PARAM, f"{SET}/c07", cudnn.cudnnBackendSetAttribute, *wrong)


@shows(f"{SET}/c07")
@needs("survives_stray_pointers", "NVIDIA's library reads such memory as a tensor, which may end the process")
def test_descriptors_of_another_type(cudnn: Any, builder: Any, cannot_set: Any) -> None:
    """A convolution is refused as a tensor, and so are a destroyed descriptor and NULL."""
    dead = cudnn.cudnnBackendCreateDescriptor(kind_of(X))
    cudnn.cudnnBackendDestroyDescriptor(dead)
    for value in (builder(SETTINGS), builder.create(kind_of(SETTINGS)), None, dead, 7):
        cannot_set(kind_of(RECORDS["forward"]), "X", DESCRIPTOR, value, clause=f"{SET}/c07")


@shows(*of("OPERATION_CONVOLUTION_FORWARD", "c29"), *of("OPERATION_CONVOLUTION_BACKWARD_DATA", "c17"),
       *of("OPERATION_CONVOLUTION_BACKWARD_FILTER", "c17"), *of("OPERATION_POINTWISE", "c23"),
       *of("OPERATION_GEN_STATS", "c18"))  # fmt: skip
@pytest.mark.parametrize("record, ending, clause", [
    ("forward", "X", of("OPERATION_CONVOLUTION_FORWARD", "c29")[0]),
    ("forward", "CONV_DESC", of("OPERATION_CONVOLUTION_FORWARD", "c29")[0]),
    ("backward_data", "DY", of("OPERATION_CONVOLUTION_BACKWARD_DATA", "c17")[0]),
    ("backward_filter", "DW", of("OPERATION_CONVOLUTION_BACKWARD_FILTER", "c17")[0]),
    ("two_inputs", "BDESC", of("OPERATION_POINTWISE", "c23")[0]),
    ("statistics", "SUMDESC", of("OPERATION_GEN_STATS", "c18")[0]),
])  # fmt: skip
def test_unfinished_parts(
    cudnn: Any, builder: Any, refuses: Callable[..., bool], record: str, ending: str, clause: Any
) -> None:
    """A part may be finalised after it was set, but before the whole."""
    if not hasattr(cudnn, "FUNCTIONS"):
        pytest.skip("a foreign library refuses the part when it is set")
    kind, given = kind_of(RECORDS[record]), attributes(builder, RECORDS[record])
    field = {"CONV_DESC": "convolution"}.get(ending, ending.removesuffix("DESC").lower())
    part = getattr(RECORDS[record], field)
    raw = builder.filled(kind_of(part), attributes(builder, part))
    made = builder.filled(kind, {**given, ending: (DESCRIPTOR, (raw,))})
    refuses(BAD_PARAM, clause, cudnn.cudnnBackendFinalize, made)
    cudnn.cudnnBackendFinalize(raw)
    cudnn.cudnnBackendFinalize(made)


@shows("cudnnBackendDestroyDescriptor/c01", "cudnnBackendDescriptor_t/c05")
def test_a_whole_outlives_its_parts(cudnn: Any) -> None:
    builder = Builder(cudnn)
    whole = builder(RECORDS["forward"])
    builder.made.remove(whole)
    builder.destroy()
    found = cudnn.cudnnBackendGetAttribute(whole, Name.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, DESCRIPTOR, 1)
    assert builder.get(found.arrayOfElements[0], kind_of(W), "DIMENSIONS", INT64, 8) == W.dims
    for descriptor in (*found.arrayOfElements, whole):
        cudnn.cudnnBackendDestroyDescriptor(descriptor)


@shows("cudnnBackendInitialize/c01", "cudnnBackendInitialize/c03", "cudnnBackendInitialize/c04")
def test_initialised_again(cudnn: Any, builder: Any, refuses: Callable[..., bool]) -> None:
    """Initialising again clears the attributes and the finalised state; the type may be the same or another."""
    made = builder(X)
    cudnn.cudnnBackendInitialize(made, kind_of(X), 64)
    asked = (cudnn.cudnnBackendGetAttribute, made, Name.CUDNN_ATTR_TENSOR_UNIQUE_ID, INT64, 1)
    refuses(NOT_INITIALIZED, f"{GET}/c08", *asked)
    refuses(BAD_PARAM, "CUDNN_BACKEND_TENSOR_DESCRIPTOR/c10", cudnn.cudnnBackendFinalize, made)
    for ending, (type_, elements) in attributes(builder, Y).items():
        builder.set(made, kind_of(Y), ending, type_, elements)
    cudnn.cudnnBackendFinalize(made)
    assert builder.get(made, kind_of(Y), "UNIQUE_ID", INT64) == (Y.uid,)


@shows("cudnnBackendInitialize/c01")
def test_initialised_as_another_type(cudnn: Any, builder: Any, refuses: Callable[..., bool]) -> None:
    made, choice = builder(X), RECORDS["knob_choice"]
    cudnn.cudnnBackendInitialize(made, kind_of(choice), 64)
    refuses(
        BAD_PARAM, f"{SET}/c04", cudnn.cudnnBackendSetAttribute, made, Name.CUDNN_ATTR_TENSOR_UNIQUE_ID, INT64, 1, (1,)
    )
    for ending, (type_, elements) in attributes(builder, choice).items():
        builder.set(made, kind_of(choice), ending, type_, elements)
    cudnn.cudnnBackendFinalize(made)
    assert builder.get(made, kind_of(choice), "KNOB_VALUE", INT64) == (choice.value,)


@shows("cudnnBackendInitialize/c02", "cudnnBackendInitialize/c06")
@pytest.mark.parametrize("size", [0, 1, 7])
def test_initialised_in_too_little_memory(cudnn: Any, builder: Any, refuses: Callable[..., bool], size: int) -> None:
    """The required size is that of a reference; the refused call leaves the descriptor finalised."""
    made = builder(X)
    refuses(BAD_PARAM, "cudnnBackendInitialize/c06", cudnn.cudnnBackendInitialize, made, kind_of(X), size)
    assert builder.get(made, kind_of(X), "UNIQUE_ID", INT64) == (X.uid,)


@shows("cudnnBackendInitialize/c02", "cudnnBackendInitialize/c04")
@pytest.mark.ours
@pytest.mark.parametrize("size", [8, 9, 2**64 - 1])
def test_initialised_in_enough_memory(cudnn: Any, builder: Any, refuses: Callable[..., bool], size: Any) -> None:
    """Memory of the size of a reference is enough."""
    made = builder(X)
    cudnn.cudnnBackendInitialize(made, kind_of(X), size)
    refuses(
        NOT_INITIALIZED, f"{GET}/c08", cudnn.cudnnBackendGetAttribute, made, Name.CUDNN_ATTR_TENSOR_UNIQUE_ID, INT64, 1
    )


def refuses_everywhere(cudnn: Any, refuses: Callable[..., bool], descriptor: Any) -> None:
    """Check that every call on a descriptor refuses this one."""
    for call, *rest in (
        (cudnn.cudnnBackendDestroyDescriptor,), (cudnn.cudnnBackendFinalize,),
        (cudnn.cudnnBackendSetAttribute, Name.CUDNN_ATTR_TENSOR_UNIQUE_ID, INT64, 1, (1,)),
        (cudnn.cudnnBackendGetAttribute, Name.CUDNN_ATTR_TENSOR_UNIQUE_ID, INT64, 1)
    ):  # fmt: skip
        refuses(BAD_PARAM, "cudnnStatus_t/c05", call, descriptor, *rest)


@shows("cudnnBackendInitialize/c05", "cudnnStatus_t/c05")
def test_null(cudnn: Any, refuses: Callable[..., bool]) -> None:
    refuses(BAD_PARAM, "cudnnBackendInitialize/c05", cudnn.cudnnBackendInitialize, None, kind_of(X), 64)
    refuses_everywhere(cudnn, refuses, None)


@shows("cudnnBackendDestroyDescriptor/c01", "cudnnBackendDescriptor_t/c05", "cudnnStatus_t/c05")
@needs("survives_stray_pointers", "a destroyed descriptor of a foreign library is freed memory")
def test_destroyed_is_refused(cudnn: Any, refuses: Callable[..., bool]) -> None:
    made = cudnn.cudnnBackendCreateDescriptor(kind_of(X))
    cudnn.cudnnBackendDestroyDescriptor(made)
    refuses_everywhere(cudnn, refuses, made)


@shows("cudnnStatus_t/c05")
def test_negative_requests(cudnn: Any, builder: Any, refuses: Callable[..., bool]) -> None:
    refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnBackendGetAttribute, builder(X),
            Name.CUDNN_ATTR_TENSOR_DIMENSIONS, INT64, -1)  # fmt: skip


@shows(*of("INTERMEDIATE_INFO", "c01", "c04", "c08", "c10", "c12", "c13"), *of("KNOB_INFO", "c02", "c06", "c08", "c10", "c12", "c13"),
       *of("LAYOUT_INFO", "c01", "c03", "c05", "c07"), f"{SET}/c04", f"{FINALIZE}/c07")  # fmt: skip
@pytest.mark.parametrize(
    "section, clause", [("INTERMEDIATE_INFO", "c13"), ("KNOB_INFO", "c13"), ("LAYOUT_INFO", "c07")]
)
def test_descriptors_that_are_only_read(
    cudnn: Any, builder: Any, refuses: Callable[..., bool], section: str, clause: str
) -> None:
    """No attribute of the descriptor can be set, and it cannot be finalised."""
    made = builder.create(Kind[f"CUDNN_BACKEND_{section}_DESCRIPTOR"])
    types = {
        "TYPE": Type.CUDNN_TYPE_KNOB_TYPE,
        "TYPES": Type.CUDNN_TYPE_LAYOUT_TYPE,
        "DEPENDENT_ATTRIBUTES": Type.CUDNN_TYPE_ATTRIB_NAME,
    }
    for name in (name for name in Name if name.name.startswith(f"CUDNN_ATTR_{section}_")):
        type_ = types.get(name.name.removeprefix(f"CUDNN_ATTR_{section}_"), INT64)
        refuses(BAD_PARAM, f"{SET}/c04", cudnn.cudnnBackendSetAttribute, made, name, type_, 1, (1,))
    refuses(NOT_SUPPORTED, of(section, clause)[0], cudnn.cudnnBackendFinalize, made)


@pytest.mark.ours
@shows("cudnnBackendAttributeName_t/c03-c05", "cudnnBackendAttributeType_t/c02", "cudnnBackendAttributeType_t@9.1.1/c02",
       "cudnnBackendDescriptorType_t/c02", "cudnnBackendKnobType_t/c04", "cudnnBackendLayoutType_t/c02", "cudnnBackendNumericalNote_t/c02",
       "cudnnBackendHeurMode_t/c01")  # fmt: skip
def test_numbers_of_enumerators(subject: Subject) -> None:
    groups = ((0, 4), (100, 106), (200, 202), (300, 302), (400, 404), (500, 503), (600, 601), (700, 717), (750, 755),
              (770, 774), (800, 802), (900, 907), (1000, 1003), (1100, 1101), (1200, 1203), (1300, 1304))  # fmt: skip
    names = ENUMERATIONS["cudnnBackendAttributeName_t"]
    assert [int(name) for name in names] == [i for first, last in groups for i in range(first, last + 1)]
    for name, count in (
        ("AttributeType", 17),
        ("DescriptorType", 18),
        ("KnobType", 25),
        ("LayoutType", 5),
        ("NumericalNote", 7),
        ("HeurMode", 1),
    ):
        assert [int(member) for member in ENUMERATIONS[f"cudnnBackend{name}_t"]] == list(range(count)), name
