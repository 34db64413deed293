"""Defines how a level of reproducibility decides in which order a call adds.

A solver declares the order of its sums as a value (``Solver.summation_order``). Above level RUN a call adds in the
order of its canonical problem: the fastest solver that declares one gives it, for CANONICAL_IMAGES images. At level
DEVICE planners see a canonical number of SMs. The fastest solver with this order serves, however it divides outputs.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, NamedTuple

from dualdnn.api.operations import SeqDataSpec, TensorSpec, Unsupported
from dualdnn.api.operations.backend import BATCH, RUN

CANONICAL_IMAGES = 32  # images for which the solver is chosen that gives the order of all batches
CANONICAL_MULTIPROCESSORS = {"sm_80": 108, "sm_86": 84, "sm_89": 128, "sm_90": 132, "sm_100": 148, "sm_120": 170}
EMULATED_MULTIPROCESSORS = 132  # SMs that planners see on other devices
# The sums of these operations stay within an image or sequence, and these operands have a batch.
# The batch is the second dimension of sequences, and the first dimension of other operands.
IN_IMAGES = {
    "ConvolutionForward": ("x", "y"),
    "ConvolutionBiasActivationForward": ("x", "z", "y"),
    "ConvolutionBackwardData": ("dy", "dx"),
    "ActivationForward": ("x", "y"),
    "ActivationBackward": ("y", "dy", "x", "dx"),
    "SoftmaxForward": ("x", "y"),
    "SoftmaxBackward": ("y", "dy", "dx"),
    "PoolingForward": ("x", "y"),
    "PoolingBackward": ("y", "dy", "x", "dx"),
    "LRNCrossChannelForward": ("x", "y"),
    "LRNCrossChannelBackward": ("y", "dy", "x", "dx"),
    "BatchNormalizationForwardInference": ("x", "y"),
    "NormalizationForwardInference": ("x", "z", "y"),
    "ScaleBiasAddActivationGenBitmask": ("x", "z", "y"),
    "ScaleBiasActivationConvBnstats": ("x", "y"),
    "ConvScaleBiasAddActivation": ("x", "z", "y"),
    "MultiHeadAttnForward": ("queries", "residuals", "keys", "values", "out"),
    "MultiHeadAttnStep": ("queries", "residuals", "keys", "values", "out"),
    "MultiHeadAttnBackwardData": ("dout", "queries", "keys", "values"),
    "SpatialTfGridGeneratorForward": ("transformer",),
    "SpatialTfGridGeneratorBackward": ("transformer",),
    "SpatialTfSamplerForward": ("transformer", "x", "y"),
    "SpatialTfSamplerBackward": ("transformer", "x", "dx", "dy"),
}
# These operations mix the images of a batch by definition, so level BATCH refuses them.
OVER_IMAGES = (
    "BatchNormalizationForwardTraining",
    "BatchNormalizationForwardTrainingEx",
    "BatchNormalizationBackward",
    "BatchNormalizationBackwardEx",
    "NormalizationForwardTraining",
    "NormalizationBackward",
    "DactivationForkDbatchnorm",
)
# In training these operations drop elements between layers by their places among all sequences (docs/dropout.md).
DROPPING = ("RNNForward", "RNNBackwardData")
UNDECLARED, UNREACHED, MIXES_IMAGES = (f"dualdnnReproducible/c{number:02}" for number in (5, 6, 7))


class Order(NamedTuple):
    """State how the terms of a sum are added; equal orders give equal bits.

    instruction: multiplies and adds. walk: which terms are added when, and to which partial sum.
    """

    instruction: str
    walk: tuple[Hashable, ...] = ()


NO_SUMS = Order("none")  # Each output depends on one element of each input.
OVER_BATCH = Order("over the batch")  # The operation and the SMs that planners see decide how these sums are divided.


def order_of_batch(solver: Any, operation: Any) -> Order | None:
    """Return the order of a sum over the images of a batch, whose division the operation alone decides.

    It is None where the solver asks more of the device than the SMs that planners see.
    """
    return None if solver.asks_device else Order(solver.name, (operation,))


class DeviceAtLevel:
    """Act as a device towards planners, and never let another kernel serve while one is compiled."""

    compiles_in_background, waits_for_kernels = False, True

    def __init__(self, device: Any, reproducible: str) -> None:
        self.device, self.reproducible = device, reproducible

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)

    @property
    def multiprocessors(self) -> int:
        """Return the SMs among which planners divide work: the device's at level BATCH, else the canonical number."""
        if self.reproducible == BATCH:
            return int(self.device.multiprocessors)
        return CANONICAL_MULTIPROCESSORS.get(self.device.architecture, EMULATED_MULTIPROCESSORS)

    @property
    def own_multiprocessors(self) -> int:
        """Return the SMs of the device itself."""
        return int(self.device.multiprocessors)

    def function_when_ready(self, *wanted: Any) -> Any:
        """Return the kernel, compiled at once."""
        return self.device.function(*wanted)

    optional_function = function_when_ready


def at_level(device: Any, reproducible: str) -> Any:
    """Return the device as planners see it at a level: itself at level RUN, else one object for each level."""
    if reproducible == RUN:
        return device
    seen = device.__dict__.setdefault("levels", {})
    return seen.get(reproducible) or seen.setdefault(reproducible, DeviceAtLevel(device, reproducible))


def at_any_level(device: Any) -> Any:
    """Return the device for launches whose fallbacks give the same bits, so that every level allows them."""
    return device.device if isinstance(device, DeviceAtLevel) else device


def level_of(device: Any) -> str:
    """Return the level for which plans on a device are made."""
    return str(getattr(device, "reproducible", RUN))


def canonical_operation(operation: Any) -> Any:
    """Return the operation whose solver gives the order of sums: with CANONICAL_IMAGES images that follow each other.

    Operations whose sums pass over the batch, or that have no batch, are their own.
    """
    names = [name for name in IN_IMAGES.get(type(operation).__name__, ()) if getattr(operation, name) is not None]
    return replace(operation, **{name: _canonical(getattr(operation, name)) for name in names}) if names else operation


def _canonical(spec: Any) -> Any:
    if isinstance(spec, SeqDataSpec):
        steps, _, beams, size = spec.dims
        lengths = (steps,) * (CANONICAL_IMAGES * beams)
        return replace(spec, dims=(steps, CANONICAL_IMAGES, beams, size), lengths=lengths)
    dims = (CANONICAL_IMAGES, *spec.dims[1:])
    if not isinstance(spec, TensorSpec):
        return replace(spec, dims=dims)
    image = max(extent * stride for extent, stride in zip(spec.storage_dims[1:], spec.strides[1:], strict=True))
    return replace(spec, dims=dims, strides=(image, *spec.strides[1:]))


def require_level(operation: Any, reproducible: str) -> None:
    """Raise Unsupported for an operation that cannot hold a level by its definition."""
    name = type(operation).__name__
    if reproducible != BATCH:
        return
    if name in OVER_IMAGES:
        reason = f"{name} computes each image from the statistics of all images"
    elif name in DROPPING and operation.network.drops and getattr(operation, "training", True):
        reason = f"the number of sequences decides which elements {name} drops between layers"
    else:
        return
    raise Unsupported(MIXES_IMAGES, f"reproducible is {BATCH!r}, and {reason}")


def undeclared(operation: Any, reproducible: str) -> Unsupported:
    """Return the error for an operation whose solvers do not declare the order of its sums."""
    name = type(operation).__name__
    return Unsupported(
        UNDECLARED,
        f"reproducible is {reproducible!r}, and no solver declares the order of its sums for {name}: {operation}",
    )


def unreached(operation: Any, reproducible: str, order: Order) -> Unsupported:
    """Return the error for a call that no solver can compute in the order of its level."""
    text = f"reproducible is {reproducible!r}, and no solver that serves adds in its order, {order}: {operation}"
    return Unsupported(UNREACHED, text)


def unbuilt(reproducible: str, reason: Exception) -> Unsupported:
    """Return the error for a call whose order needs a kernel that cannot be had."""
    return Unsupported(
        UNREACHED, f"reproducible is {reproducible!r}, and no solver that adds in its order has its kernels: {reason}"
    )


def require_no_fallback(kernel: str, device: Any) -> None:
    """Raise Unsupported above level RUN, where a kernel of another order would take operands that are not aligned."""
    if (reproducible := level_of(device)) != RUN:
        text = f"reproducible is {reproducible!r}, and {kernel} needs operands that are aligned to 16 bytes"
        raise Unsupported(UNREACHED, text)
