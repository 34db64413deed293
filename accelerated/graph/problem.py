"""Describe operation graphs to their solvers: the tensors in the workspace, and the fields that kernels need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from dualdnn.api.operations import OperationGraph
from dualdnn.api.operations.graph import GraphTensor
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32, UINT8, TensorSpec

from ..plans import COMPUTES, PlacedPlan
from ..solver import SOLVER_FAMILIES, Problem, SolverFamily, possible_solvers

# These are the numbers of the stored types in graph/stored.cuh.
STORED = {FLOAT: 0, DOUBLE: 1, HALF: 2, BFLOAT16: 3, INT8: 4, UINT8: 5, INT32: 6}
DIMS = 8  # maximum dimensions per tensor, as in stored.cuh
WIDTH = 8  # elements per thread


class GraphProblem(Problem):
    """Describe one graph on a device."""

    operation: OperationGraph

    @property
    def definitions(self) -> tuple[tuple[str, str], ...]:
        """Return the definitions for the arithmetic of the kernels' modules."""
        return (("COMPUTE", COMPUTES[self.operation.compute_type]), ("WIDTH", str(WIDTH)))

    @cached_property
    def inner_problem(self) -> Problem:
        """Return the single operation that the engine runs for the graph, with the same workspace, for the operation's
        solvers.
        """
        assert self.operation.single is not None
        inner = replace(self.operation.single.operation, workspace_bytes=self.operation.workspace_bytes)
        problem: Problem = SOLVER_FAMILIES[type(inner)].problem(inner, self.device)
        return problem

    @property
    def inner_choice(self) -> str | None:
        """Return the name of the solver that the knob chooses, or None where it leaves the choice to the package."""
        choice, inner = self.operation.choice, self.inner_problem.operation
        return possible_solvers(inner, self.device)[choice - 1] if choice else None

    @property
    def inner_family(self) -> SolverFamily[Any]:
        """Return the solvers of the single operation."""
        return SOLVER_FAMILIES[type(self.inner_problem.operation)]

    def spec(self, tensor: GraphTensor) -> TensorSpec:
        """Return the layout of a tensor. A virtual tensor keeps its described layout where that has no gaps, and is
        packed elsewhere.
        """
        packed = TensorSpec.packed(tensor.data_type, tensor.dims)
        return packed if tensor.is_virtual and tensor.spec.nbytes != packed.nbytes else tensor.spec


def padded(values: Sequence[int], count: int, fill: int) -> list[int]:
    """Return the values after enough ``fill`` to complete DIMS."""
    return [fill] * (count - len(values)) + list(values)


class SinglePlan(PlacedPlan):
    """Run the plan of the single operation that the engine runs for a graph, on the graph's operands."""

    def __init__(self, problem: GraphProblem, solver: str) -> None:
        operation, inner = problem.operation, problem.inner_problem.operation
        assert operation.single is not None
        self.inner = SOLVER_FAMILIES[type(inner)].plan(problem.inner_problem, problem.inner_choice)
        names = {**operation.single.names, "workSpace": "workspace"}
        positions = [operation.operands.index(names[name]) for name in inner.operands]
        super().__init__(operation.operands.index("workspace"), (), [(self.inner, positions)], solver)
