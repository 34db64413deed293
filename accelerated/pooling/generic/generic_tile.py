"""Plans the tiles of planes or channels that blocks pool from shared memory, with any window (generic_tile.cuh)."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_longlong, c_uint
from dataclasses import dataclass
from math import prod

from dualdnn.api.operations.specs import SCALAR_BYTES

from ...primitives.geometry import FastDivmod
from ...runtime.arguments import declared
from ..problem import FORWARD, MAX_BACKWARD, VECTOR_BYTES, Axis, Configuration, PoolingProblem, power_of_two
from .generic import PAIR, configured

MAX_OUTER = 3  # dimensions that are not pooled
ITEMS = 4  # planes or channels per group
HALF_ITEMS = 8  # planes or channels per group, for elements of 16 bits
MAX_BLOCK_GROUPS = 32  # groups per block; generic_tile.cuh has the same
OFFSET_BYTES = 16 * MAX_BLOCK_GROUPS  # shared memory for the plane offsets of a block
INDEX_BYTES = 2  # bytes per index of a maximum
# The first bound lets several blocks share an SM. The second serves tiles that would be too small. With at least 2
# bytes per element, indices of 16 bits suffice for both, including the two reserved values.
SHARED_BYTES = (40 * 1024, 100 * 1024)
SMALL_TILE = 2.0  # redundancy of a tile from which more shared memory is used
TINY_TILE = 8.0  # redundancy of a tile from which another launch finds the maxima
BANK_BYTES = 128  # bytes of shared memory per conflict-free access
GROUP_BYTES = 32  # bytes of contiguous channels per block
BLOCK_TARGETS = 1024  # targets per block up to which planes share a block
BLOCKS_PER_SM = 4  # blocks that keep an SM busy
THREADS = 160  # threads per block, so that eight blocks share an SM
MANY_WINDOWS_THREADS = 256  # threads per block that scans at least this many windows for maxima
LONG_ROW = 64  # positions from which rows are divided before the other axes
MAX_ELEMENTS = 2**31 - 2**10  # upper bound of element offsets in a plane


class TileStruct(ctypes.Structure):
    """Lay out the ``TileLayout`` of the kernels."""

    _fields_ = [
        ("outer_rank", c_int),
        ("outer", FastDivmod * MAX_OUTER),
        *declared(c_longlong * MAX_OUTER, "x_outer y_outer"),
        *declared(c_longlong, "x_item y_item"),
        *declared(c_uint, "items channels groups block_groups"),
        ("neighbours", FastDivmod),
        *declared(FastDivmod * 3, "parts targets sources windows"),
        *declared(c_int * 3, "covering shift before"),
        *declared(c_uint, "source_pitch window_pitch indices values"),
    ]


@dataclass
class Tile:
    """Describe a block's targets (outputs forward, inputs backward) and the data that it keeps in shared memory.

    A group is a number of planes, or of contiguous channels, that a thread handles together.
    """

    problem: PoolingProblem
    items: int  # planes or channels per group
    neighbours: int  # groups of contiguous channels that neighbouring threads take, the minimum per block
    targets: list[int]  # extents of the tile
    shared_bytes: int  # upper bound of the shared memory per block

    @property
    def axes(self) -> list[Axis]:
        """Return the three axes."""
        return self.problem.shape.axes

    @property
    def windows(self) -> list[int]:
        """Return the number of windows over the inputs of the tile along each axis, including ones out of range."""
        pairs = zip(self.axes, self.targets, strict=True)
        return [-(-(size - 1) // axis.stride) + covering(axis) for axis, size in pairs]

    @property
    def sources(self) -> list[int]:
        """Return the extents of the sources in shared memory: inputs, or windows for gradients of averages."""
        if self.problem.kind not in (FORWARD, MAX_BACKWARD):
            return self.windows
        counts = self.targets if self.problem.kind == FORWARD else [self._existing(d) for d in range(3)]
        return [(count - 1) * axis.stride + axis.window for axis, count in zip(self.axes, counts, strict=True)]

    def _existing(self, d: int) -> int:
        """Return the maximum number of existing windows over the inputs of a tile along axis ``d``."""
        axis, windows = self.axes[d], self.windows[d]
        if self.parts[d] > 1:
            return min(windows, axis.output)
        low = (axis.padding - axis.window) // axis.stride + 1
        return max(1, min(low + windows, axis.output) - max(low, 0))

    @property
    def scalar_bytes(self) -> int:
        """Return the bytes per source element in shared memory."""
        operation = self.problem.operation
        kept = operation.x.scalar_bytes
        return kept if self.problem.kind in (FORWARD, MAX_BACKWARD) else SCALAR_BYTES[operation.compute_type]

    def pitch(self, positions: int) -> int:
        """Return the distance of groups in shared memory, in vectors, at which neighbouring threads use other banks."""
        lanes = BANK_BYTES // min(VECTOR_BYTES, self.items * self.scalar_bytes)
        return positions if self.neighbours == 1 else positions + (lanes // self.neighbours - positions) % lanes

    @property
    def source_pitch(self) -> int:
        """Return the distance of the sources of two groups, in vectors."""
        return self.pitch(prod(self.sources))

    @property
    def window_pitch(self) -> int:
        """Return the distance of the windows of two groups, in vectors."""
        return self.pitch(prod(self.windows))

    def areas(self, groups: int) -> list[int]:
        """Return the byte offsets of indices and of values in shared memory, and its size in bytes."""
        areas = [OFFSET_BYTES + groups * self.source_pitch * self.items * self.scalar_bytes]
        windows = groups * self.window_pitch * self.items if self.problem.kind == MAX_BACKWARD else 0
        for nbytes in (INDEX_BYTES, self.scalar_bytes):
            areas.append(-(-areas[-1] // VECTOR_BYTES) * VECTOR_BYTES + windows * nbytes)
        indices, values = (-(-area // VECTOR_BYTES) * VECTOR_BYTES for area in areas[:2])
        return [indices, values, areas[2]]

    def fits(self, groups: int) -> bool:
        """Return whether the shared memory of a block suffices for ``groups`` groups."""
        return self.areas(groups)[2] <= self.shared_bytes

    @property
    def threads(self) -> int:
        """Return the threads per block."""
        many = self.problem.kind == MAX_BACKWARD and self.neighbours * prod(self.windows) >= MANY_WINDOWS_THREADS
        return MANY_WINDOWS_THREADS if many else THREADS

    @property
    def redundancy(self) -> float:
        """Return the work of the tile (inputs read, or windows scanned) relative to its share without a halo."""
        if self.problem.kind == FORWARD:
            return prod(self.sources) / prod(n * axis.stride for n, axis in zip(self.targets, self.axes, strict=True))
        return prod(self.windows) / prod(-(-n // axis.stride) for n, axis in zip(self.targets, self.axes, strict=True))

    @property
    def parts(self) -> list[int]:
        """Return the number of tiles along each axis."""
        return [-(-extent // size) for extent, size in zip(self.extents, self.targets, strict=True)]

    @property
    def extents(self) -> list[int]:
        """Return the extents of the tensor that is divided into tiles."""
        return [axis.output if self.problem.kind == FORWARD else axis.input for axis in self.axes]


def covering(axis: Axis) -> int:
    """Return the maximum number of windows that cover an input along an axis."""
    return -(-axis.window // axis.stride)


def tile_of(problem: PoolingProblem, items: int, neighbours: int, groups: int) -> Tile | None:
    """Return the tile of a block, with more shared memory where the halo is large.

    Return None where one target exceeds shared memory, or where maxima would be found too often.
    """
    room = (min(nbytes, problem.device.shared_bytes_per_block) for nbytes in SHARED_BYTES)
    tile, *larger = (_largest(Tile(problem, items, neighbours, [], nbytes), groups) for nbytes in room)
    for other in larger:
        if other is not None and (tile is None or tile.redundancy > max(SMALL_TILE, other.redundancy)):
            tile = other
    return None if tile is None or (problem.kind == MAX_BACKWARD and tile.redundancy > TINY_TILE) else tile


def _largest(tile: Tile, groups: int) -> Tile | None:
    """Return the largest tile that fits a block, or a smaller one where there would be few blocks.

    Return None where one target does not fit.
    """
    tile.targets = tile.extents
    enough = BLOCKS_PER_SM * tile.problem.device.multiprocessors
    while True:
        few = (
            groups // tile.neighbours * prod(tile.parts) < enough
            and tile.neighbours * prod(tile.targets) > tile.threads
        )
        fits = tile.fits(tile.neighbours)
        if fits and not few:
            return tile
        sizes = [size / axis.window for size, axis in zip(tile.targets, tile.axes, strict=True)]
        if tile.targets[2] <= LONG_ROW and max(tile.targets[:2]) > 1:
            sizes[2] = 0
        d = max((d for d in range(3) if tile.targets[d] > 1), key=lambda d: sizes[d], default=None)
        if d is None:
            return tile if fits else None
        tile.targets = [*tile.targets[:d], -(-tile.targets[d] // 2), *tile.targets[d + 1 :]]


def tiled(problem: PoolingProblem, source: str) -> Configuration | None:
    """Return the launch of a kernel with tiles.

    Return None where most inputs of a tile are in no window, where offsets exceed 32 bits, or where no tile fits.
    """
    shape = problem.shape
    if any(axis.stride > 2 * axis.window for axis in shape.axes) or _span(problem) >= MAX_ELEMENTS:
        return None
    extents, x_steps, y_steps = list(shape.extents), list(shape.x_steps), list(shape.y_steps)
    scalar_bytes = problem.operation.x.scalar_bytes
    items = HALF_ITEMS if scalar_bytes == 2 else ITEMS
    widths = (items,) if problem.kind == MAX_BACKWARD else (items, PAIR)
    width = next((n for n in widths if problem.aligned and shape.vectors(n)), 0)
    items, packed = width or items, width > 0
    channels = shape.channels_last or (x_steps[-1] == 1 and shape.axes[2].x_stride != 1)
    items = items if packed or (not channels and extents[-1] % items == 0) else 1
    x_item, y_item = x_steps[-1], y_steps[-1]
    extents[-1] //= items
    x_steps[-1], y_steps[-1] = x_item * items, y_item * items
    groups = prod(extents)
    most = GROUP_BYTES // (items * scalar_bytes) if channels else 1
    neighbours = power_of_two(min(extents[-1], most))
    tile = tile_of(problem, items, neighbours, groups)
    if tile is None:
        return None
    block_groups = neighbours
    if prod(tile.parts) == 1:
        enough = BLOCKS_PER_SM * problem.device.multiprocessors
        most = min(BLOCK_TARGETS // prod(tile.targets), groups // enough, MAX_BLOCK_GROUPS) // neighbours * neighbours
        block_groups = next((n for n in range(most, 0, -neighbours) if tile.fits(n)), neighbours)
    indices, values, shared_bytes = tile.areas(block_groups)
    value = TileStruct(
        outer_rank=len(extents),
        x_item=x_item,
        y_item=y_item,
        items=items,
        channels=packed,
        groups=groups,
        block_groups=block_groups,
        neighbours=FastDivmod.of(neighbours),
        source_pitch=tile.source_pitch,
        window_pitch=tile.window_pitch,
        indices=indices,
        values=values,
    )
    for i, d in enumerate(reversed(range(len(extents)))):
        value.outer[i], value.x_outer[i], value.y_outer[i] = FastDivmod.of(extents[d]), x_steps[d], y_steps[d]
    lists = zip(tile.axes, tile.parts, tile.targets, tile.sources, tile.windows, strict=True)
    for d, (axis, part, target, read, window) in enumerate(lists):
        value.parts[d], value.targets[d] = FastDivmod.of(part), FastDivmod.of(target)
        value.sources[d], value.windows[d] = FastDivmod.of(read), FastDivmod.of(window)
        # The kernel computes floor((input + padding - window) / stride) + 1 with numbers that are not negative.
        shift = axis.padding - axis.window + axis.stride
        before = max(0, -(shift // axis.stride))
        value.covering[d], value.shift[d], value.before[d] = covering(axis), shift + before * axis.stride, before
    blocks = prod(tile.parts) * -(-groups // block_groups)
    width = min(items, shape.width) if packed else 1
    return configured(problem, source, "tile", width, blocks, tile.threads, ("tile", value), shared_bytes=shared_bytes)


def _span(problem: PoolingProblem) -> int:
    """Return an upper bound of the element offsets in a plane, halo included."""
    axes = problem.shape.axes
    x = sum((axis.input + axis.window) * axis.x_stride for axis in axes)
    return max(x, sum(axis.output * axis.y_stride for axis in axes), *(axis.input + axis.padding for axis in axes))
