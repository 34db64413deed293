"""The engines: what can execute an operation graph. Their numbers are the global indices of CUDNN_ATTR_ENGINE_GLOBAL_INDEX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..enumerations import cudnnBackendLayoutType_t, cudnnBackendNumericalNote_t
from ..operations.graph import ConvolutionNode, Node
from ..operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF

NCHW = cudnnBackendLayoutType_t.CUDNN_LAYOUT_TYPE_PREFERRED_NCHW
FLOATING = (FLOAT, DOUBLE, HALF, BFLOAT16)
COMPUTED = (FLOAT, DOUBLE, HALF)  # HALF is computed in float, which is more precise


@dataclass(frozen=True)
class Engine:
    """One engine. refuses: why it cannot execute these nodes, "" where it can. notes: what is true of its arithmetic for them."""

    name: str
    refuses: Callable[[Sequence[Node]], str]
    notes: Callable[[Sequence[Node]], tuple[cudnnBackendNumericalNote_t, ...]]
    layout: cudnnBackendLayoutType_t = NCHW


def _types(nodes: Sequence[Node]) -> str:
    """Why the types of these nodes cannot be computed with."""
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


ENGINES: tuple[Engine, ...] = (Engine("node by node", _types, lambda nodes: ()),)
