"""Judge a sample of the elements that another library's call writes, reading only the memory that this needs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from dualdnn.api.operations import Operation
from dualdnn.reference import formulas, pixels, sampled
from dualdnn.reference.formulas import Elements, Pages
from dualdnn.reference.judge import element_bytes
from dualdnn.reference.view import strided

Array = np.ndarray[Any, Any]
SMALL = 2**18  # bytes of all operands; smaller calls are judged in every element
READ_WHOLE = 2**24  # bytes of an output; smaller ones are searched for non-finite elements, and their gaps are compared
READ_EACH = 2**21  # bytes of an output; larger ones are searched and compared in one of TURNS calls
TURNS = 8
SUSPECTS = 8  # extra non-finite elements to evaluate


def wants_sample(operation: Operation, spots: int) -> bool:
    """Return whether a sample of the operation is judged, instead of every element."""
    size = sum(operation.nbytes(name) for name in operation.operands if name not in operation.raw)
    return bool(spots) and formulas.has_samples(operation) and size > SMALL


class Watch:
    """Watch one call: created before it, ``finish`` after it.

    read: copies bytes from an address. operands: name -> address and bytes to examine. number: the number of the call,
    so that each has another sample.
    """

    def __init__(
        self,
        operation: Operation,
        operands: Mapping[str, tuple[int, int]],
        read: Callable[[int, int], Array],
        spots: int,
        number: int,
    ) -> None:
        self.operation, self.operands, self.read = operation, operands, read
        self.read_whole = READ_EACH if number % TURNS else READ_WHOLE
        self.said = sampled.Sample()
        self.pages = {name: self._pages(name) for name in operands}
        self.outputs = [name for name in operation.tensors_written if name in operands]
        written = {operands[name][0] for name in self.outputs}
        self.is_in_place = any(
            operands[name][0] in written for name in operation.tensors_read if name in operands
        ) or any(operation.blend_of(name)[1] != 0 for name in self.outputs)
        self.read_only = [name for name in operands if operands[name][0] not in written]
        self.gaps = {name: self._whole(name) for name in self.outputs if self._has_gaps(name)}
        seed = zlib.crc32(f"{operation} {number}".encode())
        places = {name: at for name, at in sampled.places_of(operation, spots, seed).items() if name in operands}
        self.pixels = None
        if pixels.serves(operation):
            self.pixels = pixels.Pixels(operation, self.pages, number)
            places = {name: at[: spots // 25] for name, at in places.items()}
        self.expected = sampled.expected(operation, self.pages, places, self.said)

    def finish(self) -> list[str]:
        """Compare what the call wrote, and return the mistakes, one line each."""
        after = Elements(self.operation, {name: self._pages(name) for name in self.outputs}, 2**62)
        sampled.compare(self.operation, self.expected, after, self.said)
        if self.pixels is not None:
            self.pixels.compare(self._pages(self.pixels.output), self.said)
        problems = self._strays()
        if suspects := {name: found for name in self.outputs if (found := self._not_finite(name))}:
            more = sampled.expected(self.operation, self.pages, suspects, self.said)
            sampled.compare(self.operation, more, after, self.said)
        if self.said.wrong:
            count = len(self.said.wrong) + len(self.said.ratios)
            problems.insert(
                0, f"{len(self.said.wrong)} of {count} sampled elements are wrong, the worst: {self.said.wrong[0]}"
            )
        return problems

    def _pages(self, name: str) -> Pages:
        address, size = self.operands[name]
        return Pages(size, lambda begin, count: self.read(address + begin, count))

    def _whole(self, name: str) -> Array:
        return self.read(*self.operands[name])

    def _has_gaps(self, name: str) -> bool:
        return not self.operation.tensor(name).is_packed and self.operands[name][1] <= self.read_whole

    def _strays(self) -> list[str]:
        """Return messages on changed input pages that were read, and on changed gaps of outputs."""
        found = []
        for name in self.read_only:
            if changed := self.pages[name].changed():
                found.append(f"{name}: {changed} bytes of an input changed")
        for name, before in self.gaps.items():
            size = self.operation.nbytes(name)
            outside = ~element_bytes(self.operation.tensor(name), size)
            changed = int(np.count_nonzero((before[:size] != self._whole(name)[:size]) & outside))
            if changed:
                found.append(f"{name}: {changed} bytes in gaps between its elements changed")
        return found

    def _not_finite(self, name: str) -> list[tuple[int, ...]]:
        """Return some non-finite elements of an output whose inputs are still unchanged."""
        spec, (_, size) = self.operation.tensor(name), self.operands[name]
        if self.is_in_place or size > self.read_whole or spec.vector_length > 1:
            return []
        elements = strided(spec, self._whole(name))
        if elements.dtype.kind in "iu":
            return []
        bad = np.argwhere(~np.isfinite(elements.astype(np.float32)))
        return [tuple(int(i) for i in index) for index in bad[:: max(1, len(bad) // SUSPECTS)][:SUSPECTS]]
