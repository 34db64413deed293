"""Divide an operation graph into runs of nodes that are one documented operation, chains of pointwise nodes, and single
nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dualdnn.api.operations import ConvolutionBiasActivationForward, OperationGraph
from dualdnn.api.operations.graph import (
    ConvolutionBackwardDataNode,
    ConvolutionBackwardFilterNode,
    ConvolutionForwardNode,
    ConvolutionNode,
    GenStatsNode,
    Node,
    PointwiseNode,
    Single,
)
from dualdnn.api.operations.graph_patterns import ALGORITHMS, FMA, ON_CORES_ENGINE, TENSOR_OP, NoPatternError, single
from dualdnn.api.operations.specs import BFLOAT16, HALF
from dualdnn.api.support.convolution import IMPLICIT_PRECOMP_GEMM, Problem, fused_unsupported, unsupported
from dualdnn.api.support.convolution_gradients import DATA_ALGO_1, FILTER_ALGO_1, data_unsupported, filter_unsupported

from ..plans import workspace_bytes
from .pointwise import is_extended
from .problem import GraphProblem

# Each node has the documented algorithm that computes it inside a graph, and the name of the restriction in its tables.
DOCUMENTED: dict[type[Node], tuple[Any, Callable[[Problem, Any], str | None]]] = {
    ConvolutionForwardNode: (IMPLICIT_PRECOMP_GEMM, unsupported),
    ConvolutionBackwardDataNode: (DATA_ALGO_1, data_unsupported),
    ConvolutionBackwardFilterNode: (FILTER_ALGO_1, filter_unsupported),
}
MAX_EPILOGUE = 3  # nodes after a convolution that one operation computes: a residual, a bias, an activation


@dataclass(frozen=True)
class Documented:
    """Hold the nodes of one documented operation, and the operation with its workspace."""

    nodes: tuple[Node, ...]
    single: Single
    operation: Any

    @classmethod
    def of(cls, problem: GraphProblem, nodes: tuple[Node, ...]) -> Documented | None:
        """Return the operation of these nodes, or None where the tables list no such operation or a solver of this
        package must serve.
        """
        graph, first = problem.operation, nodes[0]
        assert isinstance(first, ConvolutionNode)
        tensors = {tensor for node in nodes for tensor in (*node.inputs, *node.outputs)}
        if not _is_private(graph, nodes) or any(problem.spec(tensor) != tensor.spec for tensor in tensors):
            return None
        algo, lacks = DOCUMENTED[type(first)]
        on_cores = graph.engine == ON_CORES_ENGINE and first.inputs[0].data_type in (HALF, BFLOAT16)
        engine = next(
            i for i, known in enumerate(ALGORITHMS)
            if known is not None and (known.algo, known.math_type) == (algo, TENSOR_OP if on_cores else FMA)
        )  # fmt: skip
        try:
            found = single(nodes, engine)
        except NoPatternError:
            return None
        assert found is not None
        operation = found.operation
        convolution = Problem(found.convolution, *found.parts)
        if lacks(convolution, algo) is not None or operation.compute_type != graph.compute_type:
            return None
        if isinstance(operation, ConvolutionBiasActivationForward) and fused_unsupported(convolution, operation):
            return None
        return cls(nodes, found, replace(operation, workspace_bytes=workspace_bytes(operation, problem.device)))


@dataclass(frozen=True)
class Chain:
    """Name the pointwise nodes of one launch."""

    nodes: tuple[PointwiseNode, ...]


@dataclass(frozen=True)
class Statistics:
    """Name a node of statistics."""

    node: GenStatsNode


@dataclass(frozen=True)
class Direct:
    """Name a convolution that graph/convolution.cu computes."""

    node: ConvolutionNode


Part = Documented | Chain | Statistics | Direct


def parts(problem: GraphProblem) -> list[Part]:
    """Return the parts that compute the nodes of a graph, in an order in which they can run."""
    left, found = list(problem.operation.nodes), list[Part]()
    while left:
        part, computed = _next(problem, left)
        found.append(part)
        left = [node for node in left if node not in computed]
    return found


def _next(problem: GraphProblem, nodes: Sequence[Node]) -> tuple[Part, Sequence[Node]]:
    """Return the part that computes the first of these nodes, and the nodes that it computes."""
    match nodes[0]:
        case PointwiseNode() as first:
            chain = [first]
            while len(chain) < len(nodes) and is_extended(problem.operation, chain, nodes[len(chain)]):
                following = nodes[len(chain)]
                assert isinstance(following, PointwiseNode)
                chain.append(following)
            return Chain(tuple(chain)), chain
        case GenStatsNode() as statistics:
            return Statistics(statistics), [statistics]
        case ConvolutionNode() as convolution:
            for length in range(min(len(nodes), 1 + MAX_EPILOGUE), 0, -1):
                documented = Documented.of(problem, tuple(nodes[:length]))
                if documented is not None:
                    return documented, documented.nodes
            return Direct(convolution), [convolution]
    raise TypeError(f"{type(nodes[0]).__name__} is not a node of a graph")


def _is_private(graph: OperationGraph, nodes: tuple[Node, ...]) -> bool:
    """Return whether the tensors between the nodes of a run are virtual, and no other node reads them."""
    passed = [tensor for node in nodes[:-1] for tensor in node.outputs]
    readers = [node for node in graph.nodes if node not in nodes]
    return all(tensor.is_virtual and all(tensor not in node.inputs for node in readers) for tensor in passed)
