"""AddTensor (3.2.2), OpTensor (3.2.68), ScaleTensor (3.2.75), SetTensor (3.2.90): the problem and its solvers."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_byte, c_double, c_uint
from functools import cached_property
from math import prod
from typing import Any

from dualdnn.api.operations import AddTensor, OpTensor, ScaleTensor, SetTensor, TensorSpec

from ..plans import Launch, factors, pointers, scalar_field, structure, type_definitions
from ..primitives.geometry import THREADS, Grid, blocks, broadcast_strides, elementwise, geometry, merge_dimensions
from ..primitives.small_grid import SmallGridLaunch, small_grid
from ..solver import Problem, Solver, serve

SOURCE = "tensor_arithmetic/tensor_arithmetic.cu"
PACK_BYTES = 16
UNIFORM_PACKS = 2  # of a thread, as in the kernel


class ArithmeticProblem(Problem):
    """An operation on every element of its output, with operands that may be broadcast onto it.

    kernel: the prefix of the kernels' names. scalars: the argument fields behind the pointers. strides: elements, of
    every operand over ``dims``, the output's last.
    """

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        if isinstance(operation, AddTensor):
            self._describe("add", ("A", "C"), operation.C, operation.C.scalar_bytes)
            self.scalars = factors(operation, alpha=operation.alpha, beta=operation.beta)
        elif isinstance(operation, ScaleTensor):  # alpha * y + 0 * y, in place
            self._describe("add", ("y", "y"), operation.y, operation.y.scalar_bytes)
            self.scalars = factors(operation, alpha=operation.alpha, beta=0.0)
        elif isinstance(operation, SetTensor):
            self._describe("set", ("y",), operation.y, operation.y.scalar_bytes)
            self.scalars = [scalar_field("value", c_double, operation.value)]
        else:
            widest = max(operation.A.scalar_bytes, operation.C.scalar_bytes)
            self._describe("op", ("A", "B", "C"), operation.A, widest)
            formula = structure(
                *factors(operation, alpha1=operation.alpha1, alpha2=operation.alpha2, beta=operation.beta),
                ("operation", c_byte(operation.op_tensor.op)),
                ("propagate", c_byte(operation.op_tensor.nan)),
                ("output", c_byte(operation.C.scalar_type)),
            )
            self.scalars = [("formula", formula)]

    def _describe(self, kernel: str, operands: tuple[str, ...], element: TensorSpec, widest_bytes: int) -> None:
        self.kernel, self.operands = f"tensor_arithmetic_{kernel}", operands
        self.element_type, self.width = element.scalar_type, PACK_BYTES // widest_bytes
        *inputs, (self.dims, strides) = (self.operation.tensor(name).scalar_layout() for name in operands)
        self.strides = [broadcast_strides(dims, steps, self.dims) for dims, steps in inputs] + [list(strides)]

    @cached_property
    def elementwise(self) -> tuple[Any, Grid]:
        """The geometry of the operands, in packs where every operand has them, and its grid."""
        return elementwise(self.dims, self.strides, self.width, self.device)

    @cached_property
    def small_grid(self) -> SmallGridLaunch | None:
        """The launch whose dimensions index the operands; None where the tensor is too large for it."""
        return small_grid(self.dims, self.strides)

    def launch(self, variant: str, grid: Grid, block: Grid, *fields: tuple[str, Any]) -> Launch:
        """Return the launch of a variant of the kernel. fields: its arguments behind the scalars."""
        types = type_definitions(self.element_type, self.operation)
        arguments = structure(*pointers(len(self.operands)), *self.scalars, *fields)
        function = self.device.function(SOURCE, self.kernel + variant, types)
        return Launch(function, arguments, self.operands, grid, block)


class SmallGridSolver(Solver[ArithmeticProblem]):
    """Small tensors that no 16-byte pack moves: the launch's dimensions are the tensor's."""

    name = "tensor_arithmetic.small_grid"

    def serves(self, problem: ArithmeticProblem) -> bool:
        return not isinstance(problem.operation, SetTensor) and problem.small_grid is not None

    def applies(self, problem: ArithmeticProblem) -> bool:
        return bool(problem.elementwise[0].width == 1) and self.serves(problem)

    def launches(self, problem: ArithmeticProblem) -> list[Launch]:
        found = problem.small_grid
        assert found is not None
        return [problem.launch("_small_grid", found.grid, found.block, ("small_grid", found.layout))]


class UniformRowsSolver(Solver[ArithmeticProblem]):
    """A bias on dense planes that are no multiple of a pack: 16 bytes of C have one element of A, or two."""

    name = "tensor_arithmetic.uniform_rows"

    def serves(self, problem: ArithmeticProblem) -> bool:
        if not (problem.aligned and isinstance(problem.operation, AddTensor)):
            return False
        extents, steps = merge_dimensions(problem.dims, problem.strides[-1:])
        rows = self._rows(problem)
        dense = len(extents) == 1 and steps == [[1]]
        return bool(dense and rows.row_stride[0] == 0 and rows.row >= problem.width)

    def applies(self, problem: ArithmeticProblem) -> bool:
        return bool(problem.elementwise[0].width == 1) and self.serves(problem)

    def launches(self, problem: ArithmeticProblem) -> list[Launch]:
        packs = -(-prod(problem.dims) // problem.width)
        fields = ("count", c_uint(prod(problem.dims))), ("rows", self._rows(problem))
        return [problem.launch("_uniform_rows", blocks(packs, THREADS * UNIFORM_PACKS), (THREADS, 1, 1), *fields)]

    def alignment(self, problem: ArithmeticProblem) -> Mapping[str, int]:
        return {"C": PACK_BYTES}

    def _rows(self, problem: ArithmeticProblem) -> Any:
        """Return the geometry of single elements; A is the same along the outermost dimensions that it leaves out."""
        rows = geometry(problem.dims, problem.strides, 1)
        while rows.outer_rank and rows.outer[rows.outer_rank - 1].stride[0] == 0:
            rows.outer_rank -= 1
        return rows


class ElementwiseSolver(Solver[ArithmeticProblem]):
    """Tensors of any layout: a thread takes packs of 16 bytes of the widest operand where every operand has them, else
    elements."""

    name = "tensor_arithmetic.elementwise"

    def launches(self, problem: ArithmeticProblem) -> list[Launch]:
        layout, grid = problem.elementwise
        return [problem.launch("", grid, (THREADS, 1, 1), ("geometry", layout))]


SOLVERS = (SmallGridSolver(), UniformRowsSolver(), ElementwiseSolver())
serve(ArithmeticProblem, SOLVERS, AddTensor, OpTensor, ScaleTensor, SetTensor)
