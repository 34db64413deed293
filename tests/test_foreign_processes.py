"""Libraries that end, kill, hang or blind the process that loads them, and files that are no library at all."""

from __future__ import annotations

import subprocess

import pytest
from dualdnn.api.document import functions
from dualdnn.conformance.command_line import main
from dualdnn.conformance.report import read_json
from dualdnn.conformance.subjects import probe

DEEDS = {
    "exit": "exit(0)",
    "kill": "kill(getpid(), SIGKILL)",
    "hang": "for (;;) pause()",
    "close": "close(1); close(2)",
    "trap": "*(volatile int *)0 = 1",
    "fork": "if (fork() == 0) return 0",
    "stop": "raise(SIGSTOP)",
}
WHERE = "cudnnCreateAlgorithmPerformance"  # the first of these cases calls it
SET = "cudnnSetTensorNdDescriptor"
CASES = ("algorithm_descriptors/test_objects_that_were_not_set[1]", "pooling/test_null_descriptors")


def source(where: str, deed: str) -> str:
    """A library whose functions answer NOT_SUPPORTED, one of which, or the constructor, does a deed first."""
    lines = ["#include <signal.h>", "#include <stddef.h>", "#include <stdlib.h>", "#include <unistd.h>"]
    for name in functions():
        if name in ("cudnnGetVersion", "cudnnGetCudartVersion"):
            lines.append(f"size_t {name}(void) {{ return 8003; }}")
        elif name == "cudnnGetErrorString":
            lines.append('const char *cudnnGetErrorString(int s) { return "CUDNN_STATUS_SUCCESS"; }')
        elif name in ("cudnnCreate", "cudnnDestroy") and where == SET:
            lines.append(
                f"int {name}(void **made) {{ if (!made) return 3; {'*made = malloc(8);' if name == 'cudnnCreate' else ''} return 0; }}"
            )
        elif name.startswith("cudnnCreate") and name.endswith("Descriptor"):
            lines.append(f"int {name}(void **made) {{ if (!made) return 3; *made = malloc(8); return 0; }}")
        else:
            lines.append(f"int {name}() {{ {DEEDS[deed] if name == where else ''}; return 9; }}")
    begins = {"constructor": DEEDS[deed], "worker": f'if (getenv("PYTEST_XDIST_WORKER")) {DEEDS[deed]}'}.get(where, "")
    lines.append(f"__attribute__((constructor)) static void first(void) {{ {begins}; }}")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Builds a library once for each place and deed."""
    folder = tmp_path_factory.mktemp("libraries")

    def build(where: str, deed: str):
        path = folder / f"{where}-{deed}.so"
        if not path.exists():
            path.with_suffix(".c").write_text(source(where, deed))
            command = ["gcc", "-w", "-shared", "-fPIC", str(path.with_suffix(".c")), "-o", str(path)]
            subprocess.run(command, check=True)
        return path

    return build


def run(tmp_path, path, *options: str):
    """The exit status of a run of two cases, and the cases of its report."""
    out = tmp_path / "out"
    named = [text for case in CASES for text in ("--case", case)]
    status = main(["conformance", "--subject", f"library:{path}", *named, "--out", str(out), *options])
    cases = read_json(out / "compliance.json").cases if (out / "compliance.json").exists() else ()
    return status, cases


@pytest.mark.parametrize("deed, jobs, said", [
    ("exit", 1, "the subject ended the process with exit status 0"),
    ("kill", 2, "the subject ended the process by signal 9 (SIGKILL)"),
    ("hang", 1, "the subject did not return within 4.0 seconds"),
    ("close", 1, "the subject closed descriptor 1 and 2 of its process"),
    ("fork", 1, "the subject forked: a copy of its process came back from a call"),
    ("stop", 1, "the subject stopped its process, which was ended"),
])  # fmt: skip
def test_what_a_library_does_to_its_process_is_a_finding_of_the_case(library, tmp_path, deed, jobs, said, capfd):
    """The other cases go on, in as many new processes as it takes; the finding has the clauses that the case names."""
    path = library(WHERE, deed)
    status, cases = run(tmp_path, path, "--jobs", str(jobs), "--case-seconds", "4")
    assert status == 1, capfd.readouterr().out
    found = [case for case in cases if said in case.message]
    assert [case.id for case in found] == [CASES[0]]
    assert found[0].outcome == "failed" and found[0].clauses and len(cases) == len(CASES)


@pytest.mark.parametrize("command, where, deed, said", [
    ("bench", "constructor", "exit", "ended the process with exit status 0 while it was loaded"),
    ("conformance", "constructor", "exit", "ended the process with exit status 0 while it was loaded"),
    ("conformance", "constructor", "close", "closes descriptor 1 and 2 of the process that loads it"),
    ("conformance", "constructor", "hang", "took longer than 5 seconds while it was loaded"),
    ("conformance", "cudnnCreate", "trap", "ended the process by signal 11 (SIGSEGV) while cudnnCreate was called"),
])  # fmt: skip
def test_a_library_that_cannot_be_asked_is_one_sentence(
    library, tmp_path, monkeypatch, capfd, where, deed, said, command
):
    path = library(where, deed)
    probe.probed.cache_clear()
    monkeypatch.setattr(probe, "LOADING_SECONDS", 5)
    option = {"conformance": "--subject", "bench": "--vendor"}[command]
    assert main([command, option, f"library:{path}", "--out", str(tmp_path / "out")]) == 2
    error = capfd.readouterr().err
    assert said in error and str(path) in error and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_workers_that_end_before_any_case_stop_the_run(library, tmp_path, capfd, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # where this test runs in a worker itself
    status, cases = run(tmp_path, library("worker", "exit"), "--jobs", "1")
    assert status == 2 and not cases
    assert "3 processes ended before they ran a case: the subject ended the process with exit status 0" in (
        capfd.readouterr().out
    )


def test_files_that_are_no_library_are_one_sentence(library, tmp_path, capfd):
    """Another library, one with some of the functions, one cut short, one of another machine, text, a folder."""
    whole = library(WHERE, "exit").read_bytes()
    (tmp_path / "part.c").write_text("int cudnnSetStream() { return 0; } int cudnnGetStream() { return 0; }")
    for name, text in (("other.so", "int f() { return 1; }"), ("part.so", (tmp_path / "part.c").read_text())):
        (tmp_path / "x.c").write_text(text)
        subprocess.run(["gcc", "-w", "-shared", "-o", str(tmp_path / name), str(tmp_path / "x.c")], check=True)
    for share in (2, 3, 20):
        (tmp_path / f"cut{share}.so").write_bytes(whole[: len(whole) // share])
    (tmp_path / "machine.so").write_bytes(whole[:18] + b"\xb7\x00" + whole[20:])  # AArch64 in the header
    (tmp_path / "text.so").write_text("no library")
    expected = {
        "other.so": "exports 0 of the documented functions, but not cudnnCreate",
        "part.so": "exports 2 of the documented functions, but not cudnnCreate",
        **dict.fromkeys(["cut2.so", "cut3.so", "cut20.so", "machine.so", "text.so", "."], ""),
    }
    for name, said in expected.items():
        assert main(["conformance", "--subject", f"library:{tmp_path / name}", "--out", str(tmp_path / "out")]) == 2, (
            name
        )
        error = capfd.readouterr().err
        assert said in error and str(tmp_path) in error and len(error.strip().splitlines()) == 1, error


@pytest.mark.parametrize("deed, said", [
    ("exit", "ended the process with exit status 0 before the command had come to its end"),
    ("close", "closed the standard output or error of the command"),
])  # fmt: skip
def test_an_operation_on_a_library_that_ends_the_process_is_one_sentence(library, deed, said, capfd):
    """One process judges one operation: the command says what became of it."""
    tensor = "TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(2, 3), strides=(3, 1))"
    text = f"SetTensor(value=1.0, y={tensor})"
    path = library(SET, deed)
    assert main(["conformance", "--operation", text, "--subject", f"library:{path}"]) == 2
    assert said in capfd.readouterr().err.strip().splitlines()[-1]
