"""Compute the gradients of multi-head attention by its data (8.2.15) and by its weights (8.2.16)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import numpy as np
from dualdnn.api.enumerations import cudnnMultiHeadAttnWeightKind_t as Kind
from dualdnn.api.operations import MultiHeadAttnBackwardData, MultiHeadAttnBackwardWeights

from ..engine import Exact, implements
from ..view import Array
from .kept import Schedule, kept_schedule, schedule_in
from .outcome import Outcome, exact
from .sequence import Place, Projections, Sequence, places
from .tracked import Tracked, masked_product, product


@dataclass
class Gradients:
    """Hold the gradients of one sequence for all heads.

    dout has shape (query, output size). terms counts the terms of the longest sum over the queries of all beams.
    """

    sequence: Sequence
    dout: Array
    terms: int

    @cached_property
    def heads(self) -> Tracked:
        """Return the gradients by the outputs of the heads: (heads, query, size)."""
        exact = self.sequence.projections.exact
        weights = self.sequence.projections.factor(Kind.CUDNN_MH_ATTN_O_WEIGHTS, np.asarray)
        if weights is not None:
            return product(exact(self.dout[None]), weights).kept()
        attn = self.sequence.operation.attn
        return exact(self.dout.reshape(len(self.dout), attn.heads, attn.value_size).swapaxes(0, 1))

    @cached_property
    def scores(self) -> Tracked:
        """Return the gradients by the scaled products of queries and keys: (heads, query, key), 0 outside the windows."""
        s = self.sequence
        weighed = product(self.heads, s.v.transposed)
        terms = (self.heads * s.heads.kept()).sum(-1, keepdims=True)

        def error() -> Array:
            found = terms.error.copy()
            if terms.arithmetic.expects:  # All elements of a head's output share the errors of its probabilities.
                shared = s.probabilities.kept().error[-1] * np.square(weighed.value)
                found[-1] += shared.sum(-1, keepdims=True)
            return found

        found = s.probabilities * (weighed - terms.made(terms.value, error))
        return found.moved(lambda part: np.where(s.mask, part, 0)).kept()

    @cached_property
    def q(self) -> Tracked:
        s = self.sequence
        return masked_product(self.scores, s.mask, s.k, shares=True).scaled(s.scaler).kept()

    @cached_property
    def k(self) -> Tracked:
        s = self.sequence
        return masked_product(self.scores.transposed, s.mask.T, s.q, self.terms).scaled(s.scaler)

    @cached_property
    def v(self) -> Tracked:
        weights = self.sequence.probabilities.kept().transposed
        return masked_product(weights, self.sequence.mask.T, self.heads, self.terms)


def _sum(parts: list[Tracked]) -> Tracked:
    """Return the sum of the parts. Each part already counts the roundings of the whole sum."""
    value = sum(p.value for p in parts)
    return parts[0].made(value, lambda: sum(p.error for p in parts)).kept()  # type: ignore[arg-type,return-value]  # arrays, of which there is one


@dataclass(frozen=True)
class Group:
    """Hold the query sequences that share one key sequence, and the gradients of its projected keys and values."""

    members: list[tuple[Place, Gradients]]

    @property
    def place(self) -> Place:
        return self.members[0][0]

    @cached_property
    def k(self) -> Tracked:
        return _sum([gradients.k for _, gradients in self.members])

    @cached_property
    def v(self) -> Tracked:
        return _sum([gradients.v for _, gradients in self.members])


def _groups(
    operation: Any, found: Schedule, queries: Array, keys: Array, values: Array, dout: Array, projections: Projections
) -> Iterator[Group]:
    steps, _, beams, _ = operation.queries.dims
    every = places(operation.queries.dims, operation.keys.dims, found.lengths, found.key_lengths)
    for _, group in groupby(every, lambda place: (place.batch, place.key_beam)):
        members = []
        for place in group:
            where = place.of_queries
            sequence = Sequence(
                operation, projections, queries[where], keys[place.of_keys], values[place.of_keys],
                found.low[: place.queries], found.high[: place.queries],
            )  # fmt: skip
            members.append((place, Gradients(sequence, dout[where], steps * beams)))
        yield Group(members)


def _projected_back(projections: Projections, kind: Kind, vectors: Tracked) -> Tracked:
    """Turn gradients by projected vectors (heads, count, projected size) into gradients by the vectors (count, size)."""
    weights = projections.factor(kind, _in_rows)
    return vectors.sum_over_heads() if weights is None else product(vectors.joined, weights, shares=True)


def _in_rows(weights: Array) -> Array:
    """Reshape (heads, projected size, size) to (heads * projected size, size)."""
    return weights.reshape(-1, weights.shape[-1])


@implements(MultiHeadAttnBackwardData)
def backward_data(
    operation: MultiHeadAttnBackwardData, lengths: Array, key_lengths: Array, dout: Array, queries: Array, keys: Array,
    values: Array, weights: Array | None, reserve: Array,
) -> dict[str, Exact]:  # fmt: skip
    """Compute the data gradients.

    Padding gets zeros and is not judged. Where no forward call filled the reserve space, nothing is judged.
    """
    arrays = {"dqueries": queries, "dkeys": keys, "dvalues": values}

    def compute(overflows: bool, values_alone: bool) -> dict[str, Outcome]:
        results = {name: Outcome.of(array.copy(), values_alone).leave_open(...) for name, array in arrays.items()}
        if schedule_in(operation, reserve) is None:
            return results
        found = Schedule(
            np.array(operation.lo_win_idx), np.array(operation.hi_win_idx), lengths.astype(int), key_lengths.astype(int)
        )
        projections = Projections(operation.attn, weights, overflows)
        for group in _groups(operation, found, queries, keys, values, dout, projections):
            for place, gradients in group.members:
                dq = _projected_back(projections, Kind.CUDNN_MH_ATTN_Q_WEIGHTS, gradients.q)
                results["dqueries"].store(place.of_queries, dq)
            where = group.place.of_keys
            results["dkeys"].store(where, _projected_back(projections, Kind.CUDNN_MH_ATTN_K_WEIGHTS, group.k))
            results["dvalues"].store(where, _projected_back(projections, Kind.CUDNN_MH_ATTN_V_WEIGHTS, group.v))
        return results

    kept = kept_schedule(operation, lengths, key_lengths)
    return {**exact(operation, compute), "reserveSpace": Exact.kept(kept)}


@implements(MultiHeadAttnBackwardWeights)
def backward_weights(
    operation: MultiHeadAttnBackwardWeights, queries: Array, keys: Array, values: Array, dout: Array, weights: Array | None,
    reserve: Array,
) -> dict[str, Exact]:  # fmt: skip
    """Compute the weight gradients: sums over all vectors of the products with the gradients of their projections."""
    if weights is None:
        return {}
    found = schedule_in(operation, reserve)
    if found is None:  # No call filled the reserve space.
        return {"dweights": Exact(np.zeros_like(weights), np.full_like(weights, np.inf), 1)}
    extents = operation.extents
    terms = max(extents.q_vectors, extents.k_vectors)

    def compute(overflows: bool, values_alone: bool) -> dict[str, Outcome]:
        projections = Projections(operation.attn, weights, overflows)
        result = Outcome.of(np.zeros_like(weights), values_alone)

        def add(kind: Kind, gradients: Tracked, vectors: Tracked) -> None:
            """Add the products of gradients (heads, count, projected size) and vectors (heads or 1, count, size)."""
            if kind in projections.parts:
                summed = product(gradients.transposed, vectors, terms, shares=True)
                result.add(partial(projections.view, projections.parts[kind]), summed)

        def known(vectors: Array) -> Tracked:
            return projections.exact(vectors[None])

        for group in _groups(operation, found, queries, keys, values, dout, projections):
            for place, gradients in group.members:
                add(Kind.CUDNN_MH_ATTN_Q_WEIGHTS, gradients.q, known(queries[place.of_queries]))
                add(Kind.CUDNN_MH_ATTN_O_WEIGHTS, known(gradients.dout), gradients.sequence.heads.kept())
            where = group.place.of_keys
            add(Kind.CUDNN_MH_ATTN_K_WEIGHTS, group.k, known(keys[where]))
            add(Kind.CUDNN_MH_ATTN_V_WEIGHTS, group.v, known(values[where]))
        return {"dweights": result}

    return exact(operation, compute)
