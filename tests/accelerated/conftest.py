"""Provide a compiler that waits for the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from dualdnn.accelerated.runtime import device as device_module


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Return an event, and hold the compiler until it is set."""
    opened, build = threading.Event(), device_module.build

    def slow(*arguments: Any, **options: Any) -> Any:
        opened.wait(60)
        return build(*arguments, **options)

    monkeypatch.setattr(device_module, "build", slow)
    yield opened
    opened.set()
