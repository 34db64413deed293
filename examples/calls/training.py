"""Ask and compute in a training step: searches for convolutions, both generations of batch normalisation, a fused operation, CTC.

python examples/calls/training.py [accelerated [emulated]]
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import numpy as np
from dualdnn.api import cudnn

FLOAT, NCHW = cudnn.CUDNN_DATA_FLOAT, cudnn.CUDNN_TENSOR_NCHW
X = (2, 3, 6, 6)  # dimensions before the convolution
Y = (2, 4, 6, 6)  # dimensions after it
CHANNELS = (1, 4, 1, 1)
EPSILON = 1e-3
RANDOM = np.random.default_rng(0)


def tensor(*dims: int) -> Any:
    """Return the descriptor of a packed tensor."""
    descriptor = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensorNdDescriptor(
        descriptor, FLOAT, len(dims), dims, [prod(dims[i + 1 :]) for i in range(len(dims))]
    )
    return descriptor


def drawn(handle: Any, *dims: int) -> Any:
    """Return device memory with random numbers."""
    return handle.to_device(RANDOM.standard_normal(dims).astype(np.float32))


def versions() -> None:
    """Check that the parts of the library belong together; each part of a library of several files has its own check."""
    cudnn.cudnnOpsInferVersionCheck()
    cudnn.cudnnOpsTrainVersionCheck()
    cudnn.cudnnAdvInferVersionCheck()
    cudnn.cudnnAdvTrainVersionCheck()


def searches(handle: Any) -> None:
    """Find the fastest algorithms of a convolution and of its gradients."""
    x, y, w, convolution = (
        tensor(*X),
        tensor(*Y),
        cudnn.cudnnCreateFilterDescriptor(),
        cudnn.cudnnCreateConvolutionDescriptor(),
    )
    cudnn.cudnnSetFilterNdDescriptor(w, FLOAT, NCHW, 4, (4, 3, 3, 3))
    correlation = cudnn.CUDNN_CROSS_CORRELATION
    cudnn.cudnnSetConvolution2dDescriptor(convolution, 1, 1, 1, 1, 1, 1, correlation, FLOAT)
    cudnn.cudnnSetConvolutionReorderType(convolution, cudnn.CUDNN_NO_REORDER)  # matters for filters of int8x32 alone

    # Without memory of the caller: the library takes its own.
    most = cudnn.cudnnGetConvolutionBackwardDataAlgorithmMaxCount(handle)
    count, found = cudnn.cudnnFindConvolutionBackwardDataAlgorithm(handle, w, y, convolution, x, most)
    print(f"gradient of the data: the fastest of {count} results is {found[0].algo.name}")
    most = cudnn.cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(handle)
    count, found = cudnn.cudnnFindConvolutionBackwardFilterAlgorithm(handle, x, y, convolution, w, most)
    print(f"gradient of the filters: the fastest of {count} results is {found[0].algo.name}")

    # With memory of the caller: the result is overwritten, and no algorithm may need more workspace than is given.
    images, filters, results = drawn(handle, *X), drawn(handle, 4, 3, 3, 3), drawn(handle, *Y)
    space, size = handle.allocate(1 << 20), 1 << 20
    cudnn.cudnnFindConvolutionForwardAlgorithmEx(handle, x, images, w, filters, convolution, y, results, 1, space, size)
    cudnn.cudnnFindConvolutionBackwardDataAlgorithmEx(
        handle, w, filters, y, results, convolution, x, images, 1, space, size
    )
    cudnn.cudnnFindConvolutionBackwardFilterAlgorithmEx(
        handle, x, images, y, results, convolution, w, filters, 1, space, size
    )


def batch_normalization(handle: Any) -> None:
    """Normalise a batch forward and backward by the calls of version 7 and by those of version 8: the results are the same."""
    mode, only, activation = cudnn.CUDNN_BATCHNORM_SPATIAL, cudnn.CUDNN_BATCHNORM_OPS_BN, None
    x, c = tensor(*Y), tensor(*CHANNELS)
    data, dy, scale, bias = drawn(handle, *Y), drawn(handle, *Y), drawn(handle, *CHANNELS), drawn(handle, *CHANNELS)
    size = cudnn.cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(handle, mode, only, x, None, x, c, activation)
    space, reserved = (
        handle.allocate(size),
        cudnn.cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle, mode, only, activation, x),
    )
    reserve, y, mean, inverse = (handle.allocate(n) for n in (reserved, data.nbytes, scale.nbytes, scale.nbytes))
    cudnn.cudnnBatchNormalizationForwardTrainingEx(
        handle, mode, only, 1.0, 0.0, x, data, None, None, x, y, c, scale, bias, 1.0, None, None, EPSILON, mean, inverse,
        activation, space, size, reserve, reserved,
    )  # fmt: skip
    size = cudnn.cudnnGetBatchNormalizationBackwardExWorkspaceSize(
        handle, mode, only, x, None, x, None, x, c, activation
    )
    space, dx = handle.allocate(size), handle.allocate(data.nbytes)
    dscale, dbias = handle.allocate(scale.nbytes), handle.allocate(scale.nbytes)
    cudnn.cudnnBatchNormalizationBackwardEx(
        handle, mode, only, 1.0, 0.0, 1.0, 0.0, x, data, None, None, x, dy, None, None, x, dx, c, scale, None, dscale, dbias,
        EPSILON, mean, inverse, activation, space, size, reserve, reserved,
    )  # fmt: skip
    earlier = [memory.to_host(np.float32, -1) for memory in (y, dx, dscale, dbias)]

    mode, only, algo = cudnn.CUDNN_NORM_PER_CHANNEL, cudnn.CUDNN_NORM_OPS_NORM, cudnn.CUDNN_NORM_ALGO_STANDARD
    size = cudnn.cudnnGetNormalizationForwardTrainingWorkspaceSize(
        handle, mode, only, algo, x, None, x, c, activation, c, 1
    )
    reserved = cudnn.cudnnGetNormalizationTrainingReserveSpaceSize(handle, mode, only, algo, activation, x, 1)
    space, reserve = handle.allocate(size), handle.allocate(reserved)
    cudnn.cudnnNormalizationForwardTraining(
        handle, mode, only, algo, 1.0, 0.0, x, data, c, scale, bias, 1.0, c, None, None, EPSILON, mean, inverse,
        activation, None, None, x, y, space, size, reserve, reserved, 1,
    )  # fmt: skip
    size = cudnn.cudnnGetNormalizationBackwardWorkspaceSize(
        handle, mode, only, algo, x, None, x, None, x, c, activation, c, 1
    )
    space = handle.allocate(size)
    cudnn.cudnnNormalizationBackward(
        handle, mode, only, algo, 1.0, 0.0, 1.0, 0.0, x, data, None, None, x, dy, None, None, x, dx, c, scale, None, dscale,
        dbias, EPSILON, c, mean, inverse, activation, space, size, reserve, reserved, 1,
    )  # fmt: skip
    for memory, values in zip((y, dx, dscale, dbias), earlier, strict=True):
        np.testing.assert_array_equal(memory.to_host(np.float32, -1), values)


def fused(handle: Any) -> None:
    """Turn running statistics into the scale and bias of a following convolution, by a fused operation."""
    ops, vector = cudnn.CUDNN_FUSED_BN_FINALIZE_STATISTICS_INFERENCE, tensor(*CHANNELS)
    pack = cudnn.cudnnCreateFusedOpsConstParamPack(ops)
    constants = {
        cudnn.CUDNN_PARAM_BN_MODE: cudnn.CUDNN_BATCHNORM_SPATIAL,
        cudnn.CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC: vector,
        cudnn.CUDNN_PARAM_BN_EQSCALEBIAS_DESC: vector,
    }
    placed = ("BN_SCALE", "BN_BIAS", "BN_RUNNING_MEAN", "BN_RUNNING_VAR", "BN_EQSCALE", "BN_EQBIAS")
    constants |= {getattr(cudnn, f"CUDNN_PARAM_{name}_PLACEHOLDER"): cudnn.CUDNN_PTR_ELEM_ALIGNED for name in placed}
    for label, value in constants.items():
        cudnn.cudnnSetFusedOpsConstParamPackAttribute(pack, label, value)
    promise, is_null = cudnn.cudnnGetFusedOpsConstParamPackAttribute(pack, cudnn.CUDNN_PARAM_BN_SCALE_PLACEHOLDER)
    print(f"BN_SCALE: {promise.name}, NULL: {is_null}")

    plan = cudnn.cudnnCreateFusedOpsPlan(ops)
    cudnn.cudnnMakeFusedOpsPlan(handle, plan, pack)
    memory = {name: handle.to_device(np.full(CHANNELS, 2, np.float32)) for name in placed}
    pointers = cudnn.cudnnCreateFusedOpsVariantParamPack(ops)
    for name, buffer in memory.items():
        cudnn.cudnnSetFusedOpsVariantParamPackAttribute(pointers, getattr(cudnn, f"CUDNN_PTR_{name}"), buffer)
    cudnn.cudnnSetFusedOpsVariantParamPackAttribute(pointers, cudnn.CUDNN_SCALAR_DOUBLE_BN_EPSILON, EPSILON)
    result = cudnn.cudnnGetFusedOpsVariantParamPackAttribute(pointers, cudnn.CUDNN_PTR_BN_EQSCALE)
    cudnn.cudnnFusedOpsExecute(handle, plan, pointers)
    np.testing.assert_allclose(result.to_host(np.float32, -1), 2 / np.sqrt(2 + EPSILON), rtol=1e-6)
    cudnn.cudnnDestroyFusedOpsVariantParamPack(pointers)
    cudnn.cudnnDestroyFusedOpsPlan(plan)
    cudnn.cudnnDestroyFusedOpsConstParamPack(pack)


def ctc(handle: Any) -> None:
    """Compute the CTC loss of two sequences, whose labels are in device memory since version 8."""
    loss, steps, letters = cudnn.cudnnCreateCTCLossDescriptor(), 5, 4
    cudnn.cudnnSetCTCLossDescriptor(loss, FLOAT)  # The default normalisation is none.
    softmax, keep, longest = cudnn.CUDNN_LOSS_NORMALIZATION_SOFTMAX, cudnn.CUDNN_NOT_PROPAGATE_NAN, 3
    cudnn.cudnnSetCTCLossDescriptor_v8(loss, FLOAT, softmax, keep, longest)
    probabilities, algo = tensor(steps, 2, letters), cudnn.CUDNN_CTC_LOSS_ALGO_DETERMINISTIC
    size = cudnn.cudnnGetCTCLossWorkspaceSize_v8(handle, algo, loss, probabilities, probabilities)
    logits = handle.zeros(4 * steps * 2 * letters)
    labels, label_lengths, lengths = (
        handle.to_device(np.array(values, np.int32)) for values in ([[1, 2, 3], [2, 1, 0]], [3, 2], [steps, 4])
    )
    costs, gradients, workspace = handle.allocate(8), handle.allocate(logits.nbytes), handle.allocate(size)
    cudnn.cudnnCTCLoss_v8(
        handle,
        algo,
        loss,
        probabilities,
        logits,
        labels,
        label_lengths,
        lengths,
        costs,
        probabilities,
        gradients,
        size,
        workspace,
    )
    print("losses:", costs.to_host(np.float32, 2))


def main(backend: str = "reference", device: str | None = None) -> None:
    """Run every part on a backend."""
    handle = cudnn.cudnnCreate(backend=backend, device=device)
    versions()
    for part in (searches, batch_normalization, fused, ctc):
        part(handle)


if __name__ == "__main__":
    main(*sys.argv[1:])
