"""Compute the spatial transformer (3.2.97, 3.2.98, 4.1.20, 4.1.21).

docs/errata.md, D135, D136, D191, D192 and D522, gives the formulas.

A coordinate g samples the column (g + 1) (W - 1) / 2. Its error is ``COLUMN`` roundings of (|g| + 1) (W - 1) / 2. The
error moves a sample by at most the error times the slope. It may also move the sample across a pixel, where the slope
changes. Results that are continuous there use the larger slope. The gradient of the coordinate is undetermined there,
unless the column is computed without rounding.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from dualdnn.api.operations import (
    SpatialTfGridGeneratorBackward,
    SpatialTfGridGeneratorForward,
    SpatialTfSamplerBackward,
    SpatialTfSamplerForward,
)

from .engine import Exact, implements
from .precision import PRECISION
from .spread import Spread, Steps, few, walked
from .view import NUMPY_TYPES, Array

COLUMN = 3  # roundings of g + 1 and two products; g (W - 1) / 2 + (W - 1) / 2 has as many
PIXEL = 5  # roundings of 2 j / (w - 1), - 1, a product with theta, two sums
CORNER = 6  # roundings of 1 - f, the weight, its product with x, three sums
SLOPE = 8  # roundings of a difference, 1 - f, two products, a sum, the products with dy, (W - 1) / 2 and 2
CORNERS = tuple(product((0, 1), (0, 1)))


def _pixels(size: int, wide: Any) -> tuple[Array, Array]:
    """Return the coordinates of a row's pixels from -1 to 1, and the sums of the absolute values of their terms."""
    first = 2 * np.arange(size, dtype=wide) / wide(max(size - 1, 1))
    return first - 1, first + 1


@implements(SpatialTfGridGeneratorForward)
def grid_generator_forward(operation: SpatialTfGridGeneratorForward, theta: Array) -> Exact:
    _, height, width, _ = operation.grid.dims
    (xt, xm), (yt, ym) = _pixels(width, theta.dtype.type), _pixels(height, theta.dtype.type)

    def sums(matrix: Array, x: Array, y: Array) -> Array:
        of_x, of_y, one = (matrix[:, None, None, :, column] for column in range(3))
        return of_x * x[None, None, :, None] + of_y * y[None, :, None, None] + one

    return Exact(sums(theta, xt, yt), lambda: sums(np.abs(theta), xm, ym), PIXEL)


@implements(SpatialTfGridGeneratorBackward)
def grid_generator_backward(operation: SpatialTfGridGeneratorBackward, dgrid: Array) -> Exact:
    _, height, width, _ = operation.dgrid.dims
    (xt, xm), (yt, ym) = _pixels(width, dgrid.dtype.type), _pixels(height, dgrid.dtype.type)

    def sums(gradient: Array, x: Array, y: Array) -> Array:
        of_x = (gradient * x[None, None, :, None]).sum(axis=(1, 2))
        of_y = (gradient * y[None, :, None, None]).sum(axis=(1, 2))
        return np.stack((of_x, of_y, gradient.sum(axis=(1, 2))), -1)

    additions = height * width + PIXEL

    def spread() -> Spread:
        return Spread(np.sqrt(sums(np.square(dgrid), np.square(xm), np.square(ym))), additions)

    return Exact(sums(dgrid, xt, yt), lambda: sums(np.abs(dgrid), xm, ym), additions, spread=spread)


class _Columns:
    """Locate the columns (or rows) of an input that are sampled, one for each pixel of the transformed tensor.

    first: the pixel before each sample. part: the distance behind it. error: the error of the column, in roundoffs.
    low, high: the least and greatest first pixel that an implementation may find; they differ where ``ambiguous``.
    scale: (W - 1) / 2.
    """

    def __init__(self, operation: Any, coordinate: Array, size: int) -> None:
        wide, kind = coordinate.dtype.type, NUMPY_TYPES[operation.compute_type].type
        unit = PRECISION[operation.compute_type][0]
        self.size, self.scale = size, wide(size - 1) / 2
        self.finite = np.isfinite(coordinate)
        g = np.where(self.finite, coordinate, 0)
        column = (g + 1) * self.scale
        terms = (np.abs(g) + 1) * self.scale
        # The column is exact where every intermediate that an implementation may compute is exact.
        steps = (g + 1, g * (size - 1), (g + 1) * (size - 1), column)
        exact = np.logical_and.reduce([step.astype(kind).astype(wide) == step for step in steps])
        self.error = np.where(exact, 0, COLUMN * terms)
        reach = unit * self.error
        limit = 2.0**40  # No input has this many pixels, and the floor of larger numbers may not fit in 64 bits.
        clipped = np.clip(column, -limit, limit)
        self.first, self.low, self.high = (
            np.floor(np.clip(c, -limit, limit)).astype(np.int64) for c in (column, column - reach, column + reach)
        )
        self.part = clipped - self.first
        self.ambiguous = self.low != self.high

    def inside(self, pixel: Array) -> Array:
        return (pixel >= 0) & (pixel < self.size)


def _at(x: Array, rows: _Columns, columns: _Columns, row: Array, column: Array) -> Array:
    """Return x at pixels (n, h, w) of every channel, as (n, h, w, c), with 0 outside the input."""
    exists = rows.inside(row) & columns.inside(column)
    images = np.arange(x.shape[0])[:, None, None]
    values = x.transpose(0, 2, 3, 1)[images, np.where(exists, row, 0), np.where(exists, column, 0)]
    return np.where(exists[..., None], values, 0)


def _weighted(weight: Array, values: Array) -> Array:
    """Return weight * values, or 0 for a zero weight even if the value is not finite."""
    return np.where(weight[..., None] == 0, 0, weight[..., None] * values)


def _sampled(operation: Any, x: Array, grid: Array) -> tuple[_Columns, _Columns]:
    return _Columns(operation, grid[..., 1], x.shape[2]), _Columns(operation, grid[..., 0], x.shape[3])


def _weights(rows: _Columns, columns: _Columns, row: int, column: int) -> Array:
    return (rows.part if row else 1 - rows.part) * (columns.part if column else 1 - columns.part)


def _around(x: Array, rows: _Columns, columns: _Columns) -> Array:
    """Return the sum of the absolute values of all pixels around each sample that an implementation may use:
    (n, h, w, c).
    """
    found = np.zeros((*rows.first.shape, x.shape[1]), x.dtype)
    for row, column in product(range(3), range(3)):
        reached = (rows.low + row <= rows.high + 1) & (columns.low + column <= columns.high + 1)
        values = np.abs(_at(x, rows, columns, rows.low + row, columns.low + column))
        found += np.where(reached[..., None], values, 0)
    return found


@implements(SpatialTfSamplerForward)
def sampler_forward(operation: SpatialTfSamplerForward, x: Array, grid: Array) -> Exact:
    rows, columns = _sampled(operation, x, grid)
    value = np.zeros((*grid.shape[:3], x.shape[1]), x.dtype)
    terms = value.copy()
    for row, column in CORNERS:
        weight = _weights(rows, columns, row, column)
        part = _weighted(weight, _at(x, rows, columns, rows.first + row, columns.first + column))
        value += part
        terms += np.abs(part)
    around = _around(x, rows, columns)
    moved = around * ((rows.error + columns.error) / CORNER)[..., None]
    terms = terms + np.where(np.isfinite(moved), moved, 0)
    # A non-finite pixel may or may not count where its weight may be zero.
    edge = rows.ambiguous | columns.ambiguous | (rows.part == 0) | (columns.part == 0)
    unknown = ~np.isfinite(around) & edge[..., None]
    value, terms = np.where(unknown & ~np.isfinite(value), 0, value), np.where(unknown, np.inf, terms)
    sound = (rows.finite & columns.finite)[..., None]
    value, terms = np.where(sound, value, np.nan), np.where(sound, terms, 0)
    return Exact(value.transpose(0, 3, 1, 2), terms.transpose(0, 3, 1, 2), CORNER)


@implements(SpatialTfSamplerBackward)
def sampler_backward(operation: SpatialTfSamplerBackward, x: Array, dy: Array, grid: Array) -> dict[str, Exact]:
    rows, columns = _sampled(operation, x, grid)
    gradient = dy.transpose(0, 2, 3, 1)
    return {
        "dx": _gradient_of_x(x, gradient, rows, columns),
        "dgrid": _gradient_of_grid(x, gradient, rows, columns),
    }


def _gradient_of_x(x: Array, dy: Array, rows: _Columns, columns: _Columns) -> Exact:
    """Add dy times the sample's weight to every pixel around the sample."""
    images, channels, height, width = x.shape
    value, terms, count, unknown, squares = (np.zeros((images, height, width, channels), x.dtype) for _ in range(5))
    image = np.broadcast_to(np.arange(images)[:, None, None], rows.first.shape)
    sound = rows.finite & columns.finite

    def scatter(onto: Array, row: Array, column: Array, what: Array, where: Array) -> None:
        kept = where & sound & rows.inside(row) & columns.inside(column)
        np.add.at(onto, (image[kept], row[kept], column[kept]), what[kept])

    always = np.ones(rows.first.shape, bool)
    for row, column in CORNERS:
        part = _weighted(_weights(rows, columns, row, column), dy)
        place = rows.first + row, columns.first + column
        scatter(value, *place, part, always)
        scatter(terms, *place, np.abs(part), always)
        scatter(squares, *place, np.square(part), always)
        scatter(count, *place, np.ones_like(part), always)
    error = (rows.error + columns.error)[..., None] * np.abs(dy)
    edge = rows.ambiguous | columns.ambiguous | (rows.part == 0) | (columns.part == 0)
    doubtful = ~np.isfinite(dy) & edge[..., None]
    moved = np.zeros_like(terms)
    for row, column in product(range(3), range(3)):
        reached = (rows.low + row <= rows.high + 1) & (columns.low + column <= columns.high + 1)
        place = rows.low + row, columns.low + column
        scatter(moved, *place, np.where(np.isfinite(error), error, 0), reached)
        scatter(unknown, *place, doubtful.astype(x.dtype), reached)
    found = walked(count, value, np.sqrt(squares)) + few(CORNER) * squares + few(moved)
    terms = terms * (count + CORNER) + moved
    value = np.where((unknown > 0) & ~np.isfinite(value), 0, value)
    terms = np.where(unknown > 0, np.inf, terms)
    spread = Steps(found.transpose(0, 3, 1, 2))
    return Exact(value.transpose(0, 3, 1, 2), terms.transpose(0, 3, 1, 2), 1, spread=spread)


def _gradient_of_grid(x: Array, dy: Array, rows: _Columns, columns: _Columns) -> Exact:
    """Compute the slope around each sample, times (W - 1) / 2 along the row and (H - 1) / 2 along the column."""
    corner = {place: _at(x, rows, columns, rows.first + place[0], columns.first + place[1]) for place in CORNERS}
    around = _around(x, rows, columns)
    shape, channels = rows.first.shape, x.shape[1]
    value, terms, squares = (np.zeros((*shape, 2), x.dtype) for _ in range(3))
    known = np.isfinite(dy) & np.isfinite(around)
    dy, around = np.where(known, dy, 0), np.where(known, around, 0)
    for component, (along, across) in enumerate(((columns, rows), (rows, columns))):
        slope = np.zeros_like(dy)
        for side in (0, 1):
            near, far = (corner[(side, end) if component == 0 else (end, side)] for end in (0, 1))
            part = across.part if side else 1 - across.part
            slope += part[..., None] * np.where(known, far - near, 0)
        total, norm = (dy * slope).sum(-1), np.sqrt(np.square(dy * slope).sum(-1))
        value[..., component] = along.scale * total
        beside = few(SLOPE) * np.square(dy * around).sum(-1) + few(across.error * (np.abs(dy) * around).sum(-1))
        squares[..., component] = along.scale**2 * (walked(channels, total, norm) + beside)
        bound = np.abs(dy) * around * (channels + SLOPE + across.error[..., None])
        bound = along.scale * bound.sum(-1)
        undetermined = along.ambiguous | ~known.all(-1)
        terms[..., component] = np.where(undetermined, np.inf, bound)
    sound = (rows.finite & columns.finite)[..., None]
    return Exact(np.where(sound, value, np.nan), np.where(sound, terms, 0), 1, spread=Steps(squares))
