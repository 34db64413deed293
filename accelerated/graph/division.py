"""Divide an operation graph into runs of nodes that are one documented operation, chains of pointwise nodes, and single
nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dualdnn.api.enumerations import cudnnActivationMode_t, cudnnPointwiseMode_t
from dualdnn.api.operations import (
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    ConvScaleBiasAddActivation,
    OperationGraph,
    ScaleBiasActivationConvBnstats,
)
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
from dualdnn.api.operations.specs import BFLOAT16, FLOAT, HALF
from dualdnn.api.support.convolution import IMPLICIT_PRECOMP_GEMM, Problem, fused_unsupported, unsupported
from dualdnn.api.support.convolution_gradients import DATA_ALGO_1, FILTER_ALGO_1, data_unsupported, filter_unsupported

from ..plans import estimated_seconds, workspace_bytes
from ..solver import SOLVER_FAMILIES
from .chain import sums_division
from .pointwise import is_extended
from .problem import GraphProblem

# Each node has the documented algorithm that computes it inside a graph, and the name of the restriction in its tables.
DOCUMENTED: dict[type[Node], tuple[Any, Callable[[Problem, Any], str | None]]] = {
    ConvolutionForwardNode: (IMPLICIT_PRECOMP_GEMM, unsupported),
    ConvolutionBackwardDataNode: (DATA_ALGO_1, data_unsupported),
    ConvolutionBackwardFilterNode: (FILTER_ALGO_1, filter_unsupported),
}
SUMMING = "fused_ops.convolution_statistics"  # name prefix of the solvers whose convolutions sum their results
SCALING = "fused_ops.convolution_factors"  # name prefix of the solvers whose convolutions scale their results
MUL = cudnnPointwiseMode_t.CUDNN_POINTWISE_MUL
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
        if not _is_private(problem.operation, nodes):
            return None
        return cls._described(problem, nodes)

    @classmethod
    def with_statistics(
        cls, problem: GraphProblem, node: ConvolutionNode, statistics: GenStatsNode
    ) -> Documented | None:
        """Return the convolution that sums its own results, or None where its kernel cannot; the results are then read
        again.
        """
        alone = cls._described(problem, (node,))
        if alone is None or not isinstance(alone.operation, ConvolutionForward):
            return None
        o, tensors = alone.operation, (statistics.sum, statistics.sqsum)
        if (o.alpha, o.beta, problem.operation.compute_type) != (1, 0, FLOAT) or any(
            t.data_type != FLOAT for t in tensors
        ):
            return None
        sums, squares = map(problem.spec, tensors)
        if sums != squares:  # One descriptor describes both.
            return None
        summed = ScaleBiasActivationConvBnstats(
            o.convolution, None, o.algo, 0, o.x, None, None, o.w, o.y, sums, squares
        )
        names = {**alone.single.names, "ySum": statistics.sum.operand, "ySqSum": statistics.sqsum.operand}
        return cls._by(problem, (node, statistics), alone.single, summed, names, SUMMING)

    @classmethod
    def scaled(cls, problem: GraphProblem, nodes: tuple[Node, ...]) -> Documented | None:
        """Return the convolution that scales its results by channel before a residual, a bias and a ReLU, or None where
        its kernel cannot.
        """
        convolution, product, *others = nodes
        if not isinstance(convolution, ConvolutionForwardNode) or not isinstance(product, PointwiseNode):
            return None
        y = convolution.y
        scale = product.b if product.x == y else product.x
        plain = product.pointwise.mode == MUL and (product.alpha1, product.alpha2) == (1, 1)
        if scale is None or scale == y or not plain or not others or not _is_private(problem.operation, nodes):
            return None
        alone = cls._described(problem, (replace(convolution, y=product.y), *others))
        if alone is None or scale.dims != (1, y.dims[1], *(1,) * (y.rank - 2)):
            return None
        o, names = alone.operation, dict(alone.single.names)
        if o.alpha1 != 1 or o.alpha2 not in (0, 1):
            return None
        activation = o.activation if o.activation.mode == cudnnActivationMode_t.CUDNN_ACTIVATION_RELU else None
        added = o.z if o.alpha2 else None
        summed = ConvScaleBiasAddActivation(
            o.convolution, activation, o.algo, 0, o.x, o.w, problem.spec(scale), added, None, o.bias, o.y
        )
        names |= {"eqScale": scale.operand, "zEqBias": names.pop("bias")}
        return cls._by(problem, nodes, alone.single, summed, names, SCALING)

    @classmethod
    def _by(
        cls,
        problem: GraphProblem,
        nodes: tuple[Node, ...],
        alone: Single,
        operation: Any,
        names: dict[str, str],
        solver: str,
    ) -> Documented | None:
        """Return a fused operation that a solver with this name prefix serves, or None."""
        family = SOLVER_FAMILIES[type(operation)]
        if not family.solver(family.problem(operation, problem.device)).name.startswith(solver):
            return None
        sized = replace(operation, workspace_bytes=workspace_bytes(operation, problem.device))
        return cls(nodes, replace(alone, operation=operation, names=names), sized)

    @classmethod
    def _described(cls, problem: GraphProblem, nodes: tuple[Node, ...]) -> Documented | None:
        """Return the documented operation of these nodes."""
        graph, first = problem.operation, nodes[0]
        assert isinstance(first, ConvolutionNode)
        tensors = {tensor for node in nodes for tensor in (*node.inputs, *node.outputs)}
        if any(problem.spec(tensor) != tensor.spec for tensor in tensors):
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
    """Name the pointwise nodes of one launch, and the statistics of the last result that the launch sums."""

    nodes: tuple[PointwiseNode, ...]
    statistics: GenStatsNode | None = None


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
            summed = next((n for n in nodes if isinstance(n, GenStatsNode) and n.x == chain[-1].y), None)
            if summed is None or sums_division(problem, chain) is None:
                return Chain(tuple(chain)), chain
            return Chain(tuple(chain), summed), [*chain, summed]
        case GenStatsNode() as statistics:
            return Statistics(statistics), [statistics]
        case ConvolutionNode() as convolution:
            reader = next((n for n in nodes if isinstance(n, GenStatsNode) and n.x == convolution.outputs[0]), None)
            with_sums = reader and Documented.with_statistics(problem, convolution, reader)
            if with_sums:
                return with_sums, with_sums.nodes
            for length in range(min(len(nodes), 2 + MAX_EPILOGUE), 0, -1):
                run = tuple(nodes[:length])
                documented = Documented.of(problem, run) or (Documented.scaled(problem, run) if length > 2 else None)
                if documented is not None:
                    return documented, documented.nodes
            return Direct(convolution), [convolution]
    raise TypeError(f"{type(nodes[0]).__name__} is not a node of a graph")


def _is_private(graph: OperationGraph, nodes: tuple[Node, ...]) -> bool:
    """Return whether the tensors between the nodes of a run are virtual, and no other node reads them."""
    passed = [tensor for node in nodes[:-1] for tensor in node.outputs]
    readers = [node for node in graph.nodes if node not in nodes]
    return all(tensor.is_virtual and all(tensor not in node.inputs for node in readers) for tensor in passed)


def documented_seconds(part: Documented, device: Any) -> float:
    """Return the approximate seconds of a documented operation. Sums that its kernel computes take almost no time."""
    o = part.operation
    return estimated_seconds(
        o.inner if isinstance(o, ScaleBiasActivationConvBnstats | ConvScaleBiasAddActivation) else o, device
    )
