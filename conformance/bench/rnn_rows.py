"""Lists the timed recurrent networks: speech and language models, a small network, and ragged batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from dualdnn.api.enumerations import (
    cudnnDirectionMode_t,
    cudnnMathType_t,
    cudnnRNNDataLayout_t,
    cudnnRNNInputMode_t,
)
from dualdnn.api.operations import Operation, RNNBackwardData, RNNBackwardWeights, RNNForward, TensorSpec
from dualdnn.api.operations.rnn import RNNDataSpec, RNNSpec, reserve, workspace
from dualdnn.api.operations.rnn.network import DOUBLE_BIAS, GRU, LSTM, RELU, STANDARD, TANH
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF

from .row import Row

# (cell, steps, batch, size of inputs and states, layers, directions, whether sequences differ in length)
NETWORKS = (
    (LSTM, 128, 16, 768, 1, 1, False),
    (LSTM, 20, 64, 512, 2, 1, False),
    (GRU, 20, 64, 512, 2, 1, False),
    (TANH, 20, 64, 512, 2, 1, False),
    (LSTM, 50, 32, 256, 2, 2, True),
    (LSTM, 4, 1, 64, 1, 1, False),
)

CALLS = "inference", "forward", "backward data", "backward weights"
# The grid spans cells, batches and sizes: (cell, steps, batch, size of inputs and states, whether data is FLOAT).
# Other data is HALF.
GRID = (
    (LSTM, 1024, 16, 768, False), (LSTM, 64, 1, 1024, False), (LSTM, 64, 8, 2048, False), (LSTM, 32, 256, 512, False),
    (LSTM, 64, 32, 256, True), (LSTM, 16, 128, 64, False), (LSTM, 256, 64, 512, False), (LSTM, 32, 64, 1024, True),
    (GRU, 128, 32, 512, False), (GRU, 64, 64, 1024, False), (GRU, 256, 1, 256, True), (TANH, 128, 32, 512, False),
    (RELU, 64, 16, 2048, False), (TANH, 1024, 4, 128, True), (GRU, 1024, 16, 512, False), (GRU, 16, 256, 128, False),
    (GRU, 64, 8, 2048, False), (RELU, 256, 64, 256, False), (RELU, 32, 1, 1024, True), (TANH, 16, 256, 1024, False),
    (RELU, 1024, 1, 64, True),
)  # fmt: skip
# This grid has networks of several layers. The last two fields of an entry are layers and directions.
DEEP_GRID = (
    (LSTM, 128, 16, 512, False, 2, 1), (LSTM, 64, 32, 256, False, 4, 1), (LSTM, 32, 1, 1024, False, 2, 1),
    (LSTM, 128, 64, 512, False, 3, 1), (LSTM, 256, 8, 256, False, 2, 2), (LSTM, 512, 64, 128, False, 2, 1),
    (LSTM, 64, 16, 256, True, 3, 1), (GRU, 128, 16, 512, False, 3, 1), (GRU, 512, 4, 128, False, 4, 1),
    (GRU, 64, 32, 512, False, 2, 2), (TANH, 128, 32, 256, False, 3, 1), (TANH, 512, 1, 128, True, 4, 1),
    (RELU, 64, 16, 1024, False, 2, 1), (RELU, 32, 64, 512, False, 4, 1),
)  # fmt: skip


def network(cell: Any, size: int, layers: int, directions: int, data_type: Any) -> RNNSpec:
    """Return a network with inputs as long as its states."""
    direction = cudnnDirectionMode_t(directions - 1)
    return RNNSpec(STANDARD, cell, DOUBLE_BIAS, direction, cudnnRNNInputMode_t.CUDNN_LINEAR_INPUT, data_type, FLOAT,
                   cudnnMathType_t.CUDNN_DEFAULT_MATH, size, size, size, layers, True)  # fmt: skip


def forward(spec: RNNSpec, steps: int, lengths: tuple[int, ...]) -> RNNForward:
    """Return the forward call of training, with initial and final states."""
    batch, layout = len(lengths), cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED
    x, y = (
        RNNDataSpec(spec.data_type, layout, steps, batch, size, lengths, 0.0)
        for size in (spec.input_size, spec.output_size)
    )
    h = TensorSpec.packed(spec.data_type, (spec.pseudo_layers, batch, spec.hidden))
    c = h if spec.cell == LSTM else None
    weights = TensorSpec.packed(spec.data_type, (1, spec.weight_elements, 1))
    return RNNForward(spec, True, x, h, c, weights, y, h, c, workspace(spec, steps, batch), reserve(spec, steps, batch))


def passes(first: RNNForward) -> Iterator[tuple[str, Operation]]:
    """Return the three calls of a training step."""
    n, x, y, h, c, w = first.network, first.x, first.y, first.hx, first.cx, first.weightSpace
    spaces = first.workspace, first.reserve
    yield "forward", first
    yield "backward data", RNNBackwardData(n, y, y, h, h, c, c, w, x, h, c, *spaces)
    yield "backward weights", RNNBackwardWeights(n, x, h, y, w, *spaces)


def inference(training: RNNForward) -> RNNForward:
    """Return the forward call that keeps nothing."""
    kept = reserve(training.network, training.x.max_length, training.x.batch, False)
    return replace(training, training=False, reserve=kept)


def grid_rows() -> Iterator[Row]:
    """Return the grid: inference, and each of the three calls of a training step."""
    for cell, steps, batch, size, is_float, layers, directions in (*((*row, 1, 1) for row in GRID), *DEEP_GRID):
        spec = network(cell, size, layers, directions, FLOAT if is_float else HALF)
        name, kind = cell.name.removeprefix("CUDNN_").lower(), "float" if is_float else "half"
        shape = size if spec.pseudo_layers == 1 else f"{layers}x{directions} layers {size}"
        first = forward(spec, steps, (steps,) * batch)
        for call, operation in (("inference", inference(first)), *passes(first)):
            yield Row(f"{name} grid {call} {shape}, {steps} steps of {batch} {kind}", f"{name} {call}", operation)


def by_step(results: Iterable[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Return the times (ours, the vendor's) of inference and of whole training steps, for networks of the grid with
    every call timed."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for r in results:
        cell, _, rest = r["name"].partition(" grid ")
        call = next((name for name in CALLS if rest.startswith(name)), None)
        if call and r["ours_us"] and r["vendor_us"]:
            found.setdefault(cell + rest.removeprefix(call), {})[call] = r["ours_us"], r["vendor_us"]
    steps = []
    for calls in found.values():
        inferring, *training = (calls.get(name) for name in CALLS)
        steps += [inferring] if inferring else []
        whole = [times for times in training if times]
        steps += [(sum(ours for ours, _ in whole), sum(theirs for _, theirs in whole))] if len(whole) == 3 else []
    return steps


def rnn_rows() -> Iterator[Row]:
    """Return every network in float and half, the grid, and networks without TF32."""
    yield from grid_rows()
    yield from fma_rows()
    for cell, steps, batch, size, layers, directions, ragged in NETWORKS:
        for data_type in (FLOAT, HALF):
            spec = network(cell, size, layers, directions, data_type)
            lengths = tuple(steps - (i * steps // (2 * batch) if ragged else 0) for i in range(batch))
            kind, name = data_type.name.removeprefix("CUDNN_DATA_").lower(), cell.name.removeprefix("CUDNN_").lower()
            shape = f"{layers}x{directions} layers {size}, {steps} steps of {batch}{' ragged' if ragged else ''}"
            for call, operation in passes(forward(spec, steps, lengths)):
                yield Row(f"{name} {call} {shape} {kind}", f"{name} {call}", operation)


def fma_rows() -> Iterator[Row]:
    """Return training in floats whose products are not rounded: frameworks do this unless TF32 is allowed."""
    for cell, steps, batch, size in ((LSTM, 64, 32, 512), (GRU, 32, 64, 1024)):
        spec = replace(network(cell, size, 1, 1, FLOAT), math_type=cudnnMathType_t.CUDNN_FMA_MATH)
        name = cell.name.removeprefix("CUDNN_").lower()
        for call, operation in passes(forward(spec, steps, (steps,) * batch)):
            yield Row(f"{name} {call} {size}, {steps} steps of {batch} float FMA", f"{name} {call}", operation)


def rnn_kinds() -> Iterator[Operation]:
    """Return small networks that together use every source in every data type."""
    for cell, data_type in product((LSTM, GRU, RELU, TANH), (HALF, FLOAT, DOUBLE)):
        spec = replace(network(cell, 32, 2, 1, data_type), dropout=0.5)
        if data_type == DOUBLE:
            spec = replace(spec, precision=DOUBLE)
        for _, operation in passes(forward(spec, 2, (2, 1))):
            yield operation
    # The products of these floats are not rounded.
    spec = replace(network(LSTM, 32, 1, 1, FLOAT), math_type=cudnnMathType_t.CUDNN_FMA_MATH)
    for _, operation in passes(forward(spec, 2, (2, 1))):
        yield operation
