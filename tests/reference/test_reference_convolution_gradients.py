"""Test the reference of the bias gradient against plain loops over exact fractions, and as an adjoint."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from dualdnn.api.operations import ConvolutionBackwardBias, TensorSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.reference import evaluate

TYPES = {FLOAT: np.float32, DOUBLE: np.float64, HALF: np.float16}


def evaluated(data_type, values):
    dims = values.shape
    db = TensorSpec.packed(data_type, (1, dims[1], *(1 for _ in dims[2:])))
    operation = ConvolutionBackwardBias(1.0, 0.0, TensorSpec.packed(data_type, dims), db)
    found = evaluate(operation, {"dy": values})
    return found["db"] if isinstance(found, dict) else found


@pytest.mark.parametrize("data_type", TYPES)
@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (2, 3, 4, 5), (3, 2, 1, 7), (2, 3, 2, 3, 2)], ids=str)
def test_sums_of_each_channel(data_type, dims):
    values = np.random.default_rng(0).normal(size=dims).astype(TYPES[data_type])
    sums = [Fraction(0)] * dims[1]
    for index in product(*map(range, dims)):
        sums[index[1]] += Fraction(float(values[index]))
    value = np.asarray(evaluated(data_type, values).value)
    assert value.shape == (1, dims[1], *(1 for _ in dims[2:]))
    np.testing.assert_allclose(value.ravel(), [float(s) for s in sums], rtol=1e-14, atol=1e-14)


def test_the_bias_gradient_is_the_adjoint_of_adding_a_bias():
    """The inner product <broadcast(b), dy> equals <b, db>, exactly for integers."""
    generator = np.random.default_rng(1)
    dy = generator.integers(-9, 10, (3, 4, 5, 2)).astype(np.float32)
    b = generator.integers(-9, 10, (1, 4, 1, 1)).astype(np.float32)
    db = np.asarray(evaluated(FLOAT, dy).value)
    assert float((np.broadcast_to(b, dy.shape) * dy).sum()) == float((b * db).sum())
