"""Holds cases of the activation family."""

from __future__ import annotations

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnActivationMode_t as Mode
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.operations import ActivationBackward, ActivationForward, ActivationSpec, TensorSpec
from dualdnn.api.operations.specs import FLOAT
from dualdnn.api.status import NOT_SUPPORTED
from dualdnn.conformance.layouts import NOT_SPATIALLY_PACKED, laid_out
from dualdnn.conformance.marks import shows

DIMS = (2, 3, 5, 7)


def forward(mode: Mode = Mode.CUDNN_ACTIVATION_TANH, x: TensorSpec | None = None, y: TensorSpec | None = None, *,
            nan: Nan = Nan.CUDNN_PROPAGATE_NAN, coefficient: float = 1.25, alpha: float = 1.0, beta: float = 0.0) -> ActivationForward:  # fmt: skip
    x = x or TensorSpec.packed(FLOAT, DIMS)
    return ActivationForward(ActivationSpec(mode, nan, coefficient), alpha, beta, x, y or x)


def backward(mode: Mode = Mode.CUDNN_ACTIVATION_TANH, spec: TensorSpec | None = None, *, coefficient: float = 1.25,
             alpha: float = 1.0, beta: float = 0.0, **specs: TensorSpec) -> ActivationBackward:  # fmt: skip
    spec = spec or TensorSpec.packed(FLOAT, DIMS)
    named = {name: specs.get(name, spec) for name in ("y", "dy", "x", "dx")}
    return ActivationBackward(ActivationSpec(mode, Nan.CUDNN_PROPAGATE_NAN, coefficient), alpha, beta, **named)


@shows("cudnnActivationForward/c09")
def test_forward_beyond_five_dimensions(trial, refused):
    dims = (2, 3, 2, 2, 3, 2)
    packed = TensorSpec.packed(FLOAT, dims)
    trial(forward(x=packed))
    planes = TensorSpec(FLOAT, dims, (200, 30, 12, 6, 2, 1))  # Only channels and images have gaps between them.
    trial(forward(x=planes, y=planes))
    for unpacked in (laid_out(FLOAT, dims, layout) for layout in NOT_SPATIALLY_PACKED):
        refused(forward(x=unpacked, y=packed), NOT_SUPPORTED, "cudnnActivationForward/c09")
        refused(forward(x=packed, y=unpacked), NOT_SUPPORTED, "cudnnActivationForward/c09")
        refused(forward(x=unpacked), NOT_SUPPORTED, "cudnnActivationForward/c09")


@shows("cudnnActivationBackward/c06")
def test_backward_beyond_five_dimensions(trial, refused):
    dims = (2, 3, 2, 2, 3, 2)
    packed = TensorSpec.packed(FLOAT, dims)
    trial(backward(spec=packed))
    for unpacked in (laid_out(FLOAT, dims, layout) for layout in NOT_SPATIALLY_PACKED):
        refused(backward(y=unpacked, dy=unpacked, x=packed, dx=packed), NOT_SUPPORTED, "cudnnActivationBackward/c06")
        refused(backward(y=packed, dy=packed, x=unpacked, dx=unpacked), NOT_SUPPORTED, "cudnnActivationBackward/c06")
        refused(backward(spec=unpacked), NOT_SUPPORTED, "cudnnActivationBackward/c06")


@pytest.mark.ours
def test_every_other_element_of_one_buffer(caller, handle):
    """Tensors whose elements alternate in one buffer do not overlap."""
    every_other = TensorSpec(FLOAT, (1, 1, 1, 8), (16, 16, 16, 2))
    before = np.arange(-8, 8, dtype=np.float32)
    memory = handle.to_device(before)
    caller(forward(Mode.CUDNN_ACTIVATION_RELU, every_other), {"x": memory.slice(0, 60), "y": memory.slice(4, 60)})
    expected = before.copy()
    expected[1::2] = np.maximum(before[::2], 0)
    np.testing.assert_array_equal(memory.to_host(np.float32, before.shape), expected)
