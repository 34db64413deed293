"""Classify the held-out digits on a backend; print the accuracy, the time, and whether the other backend agrees."""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from data import Digits, split_digits
from dualdnn.accelerated import gpu_is_usable
from dualdnn.api import cudnn
from network import Network
from picture import write_picture

WEIGHTS = Path(__file__).with_name("weights.npz")
BATCH = 60  # images, a divisor of the number of held-out images
MATH_TYPES = {"default": cudnn.CUDNN_DEFAULT_MATH, "fma": cudnn.CUDNN_FMA_MATH}


class Result(NamedTuple):
    """Hold the results of one backend: probabilities (images, 10) and the median milliseconds of a batch."""

    probabilities: np.ndarray
    milliseconds: float

    @property
    def predictions(self) -> np.ndarray:
        return self.probabilities.argmax(1)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Classifies held-out digits through the documented calls.")
    parser.add_argument(
        "--backend",
        choices=("reference", "accelerated", "crosscheck"),
        default="crosscheck",
        help="what classifies; crosscheck is accelerated with every call judged (default: %(default)s)",
    )
    parser.add_argument(
        "--device",
        choices=("emulated", "gpu"),
        default="gpu" if gpu_is_usable() else "emulated",
        help="device of the accelerated backend (default here: %(default)s)",
    )
    parser.add_argument(
        "--math", choices=MATH_TYPES, default="default", help="math type of the convolutions (default: %(default)s)"
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write the images it got wrong as SVG")
    chosen = parser.parse_args(arguments)

    digits = split_digits()[1]
    with np.load(WEIGHTS) as stored:
        weights = dict(stored)
    results = []
    for backend in (chosen.backend, "accelerated" if chosen.backend == "reference" else "reference"):
        handle = cudnn.cudnnCreate(backend=backend, device=None if backend == "reference" else chosen.device)
        results.append(classify(handle, Network(handle, weights, BATCH, MATH_TYPES[chosen.math]), digits))
        cudnn.cudnnDestroy(handle)
    first, second = results
    equal = np.count_nonzero(first.predictions == second.predictions)
    difference = np.abs(first.probabilities - second.probabilities).max()
    print(
        f"agreement: {equal} of {len(digits.labels)} predictions equal, largest difference of probabilities {difference:.1e}"
    )
    if chosen.picture:
        wrong = np.flatnonzero(first.predictions != digits.labels)
        captions = [f"{digits.labels[i]} read as {first.predictions[i]}" for i in wrong]
        write_picture(chosen.picture, digits.images[wrong, 0], captions)


def classify(handle: Any, network: Network, digits: Digits) -> Result:
    """Classify and print. The first batch runs once before, so that no time includes the compilation of a kernel."""
    batches = np.split(digits.images, range(network.batch, len(digits.images), network.batch))
    network.probabilities(batches[0])
    probabilities, times = [], []
    for images in batches:
        start = perf_counter()
        probabilities.append(network.probabilities(images))
        times.append(1000 * (perf_counter() - start))
    result = Result(np.concatenate(probabilities), float(np.median(times)))
    right, count = np.count_nonzero(result.predictions == digits.labels), len(digits.labels)
    print(handle.backend.description)
    print(f"  {right} of {count} held-out images are right: accuracy {right / count:.1%}")
    print(f"  {result.milliseconds:.2f} ms for a batch of {network.batch} images (median)")
    for name, layer in network.convolutions.items():
        dims = " x ".join(map(str, layer.y_dims))
        print(f"  {name:10} {dims:16} {layer.algo.name}, workspace {layer.workspace_bytes} bytes")
    return result


if __name__ == "__main__":
    main()
