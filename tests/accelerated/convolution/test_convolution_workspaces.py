"""Tests the answers of workspace queries, which know neither the factors nor the addresses of a call."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.plans import workspace_bytes
from dualdnn.accelerated.solver import SOLVER_FAMILIES
from dualdnn.api.enumerations import cudnnMathType_t
from dualdnn.api.operations import Unsupported
from dualdnn.api.operations.specs import NCHW, NHWC
from dualdnn.conformance.cases.convolution.convolution_backward_data import gradient as gradient_of_data
from dualdnn.conformance.cases.convolution.convolution_backward_filter import gradient as gradient_of_filter
from dualdnn.conformance.kernels import kernel_wheel

GPU = replace(kernel_wheel.TARGETS["sm_90a"][1][0], multiprocessors=1)
DEFAULT = {"math_type": cudnnMathType_t.CUDNN_DEFAULT_MATH}
ON_TENSOR_CORES = {"math_type": cudnnMathType_t.CUDNN_TENSOR_OP_MATH, "padding": (1, 1)}
# In each gradient another solver serves once beta is not 0, or once operands are not aligned.
GRADIENTS = {
    "few channels, blended": gradient_of_data(
        (1, 8, 18, 35),
        (72, 8, 3, 5),
        configuration="PSEUDO_BFLOAT16",
        formats=NHWC,
        padding=(1, 2),
        stride=(1, 3),
        **DEFAULT,
    ),
    "few channels in NCHW, blended": gradient_of_data(
        (8, 5, 19, 70), (64, 5, 3, 3), configuration="PSEUDO_BFLOAT16", formats=NCHW, stride=(3, 3), **ON_TENSOR_CORES
    ),
    "few filters, unaligned": gradient_of_filter(
        (52, 3, 106, 106), (2, 3, 3, 3), configuration="PSEUDO_HALF", formats=NHWC, **ON_TENSOR_CORES
    ),
    "depthwise, unaligned": gradient_of_data(
        (1, 312, 115, 114), (312, 1, 1, 3), formats=NHWC, groups=312, padding=(0, 0), stride=(1, 3), **DEFAULT
    ),
    "images of three channels, unaligned": gradient_of_data(
        (128, 3, 64, 64), (128, 3, 4, 4), configuration="PSEUDO_HALF", formats=NHWC, stride=(2, 2), **ON_TENSOR_CORES
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_query_suffices_for_any_beta_and_any_address(name):
    operation = GRADIENTS[name]
    family = SOLVER_FAMILIES[type(operation)]
    answers = {workspace_bytes(replace(operation, beta=beta), GPU) for beta in (0.0, 1.0, -3.0)}
    needed = {}
    for beta in (0.0, 1.0):
        for aligned in (True, False):
            problem = family.problem(replace(operation, beta=beta), GPU, aligned=aligned)
            solver = family.solver(problem)
            needed[solver.name, beta, aligned] = solver.workspace_bytes(problem)
    assert answers == {max(needed.values())}
    assert len(set(needed.values())) > 1, needed


def test_a_query_leaves_out_addresses_that_a_level_refuses():
    """No solver adds unaligned operands in the order of TMA's products, so that such calls are refused."""
    operation = gradient_of_filter((2, 16, 9, 9), (40, 16, 3, 3), configuration="PSEUDO_HALF", formats=NHWC, **DEFAULT)
    device = AcceleratedBackend("emulated", reproducible="device").planned_on
    family = SOLVER_FAMILIES[type(operation)]
    assert family.workspace_bytes(operation, device) >= 0
    with pytest.raises(Unsupported, match="adds in its order"):
        family.solver(family.problem(operation, device, aligned=False))
