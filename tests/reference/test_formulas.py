"""Test the formulas that judge single elements of the reference: they are independent, complete, and notice faults."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dualdnn.api import cudnn
from dualdnn.api.operations.rnn import RNNClipSpec
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.cases.attention import attention_backward
from dualdnn.conformance.cases.attention.attention_forward import with_projections
from dualdnn.conformance.cases.every_operation import SAMPLES
from dualdnn.conformance.cases.rnn import rnn_backward, rnn_forward
from dualdnn.conformance.trial import Step, attempt, attempt_chain, prepare
from dualdnn.reference import engine, evaluate, formulas, implemented
from dualdnn.reference.graph import EVALUATIONS
from dualdnn.reference.judge import bounds
from dualdnn.reference.spots import sample

FOLDER = Path(formulas.__file__).parent
LEFT = {"numpy", "ml_dtypes", *sys.stdlib_module_names}
MAX_COMPARED = 150  # elements that are compared per output of a sample
# A forward call makes inputs of these operations, and the cases' chains judge them.
CHAINED = [name for name, o in SAMPLES.items() if any(raw in o.inputs for raw in o.raw)]
KNOWN = [name for name, o in SAMPLES.items() if formulas.has_formula(o) and name not in CHAINED]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_formulas_import_nothing_of_the_reference(path):
    """They import records and enumerators of the api, tables of precision, and each other, but no array formula."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert all(alias.name.partition(".")[0] in LEFT for alias in node.names), ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert (node.module or "").startswith("dualdnn.api.") or (node.module or "").partition(".")[0] in LEFT, (
                node.module
            )
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1 or (node.level, node.module) == (2, "precision"), ast.unparse(node)


def test_every_operation_has_a_formula_or_a_reason():
    ours = [kind for kind in implemented() if kind.__module__.startswith("dualdnn.")]  # Tests register operations, too.
    without = {kind.__name__ for kind in ours if kind not in formulas.FORMULAS}
    assert without == set(formulas.MISSING)


@pytest.mark.parametrize("name", KNOWN)
def test_formulas_agree_with_the_reference(name):
    operation = SAMPLES[name]
    memory = prepare(operation, "normal", 1)
    read = formulas.Elements(operation, memory, formulas.MAX_READS)
    for output, exact in evaluate(operation, memory).items():
        if exact.raw:
            continue
        value, bound = bounds(operation, output, exact, memory)
        for index in sample(operation.tensor(output).dims, MAX_COMPARED, 1):
            found = formulas.element_of(operation, output, index, read).value
            own = formulas.blended(operation, output, index, read, found)
            same = np.isnan(own) and np.isnan(value[index])
            assert same or abs(own - value[index]) <= bound[index] / 256, (output, index)


def changed(operation, field, **values):
    return replace(operation, **{field: replace(getattr(operation, field), **values)})


def clipped(operation):
    bounds = RNNClipSpec(cudnn.CUDNN_RNN_CLIP_MINMAX, cudnn.CUDNN_PROPAGATE_NAN, -0.1, 0.1)
    return changed(operation, "network", clip=bounds)


def scaled(operation):
    return changed(operation, "attn", scaler=1.1 * operation.attn.scaler)


CHAINS = {
    "rnn": (rnn_backward.training(rnn_forward.network(projected=3)), clipped),
    "attention": (
        [SAMPLES[f"MultiHeadAttn{name}"] for name in ("Training", "BackwardData", "BackwardWeights")],
        scaled,
    ),
}
# sample -> the operation that a broken reference computes in its place
BREAKS = {
    "PoolingForward-average": lambda o: changed(
        o, "pooling", mode=cudnn.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING, padding=(0, 0)
    ),
    "SoftmaxForward": lambda o: replace(o, algorithm=cudnn.CUDNN_SOFTMAX_LOG),
    "BatchNormalizationForwardTraining": lambda o: replace(o, epsilon=2 * o.epsilon),
    "ConvolutionBackwardData": lambda o: changed(o, "convolution", mode=cudnn.CUDNN_CONVOLUTION),
    "LRNCrossChannelForward": lambda o: changed(o, "lrn", n=o.lrn.n + 1),
    "ReduceTensor": lambda o: changed(o, "reduction", op=cudnn.CUDNN_REDUCE_TENSOR_AVG),
    "DropoutForward": lambda o: replace(o, probability=0.9 * o.probability),
    "RNNForward": clipped,
    "MultiHeadAttnForward": scaled,
    "CTCLoss": lambda o: replace(o, hostLabels=o.hostLabels[::-1]),
}


@pytest.fixture
def caller():
    with cudnn.cudnnCreate(backend="reference") as handle:
        yield Caller(cudnn, handle)


@pytest.fixture
def broken(monkeypatch):
    """Yield a function that replaces an implementation of the reference, for its backend and its judge."""
    caches = (engine._prepared, engine.launcher)

    def install(operation, make):
        implemented()
        original = engine._IMPLEMENTATIONS[type(operation)]
        monkeypatch.setitem(engine._IMPLEMENTATIONS, type(operation), make(original))
        for cache in caches:
            cache.cache_clear()

    yield install
    for cache in caches:
        cache.cache_clear()


@pytest.mark.parametrize("name", BREAKS)
def test_a_case_notices_a_reference_that_computes_something_else(name, broken, caller):
    operation = SAMPLES[name]
    assert attempt(caller, operation).passed
    broken(operation, lambda original: lambda o, *inputs: original(BREAKS[name](o), *inputs))
    result = attempt(caller, operation)
    assert not result.passed and "the reference itself is wrong" in result.explanation()


@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("family", CHAINS)
def test_a_chain_notices_gradients_of_another_operation(family, which, broken, caller):
    """The formula reads the operands of the forward call, not its reserve space."""
    operations, change = CHAINS[family]
    steps = [Step(operation) for operation in operations]
    assert attempt_chain(caller, steps).passed
    broken(operations[which], lambda original: lambda o, *inputs: original(change(o), *inputs))
    result = attempt_chain(caller, steps)
    assert not result.passed and "the reference itself is wrong" in result.explanation()


@pytest.mark.parametrize(
    ("windows", "inputs"),
    [
        ({"key_lengths": (0, 0)}, "special"),
        ({"low": (2, 3, 0, 5), "high": (2, 1, 0, 5)}, "special"),
        ({"high": (4, 4, 4, 4), "attn": with_projections(0, 1, 0, 0, mode=0)}, "normal"),
    ],
    ids=["sequences without keys", "windows without keys", "a key in no window"],
)
def test_vectors_in_no_window_have_the_gradients_of_their_projections(windows, inputs, caller):
    """A zero gradient times NaN is NaN, in a vector or in a weight (D327). This test takes 1.5 s."""
    operations = attention_backward.steps(**windows)
    steps = [Step(operation, inputs=inputs) for operation in operations]
    for seed in range(2):
        memory = prepare(operations[0], inputs, seed)
        if inputs == "normal":
            memory["keys"].view(np.float32)[-6:] = np.nan  # This is the last key of one sequence.
        result = attempt_chain(caller, steps, seed, memory)
        assert result.passed, result.explanation()


@pytest.mark.parametrize(
    "form", [{"dropout": 0.5}, {"cell": cudnn.CUDNN_RNN_RELU}, {"layers": 1, "input_mode": cudnn.CUDNN_SKIP_INPUT}]
)
def test_networks_have_formulas_for_every_element(form):
    """The samples have no dropout, no rectified cells and no inputs without matrices."""
    spec = replace(rnn_forward.network(cudnn.CUDNN_GRU, width=7, hidden=7), **form)
    operation = rnn_forward.forward(spec, fill=0.5)
    memory = prepare(operation, "normal", 1)
    read = formulas.Elements(operation, memory, formulas.MAX_READS)
    for output in operation.tensors_written:
        value, bound = bounds(operation, output, evaluate(operation, memory)[output], memory)
        for index in np.ndindex(*value.shape):
            assert abs(formulas.element_of(operation, output, index, read).value - value[index]) <= bound[index] / 256


def test_a_case_notices_a_node_of_a_graph_that_computes_something_else(monkeypatch, caller):
    operation = SAMPLES["OperationGraph"]
    assert attempt(caller, operation).passed
    kind = type(operation.nodes[0])
    evaluation = EVALUATIONS[kind]
    monkeypatch.setitem(EVALUATIONS, kind, lambda node, *given: evaluation(replace(node, alpha=1.5), *given))
    result = attempt(caller, operation)
    assert not result.passed and "the reference itself is wrong" in result.explanation()


def test_a_case_notices_an_output_that_the_reference_does_not_write(broken, caller):
    operation = SAMPLES["BatchNormalizationForwardTraining"]

    def silent(original):
        def implementation(*given):
            found = original(*given)
            del found["savedMean"]
            return found

        return implementation

    broken(operation, silent)
    with pytest.raises(ValueError, match="says nothing of savedMean"):
        attempt(caller, operation)


def test_a_sample_meets_every_image_and_channel_corners_edges_and_the_inside():
    found = sample((3, 5, 9, 8), 60, 4)
    assert len(found) == len(set(found)) == 60 and (2, 4, 8, 7) in found
    assert {index[0] for index in found} == set(range(3)) and {index[1] for index in found} == set(range(5))
    on_edges = [(row in (0, 8)) + (column in (0, 7)) for *_, row, column in found]
    assert set(on_edges) == {0, 1, 2}
    assert sample((1, 1, 1, 2), 60, 4) in ([(0, 0, 0, 1), (0, 0, 0, 0)], [(0, 0, 0, 1)])


def test_a_formula_that_reads_too_many_elements_gives_up():
    operation = SAMPLES["ReduceTensor"]
    read = formulas.Elements(operation, prepare(operation, "normal", 1), 3)
    with pytest.raises(formulas.Untold, match="more than 3 elements"):
        formulas.element_of(operation, "C", (0,) * len(operation.C.dims), read)


def test_elements_are_read_through_strides_and_vectors_of_channels():
    operation = SAMPLES["TransformTensor"]
    memory = prepare(operation, "normal", 1)
    read = formulas.Elements(operation, memory, formulas.MAX_READS)
    expected = evaluate(operation, memory)["y"].value
    for index in np.ndindex(*operation.x.dims):
        assert read("x", index) == expected[index]
        read.reads = 0
    assert read.box("x", [range(extent) for extent in operation.x.dims]) == expected.ravel().tolist()
