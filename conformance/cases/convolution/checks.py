"""Checks what convolutions and their gradients have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dualdnn.api.answers import Answers
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.calls import sized
from dualdnn.conformance.trial import prepare

GUARD = 256  # bytes on each side of a workspace
PATTERN = 0xA5  # value of each byte there
ASKED = 20  # bytes of workspace that a backend asks for if it needs none


def tensors_of(operation: Any) -> tuple[str, ...]:
    """Return the operands that are tensors, the result last."""
    return (*operation.inputs, *operation.outputs)


def refuses_a_small_workspace(
    subject: Any, caller: Any, refuses: Callable[..., None], operation: Any, *, missing: str, small: str
) -> None:
    """Check that the workspace of the operation is enough, and that less, or NULL, is refused before anything is
    written.

    missing, small: the clauses. A backend of ours that needs no workspace asks for one.
    """
    handle, needed = caller.handle, operation.workspace_bytes
    memory = {
        name: handle.to_device(np.ones(operation.tensor(name).count, np.float32)) for name in tensors_of(operation)
    }
    if needed == 0:
        caller(operation, {**memory, "workSpace": None})
        if subject.is_python:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(handle, "answers", Answers())  # The handle forgets what the backend answered.
                patch.setattr(handle.backend, "workspace_bytes", lambda _operation: ASKED)
                asking = replace(operation, workspace_bytes=ASKED)
                refuses_a_small_workspace(subject, caller, refuses, asking, missing=missing, small=small)
        return
    workspace = handle.allocate(needed)
    shorter = workspace.slice(0, needed - 1)
    unchanged = tuple(memory[name] for name in operation.outputs)
    for clause, described_bytes, given in (
        (small, 0, workspace),
        (small, needed - 1, workspace),
        (small, needed, shorter),
        (missing, needed, None),
    ):
        if given is shorter and not subject.knows_sizes:
            continue
        less = replace(operation, workspace_bytes=described_bytes)
        refuses(BAD_PARAM, clause, caller, less, {**memory, "workSpace": given}, unchanged=unchanged)


def refuses_each_dimension(
    caller: Any, refuses: Callable[..., None], make: Callable[..., Any], setting: str, clause: str
) -> None:
    """Check that a dilation or stride of 3 is refused in each dimension alone."""
    rank = make().convolution.rank
    for at in range(rank):
        operation = make(**{setting: tuple(3 if i == at else 1 for i in range(rank))})
        memory = {name: caller.handle.allocate(operation.nbytes(name)) for name in tensors_of(operation)}
        refuses(NOT_SUPPORTED, clause, caller, operation, {**memory, "workSpace": None})


def takes_a_workspace_anywhere(subject: Any, caller: Any, operation: Any, start: int) -> None:
    """Check that the workspace is enough at any address, and that no byte outside it is written.

    The result is the same, bit by bit. start: bytes from an aligned address to it.
    """
    # A kernel that cannot take an address ends the context of the process, so a foreign library gets aligned ones.
    start = start if subject.cites_clauses else start * GUARD
    needed, result, results = operation.workspace_bytes, operation.outputs[0], []
    inputs = prepare(operation, "normal", 0)
    for at in (GUARD, GUARD + start):
        memory = caller.handle.to_device(np.full(at + needed + GUARD, PATTERN, np.uint8))
        given = {name: caller.handle.to_device(np.array(inputs[name])) for name in tensors_of(operation)}
        caller(operation, {**given, "workSpace": memory.slice(at, needed) if needed else None})
        results.append(given[result].to_host(np.uint8, operation.nbytes(result)))
        around = memory.to_host(np.uint8, at + needed + GUARD)
        assert (around[:at] == PATTERN).all() and (around[at + needed :] == PATTERN).all()
    assert np.array_equal(*results)


def beside_direct_sums(caller: Any, operation: Any, direct: Any) -> None:
    """Check that an algorithm's results for whole numbers are close to those of the algorithm ``direct``.

    They are much closer than what rounding in the transforms could explain at worst.
    """
    random, handle, found = np.random.default_rng(7), caller.handle, []
    names = tensors_of(operation)
    given = {name: random.integers(-2, 3, operation.tensor(name).count).astype(np.float32) for name in names}
    for chosen in (direct, operation.algo):
        sizing = sized(caller, replace(operation, algo=chosen))
        memory = {name: handle.to_device(values) for name, values in given.items()}
        workspace = handle.allocate(sizing.workspace_bytes) if sizing.workspace_bytes else None
        caller(sizing, {**memory, "workSpace": workspace})
        found.append(memory[names[-1]].to_host(np.float32, given[names[-1]].size))
    assert np.abs(found[0]).max() > 5
    assert np.abs(found[0] - found[1]).max() < max(0.02, 1e-4 * np.abs(found[0]).max())
