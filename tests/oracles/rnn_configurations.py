"""Random recurrent networks, as plain arrays: what record_rnn.py hands to PyTorch, JAX and TensorFlow and test_rnn_oracle.py to the
reference. Needs NumPy only; RandomState draws the same numbers in every version of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

COUNT, CLIPPED = 96, 24  # networks; those behind them, whose cell states are clipped
GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}


@dataclass
class Network:
    """projected: the size of projected outputs, 0 where there is no projection. clip: the greatest size of a cell state, 0 where there is
    none. x and dy are (step, sequence, element), zeros behind a sequence's end, states (pseudo-layer, sequence, element). weights: of
    each pseudo-layer (w_ih, w_hh, b_ih, b_hh, w_hr), of all gates below each other."""

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
        """Elements of a state h."""
        return self.projected or self.hidden

    @property
    def exists(self) -> Any:
        """(step, sequence): whether the sequence has that step."""
        return np.arange(max(self.lengths))[:, None] < np.array(self.lengths)

    def width_of(self, pseudo_layer: int) -> int:
        """Elements of what a pseudo-layer takes."""
        return self.width if pseudo_layer < self.directions else self.directions * self.output

    def weighted(self, gradients: Any) -> Any:
        """A random sum for each of the rows of a matrix's gradient: what is recorded of it."""
        found = np.asarray(gradients)
        return found if found.ndim == 1 else found @ np.random.RandomState(7).standard_normal(found.shape[1])


def configuration(number: int) -> Network:
    """Network of a number: all cells in turns, ragged, with projections, layers and directions."""
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
        """Numbers that are float, so that every arithmetic begins with the same ones."""
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
    """What is recorded of a network, in order."""
    states = ("h", "c") if n.cell == "lstm" else ("h",)
    yield from ("y", *(f"{name}y" for name in states))
    if trains:
        yield from ("dx", *(f"d{name}x" for name in states))
        kinds = ("w_ih", "w_hh", "b_ih", "b_hh", "w_hr")[: 5 if n.projected else 4]
        yield from (f"{kind}{p}" for p in range(n.layers * n.directions) for kind in kinds)
