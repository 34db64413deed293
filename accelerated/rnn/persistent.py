"""How the persistent kernels of recurrent networks divide a layer (persistent.cuh)."""

from __future__ import annotations

from ctypes import c_int
from dataclasses import dataclass
from typing import Any

from ..solver import LAUNCH_SECONDS
from . import inputs
from .problem import RNNProblem

WARPS, LANES = 8, 32
PAIR_BYTES = 64  # of K
TILE_M, TILE_N = 16, 8  # of mma.sync
FRAGMENT_BYTES = 16  # of a left operand, of a lane
FLOAT_BYTES = 4
MOST_LOADED = 48  # registers of a thread with right operands in flight
# By the tiles of 16 rows of a block: how many pairs of K a warp may have in registers
REGISTER_PAIRS = {1: (1, 3, 6, 12), 2: (1, 3, 6), 3: (1, 2, 4), 4: (1, 3)}
N_TILES = (1, 2, 4)
MOST_KEPT, FRAGMENT_REGISTERS = (
    {1: 96, 2: 96, 4: 48},
    4,
)  # registers with left operands, by the tiles of 8 sequences; of one
# Measured on an H200, or near: of a step, and of each group of a block, before any byte and product; bytes a second of L2, for a multiprocessor and for
# all; of shared memory; clocks of a product of a warp, where four schedulers have two warps each
STEP_SECONDS, GROUP_SECONDS, CLOCK = 0.9e-6, 0.3e-6, 1.7e9
L2_BYTES_PER_SECOND, ALL_L2_BYTES_PER_SECOND = 90e9, 2.5e12
SHARED_BYTES_PER_SECOND = 128 * CLOCK
PRODUCT_CLOCKS = 2 * 6


@dataclass(frozen=True)
class Division:
    """One way to divide a layer.

    m_tiles: tiles of 16 rows of a block's matrix. n_tiles: tiles of 8 sequences of a block. units: of a block. slices, groups:
    of units, of sequences. depth: bytes of K. most_register_pairs: where registers shall have fewer than they could.
    """

    m_tiles: int
    n_tiles: int
    units: int
    slices: int
    groups: int
    depth: int
    most_register_pairs: int | None = None

    @property
    def sequences(self) -> int:
        return self.n_tiles * TILE_N

    @property
    def pairs(self) -> int:
        return -(-self.depth // (PAIR_BYTES * WARPS))

    @property
    def register_pairs(self) -> int:
        most = MOST_KEPT[self.n_tiles] // (FRAGMENT_REGISTERS * 2 * self.m_tiles)
        possible = [pairs for pairs in REGISTER_PAIRS[self.m_tiles] if pairs <= most]
        wanted = min(self.pairs, self.most_register_pairs or self.pairs)
        return next((pairs for pairs in possible if pairs >= wanted), possible[-1])

    @property
    def loaded_pairs(self) -> int:
        """Pairs whose right operands are in flight together; a divisor of those in registers."""
        held = self.register_pairs
        return next(
            p
            for p in range(held, 0, -1)
            if held % p == 0 and p * self.n_tiles * 4 <= max(MOST_LOADED, self.n_tiles * 4)
        )

    @property
    def pitch(self) -> int:
        return self.sequences + 2

    @property
    def shared_bytes(self) -> int:
        sums = 2 * WARPS * self.m_tiles * TILE_M * self.pitch * FLOAT_BYTES
        rest = max(0, self.pairs - self.register_pairs)
        return sums + rest * WARPS * self.m_tiles * 2 * LANES * FRAGMENT_BYTES

    def blocks(self, directions: int, multiprocessors: int) -> int:
        """Return the blocks of a launch: a multiple of all slices, or as many as there are multiprocessors."""
        slices = self.slices * directions
        return slices * min(self.groups, multiprocessors // slices) if slices <= multiprocessors else multiprocessors

    def step_seconds(self, directions: int, multiprocessors: int) -> float:
        """Return about how long a step takes, where every slice has a multiprocessor."""
        blocks = self.blocks(directions, multiprocessors)
        rounds = -(-self.groups * self.slices * directions // blocks)
        vectors = self.sequences * self.depth
        weights = max(0, self.pairs - self.register_pairs) * WARPS * self.m_tiles * 2 * LANES * FRAGMENT_BYTES
        sums = 2 * WARPS * self.m_tiles * TILE_M * self.sequences * FLOAT_BYTES
        products = self.pairs * 2 * self.m_tiles * self.n_tiles * PRODUCT_CLOCKS / CLOCK
        loads = max(vectors / L2_BYTES_PER_SECOND, blocks * vectors / ALL_L2_BYTES_PER_SECOND)
        return STEP_SECONDS + rounds * (GROUP_SECONDS + loads + (weights + sums) / SHARED_BYTES_PER_SECOND + products)

    def definitions(self, problem: RNNProblem) -> tuple[tuple[str, str], ...]:
        """Return the definitions of a kernel."""
        sizes = {
            "M_TILES": self.m_tiles,
            "N_TILES": self.n_tiles,
            "REGISTER_PAIRS": self.register_pairs,
            "LOADED_PAIRS": self.loaded_pairs,
        }
        return (*problem.definitions, *((name, str(value)) for name, value in sizes.items()))

    @property
    def fields(self) -> list[tuple[str, Any]]:
        """Return the fields of a kernel's arguments."""
        return [("slices", c_int(self.slices)), ("groups", c_int(self.groups)), ("pairs", c_int(self.pairs))]


def can_serve(problem: RNNProblem) -> bool:
    """Return whether the kernels compute what the problem asks: elements that tensor cores multiply, in vectors of packs of
    16 bytes, without a projection."""
    n = problem.network
    packs = n.hidden * inputs.element_bytes(problem) % 16 == 0
    return problem.aligned and packs and not n.is_projected and inputs.uses_tensor_cores(problem)


def division(problem: RNNProblem, gates_of_rows: int, gates_of_depth: int) -> Division | None:
    """Return the fastest division whose blocks fit the device, all of them at once where that is possible.

    gates_of_rows: rows of the block's matrix for each unit. gates_of_depth: terms of a sum for each unit.
    """
    n, device = problem.network, problem.device
    depth = gates_of_depth * n.hidden * inputs.element_bytes(problem)
    found = []
    for m_tiles, n_tiles in ((m, tiles) for m in REGISTER_PAIRS for tiles in N_TILES):
        units, rest = divmod(m_tiles * TILE_M, gates_of_rows)
        if rest or units & (units - 1):
            continue
        groups = -(-problem.batch // (n_tiles * TILE_N))
        made = Division(m_tiles, n_tiles, units, -(-n.hidden // units), groups, depth)
        if made.shared_bytes <= device.shared_bytes_per_block:
            found.append(made)
    together = [made for made in found if made.slices * n.directions <= device.multiprocessors]
    return min(
        together or found, key=lambda made: made.step_seconds(n.directions, device.multiprocessors), default=None
    )


def runs_together(problem: RNNProblem, made: Division | None) -> bool:
    """Return whether every slice has a multiprocessor."""
    return made is not None and made.slices * problem.network.directions <= problem.device.multiprocessors


def seconds(problem: RNNProblem, made: Division) -> float:
    """About how long the steps of all layers take."""
    n = problem.network
    return n.layers * (
        4 * LAUNCH_SECONDS + problem.steps * made.step_seconds(n.directions, problem.device.multiprocessors)
    )


def grid(problem: RNNProblem, made: Division) -> tuple[int, int, int]:
    return made.blocks(problem.network.directions, problem.device.multiprocessors), 1, 1
