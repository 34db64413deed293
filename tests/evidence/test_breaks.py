"""Test breaks of clauses: each sentence has the right ones, each changes a call, and nothing remains after it."""

from __future__ import annotations

import json
from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dualdnn.api import cudnn, miopen
from dualdnn.api.document import functions
from dualdnn.api.enumerations import (
    ENUMERATIONS,
    cudnnActivationMode_t,
    cudnnDataType_t,
    cudnnNanPropagation_t,
    cudnnTensorFormat_t,
)
from dualdnn.api.miopen.document import functions as miopen_functions
from dualdnn.api.operations import ActivationForward, ActivationSpec, TensorSpec
from dualdnn.api.status import CudnnError
from dualdnn.conformance import scope
from dualdnn.conformance.breaks import HOWS, Border, Break, breaks_of
from dualdnn.conformance.breaks.border import is_filled, parameters_of
from dualdnn.conformance.breaks.demands import is_due
from dualdnn.conformance.breaks.matters import DECLARED, algorithms_of, is_silent, matters_of
from dualdnn.conformance.breaks.memory import MEMORY_BREAKS, Judged
from dualdnn.conformance.breaks.proofs import Outcome, is_checked, of_part
from dualdnn.conformance.breaks.rules import NUMBERED, OF_MEMORY
from dualdnn.conformance.breaks.runs import Case
from dualdnn.conformance.breaks.siblings import of_siblings
from dualdnn.conformance.breaks.values import others
from dualdnn.conformance.suite import proofs
from dualdnn.conformance.suite.proofs import PATH, PROVEN, SHOWN, UNLISTED, differing, evidence, joined, unproven
from dualdnn.conformance.suite.prove import Faulty
from dualdnn.conformance.suite.selection import names_part, proven_elsewhere

RELU, TANH = cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnActivationMode_t.CUDNN_ACTIVATION_TANH
NAN = cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN
FLOAT, NCHW = cudnnDataType_t.CUDNN_DATA_FLOAT, cudnnTensorFormat_t.CUDNN_TENSOR_NCHW

FIRST = {  # clause -> the first break of its sentence
    "cudnnPoolingMode_t/c02": "enumerator CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING",
    "cudnnRNNForward/c37": "filled cudnnRNNForward.cx",
    "cudnnActivationBackward/c02": "shared memory refused cudnnActivationBackward",
    "cudnnSetDropoutDescriptor/c09": "unsteady cudnnSetDropoutDescriptor",
    "cudnnGetFilterNdDescriptor/c04": "result cudnnGetFilterNdDescriptor.format",
    "cudnnRNNBackwardData/c18": "accepted cudnnRNNBackwardData.dhyDesc",
    "cudnnCTCLoss/c09": "unwritten cudnnCTCLoss.costs",
    "cudnnGetCTCLossWorkspaceSize/c04": "accepted cudnnGetCTCLossWorkspaceSize.input length",
    "cudnnRNNForwardTraining/c06": "accepted cudnnRNNForwardTraining.seqLength",
    "cudnnNormAlgo_t/c02": "element * where CUDNN_NORM_ALGO_PERSIST",
    "cudnnRNNForward/c14": "accepted cudnnRNNForward.xDesc",
    "cudnnRNNForward/c26": "accepted cudnnRNNForward.hDesc",
    "cudnnRNNForward/c24": "accepted cudnnRNNForward.hDesc where CUDNN_UNIDIRECTIONAL",
}


@pytest.mark.parametrize("clause", FIRST)
def test_the_first_break_of_a_clause_is_of_what_its_text_names(clause):
    assert str(breaks_of(scope.clauses()[clause])[0]).startswith(FIRST[clause])


def test_every_break_can_be_made():
    """Every break is of a known kind, and its parameter belongs to its function or to the function's result."""
    found = {broken for clause in scope.clauses().values() for broken in breaks_of(clause)}
    assert {broken.how for broken in found} <= {*HOWS, *OF_MEMORY, NUMBERED}
    arguments = {b for b in found if b.how in ("argument", "meaning", "unread", "unwritten") and b.point}
    assert arguments and all(b.point in {p.name for p in parameters_of(b.function)} for b in arguments)
    assert {broken.function for broken in found} - {""} <= {*functions(), *miopen_functions()}
    assert set(DECLARED) <= set(scope.in_scope())


def test_other_values_are_others():
    spec = TensorSpec.packed(FLOAT, (2, 3, 4, 5))
    for value in (True, 3, 2.5, RELU, (1, 2), spec):
        found = list(others(value))
        assert found and value not in found
    assert next(others(spec, "shape")).dims != spec.dims
    assert next(others(spec, "layout")).strides != spec.strides


miopen_results = namedtuple("miopen_results", ["returnedAlgoCount", "perfResults"])


@pytest.fixture
def border():
    made = Border(HOWS)
    yield made
    made.end()


def relu(border, *values, mode=RELU):
    """Return an activation of the values and the mode that its getter returns, both through a border."""
    handle = cudnn.cudnnCreate(backend="reference")
    activation, tensor = cudnn.cudnnCreateActivationDescriptor(), cudnn.cudnnCreateTensorDescriptor()
    border.call("cudnnSetActivationDescriptor", cudnn.cudnnSetActivationDescriptor, activation, mode, NAN, 0.0)
    cudnn.cudnnSetTensor4dDescriptor(tensor, NCHW, FLOAT, 1, 1, 1, len(values))
    x, y = handle.to_device(np.array(values, np.float32)), handle.allocate(4 * len(values))
    call = cudnn.cudnnActivationForward
    border.call("cudnnActivationForward", call, handle, activation, 1.0, tensor, x, 0.0, tensor, y)
    read = border.call("cudnnGetActivationDescriptor", cudnn.cudnnGetActivationDescriptor, activation)
    return y.to_host(np.float32, (len(values),)).tolist(), read[0]


def test_a_meaning_is_another_where_it_counts_and_reads_back_as_set(border):
    border.begin(Break("meaning", "cudnnSetActivationDescriptor", "mode"))
    found, mode = relu(border, -1.0, 2.0)
    assert border.applied and found[1] == pytest.approx(np.tanh(2.0)) and mode == RELU
    border.end()
    assert relu(border, -1.0, 2.0) == ([0.0, 2.0], RELU)


def test_an_enumerator_that_no_call_says_breaks_nothing(border):
    border.begin(Break("enumerator", "", "CUDNN_ACTIVATION_ELU", "cudnnActivationMode_t"))
    assert relu(border, -1.0, 2.0) == ([0.0, 2.0], RELU) and not border.applied


@pytest.mark.parametrize(
    "how, point, expected", [("unread", "x", [0.0, 0.0]), ("unwritten", "y", [0.0, 0.0]), ("unsteady", "", [0.0, 2.0])]
)
def test_memory_that_is_not_read_or_not_written(border, how, point, expected):
    border.begin(Break(how, "cudnnActivationForward", point))
    found, _ = relu(border, -1.0, 2.0)
    assert found == expected if how != "unwritten" else found != [0.0, 2.0]
    assert border.applied == (how != "unsteady")


def test_a_refusal_that_names_the_parameter_is_accepted(border):
    tensor = cudnn.cudnnCreateTensorDescriptor()
    call = cudnn.cudnnSetTensor4dDescriptor
    border.begin(Break("accepted", "cudnnSetTensor4dDescriptor", "N"))  # Case is ignored: NVIDIA also has workSpace.
    assert border.call("cudnnSetTensor4dDescriptor", call, tensor, NCHW, FLOAT, 0, 1, 1, 1) is None and border.applied
    border.begin(Break("accepted", "cudnnSetTensor4dDescriptor", "dataType"))
    with pytest.raises(CudnnError):
        border.call("cudnnSetTensor4dDescriptor", call, tensor, NCHW, FLOAT, 0, 1, 1, 1)
    assert not border.applied


DUE = TensorSpec.packed(FLOAT, (4, 3, 7))
PACKED = "cudnnRNNForwardInference/c16"
WIDER = TensorSpec.packed(FLOAT, (4, 3, 8))


@pytest.mark.parametrize(
    "clause, status, message, due",
    [
        (PACKED, "CUDNN_STATUS_BAD_PARAM", "hxDesc is NULL", False),
        (PACKED, "CUDNN_STATUS_BAD_PARAM", f"hxDesc is {WIDER}, {DUE} is due", False),
        (PACKED, "CUDNN_STATUS_BAD_PARAM", f"hxDesc is {TensorSpec(FLOAT, DUE.dims, (22, 7, 1))}, {DUE} is due", True),
        ("cudnnRNNForward/c28", "CUDNN_STATUS_BAD_PARAM", f"hDesc is {WIDER}, {DUE} is due", True),
        ("cudnnRNNForward/c26", "CUDNN_STATUS_BAD_PARAM", f"hDesc is {WIDER}, {DUE} is due", False),
        ("cudnnRNNForward/c11", "CUDNN_STATUS_BAD_PARAM", "xDesc has vectors of 6 elements, 5 are due", False),
        ("cudnnRNNForward/c11", "CUDNN_STATUS_BAD_PARAM", "xDesc and yDesc differ in layout: 0 and 1", True),
        ("cudnnBackendFinalize/c06", "CUDNN_STATUS_NOT_SUPPORTED", "no knob", False),
        ("cudnnBackendFinalize/c06", "CUDNN_STATUS_BAD_PARAM", "no knob", True),
        ("miopenSetLRNDescriptor/c03", "miopenStatusNotImplemented", "mode is miopenLRNWithinChannel", False),
    ],
)
def test_a_refusal_proves_the_demand_that_it_names(clause, status, message, due):
    assert is_due(clause, status, None, message) == due
    assert is_due(clause, status, clause, "any message of its own check")


def test_a_refusal_for_another_matter_is_made_nonetheless(border):
    call = cudnn.cudnnSetTensor4dDescriptor
    border.begin(Break("accepted", "cudnnSetTensor4dDescriptor", clause=PACKED))
    with pytest.raises(CudnnError, match="NULL"):
        border.call("cudnnSetTensor4dDescriptor", call, None, NCHW, FLOAT, 1, 1, 1, 1)
    assert not border.applied


def test_functions_of_the_second_document_are_put_back(border):
    before = miopen.miopenCreateTensorDescriptor
    border.begin(Break("refused", "miopenCreateTensorDescriptor"))
    with pytest.raises(CudnnError):
        miopen.miopenCreateTensorDescriptor()
    border.end()
    assert miopen.miopenCreateTensorDescriptor is before


def test_a_clause_that_is_neither_proven_nor_listed_is_told():
    clause = next(c for c in scope.in_scope() if c not in unproven("reference"))
    result = {"subject": "reference", "id": "a/test", "outcome": "passed", "clauses": [clause], "noticed": []}
    assert evidence([result])["reference"][clause]["evidence"] == SHOWN
    assert differing([result], "1/1") == ([f"reference: 1 clauses are not proven and not listed: {clause}"], [])
    result["noticed"] = [f"break of {clause}: nothing cudnnDestroy"]
    assert evidence([result])["reference"][clause] == {
        "evidence": PROVEN,
        "by": "nothing cudnnDestroy",
        "case": "a/test",
    }
    assert differing([result], "1/1") == ([], [])


def test_every_clause_that_is_not_proven_is_listed_with_a_known_reason():
    known = json.loads(PATH.read_text(encoding="utf-8"))["reasons"]
    assert set(unproven("reference").values()) <= set(known) and set(UNLISTED.values()) <= set(known)
    assert set(unproven("reference")) <= set(scope.in_scope())
    assert unproven("reference@9.19") == unproven("reference")


def test_a_clause_that_is_listed_and_proven_is_told():
    clause = next(one for one in unproven("reference") if matters_of(scope.clauses()[one]) == ("",))
    result = {"subject": "reference", "id": "a/test", "outcome": "passed", "clauses": [clause]}
    found = differing([result | {"noticed": [f"no check of {clause}"]}], "1/1")
    assert found == ([], [f"reference: 1 clauses are proven and listed as unproven: {clause}"])


def call(border, name, *arguments):
    return border.call(name, getattr(cudnn, name), *arguments)


def test_a_descriptor_that_a_call_fills_holds_something_else(border):
    x, derived = cudnn.cudnnCreateTensorDescriptor(), cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(x, NCHW, FLOAT, 2, 3, 4, 5)
    border.begin(Break("stored", "cudnnDeriveBNTensorDescriptor", "derivedBnDesc", kind="dtype"))
    call(border, "cudnnDeriveBNTensorDescriptor", derived, x, 1)
    assert border.applied and cudnn.cudnnGetTensorNdDescriptor(derived, 8)[0] != FLOAT


def test_a_break_changes_or_drops_the_message_of_a_callback(border):
    found: list[Any] = []
    for point, ends in (("msg", False), ("", None)):
        border.begin(Break("called back", "cudnnSetCallback", point))
        call(border, "cudnnSetCallback", 8, None, lambda *said: found.append(said))
        cudnn.cudnnCreateTensorDescriptor()
        cudnn.cudnnSetCallback(0, None, None)
        assert border.applied and {said[3].endswith("\0") for said in found} == ({ends} if point else set())
        found.clear()


def test_an_enumeration_has_other_numbers_until_the_break_ends(border):
    kind = ENUMERATIONS["cudnnFusedOps_t"]
    border.begin(Break("numbered", type="cudnnFusedOps_t"))
    assert [int(member) for member in ENUMERATIONS["cudnnFusedOps_t"]] != list(range(7))
    border.end()
    assert ENUMERATIONS["cudnnFusedOps_t"] is kind


def test_a_second_run_gets_fresh_descriptors_from_its_fixtures(border):
    """The second run gets a descriptor that the first run did not set. A break refuses to create it."""
    tensor = cudnn.cudnnCreateTensorDescriptor()

    def case(descriptor):
        assert descriptor.spec is None
        cudnn.cudnnSetTensor4dDescriptor(descriptor, NCHW, FLOAT, 1, 1, 1, 1)

    run = Case(case, {"descriptor": tensor}, [tensor], border)
    assert not run.fails() and not run.fails()
    border.begin(Break("refused", "cudnnCreateTensorDescriptor"))
    assert run.fails() and border.applied


def test_the_best_evidence_of_parts_counts():
    shown, proven = {"evidence": SHOWN}, {"evidence": PROVEN, "by": "nothing", "case": "a/test"}
    found = joined([{"reference": {"a": shown, "b": proven}}, {"reference": {"a": proven, "b": shown}}])
    assert found == {"reference": {"a": proven, "b": proven}}


def test_the_list_of_one_backend_leaves_out_what_is_unproven_on_both(tmp_path, monkeypatch):
    first, second = scope.in_scope()[:2]
    shown, proven = {"evidence": SHOWN}, {"evidence": PROVEN}
    path = tmp_path / "unproven.json"
    path.write_text(json.dumps({"unproven": {"reference": {}}}))
    monkeypatch.setattr(proofs, "PATH", path)
    found = {"accelerated:emulated": {first: shown, second: shown}, "reference": {first: shown, second: proven}}
    (tmp_path / "proofs.json").write_text(json.dumps(found))
    proofs.main([str(tmp_path / "proofs.json")])
    listed = json.loads(path.read_text())["unproven"]
    assert listed == {"reference": {"not varied": [first]}, "accelerated": {"not varied": [second]}}
    assert set(unproven("accelerated:emulated")) == {first, second} and set(unproven("reference@9")) == {first}


def test_a_clause_that_is_due_and_that_no_case_shows_is_told():
    clause = next(c for c in scope.in_scope() if c not in unproven("reference"))
    result = {"subject": "reference", "id": "a/test", "outcome": "passed", "clauses": [], "noticed": []}
    assert differing([result], "1/1", [clause])[0] == [f"reference: 1 clauses are not proven and not listed: {clause}"]


@pytest.mark.parametrize(
    "clause, called, refuses, proves",
    [
        ("cudnnRNNBackwardDataEx/c09", {"cudnnRNNForwardTrainingEx"}, False, False),
        ("cudnnRNNBackwardDataEx/c09", {"cudnnRNNForwardTrainingEx", "cudnnRNNBackwardDataEx"}, False, True),
        ("cudnnSetLRNDescriptor/c12", {"cudnnCreateLRNDescriptor", "cudnnGetLRNDescriptor"}, False, True),
        ("cudnnBatchNormalizationForwardTraining/c01", {"cudnnBatchNormalizationForwardTraining"}, True, False),
        ("cudnnBatchNormalizationForwardTraining/c07", {"cudnnBatchNormalizationForwardTraining"}, True, True),
        ("cudnnConvolutionBackwardFilter/c10", {"cudnnConvolutionBackwardFilter"}, True, True),
        ("cudnnRNNForward/c26", {"cudnnRNNForward"}, True, False),
    ],
)
def test_a_failure_proves_a_clause_only_in_its_own_call(clause, called, refuses, proves):
    """Refusing a wrong argument proves what a call accepts, but nothing that it computes."""
    broken = Break("unwritten", "cudnnRNNForwardTrainingEx", "y")
    assert Outcome(True, True, frozenset(called), refuses).proves(scope.clauses()[clause], broken) == proves


def test_a_break_of_memory_meets_calls_with_its_enumerator_alone(border):
    for name, meant in (("CUDNN_ACTIVATION_RELU", True), ("CUDNN_ACTIVATION_TANH", False)):
        border.begin(Break("element", only=(name,)))
        relu(border, 1.0)
        assert border.meant == meant
        border.end()


def test_a_later_call_gets_the_argument_of_the_first(border):
    border.begin(Break("stale", "cudnnActivationForward", "x"))
    assert relu(border, 1.0, 2.0)[0] == [1.0, 2.0] and not border.applied
    assert relu(border, 3.0, 4.0)[0] == [1.0, 2.0] and border.applied


def test_the_first_call_alone_is_made(border):
    border.begin(Break("refused again", "cudnnActivationForward"))
    assert relu(border, 1.0, 2.0)[0] == [1.0, 2.0] and not border.applied
    with pytest.raises(CudnnError):
        relu(border, 3.0, 4.0)
    assert border.applied


def test_a_list_among_other_results_is_reversed(border):
    name = "miopenFindConvolutionForwardAlgorithm"
    found = miopen_results(2, ["fast", "slow"])
    other = HOWS["unordered"](border, Break("unordered", name), name, lambda: found, [])
    assert other == (2, ["slow", "fast"]) and border.applied


def test_a_call_makes_one_iteration_less(border):
    name = "cudnnRNNForwardInference"
    given = [[0] * 3 if p.name in ("xDesc", "yDesc") else 3 for p in parameters_of(name)]
    taken = HOWS["fewer"](border, Break("fewer", name, "seqLength"), name, lambda *values: values, given)
    assert [p.name for p, one in zip(parameters_of(name), taken, strict=True) if one in (2, [0, 0])] == [
        "seqLength",
        "xDesc",
        "yDesc",
    ]


def test_an_input_is_added_to_the_output():
    spec = TensorSpec.packed(FLOAT, (1, 1, 1, 2))
    operation = ActivationForward(ActivationSpec(TANH, NAN, 0.0), 1.0, 0.0, spec, spec)
    x, y = (np.array(values, np.float32).view(np.uint8) for values in ([1.0, 2.0], [10.0, 20.0]))
    judged = Judged(operation, {"x": x, "y": y.copy()}, {}, {"y": y}, {"y": 0})
    assert MEMORY_BREAKS["added"](judged, "x") and y.view(np.float32).tolist() == [11.0, 22.0]


@pytest.mark.parametrize(
    "values, applies", [([1.0, np.nan, 2.0], True), ([1.0, -np.inf, 2.0], True), ([1.0, 2.0, 3.0], False)]
)
def test_a_number_takes_the_place_of_no_number(values, applies):
    spec = TensorSpec.packed(FLOAT, (1, 1, 1, 3))
    operation = ActivationForward(ActivationSpec(TANH, NAN, 0.0), 1.0, 0.0, spec, spec)
    memory = np.array(values, np.float32).view(np.uint8)
    judged = Judged(operation, {"y": memory.copy()}, {}, {"y": memory}, {"y": 0})
    assert MEMORY_BREAKS["special"](judged, "") == applies and np.isfinite(memory.view(np.float32)).all()


def test_a_demand_is_about_the_call_that_it_names():
    clause = scope.clauses()["cudnnGetConvolution2dForwardOutputDim/c05"]
    found = Outcome(True, True, frozenset({"cudnnConvolutionForward"}), False)
    assert found.proves(clause, Break("accepted", "cudnnConvolutionForward"))
    assert not found.proves(clause, Break("unwritten", "cudnnConvolutionForward"))


@pytest.mark.parametrize(
    "parameters, proves",
    [
        (["CUDNN_CONVOLUTION_BWD_DATA_ALGO_0", "FLOAT"], False),
        (["CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED", "FLOAT"], True),
        (["CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED", "DOUBLE"], False),
        (["5x5"], True),
    ],
)
def test_a_clause_is_proven_by_its_own_parameters_only(parameters, proves):
    """The clause names one algorithm, and configurations that do not include DOUBLE."""
    clause = "cudnnConvolutionBackwardData/c16"
    siblings = [*parameters, "CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED", pytest.param("FLOAT")]
    marks = [SimpleNamespace(args=("pin", siblings))]
    item = SimpleNamespace(
        callspec=SimpleNamespace(params=dict(enumerate(parameters))), iter_markers=lambda name: iter(marks)
    )
    assert (clause not in of_siblings(item, [clause])) == proves


@pytest.mark.parametrize(
    "clause, parameter, siblings, proves",
    [
        ("cudnnSoftmaxMode_t/c03", "FAST-instance", ["FAST-channel"], False),
        ("cudnnSoftmaxMode_t/c03", "FAST-channel", ["FAST-instance"], True),
        ("cudnnConvolutionForward/c30", "IMPLICIT_PRECOMP_GEMM dilation", ["WINOGRAD_NONFUSED stride"], False),
        ("cudnnConvolutionBiasActivationForward/c14", "FLOAT", ["PSEUDO_BFLOAT16"], False),
        ("cudnnConvolutionBiasActivationForward/c14", "PSEUDO_BFLOAT16", ["FLOAT"], True),
        ("CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR/c16", "dims3-c17-sum", ["dims0-c16-sum"], False),
    ],
)
def test_a_parameter_may_leave_out_the_beginning_of_a_name(clause, parameter, siblings, proves):
    marks = [SimpleNamespace(args=("pin", [parameter, *siblings]))]
    item = SimpleNamespace(callspec=SimpleNamespace(params={"pin": parameter}), iter_markers=lambda name: iter(marks))
    assert (clause not in of_siblings(item, [clause])) == proves


def test_two_clauses_may_forbid_one_thing():
    """A refused call has one defect if one argument differs from a call that succeeded. Filled arguments do not count."""
    faulty = Faulty(cudnn)
    faulty.succeeded["cudnnScaleTensor"] = [["a", "b", "c"]]
    assert faulty._has_one_defect("cudnnScaleTensor", ["a", "x", "c"])
    assert not faulty._has_one_defect("cudnnScaleTensor", ["a", "x", "y"])
    assert not faulty._has_one_defect("cudnnAddTensor", ["a", "x", "c"])
    assert is_filled("cudnnSetTensor4dDescriptor", 0) and not is_filled("cudnnSetTensor4dDescriptor", 1)
    assert is_filled("cudnnRNNSetClip", 1) and not is_filled("cudnnRNNSetClip", 0)
    assert not is_filled("cudnnSetPersistentRNNPlan", 0)


def test_the_proofs_of_another_subject_are_its_proven_clauses(tmp_path):
    proven = {"evidence": PROVEN, "by": "nothing", "case": "a/test"}
    path = tmp_path / "proofs.json"
    path.write_text(json.dumps({"reference": {"a": proven, "b": {"evidence": SHOWN}}}))
    config = SimpleNamespace(getoption=lambda name: {"--proofs": str(path)}[name])
    assert proven_elsewhere(config) == {"a": {"a/test": ["nothing"]}}
    assert proven_elsewhere(SimpleNamespace(getoption=lambda name: None)) is None


def test_rows_of_a_table_count_for_the_part_of_their_clauses():
    item = SimpleNamespace(function=SimpleNamespace(cited={"a/c01"}), iter_markers=lambda name: [])
    parts = [f"{i}/7" for i in range(1, 8)]
    assert [names_part(item, part) for part in parts] == [of_part("a/c01", part) for part in parts]


@pytest.mark.parametrize(
    "clause, matters",
    [
        ("cudnnActivationForward/c03", ("alpha", "beta")),
        ("cudnnCTCLossDescriptor_t/c01", ("cudnnCreateCTCLossDescriptor", "cudnnDestroyCTCLossDescriptor")),
        (
            "CUDNN_BACKEND_ENGINECFG_DESCRIPTOR/c04",
            ("attributeType", "elementCount", "other type", "too few", "too many", "other kind"),
        ),
        (
            "cudnnConvolutionForward/c27",
            (
                "refused",
                "accepted",
                "PSEUDO_HALF_CONFIG",
                "FLOAT_CONFIG",
                *(
                    f"{limit}{where}"
                    for limit in ("dilation 1", "stride 1", "padded input", "padding")
                    for where in ("", *(f" of CUDNN_CONVOLUTION_FWD_ALGO_FFT in dimension {at}" for at in range(2)))
                ),
            ),
        ),
        ("cudnnOpTensor/c03", tuple(member.name for member in ENUMERATIONS["cudnnOpTensorOp_t"])),
        ("cudnnRNNForwardTraining/c19", ("cx", "cx of other cells")),  # cxDesc describes it.
        ("cudnnPoolingBackward/c13", ("y", "dy", "x", "dx")),
        ("cudnnConvolutionForward/c47", ("",)),  # A relation of two is one matter.
        ("cudnnLRNMode_t/c01", ("cudnnLRNCrossChannelForward", "cudnnLRNCrossChannelBackward")),
        ("cudnnSetTensor/c01", ("y", "valuePtr")),
    ],
)
def test_a_list_has_a_matter_for_each_member(clause, matters):
    assert matters_of(scope.clauses()[clause]) == matters


def test_each_matter_has_a_break():
    known = [c for c in map(scope.clauses().get, scope.in_scope()) if c.id not in unproven("reference")]
    without = [(c.id, m) for c in known for m in matters_of(c) if m and not any(b.shows(m) for b in breaks_of(c))]
    assert not without


@pytest.mark.parametrize(
    "clause, broken, silent",
    [
        # A permission is broken by refusing what it permits, and nothing else.
        ("cudnnPoolingForward/c02", Break("refused", "cudnnPoolingForward"), True),
        ("cudnnPoolingForward/c02", Break("layout refused", "cudnnPoolingForward"), False),
        ("cudnnActivationForward/c06", Break("shared memory refused", "cudnnActivationForward"), False),
        # A function that destroys nothing would still succeed.
        ("cudnnDestroyRNNDataDescriptor/c01", Break("refused", "cudnnDestroyRNNDataDescriptor"), True),
        ("cudnnDestroyRNNDataDescriptor/c01", Break("nothing", "cudnnDestroyRNNDataDescriptor"), False),
        # A setter says nothing about a preset, and NULL means zeros only if other numbers give other results.
        ("cudnnSetRNNPaddingMode/c04", Break("nothing", "cudnnSetRNNPaddingMode"), True),
        ("cudnnSetRNNPaddingMode/c04", Break("result", "cudnnGetRNNPaddingMode"), False),
        ("cudnnRNNForward/c29", Break("NULL refused", "cudnnRNNForward", "hx"), True),
        ("cudnnRNNForward/c29", Break("filled", "cudnnRNNForward", "hx"), False),
        # What must be so shows where the call refuses the opposite.
        ("cudnnSetSeqDataDescriptor/c03", Break("argument", "cudnnSetSeqDataDescriptor", "nbDims"), True),
        ("cudnnSetSeqDataDescriptor/c03", Break("accepted", "cudnnSetSeqDataDescriptor", "nbDims"), False),
    ],
)
def test_a_break_that_is_silent_on_a_sentence_is_not_made(clause, broken, silent):
    found = scope.clauses()[clause]
    assert is_silent(found, broken) == silent
    assert not any(is_silent(found, one) for one in breaks_of(found))


def test_a_clause_of_two_matters_needs_both():
    clause = "cudnnActivationForward/c03"
    result = {"subject": "reference", "id": "a/test", "outcome": "passed", "clauses": [clause]}
    noticed = [f"break of {clause}, {name}: argument cudnnActivationForward.{name}" for name in ("alpha", "beta")]
    assert evidence([result | {"noticed": noticed[:1]}])["reference"][clause]["evidence"] == SHOWN
    found = evidence([result | {"noticed": noticed[:1]}, result | {"id": "b/test", "noticed": noticed[1:]}])
    assert found["reference"][clause]["evidence"] == PROVEN
    assert found["reference"][clause]["more"] == [{"by": "argument cudnnActivationForward.beta", "case": "b/test"}]


@pytest.mark.parametrize(
    "clause, refusals, checked",
    [
        ("cudnnPoolingForward/c16", [("cudnnPoolingForward", "the first two dimensions differ")], True),
        ("cudnnPoolingForward/c16", [("cudnnPoolingBackward", "the first two dimensions differ")], False),
        ("cudnnBatchNormalizationBackwardEx/c24", [("cudnnBatchNormalizationBackwardEx", "dz")], False),  # no demand
        ("cudnnConvolutionForward/c46", [("cudnnConvolutionForward", "y is read-only")], False),
        ("cudnnConvolutionForward/c46", [("cudnnConvolutionForward", "y is NULL")], True),
        ("CUDNN_BACKEND_TENSOR_DESCRIPTOR/c12", [("cudnnBackendFinalize", "X is required and was not set")], True),
    ],
)
def test_a_check_shows_only_the_demands_of_its_call(clause, refusals, checked):
    assert is_checked(clause, refusals) == checked


def test_a_preset_is_another_until_somebody_sets_it(border):
    rnn = cudnn.cudnnCreateRNNDescriptor()
    border.begin(Break("result", "cudnnGetRNNPaddingMode", kind="default"))
    assert call(border, "cudnnGetRNNPaddingMode", rnn) != 0
    call(border, "cudnnSetRNNPaddingMode", rnn, 0)
    assert call(border, "cudnnGetRNNPaddingMode", rnn) == 0


def test_other_layouts_alone_are_refused(border):
    border.begin(Break("layout refused", "cudnnGetTensorSizeInBytes"))
    for strides in ((60, 20, 5, 1), (60, 1, 15, 3)):
        tensor = cudnn.cudnnCreateTensorDescriptor()
        cudnn.cudnnSetTensor4dDescriptorEx(tensor, FLOAT, 2, 3, 4, 5, *strides)
        if strides[1] == 1:
            with pytest.raises(CudnnError):
                call(border, "cudnnGetTensorSizeInBytes", tensor)
        else:
            assert call(border, "cudnnGetTensorSizeInBytes", tensor) == 480


def test_the_algorithms_of_a_row_are_those_that_it_begins_with():
    found = algorithms_of(scope.clauses()["cudnnConvolutionForward/c40"])
    assert found == ("CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM",)
