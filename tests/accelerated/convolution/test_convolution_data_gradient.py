"""Tests data gradients of convolutions on the emulated device: strides, NCHW and NHWC, groups."""

from __future__ import annotations

import pytest
from convolution_operations import UNALIGNED, check, kernels
from dualdnn.accelerated import AcceleratedBackend
from dualdnn.accelerated.convolution.implicit_gemm import tma
from dualdnn.api.enumerations import cudnnConvolutionMode_t as Mode
from dualdnn.api.enumerations import cudnnMathType_t
from dualdnn.api.operations.specs import NCHW, NHWC
from dualdnn.conformance.cases.convolution.convolution_backward_data import gradient

DEFAULT = cudnnMathType_t.CUDNN_DEFAULT_MATH


def on_tensor_cores(dx, w, configuration="PSEUDO_HALF", formats=NHWC, **options):
    return gradient(dx, w, configuration=configuration, formats=formats, math_type=DEFAULT, **options)


# Each entry has a gradient, its number of TMA-fed products, and its number of copies (of w, dy and dx).
GRADIENTS = {
    "stride": (on_tensor_cores((2, 40, 10, 8), (64, 40, 3, 3), stride=(2, 2)), 1, 0),
    "stride, rows of four": (on_tensor_cores((3, 72, 6, 16), (136, 72, 3, 3), stride=(2, 2), alpha=-1.5), 1, 0),
    "stride, blended": (on_tensor_cores((2, 72, 6, 16), (64, 72, 3, 3), stride=(2, 2), beta=0.5), 1, 0),
    "stride, rows of eight": (on_tensor_cores((2, 36, 8, 16), (64, 36, 3, 3), "FLOAT", stride=(2, 2)), 1, 1),
    "stride, odd sizes": (on_tensor_cores((2, 40, 9, 11), (64, 40, 3, 2), stride=(2, 2), padding=(2, 1)), 1, 0),
    "stride and dilation": (
        on_tensor_cores(
            (2, 40, 9, 11), (72, 40, 3, 3), "PSEUDO_BFLOAT16", stride=(3, 1), dilation=(2, 2), mode=Mode.CUDNN_CONVOLUTION
        ), 1, 0,
    ),
    "padding beyond the filter": (on_tensor_cores((2, 24, 5, 6), (64, 24, 3, 3), padding=(4, 5), beta=0.5), 1, 0),
    "stride, TF32": (on_tensor_cores((2, 20, 8, 6), (32, 20, 3, 3), "FLOAT", stride=(2, 1)), 1, 1),
    "planes": (on_tensor_cores((2, 40, 8, 16), (64, 40, 3, 3), formats=NCHW), 1, 2),
    "planes, through the workspace": (on_tensor_cores((2, 40, 7, 9), (64, 40, 3, 3), formats=NCHW, alpha=-1.5), 1, 3),
    "planes, blended": (on_tensor_cores((2, 40, 7, 9), (64, 40, 3, 3), formats=NCHW, beta=-2.0), 1, 2),
    "planes, stride": (on_tensor_cores((2, 40, 8, 9), (64, 40, 3, 3), formats=NCHW, stride=(2, 2)), 4, 6),
    "planes, even rows": (on_tensor_cores((2, 40, 8, 8), (64, 40, 3, 3), formats=NCHW, stride=(2, 2)), 1, 3),
    "stride, classes without taps": (on_tensor_cores((2, 40, 8, 8), (64, 40, 1, 2), stride=(2, 2), padding=(0, 1), beta=0.5), 1, 0),
    "planes, groups": (on_tensor_cores((2, 64, 5, 7), (128, 32, 3, 3), formats=NCHW, groups=2), 1, 3),
    "planes, odd filters": (on_tensor_cores((2, 40, 7, 16), (21, 40, 1, 1), formats=NCHW, padding=(0, 0), beta=0.5), 1, 1),
    "planes, odd filters, TF32": (on_tensor_cores((2, 36, 8, 7), (35, 36, 1, 1), "FLOAT", formats=NCHW, padding=(0, 0)), 1, 1),
    "planes, read in place": (on_tensor_cores((2, 136, 7, 8), (32, 136, 1, 1), "FLOAT", formats=NCHW, padding=(0, 0), beta=0.5), 1, 1),
    "planes of odd pixels": (on_tensor_cores((2, 136, 7, 9), (36, 136, 1, 1), "FLOAT", formats=NCHW, padding=(0, 0), beta=-2.0), 1, 1),
    "odd filters": (on_tensor_cores((2, 136, 7, 9), (21, 136, 1, 1), padding=(0, 0), alpha=-1.5), 1, 2),
    "odd filters, stride": (on_tensor_cores((2, 136, 9, 7), (70, 136, 1, 1), padding=(0, 0), stride=(2, 2), beta=0.5), 1, 2),
    "odd filters, several taps": (on_tensor_cores((2, 136, 8, 8), (129, 136, 3, 3)), 1, 5),
    "odd filters, TF32": (on_tensor_cores((2, 136, 7, 9), (35, 136, 1, 1), "FLOAT", padding=(0, 0)), 1, 2),
    "planes, TF32": (on_tensor_cores((2, 20, 7, 5), (32, 20, 3, 3), "FLOAT", formats=NCHW), 1, 3),
    "volumes": (on_tensor_cores((2, 40, 3, 5, 6), (64, 40, 3, 2, 3), mode=Mode.CUDNN_CONVOLUTION), 1, 0),
    "volumes, stride": (on_tensor_cores((2, 40, 4, 5, 6), (64, 40, 3, 3, 2), stride=(2, 1, 2), padding=(1, 1, 0)), 1, 0),
    "few products": (on_tensor_cores((4, 16, 1, 1), (40, 16, 1, 1), padding=(0, 0), beta=0.5), 1, 0),
    "volumes, planes, TF32": (on_tensor_cores((2, 20, 3, 5, 7), (32, 20, 3, 3, 3), "FLOAT", formats=NCHW), 1, 3),
}  # fmt: skip


# These gradients have few channels of dy, or channels that do not fill rows of TMA.
FEW_CHANNELS = {
    "vectors": on_tensor_cores((2, 24, 6, 7), (24, 24, 3, 3), alpha=-1.5, beta=0.5),
    "one tap": on_tensor_cores((2, 58, 3, 5), (58, 58, 1, 1), "PSEUDO_BFLOAT16", padding=(0, 0)),
    "odd channels": on_tensor_cores((1, 20, 5, 6), (9, 20, 3, 2), mode=Mode.CUDNN_CONVOLUTION),
    "stride": on_tensor_cores((2, 20, 7, 8), (18, 20, 3, 3), stride=(2, 2)),
}


@pytest.fixture
def backend(monkeypatch):
    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made.device, "seed", 5)
    monkeypatch.setattr(made.device, "multiprocessors", 2)
    return made


@pytest.mark.parametrize("operation", FEW_CHANNELS.values(), ids=FEW_CHANNELS)
def test_few_channels_take_one_launch_for_each_residue_class(backend, operation):
    """The launches read w in place, and need no workspace."""
    plan = check(backend, operation, only="convolution.data_gradient_few_channels")
    residues = operation.convolution.stride[0] * operation.convolution.stride[1]
    assert len(kernels(plan)) == residues and all("small_channels" in kernel for kernel in kernels(plan))


@pytest.mark.parametrize("name", GRADIENTS)
def test_tma_serves_the_expected_products_and_copies(backend, name):
    operation, products, copies = GRADIENTS[name]
    names = kernels(check(backend, operation, "convolution.data_gradient"))
    assert sum("implicit_gemm_tma" in kernel for kernel in names) == products, names
    assert sum(kernel.startswith("transform") for kernel in names) == copies, names


@pytest.mark.parametrize(
    "name", ["stride", "stride, blended", "stride, odd sizes", "stride, TF32", "volumes, stride", "planes, even rows"]
)
def test_blocks_share_the_filters_of_residue_classes(backend, monkeypatch, name):
    """If adding costs nothing, blocks share the filters of classes of several taps, in the launch of all classes."""
    for constant, value in {
        "ADD_CLOCKS": 0,
        "ADDED_SUMS": 1e9,
        "STREAMED": 1e15,
        "UNDIVIDED": 9.0,
        "MIN_K_BLOCKS": 1,
    }.items():
        monkeypatch.setattr(tma, constant, value)
    monkeypatch.setattr(backend.device, "multiprocessors", 16)
    plan = check(backend, GRADIENTS[name][0], "convolution.data_gradient")
    (launch,) = (launch for launch, _ in plan.steps if "implicit_gemm_tma" in launch.function.name)
    assert launch.scratch_bytes > 0


def test_filters_at_odd_addresses_are_copied(backend):
    """TMA needs 16-byte alignment, so a misaligned w is copied first."""
    operation, *_ = GRADIENTS["stride"]
    check(backend, operation, "convolution.data_gradient", shift=UNALIGNED, shifted="w")


def test_one_launch_clears_pixels_without_taps(backend):
    operation = gradient((2, 8, 9, 11), (16, 8, 1, 1), padding=(0, 0), stride=(2, 2))
    names = kernels(check(backend, operation, "convolution.data_gradient"))
    assert names.count("tensor_arithmetic_set") == 1 and len(names) <= 3, names


def test_patches_are_one_product(backend):
    """If the stride is as large as the filter, all 256 residue classes are one matrix product."""
    operation = gradient((1, 3, 32, 48), (16, 3, 16, 16), padding=(0, 0), stride=(16, 16))
    names = kernels(check(backend, operation, "convolution.data_gradient_folded"))
    assert len(names) == 3 and sum(name.startswith("transform") for name in names) == 2, names


BACKWARDS = Mode.CUDNN_CONVOLUTION
GROUPED = {
    "depthwise": gradient((2, 12, 9, 7), (12, 1, 3, 3), configuration="PSEUDO_HALF", formats=NHWC, stride=(2, 2), groups=12),
    "depthwise, planes": gradient((2, 5, 9, 7), (5, 1, 3, 3), stride=(2, 2), groups=5, beta=0.5, alpha=-1.5),
    "depthwise, dilated": gradient(
        (2, 6, 11, 9), (6, 1, 5, 3), configuration="PSEUDO_BFLOAT16", stride=(3, 1), dilation=(2, 2), groups=6, padding=(3, 0), mode=BACKWARDS
    ),
    "three filters of a channel": gradient((1, 3, 7, 8), (9, 1, 3, 3), formats=NHWC, stride=(2, 2), groups=3),
    "volumes": gradient((1, 4, 4, 5, 6), (8, 1, 3, 2, 3), stride=(1, 2, 2), groups=4, padding=(1, 1, 1)),
    "groups of two": gradient((1, 8, 7, 8), (8, 2, 3, 3), formats=NHWC, stride=(2, 2), groups=4),
    "groups of three": gradient((1, 6, 7, 8), (10, 3, 3, 3), configuration="PSEUDO_HALF", formats=NHWC, stride=(2, 2), groups=2),
    "no groups": gradient((1, 3, 17, 16), (6, 3, 5, 5), stride=(4, 4), padding=(2, 2)),
    "a stride that leaves pixels out": gradient((1, 3, 5, 4), (6, 3, 1, 1), stride=(7, 3), padding=(0, 0), beta=2.0),
    "double": gradient((2, 6, 5, 7), (6, 2, 3, 3), configuration="DOUBLE", stride=(2, 1), groups=3),
}  # fmt: skip


DEPTHWISE = {name: operation for name, operation in GROUPED.items() if name.startswith("depthwise")} | {
    "5 x 5, blended": gradient((1, 36, 11, 9), (36, 1, 5, 5), configuration="PSEUDO_HALF", formats=NHWC, stride=(2, 2), padding=(2, 2), groups=36, beta=0.5),
    "odd channels": gradient((2, 9, 6, 7), (9, 1, 3, 2), formats=NHWC, stride=(2, 1), groups=9, mode=BACKWARDS),
    "a row of taps": gradient((1, 6, 1, 41), (6, 1, 1, 31), configuration="PSEUDO_BFLOAT16", formats=NHWC, padding=(0, 15), groups=6),
    "a column of taps that are a stride apart": gradient((1, 3, 29, 5), (3, 1, 7, 1), stride=(7, 1), padding=(0, 0), groups=3),
    "stride and dilation": gradient((2, 8, 12, 11), (8, 1, 3, 3), formats=NHWC, stride=(2, 2), dilation=(2, 3), padding=(2, 2), groups=8),
    "residues without taps": gradient((1, 4, 7, 8), (4, 1, 2, 1), configuration="DOUBLE", formats=NHWC, stride=(3, 4), padding=(0, 0), groups=4, beta=2.0),
    "volumes": gradient((1, 4, 4, 5, 6), (4, 1, 3, 2, 3), stride=(1, 2, 2), groups=4, padding=(1, 1, 1)),
    "channels of a filter": gradient((2, 12, 9, 8), (3, 4, 4, 4), stride=(4, 4), padding=(0, 0), groups=3),
    "channels of a filter, innermost": gradient((2, 12, 9, 8), (2, 6, 3, 2), configuration="PSEUDO_HALF", formats=NHWC, stride=(2, 1), groups=2, mode=BACKWARDS),
    "more dilation than columns": gradient((1, 4, 3, 5), (4, 1, 1, 3), dilation=(1, 9), padding=(0, 9), groups=4),
}  # fmt: skip


@pytest.mark.parametrize("shifted", (None, "dy", "dx"))
@pytest.mark.parametrize("name", DEPTHWISE)
def test_depthwise_gradients_take_one_launch(backend, name, shifted):
    plan = check(
        backend, DEPTHWISE[name], "convolution.data_gradient_depthwise", shift=int(shifted is not None), shifted=shifted
    )
    assert kernels(plan) == ["convolution_depthwise_windows"]


@pytest.mark.parametrize("operand", ("dy", "w"))
def test_infinity_and_nan_reach_only_pixels_under_their_taps(backend, operand):
    """An infinity or NaN reaches the pixels under its taps and no others, and meets the zeros around dy."""
    for name in ("depthwise", "stride and dilation", "residues without taps"):
        inputs = {"w": "normal", "dy": "normal", "dx": "normal"} | {operand: "special"}
        check(backend, DEPTHWISE[name], "convolution.data_gradient_depthwise", inputs=inputs)


# Each entry has few channels of dx, or groups of 16 to 64 bytes of dy's channels.
FEW = {
    "groups of 8": on_tensor_cores((2, 136, 20, 17), (136, 8, 3, 3), stride=(2, 2), groups=17, beta=0.5),
    "groups of 16": on_tensor_cores((1, 64, 9, 10), (64, 16, 3, 3), "PSEUDO_BFLOAT16", stride=(2, 1), groups=4),
    "groups of 32 filters and 4 channels": on_tensor_cores((1, 8, 9, 10), (64, 4, 5, 3), stride=(2, 2), groups=2, mode=BACKWARDS),
    "groups, TF32": on_tensor_cores((2, 24, 9, 10), (24, 4, 3, 3), "FLOAT", stride=(2, 2), groups=6, alpha=-1.5),
    "groups, planes": on_tensor_cores((1, 48, 9, 10), (32, 12, 3, 3), "FLOAT", formats=NCHW, stride=(2, 2), groups=4),
    "16 classes": on_tensor_cores((2, 3, 70, 38), (64, 3, 11, 11), stride=(4, 4), padding=(2, 2)),
    "9 classes, planes": on_tensor_cores((1, 5, 23, 20), (40, 5, 4, 5), formats=NCHW, stride=(3, 3), padding=(2, 2), beta=-2.0),
    "8 classes of rows": on_tensor_cores((1, 3, 23, 20), (72, 3, 9, 7), stride=(8, 1), padding=(2, 2)),
    "classes without taps": on_tensor_cores((1, 3, 23, 20), (72, 3, 3, 2), stride=(5, 7), padding=(2, 1), dilation=(2, 1), beta=1.0),
}  # fmt: skip


@pytest.mark.parametrize("inputs", ("normal", "special"))
@pytest.mark.parametrize("name", FEW)
def test_few_channels_on_tensor_cores(backend, name, inputs):
    """One launch after the copies has all residue classes. An infinity or NaN does not reach other groups or classes."""
    names = kernels(check(backend, FEW[name], "convolution.data_gradient_small_channels", inputs=inputs))
    assert names[-1] == "convolution_data_gradient_small_channels"
    assert all(kernel.startswith("transform") for kernel in names[:-1]), names


@pytest.mark.parametrize("name", GROUPED)
def test_all_residues_in_one_launch(backend, name):
    assert kernels(check(backend, GROUPED[name], "convolution.data_gradient_grouped")) == ["convolution_grouped"]


def test_small_groups_take_one_launch_whatever_the_stride(backend):
    """The grouped kernel serves small groups with a stride; a depthwise convolution of dy serves stride 1. Depthwise
    gradients with a stride, or of other windows, have a kernel of their own."""
    for other in (
        on_tensor_cores((2, 8, 9, 7), (8, 1, 3, 3), stride=(2, 2), groups=8),
        on_tensor_cores((2, 8, 1, 37), (8, 1, 1, 11), padding=(0, 5), groups=8),
    ):
        assert kernels(check(backend, other)) == ["convolution_depthwise_windows"]
    of_eight = on_tensor_cores((32, 256, 56, 56), (256, 8, 3, 3), stride=(2, 2), groups=32)
    assert backend.plan(of_eight).solver == "convolution.data_gradient_small_channels"
    of_four = on_tensor_cores((2, 32, 10, 7), (32, 4, 3, 3), stride=(2, 2), groups=8)
    assert backend.plan(of_four).solver == "convolution.data_gradient_grouped"
    plain = on_tensor_cores((2, 40, 9, 7), (40, 1, 3, 3), groups=40)
    assert kernels(check(backend, plain)) == ["convolution_depthwise_static"]  # It reads w in place.
    check(backend, plain, shift=UNALIGNED, shifted="w")


@pytest.mark.parametrize(
    "x, w, stride, padding, solver",
    [
        ((32, 3, 224, 224), (64, 3, 7, 7), (2, 2), (3, 3), "data_gradient_small_channels"),
        ((8, 1, 1, 160000), (512, 1, 1, 10), (1, 5), (0, 0), "data_gradient_folded"),
    ],
)
def test_few_channels_have_their_own_kernel_if_it_is_faster(backend, x, w, stride, padding, solver):
    """Tiles of 16 x 16 are nearly empty in an image of one row: it took 4,657 us on an H200."""
    o = gradient(
        x,
        w,
        formats=NHWC,
        configuration="PSEUDO_HALF",
        math_type=cudnnMathType_t.CUDNN_TENSOR_OP_MATH,
        stride=stride,
        padding=padding,
    )
    assert backend.plan(o).solver == f"convolution.{solver}"


def test_one_launch_clears_several_residue_classes(backend):
    """Stride 3 and a 1 x 1 filter leave two of three residue classes without a tap; these must become zero."""
    operation = gradient((1, 8, 9, 7), (16, 8, 1, 1), padding=(0, 0), stride=(3, 1))
    names = kernels(check(backend, operation, "convolution.data_gradient"))
    assert len(names) == 3, names


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_few_products_take_one_launch(backend, monkeypatch, beta):
    """Launches for the filter's copy and the product would take longer than a few products in one launch."""
    monkeypatch.setattr(backend.device, "multiprocessors", 132)
    plan = check(backend, on_tensor_cores((16, 40, 1, 1), (10, 40, 1, 1), padding=(0, 0), beta=beta))
    assert kernels(plan) == ["convolution_data_gradient_direct"]
