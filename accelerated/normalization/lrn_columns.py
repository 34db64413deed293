"""LRN of any layout (lrn_columns.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int
from dataclasses import dataclass
from math import prod

from ..plans import Launch
from ..primitives.geometry import blocks, geometry, merge_dimensions
from .lrn import LRNSolver
from .problem import LRNProblem

WARP = 32
COLUMN_SHARE = 0.875  # of lanes that have positions, at least


@dataclass(frozen=True)
class ColumnSettings:
    """The settings of threads that walk along the channels of some positions. Windows are long where they have more
    channels than ``short_window``.

    threads: of a block.
    step: channels whose reads are in flight together; single_step: the same forward, where a thread accesses its
        positions one by one; long_step_bytes: the same for long windows, in bytes of one position: each step moves all
        that is kept from register to register.
    vector: positions of a thread, at most; forward_bytes, backward_bytes: of an access, at most. Both are halved for
        long windows.
    short_blocks: that a multiprocessor holds, forward and where a thread has one position; single_blocks: where it
        accesses several one by one; backward_blocks: in all other calls. All are halved for long windows.
    start: channels that a thread could have done until its first reads arrive.
    short_chunk: the fewest channels of a thread.
    least_threads: of a multiprocessor, below which a thread has one position.
    """

    threads: int = 128
    step: int = 4
    single_step: int = 8
    long_step_bytes: int = 32
    vector: int = 4
    forward_bytes: int = 16
    backward_bytes: int = 8
    short_window: int = 8
    short_blocks: int = 7
    backward_blocks: int = 4
    single_blocks: int = 3
    start: int = 8
    short_chunk: int = 8
    least_threads: int = 512


COLUMNS = ColumnSettings()


class ColumnsSolver(LRNSolver):
    """Any layout: a thread has neighbouring positions and slides down the channels."""

    name = "normalization.lrn_columns"
    source = "normalization/lrn_columns.cu"

    def serves(self, problem: LRNProblem) -> bool:
        return True

    def _positions(self, problem: LRNProblem, access_bytes: int) -> int:
        """Return the positions of a thread, at most, which it accesses together or one by one."""
        positions = min(COLUMNS.vector, access_bytes // problem.x.scalar_bytes)
        return positions if problem.window <= COLUMNS.short_window else max(1, positions // 2)

    def _width(self, problem: LRNProblem) -> int:
        """Return the positions of a thread that the kernels are compiled for."""
        return self._positions(problem, COLUMNS.forward_bytes if problem.forward else COLUMNS.backward_bytes)

    def _are_many(self, problem: LRNProblem, threads: int) -> bool:
        chunks = -(-problem.channels // COLUMNS.short_chunk)
        return threads * chunks >= COLUMNS.least_threads * problem.device.multiprocessors

    def _vector(self, problem: LRNProblem) -> int:
        """Return the positions of a thread: one where packs would not begin at multiples of themselves, x may be y, or
        few threads would have packs."""
        width = self._width(problem)
        layout = geometry(problem.dims, problem.strides, width)
        everywhere = layout.vectorised == (1 << len(problem.specs)) - 1 and layout.row % width == 0
        channels = all(stride % width == 0 for stride in problem.channel_strides) or problem.channels == 1
        return width if problem.aligned and everywhere and channels and self._are_many(problem, layout.packs) else 1

    def _singles(self, problem: LRNProblem) -> int:
        """Return the positions of a thread that are accessed one by one: some, where they leave few lanes idle."""
        singles = self._positions(problem, COLUMNS.forward_bytes)
        extents, steps = merge_dimensions(problem.dims, problem.strides)
        run = WARP * singles
        runs = prod(extents[:-1]) * -(-extents[-1] // run)
        rows = all(of[-1] == 1 for of in steps) and runs * run * COLUMN_SHARE <= prod(extents)
        return singles if problem.aligned and rows and self._are_many(problem, runs * WARP) else 1

    def _step(self, problem: LRNProblem, single: bool) -> int:
        if problem.window > COLUMNS.short_window:
            return COLUMNS.long_step_bytes // problem.x.scalar_bytes
        return COLUMNS.single_step if single and problem.forward else COLUMNS.step

    def _chunk(self, problem: LRNProblem, threads: int, positions: int, step: int, apart: bool) -> int:
        """Return the channels of a thread, of which ``threads`` lie beside each other, with ``positions`` each: those
        with which the multiprocessors take the fewest channels one after the other."""
        if not problem.aligned:  # x may be y
            return problem.channels
        # Backward, the steps of a chunk begin n - 1 channels before it.
        again = 0 if problem.forward else problem.window - 1
        held = COLUMNS.short_blocks if problem.forward or positions == 1 else COLUMNS.backward_blocks
        held = COLUMNS.single_blocks if apart else held
        if problem.window > COLUMNS.short_window:
            held = -(-held // 2)
        across = -(-threads // COLUMNS.threads)

        def length(chunks: int) -> int:
            steps = -(-(-(-problem.channels // chunks) + again) // step)
            return min(steps * step - again, problem.channels)

        def cost(chunks: int) -> int:
            channels = length(chunks)
            waves = -(-across * -(-problem.channels // channels) // (held * problem.device.multiprocessors))
            return waves * (channels + again + COLUMNS.start)

        most = max(1, problem.channels // COLUMNS.short_chunk)
        return length(min(range(1, most + 1), key=cost))

    def alignment(self, problem: LRNProblem) -> Mapping[str, int]:
        vector = self._vector(problem)
        return dict.fromkeys(problem.operands, vector * problem.x.scalar_bytes) if vector > 1 else {}

    def launches(self, problem: LRNProblem) -> list[Launch]:
        vector, singles = self._vector(problem), self._singles(problem)
        single, apart = vector == 1, vector == 1 and singles > 1
        layout = geometry(problem.dims, problem.strides, WARP * singles if apart else vector)
        threads = layout.packs * WARP if apart else layout.packs
        positions = singles if apart else vector
        chunk = self._chunk(problem, threads, positions, self._step(problem, single), apart)
        fields = [
            ("channels", c_int(problem.channels)),
            ("chunk", c_int(chunk)),
            ("stride", (c_int * len(problem.specs))(*problem.channel_strides)),
            ("positions", layout),
        ]
        definitions = {
            "STEP": self._step(problem, False),
            "SINGLE_STEP": self._step(problem, True),
            "SINGLES": singles,
            "VECTOR": self._width(problem),
        }
        variant = "_single" if single else ""
        across = blocks(threads, COLUMNS.threads)[0]
        grid = (across, -(-problem.channels // chunk), 1)
        return [self._launch(problem, variant, definitions, fields, grid, COLUMNS.threads)]
