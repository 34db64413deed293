"""Run the cases on the workers of a Dask cluster (``--scheduler``): each worker has one case at a time.

If a worker ends, its case has failed. The case runs once more, alone: as the first one of a new process, if the cluster
starts one within ``RENEWAL_SECONDS``. The message of the failure says how that went. The other cases go on.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..provenance import commit
from .items import subject_names
from .journal import finished
from .on_a_worker import Reports, collected, outcome
from .progress import Progress
from .workers import ENDED, Ended

if TYPE_CHECKING:
    from distributed import Client, Future

LOOK_SECONDS = 1.0  # seconds between two looks at the list of workers
START_SECONDS = 120.0  # seconds; bounds the wait for the first worker
# A case that has to run alone waits this many seconds for a new process, and then takes a used one.
RENEWAL_SECONDS = 60.0


def client_of(address: str) -> Client:
    """Return a client of a scheduler. Raises ``UsageError`` without a scheduler, or without the package."""
    try:
        from distributed import Client
    except ImportError:
        raise pytest.UsageError("--scheduler needs Dask: pip install 'dualdnn[cluster]'") from None
    try:
        return Client(address, timeout=START_SECONDS / 4, set_as_default=False)
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"--scheduler: there is no scheduler at {address!r} ({error})") from None


def options_of(config: pytest.Config) -> tuple[str, ...]:
    """Return the options of pytest that choose the cases of a run, and say how they run."""
    values = ("tier", "shard", "every", "solvers", "input-seed", "case-seconds", "prove-clauses")
    chosen = [f"--{name}={config.getoption(f'--{name}')}" for name in values]
    chosen += [text for case in config.getoption("--case") for text in ("--case", case)]
    chosen += [text for name in subject_names(config) for text in ("--subject", name)]
    chosen += ["-k", config.getoption("-k")] if config.getoption("-k") else []
    return *chosen, *(["--prove"] if config.getoption("--prove") else [])


def clauses_in(reports: Sequence[pytest.TestReport]) -> tuple[str, ...]:
    """Return the clauses of the results in a worker's reports."""
    results: list[Any] = [value for one in reports for name, value in one.user_properties if name == "conformance"]
    return tuple(sorted({clause for result in results for clause in result["clauses"]}))


def strictly(dask_scheduler: Any) -> None:
    """Let the scheduler not repeat a task whose worker ended, because the end is a result."""
    dask_scheduler.allowed_failures = 0


class Cluster:
    """Give cases to workers, and their reports to pytest, in the controlling process."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        expected = config.getoption("--expected")
        self.given = options_of(config), Path(expected).read_text(encoding="utf-8") if expected else ""
        self.client = client_of(config.getoption("--scheduler"))
        self.client.run_on_scheduler(strictly)
        self.ready: set[str] = set()  # workers that have the cases of the run
        self.used: set[str] = set()  # workers that have run a case
        self.meeting: dict[Future, str] = {}  # workers that were asked for their cases
        self.running: dict[Future, tuple[str, str]] = {}  # Each running task has its worker and its case.
        self.done: queue.Queue[Future] = queue.Queue()
        self.todo: deque[str] = deque()
        self.again: dict[str, float] = {}  # Each case to run alone has the time when its worker ended.
        self.ends: dict[str, str] = {}  # Each case that ran again has the worker that ended.
        self.ids: dict[str, tuple[str, str]] = {}  # Each id of pytest stands for a case and the name of its subject.

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Take the cases from the workers, which alone open the subjects. Raises ``UsageError`` where no worker comes."""
        until = time.monotonic() + START_SECONDS
        while not self.ready:
            if time.monotonic() > until and not self.meeting:
                raise pytest.UsageError(f"--scheduler: {self.client.scheduler.address} has no worker")
            self._look()
            self._listen()
        done = self.config.getoption("--done")
        known = finished(Path(done)) if done else set()
        self.todo.extend(nodeid for nodeid, case in self.ids.items() if case not in known)
        session.testscollected = len(self.todo)
        for plugin in self.config.pluginmanager.get_plugins():
            if isinstance(plugin, Progress):
                plugin.expect(len(self.todo))
        return True

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all cases. ``KeyboardInterrupt`` ends the run as it ends a local one."""
        looked = time.monotonic()
        try:
            while self.todo or self.again or self.running:
                if time.monotonic() - looked > LOOK_SECONDS:
                    looked = time.monotonic()
                    self._look()
                self._give()
                self._listen()
        finally:
            self.client.cancel([*self.running, *self.meeting])
            self.client.close()
        return True

    def _submit(self, worker: str, function: Any, *given: Any) -> Future:
        future = self.client.submit(function, *self.given, *given, workers=[worker], pure=False, retries=0)
        future.add_done_callback(self.done.put)
        return future

    def _look(self) -> None:
        """Note which workers are gone, and ask new ones for their cases."""
        present = set(self.client.scheduler_info(n_workers=-1)["workers"])
        self.ready &= present
        for future, (worker, case) in list(self.running.items()):
            if worker not in present and not future.done():
                self._ended(future, worker, case)
        self.meeting = {future: worker for future, worker in self.meeting.items() if worker in present}
        for worker in sorted(present - self.ready - set(self.meeting.values())):
            self.meeting[self._submit(worker, collected)] = worker

    def _listen(self) -> None:
        """Take a worker's answer, or wait for a short time."""
        with suppress(queue.Empty):
            future = self.done.get(timeout=LOOK_SECONDS)
            if future in self.meeting:
                self._welcome(self.meeting.pop(future), future)
            elif future in self.running:
                self._take(future)

    def _welcome(self, worker: str, future: Future) -> None:
        """Let a worker run cases. Raises ``UsageError`` unless it has this commit, and the other workers' cases."""
        if future.status != "finished":
            if worker in self.client.scheduler_info(n_workers=-1)["workers"]:
                raise pytest.UsageError(f"worker {worker} cannot run the suite: {future.exception()}")
            return  # It ended before it had a case.
        theirs, ids = future.result()
        if theirs != commit():
            raise pytest.UsageError(f"worker {worker} has {theirs}, this machine {commit()}: one commit is due")
        if self.ids and ids != self.ids:
            raise pytest.UsageError(f"worker {worker} has {len(ids)} cases, another {len(self.ids)}: they differ")
        self.ids = self.ids or ids
        self.ready.add(worker)

    def _give(self) -> None:
        """Give each idle worker a case; new workers first get the cases that have to run alone."""
        busy = {worker for worker, _ in self.running.values()}
        for worker in sorted(self.ready - busy):
            late = [c for c, since in self.again.items() if time.monotonic() - since > RENEWAL_SECONDS]
            if self.again and worker not in self.used:
                case = next(iter(self.again))
            elif late:
                case = late[0]
            elif self.todo:
                case = self.todo.popleft()
            else:
                continue
            self.again.pop(case, None)
            self.used.add(worker)
            self.running[self._submit(worker, outcome, case)] = (worker, case)

    def _take(self, future: Future) -> None:
        worker, case = self.running[future]
        if future.status == "finished":
            del self.running[future]
            self._report(case, future.result())
        else:
            self._ended(future, worker, case)

    def _ended(self, future: Future, worker: str, case: str) -> None:
        """Repeat the case of a worker that ended, or report that it ended two workers."""
        del self.running[future]
        self.ready.discard(worker)
        if case in self.ends:
            self._crash(case, f"was judged by two workers that ended, {self.ends.pop(case)} and, alone, {worker}")
        else:
            self.ends[case], self.again[case] = worker, time.monotonic()

    def _report(self, case: str, reports: Reports) -> None:
        """Hand the reports of a case to pytest, and the end of its first worker, if that ended."""
        made = [self.config.hook.pytest_report_from_serializable(config=self.config, data=data) for data in reports]
        alone = clauses_in(made)  # The collector takes the results out of the reports.
        for report in made:
            self.config.hook.pytest_runtest_logreport(report=report)
        if case in self.ends:
            said = "fails alone, too" if any(report.failed for report in made) else "passes alone"
            self._crash(case, f"was judged by a worker that ended, {self.ends.pop(case)}; the case {said}", alone)

    def _crash(self, case: str, how: str, clauses: tuple[str, ...] = ()) -> None:
        """Report the end of a worker, as xdist does. clauses: the clauses of the case, if it ran again."""
        self.config.stash[ENDED] = Ended(how, clauses)
        file, _, name = case.partition("::")
        report = pytest.TestReport(case, (file, None, name), {}, "failed", f"the subject {how}", "???")  # type: ignore[arg-type]  # as xdist has it
        self.config.hook.pytest_runtest_logreport(report=report)
