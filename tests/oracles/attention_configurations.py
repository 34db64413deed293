"""Draw random configurations of multi-head attention, as plain arrays. record_attention.py runs NVIDIA's attn_ref.py on them,
test_attention_oracle.py the reference. Only NumPy is needed; RandomState draws the same numbers in every version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, permutations
from typing import Any

import numpy as np

COUNT = 240
AXES = list(permutations(range(3)))
PROJECTIONS = ("q", "k", "v", "o")


@dataclass
class Configuration:
    """Hold a configuration. sizes: of a query, key and value. projected: size by projection, or 0 if it is off.

    Arrays are (time, batch, beam, vector), weights (heads, projected size, size), biases (heads, projected size); the bias of the
    output is (projected size)."""

    number: int
    heads: int
    scaler: float
    sizes: tuple[int, int, int]
    projected: tuple[int, int, int, int]
    has_biases: bool
    has_residuals: bool
    is_one_to_one: bool
    lengths: Any  # (batch, beam)
    key_lengths: Any  # (batch, beam of keys)
    low: list[int]
    high: list[int]
    axes: tuple[int, ...]
    arrays: dict[str, Any] = field(default_factory=dict)

    @property
    def trains(self) -> bool:
        """Return whether there are gradients; the document has none with biases."""
        return not self.has_biases

    @property
    def value_size(self) -> int:
        return self.projected[2] or self.sizes[2]

    @property
    def output_size(self) -> int:
        return self.projected[3] or self.heads * self.value_size

    def sequences(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Yield the places (steps, batch, beam) of consecutive queries that see the same keys, and of these keys."""
        for (batch, beam), length in np.ndenumerate(self.lengths):
            key_beam = beam if self.is_one_to_one else 0
            end = self.key_lengths[batch, key_beam]

            def seen(step: int, end: int = end) -> tuple[int, int]:
                return max(self.low[step], 0), min(self.high[step], end)

            for (first, last), steps in groupby(range(length), seen):
                chosen = list(steps)
                yield (slice(chosen[0], chosen[-1] + 1), batch, beam), (slice(first, last), batch, key_beam)


def names_of_answers(c: Configuration) -> list[str]:
    """Return the names of the answers, in the order of the record."""
    weights = [f"dw{name}" for name, size in zip(PROJECTIONS, c.projected, strict=True) if size]
    return ["out", *(["dqueries", "dkeys", "dvalues", *weights] if c.trains else [])]


def configuration(number: int) -> Configuration:
    """Return the configuration with a number. Every query sees a key, because attn_ref.py has no softmax of no keys."""
    random = np.random.RandomState(number)

    def draw(low: int, high: int) -> int:
        return int(random.randint(low, high + 1))

    on = [number >> i & 1 for i in range(4)]
    heads, met = draw(1, 3), draw(1, 4)
    q, k, v, o = (on[0] * met, on[1] * met, on[2] * draw(1, 3), on[3] * draw(1, 4))
    sizes = [draw(1, 4) if q else met, draw(1, 4) if k else met, draw(1, 4)]
    has_biases, has_residuals = number % 5 == 3 and any(on), number % 3 == 1
    if has_residuals and o:
        o = sizes[0]
    elif has_residuals and q:  # The concatenated vectors of the heads are as long as a query.
        sizes[0] = heads * (v or sizes[2])
    elif has_residuals:
        heads, v, sizes[2] = 1, on[2] * met, met
    batches, beams, is_one_to_one = draw(1, 2), draw(1, 2), bool(draw(0, 1))
    steps, key_steps = draw(1, 3), draw(1, 4)
    lengths = random.randint(1, steps + 1, (batches, beams))
    key_lengths = random.randint(1, key_steps + 1, (batches, beams if is_one_to_one else 1))
    low, high = [0] * steps, [key_steps] * steps
    if number % 2:  # Each time-step has a window in which the shortest sequence has a key.
        shortest = int(key_lengths.min())
        low = [draw(-1, shortest - 1) for _ in range(steps)]
        high = [draw(max(first, 0) + 1, key_steps + 1) for first in low]
    c = Configuration(number, heads, draw(0, 300) / 256, tuple(sizes), (q, k, v, o), has_biases, has_residuals, is_one_to_one,
                      lengths, key_lengths, low, high, AXES[number % 6])  # fmt: skip

    def normal(*shape: int) -> Any:
        return np.rint(64 * random.standard_normal(shape)) / 64  # The numbers are exact in half, float and double.

    c.arrays |= {
        "queries": normal(steps, batches, beams, sizes[0]),
        "keys": normal(key_steps, *key_lengths.shape, sizes[1]),
        "values": normal(key_steps, *key_lengths.shape, sizes[2]),
        "dout": normal(steps, batches, beams, c.output_size),
    }
    for name, size, original in zip(PROJECTIONS, c.projected, (*sizes, c.value_size), strict=True):
        if size:
            c.arrays[f"w{name}"] = normal(heads, size, original)
            if has_biases:
                c.arrays[f"b{name}"] = normal(*(() if name == "o" else (heads,)), size)
    return c
