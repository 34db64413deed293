"""Judge recorded one-node graphs of NVIDIA's library, and execute them again on both backends."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from dualdnn.accelerated import AcceleratedBackend
from dualdnn.api.enumerations import cudnnConvolutionMode_t, cudnnDataType_t, cudnnPointwiseMode_t, cudnnTensorFormat_t
from dualdnn.api.operations import OperationGraph
from dualdnn.api.operations.graph import (
    ConvolutionBackwardDataNode,
    ConvolutionForwardNode,
    GraphConvolution,
    GraphTensor,
    PointwiseNode,
)
from dualdnn.api.operations.specs import SCALAR_BYTES, FilterSpec
from dualdnn.conformance.cases.graph.graph import settings
from dualdnn.conformance.recorded import load_recording, packaged_recordings
from dualdnn.reference import judge, run

OUTPUT = {"fwd": "y", "bwdData": "x"}
LATER_MODES = ("IDENTITY",)  # The document does not have it.
APPROXIMATE = {
    "1087"
}  # Three of 384 values of its tanh in half are off by more than a float function and a rounding to half allow.


@cache
def records():
    path = next(path for path in packaged_recordings() if "convolution" in path.name)
    found = [r for r in load_recording(path).records if r.function == "cudnnBackendExecute" and r.arrays]
    return tuple(r for r in found if r.probe["params"]["mode"] not in LATER_MODES)


def tensor(uid, described):
    kind, dims = cudnnDataType_t[f"CUDNN_DATA_{described['dtype']}"], tuple(described["dims"])
    if "format" in described:
        strides = FilterSpec(kind, cudnnTensorFormat_t[f"CUDNN_TENSOR_{described['format']}"], dims).tensor.strides
    else:
        strides = tuple(described["strides"])
    return GraphTensor(uid, kind, dims, strides, SCALAR_BYTES[kind], 1, -1, False)


def graph(record):
    """Return the graph, its tensors' bytes before execution, and the output's bytes afterwards. Records fold groups into channels."""
    p, arrays = record.probe["params"], {name: np.array(value).view(np.uint8) for name, value in record.arrays.items()}
    names = [name for name in ("x", "w", "b", "y") if p.get(name)]
    tensors = {name: tensor(1 + i, p[name]) for i, name in enumerate(names)}
    if p["operation"] == "pointwise":
        node = PointwiseNode(
            settings(cudnnPointwiseMode_t[f"CUDNN_POINTWISE_{p['mode']}"]), p["alpha1"] or 1.0, p["alpha2"] or 1.0, tensors["x"], tensors.get("b"), tensors["y"],
        )  # fmt: skip
        output, result = "y", arrays["y"]
        arrays["y"] = np.full_like(result, 77)
    else:
        convolution = GraphConvolution(
            cudnnConvolutionMode_t[p["mode"]], cudnnDataType_t[f"CUDNN_DATA_{p['computeType']}"],
            *(tuple(p[name]) for name in ("prePadding", "postPadding", "stride", "dilation")),
        )  # fmt: skip
        x, w, y = tensors["x"], tensors["w"], tensors["y"]
        factors = (convolution, p["alpha"], p["beta"])
        node = ConvolutionForwardNode(*factors, x, w, y) if p["operation"] == "fwd" else ConvolutionBackwardDataNode(*factors, w, y, x)  # fmt: skip
        output, result = OUTPUT[p["operation"]], arrays["result"]
    before = {tensors[name].operand: arrays[name].copy() for name in names}
    return OperationGraph((node,), 0, 0, 0), before, {**before, tensors[output].operand: result.copy()}


def test_36_graphs_are_recorded():
    assert len(records()) == 36


@pytest.mark.parametrize("index", range(36))
def test_recorded_results_pass_the_judge(index):
    operation, before, after = graph(records()[index])
    verdict = judge(operation, before, after)
    assert verdict.agrees is (records()[index].id not in APPROXIMATE), f"{records()[index].id}: {verdict.explanation()}"


@pytest.mark.parametrize("index", range(36))
def test_results_of_both_backends_pass_the_judge(index):
    operation, before, _ = graph(records()[index])
    after = {name: content.copy() for name, content in before.items()}
    run(operation, after)
    assert judge(operation, before, after).agrees
    backend = AcceleratedBackend("emulated")
    operation = replace(operation, workspace_bytes=backend.workspace_bytes(operation))
    buffers = {name: backend.to_device(content) for name, content in before.items()}
    buffers["workspace"] = backend.allocate(max(1, operation.workspace_bytes))
    backend.plan(operation)([buffers.get(name) for name in operation.operands], None)
    after = {name: np.frombuffer(bytes(buffer.contents(buffer.nbytes)), np.uint8) for name, buffer in buffers.items()}
    verdict = judge(operation, before, after)
    assert verdict.agrees, verdict.explanation()
