"""Plans the gradient of max pooling with a static window; threads of a block exchange maxima (max_backward.cu)."""

from __future__ import annotations

from ctypes import c_int, c_uint
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any, ClassVar

from dualdnn.api.operations.specs import HALF, SCALAR_BYTES

from ...primitives.geometry import FastDivmod
from ...runtime.arguments import declared
from ..problem import L2_BYTES, MAX_BACKWARD, WARP, Axis, Configuration, PoolingProblem
from ..static_window import (
    ROW_BYTES,
    Access,
    LayoutStruct,
    Settings,
    StaticShape,
    StaticWindowSolver,
    access_of,
    begins_in_the_end,
    reaches_over,
    static_shape,
    steps_of_blocks,
)

MAX_ROW_CHANNELS = 4  # contiguous channels up to which rows are read in vectors
ROW_CHANNELS_ACCESS = "narrow"  # kind of access to such rows
MAX_SHARED_BYTES = 100 * 1024  # dynamic shared memory per block
LONG_STRIDE = 3  # stride from which a thread has many sums, so that wide rows would exceed its registers
START_STEPS = 2  # cost of starting a block, in steps

# The keys are the kind of tensor with its layout, and whether elements have 4 bytes or more. The values were measured.
SETTINGS = {
    ("volumes in rows", False): Settings(threads=128, blocks=4),
    ("volumes in rows", True): Settings(threads=192, blocks=3),
    ("volumes in single elements", False): Settings(threads=256, blocks=3),
    ("volumes in single elements", True): Settings(threads=256, blocks=3),
    ("volumes of channels", False): Settings(threads=256, blocks=2),
    ("volumes of channels", True): Settings(threads=192, blocks=3, group_bytes=64),
    ("volumes of single channels", False): Settings(threads=256, blocks=2),
    ("volumes of single channels", True): Settings(threads=192, blocks=3, group_bytes=64),
    ("images in rows", False): Settings(threads=256, blocks=4),
    ("images in rows", True): Settings(threads=256, blocks=4),
    ("images in single elements", False): Settings(threads=256, blocks=4),
    ("images in single elements", True): Settings(threads=256, blocks=4, stages=1),
    ("images of channels", False): Settings(threads=128, blocks=5, group_bytes=128),
    ("images of channels", True): Settings(threads=256, blocks=4, stages=1, group_bytes=128),
    ("large images of channels", False): Settings(threads=128, blocks=6, stages=1, group_bytes=128),
    ("large images of channels", True): Settings(threads=256, blocks=4, stages=1, group_bytes=256),
    ("images of single channels", False): Settings(threads=256, blocks=4, group_bytes=128),
    ("images of single channels", True): Settings(threads=320, blocks=3, stages=1, group_bytes=128),
    ("rows of channels", False): Settings(threads=128, blocks=4, stages=1),
    ("rows of channels", True): Settings(threads=128, blocks=6),
}
LONG = Settings(threads=128, blocks=3)  # for volumes with a LONG_STRIDE
SINGLE = ("loose", "scattered")  # kinds of access to single elements


class MaxBackward(StaticWindowSolver):
    """Serve the windows in WINDOWS, in every layout with contiguous rows or channels."""

    name, source = "pooling.max_backward", "pooling/max_backward/max_backward.cu"
    kinds = (MAX_BACKWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        static = static_shape(problem.shape)
        if static is None:
            return None
        image = static.is_image
        if image:  # The sliding-window loop runs along the height.
            static = replace(static, axes=[static.axes[d] for d in (1, 0, 2)])
        # The kernel replaces inputs outside of a row by the last vector inside, which needs one there. Where a tile has
        # several vectors, no window may reach over the end.
        along = static.axes[2]
        row_bytes = {} if begins_in_the_end(along) or (along.stride % 2 and reaches_over(along)) else ROW_BYTES
        row_access = _row_access(static) if problem.aligned and row_bytes else None
        channels, large = static.channels > 1, static.scalar_bytes >= 4
        kind = "images" if image else "volumes"
        prefetches = problem.operation.nbytes("x") > L2_BYTES
        name = "rows of channels" if row_access else f"{kind} {'of channels' if channels else 'in rows'}"
        settings = SETTINGS[name, large]
        if prefetches:
            settings = SETTINGS.get((f"large {name}", large), settings)
        if row_access:
            settings = replace(settings, row_channels=row_access.channels)
        if along.stride >= LONG_STRIDE:
            settings = settings if image else replace(settings, threads=LONG.threads, blocks=LONG.blocks)
            row_bytes = {kind: nbytes for kind, nbytes in row_bytes.items() if kind == ROW_CHANNELS_ACCESS}
        access = row_access or access_of(problem, static, settings, row_bytes)
        if access.kind in SINGLE:
            settings = SETTINGS[f"{kind} {'of single channels' if channels else 'in single elements'}", large]
        sliding, blocks, shared_bytes = _sliding(
            problem, static, access, settings, prefetches and access.kind not in SINGLE
        )
        fields = ("sliding", sliding), *problem.factors, ("propagate", c_int(problem.operation.pooling.nan))
        block = -(-sliding.items // WARP) * WARP, 1, 1
        window = static, access, settings
        return self.made(problem, window, (blocks, 1, 1), block, *fields, shared_bytes=shared_bytes)


def _row_access(static: StaticShape) -> Access | None:
    """Return the access to rows with a few contiguous channels; None for more channels or unaligned vectors."""
    along, channels = static.axes[2], static.channels
    if not 1 < channels <= MAX_ROW_CHANNELS or (along.x_stride, along.y_stride) != (channels, channels):
        return None
    vector = ROW_BYTES[ROW_CHANNELS_ACCESS] // static.scalar_bytes
    tile = vector // gcd(vector, along.stride)
    strides = (*static.x_steps, *(axis.x_stride for axis in static.axes[:2] if axis.input > 1))
    fits = along.input % (tile * along.stride) == 0 and all(step % vector == 0 for step in strides)
    return Access(ROW_CHANNELS_ACCESS, tile, channels, vector, False, 1) if vector > 1 and fits else None


class SlidingStruct(LayoutStruct):
    """Lay out the ``Sliding`` of the kernel."""

    _fields_: ClassVar = [
        ("items", c_uint),
        *declared(FastDivmod, "group_vectors tiles rows groups tile_parts row_parts segments"),
        *declared(c_uint, "vectors planes block_planes"),
        *declared(c_int, "steps block_steps block_rows block_tiles rows_before tiles_before prefetches"),
    ]


@dataclass
class Side:
    """Describe how blocks share the tiles of an axis: tiles that a block writes, and a halo that it only scans."""

    before: int  # halo tiles before a block
    after: int  # halo tiles after a block
    parts: int  # blocks along the axis
    written: int  # tiles that a block writes

    @classmethod
    def of(cls, axis: Axis, tile: int, parts: int) -> Side:
        """Return the division of an axis into at most ``parts`` blocks of tiles with ``tile`` windows."""
        first = (axis.padding - axis.window) // axis.stride + 1
        last = (tile * axis.stride - 1 + axis.padding) // axis.stride
        tiles = max(-(-axis.output // tile), -(-axis.input // (tile * axis.stride)))
        written = -(-tiles // parts)
        return cls(-(first // tile), last // tile, -(-tiles // written), written)

    @property
    def around(self) -> int:
        """Return the number of halo tiles around a block."""
        return self.before + self.after

    @property
    def scanned(self) -> int:
        """Return the number of tiles that a block scans."""
        return self.written + (self.around if self.parts > 1 else 0)

    @property
    def first(self) -> int:
        """Return the number of halo tiles before the tiles that a block writes."""
        return self.before if self.parts > 1 else 0


def _sides(static: StaticShape, access: Access, room: int) -> tuple[Side, Side]:
    """Return the division of axes 1 and 2 into blocks of at most ``room`` tiles with the smallest total halo."""
    _, a1, a2 = static.axes
    best: Any = None
    for parts2 in range(1, a2.input + 1):
        columns = Side.of(a2, access.tile, parts2)
        if columns.parts != parts2:
            continue
        possible = room // columns.scanned
        rows = Side.of(a1, 1, 1)
        if rows.written > possible:
            if possible <= rows.around:
                continue
            rows = Side.of(a1, 1, -(-rows.written // (possible - rows.around)))
        cost = rows.parts * rows.scanned * columns.parts * columns.scanned
        if best is None or cost < best[0]:
            best = cost, rows, columns
    return best[1:]


def _cell_bytes(problem: PoolingProblem, windows: int) -> int:
    """Return the bytes of shared memory in which a thread publishes the indices and gradients of its windows.

    With fp16x2 two indices, or two gradients, share 4 bytes.
    """
    pairs = problem.operation.x.scalar_type == HALF and windows % 2 == 0
    return windows * (4 if pairs else 2 * SCALAR_BYTES[problem.operation.compute_type])


def _sliding(
    problem: PoolingProblem, static: StaticShape, access: Access, settings: Settings, prefetches: bool
) -> tuple[SlidingStruct, int, int]:
    """Return how blocks share the work, the number of blocks, and the dynamic shared memory per block in bytes."""
    a0, planes = static.axes[0], prod(static.extents)
    groups = -(-access.vectors // (settings.group_bytes // (access.channels * static.scalar_bytes)))
    group_vectors = -(-access.vectors // groups)  # vectors of channels per block, about equal for all blocks
    groups = -(-access.vectors // group_vectors)
    rows, columns = _sides(static, access, settings.threads // group_vectors)
    threads = rows.scanned * columns.scanned * group_vectors
    at_once = settings.blocks * problem.device.multiprocessors
    cells = (rows.scanned + rows.around) * (columns.scanned + columns.around) * group_vectors
    plane_bytes = 2 * cells * _cell_bytes(problem, access.tile * access.channels)
    # Small planes share a block, which has at least a warp of threads; enough blocks must be left.
    wanted = max(WARP // threads, -(-planes // at_once))
    room = min(MAX_SHARED_BYTES, problem.device.shared_bytes_per_block)
    possible = min(settings.threads // threads, room // plane_bytes, planes)
    block_planes = min(possible, wanted) if rows.parts == columns.parts == 1 else 1
    blocks = groups * columns.parts * rows.parts * -(-planes // block_planes)
    steps = -(-(a0.input + a0.padding) // a0.stride)
    # More blocks are resident where they have few threads. With many planes half of the resident ones are enough.
    fitting = settings.threads // (-(-threads * block_planes // WARP) * WARP)
    at_once *= max(1, fitting if 2 * blocks <= at_once else fitting // 2)
    block_steps = steps_of_blocks(steps, blocks, at_once, START_STEPS)
    segments = -(-steps // block_steps)
    sliding = SlidingStruct(
        static,
        access,
        items=threads * block_planes,
        group_vectors=FastDivmod.of(group_vectors),
        tiles=FastDivmod.of(columns.scanned),
        rows=FastDivmod.of(rows.scanned),
        groups=FastDivmod.of(groups),
        tile_parts=FastDivmod.of(columns.parts),
        row_parts=FastDivmod.of(rows.parts),
        segments=FastDivmod.of(segments),
        vectors=access.vectors,
        planes=planes,
        block_planes=block_planes,
        steps=steps,
        block_steps=block_steps,
        block_rows=rows.written,
        block_tiles=columns.written,
        rows_before=rows.first,
        tiles_before=columns.first,
        prefetches=prefetches,
    )
    return sliding, blocks * segments, block_planes * plane_bytes
