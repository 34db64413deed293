"""Test sampled elements of a call: their bounds against the judge's, the memory they read, the errors they notice."""

from __future__ import annotations

import numpy as np
import pytest
from dualdnn.api.operations import parse
from dualdnn.api.operations.records import _ENUMERATORS
from dualdnn.conformance.cases.every_operation import SAMPLES
from dualdnn.conformance.trial import prepare
from dualdnn.reference import evaluate, formulas, run, sampled
from dualdnn.reference.formulas import Elements, Pages
from dualdnn.reference.formulas.elements import PAGE
from dualdnn.reference.judge import bounds

# operations with a formula for their rounding errors
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
FACTOR = 8  # largest ratio of a sampled and a judged bound; one uses the terms of a plane, the other terms nearby


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
        ours, theirs = expected.bound, judged[expected.output][expected.place]
        assert np.isinf(theirs) or theirs / FACTOR <= ours <= theirs * FACTOR, expected
    beyond = sampled.Sample()
    shifted = {(e.output, e.place): e.value + 3 * e.bound + 2**-6 * abs(e.value) + 1 for e in wanted}
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
def test_pages_are_read_like_memory(name):
    operation = SAMPLES[name]
    memory = prepare(operation, "normal", 1)
    pages = {
        n: Pages(array.size, lambda begin, count, array=array: array[begin : begin + count])
        for n, array in memory.items()
    }
    places = sampled.places_of(operation, 20, 2)
    expected = (sampled.expected(operation, source, places, sampled.Sample()) for source in (memory, pages))
    assert len({str(found) for found in expected}) == 1


def test_a_sample_that_reads_much_is_cut_short(monkeypatch):
    monkeypatch.setattr(sampled, "READS", 100)
    operation = SAMPLES["BatchNormalizationForwardTraining"]
    said = sampled.Sample()
    found = sampled.expected(operation, prepare(operation, "normal", 1), sampled.places_of(operation, 40, 1), said)
    assert {expected.output for expected in found} == set(operation.outputs)
    assert said.untold["the sample has read enough"] > 0


@pytest.mark.parametrize("algo", ["WINOGRAD", "WINOGRAD_NONFUSED", "FFT", "FFT_TILING"])
@pytest.mark.parametrize("kind", ["ConvolutionForward", "ConvolutionBackwardData", "ConvolutionBackwardFilter"])
def test_bounds_of_transforms_are_no_smaller_than_the_judge_s(kind, algo):
    """Sampled bounds of transforms equal the judge's bounds within 0.1 %."""
    prefix = {
        "ConvolutionForward": "FWD",
        "ConvolutionBackwardData": "BWD_DATA",
        "ConvolutionBackwardFilter": "BWD_FILTER",
    }[kind]
    name = f"CUDNN_CONVOLUTION_{prefix}_ALGO_{algo}"
    if name not in _ENUMERATORS:
        pytest.skip(f"{name} does not exist")
    tensor = "TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(2, 4, 18, 17), strides=(1224, 306, 17, 1))"
    filters = "FilterSpec(data_type=CUDNN_DATA_FLOAT, format=CUDNN_TENSOR_NCHW, dims=(4, 4, 3, 3))"
    names = {
        "ConvolutionForward": "xwy",
        "ConvolutionBackwardData": ("w", "dy", "dx"),
        "ConvolutionBackwardFilter": ("x", "dy", "dw"),
    }[kind]
    operands = ", ".join(f"{n}={filters if n.endswith('w') else tensor}" for n in names)
    operation = parse(
        f"{kind}(convolution=ConvolutionSpec(mode=CUDNN_CROSS_CORRELATION, compute_type=CUDNN_DATA_FLOAT, padding=(1, 1), stride=(1, 1),"
        f" dilation=(1, 1), group_count=1, math_type=CUDNN_FMA_MATH, reorder_type=CUDNN_DEFAULT_REORDER), algo={name},"
        f" workspace_bytes=0, alpha=1.0, beta=0.0, {operands})"
    )
    memory = prepare(operation, "normal", 1)
    (output,) = operation.outputs
    _, judged = bounds(operation, output, evaluate(operation, memory)[output], memory)
    found = sampled.expected(operation, memory, sampled.places_of(operation, 40, 1), sampled.Sample())
    assert len(found) > 20
    for expected in found:
        theirs = judged[expected.place]
        assert 0.999 * theirs <= expected.bound <= 1.001 * theirs, expected
