"""Record the calls of a run (``--record``)."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

import pytest

from ..recorded.recorder import Recorder, merge, save
from ..subjects import is_recorded
from .items import opened, runs_cases, subject_names


class Recording:
    """Record the calls of this process. Workers write parts, and the controlling process joins them."""

    def __init__(self, config: pytest.Config) -> None:
        names = subject_names(config)
        if len(names) != 1 or is_recorded(names[0]):
            raise pytest.UsageError(f"--record takes one subject whose calls can be made, not {', '.join(names)}")
        self.path = Path(config.getoption("--record"))
        self.worker = getattr(config, "workerinput", {}).get("workerid")
        self.recorder: Recorder | None = None
        if runs_cases(config):
            self.subject = opened(names[0])
            self.recorder = self.subject.cudnn = Recorder(self.subject.cudnn)  # type: ignore[misc]
        if self.worker is None:
            for part in self._parts():  # A killed run left these parts; they hold no calls of this run.
                part.unlink()

    def _parts(self) -> list[Path]:
        return sorted(self.path.parent.glob(f"{glob.escape(self.path.name)}.*.part"))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        own = self.path.with_name(f"{self.path.name}.{self.worker or 'main'}.part")
        if self.recorder and self.recorder.records:
            save(own, self.subject, self.recorder.records)
        if self.worker is None:
            self.written = merge(self.path, self._parts())

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.write_line(f"recorded: {self.written} calls in {self.path}")
