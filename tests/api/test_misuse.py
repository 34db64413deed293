"""Test that arguments no caller can mean are refused with a status, before anything is touched."""

from __future__ import annotations

import copy
import ctypes
import math
import os
import pickle
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from dualdnn.accelerated import backend as accelerated_backend
from dualdnn.api import cudnn
from dualdnn.api.descriptors import BackendDescriptor
from dualdnn.api.enumerations import cudnnStatus_t
from dualdnn.api.operations import ScaleTensor, TensorSpec
from dualdnn.api.operations.graph import ConvolutionForwardNode, GraphConvolution, GraphTensor
from dualdnn.api.operations.specs import FLOAT, INT8, INT32
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED, CudnnError
from dualdnn.conformance.calls.graph import Builder

EMULATED = {"backend": "accelerated", "device": "emulated"}
CROSSCHECK = {"backend": "crosscheck", "device": "emulated"}
REFERENCE = {"backend": "reference"}


def tensor(*dims, data_type=cudnn.CUDNN_DATA_FLOAT):
    made = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(made, cudnn.CUDNN_TENSOR_NCHW, data_type, *dims)
    return made


def refused(call, *arguments, match=None):
    with pytest.raises(CudnnError, match=match) as raised:
        call(*arguments)
    assert raised.value.status == BAD_PARAM, raised.value
    return raised.value


# Memory


class Objects(ctypes.Structure):
    _fields_ = (("Ohm", ctypes.c_double), ("held", ctypes.py_object))


@pytest.mark.parametrize(
    "memory",
    [
        np.array([None] * 24, object),
        memoryview(np.array([[]] * 24, object)),
        np.zeros(24, [("a", "f4"), ("b", "O")]),
        (ctypes.py_object * 24)(),
        (Objects * 24)(),
    ],
    ids=["array", "view", "field", "ctypes", "structure"],
)
def test_memory_of_python_objects_is_refused(memory):
    handle = cudnn.cudnnCreate(**REFERENCE)
    refused(cudnn.cudnnSetTensor, handle, tensor(1, 1, 4, 6), memory, 1.5, match="objects|No memory|not memory")


def test_a_field_of_an_array_may_have_any_name():
    memory = np.zeros(24, [("Ohm", "f4")])
    cudnn.cudnnSetTensor(cudnn.cudnnCreate(**REFERENCE), tensor(1, 1, 4, 6), memoryview(memory), 1.5)
    assert (memory["Ohm"] == 1.5).all()


class Scalar:
    """Stand in for a CPU scalar of another library: it converts to an integer, but is not an address."""

    def __int__(self):
        return 4096

    __index__ = __int__


class Interface:
    def __init__(self, **entries):
        self.__cuda_array_interface__ = {"version": 3, "typestr": "<f4", "shape": (24,), **entries}


HOST = np.zeros(24, np.float32)
STRANGERS = {
    "None's address": id(None),
    "host memory": HOST.ctypes.data,
    "true": True,
    "enumerator": cudnn.CUDNN_DATA_HALF,
    "0-d array": np.array(4096),
    "scalar": Scalar(),
    "float": 4096.0,
    "huge": 2**80,
    "negative": -4096,
    "interface of host memory": Interface(data=(HOST.ctypes.data, False)),
    "interface without data": Interface(),
    "interface that is none": type("Odd", (), {"__cuda_array_interface__": 7})(),
    "interface of a negative size": Interface(data=(4096, False), shape=(-24,)),
    "interface of an overflowing size": Interface(data=(4096, False), shape=(2**33, 2**33)),
    "interface of no type": Interface(data=(4096, False), typestr="?!"),
    "interface of an odd address": Interface(data=(2.5, False)),
}


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=list(STRANGERS))
@pytest.mark.parametrize("where", [EMULATED, CROSSCHECK, REFERENCE], ids=["emulated", "crosscheck", "reference"])
def test_memory_outside_of_the_device_is_refused(where, stranger):
    handle = cudnn.cudnnCreate(**where)
    refused(cudnn.cudnnSetTensor, handle, tensor(1, 1, 4, 6), stranger, 1.5)
    assert not HOST.any()


class DeviceTensor:
    """Stand in for PyTorch's tensor in device memory, whose interface is slow."""

    is_cuda, requires_grad = True, False

    def __init__(self, buffer, strides=None):
        self.buffer, self.strides, self.nbytes, self.asked = buffer, strides, buffer.nbytes, 0

    def is_contiguous(self):
        return self.strides is None

    def data_ptr(self):
        return self.buffer.address

    @property
    def __cuda_array_interface__(self):
        self.asked += 1
        if self.requires_grad:
            raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad")
        data = (self.buffer.address, False)
        return {"version": 2, "data": data, "typestr": "<f4", "shape": (self.nbytes // 4,), "strides": self.strides}


def test_tensors_serve_by_their_attributes_and_are_refused_by_their_interface():
    """A contiguous tensor is not asked for its interface. A strided one, or one with gradients, is refused."""
    handle = cudnn.cudnnCreate(**EMULATED)
    buffer, x = handle.zeros(96), tensor(1, 1, 4, 6)
    plain, strided, graded = (DeviceTensor(buffer, strides) for strides in (None, (8,), None))
    graded.requires_grad = True
    for _ in range(2):
        cudnn.cudnnSetTensor(handle, x, plain, 1.5)
    assert buffer.to_host(np.float32, 24).tolist() == [1.5] * 24 and plain.asked == 0
    refused(cudnn.cudnnSetTensor, handle, x, strided, 2.5, match="is a strided array")
    refused(cudnn.cudnnSetTensor, handle, x, graded, 2.5, match="requires grad")
    refused(cudnn.cudnnSetTensor, handle, tensor(1, 1, 5, 6), plain, 2.5, match="has 96 bytes, 120 are needed")
    assert buffer.to_host(np.float32, 24).tolist() == [1.5] * 24


def test_addresses_and_interfaces_of_the_device_serve_as_far_as_its_memory_goes():
    handle = cudnn.cudnnCreate(**EMULATED)
    buffer = handle.zeros(96)
    cudnn.cudnnSetTensor(handle, tensor(1, 1, 4, 6), buffer.address, 1.5)
    cudnn.cudnnSetTensor(handle, tensor(1, 1, 1, 1), np.uint64(buffer.address + 92), 2.5)
    cudnn.cudnnSetTensor(handle, tensor(1, 1, 1, 2), Interface(data=(buffer.address, False), shape=(2,)), 3.5)
    assert buffer.to_host(np.float32, -1).tolist() == [3.5, 3.5, *[1.5] * 21, 2.5]
    refused(
        cudnn.cudnnSetTensor, handle, tensor(1, 1, 1, 2), buffer.address + 92, 1.0, match="has 4 bytes, 8 are needed"
    )
    beyond = Interface(data=(buffer.address + 4, False), shape=(24,))
    refused(cudnn.cudnnSetTensor, handle, tensor(1, 1, 1, 1), beyond, 1.0, match="says that it has 96 bytes")
    buffer.free()
    refused(cudnn.cudnnSetTensor, handle, tensor(1, 1, 1, 1), buffer.address, 1.0, match="freed")


# Values


def test_values_of_other_types_are_refused_after_a_valid_call():
    handle = cudnn.cudnnCreate(**REFERENCE)
    x, y, t = handle.zeros(96), handle.zeros(96), tensor(1, 2, 3, 4)

    def softmax(algorithm, mode, alpha, beta):
        cudnn.cudnnSoftmaxForward(handle, algorithm, mode, alpha, t, x, beta, t, y)

    log, channel = cudnn.CUDNN_SOFTMAX_LOG, cudnn.CUDNN_SOFTMAX_MODE_CHANNEL
    softmax(cudnn.CUDNN_SOFTMAX_ACCURATE, channel, 1.0, 0.0)
    softmax(1, 1, 1, 0)  # C passes enumerators as numbers.
    for wrong in (("1", 1, 1, 0), (1, 1, 1, "0"), (1, 1, 1, "0.0"), (1, 1, "1", 0), (1.0, 1, 1, 0)):
        refused(softmax, *wrong)
    refused(softmax, channel, log, 1.0, 0.0, match="not an enumerator of cudnnSoftmaxAlgorithm_t")
    refused(softmax, channel, cudnn.CUDNN_SOFTMAX_ACCURATE, 1.0, 0.0, match="not an enumerator")
    assert len(handle.answers) <= 2


def test_enumerators_of_another_type_are_refused_everywhere():
    made = cudnn.cudnnCreateTensorDescriptor()
    swapped = (made, cudnn.CUDNN_DATA_DOUBLE, cudnn.CUDNN_TENSOR_NHWC, 1, 2, 3, 4)
    refused(cudnn.cudnnSetTensor4dDescriptor, *swapped, match="format is .*not an enumerator of cudnnTensorFormat_t")
    relu = cudnn.cudnnCreateActivationDescriptor()
    given = (relu, cudnn.CUDNN_PROPAGATE_NAN, cudnn.CUDNN_ACTIVATION_RELU, 0.0)
    refused(cudnn.cudnnSetActivationDescriptor, *given, match="mode is")
    given = (relu, cudnn.CUDNN_ACTIVATION_RELU, cudnn.CUDNN_PROPAGATE_NAN, cudnn.CUDNN_DATA_HALF)
    refused(cudnn.cudnnSetActivationDescriptor, *given, match="coef is .*not a real number")


class Vector:
    """Stand in for a vector of another library: each conversion raises that library's own error."""

    def __float__(self):
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")

    __bool__ = __index__ = __len__ = __float__

    @property
    def handle(self):
        raise RuntimeError("a Tensor has no stream")


@pytest.mark.parametrize(
    "wrong", [Vector(), np.array(3), np.zeros(2), [1.0], 1j, "1", None], ids=lambda value: type(value).__name__
)
def test_only_statuses_leave_a_documented_call(wrong):
    handle = cudnn.cudnnCreate(**REFERENCE)
    x, t = handle.zeros(96), tensor(1, 2, 3, 4)
    made = cudnn.cudnnCreateTensorDescriptor()
    if not (isinstance(wrong, np.ndarray) and wrong.ndim == 0):  # A 0-d array serves as a number.
        refused(cudnn.cudnnScaleTensor, handle, t, x, wrong)
        refused(cudnn.cudnnSetTensor4dDescriptor, made, 0, 0, 1, 1, 1, wrong)
        refused(cudnn.cudnnSetTensor4dDescriptor, made, wrong, 0, 1, 1, 1, 1)
    refused(cudnn.cudnnSetTensorNdDescriptor, made, 0, 4, wrong, (1, 1, 1, 1))
    assert cudnn.cudnnGetErrorString(wrong).startswith("CUDNN_")
    if wrong is not None:
        refused(lambda: cudnn.cudnnCreate(backend=wrong))
        refused(lambda: cudnn.cudnnCreate(device=wrong))
        refused(cudnn.cudnnSetStream, cudnn.cudnnCreate(**EMULATED), wrong)


def test_scalars_that_never_repeat_make_no_plans():
    handle = cudnn.cudnnCreate(**EMULATED)
    t, x = tensor(1, 1, 1, 1), handle.zeros(4)
    cudnn.cudnnScaleTensor(handle, t, x, 2.0)
    before = len(handle.backend.plans)
    for i in range(200):
        cudnn.cudnnScaleTensor(handle, t, x, 3.0 + i / 1000)
    assert len(handle.backend.plans) == before


def test_the_plan_used_longest_ago_goes_first(monkeypatch):
    handle = cudnn.cudnnCreate(**EMULATED)
    plans: dict = {}
    monkeypatch.setattr(handle.backend, "plans", plans)
    monkeypatch.setattr(accelerated_backend, "PLANS_KEPT", 16)
    operations = [ScaleTensor(2.0, TensorSpec.packed(FLOAT, (1, 1, 1, n))) for n in range(1, 40)]
    for operation in operations:
        handle.backend.plan(operation)
    assert len(plans) == 16
    kept = next(iter(plans))
    handle.backend.plan(operations[-16])  # A plan that is used again moves to the end of the queue.
    handle.backend.plan(operations[0])
    assert kept in plans and len(plans) == 16


def test_calls_with_nan_share_one_answer():
    handle = cudnn.cudnnCreate(**EMULATED)
    x, t = handle.zeros(4), tensor(1, 1, 1, 1)
    before = len(handle.backend.plans)
    for _ in range(5):
        cudnn.cudnnScaleTensor(handle, t, x, float("nan"))
    assert len(handle.answers) == 1 and len(handle.backend.plans) <= before + 1
    assert math.isnan(x.to_host(np.float32, 1)[0])


# Processes


def test_a_refusal_can_be_copied_and_sent():
    error = CudnnError(
        cudnnStatus_t.CUDNN_STATUS_NOT_SUPPORTED, "cudnnSoftmaxForward/c05", "why", "cudnnSoftmaxForward"
    )
    for twin in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert (type(twin), vars(twin), str(twin)) == (CudnnError, vars(error), str(error))


def refuse():
    cudnn.cudnnScaleTensor(cudnn.cudnnCreate(backend="reference"), None, None, 1.0)


def test_a_refusal_in_a_process_pool_reaches_the_parent():
    with ProcessPoolExecutor(1, get_context("spawn")) as pool, pytest.raises(CudnnError, match="yDesc is NULL"):
        pool.submit(refuse).result(timeout=60)


def test_a_fork_while_another_thread_computes():
    handle = cudnn.cudnnCreate(**EMULATED)
    t = tensor(1, 1, 64, 64)
    x = handle.zeros(4 * 64 * 64)
    stop = threading.Event()

    def compute():
        while not stop.is_set():
            cudnn.cudnnScaleTensor(handle, t, x, 1.0)

    worker = threading.Thread(target=compute)
    worker.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    cudnn.cudnnScaleTensor(handle, t, x, 2.0)
                    own = cudnn.cudnnCreate(**EMULATED).to_device(np.full(64 * 64, 3, np.float32))
                    cudnn.cudnnScaleTensor(handle, t, own, 2.0)
                    status = int((own.to_host(np.float32, -1) != 6).any())
                finally:
                    os._exit(status)
            deadline = time.monotonic() + 60
            while not (ended := os.waitpid(child, os.WNOHANG))[0]:
                if time.monotonic() > deadline:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    pytest.fail("the child hangs")
                time.sleep(0.005)
            assert ended[1] == 0
    finally:
        stop.set()
        worker.join()


# Graphs


def test_vectors_along_a_dimension_of_groups_are_refused():
    """No engine executes a convolution whose image is vectorized along its groups, and each refusal says why."""
    build, handle = Builder(cudnn), cudnn.cudnnCreate(**REFERENCE)

    def vectors(uid, *dims, count=4):
        along = 1 if count > 1 else -1
        return GraphTensor(uid, INT8, dims, TensorSpec.packed(INT8, dims).strides, 4, count, along, False)

    settings = GraphConvolution(cudnn.CUDNN_CROSS_CORRELATION, INT32, (1, 1), (1, 1), (1, 1), (1, 1))
    x, w, y = vectors(1, 1, 2, 3, 4, 4), vectors(2, 8, 2, 3, 3, 3, count=1), vectors(3, 1, 2, 2, 4, 4)
    node = build(ConvolutionForwardNode(settings, 1.0, 0.0, x, w, y))
    attributes = {
        "HANDLE": (cudnn.CUDNN_TYPE_HANDLE, (handle,)), "OPS": (cudnn.CUDNN_TYPE_BACKEND_DESCRIPTOR, (node,)),
    }  # fmt: skip
    with pytest.raises(CudnnError, match="tensor 1 has vectors") as raised:
        build.finalized(cudnn.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, attributes)
    assert raised.value.status == NOT_SUPPORTED, raised.value


def test_an_element_that_has_become_another_type_is_refused():
    """A program may give a descriptor another type after it was set as an attribute. Its holder is then not finalised."""
    handle, descriptor_type = cudnn.cudnnCreate(**REFERENCE), cudnn.CUDNN_TYPE_BACKEND_DESCRIPTOR
    node = cudnn.cudnnBackendCreateDescriptor(cudnn.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
    graph = cudnn.cudnnBackendCreateDescriptor(cudnn.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
    for attribute, type_, element in (
        (cudnn.CUDNN_ATTR_OPERATIONGRAPH_HANDLE, cudnn.CUDNN_TYPE_HANDLE, handle),
        (cudnn.CUDNN_ATTR_OPERATIONGRAPH_OPS, descriptor_type, node),
    ):
        cudnn.cudnnBackendSetAttribute(graph, attribute, type_, 1, [element])
    cudnn.cudnnBackendInitialize(node, cudnn.CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, 8)
    for attribute, type_ in (
        (cudnn.CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, cudnn.CUDNN_TYPE_KNOB_TYPE),
        (cudnn.CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, cudnn.CUDNN_TYPE_INT64),
    ):
        cudnn.cudnnBackendSetAttribute(node, attribute, type_, 1, [0])
    cudnn.cudnnBackendFinalize(node)
    with pytest.raises(CudnnError, match="OPS was set, has begun anew with another type") as raised:
        cudnn.cudnnBackendFinalize(graph)
    assert raised.value.status == BAD_PARAM


def test_the_text_of_a_descriptor_is_made_for_refusals_alone(monkeypatch):
    """A graph is long as text, so calls that succeed do not make it."""
    build, handle = Builder(cudnn), cudnn.cudnnCreate(**REFERENCE)
    x, w, y = (
        GraphTensor(uid, FLOAT, dims, TensorSpec.packed(FLOAT, dims).strides, 4, 1, -1, False)
        for uid, dims in ((1, (1, 2, 4, 4)), (2, (3, 2, 3, 3)), (3, (1, 3, 4, 4)))
    )
    settings = GraphConvolution(cudnn.CUDNN_CROSS_CORRELATION, FLOAT, (1, 1), (1, 1), (1, 1), (1, 1))
    made, shown = build(ConvolutionForwardNode(settings, 1.0, 0.0, x, w, y)), []
    monkeypatch.setattr(BackendDescriptor, "__repr__", lambda _: shown.append(1) or "shown")
    attributes = {
        "HANDLE": (cudnn.CUDNN_TYPE_HANDLE, (handle,)), "OPS": (cudnn.CUDNN_TYPE_BACKEND_DESCRIPTOR, (made,)),
    }  # fmt: skip
    graph = build.finalized(cudnn.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, attributes)
    count = cudnn.CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, cudnn.CUDNN_TYPE_INT64, 1
    assert cudnn.cudnnBackendGetAttribute(graph, *count).elementCount == 1 and not shown
    with pytest.raises(CudnnError, match="shown has been finalised already"):
        cudnn.cudnnBackendFinalize(graph)
