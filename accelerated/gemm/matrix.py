"""Batches of products of two matrices with an epilogue (matrix.cu)."""

from __future__ import annotations

from ctypes import Structure, c_double, c_float, c_int, c_longlong
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from ..plans import WORKSPACE_ALIGNMENT, Launch, pointers, structure
from ..primitives.geometry import FastDivmod

SOURCE = "gemm/matrix.cu"
ELEMENT_BYTES = {"double": 8, "float": 4, "half": 2, "bfloat16": 2}
ROW_BYTES, ALIGNMENT = 128, 1024  # of an operand in a K-block; of the stages
STAGES = {128: 3, 64: 4}  # by the rows and columns of a tile
THREADS = {128: 256, 64: 128}
SIMT_TILE, SIMT_THREADS, SIMT_K = 64, 256, 16
SUM_THREADS = 256
LEAST_K_BLOCKS = 4  # of a part of a sum
MOST_SPLITS = 16
ABSENT = ""  # names no operand: a null pointer
# Multiply-adds count two. What the products reach on an H200, with tiles for all of its multiprocessors
MMA_OPERATIONS_PER_SECOND = {"half": 400e12, "bfloat16": 400e12, "float": 200e12}
SIMT_OPERATIONS_PER_SECOND = {"float": 15e12, "double": 8e12}
BYTES_PER_SECOND, LAUNCH_SECONDS = 3.5e12, 3e-6


class Matrix(NamedTuple):
    """A batch of matrices in an operand of a call.

    operand: its name. offset: bytes from its address to the first element. row, column: elements from a row, and a column,
    to the next; one of them is 1. outer, inner: elements from a batch to the next on each of two levels. segment: elements
    from a segment of K to the next.
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


@dataclass(frozen=True)
class MatrixProduct:
    """C = alpha A B^T + bias + beta C, for every batch, summed in the arithmetic, in an order that depends on the sizes
    and the device alone.

    m, n, k: A has m rows and k columns, B has n rows and k columns, C m rows and n columns. element: the type of A, B and
    the bias, as C++ spells it. result: that of C. compute: float or double. tensor_cores: whether they may multiply, which
    of float elements keep 11 bits. bias: operand and byte of n elements, one for each column of C, which must then be
    row-major. batches: outer and inner ones. segments: K is as many times k, each with a distance from the one before.
    most_workspace: bytes that split-K may use. splits, tile: chosen where they are None.
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
    alpha: float = 1.0
    beta: float = 0.0
    segments: int = 1
    most_workspace: int = 0
    splits: int | None = None
    tile: int | None = None

    def __post_init__(self) -> None:
        for name in ("a", "b", "c"):
            matrix = getattr(self, name)
            if 1 not in (matrix.row, matrix.column):
                raise ValueError(f"{name}={matrix}: neither rows nor columns are contiguous")
        if self.c.column != 1 and self.bias[0] != ABSENT:
            raise ValueError(f"c={self.c}: with a bias for each column it must be row-major")
        if self.tensor_cores and (self.compute != "float" or self.element not in MMA_OPERATIONS_PER_SECOND):
            raise ValueError(f"tensor cores do not multiply {self.element} in {self.compute}")

    @cached_property
    def _row_major(self) -> MatrixProduct:
        """The same product with the rows of C contiguous: C^T = B A^T."""
        if self.c.column == 1:
            return self
        fields = {**self.__dict__, "m": self.n, "n": self.m, "a": self.b, "b": self.a, "c": self.c.transposed}
        return MatrixProduct(**{name: fields[name] for name in self.__dataclass_fields__})

    @cached_property
    def _tile(self) -> int:
        """Rows and columns of a block's tile."""
        if not self.tensor_cores:
            return SIMT_TILE
        return self.tile or (
            128 if self._tiles(128) >= self.device.multiprocessors and min(self.m, self.n) > 64 else 64
        )

    def _tiles(self, tile: int) -> int:
        return -(-self.m // tile) * -(-self.n // tile) * prod(self.batches)

    @cached_property
    def _splits(self) -> int:
        """Parts of a sum, so that there are blocks for all multiprocessors, and room for the parts."""
        if self.splits is not None:
            return self.splits
        parts = 2 * self.device.multiprocessors // self._tiles(self._tile)
        room = self.most_workspace // (prod(self.batches) * self.m * self.n * ELEMENT_BYTES[self.compute])
        return max(1, min(parts, self._k_blocks // LEAST_K_BLOCKS, MOST_SPLITS, room))

    @property
    def _k_of_block(self) -> int:
        return ROW_BYTES // ELEMENT_BYTES[self.element] if self.tensor_cores else SIMT_K

    @property
    def _k_blocks(self) -> int:
        return self.segments * -(-self.k // self._k_of_block)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace, at a multiple of 16 bytes, for the parts of split-K; none without them."""
        if self._splits == 1:
            return 0
        sums = self._splits * prod(self.batches) * self.m * self.n
        return -(-sums * ELEMENT_BYTES[self.compute] // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT

    @property
    def estimated_seconds(self) -> float:
        """About how long it takes."""
        rates = MMA_OPERATIONS_PER_SECOND if self.tensor_cores else SIMT_OPERATIONS_PER_SECOND
        tile = self._tile
        blocks = self._tiles(tile) * self._splits
        room = self.device.multiprocessors * (2 if tile == 128 else 3)
        flops = 2.0 * blocks * tile * tile * self.k * self.segments / self._splits
        share = min(1.0, blocks / room)
        elements = prod(self.batches) * ((self.m + self.n) * self.k * self.segments + self.m * self.n)
        moved = elements * ELEMENT_BYTES[self.element] + 2 * self.workspace_bytes
        return LAUNCH_SECONDS * (1 + (self._splits > 1)) + max(
            flops / rates[self.element] / share, moved / BYTES_PER_SECOND
        )

    def launches(self, workspace: tuple[str, int] = (ABSENT, 0)) -> list[Launch]:
        """Return the launches, one or, with split-K, two. workspace: operand and byte where ``workspace_bytes`` are."""
        product = self._row_major
        tile, splits = self._tile, self._splits
        a_mn_major, b_mn_major = product.a.column != 1, product.b.column != 1
        total = self._k_blocks if self.tensor_cores else self.segments * self.k
        # The instruction has an MN-major left operand with an MN-major right one only
        warpgroups = self.tensor_cores and tile == 128 and self.element != "float" and a_mn_major <= b_mn_major
        real = c_double if self.compute == "double" else c_float
        m_tiles = -(-product.m // tile)
        batches = prod(self.batches)
        arguments = structure(
            *pointers(5),
            ("left", _matrix(product.a, a_mn_major)),
            ("right", _matrix(product.b, b_mn_major)),
            ("result", _matrix(product.c, False)),
            ("bias_offset", c_longlong(self.bias[1])),
            ("workspace_offset", c_longlong(workspace[1])),
            *((name, c_int(getattr(product, name))) for name in ("m", "n", "k")),
            ("total", c_int(total)),
            ("per_split", c_int(-(-total // splits))),
            ("segment", FastDivmod.of(total // self.segments)),
            ("splits", FastDivmod.of(splits)),
            ("inner", FastDivmod.of(self.batches[1])),
            ("m_tiles", c_int(m_tiles)),
            ("batches", c_int(batches)),
            ("alpha", real(self.alpha)),
            ("beta", real(self.beta)),
        )
        definitions = (
            ("A_MN_MAJOR", str(int(a_mn_major))),
            ("B_MN_MAJOR", str(int(b_mn_major))),
            ("COMPUTE", self.compute),
            ("ELEMENT", self.element),
            ("RESULT", self.result),
            ("TENSOR_CORES", str(int(self.tensor_cores))),
            ("WARPGROUPS", str(int(warpgroups))),
        )
        operands = (product.a.operand, product.b.operand, self.bias[0], product.c.operand, workspace[0])
        name = f"{'wgmma' if warpgroups else 'mma'}_{tile}" if self.tensor_cores else "simt"
        threads = THREADS[tile] if self.tensor_cores else SIMT_THREADS
        shared = STAGES[tile] * 2 * tile * ROW_BYTES + ALIGNMENT if self.tensor_cores else 0
        grid = (m_tiles * -(-product.n // tile), batches * splits, 1)
        function = self.device.function(SOURCE, f"gemm_matrix_{name}", definitions)
        found = [Launch(function, arguments, operands, grid, (threads, 1, 1), shared)]
        if splits > 1:
            function = self.device.function(SOURCE, "gemm_matrix_sum", definitions)
            blocks = (-(-product.m * product.n // SUM_THREADS), batches, 1)
            found.append(Launch(function, arguments, operands, blocks, (SUM_THREADS, 1, 1)))
        return found


def _matrix(matrix: Matrix, mn_major: bool) -> Structure:
    return structure(
        ("offset", c_longlong(matrix.offset)),
        ("outer", c_longlong(matrix.outer)),
        ("inner", c_longlong(matrix.inner)),
        ("segment", c_longlong(matrix.segment)),
        ("stride", c_int(matrix.column if mn_major else matrix.row)),
    )
