"""``dualdnn run`` and ``dualdnn observe``: unmodified programs on this library, or judged on another one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dualdnn.api.abi.faces import face
from dualdnn.conformance.programs import libraries

pytest.importorskip("cffi")
if shutil.which("gcc") is None:
    pytest.skip("no C compiler", allow_module_level=True)

EXAMPLES = Path(__file__).parent.parent / "examples" / "c"
# FLOAT to HALF: what the document refuses, and programs for NVIDIA's library do.
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
def cache(tmp_path_factory):
    """Keep what is built in a folder of its own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DUALDNN_CACHE", str(tmp_path_factory.mktemp("cache")))
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
    """Both faces for an interpreter; the exit status is the command's, and that it is no client is said at the end."""
    script = "import os, sys; print(os.environ['LD_PRELOAD'].count('libcudnn.so'), os.environ['TORCH_CUDNN_V8_API_DISABLED']); sys.exit(7)"
    ran = dualdnn("run", "--", sys.executable, "-c", script)
    assert (ran.returncode, ran.stdout) == (7, "2 1\n"), ran.stderr
    assert ran.stderr.splitlines()[-1].endswith(
        "is no client: no call of cuDNN came; nothing that it ran loads libcudnn.so and calls it"
    )
    ended = dualdnn("run", "--", sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert ended.returncode == 128 + 15


def test_a_program_that_has_cudnn_inside_is_named(tmp_path):
    source = tmp_path / "inside.c"
    source.write_text("int cudnnCreate(void *p) { return !p; }\nint main(void) { return cudnnCreate((void *)1); }\n")
    subprocess.run(["gcc", "-rdynamic", str(source), "-o", str(tmp_path / "inside")], check=True)
    ran = dualdnn("run", "--", tmp_path / "inside")
    assert ran.returncode == 0 and ran.stderr.splitlines()[-1].endswith("it links cuDNN statically")


@pytest.mark.parametrize("command", ["run"])
def test_what_cannot_be_run_is_one_line(command, tmp_path):
    for given, text in (((), "no command"), (("--", tmp_path / "nothing"), "is no program that can be run")):
        ran = dualdnn(command, *given)
        assert ran.returncode == 2 and ran.stderr.count("\n") == 1 and text in ran.stderr, ran.stderr
