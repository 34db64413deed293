"""Plans activations, forward (3.2.1) and backward (4.1.1)."""

from __future__ import annotations

from ctypes import c_int, c_uint
from typing import Any

from dualdnn.api.enumerations import cudnnActivationMode_t
from dualdnn.api.operations import ActivationBackward, ActivationForward

from ..plans import Launch, factors, pointers, structure, type_definitions
from ..primitives.geometry import (
    LONG_VECTORS_PER_THREAD,
    THREADS,
    VECTOR_BYTES,
    VECTORS_PER_THREAD,
    Grid,
    elementwise,
    prefetching_blocks,
)
from ..reproducible import NO_SUMS
from ..solver import Problem, Solver, serve

SOURCE = "activation/activation.cu"
RECTIFIED = (cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnActivationMode_t.CUDNN_ACTIVATION_CLIPPED_RELU)


class ActivationProblem(Problem):
    """Hold an activation forward call, or its gradient, which reads x or y, whichever the mode needs."""

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.forward = isinstance(operation, ActivationForward)
        self.rectifies = operation.activation.mode in RECTIFIED
        needed = "x" if self.rectifies else "y"
        self.operands = ("x", "y") if self.forward else (needed, "dy", "dx")
        self.specs = [operation.tensor(name) for name in self.operands]
        self.output = self.specs[-1]
        self.strides = [spec.strides for spec in self.specs]
        self.kernel = "activation_backward"
        if self.forward:
            self.kernel = "activation_forward_rectified" if self.rectifies else "activation_forward"

    def launch(self, kernel: str, layout: Any, grid: Grid, block: Grid, *others: tuple[str, Any]) -> Launch:
        """Return the launch of a kernel; ``others`` are its arguments after the layout."""
        operation, activation = self.operation, self.operation.activation
        arguments = structure(
            *pointers(len(self.operands)),
            *factors(operation, alpha=operation.alpha, beta=operation.beta, coefficient=activation.coefficient),
            ("mode", c_int(activation.mode)),
            *([("propagate", c_int(activation.relu_nan))] if self.forward else []),
            ("layout", layout),
            *others,
        )
        function = self.device.function(SOURCE, kernel, type_definitions(self.output.scalar_type, operation))
        return Launch(function, arguments, self.operands, grid, block)


class ElementwiseSolver(Solver[ActivationProblem]):
    """Serve tensors of generic layouts: in vectors of 16 bytes if every operand allows them, else by element."""

    name = "activation.elementwise"
    fixed_order = NO_SUMS

    def launches(self, problem: ActivationProblem) -> list[Launch]:
        output = problem.output
        most = LONG_VECTORS_PER_THREAD if problem.forward and not problem.rectifies else VECTORS_PER_THREAD
        width = VECTOR_BYTES // output.scalar_bytes
        layout, grid = elementwise(output.dims, problem.strides, width, problem.device, most)
        moved_bytes = sum(spec.nbytes for spec in problem.specs) if problem.forward else 3 * problem.output.nbytes
        prefetching = ("prefetching_blocks", c_uint(prefetching_blocks(moved_bytes)))
        return [problem.launch(problem.kernel, layout, grid, (THREADS, 1, 1), prefetching)]


serve(ActivationProblem, (ElementwiseSolver(),), ActivationForward, ActivationBackward)
