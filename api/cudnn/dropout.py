"""Dropout (3.2.9, 3.2.24, 3.2.34 to 3.2.36, 3.2.43, 3.2.73, 3.2.80, 4.1.7). The random numbers: docs/dropout.md."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..descriptors import DropoutDescriptor
from ..functions import SameMemory, computing, documented, run, usable
from ..operations import DropoutBackward, DropoutForward, DropoutSpec, SetDropoutStates
from ..operations.dropout import STATES, reserve_bytes
from ..operations.specs import DOUBLE, FLOAT, HALF
from ..relations import data_type_among, same_data_type, writable_layout
from ..status import BAD_PARAM, INCORRECT_PARAMETER, INVALID_VALUE, expect

TYPES = (FLOAT, DOUBLE, HALF)


@documented()
def cudnnCreateDropoutDescriptor():
    """A new dropout descriptor, to be filled by cudnnSetDropoutDescriptor. Source: 3.2.9."""
    return DropoutDescriptor()


@documented()
def cudnnDestroyDropoutDescriptor(dropoutDesc):
    """Destroy the descriptor; using it afterwards is BAD_PARAM. The states stay the caller's. Source: 3.2.24."""
    dropoutDesc.destroy()


@documented()
def cudnnDropoutGetStatesSize(handle):
    """Bytes of the states: the same for every handle. Source: 3.2.36."""
    return STATES.nbytes


@documented()
def cudnnDropoutGetReserveSpaceSize(xDesc):
    """Bytes of the reserve space of a tensor with the dimensions of xDesc: a bit for each element, in words. Source: 3.2.35."""
    return reserve_bytes(xDesc.spec)


def _probability(dropout):
    """The probability as C passes it: a float. Anything outside [0, 1] is refused (docs/errata.md, D110)."""
    with np.errstate(over="ignore"):
        probability = float(np.float32(dropout))
    expect(0 <= probability <= 1, BAD_PARAM, INCORRECT_PARAMETER, f"dropout is {dropout}, it must be in [0, 1]")
    return probability


def _large_enough(clause, stateSizeInBytes):
    expect(stateSizeInBytes >= STATES.nbytes, INVALID_VALUE, clause,
           f"stateSizeInBytes is {stateSizeInBytes}, the states take {STATES.nbytes} bytes")  # fmt: skip


@documented()
def cudnnSetDropoutDescriptor(dropoutDesc, handle, dropout, states, stateSizeInBytes, seed):
    """Set the probability, rounded to float; with states, write the first states of this seed to them, in the handle's stream.

    states: device memory at a multiple of 4 bytes, which forward calls with the descriptor read and write. None keeps the
    states that the descriptor has, if any, as they are. After a refusal the descriptor and the states are as they were.
    Errors: INVALID_VALUE for stateSizeInBytes below cudnnDropoutGetStatesSize (c11), BAD_PARAM for a dropout outside [0, 1].
    Source: 3.2.80.
    """
    probability = _probability(dropout)
    before = dropoutDesc.spec or DropoutSpec()
    if states is not None:
        _large_enough("cudnnSetDropoutDescriptor/c11", stateSizeInBytes)
        run(
            "cudnnSetDropoutDescriptor",
            handle,
            SetDropoutStates(seed),
            {"states": states},
            "cudnnSetDropoutDescriptor/c13",
        )
        dropoutDesc.memory = {"states": states}
    dropoutDesc.spec = DropoutSpec(probability, seed, before.has_states or states is not None)


@documented()
def cudnnRestoreDropoutDescriptor(dropoutDesc, handle, dropout, states, stateSizeInBytes, seed):
    """Set the probability and take states that an earlier call has written, as they are; the seed is only noted.

    Errors: INVALID_VALUE for stateSizeInBytes below cudnnDropoutGetStatesSize (c09), BAD_PARAM for a dropout outside [0, 1].
    Source: 3.2.73.
    """
    probability = _probability(dropout)
    _large_enough("cudnnRestoreDropoutDescriptor/c09", stateSizeInBytes)
    usable("cudnnRestoreDropoutDescriptor", handle, SetDropoutStates(seed), {"states": states})
    dropoutDesc.memory = {"states": states}
    dropoutDesc.spec = DropoutSpec(probability, seed, True)


class DropoutParameters(NamedTuple):
    dropout: float
    states: Any
    seed: int


@documented(invalid={"*": "c06"}, fresh=["dropoutDesc"])
def cudnnGetDropoutDescriptor(dropoutDesc, handle):
    """(dropout, states, seed) as they were set last; states are None where there are none. A fresh descriptor reads as zeros.

    Errors: BAD_PARAM for NULL (c06). Source: 3.2.43.
    """
    spec = dropoutDesc.spec or DropoutSpec()
    return DropoutParameters(spec.probability, dropoutDesc.memory.get("states"), spec.seed)


def _checked(call, clauses, dropoutDesc, reserveSpaceSizeInBytes, **tensors):
    """What both calls demand. clauses: of the count, the type, the reserve space, the states, the supported types."""
    (first, source), (second, target) = tensors.items()
    count, kind, reserve, states, types = (f"{call}/{clause}" for clause in clauses)
    expect(source.count == target.count, BAD_PARAM, count,
           f"{first} has {source.count} elements {source.dims}, {second} {target.count} {target.dims}")  # fmt: skip
    same_data_type(kind, **tensors)
    expect(reserveSpaceSizeInBytes >= reserve_bytes(source), BAD_PARAM, reserve,
           f"reserveSpaceSizeInBytes is {reserveSpaceSizeInBytes}, {reserve_bytes(source)} are needed")  # fmt: skip
    expect(dropoutDesc.has_states, BAD_PARAM, states, "dropoutDesc has no states")
    data_type_among(types, TYPES, **tensors)
    writable_layout(**{second: target})


@computing(
    invalid={"dropoutDesc": "c15"},
    memory=[SameMemory("x", "y", "c13", allowed=lambda o: o.x == o.y)],
    small={"reserveSpace": ("c14", BAD_PARAM)},
    failed="c16",
)
def cudnnDropoutForward(handle, dropoutDesc, xdesc, x, ydesc, y, reserveSpace, reserveSpaceSizeInBytes):
    """y = x / (1 - dropout) for the elements that are kept, 0 for the others; reserveSpace says which, the states advance.

    x, y: equal numbers of elements, which correspond in row-major order, and data types (FLOAT, DOUBLE, HALF), any strides.
    In place (x is y) when the descriptors are identical. Each call draws other random numbers; calls with the same states
    that run at the same time, in several streams, are not supported (c03).
    Errors: BAD_PARAM for differing numbers of elements (c11) or types (c12), in place with differing strides (c13), a reserve
    space that is too small (c14), a descriptor without states (c15); NOT_SUPPORTED for other types (c10). Source: 3.2.34.
    """
    clauses = ("c11", "c12", "c14", "c15", "c10")
    _checked("cudnnDropoutForward", clauses, dropoutDesc, reserveSpaceSizeInBytes, xdesc=xdesc, ydesc=ydesc)
    return DropoutForward(dropoutDesc.probability, xdesc, ydesc)


@computing(
    invalid={"dropoutDesc": "c12"},
    memory=[SameMemory("dy", "dx", "c10", allowed=lambda o: o.dy == o.dx)],
    small={"reserveSpace": ("c11", BAD_PARAM)},
    failed="c13",
)
def cudnnDropoutBackward(handle, dropoutDesc, dyDesc, dy, dxDesc, dx, reserveSpace, reserveSpaceSizeInBytes):
    """dx = dy / (1 - dropout) for the elements that the forward call kept, 0 for the others.

    dy, dx: as x and y of cudnnDropoutForward. reserveSpace: as that call left it; the states are neither read nor written.
    Errors: BAD_PARAM for differing numbers of elements (c08) or types (c09), in place with differing strides (c10), a reserve
    space that is too small (c11), a descriptor without states (c12); NOT_SUPPORTED for other types (c07). Source: 4.1.7.
    """
    clauses = ("c08", "c09", "c11", "c12", "c07")
    _checked("cudnnDropoutBackward", clauses, dropoutDesc, reserveSpaceSizeInBytes, dyDesc=dyDesc, dxDesc=dxDesc)
    return DropoutBackward(dropoutDesc.probability, dyDesc, dxDesc)
