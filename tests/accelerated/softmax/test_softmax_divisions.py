"""Tests how threads, blocks and clusters divide the rows of a softmax."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import pytest
from dualdnn.accelerated.softmax import register_resident, row_tiles
from dualdnn.accelerated.softmax.problem import SHORT_ROW, layout_of
from dualdnn.accelerated.softmax.register_resident import elements_in_registers, vectors_in_registers
from dualdnn.accelerated.softmax.row_tiles import pair_tile, short_tile, tile_of
from dualdnn.api.enumerations import cudnnDataType_t, cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t
from dualdnn.api.operations import SoftmaxBackward, SoftmaxForward, TensorSpec
from dualdnn.api.operations.specs import NCHW, NHWC

H200 = SimpleNamespace(multiprocessors=132, shared_bytes_per_block=227 * 1024, architecture="sm_90", kind="gpu")
SMALL = SimpleNamespace(multiprocessors=20, shared_bytes_per_block=99 * 1024, architecture="sm_86", kind="gpu")
ROWS = (1, 2, 7, 63, 64, 65, 131, 132, 133, 1000)
VECTORS = (4097, 9408, 37632, 100352, 200704, 401408, 802816)


def channels(dims, data_type, tensor_format, backward=False):
    spec = TensorSpec.packed(cudnnDataType_t[f"CUDNN_DATA_{data_type}"], dims, tensor_format)
    algorithm, mode = cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_ACCURATE, cudnnSoftmaxMode_t.CUDNN_SOFTMAX_MODE_CHANNEL
    kind = SoftmaxBackward if backward else SoftmaxForward
    return kind(algorithm, mode, 1.0, 0.0, spec, spec, *([spec] * backward)), spec


@pytest.mark.parametrize("data_type, width", [("FLOAT", 4), ("HALF", 8), ("HALF", 4), ("DOUBLE", 2)])
@pytest.mark.parametrize("tensor_format", [NCHW, NHWC], ids=lambda f: f.name)
@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("device", [H200, SMALL], ids=["H200", "small"])
def test_registers_hold_every_vector_once(device, inputs, tensor_format, data_type, width):
    found = 0
    for images, length, side in product((1, 8, 64), (1, 3, 4, 8, 64, 72, 128, 256, 512), (2, 14, 56, 224)):
        operation, spec = channels((images, length, side, side), data_type, tensor_format)
        layout = layout_of(operation, [spec] * (inputs + 1), width)
        held = vectors_in_registers(layout, spec.scalar_bytes, inputs, device)
        if held is None:
            continue
        found += 1
        vectors = layout.along.row if layout.strided else layout.along.row // width
        shares = held.threads // held.team if layout.strided else held.team
        assert shares * held.vectors >= vectors > 0 and held.vectors <= register_resident.STRIDED_VECTORS
        assert held.threads in (32, 64, 128, 256) and held.team & (held.team - 1) == 0
        # The blocks have all rows, and no block is idle.
        at_once = held.team if layout.strided else held.threads // held.team
        assert (held.grid - 1) * at_once < layout.rows.vectors <= held.grid * at_once
        # Warps that share rows exchange one state per row.
        warps = held.threads // max(held.team, 32) if layout.strided else 1
        assert warps == 1 or held.states == warps * held.team * width
    assert found > 10


@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("scalar_bytes", [2, 4])
def test_tiles_are_full_warps_of_rows(scalar_bytes, inputs):
    for rows, length in product((1, 1000, 47027, 10**6), (3, 4, 5, 31, 67, 131, 255)):
        lanes, of_tile = tile_of(rows, length, inputs, scalar_bytes, H200)
        assert lanes * row_tiles.MORE_EACH[inputs - 1] >= length
        assert (
            of_tile % (row_tiles.TILE_THREADS // lanes) == 0
        )  # All lanes of a warp take the same branch, and tiles are aligned.
        if length <= SHORT_ROW:
            of_tile = short_tile(rows, length, inputs, scalar_bytes, H200)
            assert of_tile % (row_tiles.TILE_THREADS * 16 // scalar_bytes) == 0
        assert of_tile * length * scalar_bytes * inputs <= max(
            H200.shared_bytes_per_block // 6, row_tiles.TILE_THREADS * 16 * length * inputs
        )


@pytest.mark.parametrize("data_type", ["FLOAT", "HALF"])
def test_single_elements_in_registers_hold_every_position_once(data_type):
    found = 0
    for images, length, side in product((1, 8, 64), (1, 4, 5, 21, 64, 67, 90, 128, 129, 256, 300), (5, 29, 57)):
        operation, spec = channels((images, length, side, side), data_type, NCHW)
        layout = layout_of(operation, [spec, spec], 16 // spec.scalar_bytes)
        held = elements_in_registers(layout, spec.scalar_bytes, H200)
        longest = register_resident.MAX_ROW_ELEMENTS[data_type == "HALF"]
        assert (held is not None) == (length <= longest and not layout.vector)
        if held is None:
            continue
        found += 1
        shares = held.threads // held.team
        alone = max(length, register_resident.MIN_VECTORS) if length <= SHORT_ROW else None  # One thread takes the row.
        assert held.vectors == alone if alone else held.vectors in register_resident.ELEMENTS
        assert shares * held.vectors >= length
        assert held.threads in (128, 256) and held.team & (held.team - 1) == 0
        assert (held.grid - 1) * held.team < layout.rows.vectors <= held.grid * held.team
    assert found > 10


@pytest.mark.parametrize("inputs", [1, 2])
def test_tiles_of_pairs(inputs):
    """A tile has full warps of rows, and no more threads or bytes than a block may have."""
    for length in range(5, 257):
        lanes, of_tile = pair_tile(length, inputs)
        assert lanes * row_tiles.PAIR_LANE_ELEMENTS >= length and lanes & (lanes - 1) == 0
        assert of_tile * lanes <= row_tiles.TILE_THREADS and of_tile % 32 == 0
        assert of_tile * length * 2 * inputs <= max(row_tiles.PAIR_TILE_BYTES, 32 * length * 2 * inputs)


def test_tiles_of_a_large_tensor_run_at_once():
    rows, length = 31 * 37 * 41, 67
    _, of_tile = tile_of(rows, length, 2, 4, H200)
    assert -(-rows // of_tile) <= row_tiles.TILES_AT_ONCE * H200.multiprocessors < -(-rows // (of_tile // 2))
