"""Plan matrix products of convolutions on the tensor cores of compute capability 9.0, fed by TMA
(convolution/implicit_gemm/tma.cu).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import c_int, c_longlong, c_ubyte, c_uint, sizeof
from dataclasses import replace
from itertools import accumulate
from math import gcd, prod
from typing import Any, NamedTuple

from dualdnn.api.operations.backend import RUN

from ...gemm import stream_k
from ...plans import COUNTERS, SCRATCH, Launch, fields_of, pointers, structure
from ...primitives.geometry import FastDivmod
from ...primitives.tma import ALIGNMENT as COPY_ALIGNMENT
from ...primitives.tma import MAP_BYTES, ROW_BYTES, Im2colMap, TiledMap, TmaLaunch, has_wgmma, mapped_structure
from ...reproducible import Order, level_of
from ...runtime.scratch import COUNTER_BYTES
from ..problem import AXES, ConvolutionStruct, Rates, pixel_pitch, rounded_up
from .mma import preferred_mma
from .product import Product, ProductKernel, TapWalk

SOURCE = "convolution/implicit_gemm/tma.cu"
WARP = 32  # threads
WARPGROUP = 128  # threads
SWIZZLE_BYTES = 1024
WARP_ROWS = 16  # pixels whose sums a warp has
BLENDED_ROWS = 64  # rows of the product that TMA loads at once, for four warps
BOXES = 2  # boxes of results in flight per warp
JOINED = 8  # products per launch, at most
JOINED_HEAD = 128  # bytes before the arguments of joined products
MIN_FILL = 0.5  # share of the 128 bytes of a tap that channels fill
MIN_FILL_MAPPED = 0.25  # share of these bytes where channels are innermost and TMA writes y
MIN_FILL_OF_BOXES = {2: 0.75, 4: 0.5}  # share of the boxes that pixels of an image in NCHW fill, by bytes of a pixel
TILE_CLOCKS = 1300  # clocks of a tile in which nothing is multiplied or stored
SPLIT_TILE_CLOCKS = 5000  # the same where two warpgroups add their sums and lanes store them
RESULTS = 14  # (M x N) results that TMA stores in a clock
RESULTS_OF_WARPS = 3  # (M x N) results that the warps store in a clock
# In NHWC, rows that are not a multiple of 16 bytes are slower. The blocks of mma.cu write such rows of 16
# bits sooner, where K is short and their tiles are full.
ODD_RESULTS = 0.8  # results of 16 bits per clock in such rows
ODD_FLOATS = 180  # floats per clock in such rows, per N
SHORT_K_BLOCKS = 4  # K-blocks per tile, at most, for which mma.cu is faster
FILLED_N = 128  # filters that fill a tile of mma.cu
SINGLE_ROUND = 0.8  # share of the clocks that tiles take where each multiprocessor has one at most
MIN_K_BLOCKS = 4  # fewest K-blocks of a block that shares a tile
MAX_PARTS = 16  # blocks that share a tile
SUM_BYTES = COUNTER_SIZE = 4
ADD_CLOCKS = 5400  # clocks in which a block stores its sums and learns that the others have stored theirs
ADDED_SUMS = 86.0  # bytes of sums that a multiprocessor reads and adds in a clock
UNDIVIDED = 0.91  # share of the estimate that tiles with one block each take where they are few
STREAMED = 2.6e12  # bytes per second of operands that the blocks read once
PRODUCTS = 32  # M x N that the tensor cores multiply with 128 bytes of K in a clock
SECTOR_BYTES = 32  # bytes that the memory reads at once
# A multiprocessor's TMA moves a row of 128 bytes in these clocks. Rows in memory fill it, or have whole sectors, or
# neither.
ROW_CLOCKS = (2.0, 4.5, 7.8)
WIDE_ROW_CLOCKS = (2.0, 2.5, 4.8)  # the same of pixels of at least WIDE_BYTES, whose rows share sectors
WIDE_BYTES = 512
STORED_CLOCKS = (3.0, 9.0, 15.0)  # the same for rows of results


class Sharing(NamedTuple):
    """Describe how persistent blocks share tiles.

    Where a tile takes at most ``few_k_blocks`` K-blocks, persistent blocks take ``first_share`` of the tiles, if that
    is ``min_tiles`` for each. The others go to later blocks with a fixed number of results. Larger later blocks
    balance less; smaller ones start too often.
    """

    few_k_blocks: int = 2
    first_share: float = 0.75
    min_tiles: int = 4
    later_results: int = 2**16


SHARING = Sharing()


class Planes(NamedTuple):
    """Describe x and y in NCHW, where filters of one tap multiply x in place.

    ``image``: the map of x (pixels of ``merged`` channels, channels, images). Channels are merged where the pixels of
    one are not a multiple of 16 bytes. ``padded``: pixels of an image, rounded up to full boxes. ``result``: the map of
    y, or None where channels are merged.
    """

    merged: int
    padded: int
    image: TiledMap
    result: TiledMap | None


class Maps(NamedTuple):
    """Hold the TMA maps: x, w, and y with its prior values, or None where the warps write y."""

    image: Im2colMap | TiledMap
    filter: TiledMap
    result: TiledMap | None


class TmaKernel(ProductKernel):
    """Describe tiles of m pixels by n filters.

    ``consumers``: warpgroups that multiply. ``nchw``: y is NCHW. ``transposed``: x is NCHW, too, as it was given.
    ``throughput``: share of the tensor cores' rate that long sums reach. ``moves``: bytes of x and y per clock of a
    multiprocessor that short sums reach. Both were measured on an H200 for tiles of 128 x 256 and transposed tiles; the
    others use the same rates.
    """

    def __init__(
        self, m: int, n: int, consumers: int, stages: int, throughput: float, *, nchw: bool = False,
        transposed: bool = False, moves: float = 15.0, sharing: Sharing = SHARING,
    ) -> None:  # fmt: skip
        self.m, self.n, self.consumers, self.stages, self.throughput = m, n, consumers, stages, throughput
        self.nchw, self.transposed, self.moves, self.sharing = nchw, transposed, moves, sharing
        kind = "transposed_" if transposed else "nchw_" if nchw else ""
        self.name = f"convolution.implicit_gemm_tma_{kind}{m}x{n}"

    @property
    def entry(self) -> str:
        """Return the kernel's entry point."""
        return self.name.replace(".", "_")

    def splits_k(self, product: Product) -> bool:
        """Return whether two warpgroups have the same pixels and every other K-block, and store y without TMA."""
        return self.transposed and self.consumers == 1 and product.element == "float"

    def _warpgroups(self, product: Product) -> int:
        return 2 if self.splits_k(product) else self.consumers

    def threads(self, product: Product) -> int:
        return (self._warpgroups(product) + 1) * WARPGROUP

    def shared_bytes(self, product: Product) -> int:
        scratch = self._warpgroups(product) * WARPGROUP // 32 * BOXES * WARP_ROWS * ROW_BYTES
        return self.stages * (self.m + self.n) * ROW_BYTES + SWIZZLE_BYTES + scratch

    def serves(self, product: Product) -> bool:
        return _has_wgmma(product) and self._maps(product) is not None

    def is_preferred(self, product: Product) -> bool:
        filled = _fill(product.value, product.element_bytes)
        if not _has_wgmma(product) or filled < MIN_FILL_MAPPED:
            return False
        maps = self._maps(product) if self is fastest(product) else None
        last = product.value.x_channel == product.value.y_channel == 1
        if filled < MIN_FILL and (maps is None or maps.result is None or not last):
            return False
        if maps is None or maps.result is not None or product.value.y_channel != 1:
            return maps is not None
        return product.element_bytes != 2 or product.value.n < FILLED_N or k_blocks(product) > SHORT_K_BLOCKS

    def computing_seconds(self, product: Product) -> float:
        clocks, _ = self.clocks(product, self._is_mapped(product))
        division = self.division(product)
        once = not division.unsplit if division else self.all_tiles(product) <= product.device.multiprocessors
        share = SINGLE_ROUND if once and not self.transposed else 1.0
        return share * clocks / Rates.CLOCK

    def gathering_seconds(self, product: Product) -> float:
        """Return the seconds in which TMA moves all rows of tiles, whatever they hold."""
        if self.transposed or self.nchw:
            return 0.0
        value, size, all_tiles = product.value, product.element_bytes, self.all_tiles(product)
        stored = self.m * -(-min(self.n, value.n) * size // ROW_BYTES) * row_clocks(value.n * size, STORED_CLOCKS)
        rows = k_blocks(product) * self._loading_clocks(product) + (stored if value.y_channel == 1 else 0)
        division = self.division(product)
        blocks = division.blocks if division else min(all_tiles, product.device.multiprocessors)
        return all_tiles * rows / blocks / Rates.CLOCK

    def _loading_clocks(self, product: Product) -> float:
        """Return the clocks in which TMA loads a K-block with channels innermost."""
        return (self.m + self.n) * row_clocks(product.value.inner_channels.divisor * product.element_bytes)

    def _maps(self, product: Product) -> Maps | None:
        """Return the maps, or None where TMA cannot read x or w."""
        planes = planes_of(product)
        if self.transposed != (planes is not None):
            return None
        filters = _filter_map(product, self.n)
        if planes:
            return Maps(planes.image, filters, planes.result)
        result, nchw = _result_map(product) or (None, False)
        image = _image_map(product, self.m)
        if (self.nchw and not nchw) or image is None or not filters.is_possible:
            return None
        result = result if self.nchw == nchw else None
        return Maps(image, filters, result)

    def _is_mapped(self, product: Product) -> bool:
        """Return whether TMA writes y."""
        maps = self._maps(product)
        return maps is not None and maps.result is not None

    def _blended_map(self, product: Product, result: TiledMap) -> TiledMap:
        """Return the map of the prior values, in larger boxes where rows of several warps are consecutive."""
        from_registers = self.transposed and product.element == "float"
        return result if from_registers else replace(result, box=(result.box[0], BLENDED_ROWS, 1))

    def clocks(self, product: Product, mapped: bool) -> tuple[float, float]:
        """Return the approximate clocks of a multiprocessor, with and without memory traffic. ``mapped`` means
        that TMA writes y.
        """
        value, multiprocessors = product.value, product.device.multiprocessors
        moved = value.m * (value.n + value.inner_channels.divisor) * product.groups * product.element_bytes
        k_block, finished = self._tile_clocks(product, mapped)
        division = self.division(product, mapped)
        computing = (
            self._divided_clocks(product, division, k_block, finished)
            if division
            else self._whole_clocks(product, k_block, finished)
        )
        return max(computing, moved / multiprocessors / self.moves), computing

    def _tile_clocks(self, product: Product, mapped: bool) -> tuple[float, float]:
        """Return the clocks of a tile that a K-block takes, and those that its results take."""
        value, size = product.value, self.m * self.n
        planes = planes_of(product) if self.transposed else None
        k_block = size / PRODUCTS / self.throughput
        if planes and planes.merged > 1:  # Their rows begin at any vector of 16 bytes.
            k_block = max(k_block, (self.m + self.n) * ROW_CLOCKS[1])
        odd = ODD_RESULTS if product.element_bytes == 2 else ODD_FLOATS / self.n
        written = size / (RESULTS if mapped else odd if value.y_channel == 1 else RESULTS_OF_WARPS)
        return k_block, written + (SPLIT_TILE_CLOCKS if self.splits_k(product) else TILE_CLOCKS)

    def division(self, product: Product, mapped: bool | None = None) -> stream_k.Shares | None:
        """Return how blocks share the K of tiles; None where each tile has one block. ``mapped`` means that TMA
        writes y.

        Above level RUN none do, because the number of tiles decides, which depends on the batch.
        """
        if not product.divides or not self._divides(product):
            return None
        if mapped is None:
            mapped = self._is_mapped(product)
        k_block, finished = self._tile_clocks(product, mapped)
        whole = self._whole_clocks(product, k_block, finished)
        clocks, best = min(
            ((self._divided_clocks(product, each, k_block, finished), each) for each in self._divisions(product)),
            key=lambda timed: timed[0], default=(whole, None),
        )  # fmt: skip
        return best if clocks < UNDIVIDED * whole else None

    def _divides(self, product: Product) -> bool:
        """Return whether blocks can share K, which they do at level RUN alone."""
        return not product.notes and not self.splits_k(product) and level_of(product.device) == RUN

    def _divisions_of_all(self, products: Sequence[Product]) -> list[stream_k.Shares]:
        """Return how the blocks of one launch share the K of each of its products; nothing where none do.

        All blocks run at the same time, with about as many K-blocks.
        """
        counts, tiles = [k_blocks(product) for product in products], [self.all_tiles(product) for product in products]
        longest, mapped = max(counts), self._is_mapped(products[0])
        costs = self._tile_clocks(products[0], mapped)
        best, clocks = list[stream_k.Shares](), UNDIVIDED * (longest * costs[0] + costs[1])
        if not all(map(self._divides, products)):
            return best
        for wanted in range(2, MAX_PARTS + 1):
            share = -(-longest // wanted)
            parts = [-(-count // share) for count in counts]
            shared = sum(n for n, of_tile in zip(tiles, parts, strict=True) if of_tile > 1)
            blocks = sum(n * of_tile for n, of_tile in zip(tiles, parts, strict=True))
            if share < MIN_K_BLOCKS or blocks > products[0].device.multiprocessors:
                break
            if shared * self._tile_warps(products[0]) * COUNTER_SIZE > COUNTER_BYTES:
                break
            found = [
                stream_k.Shares.of(n, count, n * of_tile)
                if of_tile > 1
                else stream_k.Shares.with_unsplit(n, n, count, n)
                for n, count, of_tile in zip(tiles, counts, parts, strict=True)
            ]
            timed = zip(products, found, strict=True)
            seconds = max(self._divided_clocks(product, each, *costs) for product, each in timed if each.tiles)
            if seconds < clocks:
                best, clocks = found, seconds
        return best

    def _tile_warps(self, product: Product) -> int:
        """Return the warps that have sums of a tile."""
        return self._warpgroups(product) * WARPGROUP // WARP

    def _divisions(self, product: Product) -> Iterator[stream_k.Shares]:
        """Yield the divisions that may pay: of all tiles, or of those after the last full round of the device."""
        tiles, most, count = self.all_tiles(product), product.device.multiprocessors, k_blocks(product)
        for unsplit in sorted({0, tiles // most * most}):
            shared = tiles - unsplit
            if 0 < shared <= COUNTER_BYTES // (COUNTER_SIZE * self._tile_warps(product)):
                for parts in range(2, min(most // shared, count // MIN_K_BLOCKS, MAX_PARTS) + 1):
                    made = stream_k.Shares.of(shared, count, parts * shared)
                    yield made._replace(unsplit=unsplit, lone=min(most, unsplit), k_blocks=count)

    def _whole_clocks(self, product: Product, k_block: float, finished: float) -> float:
        """Return the clocks where each tile has one block."""
        rounds = -(-self.all_tiles(product) // product.device.multiprocessors)
        return rounds * (k_blocks(product) * k_block + finished)

    def _divided_clocks(self, product: Product, shares: stream_k.Shares, k_block: float, finished: float) -> float:
        """Return the clocks where blocks share tiles, which may be those in which they read their operands."""
        value = product.value
        elements = (value.n * value.k + value.m * value.inner_channels.divisor) * product.groups
        read = elements * product.element_bytes / STREAMED * Rates.CLOCK
        alone = shares.unsplit // max(1, shares.lone) * (shares.k_blocks * k_block + finished)
        added = ADD_CLOCKS + shares.parts * self.m * self.n * SUM_BYTES / ADDED_SUMS
        return max(alone + shares.max_k_blocks * k_block, read) + added + finished

    def _pixels(self, product: Product) -> int:
        """Return the pixels that tiles cover. Images in NCHW are rounded up to full boxes."""
        planes = planes_of(product) if self.transposed else None
        return product.value.m // _plane(product.value) * planes.padded if planes else product.value.m

    def _tiles(self, product: Product) -> tuple[int, int]:
        """Return the number of tiles across the filters of a group, and across the pixels."""
        return -(-product.value.n // self.n), -(-self._pixels(product) // self.m)

    def all_tiles(self, product: Product) -> int:
        """Return the number of tiles of all groups."""
        return prod(self._tiles(product)) * product.groups

    def shares(self, product: Product) -> Shares:
        """Return how blocks share the tiles."""
        return share_tiles(self, self.all_tiles(product), k_blocks(product), product.device.multiprocessors)

    def summation_order(self, product: Product) -> Order:
        sums = "wgmma, every other block" if self.splits_k(product) else "wgmma"
        shared = self.division(product)
        return Order(sums, (product.element, "taps of 128 bytes of channels", *((shared,) if shared else ())))

    def _arguments(
        self, product: Product, maps: Maps, division: stream_k.Shares | None = None, first: tuple[int, int] = (0, 0)
    ) -> Any:
        """Return the arguments of a product without its maps. ``first`` are its first slot and counter."""
        value, finish = product.value, product.finish
        plane = _plane(value)
        if maps.result is not None and maps.result.box[1] < WARP_ROWS:
            plane = value.output[2].divisor
        if self.transposed and (planes := planes_of(product)):
            plane = planes.padded
        n_tiles, m_tiles = self._tiles(product)
        return mapped_structure(
            *pointers(7),
            ("notes", c_int(product.notes)),
            *(
                (name, c_longlong(offset // product.element_bytes))
                for name, offset in zip(("y_offset", "prior_offset"), _behind(product), strict=True)
            ),
            ("reserved", (c_longlong * 6)()),
            *((name, (c_ubyte * MAP_BYTES)()) for name in ("image", "filter", "result", "blended")),
            ("convolution", value),
            ("epilogue", finish),
            *fields_of(FastDivmod.of, m_tiles=m_tiles, n_tiles=n_tiles),
            ("tiles", c_uint(n_tiles * m_tiles * product.groups)),
            ("group_channels", c_int(value.inner_channels.divisor)),
            ("channel_k_blocks", c_int(_channel_k_blocks(value, product.element_bytes))),
            *((f"tap_{name}", c_int(getattr(_walk(product), name))) for name in ("first", "deep", "down", "right")),
            ("boxes", c_int(0 if maps.result is None else WARP_ROWS // maps.result.box[1])),
            ("plane", FastDivmod.of(plane)),
            ("blends", c_int(maps.result is not None and finish.beta != 0 and not self.splits_k(product))),
            ("volumes", c_int(isinstance(maps.image, Im2colMap) and len(maps.image.taps) == AXES)),
            ("flat", c_int(isinstance(maps.image, TiledMap))),
            ("pixels", c_uint(_plane(value))),
            *self.shares(product).fields,
            *(_division_fields(division, m_tiles, n_tiles, first) if division else []),
        )

    def _located(self, product: Product, maps: Maps, arguments: Any) -> tuple[tuple[int, int, int, Any], ...]:
        """Yield the maps in the arguments, with their operand and the bytes after its address."""
        x_offset, w_offset, _ = product.offsets
        y_offset, prior_offset = _behind(product)
        placed = [(maps.image, "image", 0, x_offset), (maps.filter, "filter", 1, w_offset)]
        if maps.result is not None:
            placed.append((maps.result, "result", 2, y_offset))
            if product.finish.beta != 0 and not self.splits_k(product):
                placed.append((self._blended_map(product, maps.result), "blended", 3, prior_offset))
        return tuple(
            (getattr(type(arguments), name).offset, operand, offset, wanted) for wanted, name, operand, offset in placed
        )

    def joins(self, products: Sequence[Product]) -> bool:
        """Return whether one launch computes these products. Either the warps or TMA must write the results of all."""
        return len({maps is not None and maps.result is not None for maps in map(self._maps, products)}) == 1

    def launch_together(self, products: Sequence[Product]) -> TmaLaunch:
        """Return one launch of up to JOINED products of the same x, w and y, which ``joins`` must allow."""
        found = [self._maps(product) for product in products]
        device, walk, blocks, parts, located = products[0].device, products[0].walk, [], [], []
        divisions, first = self._divisions_of_all(products), (0, 0)
        for i, (product, maps) in enumerate(zip(products, found, strict=True)):
            assert maps is not None
            arguments = self._arguments(product, maps, divisions[i] if divisions else None, first)
            begin = JOINED_HEAD + i * sizeof(arguments)
            located += [(begin + offset, *other) for offset, *other in self._located(product, maps, arguments)]
            if divisions:
                first = first[0] + divisions[i].slots, first[1] + divisions[i].tiles * self._tile_warps(product)
            blocks.append(divisions[i].blocks if divisions else self.shares(product).blocks)
            parts.append((f"part{i}", arguments))
        parts += [(f"part{i}", type(parts[0][1])()) for i in range(len(parts), JOINED)]
        ends = (c_uint * JOINED)(*accumulate(blocks), *[sum(blocks)] * (JOINED - len(blocks)))
        chosen = {"JOINED": str(JOINED)} | ({"FILTERS_MN_MAJOR": "1"} if walk and walk.n_innermost else {})
        if found[0] is not None and found[0].result is None:
            chosen["MAPPED"] = "0"
        if divisions:
            chosen["DIVIDED"] = "1"
        definitions = tuple(sorted((*products[0].definitions, *chosen.items())))
        fields = ("ends", ends), ("reserved", (c_int * 12)())
        launch = Launch(
            device.function(SOURCE, self.entry, definitions), structure(*pointers(6), *fields, *parts),
            (*products[0].operands[:4], *((SCRATCH, COUNTERS) if divisions else ())), (sum(blocks), 1, 1),
            (self.threads(products[0]), 1, 1), self.shared_bytes(products[0]),
        )  # fmt: skip
        launch.scratch_bytes = first[0] * self.m * self.n * SUM_BYTES
        return TmaLaunch(device, (SOURCE, definitions), self.entry, launch, tuple(located), None)

    def launch(self, product: Product) -> Launch:
        device, maps, division = product.device, self._maps(product), self.division(product)
        assert maps is not None
        arguments = self._arguments(product, maps, division)
        definitions = product.definitions
        if maps.result is None:  # Warps write y. The additional code would slow the other kernel down by 2 %.
            definitions = tuple(sorted((*definitions, ("MAPPED", "0"))))
        if self.transposed and (planes := planes_of(product)) and planes.merged > 1:
            definitions = tuple(sorted((*definitions, ("MERGED", str(planes.merged)))))
        if product.walk and product.walk.n_innermost:
            definitions = tuple(sorted((*definitions, ("FILTERS_MN_MAJOR", "1"))))
        if division:
            definitions = tuple(sorted((*definitions, ("DIVIDED", "1"))))
        alone = product.walk  # No other kernel serves the product.
        function = (device.function if alone else device.function_when_ready)(SOURCE, self.entry, definitions)
        further = (SCRATCH, COUNTERS) if division else ("workSpace",) if product.notes else ()
        blocks, operands = (division or self.shares(product)).blocks, (*product.operands, *further)
        launch = Launch(
            function, arguments, operands, (blocks, 1, 1), (self.threads(product), 1, 1), self.shared_bytes(product)
        )
        if division:
            launch.scratch_bytes = division.slots * self.m * self.n * SUM_BYTES
        located = self._located(product, maps, arguments)
        fallback = None if alone else preferred_mma(product).launch(product)
        return TmaLaunch(device, (SOURCE, definitions), self.entry, launch, located, fallback)


TMA = (
    TmaKernel(128, 256, 2, 4, 0.92),
    TmaKernel(192, 128, 3, 4, 0.87),
    TmaKernel(128, 64, 2, 8, 0.7),
    TmaKernel(256, 64, 2, 4, 0.66),
    TmaKernel(128, 128, 2, 6, 0.88),
    TmaKernel(128, 192, 2, 4, 0.87),
    TmaKernel(256, 128, 2, 4, 0.74, nchw=True),
    TmaKernel(128, 128, 2, 6, 0.68, nchw=True),
    TmaKernel(256, 128, 2, 4, 0.74, nchw=True, transposed=True, moves=13.9),
    TmaKernel(128, 64, 1, 8, 0.5, nchw=True, transposed=True, moves=13.9),
)


class Shares(NamedTuple):
    """Order the blocks: the first take ``first_end`` tiles in turn, then each has ``later`` more."""

    first_blocks: int
    first_end: int
    later: int
    blocks: int

    @property
    def fields(self) -> list[tuple[str, Any]]:
        return [(name, c_uint(getattr(self, name))) for name in ("first_blocks", "first_end", "later")]


def share_tiles(kernel: TmaKernel, count: int, k_blocks: int, multiprocessors: int) -> Shares:
    """Return how to share the tiles. Multiprocessors write at different rates. Where tiles are mostly written, free
    multiprocessors take the last ones.
    """
    sharing = kernel.sharing
    first, later = min(count, multiprocessors), max(1, sharing.later_results // (kernel.m * kernel.n))
    kept = int(count // first * sharing.first_share) if k_blocks <= sharing.few_k_blocks else 0
    if kept < sharing.min_tiles:
        return Shares(first, count, later, first)
    return Shares(first, kept * first, later, first + -(-(count - kept * first) // later))


def _division_fields(
    division: stream_k.Shares, m_tiles: int, n_tiles: int, first: tuple[int, int]
) -> list[tuple[str, Any]]:
    return [
        ("division", division.division(m_tiles, n_tiles)),
        *fields_of(c_int, first_slot=first[0], first_counter=first[1]),
    ]


def _behind(product: Product) -> tuple[int, int]:
    """Return the byte offsets of y and of the prior values, which are equal where y holds the prior values."""
    y_offset = product.offsets[2]
    return y_offset, y_offset if product.operands[3] == product.operands[2] else 0


def fastest(product: Product) -> TmaKernel:
    """Return the kernel with which the device finishes first. Where memory is the bound, it is the one that computes
    least. The map of y fits either the kernels for NCHW or the others.
    """
    planes = planes_of(product)
    result, nchw = (planes.image, True) if planes else _result_map(product) or (None, False)
    possible = [kernel for kernel in TMA if kernel.transposed == bool(planes) and (nchw or not kernel.nchw)]
    return min(possible, key=lambda kernel: kernel.clocks(product, result is not None and kernel.nchw == nchw))


def stores_planes_sooner(planes: Product, last: Product, nbytes: int) -> bool:
    """Return whether TMA stores y in NCHW, no later than a copy after a product with channels innermost would.

    ``nbytes``: size of y.
    """
    if not _has_wgmma(planes):
        return False
    seconds = []
    for product in (planes, last):
        kernel = fastest(product)
        maps = kernel._maps(product)
        if maps is None or maps.result is None:
            return False
        seconds.append(kernel.clocks(product, True)[0] / Rates.CLOCK)
    return seconds[0] <= seconds[1] + Rates.LAUNCH + 2 * nbytes / Rates.BANDWIDTH


def _has_wgmma(product: Product) -> bool:
    return has_wgmma(product.device) and product.tensor_cores and "RESULT" not in dict(product.definitions)


def row_clocks(nbytes: int, clocks: tuple[float, float, float] | None = None) -> float:
    """Return the clocks in which TMA moves up to 128 of the bytes of a pixel, whose pixels have no gaps."""
    if clocks is None:
        clocks = WIDE_ROW_CLOCKS if nbytes >= WIDE_BYTES else ROW_CLOCKS
    return clocks[0 if nbytes % ROW_BYTES == 0 else 1 if nbytes % SECTOR_BYTES == 0 else 2]


def _channel_k_blocks(value: ConvolutionStruct, element_bytes: int) -> int:
    """Return the number of boxes of 128 bytes for the channels of a tap."""
    return -(-value.inner_channels.divisor * element_bytes // ROW_BYTES)


def _fill(value: ConvolutionStruct, element_bytes: int) -> float:
    """Return the share of the bytes of these boxes that channels fill."""
    return value.inner_channels.divisor * element_bytes / (_channel_k_blocks(value, element_bytes) * ROW_BYTES)


def k_blocks(product: Product) -> int:
    """Return the K-blocks of 128 bytes per tile."""
    taps = prod(filter.divisor for filter in product.value.filter)
    return _channel_k_blocks(product.value, product.element_bytes) * taps


def _factor(element: str) -> str:
    """Return the type that the tensor cores multiply."""
    return "tf32" if element == "float" else element


def _image_map(product: Product, m: int) -> Im2colMap | TiledMap | None:
    """Return the map of x, or None where TMA cannot read it. A tap that meets every pixel has a map of rows of pixels,
    which is faster.
    """
    value, groups, element_bytes = product.value, product.groups, product.element_bytes
    channels, taps = value.inner_channels.divisor, [filter.divisor for filter in value.filter]
    plain = (
        value.x_channel == 1
        and value.k == channels * prod(taps)
        and value.first_m == 0
        and (groups == 1 or channels * element_bytes % (COPY_ALIGNMENT if product.notes else ROW_BYTES) == 0)
        and min(value.step) > 0  # The steps of a matrix are 0.
    )
    if not plain:
        return None
    outputs = [output.divisor for output in value.output]
    images = value.m // prod(outputs)
    spans = [(taps[d] - 1) * value.dilation[d] for d in range(AXES)]
    flat = (taps[0], value.input[0], outputs[0], value.padding[0]) == (1, 1, 1, 0)
    axes = (2, 1) if flat else (2, 1, 0)  # width, height, and depth of volumes
    lone = rounded_up(channels * groups, COPY_ALIGNMENT // element_bytes)
    pitch = pixel_pitch((images, *outputs), value.x_pixel, lone) * element_bytes
    every = prod(taps) == 1 and max(value.step) == 1 and not any(value.padding) and outputs == list(value.input)
    if every and pitch:
        box = (ROW_BYTES // element_bytes, m, 1)
        rows = TiledMap(_factor(product.element), (channels * groups, value.m, 1), (pitch, pitch * value.m), box=box)
        return rows if rows.is_possible else None
    # The box ends with the last output pixel, because gradients may end before or after the last window.
    last = [(outputs[d] - 1) * value.step[d] - value.padding[d] for d in range(AXES)]
    strides = [*(value.x_axis[d] for d in axes), value.x_pixel[0]]
    extent = (channels * groups, *(value.input[d] for d in axes), images)
    for d, size in enumerate(extent[1:]):
        if size == 1:  # TMA never uses the stride, but it must be valid.
            strides[d] = extent[d] * (strides[d - 1] if d else 1)
    image = Im2colMap(
        _factor(product.element), extent, tuple(stride * element_bytes for stride in strides),
        lower=tuple(-value.padding[d] for d in axes),
        upper=tuple(last[d] + 1 - value.input[d] for d in axes),
        step=tuple(value.step[d] for d in axes),
        taps=tuple(spans[d] for d in axes),
        pixels=m,
    )  # fmt: skip
    return image if image.is_possible else None


def _walk(product: Product) -> TapWalk:
    """Return the walk of taps. A filter with channels innermost has its taps in order, or backwards."""
    depth, height, width = (filter.divisor for filter in product.value.filter)
    taps, plane = depth * height * width, height * width
    backwards = TapWalk(taps, taps - 1, -plane, -width, -1)
    return product.walk or (backwards if product.value.flipped else TapWalk(taps, 0, plane, width, 1))


def _filter_map(product: Product, n: int) -> TiledMap:
    value, element_bytes = product.value, product.element_bytes
    channels, taps = value.inner_channels.divisor, prod(filter.divisor for filter in value.filter)
    if product.walk and product.walk.n_innermost:
        box = ROW_BYTES // element_bytes
        row = value.n * element_bytes
        extent = (value.n, product.walk.taps, channels * product.groups)
        return TiledMap(_factor(product.element), extent, (row, product.walk.taps * row), box=(box, 1, box))
    tap = channels if taps > 1 else value.w_row  # A filter of one tap never uses the stride, but it must be valid.
    row = value.w_row
    if product.walk:
        taps, tap, row = product.walk.taps, channels, product.walk.taps * channels
    return TiledMap(
        _factor(product.element), (channels, taps, value.n * product.groups),
        (tap * element_bytes, row * element_bytes), box=(ROW_BYTES // element_bytes, 1, n),
    )  # fmt: skip


def _plane(value: ConvolutionStruct) -> int:
    """Return the pixels of an image."""
    return prod(output.divisor for output in value.output)


def planes_of(product: Product) -> Planes | None:
    """Return x and y in NCHW, if TMA can read x and the filters. Where it cannot store y, channels are merged."""
    value, groups, element_bytes = product.value, product.groups, product.element_bytes
    channels, plane, box = value.k, _plane(value), ROW_BYTES // element_bytes
    extents, images = [output.divisor for output in value.output], value.m // plane
    if value.x_channel == 1 or value.inner_channels.divisor != channels or value.w_row * element_bytes % COPY_ALIGNMENT:
        return None
    if not _follow(extents, value.x_pixel) or extents != list(value.input) or value.first_m or value.x_origin:
        return None
    if groups > 1 and channels % box:
        return None
    unit = COPY_ALIGNMENT // element_bytes
    merged = 1 if value.x_channel % unit == 0 and plane % unit == 0 else unit // gcd(plane, unit)
    boxes = -(-plane // (box - unit + unit // merged))
    if plane < MIN_FILL_OF_BOXES[element_bytes] * boxes * box:
        return None
    result = None
    if merged > 1:
        one = product.element == "float" and groups == 1 and channels % merged == 0 and value.x_channel == plane
        if not one or value.y_channel == 1 or not _follow(extents, value.y_pixel):
            return None
    else:
        result, nchw = _result_map(product, begins_with_image=True) or (None, False)
        if result is None or not nchw:
            return None
    between = value.x_pixel[0] if images > 1 else value.x_channel * channels * groups
    image = TiledMap(
        _factor(product.element), (merged * plane, channels * groups // merged, images),
        (merged * value.x_channel * element_bytes, between * element_bytes),
        box=(box, box // merged, 1),
    )  # fmt: skip
    return Planes(merged, boxes * box, image, result) if image.is_possible else None


def _follow(extents: list[int], strides: Sequence[int]) -> bool:
    """Return whether the pixels of an image are contiguous. ``strides`` begin with that of images."""
    step = 1
    for extent, stride in zip(extents[::-1], strides[:0:-1], strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True


def _result_map(product: Product, begins_with_image: bool = False) -> tuple[TiledMap, bool] | None:
    """Return the map of y and of its prior values, and whether they are NCHW, where pixels have equal strides.

    ``begins_with_image``: boxes begin with an image.
    """
    value, groups, element_bytes = product.value, product.groups, product.element_bytes
    extents = [output.divisor for output in value.output]
    nchw = value.y_channel != 1
    pitch = (
        1
        if nchw
        else next(
            (step for step, extent in zip(value.y_pixel[:0:-1], extents[::-1], strict=True) if extent > 1),
            value.n * groups,
        )
    )
    step = pitch
    plane = prod(extents)
    images = value.m // plane
    for d in range(AXES, 0, -1):
        if extents[d - 1] > 1 and value.y_pixel[d] != step:
            return None if nchw else _row_map(product, extents, images)
        step *= extents[d - 1]
    if nchw:
        extent = (plane, value.n * groups, images)
        strides = (value.y_channel, value.y_pixel[0] if images > 1 else value.y_channel * extent[1])
        if groups > 1 and value.n % WARP_ROWS:
            return None  # The last rows of a group would reach into the next group.
        if images > 1 and not begins_with_image and plane * element_bytes % ROW_BYTES:
            return None  # A box would reach into the next image, where it begins before the first pixel.
    else:
        if images > 1 and value.y_pixel[0] != step:
            return _row_map(product, extents, images)
        extent = (value.n, value.m, groups)
        strides = (pitch, value.n if groups > 1 else pitch * value.m)
    made = TiledMap(
        product.element, extent, tuple(stride * element_bytes for stride in strides),
        box=(ROW_BYTES // element_bytes, WARP_ROWS, 1),
    )  # fmt: skip
    return (made, nchw) if _is_stored_whole(made) else None


def _is_stored_whole(map_: TiledMap) -> bool:
    """Return whether TMA can store by a map, 16 bytes at a time, including the gaps after a row."""
    return map_.is_possible and map_.extent[0] * map_.element_bytes % COPY_ALIGNMENT == 0


def _row_map(product: Product, extents: list[int], images: int) -> tuple[TiledMap, bool] | None:
    """Return the map of y where pixels of a row have equal strides, and rows of all images do. Boxes are parts of
    rows.
    """
    value, element_bytes = product.value, product.element_bytes
    depth, height, width = extents
    # The 16 pixels of a warp take several boxes. A single box goes to the position of its pixel in the image.
    pixels = next((count for count in (8, 4, 2) if width % count == 0), 0)
    plane = height * value.y_pixel[2]
    rows_follow = (depth == 1 or value.y_pixel[1] == plane) and (images == 1 or value.y_pixel[0] == depth * plane)
    if not pixels or product.groups > 1 or product.finish.beta != 0 or not rows_follow:
        return None
    made = TiledMap(
        product.element, (value.n, width, depth * height * images),
        (value.y_pixel[3] * element_bytes, value.y_pixel[2] * element_bytes),
        box=(ROW_BYTES // element_bytes, pixels, 1),
    )  # fmt: skip
    return (made, False) if _is_stored_whole(made) else None
