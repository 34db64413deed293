"""Judge arrays of any origin, for test harnesses of kernels that no dualdnn handle launches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from dualdnn.api.operations import Operation, parse

from .judge import Verdict
from .judge import judge as judge_memory
from .view import NUMPY_TYPES, Array, strided

EMPTY = 0xFF  # byte of memory that nobody provides: NaN in every floating type


def judge(
    operation: Operation | str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    random: bool = False,
) -> Verdict:
    """Judge the outputs that a kernel made of these inputs.

    operation: the computed operation, or its text in a log.

    inputs, outputs: a NumPy array or CPU DLPack tensor for each operand, with the operand's dimensions and data type,
    and any strides. Raw operands (indices, reserve space) are bytes or integers. An output that is also read (beta is
    not 0, running statistics) is in both.

    random: the inputs are independent normal random numbers. The sharper rules of docs/tolerance.md then apply, and
    ``Verdict.suspicions`` lists the broken ones.

    ``Verdict.agrees`` says whether every element is in the interval of the error analysis, and ``explanation()`` what
    is wrong. ``mistrusted`` says that most of the output could not have shown an error. Raises ``ValueError`` for an
    operand that is missing, unknown, or of another shape or type.
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
    """Return the bytes of an operand with these numbers."""
    memory = np.full(operation.nbytes(name), EMPTY, np.uint8)
    if value is not None:
        _store(operation, name, value, memory)
    return memory


def _store(operation: Operation, name: str, value: Any, memory: Array) -> None:
    """Store numbers in the elements of an operand; gaps keep their bytes."""
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
