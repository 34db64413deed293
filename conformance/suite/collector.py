"""Collect the results of all workers and write the report."""

from __future__ import annotations

import gc
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from dualdnn.api.document import functions
from dualdnn.api.miopen.document import functions as miopen_functions

from .. import differences as difference_table
from .. import scope
from ..breaks.proofs import of_part
from ..provenance import COMPLETE, INTERRUPTED, PARTIAL, commit, environment
from ..report import Difference, Function, Report, is_complete, write_report
from ..report import Subject as ReportedSubject
from ..solvers import ALL, write_kernels
from ..tiers import read_tier
from .completeness import lacking
from .expected import REASON as EXPECTED_FAILURE
from .expected import write_expected
from .items import described, subject_names
from .journal import Journal, JournalError, entries, resumed
from .proofs import differing, told, with_evidence, write_proofs
from .results import case_result, crashed, expected_of, is_declared, set_status
from .selection import in_shard, proven_elsewhere, shard_of
from .summary import last_line, summary, unjudged
from .workers import ENDED, Ended


def identity(config: pytest.Config) -> dict[str, Any]:
    """Return what identifies a run. Another run with the same identity can continue with its results."""
    options = ("selection", "tier", "shard", "solvers", "input-seed", "every", "prove", "prove-clauses")
    said = {name: config.getoption(f"--{name}") for name in options}
    return {"commit": commit(), "subjects": [described(name).name for name in subject_names(config)], **said}


def earlier_results(config: pytest.Config) -> str | None:
    """Return the journal of earlier attempts at this run, or None if they found nothing."""
    try:
        found = resumed(Path(config.getoption("--report")), identity(config))
    except JournalError as error:
        raise pytest.UsageError(str(error)) from error
    return str(found) if found else None


class Collector:
    """Collect the results of all workers and write the report."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.results: list[dict[str, Any]] = []
        self.missing: list[str] = []  # lines about what a whole run lacks
        self.notes: list[str] = []
        self.started = time.time()
        self.journal: Journal | None = None
        self.earlier = 0  # number of results of earlier attempts
        known, part = proven_elsewhere(config) or {}, config.getoption("--prove-clauses")
        self.due = sorted(clause for clause in known if of_part(clause, part))  # clauses that have to be proven
        self.proving = sorted(
            {case for clause in self.due for case in known[clause]}
        )  # cases that proved them elsewhere
        self.proves = config.getoption("--prove") or config.getoption("--prove-clauses")

    def pytest_sessionstart(self) -> None:
        """Load the results of earlier attempts, and begin this run's journal."""
        if done := self.config.getoption("--done"):
            self.results = entries(Path(done))[1]
        self.earlier = len(self.results)
        if directory := self.config.getoption("--report"):
            self.journal = Journal(Path(directory), identity(self.config))

    @pytest.hookimpl(tryfirst=True)  # This runs before the run's failures are counted.
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        results: list[Any] = [value for name, value in report.user_properties if name == "conformance"]
        if not results and report.failed and report.when == "???":  # A worker died, and xdist reports what it knows.
            found = crashed(report, subject_names(self.config), self.config.stash.get(ENDED, Ended()))
            if expected_of(self.config).lists(found["subject"], found["id"]):
                found["known"] = EXPECTED_FAILURE
                set_status(report, found)
            results = [found]
        for result in results:
            self._announce(result)
            if report.when in ("teardown", "???"):  # The call may have a result already.
                self._take_over(result)
        self.results.extend(results)
        self._keep(results)
        report.user_properties[:] = [entry for entry in report.user_properties if entry[0] != "conformance"]

    def _take_over(self, found: dict[str, Any]) -> None:
        """Remove the earlier result of a case, which is listed once; its failure stays, in the message of the later result."""
        case = (found["id"], found["subject"])
        for before in self.results:
            if (before["id"], before["subject"]) == case and before["outcome"] == "failed":
                found["message"] = f"{before['message']}\n{found['message']}"
                found["known"] = found["known"] if before["known"] else ""
        self.results = [r for r in self.results if (r["id"], r["subject"]) != case]

    def _keep(self, results: list[dict[str, Any]]) -> None:
        """Append results to the journal while it can be written: a full disk does not end the run."""
        try:
            for result in results if self.journal else ():
                self.journal.add(result)  # type: ignore[union-attr]  # for the line above
        except OSError as error:
            self.notes.append(f"from some case on no results were kept for --resume: {error}")
            self.journal = None

    def _announce(self, result: dict[str, Any]) -> None:
        """Show a failure at once, so that a run that is stopped later does not lose it."""
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
        if self.journal:
            self.journal.close()
        if self.earlier and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            bad = any(case_result(r).is_new_failure or case_result(r).passes_unexpectedly for r in self.results)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if bad else pytest.ExitCode.OK
        gc.freeze()  # The results live until the end, and pytest collects garbage five times.
        seen = {result["id"] for result in self.results}
        stopped = session.exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
        index, count = shard_of(self.config.getoption("--shard"))
        asked = [case for case in (*self.config.getoption("--case"), *self.proving) if in_shard(case, index, count)]
        unknown = [] if stopped else [case for case in asked if case not in seen]
        if unknown:
            self.notes.append(f"no such case: {', '.join(unknown)}")
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
        if not self.results:  # An existing report is kept.
            self.notes.append(f"no case was run{' yet' if stopped else ''}, no report was written")
            return
        partial = self.config.getoption("--selection") or self.config.getoption("--shard")
        state = INTERRUPTED if stopped else PARTIAL if partial else COMPLETE
        report = self.build(state)
        self._write(report, Path(directory), session)
        if target := self.config.getoption("--write-expected"):
            self._write_expected(Path(target), session, stopped)
        part = self.config.getoption("--prove-clauses")
        if part and not stopped and f"--prove-clauses={part}" == partial:  # Every case of these clauses ran.
            self.missing, proven = differing(self.results, part, self.due)
            self.notes += proven
            if self.missing and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.config.getoption("--complete"):
            launched = self.kernels if self.config.getoption("--solvers") == ALL else None
            tier = read_tier(self.config.getoption("--tier"))
            self.missing = lacking(report.cases, report.subjects, tier, launched).lines()
            if self.missing and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if not stopped and not self.config.getoption("--shard"):  # Merging shards decides this for the whole.
            self._demand_verdicts(report, session)

    def _demand_verdicts(self, report: Report, session: pytest.Session) -> None:
        """End with status 2 where a foreign library was asked for, and no case judged it."""
        lines = unjudged(report, partial=report.environment["state"] == PARTIAL)
        self.notes += lines
        if lines and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def _write(self, report: Report, directory: Path, session: pytest.Session) -> None:
        """Write the report to its folder, or to a temporary one if that folder cannot be written."""
        state = report.environment["state"]
        if state == INTERRUPTED and is_complete(directory):
            directory = directory.with_name(f"{directory.name}-interrupted")
        try:
            paths = write_report(report, directory)
            self._write_details(directory)
        except OSError as error:
            self.notes.append(f"the report could not be written to {directory}: {error}")
            directory = Path(tempfile.mkdtemp(prefix="dualdnn-report-"))
            paths = write_report(report, directory)
            self._write_details(directory)
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR
        self.notes.append(f"report{'' if state == COMPLETE else f' ({state})'}: {paths['report.html']}")

    def _write_details(self, directory: Path) -> None:
        """Write the files next to the report: launches of kernels and, with ``--prove``, how each clause is shown."""
        self.kernels = write_kernels(self.results, directory)
        if self.proves:
            write_proofs(self.results, directory, self.due)

    def _write_expected(self, target: Path, session: pytest.Session, stopped: bool) -> None:
        """Write the failures of a finished run. An interrupted run keeps the existing list, which covers all cases."""
        if stopped:
            self.notes.append(f"the run was interrupted: no expected failures were written to {target}")
            return
        failures = [(r["subject"], r["id"]) for r in self.results if r["outcome"] == "failed" and not is_declared(r)]
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
        for line in self.missing:
            terminalreporter.write_line(line)
        if judged := sum(result.get("judged", 0) for result in self.results):
            terminalreporter.write_line(f"{judged} numbers were judged")
        if self.proves:
            for line in told(self.results):
                terminalreporter.write_line(line)
        for note in self.notes:
            terminalreporter.write_line(note)

    def build(self, state: str) -> Report:
        """Return the report of all collected results."""
        subjects = [described(name) for name in subject_names(self.config)]
        reported = [
            ReportedSubject(s.name, s.shows, s.description, asked)
            for s, asked in zip(subjects, subject_names(self.config), strict=True)
        ]
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
        facts |= {"tier": str(tier)} if (tier := read_tier(self.config.getoption("--tier"))) else {}
        facts |= {"solvers": self.config.getoption("--solvers")}
        shard = self.config.getoption("--shard")
        facts |= {"shard": shard} if shard else {}
        facts |= {"inputs": f"seed {seed}"} if (seed := self.config.getoption("--input-seed")) else {}
        facts |= {"proven": "; ".join(told(self.results))} if self.proves else {}
        del facts["invocation"]
        report = Report.build(cases, reported, table, scope.clauses(), facts, known)
        return report if self.proves or shard else with_evidence(report)
