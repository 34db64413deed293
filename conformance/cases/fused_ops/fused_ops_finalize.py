"""Holds cases of BN_FINALIZE_STATISTICS_TRAINING and _INFERENCE: a scale and a bias from statistics of batch normalisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnFusedOpsPointerPlaceHolder_t
from dualdnn.api.operations import BnFinalizeStatisticsInference, BnFinalizeStatisticsTraining, TensorSpec
from dualdnn.api.operations.specs import FLOAT
from dualdnn.api.status import BAD_PARAM, INCORRECT_PARAMETER
from dualdnn.api.support.fused_ops import OPERANDS, promise_of
from dualdnn.conformance.calls.fused_ops import const_pack, plan, variant_pack
from dualdnn.conformance.cases.fused_ops.fused_ops_packs import CONST_LABELS, PER_ACTIVATION, VARIANT_LABELS, clauses_of
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import prepare

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

TRAINING = "CUDNN_FUSED_BN_FINALIZE_STATISTICS_TRAINING"
INFERENCE = "CUDNN_FUSED_BN_FINALIZE_STATISTICS_INFERENCE"
NOPS = r"becomes a NOP|may be NULL"
INPUTS = {"ySqSum": "positive", "ySum": "ties", "runningVar": "positive"}


NULL, ELEMENT, PACK = cudnnFusedOpsPointerPlaceHolder_t


def vector(channels: int = 37) -> Any:
    """Return one number for each channel."""
    return TensorSpec.packed(FLOAT, (1, channels, 1, 1))


def training(count: int = 50, without: Any = ()) -> Any:
    """Return the finalising of sums of ``count`` elements; without some operands."""
    return replace(BnFinalizeStatisticsTraining(count, 0.3, 1e-3, *(vector(),) * 10), **dict.fromkeys(without))


def inference(without: Any = ()) -> Any:
    """Return the finalising of running statistics; without some operands."""
    return replace(BnFinalizeStatisticsInference(1e-3, *(vector(),) * 6), **dict.fromkeys(without))


def kinds(operation: Any, **others: Any) -> Any:
    return {**dict.fromkeys(operation.operands, "normal"), **INPUTS, **others}


@shows(*clauses_of(CONST_LABELS, f"^{TRAINING}.*({NOPS})"))
def test_nothing_is_wanted(trial: Callable[..., Trial], caller: Caller, refuses: Callable[..., bool]) -> None:
    """Sums are not read without outputs."""
    operation = training(
        without=("savedMean", "savedInvStd", "runningMean", "runningVar", "eqScale", "eqBias", "scale", "bias")
    )
    memory = {
        "ySum": caller.handle.to_device(np.zeros(37, np.float32)),
        "ySqSum": caller.handle.to_device(np.zeros(37, np.float32)),
    }
    caller(operation, memory)


@pytest.mark.ours  # NVIDIA's library takes its process down here.
@shows(*clauses_of(CONST_LABELS, f"^{INFERENCE}.*({NOPS})"))
def test_nothing_is_wanted_of_inference(caller: Caller) -> None:
    """Nothing is read without outputs, not even invalid statistics."""
    operation = inference(without=("eqScale", "eqBias"))
    memory = {name: caller.handle.to_device(np.full(37, -9, np.float32)) for name in operation.operands}
    caller(operation, memory)
    for buffer in memory.values():
        assert np.array_equal(buffer.to_host(np.float32, 37), np.full(37, -9, np.float32))


def test_a_variance_is_not_negative(trial: Callable[..., Trial]) -> None:
    """The variance is 0 where rounded sums have a mean square below the square of their mean."""
    operation = training(count=8)
    sums, squares = np.full(37, 8, np.float32), np.full(37, 4, np.float32)
    after = trial(
        operation, kinds(operation), before={"ySum": sums.view(np.uint8), "ySqSum": squares.view(np.uint8)}
    ).after
    assert np.allclose(after["savedInvStd"].view(np.float32), 1e-3**-0.5, rtol=1e-6)


@shows(*clauses_of(VARIANT_LABELS, f"^{TRAINING}: (on a single GPU|with several GPUs)"))
def test_statistics_of_two_parts(trial: Callable[..., Trial]) -> None:
    """The count is the number of summed elements: sums of two parts, added, give the result of all elements."""
    y = np.random.default_rng(5).standard_normal((6, 37, 3, 4)) + 2
    parts = (y[:2], y[2:])
    sums = np.float32(sum(part.sum((0, 2, 3)) for part in parts))
    squares = np.float32(sum((part**2).sum((0, 2, 3)) for part in parts))
    operation = training(count=sum(part.size // 37 for part in parts))
    after = trial(
        operation, kinds(operation), before={"ySum": sums.view(np.uint8), "ySqSum": squares.view(np.uint8)}
    ).after
    assert np.allclose(after["savedMean"].view(np.float32), y.mean((0, 2, 3)), rtol=1e-4)
    assert np.allclose(after["savedInvStd"].view(np.float32), (y.var((0, 2, 3)) + 1e-3) ** -0.5, rtol=1e-3)


@shows(f"{VARIANT_LABELS}/c001")
def test_pointers_and_scalars_change(subject: Subject, caller: Caller) -> None:
    """One plan serves other memory and other counts repeatedly. The pack that made it may be destroyed."""
    operation = training()
    cudnn, packs, made_plan = caller.cudnn, const_pack(caller, operation), caller.cudnn.cudnnCreateFusedOpsPlan(2)
    assert cudnn.cudnnMakeFusedOpsPlan(caller.handle, made_plan, packs) == 0
    cudnn.cudnnSetFusedOpsConstParamPackAttribute(packs, 2, PER_ACTIVATION)
    cudnn.cudnnDestroyFusedOpsConstParamPack(packs)
    for seed, count in enumerate((9, 4, 9)):
        changed = replace(operation, count=count)
        before = prepare(changed, kinds(changed), seed)
        buffers = {name: caller.handle.to_device(content) for name, content in before.items()}
        variants = variant_pack(caller, changed, buffers)
        cudnn.cudnnFusedOpsExecute(caller.handle, made_plan, variants)
        mean = buffers["savedMean"].to_host(np.float32, 37)
        assert np.array_equal(mean, before["ySum"].view(np.float32) / np.float32(count))
    cudnn.cudnnDestroyFusedOpsPlan(made_plan)


@shows("cudnnMakeFusedOpsPlan/c03-c05", "cudnnFusedOpsExecute/c02 c03")
def test_objects_that_do_not_fit(subject: Subject, caller: Caller, refuses: Callable[..., bool]) -> None:
    """NULL, packs of other sequences, and a plan that was not made are refused; a refused call leaves an earlier
    plan as it was."""
    cudnn, handle, operation = caller.cudnn, caller.handle, training()
    make, execute = cudnn.cudnnMakeFusedOpsPlan, cudnn.cudnnFusedOpsExecute
    before = prepare(operation, kinds(operation), 0)
    buffers = {name: handle.to_device(content) for name, content in before.items()}
    constants, variants = const_pack(caller, operation), variant_pack(caller, operation, buffers)
    unmade, ready = cudnn.cudnnCreateFusedOpsPlan(2), plan(caller, operation)
    other = cudnn.cudnnCreateFusedOpsVariantParamPack(3)
    unchanged = tuple(buffers.values())
    refuses(BAD_PARAM, "cudnnMakeFusedOpsPlan/c04", make, None, unmade, constants)
    refuses(BAD_PARAM, "cudnnMakeFusedOpsPlan/c04", make, handle, None, constants)
    refuses(BAD_PARAM, "cudnnMakeFusedOpsPlan/c04", make, handle, unmade, None)
    refuses(BAD_PARAM, "cudnnMakeFusedOpsPlan/c05", make, handle, ready, const_pack(caller, inference()))
    refuses(BAD_PARAM, "cudnnFusedOpsExecute/c02", execute, handle, unmade, variants, unchanged=unchanged)
    refuses(BAD_PARAM, "cudnnFusedOpsExecute/c02", execute, handle, None, variants, unchanged=unchanged)
    refuses(BAD_PARAM, INCORRECT_PARAMETER, execute, handle, ready, None, unchanged=unchanged)
    refuses(BAD_PARAM, "cudnnFusedOpsExecute/c03", execute, handle, ready, other, unchanged=unchanged)
    execute(handle, ready, variants)
    assert not np.array_equal(buffers["savedMean"].to_host(np.uint8, 148), before["savedMean"])


def executed(
    caller: Caller, operation: Any, buffers: Any, offsets: Any = None, scalars: Any = None, **attributes: Any
) -> None:
    """Make a plan with these attributes and run it with operands ``offsets`` bytes into their buffers and other scalars."""
    ready = plan(caller, operation, **attributes)
    operands = {}
    for name, buffer in buffers.items():
        offset = (offsets or {}).get(name, 0)
        operands[name] = None if buffer is None else buffer.slice(offset, operation.nbytes(name))
    caller.cudnn.cudnnFusedOpsExecute(
        caller.handle, ready, variant_pack(caller, replace(operation, **(scalars or {})), operands)
    )


# operand -> the placeholder that promises its pointer
PROMISES = {
    name: placeholder.name.removeprefix("CUDNN_PARAM_")
    for pointer, name in OPERANDS.items()
    if (placeholder := promise_of(pointer)) is not None
}
PROMISED = {training: ("c076", "c077", "c078"), inference: ("c098", "c099", "c100")}


@shows(*clauses_of(VARIANT_LABELS, f"^({TRAINING}|{INFERENCE}): (where a|.*must agree)"),
       *clauses_of(CONST_LABELS, f"^({TRAINING}|{INFERENCE}): .*(which alignment|takes (a pointer to )?an initialised)"))  # fmt: skip
@pytest.mark.parametrize("make", PROMISED, ids=["training-clauses0", "inference-clauses1"])
def test_promises(subject: Subject, caller: Caller, refuses: Callable[..., bool], make: Any) -> None:
    """Memory that breaks its placeholder's promise is refused: missing, not NULL, or not aligned. Nothing is
    written."""
    if not subject.survives_stray_pointers:
        pytest.skip("a fault on a GPU ends the process's work there")
    operation = make()
    memory = {
        name: np.append(content, np.zeros(16, np.uint8))
        for name, content in prepare(operation, kinds(operation), 0).items()
    }
    buffers = {name: caller.handle.to_device(content) for name, content in memory.items()}
    null, element, pack = (f"{VARIANT_LABELS}/{clause}" for clause in PROMISED[make])
    call, unchanged = (executed, caller, operation), tuple(buffers.values())
    promised = {name: PROMISES[name] for name in PROMISES if name in operation.operands}
    for name, placeholder in promised.items():
        for promise, clause in ((ELEMENT, element), (PACK, pack)):
            refuses(BAD_PARAM, clause, *call, {**buffers, name: None}, unchanged=unchanged, **{placeholder: promise})
        refuses(BAD_PARAM, pack, *call, buffers, {name: 4}, unchanged=unchanged, **{placeholder: PACK})
        refuses(
            BAD_PARAM, "cudnnStatus_t/c05", *call, buffers, {name: 1}, unchanged=unchanged, **{placeholder: ELEMENT}
        )
        if name in ("savedMean", "runningVar", "eqBias") and (make is training or name == "eqBias"):
            refuses(BAD_PARAM, null, *call, buffers, unchanged=unchanged, **{placeholder: NULL})
    executed(caller, operation, buffers, dict.fromkeys(promised, 16), **dict.fromkeys(promised.values(), PACK))


@shows(f"{VARIANT_LABELS}/c070", f"{VARIANT_LABELS}/c092", f"{VARIANT_LABELS}/c063")
def test_scalars_that_are_wrong(caller: Caller, refuses: Callable[..., bool]) -> None:
    """A negative epsilon and a count below 1 (also the preset of 0) are refused. An epsilon of 0 is allowed."""
    for operation, name, clause, wrong in (
        (training(), "epsilon", "c070", (-1e-9, -np.inf, np.nan)),
        (inference(), "epsilon", "c092", (-1e-9, -np.inf, np.nan)),
        (training(), "count", "c063", (0, -1)),
    ):
        before = prepare(operation, kinds(operation), 0)
        buffers = {operand: caller.handle.to_device(content) for operand, content in before.items()}
        call, unchanged = (executed, caller, operation, buffers), tuple(buffers.values())
        for value in wrong:
            refuses(BAD_PARAM, f"{VARIANT_LABELS}/{clause}", *call, scalars={name: value}, unchanged=unchanged)
        executed(caller, operation, buffers, scalars=dict(epsilon=0.0))
