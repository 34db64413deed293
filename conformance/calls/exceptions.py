"""What the names in the function table do not tell about the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dualdnn.api.operations import (
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    Operation,
    ReduceTensor,
    ReorderFilter,
    ReorderFilterAndBias,
    SetTensor,
)

# Operations whose call is not called cudnn<operation>.
FUNCTIONS: dict[type[Operation], str] = {ReorderFilter: "cudnnReorderFilterAndBias"}

# The query that says how large the workspace must be.
WORKSPACES: dict[type[Operation], str] = {
    ConvolutionForward: "cudnnGetConvolutionForwardWorkspaceSize",
    ConvolutionBiasActivationForward: "cudnnGetConvolutionForwardWorkspaceSize",
    ConvolutionBackwardData: "cudnnGetConvolutionBackwardDataWorkspaceSize",
    ConvolutionBackwardFilter: "cudnnGetConvolutionBackwardFilterWorkspaceSize",
    ReduceTensor: "cudnnGetReductionWorkspaceSize",
}


def _workspace(make: Any, o: Any, memory: Mapping[str, Any]) -> Any:
    """The operation's workspace, or a larger one where the subject needs more than the operation has."""
    needed = make.workspace_bytes(o)
    return memory["workspace"] if needed <= o.workspace_bytes else make.handle.allocate(needed)


def _workspace_bytes(make: Any, o: Any, _memory: Mapping[str, Any]) -> int:
    return max(o.workspace_bytes, make.workspace_bytes(o))


# Operation -> parameter -> the argument: a function of (the caller, the operation, its memory), else the argument itself.
VALUES: dict[type[Operation], dict[str, Callable[[Any, Any, Mapping[str, Any]], Any] | int | None]] = {
    SetTensor: {"valuePtr": lambda make, o, memory: o.value},
    ReduceTensor: {"workspace": _workspace, "workspaceSizeInBytes": _workspace_bytes},
    ReorderFilter: {"reorderBias": 0, "biasData": None, "reorderedBiasData": None},
    ReorderFilterAndBias: {"reorderBias": 1},
}
