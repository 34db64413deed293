"""Implement the weight space of a network: its size, and the position of each matrix and bias (7.2.31, 7.2.32)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...functions import documented
from ...operations import TensorSpec
from ...operations.rnn import RNNSpec
from ...operations.rnn.network import Weights
from ...operations.specs import SCALAR_BYTES
from ...status import BAD_PARAM, INVALID_VALUE, CudnnError, expect
from .descriptor import configured_by_v8

if TYPE_CHECKING:
    from ...descriptors import RNNDescriptor, TensorDescriptor
    from ...handle import Handle

MAX_SPACE = 2**63 - 1  # bytes, the limit of an address space
PARAMS = "cudnnGetRNNWeightParams"


@documented(invalid={"*": "c04"})
def cudnnGetRNNWeightSpaceSize(handle: Handle, rnnDesc: RNNDescriptor) -> int:
    """Return the bytes of all matrices and biases.

    Errors: BAD_PARAM for NULL (c04) and networks that exceed the address space (c05), NOT_INITIALIZED where
    cudnnSetRNNDescriptor_v8 did not configure rnnDesc (c06). Source: 7.2.32.
    """
    configured_by_v8("cudnnGetRNNWeightSpaceSize", "c06", rnnDesc.spec)
    return weight_space_size("cudnnGetRNNWeightSpaceSize/c05", rnnDesc.spec)


def weight_space_size(clause: str, spec: RNNSpec) -> int:
    """Return the bytes of the weights of a network with known data type and input size."""
    expect(spec.weight_bytes <= MAX_SPACE, BAD_PARAM, clause, f"{spec} has {spec.weight_bytes} bytes of weights")
    return spec.weight_bytes


class WeightParameters(NamedTuple):
    mAddr: Any
    bAddr: Any


@documented(invalid={"*": "c20"})
def cudnnGetRNNWeightParams(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    pseudoLayer: int,
    weightSpaceSize: int,
    weightSpace: Any,
    linLayerID: int,
    mDesc: TensorDescriptor | None,
    bDesc: TensorDescriptor | None,
) -> WeightParameters:
    """Return (mAddr, bAddr): a matrix and a bias of a pseudo-layer inside the first weightSpaceSize bytes of
    weightSpace.

    Each is a slice of a buffer or an address in other memory. mDesc, bDesc: become packed {1, rows, columns} and {1,
    rows, 1}; NULL omits that tensor. For a tensor that the network does not have, the result is None and the descriptor
    returns zeros.
    Errors: BAD_PARAM for NULL and memory that does not begin at an element (c20), a pseudoLayer (c18) or linLayerID
    (c19) that the network does not have; INVALID_VALUE for elements outside weightSpaceSize (c21); NOT_INITIALIZED
    where cudnnSetRNNDescriptor_v8 did not configure rnnDesc (c22). Source: 7.2.31.
    """
    spec = rnnDesc.spec
    configured_by_v8(PARAMS, "c22", spec)
    in_network(spec, pseudoLayer, linLayerID, f"{PARAMS}/c18", f"{PARAMS}/c19")
    memory = memory_of_weights(handle, spec, weightSpace, "weightSpace", f"{PARAMS}/c20")
    known = weightSpaceSize if memory.nbytes is None else min(memory.nbytes, weightSpaceSize)
    found = [spec.matrix(pseudoLayer, linLayerID), spec.bias_vector(pseudoLayer, linLayerID)]
    asked = list(zip((mDesc, bDesc), found, strict=True))
    addresses = [
        part_of(weightSpace, memory, spec, descriptor and weights, known, f"{PARAMS}/c21")
        for descriptor, weights in asked
    ]
    for descriptor, weights in asked:
        if descriptor is None:
            continue
        dims = weights and (1, weights.rows, weights.columns)
        descriptor.spec = dims and TensorSpec.packed(spec.data_type, dims)
    return WeightParameters(*addresses)


def in_network(spec: RNNSpec, pseudo_layer: int, weight_id: int, layer_clause: str, id_clause: str) -> None:
    """Raise an error unless the network has this pseudo-layer and its cell this linLayerID."""
    expect(0 <= pseudo_layer < spec.pseudo_layers, BAD_PARAM, layer_clause,
           f"pseudoLayer is {pseudo_layer}, the network has {spec.pseudo_layers}")  # fmt: skip
    expect(weight_id in spec.weight_ids, BAD_PARAM, id_clause,
           f"linLayerID is {weight_id}, {spec.cell.name} has {', '.join(map(str, spec.weight_ids))}")  # fmt: skip


class HostCopy(NamedTuple):
    """Refer to weights in host memory, of which only the address is known."""

    address: int
    nbytes: None = None


def memory_of_weights(handle: Any, spec: RNNSpec, value: Any, name: str, clause: str, on_host: bool = False) -> Any:
    """Return the operand for the caller's weights, which begins at an element. on_host: treats plain addresses as host
    memory."""
    try:
        operand = handle.backend.operand(value)
    except CudnnError:
        raise
    except Exception as error:  # A foreign object may raise anything.
        if not (on_host and type(value) is int and value > 0):
            raise CudnnError(BAD_PARAM, clause, f"{name} {error}") from error
        operand = HostCopy(value)
    size = SCALAR_BYTES[spec.data_type]
    expect(operand.address % size == 0, BAD_PARAM, clause,
           f"{name} is at {operand.address:#x}, no multiple of the {size} bytes of its elements")  # fmt: skip
    return operand


def part_of(value: Any, operand: Any, spec: RNNSpec, weights: Weights | None, nbytes: int, clause: str) -> Any:
    """Return the part of the caller's memory that holds these weights: a slice of a buffer, or an address in other
    memory."""
    if weights is None:
        return None
    size = SCALAR_BYTES[spec.data_type]
    start, end = weights.offset * size, weights.end * size
    expect(end <= nbytes, INVALID_VALUE, clause, f"bytes {start} to {end} are not inside {nbytes} bytes of weights")
    slice_of = getattr(value, "slice", None)
    return slice_of(start, end - start) if callable(slice_of) else operand.address + start
