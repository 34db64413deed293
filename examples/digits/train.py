"""Train the digits classifier in NumPy and write weights.npz.

The network has two blocks of a 3 x 3 convolution, bias, ReLU and 2 x 2 maxima. A convolution over the remaining
2 x 2 positions, a bias and a softmax follow. Adam minimises the cross-entropy. Everything is float64 and seeded, so
machines agree in nearly all digits of the float32 weights.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from data import Digits, split_digits

Array = np.ndarray
Weights = dict[str, Array]

WEIGHTS = Path(__file__).with_name("weights.npz")
FILTERS = {"first": (16, 1, 3, 3), "second": (32, 16, 3, 3), "classifier": (10, 32, 2, 2)}
PADDING = {"first": 1, "second": 1, "classifier": 0}
SEED = 0
EPOCHS = 20
BATCH = 32
RATE = 4e-3  # learning rate
DECAY = 1e-2
MOMENTS = (0.9, 0.99)
TINY = 1e-8


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Trains the digits classifier.")
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="the file to write (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    training, held_out = split_digits()
    weights = train(training)
    for name, digits in (("training", training), ("held-out", held_out)):
        right = _forward(digits.images, weights)[-1].argmax(1) == digits.labels
        print(f"{right.mean():.1%} of {len(right)} {name} images are right")
    np.savez(chosen.out, **{name: value.astype(np.float32) for name, value in weights.items()})


def train(digits: Digits) -> Weights:
    """Return the weights after EPOCHS passes over the digits, with a rate that falls to 0."""
    random = np.random.RandomState(SEED)  # Its streams never change; default_rng may change them.
    weights: Weights = {}
    for layer, dims in FILTERS.items():
        weights[f"{layer}_filter"] = random.standard_normal(dims) * np.sqrt(2 / np.prod(dims[1:]))
        weights[f"{layer}_bias"] = np.zeros((1, dims[0], 1, 1))
    means, squares = ({name: np.zeros_like(value) for name, value in weights.items()} for _ in MOMENTS)
    count = len(digits.labels)
    batches = [
        batch for _ in range(EPOCHS) for batch in np.split(random.permutation(count), range(BATCH, count, BATCH))
    ]
    for step, batch in enumerate(batches, 1):
        rate = RATE * (1 - step / len(batches))
        for name, gradient in gradients(digits.images[batch], digits.labels[batch], weights).items():
            means[name] += (1 - MOMENTS[0]) * (gradient - means[name])
            squares[name] += (1 - MOMENTS[1]) * (gradient**2 - squares[name])
            mean, square = means[name] / (1 - MOMENTS[0] ** step), squares[name] / (1 - MOMENTS[1] ** step)
            weights[name] -= rate * (mean / (np.sqrt(square) + TINY) + DECAY * weights[name])
    return weights


def loss(images: Array, labels: Array, weights: Weights) -> float:
    """Return the mean cross-entropy."""
    scores = _forward(images, weights)[-1]
    largest = scores.max(1, keepdims=True)
    sums = largest[:, 0] + np.log(np.exp(scores - largest).sum(1))
    return float(np.mean(sums - scores[np.arange(len(labels)), labels]))


def gradients(images: Array, labels: Array, weights: Weights) -> Weights:
    """Return the gradient of the loss for every weight."""
    first, first_maxima, second, second_maxima, scores = _forward(images, weights)
    slope = np.exp(scores - scores.max(1, keepdims=True))
    slope /= slope.sum(1, keepdims=True)
    slope[np.arange(len(labels)), labels] -= 1
    found: Weights = {}
    slope = _convolution_gradient("classifier", second, slope[:, :, None, None] / len(labels), weights, found)
    slope = _maxima_gradient(slope * (second > 0), second_maxima)
    slope = _convolution_gradient("second", first, slope, weights, found)
    slope = _maxima_gradient(slope * (first > 0), first_maxima)
    _filter_gradient("first", images.astype(np.float64), slope, weights, found)
    return found


def _forward(images: Array, weights: Weights) -> tuple[Array, Array, Array, Array, Array]:
    """Return (first layer, shares of its maxima, second layer, shares of its maxima, scores (images, 10))."""
    first, first_maxima = _maxima(_convolution("first", images.astype(np.float64), weights))
    first = np.maximum(first, 0)
    second, second_maxima = _maxima(_convolution("second", first, weights))
    second = np.maximum(second, 0)
    return first, first_maxima, second, second_maxima, _convolution("classifier", second, weights)[:, :, 0, 0]


def _convolution(layer: str, x: Array, weights: Weights) -> Array:
    w = weights[f"{layer}_filter"]
    windows = _windows(x, w.shape[2], PADDING[layer])
    return np.moveaxis(np.tensordot(windows, w, [(1, 4, 5), (1, 2, 3)]), -1, 1) + weights[f"{layer}_bias"]


def _convolution_gradient(layer: str, x: Array, slope: Array, weights: Weights, found: Weights) -> Array:
    """Store the gradients of filter and bias in ``found``, and return the gradient of x."""
    _filter_gradient(layer, x, slope, weights, found)
    turned = weights[f"{layer}_filter"][:, :, ::-1, ::-1]
    size = turned.shape[2]
    windows = _windows(slope, size, size - 1 - PADDING[layer])
    return np.moveaxis(np.tensordot(windows, turned, [(1, 4, 5), (0, 2, 3)]), -1, 1)


def _filter_gradient(layer: str, x: Array, slope: Array, weights: Weights, found: Weights) -> None:
    windows = _windows(x, weights[f"{layer}_filter"].shape[2], PADDING[layer])
    found[f"{layer}_filter"] = np.tensordot(slope, windows, [(0, 2, 3), (0, 2, 3)])
    found[f"{layer}_bias"] = slope.sum((0, 2, 3)).reshape(1, -1, 1, 1)


def _windows(x: Array, size: int, padding: int) -> Array:
    """Return the window at each position of a filter: (images, channels, rows, columns, size, size)."""
    padded = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    return np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))


def _maxima(x: Array) -> tuple[Array, Array]:
    """Return the maxima of 2 x 2 squares, and each element's share in its maximum, which equal elements divide."""
    images, channels, height, width = x.shape
    squares = x.reshape(images, channels, height // 2, 2, width // 2, 2)
    maxima = squares.max((3, 5), keepdims=True)
    places = squares == maxima
    return maxima[:, :, :, 0, :, 0], places / places.sum((3, 5), keepdims=True)


def _maxima_gradient(slope: Array, shares: Array) -> Array:
    images, channels, height, _, width, _ = shares.shape
    return (slope[:, :, :, None, :, None] * shares).reshape(images, channels, 2 * height, 2 * width)


if __name__ == "__main__":
    main()
