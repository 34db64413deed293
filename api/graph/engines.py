"""Define the engines that execute operation graphs; their numbers are the values of CUDNN_ATTR_ENGINE_GLOBAL_INDEX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..enumerations import cudnnBackendLayoutType_t, cudnnBackendNumericalNote_t
from ..operations import ConvolutionBiasActivationForward, allows_tf32
from ..operations.graph import ConvolutionNode, Node, OperationGraph, Single
from ..operations.graph_nodes import ConvolutionBackwardDataNode, ConvolutionForwardNode
from ..operations.graph_patterns import ALGORITHMS, ON_CORES_ENGINE, TENSOR_OP, Algorithm, NoPatternError, single
from ..operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF
from ..support.convolution import Problem, fused_unsupported, unsupported
from ..support.convolution_gradients import data_unsupported, filter_unsupported

NCHW, NHWC, *_ = cudnnBackendLayoutType_t
Note = cudnnBackendNumericalNote_t
FLOATING = (FLOAT, DOUBLE, HALF, BFLOAT16)
ON_CORES = (FLOAT, HALF, BFLOAT16)  # FLOAT is rounded to TF32.
ON_TENSOR_CORES = " on tensor cores"  # It ends the names of engines that use tensor cores.
COMPUTED = (FLOAT, DOUBLE, HALF)  # HALF is computed in float, which is more precise.


@dataclass(frozen=True)
class Engine:
    """Describe one engine. refuses: returns why it cannot execute nodes, or "". notes: returns the numerical notes of
    its arithmetic for them."""

    name: str
    refuses: Callable[[tuple[Node, ...]], str]
    notes: Callable[[tuple[Node, ...]], tuple[cudnnBackendNumericalNote_t, ...]]
    layout: cudnnBackendLayoutType_t = NCHW


def _types(nodes: tuple[Node, ...]) -> str:
    """Return why the types of these nodes are not supported, or ""."""
    for node in nodes:
        if node.precision not in COMPUTED:
            return f"the arithmetic is {node.precision.name}, {_names(COMPUTED)} are computed"
        for tensor in (*node.inputs, *node.outputs):
            if tensor.vector_count != 1:
                return f"tensor {tensor.uid} has vectors of {tensor.vector_count} elements"
            needs_floating = tensor.is_virtual or isinstance(node, ConvolutionNode)
            if needs_floating and tensor.data_type not in FLOATING:
                what = "is virtual" if tensor.is_virtual else "belongs to a convolution"
                return f"tensor {tensor.uid} {what} and is {tensor.data_type.name}, not one of {_names(FLOATING)}"
    return ""


def _names(types: Sequence[object]) -> str:
    return ", ".join(getattr(kind, "name", str(kind)) for kind in types)


def _by_algorithm(index: int, algorithm: Algorithm) -> Engine:
    """Return the engine of a documented algorithm and math type; it supports what the tables of its call list."""

    def refuses(nodes: tuple[Node, ...]) -> str:
        try:
            found = single(nodes, index)
        except NoPatternError as error:
            return str(error)
        assert found is not None
        if algorithm.math_type == TENSOR_OP and found.parts[0].data_type not in ON_CORES:
            return f"tensor cores multiply {_names(ON_CORES)}, not {found.parts[0].data_type.name}"
        return _between(nodes) or _outside_of_tables(found, algorithm, nodes)

    def notes(nodes: tuple[Node, ...]) -> tuple[cudnnBackendNumericalNote_t, ...]:
        found = single(nodes, index)
        return () if found is None else _notes(found, algorithm)

    words = algorithm.algo.name.removeprefix("CUDNN_CONVOLUTION_").lower().replace("_", " ")
    on_cores = algorithm.math_type == TENSOR_OP
    return Engine(f"{words}{ON_TENSOR_CORES if on_cores else ''}", refuses, notes, NHWC if on_cores else NCHW)


def _between(nodes: tuple[Node, ...]) -> str:
    """Return why a fused operation cannot keep the virtual tensors in its arithmetic's type, or ""."""
    for tensor in (tensor for node in nodes for tensor in node.outputs if tensor.is_virtual):
        if tensor.data_type not in FLOATING:
            return f"tensor {tensor.uid} is virtual and is {tensor.data_type.name}, not one of {_names(FLOATING)}"
    return ""


def _outside_of_tables(found: Single, algorithm: Algorithm, nodes: tuple[Node, ...]) -> str:
    problem = Problem(found.convolution, *found.parts)
    if algorithm.node is ConvolutionForwardNode:
        reason = unsupported(problem, algorithm.algo)
    elif algorithm.node is ConvolutionBackwardDataNode:
        reason = data_unsupported(problem, algorithm.algo)
    else:
        reason = filter_unsupported(problem, algorithm.algo)
    o = found.operation
    if reason is None and o.compute_type != OperationGraph(nodes, 0, 0, 0).compute_type:
        reason = f"the convolution computes in {o.compute_type.name}, other operations in another type"
    if reason is None and isinstance(o, ConvolutionBiasActivationForward):
        reason = fused_unsupported(problem, o)
    return reason or ""


def _notes(found: Single, algorithm: Algorithm) -> tuple[cudnnBackendNumericalNote_t, ...]:
    """Return the numerical notes on the arithmetic."""
    data_type, name = found.parts[0].data_type, algorithm.algo.name
    converts = data_type == FLOAT and algorithm.math_type == TENSOR_OP and allows_tf32(found.convolution)
    on_cores = converts or (algorithm.math_type == TENSOR_OP and data_type in (HALF, BFLOAT16))
    true = (
        (Note.CUDNN_NUMERICAL_NOTE_TENSOR_CORE, on_cores),
        (Note.CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, converts),
        (Note.CUDNN_NUMERICAL_NOTE_FFT, "FFT" in name),
        (Note.CUDNN_NUMERICAL_NOTE_WINOGRAD, "WINOGRAD" in name),
    )
    return tuple(note for note, holds in true if holds)


def _nothing_for_cores(nodes: tuple[Node, ...]) -> str:
    """Return why the last engine does not execute these nodes, or ""."""
    reason = _types(nodes)
    if reason:
        return reason
    if not any(isinstance(node, ConvolutionNode) and node.inputs[0].data_type in (HALF, BFLOAT16) for node in nodes):
        return "there is no convolution of HALF or BFLOAT16 for tensor cores"
    whole = (engine for engine in ENGINES[1:ON_CORES_ENGINE] if not engine.refuses(nodes))
    name = next((engine.name for engine in whole if engine.name.endswith(ON_TENSOR_CORES)), "")
    return name and f"the engine {name} executes the graph as one operation"


def _node_by_node(index: int) -> Engine:
    if index != ON_CORES_ENGINE:
        return Engine("node by node", _types, lambda nodes: ())
    notes = (Note.CUDNN_NUMERICAL_NOTE_TENSOR_CORE,)
    return Engine(f"node by node{ON_TENSOR_CORES}", _nothing_for_cores, lambda nodes: notes, NHWC)


# The order defines the global indices and must not change.
ENGINES: tuple[Engine, ...] = tuple(
    _node_by_node(index) if algorithm is None else _by_algorithm(index, algorithm)
    for index, algorithm in enumerate(ALGORITHMS)
)
