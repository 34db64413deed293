"""Make the operations of which cases and recorded hashes compare bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dualdnn.api import cudnn as api
from dualdnn.api import operations as ops
from dualdnn.api.operations.rnn import RNNSpec
from dualdnn.api.operations.specs import FLOAT, HALF, NCHW, NHWC

from ..domains.rnn import backward, forward

FORWARD, DATA = api.cudnnConvolutionFwdAlgo_t, api.cudnnConvolutionBwdDataAlgo_t
FILTER = api.cudnnConvolutionBwdFilterAlgo_t
CORRELATION = api.CUDNN_CROSS_CORRELATION
DEFAULT, FMA = api.CUDNN_DEFAULT_MATH, api.CUDNN_FMA_MATH
LAYOUTS = {"tf32-nchw": (FLOAT, NCHW, DEFAULT), "fma-nchw": (FLOAT, NCHW, FMA), "half-nhwc": (HALF, NHWC, DEFAULT)}
# Each shape has channels, filters, extent, window, stride and groups; "first" is a first layer, "each" is depthwise.
SHAPES = {
    "3x3": (16, 40, 6, 3, 1, 1),
    "1x1": (64, 24, 5, 1, 1, 1),
    "first": (3, 16, 9, 3, 2, 1),
    "each": (8, 8, 6, 3, 1, 8),
}


def convolution(kind: Any, algo: Any, layout: str, shape: str, images: int = 2) -> Any:
    """Return a convolution or one of its gradients."""
    (data_type, order, math), (channels, filters, extent, window, stride, groups) = LAYOUTS[layout], SHAPES[shape]
    padding, out = window // 2, (extent + 2 * (window // 2) - window) // stride + 1
    described = ops.ConvolutionSpec(
        CORRELATION, FLOAT, (padding,) * 2, (stride,) * 2, (1, 1), groups, math, api.cudnnReorderType_t(0)
    )
    x = ops.TensorSpec.packed(data_type, (images, channels, extent, extent), order)
    y = ops.TensorSpec.packed(data_type, (images, filters, out, out), order)
    w = ops.FilterSpec(data_type, order, (filters, channels // groups, window, window))
    operands = {
        ops.ConvolutionForward: (x, w, y),
        ops.ConvolutionBackwardData: (w, y, x),
        ops.ConvolutionBackwardFilter: (x, y, w),
    }
    return kind(described, algo, 0, 1.0, 0.0, *operands[kind])


def _within_images() -> dict[str, Any]:
    """Return operations that sum within one image."""
    found: dict[str, Any] = {}
    for layout, (data_type, order, _) in LAYOUTS.items():
        for shape in SHAPES:
            for algo in (FORWARD(0), FORWARD(1), FORWARD(2)):
                if algo != FORWARD(2) or order == NCHW:
                    found[f"forward-{algo.name[22:]}-{layout}-{shape}"] = convolution(
                        ops.ConvolutionForward, algo, layout, shape
                    )
            for gradient in (DATA(0), DATA(1)):
                if gradient != DATA(0) or order == NCHW:
                    found[f"data-{gradient.name[27:]}-{layout}-{shape}"] = convolution(
                        ops.ConvolutionBackwardData, gradient, layout, shape
                    )
        if layout == "tf32-nchw":
            continue
        for channels, extent in ((24, 7), (300, 1)):
            x = ops.TensorSpec.packed(data_type, (2, channels, extent, extent), order)
            what = f"{layout}-{channels}x{extent}"
            for mode in api.cudnnSoftmaxMode_t:
                given = (api.CUDNN_SOFTMAX_ACCURATE, mode, 1.0, 0.0)
                found[f"softmax-{mode.name[19:]}-{what}"] = ops.SoftmaxForward(*given, x, x)
                found[f"softmax-gradient-{mode.name[19:]}-{what}"] = ops.SoftmaxBackward(*given, x, x, x)
        x, y = (ops.TensorSpec.packed(data_type, (2, 24, extent, extent), order) for extent in (8, 4))
        for pools in (
            api.CUDNN_POOLING_MAX,
            api.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
        ):
            pooling = ops.PoolingSpec(pools, api.cudnnNanPropagation_t(0), (3, 3), (1, 1), (2, 2))
            found[f"pooling-{pools.value}-{layout}"] = ops.PoolingForward(pooling, 1.0, 0.0, x, y)
            found[f"pooling-gradient-{pools.value}-{layout}"] = ops.PoolingBackward(pooling, 1.0, 0.0, y, y, x, x)
            everything = replace(pooling, window=(8, 8), padding=(0, 0), stride=(1, 1))
            one = ops.TensorSpec.packed(data_type, (2, 24, 1, 1), order)
            found[f"pooling-{pools.value}-all-{layout}"] = ops.PoolingForward(everything, 1.0, 0.0, x, one)
        tangent = ops.ActivationSpec(api.CUDNN_ACTIVATION_TANH, api.cudnnNanPropagation_t(0), 0.0)
        found[f"activation-{layout}"] = ops.ActivationForward(tangent, 1.0, 0.0, x, x)
        statistics = ops.TensorSpec.packed(FLOAT, (1, 24, 1, 1))
        found[f"normalization-{layout}"] = ops.BatchNormalizationForwardInference(
            SPATIAL, 1.0, 0.0, x, x, statistics, statistics, 1e-5
        )
    return found


SPATIAL = api.CUDNN_BATCHNORM_SPATIAL
WITHIN_IMAGES = _within_images()


def _over_images() -> dict[str, Any]:
    """Return operations that sum over the images of a batch."""
    found: dict[str, Any] = {}
    for layout, (data_type, order, _) in LAYOUTS.items():
        for shape in SHAPES:
            for algo in (FILTER(0), FILTER(1)):
                found[f"filter-{algo.value}-{layout}-{shape}"] = convolution(
                    ops.ConvolutionBackwardFilter, algo, layout, shape, 9
                )
        x = ops.TensorSpec.packed(data_type, (9, 24, 7, 7), order)
        statistics = ops.TensorSpec.packed(FLOAT, (1, 24, 1, 1))
        found[f"bias-{layout}"] = ops.ConvolutionBackwardBias(
            1.0, 0.0, x, ops.TensorSpec.packed(data_type, (1, 24, 1, 1), order)
        )
        found[f"training-{layout}"] = ops.BatchNormalizationForwardTraining(
            SPATIAL, 1.0, 0.0, x, x, statistics, statistics, 1.0, None, 1e-5, None
        )
    return found


OVER_IMAGES = _over_images()


def _of_sequences_and_grids() -> dict[str, Any]:
    """Return losses and spatial transformers, which sum within one sequence or image."""
    found: dict[str, Any] = {}
    lengths, labels = (3, 0, 9, 4, 5, 2), (1, 2, 2, 1, 4, 1, 4, 4, 4, 2, 3, 1, 5, 5, 1, 5, 2, 3, 6, 6, 1, 4, 3)
    probs, costs = ops.TensorSpec.packed(FLOAT, (20, 6, 7)), ops.TensorSpec(FLOAT, (6,), (1,))
    loss = ops.CTCLossSpec(FLOAT, api.CUDNN_LOSS_NORMALIZATION_SOFTMAX, api.cudnnNanPropagation_t(0))
    given = (loss, api.cudnnCTCLossAlgo_t(0), labels, lengths, (20, 4, 20, 17, 12, 9), 0)
    found["ctc"] = ops.CTCLoss(*given, probs, costs, probs)
    for data_type, order, what in ((FLOAT, NCHW, "float-nchw"), (HALF, NHWC, "half-nhwc")):
        for channels, extent in ((3, 30), (40, 9)):
            x = ops.TensorSpec.packed(data_type, (2, channels, 11, 12), order)
            y = ops.TensorSpec.packed(data_type, (2, channels, extent, extent), order)
            grid, shape = (
                ops.SpatialTransformerSpec(api.cudnnSamplerType_t(0), data_type, y.dims),
                f"{what}-{channels}x{extent}",
            )
            found[f"grid-{shape}"] = ops.SpatialTfGridGeneratorForward(grid)
            found[f"grid-gradient-{shape}"] = ops.SpatialTfGridGeneratorBackward(grid)
            found[f"sampler-{shape}"] = ops.SpatialTfSamplerForward(grid, 1.0, 0.0, x, y)
            found[f"sampler-gradient-{shape}"] = ops.SpatialTfSamplerBackward(grid, 1.0, 0.0, 1.0, 0.0, x, x, y)
    return found


def _attention(*kinds: Any) -> dict[str, Any]:
    """Return calls of attention of these kinds on six sequences, with and without projections."""
    found: dict[str, Any] = {}
    axes, lengths, key_lengths = tuple(api.cudnnSeqDataAxis_t), (9, 3, 9, 0, 7, 5), (11, 11, 2, 8, 5, 0)
    low, high = (0,) * 9, tuple(range(3, 12))
    plain, projected = (24, 24, 40, 0, 0, 0, 0), (96, 416, 72, 16, 16, 24, 41)
    for data_type, math, sizes in (
        (FLOAT, DEFAULT, plain),
        (FLOAT, DEFAULT, projected),
        (FLOAT, api.CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION, projected),
        (HALF, api.CUDNN_TENSOR_OP_MATH, projected),
    ):
        attn = ops.AttnSpec(0, 2, 0.3, data_type, data_type, math, *sizes, 9, 11, 6, 1)
        queries, keys, values, out = (
            ops.SeqDataSpec(data_type, (steps, 6, 1, size), axes, existing)
            for steps, size, existing in (
                (9, attn.q_size, lengths), (11, attn.k_size, key_lengths), (11, attn.v_size, key_lengths),
                (9, attn.output_size, lengths),
            )
        )  # fmt: skip
        given: dict[Any, Any] = {  # what follows the descriptor
            ops.MultiHeadAttnForward: (low, high, queries, None, keys, values, out, False),
            ops.MultiHeadAttnStep: (4, low[:1], high[4:5], queries, None, keys, values, out),
            ops.MultiHeadAttnBackwardData: (low, high, out, queries, keys, values),
            ops.MultiHeadAttnBackwardWeights: (api.CUDNN_WGRAD_MODE_SET, queries, keys, values, out),
        }
        what = f"{data_type.name[11:].lower()}-{math.value}-{'plain' if sizes is plain else 'projected'}"
        found |= {f"{kind.__name__[9:]}-{what}": kind(attn, *given[kind]) for kind in kinds}
    return found


def _recurrent(trains: bool) -> dict[str, Any]:
    """Return recurrent networks on six sequences of up to three steps, with states before and after them."""
    found: dict[str, Any] = {}
    lengths, unpacked = (3, 2, 3, 1, 2, 3), api.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED
    both = api.CUDNN_BIDIRECTIONAL
    for name, cell, data_type, math, more in (
        ("lstm-tf32-both", api.CUDNN_LSTM, FLOAT, DEFAULT, {"direction": both, "hidden": 26, "projected": 22}),
        ("lstm-fma", api.CUDNN_LSTM, FLOAT, FMA, {"hidden": 40, "projected": 40, "layers": 1}),
        ("gru-half", api.CUDNN_GRU, HALF, DEFAULT, {"hidden": 72, "projected": 72, "layers": 1}),
        ("lstm-half-overlapped", api.CUDNN_LSTM, HALF, DEFAULT, {"hidden": 40, "projected": 40}),
        ("gru-tf32-overlapped", api.CUDNN_GRU, FLOAT, DEFAULT, {"hidden": 26, "projected": 26, "layers": 3}),
        ("relu-tf32-overlapped", api.CUDNN_RNN_RELU, FLOAT, DEFAULT, {"hidden": 24, "projected": 24, "layers": 4}),
    ):
        given: dict[str, Any] = {"layers": 2, "input_size": 70, "padded": True} | more
        spec = RNNSpec(cell=cell, data_type=data_type, math_type=math, **given)
        found[name] = forward(spec, unpacked, lengths, 3, 0.0, trains, ())
    return found


SEQUENCES_AND_GRIDS = {
    **_of_sequences_and_grids(),
    **_attention(ops.MultiHeadAttnForward, ops.MultiHeadAttnStep, ops.MultiHeadAttnBackwardData),
    **_recurrent(trains=False),
}
TRAINED = _recurrent(trains=True)
# Planners overlap the layers of these networks where they see as many multiprocessors as a GPU has.
OVERLAPPED = [f"{network}{call}" for network in TRAINED if "overlapped" in network for call in ("", "-gradient")]
for network, first in TRAINED.items():
    SEQUENCES_AND_GRIDS[f"{network}-gradient"] = backward(first)[0]
OVER_SEQUENCES = {
    name: operation for name, operation in _attention(ops.MultiHeadAttnBackwardWeights).items() if operation.weights
} | {f"{network}-weights": backward(first)[1] for network, first in TRAINED.items() if network not in OVERLAPPED}
_dropping = forward(
    replace(TRAINED["lstm-tf32-both"].network, dropout=0.25),
    api.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, (3, 2, 3, 1, 2, 3), 3, 0.0, True, (),
)  # fmt: skip
DROPPING = {"lstm-dropout": _dropping, "lstm-dropout-gradient": backward(_dropping)[0]}
_high = ops.PoolingSpec(
    api.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING, api.cudnnNanPropagation_t(0), (8, 8), (0, 1), (8, 1)
)
HIGH_WINDOW = ops.PoolingForward(
    _high, 1.0, 0.0, ops.TensorSpec.packed(FLOAT, (2, 1, 8, 8)), ops.TensorSpec.packed(FLOAT, (2, 1, 1, 3))
)
ALONE = {**WITHIN_IMAGES, **SEQUENCES_AND_GRIDS, "pooling-high-window": HIGH_WINDOW}
