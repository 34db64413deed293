"""Find which injected bugs, or mutants, the suite notices: ``python -m dualdnn.conformance.injected``."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from dataclasses import replace
from math import inf
from pathlib import Path

from dualdnn.conformance.run_pytest import INTERRUPTED
from dualdnn.conformance.solvers import ALL

from . import GONE, INVALID, LAYERS, NOTICED, SURVIVED, UNDECIDED, Copy, bugs, left, line, row, summary, tried, verified
from .mutants import cases_of, drawn
from .reach import Reach

GPU_SECONDS = 15.0  # processor seconds for one case; waiting for a kernel uses them too


def main() -> int:
    """Print a line for each bug and the counts; return 1 if one was not noticed."""
    parser = argparse.ArgumentParser(prog="python -m dualdnn.conformance.injected", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "-k", action="append", default=[], metavar="TEXT", help="only bugs whose file, or what they break, has this"
    )
    parser.add_argument(
        "--bugs",
        type=Path,
        metavar="FILE",
        help="these instead, in the form of bugs.json; cases may be left to the family",
    )
    parser.add_argument(
        "--mutants", type=int, default=0, metavar="N", help="so many mutants instead of the bugs (mutants.py)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the mutants that are drawn")
    parser.add_argument("--layer", action="append", choices=LAYERS[:3], help="those of these alone")
    parser.add_argument(
        "--kernels",
        type=Path,
        metavar="FILE",
        help="kernels.json of a run by all solvers: bugs of accelerated/ and reference/ are tried on the cases that reach them (reach.py)",
    )
    parser.add_argument(
        "--without",
        default="",
        metavar="I,J",
        help="numbers of bugs that are left out: whoever read them says that they change no result",
    )
    parser.add_argument("--part", default="1/1", metavar="I/N", help="the i-th of n parts")
    parser.add_argument(
        "--at-once", type=int, default=6, metavar="N", help="bugs of different families that are injected together"
    )
    parser.add_argument("--seconds", type=float, default=600, help="the most that one bug takes")
    parser.add_argument("--all-seconds", type=float, default=inf, help="the most that all bugs take together")
    parser.add_argument("--out", type=Path, help="write the report to this file as well")
    parser.add_argument("--lines", type=Path, help="write each outcome to this file as it is found, a line in JSON")
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="draw what a GPU compiles, and judge accelerated/ and reference/ on the GPU (short cases)",
    )
    parser.add_argument(
        "--left", type=Path, metavar="FILE", help="of such lines the bugs that were not noticed, on another device say"
    )
    parser.add_argument(
        "--all-solvers", action="store_true", help="run these cases by every solver, not by that of the source alone"
    )
    parser.add_argument("--subject", help="judge all of them on this one instead of that of their layer")
    parser.add_argument("--max-cases", type=int, metavar="N", help="so many cases at most for one mutant")
    chosen = parser.parse_args()
    if chosen.left:
        known = left(chosen.left.read_text(encoding="utf-8"))
    elif chosen.mutants:
        known = drawn(chosen.mutants, chosen.seed, chosen.layer or LAYERS[:3], chosen.gpu)
    else:
        known = bugs(chosen.bugs.read_text(encoding="utf-8") if chosen.bugs else "", cases_of)
        known = [bug for bug in known if not chosen.layer or bug.layer in chosen.layer]
    left_out = set(map(int, filter(None, chosen.without.split(","))))
    known = [bug for i, bug in enumerate(known) if i not in left_out]
    wanted = [b for b in known if not chosen.k or any(text in f"{b.file}: {b.breaks}" for text in chosen.k)]
    part, parts = map(int, chosen.part.split("/"))
    wanted, outcomes = wanted[part - 1 :: parts], []
    if chosen.kernels:
        reach = Reach(chosen.kernels)
        wanted = [bug if bug.layer == "api" else reach.aimed(bug, chosen.max_cases) for bug in wanted]
    if chosen.all_solvers:
        wanted = [replace(bug, solvers=ALL) for bug in wanted]
    if chosen.gpu:
        wanted = [bug if bug.layer == "api" else replace(bug, subject="accelerated") for bug in wanted]
        Copy.max_seconds = GPU_SECONDS
    if chosen.subject:
        wanted = [replace(bug, subject=chosen.subject) for bug in wanted]
    interrupted = False
    with closing(tried(wanted, chosen.jobs, chosen.seconds, chosen.at_once, chosen.all_seconds)) as found:
        try:
            for one in found:
                outcomes.append(one)
                print(f"{one.seconds:5.0f} s {row(one)}", flush=True)
                if chosen.lines:
                    with chosen.lines.open("a", encoding="utf-8") as file:
                        file.write(line(one) + "\n")
        except KeyboardInterrupt:
            print("interrupted: what was noticed is not held against the project without bugs")
            interrupted = True
    outcomes = outcomes if interrupted else verified(outcomes, chosen.jobs)
    for one in outcomes:
        if one.state != NOTICED:
            print(row(one))
    print(summary(outcomes))
    if chosen.out:
        head = ["| file | breaks | | by |", "|---|---|---|---|"]
        chosen.out.write_text("\n".join([summary(outcomes), "", *head, *map(row, outcomes), ""]), encoding="utf-8")
    if interrupted:
        return INTERRUPTED
    return 1 if any(one.state in (SURVIVED, GONE, INVALID, UNDECIDED) for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
