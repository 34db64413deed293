"""Provides the shared base of LRN solvers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualdnn.api.operations.specs import DOUBLE

from ..plans import Launch, pointers, structure, type_definitions
from ..solver import Solver
from .problem import LRNProblem


class LRNSolver(Solver[LRNProblem]):
    """Build the launch of an LRN kernel. Only the plan for unaligned operands allows x to be y."""

    source = ""

    def apart(self, problem: LRNProblem) -> tuple[tuple[str, str], ...]:
        return (("x", "y"),) if problem.may_be_in_place and problem.aligned else ()

    def _launch(
        self, problem: LRNProblem, variant: str, definitions: Mapping[str, int], fields: list[Any],
        grid: Any, threads: int
    ) -> Launch:  # fmt: skip
        direction = "forward" if problem.forward else "backward"
        beta = problem.operation.lrn.narrowed(problem.x.data_type)[1]
        three_quarters = beta == 0.75 and problem.operation.compute_type != DOUBLE
        named = {name: str(value) for name, value in definitions.items()} | {"THREE_QUARTERS": str(int(three_quarters))}
        defined = type_definitions(
            problem.x.data_type, problem.operation, WINDOW=str(problem.window), THREADS=str(threads), **named
        )
        function = problem.device.function(self.source, f"{self.name.replace('.', '_')}_{direction}{variant}", defined)
        arguments = structure(
            *pointers(len(problem.operands)), *problem.gradient(), ("rest", structure(*problem.scalars(), *fields))
        )
        return Launch(function, arguments, problem.operands, grid, (threads, 1, 1))
