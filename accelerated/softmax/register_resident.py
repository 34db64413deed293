"""Softmax whose lines or columns stay in registers (softmax/register_resident.cu)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .problem import BUSY_THREADS, PACK_BYTES, ROW_BYTES, SHORT_LINE, WARP, Walk, ceiling, power_of_two

# As in softmax/register_resident.cu
REGISTER_PACKS = 4  # of a thread
MOST_REGISTER_PACKS = (4, 2)  # of a lane, by inputs, of lines for which a warp suffices
COLUMN_PACKS = 8  # of a thread, where columns are many
NARROW_PACKS = (16, 12, 10, 8)  # single elements of a thread
LONGEST_NARROW = {False: 128, True: 256}  # positions; of elements of fewer than four bytes
REGISTER_THREADS, MOST_REGISTER_THREADS = 128, 256
RESIDENT = 1024  # threads of a multiprocessor
# Threads that a tensor has, with four packs each, of those that fit the device
FEW_COLUMNS, FEW_LINES, MANY_LINES = 0.25, 1, 3
# Blocks of REGISTER_THREADS for a multiprocessor, from which on half as many, twice as large, took less time where all run at once
LARGE_BLOCKS = 8
SMALLEST_COPY = 4  # bytes that go to shared memory past the registers


@dataclass(frozen=True)
class Registers:
    """kind: lines or columns. team: lanes of a line, or packs of lines side by side. packs: of a thread."""

    kind: str
    team: int
    packs: int
    threads: int
    grid: int
    parts: int  # statistics in shared memory


def registers_of(walk: Walk, scalar_bytes: int, inputs: int, device: Any) -> Registers | None:
    """Packs in registers: lines for which a warp suffices; columns of a few positions, or so few that no other way fills
    the device."""
    if not (walk.wide and walk.aligned and walk.along.outer_rank == 0):
        return None
    lines, length = walk.lines.packs, walk.along.packs
    filled = lines * length / REGISTER_PACKS / (device.multiprocessors * RESIDENT)
    if walk.columns:
        if walk.along.row <= SHORT_LINE:
            threads = REGISTER_THREADS if scalar_bytes >= 4 else MOST_REGISTER_THREADS
            return Registers("columns", threads, walk.along.row, threads, ceiling(lines, threads), 0)
        few = filled <= FEW_COLUMNS
        packs = REGISTER_PACKS if few else COLUMN_PACKS
        shares = power_of_two(ceiling(length, packs))
        if shares * ROW_BYTES // PACK_BYTES > MOST_REGISTER_THREADS or (inputs == 2 and not few):
            return None
        pack_bytes = walk.lines.width * scalar_bytes
        threads = max(WARP, 2 * shares) if few else max(REGISTER_THREADS, shares * ROW_BYTES // pack_bytes)
        threads = min(threads, MOST_REGISTER_THREADS)
        team = threads // shares
        parts = threads // max(team, WARP) * team * walk.lines.width
        return Registers("columns", team, packs, threads, ceiling(lines, team), parts)
    if length > WARP * MOST_REGISTER_PACKS[inputs - 1] or walk.along.row % walk.along.width:
        return None
    # Where blocks come one after the other, more of them at a time; where all of them run at once, fewer.
    packs = REGISTER_PACKS if FEW_LINES < filled <= MANY_LINES else 1 if inputs == 2 and filled > MANY_LINES else 2
    packs = max(packs, power_of_two(ceiling(length, WARP)))
    team = power_of_two(ceiling(length, packs))
    at_once = filled <= FEW_LINES and lines * team >= LARGE_BLOCKS * REGISTER_THREADS * device.multiprocessors
    threads = MOST_REGISTER_THREADS if packs == 1 or at_once else REGISTER_THREADS
    return Registers("lines", team, packs, threads, ceiling(lines * team, threads), 0)


def narrow_registers_of(walk: Walk, scalar_bytes: int, device: Any) -> Registers | None:
    """Columns of single elements in registers."""
    length, lines = walk.along.row, walk.lines.packs
    if not walk.columns or walk.wide or walk.along.outer_rank or scalar_bytes > SMALLEST_COPY:
        return None
    if not SHORT_LINE < length <= LONGEST_NARROW[scalar_bytes < SMALLEST_COPY]:
        return None

    def threads_of_column(packs: int) -> int:
        return power_of_two(ceiling(length, packs))

    packs, threads = min(NARROW_PACKS, key=lambda packs: packs * threads_of_column(packs)), MOST_REGISTER_THREADS
    if lines * threads_of_column(packs) < device.multiprocessors * BUSY_THREADS:
        packs, threads = NARROW_PACKS[-1], REGISTER_THREADS
    team = threads // threads_of_column(packs)
    parts = threads // max(team, WARP) * team
    return Registers("columns", team, packs, threads, ceiling(lines, team), parts)
