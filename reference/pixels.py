"""Compute some channels of a convolution's output at some pixels: they cover many tiles with few elements.

A mistake in one tile of a large output may affect one element of ten thousand. So every cell of 64 neighbouring pixels
and at most 64 neighbouring channels is sampled once within ``ROUNDS`` calls. Matrix products compute the channels of a call,
and the bounds are those of the judge.
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
MIN_CHANNELS = 16  # channels of a call, where the output has as many
MAX_PRODUCTS = 2**24  # products of a call: a hundredth of a second
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
    products = len(channels_of(operation, number)) * operation.w.dims[1] * prod(operation.w.dims[2:])
    most = max(1, MAX_PRODUCTS // products)
    count = min(cells, most, max(MIN_PIXELS, -(-cells // ROUNDS)))
    taken = (number % ROUNDS * count + np.arange(count)) % cells
    inside = np.random.default_rng(number).integers(CELL, size=count)
    found: Array = np.stack(np.unravel_index(np.minimum(taken * CELL + inside, pixels - 1), extents), axis=1)
    return found


def channels_of(operation: Any, number: int) -> Array:
    """Return one channel of the output from each cell of channels, for the call with this number."""
    (output,) = operation.outputs
    count = operation.tensor(output).dims[1]
    cell = max(1, min(CELL, count // MIN_CHANNELS))
    first = np.arange(0, count, cell)
    return first + np.random.default_rng((number, 1)).integers(np.minimum(cell, count - first))


class Pixels:
    """Compute the expected channels of some pixels before a call; ``compare`` checks them after it.

    memory maps operands to the pages that are read.
    """

    def __init__(self, operation: Any, memory: dict[str, Pages], number: int) -> None:
        self.operation, self.places = operation, chosen(operation, number)
        self.channels = channels_of(operation, number)
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
        positions = [self.places[:, 1 + d] for d in range(spec.rank - 2)]
        number = _gathered(spec, after, self.places[:, 0], positions, self.channels)
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
            index = (int(place[0]), int(self.channels[channel]), *map(int, place[1:]))
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
        (outer, depth), taps = filters.dims[:2], filters.dims[2:]
        # For a data gradient the channels of a filter are the outputs, and a group's filters are summed.
        summed = depth if is_forward else outer // c.group_count
        group, inside = np.divmod(self.channels, outer // c.group_count if is_forward else depth)
        if is_forward:
            of_channel = np.broadcast_to(self.channels[:, np.newaxis], (len(self.channels), summed))
            of_term = np.broadcast_to(np.arange(summed), of_channel.shape)
        else:
            of_channel = group[:, np.newaxis] * summed + np.arange(summed)
            of_term = np.broadcast_to(inside[:, np.newaxis], of_channel.shape)
        value, size = np.zeros((2, len(self.places), len(self.channels)))
        used = np.unique(group)
        read_channels = (used[:, np.newaxis] * summed + np.arange(summed)).ravel()
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
            read = _gathered(
                source, memory[name], self.places[there, 0], [at[there] for at in positions], read_channels
            )
            terms = np.zeros((len(used), len(self.places), summed))
            terms[:, there] = read.reshape(len(read), len(used), summed).transpose(1, 0, 2)
            stored = [np.asarray(e - 1 - t if c.is_flipped else t) for t, e in zip(tap, taps, strict=True)]
            matrix = _elements(filters, memory["w"], (of_channel, of_term, *stored))
            for i, number in enumerate(used):
                mine = group == number
                value[:, mine] += terms[i] @ matrix[mine].T
                size[:, mine] += np.abs(terms[i]) @ np.abs(matrix[mine]).T
        return value, size


def _gathered(spec: Any, memory: Pages, images: Array, positions: list[Array], channels: Array) -> Array:
    """Return the elements of these pixels and channels, (pixel, channel)."""
    return _elements(spec, memory, (images[:, np.newaxis], channels, *(at[:, np.newaxis] for at in positions)))


def _elements(spec: Any, memory: Pages, index: tuple[Array, ...]) -> Array:
    """Return the elements at broadcast indices, and copy the pages that hold them."""
    memory.need(sum(at * step for at, step in zip(index, spec.strides, strict=True)) * spec.scalar_bytes)
    found: Array = strided(spec, memory.bytes)[index]
    return found.astype(np.float64)
