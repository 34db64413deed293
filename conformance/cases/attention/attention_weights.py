"""Holds cases of the buffers of multi-head attention: their sizes and the offset of each weight."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnMultiHeadAttnWeightKind_t
from dualdnn.api.operations.specs import DOUBLE, FLOAT, SCALAR_BYTES
from dualdnn.api.status import BAD_PARAM
from dualdnn.conformance.cases.attention.attention_descriptors import GOOD, fill, fresh
from dualdnn.conformance.marks import needs, shows

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject

__all__ = ["fresh"]
BUFFERS = "cudnnGetMultiHeadAttnBuffers"
WEIGHTS = "cudnnGetMultiHeadAttnWeights"
KINDS = list(cudnnMultiHeadAttnWeightKind_t)
Q, K, V, O, Q_BIAS, K_BIAS, V_BIAS, O_BIAS = KINDS  # noqa: E741
BIASES = 2  # value of CUDNN_ATTN_ENABLE_PROJ_BIASES
CASES = 12


def configuration(number: Any) -> Any:
    """Return a configuration for each number. The first ones have all projections, no projection, and each alone."""
    random = np.random.default_rng(number)
    size = {
        name: int(random.integers(1, 9)) for name in ("qSize", "kSize", "vSize", "qProjSize", "vProjSize", "oProjSize")
    }
    on = {0: "qkvo", 1: "", 2: "qk", 3: "v", 4: "o", 5: "k"}.get(number, [c for c in "qkvo" if random.random() < 0.6])
    values = {**GOOD, **size, "attnMode": int(random.integers(4)), "nHeads": int(random.integers(1, 5)),
              "dataType": (FLOAT, DOUBLE)[number % 2], "computePrec": (FLOAT, DOUBLE)[number % 2]}  # fmt: skip
    values["kProjSize"] = values["qProjSize"]
    if "q" not in on and "k" not in on:
        values["kSize"] = values["qSize"]
    elif "q" not in on:
        values["kProjSize"] = values["qSize"]
    elif "k" not in on:
        values["qProjSize"] = values["kSize"]
    for name in "qkvo":
        if name not in on:
            values[f"{name}ProjSize"] = 0
    return values


def tensors(values: Any) -> Any:
    """Return kind -> (dimensions, strides) of the tensors of this attention, by the formulas of 7.2.43."""
    heads, after = values["nHeads"], values["vProjSize"] or values["vSize"]
    q, k, v, o = (values[f"{name}ProjSize"] for name in "qkvo")
    found = {
        Q: ((heads, q, values["qSize"]), (q, 1, q * heads)), K: ((heads, k, values["kSize"]), (k, 1, k * heads)),
        V: ((heads, v, values["vSize"]), (v, 1, v * heads)), O: ((heads, o, after), (o * after, 1, o)),
    }  # fmt: skip
    if values["attnMode"] & BIASES:
        found |= {kind: ((heads, size, 1), (size, 1, 1)) for kind, size in ((Q_BIAS, q), (K_BIAS, k), (V_BIAS, v))}
        found[O_BIAS] = ((1, o, 1), (o, 1, 1))
    return {kind: tensor for kind, tensor in found.items() if tensor[0][1]}


def weight_bytes(values: Any) -> Any:
    """Return the bytes of all tensors of this attention."""
    return sum(int(np.prod(dims)) for dims, _ in tensors(values).values()) * SCALAR_BYTES[values["dataType"]]


def described(cudnn: Any, descriptor: Any) -> Any:
    """Return (data type, dimensions, strides); None where the descriptor reads as zeros."""
    kind, rank, dims, strides = cudnn.cudnnGetTensorNdDescriptor(descriptor, 8)
    return (kind, tuple(dims), tuple(strides)) if rank else None


@shows("cudnnGetMultiHeadAttnBuffers/c01 c10-c12 c15", "cudnnGetMultiHeadAttnWeights/c01-c04 c07-c11", "cudnnSetAttnDescriptor/c10-c13 c26 c34",
       "cudnnAttnDescriptor_t/c03", "cudnnMultiHeadAttnWeightKind_t/c01")  # fmt: skip
@pytest.mark.parametrize("number", range(CASES))
def test_where_the_weights_are(cudnn: Any, handle: Any, fresh: Any, number: int) -> None:
    """Every tensor has its shape and strides; together they fill the buffer without overlap."""
    values = configuration(number)
    fill(cudnn, fresh, **values)
    size, element = cudnn.cudnnGetMultiHeadAttnBuffers(handle, fresh)[0], SCALAR_BYTES[values["dataType"]]
    memory = handle.to_device(np.zeros(size + 64, np.uint8))
    descriptor = cudnn.cudnnCreateTensorDescriptor()
    taken = np.zeros(size // element, int)
    due, last = tensors(values), -1
    for kind in KINDS:
        part = cudnn.cudnnGetMultiHeadAttnWeights(handle, fresh, kind, size, memory, descriptor)
        assert (part is None) == (kind not in due)
        if part is None:
            assert described(cudnn, descriptor) is None
            continue
        dims, strides = due[kind]
        assert described(cudnn, descriptor) == (values["dataType"], dims, strides)
        first = (part.address - memory.address) // element
        assert first > last  # The order is Q, K, V, O, then the biases.
        last = first
        for index in product(*map(range, dims)):
            taken[first + sum(i * stride for i, stride in zip(index, strides, strict=True))] += 1
    assert size == weight_bytes(values) and (taken == 1).all()


@shows(f"{WEIGHTS}/c05")
@needs("is_python", "the binding passes memory of the device alone")
def test_a_copy_in_memory_of_the_host(subject: Subject, cudnn: Any, handle: Any, fresh: Any) -> None:
    """Parts of a buffer or array have the same offsets in each memory, also on the host."""
    fill(cudnn, fresh)
    size = cudnn.cudnnGetMultiHeadAttnBuffers(handle, fresh)[0]
    memory, descriptor = handle.to_device(np.zeros(size, np.uint8)), cudnn.cudnnCreateTensorDescriptor()
    for kind in KINDS:
        part = cudnn.cudnnGetMultiHeadAttnWeights(handle, fresh, kind, size, memory, descriptor)
        assert memory.address <= part.address and part.nbytes == int(np.prod(described(cudnn, descriptor)[1])) * 4
    if subject.name != "reference":
        return
    copy = np.zeros(size, np.uint8)
    for kind in KINDS:
        due = cudnn.cudnnGetMultiHeadAttnWeights(handle, fresh, kind, size, memory, descriptor).address - memory.address
        found = cudnn.cudnnGetMultiHeadAttnWeights(handle, fresh, kind, size, copy, descriptor)
        assert found - copy.ctypes.data == due


@shows(f"{WEIGHTS}/c03", f"{WEIGHTS}/c04", "cudnnSetAttnDescriptor/c08")
def test_no_weights_at_all(cudnn: Any, handle: Any, fresh: Any) -> None:
    """Without projections the buffer has no bytes, and need not exist."""
    fill(cudnn, fresh, qProjSize=0, kProjSize=0, vProjSize=0, oProjSize=0, kSize=GOOD["qSize"])
    assert cudnn.cudnnGetMultiHeadAttnBuffers(handle, fresh)[0] == 0
    descriptor = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensorNdDescriptor(descriptor, FLOAT, 3, (2, 3, 4), (12, 4, 1))
    for kind in KINDS:
        assert cudnn.cudnnGetMultiHeadAttnWeights(handle, fresh, kind, 0, None, descriptor) is None
        assert described(cudnn, descriptor) is None


@shows(f"{BUFFERS}/c02 c13 c14", "cudnnSetAttnDescriptor/c21 c22")
@pytest.mark.parametrize("name", ["qoMaxSeqLength", "kvMaxSeqLength", "maxBatchSize", "maxBeamSize"])
def test_larger_maxima_take_more_memory(subject: Subject, cudnn: Any, handle: Any, fresh: Any, name: str) -> None:
    """The work space of a foreign library may be as large for small maxima."""

    def sizes(value: Any) -> Any:
        fill(cudnn, fresh, **{name: value})
        return tuple(cudnn.cudnnGetMultiHeadAttnBuffers(handle, fresh))

    few, many = sizes(4), sizes(400)
    assert few[0] == many[0] == weight_bytes(GOOD) and few[1] < many[1] + (not subject.ours) and few[2] < many[2]


@pytest.mark.ours
@shows(f"{WEIGHTS}/c05", f"{WEIGHTS}/c14")
def test_weights_elsewhere(cudnn: Any, handle: Any, fresh: Any, refuses: Callable[..., bool]) -> None:
    """A plain address, also of the host, gives parts at the offsets of a buffer. Invalid addresses are refused."""
    fill(cudnn, fresh)
    size = cudnn.cudnnGetMultiHeadAttnBuffers(handle, fresh)[0]
    memory, descriptor = handle.to_device(np.zeros(size, np.uint8)), cudnn.cudnnCreateTensorDescriptor()

    def part(kind: Any, weights: Any) -> Any:
        return cudnn.cudnnGetMultiHeadAttnWeights(handle, fresh, kind, size, weights, descriptor)

    for start in (4, 4096):
        found = {kind: part(kind, start) for kind in (Q, K, V, O)}
        assert {kind: one - start for kind, one in found.items()} == {
            kind: part(kind, memory).address - memory.address for kind in found
        }
    for start in (0, -4, 1, 2, 4098, 4.0, "4096", True, [4096], np.float32(8)):
        refuses(BAD_PARAM, f"{WEIGHTS}/c14", part, Q, start)


@shows(f"{WEIGHTS}/c10 c12-c14", f"{BUFFERS}/c16")
def test_refusals(subject: Subject, cudnn: Any, handle: Any, fresh: Any, refuses: Callable[..., bool]) -> None:
    fill(cudnn, fresh)
    size = cudnn.cudnnGetMultiHeadAttnBuffers(handle, fresh)[0]
    memory, descriptor = handle.to_device(np.zeros(size + 8, np.uint8)), cudnn.cudnnCreateTensorDescriptor()

    def call(
        kind: Any = V,
        nbytes: Any = size,
        memory: Any = memory,
        handle: Any = handle,
        attention: Any = fresh,
        descriptor: Any = descriptor,
    ) -> Any:
        return cudnn.cudnnGetMultiHeadAttnWeights(handle, attention, kind, nbytes, memory, descriptor)

    for kind in (-1, 8):
        refuses(BAD_PARAM, f"{WEIGHTS}/c12", call, kind)
    for kind, nbytes in product((Q, O_BIAS), (size - 1, 0)):
        refuses(BAD_PARAM, f"{WEIGHTS}/c13", call, kind, nbytes)
    for wrong in ({"memory": None}, {"attention": None}, {"descriptor": None}, {"handle": None}):
        refuses(BAD_PARAM, f"{WEIGHTS}/c14", call, **wrong)
    for wrong in ((None, fresh), (handle, None)):
        refuses(BAD_PARAM, f"{BUFFERS}/c16", cudnn.cudnnGetMultiHeadAttnBuffers, *wrong)
    assert described(cudnn, descriptor) is None
    if subject.knows_sizes:
        refuses(BAD_PARAM, f"{WEIGHTS}/c14", call, memory=memory.slice(1, size))
        refuses(BAD_PARAM, f"{WEIGHTS}/c14", call, memory=memory.slice(0, size - 1))
        unset = cudnn.cudnnCreateAttnDescriptor()
        refuses(BAD_PARAM, f"{WEIGHTS}/c14", call, attention=unset)
        refuses(BAD_PARAM, f"{BUFFERS}/c16", cudnn.cudnnGetMultiHeadAttnBuffers, handle, unset)
