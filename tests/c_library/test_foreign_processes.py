"""Test that a library may end, kill, hang or silence the process that loads it, and a file may not be a library."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from dualdnn.api.document import functions
from dualdnn.conformance.command_line import main
from dualdnn.conformance.guarded import INTERRUPTED
from dualdnn.conformance.report import read_json
from dualdnn.conformance.suite import workers

DEEDS = {
    "exit": "exit(0)",
    "_exit": "_exit(0)",
    "kill": "kill(getpid(), SIGKILL)",
    "kill group": "if (getpgrp() != getpid()) _exit(3); kill(0, SIGKILL)",  # This spares the test where it would die, too.
    "hang": "for (;;) pause()",
    "close": "close(1); close(2)",
    "trap": "*(volatile int *)0 = 1",
    "fork": "if (fork() == 0) return 0",
    "copy": "fork()",
    "leave": "if (fork() == 0) { sleep(90); _exit(0); } for (;;) pause()",
    "stop": "raise(SIGSTOP)",
    "interrupt": "raise(SIGINT)",
    "end parent": "kill(getppid(), SIGTERM)",
    "nap": "sleep(4)",
    "round": "fesetround(FE_UPWARD)",
    "limit": "setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0})",
    "scribble": 'for (int n = 3; n < 64; n++) write(n, "\\0\\xff" "Agarbage garbage", 18)',
    "accept": "return 0",
    "refuse": "return 9",
    "nothing": "if (made) return 0",
    "corrupt": "{ char *p = malloc(24); memset(p - 64, 0x5a, 4096); free(p); free(malloc(5000)); }",
}
SET = "cudnnSetTensorNdDescriptor"
OPERATION = "SetTensor(value=1.0, y=TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(2, 3), strides=(3, 1)))"
LIMIT = "2"  # seconds before a hanging call is ended; a busy machine loads a library in less
# function -> (its deed, the case that calls it, text of the report)
FINDINGS = {
    "cudnnCreateAlgorithmPerformance": (
        "exit", "algorithm_descriptors/test_objects_that_were_not_set[1]", "ended the process with exit status 0"),
    "cudnnSetActivationDescriptor": (
        "kill group", "library/test_activation_descriptor_round_trip", "ended the process by signal 9 (SIGKILL)"),
    "cudnnSetReduceTensorDescriptor": (
        "hang", "reduce_tensor/test_settings_are_read_back", "did not return within 12.0 seconds"),
    "cudnnSetFilter4dDescriptor": (
        "interrupt", "filter_descriptors/test_4d[CUDNN_DATA_BFLOAT16-CUDNN_TENSOR_NCHW]", "interrupted its process"),
    "cudnnSetLRNDescriptor": (
        "close", "normalization_lrn/test_set_and_get[values0]", "closed descriptor 1 and 2 of its process"),
    "cudnnSetConvolution2dDescriptor": (
        "fork", "convolution_descriptors/test_set_and_get_2d[CUDNN_DATA_FLOAT-CUDNN_CONVOLUTION]",
        "forked: a copy of its process came back from a call"),
    "cudnnSetCTCLossDescriptor": (
        "stop", "ctc_descriptors/test_short_setter_is_the_extended_one[CUDNN_DATA_FLOAT]", "stopped its process, which was ended"),
    "cudnnSetOpTensorDescriptor": (
        "corrupt",
        "tensor_arithmetic/test_what_is_set_is_read[CUDNN_OP_TENSOR_ADD-CUDNN_DATA_FLOAT-CUDNN_NOT_PROPAGATE_NAN]",
        "ended the process by signal"),  # The allocator may notice the damage, or meet it.
    "cudnnSetTensorTransformDescriptor": (
        "round", "transform/test_null_arrays_mean_none", "changed how its process rounds, or made subnormal numbers 0"),
    "cudnnSetSpatialTransformerNdDescriptor": (
        "limit", "spatial_transformer/test_descriptors", "left its process unable to go on"),
    "cudnnSetPooling2dDescriptor": ("", "pooling/test_null_descriptors", "cudnnSetPooling2dDescriptor"),
}  # fmt: skip


def source(deeds: dict[str, str], handles: bool = False) -> str:
    """Return the C source of a library that answers NOT_SUPPORTED. cudnnCreate finds no GPU. Named functions, constructor or destructor first do a deed.

    handles: cudnnCreate makes a handle.
    """
    lines = [
        f"#include <{name}.h>" for name in ("fenv", "signal", "stddef", "stdlib", "string", "sys/resource", "unistd")
    ]
    for name in functions():
        deed = f"{DEEDS[deeds[name]]};" if name in deeds else ""
        if name in ("cudnnGetVersion", "cudnnGetCudartVersion"):
            lines.append(f"size_t {name}(void) {{ return 8003; }}")
        elif name == "cudnnGetErrorString":
            lines.append('const char *cudnnGetErrorString(int s) { return "CUDNN_STATUS_SUCCESS"; }')
        elif name == "cudnnDestroy" and handles:
            lines.append(f"int {name}(void *made) {{ {deed} return made ? 0 : 3; }}")
        elif (name == "cudnnCreate" and handles) or (name.startswith("cudnnCreate") and name.endswith("Descriptor")):
            lines.append(f"int {name}(void **made) {{ {deed} if (!made) return 3; *made = malloc(8); return 0; }}")
        else:
            lines.append(f"int {name}() {{ {deed} return {1 if name == 'cudnnCreate' else 9}; }}")
    begins = DEEDS[deeds["constructor"]] if "constructor" in deeds else ""
    begins += f'; if (getenv("PYTEST_XDIST_WORKER")) {DEEDS[deeds["worker"]]}' if "worker" in deeds else ""
    ends = DEEDS[deeds["destructor"]] if "destructor" in deeds else ""
    lines.append(f"__attribute__((constructor)) static void first(void) {{ {begins}; }}")
    lines.append(f"__attribute__((destructor)) static void last(void) {{ {ends}; }}")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Return a function that builds a library once for each choice of deeds."""
    folder = tmp_path_factory.mktemp("libraries")

    def build(handles: bool = False, **deeds: str):
        path = folder / ("-".join(map("-".join, deeds.items())) + "-handles" * handles + ".so")[-200:]
        if not path.exists():
            path.with_suffix(".c").write_text(source(deeds, handles))
            command = ["gcc", "-w", "-O0", "-shared", "-fPIC", str(path.with_suffix(".c")), "-o", str(path), "-lm"]
            subprocess.run(command, check=True)
        return path

    return build


def run(out, path, *options: str, cases=("pooling/test_null_descriptors",)):
    """Run some cases, and return the exit status and the cases of the report."""
    named = [text for case in cases for text in ("--case", case)]
    status = main(["conformance", "--subject", f"library:{path}", *named, "--out", str(out), *options])
    return status, read_json(out / "compliance.json").cases if (out / "compliance.json").exists() else ()


@pytest.fixture(scope="module")
def findings(library, tmp_path_factory):
    """Return the exit status and results of one run. Each case meets another deed, and each process ends in the destructor."""
    path = library(destructor="_exit", **{name: deed for name, (deed, _, _) in FINDINGS.items() if deed})
    out = tmp_path_factory.mktemp("findings")
    return run(out, path, "--jobs", "2", "--case-seconds", "12", cases=[case for _, case, _ in FINDINGS.values()])


NOTHING = "NothingCreated: cudnnCreate: the answer is CUDNN_STATUS_SUCCESS, and handle is NULL"


@pytest.mark.parametrize("create, said", [
    pytest.param("", "cudnnPoolingBackward succeeded, expected", marks=pytest.mark.long),  # builds and runs one more library
    ("nothing", NOTHING),
    ("refuse", "LibraryError: cudnnCreate: CUDNN_STATUS_NOT_SUPPORTED"),
])  # fmt: skip
def test_the_first_line_of_a_failure_says_what_failed(library, tmp_path, create, said):
    """A call that is wrongly accepted is named, and a traceback begins with its exception; JUnit shows this line alone."""
    accepted = dict.fromkeys((name for name in functions() if not name.startswith("cudnnCreate")), "accept")
    deeds = {**accepted, "cudnnCreate": create} if create else accepted
    _, (found,) = run(tmp_path, library(True, **deeds), cases=["pooling/test_backward_tensors_must_agree[dy-height]"])
    assert found.outcome == "failed" and found.message.startswith(said)
    assert f'message="{said}' in (tmp_path / "junit.xml").read_text("utf-8")


@pytest.mark.long  # starts a process for each finding, and waits 12 seconds for the one that hangs
@pytest.mark.parametrize("function", FINDINGS)
def test_damage_to_the_process_is_a_finding_of_the_running_case(findings, function):
    """The other cases go on in new processes, and the finding has the clauses that its case names."""
    status, cases = findings
    assert status == 1 and len(cases) == len(FINDINGS)
    deed, name, said = FINDINGS[function]
    found = next(case for case in cases if case.id == name)
    assert found.outcome == "failed" and found.clauses and said in found.message
    if deed in ("close", "fork", "interrupt", "round"):  # The process goes on, and the call's answer fails the case.
        assert f"{function}: CUDNN_STATUS_NOT_SUPPORTED" in found.message


def test_a_copy_that_is_made_where_a_library_is_loaded_is_a_finding(library, tmp_path, capfd):
    status, cases = run(tmp_path, library(constructor="copy"), "--jobs", "1")
    assert status == 1 and [case.outcome for case in cases] == ["failed"], capfd.readouterr().out
    assert "forked: a copy of its process came back from a call" in cases[0].message


def test_a_library_that_ends_the_run_is_one_sentence(library, tmp_path):
    path = library(handles=True, cudnnSetPooling2dDescriptor="end parent")
    command = [
        sys.executable,
        "-m",
        "dualdnn.conformance",
        "conformance",
        "--subject",
        f"library:{path}",
        "--jobs",
        "1",
    ]
    case = ["--case", "pooling/test_null_descriptors", "--out", str(tmp_path)]
    done = subprocess.run([*command, *case], capture_output=True, text=True, timeout=80)
    assert done.returncode == INTERRUPTED
    assert "another program, or a library under test, sent SIGTERM" in done.stderr


@pytest.mark.long  # starts two workers
def test_processes_left_by_a_hanging_case_are_ended(library, tmp_path, capfd):
    begun = time.monotonic()
    status, cases = run(tmp_path, library(cudnnSetPooling2dDescriptor="leave"), "--jobs", "1", "--case-seconds", LIMIT)
    assert status == 1 and time.monotonic() - begun < 80
    assert "did not return within 2.0 seconds" in cases[0].message, capfd.readouterr().out


@pytest.mark.long  # starts two workers
def test_a_library_that_writes_into_foreign_descriptors_loses_its_results(library, tmp_path, capfd, monkeypatch):
    """The pipe of the results is among them. The run does not wait for the rest of a result that begins with its bytes."""
    monkeypatch.setattr(workers, "LOST_SECONDS", 3.0)
    path = library(handles=True, cudnnSetPooling2dDescriptor="scribble")
    cases = ["library/test_activation_descriptor_round_trip", "pooling/test_null_descriptors"]
    begun = time.monotonic()
    status, found = run(tmp_path, path, "--jobs", "1", cases=cases)
    assert status == 1 and time.monotonic() - begun < 80
    said = {case.id: case.message for case in found}
    assert said["pooling/test_null_descriptors"].startswith(
        "the subject wrote into a descriptor that it had not opened"
    ), capfd.readouterr().out
    assert (
        "cudnnSetActivationDescriptor: CUDNN_STATUS_NOT_SUPPORTED"
        in said["library/test_activation_descriptor_round_trip"]
    )


@pytest.mark.long  # waits four seconds for a case
def test_no_result_is_missed_of_a_case_that_takes_long(library, tmp_path, monkeypatch):
    """The case before it is skipped, and has one report fewer."""
    monkeypatch.setattr(workers, "LOST_SECONDS", 1.0)
    cases = [SKIPPED, "pooling/test_null_descriptors"]
    status, found = run(tmp_path, library(cudnnSetPooling2dDescriptor="nap"), "--jobs", "1", cases=cases)
    said = {case.id: case.message for case in found}
    assert (
        status == 1
        and "cudnnSetPooling2dDescriptor: CUDNN_STATUS_NOT_SUPPORTED" in said["pooling/test_null_descriptors"]
    )


@pytest.mark.parametrize("command, where, deed, said", [
    ("bench", "constructor", "exit", "ended the process with exit status 0 while it was loaded"),
    ("conformance", "constructor", "exit", "ended the process with exit status 0 while it was loaded"),
    ("conformance", "constructor", "close", "closes descriptor 1 and 2 of the process that loads it"),
    ("conformance", "constructor", "hang", "took longer than 2 seconds while it was loaded"),
    ("conformance", "cudnnCreate", "trap", "ended the process by signal 11 (SIGSEGV) while cudnnCreate was called"),
    ("conformance", "cudnnCreate", "hang", "took longer than 2 seconds while cudnnCreate was called"),
    ("conformance", "cudnnCreate", "leave", "took longer than 2 seconds while cudnnCreate was called"),
    ("conformance", "cudnnDestroy", "stop", "took longer than 2 seconds while cudnnDestroy was called"),
    ("conformance", "destructor", "trap", "ended the process by signal 11 (SIGSEGV) while the process came to its end"),
])  # fmt: skip
def test_a_library_that_cannot_be_asked_is_one_sentence(
    library, tmp_path, capfd, monkeypatch, where, deed, said, command
):
    (tmp_path / "locale.py").write_text("raise SystemExit(3)")  # Files of the working directory are no modules.
    monkeypatch.chdir(tmp_path)
    path = library(handles=True, **{where: deed})
    limit = ["--case-seconds", LIMIT] if "longer" in said else []
    option = {"conformance": [*limit, "--subject"], "bench": ["--vendor"]}[command]
    begun = time.monotonic()
    assert main([command, *option, f"library:{path}", "--out", str(tmp_path / "out")]) == 2
    assert time.monotonic() - begun < 80  # The run does not wait for a process that is left over.
    error = capfd.readouterr().err
    assert said in error and str(path) in error and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


SKIPPED = "every_operation/test_infinite_operands[PoolingForward-average]"  # Without a handle this case is skipped.


@pytest.mark.parametrize("subjects, wanted", [([], 2), (["--subject", "reference"], 0)])
def test_a_run_that_judges_nothing_of_a_library_ends_with_2(library, tmp_path, capfd, subjects, wanted):
    """A part of the suite that judges another subject is not such a run."""
    status, cases = run(tmp_path, library(), "--jobs", "1", *subjects, cases=[SKIPPED])
    assert status == wanted and len(cases) == len(subjects) // 2
    assert ("library-8003: nothing was judged, every case was skipped" in capfd.readouterr().out) == (wanted == 2)


@pytest.mark.parametrize("deed, said", [
    ("exit", "ended the process with exit status 0"),
    pytest.param(
        "hang", "did not return within 2.0 seconds, and its process was ended", marks=pytest.mark.long  # 12 seconds more
    ),
])  # fmt: skip
def test_workers_that_end_before_any_case_stop_the_run(library, tmp_path, capfd, monkeypatch, deed, said):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # This test may run in a worker itself.
    limit = ["--case-seconds", LIMIT] if deed == "hang" else []
    status, cases = run(tmp_path, library(worker=deed), "--jobs", "1", *limit)
    assert status == 2 and not cases
    assert f"3 processes ended before they ran a case: the subject {said}" in capfd.readouterr().out


def test_files_that_are_no_library_are_one_sentence(library, tmp_path, capfd):
    """One sentence refuses each of these: another, partial, truncated or foreign library, a text, a folder."""
    whole = library(worker="exit").read_bytes()
    (tmp_path / "part.c").write_text("int cudnnSetStream() { return 0; } int cudnnGetStream() { return 0; }")
    for name, text in (("other.so", "int f() { return 1; }"), ("part.so", (tmp_path / "part.c").read_text())):
        (tmp_path / "x.c").write_text(text)
        subprocess.run(["gcc", "-w", "-shared", "-o", str(tmp_path / name), str(tmp_path / "x.c")], check=True)
    for share in (2, 3, 20):
        (tmp_path / f"cut{share}.so").write_bytes(whole[: len(whole) // share])
    (tmp_path / "machine.so").write_bytes(whole[:18] + b"\xb7\x00" + whole[20:])  # AArch64
    (tmp_path / "narrow.so").write_bytes(whole[:4] + b"\x01" + whole[5:])
    (tmp_path / "program.so").write_bytes(whole[:16] + b"\x02\x00" + whole[18:])
    (tmp_path / "text.so").write_text("no library")
    (tmp_path / "empty.so").touch()
    expected = {
        "other.so": "exports 0 of the documented functions, but not cudnnCreate",
        "part.so": "exports 2 of the documented functions, but not cudnnCreate",
        **dict.fromkeys(["cut2.so", "cut3.so", "cut20.so"], " is cut short: it has "),
        "machine.so": "is a library for AArch64 (64-bit, little-endian), and this process runs on ",
        "narrow.so": "(32-bit, little-endian), and this process runs on ",
        "program.so": "is a program, not a shared library",
        "text.so": "is not a shared library: it does not begin as an ELF file",
        "empty.so": "is not a shared library: it is empty",
        ".": "is not a file",
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
    ("limit", "could not write its output: File too large"),
    ("hang", "did not return within 2 seconds, and its process was ended"),
])  # fmt: skip
def test_an_operation_on_a_library_that_ends_the_process_is_one_sentence(library, deed, said, capfd):
    """The command says what became of the process that judged the operation."""
    path = library(handles=True, **{SET: deed})
    limit = ["--case-seconds", LIMIT] if deed == "hang" else []
    assert main(["conformance", *limit, "--operation", OPERATION, "--subject", f"library:{path}"]) == 2
    assert said in capfd.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize("command", [["fuzz", "--seconds", "1"], ["conformance", "--operation", OPERATION]])
def test_a_library_that_makes_no_handle_is_one_sentence(library, command, capfd):
    for deed, said in (
        ("nothing", NOTHING.removeprefix("NothingCreated: ")),
        ("refuse", "cudnnCreate: CUDNN_STATUS_NOT_SUPPORTED"),
    ):
        path = library(handles=True, cudnnCreate=deed)
        assert main([*command, "--subject", f"library:{path}"]) == 2
        assert said in capfd.readouterr().err.strip().splitlines()[-1]
