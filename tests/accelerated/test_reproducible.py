"""Tests levels of reproducibility: how a handle gets its level, the order of sums, and refused calls."""

from dataclasses import replace

import numpy as np
import pytest
from dualdnn.accelerated import reproducible, solver
from dualdnn.accelerated.rnn.problem import RNNProblem
from dualdnn.accelerated.runtime.choices import key_of
from dualdnn.accelerated.solver import SOLVER_FAMILIES, Problem, Solver, SolverFamily, summation_order
from dualdnn.api import cudnn
from dualdnn.api.abi.objects import _value
from dualdnn.api.enumerations import cudnnBackendAttributeType_t as Type
from dualdnn.api.enumerations import cudnnBackendDescriptorType_t as Kind
from dualdnn.api.enumerations import cudnnConvolutionBwdDataAlgo_t as Backward
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as Forward
from dualdnn.api.enumerations import cudnnConvolutionMode_t, cudnnMathType_t, cudnnReorderType_t, cudnnStatus_t
from dualdnn.api.operations import (
    ConvolutionBackwardData,
    ConvolutionForward,
    ConvolutionSpec,
    FilterSpec,
    TensorSpec,
    Unsupported,
)
from dualdnn.api.operations.backend import LEVELS
from dualdnn.api.operations.specs import FLOAT, HALF, NHWC
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED, CudnnError
from dualdnn.conformance.bits.graphs import GRAPHS_AND_FUSED, with_images
from dualdnn.conformance.bits.operations import TRAINED
from dualdnn.conformance.calls.graph import DESCRIPTOR, INT64, Builder, proposed
from dualdnn.conformance.domains.rnn import forward

CORRELATION = cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION
FMA = cudnnMathType_t.CUDNN_FMA_MATH
SUCCESS = cudnnStatus_t.CUDNN_STATUS_SUCCESS
DIRECT = Forward.CUDNN_CONVOLUTION_FWD_ALGO_DIRECT  # No backend has this algorithm.
DESCRIBED = ConvolutionSpec(CORRELATION, FLOAT, (1, 1), (1, 1), (1, 1), 1, FMA, cudnnReorderType_t(0))
UNPACKED = cudnn.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED
GPU_MULTIPROCESSORS = 132


def convolution(images: int, algo: Forward = Forward.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM) -> ConvolutionForward:
    """Return a convolution that ``convolution.tiny`` serves for one image, and another solver for many."""
    x, y = (TensorSpec.packed(FLOAT, (images, channels, 6, 6)) for channels in (16, 40))
    return ConvolutionForward(DESCRIBED, algo, 0, 1.0, 0.0, x, FilterSpec(FLOAT, 0, (40, 16, 3, 3)), y)


def handle(level: str):
    return cudnn.cudnnCreate(backend="accelerated", device="emulated", reproducible=level)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Let planners divide work among as many SMs as a GPU has, and forget the plans of other tests."""
    device = handle("run").backend.device
    monkeypatch.setattr(device, "multiprocessors", GPU_MULTIPROCESSORS)
    monkeypatch.setitem(device.__dict__, "levels", {})
    monkeypatch.setitem(device.__dict__, "plans", {})
    return device


def image(level: str, images: int, which: int = 0) -> bytes:
    """Return the result bits of one image in a batch; image i has the same values in every batch."""
    used, operation = handle(level), convolution(images)
    values = [np.random.default_rng(i).standard_normal(operation.x.count // images) for i in range(images)]
    x, w = (np.float32(of) for of in (values, np.random.default_rng(99).standard_normal(operation.w.tensor.count)))
    y = used.zeros(operation.y.nbytes)
    used.backend.prepare(operation)([used.to_device(x), used.to_device(w), y, None], None)
    result = y.to_host(np.float32, (images, -1))
    return result[which].tobytes()


@pytest.mark.usefixtures("as_on_a_gpu")
def test_an_image_has_the_same_bits_alone_and_in_a_batch():
    for level in LEVELS[1:]:
        alone = image(level, 1)
        assert [image(level, images) == alone for images in (2, 40)] == [True, True]
    assert image("run", 40) != image("run", 1)  # Otherwise the test could not fail.


def test_an_order_that_depends_on_the_batch_is_noticed(as_on_a_gpu, monkeypatch):
    monkeypatch.setattr(solver, "canonical_operation", lambda operation: operation)
    assert image("batch", 40) != image("batch", 1)


def test_planners_see_the_same_number_of_multiprocessors_on_every_gpu(as_on_a_gpu, monkeypatch):
    seen = {level: handle(level).backend.planned_on for level in LEVELS}
    for multiprocessors in (7, 114):
        monkeypatch.setattr(as_on_a_gpu, "multiprocessors", multiprocessors)
        counts = [seen[level].multiprocessors for level in LEVELS]
        assert counts == [multiprocessors, multiprocessors, GPU_MULTIPROCESSORS, GPU_MULTIPROCESSORS]


def test_the_environment_names_a_level(monkeypatch):
    monkeypatch.setenv("DUALDNN_REPRODUCIBLE", "device")
    assert cudnn.cudnnCreate(backend="accelerated", device="emulated").reproducible == "device"
    assert handle("batch").reproducible == "batch"


def test_what_a_handle_says_of_itself_names_its_level():
    """A log and a disagreement of a crosscheck say under which level ``dualdnn replay`` runs the call again."""
    texts = {level: repr(handle(level)) for level in LEVELS}
    assert texts["run"] == "<cudnnHandle_t accelerated (emulated device)>"
    assert all(f"(emulated device, reproducible={level!r})" in texts[level] for level in LEVELS[1:])


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"reproducible": "bits", "backend": "accelerated"}, "reproducible is 'bits', not one of run, batch, device"),
        ({"reproducible": 1, "backend": "accelerated"}, "reproducible is 1, not one of run"),
        ({"reproducible": "batch", "backend": "reference"}, "the reference backend promises 'run' alone"),
    ],
)
def test_another_level_is_refused(arguments, words):
    with pytest.raises(CudnnError, match=words) as refusal:
        cudnn.cudnnCreate(**arguments)
    assert (refusal.value.status, refusal.value.clause) == (BAD_PARAM, "dualdnnReproducible/c01")


def test_a_solver_that_declares_no_order_is_refused():
    operation = convolution(2, Forward.CUDNN_CONVOLUTION_FWD_ALGO_FFT)
    assert handle("run").backend.workspace_bytes(operation) > 0
    with pytest.raises(Unsupported, match="no solver declares the order of its sums for ConvolutionForward") as refusal:
        handle("batch").backend.workspace_bytes(operation)
    assert refusal.value.clause == "dualdnnReproducible/c05"
    assert handle("batch").backend.solvers(operation) == ()


def test_a_solver_that_says_nothing_serves_at_level_run_alone():
    """Solvers are silent by default: without a declaration of its own a solver is refused, and another one serves."""

    class Silent(Solver):
        name = "silent"

    class Declared(Silent):
        name, fixed_order = "declared", reproducible.NO_SUMS

    silent, declared = SolverFamily(Problem, (Silent(),)), SolverFamily(Problem, (Silent(), Declared()))
    for level in LEVELS:
        problem = Problem(convolution(1), handle(level).backend.planned_on)
        if level == "run":
            assert (silent.preferred(problem).name, declared.preferred(problem).name) == ("silent", "silent")
            continue
        assert declared.preferred(problem).name == "declared"
        with pytest.raises(Unsupported) as refusal:
            silent.preferred(problem)
        assert refusal.value.clause == "dualdnnReproducible/c05"
        with pytest.raises(ValueError, match="silent does not serve the problem"):
            declared.solver(problem, "silent")


def test_an_engine_of_a_graph_chooses_among_solvers_of_one_order():
    """The knob of a graph's engine counts the solvers that add in the order of the level, and no others."""
    graph = GRAPHS_AND_FUSED["graph-one-float-nchw"]
    counts = {level: len(handle(level).backend.graph_solvers(graph)) for level in ("run", "batch")}
    assert 1 < counts["batch"] < counts["run"]
    chosen = replace(graph, choice=counts["batch"])
    assert handle("batch").backend.solvers(chosen) == ("graph.one_operation",)


def proposed_engines(level, graph):
    """Return the global indices of the engines that heuristics propose for a graph."""
    build = Builder(cudnn)
    nodes = [build(node) for node in graph.nodes]
    given = {"HANDLE": (Type.CUDNN_TYPE_HANDLE, (handle(level),)), "OPS": (DESCRIPTOR, nodes)}
    found = []
    for config in proposed(build, build.finalized(Kind.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, given)):
        (engine,) = build.get(config, Kind.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "ENGINE", DESCRIPTOR)
        found += build.get(engine, Kind.CUDNN_BACKEND_ENGINE_DESCRIPTOR, "GLOBAL_INDEX", INT64)
    return found


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("name", ["graph-one-float-nchw", "graph-data-float-nchw", "graph-tanh-added-half-nhwc"])
def test_heuristics_propose_engines_of_one_order_for_every_batch(name):
    """Engines without an order, such as FFT, are not proposed above level ``run``; the first one is the same for every batch."""
    graph, planned_on = GRAPHS_AND_FUSED[name], handle("batch").backend.planned_on
    engines = [tuple(proposed_engines("batch", with_images(graph, images))) for images in (1, 2, 40)]
    orders = {summation_order(replace(graph, engine=index), planned_on) for index in engines[0]}
    assert len(set(engines)) == len(orders) == 1
    assert set(engines[0]) < set(proposed_engines("run", graph))


def test_every_solver_that_may_serve_adds_in_the_order_of_the_level(as_on_a_gpu):
    for level in ("batch", "device"):
        backend = handle(level).backend
        for images in (1, 40):
            operation = convolution(images)
            family = SOLVER_FAMILIES[ConvolutionForward]
            problem = family.problem(operation, backend.planned_on)
            order = summation_order(operation, backend.planned_on)
            named = [each for each in family.solvers if each.name in backend.solvers(operation)]
            assert len(named) > 1
            assert {each.summation_order(problem) for each in named} == {order}


@pytest.mark.parametrize("images", [1, 32, 300])
def test_every_size_of_a_batch_is_served(as_on_a_gpu, images):
    """Let one image decide what a solver takes at a level, not the products of all images."""
    described = replace(DESCRIBED, compute_type=HALF, padding=(0, 2), stride=(2, 2), dilation=(2, 3))
    dx, dy = (TensorSpec.packed(HALF, (images, *rest), NHWC) for rest in ((32, 12, 4), (1, 4, 3)))
    w, algo = FilterSpec(HALF, NHWC, (1, 32, 3, 2)), Backward.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1
    operation = ConvolutionBackwardData(described, algo, 0, 1.0, 0.0, w, dy, dx)
    assert handle("batch").backend.solvers(operation)


def orders_of_batches(name):
    """Return the orders of a recurrent network for batches that at level run are divided in different ways."""
    network, planned_on = TRAINED[name].network, handle("batch").backend.planned_on
    calls = (forward(network, UNPACKED, (3,) * batch, 3, 0.0, True, ()) for batch in (1, 6, 32, 256))
    return {summation_order(each, planned_on) for each in calls}


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("name", ["lstm-half-overlapped", "gru-tf32-overlapped"])
def test_a_recurrent_network_has_one_order_for_every_batch(name, monkeypatch):
    """Cases have at most six sequences, for which a network that chose by its own batch would choose alike."""
    assert len(orders_of_batches(name)) == 1
    monkeypatch.setattr(RNNProblem, "canonical", property(lambda problem: problem))
    monkeypatch.setattr(RNNProblem, "representatives", property(lambda problem: [problem]))
    assert len(orders_of_batches(name)) > 1


def test_an_order_that_no_solver_reaches_is_refused(as_on_a_gpu, monkeypatch):
    backend = handle("batch").backend
    changed = reproducible.Order("abacus")
    monkeypatch.setattr(solver.SolverFamily, "order", lambda *_: changed)
    with pytest.raises(Unsupported, match="no solver that serves adds in its order") as refusal:
        backend.prepare(convolution(3))
    assert refusal.value.clause == "dualdnnReproducible/c06"


@pytest.mark.parametrize("level, statuses", [("run", {SUCCESS}), ("batch", {SUCCESS, NOT_SUPPORTED})])
def test_a_search_reports_algorithms_of_one_order_alone(level, statuses):
    problem, used = convolution(2), handle(level)
    x, y = (cudnn.cudnnCreateTensorDescriptor() for _ in range(2))
    for descriptor, spec in ((x, problem.x), (y, problem.y)):
        cudnn.cudnnSetTensor4dDescriptor(descriptor, 0, 0, *spec.dims)
    w, described = cudnn.cudnnCreateFilterDescriptor(), cudnn.cudnnCreateConvolutionDescriptor()
    cudnn.cudnnSetFilter4dDescriptor(w, 0, 0, *problem.w.dims)
    cudnn.cudnnSetConvolution2dDescriptor(described, 1, 1, 1, 1, 1, 1, CORRELATION, FLOAT)
    cudnn.cudnnSetConvolutionMathType(described, FMA)
    for search in (cudnn.cudnnGetConvolutionForwardAlgorithm_v7, cudnn.cudnnFindConvolutionForwardAlgorithm):
        found = [each for each in search(used, x, w, described, y, 8).perfResults if each.algo != DIRECT]
        assert {each.status for each in found} == statuses
        served = [replace(problem, algo=each.algo) for each in found if each.status == SUCCESS]
        assert len(served) > 1
        assert len({summation_order(each, used.backend.planned_on) for each in served}) == 1


def test_times_of_searches_and_answers_of_c_belong_to_a_level():
    assert key_of(convolution(1)) == key_of(convolution(1), "run") != key_of(convolution(1), "batch")
    assert len({_value(handle(level)) for level in LEVELS}) == len(LEVELS)
