"""Compile and load the kernels of operations, or of an API log's calls, before the first call."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from dualdnn.accelerated.plans import plan
from dualdnn.accelerated.reproducible import at_level
from dualdnn.accelerated.runtime.compiler import build_together, is_built, module
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.accelerated.runtime.listing import Listing, Module
from dualdnn.api.handle import level_named
from dualdnn.api.operations import Operation, Unsupported, parse
from dualdnn.api.operations.backend import BATCH, DEVICE

from ..replay.api_logs import Reader, read_log
from .build_ahead import of_few_steps, with_workspace


def warm_up(what: str | Path | Iterable[Operation | str], device: str = "gpu", index: int = 0) -> int:
    """Compile the kernels of operations in parallel, and load them into a device.

    what: the path of an API log (of cuDNN 8 or of this project), or operations or their texts. Returns the number of
    compiled modules. Where nothing can be compiled, existing modules are loaded. Raises ValueError for a log without a
    call that computes, or for an invalid text; DeviceUnavailable without the device. DUALDNN_REPRODUCIBLE names the level.
    """
    opened = at_level(open_device(device, index), level_named(None))
    operations = [*_with_room(_operations(what), opened)]
    missing = [] if opened.obstacle() else [m for m in modules_of(operations, opened) if not _is_there(m, opened)]
    build_together(missing, opened)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(lambda operation: plan(operation, opened), operations):
            pass
    return len(missing)


def _with_room(operations: Iterable[Operation], device: Any) -> Iterator[Operation]:
    """Yield operations with their workspaces, without those that the level of the device refuses."""
    for operation in operations:
        with contextlib.suppress(Unsupported):
            made = with_room(operation, device)
            plan(made, Listing(device))
            yield made


def modules_of(operations: Iterable[Operation], device: Any) -> list[Module]:
    """Return the modules of the plans of operations."""
    listing = Listing(device)
    for operation in operations:
        plan(operation, listing)
    return list(listing.modules)


def modules_at_levels(operations: Iterable[Operation], device: Any) -> list[Module]:
    """Return the modules of the plans of operations at each level of reproducibility that does not refuse them."""
    listing = Listing(device)
    levels = (at_level(listing, level) for level in (BATCH, DEVICE))
    distinct = {
        seen.multiprocessors: seen for seen in levels
    }  # Levels with equal numbers of multiprocessors have equal plans.
    for operation, seen in product(operations, distinct.values()):
        with contextlib.suppress(Unsupported):
            plan(with_room(operation, seen), seen)
    return list(listing.modules)


def with_room(operation: Any, device: Any) -> Any:
    """Return an operation with the workspace that its plan needs, and with few steps if it launches step by step."""
    return of_few_steps(with_workspace(operation, device), device)


def operations_of_log(path: Path) -> list[Operation]:
    """Return the distinct operations of an API log. Calls that the log cuts off are left out."""
    with open(path, encoding="utf-8", errors="replace") as lines:
        calls = read_log(lines).calls
    found = dict.fromkeys(_computed(calls))
    if not found:
        raise ValueError(f"{path}: it has no computing call of an API log")
    return list(found)


def _computed(calls: Iterable[Any]) -> Iterator[Operation]:
    read = Reader()
    for call in calls:
        with contextlib.suppress(Exception):  # A log can contain anything.
            if (asked := read(call)) is not None:
                yield asked.operation


def _operations(what: str | Path | Iterable[Operation | str]) -> list[Operation]:
    if isinstance(what, str | Path):
        return operations_of_log(Path(what))
    return [parse(each) if isinstance(each, str) else each for each in what]


def _is_there(wanted: Module, device: Any) -> bool:
    return is_built(module(*wanted), device.architecture)
