"""Handles and descriptors by the pointer that C holds."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any


class StrayPointer:
    """Stands for a pointer that this library never gave out: it is of no documented type, so that every check refuses it."""

    def __repr__(self) -> str:
        return "a pointer that this library did not make"


STRAY = StrayPointer()


class Objects:
    """The objects that C knows, by numbers that are never used twice: a stray or destroyed pointer is found out, not followed.

    The last ones that were destroyed are kept, so that their use is refused as the document says.
    """

    DEAD_KEPT = 1000

    def __init__(self) -> None:
        self.numbers = itertools.count(0x10000, 16)
        self.objects: dict[int, Any] = {}
        self.pointers: dict[int, int] = {}  # by id() of the object
        self.dead: deque[int] = deque()

    def add(self, value: Any) -> int:
        """The pointer of an object, a new one where it has none yet; NULL of None."""
        if value is None:
            return 0
        pointer = self.pointers.get(id(value))
        if pointer is None:
            pointer = next(self.numbers)
            self.objects[pointer] = value
            self.pointers[id(value)] = pointer
        return pointer

    def reader(self, index: int) -> Callable[[tuple[Any, ...]], Any]:
        """The rule that makes the object of the argument of this index."""
        objects = self.objects

        def read(c: tuple[Any, ...]) -> Any:
            pointer = c[index]
            return objects.get(pointer, STRAY) if pointer else None

        return read

    def get(self, pointer: int) -> Any:
        """The object behind a pointer; None behind NULL."""
        return self.objects.get(pointer, STRAY) if pointer else None

    def destroyed(self, pointer: int) -> None:
        """Note that the object behind a pointer was destroyed."""
        self.dead.append(pointer)
        if len(self.dead) > self.DEAD_KEPT:
            self.pointers.pop(id(self.objects.pop(self.dead.popleft(), None)), None)
