"""Write results as they come, so that a killed run loses only the cases in progress.

``results.jsonl`` in the report's folder begins with a line that identifies the run; each further line is a result.
``--resume`` puts the results of earlier attempts into ``resumed.jsonl``, which does not change while processes read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

RESULTS = "results.jsonl"
RESUMED = "resumed.jsonl"


class JournalError(ValueError):
    """Say that a journal does not belong to the run that is to continue."""


class Journal:
    """Append results to a file, which the first result creates.

    ``run`` identifies the run; two runs with the same identity can continue each other's results.
    """

    def __init__(self, directory: Path, run: Mapping[str, Any]) -> None:
        self.path, self.run = directory / RESULTS, run
        self.file: TextIO | None = None

    def add(self, result: Mapping[str, Any]) -> None:
        """Append a result; it is in the file when this returns."""
        if self.file is None:
            self.file = self.path.open("w", encoding="utf-8")
            self._line(self.file, self.run)
        self._line(self.file, result)

    @staticmethod
    def _line(file: TextIO, value: Mapping[str, Any]) -> None:
        file.write(f"{json.dumps(value)}\n")
        file.flush()

    def close(self) -> None:
        """End the journal."""
        if self.file:
            self.file.close()


def entries(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return (the run's identity, its results) from a journal.

    A truncated last line is left out; a missing file gives ({}, []).
    """
    if not path.exists():
        return {}, []
    lines = path.read_text(encoding="utf-8").splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number < len(lines):
                raise JournalError(f"{path}, line {number}: {error}") from error
    return (found[0], latest(found[1:])) if found else ({}, [])


def latest(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the last result of each case and subject."""
    return list({(result["id"], result["subject"]): result for result in results}.values())


def finished(path: Path) -> set[tuple[str, str]]:
    """Return (case, subject) of every result of a journal."""
    return {(result["id"], result["subject"]) for result in entries(path)[1]}


def resumed(directory: Path, run: Mapping[str, Any]) -> Path | None:
    """Join the results of earlier attempts and return the file, or None without results.

    Raises ``JournalError`` for other runs.
    """
    parts = [entries(directory / name) for name in (RESUMED, RESULTS)]
    for said, _ in parts:
        differing = [name for name in {**run, **said} if said and said.get(name) != run.get(name)]
        if differing:
            name = differing[0]
            raise JournalError(
                f"--resume: the run in {directory} had {name} {said.get(name)!r}, this one has {run.get(name)!r}"
            )
    results = latest([result for _, found in parts for result in found])
    if not results:
        return None
    target = directory / RESUMED
    fresh = target.with_suffix(".tmp")
    fresh.write_text("".join(f"{json.dumps(value)}\n" for value in (run, *results)), encoding="utf-8")
    fresh.replace(target)
    (directory / RESULTS).unlink(missing_ok=True)
    return target
