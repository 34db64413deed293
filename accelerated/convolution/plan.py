"""List the solvers of forward convolutions (5.2.9, 5.2.10), the matrix of cudnnIm2Col (5.2.31) and reordered filters
(5.2.32). Gradients of the input (5.2.8), of the bias (6.2.1) and of the filter (6.2.2) follow.

The documented algorithm decides which solvers of a convolution may serve, within the workspace that the algorithm
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
from .bias_gradient import BiasGradient, BiasProblem
from .bias_gradient_channels import BiasGradientChannels
from .copied_patches import ConvolutionCopiedPatches, DataGradientCopiedPatches, FilterGradientCopiedPatches
from .data_gradient.depthwise import DataGradientDepthwise
from .data_gradient.direct import DataGradientDirect
from .data_gradient.few_channels import DataGradientFewChannels
from .data_gradient.folded import DataGradientFolded
from .data_gradient.grouped import DataGradientGrouped
from .data_gradient.residue_classes import DataGradient, DataGradientProblem
from .data_gradient.small_channels import DataGradientSmallChannels
from .depthwise.depthwise import Depthwise
from .depthwise.windows import DepthwiseWindows
from .filter_gradient.depthwise import DepthwiseFilterGradient, DepthwiseFilterGradientTma
from .filter_gradient.direct import FilterGradientDirect
from .filter_gradient.few_channels import FilterGradientFewChannels
from .filter_gradient.forward_convolution import (
    FilterGradient,
    FilterGradientFft,
    FilterGradientProblem,
)
from .filter_gradient.grouped import FilterGradientGrouped
from .filter_gradient.nchw import NCHW_KERNELS, FilterGradientNchw
from .filter_gradient.tf32 import TF32_KERNELS, FilterGradientTf32
from .filter_gradient.tma import KERNELS, FilterGradientTma
from .filter_gradient.winograd import WinogradFilterGradient
from .forward import ConvolutionProblem
from .grouped import Grouped
from .im2col.gemm import Im2ColGemm
from .im2col.im2col import Im2ColBlocks, Im2ColElements, Im2ColProblem
from .implicit_gemm.fp32 import FP32
from .implicit_gemm.mma import MMA
from .implicit_gemm.pack_nhwc import PackNhwc
from .implicit_gemm.simt import SIMT
from .implicit_gemm.small_channels import SMALL_CHANNELS
from .implicit_gemm.solvers import ImplicitGemm
from .implicit_gemm.tma import TMA
from .int8x32_reorder import Int8x32Reorder
from .pack_groups import PackGroups
from .patches import described
from .tiny import Tiny
from .transforms.fft import FFT
from .transforms.winograd import WinogradNonfused

serve(
    described(ConvolutionProblem),
    (
        ConvolutionCopiedPatches(),
        Depthwise(),
        DepthwiseWindows(),
        Tiny(),
        PackGroups(),
        Grouped(),
        *SMALL_CHANNELS,
        *map(ImplicitGemm, TMA),
        PackNhwc(),
        *map(ImplicitGemm, FP32),
        *map(ImplicitGemm, MMA),
        *map(ImplicitGemm, SIMT),
        Im2ColGemm(),
        *FFT,
        WinogradNonfused(),
    ),
    ConvolutionForward,
    ConvolutionBiasActivationForward,
)
serve(Im2ColProblem, (Im2ColBlocks(), Im2ColElements()), Im2Col)
serve(Problem, (Int8x32Reorder(),), ReorderFilter, ReorderFilterAndBias)
serve(
    described(DataGradientProblem),
    (
        DataGradientCopiedPatches(),
        DataGradientDepthwise(),
        DataGradientSmallChannels(),
        DataGradientGrouped(),
        DataGradientFewChannels(),
        DataGradientFolded(),
        DataGradientDirect(),
        DataGradient(),
    ),
    ConvolutionBackwardData,
)
serve(
    described(FilterGradientProblem),
    (
        FilterGradientCopiedPatches(),
        DepthwiseFilterGradientTma(),
        DepthwiseFilterGradient(),
        FilterGradientGrouped(),
        FilterGradientFewChannels(),
        FilterGradientDirect(),
        *map(FilterGradientNchw, NCHW_KERNELS),
        *map(FilterGradientTma, KERNELS),
        *map(FilterGradientTf32, TF32_KERNELS),
        FilterGradient(),
        FilterGradientFft(),
        WinogradFilterGradient(),
    ),
    ConvolutionBackwardFilter,
)
serve(BiasProblem, (BiasGradientChannels(), BiasGradient()), ConvolutionBackwardBias)
