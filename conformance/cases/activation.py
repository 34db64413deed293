"""Holds cases of the activation family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnActivationMode_t as Mode
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.operations import ActivationForward, ActivationSpec, TensorSpec
from dualdnn.api.operations.specs import FLOAT

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller


def forward(mode: Mode, spec: TensorSpec) -> ActivationForward:
    return ActivationForward(ActivationSpec(mode, Nan.CUDNN_PROPAGATE_NAN, 1.25), 1.0, 0.0, spec, spec)


@pytest.mark.ours
def test_every_other_element_of_one_buffer(caller: Caller, handle: Any) -> None:
    """Tensors whose elements alternate in one buffer do not overlap."""
    every_other = TensorSpec(FLOAT, (1, 1, 1, 8), (16, 16, 16, 2))
    before = np.arange(-8, 8, dtype=np.float32)
    memory = handle.to_device(before)
    caller(forward(Mode.CUDNN_ACTIVATION_RELU, every_other), {"x": memory.slice(0, 60), "y": memory.slice(4, 60)})
    expected = before.copy()
    expected[1::2] = np.maximum(before[::2], 0)
    np.testing.assert_array_equal(memory.to_host(np.float32, before.shape), expected)
