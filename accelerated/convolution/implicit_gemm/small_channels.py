"""Plan convolutions of few channels on tensor cores (convolution/implicit_gemm/small_channels.cu)."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import c_int
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from math import gcd, inf
from typing import Any, NamedTuple

from dualdnn.api.operations import FilterSpec
from dualdnn.api.operations.specs import FLOAT

from ...plans import Launch, arrays_of, fields_of, pointers, structure, type_definitions
from ...primitives.geometry import FastDivmod
from ...primitives.tma import has_tma
from ...reproducible import Order
from ...solver import seconds_otherwise
from ..forward import IMPLICIT, ConvolutionProblem, ConvolutionSolver
from ..problem import (
    AXES,
    VECTOR_BYTES,
    Convolution,
    Rates,
    channels_last,
    epilogue,
    in_one_row,
    operand_names,
    rounded_up,
    scalar_strides,
    spatial,
)

SOURCE = "convolution/implicit_gemm/small_channels.cu"
MAX_CHANNELS = 7  # channels per group that other kernels of tensor cores would gather one by one
MAX_IN_NHWC = 256  # channels per group in NHWC that do not fill rows of TMA
MIN_FOR_TMA = 48  # channels and filters from which TMA is faster where it can read and write their rows
TEAMS = 4  # per block
TEAM_WARPS = 4  # warps per team
WARPS = TEAMS * TEAM_WARPS
THREADS = 32 * WARPS
SHARED_BYTES = 227 * 1024  # bytes per block
ALIGNMENT = 1024  # bytes, alignment of the filters
BARRIER_BYTES = 8
STEP_WORDS = 8  # words of K per step
WORD_BYTES = 4
ENTRY_BYTES = 8  # bytes per entry of the table
ROW_BYTES = 128  # bytes per row of the filters' tiles
STAGED_FILTERS = 32  # filters whose results are transposed together; 64 of 16 bits where they are contiguous
FILTERS = (32, 64, 128)  # filters per block
WIDE = 64  # filters up to which a warp may have 32 pixels at a time, and from which it may have 16
MAX_ROWS = 64  # per tile
WIDTHS = tuple(first << n for n in range(8) for first in (8, 12))  # columns per tile, unless it has full rows
FILTER_CLOCKS = 4  # clocks of a multiprocessor, per step of 32 pixels and 16 filters
WORD_CLOCKS = 9  # per step, for the image's words
TWO_READ_CLOCKS = 17  # per step, for the image's words of two reads
RESULT_CLOCKS = {8: 40, 4: 45, 2: 60, 1: 80}  # by results written together: for 32 pixels and 16 filters
SLOT_CLOCKS = 16  # per row of the image
TILE_CLOCKS = 100  # per tile
LOADED_BYTES = 32  # bytes of the image that arrive in a clock


class Tile(NamedTuple):
    """Name the output pixels that a block computes, row after row."""

    rows: int
    columns: int


class Terms(NamedTuple):
    """Divide the terms of a sum into words.

    ``run``: terms that are contiguous in shared memory. ``lead``: terms that the first word of a run lacks. ``words``:
    words per run. ``one_read``: each word is one read. ``in_vectors``: four words, of one pixel, are one read.
    """

    run: int
    lead: int
    words: int
    one_read: bool
    in_vectors: bool = False

    @property
    def read(self) -> str:
        """Return the name of the kernel's reads."""
        return "vectors" if self.in_vectors else "words" if self.one_read else "elements"


@dataclass(frozen=True)
class Geometry:
    """Describe the geometry of one convolution.

    Rows of x in shared memory are [column][channel] where channels are innermost in x. Otherwise each channel has its
    own rows, [column].
    """

    operation: Convolution
    multiprocessors: int
    filters: int  # per block
    only: Tile | None = None  # tile that must be taken
    w_steps: tuple[int, ...] = ()  # strides of w between filters, channels and taps in elements, unless its own
    narrow: bool = False  # whether a warp has 16 pixels at a time instead of 32

    @cached_property
    def channels(self) -> int:
        """Return the channels of a group."""
        return self.operation.w.dims[1]

    @cached_property
    def x_strides(self) -> tuple[int, ...]:
        return scalar_strides(self.operation.x)

    @cached_property
    def interleaved(self) -> bool:
        """Return whether rows contain the channels of their pixels."""
        return self.channels == 1 or self.x_strides[1] < self.x_strides[-1]

    @cached_property
    def lanes(self) -> int:
        """Return the channels within a row."""
        return self.channels if self.interleaved else 1

    @cached_property
    def taps(self) -> tuple[int, ...]:
        return spatial(self.operation.w.dims[2:], 1)

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        return spatial(self.operation.y.dims[2:], 1)

    @cached_property
    def step(self) -> tuple[int, ...]:
        return spatial(self.operation.convolution.stride, 1)

    @cached_property
    def dilation(self) -> tuple[int, ...]:
        return spatial(self.operation.convolution.dilation, 1)

    @cached_property
    def padding(self) -> tuple[int, ...]:
        return spatial(self.operation.convolution.padding, 0)

    @cached_property
    def vector(self) -> int:
        """Return the elements per 16 bytes."""
        return VECTOR_BYTES // self.operation.x.scalar_bytes

    @cached_property
    def skew(self) -> int:
        """Return the elements of a row before the first that a tile needs. Rows begin with 16-byte-aligned vectors of
        x.
        """
        return -self.padding[2] * self.lanes % self.vector

    @cached_property
    def gap(self) -> int:
        """Return the elements after a pixel's channels in shared memory, so that pixels begin in different banks."""
        return self.vector if self.terms.in_vectors and self.lanes // self.vector % 2 == 0 else 0

    @cached_property
    def contiguous(self) -> bool:
        """Return whether a row of x has no gaps."""
        return self.x_strides[-1] == self.lanes and (self.lanes == 1 or self.x_strides[1] == 1)

    @cached_property
    def row_bytes(self) -> int:
        """Return the bytes that one copy from x to shared memory may take."""
        o = self.operation
        extents = (o.x.dims[0], self.channels * o.convolution.group_count, *spatial(o.x.dims[2:], 1))
        steps = [stride for stride, extent in zip(self.x_strides, extents, strict=True) if extent > 1]
        if self.contiguous:
            steps = [s for s, extent in zip(self.x_strides[2:-1], extents[2:-1], strict=True) if extent > 1]
            steps += [self.x_strides[0]] * (extents[0] > 1)
            steps += [o.x.dims[-1] * self.lanes]
            if not self.interleaved:
                steps += [self.x_strides[1]]
        elif self.lanes > 1 and self.x_strides[1] == 1:
            steps = [s for s in steps if s > 1] + [self.lanes]
        else:
            return o.x.scalar_bytes
        return gcd(self.vector, *steps) * o.x.scalar_bytes

    @cached_property
    def terms(self) -> Terms:
        """Return the terms as pairs of neighbours, each within a word, unless too many words would lack a term."""
        o = self.operation
        if o.x.data_type == FLOAT:
            return Terms(o.terms, 0, o.terms, True)
        if self.across_filters and self.lanes % self.vector == 0 and self.x_strides[1] == 1:
            return Terms(o.terms, 0, o.terms // 2, True, True)
        singles = Terms(o.terms, 0, -(-o.terms // 2), False)
        if self.step[2] * self.lanes % 2 or (self.dilation[2] > 1 and self.taps[2] > 1):
            return singles
        run, lead = self.taps[2] * self.lanes, self.skew % 2
        pairs = Terms(run, lead, (run + lead + 1) // 2, True)
        return min(pairs, singles, key=self.step_clocks)

    def steps(self, terms: Terms) -> int:
        return -(-self.operation.terms // terms.run * terms.words // STEP_WORDS)

    def step_clocks(self, terms: Terms) -> int:
        """Return the clocks of all steps of a warp's pixels."""
        one = (WORD_CLOCKS if terms.one_read else TWO_READ_CLOCKS) + FILTER_CLOCKS * self.filters // 16
        return self.steps(terms) * one * self.pixels // 32

    @property
    def pixels(self) -> int:
        """Return the pixels per warp at a time."""
        return 16 if self.narrow else 32

    @cached_property
    def group_filters(self) -> int:
        return self.operation.w.dims[0] // self.operation.convolution.group_count

    @cached_property
    def across_filters(self) -> bool:
        """Return whether the channels of y are contiguous."""
        return channels_last(self.operation.y)

    @cached_property
    def writes_y(self) -> bool:
        """Return whether the channels of y, or the pixels of a channel, are contiguous."""
        y = self.operation.y
        in_rows = y.strides[-1] == 1 and (self.outputs[1] == 1 or y.strides[-2] == self.outputs[2])
        return self.across_filters or in_rows

    @cached_property
    def has_kernel(self) -> bool:
        """Return whether a kernel has these filters and pixels. The narrow ones read 16 bits in NHWC in whole words."""
        if not self.narrow:
            return self.filters <= WIDE
        return self.filters >= WIDE and self.across_filters and self.vector == 8 and self.terms.one_read

    def y_vectors(self, tile: Tile) -> int:
        """Return how many contiguous results of a tile, filters or pixels, fill aligned vectors."""
        y = self.operation.y
        image, channel, *axes = scalar_strides(y)
        steps = [*axes, self.group_filters] if self.across_filters else [channel, axes[0], self.outputs[2]]
        fitting = gcd(self.vector, *steps, image if y.dims[0] > 1 else 0)
        if self.across_filters:
            return fitting if tile.columns >= WIDTHS[0] else 1
        return fitting if fitting == self.vector else 1

    # The properties below are sizes of a block's shared memory in bytes.

    @cached_property
    def filter_bytes(self) -> int:
        return rounded_up(self.steps(self.terms) * STEP_WORDS * WORD_BYTES, ROW_BYTES) * self.filters

    @cached_property
    def constant_bytes(self) -> int:
        """Return the bytes of filters, barriers and the table, with one more step that is read and not used."""
        table_bytes = (self.steps(self.terms) + 1) * STEP_WORDS * ENTRY_BYTES
        return self.filter_bytes + table_bytes + rounded_up(TEAMS * BARRIER_BYTES, VECTOR_BYTES)

    @cached_property
    def staging_bytes(self) -> int:
        """Return the bytes for results that are transposed, and first for the filters' terms."""
        most = STAGED_FILTERS * (2 if self.across_filters and self.vector == 8 else 1)
        rows, columns = self.pixels, min(self.filters, most)
        if not self.across_filters:
            rows, columns = columns, rows
        results = WARPS * rows * (columns + self.vector) * self.operation.x.scalar_bytes
        return max(results, self.steps(self.terms) * STEP_WORDS * ENTRY_BYTES)

    def slot_rows(self, tile: Tile) -> int:
        """Return the rows of one depth and channel."""
        return (tile.rows - 1) * self.step[1] + (self.taps[1] - 1) * self.dilation[1] + 1

    def slots(self, tile: Tile) -> int:
        return self.channels // self.lanes * self.taps[0] * self.slot_rows(tile)

    def columns(self, tile: Tile) -> int:
        """Return the columns of x in a row."""
        return (tile.columns - 1) * self.step[2] + (self.taps[2] - 1) * self.dilation[2] + 1

    def loaded(self, tile: Tile) -> int:
        """Return the elements of a row that are loaded."""
        return rounded_up(self.skew + self.columns(tile) * self.lanes, self.vector)

    def pitch(self, tile: Tile) -> int:
        """Return the elements of a row."""
        return self.loaded(tile) + self.columns(tile) * self.gap

    def buffer_bytes(self, tile: Tile) -> int:
        return self.slots(tile) * self.pitch(tile) * self.operation.x.scalar_bytes

    def shared_bytes(self, tile: Tile) -> int:
        return ALIGNMENT + self.constant_bytes + self.staging_bytes + 2 * TEAMS * self.buffer_bytes(tile)

    # The methods below choose a tile.

    def tiles(self, tile: Tile) -> int:
        """Return the tiles of all images."""
        down, across = -(-self.outputs[1] // tile.rows), -(-self.outputs[2] // tile.columns)
        return self.operation.x.dims[0] * self.outputs[0] * down * across

    @cached_property
    def parts(self) -> int:
        """Return the number of groups times tiles of filters. Each has its own blocks."""
        return self.operation.convolution.group_count * -(-self.group_filters // self.filters)

    def blocks(self, tile: Tile) -> int:
        """Return the blocks that share the tiles of one part."""
        return min(self.tiles(tile), max(1, self.multiprocessors // self.parts))

    def clocks(self, tile: Tile) -> float:
        """Return the approximate clocks for which such tiles occupy the device."""
        blocks = self.blocks(tile)
        of_block = -(-self.tiles(tile) // blocks)
        rounds = -(-of_block // TEAMS) * -(-self.parts * blocks // self.multiprocessors)
        passes = -(-tile.rows * tile.columns // (TEAM_WARPS * self.pixels))
        writing = RESULT_CLOCKS[self.y_vectors(tile)] * self.filters // 16 * self.pixels // 32
        products = self.step_clocks(self.terms) + writing
        loading = self.slots(tile) * SLOT_CLOCKS + self.buffer_bytes(tile) / LOADED_BYTES
        return rounds * min(TEAMS, of_block) * (passes * TEAM_WARPS * products + loading + TILE_CLOCKS)

    def possible_tiles(self) -> Iterator[Tile]:
        if self.only:
            yield self.only
            return
        rows, columns = self.outputs[1:]
        widths = [columns, *(width for width in WIDTHS if width < columns)]
        for tile in (Tile(*sizes) for sizes in product(range(1, min(rows, MAX_ROWS) + 1), widths)):
            if self.shared_bytes(tile) <= SHARED_BYTES:
                yield tile

    @cached_property
    def tile(self) -> Tile | None:
        """Return the tile with which the device finishes first."""
        return min(self.possible_tiles(), key=self.clocks, default=None)

    @cached_property
    def busy_clocks(self) -> float:
        """Return the approximate clocks for which the device is busy."""
        return self.clocks(self.tile) if self.tile else inf

    # The functions below describe the convolution to the kernel.

    def image_terms(self, tile: Tile) -> tuple[tuple[int, int], ...]:
        """Return (extent, stride in shared memory) of depth, rows, columns and channels of the filter, in the order of
        the terms.
        """
        pitch, rows = self.pitch(tile), self.slot_rows(tile)
        depth, row = (self.taps[0], rows * pitch), (self.taps[1], self.dilation[1] * pitch)
        column = (self.taps[2], self.dilation[2] * (self.lanes + self.gap))
        if self.interleaved:
            return (depth, row, column, (self.channels, 1))
        return (depth, row, (self.channels, self.taps[0] * rows * pitch), column)

    @cached_property
    def filter_terms(self) -> tuple[tuple[int, ...], int]:
        """Return the strides of depth, row, column and channel in the filter, in the order of the terms, and the first
        term's offset.
        """
        _, channel, *axes = self.w_steps or self.operation.w.tensor.strides
        steps = list(spatial(tuple(axes), 0))
        first = 0
        if self.operation.convolution.is_flipped:
            first = sum((taps - 1) * step for taps, step in zip(self.taps, steps, strict=True))
            steps = [-step for step in steps]
        depth, row, beside = steps
        return ((depth, row, beside, channel) if self.interleaved else (depth, row, channel, beside)), first


@lru_cache(256)
def geometry_of(
    operation: Convolution, multiprocessors: int, filters: int, w_steps: tuple[int, ...] = ()
) -> Geometry | None:
    """Return the geometry of blocks with this many filters. Return None where no tile fits shared memory, or results
    are not contiguous in y.
    """
    x, y = in_one_row(operation.convolution, operation.w, operation.x, operation.y)
    made = (Geometry(replace(operation, x=x, y=y), multiprocessors, filters, None, w_steps, n) for n in (False, True))
    possible = (found for found in made if found.has_kernel and found.writes_y and found.tile)
    return min(possible, key=lambda found: found.busy_clocks, default=None)


def fastest(operation: Convolution, multiprocessors: int, w_steps: tuple[int, ...] = ()) -> Geometry | None:
    """Return the geometry with which the device is busy for the shortest time, or None where no kernel serves."""
    filters = operation.w.dims[0] // operation.convolution.group_count
    most = next((count for count in FILTERS if count >= filters), FILTERS[-1])
    possible = (geometry_of(operation, multiprocessors, n, w_steps) for n in FILTERS if n <= most)
    return min(filter(None, possible), key=lambda found: found.busy_clocks, default=None)


def small_channels_launch(found: Geometry, device: Any) -> Launch:
    """Return the launch that computes the convolution."""
    o, tile, terms = found.operation, found.tile, found.terms
    assert tile is not None
    image_terms, (filter_steps, filter_first) = found.image_terms(tile), found.filter_terms
    y_strides, input_ = scalar_strides(o.y), spatial(o.x.dims[2:], 1)
    n_tiles, blocks = -(-found.group_filters // found.filters), found.blocks(tile)
    groups, buffer_at, buffer_bytes = o.convolution.group_count, found.constant_bytes, found.buffer_bytes(tile)
    x_image, x_channel, *x_axis = found.x_strides
    arguments = structure(
        *pointers(5),
        ("epilogue", epilogue(o)),
        ("x_image", c_int(x_image)),
        ("x_axis", (c_int * AXES)(*x_axis)),
        *fields_of(c_int, x_channel=x_channel, x_group=found.channels * x_channel, y_image=y_strides[0]),
        ("y_axis", (c_int * AXES)(*y_strides[2:])),
        ("y_channel", c_int(1 if found.across_filters else y_strides[1])),
        *fields_of(FastDivmod.of, n_tiles=n_tiles, groups=groups, column_tiles=-(-found.outputs[2] // tile.columns)),
        *fields_of(FastDivmod.of, row_tiles=-(-found.outputs[1] // tile.rows), depths=found.outputs[0]),
        *fields_of(FastDivmod.of, columns=tile.columns, slot_rows=found.slot_rows(tile), taps=found.taps[0]),
        ("lanes", FastDivmod.of(found.lanes)),
        ("term", (FastDivmod * 3)(*(FastDivmod.of(extent) for extent, _ in image_terms[1:]))),
        *fields_of(FastDivmod.of, run_words=terms.words, words=found.steps(terms) * STEP_WORDS),
        *arrays_of(c_int * 4, x_term=(step for _, step in image_terms), w_term=filter_steps),
        *fields_of(c_int, x_first=found.skew, w_first=filter_first, terms=o.terms, run=terms.run, lead=terms.lead),
        ("steps", c_int(found.steps(terms))),
        *arrays_of(c_int * AXES, input=input_, output=found.outputs, step=found.step),
        ("padding", (c_int * 2)(*found.padding[:2])),
        *fields_of(c_int, depth_step=found.dilation[0], tiles=found.tiles(tile), blocks=blocks, tile_rows=tile.rows),
        *fields_of(c_int, slots=found.slots(tile), pitch=found.pitch(tile)),
        ("first_element", c_int(-found.padding[2] * found.lanes - found.skew)),
        *fields_of(c_int, loaded=found.loaded(tile), gap=found.gap, pixel=found.lanes + found.gap),
        *fields_of(c_int, row_elements=input_[2] * found.lanes, row_bytes=found.row_bytes, contiguous=found.contiguous),
        *fields_of(c_int, filters=found.group_filters, row=(found.w_steps or o.w.tensor.strides)[0]),
        ("y_vectors", c_int(found.y_vectors(tile))),
        *fields_of(c_int, table_at=found.filter_bytes, buffer_at=buffer_at, buffer_bytes=buffer_bytes),
        ("staging_at", c_int(buffer_at + 2 * TEAMS * buffer_bytes)),
    )
    layout = "nhwc" if found.across_filters else "nchw"
    name = f"convolution_small_channels_{terms.read}_{layout}_{found.filters}"
    name += "_narrow" * (found.narrow and found.filters == WIDE)
    function = device.function(SOURCE, name, type_definitions(o.x.scalar_type, o))
    grid = (n_tiles * groups * blocks, 1, 1)
    return Launch(function, arguments, ("x", "w", *operand_names(o)), grid, (THREADS, 1, 1), found.shared_bytes(tile))


def order_of(found: Geometry) -> Order:
    """Return the order in which the kernel adds the terms of a result."""
    return Order("mma", (type_definitions(found.operation.x.scalar_type, found.operation), "words", found.terms))


def seconds_of(found: Geometry, problem: ConvolutionProblem) -> float:
    """Return the approximate seconds of a launch that computes the problem."""
    return Rates.LAUNCH + max(problem.memory_seconds, found.busy_clocks / Rates.CLOCK)


class SmallChannels(ConvolutionSolver):
    """Serve blocks with this many filters. The approximate time for which the device is busy decides between numbers of
    filters.
    """

    algorithms = IMPLICIT

    def __init__(self, filters: int) -> None:
        self.filters, self.name = filters, f"convolution.small_channels_{filters}"

    def can_launch(self, problem: ConvolutionProblem) -> bool:
        return reads_well(problem) and self._geometry(problem) is not None

    def applies(self, problem: ConvolutionProblem) -> bool:
        if not self.serves(problem):
            return False
        best = fastest(problem.operation, problem.device.multiprocessors)
        if best is None or best.filters != self.filters:
            return False
        if problem.operation.w.dims[1] <= MAX_CHANNELS:
            return True
        quicker = self.estimated_seconds(problem) < seconds_otherwise(SMALL_CHANNELS[-1], problem)
        return quicker and suits_tma_badly(problem.operation.w)

    def summation_order(self, problem: ConvolutionProblem) -> Order | None:
        found = self._geometry(problem)
        return order_of(found) if found else None

    def estimated_seconds(self, problem: ConvolutionProblem) -> float:
        found = self._geometry(problem)
        assert found is not None
        return seconds_of(found, problem)

    def launches(self, problem: ConvolutionProblem) -> list[Launch]:
        found = self._geometry(problem)
        assert found is not None
        return [small_channels_launch(found, problem.device)]

    def _geometry(self, problem: ConvolutionProblem) -> Geometry | None:
        return geometry_of(problem.operation, problem.device.multiprocessors, self.filters)


SMALL_CHANNELS = tuple(SmallChannels(filters) for filters in FILTERS)


def reads_well(problem: ConvolutionProblem) -> bool:
    """Return whether the device has the kernel, tensor cores may multiply, and channels suit it.

    The channels of a group are few, or do not fill the rows of 128 bytes that TMA reads in NHWC.
    """
    o, device, channels = problem.operation, problem.device, problem.operation.w.dims[1]
    if not has_tma(device) or device.shared_bytes_per_block < SHARED_BYTES:  # The kernel's barriers come with TMA.
        return False
    if not problem.tensor_cores or not problem.in_one_launch or problem.filter_row:
        return False
    if channels <= MAX_CHANNELS:
        return True
    unfilled = channels <= MAX_IN_NHWC and channels * o.x.scalar_bytes % ROW_BYTES > 0
    return unfilled and o.x.scalar_bytes == 2 and channels_last(o.x) and channels_last(o.y)


def suits_tma_badly(w: FilterSpec) -> bool:
    """Return whether TMA cannot read rows of channels or filters of two bytes each, or has few of them in a row."""
    filters, channels = w.dims[:2]
    return min(filters, channels) < MIN_FOR_TMA or 2 * gcd(filters, channels) % VECTOR_BYTES > 0
