"""How the kernels for known windows divide a call, and when they serve it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from dualdnn.accelerated.backend import AcceleratedBackend, DeviceOperand
from dualdnn.accelerated.plans import AlignedPlan, plan
from dualdnn.accelerated.pooling import max_backward as pooling_maximum
from dualdnn.accelerated.pooling import max_backward_2d as pooling_maximum_rows
from dualdnn.accelerated.pooling import max_backward_3d_nhwc as pooling_maximum_channels
from dualdnn.accelerated.pooling import max_backward_fp16 as pooling_maximum_halves
from dualdnn.accelerated.pooling import small as pooling_planes
from dualdnn.accelerated.pooling import static_forward_separable as pooling_columns
from dualdnn.accelerated.pooling import static_window as pooling_known
from dualdnn.accelerated.pooling.problem import Axis
from dualdnn.accelerated.pooling.static_window import Settings
from dualdnn.accelerated.runtime.compiler import compile_all
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.enumerations import cudnnPoolingMode_t as Mode
from dualdnn.api.operations import PoolingBackward, PoolingForward, PoolingSpec, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.trial import prepare


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch):
    """Small images have kernels of their own (test_pooling_planes.py)."""
    monkeypatch.setattr(pooling_planes, "MOST_BLOCKS", 0)


class Listing:
    """Stands for a device: notes the kernels that plans ask for."""

    multiprocessors = 132

    def __init__(self) -> None:
        self.kernels: list[tuple[str, dict[str, str]]] = []
        self.modules: set[tuple[str, Any]] = set()

    def function(self, source: str, kernel: str, definitions: Any) -> None:
        self.kernels.append((kernel, dict(definitions)))
        self.modules.add((source, definitions))


def specialised(listing: Listing) -> bool:
    """Whether the first kernel was compiled for its window, not read it at run time."""
    return not listing.kernels[0][0].startswith(("pooling_forward", "pooling_backward"))


def operation_of(
    backward: bool, mode: Mode, dims: Any, window: int, stride: int, padding: int, layout: str, data_type: Any = FLOAT
) -> Any:
    spatial = len(dims) - 2
    spec = PoolingSpec(
        mode, Nan.CUDNN_NOT_PROPAGATE_NAN, (window,) * spatial, (padding,) * spatial, (stride,) * spatial
    )
    pooled = (1 + (size + 2 * padding - window) // stride for size in dims[2:])
    x, y = laid_out(data_type, dims, layout), laid_out(data_type, (*dims[:2], *pooled), layout)
    return PoolingBackward(spec, 1.0, 0.0, y, y, x, x) if backward else PoolingForward(spec, 1.0, 0.0, x, y)


def definitions_of(operation: Any) -> tuple[str, dict[str, str], AlignedPlan]:
    listing = Listing()
    found = plan(operation, listing)
    kernel, definitions = listing.kernels[0]
    assert isinstance(found, AlignedPlan)
    return kernel, definitions, found


FEW_PLANES = Settings(128, 1, 1, 8, 1, 1, stages=2)  # of halves in rows: blocks that have some of the rows
DIMS = [
    (64, 256, 56, 56), (8, 64, 14, 14), (31, 67, 37, 41), (3, 5, 6, 62), (64, 3, 224, 224),
    (2, 24, 9, 12, 20), (8, 64, 16, 56, 56),
]  # fmt: skip


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "gaps", "chwn"])
@pytest.mark.parametrize("dims", DIMS, ids=str)
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
@pytest.mark.parametrize("window", sorted(pooling_known.WINDOWS), ids=str)
@pytest.mark.parametrize("kind", ["forward", "average", "maximum"])
def test_accesses_are_aligned(kind, window, data_type, dims, layout):
    """Every access of several elements begins at a multiple of them, and does not reach beyond its row."""
    mode = Mode.CUDNN_POOLING_MAX if kind == "maximum" else Mode.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
    operation = operation_of(kind != "forward", mode, dims, *window, layout, data_type)
    kernel, definitions, found = definitions_of(operation)
    entry = {"forward": "static_forward", "average": "static_average_backward", "maximum": "max_backward"}[kind]
    assert kernel.startswith(f"pooling_{entry}_")
    lane_bytes = int(definitions["LANE_BYTES"])
    widest = {"wide": 16, "dense": 16, "narrow": 8, "word": 4, "channels": lane_bytes}.get(kernel.rsplit("_")[-1], 0)
    for name in ("x", "y") if kind == "forward" else ("dx", "dy"):
        tensor = operation.tensor(name)
        nbytes = found.masks[operation.operands.index(name)] + 1
        assert nbytes <= max(widest, tensor.scalar_bytes)
        assert name in ("y", "dy") or nbytes == max(widest, tensor.scalar_bytes)
        pack = nbytes // tensor.scalar_bytes
        inner = [next(i for i, stride in enumerate(tensor.strides) if stride == 1 and tensor.dims[i] > 1)]
        if tensor.dims[inner[0]] % pack:  # a few channels side by side: their rows are contiguous
            inner.append(tensor.strides.index(tensor.dims[inner[0]]))
        assert prod(tensor.dims[i] for i in inner) % pack == 0
        others = [s for i, s in enumerate(tensor.strides) if i not in inner and tensor.dims[i] > 1]
        assert pack == 1 or all(stride % pack == 0 for stride in others)


@pytest.mark.parametrize(
    ("window", "layout"),
    # Compiling takes the time: one window meets every layout.
    [
        (w, lay)
        for w in sorted(pooling_known.WINDOWS)
        for lay in ("nchw", "nhwc", "gaps")
        if lay != "gaps" or w == (3, 2, 1)
    ],
    ids=str,
)
@pytest.mark.parametrize("dims", [(2, 3, 9, 13), (2, 8, 9, 7), (1, 3, 10, 64), (1, 8, 6, 8, 10)], ids=str)
@pytest.mark.parametrize("kind", ["forward", "average", "maximum"])
def test_any_division_gives_what_kernels_for_any_window_give(monkeypatch, kind, window, dims, layout):
    """Blocks of one step and of many, of one row and of all, with NaN, infinities and equal maxima."""
    backend = AcceleratedBackend("emulated")
    mode = Mode.CUDNN_POOLING_MAX if kind != "average" else Mode.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING
    # Compiling takes the time: one window meets every division in both types, each of the others one in one.
    divisions = {
        (2, 2, 0): [(FLOAT, False)],
        (3, 2, 0): [(HALF, True)],
        (3, 2, 1): [*product((FLOAT, HALF), (True, False))],
    }
    for (data_type, few), nan in product(divisions[window], (Nan.CUDNN_PROPAGATE_NAN, Nan.CUDNN_NOT_PROPAGATE_NAN)):
        monkeypatch.setattr(pooling_maximum, "START_STEPS", 0 if few else 5)
        monkeypatch.setattr(pooling_maximum_rows, "ENOUGH_THREADS", 10**6 if few else 1)
        most = dict.fromkeys(pooling_maximum_rows.MOST_THREADS, 10**6 if few else 0)
        monkeypatch.setattr(pooling_maximum_rows, "MOST_THREADS", most)
        marches = {
            kind: replace(march, least_steps=1 if few else 3) for kind, march in pooling_maximum_rows.MARCHES.items()
        }
        monkeypatch.setattr(pooling_maximum_rows, "MARCHES", marches)
        monkeypatch.setattr(pooling_maximum_rows, "LEAST_CHANNELS", 2 if few else 32)
        monkeypatch.setattr(pooling_known, "ENOUGH_THREADS", 1)
        # Blocks of 64 threads hold the small planes, and parts of the others.
        maxima = Settings(64, 1, 1, 8, 1, 1, group_bytes=8 if few else 32, stages=int(data_type == FLOAT))
        halves = Settings(64, 1, 1, 8, 1, 1, stages=2 if window == (3, 2, 1) else 1)
        monkeypatch.setitem(pooling_maximum_halves.SETTINGS, pooling_maximum_halves.MARCHED, halves)
        for key in product(("images", "volumes"), (False, True)):
            monkeypatch.setitem(pooling_maximum_halves.SETTINGS, key, FEW_PLANES)
        monkeypatch.setattr(pooling_maximum, "SETTINGS", dict.fromkeys(pooling_maximum.SETTINGS, maxima))
        volumes = replace(pooling_known.SETTINGS["forward of volumes"], depth=2 if few else 8)
        monkeypatch.setitem(pooling_known.SETTINGS, "forward of volumes", volumes)
        operation = operation_of(kind != "forward", mode, dims, *window, layout, data_type)
        operation = replace(operation, pooling=replace(operation.pooling, nan=nan), beta=0.5)
        memory = prepare(operation, "ties", 0)
        x = memory["x"].view(np.float32 if data_type == FLOAT else np.float16)
        if kind != "average":
            x[::5], x[1::7], x[: x.size // 2] = np.nan, -np.inf, np.nan
        known = plan(operation, backend.device)
        assert isinstance(known, AlignedPlan)
        found, expected = (result_of(backend, operation, made, memory) for made in (known, known.otherwise()))
        same = np.array_equal if kind != "average" else partial(np.allclose, rtol=2e-3, atol=1e-3)
        assert same(found.view(x.dtype), expected.view(x.dtype), equal_nan=True)


@pytest.mark.parametrize(
    ("data_type", "dims", "of_block"),
    [
        (HALF, (7, 3, 10, 56), 18 * 7),  # rows of 3.5 sectors; the last block has fewer
        (FLOAT, (2, 5, 12, 12), 21 * 6),
        (HALF, (2, 3, 4, 8, 24), 42 * 3),
        (HALF, (2, 3, 9, 56), 0),  # the last line of windows ends in one of x
        (HALF, (2, 3, 10, 64), 0),  # whole sectors
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["nchw", "gaps"])
def test_rows_that_end_within_sectors_are_written_together(monkeypatch, data_type, dims, of_block, layout):
    backend, gathered = AcceleratedBackend("emulated"), []
    monkeypatch.setattr(pooling_known, "LEAST_GATHERED_BYTES", 0)
    decide = pooling_known._gathered
    monkeypatch.setattr(pooling_known, "_gathered", lambda *of: gathered.append(decide(*of)) or gathered[-1])
    mode = Mode.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING
    operation = replace(operation_of(True, mode, dims, 3, 2, 1, layout, data_type), alpha=1.5)
    known = plan(operation, backend.device)
    assert isinstance(known, AlignedPlan)
    assert gathered == [of_block if layout == "nchw" else 0]
    memory = prepare(operation, "normal", 0)
    found, expected = (result_of(backend, operation, made, memory) for made in (known, known.otherwise()))
    kind = np.float32 if data_type == FLOAT else np.float16
    assert np.allclose(found.view(kind), expected.view(kind), rtol=2e-3, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize("dims", [(2, 24, 5, 9, 14), (1, 16, 6, 12, 7)], ids=str)
@pytest.mark.parametrize("window", sorted(pooling_known.WINDOWS), ids=str)
def test_channels_of_volumes_give_what_kernels_for_any_window_give(monkeypatch, window, dims):
    """Blocks of some rows and columns and of all, groups of channels that are not full, with NaN, infinities and equal maxima."""
    backend = AcceleratedBackend("emulated")
    monkeypatch.setattr(pooling_maximum_channels, "LEAST_USED", 0.0)
    monkeypatch.setattr(pooling_maximum_channels, "MOST_PACKS", {"COPIES": 12, "WRITES": 6})
    # Compiling takes the time: one window meets every division.
    divisions = {
        (2, 2, 0): [(FLOAT, 128, 2)],
        (3, 2, 0): [(HALF, 32, 3)],
        (3, 2, 1): [(FLOAT, 128, 2), (HALF, 32, 3), (FLOAT, 32, 3), (HALF, 128, 2), (BFLOAT16, 64, 2)],
    }
    for (data_type, threads, stages), nan in product(
        divisions[window], (Nan.CUDNN_PROPAGATE_NAN, Nan.CUDNN_NOT_PROPAGATE_NAN)
    ):
        settings = Settings(threads, 1, 2, 16, 2, 1, group_bytes=32, stages=stages)
        monkeypatch.setattr(pooling_maximum_channels, "SETTINGS", dict.fromkeys((2, 4), settings))
        operation = operation_of(True, Mode.CUDNN_POOLING_MAX, dims, *window, "nhwc", data_type)
        blend = {"alpha": -1.5, "beta": 0.5} if threads > 32 else {}
        operation = replace(operation, pooling=replace(operation.pooling, nan=nan), **blend)
        assert definitions_of(operation)[0] == "pooling_max_backward_3d_nhwc_channels"
        memory = prepare(operation, "ties", 0)
        types = {
            FLOAT: (np.float32, np.nan, -np.inf),
            HALF: (np.float16, np.nan, -np.inf),
            BFLOAT16: (np.uint16, 0x7FC0, 0xFF80),
        }
        held, not_a_number, lowest = types[data_type]
        x = memory["x"].view(held)
        x[::5], x[1::7], x[: x.size // 2] = not_a_number, lowest, not_a_number
        known = plan(operation, backend.device)
        assert isinstance(known, AlignedPlan)
        found, expected = (
            result_of(backend, operation, made, memory).view(held) for made in (known, known.otherwise())
        )
        assert np.array_equal(found, expected, equal_nan=data_type != BFLOAT16)


@pytest.mark.parametrize(
    ("dims", "serves"), [((8, 64, 16, 56, 56), True), ((1, 64, 16, 14, 14), False), ((8, 24, 16, 56, 56), False)]
)
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
def test_volumes_that_would_leave_threads_without_work_are_left_to_threads_that_tell_each_other(
    data_type, dims, serves
):
    operation = operation_of(True, Mode.CUDNN_POOLING_MAX, dims, 3, 2, 1, "nhwc", data_type)
    assert (definitions_of(operation)[0] == "pooling_max_backward_3d_nhwc_channels") == serves


def test_blocks_look_at_all_windows_over_what_they_write():
    random = np.random.default_rng(0)
    for size, parts, each in random.integers((1, 1, 1), (60, 9, 4), (300, 3)).tolist():
        for window, stride, padding in pooling_known.WINDOWS:
            output = 1 + (size + 2 * padding - window) // stride
            if output < 1:
                continue
            side = pooling_maximum_channels.Side.of(Axis(size, output, window, stride, padding, 1, 1), parts, each)
            assert side.tile * stride * parts >= size
            for i in range(size):
                part = i // side.written
                first = part * side.tile - side.before
                over = [w for w in range(output) if w * stride - padding <= i < w * stride - padding + window]
                assert all(first <= w < first + side.windows for w in over)
            assert side.threads * each >= side.windows


@pytest.mark.parametrize(
    ("dims", "layout", "kind"),
    [
        ((3, 2, 12, 24), "nchw", "dense"), ((2, 2, 16, 128), "nchw", "dense"), ((3, 2, 9, 20), "nchw", "narrow"),
        ((2, 3, 8, 30), "nchw", "word"), ((2, 2, 6, 12, 16), "nchw", "dense"),
        ((1, 2, 5, 9, 20), "nchw", "narrow"), ((2, 1, 7, 16, 14), "nchw", "word"),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("window", sorted(pooling_known.WINDOWS), ids=str)
def test_planes_of_half_give_what_kernels_for_any_window_give(monkeypatch, window, dims, layout, kind):
    """Blocks of all rows and of some, of one plane and of many, with NaN, infinities and equal maxima; sums that are scaled, and
    those that are not."""
    backend = AcceleratedBackend("emulated")
    monkeypatch.setattr(pooling_maximum_halves, "CACHED_BYTES", 0)
    nans = (Nan.CUDNN_PROPAGATE_NAN, Nan.CUDNN_NOT_PROPAGATE_NAN)
    # Compiling takes the time: one window meets every division.
    for few, nan in ((True, nans[0]), (window != (3, 2, 1), nans[1]), (True, nans[1])):
        settings = FEW_PLANES if few else Settings(448, 4, 1, 8, 1, 1, stages=1)
        for key in product(("images", "volumes"), (False, True)):
            monkeypatch.setitem(pooling_maximum_halves.SETTINGS, key, settings)
        operation = operation_of(True, Mode.CUDNN_POOLING_MAX, dims, *window, layout, HALF)
        scale = {} if nan == nans[1] and few else {"alpha": 2.0, "beta": 0.5}
        operation = replace(operation, pooling=replace(operation.pooling, nan=nan), **scale)
        listing = Listing()
        listing.multiprocessors = backend.device.multiprocessors
        plan(operation, listing)
        # Of an odd number of windows packs of y would not be whole.
        kinds = {kind, "narrow"} if window == (3, 2, 0) else {kind}
        kernels = {f"pooling_max_backward_fp16_planes_{kind}" for kind in kinds}
        assert listing.kernels[0][0] in kernels or (len(dims) == 4 and not few)
        memory = prepare(operation, "ties", 0)
        x = memory["x"].view(np.float16)
        x[::5], x[1::7], x[: x.size // 2 : 3], x[-x.size // 4 :] = np.nan, -np.inf, 0.0, np.nan
        known = plan(operation, backend.device)
        assert isinstance(known, AlignedPlan)
        found, expected = (result_of(backend, operation, made, memory) for made in (known, known.otherwise()))
        assert np.array_equal(found.view(x.dtype), expected.view(x.dtype), equal_nan=True)


@pytest.mark.parametrize("dims", [(2, 24, 9, 14), (1, 8, 14, 5), (2, 4, 1, 1), (3, 20, 2, 9)], ids=str)
@pytest.mark.parametrize("window", sorted(pooling_known.WINDOWS), ids=str)
def test_channels_of_half_give_what_kernels_for_any_window_give(monkeypatch, window, dims):
    """Threads that march down everything and some rows of windows, with strips that end beyond x; NaN, infinities and equal maxima;
    sums that are scaled, and those that are not."""
    backend = AcceleratedBackend("emulated")
    nans = (Nan.CUDNN_PROPAGATE_NAN, Nan.CUDNN_NOT_PROPAGATE_NAN)
    kernel = pooling_maximum_halves.CHANNELS
    if dims[2] + 2 * window[2] < window[0]:
        return
    # Compiling takes the time: one window meets both ways.
    ways = {(2, 2, 0): [(3, 4, 64, 1)], (3, 2, 0): [(2, 8, 16, 264)], (3, 2, 1): [(2, 8, 16, 264), (3, 4, 64, 1)]}
    for (tile, lane_bytes, group_bytes, eager_blocks), nan in product(ways[window], nans):
        settings = Settings(64, 1, 1, lane_bytes, tile, 1, stages=1, group_bytes=group_bytes)
        for amount in ("many", "few"):
            monkeypatch.setitem(pooling_maximum_halves.SETTINGS, (kernel, amount), settings)
        monkeypatch.setattr(pooling_maximum_halves, "EAGER_BLOCKS", eager_blocks)
        operation = operation_of(True, Mode.CUDNN_POOLING_MAX, dims, *window, "nhwc", HALF)
        scale = {"alpha": 2.0, "beta": 0.5} if nan == nans[0] else {}
        operation = replace(operation, pooling=replace(operation.pooling, nan=nan), **scale)
        assert definitions_of(operation)[0] == f"{kernel}_channels"
        memory = prepare(operation, "ties", 0)
        x = memory["x"].view(np.float16)
        x[::5], x[1::7], x[: x.size // 2 : 3], x[-x.size // 4 :] = np.nan, -np.inf, 0.0, np.nan
        known = plan(operation, backend.device)
        assert isinstance(known, AlignedPlan)
        found, expected = (result_of(backend, operation, made, memory) for made in (known, known.otherwise()))
        assert np.array_equal(found.view(x.dtype), expected.view(x.dtype), equal_nan=True)


@pytest.mark.parametrize(("dims", "layout"), [((2, 8, 12, 14), "nhwc"), ((1, 8, 6, 8, 16), "nchw")], ids=str)
def test_maxima_of_bfloat16_give_what_kernels_for_any_window_give(dims, layout):
    """Two bytes, but not two windows at a time: blocks have room for what threads tell each other one by one."""
    backend = AcceleratedBackend("emulated")
    operation = operation_of(True, Mode.CUDNN_POOLING_MAX, dims, 3, 2, 1, layout, BFLOAT16)
    memory = prepare(operation, "ties", 0)
    known = plan(operation, backend.device)
    assert isinstance(known, AlignedPlan)
    found, expected = (result_of(backend, operation, made, memory) for made in (known, known.otherwise()))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("layout", ["nchw", "gaps"])
@pytest.mark.parametrize("dims", [(1, 5, 14, 56), (1, 2, 29, 30), (3, 2, 21, 28)], ids=str)
@pytest.mark.parametrize("mode", [Mode.CUDNN_POOLING_MAX, Mode.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING])
def test_columns_give_what_kernels_for_any_window_give(monkeypatch, mode, dims, layout):
    """Blocks of all rows of windows, of one, and of a number that leaves some over; packs of any width, windows that x
    ends in, with NaN and infinities."""
    backend = AcceleratedBackend("emulated")
    nans = (Nan.CUDNN_PROPAGATE_NAN, Nan.CUDNN_NOT_PROPAGATE_NAN)
    for data_type, nan, shared in product((FLOAT, HALF), nans, (1024, 300)):
        monkeypatch.setattr(pooling_columns, "MOST_SHARED_BYTES", shared)
        operation = operation_of(False, mode, dims, 7, 7, 0, layout, data_type)
        pooled = (*dims[:2], *(-(-size // 7) for size in dims[2:]))
        spec, y = replace(operation.pooling, nan=nan), laid_out(data_type, pooled, layout)
        operation = replace(operation, pooling=spec, y=y, beta=0.5)
        memory = prepare(operation, "ties", 0)
        x = memory["x"].view(np.float32 if data_type == FLOAT else np.float16)
        x[:40], x[::5], x[1::7] = np.nan, np.nan, -np.inf
        known = plan(operation, backend.device)
        assert isinstance(known, AlignedPlan)
        found, expected = (result_of(backend, operation, made, memory) for made in (known, known.otherwise()))
        assert np.allclose(found.view(x.dtype), expected.view(x.dtype), rtol=2e-3, atol=1e-3, equal_nan=True)


def result_of(backend: Any, operation: Any, made: Any, memory: dict[str, Any]) -> Any:
    """The bytes of the output."""
    buffers = {name: backend.allocate(content.nbytes) for name, content in memory.items()}
    for name, content in memory.items():
        backend.device.upload(buffers[name].address, content.tobytes())
    operands = [DeviceOperand(buffers[n].address, None) if n in buffers else None for n in operation.operands]
    made(operands, backend.device.default_stream)
    (output,) = operation.outputs
    return buffers[output].to_host(np.uint8, memory[output].size)


def test_other_windows_have_other_kernels():
    for window, stride, padding in [(5, 2, 1), (3, 2, 2), (1, 1, 0), (3, 3, 0), (3, 1, 1)]:
        listing = Listing()
        plan(operation_of(False, Mode.CUDNN_POOLING_MAX, (2, 3, 20, 20), window, stride, padding, "nchw"), listing)
        assert not specialised(listing)


def test_rows_wider_than_a_warp_have_kernels_of_their_own():
    """Planes take rows of a warp; images of wider ones are marched down, volumes have the kernel of any strips."""
    shapes = {
        (3, 3200, 20, 128): "fp16_planes_dense", (3, 3200, 20, 136): "fp16_rows_wide", (2, 3, 20, 4096): "fp16_rows_wide",
        (2, 3, 6, 8, 128): "fp16_planes_dense", (2, 3, 6, 8, 136): "wide",
    }  # fmt: skip
    for dims, kernel in shapes.items():
        operation = operation_of(True, Mode.CUDNN_POOLING_MAX, dims, 3, 2, 1, "nchw", HALF)
        assert definitions_of(operation)[0] == f"pooling_max_backward_{kernel}"


def test_windows_without_inputs_are_left_to_the_other_kernels():
    spec = PoolingSpec(Mode.CUDNN_POOLING_MAX, Nan.CUDNN_NOT_PROPAGATE_NAN, (2, 2), (0, 0), (2, 2))
    listing = Listing()
    plan(
        PoolingForward(spec, 1.0, 0.0, TensorSpec.packed(FLOAT, (1, 1, 4, 4)), TensorSpec.packed(FLOAT, (1, 1, 3, 2))),
        listing,
    )
    assert not specialised(listing)


def test_distances_beyond_32_bits_are_left_to_the_other_kernels():
    y = TensorSpec.packed(FLOAT, (2, 3, 4, 4))
    spec = PoolingSpec(Mode.CUDNN_POOLING_MAX, Nan.CUDNN_NOT_PROPAGATE_NAN, (2, 2), (0, 0), (2, 2))
    for strides, known in (((2**33, 2**20, 64, 1), False), ((2**21, 2**20, 64, 1), True)):
        listing = Listing()
        plan(PoolingForward(spec, 1.0, 0.0, TensorSpec(FLOAT, (2, 3, 8, 8), strides), y), listing)
        assert specialised(listing) == known


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_operands_at_any_address(layout, offset):
    """Those that do not begin at a multiple of an access are served too, with the same result."""
    backend = AcceleratedBackend("emulated")
    operation = operation_of(False, Mode.CUDNN_POOLING_MAX, (2, 8, 6, 8), 2, 2, 0, layout)
    numbers = np.random.default_rng(0).standard_normal(operation.x.count).astype(np.float32)
    results = []
    for shift in (0, offset):
        x, y = backend.allocate(4 * (numbers.size + 4)), backend.allocate(4 * (operation.y.count + 4))
        backend.device.upload(x.address + 4 * shift, numbers.tobytes())
        operands = [DeviceOperand(buffer.address + 4 * shift, None) for buffer in (x, y)]
        backend.prepare(operation)(operands, backend.device.default_stream)
        results.append(y.to_host(np.float32, operation.y.count + 4)[shift : shift + operation.y.count])
    assert np.array_equal(*results)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_they_compile_for_a_gpu():
    """Nothing that is built ahead, or timed, has them for double, or volumes for bfloat16; instructions of one type do not fit another."""
    listing = Listing()
    average = Mode.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
    kinds = ((False, Mode.CUDNN_POOLING_MAX), (True, average), (True, Mode.CUDNN_POOLING_MAX))
    for (backward, mode), layout in product(kinds, ("nchw", "nhwc")):
        plan(operation_of(backward, mode, (2, 24, 9, 12), 3, 2, 1, layout, DOUBLE), listing)
    plan(operation_of(True, Mode.CUDNN_POOLING_MAX, (8, 64, 4, 56, 56), 3, 2, 1, "nhwc", BFLOAT16), listing)
    assert {source for source, _ in listing.modules} >= {
        "pooling/max_backward.cu", "pooling/max_backward_3d_nhwc.cu", "pooling/static_average_backward.cu",
    }  # fmt: skip
    assert len(compile_all(sorted(listing.modules), "sm_90", jobs=2)) == len(listing.modules)
