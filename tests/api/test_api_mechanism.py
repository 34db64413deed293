"""Test that documented functions have declared signatures, an order of checks, cached checks, and refuse overlapping
memory.
"""

from __future__ import annotations

import inspect
import threading
from pathlib import Path

import numpy as np
import pytest
from dualdnn.accelerated import DeviceError, DeviceUnavailable
from dualdnn.accelerated.runtime.errors import CompileError
from dualdnn.api import cudnn
from dualdnn.api import functions as functions_of_calls
from dualdnn.api.cudnn import FUNCTIONS
from dualdnn.api.document import functions
from dualdnn.api.functions import documented
from dualdnn.api.status import BAD_PARAM, EXECUTION_FAILED, CudnnError
from looped import for_each

CLAUSE_FREE = {"cudnnCreate"}


def descriptors():
    relu = cudnn.cudnnCreateActivationDescriptor()
    cudnn.cudnnSetActivationDescriptor(relu, cudnn.CUDNN_ACTIVATION_RELU, cudnn.CUDNN_PROPAGATE_NAN, 0.0)
    x = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(x, cudnn.CUDNN_TENSOR_NCHW, cudnn.CUDNN_DATA_FLOAT, 1, 2, 3, 4)
    return relu, x


@pytest.fixture
def handle():
    return cudnn.cudnnCreate(backend="reference")


@for_each("name", sorted(set(FUNCTIONS) - CLAUSE_FREE))
def test_parameters_have_the_names_of_the_document(name):
    assert list(inspect.signature(FUNCTIONS[name]).parameters) == [p.name for p in functions()[name].arguments]


@for_each("name", sorted(FUNCTIONS))
def test_every_docstring_names_its_section(name):
    text = inspect.getdoc(FUNCTIONS[name])
    assert text and "Source: " in text and functions()[name].section in text


def test_a_wrong_signature_is_refused_when_it_is_defined():
    with pytest.raises(TypeError, match="the document has"):

        @documented()
        def cudnnDestroyActivationDescriptor(wrong):
            """Declare a wrong signature."""


def test_a_call_works_by_keyword_and_by_position(handle):
    relu, x = descriptors()
    memory = handle.to_device(np.arange(-12, 12, dtype=np.float32))
    cudnn.cudnnActivationForward(handle, relu, alpha=1, xDesc=x, x=memory, beta=0, yDesc=x, y=memory)
    assert memory.to_host(np.float32, 24).min() == 0
    with pytest.raises(TypeError):
        cudnn.cudnnActivationForward(handle, relu)


def test_factors_of_zero_keep_their_sign_and_complex_ones_are_refused_without_a_warning(handle, recwarn):
    x = descriptors()[1]
    for factor in (0.0, -0.0, 0.0):
        memory = handle.to_device(np.ones(24, np.float32))
        cudnn.cudnnScaleTensor(handle, x, memory, factor)
        assert (np.signbit(memory.to_host(np.float32, 24)) == np.signbit(factor)).all()
    for factor in (0j, np.complex128(0), np.complex64(1)):
        with pytest.raises(CudnnError, match=r"alpha is .*j") as refused:
            cudnn.cudnnScaleTensor(handle, x, memory, factor)
        assert refused.value.status == BAD_PARAM
    assert not recwarn.list


def test_a_repeated_call_is_prepared_once_and_notices_changed_descriptors(handle):
    relu, x = descriptors()
    memory = handle.to_device(np.full(24, -2, np.float32))
    arguments = (handle, relu, 1.0, x, memory, 0.0, x, memory)
    for _ in range(3):
        cudnn.cudnnActivationForward(*arguments)
    assert len(handle.answers) == 1
    cudnn.cudnnSetActivationDescriptor(relu, cudnn.CUDNN_ACTIVATION_ELU, cudnn.CUDNN_PROPAGATE_NAN, 1.0)
    memory = handle.to_device(np.full(24, -2, np.float32))
    cudnn.cudnnActivationForward(handle, relu, 1.0, x, memory, 0.0, x, memory)
    assert np.allclose(memory.to_host(np.float32, 24), np.expm1(-2))
    cudnn.cudnnDestroyTensorDescriptor(x)
    with pytest.raises(CudnnError, match="xDesc was destroyed"):
        cudnn.cudnnActivationForward(handle, relu, 1.0, x, memory, 0.0, x, memory)
    cudnn.cudnnDestroy(handle)
    with pytest.raises(CudnnError, match="NOT_INITIALIZED"):
        cudnn.cudnnActivationForward(handle, relu, 1.0, x, memory, 0.0, x, memory)


def test_memory_that_passed_its_checks_is_not_checked_again(monkeypatch):
    """The same addresses, sizes and permissions pass at once, as buffers, slices and addresses."""
    handle, (relu, x) = cudnn.cudnnCreate(backend="accelerated", device="emulated"), descriptors()
    source, target = handle.to_device(np.full(24, -2, np.float32)), handle.zeros(96)
    checked, check = [], functions_of_calls.checked_operand
    monkeypatch.setattr(functions_of_calls, "checked_operand", lambda *given: checked.append(given) or check(*given))

    def call(y):
        cudnn.cudnnActivationForward(handle, relu, 1.0, x, source, 0.0, x, y)
        return len(checked)

    places = (target, target, target.slice(0, 96), target.address, source, target)
    assert [*map(call, places)] == [2, 2, 2, 2, 4, 4]


def test_an_error_without_a_gpu_names_the_emulated_device(monkeypatch):
    def none(kind, *_):
        raise DeviceUnavailable(f"no {kind}")

    monkeypatch.setattr("dualdnn.accelerated.AcceleratedBackend", none)
    for backend in ("accelerated", "crosscheck"):
        with pytest.raises(CudnnError, match=r"no gpu; without a GPU, in Python: .*device='emulated'"):
            cudnn.cudnnCreate(backend=backend)
        with pytest.raises(CudnnError, match=r"no emulated \["):
            cudnn.cudnnCreate(backend=backend, device="emulated")


@pytest.mark.parametrize(
    "error",
    [CompileError(Path("small.cu"), (), "no such word"), DeviceUnavailable("no compiler"), DeviceError("no memory")],
    ids=lambda error: type(error).__name__,
)
def test_an_unavailable_kernel_gives_a_documented_status(monkeypatch, error):
    """Calls that compute and calls that measure answer the documented status."""
    handle = cudnn.cudnnCreate(backend="accelerated", device="emulated")

    def fails(*_):
        raise error

    monkeypatch.setattr(handle.backend, "plans", {})
    monkeypatch.setattr(handle.backend.device, "function", fails)
    relu, x = descriptors()
    memory = handle.zeros(96)
    with pytest.raises(CudnnError, match=str(error)) as refused:
        cudnn.cudnnActivationForward(handle, relu, 1.0, x, memory, 0.0, x, memory)
    assert refused.value.status == EXECUTION_FAILED and refused.value.function == "cudnnActivationForward"
    w, convolution = cudnn.cudnnCreateFilterDescriptor(), cudnn.cudnnCreateConvolutionDescriptor()
    cudnn.cudnnSetFilter4dDescriptor(w, 0, 0, 2, 2, 1, 1)
    cudnn.cudnnSetConvolution2dDescriptor(convolution, 0, 0, 1, 1, 1, 1, 1, 0)
    found = cudnn.cudnnFindConvolutionForwardAlgorithm(handle, x, w, convolution, x, 1)
    assert [result.status for result in found.perfResults] == [EXECUTION_FAILED]


def test_the_first_wrong_argument_is_reported(handle):
    with pytest.raises(CudnnError, match="activationDesc is a int"):
        cudnn.cudnnActivationForward(handle, 5, "a", 5, None, "b", 5, None)


def test_disjoint_slices_of_one_buffer_are_no_overlap(handle):
    """Two channel ranges of one NHWC buffer interleave in memory, but share no element."""
    relu = descriptors()[0]
    half = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptorEx(half, cudnn.CUDNN_DATA_FLOAT, 2, 3, 4, 5, 120, 1, 30, 6)
    values = np.arange(240, dtype=np.float32).reshape(2, 4, 5, 6) - 120
    buffer = handle.to_device(values)
    size = cudnn.cudnnGetTensorSizeInBytes(half)
    first, second = buffer.slice(0, size), buffer.slice(12, size)
    cudnn.cudnnActivationForward(handle, relu, 1.0, half, first, 0.0, half, second)
    result = buffer.to_host(np.float32, values.shape)
    assert (result[..., 3:] == np.maximum(values[..., :3], 0)).all() and (result[..., :3] == values[..., :3]).all()
    with pytest.raises(CudnnError) as raised:
        cudnn.cudnnActivationForward(handle, relu, 1.0, half, first, 0.0, half, buffer.slice(4, size))
    assert raised.value.status == BAD_PARAM and raised.value.clause == "cudnnActivationForward/c16"


@pytest.mark.parametrize(
    "backend, device", [("reference", None), ("accelerated", "emulated"), ("crosscheck", "emulated")]
)
def test_new_buffers_hold_the_elements_in_row_major_order(backend, device):
    """Arrays of any element type and order arrive in row-major order, and both directions copy them."""
    handle = cudnn.cudnnCreate(backend=backend, device=device)
    for array in (np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1), np.float16(2.5), np.array([[7]], ">i4"), np.array([1 + 2j])):  # fmt: skip
        buffer = handle.to_device(array)
        assert buffer.nbytes == array.nbytes
        np.testing.assert_array_equal(buffer.to_host(array.dtype, array.shape), array)
        buffer.to_host(np.uint8, array.nbytes)[:] = 0
        np.testing.assert_array_equal(buffer.to_host(array.dtype, array.shape), array)
    assert (handle.zeros(1001).to_host(np.uint8, 1001) == 0).all()
    for make in (handle.zeros, handle.allocate):
        with pytest.raises(ValueError, match="nbytes is -1"):
            make(-1)


@pytest.mark.parametrize(
    "backend, device", [("reference", None), ("accelerated", "emulated"), ("crosscheck", "emulated")]
)
def test_a_slice_keeps_its_memory(backend, device):
    handle = cudnn.cudnnCreate(backend=backend, device=device)
    relu, x = descriptors()
    part = handle.to_device(np.arange(1, 25, dtype=np.float32)).slice(0, 96)  # Only this slice refers to the buffer.
    others = [handle.to_device(np.zeros(24, np.float32)) for _ in range(8)]
    cudnn.cudnnActivationForward(handle, relu, 1.0, x, part, 0.0, x, others[0])
    assert (others[0].to_host(np.float32, 24) == np.arange(1, 25)).all()


def test_read_only_memory_is_an_input_only(handle):
    relu, x = descriptors()
    fixed = np.ones(24, np.float32)
    fixed.flags.writeable = False
    out = np.zeros(24, np.float32)
    cudnn.cudnnActivationForward(handle, relu, 1.0, x, fixed, 0.0, x, out)
    assert (out == 1).all()
    with pytest.raises(CudnnError, match="read-only"):
        cudnn.cudnnActivationForward(handle, relu, 1.0, x, out, 0.0, x, fixed)
    with pytest.raises(CudnnError, match="contiguous"):
        cudnn.cudnnActivationForward(handle, relu, 1.0, x, np.ones((24, 2), np.float32)[:, 0], 0.0, x, out)


def test_unknown_backends_and_devices():
    for arguments in ({"backend": "tpu"}, {"device": "cpu"}, {"backend": "reference", "device": "gpu"}):
        with pytest.raises(CudnnError) as raised:
            cudnn.cudnnCreate(**arguments)
        assert raised.value.status == BAD_PARAM


def test_the_environment_chooses_the_default_backend(monkeypatch):
    monkeypatch.setenv("DUALDNN_BACKEND", "reference")
    assert cudnn.cudnnCreate().backend.name == "reference"
    monkeypatch.setenv("DUALDNN_BACKEND", "nonsense")
    with pytest.raises(CudnnError, match="nonsense"):
        cudnn.cudnnCreate()
    assert cudnn.cudnnCreate(backend="reference").backend.name == "reference"  # The argument counts.


def test_a_missing_name_raises_an_error_with_the_reason():
    for name in list(set(functions()) - set(FUNCTIONS))[:1]:
        with pytest.raises(AttributeError, match=r"section .* not implemented yet"):
            getattr(cudnn, name)
    with pytest.raises(AttributeError, match="not a function or enumerator"):
        cudnn.cudnnDoMagic  # noqa: B018


def test_many_threads_create_and_use_handles():
    problems = []

    def work():
        try:
            mine = cudnn.cudnnCreate(backend="reference")
            relu, x = descriptors()
            memory = mine.to_device(np.full(24, -1, np.float32))
            for _ in range(50):
                cudnn.cudnnActivationForward(mine, relu, 1.0, x, memory, 0.0, x, memory)
            cudnn.cudnnDestroy(mine)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


@pytest.mark.parametrize("backend", ["reference", "accelerated"])
@pytest.mark.parametrize("wrong", ["x", "y"])
def test_memory_begins_at_a_multiple_of_its_elements(backend, wrong):
    """A misaligned address is refused before a kernel could read it."""
    handle = cudnn.cudnnCreate(backend=backend, device=None if backend == "reference" else "emulated")
    relu, x = descriptors()
    memory = handle.to_device(np.zeros(400, np.uint8))
    begins = {"x": 0, "y": 200} | {wrong: {"x": 2, "y": 202}[wrong]}
    with pytest.raises(
        CudnnError, match=rf"{wrong} is at 0x[0-9a-f]+, no multiple of the 4 bytes of its elements"
    ) as caught:
        slices = [memory.slice(begins[name], 96) for name in ("x", "y")]
        cudnn.cudnnActivationForward(handle, relu, 1.0, x, slices[0], 0.0, x, slices[1])
    assert caught.value.status == BAD_PARAM
    assert not memory.to_host(np.uint8, 400).any()


@pytest.mark.parametrize("width, bytes_", [("8BIT", 1), ("16BIT", 2), ("32BIT", 4), ("64BIT", 8)])
def test_indices_begin_at_a_multiple_of_their_width(handle, width, bytes_):
    reduction = cudnn.cudnnCreateReduceTensorDescriptor()
    cudnn.cudnnSetReduceTensorDescriptor(
        reduction, cudnn.CUDNN_REDUCE_TENSOR_MAX, cudnn.CUDNN_DATA_FLOAT, cudnn.CUDNN_PROPAGATE_NAN,
        cudnn.CUDNN_REDUCE_TENSOR_FLATTENED_INDICES, getattr(cudnn, f"CUDNN_{width}_INDICES"),
    )  # fmt: skip
    _, a = descriptors()
    c = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(c, cudnn.CUDNN_TENSOR_NCHW, cudnn.CUDNN_DATA_FLOAT, 1, 2, 1, 1)
    needed = cudnn.cudnnGetReductionWorkspaceSize(handle, reduction, a, c)
    A, C, workspace, indices = (handle.to_device(np.ones(n, np.uint8)) for n in (96, 8, needed, 64))

    def reduce(offset):
        cudnn.cudnnReduceTensor(
            handle, reduction, indices.slice(offset, 2 * bytes_), 2 * bytes_, workspace, needed, 1.0, a, A, 0.0, c, C
        )

    reduce(8)
    if bytes_ > 1:
        with pytest.raises(CudnnError, match=f"indices is at .* no multiple of the {bytes_} bytes"):
            reduce(8 + bytes_ // 2)
