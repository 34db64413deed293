"""Run ``dualdnn replay``: repeat a saved call, a recorded call, or the calls of an API log."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dualdnn.api.crosscheck import loaded
from dualdnn.api.operations import Operation, parse

from ..calls import Caller
from ..differences import explanation_of
from ..inputs import KINDS
from ..recorded import load_recording, packaged_recordings
from ..recorded.judging import AGREES, SKIPPED, examine
from ..recorded.replay import Replayer
from ..subjects import open_subject
from ..trial import attempt
from .api_logs import is_log, judge_log, lines_of, opened_log


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path,
        help="a saved call; with --record a recording, or the name of a packaged one; an API log of cuDNN 7, 8 or 9 or of this project;"
        " an operation as observing prints it, with seeded data",
    )  # fmt: skip
    parser.add_argument(
        "--inputs",
        default="normal",
        choices=KINDS,
        help="kind of input values for an API log or an operation (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the input values for an API log or an operation")
    parser.add_argument("--record", metavar="ID", help="record to repeat")
    parser.add_argument("--subject", action="append", default=[], metavar="NAME")


def run(chosen: argparse.Namespace) -> int:
    """Repeat a saved or recorded call, or the calls of a log, on every subject."""
    if chosen.record:
        return _recorded_call(chosen)
    text = str(chosen.file)
    if text.endswith(")"):
        return _attempts(chosen, parse(text), None, {})
    if chosen.file.exists() and not chosen.file.is_file():  # A pipe or a device may have no end, and is read once.
        raise ValueError(f"{text} is not a file")
    if is_log(chosen.file):
        with opened_log(chosen.file) as file:
            lines = lines_of(file)
            return 1 if judge_log(lines, chosen.subject or ["reference"], chosen.inputs, chosen.seed) else 0
    return _attempts(chosen, *loaded(chosen.file))


def _attempts(
    chosen: argparse.Namespace, operation: Operation, memory: Mapping[str, Any] | None, aliases: Mapping[str, str]
) -> int:
    """Run one operation on every subject. ``memory`` has the bytes of its operands; None uses seeded ones."""
    print(operation)
    failures = 0
    for name in chosen.subject or ["reference", "accelerated"]:
        subject = open_subject(name)
        caller = Caller(subject.cudnn, subject.new_handle(), any_engine=not subject.cites_clauses)
        result = attempt(caller, operation, chosen.inputs, chosen.seed, aliases, memory)
        failures += not result.passed
        outcome = "passed" if result.passed else f"failed\n{result.explanation()}"
        print(f"{subject.name}: {outcome} (error/bound {result.verdict.error_ratio:.3g})")
    return 1 if failures else 0


def _recorded_call(chosen: argparse.Namespace) -> int:
    """Repeat one record on every subject, and print whether the result agrees with the recorded one."""
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
