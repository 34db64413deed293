"""Test that shapes that need more memory than any machine has get the documented status at once, and the handle
serves on.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from dualdnn.api import cudnn
from dualdnn.api.status import CudnnError

MAX_INT = 2**31 - 1  # the greatest int of C
ROOM = 4 * 2**30  # bytes of addresses that the process may use

FIND = """
import resource, sys
from dualdnn.api import cudnn as c
from dualdnn.api.status import ALLOC_FAILED, CudnnError

backend, device = sys.argv[1:]
handle = c.cudnnCreate(backend=backend, device=device or None)
resource.setrlimit(resource.RLIMIT_AS, (int({room}),) * 2)
convolution, x, w, y = (getattr(c, f"cudnnCreate{{kind}}Descriptor")() for kind in ("Convolution", "Tensor", "Filter", "Tensor"))
c.cudnnSetConvolution2dDescriptor(convolution, 1, 1, 1, 1, 1, 1, c.CUDNN_CROSS_CORRELATION, c.CUDNN_DATA_FLOAT)

def find(images, channels, size, filters):
    c.cudnnSetTensor4dDescriptor(x, c.CUDNN_TENSOR_NCHW, c.CUDNN_DATA_FLOAT, images, channels, size, size)
    c.cudnnSetFilter4dDescriptor(w, c.CUDNN_DATA_FLOAT, c.CUDNN_TENSOR_NCHW, filters, channels, 3, 3)
    c.cudnnSetTensor4dDescriptor(y, c.CUDNN_TENSOR_NCHW, c.CUDNN_DATA_FLOAT, *c.cudnnGetConvolution2dForwardOutputDim(convolution, x, w))
    ranked = c.cudnnGetConvolutionForwardAlgorithm_v7(handle, x, w, convolution, y, 8).perfResults
    return ranked, lambda: c.cudnnFindConvolutionForwardAlgorithm(handle, x, w, convolution, y, 8).perfResults

for shape in (1, 1, 46340, 1), (2**15 - 1, 1, 256, 1), (1, 2**14, 4, 2**13):
    ranked, measure = find(*shape)
    assert ranked[0].status == 0 and ranked[0].memory >= 0, ranked
    try:
        measure()
    except CudnnError as error:
        assert (error.status, error.clause) == (ALLOC_FAILED, "cudnnFindConvolutionForwardAlgorithm/c17"), error
    else:
        raise AssertionError(shape)
ranked, measure = find(1, 2, 5, 3)
assert measure()[0].status == 0
print("served")
"""


def test_advised_dimensions_that_no_int_holds_are_refused() -> None:
    """C stores them in int variables. The library must not end in an internal error there."""
    pooling, x = cudnn.cudnnCreatePoolingDescriptor(), cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(x, cudnn.CUDNN_TENSOR_NCHW, cudnn.CUDNN_DATA_FLOAT, 1, 1, 4, 4)
    for padding in (MAX_INT - 3, MAX_INT - 2):
        window = (MAX_INT, MAX_INT, padding, padding)
        cudnn.cudnnSetPooling2dDescriptor(pooling, cudnn.CUDNN_POOLING_MAX, cudnn.CUDNN_PROPAGATE_NAN, *window, 1, 1)
        for call in (cudnn.cudnnGetPooling2dForwardOutputDim, cudnn.cudnnGetPoolingNdForwardOutputDim):
            arguments = (pooling, x, 4)[: 3 if "Nd" in call.__name__ else 2]
            if padding == MAX_INT - 3:
                assert tuple(call(*arguments)) == (1, 1, MAX_INT - 1, MAX_INT - 1)
            else:
                with pytest.raises(CudnnError, match="do not fit an int"):
                    call(*arguments)


@pytest.mark.parametrize("backend, device", [("reference", ""), ("accelerated", "emulated")])
def test_a_search_without_memory(backend: str, device: str) -> None:
    command = [sys.executable, "-c", FIND.format(room=ROOM), backend, device]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "served\n", done.stderr


EXHAUSTED = """
import resource
import numpy as np
from dualdnn.api import cudnn as c
from dualdnn.api.status import ALLOC_FAILED, CudnnError

handle = c.cudnnCreate(backend="reference")
x = c.cudnnCreateTensorDescriptor()
dropout, rnn, data = (getattr(c, f"cudnnCreate{{kind}}Descriptor")() for kind in ("Dropout", "RNN", "RNNData"))
h = c.cudnnCreateTensorDescriptor()
c.cudnnSetTensorNdDescriptor(h, c.CUDNN_DATA_FLOAT, 3, (1, 64, 64), (4096, 64, 1))
c.cudnnSetDropoutDescriptor(dropout, handle, 0.0, None, 0, 0)

def softmax(size):
    c.cudnnSetTensor4dDescriptor(x, c.CUDNN_TENSOR_NCHW, c.CUDNN_DATA_FLOAT, 64, 64, size, size)
    source, result = (handle.allocate(c.cudnnGetTensorSizeInBytes(x)) for _ in range(2))
    return lambda: c.cudnnSoftmaxForward(handle, 1, 0, 1.0, x, source, 0.0, x, result)

def recurrent(steps):
    c.cudnnSetRNNDescriptor_v8(
        rnn, 0, 0, 0, 0, c.CUDNN_LINEAR_INPUT, c.CUDNN_DATA_FLOAT, c.CUDNN_DATA_FLOAT, 0, 64, 64, 64, 1, dropout, 0)
    c.cudnnSetRNNDataDescriptor(data, c.CUDNN_DATA_FLOAT, c.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, steps, 64, 64, [steps] * 64, None)
    sizes = c.cudnnGetRNNTempSpaceSizes(handle, rnn, c.CUDNN_FWD_MODE_INFERENCE, data)
    weights = handle.allocate(c.cudnnGetRNNWeightSpaceSize(handle, rnn))
    source, result = (handle.allocate(steps * 64 * 64 * 4) for _ in range(2))
    space = handle.allocate(sizes.workSpaceSize)
    lengths = handle.to_device(np.full(64, steps, np.int32))
    return lambda: c.cudnnRNNForward(
        handle, rnn, c.CUDNN_FWD_MODE_INFERENCE, lengths, data, source, data, result, h, None, None, h, None, None,
        weights.nbytes, weights, sizes.workSpaceSize, space, 0, None)

for make, large, clause in (softmax, 64, "cudnnStatus_t/c04"), (recurrent, 4096, "cudnnRNNForward/c49"):
    make(4)()
    call = make(large)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**24, -1))
    try:
        call()
    except CudnnError as error:
        assert (error.status, error.clause) == (ALLOC_FAILED, clause), error
    else:
        raise AssertionError(make)
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    make(4)()
print("served")
"""


def test_exhausted_host_memory_is_the_documented_status() -> None:
    """NumPy's MemoryError must not escape from a documented call, and the handle must serve the next one."""
    done = subprocess.run([sys.executable, "-c", EXHAUSTED.format()], capture_output=True, text=True, timeout=120)
    assert done.stdout == "served\n", done.stderr
