"""Forward convolutions on the device: which kernels serve which algorithm, their workspaces, the expected ranking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_int
from math import prod
from typing import Any

from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as Algo
from dualdnn.api.enumerations import cudnnReorderType_t
from dualdnn.api.operations import (
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    ReorderFilter,
    ReorderFilterAndBias,
)

from ..plans import Launch, Plan, estimates, implements, needs_workspace, pointers, structure
from ..primitives.geometry import FastDivmod, blocks
from . import im2col, winograd  # noqa: F401 (im2col registers its plan)
from .cost_model import expected_seconds
from .depthwise import depthwise, is_depthwise
from .fft import fft, fft_bytes
from .implicit_gemm import gemm, implicit_gemm, matrix_bytes
from .implicit_precomp_gemm import precomputed_bytes, precomputed_gemm
from .problem import PACK_BYTES, WORD, Convolution
from .small_channels import few_channels, few_channels_launch
from .tiny import is_small, small

IMPLICIT_GEMM = Algo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM
IMPLICIT_PRECOMP_GEMM = Algo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
GEMM = Algo.CUDNN_CONVOLUTION_FWD_ALGO_GEMM
FFT = Algo.CUDNN_CONVOLUTION_FWD_ALGO_FFT
FFT_TILING = Algo.CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING
WINOGRAD = Algo.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD
WINOGRAD_NONFUSED = Algo.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED


class _Aligned:
    """Memory from its first multiple of 16 bytes on."""

    def __init__(self, address: int) -> None:
        self.address = address + -address % PACK_BYTES


class WorkspacePlan(Plan):
    """A plan whose workspace may begin at any address."""

    def __call__(self, operands: Sequence[Any], stream: Any) -> None:
        workspace = operands[-1]
        if workspace is not None and workspace.address % PACK_BYTES:
            operands = [*operands[:-1], _Aligned(workspace.address)]
        super().__call__(operands, stream)


@needs_workspace(ConvolutionForward, ConvolutionBiasActivationForward)
def workspace_bytes(operation: Convolution, device: Any) -> int:
    """Bytes that the algorithm needs, and up to a pack more, because the caller's memory may begin anywhere."""
    if operation.algo == IMPLICIT_PRECOMP_GEMM:
        needed = precomputed_bytes(operation, device)
    else:
        needed = _WORKSPACES[operation.algo](operation)
    return needed + PACK_BYTES - 1 if needed else 0


_WORKSPACES: dict[Algo, Callable[[Convolution], int]] = {
    IMPLICIT_GEMM: lambda _: 0,
    GEMM: matrix_bytes,
    FFT: fft_bytes,
    FFT_TILING: fft_bytes,
    WINOGRAD: winograd.fused_bytes,
    WINOGRAD_NONFUSED: winograd.nonfused_bytes,
}


@implements(ConvolutionForward)
@implements(ConvolutionBiasActivationForward)
def convolution_forward(operation: Convolution, device: Any) -> Plan:
    return WorkspacePlan(operation, _launches(operation, device))


def _launches(operation: Convolution, device: Any) -> list[Launch]:
    return _ALGORITHMS[operation.algo](operation, device)


def _implicit_gemm(operation: Convolution, device: Any) -> list[Launch]:
    if is_depthwise(operation):
        return depthwise(operation, device)
    if is_small(operation, device):
        return [small(operation, device)]
    found = few_channels(operation, device)
    return [few_channels_launch(found, device)] if found else implicit_gemm(operation, device)


_ALGORITHMS = {
    IMPLICIT_GEMM: _implicit_gemm,
    IMPLICIT_PRECOMP_GEMM: precomputed_gemm,
    GEMM: gemm,
    FFT: fft,
    FFT_TILING: fft,
    WINOGRAD: winograd.fused,
    WINOGRAD_NONFUSED: winograd.nonfused,
}


@implements(ReorderFilter)
def reorder_filter(operation: ReorderFilter, device: Any) -> Plan:
    names = ("filterData", "reorderedFilterData", "filterData", "reorderedFilterData")
    return Plan(operation, [_reorder(operation, device, names)])


@implements(ReorderFilterAndBias)
def reorder_filter_and_bias(operation: ReorderFilterAndBias, device: Any) -> Plan:
    names = ("filterData", "reorderedFilterData", "biasData", "reorderedBiasData")
    return Plan(operation, [_reorder(operation, device, names)])


def _reorder(operation: ReorderFilter | ReorderFilterAndBias, device: Any, names: tuple[str, ...]) -> Launch:
    filters, words = operation.filterData.dims[0], prod(operation.filterData.dims[1:]) // WORD
    arguments = structure(
        *pointers(4),
        ("words", FastDivmod.of(words)),
        ("filters", c_int(filters)),
        ("biased", c_int(isinstance(operation, ReorderFilterAndBias))),
        ("reorders", c_int(operation.reorder_type == cudnnReorderType_t.CUDNN_DEFAULT_REORDER)),
    )
    function = device.function("convolution/int8x32_reorder.cu", "reorder_filter_and_bias")
    return Launch(function, arguments, names, blocks(filters * words))


estimates(ConvolutionForward, ConvolutionBiasActivationForward)(expected_seconds)
