"""Reductions in segments whose many partial results a second launch merges (reduce_tensor/any.cu)."""

from __future__ import annotations

from .any import AnyTensor
from .division import BLOCK
from .problem import ReduceProblem

MAX_PARTIALS = 32 * BLOCK  # partial results that one block merges before another launch would have


class TwoPass(AnyTensor):
    """Long reductions to so many elements of C that the last block to arrive would merge longer than a launch takes."""

    name = "reduce_tensor.two_pass"
    counted = False

    def serves(self, problem: ReduceProblem) -> bool:
        return problem.division.segments > 1

    def applies(self, problem: ReduceProblem) -> bool:
        division = problem.division
        items = 1 if division.rows else BLOCK // division.lanes * problem.width  # elements of C of a block
        return self.serves(problem) and division.segments * items > MAX_PARTIALS
