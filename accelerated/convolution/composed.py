"""Plans of launches whose operands begin somewhere in the operands of a call, and what gradients make of forward
convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dualdnn.api.operations import ConvolutionForward, FilterSpec, Operation, TensorSpec, TransformTensor

from ..plans import Launch, PlacedPlan
from ..reproducible import Order
from ..solver import ROOMS
from ..transform.plan import copy, launch
from .forward import IMPLICIT, ConvolutionProblem, ConvolutionSolver
from .implicit_gemm.product import ProductKernel
from .implicit_gemm.products import KERNELS, kernel_of
from .implicit_gemm.solvers import ImplicitGemm
from .implicit_gemm.tma import TMA
from .problem import Rates

# Kernels that find every element of x by its coordinates.
BY_COORDINATES = tuple(kernel for kernel in KERNELS if "tma" not in kernel.name)


class At(NamedTuple):
    """An operand of the call, and how many bytes behind its address."""

    operand: str
    offset: int = 0


class ComposedLaunch(NamedTuple):
    """A launch and where each of its operands is."""

    launch: Launch
    operands: tuple[At, ...]


def within(launches: Sequence[Launch], where: Mapping[str, At]) -> list[ComposedLaunch]:
    """Return the launches of an operation whose operands are, by name, parts of the operands of another call."""
    return [ComposedLaunch(launch, tuple(where[name] for name in launch.operands)) for launch in launches]


class ComposedPlan(PlacedPlan):
    """Launches on parts of the operands. A workspace counts from its first multiple of 16 bytes on."""

    def __init__(self, operation: Operation, launches: Sequence[ComposedLaunch], solver: str) -> None:
        indices = {name: i for i, name in enumerate(operation.operands)}
        slices = list(dict.fromkeys(at for _, operands in launches for at in operands))
        behind = {at: len(indices) + i for i, at in enumerate(slices)}
        steps = [(step, [behind[at] for at in operands]) for step, operands in launches]
        super().__init__(indices["workSpace"], [(indices[at.operand], at.offset) for at in slices], steps, solver)


def copied(source: TensorSpec, target: TensorSpec, device: Any) -> Launch:
    """Return the launch that copies ``x``, described as the source, to ``y``, described as the target."""
    return launch(copy(source, target), TransformTensor(1.0, 0.0, source, target), ("x", "y"), device)


def transposed_filter(part: TensorSpec, w: FilterSpec, device: Any, row: int = 0) -> Launch:
    """Return the launch that copies ``part``, (groups, output channels of w in each, its input channels, taps ...),
    into w. row: elements from one filter to the next where w has gaps between them."""
    (step, *strides), (groups, channels, *_) = w.tensor.strides, part.dims
    assert groups * channels == w.dims[0]
    step = row or step
    return copied(part, TensorSpec(w.data_type, part.dims, (channels * step, step, *strides)), device)


class Inner:
    """A forward convolution that a gradient is made of: any padding, and an output that may end anywhere.

    Not all solvers of the implicit GEMM take a negative padding, or an output that ends before or behind the last
    window, or is not of the type of x: there products compute it, by kernels that find every element of x by its
    coordinates, or by TMA within the box that the output needs. The same goes for filters with gaps between
    them (filter_row, forward.py).
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
            found = ROOMS[ConvolutionForward].preferred(self.problem)
            assert isinstance(found, ConvolutionSolver)
            self.solver = found

    @property
    def kernel(self) -> ProductKernel | None:
        """The kernel of the products, if they are all there is."""
        if self.solver:
            return self.solver.kernel if isinstance(self.solver, ImplicitGemm) else None
        return kernel_of(self.problem.products[0], self.kernels)

    @property
    def summation_order(self) -> Order | None:
        """The order in which the launches add."""
        if self.solver:
            return self.solver.summation_order(self.problem)
        product = self.problem.products[0]
        return kernel_of(product, self.kernels).summation_order(product)

    @property
    def used_bytes(self) -> int:
        """Bytes of workspace from its first multiple of 16 bytes on."""
        return self.solver.used_bytes(self.problem) if self.solver else 0

    @property
    def estimated_seconds(self) -> float:
        """About how many seconds the launches take."""
        if self.solver:
            return self.solver.estimated_seconds(self.problem)
        return Rates.LAUNCH + self.problem.product_seconds(kernel_of(self.problem.products[0], self.kernels))

    def launches(self) -> list[Launch]:
        if self.solver:
            return list(self.solver.launches(self.problem))
        return [kernel_of(product, self.kernels).launch(product) for product in self.problem.products]
