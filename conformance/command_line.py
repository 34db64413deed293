"""The command ``dualdnn``: conformance, report, replay, build, bench, port, info."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path

from _pytest.mark.expression import Expression
from dualdnn import accelerated
from dualdnn.accelerated import DeviceUnavailable
from dualdnn.api import __version__
from dualdnn.api.abi.build import build as build_c_library
from dualdnn.api.abi.cuda_runtime import build_runtime
from dualdnn.api.crosscheck import loaded
from dualdnn.api.document import SPECIFICATION, functions
from dualdnn.api.files import check_writable, write
from dualdnn.api.miopen.document import functions as miopen_functions
from dualdnn.api.operations import Operation, parse
from dualdnn.api.status import CudnnError

from . import build_ahead
from .api_logs import is_log, judge_log
from .bench import command as bench
from .calls import Caller
from .differences import explanation_of
from .expected import read_expected
from .inputs import KINDS
from .plugin import CASES
from .port import command as port
from .recorded import load_recording, packaged_recordings
from .recorded.judging import AGREES, SKIPPED, examine
from .recorded.replay import Replayer
from .report import Comparison, ReportError, is_complete, read_json, to_page, to_text, write_report
from .run_pytest import INTERRUPTED, run_pytest
from .solvers import PREFERRED, by_solvers, covering, unknown_solvers, with_workspace
from .subjects import SPELLINGS, Subject, default_subjects, is_recorded, open_subject
from .trial import Step, attempt, attempt_chain

COMPLETE_REPORT, PARTIAL_REPORT = "conformance-report", "conformance-report-partial"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="dualdnn", description=f"The executable edition of the {SPECIFICATION}.")
    parser.add_argument("--version", action="version", version=f"dualdnn {__version__}, {SPECIFICATION}")
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
        "--every", type=int, default=1, metavar="N", help="only one case of N, spread over the suite"
    )
    conformance.add_argument(
        "--out", metavar="DIR", type=Path,
        help=f"where the report goes (default: {COMPLETE_REPORT}, {PARTIAL_REPORT} for a part of the suite)",
    )  # fmt: skip
    conformance.add_argument(
        "--expected", type=Path, metavar="FILE",
        help="failures that FILE lists do not fail the run; new ones do, and listed cases that pass",
    )  # fmt: skip
    conformance.add_argument(
        "--write-expected", type=Path, metavar="FILE", help="write the failures of this run to FILE, for --expected"
    )
    conformance.add_argument("--jobs", type=int, default=0, metavar="N", help="processes (default: one per core)")
    conformance.add_argument(
        "--solvers", default=PREFERRED,
        help="all: every trial of the accelerated backend runs once by each solver that can serve it; writes kernels.json; or NAME,NAME",
    )  # fmt: skip
    conformance.add_argument(
        "--prove",
        action="store_true",
        help="run each case under every fault that it must notice; one that passes fails",
    )
    conformance.add_argument(
        "--covering", type=Path, metavar="FILE",
        help="only quick cases that together launch every kernel, by the kernels.json of an earlier run",
    )  # fmt: skip
    conformance.add_argument("--operation", metavar="TEXT", help="run this one operation instead of the cases")
    conformance.add_argument(
        "--inputs",
        default="normal",
        choices=KINDS,
        help="with --operation: kind of input values (default: %(default)s)",
    )
    conformance.add_argument(
        "--seed", type=int, default=0, help="other values for the inputs, of --operation or of every case"
    )
    conformance.add_argument(
        "--record", type=Path, metavar="FILE", help="write the calls made on the one subject to FILE, for recorded:FILE"
    )
    conformance.set_defaults(run=run_conformance)

    report = commands.add_parser("report", help="write the page of a compliance.json again")
    report.add_argument("file", type=Path, help="compliance.json or compliance.json.gz")
    report.add_argument(
        "--out", type=Path, metavar="DIR", default=Path("conformance-report"), help="default: %(default)s"
    )
    report.set_defaults(run=run_report)

    changes = commands.add_parser("diff", help="what changed between two reports; exit status 1 on a regression")
    changes.add_argument("old", type=Path, help="compliance.json or compliance.json.gz")
    changes.add_argument("new", type=Path, help="the same, of a later run")
    changes.add_argument("--out", type=Path, metavar="FILE", help="write the changes as a page, too")
    changes.set_defaults(run=run_diff)

    replay = commands.add_parser(
        "replay", help="run a call again that a crosscheck handle has saved, a recorded one, or those of an API log"
    )
    replay.add_argument(
        "file", type=Path,
        help="a saved call; with --record a recording, or the name of a packaged one; an API log of cuDNN 8 or of this project",
    )  # fmt: skip
    replay.add_argument(
        "--inputs",
        default="normal",
        choices=KINDS,
        help="of an API log: kind of input values (default: %(default)s)",
    )
    replay.add_argument("--seed", type=int, default=0, help="of an API log: seed of the input values")
    replay.add_argument("--record", metavar="ID", help="which record of the recording")
    replay.add_argument("--subject", action="append", default=[], metavar="NAME")
    replay.set_defaults(run=run_replay)

    timed = commands.add_parser("bench", help="times beside the vendor's library and the floor of the hardware")
    bench.add_options(timed)
    timed.set_defaults(run=bench.run)

    ahead = commands.add_parser("build", help="compile the kernels ahead, in parallel")
    build_ahead.add_options(ahead)
    ahead.set_defaults(run=build_ahead.run)

    library = commands.add_parser("abi", help="build libcudnn.so.8 and cudnn.h: the documented calls for programs in C")
    library.add_argument(
        "--out", type=Path, default=Path("abi"), metavar="DIR", help="where they go (default: %(default)s)"
    )
    library.add_argument(
        "--runtime", action="store_true",
        help="a CUDA runtime and driver on memory of the host, too, for machines without a GPU",
    )  # fmt: skip
    library.set_defaults(run=run_abi)

    porting = commands.add_parser("port", help="rewrite sources written for cuDNN as sources for MIOpen")
    port.add_options(porting)
    porting.set_defaults(run=port.run)

    info = commands.add_parser("info", help="what is here, what is missing and how to get it")
    info.set_defaults(run=run_info)

    chosen = parser.parse_args(arguments)
    chosen.invocation = shlex.join(["dualdnn", *(sys.argv[1:] if arguments is None else arguments)])
    try:
        return chosen.run(chosen)
    except KeyboardInterrupt:
        print(f"\ndualdnn {chosen.command}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, CudnnError, OSError, DeviceUnavailable, ReportError) as error:
        print(f"dualdnn {chosen.command}: {error}", file=sys.stderr)
        return 2
    except Exception:  # a mistake of ours: exit status 1 would say that cases failed
        traceback.print_exc()
        return 2


def run_conformance(chosen: argparse.Namespace) -> int:
    """The suite, or one operation."""
    if chosen.jobs < 0:
        raise ValueError(f"--jobs is {chosen.jobs}, a number of processes is at least 1 (0: one per core)")
    if chosen.every < 1:
        raise ValueError(f"--every is {chosen.every}, one case of 1 or more is run")
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
        "no:hypothesispytest",  # which is imported at the end, by the one process that is left
        "-p",
        "no:benchmark",
        "--no-header",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ]
    options += [text for name in chosen.subject for text in ("--subject", name)]
    options += ["-k", _checked_expression(chosen.k)] if chosen.k else []
    options += ["--solvers", chosen.solvers, f"--every={chosen.every}", f"--input-seed={chosen.seed}"]
    options += ["--prove"] if chosen.prove else []
    if chosen.covering:
        chosen.case += covering(json.loads(chosen.covering.read_text()))
    selection = shlex.join(
        [
            *(["-k", chosen.k] if chosen.k else []),
            *(text for case in chosen.case for text in ("--case", case)),
            *([f"--every={chosen.every}"] if chosen.every > 1 else []),
        ]
    )
    options += [f"--invocation={chosen.invocation}", f"--selection={selection}"]
    for name in ("expected", "write_expected"):
        if path := getattr(chosen, name):
            options += [f"--{name.replace('_', '-')}", str(path.resolve())]
    if chosen.expected:
        read_expected(chosen.expected)  # its mistakes are errors before anything runs
    check_writable(path for path in (chosen.write_expected, chosen.record) if path)
    partial = selection or all(map(is_recorded, chosen.subject or default_subjects()))
    options += [] if partial else ["--complete"]
    if chosen.record:
        if len(chosen.subject) != 1 or is_recorded(chosen.subject[0]):
            raise ValueError(f"--record takes one --subject whose calls can be made, not {chosen.subject}")
        options += ["--record", str(chosen.record.resolve())]
    options += [text for case in chosen.case for text in ("--case", case)]
    files = sorted(str(path) for path in CASES.rglob("[!_]*.py"))
    # A wrong name is an error before anything runs. A foreign library may take its process down: workers survive that.
    subjects = chosen.subject or default_subjects()
    opened = {name: open_subject(name) for name in subjects if name != "recorded"}
    foreign = any(not subject.ours for name, subject in opened.items() if not is_recorded(name))
    if all(map(is_recorded, subjects)):
        files = [path for path in files if Path(path).stem == "recorded_calls"]
    wanted = (chosen.out or Path(PARTIAL_REPORT if selection else COMPLETE_REPORT)).resolve()
    new = [path for path in (wanted, *wanted.parents) if not path.exists()]
    options += ["--report", str(_destination(wanted, bool(selection)))]
    options += ["-n", str(jobs), "--dist", "worksteal"] if jobs > 1 or foreign else []
    if jobs > 1:  # processes that share the cores: threads of NumPy's products would wait for each other, busily
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    status = run_pytest([*options, "--rootdir", str(CASES), "-c", os.devnull, *files])
    with suppress(OSError):  # what holds anything stays: no case was run where nothing does
        for path in new:
            path.rmdir()
    return status


def _checked_expression(text: str) -> str:
    """The expression of -k; ``ValueError`` where pytest would not understand it, which workers cannot say in one line."""
    try:
        Expression.compile(text)
    except SyntaxError as error:
        raise ValueError(f"-k {text!r} is no expression: {error}") from error
    return text


def _destination(directory: Path, partial: bool) -> Path:
    """Where the report goes, tried before the first case runs. A part of the suite replaces no report of the whole."""
    if partial and is_complete(directory):
        raise ValueError(f"{directory} holds the report of a whole run, which a part would replace: name another --out")
    directory.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=directory).close()
    return directory


def run_report(chosen: argparse.Namespace) -> int:
    """The three files of a report, from its JSON."""
    print(f"report: {write_report(read_json(chosen.file), chosen.out)['report.html']}")
    return 0


def run_diff(chosen: argparse.Namespace) -> int:
    """What changed; 1 where something became worse."""
    comparison = Comparison(read_json(chosen.old), read_json(chosen.new))
    print(to_text(comparison))
    if chosen.out:
        write(chosen.out, to_page(comparison).encode())
        print(f"page: {chosen.out}")
    return 1 if comparison.regressions else 0


def _one_operation(chosen: argparse.Namespace) -> int:
    """Judge one operation on every subject, on the accelerated backend by the solvers that are wanted."""
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


def run_replay(chosen: argparse.Namespace) -> int:
    """A saved or recorded call, or the calls of a log, on every subject."""
    if chosen.record:
        return _recorded_call(chosen)
    if is_log(chosen.file):
        with open(chosen.file, encoding="utf-8", errors="replace") as lines:
            return 1 if judge_log(lines, chosen.subject or ["reference"], chosen.inputs, chosen.seed) else 0
    operation, memory, aliases = loaded(chosen.file)
    print(operation)
    failures = 0
    for name in chosen.subject or ["reference", "accelerated"]:
        subject = open_subject(name)
        caller = Caller(subject.cudnn, subject.new_handle(), any_engine=not subject.cites_clauses)
        result = attempt(caller, operation, before=memory, aliases=aliases)
        failures += not result.passed
        outcome = "passed" if result.passed else f"failed\n{result.explanation()}"
        print(f"{subject.name}: {outcome} (error/bound {result.verdict.error_ratio:.3g})")
    return 1 if failures else 0


def _recorded_call(chosen: argparse.Namespace) -> int:
    """One record on every subject: what the subject makes of it and whether it agrees with what was recorded."""
    packaged = {path.stem: path for path in packaged_recordings()}
    recording = load_recording(packaged.get(str(chosen.file), chosen.file))
    record = recording.find(chosen.record)
    print(record)
    failures = 0
    for name in chosen.subject or ["reference", "accelerated"]:
        subject = open_subject(name)
        if not subject.ours:
            raise ValueError(f"a recorded call is replayed on our backends, not on {name}")
        finding = examine(record, recording, Replayer(subject.cudnn, subject.new_handle()))
        declared = explanation_of(finding)
        failures += finding.kind not in (AGREES, SKIPPED) and declared is None
        known = f", difference {declared.id}: {declared.decision}" if declared else ""
        print(f"{subject.name}: {finding.kind}{known}\n{finding.text}".rstrip())
    return 1 if failures else 0


def run_abi(chosen: argparse.Namespace) -> int:
    """Build the C library, its header and, where it is wanted, what stands for CUDA."""
    library = build_c_library(chosen.out)
    made = [library, library.parent / "include" / "cudnn.h"]
    made += build_runtime(chosen.out) if chosen.runtime else []
    print(*made, sep="\n")
    return 0


def run_info(_chosen: argparse.Namespace) -> int:
    """Devices, compilers, functions."""
    from dualdnn.api import cudnn, miopen

    from .subjects import find_vendor_library

    present = [name for name in functions() if hasattr(cudnn, name)]
    vendor = find_vendor_library()
    rows = {
        "specification": SPECIFICATION,
        "functions": f"{len(present)} of {len(functions())} implemented",
        "MIOpen guide": f"{sum(hasattr(miopen, name) for name in miopen_functions())} of {len(miopen_functions())} implemented",
        **accelerated.facts(),
        "vendor library": vendor.name if vendor else "missing: pip install 'dualdnn[vendor]'",
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:{width}}  {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
