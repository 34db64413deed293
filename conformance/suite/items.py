"""Names the cases of a run and opens its subjects."""

from __future__ import annotations

import pytest

from ..subjects import Subject, default_subjects, open_subject

OPENED: dict[str, Subject] = {}


def subject_names(config: pytest.Config) -> list[str]:
    return config.getoption("--subject") or default_subjects()


def opened(name: str) -> Subject:
    """Each subject is opened once per process."""
    if name not in OPENED:
        OPENED[name] = open_subject(name)
    return OPENED[name]


def case_id(item: pytest.Item, subject: str) -> str:
    """The case's id without its subject: pooling/test_forward[...]."""
    return without_subject(item.path.stem, item.name, subject)


def without_subject(file: str, name: str, subject: str) -> str:
    for written, kept in ((f"[{subject}-", "["), (f"-{subject}]", "]"), (f"[{subject}]", ""), (f"-{subject}-", "-")):
        name = name.replace(written, kept)
    return f"{file}/{name}"


def subject_of(item: pytest.Item) -> str | None:
    """The name of a case's subject; None where it has none, or none that it applies to."""
    name = getattr(getattr(item, "callspec", None), "params", {}).get("subject")
    return name if isinstance(name, str) else None
