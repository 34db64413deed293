"""The reference of the data gradient beside plain loops over exact fractions, SciPy, and as the adjoint of the forward convolution."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnConvolutionBwdDataAlgo_t as Algo
from dualdnn.api.enumerations import cudnnConvolutionMode_t as Mode
from dualdnn.api.enumerations import cudnnMathType_t, cudnnReorderType_t
from dualdnn.api.operations import ConvolutionBackwardData, ConvolutionSpec, FilterSpec, TensorSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, NCHW
from dualdnn.reference import evaluate
from scipy import signal

TYPES = {FLOAT: np.float32, DOUBLE: np.float64, HALF: np.float16}


def operation(
    dx, w, *, data_type=FLOAT, padding, stride, dilation, groups=1, mode=Mode.CUDNN_CROSS_CORRELATION, algo=1
):
    compute = DOUBLE if data_type == DOUBLE else FLOAT
    spec = ConvolutionSpec(mode, compute, padding, stride, dilation, groups, cudnnMathType_t.CUDNN_FMA_MATH,
                           cudnnReorderType_t.CUDNN_DEFAULT_REORDER)  # fmt: skip
    dy = TensorSpec.packed(data_type, spec.output_dims(dx, w))
    w_spec, dx_spec = FilterSpec(data_type, NCHW, w), TensorSpec.packed(data_type, dx)
    return ConvolutionBackwardData(spec, Algo(algo), 0, 1.0, 0.0, w_spec, dy, dx_spec)


def evaluated(o, w, dy):
    return evaluate(o, {"w": w, "dy": dy})["dx"]


def by_loops(o, w, dy):
    """What every product of the forward convolution, y[p] += x[h] w[r], hands back to x[h], in exact fractions."""
    c, taps = o.convolution, o.w.dims[2:]
    spatial = o.dx.dims[2:]
    filters, depth = o.w.dims[:2]
    per_group = filters // c.group_count
    found = np.full(o.dx.dims, Fraction(0), object)
    for n, k, *p in product(*map(range, o.dy.dims)):
        for ch, *r in product(range(depth), *map(range, taps)):
            h = [pi * s - pad + ri * d for pi, ri, s, pad, d in zip(p, r, c.stride, c.padding, c.dilation, strict=True)]
            if all(0 <= hi < extent for hi, extent in zip(h, spatial, strict=True)):
                at = [t - 1 - ri if c.is_flipped else ri for ri, t in zip(r, taps, strict=True)]
                x = (n, k // per_group * depth + ch, *h)
                found[x] += Fraction(float(dy[(n, k, *p)])) * Fraction(float(w[(k, ch, *at)]))
    return found


SHAPES = {
    "plain": dict(dx=(2, 3, 5, 4), w=(4, 3, 3, 2), padding=(1, 1), stride=(1, 1), dilation=(1, 1)),
    "strides": dict(dx=(1, 2, 8, 7), w=(3, 2, 3, 3), padding=(1, 0), stride=(2, 3), dilation=(1, 1)),
    "strides beyond the filter": dict(dx=(1, 2, 7, 9), w=(2, 2, 2, 1), padding=(0, 1), stride=(3, 4), dilation=(1, 1)),
    "dilation": dict(dx=(1, 2, 9, 8), w=(2, 2, 3, 2), padding=(2, 1), stride=(2, 2), dilation=(2, 3)),
    "dilation and stride share 2": dict(
        dx=(1, 1, 9, 11), w=(2, 1, 3, 3), padding=(1, 4), stride=(4, 6), dilation=(2, 4)
    ),
    "groups": dict(dx=(2, 4, 5, 5), w=(6, 2, 3, 3), padding=(1, 1), stride=(1, 2), dilation=(1, 1), groups=2),
    "padding beyond the filter": dict(dx=(1, 1, 3, 4), w=(2, 1, 2, 2), padding=(3, 4), stride=(1, 2), dilation=(1, 1)),
    "inputs behind the last window": dict(
        dx=(1, 1, 8, 9), w=(1, 1, 2, 2), padding=(0, 0), stride=(3, 4), dilation=(1, 1)
    ),
    "volume": dict(dx=(1, 2, 3, 4, 5), w=(2, 2, 2, 3, 2), padding=(1, 0, 1), stride=(1, 2, 2), dilation=(2, 1, 1)),
}


@pytest.mark.parametrize("data_type", TYPES)
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("shape", SHAPES)
def test_beside_plain_loops(shape, mode, data_type):
    o = operation(**SHAPES[shape], mode=mode, data_type=data_type)
    generator = np.random.default_rng(3)
    w, dy = (generator.normal(size=dims).astype(TYPES[data_type]) for dims in (o.w.dims, o.dy.dims))
    found, expected = evaluated(o, w, dy), by_loops(o, w, dy)
    np.testing.assert_allclose(np.asarray(found.value, np.float64), expected.astype(np.float64), rtol=1e-13, atol=1e-13)
    sizes = by_loops(o, np.abs(w), np.abs(dy)).astype(np.float64)
    magnitude, slack = found.magnitude(), 1e-12 if data_type == DOUBLE else 4 * o.terms * 2.0**-24
    assert np.all(sizes * (1 - 1e-12) <= magnitude)
    np.testing.assert_allclose(magnitude, sizes, rtol=slack, atol=1e-20)


def test_doubles_are_summed_in_more_than_double():
    o = operation(**SHAPES["plain"], data_type=DOUBLE)
    generator = np.random.default_rng(4)
    w, dy = (generator.normal(size=dims) for dims in (o.w.dims, o.dy.dims))
    found, expected = evaluated(o, w, dy).value, by_loops(o, w, dy)
    apart = [
        abs(Fraction(*value.as_integer_ratio()) - exact)
        for value, exact in zip(found.ravel(), expected.ravel(), strict=True)
    ]
    assert max(apart) < Fraction(1, 2**58)


@pytest.mark.parametrize("stride", [1, 2])
def test_beside_scipy(stride):
    """A full convolution of the dilated dy with the filter."""
    o = operation((1, 1, 9, 8), (1, 1, 3, 3), padding=(0, 0), stride=(stride, stride), dilation=(1, 1))
    generator = np.random.default_rng(5)
    w, dy = (generator.integers(-9, 10, dims).astype(np.float32) for dims in (o.w.dims, o.dy.dims))
    spread = np.zeros([(extent - 1) * stride + 1 for extent in dy.shape[2:]])
    spread[::stride, ::stride] = dy[0, 0]
    full = signal.convolve2d(spread, w[0, 0])
    found = np.asarray(evaluated(o, w, dy).value)[0, 0]
    np.testing.assert_array_equal(found[: full.shape[0], : full.shape[1]], full)
    assert not found[full.shape[0] :].any() and not found[:, full.shape[1] :].any()


def test_an_infinity_over_the_padding():
    """Zeros outside dy are multiplied, too: an infinity of the filter that only meets them gives NaN."""
    o = operation((1, 1, 3, 3), (1, 1, 3, 3), padding=(1, 1), stride=(1, 1), dilation=(1, 1))
    w, dy = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 3, 3), np.float32)
    w[0, 0, 0, 0] = np.inf
    found = np.asarray(evaluated(o, w, dy).value)[0, 0]
    assert np.isnan(found[2]).all() and np.isnan(found[:, 2]).all() and (found[:2, :2] == np.inf).all()
