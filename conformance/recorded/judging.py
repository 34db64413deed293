"""Decide whether a recorded call and our result agree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dualdnn.api.operations import Operation
from dualdnn.reference import judge
from dualdnn.reference.engine import evaluate
from dualdnn.reference.judge import bounds
from dualdnn.reference.view import rounded, stored

from .model import Block, Record, Recording
from .replay import NotReplayable, Outcome, Replayer, encoded, recorded_after

AGREES = "agrees"
SKIPPED = "skipped"
STATUS = "status"
OUTPUTS = "outputs"
RESULT = "result"
WRONG = "wrong"


@dataclass(frozen=True)
class Finding:
    """Hold the finding on one record.

    kind: "agrees"; "skipped" with the reason in ``text``; "status", "outputs" or "result" if the recorded library and
    ours differ in it. "wrong" means that our result is outside the bound around the exact one, which nothing excuses.
    ours, theirs: the statuses, without CUDNN_STATUS_. clause: the clause that our refusal cites.
    """

    record: Record
    kind: str
    text: str = ""
    ours: str = ""
    theirs: str = ""
    clause: str | None = None
    operation: Operation | None = None
    error_ratio: float = 0.0
    result: Any = None  # result of our call, in the form of records
    before: Mapping[str, Block] = field(default_factory=dict)  # operands before our call

    def __str__(self) -> str:
        what = self.operation if self.operation is not None else self.record
        note = f" ({self.record.note})" if self.record.note else ""
        return f"record {self.record.id}{note}: {self.text}\n  {what}"


def examine(record: Record, recording: Recording, replayer: Replayer) -> Finding:
    """Repeat the call.

    Without computing, the recorded outputs are judged. Otherwise ours are judged and compared with the recorded ones.
    """
    try:
        outcome = replayer(record)
    except NotReplayable as reason:
        return Finding(record, SKIPPED, str(reason))
    if outcome.operation is not None:
        outcome.before, outcome.after = (by_operand(outcome.operation, m) for m in (outcome.before, outcome.after))
    ours = outcome.status.name.removeprefix("CUDNN_STATUS_")
    theirs = recording.status(record).name.removeprefix("CUDNN_STATUS_")
    clause = outcome.error.clause if outcome.error else None
    kind, text, ratio = AGREES, "", 0.0
    if replayer.observer.compute:
        text, ratio = _our_fault(outcome)
        kind = WRONG if text else AGREES
    if kind == AGREES and ours != theirs:
        kind, text = STATUS, f"status {theirs} was recorded, ours is {outcome.error or ours}"
    elif kind == AGREES and outcome.error is None:
        kind, text, recorded_ratio = _compared(outcome, record, replayer.observer.compute)
        ratio = max(ratio, recorded_ratio)
    return Finding(
        record, kind, text, ours, theirs, clause, outcome.operation, ratio, encoded(outcome.result), outcome.before
    )


def by_operand(operation: Operation, memory: Mapping[str, Block]) -> dict[str, Block]:
    """Return the memory of parameters by the operands that they pass."""
    return {operation.parameters.get(name, name): content for name, content in memory.items()}


def equal_results(one: Any, other: Any) -> bool:
    """Return whether two results are equal, element by element; NaN equals NaN."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(equal_results(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal_results, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


def _our_fault(outcome: Outcome) -> tuple[str, float]:
    """Return the mistake in our subject's outputs, or an empty text, and error/bound."""
    problems = list(outcome.problems)
    if outcome.operation is None:
        changed = [name for name, now in outcome.after.items() if not np.array_equal(now, outcome.before[name])]
        problems += [f"a call that computed nothing changed {name}" for name in changed]
        return "; ".join(problems), 0.0
    verdict = judge(outcome.operation, outcome.before, outcome.after)
    return "; ".join([*problems, *filter(None, [verdict.explanation()])]), verdict.error_ratio


def _compared(outcome: Outcome, record: Record, computed: bool) -> tuple[str, str, float]:
    """Return (kind, text, error/bound) of the comparison of the library's results with ours."""
    if record.result is not None and not equal_results(encoded(outcome.result), record.result):
        return RESULT, f"{record.result} was recorded, ours is {encoded(outcome.result)}", 0.0
    if outcome.operation is None:
        return AGREES, "", 0.0
    recorded = by_operand(outcome.operation, recorded_after(record))
    kept = {name: recorded[name] for name in outcome.operation.operands if name in recorded}
    if any(name not in kept for name in outcome.operation.outputs):
        return AGREES, "", 0.0  # Only the status was recorded.
    if computed:
        apart = differing(outcome.operation, outcome.before, outcome.after, kept)
        return (OUTPUTS if apart else AGREES), apart, 0.0
    verdict = judge(outcome.operation, outcome.before, kept)
    return (AGREES if verdict.agrees else OUTPUTS), f"recorded: {verdict.explanation()}", verdict.error_ratio


def differing(
    operation: Operation, before: Mapping[str, Block], one: Mapping[str, Block], other: Mapping[str, Block]
) -> str:
    """Return where two results are further apart than two values within the bound can be, or an empty text."""
    found = []
    for name, exact in evaluate(operation, before).items():
        if name not in one or name not in other:
            continue
        if exact.raw:
            differ = one[name][: exact.value.nbytes] != other[name][: exact.value.nbytes]
            if differ.any():
                found.append(f"{name}: {np.count_nonzero(differ)} bytes are not what was recorded")
            continue
        spec = operation.tensor(name)
        value, bound = bounds(operation, name, exact, before)
        with np.errstate(all="ignore"):
            first, second = (stored(spec, memory[name]).astype(value.dtype) for memory in (one, other))
            allowed = rounded(value + bound, spec.scalar_type).astype(value.dtype) - rounded(
                value - bound, spec.scalar_type
            )
            near = (np.abs(first - second) <= allowed) | (first == second) | (np.isnan(first) & np.isnan(second))
        near |= np.isinf(bound)
        if not near.all():
            index = tuple(int(i) for i in np.argwhere(~near)[0])
            found.append(
                f"{np.count_nonzero(~near)} of {near.size} elements are not what was recorded, the first: {name}{list(index)} is "
                f"{first[index]!s}, {second[index]!s} was recorded, exact {value[index]!s}, at most {allowed[index]!s} apart"
            )
    return "; ".join(found)
