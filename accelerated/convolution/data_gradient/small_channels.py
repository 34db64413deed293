"""Compute gradients with respect to an input of few channels per group (small_channels.cu): all residue classes in one
launch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import c_byte, c_int, c_ubyte
from functools import cached_property
from math import prod

from dualdnn.api.enumerations import cudnnConvolutionBwdDataAlgo_t as Algo
from dualdnn.api.operations import ConvolutionBackwardData, TensorSpec
from dualdnn.api.operations.specs import NHWC

from ...plans import Launch, Plan, factors, fields_of, pointers, structure, type_definitions, with_alignment
from ...primitives.geometry import FastDivmod
from ...primitives.tma import ROW_BYTES
from ...reproducible import Order
from ...runtime.arguments import declared
from ...scalars import fill
from ...solver import Solver, seconds_otherwise
from ..composed import At, ComposedLaunch, ComposedPlan, copied, within
from ..forward import may_use_tensor_cores
from ..problem import VECTOR_BYTES, Rates, channels_last, rounded_up
from .residue_classes import DataGradientProblem

SOURCE = "convolution/data_gradient/small_channels.cu"
THREADS = 128  # threads per block
TILE = 16  # steps of the stride across a tile
COLUMNS = 8  # channels per pass
MAX_CLASSES = 4  # residue classes per block, as in the kernel
MAX_WINDOW = 16  # pixels of dy per step along an axis, as in the kernel
MAX_STRIDE = 8  # residues along an axis, as in the kernel
MAX_TAPS = 32  # taps along an axis, as in the kernel
GROUP_BYTES = (16, 32, 64)  # bytes of dy's channels per group, several of which share a K-block
MAX_PREFERRED = 32  # bytes of these channels; with more, packed products are faster
MAX_OF_GROUP = 32  # channels of dx per group
SHARED_BYTES = 96 * 1024  # maximum bytes per block; every GPU with these tensor cores has them
SWIZZLE_BYTES = 1024  # bytes, alignment of swizzled shared memory
ALIGNMENT = 256  # bytes, to which the copy of the filter is rounded up
# The estimates by these numbers agree with the times of 15 layers on an H200 within a factor of 1.35.
WAITING_SECONDS = 6e-6  # until 128 bytes of dy's channels have arrived
TAP_SECONDS = 0.6e-6  # per tap that multiplies them
RESIDENT = 3  # blocks per multiprocessor


class AxisStruct(ctypes.Structure):
    """Mirror ``Axis`` of small_channels.cu."""

    _fields_ = [
        ("residues", FastDivmod),
        *declared(c_int, "stride extent incoming first window dy_step dx_step taps"),
        ("slot", (c_byte * MAX_STRIDE) * MAX_WINDOW),
        ("tap", (c_ubyte * MAX_TAPS) * MAX_STRIDE),
        ("count", c_ubyte * MAX_STRIDE),
    ]


class Window:
    """Describe the pixels of dy that meet one step of the stride of dx, along one axis.

    ``taps`` maps a residue and a pixel, counted from ``first``, to the tap in the filter's memory. Blocks compute
    ``residues`` of the stride each.
    """

    def __init__(self, operation: ConvolutionBackwardData, axis: int, most: int) -> None:
        c = operation.convolution
        stride, padding, dilation = c.stride[axis], c.padding[axis], c.dilation[axis]
        count = operation.w.dims[2 + axis]
        pairs = {
            (residue, (residue + padding - tap * dilation) // stride): count - 1 - tap if c.is_flipped else tap
            for residue in range(stride)
            for tap in range(count)
            if (residue + padding - tap * dilation) % stride == 0
        }
        self.operation, self.axis, self.stride, self.count = operation, axis, stride, count
        self.first = min(at for _, at in pairs)
        self.size = max(at for _, at in pairs) - self.first + 1
        self.taps = {(residue, at - self.first): tap for (residue, at), tap in pairs.items()}
        self.residues = min(stride, most)

    @property
    def is_known(self) -> bool:
        return self.size <= MAX_WINDOW and self.stride <= MAX_STRIDE and self.count <= MAX_TAPS

    @property
    def parts(self) -> int:
        """Return the parts of the residues, each of which is a block's."""
        return -(-self.stride // self.residues)

    @property
    def tiles(self) -> int:
        steps = -(-self.operation.dx.dims[2 + self.axis] // self.stride)
        return -(-steps // TILE)

    @property
    def inner(self) -> int:
        """Return the pixels of dy that meet a tile."""
        return TILE + self.size - 1

    @cached_property
    def of_parts(self) -> list[list[int]]:
        """Return the taps of each part."""
        found: list[list[int]] = [[] for _ in range(self.parts)]
        for (residue, _), tap in sorted(self.taps.items()):
            if tap not in found[residue // self.residues]:
                found[residue // self.residues].append(tap)
        return found

    def struct(self, dy: TensorSpec) -> AxisStruct:
        axis, o, d = AxisStruct(), self.operation, 2 + self.axis
        fill(
            axis, residues=FastDivmod.of(self.residues), stride=self.stride, extent=o.dx.dims[d], incoming=dy.dims[d],
            first=self.first, window=self.size, dy_step=dy.strides[d], dx_step=o.dx.strides[d], taps=self.count,
        )  # fmt: skip
        for part, taps in enumerate(self.of_parts):
            axis.count[part] = len(taps)
            axis.tap[part][: len(taps)] = taps
        for at in range(self.size):
            for residue in range(self.stride):
                tap = self.taps.get((residue, at))
                axis.slot[at][residue] = -1 if tap is None else self.of_parts[residue // self.residues].index(tap)
        return axis


class SmallChannels:
    """Describe the work of the launch."""

    def __init__(self, operation: ConvolutionBackwardData) -> None:
        o, self.operation = operation, operation
        self.groups = o.convolution.group_count
        self.columns = Window(o, 1, MAX_CLASSES)
        self.rows = Window(o, 0, MAX_CLASSES // self.columns.residues)
        self.k_bytes = o.w.dims[0] // self.groups * o.dy.scalar_bytes if self.groups > 1 else 0
        self.padded = rounded_up(o.w.dims[1], COLUMNS)
        self.k_blocks = -(-self.groups * self.k_bytes // ROW_BYTES) or 1

    @property
    def is_known(self) -> bool:
        o, known = self.operation, self.rows.is_known and self.columns.is_known
        fits = self.k_bytes in GROUP_BYTES if self.groups > 1 else True
        few = o.w.dims[1] <= (MAX_OF_GROUP if self.groups > 1 else COLUMNS)
        return known and fits and few and self.shared_bytes <= SHARED_BYTES

    @cached_property
    def taps(self) -> int:
        """Return the taps that a block meets, at most."""
        return max(map(len, self.rows.of_parts)) * max(map(len, self.columns.of_parts))

    @cached_property
    def results_at(self) -> int:
        """Return the offset of the results in shared memory, behind the data that groups still read, in bytes."""
        copied = rounded_up(self.rows.inner * self.columns.inner, COLUMNS) + self.taps * self.padded
        return copied * ROW_BYTES

    @property
    def shared_bytes(self) -> int:
        results = TILE * TILE * self.rows.residues * self.columns.residues * min(COLUMNS, self.operation.w.dims[1]) * 4
        return SWIZZLE_BYTES + (self.results_at + results if self.k_bytes else max(self.results_at, results))

    @property
    def blocks(self) -> int:
        tiles = self.rows.tiles * self.columns.tiles * self.rows.parts * self.columns.parts
        return self.operation.dx.dims[0] * tiles * self.k_blocks

    @property
    def passes(self) -> int:
        """Return the passes of a block."""
        return ROW_BYTES // self.k_bytes * self.padded // COLUMNS if self.k_bytes else 1

    @property
    def filters(self) -> tuple[TensorSpec, TensorSpec]:
        """Return the filter as (taps, input channels of a group, output channels), and its copy."""
        o = self.operation
        (filters, channels, rows, columns), (filter_step, channel_step, *steps) = o.w.dims, o.w.tensor.strides
        dims = (rows, columns, channels, filters)
        source = TensorSpec(o.w.data_type, dims, (*steps, channel_step, filter_step))
        tap = self.padded * filters
        return source, TensorSpec(o.w.data_type, dims, (columns * tap, tap, filters, 1))

    @property
    def filter_bytes(self) -> int:
        o = self.operation
        return rounded_up(prod(o.w.dims[2:]) * self.padded * o.w.dims[0] * o.w.tensor.scalar_bytes, ALIGNMENT)


class DataGradientSmallChannels(Solver[DataGradientProblem]):
    """Serve ALGO_1 on tensor cores in two dimensions: up to 8 channels, or groups of 16 to 64 bytes of channels."""

    name = "convolution.data_gradient_small_channels"

    def serves(self, problem: DataGradientProblem) -> bool:
        o, c = problem.operation, problem.operation.convolution
        if o.algo != Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 or c.rank != 2 or not problem.in_one_launch:
            return False
        if not may_use_tensor_cores(c, o.dy.data_type, problem.device) or not self._is_near(o):
            return False
        if o.dy.dims[1] * o.dy.scalar_bytes % VECTOR_BYTES or not (problem.aligned or "dy" in self._copies(problem)):
            return False
        return SmallChannels(o).is_known

    def _is_near(self, o: ConvolutionBackwardData) -> bool:
        """Return whether tables are small enough to be made."""
        return max(o.convolution.stride) <= MAX_STRIDE and max(o.w.dims[2:]) <= MAX_TAPS

    def applies(self, problem: DataGradientProblem) -> bool:
        # Fewer channels of dy or taps are not worth the copy of the filter. Groups without a stride are packed.
        o, c = problem.operation, problem.operation.convolution
        if not self.serves(problem) or prod(o.w.dims[2:]) == 1:
            return False
        worth = o.dy.dims[1] * o.dy.scalar_bytes >= ROW_BYTES // 2
        if c.group_count > 1:
            worth = prod(c.stride) > 1 and o.w.dims[1] > 1 and SmallChannels(o).k_bytes <= MAX_PREFERRED
        return worth and self.estimated_seconds(problem) < seconds_otherwise(self, problem)

    def _copies(self, problem: DataGradientProblem) -> dict[str, TensorSpec]:
        """Return dy with channels innermost, unless it already has this layout."""
        dy = problem.operation.dy
        apart = (step for step, extent in zip(dy.strides, dy.dims, strict=True) if extent > 1 and step > 1)
        if channels_last(dy) and all(step * dy.scalar_bytes % VECTOR_BYTES == 0 for step in apart):
            return {}
        return {"dy": TensorSpec.packed(dy.data_type, dy.dims, NHWC)}

    def workspace_bytes(self, problem: DataGradientProblem) -> int:
        copies = sum(spec.nbytes for spec in self._copies(problem).values())
        return with_alignment(SmallChannels(problem.operation).filter_bytes + copies)

    def alignment(self, problem: DataGradientProblem) -> Mapping[str, int]:
        return {} if "dy" in self._copies(problem) else {"dy": VECTOR_BYTES}

    def summation_order(self, problem: DataGradientProblem) -> Order:
        made = SmallChannels(problem.operation)
        return Order("wgmma", (problem.operation.dx.scalar_type, "pixels of the window, channels", made.k_bytes))

    def estimated_seconds(self, problem: DataGradientProblem) -> float:
        o, made = problem.operation, SmallChannels(problem.operation)
        moved = o.dy.nbytes + o.dx.nbytes + sum(2 * spec.nbytes for spec in self._copies(problem).values())
        k_blocks = 1 if made.k_bytes else -(-o.w.dims[0] * o.dy.scalar_bytes // ROW_BYTES)
        of_block = k_blocks * (WAITING_SECONDS + TAP_SECONDS * made.taps * made.passes)
        computing = of_block * max(1.0, made.blocks / (RESIDENT * problem.device.multiprocessors))
        return 3 * Rates.LAUNCH + moved / Rates.BANDWIDTH + computing

    def plan(self, problem: DataGradientProblem) -> Plan:
        o, device, made = problem.operation, problem.device, SmallChannels(problem.operation)
        source, target = made.filters
        launches: list[ComposedLaunch] = within([copied(source, target, device)], {"x": At("w"), "y": At("workSpace")})
        dy, incoming = At("dy"), o.dy
        for copy in self._copies(problem).values():
            dy, incoming = At("workSpace", made.filter_bytes), copy
            launches += within([copied(o.dy, copy, device)], {"x": At("dy"), "y": dy})
        launches += within([self._launch(problem, made, incoming)], {"w": At("workSpace"), "dy": dy, "dx": At("dx")})
        return ComposedPlan(o, launches, self.name)

    def _launch(self, problem: DataGradientProblem, made: SmallChannels, dy: TensorSpec) -> Launch:
        o, axes = problem.operation, (made.rows, made.columns)
        last = o.dx.strides[1] == 1 and o.dx.dims[1] > 1
        arguments = structure(
            *pointers(3),
            *factors(o, alpha=o.alpha, beta=o.beta),
            *fields_of(c_int, dy_image=dy.strides[0], dx_image=o.dx.strides[0], dx_channel=o.dx.strides[1]),
            *fields_of(c_int, channels_last=last, filters=dy.dims[1], k_bytes=made.k_bytes),
            *fields_of(c_int, group_channels=o.w.dims[1], groups=made.groups),
            ("results_at", c_int(made.results_at if made.k_bytes else 0)),
            ("axes", (AxisStruct * 2)(*(axis.struct(dy) for axis in axes))),
            ("tiles", (FastDivmod * 2)(*(FastDivmod.of(axis.tiles) for axis in axes))),
            ("parts", (FastDivmod * 2)(*(FastDivmod.of(axis.parts) for axis in axes))),
            *fields_of(FastDivmod.of, k_blocks=made.k_blocks, inner_columns=made.columns.inner, padded=made.padded),
        )
        numbers = {"THREADS": THREADS, "MAX_CLASSES": MAX_CLASSES, "MAX_WINDOW": MAX_WINDOW}
        definitions = type_definitions(o.dx.scalar_type, o, **{name: str(value) for name, value in numbers.items()})
        function = problem.device.function(SOURCE, "convolution_data_gradient_small_channels", definitions)
        return Launch(function, arguments, ("w", "dy", "dx"), (made.blocks, 1, 1), (THREADS, 1, 1), made.shared_bytes)
