"""List the attributes of every backend descriptor type, as in chapter 9.

Numbers such as "c06" are clauses of the descriptor type's section. docs/errata.md decides what the chapter omits: the
pointwise descriptor has no section (D444); counts and types follow D445, D448, D451, D453, D460, D462 to D465.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..enumerations import CUDNN_DIM_MAX, cudnnNanPropagation_t
from ..enumerations import cudnnBackendAttributeName_t as Name
from ..enumerations import cudnnBackendAttributeType_t as Type
from ..enumerations import cudnnBackendDescriptorType_t as Kind

ALL_SET = (
    "usecase_9_descriptor_life_cycle/c02"  # This clause requires all mandatory attributes to be set before finalising.
)
UNLIMITED = 2**63 - 1
DESCRIPTOR, INT64 = Type.CUDNN_TYPE_BACKEND_DESCRIPTOR, Type.CUDNN_TYPE_INT64
SCALAR = (Type.CUDNN_TYPE_FLOAT, Type.CUDNN_TYPE_DOUBLE)
TENSOR = (Kind.CUDNN_BACKEND_TENSOR_DESCRIPTOR,)
OPERATIONS = tuple(kind for kind in Kind if kind.name.startswith("CUDNN_BACKEND_OPERATION_"))


@dataclass(frozen=True)
class Attribute:
    """Describe one attribute. lowest, highest: bound its number of elements. holds: lists the descriptor types of its
    elements.

    required: the clause that finalising without the attribute violates. unsupported: the clause that declares a
    placeholder unsupported. default: holds its elements if it was not set.
    """

    name: Name
    types: tuple[Type, ...]
    lowest: int = 1
    highest: int = 1
    required: str | None = None
    holds: tuple[Kind, ...] = ()
    default: tuple[Any, ...] = ()
    read_only: bool = False
    unsupported: str | None = None


@dataclass(frozen=True)
class DescriptorType:
    """Describe a descriptor type and its attributes. inconsistent: the clause on values that contradict each other.

    not_finalizable: the clause that says that users cannot finalise it.
    """

    kind: Kind
    attributes: dict[Name, Attribute]
    inconsistent: str
    not_finalizable: str | None = None


def _described(
    kind: str, prefix: str, *attributes: dict[str, Any], inconsistent: str = "", not_finalizable: str | None = None
) -> DescriptorType:
    section = f"CUDNN_BACKEND_{kind}_DESCRIPTOR"
    found = {}
    for given in attributes:
        facts = {**given, "name": Name[f"CUDNN_ATTR_{prefix}_{given['name']}"]}
        for key in ("required", "unsupported"):
            if facts.get(key, "").startswith("c"):
                facts[key] = f"{section}/{facts[key]}"
        found[facts["name"]] = Attribute(**facts)
    return DescriptorType(
        Kind[section], found, f"{section}/{inconsistent}" if inconsistent else "cudnnBackendFinalize/c06",
        f"{section}/{not_finalizable}" if not_finalizable else None,
    )  # fmt: skip


def _one(name: str, *types: Type, **facts: Any) -> dict[str, Any]:
    return {"name": name, "types": types, **facts}


def _many(name: str, *types: Type, lowest: int = 0, highest: int = UNLIMITED, **facts: Any) -> dict[str, Any]:
    return {"name": name, "types": types, "lowest": lowest, "highest": highest, **facts}


def _descriptor(name: str, *holds: Kind, **facts: Any) -> dict[str, Any]:
    return {"name": name, "types": (DESCRIPTOR,), "holds": holds, **facts}


def _per_dimension(name: str, required: str) -> dict[str, Any]:
    return _many(name, INT64, lowest=1, highest=CUDNN_DIM_MAX, required=required)


def _convolution_node(kind: str, prefix: str, inconsistent: str, *tensors: str) -> DescriptorType:
    clauses = ("c10", "c12", "c14")
    return _described(
        f"OPERATION_CONVOLUTION_{kind}", f"OPERATION_CONVOLUTION_{prefix}",
        _one("ALPHA", *SCALAR, required="c04"), _one("BETA", *SCALAR, required="c06"),
        _descriptor("CONV_DESC", Kind.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, required="c08"),
        *(_descriptor(name, *TENSOR, required=clause) for name, clause in zip(tensors, clauses, strict=True)),
        inconsistent=inconsistent,
    )  # fmt: skip


_TYPES = (
    _described(
        "POINTWISE", "POINTWISE",
        _one("MODE", Type.CUDNN_TYPE_POINTWISE_MODE, required=ALL_SET),
        _one("MATH_PREC", Type.CUDNN_TYPE_DATA_TYPE, required=ALL_SET),
        _one("NAN_PROPAGATION", Type.CUDNN_TYPE_NAN_PROPOGATION, default=(cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN,)),
        _one("RELU_LOWER_CLIP", *SCALAR, default=(0.0,)),
        _one("RELU_UPPER_CLIP", *SCALAR, default=(float("inf"),)),
    ),
    _described(
        "CONVOLUTION", "CONVOLUTION",
        _one("COMP_TYPE", Type.CUDNN_TYPE_DATA_TYPE, required="c06"),
        _one("CONV_MODE", Type.CUDNN_TYPE_CONVOLUTION_MODE, required="c08"),
        _per_dimension("DILATIONS", "c10"),
        _per_dimension("FILTER_STRIDES", "c12"),
        _per_dimension("POST_PADDINGS", "c16"),
        _per_dimension("PRE_PADDINGS", "c14"),
        _one("SPATIAL_DIMS", INT64, required=ALL_SET),
    ),
    _described(
        "ENGINE", "ENGINE",
        _descriptor("OPERATION_GRAPH", Kind.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, required="c05"),
        _one("GLOBAL_INDEX", INT64, required="c07"),
        _many("KNOB_INFO", DESCRIPTOR, holds=(Kind.CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR,), read_only=True),
        _many("NUMERICAL_NOTE", Type.CUDNN_TYPE_NUMERICAL_NOTE, read_only=True),
        _many("LAYOUT_INFO", DESCRIPTOR, holds=(Kind.CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR,), read_only=True),
        inconsistent="c18",
    ),
    _described(
        "ENGINECFG", "ENGINECFG",
        _descriptor("ENGINE", Kind.CUDNN_BACKEND_ENGINE_DESCRIPTOR, required="c05"),
        _many("INTERMEDIATE_INFO", DESCRIPTOR, holds=(Kind.CUDNN_BACKEND_INTERMEDIATE_INFO_DESCRIPTOR,), read_only=True),
        _many("KNOB_CHOICES", DESCRIPTOR, holds=(Kind.CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,)),
    ),
    _described(
        "ENGINEHEUR", "ENGINEHEUR",
        _one("MODE", Type.CUDNN_TYPE_HEUR_MODE, required="c06"),
        _descriptor("OPERATION_GRAPH", Kind.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, required="c04"),
        _many("RESULTS", DESCRIPTOR, holds=(Kind.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,), read_only=True),
    ),
    _described(
        "EXECUTION_PLAN", "EXECUTION_PLAN",
        _one("HANDLE", Type.CUDNN_TYPE_HANDLE, required="c07"),
        _descriptor("ENGINE_CONFIG", Kind.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, required="c09"),
        _one("WORKSPACE_SIZE", INT64, read_only=True),
        _many("COMPUTED_INTERMEDIATE_UIDS", INT64, unsupported="c04"),
        _many("RUN_ONLY_INTERMEDIATE_UIDS", INT64),
    ),
    _described(
        "INTERMEDIATE_INFO", "INTERMEDIATE_INFO",
        _one("UNIQUE_ID", INT64, read_only=True),
        _one("SIZE", INT64, read_only=True),
        _many("DEPENDENT_DATA_UIDS", INT64, read_only=True),
        _many("DEPENDENT_ATTRIBUTES", Type.CUDNN_TYPE_ATTRIB_NAME, read_only=True),
        not_finalizable="c13",
    ),
    _described(
        "KNOB_CHOICE", "KNOB_CHOICE",
        _one("KNOB_TYPE", Type.CUDNN_TYPE_KNOB_TYPE, required="c03"),
        _one("KNOB_VALUE", INT64, required="c05"),
    ),
    _described(
        "KNOB_INFO", "KNOB_INFO",
        _one("TYPE", Type.CUDNN_TYPE_KNOB_TYPE, read_only=True),
        _one("MAXIMUM_VALUE", INT64, read_only=True),
        _one("MINIMUM_VALUE", INT64, read_only=True),
        _one("STRIDE", INT64, read_only=True),
        not_finalizable="c13",
    ),
    _described(
        "LAYOUT_INFO", "LAYOUT_INFO",
        _one("TENSOR_UID", INT64, read_only=True),
        _many("TYPES", Type.CUDNN_TYPE_LAYOUT_TYPE, read_only=True),
        not_finalizable="c07",
    ),
    _convolution_node("FORWARD", "FORWARD", "c29", "W", "X", "Y"),
    _convolution_node("BACKWARD_FILTER", "BWD_FILTER", "c17", "DW", "X", "DY"),
    _convolution_node("BACKWARD_DATA", "BWD_DATA", "c17", "W", "DX", "DY"),
    _described(
        "OPERATION_POINTWISE", "OPERATION_POINTWISE",
        _descriptor("PW_DESCRIPTOR", Kind.CUDNN_BACKEND_POINTWISE_DESCRIPTOR, required="c08"),
        _descriptor("XDESC", *TENSOR, required="c10"),
        _descriptor("BDESC", *TENSOR),
        _descriptor("YDESC", *TENSOR, required="c14"),
        _one("ALPHA1", *SCALAR, default=(1.0,)),
        _one("ALPHA2", *SCALAR, default=(1.0,)),
        inconsistent="c23",
    ),
    _described(
        "OPERATION_GEN_STATS", "OPERATION_GENSTATS",
        _one("MODE", Type.CUDNN_TYPE_GENSTATS_MODE, required="c07"),
        _one("MATH_PREC", Type.CUDNN_TYPE_DATA_TYPE, required="c09"),
        _descriptor("XDESC", *TENSOR, required="c11"),
        _descriptor("SUMDESC", *TENSOR, required="c13"),
        _descriptor("SQSUMDESC", *TENSOR, required="c15"),
        inconsistent="c18",
    ),
    _described(
        "OPERATIONGRAPH", "OPERATIONGRAPH",
        _one("HANDLE", Type.CUDNN_TYPE_HANDLE, required="c04"),
        _many("OPS", DESCRIPTOR, lowest=1, holds=OPERATIONS, required="c06"),
        _one("ENGINE_GLOBAL_COUNT", INT64, read_only=True),
        inconsistent="c14",
    ),
    _described(
        "VARIANT_PACK", "VARIANT_PACK",
        _many("UNIQUE_IDS", INT64, required="c05"),
        _many("DATA_POINTERS", Type.CUDNN_TYPE_VOID_PTR, required="c07"),
        _many("INTERMEDIATES", Type.CUDNN_TYPE_VOID_PTR, unsupported="c03"),
        _one("WORKSPACE", Type.CUDNN_TYPE_VOID_PTR, required="c10"),
    ),
    _described(
        "TENSOR", "TENSOR",
        _one("BYTE_ALIGNMENT", INT64, required="c10"),
        _one("DATA_TYPE", Type.CUDNN_TYPE_DATA_TYPE, required="c08"),
        _per_dimension("DIMENSIONS", "c12"),
        _per_dimension("STRIDES", "c14"),
        _one("VECTOR_COUNT", INT64, default=(1,)),
        _one("VECTORIZED_DIMENSION", INT64),
        _one("UNIQUE_ID", INT64, required="c06"),
        _one("IS_VIRTUAL", Type.CUDNN_TYPE_BOOLEAN, default=(False,)),
    ),
)  # fmt: skip
TYPES: dict[Kind, DescriptorType] = {found.kind: found for found in _TYPES}
