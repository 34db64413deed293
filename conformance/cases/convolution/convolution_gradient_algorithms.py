"""Holds cases of the searches for algorithms of both gradients of a convolution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import (
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnDeterminism_t,
    cudnnMathType_t,
    cudnnStatus_t,
)
from dualdnn.api.operations.specs import NHWC
from dualdnn.api.status import ALLOC_FAILED, BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance import scope
from dualdnn.conformance.calls import described, sized
from dualdnn.conformance.marks import shows

from . import convolution_backward_data as data
from . import convolution_backward_filter as weights
from .convolution import by_name
from .convolution_algorithms import Measured

SUCCESS = cudnnStatus_t.CUDNN_STATUS_SUCCESS
DEFAULT, TENSOR_OP, CONVERSION, FMA = cudnnMathType_t
LAYER: tuple[Any, ...] = ((2, 4, 6, 7), (4, 4, 3, 3))


@dataclass(frozen=True)
class Direction:
    """Describes the searches of one gradient.

    rank, find, given: the clauses that each of the three calls cites, by the mistake. operands: in the order of the
    calls. unordered: algorithms that their enumerators call non-deterministic. never: algorithms that no table has.
    """

    name: str
    make: Callable[..., Any]
    algorithms: type[IntEnum]
    tensor_op: tuple[IntEnum, ...]
    unordered: tuple[IntEnum, ...]
    operands: tuple[str, str, str]
    rank: dict[str, str]
    find: dict[str, str]
    given: dict[str, str]
    never: tuple[IntEnum, ...] = ()

    @property
    def ranks(self) -> str:
        return f"cudnnGetConvolutionBackward{self.name}Algorithm_v7"

    @property
    def finds(self) -> str:
        return f"cudnnFindConvolutionBackward{self.name}Algorithm"

    @property
    def finds_on_memory(self) -> str:
        return f"cudnnFindConvolutionBackward{self.name}AlgorithmEx"

    @property
    def calls(self) -> tuple[tuple[str, dict[str, str]], ...]:
        return ((self.ranks, self.rank), (self.finds, self.find), (self.finds_on_memory, self.given))

    @property
    def query(self) -> str:
        return f"cudnnGetConvolutionBackward{self.name}WorkspaceSize"


DATA = Direction(
    "Data", data.gradient, cudnnConvolutionBwdDataAlgo_t, (data.ALGO_1, data.NONFUSED), (data.ALGO_0,), ("w", "dy", "dx"),
    {"handle": "c08", "descriptor": "c08", "convDesc": "c08", "count": "c11", "channels": "c09", "types": "c10"},
    {"handle": "c12", "descriptor": "c13", "count": "c16"}, {"handle": "c15", "descriptor": "c16", "memory": "c18", "workSpace": "c13", "count": "c20"},
)  # fmt: skip
FILTER = Direction(
    "Filter", weights.gradient, cudnnConvolutionBwdFilterAlgo_t, (weights.ALGO_1, weights.NONFUSED), (weights.ALGO_0, weights.ALGO_3), ("x", "dy", "dw"),
    {"handle": "c07", "descriptor": "c07", "convDesc": "c07", "count": "c10", "channels": "c08", "types": "c09"},
    {"handle": "c13", "descriptor": "c14", "count": "c17"}, {"handle": "c16", "descriptor": "c17", "memory": "c19", "workSpace": "c14", "count": "c21"},
    (weights.WINOGRAD,),
)  # fmt: skip
directions = pytest.mark.parametrize("direction", [DATA, FILTER], ids=lambda d: d.name)
calls = pytest.mark.parametrize("call", range(3), ids=["Get", "Find", "FindEx"])


class Searches:
    """Offers the three searches for algorithms through one interface."""

    def __init__(self, caller: Any) -> None:
        self.caller = caller

    def __call__(
        self, direction: Direction, name: str, operation: Any, count: int = 100, workspace: int = 2**24, **changed: Any
    ) -> Any:
        handle = changed.get("handle", self.caller.handle)
        first, second, third = direction.operands
        names = (f"{first}Desc", f"{second}Desc", "convDesc", f"{third}Desc")
        found = dict(zip(names, described(self.caller, operation), strict=True)) | changed
        descriptors = [found[n] for n in names]
        function = getattr(self.caller.cudnn, name)
        if name != direction.finds_on_memory:
            return function(handle, *descriptors, count)
        own = self.caller.handle
        memory = {n: own.to_device(np.zeros(operation.nbytes(n), np.uint8)) for n in direction.operands}
        memory |= {"workSpace": own.allocate(workspace) if workspace else None} | changed
        return function(handle, descriptors[0], memory[first], descriptors[1], memory[second], descriptors[2], descriptors[3],
                        memory[third], count, memory["workSpace"], workspace)  # fmt: skip


@pytest.fixture
def search(caller):
    return Searches(caller)


def both(*clauses: str) -> tuple[str, ...]:
    """Return the clauses of both gradients; the argument names those of the data gradient."""
    return (*clauses, *(clause.replace("Data", "Filter") for clause in clauses))


@shows(*both(*(f"cudnnGetConvolutionBackwardDataAlgorithmMaxCount/c{n:02}" for n in (1, 2, 3, 4))))
@directions
def test_max_count(cudnn, caller, refuses, direction):
    """The count is all algorithms plus the tensor op variants of ALGO_1 and WINOGRAD_NONFUSED."""
    function = getattr(cudnn, f"cudnnGetConvolutionBackward{direction.name}AlgorithmMaxCount")
    assert function(caller.handle) == len(direction.algorithms) + 2
    refuses(BAD_PARAM, f"cudnnGetConvolutionBackward{direction.name}AlgorithmMaxCount/c04", function, None)


@shows(
    *(f"{DATA.ranks}/c{n:02}" for n in (1, 2, 4, 7)), *(f"{DATA.finds}/c{n:02}" for n in (1, 2, 3, 6, 10, 11)),
    *(f"{DATA.finds_on_memory}/c{n:02}" for n in (1, 2, 3, 6, 9, 14)), *(f"{FILTER.ranks}/c{n:02}" for n in (1, 2, 4, 6)),
    *(f"{FILTER.finds}/c{n:02}" for n in (1, 2, 3, 6, 10, 11, 12)), *(f"{FILTER.finds_on_memory}/c{n:02}" for n in (1, 2, 3, 6, 10, 11, 15)),
    *both(*(f"cudnnConvolutionBwdDataAlgoPerf_t/c{n:02}" for n in (1, 4, 7, 8)), *(f"cudnnConvolutionBwdDataAlgo_t/c{n:02}" for n in (1, 2, 3))),
    "cudnnConvolutionBwdFilterAlgo_t/c07",
)  # fmt: skip
@directions
@calls
@pytest.mark.parametrize("math_type", [DEFAULT, TENSOR_OP, FMA], ids=by_name)
def test_every_algorithm_is_listed(subject, cudnn, caller, search, direction, call, math_type):
    """Each algorithm is listed once, and those with a tensor op variant also with the descriptor's math type.

    With CUDNN_FMA_MATH all are listed with that math type alone. Determinism is as the enumerator's text says (D213,
    D275).
    """
    name = direction.calls[call][0]
    found = search(direction, name, direction.make(*LAYER, math_type=math_type))
    assert found.returnedAlgoCount == len(found.perfResults)
    expected = Counter((algo, FMA if math_type == FMA else DEFAULT) for algo in direction.algorithms)
    if math_type == TENSOR_OP:
        expected.update((algo, math_type) for algo in direction.tensor_op)
        count = getattr(cudnn, f"cudnnGetConvolutionBackward{direction.name}AlgorithmMaxCount")
        assert found.returnedAlgoCount == count(caller.handle)
    assert Counter((entry.algo, entry.mathType) for entry in found.perfResults) == expected
    unordered = {e.algo for e in found.perfResults if e.determinism == cudnnDeterminism_t.CUDNN_NON_DETERMINISTIC}
    assert unordered == set(direction.unordered)
    if subject.cites_clauses:
        assert all(
            entry.reserved == (0, 0, 0) and (name != direction.ranks or entry.time == -1) for entry in found.perfResults
        )
    refused = {entry.algo for entry in found.perfResults if entry.status == NOT_SUPPORTED}
    assert set(direction.never) <= refused and len(refused) < len(direction.algorithms)


@pytest.mark.ours
@shows(
    *both(
        f"{DATA.ranks}/c03", f"{DATA.finds}/c05", f"{DATA.finds_on_memory}/c05", "cudnnConvolutionBwdDataAlgoPerf_t/c02"
    )
)
@directions
@calls
def test_what_becomes_of_each_algorithm(caller, search, monkeypatch, direction, call):
    """Chosen times, workspaces, failures and memory give each algorithm its status and place."""
    name = direction.calls[call][0]
    operation = direction.make(*LAYER, math_type=DEFAULT)
    measured = Measured(monkeypatch, caller.handle, 80 if name == direction.finds_on_memory else None)
    measured.check(search(direction, name, operation, workspace=80).perfResults, name == direction.ranks)


@shows(
    f"{DATA.ranks}/c03", f"{DATA.finds}/c05", f"{DATA.finds_on_memory}/c05", f"{FILTER.ranks}/c03", f"{FILTER.finds}/c05",
    f"{FILTER.finds_on_memory}/c05", f"{DATA.query}/c03", f"{FILTER.query}/c02",
    *both("cudnnConvolutionBwdDataAlgoPerf_t/c04", "cudnnConvolutionBwdDataAlgoPerf_t/c06"),
)  # fmt: skip
@directions
@calls
@pytest.mark.parametrize(
    "options", [{}, {"configuration": "PSEUDO_HALF", "math_type": TENSOR_OP}, {"formats": NHWC}, {"configuration": "DOUBLE", "stride": (2, 2)}],
    ids=["FLOAT", "HALF", "NHWC", "DOUBLE"],
)  # fmt: skip
def test_order_and_entries(caller, search, trial, direction, call, options):
    """Measured successes are sorted by time and come before failures. Each success has the workspace of the query
    and computes."""
    name = direction.calls[call][0]
    operation = direction.make(*LAYER, **options)
    results = search(direction, name, operation).perfResults
    worked = [entry for entry in results if entry.status == SUCCESS]
    assert tuple(worked) == results[: len(worked)]
    assert worked
    if call:
        times = [entry.time for entry in worked]
        assert times == sorted(times) and times[0] > 0
    else:
        assert all(entry.time == -1 for entry in results)
    for entry in worked:
        convolution = replace(operation.convolution, math_type=entry.mathType)
        chosen = replace(operation, algo=entry.algo, convolution=convolution)
        assert sized(caller, chosen).workspace_bytes == entry.memory
        trial(replace(chosen, workspace_bytes=entry.memory))
    query = getattr(caller.cudnn, direction.query)
    for entry in results[len(worked) :]:
        assert entry.status == NOT_SUPPORTED
        with pytest.raises(Exception, match="NOT_SUPPORTED") as refused:
            query(caller.handle, *described(caller, operation), entry.algo)
        clause = getattr(refused.value, "clause", None)
        assert clause is None or clause in scope.clauses()  # Any row of the tables may give the clause.


@shows(f"{DATA.ranks}/c05", f"{DATA.finds}/c09", f"{DATA.finds_on_memory}/c08", f"{FILTER.ranks}/c05", f"{FILTER.finds}/c09",
       f"{FILTER.finds_on_memory}/c09")  # fmt: skip
@directions
@calls
@pytest.mark.parametrize("count", [1, 5])
def test_no_more_than_asked_for(search, direction, call, count):
    found = search(direction, direction.calls[call][0], direction.make(*LAYER), count)
    assert found.returnedAlgoCount == len(found.perfResults) == count


@directions
@calls
@pytest.mark.parametrize("count", [0, -1])
def test_at_least_one_result_is_asked_for(search, refuses, direction, call, count):
    name, clauses = direction.calls[call]
    refuses(BAD_PARAM, f"{name}/{clauses['count']}", search, direction, name, direction.make(*LAYER), count)


@directions
@calls
@pytest.mark.parametrize("missing", ["handle", "first", "second", "third", "convDesc"])
def test_searches_refuse_null(search, refuses, direction, call, missing):
    name, clauses = direction.calls[call]
    kind = missing if missing in ("handle", "convDesc") else "descriptor"
    parameter = dict(zip(("first", "second", "third"), (f"{o}Desc" for o in direction.operands), strict=True)).get(
        missing, missing
    )
    clause = f"{name}/{clauses[kind]}" if kind in clauses else "cudnnStatus_t/c05"
    refuses(BAD_PARAM, clause, search, direction, name, direction.make(*LAYER), **{parameter: None})


@shows(
    *(f"{DATA.finds_on_memory}/c{n}" for n in (11, 12, 13)), *(f"{FILTER.finds_on_memory}/c{n}" for n in (12, 13, 14)),
    *both("cudnnConvolutionBwdDataAlgoPerf_t/c02", "cudnnConvolutionBwdDataAlgoPerf_t/c06"),
)  # fmt: skip
@directions
@pytest.mark.parametrize("room", [0, 64, None])
def test_the_workspace_decides_what_is_tried(caller, search, direction, room):
    """A NULL workspace counts as empty, whatever size is given."""
    operation = direction.make(*LAYER)
    given = {"workspace": room} if room is not None else {"workspace": 2**24, "workSpace": None}
    results, room = search(direction, direction.finds_on_memory, operation, **given).perfResults, room or 0
    worked = [entry.status == SUCCESS for entry in results]
    assert worked == sorted(worked, reverse=True)  # The failed algorithms come last.
    assert all(entry.time == -1 for entry in results if entry.status != SUCCESS)
    for entry in results:
        if entry.status != NOT_SUPPORTED:
            with_math = replace(operation.convolution, math_type=entry.mathType)
            needed = sized(caller, replace(operation, algo=entry.algo, convolution=with_math)).workspace_bytes
            assert entry.memory == needed
            assert entry.status == (ALLOC_FAILED if needed > room else SUCCESS)


@shows(f"{DATA.finds_on_memory}/c10", f"{FILTER.finds_on_memory}/c08")
@pytest.mark.blind("a result off by one", "only memory is looked at")
@directions
def test_a_search_overwrites_the_output_alone(caller, search, direction):
    operation = direction.make(*LAYER)
    values = {n: np.full(operation.tensor(n).count, 3.0, np.float32) for n in direction.operands}
    memory = {n: caller.handle.to_device(v) for n, v in values.items()}
    search(direction, direction.finds_on_memory, operation, **memory)
    *inputs, output = direction.operands
    assert all(np.array_equal(memory[n].to_host(np.float32, values[n].size), values[n]) for n in inputs)
    assert not np.array_equal(memory[output].to_host(np.float32, values[output].size), values[output])


@shows(f"{DATA.ranks}/c01", f"{FILTER.ranks}/c01")
@directions
def test_ranks_that_no_algorithm_takes(search, direction):
    found = search(direction, direction.ranks, direction.make((2, 4, 6), (4, 4, 3)))
    assert {entry.status for entry in found.perfResults} == {NOT_SUPPORTED}


@shows("cudnnConvolutionBwdDataAlgo_t/c03 c05 c07 c09 c11", "cudnnConvolutionBwdFilterAlgo_t/c03 c05 c09 c11")
@directions
def test_what_is_called_deterministic_is(caller, search, trial, direction):
    """Two calls of an algorithm listed as deterministic give the same bits."""
    operation = direction.make(*LAYER)
    output = direction.operands[2]
    for entry in search(direction, direction.ranks, operation).perfResults:
        if entry.status == SUCCESS and entry.determinism == cudnnDeterminism_t.CUDNN_DETERMINISTIC:
            chosen = sized(caller, replace(operation, algo=entry.algo))
            first, second = (trial(chosen).after[output] for _ in range(2))
            assert np.array_equal(first, second)


@shows("cudnnConvolutionBwdDataAlgo_t/c06")
def test_tiles_take_less_workspace_than_large_images(caller):
    fft, tiling = (
        sized(caller, data.gradient((8, 16, 250, 250), (16, 16, 3, 3), algo=algo)).workspace_bytes
        for algo in (data.FFT, data.FFT_TILING)
    )
    assert tiling < fft or fft == 0
