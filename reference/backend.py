"""The reference backend: host memory, work done at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from dualdnn.api.operations import Operation

from .engine import run
from .view import Array


class HostBuffer:
    """Memory of the reference backend."""

    def __init__(self, nbytes: int) -> None:
        try:
            self.memory: Array | None = np.empty(nbytes, np.uint8)
        except (MemoryError, ValueError) as error:
            raise MemoryError(f"{nbytes} bytes of host memory could not be had") from error
        self.nbytes = nbytes
        self.address = self.memory.ctypes.data
        self.writable = True

    def to_host(self, dtype: Any, shape: Sequence[int] | int) -> Array:
        """A copy of the first elements as an array of ``dtype`` and ``shape``."""
        if self.memory is None:
            raise ValueError("the buffer was freed")
        return copied(self.memory, self.nbytes, dtype, shape)

    def slice(self, offset: int, nbytes: int) -> Any:
        """``nbytes`` bytes of the buffer from ``offset``, as an operand; it lives as long as its own reference."""
        if self.memory is None:
            raise ValueError("the buffer was freed")
        return self.memory[checked_slice(offset, nbytes, self.nbytes)]

    def free(self) -> None:
        if self.memory is None:
            raise ValueError("the buffer was freed already")
        self.memory = None


class HostOperand:
    """Memory that the caller owns, through the buffer protocol."""

    def __init__(self, value: Any) -> None:
        view = memoryview(value)
        if not view.c_contiguous:
            raise ValueError("is not contiguous; pass the base array, the descriptor holds the strides")
        self.memory: Array = np.frombuffer(view, np.uint8)
        self.nbytes = view.nbytes
        self.address = self.memory.ctypes.data
        self.writable = not view.readonly


class Stream:
    """A stream of the reference backend: work in it has always finished."""

    def __init__(self, backend_name: str = "reference") -> None:
        self.backend_name = backend_name

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def done(self) -> bool:
        return True


class ReferenceBackend:
    """Runs operations in NumPy, in wide arithmetic, one rounding into the output type."""

    name = "reference"
    description = "reference"

    def allocate(self, nbytes: int) -> HostBuffer:
        return HostBuffer(nbytes)

    def to_device(self, array: Any) -> HostBuffer:
        buffer = HostBuffer(array.nbytes)
        assert buffer.memory is not None
        buffer.memory[:] = np.frombuffer(array.tobytes(), np.uint8)
        return buffer

    def operand(self, value: Any) -> Any:
        if isinstance(value, HostBuffer):
            if value.memory is None:
                raise ValueError("was freed")
            return value
        try:
            return HostOperand(value)
        except TypeError:
            what = type(value).__name__
            raise TypeError(
                f"is a {what}, not memory of the reference backend (a buffer of it, or a NumPy array)"
            ) from None

    def prepare(self, operation: Operation) -> Callable[[Sequence[Any], Any], None]:
        names = operation.operands

        def launch(operands: Sequence[Any], _stream: Any) -> None:
            run(operation, {name: o.memory for name, o in zip(names, operands, strict=True) if o is not None})

        return launch

    def workspace_bytes(self, _operation: Operation) -> int:
        return 0

    def preferred_algorithms(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        """As they come: every algorithm is the same computation here."""
        return operations

    def algorithm_time(self, operation: Operation, operands: Sequence[Any], stream: Any) -> float:
        launch = self.prepare(operation)
        start = perf_counter()
        launch(operands, stream)
        return (perf_counter() - start) * 1000

    def new_stream(self) -> Stream:
        return Stream()

    def stream(self, value: Any) -> Stream | None:
        if value is None or isinstance(value, Stream):
            return value
        if hasattr(value, "synchronize"):
            raise ValueError("belongs to another device")
        raise TypeError(f"is a {type(value).__name__}, not a stream of the reference backend")

    def finished(self, _stream: Any) -> bool:
        return True

    def synchronize(self, _stream: Any) -> None:
        """Nothing is ever pending."""

    def close(self) -> None:
        """Nothing to give back."""


def copied(memory: Array, nbytes: int, dtype: Any, shape: Sequence[int] | int) -> Array:
    """The first elements of ``memory`` as a new array; ``ValueError`` where the buffer is too small."""
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    dtype = np.dtype(dtype)
    count = int(np.prod(dims, dtype=np.int64))
    if count * dtype.itemsize > nbytes:
        raise ValueError(f"shape {dims} of {dtype} needs {count * dtype.itemsize} bytes, the buffer has {nbytes}")
    return np.frombuffer(memory, dtype, count).reshape(dims).copy()


def checked_slice(offset: int, nbytes: int, size: int) -> slice:
    """The part [offset, offset + nbytes) of ``size`` bytes; ``ValueError`` where it is not inside."""
    if offset < 0 or nbytes < 0 or offset + nbytes > size:
        raise ValueError(f"bytes {offset} to {offset + nbytes} are not inside a buffer of {size} bytes")
    return slice(offset, offset + nbytes)
