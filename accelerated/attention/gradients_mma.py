"""The core of attention's gradients on tensor cores (gradients_mma.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from typing import NamedTuple

from ..plans import Launch, pointers, structure
from ..primitives.geometry import FastDivmod, blocks
from .gradients import of_heads, of_input
from .online import heads
from .online_mma import ROWS, SWIZZLE_BYTES, WARPGROUP, definitions_of, padded_size
from .problem import BEAM, INPUTS, TIME, AttentionProblem

SOURCE = "attention/gradients_mma.cu"
OTHERS, STAGES = 64, 3  # as in the kernels
LANES = 8  # of a query and head


PIPELINED = 0


class Warpgroups(NamedTuple):
    """Warpgroups of a block of each kernel."""

    queries: int
    keys: int


WARPGROUPS = {64: Warpgroups(3, 3), 128: Warpgroups(2, 2)}  # by the elements of a vector


def core(problem: AttentionProblem) -> list[Launch]:
    """Return the launches that compute the gradients of the projected queries, keys and values."""
    operands, described = heads(problem)
    dout, gradients = of_heads(problem)
    extents, attn, size = problem.operation.extents, problem.attn, padded_size(problem)
    origins = {name: of_input(problem, name) for name in INPUTS}

    def launch(kernel: str, result: str, warpgroups: int, steps: int, beams: int, sequences: int) -> Launch:
        rows = warpgroups * ROWS
        tiles = -(-steps // rows)
        arguments = structure(
            *pointers(8),
            ("heads", described),
            ("gradients", gradients),
            ("heads_offset", c_longlong(problem.regions.offsets["heads"])),
            ("statistics_offset", c_longlong(problem.regions.offsets["statistics"])),
            ("products_offset", c_longlong(problem.gradients.offsets["products"])),
            ("result_offset", c_longlong(origins[result][1])),
            ("values_offset", c_longlong(origins["values"][1])),
            ("pairs", c_int(extents.q_vectors * attn.heads)),
            *zip(("tiles", "head_count", "beam_count"), map(FastDivmod.of, (tiles, attn.heads, beams)), strict=True),
        )
        definitions = definitions_of(problem, SIZE=size, WARPGROUPS=warpgroups, PIPELINED=PIPELINED)
        function = problem.device.function(SOURCE, f"attention_gradients_mma_{kernel}", definitions)
        given = (*operands, dout, problem.space, "workSpace", origins[result][0], origins["values"][0])
        if kernel == "products":
            return Launch(function, arguments, given, blocks(extents.q_vectors * attn.heads * LANES))
        shared_bytes = 2 * (rows + STAGES * OTHERS) * size * 2 + SWIZZLE_BYTES
        grid = (tiles * attn.heads * sequences, 1, 1)
        return Launch(function, arguments, given, grid, (warpgroups * WARPGROUP, 1, 1), shared_bytes)

    warpgroups = WARPGROUPS[size]
    queries = (extents.q_steps, problem.q.dims[BEAM], extents.q_sequences)
    return [
        launch("products", "queries", warpgroups.queries, *queries),
        launch("queries", "queries", warpgroups.queries, *queries),
        launch("keys", "keys", warpgroups.keys, problem.k.dims[TIME], problem.k.dims[BEAM], extents.k_sequences),
    ]
