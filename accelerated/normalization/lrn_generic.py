"""Plans LRN of generic layouts (lrn_generic.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int
from math import prod

from ..plans import Launch
from ..primitives.geometry import blocks, geometry, merge_dimensions
from .lrn import LRNSolver
from .problem import LRNProblem

WARP = 32
COLUMN_SHARE = 0.875  # minimum fraction of lanes that have positions


THREADS = 128  # threads per block
SHORT_WINDOW = 8  # channels; longer windows have half the positions per thread, and half the blocks per SM
STEP = 4  # channels per step, whose loads are in flight together
SINGLE_STEP = 8  # channels per step if accesses are single elements
LONG_STEP_BYTES = 32  # bytes per position and step for long windows, because each step shifts all kept registers
VECTOR = 4  # positions per thread, upper bound
FORWARD_BYTES = 16  # bytes per access forward, upper bound
BACKWARD_BYTES = 8  # bytes per access backward, upper bound
SHORT_BLOCKS = 7  # blocks per SM, forward or with one position per thread
BACKWARD_BLOCKS = 4  # blocks per SM, backward
SINGLE_BLOCKS = 3  # blocks per SM, with several single positions per thread
START = 8  # latency of a thread's first loads, in channels
SHORT_CHUNK = 8  # channels per thread, lower bound
MIN_THREADS = 512  # threads per SM below which a thread has one position


class GenericSolver(LRNSolver):
    """Serve generic layouts; a thread has neighbouring positions and slides along the channels."""

    name = "normalization.lrn_generic"
    source = "normalization/lrn_generic.cu"

    def _positions(self, problem: LRNProblem, access_bytes: int) -> int:
        """Return the maximum of positions per thread, for accesses of at most ``access_bytes``."""
        positions = min(VECTOR, access_bytes // problem.x.scalar_bytes)
        return positions if problem.window <= SHORT_WINDOW else max(1, positions // 2)

    def _width(self, problem: LRNProblem) -> int:
        """Return the positions per thread that the kernels are compiled for."""
        return self._positions(problem, FORWARD_BYTES if problem.forward else BACKWARD_BYTES)

    def _are_many(self, problem: LRNProblem, threads: int) -> bool:
        chunks = -(-problem.channels // SHORT_CHUNK)
        return threads * chunks >= MIN_THREADS * problem.device.multiprocessors

    def _vector(self, problem: LRNProblem) -> int:
        """Return the positions per vector: 1 for unaligned vectors, where x may be y, or for too few threads."""
        width = self._width(problem)
        layout = geometry(problem.dims, problem.strides, width)
        everywhere = layout.vectorised == (1 << len(problem.specs)) - 1 and layout.row % width == 0
        channels = all(stride % width == 0 for stride in problem.channel_strides) or problem.channels == 1
        return width if problem.aligned and everywhere and channels and self._are_many(problem, layout.vectors) else 1

    def _singles(self, problem: LRNProblem) -> int:
        """Return the positions per thread with single accesses: several if few lanes stay idle, else 1."""
        singles = self._positions(problem, FORWARD_BYTES)
        extents, steps = merge_dimensions(problem.dims, problem.strides)
        run = WARP * singles
        runs = prod(extents[:-1]) * -(-extents[-1] // run)
        rows = all(of[-1] == 1 for of in steps) and runs * run * COLUMN_SHARE <= prod(extents)
        return singles if problem.aligned and rows and self._are_many(problem, runs * WARP) else 1

    def _step(self, problem: LRNProblem, single: bool) -> int:
        if problem.window > SHORT_WINDOW:
            return LONG_STEP_BYTES // problem.x.scalar_bytes
        return SINGLE_STEP if single and problem.forward else STEP

    def _chunk(self, problem: LRNProblem, threads: int, positions: int, step: int, apart: bool) -> int:
        """Return the channels per thread that minimize the time of the busiest SM.

        threads: threads across positions, with ``positions`` each. apart: whether accesses are single elements.
        """
        if not problem.aligned:  # If x may be y, one thread must have all channels.
            return problem.channels
        # Backward, a chunk starts n - 1 channels early.
        again = 0 if problem.forward else problem.window - 1
        held = SHORT_BLOCKS if problem.forward or positions == 1 else BACKWARD_BLOCKS
        held = SINGLE_BLOCKS if apart else held
        if problem.window > SHORT_WINDOW:
            held = -(-held // 2)
        across = -(-threads // THREADS)

        def length(chunks: int) -> int:
            steps = -(-(-(-problem.channels // chunks) + again) // step)
            return min(steps * step - again, problem.channels)

        def cost(chunks: int) -> int:
            channels = length(chunks)
            waves = -(-across * -(-problem.channels // channels) // (held * problem.device.multiprocessors))
            return waves * (channels + again + START)

        most = max(1, problem.channels // SHORT_CHUNK)
        return length(min(range(1, most + 1), key=cost))

    def alignment(self, problem: LRNProblem) -> Mapping[str, int]:
        vector = self._vector(problem)
        return dict.fromkeys(problem.operands, vector * problem.x.scalar_bytes) if vector > 1 else {}

    def launches(self, problem: LRNProblem) -> list[Launch]:
        vector, singles = self._vector(problem), self._singles(problem)
        single, apart = vector == 1, vector == 1 and singles > 1
        layout = geometry(problem.dims, problem.strides, WARP * singles if apart else vector)
        threads = layout.vectors * WARP if apart else layout.vectors
        positions = singles if apart else vector
        chunk = self._chunk(problem, threads, positions, self._step(problem, single), apart)
        fields = [
            ("channels", c_int(problem.channels)), ("chunk", c_int(chunk)),
            ("stride", (c_int * len(problem.specs))(*problem.channel_strides)), ("positions", layout),
        ]  # fmt: skip
        definitions = {
            "STEP": self._step(problem, False),
            "SINGLE_STEP": self._step(problem, True),
            "SINGLES": singles,
            "VECTOR": self._width(problem),
        }
        variant = "_single" if single else ""
        across = blocks(threads, THREADS)[0]
        grid = (across, -(-problem.channels // chunk), 1)
        return [self._launch(problem, variant, definitions, fields, grid, THREADS)]
