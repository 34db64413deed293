"""Holds cases of the descriptors of an execution (5.2.3, 9.2.2 to 9.2.5, 9.2.15, 9.3).

They are graphs, engines, heuristics, plans and variant packs.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api import cudnn as api
from dualdnn.api.enumerations import cudnnBackendAttributeName_t as Name
from dualdnn.api.enumerations import cudnnBackendAttributeType_t as Type
from dualdnn.api.enumerations import cudnnBackendDescriptorType_t as Kind
from dualdnn.api.operations.graph import ConvolutionBackwardDataNode, ConvolutionForwardNode, KnobChoice
from dualdnn.api.operations.specs import BFLOAT16, FLOAT, INT8, INT32
from dualdnn.api.status import BAD_PARAM, NOT_INITIALIZED, NOT_SUPPORTED, CudnnError
from dualdnn.conformance.calls.graph import DESCRIPTOR, INT64, attributes, kind_of
from dualdnn.conformance.calls.plans import (
    CONFIG,
    ENGINE,
    GRAPH,
    HANDLE,
    HEURISTICS,
    INSTANT,
    PACK,
    PLAN,
    POINTER,
    Plans,
    chosen,
    numbered,
    ranked,
)  # fmt: skip
from dualdnn.conformance.marks import needs, shows

from .graph import Mode, convolution, diamond, pointwise, tensor
from .graph_descriptors import of

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject

EXECUTE = "cudnnBackendExecute"
INVALID = "cudnnBackendFinalize/c06"
X, Y = tensor(1, (2, 3, 4)), tensor(2, (2, 3, 4))
TANH = pointwise(Mode.CUDNN_POINTWISE_TANH_FWD, X, Y)
BETWEEN = tensor(9, (2, 3, 4), virtual=True)
TWO = (pointwise(Mode.CUDNN_POINTWISE_TANH_FWD, X, BETWEEN), pointwise(Mode.CUDNN_POINTWISE_SQRT, BETWEEN, Y))


@shows(*of("OPERATIONGRAPH", "c02", "c03", "c05", "c07", "c08", "c17"), "cudnnBackendSetAttribute/c04")
def test_attributes_of_graphs(subject: Subject, cudnn: Any, handle: Any, plans: Any, cannot_set: Any) -> None:
    made = plans.graph(*TWO)
    assert plans.get(made, GRAPH, "HANDLE", HANDLE) == (handle,)
    ops = cudnn.cudnnBackendGetAttribute(made, Name.CUDNN_ATTR_OPERATIONGRAPH_OPS, DESCRIPTOR, 2)
    assert ops.elementCount == 2
    outputs = [plans.get(op, kind_of(TANH), "YDESC", DESCRIPTOR)[0] for op in ops.arrayOfElements]
    assert [plans.get(y, kind_of(X), "UNIQUE_ID", INT64) for y in outputs] == [(BETWEEN.uid,), (Y.uid,)]
    assert plans.count(made) > 0
    cannot_set(GRAPH, "ENGINE_GLOBAL_COUNT", INT64, 1)
    if subject.ours:
        cannot_set(GRAPH, "HANDLE", INT64, 1, clause="cudnnBackendSetAttribute/c05")
        for handles in ((), (handle, handle)):
            cannot_set(GRAPH, "HANDLE", HANDLE, *handles, clause="cudnnBackendSetAttribute/c06")


@shows(*of("OPERATIONGRAPH", "c09", "c10", "c11"))
def test_supported_count_is_no_attribute(cudnn: Any, plans: Any, refuses: Callable[..., bool], cannot_set: Any) -> None:
    """The count of engines has no enumerator, so the next number is not an attribute."""
    asked = (plans.graph(TANH), Name.CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT + 1, INT64, 1)
    refuses(BAD_PARAM, "cudnnBackendGetAttribute/c06", cudnn.cudnnBackendGetAttribute, *asked)
    cannot_set(GRAPH, asked[1], INT64, 1)


@shows(*of("OPERATIONGRAPH", "c04", "c06"))
def test_graphs_need_a_handle_and_operations(plans: Any, unfinished: Any, cannot_set: Any) -> None:
    given = plans.of_nodes(TANH)
    for ending, clause in (("HANDLE", "c04"), ("OPS", "c06")):
        unfinished(GRAPH, {k: v for k, v in given.items() if k != ending}, BAD_PARAM, clause)
    cannot_set(GRAPH, "OPS", DESCRIPTOR, clause="cudnnBackendSetAttribute/c06")
    cannot_set(GRAPH, "OPS", DESCRIPTOR, plans(X), clause="cudnnBackendSetAttribute/c07")
    cannot_set(GRAPH, "HANDLE", HANDLE, None, clause="cudnnBackendSetAttribute/c07")


@shows(*of("OPERATIONGRAPH", "c12"))
def test_operations_that_are_not_finalised(cudnn: Any, handle: Any, plans: Any, refuses: Callable[..., bool]) -> None:
    raw = plans.filled(kind_of(TANH), attributes(plans, TANH))
    made = plans.filled(GRAPH, {"HANDLE": (HANDLE, (handle,)), "OPS": (DESCRIPTOR, (raw,))})
    refuses(BAD_PARAM, of("OPERATIONGRAPH", "c12")[0], cudnn.cudnnBackendFinalize, made)
    cudnn.cudnnBackendFinalize(raw)
    cudnn.cudnnBackendFinalize(made)


@shows(*of("OPERATIONGRAPH", "c13"))
@needs("computes", "no handle can be had")
def test_graphs_of_a_destroyed_handle(subject: Subject, cudnn: Any, refuses: Callable[..., bool]) -> None:
    plans = Plans(cudnn, subject.new_handle())
    made = plans.filled(GRAPH, plans.of_nodes(TANH))
    cudnn.cudnnDestroy(plans.handle)
    refuses(BAD_PARAM, of("OPERATIONGRAPH", "c13")[0], cudnn.cudnnBackendFinalize, made)


@pytest.mark.ours
@pytest.mark.parametrize("kind, clause", [
    (GRAPH, of("OPERATIONGRAPH", "c14")[0]), (ENGINE, of("ENGINE", "c18")[0]), (CONFIG, INVALID), (HEURISTICS, INVALID), (PLAN, INVALID),
], ids=lambda value: getattr(value, "name", ""))  # fmt: skip
@shows(*of("OPERATIONGRAPH", "c14"), "cudnnBackendFinalize/c06")
def test_parts_that_were_destroyed_since(
    cudnn: Any, handle: Any, plans: Any, refuses: Callable[..., bool], kind: Any, clause: Any
) -> None:
    """Finalising a whole fails where a part was destroyed after it was set to an attribute."""
    graph = plans.graph(TANH)
    engine = plans.engine(graph, 0)
    config = plans.config(engine)
    part, given = {
        GRAPH: ((op := plans(TANH)), {"HANDLE": (HANDLE, (handle,)), "OPS": (DESCRIPTOR, (op,))}),
        ENGINE: (graph, numbered(graph, 0)),
        CONFIG: (engine, chosen(engine)),
        HEURISTICS: (graph, ranked(graph)),
        PLAN: (config, plans.of_config(config)),
    }[kind]
    whole = plans.filled(kind, given)
    plans.made.remove(part)
    cudnn.cudnnBackendDestroyDescriptor(part)
    refuses(BAD_PARAM, clause, cudnn.cudnnBackendFinalize, whole)


A, B = tensor(10, (2, 3, 4), virtual=True), tensor(11, (2, 3, 4), virtual=True)
RELU = Mode.CUDNN_POINTWISE_RELU_FWD
NO_GRAPHS = {
    "one id for two tensors": (pointwise(RELU, X, Y), pointwise(RELU, X, replace(Y, data_type=FLOAT, dims=(2, 3, 4), strides=(24, 4, 1)))),
    "virtual or not": (pointwise(RELU, X, replace(X, uid=9)), pointwise(RELU, BETWEEN, Y)),
    "two writers": (pointwise(RELU, X, Y), pointwise(Mode.CUDNN_POINTWISE_TANH_FWD, X, Y)), "the same operation twice": (TANH, TANH),
    "in place": (pointwise(RELU, X, X),), "a circle of two": (pointwise(RELU, A, B), pointwise(RELU, B, A)),
    "a circle behind an input": (pointwise(Mode.CUDNN_POINTWISE_ADD, X, A, B), pointwise(RELU, A, B), pointwise(RELU, B, Y), ),
    "never written": (pointwise(RELU, A, Y),), "never read": (pointwise(RELU, X, A),),
    "a virtual prior": (ConvolutionForwardNode(convolution((0,), (0,)), 1.0, 0.5, X, tensor(3, (3, 3, 1)), A), pointwise(RELU, A, Y), ),
}  # fmt: skip


@shows(*of("OPERATIONGRAPH", "c14"))
@pytest.mark.parametrize("which", NO_GRAPHS)
def test_operations_that_make_no_graph(plans: Any, unfinished: Any, which: Any) -> None:
    unfinished(GRAPH, plans.of_nodes(*NO_GRAPHS[which]), BAD_PARAM, "c14")


@shows(*of("OPERATIONGRAPH", "c15", "c16"), *of("TENSOR", "c02"), "cudnnBackendFinalize/c07")
@pytest.mark.parametrize("nodes, clause", [
    ((pointwise(RELU, tensor(1, (2, 3, 4), INT8), replace(A, data_type=INT8)), pointwise(RELU, replace(A, data_type=INT8), Y)), "c15"),
    ((pointwise(RELU, replace(tensor(1, (2, 3, 4), INT8), vector_count=4, vectorized_dimension=1, alignment=4), tensor(2, (2, 12, 4))),), "c15"),
    ((ConvolutionForwardNode(convolution((0,), (0,)), 1.0, 0.0, tensor(1, (2, 3, 4), INT8), tensor(2, (3, 3, 1), INT8), tensor(3, (2, 3, 4))),), "c15"),
    ((replace(pointwise(RELU, X, Y), pointwise=replace(pointwise(RELU, X, Y).pointwise, compute_type=INT32)),), "c15"),
    ((replace(pointwise(RELU, X, Y), pointwise=replace(pointwise(RELU, X, Y).pointwise, compute_type=BFLOAT16)),), "c15"),
    ((pointwise(RELU, X, replace(Y, strides=(12, 4, 2))),), "c16"),
    ((pointwise(RELU, tensor(1, (2, 2**20, 2**11)), tensor(2, (2, 2**20, 2**11))),), "c16"),
    ((pointwise(RELU, replace(X, strides=(2**31, 4, 1)), Y),), "c16"),
    ((ConvolutionForwardNode(convolution((2**31 - 4,), (0,), stride=(2**31 - 1,)), 1.0, 0.0, X, tensor(3, (3, 3, 1)), tensor(4, (2, 3, 2))),), "c16"),
    ((ConvolutionBackwardDataNode(convolution((0,), (0,), stride=(2**32,)), 1.0, 0.0, tensor(3, (3, 3, 1)), tensor(4, (2, 3, 1)), X),), "c16"),
], ids=["virtual integers", "vectors", "integer convolution", "arithmetic of integers", "arithmetic of bfloat16", "elements in one place", "too many", "too far apart", "too much padding", "too large a stride"])  # fmt: skip
def test_what_no_engine_executes(plans: Any, unfinished: Any, nodes: Any, clause: str) -> None:
    unfinished(GRAPH, plans.of_nodes(*nodes), NOT_SUPPORTED, clause)


MAX_ELEMENTS = 2**31  # elements; a tensor of a graph spans fewer


def large(uid: Any, dims: Any, strides: Any) -> Any:
    return replace(tensor(uid, dims), strides=strides)


@pytest.mark.ours
@shows(*of("OPERATIONGRAPH", "c16"))
@pytest.mark.parametrize("written", [False, True], ids=["read", "written"])
@pytest.mark.parametrize("dims, strides", [
    ((1, 1, MAX_ELEMENTS), (MAX_ELEMENTS, MAX_ELEMENTS, 1)), ((2, 1, 1), (MAX_ELEMENTS - 1, 1, 1)), ((2, 3, 2), (MAX_ELEMENTS - 2**21 - 102, 2**20, 101)),
], ids=["many", "far", "gaps"])  # fmt: skip
def test_the_most_elements_that_a_tensor_spans(
    plans: Any, unfinished: Any, dims: Any, strides: Any, written: bool
) -> None:
    """A tensor that spans 2**31 elements is refused, and one element fewer is executed."""
    fewer = (dims[0], dims[1], dims[2] - 1) if max(dims) == MAX_ELEMENTS else dims
    for extents, first in ((fewer, strides[0] - 1), (dims, strides[0])):
        spanning, packed = large(1, extents, (first, *strides[1:])), tensor(2, extents)
        nodes = (pointwise(RELU, packed, spanning) if written else pointwise(RELU, spanning, packed),)
        if (extents, first) != (dims, strides[0]):
            assert plans.graph(*nodes) is not None
        else:
            unfinished(GRAPH, plans.of_nodes(*nodes), NOT_SUPPORTED, "c16")


@pytest.mark.ours
@shows(*of("OPERATIONGRAPH", "c16"))
@pytest.mark.parametrize("between, clause", [(MAX_ELEMENTS // 4 - 1, "c16"), (MAX_ELEMENTS // 4 - 2, "c15")])
def test_limit_counts_the_elements_of_vectors(plans: Any, unfinished: Any, between: Any, clause: str) -> None:
    """A tensor of vectors is refused if its elements exceed the limit, although its vectors do not."""
    spanning = replace(
        large(1, (1, 1, 2), (4, 1, between)), data_type=INT8, vector_count=4, vectorized_dimension=1, alignment=4
    )
    nodes = (pointwise(RELU, spanning, tensor(2, (1, 4, 2))),)
    unfinished(GRAPH, plans.of_nodes(*nodes), NOT_SUPPORTED, clause)


@pytest.mark.ours
@shows(*of("OPERATIONGRAPH", "c15"))
def test_the_log_says_why(cudnn: Any, plans: Any, logged: Callable[..., list[Any]]) -> None:
    """The warning channel names every engine and its reason."""
    node = ConvolutionForwardNode(
        convolution((0,), (0,)), 1.0, 0.0, tensor(1, (2, 3, 4), INT8), tensor(2, (3, 3, 1), INT8), tensor(3, (2, 3, 4))
    )
    made = plans.filled(GRAPH, plans.of_nodes(node))
    messages = logged(4)
    with pytest.raises(cudnn.CudnnError, match="engine 0, node by node: tensor 1 belongs to a convolution"):
        cudnn.cudnnBackendFinalize(made)
    assert "engine 0, node by node: tensor 1 belongs to a convolution and is CUDNN_DATA_INT8" in messages[-1][3]


@pytest.mark.ours
@shows(*of("OPERATIONGRAPH", "c01"))
def test_the_log_draws_the_graph(cudnn: Any, plans: Any, logged: Callable[..., list[Any]]) -> None:
    """The info channel shows a finalised graph as a flowchart with each tensor once, in order of execution."""
    made = plans.filled(GRAPH, plans.of_nodes(*TWO[::-1]))
    messages = logged(8)
    cudnn.cudnnBackendFinalize(made)
    (drawn,) = (text for *_, text in messages if "flowchart" in text)
    arrows = [line.strip() for line in drawn.split("\0") if "-->" in line]
    assert arrows == ["t1 --> op0", "op0 --> t9", "t9 --> op1", "op1 --> t2"]
    for text in ('op0["tanh_fwd"]', 'op1["sqrt"]', 't1(["1: 2 x 3 x 4"])', 't9{{"9: 2 x 3 x 4"}}'):
        assert drawn.count(text) == 1


@shows("CUDNN_BACKEND_ENGINE_DESCRIPTOR/c01-c04 c06 c08-c14", "CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR/c01 c02 c04 c06", "cudnnBackendLayoutType_t/c01",
       "cudnnBackendNumericalNote_t/c01", "cudnnBackendKnobType_t/c02")  # fmt: skip
def test_what_engines_say(cudnn: Any, plans: Any, cannot_set: Any) -> None:
    """Every engine that executes the graph tells its knobs, its notes, and a preferred layout for each tensor with
    memory."""
    graph = plans.graph(*TWO)
    able = 0
    for index in range(plans.count(graph)):
        try:
            made = plans.engine(graph, index)
        except CudnnError as error:
            assert error.status == NOT_SUPPORTED
            continue
        able += 1
        assert plans.get(made, ENGINE, "GLOBAL_INDEX", INT64) == (index,)
        for note in plans.get(made, ENGINE, "NUMERICAL_NOTE", Type.CUDNN_TYPE_NUMERICAL_NOTE, 8):
            assert note in api.cudnnBackendNumericalNote_t
        infos = cudnn.cudnnBackendGetAttribute(made, Name.CUDNN_ATTR_ENGINE_LAYOUT_INFO, DESCRIPTOR, 8)
        layout = Kind.CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR
        uids = [plans.get(info, layout, "TENSOR_UID", INT64)[0] for info in infos.arrayOfElements]
        assert infos.elementCount == len(uids) and set(uids) == {X.uid, Y.uid}
        for info in infos.arrayOfElements:
            layouts = plans.get(info, layout, "TYPES", Type.CUDNN_TYPE_LAYOUT_TYPE, 8)
            assert layouts and all(one in api.cudnnBackendLayoutType_t for one in layouts)
    assert able
    for name in ("KNOB_INFO", "LAYOUT_INFO"):
        cannot_set(ENGINE, name, DESCRIPTOR, graph)
    cannot_set(ENGINE, "NUMERICAL_NOTE", Type.CUDNN_TYPE_NUMERICAL_NOTE, 0)


@shows(*of("ENGINE", "c03", "c15", "c16"))
def test_unknown_engines(plans: Any, unfinished: Any) -> None:
    graph = plans.graph(TANH)
    count = plans.count(graph)
    for index in (-1, count, count + 7, 2**40, -(2**63)):
        unfinished(ENGINE, numbered(graph, index), NOT_SUPPORTED, "c15")


@shows(*of("ENGINE", "c05", "c07", "c17", "c18"), *of("ENGINECFG", "c05"), *of("ENGINEHEUR", "c04", "c06"),
       *of("EXECUTION_PLAN", "c07", "c09"), INVALID)  # fmt: skip
def test_parts_that_are_missing_or_unfinished(plans: Any, unfinished: Any) -> None:
    graph = plans.graph(TANH)
    engine = plans.engine(graph)
    (number,) = plans.get(engine, ENGINE, "GLOBAL_INDEX", INT64)
    raw = {kind: plans.create(kind) for kind in (GRAPH, ENGINE, CONFIG)}
    for kind, given, clauses, unready in (
        (ENGINE, numbered(graph, number), ("c05", "c07"), "c17"), (CONFIG, chosen(engine), ("c05",), INVALID),
        (HEURISTICS, ranked(graph), ("c04", "c06"), INVALID), (PLAN, plans.of_config(plans.config(engine)), ("c09", "c07"), INVALID),
    ):  # fmt: skip
        for ending, clause in zip(given, clauses, strict=True):
            unfinished(kind, {k: v for k, v in given.items() if k != ending}, BAD_PARAM, clause)
        first, (_, (part,)) = next(iter(given.items()))
        unfinished(kind, {**given, first: (DESCRIPTOR, (raw[part.kind],))}, BAD_PARAM, unready)


@shows("CUDNN_BACKEND_ENGINECFG_DESCRIPTOR/c01-c04 c06 c08-c10")
def test_configurations(cudnn: Any, plans: Any, cannot_set: Any) -> None:
    """A configuration without knobs is valid, whether the list is empty or not set. Engines have no intermediates."""
    engine = plans.engine(plans.graph(TANH))
    number = plans.get(engine, ENGINE, "GLOBAL_INDEX", INT64)
    for given in ({}, {"KNOB_CHOICES": (DESCRIPTOR, ())}):
        made = plans.finalized(CONFIG, {"ENGINE": (DESCRIPTOR, (engine,)), **given})
        assert plans.get(plans.get(made, CONFIG, "ENGINE", DESCRIPTOR)[0], ENGINE, "GLOBAL_INDEX", INT64) == number
        for ending in ("KNOB_CHOICES", "INTERMEDIATE_INFO"):
            found = cudnn.cudnnBackendGetAttribute(made, Name[f"CUDNN_ATTR_ENGINECFG_{ending}"], DESCRIPTOR, 4)
            assert found.elementCount == 0 and not found.arrayOfElements
    cannot_set(CONFIG, "INTERMEDIATE_INFO", DESCRIPTOR, engine)


@shows(*of("ENGINECFG", "c11"), *of("KNOB_CHOICE", "c01"))
def test_knobs_that_the_engine_does_not_have(plans: Any, unfinished: Any) -> None:
    engine = plans.engine(plans.graph(TANH))
    for knob in (api.CUDNN_KNOB_TYPE_SPLIT_K, api.CUDNN_KNOB_TYPE_SPECFILT):
        unfinished(CONFIG, chosen(engine, plans(KnobChoice(knob, 0))), NOT_SUPPORTED, "c11")


@shows("CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR/c01-c03 c05 c07-c09", "cudnnBackendHeurMode_t/c01")
def test_heuristics(cudnn: Any, plans: Any, cannot_set: Any) -> None:
    """Each engine that executes the graph has one configuration, which makes a plan. A count may be requested first."""
    nodes = diamond()
    graph = plans.graph(*nodes)
    made = plans.heuristics(graph)
    results = Name.CUDNN_ATTR_ENGINEHEUR_RESULTS
    count = cudnn.cudnnBackendGetAttribute(made, results, DESCRIPTOR, 0).elementCount
    found = cudnn.cudnnBackendGetAttribute(made, results, DESCRIPTOR, count)
    assert count and found.elementCount == count == len(found.arrayOfElements)
    engines = [plans.get(config, CONFIG, "ENGINE", DESCRIPTOR)[0] for config in found.arrayOfElements]
    indices = [plans.get(engine, ENGINE, "GLOBAL_INDEX", INT64)[0] for engine in engines]
    assert len(set(indices)) == count and 0 in indices
    for config in found.arrayOfElements:
        plans.finalized(PLAN, plans.of_config(config))
    assert plans.get(made, HEURISTICS, "MODE", INSTANT[0]) == INSTANT[1]
    cannot_set(HEURISTICS, "RESULTS", DESCRIPTOR, found.arrayOfElements[0])
    cannot_set(HEURISTICS, "MODE", INSTANT[0], 1, clause="cudnnBackendSetAttribute/c07")


@shows("CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR/c01 c05 c06 c08 c12-c14")
def test_plans(handle: Any, plans: Any, cannot_set: Any) -> None:
    made = plans.plan(*TWO)
    assert 0 <= plans.size(made) < 1 << 20
    assert plans.get(made, PLAN, "HANDLE", HANDLE) == (handle,)
    config = plans.get(made, PLAN, "ENGINE_CONFIG", DESCRIPTOR)[0]
    assert plans.get(config, CONFIG, "ENGINE", DESCRIPTOR)
    cannot_set(PLAN, "WORKSPACE_SIZE", INT64, 0)


@shows("CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR/c01-c04 c10 c11", "cudnnBackendSetAttribute/c08", "cudnnBackendFinalize/c07")  # fmt: skip
def test_intermediates_of_plans(plans: Any, unfinished: Any, cannot_set: Any) -> None:
    """Engines have no intermediates: a plan may set an empty list of them, but no other."""
    clause = of("EXECUTION_PLAN", "c04")[0]
    cannot_set(PLAN, "COMPUTED_INTERMEDIATE_UIDS", INT64, 1, status=NOT_SUPPORTED, clause=clause)
    config = plans.config(plans.engine(plans.graph(TANH)))
    given = plans.of_config(config)
    some = {**given, "RUN_ONLY_INTERMEDIATE_UIDS": (INT64, (X.uid,))}
    unfinished(PLAN, some, NOT_SUPPORTED, "cudnnBackendFinalize/c07")
    plans.finalized(PLAN, {**given, "RUN_ONLY_INTERMEDIATE_UIDS": (INT64, ())})


@pytest.fixture
def ready(cudnn: Any, handle: Any, plans: Any) -> Any:
    """Return a plan of two operations, buffers of its tensors, a workspace, and the results."""
    plan = plans.plan(*TWO)
    size = plans.size(plan)
    x = handle.to_device(np.linspace(0.1, 1, 24, dtype=np.float32))
    y = handle.to_device(np.full(24, 7, np.float32))
    return plan, {X.uid: x, Y.uid: y}, handle.allocate(max(1, size)), size


def correct(x: Any, y: Any) -> Any:
    wanted = np.sqrt(np.tanh(x.to_host(np.float32, 24)))
    return np.allclose(y.to_host(np.float32, 24), wanted, rtol=1e-5)


@shows(f"{EXECUTE}/c01 c02 c06")
def test_executed_again(cudnn: Any, handle: Any, plans: Any, ready: Any) -> None:
    """One plan serves two packs in any order, also after all other descriptors were destroyed and made again."""
    plan, pointers, workspace, _ = ready
    other = handle.zeros(96)
    first, second = plans.pack(pointers, workspace), plans.pack({Y.uid: other, X.uid: pointers[X.uid]}, workspace)
    for pack in (second, first, second):
        plans.execute(plan, pack)
    assert correct(pointers[X.uid], pointers[Y.uid]) and correct(pointers[X.uid], other)
    for part in [part for part in plans.made if part not in (plan, first)]:
        cudnn.cudnnBackendDestroyDescriptor(part)
        plans.made.remove(part)
    plans.execute(plan, first)
    assert correct(pointers[X.uid], pointers[Y.uid])


@shows(f"{EXECUTE}/c03", f"{EXECUTE}/c07")
def test_descriptors_that_cannot_be_executed(
    subject: Subject, cudnn: Any, plans: Any, ready: Any, refuses: Callable[..., bool]
) -> None:
    """NULL, descriptors of another type, unfinished or destroyed ones, and those of another handle are refused;
    nothing is written."""
    plan, pointers, workspace, _ = ready
    pack = plans.pack(pointers, workspace)
    wrong = [(plans.create(PLAN), pack, "c03"), (plan, plans.create(PACK), "c03")]
    if subject.survives_stray_pointers:
        wrong += [(None, pack, "c07"), (plan, None, "c07"), (pack, plan, "c07"), (plan, plan, "c07")]
        dead_plan, dead_pack = plans.plan(*TWO), plans.pack(pointers, workspace)
        for dead in (dead_plan, dead_pack):
            cudnn.cudnnBackendDestroyDescriptor(dead)
        wrong += [(dead_plan, pack, "c07"), (plan, dead_pack, "c07")]
    for first, second, clause in wrong:
        refuses(BAD_PARAM, f"{EXECUTE}/{clause}", plans.execute, first, second, unchanged=(pointers[Y.uid],))
    other = subject.new_handle()
    refuses(BAD_PARAM, f"{EXECUTE}/c07", cudnn.cudnnBackendExecute, other, plan, pack, unchanged=(pointers[Y.uid],))
    cudnn.cudnnDestroy(other)
    if subject.survives_stray_pointers:
        refuses(NOT_INITIALIZED, "cudnnStatus_t/c03", cudnn.cudnnBackendExecute, other, plan, pack)


@shows(f"{EXECUTE}/c02 c04 c05 c07")
def test_memory_that_cannot_be_used(
    subject: Subject, handle: Any, plans: Any, ready: Any, refuses: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unsuitable memory is refused, and nothing is written.

    Tensors are missing or superfluous, memory is NULL, too small, shared or at odd addresses, or workspaces are wrong.
    Our backends are also made to ask for more bytes of workspace than they use.
    """
    plan, pointers, workspace, size = ready
    x, y = pointers[X.uid], pointers[Y.uid]
    more = ({X.uid: x, Y.uid: y, 77: x}, {X.uid: x, Y.uid: y, BETWEEN.uid: x})
    wrong = [(given, workspace, f"{EXECUTE}/c07") for given in more]
    if subject.survives_stray_pointers:
        wrong += [({X.uid: x}, workspace, f"{EXECUTE}/c04"), ({}, workspace, f"{EXECUTE}/c04")]
        null = ({X.uid: None, Y.uid: y}, {X.uid: x, Y.uid: None})
        wrong += [(given, workspace, f"{EXECUTE}/c07") for given in null]
    if subject.knows_sizes:  # The subject knows the sizes of memory.
        wide = handle.zeros(200)
        wrong += [
            ({X.uid: x.slice(0, 95), Y.uid: y}, workspace, "cudnnStatus_t/c05"), ({X.uid: x, Y.uid: y.slice(0, 92)}, workspace, "cudnnStatus_t/c05"),
            ({X.uid: wide.slice(1, 96), Y.uid: y}, workspace, f"{EXECUTE}/c07"), ({X.uid: x, Y.uid: wide.slice(2, 96)}, workspace, f"{EXECUTE}/c07"),
            ({X.uid: x, Y.uid: x}, workspace, "cudnnStatus_t/c05"), ({X.uid: "x", Y.uid: y}, workspace, f"{EXECUTE}/c07"),
        ]  # fmt: skip
    if size and subject.knows_sizes:
        wrong += [(pointers, None, f"{EXECUTE}/c05"), (pointers, workspace.slice(0, size - 1), f"{EXECUTE}/c05")]
    for given, space, clause in wrong:
        refuses(BAD_PARAM, clause, plans.execute, plan, plans.pack(given, space), unchanged=(x, y))
    if subject.ours:
        needs = handle.backend.workspace_bytes
        with monkeypatch.context() as patched:
            patched.setattr(handle.backend, "workspace_bytes", lambda operation: needs(operation) + 256)
            plan = plans.plan(*TWO)
        for space in (None, handle.allocate(size + 255)):
            refuses(BAD_PARAM, f"{EXECUTE}/c05", plans.execute, plan, plans.pack(pointers, space), unchanged=(x, y))


@shows(f"{EXECUTE}/c01")
@needs("knows_sizes", "it is not known how far memory reaches")
def test_memory_that_is_shared_later(handle: Any, plans: Any, refuses: Callable[..., bool]) -> None:
    """A plan of many tensors refuses a pack whose memory overlaps, and accepts the first pack again."""
    plan = plans.plan(*diamond())
    size = plans.size(plan)
    pointers = {uid: handle.zeros(nbytes) for uid, nbytes in ((3, 480), (5, 240), (6, 12))}
    pointers[1] = handle.to_device(np.linspace(-2, 2, 120, dtype=np.float32))
    workspace = handle.allocate(max(1, size))
    good = plans.pack(pointers, workspace)
    plans.execute(plan, good)
    kept = pointers[5].to_host(np.uint8, 240)
    third = {5: workspace} if size >= 240 else {3: pointers[1]}
    for shared in ({5: pointers[1].slice(240, 240)}, {6: pointers[3].slice(0, 12)}, third):
        bad = plans.pack({**pointers, **shared}, workspace)
        for _ in range(2):
            refuses(BAD_PARAM, "cudnnStatus_t/c05", plans.execute, plan, bad, unchanged=tuple(pointers.values()))
    plans.execute(plan, good)
    assert kept.any() and (pointers[5].to_host(np.uint8, 240) == kept).all()


@shows(f"{EXECUTE}/c07")
@needs("is_python", "C has no buffers that know that they were freed")
def test_memory_that_was_freed(handle: Any, plans: Any, ready: Any, refuses: Callable[..., bool]) -> None:
    """Each execution of a pack checks its memory, and refuses freed memory."""
    plan, pointers, _, size = ready
    y = pointers[Y.uid]
    for which in (X.uid, Y.uid, "workspace")[: 3 if size else 2]:
        copies = {uid: handle.to_device(buffer.to_host(np.float32, 24)) for uid, buffer in pointers.items()}
        given = {**copies, "workspace": handle.allocate(max(1, size))}
        pack = plans.pack(copies, given["workspace"])
        plans.execute(plan, pack)
        assert correct(copies[X.uid], copies[Y.uid])
        given[which].free()
        left = [buffer for name, buffer in given.items() if name not in (which, "workspace")]
        refuses(BAD_PARAM, f"{EXECUTE}/c07", plans.execute, plan, pack, unchanged=(*left, y))


class Moving:
    """Stands for a program's memory, which may move, shrink or become read-only at any time."""

    def __init__(self, memory: Any) -> None:
        self.memory, self.nbytes, self.read_only = memory, memory.nbytes, False

    @property
    def __cuda_array_interface__(self) -> Any:
        address = (self.memory.address, self.read_only)
        return {"version": 3, "data": address, "typestr": "|u1", "shape": (self.nbytes,)}

    def __dlpack_device__(self) -> Any:
        return self.memory.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.memory.slice(0, self.nbytes).__dlpack__(**options)


@shows(f"{EXECUTE}/c01", f"{EXECUTE}/c07")
@pytest.mark.ours
def test_memory_that_is_another_by_then(handle: Any, plans: Any, ready: Any, refuses: Callable[..., bool]) -> None:
    """Each execution of a pack reads the address and size of its memory again."""
    plan, pointers, workspace, _ = ready
    x, y, on_host = Moving(pointers[X.uid]), Moving(pointers[Y.uid]), handle.backend.name == "reference"
    pack = plans.pack({X.uid: x, Y.uid: y}, workspace)
    elsewhere = [handle.to_device(np.linspace(start, 2, 24, dtype=np.float32)) for start in (0.5, 1)]
    for moved, memory in ((x, x.memory), (x, elsewhere[0]), (y, elsewhere[1]), (x, pointers[X.uid])):
        moved.memory = memory
        before = y.memory.to_host(np.float32, 24)
        for _ in range(2):
            plans.execute(plan, pack)
        assert correct(x.memory, y.memory) and not np.array_equal(before, y.memory.to_host(np.float32, 24))
    changes = [("nbytes", 92, "cudnnStatus_t/c05"), ("memory", x.memory, "cudnnStatus_t/c05")]
    for name, value, clause in [*changes, *([] if on_host else [("read_only", True, f"{EXECUTE}/c07")])]:
        had = getattr(y, name)
        setattr(y, name, value)
        for _ in range(2):
            refuses(BAD_PARAM, clause, plans.execute, plan, pack, unchanged=(x.memory, y.memory))
        setattr(y, name, had)
        plans.execute(plan, pack)
    if not on_host:  # The host takes no addresses.
        named = plans.pack({uid: memory.address for uid, memory in pointers.items()}, workspace)
        plans.execute(plan, named)
        pointers[X.uid], y.memory = elsewhere
        plans.execute(plan, pack)
        plans.execute(plan, named)
        assert correct(x.memory, pointers[Y.uid]) and correct(x.memory, elsewhere[1])


@shows(*of("TENSOR", "c09"), f"{EXECUTE}/c07")
def test_alignment_that_a_tensor_asks_for(
    subject: Subject, handle: Any, plans: Any, refuses: Callable[..., bool]
) -> None:
    """A tensor may ask for 64 bytes, more than the alignment of an element."""
    x = replace(X, alignment=64)
    plan = plans.plan(pointwise(RELU, x, Y))
    memory, y, space = handle.to_device(np.arange(128, dtype=np.float32)), handle.zeros(96), plans.space(plan)
    start = -memory.address % 64
    plans.execute(plan, plans.pack({1: memory.slice(start, 96), 2: y}, space))
    assert (y.to_host(np.float32, 24) == memory.to_host(np.float32, 128)[start // 4 : start // 4 + 24]).all()
    if subject.survives_stray_pointers:
        odd = plans.pack({1: memory.slice(start + 4, 96), 2: y}, space)
        refuses(BAD_PARAM, f"{EXECUTE}/c07", plans.execute, plan, odd, unchanged=(y,))


@shows(*of("OPERATIONGRAPH", "c01", "c05"))
@pytest.mark.parametrize("order", [(4, 3, 2, 1, 0), (2, 4, 0, 3, 1)])
def test_operations_in_any_order(handle: Any, plans: Any, order: Any) -> None:
    nodes = diamond()
    results = []
    for turns in (range(5), order):
        plan = plans.plan(*(nodes[i] for i in turns))
        pointers = {uid: handle.zeros(nbytes) for uid, nbytes in ((3, 480), (5, 240), (6, 12))}
        pointers[1] = handle.to_device(np.linspace(-2, 2, 120, dtype=np.float32))
        plans.execute(plan, plans.pack(pointers, plans.space(plan)))
        results.append([pointers[uid].to_host(np.uint8, pointers[uid].nbytes).tolist() for uid in (3, 5, 6)])
    assert results[0] == results[1] and any(results[0][1])


STEPS = {
    "1_operation_graph_grouped_convolution": [*range(2, 11), *range(16, 37)],
    "2_engine_configuration": [1, *range(3, 11)],
    "3_execution_plan": range(1, 13),
}


@shows(*(f"usecase_9.3.{name}/c{n:02}" for name, numbers in STEPS.items() for n in numbers), f"{EXECUTE}/c01", f"{EXECUTE}/c02",
       "cudnnBackendKnobType_t/c02")  # fmt: skip
def test_the_use_case_of_the_document(cudnn: Any, handle: Any, plans: Any) -> None:
    """The case follows 9.3 step by step: a grouped convolution in three dimensions, engine 0, a plan, a pack, its
    execution."""
    n, g, c, d, h, w, k, t, r, s = 2, 2, 3, 4, 5, 4, 2, 2, 3, 2
    o, p, q = d - t + 1, h - r + 1, w - s + 1
    tensors = {}
    for uid, dims in (("X", (n, g, c, d, h, w)), ("W", (g, k, c, t, r, s)), ("Y", (n, g, k, o, p, q))):
        strides = tuple(int(np.prod(dims[i + 1 :])) for i in range(6))
        tensors[uid] = plans.finalized(Kind.CUDNN_BACKEND_TENSOR_DESCRIPTOR, {
            "DATA_TYPE": (Type.CUDNN_TYPE_DATA_TYPE, (FLOAT,)), "DIMENSIONS": (INT64, dims), "STRIDES": (INT64, strides),
            "UNIQUE_ID": (INT64, (ord(uid),)), "BYTE_ALIGNMENT": (INT64, (4,)),
        })  # fmt: skip
    c_desc = plans.finalized(Kind.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, {
        "SPATIAL_DIMS": (INT64, (3,)), "COMP_TYPE": (Type.CUDNN_TYPE_DATA_TYPE, (FLOAT,)),
        "CONV_MODE": (Type.CUDNN_TYPE_CONVOLUTION_MODE, (0,)), "PRE_PADDINGS": (INT64, (0,) * 3), "POST_PADDINGS": (INT64, (0,) * 3),
        "DILATIONS": (INT64, (1,) * 3), "FILTER_STRIDES": (INT64, (1,) * 3),
    })  # fmt: skip
    fprop = plans.finalized(Kind.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, {
        **{uid: (DESCRIPTOR, (tensors[uid],)) for uid in "XWY"}, "CONV_DESC": (DESCRIPTOR, (c_desc,)),
        "ALPHA": (Type.CUDNN_TYPE_FLOAT, (1.0,)), "BETA": (Type.CUDNN_TYPE_FLOAT, (0.5,)),
    })  # fmt: skip
    op_graph = plans.finalized(GRAPH, {"OPS": (DESCRIPTOR, (fprop,)), "HANDLE": (HANDLE, (handle,))})

    engine = plans.engine(op_graph, 0)
    knobs = cudnn.cudnnBackendGetAttribute(engine, Name.CUDNN_ATTR_ENGINE_KNOB_INFO, DESCRIPTOR, 8)
    assert knobs.elementCount == len(knobs.arrayOfElements)
    engcfg = plans.config(engine)
    for made, name, type_, value in (
        (c_desc, Name.CUDNN_ATTR_CONVOLUTION_COMP_TYPE, Type.CUDNN_TYPE_DATA_TYPE, FLOAT),
        (engine, Name.CUDNN_ATTR_ENGINE_GLOBAL_INDEX, INT64, 0),
    ):
        assert tuple(cudnn.cudnnBackendGetAttribute(made, name, type_, 1).arrayOfElements) == (value,)

    plan = plans.finalized(PLAN, plans.of_config(engcfg))
    size = plans.size(plan)
    random = np.random.default_rng(3)
    x, w_, y = (
        random.standard_normal(dims).astype(np.float32)
        for dims in ((n, g, c, d, h, w), (g, k, c, t, r, s), (n, g, k, o, p, q))
    )
    buffers = [handle.to_device(values) for values in (x, w_, y)]
    varpack = plans.finalized(PACK, {
        "DATA_POINTERS": (POINTER, buffers), "UNIQUE_IDS": (INT64, [ord(uid) for uid in "XWY"]),
        "WORKSPACE": (POINTER, (handle.allocate(max(1, size)),)),
    })  # fmt: skip
    plans.execute(plan, varpack)

    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (t, r, s), (3, 4, 5))
    wanted = np.einsum("ngcopqtrs,gkctrs->ngkopq", windows, w_[..., ::-1, ::-1, ::-1]) + 0.5 * y
    assert np.allclose(buffers[2].to_host(np.float32, y.shape), wanted, rtol=1e-4, atol=1e-5)


@shows(f"{EXECUTE}/c01", *of("EXECUTION_PLAN", "c01"))
def test_plans_that_several_threads_make(cudnn: Any, handle: Any) -> None:
    """Several threads may each describe a graph, make its plan and execute it repeatedly."""

    def work(factor: Any) -> Any:
        plans = Plans(cudnn, handle)
        x, y = handle.to_device(np.linspace(-1, 1, 24, dtype=np.float32)), handle.zeros(96)
        nodes = (pointwise(Mode.CUDNN_POINTWISE_IDENTITY_FWD, X, BETWEEN, alpha1=factor), pointwise(RELU, BETWEEN, Y))
        plan = plans.plan(*nodes)
        pack = plans.pack({X.uid: x, Y.uid: y}, plans.space(plan))
        for _ in range(3):
            plans.execute(plan, pack)
        plans.destroy()
        return np.maximum(factor * x.to_host(np.float32, 24), 0), y.to_host(np.float32, 24)

    with ThreadPoolExecutor(4) as pool:
        for wanted, found in pool.map(work, [0.5, 1.0, 1.5, 2.0]):
            np.testing.assert_array_equal(found, wanted)
