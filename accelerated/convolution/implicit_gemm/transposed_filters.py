"""Products in float that copy packs of filters of 16 bytes, which a first kernel lays K by K into the workspace."""

from __future__ import annotations

from dualdnn.api.operations import TensorSpec, TransformTensor
from dualdnn.api.operations.specs import FLOAT

from ...plans import Launch
from ...transform.plan import copy, launch
from ..forward import IMPLICIT_PRECOMP_GEMM, ConvolutionProblem, ConvolutionSolver
from ..problem import ConvolutionStruct, Rates
from .fp32 import PACK, Fp32Kernel

LEAST_PRODUCTS, LEAST_PIXELS = 2**31, 2**12  # for which transposing filters first repays
# Times the rate of a product that copies filters one by one; rows: neighbours in x are K, planes: M. Measured on an H200:
# 1.04 to 1.06 (four shapes), 1.10 (two, and 0.99 where tiles of 64 x 64 serve).
GAIN = {"rows": 1.05, "planes": 1.10}


class TransposedFilters(ConvolutionSolver):
    """Filters transposed into the workspace, and the product in float with tiles of one size."""

    algorithms = (IMPLICIT_PRECOMP_GEMM,)

    def __init__(self, kernel: Fp32Kernel) -> None:
        self.kernel, self.name = kernel, f"convolution.transposed_filters_{kernel.n}x{kernel.m}"

    def can_launch(self, problem: ConvolutionProblem) -> bool:
        is_float = problem.operation.x.data_type == FLOAT
        return is_float and problem.value.n % PACK == 0 and self.kernel.serves(problem.products[0])

    def applies(self, problem: ConvolutionProblem) -> bool:
        """Repays where the product is long."""
        if not self.serves(problem) or problem.kernel is not self.kernel:
            return False
        value = problem.value
        products = value.m * value.n * value.k * problem.groups
        return value.m >= LEAST_PIXELS and products >= LEAST_PRODUCTS

    def used_bytes(self, problem: ConvolutionProblem) -> int:
        return problem.operation.w.nbytes

    def estimated_seconds(self, problem: ConvolutionProblem) -> float:
        gain = GAIN["rows" if problem.value.x_channel == 1 else "planes"]
        product = Rates.LAUNCH + problem.product_seconds(self.kernel)
        return Rates.LAUNCH + 2 * problem.operation.w.nbytes / Rates.BANDWIDTH + product / gain

    def launches(self, problem: ConvolutionProblem) -> list[Launch]:
        products = problem.implicit_products(w="workSpace", filters_last=True)
        return [_transpose(problem, problem.value), *(self.kernel.launch(product) for product in products)]


def _transpose(problem: ConvolutionProblem, value: ConvolutionStruct) -> Launch:
    """Return the launch that writes w[group][N][K] as [group][K][N] to the beginning of the workspace."""
    dims, rest = (problem.groups, value.n, value.k, 1), value.n * value.k
    rows = TensorSpec(FLOAT, dims, (rest, value.k, 1, 1))
    transposed = TransformTensor(1.0, 0.0, rows, TensorSpec(FLOAT, dims, (rest, 1, value.n, 1)))
    made = launch(copy(transposed.x, transposed.y), transposed, ("x", "y"), problem.device)
    made.operands = ("w", "workSpace")
    return made
