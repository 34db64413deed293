"""Tests the solver for any reduction, which is forced: divisions, partial results, layouts and alignment."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.records import noting_launches
from dualdnn.accelerated.reduce_tensor.division import divided, vector_width
from dualdnn.accelerated.reduce_tensor.problem import ReduceProblem, Tiles, _packed_like
from dualdnn.accelerated.solver import plan_by
from dualdnn.api.enumerations import cudnnIndicesType_t, cudnnNanPropagation_t, cudnnReduceTensorIndices_t
from dualdnn.api.enumerations import cudnnReduceTensorOp_t as Op
from dualdnn.api.operations import ReduceTensor, ReduceTensorSpec, TensorSpec
from dualdnn.api.operations.reduce_tensor import required_indices
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT8, NCHW, NHWC
from dualdnn.conformance.trial import prepare
from dualdnn.reference import judge

LARGE = (64, 256, 56, 56)
TO_CHANNELS = (1, 256, 1, 1)
TO_ONE = (1, 1, 1, 1)
ANY = "reduce_tensor.generic"
MULTIPROCESSORS = 132


class Device:
    """Stands in for a device with more multiprocessors, so that reductions are split."""

    def __init__(self, device, multiprocessors=MULTIPROCESSORS):
        self.device, self.multiprocessors = device, multiprocessors

    def __getattr__(self, name):
        return getattr(self.device, name)


@pytest.fixture(scope="module")
def backend():
    return AcceleratedBackend("emulated")


@pytest.fixture
def device(backend):
    return Device(backend.device)


def operation_of(op, data_type, dims, to, tensor_format=NCHW, indices=False, beta=0.0):
    A, C = TensorSpec.packed(data_type, dims, tensor_format), TensorSpec.packed(FLOAT, to)
    spec = ReduceTensorSpec(op, FLOAT, cudnnNanPropagation_t(0), cudnnReduceTensorIndices_t(int(indices)),
                            cudnnIndicesType_t(0))  # fmt: skip
    return ReduceTensor(spec, required_indices(spec, C), 0, 1.0, beta, A, C)


def run(backend, device, operation, solver, kind="ties", workspace_offset=0, shift=0, seed=0):
    """Run and judge an operation by one solver. Its workspace and A begin at the given byte offsets of buffers."""
    needed = ReduceProblem(operation, device).workspace_bytes
    operation = dataclasses.replace(operation, workspace_bytes=needed)
    memory = prepare(operation, kind, seed)
    buffers = {name: backend.to_device(content) for name, content in memory.items()}
    padded = backend.to_device(np.concatenate([np.zeros(shift, np.uint8), memory["A"]]))
    buffers["A"] = padded.slice(shift, memory["A"].size)
    room = backend.to_device(np.full(needed + workspace_offset, 0xA5, np.uint8))
    buffers["workspace"] = room.slice(workspace_offset, needed)
    plan = plan_by(operation, device, solver)
    with noting_launches() as launched:
        plan([buffers.get(name) for name in operation.operands], backend.device.default_stream)
    backend.synchronize(None)
    after = {n: buffers[n].to_host(np.uint8, operation.nbytes(n)) for n in ("C", "indices") if n in memory}
    verdict = judge(operation, memory, after)
    assert verdict.agrees, verdict.worst
    return plan, launched


# Rows and columns are split into segments, with and without indices. A thread merges more partial results than it
# reads at once. Some segments are parts of one row.
SPLIT = [
    operation_of(Op.CUDNN_REDUCE_TENSOR_ADD, HALF, (9, 7, 31, 33), (1, 7, 1, 1)),
    operation_of(Op.CUDNN_REDUCE_TENSOR_AVG, HALF, (1, 32, 130, 131), (1, 32, 1, 1), NHWC),
    operation_of(Op.CUDNN_REDUCE_TENSOR_NORM2, FLOAT, (5, 7, 31, 33), (1, 7, 1, 1), NHWC),
    operation_of(Op.CUDNN_REDUCE_TENSOR_MIN, FLOAT, (2, 8, 60, 64), (1, 8, 1, 1), NHWC, indices=True),
    operation_of(Op.CUDNN_REDUCE_TENSOR_MAX, FLOAT, (1, 1, 3, 9001), (1, 1, 3, 1), indices=True),
    operation_of(Op.CUDNN_REDUCE_TENSOR_AMAX, HALF, (2, 2, 64, 128), (1, 2, 1, 1)),
]


@pytest.mark.parametrize("offset", [0, 1, 4, 7])
@pytest.mark.parametrize("operation", SPLIT, ids=lambda o: o.reduction.op.name)
def test_the_workspace_begins_anywhere(backend, device, operation, offset):
    assert ReduceProblem(operation, device).division.segments > 1
    run(backend, device, operation, ANY, workspace_offset=offset)


@pytest.mark.parametrize("operation", SPLIT, ids=lambda o: o.reduction.op.name)
def test_a_second_launch_merges_partial_results(backend, device, operation):
    _, launched = run(backend, device, operation, ANY)
    assert sorted("partial_results" in name for name in launched) == [False, True]


@pytest.mark.parametrize("multiprocessors", [1, 20, MULTIPROCESSORS])
@pytest.mark.parametrize("data_type", [FLOAT, DOUBLE, HALF, INT8], ids=lambda t: t.name)
@pytest.mark.parametrize("tensor_format", [NCHW, NHWC], ids=lambda f: f.name)
@pytest.mark.parametrize("dims, to", [(LARGE, TO_CHANNELS), (LARGE, TO_ONE), ((8, 64, 16, 56, 56), (8, 64, 16, 1, 1)),
                                      ((64, 3, 224, 224), (1, 3, 1, 1)), ((1, 4096, 64, 64), (1, 4096, 1, 1))],
                         ids=lambda d: "x".join(map(str, d)))  # fmt: skip
def test_divisions_fill_the_device_with_little_workspace(data_type, tensor_format, dims, to, multiprocessors):
    A, C = TensorSpec.packed(data_type, dims, tensor_format), TensorSpec.packed(data_type, to)
    division = divided(A, C, multiprocessors)
    side = C.count if division.rows else -(-C.count // vector_width(A))
    blocks = -(-side * division.lanes // 256)
    assert blocks * division.segments >= multiprocessors
    operation = operation_of(Op.CUDNN_REDUCE_TENSOR_ADD, FLOAT, dims, to, tensor_format)
    problem = ReduceProblem(dataclasses.replace(operation, A=A), Device(None, multiprocessors))
    assert problem.workspace_bytes <= A.nbytes // 20 + 8


@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
@pytest.mark.parametrize("dims", [(31, 67, 37, 41), (9, 132, 40, 40), (64, 150, 56, 56)], ids=str)
def test_rows_are_cut_into_segments_for_one_wave_of_blocks_or_into_long_ones(data_type, dims):
    """Segments are long, or their blocks run in one wave, because each partial result costs time."""
    A = TensorSpec.packed(data_type, dims)
    division = divided(A, TensorSpec.packed(FLOAT, (1, dims[1], 1, 1)), MULTIPROCESSORS)
    vectors = A.count // dims[1] / (256 * vector_width(A))
    assert division.rows and (vectors / division.segments > 3 or division.segments * dims[1] <= 528)


def test_packed_strides_keep_the_order_of_the_strides():
    packed = _packed_like([10, 1, 40, 5], [4, 3, 2, 2])
    assert sorted(packed) == [1, 3, 6, 24]
    order = sorted(range(4), key=lambda d: -packed[d])
    assert all(packed[a] == packed[b] * [4, 3, 2, 2][b] for a, b in pairwise(order))


@pytest.mark.parametrize("indices", [False, True], ids=["plain", "indices"])
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
@pytest.mark.parametrize("dims, to", [((5, 55, 9, 11), (1, 55, 9, 11)), ((3, 60, 21, 6), (3, 60, 21, 1))],
                         ids=lambda d: "x".join(map(str, d)))  # fmt: skip
def test_results_across_the_rows_of_a(backend, device, dims, to, data_type, indices):
    """A is NHWC and C is NCHW, so blocks process tiles of both."""
    operation = operation_of(Op.CUDNN_REDUCE_TENSOR_MAX, data_type, dims, to, NHWC, indices)
    problem = ReduceProblem(operation, device)
    tiles = Tiles.of(problem.walked[1], 256 // problem.division.lanes)
    assert not problem.rows and problem.division.segments == 1 and tiles and tiles.blocks > 1
    run(backend, device, operation, ANY)


@pytest.mark.parametrize("channels", [3, 67])
def test_tiles_that_would_leave_threads_idle(backend, device, channels):
    """There are no tiles if rows have few vectors, or end soon after a tile begins."""
    operation = operation_of(Op.CUDNN_REDUCE_TENSOR_MAX, HALF, (5, channels, 9, 11), (1, channels, 9, 11), NHWC)
    assert Tiles.of(ReduceProblem(operation, device).walked[1], 32) is None
    run(backend, device, operation, ANY)


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("data_type", [FLOAT, HALF, INT8], ids=lambda t: t.name)
@pytest.mark.parametrize("dims, alone", [((3, 16, 5, 9), True), ((3, 5, 5, 9), False)], ids=["vectors", "no vectors"])
def test_a_thread_writes_full_vectors_of_c_where_rows_have_them(backend, device, dims, alone, data_type, beta):
    operation = operation_of(Op.CUDNN_REDUCE_TENSOR_AVG, data_type, dims, (1, *dims[1:]), beta=beta)
    problem = ReduceProblem(operation, device)
    assert problem.alone(problem.walked[1]) == alone and (problem.division.lanes == 1 or not alone)
    run(backend, device, operation, ANY)


# The first three reduce columns: across rows, in tiles, in segments. The others reduce rows: each alone, across
# images, and the whole tensor.
SUMS = [((16, 3, 9, 40), (1, 3, 9, 40), NCHW), ((3, 64, 21, 14), (3, 64, 21, 1), NHWC), ((9, 8, 40, 41), (1, 8, 1, 1), NHWC),
        ((1, 1, 3, 9008), (1, 1, 3, 1), NCHW), ((9, 7, 40, 41), (1, 7, 1, 1), NCHW), ((9, 7, 40, 41), TO_ONE, NCHW)]  # fmt: skip


@pytest.mark.parametrize("shift", [0, 8], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("data_type", [FLOAT, HALF, INT8], ids=lambda t: t.name)
@pytest.mark.parametrize("dims, to, tensor_format", SUMS, ids=str)
def test_sums_of_any_tensor(backend, device, dims, to, tensor_format, data_type, shift):
    operation = operation_of(Op.CUDNN_REDUCE_TENSOR_AVG, data_type, dims, to, tensor_format)
    run(backend, device, operation, ANY, "normal", shift=shift)


def test_sums_of_vectors_with_gaps(backend, device):
    operation = operation_of(Op.CUDNN_REDUCE_TENSOR_AVG, HALF, (5, 3, 12, 64), (1, 3, 1, 1))
    gaps = TensorSpec(HALF, (5, 3, 12, 64), (24576, 8192, 72, 1))
    run(backend, device, dataclasses.replace(operation, A=gaps), ANY, "normal")
