"""Test examples/c: a program for each of cuDNN's libraries compiles without a warning and finds what it expects."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from dualdnn.api.abi.build import NAME

pytest.importorskip("cffi")
if shutil.which("gcc") is None:
    pytest.skip("no C compiler", allow_module_level=True)

PROGRAMS = sorted((Path(__file__).parents[2] / "examples" / "c").glob("*.c"))
EXAMPLES = ("adv_infer", "adv_train", "cnn_infer", "cnn_layouts", "cnn_train", "ops_infer", "ops_train")


@pytest.fixture(scope="module")
def libraries(built_library):
    return built_library(runtime=True).parent


def test_there_is_a_program_for_each_library_and_for_layouts():
    assert [program.stem for program in PROGRAMS] == list(EXAMPLES)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_program_compiles_and_succeeds(libraries, tmp_path, program):
    command = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{libraries / 'include'}", str(program)]
    command += ["-o", str(tmp_path / program.stem), f"-L{libraries}", f"-l:{NAME}", "-l:libcudart.so.12", "-lm"]
    subprocess.run(command, check=True)
    environment = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(libraries)}
    ran = subprocess.run([str(tmp_path / program.stem)], capture_output=True, text=True, timeout=120, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1].startswith(f"{program.stem}: "), ran.stdout
