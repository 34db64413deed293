"""Compute the gradients of inputs and states, all steps of one or several layers in one cooperative launch
(persistent_backward.cu).
"""

from __future__ import annotations

from collections.abc import Sequence

from dualdnn.api.operations.specs import HALF

from ..plans import Launch, factors
from . import dropout, inputs, persistent
from .persistent import Division
from .problem import RNNProblem

SOURCE = "rnn/persistent_backward.cu"
OPERANDS = ("dy", "hx", "dhy", "cx", "dcy", "weightSpace", "dhx", "dcx", "workSpace", "reserveSpace")


class PersistentBackwardSolver(persistent.PersistentSolver):
    """Serve the layers one after the other, the last one first."""

    name = "rnn.persistent_backward"

    def launches(self, problem: RNNProblem) -> list[Launch]:
        last = problem.network.layers - 1
        found = inputs.prepared(problem, exchanged(problem, (last,)))
        for layer in range(last, -1, -1):
            if layer < last:
                found.append(inputs.fill(problem, exchanged(problem, (layer,))))
            found.append(steps(problem, self.divisions(problem), (layer,)))
            found += inputs.gradients(problem, layer)
            found += dropout.gradient(problem, layer)
        return found

    def divisions(self, problem: RNNProblem) -> list[Division]:
        return persistent.divisions(problem, 1, problem.network.gates)


def exchanged(problem: RNNProblem, layers: Sequence[int]) -> inputs.Filled:
    """Return the gate gradients of the layers, which their blocks exchange."""
    n, vectors = problem.network, problem.steps * problem.batch
    if len(layers) == 1 and problem.data.data_type != HALF:
        return inputs.Filled("workSpace", problem.work()["products"], n.directions * vectors * n.gates * n.hidden)
    first, step = (problem.kept(min(layers))[name] for name in ("gradients", "kept_step"))
    if len(layers) > 1:
        step = problem.kept(min(layers) + 1)["gradients"] - first
    return inputs.Filled(
        "reserveSpace", first, vectors * problem.kept_gates * n.hidden, n.directions * len(layers), step
    )


def steps(problem: RNNProblem, possible: list[Division], layers: Sequence[int]) -> Launch:
    """Return the launch of all steps of the layers, the last one first, in the first of these divisions that the device
    can hold.
    """
    fields = *factors(problem.operation, scale=dropout.scale(problem)), ("clip", problem.clip)
    kernel = SOURCE, "rnn_persistent_backward"
    return persistent.launch(problem, possible, kernel, OPERANDS, layers, problem.operation.dx, *fields)
