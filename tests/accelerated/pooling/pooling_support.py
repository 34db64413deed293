"""Provides a stand-in for a device, and the judge of a plan on the emulated device, for the tests of the pooling
room."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from dualdnn.accelerated.backend import DeviceOperand
from dualdnn.accelerated.pooling.problem import PoolingProblem
from dualdnn.accelerated.solver import plan_by
from dualdnn.conformance.cases.pooling.pooling_static_windows import backward_operations, forward_operations, with_ties
from dualdnn.reference import judge


class PlanningDevice:
    """Stands for a device while calls are planned, and notes the kernels that plans ask for."""

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
    """Return forward calls and gradients: maxima with and without NaN, averages, with and without factors."""
    forward, gradients = (
        list(make(window, data_type, dims, layout)) for make in (forward_operations, backward_operations)
    )
    return [*forward, *gradients, *(replace(gradient, alpha=1.0, beta=0.0) for gradient in gradients[:2])]


def kernel_of(operation: Any, only: str, multiprocessors: int = 132) -> str:
    """Return the kernel by which a solver serves an operation."""
    device = PlanningDevice(multiprocessors)
    plan_by(operation, device, only)
    return device.kernels[0]


def problem_of(operation: Any, multiprocessors: int = 132, aligned: bool = True) -> PoolingProblem:
    return PoolingProblem(operation, PlanningDevice(multiprocessors), aligned)


def assert_agrees(
    backend: Any, operation: Any, plan: Any, memory: dict[str, Any] | None = None, shift: int = 0
) -> None:
    """Run a plan on operands ``shift`` bytes behind aligned addresses, and judge its output."""
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
