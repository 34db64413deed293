"""The kernels of matrix products, the preferred first, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence

from ...plans import Launch
from ...solver import forced_solvers
from .fp32 import FP32
from .mma import MMA
from .product import Product, ProductKernel
from .simt import SIMT
from .tma import TMA

KERNELS: tuple[ProductKernel, ...] = (*TMA, *MMA, *FP32, *SIMT)


def preferred_kernel(product: Product, kernels: Sequence[ProductKernel] = KERNELS) -> ProductKernel:
    """Return the kernel that is expected to compute a product first; of kernels of which none is preferred, one that
    can."""
    found = next((kernel for kernel in kernels if kernel.is_preferred(product)), None)
    return found or next(kernel for kernel in kernels if kernel.serves(product))


def kernel_of(product: Product, kernels: Sequence[ProductKernel] = KERNELS) -> ProductKernel:
    """Return the kernel that computes a product: one that is forced by the name of its solver, else the preferred
    one."""
    if forced := forced_solvers():
        found = next((kernel for kernel in kernels if kernel.name in forced and kernel.serves(product)), None)
        if found is not None:
            return found
    return preferred_kernel(product, kernels)


def product_launch(product: Product) -> Launch:
    """Return the launch that computes a product."""
    return kernel_of(product).launch(product)
