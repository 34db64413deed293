"""Test recorded calls: their format, recording, replaying, and that any change is noticed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from dualdnn.api import cudnn
from dualdnn.conformance.command_line import main
from dualdnn.conformance.recorded import (
    Record,
    Recording,
    RecordingError,
    load_recording,
    packaged_recordings,
    save_recording,
    status_of,
)
from dualdnn.conformance.recorded.judging import AGREES, OUTPUTS, RESULT, STATUS, WRONG, examine
from dualdnn.conformance.recorded.recorder import Recorder, merge, save
from dualdnn.conformance.recorded.replay import NotReplayable, Replayer
from dualdnn.conformance.subjects import open_subject

TENSOR = [
    "cudnnSetTensorNdDescriptor",
    {"dataType": "CUDNN_DATA_FLOAT", "nbDims": 4, "dimA": [1, 2, 1, 3], "strideA": [6, 3, 3, 1]},
]
DESCRIPTOR = {"descriptor": "cudnnTensorDescriptor_t", "calls": [TENSOR]}
HANDLE = {"handle": True}


def scaled(alpha: float = 2.0, **changed) -> Record:
    """Return the record of a cudnnScaleTensor call on 0 to 5."""
    before = np.arange(6, dtype=np.float32)
    memory = (before.view(np.uint8), (alpha * before).astype(np.float32).view(np.uint8))
    arguments = {"handle": HANDLE, "yDesc": DESCRIPTOR, "y": {"memory": 0, "offset": 0, "bytes": 24}, "alpha": alpha}
    return replace(Record("1", "cudnnScaleTensor", 0, arguments, (memory,)), **changed)


def recording(*records: Record) -> Recording:
    return Recording("test", "cudnn", 91900, "a GPU", records)


def judged(record: Record, compute: bool) -> str:
    """Return the kind of finding when the reference replays the record."""
    replayer = Replayer(cudnn, cudnn.cudnnCreate(backend="reference"), compute)
    return examine(record, recording(record), replayer).kind


@pytest.fixture
def written(tmp_path):
    """Return a function that writes a recording with a changed header or changed arrays."""

    def write(change=None, **arrays):
        path = tmp_path / "calls.npz"
        save_recording(path, "cudnn", 91900, "a GPU", [scaled()])
        with np.load(path) as archive:
            contents = dict(archive)
        header = json.loads(contents["calls"].tobytes())
        if change:
            change(header)
        contents["calls"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
        changed = tmp_path / f"changed{len(list(tmp_path.iterdir()))}.npz"
        np.savez_compressed(changed, **{name: a for name, a in (contents | arrays).items() if a is not None})
        return changed

    return write


# --- the format


def test_round_trip(tmp_path):
    path = tmp_path / "calls.npz"
    arrays = {"x": np.arange(4, dtype=np.int16).reshape(2, 2)}
    probe = Record("2", "several calls", 2000, None, probe={"case": [1, None]}, arrays=arrays, note="a note")
    returned = Record("3", "cudnnGetTensorSizeInBytes", 0, {"tensorDesc": DESCRIPTOR}, result=24)
    failed = Record(
        "4",
        "cudnnSetActivationDescriptor",
        2000,
        {"activationDesc": None, "mode": 9, "reluNanOpt": 0, "coef": float("nan")},
    )
    save_recording(path, "cudnn", 91900, "a GPU", [scaled(), probe, returned, failed])
    read = load_recording(path)
    assert (read.library, read.library_version, read.device, read.name) == ("cudnn", 91900, "a GPU", "calls")
    first, second, third, fourth = read.records
    assert first.arguments == scaled().arguments and first.status == 0
    for pair, expected in zip(first.memory, scaled().memory, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(pair, expected, strict=True))
    assert (
        second.probe == {"case": [1, None]}
        and second.note == "a note"
        and np.array_equal(second.arrays["x"], arrays["x"])
    )
    assert (
        third.result == 24
        and read.status(fourth).name == "CUDNN_STATUS_BAD_PARAM"
        and np.isnan(fourth.arguments["coef"])
    )


def test_equal_memory_is_stored_once(tmp_path):
    sizes = []
    for count in (1, 50):
        path = tmp_path / f"{count}.npz"
        save_recording(path, "cudnn", 91900, "", [scaled(id=str(n)) for n in range(count)])
        with np.load(path) as archive:
            sizes.append(archive["memory"].size)
    assert sizes[0] == sizes[1] == 48


def test_missing_and_foreign_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.npz is not a file"):
        load_recording(tmp_path / "nothing.npz")
    (tmp_path / "text.npz").write_text("no archive")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    for name in ("text.npz", "other.npz"):
        with pytest.raises(RecordingError, match=f"{name} is not a recording") as refused:
            load_recording(tmp_path / name)
        assert "pickle" not in str(refused.value)  # NumPy's own message suggests an unsafe load.


def test_a_truncated_file_is_refused(written, tmp_path):
    whole = written().read_bytes()
    (tmp_path / "short.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RecordingError, match=r"short\.npz is not a recording"):
        load_recording(tmp_path / "short.npz")


def changed_argument(name, value):
    return lambda header: header["records"][0]["arguments"].update({name: value})


def changed_record(**fields):
    return lambda header: header["records"][0].update(fields)


@pytest.mark.parametrize("change, message", [
    (lambda h: h.update(version=2), "format version 2, version 1 can be read"),
    (lambda h: h.update(format="other"), "its format is not"),
    (lambda h: h.pop("library"), "lacks or misspells 'library'"),
    (lambda h: h["records"].append(h["records"][0]), "two records with the same id"),
    (changed_record(function="cudnnNothing"), "'cudnnNothing' is not a function of the document"),
    (changed_record(memory=[[0, 7]]), "block 7 is not one of the 2 blocks"),
    (changed_record(status=77), "status 77 of library version 91900 belongs to no documented status"),
    (changed_record(surplus=1), "unknown keys .'surplus'."),
    (changed_record(probe={}), "needs arguments or probe"),
    (lambda h: h["records"][0]["arguments"].pop("alpha"), "cudnnScaleTensor takes"),
    (changed_argument("alpha", "CUDNN_DATA_FLOAT128"), "'CUDNN_DATA_FLOAT128' is not an enumerator"),
    (changed_argument("y", {"memory": 0, "offset": 8, "bytes": 24}), "lies outside the record's memory"),
    (changed_argument("y", {"memory": 3, "offset": 0, "bytes": 1}), "lies outside the record's memory"),
    (changed_argument("yDesc", {"tensor": 1}), "is not one of the values"),
    (changed_argument("yDesc", {"descriptor": "cudnnTensorDescriptor_t", "calls": [["cudnnSetTensorNdDescriptor", {}]]}),
     "cudnnSetTensorNdDescriptor takes"),
])  # fmt: skip
def test_an_inconsistent_recording_is_refused_with_its_reason(written, change, message):
    with pytest.raises(RecordingError, match=message):
        load_recording(written(change))


def test_an_unknown_data_type_is_named(written):
    bad = {
        "descriptor": "cudnnTensorDescriptor_t",
        "calls": [[TENSOR[0], TENSOR[1] | {"dataType": "CUDNN_DATA_FLOAT8"}]],
    }
    with pytest.raises(RecordingError, match="record 1, yDesc, dataType: 'CUDNN_DATA_FLOAT8' is not an enumerator"):
        load_recording(written(changed_argument("yDesc", bad)))


@pytest.mark.parametrize("offsets", [[0, 24], [24, 0, 48], [0, 24, 99], []], ids=str)
def test_blocks_must_divide_the_memory(written, offsets):
    with pytest.raises(RecordingError, match=r"blocks of the file|offsets do not divide"):
        load_recording(written(offsets=np.array(offsets, dtype=np.int64)))


def test_statuses_of_version_9_are_families():
    names = {
        0: "SUCCESS",
        1001: "NOT_INITIALIZED",
        2000: "BAD_PARAM",
        2014: "BAD_PARAM",
        3007: "NOT_SUPPORTED",
        5003: "EXECUTION_FAILED",
    }
    assert {number: status_of(number, 91900).name.removeprefix("CUDNN_STATUS_") for number in names} == names
    assert status_of(3, 8907).name == "CUDNN_STATUS_BAD_PARAM"
    with pytest.raises(RecordingError, match="status 2000 is not one of"):
        status_of(2000, 8907)


# --- the packaged recordings


def test_all_measured_calls_are_packaged():
    records = [record for path in packaged_recordings() for record in load_recording(path).records]
    assert sum("." not in record.id for record in records) >= 5200
    assert sum(path.stat().st_size for path in packaged_recordings()) < 12 * 2**20


# --- judging


@pytest.mark.parametrize("compute", [False, True], ids=["recorded", "ours"])
def test_a_right_record_agrees(compute):
    assert judged(scaled(), compute) == AGREES


@pytest.mark.parametrize("compute", [False, True], ids=["recorded", "ours"])
@pytest.mark.parametrize("byte", [5, 10, 23])
def test_one_changed_output_byte_is_noticed(compute, byte):
    before, after = scaled().memory[0]
    changed = after.copy()
    changed[byte] ^= 1
    assert judged(scaled(memory=((before, changed),)), compute) == OUTPUTS


def test_a_changed_input_is_noticed():
    before, after = scaled().memory[0]
    assert judged(scaled(memory=((before ^ 1, after),)), compute=False) == OUTPUTS


@pytest.mark.parametrize("compute", [False, True], ids=["recorded", "ours"])
def test_another_status_is_noticed(compute):
    assert judged(scaled(status=3000), compute) == STATUS
    refused = {**scaled().arguments, "yDesc": {"descriptor": "cudnnTensorDescriptor_t", "calls": []}}
    assert judged(scaled(arguments=refused), compute) == STATUS
    assert judged(scaled(arguments=refused, status=2005), compute) == AGREES


def test_another_result_is_noticed():
    size = Record("1", "cudnnGetTensorSizeInBytes", 0, {"tensorDesc": DESCRIPTOR}, result=24)
    assert judged(size, compute=False) == AGREES
    assert judged(replace(size, result=28), compute=False) == RESULT


def test_a_fault_of_ours_is_never_a_difference(monkeypatch):
    """A backend that computes a wrong result fails, even where a difference is declared."""
    from dualdnn.reference import engine

    right = engine.blended
    monkeypatch.setattr("dualdnn.reference.engine.blended", lambda *a: right(*a) * 2)
    assert judged(scaled(alpha=0.0), compute=True) == AGREES  # The doubled result is still 0.
    monkeypatch.setattr("dualdnn.reference.backend.run", lambda operation, memory: memory["y"].fill(1))
    assert judged(scaled(), compute=True) == WRONG
    assert judged(scaled(alpha=0.0), compute=True) == WRONG


def test_shared_memory_stays_shared():
    """A call may run in place with equal descriptors, but a partial overlap is refused."""
    values = np.arange(12, dtype=np.float32).view(np.uint8)
    mode = [
        "cudnnSetActivationDescriptor",
        {"mode": "CUDNN_ACTIVATION_RELU", "reluNanOpt": "CUDNN_NOT_PROPAGATE_NAN", "coef": 0.0},
    ]
    arguments = {
        "handle": HANDLE, "activationDesc": {"descriptor": "cudnnActivationDescriptor_t", "calls": [mode]}, "alpha": 1.0,
        "xDesc": DESCRIPTOR, "x": {"memory": 0, "offset": 0, "bytes": 24}, "beta": 0.0, "yDesc": DESCRIPTOR,
        "y": {"memory": 0, "offset": 0, "bytes": 24},
    }  # fmt: skip
    record = Record("1", "cudnnActivationForward", 0, arguments, ((values, values),))
    assert judged(record, compute=True) == AGREES
    shifted = {**arguments, "y": {"memory": 0, "offset": 4, "bytes": 24}}
    assert judged(replace(record, arguments=shifted), compute=True) == STATUS
    assert judged(replace(record, arguments=shifted, status=2000), compute=True) == AGREES


def test_values_that_were_not_recorded_are_not_replayed():
    replayer = Replayer(cudnn, cudnn.cudnnCreate(backend="reference"))
    for changed in ({"y": {"unrecorded": "set"}}, {"alpha": {"unrecorded": "a pointer"}}):
        with pytest.raises(NotReplayable, match="not recorded"):
            replayer(scaled(arguments={**scaled().arguments, **changed}))
    with pytest.raises(NotReplayable, match="probe"):
        replayer(Record("1", "cudnnScaleTensor", 0, None, probe={}))


# --- recording


def make_calls(functions, handle):
    """Make calls of all kinds: some succeed, one repeats, and two are refused."""
    y = handle.to_device(np.arange(8, dtype=np.float32))
    x = functions.cudnnCreateTensorDescriptor()
    functions.cudnnSetTensor4dDescriptor(x, 0, 0, 1, 2, 1, 3)
    functions.cudnnGetTensorSizeInBytes(x)
    functions.cudnnGetTensorSizeInBytes(x)
    functions.cudnnScaleTensor(handle, x, y.slice(4, 24), 3.0)
    for bad in ((handle, None, y, 3.0), (handle, x, y.slice(0, 20), 3.0)):
        with pytest.raises(cudnn.CudnnError):
            functions.cudnnScaleTensor(*bad)
    functions.cudnnDestroyTensorDescriptor(x)


@pytest.mark.parametrize("name", ["reference", "accelerated:emulated"])
def test_recorded_calls_agree_with_their_subject(tmp_path, name):
    subject = open_subject(name)
    handle = subject.new_handle()
    recorder = Recorder(subject.cudnn)
    make_calls(recorder, handle)
    assert Counter(record.function for record in recorder.records) == {
        "cudnnCreateTensorDescriptor": 1, "cudnnSetTensor4dDescriptor": 1, "cudnnGetTensorSizeInBytes": 1,
        "cudnnScaleTensor": 3, "cudnnDestroyTensorDescriptor": 1,
    }  # fmt: skip
    save(tmp_path / "a.part", subject, recorder.records)
    save(tmp_path / "b.part", subject, recorder.records[:2])
    assert merge(tmp_path / "calls.npz", [tmp_path / "a.part", tmp_path / "b.part"]) == 9
    assert [path.name for path in tmp_path.iterdir()] == ["calls.npz"]
    loaded = load_recording(tmp_path / "calls.npz")
    replayer = Replayer(cudnn, cudnn.cudnnCreate(backend="reference"))
    assert [examine(record, loaded, replayer).kind for record in loaded.records] == [AGREES] * 9
    done = next(record for record in loaded.records if record.function == "cudnnScaleTensor" and record.status == 0)
    assert done.memory[0][1].view(np.float32).tolist() == [3.0, 6.0, 9.0, 12.0, 15.0, 18.0]


def test_the_command_records_and_judges_its_recording(tmp_path, capfd):
    path = tmp_path / "calls.npz"
    run = ["conformance", "--out", str(tmp_path / "report"), "--jobs", "1"]
    (tmp_path / "calls.npz.gw0.part").write_bytes(b"of a run that was killed")
    case = ["--case", "activation/test_forward_in_place_needs_equal_strides"]
    assert main([*run, "--subject", "reference", *case, "--record", str(path)]) == 0
    assert "recorded:" in capfd.readouterr().out and load_recording(path).library == "reference"
    assert not list(tmp_path.glob("*.part"))
    assert main([*run, "--subject", f"recorded:{path}"]) == 0
    report = json.loads((tmp_path / "report" / "compliance.json").read_text())
    assert report["subjects"] == ["recorded-reference-8.0.3"]
    assert report["clauses"]["cudnnActivationForward/c16"]["subjects"] == {"recorded-reference-8.0.3": "passed"}


def test_a_tampered_recording_fails(tmp_path):
    path = tmp_path / "calls.npz"
    before, after = scaled().memory[0]
    save_recording(path, "cudnn", 91900, "a GPU", [scaled(memory=((before, after ^ 1),))])
    assert main(["conformance", "--out", str(tmp_path / "report"), "--jobs", "1", "--subject", f"recorded:{path}"]) == 1
    assert main(["replay", str(path), "--record", "1", "--subject", "reference"]) == 1


def test_replaying_one_packaged_record(capfd):
    name = "cudnn_9_19_tensors"
    assert main(["replay", name, "--record", "0001", "--subject", "reference"]) == 0
    assert "reference: agrees" in capfd.readouterr().out
    assert main(["replay", name, "--record", "no such", "--subject", "reference"]) == 2
    assert "has no record 'no such'" in capfd.readouterr().err
    assert main(["conformance", "--record", "x.npz"]) == 2
