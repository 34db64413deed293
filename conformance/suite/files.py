"""List the files with cases: modules, tables of refusals, and pinned operations."""

from __future__ import annotations

from pathlib import Path

CONFORMANCE = Path(__file__).parent.parent
CASES = CONFORMANCE / "cases"


def case_files(conformance: Path = CONFORMANCE) -> list[Path]:
    """Return the files that cases are collected from, in order, for this package or a copy of it.

    The stem of a file begins the ids of its cases; several files may share a stem.
    """
    found = [*(conformance / "cases").rglob("[!_]*.py"), *(conformance / "refusals").glob("*.toml")]
    return sorted([*found, *(conformance / "corpus").glob("*.jsonl")])
