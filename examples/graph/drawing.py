"""An operation graph as text for Mermaid or Graphviz, read back from its descriptor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from descriptors import DESCRIPTOR, INT64, get
from dualdnn.api import cudnn

# Attributes that hold the tensors which an operation reads and writes, by the begin of their names.
OPERANDS = {
    cudnn.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: ("OPERATION_CONVOLUTION_FORWARD", ("X", "W"), ("Y",)),
    cudnn.CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR: ("OPERATION_CONVOLUTION_BWD_DATA", ("W", "DY"), ("DX",)),
    cudnn.CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: ("OPERATION_CONVOLUTION_BWD_FILTER", ("X", "DY"), ("DW",)),
    cudnn.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: ("OPERATION_POINTWISE", ("XDESC", "BDESC"), ("YDESC",)),
    cudnn.CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR: ("OPERATION_GENSTATS", ("XDESC",), ("SUMDESC", "SQSUMDESC")),
}  # fmt: skip


def _operations(graph: Any) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """(what it is called, tensors that it reads, tensors that it writes) of every operation."""
    for operation in get(graph, "OPERATIONGRAPH_OPS", DESCRIPTOR):
        prefix, reads, writes = OPERANDS[operation.kind]
        tensors = [[t for n in names for t in get(operation, f"{prefix}_{n}", DESCRIPTOR)] for names in (reads, writes)]
        name = prefix.removeprefix("OPERATION_").replace("_", " ").lower()
        if prefix == "OPERATION_POINTWISE":
            (settings,) = get(operation, "OPERATION_POINTWISE_PW_DESCRIPTOR", DESCRIPTOR)
            (mode,) = get(settings, "POINTWISE_MODE", cudnn.CUDNN_TYPE_POINTWISE_MODE)
            name = mode.name.removeprefix("CUDNN_POINTWISE_").lower()
        yield name, tensors[0], tensors[1]


def _tensor(tensor: Any) -> tuple[str, str, bool]:
    """(a name, dimensions, whether it is virtual) of a tensor."""
    (uid,), dims = get(tensor, "TENSOR_UNIQUE_ID", INT64), get(tensor, "TENSOR_DIMENSIONS", INT64)
    (virtual,) = get(tensor, "TENSOR_IS_VIRTUAL", cudnn.CUDNN_TYPE_BOOLEAN)
    return f"t{uid}".replace("-", "m"), f"{uid}: {' x '.join(map(str, dims))}", virtual


def mermaid(graph: Any) -> str:
    """A flowchart: operations as boxes, tensors with memory as rounded boxes, virtual ones on the arrows' way."""
    lines, seen = ["flowchart LR"], set()
    for index, (name, reads, writes) in enumerate(_operations(graph)):
        lines.append(f'  op{index}["{name}"]')
        for tensor, arrow in [*((t, "{0} --> {1}") for t in reads), *((t, "{1} --> {0}") for t in writes)]:
            key, dims, virtual = _tensor(tensor)
            if key not in seen:
                lines.append(f'  {key}{{{{"{dims}"}}}}' if virtual else f'  {key}(["{dims}"])')
            seen.add(key)
            lines.append("  " + arrow.format(key, f"op{index}"))
    return "\n".join(lines)


def graphviz(graph: Any) -> str:
    """The same for ``dot``: virtual tensors are dashed."""
    lines, seen = ["digraph {", "  rankdir=LR"], set()
    for index, (name, reads, writes) in enumerate(_operations(graph)):
        lines.append(f'  op{index} [shape=box label="{name}"]')
        for tensor, arrow in [*((t, "{0} -> {1}") for t in reads), *((t, "{1} -> {0}") for t in writes)]:
            key, dims, virtual = _tensor(tensor)
            if key not in seen:
                lines.append(f'  {key} [shape=oval label="{dims}"{" style=dashed" if virtual else ""}]')
            seen.add(key)
            lines.append("  " + arrow.format(key, f"op{index}"))
    return "\n".join([*lines, "}"])
