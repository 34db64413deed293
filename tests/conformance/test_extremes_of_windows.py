"""Test that every solver that reads windows computes with the largest strides, paddings, dilations and windows that
calls accept.

Operations of the corpus are varied in one field along one axis at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import pytest
from dualdnn.accelerated.runtime.emulated.device import EmulatedDevice
from dualdnn.accelerated.solver import forcing, possible_solvers
from dualdnn.api import cudnn
from dualdnn.api.operations import parse
from dualdnn.api.operations.graph import OperationGraph
from dualdnn.api.operations.graph_nodes import ConvolutionNode, GraphTensor
from dualdnn.api.status import CudnnError
from dualdnn.conformance.calls import Caller, sized
from dualdnn.conformance.corpus import FOLDER
from dualdnn.conformance.domains.pieces import Drawn
from dualdnn.conformance.domains.pooling import before
from dualdnn.conformance.solvers import with_workspace
from dualdnn.conformance.trial import Step, attempt_chain
from test_extremes import relaid

MAX_INTEGER = 2**31 - 1  # the largest number that a setter takes
POSITIONS = 2**31  # positions of a padded image, an exclusive limit
MAX_BYTES = 2**20  # bytes of the largest operand that the emulated device computes quickly
TRIED = 12  # varied operations per solver
LAUNCHED = 2  # launched variants per large field
IMAGES = ("x", "dx", "srcData")
FILTERS = ("w", "dw", "filter")
RESPONSES = ("y", "dy", "z")
WINDOWS = {"stride", "padding", "window"}
FIELDS = {"stride", "padding", "dilation"}
STEPS = {"stride", "padding"}
# Solvers never serve large values of these fields. The longest prefix of a solver's name counts.
REFUSED = {
    # The algorithm's table in the document does not allow them.
    "convolution.fft": FIELDS,
    "convolution.filter_gradient_fft": FIELDS,
    "convolution.im2col_gemm": {"dilation"},
    "convolution.winograd": FIELDS,
    # Patches lie side by side, without padding and dilation.
    "convolution.copied_patches": FIELDS,
    "convolution.data_gradient_copied_patches": FIELDS,
    "convolution.filter_gradient_copied_patches": FIELDS,
    # The boxes of tensor maps have short steps and few pixels before the image.
    "convolution.filter_gradient_nchw_": STEPS,
    "convolution.filter_gradient_tf32_": {"padding"},
    "convolution.filter_gradient_tma_": {"padding"},
    "convolution.implicit_gemm_tma_": STEPS,
    # A table has the taps of every residue, and 32-bit offsets reach the columns that a thread reads ahead.
    "convolution.data_gradient_depthwise": FIELDS,
    # A large padding needs a stride of more residue classes than the solver launches.
    "convolution.data_gradient_few_channels": {"padding"},
    # Tiles in shared memory hold every pixel between the taps.
    "convolution.data_gradient_folded": FIELDS,
    "convolution.data_gradient_small_channels": STEPS,
    "convolution.depthwise": FIELDS,
    # The module is compiled for one small window, or the window is the image.
    "pooling.global_": {"padding"},
    "pooling.max_backward": WINDOWS,
    "pooling.static_": WINDOWS,
}


class Change(NamedTuple):
    """Name the large field of an axis, and give its value and the other values."""

    field: str
    values: dict[str, int]


def of_convolution(extent: int, taps: int) -> Iterator[Change]:
    """Yield settings with which a filter of these taps reaches an image of this extent, the largest first."""
    for large in (MAX_INTEGER, POSITIONS - 8, 2**30):
        yield Change("stride", {"stride": large})
    for pad in ((POSITIONS - 1 - extent) // 2, 2**29 + 1, 2**29):
        yield Change("padding", {"padding": pad, "stride": pad})
        yield Change("padding", {"padding": pad, "stride": pad + 1})
        if taps > 1:
            apart = pad // (taps - 1)
            yield Change("dilation", {"dilation": apart, "padding": apart * (taps // 2)})
            yield Change("dilation", {"dilation": apart, "padding": apart * (taps - 1), "stride": apart})
            yield Change("dilation", {"dilation": apart, "padding": apart * (taps - 1), "stride": MAX_INTEGER})
    if taps == 1:
        yield Change("dilation", {"dilation": MAX_INTEGER})


def of_graph(extent: int, taps: int) -> Iterator[Change]:
    """Yield the settings of a convolution, also with the padding on one side only."""
    for field, values in of_convolution(extent, taps):
        padding = values.pop("padding", None)
        sides = [("pre_padding",), ("post_padding",)] if field == "padding" else []
        for names in (("pre_padding", "post_padding"), *sides):
            yield Change(field, values | ({} if padding is None else dict.fromkeys(names, padding)))


def of_pooling(extent: int, taps: int) -> Iterator[Change]:
    """Yield settings with which a window still reaches an image of this extent."""
    for large in (POSITIONS - 1 - extent - taps, 2**30):
        yield Change("stride", {"stride": large})
        yield Change("window", {"window": large - large // 2, "padding": large // 4, "stride": large // 4})
        yield Change("window", {"window": large, "padding": 0})
        yield Change("padding", {"window": large // 2 + 1, "padding": large // 2})


def axis_changed(spec: Any, axis: int, values: dict[str, int]) -> Any:
    """Return a descriptor with other settings along one axis."""
    given = {name: getattr(spec, name) for name in values}
    return replace(spec, **{name: (*old[:axis], values[name], *old[axis + 1 :]) for name, old in given.items()})


def redimensioned(spec: Any, dims: tuple[int, ...]) -> Any:
    """Return a tensor with other dimensions: packed in the same order, or with the same strides if it has gaps."""

    def packed(dims: tuple[int, ...]) -> tuple[int, ...]:
        strides, step = [0] * len(dims), 1
        for d in sorted(range(len(dims)), key=lambda d: (spec.strides[d], -d)):
            strides[d], step = step, step * dims[d]
        return tuple(strides)

    return replace(spec, dims=dims, strides=packed(dims) if packed(spec.dims) == spec.strides else spec.strides)


def field_of(operation: Any, names: tuple[str, ...]) -> Any:
    return next(getattr(operation, name) for name in names if hasattr(operation, name))


def convolutions(operation: Any) -> Iterator[tuple[str, Any]]:
    """Yield (large field, operation), with the dimensions of the result adapted."""
    image, window = field_of(operation, IMAGES).dims, field_of(operation, FILTERS).dims
    old = operation.convolution.output_dims(image, window)
    for axis in reversed(range(operation.convolution.rank)):
        for field, values in of_convolution(image[2 + axis], window[2 + axis]):
            convolution = axis_changed(operation.convolution, axis, values)
            dims = convolution.output_dims(image, window)
            changes: dict[str, Any] = {"convolution": convolution}
            for name in (name for name in RESPONSES if getattr(getattr(operation, name, None), "dims", None) == old):
                changes[name] = redimensioned(getattr(operation, name), dims)
            if hasattr(operation, "colBuffer"):
                rows = (dims[0] * prod(dims[2:]), *operation.colBuffer.dims[1:])
                changes["colBuffer"] = redimensioned(operation.colBuffer, rows)
            yield field, replace(operation, **changes)


def graphs(graph: OperationGraph) -> Iterator[tuple[str, OperationGraph]]:
    """Yield (large field, graph). Every convolution changes, and every tensor with the dimensions of its result."""
    node = next(node for node in graph.nodes if isinstance(node, ConvolutionNode))
    image, window, response = node.bound
    images = {n.bound[0].uid for n in graph.nodes if isinstance(n, ConvolutionNode)}
    rank = node.convolution.rank
    for axis in reversed(range(rank)):
        for field, values in of_graph(image.dims[image.rank - rank + axis], window.dims[window.rank - rank + axis]):
            convolution = axis_changed(node.convolution, axis, values)
            sizes = convolution.output_sizes(image.dims[-rank:], window.dims[-rank:])

            def changed(tensor: Any, sizes: tuple[int, ...] = sizes) -> Any:
                same = isinstance(tensor, GraphTensor) and tensor.dims == response.dims and tensor.uid not in images
                return redimensioned(tensor, (*tensor.dims[:-rank], *sizes)) if same else tensor

            nodes = [replace(n, convolution=convolution) if isinstance(n, ConvolutionNode) else n for n in graph.nodes]
            yield field, replace(graph, nodes=tuple(relaid(one, changed) for one in nodes))


def poolings(operation: Any) -> Iterator[tuple[str, Any]]:
    """Yield (large field, pooling), with a result of one or two elements along the axis."""
    for axis in reversed(range(len(operation.pooling.window))):
        for field, values in of_pooling(operation.x.dims[2 + axis], operation.pooling.window[axis]):
            dims = list(operation.y.dims)
            dims[2 + axis] = 2 if field != "stride" and "stride" in values else 1
            tensors = {
                n: redimensioned(getattr(operation, n), tuple(dims)) for n in ("y", "dy") if hasattr(operation, n)
            }
            yield field, replace(operation, pooling=axis_changed(operation.pooling, axis, values), **tensors)


def varied(operation: Any) -> Iterator[tuple[str, Any]]:
    """Yield (large field, operation) for an operation with windows. Its workspace is not sized."""
    if hasattr(operation, "pooling"):
        found = poolings(operation)
    elif hasattr(operation, "convolution"):
        found = convolutions(operation)
    elif isinstance(operation, OperationGraph) and any(isinstance(n, ConvolutionNode) for n in operation.nodes):
        found = graphs(operation)
    else:
        return
    for field, one in found:
        yield field, replace(one, workspace_bytes=0) if hasattr(one, "workspace_bytes") else one


def given(family: str) -> dict[str, list[Any]]:
    """Return solver -> the pinned operations of a family that it serves, small ones first."""
    device, found, known = EmulatedDevice(0), {}, {}
    for path in FOLDER.glob(f"{family}*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            known |= {text: None for text in json.loads(line)["operations"]}
    for operation in sorted(map(parse, known), key=size):
        for solver in possible_solvers(operation, device) if next(varied(operation), None) else ():
            found.setdefault(solver, []).append(operation)
    return found


def size(operation: Any) -> int:
    """Return the bytes of the largest tensor operand."""
    return max(operation.nbytes(name) for name in operation.operands if name not in operation.raw)


def reached(caller: Caller, solver: str, operations: list[Any]) -> set[str]:
    """Judge what a solver computes for varied operations, and return the large fields of the calls that it serves."""
    counts: dict[str, int] = {}
    for field, changed in (variant for operation in operations for variant in varied(operation)):
        if counts.get(field, 0) == LAUNCHED or size(changed) > MAX_BYTES:
            continue
        try:
            ready = sized(caller, changed)
            if solver not in possible_solvers(ready, caller.handle.backend.device):
                continue
            caller.handle.answers.clear()
            with forcing(solver):
                steps = with_workspace(caller.handle, [Step(ready)])
                trial = attempt_chain(caller, steps, 3, before(Drawn((ready,)), 3))
        except CudnnError as error:
            assert error.clause, f"{error} {changed}"
            continue
        assert trial.passed, f"{solver}: {trial.explanation()} {changed}"
        counts[field] = counts.get(field, 0) + 1
    return set(counts)


LONG = (pytest.param(family, marks=pytest.mark.long) for family in ("convolution", "fused_ops"))  # 12 seconds each


@pytest.mark.parametrize("family", [*LONG, "graph", "pooling"])
def test_every_solver_computes_with_the_largest_windows(family):
    """REFUSED lists what a solver does not serve, so that a new solver or a new limit fails here."""
    caller = Caller(cudnn, cudnn.cudnnCreate(backend="accelerated", device="emulated"))
    found, due = {}, {}
    for solver, operations in given(family).items():
        found[solver] = reached(caller, solver, operations[:TRIED])
        named = max((name for name in REFUSED if solver.startswith(name)), key=len, default="")
        due[solver] = (WINDOWS if family == "pooling" else FIELDS) - REFUSED.get(named, set())
    assert found and found == due
