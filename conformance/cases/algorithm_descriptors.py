"""Holds cases of the descriptors of algorithms and of their performance, and of their saved form."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.cudnn.algorithm_descriptors import ALGORITHMS
from dualdnn.api.enumerations import cudnnDataType_t, cudnnRNNAlgo_t, cudnnStatus_t
from dualdnn.api.status import ALLOC_FAILED, BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.marks import shows
from dualdnn.conformance.suite.fixtures import fresh_descriptor

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject

EVERY = [algorithm for kind in ALGORITHMS for algorithm in kind]
DYNAMIC = cudnnRNNAlgo_t.CUDNN_RNN_ALGO_PERSIST_DYNAMIC
BAD = "cudnnStatus_t/c05"
fresh = fresh_descriptor("Algorithm")


def described(cudnn: Any, algorithm: Any = DYNAMIC) -> Any:
    descriptor = cudnn.cudnnCreateAlgorithmDescriptor()
    cudnn.cudnnSetAlgorithmDescriptor(descriptor, algorithm)
    return descriptor


@shows("cudnnCreateAlgorithmDescriptor/c01 c03", "cudnnDestroyAlgorithmDescriptor/c01 c03", "cudnnSetAlgorithmDescriptor/c02-c04",
       "cudnnGetAlgorithmDescriptor/c02 c04")  # fmt: skip
def test_every_algorithm(subject: Subject, cudnn: Any, fresh: Any, refuses: Callable[..., bool]) -> None:
    """Descriptors are independent of each other. A number from C counts as the enumerator of that value."""
    other = described(cudnn, EVERY[-1])
    for algorithm in (*EVERY, *{int(algorithm) for algorithm in EVERY}):
        cudnn.cudnnSetAlgorithmDescriptor(fresh, algorithm)
        assert cudnn.cudnnGetAlgorithmDescriptor(fresh) == algorithm
    assert cudnn.cudnnGetAlgorithmDescriptor(other) == EVERY[-1]
    cudnn.cudnnDestroyAlgorithmDescriptor(other)
    assert cudnn.cudnnGetAlgorithmDescriptor(fresh) == algorithm
    if subject.survives_stray_pointers:
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnGetAlgorithmDescriptor, other)


@shows("cudnnSetAlgorithmDescriptor/c03")
@pytest.mark.parametrize("value", [-1, 99, 2**31 - 1])
def test_no_algorithm(subject: Subject, cudnn: Any, fresh: Any, refuses: Callable[..., bool], value: Any) -> None:
    cudnn.cudnnSetAlgorithmDescriptor(fresh, DYNAMIC)
    refuses(BAD_PARAM, BAD, cudnn.cudnnSetAlgorithmDescriptor, fresh, value)
    if subject.is_python:
        assert cudnn.cudnnGetAlgorithmDescriptor(fresh) is DYNAMIC
        for wrong in (cudnnDataType_t.CUDNN_DATA_HALF, "1", 1.0, None):
            refuses(BAD_PARAM, BAD, cudnn.cudnnSetAlgorithmDescriptor, fresh, wrong)


@shows("cudnnGetAlgorithmDescriptor/c02")
def test_copies(subject: Subject, cudnn: Any, fresh: Any) -> None:
    """A copy is an independent descriptor of the same enumeration. A descriptor may be copied to itself."""
    source = described(cudnn)
    cudnn.cudnnCopyAlgorithmDescriptor(source, fresh)
    cudnn.cudnnSetAlgorithmDescriptor(source, EVERY[1])
    copied = cudnn.cudnnGetAlgorithmDescriptor(fresh)
    assert copied == DYNAMIC and (not subject.is_python or copied is DYNAMIC)
    cudnn.cudnnCopyAlgorithmDescriptor(source, fresh)
    cudnn.cudnnCopyAlgorithmDescriptor(fresh, fresh)
    assert cudnn.cudnnGetAlgorithmDescriptor(fresh) == EVERY[1]


@shows("cudnnGetAlgorithmDescriptor/c02", "cudnnGetAlgorithmPerformance/c02")
def test_what_was_not_set(subject: Subject, cudnn: Any, fresh: Any, refuses: Callable[..., bool]) -> None:
    """A new descriptor has neither an algorithm nor figures to read (docs/errata.md, D520)."""
    if not subject.survives_stray_pointers:
        pytest.skip("a foreign library reads memory that nobody has written")
    target, (performance,) = described(cudnn), cudnn.cudnnCreateAlgorithmPerformance(1)
    refuses(BAD_PARAM, BAD, cudnn.cudnnGetAlgorithmDescriptor, fresh)
    refuses(BAD_PARAM, BAD, cudnn.cudnnCopyAlgorithmDescriptor, fresh, target)
    refuses(BAD_PARAM, BAD, cudnn.cudnnGetAlgorithmPerformance, performance)
    assert cudnn.cudnnGetAlgorithmDescriptor(target) == DYNAMIC


@shows("cudnnCreateAlgorithmPerformance/c01 c02", "cudnnDestroyAlgorithmPerformance/c01 c02", "cudnnSetAlgorithmPerformance/c02-c07",
       "cudnnGetAlgorithmPerformance/c02-c05 c07")  # fmt: skip
def test_performances(subject: Subject, cudnn: Any) -> None:
    """Objects of one call are independent; each refers to its descriptor even after that is set again."""
    first, second = described(cudnn), described(cudnn, EVERY[0])
    objects = cudnn.cudnnCreateAlgorithmPerformance(3)
    assert len(set(map(id, objects))) == 3 and cudnn.cudnnCreateAlgorithmPerformance(0) == ()
    figures = (
        (first, cudnnStatus_t.CUDNN_STATUS_SUCCESS, float(np.float32(0.1)), 2**40),
        (second, cudnnStatus_t.CUDNN_STATUS_NOT_SUPPORTED, -1.0, 0),
        (first, cudnnStatus_t.CUDNN_STATUS_EXECUTION_FAILED, float("inf"), 2**64 - 1),
    )
    for performance, values in zip(objects, figures, strict=True):
        time = 0.1 if values[2] == figures[0][2] else values[2]  # This is rounded to float.
        cudnn.cudnnSetAlgorithmPerformance(performance, *values[:2], time, values[3])
    for performance, values in zip(objects, figures, strict=True):
        found = cudnn.cudnnGetAlgorithmPerformance(performance)
        assert found[0] is values[0] and tuple(found[1:]) == values[1:]
    cudnn.cudnnSetAlgorithmDescriptor(first, EVERY[2])
    assert cudnn.cudnnGetAlgorithmDescriptor(cudnn.cudnnGetAlgorithmPerformance(objects[2])[0]) == EVERY[2]
    if subject.survives_stray_pointers:  # 8.9.7 also destroys the descriptors, one of them twice here.
        cudnn.cudnnDestroyAlgorithmPerformance(objects, 2)
        assert cudnn.cudnnGetAlgorithmPerformance(objects[2])[0] is first
        cudnn.cudnnDestroyAlgorithmPerformance(objects[2:], 1)
        assert cudnn.cudnnGetAlgorithmDescriptor(first) == EVERY[2]


@shows("cudnnCreateAlgorithmPerformance/c01", "cudnnDestroyAlgorithmPerformance/c02")
@pytest.mark.parametrize("number", [1, 5])
def test_objects_that_were_not_set(cudnn: Any, number: int) -> None:
    objects = cudnn.cudnnCreateAlgorithmPerformance(number)
    assert len(objects) == number
    cudnn.cudnnDestroyAlgorithmPerformance(objects, number)


@shows("cudnnSetAlgorithmPerformance/c04")
def test_wrong_figures(subject: Subject, cudnn: Any, refuses: Callable[..., bool]) -> None:
    """Refused settings leave the object as it was."""
    if not subject.cites_clauses:
        pytest.skip("a foreign library stores what it gets")
    descriptor, (performance,) = described(cudnn), cudnn.cudnnCreateAlgorithmPerformance(1)
    good = (descriptor, cudnnStatus_t.CUDNN_STATUS_SUCCESS, 1.5, 7)
    cudnn.cudnnSetAlgorithmPerformance(performance, *good)
    for place, wrong in ((0, None), (1, 99), (1, -1), (2, "1"), (3, -1), (3, 2**64)):
        values = (*good[:place], wrong, *good[place + 1 :])
        refuses(BAD_PARAM, BAD, cudnn.cudnnSetAlgorithmPerformance, performance, *values)
    assert tuple(cudnn.cudnnGetAlgorithmPerformance(performance)) == good


@shows("cudnnCreateAlgorithmPerformance/c01 c03", "cudnnDestroyAlgorithmPerformance/c01")
def test_numbers_of_objects(subject: Subject, cudnn: Any, refuses: Callable[..., bool]) -> None:
    """A refused call destroys no object, not even the valid ones."""
    if not subject.is_python:
        pytest.skip("a foreign library has no memory for so many, and does not know how many there are")
    refuses(BAD_PARAM, BAD, cudnn.cudnnCreateAlgorithmPerformance, -1)
    refuses(ALLOC_FAILED, "cudnnCreateAlgorithmPerformance/c03", cudnn.cudnnCreateAlgorithmPerformance, 2**31 - 1)
    objects, descriptor = cudnn.cudnnCreateAlgorithmPerformance(2), described(cudnn)
    for value in objects:
        cudnn.cudnnSetAlgorithmPerformance(value, descriptor, 0, 1.0, 1)
    one = objects[0]
    for wrong, number in ((objects, -1), (objects, 3), ((one, None), 2), ((one, descriptor), 2), (None, 0), (one, 1)):
        refuses(BAD_PARAM, BAD, cudnn.cudnnDestroyAlgorithmPerformance, wrong, number)
    cudnn.cudnnDestroyAlgorithmPerformance(objects, 0)
    assert [cudnn.cudnnGetAlgorithmPerformance(value)[0] for value in objects] == [descriptor] * 2
    cudnn.cudnnDestroyAlgorithmPerformance(objects, 2)
    refuses(BAD_PARAM, BAD, cudnn.cudnnGetAlgorithmPerformance, objects[0])


# --- the saved form ---


def saved(cudnn: Any, handle: Any, descriptor: Any) -> Any:
    """Return the saved bytes, after checking that the bytes around them stay."""
    size = cudnn.cudnnGetAlgorithmSpaceSize(handle, descriptor)
    space = bytearray(b"\xa5" * (size + 16))
    cudnn.cudnnSaveAlgorithm(handle, descriptor, space, size)
    assert space[size:] == b"\xa5" * 16
    return space[:size]


@shows("cudnnGetAlgorithmSpaceSize/c02 c03", "cudnnSaveAlgorithm/c02-c04 c06", "cudnnRestoreAlgorithm/c02-c04 c06")
def test_saved_and_restored(subject: Subject, cudnn: Any, handle: Any, fresh: Any) -> None:
    """When its handle is gone, another one restores every algorithm, also from longer memory, into a fresh descriptor
    or a set one."""
    for algorithm in (*EVERY, 2):
        other = subject.new_handle()
        space = saved(cudnn, other, described(cudnn, algorithm))
        cudnn.cudnnDestroy(other)
        cudnn.cudnnRestoreAlgorithm(handle, bytes(space) + b"more", len(space) + 4, fresh)
        found = cudnn.cudnnGetAlgorithmDescriptor(fresh)
        assert found == algorithm and (not subject.is_python or type(found) is type(algorithm))


@shows("cudnnGetAlgorithmSpaceSize/c04", "cudnnSaveAlgorithm/c04 c07 c08", "cudnnRestoreAlgorithm/c08")
def test_null_and_too_small(subject: Subject, cudnn: Any, handle: Any, refuses: Callable[..., bool]) -> None:
    descriptor = described(cudnn)
    size = cudnn.cudnnGetAlgorithmSpaceSize(handle, descriptor)
    space = bytearray(b"\xa5" * size)
    refuses(BAD_PARAM, "cudnnGetAlgorithmSpaceSize/c04", cudnn.cudnnGetAlgorithmSpaceSize, None, descriptor)
    refuses(BAD_PARAM, "cudnnGetAlgorithmSpaceSize/c04", cudnn.cudnnGetAlgorithmSpaceSize, handle, None)
    save, restore = cudnn.cudnnSaveAlgorithm, cudnn.cudnnRestoreAlgorithm
    for place in range(3):
        values = [handle, descriptor, space]
        values[place] = None
        refuses(BAD_PARAM, "cudnnSaveAlgorithm/c07", save, *values, size)
    for few in (0, 1, size - 1):
        refuses(BAD_PARAM, "cudnnSaveAlgorithm/c08", save, handle, descriptor, space, few)
    assert space == b"\xa5" * size
    save(handle, descriptor, bytearray(size), size)  # Memory of exactly the reported size suffices.
    for place, clause in ((0, "c08"), (1, "c08"), (2, "c08")):
        values = [handle, space, descriptor]
        values[place] = None
        refuses(BAD_PARAM, f"cudnnRestoreAlgorithm/{clause}", restore, *values[:2], size, values[2])
    if subject.is_python:
        fresh = cudnn.cudnnCreateAlgorithmDescriptor()
        refuses(BAD_PARAM, "cudnnGetAlgorithmSpaceSize/c04", cudnn.cudnnGetAlgorithmSpaceSize, handle, fresh)
        for wrong in (bytes(size), "text", 17, np.zeros((size, 2), np.uint8)[:, 0], space[:-1]):
            refuses(BAD_PARAM, "cudnnSaveAlgorithm/c07", save, handle, descriptor, wrong, size)


@shows("cudnnRestoreAlgorithm/c04 c09")
def test_damaged_metadata(subject: Subject, cudnn: Any, handle: Any, refuses: Callable[..., bool]) -> None:
    """Any changed bit and any missing byte is refused, and the descriptor stays as it was."""
    if not subject.cites_clauses:
        pytest.skip("what a foreign library notices is its own affair")
    space, descriptor = saved(cudnn, handle, described(cudnn)), described(cudnn, EVERY[1])
    restore, clause = cudnn.cudnnRestoreAlgorithm, "cudnnRestoreAlgorithm/c09"
    for bit in range(8 * len(space)):
        damaged = bytearray(space)
        damaged[bit // 8] ^= 1 << bit % 8
        refuses(BAD_PARAM, clause, restore, handle, damaged, len(damaged), descriptor)
    for size in range(len(space)):
        refuses(BAD_PARAM, clause, restore, handle, space[:size], size, descriptor)
    for foreign in (bytes(64), b"\xff" * 64, b"cuDNN algorithm metadata of another library, of any length"):
        refuses(BAD_PARAM, clause, restore, handle, foreign, len(foreign), descriptor)
    assert cudnn.cudnnGetAlgorithmDescriptor(descriptor) == EVERY[1]


def written(version: Any, form: Any, kind: Any, number: Any, more: bytes = b"") -> Any:
    """Return metadata in the documented form, with a valid checksum (docs/errata.md, D099)."""
    return sealed(struct.pack("<IIIi", version, form, kind, number) + more)


def sealed(body: Any) -> Any:
    """Return metadata of any length with a valid checksum."""
    checked = struct.pack("<I", len(body)) + body
    return b"DUALDNN1" + struct.pack("<I", zlib.crc32(checked)) + checked


@shows("cudnnRestoreAlgorithm/c07 c09")
def test_metadata_of_other_versions(
    subject: Subject, cudnn: Any, handle: Any, refuses: Callable[..., bool], fresh: Any
) -> None:
    """Metadata of another version of cuDNN or of the form is refused, and so are unknown algorithms."""
    if not subject.cites_clauses:
        pytest.skip("the form is ours")
    restore = cudnn.cudnnRestoreAlgorithm
    others = [
        written(*form)
        for form in ((8004, 1, 4, 2), (7605, 1, 4, 2), (8003, 2, 4, 2), (8003, 2, 9, -7, b"longer metadata"))
    ]
    # This metadata is too short for a form.
    others += [sealed(struct.pack("<I", 8003) + b"cut") + bytes(16), sealed(struct.pack("<II", 8003, 2)) + bytes(16)]
    for other in others:
        refuses(NOT_SUPPORTED, "cudnnRestoreAlgorithm/c07", restore, handle, other, len(other), fresh)
    for kind, number, *more in ((4, 3), (6, 0), (0, 99), (5, -1), (4, 2, b"more")):
        wrong = written(8003, 1, kind, number, *more)
        refuses(BAD_PARAM, "cudnnRestoreAlgorithm/c09", restore, handle, wrong, len(wrong), fresh)
    cudnn.cudnnRestoreAlgorithm(handle, written(8003, 1, 4, 2), 32, fresh)
    assert cudnn.cudnnGetAlgorithmDescriptor(fresh) == DYNAMIC
