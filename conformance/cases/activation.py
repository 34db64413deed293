"""Cases of the activation family."""

from __future__ import annotations

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnActivationMode_t as Mode
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.operations import ActivationBackward, ActivationForward, ActivationSpec, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, NHWC
from dualdnn.api.status import NOT_SUPPORTED
from dualdnn.conformance.layouts import LAYOUTS, NOT_SPATIALLY_PACKED, laid_out
from dualdnn.conformance.marks import shows

MODES = [mode for mode in Mode if mode != Mode.CUDNN_ACTIVATION_IDENTITY]
FORWARD_TYPES = [FLOAT, DOUBLE, HALF, BFLOAT16, INT8]
BACKWARD_TYPES = [FLOAT, DOUBLE, HALF, BFLOAT16]
DIMS = (2, 3, 5, 7)
BLENDS = [(1.0, 0.0), (-1.75, 0.5)]


def forward(mode: Mode = Mode.CUDNN_ACTIVATION_TANH, x: TensorSpec | None = None, y: TensorSpec | None = None, *,
            nan: Nan = Nan.CUDNN_PROPAGATE_NAN, coefficient: float = 1.25, alpha: float = 1.0, beta: float = 0.0) -> ActivationForward:  # fmt: skip
    x = x or TensorSpec.packed(FLOAT, DIMS)
    return ActivationForward(ActivationSpec(mode, nan, coefficient), alpha, beta, x, y or x)


def backward(mode: Mode = Mode.CUDNN_ACTIVATION_TANH, spec: TensorSpec | None = None, *, coefficient: float = 1.25,
             alpha: float = 1.0, beta: float = 0.0, **specs: TensorSpec) -> ActivationBackward:  # fmt: skip
    spec = spec or TensorSpec.packed(FLOAT, DIMS)
    named = {name: specs.get(name, spec) for name in ("y", "dy", "x", "dx")}
    return ActivationBackward(ActivationSpec(mode, Nan.CUDNN_PROPAGATE_NAN, coefficient), alpha, beta, **named)


@shows("cudnnActivationForward/c01", "cudnnActivationForward/c02", "cudnnActivationForward/c03", "cudnnActivationForward/c11",
       "cudnnSetActivationDescriptor/c02", "cudnnActivationMode_t/c01")  # fmt: skip
@pytest.mark.parametrize("alpha, beta", BLENDS)
@pytest.mark.parametrize("data_type", FORWARD_TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.name)
def test_forward_formula(trial, mode, data_type, alpha, beta):
    trial(forward(mode, TensorSpec.packed(data_type, DIMS), alpha=alpha, beta=beta))


@shows("cudnnActivationForward/c08")
@pytest.mark.parametrize("rank", [4, 5])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_forward_takes_every_layout(trial, layout, rank):
    dims = (2, 3, 4, 5) if rank == 4 else (2, 3, 2, 3, 4)
    for source in ("nchw", layout):
        trial(forward(x=laid_out(HALF, dims, source), y=laid_out(HALF, dims, layout), beta=0.5))


@shows("cudnnActivationForward/c08")
@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.name)
def test_modes_in_small_tensors_without_packs(trial, mode):
    """Rows of odd lengths with gaps: no operand moves 16 bytes at once."""
    spec = laid_out(FLOAT, (2, 3, 5, 7), "gaps")
    trial(forward(mode, x=spec, beta=0.5))
    trial(backward(mode, spec, beta=0.5))


@shows("cudnnActivationForward/c09")
def test_forward_beyond_five_dimensions(trial, refused):
    dims = (2, 3, 2, 2, 3, 2)
    packed = TensorSpec.packed(FLOAT, dims)
    trial(forward(x=packed))
    planes = TensorSpec(FLOAT, dims, (200, 30, 12, 6, 2, 1))  # gaps between planes and images alone
    trial(forward(x=planes, y=planes))
    for unpacked in (laid_out(FLOAT, dims, layout) for layout in NOT_SPATIALLY_PACKED):
        refused(forward(x=unpacked, y=packed), NOT_SUPPORTED, "cudnnActivationForward/c09")
        refused(forward(x=packed, y=unpacked), NOT_SUPPORTED, "cudnnActivationForward/c09")
        refused(forward(x=unpacked), NOT_SUPPORTED, "cudnnActivationForward/c09")


@shows("cudnnSetActivationDescriptor/c03", "cudnnNanPropagation_t/c01")
@pytest.mark.parametrize("nan", list(Nan), ids=lambda n: n.name)
@pytest.mark.parametrize("data_type", [FLOAT, HALF, DOUBLE], ids=lambda t: t.name)
@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.name)
def test_forward_special_values(trial, mode, data_type, nan):
    trial(forward(mode, TensorSpec.packed(data_type, DIMS), nan=nan), inputs="special")


@shows("cudnnSetActivationDescriptor/c04", "cudnnSetActivationDescriptor/c05")
@pytest.mark.parametrize("coefficient", [0.0, 0.5, 2.0])
@pytest.mark.parametrize(
    "mode",
    [Mode.CUDNN_ACTIVATION_RELU, Mode.CUDNN_ACTIVATION_CLIPPED_RELU, Mode.CUDNN_ACTIVATION_ELU],
    ids=lambda m: m.name,
)
def test_coefficient(trial, mode, coefficient):
    """It clips the clipped ReLU and scales the ELU; the plain ReLU ignores it (docs/errata.md, D010)."""
    trial(forward(mode, coefficient=coefficient, alpha=2.0, beta=1.0))


@shows("cudnnSetActivationDescriptor/c03", "cudnnSetActivationDescriptor/c04")
@pytest.mark.parametrize("coefficient", [-3.0, -np.inf])
@pytest.mark.parametrize("nan", list(Nan), ids=lambda n: n.name)
@pytest.mark.parametrize("data_type", [FLOAT, HALF, DOUBLE], ids=lambda t: t.name)
def test_clipped_below_zero(trial, data_type, nan, coefficient):
    """A limit below zero is the result for everything, for NaN too unless it is propagated (docs/errata.md, D010)."""
    spec = TensorSpec.packed(data_type, DIMS)
    trial(forward(Mode.CUDNN_ACTIVATION_CLIPPED_RELU, spec, nan=nan, coefficient=coefficient), inputs="special")


@shows("cudnnActivationForward/c06")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_forward_in_place(trial, layout):
    trial(forward(x=laid_out(FLOAT, DIMS, layout), beta=0.25), aliases={"y": "x"})


@shows("cudnnActivationBackward/c01", "cudnnActivationBackward/c07", "cudnnActivationBackward/c08", "cudnnActivationBackward/c10",
       "cudnnActivationMode_t/c01")  # fmt: skip
@pytest.mark.parametrize("alpha, beta", BLENDS)
@pytest.mark.parametrize("data_type", BACKWARD_TYPES, ids=lambda t: t.name)
@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.name)
def test_backward_formula(trial, mode, data_type, alpha, beta):
    """x and y are independent, so that it shows which of them the mode reads."""
    trial(backward(mode, TensorSpec.packed(data_type, DIMS), alpha=alpha, beta=beta))


@shows("cudnnActivationBackward/c01")
@pytest.mark.parametrize("inputs", ["ties", "special"])
@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.name)
def test_backward_at_the_limits(trial, mode, inputs):
    """Values exactly at 0 and at the coefficient, NaN and infinities in every operand."""
    trial(backward(mode, coefficient=1.5), inputs=inputs)


@shows("cudnnActivationBackward/c01")
@pytest.mark.parametrize("data_type", [FLOAT, BFLOAT16, DOUBLE], ids=lambda t: t.name)
@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.name)
def test_backward_far_outside_the_range(trial, mode, data_type):
    """Values of y that no activation has: what their square leaves of the result is not determined (D144), the rest is."""
    trial(backward(mode, TensorSpec.packed(data_type, DIMS), coefficient=1.5), inputs="huge")


@shows("cudnnActivationBackward/c04")
@pytest.mark.parametrize("rank", [4, 5])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_backward_takes_every_layout(trial, layout, rank):
    """y and dy share one layout, x and dx another."""
    dims = (2, 3, 4, 5) if rank == 4 else (2, 3, 2, 3, 4)
    for other in ("nchw", layout):
        first, second = laid_out(HALF, dims, layout), laid_out(HALF, dims, other)
        trial(backward(Mode.CUDNN_ACTIVATION_ELU, y=first, dy=first, x=second, dx=second, beta=0.5))
        trial(backward(Mode.CUDNN_ACTIVATION_RELU, y=first, dy=first, x=second, dx=second))


@shows("cudnnActivationBackward/c06")
def test_backward_beyond_five_dimensions(trial, refused):
    dims = (2, 3, 2, 2, 3, 2)
    packed = TensorSpec.packed(FLOAT, dims)
    trial(backward(spec=packed))
    for unpacked in (laid_out(FLOAT, dims, layout) for layout in NOT_SPATIALLY_PACKED):
        refused(backward(y=unpacked, dy=unpacked, x=packed, dx=packed), NOT_SUPPORTED, "cudnnActivationBackward/c06")
        refused(backward(y=packed, dy=packed, x=unpacked, dx=unpacked), NOT_SUPPORTED, "cudnnActivationBackward/c06")
        refused(backward(spec=unpacked), NOT_SUPPORTED, "cudnnActivationBackward/c06")


@pytest.mark.ours
def test_every_other_element_of_one_buffer(caller, handle):
    """Tensors that lie between each other's elements share none."""
    every_other = TensorSpec(FLOAT, (1, 1, 1, 8), (16, 16, 16, 2))
    before = np.arange(-8, 8, dtype=np.float32)
    memory = handle.to_device(before)
    caller(forward(Mode.CUDNN_ACTIVATION_RELU, every_other), {"x": memory.slice(0, 60), "y": memory.slice(4, 60)})
    expected = before.copy()
    expected[1::2] = np.maximum(before[::2], 0)
    np.testing.assert_array_equal(memory.to_host(np.float32, before.shape), expected)


@shows("cudnnActivationBackward/c02")
@pytest.mark.parametrize("mode", MODES, ids=lambda m: m.name)
def test_backward_in_place(trial, mode):
    trial(backward(mode, laid_out(FLOAT, DIMS, "gaps"), beta=0.5), aliases={"dx": "dy"})


@pytest.mark.parametrize("name", ["y", "dy", "x", "dx"])
def test_backward_operands_must_agree(refused, name):
    refused(backward(**{name: TensorSpec.packed(FLOAT, (2, 3, 5, 6))}), NOT_SUPPORTED, "cudnnActivationBackward/c13")
    refused(backward(**{name: TensorSpec.packed(HALF, DIMS)}), NOT_SUPPORTED, "cudnnActivationBackward/c14")
    clause = "cudnnActivationBackward/c15" if name.endswith("y") else "cudnnActivationBackward/c16"
    refused(backward(**{name: TensorSpec.packed(FLOAT, DIMS, NHWC)}), NOT_SUPPORTED, clause)
