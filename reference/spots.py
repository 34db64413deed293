"""Compare some of the reference's elements with their formulas (formulas/).

The judge's values come from array formulas, so a mistake in them would judge itself. A seeded sample of each output's
elements is therefore evaluated again in plain loops. It covers corners, edges and the inside of images, over all images
and channels.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from math import gcd
from typing import TYPE_CHECKING

import numpy as np
from dualdnn.api.operations import Operation
from dualdnn.api.operations.specs import DOUBLE, INT32

from . import formulas
from .formulas import Elements, Index, Untold
from .view import Array, Place

if TYPE_CHECKING:
    from .judge import Verdict

# These shares of the extents separate consecutive places. They are powers of a root of x^3 = x + 1, which fill a plane
# evenly.
APART = 0.7549, 0.5698
MAX_READS = 2**12  # elements that one sampled element may need
TAPS = 7  # taps of a filter: its borders need no extra samples
# This is the share of the derived bound by which two evaluations in float64 may differ. In double, both evaluations may
# differ by the whole bound.
SHARE = 2.0**-8
SHARE_OF_DOUBLE = 2.0


def sample(dims: Index, count: int, seed: int, is_scattered: bool = False) -> list[Index]:
    """Return up to ``count`` indices of a tensor.

    The first is its last element. The others take images and channels in turn, each in a corner, on an edge or inside.
    is_scattered: consecutive indices have distant images and channels, so that they hit many tiles, and the last
    element comes last.
    """
    random = np.random.default_rng(seed)
    found = {tuple(extent - 1 for extent in dims): None}
    first = [int(random.integers(extent)) for extent in dims[:2]]
    steps = [_far_step(extent, share) if is_scattered else 1 for extent, share in zip(dims, APART, strict=False)]
    for number in range(4 * count):
        if len(found) >= count:
            break
        leading = tuple(
            (start + number * step) % extent for start, step, extent in zip(first, steps, dims, strict=False)
        )
        inside = [int(random.integers(extent)) for extent in dims[2:]]
        for d, extent in enumerate(dims[2:]):  # One of eight indices is in a corner, one inside, the others on edges.
            if number % 8 >> d % 3 & 1 and not (is_scattered and extent <= TAPS):
                inside[d] = (extent - 1) * int(random.integers(2))
        found[(*leading, *inside)] = None
    places = list(found)
    return [*places[1:], places[0]] if is_scattered else places


def _far_step(extent: int, share: float) -> int:
    """Return a step that reaches every channel, with multiples spread evenly among them."""
    return next(step for step in range(max(1, round(extent * share)), extent + 2) if gcd(step, extent) == 1)


class Spots:
    """Hold the spot checks of one judged operation.

    problems: what is wrong, one line each. checked: the number of elements compared with a formula. untold: why
    formulas gave no answer, with counts.
    """

    def __init__(
        self,
        operation: Operation,
        memory: Mapping[str, Array],
        count: int,
        earlier: Sequence[tuple[Operation, Mapping[str, Array]]] = (),
    ) -> None:
        self.operation, self.count, self.checked = operation, count, 0
        self.problems: list[str] = []
        self.untold: Counter[str] = Counter()
        self.read = Elements(operation, memory, MAX_READS, earlier)
        self.seed = zlib.crc32(str(operation).encode())
        self.share = SHARE_OF_DOUBLE if operation.compute_type in (DOUBLE, INT32) else SHARE
        self._places: dict[str, list[Index]] = {}

    def look(self, name: str, place: Place, value: Array, bound: Array) -> None:
        """Compare the blended values of a place of an output with the formula.

        Nothing is determined where the bound is infinite.
        """
        if name not in self._places:
            wanted = formulas.has_formula(self.operation)
            self._places[name] = sample(self.operation.tensor(name).dims, self.count, self.seed) if wanted else []
        starts = [part.start for part in place] if place else [0] * value.ndim
        for index in self._places[name]:
            here = tuple(i - start for i, start in zip(index, starts, strict=True))
            if all(0 <= i < extent for i, extent in zip(here, value.shape, strict=True)):
                self._compare(name, index, float(value[here]), float(bound[here]))

    def _compare(self, name: str, index: Index, exact: float, bound: float) -> None:
        if np.isinf(bound):
            return
        try:
            found = formulas.element_of(self.operation, name, index, self.read).value
            found = formulas.blended(self.operation, name, index, self.read, found)
        except Untold as why:
            self.untold[str(why)] += 1
            return
        except (ArithmeticError, ValueError) as error:
            self.untold[f"{type(error).__name__}: {error}"] += 1
            return
        self.checked += 1
        allowed = self.share * bound
        if not (abs(found - exact) <= allowed or found == exact or (np.isnan(found) and np.isnan(exact))):
            self.problems.append(
                f"{name}{list(index)}: the reference says {exact!r}, its formula {found!r}, allowed difference {allowed:.3g}"
            )


def second_opinion(operation: Operation, verdict: Verdict, before: Mapping[str, Array]) -> str:
    """Return which side an independent evaluation of the worst element finds outside the bound, or that it cannot tell."""
    worst = verdict.worst
    if worst is None:
        return ""
    unknown = "which of the two is wrong cannot be told"
    if not formulas.has_formula(operation) or not np.isfinite(worst.bound):
        return f"{unknown}: {type(operation).__name__} has no second evaluation"
    read = Elements(operation, before, formulas.MAX_READS)
    try:
        found = formulas.element_of(operation, worst.output, worst.index, read).value
        value = formulas.blended(operation, worst.output, worst.index, read, found)
    except (Untold, ArithmeticError, ValueError, KeyError) as error:
        return f"{unknown}: the second evaluation failed ({error})"
    ours, theirs = (abs(number - value) <= worst.bound or number == value for number in (worst.exact, worst.got))
    where = f"evaluated from its formula alone {worst.output}{list(worst.index)} is {value!r}"
    if ours and not theirs:
        return f"{where}: the accelerated backend lies outside the bound"
    if theirs and not ours:
        return f"{where}: the reference lies outside the bound, the accelerated backend does not"
    return f"{where}: " + ("both lie inside the bound" if ours else "both lie outside the bound") + f", {unknown}"
