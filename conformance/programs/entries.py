"""Judge some batch entries of another library's call, reading only their memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from dualdnn.api.operations import Operation
from dualdnn.api.operations.numpy_layout import NUMPY_TYPES
from dualdnn.reference import entries, judge
from dualdnn.reference.formulas import Pages
from dualdnn.reference.judge import Verdict

from .watch import SMALL

Array = np.ndarray[Any, Any]
PORTION = 2**19  # bytes of the judged entries of a call


def chosen_of(operation: Operation, number: int) -> tuple[int, ...] | None:
    """Return some entries of the batch, different ones for each call number until all had a turn.

    Return None where all are judged: in small calls, and where entries depend on each other.
    """
    batch = entries.batch_of(operation)
    if batch < 2 or (size := entries.bytes_of_entries(operation)) <= SMALL:
        return None
    count = max(1, PORTION * batch // size)
    if count >= batch:
        return None
    order = np.random.default_rng(zlib.crc32(str(operation).encode())).permutation(batch)
    return tuple(sorted(int(order[(number * count + i) % batch]) for i in range(count)))


class EntriesWatch:
    """Watch one call: created before it, ``finish`` after it.

    operands: name -> address and bytes to examine. read: copies bytes from an address.
    """

    def __init__(
        self,
        operation: Operation,
        operands: Mapping[str, tuple[int, int]],
        read: Callable[[int, int], Array],
        chosen: tuple[int, ...],
    ) -> None:
        self.whole, self.operands, self.read, self.chosen = operation, operands, read, chosen
        self.cut = entries.cut(operation, chosen, self._numbers)
        self.before = self._contents()

    def finish(self, kept: Mapping[str, Array]) -> Verdict:
        """Judge what the call wrote for these entries.

        kept: raw input -> what the reference keeps of the same entries.
        """
        return judge(self.cut.operation, self.before, self._contents(), kept)

    def _numbers(self, name: str) -> Array:
        return self.read(*self.operands[name]).view(NUMPY_TYPES[self.whole.tensor(name).scalar_type])

    def _contents(self) -> dict[str, Array]:
        """Return the bytes of each operand of the smaller call; operands at one address share one array."""
        made: dict[tuple[int, bytes], Array] = {}
        found = {}
        for name, (address, size) in self.operands.items():
            places = self.cut.places.get(name)
            key = address, b"" if places is None else places.tobytes()
            if key not in made:
                made[key] = self.read(address, size) if places is None else self._gathered(name, places)
            found[name] = made[key]
        return found

    def _gathered(self, name: str, places: Array) -> Array:
        address, size = self.operands[name]
        width = np.dtype(NUMPY_TYPES[self.whole.tensor(name).scalar_type]).itemsize
        pages = Pages(size, lambda begin, count: self.read(address + begin, count))
        pages.need(places * width)
        found: Array = pages.bytes[: size // width * width].reshape(-1, width)[places].reshape(-1)
        return found
