"""Implement plans of fused operations (6.2.4, 6.2.7, 6.2.11, 6.2.17)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...descriptors import FusedOpsPlan
from ...enumerations import CUDNN_BN_MIN_EPSILON, cudnnFusedOps_t, cudnnFusedOpsPointerPlaceHolder_t
from ...functions import documented, executing
from ...operations import Operation
from ...status import BAD_PARAM, INCORRECT_PARAMETER, CudnnError, expect
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
    scalar_type,
)
from .attributes import NULL, Attributes
from .sequences import SEQUENCES

if TYPE_CHECKING:
    from ...descriptors import FusedOpsConstParamPack
    from ...handle import Handle

_M = "cudnnMakeFusedOpsPlan"
_E = "cudnnFusedOpsExecute"
PACK = cudnnFusedOpsPointerPlaceHolder_t.CUDNN_PTR_16B_ALIGNED
PACK_BYTES = 16
OPERATIONS_KEPT = 64  # operations cached per plan, because its scalars seldom change


@dataclass(frozen=True, eq=False)
class Pointer:
    """Describe a device pointer of a plan's variant parameter packs.

    It holds the pointer's position in the packs, its operand and its placeholder's promise. It also holds the clauses
    that a NULL, an unexpected pointer or a misaligned address violates.
    """

    label: Any
    index: int
    operand: str
    promise: cudnnFusedOpsPointerPlaceHolder_t
    null_clause: str
    aligned_clause: str


@dataclass(frozen=True, eq=False)
class PlanSpec:
    """Hold a plan: its operation without scalars (None if there is nothing to do), its pointers, and executed
    operations by backend and scalars."""

    ops: cudnnFusedOps_t
    operation: Operation | None
    pointers: tuple[Pointer, ...] = field(repr=False)
    scalars: tuple[int, ...] = field(repr=False)  # positions in the packs
    executed: dict[Any, Operation] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, operation: Any, pack: Any) -> Any:
        """Return the plan of an operation that a constant parameter pack describes."""
        labels = VARIANT[pack.ops]
        listed = PROMISE_CLAUSES.get(pack.ops)
        null, element, aligned = map(clause_of, listed) if listed else [INCORRECT_PARAMETER] * 3
        pointers = []
        for index, label in enumerate(labels):
            if promise_of(label) is not None:
                promise = pack.get(promise_of(label)) or NULL
                violated = {NULL: null, PACK: aligned}.get(promise, element)
                pointers.append(Pointer(label, index, OPERANDS[label], promise, violated, aligned))
        scalars = (index for index, label in enumerate(labels) if scalar_type(label) is not None)
        return cls(pack.ops, operation, tuple(pointers), tuple(scalars))


@documented(invalid={"ops": "c03"})
def cudnnCreateFusedOpsPlan(ops: cudnnFusedOps_t) -> FusedOpsPlan:
    """Return a plan descriptor of a sequence, to be filled by cudnnMakeFusedOpsPlan.

    Errors: BAD_PARAM for an unknown sequence (c03). Source: 6.2.4.
    """
    plan = FusedOpsPlan()
    plan.ops = ops
    return plan


@documented()
def cudnnDestroyFusedOpsPlan(plan: FusedOpsPlan | None) -> None:
    """Destroy the plan; None does nothing; any later use is BAD_PARAM. Source: 6.2.7."""
    if plan is not None:
        plan.destroy()


@documented(invalid={"*": "c04"}, fresh=["plan"])
def cudnnMakeFusedOpsPlan(handle: Handle, plan: FusedOpsPlan, constPack: FusedOpsConstParamPack) -> int:
    """Make a plan from the sequence and the attributes of the pack; return the bytes of workspace that its execution
    needs.

    The plan copies what it needs, so the pack and its descriptors may change or be destroyed. After an error, an
    earlier plan is unchanged. Placeholders say which operands will exist: optional outputs and steps with the
    placeholder CUDNN_PTR_NULL are omitted.
    Errors: BAD_PARAM for NULL (c04), a pack of another sequence (c05), descriptors that are missing or whose shapes do
    not fit (the clauses of cudnnFusedOpsConstParamLabel_t); NOT_SUPPORTED for modes, activations and data types that
    are not supported.
    Source: 6.2.17, tables 23 to 29.
    """
    pack = constPack.spec
    expect(pack.ops == plan.ops, BAD_PARAM, f"{_M}/c05", f"constPack is of {pack.ops.name}, plan of {plan.ops.name}")
    operation = SEQUENCES[pack.ops](Attributes(pack))
    operation, needed = _with_workspace(handle, operation)
    plan.spec = PlanSpec.of(operation, pack)
    return needed


def _with_workspace(handle: Any, operation: Any) -> Any:
    """Return (the operation with the workspace that the backend needs, its bytes)."""
    if operation is None or "workSpace" not in operation.raw:
        return operation, 0
    needed = handle.backend.workspace_bytes(replace(operation, workspace_bytes=0))
    return replace(operation, workspace_bytes=needed), needed


@executing(invalid={"plan": "c02"})
def cudnnFusedOpsExecute(handle: Any, plan: Any, varPack: Any) -> Any:
    """Run a plan on the memory and the scalars of a variant parameter pack, which may change between calls.

    Errors: BAD_PARAM for a plan that was not made (c02), a pack of another sequence (c03), pointers that are not what
    the placeholders promise, a workspace that is missing or too small (the clauses of
    cudnnFusedOpsVariantParamLabel_t), an epsilon below CUDNN_BN_MIN_EPSILON, an accumulation count below 1.
    Source: 6.2.11, tables 31 to 35.
    """
    if varPack.ops is not plan.ops:
        text = f"varPack is of {varPack.ops.name}, plan of {plan.ops.name}"
        raise CudnnError(BAD_PARAM, f"{_E}/c03", text)
    values = varPack.values
    memory = _memory(handle, plan.pointers, values)
    if plan.operation is None:
        return None, ()
    memory["workSpace"] = varPack.get(WORKSPACE)
    key = (handle.backend, memory["workSpace"] is None, *[values[index] for index in plan.scalars])
    operation = plan.executed.get(key)
    if operation is None:
        if len(plan.executed) >= OPERATIONS_KEPT:
            plan.executed.clear()
        operation = plan.executed[key] = _prepared(handle, plan.operation, varPack)
    return operation, [memory.get(operation.parameter_of(name)) for name in operation.operands]


def _prepared(handle: Any, operation: Any, pack: Any) -> Any:
    """Return the operation of a plan with the scalars of a pack, after checking its workspace."""
    operation, _ = _with_workspace(handle, operation)
    operation = _with_scalars(operation, pack)
    if "workSpace" in operation.raw:
        _check_workspace(operation, pack)
    return operation


def _memory(handle: Any, pointers: Any, values: Any) -> Any:
    """Return the memory of each operand, after checking what its placeholder promises."""
    memory = {}
    for pointer in pointers:
        value, promise = values[pointer.index], pointer.promise
        if (value is None) is not (promise is NULL):
            given = "NULL" if value is None else "not NULL"
            text = f"{pointer.label.name} is {given}, its placeholder is {promise.name}"
            raise CudnnError(BAD_PARAM, pointer.null_clause, text)
        if value is not None:
            memory[pointer.operand] = value
            if promise is PACK:
                _check_alignment(handle, pointer, value)
    return memory


def _check_alignment(handle: Any, pointer: Any, value: Any) -> None:
    """Raise BAD_PARAM for a misaligned address if 16 bytes were promised. Values that are not memory are refused when
    they are used."""
    try:
        address = handle.backend.operand(value).address
    except Exception:  # A foreign object may raise anything.
        return
    expect(address % PACK_BYTES == 0, BAD_PARAM, pointer.aligned_clause,
           f"{pointer.label.name} is at {address:#x}, its placeholder is {pointer.promise.name}")  # fmt: skip


def _with_scalars(operation: Any, pack: Any) -> Any:
    """Return the operation with the scalars of the pack."""
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


def _check_workspace(operation: Any, pack: Any) -> None:
    """Raise BAD_PARAM if the workspace of the pack is too small or missing."""
    clauses = WORKSPACE_CLAUSES.get(pack.ops)
    missing, small = map(clause_of, clauses) if clauses else (INCORRECT_PARAMETER, INCORRECT_PARAMETER)
    needed, given = operation.workspace_bytes, pack.get(WORKSPACE_SIZE)
    expect(given >= needed, BAD_PARAM, small, f"{WORKSPACE_SIZE.name} is {given}, the plan needs {needed}")
    expect(pack.get(WORKSPACE) is not None or needed == 0, BAD_PARAM, missing,
           f"{WORKSPACE.name} is NULL, the plan needs {needed} bytes")  # fmt: skip
