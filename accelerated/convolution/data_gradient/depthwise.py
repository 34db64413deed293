"""Compute depthwise gradients with respect to the input (5.2.8) in one launch (convolution/depthwise/windows.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from dualdnn.api.enumerations import cudnnConvolutionBwdDataAlgo_t as Algo

from ...plans import Launch
from ...reproducible import Order
from ...scalars import fill
from ...solver import Solver, seconds_otherwise
from ..composed import Inner
from ..depthwise.depthwise import Depthwise
from ..depthwise.windows import Windows
from ..problem import EpilogueStruct
from .residue_classes import DataGradientProblem


class DataGradientDepthwise(Solver[DataGradientProblem]):
    """Serve ALGO_1 of every window, stride and layout, where every channel of dx has one channel of dy."""

    name = "convolution.data_gradient_depthwise"

    def serves(self, problem: DataGradientProblem) -> bool:
        algo = problem.operation.algo
        return algo == Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 and problem.in_one_launch and _windows(problem).is_known

    def applies(self, problem: DataGradientProblem) -> bool:
        if not self.serves(problem):
            return False
        if _windows(problem).multiple > 1:
            return self.estimated_seconds(problem) < seconds_otherwise(self, problem)
        # Without strides the gradient is one convolution. Common windows have their own kernels (depthwise.py).
        plain = prod(problem.operation.convolution.stride) == 1
        return not (plain and isinstance(Inner(problem.classes[0].forward, problem.device).solver, Depthwise))

    def summation_order(self, problem: DataGradientProblem) -> Order:
        return Order("fma", (problem.operation.dx.data_type, problem.operation.compute_type, "taps by residues"))

    def estimated_seconds(self, problem: DataGradientProblem) -> float:
        return _windows(problem).estimated_seconds(problem.device)

    def alignment(self, problem: DataGradientProblem) -> Mapping[str, int]:
        return _windows(problem).alignment("dy", "dx")

    def launches(self, problem: DataGradientProblem) -> list[Launch]:
        o = problem.operation
        epilogue = fill(EpilogueStruct(), alpha=o.alpha, beta=o.beta)
        return [_windows(problem).launch(o, problem.device, epilogue, ("dy", "w", "dx", "dx", "dx"))]


def _windows(problem: DataGradientProblem) -> Windows:
    o = problem.operation
    return Windows(o.convolution, o.dy, o.w, o.dx, True, problem.aligned)
