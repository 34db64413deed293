"""Evaluate recurrent networks, one sequence and one step at a time (7.1.2.8, cudnnRNNMode_t/c02 to c24; 7.2.36, 8.2.18, 8.2.21).

Gradients follow by the chain rule from the same loops (docs/errata.md, D299 to D304 and D342 to D344).
"""

from __future__ import annotations

import math
from typing import Any

from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.operations import RNNBackwardData, RNNBackwardWeights, RNNForward
from dualdnn.api.operations.dropout import STATES
from dualdnn.api.operations.rnn.data import BATCH_MAJOR, PACKED, RNNDataSpec
from dualdnn.api.operations.rnn.network import GRU, LSTM, PROJECTION, TANH, RNNSpec, Weights
from dualdnn.api.operations.specs import TensorSpec

from .chain_rule import Matrix, Number, Tape, Vector, leaves, limit
from .elements import Elements, Found, Index
from .pointwise import random_number


def place_of(spec: RNNDataSpec, step: int, sequence: int) -> int:
    """Return how many vectors are before a vector in memory (7.1.2.4, docs/errata.md, D304)."""
    if spec.layout == PACKED:
        return sum(length > before for before in range(step) for length in spec.lengths) + sequence
    return sequence * spec.max_length + step if spec.layout == BATCH_MAJOR else step * spec.batch + sequence


def vectors_of(spec: RNNDataSpec) -> TensorSpec:
    """Return the memory of a container as a list of elements. Only ``place_of`` says where they are."""
    return TensorSpec.packed(spec.data_type, (1, spec.tensor.elements))


def vector_at(spec: RNNDataSpec, index: Index) -> tuple[int, int] | None:
    """Return the (step, sequence) of a place in a container, or None in its padding."""
    place = sum(at * stride for at, stride in zip(index[:2], spec.tensor.strides, strict=False)) // spec.vector
    for sequence, length in enumerate(spec.lengths):
        for step in range(length):
            if place_of(spec, step, sequence) == place:
                return step, sequence
    return None


class Run:
    """Hold the numbers of one call: its inputs, the outputs of each sequence, and the states that they end with.

    outputs: (sequence, step) -> the last layer's output. hidden, cell: (pseudo-layer, sequence) -> final states.
    first_hidden, first_cell: the same of initial states. x: (sequence, step) -> the first layer's input.
    """

    def __init__(self, spec: RNNSpec, data: RNNDataSpec, weights: TensorSpec, read: Elements) -> None:
        self.spec, self.data, self.read, self.tape = spec, data, read, Tape()
        limit(spec.weight_elements * sum(data.lengths))
        self.weights = leaves(read.whole("weightSpace", weights))
        self.parts: dict[tuple[int, int], tuple[Matrix | None, Matrix | None]] = {}
        self.low, self.high = read.parameter(spec.clip.lower), read.parameter(spec.clip.upper)
        self.x: dict[tuple[int, int], Vector] = {}
        self.outputs: dict[tuple[int, int], Vector] = {}
        self.first_hidden, self.first_cell = self._states("hx", spec.projected), self._states("cx", spec.hidden)
        self.hidden: dict[tuple[int, int], Vector] = {}
        self.cell: dict[tuple[int, int], Vector] = {}
        self.draws: tuple[int, int] | None = None
        if "states" in read.memory:
            low, high, calls, more = (int(word) % 2**32 for word in read.whole("states", STATES))
            self.draws = low + (high << 32), calls + (more << 32)
        values = read.whole("x", vectors_of(data))
        for sequence, length in enumerate(data.lengths):
            for step in range(length):
                start = place_of(data, step, sequence) * data.vector
                self.x[sequence, step] = leaves(values[start : start + data.vector])
            self._sequence(sequence, length)

    def _states(self, operand: str, width: int) -> dict[tuple[int, int], Vector]:
        """Return initial states by (pseudo-layer, sequence); zeros where there are none."""
        rows, batch, found = self.spec.pseudo_layers, self.data.batch, {}
        values = [0.0] * (rows * batch * width)
        if operand in self.read.memory:
            values = self.read.whole(operand, TensorSpec.packed(self.spec.data_type, (rows, batch, width)))
        for p in range(rows):
            for sequence in range(batch):
                start = (p * batch + sequence) * width
                found[p, sequence] = leaves(values[start : start + width])
        return found

    def _sequence(self, sequence: int, length: int) -> None:
        """Compute all layers of one sequence. The second direction begins with its last vector."""
        vectors = [self.x[sequence, step] for step in range(length)]
        for layer in range(self.spec.layers):
            if layer and self.draws and self.spec.dropout:
                vectors = [self._dropped(layer, step, sequence, vector) for step, vector in enumerate(vectors)]
            joined: list[Vector] = [[] for _ in vectors]
            for direction in range(self.spec.directions):
                p = layer * self.spec.directions + direction
                h, c = self.first_hidden[p, sequence], self.first_cell[p, sequence]
                outputs: dict[int, Vector] = {}
                for step in reversed(range(length)) if direction else range(length):
                    h, c = self._cell(p, vectors[step], h, c)
                    outputs[step] = h
                self.hidden[p, sequence], self.cell[p, sequence] = h, c
                for step in range(length):
                    joined[step] = joined[step] + outputs[step]
            vectors = joined
        for step, vector in enumerate(vectors):
            self.outputs[sequence, step] = vector

    def _dropped(self, layer: int, step: int, sequence: int, vector: Vector) -> Vector:
        """Return what dropout before a layer leaves of a vector (docs/dropout.md)."""
        assert self.draws is not None
        seed, call = self.draws
        spec, first, found = self.spec, (step * self.data.batch + sequence) * self.spec.output_size, []
        for i, number in enumerate(vector):
            word = random_number(seed, call, first + i, layer)
            keeps = word >= math.ceil(spec.dropout * 2**32)
            found.append(self.tape.scaled(number, 1 / (1 - spec.dropout)) if keeps else Number(0.0))
        return found

    def _part(self, p: int, weight_id: int) -> tuple[Matrix | None, Matrix | None]:
        """Return the rows of a matrix and of its bias, or None for what the network does not have (7.2.31)."""
        if (p, weight_id) not in self.parts:
            self.parts[p, weight_id] = self._rows(self.spec.matrix(p, weight_id)), self._rows(self.spec.bias_vector(p, weight_id))  # fmt: skip
        return self.parts[p, weight_id]

    def _rows(self, found: Weights | None) -> Matrix | None:
        if found is None:
            return None
        return [self.weights[at : at + found.columns] for at in range(found.offset, found.end, found.columns)]

    def _sums(self, p: int, weight_id: int, vector: Vector) -> list[list[Number]]:
        """Return for each row of a matrix its product with the vector and its bias, where there are any."""
        matrix, bias = self._part(p, weight_id)
        if matrix is None:  # CUDNN_SKIP_INPUT: the input stands for the products (D302).
            found = [[number] for number in vector]
        else:
            found = [[number] for number in self.tape.products(matrix, vector)]
        if bias is not None:
            found = [[*terms, row[0]] for terms, row in zip(found, bias, strict=True)]
        return found

    def _gate(self, p: int, gate: int, x: Vector, h: Vector) -> Vector:
        """Return W x + R h and the biases."""
        inputs, states = self._sums(p, gate, x), self._sums(p, self.spec.gates + gate, h)
        return [self.tape.total(*a, *b) for a, b in zip(inputs, states, strict=True)]

    def _cell(self, p: int, x: Vector, h: Vector, c: Vector) -> tuple[Vector, Vector]:
        """Return the output and the state of a cell after a step."""
        if self.spec.cell == LSTM:
            return self._lstm(p, x, h, c)
        if self.spec.cell == GRU:
            return self._gru(p, x, h), c
        function = self.tape.tanh if self.spec.cell == TANH else self.tape.relu
        return [function(number) for number in self._gate(p, 0, x, h)], c

    def _lstm(self, p: int, x: Vector, h: Vector, c: Vector) -> tuple[Vector, Vector]:
        """Return c = f c + i c' and h = o tanh(c), projected (c10 to c16; linLayerID: i, f, c', o)."""
        t = self.tape
        i, f, new, o = (self._gate(p, gate, x, h) for gate in range(4))
        state, shown = [], []
        for k, before in enumerate(c):
            kept = t.product(t.sigmoid(f[k]), before)
            state.append(self._clipped(t.total(kept, t.product(t.sigmoid(i[k]), t.tanh(new[k])))))
            shown.append(t.product(t.sigmoid(o[k]), t.tanh(state[k])))
        projection, _ = self._part(p, PROJECTION)
        if projection is not None:
            shown = t.products(projection, shown)
        return shown, state

    def _clipped(self, state: Number) -> Number:
        """Return the state between the bounds, beyond which it passes no gradient (7.2.42)."""
        clip, value = self.spec.clip, state.value
        if not clip.is_on or self.low <= value <= self.high:
            return state
        if math.isnan(value):
            return Number(value if clip.nan == Nan.CUDNN_PROPAGATE_NAN else self.low)
        return Number(self.low if value < self.low else self.high)

    def _gru(self, p: int, x: Vector, h: Vector) -> Vector:
        """Return h = (1 - i) h' + i h with h' = tanh(W x + r (R h + b) + b) (c17 to c24; linLayerID: r, i, h')."""
        t = self.tape
        r, i = self._gate(p, 0, x, h), self._gate(p, 1, x, h)
        inputs, states = self._sums(p, 2, x), self._sums(p, 5, h)
        found = []
        for k, before in enumerate(h):
            update = t.sigmoid(i[k])
            new = t.tanh(t.total(*inputs[k], t.product(t.sigmoid(r[k]), t.total(*states[k]))))
            found.append(t.total(t.product(t.complement(update), new), t.product(update, before)))
        return found


def forward(o: RNNForward, output: str, index: Index, read: Elements) -> Found:
    """Return an element of y, hy or cy. Padding of y has the fill (7.2.47)."""
    run: Run = read.once("run", lambda: Run(o.network, o.x, o.weightSpace, read))
    if output != "y":
        states = run.hidden if output == "hy" else run.cell
        return Found(states[index[0], index[1]][index[2]].value)
    at = vector_at(o.y, index)
    if at is None:
        return Found(math.nan if o.y.padding_fill is None else o.y.padding_fill)
    step, sequence = at
    return Found(run.outputs[sequence, step][index[2]].value)


def _derived(network: RNNSpec, x: RNNDataSpec, y: RNNDataSpec, weights: TensorSpec, read: Elements) -> Run:
    """Return the run whose results have the gradients dy, dhy and dcy. Those that are not given are zeros."""
    run = Run(network, x, weights, read)
    results: list[tuple[Number, float]] = []
    dy = read.whole("dy", vectors_of(y))
    for (sequence, step), vector in run.outputs.items():
        start = place_of(y, step, sequence) * y.vector
        results += zip(vector, dy[start : start + y.vector], strict=True)
    for name, states in (("dhy", run.hidden), ("dcy", run.cell)):
        if name in read.memory:
            width = len(states[0, 0])
            dims = (network.pseudo_layers, x.batch, width)
            gradients = iter(read.whole(name, TensorSpec.packed(network.data_type, dims)))
            for p in range(network.pseudo_layers):
                for sequence in range(x.batch):
                    results += [(number, next(gradients)) for number in states[p, sequence]]
    run.tape.derive(results)
    return run


def backward_data(o: RNNBackwardData, output: str, index: Index, read: Elements) -> Found:
    """Return the derivative of sum(y dy) + sum(hy dhy) + sum(cy dcy) by an element of x, hx or cx (8.2.18)."""
    run: Run = read.once("run", lambda: _derived(o.network, o.dx, o.dy, o.weightSpace, read))
    if output != "dx":
        states = run.first_hidden if output == "dhx" else run.first_cell
        return Found(states[index[0], index[1]][index[2]].gradient)
    at = vector_at(o.dx, index)
    if at is None:
        return Found(math.nan if o.dx.padding_fill is None else o.dx.padding_fill)
    step, sequence = at
    return Found(run.x[sequence, step][index[2]].gradient)


def backward_weights(o: RNNBackwardWeights, _output: str, index: Index, read: Elements) -> Found:
    """Return the same derivative by an element of the weight space (8.2.21)."""
    run: Run = read.once("run", lambda: _derived(o.network, o.x, o.y, o.dweightSpace, read))
    place = 0
    for i, extent in zip(index, o.dweightSpace.dims, strict=True):
        place = place * extent + i
    return Found(run.weights[place].gradient)


FORMULAS: dict[type, Any] = {
    RNNBackwardData: backward_data,
    RNNBackwardWeights: backward_weights,
    RNNForward: forward,
}
