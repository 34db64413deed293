"""Global pooling: the kernels for one window over a plane against those for any window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.plans import AlignedPlan, plan
from dualdnn.accelerated.pooling import global_window as pooling_whole
from dualdnn.accelerated.pooling.problem import shape_of
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.enumerations import cudnnPoolingMode_t as Mode
from dualdnn.api.operations import PoolingForward, PoolingSpec, TensorSpec
from dualdnn.api.operations.specs import FLOAT, HALF
from dualdnn.conformance.bench.rows import pooling
from dualdnn.conformance.trial import prepare
from test_pooling_known import Listing, result_of

DIMS = [(2, 3, 7, 9), (1, 2, 40, 33), (2, 16, 6, 5), (3, 8, 1, 64), (1, 72, 9, 11), (5, 1, 2, 17)]


def others(plan):
    """A plan, what would serve where operands are not aligned as it needs them, and so on."""
    while isinstance(plan, AlignedPlan):
        yield plan
        plan = plan.otherwise()
    yield plan


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
        *found, expected = (
            result_of(backend, operation, made, memory) for made in others(plan(operation, backend.device))
        )
        of_whole = len(found) - (kind == "average")  # a small average is a reduction
        assert of_whole == 1 or (of_whole == 0 and layout == "nhwc" and dims[1] * operation.x.scalar_bytes % 16)
        for one in found:
            assert np.allclose(one.view(element), expected.view(element), rtol=2e-3, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize(
    ("columns", "pitch", "over_gaps"),
    [(4, 8, 0), (5, 9, 0), (6, 11, 0), (7, 8, 1), (7, 14, 1), (8, 11, 1), (15, 16, 1)],
)
def test_gaps_are_not_pooled(columns, pitch, over_gaps):
    """Planes that begin anywhere, whose packs of 16 bytes would reach over no, one or two gaps."""
    backend = AcceleratedBackend("emulated")
    dims, strides = (3, 5, 6, columns), (31 * pitch + 1, 6 * pitch + 3, pitch, 1)
    operation = pooling("AVERAGE_COUNT_INCLUDE_PADDING", 0, 0, 0, False)(HALF, dims, "nchw")
    operation = replace(operation, x=TensorSpec(HALF, dims, strides))
    shape = shape_of(operation, operation.x, operation.y, walk_y=True)
    work = pooling_whole._rows(shape, pooling_whole.WARP, pooling_whole.BLOCK)
    assert work is not None
    assert work.arguments.over_gaps == over_gaps
    memory = prepare(operation, "normal", 0)
    x = memory["x"].view(np.float16)
    elements = np.zeros(x.size, bool)
    elements[sum(i * s for i, s in zip(np.indices(dims), strides, strict=True)).ravel()] = True
    x[~elements] = np.nan
    whole = plan(operation, backend.device)
    assert isinstance(whole, AlignedPlan)
    *found, expected = (result_of(backend, operation, made, memory) for made in others(whole))
    for one in found:
        assert np.allclose(one.view(np.float16), expected.view(np.float16), rtol=2e-3, atol=1e-3)


def test_dimensions_are_merged_that_follow_each_other_in_both_tensors():
    packed, apart = [(2, 60, 24), (3, 20, 8), (1, 7, 7), (4, 5, 2)], [(2, 60, 24), (3, 20, 9), (4, 5, 2)]
    assert pooling_whole._merged(packed) == [(24, 5, 2)]
    assert pooling_whole._merged(apart) == apart[::-1]


def test_a_plane_of_three_axes_with_gaps_is_left_to_the_other_kernels():
    spec = PoolingSpec(Mode.CUDNN_POOLING_MAX, Nan.CUDNN_NOT_PROPAGATE_NAN, (4, 5, 6), (0, 0, 0), (1, 1, 1))
    x, y = TensorSpec(FLOAT, (2, 3, 4, 5, 6), (1000, 300, 70, 7, 1)), TensorSpec.packed(FLOAT, (2, 3, 1, 1, 1))
    listing = Listing()
    plan(PoolingForward(spec, 1.0, 0.0, x, y), listing)
    assert "whole" not in listing.kernels[0][0]
