"""Compute recurrent networks forward, all steps of one or several layers in one cooperative launch
(persistent_forward.cu).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..plans import Launch, factors
from . import dropout, inputs, persistent
from .persistent import Division
from .problem import RNNProblem

SOURCE = "rnn/persistent_forward.cu"
OPERANDS = ("hx", "cx", "weightSpace", "y", "hy", "cy", "workSpace", "reserveSpace")


class PersistentForwardSolver(persistent.PersistentSolver):
    """Serve the layers one after the other."""

    name = "rnn.persistent_forward"

    def launches(self, problem: RNNProblem) -> list[Launch]:
        n = problem.network
        found = inputs.prepared(problem, exchanged(problem, (0,)))
        for layer in range(n.layers):
            if layer:
                found += dropout.drawn(problem, layer - 1)
            found += inputs.products(problem, layer)
            if layer:
                found.append(inputs.fill(problem, exchanged(problem, (layer,))))
            found.append(steps(problem, self.divisions(problem), (layer,)))
        return [*found, *dropout.advanced(problem)]

    def divisions(self, problem: RNNProblem) -> list[Division]:
        return persistent.divisions(problem, problem.network.gates, 1)


def exchanged(problem: RNNProblem, layers: Sequence[int]) -> inputs.Filled:
    """Return the outputs of the layers, which their blocks exchange."""
    size = inputs.number_bytes(problem)
    first, *others = (problem.outputs(layer) for layer in layers)
    stride = (others[0].offset - first.offset) // size if others else 0
    elements = problem.steps * problem.batch * problem.network.output_size
    return inputs.Filled(first.operand, first.offset // size, elements, len(layers), stride)


def steps(problem: RNNProblem, possible: list[Division], layers: Sequence[int]) -> Launch:
    """Return the launch of all steps of the layers, in the first of these divisions that the device can hold."""
    y = problem.operation.y
    fields = *problem.fill(y), *factors(problem.operation, scale=dropout.scale(problem)), ("clip", problem.clip)
    return persistent.launch(problem, possible, (SOURCE, "rnn_persistent_forward"), OPERANDS, layers, y, *fields)
