"""Serve convolutions of many groups as products of fewer groups on tensor cores (convolution/implicit_gemm/tma.cu).

As many groups as fit into 128 bytes of channels are combined. The combined filter has zeros between filters and
channels of different groups. A zero times an infinity is NaN, which separate groups would not give. Blocks therefore
note whether they met a NaN. Where one did, the kernel of few channels (grouped.cu) computes all results again.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from dualdnn.api.operations import FilterSpec, TensorSpec, TransformTensor
from dualdnn.api.operations.specs import NHWC

from ..plans import Launch
from ..primitives.tma import ALIGNMENT, ROW_BYTES, has_wgmma
from ..transform.plan import block_diagonal, copy, launch
from ..transform.problem import Walk
from .forward import IMPLICIT_PRECOMP_GEMM, ConvolutionProblem, ConvolutionSolver
from .grouped import grouped_product
from .implicit_gemm.product import Product
from .implicit_gemm.tma import TMA, TmaKernel
from .problem import MAX_OFFSET, Convolution, Rates, blend, operand_names, rounded_up

NOTE_BYTES = 4  # bytes per block
NOTED = 512  # blocks of a product, at most: one per multiprocessor, and the later ones of short products


class Packed(NamedTuple):
    """Describe the convolution with ``together`` groups as one.

    x has channels innermost. The workspace has its filter after ``zeros`` rows of zeros, whose first bytes are the
    notes.
    """

    operation: Convolution
    together: int
    zeros: int
    x: TensorSpec

    @classmethod
    def of(cls, problem: ConvolutionProblem) -> Packed:
        """Return the convolution with the most groups together that fit and are aligned for TMA."""
        o, groups = problem.operation, problem.groups
        filters, channels, unit = o.w.dims[0] // groups, o.w.dims[1], ALIGNMENT // o.x.scalar_bytes
        most = min(groups, ROW_BYTES // o.x.scalar_bytes // max(filters, channels))
        fitting = (n for n in range(most, 1, -1) if groups % n == n * filters % unit == n * channels % unit == 0)
        together = next(fitting, 1)
        block = together * filters * together * channels * prod(o.w.dims[2:]) * o.w.tensor.scalar_bytes
        zeros = -(-NOTED * NOTE_BYTES // block) * together * filters
        x = o.x if o.x.strides[1] == 1 else TensorSpec.packed(o.x.data_type, o.x.dims, NHWC)
        return cls(o, together, zeros, x)

    @property
    def w(self) -> FilterSpec:
        """Return the filter with the rows before it."""
        filters, channels, *taps = self.operation.w.dims
        return FilterSpec(self.operation.w.data_type, NHWC, (self.zeros + filters, self.together * channels, *taps))

    @property
    def filter_at(self) -> int:
        """Return the bytes of the workspace before the filter."""
        return self.zeros * self.w.tensor.strides[0] * self.w.tensor.scalar_bytes

    @property
    def x_at(self) -> int:
        """Return the bytes of the workspace before the copy of x."""
        return rounded_up(self.w.nbytes, ROW_BYTES)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the workspace."""
        return self.x_at + (self.x.nbytes if self.copies_x else 0)

    @property
    def copies_x(self) -> bool:
        return self.x != self.operation.x

    @property
    def forward(self) -> Convolution:
        """Return the convolution as a product computes it."""
        o = self.operation
        spec = replace(o.convolution, group_count=o.convolution.group_count // self.together)
        w = replace(self.w, dims=(o.w.dims[0], *self.w.dims[1:]))
        return replace(o, convolution=spec, x=self.x, w=w)

    def product(self, problem: ConvolutionProblem) -> tuple[TmaKernel, Product] | None:
        """Return the product and the kernel that finishes it first, or None where TMA cannot read it."""
        x, x_at = ("workSpace", self.x_at) if self.copies_x else ("x", 0)
        packed = ConvolutionProblem(self.forward, problem.device)
        made = packed.product(packed.value, x, "workSpace", offsets=(x_at, self.filter_at, 0), notes=True)
        serving = [kernel for kernel in TMA if kernel.serves(made) and kernel.shares(made).blocks <= NOTED]
        if not serving:
            return None
        return next((kernel for kernel in serving if kernel.is_preferred(made)), serving[0]), made


class PackGroups(ConvolutionSolver):
    """Serve groups of few channels on tensor cores. It is preferred where it should take less time than direct sums."""

    name = "convolution.pack_groups"
    algorithms = (IMPLICIT_PRECOMP_GEMM,)

    def can_launch(self, problem: ConvolutionProblem) -> bool:
        o = problem.operation
        few = problem.groups > 1 and o.w.dims[1] * o.x.scalar_bytes % ROW_BYTES
        known = few and problem.tensor_cores and has_wgmma(problem.device) and blend(o)[1] == 0
        if not known or o.x.data_type != o.y.data_type or not problem.in_one_launch or problem.filter_row:
            return False
        packed = Packed.of(problem)
        if prod(packed.x.dims) > MAX_OFFSET or not grouped_product(problem).is_known:
            return False
        return packed.product(problem) is not None

    def applies(self, problem: ConvolutionProblem) -> bool:
        if not self.serves(problem):
            return False
        return self.estimated_seconds(problem) < grouped_product(problem).estimated_seconds(problem.device)

    def used_bytes(self, problem: ConvolutionProblem) -> int:
        return Packed.of(problem).nbytes

    def estimated_seconds(self, problem: ConvolutionProblem) -> float:
        packed = Packed.of(problem)
        kernel, product = packed.product(problem) or (TMA[0], None)
        assert product
        copied = 2 * packed.x.nbytes / Rates.BANDWIDTH + Rates.LAUNCH if packed.copies_x else 0.0
        return 3 * Rates.LAUNCH + copied + max(problem.memory_seconds, kernel.computing_seconds(product))

    def launches(self, problem: ConvolutionProblem) -> list[Launch]:
        o, device, packed = problem.operation, problem.device, Packed.of(problem)
        kernel, product = packed.product(problem) or (TMA[0], None)
        assert product
        spread = block_diagonal(o.w.tensor, packed.w.tensor, problem.groups, packed.together)
        found = [_to_workspace("w", spread, o.w.tensor, packed.w.tensor, device)]
        if packed.copies_x:
            walk = copy(o.x, packed.x)
            walk.destination_base += packed.x_at // o.x.scalar_bytes
            found.append(_to_workspace("x", walk, o.x, packed.x, device))
        found.append(kernel.launch(product))
        blocks = kernel.shares(product).blocks
        again = grouped_product(problem)
        found.append(again.launch(o, device, problem.epilogue, ("x", "w", *operand_names(o)), blocks))
        return found


def _to_workspace(name: str, walk: Walk, source: TensorSpec, target: TensorSpec, device: Any) -> Launch:
    """Return the launch that copies an operand to the workspace by a walk."""
    made = launch(walk, TransformTensor(1.0, 0.0, source, target), ("x", "y"), device)
    made.operands = (name, "workSpace")
    return made
