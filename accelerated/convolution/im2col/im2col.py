"""Plan the matrix of cudnnIm2Col (convolution/im2col/im2col.cu)."""

from __future__ import annotations

import ctypes
from ctypes import c_int
from dataclasses import replace
from functools import cached_property
from math import gcd, prod
from typing import Any, NamedTuple

from dualdnn.api.operations import Im2Col

from ...plans import Launch, pointers, structure, type_definitions
from ...primitives.geometry import THREADS, FastDivmod
from ...reproducible import NO_SUMS
from ...solver import Problem, Solver
from ..implicit_gemm.simt import im2col_launch
from ..problem import VECTOR_BYTES, describe

SOURCE = "convolution/im2col/im2col.cu"
MIN_RUN = 512  # contiguous bytes of a row of the matrix per block, unless the row is shorter
MAX_SHARED = 40 * 1024  # bytes per block, so that several blocks share a multiprocessor
ENOUGH_BLOCKS = 8  # blocks per multiprocessor
LINE_BYTES = 8  # per row of the patch, for its description
TERM_BYTES = 4  # per term of K, for its position

Integers = c_int * 2  # rows and columns
FastDivmods = FastDivmod * 2


class Tile(NamedTuple):
    """Name the channels, output rows and output columns that a block writes."""

    channels: int
    rows: int
    columns: int


class Im2ColProblem(Problem):
    """Describe one matrix. ``max_shared`` bounds the shared memory per block in bytes, ``enough_blocks`` the blocks
    per multiprocessor.
    """

    operation: Im2Col

    def __init__(
        self, operation: Im2Col, device: Any, aligned: bool = True, max_shared: int = MAX_SHARED,
        enough_blocks: int = ENOUGH_BLOCKS,
    ) -> None:  # fmt: skip
        super().__init__(operation, device, aligned)
        self.max_shared, self.enough_blocks = max_shared, enough_blocks
        spec, source, window = operation.convolution, operation.srcData, operation.filter.dims
        self.element_bytes = source.scalar_bytes
        self.output, self.taps = spec.output_dims(source.dims, window)[2:], window[2:]
        self.channels, self.per_channel = source.dims[1], prod(self.taps)
        self.vector = VECTOR_BYTES // self.element_bytes
        self.unit = self.vector // gcd(self.vector, self.per_channel)  # fewest channels whose K fill vectors

    def patch(self, tile: Tile) -> list[int]:
        """Return the extents of the input under a tile: rows, columns."""
        spec = self.operation.convolution
        sizes = zip((tile.rows, tile.columns), spec.stride, self.taps, spec.dilation, strict=True)
        return [(n - 1) * step + (taps - 1) * dilation + 1 for n, step, taps, dilation in sizes]

    def pitch(self, tile: Tile) -> int:
        """Return the stride between channels of a patch in elements. An odd number of words spreads channels over all
        banks.
        """
        word = max(1, ctypes.sizeof(ctypes.c_uint) // self.element_bytes)
        return (-(-prod(self.patch(tile)) // word) | 1) * word

    def shared_bytes(self, tile: Tile) -> int:
        tables = tile.channels * (self.patch(tile)[0] * LINE_BYTES + self.per_channel * TERM_BYTES)
        return tables + VECTOR_BYTES + tile.channels * self.pitch(tile) * self.element_bytes

    def counts(self, tile: Tile) -> list[int]:
        """Return the blocks along channels, columns, rows, images."""
        extents = ((self.channels, tile.channels), (self.output[1], tile.columns), (self.output[0], tile.rows))
        return [*(-(-extent // size) for extent, size in extents), self.operation.srcData.dims[0]]

    @cached_property
    def tile(self) -> Tile | None:
        """Return the largest tile that fits in shared memory, or None. It has fewer rows where blocks are too few."""
        unit, run = self.unit, -(-MIN_RUN // (self.per_channel * self.element_bytes))
        tile = Tile(min(self.channels, -(-max(unit, run) // unit) * unit), *self.output)
        while self.shared_bytes(tile) > self.max_shared:
            if tile.rows > 1:
                tile = tile._replace(rows=-(-tile.rows // 2))
            elif tile.channels > unit:
                tile = tile._replace(channels=max(unit, tile.channels // 2 // unit * unit))
            elif tile.columns > 1:
                tile = tile._replace(columns=-(-tile.columns // 2))
            elif tile.channels > 1:
                tile = tile._replace(channels=-(-tile.channels // 2))
            else:
                return None
        enough = self.enough_blocks * self.device.multiprocessors
        while tile.rows > 1 and prod(self.counts(tile)) < enough:
            tile = tile._replace(rows=-(-tile.rows // 2))
        return tile


class Im2ColBlocks(Solver[Im2ColProblem]):
    """Serve with blocks of some channels and output pixels, whose patch of the input passes through shared memory."""

    name = "convolution.im2col"
    fixed_order = NO_SUMS

    def serves(self, problem: Im2ColProblem) -> bool:
        return problem.tile is not None

    def launches(self, problem: Im2ColProblem) -> list[Launch]:
        p, o, tile = problem, problem.operation, problem.tile
        assert tile is not None
        spec, (image, channel, *axes) = o.convolution, o.srcData.strides
        counts, extents, row = p.counts(tile), p.patch(tile), p.channels * p.per_channel
        packed = row % p.vector == 0 and (tile.channels % p.unit == 0 or tile.channels == p.channels)
        arguments = structure(
            *pointers(2),
            ("image", c_int(image)), ("channel", c_int(channel)), ("axis", Integers(*axes)),
            ("input", Integers(*o.srcData.dims[2:])), ("step", Integers(*spec.stride)),
            ("padding", Integers(*spec.padding)), ("dilation", Integers(*spec.dilation)),
            ("output", Integers(*p.output)), ("channels", c_int(p.channels)), ("row", c_int(row)),
            ("flipped", c_int(spec.is_flipped)), ("packed", c_int(packed)), ("chunk", c_int(tile.channels)),
            ("tile", Integers(tile.rows, tile.columns)), ("blocks", (FastDivmod * 3)(*map(FastDivmod.of, counts[:3]))),
            ("patch", FastDivmods(*map(FastDivmod.of, extents))), ("taps", FastDivmods(*map(FastDivmod.of, p.taps))),
            ("pitch", c_int(p.pitch(tile))),
        )  # fmt: skip
        function = p.device.function(SOURCE, "convolution_im2col", type_definitions(o.srcData.data_type, o))
        grid = (prod(counts), 1, 1)
        return [Launch(function, arguments, ("srcData", "colBuffer"), grid, (THREADS, 1, 1), p.shared_bytes(tile))]


class Im2ColElements(Solver[Im2ColProblem]):
    """Serve any filter, also one whose patch fits no block. A thread locates each element of a vector."""

    name = "convolution.im2col_elements"
    fixed_order = NO_SUMS

    def launches(self, problem: Im2ColProblem) -> list[Launch]:
        o = problem.operation
        dims = o.convolution.output_dims(o.srcData.dims, o.filter.dims)
        w = replace(o.filter, dims=(o.filter.dims[0], problem.channels, *o.filter.dims[2:]))
        value = describe(o.convolution, o.srcData, w, dims)
        value.inner_channels = FastDivmod.of(1)  # The columns are (channel, row, column of the filter).
        value.x_channel_block = value.x_channel
        definitions, operands = type_definitions(o.srcData.data_type, o), ("srcData", "colBuffer")
        return [im2col_launch(problem.device, definitions, value, 1, value.k, problem.vector, operands)]
