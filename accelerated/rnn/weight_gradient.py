"""The gradients of the weights of recurrent networks: products over all vectors (weight_gradient.cu)."""

from __future__ import annotations

from ..plans import Launch
from ..primitives.geometry import Grid
from ..solver import Solver
from .problem import THREADS, RNNProblem, tiles

SOURCE = "rnn/weight_gradient.cu"
OPERANDS = ("x", "hx", "dweightSpace", "workSpace", "reserveSpace")


class WeightGradientSolver(Solver[RNNProblem]):
    """Every network: of each layer a product for each kind of matrix, a sum for the biases."""

    name = "rnn.weight_gradient"

    def serves(self, problem: RNNProblem) -> bool:
        return True

    def launches(self, problem: RNNProblem) -> list[Launch]:
        n = problem.network
        rows = n.gates * n.hidden
        found = problem.lengths(SOURCE, "rnn_weight_gradient")
        for layer in range(n.layers):
            if layer or not n.skips_input:
                found.append(self._launch(problem, "input", layer, tiles(n.input_width(layer), rows, n.directions)))
            found.append(self._launch(problem, "recurrent", layer, tiles(n.projected, rows, n.directions)))
            if n.is_projected:
                found.append(self._launch(problem, "project", layer, tiles(n.hidden, n.projected, n.directions)))
            if n.has_input_bias or n.has_recurrent_bias:
                found.append(self._launch(problem, "bias", layer, (-(-rows // THREADS), n.directions, 1)))
        return found

    def _launch(self, problem: RNNProblem, kernel: str, layer: int, grid: Grid) -> Launch:
        fields = problem.described(layer, problem.data)
        return problem.launch(SOURCE, f"rnn_weight_gradient_{kernel}", OPERANDS, grid, *fields)
