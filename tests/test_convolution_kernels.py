"""Forward convolution on the emulated device: the kernel that should serve a call does, slices and unaligned memory
change nothing, workspaces and the expected ranking make sense. The documented behaviour is in conformance/cases."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from dualdnn.accelerated import AcceleratedBackend
from dualdnn.accelerated.convolution import cost_model as convolution_estimate
from dualdnn.accelerated.convolution import fft as convolution_fft
from dualdnn.accelerated.convolution import implicit_gemm as convolution_gemm
from dualdnn.accelerated.convolution import implicit_gemm_tma as convolution_warp_specialized
from dualdnn.accelerated.convolution import small_channels as convolution_few_channels
from dualdnn.accelerated.convolution import tiny as convolution_small
from dualdnn.accelerated.convolution import winograd as convolution_winograd
from dualdnn.accelerated.convolution.problem import describe, in_words, mark_packs, positions_in_packs
from dualdnn.accelerated.runtime.errors import DeviceError
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnConvolutionMode_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnReorderType_t,
)
from dualdnn.api.operations import (
    ActivationSpec,
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    ConvolutionSpec,
    FilterSpec,
    TensorSpec,
)
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32, NCHW, NHWC, UINT8
from dualdnn.conformance.trial import PATTERN, prepare
from dualdnn.reference import judge

IMPLICIT, PRECOMPUTED, EXPLICIT, _, FFT, FFT_TILING, WINOGRAD, NONFUSED = cudnnConvolutionFwdAlgo_t
FMA, DEFAULT = cudnnMathType_t.CUDNN_FMA_MATH, cudnnMathType_t.CUDNN_DEFAULT_MATH
MARGIN = 64  # bytes around operands
UNALIGNED = 2  # elements beyond a multiple of 16 bytes


@pytest.fixture(params=(0, 1, 7), ids=lambda seed: f"thread order {seed}")
def backend(request, monkeypatch):
    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made.device, "seed", request.param)
    monkeypatch.setattr(made, "plans", {})
    return made


def convolution(
    algo, x, filters, taps, *, data_type=FLOAT, layout=NCHW, result=None, filter_layout=None, stride=1, dilation=1, groups=1,
    padding=1, math=DEFAULT, blend=(1.0, 0.0),
):  # fmt: skip
    rank = len(taps)
    integer = data_type in (INT8, UINT8)
    w_type, y_type, compute = (INT8, FLOAT, INT32) if integer else (data_type, data_type, data_type)
    if data_type in (HALF, BFLOAT16):
        compute = FLOAT
    spec = ConvolutionSpec(
        cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, compute, (padding,) * rank, (stride,) * rank, (dilation,) * rank,
        groups, math, cudnnReorderType_t.CUDNN_DEFAULT_REORDER,
    )  # fmt: skip
    w = FilterSpec(w_type, layout if filter_layout is None else filter_layout, (filters, x[1] // groups, *taps))
    y = TensorSpec.packed(y_type, spec.output_dims(x, w.dims), layout if result is None else result)
    return ConvolutionForward(spec, algo, 0, *blend, TensorSpec.packed(data_type, x, layout), w, y)


def backwards(operation):
    """The filter backwards."""
    spec = replace(operation.convolution, mode=cudnnConvolutionMode_t.CUDNN_CONVOLUTION)
    return replace(operation, convolution=spec)


def with_pitch(operation, pitch):
    """Rows of x that lie ``pitch`` elements apart."""
    x = operation.x
    strides = (x.dims[1] * x.dims[2] * pitch, x.dims[2] * pitch, pitch, 1)
    return replace(operation, x=TensorSpec(x.data_type, x.dims, strides))


def run(backend, operation, unaligned=False):
    """(verdict, names of the kernels that ran)."""
    operation = replace(operation, workspace_bytes=backend.workspace_bytes(operation))
    before = prepare(operation, "normal", 0)
    operands, buffers = [], {}
    for name in operation.operands:
        size = before[name].size
        step = 1 if name in operation.raw else operation.tensor(name).scalar_bytes
        start = MARGIN + (UNALIGNED * step if unaligned else 0)
        whole = np.full(start + size + MARGIN, PATTERN, np.uint8)
        whole[start : start + size] = before[name]
        buffers[name] = (backend.to_device(whole), start)
        operands.append(buffers[name][0].slice(start, size) if size else None)
    backend.prepare(operation)(operands, None)
    after = {}
    for name, (buffer, start) in buffers.items():
        now, size = buffer.to_host(np.uint8, buffer.nbytes), before[name].size
        assert (now[:start] == PATTERN).all() and (now[start + size :] == PATTERN).all(), name
        after[name] = now[start : start + size].copy()
    launches = [launch for launch, _ in backend.plans[operation].steps]
    return judge(operation, before, after), [launch.function.name for launch in launches]


def check(backend, operation, unaligned=False):
    verdict, names = run(backend, operation, unaligned)
    assert verdict.agrees, verdict.explanation()
    assert not verdict.mistrusted
    return names


SMALL, IMAGE = (2, 3, 6, 7), (1, 72, 5, 6)  # 72 channels x 9: more rounds than stages of the tensor cores' ring
VOLUME = (1, 72, 3, 5, 6)
SERVED = {
    "few filters": (convolution(IMPLICIT, SMALL, 5, (3, 3), math=FMA), "gemm_16x256"),
    "some filters": (convolution(IMPLICIT, (1, 3, 6, 7), 20, (3, 3), math=FMA), "planes_"),
    "some filters, many positions": (convolution(IMPLICIT, SMALL, 20, (3, 3), math=FMA), "planes_"),
    "many filters": (convolution(IMPLICIT, SMALL, 200, (3, 3), math=FMA), "planes_"),
    "many taps": (convolution(IMPLICIT, (2, 3, 4, 33), 20, (2, 31), padding=1, math=FMA), "gemm_64x64"),
    "channels last": (convolution(IMPLICIT, (2, 8, 8, 8), 200, (3, 3), layout=NHWC, math=FMA), "rows_"),
    "channels last, few positions": (
        convolution(IMPLICIT, (2, 20, 5, 5), 70, (3, 3), layout=NHWC, math=FMA), "rows_"
    ),
    "channels last, half": (convolution(IMPLICIT, (2, 16, 8, 8), 200, (3, 3), layout=NHWC, data_type=HALF, math=FMA), "gemm_128x128"),
    "planes": (convolution(PRECOMPUTED, (2, 20, 8, 8), 20, (1, 1), padding=0, math=FMA), "planes_"),
    "planes, half": (convolution(IMPLICIT, (1, 5, 4, 6), 20, (1, 1), padding=0, data_type=HALF, math=FMA), "gemm_64x64"),
    "planes, double": (convolution(PRECOMPUTED, (2, 5, 3, 6), 5, (1, 1), padding=0, data_type=DOUBLE), "gemm_16x256"),
    "double": (convolution(IMPLICIT, SMALL, 130, (3, 3), data_type=DOUBLE), "gemm_64x64"),
    "words": (convolution(IMPLICIT, (2, 8, 8, 8), 200, (3, 3), data_type=INT8, layout=NHWC), "gemm_128x128"),
    "unsigned words": (convolution(IMPLICIT, (2, 8, 5, 5), 8, (3, 3), data_type=UINT8, layout=NHWC), "gemm_16x256"),
    "bytes": (convolution(IMPLICIT, (2, 8, 5, 5), 72, (3, 3), data_type=UINT8, layout=NHWC, groups=4), "gemm_64x64"),
    "half": (convolution(IMPLICIT, IMAGE, 40, (3, 3), data_type=HALF, layout=NHWC), "specialized_"),
    "half, many filters": (convolution(IMPLICIT, IMAGE, 256, (3, 3), data_type=HALF, layout=NHWC), "specialized_"),
    "half, volume, 64 filters": (convolution(IMPLICIT, VOLUME, 40, (3, 3, 3), data_type=HALF, layout=NHWC), "tensor_core_packs_64"),
    "half, volume, 128 filters": (convolution(IMPLICIT, VOLUME, 72, (1, 1, 1), data_type=HALF, layout=NHWC), "tensor_core_packs_128"),
    "half, volume, 256 filters": (convolution(IMPLICIT, VOLUME, 256, (3, 3, 3), data_type=HALF, layout=NHWC), "tensor_core_packs_256"),
    "half, planes": (convolution(IMPLICIT, IMAGE, 40, (3, 3), data_type=HALF), "tensor_core_values_64"),
    "half, planes, many": (convolution(IMPLICIT, IMAGE, 72, (3, 3), data_type=HALF), "tensor_core_values_128"),
    "TF32": (convolution(IMPLICIT, IMAGE, 72, (3, 3), layout=NHWC, result=NCHW), "specialized_"),
    "TF32, volume": (convolution(IMPLICIT, VOLUME, 72, (3, 3, 3), layout=NHWC, result=NCHW), "tensor_core_packs_128"),
    "TF32, planes": (convolution(IMPLICIT, IMAGE, 40, (3, 3)), "tensor_core_values_64"),
    "copies": (convolution(PRECOMPUTED, (1, 12, 6, 7), 40, (3, 3), data_type=HALF), "repack_image"),
    "copies, TF32": (convolution(PRECOMPUTED, (1, 20, 6, 7), 40, (3, 3), groups=2), "repack_image"),
    "copy of the filter": (
        convolution(PRECOMPUTED, (1, 16, 6, 7), 8, (3, 3), layout=NHWC, filter_layout=NCHW), "repack_filter"
    ),
    "few channels": (convolution(PRECOMPUTED, (2, 3, 9, 17), 40, (7, 7), data_type=HALF, stride=2), "few_channels_words_positions_64"),
    "few channels, odd distances": (
        convolution(IMPLICIT, (2, 1, 9, 8), 5, (3, 3), data_type=HALF, layout=NHWC), "few_channels_elements_filters_32"
    ),
    "few channels, odd distances, planes": (
        convolution(IMPLICIT, (2, 3, 9, 8), 72, (3, 3), data_type=BFLOAT16), "few_channels_elements_positions_64"
    ),
    "few channels, TF32": (
        convolution(PRECOMPUTED, (1, 6, 9, 8), 72, (3, 5), layout=NHWC, filter_layout=NCHW, groups=2, dilation=2),
        "few_channels_words_filters_64",
    ),
    "few channels, TF32, planes": (convolution(IMPLICIT, (1, 3, 9, 8), 8, (3, 3)), "few_channels_words_positions_32"),
    "few channels, volume": (
        convolution(PRECOMPUTED, (1, 4, 5, 4, 6), 20, (2, 3, 2), data_type=HALF, layout=NHWC, groups=2), "few_channels_words_filters_32"
    ),
    "few channels, one tap": (convolution(PRECOMPUTED, SMALL, 40, (1, 1), data_type=HALF), "few_channels_elements_positions_64"),
    "few channels, filters too large": (
        convolution(IMPLICIT, (1, 3, 40, 40), 40, (37, 40), data_type=HALF, padding=0), "tensor_core_values_64"
    ),
    "depthwise, planes": (convolution(IMPLICIT, (2, 6, 9, 7), 6, (3, 3), groups=6), "depthwise_strips"),
    "depthwise, stride 2": (convolution(IMPLICIT, (2, 6, 9, 7), 6, (3, 3), groups=6, stride=2), "depthwise_strips"),
    "depthwise, channels": (
        convolution(IMPLICIT, (2, 6, 9, 7), 6, (3, 3), groups=6, data_type=HALF, layout=NHWC), "depthwise_strips"
    ),
    "depthwise, dilated": (
        convolution(PRECOMPUTED, (2, 8, 9, 7), 8, (3, 3), groups=8, layout=NHWC, filter_layout=NHWC, dilation=2),
        "depthwise_channels",
    ),
    "depthwise, volume": (convolution(IMPLICIT, (1, 4, 4, 5, 6), 4, (2, 3, 3), groups=4), "depthwise_columns"),
    "explicit": (convolution(EXPLICIT, SMALL, 5, (3, 3), math=FMA), "convolution_matrix"),
    "transform": (convolution(FFT, SMALL, 5, (3, 3), math=FMA), "fft_results"),
    "Winograd": (convolution(WINOGRAD, (1, 9, 7, 6), 34, (3, 3), math=FMA), "winograd_fused"),
    "Winograd, nonfused 3 x 3": (convolution(NONFUSED, SMALL, 5, (3, 3), math=FMA), "winograd_results"),
    "Winograd, nonfused 5 x 5": (convolution(NONFUSED, SMALL, 5, (5, 5), padding=2, math=FMA), "winograd_results"),
}  # fmt: skip


@pytest.mark.parametrize("operation, kernel", SERVED.values(), ids=SERVED)
def test_the_intended_kernel_serves(backend, operation, kernel):
    assert any(name.startswith(kernel) for name in check(backend, replace(operation, beta=0.5)))


@pytest.mark.parametrize("operation, kernel", SERVED.values(), ids=SERVED)
def test_operands_may_begin_at_any_element(backend, operation, kernel):
    assert any(name.startswith(kernel) for name in check(backend, operation, unaligned=True))


STREAMED = {  # operation, whether TMA writes y in planes
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
    "planes, blended": (convolution(IMPLICIT, (5, 72, 4, 16), 72, (3, 3), data_type=HALF, layout=NHWC, result=NCHW, blend=(0.5, -1.5)), True),
    "one tap": (convolution(IMPLICIT, (5, 64, 24, 22), 64, (1, 1), data_type=HALF, layout=NHWC, padding=0, blend=(1.0, 1.0)), False),
    "two rounds": (convolution(IMPLICIT, (5, 64, 24, 22), 40, (1, 1), layout=NHWC, padding=0), False),
    "planes, one image": (convolution(IMPLICIT, (1, 72, 9, 8), 72, (3, 3), data_type=HALF, layout=NHWC, result=NCHW), True),
    "planes, TF32": (convolution(IMPLICIT, (7, 36, 8, 8), 70, (3, 3), layout=NHWC, result=NCHW), True),
    "planes, groups": (convolution(IMPLICIT, (5, 128, 16, 8), 160, (3, 3), data_type=HALF, layout=NHWC, result=NCHW, groups=2), True),
    "backwards": (backwards(convolution(IMPLICIT, (2, 72, 6, 5), 64, (3, 3), data_type=HALF, layout=NHWC)), False),
}  # fmt: skip
TURNED = {  # x and y in planes, which are read as they are
    "1 x 1": convolution(IMPLICIT, (3, 72, 8, 8), 72, (1, 1), data_type=HALF, padding=0, blend=(-1.75, 0.0)),
    "whole boxes": convolution(IMPLICIT, (2, 40, 8, 14), 200, (1, 1), data_type=BFLOAT16, padding=0),
    "precomputed": convolution(PRECOMPUTED, (5, 136, 7, 8), 130, (1, 1), data_type=HALF, padding=0),
    "groups": convolution(IMPLICIT, (2, 128, 16, 15), 160, (1, 1), data_type=HALF, padding=0, groups=2),
    "one image": convolution(IMPLICIT, (1, 64, 8, 7), 128, (1, 1), data_type=HALF, padding=0),
    "volume": convolution(IMPLICIT, (2, 64, 4, 4, 6), 64, (1, 1, 1), data_type=HALF, padding=0),
    "blended": convolution(IMPLICIT, (2, 72, 8, 7), 136, (1, 1), data_type=HALF, padding=0, blend=(0.5, -2.0)),
    "TF32": convolution(IMPLICIT, (3, 36, 8, 7), 72, (1, 1), padding=0, blend=(-1.75, 0.0)),
    "TF32, blended": convolution(PRECOMPUTED, (2, 292, 4, 7), 136, (1, 1), padding=0, blend=(0.5, -2.0)),
    "TF32, groups": convolution(IMPLICIT, (2, 64, 16, 15), 160, (1, 1), padding=0, groups=2),
}
BY_TILE = [
    pytest.param(operation, tile, id=f"{name}-{tile.kernel}")
    for name, (operation, planes) in STREAMED.items()
    for tile in convolution_warp_specialized.TILES
    if tile.planes == planes and not tile.turned
] + [
    pytest.param(operation, tile, id=f"{name}-{tile.kernel}")
    for name, operation in TURNED.items()
    for tile in convolution_warp_specialized.TILES
    if tile.turned
]


@pytest.mark.parametrize("operation, tile", BY_TILE)
def test_every_tile_of_the_copy_engine(monkeypatch, operation, tile):
    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made.device, "seed", 5)
    monkeypatch.setattr(made.device, "multiprocessors", 2)  # several tiles for a block
    monkeypatch.setattr(made, "plans", {})
    monkeypatch.setattr(convolution_warp_specialized, "TILES", (tile,))
    assert check(made, operation) == [tile.kernel]


@pytest.mark.parametrize(
    "count, rounds, shared", [(3136, 1, True), (3137, 2, True), (500, 1, False), (100, 1, False), (3136, 36, False)]
)
def test_blocks_share_tiles(count, rounds, shared):
    """Every tile once, also where later blocks take the last ones: of tiles that are mostly written, if there are enough."""
    tile = convolution_warp_specialized.TILES[0]
    shares = convolution_warp_specialized.share_tiles(tile, count, rounds, 132)
    first = [range(block, shares.first_end, shares.first_blocks) for block in range(shares.first_blocks)]
    starts = range(shares.first_end, count, shares.later)
    later = [range(start, min(count, start + shares.later)) for start in starts]
    assert sorted(tile for block in (*first, *later) for tile in block) == list(range(count))
    assert shares.blocks == len(first) + len(later)
    assert bool(later) == shared


@pytest.mark.parametrize("tile", convolution_warp_specialized.TILES, ids=lambda tile: tile.kernel)
@pytest.mark.parametrize("later", [1, 2, 3])
def test_later_blocks(monkeypatch, tile, later):
    """Few tiles for each of them, blended or not."""
    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made.device, "multiprocessors", 2)
    monkeypatch.setattr(made, "plans", {})
    for name, value in {
        "TILES": (tile,),
        "LEAST_TILES": 1,
        "LATER_RESULTS": later * tile.positions * tile.filters,
    }.items():
        monkeypatch.setattr(convolution_warp_specialized, name, value)
    image, result = (NCHW if planes else NHWC for planes in (tile.turned, tile.planes))
    for blend in ((1.0, 0.0), (0.5, -2.0)):
        operation = convolution(
            IMPLICIT, (11, 64, 8, 32), 136, (1, 1), data_type=HALF, layout=image, result=result, padding=0, blend=blend
        )
        assert check(made, operation) == [tile.kernel]
        ((launch, _),) = made.plans[replace(operation, workspace_bytes=0)].steps
        assert launch.grid[0] > 2


def test_which_planes_are_read_as_they_are(backend):
    """Filters of one position on whole images, multiplied by tensor cores, whose planes are packs and fill most of their boxes."""

    def kernels(x=(3, 64, 8, 8), filters=64, taps=(1, 1), algo=IMPLICIT, **options):
        return check(backend, convolution(algo, x, filters, taps, **{"data_type": HALF, "padding": 0, **options}))

    (name,) = kernels(algo=PRECOMPUTED)
    assert name.startswith("specialized_turned") and kernels(blend=(1.0, -0.5)) == [name]
    assert kernels(data_type=FLOAT) == [name]
    for others in (
        {"data_type": FLOAT, "math": FMA}, {"stride": 2}, {"padding": 1}, {"taps": (1, 2)}, {"result": NHWC}, {"x": (3, 60, 8, 8)},
        {"x": (3, 16, 8, 8)}, {"x": (3, 64, 7, 7)}, {"x": (3, 64, 4, 4)}, {"x": (3, 64, 8, 8), "groups": 2},
    ):  # fmt: skip
        assert not any("turned" in name for name in kernels(**others)), others


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


@pytest.mark.parametrize("unaligned", [False, True])
@pytest.mark.parametrize("operation", SMALL_PRODUCTS.values(), ids=SMALL_PRODUCTS)
def test_threads_for_all_products(backend, monkeypatch, operation, unaligned):
    """Where the device has so many."""
    monkeypatch.setattr(backend.device, "multiprocessors", 16)
    assert check(backend, operation, unaligned) == ["convolution_small"]
    monkeypatch.setattr(convolution_small, "RESIDENT", 0)
    backend.plans.clear()
    assert "convolution_small" not in check(backend, operation)


FEW = {
    "words, channels last": convolution(IMPLICIT, (2, 3, 21, 70), 40, (5, 5), data_type=HALF, layout=NHWC, stride=2, padding=2),
    "words, planes": convolution(IMPLICIT, (2, 2, 21, 72), 40, (3, 4), data_type=HALF, stride=2, padding=1),
    "elements, channels last": convolution(IMPLICIT, (1, 3, 7, 67), 8, (3, 3), data_type=HALF, layout=NHWC),
    "elements, planes, flipped": backwards(convolution(IMPLICIT, (1, 3, 6, 40), 8, (3, 3), data_type=BFLOAT16, blend=(0.5, 2.0))),
    "gaps between groups": convolution(IMPLICIT, (1, 8, 6, 40), 8, (3, 3), data_type=HALF, layout=NHWC, groups=2),
    "TF32": convolution(IMPLICIT, (1, 3, 7, 66), 68, (3, 3), layout=NHWC),
    "gaps between rows": with_pitch(convolution(IMPLICIT, (2, 3, 6, 37), 8, (3, 3), data_type=HALF, stride=2), 48),
    "volume": convolution(IMPLICIT, (1, 2, 4, 5, 40), 8, (3, 3, 3), result=NHWC, padding=2, stride=2),
}  # fmt: skip


@pytest.mark.parametrize("operation", FEW.values(), ids=FEW)
@pytest.mark.parametrize("rows, columns", [(1, 32), (2, 32), (1, 1000), (3, 1000), (1000, 1000)])
def test_every_tile_of_few_channels(monkeypatch, operation, rows, columns):
    """One block computes all tiles, of which the last are cut off."""

    def tiles(self):
        yield convolution_few_channels.Tile(min(rows, self.outputs[1]), min(columns, self.outputs[2]))

    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made.device, "seed", 5)
    monkeypatch.setattr(made.device, "multiprocessors", 1)
    monkeypatch.setattr(made, "plans", {})
    monkeypatch.setattr(convolution_few_channels.FewChannels, "possible_tiles", tiles)
    convolution_few_channels.geometry_of.cache_clear()
    assert check(made, operation)[0].startswith("few_channels")
    convolution_few_channels.geometry_of.cache_clear()


def test_boxes_do_not_reach_across_images(backend, monkeypatch):
    """Planes of 40 positions: no box of 64 lies in one, however long the warps take to write."""
    monkeypatch.setattr(convolution_warp_specialized, "RESULTS_OF_WARPS", 1e-6)
    assert not any("planes" in name for name in check(backend, STREAMED["planes, odd"][0]))


TURNED = {  # operation, whether its results are turned into planes by a second kernel
    "odd planes": (convolution(PRECOMPUTED, (2, 16, 7, 9), 24, (3, 3), data_type=HALF), True),
    "odd planes, TF32": (convolution(PRECOMPUTED, (3, 8, 5, 7), 34, (3, 3), blend=(-0.5, 0.0)), True),
    "odd planes, groups": (convolution(PRECOMPUTED, (2, 16, 7, 9), 48, (3, 3), data_type=BFLOAT16, groups=2), True),
    "volumes": (convolution(PRECOMPUTED, (2, 16, 3, 5, 7), 24, (3, 3, 3), data_type=HALF), True),
    "blended": (convolution(PRECOMPUTED, (2, 16, 7, 9), 24, (3, 3), data_type=HALF, blend=(1.0, 0.5)), False),
    "even planes": (convolution(PRECOMPUTED, (2, 16, 8, 16), 24, (3, 3), data_type=HALF), False),
    "channels innermost": (convolution(PRECOMPUTED, (2, 16, 7, 9), 24, (3, 3), data_type=HALF, result=NHWC), False),
}  # fmt: skip


@pytest.mark.parametrize("operation, turned", TURNED.values(), ids=TURNED)
def test_results_that_pass_through_the_workspace(backend, operation, turned):
    assert check(backend, operation)[-1].startswith("transform_transpose") == turned


@pytest.mark.parametrize("alpha2", [0.0, 0.75], ids=["bias", "bias and addition"])
@pytest.mark.parametrize("tile", convolution_warp_specialized.TILES, ids=lambda tile: tile.kernel)
def test_bias_and_relu_beside_the_copy_engine(backend, monkeypatch, tile, alpha2):
    """Results of the fused operation, in both orders of y; more filters than a tile has, groups that end within one."""
    monkeypatch.setattr(convolution_warp_specialized, "TILES", (tile,))
    layout = NCHW if tile.planes else NHWC
    for channels, filters, groups in ((72, 272, 1), (128, 96, 2)):
        image, taps, padding = (NCHW, (1, 1), 0) if tile.turned else (NHWC, (3, 3), 1)
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
        backend.plans.clear()
        served = check(backend, fused)
        assert served == [tile.kernel]


@pytest.mark.parametrize(
    "operation",
    [
        convolution(IMPLICIT, (1, 72, 9, 40), 8, (3, 3), data_type=HALF, layout=NHWC, stride=9, padding=1),
        convolution(IMPLICIT, (1, 72, 5, 200), 8, (1, 2), data_type=HALF, layout=NHWC, dilation=150, padding=0),
        convolution(IMPLICIT, (1, 40, 5, 6), 8, (3, 3), data_type=HALF, layout=NHWC, groups=2),
    ],
    ids=["stride", "dilation", "part of a row of channels"],
)
def test_what_the_copy_engine_cannot_read(backend, operation):
    assert not any("specialized" in name for name in check(backend, operation))


@pytest.mark.parametrize(
    "module, limit, operation",
    [
        (convolution_gemm, "MATRIX_BYTES", convolution(EXPLICIT, (3, 3, 9, 11), 5, (3, 3), stride=2)),
        (convolution_fft, "SLICE_BYTES", convolution(FFT_TILING, (3, 4, 9, 7), 4, (3, 3), groups=2)),
        (convolution_winograd, "SLICE_BYTES", convolution(NONFUSED, (3, 4, 9, 7), 4, (3, 3), layout=NCHW)),
    ],
    ids=["GEMM", "FFT_TILING", "WINOGRAD_NONFUSED"],
)
def test_large_images_go_slice_by_slice(backend, monkeypatch, module, limit, operation):
    needed, names = backend.workspace_bytes(operation), check(backend, operation)
    monkeypatch.setattr(module, limit, 1)
    backend.plans.clear()
    if module is convolution_gemm:
        monkeypatch.setattr(module, "LARGEST_TILE", 32)  # rows of a slice
    assert backend.workspace_bytes(operation) < needed
    assert len(check(backend, operation)) > len(names)


@pytest.mark.parametrize("algo", [IMPLICIT, PRECOMPUTED])
@pytest.mark.parametrize("groups", [1, 2])
def test_images_beyond_32_bits(backend, monkeypatch, algo, groups):
    """A tensor of more values than 32 bits count goes through several launches; a single image of so many is refused."""
    operation = convolution(algo, (5, 8 * groups, 6, 7), 5 * groups, (3, 3), data_type=INT8, layout=NHWC, groups=groups)
    names = check(backend, operation)
    image = 6 * 7 * 2 * groups  # words of four channels
    monkeypatch.setattr(convolution_gemm, "FARTHEST", 2 * image - 1)  # two images at a time
    backend.plans.clear()
    assert len(check(backend, operation)) == len(names) + 2
    monkeypatch.setattr(convolution_gemm, "FARTHEST", image - 2 * groups)
    backend.plans.clear()
    with pytest.raises(DeviceError, match="an image of x spans"):
        run(backend, operation)


def test_workspace_of_transforms():
    """FFT_TILING takes less than FFT for large images (5.1.3.10); implicit products take little or nothing."""
    backend = AcceleratedBackend("emulated")
    needed = {
        algo: backend.workspace_bytes(convolution(algo, (1, 8, 200, 200), 8, (3, 3), math=FMA))
        for algo in (IMPLICIT, PRECOMPUTED, EXPLICIT, FFT, FFT_TILING, WINOGRAD, NONFUSED)
    }
    assert needed[IMPLICIT] == 0
    assert 0 < needed[PRECOMPUTED] < needed[WINOGRAD] < needed[FFT_TILING] < needed[FFT]
    assert needed[EXPLICIT] >= prod((200, 200, 8, 3, 3)) * 4


def test_ranking():
    """Large float images: transforms beat the direct sum; half: tensor cores beat everything; 1 x 1: nothing to gain."""
    backend = AcceleratedBackend("emulated")

    def ranked(algorithms, **options):
        operations = [convolution(algo, (64, 256, 56, 56), 256, (3, 3), **options) for algo in algorithms]
        return [operation.algo for operation in backend.preferred_algorithms(operations)]

    plain = ranked((EXPLICIT, IMPLICIT, WINOGRAD, NONFUSED), math=FMA)
    assert plain[0] == NONFUSED and plain[-1] == EXPLICIT
    half = ranked((EXPLICIT, IMPLICIT, PRECOMPUTED, WINOGRAD, NONFUSED), data_type=HALF)
    assert half[0] == PRECOMPUTED
    small = [convolution(algo, (1, 16, 7, 7), 16, (1, 1), padding=0) for algo in (EXPLICIT, PRECOMPUTED, IMPLICIT)]
    assert backend.preferred_algorithms(small)[0].algo == IMPLICIT
    for operation in small:
        assert convolution_estimate.expected_seconds(operation, backend.device) > 0


@pytest.mark.parametrize("channels, taps, stride", [(3, 7, 2), (3, 3, 1), (1, 3, 1), (4, 3, 2)])
@pytest.mark.parametrize("layout", [NCHW, NHWC])
@pytest.mark.parametrize("data_type", [HALF, BFLOAT16, FLOAT])
def test_ranking_of_first_layers(channels, taps, stride, layout, data_type):
    """One kernel serves both."""
    backend = AcceleratedBackend("emulated")
    options = {"stride": stride, "padding": taps // 2, "layout": layout, "data_type": data_type}
    operations = [
        convolution(algo, (64, channels, 224, 224), 64, (taps, taps), **options)
        for algo in (IMPLICIT, PRECOMPUTED, EXPLICIT)
    ]
    assert backend.preferred_algorithms(operations)[0].algo == IMPLICIT
    assert backend.workspace_bytes(operations[1]) == 0
    expected = [convolution_estimate.expected_seconds(operation, backend.device) for operation in operations]
    assert expected[0] == expected[1] < expected[2]


def test_copies_that_32_bits_do_not_count(backend):
    """The copy of a large image has more values than the image: beyond 2**31 the values are gathered."""
    needed = [
        backend.workspace_bytes(convolution(PRECOMPUTED, (n, 9, 512, 512), 64, (3, 3), data_type=HALF))
        for n in (511, 512)
    ]
    assert needed[0] > 511 * 512 * 512 * 16 * 2 and needed[1] < 2048


def test_time_is_measured(backend):
    operation = convolution(IMPLICIT, SMALL, 5, (3, 3))
    operands = [backend.allocate(operation.nbytes(name)) for name in ("x", "w", "y")]
    assert backend.algorithm_time(operation, [*operands, None], None) > 0


def test_packs_and_words_need_every_distance_to_fit():
    def described(channels, groups=1, layout=NHWC, data_type=HALF, gap=0):
        operation = convolution(
            IMPLICIT, (1, channels, 5, 5), 4, (3, 3), data_type=data_type, layout=layout, groups=groups
        )
        x = replace(operation.x, strides=tuple(s + gap * (s > 1) for s in operation.x.strides))
        return describe(operation.convolution, x, operation.w, operation.y.dims)

    def packs(element_bytes, groups=1, **options):
        return bool(mark_packs(described(groups=groups, **options), groups, element_bytes).x_packs)

    assert packs(2, channels=16) and packs(4, channels=12, data_type=FLOAT)
    assert not packs(2, channels=12) and not packs(2, channels=16, layout=NCHW) and not packs(2, channels=16, gap=4)
    assert packs(2, channels=16, groups=2) and not packs(2, channels=24, groups=2)
    assert in_words(described(8, data_type=INT8), 1)
    assert not in_words(described(8, data_type=INT8, groups=4), 4)
    assert not in_words(described(8, data_type=INT8, gap=2), 1)


def test_positions_lie_side_by_side_in_planes():
    def neighbours(x=(2, 3, 4, 6), taps=(1, 1), width=4, turned=False, groups=1, **options):
        operation = convolution(IMPLICIT, x, 6, taps, groups=groups, **{"padding": 0, **options})
        strides = (*operation.x.strides[:2], 1, x[2]) if turned else operation.x.strides
        value = describe(operation.convolution, replace(operation.x, strides=strides), operation.w, operation.y.dims)
        return positions_in_packs(value, groups, width)

    assert neighbours() and neighbours(width=8) and neighbours(x=(2, 6, 2, 2), groups=2)
    assert neighbours(x=(1, 3, 1, 8)) and neighbours(x=(2, 4, 3, 4, 3), taps=(1, 1, 1))
    assert not neighbours(width=16) and not neighbours(x=(2, 3, 5, 6)) and not neighbours(x=(1, 3, 5, 6))
    assert not neighbours(stride=2) and not neighbours(taps=(3, 3), padding=1) and not neighbours(padding=1)
    assert not neighbours(layout=NHWC) and not neighbours(turned=True) and not neighbours(width=0)
