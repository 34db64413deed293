"""Plan batches of products of float matrices on CUDA cores (matrix_fp32.cu)."""

from __future__ import annotations

from ..runtime.device import reaches
from .problem import ELEMENT_BYTES, Product, Tile

SOURCE = "gemm/matrix_fp32.cu"
MIN_ARCHITECTURE = 80  # compute capability; its copies do not pass through registers
STAGES = 3  # K-blocks in flight
TILE_K = 16  # k per K-block
PADDING = 4  # additional columns per tile


def _shared_bytes(m: int, n: int) -> int:
    return STAGES * TILE_K * (m + n + 2 * PADDING) * ELEMENT_BYTES["float"]


TILES = (
    Tile("fp32_128x128", 128, 128, 256, 2, _shared_bytes(128, 128), (0.0, 46e12)),
    Tile("fp32_64x64", 64, 64, 64, 8, _shared_bytes(64, 64), (0.0, 42e12)),
)


def serves(product: Product) -> bool:
    """Return whether these tiles can serve a product without tensor cores."""
    floats = (product.element, product.result, product.compute) == ("float", "float", "float")
    return floats and reaches(product.device, MIN_ARCHITECTURE)
