"""Pointwise operations of a graph that follow each other, by a kernel that is compiled for them (graph/chain.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_double
from math import prod

from dualdnn.api.operations.graph import PointwiseNode
from dualdnn.api.operations.specs import SCALAR_BYTES

from ..plans import BackgroundLaunch, Launch
from ..primitives.geometry import blocks
from ..runtime.errors import CompileError, DeviceUnavailable
from .pointwise import Layout, chain_arguments, pointwise_launch, stages
from .problem import STORED, WIDTH, GraphProblem

SOURCE, KERNEL, THREADS = "graph/chain.cu", "graph_chain", 256
PACK_BYTES = 16  # of an access
LEAST_ELEMENTS = 1 << 16  # of results: smaller chains take little more than a launch, whatever computes them


def chain_launch(problem: GraphProblem, chain: Sequence[PointwiseNode]) -> Launch:
    """Return the launch of a chain of nodes: by the kernel that is compiled for it where it is large, for which another one serves
    until it is compiled and where operands are not aligned."""
    layout = Layout.of(problem, chain)
    any_chain = pointwise_launch(problem, chain, layout)
    width = width_of(layout)
    if not width:
        return any_chain
    arguments, packs = chain_arguments(problem, chain, layout, width, len(layout.tensors), len(chain))
    module = (SOURCE, _definitions(problem, chain, layout, width))
    grid = blocks(packs, THREADS)
    try:
        function = problem.device.function_when_ready(module[0], KERNEL, module[1])
    except (CompileError, DeviceUnavailable):
        return any_chain
    launch = Launch(function, arguments, tuple(layout.tensors), grid, (THREADS, 1, 1))
    return BackgroundLaunch(problem.device, module, KERNEL, launch, any_chain, _alignment(layout, width))


def width_of(layout: Layout) -> int:
    """Return how many elements a pack has; 0 where the kernel does not serve, or serves no better."""
    width = WIDTH if min(SCALAR_BYTES[tensor.data_type] for tensor in layout.tensors.values()) < 4 else WIDTH // 2
    if layout.extents[-1] % width or prod(layout.extents) < LEAST_ELEMENTS:
        return 0
    for strides, written in zip(layout.strides, layout.written, strict=True):
        packed = strides[-1] == 1 and all(stride % width == 0 for stride in strides[:-1])
        if not packed and (written or strides[-1] != 0):
            return 0
    return width


def _alignment(layout: Layout, width: int) -> list[int]:
    """Return the bytes of which the address of each tensor must be a multiple: those of an access."""
    sizes = [SCALAR_BYTES[tensor.data_type] for tensor in layout.tensors.values()]
    return [min(PACK_BYTES, width * size) if step[-1] else 1 for size, step in zip(sizes, layout.strides, strict=True)]


def _definitions(
    problem: GraphProblem, chain: Sequence[PointwiseNode], layout: Layout, width: int
) -> tuple[tuple[str, str], ...]:
    """Return what of the chain is constant in its kernel."""
    tensors = layout.tensors.values()
    operations = (
        (s.mode, s.propagates_nan, s.x, s.b, s.y, s.type, int(s.alpha1 != 1), int(s.alpha2 != 1))
        for s in stages(problem.operation, chain, list(layout.tensors), c_double)
    )
    return (
        *(item for item in problem.definitions if item[0] != "WIDTH"),
        ("WIDTH", str(width)),
        ("THREADS", str(THREADS)),
        ("OPERANDS", str(len(tensors))),
        ("STAGES", str(len(chain))),
        ("RANK", str(len(layout.extents))),
        ("OPERATIONS", ", ".join("{" + ", ".join(map(str, numbers)) + "}" for numbers in operations)),
        ("TYPES", ", ".join(str(STORED[tensor.data_type]) for tensor in tensors)),
        ("STEPS", ", ".join(str(strides[-1]) for strides in layout.strides)),
        ("WRITES", ", ".join(str(int(written)) for written in layout.written)),
    )
