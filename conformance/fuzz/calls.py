"""Run ``dualdnn fuzz --calls``: draw sequences of documented calls on the C library, and compare its ways to answer.

Each sequence of SEQUENCE calls runs in its own process for each way. The ways are Python alone, the memo, a memo
that is emptied all the time, and the emulated device. A refusal must have a documented status, cite a clause and write
nothing. No call may crash or hang, memory must stay flat, and all ways must give the same answers, byte for byte.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

from dualdnn.api.files import write

from ..programs.libraries import library
from ..progress import Bar
from . import DEFAULT_SECONDS
from .drawn_calls import MAX_SECONDS, STRIDE

SEQUENCE = 5000  # calls of one sequence
GROWTH = 64  # MiB by which a process may grow after a fifth of its calls
PROGRAM = (sys.executable, "-P", "-m", "dualdnn.conformance.fuzz.drawn_calls")
# Each way has variables of the environment. The first one answers by Python alone, and the others must answer alike.
WAYS = {
    "python": {"DUALDNN_MEMO": "0"},
    "memo": {},
    "small memo": {"DUALDNN_MEMO_ENTRIES": "20"},
    "emulated device": {
        "DUALDNN_BACKEND": "accelerated",
        "DUALDNN_DEVICE": "emulated",
        "DUALDNN_EMULATION_FOREIGN": "1",
    },
}


class Ran(NamedTuple):
    """Hold what a process printed: digests, faults, what it says at the end, and its exit status."""

    digests: tuple[str, ...]
    faults: tuple[str, ...]
    last: dict[str, int]
    status: int


class Finding(NamedTuple):
    """Describe a fault of a sequence. key: equal faults have equal keys."""

    key: tuple[str, ...]
    text: str
    seed: int
    calls: int

    def rerun(self) -> str:
        """Return the command that runs this sequence again."""
        return f"dualdnn fuzz --calls --seed {self.seed} --count {self.calls}"


def run(chosen: argparse.Namespace) -> int:
    """Draw sequences until the time is over or the count is reached. Return 1 if something was found, else 0."""
    for name in ("seconds", "count", "jobs"):
        if getattr(chosen, name) < 0:
            raise ValueError(f"--{name} is {getattr(chosen, name)}, expected 0 or more")
    seconds = chosen.seconds or (0.0 if chosen.count else DEFAULT_SECONDS)
    jobs, built = chosen.jobs or os.cpu_count() or 1, library(8)
    bar, findings, done = (
        Bar("calls" if chosen.count else "seconds", chosen.count or seconds),
        dict[tuple[str, ...], Finding](),
        0,
    )
    print(f"seed {chosen.seed}, {jobs} processes, sequences of {SEQUENCE} calls by {', '.join(WAYS)}", flush=True)
    with ThreadPoolExecutor(jobs) as pool:
        orders, running = sequences(chosen.seed, chosen.count), dict[Future[list[Finding]], int]()
        while True:
            while len(running) < jobs and not (seconds and bar.now() - bar.started > seconds):
                if (order := next(orders, None)) is None:
                    break
                running[pool.submit(examined, built, *order)] = order[1]
            if not running:
                break
            for ended in wait(running, 1.0, FIRST_COMPLETED).done:
                done += running.pop(ended)
                for finding in ended.result():
                    if findings.setdefault(finding.key, finding) is finding:
                        bar.clear()
                        print(f"found: {finding.text}\n  rerun: {finding.rerun()}", flush=True)
            taken = bar.now() - bar.started
            bar.advance(
                done if chosen.count else min(seconds, taken),
                f"{done:,} calls, {done / max(0.1, taken):.0f} a second, {len(findings)} found",
            )
    lines = [json.dumps({"text": found.text, "rerun": found.rerun()}) for found in findings.values()]
    write(chosen.out / "calls.jsonl", "".join(f"{line}\n" for line in lines).encode())
    print(f"{done:,} calls by each of {len(WAYS)} ways, {len(findings)} faults; {chosen.out / 'calls.jsonl'}")
    return int(bool(findings))


def sequences(seed: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield (seed, calls) of sequences: ``count`` calls together, or without an end if that is 0."""
    left = count
    while left > 0 or not count:
        calls = min(SEQUENCE, left) if count else SEQUENCE
        yield seed, calls
        seed, left = seed + 1, left - calls


def examined(built: Path, seed: int, calls: int) -> list[Finding]:
    """Run one sequence by every way and return its faults."""
    found, by_python = list[Finding](), Ran((), (), {}, 0)
    for number, way in enumerate(WAYS):
        ran = ran_by(built, way, seed, calls)
        if ran.status:
            found.append(Finding(("ended", way, str(ran.status)), ended(built, way, seed, calls, ran), seed, calls))
        for fault in ran.faults:
            _, _, name, _, *words = fault.split(" ", 5)
            found.append(Finding((name, *words[:1]), f"{name} by {way}: {' '.join(words)}", seed, calls))
        if ran.last.get("grown", 0) > GROWTH:
            text = f"by {way} the process grew by {ran.last['grown']} MiB after its first {calls // 5} calls"
            found.append(Finding(("grown", way), text, seed, calls))
        if not number:
            by_python = ran
        elif not ran.status and not by_python.status and ran.digests != by_python.digests:
            found.append(difference(built, way, seed, calls, ran, by_python))
    return found


def ran_by(built: Path, way: str, seed: int, calls: int, *shown: int) -> Ran:
    """Run the drawing program once. shown: the first and the last call that it prints."""
    variables = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **WAYS[way]}
    command = [*PROGRAM, str(built), *map(str, (calls, seed, *shown))]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    last = json.loads(lines.pop()) if lines and lines[-1].startswith("{") else {}
    faults = tuple(line for line in lines if line.startswith("fault "))
    return Ran(tuple(line for line in lines if line not in faults), faults, last, done.returncode)


def ended(built: Path, way: str, seed: int, calls: int, ran: Ran) -> str:
    """Return what a process was doing when it ended: the call after the last one that it printed."""
    first = STRIDE * len(ran.digests)
    shown = ran_by(built, way, seed, calls, first, calls).digests
    last = shown[-1] if shown else "no call"
    why = f"a call took more than {MAX_SECONDS:.0f} s" if ran.status == -signal.SIGALRM else f"exit status {ran.status}"
    return f"by {way}: {why}; the last call that ended: {last[:200]}"


def difference(built: Path, way: str, seed: int, calls: int, ran: Ran, by_python: Ran) -> Finding:
    """Return the first call that a way answers otherwise than Python does, found by showing the calls around it."""
    same = next(
        (n for n, pair in enumerate(zip(ran.digests, by_python.digests, strict=False)) if pair[0] != pair[1]), 0
    )
    span = STRIDE * same, min(calls, STRIDE * (same + 1))
    one, other = (ran_by(built, each, seed, span[1], *span).digests for each in (way, "python"))
    answers = next(((a, b) for a, b in zip(one, other, strict=False) if a != b), ("calls differ", "calls differ"))
    name = answers[0].split(" ")[1]
    text = f"{name}: by {way} {answers[0][:300]!r}, by python {answers[1][:300]!r}"
    number = answers[0].split(" ")[0]
    return Finding(("differs", name), text, seed, int(number) + 1 if number.isdigit() else calls)
