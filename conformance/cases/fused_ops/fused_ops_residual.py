"""Cases of SCALE_BIAS_ADD_ACTIVATION_GEN_BITMASK and of its gradient DACTIVATION_FORK_DBATCHNORM."""

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
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT32
from dualdnn.api.status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED
from dualdnn.conformance.calls import sized
from dualdnn.conformance.calls.fused_ops import const_pack
from dualdnn.conformance.cases.fused_ops.fused_ops_finalize import NULL, apart, vector
from dualdnn.conformance.cases.fused_ops.fused_ops_packs import PER_ACTIVATION, PERSISTENT
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.marks import shows
from dualdnn.conformance.solvers import divided_among
from dualdnn.conformance.trial import Step

IGNORED, PROPAGATED = cudnnNanPropagation_t
RELU = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, IGNORED, 0.0)
KEEPING_NAN = replace(RELU, relu_nan=PROPAGATED)
UNSUPPORTED = "cudnnCreateFusedOpsPlan/c04"
DIMS = (2, 37, 5, 7)
types = pytest.mark.parametrize(
    "kind", [FLOAT, HALF, BFLOAT16, DOUBLE], ids=lambda kind: kind.name.removeprefix("CUDNN_DATA_")
)
layouts = pytest.mark.parametrize("layout", ["nchw", "nhwc", "gaps"])


def mask(dims=DIMS, more=(0, 0)):
    """The bit mask of a tensor, with more rows and words than it needs. NVIDIA's library wants whole numbers of 32 rows and of 2 words."""
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


@pytest.mark.parametrize("make", [added, gradient], ids=lambda make: make.__name__)
def test_channels_that_end_within_a_pack(trial, make):
    """Of pixels that begin at whole packs."""
    operation = make(HALF, "nhwc", (2, 12, 3, 5))
    tensors = {name: getattr(operation, name, None) for name in ("x", "y", "z", "dx", "dy", "dz")}
    gaps = {name: replace(spec, strides=(240, 1, 80, 16)) for name, spec in tensors.items() if spec}
    trial(replace(operation, **gaps))


@pytest.mark.parametrize("make", [added, gradient], ids=lambda make: make.__name__)
@pytest.mark.parametrize("dims, strides", [
    ((3, 6, 5, 7), (213, 35, 7, 1)), ((1, 6, 5, 7), (240, 40, 7, 1)), ((2, 6, 3, 4), (96, 16, 4, 1)), ((2, 8, 2, 8), (256, 32, 16, 2)),
], ids=["images apart", "planes apart", "planes that end within a pack", "every other pixel"])  # fmt: skip
def test_planes_that_lie_apart(trial, caller, make, dims, strides):
    operation = make(HALF, "nchw", dims)
    given = {name: getattr(operation, name, None) for name in ("x", "y", "z", "dx", "dy", "dz")}
    apart = {name: replace(spec, strides=strides) for name, spec in given.items() if spec}
    trial(sized(caller, replace(operation, **apart)))


@pytest.mark.parametrize("make", [added, gradient], ids=lambda make: make.__name__)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("dims", [(2, 37, 5, 7), (2, 40, 4, 8)], ids=str)
def test_words_of_the_bit_mask_lie_apart(trial, caller, make, layout, dims):
    operation, x = make(HALF, layout, dims), laid_out(HALF, dims, layout)
    alike = {name: x for name in ("x", "y", "z", "dx", "dy", "dz") if getattr(operation, name, None)}
    bits = replace(operation.bitMask, strides=(5, 2, 1, 1))
    trial(sized(caller, replace(operation, bitMask=bits, **alike)))
    trial(sized(caller, replace(operation, bitMask=bits, **alike)), offsets={"x": 2})


@types
@layouts
def test_sum_of_scaled_tensors(trial, kind, layout):
    """y, and the bits of what is above 0; x and z may lie in different layouts."""
    trial(added(kind, layout))


@pytest.mark.parametrize("kind", [HALF, BFLOAT16])
def test_scales_in_float(trial, kind):
    trial(added(kind, "nhwc", parameters=FLOAT))


@types
@layouts
@pytest.mark.parametrize("dims", [(2, 40, 4, 8), (3, 72, 12, 10), (2, 35, 4, 8)], ids=str)
def test_tensors_of_one_layout(trial, caller, dims, kind, layout):
    """Pixels and channels in multiples of 16 bytes, in all tensors alike."""
    x = laid_out(kind, dims, layout)
    trial(replace(added(kind, layout, dims), z=x))
    trial(sized(caller, replace(gradient(kind, layout, dims), dy=x, dz=x)))


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_numbers_of_channels_lie_apart(trial, caller, layout):
    dims = (2, 40, 4, 8)
    trial(apart(replace(added(FLOAT, layout, dims), z=(x := laid_out(FLOAT, dims, layout)))))
    trial(sized(caller, apart(replace(gradient(FLOAT, layout, dims), dy=x, dz=x))))
    trial(sized(caller, apart(gradient(FLOAT, layout, dims))))


@pytest.mark.parametrize("dims", [(1, 4, 1, 27), (3, 32, 1, 11), (1, 33, 32, 1), (2, 65, 3, 2, 5), (5, 7, 9)], ids=str)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_shapes_of_the_sum(trial, dims, layout):
    """Channels that end within a word, pixels that end within a tile; bits of no element are 0."""
    for more in ((0, 0), (3, 1)):
        trial(added(layout=layout if len(dims) == 4 else "nchw", dims=dims, more=more))


@pytest.mark.parametrize("without", [
    ("eqScale",), ("eqBias",), ("eqScale", "eqBias"), ("z", "zEqScale"), ("z", "zEqScale", "zEqBias"), ("zEqScale",), ("zEqBias",),
    ("bitMask",), ("eqScale", "eqBias", "z", "zEqScale", "zEqBias", "bitMask")], ids="-".join)  # fmt: skip
def test_steps_that_are_left_out(trial, without):
    trial(added(without=without))


@pytest.mark.parametrize("activation", [None, RELU, KEEPING_NAN], ids=["none", "relu", "relu-nan"])
@pytest.mark.parametrize("inputs", ["special", "ties"])
def test_activations(trial, activation, inputs):
    """NaN is 0 or kept, and its bit is 0; without an activation all bits of elements are 1."""
    trial(added(activation=activation), inputs)


@types
@layouts
def test_gradient(trial, caller, kind, layout):
    trial(sized(caller, gradient(kind, layout)))


@pytest.mark.parametrize("dims", [(1, 4, 1, 27), (3, 32, 1, 11), (9, 33, 32, 1), (2, 65, 3, 2, 5), (5, 7, 9)], ids=str)
def test_shapes_of_the_gradient(trial, caller, dims):
    trial(sized(caller, gradient(dims=dims, more=(5, 1))))


@pytest.mark.parametrize("without", [("dx", "scale"), ("dz",), ("dScale",), ("dBias",), ("dx", "dz", "scale"), ("dScale", "dBias"),
                                     ("dx", "scale", "dScale", "dBias"),
                                     ("dx", "scale", "dScale", "dBias", "savedMean", "savedInvStd")], ids="-".join)  # fmt: skip
def test_gradients_that_are_not_wanted(trial, caller, without):
    trial(sized(caller, gradient(without=without)))


@pytest.mark.parametrize("kind, dims, without", [
    (HALF, (140, 34, 3, 8), ()), (FLOAT, (2, 3, 90, 80), ("dz",)), (BFLOAT16, (3, 2, 90, 80), ("dScale", "dBias")),
    (HALF, (5, 67, 3, 7), ()), (BFLOAT16, (3, 71, 37, 1), ("dz",)), (HALF, (5, 1, 7, 3), ()), (HALF, (1, 3, 29, 31), ()),
    (FLOAT, (9, 70, 5, 3), ()),
    (DOUBLE, (5, 33, 6, 7), ("dBias",))], ids=str)  # fmt: skip
def test_gradient_of_planes(trial, caller, kind, dims, without):
    """Several planes together and parts of planes, whose bits begin within a byte, planes that begin anywhere, and what
    is not wanted of them."""
    x = TensorSpec.packed(kind, dims)
    trial(
        sized(caller, replace(gradient(kind, dims=dims, more=(0, 2)), **{"dy": x, "dz": x, **dict.fromkeys(without)}))
    )


@pytest.mark.parametrize(
    "images, channels, strides",
    [(4, 97, None), (4, 97, (8, 2, 1, 1)), (4, 97, (6, 1, 1, 1)), (6, 70, None)],
    ids=str,
)
def test_gradient_of_planes_of_many_channels(trial, caller, images, channels, strides):
    """The words of the bit mask lie four by four, and are read so, unless they or their rows lie elsewhere, or are others."""
    x = TensorSpec.packed(HALF, (images, channels, 16, 16))
    operation = replace(gradient(HALF, dims=x.dims), dy=x, dz=x)
    if strides:
        operation = replace(operation, bitMask=replace(operation.bitMask, strides=strides))
    with divided_among(caller.handle, 1):
        trial(sized(caller, operation))


def test_gradient_of_channels_that_no_block_holds(trial, caller):
    x = TensorSpec.packed(FLOAT, (1, 1, 164, 160))
    trial(sized(caller, replace(gradient(FLOAT, dims=x.dims), dy=x, dz=x)))


@pytest.mark.parametrize("layout, dims", [("nchw", (2, 40, 4, 8)), ("nhwc", (2, 40, 16, 20))], ids=str)
@pytest.mark.parametrize("without", [(), ("savedMean", "savedInvStd")], ids=["saved", "not saved"])
def test_workspace_of_gradients_that_begin_at_an_element(trial, caller, layout, dims, without):
    """As much as the plan asks for, where sums are divided otherwise than of what begins at a pack."""
    x = laid_out(HALF, dims, layout)
    with divided_among(caller.handle, 16):
        operation = sized(caller, replace(gradient(HALF, layout, dims, without=without), dy=x, dz=x))
        trial(operation, offsets={"dy": 2})


def test_gradient_of_images_that_lie_apart(trial, caller):
    """Planes follow each other in an image, which a gap follows."""
    dims = (3, 6, 8, 8)
    x = TensorSpec(HALF, dims, (6 * 64 + 16, 64, 8, 1))
    trial(sized(caller, replace(gradient(HALF, dims=dims), x=x, dy=x, dx=x, dz=x)))


@pytest.mark.ours
def test_no_gradient_is_wanted(caller):
    """The plan needs no workspace, and nothing happens."""
    operation = gradient(without=("dx", "dz", "dScale", "dBias", "scale"))
    memory = {name: caller.handle.to_device(np.ones(operation.nbytes(name), np.uint8)) for name in operation.operands}
    assert sized(caller, operation).workspace_bytes == 0
    caller(operation, memory)


@pytest.mark.parametrize("kind", [FLOAT, HALF, DOUBLE], ids=lambda kind: kind.name)
@pytest.mark.parametrize("without", [(), ("dx", "scale"), ("dScale", "dBias")], ids=str)
def test_statistics_that_were_not_saved(trial, caller, kind, without):
    """Mean and variance are those of x, with the epsilon of the variant parameter pack."""
    trial(sized(caller, gradient(kind, "nhwc", without=("savedMean", "savedInvStd", *without))))


def test_planes_in_another_order(trial, caller):
    """Pixels lie column by column without gaps: rows of the bit mask are counted through rows all the same."""
    x = TensorSpec(HALF, (1, 8, 24, 26), (4992, 624, 1, 24))
    trial(sized(caller, replace(gradient(HALF, "nchw", x.dims), x=x, dy=x, dx=x, dz=x)))


def test_statistics_of_x_that_begins_within_a_pack(trial, caller):
    """The channels of x alone lie side by side, and it begins at its second element: statistics are not read in packs."""
    dims = (2, 40, 4, 8)
    x, apart = laid_out(HALF, dims, "nhwc"), laid_out(HALF, dims, "gaps")
    operation = replace(
        gradient(HALF, "nhwc", dims, without=("savedMean", "savedInvStd")), x=x, dy=apart, dx=apart, dz=apart
    )
    trial(sized(caller, operation), offsets={"x": 2})


@pytest.mark.parametrize("inputs", ["normal", "special"])
def test_gradient_without_an_activation(trial, caller, inputs):
    """The bit mask is not even looked at: dz is dy."""
    trial(sized(caller, gradient(activation=None)), {**dict.fromkeys(gradient().operands, "normal"), "dy": inputs})


@layouts
def test_gradients_beside_infinities(trial, caller, layout):
    """An infinity is multiplied by zeros that the activation made, or left out: neither makes other channels infinite."""
    operation = sized(caller, gradient(layout=layout, dims=(2, 40, 4, 8)))
    for name in ("x", "dy", "scale", "savedInvStd"):
        trial(operation, {**dict.fromkeys(operation.operands, "near_one"), name: "infinite"})


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_gradient_of_the_sum(chain, caller, layout):
    """Forward and backward on one bit mask: the gradient goes where the sum was above 0."""
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
    """Other modes, activations and data types, and tensors of too many dimensions."""
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
    for left_out in ("zEqScale", "zEqBias") if make is added else ():  # one of the two alone
        operation = make(without=(left_out,))
        refuses(NOT_SUPPORTED, UNSUPPORTED, made, caller, operation, BN_Z_EQSCALEBIAS_DESC=vector(HALF))


@shows(INCORRECT_PARAMETER)
@pytest.mark.parametrize("make", [added, gradient])
def test_attributes_that_do_not_fit(caller, refuses, make):
    """Other dimensions, too small a bit mask, what is missing."""
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
