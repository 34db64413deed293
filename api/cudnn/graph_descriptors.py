"""Implement the life cycle of backend API descriptors (5.2.1, 5.2.2, 5.2.4 to 5.2.7, chapter 9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..functions import documented
from ..graph import execution as _execution  # noqa: F401 (registers)
from ..graph import life_cycle
from ..graph import nodes as _nodes  # noqa: F401 (registers)
from ..graph import operation_graph as _operation_graph  # noqa: F401 (registers)
from ..graph import settings as _settings  # noqa: F401 (registers)
from ..status import BAD_PARAM, NOT_SUPPORTED, expect

if TYPE_CHECKING:
    from ..descriptors import BackendDescriptor
    from ..enumerations import cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, cudnnBackendDescriptorType_t

# A descriptor is a reference of 8 bytes, whatever its type (docs/errata.md, D210).
SIZE_OF_DESCRIPTOR = 8


@documented(invalid={"*": ("c04", NOT_SUPPORTED)})
def cudnnBackendCreateDescriptor(descriptorType: cudnnBackendDescriptorType_t) -> BackendDescriptor:
    """Return a new backend descriptor of this type, to be filled by cudnnBackendSetAttribute.

    Errors: NOT_SUPPORTED where descriptors of the type cannot be created (c04). Source: 5.2.1.
    """
    return life_cycle.create(descriptorType)


@documented(fresh=["descriptor"])
def cudnnBackendDestroyDescriptor(descriptor: BackendDescriptor) -> None:
    """Destroy the descriptor; objects that were finalised with it keep a copy of it.

    Errors: BAD_PARAM for NULL.

    Source: 5.2.2.
    """
    descriptor.destroy()


@documented(invalid={"descriptor": "c05"}, fresh=["descriptor"])
def cudnnBackendInitialize(
    descriptor: BackendDescriptor, descriptorType: cudnnBackendDescriptorType_t, sizeInBytes: int
) -> None:
    """Reset the descriptor to an unfinalised one of this type, without attributes.

    sizeInBytes: at least the 8 bytes of a reference; the descriptor uses no other memory of the caller.
    Errors: BAD_PARAM for NULL (c05) and for fewer bytes (c06); NOT_SUPPORTED as in cudnnBackendCreateDescriptor.
    Source: 5.2.6.
    """
    few = f"sizeInBytes is {sizeInBytes}, a descriptor has {SIZE_OF_DESCRIPTOR} bytes"
    expect(sizeInBytes >= SIZE_OF_DESCRIPTOR, BAD_PARAM, "cudnnBackendInitialize/c06", few)
    descriptor.begin(life_cycle.create(descriptorType).kind)


@documented(
    invalid={"attributeName": "c04", "attributeType": "c05", "elementCount": "c06"},
    fresh=["descriptor"], unchecked=["arrayOfElements"],
)  # fmt: skip
def cudnnBackendSetAttribute(
    descriptor: BackendDescriptor,
    attributeName: cudnnBackendAttributeName_t,
    attributeType: cudnnBackendAttributeType_t,
    elementCount: int,
    arrayOfElements: Sequence[Any],
) -> None:
    """Set an attribute of a descriptor that has not been finalised, replacing its earlier value.

    arrayOfElements: a sequence of at least elementCount values of the type; descriptors in it may be finalised later.
    Errors: NOT_INITIALIZED for a finalised descriptor (c03); BAD_PARAM for an attribute of another type or a read-only
    one (c04), a wrong type (c05), count (c06) or value (c07); NOT_SUPPORTED for placeholders (c08). Source: 5.2.7.
    """
    life_cycle.set_attribute(descriptor, attributeName, attributeType, elementCount, arrayOfElements)


@documented(fresh=["descriptor"])
def cudnnBackendFinalize(descriptor: BackendDescriptor) -> None:
    """Check all attributes and make the descriptor immutable.

    Errors: BAD_PARAM for attributes that are missing, invalid or contradict each other, and for a finalised descriptor
    (c06); NOT_SUPPORTED (c07); the clauses of the descriptor's section say more. Source: 5.2.4, 9.2.
    """
    life_cycle.finalize(descriptor)


class BackendAttribute(NamedTuple):
    elementCount: int
    arrayOfElements: tuple[Any, ...]


@documented(invalid={"attributeName": "c06", "attributeType": "c07"}, fresh=["descriptor"])
def cudnnBackendGetAttribute(
    descriptor: BackendDescriptor,
    attributeName: cudnnBackendAttributeName_t,
    attributeType: cudnnBackendAttributeType_t,
    requestedElementCount: int,
) -> BackendAttribute:
    """Return (number of elements of the attribute, at most requestedElementCount of them); descriptors are returned as
    new, finalised ones.

    Errors: NOT_INITIALIZED for a descriptor that is not finalised (c08); BAD_PARAM for an attribute of another
    descriptor type (c06), a type that it does not have (c07), a negative count. Source: 5.2.5.
    """
    return BackendAttribute(*life_cycle.get_attribute(descriptor, attributeName, attributeType, requestedElementCount))
