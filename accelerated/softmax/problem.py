"""Describes a softmax call: the layout of its rows, and what its solvers share.

A row holds the elements of one softmax: C, H, W of an image, or C at a position. A strided row has elements that are
not contiguous, while the same element of neighbouring rows is. Solvers take vectors of neighbouring strided rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int, c_uint
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dualdnn.api.enumerations import cudnnSoftmaxMode_t
from dualdnn.api.operations import SoftmaxBackward, SoftmaxForward
from dualdnn.api.operations.backend import RUN
from dualdnn.api.operations.specs import SCALAR_BYTES, TensorSpec

from .. import solver
from ..plans import Launch, factors, fields_of, pointers, structure, type_definitions
from ..primitives.geometry import geometry
from ..reproducible import level_of

VECTOR_BYTES = 16  # bytes per vector
WARP = 32  # threads per warp
SHORT_ROW = 4  # elements per row up to which one thread has the full row
BUSY_THREADS = 4 * 128  # threads per SM above which rows get no more threads
SEGMENT_BYTES = 128  # contiguous bytes that a block of strided rows reads per position
MIN_SEGMENT_BYTES = 32  # contiguous bytes that a block of strided rows reads per position, lower bound
LONG_STRIDED_ROW = 1024  # elements per strided row from which a cluster shares it
BLOCK_BYTES = 64 * 1024  # maximum bytes of a row per block, so that several blocks per SM overlap loads and stores
# Kernels of strided rows, and clusters forward, load with evict_first in this range. Results then stay in L2 for the
# next kernel. With fewer bytes all data stay in L2; with more, nothing useful does.
EVICTED_BYTES = (60 << 20, 160 << 20)  # bytes read and written

Softmax = SoftmaxForward | SoftmaxBackward


@dataclass(frozen=True)
class RowShape:
    """Hold the numbers that decide how rows are divided among threads.

    rows: single rows, or vectors of neighbouring strided rows. many: the rows of the canonical call, which decide how
    many threads share one. length: vectors per row, or positions per vector of strided rows. vector: whether vectors
    have 16 bytes, else one element. inputs: tensors that are read.
    """

    rows: int
    many: int
    length: int
    vector: bool
    vector_bytes: int
    inputs: int

    @property
    def row_bytes(self) -> int:
        """Return the bytes that are read for a row, or for a vector of strided rows."""
        return self.length * self.vector_bytes * self.inputs


@dataclass(frozen=True)
class RowLayout:
    """Hold the geometries of the rows and along a row, as the kernels walk them.

    vector: whether vectors have several elements. aligned: whether every row also begins at a vector. dense: whether
    rows follow each other without gaps.
    """

    rows: Any
    along: Any
    strided: bool
    vector: bool
    aligned: bool
    dense: bool


class SoftmaxProblem(solver.Problem):
    """Hold a softmax forward call, or its gradient."""

    layout: RowLayout

    def __init__(self, operation: Softmax, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.direction = "forward" if isinstance(operation, SoftmaxForward) else "backward"
        self.specs: list[TensorSpec] = [operation.tensor(name) for name in operation.operands]
        self.inputs, self.output = len(self.specs) - 1, self.specs[-1]
        self.scalar_bytes = self.output.scalar_bytes
        self.width = 1 if self.scalar_bytes == 1 else VECTOR_BYTES // self.scalar_bytes  # elements per vector
        self.state_bytes = 2 * SCALAR_BYTES[operation.compute_type]  # bytes per online-softmax state (maximum and sum)
        layout = layout_of(operation, self.specs, self.width)
        canonical = self.canonical
        in_vectors = layout.aligned if canonical is self else canonical.layout.vector
        if level_of(device) != RUN and not in_vectors:
            layout = layout_of(operation, self.specs, 1)  # Vectors would divide rows by where these begin.
        self.layout = layout
        self.rows, self.length = layout.rows.vectors, layout.along.row
        anywhere = layout.vector and not (layout.aligned and aligned)
        vectors = layout.along.vectors + anywhere  # An unaligned row touches one more vector.
        vector_bytes = VECTOR_BYTES if layout.vector else self.scalar_bytes
        self.shape = RowShape(self.rows, self.canonical.rows, vectors, layout.vector, vector_bytes, self.inputs)

    @property
    def moved_bytes(self) -> int:
        """Return the bytes that are read and written, without gaps."""
        return self.rows * self.layout.along.vectors * self.shape.vector_bytes * (self.inputs + 1)

    @cached_property
    def half_vector_layout(self) -> RowLayout:
        """Return the layout of the rows with vectors of 8 bytes."""
        return layout_of(self.operation, self.specs, self.width // 2)

    @property
    def evict_first(self) -> dict[str, int]:
        """Return the macro of kernels that load with the L2 policy evict_first; empty where they do not."""
        return {"EVICT_FIRST": 1} if EVICTED_BYTES[0] <= self.moved_bytes < EVICTED_BYTES[1] else {}

    def launch(
        self,
        source: str,
        kernel: str,
        *,
        threads: int,
        grid: int,
        team: int = 1,
        kept: int = 0,
        shared_bytes: int = 0,
        layout: RowLayout | None = None,
        definitions: dict[str, int] | None = None,
    ) -> Launch:
        """Return the launch of a kernel with the arguments of softmax/online.cuh, one-dimensional in grid and block.

        team: threads of a block that share a row, or vectors of strided rows per block. kept: the argument ``kept`` of
        the kernel. layout: the layout of the rows, by default the problem's.
        """
        layout = layout or self.layout
        operation = self.operation
        chosen = {name: str(value) for name, value in (definitions or {}).items()}
        function = self.device.function(source, kernel, type_definitions(self.output.scalar_type, operation, **chosen))
        arguments = structure(
            *pointers(len(operation.operands)),
            *factors(operation, alpha=operation.alpha, beta=operation.beta),
            ("algorithm", c_int(operation.algorithm)),
            *fields_of(c_uint, team=team, kept=kept),
            ("rows", layout.rows),
            ("along", layout.along),
        )
        return Launch(function, arguments, operation.operands, (grid, 1, 1), (threads, 1, 1), shared_bytes)


def layout_of(operation: Softmax, specs: list[TensorSpec], width: int) -> RowLayout:
    """Return the layout of the rows in all operands (output last), for vectors of ``width`` elements."""
    output = specs[-1]
    along = _dimensions_along(operation, output)
    others = tuple(d for d in range(output.rank) if d not in along)
    extended = [d for d in range(output.rank) if output.dims[d] > 1]
    innermost = min(extended, key=lambda d: output.strides[d], default=1)

    def walked(dimensions: Sequence[int], width: int) -> Any:
        dims = [output.dims[d] for d in dimensions]
        return geometry(dims, [[spec.strides[d] for d in dimensions] for spec in specs], width)

    row, position = walked(others, 1), walked(along, 1)
    simple = position.outer_rank == 0
    if innermost not in along:
        # A vector of neighbouring rows needs positions at multiples of 16 bytes, and rows that fill half of a vector.
        vectors = walked(others, width)
        every = vectors.vectorised == (1 << len(specs)) - 1 and all(pitch % width == 0 for pitch in position.row_stride)
        vector = width > 1 and simple and every and 2 * vectors.row >= width
        return RowLayout(vectors if vector else row, position, True, vector, vector, False)
    # Vectors along a row need the same misalignment in every operand; a misaligned row must be long.
    starts = [[spec.strides[d] % width for d in others if output.dims[d] > 1] for spec in specs]
    simple = simple and all(step == 1 for step in position.row_stride)
    aligned = not any(any(start) for start in starts)
    equal = all(start == starts[0] for start in starts)
    vector = width > 1 and simple and equal and (aligned or position.row >= 4 * width)
    follow = row.vectors == 1 or all(step == position.row for step in row.row_stride)
    dense = simple and row.outer_rank == 0 and follow
    return RowLayout(row, walked(along, width) if vector else position, False, vector, vector and aligned, dense)


def _dimensions_along(operation: Softmax, output: TensorSpec) -> tuple[int, ...]:
    instance = operation.mode == cudnnSoftmaxMode_t.CUDNN_SOFTMAX_MODE_INSTANCE
    return tuple(range(1, output.rank)) if instance else (1,)


def power_of_two(at_least: int) -> int:
    """Return the smallest power of two that is at least a positive number."""
    return 1 << (at_least - 1).bit_length()


def ceiling(dividend: int, divisor: int) -> int:
    """Return the quotient of positive numbers, rounded up."""
    return -(-dividend // divisor)
