"""Build the result of a case: its outcome, its evidence, and whether a failure was known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ..differences.occurrences import difference_of_case, explained
from ..report import CaseResult, Subject
from ..subjects import foreign_path
from .evidence import EVIDENCE, clauses_of
from .expected import REASON as EXPECTED_FAILURE
from .expected import Expected, read_expected
from .items import OPENED, case_id, described, opened, without_subject
from .prove import NOTICED
from .workers import MISCONDUCT, Ended

KNOWN_TEXT = 600  # characters of the message of a known failure in the report
DIFFERENCE = "difference "  # prefix, before the difference's id, of the message of a declared difference
QUALIFIED = re.compile(r"^(\w+\.)+(?=\w+:)")  # modules before the name of an exception
SAID = "E   "  # pytest's prefix of an exception's message, below the source of each function it passed


def add_result(item: Any, report: pytest.TestReport) -> None:
    """Add the data of our report to the properties of pytest's report."""
    parameters = item.callspec.params
    case = case_id(item, parameters["subject"])
    evidence = item.stash.get(EVIDENCE, None)
    clauses = clauses_of(item)
    subject_name = opened(parameters["subject"]).name
    if misconduct := item.stash.get(MISCONDUCT, ""):
        del item.stash[MISCONDUCT]
        report.outcome, report.longrepr = "failed", f"{message_of(report)}\n{misconduct}".strip()
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
        "used": evidence.used.lists() if evidence else {},
        "noticed": item.stash.get(NOTICED, None),
        "outcome": report.outcome,
        "message": message_of(report),
        "known": "",
        "reproduction": Subject(subject_name, asked=parameters["subject"]).reproduction(case),
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
        if misconduct:  # No declared difference covers it.
            difference, contradiction = None, ""
        if difference is not None:
            result["known"] = difference.id
        if difference is not None and report.outcome == "failed":
            result["message"] = f"{DIFFERENCE}{difference.id}: {difference.decision}\n{result['message']}"
        elif contradiction:
            result["message"] = f"{result['message']}\n{contradiction}".strip()
            report.outcome, report.longrepr = "failed", result["message"]
    if (
        not result["known"]
        and report.outcome in ("passed", "failed")
        and expected_of(item.config).lists(subject_name, case)
    ):
        result["known"] = EXPECTED_FAILURE
    set_status(report, result)
    report.user_properties.append(("conformance", result))


def set_status(report: Any, result: dict[str, Any]) -> None:
    """Set the status of a result for the run: a known failure does not fail it, a case that passes unexpectedly
    does.
    """
    if result["known"] and report.outcome == "failed":
        report.outcome, report.longrepr = "skipped", (result["id"], 0, f"known failure: {result['known']}")
    elif result["known"] and report.outcome == "passed":
        report.outcome, report.longrepr = "failed", f"passes, but is listed as {result['known']}"


EXPECTED_LIST = pytest.StashKey[Expected]()


def expected_of(config: pytest.Config) -> Expected:
    """Return the expected failures, read once per process."""
    if EXPECTED_LIST not in config.stash:
        path = config.getoption("--expected")
        config.stash[EXPECTED_LIST] = read_expected(Path(path)) if path else Expected()
    return config.stash[EXPECTED_LIST]


def message_of(report: Any) -> str:
    """Return what a report says.

    A message with source lines begins with the exception, because tables and JUnit show the first line alone.
    """
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    text = "" if report.longrepr is None else str(report.longrepr)
    raised = getattr(report.longrepr, "reprcrash", None)
    if raised is None or not any(line.startswith(SAID) for line in text.splitlines()):
        return text
    return f"{QUALIFIED.sub('', raised.message.strip()).removeprefix('Failed: ')}\n\n{text}"


def crashed(report: pytest.TestReport, subjects: Sequence[str], ended: Ended) -> dict[str, Any]:
    """Return the result of a case whose process ended while it ran."""
    path, _, name = report.nodeid.partition("::")
    named = [s for s in (*OPENED, *subjects) if f"[{s}" in name or f"{s}]" in name]
    # A library that overwrote its process's memory may have truncated the report of its case.
    subject = next(iter((*named, *filter(foreign_path, subjects), *subjects)))
    case = without_subject(Path(path).stem, name, subject)
    return {
        "id": case,
        "subject": described(subject).name,
        "clauses": list(ended.clauses),
        "seconds": report.duration,
        "error_ratio": None,
        "mistrusted": [],
        "suspect": [],
        "outcome": "failed",
        "message": f"the subject {ended.how}",
        "known": "",
        "reproduction": Subject(described(subject).name, asked=subject).reproduction(case),
    }


def case_result(result: dict[str, Any]) -> CaseResult:
    """Return the reported form.

    It is 'mistrusted' where the check could not have failed. Seconds are rounded to 0.1 ms, ratios to four digits, and
    known failures are shortened.
    """
    outcome, message, reason, ratio = result["outcome"], result["message"], "", result["error_ratio"]
    if outcome == "skipped":
        reason, message = message or "skipped", ""
    elif outcome == "passed" and result["mistrusted"]:
        outcome, reason = "mistrusted", f"most of the output could not have shown an error: {result['mistrusted'][0]}"
    elif outcome == "failed":
        message = message or "failed"
        message = shortened(message) if result["known"] else message
    return CaseResult(
        id=result["id"], subject=result["subject"], clauses=tuple(result["clauses"]), outcome=outcome,
        seconds=round(result["seconds"], 4), error_ratio=None if ratio is None else float(f"{ratio:.4g}"),
        message=message if outcome == "failed" else "", reason=reason, known=result["known"],
        suspect="; ".join(result["suspect"]),
        **result.get("sharper", {}),
    )  # fmt: skip


def shortened(message: str) -> str:
    """Return the text of a known failure: the difference's name and the exception's message, without source lines."""
    lines = message.splitlines()
    said = [line.removeprefix(SAID).strip() for line in lines if line.startswith(SAID)]
    text = "\n".join([line for line in lines[:1] if line.startswith(DIFFERENCE)] + said) if said else message
    return text if len(text) <= KNOWN_TEXT else f"{text[:KNOWN_TEXT]}\n... {len(text) - KNOWN_TEXT} characters more"


def is_declared(result: dict[str, Any]) -> bool:
    """Return whether a declared difference explains the failure, so that no list needs it."""
    return bool(result["known"]) and result["known"] != EXPECTED_FAILURE
