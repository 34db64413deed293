"""Compare gradients of attention, the CTC loss and recurrent networks with central differences in extended precision."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from attention_configurations import PROJECTIONS, configuration
from ctc_configurations import SHORT, sequences
from dualdnn.api.operations.specs import DOUBLE
from rnn_configurations import GATES
from rnn_configurations import configuration as network
from test_attention_oracle import computed as attention_of_reference
from test_ctc_oracle import computed as ctc_of_reference
from test_rnn_oracle import computed as network_of_reference

DIGITS = 50  # decimal digits of mpmath
STEP = mpmath.mpf(10) ** -15  # step of a difference quotient
exp, log = np.frompyfunc(mpmath.exp, 1, 1), np.frompyfunc(mpmath.log, 1, 1)
tanh = np.frompyfunc(mpmath.tanh, 1, 1)


def wide(array):
    return np.frompyfunc(mpmath.mpf, 1, 1)(np.asarray(array, float)).astype(object)


def slopes(function, array):
    """Return central differences of a function for each element of an array that it reads."""
    found = np.zeros(array.shape)
    for index in np.ndindex(array.shape):
        middle, sides = array[index], []
        for offset in (STEP, -STEP):
            array[index] = middle + offset
            sides.append(function())
        array[index] = middle
        found[index] = float((sides[0] - sides[1]) / (2 * STEP))
    return found


def slopes_along(function, array, directions):
    """Return central differences of a function for each vector of an array (its last axis) along a direction."""
    found = np.zeros(directions.shape[:-1])
    for index in np.ndindex(found.shape):
        middle, sides = array[index].copy(), []
        for offset in (STEP, -STEP):
            array[index] = middle + offset * wide(directions[index])
            sides.append(function())
        array[index] = middle
        found[index] = float((sides[0] - sides[1]) / (2 * STEP))
    return found


def weighted_outputs(c, arrays):
    """Return the sum of dout * out in 50 digits; residuals add nothing to these gradients."""
    total = mpmath.mpf(0)
    for at, keys_at in c.sequences():
        q, k, v, dout = (
            arrays[n][p] for n, p in (("queries", at), ("keys", keys_at), ("values", keys_at), ("dout", at))
        )
        for head in range(c.heads):
            of = {n: arrays[f"w{n}"][head].T for n in PROJECTIONS if f"w{n}" in arrays}
            a, b, h = (x @ of[n] if n in of else x for n, x in (("q", q), ("k", k), ("v", v)))
            terms = exp(mpmath.mpf(c.scaler) * (a @ b.T))
            made = (terms / terms.sum(axis=1, keepdims=True)) @ h
            size = made.shape[1]
            part = made @ of["o"] if "o" in of else made
            total += (part * (dout if "o" in of else dout[:, head * size : (head + 1) * size])).sum()
    return total


@pytest.mark.parametrize("number", [0, 30, 35, 47, 79, 95, 125, 201])
def test_gradients_of_attention(number):
    c = configuration(number)
    found = attention_of_reference(c, DOUBLE)
    with mpmath.workdps(DIGITS):
        arrays = {name: wide(array) for name, array in c.arrays.items()}
        for name in set(found) - {"out"}:
            due = slopes(lambda: weighted_outputs(c, arrays), arrays[name[1:]])
            np.testing.assert_allclose(found[name].astype(float), due, rtol=1e-13, atol=1e-13, err_msg=name)


def cost_of(x, labels):
    """Return -ln of the sum over alignments of one sequence (time, class); mpmath has any exponent, so nothing is scaled."""
    terms = exp(x)
    p = terms / terms.sum(axis=1, keepdims=True)
    states = np.zeros(2 * len(labels) + 1, int)
    states[1::2] = labels
    skips = (states[2:] != 0) & (states[2:] != states[:-2])
    alpha = wide(np.zeros(len(states)))
    alpha[:2] = p[0, states[:2]]
    for row in p[1:]:
        reach = alpha.copy()
        reach[1:] += alpha[:-1]
        reach[2:][skips] += alpha[:-2][skips]
        alpha = reach * row[states]
    return -mpmath.log(alpha[-2:].sum())


@pytest.mark.parametrize("number", [n for n in range(SHORT) if sequences(n).normalizes and sequences(n).x.size < 90])
def test_gradients_of_ctc(number):
    s = sequences(number)
    costs, gradients = ctc_of_reference(number)
    with mpmath.workdps(DIGITS):
        for n, (labels, times) in enumerate(zip(s.labels, s.input_lengths, strict=True)):
            x = wide(s.x[:times, n])
            assert costs[n] == pytest.approx(float(cost_of(x, labels)), rel=1e-13, abs=1e-13)
            due = slopes(lambda x=x, labels=labels: cost_of(x, labels), x)
            np.testing.assert_allclose(gradients[:times, n], due, rtol=1e-11, atol=1e-13)
            assert not gradients[times:, n].any()


@pytest.mark.parametrize("number", [SHORT, SHORT + 2])
def test_gradients_of_500_labels(number):
    """The slope along one random direction agrees for sequences of 2000 and of 1000 time steps."""
    s = sequences(number)
    costs, gradients = ctc_of_reference(number)
    times = s.input_lengths[0]
    direction = np.random.RandomState(number).standard_normal(s.x[:times, 0].shape)
    sides = [rescaled_cost(s.x[:times, 0], direction, step, s.labels[0]) for step in (1e-5, -1e-5)]
    assert costs[0] == pytest.approx(float(sum(sides) / 2), rel=1e-8)
    slope = float((sides[0] - sides[1]) / np.longdouble(2e-5))
    assert slope == pytest.approx(float((gradients[:times, 0] * direction).sum()), rel=1e-7, abs=1e-7)


def rescaled_cost(x, direction, step, labels):
    """Return the same cost in the machine's widest floats, with each time step scaled."""
    x = x.astype(np.longdouble) + np.longdouble(step) * direction
    p = np.exp(x - x.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    states = np.zeros(2 * len(labels) + 1, int)
    states[1::2] = labels
    skips = (states[2:] != 0) & (states[2:] != states[:-2])
    alpha, cost = np.zeros(len(states), np.longdouble), np.longdouble(0)
    alpha[:2] = p[0, states[:2]]
    for row in p[1:]:
        cost -= np.log(alpha.sum())
        alpha /= alpha.sum()
        reach = alpha.copy()
        reach[1:] += alpha[:-1]
        reach[2:][skips] += alpha[:-2][skips]
        alpha = reach * row[states]
    return cost - np.log(alpha[-2:].sum())


def cell(n, weights, x, h, c):
    """Return (output, cell state) after a step of one sequence."""
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    own, state = (np.split(part, GATES[n.cell]) for part in (w_ih @ x + b_ih, w_hh @ h + b_hh))

    def sigmoid(gate):
        return 1 / (1 + exp(-own[gate] - state[gate]))

    if n.cell == "lstm":
        c = sigmoid(1) * c + sigmoid(0) * tanh(own[2] + state[2])
        if n.clip:
            c = np.array([min(max(value, mpmath.mpf(-n.clip)), mpmath.mpf(n.clip)) for value in c], object)
        h = sigmoid(3) * tanh(c)
        return (w_hr @ h if n.projected else h), c
    if n.cell == "gru":
        update = sigmoid(1)
        return (1 - update) * tanh(own[2] + sigmoid(0) * state[2]) + update * h, c
    total = own[0] + state[0]
    return (tanh(total) if n.cell == "tanh" else np.array([max(value, mpmath.mpf(0)) for value in total], object)), c


def weighted_states(n, arrays, weights):
    """Return the sum of dy * y, dhy * hy and, for an LSTM, dcy * cy."""
    total = mpmath.mpf(0)
    for b, length in enumerate(n.lengths):
        vectors = [arrays["x"][t, b] for t in range(length)]
        for layer in range(n.layers):
            outputs = [[] for _ in range(length)]
            for p in range(layer * n.directions, (layer + 1) * n.directions):
                h, c = arrays["hx"][p, b], arrays["cx"][p, b]
                for t in reversed(range(length)) if p % n.directions else range(length):
                    h, c = cell(n, weights[p], vectors[t], h, c)
                    outputs[t].append(h)
                total += (h * n.arrays["dhy"][p, b]).sum()
                total += (c * n.arrays["dcy"][p, b]).sum() if n.cell == "lstm" else 0
            vectors = [np.concatenate(parts) for parts in outputs]
        total += sum((vectors[t] * n.arrays["dy"][t, b]).sum() for t in range(length))
    return total


@pytest.mark.parametrize(
    "number", [17, 47, 71, *(pytest.param(n, marks=pytest.mark.long) for n in (12, 30, 52, 101, 113))]
)
def test_gradients_of_recurrent_networks(number):
    """The slopes of each input and state vector, matrix and bias along a random direction agree."""
    n, random = network(number), np.random.RandomState(number)
    found = network_of_reference(n)
    with mpmath.workdps(DIGITS):
        arrays = {name: wide(n.arrays[name]) for name in ("x", "hx", "cx")}
        weights = [[wide(part) for part in parts] for parts in n.weights]
        for name in {"dx", "dhx", "dcx"} & set(found):
            directions = random.standard_normal(found[name].shape)
            due = slopes_along(lambda: weighted_states(n, arrays, weights), arrays[name[1:]], directions)
            np.testing.assert_allclose((found[name] * directions).sum(-1), due, rtol=1e-11, atol=1e-11, err_msg=name)
        for p, parts in enumerate(weights):
            for i, kind in enumerate(("w_ih", "w_hh", "b_ih", "b_hh", "w_hr")[: 5 if n.projected else 4]):
                direction = random.standard_normal(parts[i].shape).ravel()
                slope = slopes_along(lambda: weighted_states(n, arrays, weights), parts[i].reshape(-1), direction)
                along = found[f"{kind}{p}"].ravel() @ direction
                np.testing.assert_allclose(along, slope, rtol=1e-11, atol=1e-11, err_msg=f"{kind}{p}")
