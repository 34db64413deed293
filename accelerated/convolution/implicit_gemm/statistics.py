"""Plan convolutions whose epilogue works by filter: it sums results and their squares for batch normalisation, or
scales each filter (tma.cu). statistics.cu adds the sums of the blocks.
"""

from __future__ import annotations

from ctypes import c_int
from typing import Any, NamedTuple

from dualdnn.api.operations import ConvolutionForward, TensorSpec

from ...plans import Launch, fields_of, pointers, structure
from ..forward import IMPLICIT, ConvolutionProblem
from .product import Product
from .tma import TMA, TmaKernel

SOURCE = "convolution/implicit_gemm/statistics.cu"
THREADS = 256  # per block
FILTERS = 4  # per block
NUMBER_BYTES = 4
FINISHING = tuple(kernel for kernel in TMA if not kernel.nchw and not kernel.plain)


def finished_product(operation: ConvolutionForward, device: Any, kernel: TmaKernel) -> Product | None:
    """Return the product of a convolution if the kernel can finish it by filter in one launch, else None."""
    if operation.algo not in IMPLICIT:
        return None
    products = ConvolutionProblem(operation, device).products
    return products[0] if len(products) == 1 and kernel.finishes(products[0]) else None


def is_preferred(product: Product, kernel: TmaKernel) -> bool:
    """Return whether a TMA kernel is preferred for the product, and ``kernel`` is the fastest that finishes by
    filter.
    """
    possible = [other for other in FINISHING if other.finishes(product)]
    best = min(possible, key=lambda other: other.clocks(product, True))
    return best is kernel and any(other.is_preferred(product) for other in TMA)


class SummedConvolution(NamedTuple):
    """Serve a convolution with a kernel that sums its stored results, and a launch that finishes the sums."""

    product: Product
    kernel: TmaKernel

    @property
    def nbytes(self) -> int:
        """Return the bytes of the sums of all blocks in the workspace."""
        blocks, filters = self.kernel.sums_of_blocks(self.product)
        return 2 * blocks * filters * NUMBER_BYTES

    def launches(self, results: tuple[str, str], of: TensorSpec) -> list[Launch]:
        """Return the launches. The sums of blocks are at the beginning of ``workSpace``.

        ``results`` are the operands of the sums and of the sums of squares; ``of`` are their descriptions.
        """
        blocks, pitch = self.kernel.sums_of_blocks(self.product)
        filters = self.product.value.n
        arguments = structure(
            *pointers(3),
            *fields_of(c_int, blocks=blocks, pitch=pitch, filters=filters, stride=of.strides[1]),
        )
        function = self.product.device.function(SOURCE, "convolution_statistics", (("THREADS", str(THREADS)),))
        finish = Launch(function, arguments, ("workSpace", *results), (-(-filters // FILTERS), 1, 1), (THREADS, 1, 1))
        return [self.kernel.launch(self.product), finish]
