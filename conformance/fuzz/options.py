"""Define the options of ``dualdnn fuzz``. Drawing needs Hypothesis, which is imported when the command runs."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

from ..solvers import ALL
from ..subjects import SPELLINGS
from . import DEFAULT_SECONDS, DEFAULT_SUBJECTS


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--subject", action="append", default=[], metavar="NAME",
        help=f"what to judge: {SPELLINGS}; may be repeated (default: {', '.join(DEFAULT_SUBJECTS)})",
    )  # fmt: skip
    parser.add_argument(
        "-k", action="append", default=[], metavar="FAMILY", help="only this family, as pooling; may be repeated"
    )
    parser.add_argument(
        "--profile",
        action="append",
        default=[],
        metavar="NAME",
        help="only small, edges, large, unaligned, special or extremes operations; may be repeated",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=0,
        metavar="S",
        help=f"how long (default: {DEFAULT_SECONDS:.0f}, unless --count says it)",
    )
    parser.add_argument("--count", type=int, default=0, metavar="N", help="how many operations")
    parser.add_argument(
        "--calls",
        action="store_true",
        help="draw sequences of documented calls, valid and invalid, on the C library instead of operations; --count counts calls",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="other operations (default: %(default)s)")
    parser.add_argument(
        "--solvers",
        default=ALL,
        help="all (default), preferred, or NAME,NAME: by which solvers of the accelerated backend",
    )
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="processes (default: one per core)")
    parser.add_argument(
        "--expected", type=Path, metavar="FILE", help="findings that are known: they run first and must still fail"
    )
    parser.add_argument(
        "--write-expected", type=Path, metavar="FILE", help="write the findings of this run to FILE, for --expected"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("fuzz-report"),
        metavar="DIR",
        help="where findings.jsonl, coverage.json and coverage.html go (default: %(default)s)",
    )
    parser.add_argument("--again", metavar="ENTRY", help="judge this one entry, as a finding prints it")
    parser.add_argument("--pin", metavar="ENTRY", help="make an entry a case of the suite (conformance/corpus)")
    parser.add_argument("--why", default="", metavar="TEXT", help="with --pin: what the entry shows, a sentence")


def run(chosen: argparse.Namespace) -> int:
    """Run the command. Raises ``ValueError`` if Hypothesis is missing."""
    if chosen.calls:
        from . import calls

        return calls.run(chosen)
    if find_spec("hypothesis") is None:
        raise ValueError("drawing needs Hypothesis: pip install 'dualdnn[fuzz]'")
    from . import command

    return command.run(chosen)
