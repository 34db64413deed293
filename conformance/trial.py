"""One trial: operations called on a subject with seeded inputs, outputs in poisoned memory between guard zones, judged
against the exact results and their derived bounds. Operations of a chain share operands, as a backward call has the reserve
space of its forward call."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from dualdnn.api.operations import Operation
from dualdnn.reference import ReferenceBackend, Verdict, judge

from .calls import Caller
from .contents import contents
from .inputs import fill, is_random

Array = np.ndarray[Any, Any]
GUARD = 256  # bytes before every operand and after every output, filled with a pattern
POISON = 0xFF  # what outputs and gaps hold before the call: NaN in every floating type
PATTERN = 0xA5
SPOTS = 6  # elements of each output of the reference that formulas evaluate once more


@dataclass
class Trial:
    """What a trial found: of one operation, or of the last of a chain that was called.

    earlier: what was found of the operations of the chain before it, which passed.
    """

    operation: Operation
    verdict: Verdict
    problems: list[str] = field(default_factory=list)
    after: dict[str, Array] = field(default_factory=dict)
    earlier: list[Trial] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.verdict.agrees and not self.problems

    @property
    def whole(self) -> list[Trial]:
        """Every operation of the chain that was called."""
        return [*self.earlier, self]

    def explanation(self) -> str:
        return "\n".join([*self.problems, *filter(None, [self.verdict.explanation()])])


def seed_of(operation: Operation, seed: int) -> int:
    """A seed that is the same in every process."""
    return zlib.crc32(f"{seed} {operation}".encode())


def prepare(
    operation: Operation, inputs: str | Mapping[str, str], seed: int, aliases: Mapping[str, str] | None = None
) -> dict[str, Array]:
    """Bytes of every operand before the call; an alias has no memory of its own."""
    random = np.random.default_rng(seed_of(operation, seed))
    kinds = inputs if isinstance(inputs, Mapping) else dict.fromkeys(operation.operands, inputs)
    memory: dict[str, Array] = {}
    for name in operation.operands:
        if aliases and name in aliases:
            continue
        memory[name] = np.full(operation.nbytes(name), POISON, np.uint8)
        if name in operation.reads and name not in operation.raw:
            fill(operation.tensor(name), memory[name], kinds.get(name, "normal"), random)
    for name, bytes_ in contents(operation, random).items():
        if name in memory:
            memory[name][: bytes_.size] = bytes_
    for name, original in (aliases or {}).items():
        memory[name] = memory[original]
    return memory


@dataclass
class Step:
    """One call of a chain. ``names``: operand -> name of its memory in the chain, where that is another than the operand's."""

    operation: Operation
    names: Mapping[str, str] = field(default_factory=dict)
    inputs: str | Mapping[str, str] = "normal"

    def memory_of(self, operand: str) -> str:
        return self.names.get(operand, operand)


class Chain:
    """Guarded memory of a subject that several calls share, and what the reference keeps for the later ones of them.

    tamper: changes what was read back, where somebody proves that the case would notice (prove.py).
    """

    tamper: ClassVar[Callable[..., None] | None] = None

    def __init__(
        self,
        caller: Caller,
        seed: int = 0,
        before: Mapping[str, Array] | None = None,
        offsets: Mapping[str, int] | None = None,
    ) -> None:
        self.caller, self.seed, self.given, self.offsets = caller, seed, before or {}, offsets or {}
        self.placed: dict[str, tuple[Any, Array, int]] = {}  # buffer, its bytes with the guard zones, size between them
        self.kept: dict[str, Array] = {}

    def call(self, step: Step) -> Trial:
        """Make one call and judge it."""
        operation = step.operation
        names = {operand: step.memory_of(operand) for operand in operation.operands}
        aliases = {operand: first for operand in names if (first := _first_with(names, operand)) != operand}
        memory = {**prepare(operation, step.inputs, self.seed, aliases)}
        for operand, name in names.items():
            if operand not in aliases:
                memory[operand] = self._place(name, memory[operand], operation, operand, names)
        for operand, original in aliases.items():
            memory[operand] = memory[original]
        operands = {
            operand: self.placed[name][0].slice(self._first(name), memory[operand].size)
            for operand, name in names.items()
        }
        self.caller(operation, operands)
        kept = {operand: self.kept[name] for operand, name in names.items() if name in self.kept}
        read = {operand: name for operand, name in names.items() if operand not in aliases}
        now = {
            operand: self.placed[name][0].to_host(np.uint8, self.placed[name][1].size) for operand, name in read.items()
        }
        if self.tamper is not None:
            self.tamper(operation, memory, kept, now, {operand: self._first(name) for operand, name in read.items()})
        problems, after = [], {}
        for operand, name in read.items():
            buffer, whole, size = self.placed[name]
            begin = self._first(name)
            problems += _damaged_guards(operand, whole, now[operand], begin, size)
            self.placed[name] = (buffer, now[operand], size)
            after[operand] = now[operand][begin : begin + memory[operand].size].copy()
        for operand, original in aliases.items():
            after[operand] = after[original]
        ours = isinstance(getattr(self.caller.handle, "backend", None), ReferenceBackend)
        random, spots = not self.given and is_random(step.inputs), SPOTS if ours else 0
        verdict = judge(operation, memory, after, kept, random=random, spots=spots)
        self.kept |= {names[operand]: bytes_ for operand, bytes_ in verdict.kept.items()}
        return Trial(operation, verdict, problems, after)

    def _first(self, name: str) -> int:
        """The byte of its buffer that a memory of the chain begins at."""
        return GUARD + self.offsets.get(name, 0)

    def _place(self, name: str, bytes_: Array, operation: Operation, operand: str, names: Mapping[str, str]) -> Array:
        """The bytes that an operand has before the call; memory that the chain has not seen is made, with these bytes."""
        first = self._first(name)
        if name in self.placed:
            _, whole, size = self.placed[name]
            if bytes_.size > size:
                raise ValueError(f"{operand} needs {bytes_.size} bytes, {name} of the chain has {size}")
            return whole[first : first + bytes_.size].copy()
        given = self.given.get(name, bytes_)
        if operation.raw.get(operand) == "workspace_bytes" and given.size < bytes_.size:
            given = bytes_  # the solver that is forced needs more than the one that was asked
        bytes_ = given.copy()
        written = any(n in operation.outputs or n in operation.raw for n in names if names[n] == name)
        tail = GUARD if written else 0  # reads beyond an input end at the end of its allocation
        whole = np.full(first + bytes_.size + tail, PATTERN, np.uint8)
        whole[first : first + bytes_.size] = bytes_
        self.placed[name] = (self.caller.handle.to_device(whole), whole, bytes_.size)
        return bytes_

    def free(self) -> None:
        for buffer, _, _ in self.placed.values():
            buffer.free()
        self.placed.clear()


def _first_with(names: Mapping[str, str], operand: str) -> str:
    """The first operand that has the same memory."""
    return next(other for other, name in names.items() if name == names[operand])


def attempt(
    caller: Caller,
    operation: Operation,
    inputs: str | Mapping[str, str] = "normal",
    seed: int = 0,
    aliases: Mapping[str, str] | None = None,
    before: Mapping[str, Array] | None = None,
) -> Trial:
    """Call the operation once and judge what it did.

    inputs: a kind of ``inputs.KINDS``, for all operands or by operand. aliases: operand -> operand whose memory it is.
    before: the bytes of the operands, instead of seeded ones.
    """
    return attempt_chain(caller, [Step(operation, aliases or {}, inputs)], seed, before)


def attempt_chain(
    caller: Caller,
    steps: Sequence[Step],
    seed: int = 0,
    before: Mapping[str, Array] | None = None,
    offsets: Mapping[str, int] | None = None,
) -> Trial:
    """Make the calls one after the other on shared memory, until one fails; what that one, or else the last one, did.

    before: bytes of memory of the chain, by name, instead of seeded ones. offsets: how many bytes behind an aligned address it begins.
    """
    chain = Chain(caller, seed, before, offsets)
    called: list[Trial] = []
    try:
        for step in steps:
            called.append(chain.call(step))
            if not called[-1].passed:
                break
        return replace(called[-1], earlier=called[:-1])
    finally:
        chain.free()


def _damaged_guards(name: str, before: Array, now: Array, first: int, size: int) -> list[str]:
    """Guard zones that changed."""
    zones = {"before its start": slice(0, first), "after its end": slice(first + size, None)}
    damaged = {where: np.flatnonzero(before[zone] != now[zone]) for where, zone in zones.items()}
    return [f"{name}: {bytes_.size} bytes {where} changed" for where, bytes_ in damaged.items() if bytes_.size]
