"""Convert arrayOfElements of cudnnBackendSetAttribute and cudnnBackendGetAttribute; attributeType gives its C type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..descriptors import BackendDescriptor
from ..document import Function
from ..enumerations import cudnnBackendAttributeType_t as Type
from ..status import BAD_PARAM, CudnnError
from .objects import Objects

MOST_ELEMENTS = 1 << 20  # elements per attribute; a larger count is an error, and the array is not read
# C_TYPES is table 41; the other types are enumerations.
C_TYPES = {
    Type.CUDNN_TYPE_HANDLE: "uintptr_t",
    Type.CUDNN_TYPE_BOOLEAN: "unsigned char",
    Type.CUDNN_TYPE_INT64: "int64_t",
    Type.CUDNN_TYPE_FLOAT: "float",
    Type.CUDNN_TYPE_DOUBLE: "double",
    Type.CUDNN_TYPE_VOID_PTR: "uintptr_t",
    Type.CUDNN_TYPE_BACKEND_DESCRIPTOR: "uintptr_t",
}
OBJECTS = (Type.CUDNN_TYPE_HANDLE, Type.CUDNN_TYPE_BACKEND_DESCRIPTOR)


def _elements(function: Function, index: int, ffi: Any) -> Callable[[tuple[Any, ...]], Any]:
    """Return a function that maps the C arguments to the array at this index, with the element type that the call
    names."""
    kind = [p.name for p in function.parameters].index("attributeType")
    return lambda c: ffi.cast(f"{C_TYPES.get(c[kind], 'int')} *", c[index])


def reader(function: Function, index: int, ffi: Any, objects: Objects) -> Callable[[tuple[Any, ...]], Any]:
    """Return the rule that reads elementCount elements."""
    names = [p.name for p in function.parameters]
    kind, count, array = names.index("attributeType"), names.index("elementCount"), _elements(function, index, ffi)

    def read(c: tuple[Any, ...]) -> Any:
        if not c[index] or not 0 <= c[count] <= MOST_ELEMENTS:
            return None
        values = list(array(c)[0 : c[count]])
        if c[kind] in OBJECTS:
            return [objects.get(value) for value in values]
        return [value or None for value in values] if c[kind] == Type.CUDNN_TYPE_VOID_PTR else values

    return read


def writer(function: Function, index: int, ffi: Any, objects: Objects) -> Callable[[tuple[Any, ...], Any], None]:
    """Return the rule that stores elements; the caller's own descriptors receive the contents of returned descriptors."""
    kind, array = [p.name for p in function.parameters].index("attributeType"), _elements(function, index, ffi)

    def write(c: tuple[Any, ...], values: Any) -> None:
        target = array(c)
        if c[kind] == Type.CUDNN_TYPE_BACKEND_DESCRIPTOR:
            created = [objects.get(target[i]) for i in range(len(values))]
            for i, (made, value) in enumerate(zip(created, values, strict=True)):
                usable = isinstance(made, BackendDescriptor) and made.alive and made.kind == value.kind
                if not usable:
                    text = f"cudnnBackendGetAttribute: arrayOfElements[{i}] is {made!r}, a {value.kind.name} is to be filled"
                    raise CudnnError(BAD_PARAM, "cudnnStatus_t/c05", text)
            for made, value in zip(created, values, strict=True):
                made.spec, made.elements = value.spec, {}
            return
        for i, value in enumerate(values):
            target[i] = objects.add(value) if c[kind] in OBJECTS else getattr(value, "address", value) or 0

    return write
