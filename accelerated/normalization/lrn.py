"""The solvers of LRN: rows of contiguous channels (lrn_rows.cu), and columns of any layout (lrn_columns.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int, c_uint
from dataclasses import dataclass
from math import prod
from typing import Any

from ..plans import Launch, pointers, structure, type_definitions
from ..primitives.geometry import PACK_BYTES, FastDivmod, blocks, geometry, merge_dimensions
from ..solver import Solver
from .problem import LRNProblem


@dataclass(frozen=True)
class RowSettings:
    """threads: of a block. packs: 16-byte accesses of a thread's own channels. singles: channels of a thread where they are
    accessed one by one, forward and backward, which computes n - 1 powers more than it has channels."""

    threads: int = 128
    packs: int = 2
    forward_singles: int = 1
    backward_singles: int = 4


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


ROWS, COLUMNS = RowSettings(), ColumnSettings()


class LRNSolver(Solver[LRNProblem]):
    """What the solvers of LRN share: the launch, and that x may be y only where a thread has all channels."""

    source = ""

    def apart(self, problem: LRNProblem) -> tuple[tuple[str, str], ...]:
        return (("x", "y"),) if problem.may_be_in_place and problem.aligned else ()

    def _launch(
        self,
        problem: LRNProblem,
        variant: str,
        definitions: Mapping[str, int],
        fields: list[Any],
        grid: Any,
        threads: int,
    ) -> Launch:
        direction = "forward" if problem.forward else "backward"
        named = {name: str(value) for name, value in definitions.items()}
        defined = type_definitions(
            problem.x.data_type, problem.operation, WINDOW=str(problem.window), THREADS=str(threads), **named
        )
        function = problem.device.function(self.source, f"{self.name.replace('.', '_')}_{direction}{variant}", defined)
        arguments = structure(
            *pointers(len(problem.operands)), *problem.gradient(), ("rest", structure(*problem.scalars(), *fields))
        )
        return Launch(function, arguments, problem.operands, grid, (threads, 1, 1))


class RowsSolver(LRNSolver):
    """Channels are contiguous: a thread has neighbouring channels of one position."""

    name = "normalization.lrn_rows"
    source = "normalization/lrn_rows.cu"

    def serves(self, problem: LRNProblem) -> bool:
        return problem.aligned and all(stride == 1 for stride in problem.channel_strides)

    def applies(self, problem: LRNProblem) -> bool:
        """Return whether channels, not positions, are the longer runs of memory."""
        return self.serves(problem) and problem.channels > 1

    def _vector(self, problem: LRNProblem) -> int:
        """Return the elements of an access: those of 16 bytes where every position begins at a multiple of them."""
        width = PACK_BYTES // problem.x.scalar_bytes
        extents, steps = merge_dimensions(problem.dims, problem.strides)
        starts = [step for of in steps for step, extent in zip(of, extents, strict=True) if extent > 1]
        return width if problem.channels % width == 0 and all(start % width == 0 for start in starts) else 1

    def alignment(self, problem: LRNProblem) -> Mapping[str, int]:
        return dict.fromkeys(problem.operands, PACK_BYTES) if self._vector(problem) > 1 else {}

    def launches(self, problem: LRNProblem) -> list[Launch]:
        vector = self._vector(problem)
        own = ROWS.packs * vector
        if vector == 1:
            own = ROWS.forward_singles if problem.forward else ROWS.backward_singles
        units = -(-problem.channels // own)
        threads = units * prod(problem.dims)
        fields = [
            ("channels", c_int(problem.channels)),
            ("units", FastDivmod.of(units)),
            ("threads", c_uint(threads)),
            ("positions", geometry(problem.dims, problem.strides, 1)),
        ]
        definitions = {
            "PACKS": ROWS.packs, "FORWARD_SINGLES": ROWS.forward_singles, "BACKWARD_SINGLES": ROWS.backward_singles,
        }  # fmt: skip
        variant = "" if vector > 1 else "_single"
        return [self._launch(problem, variant, definitions, fields, blocks(threads, ROWS.threads), ROWS.threads)]


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
