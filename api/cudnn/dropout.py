"""Implement dropout (3.2.9, 3.2.24, 3.2.34 to 3.2.36, 3.2.43, 3.2.73, 3.2.80, 4.1.7). docs/dropout.md defines the
random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..descriptors import DropoutDescriptor
from ..functions import SameMemory, computing, documented, run, usable
from ..operations import DropoutBackward, DropoutForward, DropoutSpec, SetDropoutStates
from ..operations.dropout import STATES, reserve_bytes
from ..operations.specs import DOUBLE, FLOAT, HALF
from ..relations import data_type_among, same_data_type, writable_layout
from ..status import BAD_PARAM, INCORRECT_PARAMETER, INVALID_VALUE, expect

if TYPE_CHECKING:
    from ..descriptors import TensorDescriptor
    from ..handle import Handle
    from ..operations.specs import TensorSpec

TYPES = (FLOAT, DOUBLE, HALF)


@documented()
def cudnnCreateDropoutDescriptor() -> DropoutDescriptor:
    """Return a new dropout descriptor, to be filled by cudnnSetDropoutDescriptor. Source: 3.2.9."""
    return DropoutDescriptor()


@documented()
def cudnnDestroyDropoutDescriptor(dropoutDesc: DropoutDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. The states stay the caller's. Source: 3.2.24."""
    dropoutDesc.destroy()


@documented()
def cudnnDropoutGetStatesSize(handle: Handle) -> int:
    """Return the bytes of the states, which are the same for every handle. Source: 3.2.36."""
    return STATES.nbytes


@documented()
def cudnnDropoutGetReserveSpaceSize(xDesc: TensorDescriptor) -> int:
    """Return the bytes of reserve space for a tensor with the dimensions of xDesc: one bit per element, rounded up to
    words.

    Source: 3.2.35.
    """
    return reserve_bytes(xDesc.spec)


def _probability(dropout: Any) -> Any:
    """Return the probability rounded to float, as C passes it; raise BAD_PARAM outside [0, 1] (docs/errata.md, D110)."""
    with np.errstate(over="ignore"):
        probability = float(np.float32(dropout))
    expect(0 <= probability <= 1, BAD_PARAM, INCORRECT_PARAMETER, f"dropout is {dropout}, it must be in [0, 1]")
    return probability


def _large_enough(clause: Any, stateSizeInBytes: Any) -> None:
    expect(stateSizeInBytes >= STATES.nbytes, INVALID_VALUE, clause,
           f"stateSizeInBytes is {stateSizeInBytes}, the states take {STATES.nbytes} bytes")  # fmt: skip


@documented()
def cudnnSetDropoutDescriptor(
    dropoutDesc: DropoutDescriptor, handle: Handle, dropout: float, states: Any, stateSizeInBytes: int, seed: int
) -> None:
    """Set the probability, rounded to float. If states is given, initialise the states from the seed, in the handle's
    stream.

    states: device memory aligned to 4 bytes, which forward calls read and write. None keeps the descriptor's current
    states, if any. After an error the descriptor and the states are unchanged.
    Errors: INVALID_VALUE for stateSizeInBytes below cudnnDropoutGetStatesSize (c11), BAD_PARAM for a dropout outside
    [0, 1].
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
def cudnnRestoreDropoutDescriptor(
    dropoutDesc: DropoutDescriptor, handle: Handle, dropout: float, states: Any, stateSizeInBytes: int, seed: int
) -> None:
    """Set the probability and use states that an earlier call wrote, unchanged; the seed is only stored.

    Errors: INVALID_VALUE for stateSizeInBytes below cudnnDropoutGetStatesSize (c09), BAD_PARAM for a dropout outside
    [0, 1].
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
def cudnnGetDropoutDescriptor(dropoutDesc: DropoutDescriptor, handle: Handle) -> DropoutParameters:
    """Return (dropout, states, seed) as they were set last; states is None if there are none. A fresh descriptor
    returns zeros.

    Errors: BAD_PARAM for NULL (c06). Source: 3.2.43.
    """
    spec = dropoutDesc.spec or DropoutSpec()
    return DropoutParameters(spec.probability, dropoutDesc.memory.get("states"), spec.seed)


def _checked(call: Any, clauses: Any, dropoutDesc: Any, reserveSpaceSizeInBytes: Any, **tensors: Any) -> None:
    """Raise an error unless the tensors, the reserve space and the states meet the requirements of both calls.

    clauses: the clauses of element count, type, reserve space, states and supported types.
    """
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
def cudnnDropoutForward(
    handle: Handle,
    dropoutDesc: DropoutSpec,
    xdesc: TensorSpec,
    x: Any,
    ydesc: TensorSpec,
    y: Any,
    reserveSpace: Any,
    reserveSpaceSizeInBytes: int,
) -> DropoutForward:
    """Compute y = x / (1 - dropout) for kept elements and 0 for dropped ones; record in reserveSpace which are kept,
    and advance the states.

    x, y: equal numbers of elements, matched in row-major order, and equal data types (FLOAT, DOUBLE, HALF), any
    strides. In place (x is y) if the descriptors are identical. Each call draws new random numbers. Concurrent calls
    with the same states in several streams are not supported (c03).
    Errors: BAD_PARAM for differing numbers of elements (c11) or types (c12), in place with differing strides (c13), a
    reserve space that is too small (c14), a descriptor without states (c15); NOT_SUPPORTED for other types (c10).
    Source: 3.2.34.
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
def cudnnDropoutBackward(
    handle: Handle,
    dropoutDesc: DropoutSpec,
    dyDesc: TensorSpec,
    dy: Any,
    dxDesc: TensorSpec,
    dx: Any,
    reserveSpace: Any,
    reserveSpaceSizeInBytes: int,
) -> DropoutBackward:
    """Compute dx = dy / (1 - dropout) for the elements that the forward call kept, and 0 for the others.

    dy, dx: as x and y of cudnnDropoutForward. reserveSpace: as that call left it; the states are neither read nor
    written.
    Errors: BAD_PARAM for differing numbers of elements (c08) or types (c09), in place with differing strides (c10), a
    reserve space that is too small (c11), a descriptor without states (c12); NOT_SUPPORTED for other types (c07).
    Source: 4.1.7.
    """
    clauses = ("c08", "c09", "c11", "c12", "c07")
    _checked("cudnnDropoutBackward", clauses, dropoutDesc, reserveSpaceSizeInBytes, dyDesc=dyDesc, dxDesc=dxDesc)
    return DropoutBackward(dropoutDesc.probability, dyDesc, dxDesc)
