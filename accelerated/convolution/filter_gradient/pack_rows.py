"""Images of few channels as rows in which every window lies side by side (convolution/filter_gradient/pack_rows.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong, c_uint
from typing import Any, NamedTuple

from dualdnn.api.operations import ConvolutionBackwardFilter, TensorSpec

from ...plans import Launch, pointers, structure, type_definitions
from ...primitives.geometry import THREADS, FastDivmod, blocks
from ...primitives.tma import ALIGNMENT

SOURCE = "convolution/filter_gradient/pack_rows.cu"
WIDTHS = (4, 8)  # channels of a column in the rows
MOST_PADDED = 4  # columns of a padded row for each column of x and each tap


class PackedRows(NamedTuple):
    """Rows of ``columns`` columns of ``channels`` channels each, of which ``together`` lie side by side, column by
    column, where the stride is as many; windows: their taps side by side, as channels of the columns of dy. A window
    begins ``early`` rows before the first tap; taps, stride, padding: along such rows."""

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
        """Return the rows of x where the taps of a row are at most ``most`` channels and windows begin where TMA
        reads; None where there are no such rows, where most of them were zeros, or where channels are enough to be
        read one tap at a time."""
        o, c = operation, operation.convolution
        taps, step, nbytes = o.dw.dims[3], c.stride[1], o.x.scalar_bytes
        if c.rank > 2 or c.group_count > 1 or c.dilation[1] > 1:
            return None
        fitting = (
            (together, width)
            for together in ((c.stride[0], 1) if c.dilation[0] == 1 else (1,))
            for width in WIDTHS
            if o.x.dims[1] <= width
            and step * width * together * nbytes % ALIGNMENT == 0
            and width * taps * together <= most
        )
        together, channels = next(fitting, (0, 0))
        if not together:
            return None
        images, _, height, width = (*o.x.dims[:3], o.dy.dims[3])
        columns = (width - 1) * step + taps
        columns += -columns % (ALIGNMENT // nbytes // WIDTHS[0])
        if columns > MOST_PADDED * (o.x.dims[3] + taps):
            return None
        pixel, rows, padding = channels * together, -(-height // together), -(-c.padding[0] // together)
        early = padding * together - c.padding[0]
        row = columns * pixel
        windows = TensorSpec(o.x.data_type, (images, pixel * taps, rows, width), (rows * row, 1, row, step * pixel))
        taps_of_rows = -(-(early + o.dw.dims[2]) // together)
        stride = c.stride[0] // together
        return cls(
            channels, columns, together, early, taps_of_rows, stride, padding, images * rows * row * nbytes, windows
        )


def pack_launch(operation: ConvolutionBackwardFilter, rows: PackedRows, device: Any) -> Launch:
    """Return the launch that writes the rows of ``x`` to ``y``."""
    o, count = operation, rows.windows.dims[0] * rows.windows.dims[2] * rows.columns * rows.together
    arguments = structure(
        *pointers(2),
        ("x_step", (c_longlong * 4)(*o.x.strides)),
        ("width", c_int(o.x.dims[3])),
        ("height", c_int(o.x.dims[2])),
        ("padding", c_int(o.convolution.padding[1])),
        ("together", c_int(rows.together)),
        ("kept", c_int(o.x.dims[1])),
        ("count", c_uint(count)),
        ("columns", FastDivmod.of(rows.columns * rows.together)),
        ("rows", FastDivmod.of(rows.windows.dims[2])),
    )
    definitions = type_definitions(o.x.data_type, o, CHANNELS=str(rows.channels))
    function = device.function(SOURCE, "convolution_pack_rows", definitions)
    return Launch(function, arguments, ("x", "y"), blocks(count), (THREADS, 1, 1))
