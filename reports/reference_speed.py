"""The reference's forward convolution beside PyTorch's on the same CPU, shapes and number of threads.

    pip install torch    # only for this
    python reports/reference_speed.py --threads 1

`reference` is the whole operation on FLOAT data: read into float64, computed there, rounded, stored. `convolve` is its sum of
products alone, which PyTorch does in float64 (`torch64`) and in float32 (`torch32`). Best of several runs, taken in turns.
DOUBLE data is computed in extended precision, which is no part of this.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

SECONDS = 1.5  # of all runs of a shape


class Shape(NamedTuple):
    """x (N, C, spatial ...), w (K, C / groups, spatial ...)."""

    name: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    padding: int = 0
    stride: int = 1
    dilation: int = 1
    groups: int = 1


SHAPES = (
    Shape("3x3", (8, 64, 56, 56), (64, 64, 3, 3), 1),
    Shape("3x3, many channels", (8, 512, 7, 7), (512, 512, 3, 3), 1),
    Shape("1x1", (8, 256, 28, 28), (256, 256, 1, 1)),
    Shape("7x7 stride 2, 3 channels", (8, 3, 224, 224), (64, 3, 7, 7), 3, 2),
    Shape("5x5", (8, 32, 28, 28), (64, 32, 5, 5), 2),
    Shape("3x3 stride 2", (8, 128, 28, 28), (128, 128, 3, 3), 1, 2),
    Shape("3x3 dilation 2", (8, 64, 28, 28), (64, 64, 3, 3), 2, 1, 2),
    Shape("3x3, 4 groups", (8, 128, 28, 28), (128, 32, 3, 3), 1, groups=4),
    Shape("3x3, 32 groups", (8, 128, 28, 28), (128, 4, 3, 3), 1, groups=32),
    Shape("depthwise 3x3", (8, 128, 56, 56), (128, 1, 3, 3), 1, groups=128),
    Shape("depthwise 3x3 stride 2", (8, 128, 56, 56), (128, 1, 3, 3), 1, 2, groups=128),
    Shape("depthwise 5x5, 14x14", (8, 512, 14, 14), (512, 1, 5, 5), 2, groups=512),
    Shape("depthwise 3x3, 2 filters each", (8, 128, 28, 28), (256, 1, 3, 3), 1, groups=128),
    Shape("3-D 3x3x3", (2, 16, 16, 28, 28), (32, 16, 3, 3, 3), 1),
    Shape("one small image 3x3", (1, 16, 8, 8), (32, 16, 3, 3), 1),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1, help="of both (default: %(default)s)")
    parser.add_argument("-k", default="", metavar="TEXT", help="only shapes whose names contain it")
    chosen = parser.parse_args()
    for library in ("OPENBLAS", "MKL", "OMP"):  # read when the libraries are loaded, which is why they are below
        os.environ[f"{library}_NUM_THREADS"] = str(chosen.threads)
    import torch

    torch.set_num_threads(chosen.threads)
    print(f"PyTorch {torch.__version__}, {chosen.threads} threads; milliseconds")
    print("| shape | reference | convolve | torch64 | torch32 | convolve / torch64 | reference / torch64 |")
    print("|---|---|---|---|---|---|---|")
    for shape in SHAPES:
        if chosen.k in shape.name:
            whole, inner, double, single = (1000 * seconds for seconds in measured(shape))
            ratios = f"{inner / double:.2f} | {whole / double:.2f}"
            print(f"| {shape.name} | {whole:.2f} | {inner:.2f} | {double:.2f} | {single:.2f} | {ratios} |", flush=True)


def measured(shape: Shape) -> list[float]:
    """Seconds of the reference's operation, of its sum of products, of PyTorch in float64 and in float32."""
    import numpy as np
    import torch
    from dualdnn.api.enumerations import (
        cudnnConvolutionFwdAlgo_t,
        cudnnConvolutionMode_t,
        cudnnMathType_t,
        cudnnReorderType_t,
    )
    from dualdnn.api.operations import ConvolutionForward, ConvolutionSpec, FilterSpec, TensorSpec
    from dualdnn.api.operations.specs import FLOAT, NCHW
    from dualdnn.reference import run
    from dualdnn.reference.convolution_product import convolve

    rank = len(shape.x) - 2
    geometry = [(value,) * rank for value in (shape.padding, shape.stride, shape.dilation)]
    convolution = ConvolutionSpec(
        cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, FLOAT, *geometry, shape.groups,
        cudnnMathType_t.CUDNN_DEFAULT_MATH, cudnnReorderType_t.CUDNN_DEFAULT_REORDER,
    )  # fmt: skip
    y_dims = convolution.output_dims(shape.x, shape.w)
    operation = ConvolutionForward(
        convolution, cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, 0, 1.0, 0.0,
        TensorSpec.packed(FLOAT, shape.x), FilterSpec(FLOAT, NCHW, shape.w), TensorSpec.packed(FLOAT, y_dims),
    )  # fmt: skip
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(dims, np.float32) for dims in (shape.x, shape.w))
    memory = {"x": x.view(np.uint8).ravel(), "w": w.view(np.uint8).ravel(), "y": np.empty(operation.y.nbytes, np.uint8)}
    wide = x.astype(np.float64), w.astype(np.float64)
    function = (torch.nn.functional.conv2d, torch.nn.functional.conv3d)[rank - 2]
    options = {name: getattr(shape, name) for name in ("padding", "stride", "dilation", "groups")}
    tensors = [[torch.from_numpy(a) for a in pair] for pair in (wide, (x, w))]

    def by_torch(pair: list[torch.Tensor]) -> Callable[[], torch.Tensor]:
        return lambda: function(pair[0], pair[1], **options)

    ways = [lambda: run(operation, memory), lambda: convolve(*wide, convolution), *map(by_torch, tensors)]
    np.testing.assert_allclose(convolve(*wide, convolution), ways[2]().numpy(), rtol=0, atol=1e-10)
    best = [float("inf")] * len(ways)
    end = perf_counter() + SECONDS
    while perf_counter() < end:
        for index, way in enumerate(ways):
            start = perf_counter()
            way()
            best[index] = min(best[index], perf_counter() - start)
    return best


if __name__ == "__main__":
    main()
