"""The matrix of cudnnIm2Col on the device (convolution/im2col.cu)."""

from __future__ import annotations

import ctypes
from ctypes import c_int
from math import gcd, prod
from typing import Any

from dualdnn.api.operations import Im2Col

from ..plans import Launch, Plan, implements, pointers, structure, type_definitions
from ..primitives.geometry import THREADS, FastDivmod
from .implicit_gemm import matrix_of_any
from .problem import AXES, scalar_strides, spatial

PACK_BYTES = 16
LEAST_RUN = 512  # bytes of a row of the matrix that a block writes side by side, where there are as many
MOST_SHARED = 40 * 1024  # so that several blocks share a multiprocessor
ENOUGH_BLOCKS = 8  # of a multiprocessor
LINE_BYTES, TERM_BYTES = 8, 4

Integers = c_int * AXES
FastDivmods = FastDivmod * AXES


@implements(Im2Col)
def im2col(operation: Im2Col, device: Any) -> Plan:
    """Blocks of some channels and output rows; a filter whose patch no block could hold goes element by element."""
    o = operation
    size = o.srcData.scalar_bytes
    output = spatial(o.convolution.output_dims(o.srcData.dims, o.filter.dims)[2:], 1)
    taps, step = spatial(o.filter.dims[2:], 1), spatial(o.convolution.stride, 1)
    dilation, padding = spatial(o.convolution.dilation, 1), spatial(o.convolution.padding, 0)
    channels, per_channel = o.srcData.dims[1], prod(taps)

    def patch(rows: int, columns: int) -> list[int]:
        return [
            (n - 1) * s + (t - 1) * d + 1 for n, s, t, d in zip((1, rows, columns), step, taps, dilation, strict=True)
        ]

    def shared_bytes(chunk: int, rows: int, columns: int) -> int:
        extents = patch(rows, columns)
        tables = chunk * (prod(extents[:2]) * LINE_BYTES + per_channel * TERM_BYTES)
        return tables + PACK_BYTES + chunk * _pitch(prod(extents), size) * size

    width = PACK_BYTES // size
    unit = width // gcd(width, per_channel)  # channels whose terms are whole packs
    chunk = min(channels, -(-max(unit, -(-LEAST_RUN // (per_channel * size))) // unit) * unit)
    rows, columns = output[1], output[2]
    while shared_bytes(chunk, rows, columns) > MOST_SHARED:
        if rows > 1:
            rows = -(-rows // 2)
        elif chunk > unit:
            chunk = max(unit, chunk // 2 // unit * unit)
        elif columns > 1:
            columns = -(-columns // 2)
        elif chunk > 1:
            chunk = -(-chunk // 2)
        else:
            return Plan(operation, matrix_of_any(operation, device))

    def counts() -> list[int]:
        tiles = [-(-n // tile) for n, tile in ((channels, chunk), (output[2], columns), (output[1], rows))]
        return [*tiles, output[0] * o.srcData.dims[0]]

    while rows > 1 and prod(counts()) < ENOUGH_BLOCKS * device.multiprocessors:
        rows = -(-rows // 2)
    image, channel, *axes = scalar_strides(o.srcData)
    extents, row = patch(rows, columns), channels * per_channel
    arguments = structure(
        *pointers(2),
        ("image", c_int(image)), ("channel", c_int(channel)), ("axis", Integers(*axes)),
        ("input", Integers(*spatial(o.srcData.dims[2:], 1))), ("step", Integers(*step)), ("padding", Integers(*padding)),
        ("dilation", Integers(*dilation)), ("output", Integers(*output)),
        ("channels", c_int(channels)), ("row", c_int(row)), ("flipped", c_int(o.convolution.is_flipped)),
        ("packed", c_int(row % width == 0 and (chunk % unit == 0 or chunk == channels))),
        ("chunk", c_int(chunk)), ("tile", (c_int * 2)(rows, columns)),
        ("blocks", FastDivmods(*map(FastDivmod.of, counts()[:AXES]))),
        ("patch", FastDivmods(*map(FastDivmod.of, extents))), ("taps", FastDivmods(*map(FastDivmod.of, taps))),
        ("pitch", c_int(_pitch(prod(extents), size))),
    )  # fmt: skip
    function = device.function("convolution/im2col.cu", "im2col", type_definitions(o.srcData.data_type, o))
    shape = (prod(counts()), 1, 1), (THREADS, 1, 1), shared_bytes(chunk, rows, columns)
    return Plan(operation, [Launch(function, arguments, ("srcData", "colBuffer"), *shape)])


def _pitch(elements: int, size: int) -> int:
    """Elements from one channel of a patch to the next: an odd number of words, so that channels lie in all banks."""
    word = max(1, ctypes.sizeof(ctypes.c_uint) // size)
    return (-(-elements // word) | 1) * word
