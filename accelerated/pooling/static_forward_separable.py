"""Forward pooling of images in rows with a large static window, columns first (static_forward_separable.cu)."""

from __future__ import annotations

from ctypes import c_int, c_uint
from math import prod
from typing import ClassVar

from dualdnn.api.operations.specs import SCALAR_BYTES

from ..primitives.geometry import FastDivmod
from .problem import FORWARD, WARP, Configuration, PoolingProblem
from .static_window import (
    LARGE_WINDOWS,
    MAX_PACK,
    ROW_BYTES,
    Access,
    LayoutStruct,
    Settings,
    StaticShape,
    StaticWindowSolver,
    static_shape,
)

SETTINGS = Settings(threads=256, blocks=4, channel_bytes=16)
MAX_SHARED_BYTES = 32 * 1024  # of a block; several share an SM


class RowsStruct(LayoutStruct):
    """The ``Rows`` of the kernel."""

    _fields_: ClassVar = [
        ("total", c_uint),
        ("slots", c_uint),
        ("packs", FastDivmod),
        ("outputs", FastDivmod),
        ("rows", FastDivmod),
    ]


class StaticForwardSeparable(StaticWindowSolver):
    """LARGE_WINDOWS of rows: a thread pools a pack of columns, then windows pool columns in shared memory."""

    name, source = "pooling.static_forward_separable", "pooling/static_forward_separable.cu"
    kinds = (FORWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        shape = problem.shape
        static = None if shape.channels_last or not problem.aligned else static_shape(shape, LARGE_WINDOWS)
        access = None if static is None or static.axes[0].input > 1 else _access(static)
        if static is None or access is None:
            return None
        _, down, along = static.axes
        packs = along.input // access.x_pack
        row_bytes = along.input * SCALAR_BYTES[problem.operation.compute_type]
        total = prod(static.extents) * down.output
        slots = min(SETTINGS.threads // packs, MAX_SHARED_BYTES // row_bytes, total)
        if slots == 0:
            return None
        rows = RowsStruct(
            static,
            access,
            total=total,
            slots=slots,
            packs=FastDivmod.of(packs),
            outputs=FastDivmod.of(along.output),
            rows=FastDivmod.of(down.output),
        )
        return self.made(
            problem,
            (static, access, SETTINGS),
            (-(-total // slots), 1, 1),
            (-(-slots * packs // WARP) * WARP, 1, 1),
            ("rows", rows),
            *problem.factors_and_reciprocal,
            ("mode", c_int(problem.operation.pooling.mode)),
            ("propagate", c_int(problem.operation.pooling.nan)),
            shared_bytes=slots * row_bytes,
        )


def _access(static: StaticShape) -> Access | None:
    """Return the widest packs of columns; None where there are none."""
    for kind, nbytes in ROW_BYTES.items():
        pack = min(nbytes // static.scalar_bytes, MAX_PACK)
        if pack > 1 and static.divided_by(pack, False)[0]:
            return Access(kind, 1, 1, pack, False, 1)
    return None
