"""Holds cases of SCALE_BIAS_ADD_ACTIVATION_GEN_BITMASK and of its gradient DACTIVATION_FORK_DBATCHNORM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnActivationMode_t, cudnnNanPropagation_t
from dualdnn.api.operations import (
    ActivationSpec,
    DactivationForkDbatchnorm,
    ScaleBiasAddActivationGenBitmask,
    TensorSpec,
)
from dualdnn.api.operations.specs import FLOAT, INT32
from dualdnn.conformance.calls import sized
from dualdnn.conformance.cases.fused_ops.fused_ops_finalize import vector
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.trial import Step

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.trial import Trial

RELU = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0)
DIMS = (2, 37, 5, 7)


def mask() -> Any:
    """Return the bit mask of a tensor. NVIDIA's library wants whole numbers of 32 rows and of 2 words."""
    images, channels, *sizes = DIMS
    pixels = -(-images * int(np.prod(sizes)) // 32) * 32
    return TensorSpec.packed(INT32, (pixels, 2 * -(-channels // 64), 1, 1))


def added(layout: str = "nchw") -> ScaleBiasAddActivationGenBitmask:
    x, z, eq = laid_out(FLOAT, DIMS, layout), laid_out(FLOAT, DIMS, "nhwc"), vector(DIMS[1])
    return ScaleBiasAddActivationGenBitmask(RELU, x, eq, eq, z, eq, eq, x, mask())


def gradient(layout: str = "nchw", without: Any = ()) -> Any:
    x, dy, numbers = laid_out(FLOAT, DIMS, layout), laid_out(FLOAT, DIMS, "nhwc"), vector(DIMS[1])
    operation = DactivationForkDbatchnorm(RELU, 1e-3, 0, x, dy, mask(), *(numbers,) * 3, x, dy, numbers, numbers)
    return replace(operation, **dict.fromkeys(without))


@pytest.mark.ours
def test_no_gradient_is_wanted(caller: Caller) -> None:
    """A plan without outputs needs no workspace and does nothing."""
    operation = gradient(without=("dx", "dz", "dScale", "dBias", "scale"))
    memory = {name: caller.handle.to_device(np.ones(operation.nbytes(name), np.uint8)) for name in operation.operands}
    assert sized(caller, operation).workspace_bytes == 0
    caller(operation, memory)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_gradient_of_the_sum(chain: Callable[..., Trial], caller: Caller, layout: str) -> None:
    """Forward and backward share one bit mask: the gradient passes where the sum was above 0."""
    forward = added(layout=layout)
    backward = sized(caller, gradient(layout=layout))
    after = chain(Step(forward, {"x": "a", "y": "b"}), Step(backward)).after
    assert (np.frombuffer(after["dz"], np.float32) == 0).mean() > 0.2
