"""Tests depthwise convolution on the emulated device: partial tiles, padding, gaps, and the widest possible vectors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from convolution_operations import check as run
from convolution_operations import family_of
from dualdnn.accelerated import AcceleratedBackend
from dualdnn.accelerated.convolution.depthwise import depthwise as convolution_depthwise
from dualdnn.accelerated.solver import possible_solvers
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnConvolutionMode_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnReorderType_t,
)
from dualdnn.api.operations import (
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    ConvolutionSpec,
    FilterSpec,
    TensorSpec,
)
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, NCHW, NHWC, ActivationSpec

CROSS, MIRRORED = cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, cudnnConvolutionMode_t.CUDNN_CONVOLUTION


@pytest.fixture(params=(0, 7), ids=lambda seed: f"thread order {seed}")
def backend(request, monkeypatch):
    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made.device, "seed", request.param)
    return made


def depthwise(channels, size, window=3, *, images=1, data_type=HALF, layout=NHWC, stride=1, padding=1, mode=CROSS):
    compute = DOUBLE if data_type == DOUBLE else FLOAT
    spec = ConvolutionSpec(
        mode, compute, (padding, padding), (stride, stride), (1, 1), channels, cudnnMathType_t.CUDNN_FMA_MATH,
        cudnnReorderType_t.CUDNN_DEFAULT_REORDER,
    )  # fmt: skip
    x, w = (images, channels, *size), FilterSpec(data_type, layout, (channels, 1, window, window))
    return ConvolutionForward(
        spec, cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, 0, 1.0, 0.0,
        TensorSpec.packed(data_type, x, layout), w, TensorSpec.packed(data_type, spec.output_dims(x, w.dims), layout),
    )  # fmt: skip


def fused(operation, alpha2=0.5):
    o = operation
    relu = ActivationSpec(
        cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0
    )
    bias = TensorSpec.packed(o.x.data_type, (1, o.x.dims[1], 1, 1))
    return ConvolutionBiasActivationForward(o.convolution, relu, o.algo, 0, -1.5, alpha2, o.x, o.w, o.y, bias, o.y)


def gapped(tensor, **steps):
    """Return the tensor with other strides along the named axes (n, c, h, w)."""
    return replace(tensor, strides=tuple(steps.get(axis, s) for axis, s in zip("nchw", tensor.strides, strict=True)))


def check(backend, operation, inputs="normal", shifted=None):
    """Run and judge every depthwise solver that can serve; the operand ``shifted`` begins one element later."""
    names = [name for name in possible_solvers(operation, backend.device) if "depthwise" in name]
    for name in names:
        plan = run(backend, operation, name, inputs=inputs, shift=int(shifted is not None), shifted=shifted)
        assert len(plan.steps) == 1
    return names


def preferred(operation):
    """Return the name of the solver that serves unless another one is forced."""
    return (
        family_of(operation)
        .solver(family_of(operation).problem(operation, Recorder()))
        .name.removeprefix("convolution.")
    )


GEOMETRIES = {
    "several tiles": depthwise(8, (33, 9), images=2),
    "channels in blocks": depthwise(264, (5, 3)),
    "channels in blocks, float": depthwise(132, (3, 4), data_type=FLOAT),
    "odd channels": depthwise(37, (3, 4)),
    "tiles in the padding": depthwise(4, (20, 20), padding=12),
    "a row less than the window": depthwise(8, (2, 2)),
    "no padding": depthwise(8, (6, 7), padding=0),
    "windows in the padding": depthwise(8, (4, 5), padding=3),
    "stride 2": depthwise(8, (35, 10), stride=2),
    "5 x 5": depthwise(4, (19, 6), 5, padding=2, data_type=BFLOAT16),
    "5 x 5, stride 2": depthwise(4, (19, 6), 5, padding=1, stride=2),
    "7 x 7": depthwise(4, (17, 9), 7, padding=3),
    "7 x 7, double": depthwise(2, (9, 9), 7, padding=3, data_type=DOUBLE),
    "mirrored": depthwise(4, (6, 7), mode=MIRRORED),
    "gaps": (lambda o: replace(o, x=gapped(o.x, n=600, h=72, w=10)))(depthwise(8, (6, 7))),
    "vectors, several tiles": depthwise(4, (33, 9), images=2, data_type=FLOAT),
    "vectors, wide": depthwise(72, (3, 150), images=2),
    "vectors, wide, stride 2": depthwise(64, (7, 131), stride=2, data_type=FLOAT),
    "vectors, 5 x 5, wide": depthwise(24, (9, 70), 5, padding=2),
    "vectors, 5 x 5, stride 2": depthwise(8, (19, 6), 5, padding=1, stride=2, data_type=FLOAT),
    "vectors, 7 x 7": depthwise(136, (17, 9), 7, padding=3, data_type=BFLOAT16),
    "vectors, 7 x 7, stride 2": depthwise(4, (17, 9), 7, padding=3, stride=2, data_type=FLOAT),
    "vectors, mirrored": depthwise(16, (6, 7), mode=MIRRORED),
    "vectors, tiles in the padding": depthwise(8, (20, 20), padding=12),
    "vectors, gaps": (lambda o: replace(o, x=gapped(o.x, n=960, h=128, w=16), y=gapped(o.y, n=500, h=72, w=10)))(
        depthwise(8, (6, 7))
    ),
    "planes, several tiles": depthwise(3, (33, 24), images=2, layout=NCHW),
    "planes, odd rows": depthwise(3, (7, 7), layout=NCHW),
    "planes, pairs": depthwise(3, (14, 14), layout=NCHW),
    "planes, long rows": depthwise(2, (3, 45), layout=NCHW, data_type=BFLOAT16),
    "planes, no padding": depthwise(2, (6, 16), layout=NCHW, padding=0),
    "planes, padding on the left": depthwise(2, (6, 16), layout=NCHW, padding=2),
    "planes, stride 2": depthwise(2, (9, 32), layout=NCHW, stride=2),
    "planes, stride 2, odd": depthwise(2, (9, 11), layout=NCHW, stride=2, data_type=FLOAT),
    "planes, 5 x 5": depthwise(2, (19, 16), 5, layout=NCHW, padding=2, data_type=FLOAT),
    "planes, 5 x 5, stride 2": depthwise(2, (19, 16), 5, layout=NCHW, padding=2, stride=2),
    "planes, 7 x 7": depthwise(2, (17, 12), 7, layout=NCHW, padding=3),
    "planes, mirrored": depthwise(2, (6, 8), layout=NCHW, mode=MIRRORED),
    "planes, gaps behind odd rows": (lambda o: replace(o, x=gapped(o.x, n=96, c=48, h=8)))(
        depthwise(2, (6, 7), layout=NCHW)
    ),
    "planes, gaps": (lambda o: replace(o, y=gapped(o.y, n=200, c=100, h=11)))(depthwise(2, (6, 8), layout=NCHW)),
}


@pytest.mark.parametrize("operation", GEOMETRIES.values(), ids=GEOMETRIES)
def test_thread_tiles(backend, operation):
    check(backend, replace(operation, alpha=-1.5, beta=0.5))
    check(backend, operation)


@pytest.mark.parametrize("layout", (NCHW, NHWC), ids=("NCHW", "NHWC"))
@pytest.mark.parametrize("channels", (12, 16))
def test_bias_and_activation(backend, layout, channels):
    operation = depthwise(channels, (9, 10), layout=layout)
    for alpha2 in (0.5, 0.0):
        check(backend, fused(operation, alpha2))


@pytest.mark.parametrize("name", ("x", "w", "y", "z", "bias"))
@pytest.mark.parametrize("layout", (NCHW, NHWC), ids=("NCHW", "NHWC"))
@pytest.mark.parametrize("channels", (12, 16))
def test_any_operand_may_begin_at_any_element(backend, layout, channels, name):
    check(backend, fused(depthwise(channels, (9, 10), layout=layout)), shifted=name)


@pytest.mark.parametrize("layout", (NCHW, NHWC), ids=("NCHW", "NHWC"))
@pytest.mark.parametrize("channels", (12, 16))
def test_padding_times_infinity_or_nan_is_nan(backend, layout, channels):
    """Padding is zero, so an infinite or NaN filter tap in the padding makes the result NaN."""
    inputs = {"x": "normal", "w": "special", "y": "normal"}
    check(backend, depthwise(channels, (5, 4), layout=layout), inputs=inputs)


def test_nan_outside_of_windows_changes_no_result(backend):
    """NaN must not spread to other channels, nor from rows and columns that the stride skips."""
    for data_type in (HALF, FLOAT):
        operation = depthwise(72, (35, 16), stride=2, padding=0, data_type=data_type)
        check(backend, operation, inputs={"x": "special", "w": "normal", "y": "normal"})


def test_window_and_layout_decide_the_preferred_solver():
    """Thread tiles serve windows with a kernel of their size, and one kernel serves all other windows."""
    planes = depthwise(2, (4, 8), layout=NCHW)
    for operation in (depthwise(40, (6, 7)), depthwise(12, (6, 7)), depthwise(8, (6, 7), data_type=DOUBLE), planes):
        assert preferred(operation) == "depthwise"
    large = depthwise(8, (400, 300))
    mixed = replace(large, y=TensorSpec.packed(HALF, large.y.dims, NCHW))
    far = depthwise(2, (400, 300), layout=NCHW, padding=3)
    for operation in (far, mixed, depthwise(8, (400, 300), 4)):
        assert preferred(operation) == "depthwise_windows"


WINDOWS = {
    "4 x 4": {"taps": (4, 4), "padding": (2, 2)},
    "a row": {"taps": (1, 31), "padding": (0, 15)},
    "a column": {"taps": (9, 1), "padding": (4, 0), "stride": (7, 1)},
    "patches": {"taps": (4, 4), "padding": (0, 0), "stride": (4, 4)},
    "dilated": {"taps": (3, 5), "padding": (2, 6), "dilation": (2, 3)},
    "stride and dilation": {"taps": (3, 3), "padding": (3, 4), "stride": (2, 3), "dilation": (3, 2)},
    "more dilation than columns": {"taps": (1, 3), "padding": (0, 20), "dilation": (1, 20)},
}


@pytest.mark.parametrize("solver", ("grouped", "depthwise_windows"))
@pytest.mark.parametrize("data_type", (HALF, FLOAT, DOUBLE), ids=lambda t: t.name)
@pytest.mark.parametrize("layout", (NCHW, NHWC), ids=lambda t: t.name)
def test_any_window(backend, data_type, layout, solver):
    """A thread computes up to four channels; six channels leave vectors of two, or a lane with two."""
    for window in WINDOWS.values():
        options = dict(window)
        made = depthwise(6, (13, 19), data_type=data_type, layout=layout)
        spec = replace(
            made.convolution,
            **{"stride": (1, 1), "dilation": (1, 1)} | {k: v for k, v in options.items() if k != "taps"},
        )
        w = replace(made.w, dims=(6, 1, *options["taps"]))
        y = TensorSpec.packed(data_type, spec.output_dims(made.x.dims, w.dims), layout)
        run(backend, replace(made, convolution=spec, w=w, y=y), f"convolution.{solver}")


@pytest.mark.parametrize("layout", (NCHW, NHWC), ids=lambda t: t.name)
def test_a_channel_may_have_several_filters(backend, layout):
    made = depthwise(6, (9, 10), layout=layout, mode=MIRRORED)
    w = replace(made.w, dims=(18, 1, 3, 3))
    y = TensorSpec.packed(HALF, made.convolution.output_dims(made.x.dims, w.dims), layout)
    run(backend, replace(made, w=w, y=y, alpha=-1.5, beta=0.5), "convolution.depthwise_windows")


class Recorder:
    """Stands in for a device and records the definitions of the requested kernel."""

    kind, multiprocessors = "emulated", 132

    def function(self, source, name, definitions):
        self.definitions = {key: value for key, value in definitions if value.isdigit()}


def chosen(operation, solver="convolution.depthwise"):
    device = Recorder()
    problem = family_of(operation).problem(operation, device)
    (launch,) = family_of(operation).solver(problem, solver).launches(problem)
    return {key: int(value) for key, value in device.definitions.items()}, launch


@pytest.mark.parametrize(
    "width, data_type, stride, expected",
    [
        (56, HALF, 1, (8, 8, 8)), (28, HALF, 1, (8, 4, 4)), (14, HALF, 1, (8, 2, 2)), (7, HALF, 1, (7, 1, 1)),
        (56, FLOAT, 1, (4, 4, 4)), (56, DOUBLE, 1, (2, 2, 2)), (112, HALF, 2, (4, 8, 4)), (56, FLOAT, 2, (2, 4, 2)),
    ],
)  # fmt: skip
def test_vectors_of_rows(width, data_type, stride, expected):
    """Rows of 56 halves move in 16-byte vectors; rows of 7 move element by element."""
    found, _ = chosen(depthwise(4, (width, width), layout=NCHW, data_type=data_type, stride=stride))
    assert (found["COLUMNS"], found["X_VECTOR"], found["Y_VECTOR"]) == expected


def test_vectors_of_channels():
    def channels(count, data_type=HALF, **steps):
        operation = depthwise(count, (6, 7), data_type=data_type)
        return chosen(replace(operation, x=gapped(operation.x, **steps)))[0]["CHANNELS"]

    assert [channels(count) for count in (12, 6, 5)] == [4, 2, 1]
    assert [channels(6, data_type) for data_type in (FLOAT, DOUBLE)] == [2, 1]
    assert (
        channels(8, w=12, h=84, n=840) == 4
        and channels(8, w=10, h=80, n=800) == 2
        and channels(8, w=9, h=90, n=900) == 1
    )


def test_every_row_has_a_tile_and_large_tensors_long_ones():
    for height in range(1, 120):
        for threads in (1, 10**5, 10**7):
            rows = convolution_depthwise._tile_rows(height, threads)
            row_tiles = -(-height // rows)
            assert 1 <= rows < convolution_depthwise.ROWS.stop and row_tiles * rows >= height > (row_tiles - 1) * rows
    assert convolution_depthwise._tile_rows(56, 10**7) == 14 and convolution_depthwise._tile_rows(14, 1) == 7
