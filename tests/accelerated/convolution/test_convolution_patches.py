"""Tests convolutions of patches, whose stride is their window, and their gradients on the emulated device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from convolution_operations import (
    DEFAULT,
    FFT,
    FMA,
    PRECOMPUTED,
    UNALIGNED,
    WINOGRAD,
    backwards,
    check,
    convolution,
    kernels,
)
from dualdnn.accelerated import AcceleratedBackend
from dualdnn.accelerated.convolution.patches import Patches, in_place
from dualdnn.accelerated.solver import SOLVER_FAMILIES, possible_solvers
from dualdnn.api.enumerations import cudnnActivationMode_t, cudnnNanPropagation_t
from dualdnn.api.operations import (
    ActivationSpec,
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionBiasActivationForward,
    TensorSpec,
)
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, NCHW, NHWC
from dualdnn.conformance.cases.convolution.convolution_backward_data import ALGO_1
from dualdnn.conformance.cases.convolution.convolution_backward_filter import ALGO_1 as FILTER_ALGO_1

IMAGES = {"forward": "x", "data gradient": "dx", "filter gradient": "x"}


def patches(x, filters, taps, data_type=HALF, layout=NHWC, *, stride=None, padding=0, math=DEFAULT, **options):
    made = convolution(
        PRECOMPUTED, x, filters, taps, data_type=data_type, layout=layout, padding=0, math=math, **options
    )
    rank = len(taps)
    spec = replace(made.convolution, stride=stride or taps, padding=(padding,) * rank)
    y = TensorSpec.packed(data_type, spec.output_dims(x, made.w.dims), options.get("result") or layout)
    return replace(made, convolution=spec, y=y)


def gradients(o):
    """Return the forward convolution and both gradients, by name."""
    common = o.convolution, 0, o.alpha, o.beta
    spec, room, alpha, beta = common
    return {
        "forward": o,
        "data gradient": ConvolutionBackwardData(spec, ALGO_1, room, alpha, beta, o.w, o.y, o.x),
        "filter gradient": ConvolutionBackwardFilter(spec, FILTER_ALGO_1, room, alpha, beta, o.x, o.y, o.w),
    }


OPERATIONS = {
    "half": patches((2, 3, 32, 48), 24, (16, 16)),
    "planes": patches((2, 3, 12, 8), 16, (4, 4), layout=NCHW),
    "NCHW, bfloat16, remainder": patches((2, 5, 9, 7), 16, (2, 2), BFLOAT16, NCHW),
    "remainder": patches((2, 8, 9, 7), 16, (4, 2)),
    "TF32": patches((2, 4, 6, 8), 8, (3, 2), FLOAT),
    "TF32, planes": patches((1, 6, 8, 8), 12, (4, 4), FLOAT, NCHW),
    "without tensor cores": patches((2, 3, 4, 6), 9, (2, 2), FLOAT, NCHW, math=FMA),
    "double": patches((1, 2, 4, 6), 9, (2, 2), DOUBLE),
    "groups": patches((2, 16, 8, 6), 16, (2, 2), groups=2),
    "groups, planes": patches((2, 8, 8, 8), 32, (2, 4), layout=NCHW, groups=4),
    "one dimension": patches((2, 8, 1, 28), 16, (1, 7)),
    "one dimension, downwards": patches((2, 8, 28, 1), 16, (7, 1)),
    "volumes": patches((1, 4, 4, 6, 8), 16, (2, 3, 4)),
    "volumes, planes": patches((1, 3, 4, 4, 8), 8, (2, 2, 4), layout=NCHW),
    "whole images": patches((4, 8, 4, 6), 24, (4, 6)),
    "whole images, planes, TF32": patches((5, 6, 5, 2), 40, (5, 2), FLOAT, NCHW, stride=(1, 1)),
    "whole volumes, planes": patches((3, 4, 2, 3, 4), 24, (2, 3, 4), BFLOAT16, NCHW, stride=(1, 2, 1)),
    "only x in NCHW": patches((2, 8, 4, 8), 16, (2, 4), layout=NCHW, filter_layout=NHWC, result=NHWC),
    "filters in NCHW": patches((2, 8, 4, 8), 16, (2, 4), filter_layout=NCHW),
}
BLENDED = {name: replace(OPERATIONS[name], alpha=-1.5, beta=0.5) for name in ("half", "remainder", "groups", "TF32")}
ALL = OPERATIONS | {f"{name}, blended": o for name, o in BLENDED.items()}


@pytest.fixture
def backend(monkeypatch):
    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made.device, "seed", 5)
    monkeypatch.setattr(made.device, "multiprocessors", 2)
    return made


@pytest.mark.parametrize("kind", IMAGES)
@pytest.mark.parametrize("name", ALL)
def test_patches_of_every_layout_are_correct(backend, name, kind):
    """Both the preferred solver and the one that copies the patches are right."""
    operation = gradients(ALL[name])[kind]
    copied = [each for each in possible_solvers(operation, backend.device) if each.endswith("copied_patches")]
    check(backend, operation)
    for solver in copied:
        check(backend, operation, solver)
    others_serve = kind == "data gradient" and (operation.beta != 0 or "remainder" in name)
    assert copied or others_serve or in_place(operation) != operation


@pytest.mark.parametrize("kind", IMAGES)
def test_pixels_become_wider_in_place(kind):
    """A row of a patch is one pixel in the same memory where channels are innermost."""
    operation = in_place(gradients(patches((2, 8, 6, 12), 16, (2, 4)))[kind])
    x = operation.tensor(IMAGES[kind])
    assert (x.dims, x.strides) == ((2, 32, 6, 3), (576, 1, 96, 32))
    assert operation.convolution.stride == (2, 1)


@pytest.mark.parametrize("layout", [NCHW, NHWC], ids=["planes", "channels last"])
@pytest.mark.parametrize("kind", IMAGES)
def test_an_image_of_one_window_becomes_a_pixel(kind, layout):
    operation = in_place(gradients(patches((3, 8, 5, 4), 16, (5, 4), layout=layout, stride=(1, 1)))[kind])
    assert operation.tensor(IMAGES[kind]).dims == (3, 160, 1, 1) and operation.convolution.stride == (1, 1)


def test_fft_and_winograd_keep_their_filter():
    """These algorithms depend on the extents of the filter, so patches do not become wider pixels."""
    operation = patches((3, 8, 3, 3), 16, (3, 3), layout=NCHW, stride=(1, 1))
    assert in_place(operation) != operation
    for algo in (FFT, WINOGRAD):
        assert in_place(replace(operation, algo=algo)).w == operation.w


def test_strides_beyond_8_become_depth():
    """TMA steps over at most 8 pixels, so that patches of 16 rows are volumes of 16 rows."""
    operation = in_place(patches((2, 3, 33, 48), 24, (16, 16)))
    assert operation.x.dims == (2, 48, 2, 16, 3) and operation.w.dims == (24, 48, 1, 16, 1)
    assert operation.x.strides == (33 * 48 * 3, 1, 16 * 48 * 3, 48 * 3, 48) and operation.y.dims == (2, 24, 2, 1, 3)


@pytest.mark.parametrize(
    "operation",
    [
        patches((2, 8, 6, 12), 16, (2, 4), stride=(2, 3)),
        patches((2, 8, 6, 12), 16, (2, 4), padding=1),
        patches((2, 8, 6, 12), 16, (2, 4), groups=2),
        patches((2, 8, 6, 12), 16, (2, 4), layout=NCHW),
        patches((2, 8, 6, 12), 16, (2, 4), dilation=2),
        patches((2, 3, 6, 12), 16, (2, 4)),
        patches((2, 3, 5, 5), 16, (5, 5), layout=NCHW, stride=(1, 1)),
        patches((2, 8, 5, 4), 16, (5, 4), layout=NCHW, filter_layout=NHWC, stride=(1, 1)),
        backwards(patches((2, 8, 6, 12), 16, (2, 4))),
    ],
    ids=["overlap", "padding", "groups", "planes", "dilation", "odd pixels", "odd image", "another layout", "flipped"],
)
def test_other_operations_stay_as_they_are(operation):
    assert in_place(operation) == operation


def test_a_copy_moves_contiguous_pixels_as_wide_elements():
    """Four neighbours of 16 bits move as one element of 8 bytes, unless the address is odd."""
    found = Patches(patches((2, 3, 12, 8), 16, (4, 4), layout=NCHW))
    assert {side.data_type for side in found.moved(True)} == {DOUBLE}
    assert {side.data_type for side in found.moved(False)} == {HALF}
    odd = Patches(patches((2, 3, 12, 9), 16, (4, 4), layout=NCHW))
    assert {side.data_type for side in odd.moved(True)} == {HALF}


def test_integers_become_wider_pixels(backend):
    operation = patches((2, 4, 8, 12), 8, (4, 4), INT8)
    operation = replace(operation, y=TensorSpec.packed(FLOAT, operation.y.dims, NHWC))
    assert in_place(operation).x.dims == (2, 16, 8, 3)
    check(backend, operation)


@pytest.mark.parametrize("kind", IMAGES)
def test_patches_at_odd_addresses_are_correct(backend, kind):
    operation = gradients(OPERATIONS["planes"])[kind]
    solver = next(each for each in possible_solvers(operation, backend.device) if each.endswith("copied_patches"))
    check(backend, operation, solver, shift=UNALIGNED)


def test_patches_of_many_residues_are_one_product(backend):
    """All 256 residue classes of a data gradient are one matrix product."""
    operation = gradients(OPERATIONS["half"])["data gradient"]
    names = kernels(check(backend, operation, "convolution.data_gradient_copied_patches"))
    assert sum(name.startswith("convolution") for name in names) == 1 and len(names) <= 3, names


@pytest.mark.parametrize("kind", ["forward", "data gradient"])
def test_copied_patches_have_their_own_order_of_summation(backend, kind):
    """A patch is summed in the order of the filter. Other solvers sum tap by tap, so that their bits differ."""
    operation = gradients(patches((2, 8, 12, 8), 16, (4, 4), layout=NCHW))[kind]
    family = SOLVER_FAMILIES[type(operation)]
    problem = family.problem(operation, backend.device)
    orders = {each.name: each.summation_order(problem) for each in family.serving(problem, None)}
    (copied,) = [order for name, order in orders.items() if name.endswith("copied_patches")]
    assert copied is not None and list(orders.values()).count(copied) == 1


def test_nchw_results_pass_through_the_workspace(backend):
    """The product writes channels innermost where rows of planes are not whole boxes, and a copy transposes them."""
    names = kernels(check(backend, OPERATIONS["planes"], "convolution.copied_patches"))
    assert names[0].startswith("transform") and names[2].startswith("transform") and len(names) == 3, names
    check(backend, replace(OPERATIONS["planes"], beta=0.5), "convolution.copied_patches")


@pytest.mark.parametrize("name", ["half", "planes"])
def test_patches_with_bias_and_activation_are_correct(backend, name):
    o = OPERATIONS[name]
    relu = ActivationSpec(
        cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0
    )
    bias = TensorSpec.packed(HALF, (1, o.y.dims[1], 1, 1))
    fused = ConvolutionBiasActivationForward(o.convolution, relu, o.algo, 0, -1.5, 0.5, o.x, o.w, o.y, bias, o.y)
    check(backend, fused)
    if name == "planes":
        check(backend, fused, "convolution.copied_patches")
    assert SOLVER_FAMILIES[type(fused)] is SOLVER_FAMILIES[type(o)]


def test_patches_that_do_not_cover_dx_are_left_to_other_solvers(backend):
    """Elements that no window covers are products of zeros and filters, which may be infinite (D212)."""
    operation = gradients(OPERATIONS["remainder"])["data gradient"]
    assert not any(name.endswith("copied_patches") for name in possible_solvers(operation, backend.device))
