"""Plan matrix products of convolutions in float (convolution/implicit_gemm/fp32.cu)."""

from __future__ import annotations

from ctypes import c_int

from ...plans import Launch, pointers, structure
from ...reproducible import Order
from ...runtime.device import reaches
from ..problem import m_in_vectors, product_fields
from .product import Product, ProductKernel, tiles

SOURCE = "convolution/implicit_gemm/fp32.cu"
DEFINITIONS = (("COMPUTE", "float"), ("ELEMENT", "float"))
MIN_ARCHITECTURE = 80  # compute capability 8.0, the first with cp.async
MAX_TAPS = 31  # sum of the taps per axis, because a mask has one bit for each
FEW_FILTERS = 16  # up to this many filters would leave most of a tile empty
VECTOR = 4  # floats per 16-byte vector
FLOAT_BYTES = 4
STAGES = 3  # K-blocks in flight
TILE_K = 16  # terms per K-block
TABLE_TILES = 8  # K-blocks whose offsets are located together
PADDING = 4  # additional columns per tile
TAP_BYTES = 8
THREADS = 128  # per block
OCCUPANCY = 4  # blocks per multiprocessor
UNEVEN = 0.85  # blocks beyond its share that some multiprocessor gets where all blocks are resident at once
ALONE = 0.35  # slowdown of a block that shares its multiprocessor with no other


class Fp32Kernel(ProductKernel):
    """Describe tiles of n filters by m pixels. ``throughput`` is in products per clock, relative to the fastest
    tile.
    """

    def __init__(self, n: int, m: int, throughput: float) -> None:
        self.n, self.m, self.throughput = n, m, throughput
        self.name = f"convolution.implicit_gemm_fp32_{n}x{m}"

    @property
    def shared_bytes(self) -> int:
        """Return the bytes of the stages and of the table of offsets."""
        columns = self.n + self.m + 2 * PADDING
        return STAGES * TILE_K * columns * FLOAT_BYTES + 2 * TABLE_TILES * TILE_K * TAP_BYTES

    def serves(self, product: Product) -> bool:
        if product.element != "float" or not reaches(product.device, MIN_ARCHITECTURE):
            return False
        return sum(taps.divisor for taps in product.value.filter) <= MAX_TAPS

    def is_preferred(self, product: Product) -> bool:
        if (product.tensor_cores and product.value.x_vectors) or not suits(product):
            return False
        return self is min(FP32, key=lambda kernel: kernel._duration(product))

    def _duration(self, product: Product) -> float:
        """Return the time for which the tiles occupy the device, in products of the fastest tile."""
        share = -(-tiles(product.value, product.groups, self.m, self.n) // product.device.multiprocessors)
        last = share % OCCUPANCY  # blocks that share a multiprocessor in the end
        late = UNEVEN if share < OCCUPANCY else ALONE * last * (1 - last / OCCUPANCY)
        return (share + late) / self.throughput

    def summation_order(self, product: Product) -> Order:
        return Order("fma", (product.element, dict(product.definitions)["COMPUTE"], *product.k_walk))

    def launch(self, product: Product) -> Launch:
        value, groups = product.value, product.groups
        n_tiles, m_tiles = -(-value.n // self.n), -(-value.m // self.m)
        arguments = structure(
            *pointers(5),
            *product_fields(value, product.finish, product.offsets, m_tiles, n_tiles),
            ("m_vectors", c_int(m_in_vectors(value, groups, VECTOR))),
        )
        kind = "nchw_vectors" if product.filters_last else _kind(product)
        function = product.device.function(
            SOURCE, f"convolution_implicit_gemm_fp32_{kind}_{self.n}x{self.m}", DEFINITIONS
        )
        grid = (n_tiles * m_tiles * groups, 1, 1)
        return Launch(function, arguments, product.operands, grid, (THREADS, 1, 1), self.shared_bytes)


FP32 = (Fp32Kernel(128, 64, 1.0), Fp32Kernel(64, 128, 0.95))


def _kind(product: Product) -> str:
    """Return the kernel's variant: "rows" if x is contiguous along K (NHWC), "nchw" if it is contiguous along M."""
    return "rows" if product.value.x_channel == 1 else "nchw"


def suits(product: Product) -> bool:
    """Return whether the kernels can serve a product, and it has enough filters to fill a tile."""
    return product.value.n > FEW_FILTERS and FP32[0].serves(product)
