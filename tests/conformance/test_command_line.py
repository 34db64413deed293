"""Test that the command returns its exit statuses, writes its report, and explains its errors."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from dualdnn.api import files
from dualdnn.conformance.command_line import main
from dualdnn.conformance.report import CaseResult, Clause, Function, Report, Subject, read_json, write_report
from dualdnn.conformance.report import command as report_command
from dualdnn.conformance.suite import collector, fixtures
from dualdnn.conformance.suite import command as suite_command

ONE = ["conformance", "--subject", "reference", "--jobs", "1"]
LAYOUTS = ("nchw", "nhwc", "chwn", "gaps", "odd")
# Cases that are named are collected from one file, those of -k from all files.
IN_PLACE = [text for name in LAYOUTS for text in ("--case", f"activation/test_forward_in_place[{name}]")]


def test_two_subjects_are_in_one_report(tmp_path, capfd):
    out = tmp_path / "report"
    assert main([*ONE, "--subject", "accelerated:emulated", *IN_PLACE, "--out", str(out)]) == 0
    report = json.loads((out / "compliance.json").read_text())
    assert report["schema"] == 3 and report["subjects"] == ["reference", "accelerated:emulated"]
    assert report["clauses"]["cudnnActivationForward/c06"]["subjects"] == {
        "reference": "passed",
        "accelerated:emulated": "passed",
    }
    assert len(report["clauses"]) == 4384 + 104 + 10 and len(report["functions"]) == 258 + 53
    assert report["functions"]["cudnnActivationForward"]["implemented"] == {
        "reference": True,
        "accelerated:emulated": True,
    }
    assert all(0 <= case["error_ratio"] <= 1 for case in report["cases"] if case["error_ratio"] is not None)
    assert (out / "junit.xml").exists() and (out / "report.html").exists()
    assert "report (partial):" in capfd.readouterr().out


@pytest.mark.long
def test_processes_give_the_same_results(tmp_path, capfd):
    def results(jobs: str) -> list[tuple]:
        out = tmp_path / jobs
        assert (
            main(
                [
                    "conformance",
                    "--subject",
                    "reference",
                    "-k",
                    "activation and test_forward",
                    "--jobs",
                    jobs,
                    "--out",
                    str(out),
                ]
            )
            == 0
        )
        return [(c.id, c.outcome, c.clauses, c.error_ratio) for c in read_json(out / "compliance.json").cases]

    assert results("1") == results("2")


def test_a_failure_is_exit_status_1_with_a_line_that_reruns_it(tmp_path, monkeypatch, capfd):
    from dualdnn.reference import activation

    mode = activation.Mode.CUDNN_ACTIVATION_TANH
    function, roundings = activation.FORWARD[mode]
    monkeypatch.setitem(activation.FORWARD, mode, (lambda x, a: function(x, a) * 1.001, roundings))
    out = tmp_path / "report"
    # The judge is wrong here, so that the accelerated backend seems to be.
    run = ["conformance", "--subject", "accelerated:emulated", "--jobs", "1", "--out", str(out)]
    assert main([*run, *IN_PLACE]) == 1
    failed = [
        case for case in json.loads((out / "compliance.json").read_text())["cases"] if case["outcome"] == "failed"
    ]
    assert failed and failed[0]["error_ratio"] > 1
    line = failed[0]["reproduction"]
    # The failure is shown when it happens, not only in the summary at the end.
    assert f"failed: {line}" in capfd.readouterr().out.partition(" passed")[0]
    assert line.startswith(
        'dualdnn conformance --subject accelerated:emulated --case "activation/test_forward_in_place'
    )
    case = line.split('--case "')[1].rstrip('"')
    assert main([*run, "--case", case]) == 1
    assert len(json.loads((out / "compliance.json").read_text())["cases"]) == 1


def test_one_operation_from_its_text(capsys):
    text = (
        "ActivationForward(activation=ActivationSpec(mode=CUDNN_ACTIVATION_ELU, relu_nan=CUDNN_PROPAGATE_NAN, coefficient=0.5),"
        " alpha=2.0, beta=1.0, x=TensorSpec(data_type=CUDNN_DATA_HALF, dims=(2, 3, 4), strides=(12, 4, 1)),"
        " y=TensorSpec(data_type=CUDNN_DATA_HALF, dims=(2, 3, 4), strides=(1, 8, 2)))"
    )
    arguments = ["conformance", "--operation", text, "--subject", "reference", "--subject", "accelerated:emulated"]
    assert main([*arguments, "--inputs", "special", "--seed", "4"]) == 0
    assert capsys.readouterr().out.count("passed") == 2


def test_one_operation_by_every_solver(capsys):
    tensor = "TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(2, 3, 4, 5), strides=(60, 20, 5, 1))"
    text = f"SoftmaxForward(algorithm=CUDNN_SOFTMAX_ACCURATE, mode=CUDNN_SOFTMAX_MODE_CHANNEL, alpha=1.0, beta=0.0, x={tensor}, y={tensor})"
    assert main(["conformance", "--operation", text, "--subject", "accelerated:emulated", "--solvers", "all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    named = {line.partition(" by ")[2].partition(":")[0] for line in lines[1:]}
    assert len(named) == len(lines) - 1 > 0 and all(name.startswith("softmax.") for name in named)


@pytest.mark.parametrize("arguments, message", [
    (["conformance", "--subject", "tpu"], "tpu"),
    (["conformance", "--subject", "library:/nowhere.so"], "nowhere"),
    (["conformance", "--subject", "recorded:/nowhere.npz"], "nowhere"),
    (["conformance", "--subject", f"recorded:{__file__}"], "test_command_line"),
    (["conformance", "--subject", "reference", "--subject", "recorded:/"], "recording"),
    (["conformance", "--jobs", "-1"], "--jobs"),
    (["conformance", "--operation", "nonsense("], "not the text"),
    (["conformance", "--operation", "5"], "not the text"),
    (["conformance", "--operation", "ScaleTensor()", "--solvers", "nonsense"], "nonsense"),
    (["conformance", "--operation", "ScaleTensor(alpha=3.0, y=5)"], "y of ScaleTensor is 5, not TensorSpec"),
    (["replay", "/nowhere.npz"], "nowhere"),
    (["conformance", "-k", "((("], "not an expression"),
    (["conformance", "--expected", "/nowhere.txt"], "nowhere"),
    (["conformance", "-k", "pooling", "--out", "/proc/nothing/here"], "/proc/nothing"),
    (["conformance", "--subject", f"library:{__file__}"], "test_command_line"),
    (["replay", __file__], "test_command_line"),
    (["replay", "/"], "/"),
    (["replay", __file__, "--record", "1"], "test_command_line"),
    (["report", "/"], "/"),
    (["report", __file__], "not JSON"),
])  # fmt: skip
def test_errors_are_one_line(arguments, message, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.strip().splitlines()) == 1


def test_an_unknown_kind_of_inputs_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["conformance", "--operation", "5", "--inputs", "nonsense"])
    assert "invalid choice: 'nonsense' (choose from" in capsys.readouterr().err


def test_info_counts_functions_and_names_the_device(capsys):
    assert main(["info"]) == 0
    shown = capsys.readouterr().out
    assert "of 258 implemented" in shown and "emulated device" in shown and "kernel cache" in shown


def test_the_page_of_a_kept_report(tmp_path, capsys):
    cases = [
        CaseResult(outcome, "host", ("f/c01",), outcome, 0.25, None, "größe-ε") for outcome in ("passed", "failed")
    ]
    rule = Clause("f/c01", "f", "semantics", None, "both", "1.2", "library", "It does what it does.")
    report = Report.build(cases, [Subject("host")], {"f": Function("library", {"host": True})}, {rule.id: rule}, {})
    written = write_report(report, tmp_path / "first")
    kept = tmp_path / "compliance.json.gz"
    kept.write_bytes(gzip.compress(written["compliance.json"].read_bytes()))
    assert main(["report", str(kept), "--out", str(tmp_path / "again")]) == 0
    for name, path in written.items():
        assert (tmp_path / "again" / name).read_bytes() == path.read_bytes()
    kept.write_bytes(b"not compressed")
    assert main(["report", str(kept)]) == 2
    assert "compliance.json.gz" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"\x93NUMPY", b"{}"], ids=repr)
@pytest.mark.parametrize("command", [["replay"], ["report"], ["replay", "--record", "1"]], ids=" ".join)
def test_damaged_files_are_errors_of_one_line(tmp_path, capsys, command, content):
    for suffix in (".npz", ".json.gz"):
        path = tmp_path / f"damaged{suffix}"
        path.write_bytes(content)
        assert main([command[0], str(path), *command[1:]]) == 2
        error = capsys.readouterr().err
        assert "damaged" in error and len(error.strip().splitlines()) == 1


def test_a_saved_call_that_lacks_a_part(tmp_path, capsys):
    np.savez_compressed(tmp_path / "part.npz", operation="nonsense")
    assert main(["replay", str(tmp_path / "part.npz")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.fixture(scope="module")
def one_case(tmp_path_factory):
    """Return the folder of a report of one case, and the id of the case."""
    out = tmp_path_factory.mktemp("one") / "report"
    case = "activation/test_forward_in_place"
    assert main([*ONE, "-k", "test_forward_in_place and activation", "--out", str(out)]) == 0
    found = read_json(out / "compliance.json").cases[0].id
    assert found.startswith(case)
    return out, found


def test_a_partial_report_says_so_everywhere(one_case):
    out, _ = one_case
    report = json.loads((out / "compliance.json").read_text())
    facts = report["environment"]
    assert facts["state"] == "partial" and facts["selection"] == "-k 'test_forward_in_place and activation'"
    assert facts["command"].startswith("dualdnn conformance --subject reference")
    assert {"commit", "cpu", "driver", "compiler (host compiler)", "seed"} <= set(facts)
    assert 'name="state" value="partial"' in (out / "junit.xml").read_text()


def test_a_selection_of_nothing_writes_nothing(one_case, capfd):
    out, case = one_case
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert main([*ONE, "--case", "nosuch", "--out", str(out)]) == 2
    assert "no such case: nosuch" in capfd.readouterr().out
    assert main([*ONE, "-k", "nothing_is_called_this", "--out", str(out)]) == 2
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    new = out.parent / "one" / "two"
    assert main([*ONE, "--case", "activation/nosuch", "--out", str(new)]) == 2 and not new.parent.exists()
    assert main([*ONE, "--case", case, "--case", "nosuch", "--out", str(out)]) == 2
    assert "no such case: nosuch" in capfd.readouterr().out


def test_a_part_does_not_replace_the_report_of_the_whole(one_case, tmp_path, monkeypatch, capsys):
    out, case = one_case
    whole = tmp_path / "conformance-report"
    whole.mkdir()
    text = (out / "compliance.json").read_text().replace('"state": "partial"', '"state": "complete"')
    (whole / "compliance.json").write_text(text)
    assert main([*ONE, "--case", case, "--out", str(whole)]) == 2
    assert "a part would replace" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert main([*ONE, "--case", case]) == 0
    assert (whole / "compliance.json").read_text() == text
    assert (tmp_path / "conformance-report-partial" / "report.html").exists()


def test_results_survive_a_place_that_fails_at_the_end(one_case, tmp_path, monkeypatch, capfd):
    _, case = one_case
    written = collector.write_report

    def fails(report, directory):
        if directory == tmp_path / "out":
            raise OSError("No space left on device")
        return written(report, directory)

    monkeypatch.setattr(collector, "write_report", fails)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main([*ONE, "--case", case, "--out", str(tmp_path / "out")]) == 2
    assert "No space left" in capfd.readouterr().out
    assert len(list(tmp_path.glob("dualdnn-report-*/compliance.json"))) == 1


def test_an_interrupted_run_keeps_what_it_found(one_case, tmp_path, monkeypatch, capfd):
    out, _ = one_case
    whole = tmp_path / "report"
    whole.mkdir()
    text = (out / "compliance.json").read_text().replace('"state": "partial"', '"state": "complete"')
    (whole / "compliance.json").write_text(text)
    original, calls = fixtures.attempt_chain, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(fixtures, "attempt_chain", interrupted)
    monkeypatch.setattr(suite_command, "_destination", lambda *_: whole)
    expected = tmp_path / "expected.txt"
    expected.write_text("reference all/of_them\n")
    assert main([*ONE, *IN_PLACE, "--out", str(whole), "--write-expected", str(expected)]) == 130
    assert expected.read_text() == "reference all/of_them\n"
    report = json.loads((tmp_path / "report-interrupted" / "compliance.json").read_text())
    assert report["environment"]["state"] == "interrupted"
    assert report["totals"]["cases"]["reference"]["passed"] == 2
    assert (whole / "compliance.json").read_text() == text and "(interrupted)" in capfd.readouterr().out


def test_expected_failures_that_cannot_be_written(one_case, tmp_path, monkeypatch, capfd):
    """A place that takes no file is an error before anything runs. A full disk at the end loses nothing else."""
    _, case = one_case
    run = [*ONE, "--case", case, "--out", str(tmp_path / "out")]
    (tmp_path / "file").touch()
    assert main([*run, "--write-expected", str(tmp_path / "file" / "expected.txt")]) == 2
    assert "nothing was written" in capfd.readouterr().err and not (tmp_path / "out").exists()
    listed = tmp_path / "expected.txt"
    listed.write_text("reference what/was_there\n")

    def full(descriptor, mode):
        os.close(descriptor)
        raise OSError("No space left on device")

    monkeypatch.setattr(files.os, "fdopen", full)
    assert main([*run, "--write-expected", str(listed)]) == 2
    shown = capfd.readouterr().out
    assert "No space left on device" in shown and "1 passed" in shown
    assert listed.read_text() == "reference what/was_there\n" and {p.name for p in tmp_path.iterdir()} == {
        "expected.txt", "file", "out",
    }  # fmt: skip


def test_permissions_of_files(tmp_path, monkeypatch):
    """A new file gets the default permissions without setting the umask, which other threads share. Others keep theirs."""
    before = os.umask(0o027)
    try:
        monkeypatch.setattr(files.os, "umask", None)
        files.write(tmp_path / "new", b"new")
        kept = tmp_path / "kept"
        kept.touch()
        for mode in (0o777, 0o604, 0o200):
            kept.chmod(mode)
            files.write(kept, b"again")
            assert kept.stat().st_mode & 0o7777 == mode
    finally:
        monkeypatch.undo()
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o7777 == 0o640 and len([*tmp_path.iterdir()]) == 2


def test_an_interrupted_command_is_one_line(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(report_command, "read_json", interrupted)
    assert main(["report", "any.json"]) == 130
    assert capsys.readouterr().err == "\ndualdnn report: interrupted\n"


def test_expected_failures(one_case, tmp_path, monkeypatch, capfd):
    """New failures and unexpected passes fail the run. Expected failures do not."""
    _, case = one_case
    right, listed = fixtures.attempt_chain, tmp_path / "expected.txt"
    run = [*ONE, "--case", case, "--out", str(tmp_path / "out")]
    with monkeypatch.context() as broken:
        broken.setattr(fixtures, "attempt_chain", wrong(right))
        assert main([*run, "--write-expected", str(listed)]) == 1
        assert listed.read_text().splitlines()[-1] == f"reference {case}"
        assert main([*run, "--expected", str(listed)]) == 0
        entry = json.loads((tmp_path / "out" / "compliance.json").read_text())["cases"][0]
        assert (entry["outcome"], entry["known"]) == ("failed", "expected failure")
        assert "1 known failures" in capfd.readouterr().out
    assert main([*run, "--expected", str(listed)]) == 1
    assert "passes unexpectedly" in capfd.readouterr().out
    assert "unexpected_pass" in (tmp_path / "out" / "junit.xml").read_text()
    listed.write_text("no case\n")
    assert main([*run, "--expected", str(listed)]) == 2


def wrong(right):
    """Return trials with the verdict that an element is wrong."""

    def attempt(*arguments):
        result = right(*arguments)
        result.problems.append("an element is wrong")
        return result

    return attempt


WITHOUT_PYTEST = """
import sys
from importlib.abc import MetaPathFinder
class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pytest", "_pytest", "xdist", "pluggy", "hypothesis"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from dualdnn.conformance.command_line import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "command, status, said",
    [
        (["conformance"], 2, "dualdnn conformance: pytest is missing: pip install 'dualdnn[suite]'"),
        (["show", "D241"], 0, "IMPLICIT_PRECOMP_GEMM"),
        (["run", "--help"], 0, "COMMAND"),
    ],
    ids=["conformance", "show", "run"],
)
def test_users_without_test_tools_get_commands_or_the_name_of_the_extra(command, status, said):
    done = subprocess.run([sys.executable, "-c", WITHOUT_PYTEST, *command], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    assert said in done.stdout + done.stderr
