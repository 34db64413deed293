"""Implement the backward calls before version 8 (8.2.17, 8.2.19, 8.2.20, 8.2.22), which run the operations of version
8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...functions import computing
from ...operations.rnn import RNNBackwardData, RNNBackwardWeights, reserve, workspace
from ...operations.rnn.network import LSTM
from ...status import BAD_PARAM, expect
from .forward import weights
from .legacy import Section, described, network_of, sequences, spaces, without_attention

if TYPE_CHECKING:
    from ...handle import Handle
    from ...operations.rnn.data import RNNDataSpec
    from ...operations.rnn.network import RNNSpec
    from ...operations.specs import FilterSpec, TensorSpec

DATA = Section("cudnnRNNBackwardData", "c59", "c60", "c61", "c58", "c58", "c62", "c63", "c68")
WEIGHTS = Section("cudnnRNNBackwardWeights", "c25", "c26", "c27", "c24", "c24", "c28", "c29", "c30")
DATA_EX = Section("cudnnRNNBackwardDataEx", "c45", "c46", "c46", "c42", "c44", "c47", "c48", "c53")
WEIGHTS_EX = Section("cudnnRNNBackwardWeightsEx", "c19", "c20", "c20", "c18", "c18", "c21", "c22", "c23")
DATA_DESCRIBED = ("yDesc", "dyDesc", "dhyDesc", "dcyDesc", "wDesc", "hxDesc", "cxDesc", "dxDesc", "dhxDesc", "dcxDesc")
WEIGHTS_DESCRIBED = ("xDesc", "hxDesc", "yDesc", "dwDesc")


def _spaces(section: Any, spec: Any, x: Any, work_bytes: Any, reserve_bytes: Any) -> Any:
    work, kept = workspace(spec, x.max_length, x.batch), reserve(spec, x.max_length, x.batch)
    spaces(section, (work_bytes, work), (reserve_bytes, kept))
    return {"workspace": work, "reserve": kept}


def data_operation(
    section: Any,
    rnn: Any,
    y: Any,
    dy: Any,
    dx: Any,
    w: Any,
    states: Any,
    memory: Any,
    work_bytes: Any,
    reserve_bytes: Any,
) -> RNNBackwardData:
    """Return the operation. states: descriptors of hx, dhy, dhx, cx, dcy and dcx. memory: their memory."""
    expect(y == dy, BAD_PARAM, section.clause("shape"), f"yDesc is {y}, dyDesc {dy}")
    spec = network_of(section, rnn, dx, y, w)
    states = described(section, spec, dx.batch, **states)
    found = _spaces(section, spec, dx, work_bytes, reserve_bytes)
    given = {
        name: None if memory[name] is None or ("c" in name[:2] and spec.cell != LSTM) else state
        for name, state in states.items()
    }
    return RNNBackwardData(spec, y, dy, weightSpace=weights(spec), dx=dx, **found, **given)


def weights_operation(
    section: Any, rnn: Any, x: Any, y: Any, w: Any, hx_described: Any, hx: Any, work_bytes: Any, reserve_bytes: Any
) -> RNNBackwardWeights:
    spec = network_of(section, rnn, x, y, w)
    state = described(section, spec, x.batch, hx=hx_described)["hx"]
    found = _spaces(section, spec, x, work_bytes, reserve_bytes)
    return RNNBackwardWeights(spec, x, None if hx is None else state, y, weights(spec), **found)


@computing(
    invalid=DATA.refused_by(*DATA_DESCRIBED), small=DATA.small, failed=DATA.failed,
    named={"weightSpace": "w", "workSpace": "workspace"},
)  # fmt: skip
def cudnnRNNBackwardData(
    handle: Handle, rnnDesc: RNNSpec, seqLength: int, yDesc: Sequence[TensorSpec], y: Any, dyDesc: Sequence[TensorSpec], dy: Any, dhyDesc: TensorSpec, dhy: Any, dcyDesc: TensorSpec, dcy: Any, wDesc: FilterSpec, w: Any, hxDesc: TensorSpec, hx: Any, cxDesc: TensorSpec, cx: Any,
    dxDesc: Sequence[TensorSpec], dx: Any, dhxDesc: TensorSpec, dhx: Any, dcxDesc: TensorSpec, dcx: Any, workspace: Any, workSpaceSizeInBytes: int, reserveSpace: Any, reserveSpaceSizeInBytes: int,
) -> Any:  # fmt: skip
    """Do the same as cudnnRNNBackwardData_v8 after cudnnRNNForwardTraining, for packed sequences that are described
    step by step.

    Errors: BAD_PARAM for rnnDesc (c59), other descriptors (c60), mismatched arguments (c61), small spaces (c62, c63);
    NOT_SUPPORTED for what a persistent algorithm does not support, and for data types (c58). Source: 8.2.17.
    """
    described_steps = (("yDesc", yDesc), ("dyDesc", dyDesc), ("dxDesc", dxDesc))
    data = (sequences(DATA, name, seqLength, steps) for name, steps in described_steps)
    states = {"hx": hxDesc, "dhy": dhyDesc, "dhx": dhxDesc, "cx": cxDesc, "dcy": dcyDesc, "dcx": dcxDesc}
    memory = {"hx": hx, "dhy": dhy, "dhx": dhx, "cx": cx, "dcy": dcy, "dcx": dcx}
    return data_operation(DATA, rnnDesc, *data, wDesc, states, memory, workSpaceSizeInBytes, reserveSpaceSizeInBytes)


@computing(
    invalid=DATA_EX.refused_by(*DATA_DESCRIBED), small=DATA_EX.small, failed=DATA_EX.failed, named={"weightSpace": "w"},
)  # fmt: skip
def cudnnRNNBackwardDataEx(
    handle: Handle, rnnDesc: RNNSpec, yDesc: RNNDataSpec, y: Any, dyDesc: RNNDataSpec, dy: Any, dcDesc: RNNDataSpec | None, dcAttn: Any, dhyDesc: TensorSpec, dhy: Any, dcyDesc: TensorSpec, dcy: Any, wDesc: FilterSpec, w: Any, hxDesc: TensorSpec, hx: Any, cxDesc: TensorSpec, cx: Any,
    dxDesc: RNNDataSpec, dx: Any, dhxDesc: TensorSpec, dhx: Any, dcxDesc: TensorSpec, dcx: Any, dkDesc: RNNDataSpec | None, dkeys: Any, workSpace: Any, workSpaceSizeInBytes: int, reserveSpace: Any,
    reserveSpaceSizeInBytes: int,
) -> Any:  # fmt: skip
    """Do the same as cudnnRNNBackwardData for sequences in any layout; dcDesc, dcAttn, dkDesc and dkeys are reserved.

    Errors: BAD_PARAM for rnnDesc (c45), descriptors (c46), small spaces (c47, c48); NOT_SUPPORTED for a persistent
    algorithm with sequences of several lengths (c42) or DOUBLE data (c44), and for reserved arguments. Source: 8.2.19.
    """
    without_attention(DATA_EX, dcDesc=dcDesc, dcAttn=dcAttn, dkDesc=dkDesc, dkeys=dkeys)
    states = {"hx": hxDesc, "dhy": dhyDesc, "dhx": dhxDesc, "cx": cxDesc, "dcy": dcyDesc, "dcx": dcxDesc}
    memory = {"hx": hx, "dhy": dhy, "dhx": dhx, "cx": cx, "dcy": dcy, "dcx": dcx}
    sizes = workSpaceSizeInBytes, reserveSpaceSizeInBytes
    return data_operation(DATA_EX, rnnDesc, yDesc, dyDesc, dxDesc, wDesc, states, memory, *sizes)


@computing(
    invalid=WEIGHTS.refused_by(*WEIGHTS_DESCRIBED), small=WEIGHTS.small, failed=WEIGHTS.failed,
    named={"dweightSpace": "dw", "workSpace": "workspace"},
)  # fmt: skip
def cudnnRNNBackwardWeights(
    handle: Handle, rnnDesc: RNNSpec, seqLength: int, xDesc: Sequence[TensorSpec], x: Any, hxDesc: TensorSpec, hx: Any, yDesc: Sequence[TensorSpec], y: Any, workspace: Any, workspaceSizeInBytes: int, dwDesc: FilterSpec, dw: Any,
    reserveSpace: Any, reserveSpaceSizeInBytes: int,
) -> Any:  # fmt: skip
    """Do the same as cudnnRNNBackwardWeights_v8 after cudnnRNNBackwardData, for packed sequences that are described
    step by step.

    Errors: BAD_PARAM for rnnDesc (c25), other descriptors (c26), mismatched arguments (c27), small spaces (c28, c29);
    NOT_SUPPORTED for what a persistent algorithm does not support, and for data types (c24). Source: 8.2.20.
    """
    data = (sequences(WEIGHTS, name, seqLength, steps) for name, steps in (("xDesc", xDesc), ("yDesc", yDesc)))
    sizes = workspaceSizeInBytes, reserveSpaceSizeInBytes
    return weights_operation(WEIGHTS, rnnDesc, *data, dwDesc, hxDesc, hx, *sizes)


@computing(
    invalid=WEIGHTS_EX.refused_by(*WEIGHTS_DESCRIBED), small=WEIGHTS_EX.small, failed=WEIGHTS_EX.failed,
    named={"dweightSpace": "dw"},
)  # fmt: skip
def cudnnRNNBackwardWeightsEx(
    handle: Handle, rnnDesc: RNNSpec, xDesc: RNNDataSpec, x: Any, hxDesc: TensorSpec, hx: Any, yDesc: RNNDataSpec, y: Any, workSpace: Any, workSpaceSizeInBytes: int, dwDesc: FilterSpec, dw: Any,
    reserveSpace: Any, reserveSpaceSizeInBytes: int,
) -> Any:  # fmt: skip
    """Do the same as cudnnRNNBackwardWeights for sequences in any layout.

    Errors: BAD_PARAM for rnnDesc (c19), descriptors (c20), small spaces (c21, c22); NOT_SUPPORTED for what a persistent
    algorithm does not take (c18). Source: 8.2.22.
    """
    sizes = workSpaceSizeInBytes, reserveSpaceSizeInBytes
    return weights_operation(WEIGHTS_EX, rnnDesc, xDesc, yDesc, dwDesc, hxDesc, hx, *sizes)
