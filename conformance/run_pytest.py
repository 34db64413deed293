"""Run pytest, and translate its exit status for a command of ``dualdnn``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from .guarded import INTERRUPTED

STATUSES: dict[int, int] = {pytest.ExitCode.OK: 0, pytest.ExitCode.TESTS_FAILED: 1}


class Interrupts:
    """Record that a user interrupted a run. pytest's own status would mean cases that cannot be imported."""

    noted = False

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self.noted = excinfo.type is KeyboardInterrupt


def run_pytest(options: Sequence[str], plugins: Sequence[Any] = ()) -> int:
    """Run pytest. Return 0, 1 if a case failed, 2 if cases could not run, or INTERRUPTED if a user stopped them."""
    interrupts = Interrupts()
    status = pytest.main([*options], plugins=[*plugins, interrupts])
    return INTERRUPTED if interrupts.noted else STATUSES.get(status, 2)
