"""Compare a backend's results with the exact results and their derived bounds (derivation: docs/tolerance.md).

An output element is right if it is between the exact value minus and plus the bound, both rounded to the output type.
The bound is the accumulation error of the compute type over all terms, plus the roundings of the blend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations import Operation, TensorSpec

from .blas_threads import beside_others
from .blocks import blocks
from .engine import EXPECTED_ASKED, Exact, Expected, blended, magnitude_of, results_of, roundings_of, spread_of
from .precision import PRECISION
from .spread import Errors, Relative
from .view import NUMPY_TYPES, WHOLE, Array, Place, read, rounded, stored, strided, wide_type

if TYPE_CHECKING:
    from .spots import Spots

COMPARED_BYTES = 2**24
BLOCK = 2**14  # elements
INFORMATIVE_SHARE = 4  # at least one of this many checked elements must be able to show an error
KINDS = ("as before the call", "NaN", "infinite", "zero", "other numbers")  # kinds of wrong elements
BLEND_ROUNDINGS = 3  # alpha * result, beta * prior, their sum


@dataclass
class Disagreement:
    """Describe the worst element of one output."""

    output: str
    index: tuple[int, ...]
    got: float
    exact: float
    bound: float
    ratio: float  # error / allowed error; infinite where the result or the exact value is not finite

    def __str__(self) -> str:
        return f"{self.output}{list(self.index)} is {self.got!r}, exact {self.exact!r}, allowed error {self.bound:.3g}"


@dataclass
class Verdict:
    """Hold the outcome for all outputs of one operation."""

    wrong: int = 0
    worst: Disagreement | None = None
    error_ratio: float = 0.0
    checked: int = 0
    informative: int = 0
    stray: list[str] = field(default_factory=list)
    # raw output -> contents that the reference keeps for a later call
    kept: dict[str, Array] = field(default_factory=dict)
    errors: dict[str, Errors] = field(default_factory=dict)  # output -> errors that the sharper rules judge
    kinds: dict[str, dict[str, int]] = field(default_factory=dict)  # output -> kind -> number of wrong elements
    spots: Spots | None = None

    @property
    def agrees(self) -> bool:
        return self.wrong == 0 and not self.stray and not (self.spots and self.spots.problems)

    def explanation(self) -> str:
        """Return what is wrong, one line each; empty when the outputs agree."""
        lines = list(self.stray)
        if self.wrong:
            lines.append(f"{self.wrong} of {self.checked} elements are wrong, the worst: {self.worst}")
            lines.append(f"wrong elements: {'; '.join(self._listed_kinds())}")
        if self.spots:
            lines += [f"the reference itself is wrong: {problem}" for problem in self.spots.problems]
        return "\n".join(lines)

    def _listed_kinds(self) -> list[str]:
        """Return for each output how many wrong elements of each kind it has, in the order of KINDS."""
        found = (
            (name, [f"{counts[kind]} {kind}" for kind in KINDS if kind in counts])
            for name, counts in self.kinds.items()
        )
        return [f"{name}: {', '.join(counts)}" for name, counts in found]

    @property
    def suspicions(self) -> list[str]:
        """Return which of the sharper rules are broken, a sentence each."""
        return [said for name, errors in self.errors.items() for said in errors.suspicions(name)]

    @property
    def mistrusted(self) -> bool:
        """Return whether too little of the output could have shown an error, because of zeros or unlimited bounds."""
        return self.checked > 0 and self.informative * INFORMATIVE_SHARE < self.checked


def judge(
    operation: Operation,
    before: Mapping[str, Array],
    after: Mapping[str, Array],
    kept: Mapping[str, Array] | None = None,
    random: bool = False,
    spots: int = 0,
    earlier: Sequence[tuple[Operation, Mapping[str, Array]]] = (),
) -> Verdict:
    """Judge the operands ``after`` the call (name -> bytes), given all of them as they were ``before`` it.

    Outputs must agree with the exact result. Gaps between their elements, and inputs, must be unchanged. Operands that
    share memory are the same array.

    kept: raw inputs as the reference kept them in an earlier call (its ``Verdict.kept``); the judged backend may store
    them in any form.

    random: the inputs are seeded random numbers, so the sharper rules (spread.py) apply.

    spots: how many elements of each output are also evaluated by formulas, to judge the exact results themselves
    (spots.py).

    earlier: the calls that wrote the raw inputs, each with its operands as they were before it. Only formulas read
    them.
    """
    verdict = Verdict(stray=_stray_writes(operation, before, after))
    known = {**before, **(kept or {})}
    if spots:
        from .spots import Spots  # This import is delayed, because it loads every formula.

        verdict.spots = Spots(operation, known, spots, earlier)
    said: set[str] = set()
    of_parts: dict[str, int] = {}  # output that comes in parts -> elements
    asked = EXPECTED_ASKED.set(random)
    try:
        with np.errstate(all="ignore"), beside_others(operation):
            for name, place, exact in results_of(operation, wide_type(operation.compute_type))(known):
                said.add(name)
                if exact.opaque:
                    verdict.kept[name] = exact.value
                elif exact.raw:
                    _judge_raw(name, exact, after[name], verdict)
                else:
                    if place:
                        of_parts[name] = of_parts.get(name, 0) + prod(one.stop - one.start for one in place)
                    spread = spread_of(exact) if random else None
                    for part in _in_blocks(operation.tensor(name), place, exact, spread):
                        _judge_output(operation, name, *part, before, after[name], verdict)
    finally:
        EXPECTED_ASKED.reset(asked)
    outputs = (name for name in operation.outputs if operation.has(name) and operation.nbytes(name))
    if unsaid := [name for name in outputs if name not in said]:
        raise ValueError(f"the reference of {type(operation).__name__} says nothing of {', '.join(unsaid)}")
    for name, count in of_parts.items():  # Otherwise a missing or repeated part would go unnoticed.
        if count != operation.tensor(name).count:
            raise ValueError(f"the parts of {name} have {count} elements instead of {operation.tensor(name).count}")
    return verdict


def _in_blocks(
    spec: TensorSpec, place: Place, exact: Exact, spread: Expected | None
) -> Iterator[tuple[Place, Exact, Expected | None]]:
    """Cut a result into blocks that stay in the cache during a series of array operations."""
    dims = exact.value.shape if place else spec.dims
    if prod(dims) <= BLOCK or spec.vector_length > 1 or isinstance(spread, Relative):
        yield place, exact, spread
        return
    value, magnitude = (np.broadcast_to(array, dims) for array in (exact.value, magnitude_of(exact)))
    roundings = roundings_of(exact)
    marks = {name: mark() for name in ("undetermined", "overflows") if (mark := getattr(exact, name))}
    starts = [part.start for part in place] if place else [0] * len(dims)
    for block in blocks(dims, 1, BLOCK):
        there = tuple(slice(b.start + first, b.stop + first) for b, first in zip(block, starts, strict=True))
        of_part = np.broadcast_to(roundings, dims)[block] if np.ndim(roundings) else roundings
        part = Exact(value[block], magnitude[block], of_part, copied=exact.copied, mixed=exact.mixed)
        for name, mark in marks.items():
            setattr(part, name, partial(np.broadcast_to(mark, dims).__getitem__, block))
        yield there, part, spread.part(dims, block) if spread else None


def bounds(
    operation: Operation, name: str, exact: Exact, before: Mapping[str, Array], place: Place = WHOLE
) -> tuple[Array, Array]:
    """Return (exact blended values, allowed absolute error before rounding into the output type) at a place of
    the output.
    """
    with np.errstate(all="ignore"):
        spec = operation.tensor(name)
        dims = exact.value.shape if place else spec.dims
        unit, smallest, largest = PRECISION[operation.compute_type]
        alpha, beta = operation.blend_of(name)
        wide = wide_type(operation.compute_type)
        value = np.broadcast_to(blended(operation, name, exact, before, wide, place), dims)
        terms = np.broadcast_to(np.asarray(magnitude_of(exact), dtype=wide), dims)
        # A NaN among the terms of a finite value did not enter it (a ReLU made it 0), so nothing is rounded there.
        if np.isnan(terms).any():
            terms = np.where(
                np.isnan(terms) & (exact.mixed | np.isfinite(exact.value)), np.inf if exact.mixed else 0, terms
            )
        roundings = np.asarray(roundings_of(exact), dtype=wide)
        scaled = terms if abs(alpha) == 1 else abs(alpha) * terms
        bound = unit * roundings * scaled * (1 + roundings * unit) + smallest * (1 + abs(alpha))
        if (alpha, beta) != (1, 0):
            prior = np.abs(read(spec, before[name], wide, place)) if beta != 0 else np.zeros((), wide)
            total = np.abs(alpha * exact.value) + abs(beta) * prior
            bound = bound + unit * BLEND_ROUNDINGS * np.where(np.isfinite(total), total, 0)
        # Where an intermediate leaves the range of the compute type, the result is not determined.
        overflow = (terms if np.isinf(alpha) or abs(alpha) < 1 else scaled) >= largest
        for term in (np.abs(alpha * exact.value), abs(beta) * prior) if beta != 0 else ():
            overflow = overflow | (np.isfinite(term) & (term >= largest))
        if np.isinf(alpha):
            # Zero times infinity is NaN: where the error reaches zero, no product with infinity is determined.
            error = unit * roundings * terms * (1 + roundings * unit) + smallest * (terms > 0)
            overflow |= (terms > 0) & (np.abs(exact.value) <= error)
        # Zero terms with unlimited roundings (exp(-infinity)) are zero; with an infinite alpha nothing is known.
        if np.isnan(bound).any():
            bound = np.where(np.isnan(bound), np.inf if np.isinf(alpha) else smallest, bound)
        finite = np.isfinite(value)
        if not finite.all():
            bound = np.where(finite, bound, 0)
        if overflow.any():
            bound = np.where(overflow & (exact.mixed | np.isfinite(exact.value)), np.inf, bound)
        for mark in filter(None, (exact.undetermined, exact.overflows)):
            bound = np.where(mark(), np.inf, bound)
        return value, np.broadcast_to(bound, dims)


@np.errstate(all="ignore")
def interval(value: Array, bound: Array, data_type: cudnnDataType_t) -> tuple[Array, Array, Array]:
    """Return the lowest and highest right number of the output type, and half a step of that type, for each element."""
    lowest, highest = (rounded(edge, data_type).astype(value.dtype) for edge in (value - bound, value + bound))
    return lowest, highest, _half_step(value, data_type)


def _judge_output(
    operation: Operation,
    name: str,
    place: Place,
    exact: Exact,
    spread: Expected | None,
    before: Mapping[str, Array],
    memory: Array,
    verdict: Verdict,
) -> None:
    spec = operation.tensor(name)
    value, bound = bounds(operation, name, exact, before, place)
    number = stored(spec, memory, place).astype(value.dtype)
    undetermined = np.isinf(bound)
    lowest, highest, half_step = interval(value, bound, spec.scalar_type)
    right = ((lowest <= number) & (number <= highest)) | (np.isnan(value) & np.isnan(number)) | undetermined
    if np.dtype(NUMPY_TYPES[spec.scalar_type]).kind in "iu":
        right |= np.isnan(value) & (number == 0)  # Integers have no NaN; conversions give 0 (view.rounded).
    elif exact.copied and operation.blend_of(name) == (1, 0):
        right &= (value != 0) | (number != 0) | (np.signbit(value) == np.signbit(number))
    shows = ~undetermined
    if exact.overflows:
        not_finite = exact.overflows() & ~np.isfinite(exact.value)
        if exact.undetermined:
            not_finite = not_finite & ~exact.undetermined()
        right &= ~(not_finite & np.isfinite(number))
        shows |= not_finite
    error = number - _saturated(value, spec.scalar_type)
    allowed = bound + half_step
    if spread is not None:
        errors = verdict.errors.setdefault(name, spread.errors())
        types, outcome = (operation.compute_type, spec.scalar_type), (exact.value, value, bound)
        errors.add(spread, types, operation.blend_of(name), outcome, error, half_step)
    if verdict.spots:
        verdict.spots.look(name, place, value, bound)
    ratio = np.abs(error) / allowed
    counted = np.isfinite(ratio)
    counted &= ~undetermined
    if not counted.all():
        ratio = np.where(counted, ratio, 0.0)
    verdict.checked += value.size
    verdict.informative += int(np.count_nonzero((value != 0) & shows))
    if right.all():
        verdict.error_ratio = max(verdict.error_ratio, min(float(ratio.max(initial=0.0)), 1.0))
        return
    ratio = np.where(right, np.minimum(ratio, 1.0), ratio)
    verdict.error_ratio = max(verdict.error_ratio, float(ratio.max(initial=0.0)))
    verdict.wrong += int(np.count_nonzero(~right))
    _note_kinds(verdict, name, number[~right], stored(spec, before[name], place).astype(value.dtype)[~right])
    worst = np.where(right, -1.0, np.where(np.isfinite(number - value), ratio, np.inf))
    at = np.unravel_index(int(np.argmax(worst)), worst.shape)
    starts = (part.start for part in place) if place else (0,) * worst.ndim
    index = tuple(int(i) + start for i, start in zip(at, starts, strict=True))
    values = (float(values[at]) for values in (number, value, allowed, worst))
    _note(verdict, Disagreement(name, index, *values))


def _note(verdict: Verdict, found: Disagreement) -> None:
    """Keep the worst element of the first output that has a wrong one."""
    known = verdict.worst
    if known is None or (known.output == found.output and known.ratio < found.ratio):
        verdict.worst = found


def _note_kinds(verdict: Verdict, name: str, wrong: Array, prior: Array) -> None:
    """Count the kinds of wrong elements of an output, given their values before the call."""
    same = (wrong == prior) | (np.isnan(wrong) & np.isnan(prior))
    kinds = (same, np.isnan(wrong), np.isinf(wrong), wrong == 0, np.full(wrong.shape, True))
    counts = verdict.kinds.setdefault(name, {})
    left = np.full(wrong.shape, True)
    for kind, found in zip(KINDS, kinds, strict=True):
        if number := int(np.count_nonzero(left & found)):
            counts[kind] = counts.get(kind, 0) + number
        left &= ~found


def _judge_raw(name: str, exact: Exact, memory: Array, verdict: Verdict) -> None:
    got = np.frombuffer(memory, dtype=exact.value.dtype, count=exact.value.size).reshape(exact.value.shape)
    right = got == exact.value
    verdict.checked += right.size
    verdict.informative += right.size
    if right.all():
        return
    verdict.wrong += int(np.count_nonzero(~right))
    _note_kinds(verdict, name, got[~right], np.full(1, np.nan))
    index = tuple(int(i) for i in np.argwhere(~right)[0])
    _note(verdict, Disagreement(name, index, float(got[index]), float(exact.value[index]), 0.0, np.inf))


def _half_step(value: Array, data_type: cudnnDataType_t) -> Array:
    """Return half the distance between neighbours of the output type at the value, which is one rounding into it."""
    if data_type not in PRECISION:
        return np.full(value.shape, 0.5, dtype=value.dtype)
    unit, smallest, largest = PRECISION[data_type]
    return np.maximum(np.minimum(np.abs(value), largest), smallest) * unit


def _saturated(value: Array, data_type: cudnnDataType_t) -> Array:
    """Return the value clipped to the range of an integer type."""
    dtype = NUMPY_TYPES[data_type]
    if dtype.kind not in "iu":
        return value
    return np.clip(value, np.iinfo(dtype).min, np.iinfo(dtype).max)


def element_bytes(spec: TensorSpec, size: int) -> Array:
    """Return which of ``size`` bytes belong to elements of the tensor."""
    marks = np.zeros(size, np.uint8)
    target = strided(spec, marks)
    target[...] = np.frombuffer(b"\xff" * target.itemsize, target.dtype)[0]
    return marks != 0


def _stray_writes(operation: Operation, before: Mapping[str, Array], after: Mapping[str, Array]) -> list[str]:
    """Return messages on operands with changed bytes that the operation may not write."""
    found = []
    for name, now in after.items():
        written = [other for other in operation.outputs if other in after and after[other] is now]
        may_change = name in operation.raw and (name in operation.outputs or name not in operation.inputs)
        if may_change or (not written and _same(before[name], now)):
            continue
        if name in operation.raw:
            changed = int(np.count_nonzero(before[name] != now))
            found.append(f"{name}: {changed} bytes of memory that is only read changed")
            continue
        size = operation.nbytes(name)
        if any(other not in operation.raw and _fills(operation.tensor(other), size) for other in written):
            continue
        changed = before[name][:size] != now[:size]
        for other in written:
            if other not in operation.raw:
                changed[: operation.nbytes(other)] &= ~element_bytes(operation.tensor(other), operation.nbytes(other))
        if not written:
            changed &= element_bytes(operation.tensor(name), size)
        if changed.any():
            where = "in gaps between its elements" if written else "of an input"
            found.append(
                f"{name}: {np.count_nonzero(changed)} bytes {where} changed, the first at {np.argmax(changed)}"
            )
    return found


def _fills(spec: TensorSpec, size: int) -> bool:
    """Return whether the tensor's elements fill ``size`` bytes without gaps."""
    return spec.is_packed and spec.nbytes >= size


def _same(before: Array, now: Array) -> bool:
    """Compare two arrays part by part, to save memory."""
    parts = (slice(start, start + COMPARED_BYTES) for start in range(0, len(now), COMPARED_BYTES))
    return all(np.array_equal(before[part], now[part]) for part in parts)
