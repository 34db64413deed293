"""Test the reference of multi-head attention against plain loops over the formulas of 7.2.43."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnMultiHeadAttnWeightKind_t as Kind
from dualdnn.api.operations.attention.memory import weights_of
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.conformance.cases.attention.attention_forward import attention, forward, with_projections
from dualdnn.conformance.trial import prepare
from dualdnn.reference import evaluate, judge, run
from dualdnn.reference.attention import tracked
from dualdnn.reference.running import Running
from dualdnn.reference.view import read, strided

Q, K, V, O, Q_BIAS, K_BIAS, V_BIAS, O_BIAS = Kind  # noqa: E741


def weight(attn, weights, kind, head, row, column):
    """Return an element of a weight tensor, by the strides that cudnnGetMultiHeadAttnWeights returns."""
    part = weights_of(attn)[kind]
    return float(weights[part.offset + sum(i * s for i, s in zip((head, row, column), part.strides, strict=True))])


def projected(attn, weights, vector, kind, bias, head):
    """Return W x + b, or x where the projection is off."""
    parts = weights_of(attn)
    if kind not in parts:
        return [float(x) for x in vector]
    rows = range(parts[kind].dims[1])
    added = [weight(attn, weights, bias, head, row, 0) if bias in parts else 0.0 for row in rows]
    return [
        math.fsum([*(weight(attn, weights, kind, head, row, c) * float(x) for c, x in enumerate(vector)), added[row]])
        for row in rows
    ]


def attend(attn, weights, query, keys, values):
    """Return the output for one query that attends to these keys and values."""
    joined, summed = [], [0.0] * attn.o_projected
    for head in range(attn.heads):
        q = projected(attn, weights, query, Q, Q_BIAS, head)
        scores = [
            attn.scaler
            * math.fsum(a * b for a, b in zip(projected(attn, weights, key, K, K_BIAS, head), q, strict=True))
            for key in keys
        ]
        terms = [math.exp(score - max(scores)) for score in scores]
        vectors = [projected(attn, weights, value, V, V_BIAS, head) for value in values]
        h = [
            math.fsum(t * v[c] for t, v in zip(terms, vectors, strict=True)) / math.fsum(terms) if terms else 0.0
            for c in range(attn.value_size)
        ]
        joined += h
        for row in range(attn.o_projected):
            summed[row] += math.fsum(weight(attn, weights, O, head, row, c) * x for c, x in enumerate(h))
    if not attn.o_projected:
        return joined
    return [x + (weight(attn, weights, O_BIAS, 0, row, 0) if attn.has_biases else 0.0) for row, x in enumerate(summed)]


def outputs(operation, arrays):
    """Return {(time, batch, beam): output vector} for every query within its sequence."""
    attn, found = operation.attn, {}
    _, batches, beams, _ = operation.queries.dims
    key_beams = operation.keys.dims[2]
    for batch, beam in product(range(batches), range(beams)):
        key_beam = beam if key_beams > 1 else 0
        length = operation.queries.lengths[batch * beams + beam]
        key_length = operation.keys.lengths[batch * key_beams + key_beam]
        for window, (low, high) in enumerate(zip(operation.lo_win_idx, operation.hi_win_idx, strict=True)):
            time = operation.first_step + window
            if time >= length:
                continue
            chosen = range(max(low, 0), min(high, key_length))
            keys, values = ([arrays[name][j, batch, key_beam] for j in chosen] for name in ("keys", "values"))
            vector = attend(attn, arrays.get("weights"), arrays["queries"][time, batch, beam], keys, values)
            if operation.residuals:
                vector = [a + float(b) for a, b in zip(vector, arrays["residuals"][time, batch, beam], strict=True)]
            found[time, batch, beam] = vector
    return found


def arrays_of(operation, memory):
    return {name: read(operation.tensor(name), memory[name], np.float64) for name in operation.tensors_read}


OPERATIONS = [
    *(forward(with_projections(*on, mode=mode, data_type=DOUBLE), low=(0, 1, 0, 2), high=(5, 4, 2, 2))
      for on, mode in product(((1, 1, 1, 1), (0, 0, 0, 0), (1, 0, 0, 1), (0, 1, 1, 0)), (0, 2))),
    forward(attention(mode=3, data_type=DOUBLE), key_lengths=(5, 1, 2, 0), axes=(1, 2, 0, 3)),
    forward(attention((2, 2, 2, 6), (6, 5, 4), data_type=DOUBLE), residuals=True, current=2, low=(9, 9, 1, 9), high=(0, 0, 4, 0)),
    forward(attention(scaler=25.0, data_type=DOUBLE), trains=True),
]  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS, ids=range(len(OPERATIONS)))
def test_forward_agrees_with_plain_loops(operation):
    memory = prepare(operation, "normal", 1)
    exact = evaluate(operation, memory)["out"]
    due = outputs(operation, arrays_of(operation, memory))
    before = memory["out"].copy()
    run(operation, memory)
    stored = read(operation.out.tensor, memory["out"], np.float64)
    for index in np.ndindex(operation.out.dims[:3]):
        if index in due:
            np.testing.assert_allclose(exact.value[index].astype(float), due[index], rtol=1e-12, atol=1e-13)
            np.testing.assert_allclose(stored[index], due[index], rtol=1e-12, atol=1e-13)
        elif operation.first_step <= index[0] < operation.first_step + len(operation.lo_win_idx):
            assert not stored[index].any() and np.isinf(exact.magnitude[index]).all()  # padding
        else:
            old = read(operation.out.tensor, before, np.float64)
            np.testing.assert_array_equal(stored[index], old[index])


def in_half(values):
    return values.astype(np.float16).astype(np.float32)


def in_tf32(values):
    return ((values.view(np.uint32) + 0x1000) & ~np.uint32(0x1FFF)).view(np.float32)


KEPT = {"float": (FLOAT, np.asarray, 0.005), "half": (HALF, in_half, 0.01), "tf32": (FLOAT, in_tf32, 0.01)}


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("number", range(6))
def test_bounds_hold_for_arithmetic_in_float(monkeypatch, number, kind):
    """Arithmetic in float stays within the bounds in another order of summation, also with operands in half or TF32.
    Its largest error is near them."""
    data_type, keep, least = KEPT[kind]
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1" if kind == "tf32" else "0")
    attn = with_projections(number % 2, 1, 1, number % 3 != 0, data_type=data_type)
    operation = forward(attn, lengths=None)
    memory = prepare(operation, "normal", number)
    exact = evaluate(operation, memory)["out"]
    wide = arrays_of(operation, memory)
    narrow = {name: keep(array.astype(np.float32)) for name, array in wide.items()}
    ratio = 0.0
    parts = {kind: np.lib.stride_tricks.as_strided(narrow["weights"][p.offset :], p.dims, [4 * s for s in p.strides])
             for kind, p in weights_of(attn).items()}  # fmt: skip

    def project(vectors, kind, bias):
        if kind not in parts:
            return np.repeat(vectors[None], attn.heads, axis=0)
        return keep(np.stack([vectors @ parts[kind][h].T + parts[bias][h].T for h in range(attn.heads)]))

    for batch, beam in np.ndindex(operation.out.dims[1:3]):
        q = project(narrow["queries"][:, batch, beam], Q, Q_BIAS)
        k, v = (project(narrow[n][:, batch, 0], a, b) for n, a, b in (("keys", K, K_BIAS), ("values", V, V_BIAS)))
        scores = np.float32(attn.scaler) * q @ k.swapaxes(1, 2)
        terms = np.exp(scores - scores.max(axis=-1, keepdims=True))
        heads = keep(keep(terms) @ v / terms.sum(axis=-1, keepdims=True))
        joined = heads.swapaxes(0, 1).reshape(heads.shape[1], -1)
        if O in parts:
            joined = joined @ parts[O].swapaxes(1, 2).reshape(-1, attn.o_projected) + parts[O_BIAS][0].T
        assert joined.dtype == np.float32
        errors = np.abs(joined - exact.value[:, batch, beam]) / (2.0**-24 * exact.magnitude[:, batch, beam])
        ratio = max(ratio, float(errors.max()))
    assert least < ratio < 1


def test_results_after_a_score_beyond_float_are_not_judged():
    """A score of 1e40 is infinite in float, so its product with zero may be NaN and is not judged."""
    a = tracked.Arithmetic(Running(2.0**-24), largest=float(np.finfo(np.float32).max))
    first, second = (
        tracked.Tracked.exact(np.array([[1e20, 1.0]]), a),
        tracked.Tracked.exact(np.array([[1e20], [1.0]]), a),
    )
    score = tracked.product(first, second).scaled(0.0)
    assert score.value.tolist() == [[0.0]] and np.isinf(score.error).all()
    smaller = tracked.product(first, tracked.Tracked.exact(np.array([[1e10], [1.0]]), a)).scaled(0.0)
    assert np.isfinite(smaller.error).all()


@pytest.mark.parametrize("off, suspect", [(110, 0), (160, 16)])
def test_how_far_sums_of_numbers_of_one_sign_may_be_off(monkeypatch, off, suspect):
    """Three standard deviations of 1000 additions are 3 sqrt(2 * 1000), or 134, roundings; the worst case is 1000."""
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    attn = attention((0, 0, 8, 0), (4, 4, 1000), heads=1, mode=0)
    operation = forward(attn, steps=(2, 1), batches=1, beams=1, lengths=None)
    before = prepare(operation, "positive", 0)
    after = {name: memory.copy() for name, memory in before.items()}
    run(operation, after)
    out = strided(operation.out.tensor, after["out"])
    out[...] = out * (1 + off * 2.0**-24)
    verdict = judge(operation, before, after, random=True)
    assert verdict.agrees and verdict.errors["out"].beyond == suspect


def test_a_key_beyond_half_that_has_no_share_is_not_judged():
    """A projected key of 1e5 may be stored in half as an infinity, and its score be NaN, or be a finite number. Only
    queries that do not attend to that key are judged."""
    operation = forward(with_projections(1, 1, 0, 0, data_type=HALF), lengths=None, low=(0, 1, 1, 1), high=(5, 5, 5, 5))
    memory = prepare(operation, "normal", 0)
    strided(operation.keys.tensor, memory["keys"])[0] = 6e4
    weights = strided(operation.weights, memory["weights"])
    weights[...] = np.abs(weights)
    strided(operation.queries.tensor, memory["queries"])[...] = -1.0
    exact = evaluate(operation, memory)["out"]
    assert np.isfinite(exact.value).all()
    assert np.isinf(exact.magnitude[0]).all() and np.isfinite(exact.magnitude[1:]).all()
