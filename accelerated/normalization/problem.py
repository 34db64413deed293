"""Describes calls of LRN and divisive normalization for their solvers."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, c_double, c_float, c_int, c_uint
from functools import cached_property
from math import isinf, nan
from typing import Any

from dualdnn.api.operations import DivisiveNormalizationForward, LRNCrossChannelForward, LRNSpec, TensorSpec
from dualdnn.api.operations.specs import DOUBLE

from ..plans import Launch, factors, pointers, structure, type_definitions
from ..primitives.geometry import FastDivmod, blocks
from ..runtime.arguments import declared
from ..solver import Problem

AXES = 5  # images, channels and three spatial dimensions

LRN_OPERANDS = {True: ("x", "y"), False: ("x", "dy", "dx")}  # operands by whether the call is forward


def power(operation: Any, spec: TensorSpec, count: int) -> tuple[Structure, float]:
    """Return the struct Power (power.cuh) of a window of ``count`` elements, and 2 * alpha * beta / count."""
    lrn: LRNSpec = operation.lrn
    alpha, beta, k = lrn.narrowed(spec.data_type)
    is_integer = isinf(beta) or beta == int(beta)
    sign = (1.0 if isinf(beta) or beta % 2 == 0 else -1.0) if is_integer else nan
    factor = alpha / count
    value = structure(*factors(operation, factor=factor, k=k, beta=beta, sign=sign))
    return value, 2 * factor * beta


class LRNProblem(Problem):
    """Hold an LRN call, forward or backward, with channels separated from the other dimensions."""

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.forward = isinstance(operation, LRNCrossChannelForward)
        self.operands: Sequence[str] = LRN_OPERANDS[self.forward]
        self.specs = [operation.tensor(name) for name in self.operands]
        self.x = self.specs[0]
        self.window: int = operation.lrn.n
        self.channels: int = self.x.dims[1]
        self.channel_strides = [spec.strides[1] for spec in self.specs]
        self.dims = (self.x.dims[0], *self.x.dims[2:])
        self.strides = [(spec.strides[0], *spec.strides[2:]) for spec in self.specs]

    @cached_property
    def may_be_in_place(self) -> bool:
        """Return whether the document allows the output to be the input."""
        return self.forward and self.specs[0] == self.specs[1]

    def scalars(self) -> list[tuple[str, Any]]:
        """Return alpha, beta and the power as fields of the arguments."""
        value, _ = power(self.operation, self.x, self.window)
        return [*factors(self.operation, alpha=self.operation.alpha, beta=self.operation.beta), ("power", value)]

    def gradient(self) -> list[tuple[str, Any]]:
        """Return the gradient's factor as the first field of backward arguments, and no field for forward."""
        kind = c_double if self.operation.compute_type == DOUBLE else c_float
        return [] if self.forward else [("gradient", kind(power(self.operation, self.x, self.window)[1]))]


class Box(Structure):
    """Lay out five dimensions, fastest first, with the positions that a window covers along each (divisive.cu)."""

    _fields_ = [
        ("extent", FastDivmod * AXES),
        *declared(c_int * AXES, "stride behind ahead"),
        ("elements", c_uint),
    ]


class DivisiveProblem(Problem):
    """Hold a divisive normalization call, forward or backward, whose operands all have the same strides."""

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.forward = isinstance(operation, DivisiveNormalizationForward)
        output = ("y",) if self.forward else ("dx", "dMeans")
        self.operands = ("x", "means", "dy", "temp", "temp2", *output)
        self.x: TensorSpec = operation.x
        self.window: int = operation.lrn.n
        self.spatial = self.x.rank - 2

    @cached_property
    def box(self) -> Box:
        """Return the dimensions in the order of their strides; missing dimensions have one position."""
        lrn, x = self.operation.lrn, self.x
        order = sorted(range(x.rank), key=lambda d: (x.strides[d], -d))
        missing = [-1] * (AXES - x.rank)
        value = Box(elements=x.count)
        for i, d in enumerate([*order, *missing]):
            value.extent[i] = FastDivmod.of(x.dims[d] if d >= 0 else 1)
            value.stride[i] = x.strides[d] if d >= 0 else 0
            value.behind[i], value.ahead[i] = (lrn.look_behind, lrn.look_ahead) if d >= 2 else (0, 0)
        return value

    def launch(self, source: str, kernel: str, threads: int) -> Launch:
        """Return the launch of a kernel with one thread per element. threads: threads per block."""
        operation = self.operation
        value, gradient = power(operation, self.x, self.window**self.spatial)
        kind = c_double if operation.compute_type == DOUBLE else c_float
        names = self.operands if not self.forward else (*self.operands, "dMeans")
        arguments = structure(
            *pointers(len(names)), *factors(operation, alpha=operation.alpha, beta=operation.beta), ("power", value),
            ("gradient", kind(gradient)), ("box", self.box),
        )  # fmt: skip
        defined = type_definitions(self.x.data_type, operation, THREADS=str(threads))
        function = self.device.function(source, kernel, defined)
        return Launch(function, arguments, names, blocks(self.x.count, threads), (threads, 1, 1))
