"""Vectors of an attention without a projection (collect.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong

from ..plans import Launch, pointers, structure, type_definitions
from ..primitives.geometry import FastDivmod, blocks
from .problem import AttentionProblem, Rows

SOURCE = "attention/collect.cu"


def collect(
    problem: AttentionProblem, source: tuple[str, int], result: tuple[str, int], parts: int, size: int, rows: Rows,
    addend: str = "",
    is_of_keys: bool = False,
) -> Launch:  # fmt: skip
    """Return the launch that sums the parts of each vector. source, result: operand, the byte it
    begins at."""
    elements = rows.count * size
    arguments = structure(
        *pointers(4),
        ("source_offset", c_longlong(source[1])),
        ("result_offset", c_longlong(result[1])),
        ("parts", c_int(parts)),
        ("size", c_int(size)),
        ("elements", c_int(elements)),
        ("is_of_keys", c_int(is_of_keys)),
        ("vector", FastDivmod.of(size)),
        ("schedule", problem.schedule),
        ("rows", rows),
    )
    definitions = type_definitions(problem.attn.data_type, problem.operation)
    function = problem.device.function(SOURCE, "attention_collect", definitions)
    return Launch(function, arguments, (addend, problem.space, source[0], result[0]), blocks(elements))
