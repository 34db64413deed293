"""Describes the launches of a plan: kernels with packed arguments, in which only addresses are missing.

A plan makes a record at its first run. It makes another one for operands with another ``likeness``: the alignment of
addresses up to ALIKE bytes, and which operands begin at the same address. A record serves all addresses of one
likeness. It stores each address as an operand and an offset in bytes, so that launching, in Python or C, needs no plan.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from dualdnn.api.operations import replay
from dualdnn.api.operations.answers import Answers

from .runtime.device import Function, Launching, LaunchShape
from .runtime.scratch import ScratchMemory
from .runtime.tensor_map import MAP_BYTES, TensorMap
from .scalars import Note

ALIKE = 256  # bytes, largest alignment that a plan may depend on
SCRATCH = -2  # index of scratch memory, which no caller passes
NOTHING = -1  # index of an operand at address 0
BOUND_KEPT = 16  # addresses for which the launches of a call, or of a part with scratch memory, are kept


class Launched(set[str]):
    """Collect the names of launched kernels.

    modules: their sources with the macro definitions, as text.
    """

    def __init__(self) -> None:
        super().__init__()
        self.modules: set[str] = set()

    def note(self, function: Function) -> None:
        """Add a kernel and its module."""
        self.add(function.name)
        self.modules.add(function.module)


# Launched kernels are noted within ``noting_launches``, so that the suite can list which case launches which kernel.
_launched: Launched | None = None


@contextmanager
def noting_launches() -> Iterator[Launched]:
    """Note the kernels that are launched within the block."""
    global _launched
    before, _launched = _launched, Launched()
    try:
        with replay.suspended():
            yield _launched
    finally:
        _launched = before


class Where(NamedTuple):
    """Hold an address: ``delta`` bytes after the start of an operand. value: the address in the current call."""

    operand: int
    delta: int
    value: int

    def behind(self, offset: int) -> Where:
        """Return the address ``offset`` bytes after this one."""
        return Where(self.operand, self.delta + offset, self.value + offset)

    def aligned(self, multiple: int) -> Where:
        """Return the first address from here on that is a multiple of ``multiple`` bytes."""
        return self.behind(-self.value % multiple)


NULL = Where(NOTHING, 0, 0)


class Recordable(ABC):
    """Represent a plan or a launch that can be recorded."""

    @abstractmethod
    def record(self, record: Record, operands: Sequence[Where]) -> None:
        """Append the steps for these operands to a record."""

    def start(self, addresses: Sequence[int], stream: Any) -> None:
        """Run asynchronously on the stream, on operands at these addresses; 0 stands for a missing operand."""
        for launch in Record.of(self, addresses).bound(addresses):
            launch(stream)


class KernelStep:
    """Launch a kernel.

    template: the argument structure without addresses. operands: the addresses that are its first words. maps: for each
    tensor map its offset in bytes, the tensor's address and the map. scalars: arguments that are scalars of the call.
    """

    def __init__(
        self,
        function: Function,
        template: bytes,
        shape: LaunchShape,
        operands: Sequence[Where],
        maps: Sequence[tuple[int, Where, TensorMap]] = (),
        scalars: Sequence[Note] = (),
    ) -> None:
        function.check(len(template), shape)
        self.function, self.template, self.shape, self.maps, self.scalars = function, template, shape, maps, scalars
        self.operands = tuple((where.operand, where.delta) for where in operands)
        self._pack, self._rest = struct.Struct(f"{len(operands)}Q").pack, template[8 * len(operands) :]
        self._bound = function.in_shape(shape)

    @property
    def work(self) -> tuple[Any, ...]:
        """Return everything that the launch depends on: steps of equal work do the same."""
        maps = tuple((offset, where.operand, where.delta, wanted) for offset, where, wanted in self.maps)
        return self.function, self._rest, self.shape, self.operands, maps

    def bound(self, addresses: Sequence[int]) -> Launching:
        """Return the launch on operands at these addresses. The last two addresses belong to SCRATCH and NOTHING."""
        if _launched is not None:
            _launched.note(self.function)
        rest, begins = self._rest, [addresses[where.operand] + where.delta for _, where, _ in self.maps]
        if begins:
            rest = self.encoded(begins)[8 * len(self.operands) :]
        return self._bound(self._pack(*[addresses[operand] + delta for operand, delta in self.operands]) + rest)

    def encoded(self, begins: Sequence[int]) -> bytes:
        """Return the template with tensor maps encoded for tensors that begin at these addresses."""
        arguments = bytearray(self.template)
        for (offset, _, wanted), begin in zip(self.maps, begins, strict=True):
            arguments[offset : offset + MAP_BYTES] = self.function.device.tensor_map(wanted, begin)
        return bytes(arguments)


class UploadStep:
    """Copy bytes of the host to an address, in stream order."""

    def __init__(self, device: Any, data: bytes, where: Where) -> None:
        self.device, self.data, self.where = device, data, where

    @property
    def work(self) -> tuple[Any, ...]:
        """Return everything that the copy depends on."""
        return self.data, self.where

    def bound(self, addresses: Sequence[int]) -> Launching:
        """Return the copy to an operand at these addresses. The bytes are not pinned memory, so they may be freed."""
        address = addresses[self.where.operand] + self.where.delta
        return lambda stream: self.device.upload(address, self.data, stream)


class Part(NamedTuple):
    """Hold steps that share scratch memory of ``scratch_bytes``, which may be 0."""

    scratch_bytes: int
    steps: list[KernelStep | UploadStep]

    def bound(self, addresses: Sequence[int]) -> list[Launching]:
        """Return the launches on operands at these addresses."""
        if not self.scratch_bytes:
            return [step.bound((*addresses, 0, 0)) for step in self.steps]
        device = next(step.function.device for step in self.steps if isinstance(step, KernelStep))
        kept = Answers(BOUND_KEPT)

        def start(stream: Any) -> None:
            def launch_all(scratch: ScratchMemory) -> None:
                known = (*addresses, scratch.address, 0)
                for launch in kept.of(scratch.address, lambda: [step.bound(known) for step in self.steps]):
                    launch(stream)

            device.scratch.lend(stream, self.scratch_bytes, launch_all)

        return [start]


class Record:
    """Hold the steps of a plan in order.

    final: whether another run of the plan would give the same steps. It is False while a fallback replaces a kernel
    that is being compiled.
    """

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.final = True

    @classmethod
    def of(cls, recordable: Recordable, addresses: Sequence[int]) -> Record:
        """Return the record of a plan or a launch for operands at these addresses."""
        made = cls()
        recordable.record(made, [Where(i, 0, address) for i, address in enumerate(addresses)])
        return made

    def begin(self, scratch_bytes: int) -> None:
        """Begin a part: the steps that follow share its scratch memory."""
        self.parts.append(Part(scratch_bytes, []))

    def add(self, step: KernelStep | UploadStep) -> None:
        """Append a step."""
        if not self.parts:
            self.begin(0)
        self.parts[-1].steps.append(step)

    @property
    def work(self) -> tuple[Any, ...]:
        """Return everything that the steps depend on, so that records of equal work take the same time."""
        return tuple((scratch_bytes, *(step.work for step in steps)) for scratch_bytes, steps in self.parts)

    @property
    def is_capturable(self) -> bool:
        """Return whether a graph of the steps keeps no memory: they are kernels without scratch memory."""
        return all(not scratch and all(isinstance(s, KernelStep) for s in steps) for scratch, steps in self.parts)

    def bound(self, addresses: Sequence[int]) -> list[Launching]:
        """Return the launches on operands at these addresses; 0 stands for a missing operand."""
        return [launch for part in self.parts for launch in part.bound(addresses)]


def likeness(addresses: Sequence[int]) -> tuple[int, ...]:
    """Return the properties of addresses that plans depend on. One record serves all calls of equal likeness."""
    low = [address % ALIKE for address in addresses]
    if len({*addresses}) == len(low):
        return tuple(low)
    return (*low, *map(list(addresses).index, addresses))
