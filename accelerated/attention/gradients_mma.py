"""The core of attention's gradients on tensor cores (gradients_mma.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from typing import NamedTuple

from dualdnn.api.operations.attention import allows_tensor_cores

from ..plans import Launch, pointers, structure
from ..primitives.geometry import FastDivmod, blocks
from . import split
from .gradients import of_heads, of_input
from .online import describe
from .online_mma import ROWS, SWIZZLE_BYTES, WARPGROUP, definitions_of, padded_size, parts
from .problem import BEAM, INPUTS, TIME, AttentionProblem

SOURCE = "attention/gradients_mma.cu"
OTHERS, STAGES = 64, 3  # as in the kernels
LANES = 8  # of a query and head


class Warpgroups(NamedTuple):
    """Warpgroups of a block of each kernel."""

    queries: int
    keys: int


# By the elements of a vector
WARPGROUPS = {64: Warpgroups(3, 3), 128: Warpgroups(2, 2)}
FLOAT_WARPGROUPS = {64: Warpgroups(2, 2)}  # in two parts


def serves(problem: AttentionProblem) -> bool:
    """Return whether tensor cores can compute the core."""
    return allows_tensor_cores(problem.attn) and padded_size(problem) in _warpgroups(problem)


def _warpgroups(problem: AttentionProblem) -> dict[int, Warpgroups]:
    return WARPGROUPS if parts(problem) == 1 else FLOAT_WARPGROUPS


def factors(problem: AttentionProblem) -> split.Parts:
    """Return queries, keys, values and incoming gradients as tensor cores multiply them."""
    extents = problem.operation.extents
    vectors = (*(problem.vectors(name) for name in INPUTS), of_heads(problem))
    counts = (extents.q_vectors, extents.k_vectors, extents.k_vectors, extents.q_vectors)
    return split.factors(problem, [(*each, count) for each, count in zip(vectors, counts, strict=True)])


def core(problem: AttentionProblem) -> list[Launch]:
    """Return the launches that compute the gradients of the projected queries, keys and values."""
    extents, attn, size = problem.operation.extents, problem.attn, padded_size(problem)
    given = factors(problem)
    origins = {name: of_input(problem, name) for name in INPUTS}

    def launch(kernel: str, result: str, warpgroups: int, steps: int, beams: int, sequences: int) -> Launch:
        warpgroups = 1 if steps <= ROWS else warpgroups
        rows = warpgroups * ROWS
        tiles = -(-steps // rows)
        arguments = structure(
            *pointers(8),
            ("heads", describe(problem, given.vectors[:3])),
            ("gradients", given.vectors[3]),
            ("heads_offset", c_longlong(problem.regions.offsets["heads"])),
            ("statistics_offset", c_longlong(problem.regions.offsets["statistics"])),
            ("products_offset", c_longlong(problem.gradients.offsets["products"])),
            ("result_offset", c_longlong(origins[result][1])),
            ("values_offset", c_longlong(origins["values"][1])),
            ("pairs", c_int(extents.q_vectors * attn.heads)),
            *zip(("tiles", "head_count", "beam_count"), map(FastDivmod.of, (tiles, attn.heads, beams)), strict=True),
        )
        definitions = definitions_of(problem, SIZE=size, WARPGROUPS=warpgroups)
        function = problem.device.function(SOURCE, f"attention_gradients_mma_{kernel}", definitions)
        operands = (*given.operands, problem.space, "workSpace", origins[result][0], origins["values"][0])
        if kernel == "products":
            return Launch(function, arguments, operands, blocks(extents.q_vectors * attn.heads * LANES))
        shared_bytes = 2 * parts(problem) * (rows + STAGES * OTHERS) * size * 2 + SWIZZLE_BYTES
        grid = (tiles * attn.heads * sequences, 1, 1)
        return Launch(function, arguments, operands, grid, (warpgroups * WARPGROUP, 1, 1), shared_bytes)

    warpgroups = _warpgroups(problem)[size]
    queries = (extents.q_steps, problem.q.dims[BEAM], extents.q_sequences)
    return [
        *given.launches(problem),
        launch("products", "queries", warpgroups.queries, *queries),
        launch("queries", "queries", warpgroups.queries, *queries),
        launch("keys", "keys", warpgroups.keys, problem.k.dims[TIME], problem.k.dims[BEAM], extents.k_sequences),
    ]
