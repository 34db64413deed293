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
    """Where the vectors of a core lie as factors: operand and vectors of each; what is split into the scratch memory
    before, as ``given`` to factors(), and bytes of it."""

    operands: list[str]
    vectors: list[Vectors]
    given: Sequence[tuple[str, Vectors, int]] = ()
    nbytes: int = 0

    def launches(self, problem: AttentionProblem) -> list[Launch]:
        """Return the launch that splits float vectors; none where there are none."""
        if not self.given:
            return []
        elements = [count * vectors.vector for _, vectors, count in self.given]
        count = len(elements)
        arguments = structure(
            *pointers(count + 1),
            ("source_offset", (c_longlong * count)(*(vectors.offset for _, vectors, _ in self.given))),
            ("result_offset", (c_longlong * count)(*(vectors.offset for vectors in self.vectors))),
            ("lower", (c_longlong * count)(*(vectors.lower for vectors in self.vectors))),
            ("elements", (c_int * count)(*elements)),
        )
        definitions = type_definitions(FLOAT, problem.operation, OPERANDS=str(count))
        function = problem.device.function(SOURCE, "attention_split", definitions)
        operands = (*(operand for operand, _, _ in self.given), SCRATCH)
        launch = Launch(function, arguments, operands, (blocks(-(-max(elements) // WIDTH))[0], count, 1))
        launch.scratch_bytes = self.nbytes
        return [launch]


def factors(problem: AttentionProblem, given: Sequence[tuple[str, Vectors, int]]) -> Parts:
    """Return the vectors that tensor cores multiply. given: operand, vectors, and how many there are; float ones are
    split into the scratch memory."""
    if problem.attn.data_type != FLOAT:
        return Parts([operand for operand, _, _ in given], [vectors for _, vectors, _ in given])
    found: list[Vectors] = []
    end = 0
    for _, vectors, count in given:
        lower = -(-count * vectors.vector * PART_BYTES // ALIGNMENT) * ALIGNMENT
        found.append(Vectors(end, lower, vectors.vector, vectors.head, vectors.size))
        end += 2 * lower
    return Parts([SCRATCH] * len(given), found, given, end)
