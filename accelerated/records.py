"""Describes what a plan launches: kernels with packed arguments in which addresses are missing.

A plan makes a record when it runs first, and again for operands whose addresses differ in what planners ask of them:
alignment up to ALIKE bytes, and which begin together. A record runs at any addresses that are alike. It names each
address as bytes behind an operand, so that whoever launches it, here or in C, needs no plan.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from dualdnn.api.operations import replay
from dualdnn.api.operations.answers import Answers

from .runtime.device import Function, LaunchShape
from .runtime.tensor_map import MAP_BYTES, TensorMap
from .scalars import Note

ALIKE = 256  # bytes, the largest alignment of which planners ask
SCRATCH, NOTHING = -2, -1  # operands that no caller passes: memory of the library's own, and address 0
ENCODINGS_KEPT = 16  # encoded tensor maps per step, by address


class Launched(set[str]):
    """The names of kernels that were launched.

    modules: the sources that they are compiled from, each with its definitions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.modules: set[str] = set()

    def note(self, function: Function) -> None:
        """Add a kernel and its module."""
        self.add(function.name)
        self.modules.add(function.module)


# Kernels that are launched, noted where somebody asks for them: the suite lists which case launches which kernel.
_launched: Launched | None = None


@contextmanager
def noting_launches() -> Iterator[Launched]:
    """Note the kernels that are launched in this scope."""
    global _launched
    before, _launched = _launched, Launched()
    try:
        with replay.suspended():
            yield _launched
    finally:
        _launched = before


class Where(NamedTuple):
    """An address: ``delta`` bytes behind that of an operand, by its index. value: what it is in the call at hand."""

    operand: int
    delta: int
    value: int

    def behind(self, offset: int) -> Where:
        """Return the address so many bytes behind."""
        return Where(self.operand, self.delta + offset, self.value + offset)

    def aligned(self, multiple: int) -> Where:
        """Return the first multiple of so many bytes from here on."""
        return self.behind(-self.value % multiple)


NULL = Where(NOTHING, 0, 0)


class Recordable(Protocol):
    """A plan or a launch."""

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        """Add what is launched on these operands."""


class KernelStep:
    """The launch of a kernel.

    template: its arguments, but for addresses. operands: the addresses that are its first words. maps: of each tensor
    map its offset in bytes, the tensor's address and the map. scalars: which of the arguments are those of the call.
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
        self._encoded = Answers(ENCODINGS_KEPT)
        self._issue = function.in_shape(shape)

    def start(self, addresses: Sequence[int], stream: Any) -> None:
        """Launch; behind the operands' addresses are those of SCRATCH and NOTHING."""
        if _launched is not None:
            _launched.note(self.function)
        rest = self._with_maps(addresses) if self.maps else self._rest
        self._issue(self._pack(*[addresses[operand] + delta for operand, delta in self.operands]) + rest, stream)

    def _with_maps(self, addresses: Sequence[int]) -> bytes:
        """Return what is behind the operands, with the tensor maps of these addresses."""
        begins = tuple(addresses[where.operand] + where.delta for _, where, _ in self.maps)
        encoded: bytes = self._encoded.of(begins, lambda: self.encoded(begins)[8 * len(self.operands) :])
        return encoded

    def encoded(self, begins: Sequence[int]) -> bytes:
        """Return the template with the tensor maps of tensors that begin at these addresses."""
        arguments = bytearray(self.template)
        for (offset, _, wanted), begin in zip(self.maps, begins, strict=True):
            arguments[offset : offset + MAP_BYTES] = self.function.device.tensor_map(wanted, begin)
        return bytes(arguments)


class UploadStep:
    """A copy of bytes of the host to an address, in the order of the stream."""

    def __init__(self, device: Any, data: bytes, where: Where) -> None:
        self.device, self.data, self.where = device, data, where

    def start(self, addresses: Sequence[int], stream: Any) -> None:
        """Copy. The bytes are not pinned memory: they may go when this returns."""
        self.device.upload(addresses[self.where.operand] + self.where.delta, self.data, stream)


class Part(NamedTuple):
    """Steps that share scratch memory of so many bytes, or need none."""

    scratch_bytes: int
    steps: list[KernelStep | UploadStep]


class Record:
    """The steps of a plan in order. final: the plan would launch the same another time; it would not while a kernel is
    being compiled for which another one serves."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.final = True

    @classmethod
    def of(cls, recordable: Recordable, addresses: Sequence[int]) -> Record:
        """Return what a plan or a launch does with operands at these addresses."""
        made = cls()
        recordable.record(made, [Where(i, 0, address) for i, address in enumerate(addresses)])
        return made

    def begin(self, scratch_bytes: int) -> None:
        """Let the steps that follow have scratch memory of their own."""
        self.parts.append(Part(scratch_bytes, []))

    def add(self, step: KernelStep | UploadStep) -> None:
        """Append a step."""
        if not self.parts:
            self.begin(0)
        self.parts[-1].steps.append(step)

    def start(self, addresses: Sequence[int], stream: Any) -> None:
        """Run on the operands at these addresses, 0 where the call has none, asynchronously on the stream."""
        for scratch_bytes, steps in self.parts:
            if not scratch_bytes:
                known = [*addresses, 0, 0]
                for step in steps:
                    step.start(known, stream)
                continue
            device = next(step.function.device for step in steps if isinstance(step, KernelStep))
            with device.scratch.of(stream, scratch_bytes) as scratch:
                known = [*addresses, scratch.address, 0]
                for step in steps:
                    step.start(known, stream)


def likeness(addresses: Sequence[int]) -> tuple[int, ...]:
    """Return what plans ask of addresses: equal for two calls means that one record serves both."""
    low = [address % ALIKE for address in addresses]
    if len({*addresses}) == len(low):
        return tuple(low)
    return (*low, *map(list(addresses).index, addresses))
