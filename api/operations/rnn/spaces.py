"""The temporary memory of a network for sequences of up to ``steps`` vectors in batches of ``batch``, as numbers of the arithmetic.

The sizes are those of the larger need of the two backends. The accelerated one keeps gates, states and outputs in the reserve
space, the reference what the calls were given, from which it computes again.
"""

from __future__ import annotations

from ..dropout import STATES
from ..specs import DOUBLE, FLOAT, HALF, SCALAR_BYTES, TensorSpec
from .network import GRU, LSTM, RELU, TANH, RNNSpec

ALIGNMENT = 64  # numbers, of each part
# Numbers of a cell that the backward calls need beside its states: its gates, and of a GRU what its reset gate multiplies.
KEPT_GATES = {RELU: 1, TANH: 1, LSTM: 4, GRU: 4}


def aligned(numbers: int) -> int:
    """Return the size of a part with what separates it from the next one."""
    return -(-numbers // ALIGNMENT) * ALIGNMENT


def _space(network: RNNSpec, numbers: int) -> TensorSpec:
    return TensorSpec.packed(DOUBLE if network.precision == DOUBLE else FLOAT, (1, numbers, 1))


def workspace(network: RNNSpec, steps: int, batch: int) -> TensorSpec:
    """Work space: where the vectors of a step begin, input products, the outputs of two layers or, in the data type, of all, the
    states of all layers."""
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
    """What the vectors that a layer puts out take, in the data type."""
    each = SCALAR_BYTES[DOUBLE if network.precision == DOUBLE else FLOAT]
    return aligned(-(-steps * batch * network.output_size * SCALAR_BYTES[network.data_type] // each))


def reserve(network: RNNSpec, steps: int, batch: int, training: bool = True) -> TensorSpec:
    """Reserve space; none in inference."""
    if not training:
        return _space(network, 0)
    between = sum(dropped(network, steps, batch)) * (network.layers - 1)
    return _space(network, max(kept(network, steps, batch) + between, _given(network, steps, batch)))


def kept(network: RNNSpec, steps: int, batch: int) -> int:
    """What the accelerated backend keeps of the layers: of every cell its gates, its states, its output; the gradient of a projected output."""
    width = (KEPT_GATES[network.cell] + (network.cell == LSTM) + network.is_projected) * network.hidden
    each = aligned(steps * batch * width + gate_gradients(network, steps, batch)) + aligned(
        steps * batch * network.projected
    ) * (1 + network.is_projected)
    return network.pseudo_layers * each


def dropped(network: RNNSpec, steps: int, batch: int) -> tuple[int, int]:
    """What the accelerated backend keeps, behind the layers, of the dropout between two of them: the vectors that the next
    layer gets, and a bit for each of their elements."""
    if not network.drops:
        return 0, 0
    elements = steps * batch * network.output_size
    each = SCALAR_BYTES[DOUBLE if network.precision == DOUBLE else FLOAT]
    return aligned(-(-elements * SCALAR_BYTES[network.data_type] // each)), aligned(-(-elements // (8 * each)))


def gate_gradients(network: RNNSpec, steps: int, batch: int) -> int:
    """What the gradients of a pseudo-layer's gates take, in the data type. Of wider data they replace the gates, unless layers of
    floats can overlap, where each waits for those of another."""
    gates = steps * batch * KEPT_GATES[network.cell] * network.hidden
    if network.data_type == HALF:
        return -(-gates // 2)
    return gates if network.data_type == FLOAT and network.layers > 1 and network.directions == 1 else 0


def _given(network: RNNSpec, steps: int, batch: int) -> int:
    """What the reference backend keeps: the states of dropout, inputs, weights, the gradients of the outputs, states and their
    gradients."""
    vectors = network.input_width(0) + network.output_size
    states = 2 * network.pseudo_layers * (network.projected + network.hidden)
    nbytes = (steps * batch * vectors + batch * states + network.weight_elements) * SCALAR_BYTES[network.data_type]
    nbytes += STATES.nbytes * network.drops
    return aligned(-(-nbytes // (8 if network.precision == DOUBLE else 4)))
