"""Trains a digits classifier through the documented calls, forward and backward, from random weights.

Two times a convolution of 3 x 3, batch normalisation, ReLU and the maxima of 2 x 2; dropout; a convolution as large as what is left
(2 x 2), softmax. The mean cross-entropy is minimised by gradient descent with momentum, whose arithmetic is NumPy's. After each epoch
a checkpoint is written, from which a run that was stopped goes on with the same numbers.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from data import Digits, split_digits
from dualdnn.accelerated import gpu_is_usable
from dualdnn.api import cudnn
from layers import Array, BatchNorm, Convolution, Dropout, Layer, MaxPooling, Parameters, Relu, Softmax

BATCH, EVALUATED = 32, 60  # images at a time; both as many as all calls of a network take
EPOCHS, RATE, MOMENTUM, DECAY = 12, 0.08, 0.9, 5e-4
DROPPED = 0.25
TINY = np.float32(1e-30)  # the least probability whose logarithm is taken
SEED = 1
FILTERS = {"first": (16, 1, 3, 3), "second": (32, 16, 3, 3), "classifier": (10, 32, 2, 2)}
RUNNING = ("_mean", "_variance")  # names of what is gathered, not learned


class Epoch(NamedTuple):
    """What is plotted: the mean loss of the training images while they were learned, the share of held-out images that are right."""

    loss: float
    accuracy: float


class Network:
    """The layers for batches of one size. states: of dropout, where it goes on."""

    def __init__(
        self, handle: Any, parameters: Parameters, batch: int, dropped: float, states: Array | None = None
    ) -> None:
        self.handle, self.batch, self.layers = handle, batch, list[Layer]()

        def add(layer: Layer) -> tuple[int, ...]:
            self.layers.append(layer)
            return layer.y_dims

        dims: tuple[int, ...] = (batch, 1, 8, 8)
        for name in ("first", "second"):
            dims = add(Convolution(handle, dims, parameters, name, padding=1))
            dims = add(BatchNorm(handle, dims, parameters, name))
            dims = add(Relu(handle, dims))
            dims = add(MaxPooling(handle, dims))
        self.dropout = Dropout(handle, dims, dropped, SEED, states) if dropped else None
        if self.dropout:
            dims = add(self.dropout)
        dims = add(Convolution(handle, dims, parameters, "classifier", padding=0))
        self.classes = add(Softmax(handle, dims))[1]

    def probabilities(self, images: Array, training: bool) -> Array:
        """Probabilities (batch, classes) of images (batch, 1, 8, 8)."""
        y = self.handle.to_device(images)
        for layer in self.layers:
            y = layer.forward(y, training)
        return y.to_host(np.float32, (self.batch, self.classes))

    def step(self, images: Array, labels: Array) -> tuple[float, dict[str, Array]]:
        """(mean cross-entropy, its gradient by parameter) of a batch."""
        probabilities = self.probabilities(images, training=True)
        right = np.maximum(probabilities[np.arange(self.batch), labels], TINY)
        slope = np.zeros_like(probabilities)
        slope[np.arange(self.batch), labels] = -1 / (self.batch * right)
        dy = self.handle.to_device(slope)
        for layer in reversed(self.layers):
            dy = layer.backward(dy)
        found = {
            name: memory.to_host(np.float32, dims)
            for layer in self.layers
            for name, (memory, dims) in layer.gradients.items()
        }
        return float(-np.log(right).mean(dtype=np.float64)), found


def first_values(seed: int = SEED) -> dict[str, Array]:
    """Random filters, neutral everything else."""
    random = np.random.RandomState(seed)  # its streams never change, those of default_rng may
    values = {}
    for layer, dims in FILTERS.items():
        values[f"{layer}_filter"] = random.standard_normal(dims) * np.sqrt(2 / np.prod(dims[1:]))
        values[f"{layer}_bias"] = np.zeros((1, dims[0], 1, 1))
    for layer in ("first", "second"):
        channels = (1, FILTERS[layer][0], 1, 1)
        values |= {f"{layer}_{name}": np.full(channels, value) for name, value in
                   (("scale", 1.0), ("shift", 0.0), ("mean", 0.0), ("variance", 1.0))}  # fmt: skip
    return {name: value.astype(np.float32) for name, value in values.items()}


class Descent:
    """Gradient descent with momentum on the host's copies of the parameters."""

    def __init__(self, parameters: Parameters, momenta: dict[str, Array] | None = None) -> None:
        self.parameters = parameters
        self.values = {name: value for name, value in parameters.values().items() if not name.endswith(RUNNING)}
        self.momenta = momenta or {name: np.zeros_like(value) for name, value in self.values.items()}

    def step(self, gradients: dict[str, Array], rate: float) -> None:
        """Move every parameter."""
        for name, gradient in gradients.items():
            value, momentum = self.values[name], self.momenta[name]
            decay = DECAY if name.endswith("_filter") else 0
            momentum *= np.float32(MOMENTUM)
            momentum += gradient + np.float32(decay) * value
            value -= np.float32(rate) * momentum
            self.parameters[name] = value


class Training:
    """A run: what is learned, how far it is, what it has achieved. Another network makes a subclass of its own of it.

    network_of: of a handle, parameters, the images of a batch, the probability of dropout and its states.
    """

    network_of: Any = Network
    first_values = staticmethod(first_values)
    rate = RATE

    def __init__(self, handle: Any, epochs: int, dropped: float = DROPPED, checkpoint: Path | None = None) -> None:
        stored: dict[str, Array] = {}
        if checkpoint is not None and checkpoint.exists():
            with np.load(checkpoint) as file:
                stored = dict(file)
        self.handle, self.epochs, self.checkpoint = handle, epochs, checkpoint

        def part(prefix: str) -> dict[str, Array]:
            return {name.removeprefix(prefix): value for name, value in stored.items() if name.startswith(prefix)}

        self.parameters = Parameters(handle, part("parameter ") or self.first_values())
        self.descent = Descent(self.parameters, part("momentum "))
        self.network = self.network_of(handle, self.parameters, BATCH, dropped, stored.get("dropout states"))
        self.evaluated = self.network_of(handle, self.parameters, EVALUATED, dropped)
        self.history = [Epoch(*map(float, row)) for row in stored.get("history", ())]

    def run(self, training: Digits, held_out: Digits, stop: int | None = None) -> list[Epoch]:
        """Train until as many epochs are done, fewer with ``stop``; every epoch has an order of the images of its own."""
        for epoch in range(len(self.history), self.epochs if stop is None else stop):
            losses = self.steps(training, epoch, len(training.labels) // BATCH)
            self.history.append(Epoch(float(np.mean(losses)), self.accuracy(held_out)))
            self.save()
        return self.history

    def steps(self, training: Digits, epoch: int, count: int) -> list[float]:
        """Make the first ``count`` steps of an epoch; the loss of each."""
        order = np.random.RandomState(1000 * SEED + epoch).permutation(len(training.labels))
        of_epoch, losses = len(training.labels) // BATCH, list[float]()
        for i in range(count):
            batch = order[i * BATCH : (i + 1) * BATCH]
            loss, gradients = self.network.step(training.images[batch], training.labels[batch])
            done = (epoch * of_epoch + i) / (self.epochs * of_epoch)
            self.descent.step(gradients, self.rate * 0.5 * (1 + np.cos(np.pi * done)))  # falls to 0
            losses.append(loss)
            show_progress(epoch + (i + 1) / of_epoch, self.epochs, f"loss {np.mean(losses):.4f}")
        return losses

    def predictions(self, digits: Digits) -> Array:
        """What the network reads in each image."""
        batches = np.split(digits.images, range(EVALUATED, len(digits.images), EVALUATED))
        return np.concatenate([self.evaluated.probabilities(images, training=False).argmax(1) for images in batches])

    def accuracy(self, digits: Digits) -> float:
        """The share of images that are read right."""
        return float(np.mean(self.predictions(digits) == digits.labels))

    def save(self) -> None:
        """Write the checkpoint, as a whole or not at all."""
        if self.checkpoint is None:
            return
        stored = {f"parameter {name}": value for name, value in self.parameters.values().items()}
        stored |= {f"momentum {name}": value for name, value in self.descent.momenta.items()}
        stored["history"] = np.array(self.history)
        if self.network.dropout:
            states = self.network.dropout.states
            stored["dropout states"] = states.to_host(np.uint8, states.nbytes)
        partial = self.checkpoint.with_suffix(".partial.npz")
        np.savez(partial, **stored)
        partial.replace(self.checkpoint)


def show_progress(done: float, total: int, said: str) -> None:
    """A bar on a terminal."""
    if sys.stderr.isatty():
        filled = int(40 * done / total)
        end = "\n" if done >= total else ""
        print(f"\r[{'#' * filled}{'.' * (40 - filled)}] epoch {done:.1f} of {total}, {said}", end=end, file=sys.stderr)


def plot(history: list[Epoch], path: Path) -> None:
    """Loss and accuracy over the epochs, as PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots(1, 2)
    for which, name, values in (
        (axes[0], "mean loss of the training images", [epoch.loss for epoch in history]),
        (axes[1], "held-out images read right", [epoch.accuracy for epoch in history]),
    ):
        which.plot(range(1, len(values) + 1), values, marker=".")
        which.set(xlabel="epoch", title=name)
        which.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main(arguments: list[str] | None = None, kind: type[Training] = Training, epochs: int = EPOCHS) -> None:
    parser = argparse.ArgumentParser(description="Trains a digits classifier through the documented calls.")
    parser.add_argument("--backend", choices=("reference", "accelerated", "crosscheck"),
                        default="accelerated" if gpu_is_usable() else "reference",
                        help="what trains (default here: %(default)s)")  # fmt: skip
    parser.add_argument("--device", choices=("emulated", "gpu"), default="gpu" if gpu_is_usable() else "emulated",
                        help="of the accelerated backend (default here: %(default)s)")  # fmt: skip
    parser.add_argument("--epochs", type=int, default=epochs, help="passes over the images (default: %(default)s)")
    parser.add_argument("--stop", type=int, metavar="N", help="stop after N epochs of a longer run")
    parser.add_argument(
        "--checkpoint", type=Path, metavar="FILE", help="written after each epoch; gone on from, if there"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write loss and accuracy as PNG")
    chosen = parser.parse_args(arguments)
    training, held_out = split_digits()

    def opened(backend: str) -> Any:
        return cudnn.cudnnCreate(backend=backend, device=None if backend == "reference" else chosen.device)

    handle = opened(chosen.backend)
    run = kind(handle, chosen.epochs, checkpoint=chosen.checkpoint)
    for number, epoch in enumerate(run.run(training, held_out, chosen.stop), 1):
        print(
            f"epoch {number}: loss {epoch.loss:.6f}, {epoch.accuracy:.2%} of {len(held_out.labels)} held-out images are right"
        )
    if chosen.plot:
        plot(run.history, chosen.plot)
    other = opened("accelerated" if chosen.backend == "reference" else "reference")
    agreement(run, other, training, held_out)


def agreement(run: Training, other: Any, training: Digits, held_out: Digits) -> None:
    """Print whether another backend reads the held-out images alike, and how far its gradients of one batch are from this one's."""
    again = type(run)(other, run.epochs, dropped=0.0)
    again.parameters = Parameters(other, run.parameters.values())
    networks = [
        run.network_of(handle, values, BATCH, 0.0)
        for handle, values in ((run.handle, run.parameters), (other, again.parameters))
    ]
    again.evaluated = run.network_of(other, again.parameters, EVALUATED, 0.0)
    equal = np.count_nonzero(run.predictions(held_out) == again.predictions(held_out))
    print(f"agreement with {other.backend.description}: {equal} of {len(held_out.labels)} predictions equal")
    (_, first), (_, second) = (network.step(training.images[:BATCH], training.labels[:BATCH]) for network in networks)
    largest = max(float(np.abs(gradient).max()) for gradient in second.values())
    apart = max(float(np.abs(first[name] - second[name]).max()) for name in first) / largest
    print(f"largest difference of gradients, of the largest of all: {apart:.1e}")


if __name__ == "__main__":
    main()
