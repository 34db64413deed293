"""Plans the gradient of global average pooling (global_average_backward.cu)."""

from __future__ import annotations

from .global_window import Work, channel_planes, configured, rows_of
from .problem import AVERAGE_BACKWARD, L2_BYTES, WARP, Configuration, PoolingProblem, PoolingSolver, power_of_two

THREADS = 256  # threads per block of the channel kernel
STORES = 8  # upper bound of vector stores per thread
TEAM = 128  # threads per plane
BLOCKS_PER_SM = 4  # blocks that keep an SM busy
WELL_USED = 0.75  # minimum fraction of a row's threads that have a column


class GlobalAverageBackward(PoolingSolver):
    """Serve averages with one window over every plane, where dx is one multiple of dy for all of the plane."""

    name = "pooling.global_average_backward"
    kinds = (AVERAGE_BACKWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        shape = problem.shape
        work = _channels(problem) if shape.channels_last else rows_of(shape, TEAM)
        if work is not None and not shape.channels_last:
            planes = work.planes
            planes.over_gaps = problem.operation.nbytes("dx") <= L2_BYTES
            # A row with gaps gets about one thread per vector, or per element in the kernel that writes over gaps.
            vectors = max(1, planes.columns // shape.width)
            bits = _column_bits(planes.columns) if planes.over_gaps else (vectors - 1).bit_length()
            planes.column_bits = min(planes.team_bits, bits)
        return configured(problem, "pooling/global_average_backward.cu", work)


def _column_bits(columns: int) -> int:
    """Return log2 of the threads per row: the most, up to a warp, that are WELL_USED."""

    def used(bits: int) -> float:
        return columns / (-(-columns // 2**bits) * 2**bits)

    return next(bits for bits in range(WARP.bit_length() - 1, -1, -1) if used(bits) >= WELL_USED)


def _channels(problem: PoolingProblem) -> Work | None:
    found = channel_planes(problem)
    if found is None:
        return None
    planes, width = found
    vectors = min(THREADS, power_of_two(planes.planes))
    groups, slices = -(-planes.planes // vectors), THREADS // vectors
    planes.team_bits = vectors.bit_length() - 1
    # A block takes the most positions that its threads may write, unless that leaves too few blocks.
    most = planes.rows * groups // (BLOCKS_PER_SM * problem.device.multiprocessors)
    planes.columns = max(slices, min(slices * STORES, most))
    return Work("channels", planes, groups * -(-planes.rows // planes.columns), THREADS, width)
