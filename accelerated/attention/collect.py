"""Vectors of an attention without a projection (collect.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong

from ..plans import Launch, pointers, structure, type_definitions
from ..primitives.geometry import FastDivmod, blocks
from .problem import AttentionProblem, Rows

SOURCE = "attention/collect.cu"
PACK_BYTES = 16  # of a thread


def collect(
    problem: AttentionProblem, source: tuple[str, int], result: tuple[str, int], parts: int, size: int, rows: Rows,
    addend: str = "",
    is_of_keys: bool = False,
) -> Launch:  # fmt: skip
    """Return the launch that sums the parts of each vector. source, result: operand, the byte it
    begins at."""
    packs = -(-size * problem.element_bytes // PACK_BYTES)  # of a vector
    arguments = structure(
        *pointers(4),
        ("source_offset", c_longlong(source[1])),
        ("result_offset", c_longlong(result[1])),
        ("parts", c_int(parts)),
        ("size", c_int(size)),
        ("packs", c_int(rows.count * packs)),
        ("is_of_keys", c_int(is_of_keys)),
        ("packs_of_vector", FastDivmod.of(packs)),
        ("schedule", problem.schedule),
        ("rows", rows),
    )
    definitions = type_definitions(problem.attn.data_type, problem.operation)
    function = problem.device.function(SOURCE, "attention_collect", definitions)
    return Launch(function, arguments, (addend, problem.space, source[0], result[0]), blocks(rows.count * packs))
