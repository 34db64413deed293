"""Plan batches of matrix products on the tensor cores of compute capability 9.0, fed by TMA (matrix_tma.cu)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import c_float, c_int, c_longlong, c_ubyte, c_uint
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

from ..plans import Launch, fields_of, pointers, workspace_aligned
from ..primitives.geometry import FastDivmod
from ..primitives.tma import ALIGNMENT, MAP_BYTES, ROW_BYTES, TiledMap, TmaLaunch, has_wgmma, mapped_structure
from . import parts
from .problem import ELEMENT_BYTES, MAX_SCRATCH, Matrix, Product
from .stream_k import Shares

SOURCE = "gemm/matrix_tma.cu"
WARP = 32  # threads
WARPGROUP = 128  # threads
SWIZZLE_BYTES = 1024
SUM_BYTES = 4
MIN_K_BLOCKS = 4  # per block that shares a tile
CLOCK = 1.65e9  # Hz, of a multiprocessor
BYTES_PER_SECOND = 1.74e12  # memory traffic
LAUNCH_SECONDS = 3.8e-6  # per launch
STORED_ALONE = 0.6  # share of ``stored`` per tile if stores are the bound
UNEVEN = 1.34  # slowdown of K-blocks if blocks do not read the same K at the same time
SUM_SECONDS = 0.2e-6  # per launch that adds partial sums
PART_SECONDS = 0.12e-6  # per part of a tile
SUM_BYTES_PER_SECOND = 4.4e12  # traffic of partial sums, mostly in L2
COPY_SECONDS = 2.5e-6  # per launch of the copy
COPY_BYTES_PER_SECOND = 3.5e12  # reads and writes of the copy
BLEND_SECONDS = 5e-6  # to read C if the left operand passes through registers, which leaves few free


class TmaTile(NamedTuple):
    """Describe a tile of the product: rows, columns, warpgroups that multiply it, stages, blocks per multiprocessor.

    ``from_registers``: the left operand passes through registers instead of shared memory. ``alone``, ``overlapped``
    and ``stored`` are clocks of an H200, fitted to 700 products. They are the clocks of a K-block alone, of a K-block
    while the multiprocessor has other tiles, and of storing the sums. ``ping_pong``: two warpgroups have their own
    tiles instead of cooperating.
    """

    rows: int
    columns: int
    consumers: int
    stages: int
    occupancy: int
    from_registers: bool
    alone: float
    overlapped: float
    stored: float
    ping_pong: bool = False

    @property
    def name(self) -> str:
        return f"{'ping_pong_' if self.ping_pong else ''}{self.rows}x{self.columns}"

    @property
    def size(self) -> int:
        return self.rows * self.columns

    @property
    def threads(self) -> int:
        """Return the threads of a block. The producer is a warpgroup where it gives registers to the consumers, and
        otherwise a warp.
        """
        return self.consumers * WARPGROUP + (WARPGROUP if self.occupancy == 1 else WARP)

    @property
    def shared_bytes(self) -> int:
        return self.stages * (self.rows + self.columns) * ROW_BYTES + SWIZZLE_BYTES

    def clocks(self, tiles: int, k_blocks: int) -> float:
        """Return the estimated clocks of a multiprocessor for ``tiles`` consecutive tiles of ``k_blocks`` K-blocks."""
        if self.occupancy == 1 and not self.ping_pong:
            return tiles * (k_blocks * self.alone + self.stored)
        one = k_blocks * self.alone + self.stored
        return max(one, tiles * max(k_blocks * self.overlapped, STORED_ALONE * self.stored) + (tiles > 1) * self.stored)


TILES = (
    TmaTile(128, 256, 2, 4, 1, False, 984, 984, 7560),
    TmaTile(128, 128, 2, 6, 1, False, 575, 624, 4950, ping_pong=True),
    TmaTile(128, 64, 2, 4, 2, False, 474, 418, 2280),
    TmaTile(64, 64, 1, 6, 2, False, 306, 265, 2370),
    TmaTile(256, 128, 2, 4, 1, True, 1037, 1037, 7650),
    TmaTile(128, 64, 1, 4, 2, True, 591, 492, 3690),
)


@dataclass(frozen=True)
class TmaProduct:
    """Describe a product in tiles; rows of C are contiguous.

    ``wanted_blocks``: how many blocks share the tiles; None gives each tile one block.
    """

    product: Product
    tile: TmaTile
    wanted_blocks: int | None

    @classmethod
    def possible(cls, product: Product) -> Iterator[TmaProduct]:
        """Yield the product with every tile that TMA serves, with one block per tile and with shared tiles."""
        if not product.tensor_cores or product.instruction == "mma" or not has_wgmma(product.device):
            return
        for tile in TILES:
            if product.tile not in (None, tile.name):
                continue
            tiles = cls(product, tile, None).shares.tiles
            for blocks in cls._blocks(product, tile, tiles):
                found = cls(product, tile, blocks)
                if found.is_possible and (not product.in_order or product.instruction or not any(found.copies)):
                    yield found

    @staticmethod
    def _blocks(product: Product, tile: TmaTile, tiles: int) -> Sequence[int | None]:
        """Return how many blocks may share the tiles; None means one block per tile."""
        if product.in_order:
            return [None]
        if product.splits is not None:
            return [None if product.splits == 1 else product.splits * tiles]
        multiprocessors = product.device.multiprocessors
        room = min(product.max_workspace, MAX_SCRATCH) // (tiles * tile.size * SUM_BYTES)
        # These numbers of blocks divide every tile into equally many parts.
        equal = {min(multiprocessors * blocks // tiles, room) * tiles for blocks in range(1, tile.occupancy + 1)}
        return [None, *(blocks for blocks in sorted({multiprocessors, *equal}) if blocks > 0)]

    @property
    def is_possible(self) -> bool:
        """Return whether a kernel exists, TMA takes the strides, and the workspace has room."""
        p = self.product
        if self.from_registers != self.tile.from_registers or not (self._has_steps(p.a) and self._has_steps(p.b)):
            return False
        if not all(m.is_possible for m in self.maps):
            return False
        return self.workspace_bytes <= self.product.max_workspace or (self.product.splits or 1) > 1

    # --- The product of the kernel: its rows are columns of C where it is ``transposed``. ---

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.product.element]

    @property
    def k_of_block(self) -> int:
        return ROW_BYTES // self.element_bytes

    @property
    def _is_float(self) -> bool:
        return self.product.element == "float"

    @cached_property
    def copies(self) -> tuple[bool, bool]:
        """Return whether A and whether B is copied to be K-major, because TMA cannot read it, or because tensor cores
        do not transpose floats. One of two MN-major operands may stay in place.
        """
        a, b = self.product.a, self.product.b
        unread = not self._is_read(a), not self._is_read(b)
        both = self._is_float and a.is_mn_major and b.is_mn_major and not any(unread)
        return unread[0], unread[1] or both

    def _is_read(self, matrix: Matrix) -> bool:
        """Return whether TMA supports the offset and the strides of a matrix."""
        strides = matrix.stride * self.element_bytes, self._part(matrix)[0] * self.element_bytes
        return all(n >= 0 and n % ALIGNMENT == 0 for n in (matrix.offset, *strides))

    @cached_property
    def read(self) -> tuple[Matrix, Matrix]:
        """Return A and B as TMA reads them; a copy has its offset in the workspace."""
        p, found, begin = self.product, [], 0
        for matrix, rows, copied in zip((p.a, p.b), (p.m, p.n), self.copies, strict=True):
            if not copied:
                found.append(matrix)
                continue
            step, shared = self._part(matrix)
            part = rows * self.pitch if step else 0
            outer, inner = (part * p.batches[1], part) if shared == 1 else (part, 0)
            found.append(Matrix("", begin, self.pitch, 1, outer, inner, part))
            begin += workspace_aligned(self.parts // shared * rows * self.pitch * self.element_bytes)
        return found[0], found[1]

    @property
    def transposed(self) -> bool:
        """Return whether B is the left operand, which may be MN-major."""
        a, b = self.read
        return self._is_float and b.is_mn_major and not a.is_mn_major

    @property
    def from_registers(self) -> bool:
        return self._is_float and self.left[0].is_mn_major

    @property
    def left(self) -> tuple[Matrix, int]:
        """Return the operand whose rows are the rows of the product, and its number of rows."""
        return (self.read[1], self.product.n) if self.transposed else (self.read[0], self.product.m)

    @property
    def right(self) -> tuple[Matrix, int]:
        return (self.read[0], self.product.m) if self.transposed else (self.read[1], self.product.n)

    @property
    def pitch(self) -> int:
        """Return the stride between rows of a copy, in elements."""
        vector = ALIGNMENT // self.element_bytes
        return -(-self.product.k // vector) * vector

    @property
    def parts(self) -> int:
        """Return the number of batches, or of segments of K."""
        return prod(self.product.batches) * self.product.segments

    def _has_steps(self, matrix: Matrix) -> bool:
        """Return whether both levels of batches have one stride, or the inner batches share one matrix."""
        outer, inner = self.product.batches
        return 1 in (outer, inner) or not matrix.inner or matrix.outer == inner * matrix.inner

    def _part(self, matrix: Matrix) -> tuple[int, int]:
        """Return the stride between batches, or segments of K, of a matrix in elements, and how many consecutive ones
        share one matrix.
        """
        outer, inner = self.product.batches
        step, shared = (matrix.outer, inner) if outer > 1 else (matrix.segment, 1)
        if inner > 1 and (matrix.inner or outer == 1):
            step, shared = matrix.inner, 1
        return (step, shared) if step and self.parts > 1 else (0, self.parts)

    @cached_property
    def maps(self) -> tuple[TiledMap, TiledMap]:
        return self._map(*self.left, self.tile.rows), self._map(*self.right, self.tile.columns)

    def _map(self, matrix: Matrix, count: int, box: int) -> TiledMap:
        p, nbytes = self.product, self.element_bytes
        part, shared = self._part(matrix)
        extent = (count, p.k) if matrix.is_mn_major else (p.k, count)
        stride = matrix.stride * nbytes
        box = self.k_of_block if matrix.is_mn_major else box
        return TiledMap(
            "tf32" if self._is_float else p.element, (*extent, self.parts // shared),
            (stride, part * nbytes if part else stride * extent[1]), (self.k_of_block, box, 1),
        )  # fmt: skip

    # --- The tiles, and the blocks that multiply them ---

    @property
    def row_tiles(self) -> int:
        return -(-self.left[1] // self.tile.rows)

    @property
    def column_tiles(self) -> int:
        return -(-self.right[1] // self.tile.columns)

    @property
    def k_blocks(self) -> int:
        """Return the number of K-blocks that a tile adds."""
        return self.product.segments * -(-self.product.k // self.k_of_block)

    @cached_property
    def shares(self) -> Shares:
        tiles, k_blocks = self.row_tiles * self.column_tiles * prod(self.product.batches), self.k_blocks
        if self.wanted_blocks is None:
            return Shares.of(tiles, k_blocks, tiles)
        least = 1 if self.product.splits else MIN_K_BLOCKS
        return Shares.of(tiles, k_blocks, max(1, min(self.wanted_blocks, tiles * k_blocks // least)))

    @property
    def adds(self) -> bool:
        """Return whether tiles have several parts, which a second kernel adds."""
        return self.shares.further > 0 or self.shares.parts > 1

    @cached_property
    def clocks(self) -> float:
        """Return the approximate clocks of the busiest multiprocessor."""
        shares, tile, multiprocessors = self.shares, self.tile, self.product.device.multiprocessors
        if not self.adds:
            return tile.clocks(-(-shares.tiles // multiprocessors), self.k_blocks)
        uneven, segments = (UNEVEN, 1 + -(-shares.tiles // shares.blocks)) if shares.further else (1.0, 1)
        together = -(-shares.blocks // multiprocessors)
        of_k_block = tile.alone if together == 1 else together * tile.overlapped
        return shares.max_k_blocks * of_k_block * uneven + tile.stored * segments

    @cached_property
    def seconds(self) -> float:
        """Return the approximate seconds, with those of partial sums and copies: compute or memory is the bound."""
        p, shares, tile, extra = self.product, self.shares, self.tile, 0.0
        if self.adds:
            extra += SUM_SECONDS + PART_SECONDS * shares.slots / shares.tiles
            extra += 2 * shares.slots * tile.size * SUM_BYTES / SUM_BYTES_PER_SECOND
        else:
            extra += BLEND_SECONDS if p.beta and self.from_registers else 0.0
        extra += sum(self.copies) * COPY_SECONDS + 2 * self.copied_bytes / COPY_BYTES_PER_SECOND
        result = p.m * p.n * ELEMENT_BYTES[p.result] * (2 if p.beta else 1)
        moved = prod(p.batches) * ((p.m + p.n) * p.k * p.segments * self.element_bytes + result)
        return LAUNCH_SECONDS + max(self.clocks / CLOCK, moved / BYTES_PER_SECOND) + extra

    # --- launches ---

    @property
    def copied_bytes(self) -> int:
        total, sizes = 0, (self.product.m, self.product.n)
        for matrix, rows, copied in zip(self.read, sizes, self.copies, strict=True):
            if copied:
                parts = self.parts // self._part(matrix)[1]
                total += workspace_aligned(parts * rows * self.pitch * self.element_bytes)
        return total

    @property
    def workspace_bytes(self) -> int:
        return self.copied_bytes + (
            workspace_aligned(self.shares.slots * self.tile.size * SUM_BYTES) if self.adds else 0
        )

    def launch(self, workspace: tuple[str, int], fallback: Launch | None) -> Launch:
        """Return one launch for all kernels of the product. ``fallback`` runs if an address is not aligned."""
        p, tile, shares, device = self.product, self.tile, self.shares, self.product.device
        multiprocessors = device.multiprocessors
        operands = (p.a.operand, p.b.operand, p.bias[0], p.c.operand, workspace[0])
        sides = (("left", self.left[0]), ("right", self.right[0]))
        division = shares.division(self.row_tiles, self.column_tiles)
        fields = [
            *pointers(5),
            ("reserved", (c_longlong * 3)()),
            *((name, (c_ubyte * MAP_BYTES)()) for name in ("left_map", "right_map")),
            ("result", p.c.struct),
            *fields_of(c_longlong, bias_offset=p.bias[1], partial_offset=workspace[1] + self.copied_bytes),
            *fields_of(c_int, m=p.m, n=p.n),
            *((f"{side}_shared", FastDivmod.of(self._part(matrix)[1])) for side, matrix in sides),
            *fields_of(FastDivmod.of, k_blocks=self.k_blocks // p.segments, inner=p.batches[1]),
            ("division", division),
            ("blocks", c_uint(shares.blocks)),
            ("adds", c_int(self.adds)),
            ("beta", c_float(p.beta)),
        ]
        arguments = mapped_structure(*fields)
        entry, definitions = f"gemm_matrix_tma_{tile.name}", self._definitions
        function = device.optional_function(SOURCE, entry, definitions)
        grid = (min(shares.blocks, multiprocessors * tile.occupancy), 1, 1)
        launch = Launch(function, arguments, operands, grid, (tile.threads, 1, 1), tile.shared_bytes)
        before = []
        for index, (matrix, made) in enumerate(zip((p.a, p.b), self.read, strict=True)):
            if self.copies[index]:
                part, shared = self._part(matrix)
                to = workspace[1] + made.offset
                before.append(parts.copy(p, index, operands, to, self.pitch, part, self.parts // shared))
        extents = (tile.columns, tile.rows) if self.transposed else (tile.rows, tile.columns)
        added = p, extents, division, self.transposed, operands, workspace[1] + self.copied_bytes
        after = [parts.add(*added)] if self.adds else []
        located = tuple(
            (getattr(type(arguments), name).offset, operand, offset, wanted)
            for name, wanted, (operand, offset) in zip(
                ("left_map", "right_map"), self.maps, self._addresses(workspace), strict=True
            )
        )
        return TmaLaunch(device, (SOURCE, definitions), entry, launch, located, fallback, before=before, after=after)

    def _addresses(self, workspace: tuple[str, int]) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the operand index and the byte offset of the left and of the right operand."""
        a, b = (
            (4, workspace[1] + matrix.offset) if copied else (index, matrix.offset)
            for index, (matrix, copied) in enumerate(zip(self.read, self.copies, strict=True))
        )
        return (b, a) if self.transposed else (a, b)

    @property
    def _definitions(self) -> tuple[tuple[str, str], ...]:
        p = self.product
        return (
            ("A_MN_MAJOR", str(int(self.left[0].is_mn_major))),
            ("B_MN_MAJOR", str(int(self.right[0].is_mn_major))),
            ("COMPUTE", "float"),
            ("ELEMENT", p.element),
            ("FROM_REGISTERS", str(int(self.from_registers))),
            ("RESULT", p.result),
            ("TRANSPOSED_RESULT", str(int(self.transposed))),
        )
