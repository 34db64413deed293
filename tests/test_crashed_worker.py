"""A worker that dies: its case is listed once, as failed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from dualdnn.conformance import plugin

PASSED = {"id": "pooling/test_formula", "subject": "reference", "outcome": "passed"}


def report(when: str, *results: dict[str, str]) -> pytest.TestReport:
    outcome = "passed" if results else "failed"
    properties = [("conformance", result) for result in results]
    return pytest.TestReport(
        "pooling.py::test_formula[reference]", ("", 0, ""), {}, outcome, None, when, user_properties=properties
    )


@pytest.mark.parametrize("passed_before", [False, True])
def test_the_case_that_ended_a_worker_is_listed_once_as_failed(monkeypatch, passed_before):
    monkeypatch.setitem(plugin._OPENED, "reference", SimpleNamespace(name="reference"))
    collector = plugin.Collector(None)
    other = {**PASSED, "id": "pooling/test_other"}
    for results in [[other], [PASSED]][: 1 + passed_before]:
        collector.pytest_runtest_logreport(report("call", *results))
    collector.pytest_runtest_logreport(report("???"))
    assert [(r["id"], r["outcome"]) for r in collector.results] == [
        (other["id"], "passed"),
        (PASSED["id"], "failed"),
    ]
