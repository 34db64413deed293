"""A run of pytest and its exit status as a command of ``dualdnn`` has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from .guarded import INTERRUPTED

STATUSES: dict[int, int] = {pytest.ExitCode.OK: 0, pytest.ExitCode.TESTS_FAILED: 1}


class Interrupts:
    """Notes that somebody stopped a run, for which pytest's own status is that of cases which cannot be imported."""

    noted = False

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.noted = excinfo.type is KeyboardInterrupt


def run_pytest(options: Sequence[str], plugins: Sequence[Any] = ()) -> int:
    """0, 1 where a case failed, 2 where cases could not run, INTERRUPTED where somebody stopped them."""
    interrupts = Interrupts()
    status = pytest.main([*options], plugins=[*plugins, interrupts])
    return INTERRUPTED if interrupts.noted else STATUSES.get(status, 2)
