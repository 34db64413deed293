"""Write junit.xml, the report for CI systems, with one test suite per subject."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .entries import CaseResult, Skips, Subject, test_of
from .model import Report

MAX_FAILURES = 20  # failures per test that are shown with their messages
MAX_TEXT = 4000  # characters of a message
MAX_FAILURE_BYTES = 60_000  # the text of a failing test; an annotation of GitHub takes 65,536
# This matches everything that XML 1.0 cannot hold: most control characters, lone surrogates, and two non-characters.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: Report) -> bytes:
    """Return the bytes of junit.xml: one element for each test on a subject, and one for each reason to skip cases.

    A test fails if one of its cases has a new failure; the text lists the failing cases. It is skipped if no case
    passed: a mistrusted case shows nothing, and JUnit has no word for a known failure. CI systems read a limited
    number of elements (GitLab 250,000 objects) and of bytes, and identify a test by its name.
    """
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
    tests: dict[str, list[CaseResult]] = {}
    for case in report.cases:
        if case.subject == subject.name:
            tests.setdefault(test_of(case.id), []).append(case)
    elements = [_test(test, cases, report) for test, cases in tests.items()]
    elements += [_skipped(skips) for skips in report.skips if skips.subject == subject.name]
    suite = ElementTree.Element(
        "testsuite",
        name=_legal(subject.name),
        tests=str(len(elements)),
        failures=str(sum(element.find("failure") is not None for element in elements)),
        errors="0",
        skipped=str(sum(element.find("skipped") is not None for element in elements)),
        time=_seconds(sum(case.seconds for cases in tests.values() for case in cases)),
    )
    properties = ElementTree.SubElement(suite, "properties")
    totals = {f"cases.{word}": str(count) for word, count in report.case_totals[subject.name].items()}
    for name, value in (*_plain(report.environment), *totals.items()):
        ElementTree.SubElement(properties, "property", name=_legal(name), value=_legal(value))
    suite.extend(elements)
    return suite


def _test(test: str, cases: Sequence[CaseResult], report: Report) -> ElementTree.Element:
    """Return the element of a test; `assertions` is the number of its cases."""
    family, _, name = test.partition("/")
    element = ElementTree.Element(
        "testcase",
        classname=_legal(f"{cases[0].subject}.{family if name else 'case'}"),
        name=_legal(name or family),
        assertions=str(len(cases)),
        time=_seconds(sum(case.seconds for case in cases)),
    )
    failing = [case for case in cases if case.is_new_failure or case.passes_unexpectedly]
    others = [case for case in cases if case.outcome != "passed" and case not in failing]
    if failing:
        kind = "failed" if any(case.is_new_failure for case in failing) else "unexpected_pass"
        more = f" (and {len(failing) - 1} more cases)" if len(failing) > 1 else ""
        message = f"{_said(failing[0]).strip().partition(chr(10))[0]}{more}"
        failure = ElementTree.SubElement(element, "failure", message=_legal(message), type=kind)
        told = [f"{case.id}\n{_said(case)[:MAX_TEXT]}\n\nreproduce: {report.reproduction(case)}" for case in failing]
        left = [case.id for case in failing[MAX_FAILURES:]]
        text = "\n\n".join([*told[:MAX_FAILURES], *(["and these cases:", *left] if left else [])])
        failure.text = _legal(text).encode()[:MAX_FAILURE_BYTES].decode(errors="ignore")
    elif len(others) == len(cases):
        kind = "known_failure" if any(case.known for case in cases) else "mistrusted"
        ElementTree.SubElement(element, "skipped", message=_legal(_not_shown(others)), type=kind)
    elif others:
        ElementTree.SubElement(element, "system-out").text = _legal(_not_shown(others))
    return element


def _skipped(skips: Skips) -> ElementTree.Element:
    element = ElementTree.Element(
        "testcase", classname=_legal(f"{skips.subject}.skipped"), name=_legal(skips.reason), time=_seconds(0)
    )
    message = f"{skips.count} cases of {len(skips.tests)} tests: {skips.reason}"
    ElementTree.SubElement(element, "skipped", message=_legal(message), type="skipped")
    return element


def _said(case: CaseResult) -> str:
    return f"passes, but is listed as an {case.known}" if case.passes_unexpectedly else case.message


def _not_shown(cases: Sequence[CaseResult]) -> str:
    """Return a line for each of the first known failures and mistrusted cases."""
    lines = [
        f"known failure, {case.known}: {case.message.strip().partition(chr(10))[0]}"
        if case.outcome == "failed"
        else f"mistrusted: {case.reason}"
        for case in cases[:MAX_FAILURES]
    ]
    left = len(cases) - len(lines)
    return "\n".join([*dict.fromkeys(lines), *([f"and {left} more cases"] if left else [])])


def _plain(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield (name, text) of every entry. Nested names have the outer name before a dot."""
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
