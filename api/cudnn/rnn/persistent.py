"""Implement plans of CUDNN_RNN_ALGO_PERSIST_DYNAMIC (7.2.2, 7.2.4, 7.2.9, 7.2.44). A plan fits one network and one
batch size."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...descriptors import PersistentRNNPlan
from ...enumerations import cudnnDataType_t, cudnnRNNDataLayout_t
from ...functions import documented
from ...operations import Unavailable
from ...operations.rnn import RNNDataSpec, RNNForward, RNNPlanSpec, RNNSpec, reserve, workspace
from ...operations.rnn.network import PERSIST_DYNAMIC
from ...status import (
    BAD_PARAM,
    INCORRECT_PARAMETER,
    NOT_INITIALIZED,
    NOT_SUPPORTED,
    RUNTIME_PREREQUISITE_MISSING,
    CudnnError,
    expect,
)
from .descriptor import PRECISIONS, configured_by_v8
from .forward import weights

if TYPE_CHECKING:
    from ...descriptors import RNNDescriptor
    from ...handle import Handle

SEQ_MAJOR = cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED
CREATE = "cudnnCreatePersistentRNNPlan"
SET = "cudnnSetPersistentRNNPlan"
BUILD = "cudnnBuildRNNDynamic"


def planned(network: RNNSpec, batch: int, data_type: cudnnDataType_t) -> RNNSpec:
    """Return the network with a plan for this batch size, if its algorithm uses plans."""
    return replace(network, plan=RNNPlanSpec(batch, data_type) if network.algo == PERSIST_DYNAMIC else None)


def without_plan(network: RNNSpec) -> RNNSpec:
    """Return the part of a network that must equal the network of a plan."""
    return replace(network, plan=None, dropout=0.0)


def _positive(name: str, batch: int) -> None:
    expect(batch > 0, BAD_PARAM, INCORRECT_PARAMETER, f"{name} is {batch}, not positive")


@documented()
def cudnnCreatePersistentRNNPlan(
    rnnDesc: RNNDescriptor, minibatch: int, dataType: cudnnDataType_t
) -> PersistentRNNPlan:
    """Return a plan for the current network of cudnnSetRNNDescriptor_v6, for batches of minibatch sequences of
    dataType.

    Errors: BAD_PARAM for NULL, a minibatch below 1; NOT_INITIALIZED where cudnnSetRNNDescriptor_v6 was not the last to
    configure the network; NOT_SUPPORTED for another algorithm than CUDNN_RNN_ALGO_PERSIST_DYNAMIC, a bias mode that it
    does not take and a dataType that the arithmetic does not (c10). Source: 7.2.4.
    """
    spec = rnnDesc.spec
    expect(spec.layers > 0 and spec.data_type is None, NOT_INITIALIZED, "cudnnStatus_t/c03",
           "rnnDesc was not configured by cudnnSetRNNDescriptor_v6")  # fmt: skip
    _positive("minibatch", minibatch)
    expect(spec.algo == PERSIST_DYNAMIC, NOT_SUPPORTED, f"{CREATE}/c10", f"the algorithm is {spec.algo.name}")
    expect(spec.precision in PRECISIONS.get(dataType, ()), NOT_SUPPORTED, f"{CREATE}/c10",
           f"dataType {dataType.name} with mathPrec {spec.precision.name}")  # fmt: skip
    plan = PersistentRNNPlan()
    plan.spec, plan.network = RNNPlanSpec(minibatch, dataType), without_plan(spec)
    return plan


@documented(fresh=["plan"])
def cudnnDestroyPersistentRNNPlan(plan: PersistentRNNPlan) -> None:
    """Destroy the plan; networks that use it keep it.

    Errors: BAD_PARAM for NULL or a destroyed plan. Source: 7.2.9.
    """
    plan.destroy()


@documented()
def cudnnSetPersistentRNNPlan(rnnDesc: RNNDescriptor, plan: PersistentRNNPlan) -> None:
    """Run calls with rnnDesc by the plan until a setter changes rnnDesc.

    Errors: BAD_PARAM for NULL, another algorithm than CUDNN_RNN_ALGO_PERSIST_DYNAMIC (c04), a plan of another network
    (cudnnRNNAlgo_t/c06). Source: 7.2.44.
    """
    spec = rnnDesc.spec
    expect(spec.algo == PERSIST_DYNAMIC, BAD_PARAM, f"{SET}/c04", f"the algorithm is {spec.algo.name}")
    expect(plan.network == without_plan(spec), BAD_PARAM, "cudnnRNNAlgo_t/c06",
           f"the plan was made for {plan.network}, rnnDesc is {spec}")  # fmt: skip
    rnnDesc.plan(plan.spec)


@documented()
def cudnnBuildRNNDynamic(handle: Handle, rnnDesc: RNNDescriptor, miniBatch: int) -> None:
    """Compile the kernels for calls with rnnDesc on batches of miniBatch sequences, and use them until a setter changes
    rnnDesc.

    Errors: BAD_PARAM for NULL, a miniBatch below 1; NOT_INITIALIZED where cudnnSetRNNDescriptor_v8 did not configure
    rnnDesc (cudnnGetRNNDescriptor_v8/c11); NOT_SUPPORTED for another algorithm than CUDNN_RNN_ALGO_PERSIST_DYNAMIC
    (c11); RUNTIME_PREREQUISITE_MISSING where the compiler fails (c10). Source: 7.2.2.
    """
    spec = rnnDesc.spec
    configured_by_v8("cudnnGetRNNDescriptor_v8", "c11", spec)
    _positive("miniBatch", miniBatch)
    expect(spec.algo == PERSIST_DYNAMIC, NOT_SUPPORTED, f"{BUILD}/c11", f"the algorithm is {spec.algo.name}")
    network = planned(spec, miniBatch, spec.data_type)
    try:
        handle.backend.prepare(_smallest(network, miniBatch))
    except Unavailable as error:
        raise CudnnError(RUNTIME_PREREQUISITE_MISSING, f"{BUILD}/c10", str(error)) from error
    rnnDesc.plan(network.plan)


def _smallest(n: RNNSpec, batch: int) -> RNNForward:
    """Return a forward call of one step; its kernels serve any number of steps."""
    x, y = (RNNDataSpec(n.data_type, SEQ_MAJOR, 1, batch, size, (1,) * batch) for size in (n.input_size, n.output_size))
    return RNNForward(
        n, False, x, None, None, weights(n), y, None, None, workspace(n, 1, batch), reserve(n, 1, batch, False)
    )
