"""Convert backend descriptors that refer to no object to values and addresses, which C stores, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..descriptors import BackendDescriptor
from ..enumerations import cudnnBackendAttributeType_t as Type
from ..enumerations import cudnnBackendDescriptorType_t as Kind
from ..graph.attributes import TYPES
from ..graph.execution import ExecutionPlan
from ..graph.life_cycle import finalize
from .memo.keys import ADDRESSES


def is_value(kind: Kind) -> bool:
    """Return whether descriptors of a type hold numbers and addresses only, and can be finalised."""
    types = {each for attribute in TYPES[kind].attributes.values() for each in attribute.types}
    refers = types & {Type.CUDNN_TYPE_HANDLE, Type.CUDNN_TYPE_BACKEND_DESCRIPTOR}
    return not refers and not TYPES[kind].not_finalizable


def plan_of(descriptor: BackendDescriptor) -> ExecutionPlan | None:
    """Return the plan of a finalised execution plan descriptor, or None."""
    record = descriptor.spec and descriptor.spec.record
    return record if isinstance(record, ExecutionPlan) else None


def state_of(descriptor: BackendDescriptor) -> tuple[tuple[Any, ...], list[int]] | None:
    """Return a descriptor's state, or None if it may refer to objects.

    The state is a hashable value and the addresses, which the value only counts.
    """
    if not is_value(descriptor.kind):
        return None
    contents, addresses = list[tuple[int, Any]](), list[int]()
    given = descriptor.elements if descriptor.spec is None else dict(descriptor.spec.elements)
    for name, elements in sorted(given.items()):
        begin = ADDRESSES.get(name)
        if begin is None:
            # The text of a number distinguishes -0.0 from 0.0, and the text of NaN equals itself.
            contents.append((name, tuple(e.hex() if isinstance(e, float) else e for e in elements)))
        else:
            contents.append((name, len(elements)))
            addresses += [0] * (begin + len(elements) - len(addresses))
            addresses[begin : begin + len(elements)] = [element or 0 for element in elements]
    return (descriptor.kind, descriptor.spec is not None, *contents), addresses


def restored(value: tuple[Any, ...], addresses: Sequence[int]) -> BackendDescriptor:
    """Return a descriptor in a state of ``state_of``."""
    kind, is_finalized, *contents = value
    made = BackendDescriptor(kind)
    for name, found in contents:
        begin = ADDRESSES.get(name)
        if begin is None:
            made.elements[name] = tuple(float.fromhex(e) if isinstance(e, str) else e for e in found)
        else:
            made.elements[name] = tuple(address or None for address in addresses[begin : begin + found])
    if is_finalized:
        finalize(made)
    return made
