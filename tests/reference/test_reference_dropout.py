"""Test dropout and its random numbers against published vectors, plain loops and the statistics of independent numbers."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from dualdnn.api.operations import DropoutBackward, DropoutForward, SetDropoutStates, TensorSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT
from dualdnn.reference import evaluate, run
from dualdnn.reference.philox import philox, words

DRAWS = 2**24
DEVIATIONS = 5
SEED = 0x123456789ABCDEF0


@pytest.fixture(scope="module")
def drawn():
    return words(SEED, 7, DRAWS)


@pytest.mark.parametrize("counter, key, expected", [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
])  # fmt: skip
def test_published_vectors(counter, key, expected):
    """Philox returns the vectors that its authors publish with Random123."""
    assert tuple(philox(counter, key)) == expected


def plain_philox(counter, key):
    """Compute Philox from its definition, with Python integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [second >> 32 ^ c[1] ^ k[0], second % 2**32, first >> 32 ^ c[3] ^ k[1], first % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def plain_word(seed, call, k, sequence=0):
    """Return the number of element k: two counters each give half k % 2 of word k % 8 // 2."""
    halves = [
        plain_philox((k // 8, of_halves, call % 2**32, call >> 32), (seed % 2**32, seed >> 32))[k % 8 // 2]
        >> 16 * (k % 2)
        & 0xFFFF
        for of_halves in (sequence, sequence + 2**31)
    ]
    return halves[0] << 16 | halves[1]


def test_words_of_elements():
    """Element k of a call has the word that docs/dropout.md defines."""
    for seed, call, count, sequence in ((SEED, 2**33 + 5, 11, 0), (5, 0, 4, 3)):
        found = words(seed, call, count, sequence)
        for k in range(count):
            assert found[k] == plain_word(seed, call, k, sequence)


def by_loops(operation, x, seed, call):
    """Return (y, mask) of a forward call."""
    y, mask = np.zeros(x.size), bytearray(operation.reserve_bytes)
    for k, value in enumerate(x.reshape(-1)):
        if plain_word(seed, call, k) / 2**32 >= operation.probability:
            y[k] = float(value) / (1 - operation.probability)
            mask[k // 8] |= 1 << k % 8
    return y.reshape(operation.y.dims), bytes(mask)


@pytest.mark.parametrize("probability", [0.0, 0.25, float(np.float32(0.7)), 1.0])
@pytest.mark.parametrize("data_type", [FLOAT, DOUBLE], ids=lambda t: t.name)
def test_formula(probability, data_type):
    """Two forward calls and the gradient of the second follow the formula, also if y has other dimensions than x."""
    x, y = TensorSpec.packed(data_type, (2, 3, 5)), TensorSpec.packed(data_type, (1, 6, 5))
    dtype = np.float32 if data_type == FLOAT else np.float64
    values = np.random.default_rng(0).normal(size=x.dims).astype(dtype)
    operation = DropoutForward(probability, x, y)
    memory = {
        "x": values.view(np.uint8).reshape(-1), "y": np.zeros(x.nbytes, np.uint8), "states": np.zeros(16, np.uint8),
        "reserveSpace": np.full(operation.reserve_bytes, 255, np.uint8),
    }  # fmt: skip
    run(SetDropoutStates(SEED), {"states": memory["states"]})
    for call in range(2):
        assert tuple(memory["states"].view("<u8")) == (SEED, call)
        expected, mask = by_loops(operation, values, SEED, call)
        assert np.allclose(evaluate(operation, memory)["y"].value.astype(float), expected, rtol=1e-14, atol=0)
        run(operation, memory)
        assert np.allclose(memory["y"].view(dtype).reshape(y.dims), expected, rtol=1e-6, atol=0)
        assert memory["reserveSpace"].tobytes() == mask
    gradient = {"dy": memory["x"], "dx": memory["y"], "reserveSpace": memory["reserveSpace"]}
    dx = evaluate(DropoutBackward(probability, x, y), gradient)["dx"].value
    assert np.allclose(dx.astype(float), expected, rtol=1e-14, atol=0)


# --- statistics of independent numbers ---


def near(count, draws, probability):
    """Tell whether a count of independent draws is within five standard deviations of its mean."""
    return abs(count - draws * probability) <= DEVIATIONS * sqrt(draws * probability * (1 - probability))


@pytest.mark.parametrize("probability", [1e-4, 0.1, 0.25, 0.5, 0.9, 0.999])
def test_kept_counts(drawn, probability):
    threshold = DropoutForward(
        probability, TensorSpec.packed(FLOAT, (1, 1, 1)), TensorSpec.packed(FLOAT, (1, 1, 1))
    ).threshold
    assert near(int((drawn < threshold).sum()), DRAWS, probability)


def test_every_bit(drawn):
    for bit in range(32):
        assert near(int((drawn >> np.uint32(bit) & 1).sum()), DRAWS, 0.5), bit


def test_bytes_are_uniform(drawn):
    """Bytes pass a chi-square test with 255 degrees of freedom: mean 255, standard deviation sqrt(510)."""
    counts = np.bincount(drawn.view(np.uint8), minlength=256)
    expected = drawn.nbytes / 256
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert abs(statistic - 255) <= DEVIATIONS * sqrt(510)


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 5, 7, 8, 31, 32, 256, 2048, 12345])
def test_neighbours_are_independent(drawn, distance):
    """Two elements of one counter block, or of different blocks, are kept together as often as independent ones."""
    kept = drawn >= 2**31
    assert near(int((kept[distance:] & kept[:-distance]).sum()), DRAWS - distance, 0.25)
    assert near(int((kept[distance:] ^ kept[:-distance]).sum()), DRAWS - distance, 0.5)


def test_runs(drawn):
    """Two neighbours differ as often as independent elements do, here at probability 0.3."""
    kept = drawn >= int(0.3 * 2**32)
    assert near(int((kept[1::2] != kept[::2]).sum()), DRAWS // 2, 2 * 0.3 * 0.7)


@pytest.mark.parametrize("seed, call, sequence", [
    (SEED, 8, 0), (SEED, 7 + 2**32, 0), (SEED + 1, 7, 0), (SEED ^ 1 << 32, 7, 0), (SEED ^ 1 << 63, 7, 0), (SEED, 7, 1),
])  # fmt: skip
def test_calls_seeds_and_sequences_are_independent(drawn, seed, call, sequence):
    other = words(seed, call, DRAWS // 4, sequence)
    same = drawn[: DRAWS // 4]
    for bit in (0, 15, 31):
        agree = int(((same ^ other) >> np.uint32(bit) & 1).sum())
        assert near(agree, DRAWS // 4, 0.5)
