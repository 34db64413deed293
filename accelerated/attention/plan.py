"""Multi-head attention: the problem and its solvers."""

from __future__ import annotations

from dualdnn.api.operations import MultiHeadAttnForward, MultiHeadAttnStep

from ..plans import Launch
from ..solver import Solver, serve
from .collect import collect
from .online import core
from .problem import AttentionProblem
from .product import output_projection, projections
from .schedule import schedule


class ForwardSolver(Solver[AttentionProblem]):
    """Any attention forward: projections, the core with an online softmax, the output projection."""

    name = "attention.online"

    def serves(self, problem: AttentionProblem) -> bool:
        return True

    def launches(self, problem: AttentionProblem) -> list[Launch]:
        attn = problem.attn
        found = [*schedule(problem), *projections(problem), core(problem)]
        if attn.o_projected:
            return [*found, output_projection(problem)]
        source = problem.space, problem.regions.offsets["heads"]
        rows = problem.rows["queries"]
        return [*found, collect(problem, source, "out", 1, attn.output_size, rows, "residuals")]


serve(AttentionProblem, (ForwardSolver(),), MultiHeadAttnForward, MultiHeadAttnStep)
