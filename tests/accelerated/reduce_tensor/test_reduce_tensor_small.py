"""Tests that every way to share a small reduction among threads agrees with the judge."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.plans import Plan
from dualdnn.accelerated.reduce_tensor import small
from dualdnn.accelerated.reduce_tensor.problem import ReduceProblem
from dualdnn.accelerated.solver import SOLVER_FAMILIES, plan_by
from dualdnn.api.enumerations import cudnnIndicesType_t, cudnnNanPropagation_t, cudnnReduceTensorIndices_t
from dualdnn.api.enumerations import cudnnReduceTensorOp_t as Op
from dualdnn.api.operations import ReduceTensor, ReduceTensorSpec, TensorSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT8
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.trial import prepare
from dualdnn.reference import judge

OPS = (Op.CUDNN_REDUCE_TENSOR_ADD, Op.CUDNN_REDUCE_TENSOR_AVG, Op.CUDNN_REDUCE_TENSOR_NORM2, Op.CUDNN_REDUCE_TENSOR_MIN,
       Op.CUDNN_REDUCE_TENSOR_MAX, Op.CUDNN_REDUCE_TENSOR_AMAX, Op.CUDNN_REDUCE_TENSOR_MUL)  # fmt: skip
KEPT = {"to one": (), "to channels": (1,), "over rows": (0, 1, 2), "over images": (1, 2, 3), "mixed": (0, 3)}
MAX_SHARINGS = 12  # per operation, chosen by a seed
# Each access width is another module to compile: HALF gets all layouts, the other types a few.
LAID_OUT = [
    pytest.param(data_type, layout, id=f"{data_type.name.removeprefix('CUDNN_DATA_')}-{layout}")
    for data_type, layouts in {
        HALF: ("nchw", "nhwc", "gaps", "odd"), FLOAT: ("gaps", "odd"), INT8: ("gaps",), DOUBLE: ("odd",)
    }.items()
    for layout in layouts
]  # fmt: skip


@pytest.fixture(scope="module")
def backend():
    return AcceleratedBackend("emulated")


def operation_of(op, data_type, dims, kept, layout, beta=0.0):
    A = laid_out(data_type, dims, layout)
    C = TensorSpec.packed(
        data_type if data_type != INT8 else FLOAT, tuple(d if i in kept else 1 for i, d in enumerate(dims))
    )
    spec = ReduceTensorSpec(op, DOUBLE if data_type == DOUBLE else FLOAT, cudnnNanPropagation_t(1), cudnnReduceTensorIndices_t(0),
                            cudnnIndicesType_t(0))  # fmt: skip
    return ReduceTensor(spec, 0, 0, 1.0, beta, A, C)


def run(backend, operation, plan):
    memory = prepare(operation, "ties", 2)
    buffers = {name: backend.to_device(content) for name, content in memory.items()}
    plan([buffers.get(name) for name in operation.operands], backend.device.default_stream)
    backend.synchronize(None)
    after = {"C": buffers["C"].to_host(np.uint8, operation.nbytes("C"))}
    verdict = judge(operation, memory, after)
    assert verdict.agrees, verdict.worst


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize(("data_type", "layout"), LAID_OUT)
def test_every_sharing(backend, data_type, kept, layout):
    """Every sharing is right. A cluster has only one block here."""
    chance = random.Random(f"{data_type}{kept}{layout}")
    op = OPS[chance.randrange(len(OPS))]
    operation = operation_of(
        op, data_type, chance.choice([(4, 16, 3, 8), (3, 6, 7, 14)]), KEPT[kept], layout, chance.choice([0.0, 0.5])
    )
    found = small.choices(operation, backend.device)
    # Each width is a module, and another one for clusters. Two widths suffice for clusters, whose additions depend only
    # on the states per thread.
    widths = {1, max(reading.width for _, reading in found)}
    found = [choice for choice in found if not choice[0].blocks or choice[1].width in widths]
    assert {sharing.blocks for sharing, _ in found} == {0, 1}
    for sharing, reading in chance.sample(found, min(MAX_SHARINGS, len(found))):
        run(backend, operation, Plan(operation, [small.launch_of(operation, backend.device, reading, sharing)]))
    # A sum depends on every element; it runs with the most accesses per thread.
    sharing, reading = max(found, key=lambda choice: choice[1].accesses)
    summed = dataclasses.replace(operation, reduction=dataclasses.replace(operation.reduction, op=OPS[0]))
    run(backend, summed, Plan(summed, [small.launch_of(summed, backend.device, reading, sharing)]))


def test_accesses_are_as_wide_as_every_place_allows():
    """Rows of 14 halves allow accesses of two elements; rows with gaps are misaligned and allow only one."""
    widths = {
        layout: {r.width for r in small.readings(operation_of(OPS[0], HALF, (2, 3, 5, 14), (0, 1, 2), layout))}
        for layout in ("nchw", "gaps")
    }
    assert widths == {"nchw": {2, 1}, "gaps": {1}}


def test_other_addresses_have_another_plan(backend):
    operation = operation_of(OPS[0], FLOAT, (2, 3, 5, 16), (1,), "nchw")
    memory = prepare(operation, "normal", 3)
    plan = plan_by(operation, backend.device, "reduce_tensor.small")
    for shift in (0, 4):
        C = backend.to_device(memory["C"])
        padded = backend.to_device(np.concatenate([np.zeros(shift, np.uint8), memory["A"]]))
        plan([padded.slice(shift, memory["A"].size), C, None, None], backend.device.default_stream)
        backend.synchronize(None)
        assert judge(operation, memory, {"C": C.to_host(np.uint8, operation.nbytes("C"))}).agrees
        assert (plan.other is not None) == bool(shift)


def test_large_tensors_and_indices_are_not_small(backend):
    def chosen(operation):
        return SOLVER_FAMILIES[ReduceTensor].solver(ReduceProblem(operation, backend.device)).name

    large = operation_of(Op.CUDNN_REDUCE_TENSOR_MAX, FLOAT, (64, 64, 56, 56), (1,), "nchw")
    little = operation_of(Op.CUDNN_REDUCE_TENSOR_MAX, FLOAT, (2, 4, 5, 6), (1,), "nchw")
    indexed = dataclasses.replace(little.reduction, indices=cudnnReduceTensorIndices_t(1))
    assert chosen(large) == "reduce_tensor.generic" and chosen(little) == "reduce_tensor.small"
    assert chosen(dataclasses.replace(little, reduction=indexed)) == "reduce_tensor.generic"
