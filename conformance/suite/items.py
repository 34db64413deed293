"""Name the cases of a run and open its subjects."""

from __future__ import annotations

from typing import Any

import pytest

from ..subjects import Subject, default_subjects, foreign_path, open_subject
from ..subjects.probe import DescribedSubject, describe_subject

OPENED: dict[str, Subject] = {}


def subject_names(config: pytest.Config) -> list[str]:
    return config.getoption("--subject") or default_subjects()


def opened(name: str) -> Subject:
    """Return the subject, opened once per process."""
    if name not in OPENED:
        OPENED[name] = open_subject(name)
    return OPENED[name]


def described(name: str, seconds: float | None = None) -> DescribedSubject:
    """Return the properties of a subject.

    A foreign library is not loaded: it could end the process that writes the report. seconds: limit of each step that
    loads it in another process.
    """
    return describe_subject(name, seconds) if name not in OPENED and foreign_path(name) else opened(name)


def runs_cases(config: pytest.Config) -> bool:
    """Return whether this process runs cases itself, without workers."""
    elsewhere = config.getoption("numprocesses", None) or config.getoption("--scheduler")
    return hasattr(config, "workerinput") or not elsewhere


def case_id(item: pytest.Item, subject: str) -> str:
    """Return the case's id without its subject: pooling/test_forward[...]."""
    return without_subject(item.path.stem, item.name, subject)


def id_of(item: Any) -> str:
    """Return the id of a case without its subject."""
    return case_id(item, item.callspec.params.get("subject", ""))


def without_subject(file: str, name: str, subject: str) -> str:
    for written, kept in ((f"[{subject}-", "["), (f"-{subject}]", "]"), (f"[{subject}]", ""), (f"-{subject}-", "-")):
        name = name.replace(written, kept)
    return f"{file}/{name}"


def subject_of(item: pytest.Item) -> str | None:
    """Return the name of a case's subject, or None without a subject, or if it does not apply to it."""
    name = getattr(getattr(item, "callspec", None), "params", {}).get("subject")
    return name if isinstance(name, str) else None
