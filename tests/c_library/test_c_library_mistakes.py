"""Test that the suite notices each mistake that is injected where the C library converts arguments and results. For
each mistake some cases run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dualdnn.conformance.refusals import FOLDER
from injected_mistakes import MISTAKES

pytest.importorskip("cffi")
if shutil.which("gcc") is None:
    pytest.skip("no C compiler", allow_module_level=True)

CASES = Path(__file__).parents[2] / "conformance" / "cases"
CORPUS = CASES.parent / "corpus"
# mistake -> a file of cases (with its table of refusals and its pinned operations), and an expression that selects cases
NOTICED_BY = {
    "time and memory of a row swapped": ("convolution/convolution_algorithms.py", ""),
    "determinism and mathType swapped": ("convolution/convolution_algorithms.py", ""),
    "scaling of DOUBLE read as float": ("tensor_arithmetic.py", "scale"),
    "scaling of the tensor's own type": ("tensor_arithmetic.py", "scale"),
    "the value of cudnnSetTensor read as float": ("tensor_arithmetic.py", "test_set"),
    "one entry too few in arrays": ("tensor_descriptors.py", ""),
    "entries in reverse": ("tensor_descriptors.py", ""),
    "NULL device pointer as address 0": ("tensor_arithmetic.py", "null"),
    "sizes of 31 bits": ("reduce_tensor.py", "exceeds_31_bits"),
    "sizes of 31 bits as results": ("filter_descriptors.py", ""),
    "two fold factors too many read": ("transform.py", "descriptor or fold"),
    "NULL outputs not refused": ("tensor_descriptors.py", ""),
    "user data of the log callback not handed on": ("library.py", "callback_state or info_channel"),
    "messages cite another clause": ("tensor_descriptors.py", ""),
}
CRASHED = -11  # status of a process that SIGSEGV ended


@pytest.fixture(scope="module")
def library(built_library):
    return built_library()


def status(library, mistake, file, expression):
    """Return pytest's exit status, after the first failure. Writing beyond the caller's memory ends the process."""
    command = [sys.executable, str(Path(__file__).parent / "injected_mistakes.py"), mistake]
    command += ["-p", "dualdnn.conformance.plugin", "-q", "-x", "-p", "no:cacheprovider", "-W", "ignore"]
    name = Path(file).stem
    files = [file, *map(str, [*FOLDER.glob(f"{name}.toml"), *CORPUS.glob(f"{name}.jsonl")])]
    command += ["--subject", f"library:{library}", "--rootdir", str(CASES), "-c", os.devnull, *files, "-k", expression]
    return subprocess.run(command, cwd=CASES, capture_output=True, timeout=300).returncode


def test_every_mistake_has_cases():
    assert set(NOTICED_BY) | {"none"} == set(MISTAKES)


def test_without_a_mistake_cases_pass(library):
    """The cases pass without a mistake. test_c_library_processes.py runs a tenth of the suite."""
    assert status(library, "none", "tensor_descriptors.py", "") == pytest.ExitCode.OK


@pytest.mark.long
@pytest.mark.parametrize("mistake", NOTICED_BY)
def test_a_mistake_is_noticed(library, mistake):
    assert status(library, mistake, *NOTICED_BY[mistake]) in (pytest.ExitCode.TESTS_FAILED, CRASHED)
