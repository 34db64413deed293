"""Draw grids and samplers of the spatial transformer, forward and backward."""

from __future__ import annotations

from typing import Any

from dualdnn.api.cudnn.spatial_transformer import TYPES
from dualdnn.api.enumerations import cudnnSamplerType_t
from dualdnn.api.operations import (
    SpatialTfGridGeneratorBackward,
    SpatialTfGridGeneratorForward,
    SpatialTfSamplerBackward,
    SpatialTfSamplerForward,
    SpatialTransformerSpec,
)

from .pieces import Drawn, Source

OPERATIONS = (
    SpatialTfGridGeneratorForward,
    SpatialTfGridGeneratorBackward,
    SpatialTfSamplerForward,
    SpatialTfSamplerBackward,
)
BILINEAR = next(iter(cudnnSamplerType_t))


def draw(source: Source) -> Drawn:
    """Draw one of the four calls."""
    kind, data_type = source.pick(OPERATIONS), source.pick(TYPES)
    dims = source.dims(4)
    transformer = SpatialTransformerSpec(BILINEAR, data_type, dims)
    operation: Any
    if kind in OPERATIONS[:2]:
        operation = kind(transformer)
        return Drawn((operation,), source.inputs(("normal", "wide", "positive"), ("special",)))
    x, y = source.tensor(data_type, (*dims[:2], *source.dims(2, 400))), source.tensor(data_type, dims)
    blend = source.blend()
    if kind is SpatialTfSamplerForward:
        operation = SpatialTfSamplerForward(transformer, *blend, x, y)
    else:
        operation = SpatialTfSamplerBackward(transformer, *blend, *source.blend(), x, source.like(x), y)
    return Drawn((operation,), source.inputs(("normal", "positive"), ("special",)))
