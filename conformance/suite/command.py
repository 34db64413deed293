"""Run ``dualdnn conformance``: the suite, or one operation."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from _pytest.mark.expression import Expression
from dualdnn.api.files import check_writable
from dualdnn.api.operations import Operation, parse
from dualdnn.api.operations.backend import LEVELS

from ..calls import Caller
from ..cases import present_id
from ..inputs import KINDS
from ..report import is_complete, tier_of
from ..run_pytest import run_pytest
from ..solvers import PREFERRED, by_solvers, covering, unknown_solvers, with_workspace
from ..subjects import SPELLINGS, Subject, default_subjects, foreign_path, is_recorded, open_subject
from ..subjects.probe import LOADING_SECONDS
from ..tiers import FULL, SMOKE, STANDARD, TIERS
from ..trial import Step, attempt_chain
from .expected import read_expected
from .files import CASES, case_files
from .items import described
from .progress import Progress
from .selection import shard_of
from .workers import CASE_SECONDS

PARTIAL_REPORT = "conformance-report-partial"
REPORTS = {FULL: "conformance-report", STANDARD: "conformance-report-standard", SMOKE: "conformance-report-smoke"}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--subject", action="append", default=[], metavar="NAME", help=f"what to judge: {SPELLINGS}; may be repeated"
    )
    parser.add_argument("-k", metavar="EXPRESSION", help="only cases whose ids match, as pytest's -k")
    parser.add_argument("--case", action="append", default=[], metavar="ID", help="only this case; may be repeated")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only one case of N, spread over the suite")
    parser.add_argument(
        "--tier", default=FULL, choices=TIERS,
        help="smoke: a minute; standard: every clause, function, solver and kernel at least once; full: everything (default)",
    )  # fmt: skip
    parser.add_argument(
        "--shard",
        default="",
        metavar="I/N",
        help="only part I of N, for one of N machines; dualdnn merge puts them together",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with a run that was stopped: what --out has results of is not run again",
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path,
        help=f"where the report goes (default: {REPORTS[FULL]}, -standard and -smoke of these tiers, {PARTIAL_REPORT} for a part)",
    )  # fmt: skip
    parser.add_argument(
        "--expected", type=Path, metavar="FILE",
        help="failures that FILE lists do not fail the run; new ones do, and listed cases that pass",
    )  # fmt: skip
    parser.add_argument(
        "--write-expected", type=Path, metavar="FILE", help="write the failures of this run to FILE, for --expected"
    )
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="processes (default: one per core)")
    parser.add_argument(
        "--scheduler", default="", metavar="ADDRESS",
        help="the workers of this Dask cluster run the cases, instead of processes here (docs/many_machines.md)",
    )  # fmt: skip
    parser.add_argument(
        "--solvers", default=PREFERRED,
        help="all: every trial of the accelerated backend runs once by each solver that can serve it; writes kernels.json; or NAME,NAME",
    )  # fmt: skip
    parser.add_argument(
        "--reproducible", default="", choices=LEVELS,
        help="only the cases of levels of reproducibility up to this one (docs/reproducibility.md), of any subject",
    )  # fmt: skip
    parser.add_argument(
        "--case-seconds", type=float, metavar="N",
        help=f"a case that takes longer has failed, and its process is ended (default: {CASE_SECONDS}); so is a library that takes longer "
        f"to load, to make a handle or to destroy it (default: {LOADING_SECONDS})",
    )  # fmt: skip
    parser.add_argument(
        "--prove",
        action="store_true",
        help="run each case under every fault that it must notice; one that passes fails",
    )
    parser.add_argument(
        "--prove-clauses", nargs="?", const="1/1", default="", metavar="I/N",
        help="run the cases of each clause, or of part I of N of them, under breaks of the clause until one fails",
    )  # fmt: skip
    parser.add_argument(
        "--proofs", type=Path, metavar="FILE",
        help="with --prove-clauses: only the cases that proved clauses of another subject, by its proofs.json, under the same breaks first",
    )  # fmt: skip
    parser.add_argument(
        "--covering", type=Path, metavar="FILE",
        help="only quick cases that together launch every kernel, by the kernels.json of an earlier run",
    )  # fmt: skip
    parser.add_argument("--operation", metavar="TEXT", help="run this one operation instead of the cases")
    parser.add_argument(
        "--inputs",
        default="normal",
        choices=KINDS,
        help="with --operation: kind of input values (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="other values for the inputs, of --operation or of every case"
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="write the calls made on the one subject to FILE, for recorded:FILE"
    )


def part_of(text: str) -> str:
    """Return the part of the clauses that --prove-clauses names. Raises ``ValueError`` if it is invalid."""
    try:
        shard_of(text)
    except ValueError as error:
        raise ValueError(str(error).replace("--shard", "--prove-clauses")) from None
    return text


def run(chosen: argparse.Namespace) -> int:
    """Run the suite or one operation, and return the exit status."""
    if chosen.jobs < 0:
        raise ValueError(f"--jobs is {chosen.jobs}, a number of processes is at least 1 (0: one per core)")
    if chosen.every < 1:
        raise ValueError(f"--every is {chosen.every}, one case of 1 or more is run")
    if chosen.scheduler and (clash := [f"--{name}" for name in ("jobs", "proofs", "record") if getattr(chosen, name)]):
        raise ValueError(f"--scheduler {chosen.scheduler} and {clash[0]}: the workers of a cluster run the cases")
    if chosen.case_seconds is not None and not chosen.case_seconds > 0:
        raise ValueError(f"--case-seconds is {chosen.case_seconds}, a case takes more than 0 seconds")
    if chosen.operation:
        return _one_operation(chosen)
    jobs = chosen.jobs or os.cpu_count() or 1
    options = [
        "-p",
        "dualdnn.conformance.plugin",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",  # The plugin would import Hypothesis at the end in the controlling process.
        "-p",
        "no:benchmark",
        "--no-header",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ]
    options += [text for name in chosen.subject for text in ("--subject", name)]
    options += ["-k", _checked_expression(chosen.k)] if chosen.k else []
    options += ["--solvers", chosen.solvers, f"--every={chosen.every}", f"--input-seed={chosen.seed}"]
    options += [f"--reproducible={chosen.reproducible}"] if chosen.reproducible else []
    options += ["--tier", chosen.tier, f"--shard={chosen.shard}"]
    index, count = shard_of(chosen.shard)
    options += ["--prove"] if chosen.prove else []
    options += [f"--prove-clauses={part_of(chosen.prove_clauses)}"] if chosen.prove_clauses else []
    options += [f"--proofs={chosen.proofs.resolve()}"] if chosen.proofs else []
    if chosen.covering:
        chosen.case += covering(json.loads(chosen.covering.read_text()))
    chosen.case = [*map(present_id, chosen.case)]
    selection = shlex.join(
        [
            *(["-k", chosen.k] if chosen.k else []),
            *(text for case in chosen.case for text in ("--case", case)),
            *([f"--every={chosen.every}"] if chosen.every > 1 else []),
            *([f"--reproducible={chosen.reproducible}"] if chosen.reproducible else []),
            *([f"--prove-clauses={chosen.prove_clauses}"] if chosen.prove_clauses else []),
        ]
    )
    part = bool(selection) or count > 1
    options += [f"--invocation={chosen.invocation}", f"--selection={selection}"]
    for name in ("expected", "write_expected"):
        if path := getattr(chosen, name):
            options += [f"--{name.replace('_', '-')}", str(path.resolve())]
    if chosen.expected:
        read_expected(chosen.expected)  # Mistakes in the list are errors before anything runs.
    check_writable(path for path in (chosen.write_expected, chosen.record) if path)
    partial = part or chosen.tier == SMOKE or all(map(is_recorded, chosen.subject or default_subjects()))
    options += [] if partial else ["--complete"]
    if chosen.record:
        if len(chosen.subject) != 1 or is_recorded(chosen.subject[0]):
            raise ValueError(f"--record takes one --subject whose calls can be made, not {chosen.subject}")
        options += ["--record", str(chosen.record.resolve())]
    options += [text for case in chosen.case for text in ("--case", case)]
    files = sorted(map(str, case_files()))
    # A wrong name is an error before anything runs. A foreign library may end its process, so workers restart without a
    # limit.
    subjects = chosen.subject or default_subjects()
    for name in subjects:
        if name != "recorded":
            described(name, chosen.case_seconds)
    foreign = any(map(foreign_path, subjects))
    if chosen.reproducible:
        files = [path for path in files if Path(path).stem == "reproducible"]
    elif all(map(is_recorded, subjects)):
        files = [path for path in files if Path(path).stem == "recorded_calls"]
    elif chosen.case:  # A case is in a file of its name; a name without a file is refused where all are known.
        families = {case.partition("/")[0] for case in chosen.case}
        files = [path for path in files if Path(path).stem in families] or files
    wanted = (chosen.out or Path(default_report(chosen.tier, bool(selection), index if count > 1 else 0))).resolve()
    new = [path for path in (wanted, *wanted.parents) if not path.exists()]
    options += ["--report", str(_destination(wanted, chosen.tier, part))]
    options += ["--resume"] if chosen.resume else []
    workers = ["-n", str(jobs), "--dist", "worksteal", f"--max-worker-restart={sys.maxsize}"]
    options += [f"--scheduler={chosen.scheduler}"] if chosen.scheduler else workers if jobs > 1 or foreign else []
    options += [f"--case-seconds={chosen.case_seconds}"] if chosen.case_seconds else []
    if jobs > 1:  # Processes share the cores, and threads of NumPy's products would busy-wait for each other.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    status = run_pytest([*options, "--rootdir", str(CASES), "-c", os.devnull, *files], [Progress()])
    with suppress(OSError):  # A folder with contents stays; new empty folders mean that no case ran.
        for path in new:
            path.rmdir()
    return status


def _checked_expression(text: str) -> str:
    """Return the expression of -k.

    Raises ``ValueError`` if pytest would reject it, because workers cannot report that in one line.
    """
    try:
        Expression.compile(text)
    except SyntaxError as error:
        raise ValueError(f"-k {text!r} is not an expression: {error}") from error
    return text


def default_report(tier: str, selected: bool, shard: int) -> str:
    """Return the default folder of a report: of a tier, of a shard, or of a part of the suite."""
    return PARTIAL_REPORT if selected else REPORTS[tier] + (f"-{shard}" if shard else "")


def _destination(directory: Path, tier: str, partial: bool) -> Path:
    """Return the folder of the report, and check that it is writable before the first case runs.

    A part of the suite does not replace a report of the whole, nor a tier the report of a larger tier.
    """
    there = tier_of(directory) if is_complete(directory) else SMOKE
    if partial and is_complete(directory):
        raise ValueError(f"{directory} holds the report of a whole run, which a part would replace: name another --out")
    if TIERS.index(there) > TIERS.index(tier):
        raise ValueError(
            f"{directory} holds the report of the {there} tier, which the {tier} tier would replace: name another --out"
        )
    directory.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=directory).close()
    return directory


def _one_operation(chosen: argparse.Namespace) -> int:
    """Judge one operation on every subject, by the wanted solvers on the accelerated backend."""
    outcomes: list[bool] = []
    if unknown := unknown_solvers(chosen.solvers):
        raise ValueError(f"--solvers: there is no solver {', '.join(unknown)}")
    operation = parse(chosen.operation)
    if not isinstance(operation, Operation):
        raise ValueError(f"not the text of an operation: {chosen.operation!r}")
    for name in chosen.subject or ["reference", "accelerated"]:
        subject = open_subject(name)
        caller = Caller(subject.cudnn, subject.new_handle(), any_engine=not subject.cites_clauses)
        step = Step(operation, inputs=chosen.inputs)

        def run(solver: str | None, subject: Subject = subject, caller: Caller = caller, step: Step = step) -> None:
            steps = with_workspace(caller.handle, [step]) if solver else [step]
            result = attempt_chain(caller, steps, chosen.seed)
            suspicions = result.verdict.suspicions if subject.cites_clauses else []
            outcomes.append(result.passed and not suspicions)
            told = "\n".join(filter(None, [result.explanation(), *(f"suspect: {one}" for one in suspicions)]))
            outcome = "passed" if outcomes[-1] else f"failed\n{told}"
            by = f" by {solver}" if solver else ""
            print(f"{subject.name}{by}: {outcome} (error/bound {result.verdict.error_ratio:.3g})")

        wanted = chosen.solvers if subject.name.startswith("accelerated") else PREFERRED
        by_solvers(caller.handle, [operation], run, wanted)
    return 0 if all(outcomes) else 1
