"""Test the reference of recurrent networks against plain loops over one cell and one sequence."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from dualdnn.api import cudnn
from dualdnn.api.enumerations import (
    cudnnDirectionMode_t,
    cudnnNanPropagation_t,
    cudnnRNNBiasMode_t,
    cudnnRNNClipMode_t,
    cudnnRNNDataLayout_t,
    cudnnRNNInputMode_t,
    cudnnRNNMode_t,
)
from dualdnn.api.operations import RNNBackwardData, RNNBackwardWeights, RNNForward, TensorSpec
from dualdnn.api.operations.rnn import RNNClipSpec, RNNDataSpec, RNNSpec, reserve, workspace
from dualdnn.api.operations.rnn.network import GRU, LSTM, RELU, TANH
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.cases.rnn.rnn_backward import training
from dualdnn.conformance.cases.rnn.rnn_descriptors import DEFAULT, NO_BIAS, ONE_WAY
from dualdnn.conformance.cases.rnn.rnn_forward import EXACT, forward, infinite_recurrent, network
from dualdnn.conformance.trial import Step, attempt_chain, prepare
from dualdnn.reference import judge, run
from dualdnn.reference.attention import tracked
from dualdnn.reference.philox import philox
from dualdnn.reference.rnn.bounded import Arithmetic, Bounded, Matrix, affine
from dualdnn.reference.running import Running
from dualdnn.reference.view import strided
from looped import for_each

SEQ_MAJOR, PACKED, BATCH_MAJOR = cudnnRNNDataLayout_t
PROPAGATE = cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


class Loops:
    """Compute one network by the equations of 7.1.2.8, number by number."""

    def __init__(self, network: RNNSpec, weights: np.ndarray) -> None:
        self.n, self.w = network, weights

    def product(self, place, vector):
        """Return a row-major matrix times a vector, or the vector if the matrix is absent."""
        if place is None:
            return list(vector)
        return [
            sum(self.w[place.offset + row * place.columns + i] * vector[i] for i in range(place.columns))
            for row in range(place.rows)
        ]

    def bias(self, pseudo_layer, weight_id):
        place = self.n.bias_vector(pseudo_layer, weight_id)
        return [0.0] * self.n.hidden if place is None else list(self.w[place.offset : place.end])

    def cell(self, p, x, h, c):
        """Return (output, cell state) of pseudo-layer p after one more vector."""
        n, size = self.n, range(self.n.hidden)
        own = [self.product(n.matrix(p, g), x) for g in range(n.gates)]
        state = [self.product(n.matrix(p, n.gates + g), h) for g in range(n.gates)]
        b_w = [self.bias(p, g) for g in range(n.gates)]
        b_r = [self.bias(p, n.gates + g) for g in range(n.gates)]
        total = [[own[g][j] + state[g][j] + b_w[g][j] + b_r[g][j] for j in size] for g in range(n.gates)]
        if n.cell == LSTM:
            c = [sigmoid(total[1][j]) * c[j] + sigmoid(total[0][j]) * math.tanh(total[2][j]) for j in size]
            if n.clip.is_on:
                c = [min(max(value, n.clip.lower), n.clip.upper) for value in c]
            h = [sigmoid(total[3][j]) * math.tanh(c[j]) for j in size]
            return (self.product(n.matrix(p, 8), h) if n.is_projected else h), c
        if n.cell == GRU:
            r, i = ([sigmoid(value) for value in total[g]] for g in (0, 1))
            new = [math.tanh(own[2][j] + b_w[2][j] + r[j] * (state[2][j] + b_r[2][j])) for j in size]
            return [(1 - i[j]) * new[j] + i[j] * h[j] for j in size], c
        return [max(value, 0.0) if n.cell == RELU else math.tanh(value) for value in total[0]], c

    def passed_on(self, vectors, layer, sequence, batch, states):
        """Return the input of the next layer after dropout, by one random word for each element (docs/dropout.md)."""
        seed, call = (int(number) for number in states.view("<u8"))
        word, width = 2**32 - 1, len(vectors[0]) if vectors else 0

        def kept(t, element):
            k = (t * batch + sequence) * width + element
            upper, lower = (
                int(philox((k // 8, of_halves, call & word, call >> 32), (seed & word, seed >> 32))[k % 8 // 2])
                >> 16 * (k % 2)
                for of_halves in (layer + 1, layer + 1 + 2**31)
            )
            return (upper % 2**16 << 16 | lower % 2**16) >= self.n.dropout * 2**32

        return [
            [value / (1 - self.n.dropout) if kept(t, e) else 0.0 for e, value in enumerate(vector)]
            for t, vector in enumerate(vectors)
        ]

    def sequence(self, vectors, hx, cx, sequence=0, batch=1, states=None):
        """Return (last outputs, final h and c of each pseudo-layer) of one sequence; ``states`` are the dropout states."""
        finals = []
        for layer in range(self.n.layers):
            ways = []
            for direction in range(self.n.directions):
                p = layer * self.n.directions + direction
                h, c, found = list(hx[p]), list(cx[p]), {}
                for t in reversed(range(len(vectors))) if direction else range(len(vectors)):
                    h, c = self.cell(p, vectors[t], h, c)
                    found[t] = h
                finals.append((h, c))
                ways.append(found)
            vectors = [[value for way in ways for value in way[t]] for t in range(len(vectors))]
            if self.n.drops and layer < self.n.layers - 1:
                vectors = self.passed_on(vectors, layer, sequence, batch, states)
        return vectors, finals


def networks():
    modes = product(cudnnRNNMode_t, cudnnRNNBiasMode_t, cudnnDirectionMode_t, cudnnRNNInputMode_t, (False, True))
    for cell, bias, direction, input_mode, special in modes:
        if special and cell != LSTM:
            continue
        clip = (
            RNNClipSpec(cudnnRNNClipMode_t.CUDNN_RNN_CLIP_MINMAX, PROPAGATE, -0.25, 0.5) if special else RNNClipSpec()
        )
        yield RNNSpec(
            cell=cell, bias=bias, direction=direction, input_mode=input_mode, data_type=DOUBLE, precision=DOUBLE,
            input_size=4 if input_mode else 3, hidden=4, projected=3 if special else 4, layers=2, padded=True, clip=clip,
        )  # fmt: skip


def dropping():
    """Return networks with dropout between three layers."""
    chosen = {(n.cell, n.directions, n.is_projected): n for n in networks() if n.bias and not n.skips_input}
    return [replace(n, layers=3, dropout=0.375) for n in chosen.values()]


def forward_of(n: RNNSpec, layout=SEQ_MAJOR, lengths=(4, 2, 3), fill=2.5) -> RNNForward:
    steps, batch = max(lengths), len(lengths)
    x, y = (RNNDataSpec(DOUBLE, layout, steps, batch, size, lengths, fill) for size in (n.input_size, n.output_size))
    h, c = (TensorSpec.packed(DOUBLE, (n.pseudo_layers, batch, size)) for size in (n.projected, n.hidden))
    c = c if n.cell == LSTM else None
    return RNNForward(
        n, True, x, h, c, TensorSpec.packed(DOUBLE, (1, n.weight_elements, 1)), y, h, c,
        workspace(n, steps, batch), reserve(n, steps, batch, True),
    )  # fmt: skip


def random_memory(operation, seed=0, scale=0.7):
    random, memory = np.random.default_rng(seed), {}
    for name in operation.operands:
        count = operation.nbytes(name)
        values = scale * random.standard_normal(-(-count // 8))
        memory[name] = np.frombuffer(values.tobytes(), np.uint8)[:count].copy()
    return memory


def numbers(operation, memory, name):
    """Return an operand as an array (step or pseudo-layer, sequence, element)."""
    spec = getattr(operation, name)
    values = np.frombuffer(memory[name], np.float64)
    if isinstance(spec, RNNDataSpec):
        if spec.layout == PACKED:
            found = np.full((spec.max_length, spec.batch, spec.vector), np.nan)
            rows = iter(values.reshape(-1, spec.vector))
            for t, batch in enumerate(spec.batches):
                for b in range(batch):
                    found[t, b] = next(rows)
            return found
        outer = (spec.batch, spec.max_length) if spec.layout == BATCH_MAJOR else (spec.max_length, spec.batch)
        values = values.reshape(*outer, spec.vector)
        return values.swapaxes(0, 1) if spec.layout == BATCH_MAJOR else values
    return values.reshape(spec.dims)


@for_each(
    "network",
    [*networks(), *dropping()],
)
def test_forward_is_the_equations(network):
    compare(forward_of(network))


@pytest.mark.parametrize("layout, lengths", [(PACKED, (5, 3, 1)), (BATCH_MAJOR, (2, 5, 0)), (SEQ_MAJOR, (1, 0, 6))])
def test_every_layout_agrees_with_plain_loops(layout, lengths):
    network = next(n for n in networks() if n.cell == LSTM and n.directions == 2 and n.is_projected)
    compare(forward_of(network, layout, lengths))


def compare(operation):
    memory = random_memory(operation)
    x, h, weights = (
        numbers(operation, memory, "x"),
        numbers(operation, memory, "hx"),
        np.frombuffer(memory["weightSpace"]),
    )
    c = numbers(operation, memory, "cx") if operation.cx else np.zeros((*h.shape[:2], operation.network.hidden))
    states = memory["states"].copy() if operation.draws else None
    run(operation, memory)
    y, hy = numbers(operation, memory, "y"), numbers(operation, memory, "hy")
    for b, length in enumerate(operation.x.lengths):
        due, finals = Loops(operation.network, weights).sequence(
            list(x[:length, b]), h[:, b], c[:, b], b, operation.x.batch, states
        )
        if length:
            np.testing.assert_allclose(y[:length, b], due, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(hy[:, b], [h for h, _ in finals], rtol=1e-12, atol=1e-14)
        if operation.cy:
            np.testing.assert_allclose(
                numbers(operation, memory, "cy")[:, b], [c for _, c in finals], rtol=1e-12, atol=1e-14
            )
        if operation.y.layout != PACKED:
            assert (y[length:, b] == 2.5).all()


def chain_of(forward):
    """Return the two backward operations of a forward operation."""
    n, h, c = forward.network, forward.hx, forward.cx
    data = RNNBackwardData(
        n, forward.y, forward.y, h, h, c, c, forward.weightSpace, forward.x, h, c, forward.workspace, forward.reserve
    )
    weights = RNNBackwardWeights(n, forward.x, h, forward.y, forward.weightSpace, forward.workspace, forward.reserve)
    return data, weights


@for_each(
    "network",
    [*networks(), *dropping()],
)
@for_each("layout", [SEQ_MAJOR, PACKED])
def test_backward_is_the_slope_of_forward(network, layout):
    """Each gradient is the central difference of forward along a random direction of its input."""
    forward = forward_of(network, layout, (3, 2, 1), None)
    data, weights = chain_of(forward)
    memory = {**random_memory(data, 1), **random_memory(weights, 2), **random_memory(forward)}
    outputs = {"y": "dy", "hy": "dhy", "cy": "dcy"}
    states = {"states": memory["states"].copy()} if forward.draws else {}
    run(forward, memory)
    run(data, memory)
    before = np.frombuffer(memory["dweightSpace"].tobytes())
    run(weights, memory)
    gradients = {"x": "dx", "hx": "dhx", "cx": "dcx"}
    found = {
        name: np.frombuffer(memory[gradient].tobytes()) for name, gradient in gradients.items() if forward.has(name)
    }
    found["weightSpace"] = np.frombuffer(memory["dweightSpace"].tobytes()) - before

    def loss(name, change):
        changed = {key: value.copy() for key, value in (memory | states).items()}
        changed[name] = np.frombuffer((np.frombuffer(memory[name].tobytes()) + change).tobytes(), np.uint8).copy()
        run(forward, changed)
        total = 0.0
        for output, gradient in outputs.items():
            if forward.has(output):
                y, dy = numbers(forward, changed, output), numbers(data, memory, gradient)
                valid = np.isfinite(y)
                if output == "y":
                    valid &= (np.arange(forward.y.max_length)[:, None] < np.asarray(forward.y.lengths))[..., None]
                total += float(np.sum(y[valid] * dy[valid]))
        return total

    random = np.random.default_rng(4)
    for name, gradient in found.items():
        direction = random.standard_normal(gradient.size)
        if name == "x":
            direction[~np.isfinite(gradient)] = 0
        if name == "x" and layout == SEQ_MAJOR:
            valid = np.arange(forward.x.max_length)[:, None] < np.asarray(forward.x.lengths)
            direction *= np.repeat(valid.reshape(-1), forward.x.vector)
        step = 1e-6
        slope = (loss(name, step * direction) - loss(name, -step * direction)) / (2 * step)
        assert np.dot(np.nan_to_num(gradient), direction) == pytest.approx(slope, rel=2e-6, abs=2e-8), name


# NVIDIA's version 8 sample prints these sums: 20 steps, 64 sequences, 2 layers of 512, matrices of 2^-18, all else 1.
# cell -> (y, hy, cy, dx, dhx, dcx, dweightSpace), None for states that the cell lacks
PUBLISHED = {
    "CUDNN_RNN_RELU": (1.315793e06, 1.315212e05, None, 6.676003e01, 6.425050e01, None, 1.453750e09),
    "CUDNN_RNN_TANH": (6.319591e05, 6.319605e04, None, 4.501830e00, 4.489543e00, None, 5.012598e07),
    "CUDNN_LSTM": (5.749536e05, 5.774818e04, 4.365091e05, 3.842206e02, 1.182562e01, 9.323785e03, 4.313461e08),
    "CUDNN_GRU": (6.358978e05, 6.281680e04, None, 6.296622e00, 2.289960e05, None, 5.397419e07),
}


# Each cell takes two seconds. LSTM covers the products of the others; the oracles of tests/oracles have every cell.
@pytest.mark.parametrize(
    "cell", [pytest.param(cell, marks=[pytest.mark.long] * (cell != "CUDNN_LSTM")) for cell in PUBLISHED]
)
def test_published_sums(cell):
    """All 64 sequences of the sample are equal, so the test computes only one."""
    network = RNNSpec(
        cell=cudnnRNNMode_t[cell],
        data_type=DOUBLE,
        precision=DOUBLE,
        input_size=512,
        hidden=512,
        projected=512,
        layers=2,
    )
    forward = forward_of(network, PACKED, (20,), None)
    memory = {}
    for operation in (forward, *chain_of(forward)):
        for name in operation.operands:
            memory[name] = np.frombuffer(np.ones(-(-operation.nbytes(name) // 8)).tobytes(), np.uint8).copy()
    weights = np.full(network.weight_elements, 2.0**-18)
    weights[network.bias_vector(0, 0).offset :] = 1.0
    memory["weightSpace"] = np.frombuffer(weights.tobytes(), np.uint8).copy()
    memory["dweightSpace"][:] = 0
    for operation in (forward, *chain_of(forward)):
        run(operation, memory)
    names = ("y", "hy", "cy", "dx", "dhx", "dcx", "dweightSpace")
    for name, due in zip(names, PUBLISHED[cell], strict=True):
        if due is not None:
            assert 64 * np.frombuffer(memory[name]).sum() == pytest.approx(due, rel=3e-5), name


@pytest.mark.parametrize("data_type", [HALF, FLOAT], ids=lambda t: t.name)
def test_results_after_a_state_beyond_half_are_not_judged(data_type):
    """HALF may store a state of 100,000 between two layers as an infinity, which the second layer turns into NaN."""
    spec = network(RELU, NO_BIAS, ONE_WAY, data_type=data_type, width=2, hidden=2, layers=2)
    o = forward(spec, SEQ_MAJOR, (1, 1), training=False, null=("hx",))
    before = prepare(o, "normal", 0)
    x, weights = (strided(o.tensor(name), before[name]) for name in ("x", "weightSpace"))
    x[:, 0], x[:, 1] = 1000, 1
    weights[...] = 50
    weights[0, -8:, 0] = 0.25
    after = {name: memory.copy() for name, memory in before.items()}
    run(o, after)
    assert judge(o, before, after).agrees
    strided(o.tensor("y"), after["y"])[:, 0] = np.nan
    strided(o.tensor("hy"), after["hy"])[1, 0] = np.nan
    assert judge(o, before, after).agrees == (data_type == HALF)
    strided(o.tensor("y"), after["y"])[0, 1, 0] += 1
    assert judge(o, before, after).wrong == (1 if data_type == HALF else 5)


def test_zeros_times_a_state_beyond_half_are_not_judged():
    """A weight of zero turns an infinite state into NaN, so states and gradients of the next layer are not judged."""
    spec = network(RELU, NO_BIAS, ONE_WAY, data_type=HALF, width=2, hidden=2, layers=2)
    o = forward(spec, SEQ_MAJOR, (1,), null=("hx",))
    before = prepare(o, "normal", 0)
    strided(o.tensor("x"), before["x"])[...] = 1000, 1
    weights = strided(o.tensor("weightSpace"), before["weightSpace"])
    weights[...] = 0
    weights[0, [0, 3, 9, 11], 0] = 100, 1, 0.25, -0.25  # The states are 100,000 and 1, the next sums 0.25 and -0.25.
    after = {name: memory.copy() for name, memory in before.items()}
    run(o, after)
    assert strided(o.tensor("y"), after["y"]).ravel().tolist() == [0.25, 0.0]
    strided(o.tensor("y"), after["y"])[...] = np.nan
    strided(o.tensor("hy"), after["hy"])[1] = np.nan
    verdict = judge(o, before, after)
    assert verdict.agrees
    data = replace(chain_of(o)[0], hx=None)
    memory = prepare(data, "normal", 0) | {"weightSpace": before["weightSpace"]}
    later = {name: bytes_.copy() for name, bytes_ in memory.items()}
    run(data, later | {"reserveSpace": after["reserveSpace"]})
    strided(data.tensor("dx"), later["dx"])[..., 1] = 0
    assert judge(data, memory, later, {"reserveSpace": verdict.kept["reserveSpace"]}).agrees
    strided(data.tensor("dx"), later["dx"])[..., 0] += 7
    assert judge(data, memory, later, {"reserveSpace": verdict.kept["reserveSpace"]}).wrong == 1


def wrong_elements(x, state_weight, found, dy=np.nan, output="dx"):
    """Count the wrong elements of an output for each number in ``found`` that fills it. A ReLU gets x and 0.1 with
    weights of 1 and 2^-24 - 1, and a missing initial state with ``state_weight``."""
    spec = network(RELU, NO_BIAS, ONE_WAY, width=2, hidden=1, layers=1)
    o = forward(spec, SEQ_MAJOR, (1,), null=("hx",))
    before = prepare(o, "normal", 0)
    strided(o.tensor("x"), before["x"])[...] = x, 0.1
    strided(o.tensor("weightSpace"), before["weightSpace"])[0, :, 0] = 1.0, 2.0**-24 - 1.0, state_weight
    after = {name: memory.copy() for name, memory in before.items()}
    run(o, after)
    kept = {"reserveSpace": judge(o, before, after).kept["reserveSpace"]}
    data = replace(chain_of(o)[0], hx=None, dhx=TensorSpec.packed(FLOAT, (1, 1, 1)))
    memory = prepare(data, "normal", 0) | {"weightSpace": before["weightSpace"]}
    strided(data.tensor("dy"), memory["dy"])[...] = dy
    counts = []
    for number in found:
        later = {name: bytes_.copy() for name, bytes_ in memory.items()}
        run(data, later | {"reserveSpace": after["reserveSpace"]})
        strided(data.tensor(output), later[output])[...] = number
        counts.append(judge(data, memory, later, kept).wrong)
    return counts


@pytest.mark.parametrize("x, wrong", [(0.1, 0), (np.inf, 2)], ids=["rounding", "infinity"])
def test_a_relu_passes_or_stops_nan_where_rounding_decides_the_sign(x, wrong):
    """The sign of a rounding error is unknown, so a ReLU may pass a NaN of dy or stop it. An infinite sum has a sign."""
    assert wrong_elements(x, 1.0, (np.nan, 0)) == [0, wrong]


@pytest.mark.parametrize("x, wrong", [(0.1, 0), (-1.0, 2)], ids=["rounding", "negative"])
def test_an_omitted_product_may_change_which_gradients_pass_a_relu(x, wrong):
    """A missing initial state times an infinite weight is NaN, which stops dy at the ReLU. If that product is left out,
    a rounding error may pass the NaN of dy, but a negative sum stops it."""
    assert wrong_elements(x, np.inf, (np.nan, 0)) == [wrong, 0]


def test_a_gradient_that_may_pass_times_an_infinity():
    """A ReLU passes an infinite dy or zero; times an infinite weight, that is infinite or NaN."""
    assert wrong_elements(0.1, np.inf, (np.inf, np.nan), np.inf, "dhx") == [0, 0]


@pytest.mark.parametrize("data_type", [HALF, FLOAT], ids=lambda t: t.name)
def test_gradients_of_weights_that_met_a_state_beyond_half_are_not_judged(data_type):
    spec = network(RELU, NO_BIAS, ONE_WAY, data_type=data_type, width=1, hidden=1, layers=2)
    o = forward(spec, SEQ_MAJOR, (1,), null=("hx",))
    memory = {}
    for operation in (o, *(replace(one, hx=None) for one in chain_of(o))):
        memory = prepare(operation, "normal", 0) | memory
    strided(o.tensor("x"), memory["x"])[...] = 1000
    strided(o.tensor("weightSpace"), memory["weightSpace"])[0, :, 0] = 100, 1, 1, 1
    data, weights = (replace(one, hx=None) for one in chain_of(o))
    run(o, memory)
    run(data, memory)
    before = {name: memory[name].copy() for name in weights.operands}
    run(weights, memory)
    after = {name: memory[name].copy() for name in weights.operands}
    strided(weights.tensor("dweightSpace"), after["dweightSpace"])[0, 2] = np.nan  # weight of the state of 100,000
    assert judge(weights, before, after, {"reserveSpace": before["reserveSpace"]}).agrees == (data_type == HALF)


def test_results_after_a_state_beyond_float_are_not_judged():
    """The second layer subtracts 1e60 from itself: in float, that is NaN, or zero after the ReLU."""
    spec = network(RELU, NO_BIAS, ONE_WAY, width=2, hidden=2, layers=2)
    o = forward(spec, SEQ_MAJOR, (1,), training=False, null=("hx",))
    before = prepare(o, "normal", 0)
    strided(o.tensor("x"), before["x"])[...] = 1e30, 1
    weights = strided(o.tensor("weightSpace"), before["weightSpace"])
    weights[...] = 0
    weights[0, [0, 2, 8, 9, 11], 0] = 1e30, 1e30, 1, -1, 1
    after = {name: memory.copy() for name, memory in before.items()}
    run(o, after)
    strided(o.tensor("y"), after["y"])[...] = np.nan
    strided(o.tensor("hy"), after["hy"])[1] = np.nan
    assert judge(o, before, after).agrees
    strided(o.tensor("x"), before["x"])[..., 0] = 1
    run(o, before)
    assert judge(o, before, before).agrees
    strided(o.tensor("y"), before["y"])[0, 0, 0] = np.nan
    assert judge(o, before, before).wrong == 1


@pytest.mark.parametrize("data_type, wrong", [(HALF, 0), (FLOAT, 2)], ids=["half", "float"])
def test_states_that_may_have_been_stored_between_layers(data_type, wrong):
    """(1 + a)^2 - (1 + 2a) is a^2, or 0 if the square was stored in HALF before."""
    spec = network(RELU, NO_BIAS, ONE_WAY, data_type=data_type, width=2, hidden=2, layers=2)
    o = forward(spec, SEQ_MAJOR, (1,), training=False, null=("hx",))
    before, a = prepare(o, "normal", 0), 3 * 2.0**-10
    strided(o.tensor("x"), before["x"])[...] = 1 + a, 1 + 2 * a
    weights = strided(o.tensor("weightSpace"), before["weightSpace"])
    weights[...] = 0
    weights[0, [0, 3, 8, 9], 0] = 1 + a, 1, 1, -1
    after = {name: memory.copy() for name, memory in before.items()}
    run(o, after)
    y, hy = (strided(o.tensor(name), after[name]) for name in ("y", "hy"))
    assert judge(o, before, after).agrees and y[..., 0].item() == pytest.approx(a * a, rel=1e-3)
    y[..., 0] = hy[1, :, 0] = 0
    assert judge(o, before, after).wrong == wrong
    y[..., 0] = hy[1, :, 0] = 2.0**-9
    assert judge(o, before, after).wrong == 2


@pytest.mark.parametrize("data_type, wrong", [(HALF, 0), (FLOAT, 2)], ids=["half", "float"])
def test_a_state_beyond_the_range_of_half_makes_an_infinity_uncertain(data_type, wrong):
    """Zero times a state of 100,000, plus an infinity, is infinite, or NaN if HALF stored the state as infinity."""
    spec = network(RELU, NO_BIAS, ONE_WAY, data_type=data_type, width=2, hidden=2, layers=2)
    o = forward(spec, SEQ_MAJOR, (1,), training=False, null=("hx",))
    before = prepare(o, "normal", 0)
    strided(o.tensor("x"), before["x"])[...] = 1000, 1
    weights = strided(o.tensor("weightSpace"), before["weightSpace"])
    weights[...] = 0
    weights[0, [0, 3, 9], 0] = 100, 1, np.inf
    after = {name: memory.copy() for name, memory in before.items()}
    run(o, after)
    assert judge(o, before, after).agrees and np.isinf(strided(o.tensor("y"), after["y"])[..., 0])
    strided(o.tensor("y"), after["y"])[..., 0] = strided(o.tensor("hy"), after["hy"])[1, :, 0] = np.nan
    assert judge(o, before, after).wrong == wrong


@pytest.mark.parametrize("factor, wrong", [(1e30, 0), (1e3, 2)])
def test_a_function_of_a_sum_beyond_float_is_not_judged(factor, wrong):
    """1e60 - 5e59 is NaN in float, although its tanh is 1 in double; 1e33 - 5e32 is a number in float, too."""
    o = forward(
        network(TANH, NO_BIAS, ONE_WAY, width=2, hidden=1, layers=1), SEQ_MAJOR, (1,), training=False, null=("hx",)
    )
    before = prepare(o, "normal", 0)
    strided(o.tensor("x"), before["x"])[...] = 1e30
    strided(o.tensor("weightSpace"), before["weightSpace"])[0, :, 0] = factor, -factor / 2, 0
    after = {name: memory.copy() for name, memory in before.items()}
    run(o, after)
    assert strided(o.tensor("y"), after["y"]).item() == 1
    for name in ("y", "hy"):
        strided(o.tensor(name), after[name])[...] = np.nan
    assert judge(o, before, after).wrong == wrong


@pytest.mark.parametrize("function, falling", [("tanh", 2), ("sigmoid", 1)])
def test_functions_of_numbers_that_may_be_far_off(function, falling):
    """1 - tanh(25)^2 is zero in double, but the error must allow for the slope at 5, where the number may be."""
    unit = 2.0**-24
    a = Arithmetic(Running(unit))
    for value, least in ((25.0, 5.0), (60.0, 0.5), (3.0, 2.9), (1.0, 1.0)):
        near, far = (Bounded(np.array([v]), np.array([[(v - least) / unit]]), a) for v in (value, least))
        found, exact = getattr(near, function)(), getattr(far, function)().value
        slope = np.exp(-falling * least)
        assert a.reach(found.error) >= found.value - exact
        assert a.reach(found.error) <= min(2.0, 4 * slope * (value - least)) + 20 * unit


def test_errors_that_go_along_with_numbers_grow_as_these_do():
    """Correlated errors add like independent ones in sums of mixed signs, and linearly in sums of one sign."""
    a, ones = Arithmetic(Running(2.0**-24), expects=True), np.ones((1, 16))
    mixed = np.where(np.arange(16)[:, np.newaxis] & np.arange(16) & 1, -1.0, 1.0) * np.where(np.arange(16) & 2, -1, 1)
    for matrix, grown in ((np.ones((16, 16)), 16**2), (mixed, 16)):
        errors = (each * np.ones((2, 1, 16)) for each in (0, 1))
        exact, known = (affine([(Bounded(ones, error, a), Matrix(matrix, a))]) for error in errors)
        assert (known.error - exact.error).tolist() == [[[16] * 16], [[grown] * 16]]


def test_small_numbers_of_half_are_rounded_to_the_nearest_multiple_of_the_least():
    a = Arithmetic(Running(2.0**-24), stored=2.0**13)
    numbers = Bounded(np.array([0.0, 2.0**-20, 2.0**-14, 1.0]), None, a)
    assert (a.of_storing(numbers) * 2.0**-24).tolist() == [[0.0, 2.0**-25, 2.0**-25, 2.0**-11]]


def product_in_rnn(first, second):
    a = Arithmetic(Running(2.0**-24, smallest=2.0**-126), factors=2.0**13)
    return affine([(Bounded(first, None, a), Matrix(second.T, a))])


def product_in_attention(first, second):
    a = tracked.Arithmetic(Running(2.0**-24, smallest=2.0**-126), factors=2.0**13)
    return tracked.product(tracked.Tracked.exact(first, a), tracked.Tracked.exact(second, a))


@pytest.mark.parametrize("product", [product_in_rnn, product_in_attention])
def test_subnormal_factors_are_rounded_to_multiples_of_the_smallest_number_of_tf32(product):
    """TF32 rounds 1e-40 to 9 * 2^-136, by 3 %."""
    small, rounded = 1e-40, 9 * 2.0**-136
    for pair in ((small, 6e4), (6e4, small)):
        found = product(*(np.array([[number]]) for number in pair))
        assert 6e4 * (rounded - small) < found.arithmetic.reach(found.error).item() < 6e4 * 2.1 * 2.0**-137
    assert product(np.zeros((1, 1)), np.ones((1, 1))).error.item() == 0


@pytest.mark.parametrize("state, wrong", [(2.0**13, 0), (2.0**14, 1)])
def test_a_product_that_is_lost_before_other_factors_enlarge_it(state, wrong):
    """The gradient dc c f (1 - f) is 2^-125 * state / 4. It may be zero if dc f (1 - f), a subnormal, is flushed
    to zero; the bound allows this for states up to 2^13."""
    o = forward(network(LSTM, NO_BIAS, ONE_WAY, width=1, hidden=1, layers=1), SEQ_MAJOR, (1,))
    data = chain_of(o)[0]
    memory = prepare(data, "normal", 0) | prepare(o, "normal", 0)
    numbers = {"x": 0, "hx": 0, "cx": state, "weightSpace": 0, "dy": 0, "dhy": 0, "dcy": 2.0**-125}
    for name, number in numbers.items():
        operation = o if name in o.operands else data
        strided(operation.tensor(name), memory[name])[...] = number
    strided(o.tensor("weightSpace"), memory["weightSpace"])[0, 1] = 1  # input weight of the forget gate
    run(o, memory)
    before = {name: memory[name].copy() for name in data.operands}
    run(data, memory)
    after = {name: memory[name].copy() for name in data.operands}
    dx = strided(data.tensor("dx"), after["dx"])
    assert dx.item() == state * 2.0**-127
    dx[...] = 0
    assert judge(data, before, after, {"reserveSpace": before["reserveSpace"]}).wrong == wrong


def sums_behind_a_relu(math_type, kind, size=1000):
    """Return (operation, its operands before the call) for 64 sums of ``size`` products."""
    spec = network(RELU, NO_BIAS, ONE_WAY, width=size, hidden=64, layers=1, math_type=math_type)
    operation = forward(spec, SEQ_MAJOR, (1,), training=False, null=("hx",))
    return operation, prepare(operation, kind, 0)


@pytest.mark.parametrize("off, suspect", [(110, 0), (160, 64)])
def test_how_far_sums_of_numbers_of_one_sign_may_be_off(off, suspect):
    """Three standard deviations of 1000 additions are 3 sqrt(2 * 1000), or 134, roundings; the worst case is 1000."""
    operation, before = sums_behind_a_relu(EXACT, "positive")
    after = {name: memory.copy() for name, memory in before.items()}
    run(operation, after)
    y = strided(operation.tensor("y"), after["y"])
    y[...] = y * (1 + off * 2.0**-24)
    verdict = judge(operation, before, after, random=True)
    assert verdict.agrees and verdict.errors["y"].beyond == suspect


def weights_judged(o, memory, change):
    """Run the chain on ``memory``, let ``change`` alter the weight gradients, and return their verdict."""
    data, weights = chain_of(o)
    for operation in (o, data):
        run(operation, memory)
    before = {name: memory[name].copy() for name in weights.operands}
    run(weights, memory)
    after = {name: memory[name].copy() for name in weights.operands}
    change(strided(weights.tensor("dweightSpace"), after["dweightSpace"]))
    return judge(weights, before, after, {"reserveSpace": before["reserveSpace"]}, random=True)


@pytest.mark.parametrize("off, suspect", [(110, 0), (160, 1)])
def test_how_far_the_gradient_of_a_bias_may_be_off(off, suspect):
    """A bias gradient, a sum of 1000 positive terms, is suspect if it is off by 160 roundings, but not by 110."""
    o = forward(network(RELU, direction=ONE_WAY, width=1, hidden=1, layers=1), SEQ_MAJOR, (1,) * 1000)
    memory = {}
    for operation in (o, *chain_of(o)):
        memory |= prepare(operation, "positive", 0)
    memory["dweightSpace"][:] = 0

    def change(gradients):
        gradients[0, -1] *= 1 + off * 2.0**-24

    verdict = weights_judged(o, memory, change)
    assert verdict.agrees and verdict.errors["dweightSpace"].beyond == suspect


def test_a_sequence_of_no_steps_is_in_no_gradient():
    """NaN in the states of a sequence without steps does not reach the weight gradients, so all are judged."""
    o = forward(network(LSTM, projected=5, direction=ONE_WAY), SEQ_MAJOR, (0, 2))
    memory = {}
    for operation in (o, *chain_of(o)):
        memory |= prepare(operation, "normal", 0)
    for name in ("hx", "cx"):
        strided(o.tensor(name), memory[name])[:, 0] = np.nan

    def change(gradients):
        gradients += 1

    verdict = weights_judged(o, memory, change)
    assert verdict.wrong == verdict.checked


@pytest.mark.parametrize("number, suspect", [(0.04, False), (0.065, True)])
def test_products_with_factors_in_tf32(number, suspect):
    """A sum that lacks one of 1024 products is suspect if the product exceeds three deviations of all roundings."""
    operation, before = sums_behind_a_relu(DEFAULT, "normal", 1024)
    x = strided(operation.tensor("x"), before["x"])
    x[..., 0] = 0
    after = {name: memory.copy() for name, memory in before.items()}
    run(operation, after)
    x[..., 0] = number
    verdict = judge(operation, before, after | {"x": before["x"]}, random=True)
    assert verdict.agrees and bool(verdict.suspicions) == suspect


def test_right_gradients_in_tf32_are_not_suspect():
    """The bound for TF32 counts that one rounding reaches a gradient through several gates with the same sign."""
    spec = network(GRU, direction=ONE_WAY, width=8, hidden=24, layers=4, math_type=DEFAULT)
    steps = [Step(operation) for operation in training(spec, SEQ_MAJOR, lengths=(2, 2), fill=0.5)]
    caller = Caller(cudnn, cudnn.cudnnCreate(backend="accelerated", device="emulated"))
    found = attempt_chain(caller, steps, seed=31)
    assert found.passed and not found.verdict.suspicions


@pytest.mark.parametrize("cell", cudnnRNNMode_t, ids=lambda cell: cell.name)
def test_products_of_states_that_a_call_does_not_have(cell):
    """The product of a missing state may be computed or left out; elements that do not depend on it are judged."""
    o = forward(network(cell, layers=1), lengths=(3,) * 400, null=("hx", "cx"))
    before = prepare(o, "normal", 0) | infinite_recurrent(o, 1)
    given = replace(o, hx=o.hy, cx=o.cy)
    states = {"hx": np.zeros(o.nbytes("hy"), np.uint8)} | ({"cx": np.zeros(o.nbytes("cy"), np.uint8)} if o.cy else {})
    after = {name: memory.copy() for name, memory in before.items()}
    run(o, after)
    y = after["y"].view(np.float32).reshape(3, 400, 14)
    assert np.isnan(y[:, :, 7]).all() and np.isfinite(y[..., :7]).all()
    y[2, :, 7] = 0.5
    assert judge(o, before, after).agrees
    assert judge(given, before | states, after | states).wrong == 400
    y[[0, 2], 399, 6] += 1
    assert judge(o, before, after).wrong == 2


@pytest.mark.parametrize("text", ["compute", "Compute_type", "1"])
def test_an_arithmetic_that_there_is_not(monkeypatch, text):
    monkeypatch.setenv("DUALDNN_REFERENCE_ARITHMETIC", text)
    with pytest.raises(ValueError, match=f"DUALDNN_REFERENCE_ARITHMETIC='{text}': expected compute_type"):
        cudnn.cudnnCreate(backend="reference")
