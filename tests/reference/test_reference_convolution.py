"""Test the reference convolution against plain loops, and its bounds against low-precision algorithms."""

from __future__ import annotations

import tracemalloc
import warnings
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import prod

import numpy as np
import pytest
import scipy.fft
from dualdnn.api.enumerations import cudnnActivationMode_t, cudnnConvolutionMode_t, cudnnMathType_t, cudnnReorderType_t
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as Algo
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.operations import (
    ActivationSpec,
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    ConvolutionSpec,
    FilterSpec,
    Im2Col,
    ReorderFilter,
    ReorderFilterAndBias,
    TensorSpec,
)
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT8, INT32, NCHW, NCHW_VECT_C, INT8x32
from dualdnn.reference import engine, precise_product, run
from dualdnn.reference.blocks import blocks
from dualdnn.reference.convolution import bounds as convolution_bounds
from dualdnn.reference.convolution import forward as convolution
from dualdnn.reference.convolution import product as convolution_product
from dualdnn.reference.convolution import taps as convolution_taps
from dualdnn.reference.engine import evaluate, magnitude_of
from dualdnn.reference.judge import bounds, judge
from dualdnn.reference.view import stored, write
from looped import for_each

CORRELATION, CONVOLUTION = cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, cudnnConvolutionMode_t.CUDNN_CONVOLUTION
REORDER, COPY = cudnnReorderType_t
FMA = cudnnMathType_t.CUDNN_FMA_MATH


def spec(
    padding, stride=None, dilation=None, groups=1, mode=CORRELATION, compute_type=FLOAT, math_type=FMA, reorder=REORDER
):
    ones = (1,) * len(padding)
    return ConvolutionSpec(mode, compute_type, padding, stride or ones, dilation or ones, groups, math_type, reorder)


def by_loops(x, w, c):
    """Return the convolution by the formula of docs/errata.md, D235, in exact arithmetic."""
    filters, per_group = w.shape[:2]
    dims = [1 + (i + 2 * p - ((f - 1) * d + 1)) // s for i, p, f, d, s in zip(x.shape[2:], c.padding, w.shape[2:], c.dilation, c.stride, strict=True)]  # fmt: skip
    result = np.zeros((x.shape[0], filters, *dims), object)
    for n, k, *position in product(*map(range, result.shape)):
        first = k // (filters // c.group_count) * per_group
        total = Fraction(0)
        for channel, *tap in product(*map(range, w.shape[1:])):
            at = [
                q * s - p + t * d for q, s, p, t, d in zip(position, c.stride, c.padding, tap, c.dilation, strict=True)
            ]
            if all(0 <= a < size for a, size in zip(at, x.shape[2:], strict=True)):
                if c.mode == CONVOLUTION:
                    tap = [size - 1 - t for size, t in zip(w.shape[2:], tap, strict=True)]
                total += Fraction(float(x[(n, first + channel, *at)])) * Fraction(float(w[(k, channel, *tap)]))
        result[(n, k, *position)] = total
    return result


@pytest.fixture(autouse=True)
def nothing_prepared():
    """Clear the caches of prepared calls, because tests change the limits they depend on."""
    prepared = (engine._prepared, engine.launcher)
    for kept in prepared:
        kept.cache_clear()
    yield
    for kept in prepared:
        kept.cache_clear()


PROBLEMS = {
    "plain": ((2, 3, 5, 4), (4, 3, 3, 2), spec((1, 0))),
    "everything": ((2, 4, 6, 5), (6, 2, 3, 2), spec((3, 2), (2, 3), (2, 1), 2, CONVOLUTION)),
    "padding beyond the filter": ((1, 2, 2, 3), (2, 2, 2, 2), spec((4, 3))),
    "stride beyond the filter": ((1, 2, 7, 8), (2, 2, 2, 1), spec((1, 2), (4, 5))),
    "depthwise": ((2, 3, 4, 4), (6, 1, 3, 3), spec((1, 1), groups=3)),
    "one filter per group": ((2, 3, 5, 6), (3, 1, 3, 2), spec((1, 2), groups=3)),
    "one filter for two channels": (
        (2, 4, 9, 8),
        (2, 2, 2, 3),
        spec((3, 2), (2, 3), (3, 2), 2, CONVOLUTION),
    ),
    "one filter per group, 1-D": ((2, 2, 11), (2, 1, 3), spec((1,), (2,), (3,), 2)),
    "one filter per group, 3-D": ((1, 2, 5, 4, 3), (2, 1, 2, 3, 2), spec((1, 0, 2), (2, 1, 3), (1, 1, 2), 2)),
    "one filter per group, taps far apart": ((1, 2, 40, 41), (2, 1, 2, 2), spec((0, 0), dilation=(33, 34), groups=2)),
    "one filter per group, only padding": ((1, 2, 1, 1), (2, 1, 1, 2), spec((5, 5), (3, 3), groups=2)),
    "1x1": ((2, 3, 4, 3), (5, 3, 1, 1), spec((0, 0))),
    "1-D": ((2, 3, 9), (4, 3, 4), spec((2,), (2,), (2,))),
    "3-D": ((1, 2, 3, 4, 3), (2, 2, 2, 3, 2), spec((1, 0, 1), (1, 2, 1), (2, 1, 1), mode=CONVOLUTION)),
    "one element": ((1, 1, 1, 1), (1, 1, 1, 1), spec((0, 0))),
    "only padding": ((1, 1, 1, 1), (1, 1, 1, 1), spec((5, 5), (3, 3))),
}


LIMITS = {
    "as they are": convolution_product.LIMITS,
    "one position": convolution_product.Limits(block_bytes=1),
    "some positions": convolution_product.Limits(block_bytes=500),
    "some terms": convolution_product.Limits(block_bytes=500, terms=5, inputs=1),
    "more terms for few positions": convolution_product.Limits(terms=1, inputs=200),
    "one term, one filter": convolution_product.Limits(
        block_bytes=500, terms=1, weights=1, filters=1, inputs=1, kept_weights=0
    ),
    "two filters": convolution_product.Limits(block_bytes=500, weights=1, filters=2),
    "one filter after the other": convolution_product.Limits(
        block_bytes=500, terms=5, inputs=1, kept_weights=0, converted=1, filters_per_column=0
    ),
    "long runs": convolution_product.Limits(run=2**30),
    "long runs in blocks": convolution_product.Limits(block_bytes=900, run=2**30),
    "short runs": convolution_product.Limits(run=-(2**30)),
}


@cache
def sums_and_sizes(problem):
    """Return (x, w, their convolution, the convolution of their absolute values)."""
    x_dims, w_dims, c = PROBLEMS[problem]
    random = np.random.default_rng(1)
    x, w = (random.integers(-9, 10, dims).astype(np.float64) for dims in (x_dims, w_dims))
    return x, w, *(by_loops(*factors, c).astype(np.float64) for factors in ((x, w), (abs(x), abs(w))))


@for_each("limits", LIMITS)
@for_each("taps", [False, True])
@for_each("problem", PROBLEMS)
def test_formula(monkeypatch, problem, taps, limits):
    """Block sizes do not change the result, by tap or by matrix product."""
    monkeypatch.setattr(convolution_taps, "MIN_INPUTS", 0 if taps else 2**30)
    monkeypatch.setattr(convolution_taps, "BLOCK_BYTES", LIMITS[limits].block_bytes)
    monkeypatch.setattr(convolution_product, "LIMITS", LIMITS[limits])
    x, w, expected, sizes = sums_and_sizes(problem)
    c = PROBLEMS[problem][2]
    flipped = convolution.applied(w, c)
    assert np.array_equal(convolution_product.convolve(x, flipped, c), expected)
    assert np.array_equal(convolution_product.convolve(x, flipped.astype(np.longdouble), c), expected)
    parts = convolution_product.in_parts(x.shape, w.shape, c, 1, np.float64)
    for part in list(
        parts(x.swapaxes(0, 1), lambda place, wide: flipped[place].astype(wide))
    ):  # A part may be read after later parts were computed.
        assert np.array_equal(part.sizes(), sizes[part.place])


def test_one_filter_per_group_goes_tap_by_tap():
    """Problems with one filter per group are computed tap by tap if they have many inputs."""
    many = (convolution_taps.MIN_INPUTS, 1)
    taken = {name for name, (_, w_dims, c) in PROBLEMS.items() if convolution_taps.suits(many, w_dims, c)}
    one_each = {name for name in PROBLEMS if name.startswith("one filter")}
    assert taken == one_each - {"one filter per group, taps far apart"} | {"one element", "only padding"}
    assert not any(convolution_taps.suits(*problem) for problem in PROBLEMS.values())


def test_infinity_and_nan_spread_alike_by_taps_and_by_products(monkeypatch):
    """Both ways multiply the zeros of the padding, so an infinite weight there gives NaN."""
    random = np.random.default_rng(3)
    x, w, c = random.standard_normal((2, 4, 7, 6)), random.standard_normal((4, 1, 3, 3)), spec((2, 1), (2, 1), groups=4)
    x[0, 1, 3, 3], x[1, 2, 0, 0], w[3, 0, 0, 1] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        by_matrix = convolution_product.convolve(x, w, c)
        monkeypatch.setattr(convolution_taps, "MIN_INPUTS", 0)
        by_taps = convolution_product.convolve(x, w, c)
    np.testing.assert_allclose(by_taps, by_matrix, rtol=0, atol=1e-14)
    assert np.isnan(by_taps).any() and np.isinf(by_taps).any() and np.isfinite(by_taps).any()


@pytest.mark.parametrize("images, size", [(64, 32), (1, 1500)])
def test_taps_take_little_memory(images, size):
    """Convolution by taps needs memory for two blocks at most, and restores NumPy's buffer size."""
    x, w, c = np.ones((images, 4, size, size)), np.ones((4, 1, 5, 5)), spec((2, 2), dilation=(2, 2), groups=4)
    result, buffer = np.empty((images, 4, size - 4, size - 4)), np.setbufsize(4096)
    tracemalloc.start()
    channels_first = x.swapaxes(0, 1)
    for place, sums, *_ in convolution_taps.convolve_by_taps(
        w.shape, c, np.float64, channels_first, lambda place, _: w[place]
    ):
        result[place] = sums
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.setbufsize(buffer) == 4096
    assert (result[:, :, 2:-2, 2:-2] == 25).all()
    assert peak < 3 * 2**20  # bytes, two blocks and their borders


@pytest.mark.parametrize("filters, groups", [(3, 1), (10, 10)])
@pytest.mark.parametrize("slices", [False, True])
@pytest.mark.parametrize("spread", [0, 18, 60])
def test_doubles_are_summed_in_extended_precision(monkeypatch, spread, slices, filters, groups):
    """The error is a few units of the extended type, relative to the sum of absolute terms, at any magnitude."""
    monkeypatch.setattr(convolution_taps, "MIN_INPUTS", 0)
    monkeypatch.setattr(precise_product, "UNSPLIT_PRODUCTS", 0 if slices else 2**30)
    random = np.random.default_rng(spread)
    x, w = (
        random.standard_normal(dims) * np.exp2(random.integers(-spread, spread + 1, dims))
        for dims in ((1, 20, 4, 4), (filters, 20 // groups, 3, 3))
    )
    c = spec((1, 1), groups=groups)
    got = convolution_product.convolve(x, w.astype(np.longdouble), c)
    exact, terms = by_loops(x, w, c), by_loops(abs(x), abs(w), c)
    for value, sum_, size in zip(got.ravel(), exact.ravel(), terms.ravel(), strict=True):
        high = float(value)
        error = abs(Fraction(high) + Fraction(float(value - np.longdouble(high))) - sum_)
        assert error <= size * 180 * Fraction(1, 2**64)


@pytest.mark.parametrize("dims", [(7, 40), (3, 7, 40)], ids=str)
def test_precise_products_spread_infinity_and_nan(monkeypatch, dims):
    """NaN and infinities spread as in a plain product, and rows without them keep their precision."""
    monkeypatch.setattr(precise_product, "UNSPLIT_PRODUCTS", 0)
    monkeypatch.setattr(precise_product, "BLOCK_BYTES", 2 * 8 * prod(dims) // 7)  # bytes, two rows of every group
    random = np.random.default_rng(12)
    a, b = random.standard_normal(dims), random.standard_normal((*dims[:-2], 40, 5))
    b[..., 3, 1] = 0
    plain = precise_product.precise_product(a, b)
    assert np.abs(plain - np.matmul(a.astype(np.longdouble), b.astype(np.longdouble))).max() < 2.0**-56
    a[..., 0, 3], a[..., 2, 0], a[..., 4, 5] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        found, expected = precise_product.precise_product(a, b), a @ b
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0, atol=1e-13)
    assert np.isnan(found[..., 2, :]).all() and np.isnan(found[..., 0, 1]).all() and np.isinf(found[..., 4, :]).all()
    assert np.array_equal(found[..., 6, :], plain[..., 6, :])


def test_blocks_bound_the_memory():
    for extents, each in (((16, 28, 28), 576 * 8), ((1, 1, 10**9), 8), ((5, 3, 7), 2**26), ((3, 1000, 1000), 9 * 8)):
        covered = 0
        for block in blocks(extents, each, 2**23):
            size = prod(part.stop - part.start for part in block)
            covered += size
            assert size * each <= 2**23 or size == 1
            if covered > 10**8:
                break
        else:
            assert covered == prod(extents)


def forward(x, w, c, algo=Algo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, data_type=FLOAT, **scales):
    y = c.output_dims(x.shape, w.shape)
    described = {
        "x": TensorSpec.packed(data_type, x.shape),
        "w": FilterSpec(data_type, NCHW, w.shape),
        "y": TensorSpec.packed(data_type, y),
    }
    return ConvolutionForward(c, algo, 0, scales.get("alpha", 1.0), scales.get("beta", 0.0), **described)


def bytes_of(array):
    return np.frombuffer(bytearray(np.ascontiguousarray(array).tobytes()), np.uint8)


def allowed(operation, x, w, dtype):
    """Return (exact value, allowed error) of the reference."""
    memory = {
        "x": bytes_of(x.astype(dtype)),
        "w": bytes_of(w.astype(dtype)),
        "y": np.zeros(operation.y.nbytes, np.uint8),
    }
    return bounds(operation, "y", evaluate(operation, memory)["y"], memory)


SHAPES = {  # Copies in float64, or im2col matrices, would be far larger than a block.
    "many groups": ((4, 512, 48, 48), (512, 4, 3, 3), spec((1, 1), groups=128), "IMPLICIT_GEMM"),
    "one filter per group": ((4, 256, 64, 64), (256, 1, 3, 3), spec((1, 1), groups=256), "IMPLICIT_GEMM"),
    "3-D": ((1, 8, 32, 96, 96), (8, 8, 3, 3, 3), spec((1, 1, 1)), "IMPLICIT_GEMM"),
    "transforms": ((4, 32, 128, 128), (16, 32, 3, 3), spec((1, 1)), "FFT_TILING"),
    "tiles": ((4, 32, 96, 96), (16, 32, 3, 3), spec((1, 1)), "WINOGRAD_NONFUSED"),
    "many weights": ((1, 4096, 2, 2), (4096, 4096, 1, 1), spec((0, 0)), "IMPLICIT_GEMM"),
    "long sums": ((1, 8, 600, 600), (2, 8, 599, 600), spec((0, 0)), "IMPLICIT_GEMM"),
    "taps far apart": ((1, 1, 2, 2), (1, 1, 3, 3), spec((20000, 20000), dilation=(20000, 20000)), "IMPLICIT_GEMM"),
}


@pytest.mark.parametrize("data_type, dtype", [(FLOAT, np.float32), (DOUBLE, np.float64)], ids=["FLOAT", "DOUBLE"])
@pytest.mark.parametrize("shape", SHAPES)
def test_memory_does_not_grow_with_the_tensors(shape, data_type, dtype):
    """Backend and judge take bounded memory beyond the operands; converted weights are the largest blocks."""
    x_dims, w_dims, c, algo = SHAPES[shape]
    small = data_type == DOUBLE and shape != "taps far apart"  # Extended precision is slow.
    if small:
        images, channels, *sizes = x_dims
        x_dims = (
            images,
            channels,
            *(size if size == w else min(size, w + 15) for size, w in zip(sizes, w_dims[2:], strict=True)),
        )
        w_dims = (min(w_dims[0], 2 * c.group_count + 2), *w_dims[1:]) if c.group_count == 1 else w_dims
    random = np.random.default_rng(3)
    x, w = (random.integers(-4, 5, dims, np.int8).astype(dtype) for dims in (x_dims, w_dims))
    operation = forward(x, w, replace(c, compute_type=data_type), Algo[f"CUDNN_CONVOLUTION_FWD_ALGO_{algo}"], data_type)
    before = {"x": x.ravel().view(np.uint8), "w": w.ravel().view(np.uint8), "y": np.zeros(operation.y.nbytes, np.uint8)}
    after = {**before, "y": before["y"].copy()}
    for limit, work in ((64, lambda: run(operation, after)), (128, lambda: judge(operation, before, after))):
        tracemalloc.start()
        verdict = work()
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        assert peak < limit
    assert verdict.agrees


def test_a_vectorised_output_is_cut_between_vectors(monkeypatch):
    monkeypatch.setattr(
        convolution_product, "LIMITS", convolution_product.Limits(block_bytes=2000, weights=40 * 128, filters=1)
    )
    random = np.random.default_rng(5)
    x, w = random.integers(-9, 10, (1, 64, 3, 3)), random.integers(-9, 10, (96, 64, 2, 1))
    c = spec((1, 1), (2, 1), compute_type=INT32)
    described = [TensorSpec.packed(INT8x32, x.shape, NCHW_VECT_C), FilterSpec(INT8x32, NCHW_VECT_C, w.shape)]
    y = TensorSpec.packed(INT8x32, c.output_dims(x.shape, w.shape), NCHW_VECT_C)
    operation = ConvolutionForward(
        c, Algo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, 0, 1 / 64, 0.0, *described, y
    )
    memory = {name: np.zeros(operation.nbytes(name), np.uint8) for name in ("x", "w", "y")}
    write(operation.x, memory["x"], x)
    write(operation.w.tensor, memory["w"], w)
    run(operation, memory)
    exact = by_loops(x, w, c).astype(np.float64) / 64
    assert np.array_equal(stored(y, memory["y"]), np.clip(np.rint(exact), -128, 127))


@pytest.mark.parametrize("name", ["plain", "everything", "3-D", "one filter per group"])
def test_the_judge_is_more_precise_than_what_it_judges(monkeypatch, name):
    """The backend's sums in double are within the bound, and the judge's own sums are more precise."""
    monkeypatch.setattr(convolution_taps, "MIN_INPUTS", 0)
    x_dims, w_dims, c = PROBLEMS[name]
    random = np.random.default_rng(8)
    x, w = random.standard_normal(x_dims), random.standard_normal(w_dims)
    operation = forward(x, w, replace(c, compute_type=DOUBLE), data_type=DOUBLE)
    before = {"x": bytes_of(x), "w": bytes_of(w), "y": np.zeros(operation.y.nbytes, np.uint8)}
    after = {operand: memory.copy() for operand, memory in before.items()}
    run(operation, after)
    verdict = judge(operation, before, after)
    assert verdict.agrees and 0 < verdict.error_ratio < 1
    value, bound = bounds(operation, "y", evaluate(operation, before)["y"], before)
    got, exact = after["y"].view(np.float64).reshape(operation.y.dims), by_loops(x, w, c)
    assert np.array_equal(got, convolution_product.convolve(x, convolution.applied(w, c), c))
    terms = by_loops(abs(x), abs(w), c)
    of_judge = np.array([abs(Fraction(float(v)) + Fraction(float(v - float(v))) - e) for v, e in zip(value.ravel(), exact.ravel(), strict=True)])  # fmt: skip
    assert (of_judge <= terms.ravel() * 180 * Fraction(1, 2**64)).all()
    assert max(abs(Fraction(float(g)) - e) for g, e in zip(got.ravel(), exact.ravel(), strict=True)) > of_judge.max()
    # A wrong kernel errs by twice the bound and a rounding in each element.
    assert np.isfinite(bound.astype(np.float64)).all()
    for sign in (-1, 1):
        wrong = (value + sign * 2 * (bound + np.abs(value) * 2.0**-52)).astype(np.float64)
        after["y"][:] = bytes_of(wrong)
        assert judge(operation, before, after).wrong == value.size
    # Sums in float32 are wrong, too.
    after["y"][:] = bytes_of(convolution_product.convolve(x.astype(np.float32), convolution.applied(w.astype(np.float32), c), c).astype(np.float64))  # fmt: skip
    assert judge(operation, before, after).wrong > value.size // 2


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("algo", ["FFT", "WINOGRAD"])
def test_norms_and_tile_maxima_scale_the_errors_of_transforms(monkeypatch, algo, cut):
    """The scale of an FFT error is the norm of image and filter, of Winograd the tile maxima, whatever the parts."""
    if cut:
        monkeypatch.setattr(convolution_bounds, "BLOCK_BYTES", 100)
        monkeypatch.setattr(
            convolution_product, "LIMITS", convolution_product.Limits(block_bytes=900, weights=1, filters=2)
        )
    random = np.random.default_rng(11)
    x, w = random.standard_normal((2, 6, 9, 8)), random.standard_normal((9, 2, 3, 3))
    c = spec((1, 2), groups=3, mode=CONVOLUTION)
    x, w = x.astype(np.float32), w.astype(np.float32)
    operation = forward(x, w, c, Algo[f"CUDNN_CONVOLUTION_FWD_ALGO_{algo}"])
    before = {"x": bytes_of(x), "w": bytes_of(w), "y": np.zeros(operation.y.nbytes, np.uint8)}
    found = magnitude_of(evaluate(operation, before)["y"])
    padded = np.pad(np.abs(x.astype(np.float64)), [(0, 0), (0, 0), (4, 4), (5, 5)])  # Tiles reach 3 beyond the padding.
    growth = convolution_bounds.winograd_growth(4, 3) ** 2
    for n, k, p, q in np.ndindex(found.shape):
        channels = slice(k // 3 * 2, k // 3 * 2 + 2)
        if algo == "FFT":
            factors = np.linalg.norm(x[n, channels].reshape(2, -1), axis=1), np.linalg.norm(w[k].reshape(2, -1), axis=1)
        else:
            factors = growth * padded[n, channels, p : p + 9, q : q + 9].max((1, 2)), np.abs(w[k]).max((1, 2))
        np.testing.assert_allclose(found[n, k, p, q], (factors[0] * factors[1]).sum(), rtol=1e-6)


def test_the_worst_element_of_all_parts_is_named(monkeypatch):
    monkeypatch.setattr(convolution_product, "LIMITS", convolution_product.Limits(block_bytes=500))
    x, w, c = np.ones((2, 3, 9, 8), np.float32), np.ones((4, 3, 3, 3), np.float32), spec((1, 1))
    operation = forward(x, w, c)
    before = {"x": bytes_of(x), "w": bytes_of(w), "y": np.zeros(operation.y.nbytes, np.uint8)}
    after = {operand: memory.copy() for operand, memory in before.items()}
    run(operation, after)
    values = after["y"].view(np.float32).reshape(operation.y.dims)
    values[0, 1, 2, 3] += 1
    values[1, 3, 7, 6] += 9
    values[1, 3, 8, 7] += 3
    verdict = judge(operation, before, after)
    assert verdict.wrong == 3 and verdict.worst.index == (1, 3, 7, 6) and verdict.checked == values.size


@pytest.mark.parametrize("groups", [1, 4])
def test_each_part_is_blended_with_its_own_prior_values(monkeypatch, groups):
    """The backend and the judge blend each part with its own prior values."""
    monkeypatch.setattr(convolution_product, "LIMITS", convolution_product.Limits(block_bytes=500))
    monkeypatch.setattr(convolution_taps, "BLOCK_BYTES", 500)
    random = np.random.default_rng(6)
    x, w = (random.integers(-9, 10, dims).astype(np.float32) for dims in ((2, 4, 9, 8), (4, 4 // groups, 3, 3)))
    prior = random.integers(-9, 10, (2, 4, 9, 8)).astype(np.float32)
    operation = replace(forward(x, w, spec((1, 1), groups=groups)), alpha=0.5, beta=-2.0)
    before = {"x": bytes_of(x), "w": bytes_of(w), "y": bytes_of(prior)}
    after = {operand: memory.copy() for operand, memory in before.items()}
    run(operation, after)
    values = after["y"].view(np.float32).reshape(prior.shape)
    assert np.array_equal(values, by_loops(x, w, operation.convolution).astype(np.float64) / 2 - 2 * prior)
    verdict = judge(operation, before, after)
    assert verdict.agrees and verdict.checked == values.size
    values[1, 3, 8, 7] += 0.5
    assert judge(operation, before, after).wrong == 1


def test_results_are_rounded_once():
    """Sums near a tie of two halves, or just beyond the largest half, round as exact values do."""
    steps = np.array([1, 2.0**-11, 2.0**-15, 0], np.float16), np.array([1, 2.0**-11, -(2.0**-15), 0], np.float16)
    large = np.array([60000, 5504, 16, 0], np.float16), np.array([60000, 5504, 16, -(2.0**-15)], np.float16)
    x = np.stack([*steps, *large], axis=-1).reshape(1, 4, 2, 2)
    w = np.array([1, 1, 2.0**-15, 0], np.float16)
    for factors, expected in ((w, [1 + 2.0**-10, 1]), (np.array([1, 1, 1, 2.0**-15], np.float16), [np.inf, 65504])):
        operation = forward(x, factors.reshape(1, 4, 1, 1), spec((0, 0)), data_type=HALF)
        memory = {"x": bytes_of(x), "w": bytes_of(factors), "y": np.zeros(operation.y.nbytes, np.uint8)}
        run(operation, memory)
        found = memory["y"].view(np.float16)
        assert list(found[:2] if factors is w else found[2:]) == expected


@pytest.mark.parametrize("cut", [False, True])
def test_bias_activation(monkeypatch, cut):
    if cut:
        limits = convolution_product.Limits(block_bytes=500, weights=1, filters=2)
        monkeypatch.setattr(convolution_product, "LIMITS", limits)
    random = np.random.default_rng(4)
    x, w, c = (
        random.standard_normal((2, 3, 4, 4)),
        random.standard_normal((5, 3, 3, 3)),
        spec((1, 1), compute_type=DOUBLE),
    )
    z, bias = random.standard_normal((2, 5, 4, 4)), random.standard_normal((1, 5, 1, 1))
    x[0, 0, 0, 0] = np.nan
    conv = np.where(np.isnan(x).any(), 0, 0) + by_loops(np.nan_to_num(x), w, c).astype(np.float64)
    touched = np.zeros(conv.shape, bool)
    touched[0, :, :2, :2] = True
    base = forward(x, w, c, data_type=DOUBLE)
    for mode, alpha2 in product(
        (cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnActivationMode_t.CUDNN_ACTIVATION_IDENTITY), (0.0, -0.5)
    ):
        operation = ConvolutionBiasActivationForward(
            c, ActivationSpec(mode, Nan.CUDNN_NOT_PROPAGATE_NAN, 0.0), base.algo, 0, 2.0, alpha2, base.x, base.w, base.y,
            TensorSpec.packed(DOUBLE, bias.shape), base.y,
        )  # fmt: skip
        given_z = z if alpha2 else np.full_like(z, np.nan)
        memory = {name: bytes_of(a) for name, a in (("x", x), ("w", w), ("z", given_z), ("bias", bias), ("y", z))}
        run(operation, memory)
        got = memory["y"].view(np.float64).reshape(z.shape)
        expected = 2 * conv + alpha2 * z + bias
        if mode == cudnnActivationMode_t.CUDNN_ACTIVATION_RELU:
            expected = np.where(touched, 0, np.maximum(expected, 0))
        else:
            expected = np.where(touched, np.nan, expected)
        np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-13)


def test_memory_without_a_factor_may_hold_a_signalling_nan():
    """A signalling NaN in z with alpha2 = 0, or in y with beta = 0, gives neither a NaN nor a warning."""
    x, w, c = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 3, 3), np.float32), spec((0, 0))
    base = forward(x, w, c)
    operation = ConvolutionBiasActivationForward(
        c, ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, Nan.CUDNN_NOT_PROPAGATE_NAN, 0.0), base.algo, 0,
        1.0, 0.0, base.x, base.w, base.y, TensorSpec.packed(FLOAT, (1, 1, 1, 1)), base.y,
    )  # fmt: skip
    signalling = np.array([0x7F800001], np.uint32).view(np.uint8)
    memory = {
        "x": bytes_of(x),
        "w": bytes_of(w),
        "z": signalling,
        "bias": np.zeros(4, np.uint8),
        "y": signalling.copy(),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(operation, memory)
    assert memory["y"].view(np.float32) == 9


@pytest.mark.parametrize("mode", [CORRELATION, CONVOLUTION])
def test_im2col_agrees_with_plain_loops(mode):
    x = np.random.default_rng(2).standard_normal((2, 3, 5, 4)).astype(np.float32)
    c = spec((2, 1), (2, 1), (1, 2), mode=mode)
    taps = (3, 2)
    outputs = c.output_dims(x.shape, (1, 3, *taps))[2:]
    expected = np.zeros((2, *outputs, 3, *taps), np.float32)
    for n, p, q, channel, r, s in np.ndindex(expected.shape):
        at = (p * 2 - 2 + r, q - 1 + s * 2)
        if 0 <= at[0] < 5 and 0 <= at[1] < 4:
            place = (r, s) if mode == CORRELATION else (taps[0] - 1 - r, taps[1] - 1 - s)
            expected[(n, p, q, channel, *place)] = x[(n, channel, *at)]
    rows, columns = 2 * prod(outputs), 3 * prod(taps)
    operation = Im2Col(
        c,
        FilterSpec(FLOAT, NCHW, (1, 3, *taps)),
        TensorSpec.packed(FLOAT, x.shape),
        TensorSpec(FLOAT, (rows, columns), (columns, 1)),
    )
    memory = {"srcData": bytes_of(x), "colBuffer": np.zeros(rows * columns * 4, np.uint8)}
    run(operation, memory)
    assert np.array_equal(memory["colBuffer"].view(np.float32), expected.ravel())


@pytest.mark.parametrize("dims", [(32, 32, 1, 1), (64, 64, 3, 2)])
def test_reorder(dims):
    """Each scalar (k, c, r, s) of the plain filter moves to its place in the reordered filter."""
    filters, channels, rows, columns = dims
    w = np.random.default_rng(7).integers(-128, 128, prod(dims)).astype(np.int8)
    bias = np.arange(filters, dtype=np.float32)
    expected_w, expected_bias = np.zeros_like(w), np.zeros_like(bias)
    for k, c, r, s in np.ndindex(dims):
        plain = (((k * (channels // 32) + c // 32) * rows + r) * columns + s) * 32 + c % 32
        place = ((c // 32) * rows + r) * columns + s
        for index, extent in (
            (k // 32, filters // 32),
            (k // 8 % 4, 4),
            (k % 2, 2),
            (c // 4 % 8, 8),
            (k // 2 % 4, 4),
            (c % 4, 4),
        ):
            place = place * extent + index
        expected_w[place] = w[plain]
    for k in range(filters):
        expected_bias[(k // 32) * 32 + (k // 4 % 2) * 16 + (k // 8 % 4) * 4 + k % 4] = bias[k]
    described, bias_spec = FilterSpec(INT8x32, NCHW_VECT_C, dims), TensorSpec.packed(FLOAT, (1, filters, 1, 1))
    memory = {"filterData": bytes_of(w), "biasData": bytes_of(bias), "reorderedFilterData": np.zeros(w.size, np.uint8),
              "reorderedBiasData": np.zeros(filters * 4, np.uint8)}  # fmt: skip
    run(ReorderFilterAndBias(REORDER, described, described, bias_spec, bias_spec), memory)
    assert np.array_equal(memory["reorderedFilterData"].view(np.int8), expected_w)
    assert np.array_equal(memory["reorderedBiasData"].view(np.float32), expected_bias)
    run(ReorderFilter(COPY, described, described), memory)
    assert np.array_equal(memory["reorderedFilterData"].view(np.int8), w)


def test_a_reordered_filter_is_read_back():
    random = np.random.default_rng(9)
    dims, described = (64, 32, 3, 3), FilterSpec(INT8x32, NCHW_VECT_C, (64, 32, 3, 3))
    memory = {
        "filterData": bytes_of(random.integers(-128, 128, prod(dims)).astype(np.int8)),
        "reorderedFilterData": np.zeros(prod(dims), np.uint8),
    }
    run(ReorderFilter(REORDER, described, described), memory)
    x = bytes_of(random.integers(-128, 128, (1, 32, 4, 4)).astype(np.int8))
    c = spec((1, 1), compute_type=INT32)
    results = []
    for w, reorder in ((memory["filterData"], REORDER), (memory["reorderedFilterData"], COPY)):
        y = TensorSpec.packed(INT8x32, (1, 64, 4, 4), NCHW_VECT_C)
        operation = ConvolutionForward(replace(c, reorder_type=reorder), Algo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, 0, 1 / 256, 0.0,
                                       TensorSpec.packed(INT8x32, (1, 32, 4, 4), NCHW_VECT_C), described, y)  # fmt: skip
        output = np.zeros(y.nbytes, np.uint8)
        run(operation, {"x": x, "w": w, "y": output})
        results.append(output)
    assert np.array_equal(*results) and results[0].any()


@pytest.mark.parametrize("outputs, taps", [(2, 3), (4, 3), (2, 5), (4, 5)])
def test_winograd_matrices_compute_the_correlation(outputs, taps):
    a, g, b = convolution_bounds.winograd_matrices(outputs, taps)
    random = np.random.default_rng(outputs)
    d, f = random.integers(-9, 10, outputs + taps - 1), random.integers(-9, 10, taps)
    assert list(a @ ((g @ f) * (b @ d))) == [sum(d[i + j] * f[j] for j in range(taps)) for i in range(outputs)]


def winograd_float(x, w, outputs):
    """Return the convolution by Winograd F(outputs, 3) in float32, without padding."""
    a, g, b = (m.astype(np.float64).astype(np.float32) for m in convolution_bounds.winograd_matrices(outputs, 3))
    transformed = g @ w @ g.T
    y = np.zeros((x.shape[0], w.shape[0], x.shape[2] - 2, x.shape[3] - 2), np.float32)
    for p, q in product(range(0, y.shape[2], outputs), range(0, y.shape[3], outputs)):
        tile = b @ x[:, :, p : p + outputs + 2, q : q + outputs + 2] @ b.T
        summed = np.zeros((x.shape[0], w.shape[0], *tile.shape[2:]), np.float32)
        for channel in range(x.shape[1]):
            summed += tile[:, None, channel] * transformed[None, :, channel]
        y[:, :, p : p + outputs, q : q + outputs] = a @ summed @ a.T
    return y


def fft_float(x, w):
    """Return the convolution by FFT of whole images in float32, without padding."""
    size = [scipy.fft.next_fast_len(n, True) for n in x.shape[2:]]
    a, b = (scipy.fft.rfft2(v.astype(np.float32), size) for v in (x, w))
    assert a.dtype == np.complex64
    summed = np.zeros((x.shape[0], w.shape[0], *a.shape[2:]), np.complex64)
    for channel in range(x.shape[1]):
        summed += a[:, None, channel] * np.conj(b[None, :, channel])
    return scipy.fft.irfft2(summed, size)[:, :, : x.shape[2] - 2, : x.shape[3] - 2]


@pytest.mark.parametrize("kind", ["normal", "wide"])
@pytest.mark.parametrize("name", ["GEMM", "WINOGRAD", "WINOGRAD_NONFUSED", "FFT"])
def test_bounds_hold_for_real_float_algorithms(name, kind):
    """Each algorithm in float32 stays within its own bound, and no bound hides a wrong element."""
    random = np.random.default_rng(21)
    x, w = random.standard_normal((2, 8, 14, 14)), random.standard_normal((6, 8, 3, 3))
    if kind == "wide":
        x, w = x * np.exp2(random.integers(-8, 8, x.shape)), w * np.exp2(random.integers(-8, 8, w.shape))
    x, w = x.astype(np.float32), w.astype(np.float32)
    operation = forward(x, w, spec((0, 0)), Algo[f"CUDNN_CONVOLUTION_FWD_ALGO_{name}"])
    value, bound = allowed(operation, x, w, np.float32)
    match name:
        case "GEMM":
            got = np.zeros(value.shape, np.float32)
            for channel, r, s in np.ndindex(8, 3, 3):
                got += x[:, channel, r : r + 12, s : s + 12][:, None] * w[:, channel, r, s][None, :, None, None]
        case "WINOGRAD":
            got = winograd_float(x, w, 2)
        case "WINOGRAD_NONFUSED":
            got = winograd_float(x, w, 4)
        case "FFT":
            got = fft_float(x, w)
    error = np.abs(got - value)
    assert (error <= bound).all()
    assert error.max() > 0
    if kind == "normal":
        assert np.median(bound) < 0.05 * np.abs(value).max()


def test_tf32_and_half_sums_are_inside_their_bounds():
    random = np.random.default_rng(22)
    x, w = (
        random.standard_normal((1, 16, 8, 8)).astype(np.float32),
        random.standard_normal((4, 16, 3, 3)).astype(np.float32),
    )

    def tf32(values):
        bits = values.view(np.uint32)
        return ((bits + 0xFFF + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)).view(np.float32)

    for math_type, inside in ((cudnnMathType_t.CUDNN_DEFAULT_MATH, True), (FMA, False)):
        operation = forward(x, w, spec((0, 0), math_type=math_type))
        value, bound = allowed(operation, x, w, np.float32)
        rounded = convolution_product.convolve(
            tf32(x).astype(np.float64), tf32(w).astype(np.float64), operation.convolution
        )
        assert (np.abs(rounded - value) <= bound).all() == inside
    halves = [v.astype(np.float16) for v in (x, w)]
    operation = forward(*halves, spec((0, 0), compute_type=HALF), data_type=HALF)
    value, bound = allowed(operation, *halves, np.float16)
    summed = np.zeros(value.shape, np.float16)
    for channel, r, s in np.ndindex(16, 3, 3):
        summed += (
            halves[0][:, channel, r : r + 6, s : s + 6][:, None] * halves[1][:, channel, r, s][None, :, None, None]
        )
    assert (np.abs(summed - value) <= bound).all()


def test_tf32_can_be_forbidden(monkeypatch):
    x, w = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 3, 3), np.float32)
    operation = forward(x, w, spec((0, 0), math_type=cudnnMathType_t.CUDNN_DEFAULT_MATH))
    allowed_roundings = convolution_bounds.roundings(operation)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert convolution_bounds.roundings(operation) == 9 < allowed_roundings


def test_integer_sums_are_exact_until_they_leave_int32():
    x = np.full((1, 2**10, 12, 12), -128.0)
    w = np.full((1, 2**10, 11, 11), -128.0)
    c = spec((0, 0), compute_type=INT32)
    operation = replace(forward(x, w, c, data_type=INT8), y=TensorSpec.packed(FLOAT, (1, 1, 2, 2)))
    value, bound = allowed(operation, x, w, np.int8)
    assert (value == 2**10 * 121 * 2**14).all() and (bound < value * 1e-6).all()
    x, w = np.full((1, 2**10, 13, 12), -128.0), np.full((1, 2**10, 12, 11), -128.0)
    operation = replace(forward(x, w, c, data_type=INT8), y=TensorSpec.packed(FLOAT, (1, 1, 2, 2)))
    assert np.isinf(allowed(operation, x, w, np.int8)[1]).all()


@pytest.mark.parametrize("scale", [1.0, 1e-21, 1e-38, 1e18])
@pytest.mark.parametrize("terms", [1, 9, 576, 4608, 40000])
def test_sums_of_absolute_terms_in_float_are_upper_bounds(terms, scale):
    """The upper bound holds for float32 sums that err downwards, that are subnormal or that overflow."""
    random = np.random.default_rng(terms)
    for values in (random.uniform(0.5, 1, (2, terms)), np.full((2, terms), 1 + 2.0**-23), np.ones((2, terms))):
        a, b = (values * scale).astype(np.float32)
        b[1:] *= np.float32(2.0**-25)  # Sequential summation loses all terms after the first.
        exact = float(np.dot(a.astype(np.longdouble), b.astype(np.longdouble)))
        with np.errstate(over="ignore"):
            one_by_one = np.cumsum(a * b, dtype=np.float32)[-1:]
            found = convolution_bounds.at_least(np.array([np.dot(a, b), *one_by_one], np.float32), terms)
        assert np.all(found >= exact)
        assert np.all((found <= exact * (1 + 4 * terms * 2.0**-24) + terms * 2.0**-148) | np.isinf(found))
