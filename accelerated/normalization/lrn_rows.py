"""LRN of contiguous channels (lrn_rows.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int, c_uint
from dataclasses import dataclass
from math import prod

from ..plans import Launch
from ..primitives.geometry import PACK_BYTES, FastDivmod, blocks, geometry, merge_dimensions
from .lrn import LRNSolver
from .lrn_columns import WARP
from .problem import LRNProblem


@dataclass(frozen=True)
class RowSettings:
    """threads: of a block. packs: of 16 bytes, of a lane. singles: neighbouring channels of a thread where they are
    accessed one by one; backward it computes n - 1 powers more than it has channels."""

    threads: int = 128
    forward_packs: int = 2
    backward_packs: int = 2
    forward_singles: int = 1
    backward_singles: int = 4


ROWS = RowSettings()


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
        vector, forward = self._vector(problem), problem.forward
        packs = ROWS.forward_packs if forward else ROWS.backward_packs
        own = vector  # neighbouring channels
        if vector == 1:
            own, packs = ROWS.forward_singles if forward else ROWS.backward_singles, 1
        units = -(-problem.channels // own)
        threads = units * prod(problem.dims)
        fields = [
            ("channels", c_int(problem.channels)),
            ("units", FastDivmod.of(units)),
            ("threads", c_uint(threads)),
            ("positions", geometry(problem.dims, problem.strides, 1)),
        ]
        definitions = {
            "WHOLE_POSITIONS": int(WARP % units == 0),
            "FORWARD_PACKS": ROWS.forward_packs,
            "BACKWARD_PACKS": ROWS.backward_packs,
            "FORWARD_SINGLES": ROWS.forward_singles,
            "BACKWARD_SINGLES": ROWS.backward_singles,
        }
        variant = "" if vector > 1 else "_single"
        grid = blocks(threads, ROWS.threads * packs)
        return [self._launch(problem, variant, definitions, fields, grid, ROWS.threads)]
