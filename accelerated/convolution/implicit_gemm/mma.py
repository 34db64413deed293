"""Plan matrix products of convolutions on tensor cores (convolution/implicit_gemm/mma.cu)."""

from __future__ import annotations

from ...plans import Launch, pointers, structure
from ...primitives.geometry import THREADS
from ...reproducible import Order
from ..problem import Rates, product_fields, rounded_up
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
GATHERED = 100e9  # values of x a second that blocks gather one by one, where the K of a pixel is not contiguous
SHARING = 128  # filters that share a gathered value


class MmaKernel(ProductKernel):
    """Describe tiles of n filters by 128 pixels, with rows of 128 bytes. The rows are 16-byte vectors of x, or values
    gathered one by one.
    """

    def __init__(self, n: int) -> None:
        self.n = n
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

    def operations_per_second(self, product: Product) -> float:
        return Rates.TENSOR_CORES_TF32 if product.element == "float" else Rates.TENSOR_CORES

    def gathering_seconds(self, product: Product) -> float:
        value = product.value
        if value.x_vectors:
            return 0.0
        values = value.m * rounded_up(value.k, ROW_BYTES // product.element_bytes) * product.groups
        # A multiprocessor gathers the values of one tile at a time, and others wait where there are fewer tiles.
        busy = min(1.0, tiles(value, product.groups, M, self.n) / product.device.multiprocessors)
        return values * -(-value.n // SHARING) / GATHERED / busy


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
