"""compliance.json: the report as data, written and read."""

import gzip
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import checks
from .clauses import Clause
from .entries import SHARPER, CaseResult, Difference, Function, Subject
from .model import Report

SCHEMA = 2
SCHEMAS = (1, 2)  # the first has no known failures; its declared differences stand in the messages
_REQUIRED = ("schema", "specification", "environment", "subjects", "clauses", "cases", "functions")
_OPTIONAL = ("subject_details", "totals", "differences", "benchmarks")
_NONFINITE = {"nan": math.nan, "inf": math.inf}


def to_document(report: Report) -> dict[str, Any]:
    """The report as JSON values."""
    return {
        "schema": SCHEMA,
        "specification": report.specification,
        "environment": dict(report.environment),
        "subjects": [subject.name for subject in report.subjects],
        "subject_details": {s.name: {"shows": list(s.shows), "description": s.description} for s in report.subjects},
        "totals": {
            "clauses": {name: dict(counts) for name, counts in report.totals.items()},
            "cases": {name: dict(counts) for name, counts in report.case_totals.items()},
        },
        "clauses": {clause.id: _encode_clause(clause, report) for clause in report.clauses.values()},
        "cases": [_encode_case(case) for case in report.cases],
        "functions": {
            name: {"library": function.library, "implemented": dict(function.implemented)}
            for name, function in report.functions.items()
        },
        "differences": [vars(difference) | {"clauses": list(difference.clauses)} for difference in report.differences],
    } | ({"benchmarks": [dict(row) for row in report.benchmarks]} if report.benchmarks else {})


def from_document(document: Any) -> Report:
    """The report in JSON values; raises `ReportError` where they are not what the format says."""
    checks.mapping(document, "report")
    schema = document.get("schema")
    checks.require(schema in SCHEMAS, f"schema is {schema!r}, this reader knows {SCHEMA}")
    checks.keys(document, _REQUIRED, _OPTIONAL, "report")
    for name in ("cases", "differences", "benchmarks"):
        value = document.get(name, [])
        checks.require(isinstance(value, list), f"{name} is {value!r:.80}, expected a list")
    names = checks.texts(document["subjects"], "subjects")
    details = checks.mapping(document.get("subject_details", {}), "subject_details")
    checks.keys(details, (), names, "subject_details")
    clauses = checks.mapping(document["clauses"], "clauses")
    report = Report.build(
        cases=[_decode_case(entry, f"case {index}") for index, entry in enumerate(document["cases"])],
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
        specification=document["specification"],
    )
    _check_derived(document, report)
    return _with_declared_differences(report) if schema == 1 else report


def _with_declared_differences(report: Report) -> Report:
    """A report of the first schema, its failures that are declared differences marked as known."""

    def marked(case: CaseResult) -> CaseResult:
        word, _, rest = case.message.partition(" ")
        is_declared = case.outcome == "failed" and word == "difference" and ":" in rest
        return replace(case, known=rest.partition(":")[0]) if is_declared else case

    return replace(report, cases=tuple(map(marked, report.cases)))


def to_json(report: Report) -> str:
    """The text of compliance.json: one clause, case or function per line, so that two reports compare line by line."""
    members = (f"{_compact(name)}: {_lines(value)}" for name, value in to_document(report).items())
    return "{\n" + ",\n".join(members) + "\n}\n"


def read_json(path: Path) -> Report:
    """The report in a compliance.json, which may be compressed (.gz)."""
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
    return json.dumps(value, allow_nan=False)


def _encode_clause(clause: Clause, report: Report) -> dict[str, Any]:
    return {
        "function": clause.function,
        "kind": clause.kind,
        "status": clause.status,
        "subjects": report.states[clause.id],
        "cases": list(dict.fromkeys(case.id for case in report.cases_of_clause[clause.id])),
        "section": clause.section,
        "library": clause.library,
        "shown_on": clause.shown_on,
        "text": clause.text,
    }


def _decode_clause(identifier: str, entry: Any) -> Clause:
    what = f"clause {identifier}"
    own = {name: value for name, value in checks.mapping(entry, what).items() if name not in ("subjects", "cases")}
    return checks.decode(Clause, own | {"id": identifier}, what)


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
    checks.keys(checks.mapping(details, f"details of subject {name}"), (), ("shows", "description"), f"subject {name}")
    return Subject(name, **details)


def _check_derived(document: Mapping[str, Any], report: Report) -> None:
    """What a reader takes from the file without deriving it must be what follows from its cases."""
    written = to_document(report)
    for identifier, clause in document["clauses"].items():
        for name in ("subjects", "cases"):
            checks.require(name in clause, f"clause {identifier} lacks {name}")
            derived = written["clauses"][identifier][name]
            same = sorted(derived) == sorted(clause[name]) if name == "cases" else derived == clause[name]
            checks.require(same, f"{name} of clause {identifier} is {clause[name]!r}, but its cases say {derived!r}")
    if document["schema"] == 1:  # which counted without these words
        for totals in (*written["totals"]["clauses"].values(), *written["totals"]["cases"].values()):
            for word in ("known", "known_failures", "unexpected_passes"):
                totals.pop(word, None)
    totals = document.get("totals", written["totals"])
    checks.require(totals == written["totals"], f"totals are {totals!r}, but the cases say {written['totals']!r}")
