"""Defines solvers, each of which implements the operations of a family with certain kernels, and selects among them.

A family's ``plan.py`` registers an ordered tuple of solvers for its operations, and the problem class that they read.
The first solver that applies serves. ``forcing`` and the environment variable DUALDNN_SOLVER name solvers that take
precedence, separated by commas: ``DUALDNN_SOLVER=pooling.max_backward``. A named solver that cannot serve a call is
skipped.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, Self, TypeVar

from dualdnn.api.operations import Operation, Unsupported, replay
from dualdnn.api.operations.backend import RUN

from .plans import SOLVER_FAMILIES, AlignedPlan, Launch, Plan
from .reproducible import Order, canonical_operation, level_of, unbuilt, undeclared, unreached
from .runtime import fallbacks
from .runtime.compiler import build_together, is_built, module
from .runtime.device import is_only_built, only_built
from .runtime.errors import NotBuilt
from .runtime.listing import Listing, Module
from .substitutes import MeanwhilePlan

LAUNCH_SECONDS = 2e-6  # time of an empty kernel in a stream, latency included
BYTES_PER_SECOND = 3.5e12  # bandwidth of memory-bound kernels, measured on an H200


class Problem:
    """Hold the operation and the device of a call, and properties that several solvers of a family derive from them.

    aligned: whether solvers may assume that every operand is 16-byte-aligned and shares no memory with another one. It
    is False for the problem of a fallback plan.
    """

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        self.operation, self.device, self.aligned = operation, device, aligned

    @property
    def moved_bytes(self) -> int:
        """Return the bytes of all operands, each counted once, which give the roofline bound."""
        return sum(self.operation.nbytes(name) for name in self.operation.operands)

    @cached_property
    def canonical(self) -> Self:
        """Return the problem by whose size sums are divided: itself at level RUN, else the canonical call's."""
        if level_of(self.device) == RUN:
            return self
        operation = canonical_operation(self.operation)
        return self if self.aligned and operation == self.operation else self.alike(operation)

    def order_by(self, solver: Solver[Any]) -> Order | None:
        """Return the order of a solver that says nothing else; problems whose sums pass over the batch have another."""
        return solver.fixed_order

    def alike(self, operation: Any) -> Self:
        """Return the problem of another operation on the same device, with aligned operands."""
        return type(self)(operation, self.device)


P = TypeVar("P", bound=Problem)


class Solver(Generic[P]):
    """Serve the calls of a family with certain kernels.

    name: ``<family>.<file stem>``, with the folder where the stem needs it; it is unique in the project.
    fixed_order: the order of sums where it is the same for every problem; None where it is not, or not declared.
    asks_device: whether the division of sums depends on more of the device than the SMs that planners see.
    """

    name = ""
    fixed_order: Order | None = None
    asks_device = False

    def serves(self, problem: P) -> bool:
        """Return whether the launches of this solver compute the problem correctly, however slowly; True by default."""
        return True

    def applies(self, problem: P) -> bool:
        """Return whether this solver serves the problem and is expected to be faster than the solvers after it."""
        return self.serves(problem)

    def workspace_bytes(self, problem: P) -> int:
        """Return the bytes of the caller's workspace that the launches need."""
        return 0

    def estimated_seconds(self, problem: P) -> float:
        """Return the estimated seconds of the launches; by default the time of the memory traffic."""
        return LAUNCH_SECONDS + problem.moved_bytes / BYTES_PER_SECOND

    def summation_order(self, problem: P) -> Order | None:
        """Return in which order the launches add; None where the solver declares none, and serves at level RUN alone.

        Solvers of one family that return equal orders give equal bits. Above level RUN the order may not depend on the
        batch: a planner that divides sums reads sizes from ``problem.canonical``.
        """
        return problem.order_by(self)

    def launches(self, problem: P) -> Sequence[Launch]:
        """Return the kernel launches, in order."""
        raise TypeError(f"{type(self).__name__} does not define launches()")

    def plan(self, problem: P) -> Plan:
        """Return the plan of the launches."""
        return Plan(problem.operation, self.launches(problem), self.name)

    def alignment(self, problem: P) -> Mapping[str, int]:
        """Return the required address alignment in bytes, by operand name.

        Other addresses are served by a fallback: the first solver that applies to the problem with ``aligned`` False.
        """
        return {}

    def apart(self, problem: P) -> Sequence[tuple[str, str]]:
        """Return the pairs of operands that the document allows to be the same memory, but these launches do not.

        The fallback serves such calls, too.
        """
        return ()


@dataclass(frozen=True)
class SolverFamily(Generic[P]):
    """Hold the problem class of some operations and their solvers in order of preference."""

    problem: Callable[..., P]
    solvers: tuple[Solver[P], ...]

    def solver(self, problem: P, only: str | None = None) -> Solver[P]:
        """Return the solver that serves a problem. only: the name of a required solver.

        Raises ValueError where the required solver is unknown or cannot serve the problem, or where no solver applies.
        """
        order = self.order(problem)
        if only is not None:
            found = next((solver for solver in self.solvers if solver.name == only), None)
            if found is None or not found.serves(problem) or not adds_in(order, found, problem):
                known = ", ".join(solver.name for solver in self.solvers)
                reason = f"is not one of {known}" if found is None else "does not serve the problem"
                raise ValueError(f"the solver {only} {reason}: {problem.operation}")
            return found
        if forced := forced_solvers():
            found = next((s for s in self.serving(problem, order) if s.name in forced), None)
            if found is not None:
                return found
        return self._preferred(problem, order)

    def preferred(self, problem: P) -> Solver[P]:
        """Return the solver that serves a problem where none is forced."""
        return self._preferred(problem, self.order(problem))

    def _preferred(self, problem: P, order: Order | None) -> Solver[P]:
        for solver in self.solvers:
            if holds(solver.applies, problem) and adds_in(order, solver, problem):
                return solver
        if order is None:
            raise ValueError(f"no solver applies to {problem.operation}")
        if found := self.serving(problem, order):
            return found[0]
        raise unreached(problem.operation, level_of(problem.device), order)

    def serving(self, problem: P, order: Order | None) -> list[Solver[P]]:
        """Return the solvers that serve a problem and add in an order, or in any where it is None."""
        return [s for s in self.solvers if holds(s.serves, problem) and adds_in(order, s, problem)]

    def order(self, problem: P) -> Order | None:
        """Return the order of sums that the level of the device asks for, which is None at level RUN.

        The first solver that applies to the canonical problem and declares an order gives it. Raises Unsupported where
        no solver declares one.
        """
        if level_of(problem.device) == RUN:
            return None
        canonical = problem.canonical
        for applies in (True, False):
            for solver in self.solvers:
                if holds(solver.applies if applies else solver.serves, canonical):
                    order = solver.summation_order(canonical)
                    if order is not None:
                        return order
        raise undeclared(problem.operation, level_of(problem.device))

    def plan(self, problem: P, only: str | None = None) -> Plan:
        """Return the plan of the solver that serves.

        Return another solver's plan where modules are missing. A required or forced solver is replaced only where its
        modules cannot be compiled here.
        """
        chosen = self.solver(problem, only)
        waits = (only is not None or chosen.name in forced_solvers()) and not problem.device.obstacle()
        try:
            with contextlib.nullcontext() if waits else only_built():
                return self._plan_by(chosen, problem)
        except NotBuilt as missing:
            if is_only_built() and not problem.device.obstacle():
                raise  # The plan of the enclosing operation handles it.
            return self._plan_of_missing(chosen, problem, missing)

    def _plan_of_missing(self, chosen: Solver[P], problem: P, missing: NotBuilt) -> Plan:
        """Return a plan although a module of the chosen solver is not compiled.

        It is the plan of another solver whose modules exist: permanently without a compiler, else until the chosen
        modules are compiled. Where no such solver exists, or calls wait for kernels, compile all chosen modules first.
        """
        device = problem.device
        if obstacle := device.obstacle():
            missing = NotBuilt(f"{missing}: {obstacle}")
            other = self._first_built(problem, self._others(chosen, problem), missing)[0]
            fallbacks.note(chosen.name, other.solver, str(missing))
            return other
        if not device.waits_for_kernels:
            room = chosen.workspace_bytes(problem)
            others = (found for found in self._others(chosen, problem) if found[0].workspace_bytes(found[1]) <= room)
            made = None
            with contextlib.suppress(NotBuilt):
                made = self._first_built(problem, others, missing)[0]
            if made:
                tasks = [device.compile_in_background(module) for module in self._modules(chosen, problem)]
                return MeanwhilePlan(made, lambda: self._plan_by(self.solver(problem), problem), tasks, chosen.name)
        build_together(self._modules(chosen, problem), device)
        return self._plan_by(chosen, problem)

    def _modules(self, chosen: Solver[P], problem: P) -> list[Module]:
        """Return the modules of a solver's plan that are not compiled."""
        listing = Listing(problem.device)
        self._plan_by(chosen, self.problem(problem.operation, listing, aligned=problem.aligned))
        return [each for each in listing.modules if not is_built(module(*each), problem.device.architecture)]

    def _others(self, chosen: Solver[P], problem: P) -> Iterator[tuple[Solver[P], P]]:
        """Yield the solvers that may replace a solver, each with its problem.

        Solvers for aligned operands come first, then solvers for unaligned operands, which need the fewest modules.
        Within each group, solvers that apply come before solvers that only serve, and of these the fastest is first.
        """
        unaligned = self._unaligned(problem)
        for known in (problem, unaligned) if problem.aligned else (problem,):
            others = [solver for solver in self._taking(known) if solver is not chosen or known is unaligned]
            seconds = {each: 0.0 if holds(each.applies, known) else each.estimated_seconds(known) for each in others}
            yield from ((other, known) for other in sorted(others, key=seconds.__getitem__))

    def _first_built(
        self, problem: P, candidates: Iterable[tuple[Solver[P], P]], missing: NotBuilt | None = None
    ) -> tuple[Plan, int]:
        """Return the first plan whose modules are compiled, and its workspace in bytes.

        Raises NotBuilt, with the module that was missing first, where there is no such plan, or Unsupported above level
        RUN.
        """
        for solver, known in candidates:
            try:
                with only_built():
                    return self._plan_by(solver, known), solver.workspace_bytes(known)
            except NotBuilt as error:
                missing = missing or error
        missing = NotBuilt(f"{missing}, and every other solver needs a module that is missing, too")
        level = level_of(problem.device)
        raise missing if level == RUN or is_only_built() else unbuilt(level, missing)

    def _unaligned(self, problem: P) -> P:
        return self.problem(problem.operation, problem.device, aligned=False)

    def _taking(self, problem: P) -> list[Solver[P]]:
        """Return the solvers that serve a problem, without those that need alignment if the problem is unaligned."""
        serving = self.serving(problem, self.order(problem))
        if problem.aligned:
            return serving
        return [solver for solver in serving if not (solver.alignment(problem) or solver.apart(problem))]

    def generic_plan(self, operation: Operation, device: Any) -> Plan:
        """Return the plan of the last solver for unaligned operands, the final fallback of an operation."""
        problem = self.problem(operation, device, aligned=False)
        return self._plan_by(self._taking(problem)[-1], problem)

    def _plan_by(self, chosen: Solver[P], problem: P) -> Plan:
        """Return the plan of a solver, with a fallback where it needs alignment. Raises TypeError if unaligned."""
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
        """Return the workspace in bytes that suffices for any factors and addresses of the operands.

        A query states neither, and both may change which solver serves. Where nothing can be compiled, solvers whose
        modules are compiled serve.
        """
        needed = self.enough(self.problem(operation, device))
        for other in _with_another_beta(operation):
            with contextlib.suppress(Unsupported, NotBuilt):  # Its level refuses it, or its kernels cannot be had.
                needed = max(needed, self.enough(self.problem(other, device)))
        return needed

    def enough(self, problem: P, only: str | None = None) -> int:
        """Return the workspace in bytes of the plan of a problem, including its fallback for unaligned operands."""
        if problem.device.obstacle():
            needed = self._workspace_of_built(problem, only)
            with contextlib.suppress(Unsupported, NotBuilt):  # Operands that are not aligned are refused when called.
                needed = max(needed, self._workspace_of_built(self._unaligned(problem)))
            return needed
        chosen = self.solver(problem, only)
        needed = chosen.workspace_bytes(problem)
        if problem.aligned and (chosen.alignment(problem) or chosen.apart(problem)):
            with contextlib.suppress(Unsupported):
                needed = max(needed, self.enough(self._unaligned(problem)))
        return needed

    def _workspace_of_built(self, problem: P, only: str | None = None) -> int:
        chosen = self.solver(problem, only)
        return self._first_built(problem, itertools.chain([(chosen, problem)], self._others(chosen, problem)))[1]

    def estimated_seconds(self, operation: Operation, device: Any) -> float:
        """Return the estimated seconds of an operation by the solver that serves it."""
        problem = self.problem(operation, device)
        return self.solver(problem).estimated_seconds(problem)


def serve(
    problem: Callable[..., P], solvers: Sequence[Solver[P]], *operation_types: type[Operation]
) -> SolverFamily[P]:
    """Register the solvers of some operations in order of preference. The last one must apply to every problem."""
    family = SolverFamily(problem, tuple(solvers))
    SOLVER_FAMILIES.update(dict.fromkeys(operation_types, family))
    return family


def _with_another_beta(operation: Any) -> list[Any]:
    """Return the operation with beta 0 in place of another beta, or 1 in place of 0; nothing without a beta."""
    return [replace(operation, beta=0.0 if operation.beta else 1.0)] if hasattr(operation, "beta") else []


def seconds_otherwise(solver: Solver[P], problem: P) -> float:
    """Return the estimated seconds of the next solver that applies after this one."""
    solvers = SOLVER_FAMILIES[type(problem.operation)].solvers
    other = next(each for each in solvers[solvers.index(solver) + 1 :] if each.applies(problem))
    return other.estimated_seconds(problem)


def adds_in(order: Order | None, solver: Solver[P], problem: P) -> bool:
    """Return whether a solver adds in an order; None stands for any."""
    return order is None or solver.summation_order(problem) == order


def holds(asked: Callable[[P], bool], problem: P) -> bool:
    """Return a solver's answer about a problem.

    If the answer depends on a kernel that is not compiled: False where it cannot be compiled, True where another kernel
    serves meanwhile. Else compile it first.
    """
    try:
        with only_built():
            return asked(problem)
    except NotBuilt:
        device = problem.device
        if device.obstacle():
            return False
        return asked(problem) if device.waits_for_kernels and not is_only_built() else True


def plan_by(operation: Operation, device: Any, only: str) -> Plan:
    """Return the plan that the solver with a name makes of an operation.

    Raises ValueError where it cannot serve the operation. Where its modules are unavailable, ``plan.solver`` names the
    solver that serves.
    """
    family = SOLVER_FAMILIES[type(operation)]
    return family.plan(family.problem(operation, device), only)


def possible_solvers(operation: Operation, device: Any) -> tuple[str, ...]:
    """Return the names of the solvers that can serve an operation, in order of preference."""
    family = SOLVER_FAMILIES.get(type(operation))
    if family is None:
        return ()
    problem = family.problem(operation, device)
    try:
        return tuple(solver.name for solver in family.serving(problem, family.order(problem)))
    except Unsupported:
        return ()


def summation_order(operation: Operation, device: Any) -> Order | None:
    """Return in which order the level of a device adds for an operation; None at level RUN."""
    family = SOLVER_FAMILIES[type(operation)]
    order: Order | None = family.order(family.problem(operation, device))
    return order


def solver_names() -> tuple[str, ...]:
    """Return the names of all solvers."""
    return tuple(dict.fromkeys(solver.name for family in SOLVER_FAMILIES.values() for solver in family.solvers))


_FORCED: ContextVar[frozenset[str]] = ContextVar("forced solvers", default=frozenset())


def forced_solvers() -> frozenset[str]:
    """Return the names of the solvers that ``forcing`` and DUALDNN_SOLVER force.

    Raises ValueError where DUALDNN_SOLVER names an unknown solver.
    """
    wanted = os.environ.get("DUALDNN_SOLVER", "")
    named = frozenset(filter(None, (name.strip() for name in wanted.split(","))))
    if not named:  # Every plan calls this, and collecting all names is slow.
        return _FORCED.get()
    if unknown := named - set(solver_names()):
        raise ValueError(f"DUALDNN_SOLVER names {', '.join(sorted(unknown))}; there are {', '.join(solver_names())}")
    return named | _FORCED.get()


def is_forcing() -> bool:
    """Return whether the caller is inside a block of ``forcing``, where cached plans are not used."""
    return bool(_FORCED.get())


@contextmanager
def forcing(*names: str) -> Iterator[None]:
    """Force the solvers with these names, wherever they can serve, for plans made within the block."""
    if unknown := set(names) - set(solver_names()):
        raise ValueError(f"there is no solver {', '.join(sorted(unknown))}; there are {', '.join(solver_names())}")
    token = _FORCED.set(_FORCED.get() | frozenset(names))
    try:
        with replay.suspended():
            yield
    finally:
        _FORCED.reset(token)
