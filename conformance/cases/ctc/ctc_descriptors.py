"""Holds cases of the CTC loss descriptors."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from dualdnn.api.enumerations import cudnnLossNormalizationMode_t, cudnnNanPropagation_t
from dualdnn.api.operations.specs import DOUBLE, FLOAT
from dualdnn.conformance.marks import shows
from dualdnn.conformance.suite.fixtures import fresh_descriptor

NONE, SOFTMAX = cudnnLossNormalizationMode_t
NOT_PROPAGATE, PROPAGATE = cudnnNanPropagation_t
SETTERS = ("cudnnSetCTCLossDescriptor", "cudnnSetCTCLossDescriptorEx", "cudnnSetCTCLossDescriptor_v8")
ARGUMENTS = {setter: count for setter, count in zip(SETTERS, (1, 3, 4), strict=True)}
GOOD = (DOUBLE, SOFTMAX, PROPAGATE, 33)  # A fresh descriptor has other values.
FRESH = (FLOAT, NONE, NOT_PROPAGATE, 0)
fresh = fresh_descriptor("CTCLoss")


def fill(cudnn: Any, setter: Any, descriptor: Any, *values: Any) -> None:
    """Set the descriptor to those values that the setter takes."""
    getattr(cudnn, setter)(descriptor, *values[: ARGUMENTS[setter]])


def read(cudnn: Any, descriptor: Any) -> Any:
    """Return the values, after checking that the getters agree on them."""
    known = tuple(cudnn.cudnnGetCTCLossDescriptor_v8(descriptor))
    assert tuple(cudnn.cudnnGetCTCLossDescriptorEx(descriptor)) == known[:3]
    assert cudnn.cudnnGetCTCLossDescriptor(descriptor) == known[0]
    return known


@shows("cudnnCreateCTCLossDescriptor/c01 c02", "cudnnDestroyCTCLossDescriptor/c01 c02", "cudnnCTCLossDescriptor_t/c01")
def test_create_and_destroy(cudnn: Any) -> None:
    """Descriptors are independent of each other and live until they are destroyed."""
    first, second = cudnn.cudnnCreateCTCLossDescriptor(), cudnn.cudnnCreateCTCLossDescriptor()
    fill(cudnn, SETTERS[2], first, FLOAT, NONE, NOT_PROPAGATE, 5)
    fill(cudnn, SETTERS[2], second, *GOOD)
    cudnn.cudnnDestroyCTCLossDescriptor(first)
    assert read(cudnn, second) == GOOD
    cudnn.cudnnDestroyCTCLossDescriptor(second)


@shows("cudnnDestroyCTCLossDescriptor/c02")
def test_destroy_of_null(cudnn: Any) -> None:
    cudnn.cudnnDestroyCTCLossDescriptor(None)


@shows("cudnnCreateCTCLossDescriptor/c01")
def test_fresh_reads_as_zeros(cudnn: Any, fresh: Any) -> None:
    assert read(cudnn, fresh) == FRESH


@shows("cudnnSetCTCLossDescriptor_v8/c01 c07", "cudnnLossNormalizationMode_t/c01", "cudnnGetCTCLossDescriptor_v8/c01-c05",
       "cudnnGetCTCLossDescriptorEx/c01-c04", "cudnnGetCTCLossDescriptor/c01 c02")  # fmt: skip
@pytest.mark.parametrize("longest", [0, 1, 256, 257, 2**31 - 1])
def test_every_value_comes_back(cudnn: Any, fresh: Any, longest: Any) -> None:
    """The limit of 256 labels is the algorithm's, not the descriptor's."""
    for values in product((FLOAT, DOUBLE), (NONE, SOFTMAX), (NOT_PROPAGATE, PROPAGATE)):
        fill(cudnn, SETTERS[2], fresh, *values, longest)
        assert read(cudnn, fresh) == (*values, longest)


@shows("cudnnSetCTCLossDescriptorEx/c01", "cudnnSetCTCLossDescriptorEx/c06")
def test_extended_setter(cudnn: Any, fresh: Any) -> None:
    for values in product((FLOAT, DOUBLE), (NONE, SOFTMAX), (NOT_PROPAGATE, PROPAGATE)):
        fill(cudnn, SETTERS[1], fresh, *values)
        assert read(cudnn, fresh) == (*values, 0)


@shows("cudnnSetCTCLossDescriptor/c01-c03", "cudnnSetCTCLossDescriptorEx/c02", "cudnnCTCLossDescriptor_t/c02")
@pytest.mark.parametrize("compute_type", [FLOAT, DOUBLE], ids=lambda t: t.name)
def test_short_setter_is_the_extended_one(cudnn: Any, fresh: Any, compute_type: Any) -> None:
    """The short setter resets every earlier value, also the longest label."""
    for earlier in ((), GOOD):
        for setter in SETTERS[:2]:
            if earlier:
                fill(cudnn, SETTERS[2], fresh, *earlier)
            fill(cudnn, setter, fresh, compute_type, NONE, NOT_PROPAGATE)
            assert read(cudnn, fresh) == (compute_type, NONE, NOT_PROPAGATE, 0)
