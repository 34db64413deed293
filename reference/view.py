"""Convert between memory and plain (N, C, spatial ...) arrays: the one place for strides, formats and
vectorised channels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.numpy_layout import NUMPY_TYPES, Array, Layout, joined_vectors, layout
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF

__all__ = [
    "NUMPY_TYPES",
    "WHOLE",
    "Array",
    "Layout",
    "Place",
    "layout",
    "read",
    "rounded",
    "stored",
    "strided",
    "wide_type",
    "write",
]

Place = tuple[slice, ...]  # a part of a tensor: slices of (N, C, spatial ...)
WHOLE: Place = ()


def wide_type(data_type: cudnnDataType_t) -> type[np.floating[Any]]:
    """Return the reference's arithmetic: float64, or the machine's widest float for double data."""
    return np.longdouble if data_type == DOUBLE else np.float64


def strided(spec: TensorSpec, memory: Array) -> Array:
    """Return a view of the tensor's elements in ``memory`` (bytes), with the dimensions of ``spec.scalar_layout()``."""
    return layout(spec).of(memory)


def stored(spec: TensorSpec, memory: Array, place: Place = WHOLE) -> Array:
    """Return the tensor, or a part, in its own data type and dimensions.

    It is a view if the tensor is not vectorised.
    """
    elements = strided(spec, memory)[_among_vectors(spec, place)]
    return joined_vectors(spec, elements)


def read(spec: TensorSpec, memory: Array, wide: type[np.floating[Any]] | None = None, place: Place = WHOLE) -> Array:
    """Return the values of the tensor, or of a part, in the reference's arithmetic."""
    return stored(spec, memory, place).astype(wide or wide_type(spec.data_type))


def write(spec: TensorSpec, memory: Array, values: Array, place: Place = WHOLE) -> None:
    """Round ``values`` once into the tensor's data type and store them at ``place``; gaps keep their bytes."""
    narrow = values if _numpy_rounds_once(values, spec.scalar_type) else rounded(values, spec.scalar_type)
    target = strided(spec, memory)
    if spec.vector_length == 1:
        target[place] = narrow
    else:
        part = target[_among_vectors(spec, place)]
        part[...] = narrow.reshape(part.shape)


def _among_vectors(spec: TensorSpec, place: Place) -> Place:
    """Return the place in ``spec.scalar_layout()``. A part of a vectorised tensor begins and ends between vectors."""
    if spec.vector_length == 1 or place == WHOLE:
        return place
    images, channels, *spatial = place
    planes = slice(channels.start // spec.vector_length, channels.stop // spec.vector_length)
    return (images, planes, slice(None), *spatial)


def rounded(values: Array, data_type: cudnnDataType_t) -> Array:
    """Round to nearest, ties to even. Integers saturate and turn NaN into 0, as conversions on GPUs do."""
    dtype = NUMPY_TYPES[data_type]
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.clip(np.rint(np.nan_to_num(values, nan=0.0)), limits.min, limits.max).astype(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return (values if _numpy_rounds_once(values, data_type) else _once(values, np.float32)).astype(dtype)


def _numpy_rounds_once(values: Array, data_type: cudnnDataType_t) -> bool:
    """Return whether NumPy converts to the data type with one rounding; others go through float64 or float32."""
    return data_type in (FLOAT, DOUBLE) or (data_type == HALF and values.dtype in (np.float32, np.float64))


def _once(values: Array, dtype: type[np.float32]) -> Array:
    """Round to odd, so that the next, narrower rounding equals a direct one (no double rounding)."""
    narrow = values.astype(dtype)
    exact = narrow.astype(values.dtype) == values
    bits = narrow.view(np.uint32)
    # An inexact result with an even last bit moves one step towards the original value.
    step = np.where(np.abs(narrow.astype(values.dtype)) < np.abs(values), 1, -1)
    odd = np.where(exact | ~np.isfinite(narrow) | (bits & 1 == 1), bits, bits + step.astype(np.int64))
    return odd.astype(np.uint32).view(np.float32)
