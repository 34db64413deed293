"""Describe the operands of matrix products to their kernels (matrix.cuh)."""

from __future__ import annotations

from ctypes import Structure, c_int, c_longlong
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..plans import fields_of, structure

ELEMENT_BYTES = {"double": 8, "float": 4, "half": 2, "bfloat16": 2}
MAX_SCRATCH = 1 << 26  # bytes of scratch memory per product, copies of operands excluded
ABSENT = ""  # name of an operand that the kernel gets as a null pointer


class Matrix(NamedTuple):
    """Locate a batch of matrices in an operand of a call.

    ``operand``: its name. ``offset``: bytes from its address to the first element. The other fields are strides in
    elements: ``row`` and ``column``, one must be 1; ``outer`` and ``inner``, for two levels of batches;
    ``segment``, for segments of K.
    """

    operand: str
    offset: int
    row: int
    column: int
    outer: int = 0
    inner: int = 0
    segment: int = 0

    @property
    def transposed(self) -> Matrix:
        return self._replace(row=self.column, column=self.row)

    @property
    def is_mn_major(self) -> bool:
        """Return whether the elements of a column are contiguous."""
        return self.column != 1

    @property
    def stride(self) -> int:
        """Return the stride between rows, or between columns of an MN-major matrix, in elements."""
        return self.column if self.is_mn_major else self.row

    @property
    def struct(self) -> Structure:
        """Return ``Matrix`` of matrix.cuh."""
        return structure(
            *fields_of(c_longlong, offset=self.offset, outer=self.outer, inner=self.inner, segment=self.segment),
            ("stride", c_int(self.stride)),
        )


class Tile(NamedTuple):
    """Describe a kernel with one block per tile.

    The fields are rows and columns of the tile, threads, blocks per multiprocessor, and bytes of dynamic shared memory.
    The rates are operations a second (a multiply-add counts two) of all of an H200, for 16-bit elements and for floats.
    """

    name: str
    m: int
    n: int
    threads: int
    blocks: int
    shared_bytes: int
    rates: tuple[float, float]


@dataclass(frozen=True)
class Product:
    """Describe C = A B^T + bias + beta C for every batch. The order of sums depends only on the sizes and the device.
    Where it is ``in_order``, K is not divided, and neither m nor the batches nor the device's size decide. The size may
    still decide which instruction multiplies, unless ``instruction`` is "wgmma" or "mma".

    ``m``, ``n``, ``k``: A has m rows and k columns, B n rows and k columns, C m rows and n columns; C is row-major.
    ``element``: the C++ type of A, B and the bias. ``result``: the C++ type of C. ``compute``: float or double.
    ``tensor_cores``: whether they may multiply; they keep 11 bits of float elements. ``bias``: operand and byte offset
    of n elements, one per column of C. ``batches``: outer and inner. ``segments``: per batch; K is ``segments`` * k,
    with a stride between segments. ``max_workspace``: bytes that split-K may use. ``splits`` and ``tile``, a name, are
    chosen where they are None.
    """

    device: Any
    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    c: Matrix
    element: str
    result: str
    compute: str = "float"
    tensor_cores: bool = True
    bias: tuple[str, int] = (ABSENT, 0)
    batches: tuple[int, int] = (1, 1)
    beta: float = 0.0
    segments: int = 1
    max_workspace: int = 0
    splits: int | None = None
    tile: str | None = None
    in_order: bool = False
    instruction: str | None = None
