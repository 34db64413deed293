"""List the layers for which kernel wheels are built: sizes of image, language and sequence networks at many batches.

Networks need few modules that are specialised for shapes, whatever the batch. Each part of a sweep yields the
operations of one kind of layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from dualdnn.api.operations import Operation

from ..bench import rows as r
from ..bench.attention_rows import forward as attention
from ..bench.attention_rows import gradients as attention_gradients
from ..bench.attention_rows import spec as attention_spec
from ..bench.convolution_rows import FORMATS, KINDS, Layer, convolution, data_gradient, filter_gradient
from ..bench.rnn_rows import GRU, LSTM, forward, inference, network, passes

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FEW_BATCHES = (1, 8, 32, 128)
STORED = tuple(product((KINDS[kind][0] for kind in ("half", "TF32")), ("nhwc", "nchw")))
# channels -> image sizes that networks normalise
NORMALIZED = {
    16: (112, 56), 24: (56,), 32: (112, 56, 28), 36: (28,), 64: (112, 56, 28, 14), 90: (14,), 96: (112, 56, 28, 14),
    128: (112, 56, 28, 14), 144: (56, 28), 192: (56, 35, 28, 14), 256: (56, 28, 14, 7), 384: (17, 14),
    512: (56, 28, 14, 7), 576: (14,), 768: (17,), 960: (7,), 1024: (28, 14, 7), 1280: (7,), 2048: (14, 7),
}  # fmt: skip
# Channels and filters, and image sizes. Planes of 17 x 17 and 7 x 7 are not multiples of a vector.
CONVOLVED = ((64, 64), (256, 512), (1024, 128), (36, 58), (3, 32))
CONVOLVED_SIZES = (56, 17, 14, 7)
FUSED = tuple(r.norm_fused(ops, backward) for ops, backward in product((1, 2), (False, True)))
DEPTHWISE = (
    (32, 112), (96, 112), (144, 56), (192, 28), (384, 14), (576, 14), (960, 7), (256, 56), (512, 14), (768, 7),
    (36, 56), (36, 28), (90, 28), (90, 14),
)  # fmt: skip
POOLED = ((64, 112), (64, 256), (128, 56), (192, 28), (256, 28), (480, 14), (512, 14), (832, 7), (2048, 7))
VOLUMES = ((32, 64), (64, 32), (128, 16))  # channels, and the size of volumes
WINDOWS: tuple[tuple[str, int, int, int], ...] = (
    ("MAX", 2, 2, 0), ("MAX", 3, 2, 1), ("MAX", 3, 2, 0), ("MAX", 3, 1, 1), ("AVERAGE_COUNT_EXCLUDE_PADDING", 2, 2, 0),
    ("AVERAGE_COUNT_EXCLUDE_PADDING", 3, 1, 1), ("AVERAGE_COUNT_INCLUDE_PADDING", 3, 2, 1),
    ("AVERAGE_COUNT_EXCLUDE_PADDING", 0, 0, 0),
)  # fmt: skip
CLASSES = ((10, 1), (100, 1), (1000, 1), (21, 64), (32000, 1), (50257, 1), (151000, 1), (4, 128), (64, 56))
DROPPED = ((1024, 1), (4096, 1), (64, 56), (256, 28), (512, 14), (37, 11))
HIDDEN = (64, 128, 256, 512, 650, 768, 800, 1024, 1500, 2048)
STACKS = ((1, 1), (2, 1), (2, 2))  # layers, directions
SEQUENCES = (1, 8, 20, 32, 64, 128)
HEADS = ((8, 32), (12, 64), (16, 80), (8, 96), (32, 128), (8, 256), (6, 40), (1, 192), (1, 256))  # heads, size of each


def batch_normalization() -> Iterator[Operation]:
    for (data_type, layout), n, (channels, sizes) in product(STORED, BATCHES, NORMALIZED.items()):
        for size in sizes:
            fused = FUSED if layout == "nhwc" else ()
            for make in (r.batch_training, r.batch_backward, r.batch_inference, *fused):
                yield make(data_type, (n, channels, size, size), layout)


def depthwise_convolution() -> Iterator[Operation]:
    layers = product(("half", "TF32"), FORMATS.values(), FEW_BATCHES, DEPTHWISE, (3, 5, 7), (1, 2))
    for kind, layout, n, (channels, size), taps, stride in layers:
        plain = convolution(Layer(n, channels, size, channels, taps, stride, channels), kind, layout)
        yield from (plain, data_gradient(plain), filter_gradient(plain))


def convolutions() -> Iterator[Operation]:
    """Yield convolutions and gradients with and without a stride."""
    layers = product(("half", "TF32"), FORMATS.values(), (2, 32), CONVOLVED, CONVOLVED_SIZES, (1, 3, 5), (1, 2))
    for kind, layout, n, (channels, filters), size, taps, stride in layers:
        plain = convolution(Layer(n, channels, size, filters, taps, stride), kind, layout)
        yield from (plain, data_gradient(plain), filter_gradient(plain))


def pooling() -> Iterator[Operation]:
    for (data_type, layout), n, backward in product(STORED, FEW_BATCHES, (False, True)):
        for (channels, size), window in product(POOLED, WINDOWS):
            yield r.pooling(*window, backward)(data_type, (n, channels, size, size), layout)
        for (channels, size), window in product(VOLUMES, WINDOWS[:2]):
            yield r.pooling(*window, backward)(data_type, (n, channels, size, size, size), layout)


def softmax_and_dropout() -> Iterator[Operation]:
    for (data_type, layout), n, backward in product(STORED, (1, 8, 16, 32, 128, 256, 2048, 4096), (False, True)):
        for (classes, size), over in product(CLASSES, ("INSTANCE", "CHANNEL")):
            yield r.softmax(over, backward)(data_type, (n, classes, size, size), layout)
        for channels, size in DROPPED:
            yield r.dropout(backward)(data_type, (n, channels, size, size), layout)


def recurrent_networks() -> Iterator[Operation]:
    kinds = (KINDS[kind][0] for kind in ("half", "TF32"))
    for data_type, cell, size, stack, n in product(kinds, (LSTM, GRU), HIDDEN, STACKS, SEQUENCES):
        first = forward(network(cell, size, *stack, data_type), 64, (64,) * n)
        yield inference(first)
        yield from (operation for _, operation in passes(first))


def multi_head_attention() -> Iterator[Operation]:
    kinds = (KINDS[kind][0] for kind in ("half", "TF32"))
    shapes = product(kinds, (1, 8), (1, 128, 512, 2048), HEADS, (False, True), (True, False))
    for data_type, n, steps, (heads, size), causal, projected in shapes:
        spec = attention_spec(data_type, heads, size, heads * size, (steps, steps), n, projected)
        training = attention(spec, (steps, steps), n, causal, True)
        yield from (training, attention(spec, (steps, steps), n, causal, False))
        yield from (operation for _, operation in attention_gradients(training))


PARTS: dict[str, Callable[[], Iterator[Any]]] = {
    made.__name__: made
    for made in (
        batch_normalization,
        depthwise_convolution,
        convolutions,
        pooling,
        softmax_and_dropout,
        recurrent_networks,
        multi_head_attention,
    )
}
