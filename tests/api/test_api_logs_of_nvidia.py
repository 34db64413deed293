"""Test that logs that NVIDIA's release 8.9.7 writes of every setter (oracles/logged_setters.py) are read, also as
people and collectors pass them on.
"""

from __future__ import annotations

import html
import json

import pytest
from dualdnn.api import cudnn
from dualdnn.api.document import functions
from dualdnn.conformance.command_line import main
from dualdnn.conformance.replay.api_logs import Reader, Unreadable, read_log, summarized
from oracles.logged_setters import CALLS, LOG, kind_of

# These setters need a handle, which NVIDIA's library makes on a GPU only, or set objects that it does not log as descriptors.
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
    """Return what each function's logged calls leave in a descriptor, and why a function's calls cannot be made."""
    reader, found, left = Reader(), {}, {}
    for call in read_log(text().splitlines()).calls:
        base = functions()[call.function].parameters[0].base_type
        try:
            reader(call)
        except Unreadable as reason:
            left[call.function] = str(reason)
        except cudnn.CudnnError:
            continue  # The library was meant to refuse this call.
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


def test_numbers_after_the_real_entries_are_ignored():
    """Release 7.3 logs maxSeqLength numbers for an array that has batchSize entries."""
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
    assert list(log.releases) == [{"v7300": "7.3.0", "v8907": "8.9.7", "v91200 46": "9.12.0"}[version]]


def alike(text_of_a_log):
    """Assert that these lines give the same calls as the plain log, with the same refusals and skips."""
    plain, log = summarized(read_log(text().splitlines())), read_log(text_of_a_log.splitlines())
    found = summarized(log)
    assert (found.settings, found.refused.keys(), found.skipped.keys()) == (
        plain.settings,
        plain.refused.keys(),
        plain.skipped.keys(),
    )
    return log


DRESSES = {
    "a container's log": lambda line: json.dumps(
        {"log": line + "\n", "stream": "stderr", "time": "2026-11-27T22:49:02.9Z"}
    ),
    "a notebook": lambda line: f"       {json.dumps(line + chr(10))},",
    "a table": lambda line: f'"2026-11-28 10:00:00","worker","{line}"',
    "the system's journal": lambda line: json.dumps({"_PID": "12", "MESSAGE": line, "PRIORITY": "6"}),
    "colours": lambda line: f"\x1b[1;32m{line.replace('val=', chr(27) + '[33mval=')}\x1b[0m",
    "a title of the terminal": lambda line: f"\x1b]0;train\x07{line}",
    "CRLF": lambda line: f"{line}\r",
    "escaped for HTML": lambda line: html.escape(line).replace("    ", "&nbsp;&nbsp;&nbsp;&nbsp;"),
    "tags": lambda line: f'<span class="o">{line}</span><br/>',
    "blanks of a word processor": lambda line: line.replace("    ", "\u00a0\u00a0\u00a0\u00a0"),
    "escaped for Markdown": lambda line: line.replace("_", "\\_"),
    "a mark of the file's beginning": lambda line: f"\ufeff{line}",
    "tabs": lambda line: line.replace("    ", "\t"),
    "a rank": lambda line: f"[rank0]:{line}",
    "a logger": lambda line: f"12:03:04 I {line}",
    "systemd": lambda line: f"Nov 28 06:12:01 host python[4711]: {line}",
    "mpirun": lambda line: f"[1,0]<stderr>:{line}",
    "a container": lambda line: f"worker_1  | {line}",
}


@pytest.mark.parametrize("dress", DRESSES.values(), ids=DRESSES.keys())
def test_a_log_that_was_copied_is_read_as_it_was_written(dress):
    alike("\n".join(map(dress, text().split("\n"))))


def test_a_log_in_a_fence_of_markdown_is_read():
    alike(f"It fails so:\n\n```text\n{text()}\n```\n")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_encodings_with_a_mark_are_read(tmp_path, capsys, encoding):
    said = []
    for number, chosen in enumerate(("utf-8", encoding)):
        path = tmp_path / str(number)
        path.write_bytes(text().replace("\n", "\r\n").encode(chosen))
        main(["replay", str(path), "--subject", "reference"])
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


@pytest.mark.parametrize(
    "origins", [("[rank0]:", "[rank1]:"), ("worker_1 | ", "worker_2 | "), ("a python[17]: ", "a python[18]: ")]
)
def test_processes_that_write_among_each_other_are_told_apart(origins):
    """The lines of two processes alternate."""
    pairs = ((f"{origins[0]}{line}", f"{origins[1]}{line}") for line in text().splitlines())
    log = read_log([line for pair in pairs for line in pair])
    once = summarized(read_log(text().splitlines()))
    found = summarized(log)
    assert found.settings == 2 * once.settings and found.skipped.keys() == once.skipped.keys()


def test_counted_lines_are_one_process():
    alike("\n".join(f"[{number}] {line}" for number, line in enumerate(text().split("\n"))))


SET_LRN = """I! CuDNN (v8907) function cudnnSetLRNDescriptor() called:
i!     lrnN: type=unsigned; val=5;
i!     lrnAlpha: type=double; val=0.0001;
i!     lrnBeta: type=double; val=0.75;
i!     lrnK: type=double; val=1.0;
i! Time: 1
"""


@pytest.mark.parametrize("number", ["9" * 300, "-1", "4294967296", "1e", "9" * 5000])
def test_a_number_that_no_type_holds_is_what_cannot_be_read(number):
    """The call is skipped without asking the document, and the program is not blamed."""
    found = summarized(read_log(SET_LRN.replace("val=5", f"val={number}").splitlines()))
    ((_, reason),) = found.skipped
    assert reason.startswith("lrnN, a unsigned, cannot be read: ") and len(reason) < 200 and not found.refused


SET_ACTIVATION = """I! CuDNN (v8907) function cudnnSetActivationDescriptor() called:
i!     mode: type=cudnnActivationMode_t; val=CUDNN_ACTIVATION_TANH (2);
i!     reluNanOpt: type=cudnnNanPropagation_t; val=CUDNN_PROPAGATE_NAN (1);
i!     coef: type=double; val=1.0;
i! Time: 1
"""


@pytest.mark.parametrize("value, said", [
    ("CUDNN_ACTIVATION_RELU (2)", "CUDNN_ACTIVATION_RELU is 1 of cudnnActivationMode_t, not 2 of cudnnActivationMode_t"),
    ("CUDNN_DATA_HALF (2)", "CUDNN_DATA_HALF is 2 of cudnnDataType_t, not 2 of cudnnActivationMode_t"),
    ("CUDNN_ACTIVATION_OF_LATER (2)", None),
    ("2", None),
])  # fmt: skip
def test_a_name_and_a_number_that_contradict_each_other_are_skipped(value, said):
    """A name that the document lacks counts by its number."""
    found = summarized(read_log(SET_ACTIVATION.replace("CUDNN_ACTIVATION_TANH (2)", value).splitlines()))
    assert found.settings == (said is None) and not found.refused
    assert [reason for _, reason in found.skipped] == (
        [] if said is None else [f"{value!r} contradicts itself: {said}"]
    )


@pytest.mark.parametrize("version, later", [(91900, False), (91901, True), (99999, True), (8907, False), (8908, True)])
def test_a_log_that_is_later_than_the_known_ones_is_read_and_named(version, later):
    log = read_log(text().replace("v8907", f"v{version}").splitlines())
    found = summarized(log)
    assert found.settings == summarized(read_log(text().splitlines())).settings
    assert any("is later than the last release" in line for line in found.lines(log)) == later


def test_lines_of_two_calls_that_nothing_tells_apart_are_named():
    first, second = SET_LRN.splitlines(), SET_LRN.replace("val=5", "val=7").splitlines()
    mixed = [first[0], second[0], first[1], second[1], *first[2:]]
    (_, reason), *_ = [key for key in summarized(read_log(mixed)).skipped if "mixed" in key[1]]
    assert reason == "lines of two calls are mixed: lrnN is there twice"


def test_messages_of_errors_are_no_calls():
    message = "E! CuDNN (v8907) function cudnnBackendFinalize() called:\ne!     Error: CUDNN_STATUS_BAD_PARAM; Reason: x\ne! Time: 1\n"
    log = read_log((message + text()).splitlines())
    assert log.messages == 1 and log.calls[0].function == "cudnnSetTensor4dDescriptor"


SETTER = f"I! {text().split('I! ')[1]}".replace("val=-1", "val=2")  # sets a tensor descriptor


@pytest.mark.parametrize("content, said", [
    (text().replace("v8907", "v100200 5").encode(), "cuDNN 10.2.0, whose form is not known"),
    *((text().replace("v8907", version).encode(), f"a log of cuDNN {version}, whose form is not known") for version in ("v9000", "v70000")),
    (text().replace("v8907", "vNext").encode(), "cuDNN Next, whose form is not known"),
    (b"I! CuDNN (v8907) function cudnnSetLRNDescriptor() called:\n", "none of the 1 calls of the log could be judged"),
    (b"I! CuDNN (v8907) function cudnnCreate() called:\ni! Time: 1\n", "none of the 1 calls of the log could be judged"),
    (f"{SETTER}I! CuDNN (v8907) function cudnnActivationForward() called:\n".encode(), "judged, though 1 set descriptors"),
    (text().encode()[:60], "a log of cuDNN 8.9.7 without a whole line that names a call"),
    (b"", "is not a saved call: neither an .npz file nor an API log of cuDNN"),
    (bytes(range(256)) * 4096, "is not a saved call"),
    (b"x" * (1 << 20), "is not a saved call"),
], ids=["release 10", "release 9 in four digits", "release 7 in five", "no release", "cut", "nothing to judge", "computes after a setter", "cut in its first line", "empty", "binary", "one line"])  # fmt: skip
def test_a_log_without_judged_calls_ends_in_one_sentence(tmp_path, capsys, content, said):
    path = tmp_path / "log"
    path.write_bytes(content)
    assert main(["replay", str(path), "--subject", "reference"]) == 2
    error = capsys.readouterr().err
    assert said in error and len(error.strip().splitlines()) == 1


def test_a_device_is_no_log(capsys):
    """It may have no end, and a pipe can be read only once."""
    assert main(["replay", "/dev/zero"]) == 2
    assert capsys.readouterr().err == "dualdnn replay: /dev/zero is not a file\n"


def test_damaged_logs_do_not_end_the_tool(tmp_path, capsys):
    """The tool survives interleaved threads, impossible numbers, binary lines, UTF-16, and a log that is cut inside a line."""
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
