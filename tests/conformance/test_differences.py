"""Test that a declared difference expects exactly what it names. Another outcome, a pass and an undeclared failure
fail.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from dualdnn.api import cudnn
from dualdnn.conformance.differences import DIFFERENCES, Disagreement, difference_for, explanation_of
from dualdnn.conformance.differences.occurrences import FOLDER, difference_of_case, explained, named_for, unseen, what
from dualdnn.conformance.recorded import Record, Recording, grouping
from dualdnn.conformance.recorded.judging import AGREES, OUTPUTS, RESULT, STATUS, examine
from dualdnn.conformance.recorded.recorder import Recorder
from dualdnn.conformance.recorded.replay import Replayer

INT32_FILTER = "filter_descriptors/test_4d[CUDNN_DATA_INT32-CUDNN_TENSOR_NCHW]"
REFUSED = "E   LibraryError: cudnnSetFilter4dDescriptor: CUDNN_STATUS_BAD_PARAM: libcudnn.so.8 returned 3"


def tensor(*dims, strides=None, data_type="CUDNN_DATA_FLOAT"):
    strides = strides or [int(np.prod(dims[axis + 1 :])) for axis in range(len(dims))]
    call = {"dataType": data_type, "nbDims": len(dims), "dimA": list(dims), "strideA": strides}
    return {"descriptor": "cudnnTensorDescriptor_t", "calls": [["cudnnSetTensorNdDescriptor", call]]}


def found(record: Record, name: str = "test"):
    """Return the finding about a recorded call of release 9.19, as the judge of recorded calls makes it."""
    recording = Recording(name, "cudnn", 91900, "a GPU", (record,))
    replayer = Replayer(cudnn, cudnn.cudnnCreate(backend="reference"), compute=False)
    return examine(record, recording, replayer), [(recording, record)]


def explanation(record: Record, kind: str) -> str:
    finding, _ = found(record)
    assert finding.kind == kind, finding
    difference = explanation_of(finding)
    return difference.id if difference else ""


# --- what a declaration must say


def test_no_declaration_excuses_every_kind():
    for kind in ("*", "wrong", "out*"):
        with pytest.raises(ValueError, match="explains one of status, outputs, result"):
            Disagreement(kind)
    with pytest.raises(ValueError, match="must say what it expects"):
        Disagreement("result")


def test_lists_of_occurrences_name_declared_differences():
    for path in FOLDER.glob("*.json"):
        named = json.loads(path.read_text())["differences"]
        assert set(named) <= {entry.id for entry in DIFFERENCES}, path
        assert all(kinds and all(kinds.values()) for kinds in named.values()), path


@pytest.mark.parametrize("subject", ["vendor-8907", "vendor-91900"])
def test_each_listed_failure_is_covered_by_its_difference(subject):
    for case, (name, said) in named_for(subject).failures.items():
        found = difference_for(case, subject, said)
        assert found is not None and found.id == name, f"{case}: {said}"


# --- cases of a foreign library


def test_a_case_that_is_named_and_fails_so_is_known():
    difference, contradiction = difference_of_case(INT32_FILTER, "vendor-8907", False, False, REFUSED)
    assert difference is not None and difference.id == "V-filter-int32" and not contradiction


def test_a_case_that_fails_otherwise_is_a_failure():
    message = "3 of 8 elements are wrong, the worst: x\nwrong elements: x: 3 NaN"
    difference, contradiction = difference_of_case(INT32_FILTER, "vendor-8907", False, False, message)
    assert difference is None and "expects 'cudnnSetFilter4dDescriptor BAD_PARAM'" in contradiction


def test_a_case_that_is_covered_and_not_named_is_a_failure():
    case = "filter_descriptors/test_nd[CUDNN_DATA_INT32-CUDNN_TENSOR_NCHW]"
    assert difference_for(case, "vendor-8907").id == "V-filter-int32"
    difference, contradiction = difference_of_case(case, "vendor-8907", False, False, REFUSED)
    assert difference is None and "does not name it" in contradiction


def test_a_case_that_is_named_and_passes_is_noticed():
    difference, _ = difference_of_case(INT32_FILTER, "vendor-8907", False, True, "")
    assert difference is not None  # A known failure that passes unexpectedly fails the run.
    assert difference_of_case("filter_descriptors/test_4d[x]", "vendor-8907", False, True, "") == (None, "")


def test_a_listed_case_that_does_not_fail_is_noticed():
    named = named_for("vendor-8907").failures
    assert (
        unseen("vendor-8907", False, named) == unseen("vendor-8907", True, []) == unseen("vendor-8800", False, []) == []
    )
    assert unseen("vendor-8907", False, set(named) - {INT32_FILTER}) == [INT32_FILTER]
    recorded = named_for("recorded-cudnn-9.19")
    assert recorded and unseen("recorded-cudnn-9.19", recorded.computes, []) == []


def test_an_unstable_difference_covers_only_its_cases_and_symptoms():
    case, wrong = (
        "attention_backward/test_projections[0-0-0-1]",
        "12 of 194 elements are wrong, the worst: x\nwrong elements: dqueries: ",
    )
    arguments = case, "vendor-91900", True
    assert difference_of_case(*arguments, False, f"{wrong}12 other numbers")[0].id == "V-attn-unstable"
    assert difference_of_case(*arguments, False, f"{wrong}11 other numbers, 1 NaN")[0] is None
    assert difference_of_case(*arguments, True, "") == (None, "")
    assert difference_of_case(case, "library-1", True, False, f"{wrong}12 other numbers")[0] is None


def test_a_suspicion_has_the_difference_that_names_its_outputs():
    said = ["hy: 1 elements lie outside", "dweightSpace: 2 elements lie outside"]
    found = explained("rnn_backward/test_wide_layers", "vendor-91900", said)
    assert found == [f"difference V-rnn-half: {one}" for one in said]
    assert explained("rnn_backward/test_wide_layers", "vendor-91900", said[:1]) == said[:1]
    assert explained("rnn_backward/test_wide_layers", "vendor-8907", said) == said


def test_without_a_list_the_patterns_decide():
    for subject, computes in (("vendor-8907", True), ("vendor-8800", False)):
        assert difference_of_case(INT32_FILTER, subject, computes, False, REFUSED)[0].id == "V-filter-int32"
        wrong = "3 of 8 elements are wrong, the worst: x\nwrong elements: x: 3 NaN"
        assert difference_of_case(INT32_FILTER, subject, computes, False, wrong) == (None, "")


def test_the_symptom_of_a_failure_has_no_numbers():
    wrong = "difference V-x: 3 of CUDNN_STATUS_X\n2 of 7 elements are wrong, the worst: y[3]\nwrong elements: y: 1 NaN, 3 zero; z: 12 NaN\nSoftmax(x)"
    assert what(wrong) == "wrong y: NaN, zero; z: NaN"
    assert what("> assert a == b\nE   assert 1 == 2") == "assertion a == b"
    assert what("  x = CUDNN_STATUS_ALLOC_FAILED\nE   assert 1 == 2\nE    +  where") == "assertion"
    assert (
        what("x: 3 bytes after its end changed\nwrong elements: y: 2 infinite")
        == "x: bytes after its end changed, wrong y: infinite"
    )


def test_the_symptom_of_a_failure_names_calls_and_statuses():
    refused = (
        "E  LibraryError: cudnnX: CUDNN_STATUS_BAD_PARAM: libcudnn.so.9 returned 2001 (CUDNN_STATUS_BAD_PARAM_NULL)"
    )
    assert what(refused) == "cudnnX BAD_PARAM, BAD_PARAM_NULL"
    assert what(refused.replace("_NULL", "")) == "cudnnX BAD_PARAM"
    assert (
        what("cudnnX succeeded, expected CUDNN_STATUS_BAD_PARAM [cudnnX/c05]")
        == "succeeded, not BAD_PARAM by cudnnX/c05"
    )
    assert (
        what("expected CUDNN_STATUS_BAD_PARAM, got: cudnnX: CUDNN_STATUS_NOT_SUPPORTED: y")
        == "not BAD_PARAM, cudnnX NOT_SUPPORTED"
    )


# --- recorded calls


def packaged_finding(name: str):
    subject = grouping.open_subject("recorded")
    key = next(key for key, (difference, _) in grouping.named().failures.items() if difference == name)
    wanted = key.split(" ")
    calls = [
        (recording, record)
        for recording in subject.recordings
        if recording.name == wanted[0]
        for record in recording.records
        if record.id == wanted[1]
    ]
    return calls[0]


def test_an_unlisted_packaged_record_is_not_excused():
    recording, record = packaged_finding("V-arithmetic-rank")
    finding, _ = found(record)
    assert grouping.explained(finding, [(recording, record)]).id == "V-arithmetic-rank"
    other = replace(record, id="another")
    finding, _ = found(other)
    assert explanation_of(finding).id == "V-arithmetic-rank"
    assert grouping.explained(finding, [(recording, other)]) is None


def test_how_named_and_found_records_differ_is_told():
    difference = DIFFERENCES[0]
    text = grouping.contradiction(difference, {"r 1": "a", "r 2": "b"}, {"r 2": "c", "r 3": "d"})
    assert "r 1: a, which is not named" in text and "r 3: d no longer occurs" in text and "r 2: b, not c" in text


def test_the_packaged_list_has_every_rule_that_applies():
    assert named_for(grouping.PACKAGED).families >= {"cudnn_9_19_tensors", "cudnn_9_19_convolution"}
    assert "V-fold-default" not in {name for name, _ in grouping.named().failures.values()}


def test_nan_in_a_result_agrees_with_itself():
    call = {"mode": "CUDNN_ACTIVATION_RELU", "reluNanOpt": "CUDNN_PROPAGATE_NAN", "coef": float("nan")}
    descriptor = {"descriptor": "cudnnActivationDescriptor_t", "calls": [["cudnnSetActivationDescriptor", call]]}
    record = Record(
        "1", "cudnnGetActivationDescriptor", 0, {"activationDesc": descriptor}, result=json.loads(json.dumps(call))
    )
    assert found(record)[0].kind == AGREES
    assert found(replace(record, result={**call, "coef": 0.0}))[0].kind == RESULT


def added(alpha: float, after) -> Record:
    """Return a record of cudnnAddTensor that adds a NaN and ones to 0, 1 and 2."""
    a, c = (np.array(values, np.float32).view(np.uint8) for values in ([np.nan, 1, 1], [0, 1, 2]))
    places = {name: {"memory": index, "offset": 0, "bytes": 12} for index, name in enumerate("AC")}
    arguments = {
        "handle": {"handle": True},
        "alpha": alpha,
        "beta": 1.0,
        "aDesc": tensor(1, 1, 1, 3),
        "cDesc": tensor(1, 1, 1, 3),
        **places,
    }
    return Record("1", "cudnnAddTensor", 0, arguments, ((a, a), (c, np.array(after, np.float32).view(np.uint8))))


def test_a_factor_of_zero_excuses_the_prior_value_alone():
    assert explanation(added(0.0, [0, 1, 2]), OUTPUTS) == "V-zero-factor"
    assert explanation(added(0.0, [0, 1, 3]), OUTPUTS) == ""
    assert explanation(added(0.5, [0, 1.5, 2.5]), OUTPUTS) == ""


def transform_getter(*given, result) -> Record:
    names = ("padBeforeA", "padAfterA", "foldA")
    calls = [
        ["cudnnSetTensorTransformDescriptor", {"nbDims": 4, "destFormat": "CUDNN_TENSOR_NHWC", "direction": "CUDNN_TRANSFORM_FOLD"}
         | dict(zip(names, arrays, strict=True))]
        for arrays in given
    ]  # fmt: skip
    descriptor = {"descriptor": "cudnnTensorTransformDescriptor_t", "calls": calls}
    read = {"destFormat": "CUDNN_TENSOR_NHWC", "direction": "CUDNN_TRANSFORM_FOLD"} | dict(
        zip(names, result, strict=True)
    )
    return Record(
        "1", "cudnnGetTensorTransformDescriptor", 0, {"transformDesc": descriptor, "nbDimsRequested": 4}, result=read
    )


def test_null_keeps_what_was_set_and_nothing_else():
    first, null = ([1, 1, 1, 1], [2, 2, 2, 2], [3, 3]), (None, None, None)
    assert explanation(transform_getter(first, null, result=first), RESULT) == "V-transform-null"
    assert explanation(transform_getter(first, null, result=([1] * 4, [2] * 4, [1, 1])), RESULT) == ""
    assert explanation(transform_getter(null, result=([0] * 4, [0] * 4, [1, 1])), RESULT) == ""
    assert explanation(transform_getter(null, result=([0] * 4, [0] * 4, [0, 0])), AGREES) == ""


def test_a_setter_with_null_keeps_the_earlier_setter_in_the_record():
    recorder = Recorder(cudnn)
    fresh = recorder.cudnnCreateTensorTransformDescriptor()
    for arrays in (((1,) * 4, None, None), ((2,) * 4, (0,) * 4, (1, 1)), (None, None, None)):
        recorder.cudnnSetTensorTransformDescriptor(
            fresh, 4, cudnn.CUDNN_TENSOR_NCHW, *arrays, cudnn.CUDNN_TRANSFORM_FOLD
        )
    recorder.cudnnGetTensorTransformDescriptor(fresh, 4)
    calls = recorder.records[-1].arguments["transformDesc"]["calls"]
    assert [given["padBeforeA"] for _, given in calls] == [[2] * 4, None]


def test_an_int32_filter_is_refused_by_the_setter_alone():
    given = {"dataType": "CUDNN_DATA_INT32", "format": "CUDNN_TENSOR_NCHW", "k": 2, "c": 3, "h": 1, "w": 1}
    fresh = {"filterDesc": {"descriptor": "cudnnFilterDescriptor_t", "calls": []}}
    refused = Record("1", "cudnnSetFilter4dDescriptor", 2000, fresh | given)
    assert explanation(refused, STATUS) == "V-filter-int32"
    assert explanation(replace(refused, arguments=fresh | given | {"dataType": "CUDNN_DATA_FLOAT"}), STATUS) == ""
    assert explanation(replace(refused, status=3000), STATUS) == ""


def transform_ranks(count: int, direction="CUDNN_TRANSFORM_FOLD") -> Record:
    fresh = {"transformDesc": {"descriptor": "cudnnTensorTransformDescriptor_t", "calls": []}}
    given = {"nbDims": count, "destFormat": "CUDNN_TENSOR_NCHW", "padBeforeA": None, "padAfterA": None, "foldA": None}
    return Record("1", "cudnnSetTensorTransformDescriptor", 0, fresh | given | {"direction": direction})


def test_two_dimensions_of_a_transform_and_no_fewer():
    assert explanation(transform_ranks(2), STATUS) == "V-transform-rank-2"
    assert explanation(transform_ranks(1), STATUS) == ""
    assert explanation(transform_ranks(4, direction=2), STATUS) == "V-transform-direction"


def test_overlapping_memory_that_was_not_noticed():
    values = np.arange(8, dtype=np.float32).view(np.uint8)
    arguments = {
        "handle": {"handle": True}, "alpha": 1.0, "beta": 0.0, "xDesc": tensor(1, 1, 1, 6), "yDesc": tensor(1, 1, 1, 6),
        "x": {"memory": 0, "offset": 0, "bytes": 24}, "y": {"memory": 0, "offset": 8, "bytes": 24},
    }  # fmt: skip
    assert explanation(Record("1", "cudnnTransformTensor", 0, arguments, ((values, values),)), STATUS) == "V-overlap"
    itself = arguments | {"yDesc": tensor(1, 1, 2, 3, strides=[6, 6, 1, 1]), "xDesc": tensor(1, 1, 2, 3)}
    apart = {"x": {"memory": 0, "offset": 0, "bytes": 24}, "y": {"memory": 1, "offset": 0, "bytes": 24}}
    memory = ((values[:24], values[:24]),) * 2
    assert explanation(Record("1", "cudnnTransformTensor", 0, itself | apart, memory), STATUS) == "V-overlap"
    assert explanation(Record("1", "cudnnTransformTensor", 5000, itself | apart, memory), STATUS) == ""


def test_other_images_in_y_of_a_pooling():
    mode = {
        "mode": "CUDNN_POOLING_MAX",
        "maxpoolingNanOpt": "CUDNN_PROPAGATE_NAN",
        "nbDims": 2,
        "windowDimA": [1, 1],
        "paddingA": [0, 0],
        "strideA": [1, 1],
    }
    pooling = {"descriptor": "cudnnPoolingDescriptor_t", "calls": [["cudnnSetPoolingNdDescriptor", mode]]}
    operands = {"y": (1, 2, 2, 2), "dy": (1, 2, 2, 2), "x": (2, 2, 2, 2), "dx": (2, 2, 2, 2)}
    arguments = {"handle": {"handle": True}, "poolingDesc": pooling, "alpha": 1.0, "beta": 0.0}
    memory = []
    for index, (name, dims) in enumerate(operands.items()):
        block = np.zeros(4 * int(np.prod(dims)), np.uint8)
        arguments |= {f"{name}Desc": tensor(*dims), name: {"memory": index, "offset": 0, "bytes": block.size}}
        memory.append((block, block))
    assert (
        explanation(Record("1", "cudnnPoolingBackward", 0, arguments, tuple(memory)), STATUS)
        == "V-pooling-other-images"
    )
    assert explanation(Record("1", "cudnnPoolingBackward", 5000, arguments, tuple(memory)), STATUS) == ""
