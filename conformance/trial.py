"""Call operations on a subject with seeded inputs, and judge the results: one trial.

Outputs are in poisoned memory between guard zones, and are compared with the exact results and their derived bounds.
Operations of a chain share operands: a backward call gets the reserve space of its forward call.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from dualdnn.api.document import functions
from dualdnn.api.operations import Operation
from dualdnn.reference import ReferenceBackend, Verdict, judge

from .calls import Caller
from .calls.caller import function_of
from .contents import contents
from .inputs import fill, is_random
from .subjects import SpansMore

Array = np.ndarray[Any, Any]
GUARD = 256  # bytes of pattern before every operand and after every output
POISON = 0xFF  # byte of outputs and gaps before the call: NaN in every floating type
PATTERN = 0xA5
SPOTS = 6  # elements of each output of the reference that formulas also evaluate


@dataclass
class Trial:
    """Hold what a trial found for one operation, or for the last called one of a chain.

    earlier: the results of the chain's previous operations, which passed.
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
        """Return the results of every operation of the chain that was called."""
        return [*self.earlier, self]

    def explanation(self) -> str:
        return "\n".join([*self.problems, *filter(None, [self.verdict.explanation()])])


def seed_of(operation: Operation, seed: int) -> int:
    """Return a seed that is the same in every process."""
    return zlib.crc32(f"{seed} {operation}".encode())


def prepare(
    operation: Operation, inputs: str | Mapping[str, str], seed: int, aliases: Mapping[str, str] | None = None
) -> dict[str, Array]:
    """Return the bytes of every operand before the call; an alias shares its original's memory."""
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


class Called:
    """Hold a call of an operation on its own memory, with right arguments by the names of the parameters."""

    def __init__(self, caller: Caller, operation: Operation, shared: Mapping[str, Any] | None = None) -> None:
        """Place the operands in the subject's memory. shared: operand -> memory of an earlier call."""
        name = function_of(type(operation))
        self.function = getattr(caller.cudnn, name)
        new = {operand: bytes_ for operand, bytes_ in prepare(operation, "normal", 0).items() if bytes_.size}
        self.memory = {operand: caller.handle.to_device(bytes_) for operand, bytes_ in new.items()} | dict(shared or {})
        values = caller.values(name, operation, self.memory)
        self.arguments = {p.name: v for p, v in zip(functions()[name].arguments, values, strict=True)}

    def __call__(self, **changed: Any) -> None:
        """Make the call with these arguments in place of others."""
        self.function(*(self.arguments | changed).values())


@dataclass
class Step:
    """Describe one call of a chain. ``names`` maps an operand to its memory in the chain, if that has another name."""

    operation: Operation
    names: Mapping[str, str] = field(default_factory=dict)
    inputs: str | Mapping[str, str] = "normal"

    def memory_of(self, operand: str) -> str:
        return self.names.get(operand, operand)


class Outgrown(ValueError):
    """Report that a call of a chain needs more memory than the calls before it made."""


class Chain:
    """Hold a subject's guarded memory that several calls share, and what the reference keeps for later calls.

    tamper: a function that changes what was read back, to prove that the case notices (prove.py).
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
        # raw memory -> the calls that wrote it, each with its operands as they were before it
        self.earlier: dict[str, list[tuple[Operation, Mapping[str, Array]]]] = {}

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
        try:
            self.caller(operation, operands)
        except SpansMore as error:  # Every operand has the size of its descriptor.
            raise AssertionError(str(error)) from None
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
        earlier = [
            call
            for operand in operation.raw
            if operand in operation.inputs
            for call in self.earlier.get(names.get(operand, ""), ())
        ]
        verdict = judge(operation, memory, after, kept, random=random, spots=spots, earlier=earlier)
        for operand in operation.raw:
            if operand in operation.outputs and operand in names:
                self.earlier[names[operand]] = [*earlier, (operation, memory)]
        self.kept |= {names[operand]: bytes_ for operand, bytes_ in verdict.kept.items()}
        return Trial(operation, verdict, problems, after)

    def _first(self, name: str) -> int:
        """Return the offset at which a memory of the chain begins in its buffer."""
        return GUARD + self.offsets.get(name, 0)

    def _place(self, name: str, bytes_: Array, operation: Operation, operand: str, names: Mapping[str, str]) -> Array:
        """Return the bytes of an operand before the call. Memory that is new to the chain is created with them."""
        first = self._first(name)
        if name in self.placed:
            _, whole, size = self.placed[name]
            if bytes_.size > size:
                raise Outgrown(f"{operand} needs {bytes_.size} bytes, {name} of the chain has {size}")
            return whole[first : first + bytes_.size].copy()
        given = self.given.get(name, bytes_)
        if operation.raw.get(operand) == "workspace_bytes" and given.size < bytes_.size:
            given = bytes_  # A forced solver may need more than the one that was asked.
        bytes_ = given.copy()
        written = any(n in operation.outputs or n in operation.raw for n in names if names[n] == name)
        tail = GUARD if written else 0  # A read beyond an input then reaches the end of its allocation.
        whole = np.full(first + bytes_.size + tail, PATTERN, np.uint8)
        whole[first : first + bytes_.size] = bytes_
        self.placed[name] = (self.caller.handle.to_device(whole), whole, bytes_.size)
        return bytes_

    def free(self) -> None:
        for buffer, _, _ in self.placed.values():
            buffer.free()
        self.placed.clear()


def _first_with(names: Mapping[str, str], operand: str) -> str:
    """Return the first operand with the same memory."""
    return next(other for other, name in names.items() if name == names[operand])


def attempt(
    caller: Caller,
    operation: Operation,
    inputs: str | Mapping[str, str] = "normal",
    seed: int = 0,
    aliases: Mapping[str, str] | None = None,
    before: Mapping[str, Array] | None = None,
) -> Trial:
    """Call the operation once and judge it.

    inputs: a kind of ``inputs.KINDS``, for all operands or for each. aliases: operand -> operand with the same memory.
    before: the bytes of operands, instead of seeded ones.
    """
    return attempt_chain(caller, [Step(operation, aliases or {}, inputs)], seed, before)


def attempt_chain(
    caller: Caller,
    steps: Sequence[Step],
    seed: int = 0,
    before: Mapping[str, Array] | None = None,
    offsets: Mapping[str, int] | None = None,
) -> Trial:
    """Make the calls in order on shared memory until one fails, and return the result of the last one made.

    before: bytes of the chain's memory by name, instead of seeded ones. offsets: bytes by which a memory begins after
    an aligned address.
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
    """Return messages on guard zones that changed."""
    zones = {"before its start": slice(0, first), "after its end": slice(first + size, None)}
    damaged = {where: np.flatnonzero(before[zone] != now[zone]) for where, zone in zones.items()}
    return [f"{name}: {bytes_.size} bytes {where} changed" for where, bytes_ in damaged.items() if bytes_.size]
