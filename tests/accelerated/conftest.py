"""Provides a fixture that holds compilation until a test allows it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from dualdnn.accelerated.runtime import device as device_module


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
