"""Plan gradients with respect to the filter of depthwise convolutions (convolution/filter_gradient/depthwise.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int, c_longlong, c_ubyte
from functools import cached_property
from math import gcd, prod
from typing import Any, NamedTuple

from dualdnn.api.enumerations import cudnnConvolutionBwdFilterAlgo_t as Algo
from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF

from ...plans import (
    ELEMENTS,
    Launch,
    Plan,
    arrays_of,
    fields_of,
    pointers,
    structure,
    type_definitions,
    with_alignment,
)
from ...primitives.geometry import FastDivmod
from ...primitives.tma import ALIGNMENT as COPY_ALIGNMENT
from ...primitives.tma import MAP_BYTES, ROW_BYTES, TmaLaunch, UnswizzledTiledMap, has_tma, mapped_structure
from ...solver import BYTES_PER_SECOND, Solver
from ..composed import At, ComposedPlan, within
from ..problem import VECTOR_BYTES, Rates, channels_last, rounded_up
from .forward_convolution import FilterGradientProblem
from .sum import sum_launch

SOURCE = "convolution/filter_gradient/depthwise.cu"
THREADS = 128  # per block
WARP = 32  # threads
MAX_ACROSS = 16  # taps of a row, whose columns of x one thread holds
MAX_TAPS = 28  # taps, whose sums one thread holds; with 49, TMA takes 4 times as long as other loads
MAX_STEP = 8  # stride along an axis
FEW_TAPS = 9
CHANNELS = 2  # channels per thread, where they are contiguous
# The values are columns per thread, for few taps and for more. The key says whether channels are contiguous.
COLUMNS = {True: (4, 2), False: (8, 4)}
# blocks per multiprocessor; the key says whether channels are contiguous, and whether there are few taps
BLOCKS = {(True, True): 5, (False, True): 6, (True, False): 3, (False, False): 3}
MIN_ROWS = 4  # rows per chunk, but for the last one
MAX_WARPS = 8  # warps that add, per block
MAX_STAGES = 8  # stages of the ring
STAGE_BYTES = 60 << 10  # bytes per block
TMA_BLOCKS = 2  # blocks per multiprocessor
SUM_BYTES = 4
OPERATIONS_PER_SECOND = 12e12  # operations of an H200 with windows of 49 taps


class DepthwiseFilterGradient(Solver[FilterGradientProblem]):
    """Serve ALGO_1 where every channel has its own filter, of any window."""

    name = "convolution.depthwise_filter_gradient"

    def serves(self, problem: FilterGradientProblem) -> bool:
        o, c = problem.operation, problem.operation.convolution
        if o.algo != Algo.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 or c.rank != 2 or not problem.in_one_launch:
            return False
        depthwise = problem.groups > 1 and o.dw.dims[:2] == (problem.groups, 1)
        known = max(c.stride) <= MAX_STEP and max(c.dilation) == 1
        along = all(_is_along(spec) for spec in (o.x, o.dy)) or all(channels_last(spec) for spec in (o.x, o.dy))
        return depthwise and known and along

    def division(self, problem: FilterGradientProblem) -> _Division:
        """Return the division of channels, columns and rows."""
        return _Division(problem)

    def workspace_bytes(self, problem: FilterGradientProblem) -> int:
        sums = self.division(problem).parts * prod(problem.operation.dw.dims)
        return with_alignment(sums * (8 if problem.operation.compute_type == DOUBLE else 4))

    def estimated_seconds(self, problem: FilterGradientProblem) -> float:
        o = problem.operation
        computing = 2.0 * prod(o.dy.dims) * prod(o.dw.dims[2:]) / OPERATIONS_PER_SECOND
        return 2 * Rates.LAUNCH + max(computing, (o.x.nbytes + o.dy.nbytes) / BYTES_PER_SECOND)

    def alignment(self, problem: FilterGradientProblem) -> Mapping[str, int]:
        division, nbytes = self.division(problem), problem.operation.x.scalar_bytes
        widths = {"x": division.x_width, "dy": division.dy_width}
        return {name: width * nbytes for name, width in widths.items() if width > 1}

    def plan(self, problem: FilterGradientProblem) -> Plan:
        division = self.division(problem)
        where = {"x": At("x"), "dy": At("dy"), "dw": At("dw"), "partial": At("workSpace")}
        launches = [division.launch(), sum_launch(problem.operation, division.parts, problem.device)]
        return ComposedPlan(problem.operation, within(launches, where), self.name)


class Chunks(NamedTuple):
    """Divide images: rows per chunk, number of chunks, blocks that share channels, rows that a thread walks."""

    rows: int
    chunks: int
    parts: int
    walked: int


class _Division:
    """Divide the channels and columns among threads, and images into chunks."""

    def __init__(self, problem: FilterGradientProblem) -> None:
        self.problem, self.operation = problem, problem.operation
        o, c = self.operation, self.operation.convolution
        self.last = channels_last(o.x) and channels_last(o.dy)
        self.part = _part(*o.dw.dims[2:])
        self.parts_down, self.parts_across = (
            -(-taps // of_part) for taps, of_part in zip(o.dw.dims[2:], self.part, strict=True)
        )
        few = self.few = prod(self.part) <= FEW_TAPS
        self.blocks = BLOCKS[self.last, few and o.x.scalar_bytes < 8]
        # All addresses have one division, because they have one workspace.
        self.channels = self._width(CHANNELS, o.x, o.dy) if self.last else 1
        wide, narrow = COLUMNS[self.last]
        width = o.dy.dims[3]
        wasteful = -(-width // wide) * wide > -(-width // narrow) * narrow
        self.columns = narrow if not few or wasteful or o.x.scalar_bytes > 2 else wide
        most = min(self.columns, VECTOR_BYTES // o.x.scalar_bytes) if problem.aligned else 1
        self.x_width, self.dy_width = self._width(most, o.x), self._width(most, o.dy)
        # Vectors of a row of x begin after the padding.
        self.padding = c.padding[1] if self.parts_across == 1 and c.padding[1] < self.part[1] and not self.last else 0
        if self.padding != c.padding[1] or self.parts_across > 1:
            self.x_width = 1
        if self.last:
            self.x_width = self.dy_width = self.channels if problem.aligned else 1
        self.vectors = min(WARP, 1 << (-(-o.x.dims[1] // self.channels) - 1).bit_length()) if self.last else 1
        self.channel_blocks = -(-o.x.dims[1] // (self.vectors * self.channels))
        self.lanes = THREADS // self.vectors  # threads that share items
        self.tiles = -(-width // self.columns)
        self.depth = -(-self.part[0] // c.stride[0])

    def _width(self, most: int, *tensors: TensorSpec) -> int:
        """Return the elements of a row, or the channels, per access."""
        width = most
        for tensor in tensors:
            row = tensor.dims[1] if self.last else tensor.dims[3]
            steps = [s for s, extent in zip(tensor.strides, tensor.dims, strict=True) if extent > 1 and s != 1]
            width = gcd(width, row, *steps)
        return width

    @cached_property
    def chunks(self) -> Chunks:
        """Return the division with which all resident threads finish first."""
        height, lanes = self.operation.dy.dims[2], self.lanes
        most = max(1, self.blocks * self.problem.device.multiprocessors // (self.channel_blocks * self.window_parts))

        def divided(count: int) -> Chunks:
            rows = -(-height // count)
            count = -(-height // rows)
            items = self.problem.images * self.tiles * count
            rounds = -(-items // (lanes * most))
            return Chunks(rows, count, -(-items // (lanes * rounds)), rounds * (rows + self.depth))

        return min(map(divided, range(1, max(1, height // MIN_ROWS) + 1)), key=lambda chunks: chunks.walked)

    @property
    def parts(self) -> int:
        return self.chunks.parts

    @property
    def window_parts(self) -> int:
        return self.parts_down * self.parts_across

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.channel_blocks * self.parts * self.window_parts, 1, 1

    @property
    def window_fields(self) -> list[tuple[str, Any]]:
        """Return the fields of the arguments that describe the window and its parts."""
        o, left = self.operation, self.operation.convolution.padding[1] - self.padding
        return [
            *fields_of(FastDivmod.of, parts=self.window_parts, parts_across=self.parts_across),
            *arrays_of(c_int * 2, window=o.dw.dims[2:]),
            *fields_of(c_int, left=left),
        ]

    @cached_property
    def definitions(self) -> tuple[tuple[str, str], ...]:
        o, c = self.operation, self.operation.convolution
        constants = {
            "CHANNELS_LAST": int(self.last), "CHANNELS": self.channels, "COLUMNS": self.columns,
            "X_WIDTH": self.x_width,
            "DY_WIDTH": self.dy_width, "THREADS": THREADS, "BLOCKS": self.blocks, "TAP_ROWS": self.part[0],
            "TAP_COLUMNS": self.part[1], "ROW_STEP": c.stride[0], "COLUMN_STEP": c.stride[1],
            "COLUMN_PADDING": self.padding, "TMA_BLOCKS": TMA_BLOCKS,
        }  # fmt: skip
        return type_definitions(o.x.data_type, o, **{name: str(value) for name, value in constants.items()})

    def launch(self) -> Launch:
        o, chunks, pair = self.operation, self.chunks, c_int * 2
        arguments = structure(
            *pointers(3),
            *arrays_of(c_longlong * 4, x_step=o.x.strides, dy_step=o.dy.strides),
            *arrays_of(pair, input=o.x.dims[2:], output=o.dy.dims[2:]),
            *fields_of(c_int, padding=o.convolution.padding[0], chunk_rows=chunks.rows, channels=o.x.dims[1]),
            *fields_of(c_int, items=self.problem.images * self.tiles * chunks.chunks, flipped=o.convolution.is_flipped),
            ("log_vectors", c_int(self.vectors.bit_length() - 1)),
            *fields_of(FastDivmod.of, tiles=self.tiles, chunks=chunks.chunks, channel_blocks=self.channel_blocks),
            *self.window_fields,
        )
        function = self.problem.device.function(SOURCE, "convolution_depthwise_filter_gradient", self.definitions)
        return Launch(function, arguments, ("x", "dy", "partial"), self.grid, (THREADS, 1, 1))


class DepthwiseFilterGradientTma(DepthwiseFilterGradient):
    """Serve the same problems with channels innermost, whose rows TMA loads."""

    name = "convolution.depthwise_filter_gradient_tma"

    def serves(self, problem: FilterGradientProblem) -> bool:
        o = problem.operation
        if (
            not has_tma(problem.device)
            or not problem.aligned
            or o.x.data_type not in (HALF, BFLOAT16, FLOAT)
            or not super().serves(problem)
        ):
            return False
        division = _TmaDivision(problem)
        return division.last and division.channels == CHANNELS and division.is_possible

    def division(self, problem: FilterGradientProblem) -> _Division:
        return _TmaDivision(problem)

    def alignment(self, problem: FilterGradientProblem) -> Mapping[str, int]:
        return dict.fromkeys(("x", "dy"), COPY_ALIGNMENT)


class _TmaDivision(_Division):
    """Divide the work so that the warps of a block have neighbouring columns of all of its channels."""

    def __init__(self, problem: FilterGradientProblem) -> None:
        super().__init__(problem)
        o, (row_step, column_step) = self.operation, self.operation.convolution.stride
        self.vectors, self.channel_blocks = WARP, -(-o.x.dims[1] // (WARP * CHANNELS))
        groups = -(-o.dy.dims[3] // self.columns)
        self.tiles = -(-groups // MAX_WARPS)
        self.warps = -(-groups // self.tiles)
        box, columns = WARP * CHANNELS, self.warps * self.columns
        self.x_box = (box, (columns - 1) * column_step + self.part[1], row_step, 1)
        self.dy_box = (box, columns, 1, 1)
        self.x_bytes, dy_bytes = (prod(sizes) * o.x.scalar_bytes for sizes in (self.x_box, self.dy_box))
        self.stage_bytes = self.x_bytes + dy_bytes
        self.stages = min(MAX_STAGES, STAGE_BYTES // self.stage_bytes)
        self.lanes, self.blocks = 1, TMA_BLOCKS

    @property
    def is_possible(self) -> bool:
        """Return whether TMA can read both tensors, and rows while others are added."""
        maps = (_tiled_map(self.operation.x, self.x_box), _tiled_map(self.operation.dy, self.dy_box))
        return self.stages > 1 and all(made.is_possible for made in maps)

    def launch(self) -> Launch:
        o, chunks, device = self.operation, self.chunks, self.problem.device
        fields = [
            *pointers(3),
            ("reserved", (c_longlong * 5)()),
            *((name, (c_ubyte * MAP_BYTES)()) for name in ("image", "incoming")),
            ("output", (c_int * 2)(*o.dy.dims[2:])),
            *fields_of(c_int, padding=o.convolution.padding[0], chunk_rows=chunks.rows, channels=o.x.dims[1]),
            *fields_of(c_int, items=self.problem.images * self.tiles * chunks.chunks, flipped=o.convolution.is_flipped),
            *fields_of(c_int, stages=self.stages, x_bytes=self.x_bytes, stage_bytes=self.stage_bytes),
            *fields_of(FastDivmod.of, tiles=self.tiles, chunks=chunks.chunks, channel_blocks=self.channel_blocks),
            *self.window_fields,
        ]
        arguments = mapped_structure(*fields)
        entry = "convolution_depthwise_filter_gradient_tma"
        sums_bytes = SUM_BYTES * self.warps * WARP * (prod(self.part) * CHANNELS + 1)
        launch = Launch(
            device.function(SOURCE, entry, self.definitions), arguments, ("x", "dy", "partial"),
            self.grid, ((self.warps + 1) * WARP, 1, 1),
            max(self.stages * self.stage_bytes, sums_bytes) + ROW_BYTES,
        )  # fmt: skip
        placed = (("image", 0, _tiled_map(o.x, self.x_box)), ("incoming", 1, _tiled_map(o.dy, self.dy_box)))
        maps = tuple((getattr(type(arguments), name).offset, operand, 0, made) for name, operand, made in placed)
        return TmaLaunch(device, (SOURCE, self.definitions), entry, launch, maps, None)


def _tiled_map(tensor: TensorSpec, box: tuple[int, int, int, int]) -> UnswizzledTiledMap:
    """Return the TMA map of a tensor with the dimensions (channels, columns, rows, images)."""
    order, bytes_ = (1, 3, 2, 0), tensor.scalar_bytes
    extent = tuple(tensor.dims[d] for d in order)
    strides = [tensor.strides[d] * bytes_ for d in order[1:]]
    for d, size in enumerate(extent[1:]):
        if size == 1:  # TMA never uses the stride, but it must be valid.
            step = extent[d] * (strides[d - 1] if d else bytes_)
            strides[d] = rounded_up(step, COPY_ALIGNMENT)
    return UnswizzledTiledMap(ELEMENTS[tensor.scalar_type], extent, tuple(strides), box)


def _part(rows: int, columns: int) -> tuple[int, int]:
    """Return the rows and columns of taps of a part of a window, of almost equal parts."""
    across = -(-columns // -(-columns // MAX_ACROSS))
    most = max(1, MAX_TAPS // across)
    return -(-rows // -(-rows // most)), across


def _is_along(tensor: TensorSpec) -> bool:
    """Return whether the elements of a row are contiguous."""
    return tensor.strides[3] == 1 or tensor.dims[3] == 1
