"""One trial: an operation called on a subject with seeded inputs, outputs in poisoned memory between guard zones,
judged against the exact result and its derived bound."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dualdnn.api.operations import Operation
from dualdnn.reference import Verdict, judge

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
        problems += _damaged_guards(name, whole, now, size)
        buffer.free()
    for name, original in aliases.items():
        after[name] = after[original]
    return Trial(operation, judge(operation, memory, after), problems, after)


def _damaged_guards(name: str, before: Array, now: Array, size: int) -> list[str]:
    """Guard zones that changed."""
    zones = {"before its start": slice(0, GUARD), "after its end": slice(GUARD + size, None)}
    damaged = {where: np.flatnonzero(before[zone] != now[zone]) for where, zone in zones.items()}
    return [f"{name}: {bytes_.size} bytes {where} changed" for where, bytes_ in damaged.items() if bytes_.size]
