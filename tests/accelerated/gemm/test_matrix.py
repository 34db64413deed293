"""Tests matrix products on the emulated device against NumPy."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from dualdnn.accelerated.gemm.matrix import Matrix, MatrixProduct
from dualdnn.accelerated.gemm.matrix_tma import TILES, TmaProduct
from dualdnn.accelerated.plans import SCRATCH
from dualdnn.accelerated.runtime.devices import open_device

TYPES = {"half": np.float16, "float": np.float32, "double": np.float64}
UNITS = {"half": 2.0**-11, "float": 2.0**-24, "double": 2.0**-53}


class Sizes(NamedTuple):
    m: int
    n: int
    k: int
    batches: tuple[int, int] = (1, 1)


def rounded_to_tf32(values):
    """Round floats to TF32 (11 significant bits), ties away from zero."""
    bits = values.view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def laid_out(rng, rows, columns, batches, mn_major, gap, kind):
    """Return random matrices: their values, memory with NaN in the gaps, and strides (row, column, both batches)."""
    shape = (*batches, columns, rows) if mn_major else (*batches, rows, columns)
    padded = (*shape[:-1], shape[-1] + gap)
    memory = rng.standard_normal(padded).astype(kind)
    memory[..., shape[-1] :] = np.nan
    values = memory[..., : shape[-1]]
    strides = [step // memory.itemsize for step in memory.strides]
    row, column = (strides[-1], strides[-2]) if mn_major else (strides[-2], strides[-1])
    return (values.swapaxes(-1, -2) if mn_major else values), memory, (row, column, *strides[:2])


def check(
    sizes, element, result, tensor_cores=True, majors=(0, 0), gap=0, offset=0, beta=0.0, with_bias=False, shared="",
    **chosen,
):  # fmt: skip
    """Multiply, compare every element with a product in higher precision, and assert that the gaps stay NaN.

    shared: the operand that all inner batches share.
    """
    m, n, k, batches = sizes
    rng = np.random.default_rng(m * 7 + n * 5 + k * 3 + gap)
    device = open_device("emulated")
    a, a_memory, a_strides = laid_out(rng, m, k, batches, majors[0], gap, TYPES[element])
    b, b_memory, b_strides = laid_out(rng, n, k, batches, majors[1], gap, TYPES[element])
    if shared == "a":
        a, a_strides = np.repeat(a[:, :1], batches[1], axis=1), (*a_strides[:3], 0)
    elif shared == "b":
        b, b_strides = np.repeat(b[:, :1], batches[1], axis=1), (*b_strides[:3], 0)
    c, c_memory, c_strides = laid_out(rng, m, n, batches, False, gap, TYPES[result])
    bias = rng.standard_normal(n).astype(TYPES[element])
    compute = "double" if element == "double" else "float"
    made = MatrixProduct(
        device, m, n, k, Matrix("a", offset * a.itemsize, *a_strides), Matrix("b", offset * a.itemsize, *b_strides),
        Matrix("c", offset * c.itemsize, *c_strides), element, result, compute, tensor_cores,
        ("bias", 0) if with_bias else ("", 0), batches, beta, **chosen,
    )  # fmt: skip
    buffers, addresses = [], {"": 0}
    for name, values, behind in (
        ("a", a_memory, offset),
        ("b", b_memory, offset),
        ("c", c_memory, offset),
        ("bias", bias, 0),
    ):
        content = np.concatenate([np.full(behind, 7, values.dtype), values.reshape(-1)])
        buffers.append(device.allocate(content.nbytes))
        device.upload(buffers[-1].address, content.view(np.uint8))
        addresses[name] = buffers[-1].address
    buffers.append(device.allocate(16 + made.workspace_bytes))
    addresses["workspace"] = buffers[-1].address
    for launch in made.launches(("workspace", 16)):
        launch.start([addresses[name] for name in launch.operands], None)
    found = np.frombuffer(device.download(addresses["c"], (offset + c_memory.size) * c.itemsize), TYPES[result])[
        offset:
    ]
    found = found.reshape(c_memory.shape)
    inner = found[..., : found.shape[-1] - gap] if gap else found
    assert np.isnan(found[..., inner.shape[-1] :]).all()
    wide = np.longdouble if element == "double" else np.float64
    left, right = (
        rounded_to_tf32(np.ascontiguousarray(x)) if element == "float" and tensor_cores else x for x in (a, b)
    )
    left, right = left.astype(wide), right.astype(wide).swapaxes(-1, -2)
    expected = left @ right + (bias.astype(wide) if with_bias else 0) + (beta * c.astype(wide) if beta else 0)
    size = abs(left) @ abs(right) + (abs(bias) if with_bias else 0) + abs(beta * c if beta else 0)
    bound = size * (k + 4) * UNITS[compute] + abs(expected) * UNITS[result] + 1e-7 * (result == "half")
    assert (abs(inner - expected) <= bound).all()
    return made


@pytest.mark.parametrize("element, result", [("half", "float"), ("half", "half"), ("float", "float")])
@pytest.mark.parametrize("majors", list(product((0, 1), (0, 1))), ids=str)
@pytest.mark.parametrize("tile", ["mma_64", "mma_128"])
def test_tensor_cores(element, result, majors, tile):
    """Products are right for any size, gap and alignment, also if K is shorter than a K-block."""
    for sizes, gap, offset in (
        (Sizes(72, 136, 96), 0, 0), (Sizes(33, 65, 70), 0, 0), (Sizes(64, 40, 200), 8, 0), (Sizes(1, 9, 3), 1, 1),
        (Sizes(17, 24, 1), 0, 0),
    ):  # fmt: skip
        check(sizes, element, result, True, majors, gap, offset, tile=tile)


@pytest.mark.parametrize("majors", list(product((0, 1), (0, 1))), ids=str)
@pytest.mark.parametrize("tile", ["fp32_128x128", "fp32_64x64"])
def test_floats_without_tensor_cores(majors, tile):
    """Products on CUDA cores are right for any size, gap and alignment, for short and long K, and if K is split."""
    for sizes, gap, more in (
        (Sizes(136, 72, 96), 0, {}), (Sizes(33, 65, 70), 0, {}), (Sizes(64, 40, 70, (1, 2)), 4, {"beta": 1.0, "splits": 2}),
        (Sizes(1, 9, 3), 1, {"offset": 1}), (Sizes(66, 6, 17), 2, {"with_bias": True}),
    ):  # fmt: skip
        assert check(sizes, "float", "float", False, majors, gap, tile=tile, **more).choice[0] == tile


@pytest.mark.parametrize("element, result", [("half", "float"), ("half", "half"), ("float", "float")])
@pytest.mark.parametrize("majors", list(product((0, 1), (0, 1))), ids=str)
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile.name}-{tile.from_registers}")
def test_tensor_cores_fed_by_tma(element, result, majors, tile):
    """TMA-fed products are right for partial tiles, short and long K, gaps between rows, and if K is split."""
    from_registers = element == "float" and 1 in majors
    if from_registers != tile.from_registers or (element == "half" and majors == (1, 0)):
        pytest.skip("not served")
    many = (tile.stages + 2) * 128 // (4 if element == "float" else 2)
    for sizes, gap, more in (
        (Sizes(24, 40, many + 8), 0, {}), (Sizes(tile.rows + 8, tile.columns + 16, 72, (1, 2)), 0, {}),
        (Sizes(72, 136, 200, (2, 1)), 8, {"beta": -0.5, "with_bias": True}), (Sizes(8, 24, 8), 8, {"offset": 8}),
        (Sizes(40, 72, 200), 8, {"beta": 1.0, "splits": 3}),
    ):  # fmt: skip
        made = check(sizes, element, result, True, majors, gap, tile=tile.name, max_workspace=1 << 24, **more)
        assert made.choice[0] == tile.name


@pytest.mark.parametrize("element", ["half", "float"])
@pytest.mark.parametrize("majors", list(product((0, 1), (0, 1))), ids=str)
def test_operands_that_tma_cannot_read_are_copied(element, majors):
    """A copy with aligned rows serves odd strides and offsets; an aligned operand beside it stays in place."""
    copied = set()
    for sizes, more in (
        (Sizes(33, 41, 71, (1, 2)), {}), (Sizes(40, 41, 72), {"beta": 1.0}), (Sizes(33, 40, 72, (2, 1)), {}),
        (Sizes(40, 48, 200), {"offset": 1, "splits": 2}),
    ):  # fmt: skip
        made = check(sizes, element, "float", True, majors, tile="128x64", max_workspace=1 << 24, **more)
        assert made.choice[0] == "128x64"
        copied.add(made._by_tma.copies)
    assert (True, True) in copied and (len(copied) > 1 or majors == (0, 0))


def test_only_large_products_copy_an_operand(monkeypatch):
    """A small product is not worth a copy; a large one is."""
    device = open_device("emulated")
    monkeypatch.setattr(device, "multiprocessors", 132)
    a, b, c = Matrix("a", 0, 1538, 1), Matrix("b", 0, 1538, 1), Matrix("c", 0, 4614, 1)
    few, many = (
        MatrixProduct(device, m, 4614, 1538, a, b, c, "float", "float", max_workspace=1 << 28) for m in (1, 12000)
    )
    assert few._by_tma is None
    assert many._by_tma.copies == (True, True)


@pytest.mark.parametrize("row, order", [(1536, "wgmma"), (1538, "mma")])
def test_the_order_of_sums_depends_on_neither_rows_nor_multiprocessors(monkeypatch, row, order):
    """Without ``in_order`` these sums are divided or copied for some of the sizes."""
    device = open_device("emulated")
    a, b, c = Matrix("a", 0, row, 1), Matrix("b", 0, row, 1), Matrix("c", 0, 64, 1)

    def chosen(m, multiprocessors, in_order):
        monkeypatch.setattr(device, "multiprocessors", multiprocessors)
        made = MatrixProduct(device, m, 64, row, a, b, c, "float", "float", max_workspace=1 << 28, in_order=in_order)
        return made.order, made.choice[1], made.workspace_bytes

    sizes = [(m, multiprocessors) for m in (1, 64, 12000) for multiprocessors in (1, 132)]
    assert {chosen(*size, True) for size in sizes} == {(order, 1, 0)}
    assert len({chosen(*size, False) for size in sizes}) > 1


@pytest.mark.parametrize(
    "tensor_cores, tiles",
    [
        (True, ("mma_64", "mma_128")),
        (True, ("64x64", "128x64", "128x256", "ping_pong_128x128")),
        (False, ("fp32_64x64", "fp32_128x128")),
    ],
)
def test_tiles_of_one_instruction_add_in_one_order(tensor_cores, tiles):
    device, rng = open_device("emulated"), np.random.default_rng(5)
    a, b = (rng.standard_normal((rows, 200)).astype(np.float32) for rows in (70, 20))
    found = set()
    for tile in tiles:
        made = MatrixProduct(
            device, 70, 20, 200, Matrix("a", 0, 200, 1), Matrix("b", 0, 200, 1), Matrix("c", 0, 20, 1), "float", "float",
            tensor_cores=tensor_cores, tile=tile, in_order=True,
        )  # fmt: skip
        assert made.choice == (tile, 1)
        buffers = {name: device.allocate(size) for name, size in (("a", a.nbytes), ("b", b.nbytes), ("c", 5600))}
        for name, values in (("a", a), ("b", b)):
            device.upload(buffers[name].address, values.view(np.uint8).reshape(-1))
        for launch in made.launches():
            launch.start([buffers[name].address if name else 0 for name in launch.operands], None)
        found.add(bytes(device.download(buffers["c"].address, 5600)))
    assert len(found) == 1


def test_memory_bound_products_use_many_multiprocessors(monkeypatch):
    """Small tiles are chosen among those with the same bound of memory: 64 x 6000 x 1500 has 94 blocks, not 47."""
    device = open_device("emulated")
    monkeypatch.setattr(device, "multiprocessors", 132)
    a, b, c = Matrix("a", 0, 1500, 1), Matrix("b", 0, 1500, 1), Matrix("c", 0, 6000, 1)
    assert MatrixProduct(device, 64, 6000, 1500, a, b, c, "float", "float", max_workspace=1 << 26).choice[0] == "64x64"


@pytest.mark.parametrize("blocks", [3, 7, 13])
def test_blocks_share_tiles(monkeypatch, blocks):
    """Blocks may begin and end in the middle of a tile, if there are fewer or more blocks than tiles."""
    monkeypatch.setattr(TmaProduct, "_blocks", staticmethod(lambda *_: [blocks]))
    more = {"max_workspace": 1 << 24, "beta": 1.0}
    made = check(Sizes(104, 72, 12 * 64 + 8), "half", "half", True, (1, 1), 8, tile="64x64", **more)
    assert made._by_tma.shares.further and made._by_tma.shares.blocks == blocks
    check(Sizes(72, 40, 9 * 64, (3, 1)), "half", "float", tile="64x64", with_bias=True, **more)
    for majors in ((0, 1), (1, 1)):  # First B is the left operand, in registers; then A is, with a copy of B.
        check(Sizes(144, 136, 9 * 32), "float", "float", True, majors, tile="128x64", **more)


@pytest.mark.parametrize(
    "element, tensor_cores", [("half", True), ("float", True), ("float", False), ("double", False)]
)
def test_epilogue_batches_and_splits(element, tensor_cores):
    """Products with bias, beta, two batch levels, and unequal or empty parts of K are right."""
    for majors in ((0, 0), (1, 1), (0, 1)):
        check(Sizes(34, 19, 50, (2, 3)), element, element, tensor_cores, majors, beta=-0.5, with_bias=True)
        made = check(Sizes(21, 70, 333, (1, 2)), element, element, tensor_cores, majors, 3, beta=1.0, splits=4)
        assert made.workspace_bytes >= 4 * 2 * 21 * 70 * 4
    check(Sizes(8, 8, 150), element, element, tensor_cores, beta=0.5, splits=5)


@pytest.mark.parametrize("element, tensor_cores", [("half", True), ("float", True), ("float", False)])
@pytest.mark.parametrize("majors", [(0, 0), (1, 1)], ids=str)
@pytest.mark.parametrize("shared", "ab")
def test_batches_of_two_levels(element, tensor_cores, majors, shared):
    """All inner batches may share A or B, with and without TMA."""
    for k in (40, 37):
        check(Sizes(24, 40, k, (3, 2)), element, element, tensor_cores, majors, shared=shared, beta=1.0)
    more = {"tile": "128x64", "max_workspace": 1 << 24} if tensor_cores else {}
    made = check(Sizes(24, 40, 64, (3, 2)), element, element, tensor_cores, majors, 8, shared=shared, **more)
    assert (made._by_tma is not None) == tensor_cores


@pytest.mark.parametrize("tensor_cores, splits", [(True, None), (False, None), (False, 1), (False, 3)])
def test_launches_in_parts_leave_the_sums_in_scratch_memory(tensor_cores, splits):
    """launches_in_parts() leaves the parts of all batches in scratch memory, after its earlier contents."""
    device, rng = open_device("emulated"), np.random.default_rng(5)
    a, b = (rng.standard_normal((2, rows, 200)).astype(np.float32) for rows in (6, 20))
    begin, strides = 48, (200, 1)
    made = MatrixProduct(
        device, 6, 20, 200, Matrix("a", 0, *strides, 6 * 200), Matrix("b", 0, *strides, 20 * 200),
        Matrix(SCRATCH, begin, 20, 1, 120), "float", "float", "float", tensor_cores, batches=(2, 1), splits=splits,
        max_workspace=1 << 20,
    )  # fmt: skip
    launches, parts = made.launches_in_parts()
    scratch = device.allocate(launches[0].scratch_bytes)
    device.fill(scratch.address, launches[0].scratch_bytes, 0xFF)
    buffers = {"a": device.allocate(a.nbytes), "b": device.allocate(b.nbytes), SCRATCH: scratch}
    for name, values in (("a", a), ("b", b)):
        device.upload(buffers[name].address, values.view(np.uint8).reshape(-1))
    for launch in launches:
        launch.start([buffers[name].address if name else 0 for name in launch.operands], None)
    found = np.frombuffer(device.download(scratch.address, begin + parts * 960), np.float32)
    assert np.isnan(found[: begin // 4]).all() and parts == (splits or parts)
    expected = a.astype(float) @ b.astype(float).swapaxes(-1, -2)
    sums = found[begin // 4 :].reshape(parts, 2, 6, 20).astype(float).sum(axis=0)
    np.testing.assert_allclose(sums, expected, atol=0.3 if tensor_cores else 1e-4)


def test_double_buffered_stages_are_filled_again():
    """Stages are reused correctly: there are more K-blocks than stages, and the last K-block is partial."""
    for tile in ("mma_64", "mma_128"):
        check(Sizes(40, 24, 64 * 7 + 8), "half", "float", tile=tile)


def test_small_integers_in_bfloat16_are_exact():
    """Products of small integers in bfloat16 are exact."""
    device = open_device("emulated")
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((20, 30), (12, 30)))
    made = MatrixProduct(
        device, 20, 12, 30, Matrix("a", 0, 30, 1), Matrix("b", 0, 30, 1), Matrix("c", 0, 12, 1), "bfloat16", "float"
    )
    buffers = [device.allocate(nbytes) for nbytes in (1200, 720, 960)]
    for buffer, values in zip(buffers, (a, b), strict=False):
        device.upload(buffer.address, (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(-1))
    (launch,) = made.launches()
    launch.start([buffers[0].address, buffers[1].address, 0, buffers[2].address, 0], None)
    np.testing.assert_array_equal(
        np.frombuffer(device.download(buffers[2].address, 960), np.float32).reshape(20, 12), a @ b.T
    )


def test_tiles_and_splits_follow_from_sizes():
    """Large results get large tiles; for a small result with a long K, multiprocessors split K."""

    class H200:
        kind, architecture, multiprocessors = "gpu", "sm_90", 132

    def chosen(m, n, k, most=1 << 26):
        matrices = Matrix("a", 0, 1, m), Matrix("b", 0, 1, n), Matrix("c", 0, n, 1)
        made = MatrixProduct(H200(), m, n, k, *matrices, "half", "half", max_workspace=most)
        assert made.workspace_bytes <= most
        return made.choice

    assert chosen(8192, 8192, 1024) == ("ping_pong_128x128", 1)
    assert chosen(64, 64, 64) == ("64x64", 1)
    assert chosen(64, 64, 1 << 15) == ("64x64", 128)
    assert chosen(64, 64, 1 << 15, 3 * 64 * 64 * 4 + 1) == ("64x64", 3)
    assert chosen(1024, 1024, 16384) == ("128x256", 4)
    assert chosen(72, 63, 1 << 15) == ("mma_64", 32)  # TMA cannot read rows of 63 halves.


@pytest.mark.parametrize("element, tensor_cores", [("half", True), ("float", True), ("float", False)])
def test_segments_of_k(element, tensor_cores):
    """K consists of three separate segments, shorter or longer than a K-block, with and without splits."""
    kind = TYPES[element]
    rng, device = np.random.default_rng(5), open_device("emulated")
    for k, splits in ((5, 1), (72, 1), (72, 4)):
        a = rng.integers(-4, 5, (3, 9, k + 3)).astype(kind)
        b = rng.integers(-4, 5, (3, k + 1, 20)).astype(kind)
        left, right = Matrix("a", 0, k + 3, 1, segment=9 * (k + 3)), Matrix("b", 0, 1, 20, segment=(k + 1) * 20)
        made = MatrixProduct(
            device, 9, 20, k, left, right, Matrix("c", 0, 20, 1), element, "float", tensor_cores=tensor_cores,
            segments=3, splits=splits,
        )  # fmt: skip
        buffers = {name: device.allocate(size) for name, size in (("a", a.nbytes), ("b", b.nbytes), ("c", 720))}
        buffers["workspace"] = device.allocate(max(made.workspace_bytes, 1))
        for name, values in (("a", a), ("b", b)):
            device.upload(buffers[name].address, values.reshape(-1).view(np.uint8))
        for launch in made.launches(("workspace", 0)):
            launch.start([buffers[name].address if name else 0 for name in launch.operands], None)
        found = np.frombuffer(device.download(buffers["c"].address, 720), np.float32).reshape(9, 20)
        expected = sum(a[i, :, :k].astype(float) @ b[i, :k].astype(float) for i in range(3))
        np.testing.assert_array_equal(found, expected)
