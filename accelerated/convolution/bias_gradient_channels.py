"""Plan gradients of the bias of packed dy with channels innermost (convolution/bias_gradient_channels.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_uint
from math import gcd

from dualdnn.api.operations.specs import DOUBLE

from .. import solver
from ..plans import SCRATCH, Launch, factors, fields_of, pointers, structure, type_definitions
from ..primitives.cluster import CLUSTER_SIZES, has_clusters
from ..primitives.geometry import FastDivmod
from .bias_gradient import BiasProblem
from .filter_gradient.sum import parts_launch

SOURCE = "convolution/bias_gradient_channels.cu"
VECTOR_BYTES = 16
THREADS = 256  # threads per block
MAX_CHANNELS = 512  # channels, as in the kernel
BLOCKS = 2  # blocks per multiprocessor
MIN_BYTES = 2 << 20  # bytes of dy
MAX_PACKED_BYTES = 16 << 20  # bytes of a dy whose pixels are vectors
FLOATS = 4  # floats per 16-byte vector


class BiasGradientChannels(solver.Solver[BiasProblem]):
    """Sum any number of channels, by threads that meet the same channels again."""

    name = "convolution.bias_gradient_channels"
    min_vectors = 4  # vectors per thread

    def serves(self, problem: BiasProblem) -> bool:
        dy, db = problem.operation.dy, problem.operation.db
        channels = dy.dims[1]
        packed = dy.is_packed and (channels == 1 or dy.strides[1] == db.strides[1] == 1)
        return problem.aligned and packed and channels <= MAX_CHANNELS and self._period(problem) <= THREADS

    def applies(self, problem: BiasProblem) -> bool:
        dy = problem.operation.dy
        width, channels = VECTOR_BYTES // dy.scalar_bytes, dy.dims[1]
        # Where pixels are vectors, other solvers are faster, but not where dy of 16 bits is small.
        small_vectors = width > FLOATS and dy.nbytes <= MAX_PACKED_BYTES
        if channels == 1 or dy.nbytes < MIN_BYTES or (channels % width == 0 and not small_vectors):
            return False
        return self.serves(problem)

    def alignment(self, problem: BiasProblem) -> Mapping[str, int]:
        return {"dy": VECTOR_BYTES}

    @staticmethod
    def _period(problem: BiasProblem) -> int:
        """Return the number of vectors between two that begin with the same channel."""
        dy = problem.operation.dy
        return dy.dims[1] // gcd(dy.dims[1], VECTOR_BYTES // dy.scalar_bytes)

    def launches(self, problem: BiasProblem) -> list[Launch]:
        o, period = problem.operation, self._period(problem)
        cluster = CLUSTER_SIZES[0] if has_clusters(problem.device) else 1
        active = THREADS // period * period
        vectors = -(-o.dy.count * o.dy.scalar_bytes // VECTOR_BYTES)
        most = -(-BLOCKS * problem.device.multiprocessors // cluster)
        parts = max(1, min(most, vectors // (self.min_vectors * active * cluster)))
        arguments = structure(
            *pointers(3),
            *factors(o, alpha=o.alpha, beta=o.beta),
            ("channels", FastDivmod.of(o.dy.dims[1])),
            *fields_of(c_uint, elements=o.dy.count, active=active, parts=parts),
        )
        definitions = type_definitions(o.dy.scalar_type, o)
        function = problem.device.function(SOURCE, "convolution_bias_gradient_channels", definitions)
        operands = ("dy", "db", SCRATCH if parts > 1 else "db")
        found = [Launch(function, arguments, operands, (parts * cluster, 1, 1))]
        if parts > 1:
            total = parts_launch(o, o.dy.data_type, o.dy.dims[1], parts, problem.device)
            total.operands = (SCRATCH, "db")
            found.append(total)
            for launch in found:
                launch.scratch_bytes = parts * o.dy.dims[1] * (8 if o.dy.data_type == DOUBLE else 4)
        return found
