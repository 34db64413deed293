"""Holds cases of cudnnConvolutionBiasActivationForward."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnActivationMode_t, cudnnNanPropagation_t
from dualdnn.api.operations import ActivationSpec, ConvolutionBiasActivationForward, TensorSpec
from dualdnn.api.operations.specs import FLOAT
from dualdnn.conformance.calls import sized
from dualdnn.conformance.marks import by_name, shows

from .checks import refuses_a_small_workspace
from .convolution import FFT, FFT_TILING, GEMM, IMPLICIT, NONFUSED, PRECOMP, WINOGRAD, convolution

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

B = "cudnnConvolutionBiasActivationForward"
RELU = cudnnActivationMode_t.CUDNN_ACTIVATION_RELU
NOT_PROPAGATE = cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN
LAYER: dict[str, Any] = {"x": (2, 4, 6, 5), "w": (12, 4, 3, 3)}


def fused(**options: Any) -> ConvolutionBiasActivationForward:
    """Return a convolution of floats with ReLU, where z has the factor 0. options: those of ``convolution``."""
    o = convolution(**{**LAYER, **options})
    relu, bias = (
        ActivationSpec(RELU, NOT_PROPAGATE, 0.0),
        TensorSpec.packed(FLOAT, (1, o.w.dims[0], *[1] * (o.x.rank - 2))),
    )
    return ConvolutionBiasActivationForward(o.convolution, relu, o.algo, 0, 1.0, 0.0, o.x, o.w, o.y, bias, o.y)


@shows(f"{B}/c02")
def test_z_is_not_read_where_alpha2_is_0(run: Callable[..., Trial]) -> None:
    """NaN in z changes nothing where alpha2 is 0 (docs/errata.md, D217)."""
    for algo in (IMPLICIT, PRECOMP):
        assert np.isfinite(run(fused(algo=algo)).after["y"].view(np.float32)).all()


@shows(f"{B}/c08 c09")
@pytest.mark.parametrize("algo", [PRECOMP, GEMM, FFT, FFT_TILING, WINOGRAD, NONFUSED], ids=by_name)
def test_workspace(
    subject: Subject, caller: Caller, run: Callable[..., Trial], refuses: Callable[..., bool], algo: Any
) -> None:
    """The size that cudnnGetConvolutionForwardWorkspaceSize reports is enough; less, or NULL, is refused."""
    operation = sized(caller, fused(x=(2, 8, 16, 16), w=(8, 8, 3, 3), algo=algo))
    run(operation)
    refuses_a_small_workspace(subject, caller, refuses, operation, missing=f"{B}/c08", small=f"{B}/c09")
