"""Load the clauses of the document."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from . import checks

SHOWN_ON = ("cpu", "gpu", "both", "no")


@dataclass(frozen=True)
class Clause:
    """Hold one separately testable statement of the document.

    `shown_on` says who can show it: host calls alone ("cpu"), only a device ("gpu"), any subject that computes
    ("both"), or nobody ("no"). `reason` says why not everybody can, if known.
    """

    id: str
    function: str
    kind: str
    status: str | None
    shown_on: str
    section: str
    library: str
    text: str
    reason: str = ""

    def __post_init__(self) -> None:
        checks.text(self.id, "id of a clause")
        for name in ("function", "kind", "section", "library", "text"):
            checks.text(getattr(self, name), f"{name} of clause {self.id}")
        if self.status is not None:
            checks.text(self.status, f"status of clause {self.id}")
        checks.one_of(self.shown_on, SHOWN_ON, f"shown_on of clause {self.id}")


def load_clauses(directory: Traversable | None = None) -> dict[str, Clause]:
    """Return every clause of `directory` (default: the document's) by id.

    The name of a file is the library of its clauses.
    """
    directory = files("dualdnn.conformance.clauses") if directory is None else directory
    sources = [entry for entry in directory.iterdir() if entry.name.endswith(".jsonl")]
    checks.require(bool(sources), f"directory {directory} holds no clauses (*.jsonl)")
    clauses: dict[str, Clause] = {}
    for source in sorted(sources, key=lambda entry: entry.name):
        for line_number, line in enumerate(source.read_text("utf-8").splitlines(), 1):
            where = f"{source.name} line {line_number}"
            clause = _parse(line, source.name.removesuffix(".jsonl"), where)
            checks.require(clause.id not in clauses, f"{where}: clause {clause.id} exists already")
            clauses[clause.id] = clause
    return clauses


def _parse(line: str, library: str, where: str) -> Clause:
    try:
        row: Mapping[str, str] = checks.mapping(json.loads(line), where)
    except json.JSONDecodeError as error:
        raise checks.ReportError(f"{where}: not JSON: {error}") from error
    renamed = {"function" if key == "subject" else key: value for key, value in row.items()}
    return checks.decode(Clause, renamed | {"library": library}, where)
