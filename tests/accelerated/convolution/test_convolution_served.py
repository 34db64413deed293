"""Tests which solver serves a forward convolution on the emulated device, in several thread orders, at any alignment.

The documented behaviour is judged in conformance/cases.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from convolution_operations import (
    EXPLICIT,
    FFT,
    FFT_TILING,
    FMA,
    IMPLICIT,
    NONFUSED,
    PRECOMPUTED,
    UNALIGNED,
    WINOGRAD,
    backwards,
    check,
    convolution,
    family_of,
    kernels,
)
from dualdnn.accelerated import AcceleratedBackend
from dualdnn.accelerated.convolution.forward import ConvolutionProblem
from dualdnn.accelerated.convolution.problem import describe, in_words, m_in_vectors, mark_vectors
from dualdnn.accelerated.runtime.errors import DeviceError
from dualdnn.accelerated.runtime.listing import Listing
from dualdnn.accelerated.solver import plan_by, possible_solvers
from dualdnn.api.enumerations import cudnnMathType_t
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, NCHW, NHWC, UINT8
from dualdnn.conformance.cases.convolution.convolution_backward_data import gradient
from dualdnn.conformance.kernels import build_ahead
from dualdnn.conformance.trial import prepare


@pytest.fixture(params=(0, 1, 7), ids=lambda seed: f"thread order {seed}")
def backend(request, monkeypatch):
    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made.device, "seed", request.param)
    return made


SMALL = (2, 3, 6, 7)
IMAGE = (1, 64, 5, 6)  # 64 channels x 9 taps have more K-blocks than the kernels have stages.
VOLUME = (1, 64, 3, 5, 6)
SERVED = {
    "few filters": (convolution(IMPLICIT, SMALL, 5, (3, 3), math=FMA), "grouped"),
    "some filters": (convolution(IMPLICIT, (1, 3, 6, 7), 20, (3, 3), math=FMA), "implicit_gemm_fp32_"),
    "some filters, many pixels": (convolution(IMPLICIT, SMALL, 20, (3, 3), math=FMA), "implicit_gemm_fp32_"),
    "many filters": (convolution(IMPLICIT, SMALL, 200, (3, 3), math=FMA), "implicit_gemm_fp32_"),
    "many taps": (convolution(IMPLICIT, (2, 3, 4, 33), 20, (2, 31), padding=1, math=FMA), "implicit_gemm_64x64"),
    "channels last": (convolution(IMPLICIT, (2, 8, 8, 8), 200, (3, 3), layout=NHWC, math=FMA), "implicit_gemm_fp32_"),
    "channels last, few pixels": (
        convolution(IMPLICIT, (2, 20, 5, 5), 70, (3, 3), layout=NHWC, math=FMA), "implicit_gemm_fp32_"
    ),
    "channels last, half": (convolution(IMPLICIT, (2, 16, 8, 8), 200, (3, 3), layout=NHWC, data_type=HALF, math=FMA), "implicit_gemm_64x128"),
    "planes": (convolution(PRECOMPUTED, (2, 20, 8, 8), 20, (1, 1), padding=0, math=FMA), "implicit_gemm_fp32_"),
    "planes, half": (convolution(IMPLICIT, (1, 5, 4, 6), 20, (1, 1), padding=0, data_type=HALF, math=FMA), "implicit_gemm_64x64"),
    "planes, double": (convolution(PRECOMPUTED, (2, 5, 3, 6), 5, (1, 1), padding=0, data_type=DOUBLE), "tiny"),
    "double": (convolution(IMPLICIT, SMALL, 130, (3, 3), data_type=DOUBLE), "implicit_gemm_64x64"),
    "words": (convolution(IMPLICIT, (2, 8, 8, 8), 200, (3, 3), data_type=INT8, layout=NHWC), "implicit_gemm_64x128"),
    "unsigned words": (convolution(IMPLICIT, (2, 8, 5, 5), 8, (3, 3), data_type=UINT8, layout=NHWC), "implicit_gemm_16x256"),
    "bytes": (convolution(IMPLICIT, (2, 8, 5, 5), 72, (3, 3), data_type=UINT8, layout=NHWC, groups=4), "implicit_gemm_64x64"),
    "half": (convolution(IMPLICIT, IMAGE, 40, (3, 3), data_type=HALF, layout=NHWC), "implicit_gemm_tma_"),
    "half, many filters": (convolution(IMPLICIT, IMAGE, 256, (3, 3), data_type=HALF, layout=NHWC), "implicit_gemm_tma_"),
    "half, volume, 64 filters": (convolution(IMPLICIT, VOLUME, 40, (3, 3, 3), data_type=HALF, layout=NHWC), "implicit_gemm_tma"),
    "half, volume, 128 filters": (convolution(IMPLICIT, VOLUME, 72, (1, 1, 1), data_type=HALF, layout=NHWC), "implicit_gemm_tma"),
    "half, planes": (convolution(IMPLICIT, IMAGE, 40, (3, 3), data_type=HALF), "implicit_gemm_mma_64"),
    "half, planes, many": (convolution(IMPLICIT, IMAGE, 72, (3, 3), data_type=HALF), "implicit_gemm_mma_128"),
    "TF32": (convolution(IMPLICIT, IMAGE, 72, (3, 3), layout=NHWC, result=NCHW), "implicit_gemm_tma_"),
    "TF32, volume": (convolution(IMPLICIT, VOLUME, 72, (3, 3, 3), layout=NHWC, result=NCHW), "implicit_gemm_tma"),
    "TF32, planes": (convolution(IMPLICIT, IMAGE, 40, (3, 3)), "implicit_gemm_fp32_"),
    "copies": (convolution(PRECOMPUTED, (1, 12, 6, 7), 40, (3, 3), data_type=HALF), "pack_nhwc"),
    "copies, TF32": (convolution(PRECOMPUTED, (1, 20, 6, 7), 40, (3, 3), groups=2), "pack_nhwc"),
    "copy of the filter": (
        convolution(PRECOMPUTED, (1, 16, 6, 7), 24, (3, 3), layout=NHWC, filter_layout=NCHW), "pack_nhwc"
    ),
    "few channels": (convolution(PRECOMPUTED, (2, 3, 9, 17), 40, (7, 7), data_type=HALF, stride=2), "small_channels_64"),
    "few channels, odd distances": (
        convolution(IMPLICIT, (2, 1, 9, 8), 21, (3, 3), data_type=HALF, layout=NHWC), "small_channels_32"
    ),
    "few channels, odd distances, planes": (
        convolution(IMPLICIT, (2, 3, 9, 8), 72, (3, 3), data_type=BFLOAT16), "small_channels_64"
    ),
    "few channels, TF32": (
        convolution(PRECOMPUTED, (1, 6, 9, 8), 72, (3, 5), layout=NHWC, filter_layout=NCHW, groups=2, dilation=2),
        "small_channels_64",
    ),
    "few channels, TF32, planes": (convolution(IMPLICIT, (1, 3, 9, 8), 8, (3, 3)), "small_channels_32"),
    "few channels, volume": (
        convolution(PRECOMPUTED, (1, 4, 5, 4, 6), 20, (2, 3, 2), data_type=HALF, layout=NHWC, groups=2), "small_channels_32"
    ),
    "few channels, one tap": (convolution(PRECOMPUTED, SMALL, 40, (1, 1), data_type=HALF), "small_channels_64"),
    "few channels, filters too large": (
        convolution(IMPLICIT, (1, 3, 40, 40), 40, (37, 40), data_type=HALF, padding=0), "implicit_gemm_mma_64"
    ),
    "channels that do not fill rows": (convolution(IMPLICIT, (1, 24, 9, 8), 24, (3, 3), data_type=HALF, layout=NHWC), "small_channels_32"),
    "depthwise, planes": (convolution(IMPLICIT, (2, 6, 9, 7), 6, (3, 3), groups=6), "depthwise"),
    "depthwise, stride 2": (convolution(IMPLICIT, (2, 6, 9, 7), 6, (3, 3), groups=6, stride=2), "depthwise"),
    "depthwise, channels": (
        convolution(IMPLICIT, (2, 6, 9, 7), 6, (3, 3), groups=6, data_type=HALF, layout=NHWC), "depthwise"
    ),
    "depthwise, dilated": (
        convolution(PRECOMPUTED, (2, 8, 9, 7), 8, (3, 3), groups=8, layout=NHWC, filter_layout=NHWC, dilation=2),
        "depthwise_windows",
    ),
    "depthwise, volume": (convolution(IMPLICIT, (1, 4, 4, 5, 6), 4, (2, 3, 3), groups=4), "depthwise_windows"),
    "explicit": (convolution(EXPLICIT, SMALL, 5, (3, 3), math=FMA), "im2col_gemm"),
    "transform": (convolution(FFT, SMALL, 5, (3, 3), math=FMA), "fft"),
    "Winograd": (convolution(WINOGRAD, (1, 9, 7, 6), 34, (3, 3), math=FMA), "winograd_nonfused"),
    "Winograd, nonfused 3 x 3": (convolution(NONFUSED, SMALL, 5, (3, 3), math=FMA), "winograd_nonfused"),
    "Winograd, nonfused 5 x 5": (convolution(NONFUSED, SMALL, 5, (5, 5), padding=2, math=FMA), "winograd_nonfused"),
}  # fmt: skip


# Each entry has images, channels, extent, filters and taps, and whether the channels fill rows of TMA.
CHANNELS = {
    (16, 24, 112, 24, 3): False,
    (64, 16, 112, 96, 1): False,
    (64, 116, 28, 116, 1): False,
    (64, 58, 28, 58, 1): False,
    (64, 64, 56, 64, 1): True,
    (64, 128, 28, 128, 3): True,
}


@pytest.mark.parametrize("layer, fill", CHANNELS.items())
def test_channels_that_do_not_fill_rows_have_their_own_kernels(layer, fill):
    """On a GPU of 132 multiprocessors, TMA serves the channels that fill its rows, forward and in data gradients."""

    class Gpu(Listing):
        architecture, kind, multiprocessors, shared_bytes_per_block = "sm_90", "gpu", 132, 232448

    images, channels, extent, filters, taps = layer
    device, window = Gpu(AcceleratedBackend("emulated").device), (taps, taps)
    forward = convolution(
        IMPLICIT, (images, channels, extent, extent), filters, window, data_type=HALF, layout=NHWC, padding=taps // 2
    )
    backward = gradient(
        forward.x.dims,
        forward.w.dims,
        configuration="PSEUDO_HALF",
        formats=NHWC,
        padding=(taps // 2,) * 2,
        math_type=cudnnMathType_t.CUDNN_DEFAULT_MATH,
    )
    names = [family_of(each).solver(family_of(each).problem(each, device)).name for each in (forward, backward)]
    own = "convolution.small_channels_", "convolution.data_gradient_few_channels"
    assert [name.startswith(own) for name in names] == [not fill] * 2, names


@pytest.mark.parametrize("operation, solver", SERVED.values(), ids=SERVED)
def test_the_intended_solver_serves(backend, operation, solver):
    plan = check(backend, replace(operation, beta=0.5))
    assert plan.solver.startswith(f"convolution.{solver}")


@pytest.mark.parametrize("operation, solver", SERVED.values(), ids=SERVED)
def test_operands_may_begin_at_any_element(backend, operation, solver):
    assert check(backend, operation, shift=UNALIGNED).solver.startswith(f"convolution.{solver}")


@pytest.mark.long  # Each case runs all possible solvers, which the suite also runs on other operations.
@pytest.mark.parametrize("operation, solver", SERVED.values(), ids=SERVED)
def test_every_solver_that_can_serve_is_correct(operation, solver):
    """Every solver that claims to serve an operation computes it correctly, preferred or not."""
    backend = AcceleratedBackend("emulated")
    names = possible_solvers(operation, backend.device)
    assert any(name.startswith(f"convolution.{solver}") for name in names)
    scaled, blended = replace(operation, alpha=-1.75), replace(operation, alpha=-1.75, beta=0.5)
    blending = possible_solvers(blended, backend.device)
    for name in names:
        check(backend, blended if name in blending else scaled, name)


@pytest.fixture(scope="module")
def wanted(listed):
    return set(listed.wanted)


@pytest.mark.parametrize("operation", [operation for operation, _ in SERVED.values()], ids=SERVED)
def test_preferred_kernels_are_built_ahead(wanted, operation):
    """Every preferred kernel is built ahead, except depthwise kernels, which are compiled for one shape each."""
    device = AcceleratedBackend("emulated").device
    listing = build_ahead.Listing(device)
    plan = build_ahead.plan(replace(operation, workspace_bytes=build_ahead.workspace_bytes(operation, device)), listing)
    specialised = plan.solver == "convolution.depthwise"
    assert all(map(build_ahead.takes_any_shape, listing.modules)) == (not specialised)
    assert set(filter(build_ahead.takes_any_shape, listing.modules)) <= wanted


TINY = (1, 8, 6, 6)
SMALL_PRODUCTS = {
    "float": convolution(IMPLICIT, TINY, 8, (3, 3), math=FMA),
    "TF32, channels last": convolution(IMPLICIT, TINY, 8, (3, 3), layout=NHWC, blend=(0.5, -2.0)),
    "half, backwards": backwards(convolution(IMPLICIT, TINY, 5, (3, 2), data_type=HALF, layout=NHWC, result=NCHW, stride=2)),
    "bfloat16, groups": convolution(IMPLICIT, TINY, 6, (3, 3), data_type=BFLOAT16, groups=2, dilation=2),
    "double, volume": convolution(IMPLICIT, (2, 2, 3, 4, 3), 3, (2, 3, 2), data_type=DOUBLE, blend=(1.0, 1.0)),
    "one term": convolution(IMPLICIT, (3, 1, 5, 5), 3, (1, 1), padding=0),
    "many terms": convolution(IMPLICIT, (1, 40, 3, 3), 5, (3, 3), data_type=HALF, padding=0),
}  # fmt: skip


@pytest.mark.parametrize("shift", [0, UNALIGNED])
@pytest.mark.parametrize("operation", SMALL_PRODUCTS.values(), ids=SMALL_PRODUCTS)
def test_lanes_that_share_an_output(backend, operation, shift):
    assert kernels(check(backend, operation, "convolution.tiny", shift=shift)) == ["convolution_tiny"]


def test_terms_that_cancel_keep_the_digits_of_their_difference(backend):
    """The tiny kernel rounds the exact sum once; adding in float would lose the digits if large terms cancel."""
    operation = convolution(IMPLICIT, (1, 27, 3, 3), 4, (3, 3), math=FMA, padding=0)
    before = prepare(operation, "normal", 0)
    operands = [backend.to_device(before[name]) if before[name].size else None for name in operation.operands]
    plan_by(operation, backend.device, "convolution.tiny")(operands, None)
    x, w = (before[name].view(np.float32).astype(np.float64).reshape(-1, 27 * 9) for name in ("x", "w"))
    exact, got = (x * w).sum(axis=1), operands[2].to_host(np.float32, 4)
    assert np.abs(x * w).sum() > 50 * np.abs(exact).min()
    assert np.array_equal(got, exact.astype(np.float32))


def test_few_products_are_preferred_where_the_device_has_a_thread_for_each(backend, monkeypatch):
    served = set()
    for multiprocessors in (1, 16):
        monkeypatch.setattr(backend.device, "multiprocessors", multiprocessors)
        served.add(check(backend, SMALL_PRODUCTS["float"]).solver == "convolution.tiny")
    assert served == {False, True}


def test_several_filters_per_channel_use_only_the_windows_kernel(backend):
    operation = convolution(IMPLICIT, (2, 6, 9, 7), 12, (3, 3), groups=6)
    names = [name for name in possible_solvers(operation, backend.device) if "depthwise" in name]
    assert names == ["convolution.depthwise_windows"]  # It lets several channels of y have the same channel of x.


@pytest.mark.parametrize(
    "operation",
    [
        convolution(EXPLICIT, (3, 3, 9, 11), 5, (3, 3), stride=2),
        convolution(EXPLICIT, (3, 24, 19, 23), 5, (3, 3), math=FMA),
        convolution(FFT_TILING, (7, 4, 90, 70), 4, (3, 3), groups=2),
        convolution(NONFUSED, (3, 4, 9, 7), 4, (3, 3), layout=NCHW),
        convolution(NONFUSED, (3, 40, 98, 97), 4, (3, 3), layout=NCHW),
    ],
    ids=["GEMM of one slice", "GEMM", "FFT_TILING", "WINOGRAD_NONFUSED of one slice", "WINOGRAD_NONFUSED"],
)
def test_large_images_go_slice_by_slice(operation, request):
    """On few multiprocessors the workspace holds fewer images at a time, so there are more launches."""
    plans = []
    for multiprocessors in (1, 132):
        backend = AcceleratedBackend("emulated")
        problem = ConvolutionProblem(operation, SimpleDevice(backend.device, multiprocessors))
        plans.append(check(backend, operation, problem=problem))
    one_slice = "one slice" in request.node.name
    assert (len(plans[0].steps) == len(plans[1].steps)) == one_slice


class SimpleDevice:
    """Stands in for a device with another number of multiprocessors."""

    def __init__(self, device, multiprocessors):
        self.device, self.multiprocessors = device, multiprocessors

    def __getattr__(self, name):
        return getattr(self.device, name)


@pytest.mark.parametrize("algo", [IMPLICIT, PRECOMPUTED])
@pytest.mark.parametrize("groups", [1, 2])
def test_images_beyond_32_bits(backend, algo, groups):
    """A tensor whose offsets exceed 32 bits is split into several launches; a single image that large is refused."""
    operation = convolution(algo, (5, 8 * groups, 6, 7), 5 * groups, (3, 3), data_type=INT8, layout=NHWC, groups=groups)
    plan = check(backend, operation)
    image = 6 * 7 * 2 * groups  # words per image, of four channels each
    # The limit allows two images per launch.
    problem = ConvolutionProblem(operation, backend.device, farthest=2 * image - 1)
    assert len(check(backend, operation, problem=problem).steps) == len(plan.steps) + 2
    problem = ConvolutionProblem(operation, backend.device, farthest=image - 2 * groups)
    with pytest.raises(DeviceError, match="an image of x spans"):
        check(backend, operation, problem=problem)


def test_vectors_and_words_need_every_stride_to_be_a_multiple():
    def described(channels, groups=1, layout=NHWC, data_type=HALF, gap=0):
        operation = convolution(
            IMPLICIT, (1, channels, 5, 5), 4, (3, 3), data_type=data_type, layout=layout, groups=groups
        )
        x = replace(operation.x, strides=tuple(s + gap * (s > 1) for s in operation.x.strides))
        return describe(operation.convolution, x, operation.w, operation.y.dims)

    def vectors(element_bytes, groups=1, **options):
        return bool(mark_vectors(described(groups=groups, **options), groups, element_bytes).x_vectors)

    assert vectors(2, channels=16) and vectors(4, channels=12, data_type=FLOAT)
    assert (
        not vectors(2, channels=12) and not vectors(2, channels=16, layout=NCHW) and not vectors(2, channels=16, gap=4)
    )
    assert vectors(2, channels=16, groups=2) and not vectors(2, channels=24, groups=2)
    assert in_words(described(8, data_type=INT8), 1)
    assert not in_words(described(8, data_type=INT8, groups=4), 4)
    assert not in_words(described(8, data_type=INT8, gap=2), 1)


def test_nchw_pixels_form_vectors_if_strides_are_contiguous():
    def neighbours(x=(2, 3, 4, 6), taps=(1, 1), width=4, transposed=False, groups=1, **options):
        operation = convolution(IMPLICIT, x, 6, taps, groups=groups, **{"padding": 0, **options})
        strides = (*operation.x.strides[:2], 1, x[2]) if transposed else operation.x.strides
        value = describe(operation.convolution, replace(operation.x, strides=strides), operation.w, operation.y.dims)
        return m_in_vectors(value, groups, width)

    assert neighbours() and neighbours(width=8) and neighbours(x=(2, 6, 2, 2), groups=2)
    assert neighbours(x=(1, 3, 1, 8)) and neighbours(x=(2, 4, 3, 4, 3), taps=(1, 1, 1))
    assert not neighbours(width=16) and not neighbours(x=(2, 3, 5, 6)) and not neighbours(x=(1, 3, 5, 6))
    assert not neighbours(stride=2) and not neighbours(taps=(3, 3), padding=1) and not neighbours(padding=1)
    assert not neighbours(layout=NHWC) and not neighbours(transposed=True) and not neighbours(width=0)
