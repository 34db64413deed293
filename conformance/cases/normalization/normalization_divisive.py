"""Holds cases of divisive normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from dualdnn.api.enumerations import cudnnDivNormMode_t
from dualdnn.api.operations import LRNSpec, TensorSpec
from dualdnn.api.operations.specs import FLOAT
from dualdnn.conformance.marks import shows

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller

PRECOMPUTED = cudnnDivNormMode_t.CUDNN_DIVNORM_PRECOMPUTED_MEANS
DIMS = (2, 3, 7, 9)
LRN = LRNSpec(3, 2.0, 0.75, 1.5)


@shows("cudnnDivisiveNormalizationForward/c13")
def test_without_means_is_with_zeros(caller: Caller) -> None:
    """NULL means give the same bits as zero means."""
    cudnn, handle, spec = caller.cudnn, caller.handle, TensorSpec.packed(FLOAT, DIMS)
    x = handle.to_device(np.random.default_rng(1).standard_normal(spec.count).astype(np.float32))
    zeros, temp, temp2 = (handle.to_device(np.zeros(spec.count, np.float32)) for _ in range(3))
    tensor, descriptor, found = caller.tensor(spec), caller.descriptor(LRN), []
    for means in (None, zeros):
        y = handle.to_device(np.full(spec.count, np.nan, np.float32))
        cudnn.cudnnDivisiveNormalizationForward(
            handle, descriptor, PRECOMPUTED, 1.0, tensor, x, means, temp, temp2, 0.0, tensor, y
        )
        found.append(y.to_host(np.float32, spec.count))
    assert np.isfinite(found[0]).all()
    assert np.abs(found[0] - found[1]).max() <= 1e-6
