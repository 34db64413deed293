"""Holds cases of the plans of CUDNN_RNN_ALGO_PERSIST_DYNAMIC, and of networks that the persistent algorithms refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from dualdnn.api.enumerations import cudnnDataType_t, cudnnStatus_t
from dualdnn.api.operations import BackendError, Unavailable
from dualdnn.api.operations.specs import FLOAT, HALF
from dualdnn.api.status import BAD_PARAM, NOT_INITIALIZED, NOT_SUPPORTED
from dualdnn.conformance.calls import sized
from dualdnn.conformance.calls.descriptors import made
from dualdnn.conformance.calls.rnn_before_8 import LegacyCaller
from dualdnn.conformance.cases.rnn import rnn_descriptors as rnn
from dualdnn.conformance.cases.rnn.rnn_backward import training
from dualdnn.conformance.cases.rnn.rnn_descriptors import describe_v6
from dualdnn.conformance.cases.rnn.rnn_forward import PACKED, forward, network
from dualdnn.conformance.cases.rnn.rnn_legacy import plain
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import Called, Step, attempt_chain

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.suite.evidence import Evidence

CREATE = "cudnnCreatePersistentRNNPlan"
SET = "cudnnSetPersistentRNNPlan"
BUILD = "cudnnBuildRNNDynamic"
LENGTHS = (3, 3)


@pytest.fixture
def dynamic(cudnn: Any, handle: Any) -> Any:
    """Return a network of version 6 by the dynamic algorithm, without a plan."""
    descriptor = cudnn.cudnnCreateRNNDescriptor()
    describe_v6(cudnn, handle, descriptor, algo=rnn.DYNAMIC, mathPrec=FLOAT)
    return descriptor


@shows(f"{CREATE}/c02 c04", f"{SET}/c02 c03", "cudnnDestroyPersistentRNNPlan/c02", "cudnnPersistentRNNPlan_t/c02 c03", "cudnnRNNAlgo_t/c05 c06")  # fmt: skip
def test_plans_before_version_8(cudnn: Any, handle: Any, evidence: Evidence) -> None:
    """The plan serves a training step, twice with one descriptor, and longer sequences."""
    caller = LegacyCaller(cudnn, handle, False)
    spec = plain(cell=rnn.GRU, algo=rnn.DYNAMIC, layers=1)
    planned = caller.network(spec, len(LENGTHS))
    caller.network = lambda n, batch=0: planned  # All calls share one descriptor.
    for lengths in (LENGTHS, LENGTHS, (5, 5)):
        found = attempt_chain(caller, [Step(operation) for operation in training(spec, PACKED, lengths)])
        evidence.note(found)
        assert found.passed, found.explanation()


@shows(f"{CREATE}/c10", f"{SET}/c04", "cudnnPersistentRNNPlan_t/c03")
def test_refused_plans(cudnn: Any, handle: Any, refuses: Callable[..., bool], dynamic: Any) -> None:
    """Other algorithms, types without arithmetic, wrong numbers of sequences, networks of version 8, and NULL are
    refused."""
    create, put = cudnn.cudnnCreatePersistentRNNPlan, cudnn.cudnnSetPersistentRNNPlan
    plan = create(dynamic, 2, FLOAT)
    for data_type in cudnnDataType_t:
        if data_type not in (FLOAT, HALF):
            refuses(NOT_SUPPORTED, f"{CREATE}/c10", create, dynamic, 2, data_type)
    for batch in (0, -1):
        refuses(BAD_PARAM, "cudnnStatus_t/c05", create, dynamic, batch, FLOAT)
    cudnn.cudnnDestroyPersistentRNNPlan(create(dynamic, 1, FLOAT))
    for data_type in (-1, 99):
        refuses(BAD_PARAM, "cudnnStatus_t/c05", create, dynamic, 2, data_type)
    refuses(BAD_PARAM, "cudnnStatus_t/c05", create, None, 2, FLOAT)
    refuses(NOT_INITIALIZED, "cudnnStatus_t/c03", create, cudnn.cudnnCreateRNNDescriptor(), 2, FLOAT)
    refuses(NOT_INITIALIZED, "cudnnStatus_t/c03", create, made(cudnn, network(rnn.GRU, algo=rnn.DYNAMIC)), 2, FLOAT)
    refuses(BAD_PARAM, "cudnnStatus_t/c05", put, dynamic, None)
    refuses(BAD_PARAM, "cudnnStatus_t/c05", put, None, plan)
    other = cudnn.cudnnCreateRNNDescriptor()
    put(dynamic, plan)
    for algo in (rnn.STANDARD, rnn.STATIC):
        describe_v6(cudnn, handle, other, algo=algo, mathPrec=FLOAT)
        refuses(NOT_SUPPORTED, f"{CREATE}/c10", create, other, 2, FLOAT)
        refuses(BAD_PARAM, f"{SET}/c04", put, other, plan)
    cudnn.cudnnDestroyPersistentRNNPlan(plan)


@shows("cudnnRNNAlgo_t/c06")
@pytest.mark.ours
def test_plans_of_other_networks(cudnn: Any, handle: Any, refuses: Callable[..., bool], dynamic: Any) -> None:
    """A plan belongs to the network as it was when the plan was made."""
    plan = cudnn.cudnnCreatePersistentRNNPlan(dynamic, 2, FLOAT)
    for change in (
        {"hiddenSize": 8},
        {"numLayers": 3},
        {"mode": rnn.GRU},
        {"direction": rnn.ONE_WAY},
        {"inputMode": 0},
    ):
        other = cudnn.cudnnCreateRNNDescriptor()
        describe_v6(cudnn, handle, other, **{"algo": rnn.DYNAMIC, "mathPrec": FLOAT, **change})
        refuses(BAD_PARAM, "cudnnRNNAlgo_t/c06", cudnn.cudnnSetPersistentRNNPlan, other, plan)
    cudnn.cudnnRNNSetClip_v8(dynamic, rnn.MINMAX, rnn.PROPAGATE, -1.0, 1.0)
    refuses(BAD_PARAM, "cudnnRNNAlgo_t/c06", cudnn.cudnnSetPersistentRNNPlan, dynamic, plan)
    cudnn.cudnnDestroyPersistentRNNPlan(plan)
    refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnSetPersistentRNNPlan, dynamic, plan)
    refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnDestroyPersistentRNNPlan, plan)
    refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnDestroyPersistentRNNPlan, None)


@pytest.mark.ours
@shows(f"{BUILD}/c10")
def test_a_compiler_that_fails(
    cudnn: Any, handle: Any, refuses: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is compiled before it is kept: calls without one are refused as before.

    A device that fails is another error.
    """
    asked, status = [], cudnnStatus_t
    descriptor = made(cudnn, network(rnn.LSTM, algo=rnn.DYNAMIC))
    for error, found, clause in (
        (Unavailable, status.CUDNN_STATUS_RUNTIME_PREREQUISITE_MISSING, f"{BUILD}/c10"),
        (BackendError, status.CUDNN_STATUS_EXECUTION_FAILED, "cudnnStatus_t/c08"),
    ):

        def fails(operation: Any, error: Any = error) -> None:
            asked.append(operation)
            raise error("it is missing, or it failed")

        with monkeypatch.context() as patched:
            patched.setattr(handle.backend, "prepare", fails)
            refuses(found, clause, cudnn.cudnnBuildRNNDynamic, handle, descriptor, 2)
    assert [operation.x.batch for operation in asked] == [2, 2] and descriptor.spec.plan is None
    cudnn.cudnnBuildRNNDynamic(handle, descriptor, 2)
    assert descriptor.spec.plan is not None


@pytest.fixture
def call(caller: Caller) -> Any:
    """Return a function that calls cudnnRNNForward of an operation with an RNN descriptor."""
    return lambda operation, descriptor: Called(caller, sized(caller, operation))(rnnDesc=descriptor)


@shows("cudnnRNNAlgo_t/c05", f"{BUILD}/c02", f"{BUILD}/c04")
def test_calls_without_the_plan_they_need(cudnn: Any, handle: Any, refuses: Callable[..., bool], call: Any) -> None:
    """A call is refused before a plan is made, with another number of sequences, and once a setter has changed the
    network.

    It runs after a new plan.
    """
    spec = network(rnn.GRU, algo=rnn.DYNAMIC, layers=1)
    operation = forward(spec, lengths=LENGTHS)
    descriptor = made(cudnn, spec)
    refuses(BAD_PARAM, "cudnnRNNAlgo_t/c05", call, operation, descriptor)
    cudnn.cudnnBuildRNNDynamic(handle, descriptor, len(LENGTHS))
    call(operation, descriptor)
    refuses(BAD_PARAM, "cudnnRNNAlgo_t/c05", call, forward(spec, lengths=(3, 3, 3)), descriptor)
    refuses(NOT_SUPPORTED, "cudnnRNNForward/c41", call, forward(spec, lengths=(3, 2)), descriptor)
    cudnn.cudnnSetRNNMatrixMathType(descriptor, rnn.DEFAULT)
    refuses(BAD_PARAM, "cudnnRNNAlgo_t/c05", call, operation, descriptor)
    cudnn.cudnnBuildRNNDynamic(handle, descriptor, 3)
    call(forward(spec, lengths=(3, 3, 3)), descriptor)
