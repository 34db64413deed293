"""Define the operation of the forward calls of recurrent networks (7.2.36 to 7.2.38, 8.2.23, 8.2.24)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ..dropout import STATES
from ..operation import Operation
from ..records import record
from ..specs import TensorSpec
from .data import RNNDataSpec
from .network import RNNSpec


@record
class RNNForward(Operation):
    """Compute the outputs y of the last layer, and the states hy and cy of all layers after the last step of each
    sequence.

    hx, hy: have shape (pseudo-layer, sequence, projected).
    cx, cy: have shape (pseudo-layer, sequence, hidden); only CUDNN_LSTM has them.
    weightSpace: holds all matrices and biases (``RNNSpec.matrix``).
    workspace, reserve: tensors in the arithmetic's type; reserve is empty in inference, which keeps nothing for
    backward calls.
    states: the random number generator of dropout (docs/dropout.md); they are an operand only if the call draws
    numbers.
    """

    network: RNNSpec
    training: bool
    x: RNNDataSpec
    hx: TensorSpec | None
    cx: TensorSpec | None
    weightSpace: TensorSpec
    y: RNNDataSpec
    hy: TensorSpec | None
    cy: TensorSpec | None
    workspace: TensorSpec
    reserve: TensorSpec

    generator: ClassVar[TensorSpec] = STATES
    inputs = ("x", "hx", "cx", "weightSpace", "states")
    outputs = ("y", "hy", "cy", "states", "reserveSpace")
    optional = ("hx", "cx", "hy", "cy")
    raw = {"workSpace": "workspace", "reserveSpace": "reserve", "states": "generator"}  # noqa: RUF012 (a class constant)

    @property
    def draws(self) -> bool:  # type: ignore[override]  # Each instance decides.
        return self.training and self.network.drops

    def has(self, operand: str) -> bool:
        return super().has(operand) and (operand != "states" or self.draws)

    @property
    def counts(self) -> Mapping[str, int]:
        return self.network.counts(self.x.max_length, self.x.batch)
