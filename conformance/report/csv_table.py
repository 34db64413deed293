"""Write cases.csv for spreadsheets and scripts: one line for each case that ran on a subject, and for each test
with skips.
"""

import csv
import io

from .entries import SHARPER
from .model import Report

COLUMNS = (
    "subject",
    "case",
    "outcome",
    "known",
    "clauses",
    "seconds",
    "error_ratio",
    *SHARPER,
    "message",
    "reproduction",
)


def to_csv(report: Report) -> str:
    """Return the text of cases.csv.

    It has the first line of a message, clauses separated by spaces, and the reproduction line of failures.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for case in report.cases:
        said = (case.message or case.reason).strip().partition("\n")[0]
        cells = (
            case.subject, case.id, case.outcome, case.known, " ".join(case.clauses), f"{case.seconds:.6f}",
            *("" if number is None else repr(number) for number in (case.error_ratio, *(getattr(case, n) for n in SHARPER))),
            said, report.reproduction(case) if case.outcome == "failed" else "",
        )  # fmt: skip
        table.writerow([_inert(cell) for cell in cells])
    blank = [""] * (len(COLUMNS) - 5)
    for skips in report.skips:
        for test, count in skips.tests.items():
            said = f"{count} cases: {skips.reason}"
            table.writerow([_inert(cell) for cell in (skips.subject, test, "skipped", *blank, said, "")])
    return text.getvalue()


def _inert(cell: str) -> str:
    """Return the cell such that no spreadsheet takes it for a formula."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell
