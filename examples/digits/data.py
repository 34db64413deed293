"""Load scikit-learn's bundled digits: 1797 images of 8 x 8, a fifth of them held out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HELD_OUT = 360
DARKEST = 16


class Digits(NamedTuple):
    """Hold images, float32 (count, 1, 8, 8) from 0 for paper to 1 for ink, and labels, the digits (count)."""

    images: np.ndarray
    labels: np.ndarray


def split_digits() -> tuple[Digits, Digits]:
    """Return (training digits, held-out digits), each with the same share of every digit."""
    bundled = load_digits()
    images = (bundled.images[:, None] / DARKEST).astype(np.float32)
    training, held_out, training_labels, held_out_labels = train_test_split(
        images, bundled.target, test_size=HELD_OUT, stratify=bundled.target, random_state=0
    )
    return Digits(training, training_labels), Digits(held_out, held_out_labels)
