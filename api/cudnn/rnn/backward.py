"""Implement cudnnRNNBackwardData_v8 and cudnnRNNBackwardWeights_v8 (8.2.18, 8.2.21)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...enumerations import cudnnWgradMode_t
from ...functions import computing
from ...operations.rnn import RNNBackwardData, RNNBackwardWeights, reserve, workspace
from ...operations.rnn.network import LSTM
from ...status import BAD_PARAM, expect
from .forward import check_sequences, check_space, check_state, states, weights

if TYPE_CHECKING:
    from ...handle import Handle
    from ...operations.rnn.data import RNNDataSpec
    from ...operations.rnn.network import RNNSpec
    from ...operations.specs import TensorSpec

DATA = "cudnnRNNBackwardData_v8"
WEIGHTS = "cudnnRNNBackwardWeights_v8"
ADD = cudnnWgradMode_t.CUDNN_WGRAD_MODE_ADD


@computing(
    invalid={"devSeqLengths": "c26", **dict.fromkeys(("y", "dy"), "c30"), "dx": "c07",
             **dict.fromkeys(("rnnDesc", "xDesc", "yDesc"), "c52")},
    small=dict.fromkeys(("weightSpace", "workSpace", "reserveSpace"), ("c54", BAD_PARAM)),
    failed="c60",
)  # fmt: skip
def cudnnRNNBackwardData_v8(
    handle: Handle, rnnDesc: RNNSpec, devSeqLengths: Any, yDesc: RNNDataSpec, y: Any, dy: Any, xDesc: RNNDataSpec, dx: Any, hDesc: TensorSpec | None, hx: Any, dhy: Any, dhx: Any, cDesc: TensorSpec | None, cx: Any, dcy: Any, dcx: Any,
    weightSpaceSize: int, weightSpace: Any, workSpaceSize: int, workSpace: Any, reserveSpaceSize: int, reserveSpace: Any,
) -> RNNBackwardData:  # fmt: skip
    """Compute the gradients dx, dhx and dcx from dy, dhy and dcy, after a cudnnRNNForward in training with the same
    reserveSpace.

    Sequences and states are described as in cudnnRNNForward; padding of dx gets the paddingFill of xDesc. NULL dhy and
    dcy are zeros; NULL dhx and dcx are not written. hDesc and cDesc may be NULL if all their memory is. devSeqLengths
    is not read.
    Errors: BAD_PARAM for NULL (c52, c30, c07, c26), descriptors that do not fit each other (c53), buffers that are too
    small (c54); NOT_SUPPORTED for a persistent algorithm with sequences of several lengths (c49), or with DOUBLE data
    (c51).
    Source: 8.2.18.
    """
    clause = f"{DATA}/c53"
    expect(rnnDesc.data_type is not None, BAD_PARAM, clause, "rnnDesc was not configured by cudnnSetRNNDescriptor_v8")
    check_sequences(rnnDesc, xDesc, yDesc, clause, f"{DATA}/c49", f"{DATA}/c51")
    if hDesc is not None or any(value is not None for value in (hx, dhy, dhx)):
        check_state(rnnDesc, xDesc.batch, "hDesc", hDesc, rnnDesc.projected, clause)
    if rnnDesc.cell == LSTM and (cDesc is not None or any(value is not None for value in (cx, dcy, dcx))):
        check_state(rnnDesc, xDesc.batch, "cDesc", cDesc, rnnDesc.hidden, clause)
    work, kept = workspace(rnnDesc, xDesc.max_length, xDesc.batch), reserve(rnnDesc, xDesc.max_length, xDesc.batch)
    check_space("weightSpaceSize", weightSpaceSize, rnnDesc.weight_bytes, f"{DATA}/c54")
    check_space("workSpaceSize", workSpaceSize, work.nbytes, f"{DATA}/c54")
    check_space("reserveSpaceSize", reserveSpaceSize, kept.nbytes, f"{DATA}/c54")
    return RNNBackwardData(
        rnnDesc, yDesc, yDesc, weightSpace=weights(rnnDesc), dx=xDesc, workspace=work, reserve=kept,
        **states(rnnDesc, hDesc, cDesc, hx=hx, dhy=dhy, dhx=dhx, cx=cx, dcy=dcy, dcx=dcx),
    )  # fmt: skip


@computing(
    invalid={"addGrad": "c25", "devSeqLengths": "c26", **dict.fromkeys(("rnnDesc", "xDesc", "yDesc", "hDesc"), "c22")},
    small=dict.fromkeys(("dweightSpace", "workSpace", "reserveSpace"), ("c24", BAD_PARAM)),
    failed="c27",
    optional=["hx"],
)
def cudnnRNNBackwardWeights_v8(
    handle: Handle, rnnDesc: RNNSpec, addGrad: cudnnWgradMode_t, devSeqLengths: Any, xDesc: RNNDataSpec, x: Any, hDesc: TensorSpec, hx: Any, yDesc: RNNDataSpec, y: Any,
    weightSpaceSize: int, dweightSpace: Any, workSpaceSize: int, workSpace: Any, reserveSpaceSize: int, reserveSpace: Any,
) -> RNNBackwardWeights:  # fmt: skip
    """Add the gradients of all matrices and biases to dweightSpace, after cudnnRNNBackwardData_v8 with the same
    reserveSpace.

    x, hx, y: as in the earlier calls; hx is NULL if it was NULL there. devSeqLengths is not read.
    Errors: BAD_PARAM for NULL (c22, c26), an addGrad other than CUDNN_WGRAD_MODE_ADD (c25), descriptors that do not fit
    each other (c23), buffers that are too small (c24); NOT_SUPPORTED for a persistent algorithm with sequences of
    several lengths, or with DOUBLE data (c21). Source: 8.2.21.
    """
    clause = f"{WEIGHTS}/c23"
    expect(addGrad == ADD, BAD_PARAM, f"{WEIGHTS}/c25", f"addGrad is {addGrad.name}")
    expect(rnnDesc.data_type is not None, BAD_PARAM, clause, "rnnDesc was not configured by cudnnSetRNNDescriptor_v8")
    check_sequences(rnnDesc, xDesc, yDesc, clause, f"{WEIGHTS}/c21", f"{WEIGHTS}/c21")
    check_state(rnnDesc, xDesc.batch, "hDesc", hDesc, rnnDesc.projected, clause)
    work, kept = workspace(rnnDesc, xDesc.max_length, xDesc.batch), reserve(rnnDesc, xDesc.max_length, xDesc.batch)
    check_space("weightSpaceSize", weightSpaceSize, rnnDesc.weight_bytes, f"{WEIGHTS}/c24")
    check_space("workSpaceSize", workSpaceSize, work.nbytes, f"{WEIGHTS}/c24")
    check_space("reserveSpaceSize", reserveSpaceSize, kept.nbytes, f"{WEIGHTS}/c24")
    found = states(rnnDesc, hDesc, None, hx=hx)
    return RNNBackwardWeights(
        rnnDesc, xDesc, y=yDesc, dweightSpace=weights(rnnDesc), workspace=work, reserve=kept, **found
    )
