"""Holds cases of operands that are aligned, except one that begins an element, or half a pack, later.

Each operand takes its turn, by each solver that serves. A solver that asks for too little alignment accesses packs of
16 bytes at addresses that are no multiples of 16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnGenStatsMode_t, cudnnPoolingMode_t
from dualdnn.api.operations import Operation, PoolingBackward
from dualdnn.api.operations.specs import FLOAT, HALF, NCHW, NHWC, TensorSpec
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
    convolution_gradients,
)
from dualdnn.conformance.cases.every_operation import element_bytes
from dualdnn.conformance.cases.fused_ops import fused_ops_residual
from dualdnn.conformance.cases.graph import graph
from dualdnn.conformance.cases.normalization import (
    normalization_batch,
    normalization_batch_fused,
    normalization_batch_training,
    normalization_lrn,
)
from dualdnn.conformance.cases.pooling import pooling
from dualdnn.conformance.cases.rnn import rnn_backward, rnn_descriptors, rnn_forward
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import prepare

DIMS = (2, 8, 4, 8)
ROWS, CHANNELS = TensorSpec.packed(FLOAT, DIMS), TensorSpec.packed(HALF, DIMS, NHWC)
GAPS = TensorSpec(FLOAT, DIMS, (400, 48, 12, 1))
SIDE_BY_SIDE = TensorSpec.packed(HALF, (1, 32, 8, 8), NHWC)
MANY_CHANNELS = TensorSpec.packed(HALF, (2, 32, 2, 4), NHWC)
FEW_CHANNELS = TensorSpec.packed(FLOAT, (1, 3, 4, 8), NHWC)
HALF_A_PACK = 8  # bytes
LARGE = (8, 8, 32, 32)  # A chain of this size gets a kernel of its own.
BETWEEN = graph.tensor(4, LARGE, virtual=True)
MAXIMUM = cudnnPoolingMode_t.CUDNN_POOLING_MAX
AVERAGE = cudnnPoolingMode_t.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
WINDOWS = pooling.GEOMETRIES["2x2s2"]._replace(dims=DIMS)
PRODUCT: dict[str, Any] = {"configuration": "PSEUDO_HALF", "formats": NHWC}
ON_TENSOR_CORES: dict[str, Any] = PRODUCT | {"math_type": convolution_backward_data.DEFAULT}
OPERATIONS: dict[str, Operation] = {
    "activation": activation.forward(x=ROWS),
    "activation gradient": activation.backward(spec=CHANNELS),
    "dropout": dropout.forward(x=ROWS),
    "dropout gradient": dropout.backward(dy=CHANNELS),
    "dropout of many channels": dropout.forward(x=SIDE_BY_SIDE),
    **{
        f"{name} pooling in {layout}": pooling.forward(mode, WINDOWS, data_type, layout, layout)
        for name, mode in (("maximum", MAXIMUM), ("average", AVERAGE))
        for layout, data_type in (("nchw", FLOAT), ("nhwc", HALF))
    },
    **{
        f"gradient of {name} pooling in {layout}": pooling.backward(mode, WINDOWS, data_type, layout, layout)
        for name, mode in (("maximum", MAXIMUM), ("average", AVERAGE))
        for layout, data_type in (("nchw", FLOAT), ("nhwc", HALF))
    },
    "average of high windows": pooling.forward(AVERAGE, pooling.SIZES["high-windows"]._replace(dims=(1, 2, 20, 24))),
    "softmax": softmax.forward(x=ROWS, beta=0.5),
    "softmax gradient": softmax.backward(spec=CHANNELS),
    "tensors": tensor_arithmetic.op_tensor(A=ROWS, beta=0.5),
    "tensors with gaps of packs": tensor_arithmetic.op_tensor(A=GAPS, beta=0.5),
    "transposed": transform.moved(ROWS, TensorSpec.packed(FLOAT, DIMS, NHWC), 1.5, 0.5),
    "reduced": reduce_tensor.reduction(A=ROWS, C=TensorSpec.packed(FLOAT, (1, 8, 1, 1)), beta=0.5),
    "reduced by threads that share nothing": reduce_tensor.reduction(
        A=TensorSpec.packed(FLOAT, (3, 2, 16, 32)), C=TensorSpec.packed(FLOAT, (1, 2, 16, 32)), beta=0.5
    ),
    "LRN": normalization_lrn.forward(x=CHANNELS),
    "LRN gradient": normalization_lrn.backward(spec=ROWS),
    "inference": normalization_batch.inference(x=CHANNELS),
    "training": normalization_batch_training.forward(x=ROWS),
    "gradient": normalization_batch_training.backward(x=CHANNELS),
    "training with addends": normalization_batch_fused.forward(x=CHANNELS),
    "inference of planes": normalization_batch.inference(x=ROWS),
    "gradient of planes": normalization_batch_training.backward(x=ROWS),
    "training of many channels": normalization_batch_fused.forward(MANY_CHANNELS, normalization_batch_fused.ACTIVATED),
    "gradient of many channels": normalization_batch_training.backward(x=MANY_CHANNELS),
    **{
        f"LRN{which} of few channels in {layout.name}": call(TensorSpec.packed(FLOAT, (2, 3, 4, 8), layout))
        for which, call in (("", normalization_lrn.forward), (" gradient", normalization_lrn.backward))
        for layout in (NCHW, NHWC)
    },
    "bias gradient": convolution_gradients.bias_gradient(DIMS, FLOAT, "nchw"),
    "bias gradient of channels": convolution_gradients.bias_gradient(DIMS, HALF, "nhwc"),
    "addends": fused_ops_residual.added(HALF, "nhwc", DIMS),
    "gradient of addends": fused_ops_residual.gradient(HALF, "nhwc", DIMS),
    "convolution": convolution.convolution((1, 8, 4, 4), (8, 8, 1, 1), algo=convolution.PRECOMP, **PRODUCT),
    "data gradient": convolution_backward_data.gradient((1, 8, 4, 4), (8, 8, 1, 1), **PRODUCT),
    "convolution on tensor cores": convolution.convolution(
        (1, 16, 4, 4), (16, 16, 3, 3), algo=convolution.PRECOMP, padding=(1, 1), **ON_TENSOR_CORES
    ),
    "data gradient on tensor cores": convolution_backward_data.gradient(
        (1, 16, 4, 4), (16, 16, 3, 3), padding=(1, 1), **ON_TENSOR_CORES
    ),
    "data gradient of few channels": convolution_backward_data.gradient((1, 4, 6, 6), (16, 4, 3, 3), **ON_TENSOR_CORES),
    "filter gradient on tensor cores": convolution_backward_filter.gradient(
        (1, 16, 4, 4), (16, 16, 3, 3), padding=(1, 1), **ON_TENSOR_CORES
    ),
    "sampler": spatial_transformer.forward(HALF, DIMS, DIMS),
    "gradient of a sampler": spatial_transformer.backward(HALF, DIMS, DIMS),
    "sampler of channels": spatial_transformer.forward(FLOAT, (1, 3, 4, 8), x=FEW_CHANNELS, y=FEW_CHANNELS),
    "gradient of a sampler of channels": spatial_transformer.backward(
        HALF, MANY_CHANNELS.dims, x=MANY_CHANNELS, dy=MANY_CHANNELS
    ),
    "grids": spatial_transformer.grid_forward(FLOAT, (2, 1, 32, 34)),
    "gradient of grids": spatial_transformer.grid_backward(FLOAT, (2, 1, 32, 34)),
    "chain of a graph": graph.executed(
        graph.pointwise(graph.Mode.CUDNN_POINTWISE_ADD, graph.tensor(1, LARGE), BETWEEN, graph.tensor(2, LARGE)),
        graph.pointwise(graph.Mode.CUDNN_POINTWISE_RELU_FWD, BETWEEN, graph.tensor(3, LARGE)),
    ),
    "chain of a graph with its statistics": graph.executed(
        graph.pointwise(graph.Mode.CUDNN_POINTWISE_ADD, *(graph.tensor(i, LARGE, HALF) for i in (1, 3, 2))),
        graph.GenStatsNode(
            cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM,
            FLOAT,
            graph.tensor(3, LARGE, HALF),
            *(graph.tensor(i, (1, LARGE[1], 1, 1)) for i in (4, 5)),
        ),
    ),
    "depthwise convolution": convolution.convolution(
        (1, 8, 6, 6), (8, 1, 3, 3), algo=convolution.PRECOMP, padding=(1, 1), groups=8, **PRODUCT
    ),
    "filter gradient": convolution_backward_filter.gradient((1, 8, 4, 4), (8, 8, 1, 1), **PRODUCT),
}


@shows("cudnnStatus_t/c05")
@pytest.mark.ours
@pytest.mark.parametrize("name", OPERATIONS)
def test_one_operand_begins_at_an_element(trial, caller, name):
    operation = sized(caller, OPERATIONS[name])
    before = pooling.pooled(operation) if isinstance(operation, PoolingBackward) else None
    for operand in operation.operands:
        if operand not in operation.raw:
            for offset in {element_bytes(operation, operand), HALF_A_PACK}:
                trial(operation, before=before, offsets={operand: offset})


IN_SEVERAL_STEPS: dict[str, Operation] = {
    "Winograd": convolution.convolution(algo=convolution.NONFUSED),
    "FFT": convolution.convolution(algo=convolution.FFT),
    "data gradient by FFT": convolution_backward_data.gradient(algo=convolution_backward_data.FFT),
    "filter gradient by FFT": convolution_backward_filter.gradient(algo=convolution_backward_filter.FFT),
    "data gradient on tensor cores": OPERATIONS["data gradient of few channels"],
}


@pytest.mark.ours
@pytest.mark.parametrize("name", IN_SEVERAL_STEPS)
def test_one_operand_lies_elsewhere_than_before(caller, name):
    """The same call is right with another address and other contents for one operand, each in turn."""
    operation = sized(caller, IN_SEVERAL_STEPS[name])
    contents, others = (prepare(operation, "normal", seed) for seed in (0, 1))

    def called(memory: dict[str, Any]) -> list[bytes]:
        caller(operation, memory)
        return [bytes(memory[output].to_host(np.uint8, memory[output].nbytes)) for output in operation.outputs]

    memory = {operand: caller.handle.to_device(content) for operand, content in contents.items()}
    called(memory)
    for operand in contents:
        elsewhere = {**memory, operand: caller.handle.to_device(others[operand])}
        afresh = {name: caller.handle.to_device(content) for name, content in contents.items()}
        found = called(elsewhere)
        assert found == called({**afresh, operand: caller.handle.to_device(others[operand])}), operand
        called(memory)


WITH_A_MASK: dict[str, tuple[Operation, ...]] = {
    "dropout": (dropout.forward(x=SIDE_BY_SIDE), dropout.backward(dy=SIDE_BY_SIDE)),
    "normalization": (
        normalization_batch_fused.forward(MANY_CHANNELS),
        normalization_batch_fused.backward(MANY_CHANNELS),
    ),
}


@pytest.mark.ours
@pytest.mark.parametrize("name", WITH_A_MASK)
def test_reserve_space_begins_at_a_byte(chain, name):
    chain(*WITH_A_MASK[name], before=dropout.states() if name == "dropout" else None, offsets={"reserveSpace": 1})


NETWORK = rnn_forward.network(
    rnn_descriptors.LSTM, direction=rnn_descriptors.ONE_WAY, data_type=HALF, width=8, hidden=16,
    math_type=rnn_descriptors.DEFAULT,
)  # fmt: skip
TRAINED = rnn_backward.training(NETWORK, lengths=(2, 2))
ATTENTION = attention_forward.attention(
    (8, 8, 8, 8), (8, 8, 8), heads=2, mode=0, data_type=HALF, math=attention_forward.TENSOR
)
ATTENDED = attention_backward.steps(attn=ATTENTION)


@pytest.mark.ours
@pytest.mark.parametrize("operand", ["x", "weightSpace", "y", "dx", "dweightSpace"])
def test_one_operand_of_a_recurrent_network(chain, operand):
    chain(*TRAINED, offsets={operand: 2})


@pytest.mark.ours
@pytest.mark.parametrize("operand", ["queries", "keys", "values", "weights", "out", "dout", "dqueries", "dweights"])
def test_one_operand_of_attention(chain, operand):
    chain(*ATTENDED, offsets={operand: 2})


UNPROJECTED = attention_backward.steps(
    attn=attention_forward.attention((0, 0, 0, 0), (16, 16, 16), heads=2, mode=0, data_type=HALF)
)[:2]


@pytest.mark.ours
@pytest.mark.parametrize("operand", ["queries", "keys", "values", "dout"])
def test_one_operand_of_unprojected_attention(chain, operand):
    """Kernels that read an operand of unprojected attention in place accept any address."""
    chain(*UNPROJECTED, offsets={operand: 2})
