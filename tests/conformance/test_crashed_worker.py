"""Test that the case of a worker that dies is listed once, as failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from dualdnn.conformance import plugin
from dualdnn.conformance.corpus import collecting as corpus
from dualdnn.conformance.refusals import collecting as refusals
from dualdnn.conformance.suite import workers
from dualdnn.conformance.suite.collector import Collector
from dualdnn.conformance.suite.items import OPENED
from dualdnn.conformance.suite.results import crashed
from dualdnn.conformance.suite.workers import Ended

PASSED = {
    "id": "pooling/test_formula", "subject": "reference", "clauses": [], "seconds": 0.0, "error_ratio": None,
    "mistrusted": [], "suspect": [], "outcome": "passed", "message": "", "known": "", "reproduction": "",
}  # fmt: skip


def report(when: str, *results: dict[str, Any]) -> pytest.TestReport:
    outcome = "passed" if results else "failed"
    properties = [("conformance", result) for result in results]
    return pytest.TestReport(
        "pooling.py::test_formula[reference]", ("", 0, ""), {}, outcome, None, when, user_properties=properties
    )


@pytest.fixture
def session(monkeypatch):
    """Return a collector of a run without expected failures, and the lines that it shows."""
    monkeypatch.setitem(OPENED, "reference", SimpleNamespace(name="reference"))
    shown: list[str] = []
    terminal = SimpleNamespace(ensure_newline=lambda: None, write_line=shown.append)
    collector = Collector(
        SimpleNamespace(
            pluginmanager=SimpleNamespace(getplugin={"terminalreporter": terminal}.get),
            stash=pytest.Stash(),
            getoption=lambda name: None,
        )
    )
    return collector, shown


@pytest.mark.parametrize("collecting, name", [(refusals, "pooling.toml"), (corpus, "pooling.jsonl")])
def test_a_case_of_a_table_that_ended_a_worker_is_listed_by_its_id(request, monkeypatch, collecting, name):
    """xdist tells only pytest's id, so that this id must name the file, whatever pytest's root is."""
    monkeypatch.setitem(OPENED, "reference", SimpleNamespace(name="reference"))
    module = collecting.pytest_collect_file(collecting.FOLDER / name, request.session)
    assert module.nodeid == f"{collecting.FOLDER.name}/{name}"
    nodeid = f"{module.nodeid}::test_formula[reference-3]"
    ended = pytest.TestReport(nodeid, ("", 0, ""), {}, "failed", None, "???")
    assert crashed(ended, ["reference"], Ended())["id"] == "pooling/test_formula[3]"


@pytest.mark.parametrize("passed_before", [False, True])
def test_the_case_that_ended_a_worker_is_listed_once_as_failed(session, passed_before):
    collector, shown = session
    other = {**PASSED, "id": "pooling/test_other"}
    for results in [[other], [PASSED]][: 1 + passed_before]:
        collector.pytest_runtest_logreport(report("call", *results))
    collector.pytest_runtest_logreport(report("???"))
    assert [(r["id"], r["outcome"]) for r in collector.results] == [
        (other["id"], "passed"),
        (PASSED["id"], "failed"),
    ]
    command, message = shown  # Only the failed case is shown, at once.
    assert command.startswith("failed: dualdnn conformance") and PASSED["id"] in command and "process down" in message


@pytest.mark.parametrize("when", ["teardown", "???"])
@pytest.mark.parametrize("known", ["", "some difference"])
def test_a_case_that_fails_twice_has_both_failures_in_one_entry(session, when, known):
    """Failures of the call and after it stay in one entry. The entry is known only if both are known."""
    collector, _ = session
    collector.pytest_runtest_logreport(
        report("call", {**PASSED, "outcome": "failed", "message": "wrong", "known": known})
    )
    left = (
        [{**PASSED, "outcome": "failed", "message": "not destroyed", "known": "another"}] if when == "teardown" else []
    )
    collector.pytest_runtest_logreport(report(when, *left))
    (found,) = collector.results
    said, judged = {"teardown": ("not destroyed", "another" * bool(known)), "???": ("took its process down", "")}[when]
    assert found["outcome"] == "failed" and found["known"] == judged
    assert found["message"].startswith("wrong\n") and said in found["message"]


@pytest.mark.parametrize("outcome", ["failed", "skipped", "passed"])
def test_a_case_that_fails_and_ends_its_device_ends_its_worker(monkeypatch, tmp_path, outcome):
    """Otherwise each later case of the worker would fail. A failure that is known counts as skipped."""

    def no_handle():
        raise MemoryError

    monkeypatch.setitem(OPENED, "gpu", SimpleNamespace(computes=True, new_handle=no_handle))
    monkeypatch.setattr(workers, "clauses_of", lambda _: set())
    monkeypatch.setattr(workers.os, "_exit", lambda status: pytest.exit("ended"))
    item = SimpleNamespace(callspec=SimpleNamespace(params={"subject": "gpu"}))
    watched = workers.Watched(tmp_path / "gw0", 60, [])
    protocol = watched.pytest_runtest_protocol(item)
    next(protocol)
    called = report("call")
    called.outcome = outcome
    watched.pytest_runtest_logreport(called)
    with pytest.raises(StopIteration if outcome == "passed" else pytest.exit.Exception):
        protocol.send(SimpleNamespace(excinfo=None))
    node = SimpleNamespace(
        gateway=SimpleNamespace(id="gw0", _io=SimpleNamespace(popen=SimpleNamespace(wait=lambda _: 1, pid=1)))
    )
    ended = workers.Workers._ended(SimpleNamespace(folder=SimpleNamespace(name=tmp_path), ended_here={}), node)
    assert (ended.how == workers.LOST) == (outcome != "passed")


@pytest.mark.parametrize("said", ["pooling.py::test_formu", "poo", ""])
def test_a_damaged_case_name_is_a_finding_of_the_library(monkeypatch, said):
    """A library that writes into its process's memory may damage the name that the process reports."""
    monkeypatch.setitem(OPENED, "library:/l.so", SimpleNamespace(name="library-8003"))
    died = pytest.TestReport(said, ("", 0, ""), {}, "failed", None, "???")
    found = crashed(died, ["reference", "library:/l.so"], Ended("ended the process by signal 6 (SIGABRT)"))
    assert (found["subject"], found["outcome"]) == ("library-8003", "failed") and "SIGABRT" in found["message"]


def test_the_long_path_of_a_library_is_in_the_names_of_its_cases():
    """pytest leaves long values out of names that it makes. Then no case would be found, nor the library of a crashed one."""
    path, given = f"library:/{'long/' * 40}l.so", {}
    definition = SimpleNamespace(iter_markers=lambda _: iter(()))
    config = SimpleNamespace(getoption=lambda _: [path])
    metafunc: Any = SimpleNamespace(
        fixturenames=["subject"],
        config=config,
        definition=definition,
        parametrize=lambda *_, **named: given.update(named),
    )
    plugin.pytest_generate_tests(metafunc)
    assert given["ids"] == [path]


def test_a_crash_that_is_expected_does_not_fail_the_run(monkeypatch, tmp_path):
    listed = tmp_path / "expected.txt"
    listed.write_text("reference pooling/test_formula\n")
    monkeypatch.setitem(OPENED, "reference", SimpleNamespace(name="reference"))
    config = SimpleNamespace(
        pluginmanager=SimpleNamespace(getplugin=lambda _: None),
        stash=pytest.Stash(),
        getoption={"--expected": str(listed)}.get,
    )
    collector, died = Collector(config), report("???")
    collector.pytest_runtest_logreport(died)
    assert died.outcome == "skipped" and collector.results[0]["known"] == "expected failure"
