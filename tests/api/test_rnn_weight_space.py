"""Test the RNN weight space: it has no gaps, and equals that of NVIDIA's library, if installed."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnDirectionMode_t, cudnnRNNBiasMode_t, cudnnRNNInputMode_t, cudnnRNNMode_t
from dualdnn.api.operations.rnn import RNNSpec
from dualdnn.api.operations.rnn.network import LSTM
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, SCALAR_BYTES
from dualdnn.conformance.subjects.library import find_vendor_library


def random_networks(count: int) -> list[RNNSpec]:
    """Return networks of all cells, modes and data types, with small random sizes."""
    random = np.random.default_rng(8)
    found = []
    for i in range(count):
        cell = cudnnRNNMode_t(i % 4)
        hidden, width = (int(size) for size in random.integers(2, 40, 2))
        data_type = (FLOAT, DOUBLE, HALF)[random.integers(3)]
        found.append(
            RNNSpec(
                cell=cell,
                bias=cudnnRNNBiasMode_t(random.integers(4)),
                direction=cudnnDirectionMode_t(random.integers(2)),
                input_mode=cudnnRNNInputMode_t(random.integers(2)),
                data_type=data_type,
                precision=DOUBLE if data_type == DOUBLE else FLOAT,
                input_size=width,
                hidden=hidden,
                projected=int(random.integers(1, hidden + 1)) if cell == LSTM and random.integers(2) else hidden,
                layers=int(random.integers(1, 5)),
            )
        )
    return found


@pytest.mark.parametrize("network", random_networks(40), ids=lambda network: f"{network.cell.name}-{network.hidden}")
def test_there_are_no_gaps(network):
    """Every element belongs to exactly one matrix or bias, and the matrices come first."""
    taken = np.zeros(network.weight_elements, int)
    for find in (network.matrix, network.bias_vector):
        for pseudo_layer in range(network.pseudo_layers):
            for weight_id in network.weight_ids:
                if weights := find(pseudo_layer, weight_id):
                    taken[weights.offset : weights.end] += 1
    assert (taken == 1).all()


class Vendor:
    """Query the weight space of NVIDIA's release 8.9.7, which needs no GPU: a handle of zeros serves."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.handle = ctypes.create_string_buffer(1 << 16)
        self.descriptor, self.matrix, self.bias = (ctypes.c_void_p() for _ in range(3))
        self.library.cudnnCreateRNNDescriptor(ctypes.byref(self.descriptor))
        for tensor in (self.matrix, self.bias):
            self.library.cudnnCreateTensorDescriptor(ctypes.byref(tensor))

    def describe(self, n: RNNSpec) -> None:
        status = self.library.cudnnSetRNNDescriptor_v8(
            self.descriptor, 0, n.cell, n.bias, n.direction, n.input_mode, n.data_type, n.precision, 0,
            n.input_size, n.hidden, n.projected, n.layers, None, 0,
        )  # fmt: skip
        assert status == 0

    def size(self) -> int:
        found = ctypes.c_size_t()
        assert self.library.cudnnGetRNNWeightSpaceSize(self.handle, self.descriptor, ctypes.byref(found)) == 0
        return found.value

    def shape(self, tensor: ctypes.c_void_p) -> tuple[int, ...]:
        kind, rank, dims, strides = ctypes.c_int(), ctypes.c_int(), (ctypes.c_int * 8)(), (ctypes.c_int * 8)()
        self.library.cudnnGetTensorNdDescriptor(tensor, 8, ctypes.byref(kind), ctypes.byref(rank), dims, strides)
        return tuple(dims[: rank.value])

    def weights(self, pseudo_layer: int, weight_id: int, size: int) -> list[tuple[int, int, int] | None]:
        """Return [(byte offset, rows, columns) or None] of a matrix and a bias."""
        start, matrix, bias = 1 << 20, ctypes.c_void_p(), ctypes.c_void_p()
        status = self.library.cudnnGetRNNWeightParams(
            self.handle, self.descriptor, pseudo_layer, ctypes.c_size_t(size), ctypes.c_void_p(start), weight_id,
            self.matrix, ctypes.byref(matrix), self.bias, ctypes.byref(bias),
        )  # fmt: skip
        assert status == 0
        places = zip((matrix, bias), (self.matrix, self.bias), strict=True)
        return [(a.value - start, *self.shape(tensor)[1:]) if a.value else None for a, tensor in places]  # type: ignore[misc]


@pytest.fixture(scope="module")
def vendor():
    path = find_vendor_library()
    if path is None:
        pytest.skip("NVIDIA's library is not installed")
    library = ctypes.CDLL(str(path))
    library.cudnnGetVersion.restype = ctypes.c_size_t
    if library.cudnnGetVersion() != 8907:
        pytest.skip("only release 8.9.7 answers without a GPU")
    return Vendor(path)


@pytest.mark.parametrize("part", range(4))
def test_offsets_are_those_of_nvidia(vendor, part):
    """Sizes, offsets and shapes of 240 networks equal those of NVIDIA's library."""
    for network in random_networks(240)[part::4]:
        vendor.describe(network)
        size = vendor.size()
        assert size == network.weight_bytes
        step = SCALAR_BYTES[network.data_type]
        for pseudo_layer in range(network.pseudo_layers):
            for weight_id in network.weight_ids:
                found = [network.matrix(pseudo_layer, weight_id), network.bias_vector(pseudo_layer, weight_id)]
                ours = [weights and (weights.offset * step, weights.rows, weights.columns) for weights in found]
                assert ours == vendor.weights(pseudo_layer, weight_id, size), (network, pseudo_layer, weight_id)
