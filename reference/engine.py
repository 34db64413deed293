"""Evaluate operations: read inputs, blend, round and store results in one place.

An implementation takes the operation and its inputs as plain arrays in wide arithmetic, and returns an ``Exact`` result
per output. That result holds the value before blending, and how far a correct implementation in the compute type may be
from it. The backend stores the value; the judge (see ``judge.py``) uses the bound.

The arithmetic is ``view.wide_type``, wider than the compute type: float64, or the machine's widest float for double
data. The judge always uses it. The backend uses float64 for all data in two kinds of implementation: those that ask for
it because vector units decide their time, and those in parts, which multiply by BLAS.

An implementation in parts reads its inputs itself and yields its only output part by part, so its memory does not grow
with the tensors. It prepares once all that does not depend on the memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np
from dualdnn.api.lazy import load
from dualdnn.api.operations import FAMILIES, Operation
from dualdnn.api.operations.specs import DOUBLE, INT32

from .blas_threads import beside_others, multiplies
from .blocks import FLOAT64_BYTES, blocks
from .spread import Relative, Spread, Steps
from .view import WHOLE, Array, Place, read, wide_type, write

# The backend sets this to ask for values without bounds.
VALUES_ALONE: ContextVar[bool] = ContextVar("VALUES_ALONE", default=False)
# This asks for expected errors; the judge clears it where inputs are not random.
EXPECTED_ASKED: ContextVar[bool] = ContextVar("EXPECTED_ASKED", default=True)
ARITHMETIC = "DUALDNN_REFERENCE_ARITHMETIC"
Number = float | int
Expected = Spread | Relative | Steps
Wide = type[np.floating[Any]]


@dataclass(slots=True)
class Exact:
    """Hold a result in wide arithmetic, and the error that arithmetic in the compute type may add to it.

    value: the result before alpha and beta.

    magnitude: the sum of the absolute values of all its terms (the operation on absolute values), or a function that
    computes it. Only the judge needs it.

    roundings: how many roundings of the compute type each term may have, or a function that returns this.

    raw: the output is written unchanged (indices), without blending.

    copied: the value is one of the inputs, so the sign of a zero is determined unless the value is scaled or blended.

    mixed: a transform mixes each term into other elements. Where a term is not finite, no element is determined.

    opaque: the output is raw and only a later call reads it (reserve space, dropout states). Another backend may store
    anything there.

    undetermined: a function of the elements that are not judged, because the document allows several values; None if
    there are none.

    overflows: a function of the elements with a factor or an intermediate sum that may leave the compute type's range.
    A finite value is then not determined. Any other result must be infinite or NaN; the order of the products decides
    which.

    spread: the statistical model of the errors of sums or functions, or a function that computes it (spread.py). None
    means that only the worst case is known.
    """

    value: Array
    magnitude: Array | Callable[[], Array]
    roundings: Array | Number | Callable[[], Array | Number] = 0
    raw: bool = False
    opaque: bool = False
    copied: bool = False
    mixed: bool = False
    undetermined: Callable[[], Array] | None = None
    overflows: Callable[[], Array] | None = None
    spread: Expected | Callable[[], Expected | None] | None = None

    @classmethod
    def kept(cls, memory: Array) -> Exact:
        """Make the raw output that a call keeps for a later call."""
        return cls(memory, np.zeros((), np.float64), raw=True, opaque=True)


Implementation = Callable[..., Exact | dict[str, Exact]]
Result = tuple[str, Place, Exact]  # the name of an output, a place in it, the result there
# This function takes the operation's memory and yields parts that together are its outputs.
Results = Callable[[Mapping[str, Array]], Iterator[Result]]
ImplementationInParts = Callable[[Any, Wide], Results]
_IMPLEMENTATIONS: dict[type[Operation], Implementation] = {}
_IN_PARTS: dict[type[Operation], ImplementationInParts] = {}
_IN_FLOAT64: set[type[Operation]] = set()  # operations that the backend computes in float64
_PLANEWISE: dict[type[Operation], Callable[[Any], bool]] = {}
_SELECTS: dict[type[Operation], Callable[[Any], bool]] = {}
_UNREAD: dict[type[Operation], Callable[[Any], tuple[str, ...]]] = {}
PLANES_BYTES = 2**20  # bytes of the largest operand in wide arithmetic; a cache holds it beside its results


def implements(
    operation_type: type[Operation],
    in_float64: bool = False,
    planewise: Callable[[Any], bool] | None = None,
    selects: Callable[[Any], bool] | None = None,
    unread: Callable[[Any], tuple[str, ...]] | None = None,
) -> Callable[[Implementation], Implementation]:
    """Register the reference of an operation: a function of (operation, one array per input in its order).

    in_float64: the backend computes double data in float64, within the bound that applies to all backends; the judge
    does not.

    planewise: decides whether the backend computes only as many planes (n, c) at a time as a core's cache holds. A
    plane of the only output must depend on that plane of the inputs alone. The judge computes all planes at once.

    selects: decides whether an operation only selects inputs, so that the backend needs no wider type.

    unread: names the inputs of an operation that its formula does not need. It gets None for each of them.
    """

    def register(implementation: Implementation) -> Implementation:
        _IMPLEMENTATIONS[operation_type] = implementation
        if in_float64:
            _IN_FLOAT64.add(operation_type)
        if planewise:
            _PLANEWISE[operation_type] = planewise
        if selects:
            _SELECTS[operation_type] = selects
        if unread:
            _UNREAD[operation_type] = unread
        return implementation

    return register


def implements_in_parts(
    operation_type: type[Operation],
) -> Callable[[ImplementationInParts], ImplementationInParts]:
    """Register an implementation in parts: a function of (operation, the arithmetic)."""

    def register(implementation: ImplementationInParts) -> ImplementationInParts:
        _IN_PARTS[operation_type] = implementation
        _IN_FLOAT64.add(operation_type)
        return implementation

    return register


def implemented() -> tuple[type[Operation], ...]:
    load(__package__, FAMILIES)
    return (*_IMPLEMENTATIONS, *_IN_PARTS)


def _register(operation: Operation) -> None:
    """Import the operation's family, so that its implementations register themselves."""
    if operation.family in FAMILIES:
        load(__package__, (operation.family,))


def results_of(operation: Operation, wide: Wide) -> Results:
    """Return a function that computes the results from the bytes of the inputs, prepared for the operation.

    The consumer ignores floating-point errors: where beta or alpha2 is 0, an unused operand may hold anything.
    """
    return _prepared(operation, wide)  # type: ignore[arg-type]  # types are hashable


@lru_cache(maxsize=1024)
def _prepared(operation: Operation, wide: Wide) -> Results:
    _register(operation)
    in_parts = _IN_PARTS.get(type(operation))
    if in_parts:
        return in_parts(operation, wide)
    planewise = _PLANEWISE.get(type(operation))
    places = _planes(operation) if planewise and planewise(operation) else [WHOLE]
    unread = _UNREAD.get(type(operation), lambda _: ())(operation)
    read_here = frozenset(name for name in operation.inputs if operation.has(name) and name not in unread)
    return partial(_place_by_place, operation, wide, places, read_here)


def _planes(operation: Operation) -> list[Place]:
    """Return places of (n, c) that cover the output, and begin and end between vectors of channels."""
    specs = [operation.tensor(name) for name in operation.operands]
    images, channels, *_ = specs[0].dims
    vector = max(spec.vector_length for spec in specs)
    bytes_each = vector * max(prod(spec.dims[2:]) for spec in specs) * FLOAT64_BYTES
    return [
        (n, slice(c.start * vector, c.stop * vector))
        for n, c in blocks((images, channels // vector), bytes_each, PLANES_BYTES)
    ]


def _place_by_place(
    operation: Operation, wide: Wide, places: list[Place], read_here: frozenset[str], memory: Mapping[str, Array]
) -> Iterator[Result]:
    for place in places if VALUES_ALONE.get() else [WHOLE]:
        inputs = [
            _input(operation, name, wide, memory, place) if name in read_here else None for name in operation.inputs
        ]
        found = _IMPLEMENTATIONS[type(operation)](operation, *inputs)
        for name, exact in (found if isinstance(found, dict) else {operation.outputs[0]: found}).items():
            yield name, place, exact


def _input(operation: Operation, name: str, wide: Wide, memory: Mapping[str, Array], place: Place) -> Array:
    """Return an input as numbers, or as bytes for raw memory."""
    if name in operation.raw:
        size = operation.nbytes(name)
        return memory[name][:size] if size else np.empty(0, np.uint8)
    return read(operation.tensor(name), memory[name], wide, place)


def evaluate(operation: Operation, memory: Mapping[str, Array]) -> dict[str, Exact]:
    """Return the exact results of every whole output, in the judge's arithmetic."""
    with np.errstate(all="ignore"):
        found: dict[str, list[tuple[Place, Exact]]] = {}
        for name, place, exact in results_of(operation, wide_type(operation.compute_type))(memory):
            found.setdefault(name, []).append((place, exact))
        return {name: _joined(operation, name, parts) for name, parts in found.items()}


def _joined(operation: Operation, name: str, parts: list[tuple[Place, Exact]]) -> Exact:
    """Join the parts of one output into one result."""
    where, first = parts[0]
    if where == WHOLE:
        return first
    dims = operation.tensor(name).dims

    def whole(attribute: Callable[[Exact], Array]) -> Array:
        joined = np.empty(dims, first.value.dtype)
        for place, exact in parts:
            joined[place] = attribute(exact)
        return joined

    def spread() -> Expected | None:
        found = [spread_of(exact) for _, exact in parts]
        if not isinstance(found[0], Spread):
            return None
        norm = np.empty(dims, found[0].norm.dtype)
        for (place, _), of_part in zip(parts, found, strict=True):
            assert isinstance(of_part, Spread)
            norm[place] = of_part.norm
        return replace(found[0], norm=norm)

    return Exact(whole(lambda exact: exact.value), lambda: whole(magnitude_of), first.roundings, spread=spread)


def blended(
    operation: Operation, name: str, exact: Exact, memory: Mapping[str, Array], wide: Wide, place: Place = WHOLE
) -> Array:
    """Return alpha * result + beta * prior output; beta == 0 does not read the prior output."""
    alpha, beta = operation.blend_of(name)
    value = exact.value if alpha == 1 else alpha * exact.value
    if beta != 0:
        value = value + beta * read(operation.tensor(name), memory[name], wide, place)
    return value


def is_narrow() -> bool:
    """Return whether the backend computes in the compute type itself, as other implementations do.

    Trials of the judge use this: it must not mistake roundings for errors.
    """
    text = os.environ.get(ARITHMETIC, "")
    if text not in ("", "compute_type"):
        raise ValueError(f"{ARITHMETIC}={text!r}: expected compute_type, or nothing for wide arithmetic")
    return text == "compute_type"


def run(operation: Operation, memory: Mapping[str, Array]) -> None:
    """Compute the operation on ``memory``, which maps operand names to bytes."""
    launcher(operation)(memory)


@lru_cache(maxsize=1024)
def launcher(operation: Operation) -> Callable[[Mapping[str, Array]], None]:
    """Return a function that computes the operation on its memory."""
    _register(operation)
    wide: Wide = np.float64 if type(operation) in _IN_FLOAT64 else wide_type(operation.compute_type)
    selects = _SELECTS.get(type(operation))
    if is_narrow() or (selects and selects(operation)):
        tensors = [operation.tensor(name) for name in operation.operands if name not in operation.raw]
        in_float64 = operation.compute_type == DOUBLE or any(spec.data_type == INT32 for spec in tensors)
        wide = np.float64 if in_float64 else np.float32  # float32 cannot hold 32-bit masks
    results = results_of(operation, wide)
    specs = {name: operation.tensor(name) for name in operation.tensors_written}

    @np.errstate(all="ignore")
    def launch(memory: Mapping[str, Array]) -> None:
        asked = VALUES_ALONE.set(True)
        try:
            for name, place, exact in results(memory):
                if exact.raw and name not in memory:  # NULL is allowed where no bytes are needed.
                    continue
                if exact.raw:
                    memory[name][: exact.value.nbytes] = np.frombuffer(exact.value.tobytes(), np.uint8)
                    continue
                spec, values = specs[name], blended(operation, name, exact, memory, wide, place)
                write(spec, memory[name], values if place else np.broadcast_to(values, spec.dims), place)
        finally:
            VALUES_ALONE.reset(asked)

    def launch_beside_others(memory: Mapping[str, Array]) -> None:
        with beside_others(operation):
            launch(memory)

    return launch_beside_others if multiplies(operation) else launch


def in_compute_type(operation: Operation, value: float) -> float:
    """Return a double parameter rounded to float, unless the operation computes in double."""
    return value if operation.compute_type == DOUBLE else float(np.float32(value))


def magnitude_of(exact: Exact) -> Array:
    return exact.magnitude() if callable(exact.magnitude) else exact.magnitude


def roundings_of(exact: Exact) -> Any:
    return exact.roundings() if callable(exact.roundings) else exact.roundings


def differs(one: Array, other: Array) -> Array:
    """Return where two results differ, treating NaN as equal to NaN."""
    return np.asarray((one != other) & ~(np.isnan(one) & np.isnan(other)))


def spread_of(exact: Exact) -> Expected | None:
    return exact.spread() if callable(exact.spread) else exact.spread
