"""The reference of the filter gradient beside plain loops over exact fractions, SciPy, and as the adjoint of the forward convolution."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnConvolutionBwdFilterAlgo_t as Algo
from dualdnn.api.enumerations import cudnnConvolutionMode_t as Mode
from dualdnn.api.enumerations import cudnnMathType_t, cudnnReorderType_t
from dualdnn.api.operations import ConvolutionBackwardFilter, ConvolutionSpec, FilterSpec, TensorSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, NCHW
from dualdnn.reference import evaluate
from scipy import signal

TYPES = {FLOAT: np.float32, DOUBLE: np.float64, HALF: np.float16}


def operation(
    x, dw, *, data_type=FLOAT, padding, stride, dilation, groups=1, mode=Mode.CUDNN_CROSS_CORRELATION, algo=1
):
    compute = DOUBLE if data_type == DOUBLE else FLOAT
    spec = ConvolutionSpec(mode, compute, padding, stride, dilation, groups, cudnnMathType_t.CUDNN_FMA_MATH,
                           cudnnReorderType_t.CUDNN_DEFAULT_REORDER)  # fmt: skip
    dy = TensorSpec.packed(data_type, spec.output_dims(x, dw))
    dw_spec, x_spec = FilterSpec(data_type, NCHW, dw), TensorSpec.packed(data_type, x)
    return ConvolutionBackwardFilter(spec, Algo(algo), 0, 1.0, 0.0, x_spec, dy, dw_spec)


def evaluated(o, x, dy):
    return evaluate(o, {"x": x, "dy": dy})["dw"]


def by_loops(o, x, dy):
    """What every product of the forward convolution, y[p] += x[h] w[r], hands back to w[r], in exact fractions."""
    c, (filters, depth, *taps) = o.convolution, o.dw.dims
    per_group, extents = filters // c.group_count, o.x.dims[2:]
    found = np.full(o.dw.dims, Fraction(0), object)
    for n, k, *p in product(*map(range, o.dy.dims)):
        for ch, *r in product(range(depth), *map(range, taps)):
            h = [pi * s - pad + ri * d for pi, ri, s, pad, d in zip(p, r, c.stride, c.padding, c.dilation, strict=True)]
            if all(0 <= hi < extent for hi, extent in zip(h, extents, strict=True)):
                at = [t - 1 - ri if c.is_flipped else ri for ri, t in zip(r, taps, strict=True)]
                value = x[(n, k // per_group * depth + ch, *h)]
                found[(k, ch, *at)] += Fraction(float(dy[(n, k, *p)])) * Fraction(float(value))
    return found


SHAPES = {
    "plain": dict(x=(2, 3, 5, 4), dw=(4, 3, 3, 2), padding=(1, 1), stride=(1, 1), dilation=(1, 1)),
    "strides": dict(x=(1, 2, 8, 7), dw=(3, 2, 3, 3), padding=(1, 0), stride=(2, 3), dilation=(1, 1)),
    "strides beyond the filter": dict(x=(1, 2, 7, 9), dw=(2, 2, 2, 1), padding=(0, 1), stride=(3, 4), dilation=(1, 1)),
    "dilation": dict(x=(1, 2, 9, 8), dw=(2, 2, 3, 2), padding=(2, 1), stride=(2, 2), dilation=(2, 3)),
    "groups": dict(x=(2, 4, 5, 5), dw=(6, 2, 3, 3), padding=(1, 1), stride=(1, 2), dilation=(1, 1), groups=2),
    "padding beyond the filter": dict(x=(1, 1, 3, 4), dw=(2, 1, 2, 2), padding=(3, 4), stride=(1, 2), dilation=(1, 1)),
    "volume": dict(x=(1, 2, 3, 4, 5), dw=(2, 2, 2, 3, 2), padding=(1, 0, 1), stride=(1, 2, 2), dilation=(2, 1, 1)),
}


@pytest.mark.parametrize("data_type", TYPES)
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("shape", SHAPES)
def test_beside_plain_loops(shape, mode, data_type):
    o = operation(**SHAPES[shape], mode=mode, data_type=data_type)
    generator = np.random.default_rng(3)
    x, dy = (generator.normal(size=dims).astype(TYPES[data_type]) for dims in (o.x.dims, o.dy.dims))
    found, expected = evaluated(o, x, dy), by_loops(o, x, dy)
    np.testing.assert_allclose(np.asarray(found.value, np.float64), expected.astype(np.float64), rtol=1e-13, atol=1e-13)
    sizes = by_loops(o, np.abs(x), np.abs(dy)).astype(np.float64)
    magnitude, slack = found.magnitude(), 1e-12 if data_type == DOUBLE else 4 * o.terms * 2.0**-24
    assert np.all(sizes * (1 - 1e-12) <= magnitude)
    np.testing.assert_allclose(magnitude, sizes, rtol=slack, atol=1e-20)


def test_doubles_are_summed_in_more_than_double():
    o = operation(**SHAPES["plain"], data_type=DOUBLE)
    generator = np.random.default_rng(4)
    x, dy = (generator.normal(size=dims) for dims in (o.x.dims, o.dy.dims))
    found, expected = evaluated(o, x, dy).value, by_loops(o, x, dy)
    apart = [
        abs(Fraction(*value.as_integer_ratio()) - exact)
        for value, exact in zip(found.ravel(), expected.ravel(), strict=True)
    ]
    assert max(apart) < Fraction(1, 2**57)


def test_beside_scipy():
    """A valid correlation of x with dy."""
    o = operation((1, 1, 9, 8), (1, 1, 3, 4), padding=(0, 0), stride=(1, 1), dilation=(1, 1))
    generator = np.random.default_rng(5)
    x, dy = (generator.integers(-9, 10, dims).astype(np.float32) for dims in (o.x.dims, o.dy.dims))
    found = np.asarray(evaluated(o, x, dy).value)[0, 0]
    np.testing.assert_array_equal(found, signal.correlate2d(x[0, 0], dy[0, 0], mode="valid"))


def test_an_infinity_over_the_padding():
    """The zeros of the padding are multiplied, too: an infinity of dy over them gives NaN."""
    o = operation((1, 1, 3, 3), (1, 1, 3, 3), padding=(1, 1), stride=(1, 1), dilation=(1, 1))
    x, dy = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 3, 3), np.float32)
    dy[0, 0, 0, 0] = np.inf
    found = np.asarray(evaluated(o, x, dy).value)[0, 0]
    assert np.isnan(found[0]).all() and np.isnan(found[:, 0]).all() and (found[1:, 1:] == np.inf).all()
