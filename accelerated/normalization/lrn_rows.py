"""Plans LRN of contiguous channels (lrn_rows.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int, c_uint
from math import prod

from ..plans import Launch
from ..primitives.geometry import VECTOR_BYTES, FastDivmod, blocks, geometry, merge_dimensions
from ..reproducible import Order
from .lrn import LRNSolver
from .lrn_generic import WARP
from .problem import LRNProblem

THREADS = 128  # threads per block
VECTORS = {"FORWARD_VECTORS": 2, "BACKWARD_VECTORS": 2}  # vectors of 16 bytes per lane
# A thread with single accesses has this many neighbouring channels; backward it computes n - 1 more powers.
SINGLES = {"FORWARD_SINGLES": 1, "BACKWARD_SINGLES": 4}


class RowsSolver(LRNSolver):
    """Serve contiguous channels; a thread has neighbouring channels of one position."""

    name = "normalization.lrn_rows"
    fixed_order = Order("fma", (name,))
    source = "normalization/lrn_rows.cu"

    def serves(self, problem: LRNProblem) -> bool:
        return problem.aligned and all(stride == 1 for stride in problem.channel_strides)

    def applies(self, problem: LRNProblem) -> bool:
        """Return whether the solver serves the problem, and there is more than one channel."""
        return self.serves(problem) and problem.channels > 1

    def _vector(self, problem: LRNProblem) -> int:
        """Return the elements per access: 16 bytes where every position is aligned to them, else 1."""
        width = VECTOR_BYTES // problem.x.scalar_bytes
        extents, steps = merge_dimensions(problem.dims, problem.strides)
        starts = [step for of in steps for step, extent in zip(of, extents, strict=True) if extent > 1]
        return width if problem.channels % width == 0 and all(start % width == 0 for start in starts) else 1

    def alignment(self, problem: LRNProblem) -> Mapping[str, int]:
        return dict.fromkeys(problem.operands, VECTOR_BYTES) if self._vector(problem) > 1 else {}

    def launches(self, problem: LRNProblem) -> list[Launch]:
        vector = self._vector(problem)
        direction = "FORWARD" if problem.forward else "BACKWARD"
        # own: neighbouring channels per unit. vectors: units per thread.
        own, vectors = (vector, VECTORS[f"{direction}_VECTORS"]) if vector > 1 else (SINGLES[f"{direction}_SINGLES"], 1)
        units = -(-problem.channels // own)
        threads = units * prod(problem.dims)
        fields = [
            ("channels", c_int(problem.channels)), ("units", FastDivmod.of(units)), ("threads", c_uint(threads)),
            ("positions", geometry(problem.dims, problem.strides, 1)),
        ]  # fmt: skip
        definitions = {"WHOLE_POSITIONS": int(WARP % units == 0), **VECTORS, **SINGLES}
        variant = "" if vector > 1 else "_single"
        grid = blocks(threads, THREADS * vectors)
        return [self._launch(problem, variant, definitions, fields, grid, THREADS)]
