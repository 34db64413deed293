"""Implement searches for the fastest algorithm of a recurrent network (7.2.13, 7.2.17, 7.2.22, 7.2.23, 8.2.6 to 8.2.8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil, isnan
from typing import TYPE_CHECKING, Any, NamedTuple

from ...descriptors import AlgorithmDescriptor, AlgorithmPerformance
from ...enumerations import cudnnRNNAlgo_t, cudnnStatus_t
from ...functions import documented, usable
from ...operations import AlgorithmPerformanceSpec, AlgorithmSpec, BackendError, Operation
from ...operations.rnn import RNNSpec
from ...operations.rnn.network import PERSIST_DYNAMIC, PERSIST_STATIC, STANDARD
from ...status import BAD_PARAM, EXECUTION_FAILED, INCORRECT_PARAMETER, CudnnError, expect
from .descriptor import bias_mode_is_supported, projection_is_supported
from .legacy import Section, sequences
from .legacy_backward import DATA_DESCRIBED, WEIGHTS_DESCRIBED, data_operation, weights_operation
from .legacy_forward import DESCRIBED, forward_operation
from .persistent import planned

if TYPE_CHECKING:
    from ...descriptors import FilterDescriptor, RNNDescriptor, TensorDescriptor
    from ...handle import Handle

# EVERY lists all algorithms, and REDUCED the usual winners.
EVERY = (STANDARD, PERSIST_STATIC, PERSIST_DYNAMIC)
REDUCED = (STANDARD, PERSIST_STATIC)
QUICK = 3  # runs per quick search, the maximum
SUCCESS, UNMEASURED = cudnnStatus_t.CUDNN_STATUS_SUCCESS, -1.0
NAMED = {"weightSpace": "w", "dweightSpace": "dw", "workSpace": "workspace"}
INFERENCE = Section("cudnnFindRNNForwardInferenceAlgorithmEx", "c37", "c38", "c39", "c36", "c36", "c40", "", "c41")
TRAINING = Section(
    "cudnnFindRNNForwardTrainingAlgorithmEx", "c52", "c53", "c54", "cudnnRNNForward/c41", "cudnnRNNForward/c43",
    "c55", "c56", "c57",
)  # fmt: skip
DATA = Section("cudnnFindRNNBackwardDataAlgorithmEx", "c67", "c68", "c69", "c66", "c66", "c70", "c71", "c72")
WEIGHTS = Section("cudnnFindRNNBackwardWeightsAlgorithmEx", "c33", "c34", "c35", "c32", "c32", "c36", "c37", "c38")


@documented()
def cudnnGetRNNForwardInferenceAlgorithmMaxCount(handle: Handle, rnnDesc: RNNDescriptor) -> int:
    """Return the maximum number of results of cudnnFindRNNForwardInferenceAlgorithmEx.

    Errors: BAD_PARAM for NULL. Source: 7.2.22.
    """
    return len(EVERY)


@documented()
def cudnnGetRNNForwardTrainingAlgorithmMaxCount(handle: Handle, rnnDesc: RNNDescriptor) -> int:
    """Return the maximum number of results of cudnnFindRNNForwardTrainingAlgorithmEx.

    Errors: BAD_PARAM for NULL. Source: 7.2.23.
    """
    return len(EVERY)


@documented()
def cudnnGetRNNBackwardDataAlgorithmMaxCount(handle: Handle, rnnDesc: RNNDescriptor) -> int:
    """Return the maximum number of results of cudnnFindRNNBackwardDataAlgorithmEx.

    Errors: BAD_PARAM for NULL. Source: 7.2.17.
    """
    return len(EVERY)


class RNNAlgorithmResults(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[AlgorithmPerformance, ...]


def searched(intensity: float) -> tuple[cudnnRNNAlgo_t, ...]:
    """Return the algorithms that a findIntensity tries."""
    expect(not isnan(intensity), BAD_PARAM, INCORRECT_PARAMETER, "findIntensity is NaN")
    if intensity == 0:
        return EVERY[:QUICK]
    space = EVERY if intensity > 0 else REDUCED
    return space[: ceil(min(abs(intensity), 1) * len(space))]


def _found(
    section: Section, handle: Any, rnn: Any, make: Callable[[RNNSpec], Operation], memory: Mapping[str, Any],
    intensity: float, count: int,
) -> RNNAlgorithmResults:  # fmt: skip
    """Return at most ``count`` results, ordered by speed, with algorithms that do not support the network last.

    make: returns the operation of a network. memory: maps operand names to memory.
    """
    expect(count > 0, BAD_PARAM, INCORRECT_PARAMETER, f"requestedAlgoCount is {count}, not positive")
    algorithms, spec = searched(intensity), rnn.spec
    # STANDARD supports every network, so any error means invalid arguments.
    operation = make(replace(spec, algo=STANDARD, plan=None))
    given = {**memory, "states": rnn.held("states")}
    operands = usable(section.name, handle, operation, given, NAMED, section.small)
    timed: dict[Any, float] = {}
    results = [_tried(handle, _by(make, spec, algorithm), operands, timed) for algorithm in algorithms]
    found = [_performance(algorithm, *result) for algorithm, result in zip(algorithms, results, strict=True)]
    found.sort(key=lambda one: (one.spec.status != SUCCESS, one.spec.time))
    return RNNAlgorithmResults(len(found[:count]), tuple(found[:count]))


def _by(make: Callable[[RNNSpec], Operation], spec: RNNSpec, algorithm: cudnnRNNAlgo_t) -> Operation | CudnnError:
    """Return the operation by an algorithm, with a plan if it needs one, or the error if it does not support the
    network."""
    try:
        bias_mode_is_supported("cudnnSetRNNBiasMode/c07", algorithm, spec.bias)
        projection_is_supported("cudnnSetRNNProjectionLayers/c14", algorithm, spec.cell, spec.hidden, spec.projected)
        standard: Any = make(replace(spec, algo=STANDARD, plan=None))
        return make(planned(replace(spec, algo=algorithm), standard.y.batch, standard.y.data_type))
    except CudnnError as error:
        return error


def _tried(
    handle: Any, operation: Operation | CudnnError, operands: list[Any], timed: dict[Any, float]
) -> tuple[cudnnStatus_t, float, int]:
    """Run an operation and return (status, milliseconds, bytes of workspace). timed: the times of this search."""
    if isinstance(operation, CudnnError):
        return operation.status, UNMEASURED, 0
    nbytes = operation.nbytes("workSpace")
    try:
        return SUCCESS, handle.backend.algorithm_time(operation, operands, handle.stream, timed), nbytes
    except BackendError:
        return EXECUTION_FAILED, UNMEASURED, nbytes


def _performance(algorithm: cudnnRNNAlgo_t, status: cudnnStatus_t, time: float, nbytes: int) -> AlgorithmPerformance:
    made = AlgorithmPerformance()
    made.algorithm = AlgorithmDescriptor()
    made.algorithm.spec = AlgorithmSpec(algorithm)
    made.spec = AlgorithmPerformanceSpec(status, time, nbytes)
    return made


def _specs(*descriptors: Any) -> tuple[Any, ...]:
    """Return the specifications of descriptors or arrays of descriptors."""
    return tuple(
        tuple(part.spec for part in found) if isinstance(found, tuple) else found.spec for found in descriptors
    )


def _forward(
    section: Any,
    handle: Any,
    rnnDesc: Any,
    seqLength: Any,
    described: Any,
    memory: Any,
    sizes: Any,
    findIntensity: Any,
    requestedAlgoCount: Any,
) -> Any:
    """Search the algorithms of either forward call. described: the descriptors of x, y, w, hx, cx, hy and cy."""
    x, y, w, *states = _specs(*described)
    data = [sequences(section, name, seqLength, steps) for name, steps in (("xDesc", x), ("yDesc", y))]
    named = dict(zip(("hx", "cx", "hy", "cy"), states, strict=True))

    def make(spec: Any) -> Any:
        return forward_operation(section, spec, *data, w, named, memory, *sizes)

    return _found(section, handle, rnnDesc, make, memory, findIntensity, requestedAlgoCount)


@documented(invalid=INFERENCE.refused_by(*DESCRIBED))
def cudnnFindRNNForwardInferenceAlgorithmEx(
    handle: Handle, rnnDesc: RNNDescriptor, seqLength: int, xDesc: Sequence[TensorDescriptor], x: Any, hxDesc: TensorDescriptor, hx: Any, cxDesc: TensorDescriptor, cx: Any, wDesc: FilterDescriptor, w: Any, yDesc: Sequence[TensorDescriptor], y: Any, hyDesc: TensorDescriptor, hy: Any, cyDesc: TensorDescriptor, cy: Any,
    findIntensity: float, requestedAlgoCount: int, workspace: Any, workspaceSizeInBytes: int,
) -> Any:  # fmt: skip
    """Return (returnedAlgoCount, perfResults): the algorithms of cudnnRNNForwardInference, ordered by speed.

    Each algorithm runs one or a few times on the caller's memory, so y, hy and cy are overwritten.
    cudnnGetAlgorithmPerformance reads the results, and cudnnSetRNNAlgorithmDescriptor accepts the algorithm found.
    Unsupported algorithms come last, with their status and the time -1.
    findIntensity: a positive value is the share of all algorithms to try. A negative value is the share of
    CUDNN_RNN_ALGO_STANDARD and _PERSIST_STATIC. 0 selects a quick search of at most three runs. Values are clamped to
    -1 to 1.
    Errors: as cudnnRNNForwardInference, BAD_PARAM for rnnDesc (c37), other descriptors (c38), mismatched arguments
    (c39), a small workspace (c40), a requestedAlgoCount below 1, a findIntensity that is NaN; NOT_SUPPORTED for data
    types (c36).
    Source: 7.2.13.
    """
    memory = {"x": x, "hx": hx, "cx": cx, "weightSpace": w, "y": y, "hy": hy, "cy": cy, "workSpace": workspace,
              "reserveSpace": None}  # fmt: skip
    described = (xDesc, yDesc, wDesc, hxDesc, cxDesc, hyDesc, cyDesc)
    sizes = (workspaceSizeInBytes,)
    return _forward(INFERENCE, handle, rnnDesc, seqLength, described, memory, sizes, findIntensity, requestedAlgoCount)


@documented(invalid=TRAINING.refused_by(*DESCRIBED))
def cudnnFindRNNForwardTrainingAlgorithmEx(
    handle: Handle, rnnDesc: RNNDescriptor, seqLength: int, xDesc: Sequence[TensorDescriptor], x: Any, hxDesc: TensorDescriptor, hx: Any, cxDesc: TensorDescriptor, cx: Any, wDesc: FilterDescriptor, w: Any, yDesc: Sequence[TensorDescriptor], y: Any, hyDesc: TensorDescriptor, hy: Any, cyDesc: TensorDescriptor, cy: Any,
    findIntensity: float, requestedAlgoCount: int, workspace: Any, workspaceSizeInBytes: int, reserveSpace: Any, reserveSpaceSizeInBytes: int,
) -> Any:  # fmt: skip
    """Do the same as cudnnFindRNNForwardInferenceAlgorithmEx for cudnnRNNForwardTraining.

    reserveSpace holds the result of the last run. Each run advances the dropout states.
    Errors: as cudnnRNNForwardTraining, BAD_PARAM for rnnDesc (c52), other descriptors (c53), mismatched arguments
    (c54), small spaces (c55, c56). Source: 8.2.8.
    """
    memory = {"x": x, "hx": hx, "cx": cx, "weightSpace": w, "y": y, "hy": hy, "cy": cy, "workSpace": workspace,
              "reserveSpace": reserveSpace}  # fmt: skip
    described = (xDesc, yDesc, wDesc, hxDesc, cxDesc, hyDesc, cyDesc)
    sizes = (workspaceSizeInBytes, reserveSpaceSizeInBytes)
    return _forward(TRAINING, handle, rnnDesc, seqLength, described, memory, sizes, findIntensity, requestedAlgoCount)


@documented(invalid=DATA.refused_by(*DATA_DESCRIBED))
def cudnnFindRNNBackwardDataAlgorithmEx(
    handle: Handle, rnnDesc: RNNDescriptor, seqLength: int, yDesc: Sequence[TensorDescriptor], y: Any, dyDesc: Sequence[TensorDescriptor], dy: Any, dhyDesc: TensorDescriptor, dhy: Any, dcyDesc: TensorDescriptor, dcy: Any, wDesc: FilterDescriptor, w: Any, hxDesc: TensorDescriptor, hx: Any, cxDesc: TensorDescriptor, cx: Any,
    dxDesc: Sequence[TensorDescriptor], dx: Any, dhxDesc: TensorDescriptor, dhx: Any, dcxDesc: TensorDescriptor, dcx: Any, findIntensity: float, requestedAlgoCount: int, workspace: Any, workSpaceSizeInBytes: int,
    reserveSpace: Any, reserveSpaceSizeInBytes: int,
) -> Any:  # fmt: skip
    """Do the same as cudnnFindRNNForwardInferenceAlgorithmEx for cudnnRNNBackwardData.

    After several runs, the contents of dx, dhx, dcx and reserveSpace are undefined. Repeat the forward call before
    computing a gradient.
    Errors: as cudnnRNNBackwardData, BAD_PARAM for rnnDesc (c67), other descriptors (c68), mismatched arguments (c69),
    small spaces (c70, c71); NOT_SUPPORTED for data types (c66). Source: 8.2.6.
    """
    y_steps, dy_steps, dx_steps, described_w = _specs(yDesc, dyDesc, dxDesc, wDesc)
    data = [sequences(DATA, name, seqLength, steps) for name, steps in
            (("yDesc", y_steps), ("dyDesc", dy_steps), ("dxDesc", dx_steps))]  # fmt: skip
    names = ("hx", "dhy", "dhx", "cx", "dcy", "dcx")
    states = dict(zip(names, _specs(hxDesc, dhyDesc, dhxDesc, cxDesc, dcyDesc, dcxDesc), strict=True))
    memory = {"y": y, "dy": dy, "hx": hx, "dhy": dhy, "dhx": dhx, "cx": cx, "dcy": dcy, "dcx": dcx, "weightSpace": w,
              "dx": dx, "workSpace": workspace, "reserveSpace": reserveSpace}  # fmt: skip

    def make(spec: Any) -> Any:
        sizes = workSpaceSizeInBytes, reserveSpaceSizeInBytes
        return data_operation(DATA, spec, *data, described_w, states, memory, *sizes)

    return _found(DATA, handle, rnnDesc, make, memory, findIntensity, requestedAlgoCount)


@documented(invalid=WEIGHTS.refused_by(*WEIGHTS_DESCRIBED))
def cudnnFindRNNBackwardWeightsAlgorithmEx(
    handle: Handle, rnnDesc: RNNDescriptor, seqLength: int, xDesc: Sequence[TensorDescriptor], x: Any, hxDesc: TensorDescriptor, hx: Any, yDesc: Sequence[TensorDescriptor], y: Any, findIntensity: float, requestedAlgoCount: int, workspace: Any,
    workspaceSizeInBytes: int, dwDesc: FilterDescriptor, dw: Any, reserveSpace: Any, reserveSpaceSizeInBytes: int,
) -> Any:  # fmt: skip
    """Do the same as cudnnFindRNNForwardInferenceAlgorithmEx for cudnnRNNBackwardWeights; each run adds to dw.

    Errors: as cudnnRNNBackwardWeights, BAD_PARAM for rnnDesc (c33), other descriptors (c34), mismatched arguments
    (c35), small spaces (c36, c37); NOT_SUPPORTED for data types (c32). Source: 8.2.7.
    """
    x_steps, y_steps, described_w, state = _specs(xDesc, yDesc, dwDesc, hxDesc)
    data = [sequences(WEIGHTS, name, seqLength, steps) for name, steps in (("xDesc", x_steps), ("yDesc", y_steps))]
    memory = {"x": x, "hx": hx, "y": y, "dweightSpace": dw, "workSpace": workspace, "reserveSpace": reserveSpace}

    def make(spec: Any) -> Any:
        sizes = workspaceSizeInBytes, reserveSpaceSizeInBytes
        return weights_operation(WEIGHTS, spec, *data, described_w, state, hx, *sizes)

    return _found(WEIGHTS, handle, rnnDesc, make, memory, findIntensity, requestedAlgoCount)
