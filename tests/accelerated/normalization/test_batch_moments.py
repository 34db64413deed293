"""Tests variances of channels with one outlier: differences from the outlier would cancel."""

from __future__ import annotations

import numpy as np
import pytest
from dualdnn.accelerated.solver import forcing, possible_solvers
from dualdnn.api import cudnn
from dualdnn.api.enumerations import cudnnBatchNormMode_t
from dualdnn.api.operations import BatchNormalizationForwardTraining, TensorSpec
from dualdnn.api.operations.specs import FLOAT, HALF
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.layouts import laid_out

CHANNELS = 64
FEW = 8  # units in the last place, bounds the roundings of differences, squares and three sums of few parts


@pytest.fixture(scope="module")
def handle():
    with cudnn.cudnnCreate(backend="accelerated", device="emulated") as handle:
        yield handle


def variances(handle, x: TensorSpec, values: np.ndarray, solver: str) -> np.ndarray:
    """Return the running variances after one call that replaces the old ones."""
    s = TensorSpec.packed(FLOAT, (1, x.dims[1], 1, 1))
    mode = cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL
    operation = BatchNormalizationForwardTraining(mode, 1.0, 0.0, x, x, s, s, 1.0, s, 1e-5, None)
    stored = np.zeros(x.nbytes // values.itemsize, values.dtype)
    np.lib.stride_tricks.as_strided(stored, x.dims, [n * values.itemsize for n in x.strides])[:] = values
    ones = np.ones(s.count, np.float32)
    memory = {name: handle.to_device(ones) for name in operation.operands}
    memory |= {"x": handle.to_device(stored), "y": handle.allocate(x.nbytes)}
    with forcing(solver):
        assert solver in possible_solvers(operation, handle.backend.device)
        Caller(cudnn, handle)(operation, memory)
    return memory["runningVariance"].to_host(np.float32, -1).astype(np.float64)


@pytest.mark.parametrize("index", [0, 1, 2, 7], ids="outlier_{}".format)
@pytest.mark.parametrize(
    "solver, layout, side",
    [
        ("normalization.batch_nhwc", "nhwc", 2),
        ("normalization.batch_nhwc", "nhwc", 12),
        ("normalization.batch_nhwc_cooperative", "nhwc", 4),
        ("normalization.batch_nchw", "nchw", 4),
        ("normalization.batch_nchw", "nchw", 7),
        ("normalization.batch_nchw_in_registers", "nchw", 4),
        ("normalization.batch_strided", "nchw", 2),
        ("normalization.batch_strided", "gaps", 4),
        ("normalization.batch_strided", "nhwc", 2),
    ],
)
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
def test_an_outlier_costs_nothing(handle, data_type, solver, layout, side, index):
    dims = (2, CHANNELS, side, side)
    values = np.random.default_rng(side).normal(size=dims).astype(np.float16 if data_type == HALF else np.float32)
    values.reshape(2, CHANNELS, -1)[index // side**2 % 2, :, index % side**2] = np.linspace(900, 2000, CHANNELS)
    found = variances(handle, laid_out(data_type, dims, layout), values, solver)
    exact = values.astype(np.float64).transpose(1, 0, 2, 3).reshape(CHANNELS, -1).var(axis=1, ddof=1)
    assert np.all(np.abs(found - exact) <= FEW * np.spacing(exact.astype(np.float32)))
