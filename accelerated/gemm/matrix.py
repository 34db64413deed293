"""Plan batches of products of two matrices with an epilogue (matrix.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_double, c_float, c_int, c_longlong
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from ..plans import SCRATCH, Launch, Launches, fields_of, pointers, structure, workspace_aligned
from ..primitives.geometry import FastDivmod
from . import matrix_fp32
from .matrix_tma import TILES, TmaProduct
from .problem import ABSENT, ELEMENT_BYTES, MAX_SCRATCH, Matrix, Product, Tile

__all__ = ["ABSENT", "MAX_SCRATCH", "MAX_SPLITS", "Matrix", "MatrixProduct"]

SOURCE = "gemm/matrix.cu"
ROW_BYTES = 128  # bytes per row of an operand in a K-block
ALIGNMENT = 1024  # bytes; every stage begins at a multiple
ALIGNED_BYTES = 16  # bytes; rows whose stride is a multiple are copied in vectors
SIMT_K = 16  # k per K-block without tensor cores
SUM_THREADS = 256
MAX_SPLITS = 32
MAX_COPIES = 1 << 40  # bytes of copied operands, where their size may not decide the instruction
BYTES_PER_SECOND = 1.74e12  # memory traffic
LAUNCH_SECONDS = 3.7e-6  # per launch
SUM_SECONDS = 1.8e-6  # per launch that adds partial sums
SUM_BYTES_PER_SECOND = 4.5e12  # traffic of partial sums
ROUND_SECONDS = 1e-6  # to start and end one round of resident blocks
BLEND_SECONDS = 1.5e-6  # for blocks to read C after their sums


def _ring(stages: int, m: int, n: int) -> int:
    """Return the bytes of shared memory of a ring of K-blocks."""
    return stages * (m + n) * ROW_BYTES + ALIGNMENT


WARPS = (
    Tile("mma_128", 128, 128, 256, 2, _ring(3, 128, 128), (270e12, 105e12)),
    Tile("mma_64", 64, 64, 128, 3, _ring(4, 64, 64), (190e12, 70e12)),
)
SIMT = Tile("simt", 64, 64, 256, 4, 0, (0.0, 12e12))
TMA_TILES = {tile.name for tile in TILES}
DOUBLE_SLOWDOWN = 2.0
NARROW_SLOWDOWN = 2.0  # time on tensor cores with unaligned rows over the time with aligned rows; measured 1.3 to 2.5
FEW_BLOCKS = 0.7  # exponent: a share x of the resident blocks takes x ** FEW_BLOCKS of the time of all


@dataclass(frozen=True)
class MatrixProduct(Product):
    """Describe a product, and choose its tile and the number of split-K parts."""

    @property
    def choice(self) -> tuple[str, int]:
        """Return the tile, and the maximum number of blocks that share one."""
        if self._by_tma:
            return self._by_tma.tile.name, self._by_tma.shares.parts + (self._by_tma.shares.further > 0)
        _, tile, splits = self._chosen
        return tile.name, splits

    @cached_property
    def _by_tma(self) -> TmaProduct | None:
        """Return the fastest product that TMA feeds, or None if it cannot, or if copying an operand costs too much."""
        # If memory bounds several products equally, the one with the fewest clocks starts to read first.
        found = min(TmaProduct.possible(self), key=lambda made: (made.seconds, made.clocks), default=None)
        if self.tile in TMA_TILES:
            if found is None:
                raise ValueError(f"the tile {self.tile} does not serve {self.element}, {self.a}, {self.b}")
        elif found and not self.instruction and any(found.copies) and found.seconds > self._chosen[0]:
            return None
        return found

    @cached_property
    def _chosen(self) -> tuple[float, Tile, int]:
        """Return the fastest choice without TMA: its approximate seconds, its tile, and the split-K parts that fit."""
        return min(
            (
                (self._seconds(tile, splits), tile, splits)
                for tile in self._tiles()
                for splits in self._possible_splits()
            ),
            key=lambda found: found[0],
        )

    def _tiles(self) -> list[Tile]:
        """Return the tiles that can serve."""
        found = WARPS if self.tensor_cores else matrix_fp32.TILES if matrix_fp32.serves(self) else (SIMT,)
        return [tile for tile in found if tile.name == self.tile] or list(found)

    @property
    def order(self) -> str:
        """Return the instruction that adds along K, which decides the rounding if the product is ``in_order``."""
        return "wgmma" if self._by_tma else self._chosen[1].name.partition("_")[0]

    def in_order_for(self, rows: Sequence[int]) -> MatrixProduct:
        """Return the product in order, by the instruction that takes the least time over these numbers of rows.

        Operands that TMA cannot read are copied for every number of rows, or for none.
        """
        if not self.tensor_cores:
            return replace(self, in_order=True)
        made = [
            replace(self, in_order=True, instruction="mma"),
            replace(self, in_order=True, instruction="wgmma", max_workspace=MAX_COPIES),
        ]
        possible = [each for each in made if each.order == each.instruction]
        return min(possible, key=lambda each: prod(replace(each, m=m).estimated_seconds for m in rows))

    def _possible_splits(self) -> range | list[int]:
        if self.in_order:
            return [1]
        if self.splits is not None:
            return [self.splits]
        nbytes = prod(self.batches) * self.m * self.n * ELEMENT_BYTES[self.compute]
        room = min(self.max_workspace, MAX_SCRATCH) // nbytes
        return range(1, max(1, min(self._k_blocks, MAX_SPLITS, room)) + 1)

    def _seconds(self, tile: Tile, splits: int) -> float:
        """Return the approximate seconds: rounds of concurrent blocks, and the traffic of partial sums."""
        multiprocessors = self.device.multiprocessors
        blocks = -(-self.m // tile.m) * -(-self.n // tile.n) * prod(self.batches) * splits
        at_a_time = multiprocessors * tile.blocks
        rounds, rest = divmod(blocks, at_a_time)
        together = -(-rest // multiprocessors) / tile.blocks  # tiles in flight in the last round
        full = rounds + together**FEW_BLOCKS
        rate = tile.rates[ELEMENT_BYTES[self.element] > 2] / (DOUBLE_SLOWDOWN if self.element == "double" else 1.0)
        if any(matrix.stride * ELEMENT_BYTES[self.element] % ALIGNED_BYTES for matrix in (self.a, self.b)):
            rate /= NARROW_SLOWDOWN if self.tensor_cores else 1.0
        flops = 2.0 * at_a_time * tile.m * tile.n * -(-self._k_blocks // splits) * self._k_of_block
        sums = prod(self.batches) * self.m * self.n * ELEMENT_BYTES[self.compute]
        elements = (self.m + self.n) * self.k * self.segments + self.m * self.n
        moved = prod(self.batches) * elements * ELEMENT_BYTES[self.element]
        extra = BLEND_SECONDS if self.beta else 0.0
        if splits > 1:
            extra = SUM_SECONDS + (splits + 2) * sums / SUM_BYTES_PER_SECOND
        # The rate is scaled by the multiprocessors of the device, because tile rates were measured on an H200.
        scale = 132 / multiprocessors
        return LAUNCH_SECONDS + max(full * (flops * scale / rate + ROUND_SECONDS), moved / BYTES_PER_SECOND) + extra

    @property
    def _counts_k_blocks(self) -> bool:
        """Return whether split-K counts K-blocks. It counts k where a K-block may belong to two segments."""
        return SIMT not in self._tiles()

    @property
    def _k_of_block(self) -> int:
        return ROW_BYTES // ELEMENT_BYTES[self.element] if self.tensor_cores else SIMT_K

    @property
    def _k_blocks(self) -> int:
        return self.segments * -(-self.k // self._k_of_block)

    @property
    def workspace_bytes(self) -> int:
        """Return the bytes of workspace for parts of sums and copies, aligned to 16 bytes, or 0 without them."""
        _, _, splits = self._chosen
        sums = splits * prod(self.batches) * self.m * self.n if splits > 1 else 0
        nbytes = workspace_aligned(sums * ELEMENT_BYTES[self.compute])
        return max(nbytes, self._by_tma.workspace_bytes if self._by_tma else 0)

    @property
    def estimated_seconds(self) -> float:
        """Return the approximate seconds."""
        return self._by_tma.seconds if self._by_tma else self._chosen[0]

    def launches(self, workspace: tuple[str, int] = (ABSENT, 0)) -> list[Launch]:
        """Return one launch or, with split-K, two. ``workspace`` is the operand and the byte offset of
        ``workspace_bytes``.
        """
        found = self._launches(workspace)
        return [self._by_tma.launch(workspace, Launches(found))] if self._by_tma else found

    def launches_in_scratch(self, start: int = 0) -> list[Launch]:
        """Return the launches with a workspace in scratch memory that begins at byte ``start``."""
        found = self.launches((SCRATCH, start) if self.workspace_bytes else (ABSENT, 0))
        for launch in found:
            launch.scratch_bytes = start + self.workspace_bytes
        return found

    def launches_in_parts(self) -> tuple[list[Launch], int]:
        """Return the launches that leave partial sums in scratch memory at the offset of C, and the number of parts.

        The caller adds the parts; with TMA there is one. Beta must be 0, and C must have no gaps.
        """
        begin, nbytes = self.c.offset, prod(self.batches) * self.m * self.n * ELEMENT_BYTES[self.compute]
        _, _, splits = self._chosen
        if self._by_tma or splits == 1:
            return self.launches_in_scratch(workspace_aligned(begin + nbytes)), 1
        found = self._launches((SCRATCH, begin))[:1]
        found[0].scratch_bytes = begin + splits * nbytes
        return found, splits

    def _launches(self, workspace: tuple[str, int]) -> list[Launch]:
        _, tile, splits = self._chosen
        total = self._k_blocks if self._counts_k_blocks else self.segments * self.k
        real = c_double if self.compute == "double" else c_float
        m_tiles = -(-self.m // tile.m)
        batches = prod(self.batches)
        arguments = structure(
            *pointers(5),
            ("left", self.a.struct),
            ("right", self.b.struct),
            ("result", self.c.struct),
            *fields_of(c_longlong, bias_offset=self.bias[1], workspace_offset=workspace[1]),
            *((name, c_int(getattr(self, name))) for name in ("m", "n", "k")),
            *fields_of(c_int, total=total, per_split=-(-total // splits)),
            *fields_of(FastDivmod.of, segment=total // self.segments, splits=splits, inner=self.batches[1]),
            *fields_of(c_int, m_tiles=m_tiles, batches=batches),
            ("beta", real(self.beta)),
        )
        definitions = (
            ("A_MN_MAJOR", str(int(self.a.is_mn_major))),
            ("B_MN_MAJOR", str(int(self.b.is_mn_major))),
            ("COMPUTE", self.compute),
            ("ELEMENT", self.element),
            ("RESULT", self.result),
            ("TENSOR_CORES", str(int(self.tensor_cores))),
        )
        operands = (self.a.operand, self.b.operand, self.bias[0], self.c.operand, workspace[0])
        grid = (m_tiles * -(-self.n // tile.n), batches * splits, 1)
        source = matrix_fp32.SOURCE if tile in matrix_fp32.TILES else SOURCE
        function = self.device.function(source, f"gemm_matrix_{tile.name}", definitions)
        found = [Launch(function, arguments, operands, grid, (tile.threads, 1, 1), tile.shared_bytes)]
        if splits > 1:
            function = self.device.function(SOURCE, "gemm_matrix_sum", definitions)
            blocks = (-(-self.m * self.n // SUM_THREADS), batches, 1)
            found.append(Launch(function, arguments, operands, blocks, (SUM_THREADS, 1, 1)))
        return found
