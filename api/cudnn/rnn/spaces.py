"""Compute how much temporary memory a network needs (7.2.30, 7.2.33, 8.2.14)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ...enumerations import cudnnForwardMode_t
from ...functions import documented
from ...operations.rnn import reserve, workspace
from ...status import BAD_PARAM, expect
from .descriptor import configured_by_v8
from .steps import check_steps, completed
from .weights import MAX_SPACE

if TYPE_CHECKING:
    from ...descriptors import RNNDataDescriptor, RNNDescriptor, TensorDescriptor
    from ...handle import Handle

TRAINING = cudnnForwardMode_t.CUDNN_FWD_MODE_TRAINING


class TempSpaceSizes(NamedTuple):
    workSpaceSize: int
    reserveSpaceSize: int


@documented(invalid={"*": "c08"})
def cudnnGetRNNTempSpaceSizes(
    handle: Handle, rnnDesc: RNNDescriptor, fMode: cudnnForwardMode_t, xDesc: RNNDataDescriptor
) -> TempSpaceSizes:
    """Return (workSpaceSize, reserveSpaceSize) in bytes for the data dimensions of xDesc; inference has no reserve space.

    Errors: BAD_PARAM for NULL, an xDesc of another data type or vector size, and spaces that exceed the address space
    (c08), NOT_INITIALIZED where cudnnSetRNNDescriptor_v8 did not configure rnnDesc (cudnnGetRNNDescriptor_v8/c11).
    Source: 7.2.30.
    """
    network, x = rnnDesc.spec, xDesc.spec
    configured_by_v8("cudnnGetRNNDescriptor_v8", "c11", network)
    fits = (x.data_type, x.vector) == (network.data_type, network.input_size)
    clause = "cudnnGetRNNTempSpaceSizes/c08"
    expect(fits, BAD_PARAM, clause, partial("xDesc is {}, rnnDesc {}".format, x, network))
    spaces = workspace, partial(reserve, training=fMode == TRAINING)
    return TempSpaceSizes(*(_bytes(clause, space_of, network, x.max_length, x.batch) for space_of in spaces))


def _bytes(clause: Any, space_of: Any, network: Any, steps: Any, batch: Any) -> Any:
    """Return the bytes of a network's space; raise BAD_PARAM with this clause if an address space cannot hold them."""
    nbytes = space_of(network, steps, batch).nbytes
    text = partial("{} needs {} bytes for {} steps of {} sequences".format, network, nbytes, steps, batch)
    expect(nbytes <= MAX_SPACE, BAD_PARAM, clause, text)
    return nbytes


def _size(name: Any, clauses: Any, space_of: Any, network: Any, length: Any, steps: Any) -> Any:
    """Return the bytes for sequences that are described step by step. clauses: the clause on rnnDesc, then those
    of ``check_steps``."""
    network_clause, *others = (f"{name}/{clause}" for clause in clauses)
    specs = [descriptor.spec for descriptor in steps]
    check_steps("xDesc", specs, length, *others)
    network = completed(network, specs[0].dims[1], specs[0].data_type, network_clause, network_clause)
    return _bytes(network_clause, space_of, network, length, specs[0].dims[0])


@documented(invalid={"rnnDesc": "c08", "xDesc": "c09"})
def cudnnGetRNNWorkspaceSize(
    handle: Handle, rnnDesc: RNNDescriptor, seqLength: int, xDesc: Sequence[TensorDescriptor]
) -> int:
    """Return the bytes of work space for seqLength steps; each entry {batch, input size, 1} of xDesc describes one
    step.

    Errors: BAD_PARAM for rnnDesc (c08), xDesc (c09), steps that differ (c10), batches that grow (c11), gaps (c12);
    NOT_SUPPORTED for data types (c13). Source: 7.2.33.
    """
    clauses = ("c08", "c10", "c11", "c12", "c13")
    return _size("cudnnGetRNNWorkspaceSize", clauses, workspace, rnnDesc.spec, seqLength, xDesc)


@documented(invalid={"rnnDesc": "c10", "xDesc": "c11"})
def cudnnGetRNNTrainingReserveSize(
    handle: Handle, rnnDesc: RNNDescriptor, seqLength: int, xDesc: Sequence[TensorDescriptor]
) -> int:
    """Return the bytes of reserve space for training with seqLength steps; each entry {batch, input size, 1} of xDesc
    describes one step.

    Errors: BAD_PARAM for rnnDesc (c10), xDesc (c11), steps that differ (c12), batches that grow (c13), gaps (c14);
    NOT_SUPPORTED for data types (c15). Source: 8.2.14.
    """
    clauses = ("c10", "c12", "c13", "c14", "c15")
    return _size("cudnnGetRNNTrainingReserveSize", clauses, reserve, rnnDesc.spec, seqLength, xDesc)
