"""Implement cudnnRNNForward (7.2.36) and the checks that the calls of all generations share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...enumerations import cudnnForwardMode_t
from ...functions import computing
from ...operations import TensorSpec
from ...operations.rnn import RNNDataSpec, RNNForward, RNNPlanSpec, RNNSpec, reserve, workspace
from ...operations.rnn.data import PACKED
from ...operations.rnn.network import LSTM, PERSIST_DYNAMIC, PERSIST_STATIC, STANDARD
from ...operations.specs import DOUBLE
from ...status import BAD_PARAM, NOT_SUPPORTED, expect

if TYPE_CHECKING:
    from ...handle import Handle

TRAINING = cudnnForwardMode_t.CUDNN_FWD_MODE_TRAINING
STATE_RANK = 3  # dimensions: pseudo-layer, sequence, element


def check_sequences(
    network: RNNSpec, x: RNNDataSpec, y: RNNDataSpec, clause: str, ragged: str, double: str, x_name: str = "xDesc"
) -> None:
    """Raise an error unless x and y hold matching inputs and outputs of the network, in a supported layout.

    x_name: the argument that describes x.
    """
    expect(
        x.data_type == network.data_type,
        BAD_PARAM,
        clause,
        f"{x_name} has {x.data_type.name}, rnnDesc {network.data_type}",
    )
    for name in ("data_type", "layout", "max_length", "batch", "lengths"):
        ours, others = getattr(x, name), getattr(y, name)
        expect(ours == others, BAD_PARAM, clause, f"{x_name} and yDesc differ in {name}: {ours} and {others}")
    for name, spec, size in ((x_name, x, network.input_size), ("yDesc", y, network.output_size)):
        expect(spec.vector == size, BAD_PARAM, clause, f"{name} has vectors of {spec.vector} elements, {size} are due")
    fits = not network.skips_input or network.input_size == network.hidden
    text = f"CUDNN_SKIP_INPUT with an inputSize of {network.input_size} and a hiddenSize of {network.hidden}"
    expect(fits, BAD_PARAM, clause, text)
    packed = x.layout == PACKED
    falling = all(a >= b for a, b in zip(x.lengths, x.lengths[1:], strict=False))
    expect(falling or not packed, BAD_PARAM, clause, f"packed sequences in the order of the lengths {x.lengths}")
    expect(packed or network.padded or not x.is_ragged, BAD_PARAM, clause,
           f"{x.layout.name} with lengths {x.lengths} needs CUDNN_RNN_PADDED_IO_ENABLED")  # fmt: skip
    expect(network.algo == STANDARD or not x.is_ragged, NOT_SUPPORTED, ragged,
           f"{network.algo.name} with sequences of the lengths {x.lengths}")  # fmt: skip
    expect(not (network.algo == PERSIST_STATIC and x.data_type == DOUBLE), NOT_SUPPORTED, double,
           f"{network.algo.name} does not take DOUBLE data")  # fmt: skip
    if network.algo == PERSIST_DYNAMIC:
        needed = RNNPlanSpec(x.batch, x.data_type)
        expect(network.plan == needed, BAD_PARAM, "cudnnRNNAlgo_t/c05",
               f"{network.algo.name} needs a plan for {needed}, rnnDesc has {network.plan or 'none'}")  # fmt: skip


def state_of(spec: TensorSpec | None) -> TensorSpec | None:
    """Return the descriptor of states without trailing dimensions of 1 after its third (docs/errata.md,
    rnn-state-rank)."""
    if spec is None or spec.rank <= STATE_RANK or max(spec.dims[STATE_RANK:]) > 1:
        return spec
    return TensorSpec(spec.data_type, spec.dims[:STATE_RANK], spec.strides[:STATE_RANK])


def check_state(network: RNNSpec, batch: int, name: str, spec: TensorSpec | None, width: int, clause: str) -> None:
    """Raise an error unless a descriptor of states is packed (pseudo-layer, sequence, element)."""
    due = TensorSpec.packed(network.data_type, (network.pseudo_layers, batch, width))
    expect(state_of(spec) == due, BAD_PARAM, clause, f"{name} is {spec}, {due} is due")


def check_space(name: str, given: int, needed: int, clause: str) -> None:
    """Raise an error unless a buffer of the caller is large enough."""
    expect(given >= needed, BAD_PARAM, clause, f"{name} is {given}, {needed} bytes are needed")


def states(
    network: RNNSpec, hidden: TensorSpec | None, cell: TensorSpec | None, **memory: Any
) -> dict[str, TensorSpec | None]:
    """Return the specification of each state by operand, or None if its memory is NULL or the cell has no such state."""
    described = {"h": state_of(hidden), "c": state_of(cell) if network.cell == LSTM else None}
    return {name: None if value is None else described[name.removeprefix("d")[0]] for name, value in memory.items()}


NAME = "cudnnRNNForward"


@computing(
    invalid={"devSeqLengths": "c16", **dict.fromkeys(("rnnDesc", "xDesc", "yDesc", "hDesc"), "c44")},
    small=dict.fromkeys(("weightSpace", "workSpace", "reserveSpace"), ("c46", BAD_PARAM)),
    failed="c47",
)
def cudnnRNNForward(
    handle: Handle, rnnDesc: RNNSpec, fwdMode: cudnnForwardMode_t, devSeqLengths: Any, xDesc: RNNDataSpec, x: Any, yDesc: RNNDataSpec, y: Any, hDesc: TensorSpec, hx: Any, hy: Any, cDesc: TensorSpec | None, cx: Any, cy: Any,
    weightSpaceSize: int, weightSpace: Any, workSpaceSize: int, workSpace: Any, reserveSpaceSize: int, reserveSpace: Any,
) -> RNNForward:  # fmt: skip
    """Compute the outputs y of the last layer, and the states hy and cy after the last step of each sequence.

    x: vectors of inputSize. y: vectors of projSize, with both directions concatenated. Padding of y gets paddingFill if
    it is set.
    hx, hy: {numLayers * directions, batchSize, projSize}. cx, cy: the same with hiddenSize, for CUDNN_LSTM only. NULL
    hx and cx are zeros; NULL hy and cy are not written. devSeqLengths is not read, because xDesc and yDesc hold the
    lengths.
    reserveSpace is written only in training. Training with several layers and the dropout descriptor of rnnDesc drops
    elements between layers. The dropout states must be set, and they advance.
    Errors: BAD_PARAM for NULL (c44, c16), descriptors that do not fit each other (c45), buffers that are too small
    (c46); NOT_SUPPORTED for a persistent algorithm with sequences of several lengths (c41), or with DOUBLE data (c43).
    Source: 7.2.36.
    """
    clause = f"{NAME}/c45"
    expect(rnnDesc.data_type is not None, BAD_PARAM, clause, "rnnDesc was not configured by cudnnSetRNNDescriptor_v8")
    check_sequences(rnnDesc, xDesc, yDesc, clause, f"{NAME}/c41", f"{NAME}/c43")
    check_state(rnnDesc, xDesc.batch, "hDesc", hDesc, rnnDesc.projected, clause)
    if rnnDesc.cell == LSTM and (cDesc is not None or cx is not None or cy is not None):
        check_state(rnnDesc, xDesc.batch, "cDesc", cDesc, rnnDesc.hidden, clause)
    training = fwdMode == TRAINING
    work = workspace(rnnDesc, xDesc.max_length, xDesc.batch)
    kept = reserve(rnnDesc, xDesc.max_length, xDesc.batch, training)
    check_space("weightSpaceSize", weightSpaceSize, rnnDesc.weight_bytes, f"{NAME}/c46")
    check_space("workSpaceSize", workSpaceSize, work.nbytes, f"{NAME}/c46")
    check_space("reserveSpaceSize", reserveSpaceSize, kept.nbytes, f"{NAME}/c46")
    return RNNForward(
        rnnDesc, training, xDesc, weightSpace=weights(rnnDesc), y=yDesc, workspace=work, reserve=kept,
        **states(rnnDesc, hDesc, cDesc, hx=hx, cx=cx, hy=hy, cy=cy),
    )  # fmt: skip


def weights(network: RNNSpec) -> TensorSpec:
    """Return the weight space as a tensor of one row."""
    return TensorSpec.packed(network.data_type, (1, network.weight_elements, 1))
