"""Test the judging of sampled pixels: calls take turns over the image, and a wrong tile is found soon."""

from __future__ import annotations

import numpy as np
import pytest
from dualdnn.api.operations import parse
from dualdnn.conformance.trial import prepare
from dualdnn.reference import evaluate, pixels, run, sampled
from dualdnn.reference.formulas import Pages
from dualdnn.reference.judge import bounds

NAMES = {"Forward": ("x", "w", "y"), "BackwardData": ("dx", "w", "dy"), "BackwardFilter": ("x", "dw", "dy")}
ALGOS = {"Forward": "FWD_ALGO_IMPLICIT_GEMM", "BackwardData": "BWD_DATA_ALGO_1", "BackwardFilter": "BWD_FILTER_ALGO_1"}


def convolution(
    kind, x, filters, taps, stride=1, padding=0, groups=1, dilation=1, mode="CROSS_CORRELATION", is_nhwc=False
):
    """Return a convolution operation; x is (N, C, H, W)."""
    extent = [(size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1 for size in x[2:]]
    dims = {"x": x, "y": (x[0], filters, *extent), "w": (filters, x[1] // groups, taps, taps)}

    def tensor(name, n, c, h, w):
        strides = (c * h * w, 1, w * c, c) if is_nhwc else (c * h * w, h * w, w, 1)
        return f"{name}=TensorSpec(data_type=CUDNN_DATA_FLOAT, dims={(n, c, h, w)}, strides={strides})"

    described = {
        name: f"{name}=FilterSpec(data_type=CUDNN_DATA_FLOAT, format=CUDNN_TENSOR_{'NHWC' if is_nhwc else 'NCHW'}, dims={dims['w']})"
        if name[-1] == "w"
        else tensor(name, *dims[name[-1]])
        for name in NAMES[kind]
    }
    order = {"Forward": "x w y", "BackwardData": "w dy dx", "BackwardFilter": "x dy dw"}[kind].split()
    return parse(
        f"Convolution{kind}(convolution=ConvolutionSpec(mode=CUDNN_{mode}, compute_type=CUDNN_DATA_FLOAT, padding={(padding,) * 2},"
        f" stride={(stride,) * 2}, dilation={(dilation,) * 2}, group_count={groups}, math_type=CUDNN_FMA_MATH,"
        f" reorder_type=CUDNN_DEFAULT_REORDER), algo=CUDNN_CONVOLUTION_{ALGOS[kind]}, workspace_bytes=0, alpha=0.5, beta=0.0,"
        f" {', '.join(described[name] for name in order)})"
    )


SHAPES = [
    dict(x=(2, 6, 9, 8), filters=4, taps=3, padding=1),
    dict(x=(2, 6, 9, 8), filters=4, taps=3, padding=2, stride=2, groups=2, mode="CONVOLUTION", is_nhwc=True),
    dict(x=(2, 6, 11, 8), filters=12, taps=2, groups=6, dilation=3, stride=3),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cell", [1, 2])  # channels
@pytest.mark.parametrize("kind", ["Forward", "BackwardData"])
def test_pixels_are_what_the_reference_computes(kind, cell, shape, monkeypatch):
    """Values and bounds equal the judge's, and the call that samples a pixel and a channel finds that it is wrong."""
    operation = convolution(kind, **shape)
    monkeypatch.setattr(pixels, "CELL", cell)
    monkeypatch.setattr(pixels, "MIN_CHANNELS", 1)
    memory = prepare(operation, "normal", 1)
    after = {name: array.copy() for name, array in memory.items()}
    run(operation, after)
    (output,) = operation.outputs
    exact = evaluate(operation, memory)[output]
    value, bound = bounds(operation, output, exact, memory)
    assert pixels.serves(operation)

    def looked(number):
        pages = {
            name: Pages(array.size, lambda begin, count, array=array: array[begin : begin + count].copy())
            for name, array in memory.items()
        }
        said, found = sampled.Sample(), pixels.Pixels(operation, pages, number)
        written = after[output]
        found.compare(Pages(written.size, lambda begin, count: written[begin : begin + count].copy()), said)
        return found, said

    met = 0
    for number in range(pixels.ROUNDS):
        found, said = looked(number)
        assert not said.wrong and said.worst <= 1
        for row, place in enumerate(found.places):
            index = (place[0], found.channels, *place[1:])
            assert np.allclose(found.value[row], value[index], rtol=1e-12)
            assert np.allclose(found.bound[row], bound[index], rtol=1e-6)
            met += 1
        assert sorted(found.channels // cell) == list(range(-(-value.shape[1] // cell)))
    assert met * cell >= value[:, 0].size
    found = looked(3)[0]
    place = (found.places[0][0], found.channels[1], *found.places[0][1:])
    after[output].view(np.float32)[
        sum(int(i) * s for i, s in zip(place, operation.tensor(output).strides, strict=True))
    ] += 1
    assert len(looked(3)[1].wrong) == 1


def test_every_channel_has_its_turn():
    """A call computes 16 of 256 channels, one of each 16 neighbours; later calls compute others."""
    operation = convolution("Forward", (2, 6, 9, 8), 256, 3, 1, 1)
    calls = [pixels.channels_of(operation, number).tolist() for number in range(200)]
    assert all([channel // 16 for channel in call] == list(range(16)) for call in calls)
    assert {channel for call in calls for channel in call} == set(range(256))


# Layers of ResNet-50 at batch 128: (input channels, size, filters, taps, stride, number of equal layers).
LAYERS = [(3, 224, 64, 7, 2, 1)]
for size, width, blocks in ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3)):
    before, first = (64, 56) if size == 56 else (2 * width, 2 * size)
    stride = first // size
    LAYERS += [
        (before, first, width, 1, 1, 1),
        (width, first, width, 3, stride, 1),
        (before, first, 4 * width, 1, stride, 1),
    ]
    LAYERS += [
        (width, size, 4 * width, 1, 1, blocks),
        (4 * width, size, width, 1, 1, blocks - 1),
        (width, size, width, 3, 1, blocks - 1),
    ]
STEPS = 20
TILE = 128


def is_found(kind, layer, random):
    """Tell whether 20 steps judge an element of a random output tile of one of the equal layers."""
    channels, size, filters, taps, stride, alike = layer
    operation = convolution(kind, (128, channels, size, size), filters, taps, stride, taps // 2, is_nhwc=True)
    (output,) = operation.outputs
    dims = operation.tensor(output).dims
    own = int(random.integers(alike))
    numbers = [step * alike + own + 1 for step in range(STEPS)]
    if kind != "BackwardFilter":
        pixel_tiles, channel_tiles = -(-dims[0] * dims[2] * dims[3] // TILE), -(-dims[1] // TILE)
        first, column = int(random.integers(pixel_tiles)), int(random.integers(channel_tiles))
        for number in numbers:
            flat = np.ravel_multi_index(tuple(pixels.chosen(operation, number).T), (dims[0], *dims[2:]))
            if (flat // TILE == first).any() and (pixels.channels_of(operation, number) // TILE == column).any():
                return True
        return False
    row, column = (int(random.integers(-(-extent // TILE))) for extent in (dims[0], dims[1] * taps * taps))
    count = max(1, min(200, sampled.READS // (2 * operation.dy.dims[0] * operation.dy.dims[2] * operation.dy.dims[3])))
    for number in numbers:
        for k, c, r, s in sampled.places_of(operation, 200, number)[output][:count]:
            if k // TILE == row and ((r * taps + s) * dims[1] + c) // TILE == column:
                return True
    return False


@pytest.mark.parametrize("kind", NAMES)
def test_a_wrong_tile_of_resnet_50_is_found_within_twenty_steps(kind):
    """Sampling meets each of ten random tiles (128 x 128) of each layer."""
    random = np.random.default_rng(5)
    missed = [layer for layer in LAYERS for _ in range(10) if not is_found(kind, layer, random)]
    assert not missed, missed
