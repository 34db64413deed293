"""Holds cases of SCALE_BIAS_ADD_ACTIVATION_GEN_BITMASK and of its gradient DACTIVATION_FORK_DBATCHNORM."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnActivationMode_t, cudnnNanPropagation_t
from dualdnn.api.operations import (
    ActivationSpec,
    DactivationForkDbatchnorm,
    ScaleBiasAddActivationGenBitmask,
    TensorSpec,
)
from dualdnn.api.operations.specs import DOUBLE, FLOAT, INT32
from dualdnn.conformance.calls import sized
from dualdnn.conformance.cases.fused_ops.fused_ops_finalize import vector
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.trial import Step

IGNORED, PROPAGATED = cudnnNanPropagation_t
RELU = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, IGNORED, 0.0)
KEEPING_NAN = replace(RELU, relu_nan=PROPAGATED)
UNSUPPORTED = "cudnnCreateFusedOpsPlan/c04"
DIMS = (2, 37, 5, 7)


def mask(dims=DIMS, more=(0, 0)):
    """Return the bit mask of a tensor, with more rows and words than it needs.

    NVIDIA's library wants whole numbers of 32 rows and of 2 words.
    """
    pixels = -(-int(np.prod(dims)) // dims[1] // 32) * 32
    return TensorSpec.packed(INT32, (pixels + more[0], 2 * -(-dims[1] // 64) + more[1], *(1,) * (len(dims) - 2)))


def added(kind=FLOAT, layout="nchw", dims=DIMS, activation=RELU, without=(), parameters=None, more=(0, 0)):
    x = laid_out(kind, dims, layout)
    other = laid_out(kind, dims, "nhwc" if layout == "nchw" and len(dims) == 4 else layout)
    eq = vector(kind if parameters is None else parameters, dims[1], rank=len(dims))
    operation = ScaleBiasAddActivationGenBitmask(activation, x, eq, eq, other, eq, eq, x, mask(dims, more))
    return replace(operation, **dict.fromkeys(without))


def gradient(kind=FLOAT, layout="nchw", dims=DIMS, activation=RELU, without=(), more=(0, 0)):
    x = laid_out(kind, dims, layout)
    other = laid_out(kind, dims, "nhwc" if layout == "nchw" and len(dims) == 4 else layout)
    numbers = vector(DOUBLE if kind == DOUBLE else FLOAT, dims[1], rank=len(dims))
    bits = mask(dims, more) if activation else None
    operation = DactivationForkDbatchnorm(
        activation, 1e-3, 0, x, other, bits, *(numbers,) * 3, x, other, numbers, numbers
    )
    return replace(operation, **dict.fromkeys(without))


@pytest.mark.ours
def test_no_gradient_is_wanted(caller):
    """A plan without outputs needs no workspace and does nothing."""
    operation = gradient(without=("dx", "dz", "dScale", "dBias", "scale"))
    memory = {name: caller.handle.to_device(np.ones(operation.nbytes(name), np.uint8)) for name in operation.operands}
    assert sized(caller, operation).workspace_bytes == 0
    caller(operation, memory)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_gradient_of_the_sum(chain, caller, layout):
    """Forward and backward share one bit mask: the gradient passes where the sum was above 0."""
    forward = added(layout=layout)
    backward = sized(caller, gradient(layout=layout))
    after = chain(Step(forward, {"x": "a", "y": "b"}), Step(backward)).after
    assert (np.frombuffer(after["dz"], np.float32) == 0).mean() > 0.2
