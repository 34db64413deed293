"""Build the C library once for the tests of its memo. Run Python programs that call it as C would, each in its own process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HELP = (Path(__file__).parent / "calls.py").read_text()


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Skip these tests without a compiler, because there is no library then."""
    if shutil.which("gcc") is None:
        for item in items:
            item.add_marker(pytest.mark.skip("no C compiler"))


@pytest.fixture(scope="session")
def library(built_library: Any) -> Path:
    return built_library()


@pytest.fixture
def ran(library: Path) -> Any:
    """Return a function that runs a program after calls.py and returns what it printed. Its exit status must be 0."""

    def run(program: str, *arguments: str, **variables: str) -> str:
        command = [sys.executable, "-c", HELP + program, str(library), *arguments]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **variables}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    return run


EMULATED = {"DUALDNN_BACKEND": "accelerated", "DUALDNN_DEVICE": "emulated"}
