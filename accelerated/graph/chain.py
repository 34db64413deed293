"""Plan consecutive pointwise operations of a graph, by a kernel that is compiled for them (graph/chain.cu)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_double, c_int, c_longlong
from math import prod
from typing import Any, Self

from dualdnn.api.operations.graph import GenStatsNode, PointwiseNode
from dualdnn.api.operations.specs import SCALAR_BYTES, packed_strides

from ..plans import BackgroundLaunch, Extent, Launch, fields_of, pointers
from ..primitives.geometry import FastDivmod, blocks
from ..records import Record, Where
from ..reproducible import at_any_level
from .pointwise import Layout, chain_arguments, pointwise_launch, stages
from .problem import STORED, WIDTH, GraphProblem
from .statistics import Division, statistics_launches

SOURCE = "graph/chain.cu"
KERNEL = "graph_chain"
SUMMING_KERNEL = "graph_chain_statistics"
THREADS = 256  # per block
VECTORS = 2  # vectors in flight per thread that sums its results
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
    definitions = _definitions(problem, chain, layout, width)
    grid = blocks(vectors, THREADS)
    return _compiled(problem, KERNEL, definitions, arguments, grid, any_chain, _alignment(layout, width))


def sums_division(problem: GraphProblem, chain: Sequence[PointwiseNode]) -> Division | None:
    """Return the division of a chain's last result for the kernel that sums its results, or None where it does not
    serve. The result must be dense, and its channels, or the pixels of one, must fill vectors.
    """
    layout, y = Layout.of(problem, chain), problem.spec(chain[-1].y)
    width, rank = width_of(layout, WIDTH), y.rank
    dense = y.nbytes == prod(y.dims) * SCALAR_BYTES[y.data_type]
    if not width or not dense or rank < 3:
        return None
    division = Division.of(y, problem.device)
    if division.vectors_of_channels:
        return division if y.dims[1] % width == 0 else None
    first = y.strides == packed_strides(y.dims, tuple(range(rank)))
    return division if first and prod(y.dims[2:]) % width == 0 else None


def summed_launches(
    problem: GraphProblem, chain: Sequence[PointwiseNode], node: GenStatsNode, partials: str, division: Division
) -> list[Launch]:
    """Return the launches of a chain that sums its last result. ``partials`` is the operand with the sums of
    segments.
    """
    layout, y = Layout.of(problem, chain), problem.spec(node.x)
    width, pixels = WIDTH, prod(y.dims[2:])
    further = (
        *pointers(3),
        ("sum_stride", c_longlong(problem.spec(node.sum).strides[1])),
        ("sqsum_stride", c_longlong(problem.spec(node.sqsum).strides[1])),
        ("inner", FastDivmod.of(1 if division.vectors_of_channels else pixels // width)),
        *fields_of(
            c_int, columns=y.dims[1] // width if division.vectors_of_channels else y.dims[1], items=division.items
        ),
        *fields_of(c_int, channels=y.dims[1], lanes=division.lanes, segments=division.segments),
        *fields_of(c_int, segment=division.length, vectors_of_channels=division.vectors_of_channels),
        *fields_of(c_int, sum_type=STORED[node.sum.data_type], sqsum_type=STORED[node.sqsum.data_type]),
    )
    arguments, _ = chain_arguments(problem, chain, layout, width, len(layout.tensors), len(chain), further)
    definitions = (
        *_definitions(problem, chain, layout, width),
        ("SUMMED", "1"),
        ("VECTORS", str(VECTORS)),
        ("VECTORS_OF_CHANNELS", str(int(division.vectors_of_channels))),
    )
    names = (*layout.tensors, node.sum.operand, node.sqsum.operand, partials)
    alone = statistics_launches(problem, node, partials, division)
    fallback = Successive((pointwise_launch(problem, chain, layout), alone[0]), names)
    grid, alignment = (division.blocks, division.segments, 1), [*_alignment(layout, width), 1, 1, 1]
    return [_compiled(problem, SUMMING_KERNEL, definitions, arguments, grid, fallback, alignment), *alone[1:]]


def _compiled(
    problem: GraphProblem,
    kernel: str,
    definitions: Any,
    arguments: Any,
    grid: Extent,
    fallback: Any,
    alignment: Sequence[int],
) -> Any:
    """Return the launch of a kernel. The fallback, which gives the same bits, serves until it is compiled, and where it
    cannot be compiled.
    """
    device = at_any_level(problem.device)
    function = device.optional_function(SOURCE, kernel, definitions)
    launch = Launch(function, arguments, fallback.operands, grid, (THREADS, 1, 1))
    return BackgroundLaunch(device, (SOURCE, definitions), kernel, launch, fallback, alignment)


class Successive:
    """Replace one launch by consecutive launches. ``operands`` are their names."""

    scratch_bytes = 0

    def __init__(self, launches: Sequence[Launch], operands: Sequence[str]) -> None:
        self.operands, self.function = tuple(operands), launches[-1].function
        self.parts = [(launch, [self.operands.index(name) for name in launch.operands]) for launch in launches]

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        """Record the launches on these operands."""
        for launch, positions in self.parts:
            launch.record(record, [operands[i] for i in positions])

    def with_scalars(self, _values: Mapping[str, float]) -> Self:
        """Return itself, because the scalars of a graph belong to it, not to a call."""
        return self

    def wait_for_kernel(self) -> None:
        """Do nothing, because the kernels are compiled."""


def width_of(layout: Layout, least: int = WIDTH // 2) -> int:
    """Return the elements per vector, or 0 where the kernel does not serve or is not faster."""
    width = WIDTH if min(SCALAR_BYTES[tensor.data_type] for tensor in layout.tensors.values()) < 4 else least
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
