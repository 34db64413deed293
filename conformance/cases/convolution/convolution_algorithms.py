"""Holds cases of the queries and searches for forward algorithms."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from time import monotonic
from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as Algo
from dualdnn.api.enumerations import cudnnDeterminism_t, cudnnMathType_t, cudnnStatus_t
from dualdnn.api.operations import BackendError
from dualdnn.api.operations.answers import Answers
from dualdnn.api.operations.specs import NHWC
from dualdnn.api.status import ALLOC_FAILED, BAD_PARAM, EXECUTION_FAILED, NOT_SUPPORTED, CudnnError
from dualdnn.conformance.calls import described, sized
from dualdnn.conformance.marks import shows

from .convolution import DIRECT, NONFUSED, PRECOMP, by_name, convolution

SUCCESS = cudnnStatus_t.CUDNN_STATUS_SUCCESS
DEFAULT, TENSOR_OP, CONVERSION, FMA = cudnnMathType_t
SIZE, RANK = "cudnnGetConvolutionForwardWorkspaceSize", "cudnnGetConvolutionForwardAlgorithm_v7"
FIND, FIND_EX = "cudnnFindConvolutionForwardAlgorithm", "cudnnFindConvolutionForwardAlgorithmEx"
COUNT = "cudnnGetConvolutionForwardAlgorithmMaxCount"
LAYER: dict[str, Any] = {"x": (2, 4, 6, 7), "w": (4, 4, 3, 3)}


class Searches:
    """Offers the three searches for algorithms through one interface."""

    def __init__(self, caller: Any) -> None:
        self.caller = caller

    def __call__(self, name: str, operation: Any, count: int = 100, workspace: int = 2**24, **changed: Any) -> Any:
        handle = self.caller.handle
        x, w, descriptor, y = (changed.get(n, d) for n, d in zip(("xDesc", "wDesc", "convDesc", "yDesc"), described(self.caller, operation), strict=True))  # fmt: skip
        function = getattr(self.caller.cudnn, name)
        if name != FIND_EX:
            return function(changed.get("handle", handle), x, w, descriptor, y, count)
        memory = {n: handle.to_device(np.zeros(operation.nbytes(n), np.uint8)) for n in ("x", "w", "y")}
        memory |= {"workSpace": handle.allocate(workspace) if workspace else None} | changed
        return function(changed.get("handle", handle), x, memory["x"], w, memory["w"], descriptor, y, memory["y"], count,
                        memory["workSpace"], workspace)  # fmt: skip


@pytest.fixture
def search(caller):
    return Searches(caller)


@shows(f"{COUNT}/c01", f"{COUNT}/c02", f"{COUNT}/c03")
def test_max_count(cudnn, caller):
    """The count is eight algorithms plus the tensor op variants of IMPLICIT_PRECOMP_GEMM and WINOGRAD_NONFUSED."""
    assert cudnn.cudnnGetConvolutionForwardAlgorithmMaxCount(caller.handle) == len(Algo) + 2


@shows(*(f"{RANK}/c{n:02}" for n in (1, 2, 4, 7)), *(f"{FIND}/c{n:02}" for n in (1, 2, 3, 6, 10, 11)),
       *(f"{FIND_EX}/c{n:02}" for n in (1, 2, 3, 6, 9, 14)), *(f"cudnnConvolutionFwdAlgoPerf_t/c{n:02}" for n in (1, 4, 7, 8)))  # fmt: skip
@pytest.mark.parametrize("math_type", [DEFAULT, TENSOR_OP, CONVERSION, FMA], ids=by_name)
@pytest.mark.parametrize("name", [RANK, FIND, FIND_EX])
def test_every_algorithm_is_listed(subject, cudnn, caller, search, name, math_type):
    """Each algorithm is listed once, and those with a tensor op variant also with the descriptor's math type.

    With CUDNN_FMA_MATH all of them are listed with that math type alone.
    """
    found = search(name, convolution(**LAYER, math_type=math_type))
    assert found.returnedAlgoCount == len(found.perfResults)
    expected = Counter((algo, FMA if math_type == FMA else DEFAULT) for algo in Algo)
    if math_type in (TENSOR_OP, CONVERSION):
        expected.update([(PRECOMP, math_type), (NONFUSED, math_type)])
        assert found.returnedAlgoCount == cudnn.cudnnGetConvolutionForwardAlgorithmMaxCount(caller.handle)
    assert Counter((entry.algo, entry.mathType) for entry in found.perfResults) == expected
    assert all(entry.determinism == cudnnDeterminism_t.CUDNN_DETERMINISTIC for entry in found.perfResults)
    if subject.cites_clauses:
        assert all(entry.reserved == (0, 0, 0) and (name != RANK or entry.time == -1) for entry in found.perfResults)
    refused = {entry.algo for entry in found.perfResults if entry.status == NOT_SUPPORTED}
    assert DIRECT in refused and len(refused) < len(Algo)


@pytest.mark.blind("another clause", "refusals are answered as entries with a status")
@shows(f"{RANK}/c03", f"{FIND}/c05", f"{FIND_EX}/c05", f"{SIZE}/c01", f"{SIZE}/c03", f"{SIZE}/c05",
       *(f"cudnnConvolutionFwdAlgoPerf_t/c{n:02}" for n in (1, 4, 6)))  # fmt: skip
@pytest.mark.parametrize("arguments", [LAYER, {**LAYER, "configuration": "PSEUDO_HALF"}, {**LAYER, "formats": NHWC},
                                       {**LAYER, "configuration": "DOUBLE", "stride": (2, 2)}],
                         ids=["FLOAT", "HALF", "NHWC", "DOUBLE"])  # fmt: skip
@pytest.mark.parametrize("name", [RANK, FIND, FIND_EX])
def test_order_and_entries(caller, search, trial, name, arguments):
    """Measured successes are sorted by time and come before failures. Each success has the workspace of the query
    and computes."""
    operation, started = convolution(**arguments), monotonic()
    results, passed = search(name, operation).perfResults, 1e3 * (monotonic() - started)
    worked = [entry for entry in results if entry.status == SUCCESS]
    assert tuple(worked) == results[: len(worked)]
    assert worked
    if name != RANK:
        times = [entry.time for entry in worked]
        assert times == sorted(times) and times[0] > 0
        assert sum(times) < passed  # Times are in milliseconds.
    for entry in worked:
        chosen = replace(
            operation, algo=entry.algo, convolution=replace(operation.convolution, math_type=entry.mathType)
        )
        assert sized(caller, chosen).workspace_bytes == entry.memory
        trial(replace(chosen, workspace_bytes=entry.memory))
    query = caller.cudnn.cudnnGetConvolutionForwardWorkspaceSize
    for entry in results[len(worked) :]:
        assert entry.status == NOT_SUPPORTED
        with pytest.raises(Exception, match="NOT_SUPPORTED"):
            query(caller.handle, *described(caller, operation), entry.algo)


@pytest.mark.parametrize("arguments", [LAYER, {**LAYER, "formats": NHWC}, {**LAYER, "configuration": "PSEUDO_HALF"}],
                         ids=["NCHW", "NHWC", "HALF"])  # fmt: skip
@pytest.mark.parametrize("name", [RANK, FIND, FIND_EX])
def test_who_asks_for_fma_is_offered_nothing_else(search, name, arguments):
    """If convDesc has CUDNN_FMA_MATH, every result forbids TF32 as well (3.1.2.13)."""
    results = search(name, convolution(**arguments, math_type=FMA)).perfResults
    assert results[0].status == SUCCESS and {entry.mathType for entry in results} == {FMA}


@shows(f"{RANK}/c05", f"{FIND}/c09", f"{FIND}/c10", f"{FIND_EX}/c08", f"{FIND_EX}/c09")
@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("name", [RANK, FIND, FIND_EX])
def test_no_more_than_asked_for(search, name, count):
    found = search(name, convolution(**LAYER), count)
    assert found.returnedAlgoCount == len(found.perfResults) == count


@pytest.mark.parametrize("missing", ["handle", "xDesc", "wDesc", "yDesc", "convDesc"])
@pytest.mark.parametrize(
    "name, handle_clause, descriptor_clause, convolution_clause",
    [
        (RANK, f"{RANK}/c08", f"{RANK}/c08", f"{RANK}/c08"),
        (FIND, f"{FIND}/c12", f"{FIND}/c13", "cudnnStatus_t/c05"),
        (FIND_EX, f"{FIND_EX}/c15", f"{FIND_EX}/c16", "cudnnStatus_t/c05"),
    ],
)
def test_searches_refuse_null(search, refuses, name, handle_clause, descriptor_clause, convolution_clause, missing):
    clause = {"handle": handle_clause, "convDesc": convolution_clause}.get(missing, descriptor_clause)
    refuses(BAD_PARAM, clause, search, name, convolution(**LAYER), **{missing: None})


@shows("cudnnFindConvolutionForwardAlgorithmEx/c11-c13", "cudnnConvolutionFwdAlgoPerf_t/c02 c06")
@pytest.mark.parametrize("room", [0, 64, None])
def test_the_workspace_decides_what_is_tried(caller, search, room):
    """A NULL workspace counts as empty, whatever size is given."""
    operation = convolution(**LAYER)
    given = {"workspace": room} if room is not None else {"workspace": 2**24, "workSpace": None}
    results, room = search(FIND_EX, operation, **given).perfResults, room or 0
    worked = [entry.status == SUCCESS for entry in results]
    assert worked == sorted(worked, reverse=True)  # The failed algorithms come last.
    assert all(entry.time == -1 for entry in results if entry.status != SUCCESS)
    for entry in results:
        if entry.status != NOT_SUPPORTED:
            with_math = replace(operation.convolution, math_type=entry.mathType)
            needed = sized(caller, replace(operation, algo=entry.algo, convolution=with_math)).workspace_bytes
            assert entry.memory == needed
            assert entry.status == (ALLOC_FAILED if needed > room else SUCCESS)


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

    def check(self, results: Any, ranked: bool) -> None:
        """Compare the result of the search, and the workspaces that it ran on, with the known values."""
        found = [(e.algo, e.status, e.time, e.memory) for e in results if e.status != NOT_SUPPORTED]
        refused = results[len(found) :]
        assert all((e.status, e.time, e.memory) == (NOT_SUPPORTED, -1.0, 0) for e in refused)
        able = sorted(algo for algo, *_ in found)
        room = self.MAX_BYTES if self.room is None else self.room
        fits = [algo for algo in able if self.bytes_of(algo) <= room]
        if ranked:
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


@pytest.mark.ours
@shows("cudnnGetConvolutionForwardAlgorithm_v7/c03", "cudnnFindConvolutionForwardAlgorithm/c05", "cudnnFindConvolutionForwardAlgorithmEx/c05",
       "cudnnConvolutionFwdAlgoPerf_t/c02 c06")  # fmt: skip
@pytest.mark.parametrize("name", [RANK, FIND, FIND_EX])
def test_what_becomes_of_each_algorithm(caller, search, monkeypatch, name):
    """Chosen times, workspaces, failures and memory give each algorithm its status and place."""
    operation = convolution(**LAYER, math_type=DEFAULT)
    measured = Measured(monkeypatch, caller.handle, 80 if name == FIND_EX else None)
    measured.check(search(name, operation, workspace=80).perfResults, name == RANK)


@pytest.mark.blind("a result off by one", "the case is about memory")
@shows(f"{FIND_EX}/c10")
def test_a_search_overwrites_y_alone(caller, search):
    operation = convolution(**LAYER)
    values = {n: np.full(operation.tensor(n).count, 3.0, np.float32) for n in ("x", "w", "y")}
    memory = {n: caller.handle.to_device(v) for n, v in values.items()}
    search(FIND_EX, operation, **memory)
    after = {n: memory[n].to_host(np.float32, values[n].size) for n in memory}
    assert np.array_equal(after["x"], values["x"]) and np.array_equal(after["w"], values["w"])
    assert not np.array_equal(after["y"], values["y"])


@shows(f"{SIZE}/c11", f"{RANK}/c01")
def test_sizes_that_do_not_fit_are_not_supported(caller, search, refuses):
    operation = convolution(**LAYER, y=(2, 4, 5, 7))
    query = caller.cudnn.cudnnGetConvolutionForwardWorkspaceSize
    refuses(NOT_SUPPORTED, "cudnnConvolutionForward/c57", query, caller.handle, *described(caller, operation), PRECOMP)
    assert {entry.status for entry in search(RANK, operation).perfResults} == {NOT_SUPPORTED}
    one_dimension = convolution((2, 4, 6), (4, 4, 3))
    refuses(
        NOT_SUPPORTED, "cudnnConvolutionForward/c56", query, caller.handle, *described(caller, one_dimension), PRECOMP
    )
