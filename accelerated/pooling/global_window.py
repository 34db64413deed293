"""Plans how threads share planes in global pooling, where one window covers a plane (global_window.cuh)."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_longlong, c_uint
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

from ..plans import type_definitions
from ..primitives.geometry import FastDivmod
from ..runtime.arguments import declared
from .problem import WARP, Axis, Configuration, PoolingProblem, Shape, arguments

MAX_OUTER = 3  # dimensions that are not pooled
MAX_SPAN = 2**31  # elements from the first to the last of a plane
BLOCK = 128  # minimum threads per block
MAX_BLOCK = 1024  # maximum threads per block
MIN_TEAM = 8  # minimum threads per plane
FEW_LOADS = 4  # loads per thread below which teams shrink
MANY_LOADS = 8  # loads per thread above which teams grow
MAX_PITCH = 2  # row pitch in row lengths, up to which gaps are read with the rows
ENOUGH_THREADS = 2**16  # threads that keep a GPU busy, approximately


class PlanesStruct(ctypes.Structure):
    """Lay out the ``GlobalPlanes`` of the kernels."""

    _fields_ = [
        *declared(c_uint, "planes rows columns row_stride team_bits column_bits over_gaps"),
        ("pitch", FastDivmod),
        ("outer_rank", c_int),
        ("vectors", FastDivmod),
        ("extent", FastDivmod * MAX_OUTER),
        *declared(c_longlong * MAX_OUTER, "x_step y_step"),
    ]


@dataclass
class Work:
    """Hold the variant of a kernel and how its threads share the work."""

    variant: str
    planes: PlanesStruct
    blocks: int
    threads: int
    width: int  # elements per vector access
    shared_bytes: int = 0
    needs_alignment: bool = True  # whether the kernel needs operands aligned to a vector

    @property
    def alignment(self) -> int:
        """Return the alignment of operands in elements."""
        return self.width if self.needs_alignment else 1


def configured(
    problem: PoolingProblem, source: str, work: Work | None, *fields: tuple[str, Any]
) -> Configuration | None:
    """Return the launch of a kernel, None without work. ``fields`` are its arguments after the factors."""
    if work is None:
        return None
    operation = problem.operation
    return Configuration(
        source,
        f"{source.removesuffix('.cu').replace('/', '_')}_{work.variant}",
        type_definitions(operation.x.scalar_type, operation, VECTOR_WIDTH=str(work.width)),
        arguments(problem, ("planes", work.planes), *problem.factors_and_reciprocal, *fields),
        (work.blocks, 1, 1),
        (work.threads, 1, 1),
        work.shared_bytes,
        dict.fromkeys(problem.operands, work.alignment * operation.x.scalar_bytes),
    )


def _planes(shape: Shape, outer: int) -> PlanesStruct | None:
    """Return the extents and strides of the first ``outer`` dimensions; None where the window is not global."""
    if not shape.is_global:
        return None
    value = PlanesStruct(vectors=FastDivmod.of(1), planes=prod(shape.extents[:outer]))
    dims = zip(shape.extents[:outer], shape.x_steps[:outer], shape.y_steps[:outer], strict=True)
    for i, (extent, x_step, y_step) in enumerate(dim for dim in reversed([*dims]) if dim[0] > 1):
        value.extent[i], value.x_step[i], value.y_step[i] = FastDivmod.of(extent), x_step, y_step
        value.outer_rank = i + 1
    return value


def rows_of(shape: Shape, usual_team: int, canonical: Shape | None = None) -> Work | None:
    """Return how teams of threads share planes of contiguous rows; None for other planes.

    canonical: the shape whose number of planes decides about teams, by default ``shape``.
    """
    value = _planes(shape, len(shape.extents))
    rows, row = _single_axis(shape.axes[:2]), shape.axes[2]
    if value is None or rows is None or (row.x_stride != 1 and row.input > 1):
        return None
    value.rows, value.columns, value.row_stride = rows.input, row.input, rows.x_stride
    if rows.input * rows.x_stride >= MAX_SPAN:
        return None
    planes = prod((canonical or shape).extents)
    loads = row.input // shape.width if rows.input == 1 else rows.input * row.input
    few = planes * WARP < ENOUGH_THREADS
    team = WARP // 2 if few and usual_team == WARP and loads <= MANY_LOADS * WARP // 2 else WARP
    while team > MIN_TEAM and loads <= FEW_LOADS * team // 2 and planes * team // 2 >= ENOUGH_THREADS:
        team //= 2
    while team < usual_team and loads > MANY_LOADS * team:
        team *= 2
    while team < MAX_BLOCK and loads > MANY_LOADS * team and planes * team < ENOUGH_THREADS:
        team *= 2
    value.team_bits = team.bit_length() - 1
    value.pitch = FastDivmod.of(max(1, rows.x_stride))
    # A vector spans at most one gap, and elements outside of vectors belong to the first or the last row.
    pitch_fits = shape.width - 1 <= row.input <= rows.x_stride <= MAX_PITCH * row.input
    value.over_gaps = rows.input > 1 and pitch_fits
    threads = max(team, BLOCK)
    blocks = -(-value.planes * team // threads)
    return Work("rows", value, blocks, threads, shape.width, needs_alignment=False)


def _single_axis(axes: list[Axis]) -> Axis | None:
    """Return the only axis with more than one position; None if there are two, a single position if there is none."""
    longer = [axis for axis in axes if axis.input > 1]
    if len(longer) > 1:
        return None
    return longer[0] if longer else Axis(1, 1, 1, 1, 0, 0, 0)


def channel_planes(problem: PoolingProblem) -> tuple[PlanesStruct, int] | None:
    """Return the planes of channel vectors and the elements per vector; None where a plane is not one row.

    Vectors have up to 16 bytes; their length divides the number of channels and all strides.
    """
    shape = problem.shape
    value = _planes(shape, len(shape.extents) - 1) if problem.aligned else None
    axis = _single_axis(shape.axes)
    channels = shape.extents[-1]
    if value is None or axis is None or not shape.channels_last:
        return None
    width = gcd(shape.width, channels, *shape.x_steps[:-1], *shape.y_steps[:-1], axis.x_stride)
    if axis.input * axis.x_stride >= MAX_SPAN:
        return None
    value.rows, value.row_stride = axis.input, axis.x_stride
    value.vectors = FastDivmod.of(channels // width)
    value.planes *= channels // width
    return value, width
