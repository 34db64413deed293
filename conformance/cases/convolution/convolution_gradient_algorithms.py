"""Holds cases of the searches for algorithms of both gradients of a convolution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnConvolutionBwdDataAlgo_t, cudnnConvolutionBwdFilterAlgo_t, cudnnDeterminism_t
from dualdnn.api.operations.specs import NHWC
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.calls import sized
from dualdnn.conformance.marks import by_name, shows

from . import convolution_backward_data as data
from . import convolution_backward_filter as weights
from . import searches
from .searches import DEFAULT, FMA, LAYER, SUCCESS, TENSOR_OP, Direction, Measured, Searches

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

DATA = Direction(
    "BackwardData", data.gradient, cudnnConvolutionBwdDataAlgo_t, (data.ALGO_1, data.NONFUSED), ("w", "dy", "dx"), (data.ALGO_0,), (),
    ({"handle": "c08", "descriptor": "c08", "convDesc": "c08", "count": "c11"}, {"handle": "c12", "descriptor": "c13", "count": "c16"},
     {"handle": "c15", "descriptor": "c16", "count": "c20"}),
)  # fmt: skip
FILTER = Direction(
    "BackwardFilter", weights.gradient, cudnnConvolutionBwdFilterAlgo_t, (weights.ALGO_1, weights.NONFUSED), ("x", "dy", "dw"),
    (weights.ALGO_0, weights.ALGO_3), (weights.WINOGRAD,),
    ({"handle": "c07", "descriptor": "c07", "convDesc": "c07", "count": "c10"}, {"handle": "c13", "descriptor": "c14", "count": "c17"},
     {"handle": "c16", "descriptor": "c17", "count": "c21"}),
)  # fmt: skip
(DATA_RANK, DATA_FIND, DATA_FIND_EX), (FILTER_RANK, FILTER_FIND, FILTER_FIND_EX) = DATA.calls, FILTER.calls
directions = pytest.mark.parametrize("direction", [DATA, FILTER], ids=lambda d: d.name.removeprefix("Backward"))
calls = pytest.mark.parametrize("call", range(3), ids=["Get", "Find", "FindEx"])


@pytest.fixture
def search(caller: Caller) -> Searches:
    return Searches(caller)


def both(*clauses: str) -> tuple[str, ...]:
    """Return the clauses of both gradients; the argument names those of the data gradient."""
    return (*clauses, *(clause.replace("Data", "Filter") for clause in clauses))


@shows(*both("cudnnGetConvolutionBackwardDataAlgorithmMaxCount/c01-c04"))
@directions
def test_max_count(cudnn: Any, caller: Caller, refuses: Callable[..., bool], direction: Any) -> None:
    """The count is all algorithms plus the tensor op variants of ALGO_1 and WINOGRAD_NONFUSED."""
    function = getattr(cudnn, direction.max_count)
    assert function(caller.handle) == len(direction.algorithms) + 2
    refuses(BAD_PARAM, f"{direction.max_count}/c04", function, None)


@shows(
    f"{DATA_RANK}/c01 c02 c04 c07", f"{DATA_FIND}/c01-c03 c06 c10 c11",
    f"{DATA_FIND_EX}/c01-c03 c06 c09 c14", f"{FILTER_RANK}/c01 c02 c04 c06",
    f"{FILTER_FIND}/c01-c03 c06 c10-c12", f"{FILTER_FIND_EX}/c01-c03 c06 c10 c11 c15",
    *both("cudnnConvolutionBwdDataAlgoPerf_t/c01 c04 c07 c08", "cudnnConvolutionBwdDataAlgo_t/c01-c03"),
    "cudnnConvolutionBwdFilterAlgo_t/c07",
)  # fmt: skip
@directions
@calls
@pytest.mark.parametrize("math_type", [DEFAULT, TENSOR_OP, FMA], ids=by_name)
def test_every_algorithm_is_listed(subject: Subject, search: Any, direction: Any, call: Any, math_type: Any) -> None:
    """Determinism is as the enumerator's text says (D213, D275)."""
    searches.lists_every_algorithm(subject, search, direction, call, direction.make(*LAYER, math_type=math_type))


@pytest.mark.ours
@shows(*both(f"{DATA_RANK}/c03", f"{DATA_FIND}/c05", f"{DATA_FIND_EX}/c05", "cudnnConvolutionBwdDataAlgoPerf_t/c02"))
@directions
@calls
def test_what_becomes_of_each_algorithm(
    caller: Caller, search: Any, monkeypatch: pytest.MonkeyPatch, direction: Any, call: Any
) -> None:
    """Chosen times, workspaces, failures and memory give each algorithm its status and place."""
    Measured(monkeypatch, caller.handle, 80 if call == 2 else None).check(search, direction, call)


@shows(
    f"{DATA_RANK}/c03", f"{DATA_FIND}/c05", f"{DATA_FIND_EX}/c05", f"{FILTER_RANK}/c03", f"{FILTER_FIND}/c05",
    f"{FILTER_FIND_EX}/c05", f"{DATA.query}/c03", f"{FILTER.query}/c02",
    *both("cudnnConvolutionBwdDataAlgoPerf_t/c04", "cudnnConvolutionBwdDataAlgoPerf_t/c06"),
)  # fmt: skip
@directions
@calls
@pytest.mark.parametrize(
    "options", [{}, {"configuration": "PSEUDO_HALF", "math_type": TENSOR_OP}, {"formats": NHWC}, {"configuration": "DOUBLE", "stride": (2, 2)}],
    ids=["FLOAT", "HALF", "NHWC", "DOUBLE"],
)  # fmt: skip
def test_order_and_entries(
    caller: Caller, search: Any, trial: Callable[..., Trial], direction: Any, call: Any, options: Any
) -> None:
    """Measured successes are sorted by time and come before failures. Each success has the workspace of the query
    and computes."""
    operation = direction.make(*LAYER, **options)
    results = search(direction, call, operation).perfResults
    times = [entry.time for entry in searches.successes_compute(caller, trial, direction, operation, results)]
    if call:
        searches.are_in_order(times)
    else:
        assert all(entry.time == -1 for entry in results)


@shows(f"{DATA_RANK}/c05", f"{DATA_FIND}/c09", f"{DATA_FIND_EX}/c08", f"{FILTER_RANK}/c05", f"{FILTER_FIND}/c09", f"{FILTER_FIND_EX}/c09")  # fmt: skip
@directions
@calls
@pytest.mark.parametrize("count", [1, 5])
def test_no_more_than_asked_for(search: Any, direction: Any, call: Any, count: int) -> None:
    found = search(direction, call, direction.make(*LAYER), count)
    assert found.returnedAlgoCount == len(found.perfResults) == count


@directions
@calls
@pytest.mark.parametrize("count", [0, -1])
def test_at_least_one_result_is_asked_for(
    search: Any, refuses: Callable[..., bool], direction: Any, call: Any, count: int
) -> None:
    clause = f"{direction.calls[call]}/{direction.clauses[call]['count']}"
    refuses(BAD_PARAM, clause, search, direction, call, direction.make(*LAYER), count)


@directions
@calls
@pytest.mark.parametrize("missing", ["handle", "first", "second", "third", "convDesc"])
def test_searches_refuse_null(
    search: Any, refuses: Callable[..., bool], direction: Any, call: Any, missing: str
) -> None:
    clauses, places = direction.clauses[call], ("first", "second", "third")
    kind = "descriptor" if missing in places else missing
    clause = f"{direction.calls[call]}/{clauses[kind]}" if kind in clauses else "cudnnStatus_t/c05"
    parameter = f"{direction.operands[places.index(missing)]}Desc" if missing in places else missing
    refuses(BAD_PARAM, clause, search, direction, call, direction.make(*LAYER), **{parameter: None})


@shows(
    f"{DATA_FIND_EX}/c11-c13", f"{FILTER_FIND_EX}/c12-c14",
    *both("cudnnConvolutionBwdDataAlgoPerf_t/c02", "cudnnConvolutionBwdDataAlgoPerf_t/c06"),
)  # fmt: skip
@directions
@pytest.mark.parametrize("room", [0, 64, None])
def test_the_workspace_decides_what_is_tried(caller: Caller, search: Any, direction: Any, room: Any) -> None:
    searches.tries_what_fits_the_workspace(caller, search, direction, room)


@shows(f"{DATA_FIND_EX}/c10", f"{FILTER_FIND_EX}/c08")
@pytest.mark.blind("a result off by one", "only memory is looked at")
@directions
def test_a_search_overwrites_the_output_alone(caller: Caller, search: Any, direction: Any) -> None:
    searches.overwrites_the_output_alone(caller, search, direction)


@shows(f"{DATA_RANK}/c01", f"{FILTER_RANK}/c01")
@directions
def test_ranks_that_no_algorithm_takes(search: Any, direction: Any) -> None:
    found = search(direction, 0, direction.make((2, 4, 6), (4, 4, 3)))
    assert {entry.status for entry in found.perfResults} == {NOT_SUPPORTED}


@shows("cudnnConvolutionBwdDataAlgo_t/c03 c05 c07 c09 c11", "cudnnConvolutionBwdFilterAlgo_t/c03 c05 c09 c11")
@directions
def test_what_is_called_deterministic_is(
    caller: Caller, search: Any, trial: Callable[..., Trial], direction: Any
) -> None:
    """Two calls of an algorithm listed as deterministic give the same bits."""
    operation = direction.make(*LAYER)
    output = direction.operands[2]
    for entry in search(direction, 0, operation).perfResults:
        if entry.status == SUCCESS and entry.determinism == cudnnDeterminism_t.CUDNN_DETERMINISTIC:
            chosen = sized(caller, replace(operation, algo=entry.algo))
            first, second = (trial(chosen).after[output] for _ in range(2))
            assert np.array_equal(first, second)


@shows("cudnnConvolutionBwdDataAlgo_t/c06")
def test_tiles_take_less_workspace_than_large_images(caller: Caller) -> None:
    fft, tiling = (
        sized(caller, data.gradient((8, 16, 250, 250), (16, 16, 3, 3), algo=algo)).workspace_bytes
        for algo in (data.FFT, data.FFT_TILING)
    )
    assert tiling < fft or fft == 0
