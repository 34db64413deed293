"""The command: its exit statuses, its report, its errors."""

from __future__ import annotations

import gzip
import json

import pytest
from dualdnn.conformance.command_line import main


def test_a_family_on_two_subjects_writes_the_report(tmp_path, capfd):
    out = tmp_path / "report"
    arguments = [
        "conformance",
        "--subject",
        "reference",
        "--subject",
        "accelerated:emulated",
        "-k",
        "test_forward_in_place",
        "--jobs",
        "1",
    ]
    assert main([*arguments, "--out", str(out)]) == 0
    report = json.loads((out / "compliance.json").read_text())
    assert report["schema"] == 1 and report["subjects"] == ["reference", "accelerated:emulated"]
    assert report["clauses"]["cudnnActivationForward/c06"]["subjects"] == {
        "reference": "passed",
        "accelerated:emulated": "passed",
    }
    assert len(report["clauses"]) == 4384 + 104 and len(report["functions"]) == 258 + 53
    assert report["functions"]["cudnnActivationForward"]["implemented"] == {
        "reference": True,
        "accelerated:emulated": True,
    }
    assert all(0 <= case["error_ratio"] <= 1 for case in report["cases"] if case["error_ratio"] is not None)
    assert (out / "junit.xml").exists() and (out / "report.html").exists()
    assert "report:" in capfd.readouterr().out


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
        cases = json.loads((out / "compliance.json").read_text())["cases"]
        return [(case["id"], case["outcome"], case["clauses"], case["error_ratio"]) for case in cases]

    assert results("1") == results("2")


def test_a_failure_is_exit_status_1_with_a_line_that_reruns_it(tmp_path, monkeypatch, capfd):
    from dualdnn.reference import activation

    mode = activation.Mode.CUDNN_ACTIVATION_TANH
    function, roundings = activation.FORWARD[mode]
    monkeypatch.setitem(activation.FORWARD, mode, (lambda x, a: function(x, a) * 1.001, roundings))
    out = tmp_path / "report"
    # The judge is wrong now: the accelerated backend seems to be.
    arguments = [
        "conformance",
        "--subject",
        "accelerated:emulated",
        "-k",
        "test_forward_in_place",
        "--jobs",
        "1",
        "--out",
        str(out),
    ]
    assert main(arguments) == 1
    failed = [
        case for case in json.loads((out / "compliance.json").read_text())["cases"] if case["outcome"] == "failed"
    ]
    assert failed and failed[0]["error_ratio"] > 1
    line = failed[0]["reproduction"]
    # Shown when it happens, not only in the summary at the end.
    assert f"failed: {line}" in capfd.readouterr().out.partition(" passed")[0]
    assert line.startswith(
        'dualdnn conformance --subject accelerated:emulated --case "activation/test_forward_in_place'
    )
    case = line.split('--case "')[1].rstrip('"')
    assert (
        main(["conformance", "--subject", "accelerated:emulated", "--case", case, "--jobs", "1", "--out", str(out)])
        == 1
    )
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


@pytest.mark.parametrize("arguments, message", [
    (["conformance", "--subject", "tpu"], "tpu"),
    (["conformance", "--subject", "library:/nowhere.so"], "nowhere"),
    (["conformance", "--jobs", "-1"], "--jobs"),
    (["conformance", "--operation", "nonsense("], "not the text"),
    (["replay", "/nowhere.npz"], "nowhere"),
])  # fmt: skip
def test_errors_are_one_line(arguments, message, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.strip().splitlines()) == 1


def test_info(capsys):
    assert main(["info"]) == 0
    shown = capsys.readouterr().out
    assert "of 258 implemented" in shown and "emulated device" in shown and "kernel cache" in shown


def test_the_page_of_a_kept_report(tmp_path, capsys):
    from dualdnn.conformance.report import write_report
    from synthetic_report import synthetic_report

    written = write_report(synthetic_report(), tmp_path / "first")
    kept = tmp_path / "compliance.json.gz"
    kept.write_bytes(gzip.compress(written["compliance.json"].read_bytes()))
    assert main(["report", str(kept), "--out", str(tmp_path / "again")]) == 0
    for name, path in written.items():
        assert (tmp_path / "again" / name).read_bytes() == path.read_bytes()
    kept.write_bytes(b"not compressed")
    assert main(["report", str(kept)]) == 2
    assert "compliance.json.gz" in capsys.readouterr().err
