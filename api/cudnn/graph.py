"""Implement the execution of operation graphs (5.2.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..enumerations import cudnnBackendDescriptorType_t as Kind
from ..functions import executing
from ..status import BAD_PARAM, CudnnError

if TYPE_CHECKING:
    from ..handle import Handle

NAME = "cudnnBackendExecute"
PLAN, PACK = Kind.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, Kind.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR


@executing(
    invalid={"*": "c07"}, fresh=["executionPlan", "variantPack"], failed="c09", small={"workspace": ("c05", BAD_PARAM)}
)
def cudnnBackendExecute(handle: Handle, executionPlan: Any, variantPack: Any) -> Any:
    """Run a finalised execution plan on the memory of a finalised variant pack.

    The pack maps the unique id of each tensor that is not virtual to a pointer. Its workspace has at least
    CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE bytes, and may be None if that is 0.
    Errors: BAD_PARAM for descriptors that are not finalised (c03), of another type or made for another handle (c07),
    pointers that are missing (c04), superfluous, too small or misaligned (c07), a workspace that is too small (c05);
    EXECUTION_FAILED where the device fails (c09). Source: 5.2.3.
    """
    if executionPlan is None or executionPlan.kind is not PLAN:
        raise _unfit("executionPlan", executionPlan)
    if variantPack is None or variantPack.kind is not PACK:
        raise _unfit("variantPack", variantPack)
    plan, pack = executionPlan.record, variantPack.record
    if plan.handle is not handle:
        raise CudnnError(BAD_PARAM, f"{NAME}/c07", "the execution plan was made for another handle")
    pointers, workspace = pack.pointers, pack.workspace
    try:
        memory = [pointers[uid] for uid in plan.uids]
    except KeyError:
        raise _other_tensors(plan.uids, pointers.keys()) from None
    if len(pointers) != len(memory):
        raise _other_tensors(plan.uids, pointers.keys())
    if workspace is None and plan.operation.workspace_bytes:
        text = f"the workspace is NULL, {plan.operation.workspace_bytes} bytes are needed"
        raise CudnnError(BAD_PARAM, f"{NAME}/c05", text)
    memory.append(workspace)
    return plan.operation, memory


def _unfit(name: Any, descriptor: Any) -> CudnnError:
    """Return the error for a descriptor that is not finalised or has another type."""
    if descriptor is None:
        return CudnnError(BAD_PARAM, f"{NAME}/c03", f"{name} has not been finalised")
    return CudnnError(BAD_PARAM, f"{NAME}/c07", f"{name} is a {descriptor.kind.name}")


def _other_tensors(needed: Any, given: Any) -> CudnnError:
    """Return the error for a pack whose unique ids differ from the ids of the graph's tensors with memory."""
    missing, more = sorted({*needed} - given), sorted(given - {*needed})
    if missing:
        return CudnnError(BAD_PARAM, f"{NAME}/c04", f"the variant pack has no pointers for the tensors {missing}")
    text = f"the graph has no tensors {more} with memory, for which the pack has pointers"
    return CudnnError(BAD_PARAM, f"{NAME}/c07", text)
