"""Test that a handle remembers searches for convolution algorithms."""

import pytest
from dualdnn.api import cudnn
from dualdnn.api.operations import BackendError, Unavailable, answers
from dualdnn.api.status import EXECUTION_FAILED, CudnnError


@pytest.fixture
def asked(monkeypatch):
    """Return a function that makes every query and search of one problem, and the list of questions to the backend."""
    owner = cudnn.cudnnCreate(backend="reference")
    questions = []
    for name in ("workspace_bytes", "preferred_algorithms"):
        answer = getattr(owner.backend, name)
        monkeypatch.setattr(owner.backend, name, lambda given, answer=answer: questions.append(given) or answer(given))
    x, w, c = (
        make()
        for make in (
            cudnn.cudnnCreateTensorDescriptor,
            cudnn.cudnnCreateFilterDescriptor,
            cudnn.cudnnCreateConvolutionDescriptor,
        )
    )
    mode = cudnn.CUDNN_CROSS_CORRELATION

    def ask(size, rows=100, filters=4):
        cudnn.cudnnSetTensor4dDescriptor(x, cudnn.CUDNN_TENSOR_NCHW, cudnn.CUDNN_DATA_FLOAT, 1, 4, size, 5)
        cudnn.cudnnSetFilter4dDescriptor(w, cudnn.CUDNN_DATA_FLOAT, cudnn.CUDNN_TENSOR_NCHW, 4, filters, 3, 3)
        cudnn.cudnnSetConvolution2dDescriptor(c, 1, 1, 1, 1, 1, 1, mode, cudnn.CUDNN_DATA_FLOAT)
        return (
            cudnn.cudnnGetConvolutionForwardAlgorithm_v7(owner, x, w, c, x, rows),
            cudnn.cudnnGetConvolutionBackwardDataAlgorithm_v7(owner, w, x, c, x, rows),
            cudnn.cudnnGetConvolutionBackwardFilterAlgorithm_v7(owner, x, x, c, w, rows),
            cudnn.cudnnGetConvolutionForwardWorkspaceSize(owner, x, w, c, x, 0),
            cudnn.cudnnGetConvolutionBackwardDataWorkspaceSize(owner, w, x, c, x, 0),
            cudnn.cudnnGetConvolutionBackwardFilterWorkspaceSize(owner, x, x, c, w, 0),
        )

    return owner, ask, questions


def test_the_backend_is_asked_once_for_a_problem(asked):
    _, ask, questions = asked
    first = ask(6)
    assert questions
    questions.clear()
    assert ask(6) == first
    assert not questions
    assert [found.returnedAlgoCount for found in ask(6, rows=2)[:3]] == [2, 2, 2]
    assert questions  # Another call asks the backend.


def test_remembered_searches_are_bounded(asked, monkeypatch):
    owner, ask, _ = asked
    monkeypatch.setattr(answers, "KEPT", 12)
    for size in range(3, 23):
        ask(size)
        assert 0 < len(owner.answers) <= 12


def test_a_refusal_is_not_remembered_as_an_answer(asked):
    _, ask, _ = asked
    ask(6)
    for _ in range(2):
        with pytest.raises(CudnnError, match="BAD_PARAM"):
            ask(6, filters=3)
    assert ask(6)[0].perfResults


def test_a_backend_that_fails_is_asked_again(asked, monkeypatch):
    owner, ask, questions = asked

    def fail(_):
        raise BackendError("no kernel")

    with monkeypatch.context() as broken:
        broken.setattr(owner.backend, "preferred_algorithms", fail)
        with pytest.raises(CudnnError, match="no kernel"):
            ask(6)
    questions.clear()
    ask(6)
    assert questions


@pytest.mark.parametrize("call", ["cudnnFindConvolutionForwardAlgorithm", "cudnnGetConvolutionForwardAlgorithm_v7"])
def test_an_algorithm_without_kernels_does_not_end_a_search(monkeypatch, call):
    """Where nothing can be compiled, one algorithm may lack its kernels while others have theirs."""
    owner = cudnn.cudnnCreate(backend="reference")
    missing = cudnn.CUDNN_CONVOLUTION_FWD_ALGO_GEMM
    known = owner.backend.workspace_bytes

    def workspace_bytes(operation):
        if operation.algo == missing:
            raise Unavailable("gemm.cu is not compiled")
        return known(operation)

    monkeypatch.setattr(owner.backend, "workspace_bytes", workspace_bytes)
    x, w, c = (
        cudnn.cudnnCreateTensorDescriptor(),
        cudnn.cudnnCreateFilterDescriptor(),
        cudnn.cudnnCreateConvolutionDescriptor(),
    )
    cudnn.cudnnSetTensor4dDescriptor(x, 0, 0, 1, 4, 6, 5)
    cudnn.cudnnSetFilter4dDescriptor(w, 0, 0, 4, 4, 3, 3)
    cudnn.cudnnSetConvolution2dDescriptor(c, 1, 1, 1, 1, 1, 1, 1, 0)
    status = {found.algo: found.status for found in getattr(cudnn, call)(owner, x, w, c, x, 100).perfResults}
    assert status[missing] == EXECUTION_FAILED
    assert status[cudnn.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM] == cudnn.CUDNN_STATUS_SUCCESS
