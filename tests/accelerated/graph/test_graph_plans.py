"""Tests plans of operation graphs: compiled chains, engines, knobs, and the order of the heuristics."""

from __future__ import annotations

import numpy as np
import pytest
from dualdnn.accelerated import AcceleratedBackend
from dualdnn.accelerated.graph import chain as compiled
from dualdnn.accelerated.graph.pointwise import Layout
from dualdnn.accelerated.graph.problem import GraphProblem
from dualdnn.accelerated.graph.statistics import Division, statistics_launches
from dualdnn.accelerated.plans import BackgroundLaunch, estimated_seconds
from dualdnn.accelerated.records import noting_launches
from dualdnn.accelerated.runtime.device import is_only_built
from dualdnn.accelerated.runtime.errors import NotBuilt
from dualdnn.api import cudnn
from dualdnn.api.enumerations import cudnnGenStatsMode_t
from dualdnn.api.graph.engines import ENGINES
from dualdnn.api.operations import OperationGraph
from dualdnn.api.operations.graph import GenStatsNode
from dualdnn.api.operations.specs import FLOAT, HALF
from dualdnn.conformance.bench.measure import captured
from dualdnn.conformance.cases.graph.graph import Mode, executed, pointwise, tensor
from dualdnn.conformance.cases.graph.graph_engines import ABLE, GRAPHS

LAST = (0, 2, 3, 1)
SUM_SQSUM = cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM


@pytest.fixture(scope="module")
def backend():
    return AcceleratedBackend("emulated")


def layer(dims=(2, 16, 8, 8), order=LAST, bias_dims=None):
    """Return the nodes of relu(1.5 * x * scale + bias); the product is an output, too."""
    x, kept = tensor(1, dims, HALF, order=order), tensor(2, dims, FLOAT, order=order)
    shifted, y = tensor(3, dims, HALF, order=order, virtual=True), tensor(4, dims, HALF, order=order)
    scale, bias = (tensor(uid, bias_dims or (1, dims[1], 1, 1), FLOAT) for uid in (5, 6))
    return (
        pointwise(Mode.CUDNN_POINTWISE_MUL, x, kept, scale, alpha1=1.5),
        pointwise(Mode.CUDNN_POINTWISE_ADD, kept, shifted, bias),
        pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, shifted, y, upper=2.0),
    )


def run(backend, plan, operation, contents, offset=0):
    """Run the plan and return its outputs. offset: bytes from the start of each buffer to its operand."""
    buffers = {
        name: backend.allocate(operation.nbytes(name) + 64) for name in operation.operands if operation.nbytes(name)
    }
    operands = {name: buffer.slice(offset, operation.nbytes(name)) for name, buffer in buffers.items()}
    for name, values in contents.items():
        backend.device.upload(operands[name].address, values)
    plan([operands.get(name) for name in operation.operands], None)
    return {name: bytes(operands[name].contents(operation.nbytes(name))) for name in operation.outputs}


@pytest.mark.parametrize("dims, order, bias", [
    ((2, 16, 32, 64), LAST, None), ((2, 16, 32, 64), None, None), ((2, 3, 1366, 8), None, (1, 1, 1, 8)), ((2, 3, 1366, 8), None, (1, 1, 1, 1)),
], ids=["channels last", "channels first", "a row", "a number"])  # fmt: skip
def test_compiled_chains_have_the_bits_of_interpreted_ones(backend, monkeypatch, dims, order, bias):
    """Both kernels give the same bits for any broadcast. The interpreted one serves misaligned operands, and all
    operands if nothing compiles."""
    operation = executed(*layer(dims, order, bias))
    random = np.random.default_rng(4)
    contents = {name: random.standard_normal(operation.tensor(name).count).astype(np.float16 if name == "tensor_1" else np.float32) for name in operation.inputs}  # fmt: skip
    plan = backend._planned(operation)
    launch = plan.steps[0][0]
    assert isinstance(launch, BackgroundLaunch)
    found = {}
    for offset, kernel in ((0, "graph_chain"), (4, "graph_pointwise")):
        with noting_launches() as names:
            found[kernel] = run(backend, plan, operation, contents, offset)
        assert names == {kernel}
    wanted = found["graph_pointwise"]
    assert found["graph_chain"] == wanted and any(wanted["tensor_4"])
    monkeypatch.setattr(launch, "function", None)
    monkeypatch.setattr(launch, "refused", True)
    assert run(backend, plan, operation, contents, 4) == wanted


def test_a_missing_kernel_of_a_chain_is_compiled(backend, monkeypatch):
    """A missing kernel is compiled, although the family first only checks whether its modules are built."""
    operation = executed(*layer((4, 16, 32, 32), LAST))
    ready, asked = backend.device.function_when_ready, []

    def missing_at_first(*kernel):
        asked.append(is_only_built())
        if is_only_built():
            raise NotBuilt("not compiled")
        return ready(*kernel)

    monkeypatch.setattr(backend.device, "function_when_ready", missing_at_first)
    assert isinstance(backend._planned(operation).steps[0][0], BackgroundLaunch)
    assert asked == [True, False]


def test_large_aligned_chains_are_compiled(backend):
    """Large chains of whole, aligned vectors are compiled; other chains are interpreted."""

    def width(*nodes):
        return compiled.width_of(Layout.of(GraphProblem(executed(*nodes), backend.device), nodes))

    def relu(x, y):
        return pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, x, y)

    large = (4, 16, 32, 32)
    assert width(relu(tensor(1, large, HALF), tensor(2, large, HALF))) == 8
    assert width(relu(tensor(1, large, FLOAT), tensor(2, large, FLOAT))) == 4
    assert width(relu(tensor(1, large, FLOAT), tensor(2, large, HALF))) == 8
    # The tensor is too small.
    assert not width(relu(tensor(1, (4, 16, 32, 31), HALF), tensor(2, (4, 16, 32, 31), HALF)))
    assert not width(relu(tensor(1, (5, 16, 32, 33), HALF, order=LAST), tensor(2, (5, 16, 32, 33), HALF)))
    assert not width(relu(tensor(1, (4, 9, 51, 51), HALF), tensor(2, (4, 9, 51, 51), HALF, (9 * 2602, 2602, 51, 1))))
    gaps = (16 * 1024 + 8, 1024, 32, 1)
    assert width(relu(tensor(1, large, HALF, gaps), tensor(2, large, HALF, gaps))) == 8
    gaps = (16 * 1024 + 4, 1024, 32, 1)
    assert not width(relu(tensor(1, large, HALF, gaps), tensor(2, large, HALF)))


def test_global_indices_stay():
    """An engine number that a client has stored must stay valid, so new engines are appended."""
    names = [engine.name for engine in ENGINES]
    assert names[:12] == [
        "node by node", "fwd algo implicit gemm", "fwd algo implicit precomp gemm", "fwd algo gemm", "fwd algo fft",
        "fwd algo fft tiling", "fwd algo winograd", "fwd algo winograd nonfused", "fwd algo implicit gemm on tensor cores",
        "fwd algo implicit precomp gemm on tensor cores", "fwd algo gemm on tensor cores", "bwd data algo 0",
    ]  # fmt: skip
    assert len(names) == 30 and names[29] == "node by node on tensor cores"


@pytest.mark.parametrize("graph", ["forward", "fused half", "data", "filter half", "layer half"])
def test_heuristics_have_the_order_of_the_estimates(backend, graph):
    operations = [OperationGraph(tuple(GRAPHS[graph]), index, 0, 0) for index in ABLE[graph]]
    ranked = backend.preferred_algorithms(operations)
    seconds = [estimated_seconds(operation, backend.device) for operation in ranked]
    assert seconds == sorted(seconds) and min(seconds) > 0 and set(ranked) == set(operations)


@pytest.mark.parametrize("graph, engine", [("forward", 1), ("fused half", 9), ("filter", 20)])
def test_the_knob_chooses_what_runs(backend, graph, engine):
    """Knob value i selects the i-th solver of the family; 0 leaves the choice to the family."""
    solvers = backend.graph_solvers(executed(*GRAPHS[graph], engine=engine))
    own = backend.plan(executed(*GRAPHS[graph], engine=engine)).inner
    chosen = [backend.plan(executed(*GRAPHS[graph], engine=engine, choice=1 + i)).inner for i in range(len(solvers))]
    assert [plan.solver for plan in chosen] == list(solvers) and own.solver in solvers and len(solvers) > 1
    kernels = {tuple((step.function.name, step.grid) for step, _ in plan.steps) for plan in chosen}
    assert len(kernels) > 1


@pytest.mark.parametrize("segments", [2, 129, 1500])
def test_sums_of_any_number_of_segments_are_added(backend, segments):
    """The kernel adds the sums of any number of segments, even more than it reads at once."""
    channels, device = 3, backend.device
    x, sums, squares = tensor(1, (1, channels, 4, 4), FLOAT, order=LAST), *(tensor(i, (1, channels, 1, 1), FLOAT) for i in (2, 3))  # fmt: skip
    operation = executed(node := GenStatsNode(SUM_SQSUM, FLOAT, x, sums, squares))
    division = Division(True, 1, 1, segments, segments, 1)
    _, finish = statistics_launches(GraphProblem(operation, device), node, "partials", division)
    partials = np.random.default_rng(3).integers(-9, 9, (segments, 2, channels)).astype(np.float32)
    workspace, *results = backend.to_device(partials), *(backend.zeros(4 * channels) for _ in range(2))
    finish.start([0, *(result.address for result in results), workspace.address], None)
    found = [np.frombuffer(device.download(result.address, 4 * channels), np.float32) for result in results]
    assert (np.stack(found) == partials.sum(0)).all()


def test_a_pack_that_ran_before_is_held_to_what_the_device_knows(monkeypatch):
    """Every execution checks the memory of each operand again, and refuses what is too small or was freed."""
    handle = cudnn.cudnnCreate(backend="accelerated", device="emulated")
    device, operation = type(handle.backend.device), executed(*GRAPHS["forward"], engine=1)
    buffers = {name: handle.backend.allocate(operation.nbytes(name)) for name in operation.operands[:-1]}
    addresses = {name: buffer.address for name, buffer in buffers.items()}
    execute, arguments = captured(cudnn, handle, operation, {**addresses, "workspace": None})
    asked, extent = [], device.extent
    monkeypatch.setattr(device, "extent", lambda d, a: asked.append(a) or extent(d, a))
    for _ in range(3):
        asked.clear()
        execute(*arguments)
        assert {*addresses.values()} <= {*asked}
    with monkeypatch.context() as smaller, pytest.raises(cudnn.CudnnError, match="1 bytes"):
        smaller.setattr(device, "extent", lambda _d, _a: 1)
        execute(*arguments)
    buffers["tensor_1"].free()
    with pytest.raises(cudnn.CudnnError, match="freed"):
        execute(*arguments)
