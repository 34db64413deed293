"""Plans the spatial transformer (3.2.97, 3.2.98, 4.1.20, 4.1.21): coordinate grids, sampling, and their gradients."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import c_int, c_uint
from math import gcd, prod
from typing import Any

from dualdnn.api.operations import (
    SpatialTfGridGeneratorBackward,
    SpatialTfGridGeneratorForward,
    SpatialTfSamplerBackward,
    SpatialTfSamplerForward,
)
from dualdnn.api.operations.specs import TensorSpec

from ..plans import SCRATCH, Launch, factors, fields_of, pointers, structure, type_definitions
from ..primitives.cluster import has_clusters
from ..primitives.geometry import BUSY_BLOCKS, THREADS, VECTOR_BYTES, FastDivmod, blocks
from ..reproducible import NO_SUMS, Order
from ..solver import Problem, Solver, serve

GRIDS = "spatial_transformer/grid_generator.cu"
SAMPLER = "spatial_transformer/sampler.cu"
GRADIENTS = "spatial_transformer/sampler_gradients.cu"
COORDINATES = 2  # per pixel
CLUSTER = 8  # blocks that share an image
CLUSTER_PIXELS = 2048  # pixels per image from which a cluster shares it
CHANNELS = 8  # per thread
FEW_CHANNELS = 2  # per thread, where threads are few
TILE = 16  # pixels per side of a block's tile
SLICES = 8  # threads that divide the channels of one pixel
MANY_PIXELS = 1 << 17  # output pixels of all images from which one thread takes a pixel
CHANNEL_LANES = 32  # threads per pixel where channels are contiguous, upper bound
GRADIENT_CHANNELS = (1, 2, 3, 4, 8)  # channels per thread in the gradient of x
CHUNK = 4096  # output pixels per sorting block
SORT_THREADS = 512  # threads per sorting block
REACHED = 4  # bins per sample, upper bound
SIDE_BITS = 4  # log2 of cells per bin side, lower bound
MAX_BINS = 512  # bins per image
SORTED_PIXELS = 512  # output pixels per image above which samples are sorted
ENTRY_BYTES = 2  # bytes per entry of a list
GRID_IMAGES = (8, 4, 2, 1)  # images per thread that reuse its coordinates
MIN_LANES = 32  # contiguous channels from which neighbouring threads take them
ROW_BLOCKS = 2  # blocks per SM if threads take vectors of channels
SINGLE_BLOCKS = 4  # blocks per SM if threads take single channels
MAX_IMAGES = 65536  # CUDA's limit on the second dimension of a grid, exclusive


class Shape(ctypes.Structure):
    _fields_ = [
        *((name, c_int) for name in ("channels", "height", "width")),
        *((name, FastDivmod) for name in ("out_width", "out_height")),
    ]


class Strides(ctypes.Structure):
    _fields_ = [(name, c_int) for name in ("image", "channel", "row", "column")]


class TransformerProblem(Problem):
    """Describe a call of the spatial transformer."""

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.images, self.channels, self.height, self.width = operation.transformer.dims
        self.pixels = self.height * self.width

    def shape(self, source: TensorSpec) -> tuple[str, Shape]:
        """Return the kernels' ``Shape`` field. source: the input, or its gradient."""
        divisors = FastDivmod.of(self.width), FastDivmod.of(self.height)
        return "shape", Shape(self.channels, *source.dims[2:], *divisors)

    def launch(
        self, source: str, kernel: str, operands: Sequence[str],
        fields: Sequence[tuple[str, Any]], count: int, images: int = 1,
        shared_bytes: int = 0, scratch_bytes: int = 0, threads: int = THREADS, **definitions: int,
    ) -> Launch:  # fmt: skip
        """Return the launch of a kernel with ``count`` blocks for each of ``images`` images."""
        constants = {
            GRIDS: {},
            SAMPLER: {},
            GRADIENTS: {"CHUNK": CHUNK, "LANE_WIDTH": 0, "FUSED": 0},
        }
        others = {**constants[source], **definitions}
        named = {name: str(value) for name, value in others.items()}
        defined = type_definitions(self.operation.transformer.data_type, self.operation, **named)
        function = self.device.function(source, f"spatial_transformer_{kernel}", defined)
        arguments, extent = structure(*pointers(len(operands)), *fields), (count, images, 1)
        launch = Launch(function, arguments, operands, extent, (threads, 1, 1), shared_bytes)
        launch.scratch_bytes = scratch_bytes
        return launch


class GridSolver(Solver[TransformerProblem]):
    """Generate grids of coordinates and compute their gradient."""

    name = "spatial_transformer.grid_generator"

    def serves(self, problem: TransformerProblem) -> bool:
        return isinstance(problem.operation, (SpatialTfGridGeneratorForward, SpatialTfGridGeneratorBackward))

    @staticmethod
    def _cluster(problem: TransformerProblem) -> int:
        """Return the blocks that divide the pixels of an image among them, for the gradient."""
        return CLUSTER if has_clusters(problem.device) and problem.pixels >= CLUSTER_PIXELS else 1

    def summation_order(self, problem: TransformerProblem) -> Order:
        forward = isinstance(problem.operation, SpatialTfGridGeneratorForward)
        return NO_SUMS if forward else Order(self.name, (self._cluster(problem),))

    def launches(self, problem: TransformerProblem) -> list[Launch]:
        forward = isinstance(problem.operation, SpatialTfGridGeneratorForward)
        pixels = problem.pixels
        many = max(1, VECTOR_BYTES // (COORDINATES * problem.operation.grid.scalar_bytes)) if forward else 1
        busy = THREADS * BUSY_BLOCKS * problem.device.multiprocessors
        vectors = pixels % many == 0 and problem.width >= many and pixels * problem.images >= many * busy
        of_thread = many if vectors else 1
        threads = pixels // of_thread
        of_image = blocks(threads)[0]
        fields = [
            *fields_of(c_uint, pixels=pixels, images=problem.images),
            *fields_of(FastDivmod.of, width=problem.width, height=problem.height, blocks=of_image),
        ]
        if forward:
            of_images = next(n for n in GRID_IMAGES if n == 1 or -(-problem.images // n) * threads >= busy)
            count, operands = -(-problem.images // of_images) * of_image, ("theta", "grid")
            definitions = {"PIXELS": of_thread, "IMAGES": of_images, "CLUSTER_BLOCKS": 1}
            return [problem.launch(GRIDS, "grid_forward", operands, fields, count, **definitions)]
        cluster = self._cluster(problem)
        count, operands = problem.images * cluster, ("dgrid", "dtheta")
        definitions = {"PIXELS": 1, "IMAGES": 1, "CLUSTER_BLOCKS": cluster}
        return [problem.launch(GRIDS, "grid_backward", operands, fields, count, **definitions)]


class Bins(ctypes.Structure):
    """Describe the sample lists of tiles (sampler_gradients.cu)."""

    _fields_ = [(name, c_uint) for name in ("side", "across", "down", "pixels", "chunks")]

    @classmethod
    def of(cls, problem: TransformerProblem, height: int, width: int) -> Bins:
        """Return the bins of an input of this height and width, in pixels."""
        side = SIDE_BITS
        while prod(-(-size // (1 << side)) for size in (height, width)) > MAX_BINS:
            side += 1
        across, down = (-(-size // (1 << side)) for size in (width, height))
        return cls(side, across, down, problem.pixels, -(-problem.pixels // CHUNK))

    @property
    def count(self) -> int:
        return int(self.across * self.down)

    def scratch_bytes(self, images: int) -> tuple[int, int]:
        """Return the bytes of all entries, and of the numbers after them that say where each bin begins."""
        chunks = images * self.chunks
        return chunks * REACHED * CHUNK * ENTRY_BYTES, chunks * (self.count + 1) * ENTRY_BYTES


class SamplerSolver(Solver[TransformerProblem]):
    """Sample, and compute gradients, for generic layouts. Every tile of the gradient of x scans all samples of its
    image."""

    name = "spatial_transformer.sampler"
    sorts = False

    def serves(self, problem: TransformerProblem) -> bool:
        return isinstance(problem.operation, (SpatialTfSamplerForward, SpatialTfSamplerBackward))

    def summation_order(self, problem: TransformerProblem) -> Order:
        """Return the order: samples of a pixel in rounds, sorted or not, and channels among a pixel's threads."""
        if isinstance(problem.operation, SpatialTfSamplerForward):
            return Order(self.name)
        return Order(self.name, (self.sorts, 1 if self._is_fused(problem) else self._threads_of_pixel(problem)[0]))

    def launches(self, problem: TransformerProblem) -> list[Launch]:
        o = problem.operation
        pixels = problem.images * problem.pixels
        if isinstance(o, SpatialTfSamplerForward):
            groups = -(-problem.channels // CHANNELS)
            busy = THREADS * BUSY_BLOCKS * problem.device.multiprocessors
            channels = min(problem.channels, CHANNELS if pixels * groups >= busy else FEW_CHANNELS)
            groups = -(-problem.channels // channels)
            interleaved = o.y.strides[1] == 1 and problem.channels > 1
            fields = [
                *factors(o, alpha=o.alpha, beta=o.beta), problem.shape(o.x), ("in", Strides(*o.x.strides)),
                ("out", Strides(*o.y.strides)), ("threads", c_uint(pixels * groups)),
                *fields_of(FastDivmod.of, pixels=pixels, groups=groups), ("interleaved", c_int(interleaved)),
            ]  # fmt: skip
            count, operands = blocks(pixels * groups)[0], ("x", "grid", "y")
            return [problem.launch(SAMPLER, "sampler_forward", operands, fields, count, CHANNELS=channels)]
        return self._gradients(problem)

    @staticmethod
    def _threads_of_pixel(problem: TransformerProblem) -> tuple[int, bool]:
        """Return how many threads divide the channels of a pixel in the gradient of the grid, and whether they are
        neighbours."""
        o, channels = problem.operation, problem.channels
        if channels >= SLICES and o.x.strides[1] == o.dy.strides[1] == 1:
            return min(CHANNEL_LANES, 1 << channels.bit_length() - 1), True
        few = problem.canonical.images * problem.pixels < MANY_PIXELS
        return SLICES if channels >= SLICES and few else 1, False

    @staticmethod
    def _channels_of_thread(problem: TransformerProblem) -> int:
        """Return the channels per thread in the gradient of x."""
        most = GRADIENT_CHANNELS[-1] * 4 // max(4, problem.operation.dx.scalar_bytes)
        return next(n for n in GRADIENT_CHANNELS if n >= min(problem.channels, most))

    def _is_fused(self, problem: TransformerProblem) -> bool:
        """Return whether the blocks of the gradient of x compute the gradient of the grid, too."""
        return self.sorts and problem.channels == self._channels_of_thread(problem) and self._lane_width(problem) == 0

    def _gradients(self, problem: TransformerProblem) -> list[Launch]:
        o = problem.operation
        height, width = o.dx.dims[2:]
        tiles = [-(-size // TILE) for size in (height, width)]
        channels = self._channels_of_thread(problem)
        groups = -(-problem.channels // channels)
        lane_width = self._lane_width(problem)
        # Blocks divide the channels of a tile where tiles are few.
        of_multiprocessor = {0: BUSY_BLOCKS, 1: SINGLE_BLOCKS}.get(lane_width, ROW_BLOCKS)
        busy = of_multiprocessor * problem.device.multiprocessors
        of_block = max(1, min(groups, problem.images * prod(tiles) * groups // busy))
        of_tile = -(-groups // of_block)
        bins = Bins.of(problem, height, width)
        entries, numbers = bins.scratch_bytes(problem.images)
        scratch_bytes = entries + numbers if self.sorts else 0
        starts = ("starts", ctypes.c_longlong(entries))
        fused = self._is_fused(problem)
        pixels = problem.images * problem.pixels
        slices, interleaved = self._threads_of_pixel(problem)
        of_x, of_grid = problem.images * of_tile * prod(tiles), 0 if fused else blocks(pixels * slices)[0]
        fewer, count = min(of_x, of_grid), of_x + of_grid
        shape = problem.shape(o.dx)
        fields = [
            *factors(o, alpha=o.alpha, beta=o.beta, grid_alpha=o.alphaDgrid, grid_beta=o.betaDgrid),
            shape,
            *((name, Strides(*spec.strides)) for name, spec in (("in", o.dx), ("out", o.dy), ("of_x", o.x))),
            *fields_of(FastDivmod.of, tiles=prod(tiles), tile_row=tiles[1], blocks=of_tile),
            ("groups", c_int(of_block)),
            starts,
            ("bins", bins),
            ("pixels", c_uint(pixels)),
            *fields_of(c_int, slices=slices, interleaved=interleaved),
            # Blocks of the gradient of x run longer than those of the grid. If they are fewer, they begin first; if
            # blocks of the grid are fewer, these are spread among the others.
            ("period", FastDivmod.of(count // max(1, fewer) if of_grid == fewer else 1)),
            ("fewer", c_uint(fewer)),
            ("grid_has_fewer", c_int(of_grid == fewer)),
        ]
        operands = ("dy", "grid", "dx", SCRATCH if self.sorts else "", "x", "dgrid")
        definitions = {"CHANNELS": channels, "LANE_WIDTH": lane_width, "FUSED": int(fused)}
        gradients = problem.launch(
            GRADIENTS, "sampler_gradients", operands, fields, count, scratch_bytes=scratch_bytes, **definitions
        )
        if not self.sorts:
            return [gradients]
        fields = [*factors(o, grid_alpha=o.alphaDgrid, grid_beta=o.betaDgrid), starts, shape, ("bins", bins)]
        sort = problem.launch(
            GRADIENTS, "sampler_sort", ("grid", SCRATCH, "dgrid"), fields, bins.chunks, problem.images,
            scratch_bytes=scratch_bytes, threads=SORT_THREADS, **definitions,
        )  # fmt: skip
        return [sort, gradients]

    @staticmethod
    def _lane_width(problem: TransformerProblem) -> int:
        """Return the channels per vector in the gradient of x, or 0 where channels are not contiguous."""
        o = problem.operation
        tensors = (o.dx, o.dy)
        if problem.channels < MIN_LANES or any(t.strides[1] != 1 for t in tensors):
            return 0
        width = VECTOR_BYTES // o.dx.scalar_bytes if problem.aligned else 1
        strides = [t.strides[d] for t in tensors for d in (0, 2, 3) if t.dims[d] > 1]
        return gcd(width, problem.channels, *strides)

    def alignment(self, problem: TransformerProblem) -> Mapping[str, int]:
        if not isinstance(problem.operation, SpatialTfSamplerBackward) or self._lane_width(problem) <= 1:
            return {}
        return dict.fromkeys(("dx", "dy"), VECTOR_BYTES)


class SortedSamplerSolver(SamplerSolver):
    """Compute gradients of images with many samples, which a first kernel sorts by tile."""

    name = "spatial_transformer.sampler_sorted"
    sorts = True

    def serves(self, problem: TransformerProblem) -> bool:
        o = problem.operation
        return isinstance(o, SpatialTfSamplerBackward) and problem.images < MAX_IMAGES

    def applies(self, problem: TransformerProblem) -> bool:
        return self.serves(problem) and problem.pixels > SORTED_PIXELS


SOLVERS = (GridSolver(), SortedSamplerSolver(), SamplerSolver())
OPERATIONS = (
    SpatialTfGridGeneratorForward,
    SpatialTfGridGeneratorBackward,
    SpatialTfSamplerForward,
    SpatialTfSamplerBackward,
)
serve(TransformerProblem, SOLVERS, *OPERATIONS)
