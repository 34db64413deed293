"""Describes one timed operation and the bytes and arithmetic that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from dualdnn.api.enumerations import cudnnActivationMode_t, cudnnPoolingMode_t
from dualdnn.api.operations import (
    ActivationBackward,
    ConvolutionBackwardBias,
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    LRNCrossChannelBackward,
    MultiHeadAttnBackwardData,
    MultiHeadAttnBackwardWeights,
    MultiHeadAttnForward,
    MultiHeadAttnStep,
    Operation,
    OperationGraph,
    PoolingBackward,
    TransformTensor,
    allows_tf32,
)
from dualdnn.api.operations.normalization.batch import FusedGradient
from dualdnn.api.operations.specs import FLOAT

Convolution = ConvolutionForward | ConvolutionBiasActivationForward
Summed = Convolution | ConvolutionBackwardData | ConvolutionBackwardFilter
Attention = MultiHeadAttnForward | MultiHeadAttnStep | MultiHeadAttnBackwardData | MultiHeadAttnBackwardWeights


class Call(NamedTuple):
    """Describes one of the separate calls that together do the work of a fused operation.

    where: maps its operands to the row's operands where the names differ. An operand that the row lacks is memory
    between the calls.
    """

    operation: Operation
    where: Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """Describes one timed operation.

    family: name of the rows that differ in shape, data type or layout only. separate: the calls that
    together compute the same as this fused operation, which is compared with them and with the vendor's graph.
    contents: returns the first bytes of operands that may not be random numbers.
    """

    name: str
    family: str
    operation: Operation
    separate: tuple[Call, ...] = ()
    contents: Callable[[], Mapping[str, np.ndarray[Any, Any]]] = dict

    @property
    def nbytes(self) -> int:
        """Return the bytes that have to move: every needed operand is read once, every output written once."""
        o = self.operation
        moved = [*o.reads, *o.tensors_written]
        needed = [name for name in moved if name not in unread(o) and name not in o.raw]
        return sum(o.tensor(name).count * o.tensor(name).scalar_bytes for name in needed)

    @property
    def copy(self) -> TransformTensor | None:
        """Return a copy of half the images that a sum reads, with the same strides: it moves the same number of bytes.
        Return None for one image or another operation.

        A small copy, or one with gaps, does not reach the speed of a large copy either.
        """
        o = self.operation
        if not isinstance(o, ConvolutionBackwardBias) or o.dy.dims[0] < 2:
            return None
        half = replace(o.dy, dims=(o.dy.dims[0] // 2, *o.dy.dims[1:]))
        return TransformTensor(1.0, 0.0, half, half)

    @property
    def flops(self) -> int:
        """Return the additions and multiplications of a direct convolution or an attention; 0 where memory alone
        limits."""
        o = self.operation
        if isinstance(o, OperationGraph):
            return sum(Row("", "", call.operation).flops for call in self.separate)
        if isinstance(o, Attention):
            return 2 * o.products
        return 2 * o.tensor(o.outputs[0]).count * o.terms if isinstance(o, Summed) else 0

    @property
    def pace(self) -> str | None:
        """Return the ceiling (ceilings.py) that limits the arithmetic."""
        o = self.operation
        if isinstance(o, OperationGraph) and self.separate:
            return Row("", "", self.separate[0].operation).pace
        if isinstance(o, Attention):
            name: str = o.attn.data_type.name.removeprefix("CUDNN_DATA_").lower()
            return "tf32" if o.attn.data_type == FLOAT and allows_tf32(o.attn) else name
        if not isinstance(o, Summed):
            return None
        data_type = o.tensor(o.inputs[0]).data_type
        if data_type == FLOAT and allows_tf32(o.convolution):
            return "tf32"
        return data_type.name.removeprefix("CUDNN_DATA_").lower()


def unread(operation: Operation) -> tuple[str, ...]:
    """Return the inputs of the signature that the operation's mode does not need."""
    if isinstance(operation, ActivationBackward):
        rectified = (cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnActivationMode_t.CUDNN_ACTIVATION_CLIPPED_RELU)
        return ("y",) if operation.activation.mode in rectified else ("x",)
    if isinstance(operation, LRNCrossChannelBackward | FusedGradient):
        return ("y",)
    if isinstance(operation, PoolingBackward):
        maximum = (cudnnPoolingMode_t.CUDNN_POOLING_MAX, cudnnPoolingMode_t.CUDNN_POOLING_MAX_DETERMINISTIC)
        return ("y",) if operation.pooling.mode in maximum else ("x", "y")
    return ()
