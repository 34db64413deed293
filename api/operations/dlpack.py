"""Import and export tensors of other libraries through the DLPack protocol, without copies.

The structures follow dlpack.h, version 0.8 (capsules named "dltensor"), which every library supports. NumPy's own
reader does not know bfloat16, so this module reads the capsule.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

CPU = 1
CUDA = 2
CUDA_HOST = 3
HOST_DEVICES = (CPU, CUDA_HOST)
UNSIGNED = 1  # kDLUInt
_NAME = b"dltensor"


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))

_CapsuleDestructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_python = ctypes.pythonapi
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _python))
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _python)
)
# A capsule in its destructor has no references left, so these functions take its address.
_address_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _python))
_pointer_of_address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python)
)

# This maps a structure's address to the objects that its exported capsule keeps alive.
_exported: dict[int, Any] = {}


class Imported(NamedTuple):
    """Hold contiguous memory of another library; ``owner`` keeps it alive."""

    address: int
    nbytes: int
    owner: Any


def imported(value: Any, devices: tuple[int, ...] = HOST_DEVICES) -> Imported:
    """Return the memory of an object with ``__dlpack__`` on one of ``devices``; raise TypeError or ValueError if it
    cannot be used."""
    kind, _ = value.__dlpack_device__()
    if int(kind) not in devices:
        raise ValueError(f"lies on a device of DLPack type {int(kind)}, not in memory that this backend can use")
    capsule = value.__dlpack__()
    tensor = ctypes.cast(_get_pointer(capsule, _NAME), ctypes.POINTER(_Managed)).contents.tensor
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        expected = 1
        for size, stride in zip(
            reversed(shape), reversed([tensor.strides[i] for i in range(tensor.ndim)]), strict=True
        ):
            if size > 1 and stride != expected:
                raise ValueError("is not contiguous; pass the base tensor, the descriptor holds the strides")
            expected *= size
    nbytes = math.prod(shape) * ((tensor.bits * tensor.lanes + 7) // 8)
    # The capsule calls the deleter when it is collected, so a reference to it keeps the memory.
    return Imported((tensor.data or 0) + tensor.byte_offset, nbytes, capsule)


def exported(address: int, nbytes: int, device: tuple[int, int], owner: Any) -> Any:
    """Return a capsule of ``nbytes`` unsigned bytes at ``address``; its consumer keeps ``owner`` alive."""
    extents = (ctypes.c_int64 * 1)(nbytes)
    tensor = _Tensor(address, *device, 1, UNSIGNED, 8, 1, extents, None, 0)
    managed = _Managed(tensor, None, _forget)
    where = ctypes.addressof(managed)
    _exported[where] = (managed, extents, owner)
    return _new_capsule(where, _NAME, ctypes.cast(_destroy, ctypes.c_void_p))


@_Deleter
def _forget(managed: Any) -> None:
    _exported.pop(ctypes.addressof(managed.contents), None)


@_CapsuleDestructor
def _destroy(capsule: int) -> None:
    """Release the owner of a capsule that nobody consumed; a consumer has renamed its capsule and calls the deleter
    itself."""
    if _address_is_valid(capsule, _NAME):
        _exported.pop(_pointer_of_address(capsule, _NAME), None)
