"""Replaces a device while operations are planned, and records the modules of their kernels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

Module = tuple[str, tuple[tuple[str, str], ...]]  # source file and macro definitions


class Listing:
    """Act as a device that compiles nothing and lists the modules it is asked for."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.modules: dict[Module, None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    def function(self, source: str, kernel: str, definitions: tuple[tuple[str, str], ...] = ()) -> Any:
        self.modules[source, self.device.module_definitions(source, kernel, tuple(definitions))] = None
        return SimpleNamespace(static_shared_bytes=0, maximum_threads=1024, holds_clusters=lambda *_: True)

    def function_when_ready(self, source: str, kernel: str, definitions: tuple[tuple[str, str], ...] = ()) -> Any:
        """Return the result of function(): a listed module is never being compiled."""
        return self.function(source, kernel, definitions)

    optional_function = function_when_ready

    def obstacle(self) -> str:
        """Return an empty text: every module counts as available."""
        return ""
