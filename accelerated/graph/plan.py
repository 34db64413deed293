"""Operation graphs (chapter 9): which solver serves which engine."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from dualdnn.api.operations import OperationGraph
from dualdnn.api.operations.graph import (
    ConvolutionBackwardDataNode,
    ConvolutionBackwardFilterNode,
    ConvolutionForwardNode,
    ConvolutionNode,
    GenStatsNode,
    Node,
    PointwiseNode,
)

from ..plans import Launch, Plan
from ..solver import BYTES_PER_SECOND, LAUNCH_SECONDS, Solver, serve
from .convolution import convolution_launch
from .pointwise import pointwise_launch
from .problem import GraphPlan, GraphProblem, SinglePlan
from .statistics import statistics_launch

PRODUCTS_PER_SECOND = 2e11  # of the convolutions of graph/convolution.cu

LAUNCHES: dict[type[Node], Callable[..., Launch]] = {
    PointwiseNode: pointwise_launch,
    GenStatsNode: statistics_launch,
    ConvolutionForwardNode: convolution_launch,
    ConvolutionBackwardDataNode: convolution_launch,
    ConvolutionBackwardFilterNode: convolution_launch,
}


class NodeByNode(Solver[GraphProblem]):
    """A launch for each node, virtual tensors in the workspace."""

    name = "graph.node_by_node"

    def serves(self, problem: GraphProblem) -> bool:
        return problem.operation.single is None

    def workspace_bytes(self, problem: GraphProblem) -> int:
        return problem.workspace_bytes

    def estimated_seconds(self, problem: GraphProblem) -> float:
        return sum(node_seconds(node) for node in problem.operation.nodes)

    def launches(self, problem: GraphProblem) -> list[Launch]:
        return [LAUNCHES[type(node)](problem, node) for node in problem.operation.nodes]

    def plan(self, problem: GraphProblem) -> Plan:
        return GraphPlan(problem, self.launches(problem), self.name)


class OneOperation(Solver[GraphProblem]):
    """The solvers of the one operation that the graph is to its engine; the knob chooses among them."""

    name = "graph.one_operation"

    def serves(self, problem: GraphProblem) -> bool:
        return problem.operation.single is not None

    def workspace_bytes(self, problem: GraphProblem) -> int:
        return problem.inner_solver.workspace_bytes(problem.inner_problem)

    def estimated_seconds(self, problem: GraphProblem) -> float:
        return problem.inner_solver.estimated_seconds(problem.inner_problem)

    def plan(self, problem: GraphProblem) -> Plan:
        return SinglePlan(problem, self.name)


def node_seconds(node: Node) -> float:
    """Return about how many seconds a node of its own launch takes."""
    moved = sum(tensor.spec.nbytes for tensor in (*node.inputs, *node.outputs))
    products = 0
    if isinstance(node, ConvolutionNode):
        _, window, response = node.bound
        products = prod(response.dims) * prod(window.dims[-node.convolution.rank - 1 :])
    return LAUNCH_SECONDS + max(moved / BYTES_PER_SECOND, products / PRODUCTS_PER_SECOND)


serve(GraphProblem, (NodeByNode(), OneOperation()), OperationGraph)
