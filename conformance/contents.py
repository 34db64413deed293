"""Fill operands with meaningful numbers, such as labels and lengths, unless a case sets them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from dualdnn.api.operations import (
    CTCLoss_v8,
    MultiHeadAttnBackwardData,
    MultiHeadAttnForward,
    MultiHeadAttnStep,
    Operation,
)

Array = np.ndarray[Any, Any]


def _labels(o: CTCLoss_v8, random: np.random.Generator) -> Mapping[str, Array]:
    """Return random lengths and labels such that every sequence has an alignment.

    Some sequences may be empty, the first uses every time step, and labels repeat.
    """
    times = random.integers(o.times // 2, o.times, o.sequences, endpoint=True)
    times[0] = o.times
    longest = np.minimum(o.max_labels, times // 2) if o.classes > 1 else 0 * times
    lengths = random.integers(0, longest, endpoint=True)
    lengths[0] = longest[0]
    labels = random.integers(1, max(2, o.classes), int(lengths.sum()))
    return {"labels": labels, "labelLengths": lengths, "inputLengths": times}


def _sequences(o: Any, _random: np.random.Generator) -> Mapping[str, Array]:
    """Return the lengths in device memory, equal to the descriptors' lengths."""
    return {name: np.array(getattr(o, data).lengths) for name, data in o.lengths_of.items()}


_CONTENTS: dict[type[Operation], Callable[[Any, np.random.Generator], Mapping[str, Array]]] = {
    CTCLoss_v8: _labels,
    MultiHeadAttnBackwardData: _sequences,
    MultiHeadAttnForward: _sequences,
    MultiHeadAttnStep: _sequences,
}


def contents(operation: Operation, random: np.random.Generator) -> dict[str, Array]:
    """Return the first bytes of some operands of the operation."""
    find = _CONTENTS.get(type(operation))
    found = find(operation, random) if find else {}
    return {name: values.astype(np.int32).view(np.uint8) for name, values in found.items()}
