"""Holds cases of the spatial transformer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnSamplerType_t
from dualdnn.api.operations import SpatialTfSamplerBackward, SpatialTfSamplerForward, SpatialTransformerSpec, TensorSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.marks import by_name, shows
from dualdnn.conformance.trial import prepare
from dualdnn.reference.view import NUMPY_TYPES

if TYPE_CHECKING:
    from dualdnn.conformance.trial import Trial

BILINEAR = cudnnSamplerType_t.CUDNN_SAMPLER_BILINEAR
TYPES = (FLOAT, DOUBLE, HALF)
INPUT = (2, 3, 6, 7)
OUTPUT = (2, 3, 4, 5)  # The height and the width differ from those of the input.
by_type = pytest.mark.parametrize("data_type", TYPES, ids=by_name)


def described(data_type: Any = FLOAT, dims: Any = OUTPUT) -> SpatialTransformerSpec:
    return SpatialTransformerSpec(BILINEAR, data_type, dims)


def forward(
    data_type: Any = FLOAT,
    dims: Any = OUTPUT,
    source: Any = INPUT,
    x: Any = None,
    y: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> SpatialTfSamplerForward:
    x, y = x or TensorSpec.packed(data_type, source), y or TensorSpec.packed(data_type, dims)
    return SpatialTfSamplerForward(described(data_type, dims), alpha, beta, x, y)


def backward(
    data_type: Any = FLOAT,
    dims: Any = OUTPUT,
    source: Any = INPUT,
    x: Any = None,
    dx: Any = None,
    dy: Any = None,
    alphas: Any = (1.0, 1.0),
    betas: Any = (0.0, 0.0),
) -> SpatialTfSamplerBackward:
    x, dy = x or TensorSpec.packed(data_type, source), dy or TensorSpec.packed(data_type, dims)
    factors = (alphas[0], betas[0], alphas[1], betas[1])
    return SpatialTfSamplerBackward(described(data_type, dims), *factors, x, dx or x, dy)


def with_grid(operation: Any, coordinates: Any, inputs: str = "normal") -> Any:
    """Return the memory of an operation's inputs, with these coordinates (..., 2) repeated."""
    memory = {name: prepare(operation, inputs, 5)[name] for name in operation.reads}
    kind = NUMPY_TYPES[operation.transformer.data_type]
    memory["grid"] = np.resize(np.asarray(coordinates, kind), operation.grid.dims).view(np.uint8).reshape(-1)
    return memory


# --- descriptors ---


@shows("cudnnCreateSpatialTransformerDescriptor/c01 c02", "cudnnDestroySpatialTransformerDescriptor/c01 c02",
       "cudnnSpatialTransformerDescriptor_t/c01 c02", "cudnnSetSpatialTransformerNdDescriptor/c01 c03-c05")  # fmt: skip
def test_descriptors(cudnn: Any) -> None:
    """Every type and rank is accepted, also when set again; entries of dimA after nbDims are ignored."""
    first, second = (cudnn.cudnnCreateSpatialTransformerDescriptor() for _ in range(2))
    for data_type in TYPES:
        for rank in (3, 4, 5, 8):
            cudnn.cudnnSetSpatialTransformerNdDescriptor(first, BILINEAR, data_type, rank, (2, 3, 4, 5, 2, 1, 1, 1, -7))
    cudnn.cudnnDestroySpatialTransformerDescriptor(first)
    cudnn.cudnnSetSpatialTransformerNdDescriptor(second, BILINEAR, FLOAT, 4, OUTPUT)
    cudnn.cudnnDestroySpatialTransformerDescriptor(second)


# --- sampling ---


POINTS = [-1.6, -1.5, -1.25, -1.000001, -1.0, -0.75, -0.5, 0.0, 0.5, 1.0, 1.000001, 1.25, 1.5, 1.6, 2.5, -37.5]
STRAY = [np.nan, np.inf, -np.inf, 1e4, -1e4, 6e4]


@shows("cudnnSpatialTfSamplerForward/c01", "cudnnSpatialTfSamplerBackward/c01", "cudnnSpatialTransformerDescriptor_t/c02",
       "cudnnSetSpatialTransformerNdDescriptor/c01")  # fmt: skip
@by_type
def test_at_and_beyond_the_borders(trial: Callable[..., Trial], data_type: Any) -> None:
    """Samples are right at pixels, between them, up to a pixel outside, and further; outside is 0.

    The gradient of a coordinate at a pixel is the one towards the next pixel.
    """
    x, dims = (1, 2, 3, 5), (1, 2, 16, 16)
    pairs = [(a, b) for a in POINTS for b in POINTS]
    for operation in (forward(data_type, dims, x), backward(data_type, dims, x)):
        trial(operation, before=with_grid(operation, pairs))


@shows("cudnnSpatialTfSamplerBackward/c01")
@pytest.mark.parametrize("data_type, layout", [(FLOAT, "nchw"), (HALF, "nhwc")], ids=str)
def test_many_samples(trial: Callable[..., Trial], data_type: Any, layout: str) -> None:
    """An image has more samples than several tiles: scattered over the input and beyond, and close together."""
    x, dims = laid_out(data_type, (2, 9, 20, 37), layout), (2, 9, 41, 53)
    operation = backward(data_type, dims, x=x, dy=laid_out(data_type, dims, layout), betas=(0.5, 0.5))
    rng = np.random.default_rng(5)
    scattered, near = rng.normal(0, 0.7, (41 * 53, 2)), rng.normal(0.1, 0.02, (41 * 53, 2))
    trial(operation, before=with_grid(operation, [*scattered, *near]))
    trial(forward(data_type, dims, x=x, y=operation.dy))


@shows("cudnnSpatialTfSamplerForward/c01")
@pytest.mark.parametrize("layout, of_y", [("nchw", "nchw"), ("nhwc", "nhwc"), ("gaps", "gaps"), ("nchw", "gaps")])
@by_type
def test_rotated_images(trial: Callable[..., Trial], data_type: Any, layout: str, of_y: str) -> None:
    """Affine grids sample neighbouring pixels: at small and large scales, far outside, and with NaN coordinates.

    The last image, and a corner of another one, have scattered samples.
    """
    images, channels, height, width = dims = (5, 3, 110, 160)
    source = (images, channels, 104, 160)
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    grid = [np.stack([s * x - 0.2 * y + b, 0.2 * x + s * y], axis=-1) for s, b in ((0.9, 0.0), (3.0, 0.1), (0.05, 1.0))]
    grid += [grid[0].copy(), np.random.default_rng(3).normal(0, 0.7, (height, width, 2))]
    grid[0][3, ::7] = np.nan
    grid[3][:16, :16] = np.random.default_rng(4).normal(0, 0.7, (16, 16, 2))
    operation = forward(
        data_type, dims, x=laid_out(data_type, source, layout), y=laid_out(data_type, dims, of_y), beta=0.5
    )
    trial(operation, before=with_grid(operation, np.stack(grid)))


@shows("cudnnSpatialTfSamplerBackward/c01")
@pytest.mark.parametrize(
    "data_type, channels, layout",
    [(HALF, 80, "nhwc"), (HALF, 36, "nhwc"), (FLOAT, 33, "nhwc"), (DOUBLE, 34, "nhwc")],
    ids=str,
)
def test_many_channels_side_by_side(trial: Callable[..., Trial], data_type: Any, channels: int, layout: str) -> None:
    """NHWC channels fill vectors, parts of them or single elements, in two tiles. Pixels have many samples or few."""
    source, dims = (2, channels, 17, 3), (2, channels, 11, 13)
    x, dy = laid_out(data_type, source, layout), laid_out(data_type, dims, layout)
    spots = np.random.default_rng(7).uniform(-1.1, 1.1, (11 * 13, 2))
    for betas in ((0.0, 0.0), (0.5, 0.5)):
        operation = backward(data_type, dims, x=x, dy=dy, alphas=(0.75, 1.5), betas=betas)
        trial(operation, before=with_grid(operation, spots))


@shows("cudnnSpatialTfSamplerBackward/c01")
def test_samples_behind_the_last_tile(trial: Callable[..., Trial]) -> None:
    """Samples may be just outside the last pixels of an input that is a multiple of the tile."""
    operation = backward(HALF, (1, 3, 41, 53), (1, 3, 16, 32), betas=(0.5, 0.5))
    near = np.random.default_rng(6).normal(1.0, 0.04, (41 * 53, 2))
    trial(operation, before=with_grid(operation, near))


@shows("cudnnSpatialTfSamplerForward/c01", "cudnnSpatialTfSamplerBackward/c01")
@by_type
def test_coordinates_are_not_finite(trial: Callable[..., Trial], data_type: Any) -> None:
    """NaN and infinities may be in one coordinate or both; far away is outside (docs/errata.md, D522)."""
    x, dims = (1, 2, 3, 5), (1, 2, 12, 12)
    values = [*STRAY, -0.9, -0.3, 0.1, 0.6, 0.8, 0.95]
    pairs = [(a, b) for a in values for b in values]
    for operation in (forward(data_type, dims, x), backward(data_type, dims, x)):
        trial(operation, before=with_grid(operation, pairs))


@shows("cudnnSpatialTfSamplerForward/c01", "cudnnSpatialTfSamplerBackward/c01")
@by_type
def test_the_largest_coordinates(trial: Callable[..., Trial], data_type: Any) -> None:
    """The largest finite coordinates are far outside, although their pixel position overflows (D522)."""
    x, dims, largest = (1, 2, 9, 11), (1, 2, 12, 12), np.finfo(NUMPY_TYPES[data_type]).max
    values = [largest, -largest, 0.6 * largest, -0.9, -0.6, -0.35, -0.1, 0.15, 0.4, 0.6, 0.85]
    pairs = [(a, b) for a in values for b in values]
    for operation in (forward(data_type, dims, x), backward(data_type, dims, x)):
        trial(operation, before=with_grid(operation, pairs))


@shows("cudnnSpatialTfSamplerForward/c01", "cudnnSpatialTfSamplerBackward/c01")
@pytest.mark.parametrize("beside", [(0.0, 0.4), (0.4, 0.0)], ids=str)
@by_type
def test_special_pixels_have_weight_zero(trial: Callable[..., Trial], data_type: Any, beside: Any) -> None:
    """A NaN or infinity with weight 0, or almost 0, may count or not; it reaches no other sample.

    Samples are on a row and between columns, or the reverse: exactly for nine pixels, rounded for seven.
    """
    for size in ((9, 7), (7, 9)):
        rows, columns = (np.linspace(-1, 1, n) + 2 * b / n for n, b in zip(size, beside, strict=True))
        grid = np.stack(np.meshgrid(columns, rows), axis=-1)
        for operation in (
            forward(data_type, (1, 2, *size), (1, 2, *size)),
            backward(data_type, (1, 2, *size), (1, 2, *size)),
        ):
            memory = with_grid(operation, grid)
            values = memory[operation.inputs[-2]].view(NUMPY_TYPES[data_type])  # These are the values of x, or of dy.
            values[3::13], values[8::31] = np.nan, -np.inf
            trial(operation, before=memory)
