"""Tests the matrix-product kernels of convolution on the emulated device: all tiles, also partial ones."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from itertools import product

import pytest
from convolution_operations import (
    EXPLICIT,
    FFT,
    FMA,
    IMPLICIT,
    NONFUSED,
    PRECOMPUTED,
    UNALIGNED,
    backwards,
    check,
    convolution,
    kernels,
    with_pitch,
)
from dualdnn.accelerated import AcceleratedBackend
from dualdnn.accelerated.convolution.forward import ConvolutionProblem
from dualdnn.accelerated.convolution.implicit_gemm import small_channels
from dualdnn.accelerated.convolution.implicit_gemm.fp32 import FP32
from dualdnn.accelerated.convolution.implicit_gemm.product import Product
from dualdnn.accelerated.convolution.implicit_gemm.products import preferred_kernel
from dualdnn.accelerated.convolution.implicit_gemm.tma import TMA, Sharing, TmaKernel, k_blocks, share_tiles
from dualdnn.accelerated.convolution.problem import Matrices, matrix_product
from dualdnn.accelerated.gemm.stream_k import Shares
from dualdnn.accelerated.plans import Plan
from dualdnn.accelerated.primitives.tma import Im2colMap, TiledMap
from dualdnn.accelerated.reproducible import at_level
from dualdnn.accelerated.solver import forcing
from dualdnn.api.enumerations import cudnnActivationMode_t, cudnnNanPropagation_t
from dualdnn.api.operations import ActivationSpec, ConvolutionBiasActivationForward, FilterSpec, TensorSpec
from dualdnn.api.operations.backend import BATCH
from dualdnn.api.operations.specs import BFLOAT16, FLOAT, HALF, NCHW, NHWC

ROWS = Matrices(1, 1, 0)
FP32_DEFINITIONS = (("COMPUTE", "float"), ("ELEMENT", "float"))


@pytest.fixture
def backend(monkeypatch):
    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made.device, "seed", 5)
    return made


@pytest.fixture
def two_multiprocessors(backend, monkeypatch):
    """Return a backend on which a persistent block computes several tiles."""
    monkeypatch.setattr(backend.device, "multiprocessors", 2)
    return backend


def named(kernel):
    return kernel.name.removeprefix("convolution.")


# --- float on CUDA cores ---

PRODUCTS = {  # Each entry has an operation and the kind of its kernel.
    "channels": (convolution(IMPLICIT, (3, 20, 9, 7), 140, (3, 3), layout=NHWC, math=FMA, blend=(-1.5, 0.5)), "rows"),
    "channels, many terms": (convolution(IMPLICIT, (1, 72, 12, 12), 20, (3, 3), layout=NHWC, math=FMA), "rows"),
    "channels to planes": (
        convolution(IMPLICIT, (2, 12, 9, 8), 36, (3, 2), layout=NHWC, result=NCHW, math=FMA, stride=2, dilation=2, blend=(1.5, -2.0)),
        "rows",
    ),
    "channels, groups": (convolution(IMPLICIT, (2, 24, 7, 6), 136, (1, 3), layout=NHWC, math=FMA, groups=2), "rows"),
    "channels, volume": (convolution(IMPLICIT, (1, 8, 5, 6, 7), 20, (3, 2, 3), layout=NHWC, math=FMA), "rows"),
    "channels, few terms": (convolution(IMPLICIT, (2, 4, 6, 7), 20, (1, 1), layout=NHWC, math=FMA, padding=0), "rows"),
    "odd channels": (convolution(IMPLICIT, (2, 5, 9, 8), 67, (3, 3), layout=NHWC, math=FMA), "rows"),
    "first layer": (convolution(IMPLICIT, (2, 3, 17, 15), 66, (7, 7), math=FMA, stride=2, padding=3), "nchw"),
    "planes": (convolution(PRECOMPUTED, (3, 21, 8, 8), 130, (1, 1), math=FMA, padding=0, blend=(2.0, -1.0)), "nchw"),
    "planes, stride 2": (convolution(IMPLICIT, (3, 20, 9, 11), 132, (3, 3), math=FMA, stride=2), "nchw"),
    "backwards": (backwards(convolution(IMPLICIT, (2, 20, 7, 6), 34, (3, 2), layout=NHWC, math=FMA, dilation=2)), "rows"),
    "matrix": (convolution(EXPLICIT, (2, 3, 9, 11), 35, (3, 3), math=FMA, blend=(-1.0, 3.0)), "rows"),
    "spectra": (convolution(FFT, (2, 4, 6, 7), 20, (3, 3), math=FMA), "rows"),
    "Winograd": (convolution(NONFUSED, (3, 9, 14, 15), 40, (3, 3), math=FMA), "nchw_vectors"),
    "Winograd, one tile": (convolution(NONFUSED, (1, 9, 4, 4), 40, (3, 3), math=FMA), "nchw_vectors"),
}  # fmt: skip


@pytest.mark.parametrize("shift", (0, UNALIGNED), ids=("aligned", "unaligned"))
@pytest.mark.parametrize("kernel", FP32, ids=named)
@pytest.mark.parametrize("operation, kind", PRODUCTS.values(), ids=PRODUCTS)
def test_every_tile_in_float(backend, operation, kind, shift, kernel):
    """Every tile is right in the implicit GEMM, and in the products of FFT, Winograd and im2col."""
    with forcing(kernel.name):
        plan = check(backend, operation, shift=shift)
    assert f"convolution_implicit_gemm_fp32_{kind}_{kernel.n}x{kernel.m}" in kernels(plan)


def test_floats_in_nchw_run_on_cuda_cores(backend):
    """Even if TF32 is allowed, floats in NCHW run on CUDA cores; vectors of NHWC channels run on tensor cores."""
    nchw, vectors = (
        convolution(IMPLICIT, (2, 12, 6, 7), 17, (3, 3), layout=layout, result=NCHW) for layout in (NCHW, NHWC)
    )
    assert "fp32" in check(backend, nchw).solver and "mma" in check(backend, vectors).solver


@pytest.mark.parametrize("filters, vectors", [(72, True), (70, False)])
def test_transformed_filters_in_vectors(backend, filters, vectors):
    """Transformed filters of a group are stored contiguously if they fill 16-byte vectors."""
    operation = convolution(NONFUSED, (2, 20, 9, 10), filters, (3, 3), math=FMA, groups=2)
    assert any("vectors" in name for name in kernels(check(backend, operation))) == vectors


def test_filters_fill_tiles(backend, monkeypatch):
    """Large products get the tile that their filters fill; if both tiles are full, the one with more filters."""
    monkeypatch.setattr(backend.device, "multiprocessors", 132)

    def tile(n, m, matrices=ROWS):
        product = Product(backend.device, FP32_DEFINITIONS, matrix_product(m, n, 64, matrices, matrices), 1, ("x",) * 5)
        chosen = preferred_kernel(product)
        assert chosen in FP32
        return chosen.n, chosen.m

    assert tile(512, 32 * 14 * 14) == tile(256, 64 * 56 * 56) == tile(256, 72) == (128, 64)
    assert tile(64, 64 * 56 * 56) == tile(192, 64 * 56 * 56) == (64, 128)
    assert tile(20, 72) == tile(20, 72, Matrices(1, 72, 0)) == (128, 64)


# --- TMA-fed products ---

STREAMED = {  # Each entry has an operation, and whether TMA writes y in NCHW.
    "strided": (convolution(IMPLICIT, (3, 72, 7, 9), 72, (3, 3), data_type=HALF, layout=NHWC, stride=2, blend=(-1.75, 0.0)), False),
    "blended": (convolution(IMPLICIT, (3, 72, 7, 9), 72, (3, 3), data_type=HALF, layout=NHWC, blend=(-1.75, 0.5)), False),
    "dilated": (convolution(IMPLICIT, (3, 40, 7, 9), 80, (3, 2), data_type=BFLOAT16, layout=NHWC, dilation=2, padding=2), False),
    "groups": (convolution(IMPLICIT, (5, 128, 6, 5), 144, (3, 3), data_type=HALF, layout=NHWC, groups=2), False),
    "odd filters": (convolution(IMPLICIT, (2, 72, 6, 5), 66, (3, 3), data_type=HALF, layout=NHWC), False),
    "TF32": (convolution(IMPLICIT, (2, 36, 6, 5), 68, (3, 3), layout=NHWC), False),
    "planes, blended, TF32": (convolution(IMPLICIT, (7, 36, 6, 7), 72, (3, 3), layout=NHWC, result=NCHW, blend=(0.5, 2.0)), False),
    "planes, one row": (convolution(IMPLICIT, (6, 64, 1, 67), 72, (1, 1), data_type=HALF, layout=NHWC, result=NCHW, padding=0), False),
    "planes, odd": (convolution(IMPLICIT, (9, 72, 4, 10), 72, (3, 3), data_type=HALF, layout=NHWC, result=NCHW, blend=(0.5, 0.0)), False),
    "planes": (convolution(IMPLICIT, (5, 72, 4, 16), 72, (3, 3), data_type=HALF, layout=NHWC, result=NCHW, blend=(0.5, 0.0)), True),
    "planes, boxes across images": (convolution(IMPLICIT, (7, 36, 6, 6), 72, (3, 3), layout=NHWC, result=NCHW), False),
    "planes, boxes of several images": (convolution(IMPLICIT, (9, 72, 2, 4), 72, (3, 3), data_type=HALF, layout=NHWC, result=NCHW), False),
    "planes, blended": (convolution(IMPLICIT, (5, 72, 4, 16), 72, (3, 3), data_type=HALF, layout=NHWC, result=NCHW, blend=(0.5, -1.5)), True),
    "one tap": (convolution(IMPLICIT, (5, 64, 24, 22), 64, (1, 1), data_type=HALF, layout=NHWC, padding=0, blend=(1.0, 1.0)), False),
    "two rounds": (convolution(IMPLICIT, (5, 64, 24, 22), 40, (1, 1), layout=NHWC, padding=0), False),
    "planes, one image": (convolution(IMPLICIT, (1, 72, 9, 8), 72, (3, 3), data_type=HALF, layout=NHWC, result=NCHW), True),
    "planes, TF32": (convolution(IMPLICIT, (7, 36, 8, 8), 70, (3, 3), layout=NHWC, result=NCHW), True),
    "planes, groups": (convolution(IMPLICIT, (5, 128, 16, 8), 160, (3, 3), data_type=HALF, layout=NHWC, result=NCHW, groups=2), True),
    "backwards": (backwards(convolution(IMPLICIT, (2, 72, 6, 5), 64, (3, 3), data_type=HALF, layout=NHWC)), False),
    "volumes": (convolution(IMPLICIT, (2, 40, 5, 6, 5), 72, (3, 2, 3), data_type=HALF, layout=NHWC, stride=2, dilation=2), False),
    "volumes, backwards": (backwards(convolution(IMPLICIT, (2, 36, 4, 3, 5), 72, (2, 3, 2), layout=NHWC)), False),
    "volumes, planes": (convolution(IMPLICIT, (3, 72, 2, 4, 8), 72, (2, 3, 3), data_type=HALF, layout=NHWC, result=NCHW), False),
}  # fmt: skip
IN_PLANES = {  # x and y are NCHW, and TMA reads x in place.
    "1 x 1": convolution(IMPLICIT, (3, 72, 8, 8), 72, (1, 1), data_type=HALF, padding=0, blend=(-1.75, 0.0)),
    "full boxes": convolution(IMPLICIT, (2, 40, 8, 14), 200, (1, 1), data_type=BFLOAT16, padding=0),
    "precomputed": convolution(PRECOMPUTED, (5, 136, 7, 8), 130, (1, 1), data_type=HALF, padding=0),
    "groups": convolution(IMPLICIT, (2, 128, 16, 15), 160, (1, 1), data_type=HALF, padding=0, groups=2),
    "one image": convolution(IMPLICIT, (1, 64, 8, 7), 128, (1, 1), data_type=HALF, padding=0),
    "volume": convolution(IMPLICIT, (2, 64, 4, 4, 6), 64, (1, 1, 1), data_type=HALF, padding=0),
    "blended": convolution(IMPLICIT, (2, 72, 8, 7), 136, (1, 1), data_type=HALF, padding=0, blend=(0.5, -2.0)),
    "TF32": convolution(IMPLICIT, (3, 36, 8, 7), 72, (1, 1), padding=0, blend=(-1.75, 0.0)),
    "TF32, blended": convolution(PRECOMPUTED, (2, 292, 4, 7), 136, (1, 1), padding=0, blend=(0.5, -2.0)),
    "TF32, groups": convolution(IMPLICIT, (2, 64, 16, 15), 160, (1, 1), padding=0, groups=2),
    "TF32, odd pixels": convolution(IMPLICIT, (3, 36, 7, 9), 72, (1, 1), padding=0, blend=(-1.75, 0.0)),
    "TF32, odd pixels, blended": convolution(PRECOMPUTED, (2, 100, 5, 7), 136, (1, 1), padding=0, blend=(0.5, -2.0)),
    "TF32, pairs of pixels": convolution(IMPLICIT, (2, 40, 5, 10), 40, (1, 1), padding=0),
    "TF32, odd pixels of a volume": convolution(IMPLICIT, (2, 32, 3, 3, 5), 33, (1, 1, 1), padding=0),
}


BY_TMA_TILE = [
    pytest.param(operation, kernel, id=f"{name}-{named(kernel)}")
    for name, (operation, nchw) in STREAMED.items()
    for kernel in TMA
    if kernel.nchw == nchw and not kernel.transposed
] + [
    pytest.param(operation, kernel, id=f"{name}-{named(kernel)}")
    for name, operation in IN_PLANES.items()
    for kernel in TMA
    if kernel.transposed
]


@pytest.mark.parametrize("operation, kernel", BY_TMA_TILE)
def test_every_tile_that_tma_feeds(two_multiprocessors, operation, kernel):
    assert kernels(check(two_multiprocessors, operation, kernel.name)) == [kernel.entry]


ONE_TAP = (3, 40, 6, 5), 48, (1, 1)


@pytest.mark.parametrize("operation, kind", [
    (convolution(IMPLICIT, *ONE_TAP, data_type=HALF, layout=NHWC, padding=0), TiledMap),
    (convolution(IMPLICIT, (3, 40, 1, 1), 48, (1, 1), data_type=HALF, layout=NHWC, padding=0), TiledMap),
    (convolution(IMPLICIT, *ONE_TAP, data_type=HALF, layout=NHWC, padding=0, stride=2), Im2colMap),
    (convolution(IMPLICIT, *ONE_TAP, data_type=HALF, layout=NHWC, padding=1), Im2colMap)],
    ids=["one tap", "one pixel", "stride", "padding"])  # fmt: skip
def test_a_tap_that_meets_every_pixel_is_read_in_rows_of_pixels(two_multiprocessors, operation, kind):
    launch, _ = check(two_multiprocessors, operation, TMA[2].name).steps[0]
    assert type(launch.maps[0][3]) is kind


@pytest.mark.parametrize("x, filters, taps, tile", [
    ((32, 1024, 7, 7), 1024, (3, 3), "128x128"), ((128, 64, 27, 27), 192, (5, 5), "128x192"),
    ((32, 704, 7, 7), 128, (1, 1), "128x64"), ((64, 512, 7, 7), 2048, (1, 1), "128x256")], ids=str)  # fmt: skip
def test_the_tile_fills_the_multiprocessors(backend, monkeypatch, x, filters, taps, tile):
    """Many channels on small images make few tiles, so the chosen tiles are smaller. 192 filters fill a tile of 192."""
    monkeypatch.setattr(backend.device, "multiprocessors", 132)
    operation = convolution(IMPLICIT, x, filters, taps, data_type=HALF, layout=NHWC, padding=taps[0] // 2)
    (product,) = ConvolutionProblem(operation, backend.device).products
    assert preferred_kernel(product).name.endswith(f"tma_{tile}")


@pytest.mark.parametrize(
    "count, k_blocks, shared", [(3136, 1, True), (3137, 2, True), (500, 1, False), (100, 1, False), (3136, 36, False)]
)
def test_blocks_share_tiles(count, k_blocks, shared):
    """Every tile is computed once, also if K is short and later blocks take the last tiles."""
    shares = share_tiles(TMA[0], count, k_blocks, 132)
    first = [range(block, shares.first_end, shares.first_blocks) for block in range(shares.first_blocks)]
    starts = range(shares.first_end, count, shares.later)
    later = [range(start, min(count, start + shares.later)) for start in starts]
    assert sorted(tile for block in (*first, *later) for tile in block) == list(range(count))
    assert shares.blocks == len(first) + len(later)
    assert bool(later) == shared


@pytest.mark.parametrize("kernel", TMA, ids=named)
@pytest.mark.parametrize("later", [2, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 3))])
def test_later_blocks_may_take_few_tiles(two_multiprocessors, kernel, later):
    """Results are right if later blocks take only a few tiles each, with and without beta."""
    sharing = Sharing(min_tiles=1, later_results=later * kernel.m * kernel.n)
    other = TmaKernel(
        kernel.m, kernel.n, kernel.consumers, kernel.stages, kernel.throughput,
        nchw=kernel.nchw, transposed=kernel.transposed, sharing=sharing,
    )  # fmt: skip
    image, result = (NCHW if nchw else NHWC for nchw in (kernel.transposed, kernel.nchw))
    for blend in ((1.0, 0.0), (0.5, -2.0)):
        operation = convolution(
            IMPLICIT, (11, 64, 8, 32), 136, (1, 1), data_type=HALF, layout=image, result=result, padding=0, blend=blend
        )
        problem = ConvolutionProblem(operation, two_multiprocessors.device)
        plan = check(two_multiprocessors, operation, made=Plan(operation, [other.launch(problem.products[0])]))
        ((launch, _),) = plan.steps
        assert launch.function.name == kernel.entry and launch.grid[0] > 2


SHARED = {  # Each entry has an operation, and the tiles that serve it: all of a kind, or one.
    "taps": (convolution(IMPLICIT, (3, 136, 7, 9), 136, (3, 2), data_type=HALF, layout=NHWC, blend=(-1.75, 0.0)), "tma_1 tma_2"),
    "rows of pixels, TF32": (convolution(IMPLICIT, (4, 260, 7, 9), 136, (1, 1), layout=NHWC, padding=0), "tma_128x64"),
    "odd filters, blended": (
        convolution(IMPLICIT, (2, 72, 9, 8), 139, (3, 3), data_type=HALF, layout=NHWC, blend=(0.5, -2.0)), "tma_128x64",
    ),
    "blended": (
        convolution(IMPLICIT, (2, 72, 9, 8), 136, (3, 3), data_type=HALF, layout=NHWC, blend=(0.5, -2.0)), "tma_128x64 tma_128x256",
    ),
    "groups": (convolution(IMPLICIT, (2, 128, 8, 9), 144, (3, 3), data_type=BFLOAT16, layout=NHWC, groups=2), "tma_128x64"),
    "volumes": (convolution(IMPLICIT, (2, 72, 3, 4, 5), 40, (2, 3, 2), data_type=HALF, layout=NHWC), "tma_128x64"),
    "planes": (convolution(IMPLICIT, (5, 72, 4, 16), 136, (3, 3), data_type=HALF, layout=NHWC, result=NCHW, blend=(0.5, -1.5)), "tma_nchw"),
    "x in NCHW": (convolution(IMPLICIT, (3, 584, 8, 8), 136, (1, 1), data_type=HALF, padding=0), "tma_transposed"),
    "x in NCHW, TF32": (convolution(IMPLICIT, (3, 292, 8, 7), 136, (1, 1), padding=0), "tma_transposed_256"),
    "odd pixels, TF32": (
        convolution(IMPLICIT, (3, 292, 7, 9), 136, (1, 1), padding=0, blend=(0.5, -2.0)), "tma_transposed_256",
    ),
}  # fmt: skip
DIVISIONS = {"two parts": (2, 0), "five parts": (5, 0), "a round before": (2, 2)}  # parts per tile, tiles before


@pytest.mark.parametrize(
    "operation, kernel, division",
    [
        pytest.param(operation, kernel, division, id=f"{name}-{named(kernel)}-{kind}", marks=[pytest.mark.long] * rare)
        for name, (operation, wanted) in SHARED.items()
        for kernel in TMA
        if any(f"_{each}" in kernel.name for each in wanted.split())
        for i, (kind, division) in enumerate(DIVISIONS.items())
        for rare in (i != kernel.n // 64 % 3,)
    ],
)
def test_blocks_share_the_k_of_a_tile(backend, operation, kernel, division):
    """The last block to come adds all parts. The device checks that it leaves counters of 0."""
    (product,) = ConvolutionProblem(operation, backend.device).products
    assert kernel.serves(product)
    (parts, alone), tiles, count = division, kernel.all_tiles(product), k_blocks(product)
    alone = min(alone, tiles - 1)
    shares = Shares.of(tiles - alone, count, min(parts, count) * (tiles - alone))
    divided = copy(kernel)
    divided.division = lambda *_: shares._replace(unsplit=alone, lone=alone, k_blocks=count)
    plan = check(backend, operation, made=Plan(operation, [divided.launch(product)]))
    assert plan.scratch_bytes == shares.slots * kernel.m * kernel.n * 4


@pytest.mark.parametrize("x, filters, taps, chosen", [
    ((8, 1280, 8, 8), 1280, 3, "128x128"), ((2, 320, 7, 7), 64, 3, "128x64"),
    ((64, 512, 7, 7), 512, 3, None), ((16, 768, 1, 1), 32, 1, None)], ids=str)  # fmt: skip
def test_few_tiles_of_much_k_are_divided(backend, monkeypatch, x, filters, taps, chosen):
    """Blocks share K where it is long and tiles are few, at level ``run`` alone."""
    monkeypatch.setattr(backend.device, "multiprocessors", 132)
    operation = convolution(IMPLICIT, x, filters, (taps, taps), data_type=HALF, layout=NHWC, padding=taps // 2)
    (product,) = ConvolutionProblem(operation, backend.device).products
    kernel = preferred_kernel(product)
    division = kernel.division(product)
    assert (division is not None) == (chosen is not None)
    if chosen:
        assert kernel.name.endswith(f"tma_{chosen}") and division.blocks <= 132
        assert kernel.division(replace(product, divides=False)) is None
        orders = {kernel.summation_order(replace(product, divides=shared)) for shared in (True, False)}
        assert len(orders) == 1 + (division is not None)
        (other,) = ConvolutionProblem(operation, at_level(backend.device, BATCH)).products
        assert kernel.division(other) is None


def test_tma_reads_nchw_in_place_if_planes_fill_boxes(backend):
    """TMA reads NCHW in place for 1 x 1 filters on tensor cores, if planes are whole vectors and fill most of a box."""

    def solver(x=(3, 64, 8, 8), filters=64, taps=(1, 1), algo=IMPLICIT, **options):
        operation = convolution(algo, x, filters, taps, **{"data_type": HALF, "padding": 0, **options})
        return check(backend, operation).solver

    for others in ({"algo": PRECOMPUTED}, {"blend": (1.0, -0.5)}, {"data_type": FLOAT}):
        assert "tma_transposed" in solver(**others), others
    for planes in ((7, 7), (5, 10), (4, 4)):
        assert "tma_transposed" in solver((3, 64, *planes), data_type=FLOAT), planes
    for others in (
        {"data_type": FLOAT, "math": FMA}, {"stride": 2}, {"padding": 1}, {"taps": (1, 2)}, {"result": NHWC}, {"x": (3, 60, 8, 8)},
        {"x": (3, 16, 8, 8)}, {"x": (3, 64, 7, 7)}, {"x": (3, 64, 4, 4)}, {"x": (3, 64, 8, 8), "groups": 2},
        {"data_type": FLOAT, "x": (3, 63, 7, 7)}, {"data_type": FLOAT, "x": (3, 64, 3, 3)},
    ):  # fmt: skip
        assert "transposed" not in solver(**others), others


def test_boxes_do_not_reach_across_images(backend):
    """A box of 64 pixels does not fit into an image of 40 pixels, so TMA cannot write NCHW."""
    product = ConvolutionProblem(STREAMED["planes, odd"][0], backend.device).products[0]
    assert not any(kernel.serves(product) for kernel in TMA if kernel.nchw and not kernel.transposed)


@pytest.mark.parametrize("alpha2", [0.0, 0.75], ids=["bias", "bias and addition"])
@pytest.mark.parametrize("kernel", TMA, ids=named)
def test_tma_kernels_add_bias_and_relu(backend, kernel, alpha2):
    """The fused operation is right in NCHW and NHWC, with more filters than a tile, and groups that end inside one."""
    layout = NCHW if kernel.nchw else NHWC
    for channels, filters, groups in ((72, 272, 1), (128, 96, 2)):
        image, taps, padding = (NCHW, (1, 1), 0) if kernel.transposed else (NHWC, (3, 3), 1)
        plain = convolution(
            IMPLICIT, (3, channels, 4, 16), filters, taps, data_type=HALF, layout=image, result=layout, groups=groups,
            padding=padding, filter_layout=NHWC,
        )  # fmt: skip
        z = TensorSpec.packed(HALF, plain.y.dims, layout)
        bias = TensorSpec.packed(HALF, (1, filters, 1, 1))
        relu = ActivationSpec(
            cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0
        )
        fused = ConvolutionBiasActivationForward(
            plain.convolution, relu, IMPLICIT, 0, 0.5, alpha2, plain.x, plain.w, z, bias, plain.y
        )
        assert kernels(check(backend, fused, kernel.name)) == [kernel.entry]


@pytest.mark.parametrize(
    "operation",
    [
        convolution(IMPLICIT, (1, 72, 9, 40), 8, (3, 3), data_type=HALF, layout=NHWC, stride=9, padding=1),
        convolution(IMPLICIT, (1, 72, 5, 200), 8, (1, 2), data_type=HALF, layout=NHWC, dilation=150, padding=0),
        convolution(IMPLICIT, (1, 40, 5, 6), 8, (3, 3), data_type=HALF, layout=NHWC, groups=2),
    ],
    ids=["stride", "dilation", "part of a row of channels"],
)
def test_other_solvers_serve_if_tma_cannot_read_x(backend, operation):
    assert "tma" not in check(backend, operation).solver


# --- NHWC copies ---

TRANSPOSED = {  # Each entry has an operation, and whether a second kernel transposes its result to NCHW.
    "odd planes": (convolution(PRECOMPUTED, (2, 16, 7, 9), 24, (3, 3), data_type=HALF), True),
    "odd planes, TF32": (convolution(PRECOMPUTED, (3, 8, 5, 7), 34, (3, 3), blend=(-0.5, 0.0)), True),
    "odd planes, groups": (convolution(PRECOMPUTED, (1, 128, 5, 7), 128, (3, 3), data_type=BFLOAT16, groups=2), True),
    "volumes": (convolution(PRECOMPUTED, (2, 16, 3, 5, 7), 24, (3, 3, 3), data_type=HALF), True),
    "blended": (convolution(PRECOMPUTED, (2, 16, 7, 9), 24, (3, 3), data_type=HALF, blend=(1.0, 0.5)), False),
    "even planes": (convolution(PRECOMPUTED, (2, 16, 8, 16), 24, (3, 3), data_type=HALF), False),
    "channels innermost": (convolution(PRECOMPUTED, (2, 16, 7, 9), 24, (3, 3), data_type=HALF, result=NHWC), False),
}  # fmt: skip


@pytest.mark.parametrize("operation, transposed", TRANSPOSED.values(), ids=TRANSPOSED)
def test_results_that_pass_through_the_workspace(backend, operation, transposed):
    plan = check(backend, operation)
    assert plan.solver == ("convolution.pack_nhwc" if transposed else plan.solver)
    assert kernels(plan)[-1].startswith("transform_") == transposed


def test_no_copy_has_2_to_31_elements(backend):
    """The copy of x has padded channels; if it had 2**31 elements or more, the kernel gathers x instead."""
    needed = [
        backend.workspace_bytes(convolution(PRECOMPUTED, (n, 9, 512, 512), 64, (3, 3), data_type=HALF))
        for n in (511, 512)
    ]
    assert needed[0] > 511 * 512 * 512 * 16 * 2 and needed[1] < 2048


# --- few channels ---

FEW = {
    "words, channels last": convolution(IMPLICIT, (2, 3, 21, 70), 40, (5, 5), data_type=HALF, layout=NHWC, stride=2, padding=2),
    "words, planes": convolution(IMPLICIT, (2, 2, 21, 72), 40, (3, 4), data_type=HALF, stride=2, padding=1),
    "elements, channels last": convolution(IMPLICIT, (1, 3, 7, 67), 8, (3, 3), data_type=HALF, layout=NHWC),
    "elements, planes, flipped": backwards(convolution(IMPLICIT, (1, 3, 6, 40), 8, (3, 3), data_type=BFLOAT16, blend=(0.5, 2.0))),
    "gaps between groups": convolution(IMPLICIT, (1, 8, 6, 40), 8, (3, 3), data_type=HALF, layout=NHWC, groups=2),
    "vectors": convolution(IMPLICIT, (2, 24, 6, 9), 40, (3, 3), data_type=HALF, layout=NHWC, blend=(0.5, 2.0)),
    "vectors with gaps": convolution(IMPLICIT, (1, 16, 9, 20), 58, (2, 3), data_type=BFLOAT16, layout=NHWC, stride=2, dilation=2),
    "vectors, flipped": backwards(convolution(IMPLICIT, (1, 8, 5, 34), 9, (3, 3), data_type=HALF, layout=NHWC)),
    "many words": convolution(IMPLICIT, (1, 58, 3, 40), 116, (1, 1), data_type=HALF, layout=NHWC, padding=0),
    "TF32": convolution(IMPLICIT, (1, 3, 7, 66), 68, (3, 3), layout=NHWC),
    "gaps between rows": with_pitch(convolution(IMPLICIT, (2, 3, 6, 37), 8, (3, 3), data_type=HALF, stride=2), 48),
    "volume": convolution(IMPLICIT, (1, 2, 4, 5, 40), 8, (3, 3, 3), result=NHWC, padding=2, stride=2),
}  # fmt: skip


@pytest.mark.parametrize("operation", FEW.values(), ids=FEW)
@pytest.mark.parametrize("rows, columns", [(1, 32), (2, 32), (1, 1000), (3, 1000), (1000, 1000)])
def test_every_tile_of_few_channels(backend, operation, rows, columns):
    """One block computes all tiles; the last ones are partial."""
    for filters, narrow in product(small_channels.FILTERS, (False, True)):
        free = small_channels.Geometry(operation, 1, filters)
        tile = small_channels.Tile(min(rows, free.outputs[1]), min(columns, free.outputs[2]))
        found = small_channels.Geometry(operation, 1, filters, only=tile, narrow=narrow)
        if not found.has_kernel:
            continue
        launch = small_channels.small_channels_launch(found, backend.device)
        check(backend, operation, made=Plan(operation, [launch]))


@pytest.mark.parametrize(
    "filters, channels, badly", [(480, 80, False), (96, 48, False), (24, 144, True), (116, 116, True), (232, 20, True)]
)
def test_rows_of_few_or_odd_channels_suit_tma_badly(filters, channels, badly):
    """TMA was faster on an H200 from 48 channels and filters on, unless their rows are not a multiple of 16 bytes."""
    assert small_channels.suits_tma_badly(FilterSpec(HALF, NHWC, (filters, channels, 1, 1))) is badly
