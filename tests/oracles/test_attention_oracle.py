"""Compare the reference of multi-head attention with the answers of NVIDIA's attn_ref.py (record_attention.py)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from attention_configurations import COUNT, PROJECTIONS, Configuration, configuration, names_of_answers
from dualdnn.api.enumerations import cudnnMathType_t, cudnnSeqDataAxis_t
from dualdnn.api.enumerations import cudnnMultiHeadAttnWeightKind_t as Kind
from dualdnn.api.operations import (
    AttnSpec,
    MultiHeadAttnBackwardData,
    MultiHeadAttnBackwardWeights,
    MultiHeadAttnForward,
    MultiHeadAttnStep,
    SeqDataSpec,
)
from dualdnn.api.operations.attention.memory import weights_of
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.conformance.cases.attention.attention_backward import backward_data, backward_weights
from dualdnn.conformance.trial import prepare
from dualdnn.reference import evaluate
from dualdnn.reference.view import strided, write

AXES = list(cudnnSeqDataAxis_t)
ROUNDINGS = {"rtol": 1e-11, "atol": 1e-11}  # tolerance between two computations in double, for numbers near 1
BLOCK = 20


@cache
def recorded():
    with np.load(Path(__file__).with_name("attention.npz")) as found:
        return np.split(found["answers"], np.cumsum(found["lengths"])[:-1])


def spec_of(c: Configuration, data_type) -> AttnSpec:
    mode = c.is_one_to_one + 2 * c.has_biases
    math = cudnnMathType_t.CUDNN_DEFAULT_MATH
    steps, batches, beams, _ = c.arrays["queries"].shape
    longest = steps, len(c.arrays["keys"])
    return AttnSpec(
        mode, c.heads, c.scaler, data_type, data_type, math, *c.sizes, *c.projected, *longest, batches, beams
    )


def operation_of(c: Configuration, data_type) -> MultiHeadAttnForward:
    axes = (*(AXES[i] for i in c.axes), AXES[3])

    def data(name: str, lengths) -> SeqDataSpec:
        return SeqDataSpec(data_type, c.arrays[name].shape, axes, tuple(map(int, lengths.ravel())))

    queries, out = data("queries", c.lengths), data("dout", c.lengths)
    keys, values = data("keys", c.key_lengths), data("values", c.key_lengths)
    residuals = queries if c.has_residuals else None
    return MultiHeadAttnForward(
        spec_of(c, data_type), tuple(c.low), tuple(c.high), queries, residuals, keys, values, out, c.trains
    )


def padded(spec: SeqDataSpec, array):
    """Return the array with NaN after the sequences' ends."""
    steps = np.arange(spec.dims[0])[:, None, None, None]
    return np.where(steps < np.reshape(spec.lengths, (*spec.dims[1:3], 1)), array, np.nan)


def weight_buffer(c: Configuration, operation):
    """Return all weights and biases as the attention's single vector."""
    vector = np.zeros(operation.weights.dims)
    for name, place in places(c, operation.attn, vector, "w"):
        place[...] = c.arrays[name]
    for name, place in places(c, operation.attn, vector, "b"):
        place[...] = c.arrays[name].reshape(place.shape)
    return vector


def places(c: Configuration, attn: AttnSpec, vector, prefix: str):
    """Return (name, elements in the vector) for the weights, or for the biases."""
    kind = {"w": "WEIGHTS", "b": "BIASES"}[prefix]
    for name in PROJECTIONS:
        part = weights_of(attn).get(Kind[f"CUDNN_MH_ATTN_{name.upper()}_{kind}"])
        assert (part is not None) == (prefix + name in c.arrays)
        if part is not None:
            strides = [stride * vector.itemsize for stride in part.strides]
            yield prefix + name, np.lib.stride_tricks.as_strided(vector[part.offset :], part.dims, strides)


def memory_of(c: Configuration, operations):
    memory = {}
    for operation in operations:
        memory |= {name: array for name, array in prepare(operation, "normal", 0).items() if name not in memory}
    training = operations[0]
    arrays = {name: padded(getattr(training, "out" if name == "dout" else name), c.arrays[name])
              for name in ("queries", "keys", "values", "dout")}  # fmt: skip
    arrays["residuals"] = arrays["queries"]
    if training.weights is not None:
        arrays["weights"] = weight_buffer(c, training)
    for name, array in arrays.items():
        holder = next((o for o in operations if name in o.reads), None)
        if holder is not None:
            write(holder.tensor(name), memory[name], array)
    return memory


def computed(c: Configuration, data_type):
    """Return the reference's answers by name, with zeros in padding."""
    training = operation_of(c, data_type)
    if not c.trains:
        return {"out": evaluate(training, memory_of(c, [training]))["out"].value}
    data, weights = backward_data(training), backward_weights(training)
    assert isinstance(data, MultiHeadAttnBackwardData) and isinstance(weights, MultiHeadAttnBackwardWeights)
    memory = memory_of(c, [training, data])
    first = evaluate(training, memory)
    memory["reserveSpace"] = first["reserveSpace"].value
    found = {"out": first["out"].value}
    found |= {name: exact.value for name, exact in evaluate(data, memory).items() if name != "reserveSpace"}
    if training.weights is not None:
        memory["dweights"] = memory["weights"].copy()
        vector = np.ascontiguousarray(evaluate(weights, memory)["dweights"].value)
        found |= {f"d{name}": place for name, place in places(c, training.attn, vector, "w")}
    return found


@pytest.mark.parametrize("first", range(0, COUNT, BLOCK))
def test_the_reference_agrees_with_nvidia(first):
    """Outputs and gradients of data and weights agree in one of the data types; NaN in padding changes nothing."""
    for number in range(first, first + BLOCK):
        c = configuration(number)
        found = computed(c, (DOUBLE, FLOAT, HALF)[number // 2 % 3])
        names = names_of_answers(c)
        assert set(found) == set(names)
        flat = np.concatenate([found[name].astype(float).ravel() for name in names])
        np.testing.assert_allclose(flat, recorded()[number], **ROUNDINGS, err_msg=str(c))


@pytest.mark.parametrize("first", range(0, COUNT, 4 * BLOCK))
def test_one_step(first):
    """A call for one time-step gives the same outputs for that step."""
    for number in range(first, first + 4 * BLOCK, 3):
        c = configuration(number)
        operation = operation_of(c, DOUBLE)
        memory = memory_of(c, [operation])
        due = recorded()[number][: np.prod(operation.out.dims)].reshape(operation.out.dims)
        for current in range(operation.queries.dims[0]):
            o = operation
            step = MultiHeadAttnStep(o.attn, current, (c.low[current],), (c.high[current],), o.queries, o.residuals, o.keys, o.values, o.out)  # fmt: skip
            before = memory | {"out": np.zeros_like(memory["out"])}
            strided(o.out.tensor, before["out"])[...] = 7
            found = evaluate(step, before)["out"].value.astype(float)
            np.testing.assert_allclose(found[current], due[current], **ROUNDINGS, err_msg=str(c))
            assert (np.delete(found, current, axis=0) == 7).all()


def test_the_configurations_cover_every_kind():
    every = [configuration(number) for number in range(COUNT)]
    assert {tuple(bool(size) for size in c.projected) for c in every if c.trains} == {tuple(n >> i & 1 == 1 for i in range(4)) for n in range(16)}  # fmt: skip
    for trait in ("has_biases", "has_residuals", "is_one_to_one", "trains"):
        assert 30 < sum(getattr(c, trait) for c in every) < COUNT
    assert {c.axes for c in every} == {c.axes for c in every[:6]} and len({c.axes for c in every}) == 6
    assert sum(c.scaler == 0 for c in every) < 5 and {c.heads for c in every} == {1, 2, 3}
    assert sum(len(set(zip(c.low, c.high, strict=True))) > 1 for c in every) > 50
    assert sum(c.arrays["queries"].shape[2] > 1 for c in every) > 80
