"""Holds cases of a handle's memory: what a program reads from it, its parts, its end."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import FLOAT
from dualdnn.api.status import BAD_PARAM
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.marks import shows

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject

pytestmark = pytest.mark.ours
NUMBERS = np.arange(48, dtype=np.float32)


@pytest.fixture
def memory(handle: Any) -> Any:
    return handle.to_device(NUMBERS)


@shows("cudnnStatus_t/c05")
def test_memory_of_the_program(subject: Subject, cudnn: Any, handle: Any, refuses: Callable[..., bool]) -> None:
    """The reference reads and writes arrays of the program in place.

    An array with gaps, with objects, or too small is refused.
    """
    if subject.name != "reference":
        pytest.skip("host memory is not device memory")
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

    def __init__(
        self, address: Any, shape: Any = (6,), typestr: str = "<f4", read_only: bool = False, **entries: Any
    ) -> None:
        self.__cuda_array_interface__ = {
            "version": 3, "data": (address, read_only), "typestr": typestr, "shape": shape, **entries
        }  # fmt: skip


@shows("cudnnStatus_t/c05")
def test_device_memory_of_the_program(
    subject: Subject, cudnn: Any, handle: Any, refuses: Callable[..., bool], memory: Any
) -> None:
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
        for held in (Interface(at + 172), Interface(at + 4, (48,)), 2**20):  # No program has memory there.
            refuses(BAD_PARAM, "cudnnSetTensor/c07", cudnn.cudnnSetTensor, handle, one, held, 3.0)
    for held in too_little:
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnSetTensor, handle, six, held, 3.0)
    assert np.array_equal(memory.to_host(np.float32, 48), wanted)
