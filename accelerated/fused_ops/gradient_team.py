"""What the gradients of activated batch normalisations in one cooperative launch share (gradient_team.cuh)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_uint
from dataclasses import dataclass
from typing import Any

from dualdnn.api.operations.specs import DOUBLE

from ..plans import Launch, Plan, factors, pointers, structure, type_definitions
from ..solver import Problem, Solver
from .gradient import GradientSolver, channel_fields, walk_of
from .problem import PACK_BYTES, Walk
from .sequence import Part, SequencePlan, Workspace

OPERANDS = (*("x", "dy", "bitMask", "savedMean", "savedInvStd", "scale", "workSpace"), *("dx", "dz", "dScale", "dBias"))
MOST_TILES = 256
RESERVED_BYTES = 1 << 10  # of shared memory, that the device has for itself
SUMS_BYTES, FACTORS_BYTES = 8, 16  # of a column


@dataclass(frozen=True)
class Division:
    """The tiles of a call, each of which has a team of blocks. columns: channels of a tile; team: blocks; items:
    pixels of a block, or packs of them; threads of a block; shared_bytes: for packs; definitions: those of the kernel
    alone."""

    columns: int
    tiles: int
    team: int
    items: int
    threads: int
    shared_bytes: int
    definitions: Mapping[str, int]


def team_of(device: Any, tiles: int) -> int:
    """Return the blocks of each of so many tiles, a multiprocessor for each; one where the device, as the emulated one,
    runs one block at a time, 0 where tiles are too many."""
    return int(device.multiprocessors) // tiles if device.kind == "gpu" else 1


def static_bytes(columns: int, threads: int) -> int:
    """Return the bytes of shared memory that packs do not have."""
    return columns * (threads // 32 * SUMS_BYTES + FACTORS_BYTES) + RESERVED_BYTES


class TeamSolver(Solver[Problem]):
    """Statistics that were saved, and a dx that is wanted; float and 16 bits."""

    source = ""
    along = ""  # what the packs of its walk follow

    def fits(self, walk: Walk, operation: Any) -> bool:
        """Return whether its kernel walks the tensors of an operation."""
        return walk.along == self.along

    def division(self, walk: Walk, device: Any, pack_bytes: int) -> Division | None:
        """Return the division of the walk; None where none fits the device."""
        raise TypeError(f"{type(self).__name__} does not define division()")

    def _found(self, problem: Problem) -> tuple[Walk, Division] | None:
        o = problem.operation
        if o.savedMean is None or o.dx is None or o.x.data_type == DOUBLE or not problem.aligned:
            return None
        walk = walk_of(problem)
        if not self.fits(walk, o):
            return None
        found = self.division(walk, problem.device, walk.width * o.x.scalar_bytes)
        if found is None or found.tiles > MOST_TILES:
            return None
        # Blocks that wait for each other have the words of the tiles to themselves: two launches have no room together.
        alone = found.team == 1 or 2 * found.tiles * found.team > problem.device.multiprocessors
        return (walk, found) if alone else None

    def serves(self, problem: Problem) -> bool:
        return self._found(problem) is not None

    def workspace_bytes(self, problem: Problem) -> int:
        found = self._found(problem)
        assert found is not None
        workspace, (_, division) = Workspace(), found
        workspace.take(division.tiles * division.columns * division.team * SUMS_BYTES)
        # The fallback needs its own.
        return max(workspace.nbytes, GradientSolver().workspace_bytes(problem))

    def alignment(self, problem: Problem) -> Mapping[str, int]:
        found = self._found(problem)
        assert found is not None
        return dict.fromkeys(found[0].wide, PACK_BYTES)

    def plan(self, problem: Problem) -> Plan:
        o, found = problem.operation, self._found(problem)
        assert found is not None
        walk, division = found
        arguments = structure(
            *pointers(len(OPERANDS)),
            *channel_fields(o, walk),
            ("team", c_uint(division.team)),
            ("tiles", c_uint(division.tiles)),
            ("items", c_uint(division.items)),
            *factors(o, share=1 / walk.pixels.count),
        )
        names = {**walk.definitions(o.x.scalar_bytes), "THREADS": str(division.threads), "MOST_TILES": str(MOST_TILES)}
        names |= {name: str(number) for name, number in division.definitions.items()}
        kernel = self.source.removesuffix(".cu").replace("/", "_")
        function = problem.device.function(self.source, kernel, type_definitions(o.x.scalar_type, o, **names))
        blocks = division.tiles * division.team
        launch = Launch(function, arguments, OPERANDS, (blocks, 1, 1), (division.threads, 1, 1), division.shared_bytes)
        launch.cooperative = division.team > 1
        return SequencePlan(o, [Part(o, Plan(o, [launch]), {"workSpace": 0})], self.name)
