"""Call every function of CuPy's cuDNN module, in CuPy's own environment, which has neither dualdnn nor PyTorch.

    python cupy_calls.py RESULTS [FAMILY TO SKIP ...]    # run_cupy.py does it

Inputs are from torch_answers.npz. The results go to RESULTS (.npz).
"""

from __future__ import annotations

import sys
from pathlib import Path

import cupy
import numpy as np
from cupy_backends.cuda.api import runtime
from cupy_backends.cuda.libs import cudnn
from cupyx import cudnn as high_level

TO_DEVICE, TO_HOST = runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost
FLOAT, HALF, NCHW = cudnn.CUDNN_DATA_FLOAT, cudnn.CUDNN_DATA_HALF, cudnn.CUDNN_TENSOR_NCHW
given = {name: array for name, array in np.load(Path(__file__).with_name("torch_answers.npz")).items()}
results: dict[str, np.ndarray] = {}
kept: list[np.ndarray] = []  # It keeps arrays alive whose addresses the library was given.


def host(*values, dtype=np.float32):
    """Return the address of an array on the host."""
    kept.append(np.array(values, dtype))
    return kept[-1].ctypes.data


ZERO, ONE = host(0), host(1)


def device(array):
    """Return the address of a copy of an array on the device."""
    array = np.ascontiguousarray(array)
    address = runtime.malloc(array.nbytes)
    runtime.memcpy(address, array.ctypes.data, array.nbytes, TO_DEVICE)
    return address


def empty(*shape, dtype=np.float32):
    return device(np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 0, dtype))


def read(address, *shape, dtype=np.float32):
    array = np.empty(shape, dtype)
    runtime.memcpy(array.ctypes.data, address, array.nbytes, TO_HOST)
    return array


def space(size):
    """Return the address of a new work or reserve space."""
    return runtime.malloc(max(size, 16)) if size else 0


def tensor(*dims, data_type=FLOAT, format=NCHW):
    descriptor = cudnn.createTensorDescriptor()
    cudnn.setTensor4dDescriptor(descriptor, format, data_type, *dims)
    return descriptor


def tensor_nd(*dims):
    descriptor = cudnn.createTensorDescriptor()
    strides = [int(np.prod(dims[i + 1 :])) for i in range(len(dims))]
    cudnn.setTensorNdDescriptor(
        descriptor, FLOAT, len(dims), host(*dims, dtype=np.int32), host(*strides, dtype=np.int32)
    )
    return descriptor


class Family:
    """Hold the inputs of a family, on the host and on the device, and its results by name."""

    def __init__(self, name):
        self.name = name

    def __getitem__(self, name):
        return given[f"{self.name}/{name}"]

    def on_device(self, *names):
        return [device(self[name]) for name in names]

    def __setitem__(self, name, value):
        results[f"{self.name}/{name}"] = np.asarray(value)

    def fetch(self, **addresses):
        """Keep a result from the device, in the shape of the recorded answer."""
        for name, address in addresses.items():
            self[name] = read(address, *self[name].shape)


def library(handle):
    assert cudnn.getVersion() >= 8000
    cudnn.setStream(handle, 0)
    assert cudnn.getStream(handle) == 0
    assert cudnn.queryRuntimeError(handle, cudnn.CUDNN_ERRQUERY_RAWCODE) == cudnn.CUDNN_STATUS_SUCCESS
    descriptor = cudnn.createTensorDescriptor()
    try:
        cudnn.setTensor4dDescriptor(descriptor, NCHW, FLOAT, -1, 2, 3, 4)
    except cudnn.CuDNNError as error:
        assert "CUDNN_STATUS_BAD_PARAM" in str(error)
    else:
        raise AssertionError("n of -1 was accepted")
    cudnn.setTensor4dDescriptorEx(descriptor, FLOAT, 2, 3, 4, 5, 60, 1, 15, 3)
    assert cudnn.getTensor4dDescriptor(descriptor) == (FLOAT, 2, 3, 4, 5, 60, 1, 15, 3)
    cudnn.destroyTensorDescriptor(descriptor)


def tensors(handle):
    a = Family("tensors")
    x, bias, other = a.on_device("x", "bias", "other")
    full, channels, rows = tensor(2, 3, 4, 5), tensor(1, 3, 1, 1), tensor(2, 3, 4, 1)
    y = device(a["x"])
    cudnn.addTensor_v3(handle, host(2), channels, bias, host(0.5), full, y)
    a.fetch(add=y)
    op = cudnn.createOpTensorDescriptor()
    cudnn.setOpTensorDescriptor(op, cudnn.CUDNN_OP_TENSOR_MAX, FLOAT, cudnn.CUDNN_PROPAGATE_NAN)
    assert cudnn.getOpTensorDescriptor(op) == (cudnn.CUDNN_OP_TENSOR_MAX, FLOAT, cudnn.CUDNN_PROPAGATE_NAN)
    cudnn.opTensor(handle, op, host(1.5), full, x, host(0.5), full, other, ZERO, full, y)
    cudnn.destroyOpTensorDescriptor(op)
    a.fetch(op=y)
    y = device(a["x"])
    cudnn.scaleTensor(handle, full, y, host(3))
    a.fetch(scale=y)
    cudnn.setTensor(handle, full, y, host(1.25))
    assert (read(y, 2, 3, 4, 5) == 1.25).all()

    reduce = cudnn.createReduceTensorDescriptor()
    options = (FLOAT, cudnn.CUDNN_PROPAGATE_NAN, cudnn.CUDNN_REDUCE_TENSOR_NO_INDICES, cudnn.CUDNN_32BIT_INDICES)
    cudnn.setReduceTensorDescriptor(reduce, cudnn.CUDNN_REDUCE_TENSOR_ADD, *options)
    assert cudnn.getReduceTensorDescriptor(reduce) == (cudnn.CUDNN_REDUCE_TENSOR_ADD, *options)
    size, total = cudnn.getReductionWorkspaceSize(handle, reduce, full, channels), empty(3)
    cudnn.reduceTensor(handle, reduce, 0, 0, space(size), size, ONE, full, x, ZERO, channels, total)
    a.fetch(sum=total)
    options = (FLOAT, cudnn.CUDNN_PROPAGATE_NAN, cudnn.CUDNN_REDUCE_TENSOR_FLATTENED_INDICES, cudnn.CUDNN_32BIT_INDICES)
    cudnn.setReduceTensorDescriptor(reduce, cudnn.CUDNN_REDUCE_TENSOR_MAX, *options)
    size, count = (
        cudnn.getReductionWorkspaceSize(handle, reduce, full, rows),
        cudnn.getReductionIndicesSize(handle, reduce, full, rows),
    )
    assert count == 4 * 24
    largest, where = empty(24), empty(24, dtype=np.int32)
    cudnn.reduceTensor(handle, reduce, where, count, space(size), size, ONE, full, x, ZERO, rows, largest)
    a.fetch(max=largest)
    a["max_index"] = read(where, 2, 3, 4, 1, dtype=np.int32)
    cudnn.destroyReduceTensorDescriptor(reduce)


def convolution(handle):
    a = Family("convolution")
    x, w, bias, dy = a.on_device("x", "w", "bias", "dy")
    x_desc, y_desc, bias_desc = tensor(2, 4, 7, 6), tensor(*a["y"].shape), tensor(1, 6, 1, 1)
    w_desc, conv = cudnn.createFilterDescriptor(), cudnn.createConvolutionDescriptor()
    cudnn.setFilter4dDescriptor_v4(w_desc, FLOAT, NCHW, 6, 2, 3, 3)
    assert cudnn.getFilterNdDescriptor(w_desc, 4) == (FLOAT, NCHW, 4, (6, 2, 3, 3))
    cudnn.setConvolution2dDescriptor_v5(conv, 1, 1, 2, 1, 1, 1, cudnn.CUDNN_CROSS_CORRELATION, FLOAT)
    cudnn.setConvolutionGroupCount(conv, 2)
    cudnn.setConvolutionMathType(conv, cudnn.CUDNN_DEFAULT_MATH)
    assert (cudnn.getConvolutionGroupCount(conv), cudnn.getConvolutionMathType(conv)) == (2, cudnn.CUDNN_DEFAULT_MATH)
    y, dx, dw, db = empty(*a["y"].shape), empty(2, 4, 7, 6), empty(6, 2, 3, 3), empty(6)
    directions = {
        "Forward": ((x_desc, w_desc, conv, y_desc), (x_desc, x, w_desc, w, conv, y_desc, y)),
        "BackwardData": ((w_desc, y_desc, conv, x_desc), (w_desc, w, y_desc, dy, conv, x_desc, dx)),
        "BackwardFilter": ((x_desc, y_desc, conv, w_desc), (x_desc, x, y_desc, dy, conv, w_desc, dw)),
    }
    scratch, chosen = runtime.malloc(1 << 22), {}
    for name, (described, placed) in directions.items():
        quickest = getattr(cudnn, f"getConvolution{name}Algorithm_v7")(handle, *described, 8)
        found = getattr(cudnn, f"findConvolution{name}Algorithm")(handle, *described, 8)
        searched = getattr(cudnn, f"findConvolution{name}AlgorithmEx")(handle, *placed, 8, scratch, 1 << 22)
        searched_7 = getattr(cudnn, f"findConvolution{name}AlgorithmEx_v7")(handle, *placed, 8, scratch, 1 << 22)
        assert min(map(len, (quickest, found, searched, searched_7))) >= 1
        best = next(row for row in found if row["status"] == 0)
        size = getattr(cudnn, f"getConvolution{name}WorkspaceSize")(handle, *described, best["algo"])
        assert size == best["memory"]
        chosen[name] = best["algo"], scratch, size
    cudnn.convolutionForward(handle, ONE, x_desc, x, w_desc, w, conv, *chosen["Forward"], ZERO, y_desc, y)
    cudnn.addTensor_v3(handle, ONE, bias_desc, bias, ONE, y_desc, y)
    cudnn.convolutionBackwardData_v3(
        handle, ONE, w_desc, w, y_desc, dy, conv, *chosen["BackwardData"], ZERO, x_desc, dx
    )
    cudnn.convolutionBackwardFilter_v3(
        handle, ONE, x_desc, x, y_desc, dy, conv, *chosen["BackwardFilter"], ZERO, w_desc, dw
    )
    cudnn.convolutionBackwardBias(handle, ONE, y_desc, dy, ZERO, bias_desc, db)
    a.fetch(y=y, dx=dx, dw=dw, db=db)

    solid, filters = a.on_device("solid", "filters")
    cudnn.setFilterNdDescriptor_v4(w_desc, FLOAT, NCHW, 5, host(3, 2, 2, 3, 2, dtype=np.int32))
    padding, strides, ones = (host(*values, dtype=np.int32) for values in ((1, 0, 1), (1, 2, 1), (1, 1, 1)))
    cudnn.setConvolutionGroupCount(conv, 1)
    cudnn.setConvolutionNdDescriptor_v3(conv, 3, padding, strides, ones, cudnn.CUDNN_CROSS_CORRELATION, FLOAT)
    solid_y = empty(*a["solid_y"].shape)
    cudnn.convolutionForward(
        handle,
        ONE,
        tensor_nd(1, 2, 4, 5, 6),
        solid,
        w_desc,
        filters,
        conv,
        0,
        0,
        0,
        ZERO,
        tensor_nd(*a["solid_y"].shape),
        solid_y,
    )
    a.fetch(solid_y=solid_y)
    cudnn.destroyFilterDescriptor(w_desc)
    cudnn.destroyConvolutionDescriptor(conv)


def pooling(handle):
    a = Family("pooling")
    x, dy, solid = a.on_device("x", "dy", "solid")
    x_desc, y_desc, window = tensor(2, 3, 7, 6), tensor(*a["y"].shape), cudnn.createPoolingDescriptor()
    y, dx, solid_y = empty(*a["y"].shape), empty(2, 3, 7, 6), empty(*a["solid_y"].shape)
    cudnn.setPooling2dDescriptor_v4(window, cudnn.CUDNN_POOLING_MAX, cudnn.CUDNN_PROPAGATE_NAN, 3, 2, 1, 0, 2, 2)
    cudnn.poolingForward(handle, window, ONE, x_desc, x, ZERO, y_desc, y)
    cudnn.poolingBackward(handle, window, ONE, y_desc, y, y_desc, dy, x_desc, x, ZERO, x_desc, dx)
    sizes = (host(*values, dtype=np.int32) for values in ((2, 3, 2), (0, 1, 1), (2, 1, 2)))
    mode = cudnn.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
    cudnn.setPoolingNdDescriptor_v4(window, mode, cudnn.CUDNN_PROPAGATE_NAN, 3, *sizes)
    cudnn.poolingForward(
        handle, window, ONE, tensor_nd(1, 2, 4, 5, 6), solid, ZERO, tensor_nd(*a["solid_y"].shape), solid_y
    )
    a.fetch(y=y, dx=dx, solid_y=solid_y)
    cudnn.destroyPoolingDescriptor(window)


def normalization(handle):
    a, mode, shape = Family("normalization"), cudnn.CUDNN_BATCHNORM_SPATIAL, (3, 8, 5, 2)
    x, scale, bias, mean, variance, dy = a.on_device("x", "scale", "bias", "mean", "variance", "dy")
    x_desc, vector = tensor(*shape), cudnn.createTensorDescriptor()
    cudnn.deriveBNTensorDescriptor(vector, x_desc, mode)
    assert cudnn.getTensor4dDescriptor(vector)[:5] == (FLOAT, 1, 8, 1, 1)
    y, dx = empty(*shape), empty(*shape)
    dscale, dbias, saved_mean, saved_variance = (empty(8) for _ in range(4))
    cudnn.batchNormalizationForwardInference(
        handle, mode, ONE, ZERO, x_desc, x, x_desc, y, vector, scale, bias, mean, variance, 1e-3
    )
    a.fetch(inference=y)
    cudnn.batchNormalizationForwardTraining(
        handle,
        mode,
        ONE,
        ZERO,
        x_desc,
        x,
        x_desc,
        y,
        vector,
        scale,
        bias,
        0.1,
        mean,
        variance,
        1e-3,
        saved_mean,
        saved_variance,
    )
    cudnn.batchNormalizationBackward(
        handle,
        mode,
        ONE,
        ZERO,
        ONE,
        ZERO,
        x_desc,
        x,
        x_desc,
        dy,
        x_desc,
        dx,
        vector,
        scale,
        dscale,
        dbias,
        1e-3,
        saved_mean,
        saved_variance,
    )
    a.fetch(y=y, running_mean=mean, running_variance=variance, dx=dx, dscale=dscale, dbias=dbias)

    # This call has an addend and a ReLU, in half precision with channels innermost.
    mode, ops = cudnn.CUDNN_BATCHNORM_SPATIAL_PERSISTENT, cudnn.CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION
    x_desc = tensor(*shape, data_type=HALF, format=cudnn.CUDNN_TENSOR_NHWC)
    x, z, dy = (device(a[name].transpose(0, 2, 3, 1).astype(np.float16)) for name in ("x", "z", "dy"))
    y, dx, dz = (empty(120 * 2, dtype=np.float16) for _ in range(3))
    relu = cudnn.createActivationDescriptor()
    cudnn.setActivationDescriptor(relu, cudnn.CUDNN_ACTIVATION_RELU, cudnn.CUDNN_PROPAGATE_NAN, 0)
    size = cudnn.getBatchNormalizationForwardTrainingExWorkspaceSize(
        handle, mode, ops, x_desc, x_desc, x_desc, vector, relu
    )
    reserved = cudnn.getBatchNormalizationTrainingExReserveSpaceSize(handle, mode, ops, relu, x_desc)
    reserve = space(reserved)
    cudnn.batchNormalizationForwardTrainingEx(
        handle, mode, ops, ONE, ZERO, x_desc, x, x_desc, z, x_desc, y, vector, scale, bias, 0.1, mean, variance, 1e-3, saved_mean,
        saved_variance, relu, space(size), size, reserve, reserved,
    )  # fmt: skip
    size = cudnn.getBatchNormalizationBackwardExWorkspaceSize(
        handle, mode, ops, x_desc, x_desc, x_desc, x_desc, x_desc, vector, relu
    )
    cudnn.batchNormalizationBackwardEx(
        handle, mode, ops, ONE, ZERO, ONE, ZERO, x_desc, x, x_desc, y, x_desc, dy, x_desc, dz, x_desc, dx, vector, scale, bias, dscale, dbias,
        1e-3, saved_mean, saved_variance, relu, space(size), size, reserve, reserved,
    )  # fmt: skip
    for name, address in {"fused": y, "fused_dx": dx, "fused_dz": dz}.items():
        a[name] = read(address, 3, 5, 2, 8, dtype=np.float16).transpose(0, 3, 1, 2).astype(np.float32)
    a.fetch(fused_dscale=dscale, fused_dbias=dbias)
    fused_operations(handle, a, vector)


def fused_operations(handle, a, vector):
    """Run a plan that computes scale and bias from statistics."""
    ops, statistics = cudnn.CUDNN_FUSED_BN_FINALIZE_STATISTICS_INFERENCE, ["scale", "bias", "mean", "variance"]
    constants, variants = cudnn.createFusedOpsConstParamPack(ops), cudnn.createFusedOpsVariantParamPack(ops)
    memory = dict(zip(statistics, a.on_device(*statistics), strict=True)) | {"eq_scale": empty(8), "eq_bias": empty(8)}
    labels = ["SCALE", "BIAS", "RUNNING_MEAN", "RUNNING_VAR", "EQSCALE", "EQBIAS"]
    attribute = cudnn.setFusedOpsConstParamPackAttribute
    attribute(constants, cudnn.CUDNN_PARAM_BN_MODE, host(cudnn.CUDNN_BATCHNORM_SPATIAL, dtype=np.int32))
    attribute(constants, cudnn.CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC, vector)
    attribute(constants, cudnn.CUDNN_PARAM_BN_EQSCALEBIAS_DESC, vector)
    for label in labels:
        attribute(
            constants,
            getattr(cudnn, f"CUDNN_PARAM_BN_{label}_PLACEHOLDER"),
            host(cudnn.CUDNN_PTR_ELEM_ALIGNED, dtype=np.int32),
        )
    mode = host(-1, dtype=np.int32)
    assert cudnn.getFusedOpsConstParamPackAttribute(constants, cudnn.CUDNN_PARAM_BN_MODE, mode) == 0
    assert kept[-1][0] == cudnn.CUDNN_BATCHNORM_SPATIAL
    plan = cudnn.createFusedOpsPlan(ops)
    assert cudnn.makeFusedOpsPlan(handle, plan, constants) == 0
    for label, address in zip(labels, memory.values(), strict=True):
        cudnn.setFusedOpsVariantParamPackAttribute(variants, getattr(cudnn, f"CUDNN_PTR_BN_{label}"), address)
    cudnn.setFusedOpsVariantParamPackAttribute(
        variants, cudnn.CUDNN_SCALAR_DOUBLE_BN_EPSILON, host(1e-3, dtype=np.float64)
    )
    back = host(0, dtype=np.uint64)
    cudnn.getFusedOpsVariantParamPackAttribute(variants, cudnn.CUDNN_PTR_BN_BIAS, back)
    assert kept[-1][0] == memory["bias"]
    cudnn.fusedOpsExecute(handle, plan, variants)
    a.fetch(eq_scale=memory["eq_scale"], eq_bias=memory["eq_bias"])
    cudnn.destroyFusedOpsPlan(plan)
    cudnn.destroyFusedOpsConstParamPack(constants)
    cudnn.destroyFusedOpsVariantParamPack(variants)


def activation(handle):
    a = Family("activation")
    x, dy = a.on_device("x", "dy")
    desc, y, dx, tanh = tensor(2, 5, 3, 4), empty(2, 5, 3, 4), empty(2, 5, 3, 4), cudnn.createActivationDescriptor()
    cudnn.setActivationDescriptor(tanh, cudnn.CUDNN_ACTIVATION_TANH, cudnn.CUDNN_PROPAGATE_NAN, 0)
    cudnn.activationForward_v4(handle, tanh, ONE, desc, x, ZERO, desc, y)
    cudnn.activationBackward_v4(handle, tanh, ONE, desc, y, desc, dy, desc, x, ZERO, desc, dx)
    cudnn.destroyActivationDescriptor(tanh)
    a.fetch(tanh=y, tanh_dx=dx)
    kind = (cudnn.CUDNN_SOFTMAX_ACCURATE, cudnn.CUDNN_SOFTMAX_MODE_CHANNEL)
    cudnn.softmaxForward(handle, *kind, ONE, desc, x, ZERO, desc, y)
    cudnn.softmaxBackward(handle, *kind, ONE, desc, y, desc, dy, ZERO, desc, dx)
    a.fetch(softmax=y, softmax_dx=dx)


def dropout(handle):
    """Check that dropout zeroes elements or scales them, and the gradients of the same elements."""
    desc, count, rate = tensor(8, 5, 10, 10), 4000, 0.25
    layer, size = cudnn.createDropoutDescriptor(), cudnn.dropoutGetStatesSize(handle)
    cudnn.setDropoutDescriptor(layer, handle, rate, space(size), size, 77)
    ones, y, dx = device(np.ones(count, np.float32)), empty(count), empty(count)
    reserved = cudnn.getDropoutReserveSpaceSize(desc)
    reserve = space(reserved)
    cudnn.dropoutForward(handle, layer, desc, ones, desc, y, reserve, reserved)
    cudnn.dropoutBackward(handle, layer, desc, ones, desc, dx, reserve, reserved)
    out = read(y, count)
    assert set(np.unique(out)) == {np.float32(0), np.float32(1) / np.float32(1 - rate)}
    assert abs((out == 0).mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / count)
    assert (read(dx, count) == out).all()
    cudnn.destroyDropoutDescriptor(layer)


def ctc(handle):
    a = Family("ctc")
    desc, loss = tensor_nd(6, 2, 4), cudnn.createCTCLossDescriptor()
    cudnn.setCTCLossDescriptor(loss, FLOAT)
    assert cudnn.getCTCLossDescriptor(loss) == FLOAT
    lists = [host(*a[name], dtype=np.int32) for name in ("labels", "label_lengths", "lengths")]
    algorithm = cudnn.CUDNN_CTC_LOSS_ALGO_DETERMINISTIC
    size = cudnn.getCTCLossWorkspaceSize(handle, desc, desc, *lists, algorithm, loss)
    costs, gradients = empty(2), empty(6, 2, 4)
    (probabilities,) = a.on_device("probabilities")
    cudnn.CTCLoss(handle, desc, probabilities, *lists, costs, desc, gradients, algorithm, loss, space(size), size)
    a.fetch(costs=costs, gradients=gradients)
    cudnn.destroyCTCLossDescriptor(loss)


class Recurrent:
    """Describe two layers of LSTM with 3 inputs, 4 hidden units, 5 steps and 2 sequences."""

    def __init__(self, handle):
        self.handle, self.answers = handle, Family("recurrent")
        self.network, self.none = cudnn.createRNNDescriptor(), cudnn.createDropoutDescriptor()
        cudnn.setRNNDescriptor_v6(
            handle, self.network, 4, 2, self.none, cudnn.CUDNN_LINEAR_INPUT, cudnn.CUDNN_UNIDIRECTIONAL, cudnn.CUDNN_LSTM,
            cudnn.CUDNN_RNN_ALGO_STANDARD, FLOAT,
        )  # fmt: skip
        step, out = tensor_nd(2, 3, 1), tensor_nd(2, 4, 1)
        self.step, self.state = step, tensor_nd(2, 2, 4)
        self.steps, self.outs = host(*[step] * 5, dtype=np.uint64), host(*[out] * 5, dtype=np.uint64)
        self.size = cudnn.getRNNParamsSize(handle, self.network, step, FLOAT)
        self.w_desc = cudnn.createFilterDescriptor()
        cudnn.setFilterNdDescriptor_v4(self.w_desc, FLOAT, NCHW, 3, host(self.size // 4, 1, 1, dtype=np.int32))
        self.weights = empty(self.size // 4)
        for _, address, rows in self.parts(self.weights):
            runtime.memcpy(address, np.ascontiguousarray(rows).ctypes.data, rows.nbytes, TO_DEVICE)
        self.given = self.answers.on_device("x", "hx", "cx", "dy", "dhy", "dcy")

    def parts(self, space):
        """Yield (parameter name, address, the gate's rows of it) for each matrix and bias in a weight space."""
        part, address = cudnn.createFilterDescriptor(), host(0, dtype=np.uint64)
        pointer = kept[-1]
        for layer in range(2):
            for gate in range(8):
                where = "ih" if gate < 4 else "hh"
                rows = slice(4 * (gate % 4), 4 * (gate % 4) + 4)
                for kind, call in (
                    ("weight", cudnn.getRNNLinLayerMatrixParams),
                    ("bias", cudnn.getRNNLinLayerBiasParams),
                ):
                    call(self.handle, self.network, layer, self.step, self.w_desc, space, gate, part, address)
                    name = f"{kind}_{where}_l{layer}"
                    values = self.answers[name][rows]
                    assert int(np.prod(cudnn.getFilterNdDescriptor(part, 3)[3])) == values.size
                    yield name, int(pointer[0]), values

    def gradients(self, space, kind):
        """Return the gradients of the parameters, assembled from their gates."""
        found = {}
        for name, address, values in self.parts(space):
            found.setdefault(name, []).append(read(address, *values.shape))
        for name, gates in found.items():
            self.answers[f"{kind}d_{name}"] = np.concatenate(gates)


def recurrent(handle):
    r = Recurrent(handle)
    x, hx, cx, dy, dhy, dcy = r.given
    size = cudnn.getRNNWorkspaceSize(handle, r.network, 5, r.steps)
    reserved = cudnn.getRNNTrainingReserveSize(handle, r.network, 5, r.steps)
    work, reserve = space(size), space(reserved)
    y, hy, cy, dx, dhx, dcx = (
        empty(5, 2, 4),
        empty(2, 2, 4),
        empty(2, 2, 4),
        empty(5, 2, 3),
        empty(2, 2, 4),
        empty(2, 2, 4),
    )
    s = r.state
    cudnn.RNNForwardInference(
        handle, r.network, 5, r.steps, x, s, hx, s, cx, r.w_desc, r.weights, r.outs, y, s, hy, s, cy, work, size
    )
    inferred = read(y, 5, 2, 4)
    y = empty(5, 2, 4)
    cudnn.RNNForwardTraining(
        handle,
        r.network,
        5,
        r.steps,
        x,
        s,
        hx,
        s,
        cx,
        r.w_desc,
        r.weights,
        r.outs,
        y,
        s,
        hy,
        s,
        cy,
        work,
        size,
        reserve,
        reserved,
    )
    np.testing.assert_allclose(inferred, read(y, 5, 2, 4), rtol=1e-5, atol=1e-6)
    cudnn.RNNBackwardData(
        handle, r.network, 5, r.outs, y, r.outs, dy, s, dhy, s, dcy, r.w_desc, r.weights, s, hx, s, cx, r.steps, dx, s, dhx, s, dcx, work,
        size, reserve, reserved,
    )  # fmt: skip
    dw = device(np.zeros(r.size // 4, np.float32))  # The call adds gradients of weights to what is there.
    cudnn.RNNBackwardWeights(
        handle, r.network, 5, r.steps, x, s, hx, r.outs, y, work, size, r.w_desc, dw, reserve, reserved
    )
    r.answers.fetch(y=y, hy=hy, cy=cy, dx=dx, dhx=dhx, dcx=dcx)
    r.gradients(dw, "")
    padded(handle, r)
    cudnn.destroyRNNDescriptor(r.network)


def padded(handle, r):
    """Run padded sequences of 5 and 3 steps."""
    cudnn.setRNNPaddingMode(r.network, cudnn.CUDNN_RNN_PADDED_IO_ENABLED)
    assert cudnn.getRNNPaddingMode(r.network) == cudnn.CUDNN_RNN_PADDED_IO_ENABLED
    layout, lengths, fill = cudnn.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, host(5, 3, dtype=np.int32), host(0)
    x_data, y_data = cudnn.createRNNDataDescriptor(), cudnn.createRNNDataDescriptor()
    cudnn.setRNNDataDescriptor(x_data, FLOAT, layout, 5, 2, 3, lengths, fill)
    cudnn.setRNNDataDescriptor(y_data, FLOAT, layout, 5, 2, 4, lengths, fill)
    numbers = np.zeros(7, np.int32)
    one, filled = numbers.ctypes.data, np.full(1, 7, np.float32)
    cudnn.getRNNDataDescriptor(x_data, *(one + 4 * i for i in range(5)), 2, one + 20, filled.ctypes.data)
    assert (*numbers, *filled) == (FLOAT, layout, 5, 2, 3, 5, 3, 0)
    x, hx, cx, dy, dhy, dcy = r.given
    size = cudnn.getRNNWorkspaceSize(handle, r.network, 5, r.steps)
    reserved = cudnn.getRNNTrainingReserveSize(handle, r.network, 5, r.steps)
    work, reserve = space(size), space(reserved)
    y, hy, cy, dx, dhx, dcx = (
        empty(5, 2, 4),
        empty(2, 2, 4),
        empty(2, 2, 4),
        empty(5, 2, 3),
        empty(2, 2, 4),
        empty(2, 2, 4),
    )
    s, nothing = r.state, (0,) * 8
    given = (x_data, x, s, hx, s, cx, r.w_desc, r.weights, y_data, y, s, hy, s, cy, *nothing)
    cudnn.RNNForwardInferenceEx(handle, r.network, *given, work, size)
    inferred = read(y, 5, 2, 4)
    cudnn.RNNForwardTrainingEx(handle, r.network, *given, work, size, reserve, reserved)
    np.testing.assert_allclose(inferred, read(y, 5, 2, 4), rtol=1e-5, atol=1e-6)
    cudnn.RNNBackwardDataEx(
        handle, r.network, y_data, y, y_data, dy, 0, 0, s, dhy, s, dcy, r.w_desc, r.weights, s, hx, s, cx, x_data, dx, s, dhx, s, dcx, 0, 0,
        work, size, reserve, reserved,
    )  # fmt: skip
    dw = device(np.zeros(r.size // 4, np.float32))
    cudnn.RNNBackwardWeightsEx(
        handle, r.network, x_data, x, s, hx, y_data, y, work, size, r.w_desc, dw, reserve, reserved
    )
    r.answers.fetch(short_y=y, short_hy=hy, short_cy=cy, short_dx=dx, short_dhx=dhx, short_dcx=dcx)
    r.gradients(dw, "short_")
    cudnn.destroyRNNDataDescriptor(x_data)
    cudnn.destroyRNNDataDescriptor(y_data)


def persistent(handle):
    """Run a persistent network with a plan for its number of sequences."""
    network, none = cudnn.createRNNDescriptor(), cudnn.createDropoutDescriptor()
    cudnn.setRNNDescriptor_v6(
        handle, network, 4, 2, none, cudnn.CUDNN_LINEAR_INPUT, cudnn.CUDNN_UNIDIRECTIONAL, cudnn.CUDNN_LSTM,
        cudnn.CUDNN_RNN_ALGO_PERSIST_DYNAMIC, FLOAT,
    )  # fmt: skip
    plan = cudnn.createPersistentRNNPlan(network, 2, FLOAT)
    cudnn.setPersistentRNNPlan(network, plan)
    cudnn.destroyPersistentRNNPlan(plan)
    cudnn.destroyRNNDescriptor(network)


def transformer(handle):
    a = Family("transformer")
    theta, x, dy = a.on_device("theta", "x", "dy")
    desc, x_desc, y_desc = cudnn.createSpatialTransformerDescriptor(), tensor(2, 3, 5, 6), tensor(2, 3, 4, 5)
    cudnn.setSpatialTransformerDescriptor(
        desc, cudnn.CUDNN_SAMPLER_BILINEAR, FLOAT, 4, host(2, 3, 4, 5, dtype=np.int32)
    )
    grid, y, dx, dgrid, dtheta = (
        empty(2, 4, 5, 2),
        empty(2, 3, 4, 5),
        empty(2, 3, 5, 6),
        empty(2, 4, 5, 2),
        empty(2, 2, 3),
    )
    cudnn.spatialTfGridGeneratorForward(handle, desc, theta, grid)
    cudnn.spatialTfSamplerForward(handle, desc, ONE, x_desc, x, grid, ZERO, y_desc, y)
    cudnn.spatialTfSamplerBackward(handle, desc, ONE, x_desc, x, ZERO, x_desc, dx, ONE, y_desc, dy, grid, ZERO, dgrid)
    cudnn.spatialTfGridGeneratorBackward(handle, desc, dgrid, dtheta)
    a.fetch(grid=grid, y=y, dx=dx, dgrid=dgrid, dtheta=dtheta)
    cudnn.destroySpatialTransformerDescriptor(desc)


def arrays():
    """Run CuPy's own array functions, which call the module."""
    a = Family("activation")
    x = cupy.asarray(a["x"])
    results["arrays/softmax"] = cupy.asnumpy(high_level.softmax_forward(x, 1, cudnn.CUDNN_SOFTMAX_ACCURATE))
    results["arrays/relu"] = cupy.asnumpy(high_level.activation_forward(x, cudnn.CUDNN_ACTIVATION_RELU))
    a = Family("convolution")
    x, w, bias, y = (cupy.asarray(a[name]) for name in ("x", "w", "bias", "y"))
    y = cupy.empty_like(y)
    high_level.convolution_forward(x, w, bias, y, (1, 1), (2, 1), (1, 1), 2, auto_tune=False, tensor_core="never")
    results["arrays/y"] = cupy.asnumpy(y)
    a = Family("pooling")
    y = cupy.empty(a["y"].shape, np.float32)
    high_level.pooling_forward(cupy.asarray(a["x"]), y, (3, 2), (2, 2), (1, 0), cudnn.CUDNN_POOLING_MAX)
    results["arrays/pooled"] = cupy.asnumpy(y)


FAMILIES = (
    library,
    tensors,
    convolution,
    pooling,
    normalization,
    activation,
    dropout,
    ctc,
    recurrent,
    persistent,
    transformer,
)


def main():
    handle = cudnn.create()
    failed = []
    for family in FAMILIES:
        if family.__name__ in sys.argv[2:]:
            continue
        try:
            family(handle)
        except cudnn.CuDNNError as error:
            failed.append(f"{family.__name__}: {error}")
    cudnn.destroy(handle)
    arrays()
    np.savez_compressed(sys.argv[1], **results)
    for line in failed:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
