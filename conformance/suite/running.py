"""Run a case, and report its call, and its setup and teardown if they failed or skipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from ..subjects import NotRunnable
from .items import opened, subject_of
from .results import add_result
from .workers import MISCONDUCT

GPU_ONLY = "this subject computes on a GPU only, and there is none"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run a case; report its call, and its setup and teardown if they failed or skipped.

    Each report costs the controlling process more time than many a case takes.
    """
    if _lacks_a_gpu(item):
        report = pytest.TestReport(
            item.nodeid, item.location, {}, "skipped", (str(item.path), 0, f"Skipped: {GPU_ONLY}"), "setup"
        )
        add_result(item, report)
        item.ihook.pytest_runtest_logreport(report=report)
        # This tears down what the previous case left for its neighbours.
        item.session._setupstate.teardown_exact(nextitem)
        return True
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or report.outcome != "passed":
            report.keywords = {}
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def _lacks_a_gpu(item: pytest.Item) -> bool:
    """Return whether the case would be skipped for lack of a handle. Thousands of such cases then need no setup."""
    name = subject_of(item)
    if name is None or "handle" not in getattr(item, "fixturenames", ()) or opened(name).computes:
        return False
    return not any(item.iter_markers("skip")) and not any(item.iter_markers("skipif"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if subject_of(item) is None:
        return
    if call.excinfo is not None and call.excinfo.errisinstance(NotRunnable):
        report.outcome, report.longrepr = (
            "skipped",
            (str(item.path), 0, f"not runnable on this subject: {call.excinfo.value}"),
        )
    if report.when != "call" and report.outcome == "passed" and MISCONDUCT not in item.stash:
        return
    add_result(item, report)
