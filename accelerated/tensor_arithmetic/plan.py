"""Plans AddTensor (3.2.2), OpTensor (3.2.68), ScaleTensor (3.2.75) and SetTensor (3.2.90)."""

from __future__ import annotations

from ctypes import c_byte, c_double
from typing import Any

from dualdnn.api.operations import AddTensor, OpTensor, ScaleTensor, SetTensor, TensorSpec

from ..plans import Launch, factors, pointers, scalar_field, structure, type_definitions
from ..primitives.geometry import THREADS, broadcast_strides, elementwise
from ..reproducible import NO_SUMS
from ..solver import Problem, Solver, serve

SOURCE = "tensor_arithmetic/tensor_arithmetic.cu"
VECTOR_BYTES = 16


class ArithmeticProblem(Problem):
    """Describe an operation on every element of its output, with operands that may be broadcast onto it.

    kernel: the prefix of the kernels' names. scalars: the argument fields that follow the pointers. strides: in
    elements, for every operand over ``dims``, the output's last.
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
        self.element_type, self.width = element.scalar_type, VECTOR_BYTES // widest_bytes
        *inputs, (self.dims, strides) = (self.operation.tensor(name).scalar_layout() for name in operands)
        self.strides = [broadcast_strides(dims, steps, self.dims) for dims, steps in inputs] + [list(strides)]


class ElementwiseSolver(Solver[ArithmeticProblem]):
    """Serve tensors of generic layouts. Threads take vectors of 16 bytes of the widest operand if every operand has
    them, else elements."""

    name = "tensor_arithmetic.elementwise"
    fixed_order = NO_SUMS

    def launches(self, problem: ArithmeticProblem) -> list[Launch]:
        layout, grid = elementwise(problem.dims, problem.strides, problem.width, problem.device)
        types = type_definitions(problem.element_type, problem.operation)
        function = problem.device.function(SOURCE, problem.kernel, types)
        arguments = structure(*pointers(len(problem.operands)), *problem.scalars, ("geometry", layout))
        return [Launch(function, arguments, problem.operands, grid, (THREADS, 1, 1))]


serve(ArithmeticProblem, (ElementwiseSolver(),), AddTensor, OpTensor, ScaleTensor, SetTensor)
