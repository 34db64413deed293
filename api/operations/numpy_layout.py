"""Map a tensor in memory to NumPy: the type of its elements and their positions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ..enumerations import cudnnDataType_t
from .specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32, UINT8, TensorSpec

Array = NDArray[Any]

NUMPY_TYPES: dict[cudnnDataType_t, np.dtype[Any]] = {
    FLOAT: np.dtype(np.float32),
    DOUBLE: np.dtype(np.float64),
    HALF: np.dtype(np.float16),
    BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    INT8: np.dtype(np.int8),
    UINT8: np.dtype(np.uint8),
    INT32: np.dtype(np.int32),
}


class Layout(NamedTuple):
    """Describe the positions of elements in memory; strides are in bytes."""

    dims: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]

    def of(self, memory: Array) -> Array:
        """Return a view of the elements inside ``memory``."""
        return np.ndarray(self.dims, self.dtype, memory, 0, self.strides)

    def transposed(self, order: Sequence[int]) -> Layout:
        return Layout(tuple(self.dims[axis] for axis in order), self.dtype, tuple(self.strides[axis] for axis in order))


@lru_cache(maxsize=4096)
def layout(spec: TensorSpec) -> Layout:
    """Return the NumPy layout of a tensor, in the dimensions of ``spec.scalar_layout()``.

    Strides are limited to the span: only dimensions of size 1 exceed it, and NumPy could not represent some of them.
    """
    dtype = NUMPY_TYPES[spec.scalar_type]
    dims, strides = spec.scalar_layout()
    span = spec.span * spec.vector_length
    return Layout(dims, dtype, tuple(min(stride, span) * dtype.itemsize for stride in strides))


def joined_vectors(spec: TensorSpec, elements: Array) -> Array:
    """Return elements with the dimensions of ``spec.scalar_layout()`` as (N, C, spatial ...). The result is a view, or
    a copy if the tensor is vectorised."""
    if spec.vector_length == 1:
        return elements
    images, planes, length, *spatial = elements.shape
    return elements.reshape(images, planes * length, *spatial)
