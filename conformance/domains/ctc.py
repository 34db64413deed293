"""Draw CTC losses with labels of the host and of the device, some of sequences that have no alignment."""

from __future__ import annotations

from typing import Any

import numpy as np
from dualdnn.api.enumerations import cudnnCTCLossAlgo_t, cudnnLossNormalizationMode_t, cudnnNanPropagation_t
from dualdnn.api.operations import CTCLoss, CTCLoss_v8, CTCLossSpec, TensorSpec
from dualdnn.api.operations.ctc import MAX_LABEL
from dualdnn.api.operations.specs import FLOAT, INT32

from .pieces import Drawn, Source, fitted

OPERATIONS = (CTCLoss, CTCLoss_v8)
SOFTMAX = cudnnLossNormalizationMode_t.CUDNN_LOSS_NORMALIZATION_SOFTMAX


def draw(source: Source) -> Drawn:
    """Draw a loss. Labels repeat. They number at most the time-steps, or a few more."""
    times, sequences, classes = fitted(
        (source.extent(), source.integer(1, 8), source.extent() + 1), source.profile.most
    )
    probs = source.tensor(FLOAT, (times, sequences, classes))
    gradients = source.like(probs) if source.chance(80) else None
    mode = source.pick(tuple(cudnnLossNormalizationMode_t))
    kinds = ("normal", "wide", "ties") if mode == SOFTMAX else ("positive",)
    algo, nan = source.pick(tuple(cudnnCTCLossAlgo_t)), source.pick(tuple(cudnnNanPropagation_t))
    inputs = source.inputs(kinds, ("special", "infinite"))
    longest = min(times, MAX_LABEL)
    if source.chance(50):
        spec = CTCLossSpec(FLOAT, mode, nan, source.integer(0, longest))
        return Drawn((device(spec, algo, probs, gradients),), inputs)
    input_lengths = tuple(source.integer(0, times) for _ in range(sequences))
    lengths = tuple(source.integer(0, min(longest, own + 1) if classes > 1 else 0) for own in input_lengths)
    labels = tuple(source.integer(1, classes - 1) for _ in range(sum(lengths)))
    costs = TensorSpec(FLOAT, (sequences,), (1,))
    operation = CTCLoss(CTCLossSpec(FLOAT, mode, nan), algo, labels, lengths, input_lengths, 0, probs, costs, gradients)
    return Drawn((operation,), inputs)


def device(spec: CTCLossSpec, algo: Any, probs: TensorSpec, gradients: TensorSpec | None) -> CTCLoss_v8:
    """Return a loss of labels of the device, at most ``spec.longest_label`` per sequence."""
    each, lengths = (TensorSpec(scalar, (probs.dims[1],), (1,)) for scalar in (FLOAT, INT32))
    labels = TensorSpec(INT32, (max(1, (spec.longest_label or 0) * probs.dims[1]),), (1,))
    return CTCLoss_v8(spec, algo, 0, probs, labels, lengths, lengths, each, gradients)


def before(drawn: Drawn, seed: int) -> dict[str, Any]:
    """Return labels and lengths in device memory. One of eight sequences has no alignment."""
    o, random = drawn.operation, np.random.default_rng(seed)
    if isinstance(o, CTCLoss):
        return {}
    times = random.integers(0, o.times, o.sequences, endpoint=True)
    lengths = random.integers(0, np.minimum(o.max_labels, times // 2 + 1), endpoint=True)
    labels = random.integers(1, max(2, o.classes), max(1, o.labels.count))
    wrong = random.random(o.sequences) < 0.125
    times = np.where(wrong, random.choice((-1, 0, o.times + 1), o.sequences), times)
    found = {"labels": labels, "labelLengths": lengths, "inputLengths": times}
    return {name: values.astype(np.int32).view(np.uint8) for name, values in found.items()}
