"""Gradients of the bias of dy in planes that begin anywhere and may have gaps (convolution/bias_gradient_planes.cu)."""

from __future__ import annotations

from ctypes import c_int, c_uint
from math import prod
from typing import NamedTuple

from dualdnn.api.operations import TensorSpec

from .. import solver
from ..plans import Launch
from ..primitives.geometry import FastDivmod, merge_dimensions
from .bias_gradient import BiasProblem
from .bias_gradient_parts import PACK_BYTES, THREADS, cluster_blocks, has_packed_result, launches_in_parts

SOURCE = "convolution/bias_gradient_planes.cu"
MOST_PITCHES = 2
MOST_SPAN = 16  # times its elements that a plane spans: the kernel reads gaps, others read a sector for each element
BLOCKS = 4  # of a multiprocessor
# Bytes of dy: less takes a launch, whoever serves; less of packs that are all aligned others read as fast.
LEAST_BYTES, ALIGNED_BYTES = 1 << 20, 32 << 20


class Planes(NamedTuple):
    """Elements that a plane spans, and (elements from one to the next, those that are no gap) of its parts, the largest
    first."""

    length: int
    parts: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, dy: TensorSpec) -> Planes | None:
        """Return the planes of a tensor; None where pixels do not follow each other in memory, or gaps are too many."""
        extents, (strides,) = merge_dimensions(list(dy.dims[2:]), [list(dy.strides[2:])])
        if strides[-1] != 1 or len(extents) - 1 > MOST_PITCHES:
            return None
        spans = [1]  # of the innermost dimensions
        for extent, stride in zip(reversed(extents), reversed(strides), strict=True):
            spans.append(spans[-1] + (extent - 1) * stride)
        parts = tuple(zip(strides[:-1], spans[-2:0:-1], strict=True))
        if spans[-1] > MOST_SPAN * prod(dy.dims[2:]) or any(
            pitch < max(kept, PACK_BYTES // dy.scalar_bytes) for pitch, kept in parts
        ):
            return None
        return cls(spans[-1], parts)


class BiasGradientPlanes(solver.Solver[BiasProblem]):
    """The sums of planes, by clusters of blocks."""

    name = "convolution.bias_gradient_planes"
    least_packs = 4 * THREADS  # of a block

    def serves(self, problem: BiasProblem) -> bool:
        dy = problem.operation.dy
        long = dy.span * dy.scalar_bytes >= 2 * PACK_BYTES
        # Packs that reach over an end of dy are looked for in the first and in the last image alone.
        apart = dy.dims[0] == 1 or dy.strides[0] * dy.scalar_bytes >= PACK_BYTES
        return long and apart and has_packed_result(problem) and Planes.of(dy) is not None

    def applies(self, problem: BiasProblem) -> bool:
        dy = problem.operation.dy
        if not self.serves(problem):
            return False
        planes = Planes.of(dy)
        assert planes is not None
        aligned = not planes.parts and all(stride * dy.scalar_bytes % PACK_BYTES == 0 for stride in dy.strides[:2])
        return bool(dy.nbytes >= (ALIGNED_BYTES if aligned else LEAST_BYTES))

    def launches(self, problem: BiasProblem) -> list[Launch]:
        o, planes, blocks = problem.operation, Planes.of(problem.operation.dy), problem.device.multiprocessors * BLOCKS
        assert planes is not None
        width, (images, channels) = PACK_BYTES // o.dy.scalar_bytes, o.dy.dims[:2]
        packs = -(-(planes.length + width - 1) // width)
        kept = (*planes.parts, (1, 1), (1, 1))[:MOST_PITCHES]
        cluster = cluster_blocks(problem.device)
        while cluster > 1 and channels * cluster > blocks:  # which all run at the same time
            cluster //= 2
        wanted = blocks // (channels * cluster)
        parts = max(1, min(wanted, images * packs // (self.least_packs * cluster)))
        fields = [
            ("packs", FastDivmod.of(packs)),
            ("pitch", (FastDivmod * MOST_PITCHES)(*(FastDivmod.of(pitch) for pitch, _ in kept))),
            ("kept", (c_int * MOST_PITCHES)(*(elements for _, elements in kept))),
            ("image", c_int(o.dy.strides[0])),
            ("channel", c_int(o.dy.strides[1])),
            ("all_packs", c_uint(images * packs)),
            ("length", c_uint(planes.length)),
            ("span", c_uint(o.dy.span)),
            ("parts", c_uint(parts)),
        ]
        definitions = {"PITCHES": str(len(planes.parts)), "CLUSTER_BLOCKS": str(cluster)}
        return launches_in_parts(problem, SOURCE, parts, (channels, cluster, parts), fields, definitions)
