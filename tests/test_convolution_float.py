"""Products in float on the emulated device: every tile of every kernel, on shapes that do not fill it."""

from __future__ import annotations

import pytest
from dualdnn.accelerated import AcceleratedBackend
from dualdnn.accelerated.convolution import implicit_gemm_fp32 as convolution_float
from dualdnn.accelerated.convolution import winograd as convolution_winograd
from dualdnn.accelerated.convolution.problem import Matrices, matrix_product
from dualdnn.api.operations.specs import NCHW, NHWC
from test_convolution_kernels import EXPLICIT, FFT, FMA, IMPLICIT, NONFUSED, PRECOMPUTED, backwards, check, convolution

FLAT = Matrices(1, 1, 0)
PRODUCTS = {  # (operation, kernel)
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
    "first layer": (convolution(IMPLICIT, (2, 3, 17, 15), 66, (7, 7), math=FMA, stride=2, padding=3), "planes"),
    "planes": (convolution(PRECOMPUTED, (3, 21, 8, 8), 130, (1, 1), math=FMA, padding=0, blend=(2.0, -1.0)), "planes"),
    "planes, stride 2": (convolution(IMPLICIT, (3, 20, 9, 11), 132, (3, 3), math=FMA, stride=2), "planes"),
    "backwards": (backwards(convolution(IMPLICIT, (2, 20, 7, 6), 34, (3, 2), layout=NHWC, math=FMA, dilation=2)), "rows"),
    "matrix": (convolution(EXPLICIT, (2, 3, 9, 11), 35, (3, 3), math=FMA, blend=(-1.0, 3.0)), "rows"),
    "channels, turned filters": (
        convolution(PRECOMPUTED, (2, 20, 9, 7), 136, (3, 3), layout=NHWC, math=FMA, groups=2, blend=(0.5, 2.0)), "rows_packs"
    ),
    "planes, turned filters": (convolution(PRECOMPUTED, (2, 9, 9, 8), 140, (3, 3), math=FMA), "planes_packs"),
    "spectra": (convolution(FFT, (2, 4, 6, 7), 20, (3, 3), math=FMA), "rows"),
    "Winograd": (convolution(NONFUSED, (3, 9, 14, 15), 40, (3, 3), math=FMA), "planes_packs"),
}  # fmt: skip


TILES = dict.fromkeys(("rows", "rows_packs"), convolution_float.ROWS_TILES)
TILES |= dict.fromkeys(("planes", "planes_packs"), convolution_float.PLANES_TILES)
BY_TILE = [
    pytest.param(
        operation, f"{kernel}_{tile.filters}x{tile.positions}", tile, id=f"{name}-{tile.filters}x{tile.positions}"
    )
    for name, (operation, kernel) in PRODUCTS.items()
    for tile in TILES[kernel]
]


@pytest.mark.parametrize("unaligned", (False, True), ids=("aligned", "unaligned"))
@pytest.mark.parametrize("operation, kernel, tile", BY_TILE)
def test_every_tile(request, monkeypatch, operation, kernel, unaligned, tile):
    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made.device, "seed", 5)
    monkeypatch.setattr(made, "plans", {})
    if "turned" in request.node.name:
        monkeypatch.setattr(convolution_float, "LEAST_PRODUCTS", 0)
        monkeypatch.setattr(convolution_float, "LEAST_POSITIONS", 0)
    for tiles in ("ROWS_TILES", "PLANES_TILES"):
        monkeypatch.setattr(convolution_float, tiles, (tile,))
    assert kernel in check(made, operation, unaligned)


def test_terms_need_no_workspace():
    """Products in float find the place of every term as they go; those of few filters read it."""
    made = AcceleratedBackend("emulated")
    few, many = (convolution(PRECOMPUTED, (2, 12, 6, 7), filters, (3, 3), math=FMA) for filters in (16, 17))
    assert made.workspace_bytes(many) == 0 < made.workspace_bytes(few)
    assert [name.split("_")[0] for name in check(made, many)] == ["planes"]


@pytest.mark.parametrize("filters, packs", [(72, True), (70, False)])
def test_transformed_filters_in_packs(filters, packs):
    """Where the filters of a group are whole packs, they lie side by side."""
    made = AcceleratedBackend("emulated")
    operation = convolution(NONFUSED, (2, 20, 9, 10), filters, (3, 3), math=FMA, groups=2)
    assert convolution_winograd._filters_last(operation, made.device) == packs
    check(made, operation)


def test_tiles_fill_whole_waves():
    """On 132 multiprocessors: two blocks of 96 positions for each, where 128 positions would leave a quarter of them idle."""

    def tile(filters, positions, tiles=convolution_float.ROWS_TILES):
        chosen = convolution_float._tile(matrix_product(positions, filters, 64, FLAT, FLAT), 1, tiles, 132)
        return chosen.filters, chosen.positions

    assert tile(512, 32 * 14 * 14) == (128, 96)
    assert tile(256, 64 * 56 * 56) == (128, 128)
    assert tile(64, 64 * 56 * 56) == (64, 128)
    assert tile(20, 72) == tile(20, 72, convolution_float.PLANES_TILES) == (64, 64)
