"""Lists the timed convolutions: layers of image networks in every data type, math type and layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnConvolutionMode_t,
    cudnnDataType_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnReorderType_t,
    cudnnTensorFormat_t,
)
from dualdnn.api.operations import (
    ActivationSpec,
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    ConvolutionSpec,
    FilterSpec,
    Im2Col,
    TensorSpec,
)
from dualdnn.api.operations.specs import BFLOAT16, FLOAT, HALF, NCHW, NHWC

from .row import Row

# The bench searches for the best algorithm.
ANY_ALGORITHM = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM
TENSOR_OP, FMA = cudnnMathType_t.CUDNN_TENSOR_OP_MATH, cudnnMathType_t.CUDNN_FMA_MATH
RELU = ActivationSpec(
    cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0
)  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """Describes a layer: ``images`` of ``channels`` x ``size`` x ``size``, ``filters`` of ``taps`` x ``taps`` with
    (taps - 1) / 2 of padding."""

    images: int
    channels: int
    size: int
    filters: int
    taps: int
    stride: int
    groups: int = 1

    def __str__(self) -> str:
        image = f"{self.images}x{self.channels}x{self.size}x{self.size}"
        grouped = f" groups {self.groups}" if self.groups > 1 else ""
        return f"{image} {self.filters} of {self.taps}x{self.taps} stride {self.stride}{grouped}"


WIDE, POINTWISE = Layer(64, 256, 56, 256, 3, 1), Layer(64, 64, 56, 256, 1, 1)
DEEP, SMALL = Layer(32, 512, 14, 512, 3, 1), Layer(64, 128, 28, 128, 3, 1)
STRIDED, FIRST = Layer(64, 256, 56, 512, 3, 2), Layer(64, 3, 224, 64, 7, 2)
DEPTHWISE = Layer(64, 256, 56, 256, 3, 1, 256)
LAYERS = (WIDE, POINTWISE, DEEP, SMALL, STRIDED, FIRST, DEPTHWISE)
FUSED_LAYERS = (WIDE, POINTWISE, DEEP)
# MOBILE is MobileNet's first layer; NARROW, BOTTLENECK and LAST are ResNet-50's. DETECTOR is YOLOv3's, CLASSES is of
# FCN (segmentation).
MOBILE, NARROW, BOTTLENECK = Layer(64, 3, 224, 32, 3, 2), Layer(64, 64, 56, 64, 3, 1), Layer(32, 1024, 14, 256, 1, 1)
DETECTOR, CLASSES, LAST = Layer(16, 256, 52, 255, 1, 1), Layer(8, 256, 64, 21, 1, 1), Layer(8, 512, 7, 512, 3, 1)
FURTHER = (MOBILE, NARROW, BOTTLENECK, LAST, DETECTOR, CLASSES)
# Each kind of gradient has its own layers.
GRADIENTS = {
    "half": LAYERS, "TF32": LAYERS, "bfloat16": (WIDE, DEPTHWISE), "float": (WIDE, STRIDED, DEPTHWISE)
}  # fmt: skip
# This layer is as short as a launch, so its time shows the cost of launches and of the host.
TINY = Layer(1, 8, 6, 8, 3, 1)

# Each name stands for (data type, math type). Sums are FLOAT everywhere.
KINDS: dict[str, tuple[cudnnDataType_t, cudnnMathType_t]] = {
    "half": (HALF, TENSOR_OP),
    "bfloat16": (BFLOAT16, TENSOR_OP),
    "TF32": (FLOAT, cudnnMathType_t.CUDNN_DEFAULT_MATH),
    "float": (FLOAT, FMA),
}
FORMATS = {"NHWC": NHWC, "NCHW": NCHW}


def convolution(layer: Layer, kind: str, layout: cudnnTensorFormat_t) -> ConvolutionForward:
    """Return y = conv(x, w) with everything in one layout. The algorithm is a placeholder."""
    data_type, math_type = KINDS[kind]
    padding = (layer.taps - 1) // 2
    spec = ConvolutionSpec(
        cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, FLOAT, (padding,) * 2, (layer.stride,) * 2, (1, 1),
        layer.groups, math_type, cudnnReorderType_t.CUDNN_DEFAULT_REORDER,
    )  # fmt: skip
    x = TensorSpec.packed(data_type, (layer.images, layer.channels, layer.size, layer.size), layout)
    w = FilterSpec(data_type, layout, (layer.filters, layer.channels // layer.groups, layer.taps, layer.taps))
    y = TensorSpec.packed(data_type, spec.output_dims(x.dims, w.dims), layout)
    return ConvolutionForward(spec, ANY_ALGORITHM, 0, 1.0, 0.0, x, w, y)


def rectified(plain: ConvolutionForward, added: bool) -> ConvolutionBiasActivationForward:
    """Return y = ReLU(conv(x, w) + bias), or with y itself added."""
    o = plain
    bias = TensorSpec.packed(o.y.data_type, (1, o.y.dims[1], 1, 1))
    return ConvolutionBiasActivationForward(
        o.convolution, RELU, o.algo, 0, 1.0, float(added), o.x, o.w, o.y, bias, o.y
    )  # fmt: skip


def input_matrix(plain: ConvolutionForward) -> Im2Col:
    """Return the input matrix of a convolution without groups."""
    o = plain
    rows = o.y.count // o.y.dims[1]
    return Im2Col(o.convolution, o.w, o.x, TensorSpec(o.x.data_type, (rows, o.terms), (o.terms, 1)))


def data_gradient(plain: ConvolutionForward) -> ConvolutionBackwardData:
    """Return the gradient of a convolution with respect to its input, by ALGO_1."""
    algo = cudnnConvolutionBwdDataAlgo_t.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1
    return ConvolutionBackwardData(plain.convolution, algo, 0, 1.0, 0.0, plain.w, plain.y, plain.x)


def filter_gradient(plain: ConvolutionForward) -> ConvolutionBackwardFilter:
    """Return the gradient of a convolution with respect to its filter, by ALGO_1."""
    algo = cudnnConvolutionBwdFilterAlgo_t.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1
    return ConvolutionBackwardFilter(plain.convolution, algo, 0, 1.0, 0.0, plain.x, plain.y, plain.w)


def convolution_rows() -> Iterator[Row]:
    """Return every layer plain, a few with bias and ReLU, a few input matrices, a few gradients, and a tiny layer of
    each."""
    for kind in KINDS:
        for name, layout in FORMATS.items():
            for layer in LAYERS:
                yield Row(f"convolution {layer} {kind} {name}", "convolution", convolution(layer, kind, layout))
            yield Row(f"tiny convolution {TINY} {kind} {name}", "tiny convolution", convolution(TINY, kind, layout))
    for layer in FURTHER:
        for kind in ("half", "TF32"):
            for name, layout in FORMATS.items():
                plain = convolution(layer, kind, layout)
                yield Row(f"convolution {layer} {kind} {name}", "convolution", plain)
                yield Row(f"data gradient {layer} {kind} {name}", "data gradient", data_gradient(plain))
                yield Row(f"filter gradient {layer} {kind} {name}", "filter gradient", filter_gradient(plain))
    for family, added in (("convolution bias ReLU", False), ("convolution add bias ReLU", True)):
        for layer in (*FUSED_LAYERS, TINY):
            for kind in ("half", "TF32"):
                yield Row(f"{family} {layer} {kind} NHWC", family, rectified(convolution(layer, kind, NHWC), added))
    for kind, layers in GRADIENTS.items():
        for layer in layers:
            for name, layout in FORMATS.items():
                plain = convolution(layer, kind, layout)
                yield Row(f"data gradient {layer} {kind} {name}", "data gradient", data_gradient(plain))
                yield Row(f"filter gradient {layer} {kind} {name}", "filter gradient", filter_gradient(plain))
    for layer in (SMALL, TINY):
        for kind in ("half", "float"):
            yield Row(f"im2col {layer} {kind} NCHW", "im2col", input_matrix(convolution(layer, kind, NCHW)))
