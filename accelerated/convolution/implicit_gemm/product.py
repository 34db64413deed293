"""Matrix products with an epilogue: what convolutions ask of the kernels that multiply.

A product is the implicit GEMM of a convolution, the product of an im2col buffer with the filter, or a batch of products
of transformed values; ``ConvolutionStruct`` describes all of them. A ``ProductKernel`` is one kernel, of one tile, that
computes products; ``products.py`` has all of them in order of preference.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

from ...plans import Launch
from ...reproducible import CANONICAL_IMAGES, Order
from ..problem import PLAIN, ConvolutionStruct, EpilogueStruct, Rates

ELEMENT_BYTES = {"double": 8, "float": 4, "half": 2, "bfloat16": 2, "int8": 1, "uint8": 1}


class TapWalk(NamedTuple):
    """Taps of a larger filter that a product meets: how many the filter has, which one is multiplied first, how far the
    one behind it, the one below it and the one on its right are. n_innermost: it is [K][tap][N], else [N][tap][K]."""

    taps: int
    first: int
    deep: int
    down: int
    right: int
    n_innermost: bool = True


@dataclass(frozen=True, eq=False)
class Product:
    """One matrix product for each group.

    definitions: of the module, with ELEMENT and COMPUTE. operands: x, w, y, prior, bias, by their names in the
    operation. offsets: bytes from those addresses to the beginning of x, w and y. finish: what becomes of the sums.
    tensor_cores: whether data type and math type let tensor cores multiply. words: elements are words of four 8-bit
    channels. float_result: of 8-bit data. reordered_filters: all filters / 32 where the filter is reordered, else 0.
    filters_last: w is [group][K][N], in packs of filters of 16 bytes, instead of [group][N][K]. walk: which taps of w
    TMA reads (data_gradient/residue_classes.py). statistics: whether the
    workspace gets the sums of the results and of their squares, by filter (statistics.py). factors: operands that have
    an alpha and a beta for each filter, empty where it is 1; () where these are numbers. prologue: operands that scale
    and bias each channel of x; notes: whether the first words of the workspace, zeros before, say which blocks met no
    NaN (pack_groups.py); rectified: whether negative values of x become 0 then.
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
    statistics: bool = False
    factors: tuple[str, ...] = ()
    prologue: tuple[str, ...] = ()
    notes: bool = False
    rectified: bool = False

    @property
    def element(self) -> str:
        return dict(self.definitions)["ELEMENT"]

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.element]

    @property
    def k_walk(self) -> tuple[str, int, int]:
        """How K is walked: its terms, channels innermost in blocks of so many."""
        return "K", self.value.k, self.value.inner_channels.divisor

    @property
    def canonical(self) -> Product:
        """The product for the canonical number of images, whose kernel gives the order of sums above level RUN."""
        value = ConvolutionStruct.from_buffer_copy(self.value)
        value.first_m, value.m = 0, CANONICAL_IMAGES * prod(output.divisor for output in value.output)
        return replace(self, value=value)


class ProductKernel:
    """A kernel that computes products, with tiles of one size. ``name`` is that of the solver that serves with it
    alone."""

    name = ""

    def serves(self, product: Product) -> bool:
        """Return whether the kernel would compute the product, however slowly."""
        raise TypeError(f"{type(self).__name__} does not define serves()")

    def is_preferred(self, product: Product) -> bool:
        """Return whether the kernel serves the product and is expected to be faster than those after it."""
        raise TypeError(f"{type(self).__name__} does not define is_preferred()")

    def summation_order(self, product: Product) -> Order:
        """Return in which order the kernel adds the K of a result, which may not depend on its tiles."""
        raise TypeError(f"{type(self).__name__} does not define summation_order()")

    def launch(self, product: Product) -> Launch:
        raise TypeError(f"{type(self).__name__} does not define launch()")

    def operations_per_second(self, product: Product) -> float:
        """Return the rate, two operations for each multiply-add."""
        return Rates.DOUBLES if product.element == "double" else Rates.WORDS if product.words else Rates.FLOATS

    def gathering_seconds(self, product: Product) -> float:
        """Return the seconds that the kernel waits for single values of x."""
        return 0.0


def tiles(value: ConvolutionStruct, groups: int, m: int, n: int) -> int:
    """Return how many tiles of m pixels by n filters cover the products of all groups."""
    return -(-value.n // n) * -(-value.m // m) * groups
