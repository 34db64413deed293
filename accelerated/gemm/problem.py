"""The operands of matrix products, as their kernels read them (matrix.cuh)."""

from __future__ import annotations

from ctypes import Structure, c_int, c_longlong
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..plans import structure

ELEMENT_BYTES = {"double": 8, "float": 4, "half": 2, "bfloat16": 2}
ABSENT = ""  # names no operand: a null pointer


class Matrix(NamedTuple):
    """A batch of matrices in an operand of a call.

    operand: its name. offset: bytes from its address to the first element. row, column: elements from a row, and a
    column, to the next; one of them is 1. outer, inner: elements from a batch to the next on each of two levels.
    segment: elements from a segment of K to the next.
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
        """Whether the elements of a column follow each other."""
        return self.column != 1

    @property
    def stride(self) -> int:
        """Elements from a row to the next, or from a column to the next of an MN-major matrix."""
        return self.column if self.is_mn_major else self.row

    @property
    def struct(self) -> Structure:
        """``Matrix`` in matrix.cuh."""
        return structure(
            ("offset", c_longlong(self.offset)),
            ("outer", c_longlong(self.outer)),
            ("inner", c_longlong(self.inner)),
            ("segment", c_longlong(self.segment)),
            ("stride", c_int(self.stride)),
        )


class Tile(NamedTuple):
    """A kernel of a block a tile: rows and columns of the tile, threads, blocks of a multiprocessor, bytes of dynamic
    shared memory; operations (multiply-adds count two) that the blocks of a device reach in a second on an H200, of
    16-bit elements and of floats."""

    name: str
    m: int
    n: int
    threads: int
    blocks: int
    shared_bytes: int
    rates: tuple[float, float]


@dataclass(frozen=True)
class Product:
    """C = A B^T + bias + beta C, for every batch, summed in the arithmetic, in an order that depends on the sizes
    and the device alone.

    m, n, k: A has m rows and k columns, B n rows and k columns, C m rows and n columns; it is row-major. element: the
    type of A, B and the bias, as C++ spells it. result: that of C. compute: float or double. tensor_cores: whether they
    may multiply, which of float elements keep 11 bits. bias: operand and byte of n elements, one for each column of C.
    batches: outer and inner ones. segments: of one batch; K is as many times k, each with a distance from the one
    before. most_workspace: bytes that split-K may use. splits, tile (its name): chosen where they are None.
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
    most_workspace: int = 0
    splits: int | None = None
    tile: str | None = None
