"""Choose the solver of each engine of an operation graph (chapter 9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from dualdnn.api.operations import OperationGraph
from dualdnn.api.operations.graph import ConvolutionNode, GraphTensor

from ..plans import Launch, PlacedPlan, Plan, estimated_seconds, plan, with_alignment, workspace_aligned
from ..reproducible import NO_SUMS, OVER_BATCH, Order
from ..solver import BYTES_PER_SECOND, LAUNCH_SECONDS, Solver, serve, summation_order
from .chain import chain_launch
from .convolution import SOURCE, convolution_launch
from .division import Chain, Direct, Documented, Part, Statistics, parts
from .pointwise import operands
from .problem import GraphProblem, SinglePlan
from .statistics import Division, partial_sums, statistics_launches

PRODUCTS_PER_SECOND = 2e11  # rate of the convolutions of graph/convolution.cu


class PerNode(Solver[GraphProblem]):
    """Serve a graph per node: chains of pointwise nodes, plans of documented operations, and a launch for each other
    node. The workspace holds the tensors between parts.
    """

    name = "graph.per_node"

    def serves(self, problem: GraphProblem) -> bool:
        return problem.operation.single is None

    def summation_order(self, problem: GraphProblem) -> Order:
        return Order(self.name, tuple(order_of(problem, part) for part in parts(problem)))

    def workspace_bytes(self, problem: GraphProblem) -> int:
        return with_alignment(self._regions(problem, parts(problem))[1])

    def estimated_seconds(self, problem: GraphProblem) -> float:
        return sum(part_seconds(problem, part) for part in parts(problem))

    def launches(self, problem: GraphProblem) -> list[Launch]:
        found = parts(problem)
        return [step for part in found for step, _ in self._steps(problem, part) if isinstance(step, Launch)]

    def plan(self, problem: GraphProblem) -> Plan:
        found = parts(problem)
        regions, names = self._regions(problem, found)[0], problem.operation.operands
        indices = {name: i for i, name in enumerate((*names, *regions))}
        steps = [
            (step, [indices.get(name, -1) for name in used])
            for part in found
            for step, used in self._steps(problem, part)
        ]
        workspace = names.index("workspace")
        return PlacedPlan(workspace, [(workspace, offset) for offset in regions.values()], steps, self.name)

    @staticmethod
    def _regions(problem: GraphProblem, found: Sequence[Part]) -> tuple[dict[str, int], int]:
        """Return the offset in the workspace of each virtual tensor and of each part's workspace, and the total
        bytes.
        """
        regions, used = {}, 0
        for name, nbytes in needed(problem, found):
            regions[name] = used
            used += workspace_aligned(nbytes)
        return regions, used

    @staticmethod
    def _steps(problem: GraphProblem, part: Part) -> Iterator[tuple[Launch | Plan, Sequence[str]]]:
        match part:
            case Chain(nodes):
                launches = [chain_launch(problem, nodes)]
            case Statistics(node):
                launches = statistics_launches(problem, node, own(part), division_of(problem, part))
            case Direct(node):
                launches = [convolution_launch(problem, node)]
            case Documented():
                names = {**part.single.names, "workSpace": own(part)}
                yield plan(part.operation, problem.device), [names[name] for name in part.operation.operands]
                return
        for launch in launches:
            yield launch, launch.operands


class OneOperation(Solver[GraphProblem]):
    """List the solvers of the one operation that the graph is to its engine; the knob chooses among them."""

    name = "graph.one_operation"

    def serves(self, problem: GraphProblem) -> bool:
        return problem.operation.single is not None

    def summation_order(self, problem: GraphProblem) -> Order:
        return Order(self.name, (problem.inner_family.order(problem.inner_problem),))

    def workspace_bytes(self, problem: GraphProblem) -> int:
        return problem.inner_family.enough(problem.inner_problem, problem.inner_choice)

    def estimated_seconds(self, problem: GraphProblem) -> float:
        solver = problem.inner_family.solver(problem.inner_problem, problem.inner_choice)
        return solver.estimated_seconds(problem.inner_problem)

    def plan(self, problem: GraphProblem) -> Plan:
        return SinglePlan(problem, self.name)


def order_of(problem: GraphProblem, part: Part) -> Order | None:
    """Return in which order a part adds at the level of the device. Raises Unsupported where no solver declares one."""
    match part:
        case Documented():
            return summation_order(part.operation, problem.device)
        case Direct(node):
            return Order(SOURCE, (type(node).__name__,))
        case Chain():
            return NO_SUMS
        case Statistics():
            return OVER_BATCH


def own(part: Statistics | Documented) -> str:
    """Return the name of a part's own workspace: a prefix and the first tensor that its last node writes."""
    last = part.node if isinstance(part, Statistics) else part.nodes[-1]
    return f"workspace_of_{last.outputs[0].operand}"


def division_of(problem: GraphProblem, part: Statistics) -> Division:
    """Return the division of a part's sums."""
    return Division.of(problem.spec(part.node.x), problem.device)


def in_memory(problem: GraphProblem, part: Part) -> list[GraphTensor]:
    """Return the tensors that a part reads from memory or writes to it."""
    match part:
        case Chain(nodes):
            return list(operands(problem.operation, nodes).values())
        case Documented():
            tensors, named = problem.operation.tensors, set(part.single.names.values())
            return [tensor for name, tensor in tensors.items() if name in named]
        case Statistics(node) | Direct(node):
            return [*node.inputs, *node.outputs]


def needed(problem: GraphProblem, found: Sequence[Part]) -> Iterator[tuple[str, int]]:
    """Return the names and the bytes of all regions of the workspace."""
    virtual = {tensor.operand: tensor for part in found for tensor in in_memory(problem, part) if tensor.is_virtual}
    for name, tensor in virtual.items():
        yield name, problem.spec(tensor).nbytes
    for part in found:
        if isinstance(part, Statistics):
            yield own(part), partial_sums(problem.operation, part.node, division_of(problem, part))
        elif isinstance(part, Documented):
            yield own(part), part.operation.workspace_bytes


def part_seconds(problem: GraphProblem, part: Part) -> float:
    """Return the approximate seconds of a part."""
    if isinstance(part, Documented):
        return estimated_seconds(part.operation, problem.device)
    moved, products = sum(tensor.spec.nbytes for tensor in in_memory(problem, part)), 0
    if isinstance(part, Direct):
        node: ConvolutionNode = part.node
        _, window, response = node.bound
        products = prod(response.dims) * prod(window.dims[-node.convolution.rank - 1 :])
    return LAUNCH_SECONDS + max(moved / BYTES_PER_SECOND, products / PRODUCTS_PER_SECOND)


serve(GraphProblem, (PerNode(), OneOperation()), OperationGraph)
