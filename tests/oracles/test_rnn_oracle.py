"""Compare the reference of recurrent networks with the answers of PyTorch, JAX's lstm_ref and, for clipped states, TensorFlow
(record_rnn.py)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from dualdnn.api.enumerations import (
    cudnnDirectionMode_t,
    cudnnNanPropagation_t,
    cudnnRNNClipMode_t,
    cudnnRNNDataLayout_t,
    cudnnRNNMode_t,
)
from dualdnn.api.operations import RNNBackwardData, RNNBackwardWeights, RNNForward, TensorSpec
from dualdnn.api.operations.rnn import RNNClipSpec, RNNDataSpec, RNNSpec, reserve, workspace
from dualdnn.api.operations.rnn.network import LSTM, PROJECTION
from dualdnn.api.operations.specs import DOUBLE
from dualdnn.reference import run
from rnn_configurations import CLIPPED, COUNT, GATES, Network, configuration, names_of_answers

CELLS = {"lstm": "CUDNN_LSTM", "gru": "CUDNN_GRU", "tanh": "CUDNN_RNN_TANH", "relu": "CUDNN_RNN_RELU"}
TOLERANCES = {"torch": 1e-11, "jax": 1e-11, "tensorflow": 2e-6}  # TensorFlow's cell has float only.
BLOCK = 16


@cache
def recorded(kind):
    """Return a map from number to the answers, concatenated."""
    with np.load(Path(__file__).with_name(f"rnn_{kind}.npz")) as found:
        parts = np.split(found["answers"], np.cumsum(found["lengths"])[:-1])
        return dict(zip(found["numbers"].tolist(), parts, strict=True))


def spec_of(n: Network) -> RNNSpec:
    clip = RNNClipSpec()
    if n.clip:
        propagation = cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN
        clip = RNNClipSpec(cudnnRNNClipMode_t.CUDNN_RNN_CLIP_MINMAX, propagation, -n.clip, n.clip)
    return RNNSpec(
        cell=cudnnRNNMode_t[CELLS[n.cell]], direction=cudnnDirectionMode_t(n.directions - 1), data_type=DOUBLE,
        precision=DOUBLE, input_size=n.width, hidden=n.hidden, projected=n.output, layers=n.layers, padded=True, clip=clip,
    )  # fmt: skip


def places(n: Network, spec: RNNSpec, space):
    """Return (name, elements in the weight space) for all matrices and biases, with the gates' rows stacked."""
    gates = GATES[n.cell]
    for p in range(n.layers * n.directions):
        for name, find, first in (
            ("w_ih", spec.matrix, 0), ("w_hh", spec.matrix, gates), ("b_ih", spec.bias_vector, 0), ("b_hh", spec.bias_vector, gates),
        ):  # fmt: skip
            for gate in range(gates):
                at = find(p, first + gate)
                rows = slice(gate * n.hidden, (gate + 1) * n.hidden)
                yield f"{name}{p}", rows, space[at.offset : at.end].reshape(n.hidden, -1)
        if n.projected:
            at = spec.matrix(p, PROJECTION)
            yield f"w_hr{p}", slice(None), space[at.offset : at.end].reshape(n.projected, n.hidden)


def computed(n: Network):
    """Return the reference's answers in the same order."""
    spec, a = spec_of(n), n.arrays
    steps, batch = max(n.lengths), len(n.lengths)
    layout = cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED
    x, y = (
        RNNDataSpec(DOUBLE, layout, steps, batch, size, tuple(n.lengths), 0.0) for size in (n.width, spec.output_size)
    )
    h = TensorSpec.packed(DOUBLE, a["hx"].shape)
    c = TensorSpec.packed(DOUBLE, a["cx"].shape) if spec.cell == LSTM else None
    w = TensorSpec.packed(DOUBLE, (1, spec.weight_elements, 1))
    spaces = workspace(spec, steps, batch), reserve(spec, steps, batch)
    operations = (
        RNNForward(spec, True, x, h, c, w, y, h, c, *spaces),
        RNNBackwardData(spec, y, y, h, h, c, c, w, x, h, c, *spaces),
        RNNBackwardWeights(spec, x, h, y, w, *spaces),
    )
    space = np.zeros(spec.weight_elements)
    kinds = ("w_ih", "w_hh", "b_ih", "b_hh", "w_hr")
    given = {f"{kind}{p}": part for p, ws in enumerate(n.weights) for kind, part in zip(kinds, ws, strict=True)}
    for name, rows, place in places(n, spec, space):
        place[...] = given[name][rows].reshape(place.shape)
    memory = {}
    for operation in operations:
        for name in operation.operands:
            array = space if name == "weightSpace" else a.get(name)
            size = operation.nbytes(name)
            memory.setdefault(
                name, np.zeros(size, np.uint8) if array is None else np.frombuffer(array.tobytes(), np.uint8).copy()
            )
        run(operation, memory)
    shapes = {"y": a["dy"], "hy": a["hx"], "cy": a["cx"], "dx": a["x"], "dhx": a["hx"], "dcx": a["cx"]}
    found = {name: memory[name].view(np.float64).reshape(shapes[name].shape) for name in shapes if name in memory}
    for name in ("y", "dx"):
        found[name] = found[name] * n.exists[..., None]
    parts: dict[str, list] = {}
    for name, _, place in places(n, spec, memory["dweightSpace"].view(np.float64)):
        parts.setdefault(name, []).append(place[:, 0] if name.startswith("b") else place)
    return found | {name: np.concatenate(blocks) for name, blocks in parts.items()}


@pytest.mark.parametrize("kind", TOLERANCES)
@pytest.mark.parametrize("first", range(0, COUNT + CLIPPED, BLOCK))
def test_answers(kind, first):
    """Outputs, states and their gradients agree, and a random sum of the gradients of each row of a matrix."""
    for number in range(first, first + BLOCK):
        if number not in recorded(kind):
            continue
        n, due = configuration(number), recorded(kind)[number]
        found = computed(n)
        for name in names_of_answers(n, kind != "tensorflow"):
            values = n.weighted(found[name]) if "_" in name else found[name]
            part, due = due[: values.size], due[values.size :]
            tolerance = TOLERANCES[kind]
            np.testing.assert_allclose(
                values.ravel(), part, rtol=tolerance, atol=tolerance, err_msg=f"{n.number} {n.cell} {name}"
            )
        assert not due.size


def test_the_records_include_every_kind():
    assert set(recorded("torch")) == set(range(COUNT)) and set(recorded("tensorflow")) == set(
        range(COUNT, COUNT + CLIPPED)
    )
    every = [configuration(number) for number in range(COUNT + CLIPPED)]
    assert len(recorded("jax")) > 10
    for found in ({n.cell for n in every}, {(n.layers, n.directions) for n in every}):
        assert len(found) == 4
    assert any(n.projected for n in every) and any(len(set(n.lengths)) > 1 for n in every)
    clipped = 0
    for n in every[COUNT:]:
        parts = dict(zip(("y", "hy"), (n.arrays["dy"].size, n.arrays["hx"].size), strict=True))
        clipped += bool((abs(recorded("tensorflow")[n.number][sum(parts.values()) :]) == np.float32(n.clip)).any())
    assert clipped > CLIPPED // 2
