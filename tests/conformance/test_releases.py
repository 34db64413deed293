"""Test calls that the document refuses but a release of NVIDIA's library serves: only that release serves them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dualdnn.api import cudnn, releases
from dualdnn.api.status import CudnnError
from dualdnn.api.support.convolution import Problem, facts
from dualdnn.conformance.cases.convolution.convolution import PRECOMP, convolution
from dualdnn.conformance.differences import DIFFERENCES
from dualdnn.conformance.recorded.judging import AGREES, examine
from dualdnn.conformance.recorded.replay import Replayer
from dualdnn.conformance.subjects.recorded import recordings_of

CLAUSES = {clause for entry in releases.table() for clause in entry.clauses}
# Version 9.19 converts BFLOAT16 to DOUBLE wrongly, to zeros and unrelated numbers.
NO_CONVERSION = "0612"


@pytest.fixture
def told(monkeypatch):
    """Forget which differences were named, so that they are named again."""
    monkeypatch.setattr(releases, "_told", set())


def transform(handle, kind=cudnn.CUDNN_DATA_HALF):
    """Return what cudnnTransformTensor makes of four floats."""
    x, y = cudnn.cudnnCreateTensorDescriptor(), cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(x, cudnn.CUDNN_TENSOR_NCHW, cudnn.CUDNN_DATA_FLOAT, 1, 4, 1, 1)
    cudnn.cudnnSetTensor4dDescriptor(y, cudnn.CUDNN_TENSOR_NCHW, kind, 1, 4, 1, 1)
    memory = handle.to_device(np.array([1, -2, 0.1, 65504], np.float32)), handle.allocate(16)
    cudnn.cudnnTransformTensor(handle, 1.0, x, memory[0], 0.0, y, memory[1])
    return memory[1].to_host(y)


def test_every_entry_belongs_to_a_declared_difference():
    declared = {entry.id: entry for entry in DIFFERENCES}
    for entry in releases.table():
        assert set(entry.clauses) & set(declared[entry.difference].clauses), entry
        assert set(entry.releases) <= set(releases.RELEASES)


@pytest.mark.usefixtures("told")
def test_the_document_is_the_default(monkeypatch, capsys):
    monkeypatch.delenv("DUALDNN_AS", raising=False)
    document, release = (
        cudnn.cudnnCreate(backend="reference"),
        cudnn.cudnnCreate(backend="reference", as_release="8.9.7"),
    )
    for _ in range(2):  # Handles do not share answers.
        with pytest.raises(CudnnError, match=r"BAD_PARAM: data types differ.*cudnnTransformTensor/c11"):
            transform(document)
        assert transform(release).ravel().tolist() == [1.0, -2.0, np.float16(0.1), 65504.0]
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "as 8.9.7 serves it" in said
    assert "[cudnnTransformTensor/c11]" in said and "V-transform-types" in said


def test_the_environment_names_a_release(monkeypatch):
    monkeypatch.setenv("DUALDNN_AS", "8.9.7")
    transform(cudnn.cudnnCreate(backend="reference"))
    rnn = cudnn.cudnnCreateRNNDescriptor()
    described = (rnn, 3, cudnn.CUDNN_GRU, cudnn.CUDNN_RNN_DOUBLE_BIAS, cudnn.CUDNN_UNIDIRECTIONAL, cudnn.CUDNN_LINEAR_INPUT,
                 cudnn.CUDNN_DATA_FLOAT, cudnn.CUDNN_DATA_FLOAT, cudnn.CUDNN_DEFAULT_MATH, 4, 4, 4, 1, None, 0)  # fmt: skip
    cudnn.cudnnSetRNNDescriptor_v8(*described)
    assert cudnn.cudnnGetRNNDescriptor_v8(rnn).algo is cudnn.CUDNN_RNN_ALGO_PERSIST_STATIC
    with pytest.raises(CudnnError, match="algo is 4"):
        cudnn.cudnnSetRNNDescriptor_v8(rnn, 4, *described[2:])
    with pytest.raises(CudnnError, match="BAD_PARAM"):
        transform(cudnn.cudnnCreate(backend="reference", as_release="8.0.3"))
    monkeypatch.setenv("DUALDNN_AS", "7")
    with pytest.raises(CudnnError, match=r"'7' is not a release.*8\.0\.3, 8\.9\.7, 9\.19"):
        cudnn.cudnnCreate(backend="reference")


def test_a_call_that_no_release_serves_is_refused():
    release = cudnn.cudnnCreate(backend="reference", as_release="9.19")
    with pytest.raises(CudnnError, match="cudnnTransformTensor/c11"):
        transform(release, cudnn.CUDNN_DATA_INT32)


def test_no_release_serves_positions_that_32_bits_do_not_count():
    """Releases serve algorithms and types that the tables lack, but refuse positions that overflow 32 bits."""
    plain = convolution((1, 1, 1, 4), (1, 1, 1, 1), algo=PRECOMP, padding=(0, 0))
    wide = replace(plain.convolution, padding=(0, 2**30), stride=(1, 2**30))
    problems = [Problem(c, plain.x, plain.w, plain.y) for c in (plain.convolution, wide)]
    covered = [
        any(entry.covers("cudnnConvolutionForward/c58", facts(p, PRECOMP)) for entry in releases.table())
        for p in problems
    ]
    assert covered == [True, False]


@pytest.mark.parametrize("release", releases.RELEASES)
def test_recorded_calls_that_are_served_compute_what_was_recorded(release):
    """Calls that the document refuses and the release serves compute what 9.19 computed."""
    document = Replayer(cudnn, cudnn.cudnnCreate(backend="reference", as_release="8.0.3"), compute=False)
    served = Replayer(cudnn, cudnn.cudnnCreate(backend="reference", as_release=release))
    functions = {clause.partition("/")[0] for clause in CLAUSES} | {"cudnnConvolutionBiasActivationForward"}
    agreed = 0
    for recording in recordings_of("recorded"):
        for record in recording.records:
            known = record.function in functions and record.arguments is not None and not record.incomplete
            if not known or int(recording.status(record)) or record.id == NO_CONVERSION:
                continue
            refused = document(record).error
            if refused is None or refused.clause not in CLAUSES:
                continue
            finding = examine(record, recording, served)
            if finding.clause != refused.clause:  # Some refusals by such a clause stay.
                assert finding.kind == AGREES, finding
                agreed += 1
    assert agreed >= 80
