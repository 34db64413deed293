"""Freeze the tiers of the suite: ``smoke`` takes a minute, ``standard`` minutes, and ``full`` is everything.

The standard tier shows every clause that the suite can show, calls every function, and runs every solver and kernel,
each at least once. Its cases are a frozen list next to this file, chosen from the report of a full run (``python -m
dualdnn.conformance.tiers``). The list counts its versions, so two reports of one version ran the same cases. A case
that leaves the list leaves a reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

SMOKE = "smoke"
STANDARD = "standard"
FULL = "full"
TIERS = (SMOKE, STANDARD, FULL)  # each tier includes the previous ones


class TierError(ValueError):
    """Say that a list of cases does not follow from its versions."""


def digest(cases: Iterable[str]) -> str:
    """Return an id of a set of case ids: the first 16 digits of a SHA-256."""
    return hashlib.sha256("\n".join(sorted(cases)).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Version:
    """Describe a version of a list: the number of added cases, the removed cases with reasons, and the digest
    of the list. A version that gives cases other ids neither adds nor removes any.
    """

    added: int
    digest: str
    removed: dict[str, str] = field(default_factory=dict)  # id -> reason


@dataclass(frozen=True)
class Tier:
    """Hold the case ids of a tier, without subjects, and the versions of its list, oldest first.

    functions: documented function -> a case of the list that shows one of its clauses, in the report that the list was
    chosen from.
    """

    name: str
    cases: tuple[str, ...]
    versions: tuple[Version, ...]
    functions: dict[str, str] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """Return the number of the newest version."""
        return len(self.versions)

    def __str__(self) -> str:
        return f"{self.name}, version {self.version}"

    def check(self) -> None:
        """Raise ``TierError`` if the cases do not match the newest version, or a version removes cases without
        a reason.
        """
        if len(set(self.cases)) != len(self.cases):
            raise TierError(f"the {self.name} tier names a case twice")
        if not self.versions or self.versions[-1].digest != digest(self.cases):
            raise TierError(f"the cases of the {self.name} tier are not those of its version {self.version}")
        removed = {case: reason for version in self.versions for case, reason in version.removed.items()}
        if silent := [case for case, reason in removed.items() if len(reason.split()) < 3]:
            raise TierError(f"the {self.name} tier lost {', '.join(silent)} without a reason")
        count = sum(version.added - len(version.removed) for version in self.versions)
        if count != len(self.cases):
            raise TierError(f"the versions of the {self.name} tier say {count} cases, it has {len(self.cases)}")
        if strange := [f"{name}: {case}" for name, case in self.functions.items() if case not in self.cases]:
            raise TierError(f"the {self.name} tier names cases of functions that it lacks: {', '.join(strange)}")

    def changed(self, cases: Iterable[str], functions: dict[str, str], reason: str = "") -> Tier:
        """Return the next version with these cases, or this version if they are the same.

        ``reason`` says why cases left, if any did.
        """
        wanted = tuple(sorted(set(cases)))
        gone = sorted(set(self.cases) - set(wanted))
        if set(wanted) == set(self.cases):
            return replace(self, functions=functions)
        if gone and len(reason.split()) < 3:
            raise TierError(
                f"{len(gone)} cases leave the {self.name} tier, first {gone[0]}: say why (--removed REASON)"
            )
        version = Version(len(set(wanted) - set(self.cases)), digest(wanted), dict.fromkeys(gone, reason))
        return Tier(self.name, wanted, (*self.versions, version), functions)

    def to_json(self) -> str:
        """Return the text of the list, one case per line."""
        versions = [asdict(version) for version in self.versions]
        return json.dumps({"versions": versions, "cases": self.cases, "functions": self.functions}, indent=1) + "\n"


def path_of(name: str) -> Path:
    """Return the file of a tier's list in a checkout."""
    return Path(__file__).parent / f"{name}.json"


def read_tier(name: str) -> Tier | None:
    """Return a tier with its checked list, or None for the full tier, which has no list.

    Raises ``TierError`` for an unknown tier.
    """
    if name not in TIERS:
        raise TierError(f"--tier is {name!r}, expected one of {', '.join(TIERS)}")
    if name == FULL:
        return None
    text = resources.files(__package__).joinpath(f"{name}.json").read_text(encoding="utf-8")
    tier = parsed(name, json.loads(text))
    tier.check()
    return tier


def parsed(name: str, document: Any) -> Tier:
    """Return the tier of a list in JSON values."""
    versions = tuple(Version(**version) for version in document["versions"])
    return Tier(name, tuple(document["cases"]), versions, document["functions"])
