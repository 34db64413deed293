"""Store windows and lengths in a reserve space. The gradients recompute everything else."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..view import Array

MARK = 0x4D484141  # first word of a reserve space that a call has filled


class Schedule(NamedTuple):
    """Hold the windows of each query time-step and the lengths of each sequence."""

    low: Array
    high: Array
    lengths: Array
    key_lengths: Array


def kept_schedule(operation: Any, lengths: Array, key_lengths: Array) -> Array:
    """Return the bytes that a training call writes into its reserve space."""
    parts = ((MARK,), operation.lo_win_idx, operation.hi_win_idx, lengths, key_lengths)
    return np.concatenate([np.asarray(part).astype(np.int32) for part in parts]).view(np.uint8)


def schedule_in(operation: Any, reserve: Array) -> Schedule | None:
    """Return the schedule in a reserve space, or None where no reference call has filled it."""
    extents = operation.extents
    sizes = (1, extents.q_steps, extents.q_steps, extents.q_sequences, extents.k_sequences)
    numbers = reserve[: 4 * sum(sizes)].view(np.int32)
    mark, *parts = np.split(numbers, np.cumsum(sizes)[:-1])
    return Schedule(*parts) if mark[0] == MARK else None
