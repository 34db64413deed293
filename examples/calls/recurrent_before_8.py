"""Run and train an LSTM by the calls before version 8: by steps, and by sequences.

python examples/calls/recurrent_before_8.py [accelerated [emulated]]
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import numpy as np
from dualdnn.api import cudnn

STEPS = 3
BATCH = 2
INPUTS = 4
HIDDEN = 5
FLOAT = cudnn.CUDNN_DATA_FLOAT


def tensor(*dims: int) -> Any:
    """Return the descriptor of a packed tensor."""
    descriptor = cudnn.cudnnCreateTensorDescriptor()
    strides = [prod(dims[axis + 1 :]) for axis in range(len(dims))]
    cudnn.cudnnSetTensorNdDescriptor(descriptor, FLOAT, len(dims), dims, strides)
    return descriptor


def filters(count: int) -> Any:
    """Return the descriptor of all weights together."""
    descriptor = cudnn.cudnnCreateFilterDescriptor()
    cudnn.cudnnSetFilterNdDescriptor(descriptor, FLOAT, cudnn.CUDNN_TENSOR_NCHW, 3, (count, 1, 1))
    return descriptor


def sequences(width: int) -> Any:
    """Return the descriptor of sequences that all have the greatest length."""
    descriptor = cudnn.cudnnCreateRNNDataDescriptor()
    layout, lengths = cudnn.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, (STEPS,) * BATCH
    cudnn.cudnnSetRNNDataDescriptor(descriptor, FLOAT, layout, STEPS, BATCH, width, lengths, None)
    return descriptor


def network(handle: Any, algo: Any = cudnn.CUDNN_RNN_ALGO_STANDARD) -> Any:
    """Return an LSTM of one layer."""
    rnn, dropout = cudnn.cudnnCreateRNNDescriptor(), cudnn.cudnnCreateDropoutDescriptor()
    cudnn.cudnnSetDropoutDescriptor(dropout, handle, 0.0, None, 0, 0)
    one_way, lstm = cudnn.CUDNN_UNIDIRECTIONAL, cudnn.CUDNN_LSTM
    cudnn.cudnnSetRNNDescriptor_v6(
        handle, rnn, HIDDEN, 1, dropout, cudnn.CUDNN_LINEAR_INPUT, one_way, lstm, algo, FLOAT
    )
    return rnn


def main(backend: str = "reference", device: str | None = None) -> None:
    """Make each call, and check that the calls by steps agree with those by sequences."""
    handle, random = cudnn.cudnnCreate(backend=backend, device=device), np.random.default_rng(0)

    def drawn(*dims: int) -> Any:
        return handle.to_device(random.standard_normal(dims).astype(np.float32))

    def empty(*dims: int) -> Any:
        return handle.allocate(4 * prod(dims))

    rnn, x_steps, y_steps = network(handle), [tensor(BATCH, INPUTS, 1)] * STEPS, [tensor(BATCH, HIDDEN, 1)] * STEPS
    x_desc, y_desc, h = sequences(INPUTS), sequences(HIDDEN), tensor(1, BATCH, HIDDEN)
    space = cudnn.cudnnGetRNNWorkspaceSize(handle, rnn, STEPS, x_steps)
    reserved = cudnn.cudnnGetRNNTrainingReserveSize(handle, rnn, STEPS, x_steps)
    workspace, reserve = handle.allocate(space), handle.allocate(reserved)
    count = cudnn.cudnnGetRNNParamsSize(handle, rnn, x_steps[0], FLOAT) // 4
    w_desc, w, dw = filters(count), drawn(count), handle.zeros(4 * count)
    x, y, dx, dy = (
        drawn(STEPS, BATCH, INPUTS),
        empty(STEPS, BATCH, HIDDEN),
        empty(STEPS, BATCH, INPUTS),
        drawn(STEPS, BATCH, HIDDEN),
    )
    (hx, cx, dhy, dcy), (hy, cy, dhx, dcx) = ([make(BATCH, HIDDEN) for _ in range(4)] for make in (drawn, empty))

    # Number 0 is the input gate of an LSTM. Its matrix and its bias are slices of the weights.
    shape = cudnn.cudnnCreateFilterDescriptor()
    matrix = cudnn.cudnnGetRNNLinLayerMatrixParams(handle, rnn, 0, x_steps[0], w_desc, w, 0, shape)
    print("input gate:", matrix.to_host(np.float32, (HIDDEN, INPUTS))[0])
    bias = cudnn.cudnnGetRNNLinLayerBiasParams(handle, rnn, 0, x_steps[0], w_desc, w, 0, shape)
    print("its bias:", bias.to_host(np.float32, HIDDEN))

    # Inference, with one descriptor for each step and with one for the sequences
    cudnn.cudnnRNNForwardInference(
        handle, rnn, STEPS, x_steps, x, h, hx, h, cx, w_desc, w, y_steps, y, h, hy, h, cy, workspace, space
    )
    inferred = y.to_host(np.float32, (STEPS, BATCH, HIDDEN))
    without_attention = (None,) * 8
    cudnn.cudnnRNNForwardInferenceEx(
        handle, rnn, x_desc, x, h, hx, h, cx, w_desc, w, y_desc, y, h, hy, h, cy, *without_attention, workspace, space
    )
    np.testing.assert_array_equal(y.to_host(np.float32, inferred.shape), inferred)

    # A training step: the reserve space carries results of each call to the next.
    cudnn.cudnnRNNForwardTraining(
        handle, rnn, STEPS, x_steps, x, h, hx, h, cx, w_desc, w, y_steps, y, h, hy, h, cy,
        workspace, space, reserve, reserved,
    )  # fmt: skip
    np.testing.assert_allclose(y.to_host(np.float32, inferred.shape), inferred, rtol=1e-5)
    cudnn.cudnnRNNBackwardData(
        handle, rnn, STEPS, y_steps, y, y_steps, dy, h, dhy, h, dcy, w_desc, w, h, hx, h, cx,
        x_steps, dx, h, dhx, h, dcx, workspace, space, reserve, reserved,
    )  # fmt: skip
    cudnn.cudnnRNNBackwardWeights(
        handle, rnn, STEPS, x_steps, x, h, hx, y_steps, y, workspace, space, w_desc, dw, reserve, reserved
    )
    gradients = dx.to_host(np.float32, -1), dw.to_host(np.float32, -1)

    # The same step for sequences; weight gradients are added to what dw holds.
    cudnn.cudnnRNNForwardTrainingEx(
        handle, rnn, x_desc, x, h, hx, h, cx, w_desc, w, y_desc, y, h, hy, h, cy, *without_attention,
        workspace, space, reserve, reserved,
    )  # fmt: skip
    cudnn.cudnnRNNBackwardDataEx(
        handle, rnn, y_desc, y, y_desc, dy, None, None, h, dhy, h, dcy, w_desc, w, h, hx, h, cx,
        x_desc, dx, h, dhx, h, dcx, None, None, workspace, space, reserve, reserved,
    )  # fmt: skip
    cudnn.cudnnRNNBackwardWeightsEx(
        handle, rnn, x_desc, x, h, hx, y_desc, y, workspace, space, w_desc, dw, reserve, reserved
    )
    np.testing.assert_allclose(dx.to_host(np.float32, -1), gradients[0], rtol=1e-5)
    np.testing.assert_allclose(dw.to_host(np.float32, -1), 2 * gradients[1], rtol=1e-5)

    # The searches measure algorithms on the same memory. An intensity of 1 tries every algorithm.
    results = cudnn.cudnnGetRNNForwardInferenceAlgorithmMaxCount(handle, rnn)
    _, found = cudnn.cudnnFindRNNForwardInferenceAlgorithmEx(
        handle, rnn, STEPS, x_steps, x, h, hx, h, cx, w_desc, w, y_steps, y, h, hy, h, cy,
        1.0, results, workspace, space,
    )  # fmt: skip
    print("fastest:", cudnn.cudnnGetAlgorithmPerformance(found[0]))
    results = cudnn.cudnnGetRNNForwardTrainingAlgorithmMaxCount(handle, rnn)
    cudnn.cudnnFindRNNForwardTrainingAlgorithmEx(
        handle, rnn, STEPS, x_steps, x, h, hx, h, cx, w_desc, w, y_steps, y, h, hy, h, cy,
        1.0, results, workspace, space, reserve, reserved,
    )  # fmt: skip
    results = cudnn.cudnnGetRNNBackwardDataAlgorithmMaxCount(handle, rnn)
    cudnn.cudnnFindRNNBackwardDataAlgorithmEx(
        handle, rnn, STEPS, y_steps, y, y_steps, dy, h, dhy, h, dcy, w_desc, w, h, hx, h, cx,
        x_steps, dx, h, dhx, h, dcx, 1.0, results, workspace, space, reserve, reserved,
    )  # fmt: skip
    cudnn.cudnnFindRNNBackwardWeightsAlgorithmEx(
        handle, rnn, STEPS, x_steps, x, h, hx, y_steps, y, 1.0, results, workspace, space, w_desc, dw, reserve, reserved
    )

    # CUDNN_RNN_ALGO_PERSIST_DYNAMIC runs only with a plan for the size of the batch.
    persistent = network(handle, cudnn.CUDNN_RNN_ALGO_PERSIST_DYNAMIC)
    plan = cudnn.cudnnCreatePersistentRNNPlan(persistent, BATCH, FLOAT)
    cudnn.cudnnSetPersistentRNNPlan(persistent, plan)
    space = cudnn.cudnnGetRNNWorkspaceSize(handle, persistent, STEPS, x_steps)
    workspace = handle.allocate(space)
    cudnn.cudnnRNNForwardInference(
        handle, persistent, STEPS, x_steps, x, h, hx, h, cx, w_desc, w, y_steps, y, h, hy, h, cy, workspace, space
    )
    np.testing.assert_allclose(y.to_host(np.float32, inferred.shape), inferred, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    main(*sys.argv[1:])
