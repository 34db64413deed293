"""The spatial transformer (3.2.97, 3.2.98, 4.1.20, 4.1.21): grids of coordinates, sampling at them, their gradients."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_uint
from math import prod
from typing import Any

from dualdnn.api.operations import (
    SpatialTfGridGeneratorBackward,
    SpatialTfGridGeneratorForward,
    SpatialTfSamplerBackward,
    SpatialTfSamplerForward,
)
from dualdnn.api.operations.specs import TensorSpec

from ..plans import Launch, factors, pointers, structure, type_definitions
from ..primitives.geometry import THREADS, FastDivmod, blocks
from ..solver import Problem, Solver, serve

GRIDS, SAMPLER = "spatial_transformer/grid_generator.cu", "spatial_transformer/sampler.cu"
CHANNELS, TILE = 8, 16  # of a thread; of a block, as in the kernels
SLICES, MANY_PIXELS = 8, 1 << 17  # threads of a pixel, where pixels alone are too few threads


class TransformerProblem(Problem):
    """A call of the spatial transformer."""

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.images, self.channels, self.height, self.width = operation.transformer.dims
        self.pixels = self.height * self.width

    def launch(
        self, source: str, kernel: str, operands: Sequence[str], fields: Sequence[tuple[str, Any]], count: int
    ) -> Launch:
        """Return the launch of a kernel with ``count`` blocks."""
        definitions = type_definitions(self.operation.transformer.data_type, self.operation)
        function = self.device.function(source, f"spatial_transformer_{kernel}", definitions)
        return Launch(function, structure(*pointers(len(operands)), *fields), operands, (count, 1, 1), (THREADS, 1, 1))


class GridSolver(Solver[TransformerProblem]):
    """Grids of coordinates and their gradient."""

    name = "spatial_transformer.grid_generator"

    def serves(self, problem: TransformerProblem) -> bool:
        return isinstance(problem.operation, (SpatialTfGridGeneratorForward, SpatialTfGridGeneratorBackward))

    def launches(self, problem: TransformerProblem) -> list[Launch]:
        forward = isinstance(problem.operation, SpatialTfGridGeneratorForward)
        pixels = problem.pixels * problem.images if forward else problem.pixels
        fields = [
            ("pixels", c_uint(pixels)),
            ("width", FastDivmod.of(problem.width)),
            ("height", FastDivmod.of(problem.height)),
        ]
        if forward:
            return [problem.launch(GRIDS, "grid_forward", ("theta", "grid"), fields, blocks(pixels)[0])]
        return [problem.launch(GRIDS, "grid_backward", ("dgrid", "dtheta"), fields, problem.images)]


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


class SamplerSolver(Solver[TransformerProblem]):
    """Sampling and its gradients, of any layout."""

    name = "spatial_transformer.sampler"

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
        groups = -(-problem.channels // CHANNELS)
        pixels = problem.images * problem.pixels
        if isinstance(o, SpatialTfSamplerForward):
            interleaved = o.y.strides[1] == 1 and problem.channels > 1
            fields = [
                *self._common(problem, o.x, o.y, o.alpha, o.beta),
                ("threads", c_uint(pixels * groups)),
                ("pixels", FastDivmod.of(pixels)),
                ("groups", FastDivmod.of(groups)),
                ("interleaved", c_int(interleaved)),
            ]
            count = blocks(pixels * groups)[0]
            return [problem.launch(SAMPLER, "sampler_forward", ("x", "grid", "y"), fields, count)]
        tiles = [-(-size // TILE) for size in o.dx.dims[2:]]
        of_x = [
            *self._common(problem, o.dx, o.dy, o.alpha, o.beta),
            ("tiles", FastDivmod.of(prod(tiles))),
            ("tile_row", FastDivmod.of(tiles[1])),
            ("groups", FastDivmod.of(groups)),
            ("pixels", c_uint(problem.pixels)),
        ]
        slices = SLICES if problem.channels >= SLICES and pixels < MANY_PIXELS else 1
        of_grid = [
            *self._common(problem, o.x, o.dy, o.alphaDgrid, o.betaDgrid),
            ("pixels", c_uint(pixels)),
            ("slices", c_int(slices)),
        ]
        count = problem.images * groups * prod(tiles)
        operands = ("x", "dy", "grid", "dgrid")
        return [
            problem.launch(SAMPLER, "sampler_gradient_x", ("dy", "grid", "dx"), of_x, count),
            problem.launch(SAMPLER, "sampler_gradient_grid", operands, of_grid, blocks(pixels * slices)[0]),
        ]


SOLVERS = (GridSolver(), SamplerSolver())
OPERATIONS = (
    SpatialTfGridGeneratorForward,
    SpatialTfGridGeneratorBackward,
    SpatialTfSamplerForward,
    SpatialTfSamplerBackward,
)
serve(TransformerProblem, SOLVERS, *OPERATIONS)
