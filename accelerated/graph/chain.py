"""Plan consecutive pointwise operations of a graph, by a kernel that is compiled for them (graph/chain.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_double
from math import prod

from dualdnn.api.operations.graph import PointwiseNode
from dualdnn.api.operations.specs import SCALAR_BYTES

from ..plans import BackgroundLaunch, Launch
from ..primitives.geometry import blocks
from ..reproducible import at_any_level
from .pointwise import Layout, chain_arguments, pointwise_launch, stages
from .problem import STORED, WIDTH, GraphProblem

SOURCE = "graph/chain.cu"
KERNEL = "graph_chain"
THREADS = 256  # per block
VECTOR_BYTES = 16  # bytes per access
MIN_ELEMENTS = 1 << 16  # elements of the results; any kernel computes smaller chains in little more than a launch


def chain_launch(problem: GraphProblem, chain: Sequence[PointwiseNode]) -> Launch:
    """Return the launch of a chain of nodes. A large chain has its own kernel; the generic kernel serves until that
    is compiled, and where operands are not aligned.
    """
    layout = Layout.of(problem, chain)
    any_chain = pointwise_launch(problem, chain, layout)
    width = width_of(layout)
    if not width:
        return any_chain
    arguments, vectors = chain_arguments(problem, chain, layout, width, len(layout.tensors), len(chain))
    definitions, device = _definitions(problem, chain, layout, width), at_any_level(problem.device)
    function = device.optional_function(SOURCE, KERNEL, definitions)
    launch = Launch(function, arguments, any_chain.operands, blocks(vectors, THREADS), (THREADS, 1, 1))
    # The generic kernel gives the same bits.
    return BackgroundLaunch(device, (SOURCE, definitions), KERNEL, launch, any_chain, _alignment(layout, width))


def width_of(layout: Layout) -> int:
    """Return the elements per vector, or 0 where the kernel does not serve or is not faster."""
    width = WIDTH if min(SCALAR_BYTES[tensor.data_type] for tensor in layout.tensors.values()) < 4 else WIDTH // 2
    if layout.extents[-1] % width or prod(layout.extents) < MIN_ELEMENTS:
        return 0
    for strides, written in zip(layout.strides, layout.written, strict=True):
        packed = strides[-1] == 1 and all(stride % width == 0 for stride in strides[:-1])
        if not packed and (written or strides[-1] != 0):
            return 0
    return width


def _alignment(layout: Layout, width: int) -> list[int]:
    """Return the alignment of each tensor's address: the bytes per access."""
    sizes = [SCALAR_BYTES[tensor.data_type] for tensor in layout.tensors.values()]
    return [
        min(VECTOR_BYTES, width * size) if step[-1] else 1 for size, step in zip(sizes, layout.strides, strict=True)
    ]


def _definitions(
    problem: GraphProblem, chain: Sequence[PointwiseNode], layout: Layout, width: int
) -> tuple[tuple[str, str], ...]:
    """Return the constants of the chain's kernel."""
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
