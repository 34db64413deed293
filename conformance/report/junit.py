"""junit.xml: the report for CI systems, one test suite per subject."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from typing import Any

from .entries import CaseResult, Subject
from .model import Report

# Everything XML 1.0 cannot hold: most control characters, lone surrogates, and two non-characters.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: Report) -> bytes:
    """The bytes of junit.xml. A mistrusted case shows nothing, so it counts as skipped; so does a known failure, as only
    what is new shall fail a CI."""
    root = ElementTree.Element("testsuites", name=_legal(report.specification))
    suites = [_suite(subject, report) for subject in report.subjects]
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.attrib[name]) for suite in suites)))
    root.set("time", _seconds(sum(case.seconds for case in report.cases)))
    root.extend(suites)
    ElementTree.indent(root)
    content: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def _suite(subject: Subject, report: Report) -> ElementTree.Element:
    cases = [case for case in report.cases if case.subject == subject.name]
    totals = report.case_totals[subject.name]
    suite = ElementTree.Element(
        "testsuite",
        name=_legal(subject.name),
        tests=str(len(cases)),
        failures=str(totals["failed"] - totals["known_failures"] + totals["unexpected_passes"]),
        errors="0",
        skipped=str(sum(_is_skipped(case) for case in cases)),
        time=_seconds(sum(case.seconds for case in cases)),
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _plain(report.environment):
        ElementTree.SubElement(properties, "property", name=_legal(name), value=_legal(value))
    suite.extend(_case(case, report) for case in cases)
    return suite


def _case(case: CaseResult, report: Report) -> ElementTree.Element:
    function = report.clauses[case.clauses[0]].function if case.clauses else "no_clause"
    element = ElementTree.Element(
        "testcase", classname=_legal(f"{case.subject}.{function}"), name=_legal(case.id), time=_seconds(case.seconds)
    )
    if case.clauses:
        properties = ElementTree.SubElement(element, "properties")
        for clause in case.clauses:
            ElementTree.SubElement(properties, "property", name="clause", value=_legal(clause))
    first_line = case.message.strip().partition("\n")[0]
    if case.passes_unexpectedly:
        message = f"passes, but is listed as an {case.known}"
        ElementTree.SubElement(element, "failure", message=_legal(message), type="unexpected_pass")
        return element
    if case.is_new_failure:
        failure = ElementTree.SubElement(element, "failure", message=_legal(first_line), type="failed")
        failure.text = _legal(f"{case.message}\n\nreproduce: {case.reproduction}")
    if _is_skipped(case):
        kind = "known_failure" if case.outcome == "failed" else case.outcome
        said = {"failed": f"known failure, {case.known}: {first_line}", "mistrusted": f"mistrusted: {case.reason}"}
        reason = said.get(case.outcome, case.reason)
        ElementTree.SubElement(element, "skipped", message=_legal(reason), type=kind)
    return element


def _is_skipped(case: CaseResult) -> bool:
    """Whether the case neither shows anything nor fails: JUnit has no word for a failure that was known."""
    shows_nothing = case.outcome in ("skipped", "mistrusted") and not case.known
    return shows_nothing or (case.outcome == "failed" and bool(case.known))


def _plain(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """(name, text) of every entry, those inside others with the outer name before a dot."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _plain(entry, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)) and any(isinstance(entry, Mapping) for entry in value):
        for index, entry in enumerate(value, 1):
            yield from _plain(entry, f"{name}.{index}")
    else:
        yield name, ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)


def _seconds(value: float) -> str:
    return f"{value:.6f}"
