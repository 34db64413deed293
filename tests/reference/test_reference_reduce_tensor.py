"""Test the reference of reductions against loops over exact fractions, and its bounds against float arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnIndicesType_t, cudnnNanPropagation_t, cudnnReduceTensorIndices_t
from dualdnn.api.enumerations import cudnnReduceTensorOp_t as Op
from dualdnn.api.operations import ReduceTensor, ReduceTensorSpec, TensorSpec
from dualdnn.api.operations.reduce_tensor import INDEXED, required_indices
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT8
from dualdnn.reference import evaluate
from dualdnn.reference.engine import magnitude_of, roundings_of

OPERATIONS = list(Op)
IGNORE, PROPAGATE = cudnnNanPropagation_t
TYPES = {FLOAT: np.float32, DOUBLE: np.float64, HALF: np.float16, INT8: np.int8}


def operation_of(op, data_type, dims, to, nan=PROPAGATE):
    A, C = TensorSpec.packed(data_type, dims), TensorSpec.packed(DOUBLE if data_type == DOUBLE else FLOAT, to)
    spec = ReduceTensorSpec(op, DOUBLE if data_type == DOUBLE else FLOAT, nan,
                            cudnnReduceTensorIndices_t(int(op in INDEXED)), cudnnIndicesType_t(0))  # fmt: skip
    return ReduceTensor(spec, required_indices(spec, C), 0, 1.0, 0.0, A, C)


def reductions(values, to):
    """Yield, for each element of C in row-major order, the elements of A that it reduces."""
    for place in product(*(range(extent) for extent in to)):
        ranges = [
            range(extent) if size == 1 else [at] for extent, size, at in zip(values.shape, to, place, strict=True)
        ]
        yield [float(values[index]) for index in product(*ranges)]


def exact(op, elements):
    """Return the reduction of finite elements as a fraction; a square root is rounded to double."""
    fractions = [Fraction(element) for element in elements]
    match op:
        case Op.CUDNN_REDUCE_TENSOR_ADD:
            return sum(fractions)
        case Op.CUDNN_REDUCE_TENSOR_AVG:
            return sum(fractions) / len(fractions)
        case Op.CUDNN_REDUCE_TENSOR_NORM1:
            return sum(abs(x) for x in fractions)
        case Op.CUDNN_REDUCE_TENSOR_NORM2:
            return Fraction(math.sqrt(sum(x * x for x in fractions)))
        case Op.CUDNN_REDUCE_TENSOR_MUL:
            return math.prod(fractions)
        case Op.CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS:
            return math.prod(x for x in fractions if x != 0)
        case Op.CUDNN_REDUCE_TENSOR_AMAX:
            return max(abs(x) for x in fractions)
        case Op.CUDNN_REDUCE_TENSOR_MIN:
            return min(fractions)
        case Op.CUDNN_REDUCE_TENSOR_MAX:
            return max(fractions)


def first_extremum(op, elements, nan):
    """Return (extremum, its first position) by sequential comparison."""
    best, position = None, 0
    for i, element in enumerate(elements):
        if math.isnan(element):
            if nan == PROPAGATE:
                return math.nan, i
            continue
        better = best is None or (element < best if op == Op.CUDNN_REDUCE_TENSOR_MIN else element > best)
        if better:
            best, position = element, i
    if best is None:
        return (math.inf if op == Op.CUDNN_REDUCE_TENSOR_MIN else -math.inf), 0
    return best, position


def evaluated(operation, values):
    return evaluate(operation, {"A": np.frombuffer(values.tobytes(), np.uint8)})


SHAPES = [((2, 3, 4), (2, 1, 4)), ((3, 4, 2, 5), (1, 4, 1, 1)), ((3, 4, 2, 5), (3, 1, 2, 1)), ((2, 2, 3, 2, 3), (1, 1, 1, 1, 1)),
          ((2, 2, 3, 2, 3), (2, 1, 1, 2, 3))]  # fmt: skip


@pytest.mark.parametrize("data_type", TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("op", OPERATIONS, ids=lambda o: o.name)
def test_values_agree_with_exact_reductions(op, data_type):
    random = np.random.default_rng(1)
    for dims, to in SHAPES:
        values = (random.standard_normal(dims) * 3).astype(TYPES[data_type])
        found = evaluated(operation_of(op, data_type, dims, to), values)["C"]
        assert found.value.shape == to
        wanted = [float(exact(op, elements)) for elements in reductions(values, to)]
        np.testing.assert_allclose(found.value.astype(np.float64).ravel(), wanted, rtol=1e-14, atol=0)


@pytest.mark.parametrize("nan", [IGNORE, PROPAGATE], ids=lambda n: n.name)
@pytest.mark.parametrize("op", INDEXED, ids=lambda o: o.name)
def test_extrema_and_their_positions(op, nan):
    random = np.random.default_rng(2)
    choices = np.array([-math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan, math.nan], np.float32)
    for dims, to in [*SHAPES, ((40, 2, 3), (40, 2, 1)), ((1, 3, 40), (1, 1, 40))]:
        values = random.choice(choices, dims)
        results = evaluated(operation_of(op, FLOAT, dims, to, nan), values)
        wanted = [first_extremum(op, elements, nan) for elements in reductions(values, to)]
        np.testing.assert_array_equal(results["C"].value.ravel(), [value for value, _ in wanted])
        assert results["indices"].value.ravel().tolist() == [position for _, position in wanted]


def orders(elements, random):
    """Yield the elements in several orders: forward, backward, sorted by size, shuffled."""
    yield elements
    yield elements[::-1]
    yield sorted(elements, key=abs)
    yield sorted(elements, key=abs, reverse=True)
    yield list(random.permutation(elements))


def in_float(op, elements):
    """Return the reduction in float arithmetic, from the left, rounded at each step."""
    one = np.float32
    match op:
        case Op.CUDNN_REDUCE_TENSOR_MUL | Op.CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS:
            result = one(1)
            for x in elements:
                result = one(result * (one(1) if x == 0 and op == Op.CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS else one(x)))
            return result
        case _:
            result = one(0)
            for x in elements:
                term = {Op.CUDNN_REDUCE_TENSOR_NORM1: abs(one(x)), Op.CUDNN_REDUCE_TENSOR_NORM2: one(x) * one(x)}.get(
                    op, one(x)
                )
                result = one(result + term)
            if op == Op.CUDNN_REDUCE_TENSOR_AVG:
                return one(result * one(1 / len(elements)))
            return np.sqrt(result) if op == Op.CUDNN_REDUCE_TENSOR_NORM2 else result


ROUNDED = [Op.CUDNN_REDUCE_TENSOR_ADD, Op.CUDNN_REDUCE_TENSOR_AVG, Op.CUDNN_REDUCE_TENSOR_NORM1, Op.CUDNN_REDUCE_TENSOR_NORM2,
           Op.CUDNN_REDUCE_TENSOR_MUL, Op.CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS]  # fmt: skip


@pytest.mark.parametrize("scale", [1.0, 1e-20, 3e-23], ids=["normal", "squares_below_normal", "squares_lost"])
@pytest.mark.parametrize("op", ROUNDED, ids=lambda o: o.name)
def test_bounds_hold_for_every_order_and_catch_a_lost_element(op, scale):
    random = np.random.default_rng(3)
    for length in (1, 2, 7, 60):
        values = (np.exp2(random.uniform(-3, 2, length)) * random.choice([-1, 1], length) * scale).astype(np.float32)
        if length > 1:
            found = evaluated(operation_of(op, FLOAT, (1, 1, length), (1, 1, 1)), values)["C"]
            value = float(found.value.ravel()[0])
            bound = float((2.0**-24 * magnitude_of(found) * roundings_of(found)).ravel()[0])
            if not magnitude_of(found).max() < np.finfo(np.float32).max:
                continue  # Some orders overflow in float, so the result is not determined.
            with np.errstate(all="ignore"):
                for order in orders(values.tolist(), random):
                    assert abs(float(in_float(op, order)) - value) <= bound + np.finfo(np.float32).tiny
                if scale == 1.0 and length > 2:
                    assert abs(float(in_float(op, values.tolist()[1:])) - value) > bound


def test_exact_sums_leave_no_room():
    """Sums of multiples of 0.5 below 2**23 are exact in every order, so the bound is zero."""
    values = np.random.default_rng(4).integers(-5, 6, (1, 1, 100_000)).astype(np.float32) / 2
    for op in (Op.CUDNN_REDUCE_TENSOR_ADD, Op.CUDNN_REDUCE_TENSOR_NORM1):
        found = evaluated(operation_of(op, FLOAT, values.shape, (1, 1, 1)), values)["C"]
        assert roundings_of(found).max() == 0
    values[0, 0, 7] = 1 / 1024
    found = evaluated(operation_of(Op.CUDNN_REDUCE_TENSOR_ADD, FLOAT, values.shape, (1, 1, 1)), values)["C"]
    assert roundings_of(found).min() == values.size - 1


@pytest.mark.parametrize("op", ROUNDED[-2:], ids=lambda o: o.name)
def test_products_beyond_double(op):
    """The order decides whether a product of a hundred 1e30 and 1e-4 is zero, infinity or NaN in float. A product of
    small factors may be a rounded subnormal. A product with an infinite factor is infinite or NaN."""
    length = 3000
    values = np.ones((3, length), np.float32)
    values[0, :100], values[0, 100:200], values[1], values[1, -60:], values[2, :100], values[2, 100] = (
        1e30,
        1e-4,
        0.6,
        2,
        1e-4,
        np.inf,
    )
    found = evaluated(operation_of(op, FLOAT, (1, 3, length), (1, 3, 1)), values.reshape(1, 3, length))["C"]
    value, magnitude = found.value.ravel(), magnitude_of(found).ravel()
    assert np.isfinite(value[0]) and magnitude[0] >= np.finfo(np.float32).max
    lost = float(in_float(op, values[1].tolist()))
    assert 0 < lost - value[1] <= 2.0**-24 * magnitude[1] * roundings_of(found)
    assert not np.isfinite(value[2])
    assert found.overflows().ravel().tolist() == [False, False, True]
