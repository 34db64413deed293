"""Plans reductions of small tensors, whose loads are all in flight at once (reduce_tensor/small.cu)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ctypes import Structure, c_int, c_uint
from functools import cache
from math import prod
from typing import Any, NamedTuple

from dualdnn.api.enumerations import cudnnReduceTensorOp_t
from dualdnn.api.operations import ReduceTensor
from dualdnn.api.operations.specs import SCALAR_BYTES

from ..plans import ELEMENTS, Launch, factors, fields_of, pointers, structure, type_definitions
from ..primitives.cluster import CLUSTER_SIZES, has_clusters
from ..primitives.geometry import FastDivmod
from .division import along_rows, vector_width
from .problem import Axes, ReduceProblem, ReduceSolver, Walk

# The kernel has the same limits.
MAX_READS = 8  # loads per thread
MAX_NARROW_READS = 16  # loads per thread of at most NARROW_BYTES
NARROW_BYTES = 4  # bytes per narrow load
REDUCED_DIGITS = 4  # merged dimensions that are reduced, upper bound
KEPT_DIGITS = 3  # merged dimensions that are kept, upper bound
MIN_THREADS = 64  # threads per block
MAX_THREADS = 1024  # threads per block
MAX_BLOCKS = 264  # blocks per grid
MAX_BYTES = 13 << 20  # bytes of A
MAX_DEEP_BYTES = 4 << 20  # bytes of A for columns longer than MAX_REDUCED
MAX_SCATTERED_BYTES = 2 << 20  # bytes of A if C is not contiguous along A
MAX_REDUCED = 256  # elements per reduction
AVERAGE = cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_AVG
MAX_RESULTS = 2  # results per thread up to which the kernel is compiled for the type of C
WARP = 32
COST_MULTIPROCESSORS = 132  # SMs of the device on which the costs were measured
CLUSTER_CYCLES = 493  # cycles to start and synchronize a cluster
CLUSTER_BLOCK_CYCLES = 8.15  # additional cycles per block of a cluster
START_CYCLES = 4  # cycles to start a block without clusters
CLUSTER_START_CYCLES = 8  # cycles to start a block of a cluster
UNEVEN_CYCLES = 60  # cycles added where some threads have one access less
GATHERING_BYTES = 8  # shared memory for the barrier of a cluster; its alignment needs as much


@cache
def _digits_type(operands: int, dimensions: int) -> type[Structure]:
    class Digit(Structure):
        _fields_ = [("extent", FastDivmod), ("stride", c_uint * operands)]

    class Digits(Structure):
        _fields_ = [("digit", Digit * dimensions)]

    return Digits


def _digits(extents: Sequence[int], strides: Sequence[Sequence[int]], dimensions: int) -> Structure:
    """Return the kernel's ``Digits`` for dimensions that are given outermost first."""
    value: Any = _digits_type(len(strides), dimensions)()
    for digit in value.digit:
        digit.extent = FastDivmod.of(1)
    for digit, extent, *steps in zip(value.digit, reversed(extents), *map(reversed, strides), strict=False):
        digit.extent, digit.stride[:] = FastDivmod.of(extent), steps
    return value


class Reading(NamedTuple):
    """Hold the accesses of a thread: ``accesses`` loads of ``width`` elements, ``step`` elements apart.

    split: the dimension that they follow, fastest is 0. last: the position from which threads lack the last one.
    vectors: neighbouring accesses, or elements of C. shares: threads per vector.
    """

    width: int
    accesses: int
    step: int
    split: int
    last: int
    shares: int
    vectors: int
    c_step: int
    reduced: Any
    kept: Any

    @property
    def even(self) -> bool:
        """Return whether all threads have the same number of accesses."""
        return bool(self.last == self.reduced.digit[self.split].extent.divisor)


class Sharing(NamedTuple):
    """Hold how threads share reductions: ``blocks`` per cluster (0 without clusters), ``lanes`` threads per item.

    items: vectors of C per block.
    """

    blocks: int
    lanes: int
    items: int

    @property
    def threads(self) -> int:
        """Return the threads per block."""
        return self.lanes * self.items


Found = tuple[Launch, int]  # the launch, and the alignment of A in bytes


class Small(ReduceSolver):
    """Serve reductions without indices whose loads are all in flight at once."""

    name = "reduce_tensor.small"
    asks_device = True

    def serves(self, problem: ReduceProblem) -> bool:
        return problem.aligned and not problem.operation.wants_indices and self._found(problem) is not None

    def applies(self, problem: ReduceProblem) -> bool:
        return is_small(problem.operation, problem.walk) and self.serves(problem)

    def launches(self, problem: ReduceProblem) -> list[Launch]:
        found = self._found(problem)
        assert found is not None
        return [found[0]]

    def alignment(self, problem: ReduceProblem) -> Mapping[str, int]:
        found = self._found(problem)
        assert found is not None
        return {"A": found[1]}

    def _found(self, problem: ReduceProblem) -> Found | None:
        return problem.once(self.name, lambda: fastest(problem.operation, problem.device))


def is_small(operation: ReduceTensor, walk: Walk) -> bool:
    """Return whether a reduction is so small that this solver was measured to be fastest; False with indices."""
    rows = along_rows(operation.A, operation.C)
    most = MAX_BYTES if rows or operation.A.count <= MAX_REDUCED * operation.C.count else MAX_DEEP_BYTES
    if not rows and walk.axes()[1][1][1][-1] != 1:
        most = MAX_SCATTERED_BYTES
    return not operation.wants_indices and operation.A.nbytes <= most


def fastest(operation: ReduceTensor, device: Any) -> Found | None:
    """Return the launch of least estimated time; None where threads cannot hold all loads at once."""
    for sharing, reading in choices(operation, device):
        made = launch_of(operation, device, reading, sharing)
        usual = sharing.blocks <= CLUSTER_SIZES[0]
        if usual or made.function.holds_clusters(made.grid, made.block, made.shared_bytes):
            return made, reading.width * operation.A.scalar_bytes
    return None


def choices(operation: ReduceTensor, device: Any) -> list[tuple[Sharing, Reading]]:
    """Return the combinations of sharing and reading, in order of estimated time."""
    rows, scalar_bytes = along_rows(operation.A, operation.C), operation.A.scalar_bytes
    found = [(sharing, reading) for reading in readings(operation) for sharing in sharings(reading, rows, device)]
    return sorted(found, key=lambda choice: cost(choice[0], choice[1], rows, scalar_bytes))


def readings(operation: ReduceTensor) -> Iterator[Reading]:
    """Yield the readings for every access width that divides A, split along each dimension."""
    rows, width = along_rows(operation.A, operation.C), vector_width(operation.A)
    reduced, kept = Walk(operation).axes()
    while width:
        if _consists(reduced, kept, width) if rows else _consists(kept, reduced, width):
            yield from _split(
                _vectors(reduced, width) if rows else reduced,
                kept if rows else _vectors(kept, width),
                width,
                kept[1][1][-1],
                MAX_NARROW_READS if width * operation.A.scalar_bytes <= NARROW_BYTES else MAX_READS,
            )
        width //= 2


def _consists(inner: Axes, outer: Axes, width: int) -> bool:
    """Return whether A consists of aligned accesses of ``width`` elements along the fastest inner dimension."""
    (extents, (steps, *_)), (others, (other_steps, *_)) = inner, outer
    apart = steps[:-1] + [step for extent, step in zip(others, other_steps, strict=True) if extent > 1]
    return width == 1 or (steps[-1] == 1 and not any(number % width for number in (extents[-1], *apart)))


def _vectors(axes: Axes, width: int) -> Axes:
    extents, strides = axes
    return [*extents[:-1], extents[-1] // width], [[*steps[:-1], steps[-1] * width] for steps in strides]


def _split(reduced: Axes, kept: Axes, width: int, c_step: int, max_reads: int) -> Iterator[Reading]:
    extents, (steps,) = reduced
    if len(extents) > REDUCED_DIGITS or len(kept[0]) > KEPT_DIGITS:
        return
    kept_digits = _digits(*kept, KEPT_DIGITS)
    for d, extent in enumerate(extents):
        for apart in sorted({-(-extent // accesses) for accesses in range(1, max_reads + 1)}):
            accesses, left = -(-extent // apart), [*extents[:d], apart, *extents[d + 1 :]]
            yield Reading(
                width, accesses, apart * steps[d], len(extents) - 1 - d, extent - (accesses - 1) * apart,
                prod(left), prod(kept[0]), c_step, _digits(left, [steps], REDUCED_DIGITS),
                kept_digits,
            )  # fmt: skip


def sharings(reading: Reading, rows: bool, device: Any) -> Iterator[Sharing]:
    """Yield the sharings that hold all loads at once.

    The lanes per item are one, or at least the states per thread, so that each lane finishes at most one state.
    """
    for blocks in (0, *cluster_sizes(device)):
        lanes = 1 << (-(-reading.shares // max(1, blocks)) - 1).bit_length()
        items = 1
        while lanes * items <= MAX_THREADS:
            merges = lanes >= (1 if rows else reading.width) or (lanes == 1 and not blocks)
            if merges and lanes * items >= MIN_THREADS and -(-reading.vectors // items) * max(1, blocks) <= MAX_BLOCKS:
                yield Sharing(blocks, lanes, items)
            items *= 2


def cluster_sizes(device: Any) -> tuple[int, ...]:
    """Return the sizes of clusters that the kernels may have on a device: on the emulated one a cluster is one
    block."""
    if has_clusters(device):
        return CLUSTER_SIZES
    return (1,) if device.kind == "emulated" else ()


def _merging(sharing: Sharing, rows: bool) -> tuple[int, int]:
    """Return the lanes of an item per warp, and the number of parts that are merged in shared memory, or 0."""
    of_warp = min(sharing.lanes, WARP if rows else max(1, WARP // sharing.items))
    return of_warp, sharing.lanes // of_warp if sharing.lanes > of_warp else 0


def cost(sharing: Sharing, reading: Reading, rows: bool, scalar_bytes: int) -> float:
    """Return the estimated cycles of a sharing.

    The model is fitted to the best of up to 26 runs of each of 62 reductions in a stream (H200).
    """
    states, (of_warp, parts) = 1 if rows else reading.width, _merging(sharing, rows)
    grid = -(-reading.vectors // sharing.items) * max(1, sharing.blocks)
    warps = -(-grid // COST_MULTIPROCESSORS) * sharing.threads / WARP  # warps per SM
    shuffles = (of_warp - 1).bit_length()
    instructions = 52.3 + reading.accesses * (3.04 + 1.91 * reading.width) + (40 + 12 * states if parts else 0)
    merging = 84.7 * states**0.34 * shuffles + (176.7 + 6.4 * parts if parts else 0)
    # An access of a warp takes a cycle per contiguous run, and an SM receives 50 bytes per cycle.
    runs = 1 if rows else max(1, WARP // sharing.items)
    read = warps * reading.accesses * max(runs, WARP * reading.width * scalar_bytes / 50)
    # Where C is not contiguous along A, several blocks write parts of the same sectors.
    scattered = 0 if rows or reading.c_step == 1 else 360 / reading.width
    gathering = CLUSTER_CYCLES + CLUSTER_BLOCK_CYCLES * sharing.blocks if sharing.blocks else 0
    uneven = 0 if reading.even else UNEVEN_CYCLES
    begin = (CLUSTER_START_CYCLES if sharing.blocks else START_CYCLES) * grid
    return instructions * (3.5 + warps / 9) + merging + gathering + read + scattered + begin + uneven


def _knows_result(sharing: Sharing, reading: Reading, rows: bool) -> bool:
    """Return whether the kernel is compiled for the type of C.

    It is not where that was slower: for clusters that share rows, and for threads that write several elements.
    """
    return not sharing.blocks if rows else bool(sharing.blocks) or sharing.lanes > 1 or reading.width <= MAX_RESULTS


def launch_of(operation: ReduceTensor, device: Any, reading: Reading, sharing: Sharing) -> Launch:
    """Return the launch for a reading and a sharing."""
    divisor = operation.length if operation.reduction.op == AVERAGE else 1
    reduction, rows, state_bytes = (
        operation.reduction,
        along_rows(operation.A, operation.C),
        SCALAR_BYTES[operation.compute_type],
    )
    states, (_, parts) = sharing.items * (1 if rows else reading.width), _merging(sharing, rows)
    definitions = {"VECTOR_BYTES": str(reading.width * operation.A.scalar_bytes)}
    if sharing.blocks:
        definitions["CLUSTER_BLOCKS"] = str(sharing.blocks)
    if _knows_result(sharing, reading, rows):
        definitions["RESULT"] = ELEMENTS[operation.C.scalar_type]
    function = device.function(
        "reduce_tensor/small.cu",
        f"reduce_tensor_small_{'rows' if rows else 'columns'}",
        type_definitions(operation.A.scalar_type, operation, **definitions),
    )
    arguments = structure(
        *pointers(2),
        *fields_of(c_uint, lanes_log2=sharing.lanes.bit_length() - 1, items_log2=sharing.items.bit_length() - 1),
        *fields_of(
            c_uint, vectors=reading.vectors, shares=reading.shares, accesses=reading.accesses, step=reading.step
        ),
        *fields_of(c_uint, split=reading.split, last=reading.last),
        ("reduced", reading.reduced),
        ("kept", reading.kept),
        *factors(operation, alpha=operation.alpha / divisor, beta=operation.beta),
        *fields_of(c_int, op=reduction.op, propagate=reduction.nan, c_type=operation.C.scalar_type),
        *fields_of(c_uint, c_step=reading.c_step, gathered_at=parts * states),
    )
    grid = (-(-reading.vectors // sharing.items), max(1, sharing.blocks), 1)
    shared_bytes = state_bytes * (parts + sharing.blocks) * states + (2 * GATHERING_BYTES if sharing.blocks else 0)
    return Launch(function, arguments, ("A", "C"), grid, (sharing.threads, 1, 1), shared_bytes)
