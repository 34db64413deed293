"""Watch the processes that run cases: how each ended, which case it ran then, and whether a case takes too long.

A foreign library may end its process, kill it, close its descriptors, or never return. Each worker records its work in
a file, which the controlling process reads when the worker is gone.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..subjects import foreign_path, is_lost
from ..subjects.binding import arithmetic
from ..subjects.binding.objects import COPIED
from ..subjects.probe import ending, same_file
from .evidence import clauses_of
from .items import opened, subject_of

CASE_SECONDS = 600  # seconds, default limit of one case
STARTING_SECONDS = 600  # seconds, limit for a worker to start, and to collect the cases
FRUITLESS = 3  # consecutive workers that may end without a result of a case
LOST_SECONDS = 20.0  # seconds for the results of a case to arrive
STOPPED_SECONDS = 1.0  # seconds between two looks at a stopped worker
COPY_SECONDS = 0.2  # seconds, wait for copies of the process, made by a call, to end
HANGS = "Timeout ("  # beginning of what faulthandler writes before it ends a process
LOST = "ended its device, and the process with it"
UNABLE = "left its process unable to go on"
UNABLE_STATUS = 71  # EX_OSERR, exit status of a process that cannot write why
INTERRUPTED = threading.Event()
FOLDER = "conformance-workers"  # key of a worker's input: the folder of its file


@dataclass(frozen=True)
class Ended:
    """Describe how a worker ended, and the clauses that its case names."""

    how: str = "took its process down"
    clauses: tuple[str, ...] = ()


ENDED = pytest.StashKey[Ended]()  # the worker that ended last
MISCONDUCT = pytest.StashKey[str]()  # The text says how the subject harmed its process in one phase of a case.


class Workers:
    """Give each worker a file, and count every unexpected end of a worker, in the controlling process."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.folder = tempfile.TemporaryDirectory(prefix="dualdnn-workers-")
        self.fruitless = self.vanished = 0
        self.how = ""
        self.processes: dict[Any, str] = {}  # process of a worker -> name of its file
        self.ended_here: dict[int, str] = {}  # pid of a worker that was killed -> why
        self.received: Counter[str] = Counter()  # name of a worker's file -> reports that have arrived
        self.over = threading.Event()
        threading.Thread(target=self._end_others, daemon=True).start()

    def _end_others(self) -> None:
        """Kill workers that are stopped at two successive looks: nothing inside a stopped process can end it.

        Also kill the processes of an ended worker: they would keep the worker's pipe open, whose end is awaited. And kill a
        worker whose results do not arrive: its library has written into that pipe.
        """
        seen: set[int] = set()
        since: dict[int, float] = {}  # pid of a worker -> when results of it were missed first
        while not self.over.wait(STOPPED_SECONDS):
            workers = list(self.processes.items())
            for process in [process for process, _ in workers if process.poll() is not None]:
                for pid in _holders(process.stdout):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            found = {process.pid for process, _ in workers if _is_stopped(process)}
            now, late = time.monotonic(), {p.pid for p, name in workers if self._sent(name) > self.received[name]}
            since = {pid: since.get(pid, now) for pid in late}
            self._end(seen & found, "stopped its process, which was ended")
            self._end(
                {pid for pid, first in since.items() if now - first > LOST_SECONDS},
                "wrote into a descriptor that it had not opened, so that results were lost, and its process was ended",
            )
            seen = found - self.ended_here.keys()

    def _end(self, pids: set[int], why: str) -> None:
        for pid in pids - self.ended_here.keys():
            self.ended_here[pid] = why
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _sent(self, name: str) -> int:
        """Return how many reports a worker has sent by the end of its last case, by its file."""
        path = Path(self.folder.name, name)
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.exists() else []
        return int(lines[1]) if len(lines) > 1 and lines[1].isdigit() else 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[FOLDER] = self.folder.name

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        if (process := _process_of(node)) is not None:
            self.processes[process] = node.gateway.id

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Record how a worker ended; stop the run if workers end before they run a case."""
        self.processes.pop(_process_of(node), None)
        if not error:
            return
        ended = self._ended(node)
        self.config.stash[ENDED], self.how = ended, ended.how
        self.vanished, self.fruitless = self.vanished + 1, self.fruitless + 1
        if self.fruitless >= FRUITLESS:
            session: Any = self.config.pluginmanager.getplugin("dsession")
            session._max_worker_restart = 0
            session.shouldstop = f"{self.fruitless} processes ended before they ran a case: the subject {ended.how}"

    def _ended(self, node: Any) -> Ended:
        path = Path(self.folder.name, node.gateway.id)
        said = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        first, _, rest = said.partition("\n")
        clauses = tuple(json.loads(first)) if first.startswith("[") else ()
        if HANGS in rest:
            seconds = self.config.getoption("--case-seconds")
            return Ended(f"did not return within {seconds} seconds, and its process was ended", clauses)
        if LOST in rest:
            return Ended(LOST, clauses)
        if UNABLE in rest:
            return Ended(rest[rest.index(UNABLE) :], clauses)
        try:
            status = node.gateway._io.popen.wait(5)  # Wait for the process that execnet started.
        except Exception:  # This is another kind of gateway, or a process that continues without its channel.
            return Ended("took its process down", clauses)
        how = UNABLE if status == UNABLE_STATUS else ending(status)
        return Ended(self.ended_here.get(node.gateway._io.popen.pid, how), clauses)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a result of a case, or the case that ended a worker."""
        self.fruitless = 0
        self.vanished -= report.when == "???"
        if (node := getattr(report, "node", None)) is not None:
            self.received[node.gateway.id] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.vanished and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.vanished:
            terminalreporter.write_line(f"{self.vanished} processes ended between cases: the subject {self.how}")

    def pytest_unconfigure(self) -> None:
        self.over.set()
        self.folder.cleanup()


def _process_of(node: Any) -> Any:
    """Return the process that execnet started for a worker, or None for another kind of gateway."""
    return getattr(getattr(node.gateway, "_io", None), "popen", None)


def _holders(pipe: Any) -> list[int]:
    """Return the other processes that have a pipe open; nothing where it is closed here."""
    try:
        name = f"pipe:[{os.fstat(pipe.fileno()).st_ino}]"
    except (OSError, ValueError):
        return []
    found = []
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # The process has ended, or belongs to another user.
            if os.readlink(path) == name and int(path.parts[2]) != os.getpid():
                found.append(int(path.parts[2]))
    return found


def _is_stopped(process: Any) -> bool:
    """Return whether a signal has stopped a child of this process. Its exit status stays available."""
    try:
        return (
            process.poll() is None
            and os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        )
    except ChildProcessError:
        return False


def _copies() -> int:
    """Count the copies of this process that returned from a forking library call; each has ended itself."""
    found, end = 0, time.monotonic() + COPY_SECONDS
    while time.monotonic() < end:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return found
        if ended is None:
            time.sleep(0.01)
        elif (ended.si_code, ended.si_status) != (os.CLD_EXITED, COPIED):
            return found
        else:
            os.waitpid(ended.si_pid, 0)
            found += 1
    return found


def _hear_interrupts() -> None:
    """Note an interrupt of this process instead of raising an exception, which would end the whole run.

    The controlling process answers Ctrl-C.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, lambda *_: INTERRUPTED.set())


class Watched:
    """Write the clauses of a worker's case to its file, and end the process if a case takes too long or loses its device."""

    def __init__(self, path: Path, seconds: float, subjects: Sequence[str]) -> None:
        self.file, self.seconds, self.subjects = path.open("w", encoding="utf-8"), seconds, subjects
        self.sent = 0  # reports of cases
        self.failed = False  # whether the current case failed
        self._begin([], STARTING_SECONDS)

    def _begin(self, clauses: list[str], seconds: float) -> None:
        self.file.seek(0)
        self.file.write(f"{json.dumps(clauses)}\n{self.sent}\n")
        self.file.flush()
        self.file.truncate()  # last, so that a process that may not write keeps its clauses
        faulthandler.dump_traceback_later(seconds, exit=True, file=self.file)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Load foreign libraries before any case, so that no case is blamed for what happens then.

        A library may take as long as a case.
        """
        if any(map(foreign_path, self.subjects)):
            _hear_interrupts()
            with suppress(PermissionError):  # The process leads a session already.
                os.setpgid(0, 0)  # A library that kills its process group kills this worker alone.
        for name in filter(foreign_path, self.subjects):
            self._begin([], self.seconds)
            opened(name)
        self._begin([], STARTING_SECONDS)

    def pytest_collection_finish(self) -> None:
        faulthandler.cancel_dump_traceback_later()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.sent += 1
        self.failed |= report.when == "call" and not report.passed  # Known failures are skipped.

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        clauses, name = sorted(clauses_of(item)), subject_of(item)
        self._begin(clauses, self.seconds)
        self.failed = False
        outcome: Any = yield
        error = outcome.excinfo[1] if outcome.excinfo else None
        try:
            self._begin(clauses, self.seconds)
        except OSError as found:  # The library forbids its process to write files, or took them away.
            error = found
        if isinstance(error, Exception) and name and not opened(name).ours:
            self._end(f"{UNABLE}: {type(error).__name__}: {error}")
        if self.failed and name and is_lost(opened(name)):  # All later cases would fail, too.
            self._end(LOST)
        faulthandler.cancel_dump_traceback_later()

    def _end(self, why: str) -> None:
        """End this process, and write why if it still can."""
        with suppress(OSError):
            self.file.write(why)
            self.file.flush()
        os._exit(UNABLE_STATUS)


def _process_kept(item: pytest.Item) -> Iterator[None]:
    """Note that a foreign subject forked, interrupted its process, changed the arithmetic, or closed standard output or error; undo this.

    The result of the phase has this in addition to the case's own failure.
    """
    name = subject_of(item)
    if name is None or opened(name).ours:
        yield
        return
    before = {number: (os.fstat(number), os.dup(number)) for number in (1, 2)}
    INTERRUPTED.clear()
    yield
    changed = [str(number) for number, (status, _) in before.items() if not same_file(number, status)]
    for number, (_, copy) in before.items():
        if str(number) in changed:
            os.dup2(copy, number)
        os.close(copy)
    said = [f"closed descriptor {' and '.join(changed)} of its process"] if changed else []
    if INTERRUPTED.is_set():
        said.append("interrupted its process")
    if arithmetic.is_changed():
        arithmetic.restore()
        said.append("changed how its process rounds, or made subnormal numbers 0")
    if copies := _copies():
        said.append(
            f"forked: {copies} copies of its process came back from a call"
            if copies > 1
            else "forked: a copy of its process came back from a call"
        )
    if said:
        item.stash[MISCONDUCT] = f"the subject {', and '.join(said)}"


# These hooks run innermost, after pytest has replaced the descriptors with its own files.
@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    yield from _process_kept(item)


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    yield from _process_kept(item)


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    yield from _process_kept(item)
