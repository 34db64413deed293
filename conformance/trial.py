"""One trial: an operation called on a subject with seeded inputs, outputs in poisoned memory between guard zones,
judged against the exact result and its derived bound."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dualdnn.api.operations import Operation, TensorSpec
from dualdnn.reference import Verdict, judge
from dualdnn.reference.view import strided

from .calls import Caller
from .inputs import fill

Array = np.ndarray[Any, Any]
GUARD = 256  # bytes before every operand and after every output, filled with a pattern
POISON = 0xFF  # what outputs and gaps hold before the call: NaN in every floating type
PATTERN = 0xA5


@dataclass
class Trial:
    """What a trial found."""

    operation: Operation
    verdict: Verdict
    problems: list[str] = field(default_factory=list)
    after: dict[str, Array] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return self.verdict.agrees and not self.problems

    def explanation(self) -> str:
        lines = list(self.problems)
        if self.verdict.wrong:
            lines.append(f"{self.verdict.wrong} of {self.verdict.checked} elements are wrong, the worst: {self.verdict.worst}")
        return "\n".join(lines)


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
        if name in operation.reads:
            fill(operation.tensor(name), memory[name], kinds.get(name, "normal"), random)
    for name, original in (aliases or {}).items():
        memory[name] = memory[original]
    return memory


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
    aliases = dict(aliases or {})
    memory = {name: bytes_.copy() for name, bytes_ in (before or prepare(operation, inputs, seed, aliases)).items()}
    placed: dict[str, Any] = {}
    operands: dict[str, Any] = {}
    for name in operation.operands:
        if name in aliases:
            continue
        written = name in operation.outputs or name in operation.raw or name in aliases.values()
        tail = GUARD if written else 0  # reads beyond an input end at the end of its allocation
        whole = np.full(GUARD + memory[name].size + tail, PATTERN, np.uint8)
        whole[GUARD : GUARD + memory[name].size] = memory[name]
        placed[name] = (caller.handle.to_device(whole), whole)
        operands[name] = placed[name][0].slice(GUARD, memory[name].size)
    for name, original in aliases.items():
        operands[name] = operands[original]
    caller(operation, operands)
    after: dict[str, Array] = {}
    problems: list[str] = []
    for name, (buffer, whole) in placed.items():
        now = buffer.to_host(np.uint8, whole.size)
        size = memory[name].size
        after[name] = now[GUARD : GUARD + size].copy()
        problems += _damage(operation, name, aliases, whole, now, size)
        buffer.free()
    for name, original in aliases.items():
        after[name] = after[original]
    return Trial(operation, judge(operation, memory, after), problems, after)


def _damage(operation: Operation, name: str, aliases: Mapping[str, str], before: Array, now: Array, size: int) -> list[str]:
    """Bytes that changed though they may not: guard zones, gaps between the elements of an output, inputs."""
    allowed = np.zeros(before.size, bool)
    inner = allowed[GUARD : GUARD + size]
    for written in (name, *(alias for alias, original in aliases.items() if original == name)):
        if written in operation.raw:
            inner[:] = True
        elif written in operation.outputs:
            inner |= element_bytes(operation.tensor(written), size)
    wrong = np.flatnonzero((before != now) & ~allowed)
    if not wrong.size:
        return []
    first = int(wrong[0]) - GUARD
    where = "before its start" if first < 0 else "after its end" if first >= size else "outside its elements"
    return [f"{name}: {wrong.size} bytes changed {where} (first at byte {first} of {size})"]


def element_bytes(spec: TensorSpec, size: int) -> Array:
    """Which of ``size`` bytes belong to elements of the tensor."""
    marks = np.zeros(size, np.uint8)
    strided(spec, marks)[...] = np.frombuffer(b"\xff" * spec.scalar_bytes, strided(spec, marks).dtype)[0]
    return marks != 0
