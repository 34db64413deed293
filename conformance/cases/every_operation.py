"""Holds cases of the memory and the factors of every operation: one small sample of each, by the documented call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnPoolingMode_t
from dualdnn.api.operations import (
    AddTensor,
    Operation,
    ReorderFilter,
    ReorderFilterAndBias,
    ScaleTensor,
    SetDropoutStates,
    SetTensor,
)
from dualdnn.api.operations.specs import FLOAT, HALF, NHWC, TensorSpec
from dualdnn.api.status import BAD_PARAM, INVALID_VALUE
from dualdnn.conformance.calls import sized
from dualdnn.conformance.cases import (
    activation,
    dropout,
    reduce_tensor,
    softmax,
    spatial_transformer,
    tensor_arithmetic,
    transform,
)
from dualdnn.conformance.cases.attention import attention_backward, attention_forward
from dualdnn.conformance.cases.convolution import (
    convolution,
    convolution_backward_data,
    convolution_backward_filter,
    convolution_bias_activation,
    convolution_filters,
    convolution_gradients,
)
from dualdnn.conformance.cases.ctc import ctc_loss
from dualdnn.conformance.cases.fused_ops import fused_ops_convolution, fused_ops_finalize, fused_ops_residual
from dualdnn.conformance.cases.graph import graph
from dualdnn.conformance.cases.normalization import (
    normalization_batch,
    normalization_batch_fused,
    normalization_batch_training,
    normalization_divisive,
    normalization_lrn,
)
from dualdnn.conformance.cases.pooling import pooling
from dualdnn.conformance.cases.rnn import rnn_backward, rnn_forward
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import POISON, prepare
from dualdnn.reference import implemented, judge
from dualdnn.reference.precision import PRECISION
from dualdnn.reference.view import NUMPY_TYPES

DIMS = (2, 3, 5, 7)
PLAIN = TensorSpec.packed(FLOAT, DIMS)
MAXIMUM = cudnnPoolingMode_t.CUDNN_POOLING_MAX
AVERAGE = cudnnPoolingMode_t.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
FILTERS, BIAS = convolution_filters.filters(32, 32, 1, 1), convolution_filters.bias(32)
REORDER = convolution_filters.REORDER
SAMPLES: dict[str, Operation] = {
    "ActivationForward": activation.forward(x=PLAIN, beta=0.5),
    "ActivationBackward": activation.backward(spec=PLAIN, beta=0.5),
    "SoftmaxForward": softmax.forward(x=PLAIN, beta=0.5),
    "SoftmaxBackward": softmax.backward(spec=PLAIN, beta=0.5),
    "PoolingForward": pooling.forward(MAXIMUM, beta=0.5),
    "PoolingForward-average": pooling.forward(AVERAGE),
    "PoolingBackward": pooling.backward(MAXIMUM, beta=0.5),
    "LRNCrossChannelForward": normalization_lrn.forward(beta=0.5),
    "LRNCrossChannelBackward": normalization_lrn.backward(beta=0.5),
    "DivisiveNormalizationForward": normalization_divisive.forward(beta=0.5),
    "DivisiveNormalizationBackward": normalization_divisive.backward(beta=0.5),
    "BatchNormalizationForwardInference": normalization_batch.inference(beta=0.5),
    "BatchNormalizationForwardTraining": normalization_batch_training.forward(beta=0.5),
    "BatchNormalizationBackward": normalization_batch_training.backward(data=(1.0, 0.5), parameters=(1.0, 0.5)),
    "BatchNormalizationBackward-from-x": normalization_batch_training.backward(saved=False),
    "BatchNormalizationForwardTrainingEx": normalization_batch_fused.forward(beta=0.5),
    "BatchNormalizationBackwardEx": normalization_batch_fused.backward(ops=normalization_batch_fused.ACTIVATED, saved=False),
    "NormalizationForwardTraining": normalization_batch_fused.forward(beta=0.5, generation="norm"),
    "NormalizationBackward": normalization_batch_fused.backward(
        ops=normalization_batch_fused.ACTIVATED, saved=False, generation="norm"
    ),
    "NormalizationForwardInference": normalization_batch.inference(beta=0.5, generation="norm"),
    "AddTensor": AddTensor(1.5, 0.5, TensorSpec.packed(FLOAT, (1, 3, 1, 1)), PLAIN),
    "OpTensor": tensor_arithmetic.op_tensor(A=PLAIN, beta=0.5),
    "ScaleTensor": ScaleTensor(0.75, PLAIN),
    "SetTensor": SetTensor(0.75, PLAIN),
    "TransformTensor": transform.moved(PLAIN, TensorSpec.packed(FLOAT, DIMS, NHWC), 1.5, 0.5),
    "TransformTensorEx": transform.applied(transform.changing(before=(0, 0, 1, 1)), DIMS),
    "TransformTensorEx-types": transform.applied(transform.changing(tensor_format=NHWC), DIMS, HALF, into=FLOAT, alpha=1.5, beta=0.5),
    "TransformFilter": transform.applied(transform.changing(tensor_format=NHWC), DIMS, filters=True, alpha=1.5, beta=0.5),
    "OperationGraph": graph.sample(),
    "ReduceTensor": reduce_tensor.reduction(A=PLAIN, beta=0.5),
    "ReduceTensor-indices": reduce_tensor.reduction(reduce_tensor.MAX, A=PLAIN, indices=True),
    "ReduceTensor-workspace": reduce_tensor.reduction(A=TensorSpec.packed(FLOAT, (2, 3, 90, 110)), C=TensorSpec.packed(FLOAT, (1, 1, 1, 1))),
    "RNNForward": rnn_forward.forward(rnn_forward.network(projected=3), fill=0.5),
    "RNNBackwardData": rnn_backward.training(rnn_forward.network(projected=3), fill=0.5)[1],
    "RNNBackwardWeights": rnn_backward.training(rnn_forward.network(rnn_forward.GRU))[2],
    "RNNForward-inference": rnn_forward.forward(rnn_forward.network(rnn_forward.GRU), training=False),
    "ConvolutionForward": convolution.convolution(beta=0.5),
    **{
        f"ConvolutionForward-{algo.name.removeprefix('CUDNN_CONVOLUTION_FWD_ALGO_')}": convolution.convolution(algo=algo)
        for algo in (convolution.PRECOMP, convolution.GEMM, convolution.FFT, convolution.FFT_TILING, convolution.NONFUSED)
    },
    "ConvolutionForward-half": convolution.convolution(configuration="PSEUDO_HALF", formats=NHWC, algo=convolution.PRECOMP),
    "ConvolutionBiasActivationForward": convolution_bias_activation.fused(alpha2=0.5),
    "ConvolutionBackwardData": convolution_backward_data.gradient(beta=0.5),
    "ConvolutionBackwardData-0": convolution_backward_data.gradient(algo=convolution_backward_data.ALGO_0),
    "ConvolutionBackwardFilter": convolution_backward_filter.gradient(beta=0.5),
    "ConvolutionBackwardFilter-0": convolution_backward_filter.gradient(algo=convolution_backward_filter.ALGO_0),
    "ConvolutionBackwardBias": convolution_gradients.bias_gradient(beta=0.5),
    "SpatialTfGridGeneratorForward": spatial_transformer.grid_forward(),
    "SpatialTfGridGeneratorBackward": spatial_transformer.grid_backward(),
    "SpatialTfSamplerForward": spatial_transformer.forward(beta=0.5),
    "SpatialTfSamplerBackward": spatial_transformer.backward(betas=(0.5, -0.5)),
    "BnFinalizeStatisticsTraining": fused_ops_finalize.training(channels=5),
    "BnFinalizeStatisticsInference": fused_ops_finalize.inference(channels=5),
    "ScaleBiasAddActivationGenBitmask": fused_ops_residual.added(dims=DIMS),
    "ScaleBiasActivationConvBnstats": fused_ops_convolution.statistics(),
    "ScaleBiasActivationWgrad": fused_ops_convolution.filter_gradient(),
    "ConvScaleBiasAddActivation": fused_ops_convolution.added(),
    "DactivationForkDbatchnorm": fused_ops_residual.gradient(dims=DIMS),
    "SetDropoutStates": SetDropoutStates(dropout.SEED),
    "DropoutForward": dropout.forward(x=PLAIN),
    "DropoutBackward": dropout.backward(dy=PLAIN),
    **dict(zip(("MultiHeadAttnTraining", "MultiHeadAttnBackwardData", "MultiHeadAttnBackwardWeights"), attention_backward.steps(
        attn=attention_forward.attention((2, 2, 2, 5), mode=0), batches=3, lengths=None), strict=True)),
    "MultiHeadAttnForward": attention_forward.forward(attention_forward.attention((2, 2, 2, 5)), batches=3, lengths=None, residuals=True, trains=True),
    "MultiHeadAttnStep": attention_forward.forward(attention_forward.attention((2, 2, 2, 5)), batches=3, lengths=None, current=2),
    "Im2Col": convolution_filters.im2col(),
    "CTCLoss": ctc_loss.host(),
    "CTCLoss_v8": ctc_loss.device(),
    "ReorderFilter": ReorderFilter(REORDER, FILTERS, FILTERS),
    "ReorderFilterAndBias": ReorderFilterAndBias(REORDER, FILTERS, FILTERS, BIAS, BIAS),
}  # fmt: skip
ATTENTION_OPERANDS = (
    "devSeqLengthsQO", "devSeqLengthsKV", "queries", "residuals", "keys", "values", "out", "weights", "workSpace",
)  # fmt: skip
# Each operand of a call has the clause that memory which is wrong in itself violates, where the section names one.
WRONG_MEMORY = {
    "MultiHeadAttnTraining": dict.fromkeys(ATTENTION_OPERANDS, "cudnnMultiHeadAttnForward/c34"),
    "MultiHeadAttnBackwardData": {"*": "cudnnMultiHeadAttnBackwardData/c23"},
    "MultiHeadAttnBackwardWeights": {"*": "cudnnMultiHeadAttnBackwardWeights/c14"},
    "RNNBackwardData": {
        "y": "cudnnRNNBackwardData_v8/c30",
        "dy": "cudnnRNNBackwardData_v8/c30",
        "dx": "cudnnRNNBackwardData_v8/c07",
    },
    "MultiHeadAttnForward": dict.fromkeys(ATTENTION_OPERANDS, "cudnnMultiHeadAttnForward/c34"),
    "MultiHeadAttnStep": dict.fromkeys(ATTENTION_OPERANDS, "cudnnMultiHeadAttnForward/c34"),
    "SetTensor": {"*": "cudnnSetTensor/c07"},
    "ScaleTensor": {"*": "cudnnScaleTensor/c06"},
    "ConvolutionForward": {"*": "cudnnConvolutionForward/c46", "workSpace": "cudnnConvolutionForward/c05"},
    "ConvolutionBiasActivationForward": {"*": "cudnnConvolutionBiasActivationForward/c26"},
    "ConvolutionBackwardData": {
        "*": "cudnnConvolutionBackwardData/c22",
        "workSpace": "cudnnConvolutionBackwardData/c03",
    },
    "ConvolutionBackwardFilter": {
        "*": "cudnnConvolutionBackwardFilter/c40",
        "workSpace": "cudnnConvolutionBackwardFilter/c05",
    },
    "Im2Col": {"*": "cudnnIm2Col/c07"},
    "SpatialTfGridGeneratorForward": {
        "grid": "cudnnSpatialTfGridGeneratorForward/c08",
        "theta": "cudnnSpatialTfGridGeneratorForward/c09",
    },
    "SpatialTfGridGeneratorBackward": {"*": "cudnnSpatialTfGridGeneratorBackward/c05"},
    "SpatialTfSamplerForward": dict.fromkeys(("x", "y", "grid"), "cudnnSpatialTfSamplerForward/c08"),
    "SpatialTfSamplerBackward": dict.fromkeys(("x", "dx", "dy", "grid", "dgrid"), "cudnnSpatialTfSamplerBackward/c08"),
    "OperationGraph": {"*": "cudnnBackendExecute/c07"},
    "LRNCrossChannelForward": dict.fromkeys(("x", "y"), "cudnnLRNCrossChannelForward/c13"),
    "LRNCrossChannelBackward": dict.fromkeys(("x", "y"), "cudnnLRNCrossChannelBackward/c10"),
    "BatchNormalizationForwardInference": {"*": "cudnnBatchNormalizationForwardInference/c22"},
    "BatchNormalizationForwardTraining": dict.fromkeys(
        ("x", "y", "scale", "bias", "alpha", "beta"), "cudnnBatchNormalizationForwardTraining/c31"
    ),
    "BatchNormalizationBackward": dict.fromkeys(
        ("x", "dy", "dx", "scale", "dScale", "dBias"), "cudnnBatchNormalizationBackward/c23"
    ),
    "BatchNormalizationForwardTrainingEx": dict.fromkeys(
        ("x", "y", "scale", "bias", "alpha", "beta"), "cudnnBatchNormalizationForwardTrainingEx/c45"
    ),
    "BatchNormalizationBackwardEx": dict.fromkeys(
        ("x", "dy", "dx", "scale", "dScale", "dBias"), "cudnnBatchNormalizationBackwardEx/c44"
    ),
    "NormalizationForwardTraining": dict.fromkeys(
        ("x", "y", "scale", "bias", "alpha", "beta"), "cudnnNormalizationForwardTraining/c39"
    ),
    "NormalizationBackward": dict.fromkeys(
        ("x", "dy", "dx", "scale", "dScale", "dBias"), "cudnnNormalizationBackward/c39"
    ),
    "NormalizationForwardInference": {"*": "cudnnNormalizationForwardInference/c24"},
    "DivisiveNormalizationForward": {
        **dict.fromkeys(("x", "y", "temp", "temp2"), "cudnnDivisiveNormalizationForward/c19"),
        **dict.fromkeys(("alpha", "beta"), "cudnnDivisiveNormalizationForward/c23"),
    },
    "DivisiveNormalizationBackward": {
        **dict.fromkeys(("x", "dx", "dy", "temp", "temp2"), "cudnnDivisiveNormalizationBackward/c13"),
        **dict.fromkeys(("alpha", "beta"), "cudnnDivisiveNormalizationBackward/c15"),
    },
}
# The results of these calls follow from what an earlier call left in the reserve space. Here it holds noise, so no
# results are compared.
CONTINUED = ("RNNBackwardData", "RNNBackwardWeights")
# Each call has two operands that may be the same memory, and the clause of any other overlap.
SHARED_MEMORY = {
    "ActivationForward": ({"x", "y"}, "cudnnActivationForward/c16"),
    "ActivationBackward": ({"dy", "dx"}, "cudnnActivationBackward/c11"),
    "SoftmaxBackward": ({"dy", "dx"}, "cudnnSoftmaxBackward/c03"),
    "ConvolutionBiasActivationForward": ({"z", "y"}, "cudnnConvolutionBiasActivationForward/c05"),
    "DropoutForward": ({"x", "y"}, "cudnnDropoutForward/c13"),
    "DropoutBackward": ({"dy", "dx"}, "cudnnDropoutBackward/c10"),
    "DivisiveNormalizationForward": ({"x", "y"}, "cudnnDivisiveNormalizationForward/c22"),
    "TransformTensor": ({"x", "y"}, "cudnnTransformTensor/c03"),
    "TransformTensorEx": ({"srcData", "destData"}, "cudnnTransformTensorEx/c05"),
    "TransformFilter": ({"srcData", "destData"}, "cudnnTransformFilter/c05"),
}
RAW_STEPS = {
    "indices": 4,
    "temp": 4,
    "temp2": 4,
    "labels": 4,
    "states": 4,
}  # bytes of an element, for memory without a descriptor
ATTENTION_STEP = 16  # bytes, alignment of work and reserve space (7.2.15)
STEP = 8  # bytes; a multiple of every element's size
# Padding allows only the factors 1 and 0, and the error bound of a long sum may reach zero.
UNSCALED = ("TransformTensorEx", "ReduceTensor-workspace")
# Infinities leave most of these outputs undetermined, few elements are nonzero, or an earlier call's results are read.
# Attention has its own cases.
MOSTLY_OPEN = (
    "ConvolutionForward-FFT", "ConvolutionForward-WINOGRAD", "ScaleBiasActivationConvBnstats", "RNN", "MultiHeadAttn", "Dropout", "CTC",
)  # fmt: skip
samples = pytest.mark.parametrize("sample", SAMPLES)


class ReadOnly:
    """Offers device memory as read-only, by the CUDA array interface."""

    def __init__(self, part: Any, nbytes: int) -> None:
        self.part = part
        self.__cuda_array_interface__ = {
            "version": 3, "data": (part.address, True), "typestr": "|u1", "shape": (nbytes,),
        }  # fmt: skip


def read_only(part: Any, nbytes: int) -> Any:
    """Return a read-only view of the memory."""
    if not isinstance(getattr(part, "array", None), np.ndarray):
        return ReadOnly(part, nbytes)
    view = part.array.view()
    view.flags.writeable = False
    return view


def ready(caller: Any, sample: str) -> Operation:
    """Return the sample with the workspace that the subject asks for."""
    return sized(caller, SAMPLES[sample])


def clause_of(sample: str, operand: str) -> str:
    """Return the clause that wrong memory of this operand violates."""
    declared = WRONG_MEMORY.get(sample.split("-")[0], {})
    return declared.get(operand, declared.get("*", "cudnnStatus_t/c05"))


def placed(caller: Any, memory: Mapping[str, Any], offsets: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (buffers, operands): each operand is at its offset in its own aligned buffer."""
    buffers = {
        name: caller.handle.to_device(np.append(np.full(offsets.get(name, 0), POISON, np.uint8), content))
        for name, content in memory.items()
    }
    return buffers, {name: buffer.slice(offsets.get(name, 0), memory[name].size) for name, buffer in buffers.items()}


def present(operation: Operation) -> tuple[dict[str, Any], dict[str, None]]:
    """Return (memory, absent): seeded contents of the operands, and NULL for operands without memory."""
    memory = {name: content for name, content in prepare(operation, "normal", 0).items() if content.size}
    return memory, dict.fromkeys(set(operation.operands) - set(memory))


def element_bytes(operation: Operation, name: str) -> int:
    """Return the alignment of an operand in bytes, which is its element's; workspaces have no alignment."""
    if name in RAW_STEPS:
        return RAW_STEPS[name]
    if hasattr(operation, "attn") and name in ("workSpace", "reserveSpace"):
        return ATTENTION_STEP
    described = getattr(operation, operation.raw[name]) if name in operation.raw else operation.tensor(name)
    return NUMPY_TYPES[described.scalar_type].itemsize if isinstance(described, TensorSpec) else 1


def test_there_is_a_sample_of_every_operation():
    assert {type(operation) for operation in SAMPLES.values()} == set(implemented())


@shows("cudnnStatus_t/c05")
@samples
def test_what_is_written_is_not_read_only(subject, caller, refuses, sample):
    """Read-only outputs, indices and workspaces are refused; the same memory serves the inputs."""
    if not subject.is_python:
        pytest.skip("C has no memory that is known to be read-only")
    operation = ready(caller, sample)
    memory = prepare(operation, "normal", 0)
    written = {*operation.outputs, *operation.raw}
    for name in (name for name in written if name in memory and memory[name].size):
        buffers, operands = placed(caller, memory, {})
        operands[name] = read_only(operands[name], memory[name].size)
        refuses(BAD_PARAM, clause_of(sample, name), caller, operation, operands, unchanged=tuple(buffers.values()))
    buffers, operands = placed(caller, memory, {})
    for name in operands.keys() - written:
        operands[name] = read_only(operands[name], memory[name].size)
    caller(operation, operands)
    after = {name: buffer.to_host(np.uint8, buffer.nbytes) for name, buffer in buffers.items()}
    assert sample in CONTINUED or judge(operation, memory, after).agrees


@shows("cudnnStatus_t/c05")
@samples
def test_operands_begin_at_elements(subject, caller, refuses, sample):
    """Any address aligned to an element is accepted, and every other refused; workspaces begin anywhere."""
    if not subject.cites_clauses:
        pytest.skip("the document names no alignment, and a fault on a GPU ends the process's work there")
    operation = ready(caller, sample)
    memory, absent = present(operation)
    for shifted in memory:
        step = element_bytes(operation, shifted)
        buffers, operands = placed(caller, memory, {shifted: step})
        caller(operation, {**operands, **absent})
        after = {
            name: buffer.to_host(np.uint8, buffer.nbytes)[-memory[name].size :] for name, buffer in buffers.items()
        }
        verdict = judge(operation, memory, after)
        assert sample in CONTINUED or verdict.agrees, f"{shifted} at a multiple of {step}: {verdict.explanation()}"
        if step > 1:
            buffers, operands = placed(caller, memory, {shifted: 1})
            unchanged = tuple(buffers.values())
            refuses(
                BAD_PARAM, clause_of(sample, shifted), caller, operation, {**operands, **absent}, unchanged=unchanged
            )


@shows("cudnnStatus_t/c05")
@samples
def test_outputs_share_no_part_of_another_operand(subject, caller, refuses, sample):
    """An output that overlaps part of another operand is refused; adjacent operands in one buffer are right."""
    if not subject.cites_clauses:
        pytest.skip("what a foreign library makes of shared memory is not determined")
    operation = ready(caller, sample)
    memory, absent = present(operation)
    pair, clause = SHARED_MEMORY.get(sample.split("-")[0], (set(), ""))
    for output in sorted(memory.keys() & set(operation.outputs)):
        for other in memory.keys() - {output}:
            if operation.min_bytes(other) < memory[other].size:
                continue  # Its contents decide how much is read, and the host does not read them.
            first, last = memory[other].size, memory[output].size
            step = max(STEP, operation.alignment(output))
            for start in {step, (first - 1) // step * step}:
                if start >= first:
                    continue  # These two do not overlap.
                joint = caller.handle.to_device(np.resize(memory[other], first + last))
                _, operands = placed(caller, memory, {})
                operands[other], operands[output] = joint.slice(0, first), joint.slice(start, last)
                expected = clause if {output, other} == pair else "cudnnStatus_t/c05"
                refuses(BAD_PARAM, expected, caller, operation, {**operands, **absent}, unchanged=(joint,))
    starts, size = {}, 0
    for name, content in memory.items():
        starts[name] = size
        size += -(-content.size // 16) * 16
    before = np.zeros(size, np.uint8)
    for name, start in starts.items():
        before[start : start + memory[name].size] = memory[name]
    joint = caller.handle.to_device(before)
    caller(operation, {name: joint.slice(start, memory[name].size) for name, start in starts.items()} | absent)
    now = joint.to_host(np.uint8, joint.nbytes)
    after = {name: now[start : start + memory[name].size] for name, start in starts.items()}
    assert sample in CONTINUED or judge(operation, memory, after).agrees


@shows("cudnnStatus_t/c05")
@samples
def test_factors_are_real_numbers(subject, caller, refuses, sample):
    """A complex factor is refused, also right after a call with the real number that it equals."""
    if not subject.is_python:
        pytest.skip("C has no types of numbers at run time")
    operation = ready(caller, sample)
    factors = [name for name in ("alpha", "alpha1", "alpha2", "beta", "value") if hasattr(operation, name)]
    memory = prepare(operation, "normal", 0)
    buffers, operands = placed(caller, memory, {})
    caller(operation, operands)
    for name in factors:
        value = getattr(operation, name)
        for wrong in (complex(value), np.complex64(value), np.complex128(value + 1j), "1", np.array("1")):
            refused = replace(operation, **{name: wrong})
            clause = clause_of(sample, name)
            refuses(BAD_PARAM, clause, caller, refused, operands, unchanged=tuple(buffers.values()))


@pytest.mark.parametrize("sample", [name for name in SAMPLES if name not in UNSCALED])
@pytest.mark.parametrize("inputs", ["normal", "ties"])
def test_infinite_factors(trial, caller, sample, inputs):
    """An infinite factor multiplies as in IEEE 754 wherever the result is determined (docs/errata.md, D031)."""
    operation: Any = ready(caller, sample)
    for name in ("alpha", "beta"):
        for value in (np.inf, -np.inf):
            if hasattr(operation, name):
                trial(replace(operation, **{name: value}), inputs)


@pytest.mark.parametrize("sample", [name for name in SAMPLES if not name.startswith(MOSTLY_OPEN)])
def test_infinite_operands(trial, caller, sample):
    """Infinities in an operand give the formula's result, unless it depends on an undocumented order of products."""
    operation = ready(caller, sample)
    for name in operation.inputs:
        if operation.has(name) and name not in operation.raw and operation.tensor(name).scalar_type in PRECISION:
            trial(operation, {**dict.fromkeys(operation.operands, "positive"), name: "infinite"})


# Each operand of a call has the clause of memory that is too small, where the section has one.
SHORT = {
    "ReduceTensor": {"workspace": "cudnnReduceTensor/c31", "indices": "cudnnReduceTensor/c30"},
    "RNNForward": dict.fromkeys(("weightSpace", "workSpace", "reserveSpace"), "cudnnRNNForward/c46"),
    "RNNBackwardData": dict.fromkeys(("weightSpace", "workSpace", "reserveSpace"), "cudnnRNNBackwardData_v8/c54"),
    "RNNBackwardWeights": dict.fromkeys(
        ("dweightSpace", "workSpace", "reserveSpace"), "cudnnRNNBackwardWeights_v8/c24"
    ),
    "ConvolutionForward": {"workSpace": "cudnnConvolutionForward/c06"},
    "ConvolutionBiasActivationForward": {"workSpace": "cudnnConvolutionBiasActivationForward/c09"},
    "ConvolutionBackwardData": {"workSpace": "cudnnConvolutionBackwardData/c03"},
    "ConvolutionBackwardFilter": {"workSpace": "cudnnConvolutionBackwardFilter/c06"},
    "DropoutForward": {"reserveSpace": "cudnnDropoutForward/c14"},
    "DropoutBackward": {"reserveSpace": "cudnnDropoutBackward/c11"},
    "CTCLoss": {"workspace": "cudnnCTCLoss/c16"},
    "CTCLoss_v8": {"workspace": "cudnnCTCLoss_v8/c18"},
}


@shows("cudnnStatus_t/c05", *(clause for clauses in SHORT.values() for clause in clauses.values()))
@samples
def test_memory_that_is_short_by_a_byte(subject, caller, refuses, sample):
    """Memory of an operand that is a byte too short is refused, and all memory stays as it was."""
    if not subject.knows_sizes:
        pytest.skip("a foreign library cannot know the sizes of buffers")
    operation = ready(caller, sample)
    memory, absent = present(operation)
    for name in (name for name in memory if operation.min_bytes(name)):
        buffers, operands = placed(caller, memory, {})
        operands[name] = caller.handle.to_device(memory[name][: operation.min_bytes(name) - 1])
        clause = SHORT.get(sample.split("-")[0], {}).get(name, "cudnnStatus_t/c05")
        status = INVALID_VALUE if clause.startswith("cudnnReduceTensor/") else BAD_PARAM
        refuses(status, clause, caller, operation, {**operands, **absent}, unchanged=tuple(buffers.values()))


ODD = 1 + 2.0**-12  # TF32 rounds this number to 1.
SIZES: dict[str, Any] = {"padding": (0, 0), "formats": NHWC}
# Each name has (operation, products of a sum), on tensor cores where the math type lets them round.
PRODUCTS: dict[str, tuple[Any, int]] = {
    "forward": (convolution.convolution((2, 32, 8, 8), (64, 32, 1, 1), algo=convolution.PRECOMP, **SIZES), 32),
    "data": (convolution_backward_data.gradient((2, 64, 8, 8), (32, 64, 1, 1), **SIZES), 32),
    "filter": (convolution_backward_filter.gradient((2, 32, 8, 8), (64, 32, 1, 1), **SIZES), 128),
}


@shows("cudnnMathType_t/c03 c04")
@pytest.mark.parametrize("override", [False, True], ids=["FMA", "override"])
@pytest.mark.parametrize("which", PRODUCTS)
def test_factors_keep_their_bits(subject, caller, monkeypatch, which, override):
    """CUDNN_FMA_MATH rounds no factor to TF32, and NVIDIA_TF32_OVERRIDE=0 forbids it for all math types.

    Sums of few numbers are exact.
    """
    operation, count = PRODUCTS[which]
    if override:
        if not subject.is_python:
            pytest.skip("a foreign library reads its environment when it is loaded")
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
        operation = replace(operation, convolution=replace(operation.convolution, math_type=convolution.DEFAULT))
    operation = sized(caller, operation)
    first, second = operation.inputs
    (output,) = operation.outputs
    for odd in (first, second):
        memory = {
            name: caller.handle.to_device(np.full(operation.nbytes(name) // 4, ODD if name == odd else 1, np.float32))
            for name in (first, second, output)
        }
        memory["workSpace"] = caller.handle.allocate(operation.workspace_bytes) if operation.workspace_bytes else None
        caller(operation, memory)
        found = memory[output].to_host(np.float32, operation.nbytes(output) // 4)
        assert np.array_equal(found, np.full(found.size, count * ODD, np.float32))
