"""Implement descriptors of algorithms and of their performance, and their saved form (3.2.4, 3.2.7, 3.2.8, 3.2.22,
3.2.23, 3.2.38 to 3.2.40, 3.2.72, 3.2.74, 3.2.77, 3.2.78).

The saved form (docs/errata.md, D099) has 32 little-endian bytes:

- the text "DUALDNN1"
- the CRC-32 of everything after it
- the length of everything after it
- the cuDNN version
- the version of the form
- the position of the enumeration in ``ALGORITHMS``, counted from 1, or 0
- the algorithm
"""

from __future__ import annotations

import operator
import struct
import zlib
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..descriptors import AlgorithmDescriptor, AlgorithmPerformance
from ..enumerations import (
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnCTCLossAlgo_t,
    cudnnRNNAlgo_t,
    cudnnStatus_t,
)
from ..functions import documented
from ..operations import AlgorithmPerformanceSpec, AlgorithmSpec
from ..status import ALLOC_FAILED, BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED, CudnnError, expect
from .library import CUDNN_VERSION

if TYPE_CHECKING:
    from ..handle import Handle

# ALGORITHMS lists the enumerations of the union cudnnAlgorithm_t. Their order defines their numbers in the saved form.
ALGORITHMS = (
    cudnnConvolutionFwdAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionBwdDataAlgo_t,
    cudnnRNNAlgo_t,
    cudnnCTCLossAlgo_t,
)
NUMBERS = frozenset(int(member) for kind in ALGORITHMS for member in kind)
MAX_CREATED = 1 << 20  # objects per call; more than that counts as out of memory

MAGIC = b"DUALDNN1"  # first bytes of a saved algorithm
FORM = 1  # version of the format
HEADER, BODY = struct.Struct("<8sII"), struct.Struct("<IIIi")
SAVED_BYTES = HEADER.size + BODY.size


def _algorithm(value: Any) -> Any:
    """Return an enumerator, or an integer that is a value of one of the enumerations; raise BAD_PARAM for anything
    else."""
    if type(value) in ALGORITHMS:
        return value
    try:
        number = -1 if isinstance(value, Enum) else operator.index(value)
    except Exception:  # A foreign object may raise anything.
        number = -1
    kinds = ", ".join(kind.__name__ for kind in ALGORITHMS)
    expect(number in NUMBERS, BAD_PARAM, INCORRECT_PARAMETER, f"algorithm is {value!r}, no enumerator of {kinds}")
    return number


@documented()
def cudnnCreateAlgorithmDescriptor() -> AlgorithmDescriptor:
    """Return a new algorithm descriptor, to be filled by cudnnSetAlgorithmDescriptor. Source: 3.2.7."""
    return AlgorithmDescriptor()


@documented()
def cudnnSetAlgorithmDescriptor(algorithmDesc: AlgorithmDescriptor, algorithm: Any) -> None:
    """Store an algorithm in the descriptor.

    algorithm: an enumerator of cudnnConvolutionFwdAlgo_t, cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionBwdDataAlgo_t, cudnnRNNAlgo_t or cudnnCTCLossAlgo_t, or its number, because C passes a union.
    Errors: BAD_PARAM for anything else.
    Source: 3.2.77.
    """
    algorithmDesc.spec = AlgorithmSpec(_algorithm(algorithm))


@documented()
def cudnnGetAlgorithmDescriptor(algoDesc: AlgorithmDescriptor) -> Any:
    """Return the algorithm that was set. Errors: BAD_PARAM if none was set. Source: 3.2.38."""
    return algoDesc.spec.algorithm


@documented(fresh=["dest"])
def cudnnCopyAlgorithmDescriptor(src: AlgorithmDescriptor, dest: AlgorithmDescriptor) -> None:
    """Set dest to the algorithm of src. Errors: BAD_PARAM where src has none. Source: 3.2.4."""
    dest.spec = src.spec


@documented()
def cudnnDestroyAlgorithmDescriptor(algorithmDesc: AlgorithmDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 3.2.22."""
    algorithmDesc.destroy()


@documented()
def cudnnCreateAlgorithmPerformance(numberToCreate: int) -> tuple[AlgorithmPerformance, ...]:
    """Return a tuple of ``numberToCreate`` new objects.

    Errors: BAD_PARAM for a negative number, ALLOC_FAILED beyond 2^20 (c03). Source: 3.2.8.
    """
    expect(numberToCreate >= 0, BAD_PARAM, INCORRECT_PARAMETER, f"numberToCreate is {numberToCreate}")
    expect(numberToCreate <= MAX_CREATED, ALLOC_FAILED, "cudnnCreateAlgorithmPerformance/c03",
           f"numberToCreate is {numberToCreate}, there is memory for {MAX_CREATED}")  # fmt: skip
    return tuple(AlgorithmPerformance() for _ in range(numberToCreate))


@documented(fresh=["algoDesc"])
def cudnnSetAlgorithmPerformance(
    algoPerf: AlgorithmPerformance, algoDesc: AlgorithmDescriptor, status: cudnnStatus_t, time: float, memory: int
) -> None:
    """Store the result of running algoDesc's algorithm: its status, milliseconds (rounded to float) and bytes.

    The object refers to algoDesc, so a later change of algoDesc changes the object.
    Errors: BAD_PARAM for NULL or an unknown status. Source: 3.2.78.
    """
    with np.errstate(over="ignore"):
        spec = AlgorithmPerformanceSpec(status, float(np.float32(time)), memory)
    algoPerf.algorithm, algoPerf.spec = algoDesc, spec


class AlgorithmPerformanceParameters(NamedTuple):
    algoDesc: AlgorithmDescriptor
    status: cudnnStatus_t
    time: float
    memory: int


@documented()
def cudnnGetAlgorithmPerformance(algoPerf: AlgorithmPerformance) -> AlgorithmPerformanceParameters:
    """Return (algoDesc, status, time, memory) as they were set; algoDesc is the same descriptor.

    Errors: BAD_PARAM where nothing was set.

    Source: 3.2.39.
    """
    spec = algoPerf.spec
    expect(spec is not None, BAD_PARAM, INCORRECT_PARAMETER, "algoPerf has not been initialised")
    return AlgorithmPerformanceParameters(algoPerf.algorithm, spec.status, spec.time, spec.memory)


@documented()
def cudnnDestroyAlgorithmPerformance(algoPerf: Sequence[AlgorithmPerformance], numberToDestroy: int) -> None:
    """Destroy the first ``numberToDestroy`` objects of a sequence; after an error, none is destroyed.

    Errors: BAD_PARAM for a number outside 0 to the sequence's length.

    Source: 3.2.23.
    """
    expect(0 <= numberToDestroy <= len(algoPerf), BAD_PARAM, INCORRECT_PARAMETER,
           f"numberToDestroy is {numberToDestroy}, algoPerf has {len(algoPerf)} objects")  # fmt: skip
    for performance in algoPerf[:numberToDestroy]:
        performance.destroy()


@documented(invalid={"*": "c04"})
def cudnnGetAlgorithmSpaceSize(handle: Handle, algoDesc: AlgorithmDescriptor) -> int:
    """Return the bytes of host memory that cudnnSaveAlgorithm writes.

    Errors: BAD_PARAM for NULL, and where no algorithm was set (c04).

    Source: 3.2.40.
    """
    return SAVED_BYTES


def _host_memory(algoSpace: Any, algoSpaceSizeInBytes: Any, clause: Any, written: Any) -> Any:
    """Return a view of the caller's host memory; raise an error that cites ``clause`` if it cannot be used."""
    expect(algoSpace is not None, BAD_PARAM, clause, "algoSpace is NULL")
    try:
        view = memoryview(algoSpace).cast("B")
    except (TypeError, ValueError) as error:
        raise CudnnError(BAD_PARAM, clause, f"algoSpace is not contiguous host memory: {error}") from None
    expect(algoSpaceSizeInBytes <= view.nbytes, BAD_PARAM, clause,
           f"algoSpaceSizeInBytes is {algoSpaceSizeInBytes}, algoSpace has {view.nbytes} bytes")  # fmt: skip
    expect(not (written and view.readonly), BAD_PARAM, clause, "algoSpace is written, but its memory is read-only")
    return view[:algoSpaceSizeInBytes]


@documented(invalid={"*": "c07"}, unchecked=["algoSpace"])
def cudnnSaveAlgorithm(
    handle: Handle, algoDesc: AlgorithmDescriptor, algoSpace: Any, algoSpaceSizeInBytes: int
) -> None:
    """Write the algorithm to host memory. cudnnRestoreAlgorithm can read it in another process on any machine.

    algoSpace: an object with the buffer protocol (bytearray, NumPy array).
    Errors: BAD_PARAM for NULL (c07), for fewer bytes than cudnnGetAlgorithmSpaceSize (c08). Source: 3.2.74.
    """
    space = _host_memory(algoSpace, algoSpaceSizeInBytes, "cudnnSaveAlgorithm/c07", written=True)
    expect(space.nbytes >= SAVED_BYTES, BAD_PARAM, "cudnnSaveAlgorithm/c08",
           f"algoSpaceSizeInBytes is {space.nbytes}, {SAVED_BYTES} are needed")  # fmt: skip
    algorithm = algoDesc.spec.algorithm
    kind = ALGORITHMS.index(type(algorithm)) + 1 if type(algorithm) in ALGORITHMS else 0
    body = BODY.pack(CUDNN_VERSION, FORM, kind, algorithm)
    space[:SAVED_BYTES] = HEADER.pack(MAGIC, zlib.crc32(struct.pack("<I", len(body)) + body), len(body)) + body


@documented(invalid={"*": "c08"}, fresh=["algoDesc"], unchecked=["algoSpace"])
def cudnnRestoreAlgorithm(
    handle: Handle, algoSpace: Any, algoSpaceSizeInBytes: int, algoDesc: AlgorithmDescriptor
) -> None:
    """Set algoDesc to the algorithm that cudnnSaveAlgorithm wrote; further bytes after it are ignored.

    Errors: BAD_PARAM for NULL (c08) and for data that is damaged, truncated or not written by cudnnSaveAlgorithm (c09);
    NOT_SUPPORTED for data of another version (c07). After an error algoDesc is unchanged. Source: 3.2.72.
    """
    call = "cudnnRestoreAlgorithm"
    space = bytes(_host_memory(algoSpace, algoSpaceSizeInBytes, f"{call}/c08", written=False)[: 2 * SAVED_BYTES])
    expect(len(space) >= SAVED_BYTES, BAD_PARAM, f"{call}/c09",
           f"algoSpaceSizeInBytes is {len(space)}, saved metadata have {SAVED_BYTES} bytes")  # fmt: skip
    magic, checksum, length = HEADER.unpack_from(space)
    expect(magic == MAGIC, BAD_PARAM, f"{call}/c09", f"algoSpace begins with {magic!r}, saved metadata with {MAGIC!r}")
    checked = space[HEADER.size - 4 : HEADER.size + length]
    expect(len(checked) == 4 + length and zlib.crc32(checked) == checksum, BAD_PARAM, f"{call}/c09",
           "the checksum of the metadata is wrong: they are corrupted")  # fmt: skip
    version, form = struct.unpack_from("<II", checked, 4) if length >= 8 else (0, 0)
    expect((version, form) == (CUDNN_VERSION, FORM), NOT_SUPPORTED, f"{call}/c07",
           f"the metadata were written by version {version}, form {form}; this is {CUDNN_VERSION}, form {FORM}")  # fmt: skip
    _, _, kind, number = BODY.unpack_from(space, HEADER.size)
    values = NUMBERS if kind == 0 else {int(v) for v in ALGORITHMS[kind - 1]} if kind <= len(ALGORITHMS) else set()
    expect(length == BODY.size and number in values, BAD_PARAM, f"{call}/c09",
           f"the metadata name algorithm {number} of enumeration {kind}, which does not exist")  # fmt: skip
    algoDesc.spec = AlgorithmSpec(ALGORITHMS[kind - 1](number) if kind else number)
