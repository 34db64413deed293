"""The gradient of a maximum over volumes of channels with a static window (max_backward_3d_nhwc.cu)."""

from __future__ import annotations

from ctypes import c_int, c_uint
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from dualdnn.api.operations.specs import SCALAR_BYTES

from ...primitives.geometry import FastDivmod
from ..problem import MAX_BACKWARD, PACK_BYTES, Axis, Configuration, PoolingProblem
from ..static_window import LayoutStruct, Settings, StaticShape, StaticWindowSolver, access_of, static_shape

WORD_BYTES = 4  # of the channels of a thread
PRODUCERS = 384  # threads of a block that copy planes of x and write dx
MAX_PACKS = {"COPIES": 7, "WRITES": 5}  # of a plane, that each of those copies and writes
# Of the threads of the device: measured with 0.74, where this kernel takes 0.69 to 0.80 of the time of max_backward.cu
MIN_USED = 0.6
SHARED_BYTES, BLOCK_BYTES = 228 * 1024, 1024  # of an SM; of them that every block takes

# By the bytes of an element: as measured with half and float.
SETTINGS = {
    2: Settings(threads=512, blocks=1, rows=2, channel_bytes=16, channel_tile=2, group_bytes=128, stages=2),
    4: Settings(threads=512, blocks=1, rows=2, channel_bytes=16, channel_tile=2, group_bytes=128, stages=3),
}


class ScatterStruct(LayoutStruct):
    """The ``Scatter`` of the kernel."""

    _fields_: ClassVar = [
        ("groups", FastDivmod),
        ("parts2", FastDivmod),
        ("parts1", FastDivmod),
        ("threads2", FastDivmod),
        ("columns", FastDivmod),
        ("stage_columns", FastDivmod),
        ("words", c_uint),
        ("stage_packs", c_uint),
        ("tile", c_int * 2),
        ("before", c_int * 2),
        ("windows", c_int * 2),
    ]


@dataclass
class Side:
    """How blocks share an axis: each writes the inputs between the starts of ``tile`` windows, and scans
    ``windows``."""

    parts: int
    tile: int
    before: int  # windows before those
    windows: int
    threads: int  # of ``each`` windows
    written: int  # inputs
    covered: int  # by the windows of all threads

    @classmethod
    def of(cls, axis: Axis, parts: int, each: int) -> Side:
        """Return an axis in ``parts`` blocks whose threads take ``each`` windows."""
        tile = -(-axis.windows // parts)
        single = parts == 1
        first = 0 if single else (axis.padding - axis.window) // axis.stride + 1
        last = axis.output - 1 if single else (tile * axis.stride - 1 + axis.padding) // axis.stride
        windows = last + 1 - first
        threads = -(-windows // each)
        covered = (threads * each - 1) * axis.stride + axis.window
        return cls(parts, tile, -first, windows, threads, tile * axis.stride, covered)


@dataclass
class Part:
    """What a block has of axes 1 and 2, and what it takes: threads, packs of a plane of x, bytes of shared memory."""

    rows: Side
    columns: Side
    words: int  # of channels
    threads: int
    stage_packs: int
    written_packs: int
    shared_bytes: int

    @classmethod
    def of(cls, static: StaticShape, rows: Side, columns: Side, settings: Settings, sum_bytes: int) -> Part:
        """Return a part. sum_bytes: of the sum of a channel."""
        words, packs = settings.group_bytes // WORD_BYTES, settings.group_bytes // PACK_BYTES
        covered, written = rows.covered * columns.covered, rows.written * columns.written
        sums_bytes = static.axes[0].window * written * packs * (PACK_BYTES // static.scalar_bytes) * sum_bytes
        shared_bytes = sums_bytes + settings.stages * covered * settings.group_bytes
        threads = rows.threads * columns.threads * words
        return cls(rows, columns, words, threads, covered * packs, written * packs, shared_bytes)

    @property
    def scanned(self) -> int:
        """Windows that all blocks scan."""
        return self.rows.parts * self.rows.windows * self.columns.parts * self.columns.windows

    def fits(self, settings: Settings, most_bytes: int) -> bool:
        """Return whether a block can have it. most_bytes: of shared memory that the device gives a block."""
        of_block = min(SHARED_BYTES // settings.blocks - BLOCK_BYTES, most_bytes)
        return (
            self.threads <= settings.threads
            and self.shared_bytes <= of_block
            and self.stage_packs <= MAX_PACKS["COPIES"] * PRODUCERS
            and self.written_packs <= MAX_PACKS["WRITES"] * PRODUCERS
        )


class MaxBackward3dNhwc(StaticWindowSolver):
    """Volumes of neighbouring channels: a block slides along axis 0, with sums of the planes of a window in shared
    memory."""

    name, source = "pooling.max_backward_3d_nhwc", "pooling/max_backward/max_backward_3d_nhwc.cu"
    kinds = (MAX_BACKWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        static = static_shape(problem.shape)
        settings = None if static is None or static.is_image else SETTINGS.get(static.scalar_bytes)
        if static is None or settings is None:
            return None
        access = access_of(problem, static, settings)
        sum_bytes = SCALAR_BYTES[problem.operation.compute_type]
        most_bytes = problem.device.shared_bytes_per_block
        part = _part(static, settings, sum_bytes, most_bytes) if access.kind == "channels" else None
        if part is None:
            return None
        _, a1, a2 = static.axes
        rows, columns = part.rows, part.columns
        words = static.channels * static.scalar_bytes // WORD_BYTES
        groups, planes = -(-words // part.words), prod(static.extents)
        blocks, at_once = groups * rows.parts * columns.parts * planes, settings.blocks * problem.device.multiprocessors
        possible = -(-blocks // at_once) * at_once * settings.threads * settings.rows * settings.channel_tile
        scatter = ScatterStruct(
            static,
            access,
            groups=FastDivmod.of(groups),
            parts2=FastDivmod.of(columns.parts),
            parts1=FastDivmod.of(rows.parts),
            threads2=FastDivmod.of(columns.threads),
            columns=FastDivmod.of(columns.written),
            stage_columns=FastDivmod.of(columns.covered),
            words=words,
            stage_packs=part.stage_packs,
        )
        for d, side in enumerate((rows, columns)):
            scatter.tile[d], scatter.before[d], scatter.windows[d] = side.tile, side.before, side.windows
        return self.made(
            problem,
            (static, access, settings),
            (blocks, 1, 1),
            (part.threads + PRODUCERS, 1, 1),
            ("scatter", scatter),
            *problem.factors,
            ("propagate", c_int(problem.operation.pooling.nan)),
            shared_bytes=part.shared_bytes,
            preferred=a1.output * a2.output * words * planes >= MIN_USED * possible,
            definitions={"GROUP_WORDS": part.words, "PRODUCERS": PRODUCERS, **MAX_PACKS},
        )


def _part(static: StaticShape, settings: Settings, sum_bytes: int, most_bytes: int) -> Part | None:
    """Return how blocks share axes 1 and 2: so that the fewest windows are scanned twice; None if no share fits."""
    _, a1, a2 = static.axes
    most = settings.threads * WORD_BYTES // settings.group_bytes  # threads that share an axis
    best = None
    for columns in _sides(a2, settings.channel_tile, most):
        for rows in _sides(a1, settings.rows, most):
            part = Part.of(static, rows, columns, settings, sum_bytes)
            if part.fits(settings, most_bytes):
                best = part if best is None or part.scanned < best.scanned else best
                break  # of more parts more is scanned
    return best


def _sides(axis: Axis, each: int, most: int) -> list[Side]:
    """Return the shares of an axis among blocks of at most ``most`` threads, those of the fewest blocks first."""
    windows = axis.windows
    parts = {-(-windows // tile) for tile in range(1, min(windows, most * each) + 1)}
    return [Side.of(axis, count, each) for count in sorted(parts)]
