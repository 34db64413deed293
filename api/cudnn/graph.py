"""Executing operation graphs (5.2.3)."""

from __future__ import annotations

from .. import api_log
from ..document import functions
from ..enumerations import cudnnBackendDescriptorType_t as Kind
from ..functions import OperandChecks, Prepared, documented, operand_sizes
from ..graph import execution as _execution  # noqa: F401 (registers)
from ..graph import operation_graph as _operation_graph  # noqa: F401 (registers)
from ..operations import BackendError
from ..status import BAD_PARAM, EXECUTION_FAILED, CudnnError, expect

NAME = "cudnnBackendExecute"


@documented(invalid={"executionPlan": "c07", "variantPack": "c07"}, fresh=["executionPlan", "variantPack"])
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
        expect(descriptor.kind == kind, BAD_PARAM, f"{NAME}/c07", f"{name} is a {descriptor.kind.name}")
        expect(descriptor.spec is not None, BAD_PARAM, f"{NAME}/c03", f"{name} has not been finalised")
    plan, pack = executionPlan.spec.record, variantPack.spec.record
    expect(plan.handle is handle, BAD_PARAM, f"{NAME}/c07", "the execution plan was made for another handle")
    memory = _memory(plan.operation, pack)
    operation = plan.operation
    names = tuple(operation.operands)
    prepared = Prepared(operation, operand_sizes(operation, {name: i for i, name in enumerate(names)}), plan.launch)

    def refuse(position, problem):
        return CudnnError(BAD_PARAM, f"{NAME}/c07", f"{names[position]} {problem}")

    checks = OperandChecks(NAME, refuse, {"workspace": ("c05", BAD_PARAM)})
    expect(
        memory["workspace"] is not None or operation.workspace_bytes == 0, BAD_PARAM, f"{NAME}/c05",
        f"the workspace is NULL, {operation.workspace_bytes} bytes are needed",
    )  # fmt: skip
    operands = checks.operands(handle.backend, prepared, [memory[name] for name in names])
    try:
        plan.launch(operands, handle.stream)
    except BackendError as error:
        api_log.log_fatal(functions()[NAME], str(error))
        raise CudnnError(EXECUTION_FAILED, f"{NAME}/c09", str(error), NAME) from error


def _memory(operation, pack):
    """The memory of every operand, by name."""
    given = dict(pack.pointers)
    needed = {tensor.uid: name for name, tensor in operation.tensors.items() if not tensor.is_virtual}
    missing, more = sorted(set(needed) - set(given)), sorted(set(given) - set(needed))
    expect(not missing, BAD_PARAM, f"{NAME}/c04", f"the variant pack has no pointers for the tensors {missing}")
    expect(
        not more,
        BAD_PARAM,
        f"{NAME}/c07",
        f"the graph has no tensors {more} with memory, for which the variant pack has pointers",
    )
    return {"workspace": pack.workspace, **{name: given[uid] for uid, name in needed.items()}}
