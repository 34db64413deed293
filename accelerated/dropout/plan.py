"""Plans dropout (3.2.34, 4.1.7) of packed, NHWC and other tensors, and the states of its random numbers (3.2.80)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from ctypes import c_int, c_uint
from typing import Any

from dualdnn.api.operations import DropoutBackward, DropoutForward, SetDropoutStates
from dualdnn.api.operations.specs import FLOAT, TensorSpec

from ..plans import Launch, factors, pointers, structure, type_definitions
from ..primitives.geometry import (
    BUSY_BLOCKS,
    THREADS,
    VECTOR_BYTES,
    FastDivmod,
    Grid,
    blocks,
    geometry_in_order,
    merge_in_order,
)
from ..reproducible import NO_SUMS
from ..solver import Problem, Solver, serve

SOURCE = "dropout/dropout.cu"
OCTET = 8  # elements per octet, whose mask is one byte, as in the kernel
WORD = 0xFFFFFFFF  # largest 32-bit random number
WARP = 32
OCTETS = 2  # octets per thread, for packed tensors of 16-bit elements
ITEMS = 8  # elements per thread for generic layouts
FEW_ITEMS = 2  # elements per thread for generic layouts of few elements
# maximum of channels per block -> pixels per block, in order of preference
TILES = {8: (2048, 512, 128, 32), 32: (1024, 256, 64, 32), 128: (256, 128, 64, 32)}
DRAWN = 2  # octets that a thread draws at once
FEW_DRAWN = 3  # octets that a thread draws at once, for three channels
MAX_LANES = max(TILES)  # channels per block
LANE_GROUP = 8  # channels; a block with a part of the channels has a multiple of this
# The kernels of all solvers have one source, which needs these macros.
CONSTANTS = {"OCTETS": 1, "ITEMS": 1, "TILE_PIXELS": 32, "MAX_LANES": MAX_LANES, "TILE_WIDTH": 1, "STRADDLES": 1,
             "DRAWN_OCTETS": DRAWN, "DRAWS": 1}  # fmt: skip
MAX_IMAGES = 65535  # CUDA's limit on the third dimension of a grid


class DropoutProblem(Problem):
    """Hold a dropout call, forward or backward, or the initialization of generator states."""

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.sets_states = isinstance(operation, SetDropoutStates)
        if not self.sets_states:
            self.forward = isinstance(operation, DropoutForward)
            names = ("x", "y") if self.forward else ("dy", "dx")
            self.operands = (*names, "reserveSpace", "states")
            self.source, self.target = (operation.tensor(name) for name in names)
            self.octets = -(-self.source.count // OCTET)
            self.same_dims = self.source.dims == self.target.dims  # otherwise only the counts are equal

    @property
    def drawn(self) -> Any:
        """Return the kernel's argument that says for which random numbers an element is dropped."""
        threshold = self.operation.threshold if self.forward else 0
        return structure(("threshold", c_uint(min(threshold, WORD))), ("drops_all", c_int(threshold > WORD)))

    def launch(self, kernel: str, grid: Grid, *others: tuple[str, Any], **definitions: int) -> list[Launch]:
        """Return the launch of a kernel; a forward call has a second launch that advances the states."""
        left = 1 - self.operation.probability
        arguments = structure(
            *pointers(len(self.operands)),
            *factors(self.operation, scale=1 / left if left else math.inf), ("drawn", self.drawn),
            ("elements", c_uint(self.source.count)), *others,
        )  # fmt: skip
        named = {name: str(value) for name, value in {**CONSTANTS, "DRAWS": int(self.forward), **definitions}.items()}
        defined = type_definitions(self.source.scalar_type, self.operation, **named)
        function = self.device.function(SOURCE, kernel, defined)
        found = [Launch(function, arguments, self.operands, grid, (THREADS, 1, 1))]
        return [*found, self.states(defined, advances=True)] if self.forward else found

    @property
    def busy_threads(self) -> int:
        """Return the number of threads that keeps all SMs busy."""
        return THREADS * BUSY_BLOCKS * self.device.multiprocessors

    def states(self, definitions: Any, seed: int = 0, advances: bool = False) -> Launch:
        """Return the launch that writes the states."""
        words = (c_uint * 2)(seed & WORD, seed >> 32)
        arguments = structure(*pointers(1), ("seed", words), ("advances", c_int(advances)))
        function = self.device.function(SOURCE, "dropout_states", definitions)
        return Launch(function, arguments, ("states",), (1, 1, 1), (WARP, 1, 1))


class StatesSolver(Solver[DropoutProblem]):
    """Initialize the states of a generator."""

    name = "dropout.states"
    fixed_order = NO_SUMS

    def serves(self, problem: DropoutProblem) -> bool:
        return problem.sets_states

    def launches(self, problem: DropoutProblem) -> list[Launch]:
        constants = {name: str(value) for name, value in CONSTANTS.items()}
        return [problem.states(type_definitions(FLOAT, problem.operation, **constants), problem.operation.seed)]


class PackedSolver(Solver[DropoutProblem]):
    """Serve row-major tensors without gaps, in vectors of 16 bytes."""

    name = "dropout.packed"
    fixed_order = NO_SUMS

    def serves(self, problem: DropoutProblem) -> bool:
        if problem.sets_states or not problem.aligned:
            return False
        return all(merge_in_order(t.dims, t.strides)[1] in ([1], [0]) for t in (problem.source, problem.target))

    def alignment(self, problem: DropoutProblem) -> Mapping[str, int]:
        return dict.fromkeys(problem.operands[:2], VECTOR_BYTES)

    def launches(self, problem: DropoutProblem) -> list[Launch]:
        short = problem.source.scalar_bytes < 4
        octets = OCTETS if short and problem.octets >= OCTETS * problem.busy_threads else 1
        return problem.launch("dropout_packed", blocks(problem.octets, THREADS * octets), OCTETS=octets)


class StridedSolver(Solver[DropoutProblem]):
    """Serve tensors of generic layouts, element by element."""

    name = "dropout.strided"
    fixed_order = NO_SUMS

    def serves(self, problem: DropoutProblem) -> bool:
        return not problem.sets_states

    def launches(self, problem: DropoutProblem) -> list[Launch]:
        elements = problem.source.count
        items = ITEMS if elements >= ITEMS * problem.busy_threads else FEW_ITEMS
        return problem.launch(
            "dropout_strided",
            blocks(-(-elements // items)),
            ("alike", c_int(problem.same_dims and problem.source.strides == problem.target.strides)),
            *(
                (name, geometry_in_order(spec.dims, spec.strides))
                for name, spec in (("in", problem.source), ("out", problem.target))
            ),
            ITEMS=items,
        )


class TilesSolver(Solver[DropoutProblem]):
    """Serve tensors with contiguous channels whose pixels have one common stride."""

    name = "dropout.tiles"
    fixed_order = NO_SUMS

    def serves(self, problem: DropoutProblem) -> bool:
        if problem.sets_states or problem.source.dims[0] > MAX_IMAGES or problem.source.dims[1] == 1:
            return False
        return _has_channels_innermost(problem)

    def launches(self, problem: DropoutProblem) -> list[Launch]:
        images, channels, *_ = problem.source.dims
        lanes = self._lanes(channels)
        across = -(-channels // lanes)
        pixels = _pixels(problem.source)[0][0]
        most = next(n for n in TILES if n >= lanes)
        busy = BUSY_BLOCKS * problem.device.multiprocessors
        tile = next((n for n in TILES[most] if images * across * -(-pixels // n) >= busy), TILES[most][-1])
        return problem.launch(
            "dropout_tiles",
            (-(-pixels // tile), across, images),
            ("channels", c_uint(channels)),
            ("pixels", c_uint(pixels)),
            *_strides(problem),
            ("lanes", FastDivmod.of(lanes)),
            ("last_lanes", FastDivmod.of(channels - (across - 1) * lanes)),
            TILE_PIXELS=tile,
            MAX_LANES=most,
            TILE_WIDTH=self._width(problem),
            STRADDLES=int(pixels % OCTET > 0),
            DRAWN_OCTETS=FEW_DRAWN if lanes == FEW_DRAWN else DRAWN,
        )

    def alignment(self, problem: DropoutProblem) -> Mapping[str, int]:
        return dict.fromkeys(problem.operands[:2], VECTOR_BYTES) if self._width(problem) > 1 else {}

    @staticmethod
    def _lanes(channels: int) -> int:
        """Return the channels per block: all of them, or a multiple of LANE_GROUP."""
        if channels <= MAX_LANES:
            return channels
        across = -(-channels // (MAX_LANES // 2))
        return -(-channels // (across * LANE_GROUP)) * LANE_GROUP

    def _width(self, problem: DropoutProblem) -> int:
        """Return the elements per vector, which must be contiguous inside a tile."""
        if not problem.aligned:
            return 1
        width, tensors = VECTOR_BYTES // problem.source.scalar_bytes, (problem.source, problem.target)
        channels, lanes = problem.source.dims[1], self._lanes(problem.source.dims[1])
        strides = [t.strides[0] for t in tensors if t.dims[0] > 1] + [_pixels(t)[1][0] for t in tensors]
        contiguous = lanes == channels and all(_pixels(t)[1][0] == channels for t in tensors)
        if contiguous:  # Tiles begin at multiples of LANE_GROUP pixels.
            strides = [t.strides[0] for t in tensors if t.dims[0] > 1]
        elif channels % width:
            return 1
        return 1 if any(stride % width for stride in strides) else width


def _strides(problem: DropoutProblem) -> list[tuple[str, Any]]:
    """Return the strides of images and pixels, as fields of the arguments."""
    return [
        (f"{name}_{of}", c_int(stride))
        for name, spec in (("in", problem.source), ("out", problem.target))
        for of, stride in (("image", spec.strides[0]), ("pixel", _pixels(spec)[1][0]))
    ]


def _has_channels_innermost(problem: DropoutProblem) -> bool:
    """Return whether both tensors have equal dimensions, contiguous channels, and one common stride of pixels."""
    tensors = (problem.source, problem.target)
    return problem.same_dims and all(t.strides[1] == 1 and len(_pixels(t)[0]) == 1 for t in tensors)


def _pixels(spec: TensorSpec) -> tuple[list[int], list[int]]:
    """Return the merged extents and strides of the spatial dimensions."""
    return merge_in_order(spec.dims[2:], spec.strides[2:])


SOLVERS = (StatesSolver(), PackedSolver(), TilesSolver(), StridedSolver())
serve(DropoutProblem, SOLVERS, SetDropoutStates, DropoutForward, DropoutBackward)
