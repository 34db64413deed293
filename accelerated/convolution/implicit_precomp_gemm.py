"""IMPLICIT_PRECOMP_GEMM: an implicit product with help from the workspace.

The workspace has the place of every term of the sums, or, on tensor cores, copies of filter and image with channels
innermost (convolution/pack_nhwc.cu) where those lie otherwise and the product is long enough to repay. Padding is
zero in both copies, so that no value outside a window meets the sum, not even NaN times zero. Results in planes that the
TMA cannot write pass through the workspace, too, channels innermost. Products in float find terms themselves;
where they are large, the workspace has the filters term by term. What has a kernel of its own, depthwise convolutions and
those of few channels, needs nothing of it.
"""

from __future__ import annotations

from ctypes import c_int, c_longlong
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from dualdnn.api.operations import FilterSpec, TensorSpec, TransformTensor
from dualdnn.api.operations.specs import NHWC

from ..plans import Launch, pointers, structure, type_definitions
from ..primitives.geometry import THREADS, FastDivmod, blocks
from ..primitives.tma import ROW_BYTES
from ..transform.plan import copy, launch
from .depthwise import depthwise, is_depthwise
from .implicit_gemm import (
    described,
    implicit_gemm,
    implicit_product,
    products_in_reach,
    reads_planes,
    reads_terms,
    rounded_up,
    terms_launch,
)
from .implicit_gemm_fp32 import float_launch, turn_filters, turning_repays
from .implicit_gemm_mma import allows_tensor_cores
from .problem import (
    PACK_BYTES,
    Convolution,
    ConvolutionStruct,
    describe,
    epilogue,
    mark_packs,
    operand_names,
    spatial,
    with_result,
)
from .small_channels import few_channels, few_channels_launch

SOURCE = "convolution/pack_nhwc.cu"
TERM_BYTES = 16
ALIGNMENT = 256
TILE = 64
LEAST_CHANNELS = 8  # of a group: fewer would be mostly padding
MOST_VALUES = 2**31  # of the image's copy: the kernels count in 32 bits
# Products per value of x from which copying it takes less time than it saves: a copy moves two values (about 1 ps at the
# bandwidth of an H200), a product takes 4 fs at the pace of its tensor cores.
LEAST_PRODUCTS = 128


@dataclass(frozen=True)
class _Copies:
    """Image and filter with the channels of a group innermost. Sizes and places in bytes; an image that already lies so is
    not copied."""

    operation: Convolution

    @cached_property
    def channels(self) -> int:
        """Of a group, without padding."""
        return self.operation.w.dims[1]

    @cached_property
    def lanes(self) -> int:
        """Of a group, with padding."""
        return rounded_up(self.channels, PACK_BYTES // self.operation.x.scalar_bytes)

    @cached_property
    def taps(self) -> int:
        """Of a filter."""
        return prod(self.operation.w.dims[2:])

    @cached_property
    def x(self) -> TensorSpec:
        o = self.operation
        dims = (o.x.dims[0], o.convolution.group_count * self.lanes, *o.x.dims[2:])
        return TensorSpec.packed(o.x.data_type, dims, NHWC)

    @cached_property
    def w(self) -> FilterSpec:
        dims = self.operation.w.dims
        return FilterSpec(self.operation.w.data_type, NHWC, (dims[0], self.lanes, *dims[2:]))

    @cached_property
    def result_turns(self) -> bool:
        """The product writes channels innermost, and a second kernel turns them into planes."""
        y = self.operation.y
        in_planes = y.dims[1] > 1 and y.strides[1] != 1 and min(y.strides[2:]) == 1
        return in_planes and prod(y.dims[2:]) * y.scalar_bytes % ROW_BYTES != 0 and epilogue(self.operation).beta == 0

    @cached_property
    def y(self) -> TensorSpec:
        """What the product writes."""
        y = self.operation.y
        return TensorSpec.packed(y.data_type, y.dims, NHWC) if self.result_turns else y

    def _with(self, x: TensorSpec) -> ConvolutionStruct:
        o = self.operation
        value = with_result(describe(o.convolution, x, self.w, o.y.dims), self.y)
        return mark_packs(value, o.convolution.group_count, o.x.scalar_bytes)

    @cached_property
    def image_lies_well(self) -> bool:
        return self.lanes == self.channels and bool(self._with(self.operation.x).x_packs)

    @cached_property
    def product(self) -> ConvolutionStruct:
        return self._with(self.operation.x if self.image_lies_well else self.x)

    @cached_property
    def repay(self) -> bool:
        o = self.operation
        if self.channels < LEAST_CHANNELS or described(o)[0].x_packs or prod(self.x.dims) >= MOST_VALUES:
            return False
        products = o.w.dims[0] // o.convolution.group_count * self.taps // prod(o.convolution.stride)
        return self.image_lies_well or products >= LEAST_PRODUCTS

    @cached_property
    def image_at(self) -> int:
        return rounded_up(self.w.nbytes, ALIGNMENT)

    @cached_property
    def result_at(self) -> int:
        return rounded_up(self.image_at + (0 if self.image_lies_well else self.x.nbytes), ALIGNMENT)

    @cached_property
    def nbytes(self) -> int:
        if self.result_turns:
            return self.result_at + self.y.nbytes
        return self.image_at + (0 if self.image_lies_well else self.x.nbytes)


def precomputed_bytes(operation: Convolution, device: Any) -> int:
    """Workspace: the place of every term, or the copies, or the filters turned."""
    if is_depthwise(operation) or few_channels(operation, device):
        return 0
    copies = _Copies(operation)
    if allows_tensor_cores(operation, device) and copies.repay:
        return copies.nbytes
    value, groups = described(operation)[0], operation.convolution.group_count
    if reads_terms(operation, device):
        return TERM_BYTES * value.terms
    return operation.w.nbytes if turning_repays(value, groups) else 0


def repacked_bytes(operation: Convolution, device: Any) -> int:
    """Bytes of image, filter and results that are copied."""
    copies = _Copies(operation)
    special = is_depthwise(operation) or few_channels(operation, device) or reads_planes(operation, device)
    if special or not allows_tensor_cores(operation, device) or not copies.repay:
        return 0
    return copies.nbytes


def precomputed_gemm(operation: Convolution, device: Any) -> list[Launch]:
    """Depthwise convolutions have no product of matrices to speak of: they are summed directly."""
    if is_depthwise(operation):
        return depthwise(operation, device)
    if found := few_channels(operation, device):
        return [few_channels_launch(found, device)]
    if reads_planes(operation, device):
        return implicit_gemm(operation, device)
    copies = _Copies(operation)
    if allows_tensor_cores(operation, device) and copies.repay:
        image = [] if copies.image_lies_well else [_repack_image(copies, device)]
        x = "x" if copies.image_lies_well else "workSpace"
        at = (0 if copies.image_lies_well else copies.image_at, 0, copies.result_at if copies.result_turns else 0)
        product = implicit_product(
            operation, device, copies.product, (x, "workSpace"), at,
            result="workSpace" if copies.result_turns else "y", rounded=not copies.image_lies_well,
        )  # fmt: skip
        turn = [_turn_result(copies, device)] if copies.result_turns else []
        return [*image, _repack_filter(copies, device), product, *turn]
    value, words = described(operation)
    if reads_terms(operation, device):
        products = products_in_reach(operation, device, value, words, precomputed=True)
        return [terms_launch(operation, value, device), *products]
    groups = operation.convolution.group_count
    if not turning_repays(value, groups):
        return [implicit_product(operation, device, value)]
    operands = ("x", "workSpace", *operand_names(operation))
    product = float_launch(device, value, groups, operands, finish=epilogue(operation), filters_last=True)
    return [turn_filters(device, value, groups), product]


def _repack_image(copies: _Copies, device: Any) -> Launch:
    x, groups = copies.operation.x, copies.operation.convolution.group_count
    extents = spatial(x.dims[2:], 1)
    positions, channels = prod(extents), groups * copies.lanes
    position_tiles, channel_tiles = -(-positions // TILE), -(-channels // TILE)
    arguments = structure(
        *pointers(2),
        ("target_at", c_longlong(copies.image_at)),
        ("image", c_longlong(x.strides[0])),
        ("channel", c_longlong(x.strides[1])),
        ("axis", (c_longlong * 3)(*spatial(x.strides[2:], 0))),
        ("extent", (FastDivmod * 3)(*(FastDivmod.of(extent) for extent in extents))),
        ("channels", FastDivmod.of(copies.lanes)),
        ("position_tiles", FastDivmod.of(position_tiles)),
        ("channel_tiles", FastDivmod.of(channel_tiles)),
        ("positions", c_int(positions)),
        ("kept", c_int(copies.channels)),
        ("all_channels", c_int(channels)),
    )
    function = device.function(SOURCE, "repack_image", type_definitions(x.data_type, copies.operation))
    grid = (position_tiles * channel_tiles * x.dims[0], 1, 1)
    return Launch(function, arguments, ("x", "workSpace"), grid, (THREADS, 1, 1))


def _repack_filter(copies: _Copies, device: Any) -> Launch:
    o = copies.operation
    filters, channels = o.w.dims[:2]
    last = o.w.format == NHWC
    arguments = structure(
        *pointers(2),
        ("target_at", c_longlong(0)),
        ("lanes", FastDivmod.of(copies.lanes)),
        ("taps", FastDivmod.of(copies.taps)),
        ("kept", c_int(channels)),
        ("filters", c_int(filters)),
        ("tap_step", c_int(channels if last else 1)),
        ("channel_step", c_int(1 if last else copies.taps)),
    )
    function = device.function(SOURCE, "repack_filter", type_definitions(o.x.data_type, o))
    return Launch(function, arguments, ("w", "workSpace"), blocks(filters * copies.taps * copies.lanes))


def _turn_result(copies: _Copies, device: Any) -> Launch:
    plain = TransformTensor(1.0, 0.0, copies.y, copies.operation.y)
    walk = copy(plain.x, plain.y)
    walk.source_base = copies.result_at // plain.x.scalar_bytes
    turn = launch(walk, plain, ("x", "y"), device)
    turn.operands = ("workSpace", "y")
    return turn
