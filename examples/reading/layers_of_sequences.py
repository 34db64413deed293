"""Implement the layers that strings need beside those of examples/digits: sequences of columns, attention, the CTC loss."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from dualdnn.api import cudnn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "digits"))

from layers import Array, Layer, Parameters
from network import FLOAT, tensor

BLANK = 0  # class of "no digit"


class Columns(Layer):
    """Transform images (N, C, H, W) into sequences of columns (W, N, C, H), and gradients back."""

    def __init__(self, handle: Any, x_dims: tuple[int, ...]) -> None:
        n, c, h, w = x_dims
        super().__init__(handle, x_dims, (w, n, c, h))
        self.across = cudnn.cudnnCreateTensorDescriptor()  # It describes x in the order of y.
        cudnn.cudnnSetTensor4dDescriptorEx(self.across, FLOAT, w, n, c, h, 1, c * h * w, h * w, w)

    def forward(self, x: Any, training: bool) -> Any:
        cudnn.cudnnTransformTensor(self.handle, 1.0, self.across, x, 0.0, self.y_desc, self.y)
        return self.y

    def backward(self, dy: Any) -> Any:
        cudnn.cudnnTransformTensor(self.handle, 1.0, self.y_desc, dy, 0.0, self.across, self.dx)
        return self.dx


class Positions(Layer):
    """Add a learned vector for each step, because attention alone does not know where a column is."""

    NAME = "positions"

    def __init__(self, handle: Any, x_dims: tuple[int, ...], parameters: Parameters) -> None:
        super().__init__(handle, x_dims, x_dims)
        self.parameters, dims = parameters, parameters.dims[self.NAME]
        self.desc, self.reduction = tensor(dims), cudnn.cudnnCreateReduceTensorDescriptor()
        cudnn.cudnnSetReduceTensorDescriptor(
            self.reduction, cudnn.CUDNN_REDUCE_TENSOR_ADD, FLOAT, cudnn.CUDNN_PROPAGATE_NAN, cudnn.CUDNN_REDUCE_TENSOR_NO_INDICES,
            cudnn.CUDNN_32BIT_INDICES,
        )  # fmt: skip
        self.room = cudnn.cudnnGetReductionWorkspaceSize(handle, self.reduction, self.y_desc, self.desc)
        self.workspace = handle.allocate(self.room) if self.room else None
        self.gradient = handle.allocate(4 * prod(dims))
        self.gradients = {self.NAME: (self.gradient, dims)}

    def forward(self, x: Any, training: bool) -> Any:
        cudnn.cudnnAddTensor(self.handle, 1.0, self.desc, self.parameters[self.NAME], 1.0, self.x_desc, x)
        return x

    def backward(self, dy: Any) -> Any:
        cudnn.cudnnReduceTensor(
            self.handle, self.reduction, None, 0, self.workspace, self.room, 1.0, self.y_desc, dy, 0.0, self.desc, self.gradient
        )  # fmt: skip
        return dy


class Attention(Layer):
    """Add self-attention of the vectors (steps, batch, vector) to them."""

    NAME = "attention_weights"
    HEADS, PROJECTED = 4, 32

    def __init__(
        self, handle: Any, dims: tuple[int, int, int], around: tuple[int, ...], parameters: Parameters
    ) -> None:
        super().__init__(handle, around, around)
        self.parameters, (steps, batch, vector) = parameters, dims
        self.attention = described(steps, batch, vector)
        self.data = cudnn.cudnnCreateSeqDataDescriptor()
        axes = (
            cudnn.CUDNN_SEQDATA_TIME_DIM,
            cudnn.CUDNN_SEQDATA_BATCH_DIM,
            cudnn.CUDNN_SEQDATA_BEAM_DIM,
            cudnn.CUDNN_SEQDATA_VECT_DIM,
        )
        sizes = [0] * 4
        for axis, size in zip(axes, (steps, batch, 1, vector), strict=True):
            sizes[axis] = size
        cudnn.cudnnSetSeqDataDescriptor(self.data, FLOAT, 4, sizes, axes, batch, [steps] * batch, None)
        self.lengths = handle.to_device(np.full(batch, steps, np.int32))
        self.windows = [0] * steps, [steps] * steps
        self.weight_bytes, work, reserve = cudnn.cudnnGetMultiHeadAttnBuffers(handle, self.attention)
        self.work, self.reserve = ((handle.allocate(size), size) for size in (work, reserve))
        self.gradient = handle.allocate(self.weight_bytes)
        self.gradients = {self.NAME: (self.gradient, parameters.dims[self.NAME])}
        self.parts = [handle.allocate(4 * steps * batch * vector) for _ in range(2)]

    def forward(self, x: Any, training: bool) -> Any:
        self.x, d = x, self.data
        reserve = self.reserve if training else (None, 0)
        cudnn.cudnnMultiHeadAttnForward(
            self.handle, self.attention, -1, *self.windows, self.lengths, self.lengths, d, x, x, d, x, d, x, d, self.y, self.weight_bytes,
            self.parameters[self.NAME], self.work[1], self.work[0], reserve[1], reserve[0],
        )  # fmt: skip
        return self.y

    def backward(self, dy: Any) -> Any:
        d, weights = self.data, (self.weight_bytes, self.parameters[self.NAME])
        spaces = (self.work[1], self.work[0], self.reserve[1], self.reserve[0])
        keys, values = self.parts
        cudnn.cudnnMultiHeadAttnBackwardData(
            self.handle, self.attention, *self.windows, self.lengths, self.lengths, d, dy, d, self.dx, self.x, d, keys, self.x, d, values,
            self.x, *weights, *spaces,
        )  # fmt: skip
        cudnn.cudnnMultiHeadAttnBackwardWeights(
            self.handle, self.attention, cudnn.CUDNN_WGRAD_MODE_SET, d, self.x, d, self.x, d, self.x, d, dy, *weights, self.gradient, *spaces
        )  # fmt: skip
        for part in (keys, values, dy):  # x serves as queries, keys, values and residuals.
            cudnn.cudnnAddTensor(self.handle, 1.0, self.x_desc, part, 1.0, self.x_desc, self.dx)
        return self.dx


def described(steps: int, batch: int, vector: int) -> Any:
    """Return the descriptor of the attention layer."""
    descriptor = cudnn.cudnnCreateAttnDescriptor()
    projected, scale = Attention.PROJECTED, Attention.PROJECTED**-0.5
    mode = cudnn.CUDNN_ATTN_QUERYMAP_ALL_TO_ONE | cudnn.CUDNN_ATTN_DISABLE_PROJ_BIASES  # Biases have no gradients.
    cudnn.cudnnSetAttnDescriptor(
        descriptor, mode, Attention.HEADS, scale, FLOAT, FLOAT, cudnn.CUDNN_DEFAULT_MATH, None, None, vector, vector, vector, projected,
        projected, projected, vector, steps, steps, batch, 1,
    )  # fmt: skip
    return descriptor


class Reading:
    """Compute the CTC loss of activations (steps, batch, classes), from texts without positions."""

    def __init__(self, handle: Any, steps: int, batch: int, classes: int) -> None:
        self.handle, self.dims = handle, (steps, batch, classes)
        self.desc = cudnn.cudnnCreateTensorDescriptor()
        cudnn.cudnnSetTensorNdDescriptor(self.desc, FLOAT, 3, self.dims, (batch * classes, classes, 1))
        self.all = tensor((1, 1, 1, steps * batch * classes))
        self.loss = cudnn.cudnnCreateCTCLossDescriptor()
        cudnn.cudnnSetCTCLossDescriptorEx(
            self.loss, FLOAT, cudnn.CUDNN_LOSS_NORMALIZATION_SOFTMAX, cudnn.CUDNN_NOT_PROPAGATE_NAN
        )
        self.costs, self.gradients = handle.allocate(4 * batch), handle.allocate(4 * steps * batch * classes)

    def __call__(self, activations: Any, texts: Sequence[str]) -> tuple[float, Any]:
        """Return (mean cost of the texts, its gradient with respect to the activations)."""
        steps, batch, _ = self.dims
        labels = [int(digit) + 1 for text in texts for digit in text]  # Class 0 is the blank.
        given = (labels, [len(text) for text in texts], [steps] * batch)
        algo = cudnn.CUDNN_CTC_LOSS_ALGO_DETERMINISTIC
        size = cudnn.cudnnGetCTCLossWorkspaceSize(self.handle, self.desc, self.desc, *given, algo, self.loss)
        with self.handle.allocate(size) as workspace:
            cudnn.cudnnCTCLoss(
                self.handle, self.desc, activations, *given, self.costs, self.desc, self.gradients, algo, self.loss, workspace, size
            )  # fmt: skip
        cudnn.cudnnScaleTensor(self.handle, self.all, self.gradients, 1 / batch)
        return float(self.costs.to_host(np.float32, (batch,)).mean(dtype=np.float64)), self.gradients


def read(activations: Array) -> list[str]:
    """Return the texts of the likeliest class of each step, with repetitions merged and blanks removed."""
    best = activations.argmax(2).T
    return [
        "".join(str(c - 1) for c, before in zip(row, (BLANK, *row), strict=False) if c not in (BLANK, before))
        for row in best
    ]
