"""Transforms of layout, padding, folding and data type on the device (transform/transform.cu)."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_uint
from math import prod
from typing import Any, NamedTuple

from dualdnn.api.operations import TensorSpec, TransformFilter, TransformSpec, TransformTensor, TransformTensorEx
from dualdnn.api.operations.transform import folding_factors, folds, unfolds

from ..plans import ELEMENTS, Launch, Plan, factors, implements, pointers, structure, type_definitions
from ..primitives.geometry import THREADS, FastDivmod, blocks
from ..primitives.small_grid import RANK, SmallGridLaunch, small_grid_of_extents
from .transpose import turned

DIMENSIONS, SOURCE_CHECKS, DESTINATION_CHECKS = 10, 7, 4  # what unfolding 6 dimensions needs
TILE_BYTES = 16 * 1024
LOG_WARP = 5
COLUMN = 4  # elements, as in the kernel
ENOUGH_TILES = 24  # per multiprocessor: several rounds of what it holds at once, so that the last round is short


class DimensionArgument(ctypes.Structure):
    _fields_ = [("extent", FastDivmod), ("source", c_int), ("destination", c_int)]


class CheckArgument(ctypes.Structure):
    _fields_ = [("base", c_int), ("limit", c_uint), ("step", c_int * DIMENSIONS)]


class WalkArgument(ctypes.Structure):
    _fields_ = [
        ("rank", c_int),
        ("source_checks", c_int),
        ("destination_checks", c_int),
        ("source_base", c_int),
        ("destination_base", c_int),
        ("dimension", DimensionArgument * DIMENSIONS),
        ("source_check", CheckArgument * SOURCE_CHECKS),
        ("destination_check", CheckArgument * DESTINATION_CHECKS),
    ]


class RowsArgument(ctypes.Structure):
    _fields_ = [("packs_per_row", FastDivmod), ("packs", c_uint), ("log_spread", c_uint)]


class TilingArgument(ctypes.Structure):
    _fields_ = [
        ("across", FastDivmod),
        ("along", FastDivmod),
        ("log_across", c_uint),
        ("log_along", c_uint),
        ("log_rest", c_uint),
        ("packs_in", c_int),
        ("packs_out", c_int),
    ]


class Axis(NamedTuple):
    """A virtual dimension: its extent and what one step along it adds to coordinates of source and destination."""

    extent: int
    source: dict[int, int]
    destination: dict[int, int]


class Coordinate(NamedTuple):
    """A coordinate of a tensor: its value at the walk's origin, its extent there, its stride in memory."""

    base: int
    limit: int
    stride: int


class Step(NamedTuple):
    """An axis in memory: steps in elements and in every coordinate that has to be checked."""

    extent: int
    source: int
    destination: int
    source_checks: tuple[int, ...]
    destination_checks: tuple[int, ...]

    def continues(self, inner: Step) -> bool:
        """Whether this axis goes on where the inner one ends, everywhere."""
        outer_steps = (self.source, self.destination, *self.source_checks, *self.destination_checks)
        inner_steps = (inner.source, inner.destination, *inner.source_checks, *inner.destination_checks)
        return all(o == i * inner.extent for o, i in zip(outer_steps, inner_steps, strict=True))


class Walk:
    """Axes in memory, merged, the fastest of the destination first, with the checks that they need."""

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
            none = ((0,) * len(self.source_checked), (0,) * len(self.destination_checked))
            self.steps.append(Step(1, 1, 1, *none))

    @property
    def turns(self) -> bool:
        """Source and destination are contiguous along different axes."""
        return min(self.steps, key=lambda step: step.source) is not self.steps[0]

    def aligned(self, side: str, along: Step, width: int) -> bool:
        """Whether packs of ``width`` along this axis are contiguous on that side and keep the alignment of its start."""
        steps = [getattr(step, side) for step in self.steps if step is not along]
        base, checked = (
            (self.source_base, self.source_checked)
            if side == "source"
            else (self.destination_base, self.destination_checked)
        )
        return getattr(along, side) == 1 and not checked and all(step % width == 0 for step in (base, *steps))

    def argument(self, order: list[Step]) -> WalkArgument:
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
    """The coordinates that leave their tensor somewhere on the walk."""

    def last(i: int) -> int:
        return coordinates[i].base + sum(
            step.get(i, 0) * (axis.extent - 1) for step, axis in zip(steps, axes, strict=True)
        )

    return [i for i, c in enumerate(coordinates) if c.base < 0 or last(i) >= c.limit]


def launch(walk: Walk, operation: Any, names: tuple[str, str], device: Any) -> Launch:
    """The kernel that carries out a walk from the first operand to the second."""
    kinds = [operation.tensor(name).scalar_type for name in names]
    definitions = type_definitions(kinds[1], operation, SOURCE=ELEMENTS[kinds[0]])
    scalars = factors(operation, alpha=operation.alpha, beta=operation.beta)
    moves = (operation.alpha, operation.beta) == (1, 0)
    move = ("move", c_int(moves))
    same_type = kinds[0] == kinds[1]
    sizes = (operation.tensor(names[0]).scalar_bytes, operation.tensor(names[1]).scalar_bytes)
    if walk.turns and not (walk.source_checked or walk.destination_checked):
        turn = turned(walk, *sizes, same_type=same_type, moves=moves, multiprocessors=device.multiprocessors)
        if not (turn and turn.squares) and (boxed := _columns(walk)):
            bases = ("source_base", c_int(walk.source_base)), ("destination_base", c_int(walk.destination_base))
            step = ("source_along", c_int(walk.steps[0].source))
            arguments = structure(*pointers(2), *scalars, move, *bases, step, ("small_grid", boxed.layout))
            function = device.function("transform/transform.cu", "transform_turn_columns", definitions)
            return Launch(function, arguments, names, boxed.grid, boxed.block)
        if turn is not None:
            arguments = structure(*pointers(2), *scalars, move, ("turn", turn.argument))
            function = device.function("transform/transform.cu", turn.kernel, definitions)
            return Launch(function, arguments, names, (turn.tiles, 1, 1), (turn.threads, 1, 1), turn.shared_bytes)
    if walk.turns and not walk.destination_checked:
        order, tiling, tiles = _tiling(walk, *sizes, device.multiprocessors)
        arguments = structure(*pointers(2), ("walk", walk.argument(order)), *scalars, ("tiling", tiling), move)
        function = device.function("transform/transform.cu", "transform_tiles", definitions)
        return Launch(function, arguments, names, (tiles, 1, 1), (THREADS, 1, 1), TILE_BYTES)
    rows = _rows(walk, 16 // max(sizes))
    arguments = structure(*pointers(2), ("walk", walk.argument(walk.steps)), *scalars, ("rows", rows), move)
    function = device.function("transform/transform.cu", "transform_rows", definitions)
    return Launch(function, arguments, names, blocks(rows.packs))


def _columns(walk: Walk) -> SmallGridLaunch | None:
    """Small tensors: threads side by side where the source is contiguous, each with a column along which the destination is."""
    along, others = walk.steps[0], sorted(walk.steps[1:], key=lambda step: -step.source)
    if along.extent % COLUMN or len(others) >= RANK or not walk.aligned("destination", along, COLUMN):
        return None
    columns = Step(along.extent // COLUMN, along.source * COLUMN, COLUMN, (), ())
    *outer, rows, row = [Step(1, 0, 0, (), ())] * (RANK - 1 - len(others)) + others
    steps = [*outer, columns, rows, row]
    strides = [[getattr(step, side) for step in steps] for side in ("source", "destination")]
    return small_grid_of_extents([step.extent for step in steps], strides, max_items=1)


def _rows(walk: Walk, width: int) -> RowsArgument:
    """Packs of neighbours where both sides can move them at once, else of elements up to a warp apart."""
    row = walk.steps[0].extent
    packed = walk.aligned("source", walk.steps[0], width) and walk.aligned("destination", walk.steps[0], width)
    log_spread = 0 if packed else min(LOG_WARP, max(1, row // width).bit_length() - 1)
    packs_per_row = -(-row // (width << log_spread)) << log_spread
    packs = packs_per_row * prod(step.extent for step in walk.steps[1:])
    return RowsArgument(FastDivmod.of(packs_per_row), packs, log_spread)


def _tiling(
    walk: Walk, source_bytes: int, destination_bytes: int, multiprocessors: int
) -> tuple[list[Step], TilingArgument, int]:
    """The axes in the order of the kernel (contiguous in the source, in the destination, others), the shape of its tiles
    and their number: the largest tiles of which there are enough."""
    across, along = min(walk.steps, key=lambda step: step.source), walk.steps[0]
    others = [step for step in walk.steps if step is not across and step is not along]
    packs_in = walk.aligned("source", across, 16 // source_bytes)
    packs_out = walk.aligned("destination", along, 16 // destination_bytes)
    least_across, least_along = ((16 // size).bit_length() - 1 for size in (source_bytes, destination_bytes))
    largest = (TILE_BYTES // source_bytes).bit_length() - 1
    for log_tile in range(largest, largest - 3, -1):
        log_across = _side(across.extent, least_across, log_tile // 2)
        log_along = _side(along.extent, least_along, log_tile - log_across)
        log_across = _side(across.extent, least_across, log_tile - log_along)
        log_rest = log_tile - log_across - log_along
        counts = [-(-across.extent // 2**log_across), -(-along.extent // 2**log_along)]
        tiles = prod(counts) * -(-prod(step.extent for step in others) // 2**log_rest)
        if tiles >= ENOUGH_TILES * multiprocessors:
            break
    shape = (log_across, log_along, log_rest, packs_in, packs_out)
    return [across, along, *others], TilingArgument(*(FastDivmod.of(count) for count in counts), *shape), tiles


def _side(extent: int, least: int, most: int) -> int:
    """The logarithm of a tile's side: long, but not so long that most of the last tile is empty."""
    longest = max(least, min((extent - 1).bit_length(), most))
    shortest = max(least, min(LOG_WARP, longest))
    return max(range(shortest, longest + 1), key=lambda log: (round(extent / (-(-extent >> log) << log), 1), log))


@implements(TransformTensor)
def transform_tensor(operation: TransformTensor, device: Any) -> Plan:
    """One pass: rows where the layouts agree on the fastest dimension, tiles where they do not."""
    return Plan(operation, [launch(copy(operation.x, operation.y), operation, ("x", "y"), device)])


@implements(TransformTensorEx)
def transform_tensor_ex(operation: TransformTensorEx, device: Any) -> Plan:
    """One pass; a second and third fill padded channels of a folded tensor."""
    names = ("srcData", "destData")
    source, destination = (operation.tensor(name) for name in names)
    walks = transformed(operation.transform, source, destination)
    return Plan(operation, [launch(walk, operation, names, device) for walk in walks])


@implements(TransformFilter)
def transform_filter(operation: TransformFilter, device: Any) -> Plan:
    """As transform_tensor_ex."""
    return transform_tensor_ex(operation, device)


def copy(x: TensorSpec, y: TensorSpec) -> Walk:
    """Every element of ``x`` to its place in ``y``; vectorised channels are split so that both fit."""
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


def _channel_step(spec: TensorSpec, channels: int) -> int:
    """Scalars between channels that lie ``channels`` apart, a multiple or a divisor of the vector length."""
    length = spec.vector_length
    return channels // length * spec.strides[1] * length if channels >= length else channels


def transformed(transform: TransformSpec, source: TensorSpec, destination: TensorSpec) -> list[Walk]:
    """The walks of a padding, folding or unfolding transform."""
    if unfolds(transform):
        return [_unfolding(transform, source, destination)]
    return _folding(transform, source, destination)


def _offset_axes(factors: tuple[int, ...], channels: int, per_channel: str) -> list[Axis]:
    """The offsets inside blocks: a step of a spatial dimension on one side, a group of channels on the other."""
    axes = []
    for d, factor in enumerate(factors):
        spatial, channel = {2 + d: 1}, {1: channels * prod(factors[d + 1 :])}
        axes.append(Axis(factor, spatial, channel) if per_channel == "destination" else Axis(factor, channel, spatial))
    return axes


def _folding(transform: TransformSpec, source: TensorSpec, destination: TensorSpec) -> list[Walk]:
    """Padding alone, or padding and folding. The channels of a folded tensor are padded by walks of their own, because
    their padding lies beside whole groups of channels."""
    rank = source.rank
    factors = folding_factors(transform) if folds(transform) else (1,) * (rank - 2)
    total, channels = prod(factors), source.dims[1]
    lead = transform.pad_before[1]
    inside = channels if total > 1 else destination.dims[1]  # padded by checks where nothing is folded
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
    walks = [Walk(axes, _coordinates(source, bases), _coordinates(destination, origin))]
    if total > 1:
        ends = ((0, lead), (lead + channels * total, destination.dims[1]))
        walks += [_zeros(destination, first, end) for first, end in ends if first < end]
    return walks


def _zeros(destination: TensorSpec, first: int, end: int) -> Walk:
    """Zeros in the channels from ``first`` to ``end``: a walk whose source is empty."""
    extents = [end - first if d == 1 else extent for d, extent in enumerate(destination.dims)]
    origin = [first if d == 1 else 0 for d in range(destination.rank)]
    axes = [Axis(extent, {}, {d: 1}) for d, extent in enumerate(extents)]
    return Walk(axes, [Coordinate(0, 0, 0)], _coordinates(destination, origin))


def _unfolding(transform: TransformSpec, source: TensorSpec, destination: TensorSpec) -> Walk:
    """Unfolding, then padding: the blocks that cover the destination, whose ends may stick out of it."""
    rank = source.rank
    factors = folding_factors(transform)
    kept = -(-source.dims[1] // prod(factors))
    before = transform.pad_before
    # The channel within its group is a coordinate of its own, checked but without a place in memory.
    axes = [
        Axis(destination.dims[0], {0: 1}, {0: 1}),
        Axis(destination.dims[1], {1: 1, rank: 1}, {1: 1}),
        *_offset_axes(factors, kept, "source"),
    ]
    bases, origin = [-before[0], -before[1]], [0, 0]
    for d, (factor, extent, pad) in enumerate(zip(factors, destination.dims[2:], before[2:], strict=True)):
        first, last = -pad // factor, (extent - 1 - pad) // factor
        axes.append(Axis(last - first + 1, {2 + d: 1}, {2 + d: factor}))
        bases.append(first)
        origin.append(first * factor + pad)
    group = Coordinate(-before[1], kept, 0)
    return Walk(axes, [*_coordinates(source, bases), group], _coordinates(destination, origin))


def _coordinates(spec: TensorSpec, bases: list[int]) -> list[Coordinate]:
    return [Coordinate(*entry) for entry in zip(bases, spec.dims, spec.strides, strict=True)]
