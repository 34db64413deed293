"""Windows and lengths for the kernels of attention (schedule.cu)."""

from __future__ import annotations

from ctypes import c_int

from ..plans import Launch, pointers, structure, type_definitions
from ..primitives.geometry import blocks
from .problem import TIME, AttentionProblem

SOURCE = "attention/schedule.cu"
WINDOWS = 448  # time-steps of a launch: arguments of kernels have at most 4096 bytes


def schedule(problem: AttentionProblem) -> list[Launch]:
    """Return the launches that fill the schedule of the call's space."""
    operation, extents = problem.operation, problem.operation.extents
    definitions = type_definitions(problem.attn.data_type, operation, WINDOWS=str(WINDOWS))
    function = problem.device.function(SOURCE, "attention_schedule", definitions)
    found = []
    for first in range(0, len(operation.lo_win_idx), WINDOWS):
        low, high = (indices[first : first + WINDOWS] for indices in (operation.lo_win_idx, operation.hi_win_idx))
        arguments = structure(
            *pointers(3),
            ("schedule", problem.schedule),
            ("q_steps", c_int(problem.q.dims[TIME])),
            ("k_steps", c_int(problem.k.dims[TIME])),
            ("k_sequences", c_int(extents.k_sequences)),
            ("first", c_int(first)),
            ("count", c_int(len(low))),
            ("low", (c_int * WINDOWS)(*low)),
            ("high", (c_int * WINDOWS)(*high)),
        )
        threads = max(len(low), extents.q_sequences, extents.k_sequences) if first == 0 else len(low)
        operands = (*operation.lengths_of, problem.space)
        found.append(Launch(function, arguments, operands, blocks(threads)))
    return found
