"""Holds cases of this edition's levels of reproducibility (docs/reproducibility.md).

They judge the accelerated backend at each level. The option --reproducible judges any subject as it computes by
default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnBatchNormMode_t,
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnConvolutionMode_t,
    cudnnCTCLossAlgo_t,
    cudnnLossNormalizationMode_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnPoolingMode_t,
    cudnnReorderType_t,
    cudnnSamplerType_t,
    cudnnSoftmaxAlgorithm_t,
    cudnnSoftmaxMode_t,
    cudnnStatus_t,
)
from dualdnn.api.operations import (
    ActivationForward,
    ActivationSpec,
    BatchNormalizationForwardInference,
    BatchNormalizationForwardTraining,
    ConvolutionBackwardBias,
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionForward,
    ConvolutionSpec,
    CTCLoss,
    CTCLossSpec,
    FilterSpec,
    PoolingBackward,
    PoolingForward,
    PoolingSpec,
    SoftmaxBackward,
    SoftmaxForward,
    SpatialTfGridGeneratorBackward,
    SpatialTfGridGeneratorForward,
    SpatialTfSamplerBackward,
    SpatialTfSamplerForward,
    SpatialTransformerSpec,
    TensorSpec,
)
from dualdnn.api.operations.backend import LEVELS
from dualdnn.api.operations.specs import FLOAT, HALF, NCHW, NHWC
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED, CudnnError
from dualdnn.conformance import bits
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.marks import shows

CLAUSE = "dualdnnReproducible"
FORWARD, DATA = cudnnConvolutionFwdAlgo_t, cudnnConvolutionBwdDataAlgo_t
FILTER = cudnnConvolutionBwdFilterAlgo_t
CORRELATION = cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION
DEFAULT, FMA = cudnnMathType_t.CUDNN_DEFAULT_MATH, cudnnMathType_t.CUDNN_FMA_MATH
LAYOUTS = {"tf32-nchw": (FLOAT, NCHW, DEFAULT), "fma-nchw": (FLOAT, NCHW, FMA), "half-nhwc": (HALF, NHWC, DEFAULT)}
# Each shape has channels, filters, extent, window, stride and groups; "first" is a first layer, "each" is depthwise.
SHAPES = {
    "3x3": (16, 40, 6, 3, 1, 1),
    "1x1": (64, 24, 5, 1, 1, 1),
    "first": (3, 16, 9, 3, 2, 1),
    "each": (8, 8, 6, 3, 1, 8),
}


def convolution(kind: Any, algo: Any, layout: str, shape: str, images: int = 2) -> Any:
    """Return a convolution or one of its gradients."""
    (data_type, order, math), (channels, filters, extent, window, stride, groups) = LAYOUTS[layout], SHAPES[shape]
    padding, out = window // 2, (extent + 2 * (window // 2) - window) // stride + 1
    described = ConvolutionSpec(
        CORRELATION, FLOAT, (padding,) * 2, (stride,) * 2, (1, 1), groups, math, cudnnReorderType_t(0)
    )
    x = TensorSpec.packed(data_type, (images, channels, extent, extent), order)
    y = TensorSpec.packed(data_type, (images, filters, out, out), order)
    w = FilterSpec(data_type, order, (filters, channels // groups, window, window))
    operands = {ConvolutionForward: (x, w, y), ConvolutionBackwardData: (w, y, x), ConvolutionBackwardFilter: (x, y, w)}
    return kind(described, algo, 0, 1.0, 0.0, *operands[kind])


def _within_images() -> dict[str, Any]:
    """Return operations that sum within one image."""
    found: dict[str, Any] = {}
    for layout, (data_type, order, _) in LAYOUTS.items():
        for shape in SHAPES:
            for algo in (FORWARD(0), FORWARD(1), FORWARD(2)):
                if algo != FORWARD(2) or order == NCHW:
                    found[f"forward-{algo.name[22:]}-{layout}-{shape}"] = convolution(
                        ConvolutionForward, algo, layout, shape
                    )
            for gradient in (DATA(0), DATA(1)):
                if gradient != DATA(0) or order == NCHW:
                    found[f"data-{gradient.name[27:]}-{layout}-{shape}"] = convolution(
                        ConvolutionBackwardData, gradient, layout, shape
                    )
        if layout == "tf32-nchw":
            continue
        for channels, extent in ((24, 7), (300, 1)):
            x = TensorSpec.packed(data_type, (2, channels, extent, extent), order)
            what = f"{layout}-{channels}x{extent}"
            for mode in cudnnSoftmaxMode_t:
                given = (cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_ACCURATE, mode, 1.0, 0.0)
                found[f"softmax-{mode.name[19:]}-{what}"] = SoftmaxForward(*given, x, x)
                found[f"softmax-gradient-{mode.name[19:]}-{what}"] = SoftmaxBackward(*given, x, x, x)
        x, y = (TensorSpec.packed(data_type, (2, 24, extent, extent), order) for extent in (8, 4))
        for pools in (
            cudnnPoolingMode_t.CUDNN_POOLING_MAX,
            cudnnPoolingMode_t.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
        ):
            pooling = PoolingSpec(pools, cudnnNanPropagation_t(0), (3, 3), (1, 1), (2, 2))
            found[f"pooling-{pools.value}-{layout}"] = PoolingForward(pooling, 1.0, 0.0, x, y)
            found[f"pooling-gradient-{pools.value}-{layout}"] = PoolingBackward(pooling, 1.0, 0.0, y, y, x, x)
            everything = replace(pooling, window=(8, 8), padding=(0, 0), stride=(1, 1))
            one = TensorSpec.packed(data_type, (2, 24, 1, 1), order)
            found[f"pooling-{pools.value}-all-{layout}"] = PoolingForward(everything, 1.0, 0.0, x, one)
        tangent = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_TANH, cudnnNanPropagation_t(0), 0.0)
        found[f"activation-{layout}"] = ActivationForward(tangent, 1.0, 0.0, x, x)
        statistics = TensorSpec.packed(FLOAT, (1, 24, 1, 1))
        found[f"normalization-{layout}"] = BatchNormalizationForwardInference(
            SPATIAL, 1.0, 0.0, x, x, statistics, statistics, 1e-5
        )
    return found


SPATIAL = cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL
WITHIN_IMAGES = _within_images()


def _over_images() -> dict[str, Any]:
    """Return operations that sum over the images of a batch."""
    found: dict[str, Any] = {}
    for layout, (data_type, order, _) in LAYOUTS.items():
        for shape in SHAPES:
            for algo in (FILTER(0), FILTER(1)):
                found[f"filter-{algo.value}-{layout}-{shape}"] = convolution(
                    ConvolutionBackwardFilter, algo, layout, shape, 9
                )
        x = TensorSpec.packed(data_type, (9, 24, 7, 7), order)
        statistics = TensorSpec.packed(FLOAT, (1, 24, 1, 1))
        found[f"bias-{layout}"] = ConvolutionBackwardBias(
            1.0, 0.0, x, TensorSpec.packed(data_type, (1, 24, 1, 1), order)
        )
        found[f"training-{layout}"] = BatchNormalizationForwardTraining(
            SPATIAL, 1.0, 0.0, x, x, statistics, statistics, 1.0, None, 1e-5, None
        )
    return found


OVER_IMAGES = _over_images()


def _of_sequences_and_grids() -> dict[str, Any]:
    """Return losses and spatial transformers, which sum within one sequence or image."""
    found: dict[str, Any] = {}
    lengths, labels = (3, 0, 9, 4, 5, 2), (1, 2, 2, 1, 4, 1, 4, 4, 4, 2, 3, 1, 5, 5, 1, 5, 2, 3, 6, 6, 1, 4, 3)
    probs, costs = TensorSpec.packed(FLOAT, (20, 6, 7)), TensorSpec(FLOAT, (6,), (1,))
    loss = CTCLossSpec(FLOAT, cudnnLossNormalizationMode_t.CUDNN_LOSS_NORMALIZATION_SOFTMAX, cudnnNanPropagation_t(0))
    given = (loss, cudnnCTCLossAlgo_t(0), labels, lengths, (20, 4, 20, 17, 12, 9), 0)
    found["ctc"] = CTCLoss(*given, probs, costs, probs)
    for data_type, order, what in ((FLOAT, NCHW, "float-nchw"), (HALF, NHWC, "half-nhwc")):
        for channels, extent in ((3, 30), (40, 9)):
            x = TensorSpec.packed(data_type, (2, channels, 11, 12), order)
            y = TensorSpec.packed(data_type, (2, channels, extent, extent), order)
            grid, shape = (
                SpatialTransformerSpec(cudnnSamplerType_t(0), data_type, y.dims),
                f"{what}-{channels}x{extent}",
            )
            found[f"grid-{shape}"] = SpatialTfGridGeneratorForward(grid)
            found[f"grid-gradient-{shape}"] = SpatialTfGridGeneratorBackward(grid)
            found[f"sampler-{shape}"] = SpatialTfSamplerForward(grid, 1.0, 0.0, x, y)
            found[f"sampler-gradient-{shape}"] = SpatialTfSamplerBackward(grid, 1.0, 0.0, 1.0, 0.0, x, x, y)
    return found


SEQUENCES_AND_GRIDS = _of_sequences_and_grids()
ALONE = {**WITHIN_IMAGES, **SEQUENCES_AND_GRIDS}


@pytest.fixture
def at(request: pytest.FixtureRequest, subject: Any) -> Callable[[str], Caller]:
    """Return a function that makes a caller of a level; it skips subjects and levels that were not requested."""
    asked = request.config.getoption("--reproducible")

    def caller(level: str) -> Caller:
        if asked and LEVELS.index(level) > LEVELS.index(asked):
            pytest.skip(f"--reproducible {asked} asks for no more")
        if getattr(subject, "backend", "") in ("accelerated", "crosscheck"):
            made = subject.cudnn.cudnnCreate(backend=subject.backend, device=subject.device, reproducible=level)
            return Caller(subject.cudnn, made)
        if not asked:
            pytest.skip(
                "levels of reproducibility are a promise of the accelerated backend; --reproducible judges others"
            )
        return Caller(subject.cudnn, request.getfixturevalue("handle"))

    return caller


def all_the_same(wrong: list[str]) -> None:
    if wrong:
        pytest.fail("other bits: " + "; ".join(wrong[:6]), pytrace=False)


@shows(f"{CLAUSE}/c01")
def test_a_level_is_one_of_four(subject):
    if not subject.ours or not hasattr(subject, "backend"):
        pytest.skip("handles of C take no level")
    for level in ("bits", "", 1, "BATCH"):
        with pytest.raises(CudnnError, match=f"reproducible is {level!r}, not one of run, batch, device") as refusal:
            subject.cudnn.cudnnCreate(backend=subject.backend, device=subject.device, reproducible=level)
        assert (refusal.value.status, refusal.value.clause) == (BAD_PARAM, f"{CLAUSE}/c01")


@shows(f"{CLAUSE}/c02")
@pytest.mark.parametrize("name", [*WITHIN_IMAGES, *OVER_IMAGES][::7])
def test_a_call_that_is_made_again(at, name):
    caller, operation = at("run"), {**WITHIN_IMAGES, **OVER_IMAGES}[name]
    memory = bits.memory_of(operation)
    assert len({bits.hashed(bits.results(caller, operation, memory)) for _ in range(3)}) == 1


@shows(f"{CLAUSE}/c03")
@pytest.mark.parametrize("name", ALONE)
def test_an_image_alone_and_in_batches(at, name):
    caller, operation = at("batch"), ALONE[name]
    all_the_same(bits.of_batches(caller, operation))
    for solver in bits.solvers_of(caller, operation):
        with bits.by_solver(caller, solver):
            all_the_same(bits.of_batches(caller, operation))


@shows(f"{CLAUSE}/c04")
@pytest.mark.parametrize("name", [*WITHIN_IMAGES, *OVER_IMAGES, *SEQUENCES_AND_GRIDS])
def test_any_number_of_multiprocessors(at, subject, name):
    caller, operation = at("device"), {**ALONE, **OVER_IMAGES}[name]
    if not subject.ours:
        pytest.skip("nobody can tell a foreign library how many multiprocessors it has")
    all_the_same(bits.of_multiprocessors(caller, operation))


@shows(f"{CLAUSE}/c08")
@pytest.mark.parametrize(
    "name",
    [
        *[name for name in WITHIN_IMAGES if not name.startswith(("data", "activation"))][::2],
        *(name for name in SEQUENCES_AND_GRIDS if name.startswith("sampler")),
    ],
)
def test_solvers_of_one_order(at, subject, name):
    caller = at("run")
    if getattr(subject, "backend", "") != "accelerated":
        pytest.skip("only the accelerated backend has solvers")
    all_the_same(bits.of_solvers(caller, ALONE[name]))


def refused_as(call: Callable[[], object], clause: str) -> None:
    with pytest.raises(CudnnError) as refusal:
        call()
    assert (refusal.value.status, refusal.value.clause) == (NOT_SUPPORTED, f"{CLAUSE}/{clause}")


def only_ours(subject: Any) -> None:
    if not subject.ours:
        pytest.skip("another library promises no level, and refuses nothing for one")


@shows(f"{CLAUSE}/c05")
@pytest.mark.parametrize("level", LEVELS[1:])
def test_a_family_without_orders_is_refused(at, subject, level):
    caller, operation = at(level), convolution(ConvolutionForward, FORWARD(4), "fma-nchw", "3x3")
    only_ours(subject)
    refused_as(lambda: bits.results(caller, operation, bits.memory_of(operation)), "c05")


@shows(f"{CLAUSE}/c06")
def test_addresses_that_need_another_order_are_refused(at, subject):
    caller, operation = at("batch"), convolution(ConvolutionForward, FORWARD(1), "half-nhwc", "1x1")
    only_ours(subject)
    memory = {name: caller.handle.to_device(np.zeros(operation.nbytes(name) + 2, np.uint8)) for name in ("x", "w", "y")}
    bits.results(caller, operation, bits.memory_of(operation))
    apart = {name: buffer.slice(2, operation.nbytes(name)) for name, buffer in memory.items()}
    refused_as(lambda: caller(operation, {**apart, "workSpace": None}), "c06")


@shows(f"{CLAUSE}/c07")
def test_statistics_of_a_batch_are_refused_for_its_images(at, subject):
    operation = OVER_IMAGES["training-fma-nchw"]
    caller = at("batch")
    only_ours(subject)
    refused_as(lambda: bits.results(caller, operation, bits.memory_of(operation)), "c07")


@shows(f"{CLAUSE}/c09")
@pytest.mark.parametrize("name", bits.recorded()["emulated"])
def test_hashes_of_an_earlier_release(at, subject, name):
    caller = at("release")
    only_ours(subject)
    architecture = caller.handle.backend.planned_on.architecture
    known = bits.recorded().get(architecture, {}).get(name)
    if known is None:
        pytest.skip(f"no release has recorded hashes of {architecture}")
    assert bits.hash_of(caller, {**WITHIN_IMAGES, **OVER_IMAGES}[name]) == known


@shows(f"{CLAUSE}/c10")
def test_searches_report_one_order(at, subject):
    caller, operation = at("batch"), convolution(ConvolutionForward, FORWARD(1), "fma-nchw", "3x3")
    only_ours(subject)
    make, cudnn = caller.descriptor, caller.cudnn
    described = (make(operation.x), make(operation.w), make(operation.convolution), make(operation.y))
    for search in (cudnn.cudnnGetConvolutionForwardAlgorithm_v7, cudnn.cudnnFindConvolutionForwardAlgorithm):
        found = search(caller.handle, *described, 8).perfResults
        served = [each for each in found if each.status == cudnnStatus_t.CUDNN_STATUS_SUCCESS]
        hashes = set()
        for each in served:
            by = replace(operation, algo=each.algo, convolution=replace(operation.convolution, math_type=each.mathType))
            hashes.add(bits.hashed(bits.results(caller, by, bits.memory_of(operation))))
        assert len(served) > 1 and len(hashes) == 1
