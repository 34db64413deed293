"""Judges arrays of any origin: for harnesses that test kernels which no handle of ours launches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from dualdnn.api.operations import Operation, parse

from .judge import Verdict
from .judge import judge as judge_memory
from .view import NUMPY_TYPES, Array, strided

EMPTY = 0xFF  # what memory holds that nobody gives: NaN in every floating type


def judge(
    operation: Operation | str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    random: bool = False,
) -> Verdict:
    """Judge the outputs that a kernel made of these inputs.

    operation: what was computed, or its text as a log has it. inputs, outputs: operand -> a NumPy array, or what DLPack takes from the CPU, of
    the operand's dimensions and data type, whatever its strides; raw operands (indices, reserve space) as bytes or integers. An output that is
    read as well (beta is not 0, running statistics) stands in both. random: the inputs are independent random numbers, as a generator of normal
    numbers makes them; then the sharper rules of docs/tolerance.md hold, and ``Verdict.suspicions`` names those that are broken.

    ``Verdict.agrees`` says whether every element lies in the interval that the error analysis derives, ``explanation()`` what is wrong, and
    ``mistrusted`` that the inputs were such that most of the output could not have shown an error. Raises ``ValueError`` for an operand that is
    missing, unknown, or of another shape or type.
    """
    record = parse(operation) if isinstance(operation, str) else operation
    if not isinstance(record, Operation):
        raise ValueError(f"operation is {operation!r:.80}, expected an operation or its text")
    changed = tuple(dict.fromkeys((*record.outputs, *record.raw)))
    for role, given, known in (("inputs", inputs, record.operands), ("outputs", outputs, changed)):
        if strange := sorted(set(given) - set(known)):
            raise ValueError(f"{role} has {', '.join(strange)}; {type(record).__name__} has {', '.join(known)}")
    written = [name for name in record.outputs if record.has(name) and record.nbytes(name)]
    for role, given, due in (("inputs", inputs, record.reads), ("outputs", outputs, written)):
        if missing := [name for name in due if name not in given]:
            raise ValueError(f"{role} lacks {', '.join(missing)} of {type(record).__name__}")
    before = {name: _stored(record, name, inputs.get(name)) for name in record.operands}
    after = {name: memory.copy() for name, memory in before.items()}
    for name, value in outputs.items():
        _store(record, name, value, after[name])
    return judge_memory(record, before, after, random=random)


def _stored(operation: Operation, name: str, value: Any) -> Array:
    """The bytes of an operand that holds these numbers."""
    memory = np.full(operation.nbytes(name), EMPTY, np.uint8)
    if value is not None:
        _store(operation, name, value, memory)
    return memory


def _store(operation: Operation, name: str, value: Any, memory: Array) -> None:
    """Put numbers into the elements of an operand; gaps keep their bytes."""
    array = (
        np.from_dlpack(value)
        if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray)
        else np.asarray(value)
    )
    if name in operation.raw:
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if content.size != memory.size:
            raise ValueError(f"{name} has {content.size} bytes, {memory.size} are due")
        memory[:] = content
        return
    spec = operation.tensor(name)
    due = np.dtype(NUMPY_TYPES[spec.scalar_type])
    if array.dtype != due:
        raise ValueError(f"{name} has type {array.dtype}, {due} is due: a conversion would hide errors")
    if array.shape != spec.dims:
        raise ValueError(f"{name} has shape {array.shape}, {spec.dims} is due")
    target = strided(spec, memory)
    target[...] = array.reshape(target.shape)
