"""Implement the reference backend for callers in C: operands and streams are host addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from ..operations import Operation


@cache
def _address_range() -> Any:
    """Return the driver's function that looks up allocations, or None without a driver; operand sizes are then unknown."""
    try:
        return ctypes.CDLL("libcuda.so.1").cuMemGetAddressRange_v2
    except (OSError, AttributeError):
        return None


def bytes_behind(address: int) -> int | None:
    """Return the bytes from an address to the end of its allocation, or None if unknown; raise ValueError outside all
    allocations."""
    ask = _address_range()
    if ask is None:
        return None
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    if ask(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address)) != 0:
        raise ValueError(f"is {address:#x}, no memory of the driver's")
    return base.value + size.value - address


@lru_cache(maxsize=1024)
def memory_at(address: int, nbytes: int) -> np.ndarray[Any, Any]:
    """Return a view of exactly these bytes, without a copy; NumPy refuses accesses outside it. The view owns nothing,
    and is cached."""
    return np.frombuffer((ctypes.c_char * nbytes).from_address(address), np.uint8)  # type: ignore[call-overload]


class Pointer:
    """Represent an operand whose size only the operation or the driver knows."""

    __slots__ = ("address", "nbytes")
    writable = True

    def __init__(self, address: int, nbytes: int | None) -> None:
        self.address, self.nbytes = address, nbytes


class Stream:
    """Represent a stream of the caller. All work is done when a call returns."""

    def __init__(self, address: int) -> None:
        self.address = address

    def synchronize(self) -> None:
        """Return at once, because no work is ever pending."""


def pointer_backend() -> Any:
    """Return the reference backend in which an int is the address of the bytes that an operation needs."""
    from dualdnn.reference import ReferenceBackend, run

    of_unknown_size = lru_cache(maxsize=1024)(partial(Pointer, nbytes=None))

    class PointerBackend(ReferenceBackend):
        description = "reference, on host pointers"
        sizes_are_known = _address_range() is not None

        def operand(self, value: Any) -> Any:
            if type(value) is int:
                return Pointer(value, bytes_behind(value)) if self.sizes_are_known else of_unknown_size(value)
            return super().operand(value)

        def prepare(self, operation: Operation) -> Callable[[Sequence[Any], Any], None]:
            sized = [(name, operation.nbytes(name)) for name in operation.operands]

            def launch(operands: Sequence[Any], _stream: Any) -> None:
                run(operation, {
                    name: memory_at(operand.address, nbytes) if isinstance(operand, Pointer) else operand.array
                    for (name, nbytes), operand in zip(sized, operands, strict=True) if operand is not None
                })  # fmt: skip

            return launch

        def stream(self, value: Any) -> Any:
            return Stream(value) if type(value) is int else super().stream(value)

    return PointerBackend()
