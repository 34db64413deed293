"""Emulate releases of NVIDIA's library that accept calls which the document refuses; support/served.json holds the
data.

The document is the default. ``cudnnCreate(as_release="8.9.7")`` or the environment variable DUALDNN_AS makes the checks
accept what that release accepts. Each difference that a program meets is printed once to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

DOCUMENT = "8.0.3"  # This is the release of the document, which accepts nothing in addition.
RELEASES = ("8.9.7", "9.19")


@dataclass(frozen=True)
class Served:
    """Describe one error that a release does not raise.

    difference: its id in docs/errata.md. clauses: lists the clauses that the error cites. takes: maps a fact of the
    error to the values that the release accepts; other facts may have any value. enumerators: maps a type and a number
    to an enumerator.
    """

    difference: str
    releases: tuple[str, ...]
    clauses: tuple[str, ...]
    takes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    enumerators: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def covers(self, clause: str, facts: Mapping[str, Any]) -> bool:
        """Return whether the release does not raise the error with this clause and these facts."""
        return clause in self.clauses and all(str(facts.get(name)) in values for name, values in self.takes.items())


@cache
def table() -> tuple[Served, ...]:
    """Return all entries of support/served.json."""
    entries = json.loads((resources.files("dualdnn.api") / "support" / "served.json").read_text())
    return tuple(
        Served(
            entry["difference"],
            tuple(entry["releases"]),
            tuple(entry["clauses"]),
            {name: tuple(values) for name, values in entry.get("takes", {}).items()},
            entry.get("enumerators", {}),
        )
        for entry in entries
    )


@cache
def _served(release: str) -> tuple[Served, ...]:
    return tuple(entry for entry in table() if release in entry.releases)


class _Acting(threading.local):
    """Hold the release that a thread's calls emulate; None is the document."""

    release: str | None = None
    scopes = 0  # open scopes; outside of them the environment decides


_acting = _Acting()
_told: set[str] = set()
default = DOCUMENT  # This release applies if neither a handle nor the environment names one.
noted: list[Served] | None = None  # While set, it collects the entries that were used.
in_use = False  # It is True if a handle or the environment names a release.


def named(name: str | None) -> str | None:
    """Return the release of this name, or of DUALDNN_AS if the name is None; None is the document. Raise ValueError
    with the known names for others."""
    wanted = os.environ.get("DUALDNN_AS") or default if name is None else name
    if wanted not in (DOCUMENT, *RELEASES):
        raise ValueError(
            f"{wanted!r} is not a release that this edition can act as: {', '.join((DOCUMENT, *RELEASES))}"
        )
    found = None if wanted == DOCUMENT else wanted
    if found:
        use()
    return found


def act_by_default_as(release: str | None) -> None:
    """Emulate this release if neither a handle nor the environment names one; None is the document."""
    global default
    default = release or DOCUMENT


def use() -> None:
    """Make calls look up the release that they emulate."""
    global in_use
    in_use = True


class acting:
    """Emulate a release in this scope and thread; None is the document."""

    def __init__(self, release: str | None) -> None:
        self.release = release

    def __enter__(self) -> None:
        self.before = _acting.release
        _acting.release = self.release
        _acting.scopes += 1

    def __exit__(self, *_: object) -> None:
        _acting.release = self.before
        _acting.scopes -= 1


def current() -> str | None:
    """Return the release that this thread's calls emulate."""
    if not in_use and default == DOCUMENT and not os.environ.get("DUALDNN_AS"):
        return None
    if _acting.scopes:
        return _acting.release
    try:
        return named(None)
    except ValueError:  # cudnnCreate reports this error.
        return None


def serves(clause: str, message: str, facts: Mapping[str, Any]) -> bool:
    """Return whether the emulated release accepts what this error refuses; print the difference on its first use."""
    release = current()
    entry = None if release is None else _entry(release, clause, facts)
    if entry is None or entry.enumerators:
        return False
    note(entry)
    tell(entry.difference, f"as {release} serves it: {message.partition(';')[0]:.240} [{clause}]")
    return True


def enumerator(clause: str, kind: str, value: Any) -> str | None:
    """Return the name of the enumerator that the release assigns to a number, or None."""
    release = current()
    entry = None if release is None else _entry(release, clause, {})
    name = None if entry is None else entry.enumerators.get(kind, {}).get(str(value))
    if entry is not None and name is not None:
        note(entry)
        tell(entry.difference, f"{value} of {kind} in {release} is served as {name} [{clause}]")
    return name


def note(entry: Served) -> None:
    """Add an entry to the collected entries, if they are being collected."""
    if noted is not None:
        noted.append(entry)


def tell(difference: str, text: str) -> None:
    """Print to standard error what a difference accepts, once per process."""
    if difference not in _told:
        _told.add(difference)
        print(f"dualdnn: {text} (docs/errata.md, {difference})", file=sys.stderr, flush=True)


def _entry(release: str, clause: str, facts: Mapping[str, Any]) -> Served | None:
    return next((entry for entry in _served(release) if entry.covers(clause, facts)), None)
