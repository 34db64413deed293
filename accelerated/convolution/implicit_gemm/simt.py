"""Plan matrix products of any data type on the ordinary arithmetic units (convolution/implicit_gemm/simt.cu), and the
im2col buffer.
"""

from __future__ import annotations

from ctypes import c_int

from ...plans import Launch, fields_of, pointers, structure
from ...primitives.geometry import THREADS, FastDivmod, blocks
from ...reproducible import Order
from ..problem import ConvolutionStruct, m_in_vectors, product_fields
from .product import Product, ProductKernel, tiles

SOURCE = "convolution/implicit_gemm/simt.cu"
M_VECTORS = {"float": 4, "double": 2, "half": 8, "bfloat16": 8}  # elements per 16 bytes
FEW_FILTERS = 16  # filters per group, at most, for the tile of few filters
SHARE_OF_FP32 = 0.75  # rate of the fastest tile, as a share of the rate of fp32.cu
ALONE = 0.25  # slowdown of a block that shares its multiprocessor with no other


class SimtKernel(ProductKernel):
    """Describe tiles of n filters by m pixels. ``throughput`` is in products per clock, relative to the fastest tile;
    ``occupancy`` counts blocks per multiprocessor.
    """

    def __init__(self, n: int, m: int, throughput: float, occupancy: int) -> None:
        self.n, self.m, self.throughput, self.occupancy = n, m, throughput, occupancy
        self.name = f"convolution.implicit_gemm_{n}x{m}"

    def serves(self, product: Product) -> bool:
        """Return whether the tile serves. Single bytes and double need the smaller tiles, whose sums fit the
        registers.
        """
        single_bytes = product.element_bytes == 1 and not product.words
        small_only = single_bytes or dict(product.definitions)["COMPUTE"] == "double"
        return not product.filters_last and not (small_only and self is LARGE)

    def is_preferred(self, product: Product) -> bool:
        if product.value.n <= FEW_FILTERS:
            return self is FOR_FEW_FILTERS and self.serves(product)
        possible = [kernel for kernel in (LARGE, SMALL) if kernel.serves(product)]
        return self is min(possible, key=lambda kernel: kernel._duration(product))

    def _duration(self, product: Product) -> float:
        """Return the time for which the tiles occupy the device, in products of the fastest tile."""
        count = tiles(product.value, product.groups, self.m, self.n)
        rounds = -(-count // product.device.multiprocessors)
        alone = ALONE if rounds % self.occupancy == 1 else 0.0
        return (rounds + alone) * self.n * self.m / self.throughput

    def operations_per_second(self, product: Product) -> float:
        return super().operations_per_second(product) * self.throughput * SHARE_OF_FP32

    def summation_order(self, product: Product) -> Order:
        return Order("fma", (product.element, dict(product.definitions)["COMPUTE"], *product.k_walk))

    def launch(self, product: Product) -> Launch:
        value, groups = product.value, product.groups
        n_tiles, m_tiles = -(-value.n // self.n), -(-value.m // self.m)
        vectors = m_in_vectors(value, groups, M_VECTORS.get(product.element, 0))
        arguments = structure(
            *pointers(5),
            *product_fields(value, product.finish, product.offsets, m_tiles, n_tiles),
            *fields_of(c_int, words=product.words, float_result=product.float_result),
            *fields_of(c_int, reordered_filters=product.reordered_filters, m_vectors=vectors),
        )
        function = product.device.function(SOURCE, f"convolution_implicit_gemm_{self.n}x{self.m}", product.definitions)
        grid = (n_tiles * m_tiles * groups, 1, 1)
        return Launch(function, arguments, product.operands, grid, (THREADS, 1, 1))


FOR_FEW_FILTERS = SimtKernel(16, 256, 0.85, 4)
LARGE = SimtKernel(64, 128, 1.0, 3)
SMALL = SimtKernel(64, 64, 0.85, 4)
SIMT = (FOR_FEW_FILTERS, LARGE, SMALL)


def im2col_launch(
    device: object, definitions: tuple[tuple[str, str], ...], value: ConvolutionStruct, groups: int,
    row: int, width: int,
    operands: tuple[str, str],
) -> Launch:  # fmt: skip
    """Return the launch that writes an im2col buffer with rows of ``row`` elements, ``width`` elements at a time."""
    vectors = -(-row // width)
    arguments = structure(
        *pointers(2),
        ("convolution", value),
        *fields_of(FastDivmod.of, vectors=vectors, groups=groups),
        *fields_of(c_int, row=row, packed=row % width == 0),
    )
    entry = "convolution_implicit_gemm_im2col_buffer"
    function = device.function(SOURCE, entry, definitions)  # type: ignore[attr-defined]
    return Launch(function, arguments, operands, blocks(value.m * groups * vectors))
