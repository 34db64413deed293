"""Describe the problem of multi-head attention, and list its solvers."""

from __future__ import annotations

from collections.abc import Mapping

from dualdnn.api.operations import (
    MultiHeadAttnBackwardData,
    MultiHeadAttnBackwardWeights,
    MultiHeadAttnForward,
    MultiHeadAttnStep,
)

from ..gemm.matrix import MatrixProduct
from ..plans import Launch
from ..reproducible import Order, order_of_batch
from ..solver import Solver, serve
from . import gradients, gradients_tma, online, online_tma, tma_items
from .collect import Collection, collect
from .gradients import of_input
from .problem import WEIGHTS, AttentionProblem
from .projections import (
    gradient_of_heads,
    gradient_of_input,
    gradients_of_weights,
    output_projection,
    projections,
    residuals,
)
from .schedule import schedule


class SequenceSolver(Solver[AttentionProblem]):
    """Compute attention sequence by sequence. The projections of all sequences are products of matrices."""

    def products(self, problem: AttentionProblem) -> list[MatrixProduct]:
        """Return the products of vectors and weights."""
        raise TypeError(f"{type(self).__name__} does not define products()")

    def summation_order(self, problem: AttentionProblem) -> Order:
        return Order(self.name, tuple(product.order for product in self.products(problem)))


class ForwardSolver(SequenceSolver):
    """Serve any attention forward: projections, the core with an online softmax, and the output projection."""

    name = "attention.online"

    def products(self, problem: AttentionProblem) -> list[MatrixProduct]:
        outputs = [output_projection(problem)] if problem.attn.o_projected else []
        return [*projections(problem), *outputs]

    def core(self, problem: AttentionProblem) -> list[Launch]:
        """Return the launches that compute the heads' outputs."""
        return [online.core(problem)]

    def stores_output(self, problem: AttentionProblem) -> bool:
        """Return whether the core also stores the call's output when it keeps the heads' outputs for the gradients."""
        return False

    def launches(self, problem: AttentionProblem) -> list[Launch]:
        attn = problem.attn
        projected = (launch for product in projections(problem) for launch in product.launches_in_scratch())
        found = [*schedule(problem), *projected, *self.core(problem)]
        if attn.o_projected:
            return [*found, *residuals(problem), *output_projection(problem).launches_in_scratch()]
        if problem.result[0] == "out" or self.stores_output(problem):
            return found
        rows = problem.rows["queries"]
        joined = Collection(problem.result, ("out", 0), 1, attn.output_size, rows, "residuals")
        return [*found, collect(problem, joined)]


class TmaForwardSolver(ForwardSolver):
    """Serve attention forward with the core on Hopper's tensor cores, fed by TMA."""

    name = "attention.online_tma"

    def serves(self, problem: AttentionProblem) -> bool:
        return tma_items.serves(problem)

    def alignment(self, problem: AttentionProblem) -> Mapping[str, int]:
        return tma_items.alignment(tma_items.factors(problem))

    def core(self, problem: AttentionProblem) -> list[Launch]:
        return online_tma.core(problem)

    def stores_output(self, problem: AttentionProblem) -> bool:
        return online_tma.is_output(problem)


class GradientSolver(SequenceSolver):
    """Serve any gradient of the data: the core by recomputation of the scores, and products with the weights."""

    name = "attention.gradients"

    def products(self, problem: AttentionProblem) -> list[MatrixProduct]:
        of_heads = [gradient_of_heads(problem)] if problem.attn.o_projected else []
        of_inputs = (gradient_of_input(problem, name) for name, kind in WEIGHTS.items() if kind in problem.weights)
        return [*of_heads, *of_inputs]

    def core(self, problem: AttentionProblem) -> list[Launch]:
        """Return the launches that compute the gradients of the projected queries, keys and values."""
        return gradients.core(problem)

    def launches(self, problem: AttentionProblem) -> list[Launch]:
        found = schedule(problem)
        if problem.attn.o_projected:
            found += gradient_of_heads(problem).launches_in_scratch()
        found += self.core(problem)
        sums = []
        for name, kind in WEIGHTS.items():
            if kind in problem.weights:
                found += gradient_of_input(problem, name).launches_in_scratch()
                continue
            source, size, rows = of_input(problem, name), problem.sizes[name], problem.rows[name]
            heads, of_keys, result = problem.attn.heads, name != "queries", (f"d{name}", 0)
            if source != result:
                sums.append(Collection(source, result, heads, size, rows, is_of_keys=of_keys))
        return [*found, collect(problem, *sums)] if sums else found


class TmaGradientSolver(GradientSolver):
    """Serve gradients of the data with the core on Hopper's tensor cores, fed by TMA."""

    name = "attention.gradients_tma"

    def serves(self, problem: AttentionProblem) -> bool:
        return gradients_tma.serves(problem)

    def alignment(self, problem: AttentionProblem) -> Mapping[str, int]:
        return tma_items.alignment(gradients_tma.factors(problem))

    def core(self, problem: AttentionProblem) -> list[Launch]:
        return gradients_tma.core(problem)


class WeightsSolver(Solver[AttentionProblem]):
    """Serve any gradient of the weights with a product of matrices for each projection."""

    name = "attention.projections"

    def summation_order(self, problem: AttentionProblem) -> Order | None:
        return order_of_batch(self, problem.operation)

    def launches(self, problem: AttentionProblem) -> list[Launch]:
        return gradients_of_weights(problem)


serve(AttentionProblem, (TmaForwardSolver(), ForwardSolver()), MultiHeadAttnForward, MultiHeadAttnStep)
serve(AttentionProblem, (TmaGradientSolver(), GradientSolver()), MultiHeadAttnBackwardData)
serve(AttentionProblem, (WeightsSolver(),), MultiHeadAttnBackwardWeights)
