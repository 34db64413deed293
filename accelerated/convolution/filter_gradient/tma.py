"""Plan gradients with respect to the filter on the tensor cores of compute capability 9.0, fed by TMA
(convolution/filter_gradient/tma.cu).

Operands with another layout than channels innermost are copied into the workspace first. The sums of blocks that share
tiles follow the copies: each block has a slot for every such tile that it meets.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from ctypes import c_float, c_int, c_ubyte
from dataclasses import dataclass
from functools import cached_property
from math import prod
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, FLOAT, HALF

from ...gemm.stream_k import DivisionStruct, Shares
from ...plans import ELEMENTS, Launch, Plan, fields_of, pointers, type_definitions, with_alignment
from ...primitives.geometry import FastDivmod
from ...primitives.tma import ALIGNMENT as COPY_ALIGNMENT
from ...primitives.tma import MAP_BYTES, ROW_BYTES, Im2colMap, TiledMap, TmaLaunch, has_wgmma, mapped_structure
from ...runtime.arguments import declared
from ...scalars import fill
from ...solver import LAUNCH_SECONDS, Solver
from ..composed import At, ComposedLaunch, ComposedPlan, copied, within
from ..forward import may_use_tensor_cores
from ..implicit_gemm.tma import row_clocks
from ..problem import AXES, VECTOR_BYTES, Rates, in_channels, pixel_pitch, rounded_up, spatial
from .forward_convolution import ALGORITHMS, FilterGradientProblem
from .pack_rows import PackedRows, pack_launch
from .tma_sum import SUM_LANES, sum_launch

SOURCE = "convolution/filter_gradient/tma.cu"
OF_STAGES, OF_ROWS, OF_BOTH = range(3)  # orders of sums in a slot
WARPGROUP = 128  # threads
CONSUMERS = 2  # warpgroups that multiply
ALIGNMENT = 256  # bytes, for the regions of the workspace
SWIZZLE_BYTES = 1024
SUM_BYTES = 4
HANDED_BYTES = 8 * WARPGROUP * 16  # shared memory through which one warpgroup hands its sums to another
LANES_SECONDS = 4e-7  # additional time of a sum if several threads share its parts
SLOTS_BANDWIDTH = 5.6e12  # bytes per second of partial sums, which stay in L2
STORED = 32.0  # bytes of sums that a multiprocessor stores per clock
BLENDED = 6.0  # results that a multiprocessor blends per clock, as vectors
BLENDED_APART = 1.5  # results that a multiprocessor blends per clock, one by one
MIN_SHARE = 0.5  # share of the clocks of TMA's rows that few blocks need
SUM_SECONDS = 7e-7  # per launch that adds partial sums
SUMMED = 3.2e11  # results per second that this launch blends if channels are contiguous in dw
SUMMED_APART = 5.5e10  # results per second that this launch blends one by one

Triple = c_int * AXES


class OperandStruct(ctypes.Structure):
    """Mirror ``Operand`` of the kernel's source."""

    _fields_ = (
        *declared(FastDivmod, "boxes across down"),
        *declared(Triple, "step padding dilation"),
        *declared(c_int, "channels all_boxes flat"),
    )


class ResultsStruct(ctypes.Structure):
    """Mirror ``Results`` of the kernel's source."""

    _fields_ = (
        *declared(c_float, "alpha beta"),
        *declared(FastDivmod, "row_boxes column_boxes inner of_row filters"),
        *declared(c_int, "all_filters row_channels column_channels taps inner_taps rows_are_filters flipped together"),
        *declared(c_int, "early tap_rows kept filter_step channel_step tap_step vectors"),
    )


class Operand(NamedTuple):
    """Describe dy or x as an operand: its map, boxes of channels under all taps, channels per group."""

    name: str
    map: Im2colMap | TiledMap
    channel_boxes: int
    boxes: int
    struct: OperandStruct


@dataclass(frozen=True)
class TileKernel:
    """Describe a tile of boxes.

    ``throughput``: share of the tensor cores' rate that long sums reach. ``min_k_blocks``: per block. ``few_parts``:
    parts of a tile that one thread adds. ``rows_are_filters``: whether rows may be filters, and whether they may be
    channels under taps. ``alone``: whether blocks may have unsplit tiles, and whether they may share all.
    """

    row_boxes: int
    column_boxes: int
    stages: int
    throughput: float
    min_k_blocks: int = 4
    few_parts: int = 8
    rows_are_filters: tuple[bool, ...] = (True, False)
    alone: tuple[bool, ...] = (True, False)

    source: ClassVar[str] = SOURCE
    prefix: ClassVar[str] = ""  # prefix of the tile in the kernel's name
    definitions: ClassVar[Mapping[str, str]] = {}
    box: ClassVar[int] = ROW_BYTES // 2  # channels per box, and pixels per K-block
    warpgroup_boxes: ClassVar[int] = 1  # boxes per warpgroup along the rows
    order: ClassVar[int] = OF_STAGES
    products: ClassVar[int] = 2048  # multiply-adds per clock of a multiprocessor
    reads_channels: ClassVar[bool] = True  # whether TMA's rows are channels of a pixel

    @property
    def stem(self) -> str:
        """Return the path of the source in one word, which begins the names of its kernels."""
        return self.source.partition(".")[0].replace("/", "_")

    @property
    def entry(self) -> str:
        """Return the kernel's entry point."""
        return f"{self.stem}_{self.prefix}{self.box * self.row_boxes}x{self.box * self.column_boxes}"

    @property
    def splits_k(self) -> bool:
        """Return whether two warpgroups take every other K-block."""
        return self.row_boxes < CONSUMERS * self.warpgroup_boxes

    @property
    def size(self) -> int:
        """Return the elements of the tile, which are the sums that a block stores per tile."""
        return self.box**2 * self.row_boxes * self.column_boxes

    @property
    def shared_bytes(self) -> int:
        handed = HANDED_BYTES if self.splits_k else 0
        return self.stages * (self.row_boxes + self.column_boxes) * self.box * ROW_BYTES + SWIZZLE_BYTES + handed


KERNELS = (TileKernel(2, 4, 4, 0.95), TileKernel(2, 2, 6, 0.8), TileKernel(1, 2, 8, 0.65))


class FilterGradientTma(Solver[FilterGradientProblem]):
    """Serve ALGO_1 and ALGO_3 of half and bfloat16 where the math type allows tensor cores.

    One kernel multiplies tiles of dy and x in place, or of copies with channels innermost. Several groups may share a
    tile.
    """

    data_types: tuple[cudnnDataType_t, ...] = (HALF, BFLOAT16)
    kernels: tuple[TileKernel, ...] = KERNELS

    def __init__(self, kernel: TileKernel) -> None:
        self.kernel, self.name = kernel, kernel.entry.replace("_", ".", 1)

    def product(self, problem: FilterGradientProblem, kernel: TileKernel) -> Product:
        """Return the gradient as a product in tiles of a kernel, which is described once for a problem."""
        known = problem.products.get((type(self), kernel))
        if known is None:
            known = problem.products[type(self), kernel] = self.described(problem, kernel)
        return known

    def described(self, problem: FilterGradientProblem, kernel: TileKernel) -> Product:
        """Describe the gradient as a product in tiles of a kernel."""
        return Product(problem, kernel)

    def serves(self, problem: FilterGradientProblem) -> bool:
        return self._is_known(problem) and self.product(problem, self.kernel).is_possible

    def applies(self, problem: FilterGradientProblem) -> bool:
        if not self._is_known(problem):
            return False
        # Where memory is slower than the products of any tile, small tiles have more K-blocks in flight.
        made = [self.product(problem, kernel) for kernel in reversed(self.kernels)]
        best = min(made, key=lambda product: max(product.read_seconds, product.tiling.seconds))
        return best.kernel is self.kernel and best.is_possible

    def workspace_bytes(self, problem: FilterGradientProblem) -> int:
        return with_alignment(self.product(problem, self.kernel).regions.used)

    def estimated_seconds(self, problem: FilterGradientProblem) -> float:
        return self.product(problem, self.kernel).seconds

    def plan(self, problem: FilterGradientProblem) -> Plan:
        return ComposedPlan(problem.operation, list(self.product(problem, self.kernel).launches()), self.name)

    def alignment(self, problem: FilterGradientProblem) -> Mapping[str, int]:
        made = self.product(problem, self.kernel)
        return {name: COPY_ALIGNMENT for name in ("x", "dy") if name not in made.copies}

    def _is_known(self, problem: FilterGradientProblem) -> bool:
        """Return whether tensor cores and TMA can serve the algorithm, the types and the device."""
        return problem.aligned and problem.operation.x.data_type in self.data_types and is_known(problem)


def is_known(problem: FilterGradientProblem) -> bool:
    """Return whether tensor cores and TMA can serve the algorithm, the math type and the device."""
    o, device = problem.operation, problem.device
    if not has_wgmma(device):
        return False
    if o.algo not in ALGORITHMS or not problem.in_one_launch:
        return False
    return may_use_tensor_cores(o.convolution, o.x.data_type, device)


class Tiling(NamedTuple):
    """Describe the tiles of a product, and the operand of their rows."""

    rows_are_filters: bool
    row_tiles: int
    column_tiles: int
    shares: Shares
    seconds: float


class Regions(NamedTuple):
    """Hold the byte offsets of the workspace: copies of x and dy, and the sums of blocks."""

    x: int
    dy: int
    partial: int
    used: int


class Product:
    """Describe one gradient as a product of dy and x, in tiles of a kernel."""

    def __init__(self, problem: FilterGradientProblem, kernel: TileKernel) -> None:
        self.kernel = kernel
        self.problem, self.operation = problem, problem.operation
        o = self.operation
        together = self._together()
        self.groups = -(-problem.groups // together)
        self.channels, self.filters = together * o.dw.dims[1], together * (o.dw.dims[0] // problem.groups)
        self.taps = o.dw.dims[2:]
        self.k_blocks = -(-o.dy.dims[0] * prod(o.dy.dims[2:]) // kernel.box)
        self.rows = PackedRows.of(o, kernel.box)  # rows of few channels
        self.copies = {name: made for name in ("x", "dy") if (made := self._copy(name)) is not None}

    def _together(self) -> int:
        """Return the number of groups of x and dy that are one group of the product.

        It is the largest number that fits into a box of both and is aligned for TMA. Sums over filters and channels of
        different groups are computed, and not read.
        """
        o, groups = self.operation, self.problem.groups
        filters, channels = o.dw.dims[0] // groups, o.dw.dims[1]
        unit = COPY_ALIGNMENT // o.x.scalar_bytes
        most = min(groups, self.kernel.box // max(filters, channels))
        fitting = (n for n in range(most, 1, -1) if n * filters % unit == n * channels % unit == 0)
        return next(fitting, 1)

    @property
    def choices(self) -> tuple[bool, ...]:
        """Return whether filters may be the rows, and whether channels under taps may be."""
        return self.kernel.rows_are_filters

    @property
    def extents(self) -> tuple[int, ...]:
        """Return the depth, height and width of dy, which K-blocks walk."""
        return spatial(self.operation.dy.dims[2:], 1)

    def maps(self, rows: Operand, columns: Operand) -> tuple[Im2colMap | TiledMap, Im2colMap | TiledMap]:
        """Return the maps that load operands as rows and as columns of tiles."""
        return rows.map, columns.map

    def _copy(self, name: str) -> TensorSpec | None:
        """Return the description of the copy of an operand, or None where it is read in place."""
        tensor = self.operation.tensor(name)
        if name == "x" and self.rows:
            return self.rows.windows
        return None if _lies_well(tensor) else in_channels(tensor)

    @cached_property
    def is_possible(self) -> bool:
        """Return whether TMA can read both operands."""
        if self.groups > 1 and any(
            count * self.operation.x.scalar_bytes % COPY_ALIGNMENT for count in (self.channels, self.filters)
        ):
            return False
        slots = (self.tiling.shares.blocks + self.tiling.shares.tiles) * self.kernel.size
        return self.image.map.is_possible and self.incoming.map.is_possible and slots * SUM_BYTES < 2**40

    @cached_property
    def image(self) -> Operand:
        """Return x under all taps. Rows of few channels have all taps of a column."""
        c, o = self.operation.convolution, self.operation
        x, channels, taps = self.copies.get("x", o.x), self.channels, self.taps
        stride, padding, dilation = c.stride, c.padding, c.dilation
        if self.rows:
            channels, taps = x.dims[1], (*taps[:-2], self.rows.taps, 1)
            stride, padding = (*stride[:-2], self.rows.stride, 1), (*padding[:-2], self.rows.padding, 0)
            dilation = (*dilation[:-1], 1)
        spans = [(tap - 1) * apart for tap, apart in zip(taps, dilation, strict=True)]
        lower = [-before for before in padding]
        upper = [
            first + (count - 1) * step + 1 - extent
            for first, count, step, extent in zip(lower, o.dy.dims[2:], stride, x.dims[2:], strict=True)
        ]
        return self._operand("x", self._map(x, lower, upper, stride, spans), channels, taps, stride, padding, dilation)

    @cached_property
    def incoming(self) -> Operand:
        """Return dy under one tap."""
        dy = self.copies.get("dy", self.operation.dy)
        none, one = (0,) * (len(dy.dims) - 2), (1,) * (len(dy.dims) - 2)
        return self._operand("dy", self._map(dy, none, none, one, none), self.filters)

    def _operand(
        self, name: str, map_: Im2colMap | TiledMap, channels: int, taps: Any = (1,), stride: Any = (1,) * AXES,
        padding: Any = (0,), dilation: Any = (0,),
    ) -> Operand:  # fmt: skip
        boxes = -(-channels // self.kernel.box)
        count = boxes * prod(taps)
        _, down, across = spatial(taps, 1)
        triples = (Triple(*spatial(values, 0)) for values in (stride, padding, dilation))
        counts = map(FastDivmod.of, (boxes, across, down))
        flat = isinstance(map_, TiledMap)
        return Operand(name, map_, boxes, count, OperandStruct(*counts, *triples, channels, count, flat))

    def _map(self, tensor: TensorSpec, lower: Any, upper: Any, step: Any, taps: Any) -> Im2colMap | TiledMap:
        """Return the map of a tensor. ``lower``, ``upper``, ``step`` and ``taps``, the largest offsets of taps, have
        an entry for each spatial dimension. A tap that meets every pixel has a map of rows of pixels, which is faster.
        """
        lone = rounded_up(tensor.dims[1], COPY_ALIGNMENT // tensor.scalar_bytes)
        pitch = pixel_pitch((tensor.dims[0], *tensor.dims[2:]), (tensor.strides[0], *tensor.strides[2:]), lone)
        if pitch and not any((*lower, *upper, *taps)) and max(step) == 1:
            return self._rows_map(tensor, pitch * tensor.scalar_bytes)
        images, channels, *extents = tensor.dims
        extent = (channels, *extents[::-1], images)
        strides = [stride * tensor.scalar_bytes for stride in (*tensor.strides[:1:-1], tensor.strides[0])]
        for d, size in enumerate(extent[1:]):
            if size == 1:  # TMA never uses the stride, but it must be valid.
                strides[d] = rounded_up(channels * tensor.scalar_bytes, COPY_ALIGNMENT)
        return Im2colMap(
            _factor(tensor), extent, tuple(strides),
            lower=tuple(lower[::-1]), upper=tuple(upper[::-1]),
            step=tuple(step[::-1]), taps=tuple(taps[::-1]), pixels=self.kernel.box,
        )  # fmt: skip

    def _rows_map(self, tensor: TensorSpec, pitch: int) -> TiledMap:
        """Return the map of rows of pixels, ``pitch`` bytes apart."""
        pixels, box = tensor.dims[0] * prod(tensor.dims[2:]), self.kernel.box
        return TiledMap(_factor(tensor), (tensor.dims[1], pixels, 1), (pitch, pitch * pixels), box=(box, box, 1))

    @cached_property
    def tiling(self) -> Tiling:
        """Return the tiling that should finish first."""
        return min(map(self._tiling, self.choices), key=lambda tiling: tiling.seconds)

    def _tiling(self, rows_are_filters: bool) -> Tiling:
        kernel, (rows, columns) = self.kernel, self._sides(rows_are_filters)
        row_tiles, column_tiles = -(-rows.boxes // kernel.row_boxes), -(-columns.boxes // kernel.column_boxes)
        tiles, multiprocessors = row_tiles * column_tiles * self.groups, self.problem.device.multiprocessors
        possible: list[Shares] = []
        if True in kernel.alone:  # Every tile has one block, or enough tiles keep every block busy.
            counts_unsplit = {tiles, tiles // multiprocessors * multiprocessors} - {0}
            possible += [
                Shares.with_unsplit(unsplit, tiles, self.k_blocks, multiprocessors)
                for unsplit in sorted(counts_unsplit)
            ]
        if False in kernel.alone:
            most = min(multiprocessors, max(1, tiles * self.k_blocks // kernel.min_k_blocks))
            # Either the number of blocks is the maximum, or all tiles have several equal parts.
            equal = range(2 * tiles, most + 1, tiles)
            possible += [Shares.of(tiles, self.k_blocks, blocks) for blocks in (most, *equal)]
        timed = ((self._shared_seconds(each, rows_are_filters), each) for each in possible)
        seconds, shares = min(timed, key=itemgetter(0))
        return Tiling(rows_are_filters, row_tiles, column_tiles, shares, seconds)

    def _follow(self, rows_are_filters: bool) -> bool:
        """Return whether channels are contiguous in dw, in vectors that the kernel stores."""
        o, vector = self.operation, VECTOR_BYTES // self.operation.x.scalar_bytes
        filter_step, channel_step, *_, tap_step = o.dw.tensor.strides
        stored = not rows_are_filters if self.kernel.order != OF_STAGES else o.x.scalar_bytes == 2 and rows_are_filters
        plain = stored and channel_step == 1 and not self.rows and self.channels == o.dw.dims[1]
        return plain and not any(step % vector for step in (self.channels, filter_step, tap_step))

    def _k_block_clocks(self, rows_are_filters: bool, blocks: int) -> float:
        """Return the approximate clocks of a K-block: of its products, or of TMA's rows of channels.

        L2 bounds the rows of all blocks, so that those of few blocks take fewer clocks.
        """
        kernel = self.kernel
        products = kernel.size * kernel.box / kernel.products / kernel.throughput
        if not kernel.reads_channels or self.operation.x.scalar_bytes != 2:
            return products
        loaded = 0.0
        for side, boxes in zip(self._sides(rows_are_filters), (kernel.row_boxes, kernel.column_boxes), strict=True):
            tensor = self.copies.get(side.name, self.operation.tensor(side.name))
            loaded += min(boxes, side.boxes) * kernel.box * row_clocks(tensor.strides[-1] * tensor.scalar_bytes)
        return max(products, loaded * max(MIN_SHARE, min(1.0, blocks / self.problem.device.multiprocessors)))

    def _shared_seconds(self, shares: Shares, rows_are_filters: bool) -> float:
        """Return the approximate seconds of blocks that share tiles in this way, with the sum of their parts."""
        kernel = self.kernel
        together = self._follow(rows_are_filters) or (rows_are_filters and self.operation.dw.tensor.strides[1] == 1)
        k_block = self._k_block_clocks(rows_are_filters, shares.blocks)
        stored = kernel.size * SUM_BYTES / STORED
        clocks = (shares.share + (shares.longer_parts > 0)) * k_block + stored if shares.parts else 0.0
        if shares.further:  # Further blocks meet several tiles.
            k_blocks, longer = divmod(shares.tiles * shares.rest, shares.further)
            tiles = k_blocks / shares.rest + (longer > 0 or k_blocks % shares.rest > 0)
            clocks = max(clocks, (k_blocks + (longer > 0)) * k_block + tiles * stored)
        if shares.unsplit:
            blended = kernel.size / (BLENDED if together else BLENDED_APART)
            clocks += -(-shares.unsplit // shares.lone) * (shares.k_blocks * k_block + blended)
        added = 0.0
        if shares.tiles:
            added = SUM_SECONDS + shares.slots * kernel.size * SUM_BYTES / SLOTS_BANDWIDTH
            added += shares.tiles * kernel.size / (SUMMED if together else SUMMED_APART)
            added += LANES_SECONDS if self._lanes(shares) > 1 else 0.0
        return clocks / Rates.CLOCK + added

    def _lanes(self, shares: Shares) -> int:
        """Return the number of threads that share the parts of a sum."""
        return SUM_LANES if shares.sharing > self.kernel.few_parts * shares.tiles else 1

    def _sides(self, rows_are_filters: bool) -> tuple[Operand, Operand]:
        return (self.incoming, self.image) if rows_are_filters else (self.image, self.incoming)

    @property
    def seconds(self) -> float:
        copied = sum(2 * self._copy_bytes(name) for name in self.copies) / Rates.BANDWIDTH
        return (1 + len(self.copies)) * LAUNCH_SECONDS + copied + max(self.read_seconds, self.tiling.seconds)

    @property
    def read_seconds(self) -> float:
        """Return the minimum seconds in which x and dy are read, and dw is written."""
        o = self.operation
        return (o.x.nbytes + o.dy.nbytes + o.dw.nbytes) / Rates.BANDWIDTH

    @cached_property
    def regions(self) -> Regions:
        dy = rounded_up(self._copy_bytes("x"), ALIGNMENT)
        partial = dy + rounded_up(self._copy_bytes("dy"), ALIGNMENT)
        return Regions(0, dy, partial, partial + self.tiling.shares.slots * self.kernel.size * SUM_BYTES)

    @property
    def division(self) -> DivisionStruct:
        return self.tiling.shares.division(self.tiling.row_tiles, self.tiling.column_tiles)

    def launches(self) -> Iterator[ComposedLaunch]:
        regions = self.regions
        where = {
            "x": At("workSpace", regions.x) if "x" in self.copies else At("x"),
            "dy": At("workSpace", regions.dy) if "dy" in self.copies else At("dy"),
            "partial": At("workSpace", regions.partial),
            "dw": At("dw"),
        }
        for name, made in self.copies.items():
            yield from within([self._copy_launch(name, made)], {"x": At(name), "y": where[name]})
        yield from within(self._product_launches(), where)

    def _copy_bytes(self, name: str) -> int:
        if name == "x" and self.rows:
            return self.rows.nbytes
        return self.copies[name].nbytes if name in self.copies else 0

    def _copy_launch(self, name: str, made: TensorSpec) -> Launch:
        if name == "x" and self.rows:
            return pack_launch(self.operation, self.rows, self.problem.device)
        return copied(self.operation.tensor(name), made, self.problem.device)

    def _product_launches(self) -> list[Launch]:
        """Return the launch of the product, and the launch that adds the shared sums."""
        return [self._product_launch(), *self._sum_launches()]

    def _sum_launches(self) -> list[Launch]:
        kernel, shares = self.kernel, self.tiling.shares
        if not shares.tiles:
            return []
        shared = shares.tiles * kernel.size, self._lanes(shares)
        return [sum_launch(self.operation, kernel, self.division, self._results, shared, self.problem.device)]

    def _product_launch(self) -> Launch:
        tiling, device, (rows, columns) = self.tiling, self.problem.device, self._sides(self.tiling.rows_are_filters)
        depth, height, width = self.extents
        fields = [
            *pointers(4),
            ("volumes", c_int(self.operation.convolution.rank == AXES)),
            ("reserved", (c_int * 7)()),
            *((name, (c_ubyte * MAP_BYTES)()) for name in ("row_map", "column_map")),
            ("rows", rows.struct),
            ("columns", columns.struct),
            *fields_of(FastDivmod.of, depth=depth, height=height, width=width),
            ("division", self.division),
            ("results", self._results),
        ]
        arguments = mapped_structure(*fields)
        kernel = self.kernel
        definitions = type_definitions(self.operation.x.data_type, self.operation, **kernel.definitions)
        launch = Launch(
            device.function(kernel.source, kernel.entry, definitions), arguments,
            (rows.name, columns.name, "partial", "dw"),
            (tiling.shares.blocks, 1, 1), ((CONSUMERS + 1) * WARPGROUP, 1, 1), kernel.shared_bytes,
        )  # fmt: skip
        maps = tuple(
            (getattr(type(arguments), name).offset, i, 0, found)
            for i, (name, found) in enumerate(zip(("row_map", "column_map"), self.maps(rows, columns), strict=True))
        )
        return TmaLaunch(device, (kernel.source, definitions), kernel.entry, launch, maps, None)

    @property
    def _results(self) -> ResultsStruct:
        o, rows_are_filters = self.operation, self.tiling.rows_are_filters
        rows, columns = self._sides(rows_are_filters)
        filter_step, channel_step, *_, tap_step = o.dw.tensor.strides
        inner_taps, taps, channels, together, early = 1, prod(self.taps), o.dw.dims[1], 1, 0
        if packed := self.rows:
            inner_taps, taps = self.taps[-1], prod(self.taps[:-2]) * packed.taps
            channels, together, early = packed.channels, packed.together, packed.early
        return fill(
            ResultsStruct(), alpha=o.alpha, beta=o.beta,
            row_boxes=FastDivmod.of(rows.channel_boxes), column_boxes=FastDivmod.of(columns.channel_boxes),
            inner=FastDivmod.of(channels * together), of_row=FastDivmod.of(channels),
            filters=FastDivmod.of(o.dw.dims[0] // self.problem.groups), all_filters=o.dw.dims[0],
            row_channels=rows.struct.channels, column_channels=columns.struct.channels,
            taps=taps, inner_taps=inner_taps, rows_are_filters=rows_are_filters, flipped=o.convolution.is_flipped,
            together=together, early=early, tap_rows=prod(self.taps) // inner_taps, kept=o.dw.dims[1],
            filter_step=filter_step, channel_step=channel_step, tap_step=tap_step,
            vectors=self._follow(rows_are_filters),
        )  # fmt: skip


def _lies_well(tensor: TensorSpec) -> bool:
    """Return whether channels are contiguous, and TMA takes the strides of pixels."""
    image, channel, *steps = tensor.strides
    last = channel == 1 or tensor.dims[1] == 1
    return last and all(step * tensor.scalar_bytes % COPY_ALIGNMENT == 0 for step in (image, *steps))


def _factor(tensor: TensorSpec) -> str:
    """Return the type that the tensor cores multiply."""
    return "tf32" if tensor.data_type == FLOAT else ELEMENTS[tensor.data_type]
