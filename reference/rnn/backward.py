"""Recurrent networks, backward (8.2.17 to 8.2.22): the chain rule over the forward computation, which is made again.

What the reserve space keeps of the calls before: the states of dropout of the forward call, where it drew, and as bytes of the
data type its x, and behind it, from RNNBackwardData on, the weights, hx, cx, dy, dhy and dcy; zeros where a call got NULL.
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
from .bounded import Bounded, Tracking, affine, concatenated, joined, with_bounds
from .dropped import dropped, masks_of
from .forward import Network, Pass, absent, container, stacked, unpacked

Shape = tuple[int, ...]


def _bytes(spec: RNNSpec, values: Array) -> Array:
    return np.frombuffer(values.astype(NUMPY_TYPES[spec.data_type]).tobytes(), np.uint8)


def _numbers(spec: RNNSpec, memory: Array, shapes: list[Shape], wide: Any) -> Iterator[Array]:
    """The arrays of these shapes that lie behind each other in the reserve space."""
    dtype, start = np.dtype(NUMPY_TYPES[spec.data_type]), 0
    for shape in shapes:
        size = int(np.prod(shape)) * dtype.itemsize
        yield np.frombuffer(memory[start : start + size].tobytes(), dtype).astype(wide).reshape(shape)
        start += size


def _drawn(spec: RNNSpec, reserve: Array) -> tuple[Array, Array]:
    """(the states of dropout with which the forward call drew, none where it did not; what is behind them)."""
    size = STATES.nbytes * spec.drops
    return reserve[:size].copy(), reserve[size:]


def _shapes(spec: RNNSpec, data: RNNDataSpec) -> list[Shape]:
    """Shapes of x, the weights, hx, cx, dy, dhy and dcy."""
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
    """The gradients of a pass: of the sums of its gates for inputs and for states, of what is projected, of states and inputs."""

    inputs: dict[int, Bounded]
    states: dict[int, Bounded]
    projected: dict[int, Bounded]
    hidden: Bounded
    cell: Bounded


class Backward:
    """The gradients of a network, layer by layer from the last."""

    def __init__(self, network: Network, dy: list[Bounded], dhy: Array, dcy: Array) -> None:
        self.network, spec = network, network.spec
        self.found: dict[int, Gradients] = {}
        ways = range(spec.directions)
        for layer in reversed(range(spec.layers)):
            for direction in ways:
                pseudo_layer = layer * spec.directions + direction
                own = [part[:, direction * spec.projected : (direction + 1) * spec.projected] for part in dy]
                start = (Bounded.exact(states[pseudo_layer], dy[0].arithmetic) for states in (dhy, dcy))
                self.found[pseudo_layer] = self._pass(network.passes[pseudo_layer], direction, own, *start)
            dy = self._into_input(layer)
            if 0 < layer <= len(network.masks):
                dy = [
                    dropped(part, kept, spec.dropout) for part, kept in zip(dy, network.masks[layer - 1], strict=True)
                ]
        self.dx = dy

    def _pass(self, one: Pass, direction: int, dy: list[Bounded], dh: Bounded, dc: Bounded) -> Gradients:
        found = Gradients({}, {}, {}, dh, dc)
        zero = Bounded.exact(np.zeros(()), dh.arithmetic)
        for at in range(len(dy)) if direction else reversed(range(len(dy))):
            valid = self.network.lengths > at
            total = (dy[at] + dh).kept()
            found.projected[at] = total.select(valid, zero)
            inputs, states, through, before = self._step(one, at, total, dc)
            inputs, states = inputs.kept(), states.kept()
            found.inputs[at], found.states[at] = inputs.select(valid, zero), states.select(valid, zero)
            back = affine([(states, one.layer.recurrent.T)], [])
            dh = (back if through is None else back + through).kept().select(valid, dh)
            dc = before.kept().select(valid, dc)
        found.hidden, found.cell = dh, dc
        return found

    def _step(self, one: Pass, at: int, dh: Bounded, dc: Bounded) -> tuple[Bounded, Bounded, Bounded | None, Bounded]:
        """(gradients of the sums for inputs, of those for states, what reaches the state before beside the matrices, dc before)."""
        spec, step, (h, c) = self.network.spec, one.steps[at], one.before[at]
        if spec.cell == LSTM:
            assert step.cell is not None and c is not None
            i, f, new, o = step.gates
            out = dh if one.layer.projection is None else affine([(dh, one.layer.projection.T)], [])
            shown = step.cell.tanh()
            state = dc + out * o * (shown * shown).complement()
            state = blocked(state, step.inside, step.unsure)
            parts = [
                state * new * slope(i),
                state * c * slope(f),
                state * i * (new * new).complement(),
                out * shown * slope(o),
            ]
            joined = concatenated(parts)
            return joined, joined, None, state * f
        if spec.cell == GRU:
            r, i, new, recurrent = step.gates
            fresh = dh * i.complement() * (new * new).complement()
            update = dh * (h - new) * slope(i)
            reset = fresh * recurrent * slope(r)
            return concatenated([reset, update, fresh]), concatenated([reset, update, fresh * r]), dh * i, dc
        if spec.cell == TANH:
            sums = dh * (step.hidden * step.hidden).complement()
        else:
            sums = blocked(dh, step.inside, step.unsure)
        return sums, sums, None, dc

    def _into_input(self, layer: int) -> list[Bounded]:
        """The gradients of what a layer got at each step, from both directions: one product for all steps."""
        spec = self.network.spec
        parts: list[tuple[Bounded, Array | None]] = []
        for direction in range(spec.directions):
            pseudo_layer = layer * spec.directions + direction
            found, matrix = self.found[pseudo_layer].inputs, self.network.passes[pseudo_layer].layer.input
            gates = joined([found[at] for at in range(len(found))], np.stack)
            if matrix is not None:
                parts.append((gates, matrix.T))
            else:
                parts += [(gates[..., g * spec.hidden : (g + 1) * spec.hidden], None) for g in range(spec.gates)]
        whole = affine(parts, []).kept()
        return [whole[at] for at in range(len(whole.value))]

    def weights(self) -> Bounded:
        """The gradients of all matrices and biases, as they lie in the weight space."""
        spec = self.network.spec
        first = self.dx[0]
        value, error = (np.zeros(spec.weight_elements, first.value.dtype) for _ in range(2))

        def put(found: Any, gradient: Bounded) -> None:
            if found is not None:
                place = slice(found.offset, found.offset + gradient.value.size)
                value[place] = gradient.value.reshape(-1)
                if first.arithmetic.tracked:
                    error[place] = gradient.error.reshape(-1)

        zero = Bounded.exact(np.zeros(()), first.arithmetic)

        def there(numbers: list[Bounded]) -> list[Bounded]:
            """Those of the steps that a sequence has: what a state was left at need be no number."""
            return [part.select(self.network.lengths > at, zero) for at, part in enumerate(numbers)]

        for pseudo_layer, one in enumerate(self.network.passes):
            found = self.found[pseudo_layer]
            steps = range(len(one.inputs))
            states = there([one.before[at][0] for at in steps])
            inputs, recurrent = ([part[at] for at in steps] for part in (found.inputs, found.states))
            if one.layer.input is not None:
                put(spec.matrix(pseudo_layer, 0), summed(inputs, there(one.inputs)))
            put(spec.matrix(pseudo_layer, spec.gates), summed(recurrent, states))
            if spec.is_projected:
                hidden = there([one.steps[at].hidden.kept() for at in steps])
                put(spec.matrix(pseudo_layer, PROJECTION), summed([found.projected[at] for at in steps], hidden))
            for weight_id, gates in ((0, inputs), (spec.gates, recurrent)):
                put(spec.bias_vector(pseudo_layer, weight_id), summed(gates, None))
        return first.made(value, lambda: error)


def slope(gate: Bounded) -> Bounded:
    """The derivative of the sigmoid function, of its value."""
    return gate * gate.complement()


def blocked(gradient: Bounded, inside: Array | None, unsure: Array | None) -> Bounded:
    """The gradient where the function passes it on; either of the two where rounding decides whether it does: nothing is determined
    then beside one that is infinite or NaN."""
    assert inside is not None and unsure is not None
    open_ = unsure & ~np.isfinite(gradient.value)
    value = np.where(
        open_ if gradient.arithmetic.passes else False, gradient.value, np.where(inside & ~open_, gradient.value, 0)
    )

    def error() -> Array:
        either = gradient.arithmetic.rounded(1 / gradient.arithmetic.unit, gradient.value) + gradient.error
        return np.where(open_, np.inf, np.where(unsure, either, np.where(inside, gradient.error, 0)))

    return gradient.made(value, error)


def _blocks(spec: RNNSpec) -> bool:
    """Whether there may be gradients that do not pass everywhere: those of a ReLU, and of a state that is clipped."""
    return spec.cell not in (GRU, TANH)


def summed(gradients: list[Bounded], inputs: list[Bounded] | None) -> Bounded:
    """The sum over steps and sequences of gradient times input, a matrix; without inputs that of the gradients."""
    g = joined(gradients, np.concatenate)
    a, count = g.arithmetic, len(g.value) + 1
    if inputs is None:
        total = g.value.sum(0)
        return g.made(total, lambda: g.read_again().sum(0) + a.of_sum(total, a.size(g.value).sum(0), count))
    x = joined(inputs, np.concatenate)
    total = g.value.T @ x.value

    def error() -> Array:
        of_g, of_x = g.read_again().T, x.read_again()
        terms = a.size(g.value).T @ a.size(x.value)
        of_factors = of_g @ a.size(x.value) + a.size(g.value).T @ of_x + a.of_products * (of_g @ of_x)
        return np.asarray(of_factors + a.of_product(total, terms, terms, count))

    return g.made(total, error)


def _again(
    tracked: Tracking, left_out: str, spec: RNNSpec, data: RNNDataSpec, states: Array, x: Array, w: Array, hx: Array, cx: Array,
    dy: Array, dhy: Array, dcy: Array,
) -> Backward:  # fmt: skip
    """The forward computation, made again, and its gradients."""
    masks = masks_of(spec, data, states) if spec.drops else ()
    network = Network.run(spec, data, x, w, hx, cx, masks, tracked, left_out)
    exact = network.outputs[0].arithmetic
    return Backward(network, [Bounded.exact(vectors, exact) for vectors in dy], dhy, dcy)


@implements(RNNBackwardData)
def rnn_backward_data(
    operation: RNNBackwardData, _y: Array, dy: Array, hx: Array | None, dhy: Array | None, cx: Array | None,
    dcy: Array | None, space: Array, reserve: Array,
) -> dict[str, Exact]:  # fmt: skip
    """dx, dhx and dcx; the reserve space also keeps what RNNBackwardWeights needs."""
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
        results = {"dx": container(data, stacked(found.dx))}
        passes = [found.found[i] for i in range(spec.pseudo_layers)]
        if operation.dhx is not None:
            results["dhx"] = stacked([one.hidden for one in passes]).result()
        if operation.dcx is not None:
            results["dcx"] = stacked([one.cell for one in passes]).result()
        return results

    left_out = absent(spec, space, hx is None, cx is None)
    results = with_bounds(compute, left_out, spec.data_type == HALF, underflows=True, blocks=_blocks(spec))
    results["reserveSpace"] = Exact.kept(np.concatenate([states, *(_bytes(spec, values) for values in (x, *known))]))
    return results


@implements(RNNBackwardWeights)
def rnn_backward_weights(
    operation: RNNBackwardWeights, x: Array, _hx: Array | None, _y: Array, reserve: Array
) -> dict[str, Exact]:
    """The gradient that is added to dweightSpace."""
    spec = operation.network
    states, behind = _drawn(spec, reserve)
    known = list(_numbers(spec, behind, _shapes(spec, operation.x), x.dtype))

    def compute(tracked: Tracking, left_out: str = "") -> dict[str, Exact]:
        gradient = _again(tracked, left_out, spec, operation.x, states, *known).weights()
        return {"dweightSpace": gradient.moved(lambda array: array.reshape(operation.dweightSpace.dims)).result()}

    return with_bounds(
        compute,
        absent(spec, known[1], operation.hx is None, not known[3].any()),
        spec.data_type == HALF,
        underflows=True,
        blocks=_blocks(spec),
    )
