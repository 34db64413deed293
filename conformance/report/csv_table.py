"""cases.csv: one line for each case on each subject that ran, and for each test with skipped ones, for spreadsheets and scripts."""

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
    """Returns the text of cases.csv; of a message its first line, clauses with spaces between them, of failures what runs them again."""
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
    """A cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell
