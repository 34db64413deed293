"""Finalise operation graphs (9.2.15): check the nodes, order them, and find the engines that can execute them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from .. import api_log
from ..enumerations import cudnnBackendAttributeName_t as Name
from ..enumerations import cudnnBackendDescriptorType_t as Kind
from ..handle import Handle
from ..operations.graph import GraphTensor, Node
from ..operations.graph_nodes import ConvolutionNode
from ..operations.specs import SCALAR_BYTES
from ..status import BAD_PARAM, NOT_SUPPORTED, CudnnError, expect
from .drawing import mermaid
from .engines import ENGINES
from .life_cycle import Given, finalizes_with_results

SECTION = "CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR"
SCALARS = 2**31  # scalars per tensor, the exclusive limit of 32-bit indices (docs/errata.md, D125)
POSITIONS = 2**31  # positions of a padded image, and strides and dilations, the exclusive limit (docs/errata.md, D670)


@dataclass(frozen=True)
class Graph:
    """Hold the nodes of a graph in topological order, and the handle for which it was described."""

    handle: Handle
    nodes: tuple[Node, ...]


@finalizes_with_results(Kind.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
def operation_graph(given: Given) -> tuple[Graph, Mapping[Name, tuple[Any, ...]]]:
    handle = given.one("HANDLE")
    expect(handle.alive, BAD_PARAM, f"{SECTION}/c13", "CUDNN_ATTR_OPERATIONGRAPH_HANDLE was destroyed by cudnnDestroy")
    nodes = ordered([element.record for element in given.all("OPS")])
    for tensor in {tensor for node in nodes for tensor in (*node.inputs, *node.outputs)}:
        _storable(tensor, any(tensor in node.outputs for node in nodes))
    for node in nodes:
        if isinstance(node, ConvolutionNode):
            _countable(node)
    refusals = [engine.refuses(nodes) for engine in ENGINES]
    if all(refusals):
        named = enumerate(zip(ENGINES, refusals, strict=True))
        reasons = [f"engine {i}, {engine.name}: {reason}" for i, (engine, reason) in named]
        api_log.log_unsupported("cudnnBackendFinalize", reasons)
        raise CudnnError(NOT_SUPPORTED, f"{SECTION}/c15", f"no engine executes these operations: {'; '.join(reasons)}")
    if api_log.active:
        api_log.log_graph("cudnnBackendFinalize", mermaid(nodes))
    return Graph(handle, nodes), {Name.CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT: (len(ENGINES),)}


def ordered(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes in topological order; raise BAD_PARAM if they do not form a graph."""
    clause = f"{SECTION}/c14"
    described: dict[int, GraphTensor] = {}
    writers: dict[int, int] = {}
    for index, node in enumerate(nodes):
        for tensor in (*node.inputs, *node.outputs):
            known = described.setdefault(tensor.uid, tensor)
            expect(
                known == tensor, BAD_PARAM, clause, f"two tensors have the unique id {tensor.uid}: {known} and {tensor}"
            )
        for tensor in node.outputs:
            expect(tensor.uid not in writers, BAD_PARAM, clause, f"tensor {tensor.uid} is written twice")
            writers[tensor.uid] = index
            blended = node.blends and tensor.is_virtual
            expect(
                not blended,
                BAD_PARAM,
                clause,
                f"beta blends in tensor {tensor.uid}, which is virtual: it held nothing before",
            )
    read = {tensor.uid for node in nodes for tensor in node.inputs}
    for uid, tensor in described.items():
        loose = tensor.is_virtual and not (uid in writers and uid in read)
        text = f"the virtual tensor {uid} is {'read' if uid in read else 'written'} and never {'written' if uid in read else 'read'}"
        expect(not loose, BAD_PARAM, clause, text)
    needs = {i: {writers[t.uid] for t in node.inputs if t.uid in writers} for i, node in enumerate(nodes)}
    try:
        order = tuple(TopologicalSorter(needs).static_order())
    except CycleError as error:
        circle = " -> ".join(str(index) for index in error.args[1])
        raise CudnnError(BAD_PARAM, clause, f"the operations {circle} wait for each other's outputs") from None
    return tuple(nodes[index] for index in order)


def _storable(tensor: GraphTensor, written: bool) -> None:
    """Raise an error if the elements exceed 32-bit indices, or if a written tensor overlaps itself; every engine
    requires this."""
    clause, size = f"{SECTION}/c16", SCALAR_BYTES[tensor.data_type]
    spans = 1 + sum((extent - 1) * stride for extent, stride in zip(tensor.dims, tensor.strides, strict=True))
    few = spans * tensor.vector_count < SCALARS
    expect(
        few,
        NOT_SUPPORTED,
        clause,
        f"tensor {tensor.uid} spans {spans} elements of {size} bytes, fewer than {SCALARS} are supported",
    )
    apart = not (written and tensor.spec.overlaps)
    expect(
        apart, NOT_SUPPORTED, clause, f"tensor {tensor.uid} is written, and has several elements in one place: {tensor}"
    )


def _countable(node: ConvolutionNode) -> None:
    """Raise NOT_SUPPORTED (c16) if the positions of a padded image exceed 32 bits, which every engine uses."""
    c, image = node.convolution, node.bound[0].scalar_dims[-node.convolution.rank :]
    padded = tuple(map(sum, zip(image, c.pre_padding, c.post_padding, strict=True)))
    furthest = max(*padded, *c.stride, *c.dilation)
    text = f"image {padded} with its padding, stride {c.stride}, dilation {c.dilation}: fewer than {POSITIONS} are supported"
    expect(furthest < POSITIONS, NOT_SUPPORTED, f"{SECTION}/c16", text)
