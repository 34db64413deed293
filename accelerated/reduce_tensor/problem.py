"""The problem of a reduction (3.2.71): how kernels walk A and C, and the arguments of those that take any tensor."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import Structure, c_int, c_uint
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, TypeVar

from dualdnn.api.operations import ReduceTensor, TensorSpec
from dualdnn.api.operations.reduce_tensor import INDEX_BYTES
from dualdnn.api.operations.specs import SCALAR_BYTES

from .. import solver
from ..plans import factors, pointers, structure, type_definitions
from ..primitives.geometry import L2_RESIDENT_BYTES, FastDivmod, geometry, merge_dimensions
from .division import Division, along_rows, divided, pack_width

OPERANDS = ("A", "C", "indices", "workspace")
HALF_BYTES = 2
PACK_BYTES = 16  # that A begins at a multiple of where kernels rely on it
WORKSPACE_ALIGNMENT = 8  # of the partial results; the workspace has room to begin there
INDEX_STATE_BYTES = 4  # of the position that goes with a partial result
ACROSS = 8  # packs of a row of A that a block reads side by side, where C runs across its rows

T = TypeVar("T")
Axes = tuple[list[int], list[list[int]]]  # extents, and for every operand its strides


class Walk:
    """The dimensions of A with the strides of everything that is walked along them."""

    def __init__(self, operation: ReduceTensor) -> None:
        A, C = operation.A, operation.C
        lengths = sorted({1, A.vector_length, C.vector_length})
        self.dims, self.in_a = _split(A.dims, _scalar_strides(A, lengths), lengths)
        self.c_dims, self.in_c = _split(C.dims, _scalar_strides(C, lengths), lengths)
        self.reduced_dims = [d for d, (a, c) in enumerate(zip(self.dims, self.c_dims, strict=True)) if a > c]
        self.kept_dims = [d for d in range(len(self.dims)) if d not in self.reduced_dims]
        self.indexed = operation.wants_indices

    def kept(self, width: int) -> Any:
        """Return (offset in C, number, offset in A) of the elements of C; indices need the number in row-major order.

        Any other order of the numbers serves the partial results, and that of A's strides merges most dimensions.
        """
        numbers = _row_major(self.c_dims) if self.indexed else _packed_like(self.in_a, self.c_dims)
        return self._geometry(self.kept_dims, [self.in_c, numbers, self.in_a], width)

    def reduced(self, width: int) -> Any:
        """Return (position in row-major order, or 0 without indices, offset in A) of what one element of C reduces."""
        inside = [self.dims[d] if d in self.reduced_dims else 1 for d in range(len(self.dims))]
        positions = _row_major(inside) if self.indexed else [0] * len(inside)
        return self._geometry(self.reduced_dims, [positions, self.in_a], width)

    def columns(self, width: int) -> tuple[Any, Any, bool]:
        """Return the geometries of what is reduced and what is kept."""
        return self.reduced(1), self.kept(width), False

    def rows(self, width: int) -> tuple[Any, Any, bool]:
        """Return the geometries of what is reduced and what is kept. Where rows do not all begin at packs, each has
        room for one pack more: see windows in the kernel."""
        reduced, kept = self.reduced(width), self.kept(1)
        starts = [reduced.outer[d].stride[1] for d in range(reduced.outer_rank)]
        starts += [kept.row_stride[2], *(kept.outer[d].stride[2] for d in range(kept.outer_rank))]
        windows = reduced.row_stride[1] == 1 and any(start % width for start in starts)
        if windows:
            rows = reduced.packs // reduced.packs_per_row.divisor
            packs_per_row = -(-(reduced.row + width - 1) // width)
            reduced.packs, reduced.packs_per_row = rows * packs_per_row, FastDivmod.of(packs_per_row)
        return reduced, kept, windows

    def axes(self) -> tuple[Axes, Axes]:
        """Return the merged axes, outermost first, that one element of C reduces (steps in A) and of C itself (steps in
        A, C)."""

        def along(dimensions: list[int], strides: list[list[int]]) -> Axes:
            extents, steps = merge_dimensions(
                [self.dims[d] for d in dimensions], [[s[d] for d in dimensions] for s in strides]
            )
            return extents, steps[::-1]

        return along(self.reduced_dims, [self.in_a]), along(self.kept_dims, [self.in_c, self.in_a])

    def _geometry(self, dimensions: list[int], strides: list[list[int]], width: int) -> Any:
        return geometry([self.dims[d] for d in dimensions], [[s[d] for d in dimensions] for s in strides], width)


def _scalar_strides(spec: TensorSpec, lengths: list[int]) -> list[int]:
    """Return the strides in scalars, with one entry for every factor of the channels: those of the coarsest factor
    first."""
    vector, strides = spec.vector_length, [stride * spec.vector_length for stride in spec.strides]
    channels = [length if length < vector else length // vector * strides[1] for length in reversed(lengths)]
    return [strides[0], *channels, *strides[2:]]


def _split(dims: tuple[int, ...], strides: list[int], lengths: list[int]) -> tuple[list[int], list[int]]:
    """Return the dimensions with the channels as factors: vectors of the longest length, of the next one inside them,
    ..."""
    longest = lengths[-1]
    inner = [outer // length for outer, length in zip(reversed(lengths), [*reversed(lengths)][1:], strict=False)]
    factors = [1] * len(lengths) if dims[1] == 1 else [dims[1] // longest, *inner]
    return [dims[0], *factors, *dims[2:]], strides


def _row_major(dims: list[int]) -> list[int]:
    return [prod(dims[d + 1 :]) for d in range(len(dims))]


def _packed_like(strides: list[int], dims: list[int]) -> list[int]:
    """Return the strides without gaps in the order of others."""
    order = sorted(range(len(dims)), key=lambda d: -strides[d])
    packed = _row_major([dims[d] for d in order])
    return [packed[order.index(d)] for d in range(len(dims))]


class Tiles(NamedTuple):
    """How blocks cover columns that C runs across: ``across`` packs of as many rows as there are threads for, so that
    both what they read and what they write lies side by side."""

    across: int
    blocks_across: int
    blocks: int

    @classmethod
    def of(cls, kept: Any, columns: int) -> Tiles | None:
        """None where rows of A are rows of C, or C has no neighbours in the next dimension either, or the packs of a
        row would leave more than a quarter of the threads idle."""
        if kept.outer_rank == 0 or kept.row_stride[0] == 1 or kept.outer[0].stride[0] != 1 or columns <= ACROSS:
            return None
        per_row = kept.packs_per_row.divisor
        blocks_across, down = -(-per_row // ACROSS), -(-(kept.packs // per_row) // (columns // ACROSS))
        if 4 * per_row < 3 * blocks_across * ACROSS:
            return None
        return cls(ACROSS, blocks_across, blocks_across * down)


class ReduceProblem(solver.Problem):
    """A reduction of A to C."""

    def __init__(self, operation: ReduceTensor, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.width = pack_width(operation.A)
        self.rows = along_rows(operation.A, operation.C)
        self._made: dict[str, Any] = {}

    def once(self, key: str, make: Callable[[], T]) -> T:
        """Return what ``make`` returned when a solver first asked for it under this key."""
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    @cached_property
    def division(self) -> Division:
        """How the kernels of any tensor divide the work on this device."""
        return divided(self.operation.A, self.operation.C, self.device.multiprocessors)

    @cached_property
    def walk(self) -> Walk:
        """The dimensions of A with the strides of everything that is walked along them."""
        return Walk(self.operation)

    @cached_property
    def walked(self) -> tuple[Any, Any, bool]:
        """The geometries of what one element of C reduces and of C, and whether rows begin anywhere."""
        return self.walk.rows(self.width) if self.rows else self.walk.columns(self.width)

    @property
    def state_bytes(self) -> int:
        """Bytes of what is accumulated, in shared memory."""
        return SCALAR_BYTES[self.operation.compute_type] * (2 if self.operation.wants_indices else 1)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of a partial result (in the compute type) and its index for every segment and element of C."""
        segments, count = self.division.segments, self.operation.C.count
        partial_bytes = SCALAR_BYTES[self.operation.compute_type] + INDEX_STATE_BYTES
        return segments * count * partial_bytes + WORKSPACE_ALIGNMENT if segments > 1 else 0

    @cached_property
    def segment(self) -> int:
        """Packs of a segment of what one element of C reduces."""
        return -(-int(self.walked[0].packs) // self.division.segments)

    @cached_property
    def even(self) -> bool:
        """Whether what a thread reads are packs one step apart, at multiples of a pack if A is. Of rows, every segment
        lies in one."""
        reduced, kept, windows = self.walked
        if self.rows:
            row = reduced.row_stride[1] == 1 and reduced.row % self.width == 0
            one = reduced.outer_rank == 0 or reduced.packs_per_row.divisor % self.segment == 0
            return bool(one and row and not windows)
        steps = [reduced.row_stride[1], *(kept.outer[d].stride[2] for d in range(kept.outer_rank))]
        row = kept.row_stride[2] == 1 and kept.row % self.width == 0
        return bool(reduced.outer_rank == 0 and row and all(step % self.width == 0 for step in steps))

    def alone(self, kept: Any) -> bool:
        """Return whether a thread of columns can write a pack of C."""
        plain = not self.rows and self.division.segments == 1 and not self.operation.wants_indices
        steps = [kept.outer[d].stride[0] for d in range(kept.outer_rank)]
        return plain and kept.row_stride[0] == 1 and all(step % self.width == 0 for step in (kept.row, *steps))

    def function(self, source: str, kernel: str) -> Any:
        """Return a kernel of ``source`` for the types of the call, that with indices where these are wanted."""
        suffix = "_indexed" if self.operation.wants_indices else ""
        types = type_definitions(self.operation.A.scalar_type, self.operation)
        return self.device.function(source, f"{kernel}{suffix}", types)

    def arguments(self, kept: Any, lanes: int, tiles: Tiles | None = None) -> Structure:
        """Return what the kernels of any tensor take."""
        operation, (reduced, _, windows) = self.operation, self.walked
        reduction, segments = operation.reduction, self.division.segments
        return structure(
            *pointers(len(OPERANDS)),
            ("reduced", reduced),
            ("kept", kept),
            *factors(operation, alpha=operation.alpha, beta=operation.beta),
            ("length", c_uint(operation.length)),
            ("outputs", c_uint(operation.C.count)),
            ("segments", c_uint(segments)),
            ("segment", c_uint(self.segment)),
            ("lanes_log2", c_uint(lanes.bit_length() - 1)),
            ("alone", c_int(lanes == 1 and tiles is None and self.alone(kept))),
            ("tiled", c_int(tiles is not None)),
            ("across_log2", c_uint(tiles.across.bit_length() - 1 if tiles else 0)),
            ("blocks_across", FastDivmod.of(tiles.blocks_across if tiles else 1)),
            # 6 MB of half data to one element: 4.1 us instead of 4.35; floats, and what L2 does not hold, took longer
            (
                "early",
                c_int(
                    segments > 1 and operation.A.scalar_bytes == HALF_BYTES and operation.A.nbytes <= L2_RESIDENT_BYTES
                ),
            ),
            ("even", c_int(self.even)),
            ("windows", c_int(windows)),
            ("op", c_int(reduction.op)),
            ("propagate", c_int(reduction.nan)),
            ("c_type", c_int(operation.C.scalar_type)),
            ("index_bytes", c_int(INDEX_BYTES[reduction.indices_type])),
        )


class ReduceSolver(solver.Solver[ReduceProblem]):
    """A solver of this room."""

    def workspace_bytes(self, problem: ReduceProblem) -> int:
        """Return the bytes that the solver of any tensor uses, which is the fallback of all."""
        return problem.workspace_bytes
