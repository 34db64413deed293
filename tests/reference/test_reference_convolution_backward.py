"""Test the references of convolution gradients against plain loops over exact fractions and SciPy."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from dualdnn.api.enumerations import (
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnMathType_t,
    cudnnReorderType_t,
)
from dualdnn.api.enumerations import cudnnConvolutionMode_t as Mode
from dualdnn.api.operations import (
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionSpec,
    FilterSpec,
    TensorSpec,
)
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, NCHW
from dualdnn.reference import evaluate
from dualdnn.reference.convolution import backward_data
from looped import for_each
from scipy import signal

TYPES = {FLOAT: np.float32, DOUBLE: np.float64, HALF: np.float16}
DATA, FILTER = cudnnConvolutionBwdDataAlgo_t(1), cudnnConvolutionBwdFilterAlgo_t(1)


def operation(
    gradient, x, w, *, data_type=FLOAT, padding, stride, dilation, groups=1, mode=Mode.CUDNN_CROSS_CORRELATION
):
    """Return the gradient operation of the input (dimensions ``x``) or the filter (``w``), by the enumeration ``gradient``."""
    compute = DOUBLE if data_type == DOUBLE else FLOAT
    spec = ConvolutionSpec(mode, compute, padding, stride, dilation, groups, cudnnMathType_t.CUDNN_FMA_MATH,
                           cudnnReorderType_t.CUDNN_DEFAULT_REORDER)  # fmt: skip
    dy = TensorSpec.packed(data_type, spec.output_dims(x, w))
    x, w = TensorSpec.packed(data_type, x), FilterSpec(data_type, NCHW, w)
    if gradient is DATA:
        return ConvolutionBackwardData(spec, gradient, 0, 1.0, 0.0, w, dy, x)
    return ConvolutionBackwardFilter(spec, gradient, 0, 1.0, 0.0, x, dy, w)


def given(o, seed, make):
    """Return values of the two operands of a gradient, in the order of its call."""
    generator = np.random.default_rng(seed)
    return {name: make(generator, o.tensor(name).dims) for name in o.inputs}


def evaluated(o, values):
    return evaluate(o, values)[o.outputs[0]]


def by_loops(o, values):
    """Return the gradient in exact fractions: each forward product y[p] += x[h] w[r] adds to x[h] or to w[r]."""
    of_data, c = o.outputs == ("dx",), o.convolution
    x, w = (o.tensor(name).dims for name in (("dx", "w") if of_data else ("x", "dw")))
    (filters, depth, *taps), extents = w, x[2:]
    per_group = filters // c.group_count
    found = np.full(x if of_data else w, Fraction(0), object)
    for n, k, *p in product(*map(range, o.dy.dims)):
        for ch, *r in product(range(depth), *map(range, taps)):
            h = [pi * s - pad + ri * d for pi, ri, s, pad, d in zip(p, r, c.stride, c.padding, c.dilation, strict=True)]
            if all(0 <= hi < extent for hi, extent in zip(h, extents, strict=True)):
                at_x = (n, k // per_group * depth + ch, *h)
                at_w = (k, ch, *(t - 1 - ri if c.is_flipped else ri for ri, t in zip(r, taps, strict=True)))
                to, factor = (at_x, values["w"][at_w]) if of_data else (at_w, values["x"][at_x])
                found[to] += Fraction(float(values["dy"][(n, k, *p)])) * Fraction(float(factor))
    return found


SHAPES = {
    "plain": dict(x=(2, 3, 5, 4), w=(4, 3, 3, 2), padding=(1, 1), stride=(1, 1), dilation=(1, 1)),
    "strides": dict(x=(1, 2, 8, 7), w=(3, 2, 3, 3), padding=(1, 0), stride=(2, 3), dilation=(1, 1)),
    "strides beyond the filter": dict(x=(1, 2, 7, 9), w=(2, 2, 2, 1), padding=(0, 1), stride=(3, 4), dilation=(1, 1)),
    "dilation": dict(x=(1, 2, 9, 8), w=(2, 2, 3, 2), padding=(2, 1), stride=(2, 2), dilation=(2, 3)),
    "dilation and stride share 2": dict(
        x=(1, 1, 9, 11), w=(2, 1, 3, 3), padding=(1, 4), stride=(4, 6), dilation=(2, 4)
    ),
    "groups": dict(x=(2, 4, 5, 5), w=(6, 2, 3, 3), padding=(1, 1), stride=(1, 2), dilation=(1, 1), groups=2),
    "more images than a row has elements": dict(
        x=(4, 4, 5, 5), w=(4, 2, 3, 2), padding=(1, 1), stride=(1, 2), dilation=(2, 1), groups=2
    ),
    "padding beyond the filter": dict(x=(1, 1, 3, 4), w=(2, 1, 2, 2), padding=(3, 4), stride=(1, 2), dilation=(1, 1)),
    "inputs behind the last window": dict(
        x=(1, 1, 8, 9), w=(1, 1, 2, 2), padding=(0, 0), stride=(3, 4), dilation=(1, 1)
    ),
    "volume": dict(x=(1, 2, 3, 4, 5), w=(2, 2, 2, 3, 2), padding=(1, 0, 1), stride=(1, 2, 2), dilation=(2, 1, 1)),
}


@for_each("data_type", TYPES)
@for_each("mode", list(Mode))
@for_each("shape", SHAPES)
@for_each("gradient", [DATA, FILTER])
def test_gradients_agree_with_plain_loops(gradient, shape, mode, data_type):
    o = operation(gradient, **SHAPES[shape], mode=mode, data_type=data_type)
    values = given(o, 3, lambda generator, dims: generator.normal(size=dims).astype(TYPES[data_type]))
    found, expected = evaluated(o, values), by_loops(o, values)
    np.testing.assert_allclose(np.asarray(found.value, np.float64), expected.astype(np.float64), rtol=1e-13, atol=1e-13)
    sizes = by_loops(o, {name: np.abs(value) for name, value in values.items()}).astype(np.float64)
    magnitude, slack = found.magnitude(), 1e-12 if data_type == DOUBLE else 4 * o.terms * 2.0**-24
    assert np.all(sizes * (1 - 1e-12) <= magnitude)
    np.testing.assert_allclose(magnitude, sizes, rtol=slack, atol=1e-20)


@pytest.mark.parametrize("gradient, bound", [(DATA, Fraction(1, 2**58)), (FILTER, Fraction(1, 2**57))])
def test_doubles_are_summed_in_more_than_double(gradient, bound):
    o = operation(gradient, **SHAPES["plain"], data_type=DOUBLE)
    values = given(o, 4, lambda generator, dims: generator.normal(size=dims))
    found, expected = evaluated(o, values).value, by_loops(o, values)
    apart = [
        abs(Fraction(*value.as_integer_ratio()) - exact)
        for value, exact in zip(found.ravel(), expected.ravel(), strict=True)
    ]
    assert max(apart) < bound


def whole_numbers(generator, dims):
    return generator.integers(-9, 10, dims).astype(np.float32)


@pytest.mark.parametrize("stride", [1, 2])
def test_data_gradients_agree_with_scipy(stride):
    """The data gradient is the full convolution of the dilated dy with the filter."""
    o = operation(DATA, (1, 1, 9, 8), (1, 1, 3, 3), padding=(0, 0), stride=(stride, stride), dilation=(1, 1))
    values = given(o, 5, whole_numbers)
    spread = np.zeros([(extent - 1) * stride + 1 for extent in o.dy.dims[2:]])
    spread[::stride, ::stride] = values["dy"][0, 0]
    full = signal.convolve2d(spread, values["w"][0, 0])
    found = np.asarray(evaluated(o, values).value)[0, 0]
    np.testing.assert_array_equal(found[: full.shape[0], : full.shape[1]], full)
    assert not found[full.shape[0] :].any() and not found[:, full.shape[1] :].any()


@pytest.mark.parametrize("groups", [1, 2])
def test_images_may_be_computed_in_parts(monkeypatch, groups):
    """Computing some images at a time, to limit memory, gives the same gradient."""
    o = operation(
        DATA, (11, 6, 5, 4), (4, 6 // groups, 2, 2), padding=(1, 0), stride=(1, 1), dilation=(1, 1), groups=groups
    )
    values, results = given(o, 6, whole_numbers), []
    for size in (2**23, 2**14):
        monkeypatch.setattr(backward_data, "INSIDE_BYTES", size)
        results.append((backward_data._images_together(o), np.asarray(evaluated(o, values).value)))
    (whole, expected), (some, found) = results
    assert whole == 11 and 3 <= some < 11
    np.testing.assert_array_equal(found, expected)


def test_filter_gradients_agree_with_scipy():
    """The filter gradient is the valid correlation of x with dy."""
    o = operation(FILTER, (1, 1, 9, 8), (1, 1, 3, 4), padding=(0, 0), stride=(1, 1), dilation=(1, 1))
    values = given(o, 5, whole_numbers)
    found = np.asarray(evaluated(o, values).value)[0, 0]
    np.testing.assert_array_equal(found, signal.correlate2d(values["x"][0, 0], values["dy"][0, 0], mode="valid"))


@pytest.mark.parametrize("gradient, infinite, first", [(DATA, "w", False), (FILTER, "dy", True)])
def test_an_infinity_over_the_padding(gradient, infinite, first):
    """The zeros of the padding are multiplied, so an infinity that meets only them gives NaN."""
    o = operation(gradient, (1, 1, 3, 3), (1, 1, 3, 3), padding=(1, 1), stride=(1, 1), dilation=(1, 1))
    values = given(o, 0, lambda _, dims: np.ones(dims, np.float32))
    values[infinite][0, 0, 0, 0] = np.inf
    found = np.asarray(evaluated(o, values).value)[0, 0]
    found = found if first else found[::-1, ::-1]
    assert np.isnan(found[0]).all() and np.isnan(found[:, 0]).all() and (found[1:, 1:] == np.inf).all()
