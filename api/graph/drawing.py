"""Draw an operation graph as the text of a Mermaid flowchart, for the log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..operations.graph import GraphTensor, Node, PointwiseNode


def mermaid(nodes: Sequence[Node]) -> list[str]:
    """Return the lines of the flowchart: boxes are operations, rounded boxes are tensors with memory, hexagons are
    virtual tensors."""
    lines, seen = ["flowchart LR"], set[int]()
    for index, node in enumerate(nodes):
        operation = f"op{index}"
        lines.append(f'  {operation}["{_called(node)}"]')
        for tensor in (*node.inputs, *node.outputs):
            name, dims = f"t{tensor.uid}".replace("-", "m"), _described(tensor)
            if tensor.uid not in seen:
                lines.append(f'  {name}{{{{"{dims}"}}}}' if tensor.is_virtual else f'  {name}(["{dims}"])')
            seen.add(tensor.uid)
            lines.append(f"  {operation} --> {name}" if tensor in node.outputs else f"  {name} --> {operation}")
    return lines


def _called(node: Node) -> str:
    if isinstance(node, PointwiseNode):
        return node.pointwise.mode.name.removeprefix("CUDNN_POINTWISE_").lower()
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(node).__name__.removesuffix("Node")).lower()


def _described(tensor: GraphTensor) -> str:
    return f"{tensor.uid}: {' x '.join(map(str, tensor.dims))}"
