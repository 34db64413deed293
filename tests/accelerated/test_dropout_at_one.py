"""Test gradients of dropout whose descriptor drops everything, after a forward call that kept elements."""

import numpy as np
import pytest
from dualdnn.api import cudnn


@pytest.mark.parametrize("where", [{"backend": "reference"}, {"backend": "accelerated", "device": "emulated"}], ids=str)
def test_kept_elements_are_divided_by_the_zero_that_is_left(where):
    """The formula divides what was kept by 1 - dropout, and the reserve space says what was kept."""
    handle, count = cudnn.cudnnCreate(**where), 96
    x = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(x, cudnn.CUDNN_TENSOR_NCHW, cudnn.CUDNN_DATA_FLOAT, 1, 1, 1, count)
    size = cudnn.cudnnDropoutGetStatesSize(handle)
    states, data = handle.allocate(size), handle.to_device(np.ones(count, np.float32))
    dropout = cudnn.cudnnCreateDropoutDescriptor()
    cudnn.cudnnSetDropoutDescriptor(dropout, handle, 0.5, states, size, 7)
    space = cudnn.cudnnDropoutGetReserveSpaceSize(x)
    y, dx, reserve = handle.zeros(4 * count), handle.zeros(4 * count), handle.allocate(space)
    cudnn.cudnnDropoutForward(handle, dropout, x, data, x, y, reserve, space)
    cudnn.cudnnRestoreDropoutDescriptor(dropout, handle, 1.0, states, size, 7)
    cudnn.cudnnDropoutBackward(handle, dropout, x, data, x, dx, reserve, space)
    kept = y.to_host(np.float32, count) != 0
    assert 0 < kept.sum() < count
    assert (dx.to_host(np.float32, count) == np.where(kept, np.inf, 0)).all()
