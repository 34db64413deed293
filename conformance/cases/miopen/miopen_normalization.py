"""Holds cases of the second document: local response and batch normalisation (rows 45 to 55)."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api import cudnn, miopen
from dualdnn.api.miopen.status import BAD_PARM, NOT_IMPLEMENTED
from dualdnn.api.operations import LRNCrossChannelBackward, LRNCrossChannelForward, LRNSpec
from dualdnn.conformance.calls.miopen import lrn, tensor
from dualdnn.conformance.marks import shows
from dualdnn.conformance.suite.miopen_fixtures import DIMS, ONE_AND_ZERO, X, available, filled

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject

pytestmark = pytest.mark.ours


@pytest.fixture
def handle(miopen_handle: Any) -> Any:
    """Yield a MIOpen handle in place of cuDNN's."""
    return miopen_handle


NORMALIZATION = LRNSpec(5, 0.25, 0.75, 1.5)


@shows("miopenLRNForward/c01", "miopenLRNBackward/c01", "miopenLRNGetWorkSpaceSize/c01", "miopenCreateLRNDescriptor/c01",
       "miopenSetLRNDescriptor/c01", "miopenGetLRNDescriptor/c01")  # fmt: skip
@pytest.mark.parametrize("n", [1, 3, 9])
def test_lrn(computes: Any, denied: Any, n: int) -> None:
    spec = replace(NORMALIZATION, n=n)
    assert miopen.miopenGetLRNDescriptor(lrn(spec)) == (miopen.miopenLRNCrossChannel, n, 0.25, 0.75, 1.5)
    assert miopen.miopenLRNGetWorkSpaceSize(tensor(DIMS)) == X.nbytes
    across, descriptor = miopen.miopenLRNCrossChannel, miopen.miopenCreateLRNDescriptor()
    denied(BAD_PARM, "c01", miopen.miopenGetLRNDescriptor, descriptor)
    for wrong in ((17, 1.0, 0.75, 2.0), (5, 1.0, 0.001, 2.0), (-1, 1.0, 0.75, 2.0)):
        denied(BAD_PARM, "c01", miopen.miopenSetLRNDescriptor, descriptor, across, *wrong)
    computes(LRNCrossChannelForward(spec, 1.0, 0.0, X, X))
    computes(LRNCrossChannelBackward(spec, 1.0, 0.0, X, X, X, X))


@shows("miopenSetLRNDescriptor/c02 c03")
def test_lrn_that_is_refused(subject: Subject, denied: Any) -> None:
    within, across = miopen.miopenLRNWithinChannel, miopen.miopenLRNCrossChannel
    descriptor, call = miopen.miopenCreateLRNDescriptor(), miopen.miopenSetLRNDescriptor
    denied(NOT_IMPLEMENTED, "miopenSetLRNDescriptor/c02", call, descriptor, within, 5, 1.0, 0.75, 2.0)
    denied(BAD_PARM, "miopenSetLRNDescriptor/c03", call, descriptor, across, 4, 1.0, 0.75, 2.0)


@shows("miopenLRNForward/c02 c03", "miopenLRNBackward/c02 c03")
def test_the_workspace_of_lrn(handle: Any, denied: Any) -> None:
    d, descriptor = tensor(DIMS), lrn(NORMALIZATION)
    x, y = filled(handle, *DIMS), filled(handle, *DIMS)
    dx, workspace = handle.allocate(X.nbytes), handle.allocate(X.nbytes)

    def forward(
        alpha: float = 1.0, beta: float = 0.0, source: Any = x, space: Any = workspace, described: Any = descriptor
    ) -> None:
        miopen.miopenLRNForward(handle, described, alpha, d, source, beta, d, y, True, space)

    def backward(alpha: float = 1.0, beta: float = 0.0, space: Any = workspace) -> None:
        miopen.miopenLRNBackward(handle, descriptor, alpha, d, y, d, y, d, x, beta, d, dx, space)

    for alpha, beta in ONE_AND_ZERO:
        denied(NOT_IMPLEMENTED, "miopenLRNForward/c02", forward, alpha, beta, unchanged=y)
        denied(NOT_IMPLEMENTED, "miopenLRNBackward/c02", backward, alpha, beta, unchanged=dx)
    for wrong in (None, "no memory", workspace.slice(0, X.nbytes - 1)):
        denied(BAD_PARM, "miopenLRNForward/c03", forward, space=wrong, unchanged=y)
    denied(BAD_PARM, "c01", miopen.miopenLRNForward, handle, descriptor, 1.0, d, x, 0.0, d, y,
           np.ones(2), workspace, unchanged=y)  # fmt: skip
    denied(BAD_PARM, "miopenLRNBackward/c03", backward, unchanged=dx)
    forward(described=lrn(replace(NORMALIZATION, n=3)))
    denied(BAD_PARM, "miopenLRNBackward/c03", backward, unchanged=dx)
    forward()
    copy = handle.to_device(workspace.to_host(np.float32, -1))
    for value in (0.25, NORMALIZATION.k + 1):  # A forward call could store the second value for another x.
        miopen.miopenSetTensor(handle, d, workspace, value)
        denied(BAD_PARM, "miopenLRNBackward/c03", backward, unchanged=dx)
    backward(space=copy)


@shows("miopenLRNForward/c01", "miopenLRNBackward/c01")
def test_what_lrn_divides_by_is_kept(handle: Any) -> None:
    """The forward call keeps K + alpha / n * the sum of squares; the gradient divides by it, even if x has changed."""
    d, descriptor, spec = tensor((1, 3, 1, 1)), lrn(replace(NORMALIZATION, n=3)), NORMALIZATION
    values, dy = np.array([1.0, 2.0, 4.0]), np.array([0.5, -1.0, 2.0])
    x, other, gradient = (handle.to_device(v.astype(np.float32)) for v in (values, -values, dy))
    y, dx, workspace = handle.allocate(12), handle.allocate(12), handle.allocate(12)
    miopen.miopenLRNForward(handle, descriptor, 1.0, d, x, 0.0, d, y, True, workspace)
    scale = spec.k + spec.alpha / 3 * np.array([5.0, 21.0, 20.0])
    np.testing.assert_allclose(workspace.to_host(np.float32, -1), scale, rtol=1e-6)
    for source, sign in ((x, 1.0), (other, -1.0)):
        miopen.miopenLRNBackward(handle, descriptor, 1.0, d, y, d, gradient, d, source, 0.0, d, dx, workspace)
        terms = dy * values * scale**-spec.beta / scale
        sums = np.array([terms[0] + terms[1], terms.sum(), terms[1] + terms[2]])
        wanted = dy * scale**-spec.beta - sign * 2 * spec.alpha * spec.beta / 3 * values * sums
        np.testing.assert_allclose(dx.to_host(np.float32, -1), wanted, rtol=2e-6, atol=1e-7)


_BN = "miopenBatchNormalization"


@available("miopenDeriveBNTensorDescriptor", f"{_BN}ForwardTraining", f"{_BN}ForwardInference", f"{_BN}Backward")
@shows("miopenDeriveBNTensorDescriptor/c01", "miopenBatchNormalizationForwardTraining/c01 c02",
       "miopenBatchNormalizationForwardInference/c01 c02", "miopenBatchNormalizationBackward/c01 c02")  # fmt: skip
@pytest.mark.parametrize("mode, dims", [("Spatial", (1, 3, 1, 1)), ("PerActivation", (1, 3, 5, 4))])
def test_batch_normalization(handle: Any, denied: Any, mode: str, dims: Any) -> None:
    """The calls compute the same as the documented calls of cuDNN on the same handle."""
    mode_ = getattr(miopen, f"miopenBN{mode}")
    cudnn_mode = getattr(cudnn, {"Spatial": "CUDNN_BATCHNORM_SPATIAL"}.get(mode, "CUDNN_BATCHNORM_PER_ACTIVATION"))
    d, bn = tensor(DIMS), miopen.miopenCreateTensorDescriptor()
    miopen.miopenDeriveBNTensorDescriptor(bn, d, mode_)
    assert miopen.miopenGet4dTensorDescriptor(bn)[1:5] == dims
    convolution = miopen.miopenCreateConvolutionDescriptor()
    miopen.miopenInitConvolutionDescriptor(convolution, miopen.miopenConvolution, 0, 0, 1, 1, 1, 1)
    result = tuple(extent - size + 1 for extent, size in zip(DIMS[2:], dims[2:], strict=True))
    assert tuple(miopen.miopenGetConvolutionForwardOutputDim(convolution, d, bn)) == (DIMS[0], 1, *result)
    x, dy, scale, bias = (filled(handle, *shape) for shape in (DIMS, DIMS, dims, dims))
    small = 4 * prod(dims)
    training, inference, backward = (
        getattr(miopen, _BN + name) for name in ("ForwardTraining", "ForwardInference", "Backward")
    )
    theirs = {
        name: getattr(cudnn, f"cudnnBatchNormalization{name}")
        for name in ("ForwardTraining", "ForwardInference", "Backward")
    }

    def memory() -> Any:
        return [handle.zeros(nbytes) for nbytes in (X.nbytes, X.nbytes, X.nbytes, *[small] * 6)]

    ours = y, dx, inferred, mean, variance, saved_mean, saved_inverse, dscale, dbias = memory()

    def train(alpha: float = 1.0, beta: float = 0.0) -> None:
        statistics = (0.5, mean, variance, 1e-3, saved_mean, saved_inverse)
        training(handle, mode_, alpha, beta, d, x, d, y, bn, scale, bias, *statistics)

    def back(*factors: Any) -> None:
        saved = (1e-3, saved_mean, saved_inverse)
        backward(handle, mode_, *factors, d, x, d, dy, d, dx, bn, scale, dscale, dbias, *saved)

    def infer(alpha: float = 1.0, beta: float = 0.0) -> None:
        inference(handle, mode_, alpha, beta, d, x, d, inferred, bn, scale, bias, mean, variance, 1e-3)

    for alpha, beta in ONE_AND_ZERO:
        denied(NOT_IMPLEMENTED, f"{_BN}ForwardTraining/c02", train, alpha, beta, unchanged=y)
        denied(NOT_IMPLEMENTED, f"{_BN}Backward/c02", back, alpha, beta, 1.0, 0.0, unchanged=dx)
        denied(NOT_IMPLEMENTED, f"{_BN}Backward/c02", back, 1.0, 0.0, alpha, beta, unchanged=dx)
        denied(NOT_IMPLEMENTED, f"{_BN}ForwardInference/c02", infer, alpha, beta, unchanged=inferred)
    train()
    back(1.0, 0.0, 1.0, 0.0)
    infer()
    on, cd, cbn, one = handle.cudnn, d.cudnn, bn.cudnn, (1.0, 0.0)
    others = y2, dx2, inferred2, mean2, variance2, saved_mean2, saved_inverse2, dscale2, dbias2 = memory()
    statistics = (0.5, mean2, variance2, 1e-3, saved_mean2, saved_inverse2)
    theirs["ForwardTraining"](on, cudnn_mode, *one, cd, x, cd, y2, cbn, scale, bias, *statistics)
    saved = (1e-3, saved_mean2, saved_inverse2)
    theirs["Backward"](on, cudnn_mode, *one, *one, cd, x, cd, dy, cd, dx2, cbn, scale, dscale2, dbias2, *saved)
    theirs["ForwardInference"](on, cudnn_mode, *one, cd, x, cd, inferred2, cbn, scale, bias, mean2, variance2, 1e-3)
    for mine, other in zip(ours, others, strict=True):
        np.testing.assert_array_equal(mine.to_host(np.uint8, mine.nbytes), other.to_host(np.uint8, other.nbytes))
        assert np.any(mine.to_host(np.uint8, mine.nbytes))
    denied(BAD_PARM, f"{_BN}ForwardTraining/c01", training, None, *range(16))
    denied(BAD_PARM, f"{_BN}ForwardInference/c01", inference, None, *range(13))
    denied(BAD_PARM, f"{_BN}Backward/c01", backward, None, *range(18))
    denied(BAD_PARM, "c01", miopen.miopenDeriveBNTensorDescriptor, bn, None, mode_)
