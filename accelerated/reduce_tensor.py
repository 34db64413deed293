"""Reductions on the device (kernels/reduce_tensor.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, c_int, c_uint, c_ulonglong
from math import prod
from struct import Struct
from threading import Lock
from typing import Any, NamedTuple

from dualdnn.api.operations import ReduceTensor, TensorSpec
from dualdnn.api.operations.reduce_tensor import BLOCK, INDEX_BYTES, WORKSPACE_ALIGNMENT, pack_width
from dualdnn.api.operations.specs import SCALAR_BYTES

from .clusters import CLUSTERS, has_clusters
from .geometry import Divisor, geometry
from .plans import AlignedPlan, Launch, Plan, factors, implements, pointers, structure, type_definitions

OPERANDS = ("A", "C", "indices", "workspace")
WARP = 32
WARPS = BLOCK // WARP
READS = 8  # of a thread that are on their way together
pack_addresses = Struct(f"{len(OPERANDS) + 1}Q").pack_into
COUNTS = 512  # that the kernels have room for
NOT_COUNTED = 2**32 - 1
MOST_PARTIALS = 32 * BLOCK  # that one block merges before another launch would have
PACK_BYTES = 16  # that A starts at a multiple of where rows are short
GATHERING_BYTES = 8  # and as much for its alignment
CLUSTER_COLUMNS = 8  # packs side by side that a block of a cluster reads
BUSY_BLOCKS = 264  # more than a small reduction has
ACROSS = 8  # packs of a row of A that a block reads side by side, where C runs across its rows


@implements(ReduceTensor)
def reduce_tensor(operation: ReduceTensor, device: Any) -> Plan:
    """One launch of rows that are short; else any."""
    reduced, kept, windows = _Walk(operation).rows(pack_width(operation.A))
    if not _short(operation, reduced, kept, windows):
        return _any(operation, device)
    launch = _short_rows(operation, reduced, kept, device)
    return AlignedPlan(operation, [launch], {"A": PACK_BYTES}, lambda: _any(operation, device))


def _any(operation: ReduceTensor, device: Any) -> Plan:
    """One launch. Where reductions are split into segments, the last blocks to arrive merge the partial results, or,
    if these are many, the blocks of a second launch.
    """
    A, division = operation.A, operation.division
    width = pack_width(A)
    source = _Walk(operation)
    reduced, kept, windows = source.rows(width) if division.rows else source.columns(width)
    if clustered := _clustered(operation, reduced, kept, windows, device):
        return Plan(operation, [clustered])
    suffix = "_indexed" if operation.wants_indices else ""
    types = type_definitions(A.scalar_type, operation)
    name = f"reduce_tensor_{'rows' if division.rows else 'columns'}{suffix}"
    state_bytes = SCALAR_BYTES[operation.compute_type] * (2 if operation.wants_indices else 1)  # in shared memory
    lanes = division.lanes
    tiles = _Tiles.of(kept, BLOCK // lanes) if not division.rows and division.segments == 1 else None
    reduce = Launch(
        device.function("reduce_tensor.cu", name, types),
        _arguments(operation, reduced, kept, windows, lanes, tiles),
        OPERANDS,
        (tiles.blocks if tiles else -(-kept.packs // (BLOCK // lanes)), division.segments, 1),
        (BLOCK, 1, 1),
        state_bytes * (WARPS if division.rows else BLOCK * width),
    )
    if division.segments == 1:
        return Plan(operation, [reduce])
    items = 1 if division.rows else BLOCK // lanes * width  # elements of C of a block
    lanes = min(BLOCK, 1 << (-(-division.segments // 4) - 1).bit_length())
    kept = source.kept(1)
    merge = Launch(
        device.function("reduce_tensor.cu", f"reduce_tensor_partial_results{suffix}", types),
        _arguments(operation, reduced, kept, windows, lanes),
        OPERANDS,
        (-(-kept.packs // (BLOCK // lanes)), 1, 1),
        (BLOCK, 1, 1),
        state_bytes * WARPS,
    )
    if division.segments * items > MOST_PARTIALS:
        return Plan(operation, [reduce, merge])
    return _SegmentedPlan(operation, reduce, merge, device.__dict__.setdefault("reduction_counts", _Counts()))


def _clustered(operation: ReduceTensor, reduced: Any, kept: Any, windows: bool, device: Any) -> Launch | None:
    """Of small tensors that a few blocks would reduce, or many that meet in memory: clusters, whose blocks meet in shared
    memory. None where there are none, or so much to do that more blocks are worth their meeting."""
    division, width = operation.division, pack_width(operation.A)
    if operation.wants_indices or not has_clusters(device) or (division.lanes < BLOCK and division.segments == 1):
        return None
    rows = division.rows
    if rows and (division.segments == 1 or (windows and reduced.outer_rank)):  # finding such rows takes more blocks
        return None
    lanes = BLOCK if rows else BLOCK // CLUSTER_COLUMNS
    columns = 1 if rows else CLUSTER_COLUMNS
    across = -(-kept.packs // columns)
    for blocks in reversed(CLUSTERS):
        if reduced.packs > blocks * lanes * READS or across * blocks > BUSY_BLOCKS:
            continue
        state_bytes = SCALAR_BYTES[operation.compute_type]
        items = 1 if rows else columns * width
        shared = WARPS + 1 if rows else BLOCK * width
        name = f"reduce_tensor_{'rows' if rows else 'columns'}_cluster"
        types = type_definitions(operation.A.scalar_type, operation, CLUSTER_BLOCKS=str(blocks))
        arguments = _arguments(operation, reduced, kept, windows, lanes, segments=blocks)
        function = device.function("reduce_tensor.cu", name, types)
        shape = (across, blocks, 1), (BLOCK, 1, 1), state_bytes * (shared + items * blocks) + 2 * GATHERING_BYTES
        if blocks <= CLUSTERS[0] or function.holds_clusters(*shape):
            return Launch(function, arguments, OPERANDS, *shape)
    return None


def _short(operation: ReduceTensor, reduced: Any, kept: Any, windows: bool) -> bool:
    """Whether elements of C reduce rows of few packs that follow each other in memory."""
    rows = operation.division.rows and operation.division.lanes < WARP and _even(operation, reduced, kept, windows)
    return rows and kept.outer_rank == 0 and bool(kept.row_stride[2] == reduced.row)


def _short_rows(operation: ReduceTensor, reduced: Any, kept: Any, device: Any) -> Launch:
    """Blocks of as many rows as their threads read at once."""
    lanes = 1 << (-(-reduced.packs // READS) - 1).bit_length()
    suffix = "_indexed" if operation.wants_indices else ""
    state_bytes = SCALAR_BYTES[operation.compute_type] * (2 if operation.wants_indices else 1)
    rows = BLOCK // lanes
    types = type_definitions(operation.A.scalar_type, operation)
    return Launch(
        device.function("reduce_tensor.cu", f"reduce_tensor_short_rows{suffix}", types),
        _arguments(operation, reduced, kept, windows=False, lanes=lanes),
        OPERANDS,
        (-(-operation.C.count // rows), 1, 1),
        (BLOCK, 1, 1),
        state_bytes * rows * reduced.packs,
    )


class _Tiles(NamedTuple):
    """How blocks cover columns that C runs across: ``across`` packs of as many rows as there are threads for, so that
    both what they read and what they write lies side by side."""

    across: int
    blocks_across: int
    blocks: int

    @classmethod
    def of(cls, kept: Any, columns: int) -> _Tiles | None:
        """None where rows of A are rows of C, or C has no neighbours in the next dimension either, or the packs of a row
        would leave more than a quarter of the threads idle."""
        if kept.outer_rank == 0 or kept.row_stride[0] == 1 or kept.outer[0].stride[0] != 1 or columns <= ACROSS:
            return None
        per_row = kept.packs_per_row.divisor
        blocks_across, down = -(-per_row // ACROSS), -(-(kept.packs // per_row) // (columns // ACROSS))
        if 4 * per_row < 3 * blocks_across * ACROSS:
            return None
        return cls(ACROSS, blocks_across, blocks_across * down)


class _Counts:
    """Numbers of the counts of arrivals. Calls that are under way together have different workspaces, so each workspace
    has its own, for every number of segments: whatever shares one, it is back at 0 when all blocks have arrived.
    """

    def __init__(self) -> None:
        self.numbers: dict[tuple[int, int], int] = {}
        self.lock = Lock()

    def number(self, workspace: int, segments: int) -> int:
        """NOT_COUNTED where all counts are taken."""
        found = self.numbers.get((workspace, segments))
        if found is not None:
            return found
        with self.lock:
            if len(self.numbers) == COUNTS:
                return NOT_COUNTED
            return self.numbers.setdefault((workspace, segments), len(self.numbers))


class _SegmentedPlan(Plan):
    """One launch that counts the arrivals of its blocks, or two where nothing is left to count with."""

    def __init__(self, operation: ReduceTensor, reduce: Launch, merge: Launch, counts: _Counts) -> None:
        super().__init__(operation, [reduce, merge])
        self.launches, self.positions = [reduce, merge], self.steps[0][1]
        self.segments, self.counts = operation.division.segments, counts

    def __call__(self, operands: Sequence[Any], stream: Any) -> None:
        addresses = [0 if operands[i] is None else operands[i].address for i in self.positions]
        workspace = addresses[-1] = -(-addresses[-1] // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
        number = self.counts.number(workspace, self.segments)
        for launch in self.launches if number == NOT_COUNTED else self.launches[:1]:
            arguments = bytearray(launch.template)
            pack_addresses(arguments, 0, *addresses, number)
            launch.function.launch(arguments, launch.grid, launch.block, launch.shared_bytes, stream)


def _arguments(
    operation: ReduceTensor,
    reduced: Any,
    kept: Any,
    windows: bool,
    lanes: int,
    tiles: _Tiles | None = None,
    segments: int = 0,
) -> Structure:
    """segments: of a reduction, where they are not those of its division."""
    reduction, segments = operation.reduction, segments or operation.division.segments
    return structure(
        *pointers(len(OPERANDS)),
        ("count", c_ulonglong(NOT_COUNTED)),
        ("reduced", reduced),
        ("kept", kept),
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        ("length", c_uint(operation.length)),
        ("outputs", c_uint(operation.C.count)),
        ("segments", c_uint(segments)),
        ("segment", c_uint(-(-reduced.packs // segments))),
        ("lanes_log2", c_uint(lanes.bit_length() - 1)),
        ("alone", c_int(lanes == 1 and tiles is None and _alone(operation, kept))),
        ("tiled", c_int(tiles is not None)),
        ("across_log2", c_uint(tiles.across.bit_length() - 1 if tiles else 0)),
        ("blocks_across", Divisor.of(tiles.blocks_across if tiles else 1)),
        ("even", c_int(_even(operation, reduced, kept, windows))),
        ("windows", c_int(windows)),
        ("op", c_int(reduction.op)),
        ("propagate", c_int(reduction.nan)),
        ("c_type", c_int(operation.C.scalar_type)),
        ("index_bytes", c_int(INDEX_BYTES[reduction.indices_type])),
    )


def _even(operation: ReduceTensor, reduced: Any, kept: Any, windows: bool) -> bool:
    """Whether what a thread reads are whole packs one step apart, at multiples of a pack if A is."""
    width = pack_width(operation.A)
    if operation.division.rows:
        return reduced.outer_rank == 0 and reduced.row_stride[1] == 1 and reduced.row % width == 0 and not windows
    steps = [reduced.row_stride[1], *(kept.outer[d].stride[2] for d in range(kept.outer_rank))]
    rows = kept.row_stride[2] == 1 and kept.row % width == 0
    return reduced.outer_rank == 0 and rows and all(step % width == 0 for step in steps)


def _alone(operation: ReduceTensor, kept: Any) -> bool:
    """Whether a thread of columns can write a whole pack of C."""
    width = pack_width(operation.A)
    plain = not operation.division.rows and operation.division.segments == 1 and not operation.wants_indices
    steps = [kept.outer[d].stride[0] for d in range(kept.outer_rank)]
    return plain and kept.row_stride[0] == 1 and all(step % width == 0 for step in (kept.row, *steps))


class _Walk:
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
        """(offset in C, number, offset in A) of the elements of C; indices need the number in row-major order.

        Any other order of the numbers serves the partial results, and that of A's strides merges most dimensions.
        """
        numbers = _row_major(self.c_dims) if self.indexed else _packed_like(self.in_a, self.c_dims)
        return self._geometry(self.kept_dims, [self.in_c, numbers, self.in_a], width)

    def reduced(self, width: int) -> Any:
        """(position in row-major order, or 0 without indices, offset in A) of what one element of C reduces."""
        inside = [self.dims[d] if d in self.reduced_dims else 1 for d in range(len(self.dims))]
        positions = _row_major(inside) if self.indexed else [0] * len(inside)
        return self._geometry(self.reduced_dims, [positions, self.in_a], width)

    def columns(self, width: int) -> tuple[Any, Any, bool]:
        return self.reduced(1), self.kept(width), False

    def rows(self, width: int) -> tuple[Any, Any, bool]:
        """Where rows do not all start at whole packs, each has room for one pack more: see windows in the kernel."""
        reduced, kept = self.reduced(width), self.kept(1)
        starts = [reduced.outer[d].stride[1] for d in range(reduced.outer_rank)]
        starts += [kept.row_stride[2], *(kept.outer[d].stride[2] for d in range(kept.outer_rank))]
        windows = reduced.row_stride[1] == 1 and any(start % width for start in starts)
        if windows:
            rows = reduced.packs // reduced.packs_per_row.divisor
            packs_per_row = -(-(reduced.row + width - 1) // width)
            reduced.packs, reduced.packs_per_row = rows * packs_per_row, Divisor.of(packs_per_row)
        return reduced, kept, windows

    def _geometry(self, dimensions: list[int], strides: list[list[int]], width: int) -> Any:
        return geometry([self.dims[d] for d in dimensions], [[s[d] for d in dimensions] for s in strides], width)


def _scalar_strides(spec: TensorSpec, lengths: list[int]) -> list[int]:
    """Strides in scalars, with one entry for every factor of the channels: those of the coarsest factor first."""
    vector, strides = spec.vector_length, [stride * spec.vector_length for stride in spec.strides]
    channels = [length if length < vector else length // vector * strides[1] for length in reversed(lengths)]
    return [strides[0], *channels, *strides[2:]]


def _split(dims: tuple[int, ...], strides: list[int], lengths: list[int]) -> tuple[list[int], list[int]]:
    """Dimensions with the channels as factors: vectors of the longest length, of the next one inside them, ..."""
    longest = lengths[-1]
    inner = [outer // length for outer, length in zip(reversed(lengths), [*reversed(lengths)][1:], strict=False)]
    factors = [1] * len(lengths) if dims[1] == 1 else [dims[1] // longest, *inner]
    return [dims[0], *factors, *dims[2:]], strides


def _row_major(dims: list[int]) -> list[int]:
    return [prod(dims[d + 1 :]) for d in range(len(dims))]


def _packed_like(strides: list[int], dims: list[int]) -> list[int]:
    """Strides without gaps in the order of others."""
    order = sorted(range(len(dims)), key=lambda d: -strides[d])
    packed = _row_major([dims[d] for d in order])
    return [packed[order.index(d)] for d in range(len(dims))]
