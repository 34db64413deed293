"""Registers the solvers of transforms of layout, padding, folding and data type (3.2.99 to 3.2.101), and exports walks
for other families."""

from __future__ import annotations

from typing import Any

from dualdnn.api.operations import TransformFilter, TransformTensor, TransformTensorEx

from ..plans import Launch
from ..solver import serve
from .problem import TransformProblem, Walk, WalkSolver, block_diagonal, copy, padded, spread_filter, transformed
from .rows import RowsSolver
from .transpose import TransposeSolver

__all__ = ["block_diagonal", "copy", "launch", "padded", "spread_filter", "transformed"]

WalkSolver.order = (TransposeSolver(), RowsSolver())
serve(TransformProblem, WalkSolver.order, TransformTensor, TransformTensorEx, TransformFilter)


def launch(walk: Walk, operation: Any, names: tuple[str, str], device: Any) -> Launch:
    """Return the launch of a walk from the first operand to the second, with the operation's alpha and beta."""
    problem = TransformProblem(operation, device, names=names, walks=[walk])
    return WalkSolver.preferred(problem, walk).walk_launch(problem, walk)
