"""Draw strings of five digits: scikit-learn's images side by side, without marks between them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "digits"))

from data import Digits, split_digits

LENGTH = 5  # digits per string
TRAINING = 3200  # strings
HELD_OUT = 300  # strings


class Strings(NamedTuple):
    """Hold images, float32 (count, 1, 8, 40) from 0 for paper to 1 for ink, and labels, the text of each."""

    images: np.ndarray
    labels: np.ndarray


def split_strings() -> tuple[Strings, Strings]:
    """Return (training strings, held-out strings), which share no digit's image."""
    training, held_out = split_digits()
    return drawn(training, TRAINING, 1), drawn(held_out, HELD_OUT, 2)


def drawn(digits: Digits, count: int, seed: int) -> Strings:
    """Return strings of digits drawn at random."""
    chosen = np.random.RandomState(seed).randint(len(digits.labels), size=(count, LENGTH))
    images = digits.images[chosen, 0].transpose(0, 2, 1, 3).reshape(count, 1, 8, 8 * LENGTH)
    return Strings(np.ascontiguousarray(images), np.array(["".join(map(str, row)) for row in digits.labels[chosen]]))
