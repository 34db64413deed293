"""Plan sums of vectors for an attention without a projection: of the heads' parts and an addend (collect.cu)."""

from __future__ import annotations

from ctypes import Structure, c_int, c_longlong
from typing import NamedTuple

from ..plans import Launch, pointers, structure, type_definitions
from ..primitives.geometry import FastDivmod, blocks
from ..runtime.arguments import declared
from .problem import AttentionProblem, Rows

SOURCE = "attention/collect.cu"
ACCESS_BYTES = 16  # bytes that a thread moves
MAX_COLLECTIONS = 3  # collections per launch, as in the kernel


class CollectionStruct(Structure):
    """Mirror ``Collection`` of the kernel's source."""

    _fields_ = [
        *declared(c_longlong, "source_offset result_offset"),
        *declared(c_int, "parts size accesses is_of_keys"),
        ("accesses_per_vector", FastDivmod),
        ("rows", Rows),
    ]


class Collection(NamedTuple):
    """Describe vectors that are sums of parts and of an addend. ``source`` and ``result`` are operands with byte
    offsets.
    """

    source: tuple[str, int]
    result: tuple[str, int]
    parts: int
    size: int
    rows: Rows
    addend: str = ""
    is_of_keys: bool = False

    def struct(self, element_bytes: int) -> CollectionStruct:
        """Return the structure that the kernel reads."""
        accesses = -(-self.size * element_bytes // ACCESS_BYTES)  # vectors of ACCESS_BYTES per row
        return CollectionStruct(
            self.source[1], self.result[1], self.parts, self.size, self.rows.count * accesses, self.is_of_keys,
            FastDivmod.of(accesses), self.rows,
        )  # fmt: skip


def collect(problem: AttentionProblem, *collections: Collection) -> Launch:
    """Return the launch that computes the collections."""
    made, absent = (
        [each.struct(problem.element_bytes) for each in collections],
        ("",) * (MAX_COLLECTIONS - len(collections)),
    )
    arguments = structure(
        *pointers(3 * MAX_COLLECTIONS + 1),
        ("schedule", problem.schedule),
        ("collection", (CollectionStruct * MAX_COLLECTIONS)(*made)),
    )
    definitions = type_definitions(problem.attn.data_type, problem.operation)
    function = problem.device.function(SOURCE, "attention_collect", definitions)
    addends, sources, results = zip(
        *((each.addend, each.source[0], each.result[0]) for each in collections), strict=True
    )
    operands = (*addends, *absent, problem.space, *sources, *absent, *results, *absent)
    grid = blocks(max(each.accesses for each in made))[0], len(collections), 1
    return Launch(function, arguments, operands, grid)
