"""Test the reference CTC loss against all alignments, recursions, central differences and NVIDIA's library."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dualdnn.api import cudnn
from dualdnn.api.enumerations import cudnnCTCLossAlgo_t, cudnnLossNormalizationMode_t, cudnnNanPropagation_t
from dualdnn.api.operations import CTCLoss, CTCLoss_v8, CTCLossSpec, TensorSpec
from dualdnn.api.operations.specs import FLOAT, INT32
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.recorded import load_recording, packaged_recordings
from dualdnn.conformance.trial import Step, attempt_chain
from dualdnn.reference import evaluate, judge

DETERMINISTIC, _ = cudnnCTCLossAlgo_t
NONE, SOFTMAX = cudnnLossNormalizationMode_t
ZERO, KEEP = cudnnNanPropagation_t


def loss(dims, labels, label_lengths, input_lengths, mode=NONE, nan=ZERO, gradients=True):
    spec = TensorSpec.packed(FLOAT, dims)
    costs = TensorSpec(FLOAT, dims[1:2], (1,))
    return CTCLoss(CTCLossSpec(FLOAT, mode, nan), DETERMINISTIC, tuple(labels), tuple(label_lengths), tuple(input_lengths), 16,
                   spec, costs, spec if gradients else None)  # fmt: skip


def computed(operation, x, prior=0.0):
    """Return (costs, gradients) of the reference before they are rounded."""
    memory = {"probs": x.astype(np.float32).reshape(-1).view(np.uint8)}
    memory["gradients"] = np.full(x.size, prior, np.float32).view(np.uint8)
    found = evaluate(operation, memory)
    return found["costs"].value, found["gradients"].value if "gradients" in found else None


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def collapsed(path):
    """Return the labels of an alignment: first repetitions, then blanks are removed."""
    return tuple(k for k, _ in itertools.groupby(path) if k != 0)


def by_enumeration(p, labels):
    """Return (cost, share of alignments by time and class) of one sequence by enumerating all paths."""
    times, classes = p.shape
    total, share = 0.0, np.zeros(p.shape)
    for path in itertools.product(range(classes), repeat=times):
        if collapsed(path) == tuple(labels):
            weight = math.prod(p[t, k] for t, k in enumerate(path))
            total += weight
            for t, k in enumerate(path):
                share[t, k] += weight
    return (-math.log(total), share / total) if total else (math.inf, share)


def by_recursion(p, labels):
    """Return the cost of one sequence by the forward recursion, rescaled at every time step."""
    states = [0]
    for label in labels:
        states += [label, 0]
    alpha, cost = [p[0, 0], *([p[0, labels[0]]] if labels else [])] + [0.0] * (len(states) - 2), 0.0
    for t in range(len(p)):
        if t:
            before = alpha
            alpha = []
            for s, k in enumerate(states):
                reach = before[s] + (before[s - 1] if s else 0)
                if s > 1 and k != 0 and k != states[s - 2]:
                    reach += before[s - 2]
                alpha.append(reach * p[t, k])
        scale = sum(alpha)
        cost -= math.log(scale)
        alpha = [a / scale for a in alpha]
    return cost - math.log(alpha[-1] + (alpha[-2] if labels else 0))


@pytest.mark.parametrize("labels", [(), (1,), (2, 1), (1, 1), (2, 2, 1), (1, 2, 1, 2)], ids=str)
def test_all_alignments(labels):
    """Costs and gradients equal the enumeration, from probabilities or activations, also if a sequence ends early."""
    random = np.random.default_rng(len(labels))
    x = random.normal(size=(6, 2, 3)).astype(np.float32).astype(np.float64)
    for mode in (NONE, SOFTMAX):
        given = x if mode == SOFTMAX else np.exp(x).astype(np.float32).astype(np.float64) / 8
        p = softmax(x) if mode == SOFTMAX else given
        costs, gradients = computed(loss(x.shape, labels * 2, (len(labels),) * 2, (6, 5), mode), given)
        for n, times in enumerate((6, 5)):
            cost, share = by_enumeration(p[:times, n], labels)
            assert costs[n] == pytest.approx(cost, rel=1e-12)
            np.testing.assert_allclose(gradients[:times, n], p[:times, n] - share, atol=1e-12)
            assert not gradients[times:, n].any()


def test_gradients_are_those_of_the_activations():
    """Gradients with softmax are central differences of the cost in the activations."""
    random = np.random.default_rng(3)
    x = random.normal(size=(9, 1, 5)).astype(np.float32).astype(np.float64)
    labels, step = (3, 3, 1, 4), 1e-5
    costs, gradients = computed(loss(x.shape, labels, (4,), (9,), SOFTMAX), x)
    assert costs[0] == pytest.approx(by_recursion(softmax(x)[:, 0], labels), rel=1e-12)
    for index in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        slope = (by_recursion(softmax(up)[:, 0], labels) - by_recursion(softmax(down)[:, 0], labels)) / (2 * step)
        assert gradients[index] == pytest.approx(slope, abs=1e-8)


def test_long_sequences():
    """A sequence of 256 labels may have a probability that underflows in float."""
    random = np.random.default_rng(4)
    x = (4 * random.normal(size=(700, 1, 30))).astype(np.float32).astype(np.float64)
    labels = tuple(int(k) for k in random.integers(1, 30, 256))
    costs, gradients = computed(loss(x.shape, labels, (256,), (700,), SOFTMAX), x)
    assert costs[0] == pytest.approx(by_recursion(softmax(x)[:, 0], labels), rel=1e-11) and costs[0] > 500
    np.testing.assert_allclose(gradients.sum(axis=2), 0, atol=1e-9)  # The shares at a time step add up to one.


@pytest.mark.parametrize("labels, times", [((1, 1), 2), ((1, 2, 1), 2), ((1,), 0), ((2, 2, 2), 4)], ids=str)
def test_without_an_alignment(labels, times):
    x = np.random.default_rng(5).normal(size=(4, 1, 3))
    for nan, prior in ((ZERO, 0.0), (KEEP, 7.5), (KEEP, math.nan)):
        costs, gradients = computed(loss(x.shape, labels, (len(labels),), (times,), SOFTMAX, nan), x, prior)
        assert costs[0] == 0
        np.testing.assert_array_equal(gradients, np.full(x.shape, prior))


def test_no_probability_at_all():
    """Labels with a probability of zero have an infinite cost and zero gradients."""
    p = np.full((3, 1, 3), 0.5)
    p[:, 0, 2] = 0
    costs, gradients = computed(loss(p.shape, (2,), (1,), (3,)), p)
    assert costs[0] == math.inf and not gradients.any()


@pytest.mark.parametrize("labels, times, class_", [((1, 2, 3), 4, 3), ((1, 1), 3, 0)], ids=str)
def test_nan_that_no_alignment_has_changes_no_cost(labels, times, class_):
    """A NaN of the first time step that no alignment has, at the last label or a blank, changes no cost or bound."""
    p = np.random.default_rng(6).uniform(0.2, 1, (times, 1, 4)).astype(np.float32)
    operation, found = loss(p.shape, labels, (len(labels),), (times,)), []
    for probability in (p[0, 0, class_], math.nan):
        p[0, 0, class_] = probability
        found.append(evaluate(operation, {name: p.view(np.uint8).ravel() for name in ("probs", "gradients")}))
    whole, other = (outputs["costs"] for outputs in found)
    assert (other.value, other.magnitude) == (whole.value, whole.magnitude)
    assert np.isnan(found[1]["gradients"].value).sum() == 1


def test_labels_of_the_device_are_not_trusted():
    """A sequence with an invalid length or label has no alignment, and does not change the sequences after it."""
    x = np.random.default_rng(7).normal(size=(6, 5, 4)).astype(np.float32)
    spec, each = TensorSpec.packed(FLOAT, x.shape), TensorSpec(FLOAT, (5,), (1,))
    lengths, labels = TensorSpec(INT32, (5,), (1,)), TensorSpec(INT32, (15,), (1,))
    operation = CTCLoss_v8(
        CTCLossSpec(FLOAT, SOFTMAX, ZERO, 3), DETERMINISTIC, 16, spec, labels, lengths, lengths, each, spec
    )
    memory = {
        "probs": x, "labels": np.array([1, 2, 3, 2, 1, 0, 3, 3], np.int32), "labelLengths": np.array([4, 2, -1, 1, 2], np.int32),
        "inputLengths": np.array([6, 6, 6, 6, 6], np.int32), "gradients": np.zeros(x.shape, np.float32),
    }  # fmt: skip
    found = evaluate(operation, {name: array.reshape(-1).view(np.uint8) for name, array in memory.items()})
    expected, _ = computed(loss(x.shape, (2, 1, 3, 3), (0, 2, 0, 0, 2), (0, 6, 0, 0, 6), SOFTMAX), x)
    np.testing.assert_allclose(found["costs"].value, expected, rtol=1e-12)
    assert found["costs"].value[1] > 0 < found["costs"].value[4]


def recorded():
    """Yield (record, operation, memory before, memory after) of NVIDIA's calls, with gradients where the document defines all."""
    for path in packaged_recordings():
        for record in load_recording(path).records:
            p, arrays = (record.probe or {}).get("params", {}), record.arrays
            if not record.function.startswith("cudnnCTCLoss") or not arrays:
                continue
            if min(p["labelLengths"]) == 0 or min(p["inputLengths"]) == 0 or p["probs"]["strides"]:
                continue
            mode, nan = (SOFTMAX if p["normMode"] else NONE), (KEEP if p["gradMode"] else ZERO)
            dims = tuple(p["probs"]["dims"])
            gradients = mode == SOFTMAX and "gradients" in arrays and min(p["inputLengths"]) == dims[0]
            prior = {
                "costs": np.zeros(dims[1], np.float32),
                "gradients": np.full(dims, p["poison"]["gradients"], np.float32),
            }
            names = ("costs", "gradients") if gradients else ("costs",)
            before = {"probs": arrays["probs"]} | {name: prior[name] for name in names}
            before, after = (
                {name: np.ascontiguousarray(a).reshape(-1).view(np.uint8) for name, a in given.items()}
                for given in (before, {name: arrays[name] for name in names})
            )
            given = map(int, arrays["labels"]), p["labelLengths"], p["inputLengths"]
            yield record, loss(dims, *given, mode, nan, gradients), before, before | after


def test_recorded_calls():
    """NVIDIA's costs, and gradients with softmax, are within the bounds, except records tagged large (D630 to D633)."""
    judged = 0
    for record, operation, before, after in recorded():
        verdict = judge(operation, before, after)
        assert verdict.agrees != (record.probe["tag"] == "large"), (record.id, verdict.explanation())
        judged += 1
    assert judged > 60


@pytest.mark.parametrize("backend", ["reference", "accelerated"])
def test_recorded_calls_again(backend):
    """Both backends agree with the reference on the recorded inputs."""
    handle = cudnn.cudnnCreate(backend=backend, device="emulated" if backend == "accelerated" else None)
    for record, operation, before, _ in recorded():
        found = attempt_chain(Caller(cudnn, handle), [Step(operation)], 0, {"probs": before["probs"]})
        assert found.passed, f"{record.id} {record.probe['tag']}: {found.explanation()}"
    cudnn.cudnnDestroy(handle)
