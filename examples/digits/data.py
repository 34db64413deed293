"""scikit-learn's bundled digits: 1797 images of 8 x 8, a fifth of them held out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HELD_OUT = 360
DARKEST = 16


class Digits(NamedTuple):
    """images: float32 (count, 1, 8, 8), 0 is paper and 1 is ink; labels: the digits, (count)."""

    images: np.ndarray
    labels: np.ndarray


def split_digits() -> tuple[Digits, Digits]:
    """(what the weights are trained on, what the accuracy is measured on); every digit has its share of both."""
    bundled = load_digits()
    images = (bundled.images[:, None] / DARKEST).astype(np.float32)
    training, held_out, training_labels, held_out_labels = train_test_split(
        images, bundled.target, test_size=HELD_OUT, stratify=bundled.target, random_state=0
    )
    return Digits(training, training_labels), Digits(held_out, held_out_labels)
