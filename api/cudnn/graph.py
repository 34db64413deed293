"""Executing operation graphs (5.2.3)."""

from __future__ import annotations

from ..enumerations import cudnnBackendDescriptorType_t as Kind
from ..functions import executing
from ..graph import execution as _execution  # noqa: F401 (registers)
from ..graph import operation_graph as _operation_graph  # noqa: F401 (registers)
from ..status import BAD_PARAM, expect

NAME = "cudnnBackendExecute"


@executing(
    invalid={"*": "c07"}, fresh=["executionPlan", "variantPack"], failed="c09", small={"workspace": ("c05", BAD_PARAM)}
)
def cudnnBackendExecute(handle, executionPlan, variantPack):
    """Run a finalised execution plan on the memory of a finalised variant pack.

    The pack has a pointer for each tensor of the graph that is not virtual, by its unique id, and a workspace of at least
    CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE bytes, which may be None where that is 0.
    Errors: BAD_PARAM for descriptors that are not finalised (c03), of another type or made for another handle (c07),
    pointers that are missing (c04), superfluous, too small or misaligned (c07), a workspace that is too small (c05);
    EXECUTION_FAILED where the device fails (c09). Source: 5.2.3.
    """
    for name, descriptor, kind in (
        ("executionPlan", executionPlan, Kind.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
        ("variantPack", variantPack, Kind.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR),
    ):
        expect(descriptor is not None, BAD_PARAM, f"{NAME}/c03", f"{name} has not been finalised")
        expect(descriptor.kind == kind, BAD_PARAM, f"{NAME}/c07", f"{name} is a {descriptor.kind.name}")
    plan, pack = executionPlan.record, variantPack.record
    expect(plan.handle is handle, BAD_PARAM, f"{NAME}/c07", "the execution plan was made for another handle")
    operation, given = plan.operation, dict(pack.pointers)
    needed = {tensor.uid: name for name, tensor in operation.tensors.items() if not tensor.is_virtual}
    missing, more = sorted(set(needed) - set(given)), sorted(set(given) - set(needed))
    expect(not missing, BAD_PARAM, f"{NAME}/c04", f"the variant pack has no pointers for the tensors {missing}")
    expect(
        not more,
        BAD_PARAM,
        f"{NAME}/c07",
        f"the graph has no tensors {more} with memory, for which the pack has pointers",
    )
    enough = pack.workspace is not None or operation.workspace_bytes == 0
    expect(enough, BAD_PARAM, f"{NAME}/c05", f"the workspace is NULL, {operation.workspace_bytes} bytes are needed")
    return operation, {"workspace": pack.workspace, **{name: given[uid] for uid, name in needed.items()}}
