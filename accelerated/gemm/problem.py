"""The operands of matrix products, as their kernels read them (matrix.cuh)."""

from __future__ import annotations

from ctypes import Structure, c_int, c_longlong
from typing import NamedTuple

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
