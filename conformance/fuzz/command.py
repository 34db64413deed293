"""Run ``dualdnn fuzz``: draw operations, judge them on subjects, and report each fault once."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dualdnn.accelerated.runtime.sources import entry_points
from dualdnn.accelerated.solver import SOLVER_FAMILIES
from dualdnn.api.files import write

from ..corpus import pin
from ..domains import DOMAINS, PROFILES
from ..progress import Bar
from ..solvers import excused, unknown_solvers
from ..subjects import open_subject
from . import DEFAULT_SECONDS, DEFAULT_SUBJECTS, picture, pool
from .entries import Entry, entry_of, parse_entry
from .judging import Finding, Judge, Key


@dataclass
class Run:
    """Hold what a run has found and drawn so far."""

    bar: Bar
    findings: dict[Key, Finding] = field(default_factory=dict)
    judged: int = 0
    used: dict[str, dict[str, set[str]]] = field(default_factory=dict)
    facts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    shown: dict[str, Finding | None] = field(default_factory=dict)  # entries that were judged again

    def receive(self, kind: str, value: Any) -> None:
        """Handle a message of a worker."""
        if kind == "judged":
            self.judged += value
        elif kind == "shown":
            self.shown[value[0]] = value[1]
        elif kind == "died":
            self.shown[str(value.entry)] = value
            self.tell(value)
        elif kind == "found":
            self.tell(value)
        elif kind == "ended":
            used, facts = value
            for family, lists in used.items():
                for name, found in lists.items():
                    self.used.setdefault(family, {}).setdefault(name, set()).update(found)
            self.facts.update(dict(facts))

    def tell(self, finding: Finding) -> None:
        """Print a new finding, with the commands that rerun and pin it."""
        if finding.key in self.findings:
            return
        self.findings[finding.key] = finding
        key = finding.key
        self.bar.clear()
        by = f" by {key.solver}" if key.solver else ""
        print(f"found: {key.operation} on {key.subject}{by}: {key.what}")
        print("".join(f"  {line}\n" for line in finding.text.splitlines()[:4]), end="")
        print(f"  rerun: {shlex.join(['dualdnn', 'fuzz', '--subject', key.subject, '--again', str(finding.entry)])}")
        print(f"  pin:   {shlex.join(['dualdnn', 'fuzz', '--pin', str(finding.entry), '--why', key.what])}", flush=True)


def run(chosen: argparse.Namespace) -> int:
    """Fuzz, or judge or pin one entry. Return 1 if something new is found or a known finding passes, else 0."""
    if chosen.pin:
        print(f"pinned: {pin(parse_entry(chosen.pin), chosen.why)}")
        return 0
    subjects = tuple(chosen.subject or DEFAULT_SUBJECTS)
    if unknown := unknown_solvers(chosen.solvers):
        raise ValueError(f"--solvers: there is no solver {', '.join(unknown)}")
    if chosen.again:
        return again(parse_entry(chosen.again), subjects, chosen.solvers)
    for name, there in (("k", DOMAINS), ("profile", PROFILES)):
        if strange := [value for value in getattr(chosen, name) if value not in there]:
            raise ValueError(f"{strange[0]!r} is not one of {', '.join(there)}")
    for name in ("seconds", "count", "jobs"):
        if getattr(chosen, name) < 0:
            raise ValueError(f"--{name} is {getattr(chosen, name)}, expected 0 or more")
    known = read_ledger(chosen.expected) if chosen.expected else {}
    return fuzz(chosen, subjects, known)


def again(entry: Entry, subjects: Sequence[str], solvers: str) -> int:
    """Judge one entry in this process; return 1 if it shows a fault."""
    status = 0
    for name in subjects:
        found = Judge([open_subject(name)], solvers).examine(entry)
        by = f" by {found.key.solver}" if found and found.key.solver else ""
        print(f"{name}: {'passed' if found is None else f'failed{by}'}")
        if found:
            print(found.text)
            status = 1
    return status


def fuzz(chosen: argparse.Namespace, subjects: tuple[str, ...], known: dict[Key, Entry]) -> int:
    """Draw until the time is over or the count is reached, then report findings and coverage."""
    jobs = chosen.jobs or os.cpu_count() or 1
    seconds = chosen.seconds or (0.0 if chosen.count else DEFAULT_SECONDS)
    bar = Bar("operations" if chosen.count else "seconds", chosen.count or seconds)
    state = Run(bar)
    for name in subjects:
        subject = open_subject(name)  # A wrong name is an error before anything runs.
        if not subject.ours:
            subject.new_handle()
    families, profiles = tuple(chosen.k or DOMAINS), tuple(chosen.profile or PROFILES)

    def orders(number: int) -> pool.Orders:
        count = -(-chosen.count // jobs) if chosen.count else 0
        rotated = families[number % len(families) :] + families[: number % len(families)]
        return pool.Orders(
            subjects,
            rotated,
            profiles,
            chosen.solvers,
            chosen.seed + 1_000_003 * number,
            seconds,
            count,
            frozenset(known),
        )

    print(f"seed {chosen.seed}, {jobs} processes, {', '.join(families)} on {', '.join(subjects)}", flush=True)
    passing = still_failing(state, orders(0), known) if known else []
    begun, judged_before = bar.now(), state.judged

    def tick() -> None:
        done = state.judged - judged_before
        rate = done / max(0.1, bar.now() - begun)
        notes = f"{done:,} judged, {rate:.0f} a second, {len(state.findings)} found"
        bar.advance(done if chosen.count else min(seconds, bar.now() - begun), notes)

    bar.started = begun
    pool.run([orders(number) for number in range(jobs)], state.receive, tick)
    bar.clear()
    for key in passing:
        print(f"passes, but is listed in {chosen.expected}: {known[key]}")
    took = bar.now() - begun
    if not state.judged and not state.findings:
        raise ValueError(f"no operation was judged in {took:.0f} s: {', '.join(subjects)} cannot be asked")
    print(
        f"{state.judged:,} operations judged in {took:.0f} s: {len(state.findings)} new findings, {len(known) - len(passing)} known ones"
    )
    write_report(state, chosen.out, families)
    if chosen.write_expected:
        print(
            f"known findings: {write_ledger(chosen.write_expected, [*state.findings.values()])} in {chosen.write_expected}"
        )
    return 1 if state.findings or passing else 0


def still_failing(state: Run, orders: pool.Orders, known: dict[Key, Entry]) -> list[Key]:
    """Judge the known findings, and return those that pass."""
    entries = {str(entry): key for key, entry in known.items()}
    quiet = Run(state.bar, findings={key: Finding(key, "", entry) for key, entry in known.items()})
    pool.run([replace(orders, entries=tuple(entries))], quiet.receive, lambda: None)
    state.judged += quiet.judged
    return [
        key for text, key in entries.items() if (found := quiet.shown.get(text)) is None or found.key.what != key.what
    ]


def read_ledger(path: Path) -> dict[Key, Entry]:
    """Return the known findings of a file, one JSON object per line.

    Raises ``ValueError`` that names an invalid line.
    """
    known = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            values = json.loads(line)
            known[Key(*values["key"])] = entry_of(values["entry"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: no finding: {error}") from error
    return known


def write_ledger(path: Path, findings: Sequence[Finding]) -> int:
    """Write findings as a ledger, and return their number."""
    lines = [json.dumps({"key": list(found.key), "entry": json.loads(str(found.entry))}) for found in findings]
    write(path, "".join(f"{line}\n" for line in lines).encode())
    return len(lines)


def write_report(state: Run, directory: Path, families: Sequence[str]) -> None:
    """Write findings and coverage, and print the share of solvers and kernels that ran."""
    directory.mkdir(parents=True, exist_ok=True)
    write_ledger(directory / "findings.jsonl", list(state.findings.values()))
    pictures: dict[str, Any] = {}
    for family in families:
        facts: dict[str, dict[str, int]] = {}
        for (_, name, value), count in sorted(state.facts.items()):
            if _ == family:
                facts.setdefault(name, {})[value] = count
        used = {name: sorted(found) for name, found in state.used.get(family, {}).items()}
        solvers = {
            s.name for kind in DOMAINS[family].operations if (known := SOLVER_FAMILIES.get(kind)) for s in known.solvers
        }
        pictures[family] = {**facts, **used, "solvers missing": sorted(solvers - set(used.get("solvers", ())))}
        if used.get("solvers"):
            count = sum(facts.get("operation", {}).values())
            print(
                f"  {family}: {count:,} operations, {len(solvers & set(used['solvers']))} of {len(solvers)} solvers, {len(used['kernels'])} kernels"
            )
    write(directory / "coverage.json", (json.dumps(pictures, indent=1) + "\n").encode())
    ran = {kernel for facts in pictures.values() for kernel in facts.get("kernels", ())}
    never = sorted(entry_points() - ran - set(excused())) if ran and len(families) == len(DOMAINS) else []
    if never:
        print(f"  {len(ran)} kernels ran, {len(never)} never did")
    write(directory / "coverage.html", picture.page(pictures, never).encode())
    print(f"findings: {directory}, coverage: {directory / 'coverage.html'}")
