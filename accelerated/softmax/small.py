"""Offsets in small tensors, as the kernels of softmax/small.cuh take them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

from ..primitives.geometry import FastDivmod, merge_dimensions
from .problem import SoftmaxProblem, ceiling

MOST_THREADS = 512  # per block
RANK = 4  # dimensions: there are no more along rows, and none more beside them, that strides of tensors keep apart


@cache
def _offsets_type(operands: int) -> type[ctypes.Structure]:
    class Offsets(ctypes.Structure):
        _fields_ = [
            ("count", ctypes.c_uint),
            ("items", ctypes.c_uint),
            ("apart", ctypes.c_uint),
            ("limit", ctypes.c_uint),
            ("item_step", ctypes.c_int * operands),
            ("extent", FastDivmod * (RANK - 1)),
            ("step", ctypes.c_int * RANK * operands),
        ]

    return Offsets


def offsets_of(extents: Sequence[int], steps: Sequence[Sequence[int]], d: int, each: int) -> Any:
    """Return the kernels' ``Offsets``: of every ``each`` positions of dimension ``d`` one, the others ``apart`` from
    each other.

    extents: of merged dimensions, the slowest first. steps: for every operand, in elements.
    """
    apart = ceiling(extents[d], each)
    # That dimension comes last.
    order = [*reversed([i for i in range(len(extents)) if i != d])]
    value: Any = _offsets_type(len(steps))()
    value.count = apart * prod(extents[i] for i in order)
    value.items, value.apart, value.limit = ceiling(extents[d], apart), apart, extents[d]
    for dimension in range(RANK - 1):
        value.extent[dimension] = FastDivmod.of(extents[order[dimension]] if dimension < len(order) else 1)
    for operand, step in enumerate(steps):
        value.item_step[operand] = apart * step[d]
        value.step[operand][:] = [*(step[i] for i in order), *[0] * (RANK - 1 - len(order)), step[d]]
    return value


def row_offsets(problem: SoftmaxProblem) -> Any:
    """Return the offsets at which rows begin."""
    extents, steps = merge_dimensions(*problem.outer_extents)
    return offsets_of(extents, steps, 0, 1)
