"""Plan gradients with respect to the filter of channels that do not fill rows of TMA
(convolution/filter_gradient/few_channels.cu).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ctypes import Structure, c_int
from functools import cached_property, lru_cache
from math import gcd, prod
from typing import Any, NamedTuple

from dualdnn.api.operations import ConvolutionBackwardFilter, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, HALF

from ...plans import Launch, Plan, arrays_of, factors, fields_of, pointers, structure, type_definitions, with_alignment
from ...primitives.geometry import FastDivmod
from ...primitives.tma import ROW_BYTES
from ...runtime.arguments import declared
from ...solver import LAUNCH_SECONDS, Solver, seconds_otherwise
from ..composed import At, ComposedPlan, within
from ..forward import may_use_tensor_cores
from ..problem import Rates, channels_last, in_one_row, rounded_up
from .forward_convolution import ALGORITHMS, FilterGradientProblem
from .sum import sum_launch

SOURCE = "convolution/filter_gradient/few_channels.cu"
WARPS = 8  # per block
THREADS = 32 * WARPS  # per block
STEP = 16  # pixels per step
MIN_PIXELS = 1024  # pixels of dy; below, TMA is faster if it can read the channels
M_TILES = 2  # tiles of 16 filters per warp
N_TILES = 8  # vectors of 8 channels per warp
VECTOR = 8  # channels
SUMS = 4 * M_TILES * N_TILES  # per thread
SHARED_BYTES = 113 * 1024  # bytes of a block, so that two share a multiprocessor
BLOCKS = 2  # per multiprocessor
SIZES = (1, 2, 4, 8, 16, 32, 64)  # rows of a tile
WIDTHS = tuple(first << n for n in range(7) for first in (8, 12))  # columns of a tile, unless it has full rows
SUMS_BANDWIDTH = 2.5e12  # bytes per second at which partial sums are stored and read
MEMORY_SHARE = 0.8  # share of the bandwidth that copies reach
COPY_CLOCKS = 0.4  # clocks of a multiprocessor per copy; elements that pass through registers take twice as long
STEP_CLOCKS = 2.0  # measured clocks of a step over the clocks that shared memory or tensor cores need
TILE_CLOCKS = 600  # per tile


class CopiedStruct(Structure):
    """Mirror ``Copied`` of the kernel's source."""

    _fields_ = (("pieces", FastDivmod), *declared(c_int, "image row column rows columns channels pitch bytes"))


class Operand:
    """Describe the copy of x or dy in shared memory, which has ``count`` channels per pixel and a padded pitch."""

    def __init__(self, tensor: TensorSpec, count: int) -> None:
        self.tensor, self.count = tensor, count

    @property
    def pitch(self) -> int:
        """Return the elements per pixel in shared memory: an odd number of vectors avoids bank conflicts."""
        return rounded_up(self.count, VECTOR) | VECTOR

    @property
    def bytes(self) -> int:
        """Return the bytes per copy."""
        steps = [step for step, extent in zip(self.tensor.strides, self.tensor.dims, strict=True) if extent > 1]
        return gcd(VECTOR, self.tensor.dims[1], *(step for step in steps if step > 1)) * self.tensor.scalar_bytes

    @property
    def pieces(self) -> int:
        """Return the copies per pixel."""
        return -(-self.count * self.tensor.scalar_bytes // self.bytes)

    @property
    def clocks(self) -> float:
        """Return the approximate clocks of a multiprocessor per pixel."""
        return self.pieces * COPY_CLOCKS * (2 if self.bytes == self.tensor.scalar_bytes else 1)

    @property
    def struct(self) -> CopiedStruct:
        image, _, row, column = self.tensor.strides
        _, channels, rows, columns = self.tensor.dims
        pieces = FastDivmod.of(self.pieces)
        return CopiedStruct(pieces, image, row, column, rows, columns, channels, self.pitch, self.bytes)


class Tile(NamedTuple):
    """Name the pixels of dy that a block multiplies together."""

    rows: int
    columns: int


class Division:
    """Divide dw and the pixels among blocks, and a block's part of dw among its warps."""

    def __init__(self, operation: ConvolutionBackwardFilter, multiprocessors: int) -> None:
        self.operation, self.multiprocessors, o = operation, multiprocessors, operation
        x, dy = in_one_row(o.convolution, o.dw, o.x, o.dy)
        self.filters, self.channels, *self.taps = o.dw.dims
        self.vectors = -(-self.channels // VECTOR)  # per tap
        self.all_vectors = self.vectors * prod(self.taps)
        tiles = -(-self.filters // (16 * M_TILES)), -(-self.all_vectors // N_TILES)
        self.warp_rows = min(WARPS, tiles[0])
        self.warp_columns = min(WARPS // self.warp_rows, tiles[1])
        self.warp_steps = WARPS // (self.warp_rows * self.warp_columns)
        self.row_blocks, self.column_blocks = -(-tiles[0] // self.warp_rows), -(-tiles[1] // self.warp_columns)
        whole = prod(self.taps) > 1
        self.x = Operand(x, min(self.channels, self.channels if whole else self.warp_columns * N_TILES * VECTOR))
        self.dy = Operand(dy, min(self.filters, self.warp_rows * M_TILES * 16))

    def image_extents(self, tile: Tile) -> tuple[int, int]:
        """Return the rows and columns of x under a tile."""
        c = self.operation.convolution
        rows, columns = (
            (count - 1) * step + (taps - 1) * apart + 1
            for count, step, taps, apart in zip(tile, c.stride, self.taps, c.dilation, strict=True)
        )
        return rows, columns

    def steps(self, tile: Tile) -> int:
        return -(-tile.rows * tile.columns // STEP)

    def elements(self, tile: Tile) -> tuple[int, int]:
        """Return the elements of x and of dy in a buffer."""
        image = rounded_up(prod(self.image_extents(tile)) * self.x.pitch, VECTOR)
        return image, self.steps(tile) * STEP * self.dy.pitch

    def shared_bytes(self, tile: Tile) -> int:
        exchanged = (self.warp_steps - 1) * self.warp_rows * self.warp_columns * SUMS * 32 * 4
        return max((2 * sum(self.elements(tile)) + VECTOR) * 2, exchanged)

    def tiles(self, tile: Tile) -> int:
        images, _, rows, columns = self.dy.tensor.dims
        return int(images * -(-rows // tile.rows) * -(-columns // tile.columns))

    def tile_clocks(self, tile: Tile) -> float:
        """Return the approximate clocks of a multiprocessor for one block's tile."""
        copies = prod(self.image_extents(tile)) * self.x.clocks + self.steps(tile) * STEP * self.dy.clocks
        # A warp reads both operands of a step in 4 clocks for each 16 x 16, and multiplies 16 x 8 x 16 in 2.
        n = min(self.all_vectors, self.warp_columns * N_TILES)
        step = self.warp_rows * max(8 * self.warp_columns + 2 * n, 2 * M_TILES * n)
        return copies + self.steps(tile) * step * STEP_CLOCKS + TILE_CLOCKS

    @cached_property
    def tile(self) -> Tile | None:
        """Return the tile with the least estimated time, or None if no tile fits shared memory."""
        _, _, rows, columns = self.dy.tensor.dims
        possible = (Tile(down, across) for down in _sizes(rows, SIZES) for across in _sizes(columns, WIDTHS))
        fitting = (tile for tile in possible if self.shared_bytes(tile) <= SHARED_BYTES)
        # If memory bounds several tiles equally, the one with the fewest clocks keeps the most bytes in flight.
        return min(fitting, key=lambda tile: (self.seconds_of(tile), self.computing_seconds(tile)), default=None)

    def parts(self, tile: Tile) -> int:
        """Return the number of blocks that share the pixels of one part of dw."""
        tiles = self.tiles(tile)
        most = max(1, BLOCKS * self.multiprocessors // (self.row_blocks * self.column_blocks))
        return -(-tiles // -(-tiles // most))

    def seconds_of(self, tile: Tile) -> float:
        """Return the approximate seconds of the launches."""
        o, parts = self.operation, self.parts(tile)
        memory = (o.x.nbytes + o.dy.nbytes) / (MEMORY_SHARE * Rates.BANDWIDTH)
        added = LAUNCH_SECONDS + 2 * parts * o.dw.tensor.count * 4 / SUMS_BANDWIDTH if parts > 1 else 0.0
        return LAUNCH_SECONDS + max(memory, self.computing_seconds(tile)) + added

    def computing_seconds(self, tile: Tile) -> float:
        """Return the approximate seconds of all blocks, without waiting for memory."""
        parts = self.parts(tile)
        together = max(1.0, parts * self.row_blocks * self.column_blocks / self.multiprocessors)
        return -(-self.tiles(tile) // parts) * self.tile_clocks(tile) * together / Rates.CLOCK

    @property
    def workspace_bytes(self) -> int:
        assert self.tile is not None
        parts = self.parts(self.tile)
        return parts * self.operation.dw.tensor.count * 4 if parts > 1 else 0

    def launches(self, device: Any) -> Iterator[Launch]:
        o, c, tile = self.operation, self.operation.convolution, self.tile
        assert tile is not None
        parts, (rows, columns), pair = self.parts(tile), self.image_extents(tile), c_int * 2
        filter_step, channel_step, *_, tap_step = o.dw.tensor.strides
        _, _, all_rows, all_columns = self.dy.tensor.dims
        x_elements, dy_elements = self.elements(tile)
        arguments = structure(
            *pointers(4),
            *factors(o, alpha=o.alpha, beta=o.beta),
            ("image", self.x.struct),
            ("incoming", self.dy.struct),
            *fields_of(FastDivmod.of, row_blocks=self.row_blocks, column_blocks=self.column_blocks),
            *fields_of(
                FastDivmod.of, column_tiles=-(-all_columns // tile.columns), row_tiles=-(-all_rows // tile.rows)
            ),
            *fields_of(FastDivmod.of, columns=tile.columns, image_columns=columns),
            *fields_of(FastDivmod.of, vectors=self.vectors, right=self.taps[1]),
            *fields_of(c_int, tiles=self.tiles(tile), rows=tile.rows, parts=parts, image_pixels=rows * columns),
            *arrays_of(pair, stride=c.stride, padding=c.padding, dilation=c.dilation),
            *fields_of(c_int, warp_rows=self.warp_rows, warp_columns=self.warp_columns, warp_steps=self.warp_steps),
            *fields_of(c_int, filters=self.filters, channels=self.channels, all_vectors=self.all_vectors),
            *fields_of(c_int, of_filters=self.dy.count, taps=prod(self.taps), flipped=c.is_flipped),
            *fields_of(c_int, elements=o.dw.tensor.count, filter_step=filter_step, channel_step=channel_step),
            *fields_of(c_int, tap_step=tap_step, buffer=x_elements + dy_elements, incoming_at=x_elements),
        )
        name = "convolution_filter_gradient_few_channels"
        function = device.function(SOURCE, name, type_definitions(o.x.data_type, o))
        grid = (parts * self.row_blocks * self.column_blocks, 1, 1)
        operands = ("x", "dy", "partial" if parts > 1 else "dw", "dw")
        yield Launch(function, arguments, operands, grid, (THREADS, 1, 1), self.shared_bytes(tile))
        if parts > 1:
            yield sum_launch(o, parts, device)


@lru_cache(256)
def division_of(operation: ConvolutionBackwardFilter, multiprocessors: int) -> Division:
    return Division(operation, multiprocessors)


def _division(problem: FilterGradientProblem) -> Division:
    return division_of(problem.operation, problem.device.multiprocessors)


class FilterGradientFewChannels(Solver[FilterGradientProblem]):
    """Serve ALGO_1 and ALGO_3 of images in half and bfloat16, NHWC, without groups.

    It is preferred where it should take less time than the solvers after it.
    """

    name = "convolution.filter_gradient_few_channels"

    def serves(self, problem: FilterGradientProblem) -> bool:
        o, c = problem.operation, problem.operation.convolution
        if o.algo not in ALGORITHMS or c.group_count > 1 or c.rank != 2 or o.x.data_type not in (HALF, BFLOAT16):
            return False
        if not problem.aligned or not problem.in_one_launch or not channels_last(o.x) or not channels_last(o.dy):
            return False
        unfilled = any(tensor.dims[1] * tensor.scalar_bytes % ROW_BYTES for tensor in (o.x, o.dy))
        if not unfilled or not may_use_tensor_cores(c, o.x.data_type, problem.device):
            return False
        if problem.device.shared_bytes_per_block < SHARED_BYTES:
            return False
        return _division(problem).tile is not None

    def applies(self, problem: FilterGradientProblem) -> bool:
        x, dy = problem.operation.x, problem.operation.dy
        if dy.count // dy.dims[1] < MIN_PIXELS and gcd(x.dims[1], dy.dims[1]) % VECTOR == 0:
            return False
        return self.serves(problem) and self.estimated_seconds(problem) < seconds_otherwise(self, problem)

    def workspace_bytes(self, problem: FilterGradientProblem) -> int:
        return with_alignment(_division(problem).workspace_bytes)

    def estimated_seconds(self, problem: FilterGradientProblem) -> float:
        division = _division(problem)
        assert division.tile is not None
        return division.seconds_of(division.tile)

    def alignment(self, problem: FilterGradientProblem) -> Mapping[str, int]:
        division = _division(problem)
        return {"x": division.x.bytes, "dy": division.dy.bytes}

    def plan(self, problem: FilterGradientProblem) -> Plan:
        where = {"x": At("x"), "dy": At("dy"), "dw": At("dw"), "partial": At("workSpace")}
        return ComposedPlan(
            problem.operation, within(list(_division(problem).launches(problem.device)), where), self.name
        )


def _sizes(extent: int, known: tuple[int, ...]) -> list[int]:
    """Return the known sizes below an extent, and the extent."""
    return [*(size for size in known if size < extent), extent]
