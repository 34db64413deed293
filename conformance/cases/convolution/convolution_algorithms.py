"""Holds cases of the queries and searches for forward algorithms."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as Algo
from dualdnn.api.operations.specs import NHWC
from dualdnn.api.status import NOT_SUPPORTED
from dualdnn.conformance.calls import described
from dualdnn.conformance.marks import by_name, shows

from . import searches
from .convolution import DIRECT, NONFUSED, PRECOMP, convolution
from .searches import CONVERSION, DEFAULT, FMA, LAYER, SUCCESS, TENSOR_OP, Direction, Measured, Searches

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

FORWARD = Direction("Forward", convolution, Algo, (PRECOMP, NONFUSED), ("x", "w", "y"), never=(DIRECT,))
SIZE, COUNT = FORWARD.query, FORWARD.max_count
CALLS = RANK, FIND, FIND_EX = FORWARD.calls
by_call = pytest.mark.parametrize("call", range(3), ids=CALLS)


@pytest.fixture
def search(caller: Caller) -> Searches:
    return Searches(caller)


@shows(f"{COUNT}/c01-c03")
def test_max_count(cudnn: Any, caller: Caller) -> None:
    """The count is eight algorithms plus the tensor op variants of IMPLICIT_PRECOMP_GEMM and WINOGRAD_NONFUSED."""
    assert cudnn.cudnnGetConvolutionForwardAlgorithmMaxCount(caller.handle) == len(Algo) + 2


@shows(f"{RANK}/c01 c02 c04 c07", f"{FIND}/c01-c03 c06 c10 c11", f"{FIND_EX}/c01-c03 c06 c09 c14",
       "cudnnConvolutionFwdAlgoPerf_t/c01 c04 c07 c08", "cudnnSetConvolutionMathType/c01")  # fmt: skip
@pytest.mark.parametrize("math_type", [DEFAULT, TENSOR_OP, CONVERSION, FMA], ids=by_name)
@by_call
def test_every_algorithm_is_listed(subject: Subject, search: Any, call: Any, math_type: Any) -> None:
    searches.lists_every_algorithm(subject, search, FORWARD, call, convolution(*LAYER, math_type=math_type))


@pytest.mark.blind("another clause", "refusals are answered as entries with a status")
@shows(
    f"{RANK}/c03", f"{FIND}/c05", f"{FIND_EX}/c05", f"{SIZE}/c01 c03 c05", "cudnnConvolutionFwdAlgoPerf_t/c01 c04 c06"
)
@pytest.mark.parametrize("arguments", [{}, {"configuration": "PSEUDO_HALF"}, {"formats": NHWC}, {"configuration": "DOUBLE", "stride": (2, 2)}],
                         ids=["FLOAT", "HALF", "NHWC", "DOUBLE"])  # fmt: skip
@by_call
def test_order_and_entries(caller: Caller, search: Any, trial: Callable[..., Trial], call: Any, arguments: Any) -> None:
    """Measured successes are sorted by time and come before failures. Each success has the workspace of the query
    and computes."""
    operation, started = convolution(*LAYER, **arguments), monotonic()
    results, passed = search(FORWARD, call, operation).perfResults, 1e3 * (monotonic() - started)
    times = [entry.time for entry in searches.successes_compute(caller, trial, FORWARD, operation, results)]
    if call:
        searches.are_in_order(times)
        # Times are in milliseconds. Algorithms with the same launches share one.
        assert sum(set(times)) < passed


@pytest.mark.parametrize(
    "arguments", [{}, {"formats": NHWC}, {"configuration": "PSEUDO_HALF"}], ids=["NCHW", "NHWC", "HALF"]
)
@by_call
def test_who_asks_for_fma_is_offered_nothing_else(search: Any, call: Any, arguments: Any) -> None:
    """If convDesc has CUDNN_FMA_MATH, every result forbids TF32 as well (3.1.2.13)."""
    results = search(FORWARD, call, convolution(*LAYER, **arguments, math_type=FMA)).perfResults
    assert results[0].status == SUCCESS and {entry.mathType for entry in results} == {FMA}


@shows(f"{RANK}/c05", f"{FIND}/c09 c10", f"{FIND_EX}/c08 c09")
@pytest.mark.parametrize("count", [1, 2, 7])
@by_call
def test_no_more_than_asked_for(search: Any, call: Any, count: int) -> None:
    found = search(FORWARD, call, convolution(*LAYER), count)
    assert found.returnedAlgoCount == len(found.perfResults) == count


@shows("cudnnFindConvolutionForwardAlgorithmEx/c11-c13", "cudnnConvolutionFwdAlgoPerf_t/c02 c06")
@pytest.mark.parametrize("room", [0, 64, None])
def test_the_workspace_decides_what_is_tried(caller: Caller, search: Any, room: Any) -> None:
    searches.tries_what_fits_the_workspace(caller, search, FORWARD, room)


@pytest.mark.ours
@shows("cudnnGetConvolutionForwardAlgorithm_v7/c03", "cudnnFindConvolutionForwardAlgorithm/c05",
       "cudnnFindConvolutionForwardAlgorithmEx/c05", "cudnnConvolutionFwdAlgoPerf_t/c02 c06")  # fmt: skip
@by_call
def test_what_becomes_of_each_algorithm(
    caller: Caller, search: Any, monkeypatch: pytest.MonkeyPatch, call: Any
) -> None:
    """Chosen times, workspaces, failures and memory give each algorithm its status and place."""
    Measured(monkeypatch, caller.handle, 80 if call == 2 else None).check(search, FORWARD, call)


@pytest.mark.blind("a result off by one", "the case is about memory")
@shows(f"{FIND_EX}/c10")
def test_a_search_overwrites_y_alone(caller: Caller, search: Any) -> None:
    searches.overwrites_the_output_alone(caller, search, FORWARD)


@shows(f"{SIZE}/c11", f"{RANK}/c01")
def test_sizes_that_do_not_fit_are_not_supported(caller: Caller, search: Any, refuses: Callable[..., bool]) -> None:
    query = caller.cudnn.cudnnGetConvolutionForwardWorkspaceSize
    operation, one_dimension = convolution(*LAYER, y=(2, 4, 5, 7)), convolution((2, 4, 6), (4, 4, 3))
    refuses(NOT_SUPPORTED, "cudnnConvolutionForward/c57", query, caller.handle, *described(caller, operation), PRECOMP)
    assert {entry.status for entry in search(FORWARD, 0, operation).perfResults} == {NOT_SUPPORTED}
    refuses(
        NOT_SUPPORTED, "cudnnConvolutionForward/c56", query, caller.handle, *described(caller, one_dimension), PRECOMP
    )
