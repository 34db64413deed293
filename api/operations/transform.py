"""Define the operations of cudnnTransformTensor (3.2.100), cudnnTransformTensorEx (3.2.101) and cudnnTransformFilter
(3.2.99)."""

from __future__ import annotations

from math import prod

from ..enumerations import cudnnFoldingDirection_t
from .operation import Operation
from .records import record
from .specs import FilterSpec, TensorSpec, TransformSpec


@record
class TransformTensor(Operation):
    """Compute y = alpha * x + beta * y; the layouts may differ."""

    alpha: float
    beta: float
    x: TensorSpec
    y: TensorSpec

    inputs = ("x",)
    outputs = ("y",)


@record
class TransformTensorEx(Operation):
    """Compute destData = alpha * transform(srcData) + beta * destData with padding, folding or unfolding."""

    transform: TransformSpec
    alpha: float
    beta: float
    srcData: TensorSpec
    destData: TensorSpec

    inputs = ("srcData",)
    outputs = ("destData",)


@record
class TransformFilter(Operation):
    """Compute the same as TransformTensorEx, on filters."""

    transform: TransformSpec
    alpha: float
    beta: float
    srcData: FilterSpec
    destData: FilterSpec

    inputs = ("srcData",)
    outputs = ("destData",)


def folding_factors(transform: TransformSpec) -> tuple[int, ...]:
    """Return the folding factor of each spatial dimension; 0 counts as 1, which means no folding."""
    return tuple(max(1, factor) for factor in transform.fold)


def folds(transform: TransformSpec) -> bool:
    return prod(folding_factors(transform)) > 1 and transform.direction == cudnnFoldingDirection_t.CUDNN_TRANSFORM_FOLD


def unfolds(transform: TransformSpec) -> bool:
    return (
        prod(folding_factors(transform)) > 1 and transform.direction == cudnnFoldingDirection_t.CUDNN_TRANSFORM_UNFOLD
    )


def pads(transform: TransformSpec) -> bool:
    return any(transform.pad_before) or any(transform.pad_after)


def unfolded_blocks(transform: TransformSpec, destination: tuple[int, ...]) -> list[range]:
    """Return, per spatial dimension, the unfolding blocks that reach into a destination, counted from the first block
    of the source."""
    axes = zip(folding_factors(transform), destination[2:], transform.pad_before[2:], strict=True)
    return [range(-before // factor, (extent - 1 - before) // factor + 1) for factor, extent, before in axes]


def destination_dims(transform: TransformSpec, dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions that a source of ``dims`` is transformed to (docs/errata.md, D077).

    Folding pads, then divides each spatial dimension by its factor (rounded up) and multiplies the channels by all
    factors. Unfolding divides the channels by all factors (rounded up), multiplies each spatial dimension by its
    factor, then pads.
    """
    factors = folding_factors(transform)
    total = prod(factors)
    padding = [before + after for before, after in zip(transform.pad_before, transform.pad_after, strict=True)]
    if unfolds(transform):
        unfolded = (dims[0], -(-dims[1] // total), *(d * f for d, f in zip(dims[2:], factors, strict=True)))
        return tuple(d + p for d, p in zip(unfolded, padding, strict=True))
    if not folds(transform):
        factors, total = (1,) * len(factors), 1
    padded = [d + p for d, p in zip(dims, padding, strict=True)]
    return (padded[0], padded[1] * total, *(-(-d // f) for d, f in zip(padded[2:], factors, strict=True)))
