"""Finalise engines, their configurations, heuristics and execution plans (9.2.2 to 9.2.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from .. import api_log
from ..enumerations import cudnnBackendAttributeName_t as Name
from ..enumerations import cudnnBackendDescriptorType_t as Kind
from ..enumerations import cudnnBackendKnobType_t
from ..handle import Handle
from ..operations import OperationGraph
from ..operations.backend import RUN
from ..operations.graph import KnobChoice
from ..status import BAD_PARAM, NOT_SUPPORTED, CudnnError, expect
from .engines import ENGINES, Engine
from .life_cycle import Finalized, Given, finalizes_with_results
from .operation_graph import Graph

Results = Mapping[Name, tuple[Any, ...]]
TILE_SIZE = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_TILE_SIZE
ENGINE = "CUDNN_BACKEND_ENGINE_DESCRIPTOR"
ENGINECFG = "CUDNN_BACKEND_ENGINECFG_DESCRIPTOR"
PLAN = "CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR"


@dataclass(frozen=True)
class GraphEngine:
    """Hold an engine for a graph. solvers: the number of values of its knob, or 0 without a knob."""

    graph: Graph
    index: int
    solvers: int

    @property
    def engine(self) -> Engine:
        return ENGINES[self.index]

    def operation(self, choice: int = 0) -> OperationGraph:
        """Return the execution of the graph by this engine, with a workspace of 0 bytes."""
        return OperationGraph(self.graph.nodes, self.index, choice, 0)


@finalizes_with_results(Kind.CUDNN_BACKEND_ENGINE_DESCRIPTOR)
def engine(given: Given) -> tuple[GraphEngine, Results]:
    graph, index = given.record("OPERATION_GRAPH"), given.one("GLOBAL_INDEX")
    range_text = f"the engine {index} is not one of 0 to {len(ENGINES) - 1}"
    expect(0 <= index < len(ENGINES), NOT_SUPPORTED, f"{ENGINE}/c15", range_text)
    reason = ENGINES[index].refuses(graph.nodes)
    if reason:
        api_log.log_unsupported("cudnnBackendFinalize", [f"engine {index}, {ENGINES[index].name}: {reason}"])
        raise CudnnError(NOT_SUPPORTED, f"{ENGINE}/c16", f"engine {index}, {ENGINES[index].name}: {reason}")
    return described_engine(graph, index)


def described_engine(graph: Graph, index: int) -> tuple[GraphEngine, Results]:
    """Return an engine that executes a graph, and the elements of its read-only attributes."""
    found, nodes = ENGINES[index], graph.nodes
    made = GraphEngine(graph, index, _solvers(graph, index))
    return made, {
        Name.CUDNN_ATTR_ENGINE_KNOB_INFO: (_knob_info(made.solvers),) if made.solvers else (),
        Name.CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: found.notes(nodes),
        Name.CUDNN_ATTR_ENGINE_LAYOUT_INFO: tuple(
            _info(Kind.CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR, {Name.CUDNN_ATTR_LAYOUT_INFO_TENSOR_UID: (tensor.uid,), Name.CUDNN_ATTR_LAYOUT_INFO_TYPES: (found.layout,)})
            for tensor in dict.fromkeys(t for node in nodes for t in (*node.inputs, *node.outputs) if not t.is_virtual)
        ),
    }  # fmt: skip


def _solvers(graph: Graph, index: int) -> int:
    """Return how many solvers the handle's backend offers for the engine, or 0 if there is no choice."""
    names = graph.handle.backend.graph_solvers(OperationGraph(graph.nodes, index, 0, 0))
    return len(names) if len(names) > 1 else 0


def _knob_info(solvers: int) -> Finalized:
    return _info(
        Kind.CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR,
        {
            Name.CUDNN_ATTR_KNOB_INFO_TYPE: (TILE_SIZE,),
            Name.CUDNN_ATTR_KNOB_INFO_MINIMUM_VALUE: (0,),
            Name.CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE: (solvers,),
            Name.CUDNN_ATTR_KNOB_INFO_STRIDE: (1,),
        },
    )


def _info(kind: Kind, elements: Results) -> Finalized:
    """Return a descriptor that only queries create."""
    listed = tuple(elements.items())
    return Finalized(kind, listed, listed)


@dataclass(frozen=True)
class Configuration:
    """Hold an engine and the value of its knob; 0 lets the engine choose."""

    engine: GraphEngine
    choice: int

    @property
    def operation(self) -> OperationGraph:
        return self.engine.operation(self.choice)


@finalizes_with_results(Kind.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
def configuration(given: Given) -> tuple[Configuration, Results]:
    found: GraphEngine = given.record("ENGINE")
    choices: list[KnobChoice] = [element.record for element in given.all("KNOB_CHOICES")]
    clause = f"{ENGINECFG}/c11"
    for knob in choices:
        known = found.solvers and knob.knob == TILE_SIZE
        expect(
            known, NOT_SUPPORTED, clause, f"{knob.knob.name} is not a knob of engine {found.index}, {found.engine.name}"
        )
        right = 0 <= knob.value <= found.solvers
        expect(right, NOT_SUPPORTED, clause, f"{knob.knob.name} is {knob.value}, possible are 0 to {found.solvers}")
    expect(len(choices) <= 1, BAD_PARAM, "cudnnBackendFinalize/c06", f"{TILE_SIZE.name} is chosen {len(choices)} times")
    chosen = choices[0].value if choices else 0
    return Configuration(found, chosen), {Name.CUDNN_ATTR_ENGINECFG_INTERMEDIATE_INFO: ()}


@finalizes_with_results(Kind.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
def heuristics(given: Given) -> tuple[Graph, Results]:
    """Return the configurations that can execute the graph, ordered by expected speed.

    Above level RUN these are configurations that add in the order of the first.
    """
    graph: Graph = given.record("OPERATION_GRAPH")
    element = given.one("OPERATION_GRAPH")
    able = {}
    for index, known in enumerate(ENGINES):
        if not known.refuses(graph.nodes):
            made, results = described_engine(graph, index)
            able[made.operation()] = _configured(element, made, results)
    handle, found = graph.handle, list(able)
    alike = found if handle.reproducible == RUN else handle.backend.in_one_order(found)
    ranked = handle.backend.preferred_algorithms(alike)
    return graph, {Name.CUDNN_ATTR_ENGINEHEUR_RESULTS: tuple(able[operation] for operation in ranked)}


def _configured(graph: Finalized, made: GraphEngine, results: Results) -> Finalized:
    """Return the configuration of an engine in the form that a user's descriptor would have."""
    given = {Name.CUDNN_ATTR_ENGINE_OPERATION_GRAPH: (graph,), Name.CUDNN_ATTR_ENGINE_GLOBAL_INDEX: (made.index,)}
    engine_ = Finalized(Kind.CUDNN_BACKEND_ENGINE_DESCRIPTOR, made, tuple({**given, **results}.items()))
    elements = {
        Name.CUDNN_ATTR_ENGINECFG_ENGINE: (engine_,), Name.CUDNN_ATTR_ENGINECFG_KNOB_CHOICES: (),
        Name.CUDNN_ATTR_ENGINECFG_INTERMEDIATE_INFO: (),
    }  # fmt: skip
    return Finalized(Kind.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, Configuration(made, 0), tuple(elements.items()))


@dataclass(frozen=True)
class ExecutionPlan:
    """Hold what an execution needs: the handle, and the operation with its workspace."""

    handle: Handle
    operation: OperationGraph

    @cached_property
    def uids(self) -> tuple[int, ...]:
        """Return the unique ids of the tensors with memory, in operand order without the workspace."""
        return tuple(self.operation.tensors[name].uid for name in self.operation.operands[:-1])


@finalizes_with_results(Kind.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
def execution_plan(given: Given) -> tuple[ExecutionPlan, Results]:
    handle, config = given.one("HANDLE"), given.record("ENGINE_CONFIG")
    expect(
        handle.alive,
        BAD_PARAM,
        "cudnnBackendFinalize/c06",
        "CUDNN_ATTR_EXECUTION_PLAN_HANDLE was destroyed by cudnnDestroy",
    )
    uids = given.all("RUN_ONLY_INTERMEDIATE_UIDS")
    expect(
        not uids, NOT_SUPPORTED, "cudnnBackendFinalize/c07", f"{uids} are not intermediates, of which engines have none"
    )
    operation = config.operation
    with handle.lock:
        operation = replace(operation, workspace_bytes=handle.backend.workspace_bytes(operation))
        handle.backend.prepare(operation)  # The backend caches it, and a failure here refuses the plan.
    size = {Name.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: (operation.workspace_bytes,)}
    return ExecutionPlan(handle, operation), size
