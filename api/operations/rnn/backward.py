"""The operations of the backward calls of recurrent networks (8.2.17 to 8.2.22)."""

from __future__ import annotations

from typing import ClassVar

from ..operation import Operation
from ..records import record
from ..specs import TensorSpec
from .data import RNNDataSpec
from .network import RNNSpec


@record
class RNNBackwardData(Operation):
    """The gradients of x, hx and cx, given those of y, hy and cy; the reserve space is that of the forward call, in training.

    The states are described as those of ``RNNForward``; what is None counts as zeros, or is not written.
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


@record
class RNNBackwardWeights(Operation):
    """Adds the gradients of all matrices and biases to dweightSpace; the reserve space is that of ``RNNBackwardData``."""

    network: RNNSpec
    x: RNNDataSpec
    hx: TensorSpec | None
    y: RNNDataSpec
    dweightSpace: TensorSpec
    workspace: TensorSpec
    reserve: TensorSpec

    added: ClassVar[float] = 1.0  # what the result and what was there are multiplied by
    blends = {"dweightSpace": ("added", "added")}  # noqa: RUF012 (a class constant)
    inputs = ("x", "hx", "y", "reserveSpace")
    outputs = ("dweightSpace",)
    optional = ("hx",)
    raw = {"workSpace": "workspace", "reserveSpace": "reserve"}  # noqa: RUF012 (a class constant)
