"""The reference's maximum pooling and softmax on one core, beside nine strided maxima of NumPy and PyTorch's float64 softmax.

pip install torch    # only for this
OPENBLAS_NUM_THREADS=1 python reports/reference_speed_memory.py
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from time import perf_counter

import numpy as np
from dualdnn.api.enumerations import cudnnDataType_t, cudnnNanPropagation_t, cudnnPoolingMode_t
from dualdnn.api.enumerations import cudnnSoftmaxAlgorithm_t as Algorithm
from dualdnn.api.enumerations import cudnnSoftmaxMode_t as Mode
from dualdnn.api.operations import Operation, PoolingForward, PoolingSpec, SoftmaxForward, TensorSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT
from dualdnn.reference import run
from dualdnn.reference.view import NUMPY_TYPES

RUNS = 9
SOFTMAX = (((64, 1000, 1, 1), True), ((8, 64, 56, 56), False), ((128, 4096, 1, 1), True))  # shape, over an instance


def best(*ways: Callable[[], object]) -> list[float]:
    """Milliseconds of the fastest run of each, in turns."""
    seconds = [float("inf")] * len(ways)
    for _ in range(RUNS):
        for index, way in enumerate(ways):
            start = perf_counter()
            way()
            seconds[index] = min(seconds[index], perf_counter() - start)
    return [1000 * value for value in seconds]


def by_reference(operation: Operation, x: np.ndarray) -> Callable[[], None]:
    memory = {"x": x.view(np.uint8).ravel(), "y": np.empty(operation.nbytes("y"), np.uint8)}
    return lambda: run(operation, memory)


def pooling() -> None:
    x = np.random.default_rng(0).standard_normal((8, 64, 112, 112)).astype(np.float32)
    y_dims = (8, 64, 56, 56)
    spec = PoolingSpec(
        cudnnPoolingMode_t.CUDNN_POOLING_MAX, cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN, (3, 3), (1, 1), (2, 2)
    )
    operation = PoolingForward(spec, 1.0, 0.0, TensorSpec.packed(FLOAT, x.shape), TensorSpec.packed(FLOAT, y_dims))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)

    def nine_maxima() -> None:
        result = padded[:, :, 0:112:2, 0:112:2].copy()
        for i in range(3):
            for j in range(3):
                np.maximum(result, padded[:, :, i : i + 112 : 2, j : j + 112 : 2], out=result)

    ours, theirs = best(by_reference(operation, x), nine_maxima)
    print(f"| maximum of 3x3, stride 2, {x.shape} FLOAT | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |")


def softmax(shape: tuple[int, ...], over_instance: bool, data_type: cudnnDataType_t) -> None:
    import torch

    torch.set_num_threads(1)
    mode = Mode.CUDNN_SOFTMAX_MODE_INSTANCE if over_instance else Mode.CUDNN_SOFTMAX_MODE_CHANNEL
    tensor = TensorSpec.packed(data_type, shape)
    operation = SoftmaxForward(Algorithm.CUDNN_SOFTMAX_ACCURATE, mode, 1.0, 0.0, tensor, tensor)
    x = np.random.default_rng(0).standard_normal(shape).astype(NUMPY_TYPES[data_type])
    same = torch.from_numpy(x.astype(np.float64)).reshape((shape[0], prod(shape[1:])) if over_instance else shape)
    ours, theirs = best(by_reference(operation, x), lambda: torch.softmax(same, 1))
    kind = data_type.name.removeprefix("CUDNN_DATA_")
    print(f"| softmax {mode.name[19:].lower()} {shape} {kind} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |")


if __name__ == "__main__":
    print("| operation | reference ms | beside it ms | ratio |\n|---|---|---|---|")
    pooling()
    for shape, over_instance in SOFTMAX:
        for data_type in (FLOAT, DOUBLE):
            softmax(shape, over_instance, data_type)
