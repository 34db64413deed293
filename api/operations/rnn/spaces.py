"""Compute the sizes of a network's temporary memory for up to ``steps`` steps and ``batch`` sequences, counted in
values of the compute type.

Each size is the larger need of the two backends. The accelerated backend keeps gates, states and outputs in the reserve
space. The reference keeps the inputs of the calls and computes from them again.
"""

from __future__ import annotations

from ..dropout import STATES
from ..specs import DOUBLE, FLOAT, HALF, SCALAR_BYTES, TensorSpec
from .network import GRU, LSTM, RELU, TANH, RNNSpec

ALIGNMENT = 64  # numbers to which the size of each part is rounded up
# KEPT_GATES counts the numbers per cell, besides its states, that backward calls need: its gates and, for a GRU, the
# operand of its reset gate.
KEPT_GATES = {RELU: 1, TANH: 1, LSTM: 4, GRU: 4}


def aligned(numbers: int) -> int:
    """Return the size of a part, rounded up to ALIGNMENT."""
    return -(-numbers // ALIGNMENT) * ALIGNMENT


def _space(network: RNNSpec, numbers: int) -> TensorSpec:
    return TensorSpec.packed(DOUBLE if network.precision == DOUBLE else FLOAT, (1, numbers, 1))


def workspace(network: RNNSpec, steps: int, batch: int) -> TensorSpec:
    """Return the work space.

    It holds the first vector of each step, the products of a layer's inputs, and the states of all layers. It also holds
    the outputs of two layers in the compute type, or of all layers in the data type, whichever is larger.
    """
    vectors = steps * batch
    places = aligned(batch) + aligned(steps)
    products = aligned(network.directions * vectors * network.gates * network.hidden)
    outputs = max(
        2 * aligned(vectors * max(network.output_size, network.input_width(0))),
        network.layers * layer_output(network, steps, batch),
    )
    states = 2 * aligned(network.directions * batch * network.projected) + 2 * aligned(
        network.directions * batch * network.hidden
    )
    return _space(network, places + products + outputs + network.layers * states)


def layer_output(network: RNNSpec, steps: int, batch: int) -> int:
    """Return the size of a layer's output vectors, stored in the data type."""
    each = SCALAR_BYTES[DOUBLE if network.precision == DOUBLE else FLOAT]
    return aligned(-(-steps * batch * network.output_size * SCALAR_BYTES[network.data_type] // each))


def reserve(network: RNNSpec, steps: int, batch: int, training: bool = True) -> TensorSpec:
    """Return the reserve space, which is empty in inference."""
    if not training:
        return _space(network, 0)
    between = sum(dropped(network, steps, batch)) * (network.layers - 1)
    return _space(network, max(kept(network, steps, batch) + between, _given(network, steps, batch)))


def kept(network: RNNSpec, steps: int, batch: int) -> int:
    """Return the size of what the accelerated backend keeps of all layers: each cell's gates, states and output, and
    the gradient of a projected output."""
    width = (KEPT_GATES[network.cell] + (network.cell == LSTM) + network.is_projected) * network.hidden
    each = aligned(steps * batch * width + gate_gradients(network, steps, batch)) + aligned(
        steps * batch * network.projected
    ) * (1 + network.is_projected)
    return network.pseudo_layers * each


def dropped(network: RNNSpec, steps: int, batch: int) -> tuple[int, int]:
    """Return the sizes of what the accelerated backend keeps of one dropout between layers: the next layer's input
    vectors, and one bit per element."""
    if not network.drops:
        return 0, 0
    elements = steps * batch * network.output_size
    each = SCALAR_BYTES[DOUBLE if network.precision == DOUBLE else FLOAT]
    return aligned(-(-elements * SCALAR_BYTES[network.data_type] // each)), aligned(-(-elements // (8 * each)))


def gate_gradients(network: RNNSpec, steps: int, batch: int) -> int:
    """Return the additional size for the gate gradients of one pseudo-layer, in the data type.

    FLOAT and DOUBLE gradients overwrite the gates, at no additional size. Layers of floats that can overlap keep both,
    because one layer's gradients wait for another layer.
    """
    gates = steps * batch * KEPT_GATES[network.cell] * network.hidden
    if network.data_type == HALF:
        return -(-gates // 2)
    return gates if network.data_type == FLOAT and network.layers > 1 and network.directions == 1 else 0


def _given(network: RNNSpec, steps: int, batch: int) -> int:
    """Return the size of what the reference backend keeps: dropout states, inputs, weights, output gradients, states
    and their gradients."""
    vectors = network.input_width(0) + network.output_size
    states = 2 * network.pseudo_layers * (network.projected + network.hidden)
    nbytes = (steps * batch * vectors + batch * states + network.weight_elements) * SCALAR_BYTES[network.data_type]
    nbytes += STATES.nbytes * network.drops
    return aligned(-(-nbytes // (8 if network.precision == DOUBLE else 4)))
