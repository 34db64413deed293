"""The compliance report: compliance.json, junit.xml and report.html from the results of the cases."""

from pathlib import Path

from .checks import ReportError
from .clauses import Clause, load_clauses
from .compliance_json import read_json, to_json
from .entries import OUTCOMES, CaseResult, Difference, Function, Subject
from .junit import to_junit
from .model import STATES, Report
from .page import to_html

__all__ = [
    "OUTCOMES",
    "STATES",
    "CaseResult",
    "Clause",
    "Difference",
    "Function",
    "Report",
    "ReportError",
    "Subject",
    "load_clauses",
    "read_json",
    "to_html",
    "to_json",
    "to_junit",
    "write_report",
]


def write_report(report: Report, directory: Path) -> dict[str, Path]:
    """Write the three files into `directory`, made if missing; returns their paths by file name."""
    # All three are complete before the first is written.
    contents = {
        "compliance.json": to_json(report).encode(),
        "junit.xml": to_junit(report),
        "report.html": to_html(report).encode(),
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    return {name: directory / name for name in contents}
