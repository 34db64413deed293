"""Describes a reduction (3.2.71): the walks over A and C, and the arguments of the kernels for any tensor."""

from __future__ import annotations

from ctypes import Structure, c_int, c_uint
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from dualdnn.api.operations import ReduceTensor, TensorSpec
from dualdnn.api.operations.reduce_tensor import INDEX_BYTES
from dualdnn.api.operations.specs import SCALAR_BYTES

from .. import solver
from ..plans import factors, fields_of, pointers, structure, type_definitions
from ..primitives.geometry import L2_RESIDENT_BYTES, FastDivmod, geometry
from ..reproducible import Order, order_of_batch
from .division import Division, along_rows, divided, vector_width

OPERANDS = ("A", "C", "indices", "workspace")
HALF_BYTES = 2
VECTOR_BYTES = 16  # bytes, alignment of A where kernels need it
WORKSPACE_ALIGNMENT = 8  # bytes, alignment of partial results; the workspace has room for it
INDEX_STATE_BYTES = 4  # bytes of the position in a partial result
ACROSS = 8  # neighbouring vectors of a row of A per block, where C is contiguous across rows


class Walk:
    """Hold the dimensions of A and the strides of all operands along them."""

    def __init__(self, operation: ReduceTensor) -> None:
        A, C = operation.A, operation.C
        lengths = sorted({1, A.vector_length, C.vector_length})
        self.dims, self.in_a = _split(A.dims, _scalar_strides(A, lengths), lengths)
        self.c_dims, self.in_c = _split(C.dims, _scalar_strides(C, lengths), lengths)
        self.reduced_dims = [d for d, (a, c) in enumerate(zip(self.dims, self.c_dims, strict=True)) if a > c]
        self.kept_dims = [d for d in range(len(self.dims)) if d not in self.reduced_dims]
        self.indexed = operation.wants_indices

    def kept(self, width: int) -> Any:
        """Return the geometry of C with (offset in C, number, offset in A).

        Indices need row-major numbers. Otherwise they only address partial results, and the order of A's strides merges
        most dimensions.
        """
        numbers = _row_major(self.c_dims) if self.indexed else _packed_like(self.in_a, self.c_dims)
        return self._geometry(self.kept_dims, [self.in_c, numbers, self.in_a], width)

    def reduced(self, width: int) -> Any:
        """Return the geometry of one reduction, with (row-major position, or 0 without indices; offset in A)."""
        inside = [self.dims[d] if d in self.reduced_dims else 1 for d in range(len(self.dims))]
        positions = _row_major(inside) if self.indexed else [0] * len(inside)
        return self._geometry(self.reduced_dims, [positions, self.in_a], width)

    def columns(self, width: int) -> tuple[Any, Any, bool]:
        """Return the geometries of the reduced and the kept dimensions, and False."""
        return self.reduced(1), self.kept(width), False

    def rows(self, width: int) -> tuple[Any, Any, bool]:
        """Return the geometries of the reduced and the kept dimensions, and whether rows are unaligned.

        An unaligned row has one more vector; see ``windows`` in the kernel.
        """
        reduced, kept = self.reduced(width), self.kept(1)
        starts = [reduced.outer[d].stride[1] for d in range(reduced.outer_rank)]
        starts += [kept.row_stride[2], *(kept.outer[d].stride[2] for d in range(kept.outer_rank))]
        windows = reduced.row_stride[1] == 1 and any(start % width for start in starts)
        if windows:
            rows = reduced.vectors // reduced.vectors_per_row.divisor
            vectors_per_row = -(-(reduced.row + width - 1) // width)
            reduced.vectors, reduced.vectors_per_row = rows * vectors_per_row, FastDivmod.of(vectors_per_row)
        return reduced, kept, windows

    def _geometry(self, dimensions: list[int], strides: list[list[int]], width: int) -> Any:
        return geometry([self.dims[d] for d in dimensions], [[s[d] for d in dimensions] for s in strides], width)


def _scalar_strides(spec: TensorSpec, lengths: list[int]) -> list[int]:
    """Return the strides in scalars, with one entry for every factor of the channels, coarsest first."""
    vector, strides = spec.vector_length, [stride * spec.vector_length for stride in spec.strides]
    channels = [length if length < vector else length // vector * strides[1] for length in reversed(lengths)]
    return [strides[0], *channels, *strides[2:]]


def _split(dims: tuple[int, ...], strides: list[int], lengths: list[int]) -> tuple[list[int], list[int]]:
    """Return the dimensions, with channels factored into vectors of each length, longest first, and the strides."""
    longest = lengths[-1]
    inner = [outer // length for outer, length in zip(reversed(lengths), [*reversed(lengths)][1:], strict=False)]
    factors = [1] * len(lengths) if dims[1] == 1 else [dims[1] // longest, *inner]
    return [dims[0], *factors, *dims[2:]], strides


def _row_major(dims: list[int]) -> list[int]:
    return [prod(dims[d + 1 :]) for d in range(len(dims))]


def _packed_like(strides: list[int], dims: list[int]) -> list[int]:
    """Return packed strides for ``dims``, in the order of ``strides``."""
    order = sorted(range(len(dims)), key=lambda d: -strides[d])
    packed = _row_major([dims[d] for d in order])
    return [packed[order.index(d)] for d in range(len(dims))]


class Tiles(NamedTuple):
    """Hold the division of columns where C is contiguous across the rows of A.

    A block takes ``across`` neighbouring vectors of several rows, so that both its loads and its stores are coalesced.
    """

    across: int
    blocks_across: int
    blocks: int

    @classmethod
    def of(cls, kept: Any, columns: int) -> Tiles | None:
        """Return the tiles, or None.

        It is None where rows of A are rows of C, or where C is contiguous in neither dimension. It is also None where
        more than a quarter of the threads would be idle.
        """
        if kept.outer_rank == 0 or kept.row_stride[0] == 1 or kept.outer[0].stride[0] != 1 or columns <= ACROSS:
            return None
        per_row = kept.vectors_per_row.divisor
        blocks_across, down = -(-per_row // ACROSS), -(-(kept.vectors // per_row) // (columns // ACROSS))
        if 4 * per_row < 3 * blocks_across * ACROSS:
            return None
        return cls(ACROSS, blocks_across, blocks_across * down)


class ReduceProblem(solver.Problem):
    """Hold a reduction of A to C."""

    def __init__(self, operation: ReduceTensor, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.width = vector_width(operation.A)
        self.rows = along_rows(operation.A, operation.C)

    def order_by(self, solver: solver.Solver[Any]) -> Order | None:
        """Return the order of sums over the batch; None for sums within images, whose division depends on it."""
        within = self.operation.A.dims[0] > 1 and self.operation.C.dims[0] > 1
        return None if within else order_of_batch(solver, self.operation)

    @cached_property
    def division(self) -> Division:
        """Return the division for the kernels of any tensor on this device."""
        return divided(self.operation.A, self.operation.C, self.device.multiprocessors)

    @cached_property
    def walk(self) -> Walk:
        """Return the dimensions of A and the strides of all operands along them."""
        return Walk(self.operation)

    @cached_property
    def walked(self) -> tuple[Any, Any, bool]:
        """Return the geometries of the reduced and the kept dimensions, and whether rows are unaligned."""
        return self.walk.rows(self.width) if self.rows else self.walk.columns(self.width)

    @property
    def state_bytes(self) -> int:
        """Return the bytes of an accumulator in shared memory."""
        return SCALAR_BYTES[self.operation.compute_type] * (2 if self.operation.wants_indices else 1)

    @property
    def workspace_bytes(self) -> int:
        """Return the bytes of the partial results and indices of all segments; 0 for one segment."""
        segments, count = self.division.segments, self.operation.C.count
        partial_bytes = SCALAR_BYTES[self.operation.compute_type] + INDEX_STATE_BYTES
        return segments * count * partial_bytes + WORKSPACE_ALIGNMENT if segments > 1 else 0

    @cached_property
    def segment(self) -> int:
        """Return the vectors per segment of a reduction."""
        return -(-int(self.walked[0].vectors) // self.division.segments)

    @cached_property
    def even(self) -> bool:
        """Return whether a thread reads equidistant vectors, aligned if A is. For rows, a segment is in one row."""
        reduced, kept, windows = self.walked
        if self.rows:
            row = reduced.row_stride[1] == 1 and reduced.row % self.width == 0
            one = reduced.outer_rank == 0 or reduced.vectors_per_row.divisor % self.segment == 0
            return bool(one and row and not windows)
        steps = [reduced.row_stride[1], *(kept.outer[d].stride[2] for d in range(kept.outer_rank))]
        row = kept.row_stride[2] == 1 and kept.row % self.width == 0
        return bool(reduced.outer_rank == 0 and row and all(step % self.width == 0 for step in steps))

    def alone(self, kept: Any) -> bool:
        """Return whether a thread of columns can write full vectors of C."""
        plain = not self.rows and self.division.segments == 1 and not self.operation.wants_indices
        steps = [kept.outer[d].stride[0] for d in range(kept.outer_rank)]
        return plain and kept.row_stride[0] == 1 and all(step % self.width == 0 for step in (kept.row, *steps))

    def function(self, source: str, kernel: str) -> Any:
        """Return a kernel of ``source`` for the types of the call; its variant with indices where they are wanted."""
        suffix = "_indexed" if self.operation.wants_indices else ""
        types = type_definitions(self.operation.A.scalar_type, self.operation)
        return self.device.function(source, f"{kernel}{suffix}", types)

    def arguments(self, kept: Any, lanes: int, tiles: Tiles | None = None) -> Structure:
        """Return the arguments of the kernels for any tensor."""
        operation, (reduced, _, windows) = self.operation, self.walked
        reduction, segments = operation.reduction, self.division.segments
        return structure(
            *pointers(len(OPERANDS)),
            ("reduced", reduced),
            ("kept", kept),
            *factors(operation, alpha=operation.alpha, beta=operation.beta),
            *fields_of(c_uint, length=operation.length, outputs=operation.C.count, segments=segments),
            *fields_of(c_uint, segment=self.segment, lanes_log2=lanes.bit_length() - 1),
            *fields_of(c_int, alone=lanes == 1 and tiles is None and self.alone(kept), tiled=tiles is not None),
            ("across_log2", c_uint(tiles.across.bit_length() - 1 if tiles else 0)),
            ("blocks_across", FastDivmod.of(tiles.blocks_across if tiles else 1)),
            # Reducing 6 MB of half to one element takes 4.1 us instead of 4.35; floats and larger tensors get slower.
            (
                "early",
                c_int(
                    segments > 1 and operation.A.scalar_bytes == HALF_BYTES and operation.A.nbytes <= L2_RESIDENT_BYTES
                ),
            ),
            *fields_of(c_int, even=self.even, windows=windows, op=reduction.op, propagate=reduction.nan),
            *fields_of(c_int, c_type=operation.C.scalar_type, index_bytes=INDEX_BYTES[reduction.indices_type]),
        )
