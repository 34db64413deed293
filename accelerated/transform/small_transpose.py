"""Transposes of small tensors, indexed by the dimensions of the launch (transform/small_transpose.cu)."""

from __future__ import annotations

from ctypes import c_int

from ..plans import Launch
from ..primitives.small_grid import RANK, SmallGridLaunch, small_grid_of_extents
from .problem import Step, TransformProblem, Walk, WalkSolver
from .transpose import transpose_of

KERNEL = ("transform/small_transpose.cu", "transform_small_transpose")
ELEMENTS = 4  # of a thread, contiguous in the destination


class SmallTransposeSolver(WalkSolver):
    """Small tensors of which only the destination has packs; packs on both sides are faster in squares of registers."""

    name = "transform.small_transpose"

    def carries(self, problem: TransformProblem, walk: Walk) -> bool:
        return walk.transposes and not walk.checked and _columns(walk) is not None

    def prefers(self, problem: TransformProblem, walk: Walk) -> bool:
        if not self.carries(problem, walk):
            return False
        transpose = transpose_of(problem, walk)
        return transpose is None or not transpose.in_registers

    def walk_launch(self, problem: TransformProblem, walk: Walk) -> Launch:
        columns = _columns(walk)
        assert columns is not None
        fields = [
            *problem.scalars(),
            ("move", c_int(problem.moves)),
            ("source_base", c_int(walk.source_base)),
            ("destination_base", c_int(walk.destination_base)),
            ("source_along", c_int(walk.steps[0].source)),
            ("small_grid", columns.layout),
        ]
        return problem.launch(KERNEL, fields, columns.grid, columns.block, ELEMENTS=ELEMENTS)


def _columns(walk: Walk) -> SmallGridLaunch | None:
    """Return the grid of small tensors: neighbouring threads where the source is contiguous, each with a column of ELEMENTS along which
    the destination is. Return None where the destination has no such packs, or the tensor is large."""
    along, others = walk.steps[0], sorted(walk.steps[1:], key=lambda step: -step.source)
    if along.extent % ELEMENTS or len(others) >= RANK or not walk.aligned("destination", along, ELEMENTS):
        return None
    columns = Step(along.extent // ELEMENTS, along.source * ELEMENTS, ELEMENTS, (), ())
    *outer, rows, row = [Step(1, 0, 0, (), ())] * (RANK - 1 - len(others)) + others
    steps = [*outer, columns, rows, row]
    strides = [[getattr(step, side) for step in steps] for side in ("source", "destination")]
    return small_grid_of_extents([step.extent for step in steps], strides, max_items=1)
