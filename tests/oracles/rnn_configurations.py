"""Draw random recurrent networks, as plain arrays. record_rnn.py runs PyTorch, JAX and TensorFlow on them, test_rnn_oracle.py the
reference. Only NumPy is needed; RandomState draws the same numbers in every version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

COUNT = 96  # networks
CLIPPED = 24  # further networks with clipped cell states
GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}


@dataclass
class Network:
    """Hold a network. projected: the size of projected outputs, or 0. clip: the limit of cell states, or 0 for none.

    x and dy are (step, sequence, element) with zeros after a sequence's end; states are (pseudo-layer, sequence, element).
    weights: for each pseudo-layer (w_ih, w_hh, b_ih, b_hh, w_hr), with the gates' rows stacked."""

    number: int
    cell: str
    width: int
    hidden: int
    projected: int
    layers: int
    directions: int
    clip: float
    lengths: list[int]
    arrays: dict[str, Any] = field(default_factory=dict)
    weights: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def output(self) -> int:
        """Return the elements of a state h."""
        return self.projected or self.hidden

    @property
    def exists(self) -> Any:
        """Return (step, sequence): whether the sequence has that step."""
        return np.arange(max(self.lengths))[:, None] < np.array(self.lengths)

    def width_of(self, pseudo_layer: int) -> int:
        """Return the elements of a pseudo-layer's input vectors."""
        return self.width if pseudo_layer < self.directions else self.directions * self.output

    def weighted(self, gradients: Any) -> Any:
        """Return a random sum of each row of a matrix's gradient, which is what the record holds."""
        found = np.asarray(gradients)
        return found if found.ndim == 1 else found @ np.random.RandomState(7).standard_normal(found.shape[1])


def configuration(number: int) -> Network:
    """Return the network with a number: all cells in turn, ragged, with projections, layers and directions."""
    random = np.random.RandomState(number)
    clipped = number >= COUNT
    cell = "lstm" if clipped else list(GATES)[number % 4]
    width, hidden = (int(size) for size in random.randint(2, 9, 2))
    projected = int(random.randint(1, hidden)) if cell == "lstm" and not clipped and random.rand() < 0.4 else 0
    layers, directions = (int(count) for count in random.randint(1, 3, 2))
    steps, batch = int(random.randint(1, 7)), int(random.randint(1, 5))
    ragged = not clipped and random.rand() < 0.7
    lengths = [int(n) for n in random.randint(1, steps + 1, batch)] if ragged else [steps] * batch
    clip = float(np.float32(0.1 + 0.5 * random.rand())) if clipped else 0.0
    made = Network(number, cell, width, hidden, projected, layers, directions, clip, lengths)

    def drawn(*shape: int, scale: float = 1.0) -> Any:
        """Return numbers that float represents, so that every program begins with the same ones."""
        return np.float64(np.float32(scale * random.standard_normal(shape)))

    sizes = {"x": width, "dy": directions * made.output}
    for name, size in sizes.items():
        made.arrays[name] = drawn(max(lengths), batch, size) * made.exists[..., None]
    for name in ("hx", "cx", "dhy", "dcy"):
        made.arrays[name] = drawn(layers * directions, batch, made.output if "h" in name else hidden)
    rows = GATES[cell] * hidden
    for p in range(layers * directions):
        shapes = ((rows, made.width_of(p)), (rows, made.output), (rows,), (rows,), (projected, hidden))
        made.weights.append(tuple(drawn(*shape, scale=0.5) for shape in shapes))
    return made


def names_of_answers(n: Network, trains: bool = True) -> Iterator[str]:
    """Return the names of what is recorded of a network, in order."""
    states = ("h", "c") if n.cell == "lstm" else ("h",)
    yield from ("y", *(f"{name}y" for name in states))
    if trains:
        yield from ("dx", *(f"d{name}x" for name in states))
        kinds = ("w_ih", "w_hh", "b_ih", "b_hh", "w_hr")[: 5 if n.projected else 4]
        yield from (f"{kind}{p}" for p in range(n.layers * n.directions) for kind in kinds)
