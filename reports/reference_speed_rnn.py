"""Time the reference's recurrent networks and PyTorch's LSTM in float64 on the same CPU and number of threads.

    pip install torch    # only for this
    python reports/reference_speed_rnn.py --threads 1

The network has two layers of 256 cells and 50 steps of 32 sequences of 256 numbers. The forward call in training and the gradients of
data and weights are timed on FLOAT data. The best of several runs counts, in processor time, which other processes disturb less.
"""

from __future__ import annotations

import argparse
import os
from time import process_time

STEPS = 50
BATCH = 32
WIDTH = 256
LAYERS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1, help="threads of both (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=4, help="runs of each (default: %(default)s)")
    chosen = parser.parse_args()
    for library in ("OPENBLAS", "MKL", "OMP"):  # The libraries read it when they are loaded, so their imports follow.
        os.environ[f"{library}_NUM_THREADS"] = str(chosen.threads)
    import torch

    torch.set_num_threads(chosen.threads)
    ours, theirs = [], []
    for _ in range(chosen.runs):
        ours.append(by_reference())
        theirs.append(by_torch())
    print(f"PyTorch {torch.__version__}, {chosen.threads} threads; milliseconds of processor time")
    for name, found in (("reference", ours), ("PyTorch float64", theirs)):
        best = [1000 * min(times) for times in zip(*found, strict=True)]
        print(f"{name}: {', '.join(f'{time:.0f}' for time in best)}; together {1000 * min(map(sum, found)):.0f}")
    print(f"ratio {min(map(sum, ours)) / min(map(sum, theirs)):.2f}")


def by_reference() -> list[float]:
    """Return the seconds of the three calls."""
    import numpy as np
    from dualdnn.api.enumerations import cudnnMathType_t, cudnnRNNDataLayout_t
    from dualdnn.api.operations import RNNBackwardData, RNNBackwardWeights, RNNForward, TensorSpec
    from dualdnn.api.operations.rnn import RNNDataSpec, RNNSpec, reserve, workspace
    from dualdnn.api.operations.rnn.network import LSTM
    from dualdnn.api.operations.specs import FLOAT
    from dualdnn.reference import run

    network = RNNSpec(
        cell=LSTM, data_type=FLOAT, math_type=cudnnMathType_t.CUDNN_FMA_MATH, input_size=WIDTH, hidden=WIDTH,
        projected=WIDTH, layers=LAYERS,
    )  # fmt: skip
    layout = cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED
    x = RNNDataSpec(FLOAT, layout, STEPS, BATCH, WIDTH, (STEPS,) * BATCH)
    h, w = (TensorSpec.packed(FLOAT, dims) for dims in ((LAYERS, BATCH, WIDTH), (1, network.weight_elements, 1)))
    spaces = workspace(network, STEPS, BATCH), reserve(network, STEPS, BATCH)
    random = np.random.default_rng(0)
    memory: dict[str, np.ndarray] = {}
    times = []
    for operation in (
        RNNForward(network, True, x, h, h, w, x, h, h, *spaces),
        RNNBackwardData(network, x, x, h, h, h, h, w, x, h, h, *spaces),
        RNNBackwardWeights(network, x, h, x, w, *spaces),
    ):
        for name in operation.operands:
            values = random.uniform(-0.06, 0.06, -(-operation.nbytes(name) // 4)).astype(np.float32)
            memory.setdefault(name, values.view(np.uint8))
        start = process_time()
        run(operation, {name: memory[name] for name in operation.operands})
        times.append(process_time() - start)
    return times


def by_torch() -> list[float]:
    """Return the seconds of the forward pass and of all gradients."""
    import torch

    lstm = torch.nn.LSTM(WIDTH, WIDTH, LAYERS, dtype=torch.float64)
    x = torch.randn(STEPS, BATCH, WIDTH, dtype=torch.float64, requires_grad=True)
    start = process_time()
    y, _ = lstm(x)
    middle = process_time()
    y.backward(torch.ones_like(y))
    return [middle - start, process_time() - middle]


if __name__ == "__main__":
    main()
