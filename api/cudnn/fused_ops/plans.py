"""Plans of fused operations (6.2.4, 6.2.7, 6.2.11, 6.2.17)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...descriptors import FusedOpsPlan
from ...enumerations import CUDNN_BN_MIN_EPSILON, cudnnFusedOps_t, cudnnFusedOpsPointerPlaceHolder_t
from ...functions import documented, executing
from ...operations import Operation
from ...status import BAD_PARAM, INCORRECT_PARAMETER, expect
from ...support.fused_ops import (
    COUNT,
    EPSILON,
    EPSILON_CLAUSES,
    FACTOR,
    OPERANDS,
    PROMISE_CLAUSES,
    VARIANT,
    WORKSPACE,
    WORKSPACE_CLAUSES,
    WORKSPACE_SIZE,
    clause_of,
    promise_of,
)
from .attributes import NULL, Attributes
from .sequences import SEQUENCES

_M, _E = "cudnnMakeFusedOpsPlan", "cudnnFusedOpsExecute"
PACK = cudnnFusedOpsPointerPlaceHolder_t.CUDNN_PTR_16B_ALIGNED
PACK_BYTES = 16


@dataclass(frozen=True)
class PlanSpec:
    """A plan that was made: the operation without its scalars, None where there is nothing to do, and what the pointers will be."""

    ops: cudnnFusedOps_t
    operation: Operation | None
    promises: tuple[tuple[Any, cudnnFusedOpsPointerPlaceHolder_t], ...]  # pointer, placeholder
    backend: Any  # for which the workspace was measured


@documented(invalid={"ops": "c03"})
def cudnnCreateFusedOpsPlan(ops):
    """A plan descriptor of a sequence, to be made a plan by cudnnMakeFusedOpsPlan.

    Errors: BAD_PARAM for what is no sequence (c03). Source: 6.2.4.
    """
    plan = FusedOpsPlan()
    plan.ops = ops
    return plan


@documented()
def cudnnDestroyFusedOpsPlan(plan):
    """Destroy the plan; None does nothing, using it afterwards is BAD_PARAM. Source: 6.2.7."""
    if plan is not None:
        plan.destroy()


@documented(invalid={"*": "c04"}, fresh=["plan"])
def cudnnMakeFusedOpsPlan(handle, plan, constPack):
    """Make a plan of the sequence and the attributes of the pack; returns the bytes of workspace that executing it takes.

    The plan has a copy of what it needs: the pack and its descriptors may change or be destroyed. A call that is refused leaves an
    earlier plan as it was. Placeholders say which operands there will be: optional outputs and steps whose pointers are
    CUDNN_PTR_NULL are left out.
    Errors: BAD_PARAM for NULL (c04), a pack of another sequence (c05), descriptors that are missing or whose shapes do not fit
    (the clauses of cudnnFusedOpsConstParamLabel_t); NOT_SUPPORTED for modes, activations and data types that are not supported.
    Source: 6.2.17, tables 23 to 29.
    """
    pack = constPack.spec
    expect(pack.ops == plan.ops, BAD_PARAM, f"{_M}/c05", f"constPack is of {pack.ops.name}, plan of {plan.ops.name}")
    operation = SEQUENCES[pack.ops](Attributes(pack))
    operation, needed = _with_workspace(handle, operation)
    pointers = ((pointer, promise_of(pointer)) for pointer in VARIANT[pack.ops])
    promises = tuple((pointer, pack.get(label) or NULL) for pointer, label in pointers if label is not None)
    plan.spec = PlanSpec(pack.ops, operation, promises, handle.backend)
    return needed


def _with_workspace(handle, operation):
    """(the operation with the workspace that the backend needs for it, its bytes)."""
    if operation is None or "workSpace" not in operation.raw:
        return operation, 0
    needed = handle.backend.workspace_bytes(replace(operation, workspace_bytes=0))
    return replace(operation, workspace_bytes=needed), needed


@executing(invalid={"plan": "c02"})
def cudnnFusedOpsExecute(handle, plan, varPack):
    """Run a plan on the memory and the scalars of a variant parameter pack, which may change from call to call.

    Errors: BAD_PARAM for a plan that was not made (c02), a pack of another sequence (c03), pointers that are not what the
    placeholders promise, a workspace that is missing or too small (the clauses of cudnnFusedOpsVariantParamLabel_t), an epsilon
    below CUDNN_BN_MIN_EPSILON, an accumulation count below 1. Source: 6.2.11, tables 31 to 35.
    """
    expect(
        varPack.ops == plan.ops, BAD_PARAM, f"{_E}/c03", f"varPack is of {varPack.ops.name}, plan of {plan.ops.name}"
    )
    memory = _memory(handle, plan, varPack)
    operation = plan.operation
    if operation is None:
        return None, {}
    if handle.backend is not plan.backend:
        operation, _ = _with_workspace(handle, operation)
    operation = _with_scalars(operation, varPack)
    if "workSpace" in operation.raw:
        memory["workSpace"] = _workspace(operation, varPack)
    return operation, memory


def _memory(handle, plan, pack):
    """The memory of each operand, held to what its placeholder promised."""
    memory = {}
    clauses = (
        [clause_of(name) for name in PROMISE_CLAUSES[plan.ops]]
        if plan.ops in PROMISE_CLAUSES
        else [INCORRECT_PARAMETER] * 3
    )
    null, element, aligned = clauses
    for pointer, promise in plan.promises:
        value = pack.get(pointer)
        expect((value is None) == (promise == NULL), BAD_PARAM, null if promise == NULL else aligned if promise == PACK else element,
               f"{pointer.name} is {'NULL' if value is None else 'not NULL'}, its placeholder is {promise.name}")  # fmt: skip
        if value is not None:
            memory[OPERANDS[pointer]] = value
            _check_alignment(handle, pointer, value, promise, aligned)
    return memory


def _check_alignment(handle, pointer, value, promise, clause):
    """BAD_PARAM where 16 bytes were promised and memory begins elsewhere. What is no memory, or begins within an element, is
    refused when it is used."""
    if promise != PACK:
        return
    try:
        address = handle.backend.operand(value).address
    except Exception:  # whatever a foreign object raises
        return
    expect(
        address % PACK_BYTES == 0,
        BAD_PARAM,
        clause,
        f"{pointer.name} is at {address:#x}, its placeholder is {promise.name}",
    )


def _with_scalars(operation, pack):
    """The operation with the scalars of the pack."""
    scalars = {}
    if hasattr(operation, "epsilon"):
        scalars["epsilon"] = epsilon = pack.get(EPSILON)
        expect(epsilon >= CUDNN_BN_MIN_EPSILON, BAD_PARAM, EPSILON_CLAUSES.get(pack.ops, INCORRECT_PARAMETER),
               f"{EPSILON.name} is {epsilon}, it must be at least {CUDNN_BN_MIN_EPSILON}")  # fmt: skip
    if hasattr(operation, "count"):
        scalars |= {"count": pack.get(COUNT), "factor": pack.get(FACTOR)}
        expect(
            scalars["count"] > 0,
            BAD_PARAM,
            clause_of("c063"),
            f"{COUNT.name} is {scalars['count']}, it must be positive",
        )
    return replace(operation, **scalars) if scalars else operation


def _workspace(operation, pack):
    """The workspace of the pack."""
    clauses = WORKSPACE_CLAUSES.get(pack.ops)
    missing, small = map(clause_of, clauses) if clauses else (INCORRECT_PARAMETER, INCORRECT_PARAMETER)
    needed, given, value = operation.workspace_bytes, pack.get(WORKSPACE_SIZE), pack.get(WORKSPACE)
    expect(given >= needed, BAD_PARAM, small, f"{WORKSPACE_SIZE.name} is {given}, the plan needs {needed}")
    expect(
        value is not None or needed == 0, BAD_PARAM, missing, f"{WORKSPACE.name} is NULL, the plan needs {needed} bytes"
    )
    return value
