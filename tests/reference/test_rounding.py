"""Test rounding to every data type against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32, UINT8
from dualdnn.reference.view import NUMPY_TYPES, rounded

# data type -> (precision in bits, lowest exponent, largest finite)
FORMATS = {
    HALF: (11, -14, Fraction(65504)),
    BFLOAT16: (8, -126, Fraction(2) ** 128 - Fraction(2) ** 120),
    FLOAT: (24, -126, Fraction(2) ** 128 - Fraction(2) ** 104),
}


def nearest(value: float, precision: int, lowest: int, largest: Fraction) -> float:
    """Round to nearest, ties to even, by the definition."""
    exact = Fraction(value)
    if exact == 0:
        return value
    exponent = max(lowest, math.frexp(value)[1] - 1)
    step = Fraction(2) ** (exponent - precision + 1)
    whole, rest = divmod(exact / step, 1)
    up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    result = (whole + up) * step
    return float(result) if abs(result) <= largest else float("inf") * (1 if result > 0 else -1)


def hard_values(precision: int) -> np.ndarray:
    random = np.random.default_rng(1)
    base = random.uniform(1, 2, 300) * np.exp2(random.integers(-20, 17, 300))
    ulp = np.exp2(np.floor(np.log2(base)) - precision + 1)
    halfway = (np.floor(base / ulp) + 0.5) * ulp
    near = [
        halfway,
        np.nextafter(halfway, np.inf),
        np.nextafter(halfway, -np.inf),
        halfway * (1 + 2.0**-40),
        halfway * (1 - 2.0**-40),
    ]
    values = np.concatenate(
        [
            base,
            *near,
            [
                0.0,
                65519.0,
                65520.0,
                65504.0,
                1e-8,
                5.96e-8,
                2.98e-8,
                2.9802322387695312e-08,
                6.1e-5,
                3.4e38,
                3.5e38,
                1e-40,
            ],
        ]
    )
    return np.concatenate([values, -values])


@pytest.mark.parametrize("data_type", list(FORMATS), ids=lambda t: t.name)
@pytest.mark.parametrize("wide", [np.float64, np.longdouble])
def test_floats_are_rounded_once(data_type, wide):
    values = hard_values(FORMATS[data_type][0])
    got = rounded(values.astype(wide), data_type).astype(np.float64)
    expected = np.array([nearest(value, *FORMATS[data_type]) for value in values])
    assert (got == expected).all(), values[got != expected]


def test_every_value_between_two_halves_is_rounded_once():
    """A tie rounds to the even half, other values to the nearer half, also between subnormals."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    low, high = halves[:-1], halves[1:]
    middle = (low + high) / 2
    even = np.where(np.arange(len(low)) % 2 == 0, low, high)
    for sign in (-1, 1):
        for values, expected in ((middle, even), (np.nextafter(middle, 0), low), (np.nextafter(middle, 1e9), high)):
            assert np.array_equal(rounded(sign * values, HALF).astype(np.float64), sign * expected)


def test_long_double_is_rounded_once_into_double():
    values = np.longdouble(1) + np.longdouble(2) ** -53 + np.array([0, 1, -1], np.longdouble) * np.longdouble(2) ** -62
    assert rounded(values, DOUBLE).tolist() == [1.0, 1.0 + 2.0**-52, 1.0]


@pytest.mark.parametrize("data_type", [INT8, UINT8, INT32], ids=lambda t: t.name)
def test_integers_round_to_even_and_saturate(data_type):
    limits = np.iinfo(NUMPY_TYPES[data_type])
    values = np.array(
        [
            0.5,
            1.5,
            2.5,
            -0.5,
            -1.5,
            3.49,
            3.51,
            limits.max,
            limits.max + 0.5,
            limits.max + 1.0,
            limits.min - 1.0,
            1e30,
            -1e30,
            np.inf,
            -np.inf,
            np.nan,
        ]
    )
    expected = [
        min(max(round(v), limits.min), limits.max)
        if np.isfinite(v)
        else {np.inf: limits.max, -np.inf: limits.min}.get(v, 0)
        for v in values
    ]
    assert rounded(values, data_type).tolist() == expected
