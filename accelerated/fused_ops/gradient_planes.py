"""The gradient of an activated batch normalisation of planes (gradient_planes.cu)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .gradient_team import Division, TeamSolver, blocks_of, static_bytes
from .problem import PACK_BYTES, WARP, Walk

SOURCE = "fused_ops/gradient_planes.cu"
MOST_CHANNELS = 16  # of a tile
MOST_THREADS = 512
MOST_SLOTS = 32  # packs of a tensor that a thread has in a tile
LEAST_PACK = 4  # bytes, of an asynchronous copy
# What a block moves in a second, of the mask from L2 in sectors, and how long it waits for the sums of others
BYTES_PER_SECOND, MASK_BYTES_PER_SECOND, SECTOR, EXCHANGE_SECONDS = 3e10, 7e10, 32, 1e-6


class GradientPlanesSolver(TeamSolver):
    """Planes of which shared memory holds all pixels of some channels."""

    name = "fused_ops.gradient_planes"
    source, along = SOURCE, "pixels"

    def division(self, walk: Walk, device: Any, pack_bytes: int) -> Division | None:
        if pack_bytes < LEAST_PACK:
            return None
        found = self._divisions(walk, device, pack_bytes)
        return min(found, key=lambda division: self._seconds(division, walk, pack_bytes), default=None)

    @staticmethod
    def _divisions(walk: Walk, device: Any, pack_bytes: int) -> Iterator[Division]:
        """Yield the divisions that fit the device."""
        blocks, packs, channels = blocks_of(device), walk.pixels.count // walk.width, walk.pixels.channels
        for size in range(1, MOST_CHANNELS + 1):
            tiles = -(-channels // size)
            if -(-channels // tiles) != size:
                continue
            for teams in range(1, min(tiles, blocks) + 1):
                items = -(-packs // (blocks // teams))
                steps = -(-items // MOST_THREADS)
                threads = -(-items // steps // WARP) * WARP
                nbytes = 2 * steps * size * threads * pack_bytes
                if steps * size > MOST_SLOTS:
                    continue
                for buffers in (1, 2) if tiles > teams else (1,):
                    if buffers * nbytes + static_bytes(size, threads) <= device.shared_bytes_per_block:
                        definitions = {"TILE_CHANNELS": size, "STEPS": steps, "BUFFERS": buffers}
                        team = -(-packs // items)
                        yield Division(size, tiles, teams, team, items, threads, buffers * nbytes, definitions)

    @staticmethod
    def _seconds(division: Division, walk: Walk, pack_bytes: int) -> float:
        """About how long a division takes."""
        rounds = -(-division.tiles // division.teams)
        tile = 4 * division.items * division.columns * pack_bytes / BYTES_PER_SECOND
        mask = division.items * walk.width * min(SECTOR, 4 * walk.pixels.mask_row) / MASK_BYTES_PER_SECOND
        waits = EXCHANGE_SECONDS / division.definitions["BUFFERS"] if division.team > 1 else 0
        return rounds * (max(tile, mask) + waits)
