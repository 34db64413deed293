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
        "-k",
        action="append",
        default=[],
        metavar="TEXT",
        help="use only bugs whose file or description contains this text",
    )
    parser.add_argument(
        "--bugs",
        type=Path,
        metavar="FILE",
        help="use the bugs of this file, in the form of bugs.json; a bug without cases takes those of its family",
    )
    parser.add_argument(
        "--mutants",
        type=int,
        default=0,
        metavar="N",
        help="draw this number of mutants instead of the bugs (mutants.py)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the drawn mutants")
    parser.add_argument("--layer", action="append", choices=LAYERS[:3], help="draw mutants of these layers only")
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
        help="leave out the bugs with these numbers, which change no result according to a reader",
    )
    parser.add_argument("--part", default="1/1", metavar="I/N", help="run the i-th of n parts of the bugs")
    parser.add_argument(
        "--at-once", type=int, default=6, metavar="N", help="inject this number of bugs of different families together"
    )
    parser.add_argument("--seconds", type=float, default=600, help="time limit for one bug")
    parser.add_argument("--all-seconds", type=float, default=inf, help="time limit for all bugs together")
    parser.add_argument("--out", type=Path, help="write the report to this file as well")
    parser.add_argument("--lines", type=Path, help="write each outcome to this file as it is found, a line in JSON")
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="draw what a GPU compiles, and judge accelerated/ and reference/ on the GPU (short cases)",
    )
    parser.add_argument(
        "--left",
        type=Path,
        metavar="FILE",
        help="use only the bugs that an earlier run with --lines FILE did not notice",
    )
    parser.add_argument(
        "--all-solvers", action="store_true", help="run the cases by every solver, not only by that of the source"
    )
    parser.add_argument("--subject", help="judge all bugs on this subject instead of that of their layer")
    parser.add_argument("--max-cases", type=int, metavar="N", help="maximum number of cases for one mutant")
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
