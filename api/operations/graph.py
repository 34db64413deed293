"""Define an operation graph (chapter 9) as an operation: what cudnnBackendExecute (5.2.3) asks of a backend."""

from __future__ import annotations

from functools import cached_property

from ..enumerations import cudnnDataType_t
from .graph_nodes import (
    ConvolutionBackwardDataNode,
    ConvolutionBackwardFilterNode,
    ConvolutionForwardNode,
    ConvolutionNode,
    GenStatsNode,
    GraphConvolution,
    GraphTensor,
    KnobChoice,
    Node,
    PointwiseNode,
    PointwiseSettings,
)
from .graph_patterns import Single, single
from .operation import NOT_BLENDED, MemoryRequirement, Operation
from .records import record
from .specs import DOUBLE, FLOAT, TensorSpec

__all__ = [
    "ConvolutionBackwardDataNode",
    "ConvolutionBackwardFilterNode",
    "ConvolutionForwardNode",
    "ConvolutionNode",
    "GenStatsNode",
    "GraphConvolution",
    "GraphTensor",
    "KnobChoice",
    "Node",
    "OperationGraph",
    "PointwiseNode",
    "PointwiseSettings",
    "Single",
]


@record
class OperationGraph(Operation):
    """Hold the nodes of a graph in topological order and the engine that executes them (5.2.3).

    engine: the engine's global index. choice: the value of its knob. ``workspace_bytes`` is what the backend
    needs for them; it is 0 in the query for that size. The operands are the tensors that are not virtual, named by
    ``GraphTensor.operand``. A tensor that a beta blends in is read and written.
    """

    nodes: tuple[Node, ...]
    engine: int
    choice: int
    workspace_bytes: int

    raw = {"workspace": "workspace_bytes"}  # noqa: RUF012 (a class constant)

    @cached_property
    def tensors(self) -> dict[str, GraphTensor]:
        """Return every tensor of the graph by operand name, virtual ones included."""
        listed = (tensor for node in self.nodes for tensor in (*node.inputs, *node.outputs))
        return {tensor.operand: tensor for tensor in listed}

    @cached_property
    def written(self) -> dict[str, Node]:
        """Return a map from an operand name to the node that writes it."""
        return {tensor.operand: node for node in self.nodes for tensor in node.outputs}

    @cached_property
    def single(self) -> Single | None:
        """Return the single operation that the engine runs for this graph, or None if the engine runs node by node."""
        return single(self.nodes, self.engine)

    @cached_property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        """Return the tensors that no node writes; node by node, also the tensors that a beta blends in."""
        if self.single is not None:
            o = self.single.operation
            return tuple(dict.fromkeys(self.single.names[name] for name in o.tensors_read if name in o.reads))
        return tuple(name for name in self.tensors if name not in self.written or self.written[name].blends)

    @cached_property
    def outputs(self) -> tuple[str, ...]:  # type: ignore[override]
        """Return the written tensors that are not virtual."""
        return tuple(name for name in self.written if not self.tensors[name].is_virtual)

    def __getattr__(self, name: str) -> GraphTensor:
        """Return a tensor by its operand name; other operations have fields instead."""
        if name.startswith("tensor_") and name in self.tensors:
            return self.tensors[name]
        raise AttributeError(name)

    def has(self, operand: str) -> bool:
        return True

    def inner(self, operand: str) -> str:
        """Return the name of an operand in the single operation."""
        assert self.single is not None
        o = self.single.operation
        named = [name for name, outer in self.single.names.items() if outer == operand]
        return next((name for name in named if name in o.outputs), named[0])

    def tensor(self, operand: str) -> TensorSpec:
        if self.single is not None:
            spec: TensorSpec = self.single.operation.tensor(self.inner(operand))
            return spec
        return self.tensors[operand].spec

    def memory_requirements(self) -> dict[str, MemoryRequirement]:
        required, stored = super().memory_requirements(), self.tensors.items()
        return required | {n: required[n]._replace(alignment=t.alignment) for n, t in stored if n in required}

    def blend_of(self, output: str) -> tuple[float, float]:
        """Return (alpha, beta) of the single operation; without one, nodes blend by themselves and the result is (1,
        0)."""
        return NOT_BLENDED if self.single is None else self.single.operation.blend_of(self.inner(output))

    @cached_property
    def compute_type(self) -> cudnnDataType_t:
        """Return DOUBLE if a tensor or a node is DOUBLE, else FLOAT."""
        types = {tensor.data_type for tensor in self.tensors.values()} | {node.precision for node in self.nodes}
        return DOUBLE if DOUBLE in types else FLOAT
