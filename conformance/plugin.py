"""The pytest plugin of the suite: runs every case once per subject and collects what the report needs.

Cases get ``subject`` (what is judged), ``cudnn`` (its functions), ``handle``, ``caller`` (calls.Caller), ``trial`` (run
an operation and judge it) and ``refuses`` (a call must raise a status, citing a clause).
"""

from __future__ import annotations

import gc
import glob
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _pytest.runner import runtestprotocol
from dualdnn.api.document import functions
from dualdnn.api.enumerations import cudnnStatus_t
from dualdnn.api.miopen.document import functions as miopen_functions
from dualdnn.api.operations import Operation
from dualdnn.api.status import CudnnError

from . import differences as difference_table
from . import scope
from .calls import Caller, roomy, sized
from .differences.occurrences import EXPLAINED, difference_of_case, explained, unseen
from .expected import REASON as EXPECTED_FAILURE
from .expected import Expected, read_expected, write_expected
from .prove import NOTICED, Faulty, Proving
from .provenance import COMPLETE, INTERRUPTED, PARTIAL, environment
from .recorded.recorder import Recorder, merge, save
from .report import SHARPER, CaseResult, Difference, Function, Report, is_complete, write_report
from .report import Subject as ReportedSubject
from .solvers import (
    ALL,
    PREFERRED,
    by_solvers,
    kernels_noted,
    threads_ordered,
    unknown_solvers,
    with_workspace,
    without_a_launch,
    write_kernels,
)
from .subjects import NotRunnable, Subject, default_subjects, is_recorded, open_subject
from .trial import Step, Trial, attempt_chain, prepare

_OPENED: dict[str, Subject] = {}
pytest_plugins = ["dualdnn.conformance.miopen_cases"]
CASES = Path(__file__).parent / "cases"
GPU_ONLY = "this subject computes on a GPU only, and there is none"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--subject", action="append", default=[], help="what to judge; may be repeated")
    group.addoption("--case", action="append", default=[], help="run only the case with this id; may be repeated")
    group.addoption("--every", type=int, default=1, help="run only one case of so many, spread over the suite")
    group.addoption("--complete", action="store_true", help="fail when a clause in scope has no case")
    group.addoption("--report", default=None, help="directory for compliance.json, junit.xml and report.html")
    group.addoption("--expected", default=None, help="file of failures that are expected")
    group.addoption("--write-expected", default=None, help="write the failures of this run as such a file")
    group.addoption("--invocation", default="", help="the command, for the report")
    group.addoption("--selection", default="", help="what of the suite was chosen, for the report")
    group.addoption(
        "--solvers",
        default=PREFERRED,
        help="all: run every trial once by each solver of the accelerated backend that can serve it; NAME,NAME: by these",
    )
    group.addoption("--input-seed", type=int, default=0, help="other values for the inputs of every trial")
    group.addoption("--prove", action="store_true", help="run each case under every fault that it must notice")
    group.addoption(
        "--record", default=None, help="write every call that the cases make on the one subject to this file"
    )


def pytest_configure(config: pytest.Config) -> None:
    if unknown := unknown_solvers(config.getoption("--solvers")):
        raise pytest.UsageError(f"--solvers: there is no solver {', '.join(unknown)}")
    config.addinivalue_line("markers", "shows(*clauses): the clauses that the case shows")
    config.addinivalue_line("markers", "ours: only our own backends have what the case calls")
    config.addinivalue_line("markers", "blind(fault, reason): a fault that the case need not notice (prove.py)")
    config.addinivalue_line(
        "markers", "per_subject(fixture, values): values(subject name) -> [(id, value)] of the fixture"
    )
    if not hasattr(config, "workerinput"):  # workers send their results to the controlling process
        config.pluginmanager.register(Collector(config), "conformance-collector")
    if config.getoption("--prove"):
        for name in subject_names(config):
            if not is_recorded(name):
                opened(name).cudnn = Faulty(opened(name).cudnn)  # type: ignore[misc]
        config.pluginmanager.register(Proving(_clauses), "conformance-proving")
    if config.getoption("--record"):
        config.pluginmanager.register(Recording(config), "conformance-recording")


class Recording:
    """Records the calls of this process; workers write parts, which the controlling process puts together."""

    def __init__(self, config: pytest.Config) -> None:
        names = subject_names(config)
        if len(names) != 1 or is_recorded(names[0]):
            raise pytest.UsageError(f"--record takes one subject whose calls can be made, not {', '.join(names)}")
        self.path = Path(config.getoption("--record"))
        self.worker = getattr(config, "workerinput", {}).get("workerid")
        self.subject = opened(names[0])
        self.recorder = self.subject.cudnn = Recorder(self.subject.cudnn)  # type: ignore[misc]
        if self.worker is None:
            for part in self._parts():  # of a run that was killed: they are no calls of this one
                part.unlink()

    def _parts(self) -> list[Path]:
        return sorted(self.path.parent.glob(f"{glob.escape(self.path.name)}.*.part"))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        own = self.path.with_name(f"{self.path.name}.{self.worker or 'main'}.part")
        if self.recorder.records:
            save(own, self.subject, self.recorder.records)
        if self.worker is None:
            self.written = merge(self.path, self._parts())

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.write_line(f"recorded: {self.written} calls in {self.path}")


def subject_names(config: pytest.Config) -> list[str]:
    return config.getoption("--subject") or default_subjects()


def opened(name: str) -> Subject:
    """Each subject is opened once per process."""
    if name not in _OPENED:
        _OPENED[name] = open_subject(name)
    return _OPENED[name]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "subject" not in metafunc.fixturenames:
        return
    names = subject_names(metafunc.config)
    mark = next(metafunc.definition.iter_markers("per_subject"), None)
    if mark is None:  # recorded calls answer nothing but what they were asked
        called = [name for name in names if not is_recorded(name)]
        if any(metafunc.definition.iter_markers("ours")):  # calls that no foreign library has
            called = [name for name in called if opened(name).ours]
        metafunc.parametrize("subject", called, indirect=True, scope="session")
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
    """Functions are called by their names: an address would be another in every process."""
    return getattr(val, "__name__", None) if callable(val) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if unstable := next((item.nodeid for item in items if " at 0x" in item.nodeid), None):
        raise pytest.UsageError(f"the id of a case is not the same in every process: {unstable}")
    wanted, every = set(config.getoption("--case")), config.getoption("--every")
    chosen = items
    if wanted:
        called = [item for item in items if hasattr(item, "callspec")]  # what has no subject is no case
        chosen = [item for item in called if case_id(item, item.callspec.params.get("subject", "")) in wanted]
    chosen = chosen[::every]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays: walking it again and again took a fifth of the time of collecting it."""
    gc.disable()
    yield
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Cases live as long as their process: no collection of garbage walks all of them again."""
    gc.freeze()


@pytest.fixture(scope="session")
def subject(request: pytest.FixtureRequest) -> Subject:
    return opened(request.param)


@pytest.fixture
def cudnn(subject: Subject) -> Any:
    return subject.cudnn


@pytest.fixture
def handle(request: pytest.FixtureRequest, subject: Subject) -> Iterator[Any]:
    """A handle of the subject; the case is skipped where none can be had (a library without a GPU)."""
    if not subject.computes:
        pytest.skip(GPU_ONLY)
    made = subject.new_handle()
    with threads_ordered(made, case_id(request.node, request.node.callspec.params.get("subject", ""))):
        yield made
    if getattr(made, "alive", True):
        subject.cudnn.cudnnDestroy(made)


@pytest.fixture
def caller(subject: Subject, handle: Any) -> Caller:
    return Caller(subject.cudnn, handle, any_engine=not subject.cites_clauses)


class Evidence:
    """What a case found beyond passing or failing."""

    def __init__(self, item: Any, ours: bool) -> None:
        self.item, self.ours = item, ours
        self.error_ratio: float | None = None
        self.mistrusted: list[str] = []
        self.judged = 0  # elements of outputs
        self.sharper: dict[str, float] = {}  # the most that the sharper rules measured: norm_ratio, rms, bias
        self.suspect: list[str] = []  # which of the sharper rules outputs broke that lie inside their worst case
        self.contradiction = ""  # why a failure that a declared difference covers is none of its
        self.clauses: set[str] = set()
        self.kernels: set[str] = set()
        self.closed = False  # what follows are faults

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


@pytest.fixture
def evidence(request: pytest.FixtureRequest, subject: Subject) -> Evidence:
    found = Evidence(request.node, subject.ours)
    request.node.stash[_EVIDENCE] = found
    return found


_EVIDENCE = pytest.StashKey[Evidence]()


def _judged(
    caller: Caller,
    evidence: Evidence,
    solvers: str,
    steps: Sequence[Step],
    seed: int,
    before: Any = None,
    offsets: Mapping[str, int] | None = None,
) -> Trial:
    """Make the calls; fail unless the outputs agree with the judge and nothing else was touched. Of our backends a suspect output fails
    as well."""

    seed += evidence.item.config.getoption("--input-seed")
    if not evidence.ours:  # another library keeps other things in its spaces
        steps = [replace(step, operation=roomy(caller, step.operation)) for step in steps]

    def run(solver: str | None = None) -> Trial:
        result = attempt_chain(caller, with_workspace(caller.handle, steps) if solver else steps, seed, before, offsets)
        for one in result.whole:
            evidence.note(one)
        suspicions = [said for one in result.whole for said in one.verdict.suspicions] if evidence.ours else []
        if not result.passed or suspicions:
            said = "\n".join(f"{step.operation}\ninputs {step.inputs!r}, seed {seed}" for step in steps)
            by = f" (solver {solver})" if solver else ""
            explanation = "\n".join(filter(None, [result.explanation(), *(f"suspect: {one}" for one in suspicions)]))
            pytest.fail(f"{explanation}{by}\n{said}", pytrace=False)
        return result

    with kernels_noted(evidence.kernels):
        return by_solvers(caller.handle, [step.operation for step in steps], run, solvers)


@pytest.fixture
def trial(caller: Caller, evidence: Evidence, solvers: str) -> Callable[..., Trial]:
    """Run an operation and fail unless the outputs agree with the judge and nothing else was touched."""

    def run(
        operation: Operation,
        inputs: str | Mapping[str, str] = "normal",
        seed: int = 0,
        aliases: Mapping[str, str] | None = None,
        before: Any = None,
        offsets: Mapping[str, int] | None = None,
    ) -> Trial:
        return _judged(caller, evidence, solvers, [Step(operation, aliases or {}, inputs)], seed, before, offsets)

    return run


@pytest.fixture
def run(trial: Callable[..., Trial], caller: Caller) -> Callable[..., Trial]:
    """As ``trial``, with the workspace that the subject asks for."""
    return lambda operation, **options: trial(sized(caller, operation), **options)


@pytest.fixture
def chain(caller: Caller, evidence: Evidence, solvers: str) -> Callable[..., Trial]:
    """Run operations (``Step`` where they need more than that) one after the other on shared memory, as ``trial`` runs one: what
    has one name in several of them is the same memory."""

    def run(
        *steps: Operation | Step, seed: int = 0, before: Any = None, offsets: Mapping[str, int] | None = None
    ) -> Trial:
        made = [step if isinstance(step, Step) else Step(step) for step in steps]
        return _judged(caller, evidence, solvers, made, seed, before, offsets)

    return run


@pytest.fixture
def solvers(request: pytest.FixtureRequest, subject: Subject) -> str:
    """By which solvers trials run."""
    wanted: str = request.config.getoption("--solvers")
    return wanted if subject.name.startswith("accelerated") else PREFERRED


@pytest.fixture
def refuses(subject: Subject, evidence: Evidence) -> Callable[..., None]:
    """The call must raise this status, and on our backends cite this clause; ``unchanged`` buffers keep their bytes."""

    def check(
        status: cudnnStatus_t,
        clause: str,
        call: Callable[..., Any],
        *args: Any,
        unchanged: tuple[Any, ...] = (),
        **kwargs: Any,
    ) -> None:
        evidence.clauses.add(clause)
        before = [buffer.to_host(np.uint8, buffer.nbytes) for buffer in unchanged]
        try:
            call(*args, **kwargs)
        except CudnnError as error:
            if error.status != status:
                pytest.fail(f"expected {status.name}, got: {error}", pytrace=False)
            if subject.cites_clauses and error.clause != clause:
                pytest.fail(f"right status for the wrong reason: expected clause {clause}, got: {error}", pytrace=False)
        else:
            pytest.fail(
                f"{getattr(call, '__name__', call)} succeeded, expected {status.name} [{clause}]", pytrace=False
            )
        for buffer, bytes_ in zip(unchanged, before, strict=True):
            if not np.array_equal(buffer.to_host(np.uint8, buffer.nbytes), bytes_):
                pytest.fail("the refused call changed memory", pytrace=False)

    return check


@pytest.fixture
def refused(caller: Caller, refuses: Callable[..., None]) -> Callable[..., None]:
    """The operation's call must raise this status, citing this clause, and touch none of its operands."""

    def check(
        operation: Operation, status: cudnnStatus_t, clause: str, aliases: Mapping[str, str] | None = None
    ) -> None:
        memory = prepare(operation, "normal", 0, aliases)
        buffers = {name: caller.handle.to_device(memory[name]) for name in memory if name not in (aliases or {})}
        operands = {name: buffers[(aliases or {}).get(name, name)] for name in memory}
        refuses(status, clause, caller, operation, operands, unchanged=tuple(buffers.values()))

    return check


def _clauses(item: pytest.Item) -> set[str]:
    """The clauses that a case names, and those whose refusals it has checked."""
    evidence = item.stash.get(_EVIDENCE, None)
    named = {clause for mark in item.iter_markers("shows") for clause in mark.args}
    return named | (evidence.clauses if evidence else set())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run a case; report its call, and its setup and teardown where they failed or skipped. What workers send costs the
    controlling process more than running many a case does."""
    if _lacks_a_gpu(item):
        report = pytest.TestReport(
            item.nodeid, item.location, {}, "skipped", (str(item.path), 0, f"Skipped: {GPU_ONLY}"), "setup"
        )
        _add_result(item, report)
        item.ihook.pytest_runtest_logreport(report=report)
        item.session._setupstate.teardown_exact(nextitem)  # what the case before has left for its neighbours
        return True
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or report.outcome != "passed":
            report.keywords = {}
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def _subject_of(item: pytest.Item) -> str | None:
    """The name of a case's subject; None where it has none, or none that it applies to."""
    name = getattr(getattr(item, "callspec", None), "params", {}).get("subject")
    return name if isinstance(name, str) else None


def _lacks_a_gpu(item: pytest.Item) -> bool:
    """Whether the case would be skipped for want of a handle: of thousands of such cases nothing need be set up."""
    name = _subject_of(item)
    if name is None or "handle" not in getattr(item, "fixturenames", ()) or opened(name).computes:
        return False
    return not any(item.iter_markers("skip")) and not any(item.iter_markers("skipif"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if _subject_of(item) is None:
        return
    if call.excinfo is not None and call.excinfo.errisinstance(NotRunnable):
        report.outcome, report.longrepr = (
            "skipped",
            (str(item.path), 0, f"not runnable on this subject: {call.excinfo.value}"),
        )
    if report.when != "call" and report.outcome == "passed":
        return
    _add_result(item, report)


def _add_result(item: Any, report: pytest.TestReport) -> None:
    """Add what our report needs of a case to the properties of pytest's report."""
    parameters = item.callspec.params
    case = case_id(item, parameters["subject"])
    evidence = item.stash.get(_EVIDENCE, None)
    clauses = _clauses(item)
    subject_name = opened(parameters["subject"]).name
    result = {
        "id": case,
        "subject": subject_name,
        "clauses": sorted(clauses),
        "seconds": report.duration,
        "error_ratio": evidence.error_ratio if evidence else None,
        "mistrusted": evidence.mistrusted if evidence else [],
        "suspect": evidence.suspect if evidence else [],
        "sharper": evidence.sharper if evidence else {},
        "judged": evidence.judged if evidence else 0,
        "kernels": sorted(evidence.kernels) if evidence else [],
        "noticed": item.stash.get(NOTICED, None),
        "outcome": report.outcome,
        "message": _message(report),
        "known": "",
        "reproduction": f'dualdnn conformance --subject {parameters["subject"]} --case "{case}"',
    }
    if report.outcome in ("passed", "failed") and not opened(parameters["subject"]).ours:
        computes = opened(parameters["subject"]).computes
        difference, contradiction = difference_of_case(
            case, subject_name, computes, report.outcome == "passed", result["message"]
        )
        if report.outcome == "passed":
            result["suspect"] = explained(case, subject_name, result["suspect"])
        if evidence and evidence.contradiction:
            difference, contradiction = None, evidence.contradiction
        if difference is not None:
            result["known"] = difference.id
        if difference is not None and report.outcome == "failed":
            result["message"] = f"difference {difference.id}: {difference.decision}\n{result['message']}"
        elif contradiction:
            result["message"] = f"{result['message']}\n{contradiction}".strip()
            report.outcome, report.longrepr = "failed", result["message"]
    if (
        not result["known"]
        and report.outcome in ("passed", "failed")
        and _expected(item.config).lists(subject_name, case)
    ):
        result["known"] = EXPECTED_FAILURE
    _set_status(report, result)
    report.user_properties.append(("conformance", result))


def _set_status(report: Any, result: dict[str, Any]) -> None:
    """What the run makes of a result: a known failure does not fail it, a case that passes unexpectedly does."""
    if result["known"] and report.outcome == "failed":
        report.outcome, report.longrepr = "skipped", (result["id"], 0, f"known failure: {result['known']}")
    elif result["known"] and report.outcome == "passed":
        report.outcome, report.longrepr = "failed", f"passes, but is listed as {result['known']}"


_EXPECTED_LIST = pytest.StashKey[Expected]()


def _expected(config: pytest.Config) -> Expected:
    """The expected failures, read once per process."""
    if _EXPECTED_LIST not in config.stash:
        path = config.getoption("--expected")
        config.stash[_EXPECTED_LIST] = read_expected(Path(path)) if path else Expected()
    return config.stash[_EXPECTED_LIST]


def case_id(item: pytest.Item, subject: str) -> str:
    """The case's id without its subject: pooling/test_forward[...]."""
    return without_subject(item.path.stem, item.name, subject)


def without_subject(file: str, name: str, subject: str) -> str:
    for written, kept in ((f"[{subject}-", "["), (f"-{subject}]", "]"), (f"[{subject}]", ""), (f"-{subject}-", "-")):
        name = name.replace(written, kept)
    return f"{file}/{name}"


def _message(report: Any) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return "" if report.longrepr is None else str(report.longrepr)


class Collector:
    """Gathers the results of all workers and writes the report."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.results: list[dict[str, Any]] = []
        self.unlaunched: list[str] = []
        self.notes: list[str] = []
        self.started = time.time()

    @pytest.hookimpl(tryfirst=True)  # before the failures of the run are counted
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        results: list[Any] = [value for name, value in report.user_properties if name == "conformance"]
        if not results and report.failed and report.when == "???":  # a worker died: what xdist knows of it
            found = crashed(report, subject_names(self.config))
            if _expected(self.config).lists(found["subject"], found["id"]):
                found["known"] = EXPECTED_FAILURE
                _set_status(report, found)
            # It may have died after the case had passed; the case is listed once, as what ended the worker.
            case = (found["id"], found["subject"])
            self.results = [r for r in self.results if (r["id"], r["subject"]) != case]
            results = [found]
        for result in results:
            self._announce(result)
        if results and report.when == "teardown":  # of a case that has a result: what it left behind failed, too
            told = {(result["id"], result["subject"]) for result in results}
            self.results = [r for r in self.results if (r["id"], r["subject"]) not in told]
        self.results.extend(results)
        report.user_properties[:] = [entry for entry in report.user_properties if entry[0] != "conformance"]

    def _announce(self, result: dict[str, Any]) -> None:
        """Show a failure when it happens: a run that is stopped later must not lose it."""
        terminal = self.config.pluginmanager.getplugin("terminalreporter")
        failed, known = result["outcome"] == "failed", result["known"]
        if terminal is None or (failed and known) or not (failed or known):
            return
        terminal.ensure_newline()
        terminal.write_line(f"{'failed' if failed else 'passes unexpectedly'}: {result['reproduction']}")
        terminal.write_line(
            f"  {last_line(result['message'])}"
            if failed
            else f"  it is listed in {self.config.getoption('--expected')}"
        )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        directory = self.config.getoption("--report")
        if directory is None:
            return
        gc.freeze()  # the results stay until the end, where pytest collects garbage five times
        seen = {result["id"] for result in self.results}
        stopped = session.exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
        unknown = [] if stopped else [case for case in self.config.getoption("--case") if case not in seen]
        if unknown:
            self.notes.append(f"no such case: {', '.join(unknown)}")
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
        if not self.results:  # what was there stays
            self.notes.append(f"no case was run{' yet' if stopped else ''}, no report was written")
            return
        state = INTERRUPTED if stopped else PARTIAL if self.config.getoption("--selection") else COMPLETE
        report = self.build(state)
        self._write(report, Path(directory), session)
        if target := self.config.getoption("--write-expected"):
            self._write_expected(Path(target), session, stopped)
        if self.config.getoption("--complete"):
            ours = [opened(name) for name in subject_names(self.config) if opened(name).ours]
            self.unshown = {s.name: scope.without_a_case(s.name, report.cases) for s in ours}
            if self.config.getoption("--solvers") == ALL:
                self.unlaunched = without_a_launch(self.kernels, subject_names(self.config))
            self.unseen = {
                s.name: unseen(s.name, s.computes, seen) for s in map(opened, subject_names(self.config)) if not s.ours
            }
            lacking = any(self.unshown.values()) or bool(self.unlaunched) or any(self.unseen.values())
            if lacking and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _write(self, report: Report, directory: Path, session: pytest.Session) -> None:
        """Write the report where it shall go; results are never lost to a place that cannot be written."""
        state = report.environment["state"]
        if state == INTERRUPTED and is_complete(directory):
            directory = directory.with_name(f"{directory.name}-interrupted")
        try:
            paths = write_report(report, directory)
            self.kernels = write_kernels(self.results, directory)
        except OSError as error:
            self.notes.append(f"the report could not be written to {directory}: {error}")
            directory = Path(tempfile.mkdtemp(prefix="dualdnn-report-"))
            paths = write_report(report, directory)
            self.kernels = write_kernels(self.results, directory)
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        self.notes.append(f"report{'' if state == COMPLETE else f' ({state})'}: {paths['report.html']}")

    def _write_expected(self, target: Path, session: pytest.Session, stopped: bool) -> None:
        """Write the failures, of a run that came to its end: the list that was there has those of all cases."""
        if stopped:
            self.notes.append(f"the run was interrupted: no expected failures were written to {target}")
            return
        failures = [(r["subject"], r["id"]) for r in self.results if r["outcome"] == "failed" and not _is_declared(r)]
        try:
            self.notes.append(f"expected failures: {write_expected(target, failures)} cases in {target}")
        except OSError as error:
            self.notes.append(f"the expected failures could not be written to {target}: {error}")
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for name, counts in summary(self.results).items():
            terminalreporter.write_line(
                f"{name}: " + ", ".join(f"{count} {word}" for word, count in counts.items() if count)
            )
        for name, clauses in getattr(self, "unshown", {}).items():
            if clauses:
                terminalreporter.write_line(
                    f"{name}: {len(clauses)} clauses in scope have no case: {', '.join(clauses)}"
                )
        for name, cases in getattr(self, "unseen", {}).items():
            if cases:
                terminalreporter.write_line(
                    f"{name}: {len(cases)} failures of declared differences are of cases that are no more: {', '.join(cases)}"
                )
        if missing := self.unlaunched:
            terminalreporter.write_line(f"{len(missing)} kernels are launched by no case: {', '.join(missing)}")
        if judged := sum(result.get("judged", 0) for result in self.results):
            terminalreporter.write_line(f"{judged} numbers were judged")
        if self.config.getoption("--prove"):
            terminalreporter.write_line(proven(self.results))
        for note in self.notes:
            terminalreporter.write_line(note)

    def build(self, state: str) -> Report:
        """The report of all collected results."""
        subjects = [opened(name) for name in subject_names(self.config)]
        reported = [ReportedSubject(s.name, s.shows, s.description) for s in subjects]
        table = {
            name: Function(function.library, {s.name: s.implements(name) for s in subjects})
            for name, function in functions().items()
        } | {name: Function("miopen", {s.name: s.implements(name) for s in subjects}) for name in miopen_functions()}
        known = [
            Difference(d.id, d.function, d.clauses, d.document, d.vendor, d.decision)
            for d in difference_table.DIFFERENCES
        ]
        cases = [case_result(result) for result in self.results]
        run = {name: self.config.getoption(f"--{name}") for name in ("invocation", "selection")}
        facts = environment(subjects, self.started, {"state": state, "command": run["invocation"], **run})
        facts |= {"inputs": f"seed {seed}"} if (seed := self.config.getoption("--input-seed")) else {}
        facts |= {"proven": proven(self.results)} if self.config.getoption("--prove") else {}
        del facts["invocation"]
        return Report.build(cases, reported, table, scope.clauses(), facts, known)


def proven(results: Sequence[Mapping[str, Any]]) -> str:
    """How many cases noticed how many faults (prove.py), and the clauses that they prove."""
    found = [result for result in results if result.get("noticed") and result["outcome"] == "passed"]
    clauses = {clause for result in found for clause in result["clauses"]}
    faults = sum(len(result["noticed"]) for result in found)
    return f"{len(found)} cases noticed {faults} faults and prove {len(clauses)} clauses"


def last_line(message: str, width: int = 200) -> str:
    """What a traceback ends with, or the only line of a message."""
    lines = [line for line in message.splitlines() if line.strip()]
    return lines[-1].strip()[:width] if lines else ""


def crashed(report: pytest.TestReport, subjects: Sequence[str]) -> dict[str, Any]:
    """The result of a case that took its process down."""
    path, _, name = report.nodeid.partition("::")
    subject = next(s for s in (*_OPENED, *subjects) if f"[{s}" in name or f"{s}]" in name)
    case = without_subject(Path(path).stem, name, subject)
    return {
        "id": case,
        "subject": opened(subject).name,
        "clauses": [],
        "seconds": report.duration,
        "error_ratio": None,
        "mistrusted": [],
        "suspect": [],
        "outcome": "failed",
        "message": "the subject took its process down",
        "known": "",
        "reproduction": f'dualdnn conformance --subject {subject} --case "{case}"',
    }


def case_result(result: dict[str, Any]) -> CaseResult:
    """The reported form: 'mistrusted' where the check could not have failed."""
    outcome, message, reason = result["outcome"], result["message"], ""
    if outcome == "skipped":
        reason, message = message or "skipped", ""
    elif outcome == "passed" and result["mistrusted"]:
        outcome, reason = "mistrusted", f"most of the output could not have shown an error: {result['mistrusted'][0]}"
    elif outcome == "failed" and not message:
        message = "failed"
    return CaseResult(
        id=result["id"], subject=result["subject"], clauses=tuple(result["clauses"]), outcome=outcome,
        seconds=result["seconds"], error_ratio=result["error_ratio"], message=message if outcome == "failed" else "",
        reproduction=result["reproduction"], reason=reason, known=result["known"], suspect="; ".join(result["suspect"]),
        **result.get("sharper", {}),
    )  # fmt: skip


def _is_declared(result: dict[str, Any]) -> bool:
    """Whether a declared difference explains the failure: those need no list."""
    return bool(result["known"]) and result["known"] != EXPECTED_FAILURE


SUMMARY_WORDS = ("passed", "failed", "known failures", "unexpected passes", "mistrusted", "skipped", "suspect")


def summary(results: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Subject -> word -> number of cases; "failed" are the failures that nothing explains."""
    counts: dict[str, dict[str, int]] = {}
    for result in results:
        words = counts.setdefault(result["subject"], dict.fromkeys(SUMMARY_WORDS, 0))
        if result["known"]:
            words["known failures" if result["outcome"] == "failed" else "unexpected passes"] += 1
        elif result["outcome"] == "passed" and result["mistrusted"]:
            words["mistrusted"] += 1
        else:
            words[result["outcome"]] += 1
            unexplained = [one for one in result["suspect"] if not one.startswith(EXPLAINED)]
            words["suspect"] += bool(result["outcome"] == "passed" and unexplained)
    return counts
