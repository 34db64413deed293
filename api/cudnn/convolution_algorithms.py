"""Which forward algorithm: workspace, heuristic ranking, measured ranking (5.2.15, 5.2.16, 5.2.22 to 5.2.24)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ..enumerations import cudnnConvolutionFwdAlgo_t, cudnnDeterminism_t, cudnnMathType_t, cudnnStatus_t
from ..functions import documented
from ..operations import BackendError, ConvolutionForward
from ..status import (
    ALLOC_FAILED,
    BAD_PARAM,
    EXECUTION_FAILED,
    INCORRECT_PARAMETER,
    NOT_SUPPORTED,
    CudnnError,
    expect,
)
from ..support.convolution import TENSOR_OP_ALGORITHMS, Problem
from .convolution import CLAUSES, check_problem, check_support

SUCCESS = cudnnStatus_t.CUDNN_STATUS_SUCCESS
DEFAULT_MATH = cudnnMathType_t.CUDNN_DEFAULT_MATH
DETERMINISTIC = cudnnDeterminism_t.CUDNN_DETERMINISTIC  # every forward algorithm is (cudnnConvolutionForward/c21)
UNMEASURED = -1.0  # the time of a ranked or failed entry (docs/errata.md, D194, D239)


class cudnnConvolutionFwdAlgoPerf_t(NamedTuple):
    """Section 5.1.2.2."""

    algo: cudnnConvolutionFwdAlgo_t
    status: cudnnStatus_t
    time: float
    memory: int
    determinism: cudnnDeterminism_t
    mathType: cudnnMathType_t
    reserved: tuple[int, int, int] = (0, 0, 0)


class AlgorithmResults(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[cudnnConvolutionFwdAlgoPerf_t, ...]


@documented(invalid={"handle": "c04"})
def cudnnGetConvolutionForwardAlgorithmMaxCount(handle):
    """How many results cudnnFindConvolutionForwardAlgorithm and cudnnGetConvolutionForwardAlgorithm_v7 can have: all
    algorithms, and those with a CUDNN_TENSOR_OP_MATH variant once more. Source: 5.2.22."""
    return len(cudnnConvolutionFwdAlgo_t) + len(TENSOR_OP_ALGORITHMS)


_W = "cudnnGetConvolutionForwardWorkspaceSize"
WORKSPACE_CLAUSES = {
    **CLAUSES, "output_rank": f"{_W}/c07", "filter_rank": f"{_W}/c07", "channels": f"{_W}/c09",
    "data_types": f"{_W}/c08", "table": f"{_W}/c11",
}  # fmt: skip


@documented(invalid={"handle": "c06", "xDesc": "c06", "wDesc": "c06", "convDesc": "c06", "yDesc": "c06",
                     "algo": ("c11", NOT_SUPPORTED)})  # fmt: skip
def cudnnGetConvolutionForwardWorkspaceSize(handle, xDesc, wDesc, convDesc, yDesc, algo):
    """Bytes of workspace that cudnnConvolutionForward needs for these descriptors and this algorithm.

    Errors: BAD_PARAM for NULL (c06), ranks (c07), data types (c08), channels (c09); NOT_SUPPORTED where the algorithm
    does not take the problem (c11). Source: 5.2.24.
    """
    problem = Problem(convDesc.spec, xDesc.spec, wDesc.spec, yDesc.spec)
    check_problem(problem, WORKSPACE_CLAUSES)
    check_support(problem, algo, WORKSPACE_CLAUSES)
    return handle.backend.workspace_bytes(_operation(problem, algo))


_V7 = "cudnnGetConvolutionForwardAlgorithm_v7"
V7_CLAUSES = {
    **CLAUSES, "output_rank": f"{_V7}/c09", "filter_rank": f"{_V7}/c09", "channels": f"{_V7}/c11",
    "data_types": f"{_V7}/c10",
}  # fmt: skip


@documented(invalid={"requestedAlgoCount": "c13", "*": "c08"})
def cudnnGetConvolutionForwardAlgorithm_v7(handle, xDesc, wDesc, convDesc, yDesc, requestedAlgoCount):
    """(returnedAlgoCount, perfResults): at most requestedAlgoCount algorithms, the one expected to be fastest first,
    those that do not take the problem last, with their status. Nothing is run: time is -1.

    Errors: BAD_PARAM for NULL (c08), ranks (c09), data types (c10), channels (c11), requestedAlgoCount below 1 (c13).
    Source: 5.2.23.
    """
    expect(requestedAlgoCount > 0, BAD_PARAM, f"{_V7}/c13", f"requestedAlgoCount is {requestedAlgoCount}, not positive")
    problem = Problem(convDesc.spec, xDesc.spec, wDesc.spec, yDesc.spec)
    check_problem(problem, V7_CLAUSES)
    taken, refused = _sorted_out(handle, problem)
    ranked = [_result(operation, SUCCESS, UNMEASURED) for operation in handle.backend.preferred_algorithms(taken)]
    return _first([*ranked, *refused], requestedAlgoCount)


_FIND = "cudnnFindConvolutionForwardAlgorithm"


@documented(invalid={"handle": "c12", "convDesc": INCORRECT_PARAMETER, "requestedAlgoCount": "c16", "*": "c13"})
def cudnnFindConvolutionForwardAlgorithm(handle, xDesc, wDesc, convDesc, yDesc, requestedAlgoCount):
    """(returnedAlgoCount, perfResults): at most requestedAlgoCount algorithms, measured on memory of its own, the
    fastest first, those that failed last, with their status and the time -1.

    Each algorithm that has a tensor op variant runs with the math type of convDesc and with CUDNN_DEFAULT_MATH, the
    others with CUDNN_DEFAULT_MATH. Waits for the results.
    Errors: BAD_PARAM for NULL (c12, c13), descriptors that do not fit each other, requestedAlgoCount below 1 (c16);
    ALLOC_FAILED without memory for x, w and y (c17). Source: 5.2.15.
    """
    expect(
        requestedAlgoCount > 0, BAD_PARAM, f"{_FIND}/c16", f"requestedAlgoCount is {requestedAlgoCount}, not positive"
    )
    problem = Problem(convDesc.spec, xDesc.spec, wDesc.spec, yDesc.spec)
    check_problem(problem)
    buffers = []
    try:
        for spec in (problem.x, problem.w, problem.y):
            buffers.append(_zeros(handle, spec.nbytes, f"{_FIND}/c17"))
        taken, refused = _sorted_out(handle, problem)
        measured = [_measured_with_own_workspace(handle, operation, buffers) for operation in taken]
        return _first(_by_time(measured) + refused, requestedAlgoCount)
    finally:
        for buffer in buffers:
            buffer.free()


_EX = "cudnnFindConvolutionForwardAlgorithmEx"


@documented(
    invalid={
        "handle": "c15", "xDesc": "c16", "wDesc": "c16", "yDesc": "c16", "x": "c18", "w": "c18", "y": "c18",
        "requestedAlgoCount": "c20", "workSpaceSizeInBytes": "c13",
    }
)  # fmt: skip
def cudnnFindConvolutionForwardAlgorithmEx(
    handle, xDesc, x, wDesc, w, convDesc, yDesc, y, requestedAlgoCount, workSpace, workSpaceSizeInBytes
):
    """As cudnnFindConvolutionForwardAlgorithm, on the caller's memory: y is overwritten, and algorithms that need more
    than the given workspace (NULL is 0 bytes) have the status ALLOC_FAILED.

    Errors: BAD_PARAM for NULL (c15, c16, c18), descriptors that do not fit each other, requestedAlgoCount below 1
    (c20), memory that is too small. Source: 5.2.16.
    """
    expect(requestedAlgoCount > 0, BAD_PARAM, f"{_EX}/c20", f"requestedAlgoCount is {requestedAlgoCount}, not positive")
    problem = Problem(convDesc.spec, xDesc.spec, wDesc.spec, yDesc.spec)
    check_problem(problem)
    room = workSpaceSizeInBytes if workSpace is not None else 0
    named = (("x", x, problem.x.nbytes), ("w", w, problem.w.nbytes), ("y", y, problem.y.nbytes))
    operands = [_operand(handle, *entry, f"{_EX}/c18") for entry in named]
    workspace = None if room == 0 else _operand(handle, "workSpace", workSpace, room, f"{_EX}/c13")
    expect(operands[2].writable, BAD_PARAM, f"{_EX}/c10", "y is written, but its memory is read-only")
    taken, refused = _sorted_out(handle, problem)
    measured = []
    for operation in taken:
        if operation.workspace_bytes > room:
            measured.append(_result(operation, ALLOC_FAILED, UNMEASURED))
        else:
            measured.append(_measured(handle, operation, [*operands, workspace if operation.workspace_bytes else None]))
    return _first(_by_time(measured) + refused, requestedAlgoCount)


def _operation(problem, algorithm, math_type=None):
    convolution = problem.convolution if math_type is None else replace(problem.convolution, math_type=math_type)
    return ConvolutionForward(convolution, algorithm, 0, 1.0, 0.0, problem.x, problem.w, problem.y)


def candidates(problem: Problem) -> Iterator[ConvolutionForward]:
    """Every algorithm with the math types that it is tried with."""
    for algorithm in cudnnConvolutionFwdAlgo_t:
        math_types = [DEFAULT_MATH]
        if algorithm in TENSOR_OP_ALGORITHMS:
            math_types = list(dict.fromkeys((problem.convolution.math_type, DEFAULT_MATH)))
        for math_type in math_types:
            yield _operation(problem, algorithm, math_type)


def _sorted_out(handle, problem):
    """(operations of the algorithms that take the problem, with their workspace; results of those that do not)."""
    taken, refused = [], []
    for operation in candidates(problem):
        try:
            check_support(problem, operation.algo)
            taken.append(replace(operation, workspace_bytes=handle.backend.workspace_bytes(operation)))
        except CudnnError as error:
            refused.append(_result(operation, error.status, UNMEASURED))
    return taken, refused


def _result(operation, status, time):
    math_type = operation.convolution.math_type
    return cudnnConvolutionFwdAlgoPerf_t(
        operation.algo, status, time, operation.workspace_bytes, DETERMINISTIC, math_type
    )


def _measured(handle, operation, operands):
    """The entry of an operation run on these operands (x, w, y, workspace)."""
    try:
        return _result(operation, SUCCESS, handle.backend.algorithm_time(operation, operands, handle.stream))
    except BackendError:
        return _result(operation, EXECUTION_FAILED, UNMEASURED)


def _measured_with_own_workspace(handle, operation, operands):
    if operation.workspace_bytes == 0:
        return _measured(handle, operation, [*operands, None])
    try:
        workspace = handle.allocate(operation.workspace_bytes)
    except CudnnError as error:
        return _result(operation, error.status, UNMEASURED)
    try:
        return _measured(handle, operation, [*operands, workspace])
    finally:
        workspace.free()


def _by_time(results):
    """Successes by time, then failures."""
    return sorted(results, key=lambda result: (result.status != SUCCESS, result.time))


def _first(results, count):
    kept = tuple(results[:count])
    return AlgorithmResults(len(kept), kept)


def _zeros(handle, nbytes, clause):
    """Device memory that holds zeros: numbers in every type."""
    try:
        return handle.zeros(nbytes)
    except CudnnError as error:
        raise CudnnError(error.status, clause, error.message) from error


def _operand(handle, name, value, nbytes, clause):
    """Memory that the caller gave, of at least ``nbytes`` where its size is known."""
    try:
        operand = handle.backend.operand(value)
    except (TypeError, ValueError) as error:
        raise CudnnError(BAD_PARAM, clause, f"{name} {error}") from None
    known = operand.nbytes is not None
    expect(not known or operand.nbytes >= nbytes, BAD_PARAM, clause,
           f"{name} has {operand.nbytes} bytes, {nbytes} are needed")  # fmt: skip
    return operand
