"""One step of each kind of cell (7.1.2.8), and the weights of a pseudo-layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from dualdnn.api.enumerations import cudnnMathType_t, cudnnNanPropagation_t
from dualdnn.api.operations.rnn import RNNClipSpec, RNNSpec
from dualdnn.api.operations.rnn.network import GRU, LSTM, PROJECTION, TANH
from dualdnn.api.operations.specs import FLOAT, HALF

from ..precision import PRECISION
from ..view import Array
from .bounded import Arithmetic, Bounded, Tracking, affine, concatenated

LOW_UNIT = 2.0**-11  # of HALF and TF32
PROPAGATES = cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN


def arithmetic(network: RNNSpec, tracked: Tracking) -> Arithmetic:
    """What may be rounded where: docs/errata.md, D582. tracked: what is carried along of errors."""
    unit, smallest, largest = PRECISION[network.precision if network.precision != HALF else FLOAT]
    low = LOW_UNIT / unit
    tf32 = network.data_type == FLOAT and network.math_type != cudnnMathType_t.CUDNN_FMA_MATH
    stored = low if network.data_type == HALF else 0.0
    return Arithmetic(
        unit,
        tracked == Tracking.EXPECTED,
        smallest,
        low if tf32 else 0.0,
        stored,
        bool(tracked),
        largest,
        stored > 0 and tracked == Tracking.OVERFLOWING,
        tracked == Tracking.PASSING,
    )


@dataclass(frozen=True)
class Layer:
    """The weights of a pseudo-layer: gates below each other. None for what it does not have."""

    input: Array | None
    recurrent: Array
    input_bias: Array | None
    recurrent_bias: Array | None
    projection: Array | None

    @classmethod
    def of(cls, network: RNNSpec, space: Array, pseudo_layer: int) -> Layer:
        """Those in the weight space of a network."""
        gates, first = network.gates, network.gates
        projection = network.matrix(pseudo_layer, PROJECTION) if network.is_projected else None

        def stacked(found, count):
            """The weights that begin there, ``count`` of them below each other."""
            if found is None:
                return None
            values = space[found.offset : found.offset + count * found.rows * found.columns]
            return values.reshape(count * found.rows, found.columns)

        def bias(weight_id):
            found = stacked(network.bias_vector(pseudo_layer, weight_id), gates)
            return None if found is None else found[:, 0]

        recurrent = stacked(network.matrix(pseudo_layer, first), gates)
        assert recurrent is not None
        matrix = stacked(network.matrix(pseudo_layer, 0), gates)
        return cls(matrix, recurrent, bias(0), bias(first), stacked(projection, 1))

    def gates(self, which: slice, network: RNNSpec, x: Bounded, h: Bounded) -> list[Bounded]:
        """The sums of products and biases of some gates that follow each other: one product for all of them."""
        biases = [*self.biases(self.input_bias, which, network), *self.biases(self.recurrent_bias, which, network)]
        terms = [self.from_state(which, network, h)]
        if self.input is not None:
            terms.append(self.from_input(which, network, x))
        elif which.stop - which.start == 1:
            terms.append((x, None))
        else:  # the input itself, for every gate
            terms.append((concatenated([x] * (which.stop - which.start)), None))
        return split(affine(terms, biases), which.stop - which.start)

    def from_input(self, which: slice, network: RNNSpec, x: Bounded) -> tuple[Bounded, Array | None]:
        return x, None if self.input is None else self.input[rows(which, network)]

    def from_state(self, which: slice, network: RNNSpec, h: Bounded) -> tuple[Bounded, Array | None]:
        return h, self.recurrent[rows(which, network)]

    def of_a_zero_state(self) -> Layer:
        """The layer whose products with a state of zeros are zeros, as if they were left out."""
        return replace(self, recurrent=np.where(np.isfinite(self.recurrent), self.recurrent, 0))

    def biases(self, bias: Array | None, which: slice, network: RNNSpec) -> Sequence[Array]:
        return [] if bias is None else [bias[rows(which, network)]]


def rows(which: slice, network: RNNSpec) -> slice:
    """The rows of some gates in matrices and biases."""
    return slice(which.start * network.hidden, which.stop * network.hidden)


def split(numbers: Bounded, count: int) -> list[Bounded]:
    """Equal parts along the last axis."""
    width = numbers.value.shape[-1] // count
    return [numbers[..., i * width : (i + 1) * width] for i in range(count)]


@dataclass(frozen=True)
class Step:
    """What a cell computed in one step: its gates, the state before and after it, what it puts out.

    gates: of an LSTM i, f, c' and o; of a GRU r, i, h' and what r multiplies; otherwise none. hidden: the output before it is
    projected. inside, unsure: where the state of an LSTM was not clipped, or the sum of a ReLU is positive; where rounding
    decides that.
    """

    gates: tuple[Bounded, ...]
    cell: Bounded | None
    hidden: Bounded
    output: Bounded
    inside: Array | None = None
    unsure: Array | None = None

    def select(self, where: Array, other: Step) -> Step:
        """This step of the sequences where the condition holds, the other one of those elsewhere."""

        def chosen(own: Bounded | Array | None, others: Any) -> Any:
            if own is None:
                return None
            return own.select(where, others) if isinstance(own, Bounded) else np.where(where, own, others)

        gates = tuple(chosen(*pair) for pair in zip(self.gates, other.gates, strict=True))
        rest = (chosen(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)[1:])
        return Step(gates, *rest)


def step(network: RNNSpec, layer: Layer, x: Bounded, h: Bounded, c: Bounded | None) -> Step:
    """One step of every sequence. c of an LSTM is None where it is zero and its products are left out."""
    if network.cell == LSTM:
        i, f, new, o = layer.gates(slice(0, 4), network, x, h)
        gates = i.sigmoid(), f.sigmoid(), new.tanh(), o.sigmoid()
        raw = gates[0] * gates[2] if c is None else gates[1] * c + gates[0] * gates[2]
        cell, inside, unsure = clipped(raw, network.clip)
        cell = cell.kept()
        hidden = gates[3] * cell.tanh()
        return Step(gates, cell, hidden, projected(layer, hidden), inside, unsure)
    if network.cell == GRU:
        r, i = (gate.sigmoid() for gate in layer.gates(slice(0, 2), network, x, h))
        last = slice(2, 3)
        recurrent = affine([layer.from_state(last, network, h)], layer.biases(layer.recurrent_bias, last, network))
        own = affine([layer.from_input(last, network, x)], layer.biases(layer.input_bias, last, network))
        new = (own + r * recurrent).tanh()
        hidden = i.complement() * new + i * h
        return Step((r, i, new, recurrent), None, hidden, hidden.kept())
    (total,) = layer.gates(slice(0, 1), network, x, h)
    if network.cell == TANH:
        hidden = total.tanh()
        return Step((), None, hidden, hidden.kept())
    hidden = total.relu()
    unsure = (
        ~(np.abs(total.value) > total.arithmetic.reach(total.error)) & (total.error != 0) & np.isfinite(total.value)
    )
    return Step((), None, hidden, hidden.kept(), total.value > 0, unsure)


def projected(layer: Layer, hidden: Bounded) -> Bounded:
    """The output of an LSTM: W_r h where the network projects."""
    return (hidden if layer.projection is None else affine([(hidden.kept(), layer.projection)], [])).kept()


def clipped(state: Bounded, clip: RNNClipSpec) -> tuple[Bounded, Array, Array]:
    """The state within its range, where it was inside, and where rounding decides that. With CUDNN_NOT_PROPAGATE_NAN a NaN becomes the lower bound."""
    value = state.value
    if not clip.is_on:
        return state, np.ones(value.shape, bool), np.zeros(value.shape, bool)
    lower, upper = (float(np.float32(bound)) for bound in (clip.lower, clip.upper))
    if state.value.dtype != np.float64:
        lower, upper = clip.lower, clip.upper
    limited = np.minimum(np.maximum(value, lower), upper)
    if clip.nan != PROPAGATES:
        limited = np.where(np.isnan(value), lower, limited)
    reach = state.arithmetic.reach(state.error)
    unsure = ~(np.minimum(np.abs(value - lower), np.abs(value - upper)) > reach) & (reach != 0) & np.isfinite(value)

    def error() -> Array:
        outside = (value + reach < lower) | (value - reach > upper) | (np.isnan(value) & (clip.nan != PROPAGATES))
        return np.where(outside, 0, state.error)

    return state.made(limited, error), (value >= lower) & (value <= upper), unsure
