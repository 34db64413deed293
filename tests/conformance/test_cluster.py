"""Test that ``--scheduler`` runs the suite on the workers of a Dask cluster. The first test takes 30 s."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dualdnn.conformance.suite import cluster
from dualdnn.conformance.suite.cluster import Cluster
from dualdnn.conformance.suite.journal import entries

COMMAND = [sys.executable, "-m", "dualdnn.conformance", "conformance", "--subject", "reference", "--tier", "smoke"]
ALONE = "; the case passes alone"


def results(folder: Path) -> list[dict[str, Any]]:
    return entries(folder / "results.jsonl")[1] if (folder / "results.jsonl").exists() else []


def told(found: list[dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """Return case -> outcome, clauses, judged numbers and worst error."""
    return {one["id"]: (one["outcome"], one["clauses"], one["judged"], one["error_ratio"]) for one in found}


def killed_at_work(nannies: list[Any], watch: Any, run: subprocess.Popen[str]) -> bool:
    """Kill a worker that has a case, and return whether one was found. SIGSTOP comes first, so that its case does not end meanwhile."""
    while run.poll() is None:
        for nanny in nannies:
            os.kill(nanny.pid, signal.SIGSTOP)
            time.sleep(0.3)  # Its messages arrive meanwhile.
            if any("outcome" in str(key) for key in watch.processing().get(nanny.worker_address, ())):
                os.kill(nanny.pid, signal.SIGKILL)
                return True
            os.kill(nanny.pid, signal.SIGCONT)
            time.sleep(0.1)
    return False


@pytest.mark.long
def test_a_cluster_finds_what_one_machine_finds_and_blames_a_case_for_the_worker_that_ends(tmp_path):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'dualdnn[cluster]'")
    chosen = [*COMMAND, "-k", "softmax or transform"]
    local = subprocess.run([*chosen, "--jobs", "1", "--out", tmp_path / "local"], capture_output=True, text=True)
    assert local.returncode == 0, local.stdout + local.stderr
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as workers:
        there = [*chosen, "--scheduler", workers.scheduler_address, "--out", tmp_path / "there"]
        run = subprocess.Popen(there, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with distributed.Client(workers.scheduler_address, set_as_default=False) as watch:
            assert killed_at_work(list(workers.workers.values()), watch, run)
        said, _ = run.communicate(timeout=240)
    expected, found = told(results(tmp_path / "local")), results(tmp_path / "there")
    ended = [one for one in found if one["outcome"] == "failed"]
    assert run.returncode == 1 and len(ended) == 1, said
    assert ended[0]["message"].endswith(ALONE) and ended[0]["message"].startswith("the subject was judged by a worker")
    assert sorted(one["id"] for one in found) == sorted(expected)
    others = told([one for one in found if one not in ended])
    assert others == {case: value for case, value in expected.items() if case != ended[0]["id"]}
    report = json.loads((tmp_path / "there" / "compliance.json").read_bytes())
    assert report["environment"]["state"] == "partial"


@pytest.fixture
def made(monkeypatch):
    """Return a cluster of pretended workers, and the list of reports that pytest gets."""
    reports: list[Any] = []
    hook = SimpleNamespace(
        pytest_runtest_logreport=lambda report: reports.append(report),
        pytest_report_from_serializable=lambda config, data: SimpleNamespace(**data),
    )
    config = SimpleNamespace(
        getoption=lambda name: {"--scheduler": "there", "--case": [], "--subject": ["reference"]}.get(name),
        hook=hook,
        stash=pytest.Stash(),
    )
    client = SimpleNamespace(run_on_scheduler=lambda function: None)
    monkeypatch.setattr(cluster, "client_of", lambda address: client)
    return Cluster(config), reports


class Task:
    """Stand in for a task that has not ended."""

    def add_done_callback(self, function: Any) -> None: ...


def outcome(name: str) -> dict[str, Any]:
    properties = [("conformance", {"clauses": ["cudnnStatus_t/c05"]})]
    return {"failed": name == "failed", "when": "call", "user_properties": properties}


@pytest.mark.parametrize("alone, said", [("passed", "passes alone"), ("failed", "fails alone, too")])
def test_a_case_fails_if_its_worker_ended_even_if_it_passes_alone(made, alone, said):
    running, reports = made
    running.running = {"first": ("one", "a.py::test_b")}
    running._ended("first", "one", "a.py::test_b")
    assert not reports and list(running.again) == ["a.py::test_b"]
    running.again.clear()
    running._report("a.py::test_b", [outcome(alone)])
    assert [report.when for report in reports] == ["call", "???"]
    assert reports[-1].failed and said in reports[-1].longrepr and "one" in reports[-1].longrepr
    assert running.config.stash[cluster.ENDED].clauses == ("cudnnStatus_t/c05",)


def test_a_case_that_ends_two_workers_is_not_run_a_third_time(made):
    running, reports = made
    for future, worker in (("first", "one"), ("second", "two")):
        running.running = {future: (worker, "a.py::test_b")}
        running.again.clear()
        running._ended(future, worker, "a.py::test_b")
    assert not running.again and not running.todo and len(reports) == 1
    assert "one and, alone, two" in reports[0].longrepr


def test_a_new_worker_first_gets_the_case_that_has_to_run_alone(made):
    running, _ = made
    given: list[tuple[str, str]] = []

    def submit(function, options, expected, case, *, workers, **others):
        given.append((workers[0], case))
        return Task()

    running.client.submit = submit
    running.ready, running.used = {"old", "new"}, {"old"}
    running.todo.extend(["c", "d"])
    running.again["b"] = time.monotonic()
    running._give()
    assert sorted(given) == [("new", "b"), ("old", "c")]


@pytest.mark.parametrize("there, ids, message", [
    ("another commit", {"a": ("a", "reference")}, "one commit is due"), (None, {"b": ("b", "reference")}, "they differ"),
])  # fmt: skip
def test_a_worker_with_other_sources_or_cases_is_refused(made, there, ids, message):
    running, _ = made
    running.ids = {"a": ("a", "reference")}
    future = SimpleNamespace(status="finished", result=lambda: (there or cluster.commit(), ids))
    with pytest.raises(pytest.UsageError, match=f"worker tcp://two has .*{message}"):
        running._welcome("tcp://two", future)
    assert not running.ready


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(pytest.UsageError, match=r"pip install 'dualdnn\[cluster\]'"):
        cluster.client_of("tcp://nowhere:1")
