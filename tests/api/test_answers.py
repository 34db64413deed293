"""Test that repeated host-side calls of Python return their earlier answers, and no stale ones."""

import contextlib
import sys
import threading
import time

import numpy as np
import pytest
from dualdnn.accelerated import records
from dualdnn.accelerated.runtime.emulated.device import EmulatedFunction
from dualdnn.api import cudnn
from dualdnn.api.enumerations import (
    cudnnConvolutionMode_t,
    cudnnDataType_t,
    cudnnMathType_t,
    cudnnSeqDataAxis_t,
    cudnnTensorFormat_t,
)
from dualdnn.api.functions import FUNCTIONS, computing, documented
from dualdnn.api.operations import SetTensor, answers, replay
from dualdnn.api.status import BAD_PARAM, CHECKS, INTERNAL_ERROR, CudnnError

FLOAT, NCHW = cudnnDataType_t.CUDNN_DATA_FLOAT, cudnnTensorFormat_t.CUDNN_TENSOR_NCHW
TENSOR_OP = cudnnMathType_t.CUDNN_TENSOR_OP_MATH


@pytest.fixture
def counted(monkeypatch):
    """Return a stand-in for cudnnGetTensorSizeInBytes, the calls that reach its body, and the bytes that it adds."""
    asked = []

    def cudnnGetTensorSizeInBytes(tensorDesc):
        asked.append(tensorDesc.spec)
        return tensorDesc.spec.nbytes + extra[0]

    monkeypatch.setitem(FUNCTIONS, "cudnnGetTensorSizeInBytes", None)
    extra = [0]
    return documented()(cudnnGetTensorSizeInBytes), asked, extra


def tensor(*dims):
    made = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(made, NCHW, FLOAT, *dims)
    return made


def test_a_repeated_call_asks_its_body_once_for_each_value(counted):
    size_of, asked, _ = counted
    assert [size_of(tensor(1, 2, 3, n)) for n in (4, 5, 4, 5)] == [96, 120, 96, 120]
    assert len(asked) == 2


def test_a_function_that_is_not_pure_is_noticed_where_answers_are_compared(counted, monkeypatch):
    size_of, asked, extra = counted
    assert size_of(tensor(1, 2, 3, 4)) == 96
    extra[0] = 4
    assert size_of(tensor(1, 2, 3, 4)) == 96
    monkeypatch.setattr(replay, "compares", True)
    with pytest.raises(CudnnError, match=r"INTERNAL_ERROR: \(96,\) was answered before, \(100") as noticed:
        size_of(tensor(1, 2, 3, 4))
    assert noticed.value.status == INTERNAL_ERROR and len(asked) == 2


def test_an_operation_that_depends_on_more_than_its_call_is_noticed_where_answers_are_compared(monkeypatch):
    """The operation of a repeated computing call is made anew and compared; while it is the same, the call succeeds."""
    extra = [0]

    def cudnnSetTensor(handle, yDesc, y, valuePtr):
        return SetTensor(valuePtr + extra[0], yDesc)

    monkeypatch.setitem(FUNCTIONS, "cudnnSetTensor", None)
    fill, handle, x = computing()(cudnnSetTensor), cudnn.cudnnCreate(backend="reference"), tensor(1, 1, 1, 4)
    memory = handle.zeros(16)
    for compares in (False, True):
        monkeypatch.setattr(replay, "compares", compares)
        fill(handle, x, memory, 2.0)
    extra[0] = 1
    with pytest.raises(
        CudnnError, match=r"INTERNAL_ERROR: SetTensor\(value=2.0.* was answered before, SetTensor\(value=3.0"
    ):
        fill(handle, x, memory, 2.0)
    assert memory.to_host(np.float32, 4).tolist() == [2] * 4


def test_every_setter_changes_its_descriptor_again():
    """Options of a convolution outlive other setters, belong to its key, and are set again by repeated calls."""
    for _ in range(3):
        made = cudnn.cudnnCreateConvolutionDescriptor()
        for group_count in (1, 2):
            cudnn.cudnnSetConvolutionGroupCount(made, group_count)
            cudnn.cudnnSetConvolutionMathType(made, TENSOR_OP)
            cudnn.cudnnSetConvolution2dDescriptor(
                made, 1, 1, 1, 1, 1, 1, cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, FLOAT
            )
            assert made.spec.group_count == made.options.group_count == group_count
            assert made.spec.math_type == made.options.math_type == TENSOR_OP


def test_equal_numbers_of_other_types_and_arrays_that_change_are_told_apart():
    made, dims = cudnn.cudnnCreateTensorDescriptor(), [1, 2, 3, 4]
    for _ in range(2):
        cudnn.cudnnSetTensorNdDescriptor(made, FLOAT, 4, dims, (24, 12, 4, 1))
        assert made.spec.dims == tuple(dims)
        dims[0] += 1
    for wrong in (4.0, "4"):
        with pytest.raises(CudnnError, match="dimA is"):
            cudnn.cudnnSetTensorNdDescriptor(made, FLOAT, 4, (1, 2, 3, wrong), (24, 12, 4, 1))
    relu = cudnn.cudnnCreateActivationDescriptor()
    for coefficient in (0.0, -0.0, 0.0):
        cudnn.cudnnSetActivationDescriptor(relu, cudnn.CUDNN_ACTIVATION_ELU, cudnn.CUDNN_PROPAGATE_NAN, coefficient)
        assert str(cudnn.cudnnGetActivationDescriptor(relu)[-1]) == str(coefficient)


def test_sequences_are_remembered_with_their_padding_and_the_types_of_their_axes():
    """Paddings of other sign, number or NULL are other calls, and so are axes that are enumerators of another type."""
    x, axes = cudnn.cudnnCreateRNNDataDescriptor(), [*cudnnSeqDataAxis_t]
    for padding in (None, 0.0, -0.0, 2.0, None, 0.0, -0.0, 2.0):
        cudnn.cudnnSetRNNDataDescriptor(x, FLOAT, 0, 5, 3, 4, (5, 4, 1), padding)
        assert str(x.spec.padding_fill) == str(padding)
    assert functions_called(cudnn.cudnnSetRNNDataDescriptor, x, FLOAT, 0, 5, 3, 4, (5, 4, 1), None) <= 10
    sequences = cudnn.cudnnCreateSeqDataDescriptor()
    for _ in range(2):
        cudnn.cudnnSetSeqDataDescriptor(sequences, FLOAT, 4, [3, 1, 1, 2], axes, 1, [3], None)
    assert (
        functions_called(cudnn.cudnnSetSeqDataDescriptor, sequences, FLOAT, 4, [3, 1, 1, 2], axes, 1, [3], None) <= 14
    )
    with pytest.raises(CudnnError, match="axes is"):
        cudnn.cudnnSetSeqDataDescriptor(sequences, FLOAT, 4, [3, 1, 1, 2], [NCHW, *axes[1:]], 1, [3], None)


def test_networks_are_set_again_with_the_dropout_descriptors_of_the_call():
    """A repeated setter stores the call's own dropout descriptor, whose probability the network follows, and clips anew."""
    handle, networks = cudnn.cudnnCreate(backend="reference"), [cudnn.cudnnCreateRNNDescriptor() for _ in range(2)]
    dropouts = [cudnn.cudnnCreateDropoutDescriptor() for _ in range(3)]
    for dropout, probability in zip(dropouts, (0.5, 0.5, 0.0), strict=True):
        cudnn.cudnnSetDropoutDescriptor(dropout, handle, probability, None, 0, 0)

    def arguments(network, dropout):
        return network, 0, 2, 2, 0, 0, 0, 0, 0, 4, 3, 3, 2, dropout, 1

    for network in networks * 2:
        for dropout in (*dropouts, None):
            cudnn.cudnnSetRNNDescriptor_v8(*arguments(network, dropout))
            assert network.dropout is dropout and network.spec.dropout == (dropout.said if dropout else 0)
            assert network.spec.clip.upper == 0
            cudnn.cudnnRNNSetClip_v8(network, 1, 0, -1.0, 1.0)
            assert network.spec.clip.upper == 1 and network.dropout is dropout
    assert functions_called(cudnn.cudnnSetRNNDescriptor_v8, *arguments(networks[0], dropouts[1])) <= 14
    cudnn.cudnnSetDropoutDescriptor(dropouts[0], handle, 0.25, None, 0, 0)
    cudnn.cudnnSetRNNDescriptor_v8(*arguments(networks[0], dropouts[0]))
    assert networks[0].spec.dropout == 0.25
    cudnn.cudnnDestroyDropoutDescriptor(dropouts[0])
    with pytest.raises(CudnnError, match="was destroyed"):
        cudnn.cudnnSetRNNDescriptor_v8(*arguments(networks[0], dropouts[0]))


def test_an_answer_given_while_a_check_is_off_is_not_kept(monkeypatch):
    made = cudnn.cudnnCreateTensorDescriptor()

    def refused():
        with pytest.raises(CudnnError) as error:
            cudnn.cudnnSetTensor4dDescriptor(made, NCHW, FLOAT, 0, 1, 1, 1)
        return error.value

    assert refused().status == BAD_PARAM
    monkeypatch.setattr(CHECKS, "off", refused().clause)
    cudnn.cudnnSetTensor4dDescriptor(made, NCHW, FLOAT, 0, 1, 1, 1)
    monkeypatch.undo()
    refused()


def test_a_computing_call_that_passes_while_a_check_is_off_is_not_kept(monkeypatch):
    handle = cudnn.cudnnCreate(backend="reference")
    x, wide = tensor(1, 1, 1, 4), tensor(1, 1, 1, 8)
    relu = cudnn.cudnnCreateActivationDescriptor()
    cudnn.cudnnSetActivationDescriptor(relu, cudnn.CUDNN_ACTIVATION_RELU, cudnn.CUDNN_PROPAGATE_NAN, 0.0)
    arguments = (handle, relu, 1.0, x, handle.zeros(32), 0.0, wide, handle.zeros(32))
    with pytest.raises(CudnnError) as refused:
        cudnn.cudnnActivationForward(*arguments)
    with monkeypatch.context() as off:
        off.setattr(CHECKS, "off", refused.value.clause)
        with contextlib.suppress(Exception):  # The operands have different sizes.
            cudnn.cudnnActivationForward(*arguments)
        assert CHECKS.passed
    assert not handle.answers
    with pytest.raises(CudnnError, match="BAD_PARAM"):
        cudnn.cudnnActivationForward(*arguments)


def test_suspended_answers_reach_every_body_and_destroyed_objects_are_refused(counted, monkeypatch):
    size_of, asked, _ = counted
    x = tensor(1, 1, 1, 1)
    with replay.suspended():
        assert size_of(x) == size_of(x) == 4 and len(asked) == 2
    monkeypatch.setattr(answers, "KEPT", 3)
    for n in range(1, 9):
        size_of(tensor(1, 1, 1, n))
    assert size_of(x) == 4 and len(asked) == 11
    cudnn.cudnnDestroyTensorDescriptor(x)
    with pytest.raises(CudnnError, match="was destroyed"):
        size_of(x)


def functions_called(call, *arguments):
    """Return how many functions of Python and C run during a call, itself included."""
    events = []
    sys.setprofile(lambda _frame, event, _argument: events.append(event))
    try:
        call(*arguments)
    finally:
        sys.setprofile(None)
    return len([event for event in events if event in ("call", "c_call")]) - 1  # The last is sys.setprofile.


@pytest.fixture
def activated():
    """Return an activation on the emulated device as (handle, its arguments for two buffers)."""
    handle = cudnn.cudnnCreate(backend="accelerated", device="emulated")
    relu, x = cudnn.cudnnCreateActivationDescriptor(), tensor(1, 2, 3, 4)
    cudnn.cudnnSetActivationDescriptor(relu, cudnn.CUDNN_ACTIVATION_RELU, cudnn.CUDNN_PROPAGATE_NAN, 0.0)
    return handle, lambda source, target: (handle, relu, 1.0, x, source, 0.0, x, target)


def test_a_repeated_call_runs_few_functions(activated, monkeypatch):
    """A setter that was called before runs 2 functions, and 2 more for an array. A computing call runs 5, the launch included,
    and 1 for each buffer."""
    handle, arguments = activated
    monkeypatch.setattr(EmulatedFunction, "in_shape", lambda *_: lambda arguments: lambda stream: None)
    first, second = handle.zeros(96), handle.zeros(96)
    for given in (arguments(first, second), arguments(first, first), arguments(second, first)):
        counts = [functions_called(cudnn.cudnnActivationForward, *given) for _ in range(3)]
        assert counts[0] > counts[1] == counts[2] <= 7, counts
    x, dims, strides = tensor(1, 2, 3, 4), [1, 2, 3, 4], [24, 12, 4, 1]
    cudnn.cudnnSetTensorNdDescriptor(x, FLOAT, 4, dims, strides)
    assert functions_called(cudnn.cudnnSetTensor4dDescriptor, x, NCHW, FLOAT, 1, 2, 3, 4) <= 2
    assert functions_called(cudnn.cudnnSetTensorNdDescriptor, x, FLOAT, 4, dims, strides) <= 6
    convolution = cudnn.cudnnCreateConvolutionDescriptor()
    for count in (1, 2, 1, 2, 1):  # The key holds the earlier options, too.
        counted = functions_called(cudnn.cudnnSetConvolutionGroupCount, convolution, count)
    assert counted <= 2
    cudnn.cudnnSetStream(handle, None)
    assert functions_called(cudnn.cudnnSetStream, handle, None) <= 2


class ReadOnly:
    def __init__(self, buffer):
        self.__cuda_array_interface__ = {
            "version": 3, "shape": (buffer.nbytes,), "typestr": "|u1", "data": (buffer.address, True),
        }  # fmt: skip


def test_a_repeated_call_still_refuses_memory(activated):
    """The second call has launched on the same addresses. Each later one has one wrong argument, and changes nothing."""
    handle, arguments = activated
    other = cudnn.cudnnCreate(backend="reference").zeros(96)
    source, target = handle.to_device(np.arange(24, dtype=np.float32)), handle.zeros(192)
    for _ in range(2):
        cudnn.cudnnActivationForward(*arguments(source, target))
    before = target.to_host(np.uint8, 192)
    wrong = {
        "is NULL": (source, None),
        "has 92 bytes, 96 are needed": (source.slice(0, 92), target),
        "no multiple of the 4 bytes": (source, target.slice(2, 96)),
        "memory is read-only": (source, ReadOnly(target)),
        "share memory|overlap": (target, target.slice(4, 96)),
        "is a HostBuffer, not device memory": (other, target),
        "address": (source, 2**64),
    }
    for message, memory in wrong.items():
        for _ in range(2):
            with pytest.raises(CudnnError, match=message):
                cudnn.cudnnActivationForward(*arguments(*memory))
    assert np.array_equal(before, target.to_host(np.uint8, 192))
    cudnn.cudnnActivationForward(*arguments(source, target))
    part = target.slice(0, 96)
    cudnn.cudnnActivationForward(*arguments(source, part))
    target.free()
    for memory in (target, part):
        with pytest.raises(CudnnError, match="was freed"):
            cudnn.cudnnActivationForward(*arguments(source, memory))
    cudnn.cudnnDestroy(handle)
    with pytest.raises(CudnnError, match="was destroyed"):
        cudnn.cudnnActivationForward(*arguments(source, source))


def test_launches_of_a_repeated_call_stay_together(activated, monkeypatch):
    """Four threads repeat a call of two launches on one handle; the second launch follows the first one of its thread."""
    handle, arguments = activated
    launched = []

    def launch(_stream):
        launched.append(threading.get_ident())
        time.sleep(1e-4)  # Another thread may run now.

    monkeypatch.setattr(records.Record, "bound", lambda *_: [launch, launch])
    given = arguments(handle.zeros(96), handle.zeros(96))

    def repeat():
        for _ in range(20):
            cudnn.cudnnActivationForward(*given)

    threads = [threading.Thread(target=repeat) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(launched) == 160 and launched[::2] == launched[1::2]


def test_a_repeated_call_uses_the_current_stream(activated, monkeypatch):
    handle, arguments = activated
    streams = []
    monkeypatch.setattr(EmulatedFunction, "in_shape", lambda *_: lambda arguments: streams.append)
    given, stream = arguments(handle.zeros(96), handle.zeros(96)), handle.new_stream()
    for each in (None, stream, None, None, stream):
        cudnn.cudnnSetStream(handle, each)
        assert cudnn.cudnnGetStream(handle) is each
        cudnn.cudnnActivationForward(*given)
    assert streams == [None, stream, None, None, stream]


def test_the_first_call_of_a_pooling_runs_few_functions():
    """Its arguments, operation and memory requirements are checked in at most 130 calls of Python functions."""
    handle, pooling = cudnn.cudnnCreate(backend="reference"), cudnn.cudnnCreatePoolingDescriptor()
    cudnn.cudnnSetPooling2dDescriptor(pooling, cudnn.CUDNN_POOLING_MAX, cudnn.CUDNN_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2)
    for size in (8, 12):  # The call with size 8 imports modules.
        x_desc, y_desc, called = tensor(1, 3, size, size), tensor(1, 3, size // 2, size // 2), []
        arguments = (handle, pooling, 1.0, x_desc, handle.zeros(12 * size**2), 0.0, y_desc, handle.zeros(3 * size**2))
        sys.setprofile(
            lambda frame, event, _, c=called: c.append(frame.f_code.co_qualname) if event == "call" else None
        )
        try:
            cudnn.cudnnPoolingForward(*arguments)
        finally:
            sys.setprofile(None)
    before = called.index("ReferenceBackend.prepare.<locals>.launch")
    assert before <= 130, called[:before]


def test_launches_are_kept_by_address(activated, monkeypatch):
    """Calls on other buffers do not disturb each other, and a kept launch is noted by whoever notes launches."""
    handle, arguments = activated
    made = []
    bound = records.KernelStep.bound
    monkeypatch.setattr(records.KernelStep, "bound", lambda step, known: made.append(known) or bound(step, known))
    values = [np.linspace(-1, n + 1, 24).astype(np.float32) for n in range(3)]
    sources, targets = [handle.to_device(each) for each in values], [handle.zeros(96) for _ in values]
    for _ in range(3):
        for source, target, value in zip(sources, targets, values, strict=True):
            cudnn.cudnnActivationForward(*arguments(source, target))
            assert np.array_equal(target.to_host(np.float32, 24), np.maximum(value, 0))
            cudnn.cudnnScaleTensor(handle, arguments(0, 0)[3], target, 0.0)
    activations = {(*known[:2],) for known in made if len(known) == 4}
    assert activations == {(s.address, t.address) for s, t in zip(sources, targets, strict=True)}
    assert len(made) == 2 * len(values)
    with records.noting_launches() as noted:
        cudnn.cudnnActivationForward(*arguments(sources[0], targets[0]))
    assert any("activation" in name for name in noted) and len(made) == 2 * len(values) + 1


def test_queries_of_networks_are_answered_and_follow_their_dropout_descriptor():
    """A network's reserve space depends on the probability that its dropout descriptor has at the time of the query."""
    handle, dropout = cudnn.cudnnCreate(backend="reference"), cudnn.cudnnCreateDropoutDescriptor()
    x, network = cudnn.cudnnCreateRNNDataDescriptor(), cudnn.cudnnCreateRNNDescriptor()
    cudnn.cudnnSetRNNDataDescriptor(x, FLOAT, 0, 5, 3, 4, (5, 4, 1), None)

    def spaces():
        call = cudnn.cudnnGetRNNTempSpaceSizes, handle, network, cudnn.CUDNN_FWD_MODE_TRAINING, x
        found = cudnn.cudnnGetRNNTempSpaceSizes(*call[1:])
        assert functions_called(*call) <= 15
        with replay.suspended():
            assert cudnn.cudnnGetRNNTempSpaceSizes(*call[1:]) == found
        return found

    cudnn.cudnnSetDropoutDescriptor(dropout, handle, 0.0, None, 0, 0)
    cudnn.cudnnSetRNNDescriptor_v8(network, 0, 2, 2, 0, 0, 0, 0, 0, 4, 3, 3, 2, dropout, 1)
    without = spaces()
    for probability, differs in ((0.5, True), (0.0, False), (0.25, True)):
        cudnn.cudnnSetDropoutDescriptor(dropout, handle, probability, None, 0, 0)
        assert (spaces() != without) == differs
    cudnn.cudnnDestroyDropoutDescriptor(dropout)
    assert spaces() != without
    cudnn.cudnnDestroyRNNDescriptor(network)
    with pytest.raises(CudnnError, match="was destroyed"):
        spaces()
