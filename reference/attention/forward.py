"""Compute multi-head attention forward (7.2.35) for all time-steps or for one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from dualdnn.api.operations import MultiHeadAttnForward, MultiHeadAttnStep

from ..engine import Exact, implements
from ..view import Array
from .kept import kept_schedule
from .outcome import Outcome, exact
from .sequence import Projections, Sequence, places


def _computed(
    operation: Any, lengths: Array, key_lengths: Array, queries: Array, residuals: Array | None, keys: Array, values: Array,
    weights: Array | None, steps: slice, out: Array, overflows: bool, values_alone: bool,
) -> dict[str, Outcome]:  # fmt: skip
    """Compute the outputs of some time-steps of all sequences.

    Padding gets zeros and infinite errors; other time-steps stay unchanged.
    """
    found = Outcome.of(out.copy(), values_alone)
    found.leave_open(steps)
    projections = Projections(operation.attn, weights, overflows)
    low, high = (np.array(indices) for indices in (operation.lo_win_idx, operation.hi_win_idx))
    for place in places(operation.queries.dims, operation.keys.dims, lengths, key_lengths):
        chosen = slice(steps.start, min(steps.stop, place.queries))
        count = chosen.stop - chosen.start
        if count <= 0:
            continue
        where = (chosen, place.batch, place.beam)
        output = Sequence(
            operation, projections, queries[where], keys[place.of_keys], values[place.of_keys], low[:count], high[:count]
        ).output  # fmt: skip
        if residuals is not None:
            output = (output if operation.attn.o_projected else output.kept()) + projections.exact(residuals[where])
        found.store(where, output)
    return {"out": found}


@implements(MultiHeadAttnForward)
def forward(
    operation: MultiHeadAttnForward, lengths: Array, key_lengths: Array, queries: Array, residuals: Array | None, keys: Array,
    values: Array, weights: Array | None,
) -> dict[str, Exact]:  # fmt: skip
    """Compute all time-steps. Padding gets zeros and is not judged, because the document leaves it undefined."""
    out, steps = np.zeros(operation.out.dims, queries.dtype), slice(0, operation.queries.dims[0])
    arguments = (operation, lengths, key_lengths, queries, residuals, keys, values, weights, steps, out)
    found = exact(operation, partial(_computed, *arguments))
    if operation.trains:
        found["reserveSpace"] = Exact.kept(kept_schedule(operation, lengths, key_lengths))
    return found


@implements(MultiHeadAttnStep)
def step(
    operation: MultiHeadAttnStep, lengths: Array, key_lengths: Array, queries: Array, residuals: Array | None, keys: Array,
    values: Array, weights: Array | None, out: Array,
) -> dict[str, Exact]:  # fmt: skip
    """Compute one time-step and leave the others unchanged. Padding gets zeros and is not judged."""
    steps = slice(operation.curr_idx, operation.curr_idx + 1)
    arguments = (operation, lengths, key_lengths, queries, residuals, keys, values, weights, steps, out)
    return exact(operation, partial(_computed, *arguments))
