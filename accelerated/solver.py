"""Solvers: each is one way to serve the calls of a room, all under one protocol.

A room's ``plan.py`` registers, for its operations, an ordered tuple of solvers and the class of the problem that they
read. The first solver that applies serves. ``forcing`` and the environment variable DUALDNN_SOLVER name solvers that go
before the order: ``DUALDNN_SOLVER=pooling.max_backward``, or several with commas between them; a named solver that
cannot serve a call is passed over.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dualdnn.api.operations import Operation, replay

from .plans import ROOMS, AlignedPlan, Launch, Plan
from .runtime import fallbacks
from .runtime.compiler import build_together, is_built, module
from .runtime.device import is_only_built, only_built
from .runtime.errors import NotBuilt
from .runtime.listing import Listing, Module
from .substitutes import MeanwhilePlan

LAUNCH_SECONDS = 2e-6  # a kernel in a stream that does nothing, with its latency
BYTES_PER_SECOND = 3.5e12  # what memory-bound kernels reach on an H200


class Problem:
    """One call as the solvers of a room read it: the operation, the device, and what several solvers derive from them.

    aligned: whether every operand begins at a multiple of 16 bytes and has memory of its own; the problem of a fallback
    plan is not, whichever of the two its operands fail.
    """

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        self.operation, self.device, self.aligned = operation, device, aligned

    @property
    def moved_bytes(self) -> int:
        """Bytes that the call must read and write at least once, from which its roofline bound follows."""
        return sum(self.operation.nbytes(name) for name in self.operation.operands)


P = TypeVar("P", bound=Problem)


class Solver(Generic[P]):
    """One way to serve a call. ``name`` is ``<room>.<its files, and their folder where they name it>``, unique in the
    house."""

    name = ""

    def serves(self, problem: P) -> bool:
        """Return whether the launches of this solver would be right for the problem, however slow: every problem of
        its room, where a solver says nothing else."""
        return True

    def applies(self, problem: P) -> bool:
        """Return whether this solver serves the problem and is expected to do it faster than those after it."""
        return self.serves(problem)

    def workspace_bytes(self, problem: P) -> int:
        """Return the bytes of the caller's workspace that the launches use."""
        return 0

    def estimated_seconds(self, problem: P) -> float:
        """Return about how many seconds the launches take; memory traffic at the measured bandwidth unless a solver
        knows better."""
        return LAUNCH_SECONDS + problem.moved_bytes / BYTES_PER_SECOND

    def launches(self, problem: P) -> Sequence[Launch]:
        """Return the kernel launches, in order."""
        raise TypeError(f"{type(self).__name__} does not define launches()")

    def plan(self, problem: P) -> Plan:
        """Return the plan of the launches."""
        return Plan(problem.operation, self.launches(problem), self.name)

    def alignment(self, problem: P) -> Mapping[str, int]:
        """Return, by operand, the bytes at a multiple of which it must begin; elsewhere a fallback serves (the first
        solver that applies to the problem with ``aligned`` False)."""
        return {}

    def apart(self, problem: P) -> Sequence[tuple[str, str]]:
        """Return the pairs of operands that may be the same memory by the document, but not for these launches: there
        the fallback serves, too."""
        return ()


@dataclass(frozen=True)
class Room(Generic[P]):
    """What serves some operations: the class of their problem and the solvers in order of preference."""

    problem: Callable[..., P]
    solvers: tuple[Solver[P], ...]

    def solver(self, problem: P, only: str | None = None) -> Solver[P]:
        """Return the solver that serves. only: the name of the one that must."""
        if only is not None:
            found = next((solver for solver in self.solvers if solver.name == only), None)
            if found is None or not found.serves(problem):
                known = ", ".join(solver.name for solver in self.solvers)
                reason = f"is none of {known}" if found is None else "does not serve the problem"
                raise ValueError(f"the solver {only} {reason}: {problem.operation}")
            return found
        if forced := forced_solvers():
            found = next((s for s in self.solvers if s.name in forced and holds(s.serves, problem)), None)
            if found is not None:
                return found
        for solver in self.solvers:
            if holds(solver.applies, problem):
                return solver
        raise ValueError(f"no solver applies to {problem.operation}")

    def plan(self, problem: P, only: str | None = None) -> Plan:
        """Return the plan of the solver that serves; of another one where its modules are not there and, of a solver
        that must serve, cannot be had."""
        chosen = self.solver(problem, only)
        waits = (only is not None or chosen.name in forced_solvers()) and not problem.device.obstacle()
        try:
            with contextlib.nullcontext() if waits else only_built():
                return self._plan_by(chosen, problem)
        except NotBuilt as missing:
            if is_only_built() and not problem.device.obstacle():
                raise  # the room of an outer operation sees to it
            return self._plan_of_missing(chosen, problem, missing)

    def _plan_of_missing(self, chosen: Solver[P], problem: P, missing: NotBuilt) -> Plan:
        """Return a plan where a module of the chosen solver has to be compiled first: one of another solver whose
        modules are there, meanwhile or, without a compiler, for good. Where there is none, or calls wait for kernels,
        all modules of the chosen one are compiled together."""
        device = problem.device
        if obstacle := device.obstacle():
            missing = NotBuilt(f"{missing}: {obstacle}")
            other = self._first_built(self._others(chosen, problem), missing)[0]
            fallbacks.note(chosen.name, other.solver, str(missing))
            return other
        if not device.waits_for_kernels:
            room = chosen.workspace_bytes(problem)
            others = (found for found in self._others(chosen, problem) if found[0].workspace_bytes(found[1]) <= room)
            made = None
            with contextlib.suppress(NotBuilt):
                made = self._first_built(others, missing)[0]
            if made:
                tasks = [device.compile_in_background(module) for module in self._modules(chosen, problem)]
                return MeanwhilePlan(made, lambda: self._plan_by(self.solver(problem), problem), tasks, chosen.name)
        build_together(self._modules(chosen, problem), device)
        return self._plan_by(chosen, problem)

    def _modules(self, chosen: Solver[P], problem: P) -> list[Module]:
        """Return the modules of a solver's plan that are not there."""
        listing = Listing(problem.device)
        self._plan_by(chosen, self.problem(problem.operation, listing, aligned=problem.aligned))
        return [each for each in listing.modules if not is_built(module(*each), problem.device.architecture)]

    def _others(self, chosen: Solver[P], problem: P) -> Iterator[tuple[Solver[P], P]]:
        """Yield what may serve instead of a solver, and which problem it gets. Those that apply come before those that
        only serve, and all for aligned operands before all for operands that are not: their modules are the fewest."""
        unaligned = self._unaligned(problem)
        for known in (problem, unaligned) if problem.aligned else (problem,):
            others = [solver for solver in self._taking(known) if solver is not chosen or known is unaligned]
            yield from ((other, known) for other in sorted(others, key=lambda other: not holds(other.applies, known)))

    def _first_built(
        self, candidates: Iterable[tuple[Solver[P], P]], missing: NotBuilt | None = None
    ) -> tuple[Plan, int]:
        """Return the first plan whose modules are there, and the bytes of workspace that it uses. Raises NotBuilt where
        there is none, with what was missing first."""
        for solver, known in candidates:
            try:
                with only_built():
                    return self._plan_by(solver, known), solver.workspace_bytes(known)
            except NotBuilt as error:
                missing = missing or error
        raise NotBuilt(f"{missing}, and every other solver needs a module that is missing, too")

    def _unaligned(self, problem: P) -> P:
        return self.problem(problem.operation, problem.device, aligned=False)

    def _taking(self, problem: P) -> list[Solver[P]]:
        """Return the solvers that serve a problem, but for those that need alignment where it has none."""
        serving = [solver for solver in self.solvers if holds(solver.serves, problem)]
        if problem.aligned:
            return serving
        return [solver for solver in serving if not (solver.alignment(problem) or solver.apart(problem))]

    def generic_plan(self, operation: Operation, device: Any) -> Plan:
        """Return the plan of the last solver of an operation whose operands need not be aligned: what serves where no
        other solver's modules are there."""
        problem = self.problem(operation, device, aligned=False)
        return self._plan_by(self._taking(problem)[-1], problem)

    def _plan_by(self, chosen: Solver[P], problem: P) -> Plan:
        """Return the plan of a solver, with a fallback where it needs alignment."""
        plan = chosen.plan(problem)
        alignment, apart = chosen.alignment(problem), chosen.apart(problem)
        if not alignment and not apart:
            return plan
        if not problem.aligned:
            raise TypeError(f"{chosen.name} needs alignment of operands that have none: {problem.operation}")

        def fallback() -> Plan:
            return self.plan(self.problem(problem.operation, problem.device, aligned=False))

        return AlignedPlan(problem.operation, plan, alignment, fallback, apart)

    def plan_of(self, operation: Operation, device: Any) -> Plan:
        """Return the plan of an operation."""
        return self.plan(self.problem(operation, device))

    def workspace_bytes(self, operation: Operation, device: Any) -> int:
        """Return the bytes of workspace that an operation needs: those of the solver that serves. Where nothing can be
        compiled, that is one whose modules are there, for operands that are aligned and for others."""
        problem = self.problem(operation, device)
        chosen = self.solver(problem)
        if not device.obstacle():
            return chosen.workspace_bytes(problem)
        return max(self._workspace_of_built(known) for known in (problem, self._unaligned(problem)))

    def _workspace_of_built(self, problem: P) -> int:
        chosen = self.solver(problem)
        return self._first_built(itertools.chain([(chosen, problem)], self._others(chosen, problem)))[1]

    def estimated_seconds(self, operation: Operation, device: Any) -> float:
        """Return about how many seconds the solver of an operation takes."""
        problem = self.problem(operation, device)
        return self.solver(problem).estimated_seconds(problem)


def serve(problem: Callable[..., P], solvers: Sequence[Solver[P]], *operation_types: type[Operation]) -> Room[P]:
    """Register the solvers of some operations, the preferred first. The last one applies to every problem."""
    room = Room(problem, tuple(solvers))
    ROOMS.update(dict.fromkeys(operation_types, room))
    return room


def seconds_otherwise(solver: Solver[P], problem: P) -> float:
    """Return about how many seconds the solver takes that would serve if this one did not apply."""
    solvers = ROOMS[type(problem.operation)].solvers
    other = next(each for each in solvers[solvers.index(solver) + 1 :] if each.applies(problem))
    return other.estimated_seconds(problem)


def holds(asked: Callable[[P], bool], problem: P) -> bool:
    """Return what a solver answers. Where that depends on a kernel that is not there: False if it cannot be had; True
    while others may serve meanwhile; otherwise it is compiled first."""
    try:
        with only_built():
            return asked(problem)
    except NotBuilt:
        device = problem.device
        if device.obstacle():
            return False
        return asked(problem) if device.waits_for_kernels and not is_only_built() else True


def plan_by(operation: Operation, device: Any, only: str) -> Plan:
    """Return the plan that one solver, given by its name, makes of an operation. Raises ValueError where it cannot
    serve it. Where its modules cannot be had another one serves, as the plan says."""
    room = ROOMS[type(operation)]
    return room.plan(room.problem(operation, device), only)


def possible_solvers(operation: Operation, device: Any) -> tuple[str, ...]:
    """Return the names of the solvers that can serve an operation, in the order of their room."""
    room = ROOMS.get(type(operation))
    if room is None:
        return ()
    problem = room.problem(operation, device)
    return tuple(solver.name for solver in room.solvers if holds(solver.serves, problem))


def solver_names() -> tuple[str, ...]:
    """Return the names of all solvers of the house."""
    return tuple(dict.fromkeys(solver.name for room in ROOMS.values() for solver in room.solvers))


_FORCED: ContextVar[frozenset[str]] = ContextVar("forced solvers", default=frozenset())


def forced_solvers() -> frozenset[str]:
    """Return the names that ``forcing`` or DUALDNN_SOLVER put before the order of their rooms."""
    wanted = os.environ.get("DUALDNN_SOLVER", "")
    named = frozenset(filter(None, (name.strip() for name in wanted.split(","))))
    if not named:  # every plan asks, and looking up all names is slow
        return _FORCED.get()
    if unknown := named - set(solver_names()):
        raise ValueError(f"DUALDNN_SOLVER names {', '.join(sorted(unknown))}; there are {', '.join(solver_names())}")
    return named | _FORCED.get()


def is_forcing() -> bool:
    """Return whether a scope of ``forcing`` is open, so that plans are not those of the cache."""
    return bool(_FORCED.get())


@contextmanager
def forcing(*names: str) -> Iterator[None]:
    """Plans that are made in this scope take these solvers wherever they can serve."""
    if unknown := set(names) - set(solver_names()):
        raise ValueError(f"there is no solver {', '.join(sorted(unknown))}; there are {', '.join(solver_names())}")
    token = _FORCED.set(_FORCED.get() | frozenset(names))
    try:
        with replay.suspended():
            yield
    finally:
        _FORCED.reset(token)
