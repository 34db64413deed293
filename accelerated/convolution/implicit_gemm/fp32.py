"""Matrix products of convolutions in float (convolution/implicit_gemm/fp32.cu)."""

from __future__ import annotations

from ctypes import c_int

from ...plans import Launch, pointers, structure
from ..problem import m_in_packs, product_fields
from .product import Product, ProductKernel, tiles

SOURCE = "convolution/implicit_gemm/fp32.cu"
DEFINITIONS = (("COMPUTE", "float"), ("ELEMENT", "float"))
LEAST_ARCHITECTURE = 80  # whose copies do not pass through registers
MOST_TAPS = 31  # of all axes together: bits of a mask
FEW_FILTERS = 16  # for which these tiles are too large
PACK = 4  # floats
FLOAT_BYTES = 4
STAGES, TILE_K, TABLE_TILES = 3, 16, 8  # K-blocks in flight, K of one, K-blocks whose offsets are found at once
PADDING = 4  # columns of a tile
TAP_BYTES = 8
UNEVEN = 0.85  # blocks more than its share that some multiprocessor gets where all blocks are resident at once
ALONE = 0.35  # how much longer a block takes that shares its multiprocessor with none


class Fp32Kernel(ProductKernel):
    """Tiles of n filters by m pixels. occupancy: blocks of a multiprocessor; rows, planes: products per clock against the fastest
    tile's, where neighbours in x are K, or M (0: there is no such kernel); sums: of a thread."""

    def __init__(self, n: int, m: int, occupancy: int, rows: float, planes: float, sums: int = 64) -> None:
        self.n, self.m, self.occupancy, self.sums = n, m, occupancy, sums
        self.throughput = {"rows": rows, "planes": planes}
        self.name = f"convolution.implicit_gemm_fp32_{n}x{m}"

    @property
    def threads(self) -> int:
        return self.n * self.m // self.sums

    @property
    def shared_bytes(self) -> int:
        """Stages, and the table of offsets."""
        columns = self.n + self.m + 2 * PADDING
        return STAGES * TILE_K * columns * FLOAT_BYTES + 2 * TABLE_TILES * TILE_K * TAP_BYTES

    def serves(self, product: Product) -> bool:
        if product.element != "float" or not self.throughput[_kind(product)]:
            return False
        device = product.device
        if device.kind == "gpu" and int(device.architecture.removeprefix("sm_")) < LEAST_ARCHITECTURE:
            return False
        return sum(taps.divisor for taps in product.value.filter) <= MOST_TAPS

    def is_preferred(self, product: Product) -> bool:
        if product.tensor_cores or not suits(product):
            return False
        possible = [kernel for kernel in FP32 if kernel.throughput[_kind(product)]]
        return self is min(possible, key=lambda kernel: kernel._duration(product))

    def _duration(self, product: Product) -> float:
        """Return for how long the tiles occupy the device, in products of the fastest tile."""
        share = -(-tiles(product.value, product.groups, self.m, self.n) // product.device.multiprocessors)
        last = share % self.occupancy  # blocks that share a multiprocessor in the end
        late = UNEVEN if share < self.occupancy else ALONE * last * (1 - last / self.occupancy)
        return (share + late) * self.n * self.m / self.throughput[_kind(product)]

    def launch(self, product: Product) -> Launch:
        value, groups = product.value, product.groups
        n_tiles, m_tiles = -(-value.n // self.n), -(-value.m // self.m)
        arguments = structure(
            *pointers(5),
            *product_fields(value, product.finish, product.offsets, m_tiles, n_tiles),
            ("m_packs", c_int(m_in_packs(value, groups, PACK))),
        )
        kind = f"{_kind(product)}_packs" if product.filters_last else _kind(product)
        function = product.device.function(
            SOURCE, f"convolution_implicit_gemm_fp32_{kind}_{self.n}x{self.m}", DEFINITIONS
        )
        grid = (n_tiles * m_tiles * groups, 1, 1)
        return Launch(function, arguments, product.operands, grid, (self.threads, 1, 1), self.shared_bytes)


FP32 = (
    Fp32Kernel(128, 128, 2, 1.0, 0.98),
    Fp32Kernel(128, 96, 2, 0.93, 0.0, 96),
    Fp32Kernel(128, 64, 4, 0.985, 0.99),
    Fp32Kernel(64, 128, 4, 0.96, 0.97),
    Fp32Kernel(64, 64, 8, 0.89, 0.93),
)


def _kind(product: Product) -> str:
    """Return how x lies: in rows, whose neighbours are K, or in planes, whose neighbours are M."""
    return "rows" if product.value.x_channel == 1 else "planes"


def suits(product: Product) -> bool:
    """Return whether the kernels serve a product and its filters fill their tiles."""
    return product.value.n > FEW_FILTERS and FP32[0].serves(product)
