"""Test the contract between calls and backends by toy operations.

These have optional operands, operands that are read and written, factors per output, memory that a later call reads,
and descriptors in arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnStatus_t
from dualdnn.api.functions import _Computing, _Documented
from dualdnn.api.operations import Operation, TensorSpec, parse
from dualdnn.api.operations.records import record
from dualdnn.api.operations.specs import FLOAT
from dualdnn.api.status import CudnnError
from dualdnn.conformance.trial import Step, attempt_chain
from dualdnn.reference.engine import Exact, implements, run

VECTOR = TensorSpec.packed(FLOAT, (1, 6, 1, 1))
ROUNDING = 4


@record
class ToyForward(Operation):
    """Compute y = alpha * |x| * scale + beta * y; running += factor * mean of x; keep the signs of x as bytes."""

    alpha: float
    beta: float
    factor: float
    reserve_bytes: int
    x: TensorSpec
    scale: TensorSpec | None
    running: TensorSpec
    y: TensorSpec

    inputs = ("x", "scale", "running")
    outputs = ("y", "running", "reserve")
    optional = ("scale",)
    raw = {"reserve": "reserve_bytes"}  # noqa: RUF012 (a class constant)
    blends = {"running": None}  # noqa: RUF012


@record
class ToyBackward(Operation):
    """Compute dx = alphaData * dy * sign + betaData * dx; dscale = alphaParam * sum of dy + betaParam * dscale."""

    alphaData: float
    betaData: float
    alphaParam: float
    betaParam: float
    reserve_bytes: int
    dy: TensorSpec
    dx: TensorSpec
    dscale: TensorSpec

    inputs = ("dy", "reserve")
    outputs = ("dx", "dscale")
    raw = {"reserve": "reserve_bytes"}  # noqa: RUF012
    blends = {"dx": ("alphaData", "betaData"), "dscale": ("alphaParam", "betaParam")}  # noqa: RUF012


@implements(ToyForward)
def toy_forward(o: ToyForward, x: Any, scale: Any, running: Any) -> dict[str, Exact]:
    value = np.abs(x) * (1 if scale is None else scale)
    mean = running + o.factor * x.mean()
    return {
        "y": Exact(value, np.abs(value), ROUNDING),
        "running": Exact(mean, np.abs(running) + abs(o.factor) * np.abs(x).mean(), 10),
        "reserve": Exact.kept(np.signbit(x).reshape(-1).astype(np.uint8)),
    }


@implements(ToyBackward)
def toy_backward(o: ToyBackward, dy: Any, reserve: Any) -> dict[str, Exact]:
    sign = np.where(reserve.reshape(dy.shape) != 0, -1.0, 1.0)
    return {
        "dx": Exact(dy * sign, np.abs(dy), ROUNDING),
        "dscale": Exact(
            dy.sum(keepdims=True).reshape(1, 1, 1, 1), np.abs(dy).sum(keepdims=True).reshape(1, 1, 1, 1), 8
        ),
    }


def forward(scale: TensorSpec | None = VECTOR, **others: Any) -> ToyForward:
    return ToyForward(**{"alpha": 2.0, "beta": 0.5, "factor": 0.25, "reserve_bytes": 6, "x": VECTOR, "scale": scale,
                         "running": TensorSpec.packed(FLOAT, (1, 1, 1, 1)), "y": VECTOR, **others})  # fmt: skip


def backward() -> ToyBackward:
    return ToyBackward(2.0, 0.0, 1.0, -3.0, 6, VECTOR, VECTOR, TensorSpec.packed(FLOAT, (1, 1, 1, 1)))


class HostMemory:
    """Stand in for a buffer of the handle."""

    def __init__(self, bytes_: Any) -> None:
        self.bytes = bytes_.copy()

    def slice(self, offset: int, nbytes: int) -> Any:
        return self.bytes[offset : offset + nbytes]

    def to_host(self, _dtype: Any, _size: int) -> Any:
        return self.bytes.copy()

    def free(self) -> None:
        """Free nothing."""


class Backend:
    """Compute as the reference does, but invert every byte of the reserve space. ``fault`` spoils calls."""

    def __init__(self, fault: Any = None) -> None:
        self.handle, self.fault = self, fault

    def to_device(self, array: Any) -> HostMemory:
        return HostMemory(array)

    def __call__(self, operation: Operation, operands: dict[str, Any]) -> None:
        if isinstance(operation, ToyBackward):
            run(operation, {**operands, "reserve": 255 - operands["reserve"]})
        else:
            run(operation, operands)
            operands["reserve"][:] = 255 - operands["reserve"]
        if self.fault:
            self.fault(operation, operands)


def result_of(fault: Any = None) -> Any:
    return attempt_chain(Backend(fault), [Step(forward()), Step(backward())])  # type: ignore[arg-type]


def test_a_reserve_space_of_any_form_is_judged_through_the_call_that_reads_it():
    found = result_of()
    assert found.passed and isinstance(found.operation, ToyBackward), found.explanation()
    assert [type(one.operation) for one in found.whole] == [ToyForward, ToyBackward]
    assert all(one.verdict.checked for one in found.whole)

    def forget(operation: Operation, operands: dict[str, Any]) -> None:
        if isinstance(operation, ToyForward):
            operands["reserve"][2] ^= 1

    found = result_of(forget)
    assert not found.passed and "dx[0, 2" in found.explanation()


def test_memory_that_is_only_read_must_not_change():
    def spoil(operation: Operation, operands: dict[str, Any]) -> None:
        if isinstance(operation, ToyBackward):
            operands["reserve"][0] ^= 1

    assert "reserve: 1 bytes of memory that is only read changed" in result_of(spoil).explanation()


def test_operands_read_and_written_are_judged_from_their_old_values():
    def double(operation: Operation, operands: dict[str, Any]) -> None:
        if isinstance(operation, ToyForward):
            operands["running"].view(np.float32)[:] *= 2

    found = attempt_chain(Backend(double), [Step(forward())])  # type: ignore[arg-type]
    assert "running[0, 0, 0, 0]" in found.explanation()


def test_factors_belong_to_outputs():
    o, b = forward(), backward()
    assert (o.blend_of("y"), o.blend_of("running")) == ((2.0, 0.5), (1.0, 0.0))
    assert (b.blend_of("dx"), b.blend_of("dscale")) == ((2.0, 0.0), (1.0, -3.0))
    assert o.reads == ("x", "scale", "running", "y") and b.reads == ("dy", "dscale", "reserve")


def test_a_null_optional_operand_is_left_out():
    without = forward(scale=None)
    assert "scale" not in without.operands and parse(str(without)) == without != forward()
    assert attempt_chain(Backend(), [Step(without)]).passed  # type: ignore[arg-type]


def test_descriptors_in_arrays_and_null_operands_are_parts_of_the_key():
    from dualdnn.api import cudnn

    def cudnnRNNForwardInference(
        handle, rnnDesc, seqLength, xDesc, x, hxDesc, hx, cxDesc, cx, wDesc, w, yDesc, y, hyDesc, hy, cyDesc, cy,
        workspace, workspaceSizeInBytes,
    ):  # fmt: skip
        raise AssertionError

    checks = _Documented(cudnnRNNForwardInference, {}, optional=("hx",))
    xs = checks.parameters[3]
    made = [cudnn.cudnnCreateTensorDescriptor() for _ in range(2)]
    for descriptor in made:
        cudnn.cudnnSetTensorNdDescriptor(descriptor, FLOAT, 3, (2, 3, 1), (3, 1, 1))
    _, check, _ = checks.checks[3]
    assert check(xs, made) == tuple(made)
    for wrong in (made[0], [made[0], None], "ab", 3):
        with pytest.raises(CudnnError) as refused:
            check(xs, wrong)
        assert refused.value.status == cudnnStatus_t.CUDNN_STATUS_BAD_PARAM and "xDesc" in str(refused.value)
    computing = _Computing(checks, cudnnRNNForwardInference, (), "c01", {})
    assert checks.parameters.index(xs) in computing.described
    with cudnn.cudnnCreate(backend="reference") as handle:
        given = dict.fromkeys(p.name for p in checks.parameters) | {"handle": handle, "seqLength": 2, "xDesc": made}
        keys = [computing.key(*{**given, **other}.values()) for other in ({}, {"xDesc": made[:1]}, {"hx": 256})]
        assert len({*keys}) == 3 and computing.key(*{**given, "xDesc": made[::-1]}.values()) == keys[0]
    assert checks.checks[6][2] is None and checks.checks[4][2] is not None
