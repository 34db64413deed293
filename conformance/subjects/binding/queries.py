"""Query a library itself for its texts, numbers and descriptors."""

from __future__ import annotations

import ctypes

from dualdnn.api.abi.faces import face
from dualdnn.api.enumerations import cudnnStatus_t
from dualdnn.api.operations.specs import FLOAT

from .objects import Library


def failure_text(library: Library, number: int) -> str:
    """Return what the library says about a status, with its number."""
    text = f"{library.path.name} returned {number}"
    name = library.symbol("cudnnGetErrorString")
    if name is not None:
        name.restype = ctypes.c_char_p
        text += f" ({(name(ctypes.c_int(number)) or b'').decode(errors='replace')})"
    last = library.symbol("cudnnGetLastErrorString")  # Only release 9 exports this function.
    if last is not None:
        message = ctypes.create_string_buffer(1 << 16)
        last(message, ctypes.c_size_t(len(message)))
        text += f": {message.value.decode(errors='replace')}" if message.value else ""
    return text


def status_number(library: Library, status: cudnnStatus_t) -> int:
    """Return the library's number of a documented status."""
    return face(9 if (library.version() or 0) >= 90000 else 8).status(status)


def tensor_data_type(library: Library, ctype: str, address: int | None) -> int:
    """Return the data type of a tensor or filter descriptor as the library reports it, or else FLOAT."""
    is_filter = ctype == "cudnnFilterDescriptor_t"
    getter = library.symbol("cudnnGetFilterNdDescriptor" if is_filter else "cudnnGetTensorNdDescriptor")
    if getter is None or address is None:
        return FLOAT
    data_type, rank, layout = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    dims, strides = (ctypes.c_int * 64)(), (ctypes.c_int * 64)()
    outputs = (
        (ctypes.byref(data_type), ctypes.byref(layout), ctypes.byref(rank), dims)
        if is_filter
        else (ctypes.byref(data_type), ctypes.byref(rank), dims, strides)
    )
    status = getter(ctypes.c_void_p(address), ctypes.c_int(1), *outputs)
    return data_type.value if status == 0 else FLOAT


def size_in_bytes(library: Library, ctype: str, address: int) -> int:
    """Return the bytes that a tensor or filter descriptor spans; 0 if the library does not report them."""
    is_filter = ctype == "cudnnFilterDescriptor_t"
    getter = library.symbol("cudnnGetFilterSizeInBytes" if is_filter else "cudnnGetTensorSizeInBytes")
    size = ctypes.c_size_t(0)
    if getter is None or getter(ctypes.c_void_p(address), ctypes.byref(size)) != 0:
        return 0
    return size.value
