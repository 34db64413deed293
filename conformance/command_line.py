"""The command ``dualdnn``: conformance, replay, build, bench, info."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest

from dualdnn import accelerated
from dualdnn.accelerated import DeviceUnavailable
from dualdnn.api.crosscheck import loaded
from dualdnn.api.document import SPECIFICATION, functions
from dualdnn.api.operations import parse
from dualdnn.api.status import CudnnError

from . import build_ahead
from .bench import command as bench
from .calls import Caller
from .plugin import CASES
from .subjects import SPELLINGS, default_subjects, open_subject
from .trial import attempt


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="dualdnn", description=f"The executable edition of the {SPECIFICATION}.")
    commands = parser.add_subparsers(dest="command", required=True)

    conformance = commands.add_parser("conformance", help="hold subjects to the document and write the report")
    conformance.add_argument(
        "--subject", action="append", default=[], metavar="NAME", help=f"what to judge: {SPELLINGS}; may be repeated"
    )
    conformance.add_argument("-k", metavar="EXPRESSION", help="only cases whose ids match, as pytest's -k")
    conformance.add_argument(
        "--case", action="append", default=[], metavar="ID", help="only this case; may be repeated"
    )
    conformance.add_argument(
        "--out", metavar="DIR", default="conformance-report", help="where the report goes (default: %(default)s)"
    )
    conformance.add_argument("--jobs", type=int, default=0, metavar="N", help="processes (default: one per core)")
    conformance.add_argument("--operation", metavar="TEXT", help="run this one operation instead of the cases")
    conformance.add_argument(
        "--inputs", default="normal", help="with --operation: kind of input values (default: %(default)s)"
    )
    conformance.add_argument("--seed", type=int, default=0, help="with --operation: seed of the input values")
    conformance.set_defaults(run=run_conformance)

    replay = commands.add_parser("replay", help="run a call again that a crosscheck handle has saved")
    replay.add_argument("file", type=Path)
    replay.add_argument("--subject", action="append", default=[], metavar="NAME")
    replay.set_defaults(run=run_replay)

    timed = commands.add_parser("bench", help="times beside the vendor's library and the floor of the hardware")
    bench.add_options(timed)
    timed.set_defaults(run=bench.run)

    ahead = commands.add_parser("build", help="compile the kernels ahead, in parallel")
    build_ahead.add_options(ahead)
    ahead.set_defaults(run=build_ahead.run)

    info = commands.add_parser("info", help="what is here, what is missing and how to get it")
    info.set_defaults(run=run_info)

    chosen = parser.parse_args(arguments)
    try:
        return chosen.run(chosen)
    except (ValueError, CudnnError, FileNotFoundError, DeviceUnavailable) as error:
        print(f"dualdnn {chosen.command}: {error}", file=sys.stderr)
        return 2


def run_conformance(chosen: argparse.Namespace) -> int:
    """The suite, or one operation."""
    if chosen.jobs < 0:
        raise ValueError(f"--jobs is {chosen.jobs}, a number of processes is at least 1 (0: one per core)")
    if chosen.operation:
        return _one_operation(chosen)
    jobs = chosen.jobs or os.cpu_count() or 1
    options = [
        "-p",
        "dualdnn.conformance.plugin",
        "-q",
        "--report",
        chosen.out,
        "-p",
        "no:cacheprovider",
        "--no-header",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ]
    options += [text for name in chosen.subject for text in ("--subject", name)]
    options += ["-k", chosen.k] if chosen.k else []
    options += [] if chosen.k or chosen.case else ["--complete"]
    options += [text for case in chosen.case for text in ("--case", case)]
    files = sorted(str(path) for path in CASES.glob("[!_]*.py"))
    # A wrong name is an error before anything runs. A foreign library may take its process down: workers survive that.
    foreign = any(not open_subject(name).ours for name in chosen.subject or default_subjects())
    options += ["-n", str(jobs), "--dist", "worksteal"] if jobs > 1 or foreign else []
    status = pytest.main([*options, "--rootdir", str(CASES), "-c", os.devnull, *files])
    return 0 if status == pytest.ExitCode.OK else 1 if status == pytest.ExitCode.TESTS_FAILED else 2


def _one_operation(chosen: argparse.Namespace) -> int:
    failures = 0
    for name in chosen.subject or ["reference", "accelerated"]:
        subject = open_subject(name)
        caller = Caller(subject.cudnn, subject.new_handle())
        result = attempt(caller, parse(chosen.operation), chosen.inputs, chosen.seed)
        failures += not result.passed
        outcome = "passed" if result.passed else f"failed\n{result.explanation()}"
        print(f"{subject.name}: {outcome} (error/bound {result.verdict.error_ratio:.3g})")
    return 1 if failures else 0


def run_replay(chosen: argparse.Namespace) -> int:
    """A saved call on every subject."""
    operation, memory, aliases = loaded(chosen.file)
    print(operation)
    failures = 0
    for name in chosen.subject or ["reference", "accelerated"]:
        subject = open_subject(name)
        result = attempt(Caller(subject.cudnn, subject.new_handle()), operation, before=memory, aliases=aliases)
        failures += not result.passed
        outcome = "passed" if result.passed else f"failed\n{result.explanation()}"
        print(f"{subject.name}: {outcome} (error/bound {result.verdict.error_ratio:.3g})")
    return 1 if failures else 0


def run_info(_chosen: argparse.Namespace) -> int:
    """Devices, compilers, functions."""
    from dualdnn.api import cudnn

    from .subjects import find_vendor_library

    present = [name for name in functions() if hasattr(cudnn, name)]
    vendor = find_vendor_library()
    rows = {
        "specification": SPECIFICATION,
        "functions": f"{len(present)} of {len(functions())} implemented",
        **accelerated.facts(),
        "vendor library": vendor.name if vendor else "missing: pip install 'dualdnn[vendor]'",
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:{width}}  {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
