"""Says which files have cases: modules, tables of refusals, and pinned operations."""

from __future__ import annotations

from pathlib import Path

CONFORMANCE = Path(__file__).parent.parent
CASES = CONFORMANCE / "cases"


def case_files(conformance: Path = CONFORMANCE) -> list[Path]:
    """Return the files that cases are collected from, in order, of this package or of a copy of it. The stem of a file is the first part of the
    ids of its cases; several may share it."""
    found = [*(conformance / "cases").rglob("[!_]*.py"), *(conformance / "refusals").glob("*.toml")]
    return sorted([*found, *(conformance / "corpus").glob("*.jsonl")])
