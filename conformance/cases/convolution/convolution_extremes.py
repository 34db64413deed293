"""Holds cases of convolutions, gradients and matrices with padding, stride and dilation near the limit of 32 bits."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from itertools import chain, count, islice
from math import prod
from typing import Any, NamedTuple

import pytest
from dualdnn.api.operations import ConvolutionBackwardData, ConvolutionBackwardFilter, FilterSpec, Operation
from dualdnn.api.status import NOT_SUPPORTED
from dualdnn.api.support.convolution import POSITIONS, Problem, unsupported
from dualdnn.api.support.convolution_gradients import data_unsupported, filter_unsupported
from dualdnn.conformance.convolution_kinds import convolutions, gradients
from dualdnn.conformance.marks import shows

from . import convolution_backward_data as data
from . import convolution_backward_filter as filters
from .convolution import convolution
from .convolution_filters import im2col

DRAWN = 24  # operations; thousands more were right
LARGE = (2**31 - 2, 2**30 - 1, 2**30 - 3, 2**29, 2**29 + 1, 2**28 + 1, 10**9 + 7)  # Draws may be less by up to 2**20.
MAX_OUTPUTS = 4


class Axis(NamedTuple):
    """Describes one dimension of a convolution."""

    extent: int
    taps: int
    padding: int
    stride: int
    dilation: int

    @property
    def reach(self) -> int:
        """Return how far the window can move over the padded input."""
        return self.extent + 2 * self.padding - (self.taps - 1) * self.dilation - 1

    @property
    def outputs(self) -> int:
        return 1 + self.reach // self.stride


# Offsets of rows are powers of 2, also the smallest that 32 bits cannot count.
POWERS = Axis(extent=4, taps=2, padding=2**29, stride=2**29, dilation=2**29)


def _number(rng: random.Random, small: tuple[int, ...], large: bool) -> int:
    return rng.choice(LARGE) - rng.choice((0, 0, 1, 2, rng.randrange(2**20))) if large else rng.choice(small)


def _axis(rng: random.Random) -> Axis:
    """Draw an axis of few outputs, one of which has a tap inside the input."""
    if rng.random() < 0.2:
        return POWERS
    while True:
        extent, taps = rng.randint(1, 6), rng.randint(1, 3)
        stride, dilation = _number(rng, (1, 2, 3), rng.random() < 0.6), _number(rng, (1, 1, 2), rng.random() < 0.3)
        output, tap = rng.randrange(MAX_OUTPUTS), rng.randrange(taps)
        padding = max(0, output * stride + tap * dilation - rng.randrange(extent))
        axis = Axis(extent, taps, padding, stride, dilation)
        if extent + 2 * padding < POSITIONS and axis.reach >= 0 and axis.outputs <= MAX_OUTPUTS:
            return axis


@cache
def _kinds() -> dict[type[Operation], list[Operation]]:
    """Return by type an operation of every kind that the support tables have."""
    kinds: dict[type[Operation], list[Operation]] = {}
    for operation in chain(convolutions(), gradients()):
        kinds.setdefault(type(operation), []).append(operation)
    return kinds


def _channels(rng: random.Random, operation: Any) -> int:
    """Draw the channels of an operation, which vectors and groups decide."""
    source = next(getattr(operation, name) for name in ("x", "dx") if hasattr(operation, name))
    given: int = source.dims[1]
    return given if source.vector_length > 1 or operation.convolution.group_count > 1 else rng.choice((given, 5, 3))


def _with_dims(spec: Any, dims: tuple[int, ...]) -> Any:
    """Return the description of a packed tensor or filter in the same format."""
    if isinstance(spec, FilterSpec):
        return replace(spec, dims=dims)
    order = sorted(range(spec.rank), key=lambda d: (-spec.strides[d], d))
    vectors = (dims[0], dims[1] // spec.vector_length, *dims[2:])
    strides = {d: prod(vectors[inner] for inner in order[position + 1 :]) for position, d in enumerate(order)}
    return replace(spec, dims=dims, strides=tuple(strides[d] for d in range(spec.rank)))


def drawn(number: int) -> Operation:
    """Return the operation of this number."""
    rng = random.Random(number)
    operation: Any = rng.choice(_kinds()[rng.choice(list(_kinds()))])
    channels = _channels(rng, operation)
    axes = [_axis(rng) for _ in range(operation.convolution.rank)]
    extents, taps, padding, stride, dilation = zip(*axes, strict=True)
    spec = replace(operation.convolution, padding=padding, stride=stride, dilation=dilation)
    outputs = tuple(axis.outputs for axis in axes)
    sizes = {"x": extents, "dx": extents, "w": taps, "dw": taps, "y": outputs, "dy": outputs, "z": outputs}
    known = {name: found for name in sizes if (found := getattr(operation, name, None)) is not None}
    of_group = channels // spec.group_count
    counts = {"x": channels, "dx": channels, "w": of_group, "dw": of_group}
    resized = {
        name: _with_dims(found, (found.dims[0], counts.get(name, found.dims[1]), *sizes[name]))
        for name, found in known.items()
    }
    # Blending makes results without a product depend on the call.
    blended = {"beta": 0.5} if hasattr(operation, "beta") else {}
    return replace(operation, convolution=spec, **blended, **resized)


@cache
def _supported() -> tuple[Operation, ...]:
    """Return the first drawn operations that the support tables have."""
    return tuple(islice(filter(is_supported, map(drawn, count())), DRAWN))


def is_supported(operation: Any) -> bool:
    """Return whether the algorithm of an operation takes its geometry."""
    x, w, y = (getattr(operation, name, None) or getattr(operation, f"d{name}") for name in ("x", "w", "y"))
    problem = Problem(operation.convolution, x, w, y)
    if isinstance(operation, ConvolutionBackwardData):
        return data_unsupported(problem, operation.algo) is None
    if isinstance(operation, ConvolutionBackwardFilter):
        return filter_unsupported(problem, operation.algo) is None
    return unsupported(problem, operation.algo) is None


@pytest.mark.ours
@pytest.mark.parametrize("number", range(DRAWN))
def test_geometries_as_large_as_32_bits_count(run, number):
    run(_supported()[number])


FURTHEST: dict[str, Any] = {"padding": (0, 2**30 - 2), "stride": (1, 2**30)}  # Four columns then span 2**31 positions.
BEYOND = {
    "cudnnConvolutionForward/c58": convolution((1, 2, 3, 4), (2, 2, 1, 1), **FURTHEST),
    "cudnnConvolutionBackwardData/c31": data.gradient((1, 2, 3, 4), (2, 2, 1, 1), **FURTHEST),
    "cudnnConvolutionBackwardFilter/c49": filters.gradient((1, 2, 3, 4), (2, 2, 1, 1), **FURTHEST),
    "cudnnIm2Col/c04": im2col((1, 2, 3, 4), (2, 2, 1, 1), **FURTHEST),
}


@pytest.mark.ours
@shows(*BEYOND)
@pytest.mark.parametrize("clause", BEYOND)
def test_a_padded_input_of_more_positions_than_32_bits_count(run, refused, clause):
    """A padded input with 2**31 positions is refused, and one position fewer is computed."""
    operation: Any = BEYOND[clause]
    refused(operation, NOT_SUPPORTED, clause)
    nearer = replace(operation.convolution, padding=(0, 2**30 - 3), stride=(1, 2**30 - 1))
    run(replace(operation, convolution=nearer))
