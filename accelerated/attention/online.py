"""Plan the core of attention forward (online.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, c_int, c_longlong
from typing import Any

from dualdnn.api.operations import SeqDataSpec

from ..plans import Launch, factors, fields_of, pointers, structure, type_definitions
from ..primitives.geometry import FastDivmod
from .problem import BEAM, INPUTS, TIME, AttentionProblem, Vectors, vector_strides

SOURCE = "attention/online.cu"


class Strides(Structure):
    """Hold the strides between time-steps, batches and beams, in vectors (heads.cuh)."""

    _fields_ = [("time", c_int), ("batch", c_int), ("beam", c_int)]

    @classmethod
    def of(cls, data: SeqDataSpec) -> Strides:
        return cls(*vector_strides(data))


def heads(problem: AttentionProblem) -> tuple[list[str], Any]:
    """Return the operands with the vectors of queries, keys and values, and the argument that describes them."""
    operands, vectors = zip(*(problem.vectors(name) for name in INPUTS), strict=True)
    return list(operands), describe(problem, vectors)


def describe(problem: AttentionProblem, vectors: Sequence[Vectors]) -> Any:
    """Return the argument that describes the vectors of queries, keys and values."""
    return structure(
        *zip("qkv", vectors, strict=True),
        ("q_strides", Strides.of(problem.q)),
        ("k_strides", Strides.of(problem.k)),
        ("schedule", problem.schedule),
        *fields_of(c_int, heads=problem.attn.heads, beams=problem.q.dims[BEAM], key_beams=problem.k.dims[BEAM]),
        *fields_of(c_int, q_first=problem.step or 0, q_steps=problem.windows, k_steps=problem.k.dims[TIME]),
        *factors(problem.operation, scaler=problem.attn.scaler),
    )


def core(problem: AttentionProblem) -> Launch:
    """Return the launch that computes the heads' outputs."""
    operands, described = heads(problem)
    tiles = -(-problem.windows // problem.tile)
    chunks = -(-problem.attn.value_size // problem.tile)
    counts = (tiles, chunks, problem.attn.heads, problem.q.dims[BEAM])
    offsets = problem.regions.offsets
    result, result_offset = problem.result
    arguments = structure(
        *pointers(5),
        ("heads", described),
        *fields_of(c_longlong, result_offset=result_offset, statistics_offset=offsets.get("statistics", -1)),
        *zip(("tiles", "chunks", "head_count", "beam_count"), map(FastDivmod.of, counts), strict=True),
    )
    definitions = type_definitions(problem.attn.data_type, problem.operation, TILE=str(problem.tile))
    function = problem.device.function(SOURCE, "attention_online_forward", definitions)
    grid = tiles * chunks * problem.attn.heads * problem.operation.extents.q_sequences
    return Launch(function, arguments, (*operands, problem.space, result), (grid, 1, 1))
