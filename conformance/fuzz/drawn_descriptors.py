"""Draw calls that make, set, finalise, read and destroy backend descriptors, valid and invalid (drawn_calls.py)."""

from __future__ import annotations

import ctypes
import random
from typing import Any

from dualdnn.api.abi.backend_attributes import CODES
from dualdnn.api.enumerations import cudnnBackendAttributeName_t as Name
from dualdnn.api.enumerations import cudnnBackendAttributeType_t as Type
from dualdnn.api.enumerations import cudnnBackendDescriptorType_t as Kind
from dualdnn.api.graph.attributes import TYPES, Attribute

from .c_library import Address as P
from .c_library import CLibrary

KINDS = [
    Kind[f"CUDNN_BACKEND_{name}_DESCRIPTOR"]
    for name in ("TENSOR", "TENSOR", "VARIANT_PACK", "VARIANT_PACK", "POINTWISE", "OPERATION_POINTWISE", "CONVOLUTION", "OPERATIONGRAPH",
                 "KNOB_CHOICE")
]  # fmt: skip
MAX_LIVE = 24  # live descriptors
ELEMENTS = 48  # elements of an array at most
POISON = 9  # each byte of an output before a call
NATIVE: dict[str, Any] = {"Q": ctypes.c_uint64, "q": ctypes.c_int64, "B": ctypes.c_ubyte, "f": ctypes.c_float, "d": ctypes.c_double}  # fmt: skip
NUMBERS = (1, 1, 2, 3, 4, 4, 8, 32, 1, 2, 4, 8, 4, 4, 0, -1)
VALUES = {"f": (0.0, -0.0, 1.0, float("nan"), float("inf")), "B": (0, 0, 1, 2), "i": (0, 0, 0, 0, 0, 0, 1, 2, 99)}
VALUES["d"] = VALUES["f"]
Call = tuple[str, int, str, bytes]


class BackendCalls:
    """Draw calls on one library.

    live: the type of each descriptor that was not destroyed. unset: its attributes that were not set.
    """

    def __init__(self, library: CLibrary, draw: random.Random, handles: list[int]) -> None:
        self.library, self.draw, self.handles = library, draw, handles
        self.live: dict[int, Kind] = {}
        self.unset: dict[int, list[Attribute]] = {}
        self.dead: list[int] = []

    def step(self) -> Call:
        """Make a call; return its name, status, message, and the bytes of its outputs."""
        chance = self.draw.random()
        if len(self.live) < 4 or (chance < 0.12 and len(self.live) < MAX_LIVE):
            return self.created()
        pointer = self.pointer()
        if chance < 0.2:
            self.dead = [*self.dead, pointer][-20:]
            self.live.pop(pointer, None)
            return self.called("DestroyDescriptor", P(pointer))
        if chance < 0.24:
            kind = self.draw.choice(KINDS)
            made = self.called("Initialize", P(pointer), kind, P(self.draw.choice((8, 8, 8, 7))))
            if pointer in self.live and not made[1]:
                self.begin(pointer, kind)
            return made
        if chance < 0.42:
            return self.called("Finalize", P(pointer))
        return self.attribute(pointer, sets=chance < 0.84)

    def called(self, name: str, *arguments: Any, outputs: tuple[Any, ...] = ()) -> Call:
        """Make one call."""
        full = f"cudnnBackend{name}"
        status = getattr(self.library.functions, full)(*arguments)
        return full, status, self.library.said(), b"".join(map(bytes, outputs))

    def created(self) -> Call:
        """Make a descriptor. Its number is not part of the answer."""
        kind, found = self.draw.choice(KINDS), P(0)
        made = self.called("CreateDescriptor", kind, ctypes.byref(found))
        self.begin(found.value, kind)
        return made

    def begin(self, pointer: int, kind: Kind) -> None:
        """Note a descriptor of a type, of which no attribute is set."""
        self.live[pointer] = kind
        self.unset[pointer] = [each for each in TYPES[kind].attributes.values() if each.required]

    def pointer(self, *kinds: Kind) -> int:
        """Return mostly a live descriptor of these types or, without types, of any; sometimes NULL or a destroyed one."""
        chance = self.draw.random()
        fitting = [pointer for pointer, kind in self.live.items() if kind in kinds or not kinds]
        if chance < 0.02 or not fitting:
            return 0
        return self.draw.choice(self.dead if chance < 0.04 and self.dead else fitting)

    def attribute(self, pointer: int, sets: bool) -> Call:
        """Set or get an attribute, mostly one that the descriptor has, and mostly with its own type and count."""
        draw, kind = self.draw, self.live.get(pointer, KINDS[0])
        found = draw.choice([*TYPES[kind if draw.random() < 0.95 else draw.choice(KINDS)].attributes.values()])
        if sets and self.unset.get(pointer) and draw.random() < 0.8:
            found = self.unset[pointer].pop()
        type_ = draw.choice(found.types if draw.random() < 0.95 else [*Type][:8])
        count = 1 if found.highest == 1 else draw.choice((3, 3, 3, 3, 2, 40))
        count = count if draw.random() < 0.96 else draw.choice((-1, 0, 2))
        code = CODES.get(type_, "i")
        array = (NATIVE.get(code, ctypes.c_int) * ELEMENTS)()
        if sets:
            for i in range(max(count, 0)):
                array[i] = self.element(found, type_, code)
            given = array if draw.random() < 0.98 else None
            return self.called("SetAttribute", P(pointer), found.name, type_, ctypes.c_int64(count), given)
        number = ctypes.c_int64(0)
        for output in (array, number):
            ctypes.memset(ctypes.byref(output), POISON, ctypes.sizeof(output))
        fills = type_ == Type.CUDNN_TYPE_BACKEND_DESCRIPTOR
        for i in range(ELEMENTS if fills else 0):
            array[i] = self.pointer(*found.holds)
        arguments = P(pointer), found.name, type_, ctypes.c_int64(count), ctypes.byref(number), array
        return self.called("GetAttribute", *arguments, outputs=() if fills else (array, number))

    def element(self, attribute: Attribute, type_: Type, code: str) -> Any:
        """Return a value for an element, mostly a valid one."""
        if type_ == Type.CUDNN_TYPE_HANDLE:
            return self.draw.choice((*self.handles, 0))
        if type_ == Type.CUDNN_TYPE_BACKEND_DESCRIPTOR:
            return self.pointer(*(attribute.holds if self.draw.random() < 0.95 else ()))
        if type_ == Type.CUDNN_TYPE_VOID_PTR:
            return self.draw.choice((0, 64, 128, 4096, 1 << 40))
        if attribute.name == Name.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS:
            return self.draw.randrange(9)
        return self.draw.choice(VALUES.get(code, NUMBERS))
