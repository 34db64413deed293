"""Test the reference of tensor arithmetic against loops over elements in exact fractions."""

from __future__ import annotations

import math
import struct
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.enumerations import cudnnOpTensorOp_t as Op
from dualdnn.api.operations import AddTensor, OpTensor, OpTensorSpec, ScaleTensor, SetTensor, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT8x4
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.trial import prepare
from dualdnn.reference import judge, run
from looped import for_each

CODES = {FLOAT: "f", DOUBLE: "d", HALF: "e", INT8: "b", BFLOAT16: "H"}
SIZES = {FLOAT: 4, DOUBLE: 8, HALF: 2, INT8: 1, BFLOAT16: 2}
DIMS = (2, 3, 2, 4)
TABLE_7 = [
    (FLOAT, FLOAT), (INT8, FLOAT), (HALF, FLOAT), (BFLOAT16, FLOAT), (DOUBLE, DOUBLE), (FLOAT, HALF), (HALF, HALF),
    (INT8, INT8), (FLOAT, INT8), (FLOAT, BFLOAT16), (BFLOAT16, BFLOAT16),
]  # fmt: skip


def offset(spec: TensorSpec, index: tuple[int, ...]) -> int:
    """Return the byte offset of an element; a dimension of extent 1 is broadcast."""
    scalar = INT8 if spec.data_type == INT8x4 else spec.data_type
    place = [0 if extent == 1 else i for i, extent in zip(index, spec.dims, strict=True)]
    if spec.data_type == INT8x4:
        plane, lane = divmod(place[1], 4)
        place[1] = plane
        return 4 * sum(i * stride for i, stride in zip(place, spec.strides, strict=True)) + lane
    return SIZES[scalar] * sum(i * stride for i, stride in zip(place, spec.strides, strict=True))


def fetch(spec: TensorSpec, memory: Any, index: tuple[int, ...]) -> float:
    scalar = INT8 if spec.data_type == INT8x4 else spec.data_type
    (value,) = struct.unpack_from(CODES[scalar], memory.tobytes(), offset(spec, index))
    return struct.unpack("f", struct.pack("I", value << 16))[0] if scalar == BFLOAT16 else value


def rounded(value: Fraction, data_type: cudnnDataType_t) -> float:
    """Round an exact value to nearest, ties to even; the result must be finite."""
    if data_type in (INT8, INT8x4):
        return max(-128, min(127, round(value)))
    if value == 0:
        return 0.0
    digits, lowest = {FLOAT: (24, -149), DOUBLE: (53, -1074), HALF: (11, -24), BFLOAT16: (8, -133)}[data_type]
    exponent = math.floor(math.log2(abs(value)))
    while Fraction(2) ** exponent > abs(value):
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= abs(value):
        exponent += 1
    step = Fraction(2) ** max(exponent - digits + 1, lowest)
    return float(round(value / step) * step)


def root(value: Fraction) -> Fraction:
    with localcontext() as context:
        context.prec = 60
        return Fraction((Decimal(value.numerator) / Decimal(value.denominator)).sqrt())


FORMULAS = {
    Op.CUDNN_OP_TENSOR_ADD: lambda a, b: a + b,
    Op.CUDNN_OP_TENSOR_MUL: lambda a, b: a * b,
    Op.CUDNN_OP_TENSOR_MIN: lambda a, b: a if a < b else b,
    Op.CUDNN_OP_TENSOR_MAX: lambda a, b: a if a > b else b,
    Op.CUDNN_OP_TENSOR_SQRT: lambda a, b: root(a),
    Op.CUDNN_OP_TENSOR_NOT: lambda a, b: 1 - a,
}


def compare(operation: Any, expected: Any, inputs: str = "normal") -> None:
    """Run the reference, compare every output element with ``expected``, and the gaps with their prior bytes."""
    before = prepare(operation, inputs, 3)
    after = {name: memory.copy() for name, memory in before.items()}
    run(operation, after)
    (name,) = operation.outputs
    spec = operation.tensor(name)
    untouched = np.ones(spec.nbytes, bool)
    for index in product(*map(range, spec.dims)):
        want = rounded(expected(before, index), spec.data_type)
        assert fetch(spec, after[name], index) == want, (index, operation)
        start = offset(spec, index)
        untouched[start : start + (1 if spec.data_type == INT8x4 else SIZES[spec.data_type])] = False
    assert np.array_equal(before[name][untouched], after[name][untouched])


def blend(operation: Any, name: str, memory: Any, index: tuple[int, ...], result: Fraction) -> Fraction:
    if operation.beta == 0:
        return result
    return result + Fraction(operation.beta) * Fraction(fetch(operation.tensor(name), memory[name], index))


@for_each("beta", [0.0, -0.625])
@for_each("layout", ["nchw", "nhwc", "odd"])
@for_each("broadcast", [(), (0, 2, 3), (1,), (0, 1, 2, 3)])
@for_each("data_type", [FLOAT, DOUBLE, HALF, BFLOAT16, INT8])
def test_add_agrees_with_fractions(data_type, broadcast, layout, beta):
    dims = tuple(1 if d in broadcast else extent for d, extent in enumerate(DIMS))
    operation = AddTensor(-1.75, beta, laid_out(data_type, dims, "gaps"), laid_out(data_type, DIMS, layout))

    def expected(memory, index):
        return blend(operation, "C", memory, index, Fraction(-7, 4) * Fraction(fetch(operation.A, memory["A"], index)))

    compare(operation, expected)


def test_add_of_vectorised_channels():
    A, C = TensorSpec(INT8x4, (1, 8, 1, 3), (6, 3, 3, 1)), TensorSpec(INT8x4, (2, 8, 2, 3), (12, 6, 3, 1))
    operation = AddTensor(0.5, 0.75, A, C)

    def expected(memory, index):
        return blend(operation, "C", memory, index, Fraction(fetch(A, memory["A"], index)) / 2)

    compare(operation, expected)


@for_each("beta", [0.0, 0.375])
@for_each("source, destination", TABLE_7)
@for_each("op", list(Op))
def test_op_tensor(op, source, destination, beta):
    compute_type = DOUBLE if source == DOUBLE else FLOAT
    A, B = laid_out(source, DIMS, "nhwc"), laid_out(source, (1, 3, 1, 4), "gaps")
    spec = OpTensorSpec(op, compute_type, Nan.CUDNN_NOT_PROPAGATE_NAN)
    operation = OpTensor(spec, 1.5, -0.75, beta, A, B, laid_out(destination, DIMS, "odd"))
    inputs = "normal"
    if op == Op.CUDNN_OP_TENSOR_SQRT:
        if source == INT8:
            return  # Negative integers have no root; test_roots_of_integers tests the others.
        inputs = "positive"

    def expected(memory, index):
        a, b = Fraction(fetch(A, memory["A"], index)), Fraction(fetch(B, memory["B"], index))
        return blend(operation, "C", memory, index, FORMULAS[op](Fraction(3, 2) * a, Fraction(-3, 4) * b))

    compare(operation, expected, inputs)


def test_roots_of_integers():
    A, C = TensorSpec.packed(INT8, (1, 1, 1, 128)), TensorSpec.packed(INT8, (1, 1, 1, 128))
    operation = OpTensor(OpTensorSpec(Op.CUDNN_OP_TENSOR_SQRT, FLOAT, Nan.CUDNN_PROPAGATE_NAN), 1.0, 0.0, 0.0, A, A, C)
    memory = {"A": np.arange(128, dtype=np.uint8), "B": np.zeros(128, np.uint8), "C": np.zeros(128, np.uint8)}
    run(operation, memory)
    for number, got in enumerate(memory["C"].tolist()):
        assert (2 * got - 1) ** 2 <= 4 * number <= (2 * got + 1) ** 2 or number == got == 0


# (A, B, minimum, maximum, either one where NaN propagates)
SPECIAL = [
    (math.nan, 1.0, 1.0, 1.0, math.nan), (1.0, math.nan, 1.0, 1.0, math.nan),
    (math.nan, math.nan, math.nan, math.nan, math.nan), (-math.inf, 2.0, -math.inf, 2.0, None),
    (math.nan, math.inf, math.inf, math.inf, math.nan), (-math.inf, math.nan, -math.inf, -math.inf, math.nan),
]  # fmt: skip


@pytest.mark.parametrize("a, b, least, greatest, propagated", SPECIAL)
def test_extrema_of_nan(a, b, least, greatest, propagated):
    spec = TensorSpec.packed(FLOAT, (1, 1, 1, 1))
    for op, chosen in ((Op.CUDNN_OP_TENSOR_MIN, least), (Op.CUDNN_OP_TENSOR_MAX, greatest)):
        for nan in Nan:
            operation = OpTensor(OpTensorSpec(op, FLOAT, nan), 1.0, 1.0, 0.0, spec, spec, spec)
            memory = {
                name: np.array([value], np.float32).view(np.uint8) for name, value in zip("ABC", (a, b, 7), strict=True)
            }
            run(operation, memory)
            propagates = nan == Nan.CUDNN_PROPAGATE_NAN and propagated is not None
            want = propagated if propagates else chosen
            np.testing.assert_equal(float(memory["C"].view(np.float32)[0]), want)


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "odd"])
@pytest.mark.parametrize("data_type", [FLOAT, DOUBLE, HALF, BFLOAT16, INT8], ids=lambda t: t.name)
def test_scale_and_set(data_type, layout):
    y = laid_out(data_type, DIMS, layout)
    compare(ScaleTensor(0.625, y), lambda memory, index: Fraction(5, 8) * Fraction(fetch(y, memory["y"], index)))
    value = 5.0 if data_type == INT8 else 1 / 3
    compare(SetTensor(value, y), lambda memory, index: Fraction(value))


def in_float32(operation: OpTensor, a: Any, b: Any) -> Any:
    """Return the formula with every step rounded to float32."""
    a, b = np.float32(operation.alpha1) * a, np.float32(operation.alpha2) * b
    return {
        Op.CUDNN_OP_TENSOR_ADD: a + b,
        Op.CUDNN_OP_TENSOR_MUL: a * b,
        Op.CUDNN_OP_TENSOR_MIN: np.minimum(a, b),
        Op.CUDNN_OP_TENSOR_MAX: np.maximum(a, b),
        Op.CUDNN_OP_TENSOR_SQRT: np.sqrt(a),
        Op.CUDNN_OP_TENSOR_NOT: np.float32(1) - a,
    }[operation.op_tensor.op]


@pytest.mark.parametrize("scale", [1.0, 2.0**-120, 2.0**-140, 2.0**63], ids=str)
@pytest.mark.parametrize("op", list(Op), ids=lambda o: o.name)
def test_bound_holds_for_float32_and_catches_wrong_elements(op, scale):
    """Float arithmetic is within the bound, also where it underflows; results that are 16 units off are not."""
    spec = TensorSpec.packed(FLOAT, (1, 1, 1, 4000))
    operation = OpTensor(OpTensorSpec(op, FLOAT, Nan.CUDNN_PROPAGATE_NAN), 0.3, 1.7, 0.0, spec, spec, spec)
    random = np.random.default_rng(5)
    other = scale if op != Op.CUDNN_OP_TENSOR_MUL else 2.0**120 if scale < 1 else 1.0  # B shows underflow of A.
    a, b = (random.uniform(0.5, 2, 4000).astype(np.float32) * np.float32(factor) for factor in (scale, other))
    with np.errstate(all="ignore"):
        result = in_float32(operation, a, b).astype(np.float32)
        before = {"A": a.view(np.uint8), "B": b.view(np.uint8), "C": np.zeros(16000, np.uint8)}
        verdict = judge(operation, before, {**before, "C": result.view(np.uint8)})
    assert verdict.agrees, verdict.worst
    if scale == 1.0:
        assert verdict.error_ratio > 0.2  # The bound is not too wide.
        moved = (result.view(np.int32) + 16).view(np.uint8)
        assert judge(operation, before, {**before, "C": moved}).wrong > 3900
