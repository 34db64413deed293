"""LRN of any layout (lrn_columns.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int
from dataclasses import dataclass

from ..plans import Launch
from ..primitives.geometry import blocks, geometry
from .lrn import LRNSolver
from .problem import LRNProblem


@dataclass(frozen=True)
class ColumnSettings:
    """threads: of a block. step: channels whose reads are in flight together; single_step: forward, of threads with one
    position. forward_bytes, backward_bytes: of an access, at most, for windows of up to ``short_window``, half as many
    for longer ones, which need the registers; vector: neighbouring positions of a thread, at most. wanted_threads: of a
    multiprocessor, for which channels are divided into chunks of at least ``long_chunk``; where that leaves fewer than
    ``least_threads``, of at least ``short_chunk``; and where these would be fewer still, a thread has one position."""

    threads: int = 128
    step: int = 4
    single_step: int = 8
    vector: int = 4
    forward_bytes: int = 16
    backward_bytes: int = 8
    short_window: int = 8
    wanted_threads: int = 2048
    least_threads: int = 512
    long_chunk: int = 32
    short_chunk: int = 8


COLUMNS = ColumnSettings()


class ColumnsSolver(LRNSolver):
    """Any layout: a thread has neighbouring positions and slides down the channels."""

    name = "normalization.lrn_columns"
    source = "normalization/lrn_columns.cu"

    def serves(self, problem: LRNProblem) -> bool:
        return True

    def _width(self, problem: LRNProblem) -> int:
        """Return the positions of a thread that the kernels are compiled for."""
        access_bytes = COLUMNS.forward_bytes if problem.forward else COLUMNS.backward_bytes
        width = min(COLUMNS.vector, access_bytes // problem.x.scalar_bytes)
        return width if problem.window <= COLUMNS.short_window else max(1, width // 2)

    def _vector(self, problem: LRNProblem) -> int:
        """Return the positions of a thread: one where packs would not begin at multiples of themselves, x may be y, or
        few threads would have packs."""
        width = self._width(problem)
        layout = geometry(problem.dims, problem.strides, width)
        everywhere = layout.vectorised == (1 << len(problem.specs)) - 1 and layout.row % width == 0
        channels = all(stride % width == 0 for stride in problem.channel_strides) or problem.channels == 1
        chunks = -(-problem.channels // COLUMNS.short_chunk)
        many = layout.packs * chunks >= COLUMNS.least_threads * problem.device.multiprocessors
        return width if problem.aligned and everywhere and channels and many else 1

    def _chunk(self, problem: LRNProblem, positions: int, step: int) -> int:
        """Return the channels of a thread, where ``positions`` threads lie beside each other."""
        if not problem.aligned:  # x may be y
            return problem.channels
        # Backward, the steps of a chunk begin n - 1 channels before it.
        again = 0 if problem.forward else problem.window - 1

        def chunk(threads: int, least: int) -> int:
            chunks = -(-threads * problem.device.multiprocessors // positions)
            steps = -(-(max(least, again, -(-problem.channels // chunks)) + again) // step)
            return min(steps * step - again, problem.channels)

        most = chunk(COLUMNS.wanted_threads, COLUMNS.long_chunk)
        enough = positions * -(-problem.channels // most) >= COLUMNS.least_threads * problem.device.multiprocessors
        return most if enough else chunk(COLUMNS.least_threads, COLUMNS.short_chunk)

    def alignment(self, problem: LRNProblem) -> Mapping[str, int]:
        vector = self._vector(problem)
        return dict.fromkeys(problem.operands, vector * problem.x.scalar_bytes) if vector > 1 else {}

    def launches(self, problem: LRNProblem) -> list[Launch]:
        vector = self._vector(problem)
        layout = geometry(problem.dims, problem.strides, vector)
        step = COLUMNS.single_step if vector == 1 and problem.forward else COLUMNS.step
        chunk = self._chunk(problem, layout.packs, step)
        fields = [
            ("channels", c_int(problem.channels)),
            ("chunk", c_int(chunk)),
            ("stride", (c_int * len(problem.specs))(*problem.channel_strides)),
            ("positions", layout),
        ]
        definitions = {"STEP": COLUMNS.step, "SINGLE_STEP": COLUMNS.single_step, "VECTOR": self._width(problem)}
        variant = "" if vector > 1 else "_single"
        across = blocks(layout.packs, COLUMNS.threads)[0]
        grid = (across, -(-problem.channels // chunk), 1)
        return [self._launch(problem, variant, definitions, fields, grid, COLUMNS.threads)]
