"""Checks what the searches for algorithms of a convolution and of its gradients have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnDeterminism_t, cudnnMathType_t, cudnnStatus_t
from dualdnn.api.operations import BackendError
from dualdnn.api.operations.answers import Answers
from dualdnn.api.status import ALLOC_FAILED, EXECUTION_FAILED, NOT_SUPPORTED, CudnnError
from dualdnn.conformance import scope
from dualdnn.conformance.calls import described, sized

SUCCESS = cudnnStatus_t.CUDNN_STATUS_SUCCESS
DEFAULT, TENSOR_OP, CONVERSION, FMA = cudnnMathType_t
LAYER: tuple[Any, ...] = ((2, 4, 6, 7), (4, 4, 3, 3))


@dataclass(frozen=True)
class Direction:
    """Describes the searches of a convolution or one of its gradients.

    operands: in the order of the calls. unordered: algorithms that their enumerators call non-deterministic. never: algorithms
    that no table has. clauses: the clauses that each of the three calls cites, by the mistake.
    """

    name: str
    make: Callable[..., Any]
    algorithms: type[IntEnum]
    tensor_op: tuple[IntEnum, ...]
    operands: tuple[str, str, str]
    unordered: tuple[IntEnum, ...] = ()
    never: tuple[IntEnum, ...] = ()
    clauses: tuple[dict[str, str], ...] = field(default=({}, {}, {}), compare=False)

    @property
    def calls(self) -> tuple[str, str, str]:
        """Return the names of the query and of the two searches, without memory and on given memory."""
        found = f"cudnnFindConvolution{self.name}Algorithm"
        return f"cudnnGetConvolution{self.name}Algorithm_v7", found, f"{found}Ex"

    @property
    def max_count(self) -> str:
        return f"cudnnGetConvolution{self.name}AlgorithmMaxCount"

    @property
    def query(self) -> str:
        return f"cudnnGetConvolution{self.name}WorkspaceSize"


class Searches:
    """Offers the three searches for algorithms through one interface."""

    def __init__(self, caller: Any) -> None:
        self.caller = caller

    def __call__(
        self, direction: Direction, call: int, operation: Any, count: int = 100, workspace: int = 2**24, **changed: Any
    ) -> Any:
        own = self.caller.handle
        first, second, third = direction.operands
        names = (f"{first}Desc", f"{second}Desc", "convDesc", f"{third}Desc")
        found = {"handle": own, **dict(zip(names, described(self.caller, operation), strict=True))} | changed
        handle, descriptors = found["handle"], [found[name] for name in names]
        function = getattr(self.caller.cudnn, direction.calls[call])
        if call < 2:
            return function(handle, *descriptors, count)
        memory = {n: own.to_device(np.zeros(operation.nbytes(n), np.uint8)) for n in direction.operands}
        memory |= {"workSpace": own.allocate(workspace) if workspace else None} | changed
        return function(handle, descriptors[0], memory[first], descriptors[1], memory[second], descriptors[2], descriptors[3],
                        memory[third], count, memory["workSpace"], workspace)  # fmt: skip


def lists_every_algorithm(subject: Any, search: Searches, direction: Direction, call: int, operation: Any) -> None:
    """Check that each algorithm is listed once, and those with a tensor op variant also with the descriptor's math type.

    With CUDNN_FMA_MATH all of them are listed with that math type alone.
    """
    found, math_type = search(direction, call, operation), operation.convolution.math_type
    entries = found.perfResults
    assert found.returnedAlgoCount == len(entries)
    expected = Counter((algo, FMA if math_type == FMA else DEFAULT) for algo in direction.algorithms)
    if math_type in (TENSOR_OP, CONVERSION):
        expected.update((algo, math_type) for algo in direction.tensor_op)
        assert found.returnedAlgoCount == getattr(search.caller.cudnn, direction.max_count)(search.caller.handle)
    assert Counter((entry.algo, entry.mathType) for entry in entries) == expected
    unordered = {e.algo for e in entries if e.determinism == cudnnDeterminism_t.CUDNN_NON_DETERMINISTIC}
    assert unordered == set(direction.unordered)
    if subject.cites_clauses:
        assert all(entry.reserved == (0, 0, 0) and (call or entry.time == -1) for entry in entries)
    refused = {entry.algo for entry in entries if entry.status == NOT_SUPPORTED}
    assert set(direction.never) <= refused and len(refused) < len(direction.algorithms)


def with_entry(caller: Any, operation: Any, entry: Any) -> Any:
    """Return the operation by the algorithm and math type of a result, with the workspace that the subject asks for."""
    convolution = replace(operation.convolution, math_type=entry.mathType)
    return sized(caller, replace(operation, algo=entry.algo, convolution=convolution))


def successes_compute(caller: Any, trial: Any, direction: Direction, operation: Any, results: Any) -> list[Any]:
    """Check that successes come first, need the workspace that the query returns, and give right results. Return them."""
    worked = [entry for entry in results if entry.status == SUCCESS]
    assert tuple(worked) == results[: len(worked)]
    assert worked
    for entry in worked:
        chosen = with_entry(caller, operation, entry)
        assert chosen.workspace_bytes == entry.memory
        trial(chosen)
    query = getattr(caller.cudnn, direction.query)
    for entry in results[len(worked) :]:
        assert entry.status == NOT_SUPPORTED
        with pytest.raises(Exception, match="NOT_SUPPORTED") as refused:
            query(caller.handle, *described(caller, operation), entry.algo)
        clause = getattr(refused.value, "clause", None)
        assert clause is None or clause in scope.clauses()  # Any row of the tables may give the clause.
    return worked


def are_in_order(times: list[float]) -> None:
    """Check that measured times are positive and sorted."""
    assert times == sorted(times) and times[0] > 0


def tries_what_fits_the_workspace(caller: Any, search: Searches, direction: Direction, room: int | None) -> None:
    """Check the results of a search on a workspace of ``room`` bytes, or on NULL with a large size, which counts as empty."""
    operation = direction.make(*LAYER)
    given = {"workspace": room} if room is not None else {"workspace": 2**24, "workSpace": None}
    results = search(direction, 2, operation, **given).perfResults
    worked = [entry.status == SUCCESS for entry in results]
    assert worked == sorted(worked, reverse=True)  # The failed algorithms come last.
    assert all(entry.time == -1 for entry in results if entry.status != SUCCESS)
    for entry in results:
        if entry.status != NOT_SUPPORTED:
            needed = with_entry(caller, operation, entry).workspace_bytes
            assert entry.memory == needed
            assert entry.status == (ALLOC_FAILED if needed > (room or 0) else SUCCESS)


def overwrites_the_output_alone(caller: Any, search: Searches, direction: Direction) -> None:
    """Check that a search on given memory writes to the output, and to no input."""
    operation = direction.make(*LAYER)
    values = {n: np.full(operation.tensor(n).count, 3.0, np.float32) for n in direction.operands}
    memory = {n: caller.handle.to_device(v) for n, v in values.items()}
    search(direction, 2, operation, **memory)
    changed = [n for n in values if not np.array_equal(memory[n].to_host(np.float32, values[n].size), values[n])]
    assert changed == [direction.operands[2]]


class Measured:
    """Stands for a backend whose algorithms take known times and workspaces. One fails, and large workspaces cannot be
    allocated.

    room: bytes of the caller's workspace, None where the search has its own.
    """

    MAX_BYTES = 60  # bytes of memory that can be allocated

    def __init__(self, monkeypatch: Any, handle: Any, room: int | None) -> None:
        self.room = room
        self.ran: list[int | None] = []  # These are the workspaces of the algorithms that ran, in bytes.
        self.freed: list[int] = []
        allocate = handle.allocate

        def allocated(nbytes: int) -> Any:
            if nbytes > self.MAX_BYTES:
                raise CudnnError(ALLOC_FAILED, "cudnnStatus_t/c04", "no memory")
            made = allocate(nbytes)
            monkeypatch.setattr(made, "free", lambda: self.freed.append(nbytes))
            return made

        def time(operation: Any, operands: Any, stream: Any, _timed: Any) -> float:
            *others, workspace = operands
            assert len(others) == 3 and stream is handle.stream
            assert operation.workspace_bytes == self.bytes_of(operation.algo)
            self.ran.append(workspace and workspace.nbytes)
            if operation.algo == 1:
                raise BackendError("a kernel that fails")
            return 20.0 - operation.algo

        monkeypatch.setattr(handle, "answers", Answers())  # The handle forgets what the true backend answered.
        monkeypatch.setattr(handle.backend, "workspace_bytes", lambda operation: self.bytes_of(operation.algo))
        monkeypatch.setattr(handle.backend, "algorithm_time", time)
        monkeypatch.setattr(handle.backend, "preferred_algorithms", lambda found: found[::-1])
        if room is None:
            monkeypatch.setattr(handle, "allocate", allocated)

    @staticmethod
    def bytes_of(algorithm: int) -> int:
        """Return the bytes of workspace; the first algorithm needs no workspace."""
        return 20 * int(algorithm)

    def check(self, search: Searches, direction: Direction, call: int) -> None:
        """Compare the result of a search, and the workspaces that it ran on, with the known values."""
        results = search(direction, call, direction.make(*LAYER, math_type=DEFAULT), workspace=80).perfResults
        found = [(e.algo, e.status, e.time, e.memory) for e in results if e.status != NOT_SUPPORTED]
        refused = results[len(found) :]
        assert all((e.status, e.time, e.memory) == (NOT_SUPPORTED, -1.0, 0) for e in refused)
        able = sorted(algo for algo, *_ in found)
        room = self.MAX_BYTES if self.room is None else self.room
        fits = [algo for algo in able if self.bytes_of(algo) <= room]
        if not call:
            assert found == [(algo, SUCCESS, -1.0, self.bytes_of(algo)) for algo in able[::-1]] and not self.ran
            return
        failures = {
            algo: EXECUTION_FAILED if algo in fits else ALLOC_FAILED for algo in able if algo == 1 or algo not in fits
        }
        assert len(failures) > 1 and len(fits) > 2
        assert found == [
            *((algo, SUCCESS, 20.0 - algo, self.bytes_of(algo)) for algo in fits[::-1] if algo not in failures),
            *((algo, status, -1.0, self.bytes_of(algo)) for algo, status in failures.items()),
        ]
        own = [self.bytes_of(algo) for algo in fits if algo]
        assert self.ran == [None] * (0 in fits) + (own if self.room is None else [self.room] * len(own))
        assert self.freed == (own if self.room is None else [])
