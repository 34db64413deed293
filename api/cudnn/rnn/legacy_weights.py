"""Implement the weight space before version 8 (7.2.24, 7.2.25, 7.2.28): a tensor gives the input size, filters describe
weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...functions import documented
from ...operations.specs import NCHW, FilterSpec
from ...status import BAD_PARAM, NOT_SUPPORTED, expect
from .steps import completed, packed
from .weights import in_network, memory_of_weights, part_of, weight_space_size

if TYPE_CHECKING:
    from ...descriptors import FilterDescriptor, RNNDescriptor, TensorDescriptor
    from ...enumerations import cudnnDataType_t
    from ...handle import Handle

SIZE = "cudnnGetRNNParamsSize"


@documented(invalid={"rnnDesc": "c06", "xDesc": "c07", "dataType": "c09"})
def cudnnGetRNNParamsSize(
    handle: Handle, rnnDesc: RNNDescriptor, xDesc: TensorDescriptor, dataType: cudnnDataType_t
) -> int:
    """Return the bytes of all matrices and biases of dataType; xDesc {batch, input size, 1} describes the input of one
    step.

    Errors: BAD_PARAM for rnnDesc (c06), xDesc (c07) and gaps in it (c08), data types that differ (c09); NOT_SUPPORTED
    for data types that the network does not take (c10). Source: 7.2.28.
    """
    x = xDesc.spec
    packed("xDesc", x, f"{SIZE}/c08")
    expect(
        dataType == x.data_type, BAD_PARAM, f"{SIZE}/c09", f"dataType is {dataType.name}, xDesc has {x.data_type.name}"
    )
    spec = completed(rnnDesc.spec, x.dims[1], dataType, f"{SIZE}/c06", f"{SIZE}/c10", NOT_SUPPORTED)
    return weight_space_size(f"{SIZE}/c06", spec)


def _located(
    name: Any,
    null: Any,
    types: Any,
    alignment: Any,
    outside: Any,
    handle: Any,
    rnn: Any,
    pseudo_layer: Any,
    x: Any,
    w: Any,
    memory: Any,
    weight_id: Any,
    descriptor: Any,
    find: Any,
) -> Any:
    """Return the part of the memory w that holds the result of ``find``, and describe it in a filter descriptor."""
    packed("xDesc", x, f"{name}/{null}")
    expect(w.data_type == x.data_type, BAD_PARAM, f"{name}/{types}",
           f"wDesc has data type {w.data_type.name}, xDesc {x.data_type.name}")  # fmt: skip
    spec = completed(rnn, x.dims[1], x.data_type, f"{name}/{null}", f"{name}/{types}")
    clause = f"{name}/{'c21' if null == 'c18' else 'c23'}"
    in_network(spec, pseudo_layer, weight_id, clause, clause)
    operand = memory_of_weights(handle, spec, memory, "w", f"{name}/{alignment}")
    found = find(spec)
    known = w.nbytes if operand.nbytes is None else min(w.nbytes, operand.nbytes)
    part = part_of(memory, operand, spec, found, known, f"{name}/{outside}")
    descriptor.spec = found and FilterSpec(x.data_type, NCHW, (1, found.rows, found.columns))
    return part


@documented(invalid={"*": "c18"})
def cudnnGetRNNLinLayerMatrixParams(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    pseudoLayer: int,
    xDesc: TensorDescriptor,
    wDesc: FilterDescriptor,
    w: Any,
    linLayerID: int,
    linLayerMatDesc: FilterDescriptor,
) -> Any:
    """Return a matrix of a pseudo-layer inside w, as a slice of a buffer or as an address in other memory; wDesc gives
    the bytes of w.

    linLayerMatDesc becomes {1, rows, columns}, row-major. For a matrix that the network does not have, the result is
    None and linLayerMatDesc returns zeros.
    Errors: BAD_PARAM for NULL (c18), data types (c19), a w that does not begin at an element (c20), a pseudoLayer or
    linLayerID out of range (c21); INVALID_VALUE for elements outside wDesc (c22). Source: 7.2.25.
    """
    return _located(
        "cudnnGetRNNLinLayerMatrixParams", "c18", "c19", "c20", "c22", handle, rnnDesc.spec, pseudoLayer, xDesc.spec,
        wDesc.spec, w, linLayerID, linLayerMatDesc, lambda spec: spec.matrix(pseudoLayer, linLayerID),
    )  # fmt: skip


@documented(invalid={"*": "c20"})
def cudnnGetRNNLinLayerBiasParams(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    pseudoLayer: int,
    xDesc: TensorDescriptor,
    wDesc: FilterDescriptor,
    w: Any,
    linLayerID: int,
    linLayerBiasDesc: FilterDescriptor,
) -> Any:
    """Return a bias of a pseudo-layer inside w, as cudnnGetRNNLinLayerMatrixParams returns a matrix; linLayerBiasDesc
    becomes {1, rows, 1}.

    Errors: BAD_PARAM for NULL (c20), data types (c21), a w that does not begin at an element (c22), a pseudoLayer or
    linLayerID out of range (c23); INVALID_VALUE for elements outside wDesc (c24). Source: 7.2.24.
    """
    return _located(
        "cudnnGetRNNLinLayerBiasParams", "c20", "c21", "c22", "c24", handle, rnnDesc.spec, pseudoLayer, xDesc.spec,
        wDesc.spec, w, linLayerID, linLayerBiasDesc, lambda spec: spec.bias_vector(pseudoLayer, linLayerID),
    )  # fmt: skip
