"""Holds cases of the descriptors of an execution (5.2.3, 9.2.2 to 9.2.5, 9.2.15, 9.3).

They are graphs, engines, heuristics, plans and variant packs.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext, suppress
from dataclasses import replace

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnBackendAttributeName_t as Name
from dualdnn.api.enumerations import cudnnBackendAttributeType_t as Type
from dualdnn.api.enumerations import cudnnBackendDescriptorType_t as Kind
from dualdnn.api.enumerations import (
    cudnnBackendHeurMode_t,
    cudnnBackendKnobType_t,
    cudnnBackendLayoutType_t,
    cudnnBackendNumericalNote_t,
)
from dualdnn.api.operations.graph import ConvolutionBackwardDataNode, ConvolutionForwardNode, KnobChoice
from dualdnn.api.operations.specs import BFLOAT16, FLOAT, INT8, INT32
from dualdnn.api.status import BAD_PARAM, NOT_INITIALIZED, NOT_SUPPORTED, CudnnError
from dualdnn.conformance.calls.graph import Builder, attributes, configured, kind_of, planned
from dualdnn.conformance.marks import shows

from .graph import Mode, convolution, diamond, pointwise, tensor
from .graph_descriptors import builder, cannot_set, of

__all__ = ["builder", "cannot_set"]  # These names are the fixtures.
INT64, DESCRIPTOR, HANDLE = Type.CUDNN_TYPE_INT64, Type.CUDNN_TYPE_BACKEND_DESCRIPTOR, Type.CUDNN_TYPE_HANDLE
POINTER = Type.CUDNN_TYPE_VOID_PTR
GRAPH, ENGINE = Kind.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, Kind.CUDNN_BACKEND_ENGINE_DESCRIPTOR
CONFIG, HEURISTICS = Kind.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, Kind.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR
PLAN, PACK = Kind.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, Kind.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR
INSTANT = (Type.CUDNN_TYPE_HEUR_MODE, (cudnnBackendHeurMode_t.CUDNN_HEUR_MODE_INSTANT,))
EXECUTE, INVALID = "cudnnBackendExecute", "cudnnBackendFinalize/c06"
X, Y = tensor(1, (2, 3, 4)), tensor(2, (2, 3, 4))
TANH = pointwise(Mode.CUDNN_POINTWISE_TANH_FWD, X, Y)
BETWEEN = tensor(9, (2, 3, 4), virtual=True)
TWO = (pointwise(Mode.CUDNN_POINTWISE_TANH_FWD, X, BETWEEN), pointwise(Mode.CUDNN_POINTWISE_SQRT, BETWEEN, Y))


def graph_of(builder, handle, *nodes):
    """Return a finalised graph of these nodes, in this order."""
    ops = [builder(node) for node in nodes]
    return builder.finalized(GRAPH, {"HANDLE": (HANDLE, (handle,)), "OPS": (DESCRIPTOR, ops)})


def engine_of(builder, graph, index=None):
    """Return the engine of this number, or the first that executes the graph: among ours, number 0."""
    given = {"OPERATION_GRAPH": (DESCRIPTOR, (graph,))}
    if index is not None:
        return builder.finalized(ENGINE, {**given, "GLOBAL_INDEX": (INT64, (index,))})
    (count,) = builder.get(graph, GRAPH, "ENGINE_GLOBAL_COUNT", INT64)
    for number in range(count):
        with suppress(CudnnError) if number < count - 1 else nullcontext():
            made = builder.finalized(ENGINE, {**given, "GLOBAL_INDEX": (INT64, (number,))})
            config_of(builder, made)  # NVIDIA's library may refuse the graph only here.
            return made


def config_of(builder, engine, *knobs):
    made = {"KNOB_CHOICES": (DESCRIPTOR, [builder(knob) for knob in knobs])} if knobs else {}
    return builder.finalized(CONFIG, {"ENGINE": (DESCRIPTOR, (engine,)), **made})


def plan_of(builder, handle, *nodes):
    """Return a plan by the first engine that executes the graph, as `engine_of` finds it."""
    graph = graph_of(builder, handle, *nodes)
    (count,) = builder.get(graph, GRAPH, "ENGINE_GLOBAL_COUNT", INT64)
    for number in range(count):
        with suppress(CudnnError) if number < count - 1 else nullcontext():
            return planned(builder, handle, configured(builder, graph, number))


def pack_of(builder, pointers, workspace=None):
    given = {"UNIQUE_IDS": (INT64, list(pointers)), "DATA_POINTERS": (POINTER, list(pointers.values()))}
    return builder.finalized(PACK, {**given, "WORKSPACE": (POINTER, (workspace,))})


def space_of(builder, handle, plan):
    """Return a workspace as large as the plan asks for."""
    return handle.allocate(max(1, builder.get(plan, PLAN, "WORKSPACE_SIZE", INT64)[0]))


def refuses_graph(cudnn, builder, refuses, handle, nodes, status, clause):
    ops = [builder(node) for node in nodes]
    made = builder.filled(GRAPH, {"HANDLE": (HANDLE, (handle,)), "OPS": (DESCRIPTOR, ops)})
    refuses(status, of("OPERATIONGRAPH", clause)[0], cudnn.cudnnBackendFinalize, made)


@shows(*of("OPERATIONGRAPH", "c02", "c03", "c05", "c07", "c08", "c17"), "cudnnBackendSetAttribute/c04")
def test_attributes_of_graphs(cudnn, handle, builder, cannot_set):
    made = graph_of(builder, handle, *TWO)
    assert builder.get(made, GRAPH, "HANDLE", HANDLE) == (handle,)
    ops = cudnn.cudnnBackendGetAttribute(made, Name.CUDNN_ATTR_OPERATIONGRAPH_OPS, DESCRIPTOR, 2)
    assert ops.elementCount == 2
    outputs = [builder.get(op, kind_of(TANH), "YDESC", DESCRIPTOR)[0] for op in ops.arrayOfElements]
    assert [builder.get(y, kind_of(X), "UNIQUE_ID", INT64) for y in outputs] == [(BETWEEN.uid,), (Y.uid,)]
    assert builder.get(made, GRAPH, "ENGINE_GLOBAL_COUNT", INT64)[0] > 0
    cannot_set(GRAPH, "ENGINE_GLOBAL_COUNT", INT64, 1)


@shows(*of("OPERATIONGRAPH", "c09", "c10", "c11"))
def test_supported_count_is_no_attribute(cudnn, handle, builder, refuses, cannot_set):
    """The count of engines has no enumerator, so the next number is not an attribute."""
    asked = (graph_of(builder, handle, TANH), Name.CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT + 1, INT64, 1)
    refuses(BAD_PARAM, "cudnnBackendGetAttribute/c06", cudnn.cudnnBackendGetAttribute, *asked)
    cannot_set(GRAPH, asked[1], INT64, 1)


@shows(*of("OPERATIONGRAPH", "c04", "c06"))
def test_graphs_need_a_handle_and_operations(cudnn, handle, builder, refuses, cannot_set):
    given = {"HANDLE": (HANDLE, (handle,)), "OPS": (DESCRIPTOR, (builder(TANH),))}
    for ending, clause in (("HANDLE", "c04"), ("OPS", "c06")):
        made = builder.filled(GRAPH, {k: v for k, v in given.items() if k != ending})
        refuses(BAD_PARAM, of("OPERATIONGRAPH", clause)[0], cudnn.cudnnBackendFinalize, made)
    cannot_set(GRAPH, "OPS", DESCRIPTOR, clause="cudnnBackendSetAttribute/c06")
    cannot_set(GRAPH, "OPS", DESCRIPTOR, builder(X), clause="cudnnBackendSetAttribute/c07")
    cannot_set(GRAPH, "HANDLE", HANDLE, None, clause="cudnnBackendSetAttribute/c07")


@shows(*of("OPERATIONGRAPH", "c12"))
def test_operations_that_are_not_finalised(cudnn, handle, builder, refuses):
    raw = builder.filled(kind_of(TANH), attributes(builder, TANH))
    made = builder.filled(GRAPH, {"HANDLE": (HANDLE, (handle,)), "OPS": (DESCRIPTOR, (raw,))})
    refuses(BAD_PARAM, of("OPERATIONGRAPH", "c12")[0], cudnn.cudnnBackendFinalize, made)
    cudnn.cudnnBackendFinalize(raw)
    cudnn.cudnnBackendFinalize(made)


@shows(*of("OPERATIONGRAPH", "c13"))
def test_graphs_of_a_destroyed_handle(subject, cudnn, builder, refuses):
    if not subject.computes:
        pytest.skip("no handle can be had")
    handle = subject.new_handle()
    made = builder.filled(GRAPH, {"HANDLE": (HANDLE, (handle,)), "OPS": (DESCRIPTOR, (builder(TANH),))})
    cudnn.cudnnDestroy(handle)
    refuses(BAD_PARAM, of("OPERATIONGRAPH", "c13")[0], cudnn.cudnnBackendFinalize, made)


@pytest.mark.ours
@pytest.mark.parametrize("kind, clause", [
    (GRAPH, of("OPERATIONGRAPH", "c14")[0]), (ENGINE, of("ENGINE", "c18")[0]), (CONFIG, "cudnnBackendFinalize/c06"),
    (HEURISTICS, "cudnnBackendFinalize/c06"), (PLAN, "cudnnBackendFinalize/c06"),
], ids=lambda value: getattr(value, "name", ""))  # fmt: skip
@shows(*of("OPERATIONGRAPH", "c14"), "cudnnBackendFinalize/c06")
def test_parts_that_were_destroyed_since(cudnn, handle, builder, refuses, kind, clause):
    """Finalising a whole fails where a part was destroyed after it was set to an attribute."""
    graph = graph_of(builder, handle, TANH)
    engine = engine_of(builder, graph, 0)
    config = config_of(builder, engine)
    part, given = {
        GRAPH: ((op := builder(TANH)), {"HANDLE": (HANDLE, (handle,)), "OPS": (DESCRIPTOR, (op,))}),
        ENGINE: (graph, {"OPERATION_GRAPH": (DESCRIPTOR, (graph,)), "GLOBAL_INDEX": (INT64, (0,))}),
        CONFIG: (engine, {"ENGINE": (DESCRIPTOR, (engine,))}),
        HEURISTICS: (graph, {"OPERATION_GRAPH": (DESCRIPTOR, (graph,)), "MODE": INSTANT}),
        PLAN: (config, {"HANDLE": (HANDLE, (handle,)), "ENGINE_CONFIG": (DESCRIPTOR, (config,))}),
    }[kind]
    whole = builder.filled(kind, given)
    builder.made.remove(part)
    cudnn.cudnnBackendDestroyDescriptor(part)
    refuses(BAD_PARAM, clause, cudnn.cudnnBackendFinalize, whole)


A, B = tensor(10, (2, 3, 4), virtual=True), tensor(11, (2, 3, 4), virtual=True)
RELU = Mode.CUDNN_POINTWISE_RELU_FWD
NO_GRAPHS = {
    "one id for two tensors": (pointwise(RELU, X, Y), pointwise(RELU, X, replace(Y, data_type=FLOAT, dims=(2, 3, 4), strides=(24, 4, 1)))),
    "virtual or not": (pointwise(RELU, X, replace(X, uid=9)), pointwise(RELU, BETWEEN, Y)),
    "two writers": (pointwise(RELU, X, Y), pointwise(Mode.CUDNN_POINTWISE_TANH_FWD, X, Y)),
    "the same operation twice": (TANH, TANH),
    "in place": (pointwise(RELU, X, X),),
    "a circle of two": (pointwise(RELU, A, B), pointwise(RELU, B, A)),
    "a circle behind an input": (
        pointwise(Mode.CUDNN_POINTWISE_ADD, X, A, B), pointwise(RELU, A, B), pointwise(RELU, B, Y),
    ),
    "never written": (pointwise(RELU, A, Y),),
    "never read": (pointwise(RELU, X, A),),
    "a virtual prior": (
        ConvolutionForwardNode(convolution((0,), (0,)), 1.0, 0.5, X, tensor(3, (3, 3, 1)), A), pointwise(RELU, A, Y),
    ),
}  # fmt: skip


@shows(*of("OPERATIONGRAPH", "c14"))
@pytest.mark.parametrize("which", NO_GRAPHS)
def test_operations_that_make_no_graph(cudnn, handle, builder, refuses, which):
    refuses_graph(cudnn, builder, refuses, handle, NO_GRAPHS[which], BAD_PARAM, "c14")


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
def test_what_no_engine_executes(cudnn, handle, builder, refuses, nodes, clause):
    refuses_graph(cudnn, builder, refuses, handle, nodes, NOT_SUPPORTED, clause)


MAX_ELEMENTS = 2**31  # elements; a tensor of a graph spans fewer


def large(uid, dims, strides):
    return replace(tensor(uid, dims), strides=strides)


@pytest.mark.ours
@shows(*of("OPERATIONGRAPH", "c16"))
@pytest.mark.parametrize("written", [False, True], ids=["read", "written"])
@pytest.mark.parametrize("dims, strides", [
    ((1, 1, MAX_ELEMENTS), (MAX_ELEMENTS, MAX_ELEMENTS, 1)), ((2, 1, 1), (MAX_ELEMENTS - 1, 1, 1)), ((2, 3, 2), (MAX_ELEMENTS - 2**21 - 102, 2**20, 101)),
], ids=["many", "far", "gaps"])  # fmt: skip
def test_the_most_elements_that_a_tensor_spans(cudnn, handle, builder, refuses, dims, strides, written):
    """A tensor that spans 2**31 elements is refused, and one element fewer is executed."""
    fewer = (dims[0], dims[1], dims[2] - 1) if max(dims) == MAX_ELEMENTS else dims
    for extents, first in ((fewer, strides[0] - 1), (dims, strides[0])):
        spanning, packed = large(1, extents, (first, *strides[1:])), tensor(2, extents)
        nodes = (pointwise(RELU, packed, spanning) if written else pointwise(RELU, spanning, packed),)
        if (extents, first) != (dims, strides[0]):
            assert graph_of(builder, handle, *nodes) is not None
        else:
            refuses_graph(cudnn, builder, refuses, handle, nodes, NOT_SUPPORTED, "c16")


@pytest.mark.ours
@shows(*of("OPERATIONGRAPH", "c16"))
@pytest.mark.parametrize("between, clause", [(MAX_ELEMENTS // 4 - 1, "c16"), (MAX_ELEMENTS // 4 - 2, "c15")])
def test_vectors_count_as_the_elements_that_they_hold(cudnn, handle, builder, refuses, between, clause):
    """A tensor of vectors is refused if its elements exceed the limit, although its vectors do not."""
    spanning = replace(
        large(1, (1, 1, 2), (4, 1, between)), data_type=INT8, vector_count=4, vectorized_dimension=1, alignment=4
    )
    nodes = (pointwise(RELU, spanning, tensor(2, (1, 4, 2))),)
    refuses_graph(cudnn, builder, refuses, handle, nodes, NOT_SUPPORTED, clause)


@pytest.mark.ours
@shows(*of("OPERATIONGRAPH", "c15"))
def test_the_log_says_why(cudnn, handle, builder):
    """The warning channel names every engine and its reason."""
    messages = []
    node = ConvolutionForwardNode(
        convolution((0,), (0,)), 1.0, 0.0, tensor(1, (2, 3, 4), INT8), tensor(2, (3, 3, 1), INT8), tensor(3, (2, 3, 4))
    )
    ops = [builder(node)]
    made = builder.filled(GRAPH, {"HANDLE": (HANDLE, (handle,)), "OPS": (DESCRIPTOR, ops)})
    cudnn.cudnnSetCallback(4, None, lambda *message: messages.append(message))
    try:
        with pytest.raises(cudnn.CudnnError, match="engine 0, node by node: tensor 1 belongs to a convolution"):
            cudnn.cudnnBackendFinalize(made)
    finally:
        cudnn.cudnnSetCallback(0, None, None)
    assert "engine 0, node by node: tensor 1 belongs to a convolution and is CUDNN_DATA_INT8" in messages[-1][3]


@pytest.mark.ours
@shows(*of("OPERATIONGRAPH", "c01"))
def test_the_log_draws_the_graph(cudnn, handle, builder):
    """The info channel shows a finalised graph as a flowchart with each tensor once, in order of execution."""
    messages = []
    ops = [builder(node) for node in TWO[::-1]]
    made = builder.filled(GRAPH, {"HANDLE": (HANDLE, (handle,)), "OPS": (DESCRIPTOR, ops)})
    cudnn.cudnnSetCallback(8, None, lambda *message: messages.append(message[3]))
    try:
        cudnn.cudnnBackendFinalize(made)
    finally:
        cudnn.cudnnSetCallback(0, None, None)
    (drawn,) = (message for message in messages if "flowchart" in message)
    arrows = [line.strip() for line in drawn.split("\0") if "-->" in line]
    assert arrows == ["t1 --> op0", "op0 --> t9", "t9 --> op1", "op1 --> t2"]
    for text in ('op0["tanh_fwd"]', 'op1["sqrt"]', 't1(["1: 2 x 3 x 4"])', 't9{{"9: 2 x 3 x 4"}}'):
        assert drawn.count(text) == 1


@shows("CUDNN_BACKEND_ENGINE_DESCRIPTOR/c01-c04 c06 c08-c14", "CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR/c01 c02 c04 c06", "cudnnBackendLayoutType_t/c01",
       "cudnnBackendNumericalNote_t/c01", "cudnnBackendKnobType_t/c02")  # fmt: skip
def test_what_engines_say(cudnn, handle, builder, cannot_set):
    """Every engine that executes the graph tells its knobs, its notes, and a preferred layout for each tensor with
    memory."""
    graph = graph_of(builder, handle, *TWO)
    (count,) = builder.get(graph, GRAPH, "ENGINE_GLOBAL_COUNT", INT64)
    able = 0
    for index in range(count):
        made = builder.filled(ENGINE, {"OPERATION_GRAPH": (DESCRIPTOR, (graph,)), "GLOBAL_INDEX": (INT64, (index,))})
        try:
            cudnn.cudnnBackendFinalize(made)
        except Exception as error:
            assert error.status == NOT_SUPPORTED
            continue
        able += 1
        assert builder.get(made, ENGINE, "GLOBAL_INDEX", INT64) == (index,)
        for note in builder.get(made, ENGINE, "NUMERICAL_NOTE", Type.CUDNN_TYPE_NUMERICAL_NOTE, 8):
            assert note in cudnnBackendNumericalNote_t
        infos = cudnn.cudnnBackendGetAttribute(made, Name.CUDNN_ATTR_ENGINE_LAYOUT_INFO, DESCRIPTOR, 8)
        layout = Kind.CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR
        uids = [builder.get(info, layout, "TENSOR_UID", INT64)[0] for info in infos.arrayOfElements]
        assert infos.elementCount == len(uids) and set(uids) == {X.uid, Y.uid}
        for info in infos.arrayOfElements:
            layouts = builder.get(info, layout, "TYPES", Type.CUDNN_TYPE_LAYOUT_TYPE, 8)
            assert layouts and all(one in cudnnBackendLayoutType_t for one in layouts)
    assert able
    for name in ("KNOB_INFO", "LAYOUT_INFO"):
        cannot_set(ENGINE, name, DESCRIPTOR, graph)
    cannot_set(ENGINE, "NUMERICAL_NOTE", Type.CUDNN_TYPE_NUMERICAL_NOTE, 0)


@shows(*of("ENGINE", "c03", "c15", "c16"))
def test_unknown_engines(cudnn, handle, builder, refuses):
    graph = graph_of(builder, handle, TANH)
    (count,) = builder.get(graph, GRAPH, "ENGINE_GLOBAL_COUNT", INT64)
    for index in (-1, count, count + 7, 2**40, -(2**63)):
        made = builder.filled(ENGINE, {"OPERATION_GRAPH": (DESCRIPTOR, (graph,)), "GLOBAL_INDEX": (INT64, (index,))})
        refuses(NOT_SUPPORTED, of("ENGINE", "c15")[0], cudnn.cudnnBackendFinalize, made)


@shows(*of("ENGINE", "c05", "c07", "c17", "c18"), *of("ENGINECFG", "c05"), *of("ENGINEHEUR", "c04", "c06"),
       *of("EXECUTION_PLAN", "c07", "c09"), INVALID)  # fmt: skip
def test_parts_that_are_missing_or_unfinished(cudnn, handle, builder, refuses):
    graph = graph_of(builder, handle, TANH)
    engine = engine_of(builder, graph)
    raw = {kind: builder.create(kind) for kind in (GRAPH, ENGINE, CONFIG)}
    for kind, given, clauses, unready in (
        (ENGINE, {"OPERATION_GRAPH": (DESCRIPTOR, (graph,)), "GLOBAL_INDEX": (INT64, builder.get(engine, ENGINE, "GLOBAL_INDEX", INT64))}, of("ENGINE", "c05", "c07"), of("ENGINE", "c17")[0]),
        (CONFIG, {"ENGINE": (DESCRIPTOR, (engine,))}, of("ENGINECFG", "c05"), INVALID),
        (HEURISTICS, {"OPERATION_GRAPH": (DESCRIPTOR, (graph,)), "MODE": INSTANT}, of("ENGINEHEUR", "c04", "c06"), INVALID),
        (PLAN, {"ENGINE_CONFIG": (DESCRIPTOR, (config_of(builder, engine),)), "HANDLE": (HANDLE, (handle,))}, of("EXECUTION_PLAN", "c09", "c07"), INVALID)
    ):  # fmt: skip
        for ending, clause in zip(given, clauses, strict=True):
            made = builder.filled(kind, {k: v for k, v in given.items() if k != ending})
            refuses(BAD_PARAM, clause, cudnn.cudnnBackendFinalize, made)
        first, (_, (part,)) = next(iter(given.items()))
        made = builder.filled(kind, {**given, first: (DESCRIPTOR, (raw[part.kind],))})
        refuses(BAD_PARAM, unready, cudnn.cudnnBackendFinalize, made)


@shows(*of("ENGINECFG", "c01", "c02", "c03", "c04", "c06", "c08", "c09", "c10"))
def test_configurations(cudnn, handle, builder, cannot_set):
    """A configuration without knobs is valid, whether the list is empty or not set. Engines have no intermediates."""
    engine = engine_of(builder, graph_of(builder, handle, TANH))
    number = builder.get(engine, ENGINE, "GLOBAL_INDEX", INT64)
    for given in ({}, {"KNOB_CHOICES": (DESCRIPTOR, ())}):
        made = builder.finalized(CONFIG, {"ENGINE": (DESCRIPTOR, (engine,)), **given})
        assert builder.get(builder.get(made, CONFIG, "ENGINE", DESCRIPTOR)[0], ENGINE, "GLOBAL_INDEX", INT64) == number
        for ending in ("KNOB_CHOICES", "INTERMEDIATE_INFO"):
            found = cudnn.cudnnBackendGetAttribute(made, Name[f"CUDNN_ATTR_ENGINECFG_{ending}"], DESCRIPTOR, 4)
            assert found.elementCount == 0 and not found.arrayOfElements
    cannot_set(CONFIG, "INTERMEDIATE_INFO", DESCRIPTOR, engine)


@shows(*of("ENGINECFG", "c11"), *of("KNOB_CHOICE", "c01"))
def test_knobs_that_the_engine_does_not_have(cudnn, handle, builder, refuses):
    engine = engine_of(builder, graph_of(builder, handle, TANH))
    for knob in (cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_SPLIT_K, cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_SPECFILT):
        choice = builder(KnobChoice(knob, 0))
        made = builder.filled(CONFIG, {"ENGINE": (DESCRIPTOR, (engine,)), "KNOB_CHOICES": (DESCRIPTOR, (choice,))})
        refuses(NOT_SUPPORTED, of("ENGINECFG", "c11")[0], cudnn.cudnnBackendFinalize, made)


@shows(*of("ENGINEHEUR", "c01", "c02", "c03", "c05", "c07", "c08", "c09"), "cudnnBackendHeurMode_t/c01")
def test_heuristics(cudnn, handle, builder, cannot_set):
    """Each engine that executes the graph has one configuration, which makes a plan. A count may be requested first."""
    nodes = diamond()
    graph = graph_of(builder, handle, *nodes)
    made = builder.finalized(HEURISTICS, {"OPERATION_GRAPH": (DESCRIPTOR, (graph,)), "MODE": INSTANT})
    results = Name.CUDNN_ATTR_ENGINEHEUR_RESULTS
    count = cudnn.cudnnBackendGetAttribute(made, results, DESCRIPTOR, 0).elementCount
    found = cudnn.cudnnBackendGetAttribute(made, results, DESCRIPTOR, count)
    assert count and found.elementCount == count == len(found.arrayOfElements)
    engines = [builder.get(config, CONFIG, "ENGINE", DESCRIPTOR)[0] for config in found.arrayOfElements]
    indices = [builder.get(engine, ENGINE, "GLOBAL_INDEX", INT64)[0] for engine in engines]
    assert len(set(indices)) == count and 0 in indices
    for config in found.arrayOfElements:
        builder.finalized(PLAN, {"HANDLE": (HANDLE, (handle,)), "ENGINE_CONFIG": (DESCRIPTOR, (config,))})
    assert builder.get(made, HEURISTICS, "MODE", INSTANT[0]) == INSTANT[1]
    cannot_set(HEURISTICS, "RESULTS", DESCRIPTOR, found.arrayOfElements[0])
    cannot_set(HEURISTICS, "MODE", INSTANT[0], 1, clause="cudnnBackendSetAttribute/c07")


@shows(*of("EXECUTION_PLAN", "c01", "c05", "c06", "c08", "c12", "c13", "c14"))
def test_plans(handle, builder, cannot_set):
    made = plan_of(builder, handle, *TWO)
    (size,) = builder.get(made, PLAN, "WORKSPACE_SIZE", INT64)
    assert 0 <= size < 1 << 20
    assert builder.get(made, PLAN, "HANDLE", HANDLE) == (handle,)
    config = builder.get(made, PLAN, "ENGINE_CONFIG", DESCRIPTOR)[0]
    assert builder.get(config, CONFIG, "ENGINE", DESCRIPTOR)
    cannot_set(PLAN, "WORKSPACE_SIZE", INT64, 0)


@shows("CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR/c02-c04 c10 c11", "cudnnBackendSetAttribute/c08", "cudnnBackendFinalize/c07")  # fmt: skip
def test_intermediates_of_plans(cudnn, handle, builder, refuses, cannot_set):
    """Engines have no intermediates: a plan may set an empty list of them, but no other."""
    clause = of("EXECUTION_PLAN", "c04")[0]
    cannot_set(PLAN, "COMPUTED_INTERMEDIATE_UIDS", INT64, 1, status=NOT_SUPPORTED, clause=clause)
    config = config_of(builder, engine_of(builder, graph_of(builder, handle, TANH)))
    given = {"HANDLE": (HANDLE, (handle,)), "ENGINE_CONFIG": (DESCRIPTOR, (config,))}
    some = builder.filled(PLAN, {**given, "RUN_ONLY_INTERMEDIATE_UIDS": (INT64, (X.uid,))})
    refuses(NOT_SUPPORTED, "cudnnBackendFinalize/c07", cudnn.cudnnBackendFinalize, some)
    builder.finalized(PLAN, {**given, "RUN_ONLY_INTERMEDIATE_UIDS": (INT64, ())})


@pytest.fixture
def ready(cudnn, handle, builder):
    """Return a plan of two operations, buffers of its tensors, a workspace, and the results."""
    plan = plan_of(builder, handle, *TWO)
    (size,) = builder.get(plan, PLAN, "WORKSPACE_SIZE", INT64)
    x = handle.to_device(np.linspace(0.1, 1, 24, dtype=np.float32))
    y = handle.to_device(np.full(24, 7, np.float32))
    return plan, {X.uid: x, Y.uid: y}, handle.allocate(max(1, size)), size


def correct(x, y):
    wanted = np.sqrt(np.tanh(x.to_host(np.float32, 24)))
    return np.allclose(y.to_host(np.float32, 24), wanted, rtol=1e-5)


@shows(f"{EXECUTE}/c01", f"{EXECUTE}/c02", f"{EXECUTE}/c06")
def test_executed_again(cudnn, handle, builder, ready):
    """One plan serves two packs in any order, also after all other descriptors were destroyed and made again."""
    plan, pointers, workspace, _ = ready
    other = handle.zeros(96)
    first, second = (
        pack_of(builder, pointers, workspace),
        pack_of(builder, {Y.uid: other, X.uid: pointers[X.uid]}, workspace),
    )
    for pack in (second, first, second):
        cudnn.cudnnBackendExecute(handle, plan, pack)
    assert correct(pointers[X.uid], pointers[Y.uid]) and correct(pointers[X.uid], other)
    for part in [part for part in builder.made if part not in (plan, first)]:
        cudnn.cudnnBackendDestroyDescriptor(part)
        builder.made.remove(part)
    cudnn.cudnnBackendExecute(handle, plan, first)
    assert correct(pointers[X.uid], pointers[Y.uid])


@shows(f"{EXECUTE}/c03", f"{EXECUTE}/c07")
def test_descriptors_that_cannot_be_executed(subject, cudnn, handle, builder, ready, refuses):
    """NULL, descriptors of another type, unfinished or destroyed ones, and those of another handle are refused;
    nothing is written."""
    plan, pointers, workspace, _ = ready
    pack = pack_of(builder, pointers, workspace)
    wrong = [(builder.create(PLAN), pack, "c03"), (plan, builder.create(PACK), "c03")]
    if subject.survives_stray_pointers:
        wrong += [(None, pack, "c07"), (plan, None, "c07"), (pack, plan, "c07"), (plan, plan, "c07")]
        dead_plan, dead_pack = plan_of(builder, handle, *TWO), pack_of(builder, pointers, workspace)
        for dead in (dead_plan, dead_pack):
            cudnn.cudnnBackendDestroyDescriptor(dead)
        wrong += [(dead_plan, pack, "c07"), (plan, dead_pack, "c07")]
    for first, second, clause in wrong:
        call = (cudnn.cudnnBackendExecute, handle, first, second)
        refuses(BAD_PARAM, f"{EXECUTE}/{clause}", *call, unchanged=(pointers[Y.uid],))
    other = subject.new_handle()
    refuses(BAD_PARAM, f"{EXECUTE}/c07", cudnn.cudnnBackendExecute, other, plan, pack, unchanged=(pointers[Y.uid],))
    cudnn.cudnnDestroy(other)
    if subject.survives_stray_pointers:
        refuses(NOT_INITIALIZED, "cudnnStatus_t/c03", cudnn.cudnnBackendExecute, other, plan, pack)


@shows(f"{EXECUTE}/c04", f"{EXECUTE}/c05", f"{EXECUTE}/c07")
def test_memory_that_cannot_be_used(subject, cudnn, handle, builder, ready, refuses):
    """Unsuitable memory is refused, and nothing is written.

    Tensors are missing or superfluous, memory is NULL, too small, shared or at odd addresses, or workspaces are wrong.
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
        refuses(
            BAD_PARAM, clause, cudnn.cudnnBackendExecute, handle, plan, pack_of(builder, given, space), unchanged=(x, y)
        )


@shows(f"{EXECUTE}/c01")
def test_memory_that_is_shared_later(subject, cudnn, handle, builder, refuses):
    """A plan of many tensors refuses a pack whose memory overlaps, and accepts the first pack again."""
    if not subject.knows_sizes:
        pytest.skip("it is not known how far memory reaches")
    plan = plan_of(builder, handle, *diamond())
    size = builder.get(plan, PLAN, "WORKSPACE_SIZE", INT64)[0]
    pointers = {uid: handle.zeros(nbytes) for uid, nbytes in ((3, 480), (5, 240), (6, 12))}
    pointers[1] = handle.to_device(np.linspace(-2, 2, 120, dtype=np.float32))
    workspace = handle.allocate(max(1, size))
    good = pack_of(builder, pointers, workspace)
    cudnn.cudnnBackendExecute(handle, plan, good)
    kept = pointers[5].to_host(np.uint8, 240)
    for shared in (
        {5: pointers[1].slice(240, 240)},
        {6: pointers[3].slice(0, 12)},
        {5: workspace} if size >= 240 else {3: pointers[1]},
    ):
        bad = pack_of(builder, {**pointers, **shared}, workspace)
        for _ in range(2):
            call, memory = (cudnn.cudnnBackendExecute, handle, plan, bad), tuple(pointers.values())
            refuses(BAD_PARAM, "cudnnStatus_t/c05", *call, unchanged=memory)
    cudnn.cudnnBackendExecute(handle, plan, good)
    assert kept.any() and (pointers[5].to_host(np.uint8, 240) == kept).all()


@shows(f"{EXECUTE}/c07")
def test_memory_that_was_freed(subject, cudnn, handle, builder, ready, refuses):
    """Each execution of a pack checks its memory, and refuses freed memory."""
    if not subject.is_python:
        pytest.skip("C has no buffers that know that they were freed")
    plan, pointers, _, size = ready
    y = pointers[Y.uid]
    for which in (X.uid, Y.uid, "workspace")[: 3 if size else 2]:
        copies = {uid: handle.to_device(buffer.to_host(np.float32, 24)) for uid, buffer in pointers.items()}
        given = {**copies, "workspace": handle.allocate(max(1, size))}
        pack = pack_of(builder, copies, given["workspace"])
        cudnn.cudnnBackendExecute(handle, plan, pack)
        assert correct(copies[X.uid], copies[Y.uid])
        given[which].free()
        left = [buffer for name, buffer in given.items() if name not in (which, "workspace")]
        refuses(BAD_PARAM, f"{EXECUTE}/c07", cudnn.cudnnBackendExecute, handle, plan, pack, unchanged=(*left, y))


class Moving:
    """Stands for a program's memory, which may move, shrink or become read-only at any time."""

    def __init__(self, memory):
        self.memory, self.nbytes, self.read_only = memory, memory.nbytes, False

    @property
    def __cuda_array_interface__(self):
        return {
            "version": 3, "data": (self.memory.address, self.read_only), "typestr": "|u1", "shape": (self.nbytes,),
        }  # fmt: skip

    def __dlpack_device__(self):
        return self.memory.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.memory.slice(0, self.nbytes).__dlpack__(**options)


@shows(f"{EXECUTE}/c01", f"{EXECUTE}/c07")
@pytest.mark.ours
def test_memory_that_is_another_by_then(cudnn, handle, builder, ready, refuses):
    """Each execution of a pack reads the address and size of its memory again."""
    plan, pointers, workspace, _ = ready
    x, y, on_host = Moving(pointers[X.uid]), Moving(pointers[Y.uid]), handle.backend.name == "reference"
    pack = pack_of(builder, {X.uid: x, Y.uid: y}, workspace)
    elsewhere = [handle.to_device(np.linspace(start, 2, 24, dtype=np.float32)) for start in (0.5, 1)]
    for moved, memory in ((x, x.memory), (x, elsewhere[0]), (y, elsewhere[1]), (x, pointers[X.uid])):
        moved.memory = memory
        before = y.memory.to_host(np.float32, 24)
        for _ in range(2):
            cudnn.cudnnBackendExecute(handle, plan, pack)
        assert correct(x.memory, y.memory) and not np.array_equal(before, y.memory.to_host(np.float32, 24))
    changes = [("nbytes", 92, "cudnnStatus_t/c05"), ("memory", x.memory, "cudnnStatus_t/c05")]
    for name, value, clause in [*changes, *([] if on_host else [("read_only", True, f"{EXECUTE}/c07")])]:
        had = getattr(y, name)
        setattr(y, name, value)
        for _ in range(2):
            refuses(BAD_PARAM, clause, cudnn.cudnnBackendExecute, handle, plan, pack, unchanged=(x.memory, y.memory))
        setattr(y, name, had)
        cudnn.cudnnBackendExecute(handle, plan, pack)
    if not on_host:  # The host takes no addresses.
        named = pack_of(builder, {uid: memory.address for uid, memory in pointers.items()}, workspace)
        cudnn.cudnnBackendExecute(handle, plan, named)
        pointers[X.uid], y.memory = elsewhere
        cudnn.cudnnBackendExecute(handle, plan, pack)
        cudnn.cudnnBackendExecute(handle, plan, named)
        assert correct(x.memory, pointers[Y.uid]) and correct(x.memory, elsewhere[1])


@shows(*of("TENSOR", "c09"), f"{EXECUTE}/c07")
def test_alignment_that_a_tensor_asks_for(subject, cudnn, handle, builder, refuses):
    """A tensor may ask for 64 bytes, more than the alignment of an element."""
    x = replace(X, alignment=64)
    plan = plan_of(builder, handle, pointwise(RELU, x, Y))
    memory, y, space = (
        handle.to_device(np.arange(128, dtype=np.float32)),
        handle.zeros(96),
        space_of(builder, handle, plan),
    )
    start = -memory.address % 64
    cudnn.cudnnBackendExecute(handle, plan, pack_of(builder, {1: memory.slice(start, 96), 2: y}, space))
    assert (y.to_host(np.float32, 24) == memory.to_host(np.float32, 128)[start // 4 : start // 4 + 24]).all()
    if subject.survives_stray_pointers:
        odd = pack_of(builder, {1: memory.slice(start + 4, 96), 2: y}, space)
        refuses(BAD_PARAM, f"{EXECUTE}/c07", cudnn.cudnnBackendExecute, handle, plan, odd, unchanged=(y,))


@shows(*of("OPERATIONGRAPH", "c01", "c05"))
@pytest.mark.parametrize("order", [(4, 3, 2, 1, 0), (2, 4, 0, 3, 1)])
def test_operations_in_any_order(cudnn, handle, builder, order):
    nodes = diamond()
    results = []
    for chosen in (range(5), order):
        plan = plan_of(builder, handle, *(nodes[i] for i in chosen))
        pointers = {
            1: handle.to_device(np.linspace(-2, 2, 120, dtype=np.float32)),
            3: handle.zeros(480),
            5: handle.zeros(240),
            6: handle.zeros(12),
        }
        cudnn.cudnnBackendExecute(handle, plan, pack_of(builder, pointers, space_of(builder, handle, plan)))
        results.append([pointers[uid].to_host(np.uint8, pointers[uid].nbytes).tolist() for uid in (3, 5, 6)])
    assert results[0] == results[1] and any(results[0][1])


STEPS = {
    "1_operation_graph_grouped_convolution": [*range(2, 11), *range(16, 37)],
    "2_engine_configuration": [1, *range(3, 11)],
    "3_execution_plan": range(1, 13),
}


@shows(*(f"usecase_9.3.{name}/c{n:02}" for name, numbers in STEPS.items() for n in numbers), f"{EXECUTE}/c01", f"{EXECUTE}/c02",
       "cudnnBackendKnobType_t/c02")  # fmt: skip
def test_the_use_case_of_the_document(cudnn, handle, builder):
    """The case follows 9.3 step by step: a grouped convolution in three dimensions, engine 0, a plan, a pack, its
    execution."""
    n, g, c, d, h, w, k, t, r, s = 2, 2, 3, 4, 5, 4, 2, 2, 3, 2
    o, p, q = d - t + 1, h - r + 1, w - s + 1
    tensors = {}
    for uid, dims in (("X", (n, g, c, d, h, w)), ("W", (g, k, c, t, r, s)), ("Y", (n, g, k, o, p, q))):
        strides = tuple(int(np.prod(dims[i + 1 :])) for i in range(6))
        tensors[uid] = builder.finalized(Kind.CUDNN_BACKEND_TENSOR_DESCRIPTOR, {
            "DATA_TYPE": (Type.CUDNN_TYPE_DATA_TYPE, (FLOAT,)), "DIMENSIONS": (INT64, dims), "STRIDES": (INT64, strides),
            "UNIQUE_ID": (INT64, (ord(uid),)), "BYTE_ALIGNMENT": (INT64, (4,)),
        })  # fmt: skip
    c_desc = builder.finalized(Kind.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, {
        "SPATIAL_DIMS": (INT64, (3,)), "COMP_TYPE": (Type.CUDNN_TYPE_DATA_TYPE, (FLOAT,)),
        "CONV_MODE": (Type.CUDNN_TYPE_CONVOLUTION_MODE, (0,)), "PRE_PADDINGS": (INT64, (0,) * 3), "POST_PADDINGS": (INT64, (0,) * 3),
        "DILATIONS": (INT64, (1,) * 3), "FILTER_STRIDES": (INT64, (1,) * 3),
    })  # fmt: skip
    fprop = builder.finalized(Kind.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, {
        **{uid: (DESCRIPTOR, (tensors[uid],)) for uid in "XWY"}, "CONV_DESC": (DESCRIPTOR, (c_desc,)),
        "ALPHA": (Type.CUDNN_TYPE_FLOAT, (1.0,)), "BETA": (Type.CUDNN_TYPE_FLOAT, (0.5,)),
    })  # fmt: skip
    op_graph = builder.finalized(GRAPH, {"OPS": (DESCRIPTOR, (fprop,)), "HANDLE": (HANDLE, (handle,))})

    engine = builder.finalized(ENGINE, {"OPERATION_GRAPH": (DESCRIPTOR, (op_graph,)), "GLOBAL_INDEX": (INT64, (0,))})
    knobs = cudnn.cudnnBackendGetAttribute(engine, Name.CUDNN_ATTR_ENGINE_KNOB_INFO, DESCRIPTOR, 8)
    assert knobs.elementCount == len(knobs.arrayOfElements)
    engcfg = builder.finalized(CONFIG, {"ENGINE": (DESCRIPTOR, (engine,))})

    plan = builder.finalized(PLAN, {"HANDLE": (HANDLE, (handle,)), "ENGINE_CONFIG": (DESCRIPTOR, (engcfg,))})
    (size,) = builder.get(plan, PLAN, "WORKSPACE_SIZE", INT64)
    random = np.random.default_rng(3)
    x, w_, y = (
        random.standard_normal(dims).astype(np.float32)
        for dims in ((n, g, c, d, h, w), (g, k, c, t, r, s), (n, g, k, o, p, q))
    )
    buffers = [handle.to_device(values) for values in (x, w_, y)]
    varpack = builder.finalized(PACK, {
        "DATA_POINTERS": (POINTER, buffers), "UNIQUE_IDS": (INT64, [ord(uid) for uid in "XWY"]),
        "WORKSPACE": (POINTER, (handle.allocate(max(1, size)),)),
    })  # fmt: skip
    cudnn.cudnnBackendExecute(handle, plan, varpack)

    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (t, r, s), (3, 4, 5))
    wanted = np.einsum("ngcopqtrs,gkctrs->ngkopq", windows, w_[..., ::-1, ::-1, ::-1]) + 0.5 * y
    assert np.allclose(buffers[2].to_host(np.float32, y.shape), wanted, rtol=1e-4, atol=1e-5)


@shows(f"{EXECUTE}/c01")
def test_plans_of_two_threads(cudnn, handle, builder):
    """Several threads may execute plans of one handle; each gets its own result."""
    plan = plan_of(builder, handle, *TWO)
    size = builder.get(plan, PLAN, "WORKSPACE_SIZE", INT64)[0]
    work = [
        (handle.to_device(np.full(24, 0.1 * i, np.float32)), handle.zeros(96), handle.allocate(max(1, size)))
        for i in range(1, 5)
    ]
    packs, succeeded = [pack_of(builder, {X.uid: x, Y.uid: y}, workspace) for x, y, workspace in work], []

    def execute(pack):
        cudnn.cudnnBackendExecute(handle, plan, pack)
        succeeded.append(pack)

    threads = [threading.Thread(target=execute, args=(pack,)) for pack in packs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(succeeded) == len(packs) and all(correct(x, y) for x, y, _ in work)


@shows(f"{EXECUTE}/c01", *of("EXECUTION_PLAN", "c01"))
def test_plans_that_several_threads_make(cudnn, handle):
    """Several threads may each describe a graph, make its plan and execute it repeatedly."""
    wanted, found = {}, {}

    def work(factor):
        builder = Builder(cudnn)
        x, y = handle.to_device(np.linspace(-1, 1, 24, dtype=np.float32)), handle.zeros(96)
        nodes = (pointwise(Mode.CUDNN_POINTWISE_IDENTITY_FWD, X, BETWEEN, alpha1=factor), pointwise(RELU, BETWEEN, Y))
        plan = plan_of(builder, handle, *nodes)
        pack = pack_of(builder, {X.uid: x, Y.uid: y}, space_of(builder, handle, plan))
        for _ in range(3):
            cudnn.cudnnBackendExecute(handle, plan, pack)
        wanted[factor], found[factor] = np.maximum(factor * x.to_host(np.float32, 24), 0), y.to_host(np.float32, 24)
        builder.destroy()

    threads = [threading.Thread(target=work, args=(0.5 * i,)) for i in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(np.array_equal(found[factor], wanted[factor]) for factor in wanted)
