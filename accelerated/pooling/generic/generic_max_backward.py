"""The gradient of a maximum with any window (generic_max_backward.cu)."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_longlong, c_uint
from dataclasses import dataclass
from math import prod

from ...primitives.geometry import THREADS, FastDivmod
from ..problem import MAX_BACKWARD, PACK_BYTES, WARP, Axis, Configuration, PoolingProblem, PoolingSolver, power_of_two
from .generic import configured, pack_width
from .generic_tile import tiled

SOURCE = "pooling/generic/generic_max_backward.cu"
MAX_OUTER = 3
INDEX_BYTES = 4
SHARED_BYTES = 32 * 1024  # of a block; several share an SM
GROUP_BYTES = 128  # of the channels of a block
BLOCKS_PER_SM = 4
TILE_WINDOW = 256  # positions up to which threads of tiles scan windows alone
SMALL_WINDOW = 32  # positions that one thread scans
LOADS = 8  # of a thread of a team
BLOCK_INPUTS = 1024  # of planes that share a block


class BoxStruct(ctypes.Structure):
    """The ``Box`` of the kernel."""

    _fields_ = [
        ("outer_rank", c_int),
        ("outer", FastDivmod * MAX_OUTER),
        ("x_outer", c_longlong * MAX_OUTER),
        ("y_outer", c_longlong * MAX_OUTER),
        ("planes", c_uint),
        ("block_planes", c_uint),
        ("packs", c_uint),
        ("groups", FastDivmod),
        ("parts", FastDivmod * 3),
        ("group_packs", FastDivmod),
        ("inputs", FastDivmod * 3),
        ("windows", FastDivmod * 3),
        ("team", FastDivmod),
        ("column_bits", c_int),
        ("capacity", c_uint),
        ("values", c_uint),
        ("y_channel", c_longlong),
    ]


@dataclass
class Box:
    """The inputs of a block along each axis, of ``group_packs`` packs of channels, and the windows that it keeps at a time."""

    inputs: list[int]
    group_packs: int
    capacity: int

    def windows(self, axes: list[Axis]) -> list[int]:
        """Return along each axis how many windows meet the box at most."""
        pairs = zip(axes, self.inputs, strict=True)
        return [min(axis.output, (size + axis.window - 2) // axis.stride + 1) for axis, size in pairs]

    def parts(self, axes: list[Axis]) -> list[int]:
        """Return how many boxes there are along each axis."""
        return [-(-axis.input // size) for axis, size in zip(axes, self.inputs, strict=True)]


def box_of(axes: list[Axis], group_packs: int, capacity: int, others: int, enough: int) -> Box:
    """Return the largest box whose windows a block keeps at a time, of which there are ``enough``, or one with an input for each thread.

    others: how many times the boxes of a plane exist.
    """
    box = Box([axis.input for axis in axes], group_packs, capacity)
    while prod(box.inputs) * group_packs > THREADS:
        d = max(range(3), key=lambda d: box.inputs[d] / axes[d].window if box.inputs[d] > 1 else 0)
        too_large = prod(box.windows(axes)) > capacity
        too_few = others * prod(box.parts(axes)) < enough and box.inputs[d] > axes[d].window
        if not too_large and not too_few:
            break
        box.inputs[d] = -(-box.inputs[d] // 2)
    return box


class GenericMaxBackward(PoolingSolver):
    """Any gradient of a maximum: blocks keep the first maxima of windows in shared memory, and inputs gather from them."""

    name = "pooling.generic_max_backward"
    kinds = (MAX_BACKWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        shape, width = problem.shape, pack_width(problem)
        tile = tiled(problem, SOURCE) if shape.covered <= TILE_WINDOW else None
        if tile is not None:
            return tile
        axes = shape.axes
        extents, x_steps, y_steps = list(shape.extents), list(shape.x_steps), list(shape.y_steps)
        channels, y_channel = 1, 1
        if x_steps[-1] == 1 and axes[2].x_stride != 1:
            channels, y_channel, _ = extents.pop(), y_steps.pop(), x_steps.pop()
        team = 1 if shape.covered < SMALL_WINDOW else min(WARP, power_of_two(shape.covered // LOADS))
        packs, planes = channels // width, prod(extents)
        pack_bytes = width * problem.operation.x.scalar_bytes
        group_packs = min(packs, max(1, GROUP_BYTES // pack_bytes))
        if team > 1:  # the threads of a team are in one warp
            group_packs = power_of_two(min(group_packs, WARP // team))
        groups = -(-packs // group_packs)
        capacity = SHARED_BYTES // (group_packs * (width * INDEX_BYTES + pack_bytes))
        enough = BLOCKS_PER_SM * problem.device.multiprocessors
        box = box_of(axes, group_packs, capacity, planes * groups, enough)
        inputs, windows, parts = prod(box.inputs) * group_packs, box.windows(axes), box.parts(axes)
        block_planes = 1
        if prod(parts) == 1:
            most = min(capacity // prod(windows), BLOCK_INPUTS // inputs, planes * groups // enough)
            block_planes = max(1, min(most, planes))
        capacity = min(capacity, block_planes * prod(windows))
        value = BoxStruct(
            outer_rank=len(extents),
            planes=planes,
            block_planes=block_planes,
            packs=packs,
            groups=FastDivmod.of(groups),
            group_packs=FastDivmod.of(group_packs),
            team=FastDivmod.of(team),
            column_bits=min(team, power_of_two(min(axes[2].window, axes[2].input))).bit_length() - 1,
            capacity=capacity,
            values=-(-capacity * group_packs * width * INDEX_BYTES // PACK_BYTES) * PACK_BYTES,
            y_channel=y_channel,
        )
        for i, d in enumerate(reversed(range(len(extents)))):
            value.outer[i], value.x_outer[i], value.y_outer[i] = FastDivmod.of(extents[d]), x_steps[d], y_steps[d]
        for d in range(3):
            value.parts[d], value.inputs[d] = FastDivmod.of(parts[d]), FastDivmod.of(box.inputs[d])
            value.windows[d] = FastDivmod.of(windows[d])
        work = max(block_planes * inputs, capacity * group_packs * team)
        threads = min(THREADS, -(-work // WARP) * WARP)
        blocks = groups * prod(parts) * -(-planes // block_planes)
        fields = (("width", c_uint(width)), ("box", value))
        shared_bytes = value.values + capacity * group_packs * pack_bytes
        return configured(problem, SOURCE, "gather", width, blocks, threads, *fields, shared_bytes=shared_bytes)
