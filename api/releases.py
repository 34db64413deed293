"""Serves what releases of NVIDIA's library serve although the document refuses it: data of support/served.json, beside the declared differences.

The document is the default. ``cudnnCreate(as_release="8.9.7")``, or the environment variable DUALDNN_AS, makes the checks let pass what
that release serves; each difference that a program meets is named once on the standard error.
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

DOCUMENT = "8.0.3"  # the release whose document decides: nothing is let pass
RELEASES = ("8.9.7", "9.19")


@dataclass(frozen=True)
class Served:
    """One refusal that a release does not make.

    difference: its id in docs/errata.md. clauses: those that the refusal cites. takes: name of a fact of the refusal -> the values with
    which it is served; facts that are not named may be anything. enumerators: type -> number -> the enumerator that it stands for.
    """

    difference: str
    releases: tuple[str, ...]
    clauses: tuple[str, ...]
    takes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    enumerators: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def covers(self, clause: str, facts: Mapping[str, Any]) -> bool:
        """Return whether a refusal with this clause and these facts is one that the release does not make."""
        return clause in self.clauses and all(str(facts.get(name)) in values for name, values in self.takes.items())


@cache
def table() -> tuple[Served, ...]:
    """Return every entry of support/served.json."""
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
    """The release as which the calls of a thread are answered; None is the document."""

    release: str | None = None
    scopes = 0  # open scopes; outside of them the environment decides


_acting = _Acting()
_told: set[str] = set()
default = DOCUMENT  # the release as which this process acts where nothing names one
noted: list[Served] | None = None  # what was served, while somebody collects it
in_use = False  # whether any handle, or the environment, names a release


def named(name: str | None) -> str | None:
    """Return the release of this name, that of DUALDNN_AS where it is None; None is the document. ValueError names the known ones."""
    wanted = os.environ.get("DUALDNN_AS") or default if name is None else name
    if wanted not in (DOCUMENT, *RELEASES):
        raise ValueError(f"{wanted!r} is no release that this edition can act as: {', '.join((DOCUMENT, *RELEASES))}")
    found = None if wanted == DOCUMENT else wanted
    if found:
        use()
    return found


def act_by_default_as(release: str | None) -> None:
    """Act as this release where neither a handle nor the environment names one; None is the document."""
    global default
    default = release or DOCUMENT


def use() -> None:
    """Let calls look up the release that they act as."""
    global in_use
    in_use = True


class acting:
    """A scope in which this thread's calls are answered as a release, or by the document where it is None."""

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
    """Return the release as which this thread's calls are answered."""
    if not in_use and default == DOCUMENT and not os.environ.get("DUALDNN_AS"):
        return None
    if _acting.scopes:
        return _acting.release
    try:
        return named(None)
    except ValueError:  # cudnnCreate says so
        return None


def serves(clause: str, message: str, facts: Mapping[str, Any]) -> bool:
    """Return whether the release that is acted as serves what this refusal is about; name the difference the first time."""
    release = current()
    entry = None if release is None else _entry(release, clause, facts)
    if entry is None or entry.enumerators:
        return False
    note(entry)
    tell(entry.difference, f"as {release} serves it: {message.partition(';')[0]:.240} [{clause}]")
    return True


def enumerator(clause: str, kind: str, value: Any) -> str | None:
    """Return the name of the enumerator that a number of a release stands for; None where it stands for none."""
    release = current()
    entry = None if release is None else _entry(release, clause, {})
    name = None if entry is None else entry.enumerators.get(kind, {}).get(str(value))
    if entry is not None and name is not None:
        note(entry)
        tell(entry.difference, f"{value} of {kind} in {release} is served as {name} [{clause}]")
    return name


def note(entry: Served) -> None:
    """Add what was served to what somebody collects."""
    if noted is not None:
        noted.append(entry)


def tell(difference: str, text: str) -> None:
    """Say on the standard error what a difference serves, once in a process."""
    if difference not in _told:
        _told.add(difference)
        print(f"dualdnn: {text} (docs/errata.md, {difference})", file=sys.stderr, flush=True)


def _entry(release: str, clause: str, facts: Mapping[str, Any]) -> Served | None:
    return next((entry for entry in _served(release) if entry.covers(clause, facts)), None)
