"""Provides a stand-in for a device, and a judge of plans on the emulated device, for the tests of pooling."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from dualdnn.accelerated.backend import DeviceOperand
from dualdnn.accelerated.pooling.problem import PoolingProblem
from dualdnn.accelerated.solver import plan_by
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.operations import PoolingBackward, PoolingForward
from dualdnn.conformance.cases.pooling.pooling import AVERAGES, MAXIMA, Geometry, backward, forward
from dualdnn.conformance.domains.pieces import Drawn
from dualdnn.conformance.domains.pooling import before
from dualdnn.conformance.trial import prepare
from dualdnn.reference import judge


class PlanningDevice:
    """Stands in for a device while calls are planned, and records the kernels that plans request."""

    architecture, kind, name = "sm_90", "gpu", "stand-in"
    compiles_in_background = False
    shared_bytes_per_block = 232448

    def __init__(self, multiprocessors: int = 132) -> None:
        self.multiprocessors = multiprocessors
        self.kernels: list[str] = []
        self.modules: set[tuple[str, Any]] = set()

    def obstacle(self) -> str:
        return ""

    def function(self, source: str, kernel: str, definitions: Any = ()) -> Any:
        self.kernels.append(kernel)
        self.modules.add((source, definitions))
        return SimpleNamespace(static_shared_bytes=0, maximum_threads=1024, holds_clusters=lambda *_: True)


def operations_of(window: tuple[int, int, int], data_type: Any, dims: Any, layout: str) -> list[Any]:
    """Return forward calls and gradients: maxima with and without NaN propagation, averages, several alpha and beta."""
    size, stride, padding = window
    rank = len(dims) - 2
    of = Geometry(dims, (size,) * rank, (padding,) * rank, (stride,) * rank), data_type, layout, layout
    nan = Nan.CUDNN_PROPAGATE_NAN
    gradients = [
        backward(MAXIMA[0], *of, nan=nan, alpha=-1.5, beta=0.5), backward(MAXIMA[1], *of, beta=1.0),
        backward(AVERAGES[0], *of), backward(AVERAGES[1], *of, alpha=0.5, beta=-1.0),
    ]  # fmt: skip
    return [
        forward(MAXIMA[0], *of, nan=nan), forward(MAXIMA[1], *of, alpha=-1.5, beta=0.5), forward(AVERAGES[0], *of),
        forward(AVERAGES[1], *of, alpha=0.5, beta=-1.0), *gradients,
        *(replace(gradient, alpha=1.0, beta=0.0) for gradient in gradients[:2]),
    ]  # fmt: skip


def with_ties(operation: PoolingForward | PoolingBackward, inputs: str = "ties_and_nan") -> dict[str, Any]:
    """Return operands with ties and NaN in x, or other ``inputs``; y of a gradient is the forward result."""
    kinds = {"x": inputs}
    return before(Drawn((operation,), kinds), 0) or prepare(operation, kinds, 0)


def kernel_of(operation: Any, only: str, multiprocessors: int = 132) -> str:
    """Return the name of the first kernel that a solver requests for an operation."""
    device = PlanningDevice(multiprocessors)
    plan_by(operation, device, only)
    return device.kernels[0]


def problem_of(operation: Any, multiprocessors: int = 132, aligned: bool = True) -> PoolingProblem:
    return PoolingProblem(operation, PlanningDevice(multiprocessors), aligned)


def assert_agrees(
    backend: Any, operation: Any, plan: Any, memory: dict[str, Any] | None = None, shift: int = 0
) -> None:
    """Run a plan on operands ``shift`` bytes past aligned addresses, and judge its output."""
    memory = memory or with_ties(operation)
    buffers = {name: backend.allocate(content.nbytes + shift) for name, content in memory.items()}
    for name, content in memory.items():
        backend.device.upload(buffers[name].address + shift, content.tobytes())
    operands = [DeviceOperand(buffers[n].address + shift, None) if n in buffers else None for n in operation.operands]
    plan(operands, backend.device.default_stream)
    (output,) = operation.outputs
    size = memory[output].size
    after = {output: buffers[output].to_host("uint8", size + shift)[shift:]}
    verdict = judge(operation, memory, after)
    assert verdict.agrees, verdict.explanation()
