"""Implement one mechanism for all descriptor types: setting attributes, finalising, reading them back."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np

from ..descriptors import BackendDescriptor
from ..enumerations import (
    cudnnBackendAttributeName_t,
    cudnnBackendHeurMode_t,
    cudnnBackendKnobType_t,
    cudnnBackendLayoutType_t,
    cudnnBackendNumericalNote_t,
    cudnnConvolutionMode_t,
    cudnnDataType_t,
    cudnnGenStatsMode_t,
    cudnnNanPropagation_t,
    cudnnPointwiseMode_t,
)
from ..enumerations import cudnnBackendAttributeName_t as Name
from ..enumerations import cudnnBackendAttributeType_t as Type
from ..enumerations import cudnnBackendDescriptorType_t as Kind
from ..handle import Handle
from ..status import BAD_PARAM, NOT_INITIALIZED, NOT_SUPPORTED, CudnnError, expect
from .attributes import TYPES, Attribute

SET = "cudnnBackendSetAttribute"
GET = "cudnnBackendGetAttribute"
FINALIZE = "cudnnBackendFinalize"
ENUMERATIONS: dict[Type, type[IntEnum]] = {
    Type.CUDNN_TYPE_DATA_TYPE: cudnnDataType_t,
    Type.CUDNN_TYPE_CONVOLUTION_MODE: cudnnConvolutionMode_t,
    Type.CUDNN_TYPE_HEUR_MODE: cudnnBackendHeurMode_t,
    Type.CUDNN_TYPE_KNOB_TYPE: cudnnBackendKnobType_t,
    Type.CUDNN_TYPE_NAN_PROPOGATION: cudnnNanPropagation_t,
    Type.CUDNN_TYPE_NUMERICAL_NOTE: cudnnBackendNumericalNote_t,
    Type.CUDNN_TYPE_LAYOUT_TYPE: cudnnBackendLayoutType_t,
    Type.CUDNN_TYPE_ATTRIB_NAME: cudnnBackendAttributeName_t,
    Type.CUDNN_TYPE_POINTWISE_MODE: cudnnPointwiseMode_t,
    Type.CUDNN_TYPE_GENSTATS_MODE: cudnnGenStatsMode_t,
}
INT64_RANGE = range(-(2**63), 2**63)
ALREADY = "{!r} has been finalised already"


@dataclass(frozen=True)
class Finalized:
    """Hold the state of a finalised descriptor. It is immutable and hashable, so it outlives the descriptor and keys
    cached plans.

    record: what the attributes describe. elements: holds (attribute, its elements), in which descriptors are
    ``Finalized``.
    """

    kind: Kind
    record: Any
    elements: tuple[tuple[Name, tuple[Any, ...]], ...]

    def of(self, name: Name) -> tuple[Any, ...]:
        """Return the elements of an attribute, or an empty tuple."""
        return dict(self.elements).get(name, ())


class Given:
    """Give access to the attributes of a descriptor that is being finalised; the end of a name selects an attribute."""

    def __init__(self, descriptor: BackendDescriptor) -> None:
        self.type = TYPES[descriptor.kind]
        self.by_ending = {name.name: name for name in self.type.attributes}
        self.was_set = frozenset(descriptor.elements)
        self.elements: dict[Name, tuple[Any, ...]] = {}
        for name, attribute in self.type.attributes.items():
            if name in descriptor.elements:
                self.elements[name] = tuple(self._settled(attribute, each) for each in descriptor.elements[name])
            elif attribute.required:
                raise CudnnError(BAD_PARAM, attribute.required, f"{name.name} is required and was not set")
            elif attribute.default:
                self.elements[name] = attribute.default

    def _settled(self, attribute: Attribute, element: Any) -> Any:
        """Return an element; a descriptor is returned in its finalised state."""
        if not isinstance(element, BackendDescriptor):
            return element
        clause = self.type.inconsistent
        for condition, broken, then in (
            (element.alive, clause, "was destroyed since"),
            (element.kind in attribute.holds, clause, "has begun anew with another type"),
            (element.spec is not None, self._unfinalized_clause(element), "has not been finalised"),
        ):
            text = partial("{!r}, to which {} was set, {}".format, element, attribute.name.name, then)
            expect(condition, BAD_PARAM, broken, text)
        return element.spec

    def _unfinalized_clause(self, element: BackendDescriptor) -> str:
        named = {
            Kind.CUDNN_BACKEND_ENGINE_DESCRIPTOR: "CUDNN_BACKEND_ENGINE_DESCRIPTOR/c17",
            Kind.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: "CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR/c12",
        }
        return named.get(self.type.kind, self.type.inconsistent)

    def name(self, ending: str) -> Name:
        """Return the attribute whose name has this ending."""
        return next(known for text, known in self.by_ending.items() if text.endswith(f"_{ending}"))

    def all(self, ending: str) -> tuple[Any, ...]:
        """Return the elements of the attribute."""
        return self.elements.get(self.name(ending), ())

    def one(self, ending: str) -> Any:
        """Return the only element of the attribute, or None if it was not set."""
        return next(iter(self.all(ending)), None)

    def record(self, ending: str) -> Any:
        """Return the record of the descriptor in the attribute."""
        found = self.one(ending)
        return None if found is None else found.record

    def is_set(self, ending: str) -> bool:
        """Return whether the attribute was set; its default does not count."""
        return self.name(ending) in self.was_set


# A Finalizer returns a descriptor's record and the elements of its read-only attributes.
Finalizer = Callable[[Given], tuple[Any, Mapping[Name, tuple[Any, ...]]]]
FINALIZERS: dict[Kind, Finalizer] = {}


def finalizes(kind: Kind) -> Callable[[Callable[[Given], Any]], Callable[[Given], Any]]:
    """Return a decorator that registers a function; it makes the record of a descriptor type without read-only
    attributes."""

    def register(make: Callable[[Given], Any]) -> Callable[[Given], Any]:
        FINALIZERS[kind] = lambda given: (make(given), {})
        return make

    return register


def finalizes_with_results(kind: Kind) -> Callable[[Finalizer], Finalizer]:
    """Return a decorator that registers a function; it makes a descriptor type's record and the elements of its
    read-only attributes."""

    def register(make: Finalizer) -> Finalizer:
        FINALIZERS[kind] = make
        return make

    return register


def create(kind: Kind) -> BackendDescriptor:
    """Return a new descriptor of this type."""
    text = f"descriptors of type {kind.name} cannot be created"
    known = kind in FINALIZERS or TYPES[kind].not_finalizable is not None
    expect(known, NOT_SUPPORTED, "cudnnBackendCreateDescriptor/c04", text)
    return BackendDescriptor(kind)


def set_attribute(descriptor: BackendDescriptor, name: Name, kind: Type, count: int, elements: Any) -> None:
    """Set an attribute of a descriptor that has not been finalised."""
    expect(descriptor.spec is None, NOT_INITIALIZED, f"{SET}/c03", partial(ALREADY.format, descriptor))
    attribute = TYPES[descriptor.kind].attributes.get(name)
    if attribute is None or attribute.read_only:
        what = "no attribute" if attribute is None else "a read-only attribute"
        raise CudnnError(BAD_PARAM, f"{SET}/c04", f"{name.name} is {what} of a {descriptor.kind.name}")
    _expect_type(attribute, kind, f"{SET}/c05")
    if attribute.unsupported:
        raise CudnnError(NOT_SUPPORTED, attribute.unsupported, f"{name.name} is a placeholder, which cannot be set")
    few_or_many = f"{name.name} has {attribute.lowest} to {attribute.highest} elements, {count} are given"
    expect(attribute.lowest <= count <= attribute.highest, BAD_PARAM, f"{SET}/c06", few_or_many)
    descriptor.elements[name] = _checked(attribute, kind, count, elements)


def _expect_type(attribute: Attribute, kind: Type, clause: str) -> None:
    if kind not in attribute.types:
        wanted = " or ".join(known.name for known in attribute.types)
        text = f"the elements of {attribute.name.name} are {wanted}, not {kind.name}"
        expect(False, BAD_PARAM, clause, text)


def _checked(attribute: Attribute, kind: Type, count: int, elements: Any) -> tuple[Any, ...]:
    """Return the elements in the form that the descriptor stores; raise CudnnError if they are invalid."""
    clause, name = f"{SET}/c07", attribute.name.name
    if count == 0:
        return ()
    if isinstance(elements, (str, bytes)) or not hasattr(elements, "__len__"):
        raise CudnnError(BAD_PARAM, clause, f"arrayOfElements of {name} is {elements!r}, no array of {count} elements")
    listed: Sequence[Any] = list(elements)
    expect(len(listed) >= count, BAD_PARAM, clause, f"arrayOfElements of {name} has {len(listed)} of {count} elements")
    found = []
    for value in listed[:count]:
        try:
            found.append(_element(attribute, kind, value))
        except Exception:  # A foreign object may raise anything.
            raise CudnnError(BAD_PARAM, clause, f"{value!r} is not an element of {name}, of type {kind.name}") from None
    return tuple(found)


def _element(attribute: Attribute, kind: Type, value: Any) -> Any:
    """Return one element; raise any exception if the value does not have this type."""
    if kind == Type.CUDNN_TYPE_VOID_PTR:
        return value
    if kind == Type.CUDNN_TYPE_HANDLE:
        return _instance(value, isinstance(value, Handle))
    if kind == Type.CUDNN_TYPE_BACKEND_DESCRIPTOR:
        usable = isinstance(value, BackendDescriptor) and value.alive and value.kind in attribute.holds
        return _instance(value, usable)
    if kind in (Type.CUDNN_TYPE_FLOAT, Type.CUDNN_TYPE_DOUBLE):
        return _real(value, kind)
    number = operator.index(value)
    if kind == Type.CUDNN_TYPE_INT64:
        return _instance(number, number in INT64_RANGE)
    if kind == Type.CUDNN_TYPE_BOOLEAN:
        return bool(_instance(number, number in (0, 1)))
    member = ENUMERATIONS[kind](number)
    return _instance(member, not member.name.endswith(("_COUNT", "_COUNTS")))


def _instance(value: Any, allowed: bool) -> Any:
    if not allowed:
        raise TypeError(value)
    return value


def _real(value: Any, kind: Type) -> float:
    number = float(_instance(value, not isinstance(value, (str, bytes))))
    if kind == Type.CUDNN_TYPE_DOUBLE:
        return number
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def finalize(descriptor: BackendDescriptor) -> None:
    """Check all attributes and make the descriptor immutable."""
    expect(descriptor.spec is None, BAD_PARAM, f"{FINALIZE}/c06", partial(ALREADY.format, descriptor))
    found = TYPES[descriptor.kind]
    if found.not_finalizable:
        raise CudnnError(NOT_SUPPORTED, found.not_finalizable, f"a {found.kind.name} cannot be finalised, only queried")
    given = Given(descriptor)
    record, results = FINALIZERS[descriptor.kind](given)
    elements = {**given.elements, **results}
    descriptor.spec = Finalized(descriptor.kind, record, tuple(elements.items()))


def get_attribute(descriptor: BackendDescriptor, name: Name, kind: Type, requested: int) -> tuple[int, tuple[Any, ...]]:
    """Return the number of elements of a finalised descriptor's attribute, and at most ``requested`` of them."""
    unready = partial("{!r}: attributes are read from finalised descriptors".format, descriptor)
    expect(descriptor.spec is not None, NOT_INITIALIZED, f"{GET}/c08", unready)
    attribute = TYPES[descriptor.kind].attributes.get(name)
    if attribute is None:
        raise CudnnError(BAD_PARAM, f"{GET}/c06", f"{name.name} is not an attribute of a {descriptor.kind.name}")
    _expect_type(attribute, kind, f"{GET}/c07")
    expect(requested >= 0, BAD_PARAM, "cudnnStatus_t/c05", f"requestedElementCount is {requested}")
    elements = descriptor.spec.of(name)
    return len(elements), tuple(_shown(element, kind) for element in elements[:requested])


def _shown(element: Any, kind: Type) -> Any:
    """Return an element for the caller; a descriptor is returned as a new, finalised one."""
    if isinstance(element, Finalized):
        return BackendDescriptor(element.kind, element)
    if kind == Type.CUDNN_TYPE_FLOAT and math.isfinite(element):
        return _real(element, kind)
    return element
