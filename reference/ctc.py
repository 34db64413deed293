"""CTC loss (8.2.3, 8.2.4): sums over alignments in the logarithm. Formula: docs/errata.md, D387, D388, D390.

An alignment assigns a class to each time step of a sequence; removing repetitions and then blanks leaves the labels. The states of
the recursions are the labels with a blank before, between and behind them; an alignment stays in a state, goes to the next, or
passes over a blank between two labels that differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from dualdnn.api.operations import CTCLoss, CTCLoss_v8
from dualdnn.api.operations.ctc import BLANK
from dualdnn.api.operations.specs import FLOAT

from .engine import Exact, implements
from .precision import PRECISION
from .softmax import ARGUMENT, DIVISION, EXP, LOG, MOST_RESCALES, RESCALE
from .view import Array

SUM = 2 * (EXP + LOG + 2)  # the sum of three exponentials and its logarithm, taken two by two: each of effect 1


def _log_sum(terms: Array) -> Array:
    """ln of the sum of exp(terms) over the first axis; of terms that are all -infinity it is that, one that is NaN makes it NaN."""
    top = terms.max(axis=0)
    found = top + np.log(np.exp(terms - top).sum(axis=0))
    return np.where(np.isneginf(top), top, found)


def _plus(value: Array, term: Array) -> Array:
    """value + term; what no alignment reaches stays so, whatever the term is."""
    return np.where(np.isneginf(value), value, value + term)


@dataclass
class Normalized:
    """Probabilities of one sequence: their logarithms (times, classes), themselves, and the roundings of each."""

    logarithm: Array
    value: Array
    logarithm_error: Array
    value_error: Array

    @classmethod
    def given(cls, probs: Array) -> Normalized:
        logarithm = np.log(probs)
        return cls(logarithm, probs, LOG * np.abs(logarithm), np.zeros_like(probs))

    @classmethod
    def softmax(cls, x: Array) -> Normalized:
        """ln softmax(x), as x - (maximum + ln sum) or as the logarithm of the probability."""
        top = x.max(axis=1, keepdims=True)
        shifted = x - top
        terms = np.exp(shifted)
        total = terms.sum(axis=1, keepdims=True)
        logarithm = shifted - np.log(total)
        value = terms / total
        of_term = EXP + ARGUMENT * np.abs(shifted)
        of_total = (np.where(terms > 0, terms * of_term, 0).sum(axis=1, keepdims=True) / total + x.shape[1]
                    + RESCALE * min(x.shape[1], MOST_RESCALES))  # fmt: skip
        relative = of_term + of_total + DIVISION
        error = relative + LOG * (np.log(total) + np.abs(logarithm)) + np.abs(top + np.log(total)) + np.abs(logarithm)
        # Straight from x - (maximum + ln sum), too: its argument is off by the roundings of both.
        return cls(logarithm, value, error, np.where(np.isnan(value), 0, _error_of_exp(logarithm, relative + error)))


@dataclass
class Alignments:
    """One sequence that has alignments: its states' classes, and its probabilities up to the input length."""

    classes: Array
    probabilities: Normalized

    @property
    def times(self) -> int:
        return len(self.probabilities.value)

    @cached_property
    def skips(self) -> Array:
        """Whether a state may follow the one two before it."""
        labels = self.classes != BLANK
        differ = np.zeros(len(labels), bool)
        differ[2:] = self.classes[2:] != self.classes[:-2]
        return labels & differ

    @cached_property
    def logarithms(self) -> Array:
        return self.probabilities.logarithm[:, self.classes]

    @cached_property
    def logarithm_errors(self) -> Array:
        return self.probabilities.logarithm_error[:, self.classes]

    def recursion(self, backward: bool) -> tuple[Array, Array]:
        """(logarithms, their roundings) of the sums over the beginnings of alignments that end in a state at a time, with it;
        backward over the endings that begin in it, without it."""
        times, states = self.logarithms.shape
        step = -1 if backward else 1
        own, own_error = self.logarithms[::step, ::step], self.logarithm_errors[::step, ::step]
        skips = self.skips
        if backward:  # mirrored, a state follows the one two before it where that one skips to it
            skips = np.concatenate([[False, False], self.skips[::-1]])[:states]
        value, error = np.full((times, states), -np.inf), np.zeros((times, states))
        reached, reached_error = np.full(states, -np.inf), np.zeros(states)  # with the probability of the state
        for t in range(times):
            if t == 0:
                before, before_error = np.where(np.arange(states) < 2, 0.0, -np.inf), np.zeros(states)
            else:
                before, before_error = self._step(reached, reached_error, skips)
            reached = _plus(before, own[t])
            reached_error = np.where(np.isneginf(reached), 0, before_error + own_error[t] + np.abs(reached))
            value[t], error[t] = (before, before_error) if backward else (reached, reached_error)
        return value[::step, ::step], error[::step, ::step]

    @staticmethod
    def _step(reached: Array, error: Array, skips: Array) -> tuple[Array, Array]:
        terms, errors = np.full((3, len(reached)), -np.inf), np.zeros((3, len(reached)))
        terms[0], errors[0] = reached, error
        terms[1, 1:], errors[1, 1:] = reached[:-1], error[:-1]
        terms[2, 2:], errors[2, 2:] = np.where(skips[2:], reached[:-2], -np.inf), error[:-2]
        return _log_sum(terms), _error_of_log_sum(terms, errors)

    @cached_property
    def forward(self) -> tuple[Array, Array]:
        return self.recursion(backward=False)

    @cached_property
    def backward(self) -> tuple[Array, Array]:
        return self.recursion(backward=True)

    @cached_property
    def likelihood(self) -> tuple[float, float]:
        """(ln p(labels), its roundings)."""
        if self.times == 0:
            return 0.0, 0.0  # the empty alignment of no labels
        value, error = self.forward
        last = np.stack([value[-1, -2:]]).T
        return float(_log_sum(last)[0]), float(_error_of_log_sum(last, np.stack([error[-1, -2:]]).T)[0])

    def posterior(self) -> tuple[Array, Array]:
        """(times, classes): the share of the alignments that have the class at the time, and its roundings."""
        (alpha, alpha_error), (beta, beta_error), (total, total_error) = self.forward, self.backward, self.likelihood
        possible = ~(np.isneginf(alpha) | np.isneginf(beta))
        share = np.where(possible, np.exp(alpha + beta - total), 0)
        arguments = np.abs(alpha + beta) + ARGUMENT * np.abs(alpha + beta - total) + 2 * self.logarithm_errors
        roundings = alpha_error + beta_error + total_error + arguments + EXP + len(self.classes)
        error = np.where(possible, _error_of_exp(alpha + beta - total, roundings), 0)
        shape = self.probabilities.value.shape
        found, errors = np.zeros(shape), np.zeros(shape)
        for state, label in enumerate(self.classes):
            found[:, label] += share[:, state]
            errors[:, label] += error[:, state]
        return found, errors


def _error_of_exp(argument: Array, roundings: Array) -> Array:
    """How far exp may be off where so many roundings enter its argument or multiply it: in roundings of 1, not of itself, because
    an argument that is large can be off by more than it is."""
    unit = PRECISION[FLOAT][0]
    value = np.exp(argument)
    return np.where(value > 0, value * np.expm1(roundings * unit), np.exp(argument + roundings * unit)) / unit


def _error_of_log_sum(terms: Array, errors: Array) -> Array:
    """Roundings of ``_log_sum``: those of its terms, weighted, of exponentials, additions, the logarithm and the last addition."""
    total = _log_sum(terms)
    weight = np.where(np.isneginf(terms), 0, np.exp(terms - total))
    distance = np.where(weight > 0, ARGUMENT * np.abs(terms - total), 0)
    found = (weight * (errors + distance)).sum(axis=0) + SUM + 2 * np.abs(total)
    return np.where(np.isneginf(total), 0, found)


@dataclass
class Loss:
    """What the calls have in common, whatever memory the labels are in: labels is one list, lengths are not looked at yet."""

    operation: CTCLoss | CTCLoss_v8
    probs: Array
    labels: Array
    label_lengths: Array
    input_lengths: Array

    def sequences(self) -> Iterator[Alignments | None]:
        """Each sequence, None for one without an alignment."""
        o, start = self.operation, 0
        for n in range(o.sequences):
            length, times = int(self.label_lengths[n]), int(self.input_lengths[n])
            counted = min(max(length, 0), o.most_labels)
            labels = self.labels[start : start + counted]
            start += counted
            repeated = int((labels[1:] == labels[:-1]).sum())
            possible = (
                counted == length == len(labels) and 0 <= times <= o.times and length + repeated <= times
                and bool(((labels > BLANK) & (labels < o.classes)).all())
            )  # fmt: skip
            yield self._alignments(n, labels, times) if possible else None

    def _alignments(self, n: int, labels: Array, times: int) -> Alignments:
        classes = np.full(2 * len(labels) + 1, BLANK)
        classes[1::2] = labels
        x = self.probs[:times, n]
        return Alignments(classes, Normalized.softmax(x) if self.operation.normalizes else Normalized.given(x))

    def results(self, gradients: Array | None) -> dict[str, Exact]:
        o = self.operation
        found = list(self.sequences())
        costs = np.array([0.0 if each is None else -each.likelihood[0] for each in found])
        errors = np.array([0.0 if each is None else each.likelihood[1] for each in found])
        largest = PRECISION[FLOAT][2]
        reaches = [0.0 if each is None or not each.times else _reach(each) for each in found]
        undetermined = np.array([reach >= largest for reach in reaches])
        outputs = {"costs": Exact(costs, np.where(undetermined, np.inf, errors), 1)}
        if gradients is None:
            return outputs
        value, error = np.zeros(o.probs.dims), np.zeros(o.probs.dims)
        for n, each in enumerate(found):
            if each is None or np.isposinf(costs[n]):  # no alignment, or none of a probability above zero
                value[:, n] = gradients[:, n] if o.keeps else 0
                continue
            share, share_error = each.posterior()
            p = each.probabilities
            value[: each.times, n] = p.value - share
            error[: each.times, n] = p.value_error + share_error + np.abs(p.value - share)
            if undetermined[n]:
                error[:, n] = np.inf
        outputs["gradients"] = Exact(value, error, 1)
        return outputs


def _reach(each: Alignments) -> float:
    """The largest magnitude that the sum of an alignment's logarithms may have."""
    finite = np.where(np.isfinite(each.logarithms), np.abs(each.logarithms), 0)
    return float(finite.max(axis=1).sum())


@implements(CTCLoss)
def ctc_loss(operation: CTCLoss, probs: Array, gradients: Array | None) -> dict[str, Exact]:
    """Labels of the host, which were checked."""
    lists = (operation.hostLabels, operation.hostLabelLengths, operation.hostInputLengths)
    return Loss(operation, probs, *(np.array(each, np.int64) for each in lists)).results(gradients)


@implements(CTCLoss_v8)
def ctc_loss_v8(
    operation: CTCLoss_v8,
    probs: Array,
    labels: Array,
    label_lengths: Array,
    input_lengths: Array,
    gradients: Array | None,
) -> dict[str, Exact]:
    """Labels of the device: as many as their memory holds, of which no one has looked at any."""
    listed = labels[: labels.nbytes // 4 * 4].view(np.int32).astype(np.int64)
    lengths = (each.astype(np.int64) for each in (label_lengths, input_lengths))
    return Loss(operation, probs, listed, *lengths).results(gradients)
