"""Evaluate the spatial transformer (3.2.97, 3.2.98, 4.1.20, 4.1.21; docs/errata.md, D135, D136, D191 and D192)."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

from dualdnn.api.operations import (
    SpatialTfGridGeneratorBackward,
    SpatialTfGridGeneratorForward,
    SpatialTfSamplerBackward,
    SpatialTfSamplerForward,
)

from .elements import Elements, Found, Index, Untold, total


def _pixel(i: int, size: int) -> float:
    """Return the coordinate of a pixel, between -1 and 1."""
    return 2 * i / max(size - 1, 1) - 1


def grid_forward(o: SpatialTfGridGeneratorForward, _output: str, index: Index, read: Elements) -> Found:
    n, i, j, row = index
    _, height, width, _ = o.grid.dims
    x, y, one = read.box("theta", [range(n, n + 1), range(row, row + 1), range(3)])
    return Found(x * _pixel(j, width) + y * _pixel(i, height) + one)


def grid_backward(o: SpatialTfGridGeneratorBackward, _output: str, index: Index, read: Elements) -> Found:
    n, row, column = index
    _, height, width, _ = o.dgrid.dims
    gradients = read.box("dgrid", [range(n, n + 1), range(height), range(width), range(row, row + 1)])
    weights = [(_pixel(j, width), _pixel(i, height), 1.0)[column] for i, j in product(range(height), range(width))]
    return Found(total(a * b for a, b in zip(gradients, weights, strict=True)))


def _sample(o: Any, n: int, pixel: Index, read: Elements) -> tuple[int, float, int, float]:
    """Return (row, fraction, column, fraction) at which a pixel of y samples x."""
    found: list[Any] = []
    for size, axis in ((o.x.dims[2], 1), (o.x.dims[3], 0)):
        g = read("grid", (n, *pixel, axis))
        if not math.isfinite(g):
            raise Untold("a coordinate is not finite")
        at = (g + 1) * (size - 1) / 2
        found += [math.floor(at), at - math.floor(at)]
    row, behind_row, column, behind_column = found
    return row, behind_row, column, behind_column


def _corners(o: Any, n: int, pixel: Index, read: Elements) -> list[tuple[Index, float]]:
    """Return the existing pixels of x around a sample, with their weights."""
    row, down, column, right = _sample(o, n, pixel, read)
    around = [
        ((row + i, column + j), (down if i else 1 - down) * (right if j else 1 - right))
        for i, j in product((0, 1), (0, 1))
    ]
    return [(at, weight) for at, weight in around if 0 <= at[0] < o.x.dims[2] and 0 <= at[1] < o.x.dims[3]]


def sampler_forward(o: SpatialTfSamplerForward, _output: str, index: Index, read: Elements) -> Found:
    n, c, *pixel = index
    corners = _corners(o, n, tuple(pixel), read)
    return Found(total(weight * read("x", (n, c, *at)) for at, weight in corners if weight))


def sampler_backward(o: SpatialTfSamplerBackward, output: str, index: Index, read: Elements) -> Found:
    """Return dx, each dy times the weight of this pixel in its sample, or dgrid.

    dgrid is the sum over the channels of dy times the slope of the sample.
    """
    if output == "dgrid":
        return _slope(o, index, read)
    n, c, *place = index
    terms = []
    for pixel in product(range(o.dy.dims[2]), range(o.dy.dims[3])):
        for at, weight in _corners(o, n, pixel, read):
            if at == tuple(place) and weight:
                terms.append(weight * read("dy", (n, c, *pixel)))
    return Found(total(terms))


def _slope(o: SpatialTfSamplerBackward, index: Index, read: Elements) -> Found:
    n, *pixel, axis = index
    row, down, column, right = _sample(o, n, tuple(pixel), read)
    terms = []
    for c, i, j in product(range(o.x.dims[1]), (0, 1), (0, 1)):
        if not (0 <= row + i < o.x.dims[2] and 0 <= column + j < o.x.dims[3]):
            continue
        across = (right if j else 1 - right) if axis else (down if i else 1 - down)
        sign = (1 if i else -1) if axis else (1 if j else -1)
        terms.append(sign * across * read("x", (n, c, row + i, column + j)) * read("dy", (n, c, *pixel)))
    return Found((o.x.dims[2 if axis else 3] - 1) / 2 * total(terms))


FORMULAS: dict[type, Any] = {
    SpatialTfGridGeneratorBackward: grid_backward,
    SpatialTfGridGeneratorForward: grid_forward,
    SpatialTfSamplerBackward: sampler_backward,
    SpatialTfSamplerForward: sampler_forward,
}
