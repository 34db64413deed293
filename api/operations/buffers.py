"""Implement what the buffers of every backend share: sizes, copies, slices and ownership of the memory."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from .numpy_layout import Array, joined_vectors, layout
from .specs import FilterSpec

MAX_BYTES = 2**63 - 1  # the limit of an address space


class OwnedMemory(Protocol):
    """Describe an allocation that a buffer shares with its slices."""

    address: int
    freed: bool

    def free(self) -> None: ...


class _FreedSlice:
    """Replace the memory of a slice that was freed."""

    address = 0
    freed = True

    def free(self) -> None: ...


class SharedBuffer(ABC):
    """Hold memory that a backend allocated, or a part of it.

    ``address``, ``nbytes`` and ``writable`` make it an operand. Slices share the allocation and live until the whole
    buffer is freed. A ``with`` statement frees the buffer at its end.
    """

    writable = True
    location = "host"  # It names the place of the memory in messages.

    def __init__(self, memory: OwnedMemory, address: int, nbytes: int, is_slice: bool = False) -> None:
        self.memory, self.address, self.nbytes, self.is_slice = memory, address, nbytes, is_slice

    # Each backend implements these methods.

    @abstractmethod
    def contents(self, nbytes: int) -> bytearray:
        """Return a copy of the first ``nbytes`` bytes, after all work of the device has finished."""

    @abstractmethod
    def part(self, offset: int, nbytes: int) -> Any:
        """Return a slice; the caller has checked the limits."""

    @abstractmethod
    def duplicate(self) -> Any:
        """Return a new buffer with the same bytes."""

    # These methods use the methods above.

    def to_host(self, dtype: Any, shape: Sequence[int] | int | None = None) -> Array:
        """Return a NumPy copy of the first elements.

        ``dtype`` and ``shape`` describe them; one size may be -1 (as many as fit). A tensor or filter descriptor as
        ``dtype`` gives its elements in the order (N, C, spatial ...). Raise ValueError if the buffer is too small.
        """
        self.require_alive()
        spec = getattr(dtype, "spec", None)
        if shape is None and spec is not None:
            return self._elements_of(spec.tensor if isinstance(spec, FilterSpec) else spec)
        if shape is None:
            raise TypeError(
                f"to_host takes a data type and a shape, or an initialised tensor descriptor, not {dtype!r}"
            )
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            raise TypeError(f"memory of a buffer holds no objects of Python: {dtype}")
        dims = self._inferred(shape, dtype.itemsize)
        wanted = math.prod(dims) * dtype.itemsize
        if wanted > self.nbytes:
            raise ValueError(f"shape {dims} of {dtype} needs {wanted} bytes, the buffer has {self.nbytes}")
        return np.frombuffer(self.contents(wanted), dtype).reshape(dims)

    def _inferred(self, shape: Sequence[int] | int, itemsize: int) -> tuple[int, ...]:
        dims = (operator.index(shape),) if hasattr(shape, "__index__") else tuple(map(operator.index, shape))
        if dims.count(-1) > 1 or min(dims, default=0) < -1:
            raise ValueError(f"shape {dims}: sizes are 0 or more, and one of them may be -1")
        if -1 not in dims:
            return dims
        known = math.prod(size for size in dims if size != -1) * itemsize
        if not known or self.nbytes % known:
            raise ValueError(f"shape {dims}: {self.nbytes} bytes are not a multiple of {known}")
        return tuple(self.nbytes // known if size == -1 else size for size in dims)

    def _elements_of(self, spec: Any) -> Array:
        if spec.nbytes > self.nbytes:
            raise ValueError(f"{spec} needs {spec.nbytes} bytes, the buffer has {self.nbytes}")
        memory = np.frombuffer(self.contents(spec.nbytes), np.uint8)
        return joined_vectors(spec, layout(spec).of(memory)).copy()

    def slice(self, offset: int, nbytes: int) -> Any:
        """Return a buffer of ``nbytes`` bytes from ``offset`` in the same memory; it lives until the whole buffer is
        freed."""
        self.require_alive()
        offset, nbytes = operator.index(offset), operator.index(nbytes)
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"bytes {offset} to {offset + nbytes} are not inside a buffer of {self.nbytes} bytes")
        return self.part(offset, nbytes)

    def free(self) -> None:
        """Free the memory; on a slice, end only the use of the slice."""
        self.require_alive(" already")
        if self.is_slice:
            self.memory = _FreedSlice()
        else:
            self.memory.free()

    def require_alive(self, when: str = "") -> None:
        if self.memory.freed:
            raise ValueError(f"the buffer was freed{when}")

    def __enter__(self) -> Any:
        self.require_alive()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.memory.freed:
            self.free()

    def __deepcopy__(self, _memo: Any) -> Any:
        self.require_alive()
        return self.duplicate()

    def __reduce_ex__(self, _protocol: Any) -> Any:
        raise TypeError("a buffer's address means nothing elsewhere: pass on what to_host returns")

    def __repr__(self) -> str:
        state = "freed, " if self.memory.freed else ""
        part = "slice, " if self.is_slice else ""
        return f"<buffer of {self.nbytes} bytes at {self.address:#x}, {state}{part}{self.location}>"


def checked_size(nbytes: Any) -> int:
    """Return a number of bytes as an integer; raise ValueError if negative and MemoryError if no address space holds so
    many."""
    size = operator.index(nbytes)
    if size < 0:
        raise ValueError(f"nbytes is {size}, a size cannot be negative")
    if size > MAX_BYTES:
        raise MemoryError(f"{size} bytes are more than an address space holds")
    return size
