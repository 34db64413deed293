"""Overlap the steps of several layers in one cooperative launch, in which each layer runs a step after the one before
it (persistent_forward.cu, persistent_backward.cu).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from dualdnn.api.operations.rnn.network import GRU

from ..plans import Launch
from ..reproducible import Order
from ..solver import Solver
from . import dropout, inputs, persistent, persistent_backward, persistent_forward
from .persistent import Division, planned_multiprocessors
from .persistent_backward import PersistentBackwardSolver
from .persistent_forward import PersistentForwardSolver
from .problem import RNNProblem

MIN_GAIN = 1.05  # minimum speedup by overlapped layers
MAX_LOSS = 1.3  # maximum slowdown of one batch above level RUN, where the same kernels serve all batches


class _WavefrontSolver(Solver[RNNProblem]):
    """Keep the recurrent and input matrices of several layers on chip."""

    name = "rnn.wavefront"

    def divisions(self, problem: RNNProblem, layers: int) -> list[Division]:
        """Return the divisions of this many layers, the fastest first."""
        raise TypeError(f"{type(self).__name__} does not define divisions()")

    def groups(self, problem: RNNProblem) -> list[int]:
        """Return the layers of each launch that take the least time, or nothing where no launch can have two."""
        count, found = problem.network.layers, []
        for most in range(2, min(count, persistent.MAX_LAYERS) + 1):
            made = [most] * (count // most) + [count % most] * (count % most > 0)
            if all(self.divisions(problem, layers) for layers in {*made}):
                found.append(made)
        return min(
            found, key=lambda made: prod(self._seconds(each, made) for each in problem.representatives), default=[]
        )

    def _seconds(self, problem: RNNProblem, groups: Sequence[int]) -> float:
        return persistent.seconds(problem, [self.divisions(problem, layers)[0] for layers in groups])

    def summation_order(self, problem: RNNProblem) -> Order:
        groups = self.groups(problem)
        return Order(self.name, tuple((layers, self.divisions(problem, layers)[0].chains) for layers in groups))

    def serves(self, problem: RNNProblem) -> bool:
        one_way = problem.network.directions == 1
        return one_way and persistent.can_serve(problem) and bool(self.groups(problem))

    def applies(self, problem: RNNProblem) -> bool:
        if not self.serves(problem):
            return False
        groups, multiprocessors = self.groups(problem), planned_multiprocessors(problem.device)
        together = all(self.divisions(problem, layers)[0].runs_together(multiprocessors) for layers in groups)
        if not self.divisions(problem, 1):  # A single layer does not fit on chip.
            return together
        apart = [1] * problem.network.layers
        gains = [self._seconds(each, apart) / self._seconds(each, groups) for each in problem.representatives]
        return together and prod(gains) > MIN_GAIN ** len(gains) and MAX_LOSS * min(gains) >= 1

    def alignment(self, problem: RNNProblem) -> Mapping[str, int]:
        return {"workSpace": 16, "reserveSpace": 16}

    def estimated_seconds(self, problem: RNNProblem) -> float:
        return self._seconds(problem, self.groups(problem))


class WavefrontForwardSolver(_WavefrontSolver):
    """Serve the layers from the first to the last."""

    def divisions(self, problem: RNNProblem, layers: int) -> list[Division]:
        n = problem.network
        if layers == 1:
            return PersistentForwardSolver().divisions(problem)
        return persistent.divisions(problem, n.gates + (n.cell == GRU), 1, layers)  # The kernel adds one row for a GRU.

    def launches(self, problem: RNNProblem) -> list[Launch]:
        problem, first, between = problem.apart(), 0, range(problem.network.layers - 1)
        found = inputs.prepared(problem, dropped(problem))
        for layer in between:
            found += dropout.drawn(problem, layer, mask_alone=True)
        for count in self.groups(problem):
            layers = range(first, first + count)
            found += inputs.products(problem, first)
            found.append(inputs.fill(problem, persistent_forward.exchanged(problem, layers)))
            found.append(persistent_forward.steps(problem, self.divisions(problem, count), layers))
            first += count
        return [*found, *dropout.advanced(problem)]


class WavefrontBackwardSolver(_WavefrontSolver):
    """Serve the layers from the last to the first."""

    def divisions(self, problem: RNNProblem, layers: int) -> list[Division]:
        if layers == 1:
            return PersistentBackwardSolver().divisions(problem)
        return persistent.divisions(problem, 1, problem.network.gates, layers)

    def launches(self, problem: RNNProblem) -> list[Launch]:
        problem, behind = problem.apart(), problem.network.layers
        found = inputs.prepared(problem)
        for count in self.groups(problem):
            layers = range(behind - 1, behind - 1 - count, -1)
            found.append(inputs.fill(problem, persistent_backward.exchanged(problem, layers)))
            found.append(persistent_backward.steps(problem, self.divisions(problem, count), layers))
            behind -= count
            found += inputs.gradients(problem, behind)
            found += dropout.gradient(problem, behind)
        return found


def dropped(problem: RNNProblem) -> inputs.Filled | None:
    """Return the dropout between layers, whose output blocks exchange, or None where nothing is dropped."""
    if not problem.draws:
        return None
    n = problem.network
    first, stride = problem.dropped(0)[0], problem.dropped(1)[0] - problem.dropped(0)[0]
    return inputs.Filled("reserveSpace", first, problem.steps * problem.batch * n.output_size, n.layers - 1, stride)
