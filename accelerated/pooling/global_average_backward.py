"""The gradient of a global average (global_average_backward.cu)."""

from __future__ import annotations

from .global_window import Work, channel_planes, configured, rows_of
from .problem import AVERAGE_BACKWARD, L2_BYTES, WARP, Configuration, PoolingProblem, PoolingSolver, power_of_two

THREADS = 256  # of a block that has channels
STORES = 8  # of a thread
TEAM = 128  # threads of a plane
BLOCKS_PER_SM = 4
WELL_USED = 0.75  # of the threads of a row


class GlobalAverageBackward(PoolingSolver):
    """One window over every plane: dx is a multiple of dy, the same for all of the plane."""

    name = "pooling.global_average_backward"
    kinds = (AVERAGE_BACKWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        shape = problem.shape
        work = _channels(problem) if shape.channels_last else rows_of(shape, TEAM)
        if work is not None and not shape.channels_last:
            planes = work.planes
            planes.over_gaps = problem.operation.nbytes("dx") <= L2_BYTES
            # Threads of a row with gaps: about one for 16 bytes, or for an element
            packs = max(1, planes.columns // shape.width)
            bits = _column_bits(planes.columns) if planes.over_gaps else (packs - 1).bit_length()
            planes.column_bits = min(planes.team_bits, bits)
        return configured(problem, "pooling/global_average_backward.cu", work)


def _column_bits(columns: int) -> int:
    """Return how many threads take a row, as a power of two: the most, up to a warp, that are mostly used."""

    def used(bits: int) -> float:
        return columns / (-(-columns // 2**bits) * 2**bits)

    return next(bits for bits in range(WARP.bit_length() - 1, -1, -1) if used(bits) >= WELL_USED)


def _channels(problem: PoolingProblem) -> Work | None:
    found = channel_planes(problem)
    if found is None:
        return None
    planes, width = found
    packs = min(THREADS, power_of_two(planes.planes))
    groups, slices = -(-planes.planes // packs), THREADS // packs
    planes.team_bits = packs.bit_length() - 1
    # Positions of a block: as many as its threads may write, as long as there are enough blocks.
    most = planes.rows * groups // (BLOCKS_PER_SM * problem.device.multiprocessors)
    planes.columns = max(slices, min(slices * STORES, most))
    return Work("channels", planes, groups * -(-planes.rows // planes.columns), THREADS, width)
