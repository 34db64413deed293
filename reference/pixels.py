"""Compute all channels of a convolution's output at some pixels: they cover many tiles with few elements.

A mistake in one tile of a large output may affect one element of ten thousand. So every cell of 64 neighbouring pixels
is sampled once within ``ROUNDS`` calls. Matrix products compute all channels of a pixel, and the bounds are those of
the judge.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
from dualdnn.api.operations import ConvolutionBackwardData, ConvolutionForward, Operation
from dualdnn.api.operations.specs import DOUBLE, INT32

from .convolution import backward_data
from .convolution import bounds as forward
from .engine import Exact
from .formulas import Pages
from .judge import Disagreement, bounds, interval
from .sampled import TRANSFORMS, Sample
from .view import Array, strided

CELL = 64  # pixels per computed pixel; tiles of products have at least as many
ROUNDS = 19  # calls that cover each cell once; a prime, so that alternating layers are covered too
MIN_PIXELS = 16  # pixels of a call
MAX_PRODUCTS = 2**27  # products of a call: a tenth of a second
KEPT = 100  # errors of a call that are recorded, of all compared ones


def serves(operation: Operation) -> bool:
    """Return whether pixels of an operation are computed: direct sums in floating point that replace the output."""
    if not isinstance(operation, ConvolutionForward | ConvolutionBackwardData) or operation.beta != 0:
        return False
    transforms = next(found for kind, found in TRANSFORMS.items() if isinstance(operation, kind))
    plain = all(operation.algo not in algorithms for algorithms in transforms)
    vectors = any(operation.tensor(name).vector_length > 1 for name in operation.operands if name not in operation.raw)
    return plain and not vectors and operation.compute_type not in (DOUBLE, INT32)


def chosen(operation: Any, number: int) -> Array:
    """Return the pixels (image, spatial ...) for the call with this number, one row each."""
    (output,) = operation.outputs
    dims = operation.tensor(output).dims
    extents = (dims[0], *dims[2:])
    pixels = prod(extents)
    cells = -(-pixels // CELL)
    most = max(1, MAX_PRODUCTS // (dims[1] * operation.w.dims[1] * prod(operation.w.dims[2:])))
    count = min(cells, most, max(MIN_PIXELS, -(-cells // ROUNDS)))
    taken = (number % ROUNDS * count + np.arange(count)) % cells
    inside = np.random.default_rng(number).integers(CELL, size=count)
    found: Array = np.stack(np.unravel_index(np.minimum(taken * CELL + inside, pixels - 1), extents), axis=1)
    return found


class Pixels:
    """Compute the expected channels of some pixels before a call; ``compare`` checks them after it.

    memory maps operands to the pages that are read.
    """

    def __init__(self, operation: Any, memory: dict[str, Pages], number: int) -> None:
        self.operation, self.places = operation, chosen(operation, number)
        (self.output,) = operation.outputs
        with np.errstate(all="ignore"):
            value, size = self._sums(memory)
            module = forward if isinstance(operation, ConvolutionForward) else backward_data
            exact = Exact(
                value, forward.in_range(size, operation.convolution.compute_type), module.roundings(operation)
            )
            whole = tuple(slice(0, extent) for extent in value.shape)
            self.value, self.bound = bounds(operation, self.output, exact, {}, whole)

    def compare(self, after: Pages, said: Sample) -> None:
        """Compare the output of the call with the expected channels."""
        spec = self.operation.tensor(self.output)
        number = _gathered(spec, after, self.places[:, 0], [self.places[:, 1 + d] for d in range(spec.rank - 2)])
        with np.errstate(all="ignore"):
            lowest, highest, half = interval(self.value, self.bound, spec.scalar_type)
            allowed = self.bound + half
            ratio = np.where(number == self.value, 0, (number - self.value) / allowed)
            known = np.isfinite(self.value) & np.isfinite(self.bound)
            wrong = known & ~((lowest <= number) & (number <= highest))
        right = np.clip(ratio[known & ~wrong], -1, 1)
        order = np.argsort(-np.abs(right))
        said.ratios += right[order[:: max(1, order.size // KEPT)]].tolist()
        for pixel, channel in np.argwhere(wrong)[:KEPT]:
            place = self.places[pixel]
            index = (int(place[0]), int(channel), *map(int, place[1:]))
            far = float(abs(ratio[pixel, channel]))
            got, due, may = (float(a[pixel, channel]) for a in (number, self.value, allowed))
            said.wrong.append(Disagreement(self.output, index, got, due, may, far if np.isfinite(far) else np.inf))
        said.wrong.sort(key=lambda found: -found.ratio)

    def _sums(self, memory: dict[str, Pages]) -> tuple[Array, Array]:
        """Return the sums of products and of their absolute values, (pixel, channel)."""
        o, c = self.operation, self.operation.convolution
        is_forward = isinstance(o, ConvolutionForward)
        name = "x" if is_forward else "dy"
        source, filters = o.tensor(name), o.tensor("w")
        groups, (outer, depth), taps = c.group_count, filters.dims[:2], filters.dims[2:]
        memory["w"].need(np.arange(0, memory["w"].bytes.size))
        weights = strided(filters, memory["w"].bytes).astype(np.float64).reshape(groups, outer // groups, depth, *taps)
        value = size = np.zeros((groups, len(self.places), weights.shape[1 if is_forward else 2]))
        for tap in product(*map(range, taps)):
            positions, there = [], np.ones(len(self.places), bool)
            for d, t in enumerate(tap):
                shift = t * c.dilation[d] - c.padding[d]
                at = self.places[:, 1 + d]
                if is_forward:
                    at = at * c.stride[d] + shift
                else:
                    at, rest = np.divmod(at - shift, c.stride[d])
                    there &= rest == 0
                there &= (at >= 0) & (at < source.dims[2 + d])
                positions.append(at)
            if not there.any():
                continue
            read = _gathered(source, memory[name], self.places[there, 0], [at[there] for at in positions])
            terms = np.zeros((len(self.places), source.dims[1]))
            terms[there] = read
            stored = tuple(extent - 1 - t if c.is_flipped else t for t, extent in zip(tap, taps, strict=True))
            matrix = weights[(..., *stored)]
            matrix = matrix.transpose(0, 2, 1) if is_forward else matrix
            grouped = terms.reshape(len(terms), groups, -1).transpose(1, 0, 2)
            value = value + grouped @ matrix
            size = size + np.abs(grouped) @ np.abs(matrix)
        return tuple(part.transpose(1, 0, 2).reshape(len(self.places), -1) for part in (value, size))  # type: ignore[return-value]  # two


def _gathered(spec: Any, memory: Pages, images: Array, positions: list[Array]) -> Array:
    """Return the elements of these pixels, (pixel, channel), and copy the pages that hold them."""
    steps = images * spec.strides[0] + sum(at * step for at, step in zip(positions, spec.strides[2:], strict=True))
    places = steps[:, np.newaxis] + np.arange(spec.dims[1]) * spec.strides[1]
    memory.need(places * spec.scalar_bytes)
    found: Array = strided(spec, memory.bytes)[
        (images[:, np.newaxis], np.arange(spec.dims[1]), *(at[:, np.newaxis] for at in positions))
    ]
    return found.astype(np.float64)
