"""List the arguments of calls that the function table does not determine."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from dualdnn.api.operations import (
    BatchNormalizationBackwardEx,
    BatchNormalizationForwardTrainingEx,
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    CTCLoss,
    CTCLoss_v8,
    DropoutBackward,
    DropoutForward,
    MultiHeadAttnBackwardData,
    MultiHeadAttnBackwardWeights,
    MultiHeadAttnForward,
    MultiHeadAttnStep,
    NormalizationBackward,
    NormalizationForwardInference,
    NormalizationForwardTraining,
    Operation,
    OperationGraph,
    ReduceTensor,
    ReorderFilter,
    ReorderFilterAndBias,
    RNNBackwardData,
    RNNBackwardWeights,
    RNNForward,
    SetDropoutStates,
    SetTensor,
    TensorSpec,
)
from dualdnn.api.operations.rnn.network import LSTM, PERSIST_DYNAMIC

from . import fused_ops, graph
from .descriptors import made

# The calls of these operations are not named cudnn<operation>.
FUNCTIONS: dict[type[Operation], str] = {
    ReorderFilter: "cudnnReorderFilterAndBias",
    OperationGraph: "cudnnBackendExecute",
    **dict.fromkeys(fused_ops.KINDS, "cudnnFusedOpsExecute"),
    SetDropoutStates: "cudnnSetDropoutDescriptor",
    RNNBackwardData: "cudnnRNNBackwardData_v8",
    RNNBackwardWeights: "cudnnRNNBackwardWeights_v8",
    MultiHeadAttnStep: "cudnnMultiHeadAttnForward",
}

# These queries return the size of the workspace.
WORKSPACES: dict[type[Operation], str] = {
    ConvolutionForward: "cudnnGetConvolutionForwardWorkspaceSize",
    ConvolutionBiasActivationForward: "cudnnGetConvolutionForwardWorkspaceSize",
    ConvolutionBackwardData: "cudnnGetConvolutionBackwardDataWorkspaceSize",
    ConvolutionBackwardFilter: "cudnnGetConvolutionBackwardFilterWorkspaceSize",
    ReduceTensor: "cudnnGetReductionWorkspaceSize",
    **{kind: "cudnnMakeFusedOpsPlan" for kind in fused_ops.KINDS if "workSpace" in kind.raw},
    CTCLoss: "cudnnGetCTCLossWorkspaceSize",
    CTCLoss_v8: "cudnnGetCTCLossWorkspaceSize_v8",
}


# These queries return the sizes of the workspace and the reserve space of a fused normalisation.
SPACES: dict[type[Operation], dict[str, str]] = {
    kind: {"workspace_bytes": f"cudnnGet{of_workspace}WorkspaceSize", "reserve_bytes": f"cudnnGet{of_reserve}ReserveSpaceSize"}
    for kind, of_workspace, of_reserve in (
        (BatchNormalizationForwardTrainingEx, "BatchNormalizationForwardTrainingEx", "BatchNormalizationTrainingEx"),
        (BatchNormalizationBackwardEx, "BatchNormalizationBackwardEx", "BatchNormalizationTrainingEx"),
        (NormalizationForwardTraining, "NormalizationForwardTraining", "NormalizationTraining"),
        (NormalizationBackward, "NormalizationBackward", "NormalizationTraining"),
    )
}  # fmt: skip


def _workspace(make: Any, o: Any, memory: Mapping[str, Any]) -> Any:
    """Return the operation's workspace, or a larger one if the subject needs more."""
    needed = make.workspace_bytes(o)
    return memory["workspace"] if needed <= o.workspace_bytes else make.handle.allocate(needed)


def _workspace_bytes(make: Any, o: Any, _memory: Mapping[str, Any]) -> int:
    return max(o.workspace_bytes, make.workspace_bytes(o))


def _plan(make: Any, o: Any, _memory: Mapping[str, Any]) -> Any:
    make.plan = graph.plan(make, o)  # The variant pack of the same call needs this plan's workspace.
    return make.plan


def _variant_pack(make: Any, o: Any, memory: Mapping[str, Any]) -> Any:
    """Return the variant pack of the operands, with a larger workspace if the subject needs one."""
    needed = graph.plan_bytes(make, make.plan)
    workspace = memory["workspace"] if needed <= o.workspace_bytes else make.handle.allocate(needed)
    made = graph.pack(make, o, memory, workspace)
    make.keep(made, workspace)
    return made


def _dropout(make: Any, o: Any, memory: Mapping[str, Any]) -> Any:
    return with_states(make, o.probability, o, memory)


def with_states(make: Any, probability: float, o: Any, memory: Mapping[str, Any]) -> Any:
    """Return a dropout descriptor with the operation's states.

    It gets new states if the subject's are larger or the call has no states. Half of the descriptors get the
    probability in a second call without states, which keeps the earlier ones.
    """
    descriptor, needed = make.cudnn.cudnnCreateDropoutDescriptor(), make.cudnn.cudnnDropoutGetStatesSize(make.handle)
    if "states" in memory and needed <= o.nbytes("states"):
        values = make.handle, probability, memory["states"], needed, 0
        make.cudnn.cudnnRestoreDropoutDescriptor(descriptor, *values)
    else:
        states = make.handle.allocate(needed)
        make.cudnn.cudnnSetDropoutDescriptor(descriptor, make.handle, probability, states, needed, 0)
        make.keep(descriptor, states)  # Calls with the descriptor read these states.
    if zlib.crc32(repr(o).encode()) % 2:
        make.cudnn.cudnnSetDropoutDescriptor(descriptor, make.handle, probability, None, 0, 0)
    return descriptor


def attention_buffers(cudnn: Any, handle: Any, attention: Any, trains: bool) -> Any:
    """Return the bytes of weights, work space and reserve space.

    Without gradients the last is left out; in C, passing NULL for it means this (7.2.15).
    """
    query = cudnn.cudnnGetMultiHeadAttnBuffers
    if not trains and hasattr(query, "without"):
        query = query.without("reserveSpaceSizeInBytes")
    return query(handle, attention)


def _trains(o: Any) -> bool:
    """Return whether the call belongs to a training step, as gradients do."""
    return bool(getattr(o, "trains", not isinstance(o, MultiHeadAttnStep)))


def _attention_space(place: int, name: str) -> dict[str, Callable[[Any, Any, Mapping[str, Any]], Any]]:
    """Return the functions for a work or reserve space and its size: the operation's memory, or more if the
    subject asks for it.
    """
    larger: dict[int, Any] = {}  # larger spaces of all calls of a chain, by the address of the memory they replace

    def size(make: Any, o: Any, memory: Mapping[str, Any]) -> int:
        if memory.get(name) is None or not o.nbytes(name):
            return 0
        asked = attention_buffers(make.cudnn, make.handle, make.descriptor(o.attn), _trains(o))[place]
        return max(int(asked), o.nbytes(name))

    def space(make: Any, o: Any, memory: Mapping[str, Any]) -> Any:
        needed, given = size(make, o, memory), memory.get(name)
        if given is None or not needed or needed <= o.nbytes(name):
            return given if needed else None
        if given.address not in larger or larger[given.address].nbytes < needed:
            larger[given.address] = make.handle.allocate(needed)
        return larger[given.address]

    return {name: space, f"{name}SizeInBytes": size}


def _described_by(operand: str) -> Callable[[Any, Any, Mapping[str, Any]], Any]:
    """Return a function for the descriptor of an operand with another name."""
    return lambda make, o, memory: make.descriptor(getattr(o, operand))


def _weight_bytes(_make: Any, o: Any, _memory: Mapping[str, Any]) -> int:
    return o.nbytes("weights") if o.has("weights") else 0


_ATTENTION_SPACES: dict[str, Callable[[Any, Any, Mapping[str, Any]], Any] | float | None] = {
    **_attention_space(1, "workSpace"),
    **_attention_space(2, "reserveSpace"),
    "weightSizeInBytes": _weight_bytes,
}
ATTENTION = {
    **_ATTENTION_SPACES,
    "qDesc": _described_by("queries"),
    "kDesc": _described_by("keys"),
    "vDesc": _described_by("values"),
    "oDesc": _described_by("out"),
    "currIdx": lambda make, o, memory: o.curr_idx if isinstance(o, MultiHeadAttnStep) else -1,
    # Entries of other time-steps are not read.
    "loWinIdx": lambda make, o, memory: (-(2**31),) * o.first_step + o.lo_win_idx,
    "hiWinIdx": lambda make, o, memory: (2**31 - 1,) * o.first_step + o.hi_win_idx,
}
ATTENTION_GRADIENTS = {
    **_ATTENTION_SPACES,
    "doDesc": _described_by("dout"),
    **{f"{prefix}{letter}Desc": _described_by(operand) for prefix in ("", "d")
       for letter, operand in (("q", "queries"), ("k", "keys"), ("v", "values"))},
    "loWinIdx": lambda make, o, memory: o.lo_win_idx,
    "hiWinIdx": lambda make, o, memory: o.hi_win_idx,
    "addGrad": lambda make, o, memory: o.add_grad,
}  # fmt: skip


def _lengths(make: Any, o: Any, _memory: Mapping[str, Any]) -> Any:
    """Return the lengths of the sequences in device memory."""
    return make.handle.to_device(np.array(o.y.lengths, np.int32))


def _states(width: str) -> Callable[[Any, Any, Mapping[str, Any]], Any]:
    """Return a function for the descriptor of a network's states.

    Only CUDNN_LSTM has states with the length of the cell's.
    """

    def described(make: Any, o: Any, _memory: Mapping[str, Any]) -> Any:
        n = o.network
        if width == "hidden" and n.cell != LSTM:
            return None
        return make.descriptor(TensorSpec.packed(n.data_type, (n.pseudo_layers, o.y.batch, getattr(n, width))))

    return described


def _network(make: Any, o: Any, memory: Mapping[str, Any]) -> Any:
    """Return the descriptor of a network, with a dropout descriptor and a plan if it needs them."""
    dropout = make.dropout
    if dropout is None and o.network.dropout:
        dropout = with_states(make, o.network.dropout, o, memory)
    descriptor = made(make.cudnn, o.network, dropout)
    if dropout is not None:
        make.keep(descriptor, dropout)
    if o.network.algo == PERSIST_DYNAMIC:
        make.cudnn.cudnnBuildRNNDynamic(make.handle, descriptor, o.y.batch)
    return descriptor


# The version 8 calls on recurrent networks share these arguments.
RNN: dict[str, Any] = {
    "rnnDesc": _network,
    "devSeqLengths": _lengths,
    "hDesc": _states("projected"),
    "cDesc": _states("hidden"),
    "weightSpaceSize": lambda make, o, memory: o.network.weight_bytes,
    "workSpaceSize": lambda make, o, memory: o.workspace.nbytes,
    "reserveSpaceSize": lambda make, o, memory: o.reserve.nbytes,
}
# operation -> parameter -> the argument, or a function of (the caller, the operation, its memory)
VALUES: dict[type[Operation], dict[str, Callable[[Any, Any, Mapping[str, Any]], Any] | float | None]] = {
    SetTensor: {"valuePtr": lambda make, o, memory: o.value},
    ReduceTensor: {"workspace": _workspace, "workspaceSizeInBytes": _workspace_bytes},
    NormalizationForwardTraining: {"groupCnt": 1},
    NormalizationBackward: {"groupCnt": 1},
    NormalizationForwardInference: {"normOps": 0, "zDesc": None, "z": None, "activationDesc": None, "groupCnt": 1},
    CTCLoss: {
        "workspace": _workspace,
        "workspaceSizeInBytes": _workspace_bytes,
        "labels": lambda make, o, memory: o.hostLabels,
        "labelLengths": lambda make, o, memory: o.hostLabelLengths,
        "inputLengths": lambda make, o, memory: o.hostInputLengths,
    },
    CTCLoss_v8: {"workspace": _workspace, "workSpaceSizeInBytes": _workspace_bytes},
    ReorderFilter: {"reorderBias": 0, "biasData": None, "reorderedBiasData": None},
    ReorderFilterAndBias: {"reorderBias": 1},
    RNNBackwardData: {**RNN, "xDesc": lambda make, o, memory: make.descriptor(o.dx)},
    RNNBackwardWeights: {**RNN, "addGrad": 0},
    OperationGraph: {"executionPlan": _plan, "variantPack": _variant_pack},
    RNNForward: {**RNN, "fwdMode": lambda make, o, memory: int(o.training)},
    **{kind: dict(fused_ops.ARGUMENTS) for kind in fused_ops.KINDS},
    SetDropoutStates: {
        "dropoutDesc": lambda make, o, memory: make.cudnn.cudnnCreateDropoutDescriptor(),
        "dropout": 0.5,
        "stateSizeInBytes": lambda make, o, memory: o.nbytes("states"),
    },
    DropoutForward: {
        "dropoutDesc": _dropout,
        "xdesc": lambda make, o, memory: make.tensor(o.x),
        "ydesc": lambda make, o, memory: make.tensor(o.y),
    },
    DropoutBackward: {"dropoutDesc": _dropout},
    MultiHeadAttnBackwardData: ATTENTION_GRADIENTS,
    MultiHeadAttnBackwardWeights: ATTENTION_GRADIENTS,
    MultiHeadAttnForward: ATTENTION,
    MultiHeadAttnStep: ATTENTION,
}
