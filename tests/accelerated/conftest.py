"""Provides plans of every kind of operation, and a fixture that holds compilation until a test allows it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from dualdnn.accelerated.plans import plan
from dualdnn.accelerated.runtime import device as device_module
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.conformance.kernels.build_ahead import Listing, kinds


class Named(Listing):
    """Stands in for a device; its functions take any arguments and tell which kernel they are."""

    def function(self, source: Any, kernel: str, definitions: Any = ()) -> Any:
        limits = {"static_shared_bytes": 0, "maximum_threads": 1024, "holds_clusters": lambda *_: True}
        return SimpleNamespace(
            **limits, check=lambda *_: None, in_shape=lambda _: None, what=(source, kernel, tuple(definitions))
        )


@pytest.fixture(scope="session")
def planned_kinds() -> tuple[Named, list[tuple[Any, Any]]]:
    """Return a device that names kernels, and an operation with its plan for each kind, solver and data type."""
    device, found = Named(open_device("emulated")), {}
    for operation in kinds(device.device):
        made = plan(operation, device)
        key = (type(operation), made.solver, operation.tensor(operation.outputs[0]).data_type)
        found.setdefault(key, (operation, made))
    return device, [*found.values()]


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold every compilation until the returned event is set."""
    opened, build = threading.Event(), device_module.build

    def slow(*arguments: Any, **options: Any) -> Any:
        opened.wait(60)
        return build(*arguments, **options)

    monkeypatch.setattr(device_module, "build", slow)
    yield opened
    opened.set()
