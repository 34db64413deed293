"""List the kernels of matrix products, the preferred first, and choose among them."""

from __future__ import annotations

from collections.abc import Sequence

from dualdnn.api.operations.backend import RUN

from ...plans import Launch
from ...reproducible import level_of, unreached
from ...solver import forced_solvers
from .fp32 import FP32
from .mma import MMA
from .product import Product, ProductKernel
from .simt import SIMT
from .tma import TMA

KERNELS: tuple[ProductKernel, ...] = (*TMA, *MMA, *FP32, *SIMT)


def preferred_kernel(product: Product, kernels: Sequence[ProductKernel] = KERNELS) -> ProductKernel:
    """Return the kernel that is expected to be the fastest, or one that can serve if none is preferred. Above level RUN
    it has the summation order of the level.
    """
    if (level := level_of(product.device)) != RUN:
        order = _preferred(product.canonical, kernels).summation_order(product.canonical)
        kernels = [k for k in kernels if k.serves(product) and k.summation_order(product) == order]
        if not kernels:
            raise unreached(product, level, order)
    return _preferred(product, kernels)


def _preferred(product: Product, kernels: Sequence[ProductKernel]) -> ProductKernel:
    found = next((kernel for kernel in kernels if kernel.is_preferred(product)), None)
    return found or next(kernel for kernel in kernels if kernel.serves(product))


def kernel_of(product: Product, kernels: Sequence[ProductKernel] = KERNELS) -> ProductKernel:
    """Return the kernel of a product: the one that the caller forces by name, else the preferred one."""
    if forced := forced_solvers():
        found = next((kernel for kernel in kernels if kernel.name in forced and kernel.serves(product)), None)
        if found is not None and level_of(product.device) == RUN:
            return found
    return preferred_kernel(product, kernels)


def product_launch(product: Product) -> Launch:
    """Return the launch that computes a product."""
    return kernel_of(product).launch(product)
