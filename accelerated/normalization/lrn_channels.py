"""Plans LRN of few channels (lrn_channels.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int

from ..plans import Launch
from ..primitives.geometry import VECTOR_BYTES, blocks, geometry, merge_dimensions
from ..reproducible import Order
from .lrn import LRNSolver
from .problem import LRNProblem

MAX_CHANNELS = 4  # channels that a thread holds in registers
THREADS = 128  # threads per block
PLANES = ""  # suffix of the kernel for vectors of one channel
CONTIGUOUS = "_contiguous"  # suffix of the kernel for contiguous positions with their channels
SINGLE = "_single"  # suffix of the kernel for single positions


class ChannelsSolver(LRNSolver):
    """Serve few channels; a thread has all channels of its positions."""

    name = "normalization.lrn_channels"
    fixed_order = Order("fma", (name,))
    source = "normalization/lrn_channels.cu"

    def serves(self, problem: LRNProblem) -> bool:
        return problem.channels <= MAX_CHANNELS

    def apart(self, problem: LRNProblem) -> tuple[tuple[str, str], ...]:
        """Return no pair: x may be y, because a thread reads all channels before it writes."""
        return ()

    def _width(self, problem: LRNProblem) -> int:
        return VECTOR_BYTES // problem.x.scalar_bytes

    def _variant(self, problem: LRNProblem) -> str:
        """Return the variant: vectors of one channel, contiguous positions with their channels, or single positions."""
        width = self._width(problem)
        extents, steps = merge_dimensions(problem.dims, problem.strides)
        if not problem.aligned or extents[-1] % width != 0:
            return SINGLE
        if any(step % width != 0 for of in steps for step in of[:-1]):
            return SINGLE
        strides = problem.channel_strides
        if all(of[-1] == 1 for of in steps) and (problem.channels == 1 or all(s % width == 0 for s in strides)):
            return PLANES
        if all(of[-1] == problem.channels for of in steps) and all(stride == 1 for stride in strides):
            return CONTIGUOUS
        return SINGLE

    def alignment(self, problem: LRNProblem) -> Mapping[str, int]:
        return dict.fromkeys(problem.operands, VECTOR_BYTES) if self._variant(problem) != SINGLE else {}

    def launches(self, problem: LRNProblem) -> list[Launch]:
        variant, width = self._variant(problem), self._width(problem)
        layout = geometry(problem.dims, problem.strides, 1 if variant == SINGLE else width)
        strides = [width] * len(problem.specs) if variant == CONTIGUOUS else problem.channel_strides
        fields = [("stride", (c_int * len(strides))(*strides)), ("positions", layout)]
        definitions = {"CHANNELS": problem.channels, "VECTOR": width}
        return [self._launch(problem, variant, definitions, fields, blocks(layout.vectors, THREADS), THREADS)]
