"""Tests that calls which differ only in scalars share a plan, with the results of separate plans."""

import math
from dataclasses import replace

import numpy as np
import pytest
from dualdnn.accelerated import backend as accelerated_backend
from dualdnn.accelerated.plans import AlignedPlan, plan
from dualdnn.accelerated.scalars import Scalar, ValueNeeded, without_values
from dualdnn.api import cudnn
from dualdnn.api.operations import DropoutForward

SCALARS = ((1.0, 0.0), (0.7, 0.3), (0.0, 1.0), (math.nan, -2.0))


def described(made):
    """Return everything that a plan launches, in comparable form."""
    if isinstance(made, AlignedPlan):
        return [described(made.first), described(made._served_otherwise()), made.masks, made.apart]
    return [type(made), made.solver, *(launched(step, positions) for step, positions in made.steps)]


def launched(step, positions=()):
    function, fallback = getattr(step.function, "what", None), getattr(step, "fallback", None)
    extents = (step.grid, step.block, step.shared_bytes, step.operands, positions)
    return (function, step.template, *extents, fallback and launched(fallback))


def test_a_shared_plan_launches_the_same_as_a_separate_plan(planned_kinds):
    (device, found), shared = planned_kinds, 0
    for operation, _ in found:
        names = () if isinstance(operation, DropoutForward) else without_values(operation)[1]
        for values in SCALARS if names else ():
            scalars = {name: values[i % 2] for i, name in enumerate(names)}
            wanted = replace(operation, **scalars)
            try:
                own = described(plan(wanted, device))
            except (ValueError, AttributeError):  # A probability of 1 or more, or a plan of several parts, is refused.
                continue
            placeholder, kept = without_values(wanted)
            try:
                made = plan(placeholder, device).with_scalars(kept)
            except ValueNeeded:
                assert "Dropout" in type(wanted).__name__ or "Fork" in type(wanted).__name__, wanted
                continue
            shared += 1
            assert described(made) == own, wanted
    assert shared > 500


@pytest.fixture
def handle():
    with cudnn.cudnnCreate(backend="accelerated", device="emulated") as handle:
        yield handle


def tensor(*dims, data_type=cudnn.CUDNN_DATA_FLOAT):
    descriptor = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(descriptor, cudnn.CUDNN_TENSOR_NCHW, data_type, *dims)
    return descriptor


def test_many_scalars_make_few_plans(handle):
    backend, descriptor = handle.backend, tensor(1, 3, 4, 5)
    source = np.arange(60, dtype=np.float32)
    a, c = handle.to_device(source), handle.to_device(source)
    before = len(backend.plans)
    for i in range(200):
        alpha, beta = 0.25 + i / 64, -i / 128
        c = handle.to_device(source)
        cudnn.cudnnAddTensor(handle, alpha, descriptor, a, beta, descriptor, c)
        np.testing.assert_allclose(c.to_host(np.float32, (60,)), (alpha + beta) * source, rtol=1e-6, atol=1e-5)
    assert len(backend.plans) - before <= 4  # Scalars of 1, of 0 and of any other value have separate plans.


def test_scalars_of_every_kind_reach_the_kernel(handle):
    descriptor, source = tensor(1, 1, 1, 4), np.array([1, 2, -3, 0], np.float32)
    x = handle.to_device(source)
    for alpha in (1.0, 0.0, -0.0, 2.5, math.inf, math.nan, -1e-30, 1, np.float32(0.1)):
        for beta in (0.0, -0.0, 1.0, 0.5, math.nan):
            y = handle.to_device(source)
            cudnn.cudnnTransformTensor(handle, alpha, descriptor, x, beta, descriptor, y)
            with np.errstate(invalid="ignore"):
                wanted = np.float32(alpha) * source + (np.float32(beta) * source if beta else 0)
            np.testing.assert_allclose(y.to_host(np.float32, (4,)), wanted, rtol=1e-6, err_msg=f"{alpha} {beta}")


def pooled(handle, alpha, x, offset):
    """Return averages over 2 x 2 numbers. offset: bytes from the start of ``x`` to the image in it."""
    descriptor, y = cudnn.cudnnCreatePoolingDescriptor(), handle.zeros(512)
    cudnn.cudnnSetPooling2dDescriptor(
        descriptor, cudnn.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING, cudnn.CUDNN_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2
    )
    image, result = tensor(2, 4, 8, 8), tensor(2, 4, 4, 4)
    cudnn.cudnnPoolingForward(handle, descriptor, alpha, image, x.slice(offset, 2048), 0.0, result, y)
    return y.to_host(np.float32, (128,))


@pytest.mark.parametrize("offset", [0, 4])
def test_plans_with_a_fallback_have_the_scalars_in_both(handle, offset):
    x = handle.to_device(np.ones(513, np.float32))
    for alpha in (0.5, 0.25, 1.0):
        np.testing.assert_array_equal(pooled(handle, alpha, x, offset), np.full(128, alpha, np.float32))
    assert any(isinstance(made, AlignedPlan) for made in handle.backend.plans.values())


@pytest.mark.parametrize("is_fallback", [False, True])
def test_a_planner_that_needs_the_number_gets_it(monkeypatch, handle, is_fallback):
    """A planner may need the value at once, or its fallback may need it when it first serves."""
    asked = []

    def needing(operation, device):
        def fallback():
            asked.append(float(operation.alpha))
            return own_fallback()

        asked.append(operation.alpha if is_fallback else float(operation.alpha))
        made = plan(operation, device)
        own_fallback, made.fallback = made.fallback, fallback
        return made

    monkeypatch.setattr(accelerated_backend, "plan", needing)
    monkeypatch.setattr(handle.backend, "plans", {})
    x = handle.to_device(np.ones(513, np.float32))
    for alpha in (0.75, 0.375):
        np.testing.assert_array_equal(pooled(handle, alpha, x, 4), np.full(128, alpha, np.float32))
    assert {"0.75", "0.375"} <= set(map(repr, asked))


def test_a_placeholder_refuses_uses_that_need_its_value():
    unknown, one, zero = Scalar("alpha", None), Scalar("alpha", 1.0), Scalar("alpha", 0.0)
    assert one == 1 and one != 0 and zero == 0 and not zero and unknown != 0 and unknown != 1 and unknown
    assert (one / 4).of({"alpha": 1.0}) == 0.25 and zero / 4 == 0
    for use in (
        float, int, str.format, lambda s: f"{s:g}", lambda s: s < 2, lambda s: s + 1, lambda s: 2 * s, lambda s: s == 2,
        lambda s: -s, math.isnan, lambda s: (s / 3) == 1,
    ):  # fmt: skip
        with pytest.raises((ValueNeeded, TypeError)):
            use(unknown)
    assert hash(Scalar("alpha", None)) == hash(unknown) and Scalar("alpha", None) == unknown != Scalar("beta", None)
