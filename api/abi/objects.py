"""Handles and descriptors by the pointer that C holds: C keeps the objects (memo/objects.c), Python what they are.

A descriptor that is a value, a specification and options alone, is a number in C. Its Python object exists while a call has it. Handles and
descriptors that hold more are kept here as long as they live.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..descriptors import DESCRIPTORS, Descriptor, DropoutDescriptor
from ..handle import Handle
from ..operations.forks import free_in_children
from ..operations.specs import DOUBLE
from ..status import ALLOC_FAILED, CudnnError
from .memo.keys import HANDLE_KIND, KINDS, NUMBERED

LIVES, DESTROYED = 1, 2  # what C says of a pointer
NAMING_KEPT = 16  # objects that name another one, at a time
TYPES = {number: DESCRIPTORS[name] for name, number in KINDS.items()}


class StrayPointer:
    """Stands for a pointer that this library never gave out: it is of no documented type, so that every check refuses it."""

    def __repr__(self) -> str:
        return "a pointer that this library did not make"


STRAY = StrayPointer()


class _Serving(threading.local):
    """Hold what one thread needs while it serves a call."""

    def __init__(self, ffi: Any) -> None:
        self.seen: dict[int, Any] = {}  # objects by pointer
        self.values: set[int] = set()  # numbers of values that the call meets
        self.has_new = False  # whether one of them is new
        self.facts = ffi.new("unsigned long long[5]")


class Objects:
    """The objects of one library. ``lib`` is its C side.

    Between ``begin`` and ``end`` a pointer stands for one Python object, whose changes ``changes`` makes those of the object in C.
    """

    def __init__(self, ffi: Any, lib: Any) -> None:
        self.ffi, self.lib = ffi, lib
        self.kept: dict[int, Any] = {}
        self.pointers: dict[int, int] = {}  # kept object's id() -> pointer
        self.values: list[Any] = [None]  # by number; None: forgotten
        self.numbers: dict[Any, int] = {}
        self.met: set[int] = set()  # numbers of values that calls have met since values were forgotten last
        self.meeting: dict[int, set[int]] = {}  # and those of calls that are being served, by id()
        self.emptied = 0  # times that the memo was empty when values were forgotten
        self.lock = free_in_children(threading.Lock())
        self.serving = _Serving(ffi)

    # --- the scope of a call ---

    def begin(self) -> tuple[dict[int, Any], set[int]]:
        """Begin to serve a call of this thread; returns what the call outside of it has, for ``end``."""
        serving = self.serving
        outer = serving.seen, serving.values
        serving.seen, serving.values = {}, set()
        self.meeting[id(serving.values)] = serving.values
        return outer

    def end(self, outer: tuple[dict[int, Any], set[int]]) -> None:
        """The call is served."""
        serving = self.serving
        with self.lock:
            self.met |= serving.values
            del self.meeting[id(serving.values)]
        serving.seen, serving.values = outer
        if serving.has_new:
            serving.has_new = False
            self.forget()

    # --- objects ---

    def get(self, pointer: int) -> Any:
        """Return the object behind a pointer; None behind NULL."""
        if not pointer:
            return None
        seen = self.serving.seen
        if pointer not in seen:
            seen[pointer] = self._found(pointer)
        return seen[pointer]

    def reader(self, index: int) -> Callable[[tuple[Any, ...]], Any]:
        """Return the rule that makes the object of the argument of this index."""
        get = self.get
        return lambda c: get(c[index]) if c[index] else None

    def _found(self, pointer: int) -> Any:
        facts = self.serving.facts
        state = self.lib.object_facts(pointer, facts)
        if not state:
            return STRAY
        kind, value, held, *named = facts
        if state == LIVES and pointer in self.kept:
            return self._current(self.kept[pointer], held)
        if kind == HANDLE_KIND:
            return Handle.gone()
        if state == DESTROYED:
            return TYPES[kind].gone()
        self.serving.values.add(value)
        made = self._made(self.values[value])
        if made.named:
            made.named = tuple(map(self.get, named))
        if held:
            made.memory = {"states": held}
        return made

    def _current(self, kept: Any, stream: int) -> Any:
        """Return a handle with the stream that C knows."""
        if isinstance(kept, Handle) and (kept.user_stream or 0) != stream:
            kept.stream, kept.user_stream = kept.backend.stream(stream or None), stream or None
        return kept

    def add(self, value: Any) -> int:
        """Return the pointer of an object, a new one where it has none yet; NULL of None."""
        if value is None:
            return 0
        pointer = self.pointers.get(id(value)) or self._pointer(value)
        if not pointer:
            is_handle, number = isinstance(value, Handle), self.number_of(value)
            pointer = self.lib.object_new(HANDLE_KIND if is_handle else KINDS[value.type_name], number)
            if not pointer:
                raise CudnnError(ALLOC_FAILED, "cudnnStatus_t/c04", "there is no room for another object")
            if is_handle or not number:
                self.kept[pointer], self.pointers[id(value)] = value, pointer
        return int(pointer)

    def _pointer(self, value: Any) -> int:
        """Return the pointer of an object that the call has met; 0 of another."""
        return next((pointer for pointer, met in self.serving.seen.items() if met is value), 0)

    def destroyed(self, pointer: int) -> None:
        """Note that the object behind a pointer was destroyed. Those that name it have what it said last."""
        ended, found = self.serving.seen.get(pointer), self.ffi.new("uint64_t[]", NAMING_KEPT)
        if isinstance(ended, DropoutDescriptor):
            while count := self.lib.objects_naming(pointer, found, NAMING_KEPT):
                for each in found[0 : min(count, NAMING_KEPT)]:
                    self.get(each).part_from(ended)
                self.changes()
        self.pointers.pop(id(self.kept.pop(pointer, None)), None)
        self.lib.object_free(pointer)

    def changes(self) -> set[int]:
        """Make what the call gave to its descriptors theirs in C; returns the pointers of those that have changed."""
        changed, facts = set(), self.serving.facts
        for pointer, value in self.serving.seen.items():
            if not (isinstance(value, Descriptor) and value.alive and value.type_name in NUMBERED):
                continue
            named = [0 if each is None else self._pointer(each) for each in value.named]
            what = [self.number_of(value), value.memory.get("states") or 0, *named, 0, 0][: len(facts) - 1]
            if self.lib.object_facts(pointer, facts) == LIVES and list(facts)[1:] != what:
                self.lib.object_set(pointer, what[0], what[1], what[2:])
                changed.add(pointer)
        return changed

    # --- values ---

    def number_of(self, value: Any) -> int:
        """Return the number of what a descriptor is, or of a handle's backend; 0 of what no number says."""
        key = _value(value)
        if key is None:
            return 0
        number = self.numbers.get(key)
        if number is None:
            with self.lock:
                number = self.numbers.get(key)
                if number is None:
                    number = len(self.values)
                    if not self.lib.memo_value(number, _has_doubles(value)):
                        return 0
                    self.values.append(key)
                    self.serving.has_new = True
                    self.numbers[key] = number
        self.serving.values.add(number)
        return number

    def _made(self, key: Any) -> Descriptor:
        kind, value = key
        made: Descriptor = kind()
        made.value = value
        return made

    def forget(self) -> None:
        """After the memo was emptied: forget values that no object has and that no call has met since it was emptied before."""
        emptied = self.lib.memo_times_emptied()
        if emptied == self.emptied:
            return
        with self.lock:
            self.emptied = emptied
            marks = self.ffi.new("unsigned char[]", len(self.values))
            self.lib.objects_mark(marks, len(marks))
            met, self.met = self.met.union(*self.meeting.values()), set()
            for key, number in list(self.numbers.items()):
                if not marks[number] and number not in met:
                    del self.numbers[key]
                    self.values[number] = None


def _value(value: Any) -> Any:
    """All that an object is, as a key; None where there is more to it."""
    if isinstance(value, Handle):
        backend = value.backend
        return (backend.name, getattr(backend, "device", None), value.release) if backend.name != "crosscheck" else None
    if value.type_name not in NUMBERED:
        return None
    return type(value), value.value


def _has_doubles(value: Any) -> bool:
    """Return whether scaling factors beside a descriptor are doubles."""
    return not isinstance(value, Handle) and getattr(value.spec, "data_type", None) is DOUBLE
