"""Samples of a call's elements: their bounds beside those of the judge, what is read for them, what they notice."""

from __future__ import annotations

import numpy as np
import pytest
from dualdnn.conformance.cases.every_operation import SAMPLES
from dualdnn.conformance.trial import prepare
from dualdnn.reference import evaluate, formulas, run, sampled
from dualdnn.reference.formulas import Elements, Pages
from dualdnn.reference.formulas.elements import PAGE
from dualdnn.reference.judge import bounds

# Operations whose formulas say what rounding may do.
BOUNDED = [
    name
    for name, o in SAMPLES.items()
    if name.startswith(
        (
            "Activation",
            "Pooling",
            "BatchNorm",
            "NormalizationForw",
            "Convolution",
            "AddTensor",
            "ScaleTensor",
            "Transform",
        )
    )
    and formulas.has_formula(o)
    and not any(raw in o.inputs for raw in o.raw)
]
FACTOR = 8  # between two bounds of one element, of which one has the largest terms of a plane where the other has those nearby


def computed(operation):
    memory = prepare(operation, "normal", 1)
    after = {name: array.copy() for name, array in memory.items()}
    run(operation, after)
    return memory, after


@pytest.mark.parametrize("name", BOUNDED)
def test_right_results_pass_and_others_do_not(name):
    operation = SAMPLES[name]
    memory, after = computed(operation)
    said = sampled.Sample()
    places = sampled.places_of(operation, 40, 1)
    wanted = sampled.expected(operation, memory, places, said)
    read = Elements(operation, after, 2**30)
    sampled.compare(operation, wanted, read, said)
    assert not said.wrong, said.wrong[0]
    assert len(said.ratios) + sum(said.untold.values()) == sum(map(len, places.values())) and said.worst <= 1
    judged = {
        output: bounds(operation, output, exact, memory)[1]
        for output, exact in evaluate(operation, memory).items()
        if not exact.raw
    }
    for expected in wanted:
        ours, theirs = expected.bound, judged[expected.output][expected.index]
        assert np.isinf(theirs) or theirs / FACTOR <= ours <= theirs * FACTOR, expected
    beyond = sampled.Sample()
    shifted = {(e.output, e.index): e.value + 3 * e.bound + 2**-6 * abs(e.value) + 1 for e in wanted}
    sampled.compare(operation, wanted, lambda output, index: shifted[output, index], beyond)
    assert len(beyond.wrong) == sum(np.isfinite([e.bound + e.value for e in wanted]))


def test_only_the_pages_that_a_sample_needs_are_copied():
    asked = []
    memory = np.arange(5 * PAGE // 4, dtype=np.float32).view(np.uint8)

    def copy(begin, count):
        asked.append((begin, count))
        return memory[begin : begin + count].copy()

    pages = Pages(memory.size, copy)
    pages.need([4, PAGE + 8, 4 * PAGE])
    assert asked == [(0, 2 * PAGE), (4 * PAGE, PAGE)]
    pages.need([5])
    assert len(asked) == 2 and pages.bytes[:8].tolist() == memory[:8].tolist()
    memory[3 * PAGE] ^= 1
    assert pages.changed() == 0
    memory[PAGE + 3] ^= 1
    assert pages.changed() == 1


@pytest.mark.parametrize("name", ["ConvolutionForward", "PoolingBackward", "BatchNormalizationForwardTraining"])
def test_pages_are_read_as_memory_is(name):
    operation = SAMPLES[name]
    memory = prepare(operation, "normal", 1)
    pages = {
        n: Pages(array.size, lambda begin, count, array=array: array[begin : begin + count])
        for n, array in memory.items()
    }
    places = sampled.places_of(operation, 20, 2)
    expected = (sampled.expected(operation, source, places, sampled.Sample()) for source in (memory, pages))
    assert len({str(found) for found in expected}) == 1
