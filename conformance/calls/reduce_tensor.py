"""The call of the reduction family."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dualdnn.api.operations import ReduceTensor, ReduceTensorSpec

from .caller import Caller, Memory, calls


def reduce_tensor_descriptor(make: Caller, spec: ReduceTensorSpec) -> Any:
    """A reduction descriptor with this specification."""
    descriptor = make.cudnn.cudnnCreateReduceTensorDescriptor()
    make.cudnn.cudnnSetReduceTensorDescriptor(
        descriptor, spec.op, spec.compute_type, spec.nan, spec.indices, spec.indices_type
    )
    return descriptor


def sized(make: Caller, o: ReduceTensor) -> ReduceTensor:
    """Return the operation with the workspace that the subject asks for."""
    descriptor = reduce_tensor_descriptor(make, o.reduction)
    nbytes = make.cudnn.cudnnGetReductionWorkspaceSize(make.handle, descriptor, make.tensor(o.A), make.tensor(o.C))
    return replace(o, workspace_bytes=nbytes)


@calls(ReduceTensor)
def reduce_tensor(make: Caller, o: ReduceTensor, memory: Memory) -> None:
    descriptor, A, C = reduce_tensor_descriptor(make, o.reduction), make.tensor(o.A), make.tensor(o.C)
    workspace, workspace_bytes = memory["workspace"], o.workspace_bytes
    needed = make.cudnn.cudnnGetReductionWorkspaceSize(make.handle, descriptor, A, C)
    if needed > workspace_bytes:  # another library needs another size
        workspace, workspace_bytes = make.handle.allocate(needed), needed
    make.cudnn.cudnnReduceTensor(
        make.handle, descriptor, memory["indices"], o.indices_bytes, workspace, workspace_bytes,
        o.alpha, A, memory["A"], o.beta, C, memory["C"],
    )  # fmt: skip
