"""Show the progress of a run of the suite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import pytest

from ..progress import Bar


class Progress:
    """Show the bar instead of a letter for each case, as a pytest plugin of the controlling process."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.bar = Bar("cases", stream=stream)
        self.done = self.failures = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.expect(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        self.expect(len(ids))

    def expect(self, count: int) -> None:
        """Set the number of cases."""
        self.bar.total = self.bar.total or count
        self.bar.started = self.bar.now()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_report_teststatus(self) -> Iterator[None]:
        """Count a case as pytest does, but write no letter."""
        outcome: Any = yield
        category, _, _ = outcome.get_result()
        outcome.force_result((category, "", ""))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Iterator[None]:
        """Clear the bar before a failure is reported."""
        if report.failed:
            self.bar.clear()
        yield
        self.done += report.when != "teardown"
        self.failures += report.failed
        self.bar.advance(self.done, f"{self.failures} failed" if self.failures else "none failed")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self.bar.clear()
