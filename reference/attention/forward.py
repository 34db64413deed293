"""Multi-head attention forward (7.2.35): all time-steps, or one of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from dualdnn.api.operations import MultiHeadAttnForward, MultiHeadAttnStep

from ..engine import Exact, implements
from ..spread import Steps
from ..view import Array
from .kept import kept_schedule
from .sequence import Projections, Sequence, places


def _computed(
    operation: Any, lengths: Array, key_lengths: Array, queries: Array, residuals: Array | None, keys: Array, values: Array,
    weights: Array | None, steps: slice, out: Array, is_expected: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    """(outputs, errors): those of some time-steps of all sequences. Padding has zeros and infinite errors; other time-steps keep what they
    have."""
    value, error = out.copy(), np.zeros(out.shape, out.dtype)
    value[steps], error[steps] = 0, np.inf
    projections = Projections(operation.attn, weights, is_expected)
    low, high = (np.array(indices) for indices in (operation.lo_win_idx, operation.hi_win_idx))
    for place in places(operation.queries.dims, operation.keys.dims, lengths, key_lengths):
        chosen = slice(steps.start, min(steps.stop, place.queries))
        count = chosen.stop - chosen.start
        if count <= 0:
            continue
        where = (chosen, place.batch, place.beam)
        found = Sequence(
            operation, projections, queries[where], keys[place.of_keys], values[place.of_keys], low[:count], high[:count]
        ).output  # fmt: skip
        if residuals is not None:
            found = (found if operation.attn.o_projected else found.kept()) + projections.exact(residuals[where])
        value[where], error[where] = found.value, found.error
    return value, error


@implements(MultiHeadAttnForward)
def forward(
    operation: MultiHeadAttnForward, lengths: Array, key_lengths: Array, queries: Array, residuals: Array | None, keys: Array,
    values: Array, weights: Array | None,
) -> dict[str, Exact]:  # fmt: skip
    """Padding is zeros here, and anything to the judge: the document leaves it undefined."""
    out, steps = np.zeros(operation.out.dims, queries.dtype), slice(0, operation.queries.dims[0])
    found = {
        "out": _exact(
            partial(_computed, operation, lengths, key_lengths, queries, residuals, keys, values, weights, steps, out)
        )
    }
    if operation.trains:
        found["reserveSpace"] = Exact.kept(kept_schedule(operation, lengths, key_lengths))
    return found


@implements(MultiHeadAttnStep)
def step(
    operation: MultiHeadAttnStep, lengths: Array, key_lengths: Array, queries: Array, residuals: Array | None, keys: Array,
    values: Array, weights: Array | None, out: Array,
) -> Exact:  # fmt: skip
    """Other time-steps keep what they have; padding is zeros here, and anything to the judge."""
    steps = slice(operation.curr_idx, operation.curr_idx + 1)
    return _exact(
        partial(_computed, operation, lengths, key_lengths, queries, residuals, keys, values, weights, steps, out)
    )


def _exact(computed: Callable[..., tuple[Array, Array]]) -> Exact:
    value, error = computed()
    # A probability beside an infinite value may underflow: its product is infinite or NaN.
    return Exact(
        value,
        error,
        1,
        overflows=lambda: np.isinf(value) & ~np.isfinite(error),
        spread=lambda: Steps(computed(is_expected=True)[1]),
    )
