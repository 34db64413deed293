"""Holds cases of every documented call: its messages in the log, its keywords, and its answer where the device
fails."""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from dualdnn.accelerated.solver import plan_by
from dualdnn.api import api_log
from dualdnn.api import cudnn as api
from dualdnn.api.descriptors import DESCRIPTORS
from dualdnn.api.document import Function, Parameter, functions
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.api.operations import BackendError, PoolingForward, TensorSpec
from dualdnn.api.operations.specs import FLOAT, PoolingSpec
from dualdnn.api.status import ALLOC_FAILED, BAD_PARAM, EXECUTION_FAILED, INTERNAL_ERROR, NOT_INITIALIZED, CudnnError
from dualdnn.conformance.calls.caller import function_of
from dualdnn.conformance.cases.every_operation import SAMPLES, ready
from dualdnn.conformance.cases.wrong_arguments import right
from dualdnn.conformance.marks import shows
from dualdnn.conformance.scope import clauses
from dualdnn.conformance.solvers import divided_among
from dualdnn.conformance.trial import prepare

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.suite.evidence import Evidence
    from dualdnn.conformance.trial import Trial

pytestmark = pytest.mark.ours
RUNNING = api.CUDNN_STATUS_RUNTIME_IN_PROGRESS
CALLED = [function for function in functions().values() if function.arguments]


@pytest.fixture
def messages(logged: Any) -> list[Any]:
    """Collect the logged messages until the end of the case."""
    return logged(api.CUDNN_SEV_INFO_EN)


def text_of(parameter: Parameter, value: Any) -> str:
    """Return the text of the log for an argument."""
    base = parameter.base_type
    if value is None:
        return f"{parameter.name}: location={parameter.memory}; addr=NULL;"
    if parameter.memory == "device":
        return f"{parameter.name}: location=dev; addr={value.address};"
    if base in ENUMERATIONS and not isinstance(value, list):
        named = f"{value.name} ({int(value)})" if type(value) is ENUMERATIONS[base] else f"invalid ({value!r})"
        return f"{parameter.name}: type={base}; val={named};"
    if base in ENUMERATIONS:
        return f"{parameter.name}: type={base}; val=invalid ({value!r});"
    return f"{parameter.name}: type={base}; val={value.spec if base in DESCRIPTORS and not isinstance(value, list) else value!r};"


def refused_first(function: Function, handle: Any, memory: Any) -> list[Any]:
    """Return arguments with NULL as the first; each of the others is valid alone."""
    return [None, *(right(parameter, handle, memory) for parameter in function.arguments[1:])]


@shows("cudnnSetCallback/c05")
def test_the_log_has_every_call_and_every_argument(cudnn: Any, handle: Any, messages: Any) -> None:
    memory = handle.allocate(64)
    for function in CALLED:
        if function.name == "cudnnSetCallback":  # This call ends the log.
            continue
        values, told = refused_first(function, handle, memory), len(messages)
        with contextlib.suppress(CudnnError):  # A few calls accept NULL.
            getattr(cudnn, function.name)(*values)
        severity, _, metadata, text = messages[told]
        first, *lines = text.split("\0")[: len(values) + 1]
        assert severity == api.CUDNN_SEV_INFO and metadata.handle is None and metadata.cudnnStatus == 0
        assert first == f"CuDNN (v8003) function {function.name}() called:"
        assert [line.strip() for line in lines] == [
            text_of(p, v) for p, v in zip(function.arguments, values, strict=True)
        ]


@shows("cudnnSetCallback/c05 c16 c17")
def test_the_log_has_the_time(cudnn: Any, messages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the arguments, the log has the clock time, and the time since the start in days to seconds."""
    monkeypatch.setattr("dualdnn.api.api_log._STARTED", time.monotonic() - (((2 * 24 + 3) * 60 + 4) * 60 + 5.2))
    before = datetime.datetime.now()
    cudnn.cudnnCreateTensorDescriptor()
    _, _, metadata, text = messages[-1]
    called, stamp, where, *rest = text.split("\0")
    clock, since = re.fullmatch(r"Time: (\S+) \((.*) since start\)", stamp).groups()
    assert before <= datetime.datetime.fromisoformat(clock) <= datetime.datetime.now()
    assert since in ("2d+3h+4m+5s", "2d+3h+4m+6s") and metadata.time_delta in (183845, 183846)
    assert (
        called.endswith("cudnnCreateTensorDescriptor() called:") and where.startswith("Process=") and rest == ["", ""]
    )
    assert metadata.cudnn_version == 8003 and metadata.cudaDeviceId == 0


@shows("cudnnSetCallback/c05")
@pytest.mark.parametrize(
    "sample", ["ActivationForward", "OperationGraph", "ScaleBiasActivationConvBnstats", "MultiHeadAttnTraining"]
)
def test_the_log_has_calls_that_compute(caller: Caller, messages: Any, sample: str) -> None:
    """A call that computes logs one message with its handle, also when it repeats an earlier call."""
    operation = ready(caller, sample)
    memory = {name: caller.handle.to_device(content) for name, content in prepare(operation, "normal", 0).items()}
    for _ in range(2):
        told = len(messages)
        caller(operation, memory)
        named = f"function {function_of(type(operation))}() called"
        found = [message for message in messages[told:] if named in message[3]]
        assert len(found) == 1 and found[0][2].handle is caller.handle and found[0] is messages[-1]


@shows("cudnnSetCallback/c03 c05")
def test_what_a_callback_calls_is_not_logged(cudnn: Any) -> None:
    """A call inside a callback is not logged, because that would recurse for ever; later calls are. A failing callback
    does not disturb the call."""
    texts: list[str] = []

    def callback(_severity: Any, _udata: Any, _metadata: Any, text: str) -> None:
        texts.append(text)
        if len(texts) < 50:
            cudnn.cudnnDestroyTensorDescriptor(cudnn.cudnnCreateTensorDescriptor())
        raise RuntimeError("a callback of the user")

    cudnn.cudnnSetCallback(api.CUDNN_SEV_INFO_EN, None, callback)
    try:
        made = [cudnn.cudnnCreateTensorDescriptor() for _ in range(3)]
    finally:
        cudnn.cudnnSetCallback(0, None, None)
    assert ["cudnnCreateTensorDescriptor" in text for text in texts] == [True] * 3 + [False]  # The last ends the log.
    assert all(one is not None for one in made)


def clauses_of_failure(name: str) -> set[str]:
    """Return the clauses that a failed kernel of a call violates."""
    found = {
        one.id for one in clauses().values() if one.function == name and one.status == "CUDNN_STATUS_EXECUTION_FAILED"
    }
    return found or {"cudnnStatus_t/c08"}


FAILURES = {
    BackendError("an access that is out of bounds"): EXECUTION_FAILED,
    MemoryError("no bytes left"): ALLOC_FAILED,
}


@shows("cudnnStatus_t/c08")
@pytest.mark.parametrize("sample", SAMPLES)
def test_kernels_that_fail(caller: Caller, monkeypatch: pytest.MonkeyPatch, evidence: Evidence, sample: Any) -> None:
    """A failing kernel, or a host without memory, gives a clause of the call's section that lists the status."""
    operation = ready(caller, sample)
    memory = {name: caller.handle.to_device(content) for name, content in prepare(operation, "normal", 0).items()}
    prepare_call = caller.handle.backend.prepare
    name = function_of(type(operation))
    for failure, status in FAILURES.items():

        def fails(operands: Any, stream: Any, failure: Exception = failure) -> None:
            raise failure

        caller.handle.answers.clear()
        with monkeypatch.context() as patched:
            patched.setattr(
                caller.handle.backend,
                "prepare",
                lambda asked, fails=fails: fails if asked == operation else prepare_call(asked),
            )
            with pytest.raises(CudnnError) as refused:
                caller(operation, memory)
        error = refused.value
        due = clauses_of_failure(name) if status == EXECUTION_FAILED else {functions()[name].out_of_memory}
        assert error.status == status and error.clause in due
        assert error.function == name and str(failure) in str(error)
        evidence.clauses.add(error.clause)


CREATED = {
    parameter.base_type: function.name
    for function in functions().values()
    for parameter in function.parameters
    if function.name.startswith("cudnnCreate") and parameter.base_type in DESCRIPTORS and parameter.is_returned
    if not any(argument.base_type in DESCRIPTORS for argument in function.arguments)
}


@shows("cudnnStatus_t/c04")
@pytest.mark.parametrize("kind", CREATED)
def test_a_descriptor_for_which_there_is_no_memory(
    cudnn: Any, evidence: Evidence, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """Without memory the status is the section's, and the next call creates a descriptor."""
    call, arguments = getattr(cudnn, CREATED[kind]), functions()[CREATED[kind]].arguments
    values = [right(parameter, None, None) for parameter in arguments]

    def exhausted(*_: Any) -> None:
        raise MemoryError("no bytes left")

    with monkeypatch.context() as patched:
        patched.setattr(DESCRIPTORS[kind], "__init__", exhausted)
        with pytest.raises(CudnnError) as refused:
            call(*values)
    clause = functions()[CREATED[kind]].out_of_memory
    assert (refused.value.status, refused.value.clause) == (ALLOC_FAILED, clause)
    evidence.clauses.add(clause)
    assert call(*values) is not None


@shows("cudnnQueryRuntimeError/c16 c18 c22")
@pytest.mark.parametrize("mode", list(api.cudnnErrQueryMode_t), ids=lambda mode: mode.name)
def test_runtime_errors_while_work_is_pending(
    cudnn: Any, handle: Any, refuses: Callable[..., bool], monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    """BLOCKING waits and may fail meanwhile; NONBLOCKING says whether work is left; RAWCODE reads the error at once."""
    waits = mode == api.CUDNN_ERRQUERY_BLOCKING
    error = api.CUDNN_STATUS_RUNTIME_FP_OVERFLOW
    stream = handle.new_stream()
    cudnn.cudnnSetStream(handle, stream)
    asked: list[Any] = []

    def pending(stream: Any) -> bool:
        asked.append(stream)
        return False

    def failing(stream: Any) -> None:
        raise BackendError("an earlier kernel")

    handle.runtime_error = error
    with monkeypatch.context() as patched:
        patched.setattr(handle.backend, "finished", pending)
        patched.setattr(handle.backend, "synchronize", failing)
        if waits:
            refuses(INTERNAL_ERROR, "cudnnQueryRuntimeError/c22", cudnn.cudnnQueryRuntimeError, handle, mode, None)
        else:
            said = cudnn.cudnnQueryRuntimeError(handle, mode, None)
            asks = mode == api.CUDNN_ERRQUERY_NONBLOCKING
            assert said == (RUNNING if asks else error)
            assert asked == ([handle.stream] if asks else [])
            handle.runtime_error = error
    assert cudnn.cudnnQueryRuntimeError(handle, mode, None) == error
    cudnn.cudnnSetStream(handle, None)


@shows("cudnnDestroy/c01 c04")
def test_a_destroyed_handle_waits_for_its_stream(subject: Subject, cudnn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Destroying a handle waits for the device's stream before anything is closed."""
    handle = subject.new_handle()
    cudnn.cudnnSetStream(handle, handle.new_stream())
    handle.stream, happened = object(), []
    close = handle.backend.close
    monkeypatch.setattr(handle.backend, "synchronize", lambda stream: happened.append(stream))
    monkeypatch.setattr(handle.backend, "close", lambda: happened.append("closed") or close())
    cudnn.cudnnDestroy(handle)
    assert happened == [handle.stream, "closed"] and not handle.alive and not handle.answers


@shows("cudnnHandle_t/c02")
def test_a_handle_ends_with_its_statement(subject: Subject, cudnn: Any, refuses: Callable[..., bool]) -> None:
    with subject.new_handle() as handle:
        assert cudnn.cudnnGetStream(handle) is None
    refuses(NOT_INITIALIZED, "cudnnStatus_t/c03", cudnn.cudnnGetStream, handle)
    with subject.new_handle() as handle:
        cudnn.cudnnDestroy(handle)  # The handle is destroyed only once.
    assert not handle.alive and repr(handle).endswith(", destroyed>")


@shows("cudnnPoolingForward/c01")
def test_solvers_that_are_named(
    subject: Subject, caller: Caller, trial: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment puts named solvers first, where they serve the call. Unknown names are refused.

    A plan can be made by one solver alone, if that serves.
    """
    if not subject.name.startswith("accelerated"):
        pytest.skip("it has no solvers")
    backend = caller.handle.backend
    x, y = TensorSpec(FLOAT, (2, 3, 4, 4), (50, 16, 4, 1)), TensorSpec(FLOAT, (2, 3, 2, 2), (12, 4, 2, 1))
    maxima = api.CUDNN_POOLING_MAX, api.CUDNN_NOT_PROPAGATE_NAN
    usual, rare = (
        PoolingForward(PoolingSpec(*maxima, window, (0, 0), stride), 1.0, 0.0, x, y)
        for window, stride in (((2, 2), (2, 2)), ((3, 2), (1, 2)))
    )
    preferred, other = backend.solvers(usual)
    assert backend.solvers(rare) == (other,)

    def solver_of(operation: Any) -> str:
        with divided_among(caller.handle, 1):  # A new device has no earlier plans.
            return str(backend.plan(operation).solver)

    assert (solver_of(usual), solver_of(rare)) == (preferred, other)
    for names in (other, f" {other} , ", f"{other},activation.elementwise"):
        monkeypatch.setenv("DUALDNN_SOLVER", names)
        assert (solver_of(usual), solver_of(rare)) == (other, other)
    trial(usual)
    monkeypatch.setenv("DUALDNN_SOLVER", preferred)
    assert (solver_of(usual), solver_of(rare)) == (preferred, other)
    for names in ("another", f"{other},another"):
        monkeypatch.setenv("DUALDNN_SOLVER", names)
        with pytest.raises(ValueError, match="DUALDNN_SOLVER names another; there are "):
            solver_of(usual)
    monkeypatch.setenv("DUALDNN_SOLVER", "")
    assert plan_by(usual, backend.device, other).solver == other
    with pytest.raises(ValueError, match=r"softmax\.tiles is not one of"):
        plan_by(usual, backend.device, "softmax.tiles")
    with pytest.raises(ValueError, match=f"{preferred} does not serve"):
        plan_by(rare, backend.device, preferred)


@shows("cudnnCreate/c01", "cudnnCreate/c12")
def test_the_backend_of_a_handle(
    subject: Subject, cudnn: Any, refuses: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backend is the argument, else the environment variable, else the available device."""
    if subject.name != "reference":
        pytest.skip("what it says has nothing to do with the subject")
    created = cudnn.cudnnCreate

    def opened(**asked: Any) -> str:
        with created(**asked) as handle:
            return str(handle.backend.name)

    monkeypatch.setenv("DUALDNN_BACKEND", "reference")
    assert opened() == opened(backend="reference") == "reference"
    assert opened(backend="accelerated", device="emulated") == "accelerated"
    assert opened(backend="crosscheck", device="emulated") == "crosscheck"
    refuses(BAD_PARAM, "cudnnStatus_t/c05", created, device="emulated")  # The reference has no device.
    refuses(BAD_PARAM, "cudnnStatus_t/c05", created, backend="reference", device="gpu")
    for backend in ("", "Reference", 1, b"reference"):
        refuses(BAD_PARAM, "cudnnStatus_t/c05", created, backend=backend)
    for device in ("", "GPU", 0, b"gpu"):
        refuses(BAD_PARAM, "cudnnStatus_t/c05", created, backend="accelerated", device=device)
    monkeypatch.setenv("DUALDNN_BACKEND", "crosscheck")
    assert opened(device="emulated") == "crosscheck"
    monkeypatch.setenv("DUALDNN_BACKEND", "another")
    refuses(BAD_PARAM, "cudnnStatus_t/c05", created)
    for unset in (False, True):
        monkeypatch.setenv("DUALDNN_BACKEND", "")
        if unset:
            monkeypatch.delenv("DUALDNN_BACKEND")
        for usable in (False, True):
            monkeypatch.setattr("dualdnn.accelerated.gpu_is_usable", lambda usable=usable: usable)
            assert opened(device="emulated") == "accelerated"
            if not usable:
                assert opened() == "reference"
    monkeypatch.setattr("dualdnn.accelerated.AcceleratedBackend", no_device)
    monkeypatch.setattr("dualdnn.accelerated.gpu_is_usable", lambda: True)
    refuses(NOT_INITIALIZED, "cudnnCreate/c12", created)
    refuses(NOT_INITIALIZED, "cudnnCreate/c12", created, backend="accelerated")


def no_device(device: str, _reproducible: str) -> None:
    from dualdnn.accelerated import DeviceUnavailable

    assert device == "gpu"
    raise DeviceUnavailable("there is none")


@shows("cudnnSetCallback/c05")
@pytest.mark.parametrize("value", [None, "", "0", "1", "2"])
def test_the_log_when_the_library_is_loaded(subject: Subject, monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    """CUDNN_LOGINFO_DBG=1 switches the info channel on, and nothing else does."""
    if subject.name != "reference":
        pytest.skip("the log has nothing to do with the subject")
    monkeypatch.setenv("CUDNN_LOGINFO_DBG", value or "")
    if value is None:
        monkeypatch.delenv("CUDNN_LOGINFO_DBG")
    found = importlib.util.spec_from_file_location("dualdnn.api.log_again", api_log.__file__)
    loaded = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, found.name, loaded)
    found.loader.exec_module(loaded)
    assert loaded.active is (value == "1") and loaded.state.mask == (api.CUDNN_SEV_INFO_EN if value == "1" else 0)


@shows("cudnnCreate/c09")
def test_a_child_of_the_process(cudnn: Any, handle: Any) -> None:
    """A handle that a thread of the parent is using is free in a forked child."""
    held, done = threading.Event(), threading.Event()

    def use() -> None:
        with handle.lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=use)
    thread.start()
    while thread.is_alive() and not held.wait(0.05):
        pass
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = int(cudnn.cudnnGetStream(handle) is not None)
        finally:
            os._exit(status)
    done.set()
    thread.join()
    until = time.monotonic() + 20
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child waits for a thread that it does not have")
        time.sleep(0.005)
    assert ended[1] == 0


@shows("cudnnConvolutionFwdAlgoPerf_t/c05")
def test_times_of_algorithms(subject: Subject, handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are in milliseconds and exclude the preparation before the run."""
    if subject.name != "reference":
        pytest.skip("a device has a clock of its own")

    def prepared(operation: Any) -> Any:
        time.sleep(0.2)
        return lambda operands, stream: time.sleep(0.03)

    monkeypatch.setattr(handle.backend, "prepare", prepared)
    assert 30 <= handle.backend.algorithm_time(None, [], None) < 200
