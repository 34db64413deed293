"""Compute one step of each kind of cell (7.1.2.8), and hold the weights of a pseudo-layer."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from dualdnn.api.enumerations import cudnnDataType_t, cudnnMathType_t, cudnnNanPropagation_t
from dualdnn.api.operations.rnn import RNNClipSpec, RNNSpec
from dualdnn.api.operations.rnn.network import GRU, LSTM, PROJECTION, TANH
from dualdnn.api.operations.specs import FLOAT, HALF

from ..engine import EXPECTED_ASKED
from ..precision import PRECISION
from ..running import Running
from ..view import Array
from .bounded import (
    SIGMOID,
    TANGENT,
    Arithmetic,
    Bounded,
    Matrix,
    Product,
    Tracking,
    added,
    addends,
    affine,
    concatenated,
    roundings_of,
    split,
)

LOW_UNIT = 2.0**-11  # unit roundoff of HALF and TF32
PROPAGATES = cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN


def arithmetic(network: RNNSpec, tracked: Tracking) -> Arithmetic:
    """Return the roundings that an implementation of the network may make (docs/errata.md, D582).

    tracked: the errors that are carried from step to step.
    """
    tf32 = network.data_type == FLOAT and network.math_type != cudnnMathType_t.CUDNN_FMA_MATH
    precision = network.precision if network.precision != HALF else FLOAT
    return _arithmetic(precision, tf32, network.data_type == HALF, tracked, EXPECTED_ASKED.get())


@cache
def _arithmetic(precision: cudnnDataType_t, tf32: bool, in_half: bool, tracked: Tracking, expects: bool) -> Arithmetic:
    unit, smallest, largest = PRECISION[precision]
    low = LOW_UNIT / unit
    return Arithmetic(
        Running(unit, smallest=smallest),
        tracked == Tracking.ERRORS and expects,
        largest,
        low if tf32 else 0.0,
        low if in_half else 0.0,
        bool(tracked),
        in_half and tracked == Tracking.OVERFLOWING,
        tracked == Tracking.PASSING,
    )


@dataclass(frozen=True)
class Layer:
    """Hold the weights of a pseudo-layer, with the gates stacked; None for each part that the layer does not have."""

    network: RNNSpec
    input: Matrix | None
    recurrent: Matrix
    input_bias: Array | None
    recurrent_bias: Array | None
    projection: Matrix | None

    @classmethod
    def of(cls, network: RNNSpec, space: Array, pseudo_layer: int, exact: Arithmetic) -> Layer:
        """Return a pseudo-layer's weights from the weight space."""
        gates, first = network.gates, network.gates

        def stacked(found: Any, count: int) -> Array:
            """Return ``count`` consecutive weights, stacked."""
            values = space[found.offset : found.offset + count * found.rows * found.columns]
            rows: Array = values.reshape(count * found.rows, found.columns)
            return rows

        def matrix(weight_id: int, count: int) -> Matrix | None:
            found = network.matrix(pseudo_layer, weight_id)
            return None if found is None else Matrix(stacked(found, count), exact)

        def bias(weight_id: int) -> Array | None:
            found = network.bias_vector(pseudo_layer, weight_id)
            return None if found is None else stacked(found, gates)[:, 0]

        recurrent = matrix(first, gates)
        assert recurrent is not None
        projection = matrix(PROJECTION, 1) if network.is_projected else None
        return cls(network, matrix(0, gates), recurrent, bias(0), bias(first), projection)

    @property
    def groups(self) -> tuple[slice, ...]:
        """Return the gates whose sums are one product. A GRU computes r and i first, because h' needs r."""
        return (slice(0, 2), slice(2, 3)) if self.network.cell == GRU else (slice(0, self.network.gates),)

    @cached_property
    def of_states(self) -> list[Matrix]:
        """Return the matrices that multiply states in the sums of each group."""
        return [self.recurrent.part(self._rows(group)) for group in self.groups]

    @cached_property
    def roundings(self) -> int:
        """Return the roundings of a sum with products of inputs and of states."""
        biases = [bias for bias in (self.input_bias, self.recurrent_bias) if bias is not None]
        return roundings_of([(None, self.recurrent), (None, self.input)], biases)

    def from_inputs(self, x: Bounded) -> list[Bounded]:
        """Return what the inputs of all steps add to the first group, with all biases.

        For a GRU the input's whole sum for h' follows.
        """
        first, *rest = self.groups
        both = self._biases(self.input_bias, first) + self._biases(self.recurrent_bias, first)
        begun = addends([self._product(first, x)], both, self.roundings)
        return [begun, *(affine([self._product(group, x)], self._biases(self.input_bias, group)) for group in rest)]

    def gates(self, begun: Bounded, h: Bounded) -> Bounded:
        """Return the sums of the first group."""
        return added([begun, addends([(h, self.of_states[0])], (), self.roundings)], self.roundings)

    def of_state(self, h: Bounded) -> Bounded:
        """Return the sum that r of a GRU multiplies."""
        return affine([(h, self.of_states[1])], self._biases(self.recurrent_bias, self.groups[1]))

    def of_a_zero_state(self) -> Layer:
        """Return the layer with zeros for non-finite recurrent weights, so that products with a zero state are zero."""
        weights = self.recurrent.value
        finite = np.where(np.isfinite(weights), weights, 0)
        return replace(self, recurrent=Matrix(finite, self.recurrent.arithmetic))

    def _product(self, group: slice, x: Bounded) -> Product:
        if self.input is not None:
            return x, self.input.part(self._rows(group))
        return concatenated([x] * (group.stop - group.start)), None  # The input itself is added to every gate.

    def _biases(self, bias: Array | None, group: slice) -> list[Array]:
        return [] if bias is None else [bias[self._rows(group)]]

    def _rows(self, group: slice) -> slice:
        """Return the rows of some gates in matrices and biases."""
        return slice(group.start * self.network.hidden, group.stop * self.network.hidden)


@dataclass(frozen=True)
class Step:
    """Hold the results of a cell in one step: its gates, the next state, and its output.

    gates: side by side, i, f, c' and o of an LSTM, or r, i, h' and the factor of r of a GRU; None for others. shown:
    tanh of an LSTM's state. hidden: the output before its projection.

    inside: where an LSTM's state was not clipped, or a ReLU's sum is positive. unsure: where rounding decides this, for
    each way of rounding that is tracked. Both are None where nothing is clipped or rectified.
    """

    gates: Bounded | None
    cell: Bounded | None
    shown: Bounded | None
    hidden: Bounded
    output: Bounded
    inside: Array | None = None
    unsure: Array | None = None

    def select(self, where: Array, other: Step) -> Step:
        """Return this step for sequences where the condition holds, and the other step elsewhere."""

        def chosen(own: Bounded | Array | None, others: Any) -> Any:
            if isinstance(own, Bounded):
                return own.select(where, others)
            if own is None and others is None:
                return None
            return np.where(where, False if own is None else own, False if others is None else others)

        return Step(*(chosen(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)))


def step(layer: Layer, given: list[Bounded], h: Bounded, c: Bounded | None) -> Step:
    """Compute one step of every sequence.

    given: what inputs add (``Layer.from_inputs``). c: None for an LSTM whose zero state's products are left out.
    """
    cell_of = layer.network.cell
    total = layer.gates(given[0], h)
    if cell_of == LSTM:
        gates = _gates_of_lstm(total)
        i, f, new, o = split(gates, 4)
        raw = i * new if c is None else f * c + i * new
        cell, inside, unsure = clipped(raw, layer.network.clip)
        cell = cell.kept()
        shown = cell.tanh()
        hidden = o * shown
        return Step(gates, cell, shown, hidden, projected(layer, hidden), inside, unsure)
    if cell_of == GRU:
        both = total.sigmoid()
        r, i = split(both, 2)
        recurrent = layer.of_state(h)
        new = (given[1] + r * recurrent).tanh()
        hidden = i.complement() * new + i * h
        return Step(concatenated([both, new, recurrent]), None, None, hidden, hidden.kept())
    if cell_of == TANH:
        hidden = total.tanh()
        return Step(None, None, None, hidden, hidden.kept())
    hidden = total.relu()
    return Step(None, None, None, hidden, hidden.kept(), total.value > 0, unsure_of(total, np.abs(total.value)))


def _gates_of_lstm(total: Bounded) -> Bounded:
    """Return i, f, c' and o from their sums."""
    width = total.value.shape[-1] // 4
    value = 1 / (1 + np.exp(-total.value))
    new = slice(2 * width, 3 * width)
    value[..., new] = np.tanh(total.value[..., new])
    return total.through(value, _falling(width))


@cache
def _falling(width: int) -> Array:
    """Return the rates at which the slopes of an LSTM's gate functions fall, each repeated ``width`` times."""
    return np.repeat((SIGMOID, SIGMOID, TANGENT, SIGMOID), width)


def unsure_of(numbers: Bounded, distance: Array) -> Array | None:
    """Return where numbers may be on either side of a threshold at this distance, or None if nowhere."""
    if not numbers.arithmetic.tracked:
        return None
    reach = numbers.arithmetic.reach(numbers.error)
    unsure = ~(distance > reach) & (reach != 0) & np.isfinite(numbers.value)
    return unsure if unsure.any() else None


def projected(layer: Layer, hidden: Bounded) -> Bounded:
    """Return the output of an LSTM: W_r h if the network projects."""
    return (hidden if layer.projection is None else affine([(hidden.kept(), layer.projection)])).kept()


def clipped(state: Bounded, clip: RNNClipSpec) -> tuple[Bounded, Array | None, Array | None]:
    """Clip the state; also return where it was inside, and where rounding decides.

    With CUDNN_NOT_PROPAGATE_NAN a NaN becomes the lower bound.
    """
    value, a = state.value, state.arithmetic
    if not clip.is_on:
        return state, None, None
    lower, upper = (float(np.float32(bound)) for bound in (clip.lower, clip.upper))
    if state.value.dtype != np.float64:
        lower, upper = clip.lower, clip.upper
    limited = np.minimum(np.maximum(value, lower), upper)
    if clip.nan != PROPAGATES:
        limited = np.where(np.isnan(value), lower, limited)
    inside = (value >= lower) & (value <= upper)
    if not a.tracked:
        return Bounded(limited, None, a), inside, None
    reach = a.reach(state.error)
    outside = (value + reach < lower) | (value - reach > upper) | (np.isnan(value) & (clip.nan != PROPAGATES))
    unsure = unsure_of(state, np.minimum(np.abs(value - lower), np.abs(value - upper)))
    return Bounded(limited, np.where(outside, 0, state.error), a).within_range(), inside, unsure
