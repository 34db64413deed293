"""Run every case once per subject under pytest, and collect the data of the report.

Cases get ``subject`` (what is judged), ``cudnn`` (its functions), ``handle`` and ``caller`` (calls.Caller). ``trial``
runs an operation and judges it; ``refuses`` checks that a call raises a status and cites a clause.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .solvers import PREFERRED, unknown_solvers
from .subjects import is_recorded
from .suite.cluster import Cluster
from .suite.collector import Collector, earlier_results
from .suite.evidence import clauses_of
from .suite.items import opened, runs_cases, subject_names
from .suite.prove import Faulty, Proving
from .suite.recording import Recording
from .suite.selection import proven_elsewhere
from .suite.workers import CASE_SECONDS, FOLDER, Watched, Workers
from .tiers import FULL

pytest_plugins = [
    "dualdnn.conformance.suite.fixtures",
    "dualdnn.conformance.suite.graph_fixtures",
    "dualdnn.conformance.suite.running",
    "dualdnn.conformance.suite.selection",
    "dualdnn.conformance.suite.workers",
    "dualdnn.conformance.suite.miopen_fixtures",
    "dualdnn.conformance.refusals.collecting",
    "dualdnn.conformance.corpus.collecting",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--subject", action="append", default=[], help="what to judge; may be repeated")
    group.addoption("--case", action="append", default=[], help="run only the case with this id; may be repeated")
    group.addoption("--every", type=int, default=1, help="run every N-th case of the suite")
    group.addoption("--tier", default=FULL, help="run only the cases of this tier")
    group.addoption("--shard", default="", help="i/n: run only the i-th of n parts")
    group.addoption("--resume", action="store_true", help="go on with the results that the report's folder has")
    group.addoption("--done", default=None, help="journal of cases that need not run again; --resume sets it")
    group.addoption("--complete", action="store_true", help="fail when a clause in scope has no case")
    group.addoption("--report", default=None, help="directory for compliance.json, junit.xml and report.html")
    group.addoption("--expected", default=None, help="file of failures that are expected")
    group.addoption("--write-expected", default=None, help="write the failures of this run to a file for --expected")
    group.addoption("--invocation", default="", help="the command, for the report")
    group.addoption("--selection", default="", help="what of the suite was chosen, for the report")
    group.addoption(
        "--solvers",
        default=PREFERRED,
        help="all: run every trial once by each solver of the accelerated backend that can serve it; NAME,NAME: by the named solvers",
    )
    group.addoption("--reproducible", default="", help="judge levels of reproducibility up to this one, of any subject")
    group.addoption("--case-seconds", type=float, default=CASE_SECONDS, help="end the worker whose case takes longer")
    group.addoption("--input-seed", type=int, default=0, help="other values for the inputs of every trial")
    group.addoption("--prove", action="store_true", help="run each case under every fault that it must notice")
    group.addoption(
        "--prove-clauses",
        default="",
        help="i/n: run the cases of the i-th of n parts of the clauses, under breaks of these clauses",
    )
    group.addoption("--scheduler", default="", help="address of a Dask scheduler, whose workers run the cases")
    group.addoption(
        "--proofs", default=None, help="proofs.json of another subject: only its cases run, under its breaks"
    )
    group.addoption(
        "--record", default=None, help="write every call that the cases make on the one subject to this file"
    )


def pytest_configure(config: pytest.Config) -> None:
    if unknown := unknown_solvers(config.getoption("--solvers")):
        raise pytest.UsageError(f"--solvers: there is no solver {', '.join(unknown)}")
    config.addinivalue_line("markers", "shows(*clauses): the clauses that the case shows")
    config.addinivalue_line("markers", "ours: only our own backends have what the case calls")
    config.addinivalue_line("markers", "needs(attribute, reason): an attribute of the subject, and why it is needed")
    config.addinivalue_line("markers", "blind(fault, reason): a fault that the case need not notice (prove.py)")
    config.addinivalue_line(
        "markers", "per_subject(fixture, values): values(subject name) -> [(id, value)] of the fixture"
    )
    if not hasattr(config, "workerinput"):  # Workers send their results to the controlling process.
        if config.getoption("--resume"):
            config.option.done = earlier_results(config)
        config.pluginmanager.register(Collector(config), "conformance-collector")
        if config.getoption("--scheduler"):
            config.pluginmanager.register(Cluster(config), "conformance-cluster")
        elif not runs_cases(config):
            config.pluginmanager.register(Workers(config), "conformance-workers")
    elif FOLDER in config.workerinput:
        own = Path(config.workerinput[FOLDER], config.workerinput["workerid"])
        config.pluginmanager.register(
            Watched(own, config.getoption("--case-seconds"), subject_names(config)), "conformance-watched"
        )
    faults, part = config.getoption("--prove"), config.getoption("--prove-clauses")
    if faults or part:
        for name in subject_names(config) if runs_cases(config) else ():
            if not is_recorded(name):
                opened(name).cudnn = Faulty(opened(name).cudnn)  # type: ignore[misc]
        proving = Proving(clauses_of, faults, part, proven_elsewhere(config))
        config.pluginmanager.register(proving, "conformance-proving")
    if config.getoption("--record"):
        config.pluginmanager.register(Recording(config), "conformance-recording")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "subject" not in metafunc.fixturenames:
        return
    names = subject_names(metafunc.config)
    mark = next(metafunc.definition.iter_markers("per_subject"), None)
    if mark is None:  # Recorded calls answer only what they were asked.
        called = [name for name in names if not is_recorded(name)]
        if any(metafunc.definition.iter_markers("ours")):  # No foreign library has these calls.
            called = [name for name in called if opened(name).ours]
        # pytest shortens the names of long values, and the path of a library may be long.
        metafunc.parametrize("subject", called, ids=called, indirect=True, scope="session")
        return
    fixture, values = mark.args
    pairs = [(name, key, value) for name in names for key, value in values(name)]
    metafunc.parametrize(
        f"subject, {fixture}",
        [(name, value) for name, _, value in pairs],
        ids=[f"{name}-{key}" for name, key, _ in pairs],
        indirect=["subject"],
        scope="session",
    )


def pytest_make_parametrize_id(val: Any) -> str | None:
    """Return the name of a function, because its address differs between processes."""
    return getattr(val, "__name__", None) if callable(val) else None


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable garbage collection during collection, because walking all items repeatedly takes a fifth of its time."""
    gc.disable()
    yield
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Freeze garbage collection: cases live as long as their process, and need not be walked again."""
    gc.freeze()
