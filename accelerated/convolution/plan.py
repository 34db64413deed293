"""Forward convolutions (5.2.9, 5.2.10), the matrix of cudnnIm2Col (5.2.31), reordered filters (5.2.32), gradients of
the input (5.2.8), of the bias (6.2.1) and of the filter (6.2.2): their solvers.

The documented algorithm decides which solvers of a convolution may serve: an algorithm is itself, with the workspace it
reports.
"""

from __future__ import annotations

from dualdnn.api.operations import (
    ConvolutionBackwardBias,
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    Im2Col,
    ReorderFilter,
    ReorderFilterAndBias,
)

from ..solver import Problem, serve
from .depthwise import Depthwise, DepthwiseAny, DepthwiseTma
from .fft import FFT
from .forward import ConvolutionProblem
from .gradients.bias_gradient import BIAS_GRADIENTS, BiasProblem
from .gradients.data_gradient import DataGradient, DataGradientProblem
from .gradients.data_gradient_direct import DataGradientDirect
from .gradients.data_gradient_small_channels import DataGradientSmallChannels
from .gradients.depthwise_filter_gradient import DepthwiseFilterGradient, DepthwiseFilterGradientTma
from .gradients.filter_gradient import (
    FilterGradient,
    FilterGradientFft,
    FilterGradientOffsetTable,
    FilterGradientProblem,
)
from .gradients.filter_gradient_direct import FilterGradientDirect
from .gradients.filter_gradient_planes import PLANES_KERNELS, FilterGradientPlanes
from .gradients.filter_gradient_tf32 import TF32_KERNELS, FilterGradientTf32
from .gradients.filter_gradient_tf32_mma import MMA_KERNELS, FilterGradientTf32Mma
from .gradients.filter_gradient_tma import KERNELS, FilterGradientTma
from .gradients.winograd_filter_gradient import WinogradFilterGradient
from .im2col import Im2ColBlocks, Im2ColElements, Im2ColProblem
from .im2col_gemm import Im2ColGemm
from .implicit import ImplicitGemm, OffsetTable
from .implicit_gemm import SIMT
from .implicit_gemm_fp32 import FP32
from .implicit_gemm_mma import MMA
from .implicit_gemm_tma import TMA
from .int8x32_reorder import Int8x32Reorder
from .pack_nhwc import PackNhwc
from .small_channels import SMALL_CHANNELS
from .tiny import Tiny
from .transposed_filters import TransposedFilters
from .winograd import Winograd, WinogradNonfused

serve(
    ConvolutionProblem,
    (
        DepthwiseTma(),
        Depthwise(),
        DepthwiseAny(),
        Tiny(),
        *SMALL_CHANNELS,
        *map(ImplicitGemm, TMA),
        PackNhwc(),
        *map(TransposedFilters, FP32),
        *map(ImplicitGemm, FP32),
        OffsetTable(),
        *map(ImplicitGemm, MMA),
        *map(ImplicitGemm, SIMT),
        Im2ColGemm(),
        *FFT,
        Winograd(),
        WinogradNonfused(),
    ),
    ConvolutionForward,
    ConvolutionBiasActivationForward,
)
serve(Im2ColProblem, (Im2ColBlocks(), Im2ColElements()), Im2Col)
serve(Problem, (Int8x32Reorder(),), ReorderFilter, ReorderFilterAndBias)
serve(DataGradientProblem, (DataGradientSmallChannels(), DataGradient(), DataGradientDirect()), ConvolutionBackwardData)
serve(
    FilterGradientProblem,
    (
        DepthwiseFilterGradientTma(),
        DepthwiseFilterGradient(),
        FilterGradientDirect(),
        *map(FilterGradientPlanes, PLANES_KERNELS),
        *map(FilterGradientTma, KERNELS),
        *map(FilterGradientTf32Mma, MMA_KERNELS),
        *map(FilterGradientTf32, TF32_KERNELS),
        FilterGradient(),
        FilterGradientOffsetTable(),
        FilterGradientFft(),
        WinogradFilterGradient(),
    ),
    ConvolutionBackwardFilter,
)
serve(BiasProblem, BIAS_GRADIENTS, ConvolutionBackwardBias)
