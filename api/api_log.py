"""API logging (3.2.41, 3.2.79): callbacks, severity mask, the environment variables."""

from __future__ import annotations

from typing import Any

from .document import Function

active = False


def log_call(function: Function, arguments: tuple[Any, ...]) -> None:
    """Emit the record of one call."""
