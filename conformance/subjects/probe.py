"""Probe a foreign library in a separate process, because it may end, kill or block the process that loads it.

python -m dualdnn.conformance.subjects.probe SUBJECT FILE    # write a line for each step, and the results
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import ForeignSubject, OwnSubject, RecordedSubject, foreign_path, open_subject

STARTING_SECONDS = 120  # limit for the probing process to start
LOADING_SECONDS = 120  # default limit for a step: to load a library, to make a handle, to destroy it
LOOK_SECONDS = 0.1  # between two looks at the steps of a library
NEEDED = ("cudnnCreate", "cudnnDestroy", "cudnnCreateTensorDescriptor")  # functions without which nothing can be judged


class LibraryUnusable(ValueError):
    """Say why a library cannot be a subject."""


@dataclass(frozen=True)
class ProbedSubject:
    """Hold what a process knows of a foreign library that it does not load."""

    name: str
    description: str
    computes: bool
    has_gpu: bool
    shows: tuple[str, ...]
    exports: frozenset[str]
    facts: Mapping[str, Any]
    ours = False

    def implements(self, function: str) -> bool:
        return function in self.exports

    def environment(self) -> dict[str, Any]:
        return dict(self.facts)


DescribedSubject = OwnSubject | RecordedSubject | ForeignSubject | ProbedSubject
PROBED: dict[str, ProbedSubject] = {}


def describe_subject(name: str, seconds: float | None = None) -> DescribedSubject:
    """Return the subject of a name.

    A foreign library is only probed in another process, once. seconds: limit of each of its steps. Raises ``ValueError``
    if it is unusable.
    """
    if foreign_path(name) is None:
        return open_subject(name)
    if name not in PROBED:
        PROBED[name] = probed(name, seconds or LOADING_SECONDS)
    return PROBED[name]


def ending(status: int) -> str:
    """Return how a process ended, by its ``subprocess`` status."""
    if status >= 0:
        return f"ended the process with exit status {status}"
    known = {number.value: number.name for number in signal.Signals}
    return f"ended the process by signal {-status} ({known.get(-status, 'unknown')})"


def _in_time(process: subprocess.Popen[bytes], told: Path, seconds: float) -> bool:
    """Wait for a process. Return False after ending it because it wrote no line in time."""
    size, since = 0, time.monotonic()
    while True:
        try:
            process.wait(LOOK_SECONDS)
            return True
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        if (grown := told.stat().st_size) != size:
            size, since = grown, now
        elif now - since > (seconds if size else STARTING_SECONDS):
            process.kill()
            process.wait()
            return False


def probed(name: str, seconds: float) -> ProbedSubject:
    """Return what a separate process finds in a library. Raises ``LibraryUnusable`` if it returns nothing."""
    path = foreign_path(name)
    with tempfile.TemporaryDirectory(prefix="dualdnn-probe-") as folder:
        told = Path(folder, "told")
        told.touch()
        command = [sys.executable, "-P", "-m", __name__, name, str(told)]
        # The standard error is a file: a process that the library leaves running would keep a pipe open.
        with Path(folder, "said").open("w+b") as file:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=file)
            in_time = _in_time(process, told, seconds)
            file.seek(0)
            said = file.read()
        lines = [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()]
    facts = next((line["facts"] for line in lines if "facts" in line), None)
    if error := next((line["error"] for line in lines if "error" in line), None):
        raise LibraryUnusable(error)
    step = lines[-1].get("step", "it was asked") if lines else ""
    if not in_time:
        raise LibraryUnusable(
            f"{path} took longer than {seconds if lines else STARTING_SECONDS:g} seconds while {step}"
        )
    if facts is None and not lines:  # This is a fault of the probing process, not of the library.
        raise LibraryUnusable(f"{path} could not be looked at: {said.decode(errors='replace').strip()[-300:]}")
    if facts is None or process.returncode:
        raise LibraryUnusable(f"{path} {ending(process.returncode)} while {step}")
    return ProbedSubject(**facts | {"shows": tuple(facts["shows"]), "exports": frozenset(facts["exports"])})


def look(name: str, told: Path) -> None:
    """Load a library and write what it finds. Each step is in the file before it is taken."""
    with told.open("a", encoding="utf-8", buffering=1) as file:

        def tell(**what: Any) -> None:
            file.write(f"{json.dumps(what)}\n")

        before = [os.fstat(number) for number in (1, 2)]
        try:
            path = foreign_path(name)
            assert path is not None
            subject = ForeignSubject(path, lambda step: tell(step=step))
            lacking = [function for function in NEEDED if not subject.implements(function)]
            if lacking:
                count = len(subject.library.exports())
                tell(error=f"{path} exports {count} of the documented functions, but not {', '.join(lacking)}")
                return
            changed = [str(n) for n, old in zip((1, 2), before, strict=True) if not same_file(n, old)]
            if changed:
                tell(error=f"{path} closes descriptor {' and '.join(changed)} of the process that loads it")
                return
            tell(facts={
                "name": subject.name, "description": subject.description,
                "computes": subject.computes, "has_gpu": subject.has_gpu, "shows": subject.shows,
                "exports": sorted(subject.library.exports()), "facts": subject.environment(),
            })  # fmt: skip
            tell(step="the process came to its end")
        except (OSError, ValueError) as error:
            tell(error=str(error) if str(path) in str(error) else f"{path} changed the process that loads it: {error}")


def same_file(descriptor: int, before: os.stat_result) -> bool:
    """Return whether a descriptor is open and still refers to the same file."""
    try:
        now = os.fstat(descriptor)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino)


if __name__ == "__main__":
    look(sys.argv[1], Path(sys.argv[2]))
