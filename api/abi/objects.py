"""Map the pointers that C holds to handles and descriptors: C stores the objects (memo/objects.c), Python their
contents.

A descriptor that consists of a specification and options is a value, which C stores as a number. Its Python object
exists only during a call. Handles and other descriptors are kept here until they are destroyed. A backend descriptor is
a value until another one refers to it; C also stores the addresses of a variant pack.
"""

from __future__ import annotations

import threading
from typing import Any

from ..descriptors import DESCRIPTORS, BackendDescriptor, Descriptor, DropoutDescriptor
from ..handle import Handle
from ..operations.forks import free_in_children
from ..operations.specs import DOUBLE
from ..status import ALLOC_FAILED, CudnnError
from .memo.keys import HANDLE_KIND, KINDS, NUMBERED, POINTERS

# C reports these states of a pointer.
LIVES = 1
DESTROYED = 2
NAMING_KEPT = 16  # objects that name the same dropout descriptor, read at a time
TYPES = {number: DESCRIPTORS[name] for name, number in KINDS.items()}


class StrayPointer:
    """Represent a pointer that this library never returned; it has no documented type, so every check refuses it."""

    def __repr__(self) -> str:
        return "a pointer that this library did not make"


STRAY = StrayPointer()


class _Serving(threading.local):
    """Hold what one thread needs while it serves a call."""

    def __init__(self, ffi: Any) -> None:
        self.seen: dict[int, Any] = {}  # It maps a pointer to its object.
        self.known: dict[int, list[int]] = {}  # It maps a pointer to what C stores: value, held address, named objects.
        self.values: set[int] = set()  # It holds the numbers of values that the call uses.
        self.has_new = False  # It says whether one of these values is new.
        self.facts = ffi.new("unsigned long long[5]")


class Objects:
    """Hold the objects of one library. ``lib`` is its C side.

    Between ``begin`` and ``end`` a pointer has one Python object, and ``changes`` copies the object's changes to C.
    """

    def __init__(self, ffi: Any, lib: Any) -> None:
        self.ffi, self.lib = ffi, lib
        self.kept: dict[int, Any] = {}
        self.pointers: dict[int, int] = {}  # It maps id() of a kept object to its pointer.
        self.values: list[Any] = [None]  # It maps a number to a value; None means forgotten.
        self.numbers: dict[Any, int] = {}
        self.met: set[int] = set()  # It holds the numbers of values used since values were last forgotten.
        self.meeting: dict[int, set[int]] = {}  # It holds the numbers of values that running calls use, by id().
        self.emptied = 0  # how often the memo had been emptied when values were last forgotten
        self.lock = free_in_children(threading.Lock())
        self.serving = _Serving(ffi)

    # The following methods begin and end a call.

    def begin(self) -> tuple[Any, ...]:
        """Begin a call of this thread; return the state of an enclosing call, for ``end``."""
        serving = self.serving
        outer = serving.seen, serving.known, serving.values
        serving.seen, serving.known, serving.values = {}, {}, set()
        self.meeting[id(serving.values)] = serving.values
        return outer

    def end(self, outer: tuple[Any, ...]) -> None:
        """End the call and restore the state of the enclosing call."""
        serving = self.serving
        if serving.values:
            with self.lock:
                self.met |= serving.values
        del self.meeting[id(serving.values)]
        serving.seen, serving.known, serving.values = outer
        if serving.has_new:
            serving.has_new = False
            self.forget()

    # The following methods look up and change objects.

    def get(self, pointer: int) -> Any:
        """Return the object behind a pointer, or None for NULL."""
        if not pointer:
            return None
        seen = self.serving.seen
        if pointer not in seen:
            seen[pointer] = self._found(pointer)
        return seen[pointer]

    def _found(self, pointer: int) -> Any:
        facts = self.serving.facts
        state = self.lib.object_facts(pointer, facts)
        if not state:
            return STRAY
        kind, *known = facts
        value, held, *named = known
        if state == LIVES and pointer in self.kept:
            return self._current(self.kept[pointer], held)
        if kind == HANDLE_KIND:
            return Handle.gone()
        if state == DESTROYED:
            return TYPES[kind].gone()
        self.serving.values.add(value)
        self.serving.known[pointer] = known
        made = self._made(pointer, self.values[value])
        if made.named:
            made.named = tuple(map(self.get, named))
        if held:
            made.memory = {"states": held}
        return made

    def _current(self, kept: Any, stream: int) -> Any:
        """Return a handle with the stream that C stores."""
        if isinstance(kept, Handle) and (kept.user_stream or 0) != stream:
            kept.stream, kept.user_stream = kept.backend.stream(stream or None), stream or None
        return kept

    def add(self, value: Any) -> int:
        """Return the pointer of an object, a new one if it has none yet; NULL for None."""
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

    def _keep(self, pointer: int, value: BackendDescriptor) -> None:
        """Keep the object of a descriptor whose state C no longer stores."""
        self.kept[pointer], self.pointers[id(value)] = value, pointer
        self.lib.object_set(pointer, 0, 0, (0, 0))

    def _pointer(self, value: Any) -> int:
        """Return the pointer of an object that the call uses, or 0 for another object."""
        return next((pointer for pointer, met in self.serving.seen.items() if met is value), 0)

    def destroyed(self, pointer: int) -> None:
        """Record that the object behind a pointer was destroyed. Objects that refer to it keep its last state."""
        ended, found = self.serving.seen.get(pointer), self.ffi.new("uint64_t[]", NAMING_KEPT)
        if isinstance(ended, DropoutDescriptor):
            while count := self.lib.objects_naming(pointer, found, NAMING_KEPT):
                for each in found[0 : min(count, NAMING_KEPT)]:
                    self.get(each).part_from(ended)
                self.changes()
        self.pointers.pop(id(self.kept.pop(pointer, None)), None)
        self.lib.object_free(pointer)

    def changes(self) -> set[int]:
        """Copy the call's changes of descriptors to C, and return the pointers of changed objects."""
        changed, known = set(), self.serving.known
        for pointer, value in self.serving.seen.items():
            if isinstance(value, BackendDescriptor) and value.alive:
                if self._set_backend(pointer, value):
                    changed.add(pointer)
                continue
            if not (isinstance(value, Descriptor) and value.alive and pointer in known):
                continue
            named = [0 if each is None else self._pointer(each) for each in value.named]
            what = [self.number_of(value), value.memory.get("states") or 0, *named, 0, 0][: len(known[pointer])]
            if known[pointer] != what:
                known[pointer] = what
                self.lib.object_set(pointer, what[0], what[1], what[2:])
                changed.add(pointer)
        return changed

    def _set_backend(self, pointer: int, descriptor: BackendDescriptor) -> bool:
        """Copy the state of a backend descriptor to C, or keep its object if it refers to others; return whether C has
        another value."""
        from .backend_state import plan_of, state_of  # Only programs with graphs load these modules.

        if pointer not in self.kept:
            number, state = self.number_of(descriptor), state_of(descriptor)
            if number and state and self.lib.object_variant(pointer, number, state[1], len(state[1])):
                return bool(number != self.serving.known[pointer][0])
            self._keep(pointer, descriptor)
        elif plan := plan_of(descriptor):
            named = self.pointers.get(id(plan.handle), 0)
            self.lib.object_set(pointer, self.number_of(descriptor), 0, (named, 0))
        else:
            self.lib.object_set(pointer, 0, 0, (0, 0))
            for each in (each for elements in descriptor.elements.values() for each in elements):
                if isinstance(each, BackendDescriptor) and (other := self._pointer(each)) not in {0, *self.kept}:
                    self._keep(other, each)
        return False

    # The following methods number values.

    def number_of(self, value: Any) -> int:
        """Return the number of a descriptor's value or of a handle's backend, or 0 if it has none."""
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

    def _made(self, pointer: int, key: Any) -> Descriptor:
        kind, value = key
        if kind is BackendDescriptor:
            from .backend_state import restored

            addresses = self.ffi.new("uint64_t[]", POINTERS)
            self.lib.object_addresses(pointer, addresses)
            return restored(value, [*addresses])
        made: Descriptor = kind()
        made.value = value
        return made

    def forget(self) -> None:
        """Forget values after the memo was emptied: those that no object has and no call has used since the previous
        time."""
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
    """Return an object's complete state as a key, or None if it has more state than a key can hold."""
    if isinstance(value, Handle):
        backend = value.backend
        if backend.name == "crosscheck":
            return None
        return backend.name, getattr(backend, "device", None), value.release, value.reproducible
    if isinstance(value, BackendDescriptor):
        return _backend_value(value)
    if value.type_name not in NUMBERED:
        return None
    return type(value), value.value


def _backend_value(descriptor: BackendDescriptor) -> Any:
    """Return the key of a backend descriptor: the operation of a plan, or the state of one that refers to no object."""
    from .backend_state import plan_of, state_of

    if plan := plan_of(descriptor):
        return BackendDescriptor, plan.operation
    state = state_of(descriptor)
    return state and (BackendDescriptor, state[0])


def _has_doubles(value: Any) -> bool:
    """Return whether scaling factors for a descriptor are doubles."""
    return not isinstance(value, Handle) and getattr(value.spec, "data_type", None) is DOUBLE
