"""Plans forward pooling with any window (generic_forward.cu)."""

from __future__ import annotations

from ctypes import c_longlong, c_uint
from dataclasses import replace
from math import gcd, prod

from dualdnn.api.operations.specs import SCALAR_BYTES

from ...primitives.geometry import THREADS, FastDivmod
from ...reproducible import Order
from ..problem import FORWARD, WARP, Configuration, PoolingProblem, PoolingSolver, power_of_two
from .generic import configured, thread_blocks, vector_width, walk_of
from .generic_tile import tiled

SOURCE = "pooling/generic/generic_forward.cu"
HIGH_WINDOW = 8  # rows per window from which bands are used
LARGE_WINDOW = 1024  # positions per window from which bands may overlap
MAX_BANDS = 2  # bands over an input row up to which small windows use bands
MANY_THREADS = 2**16  # threads that keep a GPU busy, approximately
MAX_ROWS = 40  # rows of a band per thread, approximately
SUMMANDS = 4  # columns that a thread pools, lower bound
POSITION_BYTES = 16  # bytes of shared memory per band, for its position
MAX_SHARED_BYTES = 48 * 1024  # bytes of shared memory per block
OVERLAP = 4  # windows over an input, from which NHWC uses tiles


class GenericForward(PoolingSolver):
    """Serve any forward call.

    Blocks pool bands of high windows or tiles of outputs. In NHWC, where windows overlap little, each thread pools a
    vector of channels.
    """

    name = "pooling.generic_forward"
    kinds = (FORWARD,)

    def summation_order(self, problem: PoolingProblem) -> Order | None:
        """Return how many threads share the rows and the columns of a window, where bands pool it."""
        found = self._configured(problem)
        if found is None or not found.entry.endswith("bands"):
            return super().summation_order(problem) if found else None
        return Order("fma", (self.name, found.arguments.slices.divisor, found.arguments.lane_bits))

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        shape = problem.shape
        bands = _bands(problem)
        if bands is not None:
            return bands
        apart = shape.channels_last and shape.covered < OVERLAP * prod(axis.stride for axis in shape.axes)
        tile = None if apart else tiled(problem, SOURCE)
        if tile is not None:
            return tile
        width = vector_width(problem)
        walk = walk_of(shape, width, forward=True)
        return configured(problem, SOURCE, "thread", width, thread_blocks(walk), THREADS, ("walk", walk))


def _bands(problem: PoolingProblem) -> Configuration | None:
    """Return the launch for bands of high windows.

    Return None where windows have few rows, where neither rows nor channels are contiguous, or where rows are too long.
    """
    shape = problem.shape
    high, deep, row = shape.axes
    rows = min(high.window, high.input)
    apart = rows <= MAX_BANDS * high.stride or shape.covered >= LARGE_WINDOW
    if rows < HIGH_WINDOW or not apart or not (shape.channels_last or row.x_stride == 1):
        return None
    steps = [row.input, high.x_stride, deep.x_stride, *shape.x_steps]

    def divides(width: int) -> bool:
        return shape.vectors(width) if shape.channels_last else all(step % width == 0 for step in steps)

    width = next(filter(divides, (shape.width, shape.width // 2)), 1) if problem.aligned else 1
    vectors, neighbours, channels, step = row.input // width, 1, 1, width
    if shape.channels_last:
        neighbours = gcd(shape.extents[-1] // width, power_of_two(max(1, THREADS // row.input)))
        vectors, channels, step = row.input * neighbours, neighbours * width, row.x_stride
    axes = [high, deep, replace(row, output=1)]
    walk, canonical = (
        walk_of(replace(each.shape, axes=axes), channels, forward=True) for each in (problem, problem.canonical)
    )
    parts, many = -(-rows // MAX_ROWS), canonical.vectors
    slices = max(1, min(parts if many * vectors * parts >= MANY_THREADS else rows, THREADS // vectors))
    bands = max(1, min(THREADS // (vectors * slices), many // problem.device.multiprocessors))
    threads = min(THREADS, -(-bands * slices * vectors // WARP) * WARP)
    columns = min(row.window, row.input) * slices
    lanes = power_of_two(max(1, min(WARP, columns // SUMMANDS, threads // (bands * row.output * channels))))
    vector_bytes = width * SCALAR_BYTES[problem.operation.compute_type]
    nbytes = bands * (POSITION_BYTES + slices * vectors * vector_bytes)
    if nbytes > MAX_SHARED_BYTES:
        return None
    divisors = {
        "vectors": vectors,
        "neighbours": neighbours,
        "slices": slices,
        "outputs": row.output,
        "channels": channels,
    }
    fields = (
        *(("walk", walk), ("bands", c_uint(bands)), ("width", c_uint(width))),
        *(("lane_bits", c_uint(lanes.bit_length() - 1)), ("step", c_longlong(step))),
        *((name, FastDivmod.of(divisor)) for name, divisor in divisors.items()),
    )
    return configured(problem, SOURCE, "bands", width, -(-walk.vectors // bands), threads, *fields, shared_bytes=nbytes)
