"""Convert vectors to factors of tensor cores in the scratch memory (split.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int, c_longlong
from typing import NamedTuple

from dualdnn.api.operations.specs import FLOAT

from ..plans import SCRATCH, Launch, arrays_of, pointers, structure, type_definitions
from ..primitives.geometry import FastDivmod, blocks
from .problem import AttentionProblem, Vectors

SOURCE = "attention/split.cu"
WIDTH = 4  # factors per thread
ACCESS = 8  # factors per 16 bytes; vectors are padded to a multiple
ALIGNMENT = 128
PART_BYTES = 2


class Parts(NamedTuple):
    """Say where the core of attention reads its factors: for each, the operand and the place of its vectors there.

    ``given`` has the operands that launches() converts into ``nbytes`` bytes of scratch memory.
    """

    operands: list[str]
    vectors: list[Vectors]
    given: Sequence[tuple[str, Vectors, int]] = ()
    nbytes: int = 0

    def launches(self, problem: AttentionProblem) -> list[Launch]:
        """Return the launch that writes the factors, or no launch where kernels read the vectors in place."""
        if not self.given:
            return []
        count = len(self.given)
        rows = [made.vector // (problem.attn.heads if made.head else 1) for made in self.vectors]
        accesses = [n * made.vector // WIDTH for (_, _, n), made in zip(self.given, self.vectors, strict=True)]
        arguments = structure(
            *pointers(count + 1),
            ("source_offset", (c_longlong * count)(*(vectors.offset for _, vectors, _ in self.given))),
            ("result_offset", (c_longlong * count)(*(vectors.offset for vectors in self.vectors))),
            ("lower", (c_longlong * count)(*(vectors.lower for vectors in self.vectors))),
            *arrays_of(c_int * count, accesses=accesses, size=(vectors.size for vectors in self.vectors)),
            ("row_accesses", (FastDivmod * count)(*(FastDivmod.of(row // WIDTH) for row in rows))),
        )
        definitions = type_definitions(problem.attn.data_type, problem.operation, OPERANDS=str(count))
        function = problem.device.function(SOURCE, "attention_split", definitions)
        operands = (*(operand for operand, _, _ in self.given), SCRATCH)
        launch = Launch(function, arguments, operands, (blocks(max(accesses))[0], count, 1))
        launch.scratch_bytes = self.nbytes
        return [launch]


def factors(problem: AttentionProblem, given: Sequence[tuple[str, Vectors, int]], copies: bool = False) -> Parts:
    """Return the vectors that tensor cores multiply.

    ``given`` has operands, vectors, and their number. Float data are split in two in the scratch memory. Half data are
    copied there where ``copies`` says so.
    """
    if problem.attn.data_type != FLOAT and not copies:
        return Parts([operand for operand, _, _ in given], [vectors for _, vectors, _ in given])
    found: list[Vectors] = []
    end = 0
    for _, vectors, count in given:
        row = -(-vectors.size // ACCESS) * ACCESS
        vector = row * problem.attn.heads if vectors.head else row
        nbytes = -(-count * vector * PART_BYTES // ALIGNMENT) * ALIGNMENT
        lower = nbytes if problem.attn.data_type == FLOAT else 0
        found.append(Vectors(end, lower, vector, row if vectors.head else 0, vectors.size))
        end += nbytes + lower
    return Parts([SCRATCH] * len(given), found, given, end)
