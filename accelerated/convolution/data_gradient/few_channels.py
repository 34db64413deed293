"""Compute gradients with respect to the input (5.2.8) whose channels of dy are few or do not fill rows of TMA
(implicit_gemm/small_channels.cu). Each residue class of the stride is a launch, which reads w in place.
"""

from __future__ import annotations

from collections.abc import Sequence

from dualdnn.api.enumerations import cudnnConvolutionBwdDataAlgo_t as Algo

from ...plans import Plan
from ...reproducible import Order
from ...solver import Solver, seconds_otherwise
from ..composed import At, ComposedLaunch, ComposedPlan, within
from ..forward import ConvolutionProblem
from ..implicit_gemm.small_channels import (
    Geometry,
    fastest,
    order_of,
    reads_well,
    seconds_of,
    small_channels_launch,
    suits_tma_badly,
)
from .residue_classes import DataGradientProblem, ResidueClass

MAX_CLASSES = 4  # residue classes; each takes a launch


class DataGradientFewChannels(Solver[DataGradientProblem]):
    """Serve ALGO_1 without groups, where taps meet every element of dx. It needs no workspace.

    It is preferred where it should take less time than the solvers after it.
    """

    name = "convolution.data_gradient_few_channels"

    def serves(self, problem: DataGradientProblem) -> bool:
        o = problem.operation
        if o.algo != Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 or o.convolution.group_count > 1:
            return False
        classes = problem.plain_classes
        return len(classes) <= MAX_CLASSES and all(found.meets and _geometry(found, problem) for found in classes)

    def applies(self, problem: DataGradientProblem) -> bool:
        if not self.serves(problem) or not suits_tma_badly(problem.operation.w):
            return False
        return self.estimated_seconds(problem) < seconds_otherwise(self, problem)

    def summation_order(self, problem: DataGradientProblem) -> Order:
        return Order("classes", tuple(order_of(made) for _, made in _made(problem)))

    def estimated_seconds(self, problem: DataGradientProblem) -> float:
        return sum(seconds_of(made, _forward(found, problem)) for found, made in _made(problem))

    def plan(self, problem: DataGradientProblem) -> Plan:
        launches: list[ComposedLaunch] = []
        for found, made in _made(problem):
            where = {"x": At("dy"), "w": At("w", found.part_at), "y": At("dx", found.dx_at)}
            launches += within([small_channels_launch(made, problem.device)], where)
        return ComposedPlan(problem.operation, launches, self.name)


def _forward(found: ResidueClass, problem: DataGradientProblem) -> ConvolutionProblem:
    return ConvolutionProblem(found.forward, problem.device, aligned=False)


def _geometry(found: ResidueClass, problem: DataGradientProblem) -> Geometry | None:
    """Return the geometry of a class that reads its part of w in place, or None where no kernel serves."""
    if not reads_well(_forward(found, problem)):
        return None
    _, channel, filter_, *taps = found.part.strides
    return fastest(found.forward, problem.device.multiprocessors, (channel, filter_, *taps))


def _made(problem: DataGradientProblem) -> Sequence[tuple[ResidueClass, Geometry]]:
    """Return the classes with their geometries. The solver must serve the problem."""
    made = [(found, _geometry(found, problem)) for found in problem.plain_classes]
    return [(found, geometry) for found, geometry in made if geometry]
