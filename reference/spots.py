"""Spot checks: what the reference says of an element, held to what the element's formula says (formulas/).

The judge's values come from array formulas, and a mistake in them would judge itself. So a seeded sample of the elements of each output is
evaluated once more, in plain loops: corners, edges and the inside of the images, each image and channel in turn.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping
from math import gcd

import numpy as np
from dualdnn.api.operations import Operation
from dualdnn.api.operations.specs import DOUBLE, INT32

from . import formulas
from .formulas import Elements, Index, Untold
from .judge import Verdict
from .view import Array, Place

# Between two places in turn lie so many of all images and channels: powers of a root of x^3 = x + 1, which fill a plane evenly.
APART = 0.7549, 0.5698
TAPS = 7  # of a filter, whose borders are like its inside
# This is the share of the derived bound by which two evaluations in float64 may differ. What the compute type itself is may differ by as much as
# anybody's result, twice.
SHARE, SHARE_OF_DOUBLE = 2.0**-8, 2.0


def sample(dims: Index, count: int, seed: int, is_scattered: bool = False) -> list[Index]:
    """So many places of a tensor, fewer where it is small: its last element, then images and channels in turn, each at a corner,
    on an edge or inside. is_scattered: neighbours in turn have images and channels that are far apart, so that they lie in many tiles, and the
    last element comes last."""
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
        for d, extent in enumerate(dims[2:]):  # one of eight is in a corner, one inside, the others on edges
            if number % 8 >> d % 3 & 1 and not (is_scattered and extent <= TAPS):
                inside[d] = (extent - 1) * int(random.integers(2))
        found[(*leading, *inside)] = None
    places = list(found)
    return [*places[1:], places[0]] if is_scattered else places


def _far_step(extent: int, share: float) -> int:
    """Return a step that meets each of so many channels, and whose multiples are spread among them evenly."""
    return next(step for step in range(max(1, round(extent * share)), extent + 2) if gcd(step, extent) == 1)


class Spots:
    """The spot checks of one judged operation.

    problems: what is wrong, a line each. checked: elements that a formula was compared with. untold: why formulas did not say.
    """

    def __init__(self, operation: Operation, memory: Mapping[str, Array], count: int, most_reads: int = 2**12) -> None:
        self.operation, self.count, self.checked = operation, count, 0
        self.problems: list[str] = []
        self.untold: Counter[str] = Counter()
        self.read = Elements(operation, memory, most_reads)
        self.seed = zlib.crc32(str(operation).encode())
        self.share = SHARE_OF_DOUBLE if operation.compute_type in (DOUBLE, INT32) else SHARE
        self._places: dict[str, list[Index]] = {}

    def look(self, name: str, place: Place, value: Array, bound: Array) -> None:
        """Compare the blended values of a place of an output with the formula; where the bound is infinite nothing is determined."""
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
    read = Elements(operation, before, formulas.MOST_READS)
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
