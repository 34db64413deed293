"""Stands for a device while operations are planned, and notes which modules their kernels are in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

Module = tuple[str, tuple[tuple[str, str], ...]]  # a source and its preprocessor definitions


class Listing:
    """A device whose kernels are never compiled."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.modules: dict[Module, None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    def function(self, source: str, kernel: str, definitions: tuple[tuple[str, str], ...] = ()) -> Any:
        self.modules[source, self.device.module_definitions(source, kernel, tuple(definitions))] = None
        return SimpleNamespace(static_shared_bytes=0, maximum_threads=1024, holds_clusters=lambda *_: True)

    def function_when_ready(self, source: str, kernel: str, definitions: tuple[tuple[str, str], ...] = ()) -> Any:
        """Return what stands for a kernel, as function() does: none is ever being compiled."""
        return self.function(source, kernel, definitions)

    optional_function = function_when_ready

    def obstacle(self) -> str:
        """Return nothing: no module is missed."""
        return ""
