"""Vectors of float data as factors of tensor cores (split.cu)."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import c_int, c_longlong
from typing import NamedTuple

from dualdnn.api.operations.specs import FLOAT

from ..plans import SCRATCH, Launch, pointers, structure, type_definitions
from ..primitives.geometry import blocks
from .problem import AttentionProblem, Vectors

SOURCE = "attention/split.cu"
WIDTH = 4  # elements of a thread
ALIGNMENT = 128
PART_BYTES = 2


class Parts(NamedTuple):
    """Where the vectors of a core lie as factors: launches that split them before, operand and vectors of each."""

    launches: list[Launch]
    operands: list[str]
    vectors: list[Vectors]


def factors(problem: AttentionProblem, given: Iterable[tuple[str, Vectors, int]]) -> Parts:
    """Return the vectors that tensor cores multiply. given: operand, vectors, and how many there are; float ones are
    split into the scratch memory."""
    found, offset = Parts([], [], []), 0
    for operand, vectors, count in given:
        if problem.attn.data_type != FLOAT:
            found.operands.append(operand)
            found.vectors.append(vectors)
            continue
        elements = count * vectors.vector
        lower = -(-elements * PART_BYTES // ALIGNMENT) * ALIGNMENT
        arguments = structure(
            *pointers(2),
            ("source_offset", c_longlong(vectors.offset)),
            ("result_offset", c_longlong(offset)),
            ("lower", c_longlong(lower)),
            ("elements", c_int(elements)),
        )
        function = problem.device.function(SOURCE, "attention_split", type_definitions(FLOAT, problem.operation))
        launch = Launch(function, arguments, (operand, SCRATCH), blocks(-(-elements // WIDTH)))
        found.launches.append(launch)
        found.operands.append(SCRATCH)
        found.vectors.append(Vectors(offset, lower, vectors.vector, vectors.head, vectors.size))
        offset += 2 * lower
        launch.scratch_bytes = offset
    return found
