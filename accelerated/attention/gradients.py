"""Plan the core of attention's gradients (gradients.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from typing import Any

from ..plans import Launch, fields_of, pointers, structure, type_definitions
from ..primitives.geometry import FastDivmod, blocks
from .online import heads
from .problem import BEAM, INPUTS, TIME, WEIGHTS, AttentionProblem, Vectors

SOURCE = "attention/gradients.cu"
WARP = 32


def of_heads(problem: AttentionProblem) -> tuple[str, Vectors]:
    """Return the operand with the gradients of the heads' outputs, and its layout."""
    attn, size = problem.attn, problem.attn.value_size
    joined = attn.heads * size
    if attn.o_projected:
        return "workSpace", Vectors(problem.gradients.offsets["d_heads"], 0, joined, size, size)
    return "dout", Vectors(0, 0, joined, size, size)


def of_input(problem: AttentionProblem, name: str) -> tuple[str, int]:
    """Return the operand and the byte offset of the gradients of an input's projected vectors. Without a projection,
    those of one head are the result.
    """
    if WEIGHTS[name] in problem.weights:
        return problem.space, problem.regions.offsets[f"d_{name}"]
    if problem.attn.heads == 1:
        return f"d{name}", 0
    return "workSpace", problem.gradients.offsets[f"d_{name}"]


def core(problem: AttentionProblem) -> list[Launch]:
    """Return the launches that compute the gradients of the projected queries, keys and values."""
    operands, described = heads(problem)
    dout, gradients = of_heads(problem)
    extents, attn, tile = problem.operation.extents, problem.attn, problem.tile
    origins = {name: of_input(problem, name) for name in INPUTS}
    definitions = type_definitions(attn.data_type, problem.operation, TILE=str(tile))

    def launch(kernel: str, result: str, counts: tuple[int, ...], key_chunks: int, grid: Any) -> Launch:
        arguments = structure(
            *pointers(8),
            ("heads", described),
            ("gradients", gradients),
            ("heads_offset", c_longlong(problem.regions.offsets["heads"])),
            ("statistics_offset", c_longlong(problem.regions.offsets["statistics"])),
            ("products_offset", c_longlong(problem.gradients.offsets["products"])),
            *fields_of(c_longlong, result_offset=origins[result][1], values_offset=origins["values"][1]),
            ("pairs", c_int(extents.q_vectors * attn.heads)),
            *zip(("tiles", "chunks", "head_count", "beam_count"), map(FastDivmod.of, counts), strict=True),
            ("key_chunks", c_int(key_chunks)),
        )
        function = problem.device.function(SOURCE, f"attention_gradients_{kernel}", definitions)
        given = (*operands, dout, problem.space, "workSpace", origins[result][0], origins["values"][0])
        return Launch(function, arguments, given, grid)

    def parts(size: int) -> int:
        return -(-size // tile)

    queries = (parts(extents.q_steps), parts(attn.query_size), attn.heads, problem.q.dims[BEAM])
    keys = parts(attn.key_size), parts(attn.value_size)
    all_keys = (parts(problem.k.dims[TIME]), sum(keys), attn.heads, problem.k.dims[BEAM])
    query_blocks = queries[0] * queries[1] * attn.heads * extents.q_sequences
    key_blocks = all_keys[0] * all_keys[1] * attn.heads * extents.k_sequences
    return [
        launch("products", "queries", queries, 0, blocks(extents.q_vectors * attn.heads * WARP)),
        launch("queries", "queries", queries, 0, (query_blocks, 1, 1)),
        launch("keys", "keys", all_keys, keys[0], (key_blocks, 1, 1)),
    ]
