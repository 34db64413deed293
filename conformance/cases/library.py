"""Holds cases of the library, its handle, its streams and its log."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api import cudnn as api
from dualdnn.api.descriptors import TensorDescriptor
from dualdnn.api.document import VERSION
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.api.enumerations import cudnnErrQueryMode_t as Query
from dualdnn.api.operations import ActivationForward, ActivationSpec, BackendError, TensorSpec
from dualdnn.api.operations.specs import FLOAT
from dualdnn.api.status import BAD_PARAM, EXECUTION_FAILED, MAPPING_ERROR, NOT_INITIALIZED, CudnnError
from dualdnn.conformance.marks import needs, shows
from dualdnn.conformance.trial import attempt

if TYPE_CHECKING:
    from pathlib import Path

    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject

# Each name of an enumeration has the number that the public headers give it.
ENUMERATORS = json.loads(
    resources.files("dualdnn.conformance").joinpath("enumerators.json").read_text(encoding="utf-8")
)
SPEC = TensorSpec.packed(FLOAT, (2, 3, 4, 5))
OPERATION = ActivationForward(
    ActivationSpec(api.CUDNN_ACTIVATION_RELU, api.CUDNN_PROPAGATE_NAN, 0.0), 1.0, 0.0, SPEC, SPEC
)


@shows("cudnnCreate/c01 c10 c19", "cudnnHandle_t/c01 c03", "cudnnDestroy/c01 c04")
@needs("computes", "this subject computes on a GPU only, and there is none")
def test_create_and_destroy(subject: Subject, cudnn: Any) -> None:
    handle = subject.new_handle()
    assert handle is not None
    assert cudnn.cudnnDestroy(handle) is None


@shows("cudnnCreate/c06", "cudnnHandle_t/c05")
def test_several_handles_keep_their_streams(subject: Subject, cudnn: Any, handle: Any) -> None:
    other = subject.new_handle()
    stream = other.new_stream()
    cudnn.cudnnSetStream(other, stream)
    assert cudnn.cudnnGetStream(handle) is None
    assert cudnn.cudnnGetStream(other) is stream
    cudnn.cudnnDestroy(other)
    assert cudnn.cudnnGetStream(handle) is None


@shows("cudnnHandle_t/c02 c03", "cudnnStatus_t/c03", "cudnnCreate/c03")
@needs("survives_stray_pointers", "a destroyed handle is a stray pointer to a foreign library")
def test_a_destroyed_handle_is_not_initialized(subject: Subject, cudnn: Any, refuses: Callable[..., bool]) -> None:
    handle, x = subject.new_handle(), cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(x, 0, 0, 1, 1, 1, 1)
    memory = handle.to_device(np.ones(1, np.float32))
    for _ in range(2):  # The handle remembers the first call.
        cudnn.cudnnScaleTensor(handle, x, memory, 2.0)
    cudnn.cudnnDestroy(handle)
    for call in (cudnn.cudnnGetStream, cudnn.cudnnDestroy):
        refuses(NOT_INITIALIZED, "cudnnStatus_t/c03", call, handle)
    refuses(NOT_INITIALIZED, "cudnnStatus_t/c03", cudnn.cudnnScaleTensor, handle, x, memory, 2.0)
    if subject.is_python:
        with pytest.raises(CudnnError):
            handle.allocate(4)


@shows("cudnnGetStream/c02 c04")
def test_stream_is_null_by_default_and_again_after_reset(cudnn: Any, handle: Any) -> None:
    assert cudnn.cudnnGetStream(handle) is None
    stream = handle.new_stream()
    cudnn.cudnnSetStream(handle, stream)
    assert cudnn.cudnnGetStream(handle) is stream
    cudnn.cudnnSetStream(handle, None)
    assert cudnn.cudnnGetStream(handle) is None


@pytest.mark.ours
@shows("cudnnGetStream/c01")
def test_the_stream_that_was_set_comes_back(cudnn: Any, handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream comes back as it was set, for example a number, not as the backend's object."""
    number, adopted = 12345, handle.new_stream()
    monkeypatch.setattr(handle.backend, "stream", lambda value: value and adopted)
    cudnn.cudnnSetStream(handle, number)
    assert cudnn.cudnnGetStream(handle) is number and handle.stream is adopted
    cudnn.cudnnSetStream(handle, None)


@shows("cudnnSetStream/c01 c02 c04 c07", "cudnnGetStream/c01")
def test_work_in_a_stream_runs_in_order(cudnn: Any, caller: Caller) -> None:
    """Each call reads what the one before it wrote; only the stream orders them."""
    stream = caller.handle.new_stream()
    cudnn.cudnnSetStream(caller.handle, stream)
    memory = caller.handle.to_device(np.full(SPEC.count, 1.0, np.float32))
    tensor = caller.tensor(SPEC)
    relu = caller.descriptor(OPERATION.activation)
    for _ in range(20):
        cudnn.cudnnActivationForward(caller.handle, relu, 0.5, tensor, memory, 1.0, tensor, memory)
    stream.synchronize()
    assert np.allclose(memory.to_host(np.float32, SPEC.count), 1.5**20, rtol=1e-5)


@needs("is_python", "a foreign stream is a stray pointer to a foreign library")
def test_stream_of_another_device(cudnn: Any, handle: Any, refuses: Callable[..., bool]) -> None:
    class ForeignStream:
        def synchronize(self) -> None: ...

    refuses(MAPPING_ERROR, "cudnnSetStream/c06", cudnn.cudnnSetStream, handle, ForeignStream())
    refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnSetStream, handle, "not a stream")
    assert cudnn.cudnnGetStream(handle) is None


@shows("cudnnGetVersion/c01")
def test_version(subject: Subject, cudnn: Any) -> None:
    version = cudnn.cudnnGetVersion()
    scale = 10000 if version >= 90000 else 1000
    parts = [cudnn.cudnnGetProperty(kind) for kind in api.libraryPropertyType]
    assert version == parts[0] * scale + parts[1] * 100 + parts[2]
    if subject.cites_clauses:
        assert tuple(parts) == VERSION


@shows("cudnnGetProperty/c01 c03")
def test_property(subject: Subject, cudnn: Any) -> None:
    major, minor, patch = (
        cudnn.cudnnGetProperty(kind) for kind in (api.MAJOR_VERSION, api.MINOR_VERSION, api.PATCH_LEVEL)
    )
    assert major >= 8 and minor >= 0 and patch >= 0
    if subject.cites_clauses:
        assert (major, minor, patch) == (8, 0, 3)


@shows("cudnnGetCudartVersion/c01")
def test_cudart_version(cudnn: Any) -> None:
    """A toolkit's number is major * 1000 + minor * 10; a build without CUDA returns 0."""
    version = cudnn.cudnnGetCudartVersion()
    assert version == 0 or (version >= 9000 and version % 10 == 0)


@shows("cudnnGetErrorString/c01-c04", "cudnnStatus_t/c01")
def test_error_strings(cudnn: Any) -> None:
    for status in api.cudnnStatus_t:
        assert cudnn.cudnnGetErrorString(status) == status.name
    for number in (-1, 15, 10**6):
        assert cudnn.cudnnGetErrorString(number) == "CUDNN_UNKNOWN_STATUS"
    assert cudnn.cudnnGetErrorString(0) == "CUDNN_STATUS_SUCCESS"


@pytest.mark.parametrize("enumeration", ENUMERATORS)
@needs(
    "is_python", "the numbers of a C library are in its header; its descriptors show them by the cases of each family"
)
def test_enumerators_have_the_numbers_of_the_headers(cudnn: Any, enumeration: Any) -> None:
    """The enumerators have these numbers as types and as constants (docs/errata.md, D016)."""
    numbers = ENUMERATORS[enumeration]
    assert {member.name: member.value for member in ENUMERATIONS[enumeration]} == numbers
    assert {name: int(getattr(cudnn, name)) for name in numbers} == numbers


VERSIONED = ("OpsInfer", "OpsTrain", "AdvInfer", "AdvTrain")  # parts of the library


@shows("cudnnOpsInferVersionCheck/c01 c03", "cudnnOpsTrainVersionCheck/c01 c02", "cudnnAdvInferVersionCheck/c01 c02",
       "cudnnAdvTrainVersionCheck/c01 c02")  # fmt: skip
@pytest.mark.parametrize("part", VERSIONED)
def test_version_check(cudnn: Any, part: Any) -> None:
    assert getattr(cudnn, f"cudnn{part}VersionCheck")() is None


@shows(
    *(f"cudnn{part}VersionCheck/c01" for part in VERSIONED),
    "cudnnOpsTrainVersionCheck/c03",
    "cudnnAdvTrainVersionCheck/c03",
)
@pytest.mark.parametrize("part", VERSIONED)
@needs("is_python", "only of our own package a part can be given another version")
def test_versions_that_differ(
    cudnn: Any, refuses: Callable[..., bool], monkeypatch: pytest.MonkeyPatch, part: Any
) -> None:
    monkeypatch.setattr("dualdnn.reference.__version__", "0.0.0")
    clause = f"cudnn{part}VersionCheck/{'c04' if part == 'OpsInfer' else 'c03'}"
    refuses(api.CUDNN_STATUS_VERSION_MISMATCH, clause, getattr(cudnn, f"cudnn{part}VersionCheck"))


@shows("cudnnQueryRuntimeError/c12 c16 c17 c20", "cudnnErrQueryMode_t/c01")
@pytest.mark.parametrize("mode", list(Query), ids=lambda m: m.name)
def test_runtime_error_is_success_when_nothing_failed(cudnn: Any, handle: Any, mode: Any) -> None:
    handle.synchronize()
    assert cudnn.cudnnQueryRuntimeError(handle, mode, None) == api.CUDNN_STATUS_SUCCESS


@shows("cudnnQueryRuntimeError/c16 c17")
@needs("is_python", "only our handles can be given an error to report")
def test_runtime_error_is_reported_once(cudnn: Any, handle: Any) -> None:
    overflow = api.CUDNN_STATUS_RUNTIME_FP_OVERFLOW
    handle.runtime_error = overflow
    assert cudnn.cudnnQueryRuntimeError(handle, Query.CUDNN_ERRQUERY_BLOCKING, None) == overflow
    assert cudnn.cudnnQueryRuntimeError(handle, Query.CUDNN_ERRQUERY_RAWCODE, None) == api.CUDNN_STATUS_SUCCESS


def test_runtime_error_arguments(cudnn: Any, handle: Any, refuses: Callable[..., bool]) -> None:
    raw = Query.CUDNN_ERRQUERY_RAWCODE
    for clause, *given in (("c21", None, raw, None), ("c21", handle, 3, None), ("c19", handle, raw, object())):
        refuses(BAD_PARAM, f"cudnnQueryRuntimeError/{clause}", cudnn.cudnnQueryRuntimeError, *given)


@shows("cudnnQueryRuntimeError/c01", "cudnnStatus_t/c05")
@needs("knows_sizes", "a foreign library cannot know the sizes of buffers")
def test_arguments_are_checked_before_anything_runs(cudnn: Any, caller: Caller, refuses: Callable[..., bool]) -> None:
    """A buffer that is too small, freed, read-only or no memory at all is refused, and nothing is written."""
    memory = caller.handle.to_device(np.ones(SPEC.count, np.float32))
    small = caller.handle.allocate(SPEC.nbytes - 1)
    freed = caller.handle.allocate(SPEC.nbytes)
    freed.free()
    relu, tensor = caller.descriptor(OPERATION.activation), caller.tensor(SPEC)
    for bad in (small, freed, "text", -5, 1.5, object()):
        arguments = (caller.handle, relu, 1.0, tensor, memory, 0.0, tensor, bad)
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnActivationForward, *arguments, unchanged=(memory,))


@shows("cudnnStatus_t/c08", "cudnnActivationForward/c17", "cudnnSetCallback/c09", "cudnnQueryRuntimeError/c02")
@needs("is_python", "only our backends can be made to fail")
def test_a_kernel_that_fails_is_reported_as_fatal(
    cudnn: Any,
    caller: Caller,
    refuses: Callable[..., bool],
    logged: Callable[..., list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call that passes all checks and fails while it runs returns a fatal status, and leaves memory as it was.

    A GPU's context would not survive a failing kernel, and the emulated device refuses what would make one fail. So the
    case injects the failure between the call and the backend.
    """

    def fails(operands: Any, stream: Any) -> None:
        raise BackendError("an access that is out of bounds")

    monkeypatch.setattr(caller.handle.backend, "prepare", lambda operation: fails)
    messages = logged(0)
    relu, tensor = caller.descriptor(OPERATION.activation), caller.tensor(SPEC)
    memory = caller.handle.to_device(np.arange(SPEC.nbytes, dtype=np.uint8))
    arguments = (caller.handle, relu, 1.0, tensor, memory, 0.0, tensor, memory)
    call = cudnn.cudnnActivationForward
    refuses(EXECUTION_FAILED, "cudnnActivationForward/c17", call, *arguments, unchanged=(memory,))
    assert [message[0] for message in messages] == [api.CUDNN_SEV_FATAL]
    assert messages[0][2].cudnnStatus == EXECUTION_FAILED


@shows("cudnnCreate/c09")
@needs("cites_clauses", "one handle per thread is the recommendation for a foreign library")
def test_threads_share_a_handle_safely(caller: Caller) -> None:
    def work(seed: int) -> list[str]:
        results = (attempt(caller, OPERATION, seed=seed * 10 + n) for n in range(5))
        return [result.explanation() for result in results if not result.passed]

    with ThreadPoolExecutor(4) as pool:
        assert not any(pool.map(work, range(4)))


@shows("cudnnGetCallback/c01-c06", "cudnnSetCallback/c01 c10 c14 c15 c19")
def test_callback_state(cudnn: Any, logged: Callable[..., list[Any]]) -> None:
    def callback(*_message: object) -> None: ...

    cudnn.cudnnSetCallback(api.CUDNN_SEV_ERROR_EN, None, callback)
    state = cudnn.cudnnGetCallback()
    assert state.mask == api.CUDNN_SEV_ERROR_EN
    assert state.udata is None
    assert state.fptr is callback
    cudnn.cudnnSetCallback(api.CUDNN_SEV_WARNING_EN, None, None)
    assert tuple(cudnn.cudnnGetCallback()) == (api.CUDNN_SEV_WARNING_EN, None, None)


@shows("cudnnSetCallback/c02 c04")
@pytest.mark.parametrize(
    "mask, kept", [(0, 0), (1, 0), (2, 2), (4, 4), (8, 8), (0xE, 0xE), (0xF, 0xE), (0x10, 0), (0xFFFFFFFF, 0xE)]
)
def test_mask_has_a_bit_for_each_severity(cudnn: Any, logged: Callable[..., list[Any]], mask: int, kept: int) -> None:
    cudnn.cudnnSetCallback(mask, None, None)
    assert cudnn.cudnnGetCallback().mask == kept
    for severity in ("ERROR", "WARNING", "INFO"):
        assert getattr(api, f"CUDNN_SEV_{severity}_EN") == 1 << getattr(api, f"CUDNN_SEV_{severity}")


@shows("cudnnSetCallback/c03 c05 c08 c12 c13 c16-c18", "cudnnSeverity_t/c01")
def test_info_channel_reports_calls(cudnn: Any, logged: Callable[..., list[Any]]) -> None:
    udata = ["untouched"]
    messages = logged(api.CUDNN_SEV_INFO_EN, udata)
    descriptor = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(descriptor, api.CUDNN_TENSOR_NHWC, api.CUDNN_DATA_HALF, 2, 3, 4, 5)
    cudnn.cudnnSetCallback(0, None, None)
    named = [message for message in messages if "cudnnSetTensor4dDescriptor" in message[3]]
    assert named
    severity, data, metadata, text = named[0]
    assert severity == api.CUDNN_SEV_INFO
    assert data is udata and udata == ["untouched"]
    assert metadata.time_sec > 1.5e9 and metadata.time_delta >= 0 and metadata.pid > 0 and metadata.tid > 0
    assert metadata.stream is None
    assert text.endswith("\0\0") and "CUDNN_DATA_HALF" in text and text.count("\0") > 3
    count = len(messages)
    cudnn.cudnnDestroyTensorDescriptor(descriptor)
    assert len(messages) == count


@shows("cudnnSetCallback/c16 c17")
def test_messages_name_process_and_thread(subject: Subject, cudnn: Any, logged: Callable[..., list[Any]]) -> None:
    """Messages name the caller's process and thread: a second thread has two other numbers."""
    messages = logged(api.CUDNN_SEV_INFO_EN)
    native = []

    def call() -> None:
        native.append(threading.get_native_id())
        cudnn.cudnnDestroyTensorDescriptor(cudnn.cudnnCreateTensorDescriptor())

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    cudnn.cudnnSetCallback(0, None, None)
    named = [message for message in messages if "TensorDescriptor" in message[3]]
    assert named
    for _, _, metadata, text in named:
        assert metadata.pid == os.getpid() and metadata.tid != os.getpid()
        if subject.is_python:
            assert metadata.tid == native[0]
            assert f"Process={os.getpid()}; Thread={native[0]};" in text


@shows("cudnnSetCallback/c16 c17")
def test_times_of_messages(cudnn: Any, logged: Callable[..., list[Any]]) -> None:
    """The absolute time is the clock's, in seconds and microseconds; the time since the start is in seconds."""
    messages, before = logged(api.CUDNN_SEV_INFO_EN), time.time()
    for _ in range(2):
        cudnn.cudnnDestroyTensorDescriptor(cudnn.cudnnCreateTensorDescriptor())
        time.sleep(0.02)
    cudnn.cudnnSetCallback(0, None, None)
    times = [m[2].time_sec + m[2].time_usec / 1e6 for m in messages]
    assert before - 1e-5 <= times[0] and times[-1] <= time.time() and times[-1] - times[0] > 0.02
    assert all(0 <= m[2].time_usec < 10**6 for m in messages)
    assert 0 <= messages[-1][2].time_delta - messages[0][2].time_delta <= 1 + (times[-1] - times[0])


@shows("cudnnSetCallback/c16 c17")
@pytest.mark.ours
def test_messages_name_handle_and_stream(cudnn: Any, handle: Any, logged: Callable[..., list[Any]]) -> None:
    """A message of a call with a handle names it and its stream, if one is set; other messages name neither."""
    messages, stream = logged(api.CUDNN_SEV_INFO_EN), handle.new_stream()
    for wanted in (None, stream):
        cudnn.cudnnSetStream(handle, wanted)
        cudnn.cudnnGetStream(handle)
        cudnn.cudnnDestroyTensorDescriptor(cudnn.cudnnCreateTensorDescriptor())
        *_, of_handle, of_others = (
            [m for m in messages if name in m[3]][-1] for name in ("GetStream", "DestroyTensor")
        )
        assert of_handle[2].handle is handle and of_handle[2].stream is wanted
        assert of_others[2].handle is None and of_others[2].stream is None
        assert {(m[2].pid, m[2].tid) for m in (of_handle, of_others)} == {(os.getpid(), threading.get_native_id())}
        named = [re.search(r"Handle=(\S+); StreamId=(\S+)\.", text).groups() for *_, text in (of_handle, of_others)]
        assert named[1] == ("NULL", "NULL") and named[0][0] != "NULL"
        assert named[0][1] not in ("NULL", named[0][0]) if wanted else named[0][1] == "NULL"
    cudnn.cudnnSetStream(handle, None)


@shows("cudnnSetCallback/c06-c08")
@pytest.mark.parametrize(
    "mask", [api.CUDNN_SEV_ERROR_EN, api.CUDNN_SEV_WARNING_EN, api.CUDNN_SEV_ERROR_EN | api.CUDNN_SEV_WARNING_EN]
)
def test_error_and_warning_channels_have_no_function(cudnn: Any, logged: Callable[..., list[Any]], mask: Any) -> None:
    messages = logged(mask)
    with pytest.raises(CudnnError):
        cudnn.cudnnSetTensor4dDescriptor(cudnn.cudnnCreateTensorDescriptor(), 0, 0, -1, 1, 1, 1)
    assert not messages


@shows("cudnnSetCallback/c11")
@pytest.mark.parametrize("destination", ["file", "stdout", "stderr", None])
@needs("is_python", "a foreign library reads its environment when it is loaded")
def test_built_in_callback_writes_where_the_environment_says(
    cudnn: Any,
    logged: Callable[..., list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: Any,
    destination: Any,
) -> None:
    target = str(tmp_path / "log.txt") if destination == "file" else destination
    if target is None:
        monkeypatch.delenv("CUDNN_LOGDEST_DBG", raising=False)
    else:
        monkeypatch.setenv("CUDNN_LOGDEST_DBG", target)
    cudnn.cudnnSetCallback(api.CUDNN_SEV_INFO_EN, None, None)
    assert isinstance(cudnn.cudnnCreateTensorDescriptor(), TensorDescriptor)
    cudnn.cudnnSetCallback(0, None, None)
    captured = capsys.readouterr()
    written = {"stdout": captured.out, "stderr": captured.err}
    if destination == "file":
        written["file"] = (tmp_path / "log.txt").read_text()
    for place, text in written.items():
        assert ("cudnnCreateTensorDescriptor() called" in text) == (place == destination)


@shows("cudnnCreateActivationDescriptor/c01 c02", "cudnnActivationDescriptor_t/c01", "cudnnDestroyActivationDescriptor/c01 c02",
       "cudnnSetActivationDescriptor/c01 c06", "cudnnGetActivationDescriptor/c01-c04 c06")  # fmt: skip
def test_activation_descriptor_round_trip(cudnn: Any) -> None:
    for mode in api.cudnnActivationMode_t:
        for nan in api.cudnnNanPropagation_t:
            descriptor = cudnn.cudnnCreateActivationDescriptor()
            cudnn.cudnnSetActivationDescriptor(descriptor, mode, nan, 0.1 + mode)
            assert tuple(cudnn.cudnnGetActivationDescriptor(descriptor)) == (mode, nan, 0.1 + mode)
            assert cudnn.cudnnDestroyActivationDescriptor(descriptor) is None


@shows("cudnnActivationDescriptor_t/c02")
@needs("survives_stray_pointers", "a fresh descriptor of a foreign library holds undefined memory")
def test_activation_descriptor_must_be_initialised(cudnn: Any, caller: Caller, refuses: Callable[..., bool]) -> None:
    fresh, tensor = cudnn.cudnnCreateActivationDescriptor(), caller.tensor(SPEC)
    memory = caller.handle.to_device(np.ones(SPEC.count, np.float32))
    arguments = (caller.handle, fresh, 1.0, tensor, memory, 0.0, tensor, memory)
    refuses(BAD_PARAM, "cudnnActivationForward/c05", cudnn.cudnnActivationForward, *arguments, unchanged=(memory,))
    refuses(BAD_PARAM, "cudnnGetActivationDescriptor/c05", cudnn.cudnnGetActivationDescriptor, fresh)
    cudnn.cudnnDestroyActivationDescriptor(fresh)
    refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnDestroyActivationDescriptor, fresh)
