"""Run trials by every accelerated solver that can serve them, and record which case launches which kernel."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

from dualdnn.accelerated.records import noting_launches
from dualdnn.accelerated.runtime.sources import entry_points
from dualdnn.accelerated.solver import forcing, solver_names
from dualdnn.api.files import write
from dualdnn.api.operations import Operation

from .trial import Step

T = TypeVar("T")
# Otherwise --solvers names the solvers for trials.
PREFERRED = "preferred"
ALL = "all"
KERNELS_FILE = "kernels.json"
ORDERS = 3  # orders of threads on the emulated device
NOT_LAUNCHED = "unlaunched.json"  # file of the kernels that no case can launch here, with the reasons


@dataclass
class Used:
    """Hold the kernels that a case launched, their modules, and the solvers that planned the launches."""

    kernels: set[str] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    solvers: set[str] = field(default_factory=set)

    def lists(self) -> dict[str, list[str]]:
        """Return what was used, as JSON values."""
        return {name: sorted(found) for name, found in vars(self).items()}


@contextmanager
def noted(used: Used) -> Iterator[None]:
    """Add what is used in this scope."""
    with noting_launches() as launched:
        yield
    used.kernels |= launched
    used.modules |= launched.modules


def unknown_solvers(wanted: str) -> list[str]:
    """Return the names in --solvers that are not solvers."""
    names = [] if wanted in (PREFERRED, ALL) else wanted.split(",")
    return [name for name in names if name not in solver_names()]


def by_solvers(
    handle: Any, operations: Sequence[Operation], run: Callable[[str | None], T], wanted: str, used: Used | None = None
) -> T:
    """Run by solvers, and return the first result.

    "preferred" runs as planned. "all" then runs each other solver that can serve one of the operations. Comma-separated
    names run only these, if one can serve. ``used`` receives all solvers that ran, except under "preferred".
    """
    if wanted == PREFERRED:  # Foreign libraries run like this too; their handle has no backend.
        return run(None)
    backend = handle.backend
    names = dict.fromkeys(name for operation in operations for name in backend.solvers(operation))
    left = [name for name in names if name in wanted.split(",")]
    results = [] if left else [run(None)]
    if wanted == ALL:
        preferred = {backend.plan(operation).solver for operation in operations}
        left = [name for name in names if name not in preferred]
        if used:
            used.solvers |= preferred - {""}
    if used:
        used.solvers |= set(left)
    for name in left:
        handle.answers.clear()  # These calls were prepared by another solver.
        with forcing(name):
            results.append(run(name))
    handle.answers.clear()
    return results[0]


def by_each_solver(handle: Any, operation: Operation, run: Callable[[], object]) -> None:
    """Run as planned, then by each other accelerated solver that can serve the operation, for a case that makes its
    calls itself.

    A foreign library has no solvers.
    """
    wanted = ALL if hasattr(getattr(handle, "backend", None), "solvers") else PREFERRED
    by_solvers(handle, [operation], lambda _: run(), wanted)


@contextmanager
def threads_ordered(handle: Any, case: str) -> Iterator[None]:
    """Run the emulated device's threads forward, backward or shuffled in this scope, in an order chosen by the case.

    One of the orders exposes a missing barrier. DUALDNN_EMULATION_SEED takes precedence.
    """
    device = getattr(getattr(handle, "backend", None), "device", None)
    if device is None or device.kind != "emulated" or "DUALDNN_EMULATION_SEED" in os.environ:
        yield
        return
    had, device.seed = device.seed, crc32(case.encode()) % ORDERS
    try:
        yield
    finally:
        device.seed = had


@contextmanager
def races_reported(handle: Any) -> Iterator[None]:
    """Report races of the emulated device's threads in this scope; other devices have no reports."""
    backend: Any = getattr(handle, "backend", None)
    device = getattr(backend, "device", None)
    if device is None or device.kind != "emulated":
        yield
        return
    kept = dict(backend.plans)
    backend.plans.clear()
    handle.answers.clear()
    try:
        with device.reporting_races():
            yield
    finally:
        handle.answers.clear()
        backend.plans.clear()
        backend.plans.update(kept)


@contextmanager
def divided_among(handle: Any, multiprocessors: int) -> Iterator[None]:
    """Plan in this scope for a device with this number of SMs, at most a real GPU's."""
    device = getattr(getattr(handle, "backend", None), "device", None)
    if device is None:
        yield
        return
    if device.kind == "gpu":
        multiprocessors = min(multiprocessors, device.multiprocessors)
    plans, (had, kept) = handle.backend.plans, (device.multiprocessors, dict(handle.backend.plans))
    try:
        plans.clear()
        handle.answers.clear()
        device.multiprocessors = multiprocessors
        yield
    finally:
        device.multiprocessors = had
        handle.answers.clear()
        plans.clear()
        plans.update(kept)


def with_workspace(handle: Any, steps: Sequence[Step]) -> list[Step]:
    """Return the steps, with larger workspaces if the forced solvers need more."""
    sized = []
    for step in steps:
        operation: Any = step.operation
        if "workspace_bytes" in operation.raw.values():
            needed = handle.backend.workspace_bytes(operation)
            if needed > operation.workspace_bytes:
                operation = replace(operation, workspace_bytes=needed)
        sized.append(replace(step, operation=operation))
    return sized


def write_kernels(results: Iterable[Mapping[str, Any]], directory: Path) -> dict[str, list[str]]:
    """Write which cases launched which kernel, by which solver, from which module, and their times.

    Return kernel -> case ids.
    """
    tables: dict[str, dict[str, set[str]]] = {"kernels": {}, "solvers": {}, "modules": {}}
    seconds: dict[str, float] = {}
    for result in results:
        for kind, names in result.get("used", {}).items():
            for name in names:
                tables[kind].setdefault(name, set()).add(result["id"])
                seconds[result["id"]] = round(result["seconds"], 3)
    return _write_tables(tables, seconds, directory)


def merged_kernels(read: Iterable[Mapping[str, Any]], directory: Path) -> dict[str, list[str]]:
    """Merge the kernels.json of several runs and write it. Return kernel -> case ids."""
    tables: dict[str, dict[str, set[str]]] = {}
    seconds: dict[str, float] = {}
    for document in read:
        seconds |= document["seconds"]
        for kind, table in document.items():
            for name, ids in table.items() if kind != "seconds" else ():
                tables.setdefault(kind, {}).setdefault(name, set()).update(ids)
    return _write_tables(tables, seconds, directory)


def _write_tables(
    tables: Mapping[str, Mapping[str, set[str]]], seconds: Mapping[str, float], directory: Path
) -> dict[str, list[str]]:
    found = {kind: {name: sorted(ids) for name, ids in sorted(table.items())} for kind, table in tables.items()}
    kernels = found.get("kernels", {})
    if kernels:
        write(directory / KERNELS_FILE, json.dumps({**found, "seconds": seconds}, indent=1).encode())
    return kernels


def covering(table: Mapping[str, Any]) -> list[str]:
    """Return ids of quick cases that together launch every kernel of a kernels.json."""
    left = {kernel: set(ids) for kernel, ids in table["kernels"].items()}
    chosen: list[str] = []
    while left:
        gain: dict[str, int] = {}
        for ids in left.values():
            for case in ids:
                gain[case] = gain.get(case, 0) + 1
        best = max(sorted(gain), key=lambda case: gain[case] / (0.05 + table["seconds"][case]))
        chosen.append(best)
        left = {kernel: ids for kernel, ids in left.items() if best not in ids}
    return chosen


def excused() -> dict[str, str]:
    """Return the kernels that no case launches on the emulated device, with the reasons."""
    table: dict[str, str] = json.loads(resources.files(__package__).joinpath(NOT_LAUNCHED).read_text(encoding="utf-8"))
    return table


def without_a_launch(launched: Mapping[str, Any], subjects: Iterable[str]) -> list[str]:
    """Return our kernels that no case launched without an excuse, and excused kernels that were launched.

    Return nothing if no subject has kernels.
    """
    if not any(name.startswith("accelerated") for name in subjects):
        return []
    names = entry_points()
    return sorted(names - set(launched) - set(excused())) + sorted(set(excused()) & set(launched))
