"""Holds cases of a handle's memory: what a program reads from it, its parts, its end."""

from __future__ import annotations

import copy
import ctypes
import pickle

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnTensorFormat_t
from dualdnn.api.operations import FilterSpec, TensorSpec
from dualdnn.api.operations.specs import FLOAT, HALF, NCHW_VECT_C, NHWC, INT8x4
from dualdnn.api.status import ALLOC_FAILED, BAD_PARAM
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.marks import shows

pytestmark = pytest.mark.ours
NUMBERS = np.arange(48, dtype=np.float32)


@pytest.fixture
def memory(handle):
    return handle.to_device(NUMBERS)


@shows("cudnnHandle_t/c01")
def test_what_is_read(memory):
    """Reading copies the first elements into the shape, in which one size may be -1."""
    for shape in (48, (6, 8), (4, 3, 2), 0, (0, 3), (), [2, 2], np.int64(5)):
        wanted = tuple(np.ravel(shape).tolist()) if np.ndim(shape) else () if np.shape(shape) == (0,) else (int(shape),)
        read = memory.to_host(np.float32, shape)
        assert read.shape == wanted and np.array_equal(read, NUMBERS[: read.size].reshape(wanted))
    for shape, wanted in ((-1, (48,)), ((-1, 8), (6, 8)), ((3, -1, 2), (3, 8, 2)), ((48, -1), (48, 1))):
        assert np.array_equal(memory.to_host(np.float32, shape), NUMBERS.reshape(wanted))
    assert (
        memory.to_host("f2", -1).shape == (96,)
        and memory.to_host(np.uint8, memory.nbytes).tobytes() == NUMBERS.tobytes()
    )
    read[...] = -1
    assert np.array_equal(memory.to_host(np.float32, 48), NUMBERS)


@shows("cudnnHandle_t/c01")
def test_what_cannot_be_read(memory):
    for shape in (49, (7, 7), (-1, -1), (-2, 3), -2, (0, -1), (5, -1), (1, -1, 7)):
        with pytest.raises(ValueError, match="shape"):
            memory.to_host(np.float32, shape)
    for dtype, shape in (
        (object, 1),
        ([("a", object)], 1),
        (np.float32, None),
        (None, None),
        (np.float32, 1.5),
        (np.float32, "4"),
    ):
        with pytest.raises(TypeError):
            memory.to_host(dtype, shape)


@shows("cudnnHandle_t/c01")
def test_what_descriptors_read(cudnn, handle, memory):
    """Reading by a descriptor gives (N, C, spatial ...), whatever the layout. Vectors are joined; the memory must
    span the descriptor."""
    make = Caller(cudnn, handle)
    nhwc = TensorSpec.packed(FLOAT, (2, 3, 4, 2), NHWC)
    assert np.array_equal(memory.to_host(make.tensor(nhwc)), NUMBERS.reshape(2, 4, 2, 3).transpose(0, 3, 1, 2))
    gaps = TensorSpec(FLOAT, (2, 2, 1, 3), (24, 8, 4, 2))
    assert np.array_equal(
        memory.to_host(make.tensor(gaps)),
        NUMBERS[[[0, 2, 4], [8, 10, 12], [24, 26, 28], [32, 34, 36]]].reshape(2, 2, 1, 3),
    )
    filters = FilterSpec(FLOAT, cudnnTensorFormat_t.CUDNN_TENSOR_NHWC, (2, 3, 4, 2))
    assert np.array_equal(memory.to_host(make.filter(filters)), NUMBERS.reshape(2, 4, 2, 3).transpose(0, 3, 1, 2))
    bytes_ = handle.to_device(np.arange(48, dtype=np.int8))
    vectors = make.tensor(TensorSpec.packed(INT8x4, (2, 8, 3, 1), NCHW_VECT_C))
    assert np.array_equal(
        bytes_.to_host(vectors), np.arange(48).reshape(2, 2, 3, 1, 4).transpose(0, 1, 4, 2, 3).reshape(2, 8, 3, 1)
    )
    with pytest.raises(ValueError, match="bytes"):
        memory.to_host(make.tensor(TensorSpec.packed(FLOAT, (1, 1, 7, 7))))
    assert memory.to_host(make.tensor(TensorSpec.packed(HALF, (1, 1, 12, 8)))).shape == (1, 1, 12, 8)
    with pytest.raises(TypeError):
        memory.to_host(cudnn.cudnnCreateTensorDescriptor())


@shows("cudnnHandle_t/c01")
def test_parts_of_memory(memory):
    """Parts share the bytes of the whole, and are freed with it."""
    for start, size in ((0, 192), (4, 8), (191, 1), (0, 0), (192, 0)):
        part = memory.slice(start, size)
        assert (part.address, part.nbytes) == (memory.address + start, size) and part.writable
        assert part.to_host(np.uint8, size).tobytes() == NUMBERS.tobytes()[start : start + size]
    for start, size in ((-1, 4), (0, 193), (189, 4), (193, 0), (4, -1)):
        with pytest.raises(ValueError, match="inside a buffer of 192 bytes"):
            memory.slice(start, size)
    inner = memory.slice(8, 16).slice(4, 8)
    assert inner.address == memory.address + 12 and np.array_equal(inner.to_host(np.float32, 2), NUMBERS[3:5])
    part, other = memory.slice(0, 8), memory.slice(0, 8)
    part.free()
    with pytest.raises(ValueError, match="freed"):
        part.to_host(np.uint8, 1)
    assert np.array_equal(other.to_host(np.float32, 2), NUMBERS[:2])
    memory.free()
    for gone in (memory, other, inner):
        with pytest.raises(ValueError, match="freed"):
            gone.to_host(np.uint8, 1)


@shows("cudnnHandle_t/c01")
def test_the_end_of_memory(handle, memory):
    """Memory is freed once, by free or at the end of a with statement; every later use is refused."""
    with memory as same:
        assert same is memory and "freed" not in repr(memory) and "192 bytes" in repr(memory)
        copied = copy.deepcopy(memory)
    assert "freed" in repr(memory)
    for use in (
        memory.free, lambda: memory.slice(0, 0), lambda: memory.to_host(np.uint8, 0), lambda: copy.deepcopy(memory), memory.__enter__
    ):  # fmt: skip
        with pytest.raises(ValueError, match="freed"):
            use()
    assert copied.address != memory.address and np.array_equal(copied.to_host(np.float32, 48), NUMBERS)
    with copied:
        copied.free()
    with pytest.raises(TypeError):
        pickle.dumps(handle.allocate(4))


def described_to_others(memory):
    """Return the descriptions of memory for other libraries, or the types of the errors that replace them."""
    found = []
    for ask in (
        memory.__dlpack_device__,
        memory.__dlpack__,
        lambda: np.asarray(memory),
        lambda: memory.__cuda_array_interface__,
    ):
        try:
            found.append(ask())
        except Exception as error:
            found.append(type(error))
    return found


@shows("cudnnHandle_t/c01")
def test_memory_as_other_libraries_see_it(subject, handle, memory):
    """Other libraries access host and GPU memory in place. They cannot access the emulated device or freed memory."""
    on_host = subject.name == "reference"
    device, capsule, array, interface = described_to_others(memory)
    if on_host:
        assert device == (1, 0) and interface is AttributeError
        assert np.array_equal(array.view(np.float32), NUMBERS) and array.ctypes.data == memory.address
        assert np.array_equal(np.from_dlpack(memory), array)
    elif subject.has_gpu:
        assert device == (2, 0) and "dltensor" in repr(capsule) and array is TypeError
        wanted = {"version": 3, "shape": (192,), "typestr": "|u1", "data": (memory.address, False), "strides": None}
        assert interface == wanted and handle.allocate(0).__cuda_array_interface__["data"] == (0, False)
    else:
        assert (device, capsule, array, interface) == (BufferError, BufferError, TypeError, AttributeError)
    memory.free()
    gone = (ValueError, ValueError, AttributeError) if on_host else (ValueError, TypeError, ValueError)
    assert tuple(described_to_others(memory)[1:]) == gone


@shows("cudnnStatus_t/c05")
def test_memory_of_the_program(subject, cudnn, handle, refuses):
    """The reference reads and writes arrays of the program in place.

    An array with gaps, with objects, or too small is refused.
    """
    if subject.name != "reference":
        pytest.skip("memory of the host is no memory of a device")
    make = Caller(cudnn, handle)
    tensor = make.tensor(TensorSpec.packed(FLOAT, (1, 1, 2, 3)))
    good = np.ones(6, np.float32)
    fields = memoryview(np.zeros(3, [("O", "f4"), ("I", "f4")]))  # "O" alone would be objects.
    pointers = (ctypes.c_void_p * 3)()
    for held in (good, good.reshape(2, 3), memoryview(good), bytearray(24), good.view(np.uint8), fields, pointers):
        cudnn.cudnnSetTensor(handle, tensor, held, 2.5)
        assert np.array_equal(np.frombuffer(held, np.float32), np.full(6, 2.5, np.float32))
    wide = np.zeros((2, 6), np.float32)
    objects = np.zeros(3, object)
    none = (
        wide.T, wide[:, ::2], wide[:, :3], memoryview(bytearray(48))[::2], objects, memoryview(objects), bytes(24), [1.0] * 6, 7,
        "memory",
    )  # fmt: skip
    for clause, refused in (("cudnnSetTensor/c07", none), ("cudnnStatus_t/c05", (good[:5], bytearray(23)))):
        for held in refused:
            refuses(BAD_PARAM, clause, cudnn.cudnnSetTensor, handle, tensor, held, 3.0)
    assert not wide.any()


class Interface:
    """Presents memory as the CUDA array interface describes it."""

    def __init__(self, address, shape=(6,), typestr="<f4", read_only=False, **entries):
        self.__cuda_array_interface__ = {
            "version": 3, "data": (address, read_only), "typestr": typestr, "shape": shape, **entries
        }  # fmt: skip


@shows("cudnnStatus_t/c05")
def test_device_memory_of_the_program(subject, cudnn, handle, refuses, memory):
    """A device takes addresses and objects with the CUDA array interface, and uses as much memory as that reports."""
    if subject.name == "reference":
        pytest.skip("it has memory of the host")
    make, at, strides = Caller(cudnn, handle), memory.address, {"strides": (8,)}
    six, three, one = (make.tensor(TensorSpec.packed(FLOAT, (1, 1, 1, size))) for size in (6, 3, 1))
    wanted = NUMBERS.copy()
    for tensor, place, held in (
        (six, 0, at), (three, 1, np.uint64(at + 4)), (six, 2, Interface(at + 8)),
        (three, 9, Interface(at + 36, (1, 3))), (three, 12, Interface(at + 48, (12,), "|u1")),
        (six, 6, Interface(at + 24, (3,), "<f8", strides=None))
    ):  # fmt: skip
        value = float(np.float32(place + 0.5))
        cudnn.cudnnSetTensor(handle, tensor, held, value)
        wanted[place : place + (6 if tensor is six else 3)] = value
        assert np.array_equal(memory.to_host(np.float32, 48), wanted)
    odd = type("Odd", (), {"__cuda_array_interface__": 7})()
    entries = (strides, {"shape": (-6,)}, {"shape": None}, {"typestr": "?!"}, {"typestr": "|O"}, {"data": (2.5, False)})
    strangers = (
        0, -at, 2**64, float(at), True, str(at), np.array(at), None, object(), odd,
        *(Interface(at, **entry) for entry in entries), *(Interface(address) for address in (0, -at, 2**64)),
        Interface(at, read_only=True),
    )  # fmt: skip
    for held in strangers:
        refuses(BAD_PARAM, "cudnnSetTensor/c07", cudnn.cudnnSetTensor, handle, six, held, 3.0)
    too_little = [Interface(at, (5,)), Interface(at, (11,), "<f2"), Interface(at, (0,)), Interface(0, (0,))]
    if subject.name.endswith("emulated"):  # This device knows the memory at an address.
        too_little.append(at + 172)
        for held in (Interface(at + 172), Interface(at + 4, (48,)), at + 2**20):
            refuses(BAD_PARAM, "cudnnSetTensor/c07", cudnn.cudnnSetTensor, handle, one, held, 3.0)
    for held in too_little:
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnSetTensor, handle, six, held, 3.0)
    assert np.array_equal(memory.to_host(np.float32, 48), wanted)


@shows("cudnnHandle_t/c01", "cudnnStatus_t/c04")
def test_sizes_of_memory(handle, refuses):
    for make in (handle.allocate, handle.zeros):
        assert [make(size).nbytes for size in (0, 1, np.int32(7), True)] == [0, 1, 7, 1]
        for size in (-1, -(2**70)):
            with pytest.raises(ValueError, match="negative"):
                make(size)
        for size in (2**63, 2**63 - 1, 2**64, 2**70):
            refuses(ALLOC_FAILED, "cudnnStatus_t/c04", make, size)
        for size in (1.0, "1", None):
            with pytest.raises(TypeError):
                make(size)
    assert not handle.zeros(1000).to_host(np.uint8, 1000).any()
    for array in (np.float32(3), [1, 2], np.arange(12).reshape(3, 4).T):
        made = handle.to_device(array)
        assert made.to_host(np.uint8, -1).tobytes() == np.ascontiguousarray(array).tobytes()
