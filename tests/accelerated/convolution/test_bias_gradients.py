"""Tests bias gradients of NHWC tensors on the emulated device, in one part or split among blocks."""

from __future__ import annotations

import pytest
from convolution_operations import check
from dualdnn.accelerated import AcceleratedBackend
from dualdnn.accelerated.convolution.bias_gradient_channels import BiasGradientChannels
from dualdnn.accelerated.solver import plan_by, possible_solvers
from dualdnn.api.operations import ConvolutionBackwardBias, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF
from dualdnn.conformance.layouts import laid_out

CHANNELS = "convolution.bias_gradient_channels"
TYPES = pytest.mark.parametrize("kind", [FLOAT, HALF, BFLOAT16, DOUBLE], ids=lambda kind: kind.name)


@pytest.fixture(params=[1, 24], ids=["one_part", "parts"])
def backend(request, monkeypatch):
    made = AcceleratedBackend("emulated")
    monkeypatch.setattr(made.device, "multiprocessors", request.param)
    return made


class DividedChannels(BiasGradientChannels):
    """Splits even a few pixels among blocks."""

    min_vectors = 1


def gradient(kind, dims, layout, alpha=1.5, beta=-0.5):
    db = TensorSpec.packed(kind, (1, dims[1], *(1,) * (len(dims) - 2)))
    return ConvolutionBackwardBias(alpha, beta, laid_out(kind, dims, layout), db)


@TYPES
@pytest.mark.parametrize(
    "dims", [(3, 5, 27, 19), (4, 67, 9, 13), (2, 3, 61, 53), (2, 128, 9, 7), (2, 300, 3, 3), (1, 7, 6, 5, 45)], ids=str
)
def test_divided_channels_are_correct(backend, kind, dims):
    check(backend, gradient(kind, dims, "nhwc"), DividedChannels())


def test_nchw_and_many_channels_are_refused(backend):
    """The solver refuses NCHW, and more than MAX_CHANNELS channels."""
    of = lambda *given: possible_solvers(gradient(*given), backend.device)  # noqa: E731
    assert CHANNELS not in of(FLOAT, (2, 3, 4, 5), "nchw") and CHANNELS not in of(FLOAT, (2, 1028, 2, 2), "nhwc")


def test_no_read_passes_the_end_of_dy(backend):
    """The kernel reads nothing past the last element of dy; the emulated device would report it."""

    class Operand:
        def __init__(self, spec):
            self.memory = backend.device.allocate(spec.nbytes)
            backend.device.fill(self.memory.address, spec.nbytes, 0)
            self.address = self.memory.address

    operation = gradient(HALF, (1, 3, 4, 8), "nhwc")
    plan_by(operation, backend.device, CHANNELS)([Operand(operation.dy), Operand(operation.db)], None)
