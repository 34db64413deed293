"""Holds cases of cudnnConvolutionBiasActivationForward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnActivationMode_t, cudnnNanPropagation_t
from dualdnn.api.operations import ActivationSpec, ConvolutionBiasActivationForward, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, NCHW, NCHW_VECT_C, NHWC
from dualdnn.conformance.calls import sized
from dualdnn.conformance.marks import shows

from .checks import refuses_a_small_workspace
from .convolution import FFT, FFT_TILING, GEMM, IMPLICIT, NONFUSED, PRECOMP, VECTORISED, WINOGRAD, by_name, convolution

B = "cudnnConvolutionBiasActivationForward"
RELU = cudnnActivationMode_t.CUDNN_ACTIVATION_RELU
NOT_PROPAGATE = cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN
LAYER: dict[str, Any] = {"x": (2, 4, 6, 5), "w": (12, 4, 3, 3)}
LAYER_32: dict[str, Any] = {"x": (1, 64, 4, 3), "w": (64, 64, 3, 3)}
# Each configuration has (type of the bias, clause).
TABLE = {
    "DOUBLE": (DOUBLE, "c11"), "FLOAT": (FLOAT, "c12"), "PSEUDO_HALF": (HALF, "c13"), "PSEUDO_BFLOAT16": (BFLOAT16, "c14"),
    "INT8": (FLOAT, "c15"), "INT8_EXT": (FLOAT, "c16"), "INT8x4": (FLOAT, "c17"), "INT8x4_EXT": (FLOAT, "c18"),
    "UINT8": (FLOAT, "c19"), "UINT8_EXT": (FLOAT, "c20"), "UINT8x4": (FLOAT, "c21"), "UINT8x4_EXT": (FLOAT, "c22"),
    "INT8x32": (FLOAT, "c23"),
}  # fmt: skip


def fused(
    configuration: str = "FLOAT",
    *,
    mode: cudnnActivationMode_t = RELU,
    nan: cudnnNanPropagation_t = NOT_PROPAGATE,
    alpha1: float = 1.0,
    alpha2: float = 0.0,
    z: TensorSpec | None = None,
    bias: TensorSpec | None = None,
    **options: Any,
) -> ConvolutionBiasActivationForward:
    if "formats" not in options:
        plain = NHWC if "INT8" in configuration else NCHW
        output = NCHW if configuration.endswith("EXT") else NCHW_VECT_C
        options["formats"] = (NCHW_VECT_C, NCHW_VECT_C, output) if configuration in VECTORISED else plain
    o = convolution(
        **{**(LAYER_32 if configuration == "INT8x32" else LAYER), "configuration": configuration, **options}
    )
    bias_type = TABLE.get(configuration, (HALF, ""))[0]
    bias = bias or TensorSpec.packed(bias_type, (1, o.w.dims[0], *[1] * (o.x.rank - 2)))
    return ConvolutionBiasActivationForward(
        o.convolution, ActivationSpec(mode, nan, 0.0), o.algo, 0, alpha1, alpha2, o.x, o.w, z or o.y, bias, o.y
    )


@shows(f"{B}/c01", f"{B}/c30")
def test_an_infinity_over_the_padding(caller):
    """An infinite weight over the padding gives NaN, which ReLU turns into 0; all other results are infinite."""
    w = np.ones((1, 1, 3, 3), np.float32)
    w[0, 0, 0, 0] = np.inf
    for algo in (IMPLICIT, PRECOMP):
        operation = sized(caller, fused(x=(1, 1, 4, 4), w=w.shape, algo=algo))
        values = {"x": np.ones(16, np.float32), "w": w, "z": np.ones(16, np.float32), "bias": np.ones(1, np.float32)}
        memory = {name: caller.handle.to_device(value) for name, value in values.items()}
        memory |= {
            "y": caller.handle.allocate(64),
            "workSpace": caller.handle.allocate(max(1, operation.workspace_bytes)),
        }
        caller(operation, memory)
        y = memory["y"].to_host(np.float32, (4, 4))
        assert (y[0] == 0).all() and (y[:, 0] == 0).all() and (y[1:, 1:] == np.inf).all()


@shows(f"{B}/c02")
def test_z_is_not_read_where_alpha2_is_0(run):
    """NaN in z changes nothing where alpha2 is 0 (docs/errata.md, D217)."""
    for algo in (IMPLICIT, PRECOMP):
        assert np.isfinite(run(fused(algo=algo)).after["y"].view(np.float32)).all()


@shows(f"{B}/c08", f"{B}/c09")
@pytest.mark.parametrize("algo", [PRECOMP, GEMM, FFT, FFT_TILING, WINOGRAD, NONFUSED], ids=by_name)
def test_workspace(subject, caller, run, refuses, algo):
    """The size that cudnnGetConvolutionForwardWorkspaceSize reports is enough; less, or NULL, is refused."""
    operation = sized(caller, fused(x=(2, 8, 16, 16), w=(8, 8, 3, 3), algo=algo))
    run(operation)
    refuses_a_small_workspace(subject, caller, refuses, operation, missing=f"{B}/c08", small=f"{B}/c09")
