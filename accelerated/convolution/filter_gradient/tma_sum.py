"""Sum the tiles that several blocks share, for gradients with respect to the filter
(convolution/filter_gradient/tma_sum.cu).
"""

from __future__ import annotations

from ctypes import Structure, c_int
from typing import Any

from dualdnn.api.operations import ConvolutionBackwardFilter

from ...plans import Launch, fields_of, pointers, structure, type_definitions
from ...primitives.geometry import FastDivmod

SOURCE = "convolution/filter_gradient/tma_sum.cu"
SUM = "convolution_filter_gradient_tma_sum"
SUM_THREADS = 256  # per block
SUM_LANES = 8  # threads that share many parts


def sum_launch(
    operation: ConvolutionBackwardFilter, kernel: Any, division: Structure, results: Structure,
    shared: tuple[int, int], device: Any,
) -> Launch:  # fmt: skip
    """Return the launch that adds the parts of tiles of a kernel (TileKernel in tma.py) and blends them into ``dw``.

    ``results`` locates sums in dw. ``shared`` has the elements of all tiles that blocks share, and the threads per sum.
    """
    elements, lanes = shared
    arguments = structure(
        *pointers(2),
        ("results", results),
        ("division", division),
        ("quads", FastDivmod.of(kernel.size // 4)),
        *fields_of(c_int, log_columns=(kernel.box * kernel.column_boxes).bit_length() - 1, tile_boxes=kernel.row_boxes),
        *fields_of(c_int, lanes=lanes, order=kernel.order),
    )
    function = device.function(SOURCE, SUM, type_definitions(operation.x.data_type, operation))
    return Launch(function, arguments, ("partial", "dw"), (elements // 4 * lanes // SUM_THREADS, 1, 1))
