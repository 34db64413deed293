"""Choose the cases of a run: by name, tier, every n-th, shard, and without those already done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from ..breaks.proofs import of_part
from ..tiers import read_tier
from .items import id_of, opened, subject_of
from .journal import finished

NAMED = pytest.StashKey[frozenset[str] | None]()


def shard_of(text: str) -> tuple[int, int]:
    """Return (i, n) of the text i/n, or (1, 1) of an empty text. Raises ``ValueError`` if i is not between 1 and n."""
    if not text:
        return 1, 1
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise ValueError(f"--shard is {text!r}, expected i/n with i from 1 to n, as 2/5")
    return int(index), int(count)


def in_shard(case: str, index: int, count: int) -> bool:
    """Return whether a case is in a shard.

    The case id alone decides, so all subjects of a case share a shard on every machine.
    """
    return int.from_bytes(hashlib.sha256(case.encode()).digest()[:8]) % count == index - 1


def named(config: pytest.Config) -> frozenset[str] | None:
    """Return the ids that --case and --tier select, or None if they select all."""
    if NAMED not in config.stash:
        wanted, tier = frozenset(config.getoption("--case")), read_tier(config.getoption("--tier"))
        listed = None if tier is None else frozenset(tier.cases)
        config.stash[NAMED] = (wanted & listed if wanted else listed) if listed is not None else wanted or None
    return config.stash[NAMED]


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str) -> list[Any] | None:
    """Create no items for functions without a named case: creating all takes longer than running a small tier."""
    cases = named(collector.config)
    if cases is None or not name.startswith("test_"):
        return None
    case = f"{collector.path.stem}/{name}"
    return None if case in functions_of(cases) else []


FUNCTIONS: dict[frozenset[str], frozenset[str]] = {}


def functions_of(cases: frozenset[str]) -> frozenset[str]:
    """Return the functions of these cases: family/test_name."""
    if cases not in FUNCTIONS:
        FUNCTIONS[cases] = frozenset(case.partition("[")[0] for case in cases)
    return FUNCTIONS[cases]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if unstable := next((item.nodeid for item in items if " at 0x" in item.nodeid), None):
        raise pytest.UsageError(f"the id of a case is not the same in every process: {unstable}")
    chosen = items
    cases, every = named(config), config.getoption("--every")
    index, count = shard_of(config.getoption("--shard"))
    if cases is not None:
        chosen = [item for item in with_subject(chosen) if id_of(item) in cases]
    if part := config.getoption("--prove-clauses"):
        known = proven_elsewhere(config)
        proving = (
            {case for clause, cases in known.items() if of_part(clause, part) for case in cases}
            if known is not None
            else None
        )
        chosen = [i for i in with_subject(chosen) if (names_part(i, part) if proving is None else id_of(i) in proving)]
    chosen = chosen[::every]
    if count > 1:
        chosen = [item for item in with_subject(chosen) if in_shard(id_of(item), index, count)]
    if path := config.getoption("--done"):
        done = finished(Path(path))
        chosen = [item for item in chosen if not is_done(item, done)]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


def names_part(item: pytest.Item, part: str) -> bool:
    """Return whether a case names a clause of the part i/n, or no clause: refusals may cite clauses later."""
    cited = getattr(getattr(item, "function", None), "cited", ())  # The rows of a table cite these.
    named = [*cited, *(clause for mark in item.iter_markers("shows") for clause in mark.args)]
    return not named or any(of_part(clause, part) for clause in named)


def with_subject(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return only items with a subject; others are not cases."""
    return [item for item in items if hasattr(item, "callspec")]


def proven_elsewhere(config: pytest.Config) -> dict[str, Any] | None:
    """Return clause -> {case: breaks} from the proofs that --proofs names, or None without it."""
    path = config.getoption("--proofs")
    if not path:
        return None
    (found,) = json.loads(Path(path).read_text(encoding="utf-8")).values()
    proven: dict[str, dict[str, list[str]]] = {}
    for clause, entry in found.items():
        for one in (entry, *entry.get("more", ())) if entry["evidence"] == "proven" else ():
            proven.setdefault(clause, {}).setdefault(one["case"], []).append(one["by"])
    return proven


def is_done(item: pytest.Item, done: Collection[tuple[str, str]]) -> bool:
    """Return whether a case already has a result."""
    subject = subject_of(item)
    return subject is not None and (id_of(item), opened(subject).name) in done
