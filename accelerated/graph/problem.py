"""Operation graphs as their solvers read them: what is stored in the workspace, what kernels need of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from dualdnn.api.operations import OperationGraph
from dualdnn.api.operations.graph import GraphTensor
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32, UINT8, TensorSpec

from ..plans import COMPUTES, PlacedPlan
from ..solver import ROOMS, Problem, Solver, possible_solvers

# The numbers of the stored types in graph/stored.cuh.
STORED = {FLOAT: 0, DOUBLE: 1, HALF: 2, BFLOAT16: 3, INT8: 4, UINT8: 5, INT32: 6}
DIMS = 8  # dimensions; stored.cuh has the same
WIDTH = 8  # elements that a thread takes at a time


class GraphProblem(Problem):
    """One graph on a device."""

    operation: OperationGraph

    @property
    def definitions(self) -> tuple[tuple[str, str], ...]:
        """The arithmetic of the kernels' modules."""
        return (("COMPUTE", COMPUTES[self.operation.compute_type]), ("WIDTH", str(WIDTH)))

    @cached_property
    def inner_problem(self) -> Problem:
        """The one operation that the graph is to its engine, with as much workspace, as the solvers of its room read
        it."""
        assert self.operation.single is not None
        inner = replace(self.operation.single.operation, workspace_bytes=self.operation.workspace_bytes)
        problem: Problem = ROOMS[type(inner)].problem(inner, self.device)
        return problem

    @property
    def inner_choice(self) -> str | None:
        """The name of the solver that the knob chooses, None where it leaves that to the room."""
        choice, inner = self.operation.choice, self.inner_problem.operation
        return possible_solvers(inner, self.device)[choice - 1] if choice else None

    @cached_property
    def inner_solver(self) -> Solver[Any]:
        """The solver that serves the one operation."""
        return ROOMS[type(self.inner_problem.operation)].solver(self.inner_problem, self.inner_choice)

    def spec(self, tensor: GraphTensor) -> TensorSpec:
        """The layout of a tensor: a virtual one lies as it was described where that has no gaps, else packed."""
        packed = TensorSpec.packed(tensor.data_type, tensor.dims)
        return packed if tensor.is_virtual and tensor.spec.nbytes != packed.nbytes else tensor.spec


def padded(values: Sequence[int], count: int, fill: int) -> list[int]:
    """The values behind as many ``fill`` as are missing."""
    return [fill] * (count - len(values)) + list(values)


class SinglePlan(PlacedPlan):
    """The plan of the one operation that a graph is to its engine, on the graph's operands."""

    def __init__(self, problem: GraphProblem, solver: str) -> None:
        operation, inner = problem.operation, problem.inner_problem.operation
        assert operation.single is not None
        self.inner = ROOMS[type(inner)].plan(problem.inner_problem, problem.inner_choice)
        names = {**operation.single.names, "workSpace": "workspace"}
        positions = [operation.operands.index(names[name]) for name in inner.operands]
        super().__init__(operation.operands.index("workspace"), (), [(self.inner, positions)], solver)
