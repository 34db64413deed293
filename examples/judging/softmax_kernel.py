"""Judge your own kernels: a softmax by blocks, as in Triton, once right and with three faults that a tolerance of 1e-2 passes.

python examples/judging/softmax_kernel.py
"""

from __future__ import annotations

from collections.abc import Callable

import dualdnn
import numpy as np
from dualdnn.api.enumerations import cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t
from dualdnn.api.operations import SoftmaxForward, TensorSpec
from dualdnn.api.operations.specs import HALF

BLOCK = 128
ROWS = 64
COLUMNS = 1000
Array = np.ndarray
Kernel = Callable[[Array, Array], None]


def blocks(columns: int) -> range:
    return range(0, columns, BLOCK)


def right(x: Array, y: Array) -> None:
    """Compute one row by one program: the maximum, the sum and the quotients, in float."""
    for row in range(len(x)):
        parts = [x[row, start : start + BLOCK].astype(np.float32) for start in blocks(x.shape[1])]
        highest = max(part.max() for part in parts)
        total = np.float32(sum(np.exp(part - highest).sum(dtype=np.float32) for part in parts))
        for start, part in zip(blocks(x.shape[1]), parts, strict=True):
            y[row, start : start + BLOCK] = np.exp(part - highest) / total


def sums_in_half(x: Array, y: Array) -> None:
    """Sum in half, so that a sum of a thousand exponentials loses its last bits."""
    for row in range(len(x)):
        values = np.exp(x[row].astype(np.float32) - x[row].max())
        total = np.float16(0)
        for value in values:
            total = np.float16(total + np.float16(value))
        y[row] = values / np.float32(total)


def counts_the_padding(x: Array, y: Array) -> None:
    """Load zeros after the end of a row, not minus infinity, so that the sum has 24 exponentials too many."""
    for row in range(len(x)):
        padded = np.zeros(-(-x.shape[1] // BLOCK) * BLOCK, np.float32)
        padded[: x.shape[1]] = x[row]
        exponentials = np.exp(padded - padded.max())
        y[row] = exponentials[: x.shape[1]] / exponentials.sum()


def forgets_the_last_block(x: Array, y: Array) -> None:
    """Normalise by the sum of the complete blocks, without the last one."""
    whole = x.shape[1] // BLOCK * BLOCK
    for row in range(len(x)):
        values = np.exp(x[row].astype(np.float32) - x[row].max())
        y[row] = values / values[:whole].sum()


KERNELS: tuple[Kernel, ...] = (right, sums_in_half, counts_the_padding, forgets_the_last_block)


def main() -> dict[str, bool]:
    """Judge each kernel; return whether it agrees."""
    spec = TensorSpec.packed(HALF, (ROWS, COLUMNS, 1, 1))
    algorithm, mode = cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_ACCURATE, cudnnSoftmaxMode_t.CUDNN_SOFTMAX_MODE_CHANNEL
    operation = SoftmaxForward(algorithm, mode, 1.0, 0.0, spec, spec)
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float16)
    exact = np.exp(x.astype(float)) / np.exp(x.astype(float)).sum(1, keepdims=True)
    agrees = {}
    for kernel in KERNELS:
        y = np.empty_like(x)
        kernel(x, y)
        close = np.allclose(y, exact, rtol=1e-2, atol=1e-2)
        verdict = dualdnn.judge(operation, {"x": x.reshape(spec.dims)}, {"y": y.reshape(spec.dims)}, random=True)
        agrees[kernel.__name__] = verdict.agrees and not verdict.suspicions
        said = (
            verdict.explanation()
            or "; ".join(verdict.suspicions)
            or f"largest error {verdict.error_ratio:.2f} of what is allowed"
        )
        print(
            f"{kernel.__name__}: within 1e-2 {close}; judge: {'agrees' if agrees[kernel.__name__] else 'disagrees'}, {said.splitlines()[0]}"
        )
    return agrees


if __name__ == "__main__":
    main()
