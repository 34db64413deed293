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
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT32
from dualdnn.api.status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED
from dualdnn.conformance.calls import sized
from dualdnn.conformance.calls.fused_ops import const_pack
from dualdnn.conformance.cases.fused_ops.fused_ops_finalize import NULL, vector
from dualdnn.conformance.cases.fused_ops.fused_ops_packs import PER_ACTIVATION, PERSISTENT
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.marks import shows
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
    """Without outputs, the plan needs no workspace, and nothing happens."""
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


def made(caller, operation, **attributes):
    """Make a plan of the operation, with other attributes."""
    ops = 5 if isinstance(operation, ScaleBiasAddActivationGenBitmask) else 6
    new = caller.cudnn.cudnnCreateFusedOpsPlan(ops)
    caller.cudnn.cudnnMakeFusedOpsPlan(caller.handle, new, const_pack(caller, operation, **attributes))


@pytest.mark.parametrize("make", [added, gradient])
def test_support(caller, refuses, make):
    """Other modes, activations and data types, and tensors of too many dimensions, are refused."""
    made(caller, make(), BN_MODE=PERSISTENT)
    tanh = replace(RELU, mode=cudnnActivationMode_t.CUDNN_ACTIVATION_TANH)
    many = TensorSpec.packed(FLOAT, (2, 3, 1, 1, 1, 1))
    integers = TensorSpec.packed(INT32, DIMS)
    for attributes in (dict(BN_MODE=PER_ACTIVATION), dict(ACTIVATION_DESC=tanh), dict(XDESC=laid_out(HALF, DIMS, "nchw")), dict(XDESC=many),
                       dict(XDESC=integers), dict(ACTIVATION_BITMASK_DESC=TensorSpec.packed(FLOAT, mask().dims))):  # fmt: skip
        refuses(NOT_SUPPORTED, UNSUPPORTED, made, caller, make(), **attributes)
    identity = replace(RELU, mode=cudnnActivationMode_t.CUDNN_ACTIVATION_IDENTITY)
    made(caller, make(), ACTIVATION_DESC=identity)
    name = "BN_EQSCALEBIAS_DESC" if make is added else "BN_SCALEBIAS_MEANVAR_DESC"
    refuses(NOT_SUPPORTED, UNSUPPORTED, made, caller, make(), **{name: vector(HALF)})
    for left_out in ("zEqScale", "zEqBias") if make is added else ():  # One of the two is left out.
        operation = make(without=(left_out,))
        refuses(NOT_SUPPORTED, UNSUPPORTED, made, caller, operation, BN_Z_EQSCALEBIAS_DESC=vector(HALF))


@shows(INCORRECT_PARAMETER)
@pytest.mark.parametrize("make", [added, gradient])
def test_attributes_that_do_not_fit(caller, refuses, make):
    """Other dimensions, a too small bit mask, and missing attributes are refused."""
    other = TensorSpec.packed(FLOAT, (2, 37, 7, 5))
    fewer = (
        TensorSpec.packed(INT32, (69, 2, 1, 1)),
        TensorSpec.packed(INT32, (70, 1, 1, 1)),
        TensorSpec.packed(INT32, (70, 2, 2, 1)),
    )
    wrong = [
        dict(XDESC=other),
        dict(XDESC=None),
        dict(XDATA_PLACEHOLDER=NULL),
        *(dict(ACTIVATION_BITMASK_DESC=spec) for spec in fewer),
    ]
    if make is added:
        wrong += [
            dict(YDESC=None),
            dict(ZDESC=other),
            dict(BN_EQSCALEBIAS_DESC=vector(channels=36)),
            dict(BN_Z_EQSCALEBIAS_DESC=vector(rank=5)),
        ]
    else:
        wrong += [dict(DYDATA_PLACEHOLDER=NULL), dict(DXDESC=other), dict(BN_SCALE_PLACEHOLDER=NULL), dict(BN_SAVED_MEAN_PLACEHOLDER=NULL),
                  dict(BN_SAVED_INVSTD_PLACEHOLDER=NULL), dict(ACTIVATION_BITMASK_PLACEHOLDER=NULL),
                  dict(BN_SCALEBIAS_MEANVAR_DESC=vector(channels=36))]  # fmt: skip
    for attributes in wrong:
        refuses(BAD_PARAM, INCORRECT_PARAMETER, made, caller, make(), **attributes)


def test_outputs_that_store_elements_in_one_place(caller, refuses):
    broadcast = TensorSpec(FLOAT, DIMS, (35, 35, 7, 1))
    clause = "cudnnSetTensor4dDescriptorEx/c04"
    refuses(NOT_SUPPORTED, clause, made, caller, added(), YDESC=broadcast)
    refuses(NOT_SUPPORTED, clause, made, caller, gradient(), DXDESC=broadcast)
