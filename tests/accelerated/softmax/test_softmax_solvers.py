"""Tests that every softmax solver agrees with the judge on all that it serves."""

from __future__ import annotations

import numpy as np
import pytest
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.softmax.plan import SOLVERS
from dualdnn.accelerated.softmax.problem import SoftmaxProblem
from dualdnn.accelerated.solver import plan_by
from dualdnn.api.enumerations import cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t
from dualdnn.api.operations import SoftmaxBackward, SoftmaxForward
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.trial import prepare
from dualdnn.reference import judge

NUMBERS = {FLOAT: np.float32, HALF: np.float16, DOUBLE: np.float64}


@pytest.fixture(scope="module")
def backend():
    return AcceleratedBackend("emulated")


class Device:
    """Stands in for the emulated device with other properties."""

    def __init__(self, device, **properties):
        self.device = device
        self.__dict__ |= properties

    def __getattr__(self, name):
        return getattr(self.device, name)


def operation_of(backward, algorithm, data_type, dims, layout, beta, mode):
    tensor = laid_out(data_type, dims, layout)
    chosen = cudnnSoftmaxAlgorithm_t[f"CUDNN_SOFTMAX_{algorithm}"], cudnnSoftmaxMode_t[f"CUDNN_SOFTMAX_MODE_{mode}"]
    operation = SoftmaxBackward if backward else SoftmaxForward
    return operation(*chosen, 1.5, beta, tensor, tensor, *([tensor] * backward))


def check(backend, operation, plan):
    """Run and judge a plan. Inputs of ACCURATE overflow unless the kernel subtracts the maximum first."""
    memory = prepare(operation, "normal", 4)
    if operation.algorithm == cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_ACCURATE and "x" in memory:
        memory["x"].view(NUMBERS[operation.x.data_type])[:] += 800
    buffers = {name: backend.to_device(content) for name, content in memory.items()}
    plan([buffers[name] for name in operation.operands], backend.device.default_stream)
    backend.synchronize(None)
    output = operation.operands[-1]
    verdict = judge(operation, memory, {output: buffers[output].to_host(np.uint8, operation.nbytes(output))})
    assert verdict.agrees, verdict.worst


# The shapes have vectors and single elements, gaps and strides, short rows that share a tile, and rows that fill a
# block or a ring of tiles.
ROWS = [((2, 7, 9, 14), "gaps"), ((1, 48, 5, 4), "gaps"), ((1, 1021, 1, 1), "odd"), ((2, 5, 8, 16), "nchw"),
        ((300, 3, 1, 1), "nchw"), ((70, 67, 1, 1), "nchw"), ((40, 24, 1, 1), "nchw"), ((3, 9, 94, 13), "nchw"),
        ((2, 6, 50, 64), "nchw")]  # fmt: skip
STRIDED = [((2, 7, 9, 14), "gaps"), ((3, 64, 5, 4), "nchw"), ((2, 67, 3, 5), "nchw"), ((1, 130, 2, 8), "nchw"),
           ((2, 3, 5, 7), "gaps"), ((2, 4, 4, 8), "nchw"), ((2, 300, 8, 8), "nchw"), ((2, 1100, 2, 8), "nchw")]  # fmt: skip
CALLS = [*(("INSTANCE", *of) for of in ROWS), *(("CHANNEL", *of) for of in STRIDED)]


@pytest.mark.parametrize("algorithm, beta", [("FAST", 0.0), ("ACCURATE", 0.0), ("LOG", 0.5)])
@pytest.mark.parametrize("data_type", [FLOAT, HALF, DOUBLE], ids=lambda t: t.name.removeprefix("CUDNN_DATA_"))
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)
def test_each_solver_is_correct_for_all_that_it_serves(backend, solver, backward, data_type, algorithm, beta):
    served = 0
    for mode, dims, layout in CALLS:
        operation = operation_of(backward, algorithm, data_type, dims, layout, beta, mode)
        if solver.serves(SoftmaxProblem(operation, backend.device)):
            served += 1
            check(backend, operation, plan_by(operation, backend.device, solver.name))
    assert served


@pytest.mark.parametrize("solver, mode, dims, layout", [
    ("register_resident", "INSTANCE", (2, 5000, 1, 1), "nchw"),
    ("row_tiles", "INSTANCE", (2, 300, 1, 1), "nchw"), ("row_tiles", "INSTANCE", (2, 5, 4, 4), "gaps"),
], ids=str)  # fmt: skip
def test_long_rows_and_gaps_are_refused(backend, solver, mode, dims, layout):
    operation = operation_of(False, "ACCURATE", FLOAT, dims, layout, 0.0, mode)
    with pytest.raises(ValueError, match="does not serve"):
        plan_by(operation, backend.device, f"softmax.{solver}")
