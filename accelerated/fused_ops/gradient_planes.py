"""The gradient of an activated batch normalisation of planes (gradient_planes.cu)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .gradient_team import Division, TeamSolver, static_bytes, team_of
from .problem import WARP, Walk

SOURCE = "fused_ops/gradient_planes.cu"
MOST_CHANNELS = 8  # of a tile
MOST_THREADS = 640
MOST_SLOTS = 48  # packs of a tensor that a thread has
LEAST_PACK = 4  # bytes, of an asynchronous copy
# What a block moves in a second, pixels whose words of the mask it reads, and how long it waits for others
BYTES_PER_SECOND, WORDS_PER_SECOND, EXCHANGE_SECONDS = 3e10, 2e9, 1e-6


class GradientPlanesSolver(TeamSolver):
    """Planes, all of which the shared memory of all multiprocessors holds."""

    name = "fused_ops.gradient_planes"
    source, along = SOURCE, "pixels"

    def division(self, walk: Walk, device: Any, pack_bytes: int) -> Division | None:
        if pack_bytes < LEAST_PACK:
            return None
        found = self._divisions(walk, device, pack_bytes)
        return min(found, key=lambda division: self._seconds(division, walk, device, pack_bytes), default=None)

    @staticmethod
    def _divisions(walk: Walk, device: Any, pack_bytes: int) -> Iterator[Division]:
        """Yield the divisions that fit the device."""
        packs, channels = walk.pixels.count // walk.width, walk.pixels.channels
        for size in range(1, MOST_CHANNELS + 1):
            tiles = -(-channels // size)
            team = team_of(device, tiles)
            if team == 0 or -(-channels // tiles) != size:
                continue
            items = -(-packs // team)
            steps = -(-items // MOST_THREADS)
            threads = -(-items // steps // WARP) * WARP
            nbytes = 2 * steps * size * threads * pack_bytes
            fits = nbytes + static_bytes(size, threads) <= device.shared_bytes_per_block
            if steps * size <= MOST_SLOTS and fits:
                definitions = {"TILE_CHANNELS": size, "STEPS": steps}
                yield Division(size, tiles, -(-packs // items), items, threads, nbytes, definitions)

    @staticmethod
    def _seconds(division: Division, walk: Walk, device: Any, pack_bytes: int) -> float:
        """Return about how long a division takes."""
        moved = 4 * division.items * division.columns * pack_bytes / BYTES_PER_SECOND
        words = division.items * walk.width / WORDS_PER_SECOND
        rounds = -(-division.tiles * division.team // device.multiprocessors)
        return rounds * (moved + words) + EXCHANGE_SECONDS * (division.team > 1)
