"""Define the sum of scaled tensors with an activation, and its gradient: SCALE_BIAS_ADD_ACTIVATION_GEN_BITMASK,
DACTIVATION_FORK_DBATCHNORM."""

from __future__ import annotations

from ..operation import Operation
from ..records import record
from ..specs import ActivationSpec, TensorSpec


@record
class ScaleBiasAddActivationGenBitmask(Operation):
    """Compute y = activation(eqScale * x + eqBias + zEqScale * z + zEqBias), channel by channel; a term whose operand
    is None is omitted.

    Row p of the bit mask belongs to pixel p of y, counted through images, rows and columns. Bit c % 32 of its word c /
    32 is 1 where the derivative of the activation in channel c is 1: the sum is above 0, or there is no activation.
    Unused bits are 0.
    """

    activation: ActivationSpec | None
    x: TensorSpec
    eqScale: TensorSpec | None
    eqBias: TensorSpec | None
    z: TensorSpec | None
    zEqScale: TensorSpec | None
    zEqBias: TensorSpec | None
    y: TensorSpec
    bitMask: TensorSpec | None

    inputs = ("x", "eqScale", "eqBias", "z", "zEqScale", "zEqBias")
    outputs = ("y", "bitMask")
    optional = ("eqScale", "eqBias", "z", "zEqScale", "zEqBias", "bitMask")


@record
class DactivationForkDbatchnorm(Operation):
    """Compute the gradient of activation and batch normalisation over the m pixels of each channel.

    dz = dy where the bit mask is 1, else 0; without an activation, dz = dy.
    With x' = (x - savedMean) * savedInvStd: dBias = sum of dz, dScale = sum of dz * x',
    dx = scale * savedInvStd * (dz - dBias / m - x' * dScale / m).
    If savedMean and savedInvStd are None, the mean of x and (the variance of x + epsilon)^-1/2 replace them.
    """

    activation: ActivationSpec | None
    epsilon: float
    workspace_bytes: int
    x: TensorSpec
    dy: TensorSpec
    bitMask: TensorSpec | None
    scale: TensorSpec | None
    savedMean: TensorSpec | None
    savedInvStd: TensorSpec | None
    dx: TensorSpec | None
    dz: TensorSpec | None
    dScale: TensorSpec | None
    dBias: TensorSpec | None

    inputs = ("x", "dy", "bitMask", "scale", "savedMean", "savedInvStd")
    outputs = ("dx", "dz", "dScale", "dBias")
    optional = ("bitMask", "scale", "savedMean", "savedInvStd", "dx", "dz", "dScale", "dBias")
    raw = {"workSpace": "workspace_bytes"}  # noqa: RUF012 (a class constant)
