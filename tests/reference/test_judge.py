"""Test that the judge and the trials catch what they must."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from dualdnn.api import cudnn
from dualdnn.api.enumerations import cudnnActivationMode_t as Mode
from dualdnn.api.enumerations import cudnnConvolutionBwdDataAlgo_t as DataAlgo
from dualdnn.api.enumerations import cudnnConvolutionBwdFilterAlgo_t as FilterAlgo
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as ForwardAlgo
from dualdnn.api.enumerations import cudnnMathType_t, cudnnPoolingMode_t
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.operations import (
    ActivationBackward,
    ActivationForward,
    ActivationSpec,
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionForward,
    FilterSpec,
    PoolingForward,
    PoolingSpec,
    TensorSpec,
    TransformTensor,
)
from dualdnn.api.operations.specs import FLOAT, HALF, INT8, NCHW
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.cases.convolution.convolution import convolution_spec
from dualdnn.conformance.trial import GUARD, attempt, prepare
from dualdnn.reference import judge, run
from dualdnn.reference.engine import EXPECTED_ASKED, Exact
from dualdnn.reference.judge import bounds


def operation(data_type=FLOAT, mode=Mode.CUDNN_ACTIVATION_TANH, beta=0.0, strides=(71, 22, 5, 1)) -> ActivationForward:
    x = TensorSpec.packed(data_type, (2, 3, 4, 5))
    y = TensorSpec(data_type, (2, 3, 4, 5), strides)
    return ActivationForward(ActivationSpec(mode, Nan.CUDNN_PROPAGATE_NAN, 1.0), 1.0, beta, x, y)


def computed(o: ActivationForward, inputs: str = "normal") -> tuple[dict, dict]:
    before = prepare(o, inputs, 1)
    after = {name: memory.copy() for name, memory in before.items()}
    run(o, after)
    return before, after


@pytest.mark.parametrize("data_type", [FLOAT, HALF, INT8], ids=lambda t: t.name)
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_correct_result_agrees(data_type, beta):
    verdict = judge(operation(data_type, beta=beta), *computed(operation(data_type, beta=beta)))
    assert verdict.agrees and not verdict.mistrusted and 0 < verdict.error_ratio <= 1


@pytest.mark.parametrize("given", [slice(1), slice(1, None), (0, 1, 1)], ids=str)
def test_parts_are_the_whole_output(monkeypatch, given):
    """A part of the exact result that is missing or doubled is an error, whatever the backend computed."""
    x, w = TensorSpec.packed(FLOAT, (1, 118, 2, 2)), FilterSpec(FLOAT, NCHW, (118, 1, 3, 3))
    o = ConvolutionForward(
        convolution_spec(2, FLOAT, groups=118),
        ForwardAlgo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
        0,
        1.0,
        0.0,
        x,
        w,
        x,
    )
    before, after = computed(o)
    assert judge(o, before, after).agrees
    module = import_module("dualdnn.reference.judge")
    results_of = module.results_of

    def some(*asked):
        def parts(memory):
            found = list(results_of(*asked)(memory))
            assert len(found) == 2
            return iter(found[given] if isinstance(given, slice) else [found[i] for i in given])

        return parts

    monkeypatch.setattr(module, "results_of", some)
    with pytest.raises(ValueError, match="instead of 472"):
        judge(o, before, after)


def test_a_failure_restores_the_setting_of_inputs():
    """A judge that raises must not leave its setting for inputs that are not random to the next call."""
    with pytest.raises(KeyError):
        judge(operation(), {}, {})
    assert EXPECTED_ASKED.get()


@pytest.mark.parametrize("data_type, dtype", [(FLOAT, np.float32), (HALF, np.float16)], ids=["FLOAT", "HALF"])
def test_a_few_units_in_the_last_place_are_too_many(data_type, dtype):
    o = operation(data_type)
    before, after = computed(o)
    elements = after["y"].view(dtype)
    for _ in range(16):
        elements[5] = np.nextafter(elements[5], dtype(9))
    verdict = judge(o, before, after)
    assert (
        verdict.wrong == 1
        and verdict.worst is not None
        and verdict.worst.index == (0, 0, 1, 0)
        and verdict.error_ratio > 1
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0])
def test_a_wrong_special_value_is_caught(value):
    o = operation()
    before, after = computed(o)
    after["y"].view(np.float32)[0] = value
    assert judge(o, before, after).wrong == 1


def test_wrong_elements_have_a_kind():
    """Each wrong element counts under the first kind that fits: unchanged, NaN, infinite, zero, or another number."""
    o = operation(strides=(60, 20, 5, 1))
    before, after = computed(o)
    prior, found = before["y"].view(np.float32), after["y"].view(np.float32)
    prior[:3] = np.nan, 7, 7
    found[:7] = np.nan, 7, np.nan, np.inf, -np.inf, 0, 9
    verdict = judge(o, before, after)
    assert verdict.kinds == {"y": {"as before the call": 2, "NaN": 1, "infinite": 2, "zero": 1, "other numbers": 1}}
    assert (
        "wrong elements: y: 2 as before the call, 1 NaN, 2 infinite, 1 zero, 1 other numbers" in verdict.explanation()
    )
    assert not judge(o, *computed(o)).kinds


def test_nan_must_be_where_it_belongs():
    o = operation()
    before, after = computed(o, "special")
    assert judge(o, before, after).agrees
    elements = after["y"].view(np.float32)
    nans = [i for i in range(5) if np.isnan(elements[i])] or np.flatnonzero(np.isnan(elements)).tolist()
    elements[nans[0]] = 1.0
    assert not judge(o, before, after).agrees


def test_writes_into_gaps_and_inputs_are_caught(monkeypatch):
    monkeypatch.setattr(import_module("dualdnn.reference.judge"), "COMPARED_BYTES", 64)
    o = operation()
    before, after = computed(o)
    after["y"][4 * 20] ^= 1  # the gap after the first channel
    assert "gaps" in judge(o, before, after).explanation()
    for byte in (3, -1):
        before, after = computed(o)
        after["x"][byte] ^= 1
        assert "input" in judge(o, before, after).explanation()


def test_zeros_prove_nothing():
    o = operation(mode=Mode.CUDNN_ACTIVATION_RELU)
    before = prepare(o, "normal", 1)
    before["x"].view(np.float32)[:] = -1
    after = {name: memory.copy() for name, memory in before.items()}
    run(o, after)
    verdict = judge(o, before, after)
    assert verdict.agrees and verdict.mistrusted


class Saboteur:
    """Call a subject, and damage what its forward call computes."""

    def __init__(self, damage) -> None:
        self.damage = damage

    def __getattr__(self, name):
        if name != "cudnnActivationForward":
            return getattr(cudnn, name)

        def call(*args):
            cudnn.cudnnActivationForward(*args)
            self.damage(np.asarray(args[4]), np.asarray(args[7]))

        return call


def whole(view: np.ndarray) -> np.ndarray:
    """Return the allocation that contains a slice of a reference buffer."""
    while isinstance(view.base, np.ndarray):
        view = view.base
    return view


DAMAGES = {
    "nothing": (lambda x, y: None, None),
    "guard before": (lambda x, y: whole(y).__setitem__(GUARD - 1, 0), "before its start"),
    "guard after": (lambda x, y: whole(y).__setitem__(-1, 0), "after its end"),
    "input": (lambda x, y: x.__setitem__(0, x[0] ^ 1), "of an input"),
    "gap": (lambda x, y: y.__setitem__(80, 1), "gaps"),
    "element": (lambda x, y: y.__setitem__(2, y[2] ^ 0xFF), "wrong"),
    "unwritten": (lambda x, y: y.__setitem__(slice(0, 4), 0xFF), "wrong"),
}


@pytest.mark.parametrize("damage, expected", list(DAMAGES.values()), ids=list(DAMAGES))
def test_a_trial_catches_damage(damage, expected):
    result = attempt(Caller(Saboteur(damage), cudnn.cudnnCreate(backend="reference")), operation())
    assert result.passed == (expected is None)
    assert expected is None or expected in result.explanation()


@pytest.mark.parametrize(
    "y, got, wrong", [(1e20, -np.inf, 0), (1e20, -1e30, 0), (1e18, -np.inf, 1), (np.inf, -1e30, 1), (2.0, -np.inf, 1)]
)
def test_gradients_of_tanh_with_an_overflowing_square_are_not_determined(y, got, wrong):
    """For y beyond 1.8e19 the square overflows in float. Infinite y and smaller y are judged."""
    spec = TensorSpec.packed(FLOAT, (1, 1, 1, 2))
    o = ActivationBackward(operation().activation, 1.0, 0.0, spec, spec, spec, spec)
    before = {name: np.array(values, np.float32).view(np.uint8) for name, values in
              {"y": [0.5, y], "dy": [2.0, 1e-10], "x": [1.0, 1.0], "dx": [0.0, 0.0]}.items()}  # fmt: skip
    after = {**before, "dx": np.array([1.5, got], np.float32).view(np.uint8)}
    assert judge(o, before, after).wrong == wrong


@pytest.mark.parametrize(
    "x, got, wrong",
    [(1.0, np.inf, 0), (1.0, np.nan, 1), (1.0, -np.inf, 1), (0.0, np.nan, 0), (0.0, 0.0, 1), (1e-40, np.nan, 0)],
)
def test_infinite_factors(x, got, wrong):
    """Zero times infinity is NaN. A value that may be flushed to zero allows both results."""
    spec = TensorSpec.packed(FLOAT, (1, 1, 1, 2))
    o = ActivationForward(operation(mode=Mode.CUDNN_ACTIVATION_RELU).activation, np.inf, 0.0, spec, spec)
    before = {"x": np.array([1.0, x], np.float32).view(np.uint8), "y": np.zeros(8, np.uint8)}
    after = {**before, "y": np.array([np.inf, got], np.float32).view(np.uint8)}
    assert judge(o, before, after).wrong == wrong


def fused_relu():
    from dualdnn.conformance.cases.convolution.convolution_bias_activation import IMPLICIT, fused

    return fused(x=(2, 1, 6, 5), w=(12, 1, 1, 1), padding=(0, 0), algo=IMPLICIT)


@pytest.mark.parametrize("beta, prior", [(2.5, -np.inf), (-2.0, 3e38), (1.0, -3e38)])
def test_a_term_of_the_blend_that_overflows(beta, prior):
    """If alpha times the result overflows, beta's term makes any result right. Without this term only infinity is right."""
    spec = TensorSpec.packed(FLOAT, (1, 1, 1, 2))
    o = PoolingForward(PoolingSpec(cudnnPoolingMode_t(0), Nan(0), (1, 1), (0, 0), (1, 1)), 2.0, beta, spec, spec)
    before = {
        "x": np.array([3e38, 1], np.float32).view(np.uint8),
        "y": np.array([prior, 1], np.float32).view(np.uint8),
    }
    for got, wrong in ((np.nan, 0), (np.inf, 0), (1.0, 0)):
        after = {**before, "y": np.array([got, 2 + beta], np.float32).view(np.uint8)}
        assert judge(o, before, after).wrong == wrong
    after = {**before, "y": np.array([np.nan, np.nan], np.float32).view(np.uint8)}
    assert judge(o, before, after).wrong == 1
    assert judge(replace(o, beta=0.0), before, after).wrong == 2


def test_a_relu_that_passes_nan_is_wrong():
    """ReLU turns a NaN into 0, so that the bound is finite and the element is judged."""
    o = fused_relu()
    before = prepare(o, {"x": "normal", "w": "near_one", "bias": "normal"}, 1)
    before["x"].view(np.float32)[3] = np.nan
    after = {name: memory.copy() for name, memory in before.items()}
    run(o, after)
    assert judge(o, before, after).agrees
    y = after["y"].view(np.float32)
    y[3] = np.nan
    assert y[3::30].size and judge(o, before, after).wrong == 1
    y[3] = 2.0
    assert judge(o, before, after).wrong == 1


@pytest.mark.parametrize("got, wrong", [(0, 0), (1, 1), (-128, 1), (127, 1)])
def test_an_integer_where_nan_is_due_is_0(got, wrong):
    o = operation(INT8, Mode.CUDNN_ACTIVATION_RELU, beta=0.0, strides=(60, 20, 5, 1))
    o = replace(o, alpha=np.inf)
    before = prepare(o, "normal", 1)
    before["x"].view(np.int8)[:] = 3
    before["x"].view(np.int8)[0] = 0  # This makes infinity times 0.
    after = {name: memory.copy() for name, memory in before.items()}
    run(o, after)
    after["y"].view(np.int8)[0] = got
    assert judge(o, before, after).wrong == wrong


@pytest.mark.parametrize("informative, mistrusted", [(30, False), (29, True), (0, True)])
def test_a_quarter_of_the_output_must_be_able_to_show_an_error(informative, mistrusted):
    o = operation(mode=Mode.CUDNN_ACTIVATION_RELU, strides=(60, 20, 5, 1))
    before = prepare(o, "normal", 1)
    before["x"].view(np.float32)[:] = -1
    before["x"].view(np.float32)[:informative] = 1
    after = {name: memory.copy() for name, memory in before.items()}
    run(o, after)
    verdict = judge(o, before, after)
    assert (verdict.checked, verdict.informative) == (120, informative) and verdict.mistrusted is mistrusted


def test_zero_terms_that_are_rounded_without_limit_are_zeros():
    """Zero times infinity is not a bound. An element with such a bound is judged all the same."""
    o = operation()
    exact = Exact(np.zeros(o.y.dims), np.zeros(o.y.dims), np.inf)
    _, allowed = bounds(o, "y", exact, prepare(o, "normal", 1))
    assert (allowed < 1e-37).all()


@pytest.mark.parametrize("alpha, wrong", [(1.0, 1), (2.0, 0)])
def test_the_sign_of_a_copied_zero(alpha, wrong):
    """A copy keeps the sign of a zero, and a scaled zero may have either sign."""
    spec = TensorSpec.packed(FLOAT, (1, 1, 2, 2))
    operation = TransformTensor(alpha, 0.0, spec, spec)
    x = np.array([0.0, -0.0, 1.0, -1.0], np.float32)
    y = np.float32(alpha) * np.array([0.0, 0.0, 1.0, -1.0], np.float32)
    before = {"x": x.view(np.uint8), "y": np.zeros(16, np.uint8)}
    assert judge(operation, before, {**before, "y": y.view(np.uint8)}).wrong == wrong


PADDED = convolution_spec(2, FLOAT, padding=(1, 1))
IMAGES, FILTERS = TensorSpec.packed(FLOAT, (2, 2, 6, 7)), FilterSpec(FLOAT, NCHW, (3, 2, 3, 3))
RESULTS = TensorSpec.packed(FLOAT, (2, 3, 6, 7))
# direction -> its algorithms, an operation, an input whose first element is not finite, then elements of the output.
# The infinity reaches the first of these through a transform, and does not reach the last one.
DIRECTIONS = {
    "forward": (ForwardAlgo, ConvolutionForward(PADDED, ForwardAlgo(0), 0, 1.0, 0.0, IMAGES, FILTERS, RESULTS),
                "x", np.s_[0, :, :4, :4], (1, 0, 0, 0)),
    "data": (DataAlgo, ConvolutionBackwardData(PADDED, DataAlgo(0), 0, 1.0, 0.0, FILTERS, RESULTS, IMAGES),
             "dy", np.s_[0, :, :4, :4], (1, 0, 0, 0)),
    "filter": (FilterAlgo, ConvolutionBackwardFilter(PADDED, FilterAlgo(0), 0, 1.0, 0.0, IMAGES, RESULTS, FILTERS),
               "x", np.s_[:, 0], (0, 1, 0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("number", [np.inf, np.nan])
@pytest.mark.parametrize("transform", ["FFT", "WINOGRAD_NONFUSED"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_infinity_and_nan_spread_in_a_transform(direction, transform, number):
    """A direct algorithm spreads it only to the elements whose sums contain it."""
    algorithms, direct, name, reached, beyond = DIRECTIONS[direction]
    o = replace(direct, algo=next(a for a in algorithms if a.name.endswith(f"_{transform}")))
    before, output = prepare(o, "normal", 0), o.outputs[0]
    before[name].view(np.float32)[0] = number
    after = {name: memory.copy() for name, memory in before.items()}
    run(o, after)
    found = after[output].view(np.float32).reshape(o.tensor(output).dims)
    assert judge(o, before, after).agrees
    found[reached] = np.nan
    assert judge(o, before, after).agrees
    assert direction == "filter" or not judge(direct, before, after).agrees
    found[beyond] += 1000
    assert judge(o, before, after).wrong == 1


@pytest.mark.parametrize("fused", [False, True], ids=["rounded products", "fused"])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_sums_of_few_products_are_no_suspects(channels, fused):
    """The judge counts the roundings of few products one by one. An output of many right elements shows it."""
    x, y = (TensorSpec.packed(FLOAT, (2, count, 60, 70)) for count in (channels, 4))
    o = ConvolutionForward(
        convolution_spec(2, FLOAT, padding=(0, 0)),
        ForwardAlgo(0),
        0,
        1.0,
        0.0,
        x,
        FilterSpec(FLOAT, NCHW, (4, channels, 1, 1)),
        y,
    )
    for seed in range(5):
        before = prepare(o, "normal", seed)
        image, weights = (before[name].view(np.float32).astype(np.float64) for name in ("x", "w"))
        products = image.reshape(2, 1, channels, -1) * weights.reshape(1, 4, channels, 1)
        total = np.zeros((2, 4, 4200), np.float32)
        for channel in range(channels):
            product = products[:, :, channel]
            total = (total + (product if fused else product.astype(np.float32))).astype(np.float32)
        verdict = judge(o, before, {**before, "y": total.view(np.uint8).reshape(-1)}, random=True)
        assert verdict.agrees and not verdict.suspicions


@pytest.mark.parametrize("filters", [1, 16])
def test_outputs_of_one_filter_share_the_rounding_of_its_factor(filters):
    """If all outputs have one factor, rounded to TF32, all may be a quarter of a step too large. For 16 it is suspect."""
    x, y = (TensorSpec.packed(FLOAT, (2, channels, 60, 70)) for channels in (1, filters))
    math = cudnnMathType_t.CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION
    convolution, w = (
        convolution_spec(2, FLOAT, padding=(0, 0), math_type=math),
        FilterSpec(FLOAT, NCHW, (filters, 1, 1, 1)),
    )
    o = ConvolutionForward(convolution, ForwardAlgo(0), 0, 1.0, 0.0, x, w, y)
    for seed in range(5):
        before = prepare(o, "positive", seed)
        image, weights = (((before[n].view(np.int32) + 0x1000) & ~0x1FFF).view(np.float32) for n in ("x", "w"))
        right = image.reshape(2, 1, -1) * weights.reshape(filters, 1)
        for off, suspect in ((0, False), (2.0**-12, filters == 16)):
            found = np.float32(right * (1 + off)).ravel()
            verdict = judge(o, before, before | {"y": found.view(np.uint8)}, random=True)
            assert (off or verdict.agrees) and bool(verdict.suspicions) == suspect
