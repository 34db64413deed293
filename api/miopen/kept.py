"""Store what a forward call keeps in a workspace for the backward call of pooling and LRN, and compute the gradients
from it.

docs/errata.md (M010, M011) defines the contents. Arrays are on the host; cudnnTransformTensor copies them, so every
backend and every stride is supported.
"""

from __future__ import annotations

import hashlib
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ..enumerations import cudnnDataType_t, cudnnTensorFormat_t
from .calls import cudnn
from .status import BAD_PARM, expect

Array = NDArray[Any]
LOWEST = np.finfo(np.float32).min  # the value of padding, which never counts as a maximum
LAST = 1 << 14  # forward calls of a handle whose contents are remembered; each takes some hundred bytes
TYPES = {np.dtype(np.float32): cudnnDataType_t.CUDNN_DATA_FLOAT, np.dtype(np.int8): cudnnDataType_t.CUDNN_DATA_INT8}


def described(dtype: Any, dims: tuple[int, ...]) -> Any:
    """Return the descriptor of a packed tensor of four dimensions."""
    made = cudnn("cudnnCreateTensorDescriptor")()
    cudnn("cudnnSetTensor4dDescriptor")(made, cudnnTensorFormat_t.CUDNN_TENSOR_NCHW, TYPES[np.dtype(dtype)], *dims)
    return made


def read(handle: Any, descriptor: Any, memory: Any, dtype: Any = np.float32) -> Array:
    """Return the elements of a tensor of this type, with its dimensions."""
    dims = tuple(descriptor.spec.dims)
    with handle.allocate(np.dtype(dtype).itemsize * prod(dims)) as copy:
        cudnn("cudnnTransformTensor")(handle.cudnn, 1.0, descriptor, memory, 0.0, described(dtype, dims), copy)
        elements: Array = copy.to_host(dtype, dims)
    return elements


def write(handle: Any, elements: Array, descriptor: Any, memory: Any) -> None:
    """Copy the elements into a tensor of their type."""
    packed = np.ascontiguousarray(elements)
    with handle.to_device(packed) as copy:
        cudnn("cudnnTransformTensor")(
            handle.cudnn, 1.0, described(packed.dtype, packed.shape), copy, 0.0, descriptor, memory
        )
        handle.synchronize()


def remember(handle: Any, descriptors: tuple[Any, ...], stored: Array) -> None:
    """Note what a forward call has stored in a workspace for these descriptors."""
    handle.stored.pop(key := _key(descriptors, stored), None)
    handle.stored[key] = None
    if len(handle.stored) > LAST:
        handle.stored.pop(next(iter(handle.stored)))


def recalled(handle: Any, workspace: Any, descriptors: tuple[Any, ...], dtype: Any, clause: str) -> Array:
    """Return the elements of a workspace, one for each element of y (the last descriptor).

    Raises BadParm unless a forward call stored these for the descriptors, here or elsewhere: they may have been copied.
    """
    expect(workspace is not None, BAD_PARM, clause, "workspace is NULL: the forward call with do_backward fills it")
    dims = descriptors[-1].cudnn.spec.dims
    handle.address(workspace, clause, "workspace", np.dtype(dtype).itemsize * prod(dims))
    found = read(handle, described(dtype, dims), workspace, dtype)
    expect(_key(descriptors, found) in handle.stored, BAD_PARM, clause,
           "workspace does not hold what a forward call with do_backward stored for these descriptors on this handle: "
           "it was filled for others, or overwritten")  # fmt: skip
    return found


def _key(descriptors: tuple[Any, ...], stored: Array) -> tuple[Any, ...]:
    """Return the specifications of the descriptors and a digest of the elements, in which every NaN is the same."""
    alike = np.where(np.isnan(stored), np.float32(np.nan), stored) if stored.dtype.kind == "f" else stored
    specs = tuple(descriptor.cudnn.spec for descriptor in descriptors)
    return specs, hashlib.blake2b(np.ascontiguousarray(alike).tobytes(), digest_size=16).digest()


def places(x: Array, pooling: Any, extents: tuple[int, ...]) -> Array:
    """Return the position of the maximum in each window, counted along its rows; the first of equal elements counts.

    NaN and padding never count; if no element exceeds the lowest number, the position is 0. extents: rows and
    columns of the result.
    """
    reach = [(n - 1) * stride + size for n, stride, size in zip(extents, pooling.stride, pooling.window, strict=True)]
    (top, left), (h, w) = pooling.padding, x.shape[2:]
    padded = np.full((*x.shape[:2], max(reach[0], top + h), max(reach[1], left + w)), LOWEST, np.float32)
    padded[:, :, top : top + h, left : left + w] = np.fmax(x, LOWEST)
    windows = sliding_window_view(padded, tuple(pooling.window), axis=(2, 3))
    windows = windows[:, :, :: pooling.stride[0], :: pooling.stride[1]][:, :, : extents[0], : extents[1]]
    return windows.reshape(*windows.shape[:4], -1).argmax(-1)


def pooled_gradient(kept: Array, dy: Array, pooling: Any, extents: tuple[int, ...]) -> Array:
    """Return dx of max pooling: each element of dy is added at its stored position. extents: rows and columns of
    x."""
    (h, w), (images, channels, *outputs) = extents, dy.shape
    row, column = (
        np.arange(n) * stride - pad for n, stride, pad in zip(outputs, pooling.stride, pooling.padding, strict=True)
    )
    row = row[:, None] + kept // pooling.window[1]
    column = column + kept % pooling.window[1]
    plane = np.arange(images * channels).reshape(images, channels, 1, 1)
    inside = (row >= 0) & (row < h) & (column >= 0) & (column < w)
    target = ((plane * h + row) * w + column)[inside]
    sums = np.bincount(target, dy[inside].astype(np.float64), images * channels * h * w)
    return sums.astype(np.float32).reshape(images, channels, h, w)


def across_channels(terms: Array, n: int) -> Array:
    """Return, for each channel, the sum over its window of n channels, in float64."""
    padded = np.pad(terms.astype(np.float64), ((0, 0), (n // 2, n // 2), (0, 0), (0, 0)))
    sums: Array = sliding_window_view(padded, n, axis=1).sum(-1)
    return sums


def scales(x: Array, lrn: Any) -> Array:
    """Return the scale of LRN, before the power: K + alpha / n * the sum of squares."""
    squares = across_channels(x.astype(np.float64) ** 2, lrn.lrnN)
    with np.errstate(over="ignore"):
        return (lrn.lrnK + lrn.lrnAlpha / lrn.lrnN * squares).astype(np.float32)


def lrn_gradient(kept: Array, y: Array, dy: Array, x: Array, lrn: Any) -> Array:
    """Return dx of LRN from the stored scales: dy * scale^-beta - 2 alpha beta / n * x * the sum of dy * y / scale."""
    scale, gradient = kept.astype(np.float64), dy.astype(np.float64)
    with np.errstate(all="ignore"):
        sums = across_channels(gradient * y / scale, lrn.lrnN)
        ratio = 2 * lrn.lrnAlpha * lrn.lrnBeta / lrn.lrnN
        return (gradient * scale**-lrn.lrnBeta - ratio * x * sums).astype(np.float32)
