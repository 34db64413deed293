"""Batch normalization of large packed channels by persistent blocks, teams of which have a channel each
(batch_planes_persistent.cu)."""

from __future__ import annotations

from ctypes import c_uint
from dataclasses import dataclass

from ..plans import Launch, structure
from ..primitives.cluster import has_clusters
from ..primitives.geometry import PACK_BYTES, FastDivmod
from ..runtime.device import concurrent_multiprocessors
from .batch import WARP, BatchPacksSolver, BatchProblem, bytes_of_bits

SOURCE = "normalization/batch_planes_persistent.cu"
MOST_BLOCKS, MOST_SLOTS = 192, 64  # as in the kernels
OPEN = 8  # channels of a block between the first read and the last write, at most
STATISTICS, WRITERS, OTHERS = 8, 8, 2  # warps of a block
PIECE_BYTES = 12800  # of the tensors in a piece, at most
LEAD_BYTES = 80 << 10  # that a block reads while its team exchanges statistics
RESERVED_BYTES = 4 << 10  # of shared memory
MANY_BYTES = 32 << 20  # of the tensors


@dataclass(frozen=True)
class Division:
    """blocks: of a team. rows, part: planes of a piece, of which one has several, or packs of a part of one; pieces: of
    a channel; slots: pieces that shared memory holds; slot_bits: bytes of the mask of a piece."""

    blocks: int
    teams: int
    rows: int
    part: int
    parts: int
    pieces: int
    slots: int
    slot_bits: int

    @property
    def of_block(self) -> int:
        """Return the pieces of a channel that a block has, at most."""
        return -(-self.pieces // self.blocks)


def tensors_of(problem: BatchProblem) -> int:
    """Return the tensors of which blocks keep pieces."""
    return 2 if problem.is_gradient else 1


def division_of(problem: BatchProblem) -> Division | None:
    """Return the division in which the block that has most to do has least, or None where no team keeps a channel."""
    if problem.plane is None or problem.plane % problem.width or problem.is_inference:
        return None
    o = problem.operation
    if problem.is_gradient:
        if "bias" in o.operands or o.saved is None:  # an activation is undone by bits alone
            return None
    elif o.z is not None:
        return None
    if not (has_clusters(problem.device) or problem.device.kind == "emulated"):
        return None
    multiprocessors = concurrent_multiprocessors(problem.device)
    if multiprocessors > MOST_BLOCKS:
        return None
    images, channels = problem.x.dims[:2]
    packs = problem.plane // problem.width
    pack_bytes = PACK_BYTES * tensors_of(problem)
    of_plane = packs * pack_bytes
    parts = -(-of_plane // PIECE_BYTES)
    part = -(-packs // parts)
    parts = -(-packs // part)
    rows = min(images, max(1, PIECE_BYTES // of_plane))
    pieces = -(-images // rows) * parts
    slot_bits = bytes_of_bits(rows * part * problem.width) + 16 if problem.has_bits else 0
    of_piece = rows * part * pack_bytes + slot_bits
    room = min(MOST_SLOTS, (problem.device.shared_bytes_per_block - RESERVED_BYTES) // of_piece)
    best: tuple[float, Division] | None = None
    for blocks in range(1, min(multiprocessors, pieces) + 1):
        most, least = -(-pieces // blocks), pieces // blocks
        slots = min(room, OPEN * least - 1)
        if most > slots:
            continue
        teams = min(multiprocessors // blocks, channels)
        late = max(0, LEAD_BYTES - (slots - most) * of_piece)
        time = -(-channels // teams) * (most * of_piece + late)
        if best is None or time < best[0]:
            best = time, Division(blocks, teams, rows, part, parts, pieces, slots, slot_bits)
    return best[1] if best else None


class BatchPlanesPersistentSolver(BatchPacksSolver):
    """Large channels, which teams of blocks have in shared memory."""

    name = "normalization.batch_planes_persistent"

    def serves(self, problem: BatchProblem) -> bool:
        return problem.aligned and division_of(problem) is not None

    def applies(self, problem: BatchProblem) -> bool:
        """Channels that one block does not keep; of many bytes, those that it does not keep beside another block."""
        of_channel = problem.count * problem.x.scalar_bytes * tensors_of(problem)
        many = of_channel * problem.x.dims[1] >= MANY_BYTES
        room = problem.device.shared_bytes_per_block // (2 if many else 1) - RESERVED_BYTES
        return of_channel > room and self.serves(problem)

    def launches(self, problem: BatchProblem) -> list[Launch]:
        d = division_of(problem)
        assert d is not None and problem.plane is not None
        images, channels = problem.x.dims[:2]
        teams = structure(
            ("images", c_uint(images)), ("channels", c_uint(channels)), ("plane", c_uint(problem.plane)),
            ("team", c_uint(d.blocks)), ("teams", c_uint(d.teams)), ("rows", c_uint(d.rows)),
            ("part", c_uint(d.part)), ("pieces", c_uint(d.pieces)), ("slots", c_uint(d.slots)),
            ("slot_bits", c_uint(d.slot_bits)), ("packs", FastDivmod.of(problem.plane // problem.width)),
            ("parts", FastDivmod.of(d.parts)), ("count", problem.number(problem.count)),
        )  # fmt: skip
        blocks = concurrent_multiprocessors(problem.device)
        launch = problem.launch(
            SOURCE, f"normalization_batch_planes_persistent_{'backward' if problem.is_gradient else 'training'}",
            [("teams", teams)], (blocks, 1, 1), (WARP * (STATISTICS + WRITERS + OTHERS), 1, 1),
            shared_bytes=d.slots * (d.rows * d.part * PACK_BYTES * tensors_of(problem) + d.slot_bits),
            PACK_WIDTH=problem.width, STATISTICS_WARPS=STATISTICS, WRITER_WARPS=WRITERS,
            MASK_BITS=int(problem.has_bits),
        )  # fmt: skip
        launch.cooperative = blocks > 1
        return [launch]
