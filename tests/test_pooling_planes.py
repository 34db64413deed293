"""Small images of which blocks have whole planes: results of the kernels for any window, for every way that planes lie."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.plans import plan
from dualdnn.accelerated.pooling import small as pooling_planes
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.enumerations import cudnnPoolingMode_t as Mode
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.conformance.trial import prepare
from test_pooling_known import Listing, operation_of, result_of

NUMBERS = {FLOAT: np.float32, HALF: np.float16, DOUBLE: np.float64}
# Compiling takes the time: one window meets the data types.
WINDOWS = [((2, 2, 0), FLOAT), ((3, 2, 0), FLOAT), ((3, 2, 1), FLOAT), ((3, 2, 1), HALF), ((3, 2, 1), DOUBLE)]


@pytest.fixture(scope="module")
def backend():
    return AcceleratedBackend("emulated")


def kernel_of(operation):
    listing = Listing()
    plan(operation, listing)
    return listing.kernels[0][0]


@pytest.mark.parametrize("window, data_type", WINDOWS, ids=str)
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_planes_give_what_kernels_for_any_window_give(backend, monkeypatch, backward, window, data_type):
    """Blocks of one plane and of some, the last with fewer; rows and channels; NaN, infinities and equal maxima, averages."""
    modes = [Mode.CUDNN_POOLING_MAX]
    if not backward:
        modes += [Mode.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING, Mode.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING]
    shapes = [(2, 3, 9, 13), (3, 22, 5, 6), (1, 8, 10, 7)]
    monkeypatch.setattr(pooling_planes, "LEAST_THREADS", 40)
    monkeypatch.setattr(backend.device, "multiprocessors", 6, raising=False)  # of some, blocks have some of the rows
    for mode, dims, layout in product(modes, shapes, ("nchw", "nhwc", "gaps")):
        operation = operation_of(backward, mode, dims, *window, layout, data_type)
        for nan, scale in ((Nan.CUDNN_PROPAGATE_NAN, {"alpha": 2.0, "beta": 0.5}), (Nan.CUDNN_NOT_PROPAGATE_NAN, {})):
            chosen = replace(operation, pooling=replace(operation.pooling, nan=nan), **scale)
            memory = prepare(chosen, "ties", 0)
            x = memory["x"].view(NUMBERS[data_type])
            if mode == Mode.CUDNN_POOLING_MAX:
                x[::5], x[1::7], x[: x.size // 3] = np.nan, -np.inf, np.nan
            known = plan(chosen, backend.device)
            found, expected = (result_of(backend, chosen, made, memory) for made in (known, known.otherwise()))
            same = np.array_equal if mode == Mode.CUDNN_POOLING_MAX else partial(np.allclose, rtol=2e-3, atol=1e-3)
            assert same(found.view(x.dtype), expected.view(x.dtype), equal_nan=True), (dims, layout, nan)


@pytest.mark.parametrize("layout, lies", [("nchw", "loose"), ("gaps", "loose"), ("nhwc", "channels")])
def test_who_serves_what_is_small(layout, lies):
    served = {
        (8, 64, 14, 14): True,
        (32, 128, 28, 28): False,  # so many that other kernels keep the device busy
        (1, 2, 64, 64): False,  # no block has the windows of a plane
    }
    for (dims, small), backward in product(served.items(), (False, True)):
        kernel = kernel_of(operation_of(backward, Mode.CUDNN_POOLING_MAX, dims, 3, 2, 1, layout, HALF))
        assert (kernel == f"pooling_small_{'max_backward' if backward else 'forward'}_{lies}") == small, (
            dims,
            kernel,
        )


def test_small_volumes_are_left_to_others():
    assert "planes" not in kernel_of(operation_of(True, Mode.CUDNN_POOLING_MAX, (2, 8, 6, 6, 6), 3, 2, 1, "nchw"))
