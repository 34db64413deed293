"""Implement the forward calls before version 8 (7.2.37, 7.2.38, 8.2.23, 8.2.24), which run the operation of
cudnnRNNForward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...functions import computing
from ...operations.rnn import RNNForward, reserve, workspace
from ...operations.rnn.network import LSTM
from .forward import weights
from .legacy import Section, described, network_of, sequences, spaces, without_attention

if TYPE_CHECKING:
    from ...handle import Handle
    from ...operations.rnn.data import RNNDataSpec
    from ...operations.rnn.network import RNNSpec
    from ...operations.specs import FilterSpec, TensorSpec

INFERENCE = Section("cudnnRNNForwardInference", "c45", "c46", "c47", "c44", "c44", "c48", "", "c49")
TRAINING = Section(
    "cudnnRNNForwardTraining", "c46", "c47", "c48", "cudnnRNNForward/c41", "cudnnRNNForward/c43", "c49", "c50", "c51"
)
INFERENCE_EX = Section("cudnnRNNForwardInferenceEx", "c37", "c38", "c38", "c34", "c36", "c40", "", "c41")
TRAINING_EX = Section("cudnnRNNForwardTrainingEx", "c41", "c42", "c42", "c38", "c40", "c43", "c44", "c45")
DESCRIBED = ("xDesc", "hxDesc", "cxDesc", "wDesc", "yDesc", "hyDesc", "cyDesc")


def forward_operation(
    section: Any, rnn: Any, x: Any, y: Any, w: Any, states: Any, memory: Any, work_bytes: Any, reserve_bytes: Any = None
) -> RNNForward:
    """Return the operation. states: descriptors of hx, cx, hy and cy. memory: their memory. reserve_bytes:
    is None in inference."""
    training = reserve_bytes is not None
    spec = network_of(section, rnn, x, y, w)
    states = described(section, spec, x.batch, **states)
    work, kept = workspace(spec, x.max_length, x.batch), reserve(spec, x.max_length, x.batch, training)
    spaces(section, (work_bytes, work), (reserve_bytes, kept) if training else None)
    given = {
        name: None if memory[name] is None or (name[0] == "c" and spec.cell != LSTM) else state
        for name, state in states.items()
    }
    return RNNForward(spec, training, x, weightSpace=weights(spec), y=y, workspace=work, reserve=kept, **given)


@computing(
    invalid=INFERENCE.refused_by(*DESCRIBED), small=INFERENCE.small, failed=INFERENCE.failed,
    named={"weightSpace": "w", "workSpace": "workspace"},
)  # fmt: skip
def cudnnRNNForwardInference(
    handle: Handle, rnnDesc: RNNSpec, seqLength: int, xDesc: Sequence[TensorSpec], x: Any, hxDesc: TensorSpec, hx: Any, cxDesc: TensorSpec, cx: Any, wDesc: FilterSpec, w: Any, yDesc: Sequence[TensorSpec], y: Any, hyDesc: TensorSpec, hy: Any, cyDesc: TensorSpec, cy: Any,
    workspace: Any, workspaceSizeInBytes: int,
) -> Any:  # fmt: skip
    """Do the same as cudnnRNNForward in inference, for packed sequences; xDesc and yDesc describe each step as {batch,
    vector, 1}.

    wDesc has at least the bytes of cudnnGetRNNParamsSize. NULL hx and cx are zeros; NULL hy and cy are not written.
    Errors: BAD_PARAM for rnnDesc (c45), other descriptors (c46), mismatched arguments (c47), a small workspace (c48);
    NOT_SUPPORTED for what a persistent algorithm does not support, and for data types (c44). Source: 7.2.37.
    """
    data = (sequences(INFERENCE, name, seqLength, steps) for name, steps in (("xDesc", xDesc), ("yDesc", yDesc)))
    states = {"hx": hxDesc, "cx": cxDesc, "hy": hyDesc, "cy": cyDesc}
    memory = {"hx": hx, "cx": cx, "hy": hy, "cy": cy}
    return forward_operation(INFERENCE, rnnDesc, *data, wDesc, states, memory, workspaceSizeInBytes)


@computing(
    invalid=TRAINING.refused_by(*DESCRIBED), small=TRAINING.small, failed=TRAINING.failed,
    named={"weightSpace": "w", "workSpace": "workspace"},
)  # fmt: skip
def cudnnRNNForwardTraining(
    handle: Handle, rnnDesc: RNNSpec, seqLength: int, xDesc: Sequence[TensorSpec], x: Any, hxDesc: TensorSpec, hx: Any, cxDesc: TensorSpec, cx: Any, wDesc: FilterSpec, w: Any, yDesc: Sequence[TensorSpec], y: Any, hyDesc: TensorSpec, hy: Any, cyDesc: TensorSpec, cy: Any,
    workspace: Any, workSpaceSizeInBytes: int, reserveSpace: Any, reserveSpaceSizeInBytes: int,
) -> Any:  # fmt: skip
    """Do the same as cudnnRNNForward in training, with the descriptors of cudnnRNNForwardInference.

    Errors: BAD_PARAM for rnnDesc (c46), other descriptors (c47), mismatched arguments (c48), small spaces (c49, c50);
    NOT_SUPPORTED for what a persistent algorithm does not support (cudnnRNNForward/c41, c43). Source: 8.2.23.
    """
    data = (sequences(TRAINING, name, seqLength, steps) for name, steps in (("xDesc", xDesc), ("yDesc", yDesc)))
    states = {"hx": hxDesc, "cx": cxDesc, "hy": hyDesc, "cy": cyDesc}
    memory = {"hx": hx, "cx": cx, "hy": hy, "cy": cy}
    return forward_operation(
        TRAINING, rnnDesc, *data, wDesc, states, memory, workSpaceSizeInBytes, reserveSpaceSizeInBytes
    )


@computing(
    invalid=INFERENCE_EX.refused_by(*DESCRIBED), small=INFERENCE_EX.small, failed=INFERENCE_EX.failed,
    named={"weightSpace": "w"},
)  # fmt: skip
def cudnnRNNForwardInferenceEx(
    handle: Handle, rnnDesc: RNNSpec, xDesc: RNNDataSpec, x: Any, hxDesc: TensorSpec, hx: Any, cxDesc: TensorSpec, cx: Any, wDesc: FilterSpec, w: Any, yDesc: RNNDataSpec, y: Any, hyDesc: TensorSpec, hy: Any, cyDesc: TensorSpec, cy: Any,
    kDesc: RNNDataSpec | None, keys: Any, cDesc: RNNDataSpec | None, cAttn: Any, iDesc: RNNDataSpec | None, iAttn: Any, qDesc: RNNDataSpec | None, queries: Any, workSpace: Any, workspaceSizeInBytes: int,
) -> Any:  # fmt: skip
    """Do the same as cudnnRNNForwardInference for sequences in any layout; kDesc to queries are reserved.

    Errors: BAD_PARAM for rnnDesc (c37), descriptors (c38), a small workspace (c40); NOT_SUPPORTED for a persistent
    algorithm with sequences of several lengths (c34) or DOUBLE data (c36), and for reserved arguments. Source: 7.2.38.
    """
    without_attention(INFERENCE_EX, kDesc=kDesc, keys=keys, cDesc=cDesc, cAttn=cAttn, iDesc=iDesc, iAttn=iAttn,
                      qDesc=qDesc, queries=queries)  # fmt: skip
    states = {"hx": hxDesc, "cx": cxDesc, "hy": hyDesc, "cy": cyDesc}
    memory = {"hx": hx, "cx": cx, "hy": hy, "cy": cy}
    return forward_operation(INFERENCE_EX, rnnDesc, xDesc, yDesc, wDesc, states, memory, workspaceSizeInBytes)


@computing(
    invalid=TRAINING_EX.refused_by(*DESCRIBED), small=TRAINING_EX.small, failed=TRAINING_EX.failed,
    named={"weightSpace": "w", "workSpace": "workspace"},
)  # fmt: skip
def cudnnRNNForwardTrainingEx(
    handle: Handle, rnnDesc: RNNSpec, xDesc: RNNDataSpec, x: Any, hxDesc: TensorSpec, hx: Any, cxDesc: TensorSpec, cx: Any, wDesc: FilterSpec, w: Any, yDesc: RNNDataSpec, y: Any, hyDesc: TensorSpec, hy: Any, cyDesc: TensorSpec, cy: Any,
    kDesc: RNNDataSpec | None, keys: Any, cDesc: RNNDataSpec | None, cAttn: Any, iDesc: RNNDataSpec | None, iAttn: Any, qDesc: RNNDataSpec | None, queries: Any, workspace: Any, workspaceSizeInBytes: int,
    reserveSpace: Any, reserveSpaceSizeInBytes: int,
) -> Any:  # fmt: skip
    """Do the same as cudnnRNNForwardTraining for sequences in any layout; kDesc to queries are reserved.

    Errors: BAD_PARAM for rnnDesc (c41), descriptors (c42), small spaces (c43, c44); NOT_SUPPORTED for a persistent
    algorithm with sequences of several lengths (c38) or DOUBLE data (c40), and for reserved arguments. Source: 8.2.24.
    """
    without_attention(TRAINING_EX, kDesc=kDesc, keys=keys, cDesc=cDesc, cAttn=cAttn, iDesc=iDesc, iAttn=iAttn,
                      qDesc=qDesc, queries=queries)  # fmt: skip
    states = {"hx": hxDesc, "cx": cxDesc, "hy": hyDesc, "cy": cyDesc}
    memory = {"hx": hx, "cx": cx, "hy": hy, "cy": cy}
    return forward_operation(
        TRAINING_EX, rnnDesc, xDesc, yDesc, wDesc, states, memory, workspaceSizeInBytes, reserveSpaceSizeInBytes
    )
