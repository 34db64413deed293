"""Plans batch normalization of NHWC tensors in one cooperative launch that keeps data on chip (cooperative.cu)."""

from __future__ import annotations

from ctypes import c_uint

from dualdnn.api.operations.specs import FLOAT, HALF

from ...plans import Launch
from ...primitives.geometry import VECTOR_BYTES
from ..batch import WARP, BatchProblem, BatchVectorsSolver
from .batch_nhwc import ARRAYS, Division, columns_of

SOURCE = "normalization/batch_nhwc/cooperative.cu"
THREADS = 512  # threads per block
LANES = (16, 8, 4)  # threads along a row, in order of preference
SEGMENTS = 33  # segments per tile, whose partial results each block merges
ELEMENTS = 1 << 19  # elements per tensor from which the solver applies
STATIC_BYTES = 16 * THREADS + (1 << 10)  # bytes per block of static shared memory, at most, and of the device's reserve
MIN_BYTES = 96 << 10  # bytes of shared memory per block that the solver needs
HELD_FORWARD = {4: 12, 8: 12}  # rows per thread in registers, by elements per vector
HELD_BACKWARD = {4: 6, 8: 6}  # rows per thread in registers, by elements per vector
COPIES = 8  # rows per thread that are copied ahead, for all tensors together
MAX_TILES = 256  # tiles per launch
STREAM_BYTES = 64 << 20  # bytes read from which data bypass L2's normal eviction


def cooperative_of(problem: BatchProblem) -> Division | None:
    """Return the division of a call among concurrent blocks, one per SM, or None."""
    enough = problem.device.shared_bytes_per_block >= MIN_BYTES
    if not problem.has_columns or problem.x.data_type not in (FLOAT, HALF) or not enough:
        return None
    if problem.is_inference or (problem.is_gradient and problem.operation.saved is None):
        return None
    width, groups = problem.width, problem.statistics_count
    if groups % width or groups < LANES[-1] * width:
        return None
    vectors, rows = groups // width, problem.x.count // groups
    alone = problem.device.kind != "gpu"  # The emulated device runs one block at a time.
    blocks = problem.device.multiprocessors
    for lanes in LANES:
        tiles = -(-vectors // lanes)
        segments = 1 if alone else min(blocks // tiles, rows)
        if segments == 0 or tiles > MAX_TILES:
            return None
        if segments <= SEGMENTS or lanes == LANES[-1]:
            break
    segment = -(-rows // segments)
    segments = -(-rows // segment)
    # Waiting blocks own the words of their barriers, so two launches must not fit the device together.
    if segments > 1 and 2 * tiles * segments <= blocks:
        return None
    return Division(vectors, rows, vectors, groups, 1, lanes, THREADS // lanes, segment, segments, 1)


def arrays_bytes(d: Division, width: int) -> int:
    """Return the bytes of the arrays of columns, in which a block also merges two numbers of each warp."""
    return 4 * d.lanes * width * (ARRAYS + 1 + 2 * THREADS // WARP)


class BatchNhwcCooperativeSolver(BatchVectorsSolver):
    """Normalize with statistics of neighbours in memory, in one cooperative launch."""

    name = "normalization.batch_nhwc_cooperative"
    asks_device = True

    def serves(self, problem: BatchProblem) -> bool:
        return problem.aligned and cooperative_of(problem) is not None

    def applies(self, problem: BatchProblem) -> bool:
        return problem.x.count >= ELEMENTS and self.serves(problem)

    def launches(self, problem: BatchProblem) -> list[Launch]:
        d = cooperative_of(problem)
        assert d is not None
        width, tensors = problem.width, 2 if problem.is_gradient else 1
        of_row, copies = tensors * VECTOR_BYTES * THREADS, COPIES // tensors
        of_thread = -(-d.segment // d.lines)
        words = 4 * THREADS * copies if problem.is_gradient and problem.has_mask else 0
        arrays = arrays_bytes(d, width)
        room = (problem.device.shared_bytes_per_block - STATIC_BYTES - arrays - words) // of_row - copies
        held = (HELD_BACKWARD if problem.is_gradient else HELD_FORWARD)[width] if of_thread > room else 0
        room = min(room, of_thread)
        launch = problem.launch(
            SOURCE, f"normalization_batch_nhwc_{'backward' if problem.is_gradient else 'training'}_cooperative",
            [("columns", columns_of(problem, d)), ("room", c_uint(room))], (d.tiles, d.segments, 1),
            (d.lanes, d.lines, 1), shared_bytes=arrays + (room + copies) * of_row + words,
            scratch_bytes=3 * d.parts * d.vectors * width * problem.compute_bytes, THREADS=THREADS,
            VECTOR_WIDTH=width, COPIED_ROWS=copies, BACKWARD=int(problem.is_gradient),
            CLUSTER_BLOCKS=1, HELD=held, AGAIN=int(of_thread > room + held), CALLS=problem.fused,
            MAX_TILES=MAX_TILES,
            STREAMS=int(not problem.has_mask and tensors * problem.x.count * problem.x.scalar_bytes >= STREAM_BYTES),
        )  # fmt: skip
        launch.cooperative = d.segments > 1
        return [launch]
