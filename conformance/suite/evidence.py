"""Keep what a case finds beyond passing or failing."""

from __future__ import annotations

from typing import Any

import pytest

from ..report import SHARPER
from ..solvers import Used
from ..trial import Trial


class Evidence:
    """Hold what a case found beyond passing or failing."""

    def __init__(self, item: Any, ours: bool) -> None:
        self.item, self.ours = item, ours
        self.error_ratio: float | None = None
        self.mistrusted: list[str] = []
        self.judged = 0  # number of judged output elements
        self.sharper: dict[str, float] = {}  # largest values of the sharper rules: norm_ratio, rms, bias
        self.suspect: list[str] = []  # sharper rules that outputs broke inside their worst case
        self.contradiction = ""  # why the declared difference does not explain this failure
        self.clauses: set[str] = set()
        self.used = Used()
        self.closed = False  # whether later calls run under faults

    def note(self, trial: Trial) -> None:
        if self.closed:
            return
        self.error_ratio = max(self.error_ratio or 0.0, trial.verdict.error_ratio)
        self.judged += trial.verdict.checked
        for errors in trial.verdict.errors.values():
            for name, value in zip(SHARPER, (errors.ratio, errors.rms, errors.bias), strict=True):
                if value:
                    self.sharper[name] = max(self.sharper.get(name, 0.0), round(value, 4))
        if trial.verdict.mistrusted:
            self.mistrusted.append(str(trial.operation))
        if trial.passed:
            self.suspect += trial.verdict.suspicions


EVIDENCE = pytest.StashKey[Evidence]()


def clauses_of(item: pytest.Item) -> set[str]:
    """Return the clauses that a case names, and those whose refusals it has checked."""
    evidence = item.stash.get(EVIDENCE, None)
    named = {clause for mark in item.iter_markers("shows") for clause in mark.args}
    return named | (evidence.clauses if evidence else set())
