"""Define the operations of the backward calls of recurrent networks (8.2.17 to 8.2.22)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ..operation import Operation
from ..records import record
from ..specs import TensorSpec
from .data import RNNDataSpec
from .network import RNNSpec


@record
class RNNBackwardData(Operation):
    """Compute the gradients of x, hx and cx from those of y, hy and cy. The reserve space comes from the forward call
    in training.

    States are described as in ``RNNForward``. An input that is None counts as zeros; an output that is None is not
    written.
    """

    network: RNNSpec
    y: RNNDataSpec
    dy: RNNDataSpec
    hx: TensorSpec | None
    dhy: TensorSpec | None
    cx: TensorSpec | None
    dcy: TensorSpec | None
    weightSpace: TensorSpec
    dx: RNNDataSpec
    dhx: TensorSpec | None
    dcx: TensorSpec | None
    workspace: TensorSpec
    reserve: TensorSpec

    inputs = ("y", "dy", "hx", "dhy", "cx", "dcy", "weightSpace", "reserveSpace")
    outputs = ("dx", "dhx", "dcx", "reserveSpace")
    optional = ("hx", "dhy", "cx", "dcy", "dhx", "dcx")
    raw = {"workSpace": "workspace", "reserveSpace": "reserve"}  # noqa: RUF012 (a class constant)

    @property
    def counts(self) -> Mapping[str, int]:
        return self.network.counts(self.y.max_length, self.y.batch)


@record
class RNNBackwardWeights(Operation):
    """Add the gradients of all matrices and biases to dweightSpace; the reserve space comes from ``RNNBackwardData``."""

    network: RNNSpec
    x: RNNDataSpec
    hx: TensorSpec | None
    y: RNNDataSpec
    dweightSpace: TensorSpec
    workspace: TensorSpec
    reserve: TensorSpec

    added: ClassVar[float] = 1.0  # This is both alpha and beta of the blend.
    blends = {"dweightSpace": ("added", "added")}  # noqa: RUF012 (a class constant)
    inputs = ("x", "hx", "y", "reserveSpace")
    outputs = ("dweightSpace",)
    optional = ("hx",)
    raw = {"workSpace": "workspace", "reserveSpace": "reserve"}  # noqa: RUF012 (a class constant)

    @property
    def counts(self) -> Mapping[str, int]:
        return self.network.counts(self.y.max_length, self.y.batch)
