"""Multiply matrices of doubles in extended precision, so that the judge can check double convolutions."""

from __future__ import annotations

from math import ceil, log2
from typing import Any

import numpy as np

from .blocks import blocks
from .view import Array

BLOCK_BYTES = 2**23  # bytes of a block of the left factor, which is split block by block
UNSPLIT_PRODUCTS = 2**22  # products: up to here NumPy's extended precision is fast enough
MAX_SLICES = 6  # slices per factor
DOUBLE_BITS = 53  # bits of the significand of a double
EXTENDED_UNIT = 2.0**-64  # unit roundoff of extended precision


def precise_product(a: Array, b: Array) -> Array:
    """Return a @ b of doubles in extended precision, with an error of 2**-64 of the absolute terms for each sum.

    BLAS computes large products. Both factors are split exactly into slices with so few bits that products of two
    slices are exact in double (Ozaki, Ogita, Oishi, Rump 2012). Only their sum is rounded. Values that no slices can
    hold (not finite, or too far apart) use NumPy's slow loops on extended precision.
    """
    terms = a.shape[-1]
    if a.shape[-2] * b.size <= UNSPLIT_PRODUCTS:
        return np.matmul(a.astype(np.longdouble), b.astype(np.longdouble))
    bits = (DOUBLE_BITS - ceil(log2(terms * MAX_SLICES))) // 2
    right = _slices(b, -2, bits)
    total = np.empty((*a.shape[:-1], b.shape[-1]), np.longdouble)
    for (rows,) in blocks(a.shape[-2:-1], a.itemsize * a.size // a.shape[-2], BLOCK_BYTES):
        part: Any = (..., rows, slice(None))
        left = _slices(a[part], -1, bits)
        if left is None or right is None:
            total[part] = np.matmul(a[part].astype(np.longdouble), b.astype(np.longdouble))
        else:
            total[part] = _sliced_product(*left, *right, bits)
    return total


def product_of_doubles(a: Array, b: Array, out: Array | None = None) -> Array:
    """Return a @ b in the type of the factors, in ``out`` if given.

    Factors in extended precision must have values that a double holds; ``out`` is not used for them.
    """
    if a.dtype != np.longdouble:
        return np.matmul(a, b, out=out)
    return precise_product(a.astype(np.float64), b.astype(np.float64))


def _sliced_product(left: list[Array], left_scale: Array, right: list[Array], right_scale: Array, bits: int) -> Array:
    """Return the product of two factors that ``_slices`` has split."""
    # Pairs of level l are at most 2**(-bits * l). Pairs that are negligible next to the absolute terms are left out.
    sizes = np.matmul(np.abs(sum(left)), np.abs(sum(right)))
    smallest = float(sizes.min(initial=1.0, where=sizes > 0))
    negligible = smallest * EXTENDED_UNIT / (2 * MAX_SLICES * left[0].shape[-1])
    levels = min(len(left) + len(right) - 1, ceil(-log2(negligible) / bits))
    total = np.zeros(sizes.shape, np.longdouble)
    # All pairs of one level are one product, the smallest level first.
    for level in reversed(range(levels)):
        firsts = [i for i in range(len(left)) if 0 <= level - i < len(right)]
        wide = np.concatenate([left[i] for i in firsts], axis=-1)
        tall = np.concatenate([right[level - i] for i in firsts], axis=-2)
        total += np.matmul(wide, tall)
    return np.asarray(np.ldexp(total, left_scale + right_scale))


def _slices(values: Array, axis: int, bits: int) -> tuple[list[Array], Array] | None:
    """Return (slices, exponents) with values = sum of slices * 2**exponents, or None where it takes too many slices.

    Slice i is a multiple of 2**(-bits * (i + 1)) and at most 2**(-bits * i).
    """
    if not np.isfinite(values).all():
        return None
    exponents = np.frexp(np.abs(values).max(axis=axis, keepdims=True))[1]
    smallest = np.frexp(np.where(values == 0, 1, values))[1]
    reach = int(np.where(values == 0, 0, exponents - smallest).max(initial=0)) + DOUBLE_BITS
    if reach > MAX_SLICES * bits:
        return None
    rest = np.ldexp(values, -exponents)
    found: list[Array] = []
    while rest.any():
        rounder = 1.5 * 2.0 ** (DOUBLE_BITS - 1 - bits * (len(found) + 1))
        part = (rest + rounder) - rounder
        found.append(part)
        rest = rest - part
    return found or [rest], exponents
