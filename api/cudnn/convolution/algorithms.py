"""Select an algorithm for a convolution or a gradient: workspace, expected ranking, measured ranking.

One declaration makes the five calls of each direction. Sections 5.2.13 to 5.2.16 and 5.2.19 to 5.2.24 cover results and
gradients of the input; 6.2.9, 6.2.10 and 6.2.12 to 6.2.14 cover gradients of the filter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature, cleandoc
from typing import Any, NamedTuple

from ...document import functions
from ...enumerations import (
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnDeterminism_t,
    cudnnMathType_t,
    cudnnStatus_t,
)
from ...functions import documented
from ...operations import ConvolutionBackwardData, ConvolutionBackwardFilter, ConvolutionForward
from ...status import INCORRECT_PARAMETER, NOT_SUPPORTED
from ...support.convolution import TENSOR_OP_ALGORITHMS, Problem
from ...support.convolution_gradients import (
    DATA_TENSOR_OP_ALGORITHMS,
    DATA_UNORDERED_ALGORITHMS,
    FILTER_TENSOR_OP_ALGORITHMS,
    FILTER_UNORDERED_ALGORITHMS,
)
from .backward_data import CLAUSES as DATA_CLAUSES
from .backward_data import check_data_problem, check_data_support
from .backward_filter import CLAUSES as FILTER_CLAUSES
from .backward_filter import check_filter_problem, check_filter_support
from .forward import CLAUSES, check_problem, check_support
from .searches import Search


class cudnnConvolutionFwdAlgoPerf_t(NamedTuple):
    """Hold one result of a search (5.1.2.2)."""

    algo: cudnnConvolutionFwdAlgo_t
    status: cudnnStatus_t
    time: float
    memory: int
    determinism: cudnnDeterminism_t
    mathType: cudnnMathType_t
    reserved: tuple[int, int, int] = (0, 0, 0)


class cudnnConvolutionBwdDataAlgoPerf_t(NamedTuple):
    """Hold one result of a search (5.1.2.1)."""

    algo: cudnnConvolutionBwdDataAlgo_t
    status: cudnnStatus_t
    time: float
    memory: int
    determinism: cudnnDeterminism_t
    mathType: cudnnMathType_t
    reserved: tuple[int, int, int] = (0, 0, 0)


class cudnnConvolutionBwdFilterAlgoPerf_t(NamedTuple):
    """Hold one result of a search (6.1.2.1)."""

    algo: cudnnConvolutionBwdFilterAlgo_t
    status: cudnnStatus_t
    time: float
    memory: int
    determinism: cudnnDeterminism_t
    mathType: cudnnMathType_t
    reserved: tuple[int, int, int] = (0, 0, 0)


def _forward(problem: Any, convolution: Any, algorithm: Any) -> ConvolutionForward:
    return ConvolutionForward(convolution, algorithm, 0, 1.0, 0.0, problem.x, problem.w, problem.y)


def _data(problem: Any, convolution: Any, algorithm: Any) -> ConvolutionBackwardData:
    return ConvolutionBackwardData(convolution, algorithm, 0, 1.0, 0.0, problem.w, problem.y, problem.x)


def _filter(problem: Any, convolution: Any, algorithm: Any) -> ConvolutionBackwardFilter:
    return ConvolutionBackwardFilter(convolution, algorithm, 0, 1.0, 0.0, problem.x, problem.y, problem.w)


SEARCH = Search(
    cudnnConvolutionFwdAlgo_t, TENSOR_OP_ALGORITHMS, (), _forward, check_problem, check_support,
    cudnnConvolutionFwdAlgoPerf_t,
)  # fmt: skip
DATA_SEARCH = Search(
    cudnnConvolutionBwdDataAlgo_t, DATA_TENSOR_OP_ALGORITHMS, DATA_UNORDERED_ALGORITHMS, _data, check_data_problem,
    check_data_support, cudnnConvolutionBwdDataAlgoPerf_t,
)  # fmt: skip
FILTER_SEARCH = Search(
    cudnnConvolutionBwdFilterAlgo_t, FILTER_TENSOR_OP_ALGORITHMS, FILTER_UNORDERED_ALGORITHMS, _filter,
    check_filter_problem, check_filter_support, cudnnConvolutionBwdFilterAlgoPerf_t,
)  # fmt: skip


@dataclass(frozen=True)
class Selection:
    """Declare what differs between the directions of the five calls that select an algorithm.

    direction: part of the calls' names. operands: names the tensors in the order of the arguments; the last is
    written. clauses: those of the computing call for descriptors that do not fit. sections: of MaxCount,
    WorkspaceSize, _v7, Find and FindEx.
    workspace_invalid: maps parameters of WorkspaceSize to clauses. workspace, ranked: replace some of ``clauses``.
    workspace_errors, ranked_errors: describe the errors of a call.
    ranked_count, ranked_null: clauses of _v7 for a count below 1 and for other arguments.
    measured: has the clauses of Find for the handle, other arguments, the count, and a lack of memory.
    measured_on: has those of FindEx for the handle, descriptors, memory, the count, the output, and the workspace.
    """

    direction: str
    operands: tuple[str, str, str]
    search: Search
    clauses: Mapping[str, str]
    sections: tuple[str, str, str, str, str]
    workspace_invalid: Mapping[str, Any]
    workspace: Mapping[str, str]
    workspace_errors: str
    ranked_null: str
    ranked: Mapping[str, str]
    ranked_count: str
    ranked_errors: str
    measured: tuple[str, str, str, str]
    measured_on: tuple[str, str, str, str, str, str]


def _call(name: str, invalid: Mapping[str, Any], **words: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that makes the documented call ``name`` of a body. words: complete the body's docstring."""

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        body.__name__ = body.__qualname__ = name
        body.__doc__ = cleandoc(body.__doc__ or "").format(**words)
        parameters = [Parameter(p.name, Parameter.POSITIONAL_OR_KEYWORD) for p in functions()[name].arguments]
        body.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        globals()[name] = documented(invalid=invalid)(body)
        return body

    return decorate


def declare(of: Selection) -> None:
    """Make the five calls of a direction."""
    search, (first, second, result) = of.search, of.operands
    computed = f"cudnnConvolution{of.direction}"
    find, get = f"cudnnFindConvolution{of.direction}Algorithm", f"cudnnGetConvolution{of.direction}"
    find_ex, ranked, sized = f"{find}Ex", f"{get}Algorithm_v7", f"{get}WorkspaceSize"

    def problem_of(one: Any, two: Any, convolution: Any, three: Any) -> Problem:
        specs = {name.removeprefix("d"): one.spec for name, one in zip(of.operands, (one, two, three), strict=True)}
        return Problem(convolution.spec, **specs)

    @_call(f"{get}AlgorithmMaxCount", {"handle": "c04"}, find=find, ranked=ranked, section=of.sections[0])
    def max_count(handle: Any) -> Any:
        """Return the maximum number of results of {find} and
        {ranked}.

        It counts all algorithms, plus one for each CUDNN_TENSOR_OP_MATH variant.
        Source: {section}.
        """
        return search.most

    workspace_clauses = {**of.clauses, **{what: f"{sized}/{clause}" for what, clause in of.workspace.items()}}

    @_call(sized, of.workspace_invalid, computed=computed, errors=of.workspace_errors, section=of.sections[1])
    def workspace_size(handle: Any, one: Any, two: Any, convolution: Any, three: Any, algo: Any) -> Any:
        """Return the bytes of workspace that {computed} needs for these descriptors and this algorithm.

        Errors: {errors}. Source: {section}.
        """
        return search.workspace_bytes(handle, problem_of(one, two, convolution, three), algo, workspace_clauses)

    ranked_clauses = {**of.clauses, **{what: f"{ranked}/{clause}" for what, clause in of.ranked.items()}}
    few_ranked = f"{ranked}/{of.ranked_count}"

    @_call(
        ranked, {"requestedAlgoCount": of.ranked_count, "*": of.ranked_null}, null=of.ranked_null,
        errors=of.ranked_errors, count=of.ranked_count, section=of.sections[2],
    )  # fmt: skip
    def rank(handle: Any, one: Any, two: Any, convolution: Any, three: Any, count: Any) -> Any:
        """Return (returnedAlgoCount, perfResults): at most requestedAlgoCount algorithms, ordered by expected speed.
        Unsupported algorithms come last, with their status. Nothing is run: time is -1.

        Errors: BAD_PARAM for NULL ({null}), {errors},
        requestedAlgoCount below 1 ({count}). Source: {section}.
        """
        return search.ranked(handle, problem_of(one, two, convolution, three), count, few_ranked, ranked_clauses)

    no_handle, null, few, no_memory = of.measured

    @_call(
        find, {"handle": no_handle, "convDesc": INCORRECT_PARAMETER, "requestedAlgoCount": few, "*": null},
        first=first, second=second, result=result, no_handle=no_handle, null=null, few=few, no_memory=no_memory,
        section=of.sections[3],
    )  # fmt: skip
    def measure(handle: Any, one: Any, two: Any, convolution: Any, three: Any, count: Any) -> Any:
        """Return (returnedAlgoCount, perfResults): at most requestedAlgoCount algorithms, ordered by measured speed.
        They run on temporary memory. Failed algorithms come last, with their status and the time -1.

        An algorithm with a tensor op variant runs with the math type of convDesc and with CUDNN_DEFAULT_MATH; others run with
        CUDNN_DEFAULT_MATH. With CUDNN_FMA_MATH in convDesc, all run with that math type alone. The call waits for the results.
        Errors: BAD_PARAM for NULL ({no_handle}, {null}), descriptors that do not fit each other, requestedAlgoCount below 1
        ({few}); ALLOC_FAILED without memory for {first}, {second} and {result} ({no_memory}). Source: {section}.
        """
        problem = problem_of(one, two, convolution, three)
        return search.measured(handle, problem, count, f"{find}/{few}", of.clauses, f"{find}/{no_memory}")

    no_handle_ex, undescribed, bad_memory, few_ex, bad_output, bad_workspace = of.measured_on
    unusable = {"memory": bad_memory, "output": bad_output, "workSpace": bad_workspace}
    unusable = {what: f"{find_ex}/{clause}" for what, clause in unusable.items()}

    @_call(
        find_ex,
        {
            "handle": no_handle_ex, **{f"{name}Desc": undescribed for name in of.operands},
            **dict.fromkeys(of.operands, bad_memory), "requestedAlgoCount": few_ex, "workSpaceSizeInBytes": bad_workspace,
        },
        find=find, result=result, no_handle=no_handle_ex, undescribed=undescribed, bad_memory=bad_memory, few=few_ex,
        section=of.sections[4],
    )  # fmt: skip
    def measure_on(
        handle: Any,
        one: Any,
        a: Any,
        two: Any,
        b: Any,
        convolution: Any,
        three: Any,
        c: Any,
        count: Any,
        workspace: Any,
        workspace_bytes: Any,
    ) -> Any:
        """Do the same as {find}, on the caller's memory.

        The search overwrites {result}. Algorithms that need more workspace than given (NULL is 0 bytes) get the status
        ALLOC_FAILED.
        Errors: BAD_PARAM for NULL ({no_handle}, {undescribed}, {bad_memory}), descriptors that do not fit each other,
        requestedAlgoCount below 1 ({few}), memory that is too small. Source: {section}.
        """
        memory = {first: a, second: b, result: c, "workSpace": workspace}
        problem = problem_of(one, two, convolution, three)
        return search.measured_on(
            handle, problem, count, f"{find_ex}/{few_ex}", of.clauses, memory, workspace_bytes, unusable
        )


declare(Selection(
    "Forward", ("x", "w", "y"), SEARCH, CLAUSES, ("5.2.22", "5.2.24", "5.2.23", "5.2.15", "5.2.16"),
    workspace_invalid={"handle": "c06", "xDesc": "c06", "wDesc": "c06", "convDesc": "c06", "yDesc": "c06",
                       "algo": ("c11", NOT_SUPPORTED)},
    workspace={"output_rank": "c07", "filter_rank": "c07", "channels": "c09", "data_types": "c08", "table": "c11"},
    workspace_errors="BAD_PARAM for NULL (c06), ranks (c07), data types (c08), channels (c09); NOT_SUPPORTED where the\n"
    "algorithm does not support the problem (c11)",
    ranked_null="c08", ranked={"output_rank": "c09", "filter_rank": "c09", "channels": "c11", "data_types": "c10"},
    ranked_count="c13", ranked_errors="ranks (c09), data types (c10), channels (c11)",
    measured=("c12", "c13", "c16", "c17"), measured_on=("c15", "c16", "c18", "c20", "c10", "c13"),
))  # fmt: skip
declare(Selection(
    "BackwardData", ("w", "dy", "dx"), DATA_SEARCH, DATA_CLAUSES, ("5.2.19", "5.2.21", "5.2.20", "5.2.13", "5.2.14"),
    workspace_invalid={"algo": ("c08", NOT_SUPPORTED)}, workspace={"channels": "c06", "data_types": "c07"},
    workspace_errors="those of cudnnConvolutionBackwardData; channels that differ are c06, data types c07 here",
    ranked_null="c08", ranked={"channels": "c09", "data_types": "c10"}, ranked_count="c11",
    ranked_errors="channels (c09), data types (c10), other descriptors that do not fit each other",
    measured=("c12", "c13", "c16", "c17"), measured_on=("c15", "c16", "c18", "c20", "c10", "c13"),
))  # fmt: skip
declare(Selection(
    "BackwardFilter", ("x", "dy", "dw"), FILTER_SEARCH, FILTER_CLAUSES,
    ("6.2.12", "6.2.14", "6.2.13", "6.2.9", "6.2.10"),
    workspace_invalid={"algo": ("c07", NOT_SUPPORTED)}, workspace={"channels": "c05", "data_types": "c06"},
    workspace_errors="those of cudnnConvolutionBackwardFilter; channels that differ are c05, data types c06 here",
    ranked_null="c07", ranked={"channels": "c08", "data_types": "c09"}, ranked_count="c10",
    ranked_errors="channels (c08), data types (c09), other descriptors that do not fit each other",
    measured=("c13", "c14", "c17", "c18"), measured_on=("c16", "c17", "c19", "c21", "c08", "c14"),
))  # fmt: skip
