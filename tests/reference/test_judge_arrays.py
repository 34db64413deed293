"""Test that ``dualdnn.judge`` judges arrays of any origin as the suite does."""

from __future__ import annotations

import runpy
from pathlib import Path

import dualdnn
import ml_dtypes
import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnReduceTensorOp_t
from dualdnn.api.operations import AddTensor, ScaleTensor, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, FLOAT
from dualdnn.conformance.cases.reduce_tensor import reduction

DIMS = (2, 3, 4, 5)
PLAIN = TensorSpec.packed(FLOAT, DIMS)
SUM = AddTensor(1.5, 0.5, TensorSpec.packed(FLOAT, (1, 3, 1, 1)), PLAIN)
EXAMPLE = Path(__file__).parents[2] / "examples/judging/softmax_kernel.py"


def numbers(dims, dtype=np.float32):
    return np.random.default_rng(1).standard_normal(dims).astype(dtype)


def test_an_output_that_is_read_stands_in_both():
    a, c = numbers((1, 3, 1, 1)), numbers(DIMS)
    result = np.float32(1.5) * a + np.float32(0.5) * c
    assert dualdnn.judge(SUM, {"A": a, "C": c}, {"C": result}).agrees
    assert dualdnn.judge(repr(SUM), {"A": a, "C": c}, {"C": result}).agrees
    result[1, 2, 3, 4] *= np.float32(1.0001)
    verdict = dualdnn.judge(SUM, {"A": a, "C": c}, {"C": result})
    assert verdict.wrong == 1 and "C[1, 2, 3, 4]" in verdict.explanation()


def test_strides_are_the_specification_s_and_arrays_have_any():
    spec = TensorSpec(BFLOAT16, DIMS, (100, 1, 24, 4))
    y = numbers(DIMS[::-1], ml_dtypes.bfloat16).transpose()
    doubled = (y.astype(np.float32) * 2).astype(ml_dtypes.bfloat16)
    assert dualdnn.judge(ScaleTensor(2.0, spec), {"y": y}, {"y": doubled}).agrees
    assert not dualdnn.judge(ScaleTensor(2.0, spec), {"y": y}, {"y": y}).agrees


def test_positions_of_extrema_are_bytes_or_integers():
    operation = reduction(
        cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_MAX,
        A=TensorSpec.packed(FLOAT, (1, 1, 2, 3)),
        C=TensorSpec.packed(FLOAT, (1, 1, 1, 1)),
        indices=True,
    )
    values = np.array([[[[1, 5, 2], [4, 0, 5]]]], np.float32)
    outputs = {"C": np.full(operation.C.dims, 5, np.float32), "indices": np.array([1], np.uint32)}
    assert dualdnn.judge(operation, {"A": values}, outputs).agrees
    outputs["indices"][0] = 5
    assert not dualdnn.judge(operation, {"A": values}, outputs).agrees


@pytest.mark.parametrize("inputs, outputs, message", [
    ({"A": numbers((1, 3, 1, 1))}, {"C": numbers(DIMS)}, "inputs lacks C of AddTensor"),
    ({"A": numbers((1, 3, 1, 1)), "C": numbers(DIMS)}, {}, "outputs lacks C"),
    ({"A": numbers((1, 3, 1, 1)), "C": numbers(DIMS), "B": 1}, {"C": numbers(DIMS)}, "inputs has B; AddTensor has A, C"),
    ({"A": numbers((3,)), "C": numbers(DIMS)}, {"C": numbers(DIMS)}, r"A has shape \(3,\), \(1, 3, 1, 1\) is due"),
    ({"A": numbers((1, 3, 1, 1)), "C": numbers(DIMS)}, {"C": numbers(DIMS, np.float64)}, "C has type float64, float32 is due"),
])  # fmt: skip
def test_a_wrong_operand_is_named(inputs, outputs, message):
    with pytest.raises(ValueError, match=message):
        dualdnn.judge(SUM, inputs, outputs)


def test_an_invalid_operation_is_refused():
    with pytest.raises(ValueError, match="expected an operation"):
        dualdnn.judge("5", {}, {})
    with pytest.raises(AttributeError, match="nothing"):
        dualdnn.nothing  # noqa: B018


def test_the_example_tells_faults_that_a_tolerance_passes(capsys):
    agrees = runpy.run_path(str(EXAMPLE))["main"]()
    assert agrees.pop("right") and len(agrees) == 3 and not any(agrees.values())
    assert capsys.readouterr().out.count("within 1e-2 True") == 4
