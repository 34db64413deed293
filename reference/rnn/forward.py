"""Compute recurrent networks (7.2.36 to 7.2.38). Formulas: 7.1.2.8 and docs/errata.md, D299 to D302, D342 to D344."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from dualdnn.api.operations import RNNForward
from dualdnn.api.operations.numpy_layout import NUMPY_TYPES
from dualdnn.api.operations.rnn import RNNDataSpec, RNNSpec
from dualdnn.api.operations.rnn.data import PACKED
from dualdnn.api.operations.rnn.network import GRU, LSTM
from dualdnn.api.operations.specs import HALF

from ..dropout import advanced
from ..engine import Exact, implements
from ..view import Array
from .bounded import Bounded, Tracking, concatenated, stacked, with_bounds
from .cells import Layer, Step, arithmetic, step
from .dropped import Masks, dropped, masks_of


def unpacked(spec: RNNDataSpec, values: Array) -> Array:
    """Return vectors as (step, sequence, element), with zeros in the padding."""
    found = np.zeros((spec.max_length, spec.batch, spec.vector), values.dtype)
    start = 0
    for at, batch in enumerate(spec.batches):
        if spec.layout == PACKED:
            found[at, :batch] = values[0, start : start + batch]
            start += batch
        else:
            valid = np.asarray(spec.lengths) > at
            found[at, valid] = values[at, valid]
    return found


def packed(spec: RNNDataSpec, values: Array) -> Array:
    """Convert (step, sequence, element) to the layout of the container."""
    if spec.layout != PACKED:
        return values
    return np.concatenate([values[at, :batch] for at, batch in enumerate(spec.batches)])[np.newaxis]


def container(spec: RNNDataSpec, values: Bounded) -> Exact:
    """Return the contents of a container. Padding has paddingFill, or is not judged."""
    padding = (np.arange(spec.max_length)[:, np.newaxis] >= np.asarray(spec.lengths))[..., np.newaxis]
    fill = spec.padding_fill
    if padding.any():
        a, value = values.arithmetic, np.where(padding, 0 if fill is None else fill, values.value)
        error = np.where(padding, np.inf if fill is None else 0, values.error) if a.tracked else None
        values = Bounded(value, error, a)
    return values.result(partial(packed, spec))


@dataclass
class Pass:
    """Hold the computation of one pseudo-layer over all steps: each step's results, and the final states."""

    layer: Layer
    inputs: Bounded  # (step, sequence, element)
    before: dict[int, tuple[Bounded, Bounded]] = field(default_factory=dict)  # step -> (h, c) at its beginning
    steps: dict[int, Step] = field(default_factory=dict)
    hidden: Bounded | None = None
    cell: Bounded | None = None

    def of_steps(self, name: str) -> Bounded:
        """Return the attribute of this name of all steps."""
        return stacked([getattr(self.steps[at], name) for at in range(len(self.steps))])

    def states(self, which: int) -> Bounded:
        """Return h (0) or c (1) at the beginning of each step."""
        return stacked([self.before[at][which] for at in range(len(self.before))])


@dataclass
class Network:
    """Hold a forward computation: the passes of all pseudo-layers, and the last outputs (step, sequence, element)."""

    spec: RNNSpec
    valid: list[Array | None]  # for each step, the sequences that have it; None for all
    lengths: Array
    passes: list[Pass]
    outputs: Bounded
    masks: Masks

    @classmethod
    def run(
        cls,
        spec: RNNSpec,
        x: RNNDataSpec,
        values: Array,
        space: Array,
        hx: Array | None,
        cx: Array | None,
        masks: Masks,
        tracked: Tracking,
        left_out: str = "",
    ) -> Network:
        """Compute all layers.

        values: (step, sequence, element). hx, cx: (pseudo-layer, sequence, element), None for zeros.

        masks: masks of dropout; empty where nothing is dropped. tracked: which errors are carried along. left_out: letters
        of the zero initial states (h, c) whose products are left out at the first step of each sequence. With "1" they
        are left out at the first step of the call alone.
        """
        exact = arithmetic(spec, tracked)
        inputs = Bounded(values, None, exact)
        lengths = np.asarray(x.lengths)[:, np.newaxis]
        valid = [None if there.all() else there for there in (lengths > at for at in range(len(values)))]
        made = cls(spec, valid, lengths, [], inputs, masks)
        for layer in range(spec.layers):
            found = []
            for direction in range(spec.directions):
                pseudo_layer = layer * spec.directions + direction
                one = Pass(Layer.of(spec, space, pseudo_layer, exact), inputs)
                made.passes.append(one)
                found.append(made._run(one, direction, left_out, *(_state(spec, x, s, pseudo_layer, w, values.dtype, exact)
                                                         for s, w in ((hx, spec.projected), (cx, spec.hidden)))))  # fmt: skip
            inputs = found[0] if len(found) == 1 else concatenated(found)
            if layer < len(masks):
                inputs = dropped(inputs, masks[layer], spec.dropout)
        made.outputs = inputs
        return made

    def _run(self, one: Pass, direction: int, left_out: str, h: Bounded, c: Bounded) -> Bounded:
        """Compute a pseudo-layer, and return its outputs at all steps."""
        first = one.layer.of_a_zero_state() if "h" in left_out else one.layer
        given, steps = one.layer.from_inputs(one.inputs), range(len(self.valid))
        outputs = [h] * len(steps)
        for at in reversed(steps) if direction else steps:
            one.before[at] = h, c
            here, valid = [part.at(at) for part in given], self.valid[at]
            found = step(one.layer, here, h, c)
            if left_out:
                first_step = (len(steps) if "1" in left_out else self.lengths) - 1 if direction else 0
                begun = np.broadcast_to(first_step != at, self.lengths.shape)
                found = found.select(begun, step(first, here, h, None if "c" in left_out else c))
            one.steps[at] = found
            h = outputs[at] = found.output.select(valid, h)
            c = c if found.cell is None else found.cell.select(valid, c)
        one.hidden, one.cell = h, c
        return stacked(outputs)


def _state(
    spec: RNNSpec, x: RNNDataSpec, given: Array | None, pseudo_layer: int, width: int, dtype: Any, exact: Any
) -> Bounded:
    value = np.zeros((x.batch, width), dtype) if given is None else given[pseudo_layer]
    return Bounded(value, None, exact)


def absent(spec: RNNSpec, x: RNNDataSpec, space: Array, no_h: bool, no_c: bool) -> tuple[str, ...]:
    """Return the ways to leave out missing initial states (``Network.run``), if their products may be non-finite.

    An implementation may multiply by zeros, or leave such products out (docs/errata.md). A reverse direction meets
    short sequences after its first step.
    """
    states = "" if np.isfinite(space).all() else "h" * no_h + "c" * (no_c and spec.cell == LSTM)
    return (states, states + "1")[: 1 + (x.is_ragged and spec.directions > 1)] if states else ()


def remembered(spec: RNNDataSpec, values: Array) -> Array:
    """Return vectors as bytes of the data type for the reserve space. The backward calls recompute the rest."""
    return np.frombuffer(values.astype(NUMPY_TYPES[spec.data_type]).tobytes(), np.uint8)


@implements(RNNForward)
def rnn_forward(
    operation: RNNForward, x: Array, hx: Array | None, cx: Array | None, space: Array, states: Array | None
) -> dict[str, Exact]:
    """Compute y, hy and cy. In training, the reserve space keeps x and, with dropout, the dropout states."""
    spec = operation.network
    values = unpacked(operation.x, x)
    masks = () if states is None else masks_of(spec, operation.x, states)

    def compute(tracked: Tracking, left_out: str = "") -> dict[str, Exact]:
        found = Network.run(spec, operation.x, values, space.reshape(-1), hx, cx, masks, tracked, left_out)
        results = {"y": container(operation.y, found.outputs)}
        if operation.hy is not None:
            results["hy"] = stacked([one.hidden for one in found.passes if one.hidden]).result()
        if operation.cy is not None and spec.cell == LSTM:
            results["cy"] = stacked([one.cell for one in found.passes if one.cell]).result()
        return results

    results = with_bounds(
        compute,
        absent(spec, operation.x, space, hx is None, cx is None),
        spec.data_type == HALF,
        spec.cell in (GRU, LSTM),
    )
    if operation.training:
        drawn = np.empty(0, np.uint8) if states is None else states
        results["reserveSpace"] = Exact.kept(np.concatenate([drawn, remembered(operation.x, values)]))
    if states is not None:
        results["states"] = Exact.kept(advanced(states))
    return results
