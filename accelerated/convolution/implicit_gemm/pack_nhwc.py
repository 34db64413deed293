"""Copy filter and image with channels innermost, and multiply them on tensor cores.

An image or filter with another layout is copied to the workspace if the product is long enough to repay the copy.
Padded channels are zero in both copies, because NaN times zero would be NaN. Results in NCHW that TMA cannot write also
pass through the workspace, in NHWC.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from dualdnn.api.operations import FilterSpec, TensorSpec, TransformTensor
from dualdnn.api.operations.specs import NHWC

from ...plans import Launch
from ...primitives.tma import ROW_BYTES
from ...reproducible import Order
from ...transform.plan import launch, padded
from ..forward import IMPLICIT, IMPLICIT_PRECOMP_GEMM, ConvolutionProblem, ConvolutionSolver
from ..problem import (
    MAX_OFFSET,
    VECTOR_BYTES,
    Convolution,
    ConvolutionStruct,
    Rates,
    blend,
    describe,
    mark_vectors,
    rounded_up,
    with_result,
)
from .products import kernel_of, product_launch
from .tma import stores_planes_sooner

ALIGNMENT = 256
MIN_CHANNELS = 8  # per group; with fewer, copies would be mostly padding
# MIN_PRODUCTS bounds the products per value of x from which a copy saves time. A copy moves two values (about 1 ps at
# the bandwidth of an H200). A product takes 4 fs on its tensor cores.
MIN_PRODUCTS = 128


@dataclass(frozen=True)
class Copies:
    """Describe image and filter with the channels of a group innermost. Sizes and offsets are in bytes. An image with
    this layout is not copied.
    """

    problem: ConvolutionProblem

    @property
    def operation(self) -> Convolution:
        return self.problem.operation

    @cached_property
    def channels(self) -> int:
        """Return the channels of a group, without padding."""
        return self.operation.w.dims[1]

    @cached_property
    def padded_channels(self) -> int:
        """Return the channels of a group, with padding."""
        return rounded_up(self.channels, VECTOR_BYTES // self.operation.x.scalar_bytes)

    @cached_property
    def taps(self) -> int:
        """Return the spatial elements of a filter."""
        return prod(self.operation.w.dims[2:])

    @cached_property
    def x(self) -> TensorSpec:
        o = self.operation
        dims = (o.x.dims[0], o.convolution.group_count * self.padded_channels, *o.x.dims[2:])
        return TensorSpec.packed(o.x.data_type, dims, NHWC)

    @cached_property
    def w(self) -> FilterSpec:
        dims = self.operation.w.dims
        return FilterSpec(self.operation.w.data_type, NHWC, (dims[0], self.padded_channels, *dims[2:]))

    @cached_property
    def transposes_result(self) -> bool:
        """Return whether the product writes channels innermost, and a second kernel transposes them to NCHW."""
        y = self.operation.y
        in_planes = y.dims[1] > 1 and y.strides[1] != 1 and min(y.strides[2:]) == 1
        if not in_planes or prod(y.dims[2:]) * y.scalar_bytes % ROW_BYTES == 0 or blend(self.operation)[1] != 0:
            return False
        x = self.operation.x if self.image_lies_well else self.x
        planes, last = (self.problem.product(self._with(x, result)) for result in (y, self._last))
        return not stores_planes_sooner(planes, last, y.nbytes)

    @property
    def _last(self) -> TensorSpec:
        """Return y with channels innermost."""
        y = self.operation.y
        return TensorSpec.packed(y.data_type, y.dims, NHWC)

    @cached_property
    def y(self) -> TensorSpec:
        """Return the tensor that the product writes."""
        return self._last if self.transposes_result else self.operation.y

    def _with(self, x: TensorSpec, y: TensorSpec) -> ConvolutionStruct:
        o = self.operation
        value = with_result(describe(o.convolution, x, self.w, o.y.dims), y)
        return mark_vectors(value, o.convolution.group_count, o.x.scalar_bytes)

    @cached_property
    def image_lies_well(self) -> bool:
        return self.padded_channels == self.channels and bool(self._with(self.operation.x, self.operation.y).x_vectors)

    @cached_property
    def product(self) -> ConvolutionStruct:
        return self._with(self.operation.x if self.image_lies_well else self.x, self.y)

    @cached_property
    def repay(self) -> bool:
        """Return whether the copies take less time than they save."""
        o = self.operation
        products = o.w.dims[0] // o.convolution.group_count * self.taps // prod(o.convolution.stride)
        return self.channels >= MIN_CHANNELS and (self.image_lies_well or products >= MIN_PRODUCTS)

    @cached_property
    def image_at(self) -> int:
        return rounded_up(self.w.nbytes, ALIGNMENT)

    @cached_property
    def result_at(self) -> int:
        return rounded_up(self.image_at + (0 if self.image_lies_well else self.x.nbytes), ALIGNMENT)

    @cached_property
    def nbytes(self) -> int:
        if self.transposes_result:
            return self.result_at + self.y.nbytes
        return self.image_at + (0 if self.image_lies_well else self.x.nbytes)


class PackNhwc(ConvolutionSolver):
    """Serve IMPLICIT_PRECOMP_GEMM, and dilated convolutions for which the document lists IMPLICIT_GEMM alone.

    A filter or image with another layout is copied to NHWC. Tensor cores multiply the copies, and a last launch
    transposes results to NCHW.
    """

    name = "convolution.pack_nhwc"
    algorithms = IMPLICIT

    def can_launch(self, problem: ConvolutionProblem) -> bool:
        o = problem.operation
        if o.algo != IMPLICIT_PRECOMP_GEMM and max(o.convolution.dilation) == 1:
            return False
        return problem.tensor_cores and prod(Copies(problem).x.dims) <= MAX_OFFSET

    def applies(self, problem: ConvolutionProblem) -> bool:
        if not self.serves(problem) or problem.value.x_vectors:
            return False
        return Copies(problem).repay

    def summation_order(self, problem: ConvolutionProblem) -> Order:
        product = problem.product(Copies(problem).product)
        return kernel_of(product).summation_order(product)

    def used_bytes(self, problem: ConvolutionProblem) -> int:
        return Copies(problem).nbytes

    def estimated_seconds(self, problem: ConvolutionProblem) -> float:
        copies = Copies(problem)
        product = problem.product(copies.product)
        copying = 2 * copies.nbytes / Rates.BANDWIDTH
        computing = kernel_of(product).computing_seconds(product)
        # If channels are padded, each copy needs another launch, which writes zeros.
        launches = 3 if copies.padded_channels == copies.channels else 5
        return launches * Rates.LAUNCH + copying + max(problem.memory_seconds, computing, problem.writing_seconds)

    def launches(self, problem: ConvolutionProblem) -> list[Launch]:
        copies, device, o = Copies(problem), problem.device, problem.operation
        x, y, found = ("x", 0), ("y", 0), list[Launch]()
        if not copies.image_lies_well:
            image, copy = (_by_group(tensor, problem.groups) for tensor in (o.x, copies.x))
            found += copied_between(image, copy, x, x := ("workSpace", copies.image_at), device)
        if copies.transposes_result:
            y = ("workSpace", copies.result_at)
        found += copied_between(o.w.tensor, copies.w.tensor, ("w", 0), ("workSpace", 0), device)
        found.append(product_launch(problem.product(copies.product, x[0], "workSpace", y[0], (x[1], 0, y[1]))))
        return [*found, *(copied_between(copies.y, o.y, y, ("y", 0), device) if copies.transposes_result else [])]


Place = tuple[str, int]  # an operand, and bytes after its address


def copied_between(
    source: TensorSpec, target: TensorSpec, source_at: Place, target_at: Place, device: Any
) -> list[Launch]:
    """Return the launches of a copy, with zeros where the target is larger."""
    plain, found = TransformTensor(1.0, 0.0, source, target), []
    for walk in padded(source, target):
        walk.source_base += source_at[1] // source.scalar_bytes
        walk.destination_base += target_at[1] // source.scalar_bytes
        found.append(launch(walk, plain, ("x", "y"), device))
        found[-1].operands = (source_at[0], target_at[0])
    return found


def _by_group(tensor: TensorSpec, groups: int) -> TensorSpec:
    """Return a tensor with two dimensions for its channels: groups, and channels of a group."""
    images, channels, *pixels = tensor.dims
    of_group, (image, channel, *steps) = channels // groups, tensor.strides
    dims, strides = (images, groups, of_group, *pixels), (image, of_group * channel, channel, *steps)
    return TensorSpec(tensor.data_type, dims, strides)
