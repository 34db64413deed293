"""Test that the weight buffer of multi-head attention agrees with NVIDIA's library, where that is installed."""

from __future__ import annotations

import ctypes
from dataclasses import fields

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnMultiHeadAttnWeightKind_t, cudnnStatus_t
from dualdnn.api.operations import AttnSpec
from dualdnn.api.operations.attention.memory import weight_count, weights_of
from dualdnn.api.operations.specs import DOUBLE, FLOAT, SCALAR_BYTES
from dualdnn.api.support.attention import DEFAULT
from dualdnn.conformance.subjects.library import find_vendor_library
from looped import for_each

BASE = 0x10000  # address of the buffer, which the queries do not read


def random_attentions(count: int) -> list[AttnSpec]:
    """Return attention descriptors with random projections, biases and different sizes."""
    random = np.random.default_rng(4)
    found = []
    for _ in range(count):
        data_type = (FLOAT, DOUBLE)[random.integers(2)]
        q, k, v, met, weighed, output = (int(size) for size in random.integers(1, 70, 6))
        has_q, has_k, has_v, has_o = (bool(choice) for choice in random.integers(0, 2, 4))
        met = met if has_q and has_k else q if has_k else k
        q = q if has_q or has_k else k
        found.append(
            AttnSpec(
                2 * int(random.integers(2)),
                int(random.integers(1, 9)),
                1.0,
                data_type,
                data_type,
                DEFAULT,
                q,
                k,
                v,
                met * has_q,
                met * has_k,
                weighed * has_v,
                output * has_o,
                5,
                6,
                3,
                1,
            )
        )
    return found


@for_each("spec", random_attentions(50))
def test_every_element_belongs_to_one_tensor(spec):
    taken = np.zeros(weight_count(spec), int)
    for weights in weights_of(spec).values():
        part = taken[weights.offset : weights.end]
        np.lib.stride_tricks.as_strided(part, weights.dims, [s * taken.itemsize for s in weights.strides])[...] += 1
    assert (taken == 1).all()


@pytest.fixture(scope="module")
def vendor():
    """Load NVIDIA's release 8.9.7. These queries need no GPU, and zeros stand for the handle."""
    path = find_vendor_library()
    if path is None:
        pytest.skip("NVIDIA's library is not installed")
    return ctypes.CDLL(str(path))


def test_where_nvidias_library_has_them(vendor):
    handle, attention, tensor = ctypes.create_string_buffer(1 << 16), ctypes.c_void_p(), ctypes.c_void_p()
    assert vendor.cudnnCreateAttnDescriptor(ctypes.byref(attention)) == 0
    assert vendor.cudnnCreateTensorDescriptor(ctypes.byref(tensor)) == 0
    for spec in random_attentions(300):
        values = [getattr(spec, field.name) for field in fields(spec)]
        c_values = [
            ctypes.c_double(value) if isinstance(value, float) else ctypes.c_int(int(value)) for value in values
        ]
        null = ctypes.c_void_p()
        assert vendor.cudnnSetAttnDescriptor(attention, *c_values[:6], null, null, *c_values[6:]) == 0, spec
        sizes = [ctypes.c_size_t() for _ in range(2)]
        status = vendor.cudnnGetMultiHeadAttnBuffers(handle, attention, *map(ctypes.byref, sizes), None)
        assert status == cudnnStatus_t.CUDNN_STATUS_SUCCESS
        size = SCALAR_BYTES[spec.data_type]
        assert sizes[0].value == weight_count(spec) * size
        due = weights_of(spec)
        for kind in cudnnMultiHeadAttnWeightKind_t:
            address, rank, data_type = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
            dims, strides = (ctypes.c_int * 8)(), (ctypes.c_int * 8)()
            query = vendor.cudnnGetMultiHeadAttnWeights
            assert (
                query(handle, attention, int(kind), sizes[0], ctypes.c_void_p(BASE), tensor, ctypes.byref(address)) == 0
            )
            read = vendor.cudnnGetTensorNdDescriptor
            assert read(tensor, 8, ctypes.byref(data_type), ctypes.byref(rank), dims, strides) == 0
            if kind not in due:
                assert address.value is None and rank.value == 0
                continue
            weights = due[kind]
            assert address.value == BASE + weights.offset * size and data_type.value == spec.data_type
            assert (tuple(dims[:3]), tuple(strides[:3])) == (weights.dims, weights.strides), (spec, kind)
