"""Logs that NVIDIA's library 8.9.7 writes of every setter (oracles/logged_setters.py), read back; logs as people and collectors pass them on."""

from __future__ import annotations

import pytest
from dualdnn.api import cudnn
from dualdnn.api.document import functions
from dualdnn.conformance.command_line import main
from dualdnn.conformance.replay.api_logs import Reader, Unreadable, read_log, summarized
from oracles.logged_setters import CALLS, LOG, kind_of

# Setters that need a handle, which the library makes on a GPU only, and those of objects that it does not log as descriptors.
WITHOUT_A_LOG = {
    "cudnnSetAlgorithmDescriptor", "cudnnSetAlgorithmPerformance", "cudnnSetCallback", "cudnnSetDropoutDescriptor", "cudnnSetStream",
    "cudnnSetTensor", "cudnnSetFusedOpsConstParamPackAttribute", "cudnnSetFusedOpsVariantParamPackAttribute",
    "cudnnSetPersistentRNNPlan", "cudnnSetRNNAlgorithmDescriptor", "cudnnSetRNNDescriptor_v6", "cudnnSetRNNProjectionLayers",
}  # fmt: skip


def text() -> str:
    return LOG.read_text()


def test_the_recording_has_every_setter():
    setters = {name for name in functions() if name.startswith("cudnnSet")}
    assert setters - WITHOUT_A_LOG == {name for name, _ in CALLS}
    assert {call.function for call in read_log(text().splitlines()).calls} == setters - WITHOUT_A_LOG


def specs_of_the_log() -> tuple[dict[str, list[str]], dict[str, str]]:
    """Function -> what its calls in the log leave in a descriptor; function -> why a call cannot be made."""
    reader, found, left = Reader(), {}, {}
    for call in read_log(text().splitlines()).calls:
        base = functions()[call.function].parameters[0].base_type
        try:
            reader(call)
        except Unreadable as reason:
            left[call.function] = str(reason)
        except cudnn.CudnnError:
            continue  # the library was asked for a refusal
        else:
            found.setdefault(call.function, []).append(repr(reader.made[base].spec))
    return found, left


def test_each_setter_is_read_back_into_the_same_descriptor():
    found, left = specs_of_the_log()
    assert left == {"cudnnSetTensorTransformDescriptor": "the log does not have destFormat"}
    made = {}
    for name, arguments in CALLS:
        if name in left:
            continue
        kind = kind_of(name)
        descriptor = made.setdefault(kind, getattr(cudnn, f"cudnnCreate{kind}")())
        try:
            getattr(cudnn, name)(descriptor, *arguments)
        except cudnn.CudnnError as error:
            pytest.fail(f"{name}: {error}")
        assert repr(descriptor.spec) in found[name], name


def test_numbers_behind_the_real_entries_are_left_out():
    """As release 7.3 logs them: maxSeqLength numbers of an array that has batchSize."""
    before, name, behind = text().partition("function cudnnSetRNNDataDescriptor()")

    def read(entries: str):
        return summarized(read_log((before + name + behind.replace("val=[6,3]", f"val=[{entries}]", 1)).splitlines()))

    assert read("6,3,-843385600,21923").refused == read("6,3").refused
    assert ("cudnnSetRNNDataDescriptor", "the log has 1 of 2 entries of seqLengthArray") in read("6").skipped


FRONTS = ["> ", "# ", "// ", "2026-11-27T22:49:02Z app[7]: ", "[gpu 0] ", " * ", "| "]


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("version", ["v7300", "v8907", "v91200 46"])
def test_a_log_with_something_in_front_is_read_alike(front, version):
    plain = summarized(read_log(text().splitlines()))
    passed_on = "".join(f"{front}{line}\n" for line in text().replace("v8907", version).splitlines())
    log = read_log(passed_on.splitlines())
    found = summarized(log)
    assert (found.settings, found.refused.keys(), found.skipped.keys()) == (
        plain.settings,
        plain.refused.keys(),
        plain.skipped.keys(),
    )
    assert log.releases == ({"v7300": "7.3.0", "v8907": "8.9.7", "v91200 46": "9.12.0"}[version],)


def test_messages_of_errors_are_no_calls():
    message = "E! CuDNN (v8907) function cudnnBackendFinalize() called:\ne!     Error: CUDNN_STATUS_BAD_PARAM; Reason: x\ne! Time: 1\n"
    log = read_log((message + text()).splitlines())
    assert log.messages == 1 and log.calls[0].function == "cudnnSetTensor4dDescriptor"


@pytest.mark.parametrize("content, said", [
    (text().replace("v8907", "v100200 5").encode(), "cuDNN 10.2.0, whose form is not known"),
    (text().replace("v8907", "vNext").encode(), "cuDNN Next, whose form is not known"),
    (b"I! CuDNN (v8907) function cudnnSetLRNDescriptor() called:\n", "none of the 1 calls of the log could be judged"),
    (b"I! CuDNN (v8907) function cudnnCreate() called:\ni! Time: 1\n", "none of the 1 calls of the log could be judged"),
    (bytes(range(256)) * 4096, "is no saved call"),
    (b"x" * (1 << 20), "is no saved call"),
], ids=["release 10", "no release", "cut", "nothing to judge", "binary", "one line"])  # fmt: skip
def test_a_log_of_which_nothing_is_judged_is_one_sentence(tmp_path, capsys, content, said):
    path = tmp_path / "log"
    path.write_bytes(content)
    assert main(["replay", str(path), "--subject", "reference"]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.strip().splitlines()) == 1


def test_damaged_logs_do_not_end_the_tool(tmp_path, capsys):
    """Interleaved lines of two threads, numbers that are none, binary lines between, UTF-16, one cut in the middle of a line."""
    lines = text().splitlines()
    half = len(lines) // 2
    interleaved = "\n".join(line for pair in zip(lines[:half], lines[half:], strict=False) for line in pair)
    for content in (
        (interleaved + "\n" + text()).encode(),
        text().replace("val=[2,3,4,5]", "val=[2,3," + "9" * 5000 + "]").encode(),
        text().replace("i! Time", "\x00\xff\x1b[31m\ni! Time").encode("latin-1"),
        text().encode("utf-16"),
        text().encode()[: len(text()) * 2 // 3],
        (text() + "y" * (1 << 18)).encode(),
    ):
        path = tmp_path / "log"
        path.write_bytes(content)
        assert main(["replay", str(path), "--subject", "reference"]) == 0
        assert "set descriptors" in capsys.readouterr().out
