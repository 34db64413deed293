"""List the kernels to compile before anything calls them, and compile them in parallel, with progress.

``dualdnn build`` (command.py) builds the modules of everything that is timed. For every family and data type, it also builds the kernels that take
any shape. Modules that are specialised for a shape (a pooling window, strips of a depthwise convolution) and not timed
are compiled on first use.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import product
from typing import Any, NamedTuple, cast

from dualdnn.accelerated.fused_ops.problem import RANKS
from dualdnn.accelerated.plans import AlignedPlan, plan, workspace_bytes
from dualdnn.accelerated.runtime.compiler import compile_all
from dualdnn.accelerated.runtime.emulated.toolchain import ONE_KERNEL
from dualdnn.accelerated.runtime.listing import Listing, Module
from dualdnn.accelerated.solver import SOLVER_FAMILIES, plan_by, possible_solvers
from dualdnn.api.cudnn.dropout import TYPES as DROPOUT_TYPES
from dualdnn.api.cudnn.normalization.lrn import TYPES as LRN_TYPES
from dualdnn.api.cudnn.pooling import BACKWARD_TYPES, FORWARD_TYPES
from dualdnn.api.cudnn.spatial_transformer import TYPES as TRANSFORMER_TYPES
from dualdnn.api.cudnn.transform import CONVERTED, NOT_CONVERTED
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t
from dualdnn.api.operations import (
    BackendError,
    DropoutBackward,
    DropoutForward,
    LRNCrossChannelBackward,
    LRNCrossChannelForward,
    Operation,
    PoolingBackward,
    PoolingForward,
    ReduceTensor,
    SpatialTfGridGeneratorBackward,
    SpatialTfGridGeneratorForward,
    SpatialTfSamplerBackward,
    SpatialTfSamplerForward,
    TensorSpec,
    TransformTensor,
)
from dualdnn.api.operations.rnn import RNNDataSpec
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32, NCHW, NHWC, SCALAR_BYTES, UINT8
from dualdnn.api.support.convolution import Problem, unsupported

from ..bench.attention_rows import attention_kinds
from ..bench.convolution_rows import Layer, convolution, data_gradient, filter_gradient
from ..bench.fused_rows import small_fused
from ..bench.rnn_rows import rnn_kinds
from ..bench.row import Convolution, Row
from ..bench.rows import LAYOUTS, OPERATIONS, lrn, reduce, rows, sampler, softmax
from ..progress import Bar
from .convolution_kinds import convolutions, filters_and_matrices, gradients, small_convolutions
from .graph_kinds import graphs

# Its arguments are a compiled module, the number of compiled modules, and the total.
Progress = Callable[[Any, int, int], None]
TYPES = (FLOAT, HALF, BFLOAT16, DOUBLE, INT8)
TRANSFORMERS = (
    SpatialTfGridGeneratorBackward,
    SpatialTfGridGeneratorForward,
    SpatialTfSamplerBackward,
    SpatialTfSamplerForward,
)
# These operations take fewer types.
TAKEN = {
    PoolingForward: FORWARD_TYPES,
    PoolingBackward: BACKWARD_TYPES,
    **dict.fromkeys((DropoutForward, DropoutBackward), DROPOUT_TYPES),
    **dict.fromkeys(TRANSFORMERS, TRANSFORMER_TYPES),
    **dict.fromkeys((LRNCrossChannelForward, LRNCrossChannelBackward), LRN_TYPES),
}
TYPE_DEFINITIONS = {"ELEMENT", "COMPUTE", "SOURCE", "RESULT", "VECTOR_BYTES", "PARAMETER"}
# Host and device share these constants; each has one value in each source.
CONSTANTS = {
    "BACKWARD_SINGLES", "CHUNK", "COUNTERS", "FORWARD_SINGLES", "GROUP", "MAX_CLASSES", "MAX_LABEL", "MAX_TILES", "MAX_WINDOW",
    "OPERANDS", "VECTORS", "PIECES", "PLANE_THREADS", "ROWS", "STAGES", "STEP", "THREADS", "TILE", "WIDTH",
}  # fmt: skip
# These have few values for all shapes: operand orders, cells and tiles of recurrent networks, and elements per thread
# of dropout and the spatial transformer. Others count groups, filters, channels and taps of a lane.
VARIANTS = {
    ONE_KERNEL, "A_MN_MAJOR", "B_MN_MAJOR", "CELL", "CHANNELS", "DIVIDED", "DRAWS", "FILTERS", "FILTERS_MN_MAJOR", "FROM_REGISTERS", "JOINED",
    "FUSED", "GROUPS", "IMAGES", "ITEMS",
    "LANE_WIDTH", "LENGTHS", "LOADED_PAIRS", "MAPPED", "MAX_LANES", "M_TILES", "N_TILES", "OCTETS", "VECTOR_WIDTH", "CLUSTER_BLOCKS", "PITCHES", "PIXELS",
    "PLANE_BLOCKS", "RANK", "REGISTER_PAIRS",
    "TAPS", "TENSOR_CORES", "TF32", "TILE_PIXELS", "TILE_WIDTH", "TRANSPOSED_RESULT", "WORDS",
}  # fmt: skip
# Any shape may need these variants, even if no planned operation has them.
CLOSED: dict[str, dict[str, Iterable[Any]]] = {
    "convolution/depthwise/windows.cu": {"CHANNELS": "124"},
    **{f"gemm/{name}.cu": {"A_MN_MAJOR": "01", "B_MN_MAJOR": "01"} for name in ("matrix", "matrix_fp32")},
    **{f"fused_ops/{name}.cu": {"RANK": RANKS} for name in ("scale_bias", "channel_sums", "gradient")},
}
# Any shape may need the modules of a source with one more definition.
ADDED = {"convolution/implicit_gemm/tma.cu": "DIVIDED"}
# These sources take longest and are compiled first, so that the last module does not keep all cores waiting.
SLOW = (
    "convolution/implicit_gemm/fp32.cu",
    "convolution/implicit_gemm/tma.cu",
    "gemm/matrix_tma.cu",
    "reduce_tensor/generic.cu",
    "convolution/implicit_gemm/simt.cu",
    "convolution/implicit_gemm/mma.cu",
)
# These solvers launch the kernels of a step repeatedly; only STEPS steps of them are planned.
STEP_BY_STEP = {"rnn.recurrence", "rnn.gradient"}
STEPS = 4
SMALL_SHAPES = ((2, 8, 6, 6), (2, 8, 4, 6, 6))
# Clusters of two or eight blocks share these rows. The larger tensors are loaded with another policy.
LONG_ROWS = ((256, 96 * 1024), (400, 96 * 1024), (100, 512 * 1024))  # rows, and bytes of each
GENERIC_SHAPES = ((3, 5, 7, 9), (2, 8, 6, 6), (64, 64, 56, 56), (1, 4096, 1, 1), (4096, 4, 1, 1))
FEW_CHANNELS = tuple((2, channels, *size) for channels in (1, 2, 3, 4, 8) for size in ((7, 9), (128, 128)))
WINDOWS = range(1, 17)  # channels of a window of LRN


class Listed(NamedTuple):
    """Hold the modules of timed operations, of generic solvers, and of all solvers of small operations."""

    timed: Iterable[Module]
    generic: Iterable[Module]
    general: Iterable[Module]

    @property
    def wanted(self) -> list[Module]:
        """Return the modules to build. Of the ``general`` ones, only those that take any shape are built."""
        found = [*self.timed, *self.generic, *filter(takes_any_shape, self.general)]
        return longest_first(dict.fromkeys(made for module in found for made in closed(module)))


def listed(device: Any) -> Listed:
    """Return the modules of every family and data type."""
    fast, generic, general = Listing(device), Listing(device), Listing(device)
    for operation in timed(device, rows()):
        plan(operation, fast)
    small = list(kinds(device))
    for operation in (*small, *generic_kinds()):
        SOLVER_FAMILIES[type(operation)].generic_plan(operation, generic)
    for operation in small:
        for solver in possible_solvers(operation, general):  # Solvers for other sizes are included.
            made = plan_by(operation, general, solver)
            if isinstance(made, AlignedPlan):
                made.fallback()
    return Listed(fast.modules, generic.modules, general.modules)


def wanted_modules(device: Any) -> list[Module]:
    """Return the modules of timed operations, and those that take any shape, of every family and data type."""
    return listed(device).wanted


def closed(module: Module) -> Iterator[Module]:
    """Yield a module, and its variants by the definitions in CLOSED and ADDED."""
    source, definitions = module
    if added := ADDED.get(source):
        yield source, tuple(sorted({*definitions, (added, "1")}))
    free = CLOSED.get(source, {})
    for values in product(*free.values()):
        chosen = dict(zip(free, map(str, values), strict=True))
        yield source, tuple((name, chosen.get(name, value)) for name, value in definitions)


def longest_first(modules: Iterable[Module]) -> list[Module]:
    """Return modules in the order of compilation, the slowest sources first."""
    return sorted(modules, key=lambda module: SLOW.index(module[0]) if module[0] in SLOW else len(SLOW))


def takes_any_shape(module: Module) -> bool:
    """Return whether a module depends only on data types and on definitions with few values, not on a shape."""
    return (TYPE_DEFINITIONS | CONSTANTS | VARIANTS).issuperset(name for name, _ in module[1])


def timed(device: Any, wanted: Iterable[Row]) -> Iterator[Operation]:
    """Yield what ``dualdnn bench`` times of these rows.

    Convolutions come with every algorithm, because bench searches for the best.
    """
    for row in wanted:
        yield from (with_workspace(call.operation, device) for call in row.separate)
        found = with_every_algorithm(row.operation) if isinstance(row.operation, Convolution) else [row.operation]
        for operation in found:
            yield (
                with_workspace(operation, device)
                if isinstance(operation, Convolution)
                else of_few_steps(operation, device)
            )


def of_few_steps(operation: Any, device: Any) -> Any:
    """Return the operation with a few steps if its recurrence is launched step by step: all steps launch the
    same kernels.
    """
    sequences = {name: part for name, part in vars(operation).items() if isinstance(part, RNNDataSpec)}
    if not sequences or type(operation) not in SOLVER_FAMILIES:
        return operation
    family = SOLVER_FAMILIES[type(operation)]
    if family.solver(family.problem(operation, device)).name not in STEP_BY_STEP:
        return operation
    shorter = {
        name: replace(part, max_length=min(part.max_length, STEPS), lengths=tuple(min(n, STEPS) for n in part.lengths))
        for name, part in sequences.items()
    }
    return replace(operation, **shorter)


def kinds(device: Any) -> Iterator[Operation]:
    """Yield small operations that together use every source in every data type."""
    for make, _ in OPERATIONS.values():
        for dims, data_type, layout in product(SMALL_SHAPES, TYPES, LAYOUTS):
            operation = make(data_type, dims, layout)
            if data_type in TAKEN.get(type(operation), TYPES):
                yield operation
    yield from conversions()
    yield from reductions()
    yield from strided_rows()
    yield from small_groups()
    yield from small_fused()
    yield from filters_and_matrices()
    yield from attention_kinds()
    yield from rnn_kinds()
    yield from graphs()
    for operation in (*convolutions(), *small_convolutions(), *gradients()):
        yield with_workspace(operation, device)


def with_workspace(operation: Any, device: Any) -> Any:
    """Return the operation with the workspace that its plan asks for; unchanged without a workspace."""
    if "workspace_bytes" not in {field.name for field in fields(operation)}:
        return operation
    return replace(operation, workspace_bytes=workspace_bytes(operation, device))


def generic_kinds() -> Iterator[Operation]:
    """Yield operations for which generic solvers have more modules.

    They cover every window, other exponents, few and many channels, and large tensors.
    """
    windows = [lrn(n, backward, beta) for n, backward, beta in product(WINDOWS, (False, True), (0.75, 0.5))]
    samplers = [sampler(False), sampler(True)]
    for backward, (count, nbytes), data_type in product((False, True), LONG_ROWS, TYPES):
        yield softmax("INSTANCE", backward)(data_type, (count, nbytes // SCALAR_BYTES[data_type], 1, 1), "nchw")
    for make in (*windows, *samplers, *(make for make, _ in OPERATIONS.values())):
        shapes = FEW_CHANNELS if make in samplers else GENERIC_SHAPES[:1] if make in windows else GENERIC_SHAPES
        for dims, data_type, layout in product(shapes, TYPES, LAYOUTS):
            operation = make(data_type, dims, layout)
            if data_type in TAKEN.get(type(operation), TYPES):
                yield operation


def reductions() -> Iterator[ReduceTensor]:
    """Yield sums with vectors of every width, into their own type and float, to one result and to a few."""
    for extent, data_type, kept in product((1, 2, 4, 8, 16), TYPES, ((), (0,), (1,), (3,))):
        made = cast(ReduceTensor, reduce("ADD", kept)(data_type, (4, 7, 9, extent), "nchw"))
        for result, compute in {(data_type, FLOAT), (FLOAT, FLOAT), (data_type, DOUBLE)}:
            spec = replace(made.reduction, compute_type=compute)
            yield replace(made, reduction=spec, C=replace(made.C, data_type=result))


def strided_rows() -> Iterator[Operation]:
    """Yield softmax over a few and more channels, whose planes hold vectors of every width."""
    shapes = product((3, 20), ((7, 9), (5, 6), (6, 6)), TYPES, (False, True))
    for channels, size, data_type, backward in shapes:
        yield softmax("CHANNEL", backward)(data_type, (2, channels, *size), "nchw")


def small_groups() -> Iterator[Operation]:
    """Yield grouped convolutions and their gradients with few channels and filters, which threads multiply at once."""
    counts = product((1, 2, 4), (1, 2, 4), (1, 2, 4), (FLOAT, HALF, BFLOAT16, DOUBLE))
    for channels, filters, groups, data_type in counts:
        o = convolution(Layer(2, channels * groups, 6, filters * groups, 3, 2, groups), "float", NCHW)
        spec = replace(o.convolution, compute_type=DOUBLE if data_type == DOUBLE else FLOAT)
        x, y = (replace(tensor, data_type=data_type) for tensor in (o.x, o.y))
        plain = replace(o, convolution=spec, x=x, w=replace(o.w, data_type=data_type), y=y)
        yield from (plain, data_gradient(plain), filter_gradient(plain))


def conversions() -> Iterator[Operation]:
    """Yield transforms from one data type to another or to itself."""
    pairs = [pair for pair in product(CONVERTED, CONVERTED) if pair not in NOT_CONVERTED]
    for source, destination in [*pairs, (UINT8, UINT8), (INT32, INT32)]:
        x, y = (TensorSpec.packed(data_type, SMALL_SHAPES[0]) for data_type in (source, destination))
        yield TransformTensor(1.0, 0.0, x, y)
        yield TransformTensor(1.0, 0.0, x, TensorSpec.packed(destination, SMALL_SHAPES[0], NHWC))


def with_every_algorithm(convolution: Convolution) -> Iterator[Convolution]:
    """Yield the convolution with each algorithm that the support tables list for it."""
    problem = Problem(convolution.convolution, convolution.x, convolution.w, convolution.y)
    for algorithm in cudnnConvolutionFwdAlgo_t:
        if unsupported(problem, algorithm) is None:
            yield replace(convolution, algo=algorithm)


def shown_progress() -> Progress:
    """Return a function that shows compiled modules and the time left on standard error."""
    bar = Bar("modules", stream=sys.stderr)

    def show(built: Any, done: int, total: int) -> None:
        bar.total = total
        bar.advance(done, f"{built!s:.60}")
        if done == total:
            bar.clear()

    return show


def build(modules: Sequence[Module], device: Any, jobs: int | None = None) -> None:
    """Compile modules in parallel, with progress on standard error."""
    started = time.perf_counter()
    compile_all(modules, device.architecture, jobs, shown_progress())
    print(f"{len(modules)} modules for {device.architecture} in {time.perf_counter() - started:.1f} s", file=sys.stderr)


def build_timed(wanted: Iterable[Row], device: Any) -> None:
    """Compile the modules of these benchmark rows, so that nothing is compiled while times are measured."""
    listing = Listing(device)
    for operation in timed(device, wanted):
        with contextlib.suppress(BackendError, ValueError):  # The row later reports why it has no time.
            plan(operation, listing)
    build(list(listing.modules), device)
