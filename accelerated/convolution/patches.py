"""Describe convolutions of patches, whose stride is their window, as convolutions of more channels.

No two patches share an element of x. So the elements of a patch may be channels of one pixel. Where x and the filter
have channels innermost, the last axis joins the channels in place: the same memory has fewer, wider pixels. All axes
join them in place where one window covers an image that has the layout of the filter. Elsewhere all axes join them in a
copy, in the order of the filter, which then is a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple, TypeVar

from dualdnn.api.operations import (
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    ConvolutionSpec,
    FilterSpec,
    TensorSpec,
)
from dualdnn.api.operations.specs import DOUBLE, FLOAT, NHWC

from .problem import VECTOR_BYTES, channels_last, in_channels

P = TypeVar("P")
TRANSFORMS = ("FFT", "WINOGRAD")  # algorithms of certain windows, which must stay these windows
MAX_STEP = 8  # pixels, maximum stride of TMA between windows
MAX_SPLIT = 17  # rows of a patch, up to which TMA reads them as the depth of a volume
WIDER = {8: DOUBLE, 4: FLOAT}  # bytes -> a type of that size, to copy several elements as one


class Names(NamedTuple):
    """Name the image, the filter and the tensors of output pixels in an operation."""

    image: str
    filter: str
    outputs: tuple[str, ...]


NAMES = {
    ConvolutionForward: Names("x", "w", ("y",)),
    ConvolutionBiasActivationForward: Names("x", "w", ("y", "z", "bias")),
    ConvolutionBackwardData: Names("dx", "w", ("dy",)),
    ConvolutionBackwardFilter: Names("x", "dw", ("dy",)),
}


def described(problem: Callable[..., P]) -> Callable[..., P]:
    """Return the function that describes operations to their solvers, with patches among the channels in place."""

    def of(operation: Any, *others: Any, **options: Any) -> P:
        return problem(in_place(operation), *others, **options)

    return of


def in_place(operation: Any) -> Any:
    """Return the same operation on the same memory, with axes of patches among the channels where memory allows."""
    while (found := _with_one_pixel(operation) or _with_wider_pixels(operation)) is not None:
        operation = found
    return _with_rows_apart(operation) or operation


def _with_one_pixel(o: Any) -> Any:
    """Return the operation with all elements of an image as channels of one pixel, or None where this is not a view.

    One window covers the image, and has its layout.
    """
    names, c = NAMES[type(o)], o.convolution
    x, w = getattr(o, names.image), getattr(o, names.filter)
    if c.group_count > 1 or c.is_flipped or any(c.padding) or x.dims[1:] != w.dims[1:] or prod(x.dims[2:]) == 1:
        return None
    steps = zip(x.dims[1:], x.strides[1:], w.tensor.strides[1:], strict=True)
    alike = all(extent == 1 or step == of_filter for extent, step, of_filter in steps)
    terms, ones = prod(w.dims[1:]), (1,) * c.rank
    in_vectors = x.vector_length == w.tensor.vector_length == 1 and terms * x.scalar_bytes % VECTOR_BYTES == 0
    if not alike or not in_vectors or any(name in o.algo.name for name in TRANSFORMS):
        return None
    pixel = replace(x, dims=(x.dims[0], terms, *ones), strides=(x.strides[0], 1, *(terms,) * c.rank))
    matrix = FilterSpec(w.data_type, NHWC, (w.dims[0], terms, *ones))
    spec = replace(c, stride=ones, dilation=ones)
    return replace(o, convolution=spec, **{names.image: pixel, names.filter: matrix})


def _with_wider_pixels(o: Any) -> Any:
    """Return the operation with the last axis of its patches among the channels, or None where these are not a view."""
    names, c = NAMES[type(o)], o.convolution
    x, w = getattr(o, names.image), getattr(o, names.filter)
    d = max((d for d in range(c.rank) if x.dims[2 + d] > 1 or w.dims[2 + d] > 1), default=0)
    channels, taps = w.dims[1], w.dims[2 + d]
    beyond = [(w.dims[2 + e], c.padding[e]) for e in range(d + 1, c.rank)]
    plain = c.group_count == 1 and not c.is_flipped and set(beyond) <= {(1, 0)}
    if not (plain and _are_patches(c, w, d) and taps > 1 and (w.format == NHWC or channels == 1)):
        return None
    if not (channels_last(x) and x.strides[2 + d] == channels) or taps * channels * x.scalar_bytes % VECTOR_BYTES:
        return None
    extent, left = divmod(x.dims[2 + d], taps)
    if left and names.image == "dx":
        return None  # The last elements do not fill a wider pixel.
    strides = (x.strides[0], 1, *x.strides[2:])
    wide = replace(
        x,
        dims=_with(_with(x.dims, 1, taps * channels), 2 + d, extent),
        strides=_with(strides, 2 + d, taps * channels),
    )
    filters = FilterSpec(w.data_type, NHWC, _with(_with(w.dims, 1, taps * channels), 2 + d, 1))
    spec = replace(c, stride=_with(c.stride, d, 1))
    return replace(o, convolution=spec, **{names.image: wide, names.filter: filters})


def _with_rows_apart(o: Any) -> Any:
    """Return the operation on volumes that have rows of patches as depth, where their stride is too long for TMA."""
    names, c = NAMES[type(o)], o.convolution
    x, w = getattr(o, names.image), getattr(o, names.filter)
    if names.image == "dx" or c.rank != 2 or not channels_last(x) or not _are_patches(c, w, 0):
        return None
    rows = w.dims[2]
    if not MAX_STEP < rows <= MAX_SPLIT or c.stride[1] > MAX_STEP or w.tensor.vector_length > 1:
        return None

    def deep(values: tuple[int, ...], depth: int, height: int) -> tuple[int, ...]:
        return (*values[:-2], depth, height, values[-1])

    spec = replace(
        c, padding=deep(c.padding, 0, 0), stride=deep(c.stride, 1, 1), dilation=deep(c.dilation, 1, 1)
    )  # fmt: skip
    step = x.strides[2]
    volumes = replace(x, dims=deep(x.dims, x.dims[2] // rows, rows), strides=deep(x.strides, rows * step, step))
    changed = {names.image: volumes, names.filter: replace(w, dims=deep(w.dims, 1, rows))}
    for name in names.outputs:
        tensor = getattr(o, name)
        strides = deep(tensor.strides, tensor.strides[2], tensor.strides[2])
        changed[name] = replace(tensor, dims=deep(tensor.dims, tensor.dims[2], 1), strides=strides)
    return replace(o, convolution=spec, **changed)


def _with(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    """Return the values with another one at a position."""
    return (*values[:at], value, *values[at + 1 :])


def _are_patches(c: ConvolutionSpec, w: FilterSpec, d: int) -> bool:
    """Return whether windows lie side by side along a spatial dimension."""
    taps = w.dims[2 + d]
    return c.stride[d] == taps and c.padding[d] == 0 and (taps == 1 or c.dilation[d] == 1)


class Patches:
    """Describe a copy of x with one pixel for each patch, whose channels are in the order of the filter.

    ``operation``: the same convolution or gradient, of windows of one pixel. ``source`` and ``target`` describe x and
    its copy with equal dimensions.
    """

    def __init__(self, operation: Any) -> None:
        self.names, c, rank = NAMES[type(operation)], operation.convolution, operation.convolution.rank
        x, w = getattr(operation, self.names.image), getattr(operation, self.names.filter)
        outputs, taps = getattr(operation, self.names.outputs[0]).dims[2:], w.dims[2:]
        terms, groups, ones = prod(w.dims[1:]), c.group_count, (1,) * rank
        dims = (x.dims[0], groups * terms, *outputs)
        self.x = in_channels(TensorSpec(x.data_type, dims, (0,) * len(dims)))
        image, channel, *steps = x.strides
        apart = (stride * step for stride, step in zip(c.stride, steps, strict=True))
        sizes = (x.dims[0], groups, w.dims[1], *outputs, *taps)
        self.source = TensorSpec(x.data_type, sizes, (image, w.dims[1] * channel, channel, *apart, *steps))
        (pitch, _, *pixels), (_, term, *in_filter) = self.x.strides, w.tensor.strides
        self.target = TensorSpec(x.data_type, sizes, (pitch, terms, term, *pixels, *in_filter))
        plain = replace(c, stride=ones, dilation=ones)
        matrix = FilterSpec(w.data_type, NHWC, (w.dims[0], terms, *ones))
        changed = {self.names.image: self.x, self.names.filter: matrix}
        self.operation = replace(operation, convolution=plain, **changed)

    @classmethod
    def of(cls, operation: Any) -> Patches | None:
        """Return the patches of an operation, or None where windows do not lie side by side or are pixels."""
        names, c = NAMES[type(operation)], operation.convolution
        x, w = getattr(operation, names.image), getattr(operation, names.filter)
        side_by_side = all(_are_patches(c, w, d) for d in range(c.rank))
        if not side_by_side or prod(w.dims[2:]) == 1 or c.is_flipped or x.vector_length * w.tensor.vector_length > 1:
            return None
        return cls(operation)

    def moved(self, aligned: bool) -> tuple[TensorSpec, TensorSpec]:
        """Return the source and the target of a copy, in the widest elements of which both consist."""
        axes = _merged(zip(self.source.dims, self.source.strides, self.target.strides, strict=True))
        count = next((n for n in _counts(self.x.scalar_bytes) if aligned and _consist(axes, n)), 1)
        data_type = WIDER[count * self.x.scalar_bytes] if count > 1 else self.x.data_type
        (run, *_), *others = axes
        inner = (run // count, 1, 1) if count > 1 else axes[0]
        outer = ((extent, *(step // count for step in steps)) for extent, *steps in others)
        dims, *strides = zip((1, 0, 0), inner, *outer, strict=True)
        source, target = (TensorSpec(data_type, dims, side) for side in strides)
        return source, target

    def covers(self, x: TensorSpec) -> bool:
        """Return whether each element of x is in a patch."""
        outputs, taps = self.source.dims[3 : len(x.dims) + 1], self.source.dims[len(x.dims) + 1 :]
        return all(n * t >= extent for n, t, extent in zip(outputs, taps, x.dims[2:], strict=True))


def _merged(axes: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return (extent, source stride, target stride) of the axes of a copy, the target's fastest first. Axes that follow
    each other on both sides are one.
    """
    found: list[tuple[int, int, int]] = []
    for extent, *steps in sorted((axis for axis in axes if axis[0] > 1), key=lambda axis: axis[2]):
        if found and steps == [found[-1][0] * step for step in found[-1][1:]]:
            found[-1] = (found[-1][0] * extent, *found[-1][1:])
        else:
            found.append((extent, steps[0], steps[1]))
    return found or [(1, 1, 1)]


def _counts(scalar_bytes: int) -> tuple[int, ...]:
    """Return the numbers of scalars that one element of a wider type moves."""
    return tuple(nbytes // scalar_bytes for nbytes in WIDER if nbytes > scalar_bytes)


def _consist(axes: list[tuple[int, int, int]], count: int) -> bool:
    """Return whether both sides of a copy consist of elements of ``count`` neighbours."""
    (run, *steps), *others = axes
    return steps == [1, 1] and run % count == 0 and all(step % count == 0 for _, *both in others for step in both)
