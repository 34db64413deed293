"""Depthwise convolutions on the device (kernels/convolution_depthwise.cu)."""

from __future__ import annotations

from ctypes import c_int
from typing import Any

from .convolution_problem import Convolution, channels_last, epilogue, operand_names, operation_product
from .geometry import Divisor, blocks
from .plans import Launch, pointers, structure, type_definitions

SOURCE = "convolution_depthwise.cu"
CHANNELS = 4  # of a thread, where they lie side by side
ROWS = 4  # of a thread, with filters of 3 x 3


def is_depthwise(operation: Convolution) -> bool:
    """Every channel has one filter of its own."""
    groups = operation.convolution.group_count
    return groups > 1 and operation.w.dims[:2] == (groups, 1) and operation.x.scalar_bytes > 1


def depthwise(operation: Convolution, device: Any) -> list[Launch]:
    """One kernel: a thread for a few channels, or rows, of one output column."""
    o = operation
    value = operation_product(o)
    wide = channels_last(o.x) and channels_last(o.y)
    steps = o.convolution.stride
    strips = o.w.dims[2:] == (3, 3) and max(o.convolution.dilation) == 1 and steps in ((1, 1), (2, 2))
    channels, images = o.x.dims[:2][::-1]
    packs = -(-channels // CHANNELS) if wide else channels
    rows = -(-value.output[1].divisor // ROWS) if strips else value.output[1].divisor
    arguments = structure(
        *pointers(5),
        ("convolution", value),
        ("epilogue", epilogue(o)),
        ("packs", Divisor.of(packs)),
        ("strips", Divisor.of(rows)),
        ("channels", c_int(channels)),
        ("images", c_int(images)),
        ("packed", c_int(wide and all(step % CHANNELS == 0 for step in (*value.x_axis, value.x_position[0])))),
    )
    name = f"depthwise_{'channels' if wide else 'columns'}{'_3x3' if strips else ''}"
    function = device.function(SOURCE, name, type_definitions(o.x.scalar_type, o))
    threads = packs * images * value.output[0].divisor * rows * value.output[2].divisor
    return [Launch(function, arguments, ("x", "w", *operand_names(o)), blocks(threads))]
