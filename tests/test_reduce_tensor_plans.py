"""How segmented reductions are merged: the launches of a plan, its counts of arrivals, the space for partial results."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.reduce_tensor import plan as plans
from dualdnn.accelerated.reduce_tensor import problem as walks
from dualdnn.accelerated.reduce_tensor.problem import Tiles, Walk
from dualdnn.accelerated.reduce_tensor.problem import alone as alone_in_c
from dualdnn.api.enumerations import cudnnIndicesType_t, cudnnNanPropagation_t, cudnnReduceTensorIndices_t
from dualdnn.api.enumerations import cudnnReduceTensorOp_t as Op
from dualdnn.api.operations import ReduceTensor, ReduceTensorSpec, TensorSpec
from dualdnn.api.operations.reduce_tensor import divided, pack_width, required_indices, required_workspace
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT8, NCHW, NHWC
from dualdnn.conformance.trial import prepare
from dualdnn.reference import judge

LARGE, TO_CHANNELS = (64, 256, 56, 56), (1, 256, 1, 1)


def operation_of(op, data_type, dims, to, tensor_format=NCHW, indices=False):
    A, C = TensorSpec.packed(data_type, dims, tensor_format), TensorSpec.packed(FLOAT, to)
    spec = ReduceTensorSpec(op, FLOAT, cudnnNanPropagation_t(0), cudnnReduceTensorIndices_t(int(indices)),
                            cudnnIndicesType_t(0))  # fmt: skip
    return ReduceTensor(spec, required_indices(spec, C), required_workspace(A, C), 1.0, 0.0, A, C)


@pytest.fixture(scope="module")
def backend():
    return AcceleratedBackend("emulated")


@pytest.fixture
def large(backend, monkeypatch):
    """Nothing is small, and no plan that thought otherwise is left."""
    monkeypatch.setattr(plans.small, "launch", lambda *_: None)
    monkeypatch.setattr(backend, "plans", {})


@pytest.fixture
def counts(backend, large, monkeypatch):
    """Counts of this test alone, and no plan that knows others."""
    fresh = plans._Counts()
    monkeypatch.setitem(backend.device.__dict__, "reduction_counts", fresh)
    monkeypatch.setattr(backend, "plans", {})
    return fresh  # numbers start at 0 again: the kernels' counts are 0 between launches


SPLIT = [
    operation_of(Op.CUDNN_REDUCE_TENSOR_ADD, HALF, (9, 7, 31, 33), (1, 7, 1, 1)),
    # more partial results for each thread than it reads at once
    operation_of(Op.CUDNN_REDUCE_TENSOR_AVG, HALF, (1, 32, 130, 131), (1, 32, 1, 1), NHWC),
    operation_of(Op.CUDNN_REDUCE_TENSOR_NORM2, FLOAT, (5, 7, 31, 33), (1, 7, 1, 1), NHWC),
    operation_of(Op.CUDNN_REDUCE_TENSOR_MIN, FLOAT, (2, 8, 60, 64), (1, 8, 1, 1), NHWC, indices=True),
    operation_of(Op.CUDNN_REDUCE_TENSOR_MAX, FLOAT, (1, 1, 3, 9001), (1, 1, 3, 1), indices=True),
]


def run(backend, operation, memory, workspace_offset=0, shift=0):
    """Runs the operation; ``memory`` is what it starts from. The workspace starts at the given offset of an allocation, A
    at ``shift``."""
    buffers = {name: backend.to_device(content) for name, content in memory.items()}
    whole = backend.to_device(np.concatenate([np.zeros(shift, np.uint8), memory["A"]]))
    buffers["A"] = whole.slice(shift, memory["A"].size)
    room = backend.to_device(np.full(operation.workspace_bytes + workspace_offset, 0xA5, np.uint8))
    buffers["workspace"] = room.slice(workspace_offset, operation.workspace_bytes)
    backend.prepare(operation)([buffers.get(name) for name in operation.operands], None)
    backend.synchronize(None)
    after = {
        name: buffers[name].to_host(np.uint8, operation.nbytes(name)) for name in ("C", "indices") if name in memory
    }
    verdict = judge(operation, memory, after)
    assert verdict.agrees, verdict.worst
    return room


@pytest.mark.parametrize("offset", range(8))
@pytest.mark.parametrize("operation", SPLIT, ids=lambda o: o.reduction.op.name)
def test_the_workspace_starts_anywhere(backend, counts, operation, offset):
    assert operation.division.segments > 1
    run(backend, operation, prepare(operation, "ties", 0), offset)


@pytest.mark.parametrize("operation", SPLIT, ids=lambda o: o.reduction.op.name)
@pytest.mark.parametrize("available", [0, plans.COUNTS], ids=["two_launches", "one_launch"])
def test_merged_by_the_last_block_or_a_second_launch(backend, counts, monkeypatch, operation, available):
    monkeypatch.setattr(plans, "COUNTS", available)
    launched = []
    plan = plans.reduce_tensor(operation, backend.device)
    for launch in plan.launches:
        function = launch.function

        class Noted:
            def launch(self, *arguments, function=function):
                launched.append(function.name)
                function.launch(*arguments)

        launch.function = Noted()
    backend.plans[operation] = plan
    for seed in range(2):  # a count that were not back at 0 would spoil the second
        run(backend, operation, prepare(operation, "ties", seed))
    assert len(launched) == (1 if available else 2) * 2
    assert any("partial_results" in name for name in launched) == (not available)


def test_a_count_for_every_workspace_and_number_of_segments():
    counts = plans._Counts()
    keys = [(address, segments) for address in (64, 128, 4096) for segments in (2, 3)]
    numbers = [counts.number(*key) for key in keys]
    assert numbers == [counts.number(*key) for key in keys] == list(range(len(keys)))


def test_no_count_is_given_twice():
    counts = plans._Counts()
    numbers = [counts.number(8 * address, 2) for address in range(plans.COUNTS + 3)]
    assert numbers == [*range(plans.COUNTS), *[plans.NOT_COUNTED] * 3]


@pytest.mark.parametrize("data_type", [FLOAT, DOUBLE, HALF, INT8], ids=lambda t: t.name)
@pytest.mark.parametrize("tensor_format", [NCHW, NHWC], ids=lambda f: f.name)
@pytest.mark.parametrize("dims, to", [(LARGE, TO_CHANNELS), (LARGE, (1, 1, 1, 1)), ((8, 64, 16, 56, 56), (8, 64, 16, 1, 1)),
                                      ((64, 3, 224, 224), (1, 3, 1, 1)), ((1, 4096, 64, 64), (1, 4096, 1, 1))],
                         ids=lambda d: "x".join(map(str, d)))  # fmt: skip
def test_blocks_that_count_have_room(data_type, tensor_format, dims, to):
    """The kernels keep 1056 counts side by side; a split reduction has no more blocks there."""
    A, C = TensorSpec.packed(data_type, dims, tensor_format), TensorSpec.packed(data_type, to)
    division = divided(A, C)
    width = pack_width(A)
    side = C.count if division.rows else -(-C.count // width)
    blocks = -(-side * division.lanes // 256)
    assert division.segments == 1 or blocks <= 1056
    assert blocks * division.segments >= 132


@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
@pytest.mark.parametrize("dims", [(31, 67, 37, 41), (9, 132, 40, 40), (64, 150, 56, 56)], ids=str)
def test_rows_are_cut_into_segments_for_one_round_of_blocks_or_into_long_ones(data_type, dims):
    """A thread reads four packs of each at least: partial results are not for free."""
    A = TensorSpec.packed(data_type, dims)
    division = divided(A, TensorSpec.packed(FLOAT, (1, dims[1], 1, 1)))
    packs = A.count // dims[1] / (256 * pack_width(A))
    assert division.rows and (packs / division.segments > 3 or division.segments * dims[1] <= 528)


def test_numbers_follow_the_order_of_the_strides():
    packed = walks._packed_like([10, 1, 40, 5], [4, 3, 2, 2])
    assert sorted(packed) == [1, 3, 6, 24]
    order = sorted(range(4), key=lambda d: -packed[d])
    assert all(packed[a] == packed[b] * [4, 3, 2, 2][b] for a, b in pairwise(order))


@pytest.mark.parametrize("indices", [False, True], ids=["plain", "indices"])
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name)
@pytest.mark.parametrize("dims, to", [((5, 55, 9, 11), (1, 55, 9, 11)), ((3, 60, 21, 6), (3, 60, 21, 1))],
                         ids=lambda d: "x".join(map(str, d)))  # fmt: skip
def test_results_across_the_rows_of_a(backend, large, monkeypatch, dims, to, data_type, indices):
    """A lies by channels, C by images: blocks cover squares of both."""
    chosen = []

    class Noted(Tiles):
        @classmethod
        def of(cls, kept, columns):
            chosen.append(super().of(kept, columns))
            return chosen[-1]

    monkeypatch.setattr(plans, "Tiles", Noted)
    monkeypatch.setattr(backend, "plans", {})
    operation = operation_of(Op.CUDNN_REDUCE_TENSOR_MAX, data_type, dims, to, NHWC, indices)
    assert not operation.division.rows and operation.division.segments == 1
    run(backend, operation, prepare(operation, "ties", 0))
    assert chosen[0] and chosen[0].blocks > 1


@pytest.mark.parametrize("channels", [3, 67])
def test_squares_that_would_leave_threads_idle(backend, large, channels):
    """A row of few packs, or one that ends soon after a square begins: a block of rows is wider then."""
    operation = operation_of(Op.CUDNN_REDUCE_TENSOR_MAX, HALF, (5, channels, 9, 11), (1, channels, 9, 11), NHWC)
    kept = Walk(operation).columns(pack_width(operation.A))[1]
    assert Tiles.of(kept, 32) is None
    run(backend, operation, prepare(operation, "ties", 0))


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("data_type", [FLOAT, HALF, INT8], ids=lambda t: t.name)
@pytest.mark.parametrize("dims, alone", [((3, 16, 5, 9), True), ((3, 5, 5, 9), False)], ids=["packs", "no packs"])
def test_a_thread_has_a_pack_of_c_to_itself(backend, large, dims, alone, data_type, beta):
    operation = operation_of(Op.CUDNN_REDUCE_TENSOR_AVG, data_type, dims, (1, *dims[1:]))
    operation = dataclasses.replace(operation, beta=beta)
    kept = Walk(operation).columns(pack_width(operation.A))[1]
    assert alone_in_c(operation, kept) == alone and (operation.division.lanes == 1 or not alone)
    run(backend, operation, prepare(operation, "ties", 0))


@pytest.mark.parametrize("shift", [0, 8], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("indices", [False, True], ids=["plain", "indices"])
@pytest.mark.parametrize("data_type", [FLOAT, HALF, INT8], ids=lambda t: t.name)
@pytest.mark.parametrize("dims", [(3, 7, 19, 56), (1, 5, 60, 8), (2, 30, 20, 104)], ids=str)
def test_short_rows(backend, large, dims, data_type, indices, shift):
    """Threads read whichever packs come next, in blocks of which the last is not full; other plans serve other addresses."""
    operation = operation_of(Op.CUDNN_REDUCE_TENSOR_MAX, data_type, dims, (*dims[:3], 1), indices=indices)
    run(backend, operation, prepare(operation, "normal", 3), shift=shift)
    plan = backend.plans[operation]
    assert [step.function.name.startswith("reduce_tensor_any_short_rows") for step, _ in plan.steps] == [True]
    assert (plan.other is not None) == bool(shift)


GAPS = TensorSpec(HALF, (5, 3, 12, 64), (24576, 8192, 72, 1))  # rows of whole packs, planes and images apart


def large_sums(data_type):
    """Columns across rows, in squares, in segments; rows one step apart, with images, one row of all, with lines and images between packs."""
    for dims, to, tensor_format in [
        ((16, 3, 9, 40), (1, 3, 9, 40), NCHW),
        ((3, 64, 21, 14), (3, 64, 21, 1), NHWC),
        ((9, 8, 40, 41), (1, 8, 1, 1), NHWC),
        ((1, 1, 3, 9008), (1, 1, 3, 1), NCHW),
        ((9, 7, 40, 41), (1, 7, 1, 1), NCHW),
        ((9, 7, 40, 41), (1, 1, 1, 1), NCHW),
    ]:
        yield operation_of(Op.CUDNN_REDUCE_TENSOR_AVG, data_type, dims, to, tensor_format)
    gaps = operation_of(Op.CUDNN_REDUCE_TENSOR_AVG, data_type, GAPS.dims, (1, 3, 1, 1))
    yield dataclasses.replace(gaps, A=dataclasses.replace(GAPS, data_type=data_type))


@pytest.mark.parametrize("shift", [0, 8], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("data_type", [FLOAT, HALF, INT8], ids=lambda t: t.name)
@pytest.mark.parametrize("which", range(7), ids=["across rows", "squares", "segments", "rows", "images", "all", "gaps"])
def test_what_the_cache_does_not_hold(backend, large, monkeypatch, which, data_type, shift):
    """Floats and halves have kernels of their own, for whole packs."""
    monkeypatch.setattr(plans, "LARGE_BYTES", 0)
    monkeypatch.setattr(walks, "L2_RESIDENT_BYTES", 0)
    operation = [*large_sums(data_type)][which]
    (launch, _), *_ = plans.reduce_tensor(operation, backend.device).steps
    assert launch.function.name.startswith("reduce_tensor_large") == (data_type != INT8)
    assert operation.division.rows == (which > 2)
    assert (operation.division.segments > 1) == (which in (2, 3, 4, 5))
    run(backend, operation, prepare(operation, "normal", 5), shift=shift)
    plan = backend.plans[operation]
    assert (getattr(plan, "other", None) is not None) == (bool(shift) and data_type != INT8)


def test_indices_and_rows_of_parts_of_packs_are_not_large(backend, large, monkeypatch):
    monkeypatch.setattr(plans, "LARGE_BYTES", 0)
    indexed = operation_of(Op.CUDNN_REDUCE_TENSOR_MAX, HALF, (2, 3, 64, 64), (1, 3, 1, 1), indices=True)
    odd = operation_of(Op.CUDNN_REDUCE_TENSOR_MAX, HALF, (5, 3, 33, 31), (1, 3, 1, 1))
    short = operation_of(Op.CUDNN_REDUCE_TENSOR_MAX, HALF, (5, 3, 12, 63), (1, 3, 1, 1))
    short = dataclasses.replace(short, A=dataclasses.replace(GAPS, dims=(5, 3, 12, 63)))  # each at a whole pack
    apart = operation_of(Op.CUDNN_REDUCE_TENSOR_MAX, HALF, GAPS.dims, (1, 3, 1, 1))  # where others than the first begin
    apart = dataclasses.replace(apart, A=dataclasses.replace(GAPS, strides=(24608, 8196, 72, 1)))
    for operation in (indexed, odd, short, apart):
        (launch, _), *_ = plans.reduce_tensor(operation, backend.device).steps
        assert launch.function.name.startswith("reduce_tensor_any_rows")
