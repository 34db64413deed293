"""Plans forward global pooling (global_forward.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int

from dualdnn.api.operations.backend import RUN
from dualdnn.api.operations.specs import SCALAR_BYTES

from ..reproducible import Order, level_of
from .global_window import BLOCK, MANY_LOADS, Work, channel_planes, configured, rows_of
from .problem import FORWARD, VECTOR_BYTES, WARP, Configuration, PoolingProblem, PoolingSolver, power_of_two

MAX_THREADS = 512  # threads per block of the channel kernel
BLOCK_VECTORS = 128 // VECTOR_BYTES  # vectors of channels per block, 128 bytes


class GlobalForward(PoolingSolver):
    """Serve pooling with one window over every plane.

    A team of threads pools a plane; in NHWC a block pools some vectors of channels.
    """

    name = "pooling.global_forward"
    kinds = (FORWARD,)

    def summation_order(self, problem: PoolingProblem) -> Order | None:
        """Return the order of the threads that share a plane; None where images have different offsets in vectors."""
        found, shape = self._configured(problem), problem.shape
        if found is None or any(step % shape.width for step in shape.x_steps[:-1]):
            return None
        planes = found.arguments.planes
        return Order("fma", (found.entry, planes.team_bits, planes.over_gaps, found.block))

    def alignment(self, problem: PoolingProblem) -> Mapping[str, int]:
        found = dict(super().alignment(problem))
        return found if level_of(problem.device) == RUN or not problem.aligned else found | {"x": VECTOR_BYTES}

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        pooling = problem.operation.pooling
        channels_last = problem.shape.channels_last
        work = _channels(problem) if channels_last else rows_of(problem.shape, WARP, problem.canonical.shape)
        if work is not None and not channels_last and work.planes.rows > 1 and not work.planes.over_gaps:
            return None  # The rows are too short for vectors, or their pitch is too large.
        fields = (("mode", c_int(pooling.mode)), ("propagate", c_int(pooling.nan)))
        return configured(problem, "pooling/global_forward.cu", work, *fields)


def _channels(problem: PoolingProblem) -> Work | None:
    found = channel_planes(problem)
    if found is None:
        return None
    planes, width = found
    many = (channel_planes(problem.canonical) or found)[0].planes
    vectors = min(BLOCK_VECTORS, power_of_two(many))
    while vectors > 2 and many // vectors < problem.device.multiprocessors:
        vectors //= 2
    threads = min(MAX_THREADS, max(BLOCK, power_of_two(-(-planes.rows * vectors // MANY_LOADS))))
    planes.team_bits = vectors.bit_length() - 1
    warp_bytes = min(vectors, WARP) * width * SCALAR_BYTES[problem.operation.compute_type]
    return Work("channels", planes, -(-planes.planes // vectors), threads, width, threads // WARP * warp_bytes)
