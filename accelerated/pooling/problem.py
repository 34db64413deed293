"""Describes a pooling call for its solvers: three axes, the dimensions that are not pooled, and the kernel launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import Structure
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any, ClassVar

from dualdnn.api.enumerations import cudnnPoolingMode_t as Mode
from dualdnn.api.operations import PoolingForward, TensorSpec

from ..plans import SCRATCH, Launch, factors, pointers, structure
from ..primitives.geometry import Grid, merge_dimensions
from ..reproducible import Order
from ..solver import Problem, Solver

MAXIMA = (Mode.CUDNN_POOLING_MAX, Mode.CUDNN_POOLING_MAX_DETERMINISTIC)
VECTOR_BYTES = 16
WARP = 32
L2_BYTES = 2**25  # size of a tensor up to which most of it is in L2
FORWARD = "forward"
AVERAGE_BACKWARD = "average backward"
MAX_BACKWARD = "max backward"
OPERANDS = {FORWARD: ("x", "y"), AVERAGE_BACKWARD: ("dy", "dx"), MAX_BACKWARD: ("dy", "x", "dx")}
INDICES = SCRATCH  # operand with the indices of first maxima, passed from one launch to the next


@dataclass
class Axis:
    """Describe one pooled dimension, with its strides in x and y in elements."""

    input: int
    output: int
    window: int
    stride: int
    padding: int
    x_stride: int
    y_stride: int

    @property
    def is_global(self) -> bool:
        """Return whether the only window covers the full input, without padding before it."""
        return self.output == 1 and self.padding == 0 and self.window >= self.input

    @property
    def is_single(self) -> bool:
        """Return whether the axis has one position and nothing is pooled along it."""
        return (self.input, self.output, self.window, self.stride, self.padding) == (1, 1, 1, 1, 0)

    def divisor(self, mode: Mode) -> int:
        """Return the number of positions that every average counts along the axis; 0 where windows differ."""
        last = (self.output - 1) * self.stride - self.padding + self.window
        exclude = mode == Mode.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING
        inside = last <= self.input + max(self.padding, 0) and not (exclude and self.padding > 0)
        if inside:
            return self.window
        return self.input if self.is_global else 0


@dataclass
class Shape:
    """Describe a pooling call as three axes and the dimensions that are not pooled, slowest first."""

    axes: list[Axis]
    extents: list[int]
    x_steps: list[int]
    y_steps: list[int]
    width: int  # elements per 16 bytes

    @property
    def covered(self) -> int:
        """Return the maximum number of inputs that a window covers."""
        return prod(min(axis.window, axis.input) for axis in self.axes)

    @property
    def channels_last(self) -> bool:
        """Return whether channels are contiguous in x and y (NHWC)."""
        return self.extents[-1] > 1 and self.x_steps[-1] == self.y_steps[-1] == 1

    @property
    def is_global(self) -> bool:
        """Return whether one window covers every plane."""
        return all(axis.is_global for axis in self.axes)

    def vectors(self, width: int) -> bool:
        """Return whether vectors of ``width`` channels divide the channels and are aligned in x and y."""
        steps = [*self.x_steps[:-1], *self.y_steps[:-1]]
        for axis in self.axes:
            steps += [axis.x_stride] * (axis.input > 1) + [axis.y_stride] * (axis.output > 1)
        return self.channels_last and self.extents[-1] % width == 0 and all(step % width == 0 for step in steps)


def shape_of(operation: Any, x: TensorSpec, y: TensorSpec, y_order: bool) -> Shape:
    """Return the shape of a call. y_order: whether dimensions that are not pooled are sorted by their strides in y."""
    pooling = operation.pooling
    (x_dims, x_strides), (y_dims, y_strides) = x.scalar_layout(), y.scalar_layout()
    lead = len(x_dims) - len(pooling.window)
    sizes = (x_dims[lead:], y_dims[lead:], pooling.window, pooling.stride, pooling.padding)
    axes = [Axis(*values) for values in zip(*sizes, x_strides[lead:], y_strides[lead:], strict=True)]
    strides = [x_strides[:lead], y_strides[:lead]]
    extents, steps = merge_dimensions(x_dims[:lead], strides if y_order else strides[::-1])
    x_steps, y_steps = steps if y_order else steps[::-1]
    return Shape(_three(_joined(axes)), extents, x_steps, y_steps, VECTOR_BYTES // x.scalar_bytes)


def _joined(axes: list[Axis]) -> list[Axis]:
    """Return the axes, where globally pooled axes that are contiguous in x are joined into one."""
    for position, (outer, inner) in enumerate(pairwise(axes)):
        if outer.is_global and inner.is_global and outer.x_stride == inner.input * inner.x_stride:
            extent = outer.input * inner.input
            joined = Axis(extent, 1, extent, 1, 0, inner.x_stride, inner.y_stride)
            return _joined([*axes[:position], joined, *axes[position + 2 :]])
    return axes


def _three(axes: list[Axis]) -> list[Axis]:
    """Return one to three axes as (axis 0, axis 1, axis 2); a missing axis has one position."""
    missing = Axis(1, 1, 1, 1, 0, 0, 0)
    if len(axes) == 1:
        return [missing, missing, axes[0]]
    return [axes[0], missing, axes[1]] if len(axes) == 2 else axes


@dataclass
class Configuration:
    """Describe the kernel launch of a solver before its kernel is compiled.

    alignment: bytes by operand name, where more than an element is needed. operands: names of the operands whose
    addresses begin the arguments; empty means the operands of the call. scratch_bytes: size of INDICES among them.
    before: a launch that runs first.
    """

    source: str
    entry: str
    definitions: Any
    arguments: Structure
    grid: Grid
    block: Grid
    shared_bytes: int = 0
    alignment: Mapping[str, int] = field(default_factory=dict)
    operands: tuple[str, ...] = ()
    scratch_bytes: int = 0
    before: Configuration | None = None

    def launch(self, problem: PoolingProblem) -> Launch:
        """Return the launch with its compiled kernel."""
        function = problem.device.function(self.source, self.entry, self.definitions)
        operands = self.operands or problem.operands
        made = Launch(function, self.arguments, operands, self.grid, self.block, self.shared_bytes)
        made.scratch_bytes = self.scratch_bytes
        return made


class PoolingProblem(Problem):
    """Hold a pooling forward call (3.2.69), or the gradient (4.1.18) of an average or a maximum."""

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        maximum = operation.pooling.mode in MAXIMA
        self.forward = isinstance(operation, PoolingForward)
        self.kind = FORWARD if self.forward else MAX_BACKWARD if maximum else AVERAGE_BACKWARD
        self.operands = OPERANDS[self.kind]
        self.configurations: dict[str, Configuration | None] = {}

    @cached_property
    def shape(self) -> Shape:
        """Return the shape of the call, sorted by the strides of y forward and of x backward."""
        return shape_of(self.operation, self.operation.x, self.operation.y, self.forward)

    @cached_property
    def divisor(self) -> int:
        """Return the number of positions that every average counts; 0 where windows differ."""
        return prod(axis.divisor(self.operation.pooling.mode) for axis in self.shape.axes)

    @property
    def factors(self) -> list[tuple[str, Any]]:
        """Return the arguments alpha and beta, for kernels that do not average."""
        return factors(self.operation, alpha=self.operation.alpha, beta=self.operation.beta)

    @property
    def factors_and_reciprocal(self) -> list[tuple[str, Any]]:
        """Return the arguments alpha, beta and the reciprocal of the common divisor, 0 where windows differ."""
        reciprocal = 1 / self.divisor if self.divisor else 0.0
        return self.factors + factors(self.operation, reciprocal=reciprocal)


class PoolingSolver(Solver[PoolingProblem]):
    """Plan one launch or two. Subclasses define the kinds of calls they serve and the configuration of the launch."""

    kinds: ClassVar[tuple[str, ...]] = ()

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        """Return the launch, or None where the kernel cannot serve the problem."""
        raise TypeError(f"{type(self).__name__} does not define configuration()")

    def _configured(self, problem: PoolingProblem) -> Configuration | None:
        if self.name not in problem.configurations:
            found = self.configuration(problem) if problem.kind in self.kinds else None
            problem.configurations[self.name] = found
        return problem.configurations[self.name]

    def summation_order(self, problem: PoolingProblem) -> Order | None:
        return Order("fma", (self.name,))

    @staticmethod
    def _demands(problem: PoolingProblem, found: Configuration) -> dict[str, int]:
        element = problem.operation.x.scalar_bytes
        return {name: nbytes for name, nbytes in found.alignment.items() if nbytes > element}

    def serves(self, problem: PoolingProblem) -> bool:
        return self._configured(problem) is not None

    def launches(self, problem: PoolingProblem) -> list[Launch]:
        found = self._configured(problem)
        assert found is not None
        return [each.launch(problem) for each in (found.before, found) if each is not None]

    def alignment(self, problem: PoolingProblem) -> Mapping[str, int]:
        found = self._configured(problem)
        assert found is not None
        return self._demands(problem, found)


def arguments(problem: PoolingProblem, *fields: tuple[str, Any], operands: Sequence[str] = ()) -> Structure:
    """Return an argument structure: pointers to ``operands`` (by default the call's), then ``fields``."""
    return structure(*pointers(len(operands or problem.operands)), *fields)


def power_of_two(number: int) -> int:
    """Return the largest power of two up to ``number``."""
    return 1 << (number.bit_length() - 1)
