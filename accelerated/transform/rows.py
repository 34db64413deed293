"""Plans walks whose source and destination are contiguous along the same dimension (transform/rows.cu)."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_uint
from math import prod

from ..plans import Launch
from ..primitives.geometry import FastDivmod, blocks
from .problem import VECTOR_BYTES, TransformProblem, Walk, WalkSolver

KERNEL = ("transform/rows.cu", "transform_rows")
LOG_WARP = 5


class RowsArgument(ctypes.Structure):
    _fields_ = [("vectors_per_row", FastDivmod), ("vectors", c_uint), ("log_spread", c_uint)]


class RowsSolver(WalkSolver):
    """Serve generic walks. Each thread takes one vector in the order of the destination, with one access if both sides
    are aligned."""

    name = "transform.rows"

    def carries(self, problem: TransformProblem, walk: Walk) -> bool:
        return True

    def walk_launch(self, problem: TransformProblem, walk: Walk) -> Launch:
        rows = _rows(walk, VECTOR_BYTES // max(problem.element_bytes))
        fields = [
            ("walk", walk.argument(walk.steps)),
            *problem.scalars(),
            ("rows", rows),
            ("move", c_int(problem.moves)),
        ]
        return problem.launch(KERNEL, fields, blocks(rows.vectors))


def _rows(walk: Walk, width: int) -> RowsArgument:
    """Return the rows in vectors of ``width`` neighbours if both sides move them in one access. Else vectors have
    elements with strides up to a warp."""
    row = walk.steps[0].extent
    packed = walk.aligned("source", walk.steps[0], width) and walk.aligned("destination", walk.steps[0], width)
    log_spread = 0 if packed else min(LOG_WARP, max(1, row // width).bit_length() - 1)
    vectors_per_row = -(-row // (width << log_spread)) << log_spread
    vectors = vectors_per_row * prod(step.extent for step in walk.steps[1:])
    return RowsArgument(FastDivmod.of(vectors_per_row), vectors, log_spread)
