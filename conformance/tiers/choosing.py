"""Choose cases that show everything a full run shows, at the least cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dualdnn.api.document import functions
from dualdnn.api.miopen.document import functions as miopen_functions
from dualdnn.conformance.report import Report

T = TypeVar("T")
Aim = tuple[str, ...]  # (kind, name) or (kind, subject, name)
MODULE_SECONDS = 0.7  # seconds of one core to compile a kernel module for the emulated device
CASE_SECONDS = 0.02  # seconds of the suite itself, per case and subject


@dataclass
class Candidate:
    """Hold what a case shows, the kernel modules it needs, and its seconds without compiling them."""

    shows: set[Aim] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    seconds: float = 0.0


def candidates(reports: Iterable[Report], launches: Iterable[Mapping[str, Any]]) -> dict[str, Candidate]:
    """Return the cases of full runs that passed everywhere or were skipped.

    A case has its least seconds of all runs, because a run may include compiling. launches: the kernels.json of the
    runs: kernels, solvers and modules -> ids of the cases that use them.
    """
    found: dict[str, Candidate] = {}
    seconds: dict[tuple[str, str], float] = {}
    bad: set[str] = set()
    documented = {*functions(), *miopen_functions()}
    for report in reports:
        for case in report.cases:
            bad |= {case.id} if case.outcome in ("failed", "mistrusted") and not case.known else set()
            if case.outcome != "passed":
                continue
            made = found.setdefault(case.id, Candidate())
            made.shows |= {("clause", case.subject, clause) for clause in case.clauses}
            # A function that only the id names may be one that the document says nothing about.
            names = {
                case.id.partition("[")[2].removesuffix("]"),
                *(clause.partition("/")[0] for clause in case.clauses),
            }
            made.shows |= {("function", name) for name in names & documented}
            key = case.id, case.subject
            seconds[key] = min(case.seconds, seconds.get(key, case.seconds))
    for table in launches:
        for kind, aim in (("kernels", "kernel"), ("solvers", "solver")):
            for name, users in table.get(kind, {}).items():
                for user in found.keys() & set(users):
                    found[user].shows.add((aim, name))
        for name, users in table.get("modules", {}).items():
            for user in found.keys() & set(users):
                found[user].modules.add(name)
    for (user, _), spent in seconds.items():
        found[user].seconds += spent + CASE_SECONDS
    return {case: made for case, made in found.items() if case not in bad}


def aims(known: Mapping[str, Candidate]) -> set[Aim]:
    """Return everything that some case shows."""
    shown: list[set[Aim]] = [made.shows for made in known.values()]
    return union(shown)


def chosen(known: Mapping[str, Candidate], left: set[Aim], have: Iterable[str] = ()) -> list[str]:
    """Return cases that together show what ``have`` does not show yet; the best value per second comes
    first.

    A module that another chosen case needs costs nothing more. A case whose aims others also show is left out at the
    end.
    """
    kept = [case for case in have if case in known]
    had: set[Aim] = union(known[case].shows for case in kept)
    left = left - had
    compiled = union(known[case].modules for case in kept)
    wanted, open_ = set(left), {case: made for case, made in sorted(known.items()) if made.shows & left}
    picked: list[str] = []
    while open_ and left:
        best, most = "", 0.0
        for case, made in open_.items():
            gain = len(made.shows & left) / (made.seconds + MODULE_SECONDS * len(made.modules - compiled))
            best, most = (case, gain) if gain > most else (best, most)
        picked.append(best)
        left -= known[best].shows
        compiled |= known[best].modules
        open_ = {case: made for case, made in open_.items() if not made.shows.isdisjoint(left)}
    return needed(known, picked, wanted)


def needed(known: Mapping[str, Candidate], picked: Iterable[str], wanted: set[Aim]) -> list[str]:
    """Return the picked cases that are necessary to show everything wanted; the most expensive are tried first."""
    left = list(picked)
    counts = Counter(aim for case in left for aim in known[case].shows & wanted)
    for case in sorted(left, key=lambda case: -known[case].seconds - MODULE_SECONDS * len(known[case].modules)):
        if all(counts[aim] > 1 for aim in known[case].shows & wanted):
            left.remove(case)
            counts.subtract(known[case].shows & wanted)
    return left


def union(sets: Iterable[Iterable[T]]) -> set[T]:
    """Return the union of the sets."""
    return {each for one in sets for each in one}


def cost_of(known: Mapping[str, Candidate], cases: Iterable[str]) -> tuple[float, int]:
    """Return (seconds of the cases without compiling, number of kernel modules they need)."""
    picked = [known[case] for case in cases if case in known]
    return sum(made.seconds for made in picked), len(union(made.modules for made in picked))
