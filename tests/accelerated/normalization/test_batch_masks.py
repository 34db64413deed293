"""Tests the mask of the elements that ReLU passes: every solver stores it in the same format for the gradient."""

from __future__ import annotations

import numpy as np
import pytest
from dualdnn.accelerated.solver import forcing, possible_solvers
from dualdnn.api import cudnn
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnNanPropagation_t,
    cudnnNormAlgo_t,
    cudnnNormMode_t,
    cudnnNormOps_t,
)
from dualdnn.api.operations import ActivationSpec, NormalizationForwardTraining, TensorSpec
from dualdnn.api.operations.specs import FLOAT, HALF, NHWC
from dualdnn.conformance.calls import Caller

RELU = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0)


@pytest.fixture(scope="module")
def handle():
    with cudnn.cudnnCreate(backend="accelerated", device="emulated") as handle:
        yield handle


@pytest.mark.parametrize(
    "solver, dims",
    [
        ("normalization.batch_nhwc_cooperative", (2, 32, 3, 5)),
        ("normalization.batch_nhwc", (2, 32, 3, 5)),
        ("normalization.batch_nhwc", (8, 3, 1, 7)),
        ("normalization.batch_strided", (2, 32, 3, 5)),
        ("normalization.batch_strided", (1, 3, 1, 7)),
    ],
)
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
def test_a_byte_for_each_16_bytes_of_elements(handle, data_type, solver, dims):
    """Bits follow the order of elements in memory, lowest bit first, and replace the old contents."""
    kind = np.float16 if data_type == HALF else np.float32
    x, s = TensorSpec.packed(data_type, dims, NHWC), TensorSpec.packed(FLOAT, (1, dims[1], 1, 1), NHWC)
    mode, ops = cudnnNormMode_t.CUDNN_NORM_PER_CHANNEL, cudnnNormOps_t.CUDNN_NORM_OPS_NORM_ADD_ACTIVATION
    algo = cudnnNormAlgo_t.CUDNN_NORM_ALGO_STANDARD
    operation = NormalizationForwardTraining(
        mode, 1.0, 0.0, x, x, s, s, 1.0, None, 1e-5, None, 0, x.count, ops, algo, x, RELU
    )
    values = np.random.default_rng(1).normal(size=(2, x.count)).astype(kind)
    ones = np.ones(s.count, np.float32)
    memory = {"x": values[0], "z": values[1], "y": values[0], "scale": ones, "bias": 0 * ones}
    memory["reserveSpace"] = np.full(x.count, 0xA5, np.uint8)
    memory = {name: handle.to_device(array) for name, array in memory.items()}
    with forcing(solver):
        assert solver in possible_solvers(operation, handle.backend.device)
        Caller(cudnn, handle)(operation, {name: memory.get(name) for name in operation.operands})
    width = 16 // values.itemsize
    passes = memory["y"].to_host(kind, -1) > 0
    assert 0.3 < passes.mean() < 0.7
    padded = np.concatenate([passes, np.zeros(-x.count % width, bool)]).reshape(-1, width)
    counts = np.arange(len(padded) * width).reshape(-1, width) < x.count  # Padding bits are False.
    mask = (
        memory["reserveSpace"].to_host(np.uint8, -1)[: len(padded)]
        & np.packbits(counts, axis=1, bitorder="little")[:, 0]
    )
    np.testing.assert_array_equal(mask, np.packbits(padded, axis=1, bitorder="little")[:, 0])
