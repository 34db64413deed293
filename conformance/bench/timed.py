"""Runs the rows as cases of pytest-benchmark, with the device's clock as its timer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .measure import Bench, with_floor
from .row import Row

KEPT_ROWS = 10  # rows that are written together


class BenchPlugin:
    """Runs the chosen rows on one bench and keeps the results."""

    def __init__(self, bench: Bench, rows: list[Row], keep: Callable[[list[dict[str, Any]]], None]) -> None:
        self.bench, self.rows, self.keep = bench, rows, keep  # ``keep`` writes the results so far.
        self.results: list[dict[str, Any]] = []
        self.ceilings = bench.ceilings()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "row" in metafunc.fixturenames:
            metafunc.parametrize("row", self.rows, ids=[row.name.replace(" ", "_") for row in self.rows])

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            item.add_marker(pytest.mark.benchmark(timer=self.bench.clock.now))

    @pytest.fixture
    def timed(self, benchmark: Any, row: Row) -> dict[str, Any]:
        result = with_floor(self.bench.measure(row, benchmark), self.ceilings)
        benchmark.extra_info.update(result)
        self.results.append(result)
        if len(self.results) % KEPT_ROWS == 0:
            self.keep(self.results)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            done = len(self.results)
            print(f"\r{done} of {len(self.rows)} rows", end="" if done < len(self.rows) else "\n", flush=True)


def test_row(timed: dict[str, Any]) -> None:
    """Measure one row, and require a time."""
    assert timed["ours_us"], timed["message"]
