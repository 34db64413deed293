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
    """threads: of a block. step: channels whose reads are in flight together. vector: neighbouring positions of a thread for
    windows of up to ``short_window``, half as many for longer ones, which need the registers; bytes: of an access, at most.
    wanted_threads: of a multiprocessor, for which channels are divided into chunks of at least least_chunk."""

    threads: int = 128
    step: int = 4
    vector: int = 4
    vector_bytes: int = 16
    short_window: int = 8
    wanted_threads: int = 1024
    least_chunk: int = 32


COLUMNS = ColumnSettings()


class ColumnsSolver(LRNSolver):
    """Any layout: a thread has neighbouring positions and slides down the channels."""

    name = "normalization.lrn_columns"
    source = "normalization/lrn_columns.cu"

    def serves(self, problem: LRNProblem) -> bool:
        return True

    def _width(self, problem: LRNProblem) -> int:
        """Return the positions of a thread that the kernels are compiled for."""
        most = COLUMNS.vector if problem.window <= COLUMNS.short_window else COLUMNS.vector // 2
        width = min(most, COLUMNS.vector_bytes // problem.x.scalar_bytes)
        return width if problem.window <= COLUMNS.short_window or problem.x.scalar_bytes < 8 else 1

    def _vector(self, problem: LRNProblem) -> int:
        """Return the positions of an access: one where packs would not begin at multiples of themselves, or x may be y."""
        width = self._width(problem)
        layout = geometry(problem.dims, problem.strides, width)
        everywhere = layout.vectorised == (1 << len(problem.specs)) - 1 and layout.row % width == 0
        channels = all(stride % width == 0 for stride in problem.channel_strides) or problem.channels == 1
        return width if problem.aligned and everywhere and channels else 1

    def alignment(self, problem: LRNProblem) -> Mapping[str, int]:
        vector = self._vector(problem)
        return dict.fromkeys(problem.operands, vector * problem.x.scalar_bytes) if vector > 1 else {}

    def launches(self, problem: LRNProblem) -> list[Launch]:
        vector = self._vector(problem)
        layout = geometry(problem.dims, problem.strides, vector)
        chunk = problem.channels
        if problem.aligned:  # else x may be y
            chunks = max(1, COLUMNS.wanted_threads * problem.device.multiprocessors // layout.packs)
            chunk = max(COLUMNS.least_chunk, -(-problem.channels // (chunks * COLUMNS.step)) * COLUMNS.step)
        fields = [
            ("channels", c_int(problem.channels)),
            ("chunk", c_int(min(chunk, problem.channels))),
            ("stride", (c_int * len(problem.specs))(*problem.channel_strides)),
            ("positions", layout),
        ]
        definitions = {"STEP": COLUMNS.step, "VECTOR": self._width(problem)}
        variant = "" if vector > 1 else "_single"
        across = blocks(layout.packs, COLUMNS.threads)[0]
        grid = (across, -(-problem.channels // min(chunk, problem.channels)), 1)
        return [self._launch(problem, variant, definitions, fields, grid, COLUMNS.threads)]
