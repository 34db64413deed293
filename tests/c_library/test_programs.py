"""Test ``dualdnn run`` and ``dualdnn observe``, which run unmodified programs on this library or judge another."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dualdnn.api.abi.faces import face
from dualdnn.conformance.command_line import main
from dualdnn.conformance.programs import libraries
from dualdnn.conformance.programs.portion import Portion
from test_c_library_observed import broken_copy

pytest.importorskip("cffi")
if shutil.which("gcc") is None:
    pytest.skip("no C compiler", allow_module_level=True)

EXAMPLES = Path(__file__).parents[2] / "examples" / "c"
# The document refuses to convert FLOAT to HALF, but programs for NVIDIA's library do it.
CONVERSION = """
#include <cudnn.h>
#include <stdio.h>
int cudaMalloc(void **, size_t), cudaMemcpy(void *, const void *, size_t, int);
int main(void) {
  cudnnHandle_t handle; cudnnTensorDescriptor_t x, y;
  float one = 1, zero = 0, numbers[4] = {1, 2, 3, 4}; unsigned short halves[4]; void *from, *to;
  if (cudaMalloc(&from, 16) || cudaMalloc(&to, 8) || cudaMemcpy(from, numbers, 16, 1)) return 101;
  if (cudnnCreate(&handle) || cudnnCreateTensorDescriptor(&x) || cudnnCreateTensorDescriptor(&y)) return 100;
  cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 4, 1, 1);
  cudnnSetTensor4dDescriptor(y, CUDNN_TENSOR_NCHW, CUDNN_DATA_HALF, 1, 4, 1, 1);
  int status = cudnnTransformTensor(handle, &one, x, from, &zero, y, to);
  cudaMemcpy(halves, to, 8, 2);
  printf("%d %x\\n", status, halves[3]);
  return status ? 50 : 0;
}
"""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory, built_library):
    """Point DUALDNN_CACHE at an empty folder that holds only the libraries of this run."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / "programs").mkdir()
    for release in libraries.FACES:
        built_library(release).parent.rename(folder / "programs" / f"{sys.implementation.cache_tag}-{release}")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DUALDNN_CACHE", str(folder))
        for name in ("DUALDNN_BACKEND", "DUALDNN_AS"):
            patched.delenv(name, raising=False)
        yield


def compiled(source, program, release):
    built = libraries.library(release).parent
    command = ["gcc", "-w", f"-I{built / 'include'}", str(source), "-o", str(program)]
    command += [
        f"-L{built}",
        f"-L{libraries.host_runtime()}",
        f"-l:{face(release).library}",
        "-l:libcudart.so.12",
        "-lm",
    ]
    subprocess.run(command, check=True)
    return program


def dualdnn(*arguments, **options):
    command = [sys.executable, "-m", "dualdnn.conformance", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


@pytest.mark.parametrize("release", [8, 9])
def test_a_program_runs_as_on_the_release_that_it_links(tmp_path, release):
    source = tmp_path / "conversion.c"
    source.write_text(CONVERSION)
    program = compiled(source, tmp_path / "conversion", release)
    ran = dualdnn("run", "--", program)
    assert (ran.returncode, ran.stdout) == (0, "0 4400\n"), ran.stderr
    said = [line for line in ran.stderr.splitlines() if "building" not in line]
    assert len(said) == 2 and said[0].startswith("dualdnn run: the reference backend serves ")
    assert said[0].endswith(f"as libcudnn.so.{release}, acting as release {'8.9.7' if release == 8 else '9.19'}")
    assert "[cudnnTransformTensor/c11]" in said[1]
    ran = dualdnn("run", "--as", "8.0.3", "--", program)
    assert ran.returncode == 50 and ran.stdout.startswith("3 " if release == 8 else "2000 ")


def test_an_example_on_the_runtime_of_the_host(tmp_path):
    program = compiled(EXAMPLES / "cnn_train.c", tmp_path / "cnn_train", 8)
    ran = dualdnn("run", "--backend", "reference", "--", program)
    assert ran.returncode == 0 and ran.stdout.splitlines()[-1].startswith("cnn_train: "), ran.stdout + ran.stderr


def test_the_variables_are_the_command_s_alone(tmp_path):
    """An interpreter gets both libraries; the exit status is the command's, and the last line says it is not a client."""
    script = "import os, sys; print(os.environ['LD_PRELOAD'].count('libcudnn.so'), os.environ['TORCH_CUDNN_V8_API_DISABLED']); sys.exit(7)"
    ran = dualdnn("run", "--", sys.executable, "-c", script)
    assert (ran.returncode, ran.stdout) == (7, "2 1\n"), ran.stderr
    assert ran.stderr.splitlines()[-1].endswith(
        "is not a client: no call of cuDNN came; nothing that it ran loads libcudnn.so and calls it"
    )
    ended = dualdnn("run", "--", sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert ended.returncode == 128 + 15


def test_a_program_of_the_working_folder_runs(tmp_path):
    """The program is found as ./name, and as name where PATH has the folder."""
    (tmp_path / "script").write_text("#!/bin/sh\necho $0\nexit 7\n")
    (tmp_path / "script").chmod(0o755)
    for name in ("./script", "script"):
        ran = dualdnn(
            "run", "--face", "8", "--", name, cwd=tmp_path, env={**os.environ, "PATH": f".:{os.environ['PATH']}"}
        )
        assert (ran.returncode, ran.stdout) == (7, f"{tmp_path / 'script'}\n"), ran.stderr


def test_a_program_that_has_cudnn_inside_is_named(tmp_path):
    source = tmp_path / "inside.c"
    source.write_text("int cudnnCreate(void *p) { return !p; }\nint main(void) { return cudnnCreate((void *)1); }\n")
    subprocess.run(["gcc", "-rdynamic", str(source), "-o", str(tmp_path / "inside")], check=True)
    ran = dualdnn("run", "--", tmp_path / "inside")
    assert ran.returncode == 0 and ran.stderr.splitlines()[-1].endswith("it links cuDNN statically")


@pytest.mark.parametrize("command", ["run", "observe"])
def test_a_command_that_cannot_run_is_reported_in_one_line(command, tmp_path, capsys):
    for given, text in (((), "no command"), (("--", str(tmp_path / "nothing")), "is not a program that can be run")):
        assert main([command, *given]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and text in error, error


# This program repeats one call 12 times, uses an enumerator of a later release, and passes NULL where it may.
OBSERVED = """
#include <cudnn.h>
#include <stdio.h>
#define CHECK(call) do { int s = (call); if (s) { printf("%s: %d\\n", #call, s); return 1; } } while (0)
int main(void) {
  cudnnHandle_t handle; cudnnTensorDescriptor_t x, m; cudnnRNNDescriptor_t rnn; cudnnRNNAlgo_t algo; int hidden, i;
  float one = 1, zero = 0, in[16], out[16], scale[2] = {1, 2}, bias[2] = {0, 1}, mean[2] = {0}, variance[2] = {0};
  for (i = 0; i < 16; ++i) in[i] = (float)(i * i % 7);
  CHECK(cudnnCreate(&handle)); CHECK(cudnnCreateTensorDescriptor(&x)); CHECK(cudnnCreateTensorDescriptor(&m));
  CHECK(cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, 2, 2, 4));
  for (i = 0; i < 12; ++i) CHECK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, x, in, &zero, x, out));
  CHECK(cudnnCreateRNNDescriptor(&rnn));
  CHECK(cudnnSetRNNDescriptor_v8(rnn, (cudnnRNNAlgo_t)3, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT,
      CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, 5, 4, 4, 2, 0, 0));
  CHECK(cudnnGetRNNDescriptor_v8(rnn, &algo, 0, 0, 0, 0, 0, 0, 0, 0, &hidden, 0, 0, 0, 0));
  CHECK(cudnnDeriveBNTensorDescriptor(m, x, CUDNN_BATCHNORM_SPATIAL));
  CHECK(cudnnBatchNormalizationForwardTrainingEx(handle, CUDNN_BATCHNORM_SPATIAL, CUDNN_BATCHNORM_OPS_BN, &one, &zero, x, in, 0, 0, x, out, m,
      scale, bias, 1, mean, variance, 1e-5, 0, 0, 0, 0, 0, 0, 0));
  return 0;
}
"""
LIKE_RELEASE_9 = {
    "cudnnGetVersion": "result = 91900;",
    "cudnnSetRNNDescriptor_v8": "if (a1 == 3) result = f(a0, 1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14);",
}


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    """Return a program, and a function that builds a library with given mistakes."""
    folder = tmp_path_factory.mktemp("observed")
    (folder / "observed.c").write_text(OBSERVED)
    program = compiled(folder / "observed.c", folder / "observed", 8)
    return program, lambda name, mistakes: broken_copy(libraries.library(8), made(folder / name), mistakes)


def made(folder):
    folder.mkdir()
    return folder


def test_enumerators_of_release_9_are_not_findings(observed, tmp_path):
    """An enumerator of release 9 and optional NULLs are not findings, and each configuration has a row."""
    program, library = observed
    plain = library("plain", LIKE_RELEASE_9)
    ran = dualdnn("observe", "--library", plain, "--out", tmp_path / "out", "--", program)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "13 judged, 0 wrong, 0 other statuses, 0 other results" in ran.stderr, ran.stderr
    assert "document refuses" not in ran.stderr and "Error" not in ran.stderr, ran.stderr
    found = json.loads((tmp_path / "out" / "observed.json").read_text())
    rows = {row["function"]: row for row in found["configurations"]}
    assert rows["cudnnSoftmaxForward"]["calls"] == rows["cudnnSoftmaxForward"]["judged"] == 12
    assert 0 <= rows["cudnnSoftmaxForward"]["worst_error_in_bounds"] <= 1
    assert "SoftmaxForward(" in rows["cudnnSoftmaxForward"]["operation"]


def test_one_call_in_five_is_judged_and_a_mistake_is_reported_once(observed, tmp_path):
    program, library = observed
    wrong = library("wrong", LIKE_RELEASE_9 | {"cudnnSoftmaxForward": "((float *)a8)[3] += 1;"})
    ran = dualdnn("observe", "--every", "5", "--library", wrong, "--out", tmp_path / "out", "--", program)
    assert ran.returncode == 1
    assert "4 judged, 3 wrong" in ran.stderr and ran.stderr.count("wrong: cudnnSoftmaxForward") == 1, ran.stderr
    assert "(3 times)" in ran.stderr
    assert "not judged: cudnnSoftmaxForward: one call of 5 is judged (9 calls)" in ran.stderr
    assert (tmp_path / "out" / "summary.txt").read_text() in ran.stderr


def test_judging_keeps_to_its_part_of_the_time():
    portion = Portion(budget=0.2)
    portion.began -= 10
    assert portion.left_out("f", "o") == ""
    portion.spend(1.9)
    assert portion.left_out("f", "o") == ""
    portion.spend(1)
    assert portion.left_out("f", "o") == "judging takes 20% of the time"
    portion.began -= 10
    assert portion.left_out("f", "o") == ""


@pytest.mark.parametrize(
    "given", [("--budget", "0%"), ("--budget", "much"), ("--budget", "101%"), ("--every", "0"), ("--every", "-1")]
)
def test_an_invalid_share_is_refused(given, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["observe", *given, "--", "true"])
    assert repr(given[1]) in capsys.readouterr().err
