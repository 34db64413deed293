"""Compute the attention of one query sequence to its keys and values, all heads at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from dualdnn.api.enumerations import cudnnMultiHeadAttnWeightKind_t as Kind
from dualdnn.api.operations import AttnSpec
from dualdnn.api.operations.attention.memory import weights_of

from ..engine import in_compute_type
from ..precision import PRECISION
from ..running import Running
from ..softmax import ARGUMENT, DIVISION, EXP, MAX_RESCALES, RESCALE
from ..view import Array
from .tracked import Arithmetic, Tracked, masked_product, product

Form = Callable[[Array], Array]


class Projections:
    """Hold the weights of an attention as arrays (heads, projected size, original size), None where a projection is
    off.

    overflows says whether numbers beyond HALF become infinite where HALF may be kept.
    """

    def __init__(self, attn: AttnSpec, weights: Array | None, overflows: bool = False) -> None:
        self.attn, self.parts = attn, weights_of(attn)
        self.weights = weights
        self.arithmetic = Arithmetic.of(attn, overflows)
        self._factors: dict[tuple[Kind, Form], Tracked | None] = {}

    def __getitem__(self, kind: Kind) -> Array | None:
        part = self.parts.get(kind)
        if part is None or self.weights is None:
            return None
        return self.view(part, self.weights)

    @staticmethod
    def view(part: Any, weights: Array) -> Array:
        """Return the elements of one weight tensor as a view of the weight buffer."""
        strides = [stride * weights.itemsize for stride in part.strides]
        return np.lib.stride_tricks.as_strided(weights[part.offset :], part.dims, strides)

    def exact(self, value: Array) -> Tracked:
        """Wrap numbers that the call passes, which have no error."""
        return Tracked.exact(value, self.arithmetic)

    def factor(self, kind: Kind, form: Form) -> Tracked | None:
        """Return the weights of a projection in the given form, cached for all sequences; None where the projection is
        off.
        """
        if (kind, form) not in self._factors:
            weights = self[kind]
            self._factors[kind, form] = None if weights is None else self.exact(form(weights))
        return self._factors[kind, form]

    def project(self, vectors: Array, matrix: Kind, bias: Kind) -> Tracked:
        """Project vectors (count, size) to (heads, count, projected size)."""
        weights = self.factor(matrix, of_vectors)
        if weights is None:
            return self.exact(np.broadcast_to(vectors, (self.attn.heads, *vectors.shape)))
        found = product(self.exact(vectors[None]), weights)
        added = self[bias]
        return (found if added is None else found + self.exact(added.swapaxes(1, 2))).kept()


@dataclass
class Sequence:
    """Hold the queries (count, size), keys and values of one sequence without padding, and the windows [low, high) of
    its queries.
    """

    operation: Any
    projections: Projections
    queries: Array
    keys: Array
    values: Array
    low: Array
    high: Array

    @cached_property
    def q(self) -> Tracked:
        return self.projections.project(self.queries, Kind.CUDNN_MH_ATTN_Q_WEIGHTS, Kind.CUDNN_MH_ATTN_Q_BIASES)

    @cached_property
    def k(self) -> Tracked:
        return self.projections.project(self.keys, Kind.CUDNN_MH_ATTN_K_WEIGHTS, Kind.CUDNN_MH_ATTN_K_BIASES)

    @cached_property
    def v(self) -> Tracked:
        return self.projections.project(self.values, Kind.CUDNN_MH_ATTN_V_WEIGHTS, Kind.CUDNN_MH_ATTN_V_BIASES)

    @cached_property
    def mask(self) -> Array:
        """Return a (query, key) mask that is true where the key is in the query's window."""
        index = np.arange(len(self.keys))
        return (self.low[:, None] <= index) & (index < self.high[:, None])

    @cached_property
    def scaler(self) -> float:
        return in_compute_type(self.operation, self.operation.attn.scaler)

    @cached_property
    def rescales(self) -> int:
        """Return the roundings of a running sum that is rescaled whenever a larger maximum turns up."""
        return RESCALE * min(len(self.keys), MAX_RESCALES)

    @cached_property
    def probabilities(self) -> Tracked:
        """Return the softmax (heads, query, key), 0 outside the window."""
        unit, smallest, _ = PRECISION[self.operation.compute_type]
        # The factor is rounded, and so is its product with a vector or a score.
        scores = product(self.q, self.k.transposed, 2).scaled(self.scaler)
        inside = np.where(self.mask, scores.value, -np.inf)
        highest = inside.max(axis=-1, keepdims=True, initial=-np.inf)
        highest = np.where(self.mask.any(axis=-1, keepdims=True), highest, 0)
        shifted = np.where(self.mask, scores.value - highest, -np.inf)
        terms = np.exp(shifted)
        total = terms.sum(axis=-1, keepdims=True)
        # A probability is never zero, however small: its product with an infinite value is infinite (docs/errata.md,
        # D364).
        value = np.where(self.mask, np.maximum(terms / total, np.finfo(terms.dtype).smallest_subnormal), 0)
        count = self.mask.sum(axis=-1, keepdims=True)

        # Vanishing terms count too, if their score is finite: the score may come from a vector that HALF cannot hold.
        a, counts = scores.arithmetic, self.mask & ((terms > 0) | np.isfinite(scores.value))

        def error() -> Array:
            """Bound the error. It sums the relative errors of each exponential and its argument, of their sum, and of
            the division.
            """
            roundings = np.where(counts, EXP + ARGUMENT * np.abs(shifted), 0)
            own = np.where(counts, scores.error, 0) + a.each(lambda way: way.rounding(roundings))
            sizes = a.size(value)
            of_total = (sizes * own).sum(axis=-1, keepdims=True)
            of_total += a.of_sum(np.ones(()), sizes.sum(axis=-1, keepdims=True), count)
            relative = own + of_total + (a.rounding(self.rescales, 3) + a.rounding(DIVISION, 3))
            reach = np.minimum(a.reach(relative), 80)
            with np.errstate(invalid="ignore"):
                steeper = np.where(reach > 0, np.expm1(reach) / reach, 1)
            grown = a.each(Running.size, steeper)
            return np.where(self.mask, sizes * relative * grown + a.rounding(smallest / unit, 3), 0)

        return scores.made(value, error)

    @cached_property
    def heads(self) -> Tracked:
        """Return the output of each head: (heads, query, size)."""
        return masked_product(self.probabilities.kept(), self.mask, self.v, self.rescales)

    @cached_property
    def output(self) -> Tracked:
        """Return the sum over heads of the projected vectors, or their concatenation: (query, output size)."""
        weights = self.projections.factor(Kind.CUDNN_MH_ATTN_O_WEIGHTS, joined_weights)
        if weights is None:
            return self.heads.joined
        found = product(self.heads.kept().joined, weights, shares=True)
        bias = self.projections[Kind.CUDNN_MH_ATTN_O_BIASES]
        return found if bias is None else found + self.projections.exact(bias[0].T)


def of_vectors(weights: Array) -> Array:
    """Transpose (heads, projected size, size) to (heads, size, projected size)."""
    return weights.swapaxes(-1, -2)


def joined_weights(weights: Array) -> Array:
    """Reshape (heads, projected size, size) to (heads * size, projected size)."""
    heads, projected, size = weights.shape
    return weights.swapaxes(1, 2).reshape(heads * size, projected)


@dataclass(frozen=True)
class Place:
    """Locate a sequence in the arrays (time, batch, beam, vector) of a call.

    It gives the batch, the beams of queries and keys, and the numbers of queries and keys.
    """

    batch: int
    beam: int
    key_beam: int
    queries: int
    keys: int

    @property
    def of_queries(self) -> tuple[Any, ...]:
        return slice(self.queries), self.batch, self.beam

    @property
    def of_keys(self) -> tuple[Any, ...]:
        return slice(self.keys), self.batch, self.key_beam


def places(dims: tuple[int, ...], key_dims: tuple[int, ...], lengths: Array, key_lengths: Array) -> Iterator[Place]:
    """Yield the place of each sequence of a call. Lengths are clipped to the number of time-steps."""
    steps, batches, beams, _ = dims
    key_steps, _, key_beams, _ = key_dims
    lengths = np.clip(lengths, 0, steps).astype(int).reshape(batches, beams)
    key_lengths = np.clip(key_lengths, 0, key_steps).astype(int).reshape(batches, key_beams)
    for batch in range(batches):
        for beam in range(beams):
            key_beam = beam if key_beams > 1 else 0
            yield Place(batch, beam, key_beam, int(lengths[batch, beam]), int(key_lengths[batch, key_beam]))
