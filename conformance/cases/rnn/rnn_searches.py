"""Holds cases of the searches for algorithms of recurrent networks, and of their results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnRNNAlgo_t, cudnnStatus_t
from dualdnn.api.operations import BackendError
from dualdnn.api.operations.rnn import RNNClipSpec
from dualdnn.api.status import BAD_PARAM, EXECUTION_FAILED, NOT_SUPPORTED
from dualdnn.conformance.calls.rnn_before_8 import LegacyCaller
from dualdnn.conformance.cases.rnn import rnn_descriptors as rnn
from dualdnn.conformance.cases.rnn.rnn_backward import training
from dualdnn.conformance.cases.rnn.rnn_forward import PACKED, forward
from dualdnn.conformance.cases.rnn.rnn_legacy import FINDS, plain
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import POISON, prepare

INFERENCE, TRAINING, DATA, WEIGHTS = FINDS
SUCCESS = cudnnStatus_t.CUDNN_STATUS_SUCCESS
FULL = (3, 3)
LIMITS = {INFERENCE: ("cudnnGetRNNForwardInferenceAlgorithmMaxCount",), TRAINING: ("cudnnGetRNNForwardTrainingAlgorithmMaxCount",),
          DATA: ("cudnnGetRNNBackwardDataAlgorithmMaxCount",), WEIGHTS: ()}  # fmt: skip


class Search:
    """Runs a search of one call on its own memory."""

    def __init__(self, cudnn: Any, handle: Any, name: Any, spec: Any, lengths: Any = FULL, null: Any = ()) -> None:
        self.cudnn, self.handle, self.name = cudnn, handle, name
        first, data, weights = training(spec, PACKED, lengths, null=null)
        inference = forward(spec, PACKED, lengths, training=False, null=null)
        self.operation = {INFERENCE: inference, TRAINING: first, DATA: data, WEIGHTS: weights}[name]
        steps = {INFERENCE: [], TRAINING: [], DATA: [first], WEIGHTS: [first, data]}[name]
        self.memory: dict[str, Any] = {}
        for operation in (*steps, self.operation):
            for operand, bytes_ in prepare(operation, "normal", 0).items():
                self.memory.setdefault(operand, handle.to_device(bytes_))
        self.caller = LegacyCaller(cudnn, handle, False)
        for operation in steps:
            self.caller(operation, self.memory)
        self.given = self.caller.arguments(name, self.operation, self.memory)

    def __call__(self, **changes: Any) -> Any:
        """Return [(algorithm, status, time, bytes)] as the getters of performances report them."""
        count, results = getattr(self.cudnn, self.name)(*{**self.given, **changes}.values())
        assert count == len(results)
        found = [self.cudnn.cudnnGetAlgorithmPerformance(result) for result in results]
        return [(self.cudnn.cudnnGetAlgorithmDescriptor(one.algoDesc), *tuple(one)[1:]) for one in found]


BOTH = [f"{INFERENCE}/c{i:02}" for i in (2, 3, 25, 26, 27, 28, 29, 30, 32, 33, 34, 35)] + [
    *(f"{TRAINING}/c{i:02}" for i in (3, 4, 15, 21, 33, 41, 44, 45, 48, 49, 51)),
    *(f"{DATA}/c{i:02}" for i in (24, 37, 52, 57, 60, 61, 65)),
    *(f"{WEIGHTS}/c{i:02}" for i in (13, 22, 25, 26, 28, 31)),
]  # fmt: skip


@shows(*BOTH)
@pytest.mark.parametrize("name", FINDS)
def test_searches(cudnn: Any, handle: Any, name: Any) -> None:
    """Each algorithm succeeds once, in order of time. Callers may request fewer results or tries, and select a result."""
    search = Search(cudnn, handle, name, plain(cell=rnn.GRU, layers=1))
    found = search(findIntensity=1.0, requestedAlgoCount=10)
    most = [getattr(cudnn, limit)(handle, search.given["rnnDesc"]) for limit in LIMITS[name]]
    assert all(len(found) <= limit for limit in most)
    assert {algorithm for algorithm, *_ in found} == set(cudnnRNNAlgo_t)
    assert all(status == SUCCESS and time >= 0 for _, status, time, _ in found)
    assert [time for _, _, time, _ in found] == sorted(time for _, _, time, _ in found)
    assert all(nbytes <= search.operation.workspace.nbytes for *_, nbytes in found)
    assert len(search(findIntensity=7.0, requestedAlgoCount=1)) == 1
    assert len(search(findIntensity=0.0, requestedAlgoCount=10)) <= 3
    for part, whole in ((0.25, 1.0), (-0.25, -1.0), (-0.5, -3.0)):
        fewer, more = (len(search(findIntensity=share, requestedAlgoCount=10)) for share in (part, whole))
        assert 1 <= fewer < more
        assert more == len(found) if whole > 0 else more < len(found)  # A negative share searches fewer algorithms.
    search.caller(search.operation, search.memory)
    descriptor = cudnn.cudnnCreateAlgorithmDescriptor()
    cudnn.cudnnSetAlgorithmDescriptor(descriptor, found[0][0])
    cudnn.cudnnSetRNNAlgorithmDescriptor(handle, search.given["rnnDesc"], descriptor)


NULLS = "hx", "cx", "hy", "cy", "dhy", "dhx", "dcy", "dcx"


@shows(f"{INFERENCE}/c08 c11 c14 c15 c19 c22", f"{TRAINING}/c14 c15 c21 c32 c33 c39")
@pytest.mark.parametrize("null", [(), NULLS], ids=["states", "null"])
@pytest.mark.parametrize("name", [INFERENCE, TRAINING])
def test_a_search_leaves_what_the_call_computes(cudnn: Any, handle: Any, name: Any, null: Any) -> None:
    search = Search(cudnn, handle, name, plain(layers=1), null=null)
    written = [n for n in search.operation.outputs if n not in search.operation.raw and search.operation.has(n)]
    found = []
    for call in (
        lambda: search.caller(search.operation, search.memory),
        lambda: search(findIntensity=1e-9, requestedAlgoCount=1),
    ):
        for operand in written:
            search.memory[operand] = handle.to_device(np.full(search.operation.nbytes(operand), POISON, np.uint8))
        search.given |= search.caller.arguments(name, search.operation, search.memory)
        call()
        found.append([search.memory[n].to_host(np.float32, search.operation.nbytes(n) // 4) for n in written])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@shows(f"{DATA}/c18 c31 c46")
def test_a_search_without_states(cudnn: Any, handle: Any) -> None:
    """Searches run without states; the measured call changes the reserve space, so contents are not compared."""
    assert Search(cudnn, handle, DATA, plain(layers=1), null=NULLS)(requestedAlgoCount=10)


@pytest.mark.ours
@shows(f"{TRAINING}/c22 c50", f"{DATA}/c04 c18 c24 c25 c31 c37 c64", f"{WEIGHTS}/c04 c13 c28")
@pytest.mark.parametrize("null", [(), NULLS, ("hx",)], ids=["states", "null", "GRU without hx"])
@pytest.mark.parametrize("name", [TRAINING, DATA, WEIGHTS])
def test_a_search_with_one_run_is_the_call(
    cudnn: Any, handle: Any, monkeypatch: pytest.MonkeyPatch, name: Any, null: Any
) -> None:
    """A search that runs an algorithm once reads and writes the same memory as the call."""

    def once(operation: Any, operands: Any, stream: Any, _timed: Any) -> float:
        handle.backend.prepare(operation)(operands, stream)
        return 1.0

    monkeypatch.setattr(handle.backend, "algorithm_time", once)
    search = Search(cudnn, handle, name, plain(cell=rnn.GRU if null == ("hx",) else rnn.LSTM, layers=1), null=null)
    operation, nbytes = search.operation, {n: memory.nbytes for n, memory in search.memory.items()}
    held = {n: memory.to_host(np.uint8, nbytes[n]) for n, memory in search.memory.items()}
    written = [n for n in (*operation.outputs, "reserveSpace") if n in held and operation.has(n)]
    found = []
    for call in (
        lambda: search.caller(operation, search.memory),
        lambda: search(findIntensity=1e-9, requestedAlgoCount=1),
    ):
        search.memory = {n: handle.to_device(content) for n, content in held.items()}
        search.given |= search.caller.arguments(name, operation, search.memory)
        call()
        found.append([search.memory[n].to_host(np.uint8, nbytes[n]).view(np.float32) for n in written])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.ours
@shows(f"{INFERENCE}/c25", f"{DATA}/c52", f"{WEIGHTS}/c22")
@pytest.mark.parametrize("name", FINDS)
def test_the_share_of_algorithms_that_is_tried(
    cudnn: Any, handle: Any, monkeypatch: pytest.MonkeyPatch, name: Any
) -> None:
    """A positive share counts all three algorithms, a negative one the two without a plan. At least one is tried."""
    search = Search(cudnn, handle, name, plain(cell=rnn.GRU, layers=1))
    monkeypatch.setattr(handle.backend, "algorithm_time", lambda operation, *_: 1.0 + operation.network.algo)
    every, reduced = [rnn.STANDARD, rnn.STATIC, rnn.DYNAMIC], [rnn.STANDARD, rnn.STATIC]
    for share, tried in (
        (1.0, every), (7.0, every), (math.inf, every), (0.67, every), (0.66, every[:2]), (0.34, every[:2]), (0.33, every[:1]),
        (1e-9, every[:1]), (0.0, every), (-1.0, reduced), (-2.0, reduced), (-0.51, reduced), (-0.5, every[:1]), (-1e-9, every[:1]),
    ):  # fmt: skip
        assert [algorithm for algorithm, *_ in search(findIntensity=share, requestedAlgoCount=10)] == tried, share
    for count in (1, 2, 3, 4):
        assert len(search(findIntensity=1.0, requestedAlgoCount=count)) == min(count, 3)


@pytest.mark.ours
@shows(f"{INFERENCE}/c33", f"{TRAINING}/c48", f"{DATA}/c60", f"{WEIGHTS}/c25")
@pytest.mark.parametrize("name", FINDS)
def test_what_becomes_of_each_algorithm(cudnn: Any, handle: Any, monkeypatch: pytest.MonkeyPatch, name: Any) -> None:
    """Times and failures decide; the case chooses them. Failures come last, with their workspace and without a time."""
    search = Search(cudnn, handle, name, plain(cell=rnn.GRU, layers=1))
    nbytes = {}

    def time(operation: Any, operands: Any, stream: Any, _timed: Any) -> Any:
        assert stream is handle.stream
        nbytes[operation.network.algo] = operation.nbytes("workSpace")
        if operation.network.algo == rnn.STANDARD:
            raise BackendError("a kernel that fails")
        return 20.0 - operation.network.algo

    monkeypatch.setattr(handle.backend, "algorithm_time", time)
    order = sorted((rnn.STATIC, rnn.DYNAMIC), reverse=True)
    due = [*((algo, SUCCESS, 20.0 - algo) for algo in order), (rnn.STANDARD, EXECUTION_FAILED, -1.0)]
    found = search(findIntensity=1.0, requestedAlgoCount=10)
    assert found == [(*entry, nbytes[entry[0]]) for entry in due]


@shows(f"{INFERENCE}/c36", f"{DATA}/c66", f"{WEIGHTS}/c32")
@pytest.mark.parametrize("name", FINDS)
@pytest.mark.parametrize("reason", ["lengths", "biases", "projection"])
def test_algorithms_that_do_not_take_the_network(cudnn: Any, handle: Any, name: Any, reason: str) -> None:
    """Algorithms that do not take the network come last, with their status, and are not run."""
    spec = {
        "lengths": plain(layers=1),
        "biases": plain(bias=rnn.NO_BIAS, layers=1),
        "projection": plain(projected=3, layers=1),
    }
    search = Search(cudnn, handle, name, spec[reason], (3, 2) if reason == "lengths" else FULL)
    found = search(findIntensity=1.0, requestedAlgoCount=10)
    assert [algorithm for algorithm, *_ in found] == [rnn.STANDARD, rnn.STATIC, rnn.DYNAMIC]
    assert [status for _, status, *_ in found] == [SUCCESS, NOT_SUPPORTED, NOT_SUPPORTED]
    assert [time for _, _, time, _ in found][1:] == [-1, -1]


@shows(f"{INFERENCE}/c11", f"{TRAINING}/c14", f"{DATA}/c18", f"{WEIGHTS}/c13")
@pytest.mark.parametrize("name", FINDS)
def test_states_that_are_null(cudnn: Any, handle: Any, name: Any) -> None:
    null = ("hx", "cx", "hy", "cy", "dhy", "dhx", "dcy", "dcx")
    clip = RNNClipSpec(rnn.MINMAX, rnn.PROPAGATE, -0.3, 0.2)
    assert Search(cudnn, handle, name, plain(layers=1, clip=clip), null=null)(requestedAlgoCount=1)[0][1] == SUCCESS


@shows(f"{INFERENCE}/c33", f"{TRAINING}/c48", f"{DATA}/c60", f"{WEIGHTS}/c25")
@pytest.mark.parametrize("name", FINDS)
def test_wrong_searches(cudnn: Any, handle: Any, refuses: Callable[..., bool], name: Any) -> None:
    """A count below 1, an intensity that is NaN, and NULL are refused; memory stays as it was."""
    search = Search(cudnn, handle, name, plain(cell=rnn.GRU, layers=1))
    kept = tuple(search.memory.values())

    def refused(**changes: Any) -> None:
        values = {**search.given, **changes}.values()
        refuses(BAD_PARAM, "cudnnStatus_t/c05", getattr(cudnn, name), *values, unchanged=kept)

    for count in (0, -1):
        refused(requestedAlgoCount=count)
    refused(findIntensity=math.nan)
    for memory in ("x", "y", "w", "dw", "dy", "dx", "workspace", "reserveSpace"):
        if memory in search.given:
            refused(**{memory: None})
    refuses(BAD_PARAM, "cudnnStatus_t/c05", getattr(cudnn, name), None, *tuple(search.given.values())[1:])


@shows("cudnnStatus_t/c05")
@pytest.mark.parametrize("name", [name for names in LIMITS.values() for name in names])
def test_numbers_of_results(cudnn: Any, handle: Any, refuses: Callable[..., bool], name: Any) -> None:
    descriptor = LegacyCaller(cudnn, handle, False).network(plain())
    assert getattr(cudnn, name)(handle, descriptor) >= len(cudnnRNNAlgo_t)
    refuses(BAD_PARAM, "cudnnStatus_t/c05", getattr(cudnn, name), None, descriptor)
    refuses(BAD_PARAM, "cudnnStatus_t/c05", getattr(cudnn, name), handle, None)


@shows(f"{TRAINING}/c50")
@pytest.mark.ours
def test_memory_that_is_too_small(cudnn: Any, handle: Any, refuses: Callable[..., bool]) -> None:
    """Buffers that are too small are refused; C cannot see their size."""
    search = Search(cudnn, handle, TRAINING, plain(cell=rnn.GRU, layers=1))
    for memory, clause in (("workspace", "c55"), ("reserveSpace", "c56")):
        less = search.given[memory].slice(0, search.given[f"{memory}SizeInBytes"] - 4)
        values = {**search.given, memory: less}.values()
        refuses(BAD_PARAM, f"{TRAINING}/{clause}", getattr(cudnn, TRAINING), *values)
    assert np.isfinite(search(requestedAlgoCount=1)[0][2])
