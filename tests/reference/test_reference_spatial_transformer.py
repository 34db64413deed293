"""Test the spatial transformer against loops over all pixels, and its gradients against central differences."""

from __future__ import annotations

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnSamplerType_t
from dualdnn.api.operations import (
    SpatialTfGridGeneratorBackward,
    SpatialTfGridGeneratorForward,
    SpatialTfSamplerBackward,
    SpatialTfSamplerForward,
    SpatialTransformerSpec,
    TensorSpec,
)
from dualdnn.api.operations.specs import DOUBLE
from dualdnn.reference import evaluate

SHAPES = [
    ((2, 3, 4, 5), (2, 3, 6, 7)),
    ((1, 2, 1, 4), (1, 2, 5, 1)),
    ((3, 1, 3, 1), (3, 1, 1, 4)),
    ((1, 1, 5, 5), (1, 1, 3, 3)),
]
shapes = pytest.mark.parametrize("dims, source", SHAPES, ids=str)


def transformer(dims):
    return SpatialTransformerSpec(cudnnSamplerType_t.CUDNN_SAMPLER_BILINEAR, DOUBLE, dims)


def computed(operation, **arrays):
    """Return the exact results of an operation on arrays."""
    memory = {name: np.ascontiguousarray(array).view(np.uint8).reshape(-1) for name, array in arrays.items()}
    return {name: exact.value.astype(float) for name, exact in evaluate(operation, memory).items()}


def grid_of(theta, height, width):
    """Return affine_grid with aligned corners by its definition; a single pixel is at -1."""
    grid = np.zeros((len(theta), height, width, 2))
    for n in range(len(theta)):
        for i in range(height):
            for j in range(width):
                xt = -1 + 2 * j / (width - 1) if width > 1 else -1
                yt = -1 + 2 * i / (height - 1) if height > 1 else -1
                grid[n, i, j] = theta[n] @ np.array([xt, yt, 1])
    return grid


def sampled(x, grid):
    """Return bilinear samples of x, zero outside, as sums over all pixels with tent weights."""
    pixels = [(grid[..., k, None] + 1) * (size - 1) / 2 - np.arange(size) for k, size in enumerate(x.shape[:1:-1])]
    columns, rows = (np.maximum(0, 1 - np.abs(distances)) for distances in pixels)
    return np.einsum("nijc,nijr,nkrc->nkij", columns, rows, x, optimize=True)


def difference(function, at, step=1e-6):
    """Return the gradient of a scalar function by central differences."""
    gradient = np.zeros_like(at)
    for index in np.ndindex(*at.shape):
        moved = [at.copy(), at.copy()]
        moved[0][index] += step
        moved[1][index] -= step
        gradient[index] = (function(moved[0]) - function(moved[1])) / (2 * step)
    return gradient


def away_from_pixels(random, dims, source):
    """Return a grid of samples, some outside, at least a tenth of a pixel from each row and column of pixels."""
    grid = np.zeros((dims[0], *dims[2:], 2))
    for component, size in enumerate((source[3], source[2])):
        cell = random.integers(-2, size + 1, grid.shape[:3])
        at = cell + random.uniform(0.1, 0.9, grid.shape[:3])
        grid[..., component] = 2 * at / (size - 1) - 1 if size > 1 else random.normal(size=grid.shape[:3])
    return grid


@shapes
def test_grids_and_their_gradient(dims, source):
    random = np.random.default_rng(0)
    theta, dgrid = random.normal(size=(dims[0], 2, 3)), random.normal(size=(dims[0], *dims[2:], 2))
    found = computed(SpatialTfGridGeneratorForward(transformer(dims)), theta=theta)["grid"]
    assert np.allclose(found, grid_of(theta, *dims[2:]), rtol=0, atol=1e-14)
    gradient = computed(SpatialTfGridGeneratorBackward(transformer(dims)), dgrid=dgrid)["dtheta"]
    expected = difference(lambda t: (grid_of(t, *dims[2:]) * dgrid).sum(), theta)
    assert np.allclose(gradient, expected, rtol=0, atol=1e-8)


@shapes
def test_samples(dims, source):
    """Samples agree with plain loops anywhere, also exactly at pixels and at the border."""
    random = np.random.default_rng(1)
    x = random.normal(size=source)
    operation = SpatialTfSamplerForward(
        transformer(dims), 1.0, 0.0, TensorSpec.packed(DOUBLE, source), TensorSpec.packed(DOUBLE, dims)
    )
    for grid in (
        random.normal(size=operation.grid.dims),
        random.choice([-1.5, -1.0, 0.0, 0.5, 1.0, 2.0], operation.grid.dims),
    ):
        assert np.allclose(computed(operation, x=x, grid=grid)["y"], sampled(x, grid), rtol=0, atol=1e-14)


@shapes
def test_gradients_are_central_differences(dims, source):
    random = np.random.default_rng(2)
    x, dy, grid = random.normal(size=source), random.normal(size=dims), away_from_pixels(random, dims, source)
    spec = TensorSpec.packed(DOUBLE, source)
    operation = SpatialTfSamplerBackward(
        transformer(dims), 1.0, 0.0, 1.0, 0.0, spec, spec, TensorSpec.packed(DOUBLE, dims)
    )
    found = computed(operation, x=x, dy=dy, grid=grid)
    assert np.allclose(found["dx"], difference(lambda x: (sampled(x, grid) * dy).sum(), x), rtol=0, atol=1e-8)
    expected = difference(lambda g: (sampled(x, g) * dy).sum(), grid)
    assert np.allclose(found["dgrid"], expected, rtol=0, atol=1e-7)
    assert np.abs(expected).max() > 0.1


def test_gradient_of_a_coordinate_at_a_pixel():
    """At a pixel, the gradient is the slope to the next pixel, or to zero after the last one (measured)."""
    x = np.array([[1, 2, 3, 4, 5], [10, 20, 30, 40, 50], [3, 2, 1, 0, 4]], float).reshape(1, 1, 3, 5)
    columns = np.array([-1.5, -1.25, -1.0, -0.5, 0.0, 1.0, 1.25, 1.5])
    dims = (1, 1, 1, columns.size)
    grid = np.stack([columns, np.zeros_like(columns)], -1).reshape(1, 1, -1, 2)
    spec = TensorSpec.packed(DOUBLE, x.shape)
    operation = SpatialTfSamplerBackward(
        transformer(dims), 1.0, 0.0, 1.0, 0.0, spec, spec, TensorSpec.packed(DOUBLE, dims)
    )
    found = computed(operation, x=x, dy=np.ones(dims), grid=grid)
    assert found["dgrid"][..., 0].ravel().tolist() == [20, 20, 20, 20, 20, -100, -100, 0]


def test_coordinates_that_are_no_numbers():
    dims = (1, 1, 1, 4)
    grid = np.array([[np.nan, 0], [0, np.inf], [1e300, 0], [0.25, 0.25]]).reshape(1, 1, 4, 2)
    x = np.arange(1, 10, dtype=float).reshape(1, 1, 3, 3)
    spec, y = TensorSpec.packed(DOUBLE, x.shape), TensorSpec.packed(DOUBLE, dims)
    value = computed(SpatialTfSamplerForward(transformer(dims), 1.0, 0.0, spec, y), x=x, grid=grid)["y"].ravel()
    assert np.isnan(value[:2]).all() and value[2] == 0 and value[3] == 6.0
    operation = SpatialTfSamplerBackward(transformer(dims), 1.0, 0.0, 1.0, 0.0, spec, spec, y)
    found = computed(operation, x=x, dy=np.ones(dims), grid=grid)
    assert np.isnan(found["dgrid"][0, 0, :2]).all() and found["dgrid"][0, 0, 2:].tolist() == [[0, 0], [1, 3]]
    assert np.isclose(found["dx"].sum(), 1.0)
