"""The gradient of an activated batch normalisation with channels innermost (gradient_columns.cu)."""

from __future__ import annotations

from typing import Any

from .gradient_team import Division, TeamSolver, static_bytes, team_of
from .problem import PACK_BYTES, Walk

SOURCE = "fused_ops/gradient_columns.cu"
THREADS = 512
AHEAD = 4  # rows of a thread that are in flight
# Packs of a tile side by side, the first with which no more than so many blocks have a tile
LANES, MOST_BLOCKS = (16, 8, 4, 2), 33


class GradientColumnsSolver(TeamSolver):
    """Packs of channels innermost, all of which the shared memory of all multiprocessors holds."""

    name = "fused_ops.gradient_columns"
    source, along = SOURCE, "channels"

    def division(self, walk: Walk, device: Any, pack_bytes: int) -> Division | None:
        if pack_bytes != PACK_BYTES:
            return None
        pixels, packs = walk.pixels.count, walk.pixels.packs.divisor
        teams = {lanes: team_of(device, -(-packs // lanes)) for lanes in LANES if lanes <= packs or lanes == LANES[-1]}
        lanes = next((n for n, team in teams.items() if 0 < team <= MOST_BLOCKS), LANES[-1])
        tiles, team = -(-packs // lanes), teams[lanes]
        if team == 0:
            return None
        items = -(-pixels // team)
        columns, of_row = lanes * walk.width, 2 * THREADS * PACK_BYTES
        rows = -(-items // (THREADS // lanes))
        room = (device.shared_bytes_per_block - static_bytes(columns, THREADS)) // of_row
        if rows > room:
            return None
        definitions = {"LANES": lanes, "AHEAD": AHEAD}
        return Division(columns, tiles, -(-pixels // items), items, THREADS, rows * of_row, definitions)
