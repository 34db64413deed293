"""Tests filter gradients of convolutions on the emulated device.

TMA-fed tiles run with filters as rows and with channels as rows, and with K split among blocks. Depthwise gradients
have their own tests.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from convolution_operations import UNALIGNED, check, kernels
from dualdnn.accelerated import AcceleratedBackend
from dualdnn.accelerated.convolution.filter_gradient import tma
from dualdnn.accelerated.convolution.filter_gradient.nchw import NCHW_KERNELS, FilterGradientNchw
from dualdnn.accelerated.convolution.filter_gradient.tf32 import TF32_KERNELS, FilterGradientTf32
from dualdnn.accelerated.convolution.filter_gradient.tma import (
    KERNELS,
    FilterGradientTma,
    Shares,
)
from dualdnn.accelerated.convolution.filter_gradient.tma_sum import SUM
from dualdnn.accelerated.primitives.tma import Im2colMap, TiledMap
from dualdnn.accelerated.solver import SOLVER_FAMILIES, possible_solvers
from dualdnn.api.enumerations import cudnnConvolutionMode_t as Mode
from dualdnn.api.enumerations import cudnnMathType_t
from dualdnn.api.operations import ConvolutionBackwardFilter, TensorSpec
from dualdnn.api.operations.specs import HALF, NCHW, NHWC
from dualdnn.conformance.cases.convolution.convolution_backward_filter import ALGO_3, gradient

TMA = "convolution.filter_gradient_tma_"
DEFAULT = cudnnMathType_t.CUDNN_DEFAULT_MATH


def half(x, dw, configuration="PSEUDO_HALF", formats=NHWC, **options):
    return gradient(x, dw, configuration=configuration, formats=formats, math_type=DEFAULT, **options)


def with_gaps(operation):
    """Return the gradient with gaps between the pixels, rows and images of dy."""
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
    "few channels": half((2, 3, 11, 14), (40, 3, 7, 7), padding=(3, 3), stride=(2, 2), beta=0.5),
    "few channels, contiguous rows": half(
        (2, 3, 10, 11), (24, 3, 6, 3), padding=(1, 0), stride=(3, 2), mode=Mode.CUDNN_CONVOLUTION, beta=0.5
    ),
    "few channels, stride 1": half(
        (2, 5, 9, 8), (20, 5, 3, 4), "PSEUDO_BFLOAT16", formats=NCHW, mode=Mode.CUDNN_CONVOLUTION
    ),
    "few channels, volumes": half((2, 3, 4, 6, 9), (24, 3, 2, 3, 5), padding=(1, 2, 1), stride=(1, 2, 2), beta=0.5),
    "few channels, dilated volumes": half(
        (1, 5, 5, 7, 8), (20, 5, 2, 3, 3), formats=NCHW, dilation=(2, 2, 1), mode=Mode.CUDNN_CONVOLUTION
    ),
    "planes of dy": half((1, 24, 9, 9), (40, 24, 3, 3), formats=(NHWC, NHWC, NCHW)),
    "volumes": half(
        (2, 24, 5, 7, 6), (40, 24, 3, 2, 3), padding=(1, 0, 2), stride=(2, 1, 2), dilation=(1, 2, 1), beta=0.5
    ),
    "many groups": half((2, 80, 7, 9), (80, 4, 3, 3), groups=20, beta=0.5),
    "many groups, more filters": half(
        (2, 40, 7, 6), (80, 8, 3, 2), "PSEUDO_BFLOAT16", groups=5, formats=NCHW, mode=Mode.CUDNN_CONVOLUTION
    ),
    "NCDHW volumes": half((2, 24, 5, 4, 6), (40, 24, 2, 3, 3), formats=NCHW, mode=Mode.CUDNN_CONVOLUTION),
}


# These gradients have channels that do not fill rows of TMA.
FEW_CHANNELS = {
    "taps": half((2, 24, 9, 13), (24, 24, 3, 3), alpha=-1.5, beta=0.5),
    "one tap": half((3, 58, 5, 7), (116, 58, 1, 1), "PSEUDO_BFLOAT16", padding=(0, 0)),
    "odd": half((2, 19, 6, 7), (23, 19, 3, 3), stride=(2, 1)),
    "one pixel": half((5, 20, 1, 1), (600, 20, 1, 1), padding=(0, 0), beta=0.5),
    "geometry": half((2, 10, 13, 11), (36, 10, 2, 3), padding=(3, 2), stride=(3, 2), dilation=(2, 3)),
    "flipped, many columns": half((1, 20, 6, 7), (18, 20, 5, 5), padding=(2, 2), mode=Mode.CUDNN_CONVOLUTION),
    "gaps": with_gaps(half((2, 16, 6, 9), (8, 16, 2, 2))),
    "several tiles per block": half((40, 10, 3, 4), (9, 10, 3, 3)),
}


@pytest.fixture
def seven_multiprocessors(monkeypatch):
    """Return a backend with so few multiprocessors that a block works on several tiles."""
    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made.device, "seed", 5)
    monkeypatch.setattr(made.device, "multiprocessors", 7)
    return made


def divided(solver, alone=False, **settings):
    """Return the solver with blocks of at least one K-block. alone: whether some tiles have one block each."""
    return type(solver)(replace(solver.kernel, min_k_blocks=1, alone=(alone,), **settings))


@pytest.mark.parametrize("name", FEW_CHANNELS)
def test_channels_that_do_not_fill_rows(seven_multiprocessors, name):
    """Blocks share the pixels of parts of dw, unless one block has all of them."""
    plan = check(seven_multiprocessors, FEW_CHANNELS[name], "convolution.filter_gradient_few_channels")
    assert kernels(plan)[0] == "convolution_filter_gradient_few_channels"


@pytest.mark.parametrize("rows_are_filters", [True, False], ids=["dy_by_x", "x_by_dy"])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.entry.removeprefix("convolution_"))
@pytest.mark.parametrize("name", GRADIENTS)
def test_every_tile(seven_multiprocessors, name, kernel, rows_are_filters):
    solver = divided(FilterGradientTma(kernel), rows_are_filters=(rows_are_filters,))
    plan = check(seven_multiprocessors, GRADIENTS[name], solver)
    assert kernels(plan)[-2:] == [kernel.entry, SUM]


@pytest.mark.parametrize("rows_are_filters", [True, False], ids=["dy_by_x", "x_by_dy"])
@pytest.mark.parametrize("kernel", KERNELS[1:], ids=lambda kernel: kernel.entry.removeprefix("convolution_"))
@pytest.mark.parametrize("name", GRADIENTS)
def test_tiles_of_one_block_are_blended_from_its_registers(seven_multiprocessors, name, kernel, rows_are_filters):
    """A block may compute two unsplit tiles. In "groups" and "one tap", full rounds of seven tiles are unsplit, and
    blocks share the rest."""
    solver = divided(FilterGradientTma(kernel), alone=True, rows_are_filters=(rows_are_filters,))
    plan = check(seven_multiprocessors, GRADIENTS[name], solver)
    assert kernel.entry in kernels(plan)


@pytest.mark.parametrize(
    "solver", [FilterGradientTma(KERNELS[0]), FilterGradientTma(KERNELS[2])], ids=lambda solver: solver.kernel.entry
)
def test_blocks_compute_whole_tiles_before_they_share_one(seven_multiprocessors, monkeypatch, solver):
    """If splitting costs nothing, two blocks share the last of three or five tiles, and each computes one or two of
    the others alone."""
    monkeypatch.setattr(seven_multiprocessors.device, "multiprocessors", 2)
    monkeypatch.setattr(tma, "SUM_SECONDS", 0.0)
    monkeypatch.setattr(tma, "SLOTS_BANDWIDTH", 1e15)
    operation = half((5, 64, 14, 11), (264, 64, 1, 1), padding=(0, 0), beta=0.5)
    made = divided(solver, alone=True, rows_are_filters=(True,))
    problem = SOLVER_FAMILIES[ConvolutionBackwardFilter].problem(operation, seven_multiprocessors.device)
    shares = made.product(problem, made.kernel).tiling.shares
    assert shares.unsplit > 0 and shares.tiles > 0
    plan = check(seven_multiprocessors, operation, made)
    assert kernels(plan) == [solver.kernel.entry, SUM]


@pytest.mark.parametrize("operation, x, dy", [
    (half((2, 24, 6, 9), (16, 24, 1, 1), padding=(0, 0)), TiledMap, TiledMap),
    (half((2, 24, 1, 1), (16, 24, 1, 1), padding=(0, 0)), TiledMap, TiledMap),
    (half((2, 24, 6, 9), (16, 24, 1, 1), padding=(0, 0), stride=(2, 1)), Im2colMap, TiledMap),
    (half((2, 24, 6, 9), (16, 24, 1, 1), padding=(1, 0)), Im2colMap, TiledMap),
    (half((2, 24, 6, 9), (16, 24, 3, 3), padding=(1, 1)), Im2colMap, TiledMap),
    (with_gaps(half((2, 24, 6, 9), (16, 24, 1, 1), padding=(0, 0))), TiledMap, Im2colMap)],
    ids=["one tap", "one pixel", "stride", "padding", "taps", "gaps"])  # fmt: skip
def test_a_tap_that_meets_every_pixel_is_read_in_rows_of_pixels(seven_multiprocessors, operation, x, dy):
    problem = SOLVER_FAMILIES[ConvolutionBackwardFilter].problem(operation, seven_multiprocessors.device)
    made = FilterGradientTma(KERNELS[2]).product(problem, KERNELS[2])
    assert (type(made.image.map), type(made.incoming.map)) == (x, dy)
    check(seven_multiprocessors, operation, TMA + "64x128")


def test_few_pixels_of_many_channels_need_one_launch(monkeypatch):
    """No tile of 1280 x 23040 results is split among blocks if K has only two K-blocks."""
    device = AcceleratedBackend("emulated").device
    monkeypatch.setattr(device, "multiprocessors", 132)
    family = SOLVER_FAMILIES[ConvolutionBackwardFilter]
    problem = family.problem(half((2, 2560, 8, 8), (1280, 2560, 3, 3)), device)
    solver = family.solver(problem)
    assert len(solver.plan(problem).steps) == 1 and solver.workspace_bytes(problem) == 0


OF_FLOATS = {
    "one tap": half((3, 40, 5, 7), (136, 40, 1, 1), "FLOAT", padding=(0, 0), alpha=-1.5, beta=0.5),
    "one tap, stride": half((2, 12, 9, 8), (20, 12, 1, 1), "FLOAT", padding=(0, 0), stride=(2, 3)),
    "one tap, groups": half((2, 24, 6, 5), (72, 12, 1, 1), "FLOAT", padding=(0, 0), groups=2, formats=NCHW),
    "one tap, many channels": half((2, 72, 6, 5), (20, 72, 1, 1), "FLOAT", padding=(0, 0)),
    "taps": half((2, 36, 9, 8), (48, 36, 3, 3), "FLOAT", mode=Mode.CUDNN_CONVOLUTION),
    "geometry": half((3, 12, 13, 11), (72, 12, 2, 3), "FLOAT", padding=(3, 2), stride=(3, 2), dilation=(2, 3), beta=-2.0),
    "groups": half((2, 24, 7, 9), (144, 12, 3, 2), "FLOAT", groups=2, stride=(1, 2)),
    "vectors of rows": half((2, 20, 6, 7), (48, 20, 2, 3), "FLOAT", alpha=-1.5),
    "few channels": half((2, 3, 11, 14), (40, 3, 7, 7), "FLOAT", padding=(3, 3), stride=(2, 2), mode=Mode.CUDNN_CONVOLUTION),
    "few channels, contiguous rows": half((2, 3, 11, 9), (20, 3, 4, 3), "FLOAT", padding=(1, 1), stride=(2, 1)),
    "planes": half((2, 10, 7, 9), (30, 10, 3, 3), "FLOAT", formats=NCHW, beta=1.0),
    "volumes": half((2, 12, 5, 7, 6), (20, 12, 3, 2, 3), "FLOAT", padding=(1, 0, 2), stride=(2, 1, 2), dilation=(1, 2, 1)),
    "many groups": half((2, 24, 7, 9), (48, 4, 3, 2), "FLOAT", groups=6, stride=(1, 2)),
    "volumes of one tap": half((2, 36, 4, 5, 6), (20, 36, 1, 1, 1), "FLOAT", padding=(0, 0, 0), stride=(2, 1, 2)),
}  # fmt: skip


@pytest.mark.parametrize("kernel", TF32_KERNELS, ids=lambda kernel: kernel.entry.rpartition("_")[2])
@pytest.mark.parametrize("name", OF_FLOATS)
def test_every_tile_in_tf32(seven_multiprocessors, name, kernel):
    solver = FilterGradientTf32(kernel)
    plan = check(seven_multiprocessors, OF_FLOATS[name], divided(solver))
    assert kernels(plan)[-2] == solver.kernel.entry
    assert solver.kernel.entry in kernels(check(seven_multiprocessors, OF_FLOATS[name], divided(solver, alone=True)))


ODD_PLANES = {
    "one box": half((5, 36, 5, 5), (20, 36, 1, 1), "FLOAT", formats=NCHW, padding=(0, 0), alpha=-1.5, beta=0.5),
    "several tiles": half((2, 268, 7, 9), (72, 268, 1, 1), "FLOAT", formats=NCHW, padding=(0, 0)),
    "pairs of pixels": half((3, 64, 5, 10), (264, 64, 1, 1), "FLOAT", formats=NCHW, padding=(0, 0)),
    "a volume": half((1, 40, 3, 3, 5), (36, 40, 1, 1, 1), "FLOAT", formats=NCHW, padding=(0, 0, 0), algo=ALGO_3),
}


@pytest.mark.parametrize("rows_are_filters", [True, False], ids=["dy_by_x", "x_by_dy"])
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "shared"])
@pytest.mark.parametrize("name", ODD_PLANES)
def test_planes_without_whole_vectors_are_read_in_place(seven_multiprocessors, name, alone, rows_are_filters):
    solver = FilterGradientNchw(NCHW_KERNELS[-1])
    made = divided(solver, alone=alone, rows_are_filters=(rows_are_filters,))
    plan = check(seven_multiprocessors, ODD_PLANES[name], made)
    assert kernels(plan) == [solver.kernel.entry, SUM][: 2 - alone]


def test_planes_are_read_in_place_in_either_kernel(monkeypatch):
    device = AcceleratedBackend("emulated").device
    monkeypatch.setattr(device, "multiprocessors", 132)
    family = SOLVER_FAMILIES[ConvolutionBackwardFilter]
    for size, merged in ((35, True), (28, False), (7, True)):
        operation = half((32, 192, size, size), (64, 192, 1, 1), "FLOAT", formats=NCHW, padding=(0, 0))
        name = family.solver(family.problem(operation, device)).name
        assert name.startswith("convolution.filter_gradient_nchw_tf32") and ("merged" in name) == merged, name


def test_infinities_stay_in_their_channel(seven_multiprocessors):
    """The pixels before and after those of a channel belong to others, and their infinities meet no sum."""
    check(seven_multiprocessors, ODD_PLANES["several tiles"], NCHW_KERNELS[-1].name, inputs="infinite")


def test_groups_share_tiles(seven_multiprocessors):
    """Sixteen groups of four channels fill a box of 64; the last four of twenty groups use a second box."""
    problem = SOLVER_FAMILIES[ConvolutionBackwardFilter].problem(GRADIENTS["many groups"], seven_multiprocessors.device)
    made = FilterGradientTma(KERNELS[-1]).product(problem, KERNELS[-1])
    assert (made.groups, made.channels, made.filters) == (2, 64, 64)


def test_infinities_stay_in_their_group(seven_multiprocessors):
    check(seven_multiprocessors, GRADIENTS["many groups"], TMA + "64x128", inputs="infinite")


@pytest.mark.parametrize("configuration", ["PSEUDO_HALF", "FLOAT"])
def test_ncdhw_volumes_use_algorithm_3(seven_multiprocessors, configuration):
    operation = half((2, 24, 4, 5, 6), (40, 24, 2, 3, 3), configuration, formats=NCHW, algo=ALGO_3)
    check(seven_multiprocessors, operation, shift=UNALIGNED)
    assert kernels(check(seven_multiprocessors, operation))[-1].startswith("convolution_filter_gradient_t")


@pytest.mark.parametrize("few_parts", [0, 1000])
@pytest.mark.parametrize("multiprocessors", [1, 2, 7, 8, 24])
def test_any_number_of_blocks_may_share_the_pixels(seven_multiprocessors, monkeypatch, multiprocessors, few_parts):
    """A tile is less than a block's share, or has equal parts, or parts and a rest. One thread or several add them."""
    monkeypatch.setattr(seven_multiprocessors.device, "multiprocessors", multiprocessors)
    solver = divided(FilterGradientTma(KERNELS[-1]), few_parts=few_parts)
    # This product has 13 K-blocks and 3 x 2 or 2 x 2 tiles.
    wide = half((5, 72, 14, 11), (136, 72, 1, 1), padding=(0, 0))
    plan = check(seven_multiprocessors, wide, solver)
    assert kernels(plan)[-1] == SUM
    check(seven_multiprocessors, half((1, 8, 3, 5), (16, 8, 3, 3)), solver)


@pytest.mark.parametrize(
    "tiles, k_blocks, blocks", [(18, 3136, 132), (72, 98, 132), (2, 3136, 132), (144, 98, 132), (9, 1, 2), (9, 3, 13)]
)
def test_every_k_block_has_one_block(tiles, k_blocks, blocks):
    shares = Shares.of(tiles, k_blocks, blocks)
    parts = tiles * (shares.parts * shares.share + shares.longer_parts)
    assert parts + tiles * shares.rest == tiles * k_blocks and shares.blocks <= blocks
    assert shares.further <= tiles * shares.rest and bool(shares.further) == bool(shares.rest)


def test_operands_unaligned_for_tma_are_correct(seven_multiprocessors):
    for shifted in ("x", "dy", "dw"):
        check(seven_multiprocessors, GRADIENTS["taps"], TMA + "64x128", shift=UNALIGNED // 2, shifted=shifted)


def test_tma_tiles_are_preferred_except_for_few_channels(seven_multiprocessors):
    """TMA-fed tiles are preferred if the math type allows tensor cores, except for few pixels and channels."""
    few = seven_multiprocessors
    assert check(few, half((2, 64, 4, 5), (64, 64, 3, 3))).solver.startswith(TMA)
    assert few.plan(half((32, 3, 224, 224), (64, 3, 3, 3))).solver == "convolution.filter_gradient_few_channels"
    assert not check(few, half((2, 9, 4, 5), (9, 9, 3, 3))).solver.startswith(TMA)
    plain = gradient((2, 64, 4, 5), (64, 64, 3, 3), configuration="PSEUDO_HALF", formats=NHWC)
    assert not check(few, plain).solver.startswith(TMA)


@pytest.mark.parametrize("images, channels, size, layout, transposed", [
    (32, 512, 14, NCHW, True), (32, 512, 7, NHWC, False), (24, 512, 14, NCHW, False), (64, 128, 28, NCHW, False)])  # fmt: skip
def test_tf32_has_images_innermost_if_both_operands_are_copied(monkeypatch, images, channels, size, layout, transposed):
    """Images become innermost if both operands are copied anyway, images fill boxes, and the sum is not split."""
    device = AcceleratedBackend("emulated").device
    monkeypatch.setattr(device, "multiprocessors", 132)
    dims = (images, channels, size, size), (channels, channels, 3, 3)
    operation = gradient(*dims, configuration="FLOAT", formats=layout, math_type=DEFAULT, padding=(1, 1))
    family = SOLVER_FAMILIES[type(operation)]
    found = family.solver(family.problem(operation, device))
    assert (found.name == "convolution.filter_gradient") == transposed
    assert transposed or found.name.startswith("convolution.filter_gradient_tf32")


@pytest.mark.parametrize("dx, dw, parts, further, unsplit", [
    ((32, 1024, 14, 14), (256, 1024, 1, 1), 4, False, 0), ((8, 512, 7, 7), (512, 512, 3, 3), 0, False, 288),
    ((64, 256, 56, 56), (256, 256, 3, 3), 7, True, 0)], ids=str)  # fmt: skip
def test_the_fastest_division_among_blocks_is_chosen(monkeypatch, dx, dw, parts, further, unsplit):
    """The fastest division is chosen: equal parts, parts and a rest that further blocks share, or unsplit tiles."""
    device = AcceleratedBackend("emulated").device
    monkeypatch.setattr(device, "multiprocessors", 132)
    operation = half(dx, dw, padding=(dw[2] // 2, dw[3] // 2))
    family = SOLVER_FAMILIES[type(operation)]
    problem = family.problem(operation, device)
    solver = family.solver(problem)
    shares = solver.product(problem, solver.kernel).tiling.shares
    assert (shares.parts, shares.further > 0, shares.unsplit) == (parts, further, unsplit)


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
    "channels, 7 x 7": depthwise((6, 6, 9, 21), (7, 7), formats=NHWC, padding=(3, 3), stride=(2, 2)),
    "channels, wide": depthwise((2, 72, 7, 37), (3, 3), configuration="PSEUDO_HALF", formats=NHWC),
    "channels, 5 x 5": depthwise((2, 8, 9, 10), (5, 5), formats=NHWC, padding=(2, 2), mode=Mode.CUDNN_CONVOLUTION),
    "one row": depthwise((5, 3, 1, 6), (1, 3), padding=(0, 1)),
    "parts of 7 x 7": depthwise(
        (2, 72, 9, 10), (7, 7), configuration="PSEUDO_HALF", formats=NHWC, padding=(3, 3), mode=Mode.CUDNN_CONVOLUTION
    ),
    "parts of a row": depthwise((2, 8, 1, 45), (1, 37), configuration="PSEUDO_BFLOAT16", formats=NHWC, padding=(0, 18)),
    "parts of planes": depthwise((2, 2, 14, 24), (9, 17), configuration="PSEUDO_HALF", padding=(4, 8), stride=(3, 4)),
    "padding beyond the window": depthwise((2, 4, 5, 6), (3, 2), padding=(4, 3)),
    "padding beyond the window, channels": depthwise((2, 8, 5, 6), (3, 2), formats=NHWC, padding=(4, 3), stride=(1, 3)),
}


@pytest.mark.parametrize("multiprocessors", [1, 7])
@pytest.mark.parametrize("name", OF_CHANNELS)
def test_depthwise_gradients_are_correct_by_every_solver(seven_multiprocessors, monkeypatch, name, multiprocessors):
    monkeypatch.setattr(seven_multiprocessors.device, "multiprocessors", multiprocessors)
    backend, operation = seven_multiprocessors, OF_CHANNELS[name]
    for solver in [each for each in possible_solvers(operation, backend.device) if each.startswith(DEPTHWISE)]:
        check(backend, operation, solver)
        check(backend, replace(operation, beta=0.5), solver, inputs="special")
    assert check(backend, operation, shift=1).solver.startswith(DEPTHWISE)
    odd = operation.x.dims[1] * operation.x.scalar_bytes % 16 or operation.x.scalar_bytes == 8
    by_tma = operation.x.strides[1] == 1 and not odd
    assert (DEPTHWISE + "_tma" in possible_solvers(operation, backend.device)) == by_tma


LANES = {
    "depthwise": half((2, 12, 9, 7), (12, 1, 3, 3), stride=(2, 2), groups=12),
    "depthwise, planes": gradient((2, 5, 29, 27), (5, 1, 7, 7), stride=(2, 2), groups=5, beta=0.5, alpha=-1.5),
    "depthwise, dilated": gradient(
        (2, 6, 21, 9), (6, 1, 5, 3), configuration="PSEUDO_BFLOAT16", stride=(3, 1), dilation=(2, 2), groups=6, mode=Mode.CUDNN_CONVOLUTION
    ),
    "volumes": gradient((1, 4, 4, 5, 6), (8, 1, 3, 2, 3), stride=(1, 2, 2), groups=4, padding=(1, 1, 1)),
    "groups of two": gradient((1, 8, 7, 8), (8, 2, 3, 3), formats=NHWC, stride=(2, 2), groups=4),
    "groups of three": half((1, 6, 7, 8), (10, 3, 3, 3), stride=(2, 2), groups=2),
    "no groups": gradient((1, 3, 17, 16), (6, 3, 5, 5), stride=(4, 4), padding=(2, 2)),
    "one tap": half((3, 13, 17, 16), (21, 13, 1, 1), padding=(0, 0)),
    "one channel": gradient((3, 1, 17, 16), (1, 1, 1, 7), padding=(0, 0)),
    "many": half((1, 70, 5, 6), (66, 70, 3, 3)),
    "double": gradient((2, 6, 5, 7), (6, 2, 3, 3), configuration="DOUBLE", stride=(2, 1), groups=3),
}  # fmt: skip


@pytest.mark.parametrize("name", LANES)
def test_lanes_of_few_filters_and_channels(seven_multiprocessors, name):
    operation = LANES[name]
    names = kernels(check(seven_multiprocessors, operation, "convolution.filter_gradient_grouped"))
    parts = ["convolution_filter_gradient_sum"] if operation.terms > 512 else []
    assert names == ["convolution_filter_gradient_grouped", *parts]


@pytest.mark.parametrize("x, dw", [((16, 3, 416, 416), (16, 3, 3, 3)), ((2, 16, 400, 400), (16, 16, 1, 1))])
def test_few_results_of_many_pixels_are_shared_by_blocks(monkeypatch, x, dw):
    """A forward convolution with images as channels would leave all results to one block."""
    backend = AcceleratedBackend("emulated")
    monkeypatch.setattr(backend.device, "multiprocessors", 132)
    padding = (dw[2] // 2, dw[3] // 2)
    solver = backend.plan(half(x, dw, padding=padding)).solver
    assert solver.startswith((TMA, "convolution.filter_gradient_few_channels", "convolution.filter_gradient_grouped"))


def test_few_products_take_one_launch(seven_multiprocessors):
    """A matrix product would add its parts in another launch, or occupy few multiprocessors."""
    plan = check(seven_multiprocessors, half((16, 41, 1, 1), (10, 41, 1, 1), "FLOAT", padding=(0, 0), beta=0.5))
    assert kernels(plan) == ["convolution_filter_gradient_direct"]
