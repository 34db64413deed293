"""Run cases in a worker of a Dask cluster.

One session of pytest lasts as long as the process, and runs a case on request. ``collected`` and ``outcome`` are the
tasks. The session has its own thread, because it waits inside pytest between two cases.
"""

from __future__ import annotations

import os
import queue
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import _prepareconfig

from ..provenance import commit
from .files import CASES, case_files
from .items import id_of, opened, subject_of
from .selection import with_subject
from .workers import FOLDER

Reports = list[dict[str, Any]]  # The reports of one case are its setup, call and teardown, as JSON has them.
Ids = dict[str, tuple[str, str]]  # Each id of pytest stands for a case and the name of its subject.
PLUGINS = ("dualdnn.conformance.plugin", "no:terminal", "no:cacheprovider", "no:hypothesispytest", "no:benchmark")


class CollectionError(RuntimeError):
    """Say that the cases could not be collected."""


class Cases:
    """Hold the session of this process."""

    def __init__(self, options: Sequence[str], expected: str) -> None:
        self.asked: queue.Queue[str] = queue.Queue()
        self.answers: queue.Queue[Reports | Ids | Exception] = queue.Queue()
        self.reports: Reports = []
        self.folder = tempfile.mkdtemp(prefix="dualdnn-worker-")
        self.options = [
            *options,
            *(text for name in PLUGINS for text in ("-p", name)),
            "--rootdir",
            str(CASES),
            "-c",
            os.devnull,
        ]
        if expected:
            Path(self.folder, "expected.txt").write_text(expected, encoding="utf-8")
            self.options += ["--expected", str(Path(self.folder, "expected.txt"))]
        threading.Thread(target=self._run, daemon=True).start()
        found = self.answers.get()
        if isinstance(found, Exception):
            raise found
        self.ids: Ids = found  # type: ignore[assignment]  # the first answer has the ids

    def _run(self) -> None:
        try:
            config = _prepareconfig([*self.options, *map(str, case_files())], [self])
            status = config.hook.pytest_cmdline_main(config=config)
            raise CollectionError(f"pytest ended with status {status}")
        except BaseException as error:
            self.answers.put(CollectionError(f"no cases can be run here: {error!r}"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        self.config = config
        config.workerinput = {FOLDER: self.folder, "workerid": "cases"}  # type: ignore[attr-defined]  # as xdist has it

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the cases that are asked for, one at a time, until the process ends."""
        items = {item.nodeid: item for item in with_subject(session.items)}
        self.answers.put({nodeid: (id_of(item), opened(subject_of(item) or "").name) for nodeid, item in items.items()})
        while True:
            item, self.reports = items[self.asked.get()], []
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
            self.answers.put(self.reports)

    @pytest.hookimpl(trylast=True)  # This runs after the hooks that complete the report.
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(self.config.hook.pytest_report_to_serializable(config=self.config, report=report))

    def outcome(self, case: str) -> Reports:
        """Return the reports of a case."""
        self.asked.put(case)
        found = self.answers.get()
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[return-value]  # every answer but the first has reports


SESSIONS: dict[tuple[Any, ...], Cases] = {}


def session_of(options: Sequence[str], expected: str) -> Cases:
    """Return the session of this process for these options; the first call begins it."""
    key = (*options, expected)
    if key not in SESSIONS:
        SESSIONS[key] = Cases(options, expected)
    return SESSIONS[key]


def collected(options: Sequence[str], expected: str) -> tuple[str, Ids]:
    """Return the commit of the worker's package, and the cases that it would run."""
    return commit(), session_of(options, expected).ids


def outcome(options: Sequence[str], expected: str, case: str) -> Reports:
    """Run a case, and return its reports."""
    return session_of(options, expected).outcome(case)
