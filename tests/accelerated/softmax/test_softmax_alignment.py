"""Tests softmax over channels of misaligned operands: kernels that need vectors leave them to others."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from dualdnn.accelerated.plans import plan
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.api.enumerations import cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t
from dualdnn.api.operations import SoftmaxBackward, SoftmaxForward, TensorSpec
from dualdnn.api.operations.specs import FLOAT, HALF, NCHW, NHWC

# Rows and strided rows have vectors of 16 and 8 bytes, or single elements. Some rows are short, some fit a tile, and
# some are longer than a multiprocessor can hold.
DIMS = [
    (3, 64, 4, 8), (2, 96, 2, 6), (3, 3, 8, 8), (2, 67, 3, 5), (40, 128, 4, 4), (3, 67, 5, 7), (3, 90, 5, 7), (2, 128, 5, 7),
    (5, 1030, 4, 4),
]  # fmt: skip
ROOM = 64


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("tensor_format", [NCHW, NHWC], ids=lambda f: f.name)
@pytest.mark.parametrize("data_type, element", [(FLOAT, np.float32), (HALF, np.float16)], ids=["float", "half"])
@pytest.mark.parametrize("dims", DIMS, ids=lambda d: "x".join(map(str, d)))
def test_operands_begin_anywhere(dims, data_type, element, tensor_format, beta):
    device, random = open_device("emulated"), np.random.default_rng(1)
    spec = TensorSpec.packed(data_type, dims, tensor_format)
    choice = cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_ACCURATE, cudnnSoftmaxMode_t.CUDNN_SOFTMAX_MODE_CHANNEL
    x, dy, prior = (random.standard_normal(dims).astype(element) for _ in range(3))
    powers = np.exp(x.astype(np.float64))
    y = (powers / powers.sum(1, keepdims=True)).astype(element)
    wide_y, wide_dy = y.astype(np.float64), dy.astype(np.float64)
    dx = wide_y * (wide_dy - (wide_y * wide_dy).sum(1, keepdims=True))
    cases = [
        (SoftmaxForward(*choice, 1.0, beta, spec, spec), [x, prior], powers / powers.sum(1, keepdims=True)),
        (SoftmaxBackward(*choice, 1.0, beta, spec, spec, spec), [y, dy, prior], dx),
    ]
    order = (0, 1, 2, 3) if tensor_format == NCHW else (0, 2, 3, 1)
    for (operation, values, exact), apart in product(cases, ((0, 0, 0), (1, 1, 1), (3, 3, 3), (0, 1, 2))):
        memory = [device.allocate(value.nbytes + ROOM) for value in values]
        operands = [
            SimpleNamespace(address=m.address + elements * spec.scalar_bytes)
            for m, elements in zip(memory, apart, strict=False)
        ]
        for operand, value in zip(operands, values, strict=True):
            device.upload(operand.address, np.ascontiguousarray(value.transpose(order)).tobytes())
        plan(operation, device)(operands, device.default_stream)
        device.synchronize()
        content = np.frombuffer(device.download(operands[-1].address, prior.nbytes), element)
        found = content.reshape([dims[d] for d in order]).transpose(np.argsort(order))
        wanted = exact + beta * prior.astype(np.float64)
        # The bound covers the roundings of a sum of 128 terms, and one of the result.
        scale = np.abs(exact) + np.abs(beta * prior) + np.abs(wide_y) * np.abs(wide_dy).max()
        np.testing.assert_array_less(np.abs(found - wanted), np.finfo(element).eps * 4 * scale + 1e-7)
