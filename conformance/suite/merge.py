"""Run ``dualdnn merge``: make one report from the shards of a run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..provenance import COMPLETE, INTERRUPTED
from ..report import Report, read_json, write_report
from ..solvers import ALL, KERNELS_FILE, merged_kernels
from ..tiers import FULL, SMOKE, read_tier
from .completeness import lacking
from .proofs import with_evidence
from .selection import shard_of
from .summary import unjudged

SAME = ("commit", "tier", "selection", "solvers", "inputs")  # facts that shards of one run share


class MergeError(ValueError):
    """Say that reports are not a complete set of shards of one run."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR", help="the report of each shard")
    parser.add_argument("--out", type=Path, metavar="DIR", required=True, help="where the report of the whole goes")


def run(chosen: argparse.Namespace) -> int:
    """Merge, and print what fails. Return 1 if something fails, or a clause or a kernel lacks a case, 2 if no
    case judged a foreign library."""
    reports = [read_json(folder / "compliance.json") for folder in chosen.folders]
    check_set([str(folder) for folder in chosen.folders], [report.environment for report in reports])
    tables = [json.loads(path.read_bytes()) for folder in chosen.folders if (path := folder / KERNELS_FILE).exists()]
    merged = Report.merge(*reports)
    merged = replace(merged, environment={**whole(merged.environment), "shards": len(reports)})
    merged = with_evidence(merged)
    paths = write_report(merged, chosen.out)
    facts = reports[0].environment
    kernels = merged_kernels(tables, chosen.out)
    for subject, totals in merged.case_totals.items():
        print(
            f"{subject}: " + ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in totals.items() if count)
        )
    bad = [case for case in merged.cases if case.is_new_failure or case.passes_unexpectedly]
    for case in bad:
        print(f"{'failed' if case.outcome == 'failed' else 'passes unexpectedly'}: {case.reproduction}")
    name = str(facts.get("tier", FULL)).partition(",")[0]
    if name != SMOKE and not facts.get("selection"):
        missing = lacking(
            merged.cases, merged.subjects, read_tier(name), kernels if facts.get("solvers") == ALL else None
        )
        bad_lines = missing.lines()
        print(*bad_lines, sep="\n", end="\n" if bad_lines else "")
    else:
        bad_lines = []
    lines = unjudged(merged, partial=bool(facts.get("selection")))
    print(*lines, f"report: {paths['report.html']}", sep="\n")
    return 1 if bad or bad_lines else 2 if lines else 0


def whole(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment of a merged report: complete if its shards were complete apart from being shards."""
    runs = [
        {name: value for name, value in one.items() if name not in ("shard", "state")}
        for one in environment.get("runs", [])
    ]
    kept = {name: value for name, value in environment.items() if name not in ("shard", "state", "runs")}
    return {**kept, "state": COMPLETE, **({"runs": runs} if runs else {})}


def check_set(names: Sequence[str], environments: Sequence[Mapping[str, Any]]) -> None:
    """Raise ``MergeError`` unless these are the environments of all finished shards of one run.

    ``names`` are the folders.
    """
    first = environments[0]
    shards: dict[int, str] = {}
    counts = set()
    for name, facts in zip(names, environments, strict=True):
        if "shard" not in facts:
            raise MergeError(f"{name} is not a shard: it was made without --shard, or merged before")
        if facts.get("state") == INTERRUPTED:
            raise MergeError(f"{name} was interrupted: go on with it (--resume), then merge")
        for fact in SAME:
            if facts.get(fact) != first.get(fact):
                raise MergeError(
                    f"{fact} of {name} is {facts.get(fact)!r}, of {names[0]} {first.get(fact)!r}: other runs"
                )
        index, count = shard_of(str(facts["shard"]))
        counts.add(count)
        if index in shards:
            raise MergeError(f"{shards[index]} and {name} are the same shard, {facts['shard']}")
        shards[index] = name
    if len(counts) > 1:
        raise MergeError(f"the folders are shards of {', '.join(map(str, sorted(counts)))}: one number is due")
    total = counts.pop()
    if missing := [f"{index}/{total}" for index in range(1, total + 1) if index not in shards]:
        raise MergeError(f"the set is not complete, there is no shard {', '.join(missing)}")
