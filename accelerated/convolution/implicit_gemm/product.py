"""Describe matrix products with an epilogue: the interface between convolutions and the kernels that multiply.

A product is the implicit GEMM of a convolution, or the product of an im2col buffer and the filter. It may also be a
batch of products of transformed values. ``ConvolutionStruct`` describes all of them. A ``ProductKernel`` is one kernel,
of one tile, that computes products; ``products.py`` lists all of them in order of preference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

from ...plans import Launch
from ...reproducible import CANONICAL_IMAGES, Order
from ..problem import PLAIN, REFERENCE_MULTIPROCESSORS, ConvolutionStruct, EpilogueStruct, Rates

# 700 products of the benchmark on an H200 gave these numbers.
TILE_TERMS = 32  # terms of K that take as long as a tile's first loads and its results
ALONE = 0.5  # share by which a tile that is alone on its multiprocessor takes longer
ELEMENT_BYTES = {"double": 8, "float": 4, "half": 2, "bfloat16": 2, "int8": 1, "uint8": 1}


class TapWalk(NamedTuple):
    """Describe which taps of a larger filter a product multiplies.

    The fields are the taps of the filter, the first tap, and the steps to the next plane, row and column.
    ``n_innermost`` means that the filter is [K][tap][N] instead of [N][tap][K].
    """

    taps: int
    first: int
    deep: int
    down: int
    right: int
    n_innermost: bool = True


@dataclass(frozen=True, eq=False)
class Product:
    """Describe one matrix product for each group.

    ``definitions``: of the module, with ELEMENT and COMPUTE. ``operands``: the names of x, w, y, prior and bias in the
    operation. ``offsets``: bytes from their addresses to the beginning of x, w and y. ``finish``: the epilogue of the
    sums. ``tensor_cores``: whether data type and math type allow them. ``words``: elements are words of four 8-bit
    channels. ``float_result``: the result of 8-bit data is float. ``reordered_filters``: all filters / 32 where the
    filter is reordered, else 0. ``filters_last``: w is [group][K][N], in 16-byte vectors of filters, instead of
    [group][N][K]. ``walk``: the taps of w that TMA reads (data_gradient/residue_classes.py). ``notes``: the
    first words of the workspace, zeros before, record the blocks that met no NaN (pack_groups.py). ``divides``: blocks
    may share the K of a tile.
    """

    device: Any
    definitions: tuple[tuple[str, str], ...]
    value: ConvolutionStruct
    groups: int
    operands: tuple[str, ...]
    offsets: tuple[int, int, int] = (0, 0, 0)
    finish: EpilogueStruct = PLAIN
    tensor_cores: bool = False
    words: bool = False
    float_result: bool = False
    reordered_filters: int = 0
    filters_last: bool = False
    walk: TapWalk | None = None
    notes: bool = False
    divides: bool = True

    @property
    def element(self) -> str:
        return dict(self.definitions)["ELEMENT"]

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.element]

    @property
    def k_walk(self) -> tuple[str, int, int]:
        """Return the order in which K is walked: its terms, and the size of the blocks with channels innermost."""
        return "K", self.value.k, self.value.inner_channels.divisor

    @property
    def canonical(self) -> Product:
        """Return the product for the canonical number of images. Its kernel gives the order of sums above level RUN."""
        value = ConvolutionStruct.from_buffer_copy(self.value)
        value.first_m, value.m = 0, CANONICAL_IMAGES * prod(output.divisor for output in value.output)
        return replace(self, value=value)


class ProductKernel:
    """Compute products with tiles of ``m`` pixels by ``n`` filters. ``name`` is the name of the solver that serves with
    this kernel alone.
    """

    name = ""
    m = n = 0

    def serves(self, product: Product) -> bool:
        """Return whether the kernel would compute the product, however slowly."""
        raise TypeError(f"{type(self).__name__} does not define serves()")

    def is_preferred(self, product: Product) -> bool:
        """Return whether the kernel serves the product and is expected to be faster than those after it."""
        raise TypeError(f"{type(self).__name__} does not define is_preferred()")

    def summation_order(self, product: Product) -> Order:
        """Return the order in which the kernel adds the K of a result, which may not depend on its tiles."""
        raise TypeError(f"{type(self).__name__} does not define summation_order()")

    def launch(self, product: Product) -> Launch:
        raise TypeError(f"{type(self).__name__} does not define launch()")

    def computing_seconds(self, product: Product) -> float:
        """Return the seconds in which the multiprocessors compute the tiles, without the launch."""
        rounds = -(-tiles(product.value, product.groups, self.m, self.n) // product.device.multiprocessors)
        return (rounds + (ALONE if rounds == 1 else 0.0)) * self.tile_seconds(product)

    def tile_seconds(self, product: Product) -> float:
        """Return the seconds of a tile on a multiprocessor that has several."""
        rate = self.operations_per_second(product) / REFERENCE_MULTIPROCESSORS
        return 2.0 * self.m * self.n * (product.value.k + TILE_TERMS) / rate

    def gathering_seconds(self, product: Product) -> float:
        """Return the seconds in which the kernel loads x in pieces that memory and caches do not bound."""
        return 0.0

    def operations_per_second(self, product: Product) -> float:
        """Return the rate of an H200, two operations for each multiply-add."""
        return Rates.DOUBLES if product.element == "double" else Rates.WORDS if product.words else Rates.FLOATS


def tiles(value: ConvolutionStruct, groups: int, m: int, n: int) -> int:
    """Return the number of tiles of m pixels by n filters that cover the products of all groups."""
    return -(-value.n // n) * -(-value.m // m) * groups
