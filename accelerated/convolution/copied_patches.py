"""Serve convolutions of patches, and their gradients, with a copy of the image that has a pixel for each patch.

The copy's channels are in the order of the filter (patches.py). So the convolution is a product with the filter in
place, and each gradient is a gradient of windows of one pixel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

from dualdnn.api.operations import TensorSpec

from ..plans import Launch, Plan, with_alignment
from ..reproducible import Order
from ..solver import LAUNCH_SECONDS, SOLVER_FAMILIES, Problem, Solver, seconds_otherwise
from .composed import At, ComposedLaunch, ComposedPlan, copied, within
from .data_gradient.residue_classes import DataGradientProblem
from .filter_gradient.forward_convolution import FilterGradientProblem
from .forward import IMPLICIT_PRECOMP_GEMM, ConvolutionProblem, ConvolutionSolver
from .implicit_gemm.pack_nhwc import Copies, Place, copied_between
from .implicit_gemm.product import Product, ProductKernel
from .implicit_gemm.products import kernel_of
from .patches import Patches
from .problem import MAX_OFFSET, VECTOR_BYTES, Rates, rounded_up

ALIGNMENT = 256  # bytes, for the regions of the workspace
MIN_FILTERS = 8  # filters per group of sums over patches; fewer would leave tiles mostly zeros
COPIED = 1.1e11  # elements per second of a copy without vectors


def _patches(problem: Problem) -> Patches | None:
    """Return the patches of a problem if 32-bit offsets reach all of their copy."""
    found = Patches.of(problem.operation)
    return found if found and found.x.span <= MAX_OFFSET else None


def _copy_seconds(patches: Patches, aligned: bool) -> float:
    """Return the approximate seconds of a copy."""
    source, target = patches.moved(aligned)
    moved = 2 * patches.x.nbytes / Rates.BANDWIDTH
    pairs = zip(source.strides, target.strides, source.dims, strict=True)
    run = max((extent for *steps, extent in pairs if steps == [1, 1]), default=1) * source.scalar_bytes
    return LAUNCH_SECONDS + (moved if run % VECTOR_BYTES == 0 else max(moved, prod(source.dims) / COPIED))


class ConvolutionCopiedPatches(ConvolutionSolver):
    """Serve IMPLICIT_PRECOMP_GEMM with a product of the copied patches and the filter in place.

    Results in NCHW pass through the workspace with channels innermost where TMA cannot write them (pack_nhwc.py).
    """

    name = "convolution.copied_patches"
    algorithms = (IMPLICIT_PRECOMP_GEMM,)

    def can_launch(self, problem: ConvolutionProblem) -> bool:
        o = problem.operation
        if o.w.dims[0] // problem.groups < MIN_FILTERS or problem.filter_row or not problem.in_one_launch:
            return False
        return o.x.scalar_bytes > 1 and o.x.data_type == o.y.data_type and _patches(problem) is not None

    def applies(self, problem: ConvolutionProblem) -> bool:
        return self.serves(problem) and self.estimated_seconds(problem) < seconds_otherwise(self, problem)

    def _result(self, problem: ConvolutionProblem) -> tuple[TensorSpec, Place]:
        """Return the tensor that the product writes, which is a copy where TMA cannot write the planes of y."""
        patches, o = Patches(problem.operation), problem.operation
        copies = Copies(ConvolutionProblem(patches.operation, problem.device, problem.aligned))
        if problem.tensor_cores and copies.transposes_result:
            return copies.y, ("workSpace", rounded_up(patches.x.nbytes, ALIGNMENT))
        return o.y, ("y", 0)

    def _product(self, problem: ConvolutionProblem) -> tuple[ProductKernel, Product]:
        y, (name, at) = self._result(problem)
        operation = replace(Patches(problem.operation).operation, y=y)
        made = ConvolutionProblem(operation, problem.device, problem.aligned)
        product = made.product(made.value, "workSpace", "w", name, (0, 0, at))
        return kernel_of(product), product

    def summation_order(self, problem: ConvolutionProblem) -> Order:
        kernel, product = self._product(problem)
        return Order("patches", (kernel.summation_order(product),))  # in the order of the filter, not tap by tap

    def used_bytes(self, problem: ConvolutionProblem) -> int:
        y, (name, at) = self._result(problem)
        return Patches(problem.operation).x.nbytes if name == "y" else at + y.nbytes

    def estimated_seconds(self, problem: ConvolutionProblem) -> float:
        patches, (y, (name, _)) = Patches(problem.operation), self._result(problem)
        made = ConvolutionProblem(patches.operation, problem.device, problem.aligned)
        written = LAUNCH_SECONDS + 2 * y.nbytes / Rates.BANDWIDTH if name != "y" else 0.0
        multiplied = Rates.LAUNCH + made.product_seconds(self._product(problem)[0])
        return _copy_seconds(patches, problem.aligned) + multiplied + written

    def alignment(self, problem: ConvolutionProblem) -> Mapping[str, int]:
        patches = Patches(problem.operation)
        wider = patches.moved(problem.aligned)[0].data_type != patches.x.data_type
        return {"x": VECTOR_BYTES} if wider else {}

    def launches(self, problem: ConvolutionProblem) -> list[Launch]:
        kernel, product = self._product(problem)
        copy = copied(*Patches(problem.operation).moved(problem.aligned), problem.device)
        copy.operands = ("x", "workSpace")
        y, place = self._result(problem)
        written = [] if place == ("y", 0) else copied_between(y, problem.operation.y, place, ("y", 0), problem.device)
        return [copy, kernel.launch(product), *written]


class _Gradient:
    """Describe a gradient of copied patches: the gradient of windows of one pixel, and the solver of it."""

    def __init__(self, problem: Any) -> None:
        self.problem, self.operation = problem, problem.operation
        self.patches = Patches(self.operation)
        self.inner = type(problem)(self.patches.operation, problem.device, problem.aligned)
        self.image = self.patches.names.image

    @cached_property
    def solver(self) -> Solver[Any]:
        return SOLVER_FAMILIES[type(self.operation)].preferred(self.inner)

    @cached_property
    def inner_at(self) -> int:
        """Return the bytes of the workspace before that of the inner gradient."""
        return rounded_up(self.patches.x.nbytes, ALIGNMENT)

    @property
    def workspace_bytes(self) -> int:
        return with_alignment(self.inner_at + self.solver.workspace_bytes(self.inner))

    @property
    def estimated_seconds(self) -> float:
        return _copy_seconds(self.patches, self.problem.aligned) + self.solver.estimated_seconds(self.inner)

    @property
    def alignment(self) -> Mapping[str, int]:
        """Return the demands of the copy and of the inner gradient. The copy itself is aligned."""
        wider = self.patches.moved(self.problem.aligned)[0].data_type != self.patches.x.data_type
        found = dict(self.solver.alignment(self.inner))
        found.pop(self.image, None)
        return found | ({self.image: VECTOR_BYTES} if wider else {})

    def products(self) -> ComposedLaunch:
        """Return the plan of the inner gradient on the operands of the call."""
        plan = self.solver.plan(self.inner)
        where = {name: At(name) for name in self.operation.operands}
        where |= {self.image: At("workSpace"), "workSpace": At("workSpace", self.inner_at)}
        return ComposedLaunch(plan, tuple(where[name] for name in self.inner.operation.operands))


class _CopiedPatches(Solver[Any]):
    """Serve gradients of copied patches by the solvers of gradients of one pixel."""

    def applies(self, problem: Any) -> bool:
        return self.serves(problem) and self.estimated_seconds(problem) < seconds_otherwise(self, problem)

    def workspace_bytes(self, problem: Any) -> int:
        return _Gradient(problem).workspace_bytes

    def estimated_seconds(self, problem: Any) -> float:
        return _Gradient(problem).estimated_seconds

    def alignment(self, problem: Any) -> Mapping[str, int]:
        return _Gradient(problem).alignment


class DataGradientCopiedPatches(_CopiedPatches):
    """Serve the gradient of an image that patches cover, without blending. The last launch copies the patches of dx to
    their places. Elements that no patch covers would be products of zeros and of filters, which may be infinite (D212).
    """

    name = "convolution.data_gradient_copied_patches"

    def serves(self, problem: DataGradientProblem) -> bool:
        patches = _patches(problem) if problem.operation.beta == 0 and problem.in_one_launch else None
        return patches is not None and patches.covers(problem.operation.dx)

    def summation_order(self, problem: DataGradientProblem) -> Order | None:
        made = _Gradient(problem)
        order = made.solver.summation_order(made.inner)
        return order and Order("patches", (order,))

    def plan(self, problem: DataGradientProblem) -> Plan:
        o, made = problem.operation, _Gradient(problem)
        launches = [made.products()]
        source, target = made.patches.moved(problem.aligned)
        launches += within([copied(target, source, problem.device)], {"x": At("workSpace"), "y": At("dx")})
        return ComposedPlan(o, launches, self.name)


class FilterGradientCopiedPatches(_CopiedPatches):
    """Serve the gradient of the filter if groups have at least MIN_FILTERS filters."""

    name = "convolution.filter_gradient_copied_patches"

    def serves(self, problem: FilterGradientProblem) -> bool:
        o = problem.operation
        wide = o.dw.dims[0] // problem.groups >= MIN_FILTERS
        return wide and problem.in_one_launch and _patches(problem) is not None

    def plan(self, problem: FilterGradientProblem) -> Plan:
        made = _Gradient(problem)
        copy = copied(*made.patches.moved(problem.aligned), problem.device)
        launches = within([copy], {"x": At("x"), "y": At("workSpace")})
        return ComposedPlan(problem.operation, [*launches, made.products()], self.name)
