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


class PackedRows(NamedTuple):
    """Rows of ``columns`` columns of ``channels`` channels each; windows: the taps of a row side by side, as channels of the
    columns of dy."""

    channels: int
    columns: int
    nbytes: int
    windows: TensorSpec

    @classmethod
    def of(cls, operation: ConvolutionBackwardFilter, most: int) -> PackedRows | None:
        """Return the rows of x where the taps of a row are at most ``most`` channels and windows begin where TMA
        reads; None where there are no such rows, or channels are enough to be read one tap at a time."""
        o, c = operation, operation.convolution
        taps, step, nbytes = o.dw.dims[3], c.stride[1], o.x.scalar_bytes
        if c.group_count > 1 or c.dilation[1] > 1:
            return None
        fitting = (
            width for width in WIDTHS
            if o.x.dims[1] <= width and step * width * nbytes % ALIGNMENT == 0 and width * taps <= most
        )  # fmt: skip
        channels = next(fitting, None)
        if channels is None:
            return None
        images, _, height, width = (*o.x.dims[:3], o.dy.dims[3])
        columns = (width - 1) * step + taps
        columns += -columns % (ALIGNMENT // nbytes // WIDTHS[0])
        row = columns * channels
        windows = TensorSpec(
            o.x.data_type, (images, channels * taps, height, width), (height * row, 1, row, step * channels)
        )
        return cls(channels, columns, images * height * row * nbytes, windows)


def pack_launch(operation: ConvolutionBackwardFilter, rows: PackedRows, device: Any) -> Launch:
    """Return the launch that writes the rows of ``x`` to ``y``."""
    o, count = operation, operation.x.dims[0] * operation.x.dims[2] * rows.columns
    arguments = structure(
        *pointers(2),
        ("x_step", (c_longlong * 4)(*o.x.strides)),
        ("width", c_int(o.x.dims[3])),
        ("padding", c_int(o.convolution.padding[1])),
        ("kept", c_int(o.x.dims[1])),
        ("count", c_uint(count)),
        ("columns", FastDivmod.of(rows.columns)),
        ("height", FastDivmod.of(o.x.dims[2])),
    )
    definitions = type_definitions(o.x.data_type, o, CHANNELS=str(rows.channels))
    function = device.function(SOURCE, "convolution_pack_rows", definitions)
    return Launch(function, arguments, ("x", "y"), blocks(count), (THREADS, 1, 1))
