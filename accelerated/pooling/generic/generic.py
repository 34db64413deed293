"""Builds the structures of generic.cuh, for pooling with any window in generic layouts."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_longlong, c_uint
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import PurePosixPath
from typing import Any

from dualdnn.api.operations.specs import DOUBLE

from ...plans import type_definitions
from ...primitives.geometry import FastDivmod, blocks
from ...runtime.arguments import declared
from ...scalars import fill
from ..problem import INDICES, VECTOR_BYTES, Configuration, PoolingProblem, Shape, arguments

MAX_WALKED = 6  # dimensions of a ``Walk``
INDEX_BYTES = 4  # bytes per index of an input in its plane
VECTOR = 4  # elements per INT8x4
PAIR = 2  # elements per vector where the number of channels is even


class AxisStruct(ctypes.Structure):
    """Lay out the ``Axis`` of the kernels."""

    _fields_ = [(name, c_int) for name in ("input", "output", "window", "stride", "padding")] + [
        ("by_stride", FastDivmod)
    ]


@cache
def _pooling_type(real: Any) -> type[ctypes.Structure]:
    class PoolingStruct(ctypes.Structure):
        _fields_ = [
            ("axis", AxisStruct * 3),
            *declared(c_longlong * 3, "x_stride y_stride"),
            *declared(real, "alpha beta divisor"),
            *declared(c_int, "mode propagate"),
        ]

    return PoolingStruct


class WalkStruct(ctypes.Structure):
    """Lay out the ``Walk`` of the kernels."""

    _fields_ = [
        *declared(c_uint, "vectors width"),
        ("vectors_per_position", FastDivmod),
        ("rank", c_int),
        ("extent", FastDivmod * MAX_WALKED),
        ("axis", c_int * MAX_WALKED),
        *declared(c_longlong * MAX_WALKED, "walked other"),
    ]


def index_shape(shape: Shape) -> Shape:
    """Return the shape whose y is the packed tensor with the indices of first maxima; it is NHWC where x is."""
    sizes = [*shape.extents, *(axis.output for axis in shape.axes)]
    order = [d for d in range(len(sizes)) if not (shape.channels_last and d == len(shape.extents) - 1)]
    order += [d for d in range(len(sizes)) if d not in order]
    steps = {d: prod(sizes[other] for other in order[i + 1 :]) for i, d in enumerate(order)}
    axes = [replace(axis, y_stride=steps[len(shape.extents) + d]) for d, axis in enumerate(shape.axes)]
    return replace(shape, axes=axes, y_steps=[steps[d] for d in range(len(shape.extents))])


def pooling_of(problem: PoolingProblem, shape: Shape) -> Any:
    """Return the ``Pooling`` of a call. shape: the shape of the problem, or its index_shape()."""
    operation = problem.operation
    value: Any = _pooling_type(ctypes.c_double if operation.compute_type == DOUBLE else ctypes.c_float)()
    for d, axis in enumerate(shape.axes):
        sizes = (axis.input, axis.output, axis.window, axis.stride, axis.padding)
        value.axis[d] = AxisStruct(*sizes, FastDivmod.of(axis.stride))
        value.x_stride[d], value.y_stride[d] = axis.x_stride, axis.y_stride
    value.mode, value.propagate = operation.pooling.mode, operation.pooling.nan
    return fill(value, alpha=operation.alpha, beta=operation.beta, divisor=problem.divisor)


def vector_width(problem: PoolingProblem) -> int:
    """Return the channels per vector: 16 bytes, or the 4 of INT8x4, or a pair, or 1 where vectors do not fit."""
    shape = problem.shape
    widths = (shape.width, *([VECTOR] if shape.width == VECTOR_BYTES else []), PAIR)
    return next((width for width in widths if problem.aligned and shape.vectors(width)), 1)


def walk_of(shape: Shape, width: int, forward: bool) -> WalkStruct:
    """Return the ``Walk`` over y (forward) or dx (backward), in vectors of ``width`` channels."""
    extents, walked, other = list(shape.extents), list(shape.x_steps), list(shape.y_steps)
    if forward:
        walked, other = other, walked
    channels = 1
    if shape.channels_last:
        channels = extents.pop()
        del walked[-1], other[-1]
    dims = [(step, extent, beyond, -1) for step, extent, beyond in zip(walked, extents, other, strict=True)]
    for d, axis in enumerate(shape.axes):
        dims.append((axis.y_stride, axis.output, 0, d) if forward else (axis.x_stride, axis.input, 0, d))
    dims = sorted(dim for dim in dims if dim[1] > 1)
    vectors = channels // width
    value = WalkStruct(width=width, vectors_per_position=FastDivmod.of(vectors), rank=len(dims))
    value.vectors = vectors * prod(dim[1] for dim in dims)
    for i, (step, extent, beyond, axis_number) in enumerate(dims):
        value.extent[i], value.axis[i] = FastDivmod.of(extent), axis_number
        value.walked[i], value.other[i] = step, beyond
    return value


def configured(
    problem: PoolingProblem,
    source: str,
    variant: str,
    width: int,
    grid: int,
    block: int,
    *fields: tuple[str, Any],
    shared_bytes: int = 0,
    shape: Shape | None = None,
    operands: tuple[str, ...] = (),
    before: Configuration | None = None,
) -> Configuration:
    """Return the launch of a variant of a kernel whose vectors have ``width`` elements.

    shape: the index_shape() of the launch that finds indices, else None. operands, before: see ``Configuration``.
    """
    operation, windows = problem.operation, prod(axis.output for axis in problem.shape.axes)
    return Configuration(
        source,
        f"pooling_{PurePosixPath(source).stem}_{variant}",
        type_definitions(operation.x.scalar_type, operation),
        arguments(problem, ("pooling", pooling_of(problem, shape or problem.shape)), *fields, operands=operands),
        (grid, 1, 1),
        (block, 1, 1),
        shared_bytes,
        dict.fromkeys(problem.operands, width * operation.x.scalar_bytes),
        operands=operands,
        scratch_bytes=prod(problem.shape.extents) * windows * INDEX_BYTES if INDICES in operands else 0,
        before=before,
    )


def thread_blocks(walk: WalkStruct) -> int:
    """Return the number of blocks that give every vector a thread."""
    return blocks(walk.vectors)[0]
