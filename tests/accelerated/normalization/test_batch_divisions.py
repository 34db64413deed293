"""Tests how batch normalization divides its elements among blocks and threads."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
from dualdnn.accelerated.normalization import batch_nchw
from dualdnn.accelerated.normalization.batch import BatchProblem
from dualdnn.accelerated.normalization.batch_nhwc import batch_nhwc, cooperative
from dualdnn.api.enumerations import cudnnBatchNormMode_t
from dualdnn.api.operations import BatchNormalizationBackward, BatchNormalizationForwardTraining, TensorSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, NCHW, NHWC

STATIC_SHARED_BYTES = 48 << 10  # per block
CHANNELS = (1, 3, 4, 6, 12, 35, 63, 64, 100, 252, 256, 2048)
IMAGES = (1, 2, 31, 64)
SIDES = (1, 2, 7, 13, 28, 56)
SPATIAL, ACTIVATION = (
    cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL,
    cudnnBatchNormMode_t.CUDNN_BATCHNORM_PER_ACTIVATION,
)


class Device(SimpleNamespace):
    """Stands in for a device; its functions hold only the name and the definitions of a kernel."""

    def function(self, source, kernel, definitions):
        return SimpleNamespace(name=kernel, definitions=dict(definitions), device=self)


H200 = Device(multiprocessors=132, shared_bytes_per_block=227 * 1024, architecture="sm_90", kind="gpu")
SMALL = Device(multiprocessors=20, shared_bytes_per_block=99 * 1024, architecture="sm_86", kind="gpu")
on_devices = pytest.mark.parametrize("device", [H200, SMALL], ids=["H200", "small"])
of_types = pytest.mark.parametrize("data_type", [FLOAT, HALF, DOUBLE], ids=lambda t: t.name)


def problem_of(device, data_type, dims, tensor_format, mode=SPATIAL, backward=False):
    x = TensorSpec.packed(data_type, dims, tensor_format)
    kept = (1, *dims[1:]) if mode == ACTIVATION else (1, dims[1], 1, 1)
    s = TensorSpec.packed(DOUBLE if data_type == DOUBLE else FLOAT, kept, tensor_format)
    if backward:
        return BatchProblem(BatchNormalizationBackward(mode, 1.0, 0.0, 1.0, 0.0, x, x, x, s, s, 1e-5, None), device)
    return BatchProblem(BatchNormalizationForwardTraining(mode, 1.0, 0.0, x, x, s, s, 0.1, s, 1e-5, s), device)


@on_devices
@of_types
@pytest.mark.parametrize("mode", [SPATIAL, ACTIVATION], ids=lambda m: m.name)
def test_columns_have_every_element_once(device, data_type, mode):
    """Rows and segments contain every vector once, clusters divide the segments evenly, and shared memory suffices."""
    found = 0
    for images, channels, side in product(IMAGES, CHANNELS, SIDES):
        problem = problem_of(device, data_type, (images, channels, side, side), NHWC, mode)
        d = batch_nhwc.division_of(problem)
        if d is None:
            continue
        found += 1
        width = batch_nhwc.width_of(problem)
        vectors = problem.x.count // width
        assert vectors * width == problem.x.count == (d.rows - 1) * d.vectors * width + d.tail * width and d.tail > 0
        assert d.vectors * width == d.groups * d.repeats and d.groups == problem.statistics_count
        assert (d.segments - d.cluster) * d.segment < d.rows <= d.segments * d.segment
        assert d.parts * d.cluster == d.segments and d.tiles * d.lanes >= d.vectors
        assert d.lanes * d.lines <= batch_nhwc.THREADS and d.lines > 0
        assert d.repeats == 1 or d.tiles == 1
        moments, sums = 3 * width + 2, 2 * width + 4  # numbers per thread in static shared memory
        static_bytes = max(moments, sums) * batch_nhwc.THREADS * problem.compute_bytes
        arrays_bytes = d.arrays_bytes(width, problem.compute_bytes)
        assert static_bytes <= STATIC_SHARED_BYTES
        assert 2 * (static_bytes + arrays_bytes) <= device.shared_bytes_per_block  # two blocks per SM
        # The columns of a group must have problem.count elements together.
        of_group = [
            sum(d.rows - ((g + i * d.groups) // width >= d.tail) for i in range(d.repeats)) for g in (0, d.groups - 1)
        ]
        assert of_group == [problem.count] * 2
    assert found > 50


@of_types
@pytest.mark.parametrize("dims", [(5, 12, 3, 3), (3, 7, 5, 5), (85, 12, 509, 509)], ids=str)
@pytest.mark.parametrize("backward", [False, True], ids=["training", "backward"])
def test_channels_innermost_never_fall_to_the_kernel_of_any_layout(data_type, dims, backward):
    """The NHWC solver serves every NHWC tensor; its vectors get narrower if 16 bytes do not divide the tensor."""
    problem = problem_of(H200, data_type, dims, NHWC, backward=backward)
    assert batch_nhwc.BatchNhwcSolver().serves(problem)
    assert problem.x.count % batch_nhwc.width_of(problem) == 0


@on_devices
@of_types
@pytest.mark.parametrize("backward", [False, True], ids=["training", "backward"])
def test_planes_fit_the_memory_of_a_cluster(device, data_type, backward):
    """A block keeps only the vectors that fit shared memory."""
    found = 0
    solver = batch_nchw.BatchNchwSolver()
    for images, channels, side in product(IMAGES, CHANNELS, SIDES):
        problem = problem_of(device, data_type, (images, channels, side, side), NCHW, backward=backward)
        if not solver.serves(problem):
            assert side * side < problem.width or channels == 1
            continue
        found += 1
        (launch,) = solver.launches(problem)
        threads, cluster, of_vector = launch.block[0], launch.grid[1], 16 * (1 + backward)
        assert launch.shared_bytes <= device.shared_bytes_per_block - 1024
        assert launch.shared_bytes % of_vector == 0
        kept, needed = (
            launch.shared_bytes // (of_vector * threads),
            -(-images * (side * side // problem.width) // (cluster * threads)),
        )
        assert launch.grid[0] == channels and cluster in (1, 2, 4, 8)
        assert kept == needed or launch.shared_bytes + of_vector * threads > device.shared_bytes_per_block // 2 - 2048
    assert found > 50


@of_types
@pytest.mark.parametrize("backward", [False, True], ids=["training", "backward"])
def test_registers_hold_a_channel(data_type, backward):
    """The registers of a block hold every vector of a channel, in at most HELD_BYTES per thread."""
    found = 0
    solver = batch_nchw.BatchNchwInRegistersSolver()
    for images, channels, side in product(IMAGES, CHANNELS, SIDES):
        problem = problem_of(H200, data_type, (images, channels, side, side), NCHW, backward=backward)
        if not solver.serves(problem):
            continue
        found += 1
        (launch,) = solver.launches(problem)
        definitions = launch.function.definitions
        width, held, threads = (int(definitions[name]) for name in ("VECTOR_WIDTH", "HELD", "THREADS"))
        assert side * side % width == 0 and launch.grid == (channels, 1, 1) and launch.block == (threads, 1, 1)
        assert (held - 1) * threads < images * side * side // width <= held * threads
        assert held * width * problem.x.scalar_bytes * (1 + backward) <= batch_nchw.HELD_BYTES
    assert found > 50


@of_types
@pytest.mark.parametrize("backward", [False, True], ids=["training", "backward"])
def test_blocks_that_wait_for_each_other_run_together(data_type, backward):
    """There is at most one block per multiprocessor, the segments contain all rows, and shared memory suffices."""
    found = 0
    solver = cooperative.BatchNhwcCooperativeSolver()
    for images, channels, side in product(IMAGES, CHANNELS, SIDES):
        problem = problem_of(H200, data_type, (images, channels, side, side), NHWC, backward=backward)
        if backward:
            o = problem.operation
            problem = BatchProblem(replace(o, saved=o.scaleBias), H200)
        if not solver.serves(problem):
            few = channels < 4 * problem.width or images * side * side < 32
            assert data_type == DOUBLE or channels % problem.width or few
            continue
        found += 1
        (launch,) = solver.launches(problem)
        d = cooperative.cooperative_of(problem)
        width, threads = problem.width, d.lanes * d.lines
        assert launch.grid == (d.tiles, d.segments, 1) and d.tiles * d.segments <= H200.multiprocessors
        assert d.tiles <= cooperative.MAX_TILES and launch.cooperative == (d.segments > 1)
        assert not launch.cooperative or 2 * d.tiles * d.segments > H200.multiprocessors
        assert threads == cooperative.THREADS and d.lanes * width <= threads and 32 % d.lanes == 0
        assert (d.segments - 1) * d.segment < d.rows <= d.segments * d.segment
        assert d.rows * channels == problem.x.count and d.vectors * width == channels
        static = 4 * 4 * threads
        arrays = cooperative.arrays_bytes(d, width)
        assert arrays < launch.shared_bytes <= H200.shared_bytes_per_block - 1024 - static
    assert found > 50 or data_type == DOUBLE
