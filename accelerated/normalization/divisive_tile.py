"""Divisive normalization of images in tiles (divisive_tile.cu)."""

from __future__ import annotations

from ctypes import c_int

from dualdnn.api.operations.specs import SCALAR_BYTES

from ..plans import Launch, structure
from ..primitives.geometry import FastDivmod
from ..solver import Solver
from .problem import DivisiveProblem

SOURCE = "normalization/divisive_tile.cu"
TILE = 32  # rows and columns of a block
ROWS = 4  # of a thread, below each other
THREADS = TILE * TILE // ROWS  # of a block
MOST_SHARED_BYTES = 48 * 1024  # of a block
LEAST_EXTENT = 16  # rows and columns of an image; of smaller ones most of a tile is empty


class TileSolver(Solver[DivisiveProblem]):
    """Images whose rows are contiguous, not in place: blocks have a tile and its surroundings in shared memory."""

    name = "normalization.divisive_tile"

    def serves(self, problem: DivisiveProblem) -> bool:
        rows = problem.x.strides[-1] == 1 or problem.x.dims[-1] == 1
        return problem.aligned and problem.spatial == 2 and rows and self._shared_bytes(problem) <= MOST_SHARED_BYTES

    def applies(self, problem: DivisiveProblem) -> bool:
        """Return whether tiles of images are not mostly empty."""
        return self.serves(problem) and min(problem.x.dims[2:]) >= LEAST_EXTENT

    def apart(self, problem: DivisiveProblem) -> tuple[tuple[str, str], ...]:
        return (("x", "y"),) if problem.forward else ()

    def _shared_bytes(self, problem: DivisiveProblem) -> int:
        around = problem.window - 1
        elements = (TILE + around) ** 2
        if not problem.forward:
            rows = -(-(TILE + around) // ROWS) * ROWS + around
            elements = rows * (TILE + 2 * around) + 2 * elements + TILE**2
        return elements * SCALAR_BYTES[problem.operation.compute_type]

    def launches(self, problem: DivisiveProblem) -> list[Launch]:
        x, lrn = problem.x, problem.operation.lrn
        images, channels, height, width = x.dims
        across, down = -(-width // TILE), -(-height // TILE)
        tile = structure(
            ("window", c_int(lrn.n)), ("behind", c_int(lrn.look_behind)), ("ahead", c_int(lrn.look_ahead)),
            ("height", c_int(height)), ("width", c_int(width)),
            ("row", c_int(x.strides[2])), ("image", c_int(x.strides[0])), ("channel", c_int(x.strides[1])),
            ("across", FastDivmod.of(across)), ("down", FastDivmod.of(down)), ("channels", FastDivmod.of(channels)),
        )  # fmt: skip
        direction = "forward" if problem.forward else "backward"
        return [
            problem.launch(
                SOURCE, f"normalization_divisive_tile_{direction}", {"THREADS": THREADS, "TILE": TILE, "ROWS": ROWS},
                (across * down * channels * images, 1, 1), (THREADS, 1, 1), self._shared_bytes(problem), ("tile", tile),
            )
        ]  # fmt: skip
