"""Reductions of small tensors to one element by a cluster, which is one block on the emulated device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from dualdnn.accelerated.reduce_tensor import to_scalar
from dualdnn.accelerated.reduce_tensor.problem import ReduceProblem
from dualdnn.accelerated.solver import ROOMS, plan_by
from dualdnn.api.enumerations import cudnnReduceTensorOp_t as Op
from dualdnn.api.operations import ReduceTensor
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT8
from test_reduce_tensor_small import backend, operation_of, run

__all__ = ["backend"]

SUM, MEAN = Op.CUDNN_REDUCE_TENSOR_ADD, Op.CUDNN_REDUCE_TENSOR_AVG
PRODUCT, LEAST = Op.CUDNN_REDUCE_TENSOR_MUL, Op.CUDNN_REDUCE_TENSOR_MIN
BLOCKS = 1
# Packs of four, two and one; threads that have an access less, or none.
SHAPES = {
    (FLOAT, "nchw"): [(4, 16, 3, 8), (3, 6, 7, 14), (3, 7, 7, 6)],
    (HALF, "nchw"): [(4, 16, 3, 8), (11, 3, 5, 7)],
    (INT8, "nchw"): [(5, 16, 3, 8)],
    (DOUBLE, "nchw"): [(11, 3, 5, 7)],
}


@pytest.mark.parametrize(
    ("data_type", "layout", "dims"),
    [
        pytest.param(*kind, dims, id=f"{kind[0].name.removeprefix('CUDNN_DATA_')}-{kind[1]}-{'x'.join(map(str, dims))}")
        for kind, shapes in SHAPES.items()
        for dims in shapes
    ],
)
def test_every_reading(backend, data_type, layout, dims):
    for op, beta in ((MEAN, 0.5), (PRODUCT, 0.0), (LEAST, 0.0)):
        operation = operation_of(op, data_type, dims, (), layout, beta)
        found = to_scalar.reading(operation)
        assert found.shares <= BLOCKS * to_scalar.MOST_WARPS * to_scalar.WARP
        run(backend, operation, plan_by(operation, backend.device, "reduce_tensor.to_scalar"))


def test_what_is_read():
    """Packs as wide as their number allows."""

    def found(dims, layout, data_type=FLOAT):
        return to_scalar.reading(operation_of(SUM, data_type, dims, (), layout))

    assert found((8, 64, 14, 14), "nchw")[:4] == (4, 3136, 25088, 12544)
    assert [found(dims, "nchw", HALF).width for dims in ((3, 6, 7, 14), (3, 7, 7, 14), (3, 7, 7, 13))] == [4, 2, 1]
    assert found((2, 2, 3, 4), "nchw") is None  # few
    assert found((8, 64, 14, 14), "gaps") is None and found((8, 64, 14, 14), "odd") is None


class Gpu:
    """A device that has clusters of up to so many blocks."""

    kind, multiprocessors = "gpu", 132

    def __init__(self, architecture, most_blocks):
        self.architecture, self.most_blocks = architecture, most_blocks

    def function(self, source, kernel, definitions):
        return SimpleNamespace(holds_clusters=lambda *_: int(dict(definitions)["CLUSTER_BLOCKS"]) <= self.most_blocks)


SMALL, TO_SCALAR = "reduce_tensor.small", "reduce_tensor.to_scalar"


@pytest.mark.parametrize(
    ("dims", "kept", "layout", "architecture", "most_blocks", "source"),
    [
        ((8, 64, 14, 14), (), "nchw", "sm_90", 16, TO_SCALAR),
        ((8, 64, 14, 14), (), "gaps", "sm_90", 16, SMALL),
        ((1, 32, 14, 14), (), "nchw", "sm_90", 16, TO_SCALAR),
        ((8, 64, 14, 14), (), "nchw", "sm_90", 8, SMALL),
        ((1, 32, 14, 14), (), "nchw", "sm_80", 16, SMALL),
        ((64, 8, 14, 14), (1,), "nchw", "sm_90", 16, SMALL),
        ((2, 3, 4, 16), (), "nchw", "sm_90", 16, SMALL),
        ((32, 64, 14, 14), (), "nchw", "sm_90", 16, SMALL),
    ],
)
def test_who_is_asked(dims, kept, layout, architecture, most_blocks, source):
    device = Gpu(architecture, most_blocks)
    problem = ReduceProblem(operation_of(SUM, FLOAT, dims, kept, layout), device)
    assert ROOMS[ReduceTensor].solver(problem).name == source
