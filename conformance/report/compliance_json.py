"""Write and read compliance.json: the report as data.

An entry of `cases` is one case, or several cases of one test that cite the same clauses and ended alike on one subject.
Alike means that they passed, or that one known difference failed them. Then `id` is the test's, `seconds` is their sum
and `error_ratio` their largest. `measured` lists what each case measured, in the order of `MEASURED`, and `messages`
lists the message of each failure. `tests` has the parameters of each such test, and `measured` follows their order.
`places` gives the indices of an entry's cases there, unless it has all.

`cases` of a clause lists the tests whose cases cite it. A new failure has its own reproduction line; others follow from
the subject. Skipped cases are counted in `skips`, by subject and reason.
"""

import gzip
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from ..cases import present_id
from . import checks
from .clauses import Clause
from .entries import SHARPER, CaseResult, Difference, Function, Skips, Subject, test_of
from .model import Report

SCHEMA = 3
# Schema 1 has no known failures; its declared differences are in the messages. Schemas 1 and 2 list each case,
# including skipped ones.
SCHEMAS = (1, 2, 3)
MEASURED = ("seconds", "error_ratio", *SHARPER)
_REQUIRED = ("schema", "specification", "environment", "subjects", "clauses", "cases", "functions")
_OPTIONAL = ("subject_details", "totals", "differences", "benchmarks", "skips", "tests")
_NONFINITE = {"nan": math.nan, "inf": math.inf}


def to_document(report: Report) -> dict[str, Any]:
    """Return the report as JSON values."""
    groups = list(_groups(report))
    tests = _tests(groups)
    entries = [_encode_group(group, tests, report) for group in groups]
    cited = _cited(entries)
    return {
        "schema": SCHEMA,
        "specification": report.specification,
        "environment": dict(report.environment),
        "subjects": [subject.name for subject in report.subjects],
        "subject_details": {
            s.name: {"shows": list(s.shows), "description": s.description} | ({"asked": s.asked} if s.asked else {})
            for s in report.subjects
        },
        "totals": {
            "clauses": {name: dict(counts) for name, counts in report.totals.items()},
            "cases": {name: dict(counts) for name, counts in report.case_totals.items()},
        },
        "clauses": {clause.id: _encode_clause(clause, report, cited) for clause in report.clauses.values()},
        "tests": tests,
        "cases": entries,
        "skips": [{"count": skips.count} | vars(skips) | {"clauses": list(skips.clauses)} for skips in report.skips],
        "functions": {
            name: {"library": function.library, "implemented": dict(function.implemented)}
            for name, function in report.functions.items()
        },
        "differences": [vars(difference) | {"clauses": list(difference.clauses)} for difference in report.differences],
    } | ({"benchmarks": [dict(row) for row in report.benchmarks]} if report.benchmarks else {})


def from_document(document: Any) -> Report:
    """Return the report from JSON values. Raises `ReportError` where they violate the format."""
    checks.mapping(document, "report")
    schema = document.get("schema")
    checks.require(schema in SCHEMAS, f"schema is {schema!r}, this reader knows {SCHEMA}")
    checks.keys(document, _REQUIRED, _OPTIONAL, "report")
    for name in ("cases", "differences", "benchmarks", "skips"):
        value = document.get(name, [])
        checks.require(isinstance(value, list), f"{name} is {value!r:.80}, expected a list")
    names = checks.texts(document["subjects"], "subjects")
    tests = {
        test: checks.texts(parameters, f"parameters of test {test}")
        for test, parameters in checks.mapping(document.get("tests", {}), "tests").items()
    }
    details = checks.mapping(document.get("subject_details", {}), "subject_details")
    checks.keys(details, (), names, "subject_details")
    clauses = checks.mapping(document["clauses"], "clauses")
    report = Report.build(
        cases=[
            case
            for index, entry in enumerate(document["cases"])
            for case in _decode_group(entry, f"case {index}", tests)
        ],
        subjects=[_decode_subject(name, details.get(name, {})) for name in names],
        functions_table={
            name: checks.decode(Function, entry, f"function {name}")
            for name, entry in checks.mapping(document["functions"], "functions").items()
        },
        clauses={identifier: _decode_clause(identifier, entry) for identifier, entry in clauses.items()},
        environment=checks.mapping(document["environment"], "environment"),
        differences=[
            checks.decode(Difference, entry, f"difference {index}")
            for index, entry in enumerate(document.get("differences", []))
        ],
        benchmarks=[
            checks.mapping(row, f"benchmark {index}") for index, row in enumerate(document.get("benchmarks", []))
        ],
        skips=[_decode_skips(entry, f"skips {index}") for index, entry in enumerate(document.get("skips", []))],
        specification=document["specification"],
    )
    _check_derived(document, report)
    report = _with_declared_differences(report) if schema == 1 else report
    return _with_present_ids(_with_derived_lines(report, without_names=schema != SCHEMA))


def _with_present_ids(report: Report) -> Report:
    """Give the cases of an earlier release their present ids."""
    skips = [replace(one, tests={present_id(test): count for test, count in one.tests.items()}) for one in report.skips]
    cases = [replace(case, id=present_id(case.id)) for case in report.cases]
    return replace(report, cases=tuple(cases), skips=tuple(skips))


def _with_derived_lines(report: Report, without_names: bool) -> Report:
    """Remove the reproduction lines that follow from the subjects.

    without_names: whether only these lines contain the requested names of subjects.
    """
    asked: dict[str, str] = {}
    for case in report.cases if without_names else ():
        if found := re.match(r"dualdnn conformance --subject (\S+) ", case.reproduction):
            asked.setdefault(case.subject, found[1])
    subjects = {s.name: replace(s, asked=s.asked or asked.get(s.name, "")) for s in report.subjects}

    def shortened(case: CaseResult) -> CaseResult:
        derived = case.reproduction and case.reproduction == subjects[case.subject].reproduction(case.id)
        return replace(case, reproduction="") if derived else case

    return replace(report, subjects=tuple(subjects.values()), cases=tuple(map(shortened, report.cases)))


def _with_declared_differences(report: Report) -> Report:
    """Mark the failures of a schema-1 report that are declared differences as known."""

    def marked(case: CaseResult) -> CaseResult:
        word, _, rest = case.message.partition(" ")
        is_declared = case.outcome == "failed" and word == "difference" and ":" in rest
        return replace(case, known=rest.partition(":")[0]) if is_declared else case

    return replace(report, cases=tuple(map(marked, report.cases)))


def to_json(report: Report) -> str:
    """Return the text of compliance.json, with one clause, case or function per line, so that reports compare
    by line.
    """
    members = (f"{_compact(name)}: {_lines(value)}" for name, value in to_document(report).items())
    return "{\n" + ",\n".join(members) + "\n}\n"


def read_json(path: Path) -> Report:
    """Read the report in a compliance.json, which may be compressed (.gz)."""
    try:
        content = path.read_bytes()
        document = json.loads((gzip.decompress(content) if path.suffix == ".gz" else content).decode())
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise checks.ReportError(f"{path}: not JSON: {error}") from error
    try:
        return from_document(document)
    except checks.ReportError as error:
        raise checks.ReportError(f"{path}: {error}") from error


def _lines(value: Any) -> str:
    if value and isinstance(value, dict):
        return "{\n" + ",\n".join(f"{_compact(key)}: {_compact(entry)}" for key, entry in value.items()) + "\n}"
    if value and isinstance(value, list):
        return "[\n" + ",\n".join(map(_compact, value)) + "\n]"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _cited(entries: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the tests that cite each clause, once each."""
    cited: dict[str, dict[str, None]] = {}
    for entry in entries:
        for clause in entry["clauses"]:
            cited.setdefault(clause, {})[test_of(entry["id"])] = None
    return {clause: list(ids) for clause, ids in cited.items()}


def _encode_clause(clause: Clause, report: Report, cited: Mapping[str, list[str]]) -> dict[str, Any]:
    return {
        "function": clause.function,
        "kind": clause.kind,
        "status": clause.status,
        "subjects": report.states[clause.id],
        "cases": cited.get(clause.id, []),
        "section": clause.section,
        "library": clause.library,
        "shown_on": clause.shown_on,
        "text": clause.text,
    } | ({"reason": clause.reason} if clause.reason else {})


def _decode_clause(identifier: str, entry: Any) -> Clause:
    what = f"clause {identifier}"
    own = {name: value for name, value in checks.mapping(entry, what).items() if name not in ("subjects", "cases")}
    return checks.decode(Clause, own | {"id": identifier}, what)


def _groups(report: Report) -> Iterator[list[CaseResult]]:
    """Yield the groups of cases that share an entry: the cases of a test that ended alike."""
    order = {subject.name: index for index, subject in enumerate(report.subjects)}

    def key(case: CaseResult) -> tuple[str, ...]:
        expected = (
            not (case.known or case.message) if case.outcome == "passed" else case.known and case.outcome == "failed"
        )
        alike = expected and not (case.suspect or case.reason or case.reproduction) and "[" in case.id
        alike = alike and math.isfinite(case.error_ratio or 0)
        return (
            (case.subject, test_of(case.id), case.known, *case.clauses) if alike else (case.subject, case.id, "alone")
        )

    for _, cases in groupby(sorted(report.cases, key=lambda case: (order[case.subject], key(case))), key):
        yield list(cases)


def _tests(groups: Iterable[list[CaseResult]]) -> dict[str, list[str]]:
    """Return test -> parameters of its cases that share an entry, on any subject."""
    tests: dict[str, dict[str, None]] = {}
    for cases in groups:
        if len(cases) > 1:
            test = test_of(cases[0].id)
            tests.setdefault(test, {}).update(dict.fromkeys(case.id.removeprefix(test) for case in cases))
    return {test: sorted(parameters) for test, parameters in sorted(tests.items())}


def _encode_group(cases: list[CaseResult], tests: Mapping[str, Sequence[str]], report: Report) -> dict[str, Any]:
    first = cases[0]
    if len(cases) == 1:
        own = replace(first, reproduction=report.reproduction(first)) if first.is_new_failure else first
        return _encode_case(own)
    test = test_of(first.id)
    entry = {
        "id": test,
        "subject": first.subject,
        "clauses": list(first.clauses),
        "outcome": first.outcome,
        **_summed(cases),
        "measured": [_measured(case) for case in cases],
    } | ({"known": first.known, "messages": [case.message for case in cases]} if first.known else {})
    if len(cases) == len(tests[test]):
        return entry
    place = {parameters: index for index, parameters in enumerate(tests[test])}
    return entry | {"places": [place[case.id.removeprefix(test)] for case in cases]}


def _summed(cases: Sequence[CaseResult]) -> dict[str, Any]:
    ratios = [case.error_ratio for case in cases if case.error_ratio is not None]
    return {
        "seconds": round(sum(case.seconds for case in cases), 6),
        "error_ratio": max(ratios, default=None),
    }


def _measured(case: CaseResult) -> list[float | None]:
    """Return what a case measured, without trailing None values."""
    found = [getattr(case, name) for name in MEASURED]
    while found[-1] is None:
        found.pop()
    return found


def _decode_group(entry: Any, what: str, tests: Mapping[str, Sequence[str]]) -> list[CaseResult]:
    values = checks.mapping(entry, what)
    if "measured" not in values:
        return [_decode_case(values, what)]
    test, rows = str(values.get("id")), values["measured"]
    checks.require(test in tests, f"id of {what} is {test!r:.80}, which tests does not have")
    places = values.get("places", list(range(len(tests[test]))))
    valid = isinstance(places, list) and all(isinstance(at, int) and 0 <= at < len(tests[test]) for at in places)
    checks.require(valid, f"places of {what} is {places!r:.80}, expected places of {len(tests[test])} parameters")
    matching = isinstance(rows, list) and len(rows) == len(places) > 0
    checks.require(matching, f"measured of {what} is {rows!r:.80}, expected {len(places)} lists")
    messages = values.get("messages", [""] * len(rows))
    told = isinstance(messages, list) and len(messages) == len(rows)
    checks.require(told, f"messages of {what} is {messages!r:.80}, expected {len(rows)} texts")
    shared = {
        name: value for name, value in values.items() if name not in ("measured", "messages", "places", *MEASURED)
    }
    found = []
    for place, row, message in zip(places, rows, messages, strict=True):
        length = len(row) if isinstance(row, list) else 0
        checks.require(0 < length <= len(MEASURED), f"measured of {what} has {row!r:.80}, expected a list of numbers")
        own = dict(zip(MEASURED, row + [None] * (len(MEASURED) - length), strict=True))
        own |= {"id": f"{test}{tests[test][place]}", "message": message}
        found.append(checks.decode(CaseResult, shared | own, what))
    for name, derived in _summed(found).items():
        checks.require(name in values, f"{what} lacks {name}")
        same = derived == values[name]
        checks.require(same, f"{name} of {what} is {values[name]!r}, but its cases say {derived!r}")
    return found


def _decode_skips(entry: Any, what: str) -> Skips:
    values = dict(checks.mapping(entry, what))
    count = values.pop("count", None)
    skips = checks.decode(Skips, values, what)
    checks.require(count == skips.count, f"count of {what} is {count!r}, but its tests have {skips.count}")
    return skips


def _encode_case(case: CaseResult) -> dict[str, Any]:
    ratio = case.error_ratio
    entry: dict[str, Any] = {
        "id": case.id,
        "subject": case.subject,
        "clauses": list(case.clauses),
        "outcome": case.outcome,
        "seconds": case.seconds,
        "error_ratio": ratio,
    }
    # JSON has no NaN and no infinity.
    if ratio is not None and not math.isfinite(ratio):
        entry |= {"error_ratio": None, "nonfinite_error_ratio": "nan" if math.isnan(ratio) else "inf"}
    told = {name: getattr(case, name) for name in ("message", "reproduction", "reason", "known", "suspect")}
    sharper = {name: getattr(case, name) for name in SHARPER}
    return entry | {k: v for k, v in told.items() if v} | {k: v for k, v in sharper.items() if v is not None}


def _decode_case(entry: Any, what: str) -> CaseResult:
    values = dict(checks.mapping(entry, what))
    checks.require("error_ratio" in values, f"{what} lacks error_ratio")
    if "nonfinite_error_ratio" in values:
        word = values.pop("nonfinite_error_ratio")
        checks.one_of(word, _NONFINITE, f"nonfinite_error_ratio of {what}")
        checks.require(values["error_ratio"] is None, f"{what} has both error_ratio and nonfinite_error_ratio")
        values["error_ratio"] = _NONFINITE[word]
    return checks.decode(CaseResult, values, what)


def _decode_subject(name: str, details: Any) -> Subject:
    checks.keys(
        checks.mapping(details, f"details of subject {name}"), (), ("shows", "description", "asked"), f"subject {name}"
    )
    return Subject(name, **details)


def _check_derived(document: Mapping[str, Any], report: Report) -> None:
    """Check that the derived values in the file follow from its cases."""
    written = to_document(report)
    cited = _cited(document["cases"])
    for identifier, clause in document["clauses"].items():
        for name in ("subjects", "cases"):
            checks.require(name in clause, f"clause {identifier} lacks {name}")
            derived = cited.get(identifier, []) if name == "cases" else report.states[identifier]
            # Older reports list each case.
            same = set(derived) == set(map(test_of, clause[name])) if name == "cases" else derived == clause[name]
            checks.require(same, f"{name} of clause {identifier} is {clause[name]!r}, but its cases say {derived!r}")
    if document["schema"] == 1:  # This schema counted without these words.
        for totals in (*written["totals"]["clauses"].values(), *written["totals"]["cases"].values()):
            for word in ("known", "known_failures", "unexpected_passes"):
                totals.pop(word, None)
    totals = document.get("totals", written["totals"])
    checks.require(totals == written["totals"], f"totals are {totals!r}, but the cases say {written['totals']!r}")
