"""``python -m dualdnn.conformance.planted``: which planted bugs, or mutants, the suite notices."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import FLOORS, GONE, INVALID, NOTICED, SURVIVED, UNDECIDED, bugs, row, summary, tried, verified
from .mutants import drawn
from .reach import Reach


def main() -> int:
    """Print a line for each bug and the counts; 1 where one was not noticed."""
    parser = argparse.ArgumentParser(prog="python -m dualdnn.conformance.planted", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "-k", action="append", default=[], metavar="TEXT", help="only bugs whose file, or what they break, has this"
    )
    parser.add_argument(
        "--mutants", type=int, default=0, metavar="N", help="so many mutants instead of the bugs (mutants.py)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the mutants that are drawn")
    parser.add_argument("--floor", action="append", choices=FLOORS[:3], help="draw them from these alone")
    parser.add_argument(
        "--kernels",
        type=Path,
        metavar="FILE",
        help="kernels.json of a run by all solvers: mutants of accelerated/ are tried on the cases that reach them (reach.py)",
    )
    parser.add_argument(
        "--without",
        default="",
        metavar="I,J",
        help="numbers of bugs that are left out: whoever read them says that they change no result",
    )
    parser.add_argument("--part", default="1/1", metavar="I/N", help="the i-th of n parts")
    parser.add_argument(
        "--at-once", type=int, default=6, metavar="N", help="bugs of different families that are planted together"
    )
    parser.add_argument("--seconds", type=float, default=600, help="the most that one bug takes")
    parser.add_argument("--out", type=Path, help="write the report to this file as well")
    chosen = parser.parse_args()
    known = drawn(chosen.mutants, chosen.seed, chosen.floor or FLOORS[:3]) if chosen.mutants else bugs()
    left_out = set(map(int, filter(None, chosen.without.split(","))))
    known = [bug for i, bug in enumerate(known) if i not in left_out]
    wanted = [b for b in known if not chosen.k or any(text in f"{b.file}: {b.breaks}" for text in chosen.k)]
    part, parts = map(int, chosen.part.split("/"))
    wanted, outcomes = wanted[part - 1 :: parts], []
    if chosen.mutants and chosen.kernels:
        reach = Reach(chosen.kernels)
        wanted = [reach.aimed(bug) if bug.floor == "accelerated" else bug for bug in wanted]
    for one in tried(wanted, chosen.jobs, chosen.seconds, chosen.at_once):
        outcomes.append(one)
        print(f"{one.seconds:5.0f} s {row(one)}", flush=True)
    outcomes = verified(outcomes)
    for one in outcomes:
        if one.state != NOTICED:
            print(row(one))
    print(summary(outcomes))
    if chosen.out:
        head = ["| file | breaks | | by |", "|---|---|---|---|"]
        chosen.out.write_text("\n".join([summary(outcomes), "", *head, *map(row, outcomes), ""]), encoding="utf-8")
    return 1 if any(one.state in (SURVIVED, GONE, INVALID, UNDECIDED) for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
