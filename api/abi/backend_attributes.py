"""Convert arrayOfElements of cudnnBackendSetAttribute and cudnnBackendGetAttribute; attributeType gives its C type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..descriptors import BackendDescriptor
from ..document import Function
from ..enumerations import cudnnBackendAttributeType_t as Type
from ..status import BAD_PARAM, CudnnError
from .c_types import ADDRESS, packed, read

if TYPE_CHECKING:
    from .objects import Objects

MAX_ELEMENTS = 1 << 20  # elements per attribute; a larger count is an error, and the array is not read
# CODES holds the element types of table 41 as codes of the struct module; the other types are enumerations.
CODES = {
    Type.CUDNN_TYPE_HANDLE: ADDRESS,
    Type.CUDNN_TYPE_BOOLEAN: "B",
    Type.CUDNN_TYPE_INT64: "q",
    Type.CUDNN_TYPE_FLOAT: "f",
    Type.CUDNN_TYPE_DOUBLE: "d",
    Type.CUDNN_TYPE_VOID_PTR: ADDRESS,
    Type.CUDNN_TYPE_BACKEND_DESCRIPTOR: ADDRESS,
}
OBJECTS = (Type.CUDNN_TYPE_HANDLE, Type.CUDNN_TYPE_BACKEND_DESCRIPTOR)


def reader(function: Function, index: int, objects: Objects) -> Callable[[tuple[Any, ...]], Any]:
    """Return the rule that reads elementCount elements."""
    names = [p.name for p in function.parameters]
    kind, count = names.index("attributeType"), names.index("elementCount")

    def elements(c: tuple[Any, ...]) -> Any:
        if not c[index] or not 0 <= c[count] <= MAX_ELEMENTS:
            return None
        values = list(read(CODES.get(c[kind], "i"), c[index], c[count]))
        if c[kind] in OBJECTS:
            return [objects.get(value) for value in values]
        return [value or None for value in values] if c[kind] == Type.CUDNN_TYPE_VOID_PTR else values

    return elements


def writer(function: Function, index: int, objects: Objects) -> Callable[[tuple[Any, ...], Any], bytes | None]:
    """Return the rule for elements; the caller's own descriptors receive the contents of returned descriptors."""
    kind = [p.name for p in function.parameters].index("attributeType")

    def write(c: tuple[Any, ...], values: Any) -> bytes | None:
        if c[kind] == Type.CUDNN_TYPE_BACKEND_DESCRIPTOR:
            created = [objects.get(pointer) for pointer in read(ADDRESS, c[index], len(values))]
            for i, (made, value) in enumerate(zip(created, values, strict=True)):
                usable = isinstance(made, BackendDescriptor) and made.alive and made.kind == value.kind
                if not usable:
                    text = f"cudnnBackendGetAttribute: arrayOfElements[{i}] is {made!r}, a {value.kind.name} is to be filled"
                    raise CudnnError(BAD_PARAM, "cudnnStatus_t/c05", text)
            for made, value in zip(created, values, strict=True):
                made.spec, made.elements = value.spec, {}
            return None
        stored = (objects.add(v) if c[kind] in OBJECTS else getattr(v, "address", v) or 0 for v in values)
        return packed(CODES.get(c[kind], "i"), stored)

    return write
