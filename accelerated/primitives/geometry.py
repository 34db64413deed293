"""Computes the kernels' index geometry: merged dimensions, vectors of 16 bytes, fast division (the host side of
geometry.cuh)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import cache
from math import prod
from typing import Any

from ..runtime.arguments import declared

Grid = tuple[int, int, int]

MAX_DIMENSIONS = 9
THREADS = 256  # threads per block of the element-by-element kernels

VECTORS_PER_THREAD = 2  # vectors per thread, if each SM still gets BUSY_BLOCKS blocks
# Functions of many instructions take more vectors, so that a block runs longer than its start takes.
LONG_VECTORS_PER_THREAD = 4  # vectors per thread for long functions
BUSY_BLOCKS = 4  # blocks per SM that keep it busy

MAX_ITEMS = 8  # single elements per thread
ITEM_BYTES = 16  # bytes of single elements per thread, upper bound
INDEX_COST = 5  # index arithmetic of a thread's first element, relative to each further element

VECTOR_BYTES = 16  # bytes per vector
L2_RESIDENT_BYTES = 32 << 20  # bytes read and written by a call whose data stay in L2
# The first blocks prefetch their first reads to L2 (dependent_launch.cuh). More blocks gain nothing.
PREFETCH_BYTES = 64 << 20  # bytes read and written from which blocks prefetch
PREFETCH_BLOCKS = 264  # blocks that prefetch


class FastDivmod(ctypes.Structure):
    """Hold the constants of n / divisor = (mulhi(n, multiplier) + n) >> shift, for n < 2**31."""

    _fields_ = [("divisor", ctypes.c_uint), ("multiplier", ctypes.c_uint), ("shift", ctypes.c_uint)]

    @classmethod
    def of(cls, divisor: int) -> FastDivmod:
        """Return the constants of a divisor. Raise ValueError unless it is 1 to 2**31 - 1."""
        if not 0 < divisor < 2**31:
            raise ValueError(f"divisor is {divisor}, it must be 1 to 2**31 - 1")
        shift = (divisor - 1).bit_length()
        return cls(divisor, ((2**shift - divisor) << 32) // divisor + 1, shift)


@cache
def _geometry_type(operands: int) -> type[ctypes.Structure]:
    outer_rank = MAX_DIMENSIONS - 1

    class Outer(ctypes.Structure):
        _fields_ = [("extent", FastDivmod), ("stride", ctypes.c_int * operands)]

    class Geometry(ctypes.Structure):
        _fields_ = [
            *declared(ctypes.c_uint, "row flat vectors vectors_per_thread width vectorised items"),
            ("split", ctypes.c_int),
            *declared(ctypes.c_uint, "item_distance item_extent partial_sectors"),
            *declared(ctypes.c_int * operands, "item_stride row_stride"),
            ("vectors_per_row", FastDivmod),
            ("outer_rank", ctypes.c_int),
            ("outer", Outer * outer_rank),
        ]

    return Geometry


def merge_along(
    order: Iterable[int], dims: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Return the fewest dimensions that index all operands alike, in this order: their extents, then every operand's
    strides in elements.

    Dimensions of extent 1 vanish; neighbours that are contiguous in every operand become one. Where none remains, the
    extent is 1 and strides are 0.
    """
    merged: list[tuple[int, list[int]]] = []
    for d in order:
        steps = [stride[d] for stride in strides]
        if merged and merged[-1][1] == [step * dims[d] for step in steps]:
            merged[-1] = merged[-1][0] * dims[d], steps
        elif dims[d] > 1:
            merged.append((dims[d], steps))
    merged = merged or [(1, [0] * len(strides))]
    return [extent for extent, _ in merged], [
        list(steps) for steps in zip(*(steps for _, steps in merged), strict=True)
    ]


def merge_dimensions(dims: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Return merge_along() in the order of the last operand's strides, outermost first, which is never 0."""
    extents, steps = merge_along(sorted(range(len(dims)), key=lambda d: -strides[-1][d]), dims, strides)
    if extents == [1]:
        steps[-1] = [1]
    return extents, steps


def geometry(dims: Sequence[int], strides: Sequence[Sequence[int]], width: int) -> Any:
    """Return the ``Geometry<N>`` of N operands over ``dims``, with their strides in elements; the last is the output.

    width: elements per vector, as compiled into the kernel.
    """
    return _described(*merge_dimensions(dims, strides), width)


def merge_in_order(dims: Sequence[int], strides: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return extents and strides of the fewest dimensions that index a tensor of any layout in row-major order."""
    extents, (steps,) = merge_along(range(len(dims)), dims, [strides])
    return extents, steps


def geometry_in_order(dims: Sequence[int], strides: Sequence[int]) -> Any:
    """Return the ``Geometry<1>`` of single elements in row-major order."""
    extents, steps = merge_in_order(dims, strides)
    return _described(extents, [steps], 1)


def _described(extents: Sequence[int], steps: Sequence[Sequence[int]], width: int) -> Any:
    """Return the geometry of merged dimensions, outermost first."""
    row = extents[-1]
    outer = list(reversed(range(len(extents) - 1)))
    value: Any = _geometry_type(len(steps))()
    vectors_per_row = -(-row // width)
    value.vectors, value.row, value.width = prod(extents[:-1]) * vectors_per_row, row, width
    value.vectors_per_thread = value.items = 1
    value.vectors_per_row = FastDivmod.of(vectors_per_row)
    value.outer_rank = len(outer)
    for i, d in enumerate(outer):
        value.outer[i].extent = FastDivmod.of(extents[d])
    for operand, step in enumerate(steps):
        value.row_stride[operand] = step[-1]
        for i, d in enumerate(outer):
            value.outer[i].stride[operand] = step[d]
        if step[-1] == 1 and all(step[d] % width == 0 for d in outer):
            value.vectorised |= 1 << operand
    return value


def elementwise(
    dims: Sequence[int], strides: Sequence[Sequence[int]], width: int, device: Any, most: int = VECTORS_PER_THREAD
) -> tuple[Any, Grid]:
    """Return the geometry and grid of an element-by-element kernel. It uses vectors of ``width`` elements if every
    operand moves them in one access or is broadcast along them, else single elements. Threads take up to ``most``
    vectors where they are many."""
    extents, steps = merge_dimensions(dims, strides)
    value = _described(extents, steps, width)
    flat = value.outer_rank == 0 and value.vectorised == (1 << len(strides)) - 1
    packed = all(value.vectorised >> i & 1 or value.row_stride[i] == 0 for i in range(len(strides)))
    if value.row < width or not (flat or (packed and value.row % width == 0)):
        value = _single(extents, steps, device, VECTOR_BYTES // width)
        return value, blocks(value.vectors)
    value.vectors_per_thread = vectors_per_thread(value.vectors, device, most)
    value.flat = value.vectors_per_thread if flat else 0
    return value, blocks(value.vectors, THREADS * value.vectors_per_thread)


def _single(extents: list[int], steps: list[list[int]], device: Any, element_bytes: int) -> Any:
    """Return the geometry of single elements. A thread's elements follow one dimension, not the row if others
    exist, so that accesses are coalesced. The choice of dimension and count leaves the fewest threads idle."""
    # One block keeps an SM busy: the start of a second takes as long as another element.
    most = vectors_per_thread(prod(extents) * BUSY_BLOCKS, device, min(MAX_ITEMS, ITEM_BYTES // element_bytes))

    def cost(choice: tuple[int, int]) -> tuple[float, int]:
        d, item_distance = choice
        items = -(-extents[d] // item_distance)
        return (INDEX_COST / items + 1) * item_distance * items / extents[d], -d

    dimensions = range(max(1, len(extents) - 1))
    choices = {(d, -(-extents[d] // items)) for d in dimensions for items in range(1, most + 1)}
    d, item_distance = min(choices, key=cost)
    value = _described([*extents[:d], item_distance, *extents[d + 1 :]], steps, 1)
    value.items, value.item_distance, value.item_extent = -(-extents[d] // item_distance), item_distance, extents[d]
    value.split = len(extents) - 2 - d
    dense = prod(extents) == 1 + sum((e - 1) * s for e, s in zip(extents, steps[-1], strict=True))
    value.partial_sectors = not dense and prod(extents) * len(steps) * element_bytes > L2_RESIDENT_BYTES
    for operand, step in enumerate(steps):
        value.item_stride[operand] = item_distance * step[d]
    return value


def vectors_per_thread(vectors: int, device: Any, most: int = VECTORS_PER_THREAD) -> int:
    """Return how many vectors a thread takes, ``most`` at most."""
    return max(1, min(most, vectors // (THREADS * BUSY_BLOCKS * device.multiprocessors)))


def blocks(vectors: int, vectors_per_block: int = THREADS) -> Grid:
    """Return the grid that has a thread for every vector."""
    return (max(1, -(-vectors // vectors_per_block)), 1, 1)


def prefetching_blocks(moved_bytes: int) -> int:
    """Return how many blocks prefetch to L2 in a call that moves ``moved_bytes``."""
    return PREFETCH_BLOCKS if moved_bytes >= PREFETCH_BYTES else 0


def broadcast_strides(dims: Sequence[int], strides: Sequence[int], onto: Sequence[int]) -> list[int]:
    """Return the strides that broadcast an operand of ``dims`` to ``onto``: 0 where its extent is 1 and that of
    ``onto`` is larger."""
    return [0 if extent == 1 and wide > 1 else stride for extent, stride, wide in zip(dims, strides, onto, strict=True)]
