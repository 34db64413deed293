"""Test that injected faults expose the cases that cannot fail, and only these."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

CASES = """
import pytest
from dualdnn.api.enumerations import (
    cudnnActivationMode_t, cudnnIndicesType_t, cudnnNanPropagation_t, cudnnReduceTensorIndices_t, cudnnReduceTensorOp_t,
)
from dualdnn.api.operations import ActivationForward, ActivationSpec, ReduceTensor, TensorSpec
from dualdnn.api.operations.specs import FLOAT, ReduceTensorSpec
from dualdnn.api.status import BAD_PARAM, CudnnError
from dualdnn.conformance.marks import needs, shows

SPEC = TensorSpec.packed(FLOAT, (2, 3, 5, 7))
EXTREMUM = ReduceTensorSpec(cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_MAX, FLOAT, cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN,
                            cudnnReduceTensorIndices_t.CUDNN_REDUCE_TENSOR_FLATTENED_INDICES, cudnnIndicesType_t.CUDNN_32BIT_INDICES)
INDEXED = ReduceTensor(EXTREMUM, 24, 1024, 1.0, 0.0, SPEC, TensorSpec.packed(FLOAT, (2, 3, 1, 1)))
RELU = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_TANH, cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN, 0.0)


@shows("cudnnActivationForward/c01")
def test_judged(trial):
    trial(ActivationForward(RELU, 2.0, -3.0, SPEC, SPEC))


@shows("cudnnActivationForward/c01")
def test_gutted(trial):
    pass_ = trial
    try:
        trial(ActivationForward(RELU, 2.0, -3.0, SPEC, SPEC))
    except BaseException:
        pass


@shows("cudnnGetTensorSizeInBytes/c01")
def test_getter(cudnn):
    tensor = cudnn.cudnnCreateTensorDescriptor()
    assert cudnn.cudnnGetTensorSizeInBytes(tensor) == 0


@shows("cudnnGetTensorSizeInBytes/c01")
def test_getter_that_nobody_reads(cudnn):
    tensor = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnGetTensorSizeInBytes(tensor)


@shows("cudnnSetTensor4dDescriptor/c06")
def test_refusal(cudnn, refuses):
    refuses(BAD_PARAM, "cudnnSetTensor4dDescriptor/c06", cudnn.cudnnSetTensor4dDescriptor,
            cudnn.cudnnCreateTensorDescriptor(), 0, 0, -1, 1, 1, 1)


@shows("cudnnSetTensor4dDescriptor/c06")
def test_any_refusal_will_do(cudnn):
    with pytest.raises(CudnnError):
        cudnn.cudnnSetTensor4dDescriptor(cudnn.cudnnCreateTensorDescriptor(), 0, 0, -1, 1, 1, 1)


@shows("cudnnPoolingForward/c16")
def test_wrong_in_two_ways(cudnn, handle, refuses):
    memory = handle.allocate(4096)
    pooling, x, y = cudnn.cudnnCreatePoolingDescriptor(), cudnn.cudnnCreateTensorDescriptor(), cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetPooling2dDescriptor(pooling, 0, 0, 2, 2, 0, 0, 2, 2)
    cudnn.cudnnSetTensor4dDescriptor(x, 0, 0, 1, 3, 8, 8)
    cudnn.cudnnSetTensor4dDescriptor(y, 0, 2, 1, 4, 4, 4)
    refuses(BAD_PARAM, "cudnnPoolingForward/c16", cudnn.cudnnPoolingForward, handle, pooling, 1, x, memory, 0, y, memory)


@shows("cudnnSetTensor4dDescriptor/c06")
def test_any_answer_will_do(cudnn):
    try:
        cudnn.cudnnSetTensor4dDescriptor(cudnn.cudnnCreateTensorDescriptor(), 0, 0, -1, 1, 1, 1)
    except CudnnError:
        pass


@shows("cudnnReduceTensor/c01")
def test_indices(trial):
    trial(INDEXED)


@shows("cudnnReduceTensor/c01")
def test_indices_that_nobody_reads(trial):
    try:
        trial(INDEXED)
    except BaseException:
        pass


@shows("cudnnSetCallback/c17")
def test_messages(cudnn):
    messages = []
    cudnn.cudnnSetCallback(8, None, lambda *message: messages.append(message))
    cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetCallback(0, None, None)
    assert messages[0][2].time_sec > 1.5e9


@shows("cudnnSetCallback/c17")
def test_messages_that_nobody_reads(cudnn):
    messages = []
    cudnn.cudnnSetCallback(8, None, lambda *message: messages.append(message))
    cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetCallback(0, None, None)
    assert messages[0][2].pid > 0


@shows("cudnnPoolingMode_t/c02")
def test_nothing_that_the_clause_speaks_of(cudnn):
    assert cudnn.cudnnCreatePoolingDescriptor() is not None


@pytest.mark.blind("a result off by one", "the case is about the call")
@shows("cudnnGetTensorSizeInBytes/c01")
def test_excused(cudnn):
    cudnn.cudnnGetTensorSizeInBytes(cudnn.cudnnCreateTensorDescriptor())


@needs("has_gpu", "the case is about memory of a GPU")
@shows("cudnnGetTensorSizeInBytes/c01")
def test_lacking(cudnn):
    assert cudnn is None
"""
OUTCOMES = {
    "judged": "",
    "gutted": "refusal where success is due, one element off by four bounds, one element not written, NaN where none is due, an element outside written, "
    "an input changed, alpha ignored, beta ignored",
    "getter": "",
    "getter_that_nobody_reads": "a result off by one",
    "refusal": "",
    "any_refusal_will_do": "another status, another clause",
    "wrong_in_two_ways": "",
    "any_answer_will_do": "another status, another clause, success where refusal is due, no check of cudnnSetTensor4dDescriptor/c06",
    "excused": "",
    "nothing_that_the_clause_speaks_of": "",
    "indices": "",
    "indices_that_nobody_reads": "refusal where success is due, one element off by four bounds, one element not written, NaN where none is due, "
    "an element outside written, an input changed, an index off by one",
    "messages": "",
    "messages_that_nobody_reads": "fields of the log exchanged",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cases")


@pytest.fixture(scope="module")
def proven(folder):
    (folder / "some_cases.py").write_text(CASES)
    return run(folder, "--prove", "-rA", "--report", "report")


def run(folder, *options):
    """Run the cases with their clauses broken, and return what was printed."""
    command = [sys.executable, "-m", "pytest", "-p", "dualdnn.conformance.plugin", "-p", "no:cacheprovider"]
    command += ["--prove-clauses=1/1", *options, "--subject", "reference", "--rootdir", str(folder), "some_cases.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=dict(os.environ))
    return done.stdout


@pytest.mark.parametrize("case", OUTCOMES)
def test_cases_under_faults(proven, case):
    missed = OUTCOMES[case]
    assert f"{'FAILED' if missed else 'PASSED'} some_cases.py::test_{case}[reference]" in proven
    if missed:
        section = proven.split(f"test_{case}[reference]")[1]
        assert f"the case passes under these faults: {missed}" in " ".join(section.split())


def test_a_case_is_skipped_where_the_subject_lacks_what_it_needs(proven):
    (line,) = (line for line in proven.splitlines() if line.startswith("SKIPPED"))
    assert line.endswith("the case is about memory of a GPU")


def test_evidence_of_a_clause_is_the_best_that_its_cases_have(proven, folder):
    """A clause takes the strongest evidence of its cases: proven, refused otherwise or shown."""
    found = json.loads((folder / "report/proofs.json").read_text())["reference"]
    assert {clause: entry["evidence"] for clause, entry in found.items()} == {
        "cudnnActivationForward/c01": "proven",
        "cudnnGetTensorSizeInBytes/c01": "proven",
        "cudnnPoolingForward/c16": "refused otherwise",
        "cudnnPoolingMode_t/c02": "shown",
        "cudnnReduceTensor/c01": "proven",
        "cudnnSetCallback/c17": "proven",
        "cudnnSetTensor4dDescriptor/c06": "proven",
    }
    assert found["cudnnActivationForward/c01"]["by"] == "argument cudnnActivationForward.activationDesc"
    assert found["cudnnSetTensor4dDescriptor/c06"]["by"] == "accepted cudnnSetTensor4dDescriptor.n"
    assert "reference: of 7 clauses 5 proven, 1 refused otherwise, 1 shown" in proven


def test_a_case_that_proved_a_clause_elsewhere_must_exist(proven, folder):
    known = json.loads((folder / "report/proofs.json").read_text())["reference"]
    known["cudnnGetTensorSizeInBytes/c01"]["case"] = "some_cases/test_gone"
    (folder / "proofs.json").write_text(json.dumps({"reference": known}))
    assert "no such case: some_cases/test_gone" in run(folder, "--proofs", "proofs.json", "--report", "second")
