"""Turn records of ``api.operations.graph`` into backend descriptors, through the subject's own calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from dualdnn.api.enumerations import cudnnBackendAttributeName_t as Name
from dualdnn.api.enumerations import cudnnBackendAttributeType_t as Type
from dualdnn.api.enumerations import cudnnBackendDescriptorType_t as Kind
from dualdnn.api.enumerations import cudnnBackendHeurMode_t, cudnnBackendKnobType_t, cudnnBackendNumericalNote_t
from dualdnn.api.operations import OperationGraph
from dualdnn.api.operations.graph import (
    ConvolutionBackwardDataNode,
    ConvolutionBackwardFilterNode,
    ConvolutionForwardNode,
    GenStatsNode,
    GraphConvolution,
    GraphTensor,
    KnobChoice,
    PointwiseNode,
    PointwiseSettings,
)
from dualdnn.api.operations.specs import DOUBLE, FLOAT
from dualdnn.api.status import NOT_SUPPORTED, CudnnError

INT64, DATA_TYPE, DESCRIPTOR = Type.CUDNN_TYPE_INT64, Type.CUDNN_TYPE_DATA_TYPE, Type.CUDNN_TYPE_BACKEND_DESCRIPTOR
KNOB = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_TILE_SIZE  # the only knob that engines have
MAX_PROPOSALS = 16  # proposals of the heuristics: more than a client tries
# Clients that ask for arithmetic in the compute type reject engines with these notes. For FLOAT they also reject tensor
# cores, which round the factors.
INEXACT: set[int] = {
    cudnnBackendNumericalNote_t.CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
    cudnnBackendNumericalNote_t.CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
    cudnnBackendNumericalNote_t.CUDNN_NUMERICAL_NOTE_FFT,
    cudnnBackendNumericalNote_t.CUDNN_NUMERICAL_NOTE_WINOGRAD,
}
# end of an attribute's name -> its type and its elements
Attributes = dict[str, tuple[Type, Sequence[Any]]]


def kind_of(record: Any) -> Kind:
    """Return the descriptor type for a record."""
    return _KINDS[type(record)][0]


def attributes(make: Any, record: Any) -> Attributes:
    """Return the attributes that describe a record; ``make`` makes descriptors of nested records."""
    found: Attributes = _KINDS[type(record)][2](make, record)
    return found


def attribute_name(kind: Kind, ending: str) -> Name:
    """Return an attribute name of a descriptor type, by the end of the name."""
    return Name[f"CUDNN_ATTR_{PREFIXES[kind]}_{ending}"]


class Builder:
    """Make descriptors of one subject; ``destroy`` destroys them."""

    def __init__(self, cudnn: Any) -> None:
        self.cudnn = cudnn
        self.made: list[Any] = []

    def __call__(self, record: Any) -> Any:
        """Return a finalised descriptor of the record."""
        return self.finalized(kind_of(record), attributes(self, record))

    def create(self, kind: Kind) -> Any:
        """Return a new descriptor."""
        self.made.append(self.cudnn.cudnnBackendCreateDescriptor(kind))
        return self.made[-1]

    def filled(self, kind: Kind, given: Mapping[str, tuple[Type, Sequence[Any]]]) -> Any:
        """Return a descriptor with these attributes, not finalised."""
        descriptor = self.create(kind)
        for ending, (type_, elements) in given.items():
            self.set(descriptor, kind, ending, type_, elements)
        return descriptor

    def set(self, descriptor: Any, kind: Kind, ending: str, type_: Type, elements: Sequence[Any]) -> None:
        """Set one attribute."""
        name = attribute_name(kind, ending)
        self.cudnn.cudnnBackendSetAttribute(descriptor, name, type_, len(elements), elements)

    def finalized(self, kind: Kind, given: Mapping[str, tuple[Type, Sequence[Any]]]) -> Any:
        """Return a finalised descriptor with these attributes."""
        descriptor = self.filled(kind, given)
        self.cudnn.cudnnBackendFinalize(descriptor)
        return descriptor

    def get(self, descriptor: Any, kind: Kind, ending: str, type_: Type, count: int = 1) -> tuple[Any, ...]:
        """Return all elements of an attribute that has at most ``count``; one that may have a single element has it."""
        found = self.cudnn.cudnnBackendGetAttribute(descriptor, attribute_name(kind, ending), type_, count)
        least = 1 if count == 1 else 0
        assert least <= found.elementCount == len(found.arrayOfElements), f"{ending} has {found.elementCount} elements"
        return tuple(found.arrayOfElements)

    def destroy(self) -> None:
        """Destroy what was made, in reverse order."""
        while self.made:
            descriptor = self.made.pop()
            if descriptor.alive:
                self.cudnn.cudnnBackendDestroyDescriptor(descriptor)


def configured(build: Builder, graph: Any, index: int, choice: int = 0) -> Any:
    """Return the configuration of an engine, by its global index, with a knob choice unless it is 0."""
    engine = build.finalized(
        Kind.CUDNN_BACKEND_ENGINE_DESCRIPTOR,
        {"OPERATION_GRAPH": (DESCRIPTOR, (graph,)), "GLOBAL_INDEX": (INT64, (index,))},
    )
    knobs = [build(KnobChoice(KNOB, choice))] if choice else []
    return build.finalized(
        Kind.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
        {"ENGINE": (DESCRIPTOR, (engine,)), "KNOB_CHOICES": (DESCRIPTOR, knobs)},
    )


def proposed(build: Builder, graph: Any) -> Iterator[Any]:
    """Yield the configurations that the heuristics propose, the best first; nothing without an answer."""
    kind = Kind.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR
    mode = (Type.CUDNN_TYPE_HEUR_MODE, (cudnnBackendHeurMode_t.CUDNN_HEUR_MODE_INSTANT,))
    with suppress(CudnnError):
        heuristics = build.finalized(kind, {"OPERATION_GRAPH": (DESCRIPTOR, (graph,)), "MODE": mode})
        yield from build.get(heuristics, kind, "RESULTS", DESCRIPTOR, MAX_PROPOSALS)


def unwanted(operation: OperationGraph) -> set[int]:
    """Return the numerical notes of engines that do not compute sums in the compute type."""
    convolutions = [node for node in operation.nodes if hasattr(node, "convolution")]
    floats = any(getattr(node, name).data_type == FLOAT for node in convolutions for name in node.reads)
    return INEXACT | ({cudnnBackendNumericalNote_t.CUDNN_NUMERICAL_NOTE_TENSOR_CORE} if floats else set())


def notes_of(build: Builder, config: Any) -> tuple[int, ...]:
    """Return the numerical notes of a configuration's engine."""
    (engine,) = build.get(config, Kind.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "ENGINE", DESCRIPTOR)
    kind, notes = Kind.CUDNN_BACKEND_ENGINE_DESCRIPTOR, Type.CUDNN_TYPE_NUMERICAL_NOTE
    return build.get(engine, kind, "NUMERICAL_NOTE", notes, len(cudnnBackendNumericalNote_t))


def plan(make: Any, operation: OperationGraph) -> Any:
    """Return the finalised execution plan of a graph, made through the documented calls (9.3)."""
    build = Builder(make.cudnn)
    nodes = [build(node) for node in operation.nodes]
    graph = build.finalized(
        Kind.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
        {"HANDLE": (Type.CUDNN_TYPE_HANDLE, (make.handle,)), "OPS": (DESCRIPTOR, nodes)},
    )
    if make.any_engine:
        made = plan_by_any_engine(build, make.handle, graph, unwanted(operation))
    else:
        made = planned(build, make.handle, configured(build, graph, operation.engine, operation.choice))
    build.made.remove(made)
    build.destroy()
    return made


def planned(build: Builder, handle: Any, config: Any) -> Any:
    """Return the finalised execution plan of a configuration."""
    given = {"HANDLE": (Type.CUDNN_TYPE_HANDLE, (handle,)), "ENGINE_CONFIG": (DESCRIPTOR, (config,))}
    return build.finalized(Kind.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, given)


def plan_by_any_engine(build: Builder, handle: Any, graph: Any, notes: set[int]) -> Any:
    """Return the plan of the first working configuration of an engine without these notes.

    It tries the heuristics' proposals, then each engine by number, as clients do. If all fail, it raises the last
    refusal.
    """
    for config in proposed(build, graph):
        with suppress(CudnnError):
            if notes.isdisjoint(notes_of(build, config)):
                return planned(build, handle, config)
    (count,) = build.get(graph, Kind.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "ENGINE_GLOBAL_COUNT", INT64)
    refusal = CudnnError(
        NOT_SUPPORTED, None, f"none of {count} engines computes it in the compute type", "cudnnBackendFinalize"
    )
    for index in range(count):
        try:
            config = configured(build, graph, index)
            if notes.isdisjoint(notes_of(build, config)):
                return planned(build, handle, config)
        except CudnnError as error:
            refusal = error
    raise refusal


def plan_bytes(make: Any, plan: Any) -> int:
    """Return the bytes of workspace that a plan needs."""
    kind = Kind.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
    return int(Builder(make.cudnn).get(plan, kind, "WORKSPACE_SIZE", INT64)[0])


def pack(make: Any, operation: OperationGraph, memory: Mapping[str, Any], workspace: Any) -> Any:
    """Return the finalised variant pack of the operands."""
    tensors = [tensor for tensor in operation.tensors.values() if not tensor.is_virtual]
    pointer = Type.CUDNN_TYPE_VOID_PTR
    return Builder(make.cudnn).finalized(
        Kind.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
        {
            "UNIQUE_IDS": (INT64, [tensor.uid for tensor in tensors]),
            "DATA_POINTERS": (pointer, [memory[tensor.operand] for tensor in tensors]),
            "WORKSPACE": (pointer, (workspace,)),
        },
    )


def _tensor(make: Any, t: GraphTensor) -> Attributes:
    found: Attributes = {
        "UNIQUE_ID": (INT64, (t.uid,)), "DATA_TYPE": (DATA_TYPE, (t.data_type,)), "DIMENSIONS": (INT64, t.dims),
        "STRIDES": (INT64, t.strides), "BYTE_ALIGNMENT": (INT64, (t.alignment,)),
    }  # fmt: skip
    if t.vector_count != 1:
        found |= {
            "VECTOR_COUNT": (INT64, (t.vector_count,)),
            "VECTORIZED_DIMENSION": (INT64, (t.vectorized_dimension,)),
        }
    if t.is_virtual:
        found["IS_VIRTUAL"] = (Type.CUDNN_TYPE_BOOLEAN, (True,))
    return found


def _convolution(make: Any, c: GraphConvolution) -> Attributes:
    return {
        "SPATIAL_DIMS": (INT64, (c.rank,)), "COMP_TYPE": (DATA_TYPE, (c.compute_type,)),
        "CONV_MODE": (Type.CUDNN_TYPE_CONVOLUTION_MODE, (c.mode,)), "PRE_PADDINGS": (INT64, c.pre_padding),
        "POST_PADDINGS": (INT64, c.post_padding), "DILATIONS": (INT64, c.dilation), "FILTER_STRIDES": (INT64, c.stride),
    }  # fmt: skip


def _pointwise_settings(make: Any, p: PointwiseSettings) -> Attributes:
    return {
        "MODE": (Type.CUDNN_TYPE_POINTWISE_MODE, (p.mode,)), "MATH_PREC": (DATA_TYPE, (p.compute_type,)),
        "NAN_PROPAGATION": (Type.CUDNN_TYPE_NAN_PROPOGATION, (p.nan,)),
        "RELU_LOWER_CLIP": (Type.CUDNN_TYPE_DOUBLE, (p.lower_clip,)),
        "RELU_UPPER_CLIP": (Type.CUDNN_TYPE_DOUBLE, (p.upper_clip,)),
    }  # fmt: skip


def _knob_choice(make: Any, k: KnobChoice) -> Attributes:
    return {"KNOB_TYPE": (Type.CUDNN_TYPE_KNOB_TYPE, (k.knob,)), "KNOB_VALUE": (INT64, (k.value,))}


def _scalar(data_type: Any) -> Type:
    return Type.CUDNN_TYPE_DOUBLE if data_type == DOUBLE else Type.CUDNN_TYPE_FLOAT


def _convolution_node(make: Any, n: Any) -> Attributes:
    scalar = _scalar(n.convolution.compute_type)
    tensors = {name.upper(): (DESCRIPTOR, (make(getattr(n, name)),)) for name in (*n.reads, *n.writes)}
    return {
        **tensors, "CONV_DESC": (DESCRIPTOR, (make(n.convolution),)), "ALPHA": (scalar, (n.alpha,)), "BETA": (scalar, (n.beta,)),
    }  # fmt: skip


def _pointwise_node(make: Any, n: PointwiseNode) -> Attributes:
    scalar = _scalar(n.pointwise.compute_type)
    found: Attributes = {
        "PW_DESCRIPTOR": (DESCRIPTOR, (make(n.pointwise),)), "XDESC": (DESCRIPTOR, (make(n.x),)),
        "YDESC": (DESCRIPTOR, (make(n.y),)), "ALPHA1": (scalar, (n.alpha1,)),
    }  # fmt: skip
    if n.b is not None:
        found |= {"BDESC": (DESCRIPTOR, (make(n.b),)), "ALPHA2": (scalar, (n.alpha2,))}
    return found


def _statistics(make: Any, n: GenStatsNode) -> Attributes:
    return {
        "MODE": (Type.CUDNN_TYPE_GENSTATS_MODE, (n.mode,)), "MATH_PREC": (DATA_TYPE, (n.compute_type,)),
        "XDESC": (DESCRIPTOR, (make(n.x),)), "SUMDESC": (DESCRIPTOR, (make(n.sum),)), "SQSUMDESC": (DESCRIPTOR, (make(n.sqsum),)),
    }  # fmt: skip


_KINDS: dict[type, tuple[Kind, str, Any]] = {
    GraphTensor: (Kind.CUDNN_BACKEND_TENSOR_DESCRIPTOR, "TENSOR", _tensor),
    GraphConvolution: (Kind.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "CONVOLUTION", _convolution),
    PointwiseSettings: (Kind.CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "POINTWISE", _pointwise_settings),
    KnobChoice: (Kind.CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, "KNOB_CHOICE", _knob_choice),
    ConvolutionForwardNode: (
        Kind.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, "OPERATION_CONVOLUTION_FORWARD", _convolution_node,
    ),
    ConvolutionBackwardDataNode: (
        Kind.CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, "OPERATION_CONVOLUTION_BWD_DATA", _convolution_node,
    ),
    ConvolutionBackwardFilterNode: (
        Kind.CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, "OPERATION_CONVOLUTION_BWD_FILTER", _convolution_node,
    ),
    PointwiseNode: (Kind.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "OPERATION_POINTWISE", _pointwise_node),
    GenStatsNode: (Kind.CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, "OPERATION_GENSTATS", _statistics),
}  # fmt: skip
PREFIXES: dict[Kind, str] = {
    **{kind: prefix for kind, prefix, _ in _KINDS.values()},
    Kind.CUDNN_BACKEND_ENGINE_DESCRIPTOR: "ENGINE",
    Kind.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: "ENGINECFG",
    Kind.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: "ENGINEHEUR",
    Kind.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: "EXECUTION_PLAN",
    Kind.CUDNN_BACKEND_INTERMEDIATE_INFO_DESCRIPTOR: "INTERMEDIATE_INFO",
    Kind.CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR: "KNOB_INFO",
    Kind.CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR: "LAYOUT_INFO",
    Kind.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: "OPERATIONGRAPH",
    Kind.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: "VARIANT_PACK",
}
