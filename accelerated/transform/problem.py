"""Describes the walks of a transform, affine maps between the elements of two tensors (transform/problem.cuh), and its
problem."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_uint
from math import prod
from typing import Any, NamedTuple

from dualdnn.api.operations import TensorSpec, TransformSpec, TransformTensor
from dualdnn.api.operations.transform import folding_factors, folds, unfolded_blocks, unfolds

from ..plans import ELEMENTS, Launch, factors, pointers, structure, type_definitions
from ..primitives.geometry import THREADS, FastDivmod, Grid
from ..reproducible import NO_SUMS
from ..runtime.arguments import declared
from ..solver import Problem, Solver

VECTOR_BYTES = 16
# These sizes of the kernels' Walk suffice to unfold six dimensions. A test compares the fields with the kernels'.
DIMENSIONS = 10  # virtual dimensions per walk
SOURCE_CHECKS = 7  # checked source coordinates per walk
DESTINATION_CHECKS = 4  # checked destination coordinates per walk
# Walks without checks pad larger sources: one launch copies, and one or two per dimension write zeros.
SPLIT_BYTES = 512 << 10  # bytes of a source


class DimensionArgument(ctypes.Structure):
    _fields_ = [("extent", FastDivmod), ("source", c_int), ("destination", c_int)]


class CheckArgument(ctypes.Structure):
    _fields_ = [("base", c_int), ("limit", c_uint), ("step", c_int * DIMENSIONS)]


class WalkArgument(ctypes.Structure):
    _fields_ = [
        *declared(c_int, "rank source_checks destination_checks source_base destination_base"),
        ("dimension", DimensionArgument * DIMENSIONS),
        ("source_check", CheckArgument * SOURCE_CHECKS),
        ("destination_check", CheckArgument * DESTINATION_CHECKS),
    ]


class Axis(NamedTuple):
    """Hold a virtual dimension: its extent, and the step that it adds to each coordinate of source and destination."""

    extent: int
    source: dict[int, int]
    destination: dict[int, int]


class Coordinate(NamedTuple):
    """Hold a coordinate of a tensor: its value at the walk's origin, its extent, and its stride in elements."""

    base: int
    limit: int
    stride: int


class Step(NamedTuple):
    """Hold an axis in memory: its extent, its strides in elements, and its steps in every checked coordinate."""

    extent: int
    source: int
    destination: int
    source_checks: tuple[int, ...]
    destination_checks: tuple[int, ...]

    def continues(self, inner: Step) -> bool:
        """Return whether this axis continues where the inner one ends, in memory and in every check."""
        outer_steps = (self.source, self.destination, *self.source_checks, *self.destination_checks)
        inner_steps = (inner.source, inner.destination, *inner.source_checks, *inner.destination_checks)
        return all(o == i * inner.extent for o, i in zip(outer_steps, inner_steps, strict=True))


class Walk:
    """Hold merged axes in memory, the destination's fastest first, with the checks that they need."""

    def __init__(self, axes: list[Axis], source: list[Coordinate], destination: list[Coordinate]) -> None:
        self.source_base = sum(c.base * c.stride for c in source)
        self.destination_base = sum(c.base * c.stride for c in destination)
        self.source_checked = _checked([axis.source for axis in axes], source, axes)
        self.destination_checked = _checked([axis.destination for axis in axes], destination, axes)
        self.source, self.destination = source, destination
        steps = [
            Step(
                axis.extent,
                sum(step * source[i].stride for i, step in axis.source.items()),
                sum(step * destination[i].stride for i, step in axis.destination.items()),
                tuple(axis.source.get(i, 0) for i in self.source_checked),
                tuple(axis.destination.get(i, 0) for i in self.destination_checked),
            )
            for axis in axes
            if axis.extent > 1
        ]
        self.steps: list[Step] = []
        for step in sorted(steps, key=lambda step: step.destination):
            if self.steps and step.continues(self.steps[-1]):
                self.steps[-1] = self.steps[-1]._replace(extent=self.steps[-1].extent * step.extent)
            else:
                self.steps.append(step)
        if not self.steps:
            self.steps.append(Step(1, 1, 1, (), ()))

    @property
    def transposes(self) -> bool:
        """Return whether source and destination are contiguous along different axes."""
        return min(self.steps, key=lambda step: step.source) is not self.steps[0]

    def aligned(self, side: str, along: Step, width: int) -> bool:
        """Return whether vectors of ``width`` elements along this axis are contiguous on a side and keep the alignment
        of its start. side: "source" or "destination"."""
        steps = [getattr(step, side) for step in self.steps if step is not along]
        base, checked = (
            (self.source_base, self.source_checked)
            if side == "source"
            else (self.destination_base, self.destination_checked)
        )
        return getattr(along, side) == 1 and not checked and all(step % width == 0 for step in (base, *steps))

    @property
    def checked(self) -> bool:
        """Return whether positions of the walk are outside one of the tensors."""
        return bool(self.source_checked or self.destination_checked)

    def argument(self, order: list[Step]) -> WalkArgument:
        """Return the kernels' ``Walk`` with the axes in this order."""
        value = WalkArgument(
            rank=len(order), source_base=self.source_base, destination_base=self.destination_base,
            source_checks=len(self.source_checked), destination_checks=len(self.destination_checked),
        )  # fmt: skip
        for d, step in enumerate(order):
            value.dimension[d] = DimensionArgument(FastDivmod.of(step.extent), step.source, step.destination)
            for check, checked in zip(value.source_check, step.source_checks, strict=False):
                check.step[d] = checked
            for check, checked in zip(value.destination_check, step.destination_checks, strict=False):
                check.step[d] = checked
        for check, i in zip(value.source_check, self.source_checked, strict=False):
            check.base, check.limit = self.source[i].base, self.source[i].limit
        for check, i in zip(value.destination_check, self.destination_checked, strict=False):
            check.base, check.limit = self.destination[i].base, self.destination[i].limit
        return value


def _checked(steps: list[dict[int, int]], coordinates: list[Coordinate], axes: list[Axis]) -> list[int]:
    """Return the coordinates that leave their tensor somewhere on the walk."""

    def reach(i: int, sign: int) -> int:
        far = (step.get(i, 0) * (axis.extent - 1) for step, axis in zip(steps, axes, strict=True))
        return coordinates[i].base + sum(step for step in far if step * sign > 0)

    return [i for i, c in enumerate(coordinates) if reach(i, -1) < 0 or reach(i, 1) >= c.limit]


def copy(x: TensorSpec, y: TensorSpec) -> Walk:
    """Return the walk from each element of ``x`` to its place in y. Vectorised channels are split so that both layouts
    fit."""
    units = sorted({1, x.vector_length, y.vector_length})
    tops = [*units[1:], x.dims[1]]
    axes = [(tops[i] // unit, _channel_step(x, unit), _channel_step(y, unit)) for i, unit in enumerate(units)]
    for d, extent in enumerate(x.dims):
        if d != 1:
            axes.append((extent, x.strides[d] * x.vector_length, y.strides[d] * y.vector_length))
    numbered = [Axis(extent, {i: 1}, {i: 1}) for i, (extent, _, _) in enumerate(axes)]
    sides = (
        [Coordinate(0, extent, step) for extent, *steps in axes for step in steps[side : side + 1]] for side in (0, 1)
    )
    return Walk(numbered, *sides)


def spread_filter(w: TensorSpec, target: TensorSpec, stride: tuple[int, ...]) -> Walk:
    """Return the walk from a filter (K, C, taps ...) to one of (residues and C, K, taps ...).

    Taps that are ``stride`` apart stay taps in each dimension, and the taps between them become residues.
    """
    channels, rank = w.dims[1], len(stride)
    axes = [Axis(w.dims[0], {0: 1}, {1: 1}), Axis(channels, {1: 1}, {0: 1})]
    for d, step in enumerate(stride):
        axes.append(Axis(step, {2 + d: 1}, {0: channels * prod(stride[d + 1 :])}))
        axes.append(Axis(target.dims[2 + d], {2 + d: step}, {2 + d: 1}))
    none = [0] * (2 + rank)
    return Walk(axes, _coordinates(w, none), _coordinates(target, none))


def block_diagonal(w: TensorSpec, target: TensorSpec, groups: int, together: int) -> Walk:
    """Return the walk from a filter of ``groups`` groups (K, C, taps ...) to one with ``together`` of these groups in
    each group.

    The result has the shape (rows and K, together * C, taps ...). Entries are zero where filter and channel belong to
    different source groups, and so are the leading rows.
    """
    filters, channels, taps = w.dims[0] // groups, w.dims[1], w.dims[2:]
    before, rows = target.dims[0] - w.dims[0], together * filters
    same = w.rank  # coordinate of a channel's group, relative to the filter's group
    axes = [
        Axis(target.dims[0] // rows, {0: rows}, {0: rows}),
        Axis(together, {0: filters, same: -1}, {0: filters}),
        Axis(filters, {0: 1}, {0: 1}),
        Axis(together, {same: 1}, {1: channels}),
        Axis(channels, {1: 1}, {1: 1}),
        *(Axis(extent, {2 + d: 1}, {2 + d: 1}) for d, extent in enumerate(taps)),
    ]
    source = [*_coordinates(w, [-before, *[0] * (w.rank - 1)]), Coordinate(0, 1, 0)]
    return Walk(axes, source, _coordinates(target, [0] * w.rank))


def _channel_step(spec: TensorSpec, channels: int) -> int:
    """Return the stride in scalars between channels with distance ``channels``, a multiple or a divisor of the vector
    length."""
    length = spec.vector_length
    return channels // length * spec.strides[1] * length if channels >= length else channels


def transformed(transform: TransformSpec, source: TensorSpec, destination: TensorSpec) -> list[Walk]:
    """Return the walks of a padding, folding or unfolding transform."""
    if unfolds(transform):
        return [_unfolding(transform, source, destination)]
    overlaps = all(
        max(lead, 0) < min(lead + extent, result)
        for lead, extent, result in zip(transform.pad_before, source.dims, destination.dims, strict=True)
    )
    if not folds(transform) and overlaps and prod(source.dims) * source.scalar_bytes >= SPLIT_BYTES:
        return padded(source, destination, transform.pad_before)
    return _folding(transform, source, destination)


def _offset_axes(factors: tuple[int, ...], channels: int, per_channel: str) -> list[Axis]:
    """Return the axes of the offsets inside blocks. They step a spatial dimension on one side and a group of channels
    on the other."""
    axes = []
    for d, factor in enumerate(factors):
        spatial, channel = {2 + d: 1}, {1: channels * prod(factors[d + 1 :])}
        axes.append(Axis(factor, spatial, channel) if per_channel == "destination" else Axis(factor, channel, spatial))
    return axes


def _folding(transform: TransformSpec, source: TensorSpec, destination: TensorSpec) -> list[Walk]:
    """Return the walks of padding alone, or of padding and folding. Separate walks pad the channels of a folded
    tensor, since their padding is next to groups of channels."""
    rank = source.rank
    factors = folding_factors(transform) if folds(transform) else (1,) * (rank - 2)
    total, channels = prod(factors), source.dims[1]
    lead = transform.pad_before[1]
    inside = channels if total > 1 else destination.dims[1]  # Checks pad the channels unless the transform folds.
    axes = [
        Axis(destination.dims[0], {0: 1}, {0: 1}),
        Axis(inside, {1: 1}, {1: 1}),
        *(Axis(destination.dims[2 + d], {2 + d: f}, {2 + d: 1}) for d, f in enumerate(factors)),
        *_offset_axes(factors, channels, "destination"),
    ]
    bases = [-before for before in transform.pad_before]
    if total > 1:
        bases[1] = 0
    origin = [0] * rank
    if total > 1:
        origin[1] = lead
    # Elements cropped at the end of a dimension, perhaps all of it, are missing for the last blocks too.
    cropped = [min(0, after) if d != 1 else 0 for d, after in enumerate(transform.pad_after)]
    coordinates = zip(_coordinates(source, bases), cropped, strict=True)
    there = [c._replace(limit=max(0, c.limit + less)) for c, less in coordinates]
    walks = [Walk(axes, there, _coordinates(destination, origin))]
    if total > 1:
        result = destination.dims[1]
        for first, end in ((0, min(lead, result)), (max(0, lead + channels * total), result)):
            extents = [end - first if d == 1 else extent for d, extent in enumerate(destination.dims)]
            if first < end:
                walks.append(_zeros(destination, [first if d == 1 else 0 for d in range(rank)], extents))
    return walks


def padded(source: TensorSpec, destination: TensorSpec, before: tuple[int, ...] = ()) -> list[Walk]:
    """Return the walks of padding without folding; negative amounts crop. The first walk copies, the others write
    zeros before and after it along each dimension. before: the leading padding per dimension."""
    before, results = before or (0,) * source.rank, destination.dims
    inside = [
        (max(lead, 0), min(lead + extent, result))
        for lead, extent, result in zip(before, source.dims, results, strict=True)
    ]
    origin, extents = [0] * source.rank, list(results)
    walks = []
    for d, (begin, end) in enumerate(inside):
        sides = [(first, last - first) for first, last in ((0, begin), (end, results[d])) if first < last]
        alike = len(sides) == 2 and begin == results[d] - end  # One walk writes both sides if they have the same width.
        for first, width in sides[:1] if alike else sides:
            origin[d], extents[d] = first, width
            walks.append(_zeros(destination, origin, extents, Axis(1 + alike, {}, {d: end})))
        origin[d], extents[d] = begin, end - begin
    axes = [Axis(extent, {d: 1}, {d: 1}) for d, extent in enumerate(extents)]
    bases = [begin - lead for begin, lead in zip(origin, before, strict=True)]
    return [Walk(axes, _coordinates(source, bases), _coordinates(destination, origin)), *walks]


def _zeros(destination: TensorSpec, origin: list[int], extents: list[int], *others: Axis) -> Walk:
    """Return the walk that writes zeros in a box of the destination, and in its translations along further axes. Its
    source is empty."""
    axes = [*others, *(Axis(extent, {}, {d: 1}) for d, extent in enumerate(extents))]
    return Walk(axes, [Coordinate(0, 0, 0)], _coordinates(destination, origin))


def _unfolding(transform: TransformSpec, source: TensorSpec, destination: TensorSpec) -> Walk:
    """Return the walk of unfolding and then padding. Its blocks cover the destination, and may end beyond
    it."""
    rank = source.rank
    factors = folding_factors(transform)
    kept = -(-source.dims[1] // prod(factors))
    before = transform.pad_before
    # The channel within its group is a separate coordinate, which is checked but has no stride in memory.
    axes = [
        Axis(destination.dims[0], {0: 1}, {0: 1}),
        Axis(destination.dims[1], {1: 1, rank: 1}, {1: 1}),
        *_offset_axes(factors, kept, "source"),
    ]
    bases, origin = [-before[0], -before[1]], [0, 0]
    blocks = unfolded_blocks(transform, destination.dims)
    for d, (factor, covered, pad) in enumerate(zip(factors, blocks, before[2:], strict=True)):
        axes.append(Axis(len(covered), {2 + d: 1}, {2 + d: factor}))
        bases.append(covered.start)
        origin.append(covered.start * factor + pad)
    group = Coordinate(-before[1], kept, 0)
    return Walk(axes, [*_coordinates(source, bases), group], _coordinates(destination, origin))


def _coordinates(spec: TensorSpec, bases: list[int]) -> list[Coordinate]:
    """Return the coordinates of a tensor. A dimension of size 1 has stride 0, so that offsets outside it stay small."""
    strides = [stride if extent > 1 else 0 for extent, stride in zip(spec.dims, spec.strides, strict=True)]
    return [Coordinate(*entry) for entry in zip(bases, spec.dims, strides, strict=True)]


class TransformProblem(Problem):
    """Describe a transform as walks from its source to its destination. The walks after the first fill padding
    channels with zeros.

    names: the operands. moves: alpha is 1 and beta 0, so elements of the same type are copied bit by bit.
    """

    def __init__(
        self,
        operation: Any,
        device: Any,
        aligned: bool = True,
        names: tuple[str, str] | None = None,
        walks: list[Walk] | None = None,
    ) -> None:
        super().__init__(operation, device, aligned)
        plain = isinstance(operation, TransformTensor)
        self.names = names or (("x", "y") if plain else ("srcData", "destData"))
        source, destination = (operation.tensor(name) for name in self.names)
        if walks is None:
            walks = [copy(source, destination)] if plain else transformed(operation.transform, source, destination)
        self.walks = walks
        self.types = source.scalar_type, destination.scalar_type
        self.element_bytes = source.scalar_bytes, destination.scalar_bytes
        self.same_type = self.types[0] == self.types[1]
        self.moves = (operation.alpha, operation.beta) == (1, 0)
        self.transposes: dict[int, Any] = {}  # results of transpose.py, by the id of the walk

    def scalars(self) -> list[tuple[str, Any]]:
        """Return the argument fields alpha and beta."""
        return factors(self.operation, alpha=self.operation.alpha, beta=self.operation.beta)

    def launch(
        self,
        kernel: tuple[str, str],
        fields: list[tuple[str, Any]],
        grid: Grid,
        block: Grid = (THREADS, 1, 1),
        shared_bytes: int = 0,
    ) -> Launch:
        """Return the launch of a kernel (source, name). fields: the arguments that follow the pointers."""
        types = type_definitions(self.types[1], self.operation, SOURCE=ELEMENTS[self.types[0]])
        function = self.device.function(*kernel, types)
        return Launch(function, structure(*pointers(2), *fields), self.names, grid, block, shared_bytes)


class WalkSolver(Solver[TransformProblem]):
    """Solve one walk. A transform uses the solver of its first walk and, for each further walk, the one preferred for
    it."""

    fixed_order = NO_SUMS
    order: tuple[WalkSolver, ...] = ()  # all solvers of the family, in order of preference

    def carries(self, problem: TransformProblem, walk: Walk) -> bool:
        """Return whether the kernel carries out this walk."""
        raise TypeError(f"{type(self).__name__} does not define carries()")

    def prefers(self, problem: TransformProblem, walk: Walk) -> bool:
        """Return whether the kernel carries out this walk and is expected to be faster than the solvers after it."""
        return self.carries(problem, walk)

    def walk_launch(self, problem: TransformProblem, walk: Walk) -> Launch:
        """Return the launch that carries out one walk."""
        raise TypeError(f"{type(self).__name__} does not define walk_launch()")

    @classmethod
    def preferred(cls, problem: TransformProblem, walk: Walk) -> WalkSolver:
        """Return the family's first solver that prefers a walk."""
        return next(solver for solver in WalkSolver.order if solver.prefers(problem, walk))

    def serves(self, problem: TransformProblem) -> bool:
        return self.carries(problem, problem.walks[0])

    def applies(self, problem: TransformProblem) -> bool:
        return self.prefers(problem, problem.walks[0])

    def launches(self, problem: TransformProblem) -> list[Launch]:
        first, *others = problem.walks
        return [
            self.walk_launch(problem, first),
            *(self.preferred(problem, walk).walk_launch(problem, walk) for walk in others),
        ]
