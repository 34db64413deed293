"""Planted bugs: which of them the suite notices, each in a throw-away copy of the project.

    python -m dualdnn.conformance.planted [--jobs 2] [-k TEXT ...] [--out FILE]

bugs.json says for each: file, old text (which occurs once), new text, what it breaks, and the files of cases (with an expression where
they are many) that should notice it. Those run until one fails; in the end all cases that did must pass without the bugs. A bug in the reference is judged on
the emulated device, since the reference judges: whoever is wrong, they disagree. The errors that the judge allows are
no results: `tests/test_judge.py` and `faults.py` are about them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from importlib import import_module, resources
from pathlib import Path
from queue import SimpleQueue

FLOORS = ("api", "reference", "accelerated", "conformance")
SUBJECTS = {
    "api": ("reference",),
    "reference": ("accelerated:emulated",),
    "accelerated": ("accelerated:emulated", "--solvers", "all"),
}
FAILED_CASE = re.compile(r'failed: dualdnn conformance --subject \S+ --case "(.*)"$', re.MULTILINE)
NOTICED, SURVIVED, GONE, INVALID, ENDED = "noticed", "NOT NOTICED", "gone", "INVALID", "noticed (ended the process)"


@dataclass(frozen=True)
class Bug:
    """One edit, and who should notice it."""

    file: str
    old: str
    new: str
    breaks: str
    cases: tuple[str, ...]
    k: str = ""
    subject: str = ""  # where the one of its floor cannot show it

    @property
    def floor(self) -> str:
        return self.file.partition("/")[0]

    def applies_to(self, text: str) -> bool:
        """Whether the old text occurs, once."""
        return text.count(self.old) == 1


@dataclass(frozen=True)
class Outcome:
    """What became of a bug."""

    bug: Bug
    state: str
    by: str = ""
    seconds: float = 0.0


def bugs() -> list[Bug]:
    """The planted bugs."""
    table = json.loads(resources.files(__package__).joinpath("bugs.json").read_text(encoding="utf-8"))
    return [Bug(**{**entry, "cases": tuple(entry["cases"])}) for entry in table]


def source_of(file: str) -> Path:
    """Where a file of the project lies, api/status.py say."""
    floor, _, rest = file.partition("/")
    return Path(import_module(f"dualdnn.{floor}").__path__[0]) / rest


class Copy:
    """A copy of the project, for one bug at a time."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "dualdnn"
        self.folder = folder
        self.package.mkdir(parents=True)
        top = Path(import_module("dualdnn").__path__[0])
        for path in top.glob("*.py"):
            shutil.copy(path, self.package)
        for floor in FLOORS:
            origin = source_of(f"{floor}/")
            shutil.copytree(origin, self.package / floor, ignore=shutil.ignore_patterns("__pycache__", ".*"))

    def write(self, file: str, text: str) -> None:
        """Replace a file; what Python has compiled of it goes, which it would know by its time and size alone."""
        path = self.package / file
        path.write_text(text, encoding="utf-8")
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()

    def run(
        self, bug: Bug, cases: Sequence[str] = (), seconds: float = 600, first: bool = True
    ) -> tuple[int | None, str]:
        """Run cases, until the first fails: (exit status, None where they took too long; what was printed)."""
        folder = self.package / "conformance/cases"
        subject, *solvers = (bug.subject,) if bug.subject else SUBJECTS[bug.floor]
        files = [str(folder / f"{name.partition('/')[0]}.py") for name in cases or bug.cases]
        options = [
            "-q",
            "-x",
            "-p",
            "dualdnn.conformance.plugin",
            "-p",
            "no:cacheprovider",
            "--no-header",
            "--rootdir",
            str(folder),
        ]
        options += ["-c", os.devnull, "--subject", subject, *solvers]
        options += [part for case in cases for part in ("--case", case)]
        options += ["-k", bug.k] if bug.k and not cases else []
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "pytest", *options, *files]
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=seconds,
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            return None, ""
        return done.returncode, done.stdout + done.stderr

    def try_bug(self, bug: Bug, seconds: float) -> Outcome:
        """Plant a bug, run what should notice it, and take it out again."""
        right = (self.package / bug.file).read_text(encoding="utf-8")
        if not bug.applies_to(right):
            return Outcome(bug, GONE)
        started = time.monotonic()
        self.write(bug.file, right.replace(bug.old, bug.new))
        status, printed = self.run(bug, seconds=seconds)
        self.write(bug.file, right)
        took = time.monotonic() - started
        if status == 0:
            return Outcome(bug, SURVIVED, "", took)
        if status is None:
            return Outcome(bug, INVALID, f"no end in {seconds:.0f} s", took)
        if status < 0:
            return Outcome(bug, ENDED, f"signal {-status}", took)
        found = FAILED_CASE.search(printed)
        if status != 1 or found is None:
            return Outcome(bug, INVALID, printed[-400:], took)
        return Outcome(bug, NOTICED, found[1], took)

    def innocent(self, outcomes: Sequence[Outcome]) -> Iterable[Outcome]:
        """The same outcomes, INVALID where the case that noticed a bug fails without it as well."""
        failing: dict[str, set[str]] = {}
        for floor in SUBJECTS:
            part = [one for one in outcomes if one.bug.floor == floor and one.state == NOTICED]
            if part:
                plain = replace(part[0].bug, subject="accelerated:emulated" if any(o.bug.subject for o in part) else "")
                found = self.run(plain, sorted({one.by for one in part}), first=False)[1]
                failing[floor] = set(FAILED_CASE.findall(found))
        for one in outcomes:
            guilty = one.state == NOTICED and one.by in failing.get(one.bug.floor, ())
            yield replace(one, state=INVALID, by=f"{one.by} fails without it") if guilty else one


def tried(wanted: Sequence[Bug], jobs: int, seconds: float) -> Iterable[Outcome]:
    """Try every bug; what was noticed is held against the project without bugs in the end (``verified``)."""
    with tempfile.TemporaryDirectory(prefix="dualdnn-planted-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(min(jobs, len(wanted))):
            copies.put(Copy(Path(folder) / str(number)))

        def one(bug: Bug) -> Outcome:
            copy = copies.get()
            try:
                return copy.try_bug(bug, seconds)
            finally:
                copies.put(copy)

        for done in as_completed([pool.submit(one, bug) for bug in wanted]):
            yield done.result()


def verified(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes, less those whose case fails without the bug as well."""
    with tempfile.TemporaryDirectory(prefix="dualdnn-planted-") as folder:
        return list(Copy(Path(folder)).innocent(outcomes))


def family_of(bug: Bug) -> str:
    """What the report counts a bug under: the family of the first cases that should notice it."""
    return bug.cases[0].split("_")[0]


def summary(outcomes: Sequence[Outcome]) -> str:
    """Counts as a table in Markdown."""
    lines = ["| | planted | noticed |", "|---|---|---|"]
    counted = [one for one in outcomes if one.state not in (GONE, INVALID)]
    groups = {floor: [o for o in counted if o.bug.floor == floor] for floor in FLOORS[:3]}
    groups |= {
        family: [o for o in counted if family_of(o.bug) == family]
        for family in sorted({family_of(o.bug) for o in counted})
    }
    groups["all"] = counted
    for name, part in groups.items():
        lines.append(f"| {name} | {len(part)} | {sum(o.state != SURVIVED for o in part)} |")
    return "\n".join(lines)


def row(one: Outcome) -> str:
    """A line of the table of all bugs."""
    cells = (one.bug.file, one.bug.breaks, one.state, one.by.replace("\n", " ").replace("|", "\\|"))
    return "| " + " | ".join(cells) + " |"
