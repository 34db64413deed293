"""Holds cases of batch normalization and cudnnNormalization*: derived descriptors and inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnBatchNormMode_t, cudnnNormAlgo_t, cudnnNormMode_t
from dualdnn.api.operations import (
    BackendError,
    BatchNormalizationForwardInference,
    NormalizationForwardInference,
    TensorSpec,
)
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32
from dualdnn.api.status import EXECUTION_FAILED
from dualdnn.conformance.calls.descriptors import made
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.marks import shows

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller

DIMS = (2, 3, 5, 7)
DIMS_5D = (2, 3, 2, 4, 5)
NORM = "cudnnNormalizationForwardInference"
ACTIVATION, SPATIAL, PERSISTENT = (
    cudnnBatchNormMode_t.CUDNN_BATCHNORM_PER_ACTIVATION,
    cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL,
    cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL_PERSISTENT,
)
NORM_MODES = {ACTIVATION: cudnnNormMode_t.CUDNN_NORM_PER_ACTIVATION, SPATIAL: cudnnNormMode_t.CUDNN_NORM_PER_CHANNEL}
STANDARD, PERSIST = cudnnNormAlgo_t.CUDNN_NORM_ALGO_STANDARD, cudnnNormAlgo_t.CUDNN_NORM_ALGO_PERSIST
STATISTICS_TYPES = {HALF: FLOAT, BFLOAT16: FLOAT, INT8: FLOAT}
EPSILON = 1e-3
both_generations = pytest.mark.parametrize("generation", ["batch", "norm"])
in_modes = pytest.mark.parametrize(
    "mode", [ACTIVATION, SPATIAL, PERSISTENT], ids=lambda m: m.name.removeprefix("CUDNN_BATCHNORM_")
)


def statistics(x: TensorSpec, mode: cudnnBatchNormMode_t) -> TensorSpec:
    """Return the packed description of x's statistics."""
    dims = (1, *x.dims[1:]) if mode == ACTIVATION else (1, x.dims[1], *(1 for _ in x.dims[2:]))
    return TensorSpec.packed(STATISTICS_TYPES.get(x.data_type, x.data_type), dims)


def inference(x: TensorSpec | None = None, mode: cudnnBatchNormMode_t = SPATIAL, *, generation: str = "batch",
              scale: TensorSpec | None = None, mean: TensorSpec | None = None) -> Any:  # fmt: skip
    """Return inference by one of the two calls; the newer one has algorithm PERSIST for SPATIAL_PERSISTENT."""
    x = x or TensorSpec.packed(FLOAT, DIMS)
    scale = scale or statistics(x, mode)
    described = (1.0, 0.0, x, x, scale, mean or scale, EPSILON)
    if generation == "batch":
        return BatchNormalizationForwardInference(mode, *described)
    algo = PERSIST if mode == PERSISTENT else STANDARD
    return NormalizationForwardInference(NORM_MODES[SPATIAL if mode == PERSISTENT else mode], *described, algo)


# --- derived descriptors ---


def derived(cudnn: Any, x: TensorSpec, mode: Any) -> list[TensorSpec]:
    """Return the descriptors that one of the two calls derives, as cudnnGetTensorNdDescriptor reads them."""
    of_x = made(cudnn, x)
    if isinstance(mode, cudnnNormMode_t):
        first, second = cudnn.cudnnCreateTensorDescriptor(), cudnn.cudnnCreateTensorDescriptor()
        cudnn.cudnnDeriveNormTensorDescriptor(first, second, of_x, mode, 1)
        found = [first, second]
    else:
        found = [cudnn.cudnnCreateTensorDescriptor()]
        cudnn.cudnnDeriveBNTensorDescriptor(*found, of_x, mode)
    read = (cudnn.cudnnGetTensorNdDescriptor(descriptor, 8) for descriptor in found)
    return [TensorSpec(kind, tuple(dims), tuple(strides)) for kind, _, dims, strides in read]


@shows("cudnnDeriveBNTensorDescriptor/c01 c04-c11", "cudnnBatchNormMode_t/c01 c02 c05")
@in_modes
@pytest.mark.parametrize("dims", [DIMS, DIMS_5D], ids=["4d", "5d"])
def test_derived_descriptor(cudnn: Any, dims: Any, mode: Any) -> None:
    for data_type in (FLOAT, HALF, DOUBLE, INT32, INT8, BFLOAT16):
        for layout in ("nchw", "nhwc"):
            x = laid_out(data_type, dims, layout)
            assert derived(cudnn, x, mode) == [statistics(x, mode)]


@shows("cudnnDeriveNormTensorDescriptor/c01 c02 c05-c12", "cudnnNormMode_t/c01 c02 c05")
@pytest.mark.parametrize("mode", NORM_MODES)
@pytest.mark.parametrize("dims", [DIMS, DIMS_5D], ids=["4d", "5d"])
def test_derived_norm_descriptors(cudnn: Any, dims: Any, mode: Any) -> None:
    for data_type in (FLOAT, HALF, DOUBLE, INT32, INT8, BFLOAT16):
        x = laid_out(data_type, dims, "nhwc")
        assert derived(cudnn, x, NORM_MODES[mode]) == [statistics(x, mode)] * 2


# --- inference ---


def given(caller: Any, operation: Any) -> dict[str, Any]:
    """Return device memory of ones for every operand."""
    return {name: caller.handle.to_device(np.full(operation.nbytes(name), 63, np.uint8)) for name in operation.operands}


@shows(f"{NORM}/c33")
@pytest.mark.ours
def test_norm_inference_that_cannot_be_launched(
    caller: Caller, refuses: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(operation: Any) -> Any:
        def launch(operands: Any, stream: Any) -> None:
            raise BackendError("the device fell off the bus")

        return launch

    operation = inference(generation="norm")
    memory = given(caller, operation)
    monkeypatch.setattr(caller.handle.backend, "prepare", failing)
    refuses(EXECUTION_FAILED, f"{NORM}/c33", caller, operation, memory, unchanged=tuple(memory.values()))
