"""Run operations in host memory, synchronously: the reference backend."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from dualdnn.api.operations import Operation, dlpack
from dualdnn.api.operations.buffers import SharedBuffer, checked_size

from .engine import is_narrow, run
from .view import Array


class HostMemory:
    """Hold an allocation of the reference backend, freed with its last reference."""

    def __init__(self, nbytes: int) -> None:
        try:
            self.array: Array = np.empty(checked_size(nbytes), np.uint8)
        except (MemoryError, ValueError) as error:
            raise MemoryError(f"{nbytes} bytes of host memory could not be had") from error
        self.address = self.array.ctypes.data
        self.freed = False

    def free(self) -> None:
        self.freed = True
        self.array = np.empty(0, np.uint8)  # Arrays that share the memory keep it alive.


class HostBuffer(SharedBuffer):
    """Hold memory of the reference backend. NumPy and DLPack see its bytes without a copy."""

    location = "host memory of the reference backend"
    memory: HostMemory

    def __init__(self, memory: HostMemory, offset: int, nbytes: int, is_slice: bool = False) -> None:
        self.array = memory.array[offset : offset + nbytes]
        super().__init__(memory, memory.address + offset, nbytes, is_slice)
        self.offset = offset

    def contents(self, nbytes: int) -> bytearray:
        return bytearray(self.array[:nbytes])

    def part(self, offset: int, nbytes: int) -> HostBuffer:
        return HostBuffer(self.memory, self.offset + offset, nbytes, is_slice=True)

    def duplicate(self) -> HostBuffer:
        copy = HostBuffer(HostMemory(self.nbytes), 0, self.nbytes)
        copy.array[:] = self.array
        return copy

    def free(self) -> None:
        super().free()
        self.array = self.array[:0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        self.require_alive()
        return np.array(self.array, dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        self.require_alive()
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.CPU, 0)


class HostOperand:
    """Wrap memory that the caller owns: a NumPy array, a CPU tensor with DLPack, or an object with the buffer protocol."""

    __slots__ = ("address", "array", "nbytes", "owner", "writable")

    def __init__(self, value: Any) -> None:
        self.owner = value
        if isinstance(value, np.ndarray):
            elements = np.asarray(value)
        elif hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
            elements = self._from_dlpack(value)
        else:
            elements = self._from_buffer(memoryview(value))
        if elements.dtype.hasobject:
            raise ValueError(f"is an array of {elements.dtype}: objects of Python, not numbers")
        if not elements.flags.c_contiguous:
            raise ValueError("is not contiguous; pass the base array, the descriptor holds the strides")
        self.array: Array = elements.reshape(-1).view(np.uint8)
        self.nbytes = self.array.nbytes
        self.address = self.array.ctypes.data
        self.writable = elements.flags.writeable

    def _from_dlpack(self, value: Any) -> Array:
        try:
            found = dlpack.imported(value)
        except (BufferError, RuntimeError, AttributeError) as error:
            raise ValueError(f"gives no memory of the CPU through DLPack: {error}") from error
        self.owner = found.owner
        if not found.nbytes:
            return np.empty(0, np.uint8)
        memory = (ctypes.c_ubyte * found.nbytes).from_address(found.address)
        return np.frombuffer(memoryview(memory), np.uint8)

    @staticmethod
    def _from_buffer(view: memoryview) -> Array:
        if not view.c_contiguous:
            raise ValueError("is not contiguous; pass the base array, the descriptor holds the strides")
        # Only "O" can mean Python objects, but a field name may contain it too.
        return np.asarray(view) if "O" in (view.format or "") else np.frombuffer(view, np.uint8)


class Stream:
    """Represent a stream of the reference backend. Its work has always finished."""

    def __init__(self, backend_name: str = "reference") -> None:
        self.backend_name = backend_name

    def synchronize(self) -> None:
        """Return at once, because nothing is ever pending."""

    def done(self) -> bool:
        return True


class ReferenceBackend:
    """Run operations in NumPy, in wide arithmetic, with one rounding into the output type."""

    name = "reference"
    description = "reference"

    def __init__(self) -> None:
        is_narrow()  # An invalid setting of the environment raises here, not in the middle of a call.

    def allocate(self, nbytes: int) -> HostBuffer:
        return HostBuffer(HostMemory(nbytes), 0, nbytes)

    def to_device(self, array: Any) -> HostBuffer:
        buffer = self.allocate(array.nbytes)
        buffer.array[:] = array.reshape(-1).view(np.uint8)
        return buffer

    def zeros(self, nbytes: int) -> HostBuffer:
        buffer = self.allocate(nbytes)
        buffer.array[:] = 0
        return buffer

    def operand(self, value: Any) -> Any:
        if type(value) is HostBuffer:
            if value.memory.freed:
                raise ValueError("was freed")
            return value
        try:
            return HostOperand(value)
        except TypeError:
            what = type(value).__name__
            raise TypeError(
                f"is a {what}, not memory of the reference backend (a buffer of it, a NumPy array, or a DLPack tensor of the CPU)"
            ) from None

    def prepare(self, operation: Operation) -> Callable[[Sequence[Any], Any], None]:
        names = operation.operands

        def launch(operands: Sequence[Any], _stream: Any) -> None:
            run(operation, {name: o.array for name, o in zip(names, operands, strict=True) if o is not None})

        return launch

    def workspace_bytes(self, _operation: Operation) -> int:
        return 0

    def preferred_algorithms(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        """Return the operations unchanged: every algorithm is the same computation here."""
        return operations

    def graph_solvers(self, _operation: Operation) -> tuple[str, ...]:
        """Return no solvers, because there is only one formula."""
        return ()

    def algorithm_time(self, operation: Operation, operands: Sequence[Any], stream: Any, _timed: Any = None) -> float:
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
        """Return at once, because nothing is ever pending."""

    def close(self) -> None:
        """Do nothing: the backend holds no resources."""
