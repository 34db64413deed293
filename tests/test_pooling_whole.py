"""Global pooling: the kernels for one window over a plane against those for any window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dualdnn.accelerated import pooling_whole
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.plans import AlignedPlan, plan
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.enumerations import cudnnPoolingMode_t as Mode
from dualdnn.api.operations import PoolingForward, PoolingSpec, TensorSpec
from dualdnn.api.operations.specs import FLOAT, HALF
from dualdnn.conformance.bench.rows import pooling
from dualdnn.conformance.trial import prepare
from test_pooling_known import Listing, result_of

DIMS = [(2, 3, 7, 9), (1, 2, 40, 33), (2, 16, 6, 5), (3, 8, 1, 64), (1, 72, 9, 11), (5, 1, 2, 17)]


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "gaps"])
@pytest.mark.parametrize("dims", DIMS, ids=str)
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
@pytest.mark.parametrize("kind", ["average", "maximum", "gradient"])
def test_one_window_over_everything(monkeypatch, kind, data_type, dims, layout):
    """Planes that begin anywhere, lines with gaps, channels that are packs or not; teams of few threads and of many."""
    backend = AcceleratedBackend("emulated")
    mode = "MAX" if kind == "maximum" else "AVERAGE_COUNT_INCLUDE_PADDING"
    operation = replace(pooling(mode, 0, 0, 0, kind == "gradient")(data_type, dims, layout), beta=0.5)
    element = np.float32 if data_type == FLOAT else np.float16
    for enough, nan in ((1, Nan.CUDNN_NOT_PROPAGATE_NAN), (2**16, Nan.CUDNN_PROPAGATE_NAN)):
        monkeypatch.setattr(pooling_whole, "ENOUGH_THREADS", enough)
        operation = replace(operation, pooling=replace(operation.pooling, nan=nan))
        memory = prepare(operation, "ties", 0)
        if kind == "maximum":
            memory["x"].view(element)[3::50] = np.nan
        whole = plan(operation, backend.device)
        if not isinstance(whole, AlignedPlan):
            assert layout == "nhwc" and dims[1] * operation.x.scalar_bytes % 16
            return
        found, expected = (result_of(backend, operation, made, memory) for made in (whole, whole.otherwise()))
        assert np.allclose(found.view(element), expected.view(element), rtol=2e-3, atol=1e-3, equal_nan=True)


def test_a_plane_of_three_axes_with_gaps_is_left_to_the_other_kernels():
    spec = PoolingSpec(Mode.CUDNN_POOLING_MAX, Nan.CUDNN_NOT_PROPAGATE_NAN, (4, 5, 6), (0, 0, 0), (1, 1, 1))
    x, y = TensorSpec(FLOAT, (2, 3, 4, 5, 6), (1000, 300, 70, 7, 1)), TensorSpec.packed(FLOAT, (2, 3, 1, 1, 1))
    listing = Listing()
    plan(PoolingForward(spec, 1.0, 0.0, x, y), listing)
    assert "whole" not in listing.kernels[0][0]
