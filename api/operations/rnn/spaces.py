"""Sizes of the temporary memory of a network, for sequences of up to ``steps`` vectors in batches of ``batch``.

Numbers in the work space have the type of the arithmetic. Those in the reserve space may have twice its width, because the
reference backend keeps what its wider arithmetic found.
"""

from __future__ import annotations

from ..specs import DOUBLE
from .network import GRU, LSTM, RELU, TANH, RNNSpec

ALIGNMENT = 256  # bytes, of each part
INDEX_BYTES = 4
# Numbers of a cell that the backward calls need: the gates, and of a GRU what its reset gate multiplies.
KEPT_GATES = {RELU: 1, TANH: 1, LSTM: 4, GRU: 4}


def number_bytes(network: RNNSpec) -> int:
    """Bytes of a number of the arithmetic."""
    return 8 if network.precision == DOUBLE else 4


def aligned(nbytes: int) -> int:
    """The size of a part with what separates it from the next one."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def workspace_bytes(network: RNNSpec, steps: int, batch: int) -> int:
    """Bytes of work space: indices of vectors, input products, the outputs of two layers, states."""
    vectors, width = steps * batch, number_bytes(network)
    indices = aligned(INDEX_BYTES * (batch + vectors))
    products = aligned(width * network.directions * vectors * network.gates * network.hidden)
    outputs = 2 * aligned(width * vectors * max(network.output_size, network.input_width(0)))
    states = network.directions * aligned(width * 2 * batch * (network.projected + 2 * network.hidden))
    return indices + products + outputs + states


def reserve_bytes(network: RNNSpec, steps: int, batch: int) -> int:
    """Bytes of reserve space: gates, states and outputs of every cell."""
    vectors, width = steps * batch, 2 * number_bytes(network)
    numbers = (KEPT_GATES[network.cell] + (network.cell == LSTM)) * network.hidden + network.projected
    if network.is_projected:
        numbers += network.hidden + network.projected
    return aligned(width * network.pseudo_layers * vectors * numbers)
