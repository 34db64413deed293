"""Run the suite's cases on an imagined H100, with the modules of its wheel and no compiler (a pytest plugin).

Calls are planned and recorded, with their workspaces. Kernels do nothing, so that nobody judges the results:
cases that compare results themselves fail. The file that IMAGINED_REPORT names gets a line for each case with a
call that could not be served. Its last line has the number of plans.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dualdnn.accelerated import backend
from dualdnn.accelerated.runtime import devices
from dualdnn.accelerated.runtime.device import Function
from dualdnn.accelerated.runtime.emulated.device import EmulatedDevice
from dualdnn.accelerated.runtime.errors import NotBuilt
from dualdnn.conformance import trial
from dualdnn.conformance.kernels import build_ahead, kernel_wheel
from dualdnn.reference.judge import Verdict

REPORT = "IMAGINED_REPORT"
H100 = kernel_wheel.TARGETS["sm_90a"][1][0]


class Imagined(Function):
    """Stand for a kernel, and do nothing."""

    static_shared_bytes, maximum_threads = 0, 1024

    def __init__(self, device: ImaginedGpu, name: str) -> None:
        super().__init__()
        self.device, self.name, self.fields = device, name, {}

    def check(self, argument_bytes, shape):
        self.argument_bytes = argument_bytes
        super().check(argument_bytes, shape)

    def holds_clusters(self, grid, block, shared_bytes, clusters=1):
        return True

    def issue(self, arguments, shape, stream):
        pass


class ImaginedGpu(EmulatedDevice):
    """Combine the emulated device's memory, the limits of a GPU for planners, and the modules of a list."""

    kind, compiles_in_background = "gpu", True

    def __init__(self, gpu: Any, modules: set[build_ahead.Module]) -> None:
        super().__init__()
        self.architecture, self.multiprocessors = gpu.architecture, gpu.multiprocessors
        self.shared_bytes_per_block, self.shipped = gpu.shared_bytes_per_block, modules

    def module_definitions(self, source_name, kernel_name, definitions):
        return definitions

    def obstacle(self):
        return "no compiler"

    def function_when_ready(self, source_name, kernel_name, definitions=()):
        return self.function(source_name, kernel_name, definitions)

    def tensor_map(self, wanted, address):
        return bytes(128)

    def _load(self, source_name, definitions):
        if (source_name, tuple(definitions)) not in self.shipped:
            raise NotBuilt(f"{source_name} {dict(definitions)} is in no wheel")
        return source_name

    def _find(self, module, kernel_name):
        return Imagined(self, kernel_name)


def pytest_configure() -> None:
    """Replace the emulated device by the imagined GPU, and judge nothing that it computes."""
    devices._devices["emulated", 0] = ImaginedGpu(H100, modules())
    trial.judge = lambda *_, **__: Verdict()
    backend.Clock = lambda *_: SimpleNamespace(
        seconds=lambda work: work() or 1e-5, median=lambda work, *_: work() or 1e-5
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    outcome = yield
    error = outcome.excinfo and outcome.excinfo[1]
    while error:
        if isinstance(error, NotBuilt) or "has its kernels" in str(
            error
        ):  # A level of reproducibility then refuses the call.
            noted(f"{item.nodeid}: {error}")
        error = error.__cause__ or error.__context__


def pytest_sessionfinish() -> None:
    noted(f"{len(devices._devices['emulated', 0].plans)} plans")


def modules() -> set[build_ahead.Module]:
    """Return the modules of the parts of the wheel that the cases need."""
    parts = (kernel_wheel.BUILT, "convolutions", "depthwise_convolution")
    return {module for part in parts for module in kernel_wheel.listed(H100, part)}


def noted(line: str) -> None:
    """Append a line to the report."""
    with Path(os.environ[REPORT]).open("a", encoding="utf-8") as report:
        report.write(f"{line}\n")
