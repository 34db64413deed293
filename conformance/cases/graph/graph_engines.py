"""Holds cases of the engines: each graph by each engine that executes it, knobs, numerical notes, heuristics (9.2.2 to 9.2.4, 9.2.8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from dualdnn.api.enumerations import cudnnBackendAttributeName_t as Name
from dualdnn.api.enumerations import cudnnBackendAttributeType_t as Type
from dualdnn.api.enumerations import cudnnBackendDescriptorType_t as Kind
from dualdnn.api.enumerations import cudnnBackendKnobType_t, cudnnGenStatsMode_t
from dualdnn.api.enumerations import cudnnBackendLayoutType_t as Layout
from dualdnn.api.enumerations import cudnnBackendNumericalNote_t as Note
from dualdnn.api.graph.engines import ENGINES
from dualdnn.api.operations import graph as parts
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32, UINT8
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.calls.graph import DESCRIPTOR, INT64
from dualdnn.conformance.calls.plans import CONFIG, ENGINE, GRAPH, HEURISTICS, PLAN, chosen, numbered, ranked
from dualdnn.conformance.marks import shows

from .graph import NAN, Mode, convolution, executed, pointwise, tensor
from .graph_descriptors import of

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

pytestmark = pytest.mark.ours  # A foreign library numbers its engines differently.
KNOB_INFO = Kind.CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR
TILE_SIZE = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_TILE_SIZE
X = (2, 4, 6, 5)
W = (8, 4, 3, 3)
Y = (2, 8, 6, 5)
ONE = (1, 8, 1, 1)  # One number for each channel of y has this shape.
LAST = (0, 2, 3, 1)  # The channels are innermost.
ONCE = convolution((1, 1), (1, 1))


def forward(
    data_type: Any = FLOAT,
    order: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    settings: Any = ONCE,
    y: Any = None,
) -> Any:
    """Return one convolution with its result in y."""
    x, w = tensor(1, X, data_type, order=order), tensor(2, W, data_type, order=order)
    return parts.ConvolutionForwardNode(settings, alpha, beta, x, w, y or tensor(3, Y, data_type, order=order))


def fused(
    data_type: Any = FLOAT, order: Any = None, residual: bool = False, rectified: bool = True, alpha: float = 1.0
) -> Any:
    """Return y = relu(alpha * conv(x, w) + 0.5 * z + bias), in separate operations."""
    between = [tensor(10 + i, Y, FLOAT, order=order, virtual=True) for i in range(3)]
    y, bias = tensor(3, Y, data_type, order=order), tensor(4, (1, 8, 1, 1), data_type)
    nodes = [forward(data_type, order, alpha, y=between[0])]
    if residual:
        added = tensor(5, Y, data_type, order=order)
        nodes.append(pointwise(Mode.CUDNN_POINTWISE_ADD, added, between[1], between[0], alpha1=0.5))
    last = between[2] if rectified else y
    nodes.append(pointwise(Mode.CUDNN_POINTWISE_ADD, nodes[-1].outputs[0], last, bias))
    if rectified:
        nodes.append(pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, last, y))
    return nodes


def grouped() -> Any:
    """Return a convolution whose two groups have their own dimension and follow each other in memory."""
    x, w, y = tensor(1, (2, 2, 2, 6, 5)), tensor(2, (2, 4, 2, 3, 3)), tensor(3, (2, 2, 4, 6, 5))
    return parts.ConvolutionForwardNode(ONCE, 1.0, 0.0, x, w, y)


def layer(data_type: Any) -> Any:
    """Return tanh(conv(x, w)) and its statistics, which no single operation computes."""
    between, y = tensor(10, Y, data_type, order=LAST, virtual=True), tensor(3, Y, data_type, order=LAST)
    sums, squares = (tensor(20 + i, (1, 8, 1, 1)) for i in range(2))
    statistics = parts.GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, y, sums, squares)
    return forward(data_type, LAST, y=between), pointwise(Mode.CUDNN_POINTWISE_TANH_FWD, between, y), statistics


def inside(node: Any) -> Any:
    """Return the node with a virtual y, for a graph that continues."""
    return replace(node, y=tensor(10, Y, virtual=True))


def biased(node: Any, bias_strides: Any = None) -> Any:
    """Return the node, then y + bias as tensor 3."""
    bias = tensor(4, ONE, strides=bias_strides)
    return node, pointwise(Mode.CUDNN_POINTWISE_ADD, node.y, tensor(3, Y), bias)


GRADIENT_OF = {"data": parts.ConvolutionBackwardDataNode, "filter": parts.ConvolutionBackwardFilterNode}


def gradient(kind: Any, data_type: Any = FLOAT, beta: float = 0.0) -> Any:
    x, w, y = tensor(1, X, data_type), tensor(2, W, data_type), tensor(3, Y, data_type)
    operands = (w, y, x) if kind == "data" else (x, y, w)
    return GRADIENT_OF[kind](ONCE, 0.75, beta, *operands)


def vectors(uid: Any, dims: Any, count: Any, data_type: Any = INT8) -> Any:
    """Return a packed tensor of vectors of channels; dims count scalars."""
    made = tensor(uid, (dims[0], dims[1] // count, *dims[2:]), data_type, alignment=4)
    return replace(made, vector_count=count, vectorized_dimension=1)


def integers(count: Any, data_type: Any = INT8, y_type: Any = INT8) -> Any:
    """Return a convolution of vectors, or of single integers with channels innermost; a float y is packed."""
    settings, dims = convolution((1, 1), (1, 1), compute=INT32), (2, 32, 5, 4)
    if count == 1:
        x, w, y = (
            tensor(1, dims, data_type, order=LAST),
            tensor(2, (32, 32, 3, 3), INT8, order=LAST),
            tensor(3, dims, y_type, order=LAST),
        )
    else:
        y = vectors(3, dims, count, y_type) if y_type != FLOAT else tensor(3, dims)
        x, w = vectors(1, dims, count, data_type), vectors(2, (32, 32, 3, 3), count)
    return parts.ConvolutionForwardNode(settings, 0.001, 0.0, x, w, y)


def fused_integers() -> Any:
    """Return relu(conv(x, w) + bias) of vectors of four, with floats between the operations."""
    node, dims = integers(4), (2, 32, 5, 4)
    sums, shifted = tensor(10, dims, virtual=True), tensor(11, dims, virtual=True)
    return (
        replace(node, y=sums), pointwise(Mode.CUDNN_POINTWISE_ADD, sums, shifted, tensor(4, (1, 32, 1, 1))),
        pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, shifted, node.y),
    )  # fmt: skip


GRAPHS = {
    "forward": (forward(alpha=0.5, beta=2.0),), "forward half": (forward(HALF, LAST),), "forward bfloat16": (forward(BFLOAT16, LAST),),
    "forward double": (forward(DOUBLE, settings=convolution((1, 1), (1, 1), compute=DOUBLE)),), "grouped": (grouped(),),
    "fused": tuple(fused(alpha=0.5)), "fused half": tuple(fused(HALF, LAST)), "fused residual": tuple(fused(residual=True)),
    "fused without ReLU": tuple(fused(rectified=False)), "data": (gradient("data", beta=0.5),), "data half": (gradient("data", HALF),),
    "filter": (gradient("filter", beta=0.5),), "filter half": (gradient("filter", HALF),), "int8": (integers(1),), "uint8": (integers(1, UINT8),),
    "int8x4": (integers(4),), "uint8x4 to float": (integers(4, UINT8, FLOAT),), "layer": layer(FLOAT), "layer half": layer(HALF),
    "layer bfloat16": layer(BFLOAT16), "int8x32": (integers(32),), "fused int8x4": fused_integers(),
    "strided": (parts.ConvolutionForwardNode(convolution((2, 2), (2, 2), (2, 1), (1, 2)), 1.0, 0.0, tensor(1, X), tensor(2, W), tensor(3, (2, 8, 4, 5)) ), ),
    "fused identity": (inside(forward()), pointwise(Mode.CUDNN_POINTWISE_ADD, tensor(10, Y, virtual=True), tensor(11, Y, virtual=True), tensor(4, ONE)), pointwise(Mode.CUDNN_POINTWISE_IDENTITY_FWD, tensor(11, Y, virtual=True), tensor(3, Y)), ),
    "one group": (parts.ConvolutionForwardNode(ONCE, 1.0, 0.0, tensor(1, (2, 1, 4, 6, 5), strides=(120, 7, 30, 5, 1)), tensor(2, (1, 8, 4, 3, 3)), tensor(3, (2, 1, 8, 6, 5)) ), ),
}  # fmt: skip
ABLE = {
    name: [i for i, engine in enumerate(ENGINES) if not engine.refuses(tuple(nodes))] for name, nodes in GRAPHS.items()
}
RUNS = [
    pytest.param(name, i, id=f"{name}-{ENGINES[i].name}".replace(" ", "_"))
    for name, able in ABLE.items()
    for i in able
    if i
]


@shows(*of("ENGINE", "c01", "c03", "c06"), *of("TENSOR", "c02"), "cudnnBackendExecute/c01")
@pytest.mark.parametrize("graph, engine", RUNS)
def test_by_every_engine(trial: Callable[..., Trial], graph: Any, engine: Any) -> None:
    trial(executed(*GRAPHS[graph], engine=engine))


def almost_fused(
    bias_factor: float = 1.0, again: float = 1.0, relu: Any = None, bias_dims: Any = (1, 8, 1, 1), twice: bool = False, bias_type: Any = FLOAT, again_bias: bool = False, residual_last: bool = False
) -> Any:  # fmt: skip
    """Return relu(again * conv(x, w) + bias_factor * bias) with factors, clips or biases that no fused operation
    supports."""
    first, second, third = (tensor(10 + i, Y, FLOAT, virtual=True) for i in range(3))
    y, bias = tensor(3, Y), tensor(4, bias_dims, bias_type)
    if again_bias or residual_last:
        other = tensor(5, Y) if residual_last else tensor(5, bias_dims)
        return (
            forward(y=first), pointwise(Mode.CUDNN_POINTWISE_ADD, first, second, bias),
            pointwise(Mode.CUDNN_POINTWISE_ADD, second, third, other), pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, third, y),
        )  # fmt: skip
    nodes = [
        forward(y=first), pointwise(Mode.CUDNN_POINTWISE_ADD, first, second, bias, alpha1=again, alpha2=bias_factor),
        pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, second, third if twice else y, **(relu or {})),
    ]  # fmt: skip
    return (*nodes, pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, third, y)) if twice else tuple(nodes)


ALMOST = {
    "scaled bias": almost_fused(bias_factor=0.5), "scaled sum": almost_fused(again=2.0), "negated bias": almost_fused(bias_factor=-1.0),
    "lower clip": almost_fused(relu={"lower": -1.0}), "upper clip": almost_fused(relu={"upper": 0.5}), "NaN": almost_fused(relu={"nan": NAN}),
    "bias of rows": almost_fused(bias_dims=(1, 1, 6, 1)), "bias of images": almost_fused(bias_dims=(2, 8, 1, 1)),
    "two ReLU": almost_fused(twice=True), "bias in half": almost_fused(bias_type=HALF), "two biases": almost_fused(again_bias=True),
    "bias in front": almost_fused(residual_last=True),
    "sum with itself": (forward(y=tensor(10, Y, virtual=True)), pointwise(Mode.CUDNN_POINTWISE_ADD, tensor(10, Y, virtual=True), tensor(3, Y), tensor(10, Y, virtual=True)), ),
    "other layout of the residual": tuple(replace(node, x=tensor(5, Y, order=LAST)) if node.inputs[0].uid == 5 else node for node in fused(residual=True) ),
    "residual times zero": tuple(replace(node, alpha1=0.0) if node.inputs[0].uid == 5 else node for node in fused(residual=True)),
    "behind the gradient": (replace(gradient("data"), dx=tensor(10, X, virtual=True)), pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, tensor(10, X, virtual=True), tensor(6, X)), ),
    "groups apart": (replace(grouped(), x=replace(grouped().x, strides=(241, 121, 60, 5 * 2, 2))),),
    "residual behind a residual": (inside(forward()), pointwise(Mode.CUDNN_POINTWISE_ADD, tensor(10, Y, virtual=True), tensor(11, Y, virtual=True), tensor(5, Y)), pointwise(Mode.CUDNN_POINTWISE_ADD, tensor(11, Y, virtual=True), tensor(12, Y, virtual=True), tensor(6, Y)), pointwise(Mode.CUDNN_POINTWISE_ADD, tensor(12, Y, virtual=True), tensor(3, Y), tensor(4, ONE)), ),
    "gaps in the bias": biased(inside(forward()), bias_strides=(16, 2, 1, 1)),
    "bias of groups": (replace(grouped(), y=tensor(10, (2, 2, 4, 6, 5), virtual=True)), pointwise(Mode.CUDNN_POINTWISE_ADD, tensor(10, (2, 2, 4, 6, 5), virtual=True), grouped().y, tensor(4, (1, 2, 1, 1, 1))), ),
    "sum with what is virtual": (replace(forward(settings=convolution(), y=tensor(10, ONE, virtual=True)), x=tensor(1, (1, 4, 3, 3))), pointwise(Mode.CUDNN_POINTWISE_ADD, tensor(10, ONE, virtual=True), tensor(11, ONE, virtual=True), tensor(5, ONE)), pointwise(Mode.CUDNN_POINTWISE_ADD, tensor(11, ONE, virtual=True), tensor(3, ONE), tensor(10, ONE, virtual=True)), ),
    "statistics": (inside(forward()), parts.GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, tensor(10, Y, virtual=True), tensor(20, ONE), tensor(21, ONE)), ),
    "sum in double": (inside(forward()), pointwise(Mode.CUDNN_POINTWISE_ADD, tensor(10, Y, virtual=True), tensor(3, Y), tensor(4, ONE), compute=DOUBLE), ),
    "uneven paddings": (forward(settings=convolution((2, 1), (0, 1))),),
    "gaps in the filter": (replace(forward(), w=tensor(2, W, strides=(40, 10, 3, 1))),),
    "another operation": (pointwise(Mode.CUDNN_POINTWISE_TANH_FWD, tensor(1, X), tensor(2, X)),),
    "groups of filters apart": (replace(grouped(), w=replace(grouped().w, strides=(73, 18, 9, 3, 1))),),
}  # fmt: skip


@shows(*of("ENGINE", "c16"), "cudnnBackendExecute/c01")
@pytest.mark.parametrize("graph", ALMOST)
def test_graphs_that_no_pattern_covers(trial: Callable[..., Trial], plans: Any, unfinished: Any, graph: Any) -> None:
    """Every engine but the one without patterns refuses a graph that differs from its operation in one setting."""
    assert [i for i, engine in enumerate(ENGINES) if not engine.refuses(ALMOST[graph])] == [0]
    trial(executed(*ALMOST[graph]))
    unfinished(ENGINE, numbered(plans.graph(*ALMOST[graph]), 1), NOT_SUPPORTED, "c16")


def of_integers(between: Any) -> Any:
    """Return fused_integers with another tensor between the convolution and the sum."""
    product, shifted, rectified = fused_integers()
    return replace(product, y=between), replace(shifted, x=between), rectified


NOWHERE = {
    "virtual integers": of_integers(tensor(10, (2, 32, 5, 4), INT32, virtual=True)),
    "vectors of rows": (
        replace(integers(4), x=replace(tensor(1, (2, 32, 5, 4), INT8), vector_count=4, vectorized_dimension=2), y=vectors(3, (2, 32, 20, 4), 4)),
    ),
}  # fmt: skip


@shows(*of("OPERATIONGRAPH", "c15"))
@pytest.mark.parametrize("graph", NOWHERE)
def test_graphs_that_no_engine_executes(plans: Any, unfinished: Any, graph: Any) -> None:
    unfinished(GRAPH, plans.of_nodes(*NOWHERE[graph]), NOT_SUPPORTED, "c15")


NUMBERS = """node by node
fwd algo implicit gemm, fwd algo implicit precomp gemm, fwd algo gemm, fwd algo fft, fwd algo fft tiling, fwd algo winograd, fwd algo winograd nonfused
fwd algo implicit gemm on tensor cores, fwd algo implicit precomp gemm on tensor cores, fwd algo gemm on tensor cores
bwd data algo 0, bwd data algo 1, bwd data algo fft, bwd data algo fft tiling, bwd data algo winograd, bwd data algo winograd nonfused
bwd data algo 0 on tensor cores, bwd data algo 1 on tensor cores
bwd filter algo 0, bwd filter algo 1, bwd filter algo fft, bwd filter algo 3, bwd filter algo winograd, bwd filter algo winograd nonfused, bwd filter algo fft tiling
bwd filter algo 0 on tensor cores, bwd filter algo 1 on tensor cores, bwd filter algo 3 on tensor cores
node by node on tensor cores"""


@shows(*of("ENGINE", "c03"))
def test_the_numbers_of_engines(subject: Subject) -> None:
    """Engine numbers are stable, because programs store them. Refusals name each engine by its number."""
    assert [engine.name for engine in ENGINES] == NUMBERS.replace("\n", ", ").split(", ")


# Number of engines for each graph: all algorithms that the tables list for it, with and without tensor cores.
COUNTS = {
    "forward": 11, "forward half": 5, "forward bfloat16": 5, "forward double": 4, "grouped": 11, "fused": 11, "fused half": 5,
    "fused residual": 11, "fused without ReLU": 3, "data": 9, "data half": 9, "filter": 9, "filter half": 9, "int8": 2, "uint8": 2, "int8x4": 2, "uint8x4 to float": 2, "int8x32": 1,
    "fused int8x4": 2, "strided": 3, "fused identity": 3, "one group": 11, "layer": 1, "layer half": 2, "layer bfloat16": 2,
}  # fmt: skip


@shows(*of("ENGINEHEUR", "c01", "c02", "c07"), *of("OPERATIONGRAPH", "c07"))
@pytest.mark.parametrize("graph", GRAPHS)
def test_how_many_engines_execute_it(
    cudnn: Any, handle: Any, plans: Any, monkeypatch: pytest.MonkeyPatch, graph: Any
) -> None:
    """The heuristics list each engine once, as the documented tables say, and in the order of the backend's
    estimates; implicit GEMM is not the slowest of many."""
    made = plans.graph(*GRAPHS[graph])
    assert plans.count(made) == len(ENGINES)

    def listed() -> Any:
        found = plans.heuristics(made)
        count = cudnn.cudnnBackendGetAttribute(found, Name.CUDNN_ATTR_ENGINEHEUR_RESULTS, DESCRIPTOR, 0).elementCount
        engines = [
            plans.get(c, CONFIG, "ENGINE", DESCRIPTOR)[0]
            for c in plans.get(found, HEURISTICS, "RESULTS", DESCRIPTOR, count)
        ]
        return [plans.get(engine, ENGINE, "GLOBAL_INDEX", INT64)[0] for engine in engines]

    indices, estimated = listed(), handle.backend.preferred_algorithms
    with monkeypatch.context() as patched:
        patched.setattr(
            handle.backend,
            "preferred_algorithms",
            lambda alike: tuple(sorted(estimated(alike), key=lambda o: -o.engine)),
        )
        assert listed() == sorted(indices, reverse=True)
    assert sorted(indices) == ABLE[graph] and len(indices) == COUNTS[graph]
    assert len(indices) < 4 or handle.backend.name == "reference" or indices[-1] != 1


@shows(*of("ENGINE", "c10"), "cudnnBackendNumericalNote_t/c01")
def test_numerical_notes(plans: Any) -> None:
    """Notes name tensor cores and conversions only where the math type allows them, and transforms where the
    algorithm is one."""
    for name in ("forward", "forward half", "data", "filter half", "layer half"):
        graph = plans.graph(*GRAPHS[name])
        half = name.endswith("half")
        for index in ABLE[name]:
            made, said = plans.engine(graph, index), ENGINES[index].name
            notes = set(plans.get(made, ENGINE, "NUMERICAL_NOTE", Type.CUDNN_TYPE_NUMERICAL_NOTE, 8))
            wanted = {Note.CUDNN_NUMERICAL_NOTE_FFT} if "fft" in said else set()
            wanted |= {Note.CUDNN_NUMERICAL_NOTE_WINOGRAD} if "winograd" in said else set()
            wanted |= {Note.CUDNN_NUMERICAL_NOTE_TENSOR_CORE} if "tensor cores" in said else set()
            wanted |= {Note.CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS} if "tensor cores" in said and not half else set()
            assert notes == wanted, said


def knob_infos(cudnn: Any, plans: Any, engine: Any) -> Any:
    """Return (type, minimum, maximum, stride) of the knobs of an engine."""
    found = cudnn.cudnnBackendGetAttribute(engine, Name.CUDNN_ATTR_ENGINE_KNOB_INFO, DESCRIPTOR, 8)
    assert found.elementCount == len(found.arrayOfElements)
    types = {"TYPE": Type.CUDNN_TYPE_KNOB_TYPE}
    endings = ("TYPE", "MINIMUM_VALUE", "MAXIMUM_VALUE", "STRIDE")
    return [
        tuple(plans.get(info, KNOB_INFO, e, types.get(e, INT64))[0] for e in endings) for info in found.arrayOfElements
    ]


@shows(*of("ENGINE", "c13"), *of("LAYOUT_INFO", "c01", "c03", "c05", "c06"), "cudnnBackendLayoutType_t/c01")
@pytest.mark.parametrize("graph", ["forward", "forward half", "data", "filter half", "layer half", "fused"])
def test_preferred_layouts(cudnn: Any, plans: Any, graph: str) -> None:
    """Each stored tensor prefers NHWC on tensor cores, and NCHW elsewhere."""
    nodes, kind = GRAPHS[graph], Kind.CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR
    made = plans.graph(*nodes)
    there = {tensor.uid for node in nodes for tensor in (*node.inputs, *node.outputs) if not tensor.is_virtual}
    for index in ABLE[graph]:
        on_cores = ENGINES[index].name.endswith("on tensor cores")
        wanted = Layout.CUDNN_LAYOUT_TYPE_PREFERRED_NHWC if on_cores else Layout.CUDNN_LAYOUT_TYPE_PREFERRED_NCHW
        engine = plans.engine(made, index)
        infos = cudnn.cudnnBackendGetAttribute(
            engine, Name.CUDNN_ATTR_ENGINE_LAYOUT_INFO, DESCRIPTOR, 16
        ).arrayOfElements
        types = [plans.get(info, kind, "TYPES", Type.CUDNN_TYPE_LAYOUT_TYPE, 8) for info in infos]
        assert {plans.get(info, kind, "TENSOR_UID", INT64)[0] for info in infos} == there and len(infos) == len(there)
        assert types == [(wanted,)] * len(there)


@shows(*of("KNOB_INFO", "c01", "c05", "c07", "c09", "c11"), *of("ENGINE", "c08"), *of("ENGINECFG", "c06", "c11"),
       *of("KNOB_CHOICE", "c01"), "cudnnBackendKnobType_t/c02")  # fmt: skip
@pytest.mark.parametrize("graph", ["forward", "fused half", "data", "filter"])
def test_knobs(cudnn: Any, handle: Any, plans: Any, unfinished: Any, graph: str) -> None:
    """Value 0 leaves the choice to the engine, and 1 to the maximum name its solvers; others are refused. The
    reference has no knobs."""
    made, found = plans.graph(*GRAPHS[graph]), []
    for index in ABLE[graph]:
        engine = plans.engine(made, index)
        knobs = knob_infos(cudnn, plans, engine)
        found += knobs
        assert not knobs or (index and handle.backend.name != "reference")
        for kind, least, most, stride in knobs:
            assert (kind, least, stride) == (TILE_SIZE, 0, 1) and most > 1
            for value in (-1, most + 1, 2**40):
                unfinished(CONFIG, chosen(engine, plans(parts.KnobChoice(kind, value))), NOT_SUPPORTED, "c11")
            config = plans.config(engine, parts.KnobChoice(kind, most))
            read = plans.get(config, CONFIG, "KNOB_CHOICES", DESCRIPTOR)
            assert plans.get(read[0], Kind.CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, "KNOB_VALUE", INT64) == (most,)
            plans.finalized(PLAN, plans.of_config(config))
    assert bool(found) == (handle.backend.name != "reference")


@shows("cudnnBackendGetAttribute/c07", *of("ENGINE", "c08", "c10", "c12"), *of("ENGINECFG", "c08"), *of("ENGINEHEUR", "c07"),
       *of("EXECUTION_PLAN", "c12"), *of("KNOB_INFO", "c05", "c07", "c09", "c11"), *of("LAYOUT_INFO", "c02", "c04"),
       *of("OPERATIONGRAPH", "c07"))  # fmt: skip
def test_types_of_what_is_read(
    cudnn: Any, handle: Any, plans: Any, refuses: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attribute that users cannot set has one type."""
    monkeypatch.setattr(handle.backend, "graph_solvers", lambda graph: ("one", "other"))
    graph = plans.graph(*GRAPHS["forward"])
    engine, config = plans.engine(graph, 1), plans.config(plans.engine(graph, 0))
    knob, layout = (
        cudnn.cudnnBackendGetAttribute(engine, Name[f"CUDNN_ATTR_ENGINE_{ending}"], DESCRIPTOR, 1).arrayOfElements[0]
        for ending in ("KNOB_INFO", "LAYOUT_INFO")
    )
    heuristics, plan = plans.finalized(HEURISTICS, ranked(graph)), plans.finalized(PLAN, plans.of_config(config))
    for made, type_, *endings in (
        (graph, INT64, "OPERATIONGRAPH_ENGINE_GLOBAL_COUNT"), (plan, INT64, "EXECUTION_PLAN_WORKSPACE_SIZE"),
        (engine, DESCRIPTOR, "ENGINE_KNOB_INFO", "ENGINE_LAYOUT_INFO"), (engine, Type.CUDNN_TYPE_NUMERICAL_NOTE, "ENGINE_NUMERICAL_NOTE"),
        (config, DESCRIPTOR, "ENGINECFG_INTERMEDIATE_INFO"), (heuristics, DESCRIPTOR, "ENGINEHEUR_RESULTS"),
        (knob, Type.CUDNN_TYPE_KNOB_TYPE, "KNOB_INFO_TYPE"), (layout, Type.CUDNN_TYPE_LAYOUT_TYPE, "LAYOUT_INFO_TYPES"),
        (knob, INT64, *(f"KNOB_INFO_{ending}" for ending in ("MINIMUM_VALUE", "MAXIMUM_VALUE", "STRIDE"))), (layout, INT64, "LAYOUT_INFO_TENSOR_UID"),
    ):  # fmt: skip
        for name, other in product((Name[f"CUDNN_ATTR_{ending}"] for ending in endings), set(Type) - {type_}):
            refuses(BAD_PARAM, "cudnnBackendGetAttribute/c07", cudnn.cudnnBackendGetAttribute, made, name, other, 1)


@shows("CUDNN_BACKEND_ENGINE_DESCRIPTOR/c02 c08 c09", "CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR/c01 c03-c12", "cudnnBackendKnobType_t/c02", "CUDNN_BACKEND_ENGINECFG_DESCRIPTOR/c11", "cudnnBackendFinalize/c06")  # fmt: skip
@pytest.mark.parametrize("solvers", [0, 1, 2, 7])
def test_the_knob_has_a_value_for_each_solver(
    cudnn: Any, handle: Any, plans: Any, unfinished: Any, monkeypatch: pytest.MonkeyPatch, solvers: int
) -> None:
    """A knob exists where a backend has several solvers; its additional value leaves the choice to the engine."""
    asked = []
    monkeypatch.setattr(
        handle.backend, "graph_solvers", lambda graph: asked.append(graph) or tuple("abcdefg"[:solvers])
    )
    made = plans.graph(*GRAPHS["forward"])
    engine = plans.engine(made, 1)
    assert {(graph.engine, graph.choice) for graph in asked} == {(1, 0)}
    assert knob_infos(cudnn, plans, engine) == ([(TILE_SIZE, 0, solvers, 1)] if solvers > 1 else [])

    def configuration(*choices: Any) -> Any:
        return chosen(engine, *(plans(parts.KnobChoice(kind, value)) for kind, value in choices))

    able = range(solvers + 1) if solvers > 1 else ()
    for value in set(able) & {0, 1, solvers - 1, solvers}:
        plans.finalized(CONFIG, configuration((TILE_SIZE, value)))
    wrong = [(TILE_SIZE, value) for value in (-1, 0, 1, solvers - 1, solvers, solvers + 1) if value not in able]
    for choice in [*wrong, *((kind, 0) for kind in list(cudnnBackendKnobType_t)[:-1] if kind != TILE_SIZE)]:
        unfinished(CONFIG, configuration(choice), NOT_SUPPORTED, "c11")
    if able:
        unfinished(CONFIG, configuration((TILE_SIZE, 0), (TILE_SIZE, 1)), BAD_PARAM, "cudnnBackendFinalize/c06")


@shows("cudnnBackendKnobType_t/c03", *of("ENGINECFG", "c01"))
@pytest.mark.parametrize("graph, engine", [("forward", 1), ("fused half", 9), ("filter half", ABLE["filter half"][1])])
def test_every_choice_computes_the_same(trial: Callable[..., Trial], handle: Any, graph: str, engine: Any) -> None:
    """Each solver that the knob can choose agrees with the reference within the same bounds."""
    solvers = len(handle.backend.graph_solvers(executed(*GRAPHS[graph], engine=engine)))
    for choice in range(1 + solvers if solvers > 1 else 1):
        trial(executed(*GRAPHS[graph], engine=engine, choice=choice))
