"""Write the compliance report: compliance.json, junit.xml, report.html, a table and a badge."""

import json
import os
from pathlib import Path
from typing import Any

from .badge import to_badge
from .checks import ReportError
from .clauses import Clause, load_clauses
from .comparison import Comparison, to_page, to_text
from .compliance_json import read_json, to_json
from .csv_table import to_csv
from .entries import OUTCOMES, SHARPER, CaseResult, Difference, Function, Skips, Subject
from .junit import to_junit
from .model import STATES, Report
from .page import to_html

__all__ = [
    "OUTCOMES",
    "SHARPER",
    "STATES",
    "CaseResult",
    "Clause",
    "Comparison",
    "Difference",
    "Function",
    "Report",
    "ReportError",
    "Skips",
    "Subject",
    "is_complete",
    "load_clauses",
    "read_json",
    "tier_of",
    "to_badge",
    "to_csv",
    "to_html",
    "to_json",
    "to_junit",
    "to_page",
    "to_text",
    "write_report",
]


def write_report(report: Report, directory: Path) -> dict[str, Path]:
    """Write the files into `directory`, which is created if missing. Return their paths by file name."""
    # All files are complete and on disk before the first one replaces another.
    contents = {
        "compliance.json": to_json(report).encode(),
        "junit.xml": to_junit(report),
        "report.html": to_html(report).encode(),
        "cases.csv": to_csv(report).encode(errors="replace"),
        "badge.svg": to_badge(report).encode(errors="replace"),
    }
    directory.mkdir(parents=True, exist_ok=True)
    fresh = {name: directory / f".{name}.{os.getpid()}.tmp" for name in contents}
    try:
        for name, content in contents.items():
            fresh[name].write_bytes(content)
        for name, path in fresh.items():
            path.replace(directory / name)
    finally:
        for path in fresh.values():
            path.unlink(missing_ok=True)
    return {name: directory / name for name in contents}


def is_complete(directory: Path) -> bool:
    """Return whether a directory holds the report of a whole run. A report without a state counts as whole."""
    facts = _facts(directory)
    return facts is not None and facts.get("state", "complete") == "complete"


def tier_of(directory: Path) -> str:
    """Return the name of the tier of a directory's report; "full" if the report does not name it."""
    return str((_facts(directory) or {}).get("tier", "full")).partition(",")[0]


def _facts(directory: Path) -> dict[str, Any] | None:
    """Return the environment of a directory's report, or None if there is no report."""
    try:
        environment = json.loads((directory / "compliance.json").read_bytes())["environment"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return environment if isinstance(environment, dict) else {}
