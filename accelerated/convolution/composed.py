"""Compose plans of launches on parts of a call's operands, and compute gradients as forward convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dualdnn.api.operations import ConvolutionForward, FilterSpec, Operation, TensorSpec, TransformTensor

from ..plans import OWN, Launch, PlacedPlan, Plan
from ..reproducible import Order
from ..solver import SOLVER_FAMILIES
from ..transform.plan import copy, launch
from .forward import IMPLICIT, ConvolutionProblem, ConvolutionSolver
from .implicit_gemm.product import ProductKernel
from .implicit_gemm.products import KERNELS, kernel_of
from .implicit_gemm.solvers import ImplicitGemm
from .implicit_gemm.tma import TMA
from .problem import Rates

# These kernels locate every element of x by its coordinates.
BY_COORDINATES = tuple(kernel for kernel in KERNELS if "tma" not in kernel.name)


class At(NamedTuple):
    """Locate an operand of the call, and bytes after its address."""

    operand: str
    offset: int = 0


class ComposedLaunch(NamedTuple):
    """Place each operand of a launch, or of the plan of another operation."""

    launch: Launch | Plan
    operands: tuple[At, ...]


def within(launches: Sequence[Launch], where: Mapping[str, At]) -> list[ComposedLaunch]:
    """Return the launches of an operation whose operands are, by name, parts of the operands of another call."""
    return [
        ComposedLaunch(launch, tuple(At(name) if name in OWN else where[name] for name in launch.operands))
        for launch in launches
    ]


class ComposedPlan(PlacedPlan):
    """Run launches on parts of the operands. Offsets in a workspace count from its first 16-byte boundary."""

    def __init__(self, operation: Operation, launches: Sequence[ComposedLaunch], solver: str) -> None:
        indices = {name: i for i, name in enumerate(operation.operands)}
        slices = list(dict.fromkeys(at for _, operands in launches for at in operands if at.operand not in OWN))
        behind = {at: len(indices) + i for i, at in enumerate([*slices, *map(At, OWN)])}
        steps = [(step, [behind[at] for at in operands]) for step, operands in launches]
        super().__init__(indices["workSpace"], [(indices[at.operand], at.offset) for at in slices], steps, solver)


def copied(source: TensorSpec, target: TensorSpec, device: Any) -> Launch:
    """Return the launch that copies ``x``, described as the source, to ``y``, described as the target."""
    return launch(copy(source, target), TransformTensor(1.0, 0.0, source, target), ("x", "y"), device)


def transposed_filter(part: TensorSpec, w: FilterSpec, device: Any, row: int = 0) -> Launch:
    """Return the launch that copies ``part``, (groups, output channels of w in each, its input channels, taps ...),
    into w.

    ``row`` is the stride between filters, in elements, where w has gaps between them.
    """
    (step, *strides), (groups, channels, *_) = w.tensor.strides, part.dims
    assert groups * channels == w.dims[0]
    step = row or step
    return copied(part, TensorSpec(w.data_type, part.dims, (channels * step, step, *strides)), device)


class Inner:
    """Describe a forward convolution inside a gradient, with any padding and any end of its output.

    Some solvers of the implicit GEMM do not take a negative padding or an output of another type than x. Some need an
    output that ends at the last window. Elsewhere kernels that locate every element of x by its coordinates compute the
    products, or TMA does within the box that the output needs. The same is true of filters with gaps between them
    (filter_row, forward.py).
    """

    def __init__(self, operation: ConvolutionForward, device: Any, filter_row: int = 0) -> None:
        self.problem = ConvolutionProblem(operation, device, aligned=False, filter_row=filter_row)
        c = operation.convolution
        fits = min(c.padding) >= 0 and c.output_dims(operation.x.dims, operation.w.dims) == operation.y.dims
        fits = fits and operation.x.data_type == operation.y.data_type and min(operation.y.strides) >= 0
        self.kernels: Sequence[ProductKernel] = KERNELS
        self.solver: ConvolutionSolver | None = None
        if filter_row:
            self.kernels = TMA
        elif fits or operation.algo not in IMPLICIT:
            found = SOLVER_FAMILIES[ConvolutionForward].preferred(self.problem)
            assert isinstance(found, ConvolutionSolver)
            self.solver = found

    @property
    def kernel(self) -> ProductKernel | None:
        """Return the kernel of the products, if there are no other launches."""
        if self.solver:
            return self.solver.kernel if isinstance(self.solver, ImplicitGemm) else None
        return kernel_of(self.problem.products[0], self.kernels)

    @property
    def summation_order(self) -> Order | None:
        """Return the order in which the launches add."""
        if self.solver:
            return self.solver.summation_order(self.problem)
        product = self.problem.products[0]
        return kernel_of(product, self.kernels).summation_order(product)

    @property
    def used_bytes(self) -> int:
        """Return the bytes of workspace from its first 16-byte boundary."""
        return self.solver.used_bytes(self.problem) if self.solver else 0

    @property
    def estimated_seconds(self) -> float:
        """Return the approximate seconds of the launches."""
        if self.solver:
            return self.solver.estimated_seconds(self.problem)
        return Rates.LAUNCH + self.problem.product_seconds(kernel_of(self.problem.products[0], self.kernels))

    def launches(self) -> list[Launch]:
        if self.solver:
            return list(self.solver.launches(self.problem))
        return [kernel_of(product, self.kernels).launch(product) for product in self.problem.products]
