"""Test the reference of operation graphs against plain loops, adjoint identities and float arithmetic."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnPointwiseMode_t as Mode
from dualdnn.api.operations.graph import ConvolutionNode
from dualdnn.api.operations.specs import FLOAT, HALF, INT8
from dualdnn.conformance.cases.graph.graph import (
    FORMS,
    NODES,
    convolution,
    diamond,
    executed,
    operand,
    pointwise,
    settings,
    tensor,
)
from dualdnn.conformance.trial import prepare
from dualdnn.reference import evaluate
from dualdnn.reference.judge import judge
from dualdnn.reference.view import read


def computed(operation, seed=0):
    """Return (inputs by uid, outputs by uid) of the reference."""
    memory = prepare(operation, "normal", seed)
    inputs = {operation.tensors[n].uid: read(operation.tensor(n), memory[n]) for n in operation.inputs}
    return inputs, {operation.tensors[n].uid: exact.value for n, exact in evaluate(operation, memory).items()}


def loops(node: ConvolutionNode, x, w):
    """Return the response of a forward convolution by its definition."""
    settings, spatial, groups = node.convolution, node.convolution.rank, node.groups
    _image, window, response = node.bound
    x = x.reshape(x.shape[0], -1, *x.shape[-spatial:])
    w = w.reshape(groups, -1, *window.dims[-spatial - 1 :])
    y = np.zeros((x.shape[0], groups * w.shape[1], *response.dims[-spatial:]))
    if settings.mode == 0:
        w = np.flip(w, tuple(range(3, 3 + spatial)))
    for n, filter_, *at in product(*map(range, y.shape)):
        group, k = divmod(filter_, w.shape[1])
        for c, *tap in product(*map(range, w.shape[2:])):
            pixel = [
                a * s + t * d - p
                for a, s, t, d, p in zip(at, settings.stride, tap, settings.dilation, settings.pre_padding, strict=True)
            ]
            if all(0 <= p < size for p, size in zip(pixel, x.shape[2:], strict=True)):
                y[(n, filter_, *at)] += x[(n, group * w.shape[2] + c, *pixel)] * w[(group, k, c, *tap)]
    return y.reshape(response.dims)


def node_of(direction, form, alpha=1.0, beta=0.0):
    x, w, y, settings = FORMS[form]
    return NODES[direction](settings, tensor(1, x), tensor(2, w), tensor(3, y), alpha, beta)


@pytest.mark.parametrize("form", FORMS)
def test_convolutions_are_their_definition(form):
    node = node_of("forward", form)
    inputs, outputs = computed(executed(node))
    np.testing.assert_allclose(outputs[3], loops(node, inputs[1], inputs[2]), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_adjoint(form):
    """<conv(x, w), dy> equals <x, dx> and <w, dw> for independent random values."""
    inputs, outputs = computed(executed(node_of("data", form)))
    w, dy = inputs[2], inputs[3]
    x = np.random.default_rng(5).standard_normal(FORMS[form][0])
    forward = (loops(node_of("forward", form), x, w) * dy).sum()
    np.testing.assert_allclose((x * outputs[1]).sum(), forward, rtol=1e-10)
    inputs, outputs = computed(executed(node_of("filter", form)))
    w = np.random.default_rng(6).standard_normal(FORMS[form][1])
    forward = (loops(node_of("forward", form), inputs[1], w) * inputs[3]).sum()
    np.testing.assert_allclose((w * outputs[2]).sum(), forward, rtol=1e-10)


def test_alpha_and_beta():
    blended, plain = executed(node_of("forward", "flat", 0.5, -2.0)), executed(node_of("forward", "flat"))
    memory = prepare(blended, "normal", 0)
    prior = read(blended.tensor("tensor_3"), memory["tensor_3"])
    (value,) = (exact.value for exact in evaluate(blended, memory).values())
    (whole,) = (exact.value for exact in evaluate(plain, memory).values())
    np.testing.assert_allclose(value, 0.5 * whole - 2 * prior, rtol=1e-14, atol=1e-14)


FUNCTIONS = {
    Mode.CUDNN_POINTWISE_ADD: lambda x, b: x + b, Mode.CUDNN_POINTWISE_MUL: lambda x, b: x * b,
    Mode.CUDNN_POINTWISE_MIN: np.minimum, Mode.CUDNN_POINTWISE_MAX: np.maximum,
    Mode.CUDNN_POINTWISE_SQRT: lambda x, b: np.sqrt(np.abs(x)) + np.where(x < 0, np.nan, 0),
    Mode.CUDNN_POINTWISE_IDENTITY_FWD: lambda x, b: x, Mode.CUDNN_POINTWISE_RELU_FWD: lambda x, b: np.clip(x, -0.5, 0.75),
    Mode.CUDNN_POINTWISE_TANH_FWD: lambda x, b: (np.exp(x) - np.exp(-x)) / (np.exp(x) + np.exp(-x)),
    Mode.CUDNN_POINTWISE_SIGMOID_FWD: lambda x, b: np.exp(x) / (1 + np.exp(x)),
    Mode.CUDNN_POINTWISE_ELU_FWD: lambda x, b: np.where(x > 0, x, np.exp(x) - 1),
}  # fmt: skip


@pytest.mark.parametrize("mode", FUNCTIONS, ids=lambda m: m.name)
def test_pointwise_functions(mode):
    x = tensor(1, (3, 4, 5))
    node = pointwise(
        mode, x, tensor(3, (3, 4, 5)), operand(mode, x), 0.5, 2.0 if operand(mode, x) else 1.0, lower=-0.5, upper=0.75
    )
    inputs, outputs = computed(executed(node))
    wanted = FUNCTIONS[mode](0.5 * inputs[1], 2.0 * inputs.get(2, 0))
    np.testing.assert_allclose(outputs[3], wanted, rtol=1e-12, atol=1e-14)


def test_several_operations():
    inputs, outputs = computed(executed(*diamond()))
    x = inputs[1]
    left, right = np.tanh(x), 1 / (1 + np.exp(-2 * x))
    joined = np.maximum(left, right)
    np.testing.assert_allclose(outputs[3], right, rtol=1e-13)
    np.testing.assert_allclose(outputs[6], joined.sum((0, 2, 3), keepdims=True), rtol=1e-13)
    np.testing.assert_allclose(outputs[5], joined * (joined**2).sum((0, 2, 3), keepdims=True), rtol=1e-13)


def chain(between, length):
    """Return a chain of tanh nodes with virtual tensors of type ``between``."""
    tensors = [
        tensor(1, (4, 50)),
        *(tensor(2 + i, (4, 50), between, virtual=True) for i in range(length)),
        tensor(0, (4, 50)),
    ]
    return executed(*(pointwise(Mode.CUDNN_POINTWISE_TANH_FWD, a, b) for a, b in pairwise(tensors)))


@pytest.mark.parametrize("between", [FLOAT, HALF], ids=["float", "half"])
def test_bounds_add_up_and_stay_near(between):
    """Float arithmetic that rounds between operations stays within the bound; a slightly larger error does not."""
    operation = chain(between, 5)
    memory = prepare(operation, "normal", 1)
    value = read(operation.tensor("tensor_1"), memory["tensor_1"]).astype(np.float32)
    for _ in range(5):
        value = np.tanh(value).astype(np.float32 if between == FLOAT else np.float16).astype(np.float32)
    value = np.tanh(value)

    def agrees(result):
        after = {name: bytes_.copy() for name, bytes_ in memory.items()}
        after["tensor_0"][:] = np.frombuffer(result.astype(np.float32).tobytes(), np.uint8)
        return judge(operation, memory, after).agrees

    assert agrees(value)
    assert not agrees(value * (1 + (2e-4 if between == FLOAT else 5e-2)))


def test_roots_near_zero_are_not_determined():
    """x - x is zero or a rounding error of either sign, so its root may be a number, zero or NaN."""
    x, b, difference, y = tensor(1, (2, 8)), tensor(2, (2, 8)), tensor(3, (2, 8), virtual=True), tensor(4, (2, 8))
    operation = executed(
        pointwise(Mode.CUDNN_POINTWISE_MUL, x, tensor(5, (2, 8), virtual=True), b),
        pointwise(
            Mode.CUDNN_POINTWISE_ADD, tensor(5, (2, 8), virtual=True), difference, tensor(6, (2, 8)), alpha2=-1.0
        ),
        pointwise(Mode.CUDNN_POINTWISE_SQRT, difference, y),
    )
    memory = prepare(operation, "normal", 1)
    product_ = read(operation.tensor("tensor_1"), memory["tensor_1"]) * read(
        operation.tensor("tensor_2"), memory["tensor_2"]
    )
    memory["tensor_6"][:] = np.frombuffer(product_.astype(np.float32).tobytes(), np.uint8)
    after = {name: bytes_.copy() for name, bytes_ in memory.items()}
    after["tensor_4"][:] = np.frombuffer(np.full(16, np.nan, np.float32).tobytes(), np.uint8)
    assert judge(operation, memory, after).agrees


@pytest.mark.parametrize("first, alpha", [(np.inf, 1.0), (0.0, 0.0)])
def test_an_infinity_meets_a_product_that_overflows(first, alpha):
    """-1e30 * 1e20 overflows in float, and gives NaN with an infinity of x or y; -1e20 does not overflow."""
    x, w, y = tensor(1, (1, 2, 1, 2)), tensor(2, (1, 2, 1, 1)), tensor(3, (1, 1, 1, 2))
    operation = executed(NODES["forward"](convolution(), x, w, y, alpha, 1.0))
    memory = prepare(operation, "normal", 1)
    memory["tensor_1"][:] = np.array([first, first, -1e30, -1], np.float32).view(np.uint8)
    memory["tensor_2"][:] = np.array([1, 1e20], np.float32).view(np.uint8)
    memory["tensor_3"][:] = np.array([np.inf, np.inf], np.float32).view(np.uint8)

    def agrees(*result):
        return judge(operation, memory, memory | {"tensor_3": np.array(result, np.float32).view(np.uint8)}).agrees

    assert agrees(np.inf, np.inf) and agrees(np.nan, np.inf) and not agrees(np.inf, np.nan)


@pytest.mark.parametrize("mode", [Mode.CUDNN_POINTWISE_SQRT, Mode.CUDNN_POINTWISE_ADD, Mode.CUDNN_POINTWISE_MAX])
def test_integers_after_a_nan_are_not_determined(mode):
    """A NaN stored as INT8 has no determined value, so only the results of other elements are judged (D654)."""
    x, held, y = tensor(1, (1, 3, 2, 2)), tensor(2, (1, 3, 2, 2), INT8), tensor(3, (1, 3, 2, 2))
    other = x if settings(mode).has_two_inputs else None
    graph = executed(
        pointwise(Mode.CUDNN_POINTWISE_IDENTITY_FWD, x, held, alpha1=16.0), pointwise(mode, held, y, other)
    )
    memory = prepare(graph, "positive", 0)
    memory["tensor_1"].view(np.float32)[5] = np.nan
    open_ones = np.isinf(evaluate(graph, memory)["tensor_3"].magnitude).ravel()
    assert open_ones.tolist() == [i == 5 for i in range(12)]


def test_sums_beside_a_tie_become_either_integer():
    """0.5 + 2^-26 may be 0.5 in float, so INT8 holds 0 or 1. 0.5 + 0.25 becomes 1, unless an engine keeps 0.75."""
    x, b, held, y = tensor(1, (1, 2)), tensor(2, (1, 2)), tensor(3, (1, 2), INT8, virtual=True), tensor(4, (1, 2))
    sums = pointwise(Mode.CUDNN_POINTWISE_ADD, x, held, b)
    graph = executed(sums, pointwise(Mode.CUDNN_POINTWISE_IDENTITY_FWD, held, y))
    memory = prepare(graph, "positive", 0)
    memory["tensor_1"].view(np.float32)[:] = 0.5
    memory["tensor_2"].view(np.float32)[:] = 2.0**-26, 0.25

    def agrees(*result):
        return judge(graph, memory, memory | {"tensor_4": np.array(result, np.float32).view(np.uint8)}).agrees

    assert evaluate(graph, memory)["tensor_4"].value.tolist() == [[1, 1]]
    assert agrees(0, 1) and agrees(1, 1) and agrees(0.5, 0.75)
    assert not any(agrees(*wrong) for wrong in ((-1, 1), (1, 0), (1, 2), (1, 0.5)))
