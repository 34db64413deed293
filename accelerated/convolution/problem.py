"""Describe forward convolutions as matrix products: the structures of convolution/problem.cuh."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import c_double, c_int, c_longlong
from math import prod
from typing import Any, NamedTuple

from dualdnn.api.enumerations import cudnnActivationMode_t
from dualdnn.api.operations import (
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    ConvolutionSpec,
    FilterSpec,
    TensorSpec,
)
from dualdnn.api.operations.specs import NHWC

from ..plans import fields_of
from ..primitives.geometry import FastDivmod
from ..runtime.arguments import declared
from ..runtime.errors import DeviceError
from ..scalars import fill

Convolution = ConvolutionForward | ConvolutionBiasActivationForward
AXES = 3  # depth, height, width; the depth of an image is 1
WORD = 4  # 8-bit channels that are multiplied at once
VECTOR_BYTES = 16
LANE_TERMS = 4  # minimum terms per lane; fewer are not worth more lanes
MAX_LANES = 32  # lanes per element
MAX_OFFSET = 2**31 - 1  # elements of x to which a kernel counts, from the first of its launch


class Rates:
    """Hold the rates of kernels on an H200: bytes and operations a second (two for each multiply-add, of a word for
    WORDS), and seconds of a launch.
    """

    BANDWIDTH = 3.5e12
    LAUNCH = 4e-6  # seconds of a kernel that does nothing
    CLOCK = 1.755e9  # Hz, of a multiprocessor
    ODD_RESULTS = 2.8e11  # 16-bit results stored per second if a pixel is not a multiple of 16 bytes
    TENSOR_CORES, FLOATS, DOUBLES, WORDS = 650e12, 45e12, 20e12, 25e12


class ConvolutionStruct(ctypes.Structure):
    """Mirror ``Convolution`` of problem.cuh."""

    _fields_ = [
        *declared(c_longlong * 4, "x_pixel y_pixel"),
        *declared(c_longlong, "x_origin x_group y_channel y_group"),
        *declared(c_int, "x_channel_block x_channel"),
        *declared(c_int * AXES, "x_axis input step padding dilation"),
        *declared(c_int, "m first_m n k w_row y_n flipped y_vector y_rises x_vectors w_vectors"),
        *declared(FastDivmod * AXES, "output filter"),
        ("inner_channels", FastDivmod),
    ]


class EpilogueStruct(ctypes.Structure):
    """Mirror ``Epilogue`` of problem.cuh."""

    _fields_ = [
        *declared(c_double, "alpha beta"),
        *declared(c_int, "biased rectified reordered_bias"),
    ]


def spatial(values: tuple[int, ...], missing: int) -> tuple[int, ...]:
    """Return the values of depth, height and width; ``missing`` is the depth of an image."""
    return (missing,) * (AXES - len(values)) + tuple(values)


def scalar_strides(tensor: TensorSpec) -> tuple[int, ...]:
    """Return the strides (image, channel plane, depth, row, column), counted in scalars."""
    strides = tuple(stride * tensor.vector_length for stride in tensor.strides)
    return (*strides[:2], *spatial(strides[2:], 0))


def inner_channels_of(w: FilterSpec) -> int:
    """Return the channels that are contiguous in the filter's memory."""
    vector = w.tensor.vector_length
    if vector > 1:
        return vector
    # A filter of one pixel has the same memory in both formats.
    return w.dims[1] if w.format == NHWC or prod(w.dims[2:]) == 1 else 1


def describe(convolution: ConvolutionSpec, x: TensorSpec, w: FilterSpec, y_dims: tuple[int, ...]) -> ConvolutionStruct:
    """Return the product of w and the input under each output pixel, without a description of y."""
    value = ConvolutionStruct()
    image, plane, *axes = scalar_strides(x)
    outputs, taps = spatial(y_dims[2:], 1), spatial(w.dims[2:], 1)
    step, padding = spatial(convolution.stride, 1), spatial(convolution.padding, 0)
    lanes, channels = inner_channels_of(w), w.dims[1]
    vectorised = x.vector_length > 1
    value.x_pixel[:] = (image, *(s * stride for s, stride in zip(step, axes, strict=True)))
    value.x_origin = -sum(p * stride for p, stride in zip(padding, axes, strict=True))
    value.x_group = channels // x.vector_length * plane
    value.x_channel = 1 if vectorised else plane
    value.x_channel_block = plane if vectorised else lanes * plane
    value.x_axis[:], value.input[:] = axes, spatial(x.dims[2:], 1)
    value.step[:], value.padding[:], value.dilation[:] = step, padding, spatial(convolution.dilation, 1)
    value.m = y_dims[0] * prod(outputs)
    value.n = value.y_n = y_dims[1] // convolution.group_count
    value.k = value.w_row = prod(w.dims[1:])
    value.flipped = convolution.is_flipped
    for d in range(AXES):
        value.output[d], value.filter[d] = FastDivmod.of(outputs[d]), FastDivmod.of(taps[d])
    value.inner_channels = FastDivmod.of(lanes)
    return value


def with_result(value: ConvolutionStruct, y: TensorSpec) -> ConvolutionStruct:
    """Return the same product, written to y."""
    image, plane, *axes = scalar_strides(y)
    value.y_pixel[:], value.y_channel = (image, *axes), plane
    value.y_vector, value.y_rises = y.vector_length.bit_length() - 1, _rises(value)
    return value


def _rises(value: ConvolutionStruct) -> bool:
    """Return whether each output pixel follows the one before it in y.

    Only then do the offsets of a first and a last pixel say whether the pixels between them are contiguous. Other
    orders may permute those.
    """
    outputs = [output.divisor for output in value.output]
    extents, reach = (value.m // prod(outputs), *outputs), 0
    for extent, step in reversed([*zip(extents, value.y_pixel, strict=True)]):
        if extent > 1 and step <= reach:
            return False
        reach += (extent - 1) * step
    return True


def operation_product(operation: Convolution) -> ConvolutionStruct:
    """Return the product of a convolution."""
    o = operation
    return with_result(describe(o.convolution, o.x, o.w, o.y.dims), o.y)


class Matrices(NamedTuple):
    """Describe one matrix for each group: strides in elements between rows, columns and groups."""

    row: int
    column: int
    group: int


def matrix_product(pixels: int, filters: int, terms: int, x: Matrices, y: Matrices) -> ConvolutionStruct:
    """Return y[pixel, filter] = sum of x[pixel, term] * w[filter, term] for each group. The filters of all groups are
    contiguous.
    """
    value = ConvolutionStruct()
    value.x_pixel[0], value.x_channel, value.x_group = x
    value.y_pixel[0], value.y_channel, value.y_group = y
    for d in range(AXES):
        value.input[d] = value.dilation[d] = 1  # The steps are 0, so that every pixel is inside.
        value.output[d] = value.filter[d] = FastDivmod.of(1)
    value.m, value.n, value.k, value.w_row = pixels, filters, terms, terms
    value.inner_channels, value.y_rises = FastDivmod.of(terms), _rises(value)
    return value


def mark_vectors(value: ConvolutionStruct, groups: int, element_bytes: int) -> ConvolutionStruct:
    """Mark the operands that may be read in vectors of 16 bytes (8-bit integers: 4)."""
    width = 4 if element_bytes == 1 else VECTOR_BYTES // element_bytes
    value.x_vectors = (
        value.x_channel == 1 and value.inner_channels.divisor % width == 0 and all_multiples(value, groups, width)
    )
    value.w_vectors = value.k % width == 0 and value.w_row % width == 0
    return value


def all_multiples(value: ConvolutionStruct, groups: int, width: int) -> bool:
    """Return whether every stride in x that occurs is a multiple of ``width``."""
    extents = (value.m, *(output.divisor for output in value.output))
    steps = [step for step, extent in zip(value.x_pixel, extents, strict=True) if extent > 1]
    steps += [step for step, taps in zip(value.x_axis, value.filter, strict=True) if taps.divisor > 1]
    steps += [value.x_origin, value.x_group if groups > 1 else 0]
    return all(step % width == 0 for step in steps)  # Blocks of channels are vectors of 32.


def m_in_vectors(value: ConvolutionStruct, groups: int, width: int) -> bool:
    """Return whether aligned vectors of ``width`` pixels are contiguous and aligned in x, for every term.

    This holds for NCHW without padding, stride and taps.
    """
    if not width or value.first_m or any(value.padding) or any(taps.divisor > 1 for taps in value.filter):
        return False
    outputs = [output.divisor for output in value.output]
    extents = (value.m // prod(outputs), *outputs)
    walk = [(n, step) for n, step in zip(extents, value.x_pixel, strict=True) if n > 1]
    run = 1
    while walk and walk[-1][1] == run:
        run *= walk.pop()[0]
    blocks = value.k // value.inner_channels.divisor
    walk += [(value.inner_channels.divisor, value.x_channel), (blocks, value.x_channel_block), (groups, value.x_group)]
    steps = [step for n, step in walk if n > 1]
    return all(step % width == 0 for step in (run, *steps))


def in_words(value: ConvolutionStruct, groups: int) -> bool:
    """Count in words of four 8-bit channels, if x and w allow it."""
    if (
        value.x_channel != 1
        or value.inner_channels.divisor % WORD
        or value.w_row % WORD
        or not all_multiples(value, groups, WORD)
    ):
        return False
    for name in ("x_origin", "x_group", "x_channel_block", "k", "w_row"):
        setattr(value, name, getattr(value, name) // WORD)
    for steps in (value.x_pixel, value.x_axis):
        steps[:] = [step // WORD for step in steps]
    value.inner_channels = FastDivmod.of(value.inner_channels.divisor // WORD)
    return True


def channels_last(tensor: TensorSpec) -> bool:
    """Return whether the channels of a pixel are contiguous."""
    return tensor.vector_length == 1 and (tensor.strides[1] == 1 or tensor.dims[1] == 1)


def _has_pixels_in_a_row(tensor: TensorSpec) -> bool:
    """Return whether the channels of each pixel are contiguous, and follow those of the pixel before."""
    dims, strides, channels = tensor.dims, tensor.strides, tensor.dims[1]
    pitch = pixel_pitch((dims[0], *dims[2:]), (strides[0], *strides[2:]), channels)
    return channels_last(tensor) and pitch == channels


def in_one_row(
    convolution: ConvolutionSpec, w: FilterSpec, x: TensorSpec, y: TensorSpec
) -> tuple[TensorSpec, TensorSpec]:
    """Return x and y with all pixels in one row, where a filter of one tap meets contiguous pixels; else unchanged."""
    c = convolution
    plain = prod(w.dims[2:]) == c.group_count == max(c.stride) == 1 and not any(c.padding)
    if not plain or not all(map(_has_pixels_in_a_row, (x, y))):
        return x, y
    row = (*(1,) * (c.rank - 1), x.dims[0] * prod(x.dims[2:]))
    x, y = (TensorSpec.packed(tensor.data_type, (1, tensor.dims[1], *row), NHWC) for tensor in (x, y))
    return x, y


def in_channels(tensor: TensorSpec) -> TensorSpec:
    """Return a copy with channels innermost, whose pixels are aligned to vectors."""
    images, channels, *pixels = tensor.dims
    pitch = rounded_up(channels, VECTOR_BYTES // tensor.scalar_bytes)
    strides = TensorSpec.packed(tensor.data_type, (images, pitch, *pixels), NHWC).strides
    return TensorSpec(tensor.data_type, tensor.dims, strides)


def epilogue(operation: Convolution) -> EpilogueStruct:
    """Return the epilogue of the sums."""
    alpha, beta = blend(operation)
    if isinstance(operation, ConvolutionForward):
        return fill(EpilogueStruct(), alpha=alpha, beta=beta)
    rectified = operation.activation.mode == cudnnActivationMode_t.CUDNN_ACTIVATION_RELU
    flags = {"biased": True, "rectified": rectified, "reordered_bias": operation.filter_is_reordered}
    return fill(EpilogueStruct(), alpha=alpha, beta=beta, **flags)


def blend(operation: Convolution) -> tuple[float, float]:
    """Return the factors of the sums and of the values that are added to them."""
    if isinstance(operation, ConvolutionForward):
        return operation.alpha, operation.beta
    return operation.alpha1, operation.alpha2


def operand_names(operation: Convolution) -> tuple[str, ...]:
    """Return the operands of a kernel that finishes y: y, the prior values of beta, the bias. An operand that is not
    read may be anything.
    """
    if isinstance(operation, ConvolutionForward):
        return ("y", "y", "y")
    return ("y", "z" if operation.alpha2 != 0 else "y", "bias")


PLAIN = EpilogueStruct(1.0, 0.0)


def product_fields(
    value: ConvolutionStruct, finish: EpilogueStruct, offsets: tuple[int, int, int], m_tiles: int, n_tiles: int
) -> list[tuple[str, Any]]:
    """Return the fields after the operands with which the arguments of every product begin.

    ``offsets`` are the bytes to the beginning of x, w and y.
    """
    names = ("x_offset", "w_offset", "y_offset")
    return [
        *((name, c_longlong(offset)) for name, offset in zip(names, offsets, strict=True)),
        ("convolution", value),
        ("epilogue", finish),
        *fields_of(FastDivmod.of, m_tiles=m_tiles, n_tiles=n_tiles),
    ]


def lanes_of(terms: int, elements: int = 0) -> int:
    """Return the lanes of a warp, a power of two, that share the terms of one element.

    All ``elements`` have at most MAX_OFFSET lanes together.
    """
    lanes = 1
    while lanes < MAX_LANES and lanes * LANE_TERMS < terms and 2 * lanes * elements <= MAX_OFFSET:
        lanes *= 2
    return lanes


def pixel_pitch(extents: Sequence[int], strides: Sequence[int], lone: int) -> int:
    """Return the stride between pixels if all have the same, through rows and images, or else 0.

    ``extents`` and ``strides`` begin with those of images. A single pixel has the pitch ``lone``.
    """
    walk = [(n, stride) for n, stride in zip(extents, strides, strict=True) if n > 1]
    pitch = step = walk[-1][1] if walk else lone
    for n, stride in reversed(walk):
        if stride != step:
            return 0
        step *= n
    return pitch


def rounded_up(value: int, step: int) -> int:
    return -(-value // step) * step


def images_in_reach(value: ConvolutionStruct, farthest: int = MAX_OFFSET) -> Iterator[tuple[ConvolutionStruct, int]]:
    """Yield slices of several images within which 32-bit offsets reach every element of x, and the elements of x before
    each.

    Raise DeviceError where one image spans more.
    """
    outputs = prod(output.divisor for output in value.output)
    image, images = value.x_pixel[0], value.m // outputs
    span = image_span(value)
    if span > farthest:
        raise DeviceError(f"an image of x spans {span + 1} elements or words, the kernels count to {farthest}")
    count = min(images, (farthest - span) // max(image, 1) + 1)
    for first in range(0, images, count):
        part = ConvolutionStruct.from_buffer_copy(value)
        part.first_m, part.m = first * outputs, min(count, images - first) * outputs
        part.x_origin -= first * image
        yield part, first * image


def image_span(value: ConvolutionStruct) -> int:
    """Return the number of elements from the first to the last element of an image of x that a group reads."""
    taps = prod(tap.divisor for tap in value.filter)
    blocks_of_channels = value.k // (value.inner_channels.divisor * taps)
    extents = (*value.input, value.inner_channels.divisor, blocks_of_channels)
    steps = (*value.x_axis, value.x_channel, value.x_channel_block)
    return sum((extent - 1) * step for extent, step in zip(extents, steps, strict=True))


REFERENCE_MULTIPROCESSORS = 132  # multiprocessors of the device for which sizes of slices were chosen


def slice_bytes(nbytes: int, device: Any) -> int:
    """Return the bytes of transformed images in the workspace at a time.

    They are ``nbytes`` on an H200, and proportionally fewer on a device of fewer multiprocessors, which a smaller
    product fills.
    """
    return nbytes * device.multiprocessors // REFERENCE_MULTIPROCESSORS
