"""Plan matrix products of convolutions on tensor cores (convolution/implicit_gemm/mma.cu)."""

from __future__ import annotations

from ...plans import Launch, pointers, structure
from ...primitives.geometry import THREADS
from ...reproducible import Order
from ..problem import REFERENCE_MULTIPROCESSORS, Rates, product_fields, rounded_up
from . import fp32
from .product import Product, ProductKernel, tiles

SOURCE = "convolution/implicit_gemm/mma.cu"
M = 128  # pixels per block
ROW_BYTES = 128  # bytes per operand row in one K-block
STAGES = {("vectors", 64): 4, ("vectors", 128): 3, ("values", 64): 4, ("values", 128): 4}
SWIZZLE_BYTES = 1024  # alignment of the stages
# Hopper has an instruction for a full warpgroup. Every tensor core has the instruction of a warp, which is slower on
# Hopper.
WGMMA_INSTRUCTIONS = True
# RATES has operations a second of an H200, for 16-bit elements and for floats, as the benchmark's longest sums reach
# them. RESULTS (M x N) are stored in a clock of a multiprocessor.
RATES = {
    ("vectors", 64): (266e12, 53e12),
    ("vectors", 128): (396e12, 70e12),
    ("values", 64): (54e12, 28e12),
    ("values", 128): (100e12, 24.5e12),
}
RESULTS = 2.5
FLOAT_BYTES = 4


class MmaKernel(ProductKernel):
    """Describe tiles of n filters by 128 pixels, with rows of 128 bytes. The rows are 16-byte vectors of x, or values
    gathered one by one.
    """

    def __init__(self, n: int) -> None:
        self.m, self.n = M, n
        self.name = f"convolution.implicit_gemm_mma_{n}"

    def serves(self, product: Product) -> bool:
        return product.tensor_cores and _shared_bytes(product, self.n) <= product.device.shared_bytes_per_block

    def is_preferred(self, product: Product) -> bool:
        gathered = product.element == "float" and not product.value.x_vectors and fp32.suits(product)
        return product.tensor_cores and not gathered and self.n == _preferred_n(product)

    def summation_order(self, product: Product) -> Order:
        return Order("mma", (product.element, *product.k_walk))

    def launch(self, product: Product) -> Launch:
        value = product.value
        n_tiles, m_tiles = -(-value.n // self.n), -(-value.m // M)
        arguments = structure(
            *pointers(5),
            *product_fields(value, product.finish, product.offsets, m_tiles, n_tiles),
        )
        kind, variant = _kind(product), () if WGMMA_INSTRUCTIONS else (("MMA_SYNC_ONLY", "1"),)
        definitions = (*product.definitions, *variant)
        function = product.device.function(SOURCE, f"convolution_implicit_gemm_mma_{kind}_{self.n}", definitions)
        grid = (n_tiles * m_tiles * product.groups, 1, 1)
        return Launch(function, arguments, product.operands, grid, (THREADS, 1, 1), _shared_bytes(product, self.n))

    def tile_seconds(self, product: Product) -> float:
        element_bytes = product.element_bytes
        rate = RATES[_kind(product), self.n][element_bytes == FLOAT_BYTES] / REFERENCE_MULTIPROCESSORS
        terms = rounded_up(product.value.k, ROW_BYTES // element_bytes)
        return 2.0 * M * self.n * terms / rate + M * self.n / RESULTS / Rates.CLOCK


MMA = (MmaKernel(64), MmaKernel(128))


def preferred_mma(product: Product) -> MmaKernel:
    """Return the tensor-core kernel with which the device finishes first."""
    return next(kernel for kernel in MMA if kernel.n == _preferred_n(product))


def _kind(product: Product) -> str:
    return "vectors" if product.value.x_vectors else "values"


def _shared_bytes(product: Product, n: int) -> int:
    return STAGES[_kind(product), n] * (M + n) * ROW_BYTES + SWIZZLE_BYTES


def _preferred_n(product: Product) -> int:
    """Return the filters of the tile that occupies the device for the shortest time."""
    value, multiprocessors = product.value, product.device.multiprocessors
    small, large = (tiles(value, product.groups, M, n) for n in (64, 128))
    if value.n <= 64 or _shared_bytes(product, 128) > product.device.shared_bytes_per_block:
        return 64
    if value.x_vectors:
        return 64 if large < multiprocessors else 128
    # A multiprocessor runs one tile of gathered values at a time.
    return 64 if -(-small // multiprocessors) == -(-large // multiprocessors) else 128
