"""Plan the windows and lengths for the kernels of attention (schedule.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, c_int, c_longlong, c_uint

from dualdnn.api.operations.attention.memory import COUNTERS

from ..plans import Launch, fields_of, pointers, structure, type_definitions
from ..primitives.geometry import blocks
from .problem import TIME, AttentionProblem

SOURCE = "attention/schedule.cu"
PIECES = 192  # per launch; kernel arguments have at most 4096 bytes


class Piece(Structure):
    """Describe the windows of time-steps along which both ends rise evenly (schedule.cu)."""

    _fields_ = [("first", c_int), ("low", c_int), ("low_step", c_uint), ("high", c_int), ("high_step", c_uint)]


def pieces(low: Sequence[int], high: Sequence[int]) -> list[Piece]:
    """Return the windows in few pieces. A piece goes on while the ends rise as between its first two time-steps."""
    found: list[Piece] = []
    first, count = 0, len(low)
    while first < count:
        end = min(first + 1, count - 1)
        steps = low[end] - low[first], high[end] - high[first]
        while end + 1 < count and (low[end + 1] - low[end], high[end + 1] - high[end]) == steps:
            end += 1
        found.append(Piece(first, low[first], steps[0], high[first], steps[1]))
        first = end + 1
    return found


def schedule(problem: AttentionProblem) -> list[Launch]:
    """Return the launches that fill the schedule of the call's space."""
    operation, extents = problem.operation, problem.operation.extents
    definitions = type_definitions(problem.attn.data_type, operation, COUNTERS=str(COUNTERS), PIECES=str(PIECES))
    function = problem.device.function(SOURCE, "attention_schedule", definitions)
    all_pieces, steps = pieces(operation.lo_win_idx, operation.hi_win_idx), len(operation.lo_win_idx)
    found = []
    for start in range(0, len(all_pieces), PIECES):
        own, behind = all_pieces[start : start + PIECES], all_pieces[start + PIECES : start + PIECES + 1]
        first = own[0].first
        count = (behind[0].first if behind else steps) - first
        arguments = structure(
            *pointers(3),
            ("schedule", problem.schedule),
            ("counters_offset", c_longlong(problem.regions.offsets["counters"])),
            *fields_of(c_int, q_steps=problem.q.dims[TIME], k_steps=problem.k.dims[TIME]),
            *fields_of(c_int, k_sequences=extents.k_sequences, first=first, count=count, pieces=len(own)),
            ("piece", (Piece * PIECES)(*own)),
        )
        threads = max(count, extents.q_sequences, extents.k_sequences) if first == 0 else count
        operands = (*operation.lengths_of, problem.space)
        found.append(Launch(function, arguments, operands, blocks(threads)))
    return found
