"""Draw copies between layouts and types, with padding and folding."""

from __future__ import annotations

from math import prod
from typing import Any

from dualdnn.api.cudnn.transform import CONVERTED, NOT_CONVERTED
from dualdnn.api.enumerations import cudnnFoldingDirection_t
from dualdnn.api.operations import (
    FilterSpec,
    TensorSpec,
    TransformFilter,
    TransformSpec,
    TransformTensor,
    TransformTensorEx,
)
from dualdnn.api.operations.specs import NCHW, NHWC, SCALAR_BYTES
from dualdnn.api.operations.transform import destination_dims, folds, pads, unfolds

from .pieces import Drawn, Source, need

OPERATIONS = (TransformTensor, TransformTensorEx, TransformFilter)
FOLD, UNFOLD = cudnnFoldingDirection_t
MAX_ELEMENTS = 200_000  # elements of a destination
SPLIT_BYTES = 600_000  # bytes of a source that is copied and padded by several launches


def draw(source: Source) -> Drawn:
    """Draw one of the three calls."""
    kind = source.pick(OPERATIONS)
    alpha, beta = source.blend()
    data_type = source.pick(CONVERTED)
    operation: Any
    if kind is TransformTensor:
        x = source.tensor(data_type, source.dims(source.pick((4, 5, 3, 6))))
        operation = TransformTensor(alpha, beta, x, source.like(x, 10))
        return Drawn((operation,), source.inputs())
    rank = source.pick((4, 5))
    split = source.profile.name == "large" and source.chance(10)
    split = split and SCALAR_BYTES[data_type] > 1
    dims, layout = source.dims(rank), source.pick((NCHW, NHWC))
    if split:  # Each side is padded by a launch of its own.
        rows = source.integer(20, 400)
        dims = (1,) * (rank - 2) + (rows, SPLIT_BYTES // SCALAR_BYTES[data_type] // rows)
    before, after = (tuple(source.pick((0, 0, 1, 3)) for _ in range(rank)) for _ in range(2))
    before, after = ((0, *before[1:]), (0, *after[1:])) if source.chance(60) else (before, after)
    if source.profile.extremes:  # Padding on one side is cropped on the other.
        d, amount, left = source.integer(0, rank - 1), source.large(80), source.integer(0, 4)
        sides = source.pick(((amount, left - amount), (left - amount, amount)))
        before, after = (
            (*amounts[:d], side, *amounts[d + 1 :]) for amounts, side in zip((before, after), sides, strict=True)
        )
    fold = tuple(source.pick((1, 1, 0, 2, 3)) for _ in range(rank - 2))
    if split:
        before, after = ((0, 0, *(source.integer(0, 3) for _ in dims[2:])) for _ in range(2))
        fold = (1,) * (rank - 2)
    transform = TransformSpec(layout, before, after, fold, source.pick((FOLD, UNFOLD)))
    if not split and source.chance(25):
        transform = TransformSpec(layout, (0,) * rank, (0,) * rank, (1,) * (rank - 2), FOLD)
    made = destination_dims(transform, dims)
    need(min(made) > 0)
    need(split or prod(made) <= MAX_ELEMENTS)
    into = source.pick(CONVERTED)
    need((data_type, into) not in NOT_CONVERTED)
    scaled = unfolds(transform) or not (pads(transform) or folds(transform))
    factors = (alpha, beta) if scaled else (1.0, 0.0)
    if kind is TransformFilter:
        first: Any = FilterSpec(data_type, source.pick((NCHW, NHWC)), dims)
        operation = TransformFilter(transform, *factors, first, FilterSpec(into, layout, made))
    else:
        target = TensorSpec.packed(into, made, layout)
        operation = TransformTensorEx(transform, *factors, source.tensor(data_type, dims), target)
    return Drawn((operation,), source.inputs())
