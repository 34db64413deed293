"""The sum of filter gradients of several parts of the images (convolution/filter_gradient/sum.cu)."""

from __future__ import annotations

from ctypes import c_int
from typing import Any

from dualdnn.api.operations import ConvolutionBackwardFilter

from ...plans import Launch, factors, pointers, structure, type_definitions
from ...primitives.geometry import THREADS, blocks

LANES = 8  # threads that share an element
SOURCE = "convolution/filter_gradient/sum.cu"


def sum_launch(operation: ConvolutionBackwardFilter, parts: int, device: Any) -> Launch:
    """Return the launch that adds ``parts`` partial gradients, one behind the other in ``partial``, and blends them
    into ``dw``."""
    o, elements = operation, operation.dw.tensor.count
    arguments = structure(
        *pointers(2),
        *factors(o, alpha=o.alpha, beta=o.beta),
        ("elements", c_int(elements)),
        ("parts", c_int(parts)),
    )
    function = device.function(SOURCE, "convolution_filter_gradient_sum", type_definitions(o.x.data_type, o))
    return Launch(function, arguments, ("partial", "dw"), blocks(elements, THREADS // LANES), (THREADS, 1, 1))
