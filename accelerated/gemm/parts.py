"""Launch the kernels around a TMA-fed product: the copy of an operand, and the sum of parts (parts.cu)."""

from __future__ import annotations

from ctypes import c_float, c_int, c_longlong
from math import prod
from typing import Any

from ..plans import Launch, fields_of, pointers, structure
from ..primitives.geometry import FastDivmod
from .problem import Product
from .stream_k import DivisionStruct

SOURCE = "gemm/parts.cu"
THREADS = 256  # per block
SUMMED = 4  # consecutive elements of C per thread of the sum
COPIED = 64  # rows and k of the operand per block of the copy

Operands = tuple[str, ...]


def copy(product: Product, index: int, operands: Operands, to: int, pitch: int, part: int, parts: int) -> Launch:
    """Return the launch that copies A (index 0) or B (index 1) K-major, with rows of ``pitch`` elements.

    ``to`` is the byte of the workspace where the copy begins. ``part`` is the stride, in elements, between the
    ``parts`` of the operand: batches or segments of K.
    """
    matrix, rows = ((product.a, product.m), (product.b, product.n))[index]
    arguments = structure(
        *pointers(5),
        ("layout", matrix.struct),
        *fields_of(c_longlong, part=part, copy_offset=to),
        *fields_of(c_int, index=index, is_mn_major=matrix.is_mn_major, rows=rows, k=product.k, pitch=pitch),
    )
    grid = (-(-product.k // COPIED), -(-rows // COPIED), parts)
    return _launch(product, "copy", arguments, operands, grid)


def add(
    product: Product,
    tile: tuple[int, int],
    division: DivisionStruct,
    transposed: bool,
    operands: Operands,
    partial: int,
) -> Launch:
    """Return the launch that adds the parts of the tiles.

    ``tile`` has rows and columns of the product; ``transposed`` makes its rows columns of C. ``partial`` is the byte
    offset of the parts in the workspace.
    """
    across = -(-product.n // SUMMED)
    arguments = structure(
        *pointers(5),
        ("result", product.c.struct),
        *fields_of(c_longlong, bias_offset=product.bias[1], partial_offset=partial),
        *fields_of(c_int, m=product.m, n=product.n),
        *fields_of(FastDivmod.of, inner=product.batches[1], across=across),
        ("division", division),
        *fields_of(c_int, log_tile_m=tile[0].bit_length() - 1, log_tile_n=tile[1].bit_length() - 1),
        ("transposed", c_int(transposed)),
        ("beta", c_float(product.beta)),
    )
    return _launch(product, "sum", arguments, operands, (-(-product.m * across // THREADS), prod(product.batches), 1))


def _launch(product: Product, name: str, arguments: Any, operands: Operands, grid: tuple[int, int, int]) -> Launch:
    definitions = (("COMPUTE", "float"), ("ELEMENT", product.element), ("RESULT", product.result))
    function = product.device.function(SOURCE, f"gemm_parts_{name}", definitions)
    return Launch(function, arguments, operands, grid, (THREADS, 1, 1))
