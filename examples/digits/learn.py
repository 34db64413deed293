"""Train a digits classifier through the documented calls, forward and backward, from random weights.

The network has two blocks of a 3 x 3 convolution, batch normalisation, ReLU and 2 x 2 maxima. Dropout, a convolution over the
remaining 2 x 2 positions and a softmax follow. NumPy does gradient descent with momentum on the mean cross-entropy. Each epoch ends
with a checkpoint, from which a stopped run continues with the same numbers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from data import Digits, split_digits
from dualdnn.accelerated import gpu_is_usable
from dualdnn.api import cudnn
from layers import Array, BatchNorm, Convolution, Dropout, Layer, MaxPooling, Parameters, Relu, Softmax

BATCH = 32  # images per training batch
EVALUATED = 60  # images per evaluated batch
EPOCHS = 12
RATE = 0.08  # learning rate
MOMENTUM = 0.9
DECAY = 5e-4  # factor of the weights in their gradient
DROPPED = 0.25
TINY = np.float32(1e-30)  # smaller probabilities count as this in a logarithm
SEED = 1
FILTERS = {"first": (16, 1, 3, 3), "second": (32, 16, 3, 3), "classifier": (10, 32, 2, 2)}
RUNNING = ("_mean", "_variance")  # endings of the names of running statistics


class Epoch(NamedTuple):
    """Hold what is plotted: the mean training loss during the epoch, and the accuracy on the held-out images."""

    loss: float
    accuracy: float


class Network:
    """Hold the layers for batches of one size. states: continue dropout from a checkpoint."""

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
        """Return probabilities (batch, classes) of images (batch, 1, 8, 8)."""
        y = self.handle.to_device(images)
        for layer in self.layers:
            y = layer.forward(y, training)
        return y.to_host(np.float32, (self.batch, self.classes))

    def step(self, images: Array, labels: Array) -> tuple[float, dict[str, Array]]:
        """Return (mean cross-entropy, its gradient by parameter) of a batch."""
        probabilities = self.probabilities(images, training=True)
        right = np.maximum(probabilities[np.arange(self.batch), labels], TINY)
        slope = np.zeros_like(probabilities)
        slope[np.arange(self.batch), labels] = -1 / (self.batch * right)
        return float(-np.log(right).mean(dtype=np.float64)), self.backward(self.handle.to_device(slope))

    def backward(self, dy: Any) -> dict[str, Array]:
        """Return the gradient by parameter, from the gradient of the last layer's outputs."""
        for layer in reversed(self.layers):
            dy = layer.backward(dy)
        return {
            name: memory.to_host(np.float32, dims)
            for layer in self.layers
            for name, (memory, dims) in layer.gradients.items()
        }


def first_values(seed: int = SEED) -> dict[str, Array]:
    """Return random filters, and neutral values for all other parameters."""
    random = np.random.RandomState(seed)  # Its streams never change; default_rng may change them.
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
    """Do gradient descent with momentum on the host's copies of the parameters."""

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
    """Hold a run: its parameters, progress and results. Another network derives a class from it.

    network_of: makes a network from a handle, parameters, images per batch, and the probability and states of dropout.
    """

    network_of: Any = Network
    first_values = staticmethod(first_values)
    data = staticmethod(split_digits)  # It returns (training data, held-out data).
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
        """Train for a number of epochs, or fewer with ``stop``. Each epoch has its own order of the images."""
        for epoch in range(len(self.history), self.epochs if stop is None else stop):
            losses = self.steps(training, epoch, len(training.labels) // BATCH)
            self.history.append(Epoch(float(np.mean(losses)), self.accuracy(held_out)))
            self.save()
        return self.history

    def steps(self, training: Digits, epoch: int, count: int) -> list[float]:
        """Make the first ``count`` steps of an epoch, and return their losses."""
        order = np.random.RandomState(1000 * SEED + epoch).permutation(len(training.labels))
        of_epoch, losses = len(training.labels) // BATCH, list[float]()
        for i in range(count):
            batch = order[i * BATCH : (i + 1) * BATCH]
            loss, gradients = self.network.step(training.images[batch], training.labels[batch])
            done = (epoch * of_epoch + i) / (self.epochs * of_epoch)
            self.descent.step(gradients, self.rate * 0.5 * (1 + np.cos(np.pi * done)))  # The rate falls to 0.
            losses.append(loss)
            show_progress(epoch + (i + 1) / of_epoch, self.epochs, f"loss {np.mean(losses):.4f}")
        return losses

    def predictions(self, digits: Digits) -> Array:
        """Return the network's answer for each image."""
        batches = np.split(digits.images, range(EVALUATED, len(digits.images), EVALUATED))
        return np.concatenate([self.evaluated.probabilities(images, training=False).argmax(1) for images in batches])

    def accuracy(self, digits: Digits) -> float:
        """Return the share of right answers."""
        return float(np.mean(self.predictions(digits) == digits.labels))

    def save(self) -> None:
        """Write the checkpoint completely, or leave the earlier one."""
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


KINDS = {"convolutions": Training}


def show_progress(done: float, total: int, said: str) -> None:
    """Show a progress bar on a terminal."""
    if sys.stderr.isatty():
        filled = int(40 * done / total)
        end = "\n" if done >= total else ""
        print(f"\r[{'#' * filled}{'.' * (40 - filled)}] epoch {done:.1f} of {total}, {said}", end=end, file=sys.stderr)


def plot(history: list[Epoch], path: Path) -> None:
    """Plot loss and accuracy over the epochs, as PNG."""
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


def main(
    arguments: list[str] | None = None,
    kinds: Mapping[str, type[Training]] = KINDS,
    epochs: int = EPOCHS,
    finish: Callable[[Training, Any, Path | None], None] | None = None,
) -> None:
    """Train the variant that the command line names.

    finish: gets the run, the held-out data, and the path of the plot.
    """
    parser = argparse.ArgumentParser(description="Trains a network through the documented calls.")
    parser.add_argument(
        "--variant", choices=tuple(kinds), default=next(iter(kinds)), help="network to train (default: %(default)s)"
    )
    parser.add_argument("--backend", choices=("reference", "accelerated", "crosscheck"),
                        default="accelerated" if gpu_is_usable() else "reference",
                        help="what trains (default here: %(default)s)")  # fmt: skip
    parser.add_argument("--device", choices=("emulated", "gpu"), default="gpu" if gpu_is_usable() else "emulated",
                        help="device of the accelerated backend (default here: %(default)s)")  # fmt: skip
    parser.add_argument("--epochs", type=int, default=epochs, help="passes over the images (default: %(default)s)")
    parser.add_argument("--stop", type=int, metavar="N", help="stop after N epochs of a longer run")
    parser.add_argument(
        "--checkpoint", type=Path, metavar="FILE", help="written after each epoch; gone on from, if there"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write loss and accuracy as PNG")
    chosen = parser.parse_args(arguments)
    kind = kinds[chosen.variant]
    training, held_out = kind.data()

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
    if finish:
        finish(run, held_out, chosen.plot)
    agreement(run, other, training, held_out)


def agreement(run: Training, other: Any, training: Digits, held_out: Digits) -> None:
    """Print whether another backend gives the same answers, and the distance of its gradients of one batch."""
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
