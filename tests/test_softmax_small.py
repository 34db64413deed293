"""Softmax of small tensors: every way to share lines and columns gives what the judge expects."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.softmax import plan as softmax
from dualdnn.accelerated.softmax import small as softmax_small
from dualdnn.api.enumerations import cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t
from dualdnn.api.operations import SoftmaxBackward, SoftmaxForward
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.trial import prepare
from dualdnn.reference import judge

NUMBERS = {FLOAT: np.float32, HALF: np.float16, DOUBLE: np.float64}
H200 = SimpleNamespace(kind="gpu", architecture="sm_90", multiprocessors=132)


@pytest.fixture(scope="module")
def backend():
    return AcceleratedBackend("emulated")


def operation_of(backward, algorithm, data_type, dims, layout, beta, mode="INSTANCE"):
    tensor = laid_out(data_type, dims, layout)
    chosen = cudnnSoftmaxAlgorithm_t[f"CUDNN_SOFTMAX_{algorithm}"], cudnnSoftmaxMode_t[f"CUDNN_SOFTMAX_MODE_{mode}"]
    operation = SoftmaxBackward if backward else SoftmaxForward
    return operation(*chosen, 1.5, beta, tensor, tensor, *([tensor] * backward))


def choice_of(backend, operation):
    return softmax.Choice(
        operation, backend.device, f"softmax_{'backward' if len(operation.operands) == 3 else 'forward'}"
    )


def agrees(backend, operation, plan):
    """Of numbers whose exponentials overflow where no maximum is taken off."""
    memory = prepare(operation, "normal", 4)
    if operation.algorithm == cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_ACCURATE and "x" in memory:
        memory["x"].view(NUMBERS[operation.x.data_type])[:] += 800
    buffers = {name: backend.to_device(content) for name, content in memory.items()}
    plan([buffers[name] for name in operation.operands], backend.device.default_stream)
    backend.synchronize(None)
    output = operation.operands[-1]
    return judge(operation, memory, {output: buffers[output].to_host(np.uint8, operation.nbytes(output))})


@pytest.mark.parametrize("dims, layout", [
    ((2, 7, 9, 14), "gaps"), ((1, 48, 5, 4), "gaps"), ((2, 5, 8, 23), "odd"), ((1, 1021, 1, 1), "odd"), ((2, 5, 8, 16), "nchw"),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("algorithm, beta", [("ACCURATE", 0.0), ("LOG", 0.0), ("LOG", 0.5)])
@pytest.mark.parametrize("data_type", [FLOAT, HALF, DOUBLE], ids=lambda t: t.name.removeprefix("CUDNN_DATA_"))
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("each", [1, 2, 4, 8])
def test_every_element_of_a_line_has_a_thread(
    backend, monkeypatch, each, backward, data_type, algorithm, beta, dims, layout
):
    """A cluster is one block here."""
    kinds = softmax_small.EACH if each < 8 else (1,)  # so many only of single elements
    monkeypatch.setattr(softmax_small, "EACH", softmax_small.EACH | dict.fromkeys(kinds, (each,)))
    monkeypatch.setattr(softmax_small, "LEAST_LINE", 1)
    monkeypatch.setattr(softmax_small, "FEW_VALUES", 64)  # two blocks beside each other, whatever a thread has
    operation = operation_of(backward, algorithm, data_type, dims, layout, beta)
    plan = choice_of(backend, operation).few_lines()
    if each * softmax_small.MOST_THREADS < np.prod(dims[1:]) and layout != "nchw":
        assert plan is None
        return
    verdict = agrees(backend, operation, plan)
    assert verdict.agrees, verdict.worst


@pytest.mark.parametrize("dims, layout", [
    ((2, 7, 9, 14), "gaps"), ((3, 64, 5, 4), "nchw"), ((2, 67, 3, 5), "nchw"), ((1, 130, 2, 8), "nchw"),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("algorithm, beta", [("FAST", 0.0), ("ACCURATE", 0.0), ("ACCURATE", 0.5), ("LOG", 0.0)])
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=lambda t: t.name.removeprefix("CUDNN_DATA_"))
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("each", [(4, 8), (8,)], ids=str)
def test_every_element_of_a_column_has_a_thread(
    backend, monkeypatch, each, backward, data_type, algorithm, beta, dims, layout
):
    monkeypatch.setattr(softmax_small, "COLUMN_EACH", each)
    monkeypatch.setattr(softmax_small, "COLUMN_ELEMENTS", 10**6)
    operation = operation_of(backward, algorithm, data_type, dims, layout, beta, "CHANNEL")
    plan = choice_of(backend, operation).small_columns()
    verdict = agrees(backend, operation, plan)
    assert verdict.agrees, verdict.worst


@pytest.mark.parametrize("layout", ["gaps", "odd"])
def test_ways_hold_a_line_once(layout):
    tensor = laid_out(FLOAT, (8, 64, 14, 14), layout)
    ways = list(softmax_small.lines_of(tensor.dims[1:], [tensor.strides[1:]] * 2, 8, H200, softmax_small.EACH[1], 1))
    assert {way.blocks for way in ways} == {8, 16}
    for way in ways:
        along, offsets = way.along, []
        assert along.count <= way.blocks * way.threads and along.items <= way.each
        for share in range(along.count):
            rest, position = share, []
            for extent in along.extent:
                position.append(rest % extent.divisor)
                rest //= extent.divisor
            offset = sum(p * step for p, step in zip([*position, rest], along.step[0], strict=True))
            count = along.items - (rest + (along.items - 1) * along.apart >= along.limit)
            offsets += [offset + k * along.item_step[0] for k in range(count)]
        dims, strides = tensor.dims[1:], tensor.strides[1:]
        every = sum(np.ogrid[tuple(slice(d) for d in dims)][i] * strides[i] for i in range(3))
        assert sorted(offsets) == sorted(np.asarray(every).ravel().tolist())


@pytest.mark.parametrize("lines, packs, values, served", [
    (8, 1568, 8, True), (16, 12544, 16, True), (17, 12544, 16, False), (33, 12544, 8, True), (34, 12544, 8, False),
])  # fmt: skip
def test_lines_that_run_at_once(lines, packs, values, served):
    """Two blocks of a multiprocessor where threads have few values, else one."""
    ways = softmax_small.lines_of([packs], [[values]] * 2, lines, H200, (4,), values)
    assert any(way.blocks == 8 for way in ways) == served
