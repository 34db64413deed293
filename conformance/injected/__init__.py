"""Find which injected bugs the suite notices, each in a throw-away copy of the project.

    python -m dualdnn.conformance.injected [--jobs 2] [-k TEXT ...] [--out FILE]

bugs.json gives for each bug its file, old text (which occurs once), new text, and what it breaks. It also gives the
files of cases that should notice it, with an expression if they are many. Those run until one fails. In the end all
failed cases must pass without the bugs. A bug in the reference is judged on the emulated device, because the reference
judges: they disagree whichever is wrong. `tests/reference/test_judge.py` and `faults.py` check the errors that the judge allows.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import import_module, resources
from math import inf
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from dualdnn.conformance.suite.files import case_files

NOT_COMPILED = "errors.CompileError"
LAYERS = ("api", "reference", "accelerated", "conformance")
SUBJECTS = {
    "api": ("reference",),
    "reference": ("accelerated:emulated",),
    "accelerated": ("accelerated:emulated", "--solvers"),
}
FAILED_CASE = re.compile(r'failed: dualdnn conformance --subject \S+ --case "(.*)"$', re.MULTILINE)
PROGRESS = re.compile(r"^([.sxF]+)(?: +\[ *\d+%\])?$", re.MULTILINE)  # a sign for each case
ENDLESS_CASE = re.compile(r"^endless: (.*)$", re.MULTILINE)  # selection.py
NOTICED = "noticed"
SURVIVED = "NOT NOTICED"
GONE = "gone"
INVALID = "INVALID"
ENDED = "noticed (ended the process)"
UNDECIDED = "NOT DECIDED"
KILLED_SECONDS = 10.0
AGAIN = 4  # times the limit of a case, if it runs alone after it did not end; it may have waited for others


@dataclass(frozen=True)
class Bug:
    """Describe one edit, and the cases that should notice it."""

    file: str
    old: str
    new: str
    breaks: str
    cases: tuple[str, ...]
    k: str = ""
    subject: str = ""  # subject, if the default one of its layer cannot show it
    environment: tuple[
        str, ...
    ] = ()  # NAME=value, of the emulated device where one multiprocessor, or one order of threads, cannot
    ordered: tuple[str, ...] = ()  # cases that run in this order until one fails, instead of the files' cases
    solvers: str = "all"

    @property
    def layer(self) -> str:
        return self.file.partition("/")[0]

    @property
    def judged_on(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the subject with options of the suite, and the environment."""
        subject, *options = SUBJECTS[self.layer]
        options += [self.solvers] if options else []
        return (self.subject or subject, *options), self.environment

    @property
    def is_shared(self) -> bool:
        """Return whether several families use what it breaks."""
        return "/primitives/" in self.file

    def applies_to(self, text: str) -> bool:
        """Return whether the old text occurs exactly once."""
        return text.count(self.old) == 1


@dataclass(frozen=True)
class Outcome:
    """Hold the result for a bug."""

    bug: Bug
    state: str
    by: str = ""
    seconds: float = 0.0
    ran: int = 0  # number of cases


def bugs(text: str = "", cases_of: Callable[[str], tuple[str, ...]] = lambda _file: ()) -> list[Bug]:
    """Return the bugs of bugs.json, or of a text in the same form, whose cases may follow from a function of
    the file.
    """
    text = text or resources.files(__package__).joinpath("bugs.json").read_text(encoding="utf-8")
    found = []
    for entry in json.loads(text):
        entry = {"cases": cases_of(entry["file"]), **entry}
        fields: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in entry.items()}
        found.append(Bug(**fields))
    return found


def source_of(file: str) -> Path:
    """Return the path of a project file, such as api/status.py."""
    layer, _, rest = file.partition("/")
    return Path(import_module(f"dualdnn.{layer}").__path__[0]) / rest


class Copy:
    """Hold a copy of the project, for one bug at a time."""

    max_seconds = 120.0  # processor seconds for one case; the longest takes 12

    def __init__(self, folder: Path, until: float = inf) -> None:
        self.until = until  # limit in time.monotonic()
        self.process: subprocess.Popen[bytes] | None = None
        self.package = folder / "dualdnn"
        self.folder = folder
        self.package.mkdir(parents=True)
        top = Path(import_module("dualdnn").__path__[0])
        for path in top.glob("*.py"):
            shutil.copy(path, self.package)
        for layer in LAYERS:
            origin = source_of(f"{layer}/")
            shutil.copytree(origin, self.package / layer, ignore=shutil.ignore_patterns("__pycache__", ".*"))

    def write(self, file: str, text: str) -> None:
        """Replace a file, and remove its compiled form, which Python validates only by time and size."""
        path = self.package / file
        path.write_text(text, encoding="utf-8")
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()

    def read(self, file: str) -> str:
        """Return the text of a file, or an empty text if there is none."""
        path = self.package / file
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    def run(
        self,
        judged_on: tuple[tuple[str, ...], tuple[str, ...]],
        selected: dict[str, str],
        cases: Sequence[str] = (),
        seconds: float = 600,
        ordered: Sequence[str] = (),
    ) -> tuple[int | None, str]:
        """Run cases of a subject, and return the exit status (None after a timeout) and what was printed.

        judged_on: as a bug has it. selected: file of cases -> expression as for -k; each file runs until its first
        failure. cases: ids of cases that all run. ordered: ids of cases that run in this order until the first failure.
        """
        (subject, settings), folder = judged_on, self.package / "conformance/cases"
        files = [str(path) for path in case_files(self.package / "conformance") if path.stem in selected]
        options = ["-q", "-p", "dualdnn.conformance.plugin", "-p", "no:cacheprovider", "--no-header", "--rootdir"]
        options += [str(folder), "-c", os.devnull, "--subject", *subject]
        options += [part for case in cases for part in ("--case", case)]
        options += [] if cases else ["-p", "dualdnn.conformance.injected.selection"]
        options += ["-x"] if ordered else []
        place = Path(tempfile.mkdtemp(dir=self.folder))  # folder of this run
        chosen = place / "selected.json"
        wanted = {"files": selected, "ordered": ordered, "max_seconds": self.max_seconds}
        chosen.write_text(json.dumps(wanted), encoding="utf-8")
        path = os.pathsep.join([str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
        environment |= {"DUALDNN_INJECTED": str(chosen), **dict(setting.split("=", 1) for setting in settings)}
        command = [sys.executable, "-m", "pytest", *options, *files]
        printed = place / "printed"
        with printed.open("wb") as file:
            process = self.process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=file, stderr=file, start_new_session=True
            )
            try:
                status = process.wait(max(min(seconds, self.until - time.monotonic()), 0.0))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # This kills compilers too.
                status = None
                with suppress(subprocess.TimeoutExpired):  # A device may keep a process for a while.
                    process.wait(KILLED_SECONDS)
        return status, printed.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """End the running process and the run. It has its own session, so no interrupt reaches it."""
        self.until = 0.0
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def try_bugs(self, wanted: Sequence[Bug], seconds: float) -> list[Outcome]:
        """Plant bugs that different files of cases should notice, run those files, and remove the bugs again."""
        texts = {bug.file: self.read(bug.file) for bug in wanted}
        injected = [bug for bug in wanted if bug.applies_to(texts[bug.file])]
        gone = [Outcome(bug, GONE) for bug in wanted if bug not in injected]
        if not injected:
            return gone
        started = time.monotonic()
        for bug in injected:
            self.write(bug.file, texts[bug.file].replace(bug.old, bug.new))
        ordered = injected[0].ordered
        selected = {stem: bug.k for bug in injected for stem in bug.cases}
        if ordered:
            selected = {case.partition("/")[0]: "" for case in ordered}
        status, printed = self.run(injected[0].judged_on, selected, (), seconds * len(injected), ordered)
        endless = ENDLESS_CASE.search(printed) if len(injected) == 1 else None
        if endless:
            again = self.run(injected[0].judged_on, selected, (endless[1],), AGAIN * self.max_seconds)
            status, printed = again if again[0] is not None else (status, printed)
        for bug in injected:
            self.write(bug.file, texts[bug.file])
        took = (time.monotonic() - started) / len(injected)
        failed = FAILED_CASE.findall(printed)
        ended = status is not None and (not 0 <= status <= 1 or (status == 1 and not failed))
        if ended and len(injected) > 1:
            # Each bug runs alone to find the guilty one.
            return gone + [one for bug in injected for one in self.try_bugs([bug], seconds)]
        found = [outcome_of(bug, status, printed, failed, took) for bug in injected]
        if endless and found[0].state == SURVIVED:  # The cases after it have not run.
            found = [replace(found[0], state=UNDECIDED, by=f"{endless[1]} ended alone")]
        return gone + found

    def innocent(self, outcomes: Sequence[Outcome], jobs: int = 1) -> Iterable[Outcome]:
        """Yield the outcomes, marked INVALID where the case that noticed a bug also fails without it."""
        noticed: dict[tuple[tuple[str, ...], tuple[str, ...]], set[str]] = {}
        for one in outcomes:
            if one.state == NOTICED:
                noticed.setdefault(one.bug.judged_on, set()).add(one.by)

        def failing(judged_on: tuple[tuple[str, ...], tuple[str, ...]]) -> set[str]:
            cases = sorted(noticed[judged_on])
            printed = self.run(judged_on, {case.partition("/")[0]: "" for case in cases}, cases, 3600)[1]
            return set(FAILED_CASE.findall(printed))

        with ThreadPoolExecutor(jobs) as pool:
            failed = dict(zip(noticed, pool.map(failing, noticed), strict=True))
        for one in outcomes:
            guilty = one.state == NOTICED and one.by in failed[one.bug.judged_on]
            yield replace(one, state=INVALID, by=f"{one.by} fails without it") if guilty else one


def outcome_of(bug: Bug, status: int | None, printed: str, failed: Sequence[str], took: float) -> Outcome:
    """Return what a run says about a bug. ``failed`` are the failed cases."""
    ran = len("".join(PROGRESS.findall(printed)))
    if status is None:
        return Outcome(bug, UNDECIDED, "no end", took, ran)
    if endless := ENDLESS_CASE.search(printed):
        return Outcome(bug, ENDED, f"{endless[1]} does not end", took, ran)
    if status < 0:
        return Outcome(bug, ENDED, f"signal {-status}", took, ran)
    if status > 1 or (status == 1 and not failed):
        return Outcome(bug, INVALID, printed[-400:], took, ran)
    if NOT_COMPILED in printed:
        return Outcome(bug, INVALID, "does not compile", took, ran)
    by = next((case for case in failed if bug.ordered or case.partition("/")[0] in bug.cases), "")
    return Outcome(bug, NOTICED if by else SURVIVED, by, took, ran)


def families_of(bug: Bug) -> set[str]:
    """Return the families whose cases a bug may affect; the first word of a file of cases names one."""
    return {stem.removeprefix("folded_").partition("_")[0] for stem in bug.cases}


def batches(wanted: Sequence[Bug], most: int) -> list[list[Bug]]:
    """Group bugs that can be tried together: on one subject, in different files, of different families.

    A bug in shared code is tried alone.
    """
    found: list[list[Bug]] = []
    for bug in wanted:
        for batch in found:
            apart = not any(families_of(bug) & families_of(other) or bug.file == other.file for other in batch)
            alone = bug.is_shared or batch[0].is_shared
            alone |= bool(bug.ordered or batch[0].ordered)
            if len(batch) < most and apart and not alone and batch[0].judged_on == bug.judged_on:
                batch.append(bug)
                break
        else:
            found.append([bug])
    return found


def tried(
    wanted: Sequence[Bug], jobs: int, seconds: float, at_once: int = 1, all_seconds: float = inf
) -> Generator[Outcome, None, None]:
    """Try every bug, and yield the outcomes.

    No bug starts or continues after ``all_seconds``, or once this generator is closed. ``verified`` later checks
    noticed bugs against the project without bugs.
    """
    until = time.monotonic() + all_seconds
    with tempfile.TemporaryDirectory(prefix="dualdnn-injected-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies: SimpleQueue[Copy] = SimpleQueue()
        made = list(pool.map(lambda i: Copy(Path(folder) / str(i), until), range(min(jobs, len(wanted)))))
        for copy in made:
            copies.put(copy)

        def some(batch: list[Bug]) -> list[Outcome]:
            copy = copies.get()
            try:
                return copy.try_bugs(batch, seconds) if time.monotonic() < until else []
            finally:
                copies.put(copy)

        pending = [pool.submit(some, batch) for batch in batches(wanted, at_once)]
        try:
            for done in as_completed(pending):
                yield from done.result()
        except BaseException:  # This is an interrupt, or a consumer that stops.
            until = 0.0
            for copy in made:
                copy.stop()
            raise


def verified(outcomes: Sequence[Outcome], jobs: int = 1) -> list[Outcome]:
    """Return the outcomes, marking cases that also fail without the bug."""
    with tempfile.TemporaryDirectory(prefix="dualdnn-injected-") as folder:
        return list(Copy(Path(folder)).innocent(outcomes, jobs))


def family_of(bug: Bug) -> str:
    """Return the family under which the report counts a bug."""
    return min(families_of(bug))


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return the counts as a Markdown table."""
    lines = ["| | injected | noticed |", "|---|---|---|"]
    counted = [one for one in outcomes if one.state not in (GONE, INVALID)]
    groups = {layer: [o for o in counted if o.bug.layer == layer] for layer in LAYERS[:3]}
    groups |= {
        family: [o for o in counted if family_of(o.bug) == family]
        for family in sorted({family_of(o.bug) for o in counted})
    }
    groups["all"] = counted
    for name, part in groups.items():
        lines.append(f"| {name} | {len(part)} | {sum(o.state in (NOTICED, ENDED) for o in part)} |")
    return "\n".join(lines)


def row(one: Outcome) -> str:
    """Return a row of the table of all bugs."""
    cells = (one.bug.file, one.bug.breaks, one.state, one.by.replace("\n", " ").replace("|", "\\|"))
    return "| " + " | ".join(cells) + " |"


def line(one: Outcome) -> str:
    """Return everything known of an outcome, as JSON."""
    return json.dumps(
        asdict(one) | {"bug": {name: getattr(one.bug, name) for name in ("file", "breaks", "old", "new", "cases")}}
    )


def left(lines: str) -> list[Bug]:
    """Return the bugs of lines, as ``line`` writes them, that no case has noticed."""
    found = [entry for entry in map(json.loads, lines.splitlines()) if entry["state"] in (SURVIVED, UNDECIDED)]
    return [Bug(**entry["bug"] | {"cases": tuple(entry["bug"]["cases"])}) for entry in found]
