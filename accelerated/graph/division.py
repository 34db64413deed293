"""How an operation graph is divided: runs of nodes that are one documented operation, chains of pointwise nodes, single nodes."""

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
from dualdnn.api.support.convolution import IMPLICIT_PRECOMP_GEMM, Problem, unsupported
from dualdnn.api.support.convolution_gradients import DATA_ALGO_1, FILTER_ALGO_1, data_unsupported, filter_unsupported

from ..plans import estimated_seconds, workspace_bytes
from .pointwise import is_extended
from .problem import GraphProblem

# The documented algorithm that computes a convolution inside a graph, and what its tables lack.
DOCUMENTED: dict[type[Node], tuple[Any, Callable[[Problem, Any], str | None]]] = {
    ConvolutionForwardNode: (IMPLICIT_PRECOMP_GEMM, unsupported),
    ConvolutionBackwardDataNode: (DATA_ALGO_1, data_unsupported),
    ConvolutionBackwardFilterNode: (FILTER_ALGO_1, filter_unsupported),
}
LONGEST_EPILOGUE = 3  # nodes behind a convolution that one operation computes: a residual, a bias, an activation


@dataclass(frozen=True)
class Documented:
    """Nodes that are one documented operation, with the workspace that it needs."""

    nodes: tuple[Node, ...]
    single: Single
    operation: Any

    @classmethod
    def of(cls, problem: GraphProblem, nodes: tuple[Node, ...]) -> Documented | None:
        """Return the operation of these nodes, None where the tables have none or a solver of this room must serve."""
        graph, first = problem.operation, nodes[0]
        assert isinstance(first, ConvolutionNode)
        tensors = {tensor for node in nodes for tensor in (*node.inputs, *node.outputs)}
        if any(problem.spec(tensor) != tensor.spec for tensor in tensors) or not _is_private(graph, nodes):
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
        if isinstance(operation, ConvolutionBiasActivationForward) and operation.bias.strides[1] != 1:
            return None
        return cls(nodes, found, replace(operation, workspace_bytes=workspace_bytes(operation, problem.device)))


@dataclass(frozen=True)
class Chain:
    """Pointwise nodes of one launch."""

    nodes: tuple[PointwiseNode, ...]


@dataclass(frozen=True)
class Statistics:
    """A node of statistics."""

    node: GenStatsNode


@dataclass(frozen=True)
class Direct:
    """A convolution that graph/convolution.cu computes."""

    node: ConvolutionNode


Part = Documented | Chain | Statistics | Direct


def parts(problem: GraphProblem) -> list[Part]:
    """Return what computes the nodes of a graph, in an order in which they can run."""
    nodes, found, start = problem.operation.nodes, list[Part](), 0
    while start < len(nodes):
        part, length = _next(problem, nodes[start:])
        found.append(part)
        start += length
    return found


def _next(problem: GraphProblem, nodes: Sequence[Node]) -> tuple[Part, int]:
    """Return what computes the first of these nodes, and how many it computes."""
    match nodes[0]:
        case PointwiseNode() as first:
            chain = [first]
            while len(chain) < len(nodes) and is_extended(problem.operation, chain, nodes[len(chain)]):
                following = nodes[len(chain)]
                assert isinstance(following, PointwiseNode)
                chain.append(following)
            return Chain(tuple(chain)), len(chain)
        case GenStatsNode() as statistics:
            return Statistics(statistics), 1
        case ConvolutionNode() as convolution:
            for length in range(min(len(nodes), 1 + LONGEST_EPILOGUE), 0, -1):
                documented = Documented.of(problem, tuple(nodes[:length]))
                if documented is not None:
                    return documented, length
            return Direct(convolution), 1
    raise TypeError(f"{type(nodes[0]).__name__} is no node of a graph")


def _is_private(graph: OperationGraph, nodes: tuple[Node, ...]) -> bool:
    """Return whether what nodes of a run pass to each other is virtual, and nobody else reads it."""
    passed = [tensor for node in nodes[:-1] for tensor in node.outputs]
    readers = [node for node in graph.nodes if node not in nodes]
    return all(tensor.is_virtual and all(tensor not in node.inputs for node in readers) for tensor in passed)


def documented_seconds(part: Documented, device: Any) -> float:
    """Return about how many seconds a documented operation takes."""
    return estimated_seconds(part.operation, device)
