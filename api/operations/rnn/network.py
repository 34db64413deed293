"""Define what an RNN descriptor holds, and the positions of the network's weights in the weight space."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...enumerations import (
    cudnnDataType_t,
    cudnnDirectionMode_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnRNNAlgo_t,
    cudnnRNNBiasMode_t,
    cudnnRNNClipMode_t,
    cudnnRNNInputMode_t,
    cudnnRNNMode_t,
)
from ..records import record
from ..specs import SCALAR_BYTES

RELU, TANH, LSTM, GRU = cudnnRNNMode_t
NO_BIAS, INPUT_BIAS, DOUBLE_BIAS, RECURRENT_BIAS = cudnnRNNBiasMode_t
STANDARD, PERSIST_STATIC, PERSIST_DYNAMIC = cudnnRNNAlgo_t
GATES = {RELU: 1, TANH: 1, LSTM: 4, GRU: 3}
BLOCK = 1024  # threads, the most that a block of a grid has
PROJECTION = 8  # linLayerID of the projection matrix of an LSTM (7.2.31)


@record
class RNNClipSpec:
    """Hold the range to which LSTM cell states are clipped (7.2.42)."""

    mode: cudnnRNNClipMode_t = cudnnRNNClipMode_t.CUDNN_RNN_CLIP_NONE
    nan: cudnnNanPropagation_t = cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN
    lower: float = 0.0
    upper: float = 0.0

    @property
    def is_on(self) -> bool:
        return self.mode == cudnnRNNClipMode_t.CUDNN_RNN_CLIP_MINMAX


@dataclass(frozen=True)
class Weights:
    """Locate a matrix or bias vector: the index of its first element in the weight space, and its shape."""

    offset: int
    rows: int
    columns: int

    @property
    def end(self) -> int:
        return self.offset + self.rows * self.columns


@record
class RNNPlanSpec:
    """State what a plan of CUDNN_RNN_ALGO_PERSIST_DYNAMIC was made for: an exact batch size and a data type."""

    batch: int
    data_type: cudnnDataType_t


@record
class RNNSpec:
    """Describe layers of one kind of cell. A new one has the values that a fresh descriptor reports.

    data_type, input_size: None if cudnnSetRNNDescriptor_v6 configured the network; the calls' other arguments then
    give them.
    dropout: the probability that training drops an element between two layers.
    plan: belongs to CUDNN_RNN_ALGO_PERSIST_DYNAMIC; it is None before a plan is made and after a setter changed the
    network.
    hidden, projected: the lengths of a cell's state and output; they are equal without recurrent projection.
    """

    algo: cudnnRNNAlgo_t = STANDARD
    cell: cudnnRNNMode_t = RELU
    bias: cudnnRNNBiasMode_t = DOUBLE_BIAS
    direction: cudnnDirectionMode_t = cudnnDirectionMode_t.CUDNN_UNIDIRECTIONAL
    input_mode: cudnnRNNInputMode_t = cudnnRNNInputMode_t.CUDNN_LINEAR_INPUT
    data_type: Any = None
    precision: cudnnDataType_t = cudnnDataType_t.CUDNN_DATA_FLOAT
    math_type: cudnnMathType_t = cudnnMathType_t.CUDNN_DEFAULT_MATH
    input_size: Any = None
    hidden: int = 0
    projected: int = 0
    layers: int = 0
    padded: bool = False
    clip: RNNClipSpec = RNNClipSpec()
    dropout: float = 0.0
    plan: RNNPlanSpec | None = None

    @property
    def directions(self) -> int:
        return 2 if self.direction == cudnnDirectionMode_t.CUDNN_BIDIRECTIONAL else 1

    def counts(self, steps: int, batch: int) -> dict[str, int]:
        """Return the numbers that kernels count with 32 bits, by description; a grid counts up to one block more."""
        numbers = {
            "a step's states of outputs and cells": batch * (self.projected + self.hidden),
            "vectors of inputs and of both directions' states": (1 + self.directions) * steps * batch,
        }
        return {name: -(-number // BLOCK) * BLOCK for name, number in numbers.items()}

    @property
    def pseudo_layers(self) -> int:
        """Return the number of layers times directions; a pseudo-layer has the index layer * directions + direction."""
        return self.layers * self.directions

    @property
    def gates(self) -> int:
        """Return how many matrices apply to the input of a cell; equally many apply to its previous output."""
        return GATES[self.cell]

    @property
    def is_projected(self) -> bool:
        return self.projected != self.hidden

    @property
    def skips_input(self) -> bool:
        """Return whether the first layer has no input matrices."""
        return self.input_mode == cudnnRNNInputMode_t.CUDNN_SKIP_INPUT

    @property
    def drops(self) -> bool:
        """Return whether training drops elements between layers."""
        return self.dropout > 0 and self.layers > 1

    @property
    def has_input_bias(self) -> bool:
        return self.bias in (INPUT_BIAS, DOUBLE_BIAS)

    @property
    def has_recurrent_bias(self) -> bool:
        return self.bias in (RECURRENT_BIAS, DOUBLE_BIAS)

    @property
    def output_size(self) -> int:
        """Return the length of a layer's output vectors, with both directions concatenated."""
        return self.directions * self.projected

    def input_width(self, layer: int) -> int:
        """Return the length of a layer's input vectors."""
        return self.output_size if layer else self.input_size

    # The weight space holds the matrices of all pseudo-layers, each ordered by linLayerID, then their biases, without
    # gaps.

    def _matrix_elements(self, layer: int) -> int:
        """Return how many elements the matrices of one pseudo-layer have."""
        width = 0 if layer == 0 and self.skips_input else self.input_width(layer)
        projection = self.projected * self.hidden if self.is_projected else 0
        return self.gates * self.hidden * (width + self.projected) + projection

    @cached_property
    def _all_matrices(self) -> int:
        return self.directions * (self._matrix_elements(0) + (self.layers - 1) * self._matrix_elements(1))

    @property
    def _bias_elements(self) -> int:
        return self.gates * self.hidden * (self.has_input_bias + self.has_recurrent_bias)

    @cached_property
    def weight_elements(self) -> int:
        """Return how many elements the weight space has."""
        return self._all_matrices + self.pseudo_layers * self._bias_elements

    @property
    def weight_bytes(self) -> int:
        return self.weight_elements * SCALAR_BYTES[self.data_type]

    @property
    def weight_ids(self) -> tuple[int, ...]:
        """Return the values of linLayerID that the cell supports (7.2.31)."""
        return (*range(2 * self.gates), *((PROJECTION,) if self.cell == LSTM else ()))

    def matrix(self, pseudo_layer: int, weight_id: int) -> Weights | None:
        """Return a matrix of a pseudo-layer by its linLayerID, or None if the network does not have it."""
        layer, direction = divmod(pseudo_layer, self.directions)
        start = direction * self._matrix_elements(min(layer, 1))
        if layer:
            start += self.directions * (self._matrix_elements(0) + (layer - 1) * self._matrix_elements(1))
        width = 0 if layer == 0 and self.skips_input else self.input_width(layer)
        recurrent = start + self.gates * self.hidden * width
        if weight_id == PROJECTION:
            behind = recurrent + self.gates * self.hidden * self.projected
            return Weights(behind, self.projected, self.hidden) if self.is_projected else None
        if weight_id < self.gates:
            return Weights(start + weight_id * self.hidden * width, self.hidden, width) if width else None
        gate = weight_id - self.gates
        return Weights(recurrent + gate * self.hidden * self.projected, self.hidden, self.projected)

    def bias_vector(self, pseudo_layer: int, weight_id: int) -> Weights | None:
        """Return a bias of a pseudo-layer by its linLayerID, or None if the network does not have it."""
        kind, gate = divmod(weight_id, self.gates)
        exists = kind < 2 and (self.has_input_bias, self.has_recurrent_bias)[kind]  # A projection has kind 2.
        if not exists:
            return None
        start = self._all_matrices + pseudo_layer * self._bias_elements
        before = self.gates * self.hidden if kind and self.has_input_bias else 0
        return Weights(start + before + gate * self.hidden, self.hidden, 1)
