"""Select a forward algorithm: workspace, heuristic ranking, measured ranking (5.2.15, 5.2.16, 5.2.22 to 5.2.24)."""

from __future__ import annotations

from typing import NamedTuple

from ...enumerations import cudnnConvolutionFwdAlgo_t, cudnnDeterminism_t, cudnnMathType_t, cudnnStatus_t
from ...functions import documented
from ...operations import ConvolutionForward
from ...status import INCORRECT_PARAMETER, NOT_SUPPORTED
from ...support.convolution import TENSOR_OP_ALGORITHMS, Problem
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


def _operation(problem, convolution, algorithm):
    return ConvolutionForward(convolution, algorithm, 0, 1.0, 0.0, problem.x, problem.w, problem.y)


SEARCH = Search(
    cudnnConvolutionFwdAlgo_t, TENSOR_OP_ALGORITHMS, (), _operation, check_problem, check_support,
    cudnnConvolutionFwdAlgoPerf_t,
)  # fmt: skip


@documented(invalid={"handle": "c04"})
def cudnnGetConvolutionForwardAlgorithmMaxCount(handle):
    """Return the maximum number of results of cudnnFindConvolutionForwardAlgorithm and
    cudnnGetConvolutionForwardAlgorithm_v7.

    It counts all algorithms, plus one for each CUDNN_TENSOR_OP_MATH variant.
    Source: 5.2.22.
    """
    return SEARCH.most


_W = "cudnnGetConvolutionForwardWorkspaceSize"
WORKSPACE_CLAUSES = {
    **CLAUSES, "output_rank": f"{_W}/c07", "filter_rank": f"{_W}/c07", "channels": f"{_W}/c09",
    "data_types": f"{_W}/c08", "table": f"{_W}/c11",
}  # fmt: skip


@documented(invalid={"handle": "c06", "xDesc": "c06", "wDesc": "c06", "convDesc": "c06", "yDesc": "c06",
                     "algo": ("c11", NOT_SUPPORTED)})  # fmt: skip
def cudnnGetConvolutionForwardWorkspaceSize(handle, xDesc, wDesc, convDesc, yDesc, algo):
    """Return the bytes of workspace that cudnnConvolutionForward needs for these descriptors and this algorithm.

    Errors: BAD_PARAM for NULL (c06), ranks (c07), data types (c08), channels (c09); NOT_SUPPORTED where the algorithm
    does not support the problem (c11). Source: 5.2.24.
    """
    problem = Problem(convDesc.spec, xDesc.spec, wDesc.spec, yDesc.spec)
    return SEARCH.workspace_bytes(handle, problem, algo, WORKSPACE_CLAUSES)


_V7 = "cudnnGetConvolutionForwardAlgorithm_v7"
V7_CLAUSES = {
    **CLAUSES, "output_rank": f"{_V7}/c09", "filter_rank": f"{_V7}/c09", "channels": f"{_V7}/c11",
    "data_types": f"{_V7}/c10",
}  # fmt: skip


@documented(invalid={"requestedAlgoCount": "c13", "*": "c08"})
def cudnnGetConvolutionForwardAlgorithm_v7(handle, xDesc, wDesc, convDesc, yDesc, requestedAlgoCount):
    """Return (returnedAlgoCount, perfResults): at most requestedAlgoCount algorithms, ordered by expected speed.
    Unsupported algorithms come last, with their status. Nothing is run: time is -1.

    Errors: BAD_PARAM for NULL (c08), ranks (c09), data types (c10), channels (c11), requestedAlgoCount below 1 (c13).
    Source: 5.2.23.
    """
    problem = Problem(convDesc.spec, xDesc.spec, wDesc.spec, yDesc.spec)
    return SEARCH.ranked(handle, problem, requestedAlgoCount, f"{_V7}/c13", V7_CLAUSES)


_FIND = "cudnnFindConvolutionForwardAlgorithm"


@documented(invalid={"handle": "c12", "convDesc": INCORRECT_PARAMETER, "requestedAlgoCount": "c16", "*": "c13"})
def cudnnFindConvolutionForwardAlgorithm(handle, xDesc, wDesc, convDesc, yDesc, requestedAlgoCount):
    """Return (returnedAlgoCount, perfResults): at most requestedAlgoCount algorithms, ordered by measured speed.
    They run on temporary memory. Failed algorithms come last, with their status and the time -1.

    An algorithm with a tensor op variant runs with the math type of convDesc and with CUDNN_DEFAULT_MATH; others run with
    CUDNN_DEFAULT_MATH. With CUDNN_FMA_MATH in convDesc, all run with that math type alone. The call waits for the results.
    Errors: BAD_PARAM for NULL (c12, c13), descriptors that do not fit each other, requestedAlgoCount below 1 (c16);
    ALLOC_FAILED without memory for x, w and y (c17). Source: 5.2.15.
    """
    problem = Problem(convDesc.spec, xDesc.spec, wDesc.spec, yDesc.spec)
    return SEARCH.measured(handle, problem, requestedAlgoCount, f"{_FIND}/c16", CLAUSES, f"{_FIND}/c17")


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
    """Do the same as cudnnFindConvolutionForwardAlgorithm, on the caller's memory.

    The search overwrites y. Algorithms that need more workspace than given (NULL is 0 bytes) get the status
    ALLOC_FAILED.
    Errors: BAD_PARAM for NULL (c15, c16, c18), descriptors that do not fit each other, requestedAlgoCount below 1
    (c20), memory that is too small. Source: 5.2.16.
    """
    problem = Problem(convDesc.spec, xDesc.spec, wDesc.spec, yDesc.spec)
    memory = {"x": x, "w": w, "y": y, "workSpace": workSpace}
    unusable = {"memory": f"{_EX}/c18", "output": f"{_EX}/c10", "workSpace": f"{_EX}/c13"}
    return SEARCH.measured_on(
        handle, problem, requestedAlgoCount, f"{_EX}/c20", CLAUSES, memory, workSpaceSizeInBytes, unusable
    )
