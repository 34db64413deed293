"""Test gradients of attention against central differences of plain loops, along random directions."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnWgradMode_t
from dualdnn.api.operations.specs import DOUBLE, HALF
from dualdnn.conformance.cases.attention.attention_backward import backward_data, backward_weights
from dualdnn.conformance.cases.attention.attention_forward import attention, forward, with_projections
from dualdnn.conformance.trial import prepare
from dualdnn.reference import evaluate, judge, run
from dualdnn.reference.attention.tracked import Tracked
from dualdnn.reference.view import read, strided
from test_reference_attention import arrays_of, outputs

STEP = 1e-5
DIRECTIONS = 6  # random directions, along which all weights change together
ADD, SET = cudnnWgradMode_t
TRAININGS = [
    *(forward(with_projections(*on, mode=0, data_type=DOUBLE), trains=True, steps=(3, 4), lengths=(3, 2, 1, 3),
              low=(0, 1, 2), high=(4, 3, 2), key_lengths=(4, 3))
      for on in ((1, 1, 1, 1), (0, 0, 0, 0), (1, 0, 0, 1), (0, 1, 1, 0))),
    forward(attention((2, 2, 2, 2), (2, 3, 2), mode=1, data_type=DOUBLE), trains=True, steps=(3, 4), lengths=(3, 1, 2, 3),
            key_lengths=(4, 1, 0, 2), axes=(2, 0, 1, 3)),
    forward(attention((2, 2, 2, 5), (5, 3, 2), mode=0, data_type=DOUBLE), trains=True, steps=(2, 3), lengths=(2, 1, 2, 2), residuals=True),
]  # fmt: skip


# The first takes half of the time; two of the others cover its projections together.
@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.long), *range(1, len(TRAININGS))])
def test_gradients(number):
    """Each gradient is the slope of sum(dout * out); the gradient of the queries excludes the residuals."""
    training = TRAININGS[number]
    data, weights = backward_data(training), backward_weights(training)
    memory = prepare(training, "normal", 2) | {"dout": prepare(data, "normal", 2)["dout"]}
    memory |= {name: array for name, array in prepare(data, "normal", 2).items() if name not in memory}
    kept = evaluate(training, memory)["reserveSpace"].value
    dout = read(data.dout.tensor, memory["dout"], np.float64)
    arrays = arrays_of(training, memory)

    def loss() -> float:
        return sum(float(np.dot(vector, dout[index])) for index, vector in outputs(training, arrays).items())

    def slopes(name: str, directions: np.ndarray) -> np.ndarray:
        """Return the slope of the loss along one direction for each vector (last axis) of an array."""
        found = np.zeros(directions.shape[:-1])
        for index in np.ndindex(found.shape):
            middle = arrays[name][index[: arrays[name].ndim - 1]]
            before, sides = middle.copy(), []
            for offset in (STEP, -STEP):
                middle[...] = before + offset * directions[index]
                sides.append(loss())
            middle[...] = before
            found[index] = (sides[0] - sides[1]) / (2 * STEP)
        return found

    random = np.random.default_rng(number)

    exact = evaluate(data, {**memory, "reserveSpace": kept})
    assert (exact["reserveSpace"].value == kept).all()
    for name in ("queries", "keys", "values"):
        found = exact[f"d{name}"]
        determined = np.isfinite(found.magnitude)
        spec = getattr(data, name)
        steps = np.arange(spec.dims[0])[:, None, None, None]
        inside = np.broadcast_to(steps < np.reshape(spec.lengths, (*spec.dims[1:3], 1)), spec.dims)
        assert (determined == inside).all() and not found.value[~inside].any()
        directions = random.standard_normal(spec.dims)
        along = (np.where(inside, found.value, 0).astype(float) * directions).sum(-1)
        vectors = inside[..., 0]
        np.testing.assert_allclose(along[vectors], slopes(name, directions)[vectors], rtol=1e-6, atol=1e-7)
    found = evaluate(weights, {**memory, "reserveSpace": kept, "dweights": memory.get("weights")})
    if training.weights is not None:
        directions = random.standard_normal((DIRECTIONS, arrays["weights"].size))
        along = directions @ found["dweights"].value.astype(float).ravel()
        np.testing.assert_allclose(along, slopes("weights", directions), rtol=1e-6, atol=1e-7)


def test_add_is_a_blend():
    training = TRAININGS[0]
    assert backward_weights(training, ADD).blend_of("dweights") == (1.0, 1.0)
    assert backward_weights(training, SET).blend_of("dweights") == (1.0, 0.0)


def test_without_a_forward_call_nothing_is_determined():
    for operation in product_of_gradients(TRAININGS[0]):
        for name, exact in evaluate(operation, prepare(operation, "normal", 0)).items():
            assert name == "reserveSpace" or np.isinf(exact.magnitude).all()


def product_of_gradients(training):
    return [backward_data(training), *(backward_weights(training, mode) for mode in (ADD, SET))]


def test_the_loss_of_residuals_is_not_in_the_queries():
    """Residuals do not change the gradient operation."""
    training = TRAININGS[5]
    without = replace(training, residuals=None)
    for one, other in product([backward_data(training)], [backward_data(without)]):
        assert one == other


@pytest.mark.parametrize("name, attn, steps", [
    ("dqueries", attention((0, 0, 0, 0), (16, 16, 16), heads=1, mode=0, data_type=HALF), (40, 40)),
    ("dvalues", attention((0, 0, 250, 0), (4, 4, 16), heads=1, mode=0, data_type=HALF), (26, 26)),
    ("dweights", attention((0, 0, 32, 8), (1, 1, 1), heads=1, mode=0, data_type=HALF), (400, 1)),
])  # fmt: skip
def test_errors_that_terms_of_a_gradient_share(monkeypatch, name, attn, steps):
    """Numbers kept in half are not suspicious where many terms share one rounding: of out, a probability, or a head.

    A mistake of an eighth in the gradient is.
    """
    windows = [(max(step - 1, 0), step + 1) if name == "dvalues" else (0, steps[1]) for step in range(steps[0])]
    low, high = zip(*windows, strict=True)
    training = forward(attn, steps, 1, 1, None, low=low, high=high, trains=True)
    operation = backward_weights(training) if name == "dweights" else backward_data(training)
    memory = prepare(training, "positive", 0)
    memory |= {other: array for other, array in prepare(operation, "positive", 0).items() if other not in memory}
    kept = {"reserveSpace": evaluate(training, memory)["reserveSpace"].value}
    after = {other: array.copy() for other, array in {**memory, **kept}.items()}
    with monkeypatch.context() as patch:
        patch.setattr(Tracked, "kept", lambda self: self.made(self.value.astype(np.float16).astype(float), None))
        run(operation, after)
    after["reserveSpace"] = memory["reserveSpace"]
    verdict = judge(operation, memory, after, kept, random=True)
    assert verdict.agrees and not verdict.suspicions
    gradient = strided(operation.tensor(name), after[name])
    gradient[...] = gradient * 1.125
    assert judge(operation, memory, after, kept, random=True).errors[name].beyond
