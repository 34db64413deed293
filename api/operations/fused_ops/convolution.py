"""Define convolutions fused with other steps: SCALE_BIAS_ACTIVATION_CONV_BNSTATS, SCALE_BIAS_ACTIVATION_WGRAD,
CONV_SCALE_BIAS_ADD_ACTIVATION."""

from __future__ import annotations

from functools import cached_property

from ...enumerations import cudnnConvolutionBwdFilterAlgo_t, cudnnConvolutionFwdAlgo_t
from ..convolution import ConvolutionBackwardFilter, ConvolutionForward
from ..operation import Operation
from ..records import record
from ..specs import ActivationSpec, ConvolutionSpec, FilterSpec, TensorSpec
from .residual import ScaleBiasAddActivationGenBitmask


@record
class ScaleBiasActivationConvBnstats(Operation):
    """Compute y = conv(activation(eqScale * x + eqBias), w), and in ySum and ySqSum the sums of y and of its squares
    per channel.

    A term whose operand is None is omitted. Values between the steps may be rounded to the data types of x and y.
    """

    convolution: ConvolutionSpec
    activation: ActivationSpec | None
    algo: cudnnConvolutionFwdAlgo_t
    workspace_bytes: int
    x: TensorSpec
    eqScale: TensorSpec | None
    eqBias: TensorSpec | None
    w: FilterSpec
    y: TensorSpec
    ySum: TensorSpec | None
    ySqSum: TensorSpec | None

    inputs = ("x", "eqScale", "eqBias", "w")
    outputs = ("y", "ySum", "ySqSum")
    optional = ("eqScale", "eqBias", "ySum", "ySqSum")
    raw = {"workSpace": "workspace_bytes"}  # noqa: RUF012 (a class constant)

    @cached_property
    def prologue(self) -> ScaleBiasAddActivationGenBitmask | None:
        """Return the operation on x before the convolution, or None if there is none."""
        return _prologue(self)

    @cached_property
    def inner(self) -> ConvolutionForward:
        """Return the convolution alone."""
        return ConvolutionForward(self.convolution, self.algo, 0, 1.0, 0.0, self.x, self.w, self.y)


@record
class ScaleBiasActivationWgrad(Operation):
    """Compute dw = the gradient of conv(x', w) with respect to w, given dy, where x' = activation(eqScale * x +
    eqBias).

    A term whose operand is None is omitted. x' may be rounded to the data type of x.
    """

    convolution: ConvolutionSpec
    activation: ActivationSpec | None
    algo: cudnnConvolutionBwdFilterAlgo_t
    workspace_bytes: int
    x: TensorSpec
    eqScale: TensorSpec | None
    eqBias: TensorSpec | None
    dy: TensorSpec
    dw: FilterSpec

    inputs = ("x", "eqScale", "eqBias", "dy")
    outputs = ("dw",)
    optional = ("eqScale", "eqBias")
    raw = {"workSpace": "workspace_bytes"}  # noqa: RUF012 (a class constant)

    @cached_property
    def prologue(self) -> ScaleBiasAddActivationGenBitmask | None:
        """Return the operation on x before the convolution, or None if there is none."""
        return _prologue(self)

    @cached_property
    def inner(self) -> ConvolutionBackwardFilter:
        """Return the gradient of the convolution alone."""
        return ConvolutionBackwardFilter(self.convolution, self.algo, 0, 1.0, 0.0, self.x, self.dy, self.dw)


@record
class ConvScaleBiasAddActivation(Operation):
    """Compute y = activation(eqScale * conv(x, w) + zEqScale * z + zEqBias), channel by channel.

    A term whose operand is None is omitted. The result of the convolution may be rounded to the data type of y.
    """

    convolution: ConvolutionSpec
    activation: ActivationSpec | None
    algo: cudnnConvolutionFwdAlgo_t
    workspace_bytes: int
    x: TensorSpec
    w: FilterSpec
    eqScale: TensorSpec | None
    z: TensorSpec | None
    zEqScale: TensorSpec | None
    zEqBias: TensorSpec | None
    y: TensorSpec

    inputs = ("x", "w", "eqScale", "z", "zEqScale", "zEqBias")
    outputs = ("y",)
    optional = ("eqScale", "z", "zEqScale", "zEqBias")
    raw = {"workSpace": "workspace_bytes"}  # noqa: RUF012 (a class constant)

    @cached_property
    def inner(self) -> ConvolutionForward:
        """Return the convolution alone."""
        return ConvolutionForward(self.convolution, self.algo, 0, 1.0, 0.0, self.x, self.w, self.y)

    @cached_property
    def epilogue(self) -> ScaleBiasAddActivationGenBitmask | None:
        """Return the operation on the convolution's result, which is its x, or None if there is none."""
        o = self
        if o.activation is None and all(spec is None for spec in (o.eqScale, o.z, o.zEqBias)):
            return None
        return ScaleBiasAddActivationGenBitmask(
            o.activation, o.y, o.eqScale, None, o.z, o.zEqScale, o.zEqBias, o.y, None
        )


def _prologue(
    o: ScaleBiasActivationConvBnstats | ScaleBiasActivationWgrad,
) -> ScaleBiasAddActivationGenBitmask | None:
    if o.activation is None and o.eqScale is None and o.eqBias is None:
        return None
    return ScaleBiasAddActivationGenBitmask(o.activation, o.x, o.eqScale, o.eqBias, None, None, None, o.x, None)
