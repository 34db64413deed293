"""Operation graphs as their solvers read them: what is stored in the workspace, what kernels need of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from typing import Any

from dualdnn.api.operations import OperationGraph
from dualdnn.api.operations.graph import GraphTensor
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32, UINT8, TensorSpec

from ..plans import COMPUTES, Launch, Plan
from ..solver import ROOMS, Problem, Solver, possible_solvers

# The numbers of the stored types in graph/stored.cuh.
STORED = {FLOAT: 0, DOUBLE: 1, HALF: 2, BFLOAT16: 3, INT8: 4, UINT8: 5, INT32: 6}
DIMS = 8  # dimensions; stored.cuh has the same
WIDTH = 8  # elements that a thread takes at a time
ALIGNMENT = 16  # of what lies in the workspace


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


class Address:
    """Memory inside the workspace."""

    def __init__(self, address: int) -> None:
        self.address = address


class GraphPlan(Plan):
    """Launches and plans whose operands are the graph's, or regions of the workspace.

    regions: name -> offset in the workspace. steps: each a launch or the plan of an operation, with the names of its
    operands.
    """

    def __init__(
        self,
        problem: GraphProblem,
        steps: Sequence[tuple[Launch | Plan, Sequence[str]]],
        regions: dict[str, int],
        solver: str,
    ) -> None:
        names = problem.operation.operands
        self.solver = solver
        self.scratch_bytes = 0  # plans inside ask for their own
        self.offsets = list(regions.values())
        self.workspace = names.index("workspace")
        indices = {name: i for i, name in enumerate((*names, *regions))}
        placed = [(step, tuple(indices.get(name, -1) for name in used)) for step, used in steps]
        self.parts = [(step, _getter(positions)) for step, positions in placed]
        self.steps = [
            inner for step, used in placed for inner in (step.steps if isinstance(step, Plan) else [(step, used)])
        ]
        self.plans = any(isinstance(step, Plan) for step, _ in steps)

    def __call__(self, operands: Sequence[Any], stream: Any) -> None:
        # What steps may be given: the operands, the regions, and behind them all what a step does not have.
        addresses = [0 if operand is None else operand.address for operand in operands]
        start = addresses[self.workspace] + -addresses[self.workspace] % ALIGNMENT
        addresses += [start + offset for offset in self.offsets]
        available = [*operands, *map(Address, addresses[len(operands) :]), None] if self.plans else []
        addresses.append(0)
        for step, chosen in self.parts:
            if isinstance(step, Plan):
                step(chosen(available), stream)
            else:
                step.start(chosen(addresses), stream)


def _getter(positions: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function of a sequence that returns its items at these positions."""
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda items: [items[position] for position in positions]


class SinglePlan(Plan):
    """The plan of the one operation that a graph is to its engine, on the graph's operands."""

    def __init__(self, problem: GraphProblem, solver: str) -> None:
        operation, inner = problem.operation, problem.inner_problem.operation
        assert operation.single is not None
        room = ROOMS[type(inner)]
        self.inner = room.plan(problem.inner_problem, problem.inner_choice)
        self.solver, self.steps, self.scratch_bytes = solver, self.inner.steps, self.inner.scratch_bytes
        names = {**operation.single.names, "workSpace": "workspace"}
        self.positions = [operation.operands.index(names[name]) for name in inner.operands]

    def __call__(self, operands: Sequence[Any], stream: Any) -> None:
        self.inner([operands[i] for i in self.positions], stream)
