"""Shapes that no machine has the memory for: the documented status, at once, and the handle serves the next call."""

from __future__ import annotations

import subprocess
import sys

import pytest

ROOM = 4 * 2**30  # of addresses, which the process may have

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


@pytest.mark.parametrize("backend, device", [("reference", ""), ("accelerated", "emulated")])
def test_a_search_without_memory(backend: str, device: str) -> None:
    command = [sys.executable, "-c", FIND.format(room=ROOM), backend, device]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "served\n", done.stderr
