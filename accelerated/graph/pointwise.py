"""Plan consecutive pointwise operations of a graph as one launch (graph/pointwise.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_double, c_float, c_int, c_longlong
from functools import cache
from math import prod
from typing import Any, NamedTuple

from dualdnn.api.enumerations import cudnnNanPropagation_t
from dualdnn.api.operations import OperationGraph
from dualdnn.api.operations.graph import GraphTensor, Node, PointwiseNode
from dualdnn.api.operations.specs import DOUBLE

from ..plans import Launch, fields_of, structure
from ..primitives.geometry import FastDivmod, blocks, broadcast_strides, merge_dimensions
from ..runtime.arguments import declared
from .problem import DIMS, STORED, WIDTH, GraphProblem, padded

SOURCE = "graph/pointwise.cu"
STAGES = 8  # operations per launch, at most
OPERANDS = 12  # tensors in memory per launch, at most
CURRENT = -1  # operand number of the result of the previous operation
ABSENT = -2  # operand number where there is none


class OperandStruct(ctypes.Structure):
    """Describe a tensor in memory: its strides, the innermost dimension first, and its stored type."""

    _fields_ = (("strides", c_longlong * DIMS), ("type", c_int), ("reserved", c_int))


@cache
def _stage_type(scalar: Any) -> type[ctypes.Structure]:
    class Stage(ctypes.Structure):
        _fields_ = (
            *declared(scalar, "alpha1 alpha2 lower upper"),
            *declared(c_int, "mode propagates_nan x b y type"),
        )

    return Stage


def is_extended(operation: OperationGraph, chain: Sequence[PointwiseNode], node: Node) -> bool:
    """Return whether a node can follow a chain in the same launch. It must have the chain's shape, and read nothing
    that the chain writes but the last result.
    """
    if not isinstance(node, PointwiseNode) or len(chain) == STAGES:
        return False
    last, written = chain[-1].y, {earlier.y.operand for earlier in chain}
    others = [tensor for tensor in node.inputs if tensor.operand != last.operand]
    return (
        len(others) < len(node.inputs)
        and node.y.dims == last.dims
        and written.isdisjoint(tensor.operand for tensor in others)
        and len(operands(operation, [*chain, node])) <= OPERANDS
    )


def kept(operation: OperationGraph, chain: Sequence[PointwiseNode]) -> list[bool]:
    """Return, for each node of a chain, whether its result is written to memory: it is not virtual, or a node other
    than the next reads it.
    """
    found = []
    for node, following in zip(chain, [*chain[1:], None], strict=True):
        readers = [other for other in operation.nodes if node.y in other.inputs]
        found.append(not node.y.is_virtual or any(reader is not following for reader in readers))
    return found


def operands(operation: OperationGraph, chain: Sequence[PointwiseNode]) -> dict[str, GraphTensor]:
    """Return the tensors in memory that the launch of a chain reads or writes, by operand name."""
    found: dict[str, GraphTensor] = {}
    before: GraphTensor | None = None
    for node, written in zip(chain, kept(operation, chain), strict=True):
        found |= {
            tensor.operand: tensor for tensor in node.inputs if before is None or tensor.operand != before.operand
        }
        found |= {node.y.operand: node.y} if written else {}
        before = node.y
    return found


class Layout(NamedTuple):
    """Describe the tensors of a chain in memory.

    It has the operand names, the written tensors, the extents of the common dimensions, the innermost last, and the
    strides of each tensor.
    """

    tensors: dict[str, GraphTensor]
    written: tuple[bool, ...]
    extents: list[int]
    strides: list[list[int]]

    @classmethod
    def of(cls, problem: GraphProblem, chain: Sequence[PointwiseNode]) -> Layout:
        """Return the layout with the fewest dimensions, in the order of the last node's result."""
        dims, tensors = chain[-1].y.dims, operands(problem.operation, chain)
        strides = [broadcast_strides(t.dims, problem.spec(t).strides, dims) for t in tensors.values()]
        results = {node.y.operand for node in chain}
        return cls(tensors, tuple(name in results for name in tensors), *merge_dimensions(dims, strides))


def pointwise_launch(problem: GraphProblem, chain: Sequence[PointwiseNode], layout: Layout) -> Launch:
    """Return the launch of a chain of nodes by the kernel that reads the operations from its arguments."""
    arguments, vectors = chain_arguments(problem, chain, layout, WIDTH, OPERANDS, STAGES)
    definitions = (*problem.definitions, ("OPERANDS", str(OPERANDS)), ("STAGES", str(STAGES)))
    function = problem.device.function(SOURCE, "graph_pointwise", definitions)
    return Launch(function, arguments, tuple(layout.tensors), blocks(vectors))


def chain_arguments(
    problem: GraphProblem,
    chain: Sequence[PointwiseNode],
    layout: Layout,
    width: int,
    max_operands: int,
    max_stages: int,
) -> tuple[ctypes.Structure, int]:
    """Return the arguments of the chain kernels, and the number of vectors of ``width`` elements."""
    operation, extents = problem.operation, [*layout.extents[:-1], -(-layout.extents[-1] // width)]
    listed = [
        OperandStruct((c_longlong * DIMS)(*padded(step, DIMS, 0)[::-1]), STORED[tensor.data_type], 0)
        for tensor, step in zip(layout.tensors.values(), layout.strides, strict=True)
    ]
    scalar = c_double if operation.compute_type == DOUBLE else c_float
    arguments = structure(
        ("memory", (ctypes.c_void_p * max_operands)()),
        ("operands", (OperandStruct * max_operands)(*listed)),
        ("stages", (_stage_type(scalar) * max_stages)(*stages(operation, chain, list(layout.tensors), scalar))),
        ("extents", (FastDivmod * DIMS)(*map(FastDivmod.of, padded(extents, DIMS, 1)[::-1]))),
        *fields_of(
            c_int, rank=len(extents), vectors=prod(extents), stages_used=len(chain), innermost=layout.extents[-1]
        ),
    )
    return arguments, prod(extents)


def stages(operation: OperationGraph, chain: Sequence[PointwiseNode], names: list[str], scalar: Any) -> list[Any]:
    """Return the kernel's description of each node. ``names``: of the tensors in memory."""
    found = []
    before = ""
    for node, written in zip(chain, kept(operation, chain), strict=True):
        sources = [
            ABSENT if tensor is None else CURRENT if tensor.operand == before else names.index(tensor.operand)
            for tensor in (node.x, node.b)
        ]
        settings = node.pointwise
        propagates = settings.nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN
        result = names.index(node.y.operand) if written else ABSENT
        scalars = (node.alpha1, node.alpha2, settings.lower_clip, settings.upper_clip)
        found.append(
            _stage_type(scalar)(*scalars, settings.mode, propagates, *sources, result, STORED[node.y.data_type])
        )
        before = node.y.operand
    return found
