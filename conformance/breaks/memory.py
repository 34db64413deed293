"""Inject faults into the memory that a trial reads back: wrong, unwritten or stray elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial

import numpy as np
from dualdnn.api.operations import Operation
from dualdnn.reference import evaluate, run
from dualdnn.reference.judge import bounds, interval
from dualdnn.reference.view import NUMPY_TYPES, Array, rounded, strided

from .rules import ADDED, ELEMENT, INDEX, MISPLACED, NARROWED, OVERFLOWN, OVERRUN, SPECIAL

Memory = dict[str, Array]
MAX_TRIED = 64  # elements to try until a fault makes one wrong


class Judged:
    """Hold what a trial is about to judge: operands before the call, and guarded bytes after it, which faults change.

    begins: the offset of an operand in its guarded bytes.
    """

    def __init__(
        self,
        operation: Operation,
        before: Mapping[str, Array],
        kept: Mapping[str, Array],
        now: Memory,
        begins: Mapping[str, int],
    ) -> None:
        self.operation, self.before, self.kept, self.now, self.begins = operation, before, kept, now, begins

    def inside(self, name: str) -> Array:
        """Return the bytes of an operand after the call."""
        return self.now[name][self.begins[name] : self.end(name)]

    def end(self, name: str) -> int:
        """Return the offset of the first guard byte after an operand."""
        return self.begins[name] + self.before[name].size

    def change_element(self, make: Callable[[float, float, float], float | None], output: str = "") -> bool:
        """Replace one element of an output, or of the named one, by a value outside the judge's interval.

        make: (prior, exact, allowed error) -> the new value, or None to try another element.
        """
        results = evaluate(self.operation, {**self.before, **self.kept})
        for name, exact in results.items():
            if exact.raw or name not in self.now or output not in ("", name):
                continue
            spec = self.operation.tensor(name)
            value, bound = bounds(self.operation, name, exact, self.before)
            lowest, highest, step = interval(value, bound, spec.scalar_type)
            target = strided(spec, self.inside(name))
            prior = strided(spec, self.before[name].copy()).astype(np.float64).reshape(value.shape)
            flat = np.flatnonzero(np.isfinite(value) & np.isfinite(bound))
            for index in flat[:: max(1, flat.size // MAX_TRIED)]:
                at = np.unravel_index(int(index), value.shape)
                wanted = make(float(prior[at]), float(value[at]), float(bound[at] + step[at]))
                if wanted is None:
                    continue
                stored = rounded(np.array([wanted]), spec.scalar_type)[0]
                if lowest[at] <= float(stored) <= highest[at]:
                    continue
                view = target.reshape(value.shape) if target.flags.c_contiguous else target
                if view.shape != value.shape:
                    return False
                view[at] = stored
                return True
        return False


def _odd_neighbour(_prior: float, exact: float, _allowed: float) -> float | None:
    """Return the odd one of two whole numbers that are equally near."""
    below = np.floor(exact)
    return float(below + (below % 2 == 0)) if exact - below == 0.5 else None


def _wrapped(_prior: float, exact: float, _allowed: float) -> float | None:
    """Return a number as it wraps around in a byte that does not hold it."""
    return (round(exact) + 128) % 256 - 128.0 if abs(exact) > 128.5 else None


def _truncated(_prior: float, exact: float, _allowed: float) -> float | None:
    """Return a number without its fraction, if that is not the nearest whole number."""
    return float(np.trunc(exact)) if np.trunc(exact) != np.round(exact) else None


def element_off(judged: Judged, output: str = "") -> bool:
    return judged.change_element(lambda _prior, exact, allowed: exact + 4 * allowed, output)


def _special_off(judged: Judged, _point: str = "") -> bool:
    """Replace a NaN or an infinity in an output by zero."""
    for name in judged.operation.tensors_written:
        spec = judged.operation.tensor(name)
        if name in judged.now and NUMPY_TYPES[spec.scalar_type].kind not in "iu":
            values = strided(spec, judged.inside(name))
            found = np.argwhere(~np.isfinite(values.astype(np.float64)))
            if found.size:
                values[tuple(found[0])] = 0
                return True
    return False


def _misplaced(judged: Judged, point: str) -> bool:
    """Move what was written to an operand, or to the first that changes so, one element further on."""
    for name in judged.operation.tensors_written:
        if name not in judged.now or (point and not is_of_parameter(judged.operation, name, point)):
            continue
        held = judged.inside(name)
        moved = np.roll(held, NUMPY_TYPES[judged.operation.tensor(name).scalar_type].itemsize)
        if (moved != held).any():
            held[:] = moved
            return True
    return False


def _narrowed(judged: Judged, _point: str) -> bool:
    """Round the doubles that were written to floats."""
    for name in judged.operation.tensors_written:
        if name not in judged.now or NUMPY_TYPES[judged.operation.tensor(name).scalar_type] != np.float64:
            continue
        values = strided(judged.operation.tensor(name), judged.inside(name))
        if (values != values.astype(np.float32)).any():
            values[...] = values.astype(np.float32)
            return True
    return False


def _added(judged: Judged, point: str) -> bool:
    """Add an input to the first output of its dimensions."""
    added = judged.operation.tensor(point)
    for name in judged.operation.tensors_written:
        spec = judged.operation.tensor(name)
        if name in judged.now and spec.dims == added.dims:
            strided(spec, judged.inside(name))[...] += strided(added, judged.before[point])
            return True
    return False


def is_of_parameter(operation: Operation, name: str, point: str) -> bool:
    """Return whether an operand is what a call names by this parameter."""
    return operation.parameters.get(point, point).lower().startswith(name.lower())


def _overrun(judged: Judged, point: str) -> bool:
    """Change the byte after the memory of a parameter."""
    for name in judged.operation.operands:
        if (
            is_of_parameter(judged.operation, name, point)
            and name in judged.now
            and judged.now[name].size > judged.end(name)
        ):
            judged.now[name][judged.end(name)] ^= 1
            return True
    return False


# Each way to break memory is a function of (the judged memory, the named parameter) that returns whether it changed
# anything.
MEMORY_BREAKS: dict[str, Callable[[Judged, str], bool]] = {
    ELEMENT: element_off,
    OVERRUN: _overrun,
    MISPLACED: _misplaced,
    NARROWED: _narrowed,
    INDEX: lambda judged, _point: _index_off(judged),
    "ties away from even": lambda judged, _point: judged.change_element(_odd_neighbour),
    "wrapped around": lambda judged, _point: judged.change_element(_wrapped),
    "truncated": lambda judged, _point: judged.change_element(_truncated),
    SPECIAL: _special_off,
    OVERFLOWN: lambda judged, _point: _not_a_number(judged),
    ADDED: _added,
}


def _not_written(judged: Judged) -> bool:
    return judged.change_element(lambda prior, _exact, _allowed: prior)


def _not_a_number(judged: Judged) -> bool:
    types = {judged.operation.tensor(n).scalar_type for n in judged.operation.tensors_written}
    if any(NUMPY_TYPES[data_type].kind in "iu" for data_type in types):
        return False
    return judged.change_element(lambda _prior, _exact, _allowed: float("nan"))


def _written_outside(judged: Judged) -> bool:
    for name in judged.operation.tensors_written:
        if name in judged.now and judged.now[name].size > judged.end(name):
            judged.now[name][judged.end(name)] ^= 1
            return True
    return False


def _input_changed(judged: Judged) -> bool:
    for name in judged.operation.inputs:
        alone = name in judged.now and name not in judged.operation.outputs and name not in judged.operation.raw
        shared = any(judged.before.get(other) is judged.before.get(name) for other in judged.operation.outputs)
        if alone and not shared and judged.before[name].size:
            judged.inside(name)[0] ^= 1
            return True
    return False


def _index_off(judged: Judged) -> bool:
    """Add one to the first number of an output that is not a tensor, such as positions of extrema."""
    for name, exact in evaluate(judged.operation, {**judged.before, **judged.kept}).items():
        if exact.raw and not exact.opaque and name in judged.now and exact.value.size:
            judged.inside(name)[: exact.value.itemsize].view(exact.value.dtype)[0] += 1
            return True
    return False


def _factor_ignored(field: str, neutral: float, judged: Judged) -> bool:
    operation = judged.operation
    if not is_dataclass(operation) or getattr(operation, field, neutral) == neutral or judged.kept:
        return False
    if field not in {f.name for f in fields(operation)} or len(operation.outputs) != 1:
        return False
    copies = {id(array): array.copy() for array in judged.before.values()}
    memory = {name: copies[id(array)] for name, array in judged.before.items()}
    run(replace(operation, **{field: neutral}), memory)
    name = operation.outputs[0]
    if name not in judged.now or np.array_equal(memory[name], judged.inside(name)):
        return False
    found = evaluate(operation, judged.before)[name]
    value, bound = bounds(operation, name, found, judged.before)
    lowest, highest, _ = interval(value, bound, operation.tensor(name).scalar_type)
    wrong = strided(operation.tensor(name), memory[name]).astype(np.float64).reshape(value.shape)
    if not (np.isfinite(bound) & ~np.isnan(value) & ((wrong < lowest) | (wrong > highest) | np.isnan(wrong))).any():
        return False
    judged.inside(name)[:] = memory[name]
    return True


MEMORY_FAULTS: dict[str, Callable[[Judged], bool]] = {
    "one element off by four bounds": element_off,
    "one element not written": _not_written,
    "NaN where none is due": _not_a_number,
    "an element outside written": _written_outside,
    "an input changed": _input_changed,
    "an index off by one": _index_off,
    "alpha ignored": partial(_factor_ignored, "alpha", 1.0),
    "beta ignored": partial(_factor_ignored, "beta", 0.0),
}
