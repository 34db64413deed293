"""Vectors of float data as factors of tensor cores (split.cu)."""

from __future__ import annotations

from collections.abc import Sequence
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


def factors(problem: AttentionProblem, given: Sequence[tuple[str, Vectors, int]]) -> Parts:
    """Return the vectors that tensor cores multiply. given: operand, vectors, and how many there are; float ones are
    split into the scratch memory."""
    if problem.attn.data_type != FLOAT:
        return Parts([], [operand for operand, _, _ in given], [vectors for _, vectors, _ in given])
    found: list[Vectors] = []
    end = 0
    for _, vectors, count in given:
        lower = -(-count * vectors.vector * PART_BYTES // ALIGNMENT) * ALIGNMENT
        found.append(Vectors(end, lower, vectors.vector, vectors.head, vectors.size))
        end += 2 * lower
    elements = [count * vectors.vector for _, vectors, count in given]
    wide, whole = c_longlong * len(given), c_int * len(given)
    arguments = structure(
        *pointers(len(given) + 1),
        ("source_offset", wide(*(vectors.offset for _, vectors, _ in given))),
        ("result_offset", wide(*(vectors.offset for vectors in found))),
        ("lower", wide(*(vectors.lower for vectors in found))),
        ("elements", whole(*elements)),
    )
    definitions = type_definitions(FLOAT, problem.operation, OPERANDS=str(len(given)))
    function = problem.device.function(SOURCE, "attention_split", definitions)
    columns, *others = blocks(-(-max(elements) // WIDTH))
    operands = (*(operand for operand, _, _ in given), SCRATCH)
    launch = Launch(function, arguments, operands, (columns, len(given), others[1]))
    launch.scratch_bytes = end
    return Parts([launch], [SCRATCH] * len(given), found)
