"""Draw random sequences with labels. record_ctc.py runs PyTorch and optax on them, test_ctc_oracle.py the reference. Only NumPy is
needed; RandomState draws the same numbers in every version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

SHORT = 48  # small configurations, which have the first numbers
# Each entry is (time steps, labels, classes, factor of the activations, whether the labels leave one alignment).
LONG = [
    (2000, 500, 30, 1, False), (2000, 500, 80, 4, False), (1000, 500, 12, 2, True), (2000, 256, 28, 8, False), (600, 256, 3, 1, True),
    (2000, 1, 5, 1, False), (2000, 0, 5, 1, False),
]  # fmt: skip
COUNT = SHORT + len(LONG)


@dataclass
class Sequences:
    """Hold sequences. x: (time, sequence, class), activations if ``normalizes``, else probabilities; class 0 is the blank.

    labels: by sequence. weights: a factor for each class. Only the weighted sum of a time step's gradients is recorded."""

    number: int
    normalizes: bool
    x: Any
    labels: list[Any]
    input_lengths: list[int]
    weights: Any


def least(labels: Any) -> int:
    """Return the time steps that labels need: one each, and a blank between repetitions."""
    return len(labels) + int((labels[1:] == labels[:-1]).sum())


def sequences(number: int) -> Sequences:
    """Return the sequences with a number; all of them have an alignment."""
    random = np.random.RandomState(1000 + number)
    if number < SHORT:
        count, classes, factor = int(random.randint(1, 5)), int(random.randint(2, 13)), (1, 4, 20)[number % 3]
        labels = [random.randint(1, classes, random.randint(0, 13)) for _ in range(count)]
        lengths = [max(least(each), 1) + int(random.randint(0, 20)) for each in labels]
        times = max(lengths) + int(random.randint(0, 3))
    else:
        times, many, classes, factor, is_tight = LONG[number - SHORT]
        labels = [random.randint(1, classes, many)]
        lengths = [least(labels[0]) if is_tight else times]
    x = (
        np.rint(64 * factor * random.standard_normal((times, len(labels), classes))) / 64
    )  # The numbers are exact in float.
    normalizes = number % 4 != 3
    if not normalizes:
        terms = np.exp(x / factor)
        x = (
            np.rint(4096 * terms / terms.sum(axis=2, keepdims=True) + 1) / 4096
        )  # No probability is 0, and sums are not quite 1.
    return Sequences(number, normalizes, x, labels, lengths, random.standard_normal(classes))
