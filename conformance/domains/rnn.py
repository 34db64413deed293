"""Draw recurrent networks: forward calls in inference, and in training with the gradients after them."""

from __future__ import annotations

from typing import Any

import numpy as np
from dualdnn.api.cudnn.rnn.data import KINDS
from dualdnn.api.cudnn.rnn.descriptor import PRECISIONS
from dualdnn.api.enumerations import (
    cudnnDirectionMode_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnRNNAlgo_t,
    cudnnRNNBiasMode_t,
    cudnnRNNClipMode_t,
    cudnnRNNDataLayout_t,
    cudnnRNNInputMode_t,
    cudnnRNNMode_t,
)
from dualdnn.api.operations import RNNBackwardData, RNNBackwardWeights, RNNForward, TensorSpec
from dualdnn.api.operations.rnn import RNNClipSpec, RNNDataSpec, RNNSpec, reserve, workspace
from dualdnn.api.operations.rnn.data import PACKED
from dualdnn.api.operations.rnn.network import DOUBLE_BIAS, LSTM, PERSIST_STATIC, STANDARD
from dualdnn.api.operations.specs import DOUBLE

from .pieces import Drawn, Source, fitted, need

OPERATIONS = (RNNForward, RNNBackwardData, RNNBackwardWeights)
STATES = ("hx", "cx", "hy", "cy", "dhy", "dhx", "dcy", "dcx")
BOUNDS = ((-0.3, 0.2), (0.1, 0.1), (-float("inf"), 0.0))
PROBABILITIES = tuple(float(np.float32(value)) for value in (0.25, 0.5, 1.0))
TILED = (8, 16, 32, 64)  # lengths of vectors that tiles divide
MAX_PRODUCTS = 400_000  # products of weights and vectors in the forward call


def draw(source: Source) -> Drawn:
    """Draw a network with its sequences, and the calls on it."""
    spec = network(source)
    layout, lengths, longest = sequences(source, spec)
    need(spec.weight_elements * longest * len(lengths) <= MAX_PRODUCTS)
    null = tuple(name for name in STATES if source.chance(15))
    fill, trains = source.pick((None, 0.5, -1.5)), source.chance(75)
    first = forward(spec, layout, lengths, longest, fill, trains, null)
    steps = (first, *backward(first, null)) if trains else (first,)
    return Drawn(steps[: source.pick((3, 3, 2, 1))], source.inputs(("normal", "ties", "positive"), ("special", "infinite")))  # fmt: skip


def network(source: Source) -> RNNSpec:
    """Draw a network of at most three layers that a descriptor takes."""
    algo = source.pick((STANDARD, STANDARD, *cudnnRNNAlgo_t))
    cell, data_type = source.pick(tuple(cudnnRNNMode_t)), source.pick(tuple(KINDS))
    need(not (algo == PERSIST_STATIC and data_type == DOUBLE))
    bias = source.pick(tuple(cudnnRNNBiasMode_t)) if algo == STANDARD else DOUBLE_BIAS
    direction, skips = source.pick(tuple(cudnnDirectionMode_t)), source.pick(tuple(cudnnRNNInputMode_t))
    hidden, layers = length(source), source.integer(1, 3)
    width = hidden if skips == cudnnRNNInputMode_t.CUDNN_SKIP_INPUT else length(source)
    projects = cell == LSTM and algo == STANDARD and source.chance(50)
    clips, drops = source.chance(20), source.chance(20)
    return RNNSpec(
        algo, cell, bias, direction, skips, data_type, source.pick(PRECISIONS[data_type]),
        source.pick(tuple(cudnnMathType_t)), width, hidden, source.integer(1, hidden) if projects else hidden, layers, True,
        clip(source) if clips else RNNClipSpec(), source.pick(PROBABILITIES) if drops else 0.0,
    )  # fmt: skip


def length(source: Source) -> int:
    """Draw the length of a vector: any, or one that tiles divide."""
    return source.pick((min(source.extent(), TILED[-1]), source.pick(TILED)))


def clip(source: Source) -> RNNClipSpec:
    """Draw bounds of an LSTM's state."""
    minmax, nan = cudnnRNNClipMode_t.CUDNN_RNN_CLIP_MINMAX, source.pick(tuple(cudnnNanPropagation_t))
    return RNNClipSpec(minmax, nan, *source.pick(BOUNDS))


def sequences(source: Source, spec: RNNSpec) -> tuple[cudnnRNNDataLayout_t, tuple[int, ...], int]:
    """Draw a layout, the lengths of the sequences, and the steps of the container.

    Packed sequences become shorter; persistent algorithms take sequences of one length.
    """
    layout = source.pick(tuple(cudnnRNNDataLayout_t))
    batch, longest = fitted((source.extent(), source.integer(1, 5)), 200)
    if spec.algo != STANDARD or source.chance(30):
        return layout, (longest,) * batch, longest
    lengths = [source.integer(0, longest) for _ in range(batch)]
    if layout == PACKED:
        lengths = sorted([longest, *lengths[1:]], reverse=True)
    return layout, tuple(lengths), longest


def forward(
    spec: RNNSpec,
    layout: cudnnRNNDataLayout_t,
    lengths: tuple[int, ...],
    longest: int,
    fill: float | None,
    training: bool,
    null: tuple[str, ...],
) -> RNNForward:
    """Return the forward operation of a network; ``null`` names the states that the call does not get."""
    x, y = (
        RNNDataSpec(spec.data_type, layout, longest, len(lengths), size, lengths, fill)
        for size in (spec.input_size, spec.output_size)
    )
    hx, cx, hy, cy = states(spec, len(lengths), ("hx", "cx", "hy", "cy"), null)
    spaces = workspace(spec, longest, len(lengths)), reserve(spec, longest, len(lengths), training)
    weights = TensorSpec.packed(spec.data_type, (1, spec.weight_elements, 1))
    return RNNForward(spec, training, x, hx, cx, weights, y, hy, cy, *spaces)


def backward(first: RNNForward, null: tuple[str, ...] = ()) -> tuple[RNNBackwardData, RNNBackwardWeights]:
    """Return the two backward operations after a forward operation. ``null`` names gradients that are not given."""
    n, common = first.network, (first.workspace, first.reserve)
    dhy, dhx, dcy, dcx = states(n, first.x.batch, ("dhy", "dhx", "dcy", "dcx"), null)
    data = RNNBackwardData(
        n, first.y, first.y, first.hx, dhy, first.cx, dcy, first.weightSpace, first.x, dhx, dcx, *common
    )
    return data, RNNBackwardWeights(n, first.x, first.hx, first.y, first.weightSpace, *common)


def states(spec: RNNSpec, batch: int, names: tuple[str, ...], null: tuple[str, ...]) -> list[TensorSpec | None]:
    """Return the descriptions of states; None for those that the call or the cell does not have."""
    widths = {"h": spec.projected, "c": spec.hidden} if spec.cell == LSTM else {"h": spec.projected}
    tensors = {
        kind: TensorSpec.packed(spec.data_type, (spec.pseudo_layers, batch, width)) for kind, width in widths.items()
    }
    return [None if name in null else tensors.get(name[-2]) for name in names]


def before(drawn: Drawn, seed: int) -> dict[str, Any]:
    """Return the states of dropout before the first call."""
    return {"states": np.array([2**63 + seed, 0], "<u8").view(np.uint8)} if drawn.operation.draws else {}
