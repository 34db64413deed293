"""Tests that cudnnIm2Col reads and writes tensors at any address."""

from __future__ import annotations

import pytest
from convolution_operations import check
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.api.operations.specs import HALF
from dualdnn.conformance.cases.convolution.convolution_filters import im2col

DIVISIONS = {
    "rows of whole packs": {"x": (2, 24, 9, 11), "w": (1, 24, 3, 3), "padding": (1, 1)},
    "chunks of channels": {"x": (2, 40, 9, 11), "w": (1, 40, 3, 3), "padding": (1, 1)},
    "packs of no whole channel": {"x": (1, 13, 8, 9), "w": (1, 13, 3, 3), "padding": (2, 0), "stride": (2, 1)},
    "packs that end within a chunk": {"x": (1, 67, 4, 5), "w": (1, 67, 3, 3), "padding": (1, 1)},
    "dilated": {"x": (2, 8, 11, 12), "w": (1, 8, 3, 2), "padding": (2, 1), "stride": (1, 2), "dilation": (2, 3)},
    "more terms than threads": {"x": (1, 3, 20, 19), "w": (1, 3, 17, 16), "padding": (3, 3)},
    "chunks of fewer channels than make whole packs": {"x": (1, 8, 63, 65), "w": (1, 8, 63, 65), "padding": (0, 0)},
    "a filter that no shared memory holds": {"x": (1, 1, 150, 160), "w": (1, 1, 149, 158), "padding": (0, 0)},
}


@pytest.fixture
def backend():
    return AcceleratedBackend("emulated")


@pytest.mark.parametrize("name", DIVISIONS)
def test_vectors_at_any_address(backend, name):
    for shifted in ("srcData", "colBuffer"):
        check(backend, im2col(data_type=HALF, **DIVISIONS[name]), shift=1, shifted=shifted)
