"""Holds cases of the parameter packs of fused operations: every attribute of every sequence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import (
    ENUMERATIONS,
    cudnnActivationMode_t,
    cudnnBatchNormMode_t,
    cudnnConvolutionMode_t,
    cudnnFusedOps_t,
    cudnnFusedOpsPointerPlaceHolder_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnReorderType_t,
)
from dualdnn.api.enumerations import cudnnFusedOpsConstParamLabel_t as Const
from dualdnn.api.enumerations import cudnnFusedOpsVariantParamLabel_t as Variant
from dualdnn.api.operations import ActivationSpec, ConvolutionSpec, FilterSpec, TensorSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, NHWC
from dualdnn.api.status import BAD_PARAM, INCORRECT_PARAMETER
from dualdnn.api.support.fused_ops import CONST, VARIANT, const_type, scalar_type
from dualdnn.conformance.calls.descriptors import made
from dualdnn.conformance.marks import shows
from dualdnn.conformance.report import load_clauses

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject

CLAUSES = load_clauses()
PER_ACTIVATION, SPATIAL, PERSISTENT = cudnnBatchNormMode_t
NULL, ELEMENT, PACK = cudnnFusedOpsPointerPlaceHolder_t
SET = "cudnnSetFusedOpsConstParamPackAttribute"
GET = "cudnnGetFusedOpsConstParamPackAttribute"
SET_VARIANT = "cudnnSetFusedOpsVariantParamPackAttribute"
GET_VARIANT = "cudnnGetFusedOpsVariantParamPackAttribute"
CREATORS = ("cudnnCreateFusedOpsConstParamPack", "cudnnCreateFusedOpsVariantParamPack", "cudnnCreateFusedOpsPlan")
sequences = pytest.mark.parametrize("ops", cudnnFusedOps_t, ids=lambda ops: ops.name.removeprefix("CUDNN_FUSED_"))
# The case sets attributes to these values; no other attribute and no new pack has them.
CONTENTS: dict[str, Any] = {
    "cudnnTensorDescriptor_t": (TensorSpec(HALF, (2, 3, 5, 7), (131, 1, 23, 3)), TensorSpec.packed(DOUBLE, (1, 3, 1, 1))),
    "cudnnFilterDescriptor_t": (FilterSpec(FLOAT, NHWC, (4, 3, 2, 5)), FilterSpec(HALF, NHWC, (2, 3, 1, 1))),
    "cudnnActivationDescriptor_t": tuple(ActivationSpec(mode, cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN, 1.5) for mode in (cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnActivationMode_t.CUDNN_ACTIVATION_IDENTITY) ),
    "cudnnConvolutionDescriptor_t": tuple(ConvolutionSpec(cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, FLOAT, padding, (2, 3), (1, 2), 3, cudnnMathType_t.CUDNN_TENSOR_OP_MATH, cudnnReorderType_t.CUDNN_NO_REORDER) for padding in ((1, 0), (0, 2)) ),
    "cudnnBatchNormMode_t": (SPATIAL, PERSISTENT), "cudnnFusedOpsPointerPlaceHolder_t": (ELEMENT, PACK),
}  # fmt: skip
SCALARS = {"size_t": (2**40 + 1, 2**64 - 1), "int64_t": (2**40 + 3, -(2**63)), "double": (0.1, -1e300)}
GETTERS = {
    "cudnnTensorDescriptor_t": lambda cudnn, d: cudnn.cudnnGetTensorNdDescriptor(d, 8),
    "cudnnFilterDescriptor_t": lambda cudnn, d: cudnn.cudnnGetFilterNdDescriptor(d, 8),
    "cudnnActivationDescriptor_t": lambda cudnn, d: cudnn.cudnnGetActivationDescriptor(d),
    "cudnnConvolutionDescriptor_t": lambda cudnn, d: (cudnn.cudnnGetConvolutionNdDescriptor(d, 2), cudnn.cudnnGetConvolutionGroupCount(d), cudnn.cudnnGetConvolutionMathType(d), cudnn.cudnnGetConvolutionReorderType(d)),
}  # fmt: skip


def clauses_of(type_name: Any, pattern: Any) -> Any:
    """Return the matching clauses of a type; the tables have a clause for each attribute of each sequence."""
    found = [
        name for name, clause in CLAUSES.items() if clause.function == type_name and re.search(pattern, clause.text)
    ]
    assert found, pattern
    return tuple(found)


def listed(type_name: Any, ops: Any, pattern: Any) -> Any:
    """Return the labels of one sequence, by the clauses of their presets."""
    text = "\n".join(CLAUSES[name].text for name in clauses_of(type_name, pattern))
    return set(re.findall(rf"{ops.name}: (CUDNN_\w+) is", text))


CONST_LABELS = "cudnnFusedOpsConstParamLabel_t"
VARIANT_LABELS = "cudnnFusedOpsVariantParamLabel_t"


def given(cudnn: Any, kind: Any, content: Any) -> Any:
    """Return the setter's argument for some content."""
    return made(cudnn, content) if kind in GETTERS else content


def shown(cudnn: Any, kind: Any, param: Any) -> Any:
    """Return the result of a getter in a form that can be compared."""
    if param is None or kind not in GETTERS:
        return param
    return GETTERS[kind](cudnn, param)


def packs_of(kind: Any) -> Any:
    """Return a fixture: a function that makes packs of this kind, which are destroyed afterwards."""

    @pytest.fixture
    def pack(cudnn: Any) -> Iterator[Any]:
        made = []

        def make(ops: Any) -> Any:
            made.append(getattr(cudnn, f"cudnnCreateFusedOps{kind}ParamPack")(ops))
            return made[-1]

        yield make
        for one in made:
            getattr(cudnn, f"cudnnDestroyFusedOps{kind}ParamPack")(one)

    return pack


const_pack, variant_pack = packs_of("Const"), packs_of("Variant")


@shows("cudnnFusedOps_t/c02", "cudnnCreateFusedOpsPlan/c01",
       *(f"cudnnDestroyFusedOps{kind}/c0{n}" for kind in ("ConstParamPack", "VariantParamPack", "Plan") for n in (1, 2)),
       "cudnnCreateFusedOpsConstParamPack/c04", "cudnnCreateFusedOpsVariantParamPack/c02", "cudnnCreateFusedOpsPlan/c05",
       *(f"cudnnFusedOps{kind}_t/c0{n}" for kind in ("ConstParamPack", "VariantParamPack", "Plan") for n in (1, 2)))  # fmt: skip
@sequences
@pytest.mark.parametrize("creator", CREATORS)
def test_create_and_destroy(subject: Subject, cudnn: Any, refuses: Callable[..., bool], creator: Any, ops: Any) -> None:
    """Objects of one sequence are independent of each other; a destroyed object is refused."""
    assert [int(member) for member in ENUMERATIONS["cudnnFusedOps_t"]] == list(range(7))
    first, second = getattr(cudnn, creator)(ops), getattr(cudnn, creator)(ops)
    assert first is not second
    destroy = getattr(cudnn, creator.replace("Create", "Destroy"))
    for made_object in (first, second):
        destroy(made_object)
        if subject.survives_stray_pointers:
            refuses(BAD_PARAM, "cudnnStatus_t/c05", destroy, made_object)


@shows("cudnnDestroyFusedOpsPlan/c03")
def test_destroy_of_null(cudnn: Any) -> None:
    cudnn.cudnnDestroyFusedOpsPlan(None)


@shows("cudnnStatus_t/c05")
def test_destroy_of_null_packs(cudnn: Any, refuses: Callable[..., bool]) -> None:
    for name in ("cudnnDestroyFusedOpsConstParamPack", "cudnnDestroyFusedOpsVariantParamPack"):
        refuses(BAD_PARAM, INCORRECT_PARAMETER, getattr(cudnn, name), None)


@shows(*clauses_of(CONST_LABELS, "after creation of the pack"), f"{GET}/c03", "cudnnFusedOpsPointerPlaceHolder_t/c02")
@sequences
def test_presets(cudnn: Any, const_pack: Any, ops: Any) -> None:
    pack = const_pack(ops)
    names = {label.name for label in CONST[ops]}
    if tabled := listed(CONST_LABELS, ops, "after creation of the pack"):
        added = (
            {"CUDNN_PARAM_BN_Z_EQBIAS_PLACEHOLDER"} if ops.name.endswith("CONV_SCALE_BIAS_ADD_ACTIVATION") else set()
        )
        assert names == tabled | added
    for label in CONST[ops]:
        param, is_null = getattr(cudnn, GET)(pack, label)
        kind = const_type(label)
        preset = {"cudnnBatchNormMode_t": PER_ACTIVATION, "cudnnFusedOpsPointerPlaceHolder_t": NULL}.get(kind)
        assert param == preset, label.name
        assert bool(is_null) == (kind in GETTERS), label.name
    assert [int(member) for member in ENUMERATIONS["cudnnFusedOpsPointerPlaceHolder_t"]] == [0, 1, 2]


@shows(*clauses_of(CONST_LABELS, r": (setting )?CUDNN_PARAM_\w+ takes"), f"{SET}/c01", f"{SET}/c03", f"{SET}/c04",
       *(f"{GET}/c0{n}" for n in (1, 2, 4, 5)), f"{CONST_LABELS}/c001", f"{CONST_LABELS}/c002",
       "cudnnFusedOpsPointerPlaceHolder_t/c01")  # fmt: skip
@sequences
def test_every_attribute_comes_back(cudnn: Any, const_pack: Any, ops: Any) -> None:
    """Every attribute comes back, twice with other contents. Descriptors may change after they were set, and no
    attribute touches another."""
    assert [int(member) for member in Const] == list(range(39))
    pack, labels = const_pack(ops), CONST[ops]
    for turn in (0, 1):
        wanted = {}
        for label in labels:
            kind = const_type(label)
            contents = CONTENTS[kind]
            chosen = contents[(turn + labels.index(label)) % 2]
            param = given(cudnn, kind, chosen)
            wanted[label] = shown(cudnn, kind, param)
            getattr(cudnn, SET)(pack, label, param)
            if kind == "cudnnTensorDescriptor_t":
                cudnn.cudnnSetTensorNdDescriptor(param, FLOAT, 4, (9, 9, 9, 9), (729, 81, 9, 1))
            elif kind in GETTERS:
                getattr(cudnn, f"cudnnDestroy{kind.removeprefix('cudnn').removesuffix('_t')}")(param)
        for label in labels:
            param, is_null = getattr(cudnn, GET)(pack, label)
            assert is_null == 0
            assert shown(cudnn, const_type(label), param) == wanted[label], label.name


@pytest.mark.blind("a result off by one", "isNULL, of which other cases are")
@shows(f"{GET}/c02")
@sequences
def test_what_was_got_is_a_copy(cudnn: Any, const_pack: Any, ops: Any) -> None:
    """A getter returns a copy, so changing that leaves the pack as it is."""
    label = next(label for label in CONST[ops] if const_type(label) == "cudnnTensorDescriptor_t")
    pack, content = const_pack(ops), CONTENTS["cudnnTensorDescriptor_t"][0]
    getattr(cudnn, SET)(pack, label, made(cudnn, content))
    copy = getattr(cudnn, GET)(pack, label).param
    cudnn.cudnnSetTensorNdDescriptor(copy, FLOAT, 4, (9, 9, 9, 9), (729, 81, 9, 1))
    again = getattr(cudnn, GET)(pack, label).param
    assert cudnn.cudnnGetTensorNdDescriptor(again, 4).dimA == content.dims


@shows(f"{SET}/c02", f"{GET}/c03")
@sequences
def test_null_is_recorded(cudnn: Any, const_pack: Any, ops: Any) -> None:
    pack = const_pack(ops)
    for label in CONST[ops]:
        kind = const_type(label)
        getattr(cudnn, SET)(pack, label, given(cudnn, kind, CONTENTS[kind][0]))
        getattr(cudnn, SET)(pack, label, None)
        if kind in GETTERS:
            assert tuple(getattr(cudnn, GET)(pack, label)) == (None, 1), label.name


@shows(f"{SET}/c02", f"{GET}/c03")
@sequences
def test_null_is_recorded_for_values(cudnn: Any, const_pack: Any, ops: Any) -> None:
    pack = const_pack(ops)
    for label in CONST[ops]:
        kind = const_type(label)
        if kind not in GETTERS:
            getattr(cudnn, SET)(pack, label, CONTENTS[kind][0])
            getattr(cudnn, SET)(pack, label, None)
            assert getattr(cudnn, GET)(pack, label).isNULL, label.name


@shows(f"{SET}/c05-c07", f"{GET}/c06 c09")
@sequences
def test_other_labels(cudnn: Any, const_pack: Any, refuses: Callable[..., bool], ops: Any) -> None:
    """Invalid labels, and labels of other sequences, are refused, and so is anything but a pack."""
    pack = const_pack(ops)
    for label in (-1, 39, 2**31 - 1):
        refuses(BAD_PARAM, f"{SET}/c06", getattr(cudnn, SET), pack, label, None)
        refuses(BAD_PARAM, f"{GET}/c09", getattr(cudnn, GET), pack, label)
    for label in set(Const) - set(CONST[ops]):
        refuses(BAD_PARAM, f"{SET}/c07", getattr(cudnn, SET), pack, label, None)
        refuses(BAD_PARAM, f"{GET}/c09", getattr(cudnn, GET), pack, label)
    refuses(BAD_PARAM, f"{SET}/c05", getattr(cudnn, SET), None, CONST[ops][0], None)
    refuses(BAD_PARAM, f"{GET}/c06", getattr(cudnn, GET), None, CONST[ops][0])


@shows(INCORRECT_PARAMETER)
@pytest.mark.parametrize("value", [-1, 3, 2**31 - 1])
def test_no_enumerators(cudnn: Any, const_pack: Any, refuses: Callable[..., bool], value: Any) -> None:
    pack = const_pack(cudnnFusedOps_t.CUDNN_FUSED_SCALE_BIAS_ACTIVATION_CONV_BNSTATS)
    for label in (Const.CUDNN_PARAM_BN_MODE, Const.CUDNN_PARAM_WDATA_PLACEHOLDER):
        refuses(BAD_PARAM, INCORRECT_PARAMETER, getattr(cudnn, SET), pack, label, value)
        assert getattr(cudnn, GET)(pack, label).param == 0


@shows(INCORRECT_PARAMETER, *clauses_of(CONST_LABELS, r"takes an initialised \w+Descriptor_t"))
def test_descriptors_that_were_not_set(cudnn: Any, const_pack: Any, refuses: Callable[..., bool]) -> None:
    fresh = {kind: getattr(cudnn, f"cudnnCreate{kind.removeprefix('cudnn').removesuffix('_t')}")() for kind in GETTERS}
    for ops in cudnnFusedOps_t:
        pack = const_pack(ops)
        for label in (label for label in CONST[ops] if const_type(label) in fresh):
            refuses(BAD_PARAM, INCORRECT_PARAMETER, getattr(cudnn, SET), pack, label, fresh[const_type(label)])


@shows(INCORRECT_PARAMETER)
def test_descriptors_of_another_type(
    subject: Subject, cudnn: Any, const_pack: Any, refuses: Callable[..., bool]
) -> None:
    """A filter for a tensor, a placeholder for a mode, a destroyed descriptor and a number for a descriptor are
    refused."""
    if not subject.is_python:
        pytest.skip("C has no types behind void *")
    pack = const_pack(cudnnFusedOps_t.CUDNN_FUSED_SCALE_BIAS_ACTIVATION_WGRAD)
    gone = made(cudnn, CONTENTS["cudnnTensorDescriptor_t"][0])
    cudnn.cudnnDestroyTensorDescriptor(gone)
    x, mode = Const.CUDNN_PARAM_XDESC, Const.CUDNN_PARAM_BN_MODE
    for label, param in (
        (x, made(cudnn, CONTENTS["cudnnFilterDescriptor_t"][0])),
        (mode, ELEMENT),
        (x, gone),
        (x, 1),
        (mode, "1"),
    ):
        refuses(BAD_PARAM, INCORRECT_PARAMETER, getattr(cudnn, SET), pack, label, param)


@shows(*clauses_of(VARIANT_LABELS, "by default"))
@sequences
def test_variant_presets(cudnn: Any, variant_pack: Any, ops: Any) -> None:
    pack = variant_pack(ops)
    if tabled := listed(VARIANT_LABELS, ops, "by default"):
        assert {label.name for label in VARIANT[ops]} == tabled
    for label in VARIANT[ops]:
        assert getattr(cudnn, GET_VARIANT)(pack, label) == (None if scalar_type(label) is None else 0), label.name


@shows("cudnnSetFusedOpsVariantParamPackAttribute/c01 c02 c05", "cudnnGetFusedOpsVariantParamPackAttribute/c01-c03", "cudnnFusedOpsVariantParamLabel_t/c001-c003")  # fmt: skip
@sequences
def test_every_variant_attribute_comes_back(subject: Subject, cudnn: Any, variant_pack: Any, ops: Any) -> None:
    """Scalars are copied; pointers are kept as given, even if they are invalid."""
    assert [int(member) for member in Variant] == [*range(24), *range(100, 104)]
    pack, labels = variant_pack(ops), VARIANT[ops]
    for turn in (0, 1):
        wanted = {}
        for label in labels:
            kind = scalar_type(label)
            if kind is None and not subject.is_python:
                continue  # The binding gives back memory that it knows, which needs a device.
            wanted[label] = 4096 * (2 + 3 * turn + int(label)) + 1 if kind is None else SCALARS[kind][turn]
            getattr(cudnn, SET_VARIANT)(pack, label, wanted[label])
        for label, value in wanted.items():
            assert getattr(cudnn, GET_VARIANT)(pack, label) == value, label.name
    for label in wanted:
        getattr(cudnn, SET_VARIANT)(pack, label, None)


@shows(f"{SET_VARIANT}/c01", f"{GET_VARIANT}/c01")
def test_memory_comes_back(subject: Subject, cudnn: Any, handle: Any, variant_pack: Any) -> None:
    """Another pointer replaces the first, and NULL replaces both."""
    pack = variant_pack(cudnnFusedOps_t.CUDNN_FUSED_SCALE_BIAS_ACTIVATION_CONV_BNSTATS)
    for buffer in (handle.to_device(np.zeros(7, np.float32)), handle.to_device(np.zeros(3, np.float32)), None):
        getattr(cudnn, SET_VARIANT)(pack, Variant.CUDNN_PTR_YSUM, buffer)
        found = getattr(cudnn, GET_VARIANT)(pack, Variant.CUDNN_PTR_YSUM)
        assert found is buffer or found.address == buffer.address
    assert getattr(cudnn, GET_VARIANT)(pack, Variant.CUDNN_PTR_YSQSUM) is None


@shows(f"{SET_VARIANT}/c03 c04", f"{GET_VARIANT}/c04 c06")
@sequences
def test_other_variant_labels(cudnn: Any, variant_pack: Any, refuses: Callable[..., bool], ops: Any) -> None:
    pack = variant_pack(ops)
    for label in (-1, 24, 99, 104, *(set(Variant) - set(VARIANT[ops]))):
        refuses(BAD_PARAM, f"{SET_VARIANT}/c04", getattr(cudnn, SET_VARIANT), pack, label, None)
        refuses(BAD_PARAM, f"{GET_VARIANT}/c06", getattr(cudnn, GET_VARIANT), pack, label)
    refuses(BAD_PARAM, f"{SET_VARIANT}/c03", getattr(cudnn, SET_VARIANT), None, VARIANT[ops][0], None)
    refuses(BAD_PARAM, f"{GET_VARIANT}/c04", getattr(cudnn, GET_VARIANT), None, VARIANT[ops][0])


@shows(INCORRECT_PARAMETER)
def test_scalars_of_another_type(subject: Subject, cudnn: Any, variant_pack: Any, refuses: Callable[..., bool]) -> None:
    if not subject.is_python:
        pytest.skip("C has no types behind void *")
    pack = variant_pack(cudnnFusedOps_t.CUDNN_FUSED_BN_FINALIZE_STATISTICS_TRAINING)
    size, count, factor, _ = (
        label for label in VARIANT[cudnnFusedOps_t.CUDNN_FUSED_BN_FINALIZE_STATISTICS_TRAINING] if scalar_type(label)
    )
    for label, value in ((size, -1), (size, 2**64), (count, 1.5), (count, 2**63), (factor, "x"), (factor, [1.0])):
        refuses(BAD_PARAM, INCORRECT_PARAMETER, getattr(cudnn, SET_VARIANT), pack, label, value)
        assert getattr(cudnn, GET_VARIANT)(pack, label) == 0
