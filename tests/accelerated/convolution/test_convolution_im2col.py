"""Tests that cudnnIm2Col reads and writes tensors at any address."""

from __future__ import annotations

import pytest
from convolution_operations import check
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.api.operations.specs import HALF
from dualdnn.conformance.cases.convolution.convolution_filters import DIVISIONS, im2col


@pytest.fixture
def backend():
    return AcceleratedBackend("emulated")


@pytest.mark.parametrize("name", DIVISIONS)
def test_vectors_at_any_address(backend, name):
    for shifted in ("srcData", "colBuffer"):
        check(backend, im2col(data_type=HALF, **DIVISIONS[name]), shift=1, shifted=shifted)
