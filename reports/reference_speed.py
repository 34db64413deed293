"""Time the reference's forward convolution and PyTorch's on the same CPU, shapes and number of threads.

    pip install torch    # only for this
    python reports/reference_speed.py --threads 1

FLOAT, HALF and DOUBLE name the type of the data; the reference reads it, computes in float64, blends, rounds and stores.
PyTorch convolves float64 and float32 tensors. The best of several runs counts, which are taken in turns.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

SECONDS = 2.0  # seconds, all runs of a shape
TYPES = ("FLOAT", "HALF", "DOUBLE")


class Shape(NamedTuple):
    """Describe a convolution: x is (N, C, spatial ...), w is (K, C / groups, spatial ...)."""

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
    Shape("3x3 of many weights, one image of 7x7", (1, 2048, 7, 7), (512, 2048, 3, 3), 1),
    Shape("one image of 16 x 8x8, 3x3", (1, 16, 8, 8), (32, 16, 3, 3), 1),
    Shape("one image of 8 x 6x6, 3x3", (1, 8, 6, 6), (8, 8, 3, 3), 1),
    Shape("one image of 16 x 8x8, depthwise 3x3", (1, 16, 8, 8), (16, 1, 3, 3), 1, groups=16),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1, help="threads of both (default: %(default)s)")
    parser.add_argument("-k", default="", metavar="TEXT", help="only shapes whose names contain it")
    chosen = parser.parse_args()
    for library in ("OPENBLAS", "MKL", "OMP"):  # The libraries read it when they are loaded, so their imports follow.
        os.environ[f"{library}_NUM_THREADS"] = str(chosen.threads)
    import torch

    torch.set_num_threads(chosen.threads)
    print(f"PyTorch {torch.__version__}, {chosen.threads} threads; milliseconds")
    print("| shape | " + " | ".join((*TYPES, "torch64", "torch32", *(f"{name} / torch64" for name in TYPES))) + " |")
    print("|---" * (3 + 2 * len(TYPES)) + "|")
    for shape in SHAPES:
        if chosen.k in shape.name:
            seconds = measured(shape)
            times = [f"{1000 * value:.{2 if value > 1e-3 else 3}f}" for value in seconds]
            ratios = [f"{value / seconds[len(TYPES)]:.2f}" for value in seconds[: len(TYPES)]]
            print(f"| {' | '.join((shape.name, *times, *ratios))} |", flush=True)


def measured(shape: Shape) -> list[float]:
    """Return the seconds of the reference for each type of data, and of PyTorch in float64 and float32."""
    import numpy as np
    import torch
    from dualdnn.api.enumerations import (
        cudnnConvolutionFwdAlgo_t,
        cudnnConvolutionMode_t,
        cudnnDataType_t,
        cudnnMathType_t,
        cudnnReorderType_t,
    )
    from dualdnn.api.operations import ConvolutionForward, ConvolutionSpec, FilterSpec, TensorSpec
    from dualdnn.api.operations.specs import DOUBLE, FLOAT, NCHW
    from dualdnn.reference import run
    from dualdnn.reference.view import NUMPY_TYPES, stored

    rank = len(shape.x) - 2
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(dims) for dims in (shape.x, shape.w))
    function = (torch.nn.functional.conv2d, torch.nn.functional.conv3d)[rank - 2]
    options = {name: getattr(shape, name) for name in ("padding", "stride", "dilation", "groups")}

    def by_torch(dtype: torch.dtype) -> Callable[[], torch.Tensor]:
        tensors = [torch.from_numpy(values).to(dtype) for values in (x, w)]
        return lambda: function(*tensors, **options)

    def by_reference(data_type: cudnnDataType_t) -> Callable[[], None]:
        geometry = [(value,) * rank for value in (shape.padding, shape.stride, shape.dilation)]
        convolution = ConvolutionSpec(
            cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, DOUBLE if data_type == DOUBLE else FLOAT, *geometry,
            shape.groups, cudnnMathType_t.CUDNN_DEFAULT_MATH, cudnnReorderType_t.CUDNN_DEFAULT_REORDER,
        )  # fmt: skip
        operation = ConvolutionForward(
            convolution, cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, 0, 1.0, 0.0,
            TensorSpec.packed(data_type, shape.x), FilterSpec(data_type, NCHW, shape.w),
            TensorSpec.packed(data_type, convolution.output_dims(shape.x, shape.w)),
        )  # fmt: skip
        dtype = NUMPY_TYPES[data_type]
        memory = {name: values.astype(dtype).view(np.uint8).ravel() for name, values in (("x", x), ("w", w))}
        memory["y"] = np.empty(operation.y.nbytes, np.uint8)
        run(operation, memory)
        exact = by_torch(torch.float64)().numpy()
        error = 2e-2 if dtype.itemsize == 2 else np.finfo(dtype).eps
        np.testing.assert_allclose(
            stored(operation.y, memory["y"]), exact, rtol=0, atol=error * 8 * np.abs(exact).max()
        )
        return lambda: run(operation, memory)

    ways = [by_reference(cudnnDataType_t[f"CUDNN_DATA_{name}"]) for name in TYPES]
    ways += [by_torch(torch.float64), by_torch(torch.float32)]
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
