"""Plan images and volumes of few channels as rows in which every window is contiguous
(convolution/filter_gradient/pack_rows.cu).
"""

from __future__ import annotations

from ctypes import c_int, c_longlong, c_uint
from math import prod
from typing import Any, NamedTuple

from dualdnn.api.operations import ConvolutionBackwardFilter, TensorSpec

from ...plans import Launch, fields_of, pointers, structure, type_definitions
from ...primitives.geometry import THREADS, FastDivmod, blocks
from ...primitives.tma import ALIGNMENT
from ..problem import spatial

SOURCE = "convolution/filter_gradient/pack_rows.cu"
WIDTHS = (4, 8)  # channels per column of the rows
MAX_PADDED = 4  # columns of a padded row per column of x and per tap


class PackedRows(NamedTuple):
    """Describe rows of ``columns`` columns of ``channels`` channels each.

    ``together`` rows, the stride or 1, are interleaved column by column. ``windows`` have their taps side by
    side, as channels of the columns of dy. A window begins ``early`` rows before the first tap. ``taps``, ``stride``
    and ``padding`` are along such rows.
    """

    channels: int
    columns: int
    together: int
    early: int
    taps: int
    stride: int
    padding: int
    nbytes: int
    windows: TensorSpec

    @classmethod
    def of(cls, operation: ConvolutionBackwardFilter, most: int) -> PackedRows | None:
        """Return the rows of x where the taps of a row are at most ``most`` channels and windows are aligned for TMA.

        Return None where there are no such rows, where most of them would be zeros, or where TMA can read one tap at a
        time.
        """
        o, c = operation, operation.convolution
        taps, step, nbytes = o.dw.dims[-1], c.stride[-1], o.x.scalar_bytes
        if c.group_count > 1 or c.dilation[-1] > 1:
            return None
        down = c.stride[-2]
        fitting = (
            (together, width)
            for together in ((down, 1) if c.dilation[-2] == 1 and c.rank == 2 else (1,))
            for width in WIDTHS
            if o.x.dims[1] <= width
            and step * width * together * nbytes % ALIGNMENT == 0
            and width * taps * together <= most
        )
        together, channels = next(fitting, (0, 0))
        if not together:
            return None
        images, *planes = o.x.dims[0], *o.x.dims[2:-2]
        height, width = o.x.dims[-2], o.dy.dims[-1]
        columns = (width - 1) * step + taps
        columns += -columns % (ALIGNMENT // nbytes // WIDTHS[0])
        if columns > MAX_PADDED * (o.x.dims[-1] + taps):
            return None
        pixel, rows, padding = channels * together, -(-height // together), -(-c.padding[-2] // together)
        early = padding * together - c.padding[-2]
        row, count = columns * pixel, prod(planes)
        windows = TensorSpec(
            o.x.data_type, (images, pixel * taps, *planes, rows, width),
            (count * rows * row, 1, *[rows * row] * len(planes), row, step * pixel),
        )  # fmt: skip
        taps_of_rows = -(-(early + o.dw.dims[-2]) // together)
        size = images * count * rows * row * nbytes
        return cls(channels, columns, together, early, taps_of_rows, down // together, padding, size, windows)


def pack_launch(operation: ConvolutionBackwardFilter, rows: PackedRows, device: Any) -> Launch:
    """Return the launch that writes the rows of ``x`` to ``y``."""
    o, (images, _, *planes, height, _) = operation, rows.windows.dims
    count = images * prod(planes) * height * rows.columns * rows.together
    image, channel, *steps = o.x.strides
    arguments = structure(
        *pointers(2),
        ("x_step", (c_longlong * 5)(image, channel, *spatial(tuple(steps), 0))),
        *fields_of(c_int, width=o.x.dims[-1], height=o.x.dims[-2], padding=o.convolution.padding[-1]),
        *fields_of(c_int, together=rows.together, kept=o.x.dims[1]),
        ("count", c_uint(count)),
        *fields_of(FastDivmod.of, columns=rows.columns * rows.together, rows=height, planes=prod(planes)),
    )
    definitions = type_definitions(o.x.data_type, o, CHANNELS=str(rows.channels))
    function = device.function(SOURCE, "convolution_pack_rows", definitions)
    return Launch(function, arguments, ("x", "y"), blocks(count), (THREADS, 1, 1))
