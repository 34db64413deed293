"""junit.xml: the report for CI systems, one test suite per subject."""

import re
import xml.etree.ElementTree as ElementTree

from .entries import CaseResult, Subject
from .model import Report

# Everything XML 1.0 cannot hold: most control characters, lone surrogates, and two non-characters.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: Report) -> bytes:
    """The bytes of junit.xml. A mistrusted case shows nothing, so it counts as skipped."""
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
        failures=str(totals["failed"]),
        errors="0",
        skipped=str(totals["skipped"] + totals["mistrusted"]),
        time=_seconds(sum(case.seconds for case in cases)),
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in report.environment.items():
        ElementTree.SubElement(properties, "property", name=_legal(name), value=_legal(str(value)))
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
    if case.outcome == "failed":
        first_line = case.message.strip().splitlines()[0]
        failure = ElementTree.SubElement(element, "failure", message=_legal(first_line), type="failed")
        failure.text = _legal(f"{case.message}\n\nreproduce: {case.reproduction}")
    if case.outcome in ("skipped", "mistrusted"):
        reason = case.reason if case.outcome == "skipped" else f"mistrusted: {case.reason}"
        ElementTree.SubElement(element, "skipped", message=_legal(reason), type=case.outcome)
    return element


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)


def _seconds(value: float) -> str:
    return f"{value:.6f}"
