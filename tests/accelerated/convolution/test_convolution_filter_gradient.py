"""Gradients with respect to the filter on the emulated device: every tile that TMA feeds, with either operand as its rows
and K-blocks that several blocks share; depthwise convolutions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from convolution_operations import UNALIGNED, check, kernels
from dualdnn.accelerated import AcceleratedBackend
from dualdnn.accelerated.convolution.gradients import filter_gradient_tma
from dualdnn.accelerated.convolution.gradients.filter_gradient_tma import KERNELS, SUM, FilterGradientTma
from dualdnn.api.enumerations import cudnnConvolutionMode_t as Mode
from dualdnn.api.enumerations import cudnnMathType_t
from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import HALF, NCHW, NHWC
from dualdnn.conformance.cases.convolution.convolution_backward_filter import gradient

TMA = "convolution.filter_gradient_tma_"
DEFAULT = cudnnMathType_t.CUDNN_DEFAULT_MATH


def half(x, dw, configuration="PSEUDO_HALF", formats=NHWC, **options):
    return gradient(x, dw, configuration=configuration, formats=formats, math_type=DEFAULT, **options)


def with_gaps(operation):
    """dy whose pixels, rows and images lie apart."""
    _, channels, height, width = operation.dy.dims
    pixel = channels + 8
    strides = ((height * width + 3) * pixel + 16, 1, (width + 1) * pixel, pixel)
    return replace(operation, dy=TensorSpec(HALF, operation.dy.dims, strides))


GRADIENTS = {
    "one tap": half((3, 72, 5, 7), (136, 72, 1, 1), padding=(0, 0), alpha=-1.5, beta=0.5),
    "taps": half((2, 40, 9, 8), (48, 40, 3, 3), mode=Mode.CUDNN_CONVOLUTION),
    "geometry": half(
        (3, 16, 13, 11), (72, 16, 2, 3), "PSEUDO_BFLOAT16", padding=(3, 2), stride=(3, 2), dilation=(2, 3), beta=-2.0
    ),
    "groups": half((2, 48, 7, 9), (144, 24, 3, 2), groups=2, stride=(1, 2)),
    "gaps": with_gaps(half((2, 24, 6, 9), (16, 24, 2, 2))),
    "planes": half((2, 20, 7, 9), (30, 20, 3, 3), formats=NCHW, beta=1.0),
    "planes of dy": half((1, 24, 9, 9), (40, 24, 3, 3), formats=(NHWC, NHWC, NCHW)),
}


@pytest.fixture
def seven_multiprocessors(monkeypatch):
    """A device whose blocks share tiles, and meet several."""
    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made.device, "seed", 5)
    monkeypatch.setattr(made.device, "multiprocessors", 7)
    monkeypatch.setattr(filter_gradient_tma, "LEAST_K_BLOCKS", 1)
    return made


@pytest.mark.parametrize("rows_are_filters", [True, False], ids=["dy_by_x", "x_by_dy"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.entry.removeprefix("convolution_"))
@pytest.mark.parametrize("name", GRADIENTS)
def test_every_tile(seven_multiprocessors, monkeypatch, name, kernel, rows_are_filters):
    monkeypatch.setattr(filter_gradient_tma, "ROWS_ARE_FILTERS", (rows_are_filters,))
    plan = check(seven_multiprocessors, GRADIENTS[name], FilterGradientTma(kernel).name)
    assert kernels(plan)[-2:] == [kernel.entry, SUM]


def test_addresses_that_tma_does_not_take(seven_multiprocessors):
    for shifted in ("x", "dy", "dw"):
        check(seven_multiprocessors, GRADIENTS["taps"], TMA + "64x128", shift=UNALIGNED // 2, shifted=shifted)


def test_which_gradients_are_preferred(seven_multiprocessors):
    """Those whose channels fill a part of the boxes, where the math type allows tensor cores."""
    room = seven_multiprocessors
    assert check(room, half((2, 64, 4, 5), (64, 64, 3, 3))).solver.startswith(TMA)
    assert not check(room, half((2, 3, 4, 5), (64, 3, 3, 3))).solver.startswith(TMA)
    plain = gradient((2, 64, 4, 5), (64, 64, 3, 3), configuration="PSEUDO_HALF", formats=NHWC)
    assert not check(room, plain).solver.startswith(TMA)


DEPTHWISE = "convolution.depthwise_filter_gradient"


def depthwise(x, taps, multiples=1, **options):
    return gradient(x, (x[1] * multiples, 1, *taps), groups=x[1], **options)


OF_CHANNELS = {
    "planes": depthwise((3, 5, 17, 16), (3, 3), configuration="PSEUDO_HALF", alpha=-1.5, beta=0.5),
    "planes, a last tile in part": depthwise((2, 4, 9, 14), (3, 3), configuration="PSEUDO_BFLOAT16"),
    "planes, float": depthwise((2, 3, 16, 9), (3, 3), mode=Mode.CUDNN_CONVOLUTION),
    "planes, stride": depthwise((2, 3, 17, 24), (3, 3), configuration="PSEUDO_HALF", stride=(2, 2)),
    "planes, 5 x 4": depthwise((2, 2, 12, 13), (5, 4), configuration="DOUBLE", padding=(2, 3), stride=(1, 2)),
    "channels": depthwise((2, 70, 13, 12), (3, 3), configuration="PSEUDO_HALF", formats=NHWC, beta=-2.0),
    "odd channels": depthwise((2, 9, 6, 7), (3, 2), formats=NHWC, padding=(0, 0)),
    "channels, stride": depthwise((2, 24, 12, 9), (3, 3), configuration="PSEUDO_BFLOAT16", formats=NHWC, stride=(2, 1)),
    "channels, 7 x 7": depthwise((1, 6, 9, 9), (7, 7), formats=NHWC, padding=(3, 3), stride=(2, 2)),
    "one row": depthwise((5, 3, 1, 6), (1, 3), padding=(0, 1)),
}


@pytest.mark.parametrize("multiprocessors", [1, 7])
@pytest.mark.parametrize("name", OF_CHANNELS)
def test_depthwise(seven_multiprocessors, monkeypatch, name, multiprocessors):
    monkeypatch.setattr(seven_multiprocessors.device, "multiprocessors", multiprocessors)
    check(seven_multiprocessors, OF_CHANNELS[name])
    assert check(seven_multiprocessors, OF_CHANNELS[name], shift=1).solver == DEPTHWISE
    check(seven_multiprocessors, replace(OF_CHANNELS[name], beta=0.5), inputs="special")
