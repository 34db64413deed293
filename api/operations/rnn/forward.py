"""The operation of the forward calls of recurrent networks (7.2.36 to 7.2.38, 8.2.23, 8.2.24)."""

from __future__ import annotations

from typing import ClassVar

from ..dropout import STATES
from ..operation import Operation
from ..records import record
from ..specs import TensorSpec
from .data import RNNDataSpec
from .network import RNNSpec


@record
class RNNForward(Operation):
    """The outputs y of the last layer, and the states hy and cy of all layers after the last step of each sequence.

    hx, hy: (pseudo-layer, sequence, projected). cx, cy: (pseudo-layer, sequence, hidden), of CUDNN_LSTM only. weightSpace: all
    matrices and biases (``RNNSpec.matrix``). workspace, reserve: as many numbers
    of the arithmetic; none in reserve where nothing is kept for the backward calls: inference. states: of the random numbers
    of dropout (docs/dropout.md), an operand where the call draws some.
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
    def draws(self) -> bool:  # type: ignore[override]  # of this operation, not of all of its kind
        return self.training and self.network.drops

    def has(self, operand: str) -> bool:
        return super().has(operand) and (operand != "states" or self.draws)
