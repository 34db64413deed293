"""Compute the gradient of a convolution's bias (6.2.1): sums of dy over all dimensions but the channels."""

from __future__ import annotations

from dualdnn.api.operations import ConvolutionBackwardBias

from ..engine import Exact, implements
from ..reduce_tensor import reduce_tensor
from ..view import Array


@implements(ConvolutionBackwardBias)
def convolution_backward_bias(operation: ConvolutionBackwardBias, dy: Array) -> Exact | dict[str, Exact]:
    """Compute db[0, c, 0, 0], the sum of dy[n, c, h, w] over n, h and w."""
    return reduce_tensor(operation.as_reduction, dy)
