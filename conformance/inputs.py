"""Generate seeded, adversarial input values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from dualdnn.api.operations import TensorSpec
from dualdnn.reference.view import NUMPY_TYPES, rounded, strided

Array = np.ndarray[Any, Any]
Generator = np.random.Generator


def _normal(random: Generator, count: int) -> Array:
    """Return normal values, never near zero."""
    values = random.standard_normal(count)
    return np.where(np.abs(values) < 1e-3, 1.0, values)


def _wide(random: Generator, count: int) -> Array:
    """Return magnitudes from 2**-12 to 2**6 with both signs, so that their sums cancel."""
    return random.choice([-1.0, 1.0], count) * np.exp2(random.uniform(-12, 6, count))


def _ties(random: Generator, count: int) -> Array:
    """Return a handful of values with zeros of both signs, so that extrema tie and halves need rounding."""
    return random.choice([-2.5, -1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.5], count)


def _ties_and_nan(random: Generator, count: int) -> Array:
    """Return a handful of values with negative infinities and a few NaN. The first eighth is mostly NaN."""
    values = random.choice([-1.5, -0.5, 0.5, 1.0, 2.5], count)
    values[random.random(count) < 0.05] = -np.inf
    values[random.random(count) < 0.01] = np.nan
    start = values[: count // 8]
    start[random.random(start.size) < 0.9] = np.nan
    return values


def _special(random: Generator, count: int) -> Array:
    """Return normal values mixed with NaN, infinities, zeros of both signs, subnormals and the largest numbers."""
    values = _normal(random, count)
    chosen = random.random(count) < 0.35
    values[chosen] = random.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -6e-8, 6e4, -6e4], int(chosen.sum()))
    return values


def _positive(random: Generator, count: int) -> Array:
    """Return values from 0.25 to 4."""
    return np.exp2(random.uniform(-2, 2, count))


def _near_one(random: Generator, count: int) -> Array:
    """Return values near plus or minus one, so that long products stay in range."""
    return random.choice([-1.0, 1.0], count) * random.uniform(0.9, 1.1, count)


def _infinite(random: Generator, count: int) -> Array:
    """Return values near plus or minus one, with infinities in one of fifty, or in one."""
    values = _near_one(random, count)
    chosen = random.integers(count, size=max(1, count // 50))
    values[chosen] = random.choice([np.inf, -np.inf], chosen.size)
    return values


def _huge(random: Generator, count: int) -> Array:
    """Return normal values mixed with magnitudes from 1e19 to 1e30, whose squares overflow float."""
    values = _normal(random, count)
    chosen = random.random(count) < 0.3
    return np.where(chosen, values * 10.0 ** random.uniform(19, 30, count), values * 1e-3)


KINDS: dict[str, Callable[[Generator, int], Array]] = {
    "normal": _normal,
    "wide": _wide,
    "ties": _ties,
    "ties_and_nan": _ties_and_nan,
    "special": _special,
    "positive": _positive,
    "near_one": _near_one,
    "infinite": _infinite,
    "huge": _huge,
}


CHANGE = re.compile(
    r"(\d+|\d*:\d*(?::\d*)?)([=*])(.+)"
)  # elements, and the number that they become or are multiplied by
RANDOM = ("normal", "positive")  # kinds whose values are independent of each other and of their positions


def is_random(kinds: str | Mapping[str, str]) -> bool:
    """Return whether operands of these kinds are random numbers, for which the judge has sharper rules."""
    return all(kind in RANDOM for kind in ([kinds] if isinstance(kinds, str) else kinds.values()))


def values(spec: TensorSpec, kind: str, random: Generator) -> Array:
    """Return values for every scalar of the tensor in its data type. Integers use their whole range.

    kind: a kind of ``KINDS``, and changes of some elements in row-major order: "normal, 3=nan, 1::5=-inf, ::2*300".
    """
    kind, *changes = kind.split(", ")
    dtype = NUMPY_TYPES[spec.scalar_type]
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if kind in ("ties", "ties_and_nan", "near_one", "infinite"):
            numbers = random.integers(max(limits.min, -3), 4, spec.dims)
        else:
            low, high = (limits.min, limits.max) if dtype.itemsize == 1 else (-(2**20), 2**20)
            numbers = random.integers(low, high, spec.dims, endpoint=True)
        found: Array = numbers.astype(dtype)
    else:
        found = rounded(KINDS[kind](random, spec.count).reshape(spec.dims).astype(np.float64), spec.scalar_type)
    for change in changes:
        _change(found.reshape(-1), change)
    return found


def _change(numbers: Array, change: str) -> None:
    """Set or multiply the elements that a change names by a position or a slice. Raises ``ValueError`` for another text."""
    found = CHANGE.fullmatch(change)
    if not found:
        raise ValueError(f"a change of inputs is {change!r}, expected a position or a slice, = or *, and a number")
    place, operator, number = found.groups()
    ends = [int(end) if end else None for end in place.split(":")]
    where = slice(*ends) if len(ends) > 1 else slice(ends[0], ends[0] + 1)  # type: ignore[operator]  # a position has digits
    numbers[where] = float(number) if operator == "=" else numbers[where] * float(number)


def fill(spec: TensorSpec, memory: Array, kind: str, random: Generator) -> None:
    """Store values in the tensor's elements; gaps keep their bytes."""
    target = strided(spec, memory)
    target[...] = values(spec, kind, random).reshape(target.shape)
