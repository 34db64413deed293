"""About how long each algorithm takes: a model of an H200, good enough to rank them.

A kernel takes as long as the slower of its arithmetic and its memory traffic; the rates are what such kernels reach, not
the peaks of the data sheet.
"""

from __future__ import annotations

from math import prod
from typing import Any

from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as Algo
from dualdnn.api.operations.specs import DOUBLE, FLOAT

from .depthwise import is_depthwise
from .fft import Spectra
from .implicit_gemm import described, reads_planes, reads_terms, rounded_up
from .implicit_gemm_fp32 import turning_repays
from .implicit_gemm_mma import ROW_BYTES, allows_tensor_cores
from .implicit_precomp_gemm import repacked_bytes
from .problem import Convolution
from .small_channels import few_channels
from .tiny import is_small
from .winograd import TILE as WINOGRAD_TILE

BANDWIDTH = 3.5e12  # bytes a second
LAUNCH = 4e-6  # seconds of a kernel that does nothing
CLOCK = 1.755e9  # of a multiprocessor
# Operations a second of matrix products (two per term).
TENSOR_CORES, TENSOR_CORES_TF32, FLOATS, DOUBLES, WORDS = 650e12, 360e12, 45e12, 20e12, 100e12
# Values of x a second that tensor cores' blocks gather one by one, where the terms of a position do not lie side by side,
# and filters that share them.
GATHERED, SHARING = 100e9, 128
# Times the rate of a product in float that copies filters one by one; rows: neighbours in x are terms, planes: positions.
# Measured on an H200: 1.04 to 1.06 (four shapes), 1.10 (two, and 0.99 where tiles of 64 x 64 serve).
TURNED_FILTERS = {"rows": 1.05, "planes": 1.10}
FUSED_WINOGRAD = 0.5  # of the rate of a plain product
FUSED_REDUCTION = 2.25  # products that F(2 x 2, 3 x 3) saves


def expected_seconds(operation: Convolution, device: Any) -> float:
    """About how long the operation takes, launches included."""
    return _MODELS[operation.algo](operation, device)


def _rate(operation: Convolution, device: Any) -> float:
    if allows_tensor_cores(operation, device):
        return TENSOR_CORES_TF32 if operation.x.data_type == FLOAT else TENSOR_CORES
    if operation.x.data_type == DOUBLE:
        return DOUBLES
    return WORDS if described(operation)[1] else FLOATS


def _gathering(operation: Convolution, device: Any) -> float:
    """Seconds that tensor cores wait for single values."""
    value = described(operation)[0]
    if value.x_packs or not allows_tensor_cores(operation, device) or reads_planes(operation, device):
        return 0.0
    terms = rounded_up(value.terms, ROW_BYTES // operation.x.scalar_bytes)
    values = value.positions * terms * operation.convolution.group_count
    return values * -(-value.filters // SHARING) / GATHERED


def _work(operation: Convolution) -> float:
    """Operations of the direct sum, where blocks are not full what they do in vain too."""
    groups = operation.convolution.group_count
    filters = operation.w.dims[0] // groups
    filled = rounded_up(filters, 16 if filters <= 16 else 64)
    return 2.0 * filled * groups * operation.terms * (prod(operation.y.dims) // operation.y.dims[1])


def _traffic(operation: Convolution) -> float:
    return float(operation.x.nbytes + operation.w.nbytes + operation.y.nbytes)


def _direct(operation: Convolution, device: Any) -> float:
    memory = _traffic(operation) / BANDWIDTH
    if is_depthwise(operation):
        return LAUNCH + memory
    if is_small(operation, device):
        return LAUNCH
    if found := few_channels(operation, device):
        return LAUNCH + max(memory, found.busy_clocks / CLOCK)
    return LAUNCH + max(memory, _work(operation) / _rate(operation, device), _gathering(operation, device))


def _precomputed(operation: Convolution, device: Any) -> float:
    copied = repacked_bytes(operation, device)
    if is_depthwise(operation) or few_channels(operation, device):
        return _direct(operation, device)
    if copied == 0:
        return _with_filters_turned(operation, device)
    product = max(_traffic(operation) / BANDWIDTH, _work(operation) / _rate(operation, device))
    return 3 * LAUNCH + 2 * copied / BANDWIDTH + product


def _with_filters_turned(operation: Convolution, device: Any) -> float:
    """Where products in float repay that; others read a table of terms, or nothing."""
    if reads_terms(operation, device):
        return LAUNCH + _direct(operation, device)
    value = described(operation)[0]
    if not turning_repays(value, operation.convolution.group_count):
        return _direct(operation, device)
    gain = TURNED_FILTERS["rows" if value.x_lane == 1 else "planes"]
    return LAUNCH + 2 * operation.w.nbytes / BANDWIDTH + _direct(operation, device) / gain


def _explicit(operation: Convolution, device: Any) -> float:
    rows = prod(operation.y.dims) // operation.y.dims[1] * operation.convolution.group_count
    matrix = rows * operation.terms * operation.x.scalar_bytes
    return LAUNCH + 2 * matrix / BANDWIDTH + _direct(operation, device)


def _fourier(operation: Convolution, device: Any) -> float:
    spectra = Spectra(operation)
    tiles = operation.x.dims[0] * prod(spectra.tiles)
    filters, channels = operation.w.dims[:2]
    columns = tiles * (operation.x.dims[1] + operation.y.dims[1]) + 3 * filters * channels
    passes = 2 * sum(size > 1 for size in spectra.size)
    values = 2.0 * spectra.frequencies * spectra.compute_bytes * columns
    products = (
        8.0 * spectra.frequencies * tiles * filters * channels / (DOUBLES if spectra.compute_bytes == 8 else FLOATS)
    )
    return 8 * LAUNCH + passes * values / BANDWIDTH + products


def _fused_winograd(operation: Convolution, device: Any) -> float:
    return 2 * LAUNCH + _work(operation) / FUSED_REDUCTION / (FLOATS * FUSED_WINOGRAD)


def _nonfused_winograd(operation: Convolution, device: Any) -> float:
    taps = operation.w.dims[2]
    outputs = WINOGRAD_TILE + 1 - taps
    tiles = operation.x.dims[0] * prod(-(-size // outputs) for size in operation.y.dims[2:])
    transformed = 4.0 * WINOGRAD_TILE**2 * tiles * (operation.x.dims[1] + operation.y.dims[1])
    products = _work(operation) * WINOGRAD_TILE**2 / (taps * outputs) ** 2 / FLOATS
    return 4 * LAUNCH + (2 * transformed + _traffic(operation)) / BANDWIDTH + products


_MODELS = {
    Algo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM: _direct,
    Algo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM: _precomputed,
    Algo.CUDNN_CONVOLUTION_FWD_ALGO_GEMM: _explicit,
    Algo.CUDNN_CONVOLUTION_FWD_ALGO_FFT: _fourier,
    Algo.CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING: _fourier,
    Algo.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD: _fused_winograd,
    Algo.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED: _nonfused_winograd,
}
