"""Operation graphs as their solvers read them: where virtual tensors lie in the workspace, what kernels need of a
tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from dualdnn.api.operations import OperationGraph
from dualdnn.api.operations.graph import GraphTensor
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32, UINT8, TensorSpec

from ..plans import COMPUTES, Launch, Plan
from ..solver import ROOMS, Problem, Solver, possible_solvers

# The numbers of the stored types in graph/stored.cuh.
STORED = {FLOAT: 0, DOUBLE: 1, HALF: 2, BFLOAT16: 3, INT8: 4, UINT8: 5, INT32: 6}
DIMS = 8
ALIGNMENT = 16  # of virtual tensors in the workspace


class GraphProblem(Problem):
    """One graph and the layout of its workspace."""

    operation: OperationGraph

    @property
    def definitions(self) -> tuple[tuple[str, str], ...]:
        """The arithmetic of the kernels' modules."""
        return (("COMPUTE", COMPUTES[self.operation.compute_type]),)

    @cached_property
    def layout(self) -> tuple[dict[str, tuple[int, TensorSpec]], int]:
        """Return the byte offset in the workspace and the packed description of each virtual tensor, and the bytes of all."""
        found, used = {}, 0
        for tensor in self.operation.virtual:
            spec = TensorSpec.packed(tensor.data_type, tensor.dims)
            found[tensor.operand] = (used, spec)
            used += -(-spec.nbytes // ALIGNMENT) * ALIGNMENT
        return found, used

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace, with up to 15 more, because the caller's memory may begin anywhere."""
        used = self.layout[1]
        return used + ALIGNMENT - 1 if used else 0

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
        """The layout of a tensor: a virtual one is packed."""
        virtual, _ = self.layout
        return virtual[tensor.operand][1] if tensor.operand in virtual else tensor.spec


class GraphPlan(Plan):
    """Launches whose operands are the graph's, virtual tensors at their offsets in the workspace."""

    def __init__(self, problem: GraphProblem, launches: Sequence[Launch], solver: str) -> None:
        operation = problem.operation
        virtual, _ = problem.layout
        self.solver, self.scratch_bytes = solver, 0
        self.offsets = [offset for offset, _ in virtual.values()]
        self.workspace = operation.operands.index("workspace")
        indices = {name: i for i, name in enumerate((*operation.operands, *virtual))}
        self.steps = [(launch, tuple(indices.get(name, -1) for name in launch.operands)) for launch in launches]

    def __call__(self, operands: Sequence[Any], stream: Any) -> None:
        workspace = operands[self.workspace]
        start = 0 if workspace is None else workspace.address + -workspace.address % ALIGNMENT
        addresses = [0 if operand is None else operand.address for operand in operands]
        addresses += [start + offset for offset in self.offsets]
        addresses.append(0)  # of an operand that a launch does not have
        for launch, positions in self.steps:
            launch.start([addresses[i] for i in positions], stream)


def padded(values: Sequence[int], count: int, fill: int) -> list[int]:
    """The values behind as many ``fill`` as are missing."""
    return [fill] * (count - len(values)) + list(values)


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
