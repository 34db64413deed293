"""Compute the CTC loss (8.2.3, 8.2.4) by logarithmic sums over alignments. Formula: docs/errata.md, D387, D388 and
D390.

An alignment assigns a class to each time step of a sequence; removing repetitions and then blanks leaves the labels.
The states of the recursions are the labels, with a blank before, between and after them. An alignment stays in a state,
goes to the next, or skips a blank between two different labels.
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
from .softmax import ARGUMENT, DIVISION, EXP, LOG, MAX_RESCALES, RESCALE
from .view import Array

SUM = 2 * (EXP + LOG + 2)  # roundings of the logarithm of a sum of three exponentials, added two by two


def _log_sum(terms: Array) -> Array:
    """Return ln of the sum of exp(terms) over the first axis: -infinity if all terms are, NaN if one is NaN."""
    top = terms.max(axis=0)
    found = top + np.log(np.exp(terms - top).sum(axis=0))
    return np.where(np.isneginf(top), top, found)


def _plus(value: Array, term: Array) -> Array:
    """Return value + term, but keep a value of -infinity: no alignment reaches it."""
    return np.where(np.isneginf(value), value, value + term)


@dataclass
class Normalized:
    """Hold the probabilities of one sequence: their logarithms (times, classes), their values, and the
    roundings of each.
    """

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
        """Normalise by ln softmax(x), computed as x - (maximum + ln sum) or as the logarithm of the probability."""
        top = x.max(axis=1, keepdims=True)
        shifted = x - top
        terms = np.exp(shifted)
        total = terms.sum(axis=1, keepdims=True)
        logarithm = shifted - np.log(total)
        value = terms / total
        of_term = EXP + ARGUMENT * np.abs(shifted)
        of_total = (np.where(terms > 0, terms * of_term, 0).sum(axis=1, keepdims=True) / total + x.shape[1]
                    + RESCALE * min(x.shape[1], MAX_RESCALES))  # fmt: skip
        relative = of_term + of_total + DIVISION
        error = relative + LOG * (np.log(total) + np.abs(logarithm)) + np.abs(top + np.log(total)) + np.abs(logarithm)
        # exp may also be taken of x - (maximum + ln sum), so its argument may have the roundings of both.
        return cls(logarithm, value, error, np.where(np.isnan(value), 0, _error_of_exp(logarithm, relative + error)))


@dataclass
class Alignments:
    """Hold one sequence that has alignments: the classes of its states, and its probabilities up to the input length."""

    classes: Array
    probabilities: Normalized

    @property
    def times(self) -> int:
        return len(self.probabilities.value)

    @cached_property
    def skips(self) -> Array:
        """Return whether each state may follow the state two before it."""
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
        """Return (logarithms, roundings) of sums over partial alignments, for each time and state.

        Forward sums end in the state and include its probability. Backward sums begin in it and exclude its
        probability.
        """
        times, states = self.logarithms.shape
        step = -1 if backward else 1
        own, own_error = self.logarithms[::step, ::step], self.logarithm_errors[::step, ::step]
        skips = self.skips
        # In the mirrored order, a state may follow the one two before it if the original skip went the other way.
        if backward:
            skips = np.concatenate([[False, False], self.skips[::-1]])[:states]
        value, error = np.full((times, states), -np.inf), np.zeros((times, states))
        reached, reached_error = np.full(states, -np.inf), np.zeros(states)  # including the probability of the state
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
        """Return (ln p(labels), its roundings)."""
        if self.times == 0:
            return 0.0, 0.0  # An empty list of labels has the empty alignment.
        value, error = self.forward
        last = np.stack([value[-1, -2:]]).T
        return float(_log_sum(last)[0]), float(_error_of_log_sum(last, np.stack([error[-1, -2:]]).T)[0])

    def posterior(self) -> tuple[Array, Array]:
        """Return (times, classes): the share of the alignments that have the class at the time, and its roundings."""
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
    """Bound the error of exp if this many roundings enter its argument or multiply it.

    The result is in roundings of 1, not of exp, because a large argument can be wrong by more than exp itself.
    """
    unit = PRECISION[FLOAT][0]
    value = np.exp(argument)
    return np.where(value > 0, value * np.expm1(roundings * unit), np.exp(argument + roundings * unit)) / unit


def _error_of_log_sum(terms: Array, errors: Array) -> Array:
    """Return the roundings of ``_log_sum``: the weighted ones of its terms, exponentials, additions, logarithm
    and last addition.
    """
    total = _log_sum(terms)
    weight = np.where(np.isneginf(terms), 0, np.exp(terms - total))
    # A state that no alignment leaves has no weight, but its error may be infinite or NaN.
    of_terms = np.where(weight == 0, 0, weight * (errors + ARGUMENT * np.abs(terms - total)))
    found = of_terms.sum(axis=0) + SUM + 2 * np.abs(total)
    return np.where(np.isneginf(total), 0, found)


@dataclass
class Loss:
    """Hold what both calls share, wherever the labels are stored.

    ``labels`` is one list; no length has been checked.
    """

    operation: CTCLoss | CTCLoss_v8
    probs: Array
    labels: Array
    label_lengths: Array
    input_lengths: Array

    def sequences(self) -> Iterator[Alignments | None]:
        """Yield the alignments of each sequence, or None where a sequence has none."""
        o, start = self.operation, 0
        for n in range(o.sequences):
            length, times = int(self.label_lengths[n]), int(self.input_lengths[n])
            counted = min(max(length, 0), o.max_labels)
            labels = self.labels[start : start + counted].astype(np.int64)
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
            if each is None or np.isposinf(costs[n]):  # There is no alignment, or none has a probability above zero.
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
    """Return the largest magnitude that the sum of an alignment's logarithms may have."""
    finite = np.where(np.isfinite(each.logarithms), np.abs(each.logarithms), 0)
    return float(finite.max(axis=1).sum())


@implements(CTCLoss)
def ctc_loss(operation: CTCLoss, probs: Array, gradients: Array | None) -> dict[str, Exact]:
    """Compute the loss of labels in host memory, which the call has checked."""
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
    """Compute the loss of labels in device memory, which nobody has checked.

    The lengths say how many labels are read: a caller's memory may hold no more than these.
    """
    listed = labels[: labels.nbytes // 4 * 4].view(np.int32)
    lengths = (each.astype(np.int64) for each in (label_lengths, input_lengths))
    return Loss(operation, probs, listed, *lengths).results(gradients)
