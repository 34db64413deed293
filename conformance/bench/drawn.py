"""Draws layers that no list names from the domain of each family, with sizes that are uniform in their logarithm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .convolution_rows import FORMATS
from .layers import ACTIVATIONS, CELLS, POOLINGS, Layer, rows_of
from .row import Row

MIN_BYTES = 1 << 16  # per row; a smaller row would time only its launch
MAX_BYTES = 1 << 31  # per row, so that all contenders' buffers fit on a GPU
MAX_FLOPS = 4 * 10**12  # per row, some 10 ms on tensor cores
CONVOLUTIONS = 0.5  # share of the drawn layers
KINDS = ("half", "half", "bfloat16", "TF32", "float")  # half is drawn twice as often as the others
MEMORY_KINDS = ("half", "bfloat16", "float")
NO_BFLOAT16 = ("batch normalization", *POOLINGS)  # The document lists no BFLOAT16 for these.
OTHER_KINDS = (
    *POOLINGS,
    *ACTIVATIONS,
    *CELLS,
    "batch normalization",
    "batch normalization",
    "softmax",
    "lrn",
    "dropout",
    "attention",
)


class Draws:
    """Draws sizes and choices from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def size(self, low: int, high: int) -> int:
        """Return an integer whose logarithm is uniform between both limits."""
        return round(float(np.exp(self.random.uniform(np.log(low), np.log(high)))))

    def channels(self, low: int = 1, high: int = 2048) -> int:
        """Return a number of channels; two of three are multiples of 8, as networks have them."""
        found = self.size(low, high)
        return found if found < 8 or self.random.random() < 1 / 3 else found // 8 * 8

    def one_of(self, choices: tuple[Any, ...]) -> Any:
        """Return one of the choices, each as likely as the others."""
        return choices[int(self.random.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)


def extents(draws: Draws, rank: int) -> tuple[int, ...]:
    """Return spatial sizes: lines, images, often square, or volumes."""
    if rank == 1:
        return (1, draws.size(16, 32768))
    if rank == 3:
        return (draws.size(4, 64), *(draws.size(7, 112),) * 2)
    side = draws.size(4, 512)
    return (side, side) if draws.chance(0.7) else (side, draws.size(4, 512))


def convolution(draws: Draws) -> Layer:
    """Draw a convolution in one, two or three dimensions: dense, depthwise or grouped, strided, dilated."""
    rank = draws.one_of((1, 2, 2, 2, 2, 2, 3))
    space = extents(draws, rank)
    tap = draws.one_of((1, 1, 3, 3, 3, 5, 7, 2, 4, 16))
    taps = (1, draws.one_of((3, 5, 7, 11, 31))) if rank == 1 else (tap,) * rank
    if rank == 2 and draws.chance(0.1):
        taps = draws.one_of(((1, 7), (7, 1), (3, 1), (1, 3), (1, 31)))
    step = draws.one_of((1, 1, 1, 2, 2, 3))
    patches = rank == 2 and tap in (2, 4, 16)
    stride = taps if patches else tuple(step if t > 1 or rank != 1 else 1 for t in taps)
    spread = draws.one_of((2, 4)) if max(taps) > 1 and not patches and draws.chance(0.1) else 1
    dilation = tuple(spread if t > 1 else 1 for t in taps)
    padding = (0,) * len(taps) if patches else tuple(d * (t - 1) // 2 for t, d in zip(taps, dilation, strict=True))
    groups, channels, filters = 1, draws.channels(), draws.channels()
    if draws.chance(0.2):
        channels = filters = groups = draws.channels(8)
    elif draws.chance(0.15):
        groups = draws.one_of((2, 4, 8, 32))
        channels, filters = (groups * draws.channels(1, 64) for _ in range(2))
    x = (draws.size(1, 256), channels, *space)
    return Layer("convolution", x, (filters, channels // groups, *taps), (), stride, padding, dilation, groups)


def other(draws: Draws) -> Layer:
    """Draw a layer of another family."""
    kind = draws.one_of(OTHER_KINDS)
    if kind in CELLS:
        return Layer(
            kind,
            sequence=(draws.size(8, 512), draws.size(1, 256), draws.size(32, 2048), draws.size(1, 3), draws.size(1, 2)),
        )
    if kind == "attention":
        steps = draws.size(32, 4096)
        return Layer(
            kind,
            sequence=(
                steps,
                steps,
                draws.size(1, 128),
                draws.one_of((1, 1, 4, 8, 16)),
                draws.one_of((32, 40, 64, 80, 128, 160, 256)),
            ),
        )
    rank = draws.one_of((2, 2, 2, 3)) if kind in POOLINGS or kind == "batch normalization" else 2
    x = (draws.size(1, 256), draws.channels(), *extents(draws, rank))
    if kind not in POOLINGS:
        return Layer(kind, x)
    window = draws.one_of((2, 3, 3, 5, 0))
    if not window:
        return Layer(kind, x, window=(0,) * rank, stride=(0,) * rank, padding=(0,) * rank)
    return Layer(
        kind,
        x,
        window=(window,) * rank,
        stride=(draws.one_of((1, 2, 2, window)),) * rank,
        padding=(window % 2 * (window // 2),) * rank,
    )


def drawn(count: int, seed: int) -> Iterator[tuple[Layer, str, str]]:
    """Yield ``count`` layers with their kind of data and layout; the same for the same seed."""
    draws = Draws(seed)
    while count:
        of_convolution = draws.chance(CONVOLUTIONS)
        layer = convolution(draws) if of_convolution else other(draws)
        kind = draws.one_of(KINDS if of_convolution else MEMORY_KINDS)
        if layer.sequence or layer.kind in NO_BFLOAT16:
            kind = draws.one_of(("half", "float"))
        layout = draws.one_of(tuple(FORMATS))
        if layer.kind == "lrn" and len(layer.x) == 5:
            layout = "NCHW"
        if timed(layer, kind, layout):
            count -= 1
            yield layer, kind, layout


def timed(layer: Layer, kind: str, layout: str) -> bool:
    """Return whether every call of the layer exists and is neither too small nor too large to time."""
    try:
        rows = list(rows_of(layer, kind, layout))
    except (ValueError, ArithmeticError):
        return False
    written = (row.operation.tensor(name) for row in rows for name in row.operation.tensors_written)
    positive = all(min(tensor.dims) > 0 for tensor in written)
    return positive and all(MIN_BYTES <= row.nbytes <= MAX_BYTES and row.flops <= MAX_FLOPS for row in rows)


def drawn_rows(count: int, seed: int) -> list[Row]:
    """Return the rows of the drawn layers, each once."""
    found = {row.name: row for layer, kind, layout in drawn(count, seed) for row in rows_of(layer, kind, layout)}
    return list(found.values())
