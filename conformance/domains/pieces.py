"""Draw extents, layouts, types, factors and kinds of inputs for every domain, in named profiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeVar

from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations import Operation, TensorSpec
from dualdnn.api.operations.specs import NCHW, NHWC

T = TypeVar("T")
Dims = tuple[int, ...]
NEAR_TILES = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
CHANNELS = (8, 16, 32, 64)
# An entry that occurs twice is drawn more often: most calls pass it.
ALPHAS = (1.0, 1.0, -1.75, 0.5)
BETAS = (0.0, 0.0, 1.0, -0.5)
NUMBERS = ("normal", "normal", "wide", "ties")
SPECIAL = ("special", "ties_and_nan", "infinite")
LARGE = (2**31 - 1, 2**31 - 2, 2**31 - 8, 2**30 + 1, 2**30, 2**30 - 3, 2**29, 2**28 + 1)


@dataclass(frozen=True)
class Profile:
    """Set the preferences of drawing.

    longest: largest extent. most: elements of a tensor. near_tiles: whether extents are powers of two and their
    neighbours. gaps: percent of tensors with gaps. offset: percent of operands that begin after an aligned address.
    special: whether inputs include NaN and infinities. extremes: whether windows, paddings, steps, and strides of
    dimensions of size 1 are near the limit of 32 bits.
    """

    name: str
    longest: int
    most: int
    near_tiles: bool = False
    gaps: int = 15
    offset: int = 0
    special: bool = False
    extremes: bool = False


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("small", 6, 1_500, offset=12),
        Profile("edges", 130, 12_000, near_tiles=True, offset=12),
        Profile("large", 300, 60_000, gaps=5),
        Profile("unaligned", 40, 6_000, gaps=60, offset=60),
        Profile("special", 24, 4_000, special=True),
        Profile("extremes", 6, 1_500, extremes=True),
    )
}


@dataclass(frozen=True)
class Drawn:
    """Hold operations that run in order on shared memory, mostly one, and their inputs.

    inputs: the kind of all inputs, or a kind for each operand. offsets: operand -> bytes after an aligned address.
    aliases: operand -> operand with the same memory. refused: the name of a change of a table of refusals, with which
    the first call must be refused; else all are made as they are. varied: the last operation has a random change, so
    its call may be refused.
    """

    steps: tuple[Operation, ...]
    inputs: str | dict[str, str] = "normal"
    offsets: tuple[tuple[str, int], ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    refused: str = ""
    varied: bool = False

    @property
    def operation(self) -> Any:
        """Return the first operation."""
        return self.steps[0]


class Source:
    """Make choices by Hypothesis. A failure shrinks towards the first options and small numbers."""

    def __init__(self, draw: Callable[[Any], Any], profile: Profile) -> None:
        from hypothesis import strategies  # This import is local, because pinned operations do not need it.

        self.draw, self.profile, self.strategies = draw, profile, strategies

    def pick(self, options: Sequence[T]) -> T:
        """Draw one of the options."""
        return self.draw(self.strategies.sampled_from(options))

    def integer(self, low: int, high: int) -> int:
        """Draw an integer, both ends included."""
        return int(self.draw(self.strategies.integers(low, max(low, high))))

    def chance(self, percent: int) -> bool:
        """Return True in this percentage of the cases."""
        return self.integer(0, 99) >= 100 - percent

    def extent(self) -> int:
        """Draw the extent of a dimension."""
        near = [extent for extent in NEAR_TILES if extent <= self.profile.longest]
        if self.profile.near_tiles:
            return self.pick(near)
        return self.integer(1, self.pick((4, 12, self.profile.longest)))

    def channels(self) -> int:
        """Draw a number of channels: any, or one that vectors and tiles divide."""
        return self.pick((self.extent(), self.extent(), self.pick(CHANNELS)))

    def dims(self, rank: int, most: int = 0) -> Dims:
        """Draw images, channels and extents with at most ``most`` elements; 0 takes the profile's limit."""
        images = self.pick((1, self.extent()))
        found = (images, self.channels(), *(self.extent() for _ in range(rank - 2)))[:rank]
        return fitted(found, most or self.profile.most)

    def large(self, percent: int, others: Sequence[int] = (1, 2, 3)) -> int:
        """Draw a number near the limit of 32 bits in this percentage of the cases, else one of the others."""
        return self.pick(LARGE) if self.chance(percent) else self.pick(others)

    def layout(self, dims: Dims) -> Dims:
        """Draw strides without overlap: channels first, channels last or any order; packed, with gaps, or all
        multiplied.
        """
        rank = len(dims)
        order = self.pick(((*range(rank),), (0, *range(2, rank), 1), None))
        if order is None:
            order = tuple(self.draw(self.strategies.permutations(range(rank))))
        strides, step = [0] * rank, 1
        gaps = self.chance(self.profile.gaps)
        for dimension in reversed(order):
            strides[dimension] = step
            step *= dims[dimension] + (self.pick((0, 0, 1, 3, 8)) if gaps else 0)
        times = self.pick((2, 3)) if gaps and self.chance(20) else 1
        steps = zip(dims, strides, strict=True)
        return tuple(self.large(60) if d == 1 and self.profile.extremes else s * times for d, s in steps)

    def tensor(self, data_type: cudnnDataType_t, dims: Dims) -> TensorSpec:
        """Draw a tensor in some layout."""
        return TensorSpec(data_type, dims, self.layout(dims))

    def rows(self, data_type: cudnnDataType_t, dims: Dims) -> TensorSpec:
        """Draw a tensor whose only gaps follow its rows."""
        wide = (*dims[:-1], dims[-1] + self.integer(1, 3))
        return TensorSpec(data_type, dims, TensorSpec.packed(data_type, wide).strides)

    def packed(self, data_type: cudnnDataType_t, dims: Dims, channels_last: bool) -> TensorSpec:
        """Return a tensor without gaps."""
        return TensorSpec.packed(data_type, dims, NHWC if channels_last else NCHW)

    def like(self, spec: TensorSpec, percent: int = 60) -> TensorSpec:
        """Return the same tensor in this percentage of the cases, else draw another layout for its dimensions."""
        return spec if self.chance(percent) else self.tensor(spec.data_type, spec.dims)

    def blend(self) -> tuple[float, float]:
        """Draw (alpha, beta)."""
        return self.pick(ALPHAS), self.pick(BETAS)

    def inputs(self, kinds: Sequence[str] = NUMBERS, special: Sequence[str] = SPECIAL) -> str:
        """Draw a kind of inputs."""
        return self.pick(special if self.profile.special and special else kinds)

    def placed(self, drawn: Drawn) -> Drawn:
        """Return the same operations with operands that begin after aligned addresses, at multiples of their
        elements.
        """
        specs = {
            name: step.tensor(name)
            for step in drawn.steps
            for name in step.operands
            if name not in step.raw and step.nbytes(name)
        }
        offsets = [
            (name, self.integer(1, 15) * spec.scalar_bytes * spec.vector_length)
            for name, spec in specs.items()
            if self.chance(self.profile.offset)
        ]
        return replace(drawn, offsets=tuple(offsets))


def fitted(dims: Dims, most: int) -> Dims:
    """Return the dimensions, halving the longest until there are at most ``most`` elements."""
    found = list(dims)
    while prod(found) > most:
        longest = found.index(max(found))
        found[longest] = max(1, found[longest] // 2)
    return tuple(found)


def need(condition: bool) -> None:
    """Give up a choice that the API would refuse."""
    from hypothesis import assume

    assume(condition)
