"""Compute gradients with respect to an input of few channels (small_channels.cu): all residue classes in one launch."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_byte, c_int
from math import prod
from typing import Any

from dualdnn.api.enumerations import cudnnConvolutionBwdDataAlgo_t as Algo
from dualdnn.api.operations import ConvolutionBackwardData, TensorSpec
from dualdnn.api.operations.specs import NHWC

from ...plans import Launch, Plan, arrays_of, factors, fields_of, pointers, structure, type_definitions, with_alignment
from ...primitives.geometry import FastDivmod
from ...primitives.tma import ROW_BYTES
from ...reproducible import Order
from ...solver import Solver
from ..composed import At, ComposedLaunch, ComposedPlan, copied, within
from ..forward import may_use_tensor_cores
from ..problem import VECTOR_BYTES, Rates, channels_last, rounded_up
from .residue_classes import DataGradient, DataGradientProblem

SOURCE = "convolution/data_gradient/small_channels.cu"
THREADS = 128
TILE = 16  # steps of the stride across a tile
COLUMNS = 8  # channels per tile
MAX_CLASSES = 4  # residue classes, as in the kernel
MAX_WINDOW = 64  # pixels of dy per step, as in the kernel
SWIZZLE_BYTES = 1024
ALIGNMENT = 256
OPERATIONS_PER_SECOND = 250e12  # per second, with all 8 columns


class Window:
    """Describe the pixels of dy that meet one step of the stride of dx, along one axis.

    ``taps[at][residue]`` is the tap of pixel ``first`` + at, in the filter's memory, or -1.
    """

    def __init__(self, operation: ConvolutionBackwardData, axis: int) -> None:
        c = operation.convolution
        stride, padding, dilation = c.stride[axis], c.padding[axis], c.dilation[axis]
        count = operation.w.dims[2 + axis]
        pairs = {
            (residue, (residue + padding - tap * dilation) // stride): count - 1 - tap if c.is_flipped else tap
            for residue in range(stride)
            for tap in range(count)
            if (residue + padding - tap * dilation) % stride == 0
        }
        self.first = min(at for _, at in pairs)
        self.size = max(at for _, at in pairs) - self.first + 1
        self.taps = [[pairs.get((r, self.first + at), -1) for r in range(stride)] for at in range(self.size)]


class DataGradientSmallChannels(Solver[DataGradientProblem]):
    """Serve ALGO_1 on tensor cores in two dimensions, up to 8 channels, strides of up to four residue classes."""

    name = "convolution.data_gradient_small_channels"

    def serves(self, problem: DataGradientProblem) -> bool:
        o, c = problem.operation, problem.operation.convolution
        if o.algo != Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 or c.rank != 2 or c.group_count > 1:
            return False
        small = o.dx.dims[1] <= COLUMNS and prod(c.stride) <= MAX_CLASSES and prod(o.w.dims[2:]) <= MAX_WINDOW
        if not small or not may_use_tensor_cores(c, o.dy.data_type, problem.device) or not problem.in_one_launch:
            return False
        if o.dy.dims[1] * o.dy.scalar_bytes % VECTOR_BYTES or not (problem.aligned or "dy" in self._copies(problem)):
            return False
        return prod(window.size for window in self._windows(o)) <= MAX_WINDOW

    def applies(self, problem: DataGradientProblem) -> bool:
        # Fewer channels of dy or taps are not worth the copy of the filter.
        o = problem.operation
        return self.serves(problem) and o.dy.dims[1] * o.dy.scalar_bytes >= ROW_BYTES // 2 and prod(o.w.dims[2:]) > 1

    def _windows(self, o: ConvolutionBackwardData) -> tuple[Window, Window]:
        return Window(o, 0), Window(o, 1)

    def _shared_bytes(self, o: ConvolutionBackwardData) -> int:
        down, across = (TILE + window.size - 1 for window in self._windows(o))
        copied_rows = rounded_up(down * across, COLUMNS) + prod(o.w.dims[2:]) * COLUMNS
        results = TILE * TILE * prod(o.convolution.stride) * o.dx.dims[1] * 4
        return SWIZZLE_BYTES + max(copied_rows * ROW_BYTES, results)

    def _copies(self, problem: DataGradientProblem) -> dict[str, TensorSpec]:
        """Return dy with channels innermost, unless it already has this layout."""
        dy = problem.operation.dy
        apart = (step for step, extent in zip(dy.strides, dy.dims, strict=True) if extent > 1 and step > 1)
        if channels_last(dy) and all(step * dy.scalar_bytes % VECTOR_BYTES == 0 for step in apart):
            return {}
        return {"dy": TensorSpec.packed(dy.data_type, dy.dims, NHWC)}

    def _filter(self, o: ConvolutionBackwardData) -> tuple[TensorSpec, TensorSpec]:
        """Return the filter as (taps, input channels, output channels), and its copy."""
        (filters, channels, rows, columns), (filter_step, channel_step, *steps) = o.w.dims, o.w.tensor.strides
        dims = (rows, columns, channels, filters)
        source = TensorSpec(o.w.data_type, dims, (*steps, channel_step, filter_step))
        tap = COLUMNS * filters
        return source, TensorSpec(o.w.data_type, dims, (columns * tap, tap, filters, 1))

    def _filter_bytes(self, o: ConvolutionBackwardData) -> int:
        return rounded_up(prod(o.w.dims[2:]) * COLUMNS * o.w.dims[0] * o.w.tensor.scalar_bytes, ALIGNMENT)

    def workspace_bytes(self, problem: DataGradientProblem) -> int:
        copies = sum(spec.nbytes for spec in self._copies(problem).values())
        used = with_alignment(self._filter_bytes(problem.operation) + copies)
        if not self.alignment(problem):
            return used
        # Where dy is not aligned, the solver of residue classes serves, which copies its own filters.
        return max(used, DataGradient().workspace_bytes(DataGradientProblem(problem.operation, problem.device, False)))

    def alignment(self, problem: DataGradientProblem) -> Mapping[str, int]:
        return {} if "dy" in self._copies(problem) else {"dy": VECTOR_BYTES}

    def summation_order(self, problem: DataGradientProblem) -> Order:
        return Order("wgmma", (problem.operation.dx.scalar_type, "pixels of the window, 128 bytes of channels"))

    def estimated_seconds(self, problem: DataGradientProblem) -> float:
        o = problem.operation
        copied_bytes = sum(2 * spec.nbytes for spec in self._copies(problem).values())
        steps = prod(-(-extent // step) for extent, step in zip(o.dx.dims[2:], o.convolution.stride, strict=True))
        operations = 2.0 * o.dy.dims[0] * steps * COLUMNS * prod(o.w.dims[2:]) * o.w.dims[0]
        computing = operations * o.dy.scalar_bytes / 2 / OPERATIONS_PER_SECOND
        return 3 * Rates.LAUNCH + copied_bytes / Rates.BANDWIDTH + computing + o.dy.nbytes / Rates.BANDWIDTH

    def plan(self, problem: DataGradientProblem) -> Plan:
        o, device = problem.operation, problem.device
        source, target = self._filter(o)
        launches: list[ComposedLaunch] = within([copied(source, target, device)], {"x": At("w"), "y": At("workSpace")})
        dy, incoming = At("dy"), o.dy
        for made in self._copies(problem).values():
            dy, incoming = At("workSpace", self._filter_bytes(o)), made
            launches += within([copied(o.dy, made, device)], {"x": At("dy"), "y": dy})
        launches += within([self._launch(problem, incoming)], {"w": At("workSpace"), "dy": dy, "dx": At("dx")})
        return ComposedPlan(o, launches, self.name)

    def _launch(self, problem: DataGradientProblem, dy: TensorSpec) -> Launch:
        o, c, windows = problem.operation, problem.operation.convolution, self._windows(problem.operation)
        steps = [-(-extent // step) for extent, step in zip(o.dx.dims[2:], c.stride, strict=True)]
        table: Any = ((c_byte * MAX_CLASSES) * MAX_WINDOW)()
        for i in range(MAX_WINDOW * MAX_CLASSES):
            table[i // MAX_CLASSES][i % MAX_CLASSES] = -1
        down, across = windows
        for v in range(down.size):
            for u in range(across.size):
                for i in range(prod(c.stride)):
                    row, column = down.taps[v][i // c.stride[1]], across.taps[u][i % c.stride[1]]
                    if min(row, column) >= 0:
                        table[v * across.size + u][i] = row * o.w.dims[3] + column
        pair = c_int * 2
        rows, columns = (-(-count // TILE) for count in steps)
        arguments = structure(
            *pointers(3),
            *factors(o, alpha=o.alpha, beta=o.beta),
            ("dy_image", c_int(dy.strides[0])),
            ("dy_axis", pair(*dy.strides[2:])),
            *fields_of(c_int, filters=dy.dims[1], dx_image=o.dx.strides[0], dx_channel=o.dx.strides[1]),
            *arrays_of(pair, dx_axis=o.dx.strides[2:], extent=o.dx.dims[2:], incoming=dy.dims[2:], stride=c.stride),
            *fields_of(c_int, channels=o.dx.dims[1], channels_last=o.dx.strides[1] == 1 and o.dx.dims[1] > 1),
            *arrays_of(pair, first=(window.first for window in windows), window=(window.size for window in windows)),
            ("taps", c_int(prod(o.w.dims[2:]))),
            ("tap", table),
            *fields_of(FastDivmod.of, rows=rows, columns=columns, inner_columns=TILE + across.size - 1),
        )
        definitions = type_definitions(
            o.dx.scalar_type, o, THREADS=str(THREADS), MAX_CLASSES=str(MAX_CLASSES), MAX_WINDOW=str(MAX_WINDOW)
        )
        function = problem.device.function(SOURCE, "convolution_data_gradient_small_channels", definitions)
        grid = (o.dx.dims[0] * rows * columns, 1, 1)
        return Launch(function, arguments, ("w", "dy", "dx"), grid, (THREADS, 1, 1), self._shared_bytes(o))
