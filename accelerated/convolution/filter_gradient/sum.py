"""Sum the filter gradients of several parts of the images (convolution/filter_gradient/sum.cu)."""

from __future__ import annotations

from ctypes import c_int
from typing import Any

from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations import ConvolutionBackwardFilter

from ...plans import Launch, factors, fields_of, pointers, structure, type_definitions
from ...primitives.geometry import THREADS, blocks

LANES = 8  # threads that share an element
SOURCE = "convolution/filter_gradient/sum.cu"


def sum_launch(operation: ConvolutionBackwardFilter, parts: int, device: Any) -> Launch:
    """Return the launch that adds ``parts`` consecutive partial gradients in ``partial``, and blends them into
    ``dw``.
    """
    return parts_launch(operation, operation.x.data_type, operation.dw.tensor.count, parts, device)


def parts_launch(operation: Any, data_type: cudnnDataType_t, elements: int, parts: int, device: Any) -> Launch:
    """Return the same launch for any operation with alpha and beta. Its result ``dw`` has this many elements of a
    type.
    """
    arguments = structure(
        *pointers(2),
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        *fields_of(c_int, elements=elements, parts=parts),
    )
    function = device.function(SOURCE, "convolution_filter_gradient_sum", type_definitions(data_type, operation))
    return Launch(function, arguments, ("partial", "dw"), blocks(elements, THREADS // LANES), (THREADS, 1, 1))
