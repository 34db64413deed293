"""Test that buffers behave alike on every backend, show host memory to other libraries, and report their memory
correctly.
"""

from __future__ import annotations

import copy
import gc
import pickle

import ml_dtypes
import numpy as np
import pytest
from dualdnn.api import cudnn
from dualdnn.api.enumerations import cudnnStatus_t
from dualdnn.api.operations import dlpack
from dualdnn.api.status import CudnnError

BACKENDS = [("reference", None), ("accelerated", "emulated"), ("crosscheck", "emulated")]


@pytest.fixture(params=BACKENDS, ids=[name for name, _ in BACKENDS])
def handle(request):
    with cudnn.cudnnCreate(backend=request.param[0], device=request.param[1]) as made:
        yield made
    assert not made.alive


@pytest.fixture
def host():
    return cudnn.cudnnCreate(backend="reference")


def tensor(dims, strides=None, data_type=cudnn.CUDNN_DATA_FLOAT):
    made = cudnn.cudnnCreateTensorDescriptor()
    if strides:
        cudnn.cudnnSetTensorNdDescriptor(made, data_type, len(dims), dims, strides)
    else:
        cudnn.cudnnSetTensor4dDescriptor(made, cudnn.CUDNN_TENSOR_NCHW, data_type, *dims)
    return made


def test_copies_take_a_size_of_minus_one(handle):
    buffer = handle.to_device(np.arange(24, dtype=np.float32))
    assert buffer.to_host(np.float32, -1).tolist() == list(range(24))
    assert buffer.to_host(np.float32, (-1, 6)).shape == (4, 6)
    assert buffer.to_host(np.float32, np.int64(3)).tolist() == [0, 1, 2]
    for shape in ((-1, -1), -2, (-1, 5), (25,), (2**40, 2**40)):
        with pytest.raises(ValueError, match="shape"):
            buffer.to_host(np.float32, shape)
    for wrong in ((object, 3), (np.float32,)):
        with pytest.raises(TypeError):
            buffer.to_host(*wrong)


def test_a_copy_by_descriptor(handle):
    values = np.arange(1, 121, dtype=np.float32)
    strided = tensor((2, 3, 4, 5), (60, 1, 15, 3))
    assert (handle.to_device(values).to_host(strided) == values.reshape(2, 4, 5, 3).transpose(0, 3, 1, 2)).all()
    with pytest.raises(ValueError, match="needs 480 bytes"):
        handle.to_device(values[:100]).to_host(strided)
    vectors = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(vectors, cudnn.CUDNN_TENSOR_NCHW_VECT_C, cudnn.CUDNN_DATA_INT8x4, 1, 8, 1, 2)
    stored = np.arange(16, dtype=np.int8)  # two groups of four channels at two positions
    assert (handle.to_device(stored).to_host(vectors)[0, :, 0, 1] == [4, 5, 6, 7, 12, 13, 14, 15]).all()


def test_slices_are_buffers_of_the_same_memory(handle):
    buffer = handle.to_device(np.arange(8, dtype=np.float32))
    part = buffer.slice(8, 16).slice(4, 8)
    assert type(part) is type(buffer) and part.to_host(np.float32, -1).tolist() == [3, 4]
    cudnn.cudnnScaleTensor(handle, tensor((1, 1, 1, 2)), part, 10.0)
    assert buffer.to_host(np.float32, -1).tolist() == [0, 1, 2, 30, 40, 5, 6, 7]
    for limits in ((0, 33), (-1, 4), (33, 0), (0, -1)):
        with pytest.raises(ValueError, match="not inside"):
            buffer.slice(*limits)
    other = buffer.slice(0, 8)
    other.free()
    with pytest.raises(ValueError, match="freed"):
        other.to_host(np.uint8, 1)
    assert part.to_host(np.float32, 1) == 30  # Freeing a slice does not free the memory.
    buffer.free()
    for freed in (buffer, part):
        with pytest.raises(ValueError, match="freed"):
            freed.to_host(np.uint8, 1)
        with pytest.raises(CudnnError, match="was freed"):
            cudnn.cudnnScaleTensor(handle, tensor((1, 1, 1, 2)), freed, 2.0)
    with pytest.raises(ValueError, match="freed already"):
        buffer.free()


def test_copies_have_separate_memory(handle):
    buffer = handle.to_device(np.arange(6, dtype=np.float32))
    twin = copy.deepcopy({"nested": buffer.slice(4, 8)})["nested"]
    assert twin.address != buffer.address + 4 and twin.to_host(np.float32, -1).tolist() == [1, 2]
    cudnn.cudnnScaleTensor(handle, tensor((1, 1, 1, 2)), twin, 5.0)
    assert buffer.to_host(np.float32, -1).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(TypeError, match="to_host"):
        pickle.dumps(buffer)


def test_a_buffer_says_its_size_and_its_place_and_ends_with_its_block(handle):
    with handle.allocate(40) as buffer:
        assert "40 bytes" in repr(buffer) and hex(buffer.address) in repr(buffer)
        assert ("emulated device" in repr(buffer)) == (handle.backend.name != "reference")
    assert "freed" in repr(buffer)
    with pytest.raises(ValueError, match="freed"):
        buffer.__enter__()


@pytest.mark.parametrize("size", [2**63, 2**64 + 16, 2**200], ids=["2**63", "2**64+16", "2**200"])
def test_sizes_that_no_memory_has(handle, size):
    for make in (handle.allocate, handle.zeros):
        with pytest.raises(CudnnError) as raised:
            make(size)
        assert raised.value.status == cudnnStatus_t.CUDNN_STATUS_ALLOC_FAILED
    with pytest.raises(TypeError):
        handle.allocate(2.5)


def test_numpy_and_dlpack_see_the_bytes_of_the_reference(host):
    buffer = host.to_device(np.arange(4, dtype=np.float32))
    for seen in (np.asarray(buffer), np.from_dlpack(buffer)):
        assert seen.dtype == np.uint8 and seen.ctypes.data == buffer.address
        assert seen.view(np.float32).tolist() == [0, 1, 2, 3]
    assert np.array(buffer).ctypes.data != buffer.address
    kept = np.asarray(buffer)
    buffer.free()
    assert kept.view(np.float32).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="freed"):
        np.asarray(buffer)


def test_other_libraries_are_not_given_the_emulated_device_s_memory():
    buffer = cudnn.cudnnCreate(backend="accelerated", device="emulated").allocate(16)
    with pytest.raises(TypeError, match="to_host"):
        np.asarray(buffer)
    assert not hasattr(buffer, "__cuda_array_interface__")
    with pytest.raises(BufferError, match="emulated device"):
        np.from_dlpack(buffer)


class Tensor:
    """Implement what DLPack asks of another library's tensor."""

    def __init__(self, array, device=(dlpack.CPU, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **_options):
        return dlpack.exported(self.array.ctypes.data, self.array.nbytes, self.device, self.array)

    def __dlpack_device__(self):
        return self.device


def test_the_reference_computes_on_dlpack_tensors(host):
    values = np.array([1, -2, 3], ml_dtypes.bfloat16)
    out = np.zeros(3, ml_dtypes.bfloat16)
    described = tensor((1, 1, 1, 3), data_type=cudnn.CUDNN_DATA_BFLOAT16)
    cudnn.cudnnAddTensor(host, 2.0, described, Tensor(values), 0.0, described, Tensor(out))
    assert out.astype(float).tolist() == [2, -4, 6]
    cudnn.cudnnAddTensor(host, 1.0, described, values, 1.0, described, out)  # NumPy arrays serve, too.
    assert out.astype(float).tolist() == [3, -6, 9]
    with pytest.raises(CudnnError, match="DLPack type 2"):
        cudnn.cudnnScaleTensor(host, described, Tensor(out, (dlpack.CUDA, 0)), 2.0)


def test_tensors_of_pytorch(host):
    torch = pytest.importorskip("torch")
    described = tensor((1, 1, 2, 3), data_type=cudnn.CUDNN_DATA_BFLOAT16)
    x = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    cudnn.cudnnScaleTensor(host, described, x, 3.0)
    assert x.flatten().tolist() == [0, 3, 6, 9, 12, 15]
    for wrong in (x.t(), torch.zeros(6, dtype=torch.bfloat16, requires_grad=True)):
        with pytest.raises(CudnnError):
            cudnn.cudnnScaleTensor(host, described, wrong, 3.0)


def test_capsules_keep_their_memory_until_they_are_gone():
    before, array = len(dlpack._exported), np.arange(10, dtype=np.uint8)
    seen = np.from_dlpack(Tensor(array))
    unused = Tensor(array).__dlpack__()
    assert seen.ctypes.data == array.ctypes.data and len(dlpack._exported) == before + 2
    del seen, unused
    gc.collect()
    assert len(dlpack._exported) == before
    assert dlpack.imported(np.zeros((3, 7), np.int16)).nbytes == 42
    with pytest.raises(ValueError, match="contiguous"):
        dlpack.imported(np.zeros((3, 7))[:, ::2])
