"""Runs another solver's plan while the modules of the preferred solver are being compiled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from .plans import Plan
from .records import Record, Where
from .runtime import fallbacks
from .runtime.background import Task
from .runtime.errors import DeviceError, DeviceUnavailable


class MeanwhilePlan(Plan):
    """Run the plan of another solver, whose modules exist, until those of the preferred solver are compiled.

    other: the temporary plan. prefer: a function that makes the preferred plan. tasks: the compilations it needs.
    """

    def __init__(self, other: Plan, prefer: Callable[[], Plan], tasks: Sequence[Task], preferred_solver: str) -> None:
        self.solver, self.scratch_bytes = other.solver, 0
        self.other, self.prefer, self.tasks, self.preferred_solver = other, prefer, tasks, preferred_solver
        self.settled = False  # whether the current plan is final
        self.steps = self._waiting()
        fallbacks.note(preferred_solver, other.solver, "its modules are being compiled", logging.INFO)

    def _waiting(self) -> list[Any]:
        """Return the plan itself as its only step, so that callers of wait_for_kernel() reach it."""
        return [(self, ())]

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        self._settle()
        self.other.record(record, operands)
        record.final &= self.settled

    def _settle(self) -> None:
        """Switch to the preferred plan once its modules are compiled; keep the other plan if they cannot be."""
        if self.settled or any(task.is_alive() for task in self.tasks):
            return
        meanwhile = self.solver
        failed = next((task.error for task in self.tasks if task.error), None)
        try:
            if failed is not None:
                raise failed
            self.other = self.prefer()
            self.solver = self.other.solver
            fallbacks.forget(self.preferred_solver, meanwhile)
        except (DeviceUnavailable, DeviceError) as error:
            fallbacks.note(self.preferred_solver, meanwhile, f"its modules cannot be had: {error}")
        self.settled = True

    def wait_for_kernel(self) -> None:
        """Wait until the preferred plan serves, or the other one permanently."""
        for task in self.tasks:
            task.join()
        self._settle()
        for launch, _ in self.other.steps:
            launch.wait_for_kernel()

    def with_scalars(self, values: Mapping[str, float]) -> Any:
        self._settle()
        if self.settled:
            return self.other.with_scalars(values)
        made = copy(self)
        made.other = self.other.with_scalars(values)
        made.prefer = lambda: self.prefer().with_scalars(values)
        made.steps = made._waiting()
        return made
