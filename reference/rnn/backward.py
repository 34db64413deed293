"""Compute gradients of recurrent networks (8.2.17 to 8.2.22) by the chain rule over a repeated forward computation.

The reserve space keeps the states of dropout of the forward call, if it drew, and then x in the data type. From
RNNBackwardData on it also keeps the weights, hx, cx, dy, dhy and dcy, with zeros for NULL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from dualdnn.api.operations import RNNBackwardData, RNNBackwardWeights
from dualdnn.api.operations.dropout import STATES
from dualdnn.api.operations.numpy_layout import NUMPY_TYPES
from dualdnn.api.operations.rnn import RNNDataSpec, RNNSpec
from dualdnn.api.operations.rnn.network import GRU, LSTM, PROJECTION, TANH
from dualdnn.api.operations.specs import HALF

from ..engine import Exact, implements
from ..view import Array
from .bounded import (
    Bounded,
    Product,
    Tracking,
    added,
    affine,
    columns,
    concatenated,
    split,
    stacked,
    with_bounds,
)
from .cells import Layer, Step
from .dropped import dropped, masks_of
from .forward import Network, Pass, absent, container, unpacked

Shape = tuple[int, ...]


def _bytes(spec: RNNSpec, values: Array) -> Array:
    return np.frombuffer(values.astype(NUMPY_TYPES[spec.data_type]).tobytes(), np.uint8)


def _numbers(spec: RNNSpec, memory: Array, shapes: list[Shape], wide: Any) -> Iterator[Array]:
    """Yield the arrays of these shapes, which are consecutive in the reserve space."""
    dtype, start = np.dtype(NUMPY_TYPES[spec.data_type]), 0
    for shape in shapes:
        size = int(np.prod(shape)) * dtype.itemsize
        yield np.frombuffer(memory[start : start + size].tobytes(), dtype).astype(wide).reshape(shape)
        start += size


def _drawn(spec: RNNSpec, reserve: Array) -> tuple[Array, Array]:
    """Return the dropout states of the forward call (empty if it did not draw), and the bytes after them."""
    size = STATES.nbytes * spec.drops
    return reserve[:size].copy(), reserve[size:]


def _shapes(spec: RNNSpec, data: RNNDataSpec) -> list[Shape]:
    """Return the shapes of x, the weights, hx, cx, dy, dhy and dcy."""
    hidden, cell = ((spec.pseudo_layers, data.batch, size) for size in (spec.projected, spec.hidden))
    vectors = (data.max_length, data.batch)
    return [
        (*vectors, spec.input_size),
        (spec.weight_elements,),
        hidden,
        cell,
        (*vectors, spec.output_size),
        hidden,
        cell,
    ]


@dataclass
class Gradients:
    """Hold the gradients of a pass with respect to its sums and states.

    inputs, states: with respect to the gates' sums of inputs and of states, at all steps. projected: with respect to
    the outputs of the projection, at all steps. hidden, cell: with respect to the initial states.
    """

    inputs: Bounded
    states: Bounded
    projected: Bounded | None
    hidden: Bounded
    cell: Bounded


class Slopes:
    """Compute the factors of the gradients for all steps of a pass at once."""

    def __init__(self, one: Pass) -> None:
        """Set the factors by the kind of cell.

        factors: the slopes of the gates. partners: the other factor of each gate's gradient. passed: the factor by which
        the gradient of the cell state reaches the previous step.
        """
        cell = one.layer.network.cell
        if cell == LSTM:
            i, f, new, o = split(one.of_steps("gates"), 4)
            shown = one.of_steps("shown")
            squares = concatenated([new, shown])
            rest = concatenated([i, f, o, squares * squares]).complement()
            of_i, of_f, of_o = split(concatenated([i, f, o]) * _first(rest, 3, 5), 3)
            of_new, of_shown = split(rest, 5)[3:]
            self.factors = concatenated([of_i, of_f, of_new, of_o])
            self.partners = concatenated([new, one.states(1), i, shown])
            self.passed, self.shown, self.of_shown = f, o, of_shown
        elif cell == GRU:
            r, i, new, recurrent = split(one.of_steps("gates"), 4)
            rest = concatenated([r, i, new * new]).complement()
            slopes = concatenated([r, i]) * _first(rest, 2, 3)
            of_r, of_i = split(slopes, 2)
            _, left, of_new = split(rest, 3)
            self.partners = concatenated([left, one.states(0) + new.negated(), i])
            self.factors, self.of_reset = concatenated([of_new, of_i]), of_r
            self.reset = concatenated([recurrent, r])
        elif cell == TANH:
            hidden = one.of_steps("hidden")
            self.factors = (hidden * hidden).complement()


class Backward:
    """Compute the gradients of a network, from the last layer to the first."""

    def __init__(self, network: Network, dy: Bounded, dhy: Array, dcy: Array) -> None:
        self.network, spec = network, network.spec
        self.found: dict[int, Gradients] = {}
        for layer in reversed(range(spec.layers)):
            if layer < spec.layers - 1:
                dy = self._into_input(layer + 1)
                if layer < len(network.masks):
                    dy = dropped(dy, network.masks[layer], spec.dropout)
            for direction, own in enumerate(split(dy, spec.directions)):
                pseudo_layer = layer * spec.directions + direction
                start = (Bounded(states[pseudo_layer], None, dy.arithmetic) for states in (dhy, dcy))
                self.found[pseudo_layer] = self._pass(network.passes[pseudo_layer], direction, own, *start)

    @property
    def dx(self) -> Bounded:
        return self._into_input(0)

    def _pass(self, one: Pass, direction: int, dy: Bounded, dh: Bounded, dc: Bounded) -> Gradients:
        slopes, steps, spec = Slopes(one), range(len(one.steps)), self.network.spec
        found: dict[int, tuple[Bounded, ...]] = {}
        for at in steps if direction else reversed(steps):
            valid = self.network.valid[at]
            total = (dy.at(at) + dh).kept()
            inputs, states, through, before = _step(one.layer, one.steps[at], slopes, at, total, dc)
            kept = inputs.kept().select(valid)
            found[at] = kept, kept if states is inputs else states.kept().select(valid), total.select(valid)
            back = affine([(found[at][1], one.layer.recurrent.transposed)])
            dh = (back if through is None else back + through).kept().select(valid, dh)
            dc = before.kept().select(valid, dc)
        of_inputs, of_states, of_outputs = ([found[at][which] for at in steps] for which in range(3))
        both = stacked(of_inputs)
        return Gradients(
            both,
            stacked(of_states) if spec.cell == GRU else both,
            stacked(of_outputs) if spec.is_projected else None,
            dh,
            dc,
        )

    def _into_input(self, layer: int) -> Bounded:
        """Return the gradients of a layer's inputs at all steps, summed over both directions, by one product."""
        spec = self.network.spec
        parts: list[Product] = []
        for direction in range(spec.directions):
            pseudo_layer = layer * spec.directions + direction
            gates, matrix = self.found[pseudo_layer].inputs, self.network.passes[pseudo_layer].layer.input
            if matrix is not None:
                parts.append((gates, matrix.transposed))
            else:
                parts += [(gate, None) for gate in split(gates, spec.gates)]
        return affine(parts).kept()

    def weights(self) -> Bounded:
        """Return the gradients of all matrices and biases, in the order of the weight space."""
        spec, like = self.network.spec, self.network.outputs
        a, value = like.arithmetic, np.zeros(spec.weight_elements, like.value.dtype)
        error = np.zeros((len(a.ways), *value.shape), value.dtype) if a.tracked else None

        def put(found: Any, gradient: Bounded) -> None:
            if found is not None:
                place = slice(found.offset, found.offset + gradient.value.size)
                value[place] = gradient.value.reshape(-1)
                if error is not None:
                    error[:, place] = gradient.error.reshape(len(error), -1)

        steps = np.arange(len(self.network.valid))[:, np.newaxis, np.newaxis]
        valid = self.network.lengths > steps if any(there is not None for there in self.network.valid) else None
        for pseudo_layer, one in enumerate(self.network.passes):
            # States at steps that a sequence does not have may be NaN.
            found, states = self.found[pseudo_layer], one.states(0).select(valid)
            if one.layer.input is not None:
                put(spec.matrix(pseudo_layer, 0), summed(found.inputs, one.inputs.select(valid)))
            put(spec.matrix(pseudo_layer, spec.gates), summed(found.states, states))
            if found.projected is not None:
                hidden = one.of_steps("hidden").kept().select(valid)
                put(spec.matrix(pseudo_layer, PROJECTION), summed(found.projected, hidden))
            for weight_id, gates in ((0, found.inputs), (spec.gates, found.states)):
                put(spec.bias_vector(pseudo_layer, weight_id), summed(gates, None))
        return Bounded(value, error, a)


def _first(parts: Bounded, count: int, of: int) -> Bounded:
    """Return the first ``count`` of equal parts along the last axis."""
    return columns(parts, 0, parts.value.shape[-1] // of * count)


def _step(
    layer: Layer, step: Step, slopes: Slopes, at: int, dh: Bounded, dc: Bounded
) -> tuple[Bounded, Bounded, Bounded | None, Bounded]:
    """Return the gradients with respect to the gates' sums of inputs and of states, and those of the previous step.

    The third result is the part of the previous dh that does not pass the gates, or None. The fourth is its dc.
    """
    cell = layer.network.cell
    if cell == LSTM:
        out = dh if layer.projection is None else affine([(dh, layer.projection.transposed)])
        state = dc + out * slopes.shown.at(at) * slopes.of_shown.at(at)
        state = blocked(state, step.inside, step.unsure)
        sums = concatenated([state, state, state, out]) * slopes.partners.at(at) * slopes.factors.at(at)
        return sums, sums, None, state * slopes.passed.at(at)
    if cell == GRU:
        first, second, through = split(concatenated([dh, dh, dh]) * slopes.partners.at(at), 3)
        fresh, update = split(concatenated([first, second]) * slopes.factors.at(at), 2)
        reset, gated = split(concatenated([fresh, fresh]) * slopes.reset.at(at), 2)
        reset = reset * slopes.of_reset.at(at)
        return concatenated([reset, update, fresh]), concatenated([reset, update, gated]), through, dc
    sums = dh * slopes.factors.at(at) if cell == TANH else blocked(dh, step.inside, step.unsure)
    return sums, sums, None, dc


def blocked(gradient: Bounded, inside: Array | None, unsure: Array | None) -> Bounded:
    """Return the gradient where the ReLU or the clipping passes it, and 0 elsewhere.

    Where rounding decides whether it passes, the bound allows both. If the gradient is not finite there, nothing is
    determined.
    """
    if inside is None or unsure is None:
        return gradient.select(inside)
    value, a = gradient.value, gradient.arithmetic
    open_ = unsure[0] & ~np.isfinite(value)
    either = a.rounded(1 / a.worst.unit, value) + gradient.error
    error = np.where(open_, np.inf, np.where(unsure, either, np.where(inside, gradient.error, 0)))
    return Bounded(np.where(np.where(open_, a.passes, inside), value, 0), error, a).within_range()


def _blocks(spec: RNNSpec) -> bool:
    """Return whether some gradients may be blocked: those of a ReLU or a clipped state."""
    return spec.cell not in (GRU, TANH)


def summed(gradients: Bounded, inputs: Bounded | None) -> Bounded:
    """Return the matrix of gradient times input, summed over steps and sequences, or the sum of the gradients
    without inputs.
    """
    g, a = gradients.moved(_rows), gradients.arithmetic
    count = len(g.value) + 1
    if inputs is None:
        total = g.value.sum(0)
        if not a.tracked:
            return Bounded(total, None, a)
        found = g.read_again().sum(1) + a.of_sum(total, g.sizes.sum(1), count)
        return Bounded(total, found, a).within_range()
    x = inputs.moved(_rows)
    total = g.value.T @ x.value
    if not a.tracked:
        return Bounded(total, None, a)
    of_g, of_products = g.read_again(), a.weights_of_sum(count, 2)[1]
    error = (of_g + of_products * g.sizes_of_factors).swapaxes(1, 2) @ x.sizes_of_factors
    if not x.is_exact or a.stored:
        error += (g.sizes + a.of_products(2) * of_g).swapaxes(1, 2) @ x.read_again()
    return added([Bounded(total, error, a)], count)


def _rows(vectors: Array) -> Array:
    """Reshape (step, sequence, element) to (step and sequence, element)."""
    return vectors.reshape(*vectors.shape[:-3], -1, vectors.shape[-1])


def _again(
    tracked: Tracking, left_out: str, spec: RNNSpec, data: RNNDataSpec, states: Array, x: Array, w: Array, hx: Array, cx: Array,
    dy: Array, dhy: Array, dcy: Array,
) -> Backward:  # fmt: skip
    """Repeat the forward computation, and compute its gradients."""
    masks = masks_of(spec, data, states) if spec.drops else ()
    network = Network.run(spec, data, x, w, hx, cx, masks, tracked, left_out)
    return Backward(network, Bounded(dy, None, network.outputs.arithmetic), dhy, dcy)


@implements(RNNBackwardData, unread=lambda _: ("y",))
def rnn_backward_data(
    operation: RNNBackwardData, _y: None, dy: Array, hx: Array | None, dhy: Array | None, cx: Array | None,
    dcy: Array | None, space: Array, reserve: Array,
) -> dict[str, Exact]:  # fmt: skip
    """Compute dx, dhx and dcx. The reserve space also keeps what RNNBackwardWeights needs."""
    spec, data = operation.network, operation.dx
    shapes = _shapes(spec, data)
    states, behind = _drawn(spec, reserve)
    (x,) = _numbers(spec, behind, shapes[:1], dy.dtype)
    given = [
        unpacked(operation.dy, dy) if i == 4 else value for i, value in enumerate((None, space, hx, cx, dy, dhy, dcy))
    ]
    known = [
        np.zeros(shape, dy.dtype) if v is None else v.reshape(shape)
        for v, shape in zip(given[1:], shapes[1:], strict=True)
    ]

    def compute(tracked: Tracking, left_out: str = "") -> dict[str, Exact]:
        found = _again(tracked, left_out, spec, data, states, x, *known)
        results = {"dx": container(data, found.dx)}
        passes = [found.found[i] for i in range(spec.pseudo_layers)]
        if operation.dhx is not None:
            results["dhx"] = stacked([one.hidden for one in passes]).result()
        if operation.dcx is not None:
            results["dcx"] = stacked([one.cell for one in passes]).result()
        return results

    left_out = absent(spec, data, space, hx is None, cx is None)
    results = with_bounds(compute, left_out, spec.data_type == HALF, underflows=True, blocks=_blocks(spec))
    results["reserveSpace"] = Exact.kept(np.concatenate([states, *(_bytes(spec, values) for values in (x, *known))]))
    return results


@implements(RNNBackwardWeights, unread=lambda _: ("y",))
def rnn_backward_weights(
    operation: RNNBackwardWeights, x: Array, hx: Array | None, _y: None, reserve: Array
) -> dict[str, Exact]:
    """Return the gradient that is added to dweightSpace. x and hx come from the caller, the rest from the
    reserve space.
    """
    spec = operation.network
    states, behind = _drawn(spec, reserve)
    known = list(_numbers(spec, behind, _shapes(spec, operation.x), x.dtype))
    known[0] = unpacked(operation.x, x)
    if hx is not None:
        known[2] = hx.reshape(known[2].shape)

    def compute(tracked: Tracking, left_out: str = "") -> dict[str, Exact]:
        gradient = _again(tracked, left_out, spec, operation.x, states, *known).weights()
        return {"dweightSpace": gradient.result(lambda array: array.reshape(operation.dweightSpace.dims))}

    return with_bounds(
        compute,
        absent(spec, operation.x, known[1], operation.hx is None, not known[3].any()),
        spec.data_type == HALF,
        underflows=True,
        blocks=_blocks(spec),
    )
