"""Test the pooling reference against plain loops over the elements, by the definition."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.enumerations import cudnnPoolingMode_t as Mode
from dualdnn.api.operations import PoolingBackward, PoolingForward, PoolingSpec, TensorSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT8
from dualdnn.reference import engine, judge, run
from dualdnn.reference.pooling import pooling_backward, pooling_forward
from looped import for_each

Array = np.ndarray[Any, Any]
MAXIMA = (Mode.CUDNN_POOLING_MAX, Mode.CUDNN_POOLING_MAX_DETERMINISTIC)
INCLUDE = Mode.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
LOWEST = {HALF: -65504.0, FLOAT: -3.4028234663852886e38, DOUBLE: -1.7976931348623157e308, INT8: -128.0}

# (spatial extents, window, padding, stride, outputs)
GEOMETRIES = [
    ((5, 6), (3, 3), (1, 1), (2, 2), (3, 3)),
    ((5, 6), (2, 3), (0, 1), (1, 2), (4, 3)),
    ((4, 5), (2, 2), (2, 3), (1, 3), (7, 4)),
    ((6, 7), (3, 2), (-1, -2), (1, 1), (2, 2)),
    ((6, 7), (3, 2), (-1, -2), (2, 2), (4, 5)),
    ((4, 4), (7, 9), (2, 1), (1, 1), (2, 2)),
    ((4, 4), (2, 2), (0, 0), (3, 3), (2, 2)),
    ((5, 4), (2, 2), (1, 0), (2, 1), (5, 6)),
    ((3, 4, 3), (2, 3, 2), (1, 1, 0), (2, 1, 1), (2, 4, 2)),
]


def window_of(spec: PoolingSpec, output: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield all positions of a window in row-major order, also outside the input."""
    starts = [o * s - p for o, s, p in zip(output, spec.stride, spec.padding, strict=True)]
    return itertools.product(*(range(start, start + w) for start, w in zip(starts, spec.window, strict=True)))


def inside(position: tuple[int, ...], extents: tuple[int, ...]) -> bool:
    return all(0 <= p < extent for p, extent in zip(position, extents, strict=True))


def first_maximum(spec: PoolingSpec, plane: Array, output: tuple[int, ...]) -> tuple[int, ...] | None:
    best = None
    for position in window_of(spec, output):
        if not inside(position, plane.shape):
            continue
        value = plane[position]
        if math.isnan(value):
            if spec.nan == Nan.CUDNN_PROPAGATE_NAN:
                return position
        elif best is None or value > plane[best]:
            best = position
    return best


def divisor(spec: PoolingSpec, extents: tuple[int, ...], output: tuple[int, ...]) -> int:
    """Count the positions in the input, or in the input and its padding."""
    margins = [max(p, 0) if spec.mode == INCLUDE else 0 for p in spec.padding]
    return sum(
        all(-margin <= p < extent + margin for p, extent, margin in zip(position, extents, margins, strict=True))
        for position in window_of(spec, output)
    )


def forward_by_loops(operation: PoolingForward, x: Array) -> Array:
    spec, y = operation.pooling, np.full(operation.y.dims, np.nan)
    extents = x.shape[2:]
    for n, c, *rest in np.ndindex(*y.shape):
        output = tuple(rest)
        plane = x[n, c]
        if spec.mode in MAXIMA:
            where = first_maximum(spec, plane, output)
            y[n, c, *output] = LOWEST[operation.y.data_type] if where is None else plane[where]
            continue
        values = [plane[position] for position in window_of(spec, output) if inside(position, extents)]
        count = divisor(spec, extents, output)
        if count:
            finite = all(map(math.isfinite, values))
            y[n, c, *output] = float(sum(map(Fraction, values)) / count) if finite else sum(values) / count
    return y


def backward_by_loops(operation: PoolingBackward, dy: Array, x: Array) -> Array:
    spec, dx = operation.pooling, np.zeros(x.shape, dy.dtype)
    extents = x.shape[2:]
    for n, c, *rest in np.ndindex(*dy.shape):
        output = tuple(rest)
        if spec.mode in MAXIMA:
            where = first_maximum(spec, x[n, c], output)
            if where is not None:
                dx[n, c, *where] += dy[n, c, *output]
            continue
        covered = [position for position in window_of(spec, output) if inside(position, extents)]
        for position in covered:
            dx[n, c, *position] += dy[n, c, *output] / divisor(spec, extents, output)
    return dx


def specification(mode: Mode, geometry: tuple[Any, ...], nan: Nan) -> PoolingSpec:
    _, window, padding, stride, _ = geometry
    return PoolingSpec(mode, nan, window, padding, stride)


def numbers(shape: tuple[int, ...], kind: str, seed: int) -> Array:
    random = np.random.default_rng(seed)
    if kind == "ties":
        return random.integers(-2, 3, shape).astype(np.float64)
    values = random.standard_normal(shape)
    if kind == "special":
        chosen = random.random(shape) < 0.4
        values[chosen] = random.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], int(chosen.sum()))
    if kind == "few":
        values[random.random(shape) < 0.8] = np.nan
    return values


@for_each("nan", list(Nan))
@for_each("kind", ["normal", "ties", "special"])
@for_each("geometry", GEOMETRIES)
@for_each("mode", list(Mode))
def test_forward_agrees_with_plain_loops(mode, geometry, kind, nan):
    dims, outputs = (2, 2, *geometry[0]), (2, 2, *geometry[-1])
    for data_type in LOWEST:
        x, y = TensorSpec.packed(data_type, dims), TensorSpec.packed(data_type, outputs)
        operation = PoolingForward(specification(mode, geometry, nan), 1.0, 0.0, x, y)
        values = numbers(dims, kind, 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            got, expected = pooling_forward(operation, values).value, forward_by_loops(operation, values)
        np.testing.assert_allclose(got, expected, rtol=1e-14, atol=1e-15)


@for_each("nan", list(Nan))
@for_each("kind", ["normal", "ties", "special", "few"])
@for_each("geometry", GEOMETRIES)
@for_each("mode", list(Mode))
def test_backward_agrees_with_plain_loops(mode, geometry, kind, nan):
    dims, outputs = (2, 2, *geometry[0]), (2, 2, *geometry[-1])
    x, y = TensorSpec.packed(FLOAT, dims), TensorSpec.packed(FLOAT, outputs)
    operation = PoolingBackward(specification(mode, geometry, nan), 1.0, 0.0, y, y, x, x)
    values, dy = numbers(dims, kind, 2), numbers(outputs, "normal", 3)
    expected = backward_by_loops(operation, dy, values)
    for arithmetic in (np.float64, np.longdouble):
        with np.errstate(invalid="ignore", divide="ignore"):
            got = pooling_backward(operation, None, dy.astype(arithmetic), values).value
        np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-14)


@pytest.fixture
def plane_by_plane(monkeypatch):
    """Make each part one plane, so that small tensors have several parts."""
    caches = (engine._prepared, engine.launcher)
    for cache in caches:
        cache.cache_clear()
    monkeypatch.setattr(engine, "PLANES_BYTES", 1)
    yield
    for cache in caches:
        cache.cache_clear()


@for_each("blend", [(1.0, 0.0), (0.3, 0.0), (1.0, -2.0)])
@for_each("data_type", [HALF, FLOAT, DOUBLE])
@for_each("nan", list(Nan))
@for_each("geometry", GEOMETRIES)
def test_the_backend_stores_the_gradient_rounded_once(plane_by_plane, geometry, nan, data_type, blend):
    """Computing part by part, or in the stored type where windows do not overlap, gives the bits of wide arithmetic."""
    dims, outputs = (2, 2, *geometry[0]), (2, 2, *geometry[-1])
    x, y = TensorSpec.packed(data_type, dims), TensorSpec.packed(data_type, outputs)
    operation = PoolingBackward(specification(MAXIMA[0], geometry, nan), *blend, y, y, x, x)
    dtype = {HALF: np.float16, FLOAT: np.float32, DOUBLE: np.float64}[data_type]
    values, dy = (numbers(shape, "special", seed).astype(dtype) for shape, seed in ((dims, 2), (outputs, 3)))
    before = numbers(dims, "normal", 4).astype(dtype)
    memory = {"y": np.zeros(y.nbytes, np.uint8), "dx": before.view(np.uint8).ravel().copy()}
    run(operation, memory | {"x": values.view(np.uint8).ravel(), "dy": dy.view(np.uint8).ravel()})
    wide = np.longdouble if data_type == DOUBLE else np.float64
    with np.errstate(invalid="ignore"):
        expected = blend[0] * backward_by_loops(operation, dy.astype(wide), values) + blend[1] * before.astype(wide)
        expected = expected.astype(dtype)
    np.testing.assert_array_equal(memory["dx"].view(dtype).reshape(dims), expected)


@pytest.mark.parametrize("mode", [m for m in Mode if m not in MAXIMA], ids=lambda m: m.name)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_backward_is_the_transpose_of_the_average(mode, geometry):
    """<dy, pool(x)> equals <gradient(dy), x> over the windows that are not empty."""
    dims, outputs = (1, 1, *geometry[0]), (1, 1, *geometry[-1])
    x, y = TensorSpec.packed(FLOAT, dims), TensorSpec.packed(FLOAT, outputs)
    spec = specification(mode, geometry, Nan.CUDNN_NOT_PROPAGATE_NAN)
    values, dy = numbers(dims, "normal", 4), numbers(outputs, "normal", 5)
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = np.nan_to_num(pooling_forward(PoolingForward(spec, 1.0, 0.0, x, y), values).value)
        dx = pooling_backward(PoolingBackward(spec, 1.0, 0.0, y, y, x, x), pooled, dy, values).value
    assert np.isclose((dy * pooled).sum(), (dx * values).sum(), rtol=1e-12)


@pytest.mark.parametrize("geometry", GEOMETRIES[:4], ids=str)
def test_the_bound_holds_for_any_order_and_no_further(geometry):
    """Float sums in random order, times a rounded reciprocal, stay within the bound; a sum that lacks one input does not."""
    dims, outputs = (1, 1, *geometry[0]), (1, 1, *geometry[-1])
    x, y = TensorSpec.packed(FLOAT, dims), TensorSpec.packed(FLOAT, outputs)
    spec = specification(INCLUDE, geometry, Nan.CUDNN_NOT_PROPAGATE_NAN)
    operation = PoolingForward(spec, 1.0, 0.0, x, y)
    values = np.random.default_rng(6).uniform(0.5, 2, dims).astype(np.float32)
    exact = pooling_forward(operation, values.astype(np.float64))
    magnitude, roundings = exact.magnitude, exact.roundings
    assert callable(magnitude) and callable(roundings)
    bound = 2.0**-24 * np.broadcast_to(roundings() * magnitude(), outputs)
    random = np.random.default_rng(7)
    for index in np.ndindex(*outputs):
        window = [values[0, 0][p] for p in window_of(spec, index[2:]) if inside(p, dims[2:])]
        if not window:
            continue
        reciprocal = np.float32(1) / np.float32(divisor(spec, dims[2:], index[2:]))
        for _ in range(20):
            total = np.float32(0)
            for value in random.permutation(window):
                total += np.float32(value)
            assert abs(float(total * reciprocal) - exact.value[index]) <= bound[index]
        assert abs(float(min(window) * reciprocal)) > 100 * bound[index]


def test_integer_sums_are_exact_where_the_divisor_is_a_power_of_two():
    """Such averages are exact, so ties must round to even."""
    spec = PoolingSpec(INCLUDE, Nan.CUDNN_NOT_PROPAGATE_NAN, (1, 2), (0, 0), (1, 2))
    operation = PoolingForward(
        spec, 1.0, 0.0, TensorSpec.packed(INT8, (1, 1, 1, 6)), TensorSpec.packed(INT8, (1, 1, 1, 3))
    )
    exact = pooling_forward(operation, np.array([1, 2, 3, 4, -1, -2], np.float64).reshape(1, 1, 1, 6))
    assert exact.value.ravel().tolist() == [1.5, 3.5, -1.5]
    assert callable(exact.roundings) and not np.any(exact.roundings())


@pytest.mark.parametrize("is_backward, window", [(True, (3, 5)), (False, (1, 3))])
def test_averages_by_a_rounded_reciprocal_are_not_suspect(is_backward, window):
    """Rounded reciprocals give all elements errors of one sign, which is right; a reciprocal one unit off is suspect."""
    pooling = PoolingSpec(Mode.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING, Nan(0), window, (0, 0), window)
    x, y = (TensorSpec.packed(FLOAT, (4, 8, 12 * height, 15 * width)) for height, width in (window, (1, 1)))
    random, once = np.random.default_rng(1), np.float32(1 / math.prod(window))
    away = 1 if float(once) * math.prod(window) > 1 else 0  # direction of the less exact neighbour of the reciprocal
    for times, suspect in ((once, False), (np.nextafter(once, np.float32(away)), True)):
        if is_backward:
            operation = PoolingBackward(pooling, 1.0, 0.0, y, y, x, x)
            held = {"y": random.standard_normal(y.dims), "dy": random.standard_normal(y.dims), "x": np.zeros(x.dims)}
            found = np.kron(held["dy"].astype(np.float32) * times, np.ones(window, np.float32))
        else:
            operation = PoolingForward(pooling, 1.0, 0.0, x, y)
            held = {"x": random.standard_normal(x.dims)}
            taken = held["x"].astype(np.float32)
            found = (taken[..., ::3] + taken[..., 1::3] + taken[..., 2::3]) * times
        before = {name: array.astype(np.float32).view(np.uint8).ravel() for name, array in held.items()}
        (output,) = operation.outputs
        after = before | {output: found.astype(np.float32).view(np.uint8).ravel()}
        verdict = judge(operation, before | {output: np.zeros_like(after[output])}, after, random=True)
        assert (verdict.agrees and not verdict.suspicions) != suspect, (suspect, verdict.suspicions)
