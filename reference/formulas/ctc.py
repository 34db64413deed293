"""Evaluate the CTC loss as a sum over alignments, time-step by time-step (8.2.3, 8.2.4; docs/errata.md, D383 to D406)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from dualdnn.api.operations import CTCLoss, CTCLoss_v8
from dualdnn.api.operations.ctc import BLANK

from .chain_rule import Matrix, Number, Tape, leaves, limit
from .elements import Elements, Found, Index, Untold, exponential, total

MAX_APART = 600  # difference of activations up to which probabilities stay normal numbers


class Sequences:
    """Hold the labels of each sequence and its length; None for a sequence without an alignment."""

    def __init__(self, o: Any, read: Elements) -> None:
        if isinstance(o, CTCLoss):
            labels, lengths, times = list(o.hostLabels), list(o.hostLabelLengths), list(o.hostInputLengths)
        else:
            held = read.bytes("labels")
            labels = held[: len(held) // 4 * 4].view("<i4").tolist()
            lengths, times = ([int(n) for n in read.whole(name, o.tensor(name))] for name in ("labelLengths", "inputLengths"))  # fmt: skip
        self.found: list[tuple[list[int], int] | None] = []
        start = 0
        for length, longest in zip(lengths, times, strict=True):
            counted = min(max(length, 0), o.max_labels)
            own = labels[start : start + counted]
            start += counted
            repeated = sum(a == b for a, b in pairwise(own))
            fits = len(own) == length and 0 <= longest <= o.times and length + repeated <= longest
            self.found.append((own, longest) if fits and all(BLANK < label < o.classes for label in own) else None)


class Loss:
    """Hold the cost of one sequence, and its probabilities with the gradients of the cost.

    probabilities: (time, class).
    """

    def __init__(self, o: Any, n: int, labels: Sequence[int], times: int, read: Elements) -> None:
        limit(3 * times * (2 * len(labels) + 1))
        rows = [read.box("probs", [range(t, t + 1), range(n, n + 1), range(o.classes)]) for t in range(times)]
        if not all(math.isfinite(x) for row in rows for x in row):
            raise Untold("a probability or an activation is not finite")
        if not o.normalizes and any(x < 0 for row in rows for x in row):
            raise Untold("a probability is negative")
        self.probabilities: Matrix = [leaves(softmax(row) if o.normalizes else row) for row in rows]
        self.tape, self.cost, self.scale = Tape(), 0.0, 0.0
        if times:
            self._sum([BLANK, *(state for label in labels for state in (label, BLANK))])

    def _sum(self, states: Sequence[int]) -> None:
        """Sum the products of all alignments: each stays in a state, goes to the next, or skips a blank (D388).

        Sums are scaled at each time-step, so that long products stay in range.
        """
        reached: list[Number | None] = []
        for step, row in enumerate(self.probabilities):
            found: list[Number | None] = []
            for at, state in enumerate(states):
                if step == 0:
                    before = [Number(1.0)] if at < 2 else []
                else:
                    skips = at >= 2 and state != BLANK and state != states[at - 2]
                    before = [n for n in reached[max(0, at - 1 - skips) : at + 1] if n is not None]
                found.append(self.tape.product(self.tape.total(*before), row[state]) if before else None)
            top = max((n.value for n in found if n is not None), default=0.0)
            if top > 0:
                self.scale += math.log(top)
                found = [None if n is None else self.tape.scaled(n, 1 / top) for n in found]
            reached = found
        ends = [n for n in reached[-2:] if n is not None]
        likelihood = self.tape.total(*ends)
        if likelihood.value <= 0:
            self.cost = math.inf
            return
        self.cost = -(math.log(likelihood.value) + self.scale)
        self.tape.derive([(likelihood, -1 / likelihood.value)])


def softmax(row: Sequence[float]) -> list[float]:
    top = max(row)
    if min(row) < top - MAX_APART:
        raise Untold("a probability is too small for a product")
    sums = total(exponential(x - top) for x in row)
    return [exponential(x - top) / sums for x in row]


def loss(o: CTCLoss | CTCLoss_v8, output: str, index: Index, read: Elements) -> Found:
    """Return a cost, or the gradient by an activation: the probability less its share of the alignments (D388).

    A sequence without an alignment costs 0, and its gradients stay or are zeros (3.1.2.10).
    """
    sequences: Sequences = read.once("sequences", lambda: Sequences(o, read))
    n = index[0] if output == "costs" else index[1]
    known = sequences.found[n]
    found: Loss | None = None if known is None else read.once(f"loss {n}", lambda: Loss(o, n, *known, read))
    if output == "costs":
        return Found(0.0 if found is None else found.cost)
    if found is None or math.isinf(found.cost):
        return Found(read("gradients", index) if o.keeps else 0.0)
    if index[0] >= len(found.probabilities):
        return Found(0.0)
    p = found.probabilities[index[0]][index[2]]
    return Found(p.value + p.value * p.gradient)


FORMULAS: dict[type, Any] = {CTCLoss: loss, CTCLoss_v8: loss}
