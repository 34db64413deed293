"""Make graphs of nodes, and the engines, configurations, plans and variant packs that execute them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any

from dualdnn.api.enumerations import cudnnBackendAttributeType_t as Type
from dualdnn.api.enumerations import cudnnBackendDescriptorType_t as Kind
from dualdnn.api.enumerations import cudnnBackendHeurMode_t
from dualdnn.api.status import CudnnError

from .graph import DESCRIPTOR, INT64, Attributes, Builder, configured, planned

HANDLE, POINTER = Type.CUDNN_TYPE_HANDLE, Type.CUDNN_TYPE_VOID_PTR
GRAPH, ENGINE = Kind.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, Kind.CUDNN_BACKEND_ENGINE_DESCRIPTOR
CONFIG, HEURISTICS = Kind.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, Kind.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR
PLAN, PACK = Kind.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, Kind.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR
INSTANT = (Type.CUDNN_TYPE_HEUR_MODE, (cudnnBackendHeurMode_t.CUDNN_HEUR_MODE_INSTANT,))


class Plans(Builder):
    """Make what executes graphs on a handle."""

    def __init__(self, cudnn: Any, handle: Any) -> None:
        super().__init__(cudnn)
        self.handle = handle
        self.memory: list[Any] = []  # memory of the packs, of which other libraries know only the addresses

    def graph(self, *nodes: Any) -> Any:
        """Return a graph of these nodes, in this order."""
        return self.finalized(GRAPH, self.of_nodes(*nodes))

    def of_nodes(self, *nodes: Any) -> Attributes:
        """Return the attributes of a graph."""
        return {"HANDLE": (HANDLE, (self.handle,)), "OPS": (DESCRIPTOR, [self(node) for node in nodes])}

    def of_config(self, config: Any) -> Attributes:
        """Return the attributes of a plan."""
        return {"ENGINE_CONFIG": (DESCRIPTOR, (config,)), "HANDLE": (HANDLE, (self.handle,))}

    def count(self, graph: Any) -> int:
        """Return the number of existing engines."""
        return int(self.get(graph, GRAPH, "ENGINE_GLOBAL_COUNT", INT64)[0])

    def engine(self, graph: Any, index: int | None = None) -> Any:
        """Return the engine of this number, or the first that executes the graph: among ours, number 0."""
        if index is not None:
            return self.finalized(ENGINE, numbered(graph, index))
        last = self.count(graph) - 1
        for number in range(last + 1):
            with suppress(CudnnError) if number < last else nullcontext():
                made = self.finalized(ENGINE, numbered(graph, number))
                self.config(made)  # NVIDIA's library may refuse the graph only here.
                return made
        raise ValueError("there are no engines")

    def config(self, engine: Any, *knobs: Any) -> Any:
        """Return the configuration of an engine with these choices of knobs."""
        return self.finalized(CONFIG, chosen(engine, *map(self, knobs)))

    def heuristics(self, graph: Any) -> Any:
        """Return the heuristics of a graph."""
        return self.finalized(HEURISTICS, ranked(graph))

    def plan(self, *nodes: Any) -> Any:
        """Return a plan of a graph by the first engine that executes it."""
        graph = self.graph(*nodes)
        last = self.count(graph) - 1
        for number in range(last + 1):
            with suppress(CudnnError) if number < last else nullcontext():
                return planned(self, self.handle, configured(self, graph, number))
        raise ValueError("there are no engines")

    def size(self, plan: Any) -> int:
        """Return the bytes of the workspace of a plan."""
        return int(self.get(plan, PLAN, "WORKSPACE_SIZE", INT64)[0])

    def space(self, plan: Any) -> Any:
        """Return a workspace as large as the plan asks for."""
        return self.handle.allocate(max(1, self.size(plan)))

    def pack(self, pointers: Mapping[int, Any], workspace: Any = None) -> Any:
        """Return the variant pack of a workspace and of memory by the ids of tensors."""
        self.memory += [*pointers.values(), workspace]
        given = {"UNIQUE_IDS": (INT64, list(pointers)), "DATA_POINTERS": (POINTER, list(pointers.values()))}
        return self.finalized(PACK, {**given, "WORKSPACE": (POINTER, (workspace,))})

    def execute(self, plan: Any, pack: Any) -> None:
        """Execute a plan on the handle."""
        self.cudnn.cudnnBackendExecute(self.handle, plan, pack)


def numbered(graph: Any, index: int) -> Attributes:
    """Return the attributes of the engine of this number."""
    return {"OPERATION_GRAPH": (DESCRIPTOR, (graph,)), "GLOBAL_INDEX": (INT64, (index,))}


def chosen(engine: Any, *choices: Any) -> Attributes:
    """Return the attributes of a configuration."""
    return {"ENGINE": (DESCRIPTOR, (engine,)), **({"KNOB_CHOICES": (DESCRIPTOR, choices)} if choices else {})}


def ranked(graph: Any) -> Attributes:
    """Return the attributes of the heuristics of a graph."""
    return {"OPERATION_GRAPH": (DESCRIPTOR, (graph,)), "MODE": INSTANT}
