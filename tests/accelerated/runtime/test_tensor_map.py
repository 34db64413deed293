"""Tests the limits of TMA by the rules of the driver (cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col)."""

from __future__ import annotations

import pytest
from dualdnn.accelerated.primitives.tma import MAP_BYTES, Im2colMap, TiledMap, UnswizzledTiledMap
from dualdnn.accelerated.runtime.errors import DeviceError
from dualdnn.accelerated.runtime.tensor_map import emulated_map


def test_impossible_boxes_are_known():
    possible = TiledMap("half", (64, 3, 5), (128, 384), (64, 1, 5))
    assert possible.is_possible
    for strides in ((120, 384), (128, 2**40), (0, 384), (128,)):
        assert not TiledMap("half", (64, 3, 5), strides, (64, 1, 5)).is_possible
    for extent in ((64, 0, 5), (64, 3, 2**31), (64, 3)):
        assert not TiledMap("half", extent, (128, 384)[: len(extent) - 1], (64, 1, 5)).is_possible
    for box in ((64, 1, 257), (64, 0, 5), (32, 1, 5), (128, 1, 5), (64, 1)):
        assert not TiledMap("half", (64, 3, 5), (128, 384), box).is_possible


@pytest.mark.parametrize(
    "box, possible", [((8, 1, 1, 256), True), ((12, 1, 1, 1), False), ((8, 1, 1, 257), False), ((8, 1, 0, 1), False)]
)
def test_boxes_without_a_swizzle(box, possible):
    tensor = UnswizzledTiledMap("half", (64, 3, 5, 7), (128, 384, 1920), box)
    assert tensor.is_possible == possible
    if not possible:
        with pytest.raises(DeviceError, match="TMA cannot read"):
            emulated_map(tensor, 4096)


PIXELS = {
    "extent": (64, 6, 5, 2), "strides": (128, 768, 3840), "lower": (-1, -1), "upper": (-2, -2), "step": (1, 2), "taps": (2, 2), "pixels": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    "field, possible, impossible",
    [
        ("lower", (-128, 3), [(-129, 0), (0, 128), (4, 0), (0, 3)]),
        ("upper", (127, -5), [(128, 0), (-7, 0), (0, -6)]),
        ("step", (8, 8), [(9, 1), (0, 1), (1, 0)]),
        ("taps", (255, 255), [(256, 0), (0, 256), (-1, 0)]),
        ("pixels", 1024, [1025, 0]),
        ("extent", (1, 6, 5, 1), [(64, 0, 5, 2), (64, 6, 5)]),
        ("strides", (16, 16, 16), [(128, 768, 3848), (8, 768, 3840), (128, 768)]),
    ],
)
def test_impossible_im2col_fields_are_known(field, possible, impossible):
    if field in ("lower", "upper"):  # Both limits at once would leave no pixel.
        assert Im2colMap("half", **PIXELS | {field: (possible[0], PIXELS[field][1])}).is_possible
    else:
        assert Im2colMap("half", **PIXELS | {field: possible}).is_possible
    for value in impossible:
        assert not Im2colMap("half", **PIXELS | {field: value}).is_possible, value


VOLUMES = {
    "extent": (64, 6, 5, 4, 2), "strides": (128, 768, 3840, 15360), "lower": (-1, -1, -1), "upper": (-2, -2, -2), "step": (1, 2, 1),
    "taps": (2, 2, 2), "pixels": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    "field, possible, impossible",
    [
        ("lower", (-16, -16, -16), [(-17, 0, 0), (0, 0, 2)]),
        ("upper", (15, 15, 15), [(16, 0, 0), (0, 0, -5)]),
        ("taps", (31, 31, 31), [(32, 0, 0), (0, 0, 32)]),
        ("step", (8, 8, 8), [(1, 1, 9), (1, 1, 0)]),
    ],
)
def test_pixels_of_volumes(field, possible, impossible):
    assert Im2colMap("half", **VOLUMES | {field: possible}).is_possible
    for value in impossible:
        assert not Im2colMap("half", **VOLUMES | {field: value}).is_possible, value


@pytest.mark.parametrize("address, possible", [(4096, True), (4104, False), (4100, False), (4112, True)])
def test_unaligned_addresses_are_refused(address, possible):
    tensor = Im2colMap("half", **PIXELS)
    if possible:
        assert len(emulated_map(tensor, address)) == MAP_BYTES
    else:
        with pytest.raises(DeviceError, match="TMA cannot read"):
            emulated_map(tensor, address)
