"""The gradient of an activated batch normalisation of packed planes that begin anywhere
(gradient_planes_unaligned.cu)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

from ..solver import Problem
from .gradient import TENSORS
from .gradient_team import Division, TeamSolver, static_bytes, team_of
from .problem import PACK_BYTES, WARP, Walk

SOURCE = "fused_ops/gradient_planes_unaligned.cu"
MOST_CHANNELS = 64  # of a tile
LEAST_PACKS = 16  # of a plane, with which warps have enough to do
MOST_PARTS = 4  # of a plane, which warps take in turns
WARPS_OF_BLOCK = range(16, 33)
WORD_BYTES = COMPUTE_BYTES = 4
# What a block moves in a second, words of the mask that it reads and transposes, how long it waits for others
BYTES_PER_SECOND, WORDS_PER_SECOND, EXCHANGE_SECONDS = 3e10, 8e9, 1e-6


class GradientPlanesUnalignedSolver(TeamSolver):
    """Packed planes that are not made of packs, all of which the shared memory of all multiprocessors holds."""

    name = "fused_ops.gradient_planes_unaligned"
    source, along = SOURCE, "pixels"

    def fits(self, walk: Walk, operation: Any) -> bool:
        channels, plane = walk.pixels.channels, _plane(walk)
        known = [walk.strides[name] for name in walk.strides if getattr(operation, name) is not None]
        if walk.rank == 1:
            packed = all(s.channel == plane and (s.image == 1 or plane == 1) for s in known)
        else:
            packed = all(s.channel == plane and s.axis[2] == 1 and s.image == channels * plane for s in known)
        return super().fits(walk, operation) and walk.width == 1 and walk.rank <= 2 and packed

    def alignment(self, problem: Problem) -> Mapping[str, int]:
        return {name: PACK_BYTES for name in TENSORS if getattr(problem.operation, name) is not None}

    def applies(self, problem: Problem) -> bool:
        spec = problem.operation.x
        return self.serves(problem) and prod(spec.dims[2:]) * spec.scalar_bytes >= LEAST_PACKS * PACK_BYTES

    def division(self, walk: Walk, device: Any, pack_bytes: int) -> Division | None:
        found = self._divisions(walk, device, PACK_BYTES // pack_bytes)  # which are elements
        return min(found, key=lambda division: self._seconds(division, walk, device, pack_bytes), default=None)

    @staticmethod
    def _divisions(walk: Walk, device: Any, width: int) -> Iterator[Division]:
        """Yield the divisions that fit the device."""
        channels, plane = walk.pixels.channels, _plane(walk)
        images = walk.pixels.count // plane
        for size in range(1, min(channels, MOST_CHANNELS) + 1):
            tiles = -(-channels // size)
            team = min(team_of(device, tiles), images)
            if team == 0 or -(-channels // tiles) != size:
                continue
            items = -(-images // team)
            # Packs of x and dy, elements at the edges, as many as two packs of each, a row of bits; words of the mask.
            of_plane = 2 * (plane // width + 2) * PACK_BYTES + (-(-plane // WARP) + 1) * WORD_BYTES
            nbytes = items * (size * of_plane + _words(size) * plane * WORD_BYTES)
            warps, parts = _warps_and_parts(items * size, -(-plane // width))
            threads, mean_bytes = warps * WARP, size * COMPUTE_BYTES
            if nbytes + static_bytes(size, threads) + mean_bytes <= device.shared_bytes_per_block:
                definitions = {"TILE_CHANNELS": size, "PARTS": parts, "PACK_BYTES": PACK_BYTES}
                yield Division(size, tiles, -(-images // items), items, threads, nbytes, definitions)

    @staticmethod
    def _seconds(division: Division, walk: Walk, device: Any, element_bytes: int) -> float:
        """Return about how long a division takes."""
        elements, plane = division.items * _plane(walk), _plane(walk)
        moved = 4 * elements * division.columns * element_bytes / BYTES_PER_SECOND
        words = division.items * _words(division.columns) * plane / WORDS_PER_SECOND
        rounds = -(-division.tiles * division.team // device.multiprocessors)
        return rounds * (moved + words) + EXCHANGE_SECONDS * (division.team > 1)


def _plane(walk: Walk) -> int:
    """Return the elements of a plane."""
    return walk.pixels.extent[2].divisor if walk.rank > 1 else walk.pixels.count


def _words(channels: int) -> int:
    """Return the words of a pixel that so many channels of a tile have, at most."""
    if channels % WARP == 0 or WARP % channels == 0:
        return -(-channels // WARP)
    return (channels + 2 * WARP - 2) // WARP


@lru_cache
def _warps_and_parts(planes: int, packs: int) -> tuple[int, int]:
    """Return the warps of a block, and the parts of a plane, with which it is done first: schedulers issue for all
    warps in turns, and each part costs the sums of its lanes, too."""

    def cost(choice: tuple[int, int]) -> int:
        warps, parts = choice
        return warps * -(-planes * parts // warps) * (-(-packs // (parts * WARP)) + 1)

    return min(product(WARPS_OF_BLOCK, range(1, MOST_PARTS + 1)), key=cost)
