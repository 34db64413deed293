"""Tests convolution groups that share tensor-core tiles, on the emulated device, also if an operand is infinite."""

from __future__ import annotations

import pytest
from convolution_operations import PRECOMPUTED, UNALIGNED, backwards, check, convolution, family_of, kernels
from dualdnn.accelerated import AcceleratedBackend
from dualdnn.accelerated.convolution.forward import ConvolutionProblem
from dualdnn.accelerated.convolution.pack_groups import Packed, PackGroups
from dualdnn.api.enumerations import cudnnActivationMode_t, cudnnNanPropagation_t
from dualdnn.api.operations import ActivationSpec, ConvolutionBiasActivationForward, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, HALF, NCHW, NHWC
from dualdnn.conformance.cases.convolution.convolution import DEFAULT
from dualdnn.conformance.cases.convolution.convolution_backward_data import gradient

PACKED = "convolution.pack_groups"
FORWARD = {  # Each entry has a convolution and the number of groups that share a tile.
    "eight groups of four": (convolution(PRECOMPUTED, (2, 32, 7, 9), 32, (3, 3), data_type=HALF, layout=NHWC, groups=8), 8),
    "more filters": (convolution(PRECOMPUTED, (2, 32, 6, 5), 64, (3, 2), data_type=BFLOAT16, layout=NHWC, groups=4, stride=2), 4),
    "groups of 24": (convolution(PRECOMPUTED, (2, 72, 7, 6), 72, (3, 2), data_type=HALF, layout=NHWC, groups=3), 1),
    "planes": (backwards(convolution(PRECOMPUTED, (2, 64, 7, 9), 64, (3, 3), data_type=HALF, layout=NCHW, groups=8)), 8),
    "TF32": (convolution(PRECOMPUTED, (2, 24, 7, 6), 48, (3, 2), layout=NHWC, groups=6, blend=(-1.5, 0.0)), 3),
    "volumes": (convolution(PRECOMPUTED, (2, 16, 3, 5, 6), 16, (2, 2, 2), data_type=HALF, layout=NHWC, groups=4), 4),
}  # fmt: skip


@pytest.fixture
def backend(monkeypatch):
    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made.device, "seed", 5)
    monkeypatch.setattr(made.device, "multiprocessors", 2)
    return made


@pytest.mark.parametrize("inputs", ["normal", "infinite"])
@pytest.mark.parametrize("name", FORWARD)
def test_groups_that_share_tiles(backend, name, inputs):
    """Zero times infinity makes results of other groups NaN; the last launch computes them again."""
    operation, together = FORWARD[name]
    assert Packed.of(ConvolutionProblem(operation, backend.device)).together == together
    *_, product, again = kernels(check(backend, operation, PACKED, inputs=inputs))
    assert "implicit_gemm_tma" in product and again == "convolution_grouped"


@pytest.mark.parametrize("shifted", ["x", "w", "y", "workSpace"])
def test_operands_may_begin_at_any_element(backend, shifted):
    """If TMA cannot read the operands, no block marks its results as right, so the last launch computes all."""
    check(backend, FORWARD["eight groups of four"][0], PACKED, shift=UNALIGNED, shifted=shifted, inputs="infinite")


def test_a_nan_that_relu_removes_is_noted(backend):
    """ReLU turns NaN into zero, so the kernel looks for NaN in the sums and not in the results."""
    plain = FORWARD["eight groups of four"][0]
    relu = ActivationSpec(
        cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0
    )
    bias = TensorSpec.packed(HALF, (1, 32, 1, 1))
    fused = ConvolutionBiasActivationForward(
        plain.convolution, relu, PRECOMPUTED, 0, 0.5, 0.0, plain.x, plain.w, plain.y, bias, plain.y
    )
    check(backend, fused, PACKED, inputs="infinite")


@pytest.mark.parametrize("stride", [1, 2])
def test_data_gradients(backend, monkeypatch, stride):
    monkeypatch.setattr(PackGroups, "applies", PackGroups.serves)
    operation = gradient(
        (2, 64, 7, 9), (64, 8, 3, 3), configuration="PSEUDO_HALF", formats=NHWC, math_type=DEFAULT, groups=8, stride=(stride, stride)
    )  # fmt: skip
    names = kernels(check(backend, operation, "convolution.data_gradient", inputs="infinite"))
    assert any("implicit_gemm_tma" in name for name in names) and names.count("convolution_grouped") >= 1, names


def test_large_products_of_many_groups_are_packed(backend, monkeypatch):
    monkeypatch.setattr(backend.device, "multiprocessors", 132)
    large = convolution(PRECOMPUTED, (32, 256, 28, 28), 256, (3, 3), data_type=HALF, layout=NHWC, groups=32)
    small = FORWARD["eight groups of four"][0]
    family = family_of(large)
    assert family.solver(family.problem(large, backend.device)).name == PACKED
    assert family.solver(family.problem(small, backend.device)).name != PACKED
