"""The spatial transformer (3.2.97, 3.2.98, 4.1.20, 4.1.21): grids of coordinates, sampling at them, their gradients."""

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

from ..plans import SCRATCH, Launch, factors, pointers, structure, type_definitions
from ..primitives.cluster import has_clusters
from ..primitives.geometry import BUSY_BLOCKS, PACK_BYTES, THREADS, FastDivmod, blocks
from ..solver import Problem, Solver, serve

GRIDS, SAMPLER = "spatial_transformer/grid_generator.cu", "spatial_transformer/sampler.cu"
COORDINATES = 2  # of a pixel
CLUSTER, CLUSTER_PIXELS = 8, 2048  # blocks of an image that has so many pixels
CHANNELS, FEW_CHANNELS, TILE = 8, 2, 16  # of a thread, and where there are few threads; pixels of a block's side
SLICES, MANY_PIXELS = 8, 1 << 17  # threads of a pixel, where pixels alone are too few threads
CHANNEL_LANES = 32  # threads of a pixel, where its channels lie side by side
SIDE_BITS, MOST_SIDE_BITS, MOST_BINS = 4, 16, 4096  # a bin has 16 x 16 cells, or more; of an image
CHUNK, MOST_CHUNKS = 2048, 64  # output pixels of a block that sorts, at least; of an image
SORTED_PIXELS = 2048  # output pixels of an image, from which on samples are sorted
ENTRY_BYTES, COUNT_BYTES = 8, 4
GRID_IMAGES = (8, 4, 2, 1)  # of a thread whose coordinates serve all of them
FEWEST_LANES = 32  # channels side by side, from which on neighbouring threads take them
ROW_BLOCKS, SINGLE_BLOCKS = 2, 4  # of a multiprocessor, then: of packs, of single channels
MOST_IMAGES = 65536  # in the second dimension of a grid


class TransformerProblem(Problem):
    """A call of the spatial transformer."""

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.images, self.channels, self.height, self.width = operation.transformer.dims
        self.pixels = self.height * self.width

    def launch(
        self, source: str, kernel: str, operands: Sequence[str], fields: Sequence[tuple[str, Any]], count: int, images: int = 1,
        shared_bytes: int = 0, scratch_bytes: int = 0, **definitions: int,
    ) -> Launch:  # fmt: skip
        """Return the launch of a kernel with ``count`` blocks for each of so many images."""
        named = {name: str(value) for name, value in {"LANE_WIDTH": 0, **definitions}.items()}
        defined = type_definitions(self.operation.transformer.data_type, self.operation, **named)
        function = self.device.function(source, f"spatial_transformer_{kernel}", defined)
        arguments, extent = structure(*pointers(len(operands)), *fields), (count, images, 1)
        launch = Launch(function, arguments, operands, extent, (THREADS, 1, 1), shared_bytes)
        launch.scratch_bytes = scratch_bytes
        return launch


class GridSolver(Solver[TransformerProblem]):
    """Grids of coordinates and their gradient."""

    name = "spatial_transformer.grid_generator"

    def serves(self, problem: TransformerProblem) -> bool:
        return isinstance(problem.operation, (SpatialTfGridGeneratorForward, SpatialTfGridGeneratorBackward))

    def launches(self, problem: TransformerProblem) -> list[Launch]:
        forward = isinstance(problem.operation, SpatialTfGridGeneratorForward)
        pixels = problem.pixels
        many = max(1, PACK_BYTES // (COORDINATES * problem.operation.grid.scalar_bytes)) if forward else 1
        busy = THREADS * BUSY_BLOCKS * problem.device.multiprocessors
        packs = pixels % many == 0 and problem.width >= many and pixels * problem.images >= many * busy
        of_thread = many if packs else 1
        threads = pixels // of_thread
        of_image = blocks(threads)[0]
        fields = [
            ("pixels", c_uint(pixels)),
            ("images", c_uint(problem.images)),
            ("width", FastDivmod.of(problem.width)),
            ("height", FastDivmod.of(problem.height)),
            ("blocks", FastDivmod.of(of_image)),
        ]
        if forward:
            of_images = next(n for n in GRID_IMAGES if n == 1 or -(-problem.images // n) * threads >= busy)
            count, operands = -(-problem.images // of_images) * of_image, ("theta", "grid")
            definitions = {"PIXELS": of_thread, "IMAGES": of_images, "CLUSTER_BLOCKS": 1}
            return [problem.launch(GRIDS, "grid_forward", operands, fields, count, **definitions)]
        cluster = CLUSTER if has_clusters(problem.device) and pixels >= CLUSTER_PIXELS else 1
        return [
            problem.launch(
                GRIDS,
                "grid_backward",
                ("dgrid", "dtheta"),
                fields,
                problem.images * cluster,
                PIXELS=1,
                IMAGES=1,
                CLUSTER_BLOCKS=cluster,
            )
        ]


class Shape(ctypes.Structure):
    _fields_ = [
        ("channels", c_int),
        ("height", c_int),
        ("width", c_int),
        ("out_width", FastDivmod),
        ("out_height", FastDivmod),
    ]


class Strides(ctypes.Structure):
    _fields_ = [("image", c_int), ("channel", c_int), ("row", c_int), ("column", c_int)]


class Bins(ctypes.Structure):
    """The counting sort of the samples of every image (sampler.cu)."""

    _fields_ = [(name, c_uint) for name in ("side", "across", "bins", "pixels", "chunk", "chunks")]

    @classmethod
    def of(cls, problem: TransformerProblem, height: int, width: int) -> Bins:
        """Return the bins of an input of this height and width."""
        side = SIDE_BITS
        while ((height >> side) + 1) * ((width >> side) + 1) > MOST_BINS:
            side += 1
        across, pixels = (width >> side) + 1, problem.pixels
        chunk = max(CHUNK, -(-pixels // (MOST_CHUNKS * CHUNK)) * CHUNK)
        return cls(side, across, across * ((height >> side) + 1), pixels, chunk, -(-pixels // chunk))

    @property
    def starts(self) -> int:
        """Numbers that scratch memory holds for an image, besides its entries."""
        return self.chunks * (self.bins + 1)


class SamplerSolver(Solver[TransformerProblem]):
    """Sampling and its gradients, of any layout; every tile of the gradient of x looks at all samples of its image."""

    name = "spatial_transformer.sampler"
    sorts = False

    def serves(self, problem: TransformerProblem) -> bool:
        return isinstance(problem.operation, (SpatialTfSamplerForward, SpatialTfSamplerBackward))

    def _common(
        self, problem: TransformerProblem, source: TensorSpec, target: TensorSpec, alpha: float, beta: float
    ) -> list[tuple[str, Any]]:
        """Return the fields that all three kernels have: factors, the shape, the strides of input and transformed
        tensor."""
        height, width = source.dims[2:]
        divisors = FastDivmod.of(problem.width), FastDivmod.of(problem.height)
        return [
            *factors(problem.operation, alpha=alpha, beta=beta),
            ("shape", Shape(problem.channels, height, width, *divisors)),
            ("in", Strides(*source.strides)),
            ("out", Strides(*target.strides)),
        ]

    def launches(self, problem: TransformerProblem) -> list[Launch]:
        o = problem.operation
        pixels = problem.images * problem.pixels
        if isinstance(o, SpatialTfSamplerForward):
            groups = -(-problem.channels // CHANNELS)
            busy = THREADS * BUSY_BLOCKS * problem.device.multiprocessors
            channels = CHANNELS if pixels * groups >= busy else FEW_CHANNELS
            groups = -(-problem.channels // channels)
            interleaved = o.y.strides[1] == 1 and problem.channels > 1
            fields = [
                *self._common(problem, o.x, o.y, o.alpha, o.beta),
                ("threads", c_uint(pixels * groups)),
                ("pixels", FastDivmod.of(pixels)),
                ("groups", FastDivmod.of(groups)),
                ("interleaved", c_int(interleaved)),
            ]
            count = blocks(pixels * groups)[0]
            return [problem.launch(SAMPLER, "sampler_forward", ("x", "grid", "y"), fields, count, CHANNELS=channels)]
        return [*self._gradient_of_x(problem), self._gradient_of_grid(problem)]

    def _gradient_of_grid(self, problem: TransformerProblem) -> Launch:
        o, pixels = problem.operation, problem.images * problem.pixels
        interleaved = o.x.strides[1] == 1 and o.dy.strides[1] == 1 and problem.channels >= SLICES
        if interleaved:
            slices = min(CHANNEL_LANES, 1 << problem.channels.bit_length() - 1)
        else:
            slices = SLICES if problem.channels >= SLICES and pixels < MANY_PIXELS else 1
        fields = [
            *self._common(problem, o.x, o.dy, o.alphaDgrid, o.betaDgrid),
            ("pixels", c_uint(pixels)),
            ("slices", c_int(slices)),
            ("interleaved", c_int(interleaved)),
        ]
        operands, count = ("x", "dy", "grid", "dgrid"), blocks(pixels * slices)[0]
        return problem.launch(SAMPLER, "sampler_gradient_grid", operands, fields, count, CHANNELS=CHANNELS)

    def _gradient_of_x(self, problem: TransformerProblem) -> list[Launch]:
        o = problem.operation
        height, width = o.dx.dims[2:]
        tiles = [-(-size // TILE) for size in (height, width)]
        channels = CHANNELS if problem.channels > CHANNELS // 2 else CHANNELS // 2
        groups = -(-problem.channels // channels)
        lane_width = self._lane_width(problem)
        # Blocks share the channels of a tile, where there are too few tiles.
        of_multiprocessor = {0: BUSY_BLOCKS, 1: SINGLE_BLOCKS}.get(lane_width, ROW_BLOCKS)
        busy = of_multiprocessor * problem.device.multiprocessors
        of_block = max(1, min(groups, problem.images * prod(tiles) * groups // busy))
        of_tile = -(-groups // of_block)
        bins = Bins.of(problem, height, width)
        entries = problem.images * problem.pixels * ENTRY_BYTES
        scratch_bytes = entries + problem.images * bins.starts * COUNT_BYTES if self.sorts else 0
        starts = ("starts", ctypes.c_longlong(entries))
        fields = [
            *self._common(problem, o.dx, o.dy, o.alpha, o.beta),
            ("tiles", FastDivmod.of(prod(tiles))),
            ("tile_row", FastDivmod.of(tiles[1])),
            ("blocks", FastDivmod.of(of_tile)),
            ("groups", c_int(of_block)),
            starts,
            ("bins", bins),
        ]
        operands = ("dy", "grid", "dx", SCRATCH if self.sorts else "")
        gradient = problem.launch(
            SAMPLER, "sampler_gradient_x", operands, fields, problem.images * of_tile * prod(tiles),
            scratch_bytes=scratch_bytes, CHANNELS=channels, LANE_WIDTH=lane_width,
        )  # fmt: skip
        if not self.sorts:
            return [gradient]
        shape = next(value for name, value in fields if name == "shape")
        fields = [starts, ("shape", shape), ("bins", bins), ("images", c_uint(problem.images))]
        grid = (bins.chunks, problem.images)
        # Where the samples of a block begin, and of the warps of one and of all the counts.
        of_warps = (THREADS // 32 + 1) * bins.bins * COUNT_BYTES // 2
        shared_bytes = {"count": bins.bins * COUNT_BYTES, "scan": 0, "sort": bins.bins * COUNT_BYTES + of_warps}
        steps = {"count": grid, "scan": (problem.images, 1), "sort": grid}
        return [
            *(
                problem.launch(
                    SAMPLER,
                    f"sampler_{step}",
                    ("grid", SCRATCH),
                    fields,
                    *extent,
                    scratch_bytes=scratch_bytes,
                    shared_bytes=shared_bytes[step],
                    CHANNELS=channels,
                )
                for step, extent in steps.items()
            ),
            gradient,
        ]

    @staticmethod
    def _lane_width(problem: TransformerProblem) -> int:
        """Return the channels of a pack of the gradient of x, 0 where they do not lie side by side."""
        o = problem.operation
        tensors = (o.dx, o.dy)
        if problem.channels < FEWEST_LANES or any(t.strides[1] != 1 for t in tensors):
            return 0
        width = PACK_BYTES // o.dx.scalar_bytes if problem.aligned else 1
        strides = [t.strides[d] for t in tensors for d in (0, 2, 3) if t.dims[d] > 1]
        return gcd(width, problem.channels, *strides)

    def alignment(self, problem: TransformerProblem) -> Mapping[str, int]:
        if not isinstance(problem.operation, SpatialTfSamplerBackward) or self._lane_width(problem) <= 1:
            return {}
        return dict.fromkeys(("dx", "dy"), PACK_BYTES)


class SortedSamplerSolver(SamplerSolver):
    """Gradients of images with many samples: these are sorted first by the tiles that they reach."""

    name = "spatial_transformer.sampler_sorted"
    sorts = True

    def serves(self, problem: TransformerProblem) -> bool:
        o = problem.operation
        known = isinstance(o, SpatialTfSamplerBackward) and problem.images < MOST_IMAGES
        return known and Bins.of(problem, *o.dx.dims[2:]).side <= MOST_SIDE_BITS

    def applies(self, problem: TransformerProblem) -> bool:
        return self.serves(problem) and problem.pixels >= SORTED_PIXELS


SOLVERS = (GridSolver(), SortedSamplerSolver(), SamplerSolver())
OPERATIONS = (
    SpatialTfGridGeneratorForward,
    SpatialTfGridGeneratorBackward,
    SpatialTfSamplerForward,
    SpatialTfSamplerBackward,
)
serve(TransformerProblem, SOLVERS, *OPERATIONS)
