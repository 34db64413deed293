"""Select an algorithm for a gradient of a convolution: workspace, heuristic ranking, measured ranking.

Sections 5.2.13, 5.2.14 and 5.2.19 to 5.2.21 cover the input; 6.2.9, 6.2.10 and 6.2.12 to 6.2.14 cover the filter.
"""

from __future__ import annotations

from typing import NamedTuple

from ...enumerations import (
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnDeterminism_t,
    cudnnMathType_t,
    cudnnStatus_t,
)
from ...functions import documented
from ...operations import ConvolutionBackwardData, ConvolutionBackwardFilter
from ...status import INCORRECT_PARAMETER, NOT_SUPPORTED
from ...support.convolution import Problem
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
from .searches import Search


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


def _data(problem, convolution, algorithm):
    return ConvolutionBackwardData(convolution, algorithm, 0, 1.0, 0.0, problem.w, problem.y, problem.x)


def _filter(problem, convolution, algorithm):
    return ConvolutionBackwardFilter(convolution, algorithm, 0, 1.0, 0.0, problem.x, problem.y, problem.w)


DATA_SEARCH = Search(
    cudnnConvolutionBwdDataAlgo_t, DATA_TENSOR_OP_ALGORITHMS, DATA_UNORDERED_ALGORITHMS, _data, check_data_problem,
    check_data_support, cudnnConvolutionBwdDataAlgoPerf_t,
)  # fmt: skip
FILTER_SEARCH = Search(
    cudnnConvolutionBwdFilterAlgo_t, FILTER_TENSOR_OP_ALGORITHMS, FILTER_UNORDERED_ALGORITHMS, _filter,
    check_filter_problem, check_filter_support, cudnnConvolutionBwdFilterAlgoPerf_t,
)  # fmt: skip


_D_W = "cudnnGetConvolutionBackwardDataWorkspaceSize"
DATA_WORKSPACE_CLAUSES = {**DATA_CLAUSES, "channels": f"{_D_W}/c06", "data_types": f"{_D_W}/c07"}


@documented(invalid={"algo": ("c08", NOT_SUPPORTED)})
def cudnnGetConvolutionBackwardDataWorkspaceSize(handle, wDesc, dyDesc, convDesc, dxDesc, algo):
    """Return the bytes of workspace that cudnnConvolutionBackwardData needs for these descriptors and this algorithm.

    Errors: those of cudnnConvolutionBackwardData; channels that differ are c06, data types c07 here. Source: 5.2.21.
    """
    problem = Problem(convDesc.spec, dxDesc.spec, wDesc.spec, dyDesc.spec)
    return DATA_SEARCH.workspace_bytes(handle, problem, algo, DATA_WORKSPACE_CLAUSES)


@documented(invalid={"handle": "c04"})
def cudnnGetConvolutionBackwardDataAlgorithmMaxCount(handle):
    """Return the maximum number of results of cudnnFindConvolutionBackwardDataAlgorithm and
    cudnnGetConvolutionBackwardDataAlgorithm_v7.

    It counts all algorithms, plus one for each CUDNN_TENSOR_OP_MATH variant.
    Source: 5.2.19.
    """
    return DATA_SEARCH.most


_D_V7 = "cudnnGetConvolutionBackwardDataAlgorithm_v7"
DATA_V7_CLAUSES = {**DATA_CLAUSES, "channels": f"{_D_V7}/c09", "data_types": f"{_D_V7}/c10"}


@documented(invalid={"requestedAlgoCount": "c11", "*": "c08"})
def cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, wDesc, dyDesc, convDesc, dxDesc, requestedAlgoCount):
    """Return (returnedAlgoCount, perfResults): at most requestedAlgoCount algorithms, ordered by expected speed.
    Unsupported algorithms come last, with their status. Nothing is run: time is -1.

    Errors: BAD_PARAM for NULL (c08), channels (c09), data types (c10), other descriptors that do not fit each other,
    requestedAlgoCount below 1 (c11). Source: 5.2.20.
    """
    problem = Problem(convDesc.spec, dxDesc.spec, wDesc.spec, dyDesc.spec)
    return DATA_SEARCH.ranked(handle, problem, requestedAlgoCount, f"{_D_V7}/c11", DATA_V7_CLAUSES)


_D_FIND = "cudnnFindConvolutionBackwardDataAlgorithm"


@documented(invalid={"handle": "c12", "convDesc": INCORRECT_PARAMETER, "requestedAlgoCount": "c16", "*": "c13"})
def cudnnFindConvolutionBackwardDataAlgorithm(handle, wDesc, dyDesc, convDesc, dxDesc, requestedAlgoCount):
    """Return (returnedAlgoCount, perfResults): at most requestedAlgoCount algorithms, ordered by measured speed.
    They run on temporary memory. Failed algorithms come last, with their status and the time -1.

    An algorithm with a tensor op variant runs with the math type of convDesc and with CUDNN_DEFAULT_MATH; others run with
    CUDNN_DEFAULT_MATH. With CUDNN_FMA_MATH in convDesc, all run with that math type alone. The call waits for the results.
    Errors: BAD_PARAM for NULL (c12, c13), descriptors that do not fit each other, requestedAlgoCount below 1 (c16);
    ALLOC_FAILED without memory for w, dy and dx (c17). Source: 5.2.13.
    """
    problem = Problem(convDesc.spec, dxDesc.spec, wDesc.spec, dyDesc.spec)
    return DATA_SEARCH.measured(handle, problem, requestedAlgoCount, f"{_D_FIND}/c16", DATA_CLAUSES, f"{_D_FIND}/c17")


_D_EX = "cudnnFindConvolutionBackwardDataAlgorithmEx"


@documented(
    invalid={
        "handle": "c15", "wDesc": "c16", "dyDesc": "c16", "dxDesc": "c16", "w": "c18", "dy": "c18", "dx": "c18",
        "requestedAlgoCount": "c20", "workSpaceSizeInBytes": "c13",
    }
)  # fmt: skip
def cudnnFindConvolutionBackwardDataAlgorithmEx(
    handle, wDesc, w, dyDesc, dy, convDesc, dxDesc, dx, requestedAlgoCount, workSpace, workSpaceSizeInBytes
):
    """Do the same as cudnnFindConvolutionBackwardDataAlgorithm, on the caller's memory.

    The search overwrites dx. Algorithms that need more workspace than given (NULL is 0 bytes) get the status ALLOC_FAILED.

    Errors: BAD_PARAM for NULL (c15, c16, c18), descriptors that do not fit each other, requestedAlgoCount below 1
    (c20), memory that is too small. Source: 5.2.14.
    """
    problem = Problem(convDesc.spec, dxDesc.spec, wDesc.spec, dyDesc.spec)
    memory = {"w": w, "dy": dy, "dx": dx, "workSpace": workSpace}
    unusable = {"memory": f"{_D_EX}/c18", "output": f"{_D_EX}/c10", "workSpace": f"{_D_EX}/c13"}
    return DATA_SEARCH.measured_on(
        handle, problem, requestedAlgoCount, f"{_D_EX}/c20", DATA_CLAUSES, memory, workSpaceSizeInBytes, unusable
    )


_F_W = "cudnnGetConvolutionBackwardFilterWorkspaceSize"
FILTER_WORKSPACE_CLAUSES = {**FILTER_CLAUSES, "channels": f"{_F_W}/c05", "data_types": f"{_F_W}/c06"}


@documented(invalid={"algo": ("c07", NOT_SUPPORTED)})
def cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, xDesc, dyDesc, convDesc, dwDesc, algo):
    """Return the bytes of workspace that cudnnConvolutionBackwardFilter needs for these descriptors and this algorithm.

    Errors: those of cudnnConvolutionBackwardFilter; channels that differ are c05, data types c06 here. Source: 6.2.14.
    """
    problem = Problem(convDesc.spec, xDesc.spec, dwDesc.spec, dyDesc.spec)
    return FILTER_SEARCH.workspace_bytes(handle, problem, algo, FILTER_WORKSPACE_CLAUSES)


@documented(invalid={"handle": "c04"})
def cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(handle):
    """Return the maximum number of results of cudnnFindConvolutionBackwardFilterAlgorithm and
    cudnnGetConvolutionBackwardFilterAlgorithm_v7.

    It counts all algorithms, plus one for each CUDNN_TENSOR_OP_MATH variant.
    Source: 6.2.12.
    """
    return FILTER_SEARCH.most


_F_V7 = "cudnnGetConvolutionBackwardFilterAlgorithm_v7"
FILTER_V7_CLAUSES = {**FILTER_CLAUSES, "channels": f"{_F_V7}/c08", "data_types": f"{_F_V7}/c09"}


@documented(invalid={"requestedAlgoCount": "c10", "*": "c07"})
def cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, xDesc, dyDesc, convDesc, dwDesc, requestedAlgoCount):
    """Return (returnedAlgoCount, perfResults): at most requestedAlgoCount algorithms, ordered by expected speed.
    Unsupported algorithms come last, with their status. Nothing is run: time is -1.

    Errors: BAD_PARAM for NULL (c07), channels (c08), data types (c09), other descriptors that do not fit each other,
    requestedAlgoCount below 1 (c10). Source: 6.2.13.
    """
    problem = Problem(convDesc.spec, xDesc.spec, dwDesc.spec, dyDesc.spec)
    return FILTER_SEARCH.ranked(handle, problem, requestedAlgoCount, f"{_F_V7}/c10", FILTER_V7_CLAUSES)


_F_FIND = "cudnnFindConvolutionBackwardFilterAlgorithm"


@documented(invalid={"handle": "c13", "convDesc": INCORRECT_PARAMETER, "requestedAlgoCount": "c17", "*": "c14"})
def cudnnFindConvolutionBackwardFilterAlgorithm(handle, xDesc, dyDesc, convDesc, dwDesc, requestedAlgoCount):
    """Return (returnedAlgoCount, perfResults): at most requestedAlgoCount algorithms, ordered by measured speed.
    They run on temporary memory. Failed algorithms come last, with their status and the time -1.

    An algorithm with a tensor op variant runs with the math type of convDesc and with CUDNN_DEFAULT_MATH; others run with
    CUDNN_DEFAULT_MATH. With CUDNN_FMA_MATH in convDesc, all run with that math type alone. The call waits for the results.
    Errors: BAD_PARAM for NULL (c13, c14), descriptors that do not fit each other, requestedAlgoCount below 1 (c17);
    ALLOC_FAILED without memory for x, dy and dw (c18). Source: 6.2.9.
    """
    problem = Problem(convDesc.spec, xDesc.spec, dwDesc.spec, dyDesc.spec)
    return FILTER_SEARCH.measured(
        handle, problem, requestedAlgoCount, f"{_F_FIND}/c17", FILTER_CLAUSES, f"{_F_FIND}/c18"
    )


_F_EX = "cudnnFindConvolutionBackwardFilterAlgorithmEx"


@documented(
    invalid={
        "handle": "c16", "xDesc": "c17", "dyDesc": "c17", "dwDesc": "c17", "x": "c19", "dy": "c19", "dw": "c19",
        "requestedAlgoCount": "c21", "workSpaceSizeInBytes": "c14",
    }
)  # fmt: skip
def cudnnFindConvolutionBackwardFilterAlgorithmEx(
    handle, xDesc, x, dyDesc, dy, convDesc, dwDesc, dw, requestedAlgoCount, workSpace, workSpaceSizeInBytes
):
    """Do the same as cudnnFindConvolutionBackwardFilterAlgorithm, on the caller's memory.

    The search overwrites dw. Algorithms that need more workspace than given (NULL is 0 bytes) get the status ALLOC_FAILED.

    Errors: BAD_PARAM for NULL (c16, c17, c19), descriptors that do not fit each other, requestedAlgoCount below 1
    (c21), memory that is too small. Source: 6.2.10.
    """
    problem = Problem(convDesc.spec, xDesc.spec, dwDesc.spec, dyDesc.spec)
    memory = {"x": x, "dy": dy, "dw": dw, "workSpace": workSpace}
    unusable = {"memory": f"{_F_EX}/c19", "output": f"{_F_EX}/c08", "workSpace": f"{_F_EX}/c14"}
    return FILTER_SEARCH.measured_on(
        handle, problem, requestedAlgoCount, f"{_F_EX}/c21", FILTER_CLAUSES, memory, workSpaceSizeInBytes, unusable
    )
